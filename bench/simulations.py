"""How often intervals contain the true value, tests find what is not there, and gates are wrong.

``python bench/simulations.py [TABLE,TABLE] [SIMULATIONS] [FOLDER]`` prints the tables of
docs/statistics.md as CSV, or writes them into the folder (``docs/results``), where columns that it
does not compute, such as ``bootstrap``, are kept: these were recorded with revision cfde4529.
Numbers, intervals, tests and rules are those of the program; cells are in percent. A row is seeded
by its name, so it is the same alone. Tests draw 999 permutations.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from scipy.special import expit, stdtr

from consilience.analysis.factor_effects import exact_parts
from consilience.analysis.judges import prediction_powered, rogan_gladen
from consilience.core import factors as core
from consilience.core.factors import RANDOM_FACTORS, WHOLE, Factor, FactorialDesign
from consilience.core.items import Bools, Floats, Ints
from consilience.gating import Rule
from consilience.metrics import differences, statistics, uncertainty
from consilience.metrics.registry import METRICS, Clusters, Grid, Places, Tally
from consilience.metrics.statistics import LEVEL, NAN, difference_bounds, paired_permutation
from consilience.metrics.uncertainty import Estimate, Index, Tallies, Terms
from consilience.results import sameness
from consilience.results.planning import PLANNED, Pilot, plans_of

statistics.PERMUTATIONS = 999

INDEX, COHEN = Index(), "corrected_consistency"
SHARE, KAPPA = METRICS["accuracy"].bounds, METRICS[COHEN].bounds

Random = np.random.Generator
Make = Callable[[Random], Terms]
"""A data set: the tallies of one run by group, or of two, of which the first has the weight -1."""
Draw = Callable[[Random, int], Any]  # Of so many relations or questions


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    name: str
    draw: Callable[[Random], Mapping[str, float]]  # A data set: what is averaged; NaN for none

    def cells(self, count: int) -> dict[str, object]:
        """The means over so many data sets, in percent; empty where hardly any has a value."""
        generator = random_for(self.name)
        drawn = [self.draw(generator) for _ in range(count)]
        cells: dict[str, object] = {"case": self.name}
        for name in drawn[0]:
            values = [of[name] for of in drawn if not np.isnan(of[name])]
            mean = round(100 * float(np.mean(values or [NAN])), 1) + 0.0
            cells[name] = mean if len(values) >= count / 20 else None
        return cells | {"simulations": count}


def random_for(name: str) -> Random:
    """A generator that the name of a row seeds."""
    return np.random.default_rng(zlib.crc32(name.encode()))


@cache
def clusters(items: int, per: int = 1, group: str = "", shared: int = 0) -> Clusters:
    """``per`` items a subject; the first ``shared`` subjects are those of other groups, too."""
    names = [f"{'' if at < shared else group} {at:05}" for at in range(items // per)]
    return Clusters.of(np.repeat(names, per).tolist())


def tally(hits: Any, total: Any, of: Clusters | None = None) -> Tally:
    """That of hits among a total, both (unit,); each unit is its own cluster unless ``of``."""
    scores = np.stack(np.broadcast_arrays(hits, total), axis=1).astype(np.float64)
    size = int(scores[:, 1].sum())
    return Tally(scores, of or clusters(len(scores)), size)


def grid_of(codes: Ints, golds: Any = 0, of: Clusters | None = None, **more: Any) -> Grid:
    """Answers (item, variant), which are all there and compared with each other."""
    there, golds = np.ones(codes.shape, dtype=np.bool_), np.broadcast_to(golds, codes.shape)
    return Grid(codes, golds, there, None, of or clusters(len(codes)), **more)


def rotated(codes: Ints, golds: Any = 0, of: Clusters | None = None, **more: Any) -> Grid:
    """The same of four options in four orders: variant k shows option o at o - k, modulo 4."""
    orders, shown = np.broadcast_to(np.arange(4), codes.shape), np.arange(4) - np.arange(4)[:, None]
    places = Places(np.full(len(codes), 4), orders, shown % 4)
    return grid_of(codes, golds, of, places=places, **more)


def counted(metric: str, grid: Grid) -> Tally:
    """What a metric counts, which is defined for these data."""
    return cast(Tally, METRICS[metric].count(grid))


def terms_of(*runs: Tally) -> Terms:
    """The number of one run and group, or the difference of two."""
    return [
        (weight, {"": run}) for weight, run in zip((-1.0, 1.0)[-len(runs) :], runs, strict=True)
    ]


def number_of(terms: Terms, over: str = "group") -> Estimate:
    """The number of a group, the mean over groups, or that of all together."""
    if over == "group":
        return uncertainty.of_group([(weight, tallies[""]) for weight, tallies in terms], INDEX)
    return uncertainty.mean(terms, INDEX) if over == "mean" else uncertainty.pooled(terms, INDEX)


def p_of(terms: Terms, metric: str, over: str = "group") -> float:
    """The p of a difference, as ``compare`` tests it."""
    (_, first), (_, second) = terms
    key, by_group = (metric, WHOLE), {name: (first[name], second[name]) for name in first}
    if over == "mean":
        row = next(differences._rows_over(key, by_group, {}, Index(), NAN, LEVEL))
        return float(str(row["p"]))
    return differences._tests({key: by_group}, {})[key, ""].p


def contains(number: Estimate, truth: float, bounds: tuple[float, float]) -> float:
    """1 if the 95 % interval contains the true value, else 0; NaN without an interval."""
    low, high = number.interval(bounds)
    return NAN if np.isnan(low) else float(low - 1e-9 <= truth <= high + 1e-9)


def coverage(
    name: str, make: Make, truth: float, bounds: tuple[float, float] = SHARE, over: str = "group"
) -> Row:
    """A row of how often the 95 % interval contains the true value."""

    def draw(generator: Random) -> Mapping[str, float]:
        terms = make(generator)
        width = difference_bounds(bounds) if len(terms) > 1 else bounds
        return {"true value": truth, "closed form": contains(number_of(terms, over), truth, width)}

    return Row(name, draw)


def relations(kind: str, mean: Any, between: float, generator: Random, size: int) -> Floats:
    """What subjects contribute (relation, subject): 20 subjects, 2 facts, 4 patterns.

    The logit of a right answer varies over relations (sd ``between``) and over subjects (sd 1).
    """
    if kind == "mostly 0":  # 30 subjects with one fact; the relation's own value is Beta(0.3, 2.7)
        return np.asarray(generator.random((size, 30)) < generator.beta(0.3, 2.7, (size, 1)))
    middle = np.broadcast_to(mean, size)[:, None, None, None]
    logits = generator.normal(middle, between, (size, 1, 1, 1))
    logits = logits + generator.normal(0, 1, (size, 20, 1, 1))
    right = generator.random((size, 20, 2, 4)) < expit(logits)
    if kind == "accuracy":
        return np.asarray(right[..., 0].sum(axis=2))
    if kind == "Consistent-Acc":
        return np.asarray(right.all(axis=3).sum(axis=2))
    wrong = generator.random(right.shape) < 0.5
    same = [right.sum(axis=3), (~right & wrong).sum(axis=3), (~right & ~wrong).sum(axis=3)]
    return np.asarray(sum(each * (each - 1) / 12 for each in same).sum(axis=2))


def more_known(kind: str, mean: float, generator: Random, size: int) -> list[Floats]:
    """Two models, of which the second knows more, by 0.8 logits."""
    shared = generator.normal(0, 1, size)
    own = [shared + generator.normal(mean + shift, 0.5, size) for shift in (0, 0.8)]
    return [relations(kind, each, 0.0, generator, size) for each in own]


MEANS: Mapping[str, Draw] = {
    "consistency, mean 48": partial(relations, "consistency", 0.0, 1.0),
    "consistency, mean 53": partial(relations, "consistency", 0.5, 1.0),
    "accuracy, mean 33": partial(relations, "accuracy", -1.0, 1.0),
    "accuracy, mean 50": partial(relations, "accuracy", 0.0, 1.0),
    "accuracy, mean 87": partial(relations, "accuracy", 2.5, 1.0),
    "Consistent-Acc, mean 7": partial(relations, "Consistent-Acc", -1.5, 1.5),
    "mostly 0, mean 10": partial(relations, "mostly 0", 0.0, 0.0),
    "difference of accuracy, +13": partial(more_known, "accuracy", -1.0),
    "difference of Consistent-Acc, +6": partial(more_known, "Consistent-Acc", -1.5),
}
"""What subjects contribute to numbers whose mean over relations is estimated."""

SPREADS = {
    "relations differ (sd 1), subjects too (sd 1)": (1.0, 1.0, 0.0, 0.5),
    "relations nearly alike (sd 0.2), subjects differ (sd 1.5)": (0.2, 1.5, 0.5, 0.586),
}
"""Of the logit: sd over relations and over subjects, mean; and the mean accuracy."""


def by_relation(hits: Any, total: float, shared: int = 0) -> Tallies:
    """A tally of each relation; ``hits``: (relation, subject)."""
    return {
        str(at): tally(each, total, clusters(len(each), 1, str(at), shared))
        for at, each in enumerate(hits)
    }


def runs_of(draw: Draw, facts: int, size: int, generator: Random) -> Terms:
    """One run of relations, or two."""
    drawn = draw(generator, size)
    runs = zip((-1.0, 1.0), drawn, strict=True) if isinstance(drawn, list) else [(1.0, drawn)]
    return [(weight, by_relation(run, facts)) for weight, run in runs]


def sharing(groups: int, subjects: int, share: float, kind: str, generator: Random) -> Terms:
    """Accuracy over relations that have some subjects in common, who know more or less in all."""
    between, within, mean, _ = SPREADS[kind]
    logits = mean + generator.normal(0, between, (groups, 1))
    own, common = generator.normal(0, within, (groups, subjects)), round(subjects * share)
    own[:, :common] = own[0, :common]
    right = generator.random((groups, subjects)) < expit(logits + own)
    return [(1.0, by_relation(right, 1, common))]


def means() -> Iterator[Row]:
    """Means over relations, whose subjects are other ones or the same."""
    for name, draw in MEANS.items():
        facts, many = 1 if name.startswith("mostly 0") else 2, draw(random_for(name), 20_000)
        truth = float(np.mean(many[1] - many[0] if isinstance(many, list) else many)) / facts
        for size in (3, 5, 8, 20, 31):
            make = partial(runs_of, draw, facts, size)
            yield coverage(f"{name}; relations={size}", make, truth, over="mean")
    subjects = ((12, 1.0, "all"), (40, 1.0, "all"), (40, 0.5, "half"))
    for kind, groups, (size, share, some) in product(SPREADS, (3, 8, 31), subjects):
        name = f"accuracy (c) {kind}; relations={groups}; subjects={size}; {some} shared"
        make = partial(sharing, groups, size, share, kind)
        yield coverage(name, make, SPREADS[kind][-1], over="mean")


def answers(
    generator: Random, labels: Ints, variants: int, shares: Sequence[float], kappa: Any
) -> Ints:
    """Answers (item, variant): the item's own label, or one by ``shares``: kappa above chance."""
    keep = generator.random((len(labels), variants)) < np.sqrt(kappa)
    other = generator.choice(len(shares), (len(labels), variants), p=shares)
    return np.where(keep, labels[:, None], other)


