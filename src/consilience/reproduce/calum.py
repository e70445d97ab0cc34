"""The tables of the CALUM paper: the functions that ``recipes.toml`` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from consilience.analysis import examples
from consilience.analysis.task_types import KEYS, RUNS_SCHEMA, gains, task_effects
from consilience.authoring.annotation import score_sheets
from consilience.core.errors import ConsilienceError
from consilience.metrics.measure import mean_over_runs
from consilience.options.commands import FinetuneOptions
from consilience.probing import CountedRun
from consilience.report.layouts import changed_answers_table
from consilience.report.table import Column, Table, Value
from consilience.reproduce import Measured, Numbers, Recipe, Work, paper_numbers, selected
from consilience.runs.run import Run
from consilience.suites.pairs import (
    CALUM,
    HUB,
    TASKS,
    UnlabelledError,
    generated_group,
    read_pairs,
)

SPLITS = ("train", "validation", "test")
KOREAN = ("kornli", "klue-nli", "klue-sts")
GROUPS = {name: "KorNLI" if name == "kornli" else name.upper() for name in (*CALUM, *KOREAN)}
"""The block of each task in the paper's tables."""

WRITERS = ("T5-base", "T5-large")  # Not trained here: T5 was trained on all five tasks
HUMAN = "Human"

VARIANTS: Mapping[str, Sequence[str]] = {"Single": (), "Para": ("qqp", "mrpc"), "All": CALUM}
"""The tasks that a model is trained on in addition to its own (Section 6.1)."""

SEEDS = (0, 1, 2, 3, 4)  # Of the trainings


def results(recipe: Recipe, work: Work) -> Numbers:
    """Accuracy, C_R and C_S of every row on every task.

    Of several seeds they are means with their deviation and interval over seeds. Of people the
    deviation is over annotators; theirs and that of a single run is the interval over items.
    """
    numbers = Numbers()
    rows = dict.fromkeys([*paper_numbers(recipe.table)["row"], *recipe.rows_of(work.added)])
    for row, task in product(rows, recipe.details["tasks"]):
        make: Callable[[], list[pl.DataFrame]] = partial(_people, work, task)
        if row != HUMAN:
            make = partial(_metrics, recipe, work, row, task)
        if tables := work.attempt(row, make, GROUPS[task]):
            chosen = mean_over_runs(tables) if len(tables) > 1 else tables[0]
            numbers |= selected(chosen, recipe, row, GROUPS[task])
    return numbers


def _metrics(recipe: Recipe, work: Work, row: str, task: str) -> list[pl.DataFrame]:
    runs = trained_and_asked(recipe, work, row, task).values()
    return [run.metrics.filter(group=group_of(row, task)) for run in runs if run]


def trained_and_asked(
    recipe: Recipe, work: Work, row: str, task: str
) -> dict[Path, CountedRun | None]:
    """The runs of a row's models on a task, which are trained first unless one writes labels.

    The folder of a task has the trainings, ``model``, and the answers, ``run``; recipes share it.
    """
    model, _, variant = row.rpartition("-")
    if f"-{variant}" not in recipe.added_rows:
        model, variant = row, "Single"
    folder = work.folder_of(model, "calum") / f"{task}{f'-{variant}' * (variant != 'Single')}"
    subject, held_out = f"{row} on {GROUPS[task]}", source_of(work, task, "validation")[0]
    models = {folder / "run": recipe.models[model]}
    if model not in WRITERS:
        from consilience.train.classifiers import finetune

        others = [other for other in VARIANTS[variant] if other != task]
        options = FinetuneOptions(
            model=recipe.models[model], task=task, train=source_of(work, task, "train")[0],
            validation=held_out, out=folder / "model", device=work.options.device,
            with_task=[f"{name}={source_of(work, name, 'train')[0]}" for name in others] or None,
        )  # fmt: skip
        for seed in SEEDS:
            made = work.call("finetune", finetune, replace(options, seed=seed))
            work.note(subject, made.cautions if made else ())
        of_seed = (f"seed-{seed}" for seed in SEEDS)
        models = {folder / "run" / one: str(folder / "model" / one / task) for one in of_seed}
    more = {"suite": task, "data": held_out, "generate": row in WRITERS}
    return {run: work.probe(subject, of, run, **more) for run, of in models.items()}


def group_of(row: str, task: str) -> str:
    """The group of a row's numbers in its runs."""
    return generated_group(TASKS[task]) if row in WRITERS else task


def source_of(work: Work, task: str, split: str) -> tuple[str, Any]:
    """Where the pairs of a split are, and they themselves; unreadable ones raise.

    A split is a file of the data folder, ``TASK/SPLIT`` with any suffix, else a split on the Hub.
    Without a test set, validation and test are the halves of one set, as
    with KLUE (Section 4.1). Of a split without labels the number of its rows is in place of pairs;
    in a dry run nothing is.
    """

    def files(split: str) -> list[Path]:
        folder = work.options.data
        return sorted((folder / task).glob(f"{split}.*")) if folder else []

    half = ""
    if split != "train" and not TASKS[task].splits[2] and not files("test"):
        split, half = "validation", f"#{SPLITS.index(split)}"
    name = TASKS[task].splits[SPLITS.index(split)]
    known = [*map(str, files(split)), *[f"{HUB}:{name}"] * bool(name)]
    if not known:
        todo = f"Give --data DIR with {task}/{split}."
        raise ConsilienceError(f"no {split} split of {task} on the Hub", todo=todo)

    def read() -> Any:
        try:
            return read_pairs(known[0] + half, TASKS[task])
        except UnlabelledError as error:
            return error.rows

    source = known[0] + half
    return source, None if work.options.dry_run else work.once(f"{task} {source}", read)


