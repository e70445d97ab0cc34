"""The command line: parse, call, print. Results on standard output, all else on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from consilience.cli import process
from consilience.cli.command_table import COMMANDS
from consilience.cli.commands import Entry, UsageError, command_from
from consilience.errors import ConsilienceError
from consilience.text import visible

HELP = "Measure whether a language model answers the same however it is asked."


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"consilience {version('consilience')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version and exit.", is_eager=True,
            callback=_print_version,
        ),
    ] = False,
) -> None:  # fmt: skip
    """Hold the options of the program."""


EXAMPLES = (
    "probe --model packaged:smollm2 --suite mini --limit 8",
    "compare runs/before runs/after",
)

app = command_from("consilience", Entry(HELP, commands=COMMANDS, examples=EXAMPLES), _root)


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


def main() -> None:
    """Run the command line: 0 done, 2 bad input or usage with one message, 1 a bug of ours.

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
            _print_message(f"{reason}; {rest}")
        raise


def _fail(error: ConsilienceError) -> NoReturn:
    """One message on standard error, with ``--json`` one document on standard output, exit 2."""
    _print_message(f"error: {error}")
    process.print_error(error, is_usage=isinstance(error, UsageError))
    sys.exit(2)


def _print_message(message: str) -> None:
    """Print on standard error; this needs no library."""
    if sys.stderr is not None:  # it may be closed
        print(visible(message), file=sys.stderr, flush=True)


def _run() -> None:
    _check_text(sys.argv[1:])
    try:
        app(prog_name="consilience")
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
