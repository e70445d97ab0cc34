"""The results of ``improve`` and ``finetune``, and their tables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import numpy as np
import polars as pl
from scipy.special import stdtrit

from consilience.core.text import counted
from consilience.metrics.measure import mean_over_runs
from consilience.metrics.registry import headline_metrics, label_of
from consilience.metrics.statistics import LEVEL, TIE, difference_bounds, logit_interval
from consilience.options import OutputOptions
from consilience.options.training import FinetuneOptions
from consilience.probing.counting import CountedRun
from consilience.report.cautions import Known, cautions
from consilience.report.columns import (
    FEWEST,
    POINTS,
    Columns,
    difference_columns,
    frame_table,
    legible,
    tests_of,
)
from consilience.report.comparison_tables import (
    clear_of,
    compared_on,
    differ,
)
from consilience.report.export import (
    Shown,
    in_sentences,
    without_nan,
)
from consilience.report.table import CI, Cell, Column, Table
from consilience.train.plan import Plan, Subject
from consilience.types import Suite, SuiteWords

IMPROVED = "improved"  # The folder of a seed's training and runs

PIPELINES = {"masked": "fill-mask", "causal": "text-generation"}
"""The pipeline of transformers that loads a trained model, by its kind."""

LOAD = ("Load it:", "  from transformers import pipeline")
"""The first lines of how a trained model is loaded."""


def result_table(compared: pl.DataFrame, suite: Suite, title: str) -> Table:
    """The headline metrics before and after training, over the held-out relations or questions.

    ``compared``: the comparison of the two models on some of a suite (``COMPARISON_SCHEMA``).
    """
    means = legible(compared).filter(over=suite.words.over, kind="whole").drop("detectable")
    by_metric = {row["metric"]: row for row in means.to_dicts()}
    known = [metric for metric in headline_metrics() if metric in by_metric]
    rows = [{"label": label_of(metric), **by_metric[metric]} for metric in known]
    columns: Columns = {"label": Column("metric"), **difference_columns(means, "before", "after")}
    notes = [*compared_on(compared, suite), f"p: {tests_of(means, suite.words)}"]
    return frame_table(rows, title, columns, notes)


VALIDATED = ("accuracy", "consistency", "consistent_accuracy")  # The metrics of validation

BEST_METRIC, TIE_METRIC = "consistent_accuracy", "corrected_consistency"
"""Choose the best checkpoint, lambda and seed, on the validation relations.

