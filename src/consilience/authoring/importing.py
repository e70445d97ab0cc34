"""Import: what a source holds becomes part of a suite folder, without what the folder has.

Nothing is written before everything is known (``ImportPlan``), so that a dry run shows the same.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from consilience.authoring.folder_tables import Rows, append_rows
from consilience.authoring.import_content import WIKIDATA, Content, Name, SourceFact
from consilience.authoring.near_duplicates import Likeness, has_words, likeness
from consilience.cloze import ENGLISH
from consilience.errors import ConsilienceError, did_you_mean
from consilience.files import write_whole
from consilience.read import read_text
from consilience.suites.folder import folder_root, read_folder
from consilience.suites.layouts import check_folder
from consilience.suites.proposals import TABLE, Proposal
from consilience.suites.rows import Problems, find_table, raise_first
from consilience.text import counted
from consilience.types import Suite

Near = Literal["keep", "drop"]
"""What happens to near-duplicates."""


@dataclass(frozen=True, slots=True)
class Similar:
    """A pattern of an import that is like another one."""

    proposal: Proposal
    other: str
    """The pattern that it is like, which comes first."""
    likeness: Likeness
    """How they are alike."""
    is_kept: bool
    """Whether the pattern is imported all the same."""


@dataclass(frozen=True, slots=True, repr=False)
class ImportPlan:
    """What an import adds to a suite folder, and what it leaves out."""

    folder: Path
    format: str
    is_new: bool
    patterns: tuple[Proposal, ...]
    facts: tuple[SourceFact, ...]
    names: tuple[Name, ...]
    """The names in other languages that are added."""
    relations: tuple[str, ...]
    similar: tuple[Similar, ...]
    """Duplicates, which are left out, and near-duplicates."""
    known_facts: int
    """Facts that the folder has already, or that the source has twice."""
    refused: tuple[ConsilienceError, ...]
    """What cannot be imported, by file and line."""
    notes: tuple[str, ...]
    """What a reader should know."""
    tables: Mapping[str, Rows] = field(repr=False)
    """The rows that are added to each table."""
    language: str = ""
    """The language of the facts; empty where the source names none."""

    def __repr__(self) -> str:
        sizes = f"{len(self.patterns)} patterns, {len(self.facts)} facts"
        return f"ImportPlan({str(self.folder)!r}: {sizes}; {len(self.refused)} refused)"

    @property
    def adds(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.patterns or self.facts)

    @property
    def failed(self) -> bool:
        """Whether the source has nothing that the folder could take or has already."""
        return bool(self.refused) and not (self.adds or self.similar or self.known_facts)

    def check(self) -> None:
        """Raise where the suite would have an error with the new rows."""
        if not self.adds:
            return
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / self.folder.resolve().name
            if self.folder.is_dir():
                shutil.copytree(self.folder, copy)
            self._write_to(copy)
            errors = check_folder(copy)
            size = f"{len(errors)} errors, the first" if len(errors) > 1 else "an error"
            for error in errors:
                tables = "" if self.is_new else f" or the tables of {self.folder}"
                raise ConsilienceError(
                    f"the suite would have {size}: {error.found}",
                    expected=error.expected,
                    where=self._place(error.where, copy),
                    todo=f"Nothing was written. Correct the source{tables}. {error.todo}".rstrip(),
                )

    def write(self) -> None:
        """Add the rows to the folder; raise where the suite would have an error."""
        self.check()
        if self.adds:
            self._write_to(self.folder)

    def _place(self, where: str, copy: Path) -> str:
        """The place in the source of a row that is added; any other place in the folder."""
        path, _, line = where.rpartition(":")
        table = Path(path).stem
        rows: dict[str, Sequence[Proposal | SourceFact | Name]] = {
            "patterns": self.patterns,
            "facts": self.facts,
            "names": self.names,
        }
        added = rows.get(table, ())
        before = find_table(self.folder, table)
        lines = len(read_text(before).rstrip("\n").split("\n")) if before else 0
        at = int(line) - lines - 1 if line.isdigit() else -1
        source = added[at].where if 0 <= at < len(added) else ""
        return source or where.replace(str(copy), str(self.folder))

    def _write_to(self, folder: Path) -> None:
        append_rows(folder, self.tables)
        if self.is_new and self.language not in ("", ENGLISH):
            about = {"name": folder.resolve().name, "language": self.language}
            write_whole(folder / "suite.json", json.dumps(about).encode())


def plan_import(
    folder: Path,
    format_: str,
    content: Content,
    *,
    near: Near = "keep",
    facts_of: Suite | None = None,
) -> ImportPlan:
    """What an import of ``content`` adds to a folder.

    A pattern that is a duplicate of an earlier one of its relation is left out (``normal_form``). A
    near-duplicate is kept or left out, as ``near`` says. A new relation needs a pattern and a fact,
    else it is refused. ``facts_of``: the suite whose facts, labels and cardinalities replace those
    of the source. Facts whose source names no language are in that of the folder; of a new folder,
    in that of the patterns.
    """
    suite = _suite_in(folder)
    if facts_of is not None:
        _replace_facts(content, facts_of)
    if suite is None:
        content.language = content.language or content.reading.language
    if suite and content.language not in ("", suite.language):
        raise ConsilienceError(
            f"facts in '{content.language}' for a suite in '{suite.language}'",
            expected="facts in the language of the suite",
            where=str(folder),
            todo=f"Import them into a new folder, or with --language {suite.language} too.",
        )
    refused = list(content.problems)
    patterns, similar = _new_patterns(content, suite, near, refused)
    known = {group.id for group in suite} if suite else set()
    facts, known_facts = _new_facts(content, suite)
    facts = _without_homonyms(facts, content.names, suite, refused)
    with_facts = {fact.relation for fact in facts}
    added = dict.fromkeys(pattern.relation for pattern in patterns)
    relations = [id_ for id_ in added if id_ in with_facts - known]
    imported = known | set(relations)
    left_out = [one.proposal for one in similar if not one.is_kept]
    refused += _without_facts([*patterns, *left_out], imported, known)
    refused += [] if facts_of else _without_patterns(facts, imported)
    similar = [one for one in similar if one.proposal.relation in imported]
    patterns = [pattern for pattern in patterns if pattern.relation in imported]
    facts = [fact for fact in facts if fact.relation in imported]
    names = _new_names(content, suite, facts)
    tables: dict[str, Rows] = {
        "relations": [_relation_row(id_, content) for id_ in relations],
        "patterns": [_pattern_row(pattern) for pattern in patterns],
        "facts": [_fact_row(fact) for fact in facts],
        "names": [name.row() for name in names],
        TABLE: [pattern.row() for pattern in patterns],
    }
    return ImportPlan(
        folder,
        format_,
        suite is None,
        tuple(patterns),
        tuple(facts),
        tuple(names),
        tuple(relations),
        tuple(similar),
        known_facts,
        tuple(refused),
        tuple(content.notes),
        tables,
        content.language,
    )


def _suite_in(folder: Path) -> Suite | None:
    """The suite in a folder, also without patterns; None for a new or empty folder.

    Other content raises.
    """
    if folder.is_dir() and folder_root(folder):
        problems: Problems = []
        suite = read_folder(folder, problems, needs_patterns=False)
        raise_first(problems)
        return suite
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConsilienceError(
            "a file" if not folder.is_dir() else "a folder that is not empty and holds no suite",
            expected="a suite folder with relations and facts, a new folder, or an empty one",
            where=str(folder),
            todo="Name another folder with --into.",
        )
    return None


def _replace_facts(content: Content, suite: Suite) -> None:
    """Use the facts, labels and cardinalities of another suite."""
    content.facts = [
        SourceFact(group.id, fact.subject, fact.object, fact.item)
        for group in suite
        for fact in group.facts
    ]
    content.names, content.language = [], suite.language
    content.labels = {group.id: group.label for group in suite}
    content.cardinalities = {group.id: group.cardinality for group in suite}


def _new_patterns(
    content: Content, suite: Suite | None, near: Near, refused: Problems
) -> tuple[list[Proposal], list[Similar]]:
    """The patterns that are added, and those that are like an earlier one of their relation."""
    earlier: dict[tuple[str, str], list[str]] = defaultdict(list)
    standard = suite.language if suite else content.language or ENGLISH
    for group in suite or ():
        for pattern in group.patterns:
            earlier[group.id, pattern.language].append(pattern.text)
    texts = defaultdict(set, {id_: set(others) for (id_, _), others in earlier.items()})
    added: list[Proposal] = []
    similar: list[Similar] = []
    for proposal in content.patterns:
        if not has_words(proposal.pattern):
            refused.append(
                ConsilienceError(
                    f"the pattern '{proposal.pattern}' has no word besides its slots",
                    where=proposal.where,
                )
            )
            continue
        language = proposal.language or standard
        others = earlier[proposal.relation, language]
        if proposal.pattern in texts[proposal.relation].difference(others):
            refused.append(
                ConsilienceError(
                    f"the pattern '{proposal.pattern}' is also one of another language",
                    expected="different patterns in a relation",
                    where=proposal.where,
                )
            )
            continue
        if like := _most_similar(proposal.pattern, language, others):
            other, how = like
            is_kept = how != "duplicate" and near == "keep"
            similar.append(Similar(proposal, other, how, is_kept))
            if not is_kept:
                continue
        others.append(proposal.pattern)
        texts[proposal.relation].add(proposal.pattern)
        added.append(replace(proposal, language="" if language == standard else language))
    return added, similar


def _most_similar(
    pattern: str, language: str, others: Sequence[str]
) -> tuple[str, Likeness] | None:
    """The first duplicate among other patterns, else the first near-duplicate; None without."""
    in_english = language.partition("-")[0] == ENGLISH
    alike = [
        (other, how) for other in others if (how := likeness(pattern, other, in_english=in_english))
    ]
    same = [(other, how) for other, how in alike if how == "duplicate"]
    return next(iter([*same, *alike]), None)


def _new_facts(content: Content, suite: Suite | None) -> tuple[list[SourceFact], int]:
    """The facts that the folder does not have, and the number of the others."""
    facts = [(group.id, fact) for group in suite or () for fact in group.facts]
    known = {(id_, fact.subject, fact.object) for id_, fact in facts}
    new: list[SourceFact] = []
    for fact in content.facts:
        key = (fact.relation, fact.subject, fact.object)
        if key not in known:
            new.append(fact)
        known.add(key)
    return new, len(content.facts) - len(new)


def _new_names(content: Content, suite: Suite | None, facts: Sequence[SourceFact]) -> list[Name]:
    """The names of subjects and objects of the suite's facts that the folder does not have."""
    known: dict[tuple[str, str, str], Mapping[str, str]] = {}
    used = {(fact.relation, name) for fact in facts for name in (fact.subject, fact.object)}
    for group in suite or ():
        known |= {(group.id, *writing): names for writing, names in group.names.items()}
        used |= {(group.id, name) for fact in group.facts for name in (fact.subject, fact.object)}
    return [
        name
        for name in content.names
        if (name.relation, name.name) in used
        and name.name not in known.get((name.relation, name.language, name.form), {})
    ]


