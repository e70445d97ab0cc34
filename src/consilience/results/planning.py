"""Plan a run from a pilot: how many questions and phrasings intervals of some width need."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import gammaincinv

from consilience.core.errors import ConsilienceError
from consilience.core.factors import MOST_CELLS, MOST_CROSSED, RANDOM_FACTORS
from consilience.core.text import counted
from consilience.elsewhere import open_run
from consilience.metrics import uncertainty
from consilience.metrics.measure import FEWEST, CheckedAnswers
from consilience.metrics.registry import ENOUGH, METRICS, Grid, label_of, within
from consilience.metrics.statistics import TIE
from consilience.metrics.uncertainty import Estimate, Index, Phrasings
from consilience.report.table import Column, Columns, Output, frame_table

PLANNED = ("mean_accuracy", "consistency")
LADDER = (4, 6, 10, 15, 25, 40, 60, 100)  # Numbers of phrasings that are compared
DRAWN = (2, 3, 5, 8)  # In how many variants each question is asked, where not in all
DRAWS = 5  # Of so many variants of each question of the pilot
MOST = 10**6  # Questions
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
MORE = 1.1  # How many times the fewest queries a plan with fewer phrasings may have

Grids = Mapping[str, Grid]  # The answers of each group


@dataclass(frozen=True, slots=True)
class Pilot:
    """What the answers of a pilot say of a number of a larger run.

    With n questions in m phrasings its variance is ``A / n + B / m + C / (n m)``. The jackknife
    over phrasings has the last two, of which questions contribute ``C / (n m)`` apart; that over
    questions has the first and the last, or what k answers to each question have.
    """

    number: Estimate
    drawn: Mapping[int, Estimate]  # That of so many variants of each question
    metric: str
    factor: int  # The place of the factor among those of the number that is planned

    @classmethod
    def of(cls, grids: Grids, metric: str, most: int) -> Pilot:
        """``most``: in how many variants each question was asked. Nothing that varies raises."""
        number, generator = number_of(grids, metric), np.random.default_rng(0)
        if not number.error > TIE or number.n_clusters < FEWEST:
            found = f"{within(label_of(metric))} does not vary between the questions"
            expected = f"a pilot of {FEWEST} questions or more, in several variants"
            raise ConsilienceError(found, expected=expected, todo="Ask more, or harder ones.")
        parts, drawn = number.phrasings and number.phrasings.parts, dict[int, Estimate]()
        are_drawn = not any(of.has_base for of in grids.values())
        for size in [*(size for size in DRAWN if size < most), *[most] * are_drawn]:
            few = [{name: thinned(of, size, generator) for name, of in grids.items()}
                   for _ in range(DRAWS)]  # fmt: skip
            some = [number_of(of, metric) for of in few]
            error = math.sqrt(np.mean([one.error**2 for one in some]))
            drawn[size] = replace(number, error=error)
            every = [one.phrasings.parts for one in some if one.phrasings]
            if parts and every:
                apart = np.mean([[part[1] for part in of] for of in every], axis=0).tolist()
                both = zip(apart, parts, strict=True)
                of_some = tuple((max(0.0, of - own) + one, one, m) for one, (of, own, m) in both)
                drawn[size] = replace(drawn[size], phrasings=Phrasings(of_some))
        levels = [part[2] for part in parts or ()]
        return cls(number, drawn, metric, levels.index(max(levels)) if levels else 0)

    def planned(self, questions: int, phrasings: int, drawn: int = 0) -> Estimate:
        """The number with the error that it is expected to have."""
        pilot, parts = self.drawn.get(drawn, self.number), list[tuple[float, float, int]]()
        scale = pilot.n_clusters / questions
        square = pilot.error**2 * scale
        for place, (of_levels, own, levels) in enumerate((pilot.phrasings or Phrasings()).parts):
            common, apart, size = max(0.0, of_levels - own), own * scale, levels
            if place == self.factor:
                common, size = common * levels / phrasings, phrasings
                if not drawn:
                    square -= min(apart, square) * (1 - levels / phrasings)
                    apart *= levels / phrasings
            parts.append((common + apart, apart, size))
        known = None if pilot.phrasings is None else Phrasings(tuple(parts))
        return replace(pilot, error=math.sqrt(square), n_clusters=questions, phrasings=known)

    def half_width(self, questions: int, phrasings: int, drawn: int = 0) -> float:
        """Half the expected width of the 95 % interval, over phrasings where it is known.

        The variance over m phrasings that a run finds varies as chi square of m - 1 does.
        """
        number, bounds = self.planned(questions, phrasings, drawn), METRICS[self.metric].bounds
        if number.phrasings is None:
            low, high = number.interval(bounds)
            return (high - low) / 2
        widths = list[float]()
        for share in QUANTILES:
            parts = [
                (of_levels * 2 * gammaincinv((size - 1) / 2, share) / (size - 1), apart, size)
                for of_levels, apart, size in number.phrasings.parts
            ]
            one = replace(number, phrasings=Phrasings(tuple(parts)))
            low, high = one.interval_over_phrasings(bounds)
            widths.append(high - low)
        return sum(widths) / len(widths) / 2

    def questions(self, target: float, phrasings: int, drawn: int = 0) -> int:
        """How many questions a half width of ``target`` needs; more than ``MOST`` if none do."""
        width = partial(self.half_width, phrasings=phrasings, drawn=drawn)
        sizes = range(FEWEST, MOST + 1)
        return FEWEST + bisect_left(sizes, -target, key=lambda size: -width(size))


def number_of(grids: Grids, metric: str) -> Estimate:
    """A number of all groups together, with what phrasings add."""
    of, tallies = METRICS[metric], {}
    for name, grid in grids.items():
        if (tally := of.count(grid)) is not None:
            tallies[name] = of.recounted(tally, grid)
    return uncertainty.pooled([(1, tallies)], Index())


def thinned(grid: Grid, size: int, generator: np.random.Generator) -> Grid:
    """The answers in ``size`` variants of each item, drawn at random."""
    lots = np.where(grid.asked, generator.random(grid.asked.shape), np.inf)
    kept = np.zeros_like(grid.asked)
    np.put_along_axis(kept, np.argsort(lots, axis=1)[:, :size], values=True, axis=1)
    kept &= grid.asked
    answers, golds = (np.where(kept, of, -1) for of in (grid.answers, grid.golds))
    return replace(grid, answers=answers, golds=golds, asked=kept, has_base=False)


def plans_of(
    pilots: Sequence[Pilot], target: float, others: int, *, is_drawn: bool
) -> list[dict[str, Any]]:
    """What reaches the target, by the number of phrasings and of queries; one row is suggested.

    ``others``: variants of each phrasing. ``is_drawn``: whether those of the pilot were drawn.
    """
    rows = list[dict[str, Any]]()
    for phrasings in LADDER if pilots[0].number.phrasings else (1,):
        cells = phrasings * others
        known = [size for size in pilots[0].drawn if size < cells <= MOST_CROSSED]
        for drawn in [*[0] * (not is_drawn and cells <= MOST_CELLS), *known]:
            size = max(pilot.questions(target, phrasings, drawn) for pilot in pilots)
            row = {"phrasings": phrasings, "design": f"random:{drawn}" if drawn else "full"}
            row |= {
                "questions": size,
                "variants": drawn or cells,
                "queries": size * (drawn or cells),
            }
            row |= {of.metric: of.half_width(size, phrasings, drawn) for of in pilots}
            rows += [row] * (size <= MOST)
    rows.sort(key=lambda row: (row["phrasings"], row["queries"]))
    fewest = min((row["queries"] for row in rows), default=0)
    best = next((row for row in rows if row["queries"] <= fewest * MORE), None)
    return [{**row, "suggested": row is best} for row in rows]


def plan_run(path: Path, target: float) -> Output:
    """The plans that reach the target; shown are the best for each number of phrasings."""
    suite = (run := open_run(path)).suite
    if not suite.words.is_pooled:
        found = f"a run of {suite.words.item}s"
        raise ConsilienceError(found, expected="a run of questions", where=str(path))
    answers = CheckedAnswers(run.answers, suite)
    grids = {of.id: answers.views(of, suite.protocol)["tuples"] for of in answers.relations}
    asked = int(min(of.asked.sum(axis=1).max() for of in grids.values()))
    pilots = [Pilot.of(grids, metric, asked) for metric in PLANNED]
    design, levels, parts = answers.relations[0].design, 1, pilots[0].number.phrasings
    if parts is not None:
        factor, levels = [*design.phrasings][pilots[0].factor], parts.parts[pilots[0].factor][2]
    others, most = -(-len(design.variants) // levels), LADDER[-1]
    plans = plans_of(pilots, target / 100, others, is_drawn=not design.has_base)
    if not plans:
        least = max(pilot.half_width(MOST, most, max(pilot.drawn, default=0)) for pilot in pilots)
        found = f"no number of questions in up to {most} phrasings reaches \u00b1 {target:g} points"
        raise ConsilienceError(found, todo=f"Name a larger --target than {100 * least:.1f}.")
    best, few = next(row for row in plans if row["suggested"]), f"fewer than {ENOUGH[0]} levels of"
    what = f"{counted(best['questions'], 'question')}, each in {best['variants']} variants"
    how = f"--limit {-(-best['questions'] // len(grids))} --design {best['design']}"
    over = f"Intervals are over questions only: the pilot has {few} {' or '.join(RANDOM_FACTORS)}."
    if parts is not None:
        how += f", and --vary {factor} with {best['phrasings']} levels"
        over = f"The intervals are over questions and {factor}s."
    firsts = {row["phrasings"]: row for row in reversed(plans)}
    rows = plans if parts is None else [*firsts.values()][::-1]
    shown = [{**row, "suggested": "suggested" * row["suggested"]} for row in rows]
    columns: Columns = {
        **({"phrasings": Column(f"{factor}s", "count")} if parts is not None else {}),
        "questions": Column("questions", "count"), "design": Column("--design"),
        "queries": Column("queries", "count"),
        **{name: Column(f"{within(label_of(name))} \u00b1", "share") for name in PLANNED},
        "suggested": Column(""),
    }  # fmt: skip
    title = f"{suite.name}: what 95 % intervals of \u00b1 {target:g} points need, from {run.label}"
    verdict = [f"Suggested: {what}, {best['queries']:,} queries: {how}.", over]
    return Output({"plans": pl.DataFrame(plans)}, [frame_table(shown, title, columns)], verdict)
