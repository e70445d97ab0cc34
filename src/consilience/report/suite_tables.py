"""Tables of what a suite of questions holds."""

from __future__ import annotations

from consilience.report.table import Column, Table, Value
from consilience.suites.question_sizes import QuestionStatistics
from consilience.text import counted


def question_table(statistics: QuestionStatistics, name: str) -> Table:
    """One row a group: its questions, phrasings and options."""
    columns = [
        Column("group"),
        Column("questions", "count"),
        Column("phrasings"),
        Column("options"),
        Column("majority", "share"),
    ]
    rows: list[list[Value]] = [
        [
            row.group,
            row.questions,
            _range(row.min_phrasings, row.max_phrasings),
            _range(row.min_options, row.max_options) if row.max_options else "open",
            row.majority,
        ]
        for row in statistics.by_group
    ]
    sizes = [counted(statistics.questions, "question"), counted(statistics.phrasings, "phrasing")]
    if statistics.expectations:
        sizes.append(counted(statistics.expectations, "expectation"))
    return Table(f"{name}: {', '.join(sizes)}; majority in percent", columns, rows)


def _range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"
