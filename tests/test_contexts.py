"""Contexts of several passages: reading them, and their orders."""

import json
import re
from dataclasses import replace

import pandas as pd
import pytest

import consilience as cs
from checks import refused
from consilience.core.items import Choice, Question
from consilience.options.probe import ProbeOptions
from consilience.plans import plan_of
from consilience.plans.presentation import Presentation, present
from consilience.suites.question_suites import load_questions

OPTIONS = tuple(map(Choice, ("x", "y")))
ASKED = Question("a", "g", {"": ("Who?",)}, OPTIONS[0], OPTIONS, "A\n\nB\n\nC")


def made(size=6, passages=3):
    """Question k has the passages k.1, k.2 and so on; its answer is x."""
    return [
        {"item": f"q{at}", "question": f"Question {at}?", "answer": "x", "options": ["x", "y", "z"],
         "context": [f"{at}.{number}" for number in range(1, passages + 1)]}
        for at in range(size)
    ]  # fmt: skip


def suite_of(folder, rows):
    path = folder / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def passages_in(prompt):
    return re.findall(r"^\d+\.\d+$", prompt, re.MULTILINE)


def asked(path, **options):
    """(item, variant) -> prompt."""
    table = (
        plan_of(ProbeOptions(model="baseline:majority", suite=str(path), **options))
        .queries(None)
        .table()
    )
    return {row[:2]: row[2][0] for row in table.select("item", "variant", "input").iter_rows()}


def test_a_list_of_passages_is_read_from_every_format(tmp_path):
    """A list, a list in JSON in one cell, or columns that are joined; a text is one passage."""
    lists = [["One; two.", "Three."], "[1] A note", None, ["Alone."]]
    rows = [("q?" + str(at), "x", "x;y", context) for at, context in enumerate(lists)]
    mixed = pd.DataFrame(rows, columns=["question", "answer", "options", "context"])
    mixed.to_json(tmp_path / "own.jsonl", orient="records", lines=True)
    texts = [json.dumps(one) if isinstance(one, list) else one for one in lists]
    frame = mixed.assign(context=texts)
    frame.to_csv(tmp_path / "own.csv", index=False)
    known = cs.Questions.from_frame(frame).items
    assert [one.passages for one in known] == [
        ("One; two.", "Three."), ("[1] A note",), (), ("Alone.",),
    ]  # fmt: skip
    parts = frame.drop(columns="context").assign(
        one=["One; two.", "[1] A note", "", "Alone."], two=["Three.", "", "", ""]
    )
    parts.to_csv(tmp_path / "parts.csv", index=False)
    for name, columns in (
        ("own.csv", {}),
        ("own.jsonl", {}),
        ("parts.csv", {"context": "one+two"}),
    ):
        read = load_questions(tmp_path / name, columns).items
        assert [one.context for one in read] == [one.context for one in known]
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps(made(1)[0] | {"context": ["A", {}]}))
    refused("column 'context': {}; expected a text", load_questions, wrong)


def test_orders_of_passages_by_hand():
    orders = ("ABC", "BCA", "CAB", "CBA")
    shown = [present(ASKED, Presentation(context=(order,))) for order in orders]
    assert [one.text.partition("\nQuestion")[0] for one in shown] == [
        "A\n\nB\n\nC",
        "B\n\nC\n\nA",
        "C\n\nA\n\nB",
        "C\n\nB\n\nA",
    ]
    alone = replace(ASKED, context="A")
    assert present(alone, Presentation(context=("ABC",))).text.startswith("A\nQuestion")
    assert present(alone, Presentation(context=("ABC", "CBA"))) is None
    assert present(ASKED, Presentation(context=("ABCD", "DABC"))) is None


@pytest.mark.parametrize(("passages", "vary", "orders"), [
    (2, "context=rotations", 2), (3, "context=all", 6), (4, "context", 4), (3, "context", 3),
    (4, "context=all", 24), (4, "context=shuffles:5", 6), (5, "context=reversed", 2),
    (3, "context=CAB,BCA", 3),
])  # fmt: skip
def test_the_variants(tmp_path, passages, vary, orders):
    path = suite_of(tmp_path, made(2, passages))
    prompts = asked(path, vary=[vary])
    of_first = [tuple(passages_in(prompt)) for (item, _), prompt in prompts.items() if item == "q0"]
    assert len(of_first) == len(set(of_first)) == orders
    assert of_first[0] == tuple(f"0.{at + 1}" for at in range(passages))
    assert {tuple(sorted(one)) for one in of_first} == {of_first[0]}
    assert all(
        prompt.index("0.1") < prompt.index("Question")
        for prompt in prompts.values()
        if "0.1" in prompt
    )


def test_a_model_that_believes_the_first_passage(tmp_path):
    """Of three passages it answers x if its own first one comes first: 2 of 6 orders."""

    def first(prompts):
        return ["A" if passages_in(prompt)[0].endswith(".1") else "B" for prompt in prompts]

    rows = [
        *made(),
        {"item": "last", "question": "No context?", "answer": "y", "options": ["x", "y"]},
    ]
    found = cs.evaluate(
        suite_of(tmp_path, rows[:6]), first, vary="context=all", out=tmp_path / "run"
    )
    values = dict(
        found.metrics.filter(over="all", kind="whole").select("metric", "value").iter_rows()
    )
    assert values["mean_accuracy"] == 2 / 6
    assert values["consistency"] == pytest.approx((1 + 6) / 15)
    factors = cs.analyze_factors([tmp_path / "run"]).tables["consistency"]
    assert factors["factor"].to_list() == ["context"]
    path = suite_of(tmp_path, rows)
    lacking = cs.evaluate(path, "baseline:oracle", vary="context=rotations")
    assert lacking.answers.filter(item="last")["variant"].to_list() == ["context=ABC"]


def test_refusals(tmp_path):
    several, single = suite_of(tmp_path, made()), tmp_path / "single.jsonl"
    single.write_text(json.dumps(made(1, 1)[0]) + "\n")
    for path, vary, message in (
        (
            single,
            "context",
            "--vary context: the factor has one level: 'A'; expected two levels or more",
        ),
        (several, "context=nonsense", "--vary context=nonsense; expected rotations, .* CBA"),
        (
            several,
            "context=rotation",
            "--vary context=rotation; expected rotations, reversed, shuffles:K, all, or letters",
        ),
    ):
        refused(message, cs.evaluate, path, "baseline:oracle", vary=vary)
    message = r"no \{context\} in the template 'own'; expected it: it varies"
    refused(
        message,
        cs.evaluate,
        several,
        "baseline:oracle",
        vary="context",
        template="{question} {options}",
    )


@pytest.mark.parametrize("languages", [("fr",), ("fr", "en")])
def test_languages_that_do_not_vary(tmp_path, languages):
    """Each question is asked in its first language."""
    texts = {"fr": "Où est Rome ?", "en": "Where is Rome?"}
    row = {"item": "a", "answer": "x", "options": ["x", "y"]}
    suite_of(tmp_path, [row | {"question": texts[name], "language": name} for name in languages])
    prompts = asked(tmp_path / "own.jsonl", vary=["order=reversed"]).values()
    assert [texts["fr"] in prompt for prompt in prompts] == [True] * 2
