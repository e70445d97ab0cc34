"""What the analyses find, as tables for people: shares in percent, coefficients times 100."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from rich.table import Table

from consilience.report.tables import NO_INTERVAL, new_table


def frame_table(table: pl.DataFrame, title: str, headings: Mapping[str, str]) -> Table:
    """Columns of a table under their ``headings``; fractions in percent, whole numbers as such.

    The heading ``p`` is of a probability; ``points`` have a sign, and so have their bounds.
    """
    shown = new_table(title)
    for name, heading in headings.items():
        text = table[name].dtype == pl.String
        shown.add_column(
            heading, justify="left" if text else "right", overflow="fold", no_wrap=not text
        )
    signed = ("low", "high") if "points" in headings.values() else ()
    for row in table.select(list(headings)).iter_rows(named=True):
        shown.add_row(
            *(
                _cell(row[name], "points" if heading in signed else heading)
                for name, heading in headings.items()
            )
        )
    if "low" in headings and table["low"].is_nan().any():
        shown.caption = NO_INTERVAL
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
    """For each relation its patterns, and how often each two of them agree, in percent."""
    headings = {"variant_index": "", "variant": "pattern", "accuracy": "right"}
    headings |= {"change": "points", "change_low": "low", "change_high": "high", "p_holm": "p"}
    headings |= {"agreement": "agrees", "closest": "most with", "highest": "how often"}
    headings |= {"apart": "apart"}
    for (group,), rows in patterns.group_by("group", maintain_order=True):
        table = frame_table(rows, f"{group}: patterns, in percent", headings)
        table.caption = (
            "points: accuracy minus that of pattern 0 on the same facts, with a 95 % interval; p: "
            "exact McNemar, adjusted (Holm) over patterns, the interval is not"
        )
        yield table
        agreement = {
            frozenset((first, second)): value
            for first, second, value in pairs.filter(pl.col("group") == group)
            .select("first", "second", "agreement")
            .iter_rows()
        }
        if not agreement:
            continue  # one wording has no other to agree with
        places = rows["variant_index"].to_list()
        table = new_table(f"{group}: agreement of each two patterns, in percent")
        for heading in ("", *map(str, places)):
            table.add_column(heading, justify="right", no_wrap=True)
        for at in places:
            cells = [_whole(agreement.get(frozenset((at, other)), math.nan)) for other in places]
            table.add_row(str(at), *cells)
        yield table


def _whole(value: float) -> str:
    return "" if math.isnan(value) else f"{value * 100:.0f}"


def example_table(examples: Sequence[Any], title: str) -> Table:
    """An example a row, with at most three of its replies: the paper's Table 6."""
    table = new_table(title)
    for heading in ("relation", "subject", "gold", "asked so", "the model says"):
        table.add_column(heading, overflow="fold")
    for each in examples:
        about = [each.group, each.subject, each.gold]
        for at, reply in enumerate(each.telling):
            cells = about if at == 0 else [""] * len(about)
            verdict = each.verdict(reply)
            answer = reply.answer if verdict == "wrong" else f"{verdict}: {reply.answer}"
            last = at == len(each.telling) - 1
            table.add_row(*cells, reply.variant, answer, end_section=last)
    return table
