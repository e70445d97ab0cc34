"""Facts without patterns: what a suite is made from."""

from __future__ import annotations

from pathlib import Path

from consilience import suites
from consilience.errors import ConsilienceError
from consilience.suites.folder import read_folder
from consilience.suites.rows import Problems, find_table, raise_first, suite_rows
from consilience.types import Candidates, Fact, Relation, Suite


def load_facts(spec: str, data_dir: Path | None = None, *, as_shipped: bool = False) -> Suite:
    """A suite; or the facts of a table, or of a folder without patterns, as a suite without any.

    The table (JSONL, TSV or CSV) has the columns ``relation``, ``subject`` and ``object``. The
    relations are then N-1, their ids are their labels, and the language is empty.
    """
    path = Path(spec)
    problems: Problems = []
    if path.is_dir() and not find_table(path, "patterns") and find_table(path, "relations"):
        suite = read_folder(path, problems, needs_patterns=False)
        raise_first(problems, " like it)")
        return suite
    table = path if path.is_file() and path.suffix in (".jsonl", ".tsv", ".csv") else None
    if path.is_dir() and not find_table(path, "patterns"):
        table = find_table(path, "facts")
    if table is None:
        return suites.load_suite(spec, data_dir, as_shipped=as_shipped)
    facts: dict[str, list[Fact]] = {}
    for row in suite_rows(table, problems):
        relation, subject, object_ = (row.text(name) for name in ("relation", "subject", "object"))
        if row.is_relation_id(relation) and subject and object_:
            of_relation = facts.setdefault(relation, [])
            of_relation.append(Fact(f"{relation}-{len(of_relation) + 1}", subject, object_))
    raise_first(problems, " like it)")
    if not facts:
        raise ConsilienceError("no fact", where=str(table), todo="Add one line for each fact.")
    relations = (
        Relation(id_, id_, "N-1", (), tuple(of_relation), {}, Candidates.of(of_relation))
        for id_, of_relation in facts.items()
    )
    return Suite(path.stem, tuple(relations), language="")
