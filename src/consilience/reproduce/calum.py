"""The tables of the CALUM paper, and the claims that both papers make in words.

A claim says that some numbers of a table are higher than others. It is a row of ``recipes.toml``:

- ``section``, ``claim``: the block and the row of its numbers.
- ``table``: one or several tables of the paper.
- ``higher``, ``lower``: rows, or names of ``sets``. Two lists of the same length are compared in
  pairs, other lists each with each. ``lower`` may be a number; without it, rows are compared with
  themselves.
- ``columns``, ``tasks``: the columns, and the tasks of CALUM; ``[A, B]`` compares A with B.
- ``over``: what is averaged first, and is then tested as independent: ``higher`` (the rows, unless
  given), ``lower`` or ``tasks``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience.analysis import examples
from consilience.analysis.correlations import paired_t
from consilience.analysis.task_types import LONG, RUNS_SCHEMA, gains, task_effects, ttest
from consilience.core.errors import OTHER_OUT, ConsilienceError
from consilience.core.factors import WHOLE
from consilience.core.schemas import METRICS_SCHEMA
from consilience.files.write import csv_of, write_whole
from consilience.metrics import statistics as stats
from consilience.metrics.measure import mean_over_runs
from consilience.metrics.statistics import NAN, TIE
from consilience.report.papers import Measured, paper_numbers
from consilience.reproduce.recipe import UNAVAILABLE, MissingError, Numbers, Recipe, Request, Work
from consilience.runs.folder import record_of
from consilience.runs.run import Run
from consilience.suites.pairs import (
    CALUM,
    HUB,
    TASKS,
    UnlabelledError,
    half_of,
    read_pairs,
)

SPLITS = ("train", "validation", "test")
KOREAN = ("kornli", "klue-nli", "klue-sts")
GROUPS = {name: "KorNLI" if name == "kornli" else name.upper() for name in (*CALUM, *KOREAN)}

COLUMNS = {
    "Acc_val": ("accuracy", *WHOLE), "C_R": ("consistency", "form", "reverse"),
    "C_S": ("consistency", "form", "signal"),
}  # fmt: skip
"""The metric, kind and level of the paper's columns."""

WRITERS = ("T5-base", "T5-large")  # Not trained here: T5 was trained on all five tasks

GENERATED = "-generated"  # Follows a task's name in the group of freely written answers

VARIANTS: Mapping[str, Sequence[str]] = {"Single": (), "Para": ("qqp", "mrpc"), "All": CALUM}
"""The tasks that a model is trained on in addition to its own (Section 6.1)."""


SEEDS = (0, 1, 2, 3, 4)  # Of the trainings


def trained_and_asked(recipe: Recipe, work: Work, row: str, task: str) -> list[Path]:
    """The runs of a row's models on a task, which are trained first unless one writes labels."""
    request, (model, variant) = work.request, parts_of(row)
    spec = recipe.models[model]
    if spec in work.faults:
        raise MissingError(work.faults[spec])
    folder = pairs_folder(request, row, task)
    held_out = readable_source(work, task, "validation")
    held_out += "#1" if is_halved(request, task) else ""
    models = {folder / "run": spec}
    try:
        if model not in WRITERS:
            others = [other for other in VARIANTS[variant] if other != task]
            training = [(other, readable_source(work, other, "train")) for other in others]
            work.run(
                row, "finetune", "--model", spec, "--task", task,
                "--train", readable_source(work, task, "train"), "--validation", held_out,
                *(word for name, file in training for word in ("--with-task", f"{name}={file}")),
                "--seeds", ",".join(map(str, SEEDS)), "--out", folder / "model",
                "--device", request.training_device, part=GROUPS[task],
            )  # fmt: skip
            of_seed = (f"seed-{seed}" for seed in SEEDS)
            models = {folder / "run" / one: str(folder / "model" / one / task) for one in of_seed}
        for run, trained in models.items():
            work.run(
                row, "probe", "--model", trained, "--suite", task, "--data", held_out,
                "--out", run, "--device", request.device,
                *(["--generate"] if row in WRITERS else []), part=GROUPS[task],
            )  # fmt: skip
    except MissingError as reason:
        if f"cannot load '{spec}'" in str(reason):
            work.faults[spec] = str(reason)
        raise
    work.stop_if_dry()
    return [*models]


