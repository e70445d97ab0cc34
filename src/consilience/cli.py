"""The command ``consilience``: its groups of commands, and the process."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consilience.app.command import Group


def command() -> None:
    """The process of the command line."""
    from consilience.app import run_process

    run_process(_main)


def main() -> None:
    """Run the command line in this process; it ends with ``SystemExit`` unless all is well."""
    from consilience.app import run

    run(_main)


def _main() -> None:
    from consilience.app.command import run_program

    run_program(program())


@cache
def program() -> Group:
    """The command with all its commands."""
    from consilience import commands  # noqa: F401 - it declares the commands
    from consilience.app.command import program as whole

    return whole
