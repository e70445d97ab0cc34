"""The numbers of both papers, and ours beside them.

``papers.csv`` has every number that they print. ``table`` is the name of the recipe that makes it
again; ``section`` says where it stands in the paper, by section because the texts at hand have no
page numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import polars as pl
from rich.table import Table

from consilience.report.sheets import Cell, Number, Sheet
from consilience.report.tables import new_table

Key = tuple[str, str, str]
"""Block of a table, row, column, as the paper prints them."""

NAN = math.nan


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of ours in the unit that the paper prints, with the ends of its 95 % interval.

    Without an interval it is a count or the like, which is the paper's or is not. ``unit``: of a
    number that the paper does not have.
    """

    value: float
    std: float = NAN
    low: float = NAN
    high: float = NAN
    unit: str = ""


BESIDE_SCHEMA: dict[str, type[pl.DataType]] = {
    "table": pl.String,
    "section": pl.String,
    "group": pl.String,
    "row": pl.String,
    "column": pl.String,
    "unit": pl.String,
    "digits": pl.Int64,
    "paper": pl.Float64,
    "paper_std": pl.Float64,
    "ours": pl.Float64,
    "std": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "difference": pl.Float64,
    "verdict": pl.String,
}
"""A row for each number of the paper, and for ours that it does not have.

``digits``: behind the point, as the paper prints it. ``verdict``: ``same`` at these digits; if not,
``within`` or ``outside`` of our interval, likewise, or ``differs`` where there is none; ``ours
alone`` where the paper has no such number; or why there is no number of ours.
"""

DIGITS = {"count": 0, "mean": 2, "p": 3, "p<": 3}
"""Behind the point of ours, by unit; one of all others."""


def paper_numbers(table: str) -> pl.DataFrame:
    """What a paper prints in a table, or in the text of a section, in its order.

    ``table, section, group, row, column, value, std, unit``; ``digits`` behind the point of value.
    """
    text = (files("consilience.report") / "papers.csv").read_bytes()
    rows = pl.read_csv(text, infer_schema=False).filter(pl.col("table") == table)
    behind = pl.col("value").str.split(".").list.get(1, null_on_oob=True).str.len_chars()
    return rows.fill_null("").with_columns(
        digits=behind.fill_null(0),
        value=pl.col("value").cast(pl.Float64),
        std=pl.col("std").replace("", None).cast(pl.Float64).fill_null(NAN),
    )


