"""Groups of commands, and errors of the command line as ours."""

from __future__ import annotations

import click

from consilience.cli.command import (
    SETTINGS,
    Command,
    Entry,
    FieldArgument,
    FieldOption,
    UsageError,
    parameters_of,
    write_examples,
    write_options,
)
from consilience.cli.output_options import GeneralOptions
from consilience.core.errors import did_you_mean

RENAMED = {"data": "suite", "annotate": "suite annotate", "perturb": "probe"}
"""Commands of earlier versions, and what replaces them."""

OTHER_WAYS = dict.fromkeys(
    [("consilience reproduce", "--limit"), ("consilience reproduce", "-n")],
    "Use --with 'probe=--limit 5'.",
)
"""What to type instead of an option that a command does not have."""


class Commands(click.Group):
    """A group of commands; only the one that is used is imported."""

    def __init__(self, name: str, entry: Entry, options: list[click.Option] | None = None) -> None:
        super().__init__(
            name,
            help=entry.help,
            params=[*(options or []), *parameters_of(GeneralOptions)],
            no_args_is_help=True,
            context_settings=dict(SETTINGS),
        )
        self.entry = entry

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        """The names of the commands, in the order of the help."""
        return [*self.entry.commands]

    def get_command(self, ctx: click.Context | None, name: str) -> Command | Commands | None:
        """The command of a name."""
        entry = self.entry.commands.get(name)
        if entry is None:
            return None
        return Commands(name, entry) if entry.commands else Command(name, entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name; an unknown one raises."""
        name = args[0]
        if name not in self.entry.commands and not name.startswith("-"):
            renamed = RENAMED.get(name)
            todo = did_you_mean(name, [*self.entry.commands])
            todo = f"`{name}` is now `{renamed}`." if renamed else todo
            raise UsageError(f"no command '{name}'", where=ctx.command_path, todo=todo)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each panel under its heading, then the options."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.entry.commands.items():
            panels.setdefault(entry.panel, []).append((name, entry.summary))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        write_examples(self.entry, formatter)


def usage_error(error: click.ClickException) -> UsageError:
    """Our error for one of the parser."""
    ctx = getattr(error, "ctx", None)
    where = ctx.command_path if ctx else ""
    if isinstance(error, click.NoSuchOption):
        params = ctx.command.get_params(ctx) if ctx else []
        known = [name for param in params for name in param.opts if name.startswith("-")]
        unknown = error.option_name
        hint = did_you_mean(unknown, known)
        hint = hint if hint.startswith("Did") else f"See `{where} --help`."
        todo = OTHER_WAYS.get((where, unknown)) or hint
        return UsageError(f"no option '{unknown}'", where=where, todo=todo)
    todo = f"See `{where} --help`." if where else ""
    param = getattr(error, "param", None)
    if isinstance(error, click.MissingParameter) and isinstance(param, FieldOption | FieldArgument):
        kind, name = "option", param.opts[-1]
        if isinstance(param, FieldArgument):
            kind, name = "argument", param.shown
        todo = f"{param.field.option.help} {todo}"
        return UsageError(f"missing {kind} '{name}'", where=where, todo=todo)
    message = error.format_message().rstrip(".").replace("requires an argument", "needs a value")
    return UsageError(message[:1].lower() + message[1:], where=where, todo=todo)
