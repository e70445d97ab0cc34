"""The raw LAMA T-REx layout: ``relations.jsonl`` and ``TREx/P19.jsonl`` (Petroni et al., 2019)."""

from __future__ import annotations

from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.suites.pararel import read_trex
from consilience.suites.rows import (
    is_relation_id,
    optional_text,
    raise_first,
    read_rows,
    text_field,
)
from consilience.types import Candidates, Cardinality, Pattern, Relation, Suite

_CARDINALITIES: dict[str, Cardinality] = {"1-1": "N-1", "N-1": "N-1", "N-M": "N-M"}
"""LAMA's relation types; where a subject has one object, it makes no difference which kind."""


def lama_root(folder: Path) -> Path | None:
    """The folder with ``relations.jsonl`` and ``TREx``: this one, or its ``data``."""
    for root in (folder, folder / "data"):
        if (root / "relations.jsonl").is_file() and (root / "TREx").is_dir():
            return root
    return None


def load_lama(root: Path) -> Suite:
    """Every relation that ``TREx`` has a file for, with its one template as the base pattern."""
    problems: list[ConsilienceError] = []
    suite = read_lama(root, problems)
    raise_first(problems)
    return suite


def read_lama(root: Path, problems: list[ConsilienceError]) -> Suite:
    """Read the layout and add everything that is wrong with it to ``problems``."""
    relations: list[Relation] = []
    for where, row in read_rows(root / "relations.jsonl", problems):
        id_ = text_field(row, "relation", where, problems)
        if not is_relation_id(id_, where, problems):
            continue
        path = root / "TREx" / f"{id_}.jsonl"
        if not path.is_file():
            continue
        template = text_field(row, "template", where, problems)
        type_ = str(row.get("type", "N-1"))
        if id_ in {relation.id for relation in relations}:
            problems.append(ConsilienceError(f"the relation '{id_}' a second time", where=where))
            continue
        if type_ not in _CARDINALITIES:
            problems.append(
                ConsilienceError(f"type '{type_}'", expected="1-1, N-1 or N-M", where=where)
            )
            continue
        try:
            pattern = Pattern.parse(template, where=where)
        except ConsilienceError as error:
            problems.append(error)
            continue
        facts = read_trex(path, id_, problems)
        label = optional_text(row, "label", where, problems) or id_
        relations.append(
            Relation(id_, label, _CARDINALITIES[type_], (pattern,), facts, {}, Candidates.of(facts))
        )
    if not relations and not problems:
        raise ConsilienceError(
            "no relation with a file in TREx", where=str(root), todo="Unpack LAMA's data.zip again."
        )
    return Suite("lama-trex", tuple(relations), protocol="strict")
