"""Errors against the jackknife that counts anew without each subject or group, and invariances."""

import math
from dataclasses import replace

import numpy as np
import pytest

from consilience.metrics import uncertainty
from consilience.metrics.registry import METRICS, Clusters
from consilience.metrics.uncertainty import Index, Influences
from grids import chosen, drawn_facts, drawn_questions

TERMS = [(1.0,), (-1.0, 1.0), (0.5, 0.5)]  # a run, a difference of two, a mean over two seeds
EXACT = ("accuracy", "consistency", "consistent_accuracy", "mean_accuracy", "known_consistency")
NEAR = ("corrected_consistency", "chance_consistency")


def runs_of(draw, groups, runs, shared, items=10):
    """Grids of several groups for each run, of two facts a subject."""
    names = {g: [f"{g * (not shared)}s{at // 2}" for at in range(items)] for g in groups}
    return [
        {g: drawn_facts((run, at, draw), items, 3, 0.1, 0.0, subjects=names[g])
         for at, g in enumerate(groups)} for run in range(runs)
    ]  # fmt: skip


def without(grid, subject):
    names = grid.subjects.names[grid.subjects.places]
    return chosen(grid, np.flatnonzero(names != subject))


def number(metric, weights, runs, over):
    """The number of groups of grids, summed over runs with weights."""
    tallies = [{g: METRICS[metric].tally(of) for g, of in run.items()} for run in runs]
    terms = [*zip(weights, tallies, strict=True)]
    return over(terms, Index())


def falls(whole, fewer):
    return np.array([whole - value for value in fewer])


def jackknife(of):
    return math.sqrt((len(of) - 1) / len(of) * (of**2).sum())


@pytest.mark.parametrize("weights", TERMS)
@pytest.mark.parametrize("metric", EXACT + NEAR)
@pytest.mark.parametrize("groups", ["A", "ABC"])
def test_errors_are_those_without_each_subject(groups, metric, weights):
    """To the last digits where a number is hits/total, to first order where chance moves, too."""
    subjects, near = (5, 1e-9) if metric in EXACT else (40, 0.02)
    runs = runs_of(1, groups, len(weights), shared=True, items=2 * subjects)
    found = number(metric, weights, runs, uncertainty.pooled)
    values = [
        number(metric, weights, [{g: without(of, f"s{at}") for g, of in run.items()} for run in runs],
               uncertainty.pooled).value for at in range(subjects)
    ]  # fmt: skip
    assert found.error == pytest.approx(jackknife(falls(found.value, values)), rel=near)
    assert found.n_clusters == subjects


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("weights", TERMS)
@pytest.mark.parametrize("metric", EXACT + NEAR)
def test_errors_of_means_are_those_without_each_group_and_shared_subject(metric, weights, shared):
    """Over groups, and more by what subjects move in all groups together beyond in each alone."""
    groups = "ABCD"
    runs = runs_of(2, groups, len(weights), shared)
    found = number(metric, weights, runs, uncertainty.mean)

    def mean(change):
        kept = [{g: change(g, of) for g, of in run.items()} for run in runs]
        kept = [{g: of for g, of in run.items() if of is not None} for run in kept]
        return number(metric, weights, kept, uncertainty.mean).value

    over_groups = [mean(lambda g, of, left=left: of if g != left else None) for left in groups]
    variance = jackknife(falls(found.value, over_groups)) ** 2
    names = {name for run in runs for of in run.values() for name in of.subjects.names}
    moves = [[found.value - mean(lambda g, of, n=name, at=at: without(of, n) if g == at else of)
              for at in groups] for name in sorted(names)]  # fmt: skip
    within = np.array(moves) * math.sqrt(4 / 5)
    joint, separate = (within.sum(axis=1) ** 2).sum(), (within**2).sum()
    variance += max(0, joint - separate) * 4 / 3
    assert found.error == pytest.approx(math.sqrt(variance), rel=1e-9 if metric in EXACT else 0.07)
    assert sum(found.by_group.values()) == pytest.approx(found.value)
    assert found.shares_subjects == (joint > separate * (1 + 1e-9))


@pytest.mark.parametrize("seed", range(6))
def test_influences_sum_to_nothing(seed):
    for grid in (drawn_facts(seed), drawn_questions(seed, 20)):
        for name, metric in METRICS.items():
            tally = metric.tally(grid)
            if tally is None or tally.clusters is None or not tally.total > 0:
                continue
            influences = Influences(Index())
            slopes = 1 / tally.total, -tally.value / tally.total, 0.0
            influences.add(0, 1.0, tally, slopes, tally.total)
            assert abs(influences.sums()[1].sum()) < 1e-12, name


def test_one_more_item_that_agrees_by_chance_is_counted_as_an_item():
    """It adds 0 to the hits, and the mean total of the others."""
    tally = METRICS["corrected_consistency"].tally(drawn_facts(0, 10, 3, 0.5, 0.0))
    assert tally.value > 0 and len({*tally.scores[:, 1]}) > 1, "an example that says nothing"
    found = uncertainty.of_group([(1.0, tally)], Index()).lower
    scores = np.vstack([tally.scores, [0, tally.scores[:, 1].mean()]])
    more = replace(tally, scores=scores, sizes=None, clusters=Clusters.of("abcdefghijk"))
    again = uncertainty.of_group([(1.0, more)], Index())
    assert (found.value, found.error) == pytest.approx((again.value, again.error), rel=1e-12)


def test_only_items_with_a_pair_are_clusters_above_chance():
    """Six facts have two answers, four have one, which moves the level of chance alone."""
    grid = drawn_facts(0, 10, 2, 0.0, 0.0)
    asked = np.ones((10, 2), bool)
    asked[6:, 1] = False
    grid = replace(grid, asked=asked)
    for name in ("consistency", *NEAR):
        assert uncertainty.of_group([(1.0, METRICS[name].tally(grid))], Index()).n_clusters == 6
