"""Sheets on patterns, what annotators agree on, and their sign-offs."""

import math
from collections import Counter

import numpy as np
import polars as pl
import pytest

from checks import refused
from consilience.authoring.annotation import (
    DIFFERENT,
    SAME,
    agreements,
    draw_pattern_sheets,
    read_key,
    rejected_table,
    score_sheets,
    verdicts,
    write_sheets,
)
from consilience.suites import load_suite
from consilience.suites.layouts import load_folder
from consilience.types import Suite

PEOPLE = ("Ana", "Ben")
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
    return draw_pattern_sheets(suite, annotators=PEOPLE, seed=seed)


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


def test_a_task_has_five_patterns_and_two_controls_with_the_same_names():
    key = draw("mini", 3)
    per_relation = Counter(relation for relation, _ in key.patterns.values())
    assert set(per_relation.values()) == {5}
    assert len(key.patterns) == 75
    golds = [item.gold for item in key.items.values()]
    assert golds.count(DIFFERENT) == 30
    for questions in key.sheets.values():
        assert len(set(questions)) == 105
        for start in range(0, 105, 7):
            task = Counter(key.items[item].gold for item, _ in questions[start : start + 7])
            assert task == {SAME: 5, DIFFERENT: 2}
    assert key.sheets["Ana"] != key.sheets["Ben"] and key == draw("mini", 3)
    assert key.items != draw("mini", 4).items


def test_controls_are_patterns_of_another_relation_and_the_base_is_first(folder):
    """At most five of six patterns of a, and one of b; the second task has one pattern."""
    key = draw(folder)
    assert Counter(relation for relation, _ in key.patterns.values()) == {"a": 5, "b": 1}
    assert [item.gold for item in key.items.values()].count(DIFFERENT) == 3
    bases = {"a": "is", "b": "in"}
    words = {"a": {text.split()[1] for text in TEXTS["a"]}, "b": {"in", "at"}}
    for name, item in key.items.items():
        (first, second) = item.texts["original"]
        relation = name.partition(":")[0]
        assert first.split()[1] == bases[relation]
        assert first.split()[::2] == second.split()[::2], "the same subject and object"
        is_control = second.split()[1] not in words[relation]
        assert is_control == (item.gold == DIFFERENT) == (name not in key.patterns)


def test_patterns_are_compared_within_their_language_and_written_in_it(write_suite):
    texts = ("[X] has [Y].", "en"), ("[X] hat [Y].", "de"), ("[Y] gehört zu [X].", "de")
    patterns = [{"relation": "capital", "pattern": text, "language": code} for text, code in texts]
    facts = [{"relation": "capital", "subject": "Germany", "object": "Munich"}]
    pairs = {"Germany": "Deutschland", "Munich": "München"}
    names = [{"name": name, "language": "de", "text": text} for name, text in pairs.items()]
    suite = load_folder(write_suite(patterns=patterns, facts=facts, names=names))
    key = draw_pattern_sheets(suite, annotators=("Ana",))
    (item,) = key.items.values()
    assert item.texts["original"] == ("Deutschland hat München.", "München gehört zu Deutschland.")


def test_what_cannot_be_judged_is_refused():
    one = Suite.from_patterns({"a": ["[X] [Y]."]}, {"a": FACTS["a"]})
    refused("no relation with two patterns", draw_pattern_sheets, one, annotators=PEOPLE)
    for names in (["a/b"], ["KEY"], [""], ["Ana", "ana"], ["Ana", "Ana"]):
        refused("the annotator", draw_pattern_sheets, load_suite("mini"), annotators=names)


