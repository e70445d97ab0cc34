"""The folder layouts of suites, one row each, and what loads and checks a suite in any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.suites.fetch import altered
from consilience.suites.folder import folder_root, read_folder
from consilience.suites.proposals import check_provenance
from consilience.suites.rows import Problems, raise_first
from consilience.suites.selection import leave_out_objects
from consilience.suites.signoff import read_signoffs
from consilience.suites.trex import lama_root, pararel_root, read_lama, read_pararel
from consilience.types import Suite


@dataclass(frozen=True, slots=True)
class Layout:
    """A way in which the files of a suite are laid out in a folder."""

    name: str
    """What messages call it."""
    root: Callable[[Path], Path | None]
    """The folder with the files, at or below a given one; None where they are not there."""
    read: Callable[[Path, Problems], Suite]
    """Reads the suite below its root, and reports everything that is wrong with it."""
    release: str = ""
    """The release whose digests its files must have (``fetch.SOURCES``)."""


LAYOUTS = (
    Layout("ParaRel's layout", pararel_root, read_pararel, release="pararel"),
    Layout("LAMA's T-REx layout", lama_root, read_lama),
    Layout("ours", folder_root, read_folder),
)


def layout_of(folder: Path) -> tuple[Layout, Path]:
    """The layout of a suite's folder, and the root of its files; an unknown layout raises."""
    for layout in LAYOUTS:
        if root := layout.root(folder):
            return layout, root
    *names, last = (layout.name for layout in LAYOUTS)
    raise ConsilienceError(
        "no suite in this folder",
        expected=f"{', '.join(names)}, or {last}; of questions a file questions.csv",
        where=str(folder),
        todo="See docs/suites.md for the layouts. `consilience suite new DIR` writes an example.",
    )


def load_folder(folder: Path, *, as_shipped: bool = False) -> Suite:
    """The suite in a folder; the first problem raises.

    ``as_shipped`` keeps the tuples of a release that its paper leaves out.
    """
    layout, root = layout_of(folder)
    problems: Problems = []
    suite = layout.read(root, problems)
    raise_first(problems)
    return replace(suite, left_out={}) if as_shipped else leave_out_objects(suite)


def check_folder(folder: Path) -> Problems:
    """Everything that is wrong with the suite in a folder, in the order of its files."""
    problems: Problems = []
    try:
        layout, root = layout_of(folder)
        if layout.release:
            problems += [
                ConsilienceError("missing, or not what was released", where=str(root / path))
                for path in altered(layout.release, root)
            ]
        suite = layout.read(root, problems)
        check_provenance(root, suite, problems)
        read_signoffs(root, suite, problems)
    except ConsilienceError as error:
        problems.append(error)
    return problems
