"""A command, made from its options dataclasses (``workflow/options.py``)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from consilience.cli.completion import COMPLETIONS
from consilience.cli.configuration import Defaults, defaults_of
from consilience.cli.output_options import GeneralOptions
from consilience.core.errors import ConsilienceError
from consilience.workflow.option_fields import OptionField, option_fields, typed
from consilience.workflow.options import (
    ADVANCED,
    COUNTING,
    ENDPOINTS,
    FACTS,
    FACTS_AND_OWN,
    FACTS_AND_PAIRS,
    GENERAL,
    MODEL,
    OUTPUT,
    OWN,
    PAIRS,
    PAIRS_AND_OWN,
    QUESTIONS,
    TRAINING,
)

ARGUMENTS, OPTIONS = "Arguments", "Options"
"""The headings of what has no heading of its own."""

PANELS = (
    ARGUMENTS,
    OPTIONS,
    MODEL,
    ENDPOINTS,
    QUESTIONS,
    FACTS,
    FACTS_AND_OWN,
    FACTS_AND_PAIRS,
    OWN,
    PAIRS,
    PAIRS_AND_OWN,
    TRAINING,
    COUNTING,
    OUTPUT,
    ADVANCED,
    GENERAL,
)
"""Headings of options, in the order of the help."""

METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
"""The placeholder of a value in the help, by its type."""

WIDTH = 100
"""Characters of the longest line of a help text."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}
"""What all commands have in common."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A command, or a group of commands, that is not yet imported."""

    source: str = ""
    """Its module in this package and its function: ``probe:score``. A group has none."""
    options: Sequence[type] = ()
    """The options dataclasses whose values the function takes; the first one describes it."""
    panel: str = "Commands"
    """The heading that it is listed under."""
    examples: Sequence[str] = ()
    """Command lines, without ``consilience``."""
    commands: Mapping[str, Entry] = field(default_factory=dict)
    """The commands of a group."""

    about: str = ""
    """What a group is for; the docstring of a command's options says what the command does."""

    @property
    def help(self) -> str:
        """The text of its help."""
        return self.about or inspect.getdoc(self.options[0]) or ""

    @property
    def summary(self) -> str:
        """The first line of its help."""
        return self.help.partition("\n")[0]


class UsageError(ConsilienceError):
    """A command line that cannot be parsed."""


class Value(click.ParamType):  # type: ignore[type-arg]
    """The value of a field, from a text that was typed or from a configuration file."""

    def __init__(self, decoded: OptionField) -> None:
        self.field, self.name = decoded, decoded.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value; a wrong one raises our error."""
        try:
            return self.field.parse(value) if isinstance(value, str) else self.field.check(value)
        except ConsilienceError as error:
            where = ctx.command_path if ctx else ""
            name = self.field.flag
            if self.field.option.is_argument and param:
                name = getattr(param, "shown", name)
            raise UsageError(
                f"invalid value for '{name}': '{value}'",
                expected=error.expected,
                where=where,
                todo=f"See `{where} --help`.",
            ) from error

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What a shell completes."""
        if self.field.flag in COMPLETIONS:
            names = COMPLETIONS[self.field.flag](ctx.params, incomplete)
        elif self.field.type is Path:
            return [CompletionItem(incomplete, type="file")]
        else:
            names = [name for name in self.field.choices if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names]


class FieldOption(click.Option):
    """The option of a field. Its default is that of the field, which click does not know."""

    def __init__(self, decoded: OptionField) -> None:
        option = decoded.option
        is_flag = decoded.type is bool
        super().__init__(
            [*([option.short] if option.short else []), decoded.flag, decoded.name],
            type=None if is_flag else Value(decoded),
            is_flag=is_flag or None,  # False would make values optional
            multiple=decoded.is_repeated,
            required=decoded.is_required,
            help=option.help,
        )
        self.field, self.panel = decoded, option.panel or OPTIONS

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Its names and its value, and what it does."""
        option, kind = self.field.option, self.field.type
        names = f"{option.short}, {self.field.flag}" if option.short else f"    {self.field.flag}"
        metavar = option.metavar or "|".join(self.field.choices) or METAVARS.get(kind, "")
        default = (ctx.default_map or {}).get(self.field.name, self.field.default)
        facts = ["required"] if self.field.is_required else []
        if not (default is None or default is False or default in (MISSING, "", ())):
            facts.append(f"default: {_shown(default)}")
        is_set = self.field.name in (ctx.default_map or {})
        help_text = re.sub(r" \[default: [^]]*\]", "", option.help) if is_set else option.help
        facts += ["may be repeated"] if self.field.is_repeated else []
        is_telling = option.max is not None or (option.min or 0) > 1
        facts += [self.field.range] if is_telling else []
        text = f"{help_text}  [{'; '.join(facts)}]" if facts else help_text
        return f"{names} {metavar}".rstrip(), text

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """The value; a repeated option may have a single one in a configuration file."""
        is_single = self.field.is_repeated and isinstance(value, str)
        return super().type_cast_value(ctx, [value] if is_single else value)


class FieldArgument(click.Argument):
    """The argument of a field."""

    def __init__(self, decoded: OptionField) -> None:
        super().__init__(
            [decoded.name],
            type=Value(decoded),
            nargs=-1 if decoded.is_list else 1,
            required=decoded.is_required,
        )
        self.field, self.panel = decoded, ARGUMENTS
        self.shown = decoded.option.metavar or decoded.name.upper()

    def make_metavar(self, ctx: click.Context) -> str:
        """Its name in the first line of the help."""
        shown = f"{self.shown}..." if self.field.is_list else self.shown
        return shown if self.required else f"[{shown}]"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Its name, and what it is."""
        return self.shown, self.field.option.help


