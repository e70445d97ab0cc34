"""Imported and new suites: what is in them and how they are written."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from consilience import suites
from consilience.authoring.likeness import Likeness, has_words, likeness
from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.patterns import ENGLISH
from consilience.core.text import LANGUAGE_TAG, counted, is_language_tag
from consilience.files.read import read_text
from consilience.files.rows import Problems, find_table, raise_first, suite_rows
from consilience.files.write import cannot_write, path_of, write_whole
from consilience.options import Output
from consilience.report.export import Shown, rows_of
from consilience.suites.facts import folder_root, read_folder
from consilience.suites.layouts import N_TO_1, N_TO_M, check_folder
from consilience.suites.proposals import TABLE, Proposal
from consilience.types import Candidates, Cardinality, Fact, Relation, Suite

EXAMPLES = Path(__file__).parent / "examples"


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
    _make_folder(target)
    files = []
    for source in sorted((EXAMPLES / ("facts" if facts else "questions")).iterdir()):
        files.append(target / source.name)
        write_whole(files[-1], source.read_bytes())
    return files


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


Rows = Sequence[Mapping[str, object]]


def append_rows(folder: Path, tables: Mapping[str, Rows]) -> None:
    """Add rows to the tables of a folder; a table that is not there becomes a JSONL file.

    All rows are prepared before the first file is written. A TSV table whose header lacks a column
    of the rows raises.
    """
    paths = {name: find_table(folder, name) or folder / f"{name}.jsonl" for name in tables}
    files = {paths[name]: _with_rows(paths[name], rows) for name, rows in tables.items() if rows}
    _make_folder(folder)
    for path, text in files.items():
        write_whole(path, text.encode())


def _with_rows(path: Path, rows: Rows) -> str:
    """The text of a table with more rows."""
    text = read_text(path) if path.is_file() else ""
    text += "\n" if text and not text.endswith("\n") else ""
    if path.suffix == ".jsonl":
        return text + "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    header = text.partition("\n")[0].rstrip("\r").split("\t")
    for row in rows:
        if missing := [name for name in row if name not in header]:
            raise ConsilienceError(
                f"no column '{missing[0]}', which a new row has",
                expected=f"{', '.join(row)} in the header",
                where=str(path),
                todo="Add the column to the header, or save the table as JSONL.",
            )
        cells = [row.get(name, "") for name in header]
        texts = ["; ".join(map(str, c)) if isinstance(c, list) else str(c) for c in cells]
        text += "\t".join(texts) + "\n"
    return text


# What a source holds.

WIKIDATA = re.compile(r"P\d+")


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


@dataclass(frozen=True, slots=True)
class Name:
    """How a subject or object of the facts is written in another language."""

    relation: str
    name: str
    """The subject or object, as in the facts."""
    language: str
    text: str
    form: str = ""
    where: str = ""


@dataclass(slots=True)
class Content:
    """What the files of an import hold, in their order."""

    root: Path
    reading: Reading
    patterns: list[Proposal] = field(default_factory=list)
    facts: list[SourceFact] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    cardinalities: dict[str, Cardinality] = field(default_factory=dict)
    language: str = ""
    """The language of the facts; empty where the source names none."""
    problems: Problems = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, relation: str, pattern: str, path: Path, where: str, **stated: Any) -> None:
        """Add a pattern of a file; what it states itself replaces what the user says of all."""
        inside = path.relative_to(self.root).parts if path != self.root else ()
        source = self.reading.source or "/".join((self.root.resolve().name, *inside))
        said = {"licence": self.reading.licence, "language": self.reading.language}
        fields = {"source": source, **said} | {name: one for name, one in stated.items() if one}
        self.patterns.append(Proposal(relation, pattern, "imported", **fields, where=where))

    def refuse(self, found: str, *, expected: str = "", where: str = "", todo: str = "") -> None:
        """Report what cannot be imported."""
        error = ConsilienceError(found, expected=expected, where=where, todo=todo)
        self.problems.append(error)

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
        versions[fact.relation, fact.item].setdefault(fact.language, fact)
    languages = dict.fromkeys(fact.language for fact in content.facts)
    if not languages:
        return
    first = "en" if "en" in languages else next(iter(languages))
    needed = _languages_of_patterns(content)
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


def _languages_of_patterns(content: Content) -> dict[str, set[str]]:
    """The languages of the patterns of each relation; patterns without facts are refused."""
    has_facts = {(fact.relation, fact.language) for fact in content.facts}
    needed: dict[str, set[str]] = defaultdict(set)
    patterns, content.patterns = content.patterns, []
    for pattern in patterns:
        if (pattern.relation, pattern.language) in has_facts:
            needed[pattern.relation].add(pattern.language)
            content.patterns.append(pattern)
        else:
            content.refuse(
                f"no fact of '{pattern.relation}' in '{pattern.language}'",
                expected="facts in the language of the pattern",
                where=pattern.where,
            )
    return needed


# What an import adds.

Near = Literal["keep", "drop"]
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
    near-duplicate is kept or left out, as ``near`` says. A new relation needs a pattern and a fact,
    else it is refused. ``facts_of``: the suite whose facts, labels and cardinalities replace those
    of the source. Facts whose source names no language are in that of the folder; of a new folder,
    in that of the patterns.
    """

    is_dry = True
    """Whether nothing was written."""

    def __init__(
        self, folder: Path, format_: str, content: Content, near: Near, facts_of: Suite | None
    ) -> None:
        self.folder, self.format, self.content = folder, format_, content
        self.suite = _suite_in(folder)
        """The suite in the folder; None for a new one."""
        self.is_new = self.suite is None
        if facts_of:
            content.facts = [
                SourceFact(group.id, fact.subject, fact.object, fact.item)
                for group in facts_of
                for fact in group.facts
            ]
            content.names, content.language = [], facts_of.language
            content.labels = {group.id: group.label for group in facts_of}
            content.cardinalities = {group.id: group.cardinality for group in facts_of}
        if self.suite is None:
            content.language = content.language or content.reading.language
        elif content.language not in ("", language := self.suite.language):
            raise ConsilienceError(
                f"facts in '{content.language}' for a suite in '{language}'",
                expected="facts in the language of the suite",
                where=str(folder),
                todo=f"Import them into a new folder, or with --language {language} too.",
            )
        patterns, similar = self._new_patterns(near)
        new_facts = self._new_facts()
        facts = self._without_homonyms(new_facts)
        known = {group.id for group in self.suite or ()}
        with_facts = {fact.relation for fact in facts}
        added = dict.fromkeys(pattern.relation for pattern in patterns)
        self.relations = tuple(id_ for id_ in added if id_ in with_facts - known)
        imported = known | set(self.relations)
        self._refuse_relations(patterns, similar, () if facts_of else facts, imported, known)
        self.known_facts = len(content.facts) - len(new_facts)
        """Facts that the folder has already, or that the source has twice."""
        self.similar = [one for one in similar if one.proposal.relation in imported]
        """Duplicates, which are left out, and near-duplicates."""
        self.patterns = [pattern for pattern in patterns if pattern.relation in imported]
        self.facts = [fact for fact in facts if fact.relation in imported]
        self.names = self._new_names()
        """The names in other languages that are added."""
        self.refused, self.notes = tuple(content.problems), tuple(content.notes)

    def _new_patterns(self, near: Near) -> tuple[list[Proposal], list[Similar]]:
        """The patterns that are added, and those that are like an earlier one of their relation."""
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
            others = earlier[proposal.relation, language]
            if not has_words(text):
                problem = f"the pattern '{text}' has no word besides its slots"
                content.refuse(problem, where=proposal.where)
                continue
            if text in texts[proposal.relation].difference(others):
                content.refuse(
                    f"the pattern '{text}' is also one of another language",
                    expected="different patterns in a relation",
                    where=proposal.where,
                )
                continue
            if like := _most_similar(text, language, others):
                is_kept = like[1] != "duplicate" and near == "keep"
                similar.append(Similar(proposal, *like, is_kept))
                if not is_kept:
                    continue
            others.append(text)
            texts[proposal.relation].add(text)
            added.append(replace(proposal, language="" if language == standard else language))
        return added, similar

    def _new_facts(self) -> list[SourceFact]:
        """The facts that the folder does not have, each once."""
        facts = [(group.id, fact) for group in self.suite or () for fact in group.facts]
        known = {(id_, fact.subject, fact.object) for id_, fact in facts}
        new: dict[tuple[str, str, str], SourceFact] = {}
        for fact in self.content.facts:
            new.setdefault((fact.relation, fact.subject, fact.object), fact)
        return [fact for key, fact in new.items() if key not in known]

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

    def _refuse_relations(
        self,
        patterns: Sequence[Proposal],
        similar: Sequence[Similar],
        facts: Sequence[SourceFact],
        imported: Collection[str],
        known: Collection[str],
    ) -> None:
        """Refuse the relations that lack facts or patterns; ``known``: those of the folder."""
        lacking = (
            ([*patterns, *(one.proposal for one in similar if not one.is_kept)],
             "fact", "pattern", "Take facts from a suite that has them: --facts-from SUITE."),
            (facts, "pattern", "fact",
             "Import patterns, and these facts with --facts-from TABLE."),
        )  # fmt: skip
        for rows, needs, has, todo in lacking:
            for id_, size in Counter(row.relation for row in rows).items():
                if id_ in imported:
                    continue
                is_ours = has == "pattern" and not WIKIDATA.fullmatch(id_)
                hint = did_you_mean(id_, sorted(known)) if is_ours else ""
                self.content.refuse(
                    f"the relation '{id_}' has no {needs}, so {counted(size, has)} of it "
                    "cannot be imported",
                    where=next(row.where for row in rows if row.relation == id_),
                    todo=hint if hint.startswith("Did") else todo,
                )

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
            self.write(copy)
            errors = check_folder(copy)
            if errors:
                size = f"{len(errors)} errors, the first" if len(errors) > 1 else "an error"
                tables = "" if self.is_new else f" or the tables of {self.folder}"
                todo = f"Nothing was written. Correct the source{tables}. {errors[0].todo}"
                raise ConsilienceError(
                    f"the suite would have {size}: {errors[0].found}",
                    expected=errors[0].expected,
                    where=self._place(errors[0].where, copy),
                    todo=todo.rstrip(),
                )

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
        """Add the rows to the folder, or to a copy of it."""
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
            TABLE: [pattern.row() for pattern in self.patterns],
        })  # fmt: skip
        if self.is_new and language not in ("", ENGLISH):
            about = {"name": folder.resolve().name, "language": language}
            write_whole(folder / "suite.json", json.dumps(about).encode())

    def printed(self, output: Output) -> Iterator[str]:
        duplicates = sum(similar.likeness == "duplicate" for similar in self.similar)
        near = [similar for similar in self.similar if similar.likeness != "duplicate"]
        fate = "" if not near else " kept" if near[0].is_kept else " left out"
        names = f", {counted(len(self.names), 'name')} in other languages" if self.names else ""
        facts = f", {counted(self.known_facts, 'fact')} left out" if self.known_facts else ""
        yield f"{self.folder} ({'new' if self.is_new else 'existing'} suite), read as {self.format}"
        yield (
            f"added:           {counted(len(self.relations), 'relation')}, "
            f"{counted(len(self.patterns), 'pattern')}, {counted(len(self.facts), 'fact')}{names}"
        )
        yield f"duplicates:      {counted(duplicates, 'pattern')} left out{facts}"
        yield f"near-duplicates: {counted(len(near), 'pattern')}{fate}"
        yield from _first(
            f"  {one.proposal.relation}: {one.proposal.pattern}  ({one.likeness}: {one.other})"
            for one in near
        )
        yield f"refused:         {len(self.refused):,}"
        yield from _first(f"  {error}" for error in self.refused)
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
            "facts": len(self.facts), "patterns": rows_of(self.frame()), "warnings": self.notes,
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
            is_same, p = one.likeness == "duplicate", one.proposal
            what = ("duplicate", "") if is_same else ("near-duplicate", one.likeness)
            rows.append((what[0], p.relation, p.pattern, what[1], one.other, p.where))
        for error in self.refused:
            reason = str(error).removeprefix(f"{error.where}: ")
            rows.append(("refused", None, None, reason, None, error.where))
        return pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")

    def exit_status(self) -> int:
        """2 if everything was refused."""
        return 2 if self.failed else 0


