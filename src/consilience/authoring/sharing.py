"""A suite by its name: listed, made, fetched, checked, counted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args

import polars as pl

from consilience import suites
from consilience.authoring.checks import CHECKS, ISSUES, audit
from consilience.core.errors import Watch, unknown_name
from consilience.core.text import counted
from consilience.files.write import make_folder, path_of, refuse_occupied, write_whole
from consilience.options.suites import SuiteKind
from consilience.report.columns import Columns, frame_table
from consilience.report.export import Output
from consilience.report.metric_tables import question_table, statistics_tables
from consilience.report.table import Column, Table
from consilience.suites.facts import SuiteStatistics, suite_statistics
from consilience.suites.known import KNOWN
from consilience.suites.layouts import fetch
from consilience.suites.pairs import is_task, load_task
from consilience.suites.question_suites import (
    BUNDLED,
    QUESTION_SUITES,
    SUITE_NAMES,
    QuestionStatistics,
    columns_of,
    question_statistics,
)
from consilience.suites.questions import Questions
from consilience.types import Suite

EXAMPLES = Path(__file__).parent / "examples"


def new_suite(folder: str | Path, *, kind: SuiteKind = "questions") -> list[Path]:
    """Write an example of questions, facts or texts for a judge into a new folder; its files."""
    if kind not in get_args(SuiteKind):
        raise unknown_name(f"the kind '{kind}'", kind, get_args(SuiteKind))
    target = path_of(folder, "the folder of the suite")
    refuse_occupied(target)
    make_folder(target)
    files = []
    for source in sorted((EXAMPLES / kind).iterdir()):
        files.append(target / source.name)
        write_whole(files[-1], source.read_bytes())
    return files


def listed_suites() -> Output:
    """The names of suites, and their folders."""
    data = suites.data_dir()
    rows = []
    for name, about in SUITE_NAMES.items():
        folder = BUNDLED.get("mini" if name in QUESTION_SUITES else name, data / name)
        place = str(folder) if folder.is_dir() else None
        rows.append({"suite": name, "about": about, "folder": place})
    width = max(map(len, SUITE_NAMES))
    on_hub = {name: f"Hub: {row.dataset}@{row.revision[:7]}" for name, row in KNOWN.items()}
    lines = [
        f"{row['suite']:{width}} {row['about']}\n{'':{width}} "
        f"{row['folder'] or on_hub.get(str(row['suite'])) or f'not in {data}'}"
        for row in rows
    ]
    return Output({"suites": pl.DataFrame(rows)}, lines)


def made_suite(folder: Path, kind: SuiteKind) -> Output:
    """The example of a suite in a new folder, and what to do next."""
    files, named = new_suite(folder, kind=kind), shlex.quote(str(folder))
    lines = [
        f"{folder}: {', '.join(file.name for file in files)}",
        f"Edit:  {next(file for file in files if file.suffix != '.md')}",
        f"Check: consilience suite check {named}",
        f"Ask:   consilience probe --suite {named}",
    ]
    facts = {"folder": str(folder), "files": [str(file) for file in files]}
    return Output(shown=lines, facts=facts)


def fetched_suite(name: str, data_dir: Path | None, watch: Watch) -> Output:
    """The folder of a suite that was downloaded."""
    data = suites.data_dir(data_dir)
    with watch.steps(f"fetching {name}", None, "files") as advance:
        progress = cast(Callable[[int, int], None], advance)  # which learns the total
        folder, fetched = fetch(name, data, progress)
    facts = {"suite": name, "folder": str(folder), "fetched": fetched}
    return Output(shown=[f"{folder}: complete, {fetched} files fetched"], facts=facts)


SHOWN = 5  # groups of one check
COLUMNS: Columns = {
    "check": Column("check"), "group": Column("group"), "example": Column("example"),
    "count": Column("number", "count"),
}  # fmt: skip


def checked_suite(suite: str, columns: Sequence[str] | None) -> Output:
    """Every error in the files of a suite; without any, what the checks find, and its sizes."""
    names = columns_of(columns)
    problems = [str(fault) for fault in suites.check_suite(suite, columns=names)]
    facts: dict[str, Any] = {"suite": suite, "problems": problems}
    if problems:
        total = f"{counted(len(problems), 'problem')} in '{suite}'"
        tables = {"notes": pl.DataFrame(schema=ISSUES)}
        return Output(tables, facts=facts, faults=[*problems, total], status=2)
    if is_task(suite):
        labels = ", ".join(load_task(suite).labels)
        size = f"a task of sentence pairs with the labels {labels}"
        return Output(shown=[f"{suite}: good; {size}"], facts=facts)
    chosen = suites.load_any(suite, columns=names)
    statistics, tables_of_sizes = statistics_of(chosen)
    found, shown = audit(chosen), list[Table | str](tables_of_sizes)
    if found.height:
        first = found.filter(pl.int_range(pl.len()).over("check") < SHOWN)
        notes = [
            f"{name}: {CHECKS[name].about}. {CHECKS[name].todo}"
            for name in first["check"].unique(maintain_order=True)
        ]
        notes += [f"{found.height - len(first)} more: --format csv"] * (found.height > len(first))
        shown.insert(0, frame_table(first, f"{suite}: notes", COLUMNS, notes))
    sizes: list[tuple[int, *tuple[str, ...]]]
    if isinstance(statistics, SuiteStatistics):
        of = statistics
        sizes = [(of.relations, "relation"), (of.patterns, "pattern"), (of.facts, "fact")]
    else:
        is_open = sum(one.questions for one in statistics.by_group if not one.max_options)
        with_options = statistics.questions - is_open
        sizes = [(statistics.groups, "group")]
        sizes += [(with_options, "question with options", "questions with options")]
        sizes += [(is_open, "open question"), (statistics.phrasings, "phrasing")]
        sizes += [(statistics.expectations, "expectation")]
    size = ", ".join(counted(*one) for one in sizes if one[0])
    verdict = f"no problems, {counted(found.height, 'note')}" if found.height else "good"
    shown.append(f"{suite}: {verdict}; {size}")
    facts |= asdict(statistics)
    return Output({"notes": found}, shown, cautions=chosen.notes, facts=facts)


def statistics_of(
    suite: Suite | Questions,
) -> tuple[SuiteStatistics | QuestionStatistics, Sequence[Table]]:
    """What a suite holds, and its tables."""
    if isinstance(suite, Questions):
        counts = question_statistics(suite)
        return counts, [question_table(counts, suite.name)]
    statistics = suite_statistics(suite)
    return statistics, statistics_tables(statistics, suite.name)


def list_suites() -> dict[str, str]:
    """The suites that have a name, and what they are."""
    return dict(SUITE_NAMES)


def fetch_suite(name: str = "pararel", data: str | Path | None = None) -> Path:
    """Fetch a suite from its authors and check every file; the folder of the suite."""
    return fetch(name, suites.data_dir(None if data is None else Path(data)))[0]


def suite_stats(suite: str | Path | Suite | Questions) -> SuiteStatistics | QuestionStatistics:
    """Count what a suite holds: relations, patterns, facts and candidates; or questions."""
    return statistics_of(suites.load_any(suite))[0]


def suite_cautions(suite: str | Path | Suite | Questions) -> pl.DataFrame:
    """What is no error but decides what a suite's numbers mean: a row for each check and group."""
    return audit(suites.load_any(suite))
