"""Defaults of options from ``consilience.toml`` or from ``[tool.consilience]`` of a pyproject."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, did_you_mean
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


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults that a file sets for the options of a command."""

    file: Path | None = None
    """The file; None where there is none."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values by parameter."""
    data_dir: str = ""
    """The folder that it sets as ``CONSILIENCE_DATA``; empty where it sets none."""

    def origin(self, error: ConsilienceError, fields: Iterable[OptionField]) -> str:
        """Which of the defaults of ``fields`` an error is about, as a sentence; or empty."""
        keys = []
        for one in fields:
            value = self.values[one.name]
            texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
            if any(str(text) in str(error) for text in [one.flag, *texts]):
                keys.append(f"{one.flag.lstrip('-')} = {value!r}")
        return f"{self.file} has {', '.join(keys)}." if keys else ""


def defaults_of(
    command: Sequence[str],
    fields: Mapping[str, OptionField],
    named: str | None,
    commands: Sequence[str],
) -> Defaults:
    """The defaults of a command's options.

    ``fields`` are the options by their names, ``commands`` the names of all commands at the top.
    An unknown key and a wrong value raise. A default for all commands does not replace what a run
    says itself. ``data-dir``, relative to the file, sets ``CONSILIENCE_DATA`` if that is not set.
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
        _refuse_found(values, fields, file)
    data_dir = ""
    if (folder := values.pop("data-dir", None)) and "CONSILIENCE_DATA" not in os.environ:
        data_dir = os.environ["CONSILIENCE_DATA"] = str(file.parent / folder)
        data_dir = data_dir.removeprefix(f"{Path.cwd()}{os.sep}")
    return Defaults(file, {fields[key].name: value for key, value in values.items()}, data_dir)


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


def _refuse_found(values: Table, fields: Mapping[str, OptionField], file: Path) -> None:
    """Raise where a file that nobody named has a value that needs trust."""
    tests = {key: fields[key].option.needs_trust for key in values}
    keys = [key for key, needs_trust in tests.items() if needs_trust and needs_trust(values[key])]
    if keys:
        raise ConsilienceError(
            f"{', '.join(keys)} in a configuration file that was found, not named",
            expected="what runs code, sends a key or uploads in a file that you name, or on the "
            "command line",
            where=str(file),
            todo=f"If you trust the file, add --config {file}.",
        )


def _refuse_unknown(keys: Iterable[str], known: Sequence[str], file: Path, kind: str) -> None:
    for key in keys:
        if key not in known:
            todo = did_you_mean(key, list(known))
            raise ConsilienceError(f"'{key}' is not {kind}", where=str(file), todo=todo)
