"""Proposals that a person reads, and imports: what of them or of a table joins a suite folder."""

from __future__ import annotations

import codecs
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
from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.items import ENGLISH, Names
from consilience.core.text import counted
from consilience.files.read import Problems, read_rows
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
    cannot_write,
    csv_of,
    json_lines,
    locked,
    make_folder,
    refuse_occupied,
    table_of,
    write_all,
    write_whole,
)
from consilience.report.table import Output
from consilience.suites.facts import is_suite, read_folder
from consilience.types import (
    FACT_COLUMNS,
    PATTERN_COLUMNS,
    Suite,
    add_translations,
    pattern_of,
    translations,
)

Proposal = dict[str, Any]
"""A pattern or a phrasing that may join a suite, by the columns of its file: ``accept`` (yes, until
a person writes no), ``relation`` and ``pattern`` or ``item`` and ``question``, ``origin`` (mined or
rewritten), ``source`` (a corpus, a model or *rule*), what it was made of, and numbers."""


def write_proposals(path: Path | None, proposals: Sequence[Proposal]) -> Path | None:
    """Write proposals as JSONL, or as CSV for spreadsheets; without any there is no file."""
    if path is None or not proposals:
        return None
    is_csv = path.suffix == ".csv"
    content = codecs.BOM_UTF8 + csv_of(table_of(proposals)) if is_csv else json_lines(proposals)
    write_whole(path, content)
    return path


COLUMNS = (
    Column("relation", line),
    *(replace(one, default="", is_needed=False) for one in (*PATTERN_COLUMNS, *FACT_COLUMNS)),
    Column("label", line, "", is_needed=False),
    Column("accept", one_of("yes", "no"), "yes", is_needed=False),
)
TABLES = ("relations", "patterns", "facts", "edges", "names")
SHOWN = 10  # refusals; ``--format csv`` has all


def with_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> bytes:
    """A table with further rows: lines of JSONL after its own, or its cells in CSV written anew."""
    if path.suffix == ".jsonl":
        return json_lines(rows, path)
    if path.suffix != ".csv":
        found, expected = "rows to add to another table", "one in .jsonl or .csv"
        raise ConsilienceError(found, expected=expected, where=str(path))
    return csv_of(table_of([*(cells for _, cells in read_rows(path)), *rows]))


def import_patterns(path: Path, into: Path) -> Output:
    """Read a file, compare it with the suite folder, and add what is new.

    A pattern is refused that is a duplicate of an earlier one of its relation (``normal_form``). A
    new relation needs a pattern and a fact. Facts that the folder has are left out, and so are
    names that are the same in another language.
    """
    if not path.exists():
        where, todo = str(path), "Check the path."
        raise ConsilienceError("no such file or folder", where=where, todo=todo)
    with locked(into):
        suite = None  # In the folder; None for a new or empty one
        refused: Problems = []
        if into.is_dir() and is_suite(into):
            problems: Problems = []
            suite = read_folder(into, problems, needs_patterns=False)
            raise_all(problems)
        else:
            refuse_occupied(into, "a suite folder with relations and facts, or a new folder")
        rows = _rows_of(path, refused)
        accepted = [row for row in rows if row["accept"] == "yes"]
        patterns, facts, names = _new_rows(accepted, suite, into)
        patterns, facts, relations = _with_both(patterns, facts, suite, refused)
        labels = {one["relation"]: one["label"] for one in reversed(accepted) if one["label"]}
        subjects = Counter((row["relation"], row["subject"]) for row in facts)
        several = {relation for (relation, _), count in subjects.items() if count > 1}
        new = [
            {"relation": id_, "label": labels.get(id_, id_),
             "cardinality": "N-M" if id_ in several else "N-1"} for id_ in relations
        ]  # fmt: skip
        adds = bool(patterns or facts or names)
        if adds:
            try:
                standard = suite.language if suite else ENGLISH
                files = _files(into, patterns, facts, names, new, standard)
                _check(into, files)
            except OSError as error:  # of the folder, or of the copy that is checked
                raise cannot_write(into, error) from error
            make_folder(into)
            write_all(files)
    sizes: dict[str, Sequence[object]] = {
        "relation": relations, "pattern": patterns, "fact": facts, "name": names,
    }  # fmt: skip
    added = ", ".join(counted(len(of), noun) for noun, of in sizes.items() if of)
    shown = [
        f"{into} ({'existing' if suite else 'new'} suite)",
        f"added:   {added or 'nothing'}",
        f"refused: {len(refused):,}",
        *(f"  {error}" for error in refused[:SHOWN]),
    ]
    if len(refused) > SHOWN:
        shown.append(f"  ... {len(refused) - SHOWN:,} more; --format csv has all")
    if adds:
        shown.append(f"Check: consilience suite check {shlex.quote(str(into))}")
    else:
        shown.append("Nothing was written.")
    listed: list[tuple[object, ...]] = [
        ("added", one["relation"], one["pattern"], None, one.where) for one in patterns
    ]
    for problem in refused:
        reason = str(problem).removeprefix(f"{problem.where}: ")
        listed.append(("refused", None, None, reason, problem.where))
    columns = dict.fromkeys(("what", "relation", "pattern", "reason", "where"), pl.String)
    left_out = len(rows) - len(accepted)
    note = f"not accepted: {left_out} of {counted(len(rows), 'row')}"
    record = {
        "folder": str(into), "written": adds, "relations": relations,
        "facts": len(facts), "names": len(names),
    }  # fmt: skip
    return Output(
        {"patterns": pl.DataFrame(listed, columns, orient="row")}, shown,
        cautions=[note] * bool(left_out), facts=record, status=2 if refused and not adds else 0,
    )  # fmt: skip


