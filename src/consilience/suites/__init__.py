"""Files become suites. This package knows files and values, no model and no metric."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.provenance import plugin
from consilience.files.read import SUFFIXES, Problems, read_rows
from consilience.files.rows import Column, TableError, find_table, line, raise_all, read_table
from consilience.suites import question_suites
from consilience.suites.facts import load_folder, read_folder
from consilience.suites.pairs import TASKS, is_task, load_task
from consilience.suites.question_suites import (
    BUNDLED,
    SUITE_NAMES,
    is_questions,
    known_suite,
    load_questions,
    refuse_mixed,
)
from consilience.suites.question_suites import data_dir as data_dir
from consilience.suites.questions import Questions
from consilience.types import FACT_COLUMNS, RelationBuilder, Suite


def suite_folder(spec: str, data: Path) -> Path:
    """The folder of a suite of facts that is named or given as a path."""
    folder = Path(spec)
    if spec in BUNDLED:
        return BUNDLED[spec]
    if (named := known_suite(spec)) and named.is_facts:
        return data / named.name
    is_named = spec in question_suites.QUESTION_SUITES or named
    for kind, is_it in (
        ("suite of questions", is_named or (folder.exists() and is_questions(spec))),
        ("task of sentence pairs", is_task(spec) and not folder.is_dir()),
    ):
        if is_it:
            raise ConsilienceError(
                f"'{spec}' is a {kind}",
                expected="a suite of facts: mini, pararel, or a folder",
                todo=f"Ask it with `consilience probe --suite {spec}`, or read questions in Python "
                "with load_questions.",
            )
    if spec in SUITE_NAMES and not (data / spec).is_dir():
        raise ConsilienceError(
            f"the suite '{spec}' is not in {data}",
            expected=f"{data / spec}; name the folder that contains {spec}",
            todo=f"Get it with `consilience suite fetch {spec}`, or name the folder in "
            "CONSILIENCE_DATA.",
        )
    if spec in SUITE_NAMES:
        return data / spec
    if not folder.exists() and (plugged := plugin("consilience.suites", spec)):
        return Path(plugged())
    if not folder.exists():
        paths = sorted(folder.parent.glob("*"))
        nearby = [path.name for path in paths if path.is_dir() or path.suffix in SUFFIXES]
        known = [*SUITE_NAMES, *TASKS]
        raise ConsilienceError(
            f"no suite '{spec}' and no such file or folder",
            expected="the name of a suite, a file of questions, or a folder",
            todo=did_you_mean(folder.name, [*known, *nearby], did_you_mean(folder.name, known)),
        )
    if not folder.is_dir():
        expected = f"a folder, or a file of questions in {', '.join(SUFFIXES)}"
        raise ConsilienceError("not a folder", expected=expected, where=spec)
    return folder


def load_suite(spec: str | Path, data: str | Path | None = None) -> Suite:
    """The suite of facts of that name or folder; what is wrong raises in one error."""
    name, data = _name_of(spec), data_dir(data)
    folder = suite_folder(name, data)
    return named.facts(data) if (named := known_suite(name)) else load_folder(folder)


def load_facts(spec: str) -> Suite:
    """A suite, also in a folder without patterns; or the facts of a table as a suite without any.

    The table, which may be that of a folder, has the columns ``relation``, ``subject`` and
    ``object``. The relations are then N-1, their ids are their labels, and the language is empty.
    """
    path = Path(spec)
    problems: Problems = []
    if path.is_dir() and not find_table(path, "patterns"):
        if find_table(path, "relations"):
            suite = read_folder(path, problems, needs_patterns=False)
            raise_all(problems)
            return suite
        path = find_table(path, "facts") or path
    if not (path.is_file() and path.name.endswith(SUFFIXES)):
        return load_suite(spec)
    builders: dict[str, RelationBuilder] = {}
    columns = Column("relation", line), *FACT_COLUMNS
    for row in read_table(read_rows(path, problems), columns, problems, str(path)):
        id_ = row["relation"]
        builders.setdefault(id_, RelationBuilder(id_, id_, "N-1")).add_fact(row)
    if not builders and not problems:
        raise ConsilienceError("no fact", where=str(path), todo="Add one line for each fact.")
    relations = [builder.relation(problems, needs_patterns=False) for builder in builders.values()]
    raise_all(problems)
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
        return load_questions(spec, columns, data)
    refuse_columns(spec, columns)
    return load_suite(spec, data)


def refuse_columns(spec: object, columns: Mapping[str, str] | None) -> None:
    """Raise for names of columns of a suite that has no questions."""
    if columns:
        found = f"names of columns with '{spec}', which has no questions"
        raise ConsilienceError(found, todo="Leave --columns out.")


def check_suite(
    spec: str | Path, data: str | Path | None = None, columns: Mapping[str, str] | None = None
) -> list[ConsilienceError]:
    """What is wrong with a suite; ``columns``: of questions, what they are called."""
    name, data = _name_of(spec), data_dir(data)
    is_other = is_questions(name) or is_task(name)
    folder = None if is_other else suite_folder(name, data)
    try:
        refuse_columns(name, {} if is_questions(name) else columns)
        if folder is not None and known_suite(name):
            load_suite(name, data)
        elif folder is not None:
            load_folder(folder, check_release=True)
        elif is_task(name):
            load_task(name)
        else:
            refuse_mixed(load_questions(name, columns, data))
    except TableError as error:
        return error.problems
    except ConsilienceError as error:
        return [error]
    return []


def _name_of(spec: object) -> str:
    if isinstance(spec, str | Path):
        return str(spec)
    raise ConsilienceError(
        f"a suite of type {type(spec).__name__}", expected="the name of a suite or a folder"
    )
