"""Perturbations, and suites of sentence pairs: CALUM's tasks and a user's own.

A perturbation makes another form of an item that is expected to get the same answer. It is a pure
function. Of sentence pairs (CALUM, Section 3) it makes another form of one: two segments, each a
sentence after its indicator. The built-in ones change the order of the segments and the text around
the indicators, never a sentence nor the letters of an indicator.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import runpy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from consilience.core.errors import ConsilienceError, did_you_mean, unknown_name
from consilience.core.factors import ORIGINAL
from consilience.core.items import Form, Segment, Task, TaskKind, TextPair
from consilience.core.text import names_a_file, truncated
from consilience.files.read import Problems, Rows, hub_rows, read_document, read_rows
from consilience.files.rows import Column, as_written, line, one_of, raise_all, read_one, read_table

PAPERS = ("reverse", "signal")


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A way to present items, and why it does not change their answers."""

    name: str
    guarantee: str
    rewrite: Callable[..., Any]
    """Makes another ``Form`` of one."""
    source: Mapping[str, str] = field(default_factory=dict)
    """Where a user's perturbation is from, for the record of a run; empty for a built-in one."""

    def form_of(self, pair: TextPair, form: Form) -> Form:
        """The perturbed form of a sentence pair, whose original form is ``form``."""
        try:
            rewritten = self.rewrite(form)
        except Exception as error:
            raise ConsilienceError(
                f"the perturbation '{self.name}' failed: {type(error).__name__}: {error}",
                where=self.source.get("file", ""),
                todo="Correct the function.",
            ) from error
        shown = truncated(repr(rewritten), 60)
        segments = rewritten if isinstance(rewritten, tuple) else ()
        if len(segments) != len(form) or not all(
            isinstance(segment, Segment) for segment in segments
        ):
            raise ConsilienceError(
                f"the perturbation '{self.name}' made {shown} of item {pair.item}",
                expected=f"a tuple of {len(form)} segments",
                where=self.source.get("file", ""),
                todo="Correct the function; docs/calum.md has an example.",
            )
        return segments


ORDER = "Only the order changes; the indicators say which sentence is which."
SYMBOL = "Only the symbols around the indicators change."


def _reverse(form: Form) -> Form:
    return form[::-1]


def _signal(form: Form) -> Form:
    return tuple(replace(segment, before="[", after="] ") for segment in form)


PERTURBATIONS: Mapping[str, Perturbation] = {
    one.name: one
    for one in (
        Perturbation("reverse", ORDER, _reverse),
        Perturbation("signal", SYMBOL, _signal),
        Perturbation("reverse_signal", f"{ORDER} {SYMBOL}", lambda form: _signal(form[::-1])),
    )
}


def original(pair: TextPair, indicators: Sequence[str]) -> Form:
    """The form that a model is trained on: ``Premise: a``, ``Hypothesis: b``."""
    first, second = indicators
    return Segment(first, pair.first), Segment(second, pair.second)


def t5_original(pair: TextPair, task: Task) -> Form:
    """T5's form without the task's name: its fields in alphabetical order, so hypothesis first."""
    if not task.t5_fields:
        raise ConsilienceError(
            f"the task '{task.name}' has no text form of T5",
            expected="a task with t5_fields",
            todo="Give a --template, or add t5_fields to a TOML file of the task.",
        )
    segments = original(pair, task.t5_fields)
    return tuple(sorted(segments, key=lambda segment: segment.indicator))


