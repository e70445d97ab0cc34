"""The metrics table as tables for people, in percent."""

from __future__ import annotations

import copy
import math

import polars as pl
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from consilience.suites.sizes import SuiteStatistics
from consilience.types import Suite

COLUMNS: dict[str, str] = {
    "accuracy": "Accuracy",
    "consistency": "Consistency",
    "determinism": "Determinism",
    "consistent_accuracy": "Consistent-Acc",
    "consistent_wrong": "Consistent-wrong",
    "successful_patterns": "Succ-Patt",
    "successful_objects": "Succ-Objs",
    "known_consistency": "Know-Const",
    "unknown_consistency": "Unk-Const",
    "corrected_consistency": "Chance-corrected",
    "chance_consistency": "  by chance",
    "uniform_consistency": "  even guessing",
    "agree_right": "Agree, right",
    "agree_wrong": "Agree, wrong",
    "disagree": "Disagree",
    "top_answer": "Top answer",
}
"""Metrics and the names that the paper heads their columns with."""

HEADINGS: dict[str, str] = {
    "accuracy": "Accu-\nracy",
    "consistency": "Con-\nsis-\ntency",
    "consistent_accuracy": "Con-\nsist-\nAcc",
    "consistent_wrong": "Con-\nsist-\nwrong",
    "successful_patterns": "Succ-\nPatt",
    "successful_objects": "Succ-\nObjs",
    "known_consistency": "Know-\nConst",
    "unknown_consistency": "Unk-\nConst",
    "corrected_consistency": "Cor-\nrec-\nted",
}
"""The same, for a table that must fit a narrow screen."""

SUBSETS: dict[str, str] = {
    "diff_syntax": "Diff-Syntax",
    "diff_lexical": "Diff-Lexical",
    "diff_both": "Diff-Both",
    "no_change": "No-Change",
    "diff_determiner": "Diff-Determiner",
}
"""Subsets of pairs of patterns and the names that the paper has for them, or ours."""


def group_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """One row a relation, one column a metric."""
    table = new_table(f"{suite.name}: each relation, in percent")
    table.add_column("relation", overflow="fold")
    for name, heading in HEADINGS.items():
        widest = len("100.0*") if name == "consistency" else len("100.0")
        table.add_column(heading, justify="right", min_width=widest)
    values = _values(metrics)
    present = set(metrics["group"])
    for relation in suite.relations:
        if relation.id not in present:
            continue
        cells = [
            percent(values.get((name, "all", relation.id)))
            if name != "consistency" or relation.cardinality == "N-1"
            else percent(values.get(("determinism", "all", relation.id))) + "*"
            for name in HEADINGS
        ]
        table.add_row(relation.id, *cells)
    if any(relation.cardinality == "N-M" for relation in suite.relations):
        table.caption = "* determinism: a relation with several right answers, not in the means"
    return table


def summary_table(metrics: pl.DataFrame, title: str, note: str = "") -> Table:
    """One row a metric: mean and standard deviation over relations, and all counts together.

    The interval is that of the mean. Indented: consistency over the pairs of patterns that differ
    in that way. Flips: answers of a sample that changed when nothing about the question did.
    ``note``: a line below the table.
    """
    table = new_table(title)
    table.caption = note or None
    table.add_column("metric", no_wrap=True)
    for heading in ("mean ± std", "95 %", "rela-\ntions", "pooled", "counted", "left\nout"):
        table.add_column(heading, justify="right", no_wrap=True)
    macro = {
        (row["metric"], row["subset"]): row
        for row in metrics.filter(pl.col("group") == "MACRO").iter_rows(named=True)
    }
    micro = metrics.filter(pl.col("group") == "MICRO").iter_rows(named=True)
    micros = {(row["metric"], row["subset"]): row for row in micro}
    for (name, subset), row in macro.items():
        together = micros[name, subset]
        if name == "determinism" and subset != "all":
            continue
        table.add_row(
            COLUMNS.get(name, name) if subset == "all" else f"  {SUBSETS.get(subset, subset)}",
            mean_and_std(row["value"], row["std"]),
            interval(row["low"], row["high"]),
            f"{row['n']:,}",
            percent(together["value"]),
            f"{together['n']:,}",
            f"{together['n_excluded']:,}",
        )
    if any(math.isnan(row["low"]) and not math.isnan(row["value"]) for row in macro.values()):
        table.caption = f"{note}\n{NO_INTERVAL}" if note else NO_INTERVAL
    for (name, subset), row in micros.items():
        if name == "flips":
            shown = f"Flips, {subset.replace('_', ' ')}"
            counts = (f"{row['n']:,}", f"{row['n_excluded']:,}")
            table.add_row(shown, "", "", "", percent(row["value"]), *counts)
    return table


