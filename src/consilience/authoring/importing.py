"""Imports: the formats of sources, and what of a source joins a suite."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from consilience import suites
from consilience.authoring.checks import Likeness, has_words, likeness
from consilience.core.errors import ConsilienceError, did_you_mean, missing_column, unknown_name
from consilience.core.patterns import ENGLISH
from consilience.core.text import LANGUAGE_TAG, counted, is_language_tag
from consilience.files.read import read_text
from consilience.files.rows import (
    Problems,
    Row,
    find_table,
    raise_first,
    refuse_misspelt,
    suite_rows,
)
from consilience.files.tables import ENDINGS
from consilience.files.write import json_lines, make_folder, refuse_occupied, table_of, write_whole
from consilience.options import Output
from consilience.options.suites import ImportOptions
from consilience.report.export import Shown
from consilience.suites.facts import folder_root, read_folder
from consilience.suites.layouts import N_TO_1, N_TO_M, TREX, lama_root, load_folder, pararel_root
from consilience.suites.proposals import (
    Proposal,
    columns_in,
    read_proposals,
    scores_of,
)
from consilience.suites.question_suites import columns_of
from consilience.suites.questions import file_rows
from consilience.types import FACT_COLUMNS, Cardinality, Suite

Rows = Sequence[Mapping[str, object]]


def append_rows(folder: Path, tables: Mapping[str, Rows]) -> None:
    """Add rows to the tables of a folder; a table that is not there becomes a JSONL file.

    All rows are prepared before the first file is written.
    """
    files: dict[Path, bytes] = {}
    for table, rows in tables.items():
        path = find_table(folder, table) or folder / f"{table}.jsonl"
        if path.suffix == ".jsonl" and rows:
            files[path] = json_lines(rows, path)
        elif rows:
            text = read_text(path)
            text += "" if text.endswith("\n") else "\n"
            header = text.partition("\n")[0].rstrip("\r").split("\t")
            if missing := [name for row in rows for name in row if name not in header]:
                found = f"no column '{missing[0]}', which a new row has"
                todo = "Add the column to the header, or save the table as JSONL."
                raise ConsilienceError(found, where=str(path), todo=todo)
            new = table_of([dict.fromkeys(header, ""), *rows])[1:]
            text += new.write_csv(include_header=False, separator="\t", quote_style="never")
            files[path] = text.encode()
    make_folder(folder)
    for path, content in files.items():
        write_whole(path, content)


# What a source holds.

WIKIDATA = re.compile(r"P\d+")


@dataclass(frozen=True, slots=True)
class SourceFact:
    """A fact of a source."""

    relation: str
    subject: str
    object: str
    item: str = ""  # Its id, the same in all languages; empty without one
    language: str = ""  # The language that it is written in; empty where the source has none
    where: str = ""


@dataclass(frozen=True, slots=True)
class Name:
    """How a subject or object of the facts is written in another language."""

    relation: str
    name: str
    language: str
    text: str
    form: str = ""
    where: str = ""


@dataclass(slots=True)
class Content:
    """What the files of an import hold, in their order."""

    options: ImportOptions
    languages: Sequence[str]  # Those to read; of a source without languages, that of its patterns
    columns: Mapping[str, str]  # Our names of a table's columns -> its own
    patterns: list[Proposal] = field(default_factory=list)
    facts: list[SourceFact] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    cardinalities: dict[str, Cardinality] = field(default_factory=dict)
    language: str = ""  # The language of the facts; empty where the source names none
    problems: Problems = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def said_language(self) -> str:
        """The language of a source that names none; empty for that of the suite."""
        language = ",".join(self.languages)
        if len(self.languages) > 1 or not (is_language_tag(language) or not language):
            expected = f"{LANGUAGE_TAG}, and one for a source whose patterns are in one language"
            raise ConsilienceError(f"--language {language}", expected=expected)
        return language

    def add(self, relation: str, pattern: str, path: Path, where: str, **stated: Any) -> None:
        """Add a pattern of a file; what it states itself replaces what the user says of all."""
        root, options = self.options.path, self.options
        inside = path.relative_to(root).parts if path != root else ()
        source = options.source or "/".join((root.resolve().name, *inside))
        said = {"licence": options.licence, "language": self.said_language}
        fields = {"source": source, **said} | {name: one for name, one in stated.items() if one}
        self.patterns.append(Proposal(relation, pattern, "imported", **fields, where=where))

    def take_facts(self, suite: Suite) -> None:
        """Take the facts of a suite, its labels and cardinalities in place of those of before."""
        self.facts = [
            SourceFact(group.id, fact.subject, fact.object, fact.item)
            for group in suite
            for fact in group.facts
        ]
        self.names, self.language = [], suite.language
        self.labels = {group.id: group.label for group in suite}
        self.cardinalities = {group.id: group.cardinality for group in suite}

    def refuse(self, found: str, *, expected: str = "", where: str = "", todo: str = "") -> None:
        error = ConsilienceError(found, expected=expected, where=where, todo=todo)
        self.problems.append(error)

    def select(self, relations: Sequence[str]) -> None:
        known = {one.relation for one in self.patterns} | {one.relation for one in self.facts}
        for id_ in relations:
            if known and id_ not in known:
                raise unknown_name(f"--groups {id_}", id_, sorted(known), str(self.options.path))
        self.patterns = [pattern for pattern in self.patterns if pattern.relation in relations]
        self.facts = [fact for fact in self.facts if fact.relation in relations]

    def relation_row(self, id_: str) -> dict[str, object]:
        """A relation as the source describes it, else the ParaRel paper; else as its facts are."""
        label = self.labels.get(id_) or (N_TO_1 | N_TO_M).get(id_, id_)
        if id_ in self.cardinalities:
            cardinality = self.cardinalities[id_]
        elif id_ in N_TO_1 or id_ in N_TO_M:
            cardinality = "N-1" if id_ in N_TO_1 else "N-M"
        else:
            pairs = {(fact.subject, fact.object) for fact in self.facts if fact.relation == id_}
            most = max(Counter(subject for subject, _ in pairs).values())
            cardinality = "N-M" if most > 1 else "N-1"
        return {"relation": id_, "label": label, "cardinality": cardinality}


def align_languages(content: Content) -> None:
    """Write the facts of several languages once, with their names in the other languages.

    The facts stay in English, or else in the first language. A fact stays if every language that
    has patterns of its relation has a text for it. A language without any fact of a relation loses
    its patterns of that relation, because nobody knows how their subjects are written.
    """
    versions: dict[tuple[str, str], dict[str, SourceFact]] = defaultdict(dict)
    for fact in content.facts:
        id_ = fact.item or f"{fact.subject}\t{fact.object}"  # without one its texts tell
        versions[fact.relation, id_].setdefault(fact.language, fact)
    languages = dict.fromkeys(fact.language for fact in content.facts if fact.language)
    if not languages:
        return
    first = "en" if "en" in languages else next(iter(languages))
    has_facts = {(fact.relation, fact.language) for fact in content.facts}
    needed: dict[str, set[str]] = defaultdict(set)
    patterns, content.patterns = content.patterns, []
    for pattern in patterns:
        if (pattern.relation, pattern.language) in has_facts:
            needed[pattern.relation].add(pattern.language)
            content.patterns.append(pattern)
        else:
            found = f"no fact of '{pattern.relation}' in '{pattern.language}'"
            expected = "facts in the language of the pattern"
            content.refuse(found, expected=expected, where=pattern.where)
    facts: list[SourceFact] = []
    names: dict[tuple[str, str, str], Name] = {}
    left_out = 0
    for (relation, _), of_fact in versions.items():
        if not needed[relation]:
            continue
        if not {first, *needed[relation]} <= of_fact.keys():
            left_out += 1
            continue
        fact = of_fact[first]
        facts.append(replace(fact, language=""))
        for language in needed[relation] - {first}:
            other = of_fact[language]
            for name, text in ((fact.subject, other.subject), (fact.object, other.object)):
                new = Name(relation, name, language, text, where=other.where)
                known = names.setdefault((relation, name, language), new)
                if known.text != text:
                    content.refuse(
                        f"'{name}' is '{text}' here, and '{known.text}' in another fact",
                        expected=f"one text in '{language}' for each name of a relation; the "
                        "first is kept",
                        where=other.where,
                    )
    content.facts, content.language = facts, first
    content.names = [name for _, name in sorted(names.items())]
    if left_out:
        content.notes.append(
            f"{counted(left_out, 'fact')} without a text in every language of the patterns left out"
        )


# What an import adds.

SHOWN = 10  # refusals and near-duplicates; ``--csv`` and ``--json`` have all


@dataclass(frozen=True, slots=True)
class Similar:
    """A pattern of an import that is like another one."""

    proposal: Proposal
    other: str
    likeness: Likeness
    is_kept: bool


class ImportPlan(Shown):
    """What an import adds to a suite folder, and what it leaves out.

    A pattern that is a duplicate of an earlier one of its relation is left out (``normal_form``). A
    near-duplicate is kept or left out, as ``--near-duplicates`` says. A new relation needs a
    pattern and a fact, else it is refused. ``facts_of``: the suite whose facts, labels and
    cardinalities replace those of the source. Facts whose source names no language are in that of
    the folder; of a new folder, in that of the patterns.
    """

    is_dry = True

    def __init__(self, format_: str, content: Content, facts_of: Suite | None) -> None:
        self.folder, self.format, self.content = content.options.into, format_, content
        self.suite = self._opened()
        self.is_new = self.suite is None
        if facts_of:
            content.take_facts(facts_of)
        if self.suite is None:
            content.language = content.language or content.said_language
        elif content.language not in ("", language := self.suite.language):
            found = f"facts in '{content.language}' for a suite in '{language}'"
            expected = "facts in the language of the suite"
            todo = f"Import them into a new folder, or with --language {language} too."
            raise ConsilienceError(found, expected=expected, where=str(self.folder), todo=todo)
        patterns, similar = self._new_patterns()
        in_folder = {
            (group.id, one.subject, one.object) for group in self.suite or () for one in group.facts
        }
        first: dict[tuple[str, str, str], SourceFact] = {}
        for fact in content.facts:
            first.setdefault((fact.relation, fact.subject, fact.object), fact)
        new_facts = [fact for key, fact in first.items() if key not in in_folder]
        facts = self._without_homonyms(new_facts)
        known = {group.id for group in self.suite or ()}
        with_facts = {fact.relation for fact in facts}
        added = dict.fromkeys(pattern.relation for pattern in patterns)
        self.relations = tuple(id_ for id_ in added if id_ in with_facts - known)
        imported = known | set(self.relations)
        left_out = [one.proposal for one in similar if not one.is_kept]
        lacking = (
            ([*patterns, *left_out], "fact", "pattern",
             "Take facts from a suite that has them: --facts-from SUITE."),
            ([] if facts_of else facts, "pattern", "fact",
             "Import patterns, and these facts with --facts-from TABLE."),
        )  # fmt: skip
        for rows, lacks, has, todo in lacking:
            for id_, size in Counter(row.relation for row in rows).items():
                if id_ not in imported:
                    is_ours = has == "pattern" and not WIKIDATA.fullmatch(id_)
                    content.refuse(
                        f"the relation '{id_}' has no {lacks}, so {counted(size, has)} of it "
                        "cannot be imported",
                        where=next(row.where for row in rows if row.relation == id_),
                        todo=did_you_mean(id_, sorted(known), todo) if is_ours else todo,
                    )
        self.known_facts = len(content.facts) - len(new_facts)
        """Facts that the folder has already, or that the source has twice."""
        self.similar = [one for one in similar if one.proposal.relation in imported]
        self.patterns = [pattern for pattern in patterns if pattern.relation in imported]
        self.facts = [fact for fact in facts if fact.relation in imported]
        self.names = self._new_names()
        self.refused, self.notes = tuple(content.problems), tuple(content.notes)

    def _opened(self) -> Suite | None:
        """The suite in the folder, also without patterns; None for a new or empty folder."""
        if self.folder.is_dir() and folder_root(self.folder):
            problems: Problems = []
            suite = read_folder(self.folder, problems, needs_patterns=False)
            raise_first(problems)
            return suite
        refuse_occupied(self.folder, "a suite folder with relations and facts, or a new folder")
        return None

    def _new_patterns(self) -> tuple[list[Proposal], list[Similar]]:
        content, suite = self.content, self.suite
        earlier: dict[tuple[str, str], list[str]] = defaultdict(list)
        texts: dict[str, set[str]] = defaultdict(set)
        standard = suite.language if suite else content.language or ENGLISH
        for group in suite or ():
            texts[group.id] = {pattern.text for pattern in group.patterns}
            for pattern in group.patterns:
                earlier[group.id, pattern.language].append(pattern.text)
        added: list[Proposal] = []
        similar: list[Similar] = []
        for proposal in content.patterns:
            text, language = proposal.pattern, proposal.language or standard
            in_english = language.partition("-")[0] == ENGLISH
            others = earlier[proposal.relation, language]
            if not has_words(text):
                problem = f"the pattern '{text}' has no word besides its slots"
                content.refuse(problem, where=proposal.where)
                continue
            if text in texts[proposal.relation].difference(others):
                found = f"the pattern '{text}' is also one of another language"
                expected = "different patterns in a relation"
                content.refuse(found, expected=expected, where=proposal.where)
                continue
            alike = [
                (other, how)
                for other in others
                if (how := likeness(text, other, in_english=in_english))
            ]
            if alike:  # the first duplicate, else the first near-duplicate
                like = min(alike, key=lambda one: one[1] != "duplicate")
                is_kept = like[1] != "duplicate" and content.options.near_duplicates == "keep"
                similar.append(Similar(proposal, *like, is_kept))
                if not is_kept:
                    continue
            others.append(text)
            texts[proposal.relation].add(text)
            added.append(replace(proposal, language="" if language == standard else language))
        return added, similar

    def _without_homonyms(self, facts: Sequence[SourceFact]) -> list[SourceFact]:
        """The facts without those whose object is written like an earlier one in a language.

        An answer in that language would not say which of the two objects it is. Each object that is
        left out is refused at the line of its name.
        """
        written: dict[tuple[str, str], list[Name]] = defaultdict(list)
        for name in self.content.names:
            written[name.relation, name.name].append(name)
        first: dict[tuple[str, ...], str] = {}
        for group in self.suite or ():
            objects = {fact.object for fact in group.facts}
            for writing, texts in group.names.items():
                for object_ in objects & texts.keys():
                    text = unicodedata.normalize("NFC", texts[object_])
                    first[group.id, *writing, text] = object_
        sizes = Counter((fact.relation, fact.object) for fact in facts)
        left_out = set()
        for relation, object_ in sizes:
            keys = {
                (relation, name.language, name.form, unicodedata.normalize("NFC", name.text)): name
                for name in written[relation, object_]
            }
            clash = next((key for key in keys if first.get(key, object_) != object_), None)
            if clash is None:
                first |= dict.fromkeys(keys, object_)
                continue
            left_out.add((relation, object_))
            self.content.refuse(
                f"the objects '{first[clash]}' and '{object_}' of '{relation}' are both "
                f"'{keys[clash].text}' in '{keys[clash].language}', so "
                f"{counted(sizes[relation, object_], 'fact')} of '{object_}' cannot be imported",
                where=keys[clash].where,
                todo="Write one of them in another way.",
            )
        return [fact for fact in facts if (fact.relation, fact.object) not in left_out]

    def _new_names(self) -> list[Name]:
        """The names of subjects and objects of the suite's facts that the folder does not have."""
        known: dict[tuple[str, str, str], Mapping[str, str]] = {}
        used = {(one.relation, name) for one in self.facts for name in (one.subject, one.object)}
        for group in self.suite or ():
            known |= {(group.id, *writing): names for writing, names in group.names.items()}
            used |= {(group.id, name) for one in group.facts for name in (one.subject, one.object)}
        return [
            name
            for name in self.content.names
            if (name.relation, name.name) in used
            and name.name not in known.get((name.relation, name.language, name.form), {})
        ]

    def __repr__(self) -> str:
        sizes = f"{len(self.patterns)} patterns, {len(self.facts)} facts"
        return f"ImportPlan({str(self.folder)!r}: {sizes}; {len(self.refused)} refused)"

    @property
    def adds(self) -> bool:
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
            if self.folder.exists():
                shutil.copytree(self.folder, copy)
            self.write(copy)
            errors = suites.check_suite(copy)
            if errors:
                size = f"{len(errors)} errors, the first" if len(errors) > 1 else "an error"
                tables = "" if self.is_new else f" or the tables of {self.folder}"
                todo = f"Nothing was written. Correct the source{tables}. {errors[0].todo}"
                found = f"the suite would have {size}: {errors[0].found}"
                expected = errors[0].expected
                where = self._place(errors[0].where, copy)
                raise ConsilienceError(found, expected=expected, where=where, todo=todo.rstrip())

    def _place(self, where: str, copy: Path) -> str:
        """The place in the source of a row that is added; any other place in the folder."""
        path, _, line = where.rpartition(":")
        table = Path(path).stem
        is_ours = table in ("patterns", "facts", "names")
        added: Sequence[Proposal | SourceFact | Name] = getattr(self, table) if is_ours else ()
        before = find_table(self.folder, table)
        lines = len(read_text(before).rstrip("\n").split("\n")) if before else 0
        at = int(line) - lines - 1 if line.isdigit() else -1
        source = added[at].where if 0 <= at < len(added) else ""
        return source or where.replace(str(copy), str(self.folder))

    def write(self, folder: Path | None = None) -> None:
        if not self.adds:
            return
        folder, language = folder or self.folder, self.content.language
        in_suite = ("relation", "pattern", "language", "form", "subject_form")
        append_rows(folder, {
            "relations": [self.content.relation_row(id_) for id_ in self.relations],
            "patterns": [_row(one.row(), *in_suite) for one in self.patterns],
            "facts": [_row(asdict(one), "relation", "item", "subject", "object")
                      for one in self.facts],
            "names": [_row(asdict(one), "relation", "name", "language", "form", "text")
                      for one in self.names],
        })  # fmt: skip
        if self.is_new and language not in ("", ENGLISH):
            about = {"name": folder.resolve().name, "language": language}
            write_whole(folder / "suite.json", json.dumps(about).encode())

    def printed(self, output: Output) -> Iterator[str]:
        duplicates = sum(similar.likeness == "duplicate" for similar in self.similar)
        near = [similar for similar in self.similar if similar.likeness != "duplicate"]
        fate = "" if not near else " kept" if near[0].is_kept else " left out"
        facts = f", {counted(self.known_facts, 'fact')} left out" if self.known_facts else ""
        yield f"{self.folder} ({'new' if self.is_new else 'existing'} suite), read as {self.format}"
        sizes = {
            "relation": self.relations, "pattern": self.patterns, "fact": self.facts,
            "name": self.names,
        }  # fmt: skip
        added = ", ".join(counted(len(rows), noun) for noun, rows in sizes.items() if rows)
        yield f"added:           {added or 'nothing'}"
        yield f"duplicates:      {counted(duplicates, 'pattern')} left out{facts}"
        yield f"near-duplicates: {counted(len(near), 'pattern')}{fate}"
        alike = [f"{one.proposal.relation}: {one.proposal.pattern}  ({one.likeness}: {one.other})"
                 for one in near]  # fmt: skip
        yield from _first(alike)
        yield f"refused:         {len(self.refused):,}"
        yield from _first(list(map(str, self.refused)))
        if self.failed:
            yield "Nothing was written, because everything was refused."
        elif not self.adds:
            yield "Nothing was written, because nothing is new."
        elif self.is_dry:
            yield "Nothing was written. Rerun the command without --dry-run to import."
        else:
            yield f"Check: consilience suite check {shlex.quote(str(self.folder))}"

    def document(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder), "format": self.format,
            "written": self.adds and not self.is_dry, "relations": self.relations,
            "facts": len(self.facts), "patterns": self.frame().to_dicts(), "warnings": self.notes,
        }  # fmt: skip

    def frame(self) -> pl.DataFrame:
        """One row for each pattern that is added, left out or a near-duplicate, and each refusal.

        ``what``: ``added``, ``duplicate``, ``near-duplicate`` (left out, or also ``added`` in a row
        of its own) or ``refused``. ``reason``: how a pattern is like ``other``, or why it is
        refused.
        """
        names = ("what", "relation", "pattern", "reason", "other", "where")
        rows: list[tuple[str | None, ...]] = [
            ("added", p.relation, p.pattern, None, None, p.where) for p in self.patterns
        ]
        for one in self.similar:
            p, how = one.proposal, "" if one.likeness == "duplicate" else one.likeness
            what = "near-duplicate" if how else "duplicate"
            rows.append((what, p.relation, p.pattern, how, one.other, p.where))
        for error in self.refused:
            reason = str(error).removeprefix(f"{error.where}: ")
            rows.append(("refused", None, None, reason, None, error.where))
        return pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")

    def exit_status(self) -> int:
        """2 if everything was refused."""
        return 2 if self.failed else 0


