"""Sheets for annotators, and numbers of their answers that are worked out by hand."""

import csv
import io
import json
import math

import numpy as np
import pytest

from checks import refused
from consilience.authoring.annotation import (
    COLUMNS,
    agreements,
    draw_sheets,
    read_key,
    score_sheets,
    write_sheets,
)
from consilience.core.factors import WHOLE
from consilience.core.items import TextPair
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics.errors import Index, of_group
from consilience.metrics.registry import Clusters
from consilience.suites.pairs import TASKS, Pairs, chosen

RTE = TASKS["rte"]
REVERSE = ("form", "reverse")


def made_pairs(size):
    labels = RTE.labels
    return Pairs(
        tuple(TextPair(f"id{at}", f"a {at}", f"b {at}", labels[at % 2]) for at in range(size))
    )


def made_key(size=3, annotators=2, names=("reverse",), **options):
    options = {"items": size, "annotators": annotators} | options
    return draw_sheets(made_pairs(size), RTE, chosen(names), **options)


def rows_of(path):
    return list(csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline="")))


def fill(folder, key, answers):
    """Write answers by annotator, variant and item; None is no answer."""
    for name, by_variant in answers.items():
        rows = rows_of(folder / f"{name}.csv")
        for row, (item, variant) in zip(rows[1:], key.sheets[name], strict=True):
            row[-1] = by_variant[variant][list(key.items).index(item)] or ""
        save(folder / f"{name}.csv", rows)


def save(path, rows, **options):
    text = io.StringIO(newline="")
    csv.writer(text, **options).writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8", newline="")


def values(metrics, **chosen_):
    rows = metrics.filter(**chosen_)
    assert rows.height == 1, rows
    return rows.row(0, named=True)


def test_orders_are_the_annotators_own_and_seeded():
    first = made_key(30, 5)
    assert len({tuple(each) for each in first.sheets.values()}) == 5
    assert first == made_key(30, 5)
    assert first.sheets["annotator-1"] == made_key(30, 1).sheets["annotator-1"]
    assert first.sheets != made_key(30, 5, seed=1).sheets


def test_items_are_drawn_by_seed_with_their_gold():
    key = draw_sheets(made_pairs(100), RTE, chosen(["reverse"]), items=30, seed=4)
    assert len(key.items) == 30
    assert key.digest != draw_sheets(made_pairs(100), RTE, chosen(["reverse"]), seed=5).digest
    for item, each in key.items.items():
        number = int(item[2:])
        assert each.gold == RTE.labels[number % 2]
        assert each.texts["reverse"] == (f"Sentence2: b {number}", f"Sentence1: a {number}")
    assert len(draw_sheets(made_pairs(3), RTE, {}).items) == 3


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_question_that_names_both_sentences(name):
    task = TASKS[name]
    pair = Pairs((TextPair("0", "a", "b", task.labels[0]),))
    question = draw_sheets(pair, task, {}).question
    assert all(f"“{each}”" in question for each in task.indicators)


def test_the_key_comes_back_and_sheets_do_not_tell_what_it_holds(tmp_path):
    key = made_key(6, 2, ("reverse", "signal"))
    write_sheets(key, tmp_path / "sheets")
    assert read_key(tmp_path / "sheets" / "key.json") == key
    rows = rows_of(tmp_path / "sheets" / "annotator-2.csv")
    assert tuple(rows[0]) == COLUMNS
    assert [row[0] for row in rows[1:]] == [str(at) for at in range(1, 19)]
    assert [tuple(row[1:3]) for row in rows[1:]] == key.texts("annotator-2")
    assert {row[3] for row in rows[1:]} == {""}
    text = (tmp_path / "sheets" / "annotator-1.csv").read_text(encoding="utf-8")
    for hidden in ("id0", "id5", "gold", "reverse", "signal", "original", key.digest):
        assert hidden not in text
    refused("a folder that is not empty", write_sheets, key, tmp_path / "sheets")


E, N = RTE.labels
HAND = {
    "annotator-1": {"original": [E, N, E], "reverse": [E, N, N]},
    "annotator-2": {"original": [N, N, None], "reverse": [N, E, E]},
}
"""Gold: E, N, E."""


@pytest.fixture
def sheets(tmp_path):
    key = made_key()
    write_sheets(key, tmp_path / "sheets")
    fill(tmp_path / "sheets", key, HAND)
    return tmp_path / "sheets"


