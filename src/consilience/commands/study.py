"""study: many models on many suites, from one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.app.command import Lazy, command, group
from consilience.options.runs import StudyReportOptions, StudyRunOptions, StudyStatusOptions

if TYPE_CHECKING:
    from consilience.study import file, reporting, running
else:
    file = Lazy("study.file")
    reporting = Lazy("study.reporting")
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
