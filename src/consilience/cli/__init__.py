"""The command line: parse, call, print. Results on standard output, all else on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from consilience.cli import analyze, annotate, process, suites
from consilience.cli.compare import compare
from consilience.cli.finetune import finetune
from consilience.cli.improve import improve
from consilience.cli.probe import probe, score
from consilience.cli.report import report
from consilience.cli.reproduce import reproduce
from consilience.cli.shared import err
from consilience.errors import ConsilienceError

app = typer.Typer(
    cls=process.Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure whether a language model answers the same however it is asked.",
)
app.command()(probe)
app.command()(score)
app.command()(compare)
app.command()(reproduce)
app.command()(report)
app.command()(improve)
app.command()(finetune)
app.add_typer(analyze.app, name="analyze")
suites.app.add_typer(annotate.app, name="annotate")
app.add_typer(suites.app, name="suite")


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
            err.print(f"{reason}; {rest}", soft_wrap=True)
        raise


def _fail(error: ConsilienceError) -> NoReturn:
    """One message on standard error, with ``--json`` one document on standard output, exit 2."""
    err.print(f"error: {error}", soft_wrap=True, highlight=False, markup=False)
    process.print_error(error)
    sys.exit(2)


def _run() -> None:
    _check_text(sys.argv[1:])
    try:
        app()
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
