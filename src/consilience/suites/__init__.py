"""Files become suites: ``load_suite`` knows three layouts and two names.

This room knows files and values, no model and no metric.
"""

from __future__ import annotations

import os
from pathlib import Path

from consilience.errors import ConsilienceError, did_you_mean
from consilience.suites.fetch import altered
from consilience.suites.folder import is_folder_suite, load_folder, read_folder
from consilience.suites.lama import lama_root, load_lama, read_lama
from consilience.suites.pararel import load_pararel, pararel_root, read_pararel
from consilience.types import Suite

MINI = Path(__file__).parent / "mini"
NAMES = {
    "mini": "bundled with consilience: 14 relations, Apache-2.0",
    "pararel": "ParaRel, Elazar et al. 2021; `consilience data fetch pararel` gets it",
}


def data_dir(given: Path | None = None) -> Path:
    """Where fetched data lies: what was given, ``CONSILIENCE_DATA``, or the user's cache."""
    if given is not None:
        return given
    if os.environ.get("CONSILIENCE_DATA"):
        return Path(os.environ["CONSILIENCE_DATA"])
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "consilience"


def suite_folder(spec: str, data: Path) -> Path:
    """The folder of a suite that is named or given as a path."""
    if spec == "mini":
        return MINI
    if spec in NAMES:
        folder = data / spec
        if not folder.is_dir():
            raise ConsilienceError(
                f"the suite '{spec}' is not in {data}",
                todo=f"Get it with `consilience data fetch {spec}`, or say where it lies with "
                "--data-dir.",
            )
        return folder
    folder = Path(spec)
    if not folder.exists():
        raise ConsilienceError(
            f"no suite '{spec}'",
            expected="the name of a suite or a folder",
            todo=did_you_mean(spec, list(NAMES)),
        )
    if not folder.is_dir():
        raise ConsilienceError("not a folder", expected="a suite folder", where=spec)
    return folder


def load_suite(spec: str, data: Path | None = None, *, as_shipped: bool = False) -> Suite:
    """The suite of that name or folder; the first thing wrong with it is raised.

    ``as_shipped`` keeps the tuples of the ParaRel release that the paper leaves out.
    """
    folder = suite_folder(spec, data_dir(data))
    if root := pararel_root(folder):
        return load_pararel(root, as_shipped=as_shipped)
    if root := lama_root(folder):
        return load_lama(root)
    if is_folder_suite(folder):
        return load_folder(folder)
    raise _unknown_layout(folder)


def check_suite(spec: str, data: Path | None = None) -> list[ConsilienceError]:
    """Everything that is wrong with a suite, in the order of its files."""
    folder = suite_folder(spec, data_dir(data))
    problems: list[ConsilienceError] = []
    try:
        if root := pararel_root(folder):
            problems += [
                ConsilienceError("missing, or not what was released", where=str(root / path))
                for path in altered("pararel", root)
            ]
            read_pararel(root, problems)
        elif root := lama_root(folder):
            read_lama(root, problems)
        elif is_folder_suite(folder):
            read_folder(folder, problems)
        else:
            raise _unknown_layout(folder)
    except ConsilienceError as error:
        problems.append(error)
    return problems


def _unknown_layout(folder: Path) -> ConsilienceError:
    return ConsilienceError(
        "no suite in this folder",
        expected="ParaRel's layout, LAMA's T-REx layout, or ours",
        where=str(folder),
        todo="See docs/suites.md for the layouts.",
    )
