"""annotate: ask people about sentence pairs or patterns, and count how they answer."""

from __future__ import annotations

from pathlib import Path

from consilience.authoring.pattern_sheets import (
    ANSWER,
    Sheets,
    count_sheets,
    make_pattern_sheets,
    make_sheets,
    rejected_table,
    verdicts,
)
from consilience.cli.console import out, warn
from consilience.cli.output_options import JsonOutput, TableOutput
from consilience.cli.printing import print_json, rows_of
from consilience.core.text import counted
from consilience.files.write import csv_of, write_whole
from consilience.report.metric_tables import annotator_tables
from consilience.workflow.audit_options import PatternSheetOptions
from consilience.workflow.suite_options import ScoreSheetsOptions, SheetOptions


def sheet(options: SheetOptions, output: JsonOutput) -> None:
    """Write annotation sheets, and say where they are."""
    sheets = make_sheets(options)
    key, folder = sheets.key, options.folder
    if output.as_json:
        document = {"run": sheets.record, "folder": str(folder), "sheets": len(key.sheets)}
        print_json(document | {"questions": sheets.questions, "warnings": sheets.notes})
        return
    warn(sheets.notes)
    out.print(
        f"{counted(len(key.sheets), 'sheet')} of {counted(sheets.questions, 'question')}: "
        f"{_pages(sheets, folder)}\nKeep key.json to yourself. "
        f"Then: consilience suite annotate score {folder}"
    )


def patterns(options: PatternSheetOptions, output: JsonOutput) -> None:
    """Write sheets on patterns, and say where they are."""
    sheets = make_pattern_sheets(options)
    key, folder = sheets.key, options.folder
    controls = len(key.items) - len(key.patterns)
    if output.as_json:
        document = {"run": sheets.record, "folder": str(folder), "sheets": len(key.sheets)}
        document |= {"paraphrases": len(key.patterns), "controls": controls}
        print_json(document | {"warnings": sheets.notes})
        return
    warn(sheets.notes)
    out.print(
        f"{counted(len(key.sheets), 'sheet')} of {counted(len(key.patterns), 'paraphrase')} and "
        f"{counted(controls, 'control')}: "
        f"{_pages(sheets, folder)}\nKeep key.json to yourself. "
        f"Then: consilience suite annotate score {folder}"
    )


def _pages(sheets: Sheets, folder: Path) -> str:
    """The first page, and that there are others."""
    first, *others = sheets.key.sheets
    return f"{folder}/{first}.html (or .csv){', ...' if others else ''}"


def score(options: ScoreSheetsOptions, output: TableOutput) -> None:
    """Print the numbers of the annotators."""
    scored, record = count_sheets(options)
    if output.file:
        write_whole(output.file, csv_of(scored.metrics))
    if output.as_json:
        metrics = rows_of(scored.metrics)
        document = {"run": record, "metrics": metrics, "warnings": scored.warnings}
        if scored.key.patterns:
            rows = [dict(zip(ANSWER, one, strict=True)) for one in verdicts(scored)]
            document["verdicts"] = rows
        print_json(document)
        return
    people, items = scored.annotators, len(scored.key.items)
    size = f"{counted(len(people), 'person', 'people')}, {counted(items, 'item')}"
    title = f"{scored.key.task}: {size}, in percent"
    for table in annotator_tables(scored.metrics, people, title):
        out.print(table)
    if scored.key.patterns:
        rejected = rejected_table(scored)
        out.print(rejected if rejected.rows else rejected.title)
    if options.sign is not None:
        out.print(f"{options.sign}/signoff.jsonl: {counted(len(record['signed']), 'new verdict')}")
    warn(scored.warnings)
