"""Tests and intervals against hand-worked numbers, other libraries, and simulated data."""

import itertools
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from consilience.metrics.resampling import ClusterCounts, Resampling
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from checks import refused
from conftest import ROOT
from consilience import measure
from consilience.analysis.correlations import correlation, paired_t, welch_t, wilson_interval
from consilience.analysis.patterns import pair_table, pattern_table
from consilience.core.patterns import Pattern
from consilience.metrics.differences import compare, flip, flipped_differences
from consilience.metrics.measure import few_relations
from consilience.metrics.registry import METRICS, Grid, Tally
from consilience.metrics.statistics import (
    PERMUTATIONS,
    REPLICATES,
    Signs,
    benjamini_hochberg,
    bootstrap_error,
    bootstrap_interval,
    detectable_difference,
    holm,
    mcnemar,
    paired_permutation,
    permutation_p,
    resamples,
    resamples_in_parts,
)
from consilience.types import Candidates, Fact, Relation, Suite
from test_metrics import HAND, PATTERNS, make_suite, table, values


@pytest.mark.parametrize(("first", "second", "p"), [
    (0, 0, 1.0),
    (0, 5, 2 / 32),  # 2 * (1/2)**5
    (1, 5, 2 * (1 + 6) / 64),  # no or one head of six
    (3, 3, 1.0),
])  # fmt: skip
def test_mcnemar_by_hand(first, second, p):
    assert mcnemar(first, second) == mcnemar(second, first) == pytest.approx(p)


@pytest.mark.parametrize(("differences", "p"), [
    ([1, 2, 3], 2 / 8),  # of 8 signs the sums 6 and -6 are as far out
    ([1, 2, -3], 1),  # all are
    ([1, 0, 2, 0, 3, math.nan], 2 / 8),
    ([0, 0], 1),
    ([math.nan], math.nan),
    ([3.0, math.nan], math.nan),  # one sign is as likely as the other
])  # fmt: skip
def test_paired_permutation_by_hand(differences, p):
    assert paired_permutation(differences) == pytest.approx(p, abs=0, nan_ok=True)


@pytest.mark.parametrize(("observed", "drawn", "p"), [
    (3.0, [0.0, -3.0, 1.0], 2 / 4),  # the observed one counts
    (9.0, [0.0, 1.0, 1.0], 1 / 4),
    (3.0, [3.0, math.nan, 0.0], 2 / 3),  # replicates without a value do not
    (math.nan, [0.0], math.nan),
])  # fmt: skip
def test_a_random_permutation_p_by_hand(observed, drawn, p):
    assert permutation_p(observed, np.array(drawn)) == pytest.approx(p, abs=0, nan_ok=True)


def test_random_permutations_come_near_all_of_them():
    differences = [0.31, -0.12, 0.253, 0.407, -0.0501, 0.2, 0.117, 0.3509, -0.22, 0.15, 0.301, 0.05]
    every = paired_permutation(differences)
    # With pairs that cancel, signs are drawn; the sum of the others must be as far out as before.
    many = paired_permutation([*differences, *[1e-9] * 10])
    assert every == pytest.approx(many, abs=0.01)
    mean = lambda a, b, axis: np.mean(a - b, axis=axis)  # noqa: E731
    of = {"permutation_type": "samples", "vectorized": True, "n_resamples": np.inf}
    again = stats.permutation_test((np.array(differences), np.zeros(12)), mean, **of)
    assert every == pytest.approx(again.pvalue)


