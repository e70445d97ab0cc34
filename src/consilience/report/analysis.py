"""What the analyses find, as tables for people: shares in percent, coefficients times 100."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from rich.table import Table

from consilience.report.tables import new_table


def frame_table(table: pl.DataFrame, title: str, headings: Mapping[str, str]) -> Table:
    """Columns of a table under their ``headings``; fractions in percent, whole numbers as such.

    A heading that ends in ``p`` is a probability, one that ends in ``points`` has a sign.
    """
    shown = new_table(title)
    for name, heading in headings.items():
        text = table[name].dtype == pl.String
        shown.add_column(
            heading, justify="left" if text else "right", overflow="fold", no_wrap=not text
        )
    for row in table.select(list(headings)).iter_rows(named=True):
        shown.add_row(*(_cell(row[name], heading) for name, heading in headings.items()))
    return shown


def _cell(value: Any, heading: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else ""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if heading == "p":
        return f"{value:.3f}" if value >= 0.0005 else "<.001"
    if heading == "points":
        return f"{value * 100:+.1f}"
    return f"{round(value * 100, 1) + 0:.1f}"


def matrix_tables(pairs: pl.DataFrame, patterns: pl.DataFrame) -> Iterator[Table]:
    """For each relation its patterns, and how often each two of them agree, in percent.

    The numbers that head the columns are those of the patterns.
    """
    agreement = {
        (group, *sorted((first, second))): value
        for group, first, second, value in pairs.select(
            "group", "first", "second", "agreement"
        ).iter_rows()
    }
    for (group,), rows in patterns.group_by("group", maintain_order=True):
        places = rows["variant_index"].to_list()
        table = new_table(f"{group}: agreement of patterns, in percent")
        table.add_column("", justify="right")
        table.add_column("pattern", overflow="fold", min_width=24)
        table.add_column("right", justify="right")
        for place in places:
            table.add_column(str(place), justify="right", no_wrap=True)
        for row in rows.iter_rows(named=True):
            at = row["variant_index"]
            cells = [
                "" if at == other else _whole(agreement[str(group), *sorted((at, other))])
                for other in places
            ]
            mark = " (apart)" if row["apart"] else ""
            table.add_row(str(at), row["variant"] + mark, _whole(row["accuracy"]), *cells)
        yield table


def _whole(value: float) -> str:
    return "-" if math.isnan(value) else f"{value * 100:.0f}"


def example_table(examples: Sequence[Any], title: str) -> Table:
    """An example a row, with at most three of its replies: the paper's Table 6."""
    table = new_table(title)
    for heading in ("relation", "subject", "gold", "asked so", "the model says"):
        table.add_column(heading, overflow="fold")
    for each in examples:
        about = [each.group, each.subject, each.gold]
        for at, reply in enumerate(each.telling):
            cells = about if at == 0 else [""] * len(about)
            answer = ("right: " if reply.right else "") + reply.answer
            last = at == len(each.telling) - 1
            table.add_row(*cells, reply.variant, answer, end_section=last)
    return table
