"""The first section of every report: the headline numbers, two figures and short notes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from consilience.metrics.registry import headline_metrics, label_of
from consilience.report.chart_parts import MEASURED, REFERENCES
from consilience.report.charts import headline_figure, interval_figure
from consilience.report.headline_sentences import UNIT, sentence_of
from consilience.report.matrix import (
    matrix_caption,
    matrix_figure,
)
from consilience.report.opening_example import opening_example
from consilience.report.overview import by_run
from consilience.report.page import Beside, Figure, Part, Points, Section, Tile, Tiles
from consilience.report.papers import papers_headlines
from consilience.report.run_view import (
    RunView,
    fact_views,
    group_names,
    groups_with_forms,
    relation_values,
)
from consilience.report.server_sections import server_line
from consilience.report.summary import FEWEST_FACTS, VIOLATIONS, SummaryRow
from consilience.report.table import NAN, Cell, Column, Table, Value

LARGEST_MATRIX = 50
"""Variants of a group whose agreement is shown as a matrix; a larger one is illegible."""

MOST_PAIRS = 25_000
"""Pairs of variants on a page, about 2.5 MB; of more, one run or one group is shown."""

DETERMINISM = (
    "For a relation with several right answers this number is its determinism, which is left out "
    "of the mean of consistency."
)
"""Said once, below the figure of relations."""


def first_screen(runs: Sequence[RunView], relation: str | None) -> Section:
    """The answer to the question of the page.

    ``relation``: whose patterns are shown first; None for the least consistent.
    """
    cautions = by_run({run.name: run.summary.notes for run in runs})
    parts: list[Part] = [
        Tiles(list(_tiles(runs[0]))) if len(runs) == 1 else _headline_table(runs),
        *opening_example(runs[0]),
        *([Points(cautions)] if cautions else []),
    ]
    parts += _groups_and_servers(runs)
    parts += _headlines(runs)
    figures = [*_relations(runs), *_forms(runs), *_agreement(runs, relation)]
    parts += [Beside(figures)] if len(figures) > 1 else figures
    return Section("summary", "Summary", _scope(runs), parts)


def _scope(runs: Sequence[RunView]) -> str:
    """What the headline numbers are means over, and what their intervals say, if any has one."""
    if all(math.isnan(row.low) for run in runs for row in run.summary.rows):
        return ""
    words, interval = runs[0].suite.words, "Each number has its 95 % confidence interval (CI), over"
    if not words.pool:
        seeds = runs[0].seeds
        mean = f" Means of {seeds} seeds." if seeds > 1 else ""
        return f"{interval} {words.clusters}.{mean}"
    if words.is_pooled:
        return f"All {words.item}s together. {interval} {words.clusters}."
    relations = sum(group.cardinality == "N-1" for group in runs[0].suite.relations)
    if relations < 2:
        return "Each number has its 95 % confidence interval (CI), over the subjects of the facts."
    return (
        f"Means over {relations} relations, each with its 95 % confidence interval (CI). The "
        "relations count as a sample, so the interval is wide where they are few."
    )


def _tiles(run: RunView) -> Iterator[Tile]:
    """A tile a headline number."""
    for row in run.summary.rows:
        chance = _chance_of(run, row)
        yield Tile(
            label=row.label, value=100 * row.value, low=100 * row.low, high=100 * row.high,
            chance=100 * chance, baseline=100 * row.baseline,
            sentence=sentence_of(run, row, chance),
        )  # fmt: skip


def _chance_of(run: RunView, row: SummaryRow) -> float:
    """The value of a number that is expected by chance; NaN but for consistency, violations."""
    if row.metric == VIOLATIONS:
        return row.chance
    if row.metric != "consistency":
        return NAN
    if row.subset == "all":
        return row.chance
    rows = run.metrics.filter(metric="chance_consistency", subset=row.subset)
    if pool := run.suite.words.pool:
        rows = rows.filter(group=pool)
    return float(rows["value"][0]) if rows.height else NAN


def _headline_table(runs: Sequence[RunView]) -> Table:
    """A row a run, and the majority baseline where it is the same for all."""
    keys = list(
        dict.fromkeys(
            (row.label, row.metric, row.subset) for run in runs for row in run.summary.rows
        )
    )
    rows: list[list[Value]] = []
    for run in runs:
        values = {(row.label, row.metric, row.subset): row for row in run.summary.rows}
        cells = [
            Cell(row.value, row.std, row.low, row.high) if (row := values.get(key)) else Cell()
            for key in keys
        ]
        rows.append([_run_and_task(run, runs), *cells[:2], run.summary.chance, *cells[2:]])
    baselines = {
        tuple(round(row.baseline, 9) for row in run.summary.rows if not math.isnan(row.baseline))
        for run in runs
    }
    if len(baselines) == 1:
        shared = {(row.label, row.metric, row.subset): row for row in runs[0].summary.rows}
        cells = [Cell(shared[key].baseline) if key in shared else Cell() for key in keys]
        rows.append(["majority baseline", *cells[:2], None, *cells[2:]])
    labels = [label for label, _, _ in keys]
    labels = [*labels[:2], "Expected by chance", *labels[2:]]
    columns = [Column("model"), *(Column(label, "share") for label in labels)]
    title = "The headline numbers, in percent; below each its 95 % confidence interval"
    return Table(title, columns, rows)


def _run_and_task(run: RunView, runs: Sequence[RunView]) -> str:
    """The name of a run, with its task where tasks differ."""
    tasks = {other.pairs.task.name for other in runs if other.pairs}
    return f"{run.name}, {run.pairs.task.name}" if run.pairs and len(tasks) > 1 else run.name


def _headlines(runs: Sequence[RunView]) -> list[Figure]:
    """The headline numbers of several models and of the papers; none of one model alone."""
    papers = papers_headlines(runs[0].metrics)
    if len(runs) == 1 and not papers:
        return []
    shown = {row.label: (row.metric, row.subset) for run in runs for row in run.summary.rows}
    labels = {key: label for label, key in reversed(shown.items())}
    rows: list[tuple[Any, ...]] = [
        (model, labels[key], cell.number, NAN, NAN, "paper")
        for model, values in papers.items()
        for key, cell in values.items()
        if key in labels
    ]
    for run in runs:
        name = _run_and_task(run, runs)
        for row in run.summary.rows:
            rows.append((name, row.label, row.value, row.low, row.high, MEASURED))
    order = list(shown)
    rows.sort(key=lambda row: order.index(row[1]))
    columns: dict[str, type[pl.DataType]] = {
        "model": pl.String, "number": pl.String, "value": pl.Float64, "low": pl.Float64,
        "high": pl.Float64, "source": pl.String,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    title = f"Headline numbers on {runs[0].suite.name}"
    caption = "The headline numbers with their 95 % confidence intervals."
    if papers:
        caption += " Hollow marks are the paper's rows, which have no interval."
    return [Figure("headline", title, headline_figure(frame), caption, is_fluid=False)]


def _relations(runs: Sequence[RunView]) -> Iterator[Figure]:
    """Each relation's number with its interval, chance and the majority baseline."""
    if not fact_views(runs):
        return
    rows = relation_rows(runs)
    title = f"{rows['metric'][0]} of each relation ({REFERENCES})"
    caption = (
        f"Each relation with its 95 % confidence interval; {REFERENCES}. The menu chooses the "
        "number."
    )
    if any(group.cardinality == "N-M" for group in runs[0].suite.relations):
        caption += f" {DETERMINISM}"
    yield Figure("relations", title, interval_figure(rows, runs[0].suite.words.group), caption)


