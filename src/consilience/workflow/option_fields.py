"""The options of a dataclass, decoded from its annotations: for Python, command lines and files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from keyword import iskeyword
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from consilience.core.errors import ConsilienceError
from consilience.workflow.options import Option

EXPECTED = {
    str: "text",
    int: "a whole number, such as 42",
    float: "a number, such as 0.5",
    bool: "True or False",
    Path: "a path: text or pathlib.Path",
}
"""What the message of a wrong value names, by the type of the option."""


@dataclass(frozen=True, slots=True)
class OptionField:
    """A field of an options dataclass."""

    name: str
    """The name of the field."""
    option: Option
    """How it is presented."""
    type: type
    """The type of a value, or of each value of a list."""
    choices: tuple[str, ...]
    """The possible values; empty where any is possible."""
    is_list: bool
    """Whether the value is a list."""
    is_optional: bool
    """Whether the value may be None."""
    default: Any
    """The default, or ``MISSING``."""

    @property
    def flag(self) -> str:
        """The long name of the option on the command line."""
        return self.option.flag or "--" + self.name.replace("_", "-")

    @property
    def keyword(self) -> str:
        """The name in Python: that of the command line, but for ``--out`` and reserved words."""
        name = self.flag.removeprefix("--").replace("-", "_")
        return self.name if name == "out" or iskeyword(name) else name

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default is MISSING

    @property
    def is_repeated(self) -> bool:
        """Whether each value of the list is an argument of its own; other lists have commas."""
        return self.is_list and (self.option.is_argument or self.option.is_repeated)

    @property
    def range(self) -> str:
        """The least and the greatest value in words; empty where there is none."""
        least, greatest = self.option.min, self.option.max
        if least is None:
            return ""
        return f"{least} or more" if greatest is None else f"{least} to {greatest}"

    def parse(self, text: str) -> Any:
        """The value of a text of the command line; one of the values of a repeated option."""
        if self.is_repeated:
            return self._checked(text)
        return self.check(text if self.is_list else self._number(text))

    def check(self, value: Any) -> Any:
        """The value of a Python call; one of another type or out of its range raises.

        Paths may be text. A list may be any sequence, or one text with commas.
        """
        if value is None and self.is_optional:
            return None
        if not self.is_list:
            return self._checked(value)
        if isinstance(value, os.PathLike):
            value = [value]
        if isinstance(value, str):
            value = [value] if self.is_repeated else map(self._number, names_in(value))
            value = list(value)
        if not isinstance(value, Sequence | set):
            raise self._wrong(value, f"a list of values, each {EXPECTED[self.type]}")
        return tuple(map(self._checked, value))

    def _number(self, text: str) -> Any:
        """The number in a text, where the option takes numbers; else the text."""
        if self.type not in (int, float):
            return text
        try:
            return self.type(text)
        except ValueError:
            raise self._wrong(text, EXPECTED[self.type]) from None

    def _checked(self, value: Any) -> Any:
        """A single value, checked."""
        if self.choices and not (isinstance(value, str) and value in self.choices):
            raise self._wrong(value, " or ".join(map(repr, self.choices)))
        is_path = isinstance(value, os.PathLike) or (self.type is Path and isinstance(value, str))
        if is_path and self.type in (str, Path):
            value = self.type(os.fspath(value))
        is_bool = isinstance(value, bool)
        if self.type is float and isinstance(value, int) and not is_bool:
            value = float(value)
        if not isinstance(value, self.type) or (is_bool and self.type is not bool):
            raise self._wrong(value, EXPECTED[self.type])
        return self._in_range(value)

    def _in_range(self, value: Any) -> Any:
        least, greatest = self.option.min, self.option.max
        if (least is not None and value < least) or (greatest is not None and value > greatest):
            raise self._wrong(value, self.range)
        return value

    def _wrong(self, value: object, expected: str) -> ConsilienceError:
        """The error for a value; one that is no plain value is named by its type."""
        is_plain = value is None or isinstance(value, str | int | float | Path)
        shown = f"={value!r}" if is_plain else f" is of type {type(value).__name__}"
        todo = "Save it as a file, and pass its path." if hasattr(value, "columns") else ""
        return ConsilienceError(f"{self.keyword}{shown}", expected=expected, todo=todo)


def option_fields(options: type) -> list[OptionField]:
    """The fields of an options dataclass, in their order."""
    hints = get_type_hints(options, include_extras=True)
    return [_decoded(field.name, hints[field.name], field.default) for field in fields(options)]


def typed(option: OptionField, value: Any) -> list[str]:
    """The arguments that give an option a value on the command line."""
    if option.type is bool:
        return [option.flag] if value else []
    values = [*map(str, value)] if isinstance(value, list | tuple) else [str(value)]
    if option.is_repeated:
        return [argument for one in values for argument in (option.flag, one)]
    return [option.flag, ",".join(values)]


def _decoded(name: str, hint: Any, default: Any) -> OptionField:
    """A field from its annotation: ``Annotated[type, Option(...)]``, and perhaps another panel."""
    annotation, option, *panel = get_args(hint)
    option = replace(option, panel=panel[0]) if panel else option
    is_union = get_origin(annotation) in (Union, UnionType)
    members = get_args(annotation) if is_union else (annotation,)
    kind = next(member for member in members if member is not NoneType)
    is_list = get_origin(kind) is not None and get_origin(kind) is not Literal
    kind = get_args(kind)[0] if is_list else kind
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return OptionField(
        name, option, str if choices else kind, choices, is_list, NoneType in members, default
    )


def names_in(listed: str) -> list[str]:
    """The names of a list with commas."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise ConsilienceError(f"no name in '{listed}'", expected="names with commas between")
    return names
