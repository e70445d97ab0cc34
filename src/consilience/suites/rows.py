"""Rows of the files of a suite, each with its place, and the places of what is in a suite."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, shortened
from consilience.core.patterns import ENGLISH, Pattern
from consilience.core.text import LANGUAGE_TAG, control_in, is_language_tag, names_a_group
from consilience.files.read import Faults, read_rows

FIELDS = {
    "relation", "label", "cardinality", "pattern", "subject", "object", "item", "pattern_a",
    "pattern_b", "sub_label", "obj_label", "origin", "source", "parent", "language", "form",
    "subject_form", "name", "text",
}  # fmt: skip
"""Fields that tables may have; any other field may be a misspelt one of them."""


MAKE_A_SUITE = (
    "Make a suite of the facts with patterns: "
    "`consilience suite import PATTERNS --into FOLDER --facts-from TABLE`."
)
"""What to do where a table of facts is given for a suite."""

SIMILAR = 0.82
"""From this similarity (``difflib``) a name is taken for a misspelt one."""

SHORT = 4
"""The fewest letters of the beginning of a name that are taken for it, such as ``lang``."""

Problems = Faults
"""Everything that is wrong with a suite, in the order of its files."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table."""

    where: str
    """``file:line``."""
    cells: Mapping[str, Any]
    """The values by the names of their columns."""
    problems: Problems
    """Where its problems go."""

    def report(self, problem: str, *, expected: str = "", todo: str = "") -> None:
        error = ConsilienceError(problem, expected=expected, where=self.where, todo=todo)
        self.problems.append(error)

    def text(self, name: str) -> str:
        """A field that must hold text; empty, with a problem reported, where it does not."""
        value, todo = self.cells.get(name), "Fill it in or remove the line."
        if isinstance(value, str) and value.strip():
            return self._without_controls(value, name)
        if name not in self.cells:
            problem = f"no field '{name}'"
            todo = self._similar_field(name) or todo
        elif isinstance(value, str):
            problem = f"an empty '{name}'"
        else:
            problem = f"'{name}' is {_shown(value)}"
        self.report(problem, expected=f"text in '{name}'", todo=todo)
        return ""

    def _similar_field(self, name: str) -> str:
        """A hint at a field whose name is almost ``name``; empty where there is none."""
        unknown = {key.strip().lower(): key for key in self.cells if key not in FIELDS}
        close = get_close_matches(name, unknown, n=1)
        return (
            f"Found '{shortened(unknown[close[0]], 200)}'. Did you mean '{name}'?" if close else ""
        )

    def optional_text(self, name: str) -> str:
        """A field that may hold text, a number or a date; empty if absent, null or neither."""
        value = self.cells.get(name)
        if value is None:
            return ""
        if isinstance(value, date | time):
            value = value.isoformat()
        if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
            return self._without_controls(str(value), name)
        self.report(f"'{name}' is {_shown(value)}", expected=f"text in '{name}'")
        return ""

    def flag(self, name: str) -> bool:
        """A field that holds 0 or 1, or false or true."""
        value = self.cells.get(name)
        if str(value).lower() not in ("0", "1", "false", "true"):
            self.report(f"'{name}' is {value!r}", expected="0 or 1")
        return str(value).lower() in ("1", "true")

    def is_language(self, tag: str) -> bool:
        """Whether a language is a BCP 47 tag; otherwise it is reported, but an empty one."""
        is_valid = is_language_tag(tag)
        if tag and not is_valid:
            self.report(f"the language '{tag}'", expected=LANGUAGE_TAG, todo="Write its tag.")
        return is_valid

    def pattern(self, column: str = "pattern", language: str = ENGLISH) -> Pattern | None:
        """The pattern in that column, with its annotations; None where there is no valid one.

        ``language``: of a pattern that names none.
        """
        text = self.text(column)
        if not text:
            return None
        names = ("lemma", "extended_lemma", "tense")
        annotations = {name: self.optional_text(name) for name in names}
        tag = self.optional_text("language")
        try:
            return Pattern.parse(
                text,
                where=self.where,
                language=tag if self.is_language(tag) else language,
                object_form=self.optional_text("form"),
                subject_form=self.optional_text("subject_form"),
                **annotations,
            )
        except ConsilienceError as error:
            self.problems.append(error)
            return None

    def is_relation_id(self, id_: str) -> bool:
        """Whether an id can name a relation's file of answers; otherwise it is reported.

        An empty id is not reported here: ``text`` has reported it.
        """
        is_valid = names_a_group(id_)
        if id_ and not is_valid:
            self.report(
                f"the relation id '{id_}'",
                expected="a short id that can name a file and is not MACRO or MICRO",
                todo="Rename it.",
            )
        return is_valid

    def _without_controls(self, text: str, name: str) -> str:
        """The text; empty, with a problem reported, where it holds a control character."""
        if control := control_in(text):
            self.report(f"{control} in '{name}'", todo="Remove it from the text.")
            return ""
        return text


def _shown(value: object) -> str:
    """A value for a message; one of a type that JSON lacks has the name of its type."""
    return json.dumps(value, default=lambda one: f"{type(one).__name__} {one}")