def relation_rows(runs: Sequence[RunView]) -> pl.DataFrame:
    """The headline metrics of each relation for ``interval_figure``, consistency first."""
    names = group_names(runs[0].suite)
    shown = sorted(headline_metrics(), key=lambda name: name != "consistency")
    metrics = relation_values(runs, (*shown, "chance_consistency"))
    shown = [name for name in shown if name in set(metrics["metric"])]
    rows = _with_references(runs, metrics.with_columns(subset=pl.lit("all")), shown)
    return rows.with_columns(name=pl.col("group").replace_strict(names, default=pl.col("group")))


def _forms(runs: Sequence[RunView]) -> Iterator[Figure]:
    """Consistency of every other form with the original one."""
    rows = form_rows(runs)
    if rows.is_empty():
        return
    title = f"Consistency of each form with the original form ({REFERENCES})"
    caption = (
        "Answers of each form that are the same as in the original form, with 95 % confidence "
        f"intervals; {REFERENCES}. The menu chooses the number. A model that always gives one "
        "answer has no chance-corrected consistency."
    )
    yield Figure("forms", title, interval_figure(rows, "form"), caption)


def form_rows(runs: Sequence[RunView]) -> pl.DataFrame:
    """Consistency of each form with the original one for ``interval_figure``."""
    shown = ["consistency", "corrected_consistency"]
    columns = ("metric", "group", "subset", "value", "low", "high", "n")
    parts = [
        run.metrics.filter(
            pl.col("metric").is_in([*shown, "chance_consistency"])
            & (pl.col("subset") != "all")
            & pl.col("group").is_in(groups_with_forms(run))
        ).select(pl.lit(run.name).alias("run"), *columns)
        for run in runs
    ]
    rows = _with_references(runs, pl.concat(parts), shown)
    several = rows["group"].n_unique() > 1
    name = pl.col("group") + ": " + pl.col("subset") if several else pl.col("subset")
    return rows.with_columns(name=name)