def beside(
    table: str, ours: Mapping[Key, Measured], absent: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """The paper's numbers with ours (``BESIDE_SCHEMA``), and ours that the paper does not have.

    By block, then by row, as the paper has them. ``absent``: why a row has no number of ours; that
    of ``""`` is said of all others.
    """
    absent = absent or {}
    rows: list[dict[str, object]] = []
    left = dict(ours)
    for row in paper_numbers(table).iter_rows(named=True):
        found = left.pop((row["group"], row["row"], row["column"]), None)
        paper, digits = float(row["value"]), int(row["digits"])
        verdict = absent.get(row["row"], absent.get("", "not measured"))
        if found is not None:
            verdict = _verdict(paper, digits, row["unit"], found)
        kept = {name: row[name] for name in BESIDE_SCHEMA if name in row and name != "std"}
        rows.append(kept | _numbers(paper, float(row["std"]), found) | {"verdict": verdict})
    for (group, name, column), found in left.items():
        kept = {"table": table, "section": "", "group": group, "row": name, "column": column}
        kept |= {"unit": found.unit, "digits": DIGITS.get(found.unit, 1)}
        verdict = "no data" if math.isnan(found.value) else "ours alone"
        rows.append(kept | _numbers(NAN, NAN, found) | {"verdict": verdict})
    blocks, names = (list(dict.fromkeys(row[each] for row in rows)) for each in ("group", "row"))
    rows.sort(key=lambda row: (blocks.index(row["group"]), names.index(row["row"])))
    return pl.DataFrame(rows, schema=BESIDE_SCHEMA)


def _verdict(paper: float, digits: int, unit: str, found: Measured) -> str:
    if math.isnan(found.value):
        return "no data"
    if unit == "p<":
        return "same" if found.value < paper else "differs"
    if round(found.value, digits) == paper:
        return "same"
    if math.isnan(found.low):
        return "differs"
    is_within = round(found.low, digits) <= paper <= round(found.high, digits)
    return "within" if is_within else "outside"


def _numbers(paper: float, std: float, found: Measured | None) -> dict[str, float]:
    ours = found or Measured(NAN)
    return {
        "paper": paper,
        "paper_std": std,
        "ours": ours.value,
        "std": ours.std,
        "low": ours.low,
        "high": ours.high,
        "difference": ours.value - paper,
    }


def _shown(row: Mapping[str, Any]) -> tuple[Number, Number]:
    """The paper's number as it prints it, and ours."""
    digits = DIGITS.get(row["unit"], max(1, row["digits"]))
    return (
        Number(row["paper"], row["paper_std"], row["digits"]),
        Number(row["ours"], row["std"], digits),
    )


def beside_table(numbers: pl.DataFrame, title: str) -> Table:
    """For a screen: a line a number, the paper's, ours with its interval, the difference.

    Of a reason why there is no number of ours it has what stands before the colon.
    """
    table = new_table(title)
    table.add_column("", overflow="fold")
    for heading in ("paper", "ours", "95 %", "differ-\nence"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    one_column = numbers["column"].n_unique() == 1
    block = ""
    for (group, name), rows in numbers.group_by(["group", "row"], maintain_order=True):
        if group and group != block:
            table.add_row(f"{group}:")
        block = str(group)
        if rows.height > 1:
            table.add_row(str(name))
        for row in rows.iter_rows(named=True):
            label = f"  {row['column']}"
            if rows.height == 1:
                label = str(name) if one_column else f"{name}: {row['column']}"
            table.add_row(label, *_cells(row))
    return table


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    paper, ours = _shown(row)
    ends = [Number(row[name], digits=ours.digits).plain for name in ("low", "high")]
    below = row["unit"] == "p<"
    thousand = "K" if row["unit"] == "thousand" else ""
    small = row["unit"] in ("p", "p<") and row["ours"] < 0.0005
    return (
        ("< " if below else "") + _with_spread(paper) + thousand,
        "<.001" if small else _with_spread(ours) + thousand * (not math.isnan(row["ours"])),
        "" if math.isnan(row["low"]) else " ".join(ends),
        "" if below else Number(row["difference"], digits=ours.digits).plain,
        row["verdict"].split(":")[0],
    )


def beside_sheet(numbers: pl.DataFrame, title: str, notes: Sequence[str] = ()) -> Sheet:
    """In the paper's layout: a column a column, ours below the paper's in each row."""
    columns = tuple(numbers["column"].unique(maintain_order=True))
    rows = []
    for (group, name), found in numbers.group_by(["group", "row"], maintain_order=True):
        cells = {row["column"]: _in_sheet(row) for row in found.iter_rows(named=True)}
        for at, whose in enumerate(("paper", "ours")):
            shown = tuple(cells[each][at] if each in cells else "" for each in columns)
            if any(_text_of(each) not in ("", "-") for each in shown):
                rows.append((str(group), f"{name} ({whose})", shown))
    return Sheet(title, "", columns, tuple(rows), notes=notes)


def _in_sheet(row: Mapping[str, Any]) -> tuple[Cell, Cell]:
    """The paper's number and ours; as text where it has a sign, such as < or K."""
    if row["unit"] not in ("p", "p<", "thousand"):
        return _shown(row)
    shown = _cells(row)
    return shown[0], shown[1]


def _text_of(cell: Cell) -> str:
    return cell.plain if isinstance(cell, Number) else cell


def _with_spread(number: Number) -> str:
    return f"{number.plain}±{number.spread}" if number.spread else number.plain
