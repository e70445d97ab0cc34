"""Commands as click's: parameters from options, defaults from a file, help, our errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from consilience.app.command import KNOWN, NAMES, Command, Group
from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.options import OptionField, OutputOptions, Panel, option_fields

METAVARS = {"int": "N", "float": "X", "str": "TEXT", "Path": "PATH"}
"""The placeholder of a value in the help, by its type."""

WIDTH = 100  # Characters of the longest line of a help text
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}

GENERALS = ("config", "format", "json", "quiet")
"""Options of the output that every command has, and that may be before its name."""


FROM_FILE = ParameterSource.DEFAULT_MAP  # How click calls a default of the configuration file

FILE = Path("consilience.toml")  # In the working folder; it is read if it is there
ENVIRONMENT = "CONSILIENCE_CONFIG"  # The variable that names another file; empty for none


def defaults_in(
    file: Path, path: str, fields: Mapping[str, OptionField], *, is_named: bool
) -> dict[str, Any]:
    """The defaults that a file sets for a command, by field: those of its table, such as [probe].

    ``path``: the words of the command; ``suite check`` has the table [suite.check]. ``fields``: its
    options by name. An unknown key and a wrong value raise, and what runs code or sends a key in a
    file that nobody named.
    """
    import tomllib

    try:
        table: Any = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConsilienceError("no such file", where=str(file), todo="Check --config.") from error
    except (ValueError, RecursionError) as error:
        raise ConsilienceError(f"not TOML: {error}", where=str(file)) from error
    known: Sequence[str] = NAMES
    for word in path.split():
        for key, value in table.items():
            if key not in known or not isinstance(value, dict):
                expected = f"a table of a command, such as [{path.replace(' ', '.')}]"
                todo = did_you_mean(key, [*known], otherwise="")
                raise ConsilienceError(f"'{key}'", expected=expected, where=str(file), todo=todo)
        table, known = table.get(word, {}), [*within(word)]
    for key, value in table.items():
        if key not in fields:
            todo, found = did_you_mean(key, [*fields]), f"'{key}' is not an option of `{path}`"
            raise ConsilienceError(found, where=str(file), todo=todo)
        try:
            Value(fields[key]).convert(value, None, None)
        except ConsilienceError as error:
            found = f"invalid value for '{key}': {value!r}"
            raise ConsilienceError(found, expected=error.expected, where=str(file)) from error
        test = fields[key].option.needs_trust
        if not is_named and test and test(value):
            raise ConsilienceError(
                f"{key} in a configuration file that was found, not named",
                expected="what runs code or sends a key in a file that you name, or on the command "
                "line",
                where=str(file),
                todo=f"If you trust the file, add --config {file}.",
            )
    return {
        fields[key].name: [value] if fields[key].is_list and not isinstance(value, list) else value
        for key, value in table.items()
    }


class Value(click.ParamType):  # type: ignore[type-arg]
    """The value of a field, from a text that was typed or from a configuration file."""

    def __init__(self, field: OptionField) -> None:
        self.field, self.name = field, field.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        is_text = isinstance(value, str) and self.field.type is not bool
        try:
            return self.field.parse(value) if is_text else self.field.check(value)
        except ConsilienceError as error:
            where = ctx.command_path if ctx else ""
            name = getattr(param, "shown", self.field.flag)
            raise ConsilienceError(
                f"invalid value for '{name}': '{value}'",
                expected=error.expected,
                where=where,
                todo=f"See `{where} --help`.",
                kind="usage",
            ) from error


class FieldOption(click.Option):
    """The option of a field. Its default is that of the field, which click does not know."""

    def __init__(self, field: OptionField) -> None:
        is_flag = field.type is bool
        super().__init__(
            [*([field.option.short] if field.option.short else []), field.flag, field.name],
            type=None if is_flag else Value(field),
            is_flag=is_flag or None,  # False would make values optional
            multiple=field.is_list,  # so that a list may also be written in parts
            required=field.default is MISSING,
            help=field.option.help,
        )
        self.field, self.panel = field, field.option.panel or "Options"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Its names and its value, and what it does."""
        field, option = self.field, self.field.option
        default = field.default
        facts = ["required"] if default is MISSING else []
        if not (default is None or default is False or default in (MISSING, "", ())):
            facts.append(f"default: {_shown(default)}")
        facts += ["may be repeated"] if field.is_repeated else []
        facts += [field.range] if (option.min or 0) > 1 else []
        return self.names, f"{option.help}  [{'; '.join(facts)}]" if facts else option.help

    @property
    def names(self) -> str:
        """Its names and what stands for its value."""
        field, option = self.field, self.field.option
        names = f"{option.short}, {field.flag}" if option.short else f"    {field.flag}"
        metavar = option.metavar or "|".join(field.choices) or METAVARS.get(field.type.__name__, "")
        return f"{names} {metavar}".rstrip()


