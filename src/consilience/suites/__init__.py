"""Files become suites. This package knows files and values, no model and no metric."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.provenance import plugin
from consilience.files.rows import Problems, find_table, raise_first, suite_rows
from consilience.files.write import path_of
from consilience.suites import question_suites
from consilience.suites.facts import read_folder
from consilience.suites.known import data_dir as data_dir
from consilience.suites.known import known_suite
from consilience.suites.layouts import check_folder, load_folder
from consilience.suites.pairs import TASKS, is_task, load_task
from consilience.suites.proposals import columns_in
from consilience.suites.question_suites import (
    BUNDLED,
    SUITE_NAMES,
    is_questions,
    load_questions,
    read_questions,
    refuse_mixed,
)
from consilience.suites.questions import MAKE_A_SUITE, SUFFIXES, Questions, holds_facts
from consilience.types import Candidates, Fact, Relation, Suite

ASK = "Ask it with `consilience probe --suite {}`, or read questions in Python with load_questions."


def suite_folder(spec: str, data: Path) -> Path:
    """The folder of a suite of facts that is named or given as a path."""
    folder = Path(spec)
    if spec in BUNDLED:
        return BUNDLED[spec]
    _refuse_other_kinds(spec, folder)
    if spec in SUITE_NAMES:
        folder = data / spec
        if not folder.is_dir():
            raise ConsilienceError(
                f"the suite '{spec}' is not in {data}"
                + ("" if data.is_dir() else ": no such folder"),
                expected=f"{folder}; name the folder that contains {spec}",
                todo=f"Get it with `consilience suite fetch {spec}`, or name the folder in "
                "CONSILIENCE_DATA.",
            )
        return folder
    if not folder.exists() and (plugged := plugin("consilience.suites", spec)):
        return Path(plugged())
    if not folder.exists():
        raise _no_suite(folder, spec)
    if not folder.is_dir():
        raise ConsilienceError(
            "not a folder",
            expected=f"a folder, or a file of questions in {', '.join(SUFFIXES)}",
            where=spec,
            todo="Save a table of questions as .csv (docs/own-questions.md).",
        )
    return folder


def _refuse_other_kinds(spec: str, folder: Path) -> None:
    is_named = spec in question_suites.QUESTION_SUITES or known_suite(spec)
    for kind, is_it, todo in (
        ("table of facts", holds_facts(columns_in(folder)), MAKE_A_SUITE),
        ("suite of questions", bool(is_named or (folder.exists() and is_questions(spec))), ASK),
        ("task of sentence pairs", is_task(spec) and not folder.is_dir(), ASK),
    ):
        if is_it:
            raise ConsilienceError(
                f"'{spec}' is a {kind}",
                expected="a suite of facts: mini, pararel, or a folder",
                todo=todo.format(spec),
            )


def _no_suite(folder: Path, spec: str) -> ConsilienceError:
    """The error for a suite that is neither a name nor a folder, with similar names."""
    paths = sorted(folder.parent.iterdir()) if folder.parent.is_dir() else []
    nearby = [path.name for path in paths if path.is_dir() or path.suffix in SUFFIXES]
    known = [*SUITE_NAMES, *TASKS]
    return ConsilienceError(
        f"no suite '{spec}' and no such file or folder",
        expected="the name of a suite, a file of questions, or a folder",
        todo=did_you_mean(folder.name, [*known, *nearby], did_you_mean(folder.name, known)),
        option="suite",
    )


def load_suite(spec: str | Path, data: str | Path | None = None) -> Suite:
    """The suite of facts of that name or folder (``load_folder``); the first thing wrong raises."""
    folder = suite_folder(_name_of(spec), data_dir(_path_or_none(data)))
    return load_folder(folder)


def load_facts(spec: str, data_dir: Path | None = None) -> Suite:
    """A suite; or the facts of a table, or of a folder without patterns, as a suite without any.

    The table (JSONL, TSV or CSV) has the columns ``relation``, ``subject`` and ``object``. The
    relations are then N-1, their ids are their labels, and the language is empty.
    """
    path = Path(spec)
    problems: Problems = []
    table = path if path.is_file() and path.suffix in (".jsonl", ".tsv", ".csv") else None
    if path.is_dir() and not find_table(path, "patterns"):
        if find_table(path, "relations"):
            suite = read_folder(path, problems, needs_patterns=False)
            raise_first(problems, " like it)")
            return suite
        table = find_table(path, "facts")
    if table is None:
        return load_suite(spec, data_dir)
    facts: dict[str, list[Fact]] = defaultdict(list)
    for row in suite_rows(table, problems):
        relation, subject, object_ = (row.text(name) for name in ("relation", "subject", "object"))
        if row.is_relation_id(relation) and subject and object_:
            of = facts[relation]
            of.append(Fact(f"{relation}-{len(of) + 1}", subject, object_))
    raise_first(problems, " like it)")
    if not facts:
        raise ConsilienceError("no fact", where=str(table), todo="Add one line for each fact.")
    relations = (
        Relation(id_, id_, "N-1", (), tuple(of), {}, Candidates.of(of)) for id_, of in facts.items()
    )
    return Suite(path.stem, tuple(relations), language="")


def load_any(
    spec: str | Path | Suite | Questions,
    data: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
) -> Suite | Questions:
    """The suite of that name, folder or file; a value stays. A task of sentence pairs raises."""
    if isinstance(spec, Suite | Questions):
        return spec
    if is_questions(_name_of(spec)):
        return load_questions(spec, columns, _path_or_none(data))
    return load_suite(spec, data)


def check_suite(
    spec: str | Path,
    data: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[ConsilienceError]:
    """Everything that is wrong with a suite; ``columns``: of questions, what they are called."""
    name, problems = _name_of(spec), Problems()
    is_other = is_questions(name) or is_task(name)
    folder = None if is_other else suite_folder(name, data_dir(_path_or_none(data)))
    try:
        if folder is not None:
            check_folder(folder, problems)
        elif is_task(name):
            load_task(name)
        else:
            refuse_mixed(read_questions(name, columns or {}, problems, _path_or_none(data)))
    except ConsilienceError as error:
        problems.append(error)
    return problems


def _name_of(spec: object) -> str:
    if isinstance(spec, str | Path):
        return str(spec)
    raise ConsilienceError(
        f"a suite of type {type(spec).__name__}", expected="the name of a suite or a folder"
    )


def _path_or_none(folder: str | Path | None) -> Path | None:
    return None if folder is None else path_of(folder, "the folder of data")
