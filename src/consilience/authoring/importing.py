"""Imported and new suites: what is in them and how they are written."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from consilience import suites
from consilience.authoring.pattern_checks import Likeness, has_words, likeness
from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.patterns import ENGLISH
from consilience.core.text import LANGUAGE_TAG, counted, is_language_tag
from consilience.files.read import read_text
from consilience.files.rows import Problems, find_table, raise_first, suite_rows
from consilience.files.write import cannot_write, path_of, write_whole
from consilience.suites.facts import folder_root, read_folder
from consilience.suites.layouts import N_TO_1, N_TO_M, check_folder
from consilience.suites.proposals import TABLE, Proposal
from consilience.types import Candidates, Cardinality, Fact, Relation, Suite

Rows = Sequence[Mapping[str, object]]
"""Rows of a table: their cells by the names of their columns."""


def append_rows(folder: Path, tables: Mapping[str, Rows]) -> None:
    """Add rows to the tables of a folder; a table that is not there becomes a JSONL file.

    All rows are prepared before the first file is written. A TSV table whose header lacks a column
    of the rows raises.
    """
    files = {
        path: _with_rows(path, rows)
        for name, rows in tables.items()
        if rows
        for path in [find_table(folder, name) or folder / f"{name}.jsonl"]
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    for path, text in files.items():
        write_whole(path, text.encode())


def _with_rows(path: Path, rows: Rows) -> str:
    """The text of a table with more rows."""
    text = read_text(path) if path.is_file() else ""
    text += "\n" if text and not text.endswith("\n") else ""
    if path.suffix == ".jsonl":
        return text + "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    header = text.partition("\n")[0].rstrip("\r").split("\t")
    return text + "".join(_tsv_line(path, header, row) for row in rows)


def _tsv_line(path: Path, header: Sequence[str], row: Mapping[str, object]) -> str:
    if missing := [name for name in row if name not in header]:
        raise ConsilienceError(
            f"no column '{missing[0]}', which a new row has",
            expected=f"{', '.join(row)} in the header",
            where=str(path),
            todo="Add the column to the header, or save the table as JSONL.",
        )
    return "\t".join(_cell(row.get(name, "")) for name in header) + "\n"


def _cell(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


EXAMPLES = Path(__file__).parent / "examples"
"""A folder with the files of an example for each kind of suite."""


def new_suite(folder: str | Path, *, facts: bool = False) -> list[Path]:
    """Write an example of a suite of questions, or of facts, into a new or empty folder.

    It returns the files.
    A folder with files raises, because nothing of it may be replaced.
    """
    target = path_of(folder, "the folder of the suite")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConsilienceError(
            "a file" if not target.is_dir() else "a folder that is not empty",
            expected="a new folder, or an empty one",
            where=str(target),
            todo="Name another folder.",
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(target, error) from error
    files = []
    for source in sorted((EXAMPLES / ("facts" if facts else "questions")).iterdir()):
        files.append(target / source.name)
        write_whole(files[-1], source.read_bytes())
    return files


WIKIDATA = re.compile(r"P\d+")
"""The id of a relation of Wikidata."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a user says about a source, besides where it is."""

    relation: str = ""
    """The relation of patterns whose source names none."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The table's name of each column that is called otherwise there."""
    languages: Sequence[str] = ()
    """The languages to read; of a source without languages, the one of its patterns."""
    source: str = ""
    """What the provenance calls the source; empty for the names of its files."""
    licence: str = ""
    """The licence of patterns whose source states none."""

    @property
    def language(self) -> str:
        """The language of a source that names none; empty for that of the suite."""
        if len(self.languages) > 1:
            raise ConsilienceError(
                f"--language {','.join(self.languages)}",
                expected="one language for a source whose patterns are in one language",
            )
        language = self.languages[0] if self.languages else ""
        if language and not is_language_tag(language):
            raise ConsilienceError(f"--language {language}", expected=LANGUAGE_TAG)
        return language


@dataclass(frozen=True, slots=True)
class SourceFact:
    """A fact of a source."""

    relation: str
    subject: str
    object: str
    item: str = ""
    """Its id, the same in all languages; empty without one."""
    language: str = ""
    """The language that it is written in; empty where the source has none."""
    where: str = ""
    """``file:line``."""


@dataclass(frozen=True, slots=True)
class Name:
    """How a subject or object of the facts is written in another language."""

    relation: str
    name: str
    """The subject or object, as in the facts."""
    language: str
    text: str
    """How it is written there."""
    form: str = ""
    """The form that it is written in."""
    where: str = ""
    """``file:line`` of the source."""

    def row(self) -> dict[str, object]:
        """Its row in the table of names."""
        form = {"form": self.form} if self.form else {}
        head = {"relation": self.relation, "name": self.name, "language": self.language}
        return {**head, **form, "text": self.text}