def readable_source(work: Work, task: str, split: str) -> str:
    """Where the pairs of a split are (``source_of``); raises where they cannot be read."""
    name, source = f"{task}:{split}", source_of(work.request, task, split)
    if not work.request.dry and name not in work.faults:
        work.faults[name] = ""
        try:
            read_pairs(source, TASKS[task])
        except ConsilienceError as error:
            work.faults[name] = f"{UNAVAILABLE}: {error}"
    if fault := work.faults.get(name):
        raise MissingError(fault)
    return source


def source_of(request: Request, task: str, split: str) -> str:
    """The file that ``data`` names, else the split of the task's dataset on the Hub."""
    file, name = request.data.get(f"{task}:{split}"), TASKS[task].splits[SPLITS.index(split)]
    if not file and not name:
        raise MissingError(f"{UNAVAILABLE}: no split of its own on the Hub; give {task}:{split}")
    return file or f"{HUB}:{name}"


def is_halved(request: Request, task: str) -> bool:
    """Whether validation and test are the halves of one set, as with KLUE (Section 4.1)."""
    return not TASKS[task].splits[2] and f"{task}:test" not in request.data


def pairs_folder(request: Request, row: str, task: str) -> Path:
    """The folder of ``model``, the trainings, and ``run``, the answers; recipes share them."""
    model, variant = parts_of(row)
    return request.folder_of(model, "calum") / (
        task if variant == "Single" else f"{task}-{variant}"
    )


def parts_of(row: str) -> tuple[str, str]:
    """A row's model, and the variant of its training."""
    model, _, variant = row.rpartition("-")
    return (model, variant) if variant in VARIANTS else (row, "Single")


def read_rows(files: Sequence[Path], row: str, task: str) -> pl.DataFrame:
    """A row's numbers on a task, with ``model`` and ``task``; of several runs the means.

    ``files``: tables of metrics of runs, or one of people.
    """
    of_task = {"over": "group", "group": task + (GENERATED if row in WRITERS else "")}
    wanted: dict[str, Any] = {"over": "all"} if row == HUMAN else of_task
    tables = [pl.read_csv(file, schema_overrides=METRICS_SCHEMA).filter(**wanted) for file in files]
    rows = mean_over_runs(tables) if len(tables) > 1 else tables[0]
    level = pl.col("level").fill_null("")
    return rows.with_columns(level, model=pl.lit(row), task=pl.lit(task))


def read_numbers(files: Sequence[Path], row: str, task: str) -> Numbers:
    """Accuracy, C_R and C_S in percent, with their deviation and interval over runs.

    Of people the deviation is over annotators; theirs and that of a single run is the interval
    over items.
    """
    rows = read_rows(files, row, task).iter_rows(named=True)
    values = {
        tuple(number[name] for name in ("metric", "kind", "level")): number for number in rows
    }
    return {
        (GROUPS[task], row, column): Measured(
            *(100 * values[key][name] for name in ("value", "std", "low", "high"))
        )
        for column, key in COLUMNS.items()
        if key in values
    }


SIZES = dict(zip(("Train set size", "Validation set size", "Test set size"), SPLITS, strict=True))
"""The columns of Table 1 that count the pairs of a split."""

HUMAN = "Human"

BACKBONES = ("RoBERTa-base", "Electra-large", "GPT2-base")
NLI = ("mnli", "qnli", "rte")
TABLE_6 = tuple(f"{model}-{variant}" for model in BACKBONES for variant in VARIANTS)

