"""finetune: a classifier of sentence pairs, of one task or of several at once."""

from __future__ import annotations

from typing import Any

from consilience.cli.command import command_of
from consilience.cli.console import Screen, out, warn
from consilience.cli.shared import AsJson, print_json
from consilience.report.training_tables import grid_table, seed_table
from consilience.workflow.finetuning import FinetuneOptions, Finetuning
from consilience.workflow.finetuning import finetune as train_seeds


@command_of(FinetuneOptions)
def finetune(options: FinetuneOptions, as_json: AsJson = False) -> None:
    """Fine-tune on the original form of sentence pairs (CALUM, Sections 4.3 and 6.1).

    The best checkpoint of each seed is saved as --out/seed-N/TASK, a model like any other;
    `consilience probe` asks them all. Rerun the same command to resume an interrupted run.
    """
    finetuning = train_seeds(options, Screen())
    if finetuning is None:
        return
    if as_json:
        print_json(_document(options.model, finetuning))
        return
    _show(options.model, finetuning)
    warn(finetuning.notes)
    out.print(f"Models: {options.folder}/seed-*/{finetuning.task}", soft_wrap=True)


def _document(model: str, finetuning: Finetuning) -> dict[str, Any]:
    best, grid = finetuning.trainings.best, finetuning.trainings.grid
    return {
        "model": model,
        "task": finetuning.task,
        "best": {"batch": best.batch, "lr": best.learning_rate},
        "grid": [
            {
                "batch": plan.batch,
                "lr": plan.learning_rate,
                "validation": dict(training.validation),
            }
            for plan, training in grid
        ],
        "seeds": [
            {
                "seed": seed,
                "validation": dict(training.validation),
                "epochs": training.epochs,
                "seconds": training.seconds,
                "folder": str(training.folder),
            }
            for seed, training in finetuning.trainings.seeds.items()
        ],
        "warnings": list(finetuning.notes),
    }


def _show(model: str, finetuning: Finetuning) -> None:
    best, trainings = finetuning.trainings.best, finetuning.trainings
    if trainings.grid:
        rows = [
            (plan.batch, plan.learning_rate, tried.validation[finetuning.task], plan == best)
            for plan, tried in trainings.grid
        ]
        out.print(grid_table(rows, finetuning.task))
    validation = {seed: training.validation for seed, training in trainings.seeds.items()}
    costs = [(training.epochs, training.seconds) for training in trainings.seeds.values()]
    out.print(seed_table(model, validation, costs))
