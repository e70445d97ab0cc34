"""The options of a run in its record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.options import option_fields
from consilience.options.probe import ProbeOptions

RENAMED = {"folder": "out", "joined": "input", "longest": "max_length"}
"""Options whose names in a record were those of fields, and not those of the command line."""


def options_record(options: ProbeOptions, values: Mapping[str, object]) -> dict[str, Any]:
    """The options that differ from their defaults, as values of JSON, for the record of a run.

    ``values``: the suite and the model, None where an option names it. One that is a Python value
    is recorded as None, because no option names it.
    """
    record: dict[str, Any] = {}
    for field in option_fields(ProbeOptions):
        value = getattr(options, field.name)
        if values.get(field.name) is not None:
            record[field.name] = None
        elif value != field.default:
            record[field.name] = _plain(value)
    return record


def _plain(value: object) -> object:
    """A value of JSON: a path becomes text, a sequence a list."""
    if isinstance(value, Path):
        return str(value)
    is_plain = value is None or isinstance(value, str | int | float)
    return value if is_plain else list(value)  # type: ignore[call-overload]


def recorded_options(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The options in the record of a run by their names of today; None where it has none."""
    options: Mapping[str, Any] | None = record.get("options")
    return options and {RENAMED.get(name, name): value for name, value in options.items()}


def options_of_record(record: Mapping[str, Any], where: str) -> ProbeOptions:
    """The options of ``probe`` that a run was made with, from its record (``Run.record``).

    ``where``: the folder of the run, for the messages. A run of a suite or a model that was a
    Python value raises: no command can repeat it.
    """
    options = recorded_options(record)
    if options is None:
        raise ConsilienceError(
            "its record does not have the options of the run",
            expected="a run of `consilience probe` of this version",
            where=where,
            todo="Rerun the command of the run, which adds them.",
        )
    fields = {field.name: field for field in option_fields(ProbeOptions)}
    for name, value in options.items():
        if name not in fields:
            raise ConsilienceError(
                f"an unknown option '{name}' in the record",
                expected="options of `consilience probe` of this version",
                where=where,
            )
        if value is None:
            raise ConsilienceError(
                f"the {name} of this run was a Python value",
                expected=f"a {name} that has a name, a folder or a file",
                where=where,
                todo=f"Repeat the call of `evaluate` with the same {name}.",
            )
    return ProbeOptions(**{name: fields[name].check(value) for name, value in options.items()})