def _first(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"  {line}" for line in lines[:SHOWN])
    if len(lines) > SHOWN:
        yield f"  ... {len(lines) - SHOWN:,} more; --csv FILE has all"


def _row(values: Mapping[str, object], *names: str) -> dict[str, object]:
    return {name: values[name] for name in names if values.get(name)}


def import_patterns(options: ImportOptions) -> ImportPlan:
    """Read a source, compare it with the suite folder, and add what is new."""
    source, content = options.path, Content(options, options.language, columns_of(options.columns))
    if not source.exists():
        raise ConsilienceError("no such file or folder", where=str(source), todo="Check the path.")
    found = next((name for name, of in FORMATS.items() if of.matches(source)), None)
    name = options.format or found
    if name is None:
        found = "nothing that can be imported"
        expected = "; ".join(f"{name}: {of.about}" for name, of in FORMATS.items())
        todo = "Name the format with --format."
        raise ConsilienceError(found, expected=expected, where=str(source), todo=todo)
    FORMATS[name].read(content)
    if options.groups:
        content.select(options.groups)
    align_languages(content)
    if not (content.patterns or content.facts or content.problems):
        found = f"no pattern and no fact, read as {name}"
        todo = "Check the file, or name another format with --format."
        raise ConsilienceError(found, where=str(source), todo=todo)
    suite = suites.load_facts(options.facts_from, options.data_dir) if options.facts_from else None
    plan = ImportPlan(name, content, suite)
    plan.check()
    if not options.dry_run:
        plan.write()
        plan.is_dry = False
    return plan


