"""The command line of a workflow, made from its options dataclass (``workflow/options.py``)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from consilience.cli.completion import COMPLETIONS
from consilience.errors import ConsilienceError

T = TypeVar("T")
N = TypeVar("N", int, float)

NUMBERS = {int: "a whole number, such as 42", float: "a number, such as 0.5"}
"""What the numbers of a list look like, by their type."""


METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
"""The placeholder of a value in the help, by its type."""


def command_of(options: type[T]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function of an options value the parameters of a command, one for each field.

    The function takes the value first; further parameters of its own stay as they are. A field
    that holds a sequence is given as a list with commas; as an argument, several times.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(options, include_extras=True)
        names = [field.name for field in fields(options)]  # type: ignore[arg-type]
        readers = {name: _reader(hints[name]) for name in names}

        def command(**typed: Any) -> None:
            values = {name: readers[name](typed.pop(name)) for name in names}
            function(options(**values), **typed)

        _, *extra = inspect.signature(function, eval_str=True).parameters.values()
        parameters = [
            *(_parameter(field, hints[field.name]) for field in fields(options)),  # type: ignore[arg-type]
            *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in extra),
        ]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _parameter(field: Field[Any], hint: Any) -> inspect.Parameter:
    """The parameter of a field."""
    kind, option = get_args(hint)
    item = _item_of(kind)
    if option.is_argument:
        kind = list[item] if item else kind  # type: ignore[valid-type]
        shown: Any = typer.Argument(
            help=option.help,
            metavar=option.metavar or field.name.upper(),
            autocompletion=COMPLETIONS.get(field.name),
        )
    else:
        kind = (str | None if _is_optional(kind) else str) if item else kind
        flag = option.flag or "--" + field.name.replace("_", "-")
        names = (option.short, flag) if option.short else (flag,)
        shown = typer.Option(
            *names,
            help=option.help,
            metavar=option.metavar or _metavar(kind),
            min=option.min,
            max=option.max,
            rich_help_panel=option.panel,
            autocompletion=COMPLETIONS.get(field.name),
        )
    default = field.default
    if default is MISSING:
        default = inspect.Parameter.empty
    elif item and default is not None:
        default = ",".join(f"{value:g}" if item is float else str(value) for value in default)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, shown],
    )


def _metavar(kind: Any) -> str | None:
    """The placeholder of a value of a type in the help; None for flags."""
    first = next(member for member in _members(kind) if member is not type(None))
    return "|".join(get_args(first)) if get_origin(first) is Literal else METAVARS.get(first)


def _reader(hint: Any) -> Callable[[Any], Any]:
    """What makes the value of a field from what was typed."""
    kind, option = get_args(hint)
    item = _item_of(kind)

    def read(typed: Any) -> Any:
        if item is None or typed is None:
            return typed
        if option.is_argument:
            return tuple(typed)
        return tuple(names_in(typed) if item is str else numbers_in(typed, item, NUMBERS[item]))

    return read


def _item_of(kind: Any) -> Any:
    """The type of the items of a sequence; None for any other type."""
    for member in _members(kind):
        if get_origin(member) in (tuple, Sequence, Iterable):
            return get_args(member)[0]
    return None


def _is_optional(kind: Any) -> bool:
    return type(None) in _members(kind)


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; itself for any other type."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def names_in(listed: str) -> list[str]:
    """The names of a list with commas."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise ConsilienceError(f"no name in '{listed}'", expected="names with commas between")
    return names


def numbers_in(text: str, kind: type[N], expected: str) -> list[N]:
    """The numbers of a list with commas; ``expected``: what one looks like."""
    numbers = []
    for name in names_in(text):
        try:
            numbers.append(kind(name))
        except ValueError:
            raise ConsilienceError(f"no number in '{name}'", expected=expected) from None
    return numbers
