"""Errors that a person can act on."""

from __future__ import annotations

from functools import partial

OTHER_OUT = "Choose another --out"
"""What to do where a folder holds something else; whoever reads errors knows them by it."""


class ConsilienceError(Exception):
    """Bad input or usage: what was found, what was expected, where, and what to do next.

    The library raises it; only the command line turns it into a message and exit status 2.
    """

    def __init__(self, found: str, *, expected: str = "", where: str = "", todo: str = "") -> None:
        self.found = found
        self.expected = expected
        self.where = where
        self.todo = todo
        message = f"{where}: {found}" if where else found
        if expected:
            message += f"; expected {expected}"
        message += "."
        if todo:
            message += f" {todo}"
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        """As an error comes from another process: from its parts, not from its message."""
        parts = {"expected": self.expected, "where": self.where, "todo": self.todo}
        return partial(ConsilienceError, self.found, **parts), ()


def did_you_mean(word: str, known: list[str]) -> str:
    """A hint for an unknown name: the closest known one, or all of them where they are few."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1)
    if close:
        return f"Did you mean '{close[0]}'?"
    shown = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    return f"Known: {shown}."
