"""gate: pass or fail a run by rules on its numbers."""

from __future__ import annotations

from dataclasses import asdict, replace

from consilience.cli.console import out, warn
from consilience.cli.output_options import GateOutput
from consilience.cli.printing import print_json, print_tables, without_nan
from consilience.core.errors import ConsilienceError
from consilience.core.provenance import git_revision, versions
from consilience.files.write import write_whole
from consilience.gating.gate import Gate, GateRuns, as_junit, plan_gate
from consilience.gating.gate import gate as check_gate
from consilience.workflow.gate_options import GateOptions

CLOSED = 3
"""The exit status of a gate that does not let the run pass."""


def gate(options: GateOptions, output: GateOutput) -> int:
    """Print each rule with its verdict; status 3 if the gate fails."""
    if output.plan:
        return _plan(options, output)
    checked = check_gate(options)
    if output.junit:
        write_whole(output.junit, checked_junit(checked))
    if output.as_json or output.format_ == "json":
        print_json(_document(checked))
    else:
        table = checked.table()
        if output.format_ == "md":
            table = replace(table, notes=[*table.notes, *checked.notes])
        print_tables([table], output.format_)
        warn(checked.notes)
    if output.format_ == "table" and not output.as_json and checked.verdict == "undecided":
        out.print(f"Undecided rules {'do not fail' if checked.is_open else 'fail'} the gate "
                  "(--undecided).")  # fmt: skip
    return 0 if checked.is_open else CLOSED


def _plan(options: GateOptions, output: GateOutput) -> int:
    """Print how much data each rule needs."""
    if output.junit:
        raise ConsilienceError(
            "--junit with --plan", expected="one of them", todo="A plan has no checks to write."
        )
    plan = plan_gate(options)
    if output.as_json or output.format_ == "json":
        rows = without_nan([asdict(row) for row in plan.rows])
        print_json({"run": _record(plan.of), "plan": rows, "warnings": list(plan.notes)})
        return 0
    print_tables([plan.table()], output.format_)
    warn(plan.notes)
    return 0


def checked_junit(checked: Gate) -> bytes:
    """The checks as JUnit XML."""
    name = f"{', '.join(checked.of.labels)} on {checked.of.suite.name}"
    return as_junit(name, checked.checks, undecided_fails=checked.undecided == "fail")


def _document(checked: Gate) -> object:
    """The checks as one JSON document."""
    return {
        "run": _record(checked.of),
        "verdict": checked.verdict,
        "passes": checked.is_open,
        "checks": without_nan([asdict(check) for check in checked.checks]),
        "warnings": list(checked.notes),
    }


def _record(of: GateRuns) -> object:
    """What was read, for a JSON document."""
    settings = {
        "runs": [str(run.path) for run in of.runs],
        "baseline": str(of.baseline.path) if of.baseline else None,
        "suite": of.suite.name,
        "protocol": of.protocol,
    }
    return {"settings": settings, "versions": versions(), "git": git_revision()}
