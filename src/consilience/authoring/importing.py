"""Imports: what of a table or of a file of proposals joins a suite of facts."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience import suites
from consilience.authoring.checks import has_words, normal_form
from consilience.core.errors import ConsilienceError, did_you_mean, unknown_name
from consilience.core.patterns import ENGLISH
from consilience.core.text import counted
from consilience.files.read import Problems, read_rows, read_text
from consilience.files.rows import Column, find_table, line, names_of, raise_all, read_table
from consilience.files.write import json_lines, make_folder, refuse_occupied, table_of, write_whole
from consilience.options import Output
from consilience.options.suites import ImportOptions
from consilience.report.export import Shown
from consilience.suites.facts import is_suite, read_folder
from consilience.suites.proposals import Proposal, read_proposals
from consilience.types import FACT_COLUMNS, PATTERN_COLUMNS, Suite, pattern_of

Rows = Sequence[Mapping[str, object]]
Cells = Sequence[tuple[str, Mapping[str, Any]]]
TABLE = tuple(
    replace(one, default="", is_needed=False)
    for one in (*PATTERN_COLUMNS, *FACT_COLUMNS, Column("label", line))
)


def append_rows(folder: Path, tables: Mapping[str, Rows]) -> None:
    """Add rows to the tables of a folder; a table that is not there becomes a JSONL file.

    All rows are prepared before the first file is written.
    """
    files: dict[Path, bytes] = {}
    for table, rows in tables.items():
        path = find_table(folder, table) or folder / f"{table}.jsonl"
        if path.suffix == ".jsonl" and rows:
            files[path] = json_lines(rows, path)
        elif rows and path.suffix != ".tsv":
            expected = "a table in .jsonl or .tsv"
            raise ConsilienceError("rows to add", expected=expected, where=str(path))
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


@dataclass(frozen=True, slots=True)
class SourceFact:
    """A fact of a table."""

    relation: str
    subject: str
    object: str
    item: str
    where: str


SHOWN = 10  # refusals; ``--format csv`` has all


class ImportPlan(Shown):
    """What an import adds to a suite folder, and what it refuses.

    A pattern is refused that is a duplicate of an earlier one of its relation (``normal_form``). A
    new relation needs a pattern and a fact. Facts that the folder has are left out.
    """

    is_dry = True

    def __init__(self, options: ImportOptions) -> None:
        self.folder, self.path = options.into, options.path
        self.refused: Problems = Problems()
        self.notes: list[str] = []
        self.labels: dict[str, str] = {}
        self.suite = self._opened()
        rows = list(read_rows(self.path, self.refused))
        is_proposed = "origin" in names_of(rows)
        patterns, facts = self._proposals(rows) if is_proposed else self._table(rows)
        if not (patterns or facts or self.refused):
            todo = "Check the file."
            raise ConsilienceError("no pattern and no fact", where=str(self.path), todo=todo)
        if groups := options.groups:
            known = {one.relation for one in patterns} | {one.relation for one in facts}
            for id_ in groups:
                if known and id_ not in known:
                    raise unknown_name(f"--groups {id_}", id_, sorted(known), str(self.path))
            patterns = [one for one in patterns if one.relation in groups]
            facts = [one for one in facts if one.relation in groups]
        patterns = self._new_patterns(patterns)
        first: dict[tuple[str, str, str], SourceFact] = {}
        for fact in facts:
            first.setdefault((fact.relation, fact.subject, fact.object), fact)
        for group in self.suite or ():
            for one in group.facts:
                first.pop((group.id, one.subject, one.object), None)
        known_relations = [group.id for group in self.suite or ()]
        with_facts = {fact.relation for fact in first.values()}
        added = dict.fromkeys(pattern.relation for pattern in patterns)
        self.relations = tuple(
            id_ for id_ in added if id_ in with_facts and id_ not in known_relations
        )
        imported = {*known_relations, *self.relations}
        places: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for pattern in patterns:
            places[pattern.relation, "pattern", "fact"].append(pattern.where)
        for fact in first.values():
            places[fact.relation, "fact", "pattern"].append(fact.where)
        for (id_, has, lacks), where in places.items():
            if id_ not in imported:
                size = f"{counted(len(where), has)} of it cannot be imported"
                todo = did_you_mean(id_, known_relations, f"Add a row with a {lacks} of it.")
                self._refuse(f"the relation '{id_}' has no {lacks}, so {size}", where[0], todo)
        self.patterns = [pattern for pattern in patterns if pattern.relation in imported]
        self.facts = [fact for fact in first.values() if fact.relation in imported]

    def _opened(self) -> Suite | None:
        """The suite in the folder, also without patterns; None for a new or empty folder."""
        if self.folder.is_dir() and is_suite(self.folder):
            problems = Problems()
            suite = read_folder(self.folder, problems, needs_patterns=False)
            raise_all(problems)
            return suite
        refuse_occupied(self.folder, "a suite folder with relations and facts, or a new folder")
        return None

    def _refuse(self, found: str, where: str, todo: str = "") -> None:
        self.refused.append(ConsilienceError(found, where=where, todo=todo))

    def _proposals(self, rows: Cells) -> tuple[list[Proposal], list[SourceFact]]:
        proposals = read_proposals(rows, self.refused, str(self.path))
        accepted = [proposal for proposal in proposals if proposal.accept == "yes"]
        if left_out := len(proposals) - len(accepted):
            self.notes.append(f"not accepted: {left_out} of {counted(len(proposals), 'proposal')}")
        return accepted, []

    def _table(self, rows: Cells) -> tuple[list[Proposal], list[SourceFact]]:
        patterns: list[Proposal] = []
        facts: list[SourceFact] = []
        has_facts = {"subject", "object"} <= {*names_of(rows)}
        pattern = replace(TABLE[0], is_needed=not has_facts)
        columns = Column("relation", line), pattern, *TABLE[1:]
        for row in read_table(rows, columns, self.refused, str(self.path)):
            id_ = row["relation"]
            if row["label"]:
                self.labels.setdefault(id_, row["label"])
            if (text := row["pattern"]) and pattern_of(row):
                one = Proposal(id_, text, "imported", language=row["language"], where=row.where)
                patterns.append(one)
            if row["subject"] and row["object"]:
                fact = SourceFact(id_, row["subject"], row["object"], row["item"], row.where)
                facts.append(fact)
            elif row["subject"] or row["object"] or not text:
                row.report("no pattern and no fact", expected="a pattern, or subject and object")
        return patterns, facts

    def _new_patterns(self, patterns: Sequence[Proposal]) -> list[Proposal]:
        known = {
            (group.id, normal_form(one.text)): one.text
            for group in self.suite or ()
            for one in group.patterns
        }
        added = []
        for one in patterns:
            key = one.relation, normal_form(one.pattern)
            if not has_words(one.pattern):
                found = f"the pattern '{one.pattern}' has no word besides its slots"
                self._refuse(found, one.where)
            elif key in known:
                self._refuse(f"'{one.pattern}' is a duplicate of '{known[key]}'", one.where)
            else:
                known[key] = one.pattern
                added.append(one)
        return added

    def __repr__(self) -> str:
        sizes = f"{len(self.patterns)} patterns, {len(self.facts)} facts"
        return f"ImportPlan({str(self.folder)!r}: {sizes}; {len(self.refused)} refused)"

    @property
    def adds(self) -> bool:
        return bool(self.patterns or self.facts)

    def check(self) -> None:
        """Raise where the suite would have an error with the new rows."""
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / self.folder.resolve().name
            if self.folder.exists():
                shutil.copytree(self.folder, copy)
            self.write(copy)
            if errors := suites.check_suite(copy):
                size = f"{len(errors)} errors, the first" if len(errors) > 1 else "an error"
                raise ConsilienceError(
                    f"the suite would have {size}: {errors[0].found}",
                    expected=errors[0].expected,
                    where=errors[0].where.replace(str(copy), str(self.folder)),
                    todo=f"Nothing was written. {errors[0].todo}".rstrip(),
                )

    def write(self, folder: Path) -> None:
        """Add the new rows to the tables of a folder."""
        standard = self.suite.language if self.suite else ENGLISH
        patterns = [
            {"relation": one.relation, "pattern": one.pattern}
            | ({"language": one.language} if one.language not in ("", standard) else {})
            for one in self.patterns
        ]
        facts = [
            {"relation": one.relation, "subject": one.subject, "object": one.object}
            | ({"item": one.item} if one.item else {})
            for one in self.facts
        ]
        relations = list(map(self._relation, self.relations))
        append_rows(folder, {"relations": relations, "patterns": patterns, "facts": facts})

    def _relation(self, id_: str) -> dict[str, object]:
        subjects = Counter(fact.subject for fact in self.facts if fact.relation == id_)
        cardinality = "N-M" if max(subjects.values()) > 1 else "N-1"
        return {"relation": id_, "label": self.labels.get(id_, id_), "cardinality": cardinality}

    def printed(self, output: Output) -> Iterator[str]:
        yield f"{self.folder} ({'existing' if self.suite else 'new'} suite)"
        sizes = {"relation": self.relations, "pattern": self.patterns, "fact": self.facts}
        added = ", ".join(counted(len(rows), noun) for noun, rows in sizes.items() if rows)
        yield f"added:   {added or 'nothing'}"
        yield f"refused: {len(self.refused):,}"
        yield from (f"  {error}" for error in self.refused[:SHOWN])
        if len(self.refused) > SHOWN:
            yield f"  ... {len(self.refused) - SHOWN:,} more; --format csv has all"
        if not self.adds:
            yield "Nothing was written."
        elif self.is_dry:
            yield "Nothing was written. Rerun the command without --dry-run to import."
        else:
            yield f"Check: consilience suite check {shlex.quote(str(self.folder))}"

    def document(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder), "written": self.adds and not self.is_dry,
            "relations": self.relations, "facts": len(self.facts),
            "patterns": self.frame().to_dicts(), "warnings": self.notes,
        }  # fmt: skip

    def frame(self) -> pl.DataFrame:
        """One row for each pattern that is added, and for each refusal with its ``reason``."""
        names = ("what", "relation", "pattern", "reason", "where")
        rows: list[tuple[str | None, ...]] = [
            ("added", one.relation, one.pattern, None, one.where) for one in self.patterns
        ]
        for error in self.refused:
            reason = str(error).removeprefix(f"{error.where}: ")
            rows.append(("refused", None, None, reason, error.where))
        return pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")

    def exit_status(self) -> int:
        """2 if everything was refused."""
        return 2 if self.refused and not self.adds else 0


def import_patterns(options: ImportOptions) -> ImportPlan:
    """Read a file, compare it with the suite folder, and add what is new."""
    if not options.path.exists():
        where, todo = str(options.path), "Check the path."
        raise ConsilienceError("no such file or folder", where=where, todo=todo)
    plan = ImportPlan(options)
    if plan.adds:
        plan.check()
        if not options.dry_run:
            plan.write(plan.folder)
            plan.is_dry = False
    return plan
