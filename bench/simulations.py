"""How often tests find a difference where there is none, and intervals contain the true value.

`python bench/simulations.py [SIMULATIONS] [TABLE,TABLE]` prints the tables of docs/statistics.md:
coverage, numbers, mcnemar, macro, equal, different. 500 data sets a row (of numbers 1,000, of
coverage, mcnemar and macro 2,000) take some 10 minutes on one core of an AMD EPYC. Everything is
seeded by the name of its row.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np
from scipy.special import expit, ndtr, stdtr, stdtrit

from consilience.core.items import Floats
from consilience.metrics import statistics
from consilience.metrics.differences import flip, flipped_differences
from consilience.metrics.registry import METRICS, Grid, Tally, ratio
from consilience.metrics.statistics import (
    Signs,
    bootstrap_interval,
    difference_bounds,
    mcnemar,
    paired_permutation,
    permutation_p,
    resamples,
)

DRAWN = 999
"""Permutations and bootstrap samples of a simulated data set."""

statistics.PERMUTATIONS = DRAWN

Random = np.random.Generator
Models = tuple[Tally, Tally]


# Two models with the same true value.


def tally_of(codes: np.ndarray, metric: str, per_subject: int = 1) -> Tally:
    """A metric of answers (item, variant); the items of a subject follow each other."""
    pairs = np.array(list(combinations(range(codes.shape[1]), 2)), dtype=np.int64)
    subjects = (np.arange(len(codes)) // per_subject).astype(str).astype(object)
    grid = Grid(codes, np.zeros_like(codes), pairs, subjects, np.arange(10))
    tally = METRICS[metric].count(grid)
    assert tally is not None
    return tally


def answers(
    generator: Random, labels: np.ndarray, variants: int, shares: Sequence[float], kappa: float
) -> np.ndarray:
    """Answers (item, variant): the item's own label, or one drawn by ``shares``.

    Labels drawn by ``shares`` too make ``kappa`` the true consistency above chance.
    """
    keep = generator.random((len(labels), variants)) < np.sqrt(kappa)
    other = generator.choice(len(shares), (len(labels), variants), p=shares)
    return np.where(keep, labels[:, None], other)


def biased(
    items: int,
    first: Sequence[float],
    second: Sequence[float],
    *,
    variants: int = 2,
    kappas: tuple[float, float] = (0.6, 0.6),
    metric: str = "corrected_consistency",
) -> Callable[[Random], Models]:
    """Models that give the labels as often as ``first`` and ``second`` say."""

    def make(generator: Random) -> Models:
        one, two = (
            answers(generator, generator.choice(len(p), items, p=p), variants, p, kappa)
            for p, kappa in zip((first, second), kappas, strict=True)
        )
        return tally_of(one, metric), tally_of(two, metric)

    return make


def clustered(
    subjects: int,
    first: Sequence[float],
    second: Sequence[float],
    *,
    variants: int = 2,
    kappas: tuple[float, float] = (0.6, 0.6),
) -> Callable[[Random], Models]:
    """The same with 10 facts a subject, whose labels go with the subject (Dirichlet, sum 4)."""

    def one(generator: Random, shares: Sequence[float], kappa: float) -> Tally:
        own = generator.dirichlet(np.array(shares) * 4, subjects)
        labels = np.array([generator.choice(len(shares), 10, p=each) for each in own]).ravel()
        codes = answers(generator, labels, variants, shares, kappa)
        return tally_of(codes, "corrected_consistency", 10)

    return lambda generator: (
        one(generator, first, kappas[0]),
        one(generator, second, kappas[1]),
    )


def units(counts: np.ndarray, **options: object) -> Tally:
    """A tally of counts (item, column), every item its own cluster."""
    names = np.arange(len(counts)).astype(str).astype(object)
    return Tally(counts.astype(np.float32), names, len(counts), **options)  # type: ignore[arg-type]


def f1(
    items: int, base: float, first: tuple[float, float], second: tuple[float, float]
) -> Callable[[Random], Models]:
    """F1 of a label that ``base`` of the items have, by precision and recall."""

    def one(generator: Random, gold: np.ndarray, precision: float, recall: float) -> Tally:
        wrong = recall * base * (1 - precision) / precision / (1 - base)
        said = generator.random(items) < np.where(gold, recall, wrong)
        return units(np.stack([2 * (said & gold), said * 1 + gold], axis=1), finish=ratio)

    def make(generator: Random) -> Models:
        gold = generator.random(items) < base
        return one(generator, gold, *first), one(generator, gold, *second)

    return make


def known(
    items: int, shares: tuple[float, float], right: tuple[float, float] = (0.7, 0.7)
) -> Callable[[Random], Models]:
    """Consistency of known items, of which one model has more: 4 variants, any of them right."""

    def one(generator: Random, share: float, chance: float) -> Tally:
        hits = generator.random((items, 4)) < chance
        while not hits.any(axis=1).all():
            hits |= (generator.random((items, 4)) < chance) & ~hits.any(axis=1, keepdims=True)
        agree, is_known = hits.sum(axis=1), generator.random(items) < share
        return units(np.stack([agree * (agree - 1) // 2 * is_known, 6 * is_known], axis=1))

    return lambda generator: (
        one(generator, shares[0], right[0]),
        one(generator, shares[1], right[1]),
    )


def counts_of(tally: Tally) -> Floats:
    """Counts (cluster, column)."""
    names, places = np.unique(tally.clusters.astype(str), return_inverse=True)  # type: ignore[union-attr]
    more = [] if tally.sparse is None else [tally.sparse.toarray()]
    counts = np.hstack([tally.counts, *more])
    sums = np.zeros((len(names), counts.shape[1]))
    np.add.at(sums, places, counts)
    return sums


def scores_of(tally: Tally) -> Floats:
    """Contributions to hits and total (cluster, 2)."""
    names, places = np.unique(tally.clusters.astype(str), return_inverse=True)  # type: ignore[union-attr]
    sums = np.zeros((len(names), 2))
    np.add.at(sums, places, tally.scores())
    return sums


def value_of(tally: Tally, sums: Floats) -> Floats:
    """hits/total; NaN where the total is 0."""
    hits, total = tally.finish(sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.abs(total) > 1e-9, hits / total, np.nan)


TESTS = ("swapped items", "delta method, t", "bootstrap, t", "bootstrap, percentile", "sign flips")


def p_values(models: Models, generator: Random, signs: dict[int, Signs]) -> list[float]:
    """The p of each of ``TESTS``; NaN where one of the models has no value."""
    one, two = (counts_of(each) for each in models)
    size, sums = len(one), (one.sum(axis=0), two.sum(axis=0))
    values = [float(value_of(models[0], each)) for each in sums]
    difference = values[1] - values[0]
    if np.isnan(difference):
        return [np.nan] * len(TESTS)
    sides = (generator.random((DRAWN, size)) < 0.5).astype(float)
    moved = sides @ (two - one)
    swapped = value_of(models[0], sums[1] - moved) - value_of(models[0], sums[0] + moved)
    scores = [scores_of(each) for each in models]
    own = [
        (each[:, 0] - value * each[:, 1]) / each[:, 1].sum()
        for each, value in zip(scores, values, strict=True)
    ]
    error = np.sqrt(((own[1] - own[0]) ** 2).sum() * size / (size - 1))
    drawn = resamples(size, DRAWN, generator).astype(float)
    again = value_of(models[0], drawn @ two) - value_of(models[0], drawn @ one)
    again = again[~np.isnan(again)]
    spread = again.std(ddof=1)
    names = sorted(set(models[0].clusters))  # type: ignore[arg-type]
    flips = signs.setdefault(size, Signs(names, 0))
    flipped = flip({("m", "all"): models[0]}, {("m", "all"): models[1]}, names, flips)
    beyond = min((again <= 0).sum(), (again >= 0).sum())
    return [
        permutation_p(difference, swapped),
        float(2 * stdtr(size - 1, -abs(difference) / error)) if error else 1.0,
        float(2 * stdtr(size - 1, -abs(difference) / spread)) if spread else 1.0,
        float(min(1.0, 2 * (beyond + 1) / (len(again) + 1))),
        permutation_p(difference, flipped_differences(flipped["m", "all"])),
    ]


def peaked(at: int) -> list[float]:
    """One of ten candidates is given in 85 % of the cases."""
    return [0.85 if each == at else 0.15 / 9 for each in range(10)]


def two(share: float) -> list[float]:
    """The shares of two labels."""
    return [share, 1 - share]


FREQUENT = [each / sum(1 / n for n in range(1, 11)) for each in (1 / n for n in range(1, 11))]
"""Ten candidates, the n-th given in proportion to 1/n."""

NULL: dict[str, Callable[[Random], Models]] = {
    **{
        f"kappa, {items} items, {share:g} / {1 - share:g}": biased(
            items, two(share), two(1 - share)
        )
        for items in (60, 277, 400)
        for share in (0.5, 0.2, 0.1, 0.05)
    },
    "kappa, 60 items, 0.5 / 0.9": biased(60, two(0.5), two(0.9)),
    "kappa, 277 items, 0.5 / 0.9": biased(277, two(0.5), two(0.9)),
    **{
        f"kappa, {size} subjects, 10 facts each, {share:g} / {1 - share:g}": clustered(
            size, two(share), two(1 - share)
        )
        for size in (6, 10, 20)
        for share in (0.5, 0.1)
    },
    **{
        f"kappa, {size} subjects, 4 patterns, 10 candidates, other favourite": clustered(
            size, peaked(0), peaked(5), variants=4
        )
        for size in (6, 10, 20)
    },
    **{
        f"kappa, {items} items, 9 patterns, 10 candidates, {name}": biased(
            items, first, second, variants=9
        )
        for items in (60, 400)
        for name, first, second in (
            ("the same", FREQUENT, FREQUENT),
            ("other order", FREQUENT, FREQUENT[::-1]),
            ("other favourite", peaked(0), peaked(5)),
        )
    },
    "chance, 277 items, 0.2 / 0.8": biased(277, two(0.2), two(0.8), metric="chance_consistency"),
    "chance, 400 items, 9 patterns, 10 candidates, other order": biased(
        400, FREQUENT, FREQUENT[::-1], variants=9, metric="chance_consistency"
    ),
    "F1, 60 items, precision and recall .6 .9 / .9 .6": f1(60, 0.3, (0.6, 0.9), (0.9, 0.6)),
    "F1, 277 items, the same, rare label": f1(277, 0.1, (0.6, 0.9), (0.9, 0.6)),
    "Know-Const, 60 items, 10 / 90 % known": known(60, (0.1, 0.9)),
    "Know-Const, 218 items, 20 / 80 % known": known(218, (0.2, 0.8)),
}
"""Models with the same true value and other answers."""

POWER: dict[str, Callable[[Random], Models]] = {
    "kappa .6 / .4, 277 items, 0.5 / 0.5": biased(277, two(0.5), two(0.5), kappas=(0.6, 0.4)),
    "kappa .6 / .4, 277 items, 0.2 / 0.8": biased(277, two(0.2), two(0.8), kappas=(0.6, 0.4)),
    "kappa .7 / .4, 277 items, 0.1 / 0.1": biased(277, two(0.1), two(0.1), kappas=(0.7, 0.4)),
    "kappa .8 / .5, 60 items, 0.5 / 0.5": biased(60, two(0.5), two(0.5), kappas=(0.8, 0.5)),
    "kappa .6 / .45, 60 items, 9 patterns": biased(
        60, FREQUENT, FREQUENT, variants=9, kappas=(0.6, 0.45)
    ),
    "kappa .8 / .2, 6 subjects, 10 facts each": clustered(6, two(0.3), two(0.3), kappas=(0.8, 0.2)),
    "kappa .8 / .4, 10 subjects, 10 facts each": clustered(
        10, two(0.3), two(0.3), kappas=(0.8, 0.4)
    ),
    "Know-Const, 218 items, 40 / 40 % known": known(218, (0.4, 0.4), (0.7, 0.8)),
}
"""Models that differ."""


def random_for(name: str) -> Random:
    """A generator that the name of a row seeds."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def false_findings(
    rows: dict[str, Callable[[Random], Models]], count: int
) -> Iterator[tuple[str, list[str]]]:
    """The share of p below .05 of each of ``TESTS``, in percent, a row a kind of data."""
    for name, make in rows.items():
        generator, signs = random_for(name), dict[int, Signs]()
        found = np.array([p_values(make(generator), generator, signs) for _ in range(count)])
        found = found[~np.isnan(found[:, 0])]
        yield name, [f"{100 * each:.1f}" for each in (found < 0.05).mean(axis=0)]


