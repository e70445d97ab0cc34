"""Options: values whose fields are declared once, for Python, the command line and files.

A field is ``name: type = opt("What it does.", default=...)``, or has one of the shared types at the
end of this module and perhaps an ``opt`` without a text, which replaces some of its facts. Its name
is the flag (``--name``), the keyword in Python, the key in a configuration file and the name in the
record of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from consilience.core.errors import (
    SILENT,
    ConsilienceError,
    TableFormat,
    Watch,
    did_you_mean,
    missing,
)

if TYPE_CHECKING:
    from inspect import Signature
    from os import PathLike
    from typing import Generic

    Given = TypeVar("Given")
    Kept = TypeVar("Kept")

    class Taken(Generic[Given, Kept]):
        """A field that takes values of several types and has one."""

        def __get__(self, options: object, kind: type | None = None) -> Kept:
            """The value of the field."""

        def __set__(self, options: object, value: Given) -> None:
            """The value that a caller may give."""

    FilePath = Taken[str | PathLike[str], Path]
    OptionalPath = Taken[str | PathLike[str] | None, Path | None]
    Paths = Taken[str | PathLike[str] | Sequence[str | PathLike[str]], Sequence[str]]
else:
    FilePath, OptionalPath, Paths = Path, Path | None, Sequence[str]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

EXPECTED = {
    str: "text",
    int: "a whole number, such as 42",
    float: "a number, such as 0.5",
    bool: "True or False",
    Path: "a path: text or pathlib.Path",
}
"""What the message of a wrong value names, by the type of the option."""

Panel = Literal[
    "Arguments", "Options", "Model", "Models behind a URL", "Questions", "Facts only",
    "Facts and questions only", "Questions only",
    "Sentence pairs only", "Sentence pairs and questions only", "Training", "Output", "General",
]  # fmt: skip
"""The headings of options, in the order of the help."""


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line presents a field."""

    help: str = ""
    metavar: str | None = None
    flag: str | None = None  # Its name outside of Python, where the field's is reserved there
    short: str | None = None
    min: int | None = None
    max: int | None = None
    panel: Panel | None = None
    is_argument: bool = False  # Whether it is given by its position, without a name
    is_repeated: bool = False  # Whether a list is several options of a value each; else with commas
    is_rare: bool = False
    needs_trust: Callable[[Any], bool] | None = None
    """Whether a value runs code or sends a key.

    Such a value counts from the command line, a Python call, or a file that the user named; never
    from a configuration file that was found.
    """


def opt(help: str = "", *, default: Any = MISSING, **facts: Any) -> Any:
    """A field of an options value; ``facts`` are those of ``Option``."""
    facts |= {"help": help} if help else {}
    return field(default=default, metadata={"facts": facts})


def arg(help: str = "", *, default: Any = MISSING, **facts: Any) -> Any:
    """A field that is given by its position."""
    return opt(help, default=default, is_argument=True, **facts)


