"""What is asked (a plan and its queries), and how: an ask becomes a row of the answers table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.core.errors import Advance, Protocol
from consilience.core.factors import letters_of
from consilience.core.items import Ask, Bools, Floats, Group, Ints, Item, NoAnswer, Scores
from consilience.core.schemas import QUERIES_SCHEMA, REASONS
from consilience.models import LanguageModel
from consilience.types import Suite

Kind = Literal["facts", "pairs", "questions"]


@dataclass(frozen=True)
class Queries:
    """What one model is asked. Groups are independent: the order of asking decides no answer."""

    model: Any
    groups: Sequence[str]  # In the order of asking
    group: Callable[[str], Group]
    texts: Callable[[str, Any], Sequence[str]]
    """The texts of what an ask of a group shows, as a run keeps them."""
    ask: Callable[[Group, Advance], pl.DataFrame]  # The answers of a group or of a part of it
    settings: Mapping[str, object] = field(default_factory=dict)
    """What decides the answers beside the plan and the identity of the model."""

    def table(self) -> pl.DataFrame:
        """What is asked of all groups (``QUERIES_SCHEMA``)."""
        tables = [
            query_table(self.group(group), partial(self.texts, group)) for group in self.groups
        ]
        every = pl.concat(tables, how="diagonal")
        ends = ("gold", "input", "choices")  # of open questions there are fewer factors
        return every.select(pl.exclude(ends), *ends)


@dataclass(frozen=True)
class Plan:
    """What any model is asked: the queries of a suite, before a model is known."""

    kind: Kind
    suite: Suite  # Its groups in their variants, as they are counted
    sizes: Mapping[str, int]  # The number of queries of each group, in the order of asking
    settings: Mapping[str, object]  # What decides the answers beside the model
    load: Callable[[], Any]  # The model of the options
    queries: Callable[[Any], Queries]  # What a model is asked; None for no model
    source: Mapping[str, object] = field(default_factory=dict)
    """What the record of a run has beside the settings."""
    notes: Sequence[str] = ()

    @property
    def protocol(self) -> Protocol:
        return self.suite.protocol


Column = npt.NDArray[np.float64] | npt.NDArray[np.object_]
TEXTS = pl.List(pl.String)
HEADS = (
    "suite", "group", "item", "subject", "variant", "variant_index", "gold", "gold_option", "shown",
)  # fmt: skip

NUMBERS = (
    "logprob", "gold_logprob", "margin", "text_logprob", "gold_text_logprob", "gold_rank",
    "n_candidates",
)  # fmt: skip


def query_table(group: Group, texts: Callable[[Any], Sequence[str]]) -> pl.DataFrame:
    """What is asked, a row an ask (``QUERIES_SCHEMA``); ``texts``: those of what an ask shows."""
    shown = [texts(one.shown) for one in group.asks]
    width = len(shown[0]) if shown else 1  # the same of all asks of a group
    of_asks = pl.Series(list(chain.from_iterable(shown)), dtype=pl.String).reshape((-1, width))
    choices: Any = [one.answers if one.order else () for one in group.asks]
    choices = choices if any(choices) else pl.repeat([], len(shown), dtype=TEXTS, eager=True)
    columns: dict[str, Any] = {
        **_heads(group), "input": of_asks.arr.to_list(), "choices": choices,
    }  # fmt: skip
    kinds = {name: QUERIES_SCHEMA.get(name, pl.String()) for name in columns}
    return pl.DataFrame(columns, schema=pl.Schema(kinds))


def _heads(group: Group) -> dict[str, Any]:
    """What each ask is about, in the queries and in the answers."""
    items = [group.items[one.item] for one in group.asks]
    variants = [one.variant for one in group.asks]
    return {
        "group": [group.id] * len(items),
        "item": [item.id for item in items],
        "subject": [item.subject for item in items],
        "variant": [group.variants[at] for at in variants],
        "variant_index": variants,
        **{name: [of[at] for at in variants] for name, of in group.levels.items()},
        "gold": [item.gold for item in items],
    }


def askable(group: Group, model: LanguageModel) -> Group:
    """The group with the reasons why a model cannot be asked some of it."""
    reasons = iter(model.why_not([one.shown for one in group.asks if one.why_not is None]))
    asks = [one if one.why_not else one._replace(why_not=next(reasons)) for one in group.asks]
    return replace(group, asks=asks)


def ask(
    group: Group,
    score: Callable[[list[Any]], Iterable[Scores]],
    *,
    rescale: Callable[[Scores, Sequence[Ask]], Scores] = lambda scores, asks: scores,
    advance: Advance = lambda done: None,
) -> pl.DataFrame:
    """The answers that have the highest scores.

    ``score`` gives those of what is shown. ``rescale``: the rule by which they are compared.
    """
    columns = _columns(group)
    rows = np.array([row for row, one in enumerate(group.asks) if one.why_not is None], dtype=int)
    for given in score([group.asks[row].shown for row in rows]) if len(rows) else ():
        of_given = rows[given.rows]
        asks = [group.asks[row] for row in of_given]
        for name, values in answers_of(rescale(given, asks), asks, group.items).items():
            if name in columns:
                columns[name][of_given] = values
        advance(len(of_given))
    return _table(group, columns)


def ask_texts(
    group: Group,
    model: LanguageModel,
    read: Callable[[str, Ask], Mapping[str, Any]],
    samples: Sequence[int] = (),
    advance: Advance = lambda done: None,
) -> pl.DataFrame:
    """The answers in what a model writes; ``read`` makes the columns of a row of a text.

    A blank text is no answer.
    """
    records: list[Mapping[str, Any]] = [{} for _ in group.asks]
    rows = [row for row, one in enumerate(group.asks) if one.why_not is None]
    asks = [group.asks[row] for row in rows]
    numbers = [samples[one.variant] if samples else 1 for one in asks]
    for positions, texts in model.write([one.shown for one in asks], numbers):
        for at, text in zip(positions.tolist(), texts, strict=True):
            reply = text if isinstance(text, NoAnswer) or text.strip() else NoAnswer()
            if isinstance(reply, NoAnswer):
                records[rows[at]] = {"error": reply.reason}
            else:
                records[rows[at]] = read(reply, asks[at])
        advance(len(positions))
    columns = _columns(group)
    for row, record in enumerate(records):
        for name, value in record.items():
            columns[name][row] = value
    return _table(group, columns)


def _columns(group: Group) -> dict[str, Column]:
    size, heads = len(group.asks), (*HEADS, *group.levels)
    columns: dict[str, Column] = {
        name: np.full(size, np.nan) if name in NUMBERS else np.full(size, None, dtype=np.object_)
        for name in group.schema
        if name not in heads
    }
    columns["excluded"][:] = [one.why_not for one in group.asks]
    return columns


def _table(group: Group, columns: Mapping[str, Column]) -> pl.DataFrame:
    items = [group.items[one.item] for one in group.asks]
    values: dict[str, Any] = {
        **_heads(group),
        "suite": [group.suite] * len(items),
        "gold_option": [item.gold_at if item.options else None for item in items],
        "shown": [letters_of(one.order) for one in group.asks],
        **{name: column.tolist() for name, column in columns.items() if name not in NUMBERS},
    }
    numbers = {name: pl.Series(columns[name]).fill_nan(None) for name in NUMBERS}
    schema = pl.Schema(dict(group.schema))
    texts = {name: kind for name, kind in schema.items() if name not in NUMBERS}
    table = pl.DataFrame({name: values[name] for name in texts}, pl.Schema(texts))
    return table.with_columns(**numbers).select(list(schema)).cast(schema)


def answers_of(scores: Scores, asks: Sequence[Ask], items: Sequence[Item]) -> dict[str, Column]:
    """Turn scores into the answer columns of their rows; NaN or None for null.

    The answer is the option with the highest score, of equal ones the first in the order of the
    file. If the gold shares its token with another candidate (``Scores.same``), that candidate's
    score is the gold's; if it ranks first, the answer is the gold. A text that is none of the
    answers is a wrong answer; an empty one is no answer.
    """
    of_rows, rows = [items[one.item] for one in asks], np.arange(len(asks))
    scores, is_by_option = _by_option(scores, asks), any(one.order for one in asks)
    value = scores.totals if scores.logprob is None else scores.logprob
    if value is None:
        raise TypeError("scores without logprob and totals")
    has_score = ~np.isnan(value)
    known = np.where(has_score, value, -np.inf)
    best = known.argmax(axis=1)
    gold_at, names = _names(scores.words, asks, of_rows, best)
    right = np.where(gold_at < 0, 0, gold_at if scores.same is None else scores.same[gold_at])
    is_gold = (best == right) & (gold_at >= 0)
    answer = np.where(is_gold, _objects([item.gold for item in of_rows]), _objects(names))
    columns: dict[str, Column] = {"answer": answer}
    if scores.tokens is not None:
        columns["gold_token"] = _objects([*scores.tokens, None])[gold_at]
    is_partial = scores.logprob is None and not scores.is_complete
    sizes = [len(one.order) for one in asks] if is_by_option else value.shape[1]
    count = np.array(sizes) - len(scores.reasons) if is_partial else has_score.sum(axis=1)
    columns["n_candidates"] = np.full(len(asks), count, dtype=np.float64)
    if not (is_partial or scores.answers_only):
        columns |= _compared(scores, known, has_score, best, right)
    if scores.totals is not None and not scores.answers_only:
        columns["text_logprob"] = scores.totals[rows, best]
        columns["gold_text_logprob"] = scores.totals[rows, right]
    for name in {"gold_logprob", "gold_rank", "gold_text_logprob"} & columns.keys():
        columns[name][(gold_at < 0) | ~has_score[rows, right]] = np.nan
    if is_by_option:
        columns |= _of_options(scores, asks, best)
    if scores.texts:
        is_other = ~np.isfinite(known).any(axis=1)
        for name in {"answer", "label", "option"} & columns.keys():
            texts = _objects(scores.texts) if name != "option" else np.full(len(asks), None)
            columns[name][is_other] = texts[is_other]
    reasons = [
        _why_no_answer(scores, row, gold, has_some=has_score[row].any())
        for row, gold in enumerate(gold_at.tolist())
    ]
    out = np.array([any(of_row) for of_row in reasons], dtype=bool)
    for values in columns.values():
        values[out] = None
    return columns | {name: _objects([of[at] for of in reasons]) for at, name in enumerate(REASONS)}


def _by_option(scores: Scores, asks: Sequence[Ask]) -> Scores:
    """Scores in the order of the options, where the answers are shown in another."""
    if not any(one.order for one in asks) or scores.totals is None:
        return scores
    places = np.tile(np.arange(scores.totals.shape[1]), (len(asks), 1))
    for row, one in enumerate(asks):
        places[row, : len(one.order)] = one.order
    placed = {}
    for name in ("totals", "lengths"):
        if (values := getattr(scores, name)) is not None:
            placed[name] = np.empty_like(values)
            np.put_along_axis(placed[name], places, values, axis=1)
    return replace(scores, **placed)


def _of_options(scores: Scores, asks: Sequence[Ask], best: Ints) -> dict[str, Column]:
    labels = [one.answers[one.order.index(at)] for one, at in zip(asks, best, strict=True)]
    columns: dict[str, Column] = {"option": best.astype(np.object_), "label": _objects(labels)}
    lists: dict[str, npt.NDArray[Any]] = {}
    if scores.totals is not None and not scores.answers_only:
        lists["option_scores"] = scores.totals.astype(np.object_)
        lists["option_scores"][np.isnan(scores.totals)] = None
        if scores.lengths is not None:
            lists["option_tokens"] = scores.lengths
    for name, values in lists.items():
        rows = zip(values.tolist(), asks, strict=True)
        columns[name] = _objects([of_row[: len(one.order)] for of_row, one in rows])
    return columns


def _names(
    words: Sequence[str], asks: Sequence[Ask], items: Sequence[Item], best: Ints
) -> tuple[Ints, list[str]]:
    """The position of each gold, -1 for none, and what the best answer is called here."""
    if not words:
        names = [item.options[at] for item, at in zip(items, best, strict=True)]
        return np.array([item.gold_at for item in items], dtype=np.int64), names
    position = {word: at for at, word in enumerate(words)}
    options = items[0].options
    written = asks[0].answers or options
    name_of = dict(zip(written, options, strict=True)) if written is not options else {}
    golds = [written[item.gold_at] if item.gold_at >= 0 else item.gold for item in items]
    names = [name_of.get(word, word) for word in _objects(words)[best]]
    return np.array([position.get(gold, -1) for gold in golds], dtype=np.int64), names


def _compared(
    scores: Scores, known: Floats, has_score: Bools, best: Ints, right: Ints
) -> dict[str, Column]:
    """The columns that need all scores (row, candidate)."""
    rows = np.arange(len(known))
    top, gold, log = known[rows, best], known[rows, right], known
    others = known.copy()
    others[rows, best] = -np.inf
    second = others.max(axis=1, initial=-np.inf)
    is_earlier = np.arange(known.shape[1]) < right[:, None]
    ahead = (known > gold[:, None]) | ((known == gold[:, None]) & is_earlier)
    count = has_score.sum(axis=1)
    with np.errstate(invalid="ignore"):
        margin = top - second
        if scores.logprob is None:
            log = known - np.logaddexp.reduce(known, axis=1)[:, None]
    return {
        "logprob": log[rows, best],
        "gold_logprob": log[rows, right],
        "gold_rank": 1.0 + (ahead & has_score).sum(axis=1),
        "margin": np.where(count > 1, margin, np.nan),
    }


def _why_no_answer(
    scores: Scores, row: int, gold_at: int, *, has_some: bool
) -> tuple[str | None, str | None]:
    """Why a row is left out, and why it has no answer though it was asked (``REASONS``)."""
    if scores.unasked:
        return scores.unasked, None
    if gold_at < 0 and scores.words:
        return "the gold is not among the candidates", None
    if scores.words and (reason := scores.reasons.get(scores.words[gold_at])):
        return f"the gold is {reason}", None
    error = scores.error(row)
    return None if has_some or error else "no candidate could be asked", error


def _objects(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    return np.fromiter(values, np.object_)
