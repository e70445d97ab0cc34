"""Tables of answers and of facts: from files, from logs of harnesses, from data frames."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import polars as pl

from consilience.core.errors import ConsilienceError, how_to_install, reason_of
from consilience.files.read import (
    POLARS_FAULTS,
    read_csv,
    read_document,
    read_parquet,
    read_rows,
)

LOG_PROBABILITIES = "log_probabilities"
"""The column with the log-probabilities in nats of all candidates, in the order of the prompt."""

DOCUMENT = ("group", "item", "subject", "variant", "variant_index", "gold")
"""What a document of ours says of its prompt."""

SAMPLE = (*DOCUMENT, "options")
"""What the metadata of a sample say."""

INSPECT = ".eval"  # How the name of a log of inspect_ai ends

LOG_NAMES = ("samples_*.jsonl", "*/samples_*.jsonl", f"*{INSPECT}")
"""What logs are called in the folder that a harness writes."""

Cells = Mapping[str, Any]


def lm_eval_rows(rows: Iterable[tuple[str, Cells]]) -> Iterator[dict[str, Any]]:
    """The rows of a log of one of our tasks, with the place of each; another task raises."""
    for where, row in rows:
        doc = row["doc"] if isinstance(row.get("doc"), dict) else {}
        expected = "a task that `consilience suite export --format lm-eval` wrote"
        _refuse_another(DOCUMENT, doc, "a document of lm-evaluation-harness", "", expected, where)
        try:
            replies: Any = row.get("filtered_resps")
            numbers = [float(reply[0]) for reply in replies]
        except (TypeError, ValueError, IndexError, KeyError) as error:
            found = "filtered_resps without the log-probability of each choice"
            expected = 'pairs such as ["-16.54", "False"]'
            raise ConsilienceError(found, expected=expected, where=where) from error
        known = {name: doc[name] for name in (*DOCUMENT, "options") if name in doc}
        yield {**known, LOG_PROBABILITIES: numbers}


def _refuse_another(
    names: Sequence[str], cells: Cells, what: str, inside: str, expected: str, where: str
) -> None:
    if absent := [name for name in names if name not in cells]:
        found = f"{what} without {', '.join(absent)}{inside}"
        todo = "Answers to other tasks have no variants to compare."
        raise ConsilienceError(found, expected=expected, where=where, todo=todo)


def inspect_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a log of inspect_ai; a sample without an output has no answer."""
    samples = _read_inspect(path).samples or ()
    for sample in samples:
        names, where = ("item", "variant", "variant_index"), f"{path}, sample {sample.id}"
        what, inside = "a sample of inspect_ai", " in its metadata"
        expected = "the columns of `consilience suite export`"
        _refuse_another(names, sample.metadata, what, inside, expected, where)
    return sample_rows(
        [(sample.metadata, sample.epoch, sample.output.completion) for sample in samples]
    )


def sample_rows(samples: Sequence[tuple[Cells, int, str | None]]) -> Iterator[dict[str, Any]]:
    """The rows of samples of inspect_ai: their metadata, their epochs from 1, and what was written.

    Several epochs of questions are levels of the factor ``sample``. Forms of sentence pairs have no
    such factor: their first epoch is read.
    """
    epochs = max((epoch for _, epoch, _ in samples), default=1)
    for metadata, epoch, text in samples:
        row = {name: metadata[name] for name in SAMPLE if name in metadata} | {"answer": text}
        if epochs > 1 and "options" in metadata:
            levels = "" if row["variant"] == "base" else f"{row['variant']}, "
            row["variant"] = f"{levels}sample={epoch}"
            row["variant_index"] = row["variant_index"] * epochs + epoch - 1
        elif epoch > 1:
            continue
        yield row


def _read_inspect(path: Path, *, header_only: bool = False) -> Any:
    try:
        from inspect_ai.log import read_eval_log
    except ImportError as error:
        found = "inspect_ai is not installed, which reads its logs"
        raise ConsilienceError(found, where=str(path), todo=how_to_install("inspect")) from error
    try:
        return read_eval_log(str(path), header_only=header_only)
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise ConsilienceError(
            f"cannot be read as a log of inspect_ai: {error}", where=str(path)
        ) from error


