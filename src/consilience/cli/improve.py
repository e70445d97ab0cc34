"""improve: make a model more consistent, and measure it before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consilience.cli.command import command_of
from consilience.cli.console import Screen, out
from consilience.cli.shared import AsJson, print_json, rows_of
from consilience.metrics.registry import headline_metrics
from consilience.report.comparison_tables import comparison_tables
from consilience.report.training_tables import lambda_table, table_7
from consilience.workflow.improvement import Improvement, ImproveOptions
from consilience.workflow.improvement import improve as train_and_measure

if TYPE_CHECKING:
    from consilience.train.experiment import Improved


@command_of(ImproveOptions)
def improve(options: ImproveOptions, as_json: AsJson = False) -> None:
    """Continue training so that all patterns of a fact get one answer (ParaRel, Section 8).

    Trains with each lambda, keeps the checkpoint with the best Consistent-Acc on the validation
    relations, and measures before and after on all other N-1 relations, with paired tests. Rerun
    the same command to resume an interrupted run.
    """
    improvement = train_and_measure(options, Screen())
    if improvement is None:
        return
    if as_json:
        print_json(_document(improvement.result))
    else:
        _show(improvement)


def _show(improvement: Improvement) -> None:
    result = improvement.result
    best = result.best
    title = f"{improvement.suite.name}, protocol {improvement.protocol}, seed {best.chosen.seed}"
    for table in comparison_tables(best.compared, headline_metrics(), title):
        out.print(table)
    for each in (*table_7(result.table, result.relations), lambda_table(result.lambdas)):
        out.print(each)
    if result.perplexity is None:
        out.print("What it cost in perplexity was not measured: no --text.")
    out.print(f"Model: {best.chosen.best.model}", soft_wrap=True)


def _document(result: Improved) -> dict[str, Any]:
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
                "perplexity": outcome.chosen.best.perplexity,
                "after": rows_of(outcome.metrics),
                "differences": rows_of(outcome.compared),
                "model": str(outcome.chosen.best.model),
            }
            for outcome in result.outcomes
        ],
        "model": str(result.best.chosen.best.model),
    }
