"""What MkDocs runs when it builds the site: parts of pages that are made from the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from consilience.app.command import Group
from consilience.app.process import program
from consilience.authoring.checks import CHECKS
from consilience.options import parameters
from consilience.options.commands import ProbeOptions

OUTSIDE = re.compile(
    r"\[([^\]]*)\]\((?:\.\./)+((?:results|examples|src|tests|bench|README|CONTRIBUTING|SECURITY)[^)]*)\)"
)
"""A link to a file of the repository that is not on the site."""

COMMANDS = "<!-- commands -->"
"""The mark in docs/cli.md that is replaced by the commands."""

AUDIT = "<!-- checks -->"
"""The mark in docs/making-suites.md that the checks of ``suite check`` replace."""

OPTIONS = "<!-- options of evaluate -->"
"""The mark in docs/python.md that the options of ``evaluate`` replace."""


def on_page_markdown(markdown: str, **about: Any) -> str:
    """The text of a page with its parts filled in; links to other files become their paths."""
    markdown = OUTSIDE.sub(r"\1 (`\2`)", markdown)
    parts = ((COMMANDS, command_lines), (OPTIONS, keyword_lines), (AUDIT, check_lines))
    for mark, lines in parts:
        if mark in markdown:
            markdown = markdown.replace(mark, "\n".join(lines()))
    return markdown


def keyword_lines() -> Iterator[str]:
    """A row for each option of ``evaluate``: its name, its default and what it does."""
    yield "| option | default | what it does |"
    yield "|---|---|---|"
    for name, parameter in parameters(ProbeOptions).items():
        if name not in ("model", "suite"):
            yield f"| `{name}` | `{parameter.default!r}` | {cell(parameter.option.help)} |"


def check_lines() -> Iterator[str]:
    """A row for each check of ``suite check``."""
    yield "| check | looks for | what to do |"
    yield "|---|---|---|"
    for name, one in CHECKS.items():
        yield f"| {name} | {cell(one.about)} | {cell(one.todo)} |"


def command_lines() -> Iterator[str]:
    """All commands of the program."""
    return lines_of(program(), "consilience")


def lines_of(command: Any, name: str, parent: Any = None) -> Iterator[str]:
    """The Markdown of a command and of the commands in it."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    level = min(name.count(" ") + 1, 3)
    if level > 1:
        yield f"{'#' * level} {name}\n"
        yield f"{command.help}\n"
        yield f"```\n{' '.join([name, *command.collect_usage_pieces(context)])}\n```\n"
    if isinstance(command, Group):
        for each in command.list_commands(context):
            yield from lines_of(command.get_command(context, each), f"{name} {each}", context)
        return
    yield from options_of(command, context)
    if command.examples:
        yield "\n".join(
            ["```", *(f"consilience {example}" for example in command.examples), "```\n"]
        )


def options_of(command: Any, context: Any) -> Iterator[str]:
    """A table of the arguments and options of a command."""
    rows = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    shown = [f"| `{cell(name)}` | {cell(text)} |" for name, text in rows]
    yield "\n".join(["| option | what it does |", "|---|---|", *shown, ""])


def cell(text: str) -> str:
    """A text in a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")
