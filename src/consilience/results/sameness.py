"""Are two runs of the same model? What differs between them, beyond the noise of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from consilience.analysis.examples import LOST, WON, paired_answers
from consilience.analysis.examples import SAME as ALIKE
from consilience.core.errors import ConsilienceError
from consilience.core.text import counted
from consilience.metrics import uncertainty
from consilience.metrics.measure import CheckedAnswers
from consilience.metrics.registry import Clusters, Tally
from consilience.metrics.statistics import TIE, binomial_interval
from consilience.metrics.uncertainty import RANGE, Estimate, Index, Interval
from consilience.options.commands import is_judge
from consilience.probing import noise_floor_of
from consilience.report.table import Column, Kind, Table, Value, number_text
from consilience.runs.run import Run
from consilience.types import Suite

LEVEL, INTERVAL = 0.9, "90 % CI"  # Each bound is a one-sided 95 % bound
SAME, DIFFERENT, NOT_SHOWN = "same", "different", "not shown"
BEYOND, ACCURACY = "beyond the noise", "mean accuracy"  # Differences of shares
SAME_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("first", "second", "number"), pl.String),
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    "n": pl.Int64,
    "verdict": pl.String,
}
"""One row a number of two runs, with the bounds of its 90 % interval (``docs/compare.md``).

