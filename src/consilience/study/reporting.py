"""The report of a study: a row for each run, means over seeds, differences from the reference."""

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
from consilience.metrics.measure import legible, mean_over_runs
from consilience.metrics.registry import label_of
from consilience.metrics.statistics import CLEAR, benjamini_hochberg, holm
from consilience.probing import count_run
from consilience.report.cautions import by_run
from consilience.report.comparison_tables import difference_columns, tests_of
from consilience.report.export import Output
from consilience.report.metric_tables import metric_column
from consilience.report.summary import KEY
from consilience.report.table import Column, Table, frame_table
from consilience.results.comparing import compare_opened
from consilience.runs.run import Run
from consilience.study import Study, StudyRun, read_study
from consilience.study.running import state_of, study_state

Notes = defaultdict[str, list[str]]  # Cautions by model and cell


def _wide(rows: pl.DataFrame, title: str, notes: Sequence[str]) -> Table:
    """One row for each model in each cell and seed, with each number and its interval."""
    columns = {"model": Column("model")}
    for name in rows["metric"].unique(maintain_order=True):
        columns[f"value_{name}"] = metric_column(name, (f"low_{name}", f"high_{name}"))
        columns[f"std_{name}"] = Column("std", "share")
    columns["items"] = Column("items", "count", is_extra=True)
    index = [name for name in ("cell", "model", "seed", "items") if name in rows.columns]
    values = [name for name in ("value", "std", "low", "high") if name in rows.columns]
    wide = rows.pivot("metric", index=index, values=values, maintain_order=True)
    cells = [_cell_of(row["cell"], row.get("seed")) for row in wide.to_dicts()]
    return frame_table(wide, title, columns, notes, cells)


def _cell_of(cell: str, seed: int | None) -> str:
    return cell if seed is None else f"{cell}, seed={seed}"


def _comparisons_table(differences: pl.DataFrame, study: str) -> Table:
    """All headline comparisons (``COMPARISON_SCHEMA`` with ``cell``), with p over all of them."""
    rows = [{"name": label_of(row["metric"]), **row} for row in differences.to_dicts()]
    shown = difference_columns(differences, "first", "second")
    columns = {"name": Column("number"), **shown, "q_value": Column("q (BH)", "p", is_extra=True)}
    notes = [
        "A comparison is over the items that both models answered.",
        f"p (Holm) and q (BH) are adjusted over all {differences['p'].is_not_nan().sum()} tests of "
        "this table. Intervals and p are not adjusted.",
        f"p: {tests_of(differences)}. detectable: the minimum detectable difference "
        "(80 % power, one test). * .05 ** .01 *** .001",
    ]
    blocks = [
        f"{_cell_of(row['cell'], row['seed'])}: {row['second']} minus {row['first']}"
        for row in rows
    ]
    title = f"{study}: differences between models, in percent and points"
    return frame_table(rows, title, columns, notes, blocks)


def report_study(file: Path, progress: Progress = SILENT) -> Output:
    """The complete runs of a study together. A cell is a suite with a combination of factors.

    * ``numbers``: the headline numbers of each run, as rows of its metrics table; with ``run,
      cell, model, seed, items``.
    * ``means``: over the seeds of a model in a cell, where there are several.
    * ``differences``: from the reference (``COMPARISON_SCHEMA`` with ``cell, seed``), item by
      item; p is adjusted over all rows.
    * ``runs``: how far all runs are.
    """
    study = read_study(file)
    runs, cells = state_of(study), list(dict.fromkeys(run.cell for run in study.runs))
    complete = runs.filter(state="complete")["run"]
    left = [run for run in study.runs if run.name in complete]
    left.sort(key=lambda run: (cells.index(run.cell), run.seed is not None, run.seed or 0))
    numbers, notes = list[pl.DataFrame](), Notes(list)
    with progress.steps("counting", len(left), "runs") as advance:
        for run in left:
            rows, notes[f"{run.model} on {_cell_of(run.cell, run.seed)}"] = _numbers(run)
            numbers.append(rows)
            advance(1)
    if not numbers:
        todo = f"Ask the models first: `consilience study run {study.file}`."
        raise ConsilienceError("no run is complete", where=str(study.file), todo=todo)
    whole = pl.concat(numbers)
    seeds = whole.drop_nulls("seed").group_by("cell", "model", maintain_order=True)
    means = [
        mean_over_runs(rows.partition_by("seed")).with_columns(
            cell=pl.lit(f"{cell}, mean of {rows['seed'].n_unique()} seeds"), model=pl.lit(model)
        )
        for (cell, model), rows in seeds
        if rows["seed"].n_unique() > 1
    ]
    differences = _differences(study, left, numbers, notes)
    others = runs.filter(pl.col("state") != "complete").iter_rows(named=True)
    missing = [f"{of['run']} is missing: {of['message'] or of['state']}" for of in others]
    name, mean = study.file.stem, pl.concat(means) if means else pl.DataFrame()
    title = f"{name}: {counted(whole['run'].n_unique(), 'run')} in percent"
    shown: list[Table | str] = [_wide(whole, title, missing)]
    if means:
        note = "The interval is that of the mean (t). std: the standard deviation over seeds."
        shown += ["", _wide(mean, f"{name}: means over seeds, in percent", [note])]
    verdict = "No two models were compared."
    if differences.height:
        shown += ["", _comparisons_table(differences, name)]
        tested = differences.drop_nans("p_holm")
        clear = tested.filter(pl.col("p_holm") < CLEAR).height
        count = f"{clear} of {counted(tested.height, 'difference')} between models"
        verdict = f"Clear (p (Holm) < {CLEAR} over the whole study): {count}."
    return Output(
        tables={"numbers": whole, "means": mean, "differences": differences, "runs": runs},
        shown=shown,
        verdict=[verdict],
        cautions=by_run(notes),
        facts=study_state(study, runs).facts,
    )


