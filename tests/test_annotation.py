"""Sheets for annotators, and numbers of their answers that are worked out by hand."""

import csv
import io
import json
import math
from collections import Counter

import numpy as np
import pytest

from checks import output, refused
from conftest import suite_of
from consilience import make_pattern_sheets
from consilience import score_sheets as score
from consilience.authoring.annotation import (
    DIFFERENT,
    SAME,
    draw_pairs,
    draw_patterns,
    krippendorff_alpha,
    read_key,
    write_sheets,
)
from consilience.core.factors import WHOLE
from consilience.core.items import TextPair
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics.registry import Clusters
from consilience.metrics.uncertainty import Index, of_group
from consilience.suites.facts import load_folder
from consilience.suites.pairs import TASKS, Pairs, chosen

RTE = TASKS["rte"]
REVERSE = ("form", "reverse")
HEADER = ["question", "text_1", "text_2", "answer"]


def made_pairs(size):
    pairs = (TextPair(f"id{n}", f"a {n}", f"b {n}", RTE.labels[n % 2]) for n in range(size))
    return Pairs(tuple(pairs))


def made_key(size=3, names=("reverse",), **options):
    return draw_pairs(made_pairs(size), RTE, chosen(names), items=size, **options)


def rows_of(path):
    return list(csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline="")))


def save(path, rows, **options):
    text = io.StringIO(newline="")
    csv.writer(text, **options).writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8", newline="")


def fill(folder, answer):
    """Fill in the sheets: what ``answer`` says of an annotator and a row of the key."""
    by_number = {str(row["question"]): row for row in read_key(folder).rows}
    for path in folder.glob("*.csv"):
        header, *rows = rows_of(path)
        save(path, [header, *([*row[:3], answer(path.stem, by_number[row[0]])] for row in rows)])


def values(metrics, **chosen_):
    rows = metrics.filter(**chosen_)
    assert rows.height == 1, rows
    return rows.row(0, named=True)


def test_items_are_drawn_by_seed_with_their_gold_and_orders_are_the_annotators_own(tmp_path):
    drawn = (made_pairs(100), RTE, chosen(["reverse"]))
    key = draw_pairs(*drawn, items=30, seed=4)
    assert (len(key.rows), key) == (60, draw_pairs(*drawn, seed=4))
    assert key.digest != draw_pairs(*drawn, seed=5).digest
    for row in key.rows[1::2]:
        number = int(row["item"][2:])
        texts = (f"Sentence2: b {number}", f"Sentence1: a {number}")
        assert (row["gold"], row["text_1"], row["text_2"]) == (RTE.labels[number % 2], *texts)
    for folder, annotators in (("a", 3), ("b", 1)):
        write_sheets(key, annotators, tmp_path / folder)
    orders = [[row[0] for row in rows_of(path)] for path in sorted(tmp_path.glob("*/*.csv"))]
    assert orders[0] == orders[3] and len({*map(tuple, orders)}) == 3
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_question_that_names_both_sentences(name):
    task = TASKS[name]
    pair = Pairs((TextPair("0", "a", "b", task.labels[0]),))
    question = draw_pairs(pair, task, {}).question
    assert all(f"“{each}”" in question for each in task.indicators)


def test_sheets_do_not_tell_what_the_key_holds(tmp_path):
    key = made_key(6, ("reverse", "signal"))
    write_sheets(key, 2, tmp_path / "sheets")
    read = read_key(tmp_path / "sheets")
    made, kept = ([row | {"question": 0} for row in of.rows] for of in (key, read))
    assert made == kept
    numbers = [row["question"] for row in read.rows]
    assert sorted(numbers) == [*range(1, 19)] != numbers, "variants of an item are no neighbours"
    rows = rows_of(tmp_path / "sheets" / "annotator-2.csv")
    assert rows[0] == HEADER and {row[3] for row in rows[1:]} == {""}
    text = (tmp_path / "sheets" / "annotator-1.csv").read_text(encoding="utf-8")
    for hidden in ("id0", "id5", "gold", "reverse", "signal", "original", key.digest):
        assert hidden not in text
    refused("a folder that is not empty", write_sheets, key, 2, tmp_path / "sheets")


