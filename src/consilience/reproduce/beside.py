"""Our numbers beside those of a paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from consilience.report.papers import paper_numbers
from consilience.report.table import NAN, Cell, Column, Table, Value, text_of


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of ours, in the unit that the paper prints."""

    value: float  # The number; NaN for no data
    std: float = NAN
    low: float = NAN
    """Lower bound of its 95 % interval; NaN for a number that has none, such as a count."""
    high: float = NAN
    unit: str = ""  # The unit of a number that the paper does not have


Key = tuple[str, str, str]  # block of a table, row, column, as the paper prints them

BESIDE_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("table", "section", "group", "row", "column", "unit"), pl.String),
    "digits": pl.Int64,
    **dict.fromkeys(("paper", "paper_std", "ours", "std", "low", "high"), pl.Float64),
    "difference": pl.Float64,
    "verdict": pl.String,
}
"""A row for each number of the paper, and for each of ours that the paper does not have.

* ``group``, ``row``, ``column``: where the paper prints the number.
* ``digits``: digits after the decimal point, as the paper prints it.
* ``paper``, ``paper_std``: the paper's number.
* ``ours``, ``std``, ``low``, ``high``: ours with its interval.
* ``difference``: ours minus the paper's.
* ``verdict``: ``same`` at these digits; else ``within`` or ``outside`` of a tolerance, or
  ``differs`` where none was set; ``ours only`` if the paper has no such number; or the reason why
  there is no number of ours.
"""

DIGITS = {"count": 0, "mean": 2, "p": 3, "p<": 3}
"""Digits of ours after the decimal point, by unit; one of all others."""

IN_POINTS = ("percent", "points", "r%")  # units to which a tolerance in points applies
NUMBER = Column("", "number")  # in the unit that the paper prints


def beside(
    table: str,
    ours: Mapping[Key, Measured | None],
    absent: Mapping[str, str] | None = None,
    tolerance: float | None = None,
) -> pl.DataFrame:
    """The paper's numbers with ours (``BESIDE_SCHEMA``), and ours that the paper does not have.

    Rows are in the order of the paper. ``ours``: None for a missing number. ``absent``: why a row
    has no number of ours; the reason of ``""`` applies to all other rows. ``tolerance``: points
    within which percentages count as equal to the paper's; None for no judgement.
    """
    absent, rows = absent or {}, list[dict[str, object]]()
    printed: list[dict[str, Any]] = paper_numbers(table).to_dicts()
    known = {(row["group"], row["row"], row["column"]) for row in printed}
    for key, number in ours.items():
        if key not in known:
            unit = number.unit if number else ""
            place = dict(zip(("group", "row", "column"), key, strict=True))
            other = {"unit": unit, "digits": DIGITS.get(unit, 1), "value": NAN, "std": NAN}
            printed.append({"table": table, "section": "", **place, **other})
    for row in printed:
        number = ours.get((row["group"], row["row"], row["column"]))
        verdict = absent.get(row["row"], absent.get("", "not measured"))
        if number is not None:
            verdict = _verdict(row["value"], row["digits"], row["unit"], number, tolerance)
        measured = number or Measured(NAN)
        rows.append(
            {
                **row, "paper": row["value"], "paper_std": row["std"], "ours": measured.value,
                "std": measured.std, "low": measured.low, "high": measured.high,
                "difference": measured.value - row["value"], "verdict": verdict,
            }
        )  # fmt: skip
    blocks, names = (list(dict.fromkeys(row[key] for row in rows)) for key in ("group", "row"))
    rows.sort(key=lambda row: (blocks.index(row["group"]), names.index(row["row"])))
    return pl.DataFrame(rows, schema=BESIDE_SCHEMA)


def _verdict(paper: float, digits: int, unit: str, ours: Measured, tolerance: float | None) -> str:
    if math.isnan(ours.value):
        return "no data"
    if math.isnan(paper):
        return "ours only"
    if ours.value < paper if unit == "p<" else round(ours.value, digits) == paper:
        return "same"
    if tolerance is None or unit not in IN_POINTS:
        return "differs"
    return "within" if round(abs(ours.value - paper), 9) <= tolerance else "outside"


def _cells(row: Mapping[str, Any]) -> tuple[Cell, Cell]:
    """The paper's number as it prints it, and ours; as text if it has a symbol, such as < or K."""
    digits = DIGITS.get(row["unit"], max(1, row["digits"]))
    paper = Cell(row["paper"], row["paper_std"], digits=row["digits"])
    ours = Cell(row["ours"], row["std"], digits=digits)
    match row["unit"]:
        case "thousand":
            known = not math.isnan(row["ours"])
            return Cell(f"{_text(paper)}K"), Cell(_text(ours) + "K" * known)
        case "p" | "p<" as unit:
            below = "< " if unit == "p<" else ""
            is_small = row["ours"] < 0.0005
            return Cell(below + _text(paper)), Cell("<.001" if is_small else _text(ours))
        case _:
            return paper, ours


def _text(cell: Cell) -> str:
    return text_of(cell, NUMBER)


def beside_table(numbers: pl.DataFrame, title: str) -> Table:
    """For a screen: a row a number, the paper's, ours with its interval, the difference."""
    one_column = numbers["column"].n_unique() == 1
    headings = ("paper", "ours", "95 % CI", "difference")
    columns = [Column(""), *(Column(heading, "number") for heading in headings), Column("")]
    rows: list[list[Value]] = []
    blocks: list[str] = []
    for (group, name), chosen in numbers.group_by(["group", "row"], maintain_order=True):
        if chosen.height > 1:
            rows.append([str(name), *[""] * 5])
        for row in chosen.iter_rows(named=True):
            label = f"  {row['column']}"
            if chosen.height == 1:
                label = str(name) if one_column else f"{name}: {row['column']}"
            digits = DIGITS.get(row["unit"], max(1, row["digits"]))
            interval = Cell(low=row["low"], high=row["high"], digits=digits)
            difference = Cell() if row["unit"] == "p<" else Cell(row["difference"], digits=digits)
            verdict = row["verdict"].split(":")[0]
            rows.append([label, *_cells(row), interval, difference, verdict])
        blocks += [str(group)] * (len(rows) - len(blocks))
    return Table(title, columns, rows, blocks=blocks)


def beside_layout(numbers: pl.DataFrame, title: str, notes: Sequence[str] = ()) -> Table:
    """In the paper's layout: its columns, and in each row ours below the paper's."""
    headings = numbers["column"].unique(maintain_order=True).to_list()
    rows: list[list[Value]] = []
    blocks: list[str] = []
    for (group, name), chosen in numbers.group_by(["group", "row"], maintain_order=True):
        cells = {row["column"]: _cells(row) for row in chosen.iter_rows(named=True)}
        is_empty = chosen["paper"].is_nan().all() and chosen["ours"].is_nan().all()
        ours = chosen["verdict"][0].split(":")[0] if is_empty else "ours"
        for at, whose in enumerate(("paper", ours)):
            shown = [cells[heading][at] if heading in cells else Cell() for heading in headings]
            if any(_text(cell) != "-" for cell in shown) or (is_empty and at):
                rows.append([f"{name} ({whose})", *shown])
                blocks.append(str(group))
    columns = [Column(""), *(Column(heading, "number") for heading in headings)]
    return Table(title, columns, rows, notes, blocks)
