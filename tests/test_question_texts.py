"""Runs of questions whose file was changed in between are paired by the texts of the questions."""

from dataclasses import replace

import polars as pl
import pytest

import consilience as cs
from checks import refused
from consilience.core.factors import Factor, FactorialDesign
from consilience.kinds.questions import text_digests
from consilience.results.comparing import paired_by_text, settings_notes
from consilience.runs.run import Run, open_runs

ROWS = [
    ("bill", "Which card is taken?", "What card can I use?", "Visa;Cash", "Visa"),
    ("bill", "When is it due?", "Which month is it due?", "May;July", "May"),
    ("bill", "Which currency is used?", "What currency is it?", "Euro;Yen", "Euro"),
    ("shop", "When is it closed?", "Which day is it closed?", "Sunday;Friday", "Sunday"),
]  # fmt: skip
"""Four questions in two phrasings; without ids they are bill-1 to bill-3 and shop-1."""

RULE = ["accuracy no worse than baseline by 50 points"]


def suite_of(rows):
    names = ("group", "question", "question_2", "options", "answer")
    return cs.Questions.from_frame(pl.DataFrame(rows, schema=names, orient="row"), name="own")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of the questions, and of others that were made from them, by name."""
    folder = tmp_path_factory.mktemp("texts")
    dog = ("bill", "Which animal barks?", *ROWS[0][2:])
    suites = {
        "old": ROWS,
        "reworded": [dog, *ROWS[1:]],
        "shorter": [ROWS[0], *ROWS[2:]],
        "inserted": [ROWS[0], dog, *ROWS[1:]],
        "others": [(group, f"{text}!", *rest) for group, text, *rest in ROWS],
    }
    options = {"model": "baseline:random", "vary": ["paraphrase"]}
    for name, rows in suites.items():
        cs.evaluate(suite=suite_of(rows), out=folder / name, **options)
    cs.evaluate(suite=suite_of(ROWS), out=folder / "limited", limit=1, **options)
    return folder


def items(tables):
    return {name: sorted(seeds[0]["item"].unique()) for name, seeds in tables.items()}


def test_a_digest_is_of_all_that_a_question_asks_in_the_design():
    base = suite_of(ROWS)
    two = FactorialDesign((Factor("paraphrase", ("1", "2")),), ((0,), (1,)))
    one = FactorialDesign((Factor("order", ("given",)),), ((0,),))
    question = base.items[0]
    changed = [
        replace(question, paraphrases={"": ("Which card?", "What card can I use?")}),
        replace(question, paraphrases={"": (ROWS[0][1], "Which one?")}),
        replace(question, context="In Spain."),
        replace(question, gold=question.options[1]),
        replace(question, options=question.options[::-1]),
    ]

    def same(design):
        (digest,) = text_digests([question], design).values()
        return [[*text_digests([one], design).values()] == [digest] for one in changed]

    assert same(two) == [False] * 5
    assert same(one) == [False, True, False, False, False], "the second phrasing is not asked"


def test_a_question_whose_text_changed_is_in_no_difference(runs):
    opened = open_runs([f"new={runs / 'reworded'}", f"old={runs / 'old'}"])
    tables, notes = paired_by_text(opened)
    assert items(tables) == {name: ["bill-2", "bill-3", "shop-1"] for name in ("new", "old")}
    differs = "1 question changed in text, options or gold answer between new and old, so not"
    assert notes == [f"{differs} compared: bill-1"]
    specs = [f"{run.label}={run.path}" for run in opened]
    assert notes[0] in cs.gate(specs[1:], rule=RULE, baseline=specs[0]).notes
    assert notes[0] in cs.compare(*opened).notes


def test_questions_without_ids_are_paired_by_their_texts(runs):
    """After a row was removed or inserted, the later ones of the group have another number."""
    for name, own in (("shorter", []), ("inserted", ["bill-2 (other text)"])):
        old, new = Run.open(runs / "old", "old"), Run.open(runs / name, "new")
        tables, notes = paired_by_text([old, new])
        assert notes == []
        assert items(tables)["old"] == ["bill-1", "bill-2", "bill-3", "shop-1"]
        expected = ["bill-1", "bill-3", "shop-1"] if name == "shorter" else items(tables)["old"]
        assert items(tables)["new"] == sorted([*expected, *own])
    checked = cs.gate([str(runs / "inserted")], rule=RULE, baseline=str(runs / "old"))
    shared = "compared on the 4 questions that all runs have"
    assert any(note.startswith(shared) for note in checked.notes)


def test_runs_of_fewer_questions_have_no_note_on_texts_and_those_of_others_are_refused(runs):
    against = {"rule": RULE, "baseline": str(runs / "old")}
    checked = cs.gate([str(runs / "limited")], **against)
    assert not any("was asked" in note or "changed" in note for note in checked.notes)
    refused("all questions differ in text", cs.gate, [str(runs / "others")], **against)


def test_runs_without_texts_have_a_note_in_words(runs):
    old, new = Run.open(runs / "old", "old"), Run.open(runs / "reworded", "new")
    assert settings_notes([old, new]) == [], "their texts are compared"
    record = {name: value for name, value in old.record.items() if name != "texts"}
    (note,) = settings_notes([replace(old, record=record), new])
    assert note.startswith("new was asked with the suite ")
