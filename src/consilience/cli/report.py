"""report: a run, or several side by side, as one page; its figures and tables as files."""

from __future__ import annotations

from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import JsonOutput
from consilience.cli.printing import print_json
from consilience.core.provenance import git_revision, versions
from consilience.results.reporting import report as make_report
from consilience.results.reporting import save_report
from consilience.workflow.run_options import ReportOptions


def report(options: ReportOptions, output: JsonOutput) -> None:
    """Write the page, its figures and its tables, and print their paths."""
    made = make_report(options, Screen())
    files = [str(path) for path in save_report(made, options)]
    if output.as_json:
        settings = {"runs": [str(run.path) for run in made.runs]}
        record = {"settings": settings, "versions": versions(), "git": git_revision()}
        print_json({"run": record, "files": files, "warnings": made.notes})
        return
    for file in files:
        out.print(file)
    warn(made.notes)
