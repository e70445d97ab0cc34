"""Claims that the papers make in words, counted in the papers' own numbers and in runs."""

import math

import numpy as np
import polars as pl
import pytest

from checks import output
from conftest import cases, cells
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics.statistics import holm, paired_t
from consilience.report.papers import Measured, paper_numbers
from consilience.reproduce.calum import Comparison, _counted
from consilience.reproduce.recipe import Request, Work
from consilience.reproduce.reproduction import RECIPES, carry_out
from test_tasktypes import run_folder


def make(name, folder, **request):
    work = Work(Request(folder, **request))
    return cells(carry_out(RECIPES[name], work)), work.notes


COUNTS = cases("claims")
"""Recipe, section, claim, in how many comparisons it holds of how many, and where it does not.

Counted by hand in Tables 2, 5 and 6 of the CALUM paper and in Tables 2, 3, 5 and 7 of ParaRel's.
"""


@pytest.mark.parametrize("recipe", ["calum-claims", "pararel-claims"])
def test_claims_hold_as_often_as_counted_by_hand(recipe, tmp_path):
    """Every claim of the recipe is counted, and every number is of a claim."""
    named = {(claim["section"], claim["claim"]) for claim in RECIPES[recipe].details["claims"]}
    found, _ = make(recipe, tmp_path)
    assert {key[:2] for key in found} == named
    printed = paper_numbers(recipe)
    assert set(printed.select("group", "row").iter_rows()) <= named
    assert (printed["group"] == printed["section"]).all()
    for section, claim, *counts in (row[1:5] for row in COUNTS if row[0] == recipe):
        ours = [found[section, claim, column]["ours"] for column in ("Holds in", "of")]
        assert ours == counts, claim
    assert all(math.isnan(row["paper"]) or row["paper"] <= found[*key[:2], "of"]["ours"]
               for key, row in found.items()), "no claim is about more comparisons than there are"  # fmt: skip
    assert not any("our runs" in row for _, row, _ in found)


def difference(points, unit="", **number):
    return Comparison(unit, Measured(50 + points, **number), Measured(50, **number))


def test_a_claim_is_tested_over_its_units_by_hand():
    """Means 3, 5 and 1: mean 3, standard error 2 / sqrt(3), t = 2.598 with two degrees.

    Of t with two degrees, p = 1 - t / sqrt(2 + t**2). Of the 8 signs, two reach 9.
    """
    compared = [
        difference(2, "a"), difference(4, "a"), difference(5, "b"), difference(1, "c"),
        difference(-1, "d"), difference(1, "d"),
    ]  # fmt: skip
    counted = {name: number.value for name, number in _counted(compared[:4], 0).items()}
    assert (counted["Holds in"], counted["of"], counted["Units"]) == (4, 4, 3)
    assert counted["Difference"] == pytest.approx(3)
    t = 3 / (2 / math.sqrt(3))
    assert counted["p (t)"] == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert counted["p (flips)"] == 2 / 8
    interval = _counted(compared[:4], 0)["Difference"]
    reach = 4.30265 * 2 / math.sqrt(3)
    assert (interval.low, interval.high) == pytest.approx((3 - reach, 3 + reach), abs=1e-4)
    several = {name: number.value for name, number in _counted(compared, 0).items()}
    assert (several["Holds in"], several["Difference"]) == (5, pytest.approx(9 / 4))
    alone = {name: number.value for name, number in _counted(compared[:2], 0).items()}
    assert math.isnan(alone["p (t)"])


def test_the_needed_correlation_is_where_a_paired_test_has_a_p_of_5_percent():
    """25 relations, deviations 10, two points: t(.975, 24) = 2.0639, so r = 1 - 25 (2 / t)**2 / 200."""
    needed = difference(2, std=10.0).needed_correlation(25)
    assert needed == pytest.approx(1 - 25 * (2 / 2.063899) ** 2 / 200, abs=1e-5)
    draw = np.random.default_rng(0).normal(size=(25, 2))
    centred = draw - draw.mean(axis=0)
    first, other = np.linalg.qr(centred)[0].T * math.sqrt(24)
    second = needed * first + math.sqrt(1 - needed**2) * other
    assert np.std(second, ddof=1) == pytest.approx(1)
    assert paired_t(52 + 10 * first, 50 + 10 * second).p == pytest.approx(0.05, abs=1e-6)
    assert math.isnan(difference(2).needed_correlation(25)), "without deviations"
    unlike = Comparison("", Measured(51, 20.0), Measured(50, 10.0))
    assert unlike.needed_correlation(25) > 1, "no correlation is enough"