def test_an_interval_needs_a_value_in_more_than_half_of_the_replicates():
    drawn = np.linspace(0, 1, 11)
    half, more = (np.append(drawn, np.full(size, math.nan)) for size in (11, 10))
    assert all(map(math.isnan, bootstrap_interval(0.5, half, 20, (0, 1))))
    assert bootstrap_interval(0.5, more, 20, (0, 1)) == bootstrap_interval(0.5, drawn, 20, (0, 1))


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3])
def test_signs_are_those_of_numpys_generator_for_the_name_and_the_seed(seed):
    drawn = np.random.default_rng([seed, *"Zoë".encode()]).bytes(-(-PERMUTATIONS // 8))
    bits = np.unpackbits(np.frombuffer(drawn, dtype=np.uint8))[:PERMUTATIONS]
    assert (Signs(["Zoë"], seed).sums(np.ones((1, 1)))[:, 0] == 1.0 - 2 * bits).all()


def test_parts_of_the_resamples_are_what_is_drawn_at_once():
    whole = np.random.default_rng(3).integers(0, 50, (REPLICATES, 50))
    expected = np.stack([np.bincount(row, minlength=50) for row in whole])
    parts = list(resamples_in_parts(50, REPLICATES, np.random.default_rng(3), 200_000))
    assert len(parts) == REPLICATES / 16
    assert (expected == np.concatenate(parts, axis=1).T).all()
    assert (expected == resamples(50, REPLICATES, np.random.default_rng(3))).all()


def test_a_subject_changes_sides_everywhere_at_once():
    def signs(names, seed):
        return Signs(names, seed).sums(np.eye(len(names)))

    here, there = signs(["a", "b"], 0), signs(["b", "c"], 0)
    assert here.shape == (PERMUTATIONS, 2)
    assert set(here.ravel()) == {-1, 1}
    assert (here[:, 1] == there[:, 0]).all()
    assert (here[:, 0] != here[:, 1]).any()
    assert here.mean() == pytest.approx(0, abs=0.04)
    assert (signs(["a"], 1) != signs(["a"], 0)).any()


def test_t_tests_by_hand():
    """Differences 1, 2, 3: mean 2, deviation 1, t = 2 sqrt(3), 2 degrees of freedom.

    Welch on (1, 2, 3) and (2, 4): variances 1/3 and 2/2, t = -1 / sqrt(4/3),
    (4/3)**2 / ((1/3)**2 / 2 + 1**2 / 1) = 1.684 degrees.
    """
    paired = paired_t([2, 4, 6], [1, 2, 3])
    assert (paired.difference, paired.freedom) == (2, 2)
    assert paired.t == pytest.approx(2 * math.sqrt(3))
    assert paired.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)
    welch = welch_t([1, 2, 3], [2, 4])
    assert welch.t == pytest.approx(-1 / math.sqrt(4 / 3))
    assert welch.freedom == pytest.approx((16 / 9) / (1 / 18 + 1))
    assert welch.low < welch.difference == -1 < welch.high


def test_adjusted_p_by_hand():
    """Sorted .01 .02 .03 .5. Holm: .04 .06 .06 .5. Benjamini-Hochberg: .04 .04 .04 .5."""
    given_p = [0.03, math.nan, 0.01, 0.5, 0.02]
    assert holm(given_p) == pytest.approx([0.06, math.nan, 0.04, 0.5, 0.06], nan_ok=True)
    found = benjamini_hochberg(given_p)
    assert found == pytest.approx([0.04, math.nan, 0.04, 0.5, 0.04], nan_ok=True)
    assert holm([]) == benjamini_hochberg([]) == []


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_adjusting_is_what_scipy_does_and_never_lowers(p):
    assert benjamini_hochberg(p) == pytest.approx(list(stats.false_discovery_control(p)))
    assert all(a >= b for a, b in zip(holm(p), benjamini_hochberg(p), strict=True))
    assert all(a >= b - 1e-12 for a, b in zip(benjamini_hochberg(p), p, strict=True))


def test_where_nothing_varies_only_a_proportion_has_an_interval():
    """No hit among 10 clusters: up to 1 - .025**(1/10) = 30.8 % may be (Clopper-Pearson)."""
    zero = np.zeros(REPLICATES)
    exact = stats.binomtest(0, 10).proportion_ci(method="exact")
    found = bootstrap_interval(0.0, zero, 10, (0, 1), proportion=True)
    assert found == pytest.approx((exact.low, exact.high))
    found = bootstrap_interval(1.0, zero + 1, 10, (0, 1), proportion=True)
    assert found == pytest.approx((1 - exact.high, 1))
    for value, bounds, proportion in (
        (0.25, (0, 1), True),  # such as 1 of 4 facts right of every subject
        (0.0, (0, 1), False),  # a mean over relations
        (0.0, (-1, 1), False),  # a difference
        (1.0, (-1, 1), False),  # full agreement beyond chance
    ):
        found = bootstrap_interval(value, zero + value, 10, bounds, proportion=proportion)
        assert all(map(math.isnan, found)), (value, bounds)


def test_wilsons_interval_is_that_of_scipy():
    """One of one: 1 / (1 + z^2) to 1, and 0 of 64 to z^2 / (64 + z^2) = 5.7 %."""
    assert wilson_interval(1.0, 1) == pytest.approx((1 / (1 + 1.959964**2), 1), abs=1e-6)
    assert wilson_interval(0.0, 64) == pytest.approx((0, 0.0566), abs=1e-4)
    wilson = stats.binomtest(3, 40).proportion_ci(method="wilson")
    assert wilson_interval(3 / 40, 40) == pytest.approx((wilson.low, wilson.high))
    assert np.isnan(wilson_interval(float("nan"), 0)).all()


def test_the_interval_is_that_of_the_t_distribution_on_the_logit_scale():
    """Of 0.2, 0.5, 0.8 the mean is 0.5 and its error 0.3 / sqrt(3); replicates have all 27 draws.

    Within 0 and 1 the logit's error is 0.1732 / 0.25, so the bounds are expit(-+ 4.303 * 0.6928).
    """
    drawn = np.array(list(itertools.product([0.2, 0.5, 0.8], repeat=3))).mean(axis=1)
    reach = 4.302653 * 0.3 / math.sqrt(3)
    low, high = bootstrap_interval(0.5, drawn, 3, (0, 1))
    assert low == pytest.approx(1 / (1 + math.exp(4 * reach)), abs=1e-6)
    assert (low, high) == pytest.approx((0.0483, 0.9517), abs=1e-4)
    far = bootstrap_interval(0.5, drawn, 3, (-1000, 1000))
    assert far == pytest.approx((0.5 - reach, 0.5 + reach), abs=1e-3), "far from both bounds"
    rare = bootstrap_interval(0.05, drawn / 10, 3, (0, 1))
    assert 0 < rare[0] < 0.05 < rare[1] < 1
    assert rare[1] - 0.05 > 0.05 - rare[0], "it reaches further away from the nearer bound"


def test_one_cluster_or_no_data_has_no_interval():
    assert all(map(math.isnan, bootstrap_interval(0.5, np.full(9, 0.5), 1, (0, 1))))
    assert all(map(math.isnan, bootstrap_interval(math.nan, np.full(9, math.nan), 9, (0, 1))))
    assert math.isnan(detectable_difference(bootstrap_error(np.zeros(9), 9), 9))
    assert math.isnan(detectable_difference(bootstrap_error(np.arange(9.0), 1), 1))


def test_the_detectable_difference_is_so_many_standard_errors():
    few, many = (detectable_difference(0.1, clusters) for clusters in (6, 10**6))
    assert few == pytest.approx(0.1 * (2.570582 + 0.919544), abs=1e-6)
    assert many == pytest.approx(0.1 * (1.959964 + 0.841621), abs=1e-6)


@pytest.mark.parametrize(("clusters", "least", "most"), [(6, 0.6, 0.7), (10, 0.75, 0.85)])
def test_power_at_the_detectable_difference_of_few_clusters_of_unequal_sizes(clusters, least, most):
    """Relations of 5 to 200 facts whose true differences vary by 6 points; 500 studies.

    A permutation test of six is significant only if all six have the same sign, for which 80 %
    would need 4.4 standard errors.
    """
    generator = np.random.default_rng(1)
    spread = np.sqrt(0.06**2 + 0.25 / np.geomspace(5, 200, clusters))
    mean = detectable_difference(float(np.sqrt((spread**2).sum())) / clusters, clusters)
    studies = mean + spread * generator.standard_normal((500, clusters))
    power = np.mean([paired_permutation(study) < 0.05 for study in studies])
    assert least < power < most


def test_correlation_of_ranks_and_values():
    x, y = [1, 2, 3, 4, 10, math.nan], [1, 3, 2, 5, 90, 7]
    spearman = correlation(x, y, method="spearman")
    pearson = correlation(x, y, method="pearson")
    assert spearman.value == pytest.approx(1 - 6 * 2 / (5 * 24))
    assert pearson.value == pytest.approx(stats.pearsonr(x[:5], y[:5]).statistic)
    assert spearman.n == 5
    assert all(map(math.isnan, (spearman.low, spearman.high))), "five pairs do not say how sure"
    x, y = [*x[:5], 7], [*y[:5], 40]
    six = correlation(x, y, method="spearman")
    reach = 1.959964 * math.sqrt((1 + six.value**2 / 2) / 3)
    ends = [math.tanh(math.atanh(six.value) + each) for each in (-reach, reach)]
    assert [six.n, six.low, six.high] == pytest.approx([6, *ends])
    six = correlation(x, y, method="pearson")
    known = stats.pearsonr(x, y).confidence_interval()
    assert (six.low, six.high) == pytest.approx((known.low, known.high), abs=1e-6)
    perfect = correlation(range(12), range(12), method="spearman")
    assert perfect.value == 1
    assert all(map(math.isnan, (perfect.low, perfect.high))), "r is no share of relations"
    assert math.isnan(correlation([1, 1, 1], [1, 2, 3], method="pearson").value)


# Coverage: how often does a 95 % interval hold the true value, on data of known origin?

SIMULATIONS = 400


def hits(probabilities, generator):
    return (generator.random(np.shape(probabilities)) < probabilities).astype(float)


def tally(values_, subjects):
    counts = np.stack([values_, np.ones(len(values_))], axis=1).astype(np.float32)
    return Tally(counts, np.asarray(subjects, dtype=object), len(values_))


def coverage(intervals, truth):
    low, high = np.array(intervals).T
    return float(((low <= truth) & (truth <= high)).mean())


def naive(values_):
    """The interval that takes every item for independent."""
    mean = np.mean(values_)
    half = 1.96 * math.sqrt(mean * (1 - mean) / np.size(values_))
    return mean - half, mean + half


def test_intervals_of_a_relation_cover_where_naive_ones_do_not():
    """60 subjects with 5 facts each; whether they are known depends on the subject."""
    generator = np.random.default_rng(1)
    names = [str(n) for n in range(60)]
    weights = resamples(60, REPLICATES, generator)
    ours, plain = [], []
    for _ in range(SIMULATIONS):
        known = np.repeat(generator.beta(0.6, 0.9, 60)[:, None], 5, axis=1)
        values_ = hits(known, generator).ravel()
        counted = tally(values_, np.repeat(names, 5))
        drawn = ClusterCounts({("m", "all"): counted}, names).weigh([weights.T])["m", "all"]
        ours.append(bootstrap_interval(values_.mean(), drawn.values, drawn.clusters, (0, 1)))
        plain.append(naive(values_))
    assert 0.93 <= coverage(ours, 0.4) <= 0.97
    assert coverage(plain, 0.4) < 0.85


@pytest.mark.parametrize(
    ("relations", "between", "shared"),
    [(2, 0.2, 0.0), (5, 0.2, 0.0), (12, 0.12, 0.0), (12, 0.03, 0.2)],
)
def test_intervals_over_relations_cover_where_naive_ones_do_not(relations, between, shared):
    """Relations that differ; in the last case the same subjects, known or not, in all of them."""
    generator = np.random.default_rng(2)
    size, simulations, ours, plain = 30, SIMULATIONS * (3 if relations < 3 else 1), [], []
    effect = generator.normal(0, between, (simulations, relations, 1))
    effect = effect + generator.normal(0, shared, (simulations, 1, size))
    answers = hits(np.clip(0.5 + effect, 0.01, 0.99), generator)
    subjects = [str(n) for n in range(size)]
    names = {
        f"R{n}": np.array(subjects if shared else [f"R{n} {name}" for name in subjects], object)
        for n in range(relations)
    }
    resampling = Resampling(names, 3, keep=True)
    for part in np.split(answers, 2):  # simulations are metrics that are counted together
        tallies = {
            group: {("m", str(n)): tally(each, names[group]) for n, each in enumerate(part[:, at])}
            for at, group in enumerate(names)
        }
        counted = {group: [ClusterCounts(each, names[group])] for group, each in tallies.items()}
        draws = resampling.draw(counted)
        for n, values_ in enumerate(part):
            key = ("m", str(n))
            shares = {group: each[key].share() for group, each in tallies.items()}
            drawn = {group: each[0][key] for group, each in draws.items()}
            mean, _ = resampling.over((shares, drawn))
            ours.append(bootstrap_interval(values_.mean(), mean.replicates, mean.clusters, (0, 1)))
            plain.append(naive(values_))
    assert coverage(plain, 0.5) < 0.85
    assert 0.93 <= coverage(ours, 0.5) <= 0.97


@pytest.mark.parametrize(("relations", "ours", "percentiles"), [(4, 0.95, 0.87), (8, 0.9, 0.89)])
def test_intervals_of_a_skewed_mean_cover_where_percentiles_do_not(relations, ours, percentiles):
    """Relations that are mostly 0 and sometimes high: Beta(0.3, 2.7), mean 0.1, of 30 facts each.

    ``ours``: at least so often; ``percentiles`` of the same samples hold the mean less often.
    """
    generator = np.random.default_rng(8)
    weights = resamples(relations, REPLICATES, generator) / relations
    found, plain = [], []
    for _ in range(SIMULATIONS):
        shares = generator.binomial(30, generator.beta(0.3, 2.7, relations)) / 30
        drawn = weights @ shares
        bounds = bootstrap_interval(float(shares.mean()), drawn, relations, (0, 1))
        if not math.isnan(bounds[0]):  # all of them are 0
            found.append(bounds)
            plain.append(np.quantile(drawn, [0.025, 0.975]))
    assert len(found) > 0.9 * SIMULATIONS
    assert coverage(found, 0.1) >= ours
    assert coverage(plain, 0.1) <= percentiles


def test_sign_flips_of_subjects_find_nothing_where_there_is_nothing():
    """Two models that know other subjects, equally many: 5 % of p are below 0.05, not more.

    40 subjects with 5 facts each; taking every fact for itself, as McNemar does, finds far more.
    """
    generator = np.random.default_rng(4)
    names, key = [str(n) for n in range(40)], ("m", "all")
    every = Signs(names, 0)
    ours, plain = [], []
    for _ in range(SIMULATIONS):
        known = generator.beta(0.6, 0.9, (2, 40)).repeat(5, axis=1)
        runs = hits(known, generator)
        one, two = ({key: tally(run, np.repeat(names, 5))} for run in runs)
        flipped = flip(one, two, names, every)[key]
        observed = runs[1].mean() - runs[0].mean()
        ours.append(permutation_p(observed, flipped_differences(flipped)))
        plain.append(mcnemar(int((runs[0] > runs[1]).sum()), int((runs[1] > runs[0]).sum())))
    assert 0.03 <= np.mean(np.array(ours) < 0.05) <= 0.07
    assert np.mean(np.array(plain) < 0.05) > 0.15


SUBJECTS = [f"s{n}" for n in range(200)]


def grid_of_codes(codes):
    """Items of one fact each, answers (item, variant); the gold is 0."""
    codes = np.asarray(codes, dtype=np.int64)
    pairs = np.array(list(itertools.combinations(range(codes.shape[1]), 2)), dtype=np.int64)
    names = np.array(SUBJECTS[: len(codes)], dtype=object)
    return Grid(codes, np.zeros_like(codes), pairs, names, np.arange(10))


def beside_chance(generator, items, shares, kappa):
    """Answers in two variants: the same with probability kappa, else drawn anew by ``shares``.

    Chance agreement is sum_a p(a)**2 and consistency kappa + (1 - kappa) times that, so Cohen's
    kappa of the two variants is kappa.
    """
    first, second = generator.choice(len(shares), (2, items), p=shares)
    return np.stack([first, np.where(generator.random(items) < kappa, first, second)], axis=1)


def p_of_items(metric, generator, *models):
    """The p of a metric of two models (shares, kappa) on 200 items."""
    one, two = (
        {"m": METRICS[metric].count(grid_of_codes(beside_chance(generator, 200, shares, kappa)))}
        for shares, kappa in models
    )
    flipped = flip(one, two, SUBJECTS, Signs(SUBJECTS, 0))["m"]
    difference = two["m"].share().value - one["m"].share().value
    return permutation_p(difference, flipped_differences(flipped))


@pytest.mark.parametrize(("share", "metric"), [
    (0.1, "corrected_consistency"), (0.5, "corrected_consistency"), (0.2, "chance_consistency"),
])  # fmt: skip
def test_models_that_differ_in_bias_alone_are_no_finding(share, metric):
    """Kappa .6 in both; one says a label with the probability ``share``, the other the other one.

    Permuting items between the runs finds a difference of kappa in 45 % of such data, and of the
    chance agreement in 98 % (``bench/simulations.py``): it mixes the marginals of both.
    """
    generator = np.random.default_rng(5)
    models = ((share, 1 - share), 0.6), ((1 - share, share), 0.6)
    found = [p_of_items(metric, generator, *models) for _ in range(80)]
    assert np.mean(np.array(found) < 0.05) <= 0.1


def test_sign_flips_find_a_consistency_that_differs():
    generator = np.random.default_rng(6)
    found = p_of_items("corrected_consistency", generator, ((0.3, 0.7), 0.4), ((0.3, 0.7), 0.9))
    assert found <= 1 / 1000


@pytest.mark.parametrize("metric", ["corrected_consistency", "chance_consistency", "consistency"])
def test_what_items_contribute_is_the_derivative_and_sums_to_the_metric(metric):
    """Hits and totals to first order: against a difference quotient, and by Euler's theorem."""
    generator = np.random.default_rng(7)
    codes = generator.choice(5, (30, 4), p=(0.4, 0.3, 0.1, 0.1, 0.1))
    codes[generator.random((30, 4)) < 0.2] = -1
    counted = METRICS[metric].count(grid_of_codes(codes))
    scores, share, small = counted.scores(), counted.share(), 1e-6
    assert scores.sum(axis=0) == pytest.approx([share.hits, share.total])
    more = [] if counted.sparse is None else [counted.sparse.toarray()]
    columns = np.hstack([counted.counts, *more]).astype(np.float64)
    sums = columns.sum(axis=0)
    assert (sums == counted.sums()).all()
    for unit in (0, 7, 29):
        moved = small * columns[unit]
        above, below = counted.finish(sums + moved), counted.finish(sums - moved)
        for at in (0, 1):
            slope = (above[at] - below[at]) / (2 * small)
            assert scores[unit, at] == pytest.approx(slope, abs=1e-6)


def test_sign_flips_of_a_ratio_by_hand():
    """First run: 1 of 1 and 1 of 3; second: 3 of 3 and 0 of 1. All in all 5 of 8 = theta.

    Parts of the second: (3 - 3 theta) / 4 and (0 - theta) / 4, of the first (1 - theta) / 4 and
    (1 - 3 theta) / 4; differences 0.1875 and 0.0625. Their sum is 3/4 - 2/4; other permutations give
    0.125, -0.125 and -0.25.
    """
    names, both = np.array(["a", "b"], object), ([[1, 1], [1, 3]], [[3, 3], [0, 1]])
    one, two = ({"m": Tally(np.array(counts, np.float32), names, 4)} for counts in both)
    flipped = flipped_differences(flip(one, two, ["a", "b"], Signs(["a", "b"], 0))["m"])
    found, counts = np.unique(flipped.round(12), return_counts=True)
    assert found == pytest.approx([-0.25, -0.125, 0.125, 0.25])
    assert counts == pytest.approx(np.full(4, PERMUTATIONS / 4), rel=0.1)


# Two runs.


def two_runs():
    """Base answers: the first run right in 1, 2; the second in 1, 3, 4. Pairs that agree: below."""
    second = [
        ("1", "Ada", "a", ["a", "a", "a"]),  # 3 of 3 pairs, as in HAND
        ("2", "Bob", "b", ["c", "c", "c"]),  # 3 of 3, in HAND 1 of 3
        ("3", "Cid", "c", ["c", "c", "a"]),  # 1 of 3, in HAND 3 of 3
        ("4", "Dan", "d", ["d", "d", "d"]),  # 3 of 3, in HAND 0 of 3
    ]
    return {"one": table(HAND), "two": table(second)}


def rows_of(compared, metric, group="R"):
    return compared.filter(metric=metric, group=group, subset="all").to_dicts()


@pytest.mark.parametrize("protocol", ["published", "strict"])
def test_two_runs_by_hand(protocol):
    """Accuracy 2/4 and 3/4: one item only the first has, two only the second: p = 1.

    The values are those of the runs alone. Consistency 7/12 and 10/12: differences of pairs 0, 2,
    -2, 3. Of the 8 ways to swap the three
    that differ, the sums are 3, 7, -1, 3, -3, 1, -7, -3: 6 are at least 3 away from 0.
    """
    compared = compare(two_runs(), make_suite(), protocol)
    (row,) = rows_of(compared, "accuracy")
    assert (row["first_value"], row["second_value"], row["difference"]) == (2 / 4, 3 / 4, 1 / 4)
    assert (row["test"], row["p"]) == ("exact McNemar", 1.0)
    (row,) = rows_of(compared, "consistency")
    assert row["difference"] == pytest.approx(3 / 12)
    assert row["test"] == "sign flips of subjects"
    assert row["p"] == pytest.approx(6 / 8, abs=0.02)
    assert row["low"] < 3 / 12 < row["high"]
    assert row["detectable"] > 0
    for side, name in (("first_value", "one"), ("second_value", "two")):
        alone = values(measure(two_runs()[name], make_suite(), protocol))
        for metric in ("accuracy", "consistency", "corrected_consistency", "top_answer"):
            assert rows_of(compared, metric)[0][side] == pytest.approx(alone[metric])


def test_a_mean_of_one_relation_has_that_relations_test():
    """B knows nothing in the second run, so of what is known only A has a difference."""
    rows = [(f"{n}", f"s{n}", "a", ["a", "a", "b"] if n % 3 else ["a"] * 3) for n in range(12)]
    other = [(item, subject, gold, ["a", "b", "b"]) for item, subject, gold, _ in rows]
    always = [(item, f"t{item}", gold, ["a"] * 3) for item, _, gold, _ in rows]
    never = [(item, f"t{item}", gold, ["b", "b", "c"]) for item, _, gold, _ in rows]
    first = pl.concat([table(rows, "A"), table(always, "B")])
    second = pl.concat([table(other, "A"), table(never, "B")])
    compared = compare({"one": first, "two": second}, make_suite(ids="AB"), "strict")
    (one,), (macro,), (micro,) = (
        rows_of(compared, "known_consistency", group) for group in ("A", "MACRO", "MICRO")
    )
    assert (macro["n"], macro["n_excluded"]) == (1, 1)
    assert (macro["difference"], macro["p"]) == (one["difference"], one["p"])
    assert micro["p"] != one["p"], "that of both relations together"


def test_relations_that_share_a_subject_are_not_independent():
    """One of ten subjects becomes right in all of 8 relations.

    The variance over subjects together is .009, in each relation alone an eighth: with 8/7 of the
    difference as V, t = .1 / sqrt(.009) = 1.05.
    """
    ids = "ABCDEFGH"

    def run(one):
        rows = [(f"{n}", f"s{n}", "a", ["a" if n else one] * 3) for n in range(10)]
        return pl.concat(table(rows, group) for group in ids)

    compared = compare({"one": run("b"), "two": run("a")}, make_suite(ids=ids), "strict")
    for metric in ("accuracy", "consistent_accuracy"):
        (macro,) = rows_of(compared, metric, "MACRO")
        assert macro["difference"] == pytest.approx(0.1)
        assert macro["test"] == "t over relations that share subjects"
        assert macro["p"] == pytest.approx(2 * stats.t.sf(0.1 / math.sqrt(0.009), 7), abs=0.03)


def test_an_item_with_one_answer_is_none_of_the_items_of_chance_corrected_consistency():
    rows = [(f"{n}", f"s{n}", "a", ["a", "ab"[n % 2], None]) for n in range(6)]
    rows += [(f"{n}", f"s{n}", "a", ["b", None, None]) for n in range(6, 40)]
    numbers = measure(table(rows), make_suite(), precision=True)
    for metric in ("consistency", "corrected_consistency", "chance_consistency"):
        row = numbers.filter(metric=metric, group="R", subset="all").to_dicts()[0]
        assert (row["clusters"], row["units"]) == (6, 6), metric


def test_a_run_against_itself_differs_nowhere():
    runs = {"one": table(HAND), "again": table(HAND)}
    compared = compare(runs, make_suite(), "strict").filter(pl.col("first_value").is_not_nan())
    assert (compared["difference"] == 0).all()
    assert compared["p"].drop_nans().drop_nulls().eq(1).all()
    assert compared["detectable"].is_nan().all()


def of_relations(names, choose):
    """Two runs of twelve facts in each relation; ``choose()`` is what a run answers to a fact."""

    def answers(run, group):
        return table([(f"{n}", f"s{n}", "a", [choose(run)] * 3) for n in range(12)], group)

    return {run: pl.concat(answers(run, group) for group in names) for run in ("a", "b")}


@pytest.mark.parametrize(("relations", "least"), [(1, None), (2, 0.5), (5, 0.0625), (6, None)])
def test_means_over_few_relations_have_no_p_below_5_percent(relations, least):
    """One relation: its own test. Two to five: no difference can be shown, however large."""
    names, suite = "ABCDEF"[:relations], make_suite(ids="ABCDEF"[:relations])
    compared = compare(of_relations(names, str), suite, "strict")
    (macro,) = rows_of(compared, "accuracy", "MACRO")
    (micro,) = rows_of(compared, "accuracy", "MICRO")
    assert (macro["difference"], micro["p"]) == (-1, pytest.approx(mcnemar(12 * relations, 0)))
    single = compared.filter(pl.col("group").is_in([*names]), metric="accuracy")
    assert single["p_holm"].to_list() == pytest.approx([relations * 2 / 2**12] * relations)
    if relations == 1:
        assert (macro["p"], macro["test"]) == (2 / 2**12, "exact McNemar")
    else:
        test, p = "paired permutation of relations", 2 / 2**relations
        assert (macro["p"], macro["test"]) == (p, test)
        assert math.isnan(macro["p_holm"])
    notes = few_relations(compared, suite)
    assert len(notes) == (least is not None)
    assert all(f"over {relations} relations has a p of at least {least}" in each for each in notes)
    generator = np.random.default_rng(0)
    drawn = of_relations(names, lambda run: str(generator.choice(["a", "b"])))
    (macro,) = rows_of(compare(drawn, suite, "strict", precision=True), "accuracy", "MACRO")
    assert math.isnan(macro["detectable"]) == (least is not None)
    if least is None:
        t = stats.t(macro["clusters"] - 1)
        assert macro["detectable"] == pytest.approx((t.ppf(0.975) + t.ppf(0.8)) * macro["error"])


def test_what_only_one_run_answered_is_not_compared():
    """Without Dan's first answer in one run his base answer and two of his pairs are left out."""
    runs = two_runs()
    runs["one"] = table([*HAND[:3], ("4", "Dan", "d", [None, "b", "c"])])
    compared = compare(runs, make_suite(), "strict")
    (row,) = rows_of(compared, "accuracy")
    assert (row["first_value"], row["second_value"], row["n"]) == (2 / 3, 2 / 3, 3)
    (row,) = rows_of(compared, "consistency")
    assert (row["first_value"], row["second_value"]) == (7 / 10, 8 / 10)
    assert (row["n"], row["n_excluded"]) == (10, 2)


def test_runs_of_other_questions_are_refused():
    runs = two_runs()
    fewer, one = runs | {"two": runs["two"].filter(pl.col("item") != "2")}, {"one": runs["one"]}
    message = "3 of 12 queries of one are not in two, such as R"
    refused(message, compare, fewer, make_suite(), "strict")
    refused("1 run to compare", compare, one, make_suite(), "strict")


# Consistency that cannot be gamed.


def test_corrected_consistency_of_two_patterns_is_cohens_kappa():
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 3, (40, 2))
    codes[:20, 1] = codes[:20, 0]
    rows = [(str(n), f"s{n}", "a", ["abc"[c] for c in pair]) for n, pair in enumerate(codes)]
    suite = make_suite(PATTERNS[:2], edges={})
    found = values(measure(table(rows, patterns=PATTERNS[:2]), suite, "strict"))
    agree = (codes[:, 0] == codes[:, 1]).mean()
    chance = sum((codes[:, 0] == c).mean() * (codes[:, 1] == c).mean() for c in range(3))
    assert found["corrected_consistency"] == pytest.approx((agree - chance) / (1 - chance))


