"""Reads a corpus text by text, and splits texts into sentences. Memory does not grow with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import polars as pl

from consilience.errors import ConsilienceError, missing_column
from consilience.read import POLARS_FAULTS, parse_json
from consilience.text import ENDINGS

BATCH = 10_000
"""Rows of a Parquet file that are read at once."""

PEEK = 1_000
"""Lines of a text file that decide whether blank lines separate its texts."""


def read_sentences(
    path: Path, column: str = "text", title_column: str = ""
) -> Iterator[Iterator[str]]:
    """The sentences of each text of a corpus.

    ``title_column``: the column of JSONL or Parquet that names what a text is about. It then
    replaces a pronoun at the beginning of a sentence (``with_title``).
    """
    columns = (column, title_column) if title_column else (column,)
    for text, *title in read_corpus(path, columns):
        yield (
            with_title(sentence, title[0]) if title else sentence for sentence in sentences(text)
        )


def read_corpus(path: Path, columns: tuple[str, ...] = ("text",)) -> Iterator[tuple[str, ...]]:
    """The texts of a corpus, one after the other, with other columns of their rows.

    ``.jsonl`` has a JSON object a line and ``.parquet`` a row for each text, in the first of
    ``columns``. Every other file is plain text in UTF-8. If there are blank lines between its first
    ``PEEK`` lines, its texts are paragraphs between blank lines; otherwise each line is a text.
    """
    if path.is_dir() or not path.exists():
        raise ConsilienceError(
            "a folder" if path.is_dir() else "no such file",
            expected="a corpus: a text file, .jsonl or .parquet",
            where=str(path),
            todo="Check the path.",
        )
    if path.suffix == ".parquet":
        texts = _parquet_texts(path, columns)
    elif path.suffix == ".jsonl":
        texts = _json_texts(path, columns)
    elif len(columns) > 1:
        raise ConsilienceError(
            f"plain text has no column '{columns[1]}'",
            expected=".jsonl or .parquet with titles",
            where=str(path),
            todo="Leave out --title.",
        )
    else:
        texts = ((text,) for text in _plain_texts(path))
    return (row for row in texts if row[0].strip())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file, with their numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            number = 0
            for number, line in enumerate(file, start=1):
                yield number, line.rstrip("\r\n")
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise ConsilienceError(reason, where=str(path), todo="Check the path.") from error
    except UnicodeDecodeError as error:
        where = f"{path}:{number + 1}"
        raise ConsilienceError(
            "not UTF-8 here or soon after", where=where, todo="Save the file as UTF-8."
        ) from error


def _plain_texts(path: Path) -> Iterator[str]:
    lines = (line for _, line in _lines(path))
    first = list(islice(lines, PEEK))
    stripped = "\n".join(line.strip() for line in first).strip("\n")
    if "\n\n" not in stripped:
        yield from chain(first, lines)
        return
    paragraph: list[str] = []
    for line in chain(first, lines):
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield " ".join(paragraph)
            paragraph = []
    yield " ".join(paragraph)


def _json_texts(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = parse_json(line)
        except json.JSONDecodeError as error:
            problem = f"not JSON: {error.msg} at column {error.colno}"
            raise ConsilienceError(problem, where=where, todo="Correct the line.") from error
        if not isinstance(row, dict):
            problem = f"a JSON {type(row).__name__}"
            raise ConsilienceError(problem, expected="one object a line", where=where)
        for column in columns:
            if column not in row:
                raise _no_column(column, list(row), where)
            if not isinstance(row[column], str):
                problem = f"'{column}' is no text"
                raise ConsilienceError(problem, where=where, todo="Correct the line.")
        yield tuple(row[column] for column in columns)


def _parquet_texts(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    try:
        table = pl.scan_parquet(path, glob=False)
        schema = table.collect_schema()
        for column in columns:
            if column not in schema:
                raise _no_column(column, list(schema), str(path))
            if schema[column] != pl.String:
                problem = f"the column '{column}' holds {schema[column]}"
                raise ConsilienceError(problem, expected="text", where=str(path))
        for start in range(0, table.select(pl.len()).collect().item(), BATCH):
            yield from table.select(columns).slice(start, BATCH).drop_nulls().collect().rows()
    except POLARS_FAULTS as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConsilienceError(f"cannot be read: {reason}", where=str(path)) from error


def _no_column(column: str, columns: list[str], where: str) -> ConsilienceError:
    todo = "Name the columns with --column and --title."
    return missing_column(column, columns, expected="a column of texts", where=where, todo=todo)


ABBREVIATIONS = frozenset(
    {
        *("Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Ste", "Mt", "Ft", "Jr", "Sr", "Gen", "Col", "Lt"),
        *("Capt", "Sgt", "Gov", "Sen", "Rep", "Rev", "Hon", "vs", "No", "Nos", "Vol", "Fig", "ca"),
        *("c", "cf", "approx", "pp", "p", "ed", "al", "lit", "fl", "d", "b", "r", "Inc", "Ltd"),
        *("Co", "Corp", "Bros", "dept", "Univ"),
    }
)
"""Words after which a full stop does not end a sentence; initials are treated alike."""

_WIDE = "\u3002\uff0e\uff61\uff01\uff1f"
_NARROW = re.escape("".join(sorted(ENDINGS - set(_WIDE))))

BOUNDARY = re.compile(
    rf"[{_NARROW}]+[\"')\]\u201d\u2019\u00bb]*\s+(?=[\"'(\[\u201c\u2018\u00ab\u00bf\u00a1]?[^\W_])"
    rf"|[{_WIDE}]+[\u300d\u300f\u201d\uff09]*|\n+"
)
"""Where a sentence may end: a mark and a space; in Chinese and Japanese the mark alone."""

LAST_WORD = re.compile(r"(\S+?)\.$")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text: a rule in place of a parser, which reads only those that matter.

    No sentence ends before a lower-case letter, after one of ``ABBREVIATIONS`` or an initial.
    """
    start = 0
    for boundary in BOUNDARY.finditer(text):
        end = boundary.end()
        if _goes_on(text[start : boundary.start() + 1], text[end : end + 2]):
            continue
        if sentence := text[start:end].strip():
            yield sentence
        start = end
    if sentence := text[start:].strip():
        yield sentence


def _goes_on(before: str, after: str) -> bool:
    """Whether the mark between these texts does not end a sentence."""
    word = LAST_WORD.search(before)
    last = word[1].strip("\"'([") if word else ""
    is_initial = (len(last) == 1 and last.isupper()) or bool(re.fullmatch(r"(?:\w\.)+\w", last))
    return (
        last in ABBREVIATIONS or is_initial or after.lstrip("\"'([\u201c\u2018\u00ab")[:1].islower()
    )


PRONOUN = re.compile(r"(?:It|He|She|They)(?=,? [a-z])|(?:Its|His|Their)(?= [a-z])|Her(?= [a-z]+ )")
"""A pronoun at the beginning of a sentence; after the second group's a noun follows."""


def with_title(sentence: str, title: str) -> str:
    """The sentence with the title in place of a pronoun that it begins with.

    In an encyclopedia that pronoun mostly refers to the subject of the page. T-REx aligned its
    facts by the same assumption (Elsahar et al. 2018, the aligner NoSub). What a title adds in
    brackets, as in ``Georgia (country)``, is left out.
    """
    pronoun = PRONOUN.match(sentence)
    name = re.sub(r"\s*\(.*\)$", "", title).strip()
    if not pronoun or not name:
        return sentence
    owner = "'s" if pronoun[0] in ("Its", "His", "Her", "Their") else ""
    return f"{name}{owner}{sentence[pronoun.end() :]}"
