"""Mining from a corpus: its sentences, examples, tables, the command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience import suites
from consilience.analysis.syntax import load_parser
from consilience.authoring.mining import (
    WORD,
    FactIndex,
    Facts,
    Mined,
    NoPatternError,
    Span,
    check_name,
    mine,
    parsed,
    path_patterns,
)
from consilience.core.errors import (
    SILENT,
    Advance,
    ConsilienceError,
    Watch,
    missing_column,
    unknown_name,
)
from consilience.core.patterns import ENGLISH, Pattern
from consilience.core.text import ENDINGS, counted
from consilience.files.read import POLARS_FAULTS, read_lines, read_rows
from consilience.files.write import json_lines, write_whole
from consilience.options import Output
from consilience.options.suites import MineOptions
from consilience.report.export import Shown
from consilience.report.table import Column, Table, Value
from consilience.suites.proposals import Proposal, check_no_file, write_proposals

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token


ROWS_AT_ONCE = 10_000
PEEK = 1_000  # Lines of a text file that decide whether blank lines separate its texts


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
            yield from rows.drop_nulls().collect().rows()
    except POLARS_FAULTS as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConsilienceError(f"cannot be read: {reason}", where=str(path)) from error


def _cell(cells: Mapping[str, Any], column: str, where: str) -> Any:
    """What is in a column; one that is not there raises."""
    if column not in cells:
        todo = "Name the columns with --column and --title."
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
        if _goes_on(text[start : boundary.start() + 1], text[end : end + 2]):
            continue
        if sentence := text[start:end].strip():
            yield sentence
        start = end
    if sentence := text[start:].strip():
        yield sentence


def _goes_on(before: str, after: str) -> bool:
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


ARTICLE = re.compile(r"\b(?:an?|the)\s+", re.IGNORECASE)

COPULA = frozenset(["is"])  # What mining adds to an apposition, so a sentence need not have it


@dataclass(frozen=True, slots=True)
class ExampleMatch:
    """A pair of names of a sentence that matches the example."""

    subject: str
    object: str
    sentence: str
    relations: tuple[str, ...] = ()
    """The relations that have its names as a fact.

    ``(swapped)`` follows a relation where X is the object and Y the subject.
    """


def example_pattern(text: str, language: str = ENGLISH) -> Pattern:
    """The example as a pattern; ``X`` and ``Y`` alone are slots, too."""
    for slot in "XY":
        if f"[{slot}]" not in text:
            text = re.sub(rf"(?<![\w\[]){slot}(?![\w\]])", f"[{slot}]", text, count=1)
    sentence = text if text.rstrip().endswith(".") else f"{text.rstrip()}."
    return Pattern.parse(sentence, language=language)


@dataclass(frozen=True, slots=True)
class ExampleQuery:
    """An example, ready to be searched for."""

    text: str
    swapped: str
    words: frozenset[str]
    index: FactIndex  # Facts whose names are names, however they are parsed

    @classmethod
    def of(cls, pattern: Pattern, index: FactIndex) -> ExampleQuery:
        """The query of an example; raises where it has no word to search for."""
        parts = ARTICLE.sub("", " ".join(pattern.parts)).lower()
        words = frozenset(word for word in WORD.findall(parts) if word[0].isalnum())
        if not words:
            raise ConsilienceError(
                f"the example '{pattern.text}' has no word but articles and its slots",
                expected="an example such as '[X], the capital of [Y]'",
                todo="Add the words to search for.",
            )
        text = _plain(pattern.text)
        swapped = text.replace("[x]", "[]").replace("[y]", "[x]").replace("[]", "[y]")
        return cls(text, swapped, words - COPULA or words, index)

    def search(
        self, texts: Iterable[Iterable[str]], parser: Language, advance: Advance
    ) -> Iterator[ExampleMatch]:
        """The matches in ``texts``, each a sequence of sentences."""
        sentences = (sentence for of_text in texts for sentence in of_text)
        waiting = (text for text in sentences if self.words <= set(WORD.findall(text.lower())))
        for doc, _ in parsed(((text, None) for text in waiting), parser):
            advance(1)
            yield from self.matches(doc)

    def matches(self, doc: Doc) -> Iterator[ExampleMatch]:
        """The pairs of names in a parsed sentence that match."""
        for first, second in combinations(_names(doc, self.index), 2):
            if first[1] > second[0]:
                continue
            patterns = _patterns(doc, first, second)
            names = doc.text[slice(*first)], doc.text[slice(*second)]
            for example, (subject, object_) in ((self.text, names), (self.swapped, names[::-1])):
                as_written = rf"(?<!\w){re.escape(example)}(?!\w)"
                if example in patterns or re.search(as_written, patterns[0]):
                    yield ExampleMatch(subject, object_, doc.text)
                    break


def _plain(text: str) -> str:
    """A text as it is compared: without articles, case, repeated spaces and its last full stop."""
    return " ".join(ARTICLE.sub("", text).lower().split()).removesuffix(".").rstrip()


def _patterns(doc: Doc, first: Span, second: Span) -> list[str]:
    text = doc.text
    slotted = f"{text[: first[0]]}[X]{text[first[1] : second[0]]}[Y]{text[second[1] :]}"
    try:
        return [_plain(pattern) for pattern in (slotted, *path_patterns(doc, first, second))]
    except NoPatternError:
        return [_plain(slotted)]


def _names(doc: Doc, index: FactIndex) -> list[Span]:
    spans: dict[int, Span] = {}
    known = [span for _, span in index.trie.find(doc.text)]
    for span in (*known, *_capitalised(doc), *_nouns(doc)):
        tokens = doc.char_span(*span)
        try:
            if tokens is not None:
                check_name(tokens)
                spans.setdefault(tokens.root.i, span)
        except NoPatternError:
            continue
    return sorted(spans.values())


def _capitalised(doc: Doc) -> Iterator[Span]:
    """Adjacent words that are written or parsed as names."""

    def is_name(token: Token) -> bool:
        is_noun = token.pos_ in ("NOUN", "ADJ")
        return token.pos_ == "PROPN" or (token.text[:1].isupper() and is_noun)

    for of_name, words in groupby(doc, is_name):
        if of_name:
            tokens = list(words)
            yield tokens[0].idx, tokens[-1].idx + len(tokens[-1])


def _nouns(doc: Doc) -> Iterator[Span]:
    """Common nouns, each with its compounds on the left."""
    for token in doc:
        if token.pos_ == "NOUN" and token.dep_ != "compound":
            start = token.i
            while start and doc[start - 1].dep_ == "compound" and doc[start - 1].head == token:
                start -= 1
            yield doc[start].idx, token.idx + len(token)


# The command.

REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written(Shown):
    """A result that may be in a file."""

    file: Path | None
    notes: Sequence[str] = ()

    def printed(self, output: Output) -> Iterator[Table | str]:
        yield from self.tables()
        if self.file:
            yield f"Written: {self.file}"

    def tables(self) -> Iterator[Table | str]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class MinedPatterns(_Written):
    """What ``suite mine`` proposes."""

    proposals: Mapping[str, Sequence[Proposal]]
    mined: Mined

    def tables(self) -> Iterator[Table | str]:
        names = ("specificity", "facts", "other_facts", "texts")
        columns = [Column("pattern"), Column("specificity", "share"), Column("facts", "count"),
                   Column("other facts", "count"), Column("texts", "count")]  # fmt: skip
        note = (
            "specificity: at least this share, in percent, of the connected facts are this "
            "relation's"
        )
        for relation, proposals in self.proposals.items():
            if proposals:
                sentences = counted(self.mined.by_relation[relation], "sentence")
                rows: list[list[Value]] = [
                    [one.pattern, *(one.scores[name] for name in names)] for one in proposals
                ]
                yield Table(f"{relation}: {sentences} with facts", columns, rows, [note])
                yield ""

    def document(self) -> dict[str, Any]:
        rows = [proposal.row() for rows in self.proposals.values() for proposal in rows]
        searched = {"sentences": self.mined.sentences, "pairs": self.mined.pairs}
        return {"proposals": rows, **searched, "warnings": self.notes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches(_Written):
    """What ``suite mine --like`` lists."""

    example: str
    matches: Sequence[ExampleMatch]
    has_facts: bool
    total: int

    def tables(self) -> Iterator[Table | str]:
        if not self.matches:
            yield f"No sentence matches {self.example}"
            return
        columns = [Column("X"), Column("Y"), Column("sentence")]
        rows: list[list[Value]] = [[one.subject, one.object, one.sentence] for one in self.matches]
        if self.has_facts:
            columns.insert(2, Column("fact of"))
            for row, match in zip(rows, self.matches, strict=True):
                row.insert(2, ", ".join(match.relations) or "no relation")
        yield Table(f"{self.example} {counted(self.total, 'match', 'matches')}", columns, rows)

    def document(self) -> dict[str, Any]:
        rows = [asdict(match) for match in self.matches]
        return {"example": self.example, "total": self.total, "matches": rows}


def mine_patterns(options: MineOptions, watch: Watch = SILENT) -> MinedPatterns | Matches:
    """Mine the patterns of facts, or with ``like`` list the matches of an example."""
    check_no_file(options.out)
    if options.like is not None:
        return _list_matches(options, watch)
    if options.suite is None:
        raise ConsilienceError(
            "no facts to search for",
            expected="--suite with facts, or --like with an example",
            todo="Name a suite, or a table of facts.",
        )
    facts, groups = _facts(options)
    parser = load_parser(options.parser)
    texts = _texts(options)
    with watch.steps("parsing", None, "sentences") as advance:
        mined = mine(texts, FactIndex.of(facts), parser, advance)
    source, licence = options.corpus.name, options.licence
    proposals = {
        group: mined.ranked(group, options.top, source=source, licence=licence) for group in groups
    }
    rows = [proposal for of_group in proposals.values() for proposal in of_group]
    file = options.out if rows else None
    if file:
        write_proposals(file, rows)
    notes = _notes(mined, proposals)
    return MinedPatterns(proposals=proposals, mined=mined, notes=notes, file=file)


def _list_matches(options: MineOptions, watch: Watch) -> Matches:
    example_pattern(options.like or "")  # wrong slots are reported before a parser is loaded
    parser = load_parser(options.parser)
    pattern = example_pattern(options.like or "", parser.lang)
    index = FactIndex.of(_facts(options)[0] if options.suite else {})
    query = ExampleQuery.of(pattern, index)
    texts = _texts(options)
    with watch.steps("parsing", None, "sentences") as advance:
        found = query.search(texts, parser, advance)
        matches = [
            replace(match, relations=_relations_of(match, index))
            for match in islice(found, options.top)
        ]
        total = len(matches) + sum(1 for _ in found)
    listed = Matches(
        example=pattern.text,
        matches=matches,
        has_facts=options.suite is not None,
        total=total,
        file=options.out if matches else None,
    )
    if listed.file:
        write_whole(listed.file, json_lines(map(asdict, matches)))
    return listed


def _relations_of(match: ExampleMatch, index: FactIndex) -> tuple[str, ...]:
    names = (match.subject, match.object)
    return tuple(
        index.relations[index.relation_of[fact]] + note
        for pair, note in ((names, ""), (names[::-1], " (swapped)"))
        for fact in index.facts_of.get(pair, ())
    )


def _texts(options: MineOptions) -> Iterator[Iterator[str]]:
    texts = read_sentences(options.corpus, options.column, options.title)
    first = next(texts, None)
    if first is None:
        raise ConsilienceError(
            "the corpus is empty",
            expected="at least one text",
            where=str(options.corpus),
            todo="Name a file with texts.",
        )
    return chain([first], texts)


def _facts(options: MineOptions) -> tuple[Facts, Sequence[str]]:
    facts: dict[str, list[tuple[str, str]]] = {}
    groups: list[str] = []
    for spec in (options.suite or "", *(options.against or ())):
        suite = suites.load_facts(spec, options.data_dir, as_shipped=True)
        for group in suite:
            facts.setdefault(group.id, [(fact.subject, fact.object) for fact in group.facts])
        groups = groups or list(facts)
        for name in options.groups or ():
            if name not in groups:
                raise unknown_name(f"'{options.suite}' has no relation '{name}'", name, groups)
    return facts, [group for group in groups if options.groups is None or group in options.groups]


def _notes(mined: Mined, proposals: Mapping[str, Sequence[Proposal]]) -> list[str]:
    notes = []
    empty = [group for group, rows in proposals.items() if not rows]
    if absent := [group for group in empty if not mined.by_relation[group]]:
        notes.append(
            f"no pattern of {', '.join(absent)}: no sentence has the subject and the object of a "
            "fact, as they are written in the facts"
        )
    for group in empty:
        if group not in absent:
            sentences = counted(mined.by_relation[group], "sentence")
            notes.append(f"no pattern of {group}: {sentences} with facts, of which none gives one")
    if count := mined.index.without_search:
        notes.append(f"{counted(count, 'fact')} left out: the subject is the object")
    if mined.refused:
        number = sum(mined.refused.values())
        counts = mined.refused.most_common(REASONS)
        if rest := number - sum(n for _, n in counts):
            counts.append(("other reasons", rest))
        reasons = "; ".join(f"{reason}: {n:,}" for reason, n in counts)
        notes.append(f"{number:,} of {mined.pairs:,} pairs of names give no pattern ({reasons})")
    return notes
