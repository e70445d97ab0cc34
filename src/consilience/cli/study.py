"""study: many models on many suites, from one file."""

from __future__ import annotations

from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import JsonOutput, StudyRunOutput
from consilience.cli.printing import print_json, print_lines, print_tables, rows_of
from consilience.core.provenance import git_revision, versions
from consilience.study.file import Study
from consilience.study.status import StudyState, study_status
from consilience.workflow.study_options import (
    StudyReportOptions,
    StudyRunOptions,
    StudyStatusOptions,
)


def run(options: StudyRunOptions, output: StudyRunOutput) -> int:
    """Ask what is not complete, and print how far the study is; status 2 if a run failed."""
    from consilience.study.running import plan_study, run_study

    if output.dry_run:
        plan = plan_study(options, Screen())
        _show(plan, as_json=output.as_json)
        if not output.as_json:
            print_lines(f"{name:9} {text}" for name, text in plan.requests_in_words().items())
        return 0
    state = run_study(options, Screen())
    _show(state, as_json=output.as_json)
    return 2 if state.failed else 0


def status(options: StudyStatusOptions, output: JsonOutput) -> None:
    """Print how far each run is."""
    _show(study_status(options), as_json=output.as_json)


def report(options: StudyReportOptions, output: JsonOutput) -> None:
    """Write the page, and print the numbers of all runs and their comparisons."""
    from consilience.study.reporting import report_study

    made = report_study(options, Screen())
    files = [str(file) for file in made.files]
    if output.as_json:
        print_json({
            "run": _record(made.study), "runs": made.to_dicts(),
            "differences": rows_of(made.differences), "files": files, "warnings": made.notes,
        })  # fmt: skip
        return
    print_tables(made.tables().values(), "table")
    print_lines(files)
    warn(made.notes)


def _record(study: Study) -> dict[str, object]:
    settings = {"study": str(study.file), "folder": str(study.folder)}
    return {"settings": settings, "versions": versions(), "git": git_revision()}


def _show(state: StudyState, *, as_json: bool) -> None:
    if as_json:
        runs = [one.to_dict() for one in state.runs]
        print_json({"run": _record(state.study), "runs": runs, "warnings": state.failures()})
        return
    out.print(state.table())
    if state.failed and not any(one.queries for one in state.runs):  # not of a plan
        warn(["rerun `consilience study run` to try what failed again"])