def chosen(specs: Sequence[str]) -> dict[str, Perturbation]:
    """The perturbations by name, each once.

    A spec is a name, ``all``, or ``FILE.py:FUNCTION`` for a function of a user's file.
    """
    perturbations: dict[str, Perturbation] = {}
    for spec in specs:
        if spec == "all":
            added = list(PERTURBATIONS.values())
        elif spec in PERTURBATIONS:
            added = [PERTURBATIONS[spec]]
        elif ".py:" in spec:
            added = [_from_file(spec)]
        else:
            raise unknown_name(
                f"no perturbation '{spec}'", spec, [*PERTURBATIONS, "all", "FILE.py:FUNCTION"]
            )
        for one in added:
            known = perturbations.setdefault(one.name, one)
            if (known.guarantee, known.source) != (one.guarantee, one.source):
                raise ConsilienceError(
                    f"two perturbations with the name '{one.name}'",
                    expected="a name for each",
                    todo="Rename the function.",
                )
    if ORIGINAL in perturbations:
        raise ConsilienceError(
            f"a perturbation with the name '{ORIGINAL}'",
            expected="another name, since that of the unperturbed form is taken",
        )
    return perturbations


def _from_file(spec: str) -> Perturbation:
    file, _, name = spec.rpartition(":")
    try:
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        defined = runpy.run_path(file)
    except Exception as error:
        found = f"cannot be run: {type(error).__name__}: {error}"
        raise ConsilienceError(found, where=file, todo="Correct the file.") from error
    function = defined.get(name)
    if not callable(function):
        names = [known for known, value in defined.items() if callable(value)]
        raise ConsilienceError(f"no function '{name}'", where=file, todo=did_you_mean(name, names))
    source = {"file": Path(file).name, "sha256": digest}
    described = (function.__doc__ or f"See {source['file']}.").strip().partition("\n")[0]
    return Perturbation(name, described, function, source)


def forms_of(
    pair: TextPair, form: Form, perturbations: Mapping[str, Perturbation]
) -> dict[str, Form]:
    """The original and every perturbed form of a pair, by name."""
    return {ORIGINAL: form} | {
        name: perturbation.form_of(pair, form) for name, perturbation in perturbations.items()
    }


HUB = "hub"
"""``hub:SPLIT`` names a split of the task's dataset on the Hub, or of a folder of that layout."""

NO_LABEL = ("-1", "-", "", "nan")
"""Values that mean "no label": test sets of GLUE, and pairs without a majority in SNLI and MNLI."""

HALF_SEED = 0  # Of the halves: always the same ones
UNLABELLED = ""  # The label of a pair without one

IDS = ("guid", "idx", "index", "pairID", "id")


class UnlabelledError(ConsilienceError):
    """Rows none of which has a label, such as the test sets of GLUE."""

    def __init__(self, rows: int, message: str, **parts: Any) -> None:
        super().__init__(message, **parts)
        self.rows = rows


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sentence pairs of one source, in its order."""

    items: tuple[TextPair, ...]
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of all items, in their order."""
        rows = [[pair.item, pair.first, pair.second, pair.label] for pair in self.items]
        return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()


def read_pairs(source: str, task: Task) -> Pairs:
    """The labelled pairs of a file or of ``hub:SPLIT``; ``#1`` or ``#2`` after it: of a half.

    Labels may be the task's words or the places of them (``Task.labels``); a data set of the Hub
    names its own. Pairs without a label are left out, with a note. What is wrong, such as an
    unknown label or a missing column, raises in one error.
    """
    whole, hash_, half = source.rpartition("#")
    if hash_ and half in ("1", "2"):
        return half_of(read_pairs(whole, task), int(half))
    problems: Problems = []
    rows = list(_rows_of(source, task, problems))
    if not rows and not problems:
        raise ConsilienceError("no rows", where=source)
    of_names = ([line(of[name]) for _, of in rows if of.get(name) is not None] for name in IDS)
    named = ([one or "" for one in of] for of in of_names if len({*of}) == len(rows))
    ids = next(named, [str(number) for number in range(len(rows))])
    columns = [
        Column(names[0], parse, default, names[1:])
        for names, parse, default in (
            (task.first, as_written, None),
            (task.second, as_written, None),
            (task.label, partial(_label, task), UNLABELLED),
        )
    ]
    names = [column.name for column in columns]
    table = [[row[name] for name in names] for row in read_table(rows, columns, problems, source)]
    raise_all(problems)
    items = tuple(
        TextPair(id_, *row) for id_, row in zip(ids, table, strict=True) if row[2] != UNLABELLED
    )
    if not items:
        raise UnlabelledError(
            len(rows),
            f"none of {len(rows)} rows has a label",
            where=source,
            todo="Test sets are often unlabelled; use the validation set.",
        )
    unlabelled = len(rows) - len(items)
    notes = [f"{source}: {unlabelled} of {len(rows)} pairs have no label and are left out"]
    return Pairs(items, tuple(notes if unlabelled else ()))


