"""Imports: what of a table of patterns, facts and names, or of proposals, joins a suite folder."""

from __future__ import annotations

import csv
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience import suites
from consilience.authoring.checks import has_words, normal_form
from consilience.core.errors import ConsilienceError, did_you_mean, unknown_name
from consilience.core.patterns import ENGLISH, Names
from consilience.core.text import counted
from consilience.files.read import Problems, read_rows, read_text
from consilience.files.rows import (
    Column,
    Row,
    find_table,
    line,
    names_of,
    one_of,
    raise_all,
    read_table,
)
from consilience.files.write import (
    json_lines,
    locked,
    make_folder,
    refuse_occupied,
    table_of,
    write_whole,
)
from consilience.report.export import Displayed, Output
from consilience.suites.facts import is_suite, read_folder
from consilience.types import (
    FACT_COLUMNS,
    PATTERN_COLUMNS,
    Suite,
    add_translations,
    pattern_of,
    translations,
)

COLUMNS = (
    Column("relation", line),
    *(replace(one, default="", is_needed=False) for one in (*PATTERN_COLUMNS, *FACT_COLUMNS)),
    Column("label", line, "", is_needed=False),
    Column("accept", one_of("yes", "no"), "yes", is_needed=False),
)
SEPARATORS = {".tsv": "\t", ".csv": ","}
SHOWN = 10  # refusals; ``--format csv`` has all

Added = tuple[dict[str, object], str]  # A row of a table of the folder, and where it was read


def with_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> bytes:
    """A table (JSONL, TSV or CSV) with further rows; what it has stays to the last byte."""
    if path.suffix == ".jsonl":
        return json_lines(rows, path)
    if path.suffix not in SEPARATORS:
        expected = "a table in .jsonl, .tsv or .csv"
        raise ConsilienceError("rows to add", expected=expected, where=str(path))
    header = next(csv.reader(read_text(path).splitlines(), delimiter=SEPARATORS[path.suffix]))
    if missing := [name for row in rows for name in row if name not in header]:
        found = f"no column '{missing[0]}', which a new row has"
        todo = "Add the column to the header, or save the table as JSONL."
        raise ConsilienceError(found, where=str(path), todo=todo)
    new = table_of([dict.fromkeys(header, ""), *rows])[1:]
    style: Any = "never" if path.suffix == ".tsv" else "necessary"
    text = new.write_csv(include_header=False, separator=SEPARATORS[path.suffix], quote_style=style)
    content = path.read_bytes()
    return content + b"\n" * (not content.endswith(b"\n")) + text.encode()


