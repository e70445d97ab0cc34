"""Writes a suite of facts as a folder, in the layout that ``folder.py`` reads."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from consilience.cloze import ENGLISH, Pattern
from consilience.design import Edge
from consilience.errors import ConsilienceError
from consilience.files import cannot_write, path_of, write_whole
from consilience.suites.layouts import load_folder
from consilience.types import Relation, Suite

EDGE_FLAGS = tuple(Edge.__slots__)


def save_suite(suite: Suite, folder: str | Path) -> Path:
    """Write a suite of facts as a new folder that ``load_suite`` reads; the folder.

    The folder has the relations, patterns, facts, edges, names and the language. A suite
    keeps no licence, creator, provenance and verdicts: copy a folder that has them. A folder that
    holds the same suite is left as it is; one with other content raises. A suite that is not the
    same when it is read again raises: a sample whose candidates are more than its own objects,
    patterns in perturbed forms, and tasks of sentence pairs.
    """
    target = path_of(folder, "the folder of the suite")
    if _holds(target, suite):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            written = Path(scratch, "suite")
            _write(suite, written)
            if target.is_dir():
                target.rmdir()  # it is empty
            written.replace(target)
    except OSError as error:
        raise cannot_write(target, error) from error
    return target


def _holds(folder: Path, suite: Suite) -> bool:
    """Whether a folder holds that suite already; other content raises."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    try:
        held = load_folder(folder)
        if (held.name, held.language, held.digest) == (suite.name, suite.language, suite.digest):
            return True
        problem = f"the suite '{held.name}', which is another one"
    except ConsilienceError:
        problem = "a folder that is not empty" if folder.is_dir() else "a file"
    raise ConsilienceError(
        problem,
        expected=f"a new or empty folder for the suite '{suite.name}'",
        where=str(folder),
        todo="Nothing was written. Name another folder.",
    )


def _write(suite: Suite, folder: Path) -> None:
    """Write the files of a suite to a new folder, and check that they hold the same suite."""
    tables: dict[str, list[dict[str, object]]] = {
        "relations": [],
        "patterns": [],
        "facts": [],
        "edges": [],
        "names": [],
    }
    for relation in suite:
        for name, rows in _rows_of(relation, suite.language).items():
            tables[name] += [{"relation": relation.id, **row} for row in rows]
    about = {"name": suite.name}
    if suite.language != ENGLISH:
        about["language"] = suite.language
    folder.mkdir()
    write_whole(folder / "suite.json", json.dumps(about).encode())
    for name, rows in tables.items():
        if rows or name not in ("edges", "names"):
            write_whole(folder / f"{name}.jsonl", _lines(rows))
    if load_folder(folder).digest != suite.digest:
        raise ConsilienceError(
            f"the suite '{suite.name}' cannot be written as a folder",
            expected="relations with their own facts as candidates, and without perturbed patterns",
            todo="Choose a part of a suite with groups= and limit=, and forms with perturbations=.",
        )


def _rows_of(relation: Relation, language: str) -> dict[str, list[dict[str, object]]]:
    """The rows of a relation in each table; ``language``: of the suite."""
    texts = [pattern.text for pattern in relation.patterns]
    return {
        "relations": [{"label": relation.label, "cardinality": relation.cardinality}],
        "patterns": [
            {
                "pattern": pattern.text,
                "lemma": pattern.lemma,
                "extended_lemma": pattern.extended_lemma,
                "tense": pattern.tense,
                **_writing_of(pattern, language),
            }
            for pattern in relation.patterns
        ],
        "facts": [
            {"item": fact.item, "subject": fact.subject, "object": fact.object}
            for fact in relation.facts
        ],
        "edges": [
            {
                "pattern_a": texts[first],
                "pattern_b": texts[second],
                **{name: int(getattr(edge, name)) for name in EDGE_FLAGS},
            }
            for (first, second), edge in sorted(relation.edges.items())
        ],
        "names": [
            {"name": name, "language": tag, "form": form, "text": text}
            for (tag, form), names in relation.names.items()
            for name, text in names.items()
        ],
    }


def _writing_of(pattern: Pattern, language: str) -> dict[str, object]:
    """The columns of a pattern that say how it is written, without empty ones."""
    columns = {
        "language": pattern.language if pattern.language != language else "",
        "form": pattern.object_form,
        "subject_form": pattern.subject_form,
    }
    return {name: value for name, value in columns.items() if value}


def _lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