E, N = RTE.labels
HAND = {
    "annotator-1": {"original": [E, N, E], "reverse": [E, N, N]},
    "annotator-2": {"original": [N, N, ""], "reverse": [N, E, E]},
}
"""Gold: E, N, E."""


@pytest.fixture
def sheets(tmp_path):
    write_sheets(made_key(), 2, tmp_path / "sheets")
    fill(tmp_path / "sheets", lambda who, row: HAND[who][row["variant"]][int(row["item"][2:])])
    return tmp_path / "sheets"


def test_accuracy_consistency_and_alpha_by_hand(sheets):
    """Original: annotator 1 has 3 of 3 right, annotator 2 has 1 of 2: mean 3/4, std 1/2 / sqrt(2).

    Reverse: 2 of 3 and 1 of 3. The same as in the original: 2 of 3, and 1 of the 2 that have both.
    Alpha: of two items with both answers E N, N N: D_o = 2 / 4, D_e = 2 * 3 / (4 * 3), alpha 0. In
    reverse E N, N E, N E: D_o = 1, D_e = 2 * 9 / (6 * 5), alpha = 1 - 30 / 18.
    """
    found = score(sheets)
    assert found.tables["metrics"].schema == METRICS_SCHEMA
    assert found.cautions == ["annotator-2.csv: 1 of 6 without an answer"]
    expected = {
        ("accuracy", *WHOLE): (3 / 4, 1, 1 / 2, 5, 1),
        ("accuracy", *REVERSE): (1 / 2, 2 / 3, 1 / 3, 6, 0),
        ("consistency", *REVERSE): (7 / 12, 2 / 3, 1 / 2, 5, 1),
    }
    for (metric, *part), (mean, first, second, n, excluded) in expected.items():
        names = {"metric": metric, "kind": part[0], "level": part[1]}
        row = values(found.tables["metrics"], **names, over="all", group="")
        assert row["value"] == pytest.approx(mean)
        assert row["std"] == pytest.approx((first - second) / math.sqrt(2))
        assert (row["n"], row["n_excluded"]) == (n, excluded)
        is_tie = (metric, *part) == ("accuracy", *REVERSE)  # of all three pairs at 1/2
        assert math.isnan(row["low"]) if is_tie else 0 <= row["low"] <= mean <= row["high"] <= 1
        for group, value in (("annotator-1", first), ("annotator-2", second)):
            own = values(found.tables["metrics"], **names, over="group", group=group)
            assert own["value"] == pytest.approx(value)
            assert math.isnan(own["std"])
    assert found.tables["metrics"].filter(metric="consistency", kind="whole").is_empty()
    for (kind, level), value, n in ((WHOLE, 0, 2), (REVERSE, 1 - 30 / 18, 3)):
        row = values(found.tables["metrics"], metric="krippendorff_alpha", kind=kind, level=level)
        assert row["value"] == pytest.approx(value)
        assert (row["over"], row["n"], row["n_excluded"]) == ("all", n, 3 - n)


def alpha(counts):
    return krippendorff_alpha(np.array(counts), Clusters.of(map(str, range(len(counts)))))


EXAMPLE = [
    [3, 0, 0, 0, 0], [0, 3, 1, 0, 0], [0, 0, 4, 0, 0], [0, 0, 4, 0, 0], [0, 4, 0, 0, 0],
    [1, 1, 1, 1, 0], [0, 0, 0, 4, 0], [3, 1, 0, 0, 0], [0, 4, 0, 0, 0], [0, 0, 0, 0, 3],
    [2, 0, 0, 0, 0], [0, 0, 1, 0, 0],
]  # fmt: skip
"""Krippendorff 2011: four observers, twelve units, 40 pairable values, alpha 0.743.

By hand: units 2, 6 and 8 disagree by 2, 4 and 2, so ``D_o = 8 / 40``; the values occur 9, 13, 10,
5 and 3 times, so ``D_e = (1600 - 384) / (40 * 39)``. The package ``krippendorff`` 0.9 has it, too.
"""


@pytest.mark.parametrize(("counts", "expected"), [
    ([[2, 0], [0, 2]], 1), ([[1, 1], [1, 1]], 1 - 1 / (8 / 12)), ([[2, 0], [2, 0]], math.nan),
    ([[1, 0], [0, 1]], math.nan), (EXAMPLE, 1 - (8 / 40) / (1216 / 1560)),
])  # fmt: skip
def test_alpha_by_hand(counts, expected):
    """Below chance; all answers the same; one answer each."""
    assert alpha(counts).value == pytest.approx(expected, nan_ok=True)