def _first(lines: Iterable[str]) -> list[str]:
    """The first lines, and how many more there are."""
    listed = [*lines]
    more = len(listed) - SHOWN
    return [*listed[:SHOWN], *[f"  ... {more:,} more; --csv FILE has all"] * (more > 0)]


def _row(values: Mapping[str, object], *names: str) -> dict[str, object]:
    """The named values that are not empty."""
    return {name: values[name] for name in names if values.get(name)}


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


def _most_similar(
    pattern: str, language: str, others: Sequence[str]
) -> tuple[str, Likeness] | None:
    """The first duplicate among other patterns, else the first near-duplicate; None without."""
    in_english = language.partition("-")[0] == ENGLISH
    alike = [
        (other, how) for other in others if (how := likeness(pattern, other, in_english=in_english))
    ]
    return min(alike, key=lambda one: one[1] != "duplicate", default=None)


def load_facts(spec: str, data_dir: Path | None = None, *, as_shipped: bool = False) -> Suite:
    """A suite; or the facts of a table, or of a folder without patterns, as a suite without any.

    The table (JSONL, TSV or CSV) has the columns ``relation``, ``subject`` and ``object``. The
    relations are then N-1, their ids are their labels, and the language is empty.
    """
    path = Path(spec)
    problems: Problems = []
    table = path if path.is_file() and path.suffix in (".jsonl", ".tsv", ".csv") else None
    if path.is_dir() and not find_table(path, "patterns"):
        if find_table(path, "relations"):
            suite = read_folder(path, problems, needs_patterns=False)
            raise_first(problems, " like it)")
            return suite
        table = find_table(path, "facts")
    if table is None:
        return suites.load_suite(spec, data_dir, as_shipped=as_shipped)
    facts: dict[str, list[Fact]] = defaultdict(list)
    for row in suite_rows(table, problems):
        relation, subject, object_ = (row.text(name) for name in ("relation", "subject", "object"))
        if row.is_relation_id(relation) and subject and object_:
            of = facts[relation]
            of.append(Fact(f"{relation}-{len(of) + 1}", subject, object_))
    raise_first(problems, " like it)")
    if not facts:
        raise ConsilienceError("no fact", where=str(table), todo="Add one line for each fact.")
    relations = (
        Relation(id_, id_, "N-1", (), tuple(of), {}, Candidates.of(of)) for id_, of in facts.items()
    )
    return Suite(path.stem, tuple(relations), language="")
