"""The command line: parse, call, print. Results on standard output, all else on standard error."""

from __future__ import annotations

import sys

import typer

from consilience.cli import analyze, annotate, data
from consilience.cli.compare import compare
from consilience.cli.finetune import finetune
from consilience.cli.improve import improve
from consilience.cli.perturb import perturb
from consilience.cli.probe import probe, score
from consilience.cli.report import report
from consilience.cli.reproduce import reproduce
from consilience.cli.shared import err
from consilience.cli.squad import squad
from consilience.errors import ConsilienceError

app = typer.Typer(
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
app.command()(perturb)
app.command()(squad)
app.add_typer(analyze.app, name="analyze")
app.add_typer(annotate.app, name="annotate")
app.add_typer(data.app, name="data")

INTERRUPTED = 130
"""The exit status that typer gives a command that was stopped from the keyboard."""


def main() -> None:
    """Run the command line: 0 done, 2 bad input or usage with one message, 1 a bug of ours."""
    try:
        app()
    except ConsilienceError as error:
        err.print(f"error: {error}", soft_wrap=True, highlight=False, markup=False)
        sys.exit(2)
    except OSError as error:
        err.print(f"error: {error.filename or 'input'}: {error.strerror or error}", soft_wrap=True)
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            err.print("stopped; what is written is whole, and the same command goes on with it")
        raise