def test_the_error_of_alpha_is_that_of_leaving_out_each_item():
    """To first order: within 5 % of the jackknife's, of 40 items with four answers or three."""
    generator = np.random.default_rng(0)
    answers = generator.integers(0, 3, (40, 1)) * (generator.random((40, 4)) < 0.7)
    counts = (answers[:, :, None] == np.arange(3)).sum(axis=1)
    counts[::7] -= np.eye(3, dtype=int)[answers[::7, 0]]
    without = [alpha(np.delete(counts, at, axis=0)).value for at in range(40)]
    jackknife = math.sqrt(39 / 40 * ((np.array(without) - np.mean(without)) ** 2).sum())
    assert of_group([(1.0, alpha(counts))], Index()).error == pytest.approx(jackknife, rel=0.05)


def test_one_annotator_has_no_agreement_and_no_deviation(sheets):
    save(sheets / "annotator-2.csv", [HEADER])
    found = score(sheets)
    assert found.cautions == ["annotator-2.csv has no answers; left out"]
    assert found.facts["run"]["settings"]["annotators"] == ("annotator-1",)
    row = values(found.tables["metrics"], metric="accuracy", kind="whole", over="all")
    assert row["value"] == 1 and math.isnan(row["std"])
    row = values(found.tables["metrics"], metric="krippendorff_alpha", kind="whole")
    assert math.isnan(row["value"]) and (row["n"], row["n_excluded"]) == (0, 3)
    (sheets / "annotator-1.csv").unlink()
    refused("no sheet with answers", score, sheets)
    key = json.loads((sheets / "key.json").read_text())
    rows = {"rows": [{"question": 1}]}
    for wrong in ({}, [], key | {"labels": ["x"]}, key | rows, key | {"rows": 1}):
        (sheets / "key.json").write_text(json.dumps(wrong))
        refused("no key of sheets", score, sheets)


def _cell(row, column, value):
    def spoil(rows):
        rows[row][column] = value

    return spoil


@pytest.mark.parametrize(("spoil", "message"), [
    (_cell(2, 3, "maybe"), r"annotator-1.csv:3: the answer 'maybe'; expected entailment, not"),
    (_cell(2, 0, "7"), r"annotator-1.csv:3: the question '7'; expected 1 to 6"),
    (_cell(2, 0, "two"), r"annotator-1.csv:3: the question 'two'"),
    (_cell(4, 2, "b"), r"annotator-1.csv:5: the text_2 of question \d is 'b'"),
    (_cell(0, 3, "label"), r"no column 'answer'"),
    (lambda rows: rows.append(rows[1]), r"annotator-1.csv:8: duplicate question \d. Remove it"),
])  # fmt: skip
def test_bad_sheets_are_refused_by_file_and_row(sheets, spoil, message):
    rows = rows_of(sheets / "annotator-1.csv")
    spoil(rows)
    save(sheets / "annotator-1.csv", rows)
    refused(message, score, sheets)
    (sheets / "annotator-1.csv").rename(sheets / "annotator-1 (copy).csv")
    refused("copy.*: a table; expected annotator-1.csv", score, sheets)


