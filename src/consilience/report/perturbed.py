"""Consistency under perturbation as tables for people, in percent (CALUM, Tables 2, 5 and 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl
from rich.table import Table
from rich.text import Text

from consilience.report.comparison import between, points, probability
from consilience.report.tables import (
    COLUMNS,
    NO_INTERVAL,
    interval,
    mean_and_std,
    new_table,
    percent,
)
from consilience.suites.tasks import CALUM

WIDTH = 100
"""Signs in a line that is legible."""

AT_ONCE = 3
"""Tasks beside each other, at most."""

ORDER = (*CALUM, "kornli", "klue-nli", "klue-sts")
"""Tasks in the order of the paper's tables; others come after."""

PAPERS: Mapping[tuple[str, str], str] = {
    ("accuracy", "all"): "Acc",
    ("consistency", "reverse"): "C_R",
    ("consistency", "signal"): "C_S",
}
"""Metric and subset -> the paper's heading."""


def calum_tables(
    rows: pl.DataFrame, title: str, metrics: Mapping[tuple[str, str], str] = PAPERS
) -> Iterator[Table]:
    """A row a model; for each task a column for each of ``metrics``, the best value in bold.

    ``rows``: a row a number (``model, task, metric, subset, value, std``). Mean ± standard
    deviation where there are several seeds. As many tables as are needed to stay legible.
    """
    cells = {
        (row["model"], row["task"], row["metric"], row["subset"]): row
        for row in rows.iter_rows(named=True)
    }
    models = rows["model"].unique(maintain_order=True).to_list()
    tasks = sorted(rows["task"].unique(maintain_order=True).to_list(), key=_place)
    columns = {
        (task, *metric): _column([cells.get((model, task, *metric)) for model in models])
        for task in tasks
        for metric in metrics
    }
    shown = (text.plain for texts in columns.values() for text in texts)
    widest = max(map(len, (*tasks, *metrics.values(), *shown))) + 1
    room = WIDTH - min(max(map(len, (*models, "model"))), WIDTH // 3) - 1
    fitting = max(1, min(AT_ONCE, room // (widest * len(metrics))))
    for start in range(0, len(tasks), fitting):
        some = tasks[start : start + fitting]
        table = new_table(title)
        table.add_column("model", overflow="fold")
        for task in some:
            for heading in metrics.values():
                table.add_column(f"{task}\n{heading}", justify="right", no_wrap=True)
        beside = [columns[task, *metric] for task in some for metric in metrics]
        for at, model in enumerate(models):
            table.add_row(model, *(texts[at] for texts in beside))
        yield table


def _place(task: str) -> int:
    return ORDER.index(task) if task in ORDER else len(ORDER)


def _column(rows: Sequence[Mapping[str, float] | None]) -> list[Text]:
    """The cells of a column; values that print as the highest one are in bold."""
    values = [math.nan if row is None else round(row["value"] * 100, 1) for row in rows]
    best = max((value for value in values if not math.isnan(value)), default=math.nan)
    return [
        Text(_cell(row), style="bold" if value == best else "")
        for value, row in zip(values, rows, strict=True)
    ]


def _cell(row: Mapping[str, float] | None) -> str:
    if row is None or math.isnan(row["value"]):
        return "-"
    return mean_and_std(row["value"], row["std"])


def effects_tables(effects: pl.DataFrame) -> Iterator[Table]:
    """For each comparison of tasks a table, a row a test: means, and their difference in points.

    ``effects``: the differences of tasks and their t-tests (``docs/calum-statistics.md``).
    """
    for (first, second), rows in effects.group_by(["first", "second"], maintain_order=True):
        table = new_table(f"{first} against {second}: difference of the means, in points")
        table.caption = (
            "paired: over models, the test to use; Student, Welch: as if no model stood twice\n"
            "Holm: p adjusted over the rows of all tables with the same test. "
            "* .05 ** .01 *** .001"
        )
        table.add_column(no_wrap=True)
        table.add_column("test", no_wrap=True)
        headings = ("first", "second", "points", "95 %", "t", "p", "Holm")
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        before = ""
        for row in rows.iter_rows(named=True):
            name = PAPERS.get((row["metric"], row["subset"]), f"C {row['subset']}")
            table.add_row(
                name if name != before else "",
                row["test"],
                percent(row["first_value"]),
                percent(row["second_value"]),
                points(row["difference"]),
                between(row["low"], row["high"]),
                "-" if math.isnan(row["t"]) else f"{row['t']:.1f}",
                probability(row["p"]),
                probability(row["p_holm"]),
            )
            before = name
        yield table


def perturbed_tables(metrics: pl.DataFrame, title: str) -> Iterator[Table]:
    """One model on one task, a row a form: intervals over items, then those over seeds.

    ``metrics``: ``PERTURBED_SCHEMA`` of one group.
    """
    values = {(row["metric"], row["subset"]): row for row in metrics.iter_rows(named=True)}
    forms = metrics["subset"].unique(maintain_order=True).to_list()
    more = {
        "corrected_consistency": "above\nchance",
        "consistent_accuracy": "right\nin both",
        "top_answer": "top\nlabel",
        "no_label": "no\nlabel",
    }
    more = {name: heading for name, heading in more.items() if name in set(metrics["metric"])}
    table = _form_table(title, *more.values())
    for form in forms:
        cells = _cells(values, form, percent_of, ("low", "high"))
        for name in more:
            row = None if form == "all" and name.startswith("cons") else values.get((name, form))
            cells.append(percent(row["value"]) if row else "-")
        table.add_row(*cells)
    yield table
    seeds = max(row["seeds"] for row in values.values())
    if seeds > 1:
        table = _form_table(f"over {seeds} seeds: mean ± std, and the interval of the mean")
        for form in forms:
            table.add_row(*_cells(values, form, spread_of, ("seed_low", "seed_high")))
        yield table


def change_table(changes: pl.DataFrame) -> Table:
    """What accuracy gains or loses in each form of one group, against the original form.

    ``changes``: ``FORM_CHANGE_SCHEMA``; the other pairs of forms are not shown.
    """
    rows = changes.filter(pl.col("first") == changes["first"][0]) if changes.height else changes
    table = new_table("accuracy in the original form and in another, the same items")
    table.add_column("form", no_wrap=True)
    for heading in ("original", "form", "points", "95 %", "p, Holm"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows.iter_rows(named=True):
        table.add_row(
            row["second"],
            percent(row["first_accuracy"]),
            percent(row["second_accuracy"]),
            points(row["change"]),
            between(row["change_low"], row["change_high"]),
            probability(row["p_holm"]),
        )
    tests = ", ".join(rows["test"].unique(maintain_order=True))
    lines = [f"p: {tests}, adjusted over forms, the interval is not; all pairs are in changes.csv"]
    lines += [NO_INTERVAL] if rows["change_low"].is_nan().any() else []
    table.caption = "\n".join(lines)
    return table


def percent_of(row: Mapping[str, float]) -> str:
    """The value."""
    return percent(row["value"])


def spread_of(row: Mapping[str, float]) -> str:
    """The value and its standard deviation over seeds."""
    return mean_and_std(row["value"], row["std"])


def _form_table(title: str, *more: str) -> Table:
    table = new_table(title)
    table.add_column("form", no_wrap=True)
    for heading in ("Accu-\nracy", "95 %", "Consis-\ntency", "95 %", *more):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cells(
    values: Mapping[tuple[str, str], Mapping[str, float]],
    form: str,
    shown: Callable[[Mapping[str, float]], str],
    ends: tuple[str, str],
) -> list[str]:
    """The form's name, its accuracy and its consistency with the original, with intervals."""
    cells = ["original" if form == "all" else form]
    for metric in ("accuracy", "consistency"):
        row = values.get((metric, form))
        if row is None or (form == "all" and metric == "consistency"):
            cells += ["-", "-"]
        else:
            cells += [shown(row), interval(row[ends[0]], row[ends[1]])]
    return cells


def example_table(found: pl.DataFrame, count: int) -> Table:
    """The surest answers that changed, one of each perturbation first (Tables 3, 4, 7 to 9)."""
    table = new_table("Answers that changed, the surest of both first; all are in inconsistent.csv")
    for heading in ("form", "text", "answer"):
        table.add_column(heading, overflow="fold")
    several = found["group"].n_unique() > 1
    firsts = found.unique("perturbation", keep="first", maintain_order=True)
    rest = found.join(firsts, on=found.columns, how="anti", nulls_equal=True, maintain_order="left")
    for row in pl.concat([firsts, rest]).head(count).iter_rows(named=True):
        before = f"{row['original_1']}\n{row['original_2']}"
        table.add_row("original", Text(before), Text(row["original_answer"]))
        after = f"{row['text_1']}\n{row['text_2']}"
        name = row["perturbation"] + (f"\n{row['group']}" if several else "")
        table.add_row(name, Text(after), Text(row["answer"]), end_section=True)
    return table


def difference_tables(compared: pl.DataFrame, shown: Sequence[str]) -> Iterator[Table]:
    """One table a task and pair of runs; ``compared``: ``DIFFERENCE_SCHEMA`` with both names.

    The p of a perturbed form is adjusted over the forms of a metric.
    """
    for (group, first, second), rows in compared.group_by(
        ["group", "first", "second"], maintain_order=True
    ):
        seeds = rows["seeds"][0]
        over = f", means of {seeds} seeds" if seeds > 1 else ""
        table = new_table(f"{group}: {second} minus {first}{over}")
        table.add_column("form", no_wrap=True)
        p = ["p, Holm", *(["p over\nseeds"] if over else [])]
        headings = ["first", "second", "points", "95 %", *p]
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        lines = ["p of a form is adjusted (Holm) over forms, the interval is not"]
        lines += [NO_INTERVAL] if rows["low"].is_nan().any() else []
        table.caption = "\n".join(lines)
        for metric in shown:
            found = rows.filter(pl.col("metric") == metric)
            if found.height:
                table.add_row(COLUMNS.get(metric, metric).strip())
            for row in found.iter_rows(named=True):
                form = row["subset"]
                if form == "all" and metric in ("accuracy", "f1"):
                    form = "original"
                cells = [percent(row["first_value"]), percent(row["second_value"])]
                cells += [points(row["difference"]), between(row["low"], row["high"])]
                names = [
                    "p" if row["subset"] == "all" else "p_holm",
                    *(["p_seeds"] if over else []),
                ]
                cells += [probability(row[name]) for name in names]
                table.add_row(f"  {form}", *cells)
        yield table