def suite_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """The rows of a JSONL, TSV (no quoting) or CSV table; what cannot be read is a problem."""
    quoted = path.suffix == ".csv"
    try:
        for where, cells in read_rows(path, quoted=quoted, faults=problems):
            if path.suffix == ".jsonl" or any(cell.strip() for cell in cells.values()):
                yield Row(where, cells, problems)
    except ConsilienceError as error:
        problems.append(error)


def refuse_misspelt(
    names: Collection[str], known: Collection[str], where: str, noun: str = "column"
) -> None:
    """Raise for a name that is almost one of the ``known`` names that are not there."""
    missing = [name for name in known if name not in names]
    for name in names:
        if name not in known and (meant := almost(name, missing)):
            raise ConsilienceError(
                f"the {noun} '{shortened(name, 200)}'",
                expected=", ".join(known),
                where=where,
                todo=f"Did you mean '{meant}'?",
            )


def almost(name: str, known: Iterable[str]) -> str:
    """The known name that a name almost is: misspelt, shortened or in other case; or empty."""
    plain, short = {plain_name(one): one for one in known}, plain_name(shortened(name, 200))
    exact = [one for full, one in plain.items() if full == short]
    longer = [one for full, one in plain.items() if len(short) >= SHORT and full.startswith(short)]
    close = get_close_matches(short, plain, n=1, cutoff=SIMILAR)
    return next(iter([*exact, *longer, *(plain[full] for full in close)]), "")


def plain_name(column: str) -> str:
    """A name without case, punctuation and the plural."""
    return re.sub(r"[^a-z0-9]", "", column.casefold()).removesuffix("s")


def holds_facts(cells: Mapping[str, Any]) -> bool:
    """Whether a row of a table is a fact and no question."""
    return {"subject", "object"} <= cells.keys() and "question" not in cells


def find_table(folder: Path, name: str) -> Path | None:
    """``folder/name.jsonl`` or ``folder/name.tsv``; None without either. Both raise."""
    paths = [path for ext in (".jsonl", ".tsv") if (path := folder / (name + ext)).is_file()]
    if len(paths) > 1:
        raise ConsilienceError(
            f"both {name}.jsonl and {name}.tsv",
            expected="one of them",
            where=str(folder),
            todo="Remove the one that is not meant.",
        )
    return paths[0] if paths else None


def require(values: object, noun: str, id_: str, where: str, problems: Problems) -> None:
    """Report a relation that has none of what it needs."""
    if not values:
        error = ConsilienceError(
            f"the relation '{id_}' has no {noun}",
            where=where,
            todo=f"Add {noun}s to it or remove it.",
        )
        problems.append(error)


def raise_first(
    problems: Problems, how_to_list: str = "; `consilience suite check` lists all."
) -> None:
    """Raise the first problem with the number of further ones, if there is any."""
    if not problems:
        return
    first = problems[0]
    if len(problems) > 1:
        first.args = (f"{first.args[0]} ({len(problems) - 1} more{how_to_list})",)
    raise first


TABLES = (
    "patterns.*", "facts.*", "relations.jsonl", "TREx/*.jsonl", "trex_lms_vocab/*.jsonl",
    "pattern_data/graphs_json/*.jsonl",
)  # fmt: skip
"""The tables of all layouts that have patterns or facts."""


@dataclass(frozen=True, slots=True)
class Places:
    """Places (``file:line``) in the tables of a suite."""

    patterns: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Relation and pattern -> its place."""
    facts: Mapping[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    """Relation, subject and object -> the places of the fact."""

    def pattern(self, relation: str, *texts: str) -> tuple[str, ...]:
        keys = ((relation, text) for text in texts)
        return tuple(self.patterns[key] for key in keys if key in self.patterns)

    def fact(self, relation: str, subject: str, object_: str) -> tuple[str, ...]:
        """The places of a fact, more than one if it is there more than once."""
        return self.facts.get((relation, subject, object_), ())


def places_in(root: Path) -> Places:
    """The places of all patterns and facts in the tables below the root of a suite."""
    patterns: dict[tuple[str, str], str] = {}
    facts: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for path in _tables(root):
        faults: Faults = []  # ``suite check`` reports them
        for where, cells in read_rows(path, quoted=False, faults=faults):
            location = where.replace(str(path), str(path.relative_to(root)), 1)
            relation = str(cells.get("relation", path.stem))
            text = cells.get("pattern", cells.get("template"))
            if text is not None:
                patterns.setdefault((relation, str(text)), location)
            elif "subject" in cells or "sub_label" in cells:
                subject, object_ = (
                    str(cells.get(ours, cells.get(theirs, "")))
                    for ours, theirs in (("subject", "sub_label"), ("object", "obj_label"))
                )
                facts[relation, subject, object_].append(location)
    return Places(patterns, {key: tuple(places) for key, places in facts.items()})


def _tables(root: Path) -> Iterator[Path]:
    for name in TABLES:
        yield from (path for path in sorted(root.glob(name)) if path.suffix in (".jsonl", ".tsv"))
