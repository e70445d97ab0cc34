"""Files become suites: ``load_suite`` knows three layouts and two names.

This room knows files and values, no model and no metric.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from consilience.core.errors import ConsilienceError, did_you_mean, shortened
from consilience.core.provenance import plugin
from consilience.files.write import path_of
from consilience.suites import question_suites
from consilience.suites.layouts import check_folder, load_folder
from consilience.suites.pairs import TASKS, is_task, load_task
from consilience.suites.question_suites import (
    BUNDLED,
    SUITE_NAMES,
    check_questions,
    is_questions,
    is_table_of_facts,
)
from consilience.suites.questions import SUFFIXES
from consilience.suites.rows import MAKE_A_SUITE
from consilience.types import Suite


def data_dir(folder: Path | None = None) -> Path:
    """Where fetched data lies: what was given, ``CONSILIENCE_DATA``, or the user's cache."""
    if folder is not None:
        return folder
    if os.environ.get("CONSILIENCE_DATA"):
        return Path(os.environ["CONSILIENCE_DATA"])
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "consilience"


def suite_folder(spec: str, data: Path) -> Path:
    """The folder of a suite that is named or given as a path."""
    if spec in BUNDLED:
        return BUNDLED[spec]
    if is_table_of_facts(spec):
        raise ConsilienceError(
            f"'{spec}' is a table of facts",
            expected="a suite of facts: mini, pararel, or a folder",
            todo=MAKE_A_SUITE,
        )
    if spec in question_suites.QUESTION_SUITES or (Path(spec).exists() and is_questions(spec)):
        raise ConsilienceError(
            f"'{spec}' is a suite of questions",
            expected="a suite of facts: mini, pararel, or a folder",
            todo=f"Ask them with `consilience probe --suite {spec}`, or read them in Python with "
            "load_questions.",
        )
    if spec in SUITE_NAMES:
        folder = data / spec
        if not folder.is_dir():
            raise ConsilienceError(
                f"the suite '{spec}' is not in {data}"
                + ("" if data.is_dir() else ": no such folder"),
                expected=f"{folder}; name the folder that contains {spec}",
                todo=f"Get it with `consilience suite fetch {spec}`, or name the folder with "
                "--data-dir.",
            )
        return folder
    folder = Path(spec)
    if not folder.exists() and (plugged := plugin("consilience.suites", spec)):
        return Path(plugged())
    if is_task(spec) and not folder.is_dir():
        raise ConsilienceError(
            f"'{spec}' is a task of sentence pairs",
            expected="a suite of facts: mini, pararel, or a folder",
            todo=f"Ask its pairs with `consilience probe --suite {spec}`; train on them with "
            f"`consilience finetune --task {spec}`.",
        )
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


def _no_suite(folder: Path, spec: str) -> ConsilienceError:
    """The error for a suite that is neither a name nor a folder, with similar names."""
    parent = folder.parent
    paths = sorted(parent.iterdir()) if parent.is_dir() else []
    nearby = [path.name for path in paths if path.is_dir()]
    if os.sep not in spec:
        files = [path.name for path in paths if is_questions(str(path))]
        known = [*SUITE_NAMES, *TASKS, *nearby, *files]
        similar = get_close_matches(shortened(spec, 200), known, n=1)
        return ConsilienceError(
            f"no suite '{spec}' and no such file or folder",
            expected="the name of a suite, a file of questions, or a folder",
            todo=did_you_mean(spec, similar or [*SUITE_NAMES, *TASKS]),
            option="suite",
        )
    shown = [name for name in nearby if not name.startswith(".")]
    todo = did_you_mean(folder.name, shown).replace("Known:", f"Folders in {parent}:")
    return ConsilienceError(
        "no such folder",
        expected="the name of a suite or a folder",
        where=spec,
        todo=todo if shown else "Check the path.",
        option="suite",
    )


def load_suite(
    spec: str | Path, data: str | Path | None = None, *, as_shipped: bool = False
) -> Suite:
    """The suite of that name or folder; the first thing wrong with it is raised.

    ``as_shipped`` keeps the tuples of the ParaRel release that the paper leaves out.
    """
    folder = suite_folder(_name_of(spec), data_dir(_path_or_none(data)))
    return load_folder(folder, as_shipped=as_shipped)


def check_suite(
    spec: str | Path,
    data: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[ConsilienceError]:
    """Everything that is wrong with a suite, in the order of its files; of a task, the first.

    ``columns``: of questions, the names of the file's columns (``questions.COLUMNS``).
    """
    if is_questions(_name_of(spec)):
        return check_questions(_name_of(spec), columns)
    if is_task(_name_of(spec)):
        try:
            load_task(_name_of(spec))
        except ConsilienceError as error:
            return [error]
        return []
    return check_folder(suite_folder(_name_of(spec), data_dir(_path_or_none(data))))


def _name_of(spec: object) -> str:
    """The name or folder of a suite as text; anything else raises."""
    if isinstance(spec, str | Path):
        return str(spec)
    raise ConsilienceError(
        f"a suite of type {type(spec).__name__}", expected="the name of a suite or a folder"
    )


def _path_or_none(folder: str | Path | None) -> Path | None:
    return None if folder is None else path_of(folder, "the folder of data")
