"""Files of answers that were made elsewhere: each becomes a table whose cells are text."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from consilience.errors import ConsilienceError, how_to_install
from consilience.files import texts_of
from consilience.harness_logs import INSPECT, inspect_rows, is_lm_eval_log, lm_eval_rows
from consilience.read import (
    POLARS_FAULTS,
    read_csv,
    read_parquet,
    read_rows,
    refuse_large_workbook,
    whole_characters,
)

ENDINGS = (".jsonl", ".csv", ".csv.gz", ".tsv", ".parquet", ".xlsx")
"""How the names of files of answers end."""


def read_answer_file(path: Path) -> pl.DataFrame:
    """The table in a file of answers; the columns of Parquet keep their types, others are text.

    In a CSV file an empty answer is no answer; every other cell is text, unchanged. Lists of JSONL
    are JSON, and logs of lm-evaluation-harness and inspect_ai (.eval) become rows
    (``harness_logs``). Of a workbook the first sheet is read.
    """
    if not path.is_file():
        raise ConsilienceError("no such file", where=str(path), todo="Check the path.")
    if path.suffix == ".parquet":
        return read_parquet(path)
    if path.name.endswith((".csv", ".csv.gz")):
        return texts_of(read_csv(path, infer_schema=False))
    if path.suffix in (".tsv", ".jsonl", INSPECT):
        rows = [{name: text_of(value) for name, value in row.items()} for row in _rows_of(path)]
        names = dict.fromkeys(name for row in rows for name in row)
        return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String))
    if path.suffix == ".xlsx":
        return read_workbook(path).filter(~pl.all_horizontal(pl.all().is_null()))
    *others, last = ENDINGS
    raise ConsilienceError(
        f"a table in '{path.suffix or path.name}'",
        expected=f"{', '.join(others)} or {last}",
        where=str(path),
        todo="Save it as one of these.",
    )


def _rows_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a TSV or JSONL file, or of a log of another harness."""
    if path.suffix == INSPECT:
        return inspect_rows(path)
    rows = read_rows(path)
    first = next(rows, None)
    if first is None:
        return iter(())
    every = itertools.chain([first], rows)
    return lm_eval_rows(every) if is_lm_eval_log(first[1]) else (row for _, row in every)


def as_text(table: pl.DataFrame) -> pl.DataFrame:
    """The table with every column as text (``text_of``)."""
    return table.with_columns(
        pl.Series(name, list(map(text_of, table[name])), dtype=pl.String)
        for name, dtype in table.schema.items()
        if dtype != pl.String
    )


def text_of(value: Any) -> str | None:
    """A value as text: whole numbers without a fraction, lists and objects as JSON; NaN is none."""
    if value is None or isinstance(value, str):
        return value if value is None else whole_characters(value)
    if isinstance(value, date | time | Decimal):
        return str(value)
    if isinstance(value, pl.Series):
        value = value.to_list()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def read_workbook(path: Path) -> pl.DataFrame:
    """The first sheet of an Excel workbook, with its empty rows; a date is text such as 2026-11-23.

    Row 1 names the columns.
    """
    try:
        import fastexcel
    except ImportError as error:
        raise ConsilienceError(
            "fastexcel is not installed, which reads Excel workbooks",
            where=str(path),
            todo=f"{how_to_install('excel')} Or save the table as CSV.",
        ) from error
    refuse_large_workbook(path)
    try:
        table = pl.read_excel(path, infer_schema_length=0, drop_empty_rows=False)
    except IndexError as error:  # polars takes the first sheet
        raise ConsilienceError("a workbook without a sheet", where=str(path)) from error
    except (*POLARS_FAULTS, fastexcel.FastExcelError) as error:
        raise ConsilienceError(
            f"cannot be read as a workbook: {str(error).splitlines()[0]}", where=str(path)
        ) from error
    return table.with_columns(pl.all().str.replace(r"^(\d{4}-\d\d-\d\d) 00:00:00$", "$1"))
