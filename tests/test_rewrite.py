"""suite rewrite: rules and a model propose patterns and questions; what is no rewrite is refused."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from checks import PromptStub, output, refusal, refused
from conftest import cases, suite_of
from consilience.authoring import rewriting
from consilience.authoring.rewriting import DRAWN, draft_rewrites, drafts_by_rule
from consilience.options.commands import RewriteOptions
from consilience.suites.questions import Questions
from replay_server import replay

FACTS = {"capital": [("France", "Paris"), ("Italy", "Rome")], "river": [("Paris", "Seine")]}
PATTERNS = {
    "capital": ["The capital of [X] is [Y].", "[Y] is the capital of [X]."],
    "river": ["[X] is on the river [Y].", "The river [Y] flows through [X]."],
}
SUITE = suite_of(PATTERNS, FACTS)
FIVE = suite_of(
    {f"r{at}": [f"[X] has a{at} [Y].", f"[X] really has a{at} [Y]."] for at in range(5)},
    {f"r{at}": [("x", "y")] for at in range(5)},
)


class ScriptedWriter(PromptStub):
    """Writes texts that were given to it: those of each base pattern, a text for each sample."""

    def __init__(self, texts):
        self.texts, self.identity, self.notes = texts, {"model": "a script"}, []

    def why_not(self, prompts):
        return [None if self.key(prompt) else "no script" for prompt in prompts]

    def key(self, prompt):
        return next((base for base in self.texts if base in self.text(prompt)), None)

    def write(self, prompts, samples):
        for row, (prompt, sample) in reversed(list(enumerate(zip(prompts, samples, strict=True)))):
            yield np.array([row]), [self.texts[self.key(prompt)][sample - 1]]


@pytest.mark.parametrize(("text", "patterns"), cases("written_patterns"))
def test_patterns_in_a_text(text, patterns):
    assert list(rewriting.written_texts(text)) == patterns


@pytest.mark.parametrize(("text", "base"), [
    ("In Star Wars: Episode IV, who is the hero?", "Who is the hero of Star Wars: Episode IV?"),
    ('"Yes" and "No"', "No and yes"),
])  # fmt: skip
def test_a_colon_or_quotation_marks_of_the_text_stay(text, base):
    assert list(rewriting.written_texts(text, ["?"], base)) == [text]


def test_each_rule_refuses_and_is_counted():
    writer = ScriptedWriter({
        "The capital of [X] is [Y].": [
            "[X]'s capital is [Y].", "Paris is the capital.", "the capital of [X]  is [Y]",
            "[Y] is the Capital of [X]", "[X] capital [Y] " + "is the capital and " * 4,
            "[X]\u2019s Capital is [Y]!\n[X]'s capital is [Y]",
        ],
    })  # fmt: skip
    drafts, refusals = draft_rewrites(SUITE, writer, 6, source="x")
    assert [(d["pattern"], d["sample"]) for d in drafts] == [("[X]'s capital is [Y].", 1)]
    bare = rewriting.Base("q", "?", "", ("?",), "x")
    assert not rewriting.fault_of(bare, "How?", set(), True), "a base without a word has no length"
    assert refusals["id", "reason"].rows() == [
        ("river", "no script"), ("capital", "slots"), ("capital", "same as the base pattern"),
        ("capital", "duplicate"), ("capital", "length"), ("capital", "duplicate"), ("capital", "duplicate"),
    ]  # fmt: skip


def test_proposals_are_written_with_scores_edit_and_provenance(tmp_path):
    bases = [relation.patterns[0].text for relation in FIVE]
    texts = {base: [f"[X] now has a{at} [Y].", "[X] [Y]"] for at, base in enumerate(bases)}
    writer = ScriptedWriter(texts)
    options = RewriteOptions("five", out=tmp_path / "p.jsonl", model="org/writer", samples=2)
    done = rewriting.rewrite_suite(FIVE, writer, options)
    assert done.facts["refused"] == {"no plain words": 5}
    proposals = [json.loads(line) for line in options.out.read_text().splitlines()]
    assert [p["relation"] for p in proposals] == [f"r{at}" for at in range(5)]
    first = proposals[0]
    assert first == {
        "accept": "yes", "relation": "r0", "pattern": "[X] now has a0 [Y].", "origin": "rewritten",
        "source": "org/writer", "parent": "[X] has a0 [Y].", "reason": rewriting.UNREAD,
        "sample": 1, "seed": 0, "temperature": 0.7,
    }  # fmt: skip


def test_the_command_runs_with_a_model(consilience, model_folder, write_suite, tmp_path):
    """A random model writes no slots, so that every text is refused and counted."""
    out = output(
        consilience, "suite", "rewrite", write_suite(), "--model", model_folder("mamba"), "--samples", "2",
        "--out", "p.jsonl", "--json",
    )  # fmt: skip
    document = json.loads(out)
    assert (sum(document["refused"].values()), document["run"]["settings"]["seed"]) == (2, 0)
    assert "[X]" in document["run"]["settings"]["prompts"][0]
    assert not (tmp_path / "p.jsonl").exists(), "no proposal is no file"


@pytest.mark.parametrize(("options", "message"), [
    ({"model": "openai:tiny"}, "openai:tiny needs --base-url"),
    ({"base_url": "http://127.0.0.1:9/v1"}, "--base-url with --model none; expected a model behind a URL"),
    ({"suite": "mini-questions", "model": None, "base_url": "http://127.0.0.1:9/v1"}, "expected a model behind a URL"),
    ({"model": "baseline:random"}, "'baseline:random' is a baseline"),
    ({"out": Path(__file__)}, "a file already, and it may have edits.*--out"),
    ({"model": None}, "'mini' without a model: the rules are for questions. Add --model M"),
])  # fmt: skip
def test_a_model_that_cannot_has_a_message(options, message, tmp_path):
    given = RewriteOptions(
        **{"suite": "mini", "model": "none", "out": tmp_path / "p.jsonl"} | options
    )
    refused(message, rewriting.rewrite_patterns, given)


ROWS = [
    {"item": "au", "question": "What is the capital of Australia?", "answer": "Canberra", "options": ["Sydney", "Canberra"]},
    {"item": "legs", "question": "How many legs do 2 spiders have?", "answer": "16", "options": ["8", "16"]},
]  # fmt: skip


def suite_of(*rows):
    return Questions.from_frame(pl.DataFrame(rows))


def by_rule(suite, seed=0):
    return {draft["edit"]: draft["question"] for draft in drafts_by_rule(suite, seed)}


@pytest.mark.parametrize(("question", "forms"), cases("phrasing_rules"))
def test_rules_keep_the_meaning_or_do_not_apply(question, forms):
    suite = suite_of(ROWS[0] | {"question": question})
    drafts = [one for one in drafts_by_rule(suite) if one["edit"] not in DRAWN]
    assert [f"{draft['edit']}: {draft['question']}" for draft in drafts] == forms
    assert all(draft["source"] == "rule" and draft["reason"] for draft in drafts)
    is_open = suite_of({"question": question, "answer": "x"})
    left = [edit for edit in by_rule(is_open) if edit not in DRAWN]
    assert left == [one.split(":")[0] for one in forms if "of these" not in one.split(":")[0]]


@pytest.mark.parametrize(("question", "kept"), [
    ("What does 'the seven words' mean?", "'the seven words'"),
    ("What does the root do if a is twice of fifteen?", " a |twice|fifteen"),
    ("What's \u201cwhere the wild things are\u201d about?", "where the wild things are"),
])  # fmt: skip
def test_quotations_numbers_in_words_and_variables_stay(question, kept):
    drawn = [by_rule(suite_of(ROWS[0] | {"question": question}), seed) for seed in range(20)]
    texts = [of[edit] for of in drawn for edit in {*DRAWN} & {*of}]
    assert texts and all(part in text for part in kept.split("|") for text in texts)


def test_what_is_drawn_is_drawn_by_the_seed_and_changes_no_name_number_or_field():
    """Sydney is an option and {city} a field, so neither has a typo or is in lower case."""
    question = "What is the capital of {city}, founded in 1788 by sydney people, Sydney?"
    suite = suite_of(ROWS[0] | {"question": question})
    seen = {}
    for seed in range(30):
        drawn = by_rule(suite, seed)
        assert drawn == by_rule(suite, seed)
        assert "lower case" not in drawn
        for edit in DRAWN:
            text = drawn[edit]
            assert all(part in text for part in ("{city}", "1788", "sydney", "Sydney")), text
            seen.setdefault(edit, set()).add(text)
        (one, two) = drawn["typo"].split(), question.split()
        (changed,) = [pair for pair in zip(one, two, strict=True) if pair[0] != pair[1]]
        assert sorted(changed[0]) == sorted(changed[1]) and changed[0][0] == changed[1][0]
        assert drawn["spaces"].count("  ") == 1
    assert seen["stop words"] == {
        "What capital of {city}, founded in 1788 by sydney people, Sydney?"
    }
    assert len(seen["typo"]) > 5 and len(seen["spaces"]) > 5
    for german in ("Warum?", "Weißt du, was diese Stadt ist?"):
        assert not by_rule(suite_of(ROWS[0] | {"question": german})), "no rule knows it"


def test_what_a_model_writes_is_a_question_with_the_numbers_and_without_the_answer():
    texts = [
        "Canberra.", "Is Canberra the capital of Australia?",
        "Sure!\n1. **Which city is the capital of Australia?**", "WHAT IS THE CAPITAL OF AUSTRALIA?",
        "which city is the capital of Australia ?", "What is not the capital of Australia?", "",
    ]  # fmt: skip
    spiders = ["How many legs do 3 spiders have?"] * 6 + ["What number of legs do 2 spiders have?"]
    writer = ScriptedWriter({"Australia": texts, "spiders": spiders})
    drafts, refusals = draft_rewrites(suite_of(*ROWS), writer, 7, source="x")
    assert [draft["question"] for draft in drafts] == [
        "Which city is the capital of Australia?", "What number of legs do 2 spiders have?",
    ]  # fmt: skip
    assert refusals.filter(id="au")["reason"].to_list() == [
        "no question", "answer", "same as the first phrasing", "duplicate",
        "numbers or negation", "no plain words",
    ]  # fmt: skip
    assert set(refusals.filter(id="legs")["reason"]) == {"numbers or negation"}


def rewritten(consilience, table, *more):
    out = output(consilience, "suite", "rewrite", table, "--out", "r.csv", *more)
    return out, pl.read_csv("r.csv", infer_schema=False).rows(named=True)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_behind_a_url_writes_phrasings(consilience, here):
    pl.DataFrame(ROWS[:1]).with_columns(pl.col("options").list.join(";")).write_csv("q.csv")
    message = {"content": "Which city is the capital of Australia?"}
    reply = {"choices": [{"message": message, "finish_reason": "stop"}]}
    with replay(lambda path, body, headers: reply) as server:
        options = ("--model", "tiny", "--base-url", server.url, "--samples=1")
        out, rows = rewritten(consilience, "q.csv", *options)
    assert "11 proposals for 1 of 1 question\n" in out
    assert rows[-1]["source"] == "openai:tiny" and rows[-1]["reason"] == rewriting.UNREAD

    for name, found in (
        ("none/p.csv", "none: no such folder"),
        ("p.tsv", "ends in .jsonl or .csv"),
    ):
        assert found in refusal(consilience, "suite", "rewrite", "q.csv", "--out", name)


@pytest.mark.parametrize("language", ["de", ""])  # as it says, or as no rule knows its words
def test_without_a_model_a_question_in_another_language_has_a_note(consilience, here, language):
    row = {"question": "Was ist das?", "answer": "x", "language": language}
    (here / "q.jsonl").write_text(json.dumps(row))
    status, out, err = consilience("suite", "rewrite", "q.jsonl", "--out", "r.jsonl")
    assert status == 0 and "no file: 0 proposals for 0 of 1 question" in out
    assert (
        "for 1 question, such as 5f721bfd2f: rules are for English questions (language en)" in err
    )
    message = refusal(consilience, "suite", "rewrite", "q.jsonl", "--out", "q.jsonl")
    assert "there is a file already" in message
