"""Claims that the papers make in words, counted in the papers' own numbers."""

import math

import pytest

from checks import output
from conftest import cases, cells
from consilience.metrics.statistics import holm
from consilience.options.others import ReproduceOptions
from consilience.report.papers import paper_numbers
from consilience.reproduce.claims import counted as count
from consilience.reproduce.recipe import Work
from consilience.reproduce.reproduction import RECIPES, make


def found_in(name, folder):
    return cells(make(RECIPES[name], Work(ReproduceOptions(name, out=folder))).numbers)


COUNTS = cases("claims")
"""Recipe, section, claim, in how many comparisons it holds of how many, and where it does not.

Counted by hand in Tables 2, 5 and 6 of the CALUM paper and in Tables 2, 3, 5 and 7 of ParaRel's.
"""


@pytest.mark.parametrize("recipe", ["calum-claims", "pararel-claims"])
def test_claims_hold_as_often_as_counted_by_hand(recipe, tmp_path):
    """Every claim of the recipe is counted, and every number is of a claim."""
    named = {(claim["section"], claim["claim"]) for claim in RECIPES[recipe].details["claims"]}
    found = found_in(recipe, tmp_path)
    assert {key[:2] for key in found} == named
    printed = paper_numbers(recipe)
    assert set(printed.select("group", "row").iter_rows()) <= named
    assert (printed["group"] == printed["section"]).all()
    for section, claim, *counts in (row[1:5] for row in COUNTS if row[0] == recipe):
        ours = [found[section, claim, column]["ours"] for column in ("Holds in", "of")]
        assert ours == counts, claim
    assert all(math.isnan(row["paper"]) or row["paper"] <= found[*key[:2], "of"]["ours"]
               for key, row in found.items()), "no claim is about more comparisons than there are"  # fmt: skip


def test_a_claim_is_tested_over_its_units_by_hand():
    """Means 3, 5 and 1: mean 3, standard error 2 / sqrt(3), t = 2.598 with two degrees.

    Of t with two degrees, p = 1 - t / sqrt(2 + t**2). Of the 8 signs, two reach 9.
    """
    units = {"a": [2.0, 4.0], "b": [5.0], "c": [1.0]}
    counted = {name: number.value for name, number in count(units).items()}
    assert (counted["Holds in"], counted["of"], counted["Units"]) == (4, 4, 3)
    assert counted["Difference"] == pytest.approx(3)
    t = 3 / (2 / math.sqrt(3))
    assert counted["p (t)"] == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert counted["p (flips)"] == 2 / 8
    interval = count(units)["Difference"]
    reach = 4.30265 * 2 / math.sqrt(3)
    assert (interval.low, interval.high) == pytest.approx((3 - reach, 3 + reach), abs=1e-4)
    more = units | {"d": [-1.0, 1.0]}
    several = {name: number.value for name, number in count(more).items()}
    assert (several["Holds in"], several["Difference"]) == (5, pytest.approx(9 / 4))
    alone = {name: number.value for name, number in count({"a": [2.0, 4.0]}).items()}
    assert math.isnan(alone["p (t)"])


def test_p_is_adjusted_over_all_claims(tmp_path):
    found = found_in("calum-claims", tmp_path)
    p = [row["ours"] for (_, _, column), row in found.items() if column == "p (t)"]
    adjusted = [row["ours"] for (_, _, column), row in found.items() if column == "p (Holm)"]
    assert adjusted == pytest.approx(holm(p))


def test_the_screen_shows_the_claims_as_rows(consilience, tmp_path):
    out = output(consilience, "reproduce", "calum-claims", "--out", tmp_path)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    at = lines.index("smaller models, small sets: C_S (paper) 6 - - - - - -")
    assert lines[at + 1].startswith("smaller models, small sets: C_S (ours) 3 6 -1.5 3 ")