def test_accuracy_and_consistency_by_hand(sheets):
    """Original: annotator 1 has 3 of 3 right, annotator 2 has 1 of 2: mean 3/4, std 1/2 / sqrt(2).

    Reverse: 2 of 3 and 1 of 3. The same as in the original: 2 of 3, and 1 of the 2 that have both.
    """
    found = score_sheets(sheets)
    assert found.metrics.schema == METRICS_SCHEMA
    assert found.warnings == ("annotator-2.csv: 1 of 6 without an answer",)
    expected = {
        ("accuracy", *WHOLE): (3 / 4, 1, 1 / 2, 5, 1),
        ("accuracy", *REVERSE): (1 / 2, 2 / 3, 1 / 3, 6, 0),
        ("consistency", *REVERSE): (7 / 12, 2 / 3, 1 / 2, 5, 1),
    }
    for (metric, *part), (mean, first, second, n, excluded) in expected.items():
        names = {"metric": metric, "kind": part[0], "level": part[1]}
        row = values(found.metrics, **names, over="all", group="")
        assert row["value"] == pytest.approx(mean)
        assert row["std"] == pytest.approx((first - second) / math.sqrt(2))
        assert (row["n"], row["n_excluded"]) == (n, excluded)
        if (metric, *part) == ("accuracy", *REVERSE):  # all three pairs tie at 1/2
            assert math.isnan(row["low"])
        else:
            assert 0 <= row["low"] <= row["value"] <= row["high"] <= 1
        for group, value in (("annotator-1", first), ("annotator-2", second)):
            own = values(found.metrics, **names, over="group", group=group)
            assert own["value"] == pytest.approx(value)
            assert math.isnan(own["std"])
    assert found.metrics.filter(metric="consistency", kind="whole").is_empty()


def test_agreement_between_annotators_by_hand(sheets):
    """Original: they differ on the first item and agree on the second; the third has one answer.

    P = 1/2; of 4 answers 1 is E, so P_e = 1/16 + 9/16 and kappa = (1/2 - 5/8) / (3/8) = -1/3.
    Reverse: they never agree, half of the answers are E: kappa = (0 - 1/2) / (1/2) = -1.
    """
    metrics = score_sheets(sheets).metrics
    for (kind, level), agreement, kappa, n in ((WHOLE, 1 / 2, -1 / 3, 2), (REVERSE, 0, -1, 3)):
        row = values(metrics, metric="pairwise_agreement", kind=kind, level=level)
        assert row["value"] == pytest.approx(agreement)
        assert (row["over"], row["n"], row["n_excluded"]) == ("all", n, 3 - n)
        assert row["low"] >= 0
        row = values(metrics, metric="fleiss_kappa", kind=kind, level=level)
        assert row["value"] == pytest.approx(kappa)


def tallies(counts):
    return agreements(np.array(counts), Clusters.of(map(str, range(len(counts)))))


FOUR = [[3, 0], [2, 1], [0, 3], [1, 2]]
"""Three annotators: P_i are 1, 1/3, 1, 1/3, so P = 2/3; P_e = 1/4 + 1/4; kappa = 1/3.

A fifth item with two answers, both the first label: P = 11/15, P_e = (64 + 36) / 196 = 25/49,
kappa = (11/15 - 25/49) / (24/49) = 41/90.
"""
TEXTBOOK = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip
"""Ten subjects, 14 raters, five categories: P = 0.378, P_e = 0.213, kappa = 0.210."""


@pytest.mark.parametrize(("counts", "agreement", "expected"), [
    (FOUR, 2 / 3, 1 / 3),
    ([*FOUR, [2, 0]], 11 / 15, 41 / 90),
    ([*FOUR, [1, 0], [0, 0]], 2 / 3, 1 / 3),
    (TEXTBOOK, pytest.approx(0.378, abs=5e-4), pytest.approx(0.210, abs=5e-4)),
    ([[3, 0], [2, 0]], 1, math.nan),  # all the same: chance agreement is 1
    ([[1, 0], [0, 1]], math.nan, math.nan),
])  # fmt: skip
def test_kappa_by_hand(counts, agreement, expected):
    found = tallies(counts)
    assert found["pairwise_agreement"].value == pytest.approx(agreement, nan_ok=True)
    assert found["fleiss_kappa"].value == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", ["pairwise_agreement", "fleiss_kappa", "krippendorff_alpha"])