@dataclass(slots=True)
class Content:
    """What the files of an import hold."""

    root: Path
    """The file or folder."""
    reading: Reading
    """What the user says about it."""
    patterns: list[Proposal] = field(default_factory=list)
    """The patterns, in their order."""
    facts: list[SourceFact] = field(default_factory=list)
    """The facts, in their order."""
    names: list[Name] = field(default_factory=list)
    """How subjects and objects are written in other languages."""
    labels: dict[str, str] = field(default_factory=dict)
    """The names of relations for people."""
    cardinalities: dict[str, Cardinality] = field(default_factory=dict)
    """How many right objects a subject may have."""
    language: str = ""
    """The language of the facts; empty where the source names none."""
    problems: Problems = field(default_factory=list)
    """What is refused, by file and line."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the import should know."""

    def source_of(self, path: Path) -> str:
        """What the provenance calls a file: the user's word, or its path from the source on."""
        inside = path.relative_to(self.root).parts if path != self.root else ()
        return self.reading.source or "/".join((self.root.resolve().name, *inside))

    def imported(self, relation: str, pattern: str, path: Path, where: str) -> Proposal:
        """A pattern of a file that is no file of proposals."""
        return Proposal(
            relation,
            pattern,
            "imported",
            self.source_of(path),
            self.reading.licence,
            language=self.reading.language,
            where=where,
        )

    def label_of(self, relation: str) -> str:
        """The name of a relation for people: the source's, or that of Wikidata."""
        return self.labels.get(relation) or (N_TO_1 | N_TO_M).get(relation, relation)

    def cardinality_of(self, relation: str) -> Cardinality:
        """The cardinality of a relation: the source's, the ParaRel paper's, or as in its facts."""
        if relation in self.cardinalities:
            return self.cardinalities[relation]
        if relation in N_TO_1 or relation in N_TO_M:
            return "N-1" if relation in N_TO_1 else "N-M"
        pairs = {(fact.subject, fact.object) for fact in self.facts if fact.relation == relation}
        return "N-M" if max(Counter(subject for subject, _ in pairs).values()) > 1 else "N-1"


def align_languages(content: Content) -> None:
    """Write the facts of several languages once, with their names in the other languages.

    The facts stay in English, or else in the first language. A fact stays if every language that
    has patterns of its relation has a text for it. A language without any fact of a relation loses
    its patterns of that relation, because nobody knows how their subjects are written.
    """
    by_key: dict[tuple[str, str], dict[str, SourceFact]] = {}
    for fact in content.facts:
        by_key.setdefault((fact.relation, fact.item), {}).setdefault(fact.language, fact)
    languages = dict.fromkeys(fact.language for fact in content.facts)
    if not languages:
        return
    first = "en" if "en" in languages else next(iter(languages))
    has_facts = {(fact.relation, fact.language) for fact in content.facts}
    needed = _languages_of_patterns(content, has_facts)
    facts: list[SourceFact] = []
    names: dict[tuple[str, str, str], Name] = {}
    left_out: Counter[str] = Counter()
    for (relation, _), versions in by_key.items():
        if not needed.get(relation):
            continue
        if not {first, *needed[relation]} <= versions.keys():
            left_out[relation] += 1
            continue
        fact = versions[first]
        facts.append(replace(fact, language=""))
        for language in needed[relation] - {first}:
            other = versions[language]
            for name, text in ((fact.subject, other.subject), (fact.object, other.object)):
                _add_name(names, Name(relation, name, language, text, where=other.where), content)
    content.facts, content.language = facts, first
    content.names = [name for _, name in sorted(names.items())]
    if total := left_out.total():
        content.notes.append(
            f"{counted(total, 'fact')} without a text in every language of the patterns left out"
        )


def _languages_of_patterns(
    content: Content, has_facts: set[tuple[str, str]]
) -> dict[str, set[str]]:
    """The languages of the patterns of each relation; patterns without facts are refused."""
    needed: dict[str, set[str]] = {}
    remaining = []
    for pattern in content.patterns:
        language = pattern.language
        if (pattern.relation, language) in has_facts:
            needed.setdefault(pattern.relation, set()).add(language)
            remaining.append(pattern)
        else:
            content.problems.append(
                ConsilienceError(
                    f"no fact of '{pattern.relation}' in '{language}'",
                    expected="facts in the language of the pattern",
                    where=pattern.where,
                )
            )
    content.patterns = remaining
    return needed


def _add_name(names: dict[tuple[str, str, str], Name], name: Name, content: Content) -> None:
    """Add how a name is written; a name that has another text already keeps the first one."""
    first = names.setdefault((name.relation, name.name, name.language), name)
    if first.text != name.text:
        content.problems.append(
            ConsilienceError(
                f"'{name.name}' is '{name.text}' here, and '{first.text}' in another fact",
                expected=f"one text in '{name.language}' for each name of a relation; the first is "
                "kept",
                where=name.where,
            )
        )


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


def load_facts(spec: str, data_dir: Path | None = None, *, as_shipped: bool = False) -> Suite:
    """A suite; or the facts of a table, or of a folder without patterns, as a suite without any.

    The table (JSONL, TSV or CSV) has the columns ``relation``, ``subject`` and ``object``. The
    relations are then N-1, their ids are their labels, and the language is empty.
    """
    path = Path(spec)
    problems: Problems = []
    if path.is_dir() and not find_table(path, "patterns") and find_table(path, "relations"):
        suite = read_folder(path, problems, needs_patterns=False)
        raise_first(problems, " like it)")
        return suite
    table = path if path.is_file() and path.suffix in (".jsonl", ".tsv", ".csv") else None
    if path.is_dir() and not find_table(path, "patterns"):
        table = find_table(path, "facts")
    if table is None:
        return suites.load_suite(spec, data_dir, as_shipped=as_shipped)
    facts: dict[str, list[Fact]] = {}
    for row in suite_rows(table, problems):
        relation, subject, object_ = (row.text(name) for name in ("relation", "subject", "object"))
        if row.is_relation_id(relation) and subject and object_:
            of_relation = facts.setdefault(relation, [])
            of_relation.append(Fact(f"{relation}-{len(of_relation) + 1}", subject, object_))
    raise_first(problems, " like it)")
    if not facts:
        raise ConsilienceError("no fact", where=str(table), todo="Add one line for each fact.")
    relations = (
        Relation(id_, id_, "N-1", (), tuple(of_relation), {}, Candidates.of(of_relation))
        for id_, of_relation in facts.items()
    )
    return Suite(path.stem, tuple(relations), language="")
