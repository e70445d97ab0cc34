"""Tests and intervals against hand-worked numbers, other libraries, and simulated data."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from consilience import measure
from consilience.analysis.patterns import correlation, pair_table, pattern_table
from consilience.analysis.task_types import t_test
from consilience.metrics.differences import compare
from consilience.metrics.measure import mean_over_runs
from consilience.metrics.statistics import (
    NAN,
    benjamini_hochberg,
    detectable_difference,
    difference_interval,
    holm,
    logit_interval,
    mcnemar,
    paired_permutation,
    sign_flips,
)
from consilience.metrics.uncertainty import Estimate
from consilience.report.cautions import Known, cautions
from test_metrics import HAND, make_suite, of, row_of, table, values


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


def test_t_tests_by_hand():
    """Differences 1, 2, 3: mean 2, deviation 1, t = 2 sqrt(3), 2 degrees of freedom.

    Welch on (1, 2, 3) and (2, 4): variances 1/3 and 2/2, t = -1 / sqrt(4/3),
    (4/3)**2 / ((1/3)**2 / 2 + 1**2 / 1) = 1.684 degrees.
    """
    paired = t_test([2, 4, 6], [1, 2, 3], "paired")
    assert (paired.difference, paired.freedom) == (2, 2)
    assert paired.t == pytest.approx(2 * math.sqrt(3))
    assert paired.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)
    welch = t_test([1, 2, 3], [2, 4], "Welch")
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


def test_the_detectable_difference_is_so_many_uncertainty():
    few, many = (detectable_difference(0.1, clusters) for clusters in (6, 10**6))
    assert few == pytest.approx(0.1 * (2.570582 + 0.919544), abs=1e-6)
    assert many == pytest.approx(0.1 * (1.959964 + 0.841621), abs=1e-6)


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
    return compared.filter(metric=metric, kind="whole", **of(group)).to_dicts()


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
    assert math.isnan(row["detectable"]), "no test of four can find any"
    for side, name in (("first_value", "one"), ("second_value", "two")):
        alone = values(measure(two_runs()[name], make_suite(), protocol))
        for metric in ("accuracy", "consistency", "corrected_consistency", "top_answer"):
            assert rows_of(compared, metric)[0][side] == pytest.approx(alone[metric])


def test_p_is_at_least_that_of_the_subjects_that_changed():
    """8 of 40 subjects agree otherwise: 2 of their 256 signs are as far. All others are as before."""
    known = [(f"{n}", f"s{n}", "ab"[n % 2]) for n in range(40)]
    rows = [(*of, [of[2], "c" if int(of[0]) < 8 else of[2], of[2]]) for of in known]
    other = [(*of, [of[2]] * 3) for of in known]
    compared = compare({"one": table(rows), "two": table(other)}, make_suite(), "strict")
    for metric in ("consistency", "known_consistency", "corrected_consistency"):
        assert rows_of(compared, metric)[0]["p"] == 2 / 256


def test_relations_that_share_a_subject_are_not_independent():
    """One of ten subjects becomes right in all of 8 relations.

    The variance over subjects together is .1 * .9 / 9 = .01, in each relation alone an eighth: with
    8/7 of the difference as V, t = .1 / sqrt(.01) = 1.
    """
    ids = "ABCDEFGH"

    def run(one):
        rows = [(f"{n}", f"s{n}", "a", ["a" if n else one] * 3) for n in range(10)]
        return pl.concat(table(rows, group) for group in ids)

    compared = compare({"one": run("b"), "two": run("a")}, make_suite(ids=ids), "strict")
    for metric in ("accuracy", "consistent_accuracy"):
        (mean,) = rows_of(compared, metric, "mean")
        assert mean["difference"] == pytest.approx(0.1)
        assert mean["test"] == "t over relations that share subjects"
        assert mean["p"] == pytest.approx(2 * stats.t.sf(1, 7))


def test_a_subject_that_several_relations_share_is_evidence_once():
    """One subject agrees otherwise, in all of 6 relations: no sign of it alone is unlikely."""
    ids, draw = "ABCDEF", np.random.default_rng(0)
    said = draw.choice([*"abc"], (6, 12, 3)).tolist()

    def run(first):
        rows = [[(f"{n}", f"s{n}", "a", of[n] if n else first) for n in range(12)] for of in said]
        return pl.concat(table(of, group) for of, group in zip(rows, ids, strict=True))

    compared = compare({"one": run([*"aaa"]), "two": run([*"abc"])}, make_suite(ids=ids), "strict")
    (whole,) = rows_of(compared, "corrected_consistency", "all")
    assert whole["p"] == 1


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
    (mean,) = rows_of(compared, "accuracy", "mean")
    (every,) = rows_of(compared, "accuracy", "all")
    assert (mean["difference"], every["p"]) == (-1, pytest.approx(mcnemar(12 * relations, 0)))
    single = compared.filter(pl.col("group").is_in([*names]), metric="accuracy")
    assert single["p_holm"].to_list() == pytest.approx([relations * 2 / 2**12] * relations)
    if relations == 1:
        assert (mean["p"], mean["test"]) == (2 / 2**12, "exact McNemar")
    else:
        test, p = "paired permutation of relations", 2 / 2**relations
        assert (mean["p"], mean["test"]) == (p, test)
        assert math.isnan(mean["p_holm"])
    notes = cautions(Known(suite=suite, compared=compared))
    assert len(notes) == (least is not None)
    assert all(f"over {relations} relations, p is at least {least}" in of for of in notes)
    generator = np.random.default_rng(0)
    drawn = of_relations(names, lambda run: str(generator.choice(["a", "b"])))
    (mean,) = rows_of(compare(drawn, suite, "strict"), "accuracy", "mean")
    assert math.isnan(mean["detectable"]) == (least is not None)
    if least is None:
        assert mean["detectable"] > 0


def test_what_only_one_run_answered_is_not_compared():
    """Without Dan's first answer in one run his base answer and two of his pairs are left out."""
    runs = two_runs()
    runs["one"] = table([*HAND[:3], ("4", "Dan", "d", [None, "b", "c"])])
    why = pl.when(pl.col("answer").is_null()).then(pl.lit("too long"))
    runs["one"] = runs["one"].with_columns(excluded=why)
    compared = compare(runs, make_suite(), "strict")
    (row,) = rows_of(compared, "accuracy")
    assert (row["first_value"], row["second_value"], row["n"]) == (2 / 3, 2 / 3, 3)
    (row,) = rows_of(compared, "consistency")
    assert (row["first_value"], row["second_value"]) == pytest.approx((7 / 12, 10 / 12))
    assert (row["n"], row["n_excluded"]) == (10, 2)


