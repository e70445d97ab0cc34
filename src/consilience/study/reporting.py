"""The report of a study: a row for each run, and the differences from the first model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import permutations
from operator import attrgetter
from pathlib import Path

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Progress
from consilience.core.schemas import NOISE_FLOOR
from consilience.core.text import counted
from consilience.metrics.measure import legible
from consilience.metrics.registry import label_of
from consilience.metrics.statistics import CLEAR, holm
from consilience.probing import count_run
from consilience.report.cautions import by_run
from consilience.report.layouts import difference_columns, metric_column, tests_of
from consilience.report.summary import KEY
from consilience.report.table import Column, Output, Table, frame_table
from consilience.results.comparing import compare_opened
from consilience.runs.run import Run
from consilience.study import Study, StudyRun, read_study
from consilience.study.running import state_of, study_state

Notes = defaultdict[str, list[str]]  # Cautions by model and cell


def _wide(rows: pl.DataFrame, title: str, notes: Sequence[str]) -> Table:
    """One row for each model in each cell, with each number and its interval."""
    columns = {"model": Column("model")}
    for name in rows["metric"].unique(maintain_order=True):
        columns[f"value_{name}"] = metric_column(name, (f"low_{name}", f"high_{name}"))
    values, index = ["value", "low", "high"], ["cell", "model"]
    wide = rows.pivot("metric", index=index, values=values, maintain_order=True)
    return frame_table(wide, title, columns, notes, wide["cell"].to_list())


def _comparisons_table(differences: pl.DataFrame, study: str) -> Table:
    """All headline comparisons (``COMPARISON_SCHEMA`` with ``cell``), with p over all of them."""
    rows = [{"name": label_of(row["metric"]), **row} for row in differences.to_dicts()]
    columns = {"name": Column("number"), **difference_columns("first", "second")}
    notes = [
        "A comparison is over the items that both models answered.",
        f"p (Holm) is adjusted over all {differences['p'].is_not_nan().sum()} tests of this table. "
        "Intervals and p are not.",
        f"p: {tests_of(differences)}. detectable: the minimum detectable difference "
        "(80 % power, one test). * .05 ** .01 *** .001",
    ]
    blocks = [f"{row['cell']}: {row['second']} minus {row['first']}" for row in rows]
    title = f"{study}: differences between models, in percent and points"
    return frame_table(rows, title, columns, notes, blocks)


def report_study(file: Path, progress: Progress = SILENT) -> Output:
    """The complete runs of a study together. A cell is a suite with a combination of factors.

    * ``numbers``: the headline numbers of each run, as rows of its metrics table; with ``run,
      cell, model``.
    * ``differences``: from the first model (``COMPARISON_SCHEMA`` with ``cell``), item by item; p
      is adjusted over all rows.
    * ``runs``: how far all runs are.
    """
    study = read_study(file)
    runs, cells = state_of(study), list(dict.fromkeys(run.cell for run in study.runs))
    complete = runs.filter(state="complete")["run"]
    left = [run for run in study.runs if run.name in complete]
    left.sort(key=lambda run: cells.index(run.cell))
    numbers, notes = list[pl.DataFrame](), Notes(list)
    with progress.steps("counting", len(left), "runs") as advance:
        for run in left:
            rows, notes[f"{run.model} on {run.cell}"] = _numbers(run)
            numbers.append(rows)
            advance(1)
    if not numbers:
        todo = f"Ask the models first: `consilience study run {study.file}`."
        raise ConsilienceError("no run is complete", where=str(study.file), todo=todo)
    whole = pl.concat(numbers)
    differences = _differences(study, left, numbers, notes)
    missing = [f"{name} is missing" for name in runs.filter(state="waiting")["run"]]
    name = study.file.stem
    title = f"{name}: {counted(len(left), 'run')} in percent"
    shown: list[Table | str] = [_wide(whole, title, missing)]
    verdict = "No two models were compared."
    if differences.height:
        shown += ["", _comparisons_table(differences, name)]
        tested = differences.drop_nans("p_holm")
        clear = tested.filter(pl.col("p_holm") < CLEAR).height
        count = f"{clear} of {counted(tested.height, 'difference')} between models"
        verdict = f"Clear (p (Holm) < {CLEAR} over the whole study): {count}."
    return Output(
        tables={"numbers": whole, "differences": differences, "runs": runs},
        shown=shown,
        verdict=[verdict],
        cautions=by_run(notes),
        facts=study_state(study, runs).facts,
    )


def _differences(
    study: Study, left: Sequence[StudyRun], numbers: Sequence[pl.DataFrame], notes: Notes
) -> pl.DataFrame:
    """The differences of complete runs from those of the first model, in each cell.

    What should be known of a comparison is added to ``notes``.
    """
    differences, reference = list[pl.DataFrame](), study.runs[0].model
    for first, second in permutations(left, 2):
        if first.model == reference and first.cell == second.cell:
            about = f"{second.model} on {first.cell}"
            try:
                compared = compare_opened([Run.open(of.folder, of.model) for of in (first, second)])
            except ConsilienceError as error:
                notes[about].append(f"not compared with {first.model}: {error}")
                continue
            headlines = numbers[left.index(first)].select("metric").unique(maintain_order=True)
            rows = legible(compared.table).filter(over=compared.suite.words.over, kind="whole")
            rows = headlines.join(rows, on="metric", maintain_order="left_right")
            notes[about] += compared.notes
            differences.append(rows.with_columns(cell=pl.lit(first.cell)))
    family = pl.concat(differences) if differences else pl.DataFrame({"p": []})
    return family.with_columns(p_holm=pl.Series(holm(family["p"].to_list()), dtype=pl.Float64))


def _numbers(run: StudyRun) -> tuple[pl.DataFrame, list[str]]:
    """The headline numbers of a run with its noise floor, and the cautions on it."""
    known = count_run(Run.open(run.folder, run.model))
    keys = [attrgetter(*KEY)(row) for row in known.summary.rows if row.kind == "whole"]
    floor = known.metrics.filter(pl.col("n") > 0, metric=NOISE_FLOOR).select(KEY)
    wanted = pl.concat([pl.DataFrame(keys, [*KEY], orient="row"), floor])
    rows = wanted.join(legible(known.metrics), on=[*KEY], maintain_order="left")
    model, of_task = pl.lit(run.model), pl.format("{}, {}", pl.lit(run.model), "group")
    is_of_several = (pl.col("group") != "") & (len(known.suite.relations) > 1)
    rows = rows.with_columns(
        run=pl.lit(run.name),
        cell=pl.lit(run.cell),
        model=pl.when(is_of_several).then(of_task).otherwise(model),
    )
    return rows.drop("n_excluded", "std"), [*known.notes]
