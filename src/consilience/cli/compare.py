"""compare: two runs or more on the same questions."""

from __future__ import annotations

from consilience.cli.console import out, warn
from consilience.cli.output_options import CompareOutput
from consilience.cli.printing import print_json, print_tables, rows_of
from consilience.core.provenance import git_revision, versions
from consilience.files.write import csv_of, write_whole
from consilience.results.comparing import compare_runs
from consilience.types import QUESTION_WORDS
from consilience.workflow.run_options import CompareOptions


def compare(options: CompareOptions, output: CompareOutput) -> None:
    """Print the differences of runs."""
    compared = compare_runs(options)
    table = compared.table
    if output.file:
        write_whole(output.file, csv_of(table))
    if output.as_json or output.format_ == "json":
        settings = {
            "runs": [str(run.path) for run in compared.runs],
            "suite": compared.suite.name,
            "protocol": compared.protocol,
        }
        record = {"settings": settings, "versions": versions(), "git": git_revision()}
        print_json({"run": record, "differences": rows_of(table), "warnings": compared.warnings()})
        return
    shown = compared.shown(output.show, output.by)
    print_tables([shown], output.format_)
    if output.by is None and output.format_ == "table" and len(compared.runs) > 1:
        suite = compared.suite
        others = ["edit"] if any(group.edges for group in suite) else []
        others += ["form"] if any(len(group.design.forms) > 1 for group in suite) else []
        has_languages = any(group.design.languages for group in suite)
        others += ["factor"] if has_languages or suite.words is QUESTION_WORDS else []
        out.print(f"Details: --by {', '.join(['group', *others])} or metric")
    warn(compared.notes)
