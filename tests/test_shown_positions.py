"""A note on answers that are concentrated on one shown position, with numbers worked out by hand."""

import re

import polars as pl
import pytest

from consilience.metrics.components import position_notes

TWO = ("given", "rotation 1")


def answers_of(options, *, orders=TWO, size=4, golds=None, labels=True):
    """The options that are chosen (question, order), by their positions in the file."""
    rows = []
    for at, chosen in enumerate(options):
        for order, option in zip(orders, chosen, strict=True):
            shown = (option - int(order.split()[-1])) % size if order.startswith("rot") else option
            rows.append({
                "group": "g", "item": f"q{at}", "order": order, "option": option,
                "label": "ABCD"[shown] if labels else f"text {option}",
                "gold_option": golds[at] if golds else at % size, "n_candidates": size,
            })  # fmt: skip
    return pl.DataFrame(rows)


def test_the_first_position_has_all_answers():
    """Eight questions: the options 0 and 1 are first in the two orders. Exact interval of 8 of 8.

    1 - .025 ** (1 / 8) = .369. Golds: two of each position in the file, so 4 of 16 are first.
    """
    (note,) = position_notes(answers_of([(0, 1)] * 8))
    assert note == (
        "100.0% of 16 answers (95 % CI 63.1 to 100.0) are the option in position 1, "
        "against 25.0% in a uniform choice and 25.0% of the right answers"
    )
    (note,) = position_notes(answers_of([(3, 0)] * 8, labels=False))
    assert "are the option in position 4, against" in note


FOUR = answers_of([(2,)] * 16, orders=("given",))
HALF = answers_of([(0,)] * 8, orders=("given",), size=2).with_columns(item="x" + pl.col("item"))
ROTATIONS = ("given", "rotation 1", "rotation 2", "rotation 3")
SHUFFLED = answers_of([(2, 2)] * 8, orders=("shuffle 1", "shuffle 2"))
FIRST = answers_of([(0, 1)] * 8)
OUTSIDE = {"option": pl.lit(9), "gold_option": pl.lit(9)}


@pytest.mark.parametrize(("table", "note"), [
    # Of two options 1.5 times a half is .75: the lower bound of 8 of 8 is .631, of 16 of 16 .794.
    (answers_of([(0, 1)] * 8, size=2), None),
    (answers_of([(0, 1)] * 16, size=2), ""),
    # Third of 16 questions with 4 options, first of 8 with 2: 16 / 4 of 24 answers are expected.
    (pl.concat([FOUR, HALF]), "66.7% of 24 answers .* are the option in position 3, "
                              "against 16.7% in a uniform choice and 16.7% of"),
    # A right model whose golds are all first in the file; one that takes the same option twice.
    (answers_of([(0,)] * 20, orders=("given",), golds=[0] * 20), None),
    (answers_of([(0,) * 4] * 20, orders=ROTATIONS), None),
    # A shuffled order is known by its labels.
    (SHUFFLED.with_columns(label=pl.lit("b")), "position 2"),
    (SHUFFLED.with_columns(label=pl.lit("some text")), None),
    # Tables without options.
    (FIRST.drop("option"), None),
    (FIRST.with_columns(option=pl.lit(None, pl.Int32)), None),
    (FIRST.clear(), None),
    # A table that names fewer candidates than the question has options: the position of the label.
    (FIRST.with_columns(**OUTSIDE), "position 1, against 25.0% in a uniform choice and 25.0%"),
])  # fmt: skip
def test_a_note_is_of_more_answers_than_half_as_many_again_as_expected(table, note):
    notes = list(position_notes(table))
    assert len(notes) == (note is not None)
    assert all(re.search(note, each) for each in notes)
