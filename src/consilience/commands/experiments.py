"""study, improve, finetune, reproduce: experiments of several runs or trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.app.command import Lazy, command, group
from consilience.options import takes
from consilience.options.runs import (
    ReproduceOptions,
    StudyReportOptions,
    StudyRunOptions,
    StudyStatusOptions,
)
from consilience.options.training import FinetuneOptions, ImproveOptions

if TYPE_CHECKING:
    from consilience.report.export import Lines, Shown
    from consilience.reproduce import reproduction
    from consilience.study import file, reporting, running
    from consilience.train import improvement
else:
    file = Lazy("study.file")
    improvement = Lazy("train.improvement")
    reporting = Lazy("study.reporting")
    reproduction = Lazy("reproduce.reproduction")
    running = Lazy("study.running")

group(
    "study", "Ask many models many suites from one file, and report all runs together.", "Measure"
)

# fmt: off


@command(StudyRunOptions, "study run", examples=(
    "study run sizes.toml --dry-run",
    "study run sizes.toml --engine ray --ray-address auto"))
def run_study(options: StudyRunOptions) -> file.StudyState:
    """Ask every model of a study every suite, in every combination of factors.

    Worker processes ask the groups of all runs; each loads a model once. A run that fails is
    recorded, and the others are asked; the exit status is then 2. Rerun the same command to ask
    what is not yet complete.
    """
    work = running.plan_study if options.dry_run else running.run_study
    return work(options, options.watch)


@command(StudyStatusOptions, "study status", examples=(
    "study status sizes.toml",
    "study status sizes.toml --json"))
def study_state(options: StudyStatusOptions) -> file.StudyState:
    """Show which runs of a study are complete, part (some groups), waiting or failed.

    No model is loaded.
    """
    return file.study_status(options)


@command(StudyReportOptions, "study report", examples=(
    "study report sizes.toml",
    "study report sizes.toml --tables tables"))
def report_study(options: StudyReportOptions) -> reporting.StudyReport:
    """Make one table and one page of all complete runs of a study, and compare its models.

    Models are compared on each suite with each combination of factors. p is adjusted over all
    comparisons of the study.
    """
    return reporting.report_study(options, options.watch)


@command(ImproveOptions, "improve", panel="Improve", output=("details", "json"), examples=(
    "improve --model packaged:smollm2 --suite mini --train-groups capital --validation-groups "
    "currency --lambda 1 --epochs 1 --train-facts 8 --validation-facts 8 --limit 2",
    "improve --model bert-base-cased --suite pararel --train-groups P36,P138 "
    "--validation-groups P19 --seeds 42,43 --out runs/better"))
def improve(options: ImproveOptions) -> improvement.Improvement | Lines | None:
    """Train a model to give one answer to all patterns of a fact, and measure the gain.

    The loss is `vote` by default; that of the ParaRel paper is --loss pairs. Trains with each
    weight of the consistency loss, keeps the checkpoint with the best consistent accuracy on the
    validation relations, and compares the model before and after on the held-out relations. Rerun
    the same command to resume an interrupted run.
    """
    return improvement.improve(options, options.watch)


@command(FinetuneOptions, "finetune", panel="Improve", examples=(
    "finetune --model roberta-base --task rte --train hub:train --validation hub:validation "
    "--out models/rte",
    "finetune --model packaged:minilm --task mrpc --train train.tsv --validation dev.tsv "
    "--seeds 0 --limit 64 --out models/mrpc"))
def finetune(options: FinetuneOptions) -> improvement.Finetuning | Lines | None:
    """Fine-tune a classifier on the original form of sentence pairs (CALUM, Sections 4.3, 6.1).

    The best checkpoint of each seed is saved as --out/seed-N/TASK. Rerun the same command to
    resume an interrupted run.
    """
    return improvement.finetune(options, options.watch)


@command(ReproduceOptions, "reproduce", panel="Papers", examples=(
    "reproduce pararel-table-3 --add mine=path/to/model --dry-run",
    "reproduce pararel-table-3 --add mine=path/to/model --with 'probe=--limit 5'"))
def reproduce(options: ReproduceOptions) -> Shown:
    """Reproduce a table or figure of the papers, or put your own model next to its rows.

    Runs the commands that the table needs and reuses existing runs. Rerun the same command to
    resume. A row whose model or data is missing is marked `unavailable`.
    """
    if options.name is None:
        return reproduction.recipes()
    return reproduction.reproduce(options, options.watch)


@takes(ReproduceOptions)
def reproduce_table(options: ReproduceOptions) -> reproduction.Reproduction:
    """Run the commands that a table of a paper takes, and put our numbers next to the paper's."""
    return reproduction.reproduce(options, options.watch)


def list_tables() -> dict[str, str]:
    """The papers' tables and figures that ``reproduce_table`` makes, and what they show."""
    known = reproduction.RECIPES
    return {name: known[name].title for name in sorted(known)}
