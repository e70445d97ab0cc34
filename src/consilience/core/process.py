"""What a caller sees of work that takes time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Advance = Callable[[int], None]  # Called with the number of steps that are done


class Watch:
    """Shows what a command does; this one shows nothing."""

    def loading(self, model: str) -> AbstractContextManager[None]:
        """While a model is loaded and used."""
        return nullcontext()

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """While so many steps are made; ``total`` is None where it is not known."""
        return nullcontext(lambda *steps: None)

    def say(self, step: str) -> None:
        """At the start of a step, in words."""

    def inform(self, line: str) -> None:
        """A line about the work, such as its cost or a command that is run."""


SILENT = Watch()
