"""Metadata of a suite folder in the format Croissant 1.0 of MLCommons (JSON-LD).

The specification: https://docs.mlcommons.org/croissant/docs/croissant-spec.html
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.read import read_rows

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"

TERMS = (
    "citeAs", "column", "conformsTo", "equivalentProperty", "extract", "field", "fileProperty",
    "fileObject", "fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace",
    "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
"""Terms of Croissant that the context of a document maps to it."""

CONTEXT: Mapping[str, object] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in TERMS},
    "conformsTo": "dct:conformsTo",
}
"""The context of every Croissant document, as the specification has it."""

FORMATS = {".jsonl": "application/jsonlines", ".tsv": "text/tab-separated-values"}

TABLES: Mapping[str, str] = {
    "relations": "Relations: id, name and cardinality.",
    "patterns": "Cloze patterns with a slot for the subject [X] and the object [Y].",
    "facts": "Facts: subject and object of a relation.",
    "edges": "How two patterns of a relation differ.",
    "names": "How subjects and objects are written in a language and form.",
    "aliases": "Answers that mean the same.",
    "provenance": "Where each pattern comes from.",
    "signoff": "Who judged which pattern, when, and how.",
}
"""The tables of a suite folder, and what they hold."""


def croissant(folder: Path, about: Mapping[str, Any], licence: str) -> dict[str, Any]:
    """The Croissant document of a suite folder.

    ``about``: ``suite.json``; ``description``, ``url``, ``creator``, ``date``, ``version`` and
    ``citation`` are used where they are there. Each table is a file with its SHA-256, and a set of
    records with a field for each column.
    """
    creator = {"@type": "Person", "name": about["creator"]} if "creator" in about else None
    optional = {
        "description": about.get("description"),
        "license": licence or None,
        "url": about.get("url"),
        "creator": creator,
        "datePublished": about.get("date"),
        "version": semantic(str(about["version"])) if "version" in about else None,
        "citeAs": about.get("citation"),
        "inLanguage": about.get("language"),
    }
    tables = [(name, path) for name in TABLES if (path := _table(folder, name)) is not None]
    return {
        "@context": dict(CONTEXT),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": about["name"],
        **{name: value for name, value in optional.items() if value is not None},
        "distribution": [_file(path) for _, path in tables],
        "recordSet": [_records(name, path) for name, path in tables],
    }


def semantic(version: str) -> str:
    """A version of three numbers, as Croissant wants it: ``1`` becomes ``1.0.0``."""
    parts = version.split(".")
    is_short = len(parts) < 3 and all(part.isdecimal() for part in parts)
    return ".".join([*parts, "0", "0"][:3]) if is_short else version


def _table(folder: Path, name: str) -> Path | None:
    paths = (folder / f"{name}{suffix}" for suffix in FORMATS)
    return next((path for path in paths if path.is_file()), None)


def _file(path: Path) -> dict[str, str]:
    content = path.read_bytes()
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "contentUrl": path.name,
        "contentSize": f"{len(content)} B",
        "encodingFormat": FORMATS[path.suffix],
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _records(name: str, path: Path) -> dict[str, Any]:
    columns: dict[str, list[Any]] = {}
    for _, cells in read_rows(path, quoted=False, faults=[]):
        for column, value in cells.items():
            columns.setdefault(column, []).append(value)
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{name}/{column}",
            "name": column,
            "dataType": _type_of(values),
            **({"repeated": True} if any(isinstance(value, list) for value in values) else {}),
            "source": {"fileObject": {"@id": path.name}, "extract": {"column": column}},
        }
        for column, values in columns.items()
    ]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": TABLES[name],
        "field": fields,
    }


def _type_of(values: Sequence[Any]) -> str:
    """The data type of a column; text where its values differ in type."""
    for kind, name in ((bool, "sc:Boolean"), (int, "sc:Integer"), (float, "sc:Float")):
        if all(isinstance(value, kind) for value in values):
            return name
    is_number = all(isinstance(value, int | float) for value in values)
    return "sc:Float" if is_number else "sc:Text"


def croissant_text(document: Mapping[str, Any]) -> str:
    """The document as it is written to ``croissant.json``."""
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