def _without_homonyms(
    facts: Sequence[SourceFact], names: Sequence[Name], suite: Suite | None, refused: Problems
) -> list[SourceFact]:
    """The facts without those whose object is written like an earlier one in a language.

    An answer in that language would not say which of the two objects it is. Each object that is
    left out is refused at the line of its name.
    """
    written: dict[tuple[str, str], list[Name]] = defaultdict(list)
    for name in names:
        written[name.relation, name.name].append(name)
    first: dict[tuple[str, str, str, str], str] = {}
    for group in suite or ():
        objects = {fact.object for fact in group.facts}
        for writing, texts in group.names.items():
            for object_ in objects & texts.keys():
                first[group.id, *writing, unicodedata.normalize("NFC", texts[object_])] = object_
    left_out: dict[tuple[str, str], tuple[Name, str]] = {}
    for relation, object_ in dict.fromkeys((fact.relation, fact.object) for fact in facts):
        keys = {
            (relation, name.language, name.form, unicodedata.normalize("NFC", name.text)): name
            for name in written[relation, object_]
        }
        clash = next((key for key in keys if first.get(key, object_) != object_), None)
        if clash:
            left_out[relation, object_] = keys[clash], first[clash]
        else:
            first |= dict.fromkeys(keys, object_)
    sizes = Counter((fact.relation, fact.object) for fact in facts)
    for key, (name, other) in left_out.items():
        refused.append(
            ConsilienceError(
                f"the objects '{other}' and '{name.name}' of '{name.relation}' are both "
                f"'{name.text}' in '{name.language}', so {counted(sizes[key], 'fact')} of "
                f"'{name.name}' cannot be imported",
                where=name.where,
                todo="Write one of them in another way.",
            )
        )
    return [fact for fact in facts if (fact.relation, fact.object) not in left_out]