def test_errors_of_agreement_are_those_of_leaving_out_each_item(name):
    """To first order: within 5 % of the jackknife's, of 40 items with four answers or three."""
    generator = np.random.default_rng(0)
    answers = generator.integers(0, 3, (40, 1)) * (generator.random((40, 4)) < 0.7)
    counts = (answers[:, :, None] == np.arange(3)).sum(axis=1)
    counts[::7] -= np.eye(3, dtype=int)[answers[::7, 0]]
    without = [tallies(np.delete(counts, at, axis=0))[name].value for at in range(40)]
    jackknife = math.sqrt(39 / 40 * ((np.array(without) - np.mean(without)) ** 2).sum())
    number = of_group([(1.0, tallies(counts)[name])], Index())
    assert number.error == pytest.approx(jackknife, rel=0.05)


def test_one_annotator_has_no_agreement_and_no_deviation(sheets):
    (sheets / "annotator-2.csv").unlink()
    found = score_sheets(sheets)
    assert found.warnings == ("annotator-2.csv is not there; left out",)
    assert found.annotators == ("annotator-1",)
    row = values(found.metrics, metric="accuracy", kind="whole", over="all")
    assert row["value"] == 1
    assert math.isnan(row["std"])
    row = values(found.metrics, metric="fleiss_kappa", kind="whole")
    assert math.isnan(row["value"])
    assert (row["n"], row["n_excluded"]) == (0, 3)


def test_sheets_without_answers_are_left_out_and_one_is_needed(sheets):
    rows = rows_of(sheets / "annotator-2.csv")
    save(sheets / "annotator-2.csv", [rows[0]])
    assert score_sheets(sheets).warnings == ("annotator-2.csv has no answers; left out",)
    (sheets / "annotator-1.csv").unlink()
    refused("no sheet with answers", score_sheets, sheets)
    (sheets / "key.json").write_text("{}")
    refused("no key of sheets", score_sheets, sheets)


def _cell(row, column, value):
    def spoil(rows):
        rows[row][column] = value

    return spoil


@pytest.mark.parametrize(("spoil", "message"), [
    (_cell(2, 3, "maybe"), r"annotator-1.csv, row 3: the answer 'maybe'; expected entailment, not"),
    (_cell(2, 0, "7"), r"annotator-1.csv, row 3: the question '7'; expected 1 to 6"),
    (_cell(2, 0, "two"), r"row 3: the question 'two'"),
    (_cell(4, 2, "b"), r"annotator-1.csv, row 5: the text_2 of question 4 is 'b'"),
    (_cell(0, 3, "label"), r"row 1: no column 'answer'"),
    (lambda rows: rows.clear(), r"row 1: no column 'question'"),
])  # fmt: skip
def test_bad_sheets_are_refused_by_file_and_row(sheets, spoil, message):
    rows = rows_of(sheets / "annotator-1.csv")
    spoil(rows)
    save(sheets / "annotator-1.csv", rows)
    refused(message, score_sheets, sheets)


def test_the_commands(consilience, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    data = tmp_path / "pairs.csv"
    rows = [[f"a{at}", f"b{at}", at % 2] for at in range(9)]
    save(data, [["sentence1", "sentence2", "label"], *rows])
    folder = tmp_path / "sheets"
    options = ["--task", "rte", "--data", str(data), "--out", str(folder), "--items", "4"]
    options += ["--annotators", "2", "--perturbations", "signal"]
    status, out, err = consilience("suite", "annotate", "sheet", *options)
    assert status == 0, err
    assert "2 sheets of 8 questions" in out
    key = read_key(folder / "key.json")
    assert all(each.texts["signal"][0].startswith("[Sentence1] a") for each in key.items.values())
    gold = [each.gold for each in key.items.values()]
    fill(folder, key, {f"annotator-{at}": {"original": gold, "signal": gold} for at in (1, 2)})
    score = ("suite", "annotate", "score", folder)
    document = json.loads(consilience(*score, "--json")[1])
    assert document.keys() == {"run", "metrics", "warnings"}
    assert document["run"]["settings"]["digest"] == key.digest
    assert {row["value"] for row in document["metrics"] if row["metric"] == "accuracy"} == {1.0}
    assert consilience(*score, "--format", "csv")[1].startswith(",".join(METRICS_SCHEMA))
    out = consilience(*score)[1]
    assert "Fleiss kappa" in out
    assert "annotator-2" in out
    options[options.index("signal")] = "signals"
    assert consilience("suite", "annotate", "sheet", *options)[0] == 2
