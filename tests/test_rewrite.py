"""suite rewrite: a model proposes paraphrases, rules refuse, a judge compares meanings."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from checks import output, refused
from conftest import cases
from consilience import Suite
from consilience.authoring import rewriting
from consilience.authoring.rewriting import draft_rewrites
from consilience.options.suites import RewriteOptions
from scoring_server import VLLM, scoring_server
from test_prompted import CHAT

FACTS = {"capital": [("France", "Paris"), ("Italy", "Rome")], "river": [("Paris", "Seine")]}
PATTERNS = {
    "capital": ["The capital of [X] is [Y].", "[Y] is the capital of [X]."],
    "river": ["[X] is on the river [Y].", "The river [Y] flows through [X]."],
}
SUITE = Suite.from_patterns(PATTERNS, FACTS)
FIVE = Suite.from_patterns(
    {f"r{at}": [f"[X] has a{at} [Y].", f"[X] really has a{at} [Y]."] for at in range(5)},
    {f"r{at}": [("x", "y")] for at in range(5)},
)


class ScriptedWriter:
    """Writes texts that were given to it: those of each base pattern, a text for each sample."""

    def __init__(self, texts):
        self.texts, self.identity, self.notes = texts, {"model": "a script"}, []

    def why_not(self, prompts):
        return [None if self.key(prompt) else "no script" for prompt in prompts]

    def key(self, prompt):
        return next((base for base in self.texts if base in self.text(prompt)), None)

    def text(self, prompt):
        return prompt.text

    def write(self, prompts, samples):
        for row, (prompt, sample) in reversed(list(enumerate(zip(prompts, samples, strict=True)))):
            yield np.array([row]), [self.texts[self.key(prompt)][sample - 1]]


class WordJudge:
    """Counts shared words minus others of the first sentence."""

    def __init__(self):
        self.identity = {"model": "words"}

    def meaning(self, pairs):
        words = [({*first.split()}, {*second.split()}) for first, second in pairs]
        return np.array([float(len(a & b) - len(a - b)) for a, b in words])


@pytest.mark.parametrize(("text", "patterns"), cases("written_patterns"))
def test_patterns_in_a_text(text, patterns):
    assert list(rewriting.written_patterns(text)) == patterns


@pytest.mark.parametrize(("text", "base"), [
    ("In Star Wars: Episode IV, who is the hero?", "Who is the hero of Star Wars: Episode IV?"),
    ('"Yes" and "No"', "No and yes"),
])  # fmt: skip
def test_a_colon_or_quotation_marks_of_the_text_stay(text, base):
    assert list(rewriting.written_patterns(text, ["?"], base)) == [text]


def test_each_rule_refuses_and_is_counted():
    writer = ScriptedWriter({
        "The capital of [X] is [Y].": [
            "[X]'s capital is [Y].", "Paris is the capital.", "the capital of [X]  is [Y]",
            "[Y] is the Capital of [X]", "[X] capital [Y] " + "is the capital and " * 4,
            "\u0421\u0442\u043e\u043b\u0438\u0446\u0430 [X] - [Y].", "Zauberhaft [X] oder [Y].", "[X]\u2019s Capital is [Y]!\n[X]'s capital is [Y]",
        ],
    })  # fmt: skip
    drafts, refusals = draft_rewrites(SUITE, writer, 8)
    assert [(d.pattern, d.scores["sample"]) for d in drafts] == [("[X]'s capital is [Y].", 1)]
    assert [(r.relation, r.reason) for r in refusals] == [
        ("river", "no script"), ("capital", "slots"), ("capital", "same as the base pattern"),
        ("capital", "duplicate"), ("capital", "length"), ("capital", "language"),
        ("capital", "language"), ("capital", "duplicate"), ("capital", "duplicate"),
    ]  # fmt: skip


def test_rewrites_stay_in_the_language_of_the_suite(tmp_path):
    """One word that both languages have, such as capital, is not enough."""
    base = "La capital de [X] es [Y]."
    facts = {"capital": [("Francia", "París")]}
    suite = Suite.from_patterns({"capital": [base]}, facts)
    (relation,) = suite
    spanish = replace(relation.patterns[0], language="es")
    suite = replace(suite, relations=(replace(relation, patterns=(spanish,)),), language="es")
    texts = ["The capital of [X] is [Y].", "[X] is the capital [Y].", "[Y] es la capital de [X]."]
    drafts, refusals = draft_rewrites(suite, ScriptedWriter({base: texts}), 3)
    assert [draft.pattern for draft in drafts] == ["[Y] es la capital de [X]."]
    assert [refusal.reason for refusal in refusals] == ["language", "language"]


def test_the_meaning_score_is_the_mean_over_facts():
    (capital, _), (first, second) = SUITE.relations, SUITE.relations[0].patterns
    pair = rewriting.PatternPair(capital, first, second, capital.facts)
    # 'The capital of France is Paris.' and 'Paris is the capital of France.' share capital, of and
    # is; three words of each are not in the other one: 3 - 3.
    assert rewriting.meaning_scores([pair], WordJudge()).tolist() == [0]
    same = rewriting.PatternPair(capital, first, first, capital.facts[:1])
    assert rewriting.meaning_scores([pair, same], WordJudge()).tolist() == [0, 6]
    assert rewriting.meaning_scores([], WordJudge()).tolist() == []


def test_separation_by_hand():
    yes = {"a": [3, 1], "b": [2]}
    no = {"a": [0, 1], "b": [2]}
    of_all = rewriting.separation(yes, no)
    # pairs: 3 > 0, 1, 2; 1 > 0, 1 = 1, 1 < 2; 2 > 0, 1, 2 = 2: 6 + 2/2 of 9
    assert (of_all.auc, of_all.positives, of_all.controls) == (pytest.approx(7 / 9), 3, 3)
    assert math.isnan(of_all.low) and of_all.threshold is None, "too few relations"
    ids = "abcdef"
    best = rewriting.separation({id_: [2, 3] for id_ in ids}, {id_: [0, 1] for id_ in ids})
    assert (best.auc, best.low, best.high, best.threshold) == (1, 1, 1, 2)
    coin = rewriting.separation({id_: [1] for id_ in ids}, {id_: [1] for id_ in ids})
    assert (coin.auc, coin.threshold) == (0.5, None)
    weak = rewriting.separation({id_: [0, 2] for id_ in ids}, {id_: [1, 0] for id_ in ids})
    # of 4 pairs of a relation 0 = 0, 0 < 1, 2 > 0, 2 > 1: 2.5 of 4, below the bound of 0.7
    assert (weak.auc, weak.low, weak.threshold) == (0.625, 0.625, None)
    worst = rewriting.separation({id_: [0] for id_ in ids}, {id_: [1] for id_ in ids})
    assert (worst.auc, worst.threshold) == (0, None)


def test_controls_have_the_facts_of_the_relation():
    positives, controls = rewriting.sample_pairs(SUITE, 3, 1)
    for pairs, is_own in ((positives, True), (controls, False)):
        assert [pair.relation.id for pair in pairs] == ["capital", "river"]
        for pair in pairs:
            assert (pair.second in pair.relation.patterns) is is_own
            assert pair.first == pair.relation.patterns[0]
            assert len(pair.facts) == 1 and pair.facts[0] in pair.relation.facts
    one = Suite.from_patterns(PATTERNS["capital"], FACTS["capital"])
    assert rewriting.measured_separation(one, WordJudge(), 1, 0) is None


def test_proposals_are_written_with_scores_edit_and_provenance(tmp_path):
    bases = [relation.patterns[0].text for relation in FIVE]
    texts = {base: [f"[X] now has a{at} [Y].", "[X] [Y]"] for at, base in enumerate(bases)}
    writer = ScriptedWriter(texts)
    options = RewriteOptions("five", tmp_path / "p.jsonl", "org/writer", samples=2, fillings=1)
    done = rewriting.rewrite_suite(FIVE, writer, WordJudge(), options, measured_on=FIVE)
    assert done.reasons == {"no plain words": 5}
    assert (done.separation.auc, done.separation.low) == (1, 1)
    assert "AUC of 1.00 (1.00 to 1.00); rewrites below" in done.notes[0]
    proposals = [json.loads(line) for line in options.out.read_text().splitlines()]
    assert [p["relation"] for p in proposals] == [f"r{at}" for at in range(5)]
    first = proposals[0]
    # 'x has a0 y.' and 'x now has a0 y.': 4 words are shared
    assert first == {
        "accept": "yes", "relation": "r0", "pattern": "[X] now has a0 [Y].", "origin": "rewritten",
        "source": "org/writer", "parent": "[X] has a0 [Y].", "reason": rewriting.UNREAD,
        "meaning": 4, "sample": 1, "seed": 0, "temperature": 0.7,
    }  # fmt: skip
    strict = RewriteOptions("five", tmp_path / "p.jsonl", "w", samples=2, fillings=1, min_meaning=5)
    result = rewriting.rewrite_suite(FIVE, writer, WordJudge(), strict, measured_on=FIVE)
    assert result.reasons == {"no plain words": 5, "meaning": 5}
    assert options.out.read_text() == ""
    nothing = ScriptedWriter({})
    few = rewriting.rewrite_suite(SUITE, nothing, WordJudge(), options, measured_on=SUITE)
    assert "is not measured, because the suite has fewer than 5 relations" in few.notes[0]


def test_the_command_runs_with_a_model(consilience, model_folder, write_suite, tmp_path):
    """A random model writes no slots, so that every text is refused and counted."""
    out = output(
        consilience, "suite", "rewrite", write_suite(), "--model", model_folder("mamba"), "--samples", "2",
        "--max-new-tokens", "4", "--out", "p.jsonl", "--json",
    )  # fmt: skip
    document = json.loads(out)
    assert (sum(document["refused"].values()), document["run"]["settings"]["seed"]) == (2, 0)
    assert "[X]" in document["run"]["settings"]["prompts"][0] and document["separation"] is None
    assert (tmp_path / "p.jsonl").read_text() == ""


def test_one_behind_a_url_writes(consilience, model_folder, write_suite, tmp_path):
    with scoring_server(model_folder("mamba"), VLLM, longest=512, chat_template=CHAT) as server:
        arguments = ["suite", "rewrite", write_suite(), "--model", "openai:tiny", "--samples", "2"]
        arguments += [
            "--base-url", server.url, "--max-new-tokens", "4", "--out", "p.jsonl", "--json",
        ]  # fmt: skip
        out = output(consilience, *arguments)
    document = json.loads(out)
    assert document["run"]["settings"]["model"]["model"] == "openai:tiny"
    assert sum(document["refused"].values()) == 2


@pytest.mark.parametrize(("options", "message"), [
    ({"model": "openai:tiny"}, "openai:tiny needs --base-url"),
    ({"base_url": "http://127.0.0.1:9/v1"}, "an option of models behind a URL with --model none"),
    ({"suite": "mini-questions", "model": None, "base_url": "http://127.0.0.1:9/v1"}, "of models behind a URL"),
    ({"model": "baseline:random"}, "'baseline:random' is a baseline"),
    ({"out": Path(__file__)}, "a file already, and it may have edits.*--out"),
    ({"temperature": 0.0}, "--samples 8 at temperature 0"),
    ({"model": None, "temperature": 0.7, "judge": "minilm"}, "the judge minilm; expected embedding:MODEL"),
])  # fmt: skip
def test_a_model_that_cannot_has_a_message(options, message, tmp_path):
    given = RewriteOptions(
        **{"suite": "mini", "model": "none", "out": tmp_path / "p.jsonl"} | options
    )
    refused(message, rewriting.rewrite_patterns, given)