# Proposals and suites.


def _read_proposals(content: Content) -> None:
    """Proposals keep their provenance; where the source or licence is empty, the user's is used."""
    options = content.options
    proposals = read_proposals(options.path, content.problems)
    if left_out := sum(proposal.accept == "no" for proposal in proposals):
        content.notes.append(f"not accepted: {left_out} of {counted(len(proposals), 'proposal')}")
    content.patterns = [
        replace(
            proposal,
            source=proposal.source or options.source or options.path.name,
            licence=proposal.licence or options.licence,
            language=proposal.language or content.said_language,
        )
        for proposal in proposals
        if proposal.accept == "yes"
    ]


def _read_suite(content: Content) -> None:
    """A suite folder in our layout, ParaRel's or LAMA's."""
    path = content.options.path
    suite = load_folder(path)
    content.take_facts(suite)
    if any(group.edges for group in suite):
        content.notes.append("edges and annotations of patterns are not imported")
    for group in suite:
        for pattern in group.patterns:
            needs: dict[str, Any] = {"form": pattern.object_form, "language": pattern.language}
            needs["subject_form"] = pattern.subject_form
            content.add(group.id, pattern.text, path, str(path), **needs)
        content.names += [
            Name(group.id, name, language, text, form)
            for (language, form), names in group.names.items()
            for name, text in names.items()
        ]


