"""What the records of runs and trainings hold: JSON objects, each field of one kind.

Whatever is damaged in a record is found here, so that nothing that reads one has to expect it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

Fits = Callable[[Any], bool]


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value))


def _is(*types: type) -> Fits:
    return lambda value: isinstance(value, types)


def _list_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _object_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


KINDS: Mapping[str, Fits] = {
    "a text": _is(str),
    "a text or null": _is(str, type(None)),
    "a text or an object": _is(str, dict),
    "a time": _is_time,
    "a time or null": lambda value: value is None or _is_time(value),
    "a number": _is(int, float),
    "a number or null": _is(int, float, type(None)),
    "a whole number": lambda value: type(value) is int,
    "a whole number or null": lambda value: value is None or type(value) is int,
    "true or false": _is(bool),
    "an object": _is(dict),
    "an object of SHA-256 digests": _object_of(_is_digest),
    "an object of numbers": _object_of(_is(int, float)),
    "an object of whole numbers": _object_of(lambda value: type(value) is int),
    "an object of texts": _object_of(_is(str)),
    "an object of lists of texts": _object_of(_list_of(_is(str))),
    "an object of objects of numbers": _object_of(_object_of(_is(int, float))),
    "an object of objects of texts": _object_of(_object_of(_is(str))),
    "a list of texts": _list_of(_is(str)),
    "a list of texts or null": lambda value: value is None or _list_of(_is(str))(value),
}
"""Kinds of JSON values in words, and whether a value is one."""

Fields = Mapping[str, Sequence[str]]
"""Names of fields by their kind, one of ``KINDS``; fields that are not named may be anything."""

RUN: Fields = {
    "an object": ("settings", "options", "products", "scoring"),
    "a time": ("started",),
    "a time or null": ("finished",),
    "a text": ("command", "data"),
    "a text or null": ("git",),
    "an object of SHA-256 digests": ("answers",),
    "an object of texts": ("versions", "suite_source", "texts"),
    "an object of numbers": ("cost",),
    "an object of objects of numbers": ("screened",),
    "an object of lists of texts": ("words",),
    "a list of texts": ("warnings", "served_as"),
}
"""``run.json``."""

ALWAYS = ("settings", "started", "versions", "warnings", "answers")

SETTINGS: Fields = {
    "a text": ("kind", "suite", "suite_digest", "protocol", "pairs"),
    "a text or an object": ("model",),
    "a list of texts or null": ("groups",),
    "a whole number or null": ("limit",),
    "true or false": ("as_shipped",),
    "an object": ("task",),
    "an object of objects of texts": ("perturbation_sources",),
}
"""What decided the answers, ``settings`` of ``RUN``."""

MODEL: Fields = {
    "a text": ("model", "architecture", "dtype", "device"),
    "a text or null": ("digest", "revision"),
    "a whole number": ("parameters",),
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
    for kind, names in fields.items():
        for name in names:
            if name in record and not KINDS[kind](record[name]):
                return f"'{prefix}{name}' is {_shown(record[name])}; expected {kind}"
    return ""


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else text[:100] + "..."