def _without_facts(
    patterns: Sequence[Proposal], imported: Collection[str], known: Collection[str]
) -> Problems:
    """A problem for each relation that is not imported; ``known``: the relations of the folder."""
    problems: Problems = []
    sizes = Counter(pattern.relation for pattern in patterns)
    for id_, size in sizes.items():
        if id_ in imported:
            continue
        hint = "" if WIKIDATA.fullmatch(id_) else did_you_mean(id_, sorted(known))
        problems.append(
            ConsilienceError(
                f"the relation '{id_}' has no fact, so {counted(size, 'pattern')} of it "
                "cannot be imported",
                where=next(pattern.where for pattern in patterns if pattern.relation == id_),
                todo=hint
                if hint.startswith("Did")
                else "Take facts from a suite that has them: --facts-from SUITE.",
            )
        )
    return problems


def _without_patterns(facts: Sequence[SourceFact], imported: Collection[str]) -> Problems:
    """A problem for each relation with facts that is not imported, because it has no pattern."""
    first: dict[str, SourceFact] = {}
    for fact in facts:
        first.setdefault(fact.relation, fact)
    sizes = Counter(fact.relation for fact in facts)
    return [
        ConsilienceError(
            f"the relation '{id_}' has no pattern, so {counted(sizes[id_], 'fact')} of it "
            "cannot be imported",
            where=fact.where,
            todo="Import patterns, and these facts with --facts-from TABLE.",
        )
        for id_, fact in first.items()
        if id_ not in imported
    ]


def _relation_row(id_: str, content: Content) -> dict[str, object]:
    cardinality = content.cardinality_of(id_)
    return {"relation": id_, "label": content.label_of(id_), "cardinality": cardinality}


def _pattern_row(proposal: Proposal) -> dict[str, object]:
    row = proposal.row()
    names = ("relation", "pattern", "language", "form", "subject_form")
    return {name: row[name] for name in names if name in row}


def _fact_row(fact: SourceFact) -> dict[str, object]:
    item = {"item": fact.item} if fact.item else {}
    return {"relation": fact.relation, **item, "subject": fact.subject, "object": fact.object}