def generated_group(task: Task) -> str:
    """The group of what a model writes freely when it is asked a task."""
    return f"{task.name}-generated"


def sample_pairs(pairs: Pairs, limit: int, seed: int) -> Pairs:
    """At most ``limit`` pairs, drawn by ``seed``, in their order."""
    if len(pairs.items) <= limit:
        return pairs
    positions = sorted(random.Random(seed).sample(range(len(pairs.items)), limit))
    return replace(pairs, items=tuple(pairs.items[at] for at in positions))


def half_of(pairs: Pairs, half: int) -> Pairs:
    """Half 1 or 2 of the pairs, drawn by a seed, in their order; the first is never smaller.

    The paper draws so where there is no test set: KLUE-STS's 519 are 260 and 259 (Section 4.1).
    """
    order = random.Random(HALF_SEED).sample(range(len(pairs.items)), len(pairs.items))
    middle = (len(order) + 1) // 2
    positions = sorted(order[:middle] if half == 1 else order[middle:])
    return replace(pairs, items=tuple(pairs.items[at] for at in positions))


def refuse_one_class(pairs: Pairs, where: str) -> None:
    """Nothing can be learnt from pairs that all have one label."""
    labels = {item.label for item in pairs.items}
    if len(labels) == 1:
        raise ConsilienceError(
            f"all {len(pairs.items)} pairs are '{labels.pop()}'",
            expected="pairs of two labels or more",
            where=where,
            todo="Use a set with all labels.",
        )


def _label(task: Task, value: object) -> str | None:
    """The label of a cell as a word of the task; None for none."""
    label = re.sub(r"(?<=\d)\.0+$", "", line(value) or "")  # as some tools write whole numbers
    if label in NO_LABEL:
        return None
    if task.threshold is not None:
        with suppress(ValueError):
            if math.isfinite(grade := float(label)):
                return task.labels[int(grade >= task.threshold)]
        raise ConsilienceError(f"the grade '{label}'", expected="a number")
    if label in task.labels:
        return label
    if label.isdecimal() and len(label) < 9 and int(label) < len(task.labels):
        return task.labels[int(label)]
    raise ConsilienceError(
        f"the label '{label}'",
        expected=f"{', '.join(task.labels)}, or 0 to {len(task.labels) - 1} in this order",
        todo="Check the task, or give it as a TOML file with these labels.",
    )


def _rows_of(source: str, task: Task, problems: Problems) -> Rows:
    """The rows of a file or of a split on the Hub."""
    if source == HUB or source.startswith(HUB + ":"):
        if not task.hub:
            raise ConsilienceError(
                f"the task '{task.name}' names no dataset of the Hub", todo="Give a file."
            )
        split = source.partition(":")[2] or task.splits[1]
        return hub_rows(*task.hub, split=split, where=f"{'/'.join(task.hub)}, split '{split}'")
    path = Path(source)
    if not path.is_file():
        raise ConsilienceError(
            "no such file",
            where=source,
            todo=f"Check the path, or name a split on the Hub: {HUB}:validation.",
        )
    return read_rows(path, problems)


METRICS = ("accuracy", "f1")
CALUM = ("mnli", "qnli", "rte", "qqp", "mrpc")


