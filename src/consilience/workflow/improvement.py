"""Train a model to answer consistently, and measure it before and after."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from consilience import suites
from consilience.choices import Protocol
from consilience.errors import ConsilienceError, needs_extra
from consilience.metrics.notes import few_relations
from consilience.metrics.registry import headline_metrics
from consilience.read import read_rows, read_text
from consilience.run_folder import default_folder
from consilience.types import Suite
from consilience.watch import SILENT, Watch
from consilience.workflow.options import shared_fields
from consilience.workflow.training_options import ImproveOptions

if TYPE_CHECKING:
    from consilience.train.cost import TrainingCost
    from consilience.train.experiment import Improved
    from consilience.train.plan import Plan, Subject


PIPELINES = {"masked": "fill-mask", "causal": "text-generation"}
"""The pipeline of transformers that loads a trained model, by its kind."""


@dataclass(frozen=True, slots=True)
class Improvement:
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

    @property
    def notes(self) -> list[str]:
        """What to know of the choice of the model, and of a mean over few relations."""
        if self.result is None:
            return []
        compared = self.result.best.compared
        headline = compared.filter(compared["metric"].is_in(headline_metrics()))
        return [*self.result.notes, *few_relations(headline, self.suite)]


def improve(options: ImproveOptions, watch: Watch = SILENT) -> Improvement | None:
    """Train, choose and measure; None in every process but the first (``accelerate launch``)."""
    from consilience.train.plan import check_plan

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
    folder = options.folder or _folder_of(options, suite)
    with watch.loading(options.model):
        if not is_first_process(subject):
            train_and_measure(subject, plan, folder, seeds=seeds, ablations=ablations)
            return None
        cost = None
        if options.dry_run or not (folder / TABLE).exists():
            watch.say("timing one update and a few queries")
            cost = consistency_cost(subject, plan, seeds, ablations=ablations)
        if options.dry_run:
            return Improvement(suite, protocol, folder, cost, None)
        for line in cost.lines if cost else ():
            watch.inform(line)
        result = train_and_measure(
            subject, plan, folder, seeds=seeds, ablations=ablations, watch=watch
        )
    return Improvement(suite, protocol, folder, cost, result)


def _folder_of(options: ImproveOptions, suite: Suite) -> Path:
    """The folder of a training without ``--out``: named by suite, model and all settings."""
    others = ("folder", "dry_run", "device", "report_to", "data_dir")
    settings = {name: value for name, value in asdict(options).items() if name not in others}
    text = settings["text_file"] and str(settings["text_file"])
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
        lines=read_lines(options.text_file) if options.text_file else (),
        test_facts=options.limit,
        device=options.device,
        trust_remote_code=options.trust_remote_code,
    )
    return subject, Plan(**{**shared_fields(options, Plan), **single})


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