def relation_flips(count: int) -> Iterator[tuple[str, list[str]]]:
    """MACRO's test where the mean difference is 0: differences of relations, symmetric or not."""
    shapes: dict[str, Callable[[Random, int], Floats]] = {
        "normal": lambda generator, size: generator.normal(size=size),
        "skewed (exponential)": lambda generator, size: generator.exponential(size=size) - 1,
        "one in ten far away": lambda generator, size: (
            (generator.random(size) < 0.1) * 10.0 - 1 + generator.normal(0, 0.1, size)
        ),
    }
    for name, draw in shapes.items():
        cells = []
        for size in (6, 8, 12, 20, 31):
            generator = random_for(f"{name} {size}")
            p = [paired_permutation(draw(generator, size).tolist()) for _ in range(count)]
            cells.append(f"{100 * np.mean(np.array(p) < 0.05):.1f}")
        yield name, cells


# Intervals.


def percentiles(value: float, drawn: Floats, clusters: int) -> tuple[float, float]:
    """What was used before: expanded percentiles, below six clusters the t distribution."""
    tail = float(stdtrit(clusters - 1, 0.025)) * np.sqrt(clusters / (clusters - 1))
    if clusters < 6:
        return max(0.0, value + tail * drawn.std()), min(1.0, value - tail * drawn.std())
    low, high = np.quantile(drawn, [ndtr(tail), 1 - ndtr(tail)])
    return float(low), float(high)


