"""report: a run, or several side by side, as one page; its figures and tables as files."""

from __future__ import annotations

from consilience.cli.command import command_of
from consilience.cli.console import Screen, out, warn
from consilience.cli.shared import AsJson, print_json
from consilience.provenance import git_revision, versions
from consilience.workflow.reporting import report as make_report
from consilience.workflow.reporting import save_report
from consilience.workflow.run_options import ReportOptions


@command_of(ReportOptions)
def report(options: ReportOptions, as_json: AsJson = False) -> None:
    """Make one page on a run, or on several side by side: numbers, figures, examples, cautions.

    It is one file that opens without a network, on a phone and on paper. docs/report.md explains
    each of its numbers.
    """
    made = make_report(options, Screen())
    files = [str(path) for path in save_report(made, options)]
    if as_json:
        settings = {"runs": [str(run.path) for run in made.runs]}
        record = {"settings": settings, "versions": versions(), "git": git_revision()}
        print_json({"run": record, "files": files, "warnings": made.notes})
        return
    for file in files:
        out.print(file, soft_wrap=True)
    warn(made.notes)
