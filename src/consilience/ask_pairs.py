"""Ask a model the sentence pairs of a task, in their original form and in perturbed forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.ask import Progress, answers_table, judge, no_answers
from consilience.choices import Long
from consilience.errors import ConsilienceError
from consilience.sentence_pairs import Form, Task, TextPair
from consilience.suites.pairs import TASK_SUITE, generated_group
from consilience.suites.perturbations import Perturbation, forms_of
from consilience.types import ORIGINAL, Scores

CHANGED_ANSWERS_SCHEMA: dict[str, type[pl.DataType]] = {
    "group": pl.String,
    "perturbation": pl.String,
    "item": pl.String,
    "gold": pl.String,
    "original_answer": pl.String,
    "answer": pl.String,
    "original_1": pl.String,
    "original_2": pl.String,
    "text_1": pl.String,
    "text_2": pl.String,
    "margin": pl.Float64,
}
"""One row an answer that a perturbation changed; ``margin`` is the smaller one of the two."""


class PairModel(Interface):
    """A model of sentence pairs: ``models/classifier.py``, ``models/label_writer.py``."""

    identity: dict[str, object]

    @property
    def longest(self) -> int:
        """The longest input, in tokens."""

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        """What the tokenizer makes of each form."""

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """All variants of one item, truncated so that each fits.

        A sentence that several variants share ends at the same place in all of them.
        """

    def why_not(self, form: Form) -> str | None:
        """Why a form cannot be asked; None where it can."""

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """Log-probabilities of the task's labels, each form in exactly one of the ``Scores``."""


Write = Callable[[Sequence[Form]], Iterator[tuple[npt.NDArray[np.int64], list[str]]]]
"""A model's free answers to forms, with their places."""


@dataclass(frozen=True, slots=True)
class Presented:
    """The sentence pairs of a task in all their forms, as the model reads them."""

    task: Task
    """The task."""
    pairs: tuple[TextPair, ...]
    """Its pairs."""
    names: tuple[str, ...]
    """The names of the forms, the original first."""
    forms: tuple[tuple[Form, ...], ...]
    """The forms (pair, form)."""
    reasons: tuple[str | None, ...]
    """Why a pair is not asked; None where it is."""
    notes: tuple[str, ...]
    """What a reader should know of the forms."""


def present_pairs(
    task: Task,
    pairs: Sequence[TextPair],
    original: Callable[[TextPair], Form],
    perturbations: Mapping[str, Perturbation],
    model: PairModel,
    *,
    long: Long = "truncate",
) -> Presented:
    """Every pair in every form; where a form is too long, the item is truncated or left out.

    ``long``: ``truncate`` shortens each form's own sentences (``PairModel.fit``), ``exclude``
    leaves the whole item out.
    """
    names = (ORIGINAL, *perturbations)
    written = [list(forms_of(pair, original(pair), perturbations).values()) for pair in pairs]
    encoded = model.encode([form for forms in written for form in forms])
    reasons: list[str | None] = []
    width, too_long = len(names), 0
    same = np.zeros(width, dtype=np.int64)
    truncated, rewritten, lost = same.copy(), same.copy(), same.copy()
    for at, forms in enumerate(written):
        ids = encoded[at * width : (at + 1) * width]
        most = max(len(each["input_ids"]) for each in ids)
        reason = next((why for form in forms if (why := model.why_not(form))), None)
        if most > model.longest and long == "exclude":
            reason = reason or f"{most} tokens, and the model takes {model.longest}"
        elif most > model.longest and reason is None:
            written[at] = model.fit(forms)
            shorter = np.array([one != two for one, two in zip(forms, written[at], strict=True)])
            other = np.array([_sentences(form) != _sentences(forms[0]) for form in forms])
            now = model.encode(written[at])
            too_long += 1
            truncated += shorter
            rewritten += shorter & other
            lost += np.array([each == now[0] for each in now]) & [each != ids[0] for each in ids]
        reasons.append(reason)
        same += [each == ids[0] for each in ids]
    notes = []
    if too_long:
        notes.append(
            f"{too_long} of {len(pairs)} items were too long for {model.longest} tokens: "
            f"{truncated.sum()} of their {too_long * width} forms were truncated, a sentence at "
            "the same place in every form that contains it"
        )
    for name, count in zip(names, rewritten.tolist(), strict=True):
        if count:
            notes.append(f"{name}: its own sentences were truncated in {_items(count)}")
    for name, count in zip(names, lost.tolist(), strict=True):
        if count:
            notes.append(
                f"{name}: in {_items(count)} the truncated form has the same tokens as the "
                "truncated original, so its consistency there is 100 %"
            )
    for count in sorted({*same[1:].tolist()} - {0}):
        alike = [name for name, each in zip(names[1:], same[1:], strict=True) if each == count]
        notes.append(
            f"{', '.join(alike)}: the same tokens as the original in {count} of {len(pairs)} "
            "items, which this model's tokenizer cannot tell apart"
        )
    return Presented(
        task, tuple(pairs), names, tuple(map(tuple, written)), tuple(reasons), tuple(notes)
    )


