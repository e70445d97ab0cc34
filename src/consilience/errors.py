"""Errors that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

LONGEST = 1_000
"""Characters of each part of a message; what quotes more input is shortened in its middle."""

Kind = Literal["", "usage", "occupied", "model"]
"""What code asks for: a wrong command line, a folder of something else, a model that fails."""

OTHER_OUT = "Choose another folder"
"""What to do where a folder holds something else."""


class ConsilienceError(Exception):
    """Bad input or usage: what was found, what was expected, where, and what to do next.

    The library raises it; only the command line turns it into a message and an exit status.
    """

    status = 2
    """The exit status of a command that it ends."""
    kind: Kind = ""

    def __init__(
        self, found: str, *, expected: str = "", where: str = "", todo: str = "", kind: Kind = ""
    ) -> None:
        self.kind = kind or self.kind
        self.found = shortened(found)
        self.expected = shortened(expected)
        self.where = shortened(where)
        self.todo = shortened(todo)
        message = f"{self.where}: {self.found}" if where else self.found
        if expected:
            message += f"; expected {self.expected}"
        message += "" if message.endswith("?") else "."
        if todo:
            message += f" {self.todo}"
        super().__init__(message)

    def to_dict(self) -> dict[str, str]:
        """The message and its parts, for JSON; a part that was not given is empty."""
        parts = {name: getattr(self, name) for name in ("found", "expected", "where", "todo")}
        return {"message": str(self), **parts, "kind": self.kind}

    def __reduce__(self) -> tuple[object, ...]:
        """As an error comes from another process: from its parts, not from its message."""
        parts = {name: getattr(self, name) for name in ("expected", "where", "todo", "kind")}
        return partial(ConsilienceError, self.found, **parts), ()


class ModelError(ConsilienceError):
    """A model that cannot be found or loaded."""

    kind = "model"


class UnansweredError(ConsilienceError):
    """A run in which no query has an answer."""

    status = 3


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a failed import into an error that names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise ConsilienceError(
            f"'{error.name}' is not installed",
            todo=how_to_install(extra),
        ) from error


def how_to_install(extra: str) -> str:
    """How to install the packages of an extra, with the versions in the metadata."""
    import re
    import shlex
    from importlib import metadata

    try:
        requirements = metadata.requires("consilience") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        requirements = []
    marker = re.compile(f"extra == ['\"]{extra}['\"]")
    lines = [line.partition(";")[0].strip() for line in requirements if marker.search(line)]
    if not lines:
        return f"Install it with `pip install '.[{extra}]'` in the checkout."
    return f"Install it with `pip install {' '.join(map(shlex.quote, lines))}`."


def shortened(text: str, longest: int = LONGEST) -> str:
    """The text; one of more than ``longest`` characters without its middle."""
    if len(text) <= longest:
        return text
    half = (longest - 20) // 2
    return f"{text[:half]} ... {text[-half:]}"


def did_you_mean(word: str, known: list[str]) -> str:
    """A hint for an unknown name: the closest known one, or all of them where they are few.

    The dashes of options count for nothing: they would make any two short options similar.
    """
    from difflib import get_close_matches

    plain = {name.lstrip("-"): name for name in known}
    close = get_close_matches(shortened(word.lstrip("-"), 200), plain, n=1)
    if close:
        return f"Did you mean '{plain[close[0]]}'?"
    most = 12 if len(known) > 15 else 15  # "and 1 more" would be longer than the name
    shown = ", ".join(known[:most]) + (f" and {len(known) - 12} more" if len(known) > most else "")
    return f"Known: {shown.removesuffix('.')}."


def unknown_name(found: str, name: str, known: Iterable[str]) -> ConsilienceError:
    """The error for an unknown name: all known ones, and the closest where one is similar."""
    names = list(known)
    hint = did_you_mean(name, names)
    return ConsilienceError(
        found, expected=", ".join(names), todo=hint if hint.startswith("Did") else ""
    )


def missing_column(
    name: str, columns: list[str], *, expected: str, where: str, todo: str = ""
) -> ConsilienceError:
    """The error for a table without a column; ``todo``: what to do where no name is similar."""
    hint = did_you_mean(name, columns)
    return ConsilienceError(
        f"no column '{name}' among {', '.join(columns) or 'none'}",
        expected=expected,
        where=where,
        todo=hint if hint.startswith("Did") else todo,
    )
