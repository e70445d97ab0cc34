"""All runs of a study together: their headline numbers, and paired comparisons of its models.

p is adjusted over one family: every headline number of every comparison of the study.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.metrics.notes import few_relations
from consilience.metrics.paired import RELATIONS
from consilience.metrics.registry import label_of
from consilience.metrics.significance import benjamini_hochberg, holm
from consilience.options import Output
from consilience.report.comparison_tables import with_undefined_means
from consilience.report.export import save_table
from consilience.report.html import render
from consilience.report.shown import Shown, rows_of
from consilience.report.study_page import study_page
from consilience.report.study_tables import (
    StudyCell,
    StudyRow,
    comparisons_table,
    headlines_table,
)
from consilience.report.table import Table
from consilience.run import Run
from consilience.types import QUESTION_WORDS
from consilience.watch import SILENT, Watch
from consilience.workflow.comparing import Comparison, compare_opened
from consilience.workflow.counting import CountedRun, count_run, record_notes
from consilience.workflow.run_options import StudyReportOptions, StudyStatusOptions
from consilience.workflow.study_file import Study
from consilience.workflow.study_status import RunState, StudyState, study_status
from consilience.workflow.suite import any_suite_of, suite_notes

KEPT = ("value", "std", "low", "high", "baseline")
"""The fields of a headline number in a JSON document."""


@dataclass(frozen=True, slots=True, repr=False)
class StudyReport(Shown):
    """The runs of a study together."""

    state: StudyState
    """How far the study is."""
    cells: Sequence[StudyCell]
    """The numbers of all models by suite and factors; missing runs have a row without numbers."""
    differences: pl.DataFrame
    """The headline comparisons (``COMPARISON_SCHEMA`` with ``cell``): ``p_holm`` and ``q_value``
    are adjusted over all rows."""
    notes: Sequence[str]
    """What a reader should know."""
    files: Sequence[Path] = ()
    """The files that were written: the page first."""

    @property
    def study(self) -> Study:
        """The study."""
        return self.state.study

    def tables(self) -> dict[str, Table]:
        """The tables by the names of their files."""
        numbers = headlines_table(self.cells, self.study.name)
        if self.differences.is_empty():
            return {"study": numbers}
        return {
            "study": numbers,
            "comparisons": comparisons_table(self.differences, self.study.name),
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each model in each cell, for a JSON document; None without data."""
        return [
            {
                "cell": cell.name, "model": row.model, "missing": row.missing,
                "numbers": {
                    name: {key: _known(getattr(number, key)) for key in KEPT}
                    for name, number in row.numbers.items()
                },
                "items": row.items, "noise_floor": _known(row.noise_floor),
            }
            for cell in self.cells
            for row in cell.rows
        ]  # fmt: skip

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The tables, and the files."""
        for at, table in enumerate(self.tables().values()):
            if at:
                yield ""
            yield table
        yield from map(str, self.files)

    def document(self) -> dict[str, Any]:
        """The numbers of all runs, and their differences."""
        return {
            "run": self.study.record(), "runs": self.to_dicts(),
            "differences": rows_of(self.differences),
            "files": [str(file) for file in self.files], "warnings": [*self.notes],
        }  # fmt: skip

    def _tables(self) -> Iterator[Table]:
        yield self.tables()["study"]


LEVEL = 0.05
"""The level of significance of notes."""


def report_study(options: StudyReportOptions, watch: Watch = SILENT) -> StudyReport:
    """The numbers of all complete runs of a study, its comparisons, and the page of both."""
    state = study_status(StudyStatusOptions(options.file))
    study = state.study
    by_cell: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, list[RunState]]] = {}
    for one in state.runs:
        by_cell.setdefault(one.run.cell, {}).setdefault(one.run.model, []).append(one)
    if len(state.unfinished) == len(state.runs):
        raise ConsilienceError(
            "no run is complete",
            where=str(study.file),
            todo=f"Ask the models first: `consilience study run {study.file}`.",
        )
    cells, tables, notes = [], [], list[str]()
    with watch.steps("counting", len(by_cell), "tables") as advance:
        for cell, models in by_cell.items():
            measured = _measured(study, cell, models, options.seed)
            cells.append(measured[0])
            tables += measured[1]
            notes += [f"{measured[0].name}: {note}" for note in measured[2]]
            advance(1)
    differences = adjusted_over_study(pl.concat(tables)) if tables else pl.DataFrame()
    notes += smallest_p(differences)
    made = StudyReport(state, cells, differences, list(dict.fromkeys(notes)))
    return replace(made, files=_save(made, options))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def adjusted_over_study(differences: pl.DataFrame) -> pl.DataFrame:
    """The comparisons with ``p_holm`` and ``q_value`` over all rows; NaN is no test."""
    p = differences["p"].to_list()
    return differences.with_columns(
        p_holm=pl.Series(holm(p), dtype=pl.Float64),
        q_value=pl.Series(benjamini_hochberg(p), dtype=pl.Float64),
    )


def smallest_p(differences: pl.DataFrame) -> Iterator[str]:
    """A note on a family of tests in which no adjusted p can be below 0.05."""
    if differences.is_empty():
        return
    tested = differences.drop_nans("p")
    if tested.is_empty() or not (tested["test"] == RELATIONS).all():
        return
    least = tested.height * 2.0 ** (1 - int(tested["n"].max()))  # type: ignore[arg-type]
    if least >= LEVEL:
        yield (
            f"no p (Holm) of these {tested.height} comparisons can be below {min(1, least):.2g}, "
            "whatever the differences: too few relations for so many comparisons. Ask more "
            "relations, or compare fewer models"
        )


def _measured(
    study: Study,
    cell: tuple[str, tuple[tuple[str, str], ...]],
    models: Mapping[str, Sequence[RunState]],
    seed: int,
) -> tuple[StudyCell, list[pl.DataFrame], list[str]]:
    """The numbers of the models on one suite with one combination of factors, and comparisons."""
    runs = {name: _run_of(name, states) for name, states in models.items()}
    counted, faults = dict[str, CountedRun](), list[str]()
    for label, run in runs.items():
        try:
            counted |= {label: _counted(run, seed)} if run else {}
        except ConsilienceError as error:
            faults.append(f"{label} cannot be counted: {error}")
    rows = [
        row
        for name, states in models.items()
        for row in _rows(name, states, runs[name], counted.get(name))
    ]
    suite, factors = cell
    name = ", ".join([suite, *(f"{factor}={value}" for factor, value in factors)])
    complete = [run for run in runs.values() if run is not None and run.label in counted]
    tables, notes = _compared(study, name, complete, counted, seed)
    return StudyCell(name, rows), tables, [*faults, *notes]


def _run_of(name: str, states: Sequence[RunState]) -> Run | None:
    """The run of a model, with all its seeds; None where one of them is not complete."""
    if any(state.state != "complete" for state in states):
        return None
    first = states[0].run
    return Run.open(first.folder if first.seed is None else first.folder.parent, name)


def _counted(run: Run, seed: int) -> CountedRun:
    suite, protocol = any_suite_of(run, None, None, None)
    counted = count_run(run, suite, protocol, seed)
    return replace(counted, notes=[*suite_notes(run, suite), *counted.notes])


def _rows(
    name: str, states: Sequence[RunState], run: Run | None, counted: CountedRun | None
) -> Iterator[StudyRow]:
    """The rows of a model in a cell: its scored and its written answers, or its missing run."""
    if run is None:
        yield StudyRow(name, f"missing: {_why_missing(states)}")
        return
    if counted is None:
        yield StudyRow(name, "missing: cannot be counted")
        return
    notes = [*dict.fromkeys([*record_notes(run), *counted.notes])]
    headlines = [row for row in counted.summary.rows if row.subset == "all"]
    written = [row for row in headlines if row.label.endswith("(written)")]
    scored = [row for row in headlines if row not in written]
    page = run.path / "report.html"
    for rows, suffix in ((scored, ""), (written, " (written)")):
        if rows:
            yield StudyRow(
                name + suffix, "", {row.metric: row for row in rows}, counted.metrics,
                notes, run.record, page if page.is_file() else None,
            )  # fmt: skip


def _why_missing(states: Sequence[RunState]) -> str:
    """The state of a run, and of several seeds how many are complete."""
    (first, *_) = left = [state.state for state in states if state.state != "complete"]
    state = "failed" if "failed" in left else first
    if len(states) == 1:
        return state
    return f"{state}, {len(states) - len(left)} of {len(states)} seeds complete"


def _compared(
    study: Study, cell: str, runs: Sequence[Run], counted: Mapping[str, CountedRun], seed: int
) -> tuple[list[pl.DataFrame], list[str]]:
    """The headline comparisons in one cell, and notes on them."""
    first = [run for run in runs if run.label == study.reference]
    if study.pairs == "reference":
        if not first:
            return [], [f"nothing is compared, because {study.reference} is missing"]
        others = [run for run in runs if run.label != study.reference]
        families = [[*first, *others]]
    else:
        families = [list(runs[at:]) for at in range(len(runs))]
    tables, notes = [], list[str]()
    for family in families:
        alike = [run for run in family if len(run.seeds) == len(family[0].seeds)]
        notes += [
            f"{run.label} is not compared with {family[0].label}: another number of seeds"
            for run in family
            if run not in alike
        ]
        if len(alike) < 2:
            continue
        one = counted[alike[0].label]
        try:
            compared = compare_opened(alike, one.suite, one.protocol, seed)
        except ConsilienceError as error:
            notes.append(f"nothing is compared with {alike[0].label}: {error}")
            continue
        headlines = _headlines(compared, one)
        notes += [*compared.notes, *few_relations(headlines, one.suite), *_undefined(headlines)]
        tables.append(headlines.with_columns(cell=pl.lit(cell)))
    return tables, notes


def _headlines(compared: Comparison, first: CountedRun) -> pl.DataFrame:
    """The rows of a comparison on headline numbers: of sentence pairs those of each task."""
    is_of_questions = compared.suite.words is QUESTION_WORDS
    table = (
        compared.table if is_of_questions else with_undefined_means(compared.table, compared.suite)
    )
    metrics = {row.metric: at for at, row in enumerate(first.summary.rows) if row.subset == "all"}
    rows = table.filter((pl.col("subset") == "all") & pl.col("metric").is_in(list(metrics)))
    pool = "MICRO" if is_of_questions else "MACRO"
    rows = rows.filter(group=pool) if pool in rows["group"] else rows
    order = pl.col("metric").replace_strict(metrics, return_dtype=pl.Int64)
    runs = {run.label: at for at, run in enumerate(compared.runs)}
    later = pl.col("second").replace_strict(runs, return_dtype=pl.Int64)
    return rows.sort(later, "group", order, maintain_order=True)


def _undefined(headlines: pl.DataFrame) -> Iterator[str]:
    """Notes on numbers that a comparison lacks, because one of its models has none."""
    metrics = headlines["metric"].unique(maintain_order=True).to_list()
    for (first, second), rows in headlines.group_by("first", "second", maintain_order=True):
        absent = [label_of(name) for name in metrics if name not in rows["metric"]]
        if absent:
            yield f"{second} minus {first}: no difference of {', '.join(absent)}, which one lacks"


def _save(made: StudyReport, options: StudyReportOptions) -> list[Path]:
    """Write the page, and the tables if a folder for them is given; their paths."""
    tables, file = made.tables(), options.out or made.study.folder / "report.html"
    page = study_page(
        made.study.name, made.cells, tables, made.state.table(), made.notes, file.parent
    )
    written = []
    if options.tables:
        for name, table in tables.items():
            written += save_table(table, options.tables, name)
    write_whole(file, render(page).encode())
    return [file, *written]
