"""Results on standard output: tables in the format of ``--format``, or one JSON document."""

from __future__ import annotations

from dataclasses import replace

from consilience.app.console import out, warn
from consilience.app.process import json_text, print_errors
from consilience.files.write import write_whole
from consilience.options import Output
from consilience.report.export import as_csv, as_latex, as_markdown
from consilience.report.shown import Shown, without_nan
from consilience.report.table import Table, all_notes


def present(shown: Shown, output: Output) -> int:
    """Write the files that the output names, and print; the exit status."""
    for path, content in shown.written(output):
        write_whole(path, content)
    if not output.is_document:
        for item in shown.printed(output):
            if isinstance(item, Table):
                _print_table(item, output)
            else:
                out.print(item)
        warn(shown.remarks(output))
    if after := shown.then(output):
        return present(after, output)
    if output.is_document:
        print(json_text(without_nan(shown.document())))
    print_errors(shown.faults())
    return shown.exit_status()


def _print_table(table: Table, output: Output) -> None:
    match output.format:
        case "csv":
            out.print(as_csv(table), end="")
        case "md":
            out.print(as_markdown(replace(table, notes=all_notes(table))), end="")
        case "latex":
            out.print(as_latex(replace(table, notes=all_notes(table))), end="")
        case _:
            out.print(table)