# Rows: of files for each relation (LPAQA, ParaRel, mParaRel, mLAMA), of spreadsheets.


def _read_file(path: Path, content: Content, relation: str = "", language: str = "") -> None:
    """The patterns and facts of a file; ``relation``: that of all rows, if they name none."""
    if path.suffix != ".txt":
        rows = suite_rows(path, content.problems)
    else:
        lines = enumerate(read_text(path).splitlines(), start=1)
        cells = ((f"{path}:{at}", {"pattern": line.strip()}) for at, line in lines if line.strip())
        rows = (Row(where, of_line, content.problems) for where, of_line in cells)
    for row in rows:
        if relation or row.pattern("template"):
            _add_row(row, path, content, relation, language)


def _add_row(
    row: Row, path: Path, content: Content, relation: str = "", language: str = ""
) -> None:
    """Add the pattern and the fact of a row.

    A pattern is in ``pattern`` or ``template``. A fact has the names of a spreadsheet or those of
    T-REx and mLAMA.
    """
    id_ = relation or row.text("relation")
    if not relation and not row.is_relation_id(id_):
        return
    if not language and (label := row.optional_text("label")):
        content.labels.setdefault(id_, label)
    column = next((name for name in ("pattern", "template") if name in row.cells), "")
    names = TREX if "sub_label" in row.cells else FACT_COLUMNS
    has_fact = any(name in row.cells for name in names[:2])
    pattern = row.pattern(column or "pattern") if column or not has_fact else None
    if pattern:
        said = {name: row.optional_text(name) for name in ("source", "licence", "language")}
        said |= {"form": pattern.object_form, "subject_form": pattern.subject_form}
        said |= {"language": language} if language else {}
        scores = scores_of(row, (*TABLE_COLUMNS, "template"))
        content.add(id_, pattern.text, path, row.where, **said, scores=scores)
    if has_fact:
        subject, object_ = (row.text(name) for name in names[:2])
        ids = [row.optional_text(name) for name in ("sub_uri", "obj_uri")]
        line = row.optional_text("lineid")
        item = row.optional_text(names[2]) or (f"{id_}-line-{line}" if line else "")
        item = item or ("-".join(ids) if all(ids) else "")
        if subject and object_:
            fact = SourceFact(id_, subject, object_, item, language, row.where)
            content.facts.append(fact)