def test_all_counts_together_vary_by_their_subjects():
    """``MICRO`` has as many clusters as there are subjects, whether any recurs or not."""
    key = ("m", "all")
    for other, distinct in ((["b", "c"], 3), (["c", "d"], 4)):
        names = {"A": ["a", "b"], "B": other}
        tallies = {group: tally(np.array([1.0, 0.0]), each) for group, each in names.items()}
        counted = {of: [ClusterCounts({key: each}, names[of])] for of, each in tallies.items()}
        resampling = Resampling(names, 0)
        draws = {of: each[0][key] for of, each in resampling.draw(counted).items()}
        _, micro = resampling.over(({of: each.share() for of, each in tallies.items()}, draws))
        assert micro.clusters == distinct


def test_a_mean_of_relations_that_are_all_0_has_no_interval():
    """Of each relation, and of both together, 0 of 2 and 0 of 4 subjects say how much it may be."""
    rows = [("1", "Ada", "a", ["b"] * 3), ("2", "Bob", "a", ["c"] * 3)]
    more = [("1", "Cid", "a", ["b"] * 3), ("2", "Dan", "a", ["c"] * 3)]
    answers = pl.concat([table(rows, "A"), table(more, "B")])
    metrics = measure(answers, make_suite(ids="AB"), "strict")
    high = dict(metrics.filter(metric="accuracy").select("group", "high").iter_rows())
    assert high["A"] == high["B"] == pytest.approx(1 - 0.025 ** (1 / 2))
    assert high["MICRO"] == pytest.approx(1 - 0.025 ** (1 / 4))
    assert math.isnan(high["MACRO"])


