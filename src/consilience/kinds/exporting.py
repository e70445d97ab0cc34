"""The prompts of a suite as rows, for models that are asked elsewhere."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from consilience.core.errors import ExportFormat
from consilience.core.text import counted
from consilience.files.write import csv_cell, write_whole
from consilience.kinds import kind_of
from consilience.kinds.base import ExportedRow, Inquiry
from consilience.options import shared_fields
from consilience.options.probe import ProbeOptions
from consilience.options.suites import ExportOptions
from consilience.report.export import Lines
from consilience.suites.questions import Questions


def to_export(options: ExportOptions, whole: Questions | None = None) -> Inquiry:
    """What is exported. An option of another suite raises; ``whole``: in place of the named one."""
    chosen = replace(ProbeOptions(**shared_fields(options, ProbeOptions)), out=None)
    return kind_of(whole or options.suite).to_export(chosen, whole)


def export_prompts(options: ExportOptions) -> Iterator[ExportedRow]:
    """The prompts of a suite, item by item. An option of another suite raises at once."""
    return to_export(options).rows()


def exported_lines(options: ExportOptions) -> Iterator[str]:
    """The prompts as the lines of a file."""
    return as_lines(export_prompts(options), export_format(options))


def written_prompts(options: ExportOptions, file: Path) -> Lines:
    """Write the prompts to a file; how many there are."""
    count = itertools.count()
    rows = (row for row, _ in zip(export_prompts(options), count, strict=False))
    lines = as_lines(rows, export_format(options))
    write_whole(file, lambda: (line.encode() for line in lines))
    return Lines({}, f"{file}: {counted(next(count), 'prompt')}")


def export_format(options: ExportOptions) -> ExportFormat:
    """The format that is named, or that of the file."""
    is_csv = options.out is not None and options.out.suffix == ".csv"
    return options.format or ("csv" if is_csv else "jsonl")


def as_lines(rows: Iterable[ExportedRow], format_: ExportFormat) -> Iterator[str]:
    """The lines of a file with these rows; in CSV, lists are JSON in one cell."""
    header: list[str] = []
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    for row in rows:
        if format_ == "jsonl":
            yield json.dumps(row, ensure_ascii=False) + "\n"
            continue
        if not header:
            header = list(row)
            writer.writerow(header)
        writer.writerow([_cell(row[name]) for name in header])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _cell(value: object) -> object:
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return csv_cell(value) if isinstance(value, str) else value