SELECTIONS: Mapping[str, Sequence[str]] = {
    "": (*WRITERS, HUMAN),
    ", with T5": (HUMAN,),
    ", with T5 and people": (),
}
"""Models that the t-tests leave out, by the end of the row's name; the first as in the paper."""

CLAIMS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("REVERSE", "STS vs NLI"): ("reverse", "NLI"),
    ("SIGNAL", "STS vs NLI"): ("signal", "NLI"),
    ("SIGNAL", "RTE and MRPC vs others"): ("signal", "others"),
}
"""What Section 5.1.1 tests: perturbation, and the second of the two sides.

The first and the last are claimed at .01; the other difference is "marginal".
"""

VALUES = {name: RUNS_SCHEMA[name] for name in LONG}  # The schema of numbers for tests and gains


def results(recipe: Recipe, work: Work) -> Numbers:
    """Accuracy, C_R and C_S of every row on every task."""
    tasks, numbers = recipe.details["tasks"], Numbers()
    rows = list(dict.fromkeys([*paper_numbers(recipe.table)["row"], *recipe.user_rows]))
    for row in work.request.added:
        if parts_of(row) != (row, "Single"):
            raise ConsilienceError(
                f"--add {row}", expected="a name that does not end in -Single, -Para or -All"
            )
    for row, task in product(rows, tasks):
        if row == HUMAN:
            if file := work.attempt(row, partial(_score_people, work, task), GROUPS[task]):
                numbers |= read_numbers([file], row, task)
            continue
        make = partial(trained_and_asked, recipe, work, row, task)
        if runs := work.attempt(row, make, GROUPS[task]):
            numbers |= read_numbers([one / "metrics.csv" for one in runs], row, task)
    return numbers


def changed_answers(recipe: Recipe, work: Work) -> Numbers:
    """Answers that a perturbation changed, the most confident first, as notes."""
    ((model, _),) = recipe.models.items()
    for task, form in recipe.details["shown"]:
        part = GROUPS[task]
        runs = work.attempt(model, partial(trained_and_asked, recipe, work, model, task), part)
        if runs is None:
            continue
        group = task + (GENERATED if model in WRITERS else "")
        opened = map(Run.open, runs)
        tables = [examples.changed_answers(of.queries, of.answers, of.suite) for of in opened]
        table = pl.concat(tables).sort("margin", descending=True, nulls_last=True)
        rows = table.fill_null("").to_dicts()
        changed = [row for row in rows if (row["group"], row["perturbation"]) == (group, form)]
        work.told += [
            f"{part}, {form}, gold {row['gold']}:\n"
            f"  {row['original_1']} {row['original_2']} -> {row['original_answer']}\n"
            f"  {row['text_1']} {row['text_2']} -> {row['answer']}"
            for row in changed[: recipe.details["count"]]
        ] or [f"{part}, {form}: no answer changed"]
    return {}


def sizes(recipe: Recipe, work: Work) -> Numbers:
    """Pairs of each set, in thousands where the paper prints thousands; classes of each task."""
    numbers: Numbers = {}
    rounded = paper_numbers(recipe.table).filter(pl.col("unit") == "thousand")
    thousands = set(rounded.select("row", "column").iter_rows())
    for task, row in GROUPS.items():
        numbers["", row, "# of classes"] = Measured(len(TASKS[task].labels))
        for column, split in SIZES.items():
            count = work.attempt(row, partial(_count_pairs, work, task, split), column)
            if count is not None:
                unit = 1000 if (row, column) in thousands else 1
                numbers["", row, column] = Measured(count / unit)
    return numbers


def _count_pairs(work: Work, task: str, split: str) -> int:
    is_half = is_halved(work.request, task) and split != "train"
    source = source_of(work.request, task, "validation" if is_half else split)
    work.stop_if_dry()
    try:
        pairs = read_pairs(source, TASKS[task])
    except UnlabelledError as error:
        return error.rows
    except ConsilienceError as error:
        raise MissingError(f"{UNAVAILABLE}: {error}") from error
    return len((half_of(pairs, SPLITS.index(split)) if is_half else pairs).items)


