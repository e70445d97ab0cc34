"""suite: list, fetch, check and count suites."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from consilience import suites
from consilience.cli.console import err, out, progress_shown, warn
from consilience.cli.shared import AsJson, AsShipped, DataDir, print_json, without_nan
from consilience.errors import ConsilienceError
from consilience.report.metric_tables import statistics_tables
from consilience.suites.fetch import SOURCES, fetch
from consilience.suites.sizes import cautions, counted, suite_statistics
from consilience.workflow.options import ADVANCED


def list_suites(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the suites that have a name, with their folders."""
    data = suites.data_dir(data_dir)
    rows = []
    for name, description in suites.NAMES.items():
        try:
            folder: str | None = str(suites.suite_folder(name, data))
        except ConsilienceError:
            folder = None
        rows.append({"suite": name, "about": description, "folder": folder})
    if as_json:
        print_json({"suites": rows})
        return
    for row in rows:
        where = row["folder"] or f"not in {data}"
        line = f"{row['suite']:10} {row['about']}\n{'':10} {where}"
        out.print(line, soft_wrap=True, highlight=False)


def fetch_suite(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(SOURCES)}.")],
    data_dir: DataDir = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Another URL with the same files.",
            metavar="URL",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Download a suite of the papers, and check every file."""
    with progress_shown(f"fetching {name}", None, "files") as advance:
        folder, fetched = fetch(name, suites.data_dir(data_dir), base=source, progress=advance)
    if as_json:
        print_json({"suite": name, "folder": str(folder), "fetched": fetched})
    else:
        line = f"{folder}: complete, {fetched} files fetched"
        out.print(line, soft_wrap=True, highlight=False)


def check(
    suite: Annotated[str, typer.Argument(help="A name or a folder.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Check a suite: list every error in its files by file and line.

    Notes name properties that are no errors but decide what the numbers mean: subjects of an N-1
    relation with several objects, duplicate facts, objects that differ only in case or spaces,
    relations with one pattern.
    """
    problems = [str(problem) for problem in suites.check_suite(suite, data_dir)]
    chosen = None if problems else suites.load_suite(suite, data_dir)
    notes = cautions(chosen) if chosen else []
    if as_json:
        print_json({"suite": suite, "problems": problems, "warnings": notes})
    for problem in problems:
        err.print(problem, soft_wrap=True, highlight=False, markup=False)
    if problems:
        err.print(f"{counted(len(problems), 'problem')} in '{suite}'", soft_wrap=True)
    if chosen is None:
        raise typer.Exit(2)
    if not as_json:
        warn(notes)
        verdict = f"no problems, {counted(len(notes), 'note')}" if notes else "good"
        sizes = suite_statistics(chosen)
        out.print(
            f"{suite}: {verdict}; {counted(sizes.relations, 'relation')}, "
            f"{counted(sizes.patterns, 'pattern')}, {counted(sizes.facts, 'fact')}",
            soft_wrap=True,
            highlight=False,
        )


def stats(
    suite: Annotated[str, typer.Argument(help="A name or a folder.")],
    data_dir: DataDir = None,
    as_shipped: AsShipped = False,
    as_json: AsJson = False,
) -> None:
    """Count the relations, patterns and facts of a suite (ParaRel paper, Table 1)."""
    chosen = suites.load_suite(suite, data_dir, as_shipped=as_shipped)
    statistics = suite_statistics(chosen)
    if as_json:
        print_json(without_nan({"suite": chosen.name, **asdict(statistics)}))
        return
    for table in statistics_tables(statistics, chosen.name):
        out.print(table)
    warn(list(chosen.notes))
