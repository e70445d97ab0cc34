"""annotate: ask people the same pairs in every form, and count how they answer."""

from __future__ import annotations

from consilience.cli.command import command_of
from consilience.cli.console import out, warn
from consilience.cli.shared import AsJson, CsvFile, print_json, rows_of
from consilience.files import csv_of, write_whole
from consilience.report.metric_tables import annotator_tables
from consilience.workflow.annotators import count_sheets, make_sheets
from consilience.workflow.suite_options import ScoreSheetsOptions, SheetOptions


@command_of(SheetOptions)
def sheet(options: SheetOptions, as_json: AsJson = False) -> None:
    """Sample sentence pairs, and write a page and a table with all their forms per annotator.

    Give annotators one of the two, never key.json. The page works from disk, without a network. Put
    the table that it downloads into the folder, in place of the empty one.
    """
    sheets = make_sheets(options)
    key, folder = sheets.key, options.folder
    if as_json:
        document = {"run": sheets.record, "folder": str(folder), "sheets": len(key.sheets)}
        print_json(document | {"questions": sheets.questions, "warnings": sheets.notes})
        return
    warn(sheets.notes)
    out.print(
        f"{len(key.sheets)} sheets of {sheets.questions} questions: {folder}/annotator-1.html "
        "(or .csv), ...\nKeep key.json to yourself. "
        f"Then: consilience suite annotate score {folder}",
        soft_wrap=True,
        highlight=False,
    )


@command_of(ScoreSheetsOptions)
def score(
    options: ScoreSheetsOptions,
    file: CsvFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure annotators' accuracy, consistency and agreement (CALUM paper, Section 4.4)."""
    scored, record = count_sheets(options)
    if file:
        write_whole(file, csv_of(scored.metrics))
    if as_json:
        metrics = rows_of(scored.metrics)
        print_json({"run": record, "metrics": metrics, "warnings": scored.warnings})
        return
    people, items = scored.annotators, len(scored.key.items)
    title = f"{scored.key.task}: {len(people)} people, {items} items, in percent"
    for table in annotator_tables(scored.metrics, people, title):
        out.print(table)
    warn(scored.warnings)
