"""Sheets on patterns, and what annotators agree on."""

import math
from collections import Counter

import numpy as np
import polars as pl
import pytest

from checks import output, refused
from consilience.authoring.annotation import (
    DIFFERENT,
    SAME,
    agreements,
    draw_pattern_sheets,
    read_key,
    rejected_table,
    score_sheets,
    verdicts,
)
from consilience.metrics.registry import Clusters
from consilience.suites import load_suite
from consilience.suites.layouts import load_folder
from consilience.types import Suite

TEXTS = {
    "a": [f"[X] {word} [Y]." for word in ("is", "was", "has", "had", "gets", "got", "buys")],
    "b": ["[X] in [Y].", "[X] at [Y]."],
}
FACTS = {"a": [("A", "x"), ("B", "y")], "b": [("C", "z")]}


@pytest.fixture
def folder(write_suite):
    rows = [{"relation": id_, "pattern": text} for id_, texts in TEXTS.items() for text in texts]
    facts = [
        {"relation": id_, "subject": subject, "object": object_}
        for id_, pairs in FACTS.items() for subject, object_ in pairs
    ]  # fmt: skip
    relations = [{"relation": id_} for id_ in TEXTS]
    return write_suite(relations=relations, patterns=rows, facts=facts)


def draw(folder, seed=0):
    suite = load_suite(folder) if folder == "mini" else load_folder(folder)
    return draw_pattern_sheets(suite, annotators=2, seed=seed)


def answer(sheets, key, wrong):
    """Fill in the sheets: the gold, and the other label for items that ``wrong`` has by person."""
    other = {SAME: DIFFERENT, DIFFERENT: SAME}
    for name, questions in key.sheets.items():
        golds = [(item, key.items[item].gold) for item, _ in questions]
        said = [other[gold] if item in wrong.get(name, ()) else gold for item, gold in golds]
        path = sheets / f"{name}.csv"
        table = pl.read_csv(path, infer_schema=False)
        answered = table.with_columns(pl.Series(table.columns[-1], said))
        answered.write_csv(path, line_terminator="\r\n")  # as spreadsheets write it


def test_patterns_are_compared_within_their_language_and_written_in_it(write_suite):
    texts = ("[X] has [Y].", "en"), ("[X] hat [Y].", "de"), ("[Y] gehört zu [X].", "de")
    patterns = [{"relation": "capital", "pattern": text, "language": code} for text, code in texts]
    facts = [{"relation": "capital", "subject": "Germany", "object": "Munich"}]
    pairs = {"Germany": "Deutschland", "Munich": "München"}
    names = [{"name": name, "language": "de", "text": text} for name, text in pairs.items()]
    suite = load_folder(write_suite(patterns=patterns, facts=facts, names=names))
    key = draw_pattern_sheets(suite, annotators=1)
    (item,) = key.items.values()
    assert item.texts["original"] == ("Deutschland hat München.", "München gehört zu Deutschland.")


def test_what_cannot_be_judged_is_refused():
    one = Suite.from_patterns({"a": ["[X] [Y]."]}, {"a": FACTS["a"]})
    refused("no relation with two patterns", draw_pattern_sheets, one, annotators=2)


def alpha(counts):
    items = Clusters.of(map(str, range(len(counts))))
    return agreements(np.array(counts), items)["krippendorff_alpha"].value


def test_alpha_of_the_example_of_its_author():
    """Krippendorff 2011: four observers, twelve units, 40 pairable values, alpha 0.743.

    By hand: units 2, 6 and 8 disagree by 2, 4 and 2, so ``D_o = 8 / 40``; the values occur 9, 13,
    10, 5 and 3 times, so ``D_e = (1600 - 384) / (40 * 39)``. The package ``krippendorff`` 0.9 has
    the same value.
    """
    counts = [
        [3, 0, 0, 0, 0], [0, 3, 1, 0, 0], [0, 0, 4, 0, 0], [0, 0, 4, 0, 0], [0, 4, 0, 0, 0],
        [1, 1, 1, 1, 0], [0, 0, 0, 4, 0], [3, 1, 0, 0, 0], [0, 4, 0, 0, 0], [0, 0, 0, 0, 3],
        [2, 0, 0, 0, 0], [0, 0, 1, 0, 0],
    ]  # fmt: skip
    assert alpha(counts) == pytest.approx(1 - (8 / 40) / (1216 / 1560))
    assert (alpha(counts), alpha([[2, 0], [0, 2]])) == (pytest.approx(0.743, abs=5e-4), 1)
    assert alpha([[1, 1], [1, 1]]) == pytest.approx(1 - 1 / (8 / 12)), "below chance"
    assert math.isnan(alpha([[2, 0], [2, 0]]))
    assert math.isnan(alpha([[1, 0], [0, 1]])), "one answer each"


def test_patterns_are_drawn_by_seed_and_compared_with_the_base_pattern(folder):
    """At most five of six patterns of a, and one of b."""
    key = draw(folder)
    assert Counter(relation for relation, _ in key.patterns.values()) == {"a": 5, "b": 1}
    for name, item in key.items.items():
        first, second = item.texts["original"]
        assert first.split()[1] == {"a": "is", "b": "in"}[name.partition(":")[0]]
        assert first.split()[::2] == second.split()[::2], "the same subject and object"
    assert key == draw(folder) and key.items != draw(folder, 4).items
    assert key.sheets["annotator-1"] != key.sheets["annotator-2"]


def test_scores_of_patterns_by_hand(folder, tmp_path, consilience):
    """Six patterns; Ana rejects one of them."""
    made = output(consilience, "suite", "annotate", "patterns", folder, "--annotators", "2",
                  "--out", "sheets")  # fmt: skip
    assert "2 sheets of 6 questions: sheets/annotator-1.csv, ...\n" in made
    key = read_key(tmp_path / "sheets" / "key.json")
    assert key == draw(folder)
    rejected = next(iter(key.patterns))
    answer(tmp_path / "sheets", key, {"annotator-1": {rejected}})
    scored = score_sheets(tmp_path / "sheets")
    rows = scored.metrics.select("metric", "over", "group", "value").iter_rows()
    value = {tuple(key): number for *key, number in rows}
    expected = {
        ("agreement", "all", ""): 11 / 12, ("agreement", "group", "annotator-1"): 5 / 6,
        ("agreement", "group", "annotator-2"): 1, ("pairwise_agreement", "all", ""): 5 / 6,
    }  # fmt: skip
    assert {key: value[key] for key in expected} == pytest.approx(expected)
    # 12 answers, 11 of them the same: D_o = 2 / 12, D_e = 2 * 11 / (12 * 11).
    alpha_of_all = value["krippendorff_alpha", "all", ""]
    assert alpha_of_all == pytest.approx(1 - (2 / 12) / (22 / 132), abs=1e-9)
    whole = scored.metrics.filter(metric="agreement", group="annotator-2")
    assert whole["low"][0] == pytest.approx(0.025 ** (1 / 6)), "Clopper-Pearson of 6 of 6"
    (row,) = rejected_table(scored).rows
    assert row == [*key.patterns[rejected], "annotator-1"]
    assert len(list(verdicts(scored))) == 12
    out = output(consilience, "suite", "annotate", "score", "sheets")
    assert "1 of 6 patterns were judged different" in out