def _files_in(folder: Path) -> list[Path]:
    """The files of a folder that are named by a relation, in numerical order."""
    paths = [path for path in folder.iterdir() if path.suffix in (".jsonl", ".txt")]
    paths = [path for path in paths if path.stem != "templates" and path.is_file()]
    return sorted(paths, key=lambda path: (len(path.stem), path.stem))


def _is_wikidata(path: Path) -> bool:
    return bool(WIKIDATA.fullmatch(path.stem)) and path.suffix in (".jsonl", ".txt")


def _wikidata_files(root: Path) -> list[Path]:
    """The files of a folder, or of its subfolders, that are named by ids of Wikidata."""
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    return [path for folder in folders for path in _files_in(folder) if _is_wikidata(path)]


def _read_relation_files(content: Content) -> None:
    root = content.options.path
    files = _wikidata_files(root) or _files_in(root) if root.is_dir() else [root]
    for path in files:
        _read_file(path, content, content.options.relation or path.stem)


def _language_folders(root: Path) -> dict[Path, str]:
    """Folders named by a language, in mParaRel's ``patterns`` and ``tuples`` or at the root."""
    parents = (root, root / "patterns", root / "tuples")
    return {
        folder: folder.name
        for parent in parents
        if parent.is_dir()
        for folder in sorted(parent.iterdir())
        if folder.is_dir() and is_language_tag(folder.name) and any(folder.glob("*.jsonl"))
    }


