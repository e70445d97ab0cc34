"""A note on answers that are concentrated on one shown position, with numbers worked out by hand."""

import polars as pl

from consilience.metrics.components import position_notes

TWO = ("given", "rotation 1")


def answers_of(options, *, orders=TWO, size=4, golds=None, labels=True):
    """The options that are chosen (question, order), by their positions in the file."""
    rows = []
    for at, chosen in enumerate(options):
        for order, option in zip(orders, chosen, strict=True):
            shown = (option - int(order.split()[-1])) % size if order.startswith("rot") else option
            rows.append(
                {
                    "group": "g", "item": f"q{at}", "order": order,
                    "label": "ABCD"[shown] if labels else f"text {option}",
                    "option": option, "gold_option": golds[at] if golds else at % size,
                    "n_candidates": size,
                }
            )  # fmt: skip
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


def test_the_threshold_is_one_and_a_half_times_what_is_expected():
    """Of two options 1.5 times a half is .75: the lower bound of 8 of 8 is .631, of 16 of 16 .794."""
    assert list(position_notes(answers_of([(0, 1)] * 8, size=2))) == []
    assert len(list(position_notes(answers_of([(0, 1)] * 16, size=2)))) == 1


def test_a_question_with_too_few_options_has_no_third_position():
    """Third of 16 questions with 4 options, first of 8 with 2: 16 / 4 of 24 answers are expected."""
    four = answers_of([(2,)] * 16, orders=("given",))
    two = answers_of([(0,)] * 8, orders=("given",), size=2)
    two = two.with_columns(item=pl.lit("x") + pl.col("item"))
    (note,) = position_notes(pl.concat([four, two]))
    assert "66.7% of 24 answers" in note
    assert "position 3, against 16.7% in a uniform choice and 16.7% of" in note


def test_right_answers_and_answers_to_one_option_of_the_file_are_no_concentration():
    """A right model whose golds are all first in the file; one that takes the same option twice."""
    fixed = answers_of([(0,)] * 20, orders=("given",), golds=[0] * 20)
    assert list(position_notes(fixed)) == []
    rotations = ("given", "rotation 1", "rotation 2", "rotation 3")
    assert list(position_notes(answers_of([(0,) * 4] * 20, orders=rotations))) == []


def test_a_shuffled_order_is_known_by_its_labels():
    shuffled = answers_of([(2, 2)] * 8, orders=("shuffle 1", "shuffle 2"))
    (note,) = position_notes(shuffled.with_columns(label=pl.lit("b")))
    assert "position 2" in note
    assert list(position_notes(shuffled.with_columns(label=pl.lit("some text")))) == []


def test_tables_without_options_have_no_note():
    table = answers_of([(0, 1)] * 8)
    nulls = table.with_columns(option=pl.lit(None, pl.Int32))
    for without in (table.drop("option"), nulls, table.clear()):
        assert list(position_notes(without)) == []


def test_an_option_outside_of_the_order_has_the_position_of_its_label():
    """As in a table of answers that names fewer candidates than the question has options."""
    table = answers_of([(0, 1)] * 8).with_columns(option=pl.lit(9), gold_option=pl.lit(9))
    (note,) = position_notes(table)
    assert "position 1, against 25.0% in a uniform choice and 25.0%" in note
