"""audit and card: look for mistakes in a suite, and make it ready to share."""

from __future__ import annotations

from dataclasses import asdict

from consilience.authoring.audit import audit_suite, audit_tables, edge_rows, findings_table
from consilience.authoring.sharing import write_card
from consilience.cli.console import out, warn
from consilience.cli.output_options import JsonOutput, TableOutput
from consilience.cli.printing import print_json, print_lines
from consilience.files.write import csv_of, write_whole
from consilience.workflow.audit_options import AuditOptions, CardOptions


def audit(options: AuditOptions, output: TableOutput) -> int:
    """Print the findings on a suite; status 2 if its files have errors."""
    audited = audit_suite(options)
    result = audited.audit
    if output.file:
        write_whole(output.file, csv_of(findings_table(result.findings)))
    if output.as_json:
        document = {
            "suite": audited.suite,
            "changes": [asdict(change) for change in audited.changes],
            "counts": result.counts,
            "findings": [asdict(finding) for finding in result.findings],
            "not_run": result.not_run,
            "edges": edge_rows(audited.relations, audited.edges or {}),
        }
        print_json(document)
    else:
        for table in audit_tables(audited.suite, result, audited.changes):
            out.print(table)
    return 2 if any(finding.severity == "error" for finding in result.findings) else 0


def card(options: CardOptions, output: JsonOutput) -> None:
    """Write the data card and the metadata of a suite, and print what is still missing."""
    written = write_card(options)
    files, missing = list(map(str, written.files)), list(map(str, written.problems))
    if output.as_json:
        print_json({"suite": options.suite, "files": files, "warnings": missing})
        return
    warn(missing)
    print_lines(files)