def _read_languages(content: Content) -> None:
    """Read mParaRel and mLAMA: a folder for each language, a file for each relation."""
    folders = _language_folders(content.options.path)
    known = sorted(set(folders.values()))
    for language in content.languages:
        if language not in known:
            found = f"no folder for the language '{language}'"
            where = str(content.options.path)
            raise ConsilienceError(found, where=where, todo=did_you_mean(language, known))
    chosen = content.languages or known
    content.languages = ()
    for folder, language in folders.items():
        if language in chosen:
            for path in _files_in(folder):
                _read_file(path, content, path.stem, language)
            if (templates := folder / "templates.jsonl").is_file():
                _read_file(templates, content, language=language)


TABLE_COLUMNS: Mapping[str, str] = {
    "relation": "the id of the relation",
    "pattern": "a pattern with [X] and [Y]",
    "subject": "the subject of a fact",
    "object": "the object of a fact",
    "item": "the id of a fact",
    "label": "the name of the relation for people",
    "language": "the language of the pattern",
    "form": "the written form of the object that the pattern needs",
    "subject_form": "the written form of the subject that the pattern needs",
    "source": "what the pattern comes from",
    "licence": "the licence of the pattern",
}
"""The columns of a spreadsheet, and what they hold; ``--columns OURS=YOURS`` renames them."""


