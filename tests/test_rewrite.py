"""suite rewrite: a model proposes paraphrases, rules refuse, a judge compares meanings."""

import json
from pathlib import Path

import numpy as np
import pytest

from checks import output, refused
from conftest import cases
from consilience import Suite
from consilience.authoring import rewriting
from consilience.authoring.rewriting import draft_rewrites
from consilience.options.others import RewriteOptions
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


def test_one_behind_a_url_writes(consilience, model_folder, write_suite, tmp_path):
    with scoring_server(model_folder("mamba"), VLLM, chat_template=CHAT) as server:
        arguments = ["suite", "rewrite", write_suite(), "--model", "openai:tiny", "--samples", "2"]
        arguments += [
            "--base-url", server.url, "--out", "p.jsonl", "--json",
        ]  # fmt: skip
        out = output(consilience, *arguments)
    document = json.loads(out)
    assert document["run"]["settings"]["model"]["model"] == "openai:tiny"
    assert sum(document["refused"].values()) == 2


@pytest.mark.parametrize(("options", "message"), [
    ({"model": "openai:tiny"}, "openai:tiny needs --base-url"),
    ({"base_url": "http://127.0.0.1:9/v1"}, "--base-url with --model none; expected a model behind a URL"),
    ({"suite": "mini-questions", "model": None, "base_url": "http://127.0.0.1:9/v1"}, "expected a model behind a URL"),
    ({"model": "baseline:random"}, "'baseline:random' is a baseline"),
    ({"out": Path(__file__)}, "a file already, and it may have edits.*--out"),
    ({"temperature": 0.0}, "--samples 8 at temperature 0"),
    ({"model": None}, "'mini' without a model: the rules are for questions. Add --model M"),
])  # fmt: skip
def test_a_model_that_cannot_has_a_message(options, message, tmp_path):
    given = RewriteOptions(
        **{"suite": "mini", "model": "none", "out": tmp_path / "p.jsonl"} | options
    )
    refused(message, rewriting.rewrite_patterns, given)
