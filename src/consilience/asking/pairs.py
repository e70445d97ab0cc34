"""Ask a model the sentence pairs of a task, in their original form and in perturbed forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.asking import asker
from consilience.asking.asker import Progress
from consilience.core.errors import ConsilienceError, Long
from consilience.core.factors import ORIGINAL
from consilience.core.free_text import matched_word
from consilience.core.items import Ask, Form, Group, Item, NoAnswer, Scores, Task, TextPair
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.core.text import counted
from consilience.suites.pairs import TASK_SUITE, generated_group
from consilience.suites.perturbations import Perturbation, forms_of

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
    """A model of sentence pairs: a classifier, a language model, a function or a baseline."""

    identity: dict[str, object]
    notes: list[str]

    @property
    def longest(self) -> int:
        """The longest input, in tokens."""

    def prompt(self, form: Form) -> str:
        """The text that the model reads; of one that reads two texts, a line each."""

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


Write = Callable[[Sequence[Form]], Iterator[tuple[npt.NDArray[np.int64], Sequence[str | NoAnswer]]]]
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

    def in_variants(self, positions: Sequence[int]) -> Presented:
        """The pairs in the forms at some positions."""
        forms = tuple(tuple(of_pair[at] for at in positions) for of_pair in self.forms)
        return replace(self, names=tuple(self.names[at] for at in positions), forms=forms)


def present_pairs(
    task: Task,
    pairs: Sequence[TextPair],
    original: Callable[[TextPair], Form],
    perturbations: Mapping[str, Perturbation],
    model: PairModel,
    *,
    long: Long = "truncate",
) -> Presented:
    """Every pair in every form, as the model reads it.

    ``long``: of an item with a form that is too long for the model, ``truncate`` shortens each
    form's own sentences (``PairModel.fit``), and ``exclude`` excludes the whole item.
    """
    names = (ORIGINAL, *perturbations)
    forms = [tuple(forms_of(pair, original(pair), perturbations).values()) for pair in pairs]
    encoded = model.encode([form for of_pair in forms for form in of_pair])
    reasons: list[str | None] = []
    effects = _Effects.none(len(names))
    for at, of_pair in enumerate(forms):
        ids = encoded[at * len(names) : (at + 1) * len(names)]
        longest = max(len(form["input_ids"]) for form in ids)
        reason = next((why for form in of_pair if (why := model.why_not(form))), None)
        if longest > model.longest and long == "exclude":
            reason = reason or f"{longest} tokens, and the model takes {model.longest}"
        elif longest > model.longest and reason is None:
            forms[at] = tuple(model.fit(of_pair))
            effects.add_truncated(of_pair, forms[at], ids, model.encode(forms[at]))
        reasons.append(reason)
        effects.same += [form == ids[0] for form in ids]
    notes = effects.notes(names, len(pairs), model.longest)
    return Presented(task, tuple(pairs), names, tuple(forms), tuple(reasons), tuple(notes))


Counts = npt.NDArray[np.int64]
Encoded = Sequence[Mapping[str, Sequence[int]]]


@dataclass(slots=True)
class _Effects:
    """In how many items the tokenizer and truncation changed each form (form,)."""

    same: Counts
    """The form has the same tokens as the original."""
    truncated: Counts
    """The form was truncated."""
    rewritten: Counts
    """The form was truncated, and its sentences are not the original's."""
    lost: Counts
    """The truncated form has the same tokens as the truncated original; it had others before."""
    too_long: int = 0
    """How many items were truncated."""

    @classmethod
    def none(cls, width: int) -> _Effects:
        """No item yet."""
        return cls(*np.zeros((4, width), dtype=np.int64))

    def add_truncated(
        self, forms: Sequence[Form], fitted: Sequence[Form], before: Encoded, after: Encoded
    ) -> None:
        """Count an item with its forms and their tokens, before and after truncation."""
        shorter = np.array([one != two for one, two in zip(forms, fitted, strict=True)])
        other = np.array([_sentences(form) != _sentences(forms[0]) for form in forms])
        same_now = np.array([form == after[0] for form in after])
        self.too_long += 1
        self.truncated += shorter
        self.rewritten += shorter & other
        self.lost += same_now & [form != before[0] for form in before]

    def notes(self, names: Sequence[str], items: int, longest: int) -> list[str]:
        """The counts as notes; ``names``: of the forms."""
        notes = []
        if self.too_long:
            notes.append(
                f"{self.too_long} of {items} items were too long for {longest} tokens: "
                f"{self.truncated.sum()} of their {self.too_long * len(names)} forms were "
                "truncated, a sentence at the same place in every form that contains it"
            )
        for name, count in zip(names, self.rewritten.tolist(), strict=True):
            if count:
                notes.append(
                    f"{name}: its own sentences were truncated in {counted(count, 'item')}"
                )
        for name, count in zip(names, self.lost.tolist(), strict=True):
            if count:
                notes.append(
                    f"{name}: in {counted(count, 'item')} the truncated form has the same tokens "
                    "as the truncated original, so its consistency there is 100 %"
                )
        same = dict(zip(names[1:], self.same[1:].tolist(), strict=True))
        for count in sorted({*same.values()} - {0}):
            alike = ", ".join(name for name in same if same[name] == count)
            notes.append(
                f"{alike}: the same tokens as the original in {count} of {items} "
                "items, which this model's tokenizer cannot tell apart"
            )
        return notes