def t_tests(recipe: Recipe, work: Work) -> Numbers:
    """The claims of Section 5.1.1 by three t-tests, from the paper's Table 2 and from our runs."""
    numbers: Numbers = {}
    ours = our_rows(work, [*recipe.models], CALUM)
    for whose, rows in (("", paper_rows("calum-table-2")), (", our runs", ours)):
        seen: list[set[str]] = [set()]
        for which, left_out in SELECTIONS.items():
            chosen = rows.filter(~pl.col("model").is_in(left_out))
            if (models := set(chosen["model"])) in seen:
                continue
            seen.append(models)
            effects = task_effects(chosen).filter(pl.col("metric") == "consistency")
            for (group, row), (form, second) in CLAIMS.items():
                for effect in effects.filter(level=form, second=second).iter_rows(named=True):
                    key = (group, f"{row}{whose}{which}", f"p ({effect['test']})")
                    numbers[key] = Measured(effect["p"], unit="p")
    for name in CLAIMS:
        numbers[*name, "p (t-test)"] = numbers.pop((*name, "p (paired)"))
    work.told += _runs_of(ours)
    return numbers


def gain(recipe: Recipe, work: Work) -> Numbers:
    """Mean relative gain in C_R of training on more tasks, from Table 6 and from our runs."""
    numbers: Numbers = {}
    ours = our_rows(work, TABLE_6, NLI)
    metric, kind, form = COLUMNS["C_R"]
    for whose, rows in (("", paper_rows("calum-table-6")), (", our runs", ours)):
        for after in (("Para", "All"), ("Para",), ("All",)):
            pairs = [
                (f"{model}-Single", f"{model}-{variant}")
                for model in BACKBONES
                for variant in after
                if {f"{model}-Single", f"{model}-{variant}"} <= set(rows["model"])
            ]
            if {parts_of(second)[1] for _, second in pairs} != {*after}:
                continue
            changes = gains(rows, *zip(*pairs, strict=True))
            for change in changes.filter(metric=metric, kind=kind, level=form).iter_rows(
                named=True
            ):
                key = ("REVERSE", f"{' and '.join(after)} vs Single{whose}", "C_R gain")
                numbers[key] = Measured(100 * change["relative"], unit="percent")
    work.told += _runs_of(ours)
    return numbers


def paper_rows(table: str) -> pl.DataFrame:
    """The paper's numbers of Table 2, 5 or 6 (``VALUES``), as fractions."""
    tasks = {group: task for task, group in GROUPS.items()}
    rows = [
        (row["row"], tasks[row["group"]], *COLUMNS[row["column"]], row["value"] / 100)
        for row in paper_numbers(table).iter_rows(named=True)
    ]
    return pl.DataFrame(rows, schema=VALUES, orient="row")


def our_rows(work: Work, rows: Sequence[str], tasks: Sequence[str]) -> pl.DataFrame:
    """Our numbers (``VALUES``) of the runs that are here; a run of another data file raises."""
    tables = [pl.DataFrame(schema=VALUES)]
    for row, task in product(rows, tasks):
        run = pairs_folder(work.request, row, task) / "run"
        if files := sorted(run.glob("**/metrics.csv")):
            for path in sorted(run.glob("**/run.json")):
                _note_run(work, path.parent, row, task)
            tables.append(read_rows(files, row, task).select(list(VALUES)))
    return pl.concat(tables)


