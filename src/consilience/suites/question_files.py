"""Files of questions: their rows with their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError
from consilience.read import read_document, read_parquet, read_rows
from consilience.suites.question_collection import Questions
from consilience.suites.question_rows import questions_of_rows
from consilience.suites.rows import Problems

SUFFIXES = (".jsonl", ".csv", ".tsv", ".json", ".yaml", ".yml", ".toml", ".parquet")


def read_question_file(path: Path, columns: Mapping[str, str], problems: Problems) -> Questions:
    """The questions of a file; the errors of its rows go to ``problems``.

    ``columns``: the file's name of each of ``COLUMNS`` that is called otherwise there.
    """
    rows = file_rows(path, problems)
    items, notes = questions_of_rows(rows, path.stem, columns, problems, source=str(path))
    return Questions(path.stem, items, notes)


def file_rows(
    path: Path, problems: Problems, name: str = "questions"
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The rows of a file with their places; ``name``: what its list of rows is called."""
    if path.suffix not in SUFFIXES:
        raise ConsilienceError(
            f"a file in '{path.suffix}'", expected=", ".join(SUFFIXES), where=str(path)
        )
    if path.suffix in (".jsonl", ".csv", ".tsv"):
        return read_rows(path, faults=problems)
    if path.suffix == ".parquet":
        return _numbered(read_parquet(path).rows(named=True), str(path), name)
    document = read_document(path)
    if isinstance(document, Mapping):
        lists = [value for value in document.values() if isinstance(value, list)]
        document = document.get(name, lists[0] if len(lists) == 1 else document)
    if not isinstance(document, list) or not all(isinstance(row, Mapping) for row in document):
        raise ConsilienceError(
            f"no list of {name}",
            expected=f"a list with one mapping each, or one named '{name}'",
            where=str(path),
        )
    return _numbered(document, str(path), name)


def has_list(path: Path, name: str) -> bool:
    """Whether a JSON, YAML or TOML file has a list of that name beside others."""
    is_document = path.suffix in (".json", ".yaml", ".yml", ".toml")
    document = read_document(path) if is_document else None
    return isinstance(document, Mapping) and name in document


def _numbered(
    rows: Iterable[Mapping[str, Any]], where: str, name: str
) -> list[tuple[str, Mapping[str, Any]]]:
    noun = name.removesuffix("s")
    return [(f"{where}, {noun} {number}", row) for number, row in enumerate(rows, start=1)]
