"""Which position of the options as they were shown, and so which label, has most answers."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_letters, digits

import numpy as np
import polars as pl

from consilience.metrics.item_means import Estimate, ItemNumbers, item_estimates
from consilience.presentation import LABEL_STYLES, permutation

CONCENTRATED = 1.5
"""A position is reported if the lower bound of the 95 % interval of its share of the answers is
above this many times the share that is expected: the larger one of that in a uniform choice and
that of the right answers."""

COLUMNS = ("group", "item", "order", "label", "option", "gold_option", "n_candidates")


def position_notes(answers: pl.DataFrame) -> Iterator[str]:
    """A note if answers to questions with options are concentrated on one position.

    ``answers``: an answers table with ``ask_questions.QUESTION_COLUMNS``; any other has no note.
    """
    if not set(COLUMNS) <= set(answers.columns):
        return
    shown = _shown(answers)
    if shown.is_empty():
        return
    position = int(shown["position"].mode().min())  # type: ignore[arg-type]
    share = _share(shown, position)
    expected, of_gold = _expected(shown, position)
    if not share.low > CONCENTRATED * max(expected, of_gold):
        return
    chosen = shown.filter(position=position)
    labels = set(chosen["label"])
    label = f" (label {labels.pop()})" if len(labels) == 1 and None not in labels else ""
    yield (
        f"{share.value:.1%} of {shown.height:,} answers (95 % CI {100 * share.low:.1f} to "
        f"{100 * share.high:.1f}) are the option in position {position + 1}{label}, against "
        f"{expected:.1%} in a uniform choice and {of_gold:.1%} of the right answers"
    )


def _shown(answers: pl.DataFrame) -> pl.DataFrame:
    """``question, label, size, position, gold``: a row an answer with a known shown position.

    ``label`` is null where the options have none; ``gold`` where its position is not known.
    """
    number = pl.col("option", "gold_option", "n_candidates")
    rows = answers.select(COLUMNS).with_columns(number.cast(pl.Float64, strict=False))
    rows = rows.drop_nulls(["option", "n_candidates"]).with_columns(number.cast(pl.Int64))
    key = ["order", "label", "option", "gold_option", "n_candidates"]
    kinds = rows.select(key).unique(maintain_order=True)
    places = [_places(*row) for row in kinds.iter_rows()]
    schema = {"shown_label": pl.String, "position": pl.Int64, "gold": pl.Int64}
    known = kinds.hstack(pl.DataFrame(places, schema, orient="row"))
    joined = rows.join(known, on=key, how="left", nulls_equal=True, maintain_order="left")
    return joined.drop_nulls("position").select(
        "position",
        "gold",
        question=pl.format("{}: {}", "group", "item"),
        label="shown_label",
        size="n_candidates",
    )


def _places(
    order: str | None, label: str | None, option: int, gold: int | None, size: int
) -> tuple[str | None, int | None, int | None]:
    """The label that was shown, and the shown positions of the answer and of the gold.

    The seed of a shuffle is not known here: its positions follow from the labels, as do those of an
    option that the order does not have.
    """
    is_shuffled = (order or "").startswith("shuffle")
    places = None if is_shuffled else permutation(order or "given", size)
    if places is None or option not in places:
        at = _position_of(label, size)
        return (label if at is not None else None), at, None
    at = places.index(option)
    return (
        label if _position_of(label, size) == at else None,
        at,
        places.index(gold) if gold in places else None,
    )


def _position_of(label: str | None, size: int) -> int | None:
    """The position of a label, whatever its style; None where it is no label."""
    if not label:
        return None
    if set(label) <= set(digits):
        at = int(label) - 1
    elif len(label) == 1 and label in ascii_letters:
        at = next(letters.index(label) for letters in LABEL_STYLES.values() if label in letters)
    else:
        return None
    return at if 0 <= at < size else None


def _share(shown: pl.DataFrame, position: int) -> Estimate:
    """The share of the answers in a position, with its interval over questions."""
    of_items = shown.group_by("question", maintain_order=True).agg(
        hits=(pl.col("position") == position).sum(), size=pl.len()
    )
    columns = of_items.select("hits", "size").to_numpy().astype(np.float64)
    numbers = {"share": ItemNumbers(columns, is_mean=True)}
    subjects = of_items["question"].to_numpy().astype(object)
    return item_estimates([numbers], subjects, 0)["share"]


def _expected(shown: pl.DataFrame, position: int) -> tuple[float, float]:
    """The share of a position in a uniform choice, and among the right answers.

    Right answers whose position is not known have the uniform share.
    """
    uniform = pl.when(pl.col("size") > position).then(1 / pl.col("size")).otherwise(0.0)
    of_gold = pl.coalesce((pl.col("gold") == position).cast(pl.Float64), uniform)
    ((expected, right),) = shown.select(a=uniform.mean(), b=of_gold.mean()).iter_rows()
    return expected, right
