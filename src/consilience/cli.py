"""The command ``consilience``: where each command is declared. Nothing else is imported for it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

    from consilience.app.parser import ClickGroup

HELP = "Measure whether a language model answers the same however it is asked."

EXAMPLES = (
    "probe --model packaged:smollm2 --suite mini --limit 8",
    "compare runs/before runs/after",
)

SHELLS = ("bash", "zsh", "fish")  # Shells that complete the names of commands and options


def command() -> None:
    """The process of the command line."""
    from consilience.app.process import run_process

    run_process(_main)


def main() -> None:
    """Run the command line in this process; it ends with ``SystemExit`` unless all is well."""
    from consilience.app.process import run

    run(_main)


def _main() -> None:
    from consilience.app.parser import run_program

    run_program(program())


@cache
def program() -> ClickGroup:
    """The command with all its commands, which are imported when they are used."""
    import click

    from consilience.app.command import Group
    from consilience.app.parser import ClickGroup

    options = [
        click.Option(
            ["-V", "--version"], is_flag=True, is_eager=True, expose_value=False,
            callback=_print_version, help="Print the version and exit.",
        ),
        click.Option(
            ["--show-completion"], type=click.Choice(SHELLS), is_eager=True, expose_value=False,
            callback=_print_completion,
            help="Print a script that completes names; add it to the start-up file of your shell.",
        ),
    ]  # fmt: skip
    return ClickGroup(Group("", HELP, examples=EXAMPLES), options, load)


def load(name: str = "") -> None:
    """Import what declares a command; without a name, all commands."""
    for module in ("runs", "suite"):
        if not name or (name == "suite") == (module == "suite"):
            import_module(f"consilience.commands.{module}")


def _print_version(ctx: click.Context, param: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"consilience {version('consilience')}")
        ctx.exit()


def _print_completion(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell) if shell else None
    if kind:
        print(kind(program(), {}, "consilience", "_CONSILIENCE_COMPLETE").source())
        ctx.exit()
