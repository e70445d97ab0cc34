"""The report of a study."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Watch
from consilience.core.text import counted
from consilience.files.write import write_whole
from consilience.metrics.measure import mean_over_runs
from consilience.metrics.registry import label_of, short_label_of
from consilience.metrics.statistics import CLEAR, benjamini_hochberg, holm
from consilience.options import OutputOptions
from consilience.options.runs import StudyReportOptions, StudyStatusOptions
from consilience.probing.counting import CountedRun, count_run
from consilience.report import columns as layouts
from consilience.report import export
from consilience.report.cautions import by_run
from consilience.report.page import Page, Part, Section, render, repeat
from consilience.report.summary import KEY, SummaryRow
from consilience.report.table import CI, NAN, Cell, Column, Table, Value, intervals_below
from consilience.results.comparing import Comparison, compare_opened
from consilience.runs.run import Run
from consilience.study.file import RunState, Study, StudyState, study_status

NAMED = 3  # differences that the verdict names
OTHER_NUMBERS = (
    "A comparison is over the items that both models answered, so all its numbers may differ from "
    "those of the runs above, and a difference may have the other sign."
)


@dataclass(frozen=True, slots=True)
class StudyRow:
    """The headline numbers of a model in a cell: a suite, a combination of factors, a seed."""

    cell: str
    model: str
    missing: str  # Why there are no numbers; empty where there are
    numbers: Mapping[str, SummaryRow] = field(default_factory=dict)
    measured: tuple[Run, CountedRun] | None = None
    std: Mapping[str, float] = field(default_factory=dict)
    """Of means over seeds, by metric; empty for a run."""

    @property
    def items(self) -> int | None:
        if self.measured is None:
            return None
        rows = self.measured[1].metrics.filter(metric="accuracy", kind="whole")
        pooled = rows.filter(over="all")
        return int((pooled if pooled.height else rows)["n"].sum()) if rows.height else None

    @property
    def noise_floor(self) -> float:
        """The share of answers that changed when nothing in the prompt did; NaN if not measured."""
        floor = None if self.measured is None else layouts.noise_row(self.measured[1].metrics)
        return NAN if floor is None else float(floor["value"])


def headlines_table(rows: Sequence[StudyRow], study: str) -> Table:
    """One row for each model in each cell, also for missing runs; a block for each cell."""
    known = [row for row in rows if not row.missing]
    metrics = list(dict.fromkeys(name for row in known for name in row.numbers))
    has_noise = any(row.noise_floor == row.noise_floor for row in known)
    columns = [Column("model")]
    for name in metrics:
        columns.append(Column(label_of(name), "share", short_label_of(name)))
        columns.append(Column(CI, "share", is_extra=True))
    columns += [Column("items", "count", is_extra=True)]
    columns += [Column("noise floor", "share", is_extra=True)] * has_noise
    shown = list[list[Value]]()
    for row in rows:
        if row.missing:
            shown.append([row.model, row.missing, *[""] * (len(columns) - 2)])
            continue
        values: list[Value] = [row.model]
        for name in metrics:
            if number := row.numbers.get(name):
                std = row.std.get(name, NAN)
                values += [Cell(number.value, std), Cell(low=number.low, high=number.high)]
            else:
                values += [Cell(), Cell()]
        shown.append([*values, row.items, row.noise_floor][: len(columns)])
    missing = [f"{row.model} on {row.cell}" for row in rows if row.missing]
    notes = [*_meanings(known, metrics), *[f"Missing: {', '.join(missing)}."] * bool(missing)]
    title = f"{study}: {counted(len([row for row in known if row.measured]), 'run')} in percent"
    title += f", {len(missing)} missing" if missing else ""
    return Table(title, columns, shown, notes, [row.cell for row in rows])


def _meanings(rows: Sequence[StudyRow], metrics: Sequence[str]) -> Iterator[str]:
    """What each number counts; the same number may be called by other words in another suite."""
    for name in metrics:
        meanings = dict.fromkeys(
            row.numbers[name].meaning.partition(" (")[0] for row in rows if name in row.numbers
        )
        yield f"{label_of(name)}: {', or '.join(meanings)}."
    if any(row.std for row in rows):
        yield "Mean over seeds: ± is the standard deviation, the interval that of the mean (t)."


def comparisons_table(differences: pl.DataFrame, study: str) -> Table:
    """All headline comparisons (``COMPARISON_SCHEMA`` with ``cell``), with p over all of them."""
    records = [
        {"name": label_of(row["metric"]), **row} for row in differences.iter_rows(named=True)
    ]
    shown = layouts.difference_columns(differences, "first", "second")
    columns = {"name": Column("number"), **shown, "q_value": Column("q (BH)", "p", is_extra=True)}
    tested = differences["p"].is_not_nan().sum()
    cells = counted(differences["cell"].n_unique(), "combination")
    notes = [
        *[OTHER_NUMBERS] * bool(differences["n_excluded"].sum()),
        f"p (Holm) and q (BH) are adjusted over one family: all {tested} tests of this table, in "
        f"{cells} of suite and factors. Intervals and p are not adjusted.",
        f"p: {layouts.tests_of(differences)}. detectable: the minimum detectable difference "
        "(80 % power, one test). * .05 ** .01 *** .001",
    ]
    blocks = [f"{row['cell']}: {row['second']} minus {row['first']}" for row in records]
    title = f"{study}: differences between models, in percent and points"
    return layouts.frame_table(records, title, columns, notes, blocks)


def study_verdict(differences: pl.DataFrame, rows: Sequence[StudyRow]) -> list[str]:
    """How many differences of a study are clear, and the largest ones, in sentences.

    ``differences``: those of all headline numbers (``COMPARISON_SCHEMA`` with ``cell``). A
    difference in consistency from a model of constant answers is not named.
    """
    missing = [row for row in rows if row.missing]
    left_out = f"The numbers of {len(missing)} of {counted(len(rows), 'run')} are missing."
    more = [left_out] * bool(missing)
    if differences.is_empty():
        return ["No two models were compared.", *more]
    tested = differences.drop_nans("p_holm")
    clear = tested.filter(pl.col("p_holm") < CLEAR)
    over = f"of {counted(tested.height, 'difference')} between models"
    if clear.is_empty():
        return [f"None {over} is clear (p (Holm) >= {CLEAR} over the whole study).", *more]
    verb = "is" if clear.height == 1 else "are"
    sentences = [f"{clear.height} {over} {verb} clear (p (Holm) < {CLEAR} over the whole study)."]
    key = ["cell", "first", "second"]
    corrected = differences.drop_nans("difference").filter(metric="corrected_consistency")
    is_other = pl.col("metric") != "consistency"
    consistency = clear.filter(~is_other).join(corrected.select(key), on=key, how="semi")
    telling = pl.concat([clear.filter(is_other), consistency])
    largest = telling.sort(pl.col("difference").abs(), descending=True, maintain_order=True)
    named = [
        f"{label_of(row['metric']).lower()} of {row['second']} against {row['first']} on "
        f"{row['cell']} {100 * row['difference']:+.1f}"
        for row in largest.head(NAMED).to_dicts()
    ]
    if named:
        be = "The largest is" if len(named) == 1 else "The largest are"
        sentences.append(f"{be} {'; '.join(named)} points.")
    return [*sentences, *more]


def study_page(report: StudyReport, folder: Path) -> Page:
    """The page; ``folder``: where it will be, for links to other pages."""
    tables, cells = report.tables(), list(dict.fromkeys(row.cell for row in report.rows))
    sections = [Section("Numbers", [intervals_below(tables["study"])])]
    if "comparisons" in tables:
        intro = "Paired: on the same questions. A difference has a 95 % interval and a test."
        parts: list[Part] = [intro, tables["comparisons"], [*report.notes]]
        sections.append(Section("Comparisons", parts))
    about: list[Part] = [report.state.table()]
    links, warnings, records = [], {}, []
    for row in report.rows:
        if row.measured is None:
            continue
        label, (run, counted_run) = f"{row.model}, {row.cell}", row.measured
        if (page := run.path / "report.html").is_file():
            links.append((label, os.path.relpath(page, folder)))
        warnings[label] = counted_run.notes
        records.append((label, run.record))
    sections.append(Section("Runs", [*about, *([links] if links else [])]))
    notes = by_run(warnings)
    models = counted(len(dict.fromkeys(row.model for row in report.rows)), "model")
    return Page(
        title=f"How consistent are the models of {report.study.name}?",
        subtitle=f"{models}, {counted(len(cells), 'combination')} of suite and factors",
        verdict=report.verdict,
        sections=sections,
        details=[Section("Notes on single runs", [notes] if notes else []), repeat(records)],
    )


@dataclass(frozen=True, slots=True, repr=False)
class StudyReport(export.Shown):
    """The runs of a study together."""

    state: StudyState
    rows: Sequence[StudyRow]  # By cell; missing runs have a row without numbers
    means: Sequence[StudyRow]  # Over the seeds of a model, if there are several
    differences: pl.DataFrame  # ``COMPARISON_SCHEMA`` with ``cell``; p over all rows
    notes: Sequence[str]
    files: Sequence[Path] = ()

    @property
    def study(self) -> Study:
        return self.state.study

    def tables(self) -> dict[str, Table]:
        tables = {"study": headlines_table([*self.rows, *self.means], self.study.name)}
        if not self.differences.is_empty():
            differences, name = self.differences, self.study.name
            tables["comparisons"] = comparisons_table(differences, name)
        return tables

    @property
    def verdict(self) -> list[str]:
        """Which differences between models are clear, in sentences."""
        return study_verdict(self.differences, self.rows)

    def printed(self, output: OutputOptions) -> Iterator[Table | str]:
        yield from export.in_sentences(self.verdict, output)
        for at, table in enumerate(self.tables().values()):
            if at:
                yield ""
            yield table
        yield from map(str, self.files)

    def document(self) -> dict[str, Any]:
        kept = ("value", "low", "high", "baseline")
        rows = [
            {
                "cell": row.cell, "model": row.model, "missing": row.missing,
                "numbers": {
                    name: {key: getattr(number, key) for key in kept}
                    | ({"std": row.std[name]} if row.std else {})
                    for name, number in row.numbers.items()
                },
                "items": row.items, "noise_floor": row.noise_floor,
            }
            for row in [*self.rows, *self.means]
        ]  # fmt: skip
        return {
            "run": self.study.record(), "verdict": self.verdict, "runs": rows[: len(self.rows)],
            "means": rows[len(self.rows) :],
            "differences": self.differences.to_dicts(),
            "files": [str(file) for file in self.files], "warnings": [*self.notes],
        }  # fmt: skip

    def _tables(self) -> Iterator[Table]:
        yield Table("", [], [], self.verdict)
        yield self.tables()["study"]


def report_study(options: StudyReportOptions, watch: Watch = SILENT) -> StudyReport:
    """The numbers of all complete runs of a study, its comparisons, and the page of both."""
    state = study_status(StudyStatusOptions(options.file))
    study = state.study
    by_cell: dict[str, dict[int | None, list[RunState]]] = {}
    for one in state.runs:
        by_cell.setdefault(one.run.cell, {}).setdefault(one.run.seed, []).append(one)
    if len(state.unfinished) == len(state.runs):
        todo = f"Ask the models first: `consilience study run {study.file}`."
        raise ConsilienceError("no run is complete", where=str(study.file), todo=todo)
    rows, means, tables, notes = list[StudyRow](), list[StudyRow](), [], list[str]()
    with watch.steps("counting", len(by_cell), "tables") as advance:
        for cell, by_seed in by_cell.items():
            of_cell, alone = list[StudyRow](), dict[str, Counted]()
            for seed in sorted(by_seed, key=lambda seed: (seed is not None, seed)):
                name = cell if seed is None else f"{cell}, seed={seed}"
                measured, known, faults = _measured(name, by_seed[seed])
                compared, more = _compared(study, name, alone, known)
                alone = known if seed is None else alone
                of_cell += measured
                tables += compared
                notes += [f"{name}: {note}" for note in (*faults, *more)]
            rows += of_cell
            means += means_over_seeds(cell, of_cell)
            advance(1)
    differences = adjusted_over_study(pl.concat(tables)) if tables else pl.DataFrame()
    made = StudyReport(state, rows, means, differences, list(dict.fromkeys(notes)))
    file = options.out or study.folder / "report.html"
    page = study_page(made, file.parent)
    written: list[Path] = []
    if folder := options.tables:
        for name, table in made.tables().items():
            written += export.save_table(table, folder, name)
    write_whole(file, render(page).encode())
    return replace(made, files=[file, *written])


def adjusted_over_study(differences: pl.DataFrame) -> pl.DataFrame:
    """The comparisons with ``p_holm`` and ``q_value`` over all rows; NaN is no test."""
    p = differences["p"].to_list()
    q_value = pl.Series(benjamini_hochberg(p), dtype=pl.Float64)
    return differences.with_columns(p_holm=pl.Series(holm(p), dtype=pl.Float64), q_value=q_value)


def means_over_seeds(cell: str, rows: Sequence[StudyRow]) -> Iterator[StudyRow]:
    """The means of the headline numbers of each model that was run with several seeds."""
    by_model: dict[str, list[tuple[StudyRow, pl.DataFrame]]] = {}
    for row in rows:
        if row.measured:
            by_model.setdefault(row.model, []).append((row, row.measured[1].metrics))
    for model, runs in by_model.items():
        if len(runs) < 2:
            continue
        means = mean_over_runs(metrics for _, metrics in runs).to_dicts()
        by_key = {tuple(mean[name] for name in KEY): mean for mean in means}
        numbers, std = dict[str, SummaryRow](), dict[str, float]()
        for name, number in runs[0][0].numbers.items():
            mean = by_key[tuple(getattr(number, name) for name in KEY)]
            shown = {part: mean[part] for part in ("value", "low", "high")}
            numbers[name], std[name] = replace(number, **shown), mean["std"]
        yield StudyRow(f"{cell}, mean of {len(runs)} seeds", model, "", numbers, std=std)


Counted = tuple[Run, CountedRun]


def _measured(
    cell: str, states: Sequence[RunState]
) -> tuple[list[StudyRow], dict[str, Counted], list[str]]:
    """The numbers of the models in a cell, their runs, and what cannot be counted."""
    rows, faults, known = list[StudyRow](), list[str](), dict[str, Counted]()
    for state in states:
        name = state.run.model
        if state.state != "complete":
            rows.append(StudyRow(cell, name, f"missing: {state.state}"))
            continue
        run = Run.open(state.run.folder, name)
        try:
            one = count_run(run)
        except ConsilienceError as error:
            faults.append(f"{name} cannot be counted: {error}")
            rows.append(StudyRow(cell, name, "missing: cannot be counted"))
            continue
        known[name] = run, one
        headlines = [row for row in one.summary.rows if row.kind == "whole"]
        for ending in ("", " (written)"):
            numbers = {
                row.metric: row
                for row in headlines
                if row.label.endswith("(written)") == bool(ending)
            }
            if numbers:
                rows.append(StudyRow(cell, name + ending, "", numbers, (run, one)))
    return rows, known, faults


def _compared(
    study: Study, cell: str, alone: Mapping[str, Counted], of_cell: Mapping[str, Counted]
) -> tuple[list[pl.DataFrame], list[str]]:
    """The comparisons of the runs of a cell, also with those of models without a seed."""
    known = {**alone, **of_cell}
    runs = [run for run, _ in known.values()]
    first = [run for run in runs if run.label == study.reference]
    if study.pairs == "reference":
        if not first:
            return [], [f"nothing is compared, because {study.reference} is missing"]
        others = [run for run in runs if run.label != study.reference]
        families = [[*first, *others]]
    else:
        families = [list(runs[at:]) for at in range(len(runs))]
    tables, notes = [], list[str]()
    for first_run, *others in families:
        family = [first_run, *(run for run in others if {first_run.label, run.label} - {*alone})]
        if len(family) < 2:
            continue
        _, one = known[family[0].label]
        try:
            compared = compare_opened(family)
        except ConsilienceError as error:
            notes.append(f"nothing is compared with {family[0].label}: {error}")
            continue
        headlines = _headlines(compared, one)
        notes += compared.notes
        tables.append(headlines.with_columns(cell=pl.lit(cell)))
    return tables, notes


def _headlines(compared: Comparison, first: CountedRun) -> pl.DataFrame:
    """The rows of a comparison on headline numbers: of sentence pairs those of each task."""
    over, table = compared.suite.words.over, layouts.legible(compared.table)
    metrics = {row.metric: at for at, row in enumerate(first.summary.rows) if row.kind == "whole"}
    rows = table.filter(pl.col("metric").is_in(list(metrics)), over=over, kind="whole")
    order = pl.col("metric").replace_strict(metrics, return_dtype=pl.Int64)
    runs = {run.label: at for at, run in enumerate(compared.runs)}
    later = pl.col("second").replace_strict(runs, return_dtype=pl.Int64)
    return rows.sort(later, "group", order, maintain_order=True)
