"""Defaults of options from ``consilience.toml`` or from ``[tool.consilience]`` of a pyproject."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError, did_you_mean
from consilience.workflow.option_fields import OptionField

ENVIRONMENT = "CONSILIENCE_CONFIG"
"""The environment variable that names the file; if it is empty, no file is read."""

NAME = "consilience.toml"
"""The file that is searched for."""

SHARED = ("model", "suite", "device", "dtype", "data-dir", "trust-remote-code", "quiet")
"""Options that may have one default for all commands."""

IN_ALL = "a default for all commands (those of one command are in its table, such as [probe])"
"""What a key at the top of the file has to be."""

Table = Mapping[str, Any]


def defaults_of(
    command: Sequence[str],
    fields: Mapping[str, OptionField],
    named: str | None,
    commands: Sequence[str],
) -> tuple[dict[str, Any], Path | None]:
    """The defaults of a command's options by parameter, and the file that sets them.

    ``fields`` are the options by their names, ``commands`` the names of all commands at the top.
    An unknown key and a wrong value raise. ``data-dir``, relative to the file, sets
    ``CONSILIENCE_DATA`` if that is not set.
    """
    file = _find(named)
    if file is None:
        return {}, None
    table = _read(file)
    shared = {key: value for key, value in table.items() if not isinstance(value, dict)}
    sections = [key for key in table if key not in shared]
    _refuse_unknown(shared, SHARED, file, IN_ALL)
    _refuse_unknown(sections, commands, file, "a command")
    section = _section(table, command, file)
    _refuse_unknown(section, list(fields), file, f"an option of `consilience {' '.join(command)}`")
    values = {key: value for key, value in shared.items() if key in fields} | dict(section)
    for key, value in values.items():
        _check(key, fields[key], value, file)
    if folder := values.pop("data-dir", None):
        os.environ.setdefault("CONSILIENCE_DATA", str(file.parent / folder))
    return {fields[key].name: value for key, value in values.items()}, file


def _find(named: str | None) -> Path | None:
    """The file that was named, or the nearest one up to the root of the repository."""
    if named is None:
        named = os.environ.get(ENVIRONMENT)
    if named is not None:
        return Path(named) if named else None
    return next(_candidates(Path.cwd()), None)


def _candidates(folder: Path) -> Iterator[Path]:
    """The files with defaults in a folder and in those above it, the nearest first."""
    above = [folder, *folder.parents]
    root = next((at for at, parent in enumerate(above) if (parent / ".git").exists()), 0)
    for parent in above[: root + 1]:
        if (parent / NAME).is_file():
            yield parent / NAME
        project = parent / "pyproject.toml"
        if project.is_file() and "[tool.consilience" in project.read_text("utf-8", "replace"):
            yield project


def _read(file: Path) -> Table:
    """The keys of a file; those of a pyproject are under ``tool.consilience``."""
    try:
        table: Table = tomllib.loads(file.read_text("utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ConsilienceError("no such file", where=str(file), todo="Check --config.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConsilienceError(f"not TOML: {error}", where=str(file)) from error
    if file.name == "pyproject.toml":
        table = table.get("tool", {}).get("consilience", {})
    return table


def _section(table: Table, command: Sequence[str], file: Path) -> Table:
    """The options of a command; ``[suite.check]`` is that of ``suite check``."""
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
