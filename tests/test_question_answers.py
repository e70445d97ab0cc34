"""Answers made elsewhere: options as they were shown, labels, positions, and what is wrong."""

import json

import polars as pl
import pytest

from checks import refused
from conftest import cases
from consilience.core.free_text import rule_of
from consilience.core.items import Choice, Question
from consilience.core.schemas import REASONS
from consilience.kinds import score_table
from consilience.kinds.answers import answers_to_questions
from consilience.options.runs import ScoreOptions
from consilience.runs.run import Run
from consilience.suites.questions import Questions

EXACT = rule_of("exact")


def question(item, gold, *others, group="city", aliases=()):
    """A question whose gold is its first option; without others it is an open one."""
    right = Choice(gold, aliases)
    options = (right, *map(Choice, others)) if others else ()
    return Question(item, group, {"": (f"{item}?", f"Say {item}.")}, right, options)


SUITE = Questions("cities", (
    question("a", "Paris", "Lyon", "Nice"),
    question("b", "Rome", "Turin", "Milan", aliases=("Roma",)),
    question("open", "Go", group="open", aliases=("Golang",)),
))  # fmt: skip


def answered(rows, rule=EXACT):
    columns = dict.fromkeys(name for row in rows for name in row)
    table = pl.DataFrame(rows, schema=list(columns), strict=False)
    return answers_to_questions(table, SUITE, rule)


@pytest.mark.parametrize(("variant", "answer", "option"), cases("options_shown"))
def test_an_answer_is_mapped_back_to_the_option_that_was_shown(variant, answer, option):
    """Options Paris, Lyon, Nice; reversed they are Nice, Lyon, Paris."""
    _, table = answered([{"item": "a", "variant": variant, "answer": answer}])
    row = table.row(0, named=True)
    assert (row["option"], row["gold_option"], row["text"]) == (option, 0, answer)
    shown = answer.lower() if option is None else ["Paris", "Lyon", "Nice"][option]
    assert row["answer"] == shown


def test_a_position_counts_among_the_options_as_shown():
    row = {"item": "a", "variant": "order=given", "answer_index": 2}
    rows = [row, row | {"variant": "order=reversed"}]
    assert answered(rows)[1]["option"].to_list() == [2, 0]
    blood = Questions("blood", (question("q", "B", "AB", "O", "A"),))
    rotated = pl.DataFrame([
        {"item": "q", "variant": f"order=rotation {at}", "answer_index": (4 - at) % 4}
        for at in range(1, 4)
    ])  # fmt: skip
    _, table = answers_to_questions(rotated, blood, EXACT)
    assert table["option"].to_list() == [0] * 3, "the label A is the text of another option"
    beyond = [row | {"answer_index": 3}]
    refused("answer_index 3; expected a position from 0 to 2", answered, beyond)


def test_the_column_of_shown_options_decides_a_drawn_order():
    row = {"item": "b", "variant": "order=shuffle 1", "answer": "A"}
    refused("Keep the column 'options'", answered, [row])
    shown = json.dumps(["Milan", "Rome", "Turin"])
    given = {"item": "b", "variant": "order=given", "answer": "Roma", "options": None}
    _, table = answered([{**row, "options": shown}, given])
    assert table["option"].to_list() == [2, 0]
    few = [{**row, "options": '["Milan"]'}]
    refused("the options of 'b' are Milan; expected Rome", answered, few)


def test_open_questions_have_the_factors_without_options():
    rows = [
        {"item": item, "variant": f"paraphrase={paraphrase}" + order, "answer": answer}
        for item, orders, answer in (("a", (", order=given", ", order=reversed"), "Paris"),
                                     ("open", ("",), "Golang!"))
        for paraphrase in "12"
        for order in orders
    ]  # fmt: skip
    design, table = answered(rows)
    names = [f"paraphrase={at}, order={order}" for at in "12" for order in ("given", "reversed")]
    assert list(design.names) == names
    assert table["variant_index"].to_list() == [0, 1, 2, 3, 0, 1]
    assert table["answer"].to_list() == ["Paris"] * 4 + ["Go"] * 2
    assert table["option"].to_list() == [0] * 4 + [None] * 2


