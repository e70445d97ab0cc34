"""Commands: functions whose parameters are options of the command line and of a file."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource, augment_usage_errors

from consilience.core.errors import ConsilienceError
from consilience.options import (
    DeclaredOption,
    OutputOptions,
    P,
    R,
    checking,
    parameters,
    refuse_unknown,
)

WIDTH = 100  # Characters of the longest line of a help text
FILE = Path("consilience.toml")  # In the working folder; it is read if it is there
HELP = ("-h", "--help")
GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)  # Typed, or in the file


def read_defaults(ctx: click.Context, param: click.Parameter, file: str | None) -> None:
    """Read the defaults that a file sets for a command: those of its table, such as [probe].

    ``suite check`` has the table [suite.check]. An unknown key raises. ``file``: the one that is
    named; an empty name reads none.
    """
    import tomllib

    is_found = file is None and FILE.is_file()
    if ctx.resilient_parsing or not (file or is_found):
        return
    ctx.meta.update(file=(file := file or str(FILE)), is_found=is_found)
    try:
        table: Any = tomllib.loads(Path(file).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConsilienceError(f"not TOML: {error}", where=file) from error
    level: Any = ctx.find_root().command
    words = ctx.command_path.split()[1:]
    for word in words:
        refuse_unknown(level.commands, table, file, "table")
        table, level = table.get(word, {}), level.commands[word]
        if not isinstance(table, dict):
            raise ConsilienceError(f"{word} = {table!r}", expected="a table of options", where=file)
    known = {one.key: one for one in level.own.values() if isinstance(one, DeclaredOption)}
    refuse_unknown(known, table, f"{file}: [{'.'.join(words)}]")
    ctx.default_map = {known[key].name: value for key, value in table.items()}


def print_common(ctx: click.Context, param: click.Parameter, is_asked: bool) -> None:
    """Print the help that fits on a screen: a line for each option that is not rare."""
    if not is_asked or ctx.resilient_parsing:
        return
    command: Any = ctx.command
    formatter = ctx.make_formatter()
    command.format_usage(ctx, formatter)
    formatter.write(f"\n{command.help.partition(chr(10))[0]}\n\n")
    shown = [one for one in parameters(command.callback).values() if not one.option.is_rare]
    rows = [(", ".join(one.opts), re.split(r"(?<=[.])\s| \[", one.option.help)[0]) for one in shown]
    if rows:
        with formatter.indentation():
            formatter.write_dl(rows, col_max=99)
    print(f"{formatter.getvalue()}\nEverything: {ctx.command_path} --help")
    ctx.exit()


class Command(click.Command):
    """A command: a function that takes its arguments and its options as keywords."""

    def __init__(self, name: str, function: Callable[..., Any], examples: Sequence[str]) -> None:
        super().__init__(
            name,
            callback=function,
            help=inspect.getdoc(function),
            epilog="\n  consilience ".join(["\b\nExamples:", *examples]),
            context_settings={"max_content_width": WIDTH},
        )
        self.examples = examples

    @property
    def own(self) -> dict[str, Any]:
        """The parameters of the function, and those of the output, by name."""
        assert self.callback
        own = parameters(self.callback)
        return {**own, **parameters(OutputOptions), **own}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its parameters, which are made when they are needed."""
        if not self.params:
            self.params = [
                *self.own.values(),
                click.Option(
                    ["--config"], metavar="FILE", is_eager=True,
                    callback=read_defaults, expose_value=False,
                    help="Defaults [default: consilience.toml, if it is there].",
                ),
                click.Option(
                    ["-h"], is_flag=True, callback=print_common, is_eager=True, expose_value=False,
                    help="Show the common options and exit.",
                ),
            ]  # fmt: skip
        return super().get_params(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; nothing that is wrong, here or in a file, hides the help."""
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, [one for one in args if one in HELP] or args)

    def invoke(self, ctx: click.Context) -> int:
        """Call the function with the values that were given, and print its result; the status."""
        from consilience.app.console import ConsoleProgress, err, present

        assert self.callback
        sources = {name: ctx.get_parameter_source(name) for name in self.own}
        given = {name: ctx.params[name] for name in self.own if sources[name] in GIVEN}
        named = parameters(OutputOptions).keys() - parameters(self.callback).keys()
        output = OutputOptions(**{name: given.pop(name) for name in given.keys() & named})
        err.quiet = output.quiet
        used = {one.key: name for name, one in self.own.items() if sources[name] is GIVEN[1]}
        for key, name in used.items() if ctx.meta.get("is_found") else ():
            if (risk := self.own[name].option.needs_trust) and risk(ctx.params[name]):
                found = f"{key}, which runs code, names an address or sends a key, in a file"
                todo = f"If you trust the file, name it: --config {FILE}. Else use --config ''."
                raise ConsilienceError(f"{found} that nobody named", where=str(FILE), todo=todo)
        if used:
            err.print(f"defaults from {ctx.meta['file']}: {', '.join(used)}")
        if "progress" in inspect.signature(self.callback).parameters:
            given["progress"] = ConsoleProgress()
        return present(self.callback(**given), output)


class Group(click.Group):
    """Commands with a common first word, in the order in which they are declared."""

    def __init__(self, name: str, about: str, parent: Group | None = None) -> None:
        settings = {"help_option_names": HELP, "max_content_width": WIDTH}
        super().__init__(name, help=about, no_args_is_help=True, context_settings=settings)
        if parent:
            parent.add_command(self)

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return [*self.commands]

    def command(  # type: ignore[override]
        self, name: str, *examples: str
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Declare a function as a command of this group, whose help is its docstring."""

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            made = checking(function)
            self.add_command(Command(name, made, examples))
            return made

        return decorate


program = Group(
    "consilience", "Measure whether a language model answers the same however it is asked."
)
click.version_option(None, "-V", "--version", message="%(prog)s %(version)s")(program)


def run_program(program: Group) -> None:
    """Parse the arguments of the process, and run the command; a wrong one raises our error."""
    try:
        if status := program.main(prog_name="consilience", standalone_mode=False):
            sys.exit(status)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.ClickException as error:
        ctx: Any = getattr(error, "ctx", None)
        param: Any = getattr(error, "param", None)
        where = ctx.command_path if ctx else "consilience"
        message = " ".join(error.format_message().split())
        todo = "" if message.endswith(("?", "?)")) or not ctx else f"See `{where} --help`."
        if isinstance(error, click.MissingParameter):
            todo = f"{param.option.help} {todo}"
        if param and ctx.get_parameter_source(param.name) is ParameterSource.DEFAULT_MAP:
            where = ctx.meta["file"]
        message = message[:1].lower() + message[1:].rstrip(".")
        raise ConsilienceError(message, where=where, todo=todo, kind="usage") from error
