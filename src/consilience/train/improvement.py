"""The commands improve and finetune: what they check, then train."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience import suites
from consilience.core.errors import ConsilienceError, Loading, Protocol, needs_extra
from consilience.core.items import Task
from consilience.core.process import SILENT, Watch
from consilience.core.text import counted
from consilience.files.read import read_rows, read_text
from consilience.metrics.measure import few_relations
from consilience.metrics.registry import headline_metrics, label_of
from consilience.options import Output, shared_fields
from consilience.options.training import FinetuneOptions, ImproveOptions
from consilience.report.columns import (
    POINTS,
    Columns,
    difference_columns,
    frame_table,
    metric_column,
    tests_of,
)
from consilience.report.comparison_tables import compared_on, comparison_table
from consilience.report.export import Lines, Shown, rows_of, without_nan
from consilience.report.table import CI, Cell, Column, Table
from consilience.runs.folder import default_folder
from consilience.suites.pairs import Pairs, half_of, load_task, read_pairs, sample_pairs
from consilience.train.plan import DEFAULT_WEIGHTS, Plan, Subject, check_plan
from consilience.types import Suite

if TYPE_CHECKING:
    from consilience.train.batch_trainer import TrainingCost
    from consilience.train.classifiers import SeedTrainings, TaskPairs
    from consilience.train.consistency import Improved


PIPELINES = {"masked": "fill-mask", "causal": "text-generation"}
"""The pipeline of transformers that loads a trained model, by its kind."""

DRY_RUN = "Nothing was trained. Rerun the command without --dry-run to start."
LOAD = ("Load it:", "  from transformers import pipeline")
"""The last line of the dry run of a training; the first lines of how a trained model is loaded."""

IN_PLAN = {
    "train_groups": "train", "validation_groups": "validation", "whole_vocabulary": "vocabulary",
    "mlm": "text", "text": "text_file", "train_facts": "facts", "batch_size": "batch",
}  # fmt: skip
"""Options that the settings of a training call otherwise."""


PERPLEXITY = Column("perplexity", "number", digits=2)


def result_table(compared: pl.DataFrame, suite: Suite, title: str) -> Table:
    """The headline metrics before and after training, as means over the held-out relations.

    ``compared``: the comparison of the two models on some of a suite (``COMPARISON_SCHEMA``).
    """
    means = compared.filter(group="MACRO", subset="all").drop("detectable")
    by_metric = {row["metric"]: row for row in means.to_dicts()}
    known = [metric for metric in headline_metrics() if metric in by_metric]
    rows = [{"label": label_of(metric), **by_metric[metric]} for metric in known]
    columns: Columns = {"label": Column("metric"), **difference_columns(means, "before", "after")}
    notes = [*compared_on(compared, suite), f"p: {tests_of(means)}"]
    return frame_table(rows, title, columns, notes)


def table_7(result: Improved) -> Iterator[Table]:
    """ParaRel's Table 7, and each row's differences from the model before."""
    rows, metrics, seeds = result.table.to_dicts(), headline_metrics(), len(result.rows[0].outcomes)
    over = f"; means of {seeds} seeds" if seeds > 1 else ""
    means: dict[str, dict[str, Any]] = {}
    for row in rows:
        mean = means.setdefault(row["name"], {"name": row["name"]})
        mean |= {row["metric"]: Cell(row["value"], std=row["std"]), "perplexity": row["perplexity"]}
    columns: Columns = {"name": Column("model"), **{name: metric_column(name) for name in metrics}}
    title = f"means ± std over {result.relations} held-out relations, in percent{over}"
    yield frame_table(
        [*means.values()], f"Table 7 of the ParaRel paper: {title}",
        {**columns, "perplexity": PERPLEXITY},
    )  # fmt: skip
    changes = [
        {
            **row,
            "label": label_of(row["metric"]),
            "name": row["name"] * (row["metric"] == metrics[0]),
        }
        for row in rows[len(metrics) :]
    ]
    columns = {
        "name": Column("model"), "label": Column("metric"), "difference": POINTS,
        ("low", "high"): Column(CI, "points"), "p": Column("p", "p"),
    }  # fmt: skip
    of_seeds: Columns = {
        "lowest": Column("lowest seed", "points"), "highest": Column("highest seed", "points"),
        "largest_p": Column("largest p of a seed", "p"),
    }  # fmt: skip
    columns = {**columns, **of_seeds} if seeds > 1 else columns
    yield frame_table(changes, f"After minus before, in points{over}", columns)


def lambda_table(lambdas: pl.DataFrame) -> Table:
    """Validation of every training; ``lambdas``: ``Improved.lambdas``."""
    metrics = ("accuracy", "consistency", "consistent_accuracy")
    columns: Columns = {
        "name": Column("model"), "seed": Column("seed", "count"),
        "lambda": Column("lambda", "number"), "kept": Column(""),
        "step": Column("updates", "count"),
        **{name: metric_column(name) for name in metrics}, "perplexity": PERPLEXITY,
    }  # fmt: skip
    rows = [
        {**row, "seed": str(row["seed"]), "lambda": f"{row['lambda']:g}",
         "kept": "chosen" * row["kept"], "step": str(row["step"])}
        for row in lambdas.to_dicts()
    ]  # fmt: skip
    title = "Every training: validation relations, best checkpoint, in percent"
    return frame_table(rows, title, columns)


@dataclass(frozen=True, slots=True)
class Improvement(Shown):
    """A model before and after training, with its suite of training and test.

    ``folder``: that of checkpoints, runs and the best model. ``cost``: the work and an estimate of
    its time; None where the results exist already.
    """

    suite: Suite
    protocol: Protocol
    folder: Path
    cost: TrainingCost | None
    result: Improved
    model: str

    @property
    def notes(self) -> list[str]:
        """What to know of the choice of the model, and of a mean over few relations."""
        compared = self.result.best.compared
        headline = compared.filter(compared["metric"].is_in(headline_metrics()))
        return [*self.result.notes, *few_relations(headline, self.suite)]

    def printed(self, output: Output) -> Iterator[Table | str]:
        result, best = self.result, self.result.best
        row, *others = result.rows
        seeds = f", mean of {len(row.outcomes)} seeds" if len(row.outcomes) > 1 else ""
        relations = counted(result.relations, "held-out relation")
        title = f"{self.model} on {self.suite.name}: {relations} ({self.protocol}{seeds})"
        yield result_table(row.compared, self.suite, title)
        if others or output.details:
            yield from table_7(result)
        if output.details:
            yield lambda_table(result.lambdas)
            compared = comparison_table(best.compared, self.suite, by="group")
            yield replace(compared, title=f"{compared.title}, seed {best.seed}")
        model, checkpoint = best.training.model, best.training.checkpoint
        updates = f"{checkpoint['step']} of {counted(checkpoint['updates'], 'update')}"
        yield f"Model (lambda {best.weight:g}, seed {best.seed}, after {updates}): {model}"
        yield from LOAD
        yield f'  model = pipeline("{PIPELINES[result.kind]}", model="{model}")'
        after = self.folder / f"seed-{best.seed}" / best.name / "after"
        more = "" if output.details else "--details, or "
        yield f"More: {more}consilience report {self.folder / 'before'} {after}"

    def document(self) -> dict[str, Any]:
        result = self.result
        outcomes = [
            {
                "name": one.name, "seed": one.seed, "lambda": one.weight,
                "validation": {
                    f"{weight:g}": dict(trained.validation)
                    for weight, trained in one.tried.items()
                },
                "checkpoint": dict(one.training.checkpoint), "perplexity": one.training.perplexity,
                "after": rows_of(one.metrics), "differences": rows_of(one.compared),
                "model": str(one.training.model),
            }
            for one in result.outcomes
        ]  # fmt: skip
        return {
            "cost": _record(self.cost),
            "before": rows_of(result.before), "perplexity": result.perplexity,
            "outcomes": outcomes, "table": rows_of(result.table), "notes": self.notes,
            "model": str(result.best.training.model),
        }  # fmt: skip

    def remarks(self, output: Output) -> list[str]:
        without = self.result.perplexity is None
        note = "perplexity was not measured; give held-out text with --text."
        return [*self.notes, *[note] * without]


def _record(cost: TrainingCost | None) -> Any:
    return cost and without_nan(asdict(cost) | {"seconds": cost.seconds})


def _dry_run(cost: TrainingCost | None) -> Lines:
    return Lines({"cost": _record(cost)}, *(cost.lines if cost else ()), DRY_RUN)


def improve(options: ImproveOptions, watch: Watch = SILENT) -> Improvement | Lines | None:
    """Train, choose and measure; None in every process but the first (``accelerate launch``)."""
    suite = suites.load_suite(options.suite, options.data_dir)
    protocol: Protocol = options.protocol or suite.protocol
    lines = read_lines(options.text) if options.text else ()
    subject = Subject(
        options.model, suite, protocol, lines, options.limit, options.device,
        options.trust_remote_code,
    )  # fmt: skip
    named = {IN_PLAN.get(name, name): value for name, value in vars(options).items()}
    named["weights"] = tuple(options.weights or DEFAULT_WEIGHTS[options.loss])
    named["seed"] = options.seeds[0]
    plan = Plan(**{field.name: named[field.name] for field in fields(Plan)})
    seeds, ablations = options.seeds, options.ablations
    check_plan(plan, subject, seeds)
    with needs_extra("train"):
        from consilience.models.sources import locate
        from consilience.train.consistency import TABLE, consistency_cost, is_first_process
        from consilience.train.consistency import improve as train_and_measure
    locate(subject.model)  # an impossible name raises
    folder = options.out or _folder_of(options, suite)
    with watch.loading(options.model):
        if not is_first_process(subject):
            train_and_measure(subject, plan, folder, seeds=seeds, ablations=ablations)
            return None
        cost = None
        if options.dry_run or not (folder / TABLE).exists():
            watch.say("timing one update and a few queries")
            cost = consistency_cost(subject, plan, seeds, ablations=ablations)
        if options.dry_run:
            return _dry_run(cost)
        for line in cost.lines if cost else ():
            watch.inform(line)
        result = train_and_measure(
            subject, plan, folder, seeds=seeds, ablations=ablations, watch=watch
        )
    assert result is not None  # of the first process
    return Improvement(suite, protocol, folder, cost, result, options.model)


def _folder_of(options: ImproveOptions, suite: Suite) -> Path:
    """The folder of a training without ``--out``: named by suite, model and all settings."""
    others = ("out", "dry_run", "device", "report_to", "data_dir", "watch")
    settings = {IN_PLAN.get(k, k): v for k, v in vars(options).items() if k not in others}
    text = options.text and str(options.text)
    return default_folder(
        options.model, {**settings, "text_file": text, "suite": f"improve-{suite.name}"}
    )


def read_lines(path: Path) -> list[str]:
    """The lines of a text, or the ``text`` of JSON lines, without empty ones."""
    if path.suffix != ".jsonl":
        return [line.strip() for line in read_text(path).splitlines() if line.strip()]
    lines = []
    for where, row in read_rows(path):
        if "text" not in row:
            raise ConsilienceError("no 'text'", expected="a text in 'text'", where=where)
        lines += [str(row["text"])] * bool(str(row["text"]).strip())
    return lines


GRID_BATCHES, GRID_RATES = (32, 64, 128), (5e-4, 1e-5, 5e-6)
"""The batch sizes and learning rates of the grid (CALUM paper, Appendix A.1)."""

SEED = 0  # Seed of halves and samples, the same for every training


@dataclass(frozen=True, slots=True)
class Finetuning(Shown):
    """The classifiers of one model, for its main task.

    ``cost``: the work and an estimate of its time; None where the trainings exist already.
    ``notes``: those on the pairs.
    """

    task: str
    cost: TrainingCost | None
    trainings: SeedTrainings
    notes: Sequence[str]
    options: FinetuneOptions

    def printed(self, output: Output) -> Iterator[Table | str]:
        trainings, task, options = self.trainings, self.task, self.options
        yield self.seed_table()
        if trainings.grid:
            rows: list[dict[str, Any]] = [
                {"batch": str(plan.batch), "rate": f"{plan.learning_rate:g}",
                 "accuracy": tried.validation[task],
                 "chosen": "chosen" * (plan == trainings.best)}
                for plan, tried in trainings.grid
            ]  # fmt: skip
            columns: Columns = {
                "batch": Column("batch size", "count"), "rate": Column("learning rate", "number"),
                "accuracy": Column(task, "share"), "chosen": Column(""),
            }  # fmt: skip
            title = "Tried with the first seed: validation accuracy, in percent"
            yield frame_table(rows, title, columns)
        best = max(trainings.seeds.values(), key=lambda training: training.validation[task])
        model = best.folder / task
        yield f"Models: {options.out}/seed-*/{task}; best validation: {model}"
        yield from LOAD
        yield f'  model = pipeline("text-classification", model="{model}")'
        half = f" --half {3 - options.half}" if options.half else ""
        measure = f"consilience probe --model {options.out} --suite {options.task}"
        yield f"Measure its consistency: {measure} --data {options.validation}{half}"

    def seed_table(self) -> Table:
        """Accuracy of each seed on each task, and the mean."""
        trained = self.trainings.seeds
        tasks = list(next(iter(trained.values())).validation)
        rows: list[dict[str, Any]] = [
            {"seed": str(seed), **one.validation, "epochs": one.epochs, "minutes": one.seconds / 60}
            for seed, one in trained.items()
        ]
        if len(rows) > 1:
            values = {task: [row[task] for row in rows] for task in tasks}
            means = {task: Cell(fmean(of), std=stdev(of)) for task, of in values.items()}
            rows.append({"seed": "mean", **means, "epochs": "", "minutes": ""})
        columns: Columns = {
            "seed": Column("seed", "count"), **{task: Column(task, "share") for task in tasks},
            "epochs": Column("epochs", "count"), "minutes": Column("minutes", "number"),
        }  # fmt: skip
        title = f"{self.options.model}: validation accuracy of the best checkpoint, in percent"
        return frame_table(rows, title, columns)

    def document(self) -> dict[str, Any]:
        trainings, best = self.trainings, self.trainings.best
        return {
            "cost": _record(self.cost),
            "model": self.options.model, "task": self.task,
            "best": {"batch": best.batch, "learning_rate": best.learning_rate},
            "grid": [
                {"batch": plan.batch, "learning_rate": plan.learning_rate,
                 "validation": dict(training.validation)}
                for plan, training in trainings.grid
            ],
            "seeds": [
                {"seed": seed, "validation": dict(training.validation), "epochs": training.epochs,
                 "seconds": training.seconds, "folder": str(training.folder)}
                for seed, training in trainings.seeds.items()
            ],
            "warnings": [*self.notes],
        }  # fmt: skip


def finetune(options: FinetuneOptions, watch: Watch = SILENT) -> Finetuning | Lines | None:
    """Train with each seed; None in every process but the first (``accelerate launch``)."""
    with needs_extra("train"):
        from consilience.models.sources import locate
        from consilience.train.batch_trainer import TrainingFolder
        from consilience.train.classifiers import (
            Backbone,
            ClassifierPlan,
            classifier_cost,
            reading_of,
            train_seeds,
        )
    locate(options.model)  # an impossible name raises
    sources = _sources(options)
    rates = GRID_RATES if options.grid else options.learning_rate
    batches = GRID_BATCHES if options.grid else options.batch_size
    settings, seed = shared_fields(options, ClassifierPlan), options.seeds[0]
    plans = [
        ClassifierPlan(**{**settings, "learning_rate": rate, "batch": size, "seed": seed})
        for size in batches
        for rate in rates
    ]
    task = sources[0].task
    is_first = not int(os.environ.get("RANK", "0"))
    if not is_first:
        watch = SILENT
    with watch.loading(options.model):
        loading = Loading(trust_remote_code=options.trust_remote_code)
        longest = options.max_length or 0
        reading = reading_of(options.model, loading, options.input, options.pool, longest)
        backbone = Backbone(options.model, reading, options.device, options.trust_remote_code)
        cost, folders = None, [options.out / f"seed-{seed}" for seed in options.seeds]
        is_done = all(TrainingFolder(folder, {}).has_result for folder in folders)
        if is_first and (options.dry_run or not is_done):
            watch.say("timing one update and a few queries")
            cost = classifier_cost(backbone, sources, plans, options.seeds)
        if options.dry_run:
            return _dry_run(cost)
        for line in cost.lines if cost else ():
            watch.inform(line)
        trainings = train_seeds(
            backbone, sources, plans, options.out, options.seeds, options.jobs, watch
        )
    notes = _notes(trainings, sources)
    return Finetuning(task.name, cost, trainings, notes, options) if is_first else None


def _sources(options: FinetuneOptions) -> list[TaskPairs]:
    from consilience.train.classifiers import TaskPairs

    def read(file: str, task: Task) -> Pairs:
        pairs = read_pairs(file, task)
        return pairs if options.limit is None else sample_pairs(pairs, options.limit, SEED)

    task = load_task(options.task, options.indicators)
    validation = read_pairs(options.validation, task)
    if options.half is not None:
        validation = half_of(validation, options.half, SEED)
    sources = [TaskPairs(task, read(options.train, task), validation)]
    for spec in options.with_task or ():
        name, equals, files = spec.partition("=")
        train, comma, held_out = files.partition(",")
        if not equals or not train or (comma and not held_out):
            raise ConsilienceError(
                f"--with-task {spec}", expected="mrpc=TRAIN or mrpc=TRAIN,VALIDATION"
            )
        task = load_task(name)
        others = read_pairs(held_out, task) if held_out else None
        sources.append(TaskPairs(task, read(train, task), others))
    return sources


def _notes(trainings: SeedTrainings, sources: Sequence[TaskPairs]) -> list[str]:
    first = next(iter(trainings.seeds.values()))
    notes = [
        note
        for source in sources
        for pairs in (source.train, source.validation)
        if pairs
        for note in pairs.notes
    ]
    for kind, counts in (("training", first.truncated), ("validation", first.truncated_validation)):
        for source in sources:
            pairs = source.train if kind == "training" else source.validation
            if pairs and (count := counts.get(source.task.name)):
                notes.append(
                    f"{count} of {len(pairs.items)} {kind} pairs of {source.task.name} were too "
                    "long and were truncated"
                )
    return notes
