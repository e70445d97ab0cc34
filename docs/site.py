"""What MkDocs runs when it builds the site: the commands of docs/cli.md, made from the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from consilience.cli import app

OUTSIDE = re.compile(
    r"\[([^\]]*)\]\((?:\.\./)+((?:results|examples|src|tests|bench|README)[^)]*)\)"
)
"""A link to a file of the repository that is not on the site."""

COMMANDS = "<!-- commands -->"
"""The mark in docs/cli.md that is replaced by the commands."""


def on_page_markdown(markdown: str, **about: Any) -> str:
    """The text of a page with the commands filled in; links to other files become their paths."""
    markdown = OUTSIDE.sub(r"\1 (`\2`)", markdown)
    if COMMANDS not in markdown:
        return markdown
    return markdown.replace(COMMANDS, "\n".join(lines_of(get_command(app), "consilience")))


def lines_of(command: Any, name: str, parent: Any = None) -> Iterator[str]:
    """The Markdown of a command and of the commands in it."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    level = min(name.count(" ") + 1, 3)
    if level > 1:
        yield f"{'#' * level} {name}\n"
        yield f"{plain(command.help)}\n"
        yield f"```\n{' '.join([name, *command.collect_usage_pieces(context)])}\n```\n"
        yield from options_of(command, context)
    if hasattr(command, "list_commands"):
        for each in command.list_commands(context):
            yield from lines_of(command.get_command(context, each), f"{name} {each}", context)


def options_of(command: Any, context: Any) -> Iterator[str]:
    """A table of options for each panel of the help."""
    panels: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        row = parameter.get_help_record(context)
        if row is None or getattr(parameter, "hidden", False):
            continue
        panel = getattr(parameter, "rich_help_panel", None) or "Options"
        name, text = (plain(part).replace("|", "\\|").replace("\n", " ") for part in row)
        panels.setdefault(panel, []).append(f"| `{name}` | {text} |")
    for panel, rows in panels.items():
        yield "\n".join([f"| {panel} | |", "|---|---|", *rows, ""])


def plain(text: str | None) -> str:
    """A help text without the marks of the terminal."""
    return (text or "").replace("\f", "").replace("\\[", "[").strip()
