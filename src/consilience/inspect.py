"""Tasks of inspect_ai in variants: an extension, of which inspect_ai is not a dependency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import ConsilienceError, unknown_name
from consilience.core.items import DEFAULT_LANGUAGE, Choice, Prompt, Question
from consilience.elsewhere.exports import asked_rows
from consilience.elsewhere.formats import VARIED, places_of
from consilience.elsewhere.table import LETTERS
from consilience.files.read import Problems, read_rows
from consilience.files.rows import Column, Row, line, raise_all, read_table, text
from consilience.options.commands import AskedOptions
from consilience.suites.questions import GROUP, Questions

if TYPE_CHECKING:
    from inspect_ai import Task
    from inspect_ai.dataset import Sample

FACTORS = ("order", "paraphrase")
PHRASINGS = (Column("item", line), Column("text", text))


def vary(
    task: Task | Callable[[], Task],
    factors: Sequence[str] | None = None,
    *,
    phrasings: str | Path | None = None,
    seed: int = 0,
) -> Task:
    """A task of inspect_ai with each sample in all its variants, one after the other.

    A variant is a sample with another order of choices or another text. Its metadata says under
    ``consilience`` which one it is, and ``score`` reads that from the log. Choices that speak of
    others stay at their place or follow them.

    Args:
        task: A task, or a function that makes one.
        factors: ``order=LEVELS`` and ``paraphrase=LEVELS``, as after ``--vary`` of ``probe``; None
            for all rotations of the choices and all phrasings.
        phrasings: A table with a row for each further phrasing: ``item``, the id of a sample (its
            number, from 1, where it has none), and ``text``. Those of an item count from 2.
        seed: Of ``order=shuffles:K``.
    """
    try:
        from inspect_ai import Task
        from inspect_ai.dataset import MemoryDataset, Sample
    except ImportError as error:
        raise ConsilienceError("no inspect_ai", todo="Run `pip install inspect-ai`.") from error
    varied = copy(task if isinstance(task, Task) else task())
    _refuse_own_order(varied)
    if others := [of for of in factors or () if of.partition("=")[0] not in FACTORS]:
        raise unknown_name(f"no factor '{others[0]}' of a task", others[0], FACTORS)
    every, texts = dict[str, Sample](), dict[str, list[str]]()
    for number, sample in enumerate(varied.dataset, start=1):
        item = str(number if sample.id is None else sample.id)
        if item in every:
            raise ConsilienceError(f"two samples with the id '{item}'", expected="one")
        every[item], texts[item] = sample, [_user_turn(sample)[0]]
    for row in _rows(phrasings) if phrasings else ():
        if row["item"] not in texts:
            raise unknown_name(f"no sample '{row['item']}'", row["item"], texts, row.where)
        texts[row["item"]].append(row["text"])
    questions = tuple(_question(item, one, texts[item]) for item, one in every.items())
    options = AskedOptions(vary=factors, template="{question}{options}", seed=seed)
    _, rows = asked_rows(options, Questions(varied.name, questions))
    samples = [
        _variant(row, ask.shown, every[row["item"]], texts[row["item"]]) for row, ask, _ in rows
    ]
    varied.dataset = MemoryDataset(samples, varied.dataset.name, varied.dataset.location)
    return varied


def _refuse_own_order(task: Task) -> None:
    """Raise for a task whose samples, or orders of choices, are not known before it runs."""
    if task.sample_source is not None:
        raise ConsilienceError("a task that makes its samples as it runs", expected="a dataset")
    solvers = task.solver if isinstance(task.solver, Sequence) else [task.solver]
    if any(getattr(one, "__registry_params__", {}).get("shuffle") for one in solvers):
        found = "multiple_choice(shuffle=...), which shuffles the choices"
        raise ConsilienceError(found, expected="the order of the dataset", todo="Leave it out.")


def _rows(phrasings: str | Path) -> Iterator[Row]:
    problems: Problems = []
    rows = read_rows(Path(phrasings), problems)
    yield from read_table(rows, PHRASINGS, problems, str(phrasings))
    raise_all(problems)


def _user_turn(sample: Sample, written: str | None = None) -> tuple[str, Any]:
    """The text that a sample asks with, and its input with another text in its place."""
    if isinstance(sample.input, str):
        return sample.input, sample.input if written is None else written
    turns = deepcopy(sample.input)
    turn = next((one for one in reversed(turns) if one.role == "user"), turns[-1])
    asked = turn.text
    turn.text = asked if written is None else written
    return asked, turns


def _question(item: str, sample: Sample, texts: Sequence[str]) -> Question:
    options = tuple(map(Choice, sample.choices or ()))
    places = places_of(sample.target, sample.choices or ())
    gold = options[(places or [0])[0]] if options else Choice(str(sample.target))
    return Question(item, GROUP, {DEFAULT_LANGUAGE: tuple(texts)}, gold, options)


def _variant(row: Mapping[str, Any], shown: Prompt, sample: Sample, texts: Sequence[str]) -> Sample:
    """A sample in a variant."""
    places, target = places_of(sample.target, sample.choices or ()), sample.target
    if places:
        letters = [LETTERS[shown.options.index(at)] for at in places]
        target = letters if isinstance(target, list) else ",".join(sorted(letters))
    names = ["id", "item", "variant", "variant_index", *FACTORS]
    names += ["options"] * bool(sample.choices)
    said = {name: row[name] for name in names if name in row}
    return sample.model_copy(update={
        "id": f"{row['item']} {row['variant']}".replace(", ", " "),
        "input": _user_turn(sample, texts[int(row.get("paraphrase") or 1) - 1])[1],
        "choices": [choice.text for choice in shown.choices] or None,
        "target": target,
        "metadata": {**(sample.metadata or {}), VARIED: said},
    })  # fmt: skip
