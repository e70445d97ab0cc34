"""report: a run, or several side by side, as one page; its figures and tables as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    out,
    print_json,
    progress_bar,
    warn,
)
from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.provenance import git_revision, versions
from consilience.report.export import save_table
from consilience.report.figures import for_paper, optional, save_figure
from consilience.report.html import render
from consilience.report.page import Page
from consilience.run import Run, open_runs
from consilience.workflow.report import ReportOptions, tables_of
from consilience.workflow.report import report as make_report

FIGURE_FORMATS = ("svg", "png", "pdf")


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Folders of runs, or answers tables; LABEL=RUN names one. The first is the "
            "reference.",
            metavar="RUN...",
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option("--out", help="The page; else report.html in the folder of the run."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="A folder for every figure as SVG, PNG and PDF.", metavar="DIR"),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the papers' tables of these runs, as CSV, Markdown and LaTeX.",
            metavar="DIR",
        ),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            help="The relation whose patterns are shown first; else the least consistent."
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(help="A name or a folder; else that of the first run.", metavar="S"),
    ] = None,
    protocol: ProtocolOption = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap and the permutations.")] = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """One page on a run, or on several side by side: numbers, figures, examples, cautions.

    It is one file that opens without a network, on a phone and on paper. docs/report.md explains
    each of its numbers.
    """
    opened = open_runs(runs)
    place = _place(opened, file)
    for library in ("altair", "jinja2", "vl_convert"):
        optional(library)  # before the minutes that counting may take
    options = ReportOptions(suite, protocol, relation, seed, data_dir)
    with progress_bar("counting", tables_of(opened), "tables") as advance:
        found = make_report(opened, options, advance)
    written = _save_figures(found.page, figures) if figures else []
    if tables:
        for name, table in found.tables.items():
            written += save_table(table, tables, name)
    write_whole(place, render(found.page).encode())
    written = [place, *written]
    if as_json:
        record = {
            "asked": {"runs": [str(run.path) for run in opened]},
            "versions": versions(),
            "git": git_revision(),
        }
        files = [str(each) for each in written]
        document = {"run": record, "files": files, "warnings": found.notes}
        print_json(document)
        return
    for each in written:
        out.print(f"{each}", soft_wrap=True)
    warn(found.notes)


def _place(runs: Sequence[Run], file: Path | None) -> Path:
    if file is not None:
        if not file.parent.is_dir():
            raise ConsilienceError("no such folder", where=str(file.parent), todo="Make it first.")
        return file
    if len(runs) == 1 and runs[0].path.is_dir():
        return runs[0].path / "report.html"
    raise ConsilienceError(
        "several runs, or a table of answers, without --out", todo="Name the page: --out F.html."
    )


def _save_figures(page: Page, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in page.figures:
        chart = for_paper(figure.chart, figure.title)
        for suffix in FIGURE_FORMATS:
            written.append(folder / f"{figure.id}.{suffix}")
            save_figure(chart, written[-1])
    return written
