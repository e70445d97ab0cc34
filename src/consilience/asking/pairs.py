"""Ask a model the sentence pairs of a task, in their original form and in perturbed forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from consilience.asking import asker
from consilience.asking.asker import Progress
from consilience.core.errors import ConsilienceError
from consilience.core.factors import ORIGINAL
from consilience.core.free_text import matched_word
from consilience.core.items import Ask, Form, Group, Item, Task, TextPair
from consilience.core.schemas import ANSWERS_SCHEMA
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
        forms = tuple(tuple(of_pair[at] for at in positions) for of_pair in self.forms)
        return replace(self, names=tuple(self.names[at] for at in positions), forms=forms)


def present_pairs(
    task: Task,
    pairs: Sequence[TextPair],
    original: Callable[[TextPair], Form],
    perturbations: Mapping[str, Perturbation],
    model: PairModel,
) -> Presented:
    """Every pair in every form, as the model reads it.

    Of an item with a form that is too long for the model, the sentences are shortened
    (``PairModel.fit``).
    """
    names = (ORIGINAL, *perturbations)
    forms = [tuple(forms_of(pair, original(pair), perturbations).values()) for pair in pairs]
    encoded = model.encode([form for of_pair in forms for form in of_pair])
    reasons: list[str | None] = []
    too_long, truncated = 0, 0
    for at, of_pair in enumerate(forms):
        ids = encoded[at * len(names) : (at + 1) * len(names)]
        longest = max(len(form["input_ids"]) for form in ids)
        reason = next(filter(None, model.why_not(of_pair)), None)
        if longest > model.longest and reason is None:
            forms[at] = tuple(model.fit(of_pair))
            too_long += 1
            truncated += sum(one != two for one, two in zip(of_pair, forms[at], strict=True))
        reasons.append(reason)
    notes = []
    if too_long:
        notes.append(
            f"{too_long} of {len(pairs)} items were too long for {model.longest} tokens: "
            f"{truncated} of their {too_long * len(names)} forms were truncated, a sentence at the "
            "same place in every form that contains it"
        )
    return Presented(task, tuple(pairs), names, tuple(forms), tuple(reasons), tuple(notes))


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