def _differences(
    study: Study, left: Sequence[StudyRun], numbers: Sequence[pl.DataFrame], notes: Notes
) -> pl.DataFrame:
    """The differences of complete runs from those of the reference, in each cell and seed.

    A model without seeds is compared with every seed of the other. What should be known of a
    comparison is added to ``notes``.
    """
    differences = list[pl.DataFrame]()
    for first, second in permutations(left, 2):
        is_pair = first.model == study.reference != second.model and first.cell == second.cell
        if is_pair and len({first.seed, second.seed} - {None}) < 2:
            seed = second.seed if first.seed is None else first.seed
            about = f"{second.model} on {_cell_of(first.cell, seed)}"
            try:
                compared = compare_opened([Run.open(of.folder, of.model) for of in (first, second)])
            except ConsilienceError as error:
                notes[about].append(f"not compared with {first.model}: {error}")
                continue
            headlines = numbers[left.index(first)].select("metric").unique(maintain_order=True)
            rows = legible(compared.table).filter(over=compared.suite.words.over, kind="whole")
            rows = headlines.join(rows, on="metric", maintain_order="left_right")
            notes[about] += compared.notes
            named = {"cell": pl.lit(first.cell), "seed": pl.lit(seed, pl.Int64)}
            differences.append(rows.with_columns(**named))
    family = pl.concat(differences) if differences else pl.DataFrame({"p": []})
    p = family["p"].to_list()
    return family.with_columns(
        p_holm=pl.Series(holm(p), dtype=pl.Float64),
        q_value=pl.Series(benjamini_hochberg(p), dtype=pl.Float64),
    )


def _numbers(run: StudyRun) -> tuple[pl.DataFrame, list[str]]:
    """The headline numbers of a run with its noise floor, and the cautions on it."""
    known = count_run(Run.open(run.folder, run.model))
    keys = [attrgetter(*KEY)(row) for row in known.summary.rows if row.kind == "whole"]
    floor = known.metrics.filter(pl.col("n") > 0, metric=NOISE_FLOOR).select(KEY)
    wanted = pl.concat([pl.DataFrame(keys, [*KEY], orient="row"), floor])
    rows = wanted.join(legible(known.metrics), on=[*KEY], maintain_order="left")
    accuracy = known.metrics.filter(metric="accuracy", kind="whole")
    items = accuracy.filter(pl.col("over") != "mean")
    items = items.filter(over="all") if "all" in items["over"] else items
    model, of_task = pl.lit(run.model), pl.format("{}, {}", pl.lit(run.model), "group")
    is_of_several = (pl.col("group") != "") & (len(known.suite.relations) > 1)
    rows = rows.with_columns(
        run=pl.lit(run.name),
        cell=pl.lit(run.cell),
        model=pl.when(is_of_several).then(of_task).otherwise(model),
        seed=pl.lit(run.seed, pl.Int64),
        items=pl.lit(items["n"].sum()),
    )
    return rows.drop("n_excluded", "std"), [*known.notes]
