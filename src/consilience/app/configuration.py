"""Defaults of options from ``consilience.toml`` or from ``[tool.consilience]`` of a pyproject."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.options import OptionField

ENVIRONMENT = "CONSILIENCE_CONFIG"
"""The environment variable that names the file; if it is empty, no file is read."""

NAME = "consilience.toml"
"""The file that is searched for."""

SHARED = ("model", "suite", "device", "dtype", "data-dir", "trust-remote-code", "quiet")
"""Options that may have one default for all commands."""

IN_ALL = "a default for all commands (those of one command are in its table, such as [probe])"
"""What a key at the top of the file has to be."""

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults that a file sets for the options of a command."""

    file: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values by the names of the fields."""
    data_dir: str = ""
    """The folder of fetched suites, which is ``CONSILIENCE_DATA`` while the command runs."""


@contextmanager
def in_force(arguments: Sequence[str], data_dir: str) -> Iterator[None]:
    """While a command runs: what a file adds to the command line, and its folder of suites."""
    from consilience.core.provenance import from_file

    variable = {"CONSILIENCE_DATA": data_dir} if data_dir else {}
    os.environ |= variable
    token = from_file.set((*arguments,))
    try:
        yield
    finally:
        from_file.reset(token)
        for name in variable:
            del os.environ[name]


def defaults_of(
    command: Sequence[str],
    fields: Mapping[str, OptionField],
    named: str | None,
    commands: Sequence[str],
) -> Defaults:
    """The defaults of a command's options.

    ``fields`` are the options by their names, ``commands`` the names of all commands at the top.
    An unknown key and a wrong value raise. A default for all commands does not replace what a run
    says itself. ``data-dir`` is relative to the file, and does not replace ``CONSILIENCE_DATA``.
    """
    file = _find(named)
    if file is None:
        return Defaults()
    table = _read(file)
    shared = {key: value for key, value in table.items() if not isinstance(value, dict)}
    sections = [key for key in table if key not in shared]
    _refuse_unknown(shared, SHARED, file, IN_ALL)
    _refuse_unknown(sections, commands, file, "a command")
    section = _section(table, command, file)
    _refuse_unknown(section, list(fields), file, f"an option of `consilience {' '.join(command)}`")
    values = {key: value for key, value in shared.items() if key in fields}
    for key, value in (values | dict(section)).items():
        _check(key, fields[key], value, file)
    values = {key: value for key, value in values.items() if not fields[key].option.is_of_run}
    values |= section
    if named is None and ENVIRONMENT not in os.environ:
        tests = {key: fields[key].option.needs_trust for key in values}
        if keys := [key for key, test in tests.items() if test and test(values[key])]:
            raise ConsilienceError(
                f"{', '.join(keys)} in a configuration file that was found, not named",
                expected="what runs code, sends a key or uploads in a file that you name, or on "
                "the command line",
                where=str(file),
                todo=f"If you trust the file, add --config {file}.",
            )
    data_dir = ""
    if (folder := values.pop("data-dir", None)) and "CONSILIENCE_DATA" not in os.environ:
        data_dir = str(file.parent / folder)
    by_name = {
        fields[key].name: [value] if fields[key].is_repeated and isinstance(value, str) else value
        for key, value in values.items()
    }
    return Defaults(file, by_name, data_dir)


def _find(named: str | None) -> Path | None:
    """The file that was named, or the nearest one up to the root of the repository."""
    named = os.environ.get(ENVIRONMENT) if named is None else named
    if named is not None:
        return Path(named) if named else None
    above = [Path.cwd(), *Path.cwd().parents]
    root = next((at for at, parent in enumerate(above) if (parent / ".git").exists()), 0)
    for parent in above[: root + 1]:
        if (parent / NAME).is_file():
            return parent / NAME
        project = parent / "pyproject.toml"
        if project.is_file() and "[tool.consilience" in project.read_text("utf-8", "replace"):
            return project
    return None


def _read(file: Path) -> Table:
    """The keys of a file; those of a pyproject are under ``tool.consilience``."""
    import tomllib

    try:
        table: Table = tomllib.loads(file.read_text("utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ConsilienceError("no such file", where=str(file), todo="Check --config.") from error
    except (ValueError, RecursionError) as error:
        raise ConsilienceError(f"not TOML: {error}", where=str(file)) from error
    if file.name == "pyproject.toml":
        table = table.get("tool", {}).get("consilience", {})
    return table


def _section(table: Table, command: Sequence[str], file: Path) -> Table:
    """The options of a command; ``[suite.check]`` is that of ``suite check``."""
    if command[0] in SHARED and not isinstance(table.get(command[0]), dict):
        return {}  # `suite` is the name of an option, too
    for name in command:
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConsilienceError(
                f"{name} = {table!r}", expected=f"a table, [{name}]", where=str(file)
            )
    return {key: value for key, value in table.items() if not isinstance(value, dict)}


def _check(key: str, field: OptionField, value: Any, file: Path) -> None:
    """Raise for a value that the option does not take, with the file."""
    is_typed = isinstance(value, str) and field.type is not bool
    try:
        field.parse(value) if is_typed else field.check(value)
    except ConsilienceError as error:
        raise ConsilienceError(
            f"invalid value for '{key}': {value!r}", expected=error.expected, where=str(file)
        ) from error


def _refuse_unknown(keys: Iterable[str], known: Sequence[str], file: Path, kind: str) -> None:
    for key in keys:
        if key not in known:
            todo = did_you_mean(key, list(known))
            raise ConsilienceError(f"'{key}' is not {kind}", where=str(file), todo=todo)