The second decides between equal values of the first: a model that gives one answer to everything,
and so is consistent, has none.
"""

Tried = TypeVar("Tried")


def last_best(
    tried: Sequence[Tried],
    validation: Callable[[Tried], Mapping[str, float]],
    by: str = BEST_METRIC,
) -> Tried:
    """What has the best validation ``by`` a metric; of equal ones the last."""

    def rank(one: Tried) -> list[float]:
        values = (validation(one).get(name, math.nan) for name in (by, TIE_METRIC))
        return [-math.inf if math.isnan(value) else value for value in values]

    return max(reversed(tried), key=rank)


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished consistency training.

    ``validation``: the metrics of the best checkpoint, in ``model``, on the validation relations.
    ``checkpoint``: the updates of that checkpoint (``step``), of so many ``updates``.
    ``perplexity``: that of held-out text; None without text.
    """

    model: Path
    validation: Mapping[str, float]
    checkpoint: Mapping[str, int]
    perplexity: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The training of a seed, and the metrics of its model, compared with the one before."""

    seed: int
    training: Trained
    metrics: pl.DataFrame
    compared: pl.DataFrame


def headline_of(table: pl.DataFrame, metric: str, over: str) -> Mapping[str, float]:
    """The row of a metric in a metrics or comparison table; NaN without data.

    ``over``: ``SuiteWords.over``.
    """
    rows = table.filter(metric=metric, over=over, kind="whole").to_dicts()
    return rows[0] if rows else defaultdict(lambda: math.nan)


def training_verdict(compared: pl.DataFrame, words: SuiteWords) -> list[str]:
    """What training changed on the held-out relations (``COMPARISON_SCHEMA``), in sentences."""
    unit = words.group if words.has_means else words.item
    rows: list[dict[str, Any]] = [
        dict(row) for name in headline_metrics() if (row := headline_of(compared, name, words.over))
    ]
    known = [row for row in rows if not math.isnan(row["p"])]
    sentences = [*differ(known, "After training")]
    if not sentences:
        return [f"No change can be tested: there are too few held-out {unit}s."]
    changes = {row["metric"]: row["difference"] for row in rows}
    rose = any(row["metric"] == "consistency" and row["difference"] > 0 for row in clear_of(known))
    if rose and not changes.get(TIE_METRIC, math.nan) > 0:
        sentences.append(
            f"Chance-corrected consistency did not rise, so the model may only give more "
            f"{words.item}s the same answer."
        )
    return sentences


def harm_rows(
    name: str, before: CountedRun, after: CountedRun, compared: pl.DataFrame
) -> Iterator[dict[str, Any]]:
    """What a training changed of accuracy, agreement and answers.

    ``name``: of what was asked. ``compared``: the comparison of both. Accuracy is over all
    variants; its 95 % interval, and that of changed answers, is over items, of facts over groups.
    """
    words = before.suite.words
    on, units = ["group", "item", "variant"], ["group"] if words.has_means else ["group", "item"]
    answer, other, gold = map(pl.col, ("answer", "answer_right", "gold"))
    table = before.answers.table.join(after.answers.table, on=on)
    if words.has_means:  # of facts, as metrics do: those with one right object
        single = [group.id for group in before.suite if group.cardinality == "N-1"]
        table = table.filter(pl.col("group").is_in(single))
    was_asked = pl.all_horizontal(pl.col("excluded", "excluded_right").is_null())
    means = (
        table.filter(was_asked)
        .group_by(units)
        .agg(before=(answer == gold).fill_null(value=False).mean(),
             after=(other == gold).fill_null(value=False).mean(),
             changed=answer.ne_missing(other).mean())
    )  # fmt: skip
    sides = {side: means[side].mean() for side in ("before", "after")}
    change = _over_units(means["after"] - means["before"], difference_bounds((0, 1)))
    yield {"what": f"Accuracy, {name}", **sides, **change}
    row = headline_of(compared, TIE_METRIC, words.over)
    sides = {"before": row["first_value"], "after": row["second_value"]}
    numbers = {of: row[of] for of in ("difference", "low", "high")}
    yield {"what": f"{label_of(TIE_METRIC)}, {name}", **sides, **numbers}
    yield {"what": f"Answers changed, {name}", **_over_units(means["changed"], (0, 1))}


def _over_units(values: pl.Series, bounds: tuple[float, float] | None) -> dict[str, float]:
    """The mean of values of independent items, relations or lines, and its 95 % interval.

    The interval stays within ``bounds`` (``logit_interval``); None for those of the t distribution.
    NaN where nothing varies, and with fewer than ``FEWEST`` values.
    """
    units = values.to_numpy()
    mean = float(units.mean()) if len(units) else math.nan
    low = high = math.nan
    if len(units) >= FEWEST and np.ptp(units) >= TIE:
        error = float(units.std(ddof=1)) / math.sqrt(len(units))
        far = error * float(stdtrit(len(units) - 1, (1 + LEVEL) / 2))
        low, high = mean - far, mean + far
        if bounds is not None:
            low, high = logit_interval(mean, error, len(units), bounds)
    return {"difference": mean, "low": low, "high": high}


MARGIN = 2.0
"""A harm is ruled out where the 95 % interval of a loss ends within this many points."""

TEXT = "Perplexity of text, relative"


def text_row(
    before: Sequence[tuple[float, int]], after: Sequence[tuple[float, int]]
) -> dict[str, Any]:
    """How much the perplexity of text rises: the relative change, and its 95 % interval over lines.

    ``before``, ``after``: the losses of the lines (``objectives.text_losses``).
    """
    words = np.array([count for _, count in before])
    first, second = (np.array([loss for loss, _ in of]) for of in (before, after))
    change = (second - first).sum() / words.sum()
    parts = (second - first - change * words)[words > 0] * (words > 0).sum() / words.sum()
    of_lines = _over_units(pl.Series(change + parts), None)
    low, high = math.expm1(of_lines["low"]), math.expm1(of_lines["high"])
    first_value, second_value = (math.exp(x.sum() / words.sum()) for x in (first, second))
    return {
        "what": TEXT, "before": first_value, "after": second_value,
        "difference": math.expm1(change), "low": low, "high": high, "is_cost": True,
    }  # fmt: skip


def harm_of(row: Mapping[str, Any]) -> str:
    """What a row says: a harm, none within the margin; neither without an interval."""
    worst, best = row["low"], row["high"]
    if row.get("is_cost"):
        worst, best = -best, -worst
    if "before" not in row:
        return ""
    if worst >= -MARGIN / 100:
        return f"none within {MARGIN:g}"
    return "harm" if best < 0 else "not ruled out"


def harm_verdict(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence on the harm of a training: which, or none within the margin."""
    named = defaultdict[str, list[str]](list)
    for row in rows:
        what = row["what"][:1].lower() + row["what"][1:]
        points = (100 * row[of] for of in ("difference", "low", "high"))
        text = "{} {:+.1f} ({:+.1f} to {:+.1f})".format(what, *points)
        named[harm_of(row)].append(text.replace(" (+nan to +nan)", "").replace(" +nan", ""))
    texts = [f"Harm: {'; '.join(of)}." for kind, of in named.items() if kind == "harm"]
    if unclear := named["not ruled out"]:
        found = f"A harm of more than {MARGIN:g} points is not ruled out"
        texts.append(f"{found}: {'; '.join(unclear)}.")
    return texts or [f"No harm shown within {MARGIN:g} points."]