def _sentences(form: Form) -> list[str]:
    """The sentences of a form in alphabetical order."""
    return sorted(segment.sentence for segment in form)


def pairs_of(presented: Presented, name: str) -> Group:
    """The pairs in their forms; those with the same first sentence are one subject."""
    task = presented.task
    if all(presented.reasons):
        raise ConsilienceError(
            f"no item of {task.name} can be asked, such as: {presented.reasons[0]}"
        )
    items = [
        Item(pair.item, pair.first, pair.label, task.labels, task.labels.index(pair.label))
        for pair in presented.pairs
    ]
    asks = [
        Ask(item, variant, form, why_not=reason)
        for item, (forms, reason) in enumerate(zip(presented.forms, presented.reasons, strict=True))
        for variant, form in enumerate(forms)
    ]
    return Group(TASK_SUITE, name, items, presented.names, asks, ANSWERS_SCHEMA)


def ask_labels(
    presented: Presented, model: PairModel, *, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """The labels that the model finds most probable: an answers table, group the task's name."""
    return asker.ask(pairs_of(presented, presented.task.name), model.score, progress=progress)


def ask_text(
    presented: Presented,
    write: Write,
    *,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """What the model writes; where that is a label, the label. Group the task's name, generated."""
    labels = presented.task.labels

    def read(text: str, ask: Ask) -> dict[str, object]:
        return {"answer": matched_word(text, labels) or text, "n_candidates": len(labels)}

    group = pairs_of(presented, generated_group(presented.task))
    return asker.ask_texts(group, lambda forms, _: write(forms), read, progress=progress)


def pair_prompts(presented: Presented, model: PairModel) -> pl.DataFrame:
    """What a model is sent: ``item, variant, variant_index, prompt``, as in the answers table."""
    rows = [
        (pair.item, name, at, model.prompt(form))
        for pair, forms in zip(presented.pairs, presented.forms, strict=True)
        for at, (name, form) in enumerate(zip(presented.names, forms, strict=True))
    ]
    texts = dict.fromkeys(("item", "variant"), pl.String)
    schema = {**texts, "variant_index": pl.Int32, "prompt": pl.String}
    return pl.DataFrame(rows, schema, orient="row")


def changed_answers(presented: Presented, answers: pl.DataFrame) -> pl.DataFrame:
    """Every answer that a perturbation changed, the most confident first (Tables 3, 4, 7 to 9).

    ``text_1, text_2``: the perturbed form; ``original_1, original_2``: the original one. An answer
    that is no label is one that changed, even where the original's was the same.
    """
    items = [pair.item for pair in presented.pairs]
    forms = dict(zip(items, presented.forms, strict=True))
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
    ).with_columns(confidence=pl.min_horizontal("margin", "original_margin"))
    rows = []
    for row in changed.sort("confidence", descending=True, nulls_last=True).iter_rows(named=True):
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
                "margin": row["confidence"],
            }
        )
    return pl.DataFrame(rows, schema=CHANGED_ANSWERS_SCHEMA)
