"""Tables of mined patterns and of the matches of an example."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.report.table import Column, Table, Value
from consilience.suites.proposals import Proposal


def proposal_table(title: str, proposals: Sequence[Proposal]) -> Table:
    """One row a pattern, the most specific first."""
    columns = [
        Column("pattern"),
        Column("specificity", "share"),
        Column("facts", "count"),
        Column("other facts", "count"),
        Column("texts", "count"),
    ]
    names = ("specificity", "facts", "other_facts", "texts")
    rows: list[list[Value]] = [
        [row.pattern, *(row.scores[name] for name in names)] for row in proposals
    ]
    note = (
        "specificity: at least this share, in percent, of the connected facts are this relation's"
    )
    return Table(title, columns, rows, [note] if rows else [])


def match_table(
    title: str, matches: Sequence[tuple[str, str, str]], relations: Sequence[Sequence[str]] | None
) -> Table:
    """One row a match, of X, Y and a sentence; with a suite, also the relations of the fact."""
    columns = [Column("X"), Column("Y"), Column("sentence")]
    rows: list[list[Value]] = [list(match) for match in matches]
    if relations is None:
        return Table(title, columns, rows)
    columns.insert(2, Column("fact of"))
    for row, ids in zip(rows, relations, strict=True):
        row.insert(2, ", ".join(ids) or "no relation")
    return Table(title, columns, rows)
