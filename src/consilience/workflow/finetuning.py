"""Fine-tune classifiers of sentence pairs, of one task or of several at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consilience.choices import Loading
from consilience.errors import ConsilienceError, needs_extra
from consilience.options import Output, shared_fields
from consilience.report.shown import Shown
from consilience.report.table import Table
from consilience.report.training_tables import grid_table, seed_table
from consilience.sentence_pairs import Task
from consilience.suites.pairs import Pairs, half_of, read_pairs, sample_pairs
from consilience.suites.tasks import load_task
from consilience.watch import SILENT, Watch
from consilience.workflow.improvement import DRY_RUN, LOAD
from consilience.workflow.training_options import FinetuneOptions

if TYPE_CHECKING:
    from consilience.train.classifiers import ClassifierPlan, TaskPairs
    from consilience.train.cost import TrainingCost
    from consilience.train.seeds import SeedTrainings

GRID_BATCHES, GRID_RATES = (32, 64, 128), (5e-4, 1e-5, 5e-6)
"""The batch sizes and learning rates of the grid (CALUM paper, Appendix A.1)."""

SEED = 0
"""Seed of halves and samples, the same for every training."""


@dataclass(frozen=True, slots=True)
class Finetuning(Shown):
    """The classifiers of one model."""

    task: str
    """The main task."""
    cost: TrainingCost | None
    """The work and an estimate of its time; None where the trainings exist already."""
    trainings: SeedTrainings | None
    """The training with each seed, and those that chose the plan; None in a dry run."""
    notes: Sequence[str]
    """Notes on the pairs."""
    options: FinetuneOptions

    def printed(self, output: Output) -> Iterator[Table | str]:
        """Validation numbers, and where the models are; of a dry run the work."""
        if (trainings := self.trainings) is None:
            yield from (*(self.cost.lines if self.cost else ()), DRY_RUN)
            return
        task, options = self.task, self.options
        validation = {seed: training.validation for seed, training in trainings.seeds.items()}
        costs = [(training.epochs, training.seconds) for training in trainings.seeds.values()]
        yield seed_table(options.model, validation, costs)
        if trainings.grid:
            rows = [
                (plan.batch, plan.learning_rate, tried.validation[task], plan == trainings.best)
                for plan, tried in trainings.grid
            ]
            yield grid_table(rows, task)
        seed = max(validation, key=lambda number: validation[number][task])
        model = trainings.seeds[seed].folder / task
        yield f"Models: {options.out}/seed-*/{task}; best validation: {model}"
        yield from LOAD
        yield f'  model = pipeline("text-classification", model="{model}")'
        half = f" --half {3 - options.half}" if options.half else ""
        measure = f"consilience probe --model {options.out} --suite {options.task}"
        yield f"Measure its consistency: {measure} --data {options.validation}{half}"

    def document(self) -> dict[str, Any]:
        """The trainings as rows."""
        cost = {"cost": self.cost.to_dict() if self.cost else None}
        if (trainings := self.trainings) is None:
            return cost
        best = trainings.best
        return cost | {
            "model": self.options.model,
            "task": self.task,
            "best": {"batch": best.batch, "learning_rate": best.learning_rate},
            "grid": [
                {
                    "batch": plan.batch,
                    "learning_rate": plan.learning_rate,
                    "validation": dict(training.validation),
                }
                for plan, training in trainings.grid
            ],
            "seeds": [
                {
                    "seed": seed,
                    "validation": dict(training.validation),
                    "epochs": training.epochs,
                    "seconds": training.seconds,
                    "folder": str(training.folder),
                }
                for seed, training in trainings.seeds.items()
            ],
            "warnings": [*self.notes],
        }


def finetune(options: FinetuneOptions, watch: Watch = SILENT) -> Finetuning | None:
    """Train with each seed; None in every process but the first (``accelerate launch``)."""
    with needs_extra("train"):
        from consilience.models.sources import locate
        from consilience.train.classifiers import Backbone
        from consilience.train.cost import classifier_cost
        from consilience.train.seeds import are_finished, reading_of, train_seeds
    locate(options.model)  # an impossible name raises
    sources = _sources(options)
    plans, task = _plans(options), sources[0].task
    is_first = not int(os.environ.get("RANK", "0"))
    if not is_first:
        watch = SILENT
    with watch.loading(options.model):
        loading = Loading(trust_remote_code=options.trust_remote_code)
        longest = options.max_length or 0
        reading = reading_of(options.model, loading, options.input, options.pool, longest)
        backbone = Backbone(options.model, reading, options.device, options.trust_remote_code)
        cost = None
        if is_first and (options.dry_run or not are_finished(options.out, options.seeds)):
            watch.say("timing one update and a few queries")
            cost = classifier_cost(backbone, sources, plans, options.seeds)
        if options.dry_run:
            return Finetuning(task.name, cost, None, [], options)
        for line in cost.lines if cost else ():
            watch.inform(line)
        trainings = train_seeds(
            backbone, sources, plans, options.out, options.seeds, options.jobs, watch
        )
    notes = _notes(trainings, sources)
    return Finetuning(task.name, cost, trainings, notes, options) if is_first else None


def _sources(options: FinetuneOptions) -> list[TaskPairs]:
    """The pairs of the main task, then those of the other tasks."""
    from consilience.train.classifiers import TaskPairs

    task = load_task(options.task, options.indicators)
    validation = read_pairs(options.validation, task)
    if options.half is not None:
        validation = half_of(validation, options.half, SEED)
    train = _read_sample(options.train, task, options.limit)
    others = [_source_of(spec, options.limit) for spec in options.with_task or ()]
    return [TaskPairs(task, train, validation), *others]


def _plans(options: FinetuneOptions) -> list[ClassifierPlan]:
    """The plans to try: every batch size with every learning rate."""
    from consilience.train.classifiers import ClassifierPlan
    from consilience.train.seeds import grid_of

    rates = GRID_RATES if options.grid else options.learning_rate
    batches = GRID_BATCHES if options.grid else options.batch_size
    single = {"learning_rate": rates[0], "batch": batches[0], "seed": options.seeds[0]}
    plan = ClassifierPlan(**{**shared_fields(options, ClassifierPlan), **single})
    return grid_of(plan, batches, rates)


def _read_sample(file: str, task: Task, limit: int | None) -> Pairs:
    pairs = read_pairs(file, task)
    return pairs if limit is None else sample_pairs(pairs, limit, SEED)


def _source_of(spec: str, limit: int | None) -> TaskPairs:
    """Another task and its pairs, from ``TASK=TRAIN`` or ``TASK=TRAIN,VALIDATION``."""
    from consilience.train.classifiers import TaskPairs

    name, equals, files = spec.partition("=")
    train, comma, validation = files.partition(",")
    if not equals or not train or (comma and not validation):
        raise ConsilienceError(
            f"--with-task {spec}", expected="mrpc=TRAIN or mrpc=TRAIN,VALIDATION"
        )
    task = load_task(name)
    held_out = read_pairs(validation, task) if validation else None
    return TaskPairs(task, _read_sample(train, task, limit), held_out)


def _notes(trainings: SeedTrainings, sources: Sequence[TaskPairs]) -> list[str]:
    """The notes of the pairs, and how many of them were truncated."""
    notes = [
        note
        for source in sources
        for pairs in (source.train, source.validation)
        if pairs
        for note in pairs.notes
    ]
    first = next(iter(trainings.seeds.values()))
    for name, truncated in (
        ("training", first.truncated),
        ("validation", first.truncated_validation),
    ):
        for source in sources:
            pairs = source.train if name == "training" else source.validation
            if pairs and (count := truncated.get(source.task.name)):
                notes.append(
                    f"{count} of {len(pairs.items)} {name} pairs of {source.task.name} were too "
                    "long and were truncated"
                )
    return notes
