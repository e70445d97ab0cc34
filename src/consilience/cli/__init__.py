"""The command line: parse, call, print. Results on standard output, all else on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.shell_completion import get_completion_class

from consilience.cli import process
from consilience.cli.command import Entry, UsageError
from consilience.cli.command_table import COMMANDS
from consilience.cli.commands import Commands, usage_error
from consilience.core.errors import ConsilienceError

HELP = "Measure whether a language model answers the same however it is asked."

EXAMPLES = (
    "probe --model packaged:smollm2 --suite mini --limit 8",
    "compare runs/before runs/after",
)

SHELLS = ("bash", "zsh", "fish")
"""Shells that complete names."""


def _print_version(ctx: click.Context, param: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"consilience {version('consilience')}")
        ctx.exit()


def _print_completion(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    kind = get_completion_class(shell) if shell else None
    if kind:
        print(kind(app, {}, "consilience", "_CONSILIENCE_COMPLETE").source())
        ctx.exit()


ROOT_OPTIONS = [
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

app = Commands("consilience", Entry(about=HELP, commands=COMMANDS, examples=EXAMPLES), ROOT_OPTIONS)


def command() -> None:
    """The process of the command line: ``main`` with the process's streams and signals."""
    process.begin()
    try:
        main()
    except SystemExit as stop:
        process.end()
        process.leave(stop.code)
        raise
    finally:
        process.end()
    process.leave(0)


def main() -> None:
    """Run the command line: 0 done, 1 a bug of ours, 2 or 3 with one message (``status``).

    A command that a signal ends exits with 128 and the number of the signal.
    """
    try:
        _run()
    except ConsilienceError as error:
        _fail(error)
    except OSError as error:
        _fail(ConsilienceError(error.strerror or str(error), where=error.filename or "input"))
    except SystemExit as stop:
        if reason := process.why_stopped(stop.code):
            rest = "every file that was written is complete, and the same command resumes the work"
            process.print_errors([f"{reason}; {rest}"])
        raise


def _fail(error: ConsilienceError) -> NoReturn:
    """One message on standard error, with ``--json`` one document on standard output; exits."""
    process.print_errors([f"error: {error}"])
    process.print_error(error, is_usage=isinstance(error, UsageError))
    sys.exit(error.status)


def _run() -> None:
    _check_text(sys.argv[1:])
    try:
        status = app.main(prog_name="consilience", standalone_mode=False)
        if status:
            sys.exit(status)
    except click.exceptions.NoArgsIsHelpError as error:
        process.print_errors([error.format_message()])
        sys.exit(2)
    except click.ClickException as error:
        raise usage_error(error) from error
    finally:
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()


def _check_text(arguments: Sequence[str]) -> None:
    """Raise for an argument that is no text, as which Python passes names in other encodings."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise ConsilienceError(
                f"the argument '{argument}' is not in {sys.getfilesystemencoding().upper()}",
                todo="Rename the file, or use a UTF-8 locale.",
            ) from error