class FieldArgument(click.Argument):
    """The argument of a field."""

    def __init__(self, field: OptionField) -> None:
        super().__init__(
            [field.name],
            type=Value(field),
            nargs=-1 if field.is_list else 1,
            required=field.default is MISSING,
        )
        self.field, self.panel = field, "Arguments"
        self.names = self.shown = field.option.metavar or field.name.upper()

    def make_metavar(self, ctx: click.Context) -> str:
        shown = f"{self.shown}..." if self.field.is_list else self.shown
        return shown if self.required else f"[{shown}]"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self.shown, self.field.option.help


class Entry(click.Command):
    """A command or a group, with options under the headings of their panels and with examples."""

    entry: Command | Group
    is_short = False  # Whether ``-h`` asks for what fits on a screen

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self.is_short = "-h" in args and "--help" not in args
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all of the help; a line for each command or common option after ``-h``."""
        if not self.is_short:
            super().format_help(ctx, formatter)
            return
        rows = self.common(ctx)
        self.format_usage(ctx, formatter)
        formatter.write(f"\n{_begin(self.entry.help, formatter.width)}\n\n")
        column = max((len(name) for name, _ in rows), default=0) + 4
        for name, about in rows:
            text = _begin(about, formatter.width - column)
            formatter.write(f"  {name:{column - 2}}{text}\n")
        formatter.write(f"\nEverything: {ctx.command_path} --help\n")

    def common(self, ctx: click.Context) -> list[tuple[str, str]]:
        """What the help after ``-h`` names, and what each does: parameters that are not rare."""
        fields = [
            param
            for param in self.params
            if isinstance(param, FieldOption | FieldArgument)
            and not (param.field.option.is_rare or param.name in GENERALS)
        ]
        panels: Sequence[str] = get_args(Panel)
        fields.sort(key=lambda param: panels.index(param.panel))
        named = (one.names if isinstance(one, FieldArgument) else ", ".join(one.opts)
                 for one in fields)  # fmt: skip
        return [*zip(named, (param.field.option.help for param in fields), strict=True)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                panels.setdefault(getattr(param, "panel", "General"), []).append(record)
        for panel in filter(panels.get, get_args(Panel)):
            with formatter.section(panel):
                formatter.write_dl(panels[panel])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each on lines of its own; further lines begin with an option."""
        for at, example in enumerate(self.entry.examples):
            lines = [""]
            for part in re.split(r" (?=--)", f"consilience {example}"):
                if len(lines[-1]) + len(part) > WIDTH - 10:
                    lines.append(part)
                else:
                    lines[-1] = f"{lines[-1]} {part}".strip()
            formatter.write("" if at else "\nExamples:\n")
            formatter.write("  " + " \\\n      ".join(lines) + "\n")


