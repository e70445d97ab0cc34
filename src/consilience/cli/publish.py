"""publish: results in the formats of others, and as an upload to the Hub."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace

import click

from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import JsonOutput
from consilience.cli.printing import print_json, print_lines
from consilience.core.errors import ConsilienceError
from consilience.core.provenance import git_revision, versions
from consilience.publish.publication import Publication, Push, send_publication
from consilience.publish.publication import publish as publish_run
from consilience.workflow.publish_options import PublishOptions


def publish(options: PublishOptions, output: JsonOutput) -> None:
    """Write the files; with --push show what would be sent, and send it if the user agrees."""
    made = publish_run(replace(options, yes=False), Screen())
    if not output.as_json:
        print_lines(map(str, made.paths))
        warn(made.notes)
        if made.push:
            out.print(made.push.table())
    if made.push and (options.yes or _agrees(made.push, can_ask=not output.as_json)):
        made = send_publication(made)
    if output.as_json:
        print_json(_document(options, made))
    elif made.push:
        out.print(f"Sent: {made.address}" if made.address else "Nothing was sent.")


def _agrees(push: Push, *, can_ask: bool) -> bool:
    """Whether the user wants the files sent; raises where there is nobody to ask.

    The end of the input is a no.
    """
    if can_ask and sys.stdin.isatty():
        if hasattr(signal, "siginterrupt"):
            signal.siginterrupt(signal.SIGINT, True)  # polars has reads go on after Ctrl-C
        click.echo("Send them? [y/N]: ", nl=False, err=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    raise ConsilienceError(
        "nothing was sent: there is nobody to ask",
        where=push.url,
        todo="Add --yes to send these files.",
    )


def _document(options: PublishOptions, made: Publication) -> dict[str, object]:
    settings = {"run": str(options.run), "format": options.format_}
    push = made.push and {
        "repository": made.push.repository,
        "type": made.push.type,
        "visibility": made.push.visibility,
        "bytes": made.push.size,
        "replaced": sorted(made.push.replaced),
        "sent": made.address or None,
    }
    return {
        "run": {"settings": settings, "versions": versions(), "git": git_revision()},
        "files": [str(path) for path in made.paths],
        "push": push,
        "warnings": list(made.notes),
    }
