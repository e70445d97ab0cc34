"""Options of workflows from the keywords of a Python call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.workflow.option_fields import option_fields

T = TypeVar("T")
R = TypeVar("R")


def options_of(kind: type[T], keywords: Mapping[str, Any]) -> T:
    """An options value from keywords: the long names of the command line, with ``_`` for ``-``.

    An unknown name, a missing one and a value of another type raise.
    """
    values = by_field(kind, keywords)
    known = {field.name: field for field in option_fields(kind)}
    for name, field in known.items():
        if field.is_required and name not in values:
            raise ConsilienceError(
                f"no value for '{field.keyword}'", expected=f"{field.keyword}=..."
            )
    return kind(**{name: known[name].check(value) for name, value in values.items()})


def by_field(kind: type, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The values of keywords by the names of the fields; these names are keywords, too.

    A name of the command line comes first where it is also that of another field.
    """
    known = option_fields(kind)
    fields = {field.name: field.name for field in known}
    fields |= {field.flag.removeprefix("--").replace("-", "_"): field.name for field in known}
    values: dict[str, Any] = {}
    for name, value in keywords.items():
        if name not in fields:
            shown = [field.keyword for field in known]
            hint = did_you_mean(name, shown)
            todo = hint if hint.startswith("Did") else f"Known: {', '.join(shown)}."
            raise ConsilienceError(f"no option '{name}'", todo=todo)
        if fields[name] in values:
            raise ConsilienceError(f"two values for '{name}'", expected="one value")
        values[fields[name]] = value
    return values


def by_keywords(workflow: Callable[..., R], kind: type) -> Callable[..., R]:
    """A workflow that takes its options as keywords.

    Options that the command line takes by position may be given by position here too.
    """

    @wraps(workflow)
    def call(*values: Any, watch: Any = None, **keywords: Any) -> R:
        known = option_fields(kind)
        positional = [field.keyword for field in known if field.option.is_argument]
        if len(values) > len(positional):
            raise ConsilienceError(
                f"{len(values)} values without a name",
                expected=f"keywords: {', '.join(field.keyword for field in known)}",
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
            field.keyword,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.is_required else field.default,
        )
        for field in option_fields(kind)
    ]