def statistics_table(statistics: SuiteStatistics, name: str) -> tuple[Table, Table]:
    """The paper's Table 1 of a suite, and the counts of each relation."""
    short = new_table(f"{name}, as in the paper's Table 1")
    short.show_header = False
    short.add_column()
    short.add_column(justify="right")
    for label, value in (
        ("relations", f"{statistics.relations}"),
        ("patterns", f"{statistics.patterns}"),
        ("fewest patterns", f"{statistics.min_patterns}"),
        ("most patterns", f"{statistics.max_patterns}"),
        ("mean patterns", f"{statistics.mean_patterns:.2f}"),
        ("mean syntactic variants", _mean(statistics.mean_syntactic_variants)),
        ("mean lexical variants", _mean(statistics.mean_lexical_variants)),
        ("facts", f"{statistics.facts:,}"),
        ("queries", f"{statistics.queries:,}"),
    ):
        short.add_row(label, value)
    long = new_table("each relation; majority in percent")
    long.add_column("relation")
    for heading in (
        "kind", "patterns", "syntax", "lexis", "facts", "subjects", "candidates", "majority",
    ):  # fmt: skip
        long.add_column(heading, justify="right")
    for row in statistics.by_relation:
        counts = (row.patterns, row.syntactic_variants, row.lexical_variants, row.facts)
        sizes = (_count(count) for count in (*counts, row.subjects, row.candidates))
        long.add_row(row.relation, row.cardinality, *sizes, percent(row.majority))
    return short, long


def mean_and_std(value: float, std: float) -> str:
    """Percent with one digit, as the papers print them: ``23.1±21.0``."""
    if math.isnan(value):
        return "no data"
    return percent(value) + (f"±{std * 100:.1f}" if not math.isnan(std) else "")


def _mean(mean: float) -> str:
    return "-" if math.isnan(mean) else f"{mean:.2f}"


def _count(count: float) -> str:
    return "-" if math.isnan(count) else f"{count:.0f}"


def interval(low: float, high: float) -> str:
    """Both ends in percent."""
    return "-" if math.isnan(low) or math.isnan(high) else f"{percent(low)} {percent(high)}"


def percent(value: float | None) -> str:
    """Percent with one digit."""
    return "-" if value is None or math.isnan(value) else f"{round(value * 100, 1) + 0:.1f}"


NO_INTERVAL = "-: no interval, because nothing varied or there are too few data"
"""Stands under a table where an interval is missing."""


class _Table(Table):
    """A table whose title and caption are as wide as the screen, not as the table."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title, the table, the caption."""
        plain = copy.copy(self)
        plain.title = plain.caption = None
        if self.title:
            yield Text(str(self.title), style="table.title")
        yield from super(_Table, plain).__rich_console__(console, options)
        if self.caption:
            yield Text(str(self.caption), style="table.caption")


def new_table(title: str) -> Table:
    """An empty table in our style."""
    return _Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _values(metrics: pl.DataFrame) -> dict[tuple[str, str, str], float]:
    rows = metrics.select("metric", "subset", "group", "value").iter_rows()
    return {(metric, subset, group): value for metric, subset, group, value in rows}
