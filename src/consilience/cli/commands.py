"""Commands that are imported when they are used, and their help as plain text under headings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from consilience.cli.configuration import ENVIRONMENT, defaults_of
from consilience.errors import ConsilienceError, did_you_mean
from consilience.workflow.options import (
    ADVANCED,
    COUNTING,
    FACTS,
    MODEL,
    OUTPUT,
    PAIRS,
    QUESTIONS,
    TRAINING,
)

GENERAL = "General"
"""The heading of the options that every command has."""

PANELS = (
    "Arguments",
    "Options",
    MODEL,
    QUESTIONS,
    FACTS,
    PAIRS,
    TRAINING,
    COUNTING,
    OUTPUT,
    ADVANCED,
    GENERAL,
)
"""Headings of options, in the order of the help."""

RENAMED = {"data": "suite", "annotate": "suite annotate", "perturb": "probe"}
"""Commands of earlier versions, and what replaces them."""

OTHER_WAYS = dict.fromkeys(
    [("consilience reproduce", "--limit"), ("consilience reproduce", "-n")],
    "Use --with 'probe=--limit 5'.",
)
"""What to type instead of an option that a command does not have."""

WIDTH = 100
"""Characters of the longest line of a help text."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}
"""What all commands have in common."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A command, or a group of commands, that is not yet imported."""

    help: str
    """What it does, in one line."""
    source: str = ""
    """Its module in this package and its function: ``probe:score``. A group has none."""
    panel: str = "Commands"
    """The heading that it is listed under."""
    examples: Sequence[str] = ()
    """Command lines, without ``consilience``."""
    commands: Mapping[str, Entry] = field(default_factory=dict)
    """The commands of a group."""


class UsageError(ConsilienceError):
    """A command line that cannot be parsed."""


class _Help:
    """Help as plain text: options under the heading of their panel, then examples."""

    examples: Sequence[str] = ()

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of each panel under its heading; general options come last."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):  # type: ignore[attr-defined]
            record = param.get_help_record(ctx)
            if record is not None:
                is_help = param.name == "help"
                default = "Arguments" if param.param_type_name == "argument" else "Options"
                panel = GENERAL if is_help else getattr(param, "rich_help_panel", None) or default
                is_argument = param.param_type_name == "argument"
                row = (record[0].split()[0], record[1]) if is_argument else _aligned(record)
                panels.setdefault(panel, []).append(row)
        for panel, rows in sorted(panels.items(), key=lambda item: _rank(item[0])):
            with formatter.section(panel):
                formatter.write_dl(rows)
        if isinstance(self, Commands):
            self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, each on a line of its own."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"  consilience {example}\n")


class Command(_Help, TyperCommand):
    """A command that takes defaults from a configuration file."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The arguments of the first line of the help: ``RUN`` instead of ``{RUN}``."""
        return [
            piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)
        ]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; options that are not given have the defaults of the file."""
        named = _named_configuration(args) or ctx.meta.get(ENVIRONMENT)
        flags = {
            max(param.opts, key=len).lstrip("-"): param.name
            for param in self.params
            if param.param_type_name == "option" and param.expose_value
        }
        known = [*ctx.find_root().command.entries]
        ctx.default_map, file = defaults_of(ctx.command_path.split()[1:], flags, named, known)
        rest = super().parse_args(ctx, args)
        used = [flag for flag, name in flags.items() if _is_from_file(ctx, name)]
        if used and not ctx.resilient_parsing:
            from consilience.cli.console import err

            err.print(f"defaults from {file}: {', '.join(used)}", soft_wrap=True, highlight=False)
        return rest


class Commands(_Help, TyperGroup):
    """A group of commands; only the one that is used is imported."""

    entries: Mapping[str, Entry]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name, imported."""
        name = args[0]
        if name not in self.entries and not name.startswith("-"):
            renamed = RENAMED.get(name)
            todo = (
                f"`{name}` is now `{renamed}`." if renamed else did_you_mean(name, [*self.entries])
            )
            raise UsageError(f"no command '{name}'", where=ctx.command_path, todo=todo)
        _, command, rest = super().resolve_command(ctx, args)
        return name, command and self.load(name), rest

    def load(self, name: str) -> Command | Commands:
        """A command of the group, imported."""
        return command_from(name, self.entries[name])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each panel under its heading, without importing them."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.entries.items():
            panels.setdefault(entry.panel, []).append((name, entry.help))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """As in typer; arguments that are no options of the group raise our error."""
        with _usage_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """As in typer; arguments that a command does not know raise our error."""
        with _usage_errors():
            return super().invoke(ctx)


