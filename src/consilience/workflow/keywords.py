"""Options of workflows from the keywords of a Python call."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from consilience.errors import ConsilienceError, did_you_mean
from consilience.files import path_of
from consilience.workflow.options import Option

T = TypeVar("T")
R = TypeVar("R")

EXPECTED = {str: "text", int: "a whole number", float: "a number", bool: "True or False"}
"""What the message of a wrong value names, by the type of the option."""


def options_of(kind: type[T], keywords: Mapping[str, Any]) -> T:
    """An options value from keywords, which are the names of its fields.

    An unknown name, a missing one and a value of another type raise. Paths may be text. A list may
    be any sequence, or one text with commas.
    """
    hints = _hints(kind)
    for name in keywords:
        if name not in hints:
            raise ConsilienceError(f"no option '{name}'", todo=did_you_mean(name, [*hints]))
    for name, default in _defaults(kind).items():
        if default is MISSING and name not in keywords:
            raise ConsilienceError(f"no value for '{name}'", expected=f"{name}=...")
    return kind(**{name: _checked(name, value, hints[name]) for name, value in keywords.items()})


def by_keywords(workflow: Callable[..., R], kind: type) -> Callable[..., R]:
    """A workflow that takes the fields of its options as keywords.

    Options that the command line takes by position may be given by position here too.
    """
    hints = _hints(kind)
    positional = [name for name, hint in hints.items() if get_args(hint)[-1].is_argument]

    @wraps(workflow)
    def call(*values: Any, watch: Any = None, **keywords: Any) -> R:
        if len(values) > len(positional):
            raise ConsilienceError(
                f"{len(values)} values without a name", expected=f"keywords: {', '.join(hints)}"
            )
        options: Any = options_of(kind, dict(zip(positional, values, strict=False)) | keywords)
        return workflow(options) if watch is None else workflow(options, watch)

    call.__signature__ = inspect.Signature(_parameters(kind))  # type: ignore[attr-defined]
    return call


def with_options(function: Callable[..., Any], kind: type) -> inspect.Signature:
    """The signature of a function whose ``**options`` are those of an options value, for ``help``.

    Options that are parameters of the function stay as the function has them.
    """
    signature = inspect.signature(function)
    named = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    names = {parameter.name for parameter in named}
    options = [parameter for parameter in _parameters(kind) if parameter.name not in names]
    return signature.replace(parameters=[*named, *options])


def _parameters(kind: type) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is MISSING else default,
        )
        for name, default in _defaults(kind).items()
    ]


def _hints(kind: type) -> dict[str, Any]:
    """``Annotated`` types of the fields, each with its ``Option``."""
    return get_type_hints(kind, include_extras=True)


def _defaults(kind: type) -> dict[str, Any]:
    return {field.name: field.default for field in fields(kind)}


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value of an option; one of another type or out of its range raises."""
    kind, option = get_args(hint)
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and NoneType in members:
        return None
    member = next(member for member in members if member is not NoneType)
    checked = _of_type(name, value, member)
    _check_range(name, checked, option)
    return checked


def _of_type(name: str, value: Any, kind: Any) -> Any:
    if kind is Path:
        return path_of(value, name)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise _wrong(name, value, " or ".join(map(repr, get_args(kind))))
        return value
    if isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Iterable):
        item = get_args(kind)[0]
        values = value.split(",") if isinstance(value, str) else value
        if not isinstance(values, Sequence | set):
            raise _wrong(name, value, f"a list of values, each {EXPECTED[item]}")
        if isinstance(value, str):
            values = [text.strip() for text in values]
        return tuple(_of_type(name, element, item) for element in values)
    if kind is str and isinstance(value, os.PathLike):
        return str(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(name, value, EXPECTED[kind])
    return value


def _check_range(name: str, value: Any, option: Option) -> None:
    if option.min is not None and value < option.min:
        raise _wrong(name, value, f"{option.min} or more")
    if option.max is not None and value > option.max:
        raise _wrong(name, value, f"{option.max} or less")


def _wrong(name: str, value: object, expected: str) -> ConsilienceError:
    return ConsilienceError(f"{name}={value!r}", expected=expected)
