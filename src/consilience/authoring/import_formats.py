"""The formats that suites are imported from, and the command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from consilience.authoring.importing import (
    WIKIDATA,
    Content,
    ImportPlan,
    Name,
    Reading,
    SourceFact,
    align_languages,
    load_facts,
)
from consilience.core.errors import ConsilienceError, did_you_mean, missing_column, unknown_name
from consilience.core.text import is_language_tag
from consilience.files.read import parse_json, read_rows, read_text
from consilience.files.rows import Row, refuse_misspelt, suite_rows
from consilience.files.tables import ENDINGS, read_answer_file, read_workbook
from consilience.options.suites import ImportOptions
from consilience.suites.layouts import LAMA_CARDINALITIES, load_folder, pararel_root
from consilience.suites.proposals import provenance_of, read_proposals, scores_of
from consilience.suites.question_suites import columns_of


def import_patterns(options: ImportOptions) -> ImportPlan:
    """Read a source, compare it with the suite folder, and add what is new."""
    reading = Reading(
        options.relation,
        columns_of(options.columns),
        tuple(options.language),
        options.source,
        options.licence,
    )
    format_, content = read_content(options.path, options.format, reading)
    suite = options.facts_from and load_facts(options.facts_from, options.data_dir)
    plan = ImportPlan(options.into, format_, content, options.near_duplicates, suite or None)
    plan.check()
    if not options.dry_run:
        plan.write()
        plan.is_dry = False
    return plan


def read_content(source: Path, format_: str | None, reading: Reading) -> tuple[str, Content]:
    """The format of a source, and what it holds; an unknown format or layout raises."""
    if not source.exists():
        raise ConsilienceError("no such file or folder", where=str(source), todo="Check the path.")
    name = format_ or next((name for name, of in FORMATS.items() if of.matches(source)), None)
    if name is None:
        raise ConsilienceError(
            "nothing that can be imported",
            expected="; ".join(f"{name}: {of.about}" for name, of in FORMATS.items()),
            where=str(source),
            todo="Name the format with --format.",
        )
    content = Content(source, reading)
    FORMATS[name].read(content)
    if not (content.patterns or content.facts or content.problems):
        raise ConsilienceError(
            f"no pattern and no fact, read as {name}",
            where=str(source),
            todo="Check the file, or name another format with --format.",
        )
    return name, content


def _first_row(path: Path) -> Mapping[str, Any]:
    """The first row of a JSONL file; empty where there is none."""
    if path.suffix != ".jsonl" or not path.is_file():
        return {}
    line = next((line for line in read_text(path).split("\n") if line.strip()), "")
    try:
        row = parse_json(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


# Proposals and suites.


def _is_proposals(path: Path) -> bool:
    return {"relation", "pattern", "origin"} <= _first_row(path).keys()


def _read_proposals(content: Content) -> None:
    """Proposals keep their provenance; where the source or licence is empty, the user's is used."""
    reading = content.reading
    content.patterns = [
        replace(
            proposal,
            source=proposal.source or reading.source or content.root.name,
            licence=proposal.licence or reading.licence,
            language=proposal.language or reading.language,
        )
        for proposal in read_proposals(content.root, content.problems)
    ]


def _is_suite(path: Path) -> bool:
    tables = ("patterns.jsonl", "patterns.tsv")
    return path.is_dir() and (bool(pararel_root(path)) or any((path / t).is_file() for t in tables))


def _read_suite(content: Content) -> None:
    """A suite folder in our layout or ParaRel's, with its provenance."""
    path = content.root
    suite = load_folder(path)
    content.language = suite.language
    rows = [] if pararel_root(path) else provenance_of(path)
    known = {(row.relation, row.pattern): row for row in rows}
    for group in suite:
        content.labels[group.id] = group.label
        content.cardinalities[group.id] = group.cardinality
        for pattern in group.patterns:
            needs: dict[str, Any] = {
                "language": pattern.language,
                "form": pattern.object_form,
                "subject_form": pattern.subject_form,
            }
            content.add(group.id, pattern.text, path, str(path), **needs)
            if row := known.get((group.id, pattern.text)):
                content.patterns[-1] = replace(row, **needs)
        content.facts += [
            SourceFact(group.id, fact.subject, fact.object, fact.item) for fact in group.facts
        ]
        content.names += [
            Name(group.id, name, language, text, form)
            for (language, form), names in group.names.items()
            for name, text in names.items()
        ]


# A file for each relation: LPAQA, ParaRel, LAMA, mParaRel, mLAMA.


