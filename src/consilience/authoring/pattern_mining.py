"""Mining from a corpus: its sentences, examples, tables, the command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import polars as pl

from consilience import suites
from consilience.analysis.syntax import load_parser
from consilience.authoring.mining import FactIndex, Facts, Mined, mine
from consilience.core.errors import (
    SILENT,
    ConsilienceError,
    Watch,
    missing_column,
    reason_of,
    unknown_name,
)
from consilience.core.text import ENDINGS, counted
from consilience.files.read import POLARS_FAULTS, read_lines, read_rows
from consilience.options import OutputOptions
from consilience.options.suites import MineOptions
from consilience.report.export import Shown
from consilience.report.table import Column, Table, Value
from consilience.suites.proposals import Proposal, check_no_file, write_proposals

ROWS_AT_ONCE = 10_000
PEEK = 1_000  # Lines of a text file that decide whether blank lines separate its texts


def read_sentences(path: Path, title_column: str = "") -> Iterator[Iterator[str]]:
    """The sentences of each text of a corpus.

    ``title_column``: the column of JSONL or Parquet that names what a text is about. It then
    replaces a pronoun at the beginning of a sentence (``with_title``).
    """
    columns = ("text", title_column) if title_column else ("text",)
    for text, *title in read_corpus(path, columns):
        yield (with_title(one, title[0]) if title else one for one in sentences(text))


def read_corpus(path: Path, columns: tuple[str, ...] = ("text",)) -> Iterator[tuple[str, ...]]:
    """The texts of a corpus, one after the other, with other columns of their rows.

    ``.jsonl`` has a JSON object a line and ``.parquet`` a row for each text, in the first of
    ``columns``. Every other file is plain text in UTF-8. If there are blank lines between its first
    ``PEEK`` lines, its texts are paragraphs between blank lines; otherwise each line is a text.
    """
    if path.suffix == ".parquet":
        texts = _parquet_texts(path, columns)
    elif path.suffix == ".jsonl":
        texts = _json_texts(path, columns)
    elif len(columns) > 1:
        found = f"plain text has no column '{columns[1]}'"
        expected = ".jsonl or .parquet with titles"
        raise ConsilienceError(found, expected=expected, where=str(path), todo="Leave out --title.")
    else:
        texts = ((text,) for text in _plain_texts(path))
    return (row for row in texts if row[0].strip())


def _plain_texts(path: Path) -> Iterator[str]:
    lines = (line for _, line in read_lines(path))
    first = list(islice(lines, PEEK))
    stripped = "\n".join(line.strip() for line in first).strip("\n")
    if "\n\n" not in stripped:
        yield from chain(first, lines)
        return
    for has_text, paragraph in groupby(chain(first, lines), lambda line: bool(line.strip())):
        if has_text:
            yield " ".join(paragraph)


def _json_texts(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for where, row in read_rows(path):
        for column in columns:
            if not isinstance(_cell(row, column, where), str):
                problem = f"'{column}' is no text"
                raise ConsilienceError(problem, where=where, todo="Correct the line.")
        yield tuple(row[column] for column in columns)


def _parquet_texts(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    try:
        table = pl.scan_parquet(path, glob=False)
        schema = table.collect_schema()
        for column in columns:
            if (kind := _cell(schema, column, str(path))) != pl.String:
                problem = f"the column '{column}' holds {kind}"
                raise ConsilienceError(problem, expected="text", where=str(path))
        for start in range(0, table.select(pl.len()).collect().item(), ROWS_AT_ONCE):
            rows = table.select(columns).slice(start, ROWS_AT_ONCE)
            yield from rows.drop_nulls(columns[0]).fill_null("").collect().rows()
    except POLARS_FAULTS as error:
        raise ConsilienceError(f"cannot be read: {reason_of(error)}", where=str(path)) from error


def _cell(cells: Mapping[str, Any], column: str, where: str) -> Any:
    """What is in a column; one that is not there raises."""
    if column not in cells:
        todo = "Name the column of the texts 'text', and that of titles with --title."
        expected = "a column of texts"
        raise missing_column(column, list(cells), expected=expected, where=where, todo=todo)
    return cells[column]


ABBREVIATIONS = {
    "Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Ste", "Mt", "Ft", "Jr", "Sr", "Gen", "Col", "Lt",
    "Capt", "Sgt", "Gov", "Sen", "Rep", "Rev", "Hon", "vs", "No", "Nos", "Vol", "Fig", "ca", "c",
    "cf", "approx", "pp", "p", "ed", "al", "lit", "fl", "d", "b", "r", "Inc", "Ltd", "Co", "Corp",
    "Bros", "dept", "Univ",
}  # fmt: skip
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
        word = LAST_WORD.search(text[start : boundary.start() + 1])
        last, after = word[1].strip("\"'([") if word else "", text[end : end + 2]
        is_initial = (len(last) == 1 and last.isupper()) or re.fullmatch(r"(?:\w\.)+\w", last)
        goes_on = after.lstrip("\"'([\u201c\u2018\u00ab")[:1].islower()
        if last in ABBREVIATIONS or is_initial or goes_on:
            continue
        if sentence := text[start:end].strip():
            yield sentence
        start = end
    if sentence := text[start:].strip():
        yield sentence


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


# The command.


@dataclass(frozen=True, slots=True, kw_only=True)
class MinedPatterns(Shown):
    """What ``suite mine`` proposes."""

    proposals: Mapping[str, Sequence[Proposal]]
    mined: Mined
    file: Path | None

    def printed(self, output: OutputOptions) -> Iterator[Table | str]:
        names = ("specificity", "facts", "other_facts", "texts")
        columns = [Column("pattern"), Column("specificity", "share"), Column("facts", "count"),
                   Column("other facts", "count"), Column("texts", "count")]  # fmt: skip
        note = (
            "specificity: at least this share, in percent, of the connected facts are this "
            "relation's"
        )
        for relation, proposals in self.proposals.items():
            sentences = counted(self.mined.by_relation[relation], "sentence")
            if not proposals:
                yield f"{relation}: {sentences} with facts and no pattern"
            else:
                rows: list[list[Value]] = [
                    [one.pattern, *(one.scores[name] for name in names)] for one in proposals
                ]
                yield Table(f"{relation}: {sentences} with facts", columns, rows, [note])
                yield ""
        if self.file:
            yield f"Written: {self.file}"

    def document(self) -> dict[str, Any]:
        rows = [proposal.row() for rows in self.proposals.values() for proposal in rows]
        searched = {"sentences": self.mined.sentences, "pairs": self.mined.pairs}
        return {"proposals": rows, **searched, "warnings": []}


def mine_patterns(options: MineOptions, watch: Watch = SILENT) -> MinedPatterns:
    """Mine the patterns of facts."""
    check_no_file(options.out)
    facts, groups = _facts(options)
    parser = load_parser()
    texts = _texts(options)
    with watch.steps("parsing", None, "sentences") as advance:
        mined = mine(texts, FactIndex.of(facts), parser, advance)
    source = options.corpus.name
    proposals = {group: mined.ranked(group, options.top, source=source) for group in groups}
    rows = [proposal for of_group in proposals.values() for proposal in of_group]
    file = options.out if rows else None
    if file:
        write_proposals(file, rows)
    return MinedPatterns(proposals=proposals, mined=mined, file=file)


def _texts(options: MineOptions) -> Iterator[Iterator[str]]:
    texts = read_sentences(options.corpus, options.title)
    first = next(texts, None)
    if first is None:
        found, expected = "the corpus is empty", "at least one text"
        where, todo = str(options.corpus), "Name a file with texts."
        raise ConsilienceError(found, expected=expected, where=where, todo=todo)
    return chain([first], texts)


def _facts(options: MineOptions) -> tuple[Facts, Sequence[str]]:
    """The facts of all suites, and the relations to mine, of the first."""
    facts: dict[str, list[tuple[str, str]]] = {}
    groups: list[str] = []
    for spec in (options.suite, *(options.against or ())):
        suite = suites.load_facts(spec)
        for group in suite:
            facts.setdefault(group.id, [(fact.subject, fact.object) for fact in group.facts])
        if not groups:
            groups = list(facts)
        for name in options.groups or ():
            if name not in groups:
                raise unknown_name(f"'{options.suite}' has no relation '{name}'", name, groups)
    chosen = [group for group in groups if options.groups is None or group in options.groups]
    return facts, chosen