def _note_run(work: Work, run: Path, row: str, task: str) -> None:
    """Add the notes of a run; one of another data file raises an error."""
    request, file = work.request, work.request.data.get(f"{task}:validation")
    record = record_of(run)
    settings, notes = record["settings"], list(record.get("warnings", ()))
    if file:
        pairs = read_pairs(f"{file}#1" if is_halved(request, task) else file, TASKS[task])
        if settings.get("pairs") != pairs.digest:
            raise ConsilienceError(
                f"this folder holds another run: its data is {record.get('data')}, this command's "
                f"is {file}",
                where=str(pairs_folder(request, row, task) / "run"),
                todo=f"{OTHER_OUT}, or remove the folder.",
                kind="occupied",
            )
    if not file and not str(record.get("data")).startswith(f"{HUB}:"):
        notes.insert(0, f"its pairs are of {record.get('data')}")
    work.note(row, GROUPS[task], notes)


def _runs_of(rows: pl.DataFrame) -> list[str]:
    tasks: dict[str, list[str]] = {}
    for model, task in rows.select("model", "task").unique(maintain_order=True).iter_rows():
        tasks.setdefault(model, []).append(GROUPS[task])
    runs = [f"{model} on {', '.join(names)}" for model, names in tasks.items()]
    return [f"our runs: {'; '.join(runs)}"] if runs else []


def people(recipe: Recipe, work: Work) -> Numbers:
    """Sheets for people, and their answers."""
    numbers: Numbers = {}
    drawn, answered = [], []
    for task, part in GROUPS.items():
        sheets = work.attempt(HUMAN, partial(_draw_sheets, work, task), part)
        if sheets is None:
            continue
        key = json.loads((sheets / "key.json").read_text(encoding="utf-8"))
        items = len(key["items"])
        drawn.append(f"{part}: {len(key['sheets'])} sheets of {items} pairs")
        if file := work.attempt(HUMAN, partial(_score_people, work, task), part):
            annotators = pl.read_csv(file).filter(over="group")["group"].n_unique()
            answered.append((annotators, items))
            numbers |= {
                key: replace(number, unit="percent")
                for key, number in read_numbers([file], HUMAN, task).items()
            }
    if answered:
        annotators, items = map(min, zip(*answered, strict=True))
        numbers["", HUMAN, "Annotators per language"] = Measured(annotators)
        numbers["", HUMAN, "Samples per annotator"] = Measured(items)
    where = (
        f"sheets: {work.request.folder / 'calum' / 'sheets'}, a folder a task; each annotator "
        "fills in a table, the tables go back there, and this recipe scores them; the paper's "
        "numbers of people are in calum-table-2 and calum-table-5"
    )
    work.told += [*([f"drawn: {'; '.join(drawn)}"] if drawn else []), where]
    return numbers


def sheets_of(request: Request, task: str) -> Path:
    """The folder of the annotation sheets; their answers may be elsewhere."""
    path = Path(request.data.get(f"{task}:answers", request.folder / "calum" / "sheets" / task))
    return path.parent if path.is_file() else path


def _draw_sheets(work: Work, task: str) -> Path:
    """The folder of a task's sheets, drawn where there are none."""
    sheets = sheets_of(work.request, task)
    if f"{task}:answers" not in work.request.data and not (sheets / "key.json").is_file():
        source = readable_source(work, task, "validation")
        options = ("--task", task, "--data", source, "--out", sheets)
        work.run(HUMAN, "suite", "annotate", "sheet", *options, part=GROUPS[task])
        work.stop_if_dry()
    if not (sheets / "key.json").is_file():
        raise MissingError(f"{UNAVAILABLE}: {sheets}: no key.json of sheets")
    return sheets


def _score_people(work: Work, task: str) -> Path:
    sheets = sheets_of(work.request, task)
    if not (sheets / "key.json").is_file():
        raise MissingError(f"{UNAVAILABLE}: people have to answer; calum-human makes their sheets")
    document = work.run(HUMAN, "suite", "annotate", "score", sheets, part=GROUPS[task])
    work.stop_if_dry()
    file = work.request.folder / "calum" / "human" / f"{task}.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, csv_of(pl.DataFrame(document["metrics"], infer_schema_length=None)))
    return file