def _rows_of(path: Path, refused: Problems) -> list[Row]:
    """The rows of the file; a wrong row is refused."""
    cells = list(read_rows(path, refused))
    has_facts = {"subject", "object"} <= {*names_of(cells)}
    columns = [replace(one, is_needed=one.name == "pattern" and not has_facts)
               if one.name != "relation" else one for one in COLUMNS]  # fmt: skip
    table = list(read_table(cells, [*columns, *translations(cells)], refused, str(path)))
    if not (table or refused):
        raise ConsilienceError("no pattern and no fact", where=str(path), todo="Check the file.")
    return table


def _new_rows(
    rows: Sequence[Row], suite: Suite | None, folder: Path
) -> tuple[list[Row], list[Row], list[dict[str, object]]]:
    """The rows with a new pattern, those with a new fact, and the new names."""
    known = {
        (group.id, normal_form(one.text)): one.text
        for group in suite or ()
        for one in group.patterns
    }
    held = {(group.id, *one.names) for group in suite or () for one in group.facts}
    patterns, facts, names = list[Row](), list[Row](), Names()
    for row in rows:
        text = row["pattern"]
        if text and pattern_of(row) is not None:
            key = row["relation"], normal_form(text)
            if not has_words(text):
                row.report(f"the pattern '{text}' has no word besides its slots")
            elif key in known:
                row.report(f"'{text}' is a duplicate of '{known[key]}'")
            else:
                known[key] = text
                patterns.append(row)
        if row["subject"] and row["object"]:
            add_translations(row, names)
            fact = row["relation"], row["subject"], row["object"]
            if fact not in held:
                held.add(fact)
                facts.append(row)
        elif row["subject"] or row["object"] or not text:
            row.report("no pattern and no fact", expected="a pattern, or subject and object")
    path = find_table(folder, "names") if suite else None
    written = {(of.get("name"), of.get("language")) for _, of in read_rows(path)} if path else ()
    return patterns, facts, [
        {"name": name, "language": language, "text": text}
        for language, of_language in names.items()
        for name, text in of_language.items()
        if text != name and (name, language) not in written
    ]  # fmt: skip


def _with_both(
    patterns: list[Row], facts: list[Row], suite: Suite | None, refused: Problems
) -> tuple[list[Row], list[Row], list[str]]:
    """The rows without new relations that have no pattern, or no fact; the ids of new relations."""
    known, tables = [group.id for group in suite or ()], {"pattern": patterns, "fact": facts}
    ids = {has: {row["relation"] for row in rows} for has, rows in tables.items()}
    for has, lacks in (("pattern", "fact"), ("fact", "pattern")):
        for id_ in sorted(ids[has] - ids[lacks] - {*known}):
            places = [row.where for row in tables[has] if row["relation"] == id_]
            size = f"{counted(len(places), has)} of it cannot be imported"
            found = f"the relation '{id_}' has no {lacks}, so {size}"
            todo = did_you_mean(id_, known, f"Add a row with a {lacks} of it.")
            refused.append(ConsilienceError(found, where=places[0], todo=todo))
    imported = {*known, *(ids["pattern"] & ids["fact"])}
    patterns, facts = (
        [row for row in of if row["relation"] in imported] for of in (patterns, facts)
    )
    return patterns, facts, [
        id_ for id_ in dict.fromkeys(row["relation"] for row in patterns) if id_ not in known
    ]  # fmt: skip


def _files(
    folder: Path,
    patterns: Sequence[Row],
    facts: Sequence[Row],
    names: Sequence[Mapping[str, object]],
    relations: Sequence[Mapping[str, object]],
    standard: str,
) -> dict[Path, bytes]:
    """The tables of a folder with the new rows; one that is not there becomes JSONL.

    Cells that are empty, and the ``standard`` language of the suite, are left out.
    """
    tables: dict[str, Sequence[Mapping[str, object]]] = {"relations": relations, "names": names}
    for name, columns, rows in (
        ("patterns", PATTERN_COLUMNS, patterns), ("facts", FACT_COLUMNS, facts)
    ):  # fmt: skip
        tables[name] = [
            {one: row[one] for one in ("relation", *(column.name for column in columns))
             if row[one] and not (one == "language" and row[one] == standard)}
            for row in rows
        ]  # fmt: skip
    paths = {name: find_table(folder, name) or folder / f"{name}.jsonl" for name in tables}
    return {paths[name]: with_rows(paths[name], rows) for name, rows in tables.items() if rows}


def _check(folder: Path, files: Mapping[Path, bytes]) -> None:
    """Raise where the suite would have an error with the new tables."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / folder.resolve().name
        copy.mkdir()
        tables = [find_table(folder, name) for name in TABLES]
        for path in (folder / "suite.json", *filter(None, tables)):
            if path.is_file():
                shutil.copyfile(path, copy / path.name)
        for path, content in files.items():
            (copy / path.name).write_bytes(content)
        if errors := suites.check_suite(copy):
            size = f"{len(errors)} errors, the first" if len(errors) > 1 else "an error"
            parts = {
                name: text.replace(str(copy), str(folder)) for name, text in errors[0].parts.items()
            }
            parts["found"] = f"the suite would have {size}: {parts['found']}"
            parts["todo"] = f"Nothing was written. {parts['todo']}".rstrip()
            raise ConsilienceError(**parts)