def model_of_log(path: Path) -> str:
    """The model of a log of another harness, from what it wrote; "" if unknown."""
    if path.suffix == INSPECT and path.is_file():
        return str(_read_inspect(path, header_only=True).eval.model)
    date = re.search(r"^samples_.*_(\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl$", path.name)
    results = path.with_name(f"results_{date[1]}.json") if date else path
    if not date or not results.is_file():
        return ""
    return str(read_document(results).get("model_name") or "")


ENDINGS = (".jsonl", ".csv", ".csv.gz", ".tsv", ".parquet", ".xlsx")


def read_answer_file(path: Path) -> pl.DataFrame:
    """The table in a file of answers; the columns of Parquet keep their types, others are text.

    In a CSV file an empty answer is no answer; every other cell is text, unchanged. Lists of JSONL
    are JSON, and logs of lm-evaluation-harness and inspect_ai (.eval) become rows. Of a workbook
    the first sheet is read.
    """
    if not path.is_file():
        raise ConsilienceError("no such file", where=str(path), todo="Check the path.")
    if path.suffix == ".parquet":
        return read_parquet(path)
    is_empty = pl.all_horizontal(pl.all().is_null())
    if path.name.endswith((".csv", ".csv.gz")):
        return read_csv(path, infer_schema=False).filter(~is_empty)
    if path.suffix in (".tsv", ".jsonl", INSPECT):
        rows = [{name: text_of(value) for name, value in row.items()} for row in _rows_of(path)]
        names = dict.fromkeys(name for row in rows for name in row)
        return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String))
    if path.suffix == ".xlsx":
        return read_workbook(path).filter(~is_empty)
    *others, last = ENDINGS
    found = f"a table in '{path.suffix or path.name}'"
    expected = f"{', '.join(others)} or {last}"
    where = str(path)
    raise ConsilienceError(found, expected=expected, where=where, todo="Save it as one of these.")


def _rows_of(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix == INSPECT:
        return inspect_rows(path)
    rows = read_rows(path)
    first = next(rows, None)
    if first is None:
        return iter(())
    every = itertools.chain([first], rows)
    is_lm_eval = {"doc_id", "doc", "filtered_resps"} <= first[1].keys()
    return lm_eval_rows(every) if is_lm_eval else (row for _, row in every)


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


def read_workbook(path: Path) -> pl.DataFrame:
    """The first sheet of a workbook, with empty rows; a date is text. Row 1 names the columns."""
    try:
        import fastexcel
    except ImportError as error:
        found = "fastexcel is not installed, which reads Excel workbooks"
        todo = f"{how_to_install('excel')} Or save the table as CSV."
        raise ConsilienceError(found, where=str(path), todo=todo) from error
    try:
        table = pl.read_excel(path, infer_schema_length=0, drop_empty_rows=False)
    except IndexError as error:  # polars takes the first sheet
        raise ConsilienceError("a workbook without a sheet", where=str(path)) from error
    except (*POLARS_FAULTS, fastexcel.FastExcelError) as error:
        raise ConsilienceError(
            f"cannot be read as a workbook: {reason_of(error)}", where=str(path)
        ) from error
    dates = pl.all().str.replace(r"^(\d{4}-\d\d-\d\d) 00:00:00$", "$1")
    return table.with_columns(dates.str.replace(r"^1899-12-3[01] ", ""))  # a time alone


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


def as_polars(frame: object, where: str = THE_FRAME) -> pl.DataFrame:
    """A polars or pandas frame, or a list of mappings, as a polars frame with nulls.

    pyarrow is not needed.
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame):
        return pl.DataFrame(frame, infer_schema_length=None, strict=False)
    return frame.collect() if isinstance(frame, pl.LazyFrame) else _of_pandas(frame, where)


def _of_pandas(frame: object, where: str) -> pl.DataFrame:
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