def harm_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """What a training may have cost, in percent and points."""
    shown = [
        {"before": math.nan, "after": math.nan, **row, "harm": harm_of(row)}
        | {name: f"{row[name]:.2f}" for name in ("before", "after") if row["what"] == TEXT}
        for row in rows
    ]  # fmt: skip
    columns: Columns = {
        "what": Column("what"), "before": Column("before", "share"),
        "after": Column("after", "share"), "difference": POINTS,
        ("low", "high"): Column(CI, "points"), "harm": Column("harm"),
    }  # fmt: skip
    notes = [f"harm: none where the 95 % interval ends within {MARGIN:g} points of no change"]
    return frame_table(shown, "Harm: what the training may have cost", columns, notes)


@dataclass(frozen=True, slots=True)
class Improved(Shown):
    """The result of ``improve``: the model before, on the test relations, and that of each seed.

    ``suite``: the test relations or questions. ``folder``: that of checkpoints, runs and models.
    ``kind``: of the model. ``harms``: rows of ``harm_table`` of the best model.
    """

    subject: Subject
    plan: Plan
    suite: Suite
    folder: Path
    kind: str
    before: pl.DataFrame
    perplexity: float | None
    outcomes: tuple[Outcome, ...]
    harms: tuple[Mapping[str, Any], ...] = ()

    @property
    def best(self) -> Outcome:
        """The outcome of the seed with the best validation."""
        by = self.plan.chosen_by
        return last_best(self.outcomes, lambda outcome: outcome.training.validation, by)

    @property
    def verdict(self) -> list[str]:
        """What training changed on the held-out relations, and which harm, in sentences."""
        changed = training_verdict(self.best.compared, self.suite.words)
        return [*changed, *harm_verdict(self.harms)]

    @property
    def notes(self) -> Sequence[str]:
        """Cautions on a mean over few relations."""
        headline = self.best.compared.filter(pl.col("metric").is_in(headline_metrics()))
        return cautions(Known(suite=self.suite, compared=headline))

    @property
    def items(self) -> int:
        """The number of test relations, or of test questions."""
        return int(headline_of(self.before, "accuracy", self.suite.words.over)["n"])

    @property
    def title(self) -> str:
        """That of the result."""
        words = self.suite.words
        unit = words.group if words.has_means else words.item
        notes = [self.subject.protocol] if words.has_means else [f"loss {self.plan.loss}"]
        notes += [f"seed {self.best.seed}"] * (len(self.outcomes) > 1)
        items = counted(self.items, f"held-out {unit}")
        return f"{self.subject.model} on {self.suite.name}: {items} ({', '.join(notes)})"

    def printed(self, output: OutputOptions) -> Iterator[Table | str]:
        best = self.best
        yield from in_sentences(self.verdict, output)
        yield result_table(best.compared, self.suite, self.title)
        if len(self.outcomes) > 1:
            yield self.seed_table()
        yield harm_table(self.harms)
        model, checkpoint = best.training.model, best.training.checkpoint
        updates = f"{checkpoint['step']} of {counted(checkpoint['updates'], 'update')}"
        yield f"Model (seed {best.seed}, after {updates}): {model}"
        yield from LOAD
        yield f'  model = pipeline("{PIPELINES[self.kind]}", model="{model}")'
        after = self.folder / f"seed-{best.seed}" / IMPROVED / "after"
        runs = f"before={self.folder / 'before'} after={after}"
        yield f"More: consilience report {runs} --out {self.folder / 'report.html'}"

    def over_seeds(self) -> pl.DataFrame:
        """The mean of each headline difference over seeds (``mean_over_runs``)."""
        means = mean_over_runs([one.compared for one in self.outcomes], "difference")
        is_headline = pl.col("metric").is_in(headline_metrics())
        return means.filter(is_headline, over=self.suite.words.over, kind="whole")

    def seed_table(self) -> Table:
        """The means of the headline differences over seeds."""
        rows = [
            {"label": label_of(row["metric"]), **row, "mean": Cell(row["value"], row["std"])}
            for row in self.over_seeds().to_dicts()
        ]
        columns: Columns = {
            "label": Column("metric"), "mean": Column("mean±std", "points"),
            ("low", "high"): Column(CI, "points"),
        }  # fmt: skip
        notes = ["95 % CI: of the mean, over seeds (t interval)."]
        seeds = counted(len(self.outcomes), "seed")
        return frame_table(rows, f"Mean differences of {seeds}, in points", columns, notes)

    def document(self) -> dict[str, Any]:
        outcomes = [
            {
                "seed": one.seed, "lambda": self.plan.weight,
                "validation": dict(one.training.validation),
                "checkpoint": dict(one.training.checkpoint), "perplexity": one.training.perplexity,
                "after": one.metrics.to_dicts(), "differences": one.compared.to_dicts(),
                "model": str(one.training.model),
            }
            for one in self.outcomes
        ]  # fmt: skip
        return {
            "verdict": self.verdict,
            "before": self.before.to_dicts(), "perplexity": self.perplexity,
            "outcomes": outcomes, "differences": self.best.compared.to_dicts(),
            "over_seeds": self.over_seeds().to_dicts(), "notes": self.notes,
            "harm": without_nan([dict(row) for row in self.harms]),
            "model": str(self.best.training.model),
        }  # fmt: skip

    def remarks(self, output: OutputOptions) -> list[str]:
        without = self.perplexity is None
        note = "perplexity was not measured; give held-out text with --text."
        return [*self.notes, *[note] * without]


