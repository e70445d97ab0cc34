"""A command: a function of one options value, declared once for Python and the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from consilience.core.errors import needs_extra
from consilience.options import Options, takes

if TYPE_CHECKING:
    from consilience.report.export import Displayed, Shown

P = ParamSpec("P")
O = TypeVar("O", bound=Options)  # noqa: E741 - an options value
R = TypeVar("R", bound="Displayed | Shown | None")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the program."""

    path: str
    options: type[Options]
    run: Callable[
        [Any], Displayed | Shown | None
    ]  # Does the work; None where another process has the result
    help: str
    panel: str
    examples: Sequence[str]


@dataclass(frozen=True, slots=True)
class Group:
    """Commands with a common first word, or words."""

    path: str
    help: str
    panel: str = "Commands"
    examples: Sequence[str] = ()


NAMES = (
    "probe", "score", "compare", "gate", "report", "publish", "study",
    "analyze", "improve", "finetune", "suite", "reproduce",
)  # fmt: skip
"""The first words of all commands, in the order of the help."""

KNOWN: dict[str, Command | Group] = {}  # What was declared, by its words, in the order of the help


def command(
    kind: Callable[P, O],
    path: str,
    *,
    panel: str = "Commands",
    examples: Sequence[str],
) -> Callable[[Callable[[O], R]], Callable[P, R]]:
    """Declare a function of an options value as a command, whose help is its docstring.

    Python calls it with the options as keywords.
    """
    made: Any = kind

    def decorate(function: Callable[[O], R]) -> Callable[P, R]:
        about = inspect.getdoc(function) or ""
        KNOWN[path] = Command(path, made, function, about, panel, examples)
        return takes(kind)(function)

    return decorate


class Lazy:
    """A module of this package, which needs an extra, imported when something of it is used."""

    def __init__(self, name: str, extra: str = "models") -> None:
        self._name, self._extra = name, extra

    def __getattr__(self, name: str) -> Any:
        with needs_extra(self._extra):
            return getattr(import_module(f"consilience.{self._name}"), name)


def group(path: str, about: str, panel: str = "Commands") -> None:
    """Declare a group of commands."""
    KNOWN[path] = Group(path, about, panel)
