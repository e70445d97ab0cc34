"""Sentence-pair tasks as data: a row each, or a TOML file (CALUM, Section 4.1 and Table 1)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from consilience.errors import ConsilienceError, did_you_mean
from consilience.suites.pairs import UNLABELLED
from consilience.suites.rows import AGGREGATES, control_in
from consilience.types import Task, TaskKind, names_a_file

INFERENCE = ("entailment", "neutral", "contradiction")
ENTAILS = ("entailment", "not_entailment")
EQUIVALENT = ("not_equivalent", "equivalent")
NUMBERED = ("Sentence1", "Sentence2")
MATCHED = ("train", "validation_matched", "test_matched")
TESTED = ("train", "validation", "test")
BOTH = ("accuracy", "f1")
S1, S2, LABEL = ("sentence1",), ("sentence2",), ("label",)

_ROWS = (
    Task(
        "mnli", "NLI", ("premise", "sentence1"), ("hypothesis", "sentence2"),
        ("label", "gold_label"), ("Premise", "Hypothesis"), INFERENCE, ("premise", "hypothesis"),
        hub=("nyu-mll/glue", "mnli"), splits=MATCHED,
    ),
    Task(
        "snli", "NLI", ("premise", "sentence1"), ("hypothesis", "sentence2"),
        ("label", "gold_label"), ("Premise", "Hypothesis"), INFERENCE,
        hub=("stanfordnlp/snli",), splits=TESTED,
    ),
    Task(
        "qnli", "NLI", ("question",), ("sentence",), LABEL, ("Question", "Sentence"), ENTAILS,
        ("question", "sentence"), hub=("nyu-mll/glue", "qnli"), splits=TESTED,
    ),
    Task(
        "rte", "NLI", S1, S2, LABEL, NUMBERED, ENTAILS, ("sentence1", "sentence2"),
        hub=("nyu-mll/glue", "rte"), splits=TESTED,
    ),
    Task(
        "qqp", "STS", ("question1",), ("question2",), ("label", "is_duplicate"),
        ("Question1", "Question2"), ("not_duplicate", "duplicate"), ("question1", "question2"),
        BOTH, ("nyu-mll/glue", "qqp"), TESTED,
    ),
    Task(
        "mrpc", "STS", ("sentence1", "#1 String"), ("sentence2", "#2 String"),
        ("label", "Quality"), NUMBERED, EQUIVALENT, ("sentence1", "sentence2"), BOTH,
        ("nyu-mll/glue", "mrpc"), TESTED,
    ),
    Task(
        "stsb", "STS", S1, S2, ("label", "score"), NUMBERED, EQUIVALENT, (), BOTH,
        ("nyu-mll/glue", "stsb"), TESTED, threshold=3.0,
    ),
    Task(
        "kornli", "NLI", ("premise", "sentence1"), ("hypothesis", "sentence2"),
        ("label", "gold_label"), ("전제", "가설"), INFERENCE, hub=("kakaobrain/kor_nli", "xnli"),
        splits=("", "validation", "test"),
    ),
    Task(
        "klue-nli", "NLI", ("premise",), ("hypothesis",), ("label", "gold_label"),
        ("전제", "가설"), INFERENCE, hub=("klue/klue", "nli"),
    ),
    Task(
        "klue-sts", "STS", S1, S2, ("labels.binary-label",), ("문장1", "문장2"), EQUIVALENT, (),
        BOTH, ("klue/klue", "sts"),
    ),
)  # fmt: skip

TASKS: Mapping[str, Task] = {task.name: task for task in _ROWS}
"""Indicators as the paper shows them (Figure 1, Tables 3 and 7); it shows none for QQP, SNLI, STS-B
and the Korean tasks, and those here are ours."""

CALUM = ("mnli", "qnli", "rte", "qqp", "mrpc")
"""The paper's English tasks, in its order."""


def load_task(spec: str) -> Task:
    """The task of that name, or of that TOML file (``docs/tasks.md``)."""
    if not spec.endswith(".toml"):
        if spec not in TASKS:
            raise ConsilienceError(
                f"no task '{spec}'",
                expected="a name or a TOML file",
                todo=did_you_mean(spec, list(TASKS)),
            )
        return TASKS[spec]
    path = Path(spec)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConsilienceError(
            f"cannot be read: {error.strerror}", where=spec, todo="Check the path."
        ) from error
    except RecursionError:
        raise ConsilienceError("not TOML: nested too deeply", where=spec) from None
    except ValueError as error:  # no UTF-8, a number of thousands of digits
        raise ConsilienceError(f"not TOML: {error}", where=spec) from error
    return task_of_table(table, spec)


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
        listed = [value] if name in ("first", "second", "label") else value
        entries = listed if isinstance(value, str) else value
        right = isinstance(entries, list) and all(isinstance(each, str) for each in entries)
        value, expected = tuple(entries) if right else value, "a list of texts"
    if not right:
        raise ConsilienceError(f"'{name}' is {value!r}", expected=expected, where=where)
    for text in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
        if found := control_in(text):
            raise ConsilienceError(f"{found} in '{name}'", where=where, todo="Remove it.")
    return value


def check_task(task: Task, where: str) -> None:
    """Refuse a task that cannot be asked, or whose perturbations could change the meaning."""
    counts = (("indicators", {2}), ("t5_fields", {0, 2}), ("splits", {3}), ("hub", {0, 1, 2}))
    for name, sizes in counts:
        found = len(getattr(task, name))
        if found not in sizes:
            raise ConsilienceError(
                f"{found} entries in '{name}'",
                expected=" or ".join(map(str, sorted(sizes))),
                where=where,
            )
    if task.kind not in get_args(TaskKind):
        raise ConsilienceError(
            f"the kind '{task.kind}'", expected=" or ".join(get_args(TaskKind)), where=where
        )
    if len(set(task.labels)) != len(task.labels) or len(task.labels) < 2:
        raise ConsilienceError(
            f"the labels {', '.join(task.labels)}",
            expected="two or more, all different",
            where=where,
        )
    for each in task.labels:
        if each in UNLABELLED or each != each.strip():
            raise ConsilienceError(
                f"the label {each!r}",
                expected="a word without blanks around it, and not - or -1, which stand for none",
                where=where,
            )
    for name in ("indicators", "t5_fields"):
        pair = [each.strip() for each in getattr(task, name)]
        if pair and (not all(pair) or _alike(*pair)):
            raise ConsilienceError(
                f"the {name} {', '.join(pair)}",
                expected="two that differ, not in case alone, or REVERSE would change the meaning",
                where=where,
            )
    if task.threshold is not None and len(task.labels) != 2:
        raise ConsilienceError(
            f"a threshold and {len(task.labels)} labels", expected="2 labels", where=where
        )
    if unknown := [each for each in task.metrics if each not in BOTH]:
        raise ConsilienceError(
            f"the metric '{unknown[0]}'", expected=" or ".join(BOTH), where=where
        )
    signs = all(sign.isalnum() or sign in "._-" for sign in task.name)
    named = signs and names_a_file(task.name) and task.name not in AGGREGATES
    if not named or task.name.startswith("checkpoint"):
        raise ConsilienceError(
            f"the name '{task.name}'",
            expected="letters, digits, '.', '_' and '-', no '.' or 'checkpoint' first, and not "
            "MACRO or MICRO",
            where=where,
        )


def _alike(first: str, second: str) -> bool:
    """Whether two texts can become one when their case changes; upper: Turkish has a dotless i."""
    return first.casefold() == second.casefold() or first.upper() == second.upper()
