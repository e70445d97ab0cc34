"""Frames: of polars, of pandas, as rows; parts of large ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, reason_of


def text_of(value: Any) -> str | None:
    """A value as text: whole numbers without a fraction, lists and objects as JSON; NaN is none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, date | time | Decimal):
        return str(value)
    if isinstance(value, pl.Series):
        value = value.to_list()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False, default=str)


PART = 2**17  # Rows of a large table that are joined, or told apart, at once


def different(table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The different rows of some columns, in their order, found in parts to save memory."""
    parts = [part.unique(maintain_order=True) for part in table.select(columns).iter_slices(PART)]
    return pl.concat(parts or [table.select(columns)]).unique(maintain_order=True)


def joined(table: pl.DataFrame, other: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """The rows of a table, each with its row of another one, joined in parts to save memory."""
    how: dict[str, Any] = {"how": "left", "nulls_equal": True, "maintain_order": "left"}
    parts = [part.join(other, on=on, **how) for part in table.iter_slices(PART)]
    return pl.concat(parts or [table.join(other, on=on, **how)])


def repeated(first: pl.Series, second: pl.Series) -> pl.Series:
    """Whether each pair of numbers below 2^32 occurs several times."""
    keys = first.cast(pl.UInt64) * 2**32 + second.cast(pl.UInt64)
    ordered = keys.sort()
    again = ordered.filter(ordered == ordered.shift()).unique()
    return keys.is_in(again.implode()) if len(again) else pl.repeat(False, len(keys), eager=True)


THE_FRAME = "the frame"


def frame_rows(frame: object, where: str = THE_FRAME) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a frame or of a list of mappings, each with its place."""
    is_list = isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame)
    rows: Any = frame if is_list else as_polars(frame, where).iter_rows(named=True)
    return ((f"{where}, row {at}", dict(row)) for at, row in enumerate(rows, start=1))


def as_polars(frame: object, where: str = THE_FRAME) -> pl.DataFrame:
    """A polars or pandas frame, or a list of mappings, as a polars frame with nulls.

    pyarrow is not needed.
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame):
        return pl.DataFrame(frame, infer_schema_length=None, strict=False)
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    kind = type(frame)
    if kind.__name__ != "DataFrame" or kind.__module__.partition(".")[0] != "pandas":
        expected = "a polars or pandas DataFrame, or a list of dictionaries"
        todo = "Make one with polars.DataFrame(...), or read a file with read_answers(path)."
        raise ConsilienceError(f"{where} is of type {kind.__name__}", expected=expected, todo=todo)
    columns: dict[str, list[Any]] = {}
    if not frame.columns.is_unique:  # type: ignore[attr-defined]
        raise ConsilienceError(f"{where} has two columns of one name", todo="Rename one of them.")
    for name in frame.columns:  # type: ignore[attr-defined]
        series = frame[name]  # type: ignore[index]
        missing = series.isna().tolist()
        values = zip(series.tolist(), missing, strict=True)
        columns[str(name)] = [None if is_missing else value for value, is_missing in values]
    try:
        return pl.DataFrame(columns)
    except (TypeError, pl.exceptions.PolarsError) as error:
        found = f"a column with values of several types: {reason_of(error)}"
        todo = "Convert it to one type, such as text: frame[column].astype(str)."
        raise ConsilienceError(found, where=where, todo=todo) from error


def as_pandas(frame: pl.DataFrame) -> Any:
    """A polars frame as a pandas frame, without pyarrow."""
    try:
        import pandas as pd
    except ImportError as error:
        todo = "Install it with `pip install pandas`, or use to_polars()."
        raise ConsilienceError("pandas is not installed", todo=todo) from error
    return pd.DataFrame({name: frame[name].to_list() for name in frame.columns})
