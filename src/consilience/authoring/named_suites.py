"""What the commands on suites find and print: names, sizes, errors."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from consilience import suites
from consilience.authoring.audit import cautions
from consilience.authoring.importing import new_suite
from consilience.authoring.sharing import sharing_problems
from consilience.core.errors import ConsilienceError, shortened
from consilience.core.process import Watch
from consilience.core.text import counted
from consilience.report.export import Lines
from consilience.report.metric_tables import question_table, statistics_tables
from consilience.suites import question_suites
from consilience.suites.facts import SuiteStatistics, suite_statistics
from consilience.suites.layouts import fetch, layout_of
from consilience.suites.pairs import is_task, load_task
from consilience.suites.proposals import signoff_notes
from consilience.suites.question_suites import (
    SUITE_NAMES,
    QuestionStatistics,
    columns_of,
    is_questions,
    load_questions,
    question_statistics,
)
from consilience.suites.questions import Questions
from consilience.types import Suite


def listed_suites(data_dir: Path | None) -> Lines:
    """The names of suites, and their folders."""
    data = suites.data_dir(data_dir)
    rows = []
    for name, about in SUITE_NAMES.items():
        try:
            is_made_of_mini = name in question_suites.QUESTION_SUITES
            folder: str | None = str(suites.suite_folder("mini" if is_made_of_mini else name, data))
        except ConsilienceError:
            folder = None
        rows.append({"suite": name, "about": about, "folder": folder})
    width = max(map(len, SUITE_NAMES))
    lines = [
        f"{row['suite']:{width}} {row['about']}\n{'':{width}} {row['folder'] or f'not in {data}'}"
        for row in rows
    ]
    return Lines({"suites": rows}, *lines)


def made_suite(folder: Path, *, facts: bool) -> Lines:
    """The example of a suite in a new folder, and what to do next."""
    files, named = new_suite(folder, facts=facts), shlex.quote(str(folder))
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
        """Every error, and how many there are."""
        total = f"{counted(len(self.problems), 'problem')} in '{self.suite}'"
        return [*self.problems, total] if self.problems else []

    def exit_status(self) -> int:
        """2 if there are errors."""
        return 2 if self.problems else 0


def checked_suite(
    suite: str, data_dir: Path | None, columns: Sequence[str] | None, *, shared: bool
) -> CheckedSuite:
    """Every error in the files of a suite; ``shared``: also what a shared suite needs."""
    names = columns_of(columns)
    problems = [str(fault) for fault in suites.check_suite(suite, data_dir, names)]
    if shared and not problems:
        problems += map(str, sharing_problems(suite, data_dir))
    notes, size = ([], "") if problems else _notes_and_size(suite, data_dir, names)
    return CheckedSuite(suite, problems, notes, size)


def _notes_and_size(
    suite: str, data_dir: Path | None, columns: Mapping[str, str]
) -> tuple[list[str], str]:
    """Notes on a suite without errors; its size, or the labels of a task."""
    if is_questions(suite):
        questions = load_questions(suite, columns)
        counts = question_statistics(questions)
        sizes = [counted(counts.groups, "group"), _kinds(counts)]
        sizes.append(counted(counts.phrasings, "phrasing"))
        sizes += [counted(counts.expectations, "expectation")] * (counts.expectations > 0)
        return [*questions.notes, *cautions(questions)], ", ".join(sizes)
    if is_task(suite):
        labels = ", ".join(load_task(suite).labels)
        return [], f"a task of sentence pairs with the labels {labels}"
    chosen = suites.load_suite(suite, data_dir)
    sizes_of = suite_statistics(chosen)
    parts = {
        "relation": sizes_of.relations,
        "pattern": sizes_of.patterns,
        "fact": sizes_of.facts,
    }
    _, root = layout_of(suites.suite_folder(suite, suites.data_dir(data_dir)))
    notes = [*chosen.notes, *cautions(chosen), *signoff_notes(root, chosen)]
    return notes, ", ".join(counted(number, name) for name, number in parts.items())


def _kinds(counts: QuestionStatistics) -> str:
    """How many questions have options, and how many are open."""
    questions = counts.questions
    is_open = sum(group.questions for group in counts.by_group if not group.max_options)
    if not is_open:
        return f"{counted(questions, 'question')} with options"
    if is_open == questions:
        return counted(questions, "open question")
    return f"{questions:,} questions ({questions - is_open:,} with options, {is_open:,} open)"


def counted_suite(
    suite: str, data_dir: Path | None, columns: Sequence[str] | None, *, as_shipped: bool
) -> Lines:
    """The sizes of a suite."""
    if is_questions(suite):
        questions = load_questions(suite, columns_of(columns))
        counts = question_statistics(questions)
        document = {"suite": questions.name, **asdict(counts)}
        return Lines(document, question_table(counts, questions.name))
    chosen = suites.load_suite(suite, data_dir, as_shipped=as_shipped)
    statistics = suite_statistics(chosen)
    tables = statistics_tables(statistics, chosen.name)
    return Lines({"suite": chosen.name, **asdict(statistics)}, *tables, notes=chosen.notes)


def loaded_suite(suite: str | Path | Suite | Questions) -> Suite | Questions:
    """The suite of a name, a folder or a file; a value stays."""
    if isinstance(suite, Suite | Questions):
        return suite
    of_questions = is_questions(str(suite))
    return load_questions(str(suite)) if of_questions else suites.load_suite(suite)


def statistics_of(suite: Suite | Questions) -> SuiteStatistics | QuestionStatistics:
    """What a suite holds."""
    if isinstance(suite, Questions):
        return question_statistics(suite)
    return suite_statistics(suite)