def biased(
    items: int, first: Sequence[float] | float, second: Sequence[float] | float, variants: int = 2,
    kappas: tuple[float, float] = (0.6, 0.6), metric: str = COHEN, per: int = 1,
) -> Make:  # fmt: skip
    """Models that give the labels as often as these shares say, of two labels the first.

    ``per`` > 1: ``items`` subjects with so many facts, whose labels are alike (Dirichlet, sum 4).
    """

    def run(generator: Random, given: Sequence[float] | float, kappa: float) -> Tally:
        shares = [given, 1 - given] if isinstance(given, float) else given
        own = [shares] if per == 1 else generator.dirichlet(np.array(shares) * 4, items)
        size = items if per == 1 else per
        labels = np.concatenate([generator.choice(len(shares), size, p=each) for each in own])
        codes = answers(generator, labels, variants, shares, kappa)
        return counted(metric, grid_of(codes, of=clusters(items * per, per)))

    return lambda g: terms_of(run(g, first, kappas[0]), run(g, second, kappas[1]))


def known(items: int, shares: tuple[float, float]) -> Make:
    """Consistency of known items, of which one model has more: 4 variants, any of them right."""

    def run(generator: Random, share: float) -> Tally:
        hits = generator.random((items, 4)) < 0.7
        while not hits.any(axis=1).all():
            hits |= (generator.random((items, 4)) < 0.7) & ~hits.any(axis=1, keepdims=True)
        agree, is_known = hits.sum(axis=1), generator.random(items) < share
        return tally(agree * (agree - 1) // 2 * is_known, 6 * is_known)

    return lambda g: terms_of(run(g, shares[0]), run(g, shares[1]))


def subjects_of(sizes: Any, a: float, b: float, generator: Random) -> Terms:
    """Accuracy: subjects with so many facts, known with a probability of their own, Beta(a, b).

    ``sizes``: of each subject; a number of subjects with 4 facts in the mean, geometric.
    """
    size = generator.geometric(0.25, sizes) if isinstance(sizes, int) else np.asarray(sizes)
    return terms_of(tally(generator.binomial(size, generator.beta(a, b, len(size))), size))


def stable(items: int, a: float, b: float, runs: int, generator: Random) -> Terms:
    """Consistency of questions in a run or two, each with a stability of its own, Beta(a, b)."""
    tallies = []
    for _ in range(runs):
        kappa = generator.beta(a, b, (items, 1))
        codes = answers(generator, generator.integers(0, 4, items), 4, EVEN, kappa)
        tallies.append(counted("consistency", grid_of(codes)))
    return terms_of(*tallies)


STABLE = {"middle": (0.8, 0.8), "high": (4, 0.3), "low": (0.3, 4)}


def probable(items: int, generator: Random) -> Grid:
    """Probabilities of four options in four variants."""
    logits = generator.normal(0, 1.5, (items, 1, 4)) + generator.normal(0, 0.5, (items, 4, 4))
    shares = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return rotated(shares.argmax(axis=2), distributions=shares)


def of_metric(metric: str, draw: Callable[[Random], Grid], generator: Random) -> Terms:
    """A metric of the answers of one run."""
    return terms_of(counted(metric, draw(generator)))


def numbers() -> Iterator[Row]:
    """Numbers of one relation or task."""
    for subjects, facts in ((60, 5), (15, 5), (300, 3), (6, 10)):
        make = partial(subjects_of, [facts] * subjects, 0.6, 0.9)
        yield coverage(f"{subjects} subjects, {facts} facts each", make, 0.4)
    for items in (20, 40, 100):
        at = np.arange(items)
        few, half = np.where(at % 10 == 0, 10, 1), np.where(at == 0, items - 1, 1)
        for mean, a in ((40, 0.6), (90, 1.8), (10, 0.2)):
            make = partial(subjects_of, few, a, a * (100 - mean) / mean)
            name = f"(a) unequal subjects (1 in 10 has 10 facts), accuracy {mean}%; n={items}"
            yield coverage(name, make, mean / 100)
        name = f"(a) one subject has half of all facts, accuracy 40%; n={items}"
        yield coverage(name, partial(subjects_of, half, 0.6, 0.9), 0.4)
        make = partial(subjects_of, items, 0.6, 0.9)
        yield coverage(f"(a) sizes geometric (mean 4 facts), accuracy 40%; n={items}", make, 0.4)
    for share, items in product((0.02, 0.1, 0.5, 0.98), (20, 40, 100)):
        name = f"(b) accuracy {share:.0%}, single items; n={items}"
        yield coverage(name, partial(subjects_of, [1] * items, share, 1 - share), share)
    for (kind, (a, b)), items in product(STABLE.items(), (8, 40)):
        truth, make = a / (a + b) * 0.75 + 0.25, partial(stable, items, a, b, 1)
        yield coverage(f"(d) consistency, {kind}; n={items}", make, truth)
    for metric, items in product(("total_variation", "chance_total_variation"), (10, 40)):
        truth = counted(metric, probable(8_000, random_for(f"truth {metric}"))).value
        make = partial(of_metric, metric, partial(probable, items))
        yield coverage(f"{metric}; n={items}", make, truth)


LAYOUTS = {"12 groups of 3": (3,) * 12, "4 groups of 10": (10,) * 4, "one group of 12": (12,),
           "groups of 40 and 10": (40, 10), "one group of 40": (40,)}  # fmt: skip
EVEN, UNEVEN = (0.25,) * 4, (0.6, 0.2, 0.15, 0.05)
POPULATIONS = {
    "answers at random": ((0.0, 0.0), EVEN),
    "answers at random, one option preferred": ((0.0, 0.0), UNEVEN),
    "equal margins": ((0.3, 0.7), EVEN),
    "unequal margins": ((0.3, 0.7), UNEVEN),
}
"""The consistency above chance of the first and the last group, and how often positions are chosen
where an answer is not the question's own; those of the next group are moved by one position."""


def questions_of(metric: str, population: str, sizes: Sequence[int], generator: Random) -> Terms:
    """Questions with four options in four orders; 60 % of golds are a question's own option."""
    (first, last), shares = POPULATIONS[population]
    tallies, kappas = {}, np.linspace(first, last, len(sizes))
    for at, (size, each) in enumerate(zip(sizes, kappas, strict=True)):
        kappa = (first + last) / 2 if len(sizes) == 1 else each
        own = generator.integers(0, 4, size)
        drawn = generator.choice(4, (size, 4), p=np.roll(shares, at))
        keep = generator.random((size, 4)) < kappa**0.5
        codes = np.where(keep, own[:, None], (drawn + np.arange(4)) % 4)
        golds = np.where(generator.random(size) < 0.6, own, generator.integers(0, 4, size))
        of = clusters(size, 1, str(at))
        tallies[str(at)] = counted(metric, rotated(codes, golds[:, None], of))
    return [(1.0, tallies)]


def questions() -> Iterator[Row]:
    """The headline numbers of all questions together."""
    names = ("accuracy", "consistency", COHEN)
    for population, (layout, sizes), metric in product(POPULATIONS, LAYOUTS.items(), names):
        name, make = f"{metric}: {population}, {layout}", partial(questions_of, metric, population)
        many = make([1_000 * size for size in sizes], random_for(f"truth {name}"))
        truth = number_of(many, "all").value
        yield coverage(name, partial(make, sizes), truth, METRICS[metric].bounds, "all")


def right_again(
    items: int, first: float, second: float, changed: float, generator: Random
) -> Terms:
    """Accuracy of two runs; the second answers a share ``changed`` of the items anew."""
    draw = generator.random(items)
    other = np.where(generator.random(items) < changed, generator.random(items), draw)
    return terms_of(tally(draw < first, 1), tally(other < second, 1))


def changes() -> Iterator[Row]:
    """Differences of two runs in one relation or task."""
    rates = ((0.02, 0.02), (0.1, 0.1), (0.5, 0.5), (0.9, 0.95), (0.3, 0.5))
    for (first, second), items in product(rates, (10, 20, 40, 100, 300)):
        name = f"(b) difference of accuracy {first:.0%} / {second:.0%}, single items; n={items}"
        yield coverage(name, partial(right_again, items, first, second, 0.4), second - first)
    for changed, items in product((0.02, 0.1), (10, 40, 100, 300)):
        name = f"difference of accuracy 70% / 70%, {changed:.0%} answered anew; n={items}"
        yield coverage(name, partial(right_again, items, 0.7, 0.7, changed), 0.0)
    for (kind, (a, b)), items in product(STABLE.items(), (8, 20, 100)):
        make = partial(stable, items, a, b, 2)
        yield coverage(f"(d) difference of consistency, {kind}; n={items}", make, 0.0)
    for name, metric, models in alike():
        if metric == "known_consistency":
            yield coverage(f"difference of {name}", models, 0.0)


def two_margins(
    groups: int, items: int, top: float, kappa: float, generator: Random
) -> Mapping[str, float]:
    """Two models of the same true value: one prefers an answer, with the share ``top``."""
    over, names = ("mean" if groups > 1 else "group"), [str(at) for at in range(groups)]
    terms = []
    for weight, shares in ((-1.0, EVEN), (1.0, (top, *[(1 - top) / 3] * 3))):
        tallies = {}
        for name in names:
            labels = generator.choice(4, items, p=shares)
            grid = grid_of(
                answers(generator, labels, 4, shares, kappa), of=clusters(items, 1, name)
            )
            tallies[name if groups > 1 else ""] = counted(COHEN, grid)
        terms.append((weight, tallies))
    number, p = number_of([(1.0, terms[1][1])], over), p_of(terms, COHEN, over)
    found = {"bias": number.value - kappa, "coverage": contains(number, kappa, KAPPA)}
    return {"true value": kappa, **found, "p < .05": p < 0.05}


def corrected() -> Iterator[Row]:
    """Bias and coverage of the model that prefers an answer, and how often both differ."""
    layouts = [(*of, 0.6) for of in product((13, 30), (8,), (0.7, 0.85))]
    layouts += [(60, 6, top, 0.6) for top in (0.7, 0.85)]
    layouts += [(1, *of) for of in product((8, 20, 40, 100), (0.25, 0.7), (0.6, 0.9))]
    for groups, items, top, kappa in layouts:
        size = f"{groups} relations of {items} facts" if groups > 1 else f"{items} facts"
        name = f"{size}, true value {100 * kappa:.0f}, top answer 25 / {100 * top:.0f} %"
        yield Row(name, partial(two_margins, groups, items, top, kappa))


FREQUENT = [1 / n / sum(1 / m for m in range(1, 11)) for n in range(1, 11)]
ONE, OTHER = ([0.85 if at == top else 0.15 / 9 for at in range(10)] for top in (0, 5))
"""Ten candidates: the n-th is given in proportion to 1/n, or one in 85 % of the cases."""


def alike() -> Iterator[tuple[str, str, Make]]:
    """Models with the same true value and other answers."""
    for items, share in product((60, 277, 400), (0.5, 0.2, 0.1, 0.05)):
        models = biased(items, share, 1 - share)
        yield f"kappa, {items} items, {share:g} / {1 - share:g}", COHEN, models
    for items in (60, 277):
        yield f"kappa, {items} items, 0.5 / 0.9", COHEN, biased(items, 0.5, 0.9)
    for size, share in product((6, 10, 20), (0.5, 0.1)):
        models = biased(size, share, 1 - share, per=10)
        name = f"kappa, {size} subjects, 10 facts each, {share:g} / {1 - share:g}"
        yield name, COHEN, models
    for size in (6, 10, 20):
        name = f"kappa, {size} subjects, 4 patterns, 10 candidates, other favourite"
        yield name, COHEN, biased(size, ONE, OTHER, 4, per=10)
    kinds = {"the same": (FREQUENT, FREQUENT), "other order": (FREQUENT, FREQUENT[::-1]),
             "other favourite": (ONE, OTHER)}  # fmt: skip
    for items, (name, shares) in product((60, 400), kinds.items()):
        models = biased(items, *shares, 9)
        yield f"kappa, {items} items, 9 patterns, 10 candidates, {name}", COHEN, models
    models = biased(277, 0.2, 0.8, metric="chance_consistency")
    yield "chance, 277 items, 0.2 / 0.8", "chance_consistency", models
    for items, low in ((60, 10), (218, 20)):
        models = known(items, (low / 100, 1 - low / 100))
        name = f"Know-Const, {items} items, {low} / {100 - low} % known"
        yield name, "known_consistency", models


def other() -> Iterator[tuple[str, str, Make]]:
    """Models that differ."""
    models = biased(277, 0.5, 0.5, kappas=(0.6, 0.4))
    yield "kappa .6 / .4, 277 items, 0.5 / 0.5", COHEN, models
    models = biased(60, FREQUENT, FREQUENT, 9, (0.6, 0.45))
    yield "kappa .6 / .45, 60 items, 9 patterns", COHEN, models
    for size, low in ((6, 0.2), (10, 0.4)):
        models = biased(size, 0.3, 0.3, kappas=(0.8, low), per=10)
        yield f"kappa .8 / .{10 * low:g}, {size} subjects, 10 facts each", COHEN, models


def tested(metric: str, make: Make, generator: Random) -> Mapping[str, float]:
    """Whether p is below .05: of the t test with the closed-form error, and of sign flips."""
    terms = make(generator)
    number = number_of(terms)
    if np.isnan(number.value):
        return {"closed form": NAN, "sign flips": NAN}
    ratio = abs(number.value) / number.error if number.error else 0.0
    t = 2 * float(stdtr(number.n_clusters - 1, -ratio))
    return {"closed form": t < 0.05, "sign flips": p_of(terms, metric) < 0.05}


def found(models: Iterable[tuple[str, str, Make]]) -> Iterator[Row]:
    """A row of each pair of models."""
    for name, metric, make in models:
        yield Row(name, partial(tested, metric, make))


def by_chance(generator: Random) -> Terms:
    """Accuracy of models that know other subjects, equally many: 40 with 5 facts each."""
    shares = generator.beta(0.6, 0.9, (2, 40, 1))
    right = (generator.random((2, 40, 5)) < shares).reshape(2, -1)
    return terms_of(*(tally(of, 1, clusters(200, 5)) for of in right))


SHAPES: Mapping[str, Draw] = {
    "normal": lambda g, size: g.normal(size=size),
    "skewed (exponential)": lambda g, size: g.exponential(size=size) - 1,
    "one in ten far away": lambda g, n: (g.random(n) < 0.1) * 10.0 - 1 + g.normal(0, 0.1, n),
}
"""Differences of relations, whose true mean is 0."""


def flipped(draw: Draw, size: int, generator: Random) -> Mapping[str, float]:
    """Whether p of the mean over relations is below .05."""
    return {"sign flips": paired_permutation(draw(generator, size).tolist()) < 0.05}


def equal() -> Iterator[Row]:
    """Tests of models whose true value is the same."""
    yield from found(alike())
    name = "accuracy, 40 subjects, 5 facts each"
    yield from found([(f"{name}: McNemar", "accuracy", by_chance), (name, "f1", by_chance)])
    for (shape, draw), size in product(SHAPES.items(), (6, 8, 12, 20, 31)):
        yield Row(f"mean over {size} relations, {shape}", partial(flipped, draw, size))


def found_again(size: int, generator: Random) -> Mapping[str, float]:
    """Whether a mean over relations differs as much as an earlier study could detect."""
    earlier, now = generator.normal(size=(2, size))
    none, some = (by_relation(of, 1) for of in (np.zeros((size, 1)), earlier[:, None]))
    of, number = statistics.detectable_difference, number_of([(-1, none), (1, some)], "mean")
    gaps = {"known error": of(size**-0.5, size), "closed form": of(number.error, number.n_clusters)}
    return {name: paired_permutation((now + gap).tolist()) < 0.05 for name, gap in gaps.items()}


def detectable() -> Iterator[Row]:
    """How often a true difference is found that is the ``detectable`` of an earlier study."""
    for size in (6, 8, 10, 20, 30):
        yield Row(f"mean over {size} relations", partial(found_again, size))


DESIGNS = {
    "40 questions": (1, 40, 0), "100 questions": (1, 100, 0), "400 questions": (1, 400, 0),
    "3 relations of 40": (3, 40, 0), "8 relations of 12": (8, 12, 0),
    "8 relations of the same 12 subjects": (8, 12, 12), "13 relations of 40": (13, 40, 0),
}  # fmt: skip
"""Groups, items of each, and how many subjects the groups have in common."""
FALLS = {"10 % answered anew": (0.0, 0.1), "30 % answered anew": (0.0, 0.3),
         "falls by 5": (0.05, 0.3), "falls by 10": (0.1, 0.3)}  # fmt: skip
"""How much the true value falls, and the share of items that the second run answers anew."""


def falling(design: str, metric: str, fall: float, changed: float, generator: Random) -> Terms:
    """Two runs of 60 % above chance; relations differ (sd .1) in this and in their fall (.05)."""
    groups, items, shared = DESIGNS[design]
    wide = 3**0.5 * (groups > 1)
    before = 0.6 + generator.uniform(-wide, wide, groups) * 0.1
    lower = fall - generator.uniform(-wide, wide, groups) * 0.05 * (fall > 0)
    later = {"accuracy": (before**0.5 - lower / 0.75) ** 2, COHEN: before - lower}
    kappas, size = (before, later.get(metric, before - lower * 4 / 3)), (2, groups, items)
    keep, drawn = generator.random((*size, 4)), generator.integers(0, 4, (*size, 5))
    which = generator.random((groups, items, 1)) < changed
    if shared:
        keep[:], which[:] = keep[:, :1], which[:1]
    keep[1], drawn[1, ..., 1:] = (np.where(which, b, a) for a, b in (keep, drawn[..., 1:]))
    names, terms, golds = [str(at) if groups > 1 else "" for at in range(groups)], [], drawn[0]
    for weight, kappa, is_kept, each in zip((-1.0, 1.0), kappas, keep, drawn, strict=True):
        is_own = is_kept < np.clip(kappa, 0, 1)[:, None, None] ** 0.5
        codes = np.where(is_own, golds[..., :1], each[..., 1:])
        of = [grid_of(run, gold[:, :1], clusters(items, 1, name, shared))
              for name, run, gold in zip(names, codes, golds, strict=True)]  # fmt: skip
        terms.append((weight, dict(zip(names, (counted(metric, one) for one in of), strict=True))))
    return terms


def judged(design: str, metric: str, generator: Random) -> Mapping[str, float]:
    """Verdicts of ``METRIC no worse than baseline by 5 points``, and with ``--prove``."""
    rule = Rule.of(f"{metric} no worse than baseline by 5 points")
    bounds, verdicts = difference_bounds(METRICS[metric].bounds), {}
    for name, (fall, changed) in FALLS.items():
        terms = falling(design, metric, fall, changed, generator)
        number = number_of(terms, "mean" if DESIGNS[design][0] > 1 else "group")
        ends = number.value, *number.interval(bounds, 0.9)
        verdicts[f"{name}: fails"] = not rule.holds(*ends, prove=False)
        verdicts[f"{name}: --prove passes"] = rule.holds(*ends, prove=True)
    return verdicts


def gates() -> Iterator[Row]:
    """Runs whose true difference from their baseline is known."""
    for design, metric in product(DESIGNS, ("accuracy", "consistency", COHEN)):
        yield Row(f"{metric}, {design}", partial(judged, design, metric))


def one_model(floor: float, gap: float, items: int, generator: Random) -> Mapping[str, float]:
    """Verdicts of ``--same 2`` on two runs in four variants, with noise floors of 256 prompts.

    ``floor``: how often a model changes its answers, all in a fifth of the items. ``gap``: the true
    difference beyond it, in half of the variants of the items that have it.
    """
    shape, noisy = (items, 4), generator.random((items, 1)) < 0.2
    moved = generator.random((items, 1)) < 2 * gap / (1 - floor)
    moved = np.where(moved & (generator.random(shape) < 0.5), 1.0, 0.0)

    def answered(usual: Any) -> Floats:
        is_other = noisy & (generator.random(shape) < 1 - (1 - 5 * floor) ** 0.5)
        return np.where(is_other, 2 + generator.random(shape), usual)

    first, second = answered(0.0), answered(moved)
    floors = []
    for usual, run in ((0.0, first), (moved, second)):
        asked = np.zeros(4 * items, dtype=np.bool_)
        asked[generator.choice(4 * items, min(256, 4 * items), replace=False)] = True
        asked = asked.reshape(shape)
        counts = [((run != answered(usual)) & asked).sum(axis=1), asked.sum(axis=1)]
        hits, total = (of[asked.any(axis=1)] for of in counts)
        floors.append(uncertainty.intervals({"": tally(hits, total)})[""])
    differ = sameness.share(tally((first != second).sum(axis=1), 4))
    verdict = sameness.verdict_of(sameness.beyond_noise(differ, floors), -np.inf, 0.02)
    return {"same": verdict == sameness.SAME, "different": verdict == sameness.DIFFERENT}


def same() -> Iterator[Row]:
    """Models whose answers differ by a known share, beyond the noise floor of each."""
    for floor, gap, items in product((0, 0.02, 0.1), (0, 0.01, 0.02, 0.05), (40, 200, 1000)):
        name = f"noise floor {100 * floor:g} %; differs by {100 * gap:g} points; questions={items}"
        yield Row(name, partial(one_model, floor, gap, items))


DESIGN = FactorialDesign.full([
    Factor("paraphrase", ("1", "2", "3")), Factor("labels", ("A", "1")),
    Factor("order", ("ABCD", "BCDA", "CDAB", "DABC")),
])  # fmt: skip
LEVELS = np.array(DESIGN.cells)
PARTS: Mapping[str, tuple[Any, ...]] = {
    "answer: main effect, order": ("answer", "main", ("order",)),
    "answer: total effect, labels": ("answer", "total", ("labels",)),
    "answer: interactions": ("answer", "interactions", ()),
    "correctness: main effect, order": ("correctness", "main", ("order",)),
}


def chosen(population: str, generator: Random, size: int) -> Ints:
    """The option of the highest utility: a bias, what the question says, effects of the levels."""
    spread, bias = VARIED[population]
    total = np.array(bias) + generator.normal(0, spread, (size, 1, 4))
    for at, (factor, effect) in enumerate(zip(DESIGN.factors, (0.3, 0.4, 0.7), strict=True)):
        total = total + generator.normal(0, effect, (size, len(factor.levels), 4))[:, LEVELS[:, at]]
    return np.asarray((total + generator.normal(0, 0.3, (size, len(LEVELS), 4))).argmax(axis=-1))


VARIED = {"equal margins": (1, (0, 0, 0, 0)), "unequal margins": (1, (1.5, 0, 0, -1)),
          "rare changes": (6, (0, 0, 0, 0))}  # fmt: skip
"""The standard deviation of what a question says, and the bias to each option."""


def part_of(population: str, size: int, part: str, generator: Random) -> Terms:
    """A share of the variance; 60 % of golds are what the model tends to say."""
    codes, is_usual = chosen(population, generator, size), generator.random(size) < 0.6
    golds = np.where(is_usual, codes[:, 0], generator.integers(0, 4, size))[:, None]
    parts: Any = exact_parts(codes, codes == golds, DESIGN, clusters(size))
    return terms_of(parts[PARTS[part], True])


def factors() -> Iterator[Row]:
    """The shares of variance of ``analyze factors``."""
    for population, part in product(VARIED, PARTS):
        truth = number_of(part_of(population, 10_000, part, random_for(population))).value
        for size in (12, 30, 100):
            make = partial(part_of, population, size, part)
            yield coverage(f"{part}: {population}; questions={size}", make, truth)


def expected(sizes: Sequence[int], a: float, b: float, variants: int, generator: Random) -> Grid:
    """Pairs of questions, in components with one in common, each with a rate of Beta(a, b)."""
    every, names = [], [str(at) for at in range(variants)]
    for component, size in enumerate(sizes):
        rate, no = generator.beta(a, b), generator.random(variants) >= 0.7
        differs = np.vstack([no, no ^ (generator.random((size, variants)) < rate)])
        texts = np.where(differs, "no", "yes").tolist()
        items = [f"{component} {at}" for at in range(size + 1)]
        asked = [core.Reference(item, ("yes", "no")) for item in items]
        replies = {(of.item, name): text for of, row in zip(asked, texts, strict=True)
                   for name, text in zip(names, row, strict=True)}  # fmt: skip
        for last in asked[1:]:
            pair_of = core.Expectation("same", (asked[0],), last, {})
            every.append(tuple(core.instances(pair_of, replies, names, {})))
    return grid_of(np.zeros((1, 1), dtype=np.int64), instances=tuple(every))


MODELS: Mapping[str, tuple[tuple[int, ...], float, float, int]] = {
    **{f"{pairs} pairs": ((1,) * pairs, 1, 2, 1) for pairs in (48, 24, 8)},
    **{f"{pairs} pairs, 8 variants": ((1,) * pairs, 1, 2, 8) for pairs in (24, 8)},
    "12 components of 4 pairs": ((4,) * 12, 1, 2, 1),
    "12 components of 1 to 12 pairs": (tuple(range(1, 13)), 1, 2, 1),
    "6 components of 1, 1, 2, 4, 8 and 16 pairs": ((1, 1, 2, 4, 8, 16), 1, 2, 1),
    "3 components of 10 pairs": ((10,) * 3, 1, 2, 1),
    "48 pairs, 3 % violated": ((1,) * 48, 0.3, 9.7, 1),
    "24 pairs, 8 variants, 3 % violated": ((1,) * 24, 0.3, 9.7, 8),
}


def violations() -> Iterator[Row]:
    """Rates of violated expectations, and their level of chance."""
    kinds = {"violation rate": "violation_rate", "chance": "chance_violation_rate"}
    for (name, (sizes, a, b, n)), (kind, metric) in product(MODELS.items(), kinds.items()):
        many = expected(sizes * (2_000 // len(sizes)), a, b, n, random_for(f"truth {name}"))
        make = partial(of_metric, metric, partial(expected, sizes, a, b, n))
        yield coverage(f"{kind}: {name}", make, counted(metric, many).value)


PHRASED: Mapping[str, tuple[float, float, float]] = {
    "no effect": (0.8, 0.0, 0.0), "middle": (0.8, 0.25, 0.25), "strong": (0.8, 0.7, 0.5),
    "one in ten is bad": (1.2, 0.6, 0.2), "rare": (-1.6, 0.4, 0.4),
    "strong, each question its own": (0.8, 0.7, 0.5),
}  # fmt: skip
"""The mean utility of the right option among four, and the deviations by which a phrasing moves it
and the options."""
ALIKE = [(24, (4,)), (200, (4,)), (60, (5,)), (60, (10,)), (60, (30,)), (60, (100,))]
"""Numbers of questions, and of phrasings by each factor."""


def drawn_in(items: int, variants: int, count: int, generator: Random) -> Bools:
    """``count`` variants of each item, those that were drawn least, as ``--design random:K``."""
    asked, times = np.zeros((items, variants), dtype=np.bool_), np.zeros(variants)
    for row in asked:
        row[np.lexsort((generator.random(variants), times))[:count]] = True
        times += row
    return asked


def phrased(
    metric: str, kind: str, levels: Sequence[int], groups: int, size: int, generator: Random,
    runs: int, drawn: int = 0,
) -> Sequence[Mapping[str, Grid]]:  # fmt: skip
    """Questions in phrasings that are a sample, of a run or of two equally good ones.

    ``levels``: of each factor. ``groups`` > 1: relations with patterns of their own. ``drawn``: in
    how many variants each question is asked; 0 for all.
    """
    (mean, of_right, of_each), normal = PHRASED[kind], generator.normal
    many, orders = size if "its own" in kind else 1, 1 + (metric == "position_preference")
    cells = np.repeat([*np.ndindex(*levels)], orders, axis=0)
    order, golds = np.resize(np.arange(orders), len(cells)), np.arange(size)[:, None] % 4
    positions = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    more: dict[str, Any] = {
        "phrasings": {name: of.tolist() for name, of in zip(RANDOM_FACTORS, cells.T, strict=False)},
        "places": Places(np.full(size, 4), np.tile(order, (size, 1)), positions),
        "orders": np.arange(len(cells)).reshape(-1, 2) if orders > 1 else None,
    }

    def effects(options: int, draw: Callable[..., Floats] = normal) -> Floats:
        """Those of all factors together (question or 1, variant, option)."""
        drawn = zip(levels, cells.T, strict=True)
        parts = [draw(size=(many, of, options))[:, at] for of, at in drawn]
        return np.asarray(np.sum(parts, axis=0))

    def far(size: tuple[int, ...]) -> Floats:
        return np.where(generator.random(size) < 0.1, -3.0, 0.3)

    answered = [dict[str, Grid]() for _ in range(runs)]
    for group in map(str, range(groups)):
        shared = normal(size=(size, 1, 4)), effects(4)
        right = mean + of_right * effects(1, far if "bad" in kind else normal)
        right, first = right + normal(0, 0.5) * (groups > 1), 0.4 + of_right * effects(1)
        for run in answered:
            own = zip(shared, (normal(size=(size, 1, 4)), effects(4)), strict=True)
            item, each = (0.7 * of + 0.714 * other if runs > 1 else of for of, other in own)
            total = item + of_each * each + normal(0, 0.7, (size, len(cells), 4))
            total = total + (np.arange(4) == golds[..., None]) * right
            if orders > 1:
                total = total + (positions[order] == 0) * first
            run[group] = grid_of(total.argmax(axis=2), golds, clusters(size, 1, group), **more)
        asked = np.ones((size, len(cells)), dtype=np.bool_)
        if drawn:
            asked = drawn_in(size, len(cells), drawn, generator)
        for run in answered if drawn else ():
            codes, own_golds = (np.where(asked, of, -1) for of in (run[group].answers, golds))
            run[group] = replace(
                run[group], answers=codes, golds=own_golds, asked=asked, is_ragged=True,
                has_base=False, places=None,
            )  # fmt: skip
    return answered


def recounted(metric: str, runs: Sequence[Mapping[str, Grid]]) -> Terms:
    """The number of one run, or the difference of two, with what it is without each phrasing."""
    terms = []
    for weight, run in zip((-1.0, 1.0)[-len(runs) :], runs, strict=True):
        tallies, is_own = dict[str, Tally](), len(run) > 1
        for name, grid in run.items():
            of = replace(counted(metric, grid), has_own_phrasings=is_own)
            tallies[name * is_own] = of if is_own else METRICS[metric].recounted(of, grid)
        terms.append((weight, tallies))
    return terms


def with_phrasings(
    metric: str, draw: Draw, groups: int, truth: float, generator: Random
) -> Mapping[str, float]:
    """Whether both intervals contain the true value, and whether equal models differ."""
    one, two = (recounted(metric, draw(generator, runs)) for runs in (1, 2))
    over, bounds = "mean" if groups > 1 else "group", METRICS[metric].bounds
    number, difference = number_of(one, over), number_of(two, over)
    low, high = number.interval_over_phrasings(bounds)
    is_inside = NAN if np.isnan(low) else float(low <= truth <= high)
    p = np.fmax(p_of(two, metric, over), difference.p_over_phrasings())
    return {
        "true value": truth, "these phrasings": contains(number, truth, bounds),
        "phrasings like these": is_inside, "equal models: p < .05": p < 0.05,
    }  # fmt: skip


@cache
def true_value(metric: str, kind: str, levels: Sequence[int], groups: int) -> float:
    """The mean over many data sets."""
    generator, values = random_for(f"{metric} {kind} {levels}"), []
    for _ in range(4800 // math.prod(levels) // groups):
        (run,) = phrased(metric, kind, levels, groups, 200, generator, 1)
        tallies = {name: counted(metric, grid) for name, grid in run.items()}
        values.append(uncertainty.mean_value(tallies, (), NAN))
    return float(np.mean(values))


def phrasings() -> Iterator[Row]:
    """Numbers whose phrasings are a sample, also of two factors, and of each relation."""
    two, some = ("mean_accuracy", "consistency"), ("middle", "strong")
    cases = [
        *product(two, PHRASED, ALIKE, [1]),
        *product([COHEN], some, ALIKE[:4], [1]),
        *product(("label_kappa", "position_preference"), some, ALIKE[:1], [1]),
        *product(two, some, [(60, (4, 5))], [1]),
        *product(two, some, [(20, (5,))], [12]),
    ]
    for metric, kind, (size, levels), groups in cases:
        name = f"{metric}: {kind}; questions={size}; phrasings={'x'.join(map(str, levels))}"
        draw = partial(phrased, metric, kind, levels, groups, size)
        of_any_number = metric in (*two, COHEN) and len(levels) == groups == 1
        truth = true_value(metric, kind, (40,) if of_any_number else levels, groups)
        row = partial(with_phrasings, metric, draw, groups, truth)
        yield Row(name + f"; relations={groups}" * (groups > 1), row)
    for metric, kind in product(two, PHRASED):
        draw = partial(phrased, metric, kind, (30,), 1, 60, drawn=3)
        row = partial(with_phrasings, metric, draw, 1, true_value(metric, kind, (40,), 1))
        yield Row(f"{metric}: {kind}; questions=60; random:3 of 30 phrasings", row)


def after_pilot(
    metric: str, kind: str, size: int, phrasings: int, target: float, truth: float,
    generator: Random,
) -> Mapping[str, float]:  # fmt: skip
    """How wide the interval of a run is that ``plan`` makes of a pilot, and if it is right."""
    (grids,) = phrased(metric, kind, (phrasings,), 1, size, generator, 1)
    pilot = Pilot.of(grids, metric, phrasings)
    of = [row for row in plans_of([pilot], target, 1, is_drawn=False) if row["suggested"]]
    names = ("half width / target", "within the target", "contains the true value")
    if not of:
        return dict.fromkeys(names, NAN)
    drawn = int(of[0]["design"].partition(":")[2] or 0)
    levels, questions = (of[0]["phrasings"],), of[0]["questions"]
    run = phrased(metric, kind, levels, 1, questions, generator, 1, drawn)
    low, high = number_of(recounted(metric, run)).interval_over_phrasings(SHARE)
    half = (high - low) / 2
    return dict(zip(names, (half / target, half <= target, low <= truth <= high), strict=True))


def plans() -> Iterator[Row]:
    """Runs as ``plan`` makes them of pilots."""
    for metric, kind in product(PLANNED, ("no effect", "middle", "strong", "rare")):
        others = ((24, 5, 0.05), (60, 30, 0.03)) if kind == "middle" else ()
        truth = true_value(metric, kind, (40,), 1)
        for size, count, target in ((60, 10, 0.05), *others):
            name = f"{metric}: {kind}; pilot={size} x {count}; target={100 * target:g}"
            yield Row(name, partial(after_pilot, metric, kind, size, count, target, truth))


def double_sample(
    share: float,
    accuracy: float,
    orders: int,
    labels: int,
    generator: Random,
    *,
    is_balanced: bool = False,
) -> Mapping[str, float]:
    """Whether the intervals of corrected rates contain the true one, and their widths.

    People give the label to ``share`` of 1,000 items, and their label of some of these is known.
    The judge says the same with the probability ``accuracy`` in each of so many orders.
    ``is_balanced``: half of the known labels are chosen among those with the label.
    """
    people = generator.random(1_000) < share
    is_right = generator.random((1_000, orders)) < accuracy
    judged, cells = (people[:, None] == is_right).mean(axis=1), {"true value": share}
    halves = [np.flatnonzero(one)[: labels // 2] for one in (people, ~people)]
    known = np.concatenate(halves) if is_balanced else np.arange(labels)
    for name, of in (("corrected", prediction_powered), ("Rogan-Gladen", rogan_gladen)):
        _, low, high = of(judged, judged[known], people[known].astype(np.float64))
        cells |= {name: NAN if np.isnan(low) else float(low <= share <= high)}
        cells |= {f"{name} width": high - low, f"{name} defined": float(low == low)}
    return cells


def judges() -> Iterator[Row]:
    """The rates of ``analyze judge``."""
    for share, accuracy, orders in product((0.5, 0.2, 0.05), (0.6, 0.8, 0.95), (1, 2)):
        for labels in (20, 50, 200):
            name = f"share={share}; accuracy={accuracy}; orders={orders}; labels={labels}"
            yield Row(name, partial(double_sample, share, accuracy, orders, labels))
    for share in (0.5, 0.2, 0.05):
        name = f"share={share}; accuracy=0.8; orders=1; labels=40, half of each"
        yield Row(name, partial(double_sample, share, 0.8, 1, 40, is_balanced=True))


TABLES: Mapping[str, tuple[str, Callable[[], Iterator[Row]]]] = {
    "means": ("statistics/coverage-means.csv", means),
    "numbers": ("statistics/coverage-numbers.csv", numbers),
    "questions": ("statistics/coverage-questions.csv", questions),
    "differences": ("statistics/coverage-differences.csv", changes),
    "corrected": ("statistics/corrected-consistency.csv", corrected),
    "equal": ("statistics/false-findings.csv", equal),
    "different": ("statistics/power.csv", lambda: found(other())),
    "detectable": ("statistics/detectable.csv", detectable),
    "gates": ("statistics/gates.csv", gates),
    "same": ("statistics/same.csv", same),
    "factors": ("factors/coverage.csv", factors),
    "violations": ("expectations/coverage.csv", violations),
    "phrasings": ("statistics/coverage-phrasings.csv", phrasings),
    "plans": ("statistics/plans.csv", plans),
    "judges": ("statistics/coverage-judges.csv", judges),
}
"""Where each table is kept, and its rows."""


def main(names: str = "", count: str = "200", folder: str = "") -> None:
    """All tables, or those that are named."""
    for name in names.split(",") if names else TABLES:
        path, rows = TABLES[name]
        cells = [row.cells(int(count)) for row in rows()]
        table, place = pl.DataFrame(cells, infer_schema_length=None), Path(folder, path)
        if folder and place.is_file():
            others = set(pl.read_csv(place).columns) - {*table.columns}
            kept = pl.read_csv(place).select("case", *sorted(others))
            table = table.join(kept, on="case", how="left")
        print(table.write_csv(place if folder else None) or place, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
