"""Options: what a command takes, declared once for Python, the command line and files.

An option is a parameter ``name: Annotated[type, Option("What it does.")] = default`` of the
function of a command, or a field of a dataclass (``Options``) where several functions pass the
values on. Its name is the flag (``--name``), the keyword in Python, the key in ``consilience.toml``
and the name in the record of a run. One that may be given by its position is an argument. What
several commands have is a type in ``commands``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, wraps
from inspect import Parameter, Signature, signature, unwrap
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import click

from consilience.core.errors import ConsilienceError, TableFormat, did_you_mean, missing

if TYPE_CHECKING:  # a caller may give a text, too, or a dictionary
    FilePath: TypeAlias = Any
    OptionalPath: TypeAlias = Any
    Paths: TypeAlias = Any
    Named: TypeAlias = Any
else:
    FilePath, OptionalPath, Paths, Named = Path, Path | None, Sequence[str], Sequence[str] | None

FACTS, PAIRS, QUESTIONS = ("facts",), ("pairs",), ("questions",)  # Kinds of suites

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of an option beside its name, its type and its default."""

    help: str
    metavar: str | None = None
    short: str | None = None
    min: int | None = None
    max: int | None = None
    pattern: str = ""  # What a text matches as a whole; empty for any
    kinds: Sequence[str] = ()
    """The kinds of suites that have it; empty for all."""
    is_repeated: bool = False  # Whether a list is several options of a value each; else with commas
    joins: str = ""
    """What joins the values of a name; the list may then be a dictionary in Python."""
    is_rare: bool = False  # Whether only ``--help`` shows it, and not ``-h``
    needs_trust: Callable[[Any], bool] | None = None
    """Whether a value runs code, names an address or sends a key.

    Such a value counts from the command line, a Python call, or a file that the user named; never
    from a configuration file that was found.
    """


class Text(click.ParamType):  # type: ignore[type-arg]
    """A text or a path, which is not empty."""

    def __init__(self, kind: type, option: Option) -> None:
        self.kind, self.option, self.name = kind, option, "path" if kind is Path else "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str | os.PathLike):
            self.fail(f"a value of type {type(value).__name__}; expected a {self.name}", param, ctx)
        if not os.fspath(value) and (param is None or value != param.default):
            self.fail(f"an empty {self.name}", param, ctx)
        if self.option.pattern and not re.fullmatch(self.option.pattern, str(value)):
            self.fail(f"'{value}'; expected {self.option.help}", param, ctx)
        return self.kind(os.fspath(value))


class WholeNumber(click.IntRange):
    """A whole number. No other number is rounded to one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not isinstance(value, int | str) or isinstance(value, bool):
            self.fail(f"{value!r} is not a valid whole number.", param, ctx)
        number: Any = value
        return super().convert(number, param, ctx)


class Declared(click.Parameter):
    """An option or an argument, which checks values of the command line, of files and of Python."""

    option: Option
    is_list: bool

    @property
    def key(self) -> str:
        """Its name in a file; on the command line it has dashes before it."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        return f"--{self.key}"

    def type_cast_value(self, ctx: click.Context | None, value: Any) -> Any:
        """The value as the function takes it; lists may be texts with commas."""
        if not self.is_list or value is None:
            return value if value is None else self.type(value, self, ctx)
        values = _listed(value)
        if isinstance(value, Mapping) and self.option.joins:
            lists = [*map(_listed, value.values())]
            texts = [self.option.joins.join(map(str, of)) for of in lists]
            values = [f"{name}={text}" for name, text in zip(value, texts, strict=True)]
        elif not self.option.is_repeated and isinstance(self, click.Option):
            values = [
                part.strip() if isinstance(part, str) else part
                for one in values
                for part in (filter(str.strip, one.split(",")) if isinstance(one, str) else [one])
            ]
        if not values and self.default != ():
            raise click.BadParameter("an empty list.", ctx, self)
        return tuple(self.type(one, self, ctx) for one in values)

    def arguments(self, value: Any) -> list[str]:
        """The arguments that give it this value on the command line."""
        if isinstance(value, bool):
            return [self.flag] if value else []
        values = [*map(str, value)] if self.is_list else [str(value)]
        if self.option.is_repeated:
            return [argument for one in values for argument in (self.flag, one)]
        return [self.flag, ",".join(values)]


def _listed(value: Any) -> list[Any]:
    """The values of a list, a tuple, a range or an array; another value, also a frame, alone."""
    is_one = isinstance(value, str | Mapping) or hasattr(value, "columns")
    return [value] if is_one or not hasattr(value, "__iter__") else [*value]