Place = tuple[str, str, str, str]


def claims(recipe: Recipe, work: Work) -> Numbers:
    """Each claim in the paper's own numbers; p (t) is adjusted over all claims (Holm)."""
    tables = dict.fromkeys(name for claim in _rows(recipe) for name in claim["table"])
    known = _printed({table: paper_numbers(table) for table in tables})
    numbers: Numbers = {}
    tested: dict[tuple[str, str], float] = {}
    for claim in _rows(recipe):
        key, counted = (claim["section"], claim["claim"]), _counted(comparisons(claim, known))
        numbers |= {(*key, column): number for column, number in counted.items()}
        tested[key] = counted["p (t)"].value
    for key, p in zip(tested, stats.holm(list(tested.values())), strict=True):
        numbers[*key, "p (Holm)"] = Measured(p, unit="p")
    return {key: number for key, number in numbers.items() if not math.isnan(number.value)}


def _rows(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """The claims; names of sets are replaced by their members, and ``table`` is a list."""
    sets: Mapping[str, list[str]] = recipe.details["sets"]
    for claim in recipe.details["claims"]:
        lists = {
            name: [
                member
                for text in (value if isinstance(value, list) else [value])
                for member in sets.get(str(text), [text])
            ]
            for name, value in claim.items()
            if name in ("higher", "lower", "table", "tasks")
        }
        yield claim | lists


def comparisons(claim: Mapping[str, Any], numbers: Mapping[Place, float]) -> dict[str, list[float]]:
    """How much higher the first numbers are than the second ones, by what is averaged first."""
    higher, lower = claim["higher"], claim.get("lower", claim["higher"])
    pairs = zip(higher, lower, strict=True) if len(higher) == len(lower) else product(higher, lower)
    tasks, columns = (
        [[name, name] if isinstance(name, str) else name for name in names]  # for both sides
        for names in (claim.get("tasks", [""]), claim["columns"])
    )
    found: dict[str, list[float]] = {}
    for (first, second), (task, other), (column, against) in product(pairs, tasks, columns):
        high = _number(numbers, claim["table"], task, first, column)
        low = _number(numbers, claim["table"], other, second, against)
        if high is not None and low is not None:
            units = {"higher": first, "lower": str(second), "tasks": task}
            found.setdefault(units[claim.get("over", "higher")], []).append(high - low)
    return found


def _number(
    numbers: Mapping[Place, float], tables: Sequence[str], task: str, row: str | float, column: str
) -> float | None:
    """The number of a row in the first of the tables that has it; a number is itself."""
    if not isinstance(row, str):
        return row
    keys = [(table, task, row, column) for table in tables]
    return next((numbers[key] for key in keys if key in numbers), None)


def _counted(units: Mapping[str, Sequence[float]]) -> dict[str, Measured]:
    differences = [one for of in units.values() for one in of]
    means = [float(np.mean(of)) for of in units.values()]
    test = ttest(paired_t, means, [0.0] * len(means))
    return {
        "Holds in": Measured(float(sum(one > TIE for one in differences)), unit="count"),
        "of": Measured(len(differences), unit="count"),
        "Difference": Measured(float(np.mean(means)), NAN, test.low, test.high, "points"),
        "Units": Measured(len(means), unit="count"),
        "p (t)": Measured(test.p, unit="p"),
        "p (flips)": Measured(stats.paired_permutation(means), unit="p"),
    }


def _printed(tables: Mapping[str, pl.DataFrame]) -> dict[Place, float]:
    """The paper's numbers. The blocks of CALUM's tables are tasks, those of ParaRel's are not."""
    return {
        (table, row["group"] if table.startswith("calum") else "", row["row"], row["column"]):
        row["value"]
        for table, rows in tables.items()
        for row in rows.iter_rows(named=True)
    }  # fmt: skip
