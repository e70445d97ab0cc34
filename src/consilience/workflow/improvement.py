"""Train a model to answer consistently, and measure it before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience import suites
from consilience.choices import Protocol
from consilience.errors import ConsilienceError, needs_extra
from consilience.metrics.notes import few_relations
from consilience.metrics.registry import headline_metrics
from consilience.options import Output
from consilience.read import read_rows, read_text
from consilience.report.comparison_tables import comparison_table
from consilience.report.shown import Shown, rows_of
from consilience.report.table import Table
from consilience.report.training_tables import lambda_table, result_table, table_7
from consilience.suites.question_suites import is_questions
from consilience.text import counted
from consilience.types import Suite
from consilience.watch import SILENT, Watch
from consilience.workflow.run_settings import default_folder
from consilience.workflow.training_options import ImproveOptions

if TYPE_CHECKING:
    from consilience.train.cost import TrainingCost
    from consilience.train.experiment import Improved
    from consilience.train.plan import Plan, Subject


PIPELINES = {"masked": "fill-mask", "causal": "text-generation"}
"""The pipeline of transformers that loads a trained model, by its kind."""

DRY_RUN = "Nothing was trained. Rerun the command without --dry-run to start."
"""The last line of the dry run of a training."""

LOAD = ("Load it:", "  from transformers import pipeline")
"""The first lines of how a trained model is loaded."""

IN_PLAN = {
    "train_groups": "train",
    "validation_groups": "validation",
    "whole_vocabulary": "vocabulary",
    "mlm": "text",
    "text": "text_file",
    "train_facts": "facts",
    "batch_size": "batch",
}
"""Options that the settings of a training call otherwise."""


@dataclass(frozen=True, slots=True)
class Improvement(Shown):
    """A model before and after training."""

    suite: Suite
    """The suite of training and test."""
    protocol: Protocol
    """The counting rules."""
    folder: Path
    """The folder of checkpoints, runs and the best model."""
    cost: TrainingCost | None
    """The work and an estimate of its time; None where the results exist already."""
    result: Improved | None
    """Trainings, metrics and comparisons; None in a dry run."""
    model: str
    """The model, as it was named."""

    @property
    def notes(self) -> list[str]:
        """What to know of the choice of the model, and of a mean over few relations."""
        if self.result is None:
            return []
        compared = self.result.best.compared
        headline = compared.filter(compared["metric"].is_in(headline_metrics()))
        return [*self.result.notes, *few_relations(headline, self.suite)]

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The numbers before and after, and where the model is; of a dry run the work."""
        if (result := self.result) is None:
            yield from (*(self.cost.lines if self.cost else ()), DRY_RUN)
            return
        best = result.best.chosen
        row, *others = result.rows
        seeds = f", mean of {len(row.outcomes)} seeds" if len(row.outcomes) > 1 else ""
        relations = counted(result.relations, "held-out relation")
        title = f"{self.model} on {self.suite.name}: {relations} ({self.protocol}{seeds})"
        yield result_table(row.compared, self.suite, title)
        if others or output.details:
            yield from table_7(result.table, result.relations)
        if output.details:
            yield lambda_table(result.lambdas)
            compared = comparison_table(result.best.compared, self.suite, by="group")
            yield replace(compared, title=f"{compared.title}, seed {best.seed}")
        model, checkpoint = best.best.model, best.best.checkpoint
        updates = f"{checkpoint['step']} of {counted(checkpoint['updates'], 'update')}"
        yield f"Model (lambda {best.weight:g}, seed {best.seed}, after {updates}): {model}"
        yield from LOAD
        yield f'  model = pipeline("{PIPELINES[result.kind]}", model="{model}")'
        after = self.folder / f"seed-{best.seed}" / best.name / "after"
        more = "" if output.details else "--details, or "
        yield f"More: {more}consilience report {self.folder / 'before'} {after}"

    def document(self) -> dict[str, Any]:
        """The numbers as rows."""
        cost = {"cost": self.cost.to_dict() if self.cost else None}
        if (result := self.result) is None:
            return cost
        outcomes = [
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
        ]
        return cost | {
            "before": rows_of(result.before),
            "perplexity": result.perplexity,
            "outcomes": outcomes,
            "table": rows_of(result.table),
            "notes": self.notes,
            "model": str(result.best.chosen.best.model),
        }

    def remarks(self, output: Output) -> list[str]:
        """The notes, and how to measure perplexity."""
        without = self.result is not None and self.result.perplexity is None
        note = "perplexity was not measured; give held-out text with --text."
        return [*self.notes, *[note] * without]