def _relation_files(folder: Path) -> list[Path]:
    """The files of a folder that are named by a relation, in numerical order."""
    paths = [path for path in folder.iterdir() if path.suffix in (".jsonl", ".txt")]
    paths = [path for path in paths if path.stem != "templates" and path.is_file()]
    return sorted(paths, key=lambda path: (len(path.stem), path.stem))


def _prompt_folders(root: Path) -> list[Path]:
    """A folder with files of relations, or its subfolders that have some."""
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    return [
        folder
        for folder in folders
        if any(WIKIDATA.fullmatch(path.stem) for path in _relation_files(folder))
    ]


def _has_relation_files(path: Path) -> bool:
    if path.is_dir():
        return bool(_prompt_folders(path))
    return bool(WIKIDATA.fullmatch(path.stem)) and path.suffix in (".jsonl", ".txt")


def _read_relation_files(content: Content) -> None:
    """LPAQA, and the patterns of ParaRel: a file for each relation, named by it."""
    root = content.root
    folders = (_prompt_folders(root) or [root]) if root.is_dir() else []
    paths = [path for folder in folders for path in _relation_files(folder)]
    for path in paths if root.is_dir() else [root]:
        _read_relation_file(path, content.reading.relation or path.stem, content)


def _read_list(content: Content) -> None:
    """A pattern a line, for one relation."""
    relation = content.reading.relation
    if not relation:
        raise ConsilienceError(
            "a list of patterns without a relation",
            where=str(content.root),
            todo="Name the relation of its patterns: --relation ID.",
        )
    _read_relation_file(content.root, relation, content)


def _read_relation_file(path: Path, relation: str, content: Content, language: str = "") -> None:
    """The patterns or facts of one relation: LPAQA, ParaRel, mParaRel, mLAMA and T-REx.

    Text files have a pattern a line. Rows of JSONL have ``template`` or ``pattern``, or
    ``sub_label`` and ``obj_label``.
    """
    fields = ("pattern", "template")
    rows = _lines(path, content) if path.suffix == ".txt" else suite_rows(path, content.problems)
    for row in rows:
        column = next((name for name in fields if name in row.cells), None)
        if column is None and "sub_label" in row.cells:
            _add_fact(row, relation, content, language)
        elif pattern := row.pattern(column or "pattern"):
            scores = scores_of(row, fields)
            content.add(relation, pattern.text, path, row.where, language=language, scores=scores)


def _lines(path: Path, content: Content) -> Iterator[Row]:
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            yield Row(f"{path}:{number}", {"pattern": line.strip()}, content.problems)


def _add_fact(row: Row, relation: str, content: Content, language: str) -> None:
    """Add a fact with the names that T-REx, LAMA and mLAMA give its fields."""
    subject, object_ = row.text("sub_label"), row.text("obj_label")
    ids = [row.optional_text(name) for name in ("sub_uri", "obj_uri")]
    line = row.optional_text("lineid")
    item = row.optional_text("uuid") or (f"{relation}-line-{line}" if line else "")
    item = item or ("-".join(ids) if all(ids) else "")
    if subject and object_:
        fact = SourceFact(relation, subject, object_, item, language, row.where)
        content.facts.append(fact)


def _relations_file(path: Path) -> Path | None:
    """LAMA's ``relations.jsonl``: the file itself, or in a folder or its ``data``."""
    paths = (path, path / "relations.jsonl", path / "data" / "relations.jsonl")
    return next((p for p in paths if {"relation", "template"} <= _first_row(p).keys()), None)


def _read_lama(content: Content) -> None:
    """One template a relation, and its facts where ``TREx`` is beside ``relations.jsonl``."""
    path = _relations_file(content.root) or content.root
    for row, relation in _templates(path, content, types=LAMA_CARDINALITIES):
        content.labels[relation] = row.optional_text("label")
        content.cardinalities[relation] = LAMA_CARDINALITIES[str(row.cells.get("type", "N-1"))]
        facts = path.parent / "TREx" / f"{relation}.jsonl"
        if facts.is_file():
            _read_relation_file(facts, relation, content)


def _templates(
    path: Path, content: Content, *, language: str = "", types: Iterable[str] | None = None
) -> Iterator[tuple[Row, str]]:
    """Add the templates of all relations of LAMA or mLAMA, each row with its relation.

    ``types``: those that a relation may have; None for any.
    """
    for row in suite_rows(path, content.problems):
        relation, template = row.text("relation"), row.pattern("template")
        type_ = str(row.cells.get("type", "N-1"))
        if types is not None and type_ not in types:
            row.report(f"type '{type_}'", expected="1-1, N-1 or N-M")
        elif template and row.is_relation_id(relation):
            content.add(relation, template.text, path, row.where, language=language)
            yield row, relation


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
    folders = _language_folders(content.root)
    known = sorted(set(folders.values()))
    for language in content.reading.languages:
        if language not in known:
            raise ConsilienceError(
                f"no folder for the language '{language}'",
                where=str(content.root),
                todo=did_you_mean(language, known),
            )
    chosen = content.reading.languages or known
    content.reading = replace(content.reading, languages=())
    for folder, language in folders.items():
        if language not in chosen:
            continue
        for path in _relation_files(folder):
            _read_relation_file(path, path.stem, content, language)
        if (templates := folder / "templates.jsonl").is_file():
            list(_templates(templates, content, language=language))
    align_languages(content)