def is_task(spec: str) -> bool:
    """Whether a suite is a task of sentence pairs: its name, or a TOML file."""
    return spec in TASKS or spec.endswith(".toml")


def load_task(spec: str) -> Task:
    """The task of that name or TOML file (``docs/calum.md``)."""
    if not is_task(spec):
        raise ConsilienceError(
            f"no task '{spec}'",
            expected="a name or a TOML file",
            todo=did_you_mean(spec, list(TASKS)),
        )
    return task_of_table(read_document(Path(spec)), spec) if spec.endswith(".toml") else TASKS[spec]


def texts(*sizes: int) -> Callable[[Any], tuple[str, ...] | None]:
    """A list of as many texts as one of ``sizes`` says; of one text it may be the text."""

    def parse(value: Any) -> tuple[str, ...] | None:
        found = tuple(line(one) or "" for one in (value if isinstance(value, list) else [value]))
        if sizes and len(found) not in sizes:
            expected = " or ".join(map(str, sizes))
            raise ConsilienceError(f"{len(found)} entries", expected=expected)
        return found if any(found) else None

    return parse


def number(value: Any) -> float:
    """A finite number."""
    if type(value) in (int, float) and math.isfinite(value):
        return float(value)
    raise ConsilienceError(f"{value!r}", expected="a number")


FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "name": line, "kind": one_of(*get_args(TaskKind)), "threshold": number,
    "indicators": texts(2), "t5_fields": texts(0, 2), "splits": texts(3), "hub": texts(0, 1, 2),
}  # fmt: skip
"""What is read from the fields of a task that are no list of texts of any size."""


def task_of_table(table: Mapping[str, Any], where: str) -> Task:
    """The task of these fields; whatever is wrong with them raises."""
    usual = {one.name: one.default for one in fields(Task)}
    for name in table:
        if name not in usual:
            todo = did_you_mean(name, [*usual])
            raise ConsilienceError(f"a field '{name}'", where=where, todo=todo)
    columns = [
        Column(name, FIELDS.get(name, texts()), None if value is MISSING else value or ())
        for name, value in usual.items()
        if value is MISSING or name in table
    ]
    task = Task(**read_one(table, columns, where))
    check_task(task, where)
    return task


def check_task(task: Task, where: str) -> None:
    """Refuse a task that cannot be asked, or whose perturbations could change the meaning."""
    pairs = {name: getattr(task, name) for name in ("indicators", "t5_fields")}
    for is_right, found, expected in (
        (len({*task.labels}) == len(task.labels) > 1, f"the labels {', '.join(task.labels)}",
         "two or more, all different"),
        (not {*task.labels} & {*NO_LABEL}, f"the labels {', '.join(task.labels)}",
         "words other than - and -1 (no label)"),
        (task.threshold is None or len(task.labels) == 2,
         f"a threshold and {len(task.labels)} labels", "2 labels"),
        ({*task.metrics} <= {*METRICS}, f"the metrics {', '.join(task.metrics)}",
         " or ".join(METRICS)),
        (names_a_file(task.name), f"the name '{task.name}'", "a name that a folder may have"),
        *(
            (not pair or all(len({change(text) for text in pair}) > 1 and all(pair)
                             for change in (str.casefold, str.upper)),
             f"the {name} {', '.join(pair)}",
             "two that differ, not in case alone, or REVERSE would change the meaning")
            for name, pair in pairs.items()
        ),
    ):  # fmt: skip
        if not is_right:
            raise ConsilienceError(found, expected=expected, where=where)


_BUNDLED = read_document(Path(__file__).with_name("tasks.toml"))
TASKS: Mapping[str, Task] = {
    table["name"]: task_of_table(table, "tasks.toml") for table in _BUNDLED["task"]
}
QUESTIONS: Mapping[str, str] = _BUNDLED["questions"]  # To annotators, by task or else by kind