def test_the_commands(consilience, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    save(tmp_path / "pairs.csv", [["sentence1", "sentence2", "label"],
                                  *([f"a{at}", f"b{at}", at % 2] for at in range(9))])  # fmt: skip
    command = ("suite", "annotate", "sheet", "--task", "rte", "--data", "pairs.csv", "--out", "s")
    command += ("--items", "4", "--annotators", "2", "--perturbations")
    assert "2 sheets of 8 questions" in output(consilience, *command, "signal")
    fill(tmp_path / "s", lambda who, row: row["gold"].upper())
    document = json.loads(output(consilience, "suite", "annotate", "score", "s", "--json"))
    assert document["run"]["settings"]["digest"] == read_key(tmp_path / "s").digest
    assert {row["value"] for row in document["metrics"] if row["metric"] == "accuracy"} == {1.0}
    shown = output(consilience, "suite", "annotate", "score", "s")
    assert "Krippendorff alpha" in shown and "annotator-2" in shown
    assert consilience(*command, "signals")[0] == 2


# Patterns.

TEXTS = {
    "a": [f"[X] {word} [Y]." for word in ("is", "was", "has", "had", "gets", "got", "buys")],
    "b": ["[X] in [Y].", "[X] at [Y]."],
}
FACTS = {"a": [("A", "x"), ("B", "y")], "b": [("C", "z")]}
AB = suite_of(TEXTS, FACTS, name="ab")


def test_patterns_are_drawn_by_seed_and_compared_with_the_base_pattern():
    """At most five of six patterns of a, and one of b."""
    key, left_out = draw_patterns(AB)
    assert (Counter(row["relation"] for row in key.rows), left_out) == ({"a": 5, "b": 1}, 1)
    for row in key.rows:
        first, second = row["text_1"], row["text_2"]
        assert first.split()[1] == {"a": "is", "b": "in"}[row["relation"]]
        assert first.split()[::2] == second.split()[::2], "the same subject and object"
    assert key == draw_patterns(AB)[0] != draw_patterns(AB, seed=4)[0]
    one = suite_of({"a": ["[X] [Y]."]}, {"a": FACTS["a"]})
    refused("no relation with two patterns", draw_patterns, one)


def test_patterns_are_compared_within_their_language_and_written_in_it(write_suite):
    texts = ("[X] has [Y].", "en"), ("[X] hat [Y].", "de"), ("[Y] gehört zu [X].", "de")
    patterns = [{"relation": "capital", "pattern": text, "language": code} for text, code in texts]
    facts = [{"relation": "capital", "subject": "Germany", "object": "Munich",
              "subject_de": "Deutschland", "object_de": "München"}]  # fmt: skip
    key, _ = draw_patterns(load_folder(write_suite(patterns=patterns, facts=facts)))
    texts = ("Deutschland hat München.", "München gehört zu Deutschland.")
    assert [(row["text_1"], row["text_2"]) for row in key.rows] == [texts]


def test_scores_of_patterns_by_hand(write_suite, tmp_path, consilience):
    """Six patterns; the first annotator rejects one of them."""
    rows = [{"relation": id_, "pattern": text} for id_, texts in TEXTS.items() for text in texts]
    facts = [
        {"relation": id_, "subject": subject, "object": object_}
        for id_, pairs in FACTS.items() for subject, object_ in pairs
    ]  # fmt: skip
    folder = write_suite(relations=[{"relation": id_} for id_ in TEXTS], patterns=rows, facts=facts)
    made = make_pattern_sheets(folder, annotators=2, out=tmp_path / "s")
    assert made.shown[0] == f"2 sheets of 6 questions: {tmp_path}/s/annotator-1.csv, ..."
    assert made.cautions == ["1 of 7 patterns left out: --patterns 5 of each relation"]
    rejected = read_key(tmp_path / "s").rows[0]
    fill(tmp_path / "s", lambda who, row: DIFFERENT if row == rejected and "1" in who else SAME)
    scored = score(tmp_path / "s")
    found = scored.tables["metrics"].select("metric", "over", "group", "value").iter_rows()
    value = {tuple(key): number for *key, number in found}
    assert value == pytest.approx({
        ("agreement", "all", ""): 11 / 12, ("agreement", "group", "annotator-1"): 5 / 6,
        ("agreement", "group", "annotator-2"): 1,
        # 12 answers, 11 of them the same: D_o = 2 / 12, D_e = 2 * 11 / (12 * 11).
        ("krippendorff_alpha", "all", ""): 1 - (2 / 12) / (22 / 132),
    }, abs=1e-9)  # fmt: skip
    whole = scored.tables["metrics"].filter(metric="agreement", group="annotator-2")
    assert whole["low"][0] == pytest.approx(0.025 ** (1 / 6)), "Clopper-Pearson of 6 of 6"
    assert scored.tables["verdicts"].height == 12
    (row,) = scored.tables["verdicts"].filter(verdict=DIFFERENT).rows()
    assert row == (rejected["relation"], rejected["pattern"], "annotator-1", DIFFERENT)
    shown = output(consilience, "suite", "annotate", "score", "s")
    assert "1 of 6 patterns were judged different" in shown and rejected["pattern"] in shown