def runs_of(*values, of="value"):
    """A metrics table, or a comparison, a run: the accuracy of a group, and a mean of none."""
    return [
        pl.DataFrame({
            "metric": "accuracy", "over": ["group", "mean"], "group": ["R", ""], "kind": "whole",
            "level": "", of: [value, NAN],
        })
        for value in values
    ]  # fmt: skip


@pytest.mark.parametrize("of", ["value", "difference"])
@pytest.mark.parametrize(("values", "expected"), [
    # Of .1, .2 and .6 the squares sum to .14: s = sqrt(.07); t of 2 degrees is 4.3027.
    ((0.1, 0.2, 0.6), (0.3, 0.07**0.5, 0.3 - 4.302653 * (0.07 / 3) ** 0.5, 3)),
    ((0.1, NAN, 0.3), (0.2, 0.02**0.5, 0.2 - 12.706205 * 0.1, 2)),  # t of one degree
    ((0.5, 0.5), (0.5, 0, 0.5, 2)),
    ((0.5,), (0.5, NAN, NAN, 1)),
    ((NAN, NAN), (NAN, NAN, NAN, 0)),
])  # fmt: skip
def test_means_over_runs_by_hand(values, expected, of):
    of_group, of_none = mean_over_runs(runs_of(*values, of=of), of).to_dicts()
    found = [of_group[name] for name in ("value", "std", "low", "runs")]
    assert found == pytest.approx(expected, nan_ok=True)
    assert of_group["value"] - of_group["low"] == pytest.approx(
        of_group["high"] - of_group["value"], nan_ok=True
    )
    assert (of_group["metric"], of_group["over"], of_group["group"]) == ("accuracy", "group", "R")
    assert of_none["runs"] == 0 and math.isnan(of_none["value"])


