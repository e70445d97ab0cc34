"""What the records of runs and trainings hold: JSON objects, each field of one kind.

Whatever is damaged in a record is found here, so that nothing that reads one has to expect it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of JSON value."""

    one: str
    """One of it, in words."""
    many: str
    """Many of it, in words."""
    fits: Callable[[object], bool]
    """Whether a value is one."""


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


TEXT = Kind("a text", "texts", lambda value: isinstance(value, str))
TIME = Kind("a time", "times", _is_time)
DIGEST = Kind(
    "a SHA-256 digest",
    "SHA-256 digests",
    lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value)),
)
NUMBER = Kind("a number", "numbers", lambda value: isinstance(value, int | float))
WHOLE = Kind("a whole number", "whole numbers", lambda value: type(value) is int)
TRUTH = Kind("true or false", "truths", lambda value: isinstance(value, bool))
OBJECT = Kind("an object", "objects", lambda value: isinstance(value, dict))


def either(*kinds: Kind) -> Kind:
    """One of several kinds."""
    one, many = (
        " or ".join(names) for names in zip(*((k.one, k.many) for k in kinds), strict=True)
    )
    return Kind(one, many, lambda value: any(kind.fits(value) for kind in kinds))


NULL = Kind("null", "nulls", lambda value: value is None)


def list_of(kind: Kind) -> Kind:
    """A list of values of one kind."""
    return Kind(
        f"a list of {kind.many}",
        f"lists of {kind.many}",
        lambda value: isinstance(value, list) and all(map(kind.fits, value)),
    )


def object_of(kind: Kind) -> Kind:
    """An object whose values are of one kind, whatever their names."""
    return Kind(
        f"an object of {kind.many}",
        f"objects of {kind.many}",
        lambda value: isinstance(value, dict) and all(map(kind.fits, value.values())),
    )


Fields = Mapping[str, Kind]
"""Fields of an object by name; those that are not named may be anything."""

RUN: Fields = {
    "settings": OBJECT,
    "options": OBJECT,
    "started": TIME,
    "finished": either(TIME, NULL),
    "command": TEXT,
    "versions": object_of(TEXT),
    "git": either(TEXT, NULL),
    "warnings": list_of(TEXT),
    "answers": object_of(DIGEST),
    "products": OBJECT,
    "suite_source": object_of(TEXT),
    "cost": object_of(NUMBER),
    "served_as": list_of(TEXT),
    "scoring": OBJECT,
    "words": object_of(list_of(TEXT)),
    "data": TEXT,
    "texts": object_of(TEXT),
}
"""``run.json``."""

ALWAYS = ("settings", "started", "versions", "warnings")
"""Fields of ``RUN`` that every version of this package has written."""

SETTINGS: Fields = {
    "kind": TEXT,
    "suite": TEXT,
    "suite_digest": TEXT,
    "groups": either(list_of(TEXT), NULL),
    "as_shipped": TRUTH,
    "protocol": TEXT,
    "limit": either(WHOLE, NULL),
    "task": OBJECT,
    "pairs": TEXT,
    "perturbation_sources": object_of(object_of(TEXT)),
    "model": either(TEXT, OBJECT),
}
"""What decided the answers, ``settings`` of ``RUN``."""

MODEL: Fields = {
    "model": TEXT,
    "architecture": TEXT,
    "parameters": WHOLE,
    "dtype": TEXT,
    "device": TEXT,
    "digest": either(TEXT, NULL),
    "revision": either(TEXT, NULL),
}
"""The model, ``model`` of ``SETTINGS``."""


def fault_of_run(record: object) -> str:
    """The first error in the record of a run, in words; empty if it has none."""
    problem = fault(record, RUN, ALWAYS)
    if problem or not isinstance(record, dict):
        return problem
    settings = record["settings"]
    model = settings.get("model")
    problem = fault(settings, SETTINGS, prefix="settings.")
    if problem or not isinstance(model, dict):
        return problem
    needed = ("parameters", "dtype", "device") if "architecture" in model else ()
    return fault(model, MODEL, needed, "settings.model.")


def fault(record: object, fields: Fields, needed: Sequence[str] = (), prefix: str = "") -> str:
    """The first fault of an object: it lacks a ``needed`` field, or one is of another kind.

    ``prefix``: what precedes the names of its fields in the message. Empty where nothing is wrong.
    """
    if not isinstance(record, dict):
        return f"{_shown(record)}; expected an object"
    for name in needed:
        if name not in record:
            return f"no '{prefix}{name}'"
    for name, kind in fields.items():
        if name in record and not kind.fits(record[name]):
            return f"'{prefix}{name}' is {_shown(record[name])}; expected {kind.one}"
    return ""


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else text[:100] + "..."