def test_the_order_of_rows_does_not_choose_the_base_variant():
    names = "labels=A", "labels=none"
    rows = [{"item": "a", "variant": name, "answer": "Paris"} for name in names]
    assert answered(rows)[0].names == answered(rows[::-1])[0].names == names


def test_an_empty_answer_is_none():
    """With the reason of the table, where it has one; a row that was left out has no answer."""
    rows = [("a", "base", None, "timed out", None), ("b", "base", "  ", None, "too long")]
    rows += [("open", "base", "Go", "odd", "odd")]
    columns = ("item", "variant", "answer", *REASONS[::-1])
    _, table = answered([dict(zip(columns, row, strict=True)) for row in rows])
    found = table.sort("item").select("answer", *REASONS).rows()
    assert found == [(None, None, "timed out"), (None, "too long", None), (None, "odd", "odd")]


@pytest.mark.parametrize(("rows", "message"), cases("answers_to_questions_bad"))
def test_what_is_wrong_is_one_message(rows, message):
    refused(message, answered, rows)


ROTATIONS = [f"paraphrase={at}, order={order}" for at in "12" for order in ("given", "rotation 1",
                                                                           "rotation 2")]  # fmt: skip


def scored(tmp_path, rows, suite):
    answers = tmp_path / "answers.csv"
    pl.DataFrame(rows, ["item", "variant", "answer"], orient="row").write_csv(answers)
    return score_table(Run.open(answers), ScoreOptions(answers=answers, suite="cities"), suite)


def numbers_of(counted, metric):
    row = counted.metrics.filter(metric=metric, over="all", kind="whole").row(0, named=True)
    return row["value"], row["n"], row["n_excluded"]


@pytest.mark.parametrize("is_blank", [True, False])
def test_a_missing_row_of_a_variant_that_is_asked_is_a_missing_answer(tmp_path, is_blank):
    """a and c have all 6 variants, d has 2 options and so 4; c lacks 1, blank or without a row.

    a is right everywhere, d in 3 of its 4: consistent accuracy is 1 of 2 without a row, and c is
    left out; a blank one is wrong, so 1 of 3.
    In the base variant all three are right. Rows are in reverse: the base is still the first
    phrasing in the given order.
    """
    suite = Questions(
        "cities",
        (SUITE.items[0], question("c", "Bern", "Basel", "Genf"), question("d", "Oslo", "Bergen"),
         question("x", "Go", group="open")),
    )  # fmt: skip
    rows = [("a", name, "Paris") for name in ROTATIONS]
    rows += [("c", name, "Bern") for name in ROTATIONS[:-1]]
    rows += [("c", ROTATIONS[-1], "")] if is_blank else []
    rows += [("d", name, "Oslo") for name in ROTATIONS if not name.endswith("2")]
    rows[-1] = (*rows[-1][:2], "Bergen")
    counted = scored(tmp_path, rows[::-1], suite)
    expected = (1 / 3, 3, 0) if is_blank else (1 / 2, 2, 1)
    assert numbers_of(counted, "consistent_accuracy") == expected
    assert numbers_of(counted, "accuracy") == (1, 3, 0)
    assert "1 group, 3 questions, 4 to 6 variants each" in counted.summary.title
    without = "were not asked (city 1); such as city c: no row in the table"
    without = "have no answer, which counts as wrong (city 1)" if is_blank else without
    assert counted.notes[:2] == [
        "questions without a row, not counted: open 1 of 1",
        f"1 of 16 queries {without}",
    ]


def test_questions_without_a_row_are_not_counted_and_named(tmp_path):
    rows = [("a", name, "Paris") for name in ROTATIONS]
    counted = scored(tmp_path, rows, SUITE)
    absent = "questions without a row, not counted: city 1 of 2, open 1 of 1"
    assert counted.notes[0] == absent and not any("no answer" in note for note in counted.notes)
