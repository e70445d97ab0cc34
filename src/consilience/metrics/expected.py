"""The expectations of a suite in an answers table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from consilience.expectations import NO_OPTION, Instance, Probabilities, Replies, instances
from consilience.factors import levels_of
from consilience.free_text import normalized
from consilience.metrics.option_probabilities import OF_OPTIONS, option_probabilities
from consilience.types import Suite


def instances_of(table: pl.DataFrame, suite: Suite) -> dict[str, list[tuple[Instance, ...]]]:
    """The instances of each expectation that could be checked, by the group of its first premise.

    ``table``: a prepared answers table.
    """
    if not suite.expectations:
        return {}
    groups = dict(table.select("item", "group").unique().iter_rows())
    replies, probabilities = _replies(table, suite), _probabilities(table, suite)
    by_group: dict[str, list[tuple[Instance, ...]]] = {}
    for expectation in suite.expectations:
        group = groups.get(expectation.items[0])
        if group is None:
            continue
        levels = {name: levels_of(name) for name in suite.relation(group).design.variants}
        if of_expectation := tuple(instances(expectation, replies, levels, probabilities)):
            by_group.setdefault(group, []).append(of_expectation)
    return by_group


def unchecked_note(
    suite: Suite, by_group: Mapping[str, Sequence[tuple[Instance, ...]]]
) -> list[str]:
    """A note on expectations of which a question, or its phrasing, was not asked."""
    checked = {of[0].expectation for group in by_group.values() for of in group}
    lacking = [expectation for expectation in suite.expectations if expectation not in checked]
    if not lacking:
        return []
    has_phrasing = any(one.paraphrase for missing in lacking for one in missing.references)
    vary = "; phrasings vary with --vary paraphrase" if has_phrasing else ""
    items = " and ".join(f"'{item}'" for item in dict.fromkeys(lacking[0].items))
    return [
        f"{len(lacking)} of {len(suite.expectations)} expectations are not checked, such as for "
        f"{items}: not all of their questions were asked{vary}"
    ]


def _replies(table: pl.DataFrame, suite: Suite) -> Replies:
    """The answers to the questions that something is expected of; options by their text.

    The column ``option`` alone says which option an answer is: a text without one is ``NO_OPTION``,
    whatever it reads. Two answers to open questions are the same if their normalized texts are
    equal, or if a judge merged them (``meaning``).
    """
    options = {
        one.item: one.options
        for expectation in suite.expectations
        for one in expectation.references
    }
    rows = table.filter(pl.col("item").is_in(list(options)))
    position = pl.col("option").cast(pl.Float64, strict=False).cast(pl.Int64)
    replies: dict[tuple[str, str], str | None] = {}
    columns = rows.select("item", "variant", pl.coalesce("meaning", "answer"), position)
    shown = _open_texts(rows, suite)
    for item, variant, text, at in columns.iter_rows():
        known = options[item]
        if text is None:
            replies[item, variant] = None
        elif known:
            replies[item, variant] = known[at] if at is not None and at < len(known) else NO_OPTION
        else:
            replies[item, variant] = shown.get(normalized(text), text)
    return replies


def _probabilities(table: pl.DataFrame, suite: Suite) -> dict[tuple[str, str], Probabilities]:
    """The probability of each option: the scores of the run, normalised over the options."""
    if OF_OPTIONS not in table.columns:
        return {}
    sizes = {
        one.item: len(one.options)
        for expectation in suite.expectations
        for one in expectation.references
    }
    rows = table.filter(pl.col("item").is_in(list(sizes)) & pl.col(OF_OPTIONS).is_not_null())
    probabilities: dict[tuple[str, str], Probabilities] = {}
    columns = rows.select("item", "variant", pl.col(OF_OPTIONS).list.len()).iter_rows()
    of_rows = option_probabilities(rows).tolist()
    for (item, variant, size), of_options in zip(columns, of_rows, strict=True):
        if size == sizes[item] and np.isfinite(of_options).all():
            probabilities[item, variant] = tuple(of_options[:size])
    return probabilities


def _open_texts(rows: pl.DataFrame, suite: Suite) -> dict[str, str]:
    """Normalized text -> text as the suite has it, of golds and of answers that are expected."""
    texts = rows["gold"].drop_nulls().unique(maintain_order=True).to_list()
    for expectation in suite.expectations:
        texts += [text for rule in expectation.rules.items() for of in rule for text in of]
        texts += expectation.condition
    return {normalized(text): text for text in reversed(texts)}