def test_p_is_adjusted_over_all_claims_also_where_some_are_selected(tmp_path):
    found, _ = make("calum-claims", tmp_path)
    p = [row["ours"] for (_, _, column), row in found.items() if column == "p (t)"]
    adjusted = [row["ours"] for (_, _, column), row in found.items() if column == "p (Holm)"]
    assert adjusted == pytest.approx(holm(p))
    chosen, _ = make("calum-claims", tmp_path, only=["5.1.4"])
    key = "5.1.4", "smaller models, small sets: C_R", "p (Holm)"
    assert chosen[key]["ours"] == found[key]["ours"]
    others = {row["verdict"] for other, row in chosen.items() if other[0] != "5.1.4"}
    assert others == {"not selected"}


def test_runs_that_are_here_are_counted_too(tmp_path):
    """BERT-large above BERT-base by 1, 2 and 3 points: t = 2 sqrt(3), and p as above."""
    for row, values in (("BERT-base", (0.5, 0.6, 0.7)), ("BERT-large", (0.51, 0.62, 0.73))):
        table = pl.DataFrame(
            {
                "metric": "consistency", "suite": "pararel", "subset": "all",
                "group": ["P19", "P36", "P17", "MACRO", "MICRO"],
                "value": [*values, sum(values) / 3, 0.1],
            }
        )  # fmt: skip
        absent = [name for name in METRICS_SCHEMA if name not in table.columns]
        folder = Request(tmp_path).folder_of(row)
        folder.mkdir(parents=True)
        whole = table.with_columns(pl.lit(None).alias(name) for name in absent)
        whole.write_csv(folder / "metrics.csv")
    assert Comparison(
        "", Measured(62, relations={"a": 51, "b": 62, "c": 73}),
        Measured(60, relations={"a": 50, "b": 60, "c": 70}),
    ).p_over_relations() == pytest.approx(1 - math.sqrt(12 / 14))  # fmt: skip
    found, notes = make("pararel-claims", tmp_path)
    row = "larger models: Consistency, our runs"
    ours = {column: cell["ours"] for (_, name, column), cell in found.items() if name == row}
    assert (ours["Holds in"], ours["of"], ours["Difference"]) == (1, 1, pytest.approx(2))
    assert ours["p < .05"] == 0, "1 - sqrt(12 / 14) = .074"
    assert notes[-1] == "our runs: BERT-base, BERT-large"
    assert {name for _, name, _ in found if name.endswith("our runs")} == {row}


def test_runs_of_sentence_pairs_are_counted_too(tmp_path):
    """C_S .9 and .8 against C_R .5 and .8: above in one of two."""
    for task, reverse, signal in (("rte", 0.5, 0.9), ("qqp", 0.8, 0.8)):
        folder = Request(tmp_path).folder_of("BART-base", "calum") / task / "run"
        run_folder(folder, task, 0.7, reverse, signal, 0)
    found, notes = make("calum-claims", tmp_path)
    row = "C_S above C_R (in the majority), our runs"
    ours = {column: cell["ours"] for (_, name, column), cell in found.items() if name == row}
    assert (ours["Holds in"], ours["of"], ours["Difference"]) == (1, 2, pytest.approx(20))
    assert notes[-1] == "our runs: BART-base"


def test_the_screen_shows_the_claims_as_rows(consilience, tmp_path):
    out = output(consilience, "reproduce", "calum-claims", "--only", "5.1.4", "--out", tmp_path)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    at = lines.index("smaller models, small sets: C_S (paper) 6 - - - - - -")
    assert lines[at + 1].startswith("smaller models, small sets: C_S (ours) 3 6 -1.5 3 ")
    assert not any("C_S above 90" in line for line in lines)