def _read_table(content: Content) -> None:
    columns, path = content.columns, content.options.path
    for name in columns:
        if name not in TABLE_COLUMNS:
            raise unknown_name(f"--columns {name}={columns[name]}", name, TABLE_COLUMNS)
    for number, (where, cells) in enumerate(file_rows(path, content.problems, (*ENDINGS, ".gz"))):
        if number == 0:
            has_fact = all(columns.get(one, one) in cells for one in ("subject", "object"))
            needed = {} if content.options.relation else {"relation": "relation"}
            needed |= {} if has_fact else {"pattern": "pattern"}
            for name, column in (needed | dict(columns)).items():
                todo = f"Name the column that has it: --columns {name}=COLUMN"
                todo += ", or name the relation: --relation ID." if name == "relation" else "."
                if column not in cells:
                    expected, names = TABLE_COLUMNS[name], list(cells)
                    raise missing_column(column, names, expected=expected, where=where, todo=todo)
            others = [name for name in cells if name not in columns.values()]
            refuse_misspelt(others, [name for name in TABLE_COLUMNS if name not in columns], where)
        named = {name: cells.get(columns.get(name, name)) for name in TABLE_COLUMNS}
        filled = {name: value for name, value in named.items() if value not in (None, "")}
        filled.setdefault("relation", content.options.relation or None)
        _add_row(Row(where, filled, content.problems), path, content)


class Format(NamedTuple):
    """A format that can be imported."""

    about: str
    matches: Callable[[Path], object]
    read: Callable[[Content], None]


FORMATS: Mapping[str, Format] = {
    "proposals": Format(
        "a file of proposals", lambda path: "origin" in columns_in(path), _read_proposals
    ),
    "suite": Format(
        "a suite folder",
        lambda path: pararel_root(path) or lama_root(path) or find_table(path, "patterns"),
        _read_suite,
    ),
    "mpararel": Format(
        "a folder for each language (mParaRel, mLAMA)", _language_folders, _read_languages
    ),
    "lpaqa": Format(
        "a file for each relation, such as P19.jsonl (LPAQA), or a text with a pattern a line",
        lambda path: (
            _wikidata_files(path) if path.is_dir() else path.suffix == ".txt" or _is_wikidata(path)
        ),
        _read_relation_files,
    ),
    "table": Format(
        f"a spreadsheet ({', '.join(ENDINGS)})",
        lambda path: path.is_file() and path.name.endswith(ENDINGS),
        _read_table,
    ),
}