def test_intervals_are_seeded():
    answers = table(HAND)
    one, again = (measure(answers, make_suite(), "strict", seed=7) for _ in range(2))
    other = measure(answers, make_suite(), "strict", seed=8)
    assert one.equals(again, null_equal=True)
    assert one["value"].to_list()[:3] == other["value"].to_list()[:3]
    row = one.filter(metric="consistency", group="R", subset="all").row(0, named=True)
    assert 0 <= row["low"] < 7 / 12 < row["high"] <= 1


def test_the_simulations_of_the_guide_run():
    """One data set of a table; whether its numbers are those of the guide takes ten minutes."""
    command = [sys.executable, str(ROOT / "bench" / "simulations.py"), "1", "different"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.count("\n| kappa") + said.count("\n| Know-Const") == 8


def pair_of(seed, size=12, groups=("P", "Q", "R"), shared=True):
    """A suite whose relations have the same subjects or none in common, and answers to it."""
    draw, texts = np.random.default_rng(seed), ("[X] is in [Y].", "[X] is inside [Y].")
    patterns, relations, rows = tuple(map(Pattern.parse, texts)), [], []
    effects = draw.normal(size=size)
    for name in groups:
        names = [f"s{at}" if shared else f"{name}{at}" for at in range(size)]
        facts = tuple(Fact(str(at), of, "ab"[at % 2]) for at, of in enumerate(names))
        relations.append(Relation(name, name, "N-1", patterns, facts, {}, Candidates.of(facts)))
        right = effects + draw.normal(0, 0.5, size) > 0
        rows += [
            (name, one.item, one.subject, text, one.object, one.object if right[at] else "c")
            for at, one in enumerate(facts)
            for text in texts
        ]
    columns = ["group", "item", "subject", "variant", "gold", "answer"]
    return Suite("hand", tuple(relations), "strict"), pl.DataFrame(rows, columns, orient="row")


def row(table, suite, group):
    found = measure(table, suite, precision=True).filter(metric="accuracy", subset="all")
    return found.filter(group=group).row(0, named=True)


def test_all_facts_together_vary_by_subjects_whether_or_not_relations_share_them():
    """One fact a relation: 20 independent right-or-wrong answers, so sqrt(p (1 - p) / 19)."""
    suite, answers = pair_of(1, size=1, groups=[f"R{at}" for at in range(20)], shared=False)
    found = row(answers, suite, "MICRO")
    expected = math.sqrt(found["value"] * (1 - found["value"]) / 19)
    assert found["error"] == pytest.approx(expected, rel=0.05)
    assert found["clusters"] == 20


def test_a_mean_over_relations_and_seeds_has_the_variance_of_that_mean():
    """Subjects differ between seeds at random, so a mean over four seeds varies less than one."""
    suite, _ = pair_of(0)
    seeds = [pair_of(seed)[1] for seed in range(4)]
    alone = [row(one, suite, "MACRO")["error"] for one in seeds]
    assert row(seeds, suite, "MACRO")["error"] < 0.75 * np.mean(alone)


def test_relations_that_are_equal_by_chance_still_vary_by_their_subjects():
    suite, answers = pair_of(2, groups=("P",))
    both = pl.concat([answers, answers.with_columns(group=pl.lit("Q"))])
    twice = Suite("hand", (suite["P"], replace(suite["P"], id="Q")), "strict")
    one, mean = row(answers, suite, "P"), row(both, twice, "MACRO")
    assert mean["value"] == one["value"]
    assert mean["error"] == pytest.approx(one["error"], rel=0.1)


def test_a_difference_mirrors_whichever_run_is_named_first():
    suite, known = pair_of(3, size=30, groups=("P",))
    of = pl.col("subject").is_in(["s0", "s1"]), pl.col("variant").str.contains("inside")
    wrong = pl.when(of[1]).then(pl.lit("x")).otherwise(pl.lit("y"))
    few = known.with_columns(answer=pl.when(of[0]).then("gold").otherwise(wrong))
    most = known.with_columns(answer=pl.when(of[1]).then("answer").otherwise("gold"))
    rows = []
    for both in ({"a": few, "b": most}, {"a": most, "b": few}):
        table = compare(both, suite, "strict", precision=True).filter(metric="known_consistency")
        rows.append([tuple(one.values()) for one in table.select(
            "difference", "low", "high", "clusters").to_dicts()])  # fmt: skip
    for (value, low, high, size), (other, low_2, high_2, size_2) in zip(*rows, strict=True):
        assert (value, low, high) == pytest.approx((-other, -high_2, -low_2), nan_ok=True)
        assert size == size_2


def test_intervals_of_pairs_of_patterns_count_the_subjects_of_the_pair():
    """Of 40 subjects 3 have both answers: the interval of 3 of 3, and no crash without any."""
    suite, answers = pair_of(4, size=40, groups=("P",))
    second = pl.col("variant").str.contains("inside")
    few = answers.with_columns(
        answer=pl.when(second & ~pl.col("subject").is_in(["s0", "s1", "s2"]))
        .then(None)
        .otherwise(pl.lit("a"))
    )
    found = pair_table(few, suite, "strict").row(0, named=True)
    assert (found["n"], found["high"]) == (3, 1)
    assert found["low"] == pytest.approx(0.025 ** (1 / 3))
    none = answers.with_columns(answer=pl.when(second).then(None).otherwise(pl.lit("a")))
    assert pattern_table([none, few], suite, "strict")["closest"].dtype.is_numeric()