@dataclass_transform(frozen_default=True, field_specifiers=(opt, arg, field))
class Options:
    """The parameters of a command; a subclass becomes a frozen dataclass when it is used."""

    if not TYPE_CHECKING:

        def __new__(cls, *values: Any, **keywords: Any) -> Options:
            """A value of a class that is complete."""
            _complete(cls)
            return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check every value; paths may be text, and lists one text with commas."""
        for entry in option_fields(type(self)):
            value = getattr(self, entry.name)
            if value is not entry.default:
                object.__setattr__(self, entry.name, entry.check(value))


def _complete(kind: type) -> None:
    """Make an options class, and those that it is made of, a dataclass."""
    for entry in reversed(kind.__mro__):
        if issubclass(entry, Options) and "__dataclass_fields__" not in vars(entry):
            dataclass(frozen=True)(entry)


class Watched(Options):
    """Options of work that takes time."""

    watch: Watch = field(default=SILENT, kw_only=True, repr=False, compare=False)
    """Shows progress; by default nothing is shown."""


@dataclass(frozen=True, slots=True)
class OptionField:
    """A field of an options value."""

    name: str
    option: Option
    type: type  # The type of a value, or of each value of a list
    choices: tuple[str, ...]  # The possible values; empty where any is possible
    is_list: bool
    is_optional: bool
    default: Any  # The default, or ``MISSING``

    @property
    def key(self) -> str:
        """The name on the command line, without dashes before it, and in files."""
        return self.option.flag or self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        return f"--{self.key}"

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
        """The value of a Python call; one of another type or out of its range raises."""
        if value is None and self.is_optional:
            return None
        if not self.is_list:
            return self._checked(value)
        if isinstance(value, Mapping) and self.is_repeated:
            value = [
                f"{name}={of if isinstance(of, str) else ','.join(map(str, of))}"
                for name, of in value.items()
            ]
        if isinstance(value, str) and not self.is_repeated:
            names = [name.strip() for name in value.split(",") if name.strip()]
            if not names:
                raise ConsilienceError(
                    f"no name in '{value}'", expected="names with commas between"
                )
            value = [*map(self._number, names)]
        elif isinstance(value, str) or not isinstance(value, Sequence | set):
            value = [value]
        return tuple(map(self._checked, value))

    def typed(self, value: Any) -> list[str]:
        """The arguments that give the option a value on the command line."""
        if self.type is bool:
            return [self.flag] if value else []
        values = [*map(str, value)] if isinstance(value, list | tuple) else [str(value)]
        if self.is_repeated:
            return [argument for one in values for argument in (self.flag, one)]
        return [self.flag, ",".join(values)]

    def _number(self, text: str) -> Any:
        """The number in a text, where the option takes numbers; else the text."""
        if self.type not in (int, float):
            return text
        try:
            return self.type(text)
        except ValueError:
            raise self._wrong(text, EXPECTED[self.type]) from None

    def _checked(self, value: Any) -> Any:
        if self.choices and not (isinstance(value, str) and value in self.choices):
            raise self._wrong(value, " or ".join(map(repr, self.choices)))
        if self.type in (str, Path) and isinstance(value, str | os.PathLike):
            value = self.type(os.fspath(value))
        is_bool = isinstance(value, bool)
        if self.type is float and isinstance(value, int) and not is_bool:
            value = float(value)
        if not isinstance(value, self.type) or (is_bool and self.type is not bool):
            raise self._wrong(value, EXPECTED[self.type])
        number: Any = value
        least, greatest = self.option.min, self.option.max
        if (least is not None and number < least) or (greatest is not None and number > greatest):
            raise self._wrong(value, self.range)
        return value

    def _wrong(self, value: object, expected: str) -> ConsilienceError:
        """The error for a value; one that is no plain value is named by its type."""
        is_plain = value is None or isinstance(value, str | int | float | Path)
        shown = f"={value!r}" if is_plain else f" is of type {type(value).__name__}"
        todo = "Save it as a file, and pass its path." if hasattr(value, "columns") else ""
        return ConsilienceError(f"{self.name}{shown}", expected=expected, todo=todo)


_FIELDS: dict[type, list[OptionField]] = {}


def option_fields(kind: type) -> list[OptionField]:
    """The fields of an options value that are options, in their order."""
    if kind not in _FIELDS:
        _complete(kind)
        hints = get_type_hints(kind, include_extras=True)
        _FIELDS[kind] = [
            _decoded(entry, hints[entry.name])
            for entry in fields(kind)
            if entry.metadata or get_origin(hints[entry.name]) is Annotated
        ]
    return _FIELDS[kind]


def _decoded(entry: Field[Any], hint: Any) -> OptionField:
    option = Option()
    if get_origin(hint) is Annotated:
        hint, option = get_args(hint)
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = next(member for member in members if member is not NoneType)
    is_list = get_origin(kind) not in (None, Literal)
    kind = get_args(kind)[0] if is_list else kind
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    option = replace(option, **entry.metadata.get("facts", {}))
    return OptionField(
        entry.name, option, str if choices else kind, choices, is_list, NoneType in members,
        entry.default,
    )  # fmt: skip


def options_of(kind: type[T], keywords: Mapping[str, Any]) -> T:
    """An options value from keywords; an unknown, a missing and a wrong one raise."""
    refuse_unknown(kind, keywords)
    for entry in option_fields(kind):
        if entry.default is MISSING and entry.name not in keywords:
            raise ConsilienceError(f"no value for '{entry.name}'", expected=f"{entry.name}=...")
    return kind(**keywords)


def refuse_unknown(kind: type, keywords: Mapping[str, Any]) -> None:
    """Raise for a keyword that names no option."""
    shown = [entry.name for entry in option_fields(kind)]
    known = {entry.name for entry in fields(kind)}
    for name in keywords:
        if name not in known:
            todo = did_you_mean(name, shown, f"Known: {', '.join(shown)}.")
            raise ConsilienceError(f"no option '{name}'", todo=todo)


def takes(kind: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """Make a function of an options value one that takes the options as keywords.

    Options that the command line takes by position may be given by position here too.
    """

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        made: Any = kind

        @wraps(function)
        def call(*values: P.args, **keywords: P.kwargs) -> R:
            known = option_fields(made)
            positional = [entry.name for entry in known if entry.option.is_argument]
            if len(values) > len(positional):
                raise ConsilienceError(
                    f"{len(values)} values without a name",
                    expected=f"keywords: {', '.join(entry.name for entry in known)}",
                )
            by_position: dict[str, Any] = dict(zip(positional, values, strict=False))
            options = options_of(made, by_position | keywords)
            try:
                return function(options)
            except ImportError as error:
                raise missing(error) from error

        vars(call)["takes_options"] = made  # ``__getattr__`` of the package: its signature
        return call

    return decorate


def typed(kind: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Show the options of a class in place of the ``**options`` of a function."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        vars(function)["takes_options"] = kind
        return function

    return decorate


def signature_of(kind: type, function: Callable[..., Any]) -> Signature:
    """The options as parameters, with their defaults; those by position are first.

    The parameters beside the ``**options`` of a ``function`` (``typed``) stay as it has them.
    """
    from inspect import Parameter, Signature, signature

    whole = Signature() if hasattr(function, "__wrapped__") else signature(function)
    own = {
        name: one for name, one in whole.parameters.items() if one.kind is not Parameter.VAR_KEYWORD
    }
    more = [
        Parameter(
            entry.name,
            Parameter.POSITIONAL_OR_KEYWORD if entry.option.is_argument else Parameter.KEYWORD_ONLY,
            default=Parameter.empty if entry.default is MISSING else entry.default,
        )
        for entry in option_fields(kind)
    ]
    late = {entry.name for entry in fields(kind) if entry.kw_only}  # such as those of ``Counted``
    more = [one for one in more if one.name not in own]
    more.sort(key=lambda one: (one.kind, one.name in late))
    return whole.replace(parameters=[*own.values(), *more])


def shared_fields(options: Any, kind: type) -> dict[str, Any]:
    """The values of options for the fields of another dataclass that have the same name."""
    _complete(kind)
    names = [entry.name for entry in fields(kind)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


# fmt: off
class OutputOptions(Options):
    """How every command prints its result."""

    format: TableFormat = opt(
        "Print a table, Markdown (md), LaTeX (latex), or every number as CSV or JSON.",
        default="table", panel="General")
    json: bool = opt("Print one JSON document, as --format json.", default=False, panel="General")
    config: str | None = opt(
        "Defaults [default: consilience.toml, if it is there].", default=None, metavar="FILE",
        panel="General")
    quiet: bool = opt(
        "Print results and errors only.", default=False, short="-q", panel="General")

    @property
    def is_document(self) -> bool:
        return self.json or self.format == "json"
