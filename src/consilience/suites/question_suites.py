"""Suites of questions: where their files are, and the groups of items that they become."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from consilience.design import Design
from consilience.errors import ConsilienceError, did_you_mean, how_to_install
from consilience.expectations import Expectation, linked_questions
from consilience.factors import OF_OPTIONS, FactorialDesign
from consilience.files import path_of
from consilience.questions import Question
from consilience.read import read_rows, read_text
from consilience.suites.expectation_files import FILE_STEM, expectation_file, with_expectations
from consilience.suites.mini_questions import NAMES as QUESTION_SUITES
from consilience.suites.mini_questions import mini_questions
from consilience.suites.question_collection import Questions
from consilience.suites.question_files import SUFFIXES, read_question_file
from consilience.suites.question_rows import questions_of_rows
from consilience.suites.rows import Problems, find_table, holds_facts, raise_first
from consilience.suites.suite_names import NAMES
from consilience.suites.tasks import TASKS
from consilience.types import Candidates, Fact, Relation, Suite

HUB = "hub:"
"""``hub:DATASET:SPLIT`` or ``hub:DATASET@CONFIG:SPLIT`` names a split of a data set on the Hub."""

FILES = "questions"
"""The name, without its ending, of the file of a folder, or of a folder with several files."""


@dataclass(frozen=True, slots=True)
class GroupOfQuestions:
    """What is counted of a group of questions."""

    id: str
    facts: tuple[Fact, ...]
    """The questions with their golds."""
    golds: tuple[int, ...]
    """The position of the gold of each question among its options; empty without options."""
    options: int
    """The greatest number of options of a question; 0 for open questions."""
    writes_freely: bool

    def design(self, whole: FactorialDesign) -> FactorialDesign:
        """The design of the group: open questions do not vary in options."""
        return whole if self.options else whole.without(OF_OPTIONS)


def is_questions(spec: str) -> bool:
    """Whether a suite is one of questions: a data set of the Hub, a file or a folder of them.

    A folder with patterns is one of facts, also where it says how they are asked as questions. The
    name of a suite or of a task is never that of a folder.
    """
    if spec.startswith(HUB) or spec in QUESTION_SUITES:
        return True
    if spec in NAMES or spec in TASKS:
        return False
    path = Path(spec)
    if path.suffix == ".toml":
        return path.is_file() and "questions" in read_text(path)
    is_folder = path.is_dir() and find_table(path, "patterns") is None
    return path.suffix in SUFFIXES or (is_folder and bool(_files_in(path)))


def is_suite(spec: str) -> bool:
    """Whether a text is the name of a suite or a task, or a file or a folder of questions."""
    return spec in NAMES or spec in TASKS or is_questions(spec)


def is_table_of_facts(spec: str) -> bool:
    """Whether a suite is a file whose first row is a fact and no question."""
    path = Path(spec)
    if path.suffix not in (".csv", ".tsv", ".jsonl") or not path.is_file():
        return False
    first = next(read_rows(path, faults=[]), None)
    return first is not None and holds_facts(first[1])


def load_questions(
    spec: str | PathLike[str], columns: Mapping[str, str] | None = None
) -> Questions:
    """The questions of a file, of a folder, of the Hub, or of a name; the first problem raises.

    ``columns``: the file's names of the columns that are called otherwise there
    (``question_columns.COLUMNS``).
    """
    problems: Problems = []
    questions = _read(str(path_of(spec, "a file of questions")), columns or {}, problems)
    raise_first(problems)
    path = Path(spec)
    if str(spec) in QUESTION_SUITES or not path.exists():
        return questions
    return replace(questions, source={**(columns or {}), "file": str(path.resolve())})


def check_questions(spec: str, columns: Mapping[str, str] | None = None) -> Problems:
    """Everything that is wrong with the files of a suite of questions, in their order."""
    problems: Problems = []
    try:
        groups_of_questions(_read(spec, columns or {}, problems))
    except ConsilienceError as error:
        problems.append(error)
    return problems


def _read(spec: str, columns: Mapping[str, str], problems: Problems) -> Questions:
    if spec in QUESTION_SUITES:
        return mini_questions(spec)
    if spec.startswith(HUB):
        name = spec.removeprefix(HUB)
        dataset = name.partition(":")[0].rstrip("/").split("/")[-1].replace("@", "-")
        rows = _hub_rows(name)
        return Questions(dataset, *questions_of_rows(rows, dataset, columns, problems, source=spec))
    path = Path(spec)
    if not path.is_dir():
        if not path.is_file():
            raise ConsilienceError("no such file", where=spec, todo=_similar_file(path))
        return with_expectations(read_question_file(path, columns, problems), path, problems)
    files = _files_of(path)
    parts = [read_question_file(file, columns, problems) for file in files]
    notes = (*(note for part in parts for note in part.notes), *_not_read(path, files))
    if len(parts) == 1:
        named = replace(_named(parts[0], path), notes=notes)
        return with_expectations(named, path, problems)
    items: dict[str, Question] = {}
    for question in (question for part in parts for question in part.items):
        if question.item in items:
            problems.append(
                ConsilienceError(
                    f"duplicate item '{question.item}' in two files",
                    where=str(path),
                    todo="Give each question its own item.",
                )
            )
        items[question.item] = question
    questions = Questions(path.resolve().name, tuple(items.values()), notes)
    return with_expectations(questions, path, problems)


def _similar_file(path: Path) -> str:
    """What to do about a file that does not exist: a similar name beside it."""
    folder = path.parent
    names = [other.name for other in folder.iterdir()] if folder.is_dir() else []
    hint = did_you_mean(path.name, names)
    return hint if hint.startswith("Did") else "Check the path."


def _named(questions: Questions, folder: Path) -> Questions:
    """Questions with the name of their folder in place of that of their file."""
    name = folder.resolve().name
    items = tuple(
        replace(item, group=name) if item.group == FILES else item for item in questions.items
    )
    return Questions(name, items, questions.notes)


def _files_in(folder: Path) -> list[Path]:
    """The files with questions in a folder: ``questions.csv`` and the like, or ``questions/*``."""
    named = [path for suffix in SUFFIXES if (path := folder / f"{FILES}{suffix}").is_file()]
    return named or sorted(
        path for path in (folder / FILES).glob("*") if path.suffix in SUFFIXES and path.is_file()
    )


def _files_of(folder: Path) -> list[Path]:
    """The files of a folder of questions; two that are both called questions raise."""
    files = _files_in(folder)
    if len(files) > 1 and files[0].parent == folder:
        raise ConsilienceError(
            f"{files[0].name} and {files[1].name}",
            expected="one file of questions, or several in a folder 'questions'",
            where=str(folder),
            todo="Remove one of them.",
        )
    return files


def _not_read(folder: Path, files: Sequence[Path]) -> list[str]:
    """A note on the tables of a folder that are neither questions nor expectations."""
    read = {*files, expectation_file(folder)}
    others = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in SUFFIXES and path.is_file() and path not in read
    ]
    if not others:
        return []
    known = f"expectations are read from {FILE_STEM}{others[0].suffix}"
    return [f"{folder}: not read: {', '.join(path.name for path in others)}; {known}"]


def _hub_rows(name: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    dataset, _, split = name.partition(":")
    path, _, config = dataset.partition("@")
    if not split:
        raise ConsilienceError(
            f"{HUB}{name} without a split",
            expected=f"{HUB}DATASET:SPLIT",
            todo=f"Name one: {HUB}{name or 'DATASET'}:test.",
        )
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ConsilienceError("datasets is not installed", todo=how_to_install("hub")) from error
    try:
        rows = load_dataset(path, config or None, split=split)
    except Exception as error:  # the network, a wrong name, a script: nearly anything
        raise ConsilienceError(
            f"cannot be loaded: {(str(error) or type(error).__name__).splitlines()[0].rstrip('.')}",
            where=f"{HUB}{name}",
            todo="Check the network, the name, the configuration (@CONFIG) and the split.",
        ) from error
    for number, row in enumerate(rows, start=1):
        yield f"{HUB}{name}, row {number}", dict(row)


def select_questions(
    questions: Questions, groups: Sequence[str] | None, limit: int | None, seed: int
) -> Questions:
    """The questions of some groups, at most ``limit`` of each, sampled by ``seed``.

    Questions that expectations link are sampled together, in all groups.
    """
    by_group = questions.groups
    linked = linked_questions(questions.expectations)

    def drawn(question: Question) -> tuple[float, str]:
        component = linked.get(question.item, question.item)
        return random.Random(f"{seed} {component}").random(), component

    for name in groups or ():
        if name not in by_group:
            raise ConsilienceError(
                f"the suite '{questions.name}' has no group '{name}'",
                todo=did_you_mean(name, list(by_group)),
            )
    chosen: list[Question] = []
    for name, items in by_group.items():
        if groups and name not in groups:
            continue
        sampled = items if limit is None else sorted(items, key=drawn)[:limit]
        names = {question.item for question in sampled}
        chosen += (question for question in items if question.item in names)
    return replace(questions, items=tuple(chosen))


def groups_of_questions(
    questions: Questions, *, writes_freely: bool = False
) -> list[GroupOfQuestions]:
    """What is counted of each group.

    Open questions are always written freely. A group with both kinds of questions raises.
    """
    groups = []
    for name, items in questions.groups.items():
        sizes = [len(item.options) for item in items]
        if 0 in sizes and any(sizes):
            open_one, other = items[sizes.index(0)], items[sizes.index(max(sizes))]
            raise ConsilienceError(
                f"the group '{name}' has questions with options and without",
                expected=f"options for '{open_one.item}' as for '{other.item}', or for neither",
                todo="Put open questions into a group of their own.",
            )
        facts = tuple(Fact(item.item, item.item, item.gold.text) for item in items)
        golds = tuple(item.gold_position for item in items if item.options)
        groups.append(
            GroupOfQuestions(name, facts, golds, max(sizes), writes_freely or not max(sizes))
        )
    return groups


def suite_of_questions(
    name: str,
    groups: Sequence[GroupOfQuestions],
    design: FactorialDesign,
    expectations: Sequence[Expectation] = (),
) -> Suite:
    """The suite of groups of questions in the variants of a design.

    With options, an answer is the position of an option in the file, whatever order was shown, and
    the candidates are these positions with the number of golds at each.
    """
    relations = tuple(_relation(group, design) for group in groups)
    return Suite(name, relations, expectations=tuple(expectations))


def _relation(group: GroupOfQuestions, design: FactorialDesign) -> Relation:
    if group.options:
        counts = Counter(group.golds)
        words = tuple(map(str, range(group.options)))
        candidates = Candidates(words, tuple(counts[at] for at in range(group.options)))
    else:
        candidates = Candidates.of(group.facts)
    return Relation(
        id=group.id,
        label=group.id,
        cardinality="N-1",
        patterns=(),
        facts=group.facts,
        edges={},
        candidates=candidates,
        given_design=Design.of_cells(
            group.design(design),
            group.options,
            writes_freely=group.writes_freely and group.options > 0,
        ),
    )