class Command(click.Command):
    """A command whose parameters are fields; a configuration file has defaults of them."""

    def __init__(self, name: str, entry: Entry) -> None:
        kinds = (*entry.options, GeneralOptions)
        parameters: list[click.Parameter] = [
            parameter for kind in kinds for parameter in parameters_of(kind)
        ]
        super().__init__(name, params=parameters, help=entry.help, context_settings=dict(SETTINGS))
        self.entry = entry
        self.defaults = Defaults()
        self.used: list[OptionField] = []

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; options that are not given have the defaults of the file."""
        fields = {
            param.field.flag.lstrip("-"): param.field
            for param in self.params
            if isinstance(param, FieldOption) and param.name != "config"
        }
        named = _named_configuration(args) or _general(ctx, "config")
        known = [*ctx.find_root().command.list_commands(ctx)]  # type: ignore[attr-defined]
        try:
            self.defaults = defaults_of(ctx.command_path.split()[1:], fields, named, known)
        except ConsilienceError as error:
            if not ctx.resilient_parsing and not {"-h", "--help"} & {*args}:
                raise
            self.defaults = Defaults()
            unread = f"note: no defaults are read from a file: {error}"
            if not ctx.resilient_parsing:
                click.echo(unread, err=True)
        ctx.default_map = dict(self.defaults.values)
        rest = super().parse_args(ctx, args)
        used = {
            key: decoded
            for key, decoded in fields.items()
            if _source(ctx, decoded.name) == "DEFAULT_MAP"
        }
        self.used = [*used.values()]
        if not ctx.resilient_parsing:
            from consilience.cli.console import err
            from consilience.core import provenance

            err.quiet = bool(_general(ctx, "quiet"))
            if used:
                err.print(f"defaults from {self.defaults.file}: {', '.join(used)}")
            provenance.from_file[:] = self._typed(ctx)
        return rest

    def _typed(self, ctx: click.Context) -> list[str]:
        """The values of the file as arguments, where they are not the program's own defaults."""
        arguments = [
            argument
            for decoded in self.used
            if decoded.name != "quiet" and ctx.params[decoded.name] != decoded.default
            for argument in typed(decoded, ctx.params[decoded.name])
        ]
        folder = self.defaults.data_dir
        if folder and _source(ctx, "data_dir") == "DEFAULT":
            arguments += ["--data-dir", folder]
        return arguments

    def invoke(self, ctx: click.Context) -> int | None:
        """Import the function and call it with the values of its options; its exit status."""
        module, function = self.entry.source.split(":")
        run = getattr(import_module(f"consilience.cli.{module}"), function)
        try:
            status: int | None = run(*[kind(**_given(kind, ctx)) for kind in self.entry.options])
        except ConsilienceError as error:
            if origin := self.defaults.origin(error, self.used):
                parts = {"expected": error.expected, "where": error.where}
                todo = f"{error.todo} {origin}".strip()
                raise ConsilienceError(error.found, **parts, todo=todo) from error
            raise
        return status

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write options under the headings of their panels."""
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        write_examples(self.entry, formatter)


def parameters_of(options: type) -> Iterator[FieldOption | FieldArgument]:
    """The parameters of an options dataclass."""
    for decoded in option_fields(options):
        yield FieldArgument(decoded) if decoded.option.is_argument else FieldOption(decoded)


def write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the options of each panel under its heading; general options come last."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            panels.setdefault(getattr(param, "panel", GENERAL), []).append(record)
    for panel, rows in sorted(panels.items(), key=lambda item: PANELS.index(item[0])):
        with formatter.section(panel):
            formatter.write_dl(rows)


def write_examples(entry: Entry, formatter: click.HelpFormatter) -> None:
    """Write the examples, each on a line of its own."""
    if entry.examples:
        with formatter.section("Examples"):
            for example in entry.examples:
                formatter.write(f"  {_folded(f'consilience {example}')}\n")


def _folded(command: str) -> str:
    """A command on lines that are not too long; each further line begins with an option."""
    lines = [""]
    for part in re.split(r" (?=--)", command):
        if len(lines[-1]) + len(part) > WIDTH - 10:
            lines.append(part)
        else:
            lines[-1] = f"{lines[-1]} {part}".strip()
    return " \\\n      ".join(lines)


def _given(kind: type, ctx: click.Context) -> dict[str, Any]:
    """The fields that have a value on the command line or in the file; others have defaults."""
    names = [decoded.name for decoded in option_fields(kind)]
    chosen = ("COMMANDLINE", "DEFAULT_MAP")
    return {name: ctx.params[name] for name in names if _source(ctx, name) in chosen}


def _source(ctx: click.Context, name: str) -> str:
    source = ctx.get_parameter_source(name)
    return source.name if isinstance(source, ParameterSource) else ""


def _general(ctx: click.Context, name: str) -> Any:
    """A general option, which may be given before the name of the command too."""
    at: click.Context | None = ctx
    while at is not None:
        if at.params.get(name):
            return at.params[name]
        at = at.parent
    return None


def _named_configuration(arguments: Sequence[str]) -> str | None:
    """The file of ``--config`` in arguments that are not yet parsed."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--config":
            return value if equals else next(iter(arguments[at + 1 :]), None)
    return None


def _shown(default: Any) -> str:
    """A default as it is typed."""
    values = default if isinstance(default, list | tuple) else [default]
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
