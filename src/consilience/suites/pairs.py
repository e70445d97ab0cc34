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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from consilience.core.errors import ConsilienceError, did_you_mean, missing_column, unknown_name
from consilience.core.factors import ORIGINAL
from consilience.core.items import Form, Segment, Task, TaskKind, TextPair
from consilience.core.text import control_in, names_a_file, truncated
from consilience.files.read import parquet_metadata, parse_json, read_document
from consilience.suites.questions import file_rows, hub_dataset

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
        segments = rewritten if isinstance(rewritten, tuple) else ()
        if len(segments) != len(form) or not all(
            isinstance(segment, Segment) for segment in segments
        ):
            raise ConsilienceError(
                f"the perturbation '{self.name}' made {_shown(rewritten)} of item {pair.item}",
                expected=f"a tuple of {len(form)} segments",
                where=self.source.get("file", ""),
                todo="Correct the function; docs/tasks.md has an example.",
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
    path = Path(file)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConsilienceError(
            f"cannot be read: {error.strerror}", where=file, todo="Check the path."
        ) from error
    module = ModuleType(path.stem)
    module.__file__ = file
    try:
        exec(compile(content, file, "exec"), module.__dict__)
    except Exception as error:
        raise ConsilienceError(
            f"cannot be run: {type(error).__name__}: {error}", where=file, todo="Correct the file."
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [known for known, value in vars(module).items() if callable(value)]
        raise ConsilienceError(f"no function '{name}'", where=file, todo=did_you_mean(name, names))
    described = (function.__doc__ or "").strip().partition("\n")[0]
    source = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
    return Perturbation(name, described or f"See {path.name}.", function, source)


def _shown(value: object) -> str:
    return truncated(repr(value), 60)


def forms_of(
    pair: TextPair, form: Form, perturbations: Mapping[str, Perturbation]
) -> dict[str, Form]:
    """The original and every perturbed form of a pair, by name."""
    return {ORIGINAL: form} | {
        name: perturbation.form_of(pair, form) for name, perturbation in perturbations.items()
    }


HUB = "hub"
"""``hub:SPLIT`` names a split of the task's dataset on the Hub, or of a folder of that layout."""

UNLABELLED = ("-1", "-", "", "nan")
"""Values that mean "no label": test sets of GLUE, and pairs without a majority in SNLI and MNLI."""

IDS = ("guid", "idx", "index", "pairID", "id")
Row = Mapping[str, Any]


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
    """The labelled pairs of a file (TSV, CSV, JSON, JSONL, Parquet) or of ``hub:SPLIT``.

    Labels may be the task's words or the places of them (``Task.labels``); a dataset of the Hub
    names its own. Pairs without a label are left out, with a note. An unknown label, a missing
    column and a source without pairs raise.
    """
    rows = _rows_of(source, task)
    if not rows:
        raise ConsilienceError("no rows", where=source)
    names_of = (task.first, task.second, task.label)
    first_name, second_name, label_name = (_column(rows[0], names, source) for names in names_of)
    items, unlabelled = [], 0
    ids = _ids(rows)
    for number, (row, id_) in enumerate(zip(rows, ids, strict=True), 1):
        where = f"{source}, row {number}"
        label = _at(row, label_name)
        if label is None or _word(label) in UNLABELLED:
            unlabelled += 1
            continue
        texts = {name: _at(row, name) for name in (first_name, second_name)}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise ConsilienceError(
                    f"'{name}' is {text!r}", expected="a text", where=where, todo="Correct the row."
                )
        if control := control_in(id_):
            raise ConsilienceError(f"{control} in the id", where=where, todo="Remove it.")
        first, second = texts[first_name], texts[second_name]
        items.append(TextPair(id_, first, second, _label(label, task, where)))
    if not items:
        raise UnlabelledError(
            len(rows),
            f"none of {len(rows)} rows has a label",
            where=source,
            todo="Test sets are often unlabelled; use the validation set.",
        )
    notes = [f"{source}: {unlabelled} of {len(rows)} pairs have no label and are left out"]
    return Pairs(tuple(items), tuple(notes if unlabelled else ()))


TASK_SUITE = "calum"


def generated_group(task: Task) -> str:
    """The group of what a model writes freely when it is asked a task."""
    return f"{task.name}-generated"


def sample_pairs(pairs: Pairs, limit: int, seed: int) -> Pairs:
    """At most ``limit`` pairs, drawn by ``seed``, in their order."""
    if len(pairs.items) <= limit:
        return pairs
    positions = sorted(random.Random(seed).sample(range(len(pairs.items)), limit))
    return replace(pairs, items=tuple(pairs.items[at] for at in positions))


def half_of(pairs: Pairs, half: int, seed: int) -> Pairs:
    """Half 1 or 2 of the pairs, drawn by ``seed``, in their order; the first is never smaller.

    The paper draws so where there is no test set: KLUE-STS's 519 are 260 and 259 (Section 4.1).
    """
    order = random.Random(seed).sample(range(len(pairs.items)), len(pairs.items))
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


def _label(label: object, task: Task, where: str) -> str:
    if task.threshold is not None:
        try:
            grade = float(str(label))
        except ValueError:
            grade = math.nan
        if not math.isfinite(grade):
            raise ConsilienceError(f"the grade {label!r}", expected="a number", where=where)
        return task.labels[int(grade >= task.threshold)]
    if str(label).strip() in task.labels:
        return str(label).strip()
    word = _word(label)
    if word.isdecimal() and len(word) < 9 and int(word) < len(task.labels):
        return task.labels[int(word)]
    raise ConsilienceError(
        f"the label {label!r}",
        expected=f"{', '.join(task.labels)}, or 0 to {len(task.labels) - 1} in this order",
        where=where,
        todo="Check the task, or give it as a TOML file with these labels.",
    )


def _word(label: object) -> str:
    """A label as text; whole numbers without the fraction that some tools give them (``-1.0``)."""
    return re.sub(r"(?<=\d)\.0+$", "", str(label).strip())


_ABSENT = object()


def _column(row: Row, names: Sequence[str], where: str) -> str:
    for name in names:
        if _at(row, name, _ABSENT) is not _ABSENT:
            return name
    todo = "Rename a column, or name the columns of the file in a TOML file of the task."
    raise missing_column(names[0], list(row), expected=" or ".join(names), where=where, todo=todo)


def _at(row: Row, name: str, absent: Any = None) -> Any:
    """The value of a column; ``NAME.INNER`` may be one of an object in the column ``NAME``."""
    first, _, rest = name.partition(".")
    if name in row or not rest:
        return row.get(name, absent)
    return _at(row[first], rest, absent) if isinstance(row.get(first), Mapping) else absent


def _ids(rows: Sequence[Row]) -> list[str]:
    """The rows' own names where each has another, else their numbers from 0."""
    for name in IDS:
        ids = [str(row[name]) for row in rows if row.get(name) is not None]
        if len(ids) == len(set(ids)) == len(rows):
            return ids
    return [str(number) for number in range(len(rows))]


def _rows_of(source: str, task: Task) -> list[Row]:
    """The rows of a file or of a split on the Hub; labels that it names are words of the task."""
    if source == HUB or source.startswith(HUB + ":"):
        if not task.hub:
            raise ConsilienceError(
                f"the task '{task.name}' names no dataset of the Hub", todo="Give a file."
            )
        split = source.partition(":")[2] or task.splits[1]
        where = f"{'/'.join(task.hub)}, split '{split}'"
        todo = "Check the network and the split, or give a file."
        dataset = hub_dataset(*task.hub, split=split, where=where, todo=todo)
        rows = [dict(row) for row in dataset]
        features = dataset.features.items()
        names = {name: one.names for name, one in features if type(one).__name__ == "ClassLabel"}
        return _named(rows, names, task, where)
    path = Path(source)
    if not path.is_file():
        raise ConsilienceError(
            "no such file",
            where=source,
            todo=f"Check the path, or name a split on the Hub: {HUB}:validation.",
        )
    rows = [dict(row) for _, row in file_rows(path, None)]
    names = _parquet_names(parquet_metadata(path)) if path.suffix == ".parquet" else {}
    return _named(rows, names, task, source)


def _parquet_names(metadata: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of labels that the datasets library wrote into a Parquet file, by column."""
    try:
        features = parse_json(metadata["huggingface"])["info"]["features"]
        return {
            column: list(map(str, feature["names"]))
            for column, feature in features.items()
            if feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
        return {}


def _named(
    rows: Sequence[Row], names: Mapping[str, Sequence[str]], task: Task, where: str
) -> list[Row]:
    """Labels of a dataset that names them, as its words: their order may be another than ours."""
    column = next((name for name in task.label if rows and name in rows[0]), "")
    if column not in names:
        return list(rows)
    words = dict(enumerate(names[column]))
    if set(words.values()) != set(task.labels) and not all(map(str.isdecimal, words.values())):
        raise ConsilienceError(
            f"the labels {', '.join(words.values())}",
            expected=", ".join(task.labels),
            where=where,
            todo="Give the task as a TOML file with these labels.",
        )
    return [
        {**row, column: words.get(label, label) if isinstance(label := row[column], int) else label}
        for row in rows
    ]


METRICS = ("accuracy", "f1")
CALUM = ("mnli", "qnli", "rte", "qqp", "mrpc")


def is_task(spec: str) -> bool:
    """Whether a suite is a task of sentence pairs: its name, or a TOML file."""
    return spec in TASKS or spec.endswith(".toml")


def load_task(spec: str, indicators: Sequence[str] | None = None) -> Task:
    """The task of that name or TOML file (``docs/tasks.md``), also with other ``indicators``."""
    if not is_task(spec):
        raise ConsilienceError(
            f"no task '{spec}'",
            expected="a name or a TOML file",
            todo=did_you_mean(spec, list(TASKS)),
        )
    task = task_of_table(read_document(Path(spec)), spec) if spec.endswith(".toml") else TASKS[spec]
    if indicators is not None:
        task = replace(task, indicators=tuple(indicators))  # type: ignore[arg-type]
        check_task(task, "--indicators")
    return task


def _task(fields: Mapping[str, Any]) -> Task:
    """A task of fields without faults."""
    values: Any = {key: tuple(of) if isinstance(of, list) else of for key, of in fields.items()}
    return Task(**values)


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
    task = _task(values)
    check_task(task, where)
    return task


def _value(name: str, value: Any, where: str) -> Any:
    if name in ("name", "kind"):
        right, expected = isinstance(value, str), "text"
    elif name == "threshold":
        right = type(value) in (int, float) and math.isfinite(value)
        expected = "a number"
    else:
        if isinstance(value, str) and name in ("first", "second", "label"):
            value = [value]
        right = isinstance(value, list) and all(isinstance(text, str) for text in value)
        expected = "a list of texts"
    if not right:
        raise ConsilienceError(f"'{name}' is {value!r}", expected=expected, where=where)
    if control := control_in(" ".join(value) if isinstance(value, list) else str(value)):
        raise ConsilienceError(f"{control} in '{name}'", where=where, todo="Remove it.")
    return value


ENTRIES: Mapping[str, set[int]] = {
    "indicators": {2},
    "t5_fields": {0, 2},
    "splits": {3},
    "hub": {0, 1, 2},
}


def check_task(task: Task, where: str) -> None:
    """Refuse a task that cannot be asked, or whose perturbations could change the meaning."""
    for is_right, problem, expected in _checks(task):
        if not is_right:
            raise ConsilienceError(problem, expected=expected, where=where)


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
        changed = [{change(text) for text in pair} for change in (str.casefold, str.upper)]
        differs = not pair or (all(pair) and all(len(texts) > 1 for texts in changed))
        expected = "two that differ, not in case alone, or REVERSE would change the meaning"
        yield differs, f"the {name} {', '.join(pair)}", expected
    fits = task.threshold is None or len(task.labels) == 2
    yield fits, f"a threshold and {len(task.labels)} labels", "2 labels"
    for metric in task.metrics:
        yield metric in METRICS, f"the metric '{metric}'", " or ".join(METRICS)
    is_plain = all(character.isalnum() or character in "._-" for character in task.name)
    is_free = not task.name.startswith("checkpoint")
    yield (
        is_plain and is_free and names_a_file(task.name),
        f"the name '{task.name}'",
        "letters, digits, '.', '_' and '-', no '.' or 'checkpoint' first",
    )


_BUNDLED = read_document(Path(__file__).with_name("tasks.toml"))
TASKS: Mapping[str, Task] = {table["name"]: _task(table) for table in _BUNDLED["task"]}
QUESTIONS: Mapping[str, str] = _BUNDLED["questions"]  # To annotators, by task or else by kind
