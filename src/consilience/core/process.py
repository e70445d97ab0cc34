"""A process: how it starts and is stopped, and what a caller sees while it works."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Advance = Callable[[int], None]
"""Called with the number of steps that are done."""


class Watch(Protocol):
    """Shows what a command does; ``Silent`` shows nothing."""

    def loading(self, model: str) -> AbstractContextManager[None]:
        """While a model is loaded and used."""

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """While so many steps are made; ``total`` is None where it is not known."""

    def say(self, step: str) -> None:
        """At the start of a step, in words."""

    def inform(self, line: str) -> None:
        """A line about the work, such as its cost or a command that is run."""


class Silent:
    """Shows nothing."""

    def loading(self, model: str) -> AbstractContextManager[None]:
        return nullcontext()

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        return nullcontext(lambda *steps: None)

    def say(self, step: str) -> None:
        """Nothing."""

    def inform(self, line: str) -> None:
        """Nothing."""


SILENT = Silent()
