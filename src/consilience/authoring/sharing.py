"""A suite by its name: listed, made, fetched, checked, counted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast, get_args

from consilience import suites
from consilience.authoring.audit import cautions
from consilience.core.errors import Watch, shortened, unknown_name
from consilience.core.text import counted
from consilience.files.write import make_folder, path_of, refuse_occupied, write_whole
from consilience.options.suites import SuiteKind
from consilience.report.export import Lines
from consilience.report.metric_tables import question_table, statistics_tables
from consilience.report.table import Table
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


def listed_suites(data_dir: Path | None) -> Lines:
    """The names of suites, and their folders."""
    data = suites.data_dir(data_dir)
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
    return Lines({"suites": rows}, *lines)


def made_suite(folder: Path, kind: SuiteKind) -> Lines:
    """The example of a suite in a new folder, and what to do next."""
    files, named = new_suite(folder, kind=kind), shlex.quote(str(folder))
    return Lines(
        {"folder": str(folder), "files": [str(file) for file in files]},
        f"{folder}: {', '.join(file.name for file in files)}",
        f"Edit:  {next(file for file in files if file.suffix != '.md')}",
        f"Check: consilience suite check {named}",
        f"Ask:   consilience probe --suite {named}",
    )


def fetched_suite(name: str, data_dir: Path | None, source: str | None, watch: Watch) -> Lines:
    """The folder of a suite that was downloaded."""
    data = suites.data_dir(data_dir)
    with watch.steps(f"fetching {name}", None, "files") as advance:
        progress = cast(Callable[[int, int], None], advance)  # which learns the total
        folder, fetched = fetch(name, data, base=source, progress=progress)
    document = {"suite": name, "folder": str(folder), "fetched": fetched}
    return Lines(document, f"{folder}: complete, {fetched} files fetched")


class CheckedSuite(Lines):
    """The errors in the files of a suite, or its notes and its size."""

    def __init__(
        self, suite: str, problems: Sequence[str], notes: Sequence[str], size: str
    ) -> None:
        verdict = f"no problems, {counted(len(notes), 'note')}" if notes else "good"
        lines = [f"note: {shortened(note)}" for note in notes] + [f"{suite}: {verdict}; {size}"]
        document = {"suite": suite, "problems": problems, "warnings": notes}
        super().__init__(document, *([] if problems else lines))
        self.suite, self.problems = suite, problems

    def faults(self) -> Sequence[str]:
        total = f"{counted(len(self.problems), 'problem')} in '{self.suite}'"
        return [*self.problems, total] if self.problems else []

    def exit_status(self) -> int:
        """2 if there are errors."""
        return 2 if self.problems else 0


def checked_suite(suite: str, data_dir: Path | None, columns: Sequence[str] | None) -> CheckedSuite:
    """Every error in the files of a suite."""
    names = columns_of(columns)
    problems = [str(fault) for fault in suites.check_suite(suite, data_dir, names)]
    notes, size = ([], "") if problems else _notes_and_size(suite, data_dir, names)
    return CheckedSuite(suite, problems, notes, size)


def _notes_and_size(
    suite: str, data_dir: Path | None, columns: Mapping[str, str]
) -> tuple[list[str], str]:
    """Notes on a suite without errors; its size, or the labels of a task."""
    if is_task(suite):
        labels = ", ".join(load_task(suite).labels)
        return [], f"a task of sentence pairs with the labels {labels}"
    chosen = suites.load_any(suite, data_dir, columns)
    notes = [*chosen.notes, *cautions(chosen)]
    sizes: list[tuple[int, *tuple[str, ...]]]
    if isinstance(chosen, Suite):
        facts = suite_statistics(chosen)
        sizes = [(facts.relations, "relation"), (facts.patterns, "pattern"), (facts.facts, "fact")]
    else:
        of = question_statistics(chosen)
        is_open = sum(group.questions for group in of.by_group if not group.max_options)
        with_options = of.questions - is_open, "question with options", "questions with options"
        sizes = [(of.groups, "group"), with_options, (is_open, "open question")]
        sizes += [(of.phrasings, "phrasing"), (of.expectations, "expectation")]
    return notes, ", ".join(counted(*size) for size in sizes if size[0])


def counted_suite(
    suite: str, data_dir: Path | None, columns: Sequence[str] | None, *, as_shipped: bool
) -> Lines:
    """The sizes of a suite."""
    chosen = suites.load_any(suite, data_dir, columns_of(columns), as_shipped=as_shipped)
    statistics, tables = statistics_of(chosen)
    return Lines({"suite": chosen.name, **asdict(statistics)}, *tables, notes=chosen.notes)


def statistics_of(
    suite: Suite | Questions,
) -> tuple[SuiteStatistics | QuestionStatistics, Sequence[Table]]:
    """What a suite holds, and its tables."""
    if isinstance(suite, Questions):
        counts = question_statistics(suite)
        return counts, [question_table(counts, suite.name)]
    statistics = suite_statistics(suite)
    return statistics, statistics_tables(statistics, suite.name)
