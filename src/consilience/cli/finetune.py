"""finetune: a classifier of sentence pairs, of one task or of several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import JsonOutput
from consilience.cli.printing import DRY_RUN, print_json, print_lines
from consilience.report.comparison_tables import grid_table, seed_table
from consilience.train.improvement import Finetuning
from consilience.train.improvement import finetune as train_classifiers
from consilience.workflow.training_options import FinetuneOptions

if TYPE_CHECKING:
    from consilience.train.classifiers import SeedTrainings


def finetune(options: FinetuneOptions, output: JsonOutput) -> None:
    """Train classifiers, and print their validation numbers."""
    finetuning = train_classifiers(options, Screen())
    if finetuning is None:
        return
    trainings, cost = finetuning.trainings, finetuning.cost
    if output.as_json:
        document: dict[str, Any] = {"cost": cost.to_dict() if cost else None}
        document |= _document(options.model, finetuning, trainings) if trainings else {}
        print_json(document)
    elif trainings:
        _show(options, finetuning, trainings)
    elif cost:
        print_lines([*cost.lines, DRY_RUN])


def _document(model: str, finetuning: Finetuning, trainings: SeedTrainings) -> dict[str, Any]:
    return {
        "model": model,
        "task": finetuning.task,
        "best": {"batch": trainings.best.batch, "learning_rate": trainings.best.learning_rate},
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
        "warnings": list(finetuning.notes),
    }


def _show(options: FinetuneOptions, finetuning: Finetuning, trainings: SeedTrainings) -> None:
    task = finetuning.task
    validation = {seed: training.validation for seed, training in trainings.seeds.items()}
    costs = [(training.epochs, training.seconds) for training in trainings.seeds.values()]
    out.print(seed_table(options.model, validation, costs))
    if trainings.grid:
        rows = [
            (plan.batch, plan.learning_rate, tried.validation[task], plan == trainings.best)
            for plan, tried in trainings.grid
        ]
        out.print(grid_table(rows, task))
    warn(finetuning.notes)
    seed = max(validation, key=lambda number: validation[number][task])
    model = trainings.seeds[seed].folder / task
    other_half = f" --half {3 - options.half}" if options.half else ""
    lines = (
        f"Models: {options.folder}/seed-*/{task}; best validation: {model}",
        "Load it:",
        "  from transformers import pipeline",
        f'  model = pipeline("text-classification", model="{model}")',
        f"Measure its consistency: consilience probe --model {options.folder} --suite "
        f"{options.task} --data {options.validation}{other_half}",
    )
    print_lines(lines)
