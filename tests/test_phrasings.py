"""Phrasings of one's own questions: proposed by rule or by a model, accepted, added in columns."""

import polars as pl
import pytest

from checks import output, refusal
from conftest import cases
from consilience.authoring import rewriting
from consilience.authoring.rewriting import DRAWN, draft_rewrites, drafts_by_rule
from consilience.suites.questions import Questions
from replay_server import replay
from test_rewrite import ScriptedWriter

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
    assert not by_rule(suite_of(ROWS[0] | {"question": "Warum?"}))
    german = by_rule(suite_of({"question": "Weißt du, was diese Stadt ist?", "answer": "x"}))
    assert [*german] == ["typo", "spaces"], "was is no English word here"


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
        options = ("--model", "tiny", "--base-url", server.url, "--samples=1", "--temperature=0")
        out, rows = rewritten(consilience, "q.csv", *options)
    assert "11 proposals for 1 of 1 question\n" in out
    assert rows[-1]["source"] == "openai:tiny" and rows[-1]["reason"] == rewriting.UNREAD

    for name, found in (
        ("none/p.csv", "none: no such folder"),
        ("p.tsv", "ends in .jsonl or .csv"),
    ):
        assert found in refusal(consilience, "suite", "rewrite", "q.csv", "--out", name)


def test_without_a_model_a_question_in_another_language_has_a_note(consilience, here):
    (here / "q.jsonl").write_text('{"question": "Was ist das?", "answer": "x", "language": "de"}\n')
    status, out, err = consilience("suite", "rewrite", "q.jsonl", "--out", "r.jsonl")
    assert status == 0 and "no file: 0 proposals for 0 of 1 question" in out
    assert (
        "nothing new by rule for 1 question, such as 5f721bfd2f: rules are for English questions"
        in err
    )
    assert "there is a file already" in refusal(
        consilience, "suite", "rewrite", "q.jsonl", "--out", "q.jsonl"
    )