class ClickCommand(Entry):
    """A command whose parameters are fields; a configuration file has defaults of them."""

    entry: Command

    def __init__(self, entry: Command) -> None:
        fields = {field.name: field for field in option_fields(entry.options)}
        fields |= {field.name: field for field in option_fields(OutputOptions)} | fields
        params: list[click.Parameter] = [
            FieldArgument(field) if field.option.is_argument else FieldOption(field)
            for field in fields.values()
        ]
        name = entry.path.split()[-1]
        super().__init__(name, params=params, help=entry.help, context_settings=dict(SETTINGS))
        self.entry, self.file = entry, FILE
        self.used: list[OptionField] = []  # Options whose value is that of the file

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; options that are not given have the defaults of the file."""
        options = [param.field for param in self.params if isinstance(param, FieldOption)]
        fields = {field.key: field for field in options if field.name != "config"}
        named = _named_configuration(args) or _general(ctx, "config") or os.environ.get(ENVIRONMENT)
        self.file = FILE if named is None else Path(named)
        is_help = bool({"-h", "--help"} & {*args}) or ctx.resilient_parsing
        if (named or (named is None and FILE.is_file())) and not is_help:
            ctx.default_map = defaults_in(self.file, self.entry.path, fields, is_named=bool(named))
        rest = super().parse_args(ctx, args)
        for name in (one.name for one in options if one.is_list and not one.is_repeated):
            ctx.params[name] = tuple(one for part in ctx.params[name] or () for one in part)
        sources = {one: ctx.get_parameter_source(one.name) for one in fields.values()}
        self.used = [one for one, source in sources.items() if source == FROM_FILE]
        return rest

    def invoke(self, ctx: click.Context) -> int:
        """Call the function with the values of its options, and print its result; the status."""
        from consilience.app.console import Screen, err, present
        from consilience.core.provenance import from_file

        err.quiet = bool(_general(ctx, "quiet"))
        if self.used:
            err.print(f"defaults from {self.file}: {', '.join(field.key for field in self.used)}")
        kind = self.entry.options
        own = [field.name for field in option_fields(kind)]
        generals = {name: _general(ctx, name) for name in GENERALS if name not in own}
        chosen = {name: value for name, value in generals.items() if value is not None}
        more = {"watch": Screen()} if hasattr(kind, "watch") else {}
        values = ((field, ctx.params[field.name]) for field in self.used)
        typed = [
            word
            for field, value in values
            if field.name not in GENERALS and value != field.default
            for word in field.typed(value)
        ]
        token = from_file.set(typed)
        try:
            result = self.entry.run(kind(**_given(own, ctx), **more))
        finally:
            from_file.reset(token)
        return 0 if result is None else present(result, OutputOptions(**chosen))


class ClickGroup(Entry, click.Group):
    """A group of commands; ``load`` imports the module that declares a command, or all."""

    def __init__(
        self,
        entry: Group,
        options: Sequence[click.Option] = (),
        load: Callable[[str], None] = lambda name: None,
    ) -> None:
        generals = [FieldOption(field) for field in option_fields(OutputOptions)]
        super().__init__(
            entry.path.split(" ")[-1] or "consilience",
            help=entry.help,
            params=[*options, *generals],
            no_args_is_help=True,
            context_settings=dict(SETTINGS),
        )
        self.entry, self.load = entry, load

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return list(within(self.entry.path) if self.entry.path else NAMES)

    def get_command(self, ctx: click.Context | None, name: str) -> ClickCommand | ClickGroup | None:
        self.load(name)
        entry = within(self.entry.path).get(name)
        if entry is None:
            return None
        return ClickCommand(entry) if isinstance(entry, Command) else ClickGroup(entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            todo = did_you_mean(name, self.list_commands(ctx))
            where = ctx.command_path
            raise ConsilienceError(f"no command '{name}'", where=where, todo=todo, kind="usage")
        return super().resolve_command(ctx, args)

    def common(self, ctx: click.Context) -> list[tuple[str, str]]:
        """What ``-h`` names: the commands."""
        self.load("")
        known = within(self.entry.path)
        return [(name, known[name].help) for name in self.list_commands(ctx)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, about in self.common(ctx):
            panel = within(self.entry.path)[name].panel
            panels.setdefault(panel, []).append((name, about.partition("\n")[0]))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)


def within(path: str) -> dict[str, Command | Group]:
    """The commands and groups of a group, by name."""
    before = f"{path} " if path else ""
    return {
        words.removeprefix(before): entry
        for words, entry in KNOWN.items()
        if words.startswith(before) and " " not in words.removeprefix(before)
    }


def run_program(program: ClickGroup) -> None:
    """Parse the arguments of the process, and run the command."""
    try:
        if status := program.main(prog_name="consilience", standalone_mode=False):
            sys.exit(status)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.ClickException as error:
        raise _usage_error(error) from error


def _usage_error(error: click.ClickException) -> ConsilienceError:
    ctx = getattr(error, "ctx", None)
    where = ctx.command_path if ctx else ""
    todo = f"See `{where} --help`." if where else ""
    param: Any = getattr(error, "param", None)
    if isinstance(error, click.NoSuchOption):
        params = ctx.command.get_params(ctx) if ctx else []
        known = [name for param in params for name in param.opts if name.startswith("-")]
        message = f"no option '{error.option_name}'"
        todo = did_you_mean(error.option_name, known, f"See `{where} --help`.")
    elif isinstance(error, click.MissingParameter) and hasattr(param, "field"):
        message = f"missing {param.param_type_name} '{getattr(param, 'shown', param.opts[-1])}'"
        todo = f"{param.field.option.help} {todo}"
    else:
        message = error.format_message().rstrip(".")
        message = message.replace("requires an argument", "needs a value")
        message = message[:1].lower() + message[1:]
    return ConsilienceError(message, where=where, todo=todo, kind="usage")


def _given(names: Sequence[str], ctx: click.Context) -> dict[str, Any]:
    """The values of those options that were typed or are in the file."""
    chosen = (ParameterSource.COMMANDLINE, FROM_FILE)
    return {name: ctx.params[name] for name in names if ctx.get_parameter_source(name) in chosen}


def _general(ctx: click.Context | None, name: str) -> Any:
    """A general option, which may be given before the name of the command too."""
    return ctx and (ctx.params.get(name) or _general(ctx.parent, name))


def _named_configuration(arguments: Sequence[str]) -> str | None:
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--config":
            return value if equals else next(iter(arguments[at + 1 :]), None)
    return None


def _begin(text: str, width: int) -> str:
    """The first sentence of a help text, as far as it fits."""
    sentence = re.split(r"(?<=[.])\s| \[", " ".join(text.split()))[0]
    fits = len(sentence) <= width
    return sentence if fits else f"{sentence[: width - 3].rpartition(' ')[0]}..."


def _shown(default: Any) -> str:
    values = default if isinstance(default, list | tuple) else [default]
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