class ImportPlan(Displayed):
    """What an import adds to a suite folder, and what it refuses.

    A pattern is refused that is a duplicate of an earlier one of its relation (``normal_form``). A
    new relation needs a pattern and a fact. Facts that the folder has are left out, and so are
    names that are the same in another language.
    """

    is_dry = True

    def __init__(self, path: Path, into: Path, groups: Sequence[str] | None) -> None:
        self.folder, self.path = into, path
        self.refused: Problems = []
        self.notes: list[str] = []
        self.labels: dict[str, str] = {}
        self.patterns: list[Added] = []
        self.facts: list[Added] = []
        self.suite: Suite | None = None  # In the folder; None for a new or empty one
        if self.folder.is_dir() and is_suite(self.folder):
            problems: Problems = []
            self.suite = read_folder(self.folder, problems, needs_patterns=False)
            raise_all(problems)
        else:
            expected = "a suite folder with relations and facts, or a new folder"
            refuse_occupied(self.folder, expected)
        self.names: list[dict[str, object]] = []
        self._read(groups)
        self.relations: tuple[str, ...] = ()
        self._leave_out_relations()

    def _read(self, groups: Sequence[str] | None) -> None:
        """The new patterns, facts and names of the file."""
        cells = list(read_rows(self.path, self.refused))
        has_facts = {"subject", "object"} <= {*names_of(cells)}
        columns = [replace(one, is_needed=one.name == "pattern" and not has_facts)
                   if one.name != "relation" else one for one in COLUMNS]  # fmt: skip
        table = list(
            read_table(cells, [*columns, *translations(cells)], self.refused, str(self.path))
        )
        if not (table or self.refused):
            found, todo = "no pattern and no fact", "Check the file."
            raise ConsilienceError(found, where=str(self.path), todo=todo)
        ids = sorted({row["relation"] for row in table})
        for id_ in groups or ():
            if table and id_ not in ids:
                raise unknown_name(f"--groups {id_}", id_, ids, str(self.path))
        known = {
            (group.id, normal_form(one.text)): one.text
            for group in self.suite or ()
            for one in group.patterns
        }
        facts = {(group.id, *one.names) for group in self.suite or () for one in group.facts}
        names: Names = {}
        rows = [row for row in table if not groups or row["relation"] in groups]
        for row in rows:
            self.labels.setdefault(row["relation"], row["label"] or row["relation"])
            if row["pattern"] and row["accept"] == "yes":
                self._add_pattern(row, known)
            if row["subject"] and row["object"]:
                add_translations(row, names)
                key = row["relation"], row["subject"], row["object"]
                if key not in facts:
                    facts.add(key)
                    fact = {name: row[name] for name in ("relation", "subject", "object", "item")}
                    self.facts.append(({k: v for k, v in fact.items() if v}, row.where))
            elif row["subject"] or row["object"] or not row["pattern"]:
                row.report("no pattern and no fact", expected="a pattern, or subject and object")
        if left_out := sum(row["accept"] == "no" for row in rows):
            self.notes.append(f"not accepted: {left_out} of {counted(len(rows), 'row')}")
        path = find_table(self.folder, "names") if self.suite else None
        written = (
            {(of.get("name"), of.get("language")) for _, of in read_rows(path)} if path else ()
        )
        self.names = [
            {"name": name, "language": language, "text": text}
            for (language, _), of_language in names.items()
            for name, text in of_language.items()
            if text != name and (name, language) not in written
        ]

    def _add_pattern(self, row: Row, known: dict[tuple[str, str], str]) -> None:
        text, key = row["pattern"], (row["relation"], normal_form(row["pattern"]))
        if pattern_of(row) is None:
            return
        if not has_words(text):
            row.report(f"the pattern '{text}' has no word besides its slots")
        elif key in known:
            row.report(f"'{text}' is a duplicate of '{known[key]}'")
        else:
            known[key] = text
            standard = self.suite.language if self.suite else ENGLISH
            cells = {column.name: row[column.name] for column in PATTERN_COLUMNS}
            cells["language"] = "" if row["language"] == standard else row["language"]
            cells = {name: cell for name, cell in cells.items() if cell}
            self.patterns.append(({"relation": row["relation"], **cells}, row.where))

    def _leave_out_relations(self) -> None:
        """Refuse the rows of new relations that have no pattern, or no fact."""
        known = [group.id for group in self.suite or ()]
        tables = {"pattern": self.patterns, "fact": self.facts}
        ids = {has: {row["relation"] for row, _ in rows} for has, rows in tables.items()}
        for has, lacks in (("pattern", "fact"), ("fact", "pattern")):
            for id_ in sorted(map(str, ids[has] - ids[lacks] - {*known})):
                places = [where for row, where in tables[has] if row["relation"] == id_]
                size = f"{counted(len(places), has)} of it cannot be imported"
                found = f"the relation '{id_}' has no {lacks}, so {size}"
                todo = did_you_mean(id_, known, f"Add a row with a {lacks} of it.")
                self.refused.append(ConsilienceError(found, where=places[0], todo=todo))
        imported = {*known, *(ids["pattern"] & ids["fact"])}
        self.patterns = [one for one in self.patterns if one[0]["relation"] in imported]
        self.facts = [one for one in self.facts if one[0]["relation"] in imported]
        added = dict.fromkeys(str(row["relation"]) for row, _ in self.patterns)
        self.relations = tuple(id_ for id_ in added if id_ not in known)

    def __repr__(self) -> str:
        sizes = f"{len(self.patterns)} patterns, {len(self.facts)} facts"
        return f"ImportPlan({str(self.folder)!r}: {sizes}; {len(self.refused)} refused)"

    @property
    def adds(self) -> bool:
        return bool(self.patterns or self.facts or self.names)

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
        """Add the new rows to the tables of a folder; one that is not there becomes JSONL."""
        subjects = Counter((row["relation"], row["subject"]) for row, _ in self.facts)
        several = {relation for (relation, _), count in subjects.items() if count > 1}
        relations = [
            {"relation": id_, "label": self.labels[id_],
             "cardinality": "N-M" if id_ in several else "N-1"} for id_ in self.relations
        ]  # fmt: skip
        tables: dict[str, Sequence[Mapping[str, object]]] = {
            "relations": relations,
            "patterns": [row for row, _ in self.patterns],
            "facts": [row for row, _ in self.facts],
            "names": self.names,
        }
        paths = {name: find_table(folder, name) or folder / f"{name}.jsonl" for name in tables}
        files = {paths[name]: with_rows(paths[name], rows) for name, rows in tables.items() if rows}
        make_folder(folder)
        for path, content in files.items():
            write_whole(path, content)

    def output(self) -> Output:
        """What was added, and the first refusals; of CSV each pattern and each refusal."""
        sizes: dict[str, Sequence[object]] = {
            "relation": self.relations, "pattern": self.patterns, "fact": self.facts,
            "name": self.names,
        }  # fmt: skip
        added = ", ".join(counted(len(rows), noun) for noun, rows in sizes.items() if rows)
        shown = [
            f"{self.folder} ({'existing' if self.suite else 'new'} suite)",
            f"added:   {added or 'nothing'}",
            f"refused: {len(self.refused):,}",
            *(f"  {error}" for error in self.refused[:SHOWN]),
        ]
        if len(self.refused) > SHOWN:
            shown.append(f"  ... {len(self.refused) - SHOWN:,} more; --format csv has all")
        if self.adds and not self.is_dry:
            shown.append(f"Check: consilience suite check {shlex.quote(str(self.folder))}")
        else:
            rerun = "Rerun the command without --dry-run to import."
            shown.append(f"Nothing was written. {rerun * self.adds}".rstrip())
        rows: list[tuple[object, ...]] = [
            ("added", row["relation"], row["pattern"], None, where) for row, where in self.patterns
        ]
        for error in self.refused:
            reason = str(error).removeprefix(f"{error.where}: ")
            rows.append(("refused", None, None, reason, error.where))
        columns = dict.fromkeys(("what", "relation", "pattern", "reason", "where"), pl.String)
        facts = {
            "folder": str(self.folder), "written": self.adds and not self.is_dry,
            "relations": self.relations, "facts": len(self.facts), "names": len(self.names),
        }  # fmt: skip
        return Output(
            {"patterns": pl.DataFrame(rows, columns, orient="row")}, shown, cautions=self.notes,
            facts=facts, status=2 if self.refused and not self.adds else 0,
        )  # fmt: skip


def import_patterns(
    path: Path, into: Path, groups: Sequence[str] | None = None, *, dry_run: bool = False
) -> ImportPlan:
    """Read a file, compare it with the suite folder, and add what is new."""
    if not path.exists():
        where, todo = str(path), "Check the path."
        raise ConsilienceError("no such file or folder", where=where, todo=todo)
    with locked(into):
        plan = ImportPlan(path, into, groups)
        if plan.adds:
            plan.check()
            if not dry_run:
                plan.write(plan.folder)
                plan.is_dry = False
    return plan
