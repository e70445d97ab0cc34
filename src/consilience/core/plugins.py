"""What other packages add, as entry points of three groups.

A package declares in its ``pyproject.toml``, for example::

    [project.entry-points."consilience.models"]
    myplugin = "my_package:load"  # --model myplugin:NAME; a ``models.ModelLoader``

    [project.entry-points."consilience.suites"]
    mysuite = "my_package:folder"  # --suite mysuite; a function that gives the path of its folder

    [project.entry-points."consilience.metrics"]
    mine = "my_package.metrics"  # a module whose functions are registered by ``@metric``
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Literal

from consilience.core.errors import ConsilienceError

Group = Literal["consilience.models", "consilience.suites", "consilience.metrics"]


def plugin(group: Group, name: str) -> Any | None:
    """What another package offers under a name; None if no package has it."""
    for entry in entry_points(group=group, name=name):
        try:
            return entry.load()
        except Exception as error:
            raise ConsilienceError(
                f"the plugin '{name}' ({entry.value}) cannot be loaded: {error}",
                todo="Install it again, or ask its authors.",
            ) from error
    return None


def load_all(group: Group) -> None:
    """Load everything that other packages offer in a group."""
    for name in sorted(entry_points(group=group).names):
        plugin(group, name)
