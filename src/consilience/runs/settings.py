"""The options of a run in its record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.options import option_fields
from consilience.options.probe import ProbeOptions


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
            is_plain = value is None or isinstance(value, str | int | float)
            path = str(value) if isinstance(value, Path) else None
            record[field.name] = value if is_plain else path or list(value)
    return record


def options_of_record(record: Mapping[str, Any], where: str) -> ProbeOptions:
    """The options of ``probe`` that a run was made with, from its record (``Run.record``).

    ``where``: the folder of the run, for the messages. A run of a suite or a model that was a
    Python value raises: no command can repeat it.
    """
    options: Mapping[str, Any] | None = record.get("options")
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
