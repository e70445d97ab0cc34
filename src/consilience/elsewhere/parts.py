"""Tables of answers and records of Every Eval Ever, of any size: they are read in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import polars as pl
from polars import selectors

from consilience.core.errors import ConsilienceError, reason_of
from consilience.elsewhere.table import NAME, ROWS, frames_of
from consilience.files.read import POLARS_FAULTS, read_rows

PART = 2**24  # Bytes of a file that are parsed at once

RECORD_FIELDS: Mapping[str, Sequence[str]] = {
    factor: [f"metadata.{name}" for name in names.split()]
    for factor, names in {
        "language": "language lang",
        "paraphrase": "paraphrase phrasing instruction instruction_phrasing",
        "order": "order choices_order choice_order option_order",
        "labels": "labels enumerator choices_enumerator choice_enumerator",
        "shots": "shots examples num_shots n_shots demonstrations",
        "template": "template prompt_template",
        "sample": "sample seed repeat trial run",
        NAME: "variant",
    }.items()
}
"""The factors of records: of several fields the first that a record has."""

RECORD = ("evaluation_id", "model_id", "evaluation_name", "sample_id", "interaction_type")
"""Fields of every record of Every Eval Ever that are texts."""


def table_parts(path: Path, fields: Mapping[str, str]) -> Iterator[pl.DataFrame]:
    """The rows of a table; of each factor the column, or a field in one: ``doc.template``."""
    if path.suffix != ".jsonl":
        of_rows = ({of: dig(row, name) for of, name in fields.items()} for row in _cells(path))
        yield from frames_of(of_rows)
        return
    for part in json_parts(path, _schema(dict.fromkeys(fields.values(), pl.String()))):
        named = part.select(_field(name).alias(of) for of, name in fields.items())
        yield named.with_columns(selectors.struct().struct.json_encode())


def _cells(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a table, of Parquet in parts."""
    if path.suffix != ".parquet":
        yield from (row for _, row in read_rows(path))
        return
    try:
        for part in pl.scan_parquet(path, glob=False).collect_batches(chunk_size=ROWS):
            yield from part.iter_rows(named=True)
    except POLARS_FAULTS as error:
        found = f"cannot be read as a table: {reason_of(error)}"
        raise ConsilienceError(found, where=str(path)) from error


def dig(record: Any, path: str) -> Any:
    """The value of a field by its name, or by names with dots between, from outside to inside."""
    if isinstance(record, Mapping) and path in record:
        return record[path]
    for name in path.split("."):
        record = record.get(name) if isinstance(record, Mapping) else None
    return record


def _field(path: str) -> pl.Expr:
    """The same of a frame with a schema of ``_schema``."""
    first, *names = path.split(".")
    return reduce(lambda value, name: value.struct.field(name), names, pl.col(first))


def _schema(kinds: Mapping[str, pl.DataType]) -> dict[str, Any]:
    """The schema of fields by their names, in which dots lead into objects."""
    tree = dict[str, dict[str, pl.DataType]]()
    for path, kind in kinds.items():
        first, _, rest = path.partition(".")
        tree.setdefault(first, {}).update({rest: kind} if rest else {})
    return {of: pl.Struct(_schema(inner)) if inner else kinds[of] for of, inner in tree.items()}


def json_parts(path: Path, schema: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
    """The lines of a JSONL file; the first that does not fit the schema raises."""
    size, start, lines = PART, 0, 0
    with path.open("rb") as file:
        while part := file.read(size) + file.readline():
            try:
                yield pl.read_ndjson(part.removeprefix(b"\xef\xbb\xbf"), schema=schema)
            except POLARS_FAULTS as error:
                if not size:
                    found, where = f"cannot be read: {reason_of(error)}", f"{path}:{lines + 1}"
                    expected = "an object in JSON, with fields of the usual types"
                    raise ConsilienceError(found, expected=expected, where=where) from error
                size = 0  # line by line, to find the one
                file.seek(start)
                continue
            start, lines = file.tell(), lines + part.count(b"\n")


def record_parts(path: Path, fields: Mapping[str, str]) -> Iterator[pl.DataFrame]:
    """The answers in instance records of Every Eval Ever (schema 0.3.0).

    ``fields``: of the factors that the user names; others are in ``RECORD_FIELDS``.
    """
    known = {**RECORD_FIELDS, **{of: [name] if name else [] for of, name in fields.items()}}
    text, texts = pl.String(), pl.List(pl.String())
    attribution = pl.Struct({"extracted_value": text, "is_terminal": pl.Boolean()})
    named = dict.fromkeys([name for names in known.values() for name in names], text)
    schema = _schema({
        **named, **dict.fromkeys((*RECORD, "metadata.item", "error", "evaluation_result_id"), text),
        "input.raw": text, "input.reference": text, "input.choices": text, "output.raw": texts,
        "answer_attribution": pl.List(attribution), "evaluation.is_correct": pl.Boolean(),
    })  # fmt: skip
    for part in json_parts(path, schema):
        given, attributed = pl.col("input").struct, pl.col("answer_attribution").list
        is_last = pl.element().struct.field("is_terminal")
        terminal = attributed.eval(pl.element().filter(is_last.fill_null(value=False))).list.last()
        last = pl.coalesce(terminal, attributed.last()).struct.field("extracted_value")
        item = pl.coalesce(_field("metadata.item"), "sample_id")
        reference, turns = given.field("reference"), pl.lit("records of several turns")
        factors = {factor: names for factor, names in known.items() if names}
        yield part.select(
            group="evaluation_name", item=item, model="model_id", error="error",
            prompt=given.field("raw"), options=given.field("choices"),
            subject=pl.format("{}/{}", "evaluation_name", item),
            gold=pl.when(reference != "[]").then(reference), reading="evaluation_result_id",
            evaluation_id="evaluation_id", right=pl.col("evaluation").struct.field("is_correct"),
            answer=pl.coalesce(last, pl.col("output").struct.field("raw").list.first()),
            left_out=pl.when(pl.col("interaction_type") != "single_turn").then(turns),
            **{of: pl.coalesce([*map(_field, names)]) for of, names in factors.items()},
        )  # fmt: skip
