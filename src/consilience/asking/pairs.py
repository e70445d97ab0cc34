"""Ask a model the sentence pairs of a task, in their original form and in perturbed forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from consilience.asking import asker
from consilience.asking.asker import Progress
from consilience.core.errors import ConsilienceError, Long
from consilience.core.factors import ORIGINAL
from consilience.core.free_text import matched_word
from consilience.core.items import Ask, Form, Group, Item, Task, TextPair
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.core.text import counted
from consilience.models import PairModel, WritingModel
from consilience.suites.pairs import TASK_SUITE, Perturbation, forms_of, generated_group

CHANGED_ANSWERS_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("group", "perturbation", "item", "gold", "original_answer"), pl.String),
    **dict.fromkeys(("answer", "original_1", "original_2", "text_1", "text_2"), pl.String),
    "margin": pl.Float64,
}
"""One row an answer that a perturbation changed; ``margin`` is the smaller one of the two."""


@dataclass(frozen=True, slots=True)
class Presented:
    """The sentence pairs of a task in all their forms, as the model reads them."""

    task: Task
    pairs: tuple[TextPair, ...]
    names: tuple[str, ...]  # The names of the forms, the original first
    forms: tuple[tuple[Form, ...], ...]  # The forms (pair, form)
    reasons: tuple[str | None, ...]  # Why a pair is not asked; None where it is
    notes: tuple[str, ...]  # What a reader should know of the forms

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
    effects = _Effects(names)
    for at, of_pair in enumerate(forms):
        ids = encoded[at * len(names) : (at + 1) * len(names)]
        longest = max(len(form["input_ids"]) for form in ids)
        reason = next(filter(None, model.why_not(of_pair)), None)
        if longest > model.longest and long == "exclude":
            reason = reason or f"{longest} tokens, and the model takes {model.longest}"
        elif longest > model.longest and reason is None:
            forms[at] = tuple(model.fit(of_pair))
            effects.add_truncated(of_pair, forms[at], ids, model.encode(forms[at]))
        reasons.append(reason)
        effects.same += [form == ids[0] for form in ids]
    notes = effects.notes(len(pairs), model.longest)
    return Presented(task, tuple(pairs), names, tuple(forms), tuple(reasons), tuple(notes))


@dataclass(slots=True)
class _Effects:
    """In how many items the tokenizer and truncation changed each form (form,)."""

    names: Sequence[str]
    same: Any = field(init=False)  # The form has the same tokens as the original
    truncated: Any = field(init=False)  # The form was truncated
    rewritten: Any = field(init=False)
    """The form was truncated, and its sentences are not the original's."""
    lost: Any = field(init=False)
    """The truncated form has the same tokens as the truncated original; it had others before."""
    too_long: int = 0  # How many items were truncated

    def __post_init__(self) -> None:
        shape = 4, len(self.names)
        self.same, self.truncated, self.rewritten, self.lost = np.zeros(shape, dtype=np.int64)

    def add_truncated(
        self, forms: Sequence[Form], fitted: Sequence[Form], before: Sequence[Any], after: Any
    ) -> None:
        """Count an item with its forms and their tokens, before and after truncation."""
        sentences = [sorted(segment.sentence for segment in form) for form in forms]
        shorter = np.array([one != two for one, two in zip(forms, fitted, strict=True)])
        self.too_long += 1
        self.truncated += shorter
        self.rewritten += shorter & [of_form != sentences[0] for of_form in sentences]
        self.lost += np.array([one == after[0] for one in after]) & [
            one != before[0] for one in before
        ]

    def notes(self, items: int, longest: int) -> list[str]:
        """The counts as notes."""
        notes = []
        if self.too_long:
            notes.append(
                f"{self.too_long} of {items} items were too long for {longest} tokens: "
                f"{self.truncated.sum()} of their {self.too_long * len(self.names)} forms were "
                "truncated, a sentence at the same place in every form that contains it"
            )
        for name, count in zip(self.names, self.rewritten.tolist(), strict=True):
            if count:
                notes.append(
                    f"{name}: its own sentences were truncated in {counted(count, 'item')}"
                )
        for name, count in zip(self.names, self.lost.tolist(), strict=True):
            if count:
                notes.append(
                    f"{name}: in {counted(count, 'item')} the truncated form has the same tokens "
                    "as the truncated original, so its consistency there is 100 %"
                )
        same = dict(zip(self.names[1:], self.same[1:].tolist(), strict=True))
        for count in sorted({*same.values()} - {0}):
            alike = ", ".join(name for name in same if same[name] == count)
            notes.append(
                f"{alike}: the same tokens as the original in {count} of {items} "
                "items, which this model's tokenizer cannot tell apart"
            )
        return notes


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
    presented: Presented, model: WritingModel, *, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """What the model writes; where that is a label, the label. Group the task's name, generated."""
    labels = presented.task.labels

    def read(text: str, ask: Ask) -> dict[str, object]:
        return {"answer": matched_word(text, labels) or text, "n_candidates": len(labels)}

    group = pairs_of(presented, generated_group(presented.task))
    return asker.ask_texts(group, model, read, progress=progress)


def pair_prompts(presented: Presented, model: PairModel) -> pl.DataFrame:
    """What a model is sent: ``item, variant, variant_index, prompt``, as in the answers table."""
    asked = replace(presented, reasons=(None,) * len(presented.reasons))
    return asker.prompt_table(pairs_of(asked, presented.task.name), model).drop(
        "candidates", "options"
    )


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
    ).with_columns(perturbation="variant", margin=pl.min_horizontal("margin", "original_margin"))
    texts = []
    changed = changed.sort("margin", descending=True, nulls_last=True)
    for item, variant in changed.select("item", "variant_index").iter_rows():
        original, form = forms[item][0], forms[item][variant]
        texts.append([segment.text for segment in (*original, *form)])
    names = ["original_1", "original_2", "text_1", "text_2"]
    shown = pl.DataFrame(texts, schema=dict.fromkeys(names, pl.String), orient="row")
    return pl.concat([changed, shown], how="horizontal").select(list(CHANGED_ANSWERS_SCHEMA))
