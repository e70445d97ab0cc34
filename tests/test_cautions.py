"""Cautions: when each is given, what it says, and in which order."""

import pickle
from types import SimpleNamespace

import polars as pl
import pytest

from conftest import ROOT
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics.counts import Prepared
from consilience.report.cautions import CAUTIONS, Caution, Known, by_run, cautions, ranked
from test_metrics import make_suite, table

MADE = make_suite()
NUMBERS = {
    **dict.fromkeys(METRICS_SCHEMA, ""), **dict.fromkeys(("value", "low", "high", "std"), 0.0),
    "over": "group", "group": "R", "kind": "whole", "n": 4, "n_excluded": 0,
}  # fmt: skip


def metrics(**values):
    """A metrics table of one relation of four facts."""
    rows = [{**NUMBERS, "metric": name, "value": value} for name, value in values.items()]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def run(label, painter, composer, candidates="objects"):
    """A run with its numbers of candidates; of the third relation it has no answer."""
    sizes = {"painter": painter, "composer": composer, "capital": 52}
    rows = [(group, "x", size) for group, size in sizes.items()] + [("maker", None, 3)]
    answers = pl.DataFrame(rows, ["group", "answer", "n_candidates"], orient="row")
    settings = {"protocol": "strict", "candidates": candidates}
    return SimpleNamespace(label=label, settings=settings, answers=answers)


def answered(*texts, **more):
    """One fact in three patterns that were answered so; ``.``: left out; ``more``: columns."""
    rows = table([("1", "Ada", "a", list(texts))])
    is_left_out = pl.col("answer") == "."
    excluded = pl.when(is_left_out).then(pl.lit("too long"))
    rows = rows.with_columns(excluded=excluded, answer=pl.when(~is_left_out).then("answer"))
    rows = rows.with_columns(**{name: pl.Series(of) for name, of in more.items()})
    return Prepared(rows, MADE)


CHANGED = pl.DataFrame({
    "metric": ["accuracy", "consistency", "consistent_accuracy", "consistency"], "n": 9,
    "over": [*["mean"] * 3, "group"], "difference": [-0.1, 0.11, 0.0, 0.01], "kind": "whole",
    "first": "one", "second": "two",
})  # fmt: skip
COMMON = pl.DataFrame({"group": "R", "item": ["1", "2"], "variant": "a"})
FLOOR = {"value": 0.1, "low": 0.05, "high": 0.2, "n": 30}

WRITTEN = {"text": ["a", "C.", "C."], "unmatched": [None, *["not the gold"] * 2]}
ROWS = [
    ("unfinished", {"is_finished": False}, "Not finished: the numbers cover the answers so far."),
    ("unanswered", {"answers": answered("a", ".", "."), "suite": make_suite(ids=("R", "S"))},
     "1 of 2 relations (S) have no answers at all."),
    ("constant", {"metrics": metrics(accuracy=0.5, top_answer=0.95, chance_consistency=0.9)},
     "In 1 of 1 relation the model gave one word in over 90 % of its answers. That alone"),
    ("unlike", {"asked_by": "published"}, "The run was asked under the protocol published"),
    ("unlike", {"runs": [run("one", 12, 30), run("two", 12, 30, "pieces")]},
     "two was asked with --candidates pieces, one with objects."),
    ("unlike", {"runs": [run("one", 39, 36), run("two", 12, 30)]},
     "two and one chose from different numbers of answers in 2 of 3 relations (for example painter: 12 and 39;"),
    ("part", {"common": COMMON, "queries": {"one": 2, "two": 5}},
     "Compared on the 2 queries (2 facts) that all runs have: 2 in one, 5 in two."),
    ("unmatched", {"answers": answered("a", "c.", "c.", **WRITTEN)},
     "2 of 3 written answers (66.7 %) match no option, or no right answer of an open question, and "
     "count as wrong; most often 'C.' (2)."),
    # Chance makes 4 * (1 - 0.5) = 2 of 4 facts disagree: 20 need 40 facts.
    ("few items", {"metrics": metrics(accuracy=0.5, top_answer=0.5, chance_consistency=0.5)},
     "With 4 facts the chance-corrected consistency often comes out too low; about 40 like"),
    ("noise", {"metrics": metrics(noise_floor=0.25)},
     "Asked the same prompts again, the model changed 1 of 4 answers (25.0 %; 95 % CI 0.0 to 0.0 %): c"),
    ("noise", {"floors": {"two": FLOOR}}, "Asked the same prompts again, two changed 3 of 30 answers (10.0 %"),
    # 0.1 is inside, 0.11 is not.
    ("noise", {"compared": CHANGED, "floors": {"two": FLOOR}},
     "two differs from one in accuracy by no more than the 10.0 % of 30 answers that two changed"),
]  # fmt: skip
"""A caution, what it is read from, and how it begins; what is not known raises none."""


@pytest.mark.parametrize(("name", "known", "text"), ROWS)
def test_a_caution_says_what_holds_and_where_more_is_read(name, known, text):
    found = cautions(Known(**{"suite": MADE} | known))
    assert found[0].startswith(text)
    row = CAUTIONS[found[0].rank]
    assert row.name == name and found[0].endswith(f"(docs/{row.more})")
    assert {CAUTIONS[one.rank].name for one in found} == {name}


def test_without_a_reason_there_is_no_caution():
    floors = {"two": {"value": 0.05, "n": 30}}
    runs = [run("one", 12, 30), run("two", 12, 30)]
    known = Known(
        suite=MADE, answers=answered("a", "a", "b"), asked_by="strict", runs=runs, floors=floors,
        compared=CHANGED, queries={"one": 2, "two": 2}, common=COMMON, metrics=metrics(accuracy=1),
    )  # fmt: skip
    assert cautions(known) == []


def test_there_are_at_most_ten_each_with_a_page_of_the_documentation():
    assert len(CAUTIONS) <= 10 and len({row.name for row in CAUTIONS}) == len(CAUTIONS)
    assert all((ROOT / "docs" / row.more).is_file() for row in CAUTIONS)


def test_notes_of_several_runs_are_given_once_by_rank():
    late, early = pickle.loads(pickle.dumps([Caution("late", 5), Caution("early", 1)]))
    notes = by_run({"one": ["note", late, late], "two": ["note", early]})
    assert notes == ["two: early", "one: late", "All runs: note"]
    assert ranked(["note", late, early, late]) == ["early", "late", "note"]
    assert by_run({"one": ["note", late]}) == ["late", "note"]
