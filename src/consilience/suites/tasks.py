"""Sentence-pair tasks as data: the bundled ones, or a TOML file (CALUM, Section 4.1)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from consilience.errors import ConsilienceError, did_you_mean
from consilience.sentence_pairs import Task, TaskKind
from consilience.suites.pairs import UNLABELLED
from consilience.text import AGGREGATES, control_in, names_a_file

METRICS = ("accuracy", "f1")
"""What may be measured on the original inputs."""

CALUM = ("mnli", "qnli", "rte", "qqp", "mrpc")
"""The paper's English tasks, in its order."""


def is_task(spec: str) -> bool:
    """Whether a suite is a task of sentence pairs: its name, or a TOML file."""
    return spec in TASKS or spec.endswith(".toml")


def load_task(spec: str, indicators: Sequence[str] | None = None) -> Task:
    """The task of that name, or of that TOML file (``docs/tasks.md``).

    ``indicators``: others than the task's, one for each sentence.
    """
    if not is_task(spec):
        raise ConsilienceError(
            f"no task '{spec}'",
            expected="a name or a TOML file",
            todo=did_you_mean(spec, list(TASKS)),
        )
    task = task_of_table(_toml(Path(spec)), spec) if spec.endswith(".toml") else TASKS[spec]
    if indicators is not None:
        task = replace(task, indicators=tuple(indicators))  # type: ignore[arg-type]
        check_task(task, "--indicators")
    return task


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConsilienceError(
            f"cannot be read: {error.strerror}", where=str(path), todo="Check the path."
        ) from error
    except RecursionError:
        raise ConsilienceError("not TOML: nested too deeply", where=str(path)) from None
    except ValueError as error:  # not UTF-8, a number of thousands of digits
        raise ConsilienceError(f"not TOML: {error}", where=str(path)) from error


def task_of_table(table: Mapping[str, Any], where: str) -> Task:
    """The task of these fields; whatever is wrong with them raises."""
    known = [field.name for field in fields(Task)]
    for name in table:
        if name not in known:
            raise ConsilienceError(f"a field '{name}'", where=where, todo=did_you_mean(name, known))
    values = {name: _value(name, value, where) for name, value in table.items()}
    for name in ("name", "kind", "first", "second", "label", "indicators", "labels"):
        if not values.get(name):
            raise ConsilienceError(f"no '{name}'", where=where, todo="See docs/tasks.md.")
    task = Task(**values)
    check_task(task, where)
    return task


def _value(name: str, value: Any, where: str) -> Any:
    """What a field of that name holds; one of another type raises."""
    if name in ("name", "kind"):
        right, expected = isinstance(value, str), "text"
    elif name == "threshold":
        right = type(value) in (int, float) and math.isfinite(value)
        expected = "a number"
    else:
        if isinstance(value, str) and name in ("first", "second", "label"):
            value = [value]
        right = isinstance(value, list) and all(isinstance(text, str) for text in value)
        value, expected = tuple(value) if right else value, "a list of texts"
    if not right:
        raise ConsilienceError(f"'{name}' is {value!r}", expected=expected, where=where)
    if control := control_in(" ".join(value) if isinstance(value, tuple) else str(value)):
        raise ConsilienceError(f"{control} in '{name}'", where=where, todo="Remove it.")
    return value


def check_task(task: Task, where: str) -> None:
    """Refuse a task that cannot be asked, or whose perturbations could change the meaning."""
    for is_right, problem, expected in _checks(task):
        if not is_right:
            raise ConsilienceError(problem, expected=expected, where=where)


ENTRIES: Mapping[str, set[int]] = {
    "indicators": {2},
    "t5_fields": {0, 2},
    "splits": {3},
    "hub": {0, 1, 2},
}
"""How many entries a field may have."""


def _checks(task: Task) -> Iterator[tuple[bool, str, str]]:
    """Each rule: whether the task keeps it, what the task has, and what is expected."""
    for name, sizes in ENTRIES.items():
        size = len(getattr(task, name))
        expected = " or ".join(map(str, sorted(sizes)))
        yield size in sizes, f"{size} entries in '{name}'", expected
    kinds = get_args(TaskKind)
    yield task.kind in kinds, f"the kind '{task.kind}'", " or ".join(kinds)
    is_set = len(set(task.labels)) == len(task.labels) > 1
    yield is_set, f"the labels {', '.join(task.labels)}", "two or more, all different"
    for label in task.labels:
        is_word = label not in UNLABELLED and label == label.strip()
        expected = "a word without surrounding spaces, other than - and -1 (no label)"
        yield is_word, f"the label {label!r}", expected
    for name in ("indicators", "t5_fields"):
        pair = [text.strip() for text in getattr(task, name)]
        expected = "two that differ, not in case alone, or REVERSE would change the meaning"
        differs = not pair or (all(pair) and not _alike(*pair))
        yield differs, f"the {name} {', '.join(pair)}", expected
    fits = task.threshold is None or len(task.labels) == 2
    yield fits, f"a threshold and {len(task.labels)} labels", "2 labels"
    for metric in task.metrics:
        yield metric in METRICS, f"the metric '{metric}'", " or ".join(METRICS)
    is_plain = all(character.isalnum() or character in "._-" for character in task.name)
    is_free = task.name not in AGGREGATES and not task.name.startswith("checkpoint")
    yield (
        is_plain and is_free and names_a_file(task.name),
        f"the name '{task.name}'",
        "letters, digits, '.', '_' and '-', no '.' or 'checkpoint' first, and not MACRO or MICRO",
    )


def _alike(first: str, second: str) -> bool:
    """Whether two texts can become one when their case changes; upper: Turkish has a dotless i."""
    return first.casefold() == second.casefold() or first.upper() == second.upper()


_BUNDLED = Path(__file__).with_name("tasks.toml")

TASKS: Mapping[str, Task] = {
    table["name"]: task_of_table(table, str(_BUNDLED)) for table in _toml(_BUNDLED)["task"]
}
"""The tasks that have a name (``tasks.toml``)."""
