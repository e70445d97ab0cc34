"""Tables of violated expectations: how many of each kind, and examples."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import polars.selectors as cs

from consilience.expectations import EXPECTATION_SUBSETS
from consilience.report.columns import GAP_NOTE, VIOLATION_NOTE, VIOLATIONS, frame_table
from consilience.report.prompt_lines import in_one_line
from consilience.report.table import Column, Table, Value

ALL_GROUPS = "all groups"
"""What a table calls the rows of all groups together (``MICRO``)."""


def violation_tables(
    violations: pl.DataFrame, examples: pl.DataFrame, name: str
) -> Iterator[Table]:
    """How often expectations are violated, and a table of examples for each kind."""
    notes = [VIOLATION_NOTE, GAP_NOTE]
    if violations["gap"].is_nan().all():
        violations, notes = violations.drop(cs.starts_with("gap")), [VIOLATION_NOTE]
    shown = violations.with_columns(pl.col("group").replace("MICRO", ALL_GROUPS))
    yield frame_table(shown, f"{name}: violated expectations, in percent", VIOLATIONS, notes)
    yield from violation_examples(examples)


def violation_examples(examples: pl.DataFrame) -> Iterator[Table]:
    """A table of examples for each kind of a group (``expectation_tables.EXAMPLES``).

    A variant that is that of the question above is left blank.
    """
    columns = [Column("question"), Column("variant"), Column("answer"), Column("permitted")]
    for (group, kind), of_kind in examples.group_by("group", "kind", maintain_order=True):
        rows: list[list[Value]] = []
        last_rows = []
        for _, example in of_kind.group_by("example", maintain_order=True):
            questions = in_one_line(example["prompt"].to_list())
            above = None
            for question, row in zip(questions, example.iter_rows(named=True), strict=True):
                variant = row["variant"] if row["variant"] != above else ""
                above = row["variant"]
                rows.append([question or row["item"], variant, row["answer"], row["permitted"]])
            last_rows.append(len(rows) - 1)
        title = f"{group}, {kind} ({EXPECTATION_SUBSETS[str(kind)]}): examples of violations"
        yield Table(title, columns, rows, rules=last_rows, sortable=False)