class DeclaredOption(Declared, click.Option):
    """An option, which is given by its name."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{self.flag}'"


class DeclaredArgument(Declared, click.Argument):
    """An argument, which is given by its position."""


METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
"""The placeholder of a value in the help, by its type."""


def _declared(parameter: Parameter, hint: Any) -> Declared:
    """A parameter of a function as one of click; the type of a value is a type of click."""
    hint, option, *facts = get_args(hint)
    for more in facts:
        option = replace(option, **more)
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = next(member for member in members if member is not NoneType)
    is_list = get_origin(kind) not in (None, Literal)
    kind = get_args(kind)[0] if is_list else kind
    of: Any = Text(kind, option) if kind in (str, Path) else click.BOOL
    if get_origin(kind) is Literal:
        of = click.Choice(get_args(kind))
    elif kind in (int, float):
        of = (WholeNumber if kind is int else click.FloatRange)(option.min, option.max)
        of.name = "whole number" if kind is int else "number"
    metavar = option.metavar or METAVARS.get(kind)
    default = {} if parameter.default is Parameter.empty else {"default": parameter.default}
    made: Declared
    if parameter.kind is Parameter.KEYWORD_ONLY:
        only = f" [{' and '.join(option.kinds)} only]" if option.kinds else ""
        made = DeclaredOption(
            [*([option.short] if option.short else []), f"--{parameter.name.replace('_', '-')}"],
            type=of, is_flag=kind is bool or None, multiple=is_list, required=not default,
            metavar=f"{metavar} ..." if option.is_repeated else metavar,
            help=option.help + only, show_default=True, **default,
        )  # fmt: skip
    else:
        shown = option.metavar or parameter.name.upper()
        made = DeclaredArgument(
            [parameter.name], type=of, nargs=-1 if is_list else 1, required=not default,
            metavar=f"{shown}..." if is_list else shown, help=option.help, **default,
        )  # fmt: skip
    made.option, made.is_list = option, is_list
    return made


@cache
def parameters(declares: Any) -> Mapping[str, Declared]:
    """The options and arguments of a function or of a dataclass, by name, in their order."""
    declares = getattr(declares, "declared_by", declares)
    if isinstance(declares, type):
        hints = get_type_hints(declares, include_extras=True)
    else:  # what a function returns is known to type checkers only
        function = unwrap(declares)
        types = {name: of for name, of in function.__annotations__.items() if name != "return"}
        own = SimpleNamespace(__annotations__=types)
        hints = get_type_hints(own, function.__globals__, include_extras=True)
    return {
        name: _declared(parameter, hints[name])
        for name, parameter in signature(declares).parameters.items()
        if get_origin(hints.get(name)) is Annotated
    }


def checked(declares: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name as a function takes them; one of another type or out of its range raises."""
    known, taken = parameters(declares), dict(values)
    for name in values.keys() & known.keys():
        value, default = values[name], known[name].default
        if value is default:
            continue
        try:
            taken[name] = known[name].type_cast_value(None, value)
            if value is None and default is not None:
                raise click.BadParameter("None is no value of it.")
        except click.BadParameter as error:
            raise ConsilienceError(f"{name}: {error.message.rstrip('.')}") from error
    return taken


def refuse_unknown(
    known: Iterable[str], names: Iterable[str], where: str = "", what: str = "option"
) -> None:
    """Raise for a name that is not known."""
    options = [*known]
    for name in names:
        if name not in options:
            todo = did_you_mean(name, options)
            raise ConsilienceError(f"no {what} '{name}'", where=where, todo=todo)


class Options:
    """Values of options that several functions pass on; a subclass is a frozen dataclass."""

    def __post_init__(self) -> None:
        """Check every value; paths may be text, and lists one text with commas."""
        for name, value in checked(type(self), vars(self)).items():
            object.__setattr__(self, name, value)


def plain_signature(declares: Callable[..., Any]) -> Signature:
    """The parameters without their types, which are long: for ``help()``."""
    whole = signature(declares).parameters.values()
    return Signature([one.replace(annotation=Parameter.empty) for one in whole])


def checking(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with the values of its options checked and converted."""

    @wraps(function)
    def call(*values: P.args, **keywords: P.kwargs) -> R:
        whole = signature(function)
        refuse_unknown(whole.parameters, keywords)
        try:
            bound = whole.bind(*values, **keywords)
        except TypeError as error:
            known = ", ".join(whole.parameters)
            raise ConsilienceError(f"{error}", expected=f"{function.__name__}({known})") from error
        of_values: Callable[..., R] = function
        try:
            return of_values(**checked(function, bound.arguments))
        except ImportError as error:
            raise missing(error) from error

    vars(call)["__signature__"] = plain_signature(function)
    return call


def takes(kind: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """Make a function of an options value one that takes the options as keywords."""
    made: Any = kind

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        @wraps(function)
        def call(*values: P.args, **keywords: P.kwargs) -> R:
            return function(made(*values, **keywords))

        vars(call).update(declared_by=made, __signature__=plain_signature(made))
        return call

    return decorate


def typed(kind: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Show the options of a class in place of the ``**options`` of a function."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        own, more = signature(function).parameters, plain_signature(kind).parameters
        both = [*own.values()][:-1] + [one for name, one in more.items() if name not in own]
        vars(function)["__signature__"] = Signature(both)
        return function

    return decorate


# fmt: off
@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """How every command prints its result."""

    format: Annotated[TableFormat, Option(
        "Print a table, Markdown (md), LaTeX (latex), or every number as CSV.")] = "table"
    json: Annotated[bool, Option("Print one JSON document instead.")] = False
    quiet: Annotated[bool, Option("Print results and errors only.", short="-q")] = False
