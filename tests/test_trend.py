"""The trend of numbers over the size of the training text: by hand, and of runs of a command."""

import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from checks import refused
from conftest import ROOT
from consilience.kinds.probing import probe
from consilience.metrics.registry import Share
from consilience.options.probe import ProbeOptions
from consilience.runs.run import Run

sys.path.insert(0, str(ROOT / "examples/corpus-size"))
import trend as example


def test_the_slope_by_hand():
    weights = example.contrast([10, 100, 1000])
    assert weights.tolist() == pytest.approx([-0.5, 0, 0.5])
    values = np.array([[0.1, 0.2], [0.3, 0.3], [0.5, 0.4]])
    found = example.estimate(values, weights, 0.15 + np.array([1, -1]) * 0.00125**0.5, relations=2)
    assert (found.value, found.lowest, found.highest) == pytest.approx((0.15, 0.1, 0.2))
    # V = 0.00125 * 2 + 0.005 / 2 = 0.005; 0.005^2 / (0.0025^2 + 0.0025^2) = 2 degrees of freedom
    assert found.high - found.value == pytest.approx(found.value - found.low)
    assert found.high - found.value == pytest.approx(4.302653 * 0.005**0.5)
    assert found.p > 0.05


def test_without_variation_there_is_no_interval():
    found = example.estimate(np.ones((3, 2)), example.contrast([1, 10, 100]), np.zeros(9), 4)
    assert found.value == 0
    assert np.isnan([found.low, found.high, found.p]).all()


def test_no_more_false_findings_than_the_page_says():
    table = example.false_findings(seeds=3, sizes=5, relations=31, data_sets=150)
    assert table["share with p < .05"].max() < 0.13


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three sizes with two seeds each: a random model, the same right or wrong, the oracle."""
    folder = tmp_path_factory.mktemp("sizes")
    for size, model in (("1K", "random"), ("10K", "majority"), ("1M", "oracle")):
        for seed in (0, 1):
            named = {"model": f"baseline:{model}", "suite": "mini", "seed": seed}
            groups, out = ["capital", "currency", "continent"], folder / size / f"seed-{seed}"
            probe(ProbeOptions(**named, groups=groups, out=out))
    return folder


def test_trends_of_runs(runs, tmp_path, capsys):
    specs = [f"{size}={runs / size}" for size in ("1M", "1K", "10K")]  # in any order
    example.main(specs, csv=tmp_path / "trend.csv")
    table = pl.read_csv(tmp_path / "trend.csv")
    rows = {row["number"]: row for row in table.filter(of="tenfold").to_dicts()}

    def accuracy_of(size, seed):
        metrics = pl.read_csv(runs / size / f"seed-{seed}/metrics.csv")
        return metrics.filter(metric="accuracy", subset="all", group="MACRO")["value"][0]

    sizes = ("1K", "10K", "1M")
    accuracy = [np.mean([accuracy_of(size, seed) for seed in (0, 1)]) for size in sizes]
    at_sizes = table.filter((pl.col("number") == "accuracy") & (pl.col("of") != "tenfold"))
    assert at_sizes["of"].to_list() == ["1K", "10K", "1M"]
    assert at_sizes["value"].to_list() == pytest.approx(accuracy)
    slope = np.polyfit([3, 4, 6], accuracy, 1)[0]
    assert rows["accuracy"]["value"] == pytest.approx(slope)
    assert rows["accuracy"]["low"] < slope < rows["accuracy"]["high"]
    assert rows["accuracy"]["relations"] == 3
    # A constant model has no chance-corrected consistency, but a consistency above chance of 0.
    assert "corrected_consistency" not in rows
    assert rows["consistency_above_chance"]["relations"] == 3
    assert "consistent_accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(("specs", "message"), [
    ([], "three or more"), (["no-size"] * 3, "three or more"), (["x=a"] * 3, "no number in 'x'"),
])  # fmt: skip
def test_wrong_sizes_are_named(specs, message):
    refused(message, example.main, specs)


def test_one_seed_has_an_interval_over_relations_only(runs):
    one = Run.open(runs / "1K").seeds[0]
    table = example.estimates(example.Family([one, one, one], [1, 10, 100], None))
    row = table.filter(number="accuracy", of="10").row(0, named=True)
    assert row["seeds"] == 1
    assert row["lowest"] == row["highest"] == row["value"]
    assert 0 < row["low"] < row["value"] < row["high"]
    mixed = [one, Run.open(runs / "1K"), one]
    refused("runs of 1 and 2 seeds", example.Family, mixed, [1, 10, 100], None)


def test_a_number_that_resamples_leave_undefined_at_one_size_is_no_part_of_another(runs):
    """Where few answers differ, some resamples have none that do: 0/0 there, and only there."""
    one = Run.open(runs / "1K").seeds[0]
    family = example.Family([one, one, one], [1, 10, 100], None)
    metrics, groups = {"accuracy": 1.0}, ["capital", "currency", "continent"]
    expected = family.replicates(metrics, groups, [1.0, 0.0, 0.0])
    (counts,) = family.counts[2]
    nothing = {group: dict(counts.draws[group]) for group in groups}
    for group in groups:
        both = nothing[group]["accuracy", "all"]
        undefined = replace(both.within, total=np.zeros_like(both.within.total))
        nothing[group]["accuracy", "all"] = replace(both, within=undefined, across=undefined)
    shares = {group: {("accuracy", "all"): Share(0, 0, 0, 0)} for group in groups}
    family.counts[2] = [replace(counts, draws=nothing, shares=shares)]
    drawn = family.replicates(metrics, groups, [1.0, 0.0, 0.0])
    assert not np.isnan(drawn).any() and (drawn == expected).all()