def command_from(name: str, entry: Entry, root: Any = None) -> Command | Commands:
    """The command of an entry; ``root``: the function of a group's own options."""
    app = typer.Typer(
        cls=Commands, name=name, help=entry.help, add_completion=root is not None,
        rich_markup_mode=None, no_args_is_help=True, context_settings=SETTINGS,
    )  # fmt: skip
    made: Any
    if entry.commands:
        app.callback()(root or _no_options)
        made = typer.main.get_command(app)
        made.entries = entry.commands
        made.commands = {
            listed: TyperCommand(listed, help=inner.help)
            for listed, inner in entry.commands.items()
        }
    else:
        module, function = entry.source.split(":")
        loaded = import_module(f"consilience.cli.{module}")
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name, cls=Command, context_settings=SETTINGS)(getattr(loaded, function))
        made = typer.main.get_command(single)
        made.params += shared_options()
    made.examples = entry.examples
    return made  # type: ignore[no-any-return]


def shared_options() -> list[Any]:
    """The options of every command."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_shared)
    return list(typer.main.get_command(app).params)


def _be_quiet(quiet: bool) -> bool:
    from consilience.cli.console import err

    err.quiet = quiet
    return quiet


def _keep_configuration(ctx: typer.Context, file: str | None) -> str | None:
    if file is not None:
        ctx.meta[ENVIRONMENT] = file
    return file


def _shared(
    config: Annotated[
        str | None,
        typer.Option(
            help="Read defaults from this TOML file [default: consilience.toml, if there is one].",
            metavar="FILE", expose_value=False, rich_help_panel=GENERAL,
            callback=_keep_configuration,
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Print no progress and no messages on standard error.",
            expose_value=False, callback=_be_quiet, rich_help_panel=GENERAL,
        ),
    ] = False,
) -> None:  # fmt: skip
    """Hold the options of every command."""


def _no_options() -> None:
    """Hold the options of a group that has none."""


def _named_configuration(arguments: Sequence[str]) -> str | None:
    """The file of ``--config`` in arguments that are not yet parsed."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--config":
            return value if equals else next(iter(arguments[at + 1 :]), None)
    return None


def _is_from_file(ctx: Any, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def _rank(panel: str) -> int:
    return PANELS.index(panel) if panel in PANELS else len(PANELS) - 1


def _aligned(record: tuple[str, str]) -> tuple[str, str]:
    """An option for the help; those without a short name are indented as if they had one."""
    names, text = record
    return (f"    {names}" if names.startswith("--") else names), text


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Raise errors of the parser as ours, which are printed like all others."""
    try:
        yield
    except ConsilienceError:
        raise
    except Exception as error:
        is_help = type(error).__name__ == "NoArgsIsHelpError"
        if not hasattr(error, "exit_code") or not hasattr(error, "format_message") or is_help:
            raise
        raise _fault(error) from error


def _fault(error: Any) -> UsageError:
    """Our error for one of the parser."""
    ctx = getattr(error, "ctx", None)
    where = ctx.command_path if ctx else ""
    see = f"See `{where} --help`." if where else ""
    unknown = getattr(error, "option_name", None)
    if unknown is not None and "such option" in error.message:
        options = ctx.command.get_params(ctx) if ctx else []
        known = [name for param in options for name in param.opts]
        todo = OTHER_WAYS.get((where, unknown)) or did_you_mean(unknown, known)
        return UsageError(f"no option '{unknown}'", where=where, todo=todo)
    message = error.format_message().rstrip(".").replace("Value error, ", "")
    param = getattr(error, "param", None)
    if param is not None and len(param.opts) > 1:
        message = message.replace(" / ".join(map(repr, param.opts)), repr(max(param.opts, key=len)))
    fault, colon, expected = message.partition(": Input should be ")
    if colon:
        expected = expected.removeprefix("a valid ").partition(", unable")[0]
        expected = f"a number {expected}" if " than " in expected else expected
    else:
        fault, _, expected = message.partition(" is not one of ")
        expected = expected.replace(", ", " or ")
    return UsageError(fault[:1].lower() + fault[1:], expected=expected, where=where, todo=see)