def _with_references(
    runs: Sequence[RunView], metrics: pl.DataFrame, shown: Sequence[str]
) -> pl.DataFrame:
    """The rows of some metrics by their labels, with ``chance`` and ``majority``."""
    on = ["run", "group", "subset"]
    is_chance = pl.col("metric") == "chance_consistency"
    chance = metrics.filter(is_chance).select(*on, chance="value", metric=pl.lit("consistency"))
    baselines = pl.DataFrame(
        [
            (run.name, group, subset, "consistency" if name == "determinism" else name, value)
            for run in runs
            for (group, name, subset), value in run.baseline.items()
        ],
        schema=dict.fromkeys((*on, "metric"), pl.String) | {"majority": pl.Float64},
        orient="row",
    ).unique(maintain_order=True)
    rows = metrics.filter(pl.col("metric").is_in(shown))
    for references in (chance, baselines):
        rows = rows.join(references, on=[*on, "metric"], how="left", maintain_order="left")
    order = {name: at for at, name in enumerate(shown)}
    rows = rows.sort(pl.col("metric").replace_strict(order), maintain_order=True)
    return rows.with_columns(
        metric=pl.col("metric").replace_strict({n: label_of(n) for n in shown})
    )


def _agreement(runs: Sequence[RunView], relation: str | None) -> Iterator[Figure]:
    """The agreement of each two patterns or forms of a group; nothing with fewer than two pairs."""
    named = [(run.name, view) for run in runs if (view := run.facts or run.pairs)]
    pairs, patterns = (
        pl.concat(
            [getattr(view, name).with_columns(run=pl.lit(run)) for run, view in named],
            how="diagonal_relaxed",
        )
        for name in ("pairs", "patterns")
    )  # fmt: skip
    if pairs.height < 2 * len(runs):
        return
    large = patterns.filter(pl.col("variant_index") >= LARGEST_MATRIX)["group"].unique()
    pairs, patterns = (
        frame.filter(~pl.col("group").is_in(large.implode())) for frame in (pairs, patterns)
    )
    if pairs.is_empty():
        return
    words = runs[0].suite.words
    if relation is None or relation in large:
        relation = _least_consistent(pairs)
    caption = matrix_caption(words)
    if len(runs) > 1 and pairs.height > MOST_PAIRS:
        pairs, patterns = (frame.filter(run=runs[0].name) for frame in (pairs, patterns))
        caption += f" Only {runs[0].name} is shown."
    if pairs.height > MOST_PAIRS:
        pairs, patterns = (frame.filter(group=relation) for frame in (pairs, patterns))
    names = group_names(runs[0].suite)
    first_run = f", {runs[0].name}" if len(runs) > 1 else ""
    yield Figure(
        "agreement",
        f"Agreement of {words.variant}s: {names.get(relation, relation)}{first_run}",
        matrix_figure(pairs, patterns, relation, names, words),
        caption,
        is_fluid=False,
    )


def _least_consistent(pairs: pl.DataFrame) -> str:
    """The group with the lowest agreement, among those with enough facts if there are any."""
    if "n" in pairs.columns and (pairs["n"] >= FEWEST_FACTS).any():
        pairs = pairs.filter(pl.col("n") >= FEWEST_FACTS)
    agreement = pl.col("agreement").fill_nan(None).mean()
    means = pairs.group_by("group", maintain_order=True).agg(agreement)
    return str(means.sort("agreement", nulls_last=True)["group"][0])


def _groups_and_servers(runs: Sequence[RunView]) -> list[Points]:
    """The servers, and the least and most consistent groups."""
    notes = by_run(
        {run.name: [*server_line(run), *run.summary.groups_in_words(UNIT)] for run in runs}
    )
    return [Points(notes)] if notes else []