# Spreadsheets.

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


def _is_table(path: Path) -> bool:
    return path.is_file() and path.name.endswith(ENDINGS)


def _table_rows(path: Path, content: Content) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if path.suffix in (".jsonl", ".csv", ".tsv"):
        return read_rows(path, faults=content.problems)
    table = read_workbook(path) if path.suffix == ".xlsx" else read_answer_file(path)
    rows = enumerate(table.rows(named=True), start=2)
    return ((f"{path}, row {number}", row) for number, row in rows if any(row.values()))


def _read_table(content: Content) -> None:
    """A spreadsheet: each row has a pattern, a fact, or both."""
    columns, path = content.reading.columns, content.root
    for name in columns:
        if name not in TABLE_COLUMNS:
            raise unknown_name(f"--columns {name}={columns[name]}", name, TABLE_COLUMNS)
    checked: set[str] = set()
    for number, (where, cells) in enumerate(_table_rows(path, content)):
        if number == 0:
            _require(cells, columns, content.reading, where)
        if not cells.keys() <= checked:
            others = [name for name in cells if name not in columns.values()]
            refuse_misspelt(others, [name for name in TABLE_COLUMNS if name not in columns], where)
            checked |= cells.keys()
        named = {name: cells.get(columns.get(name, name)) for name in TABLE_COLUMNS}
        filled = {name: value for name, value in named.items() if value not in (None, "")}
        filled.setdefault("relation", content.reading.relation or None)
        _read_table_row(Row(where, filled, content.problems), content)


def _require(
    cells: Mapping[str, Any], columns: Mapping[str, str], reading: Reading, where: str
) -> None:
    """Raise for a column that is named and not there, or that a table cannot do without."""
    has_fact = all(columns.get(name, name) in cells for name in ("subject", "object"))
    needed = {} if reading.relation else {"relation": "relation"}
    needed |= {} if has_fact else {"pattern": "pattern"}
    for name, column in (needed | dict(columns)).items():
        if column not in cells:
            raise missing_column(
                column,
                list(cells),
                expected=TABLE_COLUMNS[name],
                where=where,
                todo=f"Name the column that has it: --columns {name}=COLUMN"
                + (", or name the relation: --relation ID." if name == "relation" else "."),
            )


def _read_table_row(row: Row, content: Content) -> None:
    relation = row.text("relation")
    if not row.is_relation_id(relation):
        return
    if label := row.optional_text("label"):
        content.labels.setdefault(relation, label)
    has_fact = "subject" in row.cells or "object" in row.cells
    if ("pattern" in row.cells or not has_fact) and (pattern := row.pattern()):
        texts = {name: row.optional_text(name) for name in ("source", "licence", "language")}
        needs = {"form": pattern.object_form, "subject_form": pattern.subject_form}
        content.add(relation, pattern.text, content.root, row.where, **texts, **needs)
    if has_fact:
        subject, object_ = row.text("subject"), row.text("object")
        if subject and object_:
            item = row.optional_text("item")
            content.facts.append(SourceFact(relation, subject, object_, item, where=row.where))


@dataclass(frozen=True, slots=True)
class Format:
    """A format that can be imported."""

    about: str
    matches: Callable[[Path], bool]
    read: Callable[[Content], None]


FORMATS: Mapping[str, Format] = {
    "proposals": Format("a file of proposals", _is_proposals, _read_proposals),
    "suite": Format("a suite folder", _is_suite, _read_suite),
    "lama": Format(
        "LAMA's relations.jsonl with TREx", lambda path: bool(_relations_file(path)), _read_lama
    ),
    "mpararel": Format(
        "a folder for each language (mParaRel, mLAMA)",
        lambda path: path.is_dir() and bool(_language_folders(path)),
        _read_languages,
    ),
    "lpaqa": Format(
        "a file for each relation, such as P19.jsonl (LPAQA)",
        _has_relation_files,
        _read_relation_files,
    ),
    "table": Format(f"a spreadsheet ({', '.join(ENDINGS)})", _is_table, _read_table),
    "list": Format("a text with a pattern a line", lambda path: path.suffix == ".txt", _read_list),
}
"""The formats, in the order in which they are tried."""
