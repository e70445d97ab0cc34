"""What the files of an import hold, before it is compared with the suite that takes it in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.suites.proposals import Proposal
from consilience.suites.rows import Problems
from consilience.suites.trex import N_TO_1, N_TO_M
from consilience.text import LANGUAGE_TAG, counted, is_language_tag
from consilience.types import Cardinality

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