def changed_answers(recipe: Recipe, work: Work) -> Table:
    """Answers that a perturbation changed, the most confident first."""
    rows, blocks = list[Sequence[Value]](), list[str]()
    for row, (task, form) in product(recipe.models, recipe.details["shown"]):
        make = partial(trained_and_asked, recipe, work, row, task)
        runs = work.attempt(row, make, GROUPS[task]) or {}
        opened = [Run.open(path) for path, run in runs.items() if run]
        if not opened:
            continue
        tables = [examples.changed_answers(of.queries, of.answers, of.suite) for of in opened]
        changed = pl.concat(tables).sort("margin", descending=True, nulls_last=True)
        changed = changed.filter(group=group_of(row, task), perturbation=form)
        shown = changed_answers_table(changed, recipe.details["count"], "").rows
        rows += shown or [["no answer changed", *[""] * 4]]
        blocks += [f"{row}: {GROUPS[task]}, {form}"] * max(1, len(shown))
    columns = [Column(heading) for heading in ("form", "first", "second", "answer", "gold")]
    return Table(recipe.title, columns, rows, blocks=blocks)


def sizes(recipe: Recipe, work: Work) -> Numbers:
    """Pairs of each set, in thousands where the paper prints thousands; classes of each task."""
    numbers: Numbers = {}
    rounded = paper_numbers(recipe.table).filter(pl.col("unit") == "thousand")
    thousands = set(rounded.select("row", "column").iter_rows())
    for task, row in GROUPS.items():
        numbers["", row, "# of classes"] = Measured(len(TASKS[task].labels))
        for column, split in recipe.details["counts"].items():
            found = work.attempt(row, partial(source_of, work, task, split), column)
            if pairs := found and found[1]:
                count = pairs if isinstance(pairs, int) else len(pairs.items)
                unit = 1000 if (row, column) in thousands else 1
                numbers["", row, column] = Measured(count / unit)
    return numbers


def t_tests(recipe: Recipe, work: Work) -> Numbers:
    """The claims of Section 5.1.1 by three t-tests, in the paper's Table 2."""
    numbers, rows = Numbers(), _printed("calum-table-2", recipe)
    for which, left_out in recipe.details["left_out"].items():
        effects = task_effects(rows.filter(~pl.col("model").is_in(left_out)))
        for form, second, row in recipe.details["claims"]:
            of_claim = effects.filter(metric="consistency", level=form, second=second)
            for effect in of_claim.to_dicts():
                test = "t-test" if (effect["test"], which) == ("paired", "") else effect["test"]
                key = (form.upper(), f"{row}{which}", f"p ({test})")
                numbers[key] = Measured(effect["p"], unit="p")
    return numbers


def gain(recipe: Recipe, work: Work) -> Numbers:
    """Mean relative gain in C_R of training on more tasks, in the paper's Table 6."""
    numbers, rows = Numbers(), _printed("calum-table-6", recipe)
    for after in (("Para", "All"), ("Para",), ("All",)):
        names = [(f"{model}-Single", f"{model}-{of}") for model in recipe.models for of in after]
        changes = gains(rows, *zip(*names, strict=True))
        for change in changes.filter(metric="consistency", level="reverse").to_dicts():
            key = ("REVERSE", f"{' and '.join(after)} vs Single", "C_R gain")
            numbers[key] = Measured(100 * change["relative"], unit="percent")
    return numbers


def _printed(table: str, recipe: Recipe) -> pl.DataFrame:
    """The paper's numbers of Table 2 or 6, as fractions by model, task, metric and part."""
    tasks = {group: task for task, group in GROUPS.items()}
    rows = [
        (of["row"], tasks[of["group"]], metric, *part, of["value"] / 100)
        for of in paper_numbers(table).iter_rows(named=True)
        for metric, part in [recipe.columns[of["column"]]]
    ]
    return pl.DataFrame(
        rows, schema={name: RUNS_SCHEMA[name] for name in (*KEYS, "value")}, orient="row"
    )


def _people(work: Work, task: str) -> list[pl.DataFrame]:
    """The numbers of all annotators; none in a dry run."""
    sheets = work.options.out / "calum" / "sheets" / task
    if work.options.dry_run:
        return []
    if not (sheets / "key.json").is_file():
        make = f"consilience suite annotate sheet --task {task} --data F --out {sheets}"
        raise ConsilienceError(f"people have to answer: {make}")
    scored = work.once(f"people {task}", partial(score_sheets, sheets))
    work.note(f"{HUMAN} on {GROUPS[task]}", scored.cautions)
    return [scored.tables["metrics"].filter(over="all")]
