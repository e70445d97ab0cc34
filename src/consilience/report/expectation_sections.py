"""The section of a report on expectations: how often the answers violate them."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.analysis.expectation_tables import NO_GAP
from consilience.expectations import EXPECTATION_SUBSETS
from consilience.report.columns import GAP_NOTE, PROBABILITY_GAP, VIOLATION_RATES, cells_of
from consilience.report.page import Folded, Part, Section
from consilience.report.run_view import RunView, group_names, without_run
from consilience.report.table import Column, Table, Value
from consilience.report.violation_tables import ALL_GROUPS, violation_examples

INTRO = (
    "The suite says what should hold between the answers to several questions. Compare the "
    "violation rate with its chance level: what it would be if the last answer were that of "
    "another expectation."
)
"""What the section shows."""

APPLICABLE = "applicable: the first answers meet the condition, counted in each variant"
"""A note below the table."""


def expectation_sections(runs: Sequence[RunView]) -> list[Section]:
    """The violation rates by group and kind; none without expectations."""
    names = {**group_names(runs[0].suite), "MICRO": ALL_GROUPS}
    rows: list[list[Value]] = []
    values = {
        (run.name, row["metric"], row["group"], row["subset"]): row
        for run in runs
        for row in run.metrics.iter_rows(named=True)
    }
    has_gap = any(metric == "probability_gap" for _, metric, _, _ in values)
    shown = {**VIOLATION_RATES, **(PROBABILITY_GAP if has_gap else {})}
    groups = [name for name in names if name != "MICRO" or len(names) > 2]
    for group in groups:
        for kind in EXPECTATION_SUBSETS:
            for run in runs:
                rate = values.get((run.name, "violation_rate", group, kind))
                chance = values.get((run.name, "chance_violation_rate", group, kind))
                if rate is None or chance is None:
                    continue
                gap = values.get((run.name, "probability_gap", group, kind), NO_GAP)
                row = {**rate, "chance": chance["value"], "gap": gap["value"]}
                row |= {"gap_low": gap["low"], "gap_high": gap["high"]}
                chance_gap = values.get((run.name, "chance_probability_gap", group, kind), NO_GAP)
                row |= {"gap_chance": chance_gap["value"]}
                rows.append([names[group], run.name, kind, *cells_of(row, shown)])
    if not rows:
        return []
    columns = [Column("group"), Column("run"), Column("expectation"), *shown.values()]
    rows, columns = without_run(len(runs), rows, columns)
    about = [
        f"{kind}: {text}"
        for kind, text in EXPECTATION_SUBSETS.items()
        if any(kind in row for row in rows)
    ]
    notes = [*about, APPLICABLE, *([GAP_NOTE] if has_gap else [])]
    table = Table("Violated expectations, in percent", columns, rows, notes)
    parts: list[Part] = [table]
    for run in runs:
        if run.facts is not None and (tables := list(violation_examples(run.facts.violations))):
            of_run = f": {run.name}" if len(runs) > 1 else ""
            parts.append(Folded(f"Examples of violations{of_run}", tables))
    return [Section("expectations", "Expectations", INTRO, parts)]