@dataclass(frozen=True, slots=True)
class Finetuned:
    """A finished fine-tuning; ``folder/TASK`` is the model with the head of a task.

    ``validation``: accuracy of each task with validation pairs. ``truncated``: of each, how many
    pairs were too long.
    """

    folder: Path
    validation: Mapping[str, float]
    epochs: int
    seconds: float
    truncated: Mapping[str, int]
    truncated_validation: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Finetuning(Shown):
    """The classifiers of one model, for its main task, by seed; ``notes``: those on the pairs."""

    task: str
    trainings: Mapping[int, Finetuned]
    notes: Sequence[str]
    options: FinetuneOptions

    def printed(self, output: OutputOptions) -> Iterator[Table | str]:
        task, options = self.task, self.options
        yield self.seed_table()
        best = max(self.trainings.values(), key=lambda training: training.validation[task])
        model = best.folder / task
        yield f"Models: {options.out}/seed-*/{task}; best validation: {model}"
        yield from LOAD
        yield f'  model = pipeline("text-classification", model="{model}")'
        data = options.validation
        if data.endswith(("#1", "#2")):  # the other half
            data = data[:-1] + ("2" if data.endswith("1") else "1")
        measure = f"consilience probe --model {model} --suite {options.task}"
        yield f"Measure its consistency: {measure} --data {data}"

    def seed_table(self) -> Table:
        """Accuracy of each seed on each task, and the mean."""
        trained = self.trainings
        tasks = list(next(iter(trained.values())).validation)
        rows: list[dict[str, Any]] = [
            {"seed": str(seed), **one.validation, "epochs": one.epochs, "minutes": one.seconds / 60}
            for seed, one in trained.items()
        ]
        if len(rows) > 1:
            values = {task: [row[task] for row in rows] for task in tasks}
            means = {task: Cell(fmean(of), std=stdev(of)) for task, of in values.items()}
            rows.append({"seed": "mean", **means, "epochs": "", "minutes": ""})
        columns: Columns = {
            "seed": Column("seed", "count"), **{task: Column(task, "share") for task in tasks},
            "epochs": Column("epochs", "count"), "minutes": Column("minutes", "number"),
        }  # fmt: skip
        title = f"{self.options.model}: validation accuracy of the best checkpoint, in percent"
        return frame_table(rows, title, columns)

    def document(self) -> dict[str, Any]:
        return {
            "model": self.options.model, "task": self.task,
            "seeds": [
                {"seed": seed, "validation": dict(training.validation), "epochs": training.epochs,
                 "seconds": training.seconds, "folder": str(training.folder)}
                for seed, training in self.trainings.items()
            ],
            "warnings": [*self.notes],
        }  # fmt: skip