``verdict``: ``same`` if the interval is within the margin, ``different`` if it is outside, else
``not shown``; empty of numbers without a margin. ``n``: answers.
"""


def verdict_of(interval: Interval, least: float, most: float) -> str:
    """Whether the interval is within ``least`` and ``most``, outside, or neither."""
    if least - TIE <= interval.low and interval.high <= most + TIE:
        return SAME
    is_outside = interval.low > most + TIE or interval.high < least - TIE
    return DIFFERENT if is_outside else NOT_SHOWN


def interval_at(number: Estimate, bounds: tuple[float, float]) -> Interval:
    """A number with its interval."""
    return Interval(number.value, *number.interval(bounds, LEVEL), number.n, number.left_out)


def share(tally: Tally) -> Interval:
    """A share, 0 to 1 if it has no interval; its upper bound leaves room for unseen clusters.

    It is at least the value and the bound of 0 of n clusters: few pairs that differ show no more of
    questions in which all do than none would.
    """
    found = interval_at(number := uncertainty.of_group([(1, tally)], Index()), RANGE)
    unseen = binomial_interval(0, max(1, number.n_clusters), LEVEL)[1]
    low, high = (
        (0, 1) if math.isnan(found.low) else (found.low, max(found.high, found.value + unseen))
    )
    return replace(found, low=float(low), high=min(1.0, float(high)))


def beyond_noise(differ: Interval, floors: Sequence[Interval]) -> Interval:
    """The share that differs less the mean of the noise floors: 0 of two runs of one model.

    The distances of the bounds are the roots of the sums of squares of those of the parts (Zou and
    Donner 2008).
    """
    value = differ.value - math.fsum(floor.value for floor in floors) / len(floors)
    below = [(floor.high - floor.value) / len(floors) for floor in floors]
    above = [(floor.value - floor.low) / len(floors) for floor in floors]
    low = value - math.hypot(differ.value - differ.low, *below)
    high = value + math.hypot(differ.high - differ.value, *above)
    return replace(differ, value=value, low=low, high=high)


def noise_of(run: Run) -> tuple[Interval, str]:
    """How often a run changes its answers, and why that is 0 if it was not measured.

    A server or a function whose noise is not known raises, and so do samples.
    """
    model, found = run.settings.get("model", {}), ""
    floor = noise_floor_of(run.path)
    is_judged = is_judge(run.settings.get("writing", {}).get("match"))
    has_samples = any("sample" in of.design.levels for of in run.suite)
    if model.get("temperature") or has_samples or is_judged:
        found, todo = (
            f"samples, or a judge, in {run.label}",
            "Ask at temperature 0 without a judge.",
        )
    elif floor is not None and floor["n"].sum():
        low, high = pl.col("low").fill_nan(0.0), pl.col("high").fill_nan(1.0)
        return Interval(*floor.select("value", low, high, "n", "n_excluded").row(0)), ""
    elif "server" in model or str(model.get("kind")).startswith("function"):
        found = f"no noise floor of {run.label}, which may change its answers"
        todo = "Rerun its probe command with --noise-floor 256."
    if found:
        raise ConsilienceError(found, where=run.where, todo=todo)
    is_elsewhere = "answers_of" in run.record
    why = "its answers were made elsewhere" if is_elsewhere else "it runs here and does not sample"
    note = f"The noise floor of {run.label} was not measured and counts as 0: {why}."
    return Interval(0.0, 0.0, 0.0, 0, 0), note


def numbers_of(
    runs: Sequence[Run], answers: Sequence[CheckedAnswers], within: float, suite: Suite
) -> tuple[pl.DataFrame, list[str]]:
    """The numbers of two runs (``SAME_SCHEMA``), and the result in sentences.

    Texts that are no option are compared as texts, as in the noise floor; two missing answers not.
    """
    first, second = (run.label for run in runs)
    floors, notes = zip(*map(noise_of, runs), strict=True)
    pairs = paired_answers(*answers)
    pairs = pairs.filter(pl.any_horizontal(pl.col("first", "second").is_not_null()))
    if pairs.is_empty():
        raise ConsilienceError("no answers to compare", where=f"{first}, {second}")
    flip, clusters = pairs["flip"], Clusters.of(pairs["subject"])
    is_other = (flip != ALIKE) | pairs["first"].ne_missing(pairs["second"])
    differs, lost, won = (
        Tally.of_values(clusters, of.cast(pl.Float64).to_numpy())
        for of in (is_other, flip == LOST, flip == WON)
    )
    differ, right = share(differs), uncertainty.pooled([(-1, {"": lost}), (1, {"": won})], Index())
    beyond, accuracy = beyond_noise(differ, floors), interval_at(right, (-1.0, 1.0))
    verdict = verdict_of(beyond, -math.inf, within)
    rows = [
        ("answers that differ", differ, ""), (f"noise floor of {first}", floors[0], ""),
        (f"noise floor of {second}", floors[1], ""), (BEYOND, beyond, verdict),
        (LOST, share(lost), ""), (WON, share(won), ""),
        (ACCURACY, accuracy, verdict_of(accuracy, -within, within)),
    ]  # fmt: skip
    table = [(first, second, of, at.value, at.low, at.high, at.n, word) for of, at, word in rows]
    value, low, high = (number_text(of, "points") for of in (beyond.value, beyond.low, beyond.high))
    sentence = (
        f"{second} and {first}: {verdict.upper()} within {100 * within:g} points. "
        f"{number_text(differ.value, 'share')} % of {counted(differ.n, 'answer')} differ, {value} "
        f"points ({INTERVAL} {low} to {high}) beyond the noise of both."
    )
    room = within - beyond.value
    if verdict == NOT_SHOWN and differ.high < 1 and abs(room) > TIE:
        times = ((beyond.high if room > 0 else beyond.low) - beyond.value) / room
        items = math.ceil(len(clusters.names) * times ** (1 + (differ.value > 0)))
        more = f"About {counted(items, suite.words.item)} like these"
        sentence += f" {more}, with noise floors of as many times more, would show it."
    numbers = pl.DataFrame(table, SAME_SCHEMA, orient="row")
    return numbers, [sentence, *dict.fromkeys(filter(None, notes))]


def same_table(numbers: pl.DataFrame, suite: Suite, within: float) -> Table:
    """The numbers of each two runs (``SAME_SCHEMA``) as people read them."""
    rows, blocks = list[list[Value]](), list[str]()
    for row in numbers.to_dicts():
        kind: Kind = "points" if row["number"] in (BEYOND, ACCURACY) else "share"
        value, low, high = (number_text(row[of], kind) for of in ("value", "low", "high"))
        interval = "" if math.isnan(row["low"]) else f"{low} to {high}"
        rows.append([row["number"], value, interval, row["verdict"], row["n"]])
        blocks += [f"{row['first']} -> {row['second']}"] * (numbers["second"].n_unique() > 1)
    columns = [Column("number"), Column("value", "number"), Column(INTERVAL), Column("verdict"),
               Column("n", "count", is_extra=True)]  # fmt: skip
    title = f"{suite.name}: the same model within {100 * within:g} points? In percent"
    return Table(title, columns, rows, blocks=blocks)