def test_a_mean_of_relations_that_are_all_0_has_no_interval():
    """Of each relation, and of both together, 0 of 2 and 0 of 4 subjects say how much it may be."""
    rows = [("1", "Ada", "a", ["b"] * 3), ("2", "Bob", "a", ["c"] * 3)]
    more = [("1", "Cid", "a", ["b"] * 3), ("2", "Dan", "a", ["c"] * 3)]
    answers = pl.concat([table(rows, "A"), table(more, "B")])
    metrics = measure(answers, make_suite(ids="AB"), "strict")
    high = {
        group: row_of(metrics, "accuracy", group)["high"] for group in ("A", "B", "mean", "all")
    }
    assert high["A"] == high["B"] == pytest.approx(1 - 0.025 ** (1 / 2))
    assert high["all"] == pytest.approx(1 - 0.025 ** (1 / 4))
    assert math.isnan(high["mean"])


def test_intervals_of_pairs_of_patterns_count_the_subjects_of_the_pair():
    """Of 40 subjects 3 were asked both: the interval of 3 of 3, and no crash without any."""
    texts = ("[X] is in [Y].", "[X] is inside [Y].")
    rows = [(f"{at}", f"s{at}", "a", "aa") for at in range(40)]
    suite, answers = make_suite(texts, edges={}), table(rows, patterns=texts)
    second = pl.col("variant") == texts[1]
    is_left_out = second & ~pl.col("subject").is_in(["s0", "s1", "s2"])

    def without(left_out):
        why, answer = pl.when(left_out).then(pl.lit("x")), pl.when(~left_out).then(pl.lit("a"))
        return answers.with_columns(excluded=why, answer=answer)

    few, none = without(is_left_out), without(second)
    found = pair_table(few, suite, "strict").row(0, named=True)
    assert (found["n"], found["high"]) == (3, 1)
    assert found["low"] == pytest.approx(0.025 ** (1 / 3))
    assert pattern_table(none, suite, "strict").height == 2


def test_intervals_by_hand():
    """Mean .5, error .1, 3 clusters: the logit's error is .1 / .25, so expit(-+ 4.303 * .4).

    No hit among 10 clusters: up to 1 - .025**(1/10) = 30.8 % may be (Clopper-Pearson).
    """
    low, high = logit_interval(0.5, 0.1, 3, (0, 1))
    assert low == pytest.approx(1 / (1 + math.exp(4.302653 * 0.4)), abs=1e-6)
    assert low + high == pytest.approx(1)
    assert np.isnan(logit_interval(0.5, 0.0, 9, (0, 1))).all()
    assert np.isnan(logit_interval(0.5, 0.1, 1, (0, 1))).all()
    high = stats.binomtest(0, 10).proportion_ci(method="exact").high
    for value, error, ends in (
        (0, 0, (0, high)),
        (1, 0, (1 - high, 1)),
        (0.25, 0, None),
        (NAN, NAN, None),
    ):
        share, other = (Estimate(value, error, 10, 10, 0, is_share) for is_share in (True, False))
        assert share.interval((0, 1)) == pytest.approx(ends or (NAN, NAN), nan_ok=True)
        assert np.isnan(other.interval((0, 1))).all(), "no proportion"
    assert math.isnan(detectable_difference(0.0, 9)) and math.isnan(detectable_difference(NAN, 1))


def test_differences_have_one_more_item_in_each_direction():
    """10 equal items: mean 0, mean square 2/12, so 0 -+ t(11) * sqrt(2/12 / 11), as of a logit."""
    low, high = difference_interval(0, 0, 10, (-1, 1), reach=1)
    reach = 2.200985 * math.sqrt(2 / 12 / 11)
    assert (low, high) == pytest.approx((-math.tanh(reach), math.tanh(reach)), abs=1e-6)


def test_more_than_13_differences_have_random_signs():
    """15 ones of which 12 are positive: a sum of at least 9 in 2 * 576 of 2^15 combinations."""
    ones = np.array([1.0] * 12 + [-1.0] * 3)
    (p,) = sign_flips([ones])
    assert p == pytest.approx(2 * 576 / 2**15, abs=0.005) and (p * 10_000) % 1 < 1e-9
    few, again, negative = sign_flips([ones[:13], ones[::-1], -ones])
    assert few == 28 / 2**13 and again == p and negative == pytest.approx(p, abs=0.005)