def relations(kind: str, size: int, mean: float, between: float, generator: Random) -> Floats:
    """The values of relations whose subjects know more or less: 20 subjects, 2 facts, 4 patterns.

    The logit of a right answer is normal over relations (sd ``between``) and over subjects (sd 1);
    of two wrong answers half are the same.
    """
    logits = generator.normal(mean, between, (size, 1, 1, 1)) + generator.normal(
        0, 1, (size, 20, 1, 1)
    )
    right = generator.random((size, 20, 2, 4)) < expit(logits)
    if kind == "accuracy":
        return np.asarray(right[..., 0].mean(axis=(1, 2)))
    if kind == "Consistent-Acc":
        return np.asarray(right.all(axis=3).mean(axis=(1, 2)))
    wrong = generator.random(right.shape) < 0.5
    same = [(right).sum(axis=3), (~right & wrong).sum(axis=3), (~right & ~wrong).sum(axis=3)]
    return np.asarray(sum(each * (each - 1) / 12 for each in same).mean(axis=(1, 2)))


def mostly_zero(size: int, generator: Random) -> Floats:
    """Values of 30 subjects each, the relation's own is Beta(0.3, 2.7): mean 0.1."""
    return generator.binomial(30, generator.beta(0.3, 2.7, size)) / 30