def test_controls_take_the_names_in_their_language_and_form(write_suite):
    """Known of a fact are its names in English, and those in the forms of its own patterns.

    Of German objects ``capital`` has the dative, so no German pattern of ``has`` can be a control
    of it; ``has`` has the base form only, so neither can a pattern with a dative be one of it.
    """
    german = [
        ("capital", "[X] liegt bei [Y].", "dative"), ("capital", "[X] endet bei [Y].", "dative"),
        ("has", "[X] hat [Y].", ""), ("has", "[X] besitzt [Y].", ""),
    ]  # fmt: skip
    patterns = [{"relation": id_, "pattern": text, "language": "de", "form": form}
                for id_, text, form in german]  # fmt: skip
    words = [("capital", "is by"), ("capital", "ends by"), ("has", "has"), ("has", "owns")]
    patterns += [{"relation": id_, "pattern": f"[X] {word} [Y]."} for id_, word in words]
    pairs = {"capital": ("Spree", "Berlin"), "has": ("Bern", "Aare")}
    facts = [{"relation": id_, "subject": s, "object": o} for id_, (s, o) in pairs.items()]
    names = [
        {"name": name, "language": "de", "text": f"{name}-de"} for names in pairs.values()
        for name in names if name != "Berlin"
    ] + [{"name": "Berlin", "language": "de", "form": "dative", "text": "Berlin-dat"}]  # fmt: skip
    folder = write_suite(relations=[{"relation": id_} for id_ in pairs], patterns=patterns,
                         facts=facts, names=names)  # fmt: skip
    suite = load_folder(folder)
    languages = Counter()
    for seed in range(20):
        key = draw_pattern_sheets(suite, annotators=PEOPLE, seed=seed)
        assert list(key.items) != list(key.patterns)
        for item in key.items.values():
            first, second = item.texts["original"]
            assert (first.split()[0], first.split()[-1]) == (second.split()[0], second.split()[-1])
            languages[item.gold, "-d" in first] += 1
    assert languages[DIFFERENT, True] == 0, "no German pattern takes the names of the other"
    assert languages[DIFFERENT, False] == 40


def alpha(counts):
    counts = np.array(counts)
    return agreements(counts, np.ones((1, len(counts))))["krippendorff_alpha"][0]


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


def test_scores_of_patterns_and_controls_by_hand(folder, tmp_path):
    """Six patterns and three controls; Ana rejects one pattern, Ben accepts one control."""
    suite = load_folder(folder)
    key = draw_pattern_sheets(suite, annotators=PEOPLE)
    write_sheets(key, tmp_path / "sheets")
    assert read_key(tmp_path / "sheets" / "key.json") == key
    rejected = next(iter(key.patterns))
    control = next(name for name, item in key.items.items() if item.gold == DIFFERENT)
    answer(tmp_path / "sheets", key, {"Ana": {rejected}, "Ben": {control}})
    scored = score_sheets(tmp_path / "sheets")
    rows = scored.metrics.select("metric", "group", "subset", "value").iter_rows()
    value = {tuple(key): number for *key, number in rows}
    expected = {
        ("agreement", "suite", "paraphrases"): 11 / 12, ("agreement", "suite", "controls"): 5 / 6,
        ("agreement", "Ana", "paraphrases"): 5 / 6, ("agreement", "Ben", "paraphrases"): 1,
        ("pairwise_agreement", "suite", "all"): 7 / 9,
    }  # fmt: skip
    assert {key: value[key] for key in expected} == pytest.approx(expected)
    # 18 answers, 12 of them the same: D_o = 4 / 18, D_e = 2 * 12 * 6 / (18 * 17).
    expected = 1 - (4 / 18) / (144 / 306)
    assert value["krippendorff_alpha", "suite", "all"] == pytest.approx(expected)
    whole = scored.metrics.filter(metric="agreement", group="Ben", subset="paraphrases")
    assert whole["low"][0] == pytest.approx(0.025 ** (1 / 6)), "Clopper-Pearson of 6 of 6"
    (row,) = rejected_table(scored).rows
    assert row == [*key.patterns[rejected], "Ana"]
    assert len(list(verdicts(scored))) == 12
