"""improve: make a model more consistent, and measure it before and after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import ImproveOutput
from consilience.cli.printing import DRY_RUN, print_json, print_lines, rows_of
from consilience.core.text import counted
from consilience.report.comparison_tables import (
    comparison_table,
    lambda_table,
    result_table,
    table_7,
)
from consilience.train.improvement import PIPELINES, Improvement
from consilience.train.improvement import improve as train_and_measure
from consilience.workflow.training_options import ImproveOptions

if TYPE_CHECKING:
    from pathlib import Path

    from consilience.train.consistency import Improved


def improve(options: ImproveOptions, output: ImproveOutput) -> None:
    """Train a model, and print its numbers before and after."""
    improvement = train_and_measure(options, Screen())
    if improvement is None:
        return
    result, cost = improvement.result, improvement.cost
    if output.as_json:
        document = {"cost": cost.to_dict() if cost else None}
        print_json(document | (_document(result, improvement.notes) if result else {}))
    elif result:
        _show(improvement, result, options, details=output.details)
    elif cost:
        print_lines([*cost.lines, DRY_RUN])


def _show(
    improvement: Improvement, result: Improved, options: ImproveOptions, *, details: bool
) -> None:
    best = result.best.chosen
    row, *others = result.rows
    seeds = f", mean of {len(row.outcomes)} seeds" if len(row.outcomes) > 1 else ""
    relations = f"{counted(result.relations, 'held-out relation')}"
    title = (
        f"{options.model} on {improvement.suite.name}: {relations} ({improvement.protocol}{seeds})"
    )
    out.print(result_table(row.compared, improvement.suite, title))
    if others or details:
        for table in table_7(result.table, result.relations):
            out.print(table)
    if details:
        out.print(lambda_table(result.lambdas))
        compared = comparison_table(result.best.compared, improvement.suite, by="group")
        out.print(replace(compared, title=f"{compared.title}, seed {best.seed}"))
    print_lines(_closing(result, improvement.folder, details=details))
    warn(improvement.notes)
    if result.perplexity is None:
        warn(["perplexity was not measured; give held-out text with --text."])


def _closing(result: Improved, folder: Path, *, details: bool) -> list[str]:
    """Where the model is, how to load it, and where to see more."""
    best = result.best.chosen
    model, checkpoint = best.best.model, best.best.checkpoint
    task = PIPELINES[result.kind]
    after = folder / f"seed-{best.seed}" / best.name / "after"
    more = "" if details else "--details, or "
    return [
        f"Model (lambda {best.weight:g}, seed {best.seed}, after {checkpoint['step']} of "
        f"{counted(checkpoint['updates'], 'update')}): {model}",
        "Load it:",
        "  from transformers import pipeline",
        f'  model = pipeline("{task}", model="{model}")',
        f"More: {more}consilience report {folder / 'before'} {after}",
    ]


def _document(result: Improved, notes: list[str]) -> dict[str, Any]:
    return {
        "before": rows_of(result.before),
        "perplexity": result.perplexity,
        "outcomes": [
            {
                "name": outcome.chosen.name,
                "seed": outcome.chosen.seed,
                "lambda": outcome.chosen.weight,
                "validation": {
                    f"{weight:g}": dict(trained.validation)
                    for weight, trained in outcome.chosen.tried.items()
                },
                "checkpoint": dict(outcome.chosen.best.checkpoint),
                "perplexity": outcome.chosen.best.perplexity,
                "after": rows_of(outcome.metrics),
                "differences": rows_of(outcome.compared),
                "model": str(outcome.chosen.best.model),
            }
            for outcome in result.outcomes
        ],
        "table": rows_of(result.table),
        "notes": notes,
        "model": str(result.best.chosen.best.model),
    }