MEANS: dict[str, Callable[[int, Random], Floats]] = {
    "consistency, mean 48": lambda n, g: relations("consistency", n, 0.0, 1.0, g),
    "consistency, mean 53": lambda n, g: relations("consistency", n, 0.5, 1.0, g),
    "accuracy, mean 33": lambda n, g: relations("accuracy", n, -1.0, 1.0, g),
    "accuracy, mean 50": lambda n, g: relations("accuracy", n, 0.0, 1.0, g),
    "accuracy, mean 87": lambda n, g: relations("accuracy", n, 2.5, 1.0, g),
    "Consistent-Acc, mean 7": lambda n, g: relations("Consistent-Acc", n, -1.5, 1.5, g),
    "mostly 0, mean 10": mostly_zero,
    "difference of accuracy, +13": lambda n, g: differences("accuracy", n, -1.0, g),
    "difference of Consistent-Acc, +6": lambda n, g: differences("Consistent-Acc", n, -1.5, g),
}
"""Values (relation,) of numbers whose mean over relations is estimated."""

SIZES = (2, 3, 4, 5, 8, 20, 31)


def differences(kind: str, size: int, mean: float, generator: Random) -> Floats:
    """Values (relation,) of a model that knows more, by 0.8 logits, minus those of another."""
    shared = generator.normal(0, 1, size)
    values = []
    for shift in (0.0, 0.8):
        own = shared + generator.normal(mean + shift, 0.5, size)
        parts = [relations(kind, 1, each, 0.0, generator) for each in own]
        values.append(np.concatenate(parts))
    return values[1] - values[0]