def _items(count: int) -> str:
    return f"{count} item{'s' * (count != 1)}"


def _sentences(form: Form) -> list[str]:
    """The sentences of a form in alphabetical order."""
    return sorted(segment.sentence for segment in form)


def ask_labels(
    presented: Presented, model: PairModel, *, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """The labels that the model finds most probable: an answers table, group the task's name."""
    rows, forms, golds = _rows(presented)
    columns = _columns(presented)
    for scores in model.score(forms):
        found = judge(scores, [golds[row] for row in scores.rows])
        for name, values in found.items():
            columns[name][rows[scores.rows]] = values
        progress(len(scores.rows))
    return answers_table(_questions(presented, presented.task.name), columns)


def ask_text(
    presented: Presented,
    write: Write,
    label_of: Callable[[str, Sequence[str]], str | None],
    *,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """What the model writes; where that is a label, the label. Group the task's name, generated."""
    rows, forms, _ = _rows(presented)
    columns = _columns(presented)
    labels = presented.task.labels
    for places, texts in write(forms):
        answers = [label_of(text, labels) or text for text in texts]
        columns["answer"][rows[places]] = np.array(answers, dtype=np.object_)
        columns["n_candidates"][rows[places]] = len(labels)
        progress(len(places))
    return answers_table(_questions(presented, generated_group(presented.task)), columns)


def changed_answers(presented: Presented, answers: pl.DataFrame) -> pl.DataFrame:
    """Every answer that a perturbation changed, the surest of both first (Tables 3, 4 and 7 to 9).

    ``text_1, text_2``: the perturbed form; ``original_1, original_2``: the original one. An answer
    that is no label is one that changed, even where the original's was the same.
    """
    forms = {pair.item: each for pair, each in zip(presented.pairs, presented.forms, strict=True)}
    first = answers.filter(pl.col("variant_index") == 0).select(
        "group", "item", original_answer="answer", original_margin="margin"
    )
    both = answers.filter(pl.col("variant_index") > 0).join(
        first, on=["group", "item"], how="left", maintain_order="left"
    )
    no_label = ~pl.col("answer").is_in(list(presented.task.labels))
    changed = both.filter(
        pl.col("answer").is_not_null()
        & pl.col("original_answer").is_not_null()
        & ((pl.col("answer") != pl.col("original_answer")) | no_label)
    ).with_columns(sure=pl.min_horizontal("margin", "original_margin"))
    rows = []
    for row in changed.sort("sure", descending=True, nulls_last=True).iter_rows(named=True):
        form = forms[row["item"]][row["variant_index"]]
        base = forms[row["item"]][0]
        rows.append(
            {
                "group": row["group"],
                "perturbation": row["variant"],
                "item": row["item"],
                "gold": row["gold"],
                "original_answer": row["original_answer"],
                "answer": row["answer"],
                "original_1": base[0].text,
                "original_2": base[1].text,
                "text_1": form[0].text,
                "text_2": form[1].text,
                "margin": row["sure"],
            }
        )
    return pl.DataFrame(rows, schema=CHANGED_ANSWERS_SCHEMA)


def _rows(presented: Presented) -> tuple[npt.NDArray[np.int64], list[Form], list[str]]:
    """Rows of the table that are asked, their forms and golds."""
    width = len(presented.names)
    rows: list[int] = []
    forms: list[Form] = []
    golds: list[str] = []
    for at, (pair, each, reason) in enumerate(
        zip(presented.pairs, presented.forms, presented.reasons, strict=True)
    ):
        if reason is None:
            rows += range(at * width, (at + 1) * width)
            forms += each
            golds += [pair.label] * width
    if not rows:
        raise ConsilienceError(
            f"no item of {presented.task.name} can be asked, such as: {presented.reasons[0]}"
        )
    return np.array(rows), forms, golds


def _columns(presented: Presented) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.object_]]:
    columns = no_answers(len(presented.pairs) * len(presented.names))
    columns["excluded"][:] = np.repeat(
        np.array(presented.reasons, dtype=np.object_), len(presented.names)
    )
    return columns


def _questions(presented: Presented, group: str) -> dict[str, object]:
    """The columns that say what was asked; pairs with the same first sentence are one subject."""
    width, size = len(presented.names), len(presented.pairs) * len(presented.names)
    return {
        "suite": [TASK_SUITE] * size,
        "group": [group] * size,
        "item": [pair.item for pair in presented.pairs for _ in range(width)],
        "subject": [pair.first for pair in presented.pairs for _ in range(width)],
        "variant": list(presented.names) * len(presented.pairs),
        "variant_index": list(range(width)) * len(presented.pairs),
        "gold": [pair.label for pair in presented.pairs for _ in range(width)],
    }
