"""suite mine: patterns of a corpus that connect known facts, and queries by example."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.authoring.corpus import read_sentences
from consilience.authoring.mining import Mined, mine
from consilience.authoring.mining_examples import ExampleMatch, ExampleQuery, example_pattern
from consilience.authoring.mining_search import FactIndex, Facts
from consilience.errors import ConsilienceError, unknown_name
from consilience.files import write_whole
from consilience.options import Output
from consilience.report.mining_tables import match_table, proposal_table
from consilience.report.shown import Shown
from consilience.report.table import Table
from consilience.suites.proposals import Proposal, check_no_file, write_proposals
from consilience.text import counted
from consilience.watch import SILENT, Watch
from consilience.workflow.facts_alone import load_facts
from consilience.workflow.suite_options import MineOptions

if TYPE_CHECKING:
    from spacy.language import Language

REASONS = 3
"""Reasons that a note lists, the most frequent first."""


@dataclass(frozen=True, slots=True)
class MinedPatterns(Shown):
    """What ``suite mine`` proposes."""

    proposals: Mapping[str, Sequence[Proposal]]
    """Relation -> its proposals, the most specific first."""
    mined: Mined
    """All patterns with their counts."""
    notes: Sequence[str]
    """What a reader should know."""
    file: Path | None
    """The file that was written; None where none was wanted, or nothing is in it."""
    wanted: Path | None = None
    """The file that was wanted."""

    def printed(self, output: Output) -> Iterator[Table | str]:
        """Proposals by relation."""
        for relation, proposals in self.proposals.items():
            if proposals:
                sentences = counted(self.mined.by_relation[relation], "sentence")
                yield proposal_table(f"{relation}: {sentences} with facts", proposals)
                yield ""
        yield from [f"Written: {self.file}"] * (self.file is not None)

    def document(self) -> dict[str, Any]:
        """The proposals as rows."""
        rows = [proposal.row() for rows in self.proposals.values() for proposal in rows]
        searched = {"sentences": self.mined.sentences, "pairs": self.mined.pairs}
        return {"proposals": rows, **searched, "warnings": self.notes}

    def remarks(self, output: Output) -> list[str]:
        """The notes, and that no file was written."""
        return [*self.notes, *_unwritten(self)]


@dataclass(frozen=True, slots=True)
class Matches(Shown):
    """What ``suite mine --like`` lists."""

    example: str
    """The example as a pattern."""
    matches: Sequence[ExampleMatch]
    """The first matches."""
    relations: Sequence[tuple[str, ...]] | None
    """Of each match, the relations that have its names as a fact; None without a suite.

    ``(swapped)`` follows a relation where X is the object and Y the subject.
    """
    total: int
    """All matches."""
    file: Path | None
    """The file that was written; None where none was wanted, or nothing is in it."""
    wanted: Path | None = None
    """The file that was wanted."""

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The matches."""
        if not self.matches:
            yield f"No sentence matches {self.example}"
            return
        title = f"{self.example} {counted(self.total, 'match', 'matches')}"
        matches = [(match.subject, match.object, match.sentence) for match in self.matches]
        yield match_table(title, matches, self.relations)
        yield from [f"Written: {self.file}"] * (self.file is not None)

    def document(self) -> dict[str, Any]:
        """The matches as rows."""
        of_all = self.relations or [()] * len(self.matches)
        rows = [
            {**asdict(match), "relations": relations}
            for match, relations in zip(self.matches, of_all, strict=True)
        ]
        return {"example": self.example, "total": self.total, "matches": rows}

    def remarks(self, output: Output) -> list[str]:
        """That no file was written."""
        return _unwritten(self)


def _unwritten(result: MinedPatterns | Matches) -> list[str]:
    note = f"{result.wanted} is not written: there is nothing to write"
    return [note] if result.wanted and not result.file else []


def mine_patterns(options: MineOptions, watch: Watch = SILENT) -> MinedPatterns | Matches:
    """Mine the patterns of facts, or with ``like`` list the matches of an example.

    A corpus without text raises, and so does an existing output file.
    """
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
    parser = _load(options.parser)
    texts = _texts(options)
    with watch.steps("parsing", None, "sentences") as advance:
        mined = mine(texts, FactIndex.of(facts), parser, advance)
    source, licence = options.corpus.name, options.licence
    proposals = {
        group: list(mined.proposals(group, options.top, source=source, licence=licence))
        for group in groups
    }
    rows = [proposal for of_group in proposals.values() for proposal in of_group]
    file = options.out if rows else None
    if file:
        write_proposals(file, rows)
    return MinedPatterns(proposals, mined, _notes(mined, proposals), file, options.out)


def _list_matches(options: MineOptions, watch: Watch) -> Matches:
    example_pattern(options.like or "")  # wrong slots are reported before a parser is loaded
    parser = _load(options.parser)
    pattern = example_pattern(options.like or "", parser.lang)
    facts = _facts(options)[0] if options.suite else {}
    index = FactIndex.of(facts)
    query = ExampleQuery.of(pattern, index)
    texts = _texts(options)
    with watch.steps("parsing", None, "sentences") as advance:
        found_matches = query.search(texts, parser, advance)
        matches = list(islice(found_matches, options.top))
        total = len(matches) + sum(1 for _ in found_matches)
    relations = [_relations_of(match, index) for match in matches] if options.suite else None
    file = options.out if matches else None
    if file:
        rows = [
            {**asdict(match), "relations": list(ids)}
            for match, ids in zip(matches, relations or [()] * len(matches), strict=True)
        ]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_whole(file, lines.encode())
    return Matches(pattern.text, matches, relations, total, file, options.out)


def _relations_of(match: ExampleMatch, index: FactIndex) -> tuple[str, ...]:
    names = (match.subject, match.object)
    return tuple(
        index.relations[index.relation_of[fact]] + note
        for pair, note in ((names, ""), (names[::-1], " (swapped)"))
        for fact in index.facts_of.get(pair, ())
    )


def _texts(options: MineOptions) -> Iterator[Iterator[str]]:
    """The sentences of each text of the corpus; a corpus without text raises."""
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


def _load(parser: str) -> Language:
    from consilience.analysis.syntax import load_parser

    return load_parser(parser)


def _facts(options: MineOptions) -> tuple[Facts, Sequence[str]]:
    """The facts of all relations, and the relations whose patterns are wanted."""
    facts = _pairs(options.suite or "", options)
    groups = list(facts)
    for name in options.groups or ():
        if name not in facts:
            raise unknown_name(f"'{options.suite}' has no relation '{name}'", name, groups)
    for other in options.against or ():
        for relation, pairs in _pairs(other, options).items():
            facts.setdefault(relation, pairs)
    return facts, [group for group in groups if options.groups is None or group in options.groups]


def _pairs(spec: str, options: MineOptions) -> dict[str, list[tuple[str, str]]]:
    suite = load_facts(spec, options.data_dir, as_shipped=True)
    return {group.id: [(fact.subject, fact.object) for fact in group.facts] for group in suite}


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