def coverage(count: int) -> Iterator[tuple[str, list[str]]]:
    """How often 95 % intervals hold the mean over relations, in percent: ours (as before)."""
    for name, draw in MEANS.items():
        truth = float(
            np.mean(draw(200_000 // (10 if "difference" in name else 1), random_for(name)))
        )
        cells = []
        for size in SIZES:
            generator, hits = random_for(f"{name} {size}"), []
            for _ in range(count):
                values = draw(size, generator)
                drawn = resamples(size, DRAWN, generator).astype(float) @ values / size
                value = float(values.mean())
                least = -1.0 if "difference" in name else 0.0
                low, high = bootstrap_interval(value, drawn, size, (least, 1.0))
                if np.isnan(low):
                    continue
                old = percentiles(value, drawn, size)
                hits.append((low <= truth <= high, old[0] <= truth <= old[1]))
            ours, before = 100 * np.mean(hits, axis=0)
            cells.append(f"{ours:.1f} ({before:.1f})")
        yield f"{name} ({truth:.3f})", cells


def known_subjects(
    subjects: int, facts: int, a: float, b: float
) -> Callable[[Random], tuple[Tally, ...]]:
    """Accuracy of facts whose subject is known with a probability of its own, Beta(a, b)."""

    def make(generator: Random) -> tuple[Tally, ...]:
        share = generator.beta(a, b, (subjects, 1)) if np.isfinite(a) else b
        hits = generator.random((subjects, facts)) < share
        counts = np.stack([hits.ravel(), np.ones(hits.size)], axis=1).astype(np.float32)
        names = np.repeat(np.arange(subjects), facts).astype(str).astype(object)
        return (Tally(counts, names, hits.size),)

    return make


def first_of(models: Callable[[Random], Models]) -> Callable[[Random], tuple[Tally, ...]]:
    """The first of two models."""
    return lambda generator: models(generator)[:1]


def differing(size: int) -> Callable[[Random], tuple[Tally, ...]]:
    """Accuracy over relations whose own is normal (0.5, sd 0.2), of 30 subjects each."""

    def make(generator: Random) -> tuple[Tally, ...]:
        share = np.clip(generator.normal(0.5, 0.2, (size, 1)), 0.01, 0.99)
        hits = generator.random((size, 30)) < share
        counts = np.stack([hits.ravel(), np.ones(hits.size)], axis=1).astype(np.float32)
        return (
            Tally(counts, np.repeat(np.arange(size), 30).astype(str).astype(object), 30 * size),
        )

    return make


ONE = METRICS["accuracy"].bounds
KAPPA = METRICS["corrected_consistency"].bounds

NUMBERS: dict[str, tuple[Callable[[Random], tuple[Tally, ...]], float, tuple[float, float]]] = {
    "1 relation: 60 subjects, 5 facts each": (known_subjects(60, 5, 0.6, 0.9), 0.4, ONE),
    "15 subjects, 5 facts each": (known_subjects(15, 5, 0.6, 0.9), 0.4, ONE),
    "300 subjects, 3 facts each": (known_subjects(300, 3, 0.6, 0.9), 0.4, ONE),
    "60 subjects, 1 fact each, 7 % right": (known_subjects(60, 1, np.inf, 0.07), 0.07, ONE),
    "6 subjects, 10 facts each": (known_subjects(6, 10, 0.6, 0.9), 0.4, ONE),
    **{
        f"above chance .6, {items} items, label shares .1 / .9": (
            first_of(biased(items, two(0.1), two(0.1))),
            0.6,
            KAPPA,
        )
        for items in (60, 277)
    },
    "above chance .6, 60 items, 9 patterns, 10 candidates": (
        first_of(biased(60, FREQUENT, FREQUENT, variants=9)),
        0.6,
        KAPPA,
    ),
    "difference of two such numbers, 60 items": (
        biased(60, FREQUENT, FREQUENT[::-1], variants=9),
        0.0,
        KAPPA,
    ),
    "the same, 20 subjects, 10 facts each": (
        clustered(20, FREQUENT, FREQUENT[::-1], variants=9),
        0.0,
        KAPPA,
    ),
    "difference of Know-Const, 60 items, 10 / 90 % known": (known(60, (0.1, 0.9)), 0.0, ONE),
    "difference of Know-Const, 218 items, 20 / 80 % known": (known(218, (0.2, 0.8)), 0.0, ONE),
    **{
        f"{size} relations that differ (sd 0.20), 30 subjects each": (differing(size), 0.5, ONE)
        for size in (2, 3, 5)
    },
}
"""What a number is of, its true value, and its bounds. Two tallies: their difference."""


def coverage_of_numbers(count: int) -> Iterator[tuple[str, list[str]]]:
    """How often 95 % intervals hold the true value, in percent: ours, before, items alone."""
    for name, (make, truth, bounds) in NUMBERS.items():
        generator, hits = random_for(f"interval, {name}"), []
        for _ in range(count):
            tallies = make(generator)
            sums = [counts_of(each) for each in tallies]
            size = len(sums[0])
            drawn = resamples(size, DRAWN, generator).astype(float)
            replicates = [
                value_of(*each) for each in zip(tallies, (drawn @ s for s in sums), strict=True)
            ]
            values = [float(value_of(t, s.sum(axis=0))) for t, s in zip(tallies, sums, strict=True)]
            if len(tallies) == 2:
                value, again = values[1] - values[0], replicates[1] - replicates[0]
                low, high = bootstrap_interval(value, again, size, difference_bounds(bounds))
            else:
                value, again = values[0], replicates[0]
                low, high = bootstrap_interval(value, again, size, bounds, proportion=bounds == ONE)
            if np.isnan(low):
                continue
            old = percentiles(value, again[~np.isnan(again)], size)
            items = float(tallies[0].n)
            reach = 1.96 * np.sqrt(value * (1 - value) / items) if 0 < value < 1 else np.nan
            hits.append(
                (low <= truth <= high, old[0] <= truth <= old[1], abs(value - truth) <= reach)
            )
        ours, before, plain = (f"{100 * each:.1f}" for each in np.mean(hits, axis=0))
        is_share = len(tallies) == 1 and bounds == ONE and not name.startswith("60 subjects, 1 ")
        yield name, [ours, before, plain if is_share else ""]


def mcnemar_of_clusters(count: int) -> Iterator[tuple[str, list[str]]]:
    """McNemar's test of models that know other subjects, equally many: 40 with 5 facts each."""
    generator, found = random_for("McNemar"), []
    make, signs = known_subjects(40, 5, 0.6, 0.9), Signs([str(n) for n in range(40)], 0)
    names = [str(n) for n in range(40)]
    for _ in range(count):
        (one,), (other,) = make(generator), make(generator)
        moved = other.counts[:, 0] - one.counts[:, 0]
        flipped = flip({("m", "all"): one}, {("m", "all"): other}, names, signs)["m", "all"]
        difference = float(moved.sum()) / len(moved)
        found.append(
            (
                mcnemar(int((moved < 0).sum()), int((moved > 0).sum())) < 0.05,
                permutation_p(difference, flipped_differences(flipped)) < 0.05,
            )
        )
    yield (
        "accuracy, 40 subjects, 5 facts each",
        [f"{100 * each:.1f}" for each in np.mean(found, axis=0)],
    )


def printed(title: str, heads: Sequence[str], rows: Iterator[tuple[str, list[str]]]) -> None:
    """A Markdown table, row by row."""
    print(f"\n| {title} | " + " | ".join(heads) + " |", flush=True)
    print("|---|" + "---|" * len(heads))
    for name, cells in rows:
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """All tables, of so many data sets a row."""
    count = int(sys.argv[1]) if sys.argv[1:] else 500
    sizes = [str(each) for each in SIZES]
    flipped = ["6", "8", "12", "20", "31"]
    tables = {
        "coverage": ("coverage, relations", sizes, coverage(4 * count)),
        "numbers": (
            "coverage",
            ("ours", "before", "every item for itself"),
            coverage_of_numbers(2 * count),
        ),
        "mcnemar": (
            "p < .05 though equal",
            ("McNemar", "sign flips"),
            mcnemar_of_clusters(4 * count),
        ),
        "macro": ("MACRO, relations", flipped, relation_flips(4 * count)),
        "equal": ("p < .05 though equal", TESTS, false_findings(NULL, count)),
        "different": ("p < .05, different", TESTS, false_findings(POWER, count)),
    }
    for name in sys.argv[2].split(",") if sys.argv[2:] else tables:
        printed(*tables[name])


if __name__ == "__main__":
    main()
