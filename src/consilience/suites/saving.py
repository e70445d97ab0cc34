"""Writes a suite of facts as a folder, in the layout that ``folder.py`` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from consilience.cloze import ENGLISH, Pattern
from consilience.design import Edge
from consilience.errors import ConsilienceError
from consilience.files import path_of, write_whole
from consilience.suites.layouts import load_folder
from consilience.types import Relation, Suite

EDGE_FLAGS = tuple(Edge.__slots__)


def save_suite(suite: Suite, folder: str | Path) -> Path:
    """Write a suite of facts as a folder that ``load_suite`` reads; the folder.

    A suite that is not the same when it is read again raises: a sample whose candidates are more
    than its own objects, patterns in perturbed forms, and tasks of sentence pairs.
    """
    target = path_of(folder, "the folder of the suite")
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
    target.mkdir(parents=True, exist_ok=True)
    write_whole(target / "suite.json", json.dumps(about).encode())
    for name, rows in tables.items():
        if rows or name not in ("edges", "names"):
            write_whole(target / f"{name}.jsonl", _lines(rows))
    if load_folder(target).digest != suite.digest:
        raise ConsilienceError(
            f"the suite '{suite.name}' cannot be written as a folder",
            expected="relations with their own facts as candidates, and without perturbed patterns",
            todo="Choose a part of a suite with groups= and limit=, and forms with perturbations=.",
        )
    return target


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