def improve(options: ImproveOptions, watch: Watch = SILENT) -> Improvement | None:
    """Train, choose and measure; None in every process but the first (``accelerate launch``)."""
    from consilience.train.plan import check_plan

    if is_questions(options.suite):
        raise ConsilienceError(
            f"'{options.suite}' is a suite of questions, and questions cannot be trained on yet",
            expected="a suite of facts: mini, pararel, or a folder",
            todo="Write the questions as facts with patterns that end with the answer; "
            "`consilience suite new DIR --facts` writes an example.",
        )
    suite = suites.load_suite(options.suite, options.data_dir)
    protocol: Protocol = options.protocol or suite.protocol
    subject, plan = _subject_and_plan(options, suite, protocol)
    seeds, ablations = options.seeds, options.ablations
    check_plan(plan, subject, seeds)
    with needs_extra("train"):
        from consilience.models.sources import locate
        from consilience.train.cost import consistency_cost
        from consilience.train.experiment import TABLE, is_first_process
        from consilience.train.experiment import improve as train_and_measure
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
            return Improvement(suite, protocol, folder, cost, None, options.model)
        for line in cost.lines if cost else ():
            watch.inform(line)
        result = train_and_measure(
            subject, plan, folder, seeds=seeds, ablations=ablations, watch=watch
        )
    return Improvement(suite, protocol, folder, cost, result, options.model)


def _folder_of(options: ImproveOptions, suite: Suite) -> Path:
    """The folder of a training without ``--out``: named by suite, model and all settings."""
    others = ("out", "dry_run", "device", "report_to", "data_dir", "watch")
    values = {name: value for name, value in vars(options).items() if name not in others}
    settings = {IN_PLAN.get(name, name): value for name, value in values.items()}
    text = options.text and str(options.text)
    return default_folder(
        options.model, {**settings, "text_file": text, "suite": f"improve-{suite.name}"}
    )


def _subject_and_plan(
    options: ImproveOptions, suite: Suite, protocol: Protocol
) -> tuple[Subject, Plan]:
    """The model with its suite and text, and the settings of its training."""
    from consilience.train.plan import DEFAULT_WEIGHTS, Plan, Subject

    weights = tuple(options.weights or DEFAULT_WEIGHTS[options.loss])
    single = {"weights": weights, "seed": options.seeds[0]}
    subject = Subject(
        options.model,
        suite,
        protocol,
        lines=read_lines(options.text) if options.text else (),
        test_facts=options.limit,
        device=options.device,
        trust_remote_code=options.trust_remote_code,
    )
    named = {IN_PLAN.get(name, name): value for name, value in vars(options).items()}
    settings = {
        setting.name: named[setting.name] for setting in fields(Plan) if setting.name in named
    }
    return subject, Plan(**{**settings, **single})


def read_lines(path: Path) -> list[str]:
    """The lines of a text, or the ``text`` of JSON lines, without empty ones."""
    if not path.is_file():
        raise ConsilienceError("no such file", where=str(path), todo="Check the path.")
    if path.suffix != ".jsonl":
        return [line.strip() for line in read_text(path).splitlines() if line.strip()]
    lines = []
    for where, row in read_rows(path):
        if "text" not in row:
            raise ConsilienceError("no 'text'", expected="a text in 'text'", where=where)
        lines.append(str(row["text"]))
    return [line for line in lines if line.strip()]
