"""Ask a model the facts of a suite: relations become rows of the answers table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.core.errors import ConsilienceError
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.models import LanguageModel
from consilience.runs.folder import RunFolder
from consilience.types import Relation, Scores, Suite

Progress = Callable[[int], None]
"""Called with the number of queries that have just been answered."""

FLOATS = ("logprob", "gold_logprob", "margin", "text_logprob", "gold_text_logprob")
WHOLE_NUMBERS = ("gold_rank", "n_candidates")
WORDS = ("gold_token", "answer", "excluded")

N_BOUNDS = "n_bounds"
"""The column of answers with the number of candidates of which only a bound is known, where a
server lists the most probable tokens only."""

UNCERTAIN = "a candidate of which only a bound is known may be the most probable"
"""In ``excluded``: the server lists the most probable tokens only, and the answer is not among
them."""

Column = npt.NDArray[np.float64] | npt.NDArray[np.object_]


def ask_suite(
    suite: Suite,
    model: LanguageModel,
    folder: RunFolder | None = None,
    *,
    whole_vocabulary: bool = False,
    keep_scores: bool = False,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The answers to a whole suite (``ANSWERS_SCHEMA``).

    With a ``folder`` each relation is kept there when it is complete, and a complete one is read
    instead of asked.
    """
    relations = {relation.id: relation for relation in suite.relations}

    def answers_of(group: str, progress: Progress) -> pl.DataFrame:
        return ask(
            relations[group],
            model,
            suite.name,
            whole_vocabulary=whole_vocabulary,
            keep_scores=keep_scores,
            progress=progress,
        )

    if folder is not None:
        folder.note(suite.notes)
    tables = ask_groups(query_counts(suite), answers_of, model, folder, progress)
    answers = pl.concat(tables.values(), how="diagonal")
    if folder is not None:
        folder.note(bound_notes(answers))
    return answers.select(list(ANSWERS_SCHEMA))


def query_counts(suite: Suite) -> dict[str, int]:
    """The number of queries of each relation."""
    return {
        relation.id: len(relation.facts) * len(relation.patterns) for relation in suite.relations
    }


def ask_groups(
    groups: Mapping[str, int],
    answers_of: Callable[[str, Progress], pl.DataFrame],
    model: Any,
    folder: RunFolder | None = None,
    progress: Progress = lambda done: None,
) -> dict[str, pl.DataFrame]:
    """The answers of each group, by ``answers_of``, which asks the model a whole group.

    ``groups``: the number of queries of each. With a ``folder`` a group is kept there when it is
    complete, with what a reader of it should know, and a complete one is read instead of asked.
    """
    if folder is not None:
        folder.note(model.notes)
        if products := getattr(model, "products", None):
            folder.multiplied_by(products.record())
    tables = {}
    for group, size in groups.items():
        answers = folder.answers(group, size) if folder else None
        if answers is not None:
            progress(size)
        else:
            answers = answers_of(group, progress)
            if folder is not None:
                _keep(answers, group, model, folder)
        tables[group] = answers
    return tables


def bound_notes(answers: pl.DataFrame) -> list[str]:
    """A note on answers where a server gave only bounds of some candidates."""
    if N_BOUNDS not in answers.columns:
        return []
    some = answers.filter(pl.col(N_BOUNDS) > 0)
    lost = some.filter(pl.col("excluded") == UNCERTAIN).height
    return [
        f"the server gave only a bound of some candidates in {some.height:,} of "
        f"{answers.height:,} answers; {lost:,} of these answers are excluded, because a candidate "
        "with a bound may be the most probable. Scores, ranks and margins are unknown there"
    ]


def _keep(answers: pl.DataFrame, group: str, model: Any, folder: RunFolder) -> None:
    """Write the answers of a complete group, and what a reader of them should know."""
    folder.write_answers(group, answers)
    folder.note(model.notes)
    if screened := getattr(model, "screened", None):
        folder.screened(group, screened.record())


def screening_note(record: Mapping[str, Any]) -> str:
    """What a reader of a run's answers should know of how they were screened."""
    groups = [dict(screened) for screened in record["screened"].values()]
    queries, settled, compared, others = (
        sum(group[name] for group in groups)
        for name in ("queries", "settled", "compared", "disagreements")
    )
    bounds = [group["bound"] for group in groups if group["bound"]]
    enlarged = sum(group["enlarged"] for group in groups)
    share = (settled + compared) / max(1, queries)
    shown = f"{min(bounds):.2g} to {max(bounds):.2g}" if bounds else "none"
    return (
        f"{queries - settled - compared:,} of {queries:,} queries were screened in bfloat16 on "
        f"{record['products']['processor']}, the others ({share:.1%}) answered in float32; "
        f"calibrated bounds in nats: {shown}, largest error of {compared:,} queries computed both "
        f"ways: {max(group['largest_error'] for group in groups):.2g}, "
        f"bounds enlarged: {enlarged}, answers that differed: {others}"
    )


def ask(
    relation: Relation,
    model: LanguageModel,
    suite_name: str,
    *,
    whole_vocabulary: bool = False,
    keep_scores: bool = False,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The answers of one relation, one row a query (``ANSWERS_SCHEMA``).

    ``keep_scores`` has every candidate scored and adds the column ``scores``. Subjects, golds and
    answers are those of the facts, in whatever language and form the patterns write them.
    """
    if whole_vocabulary:
        _refuse_names(relation)
    queries = [
        relation.query(pattern, fact) for fact in relation.facts for pattern in relation.patterns
    ]
    columns = no_answers(len(queries))
    width = len(relation.candidates.words) if keep_scores else 0
    every_score = np.full((len(queries), width), np.nan)
    n_bounds = np.zeros(len(queries), dtype=np.int32)
    for positions, written in relation.by_candidates(queries):
        chosen = [queries[at] for at in positions]
        candidates = None if whole_vocabulary else written
        name_of = dict(zip(written.words, relation.candidates.words, strict=True))
        for scores in model.score(chosen, candidates, every=keep_scores):
            rows = np.array(positions)[scores.rows]
            judged = judge(scores, [queries[row].gold for row in rows])
            if scores.bounds is not None:
                n_bounds[rows] = scores.bounds.sum(axis=1)
            if relation.names:
                answers = [name_of.get(word, word) for word in judged["answer"]]
                judged["answer"] = np.array(answers, dtype=np.object_)
            for name, values in judged.items():
                columns[name][rows] = values
            if keep_scores and scores.logprob is not None:
                every_score[rows] = scores.logprob
            progress(len(rows))
    items = [(fact.item, fact.subject, fact.object) for fact in relation.facts]
    variants = [pattern.name for pattern in relation.patterns]
    table = answers_table(suite_name, relation.id, items, variants, columns)
    if n_bounds.any():
        table = table.with_columns(pl.Series(N_BOUNDS, n_bounds))
    if not keep_scores:
        return table
    flat = pl.Series("scores", every_score.ravel()).fill_nan(None)
    return table.with_columns(flat.reshape(every_score.shape).arr.to_list())


def _refuse_names(relation: Relation) -> None:
    """Raise for patterns that write objects in several ways: words outside have one writing."""
    if relation.names:
        raise ConsilienceError(
            f"all words of the vocabulary as answers of '{relation.id}', whose patterns have "
            "several languages or forms",
            expected="the objects of the relation, which `names` has in each of them",
            todo="Use --candidates objects.",
        )


def no_answers(size: int) -> dict[str, Column]:
    """The columns that answers fill in, still empty."""
    columns: dict[str, Column] = {name: np.full(size, np.nan) for name in FLOATS + WHOLE_NUMBERS}
    return columns | {name: np.full(size, None, dtype=np.object_) for name in WORDS}


def answers_table(
    suite: str,
    group: str,
    items: Sequence[tuple[str, str, str]],
    variants: Sequence[str],
    columns: Mapping[str, Column],
) -> pl.DataFrame:
    """The answers table of one group, rows in the order of items and then of variants.

    ``items``: id, subject and gold of each. ``columns``: the answers (row,).
    """
    width, size = len(variants), len(items) * len(variants)
    ids, subjects, golds = zip(*(item for item in items for _ in range(width)), strict=True)
    questions = {
        "suite": [suite] * size,
        "group": [group] * size,
        "item": ids,
        "subject": subjects,
        "variant": list(variants) * len(items),
        "variant_index": list(range(width)) * len(items),
        "gold": golds,
    }
    table = pl.DataFrame({**questions, **{name: columns[name].tolist() for name in WORDS}})
    numbers = [pl.Series(name, columns[name]).fill_nan(None) for name in FLOATS + WHOLE_NUMBERS]
    return table.with_columns(numbers).select(list(ANSWERS_SCHEMA)).cast(pl.Schema(ANSWERS_SCHEMA))


def judge(scores: Scores, golds: Sequence[str]) -> dict[str, Column]:
    """Turn scores (row, candidate) into the answer columns of their rows; NaN or None for null.

    The answer is the candidate with the highest score, of equal ones the first. If the gold shares
    its token with another candidate (``Scores.same``), that candidate's score is the gold's; if it
    ranks first, the answer is the gold.
    """
    size, width = len(golds), len(scores.words)
    rows = np.arange(size)
    position = {word: at for at, word in enumerate(scores.words)}
    word_at = np.array([position.get(gold, -1) for gold in golds])
    same = np.arange(width) if scores.same is None else scores.same
    gold_at = np.where(word_at >= 0, same[word_at], 0)
    score = scores.totals if scores.logprob is None else scores.logprob
    if score is None:
        raise TypeError("scores without logprob and totals")
    known = ~np.isnan(score)
    value = np.where(known, score, -np.inf)
    best = value.argmax(axis=1)
    answer = np.array(scores.words, dtype=np.object_)[best]
    right = best == gold_at
    answer[right] = np.array(golds, dtype=np.object_)[right]
    tokens = np.array([*(scores.tokens or [None] * width), None], dtype=np.object_)
    columns: dict[str, Column] = {"gold_token": tokens[word_at], "answer": answer}
    if scores.logprob is None:
        columns["n_candidates"] = np.full(size, float(width - len(scores.reasons)))
    elif scores.answers_only:
        columns["n_candidates"] = known.sum(axis=1).astype(np.float64)
    else:
        columns |= _compared(value, known, best, gold_at)
    if scores.totals is not None and not scores.answers_only:
        columns["text_logprob"] = scores.totals[rows, best]
        gold_total = scores.totals[rows, gold_at]
        if scores.bounds is not None:
            gold_total = np.where(scores.bounds[rows, gold_at], np.nan, gold_total)
        columns["gold_text_logprob"] = gold_total
    uncertain = np.zeros(size, dtype=bool)
    if scores.bounds is not None:
        uncertain = scores.bounds[rows, best]
    reasons = [
        _why_excluded(scores, gold, at, bool(row.any())) or (UNCERTAIN if open_ else None)
        for gold, at, row, open_ in zip(golds, word_at.tolist(), known, uncertain, strict=True)
    ]
    out = np.array([reason is not None for reason in reasons])
    for values in columns.values():
        values[out] = None
    return columns | {"excluded": np.array(reasons, dtype=np.object_)}


def _compared(
    value: npt.NDArray[np.float64],
    known: npt.NDArray[np.bool_],
    best: npt.NDArray[np.int64],
    gold_at: npt.NDArray[np.int64],
) -> dict[str, Column]:
    """The columns that need the scores of all candidates (row, candidate)."""
    rows = np.arange(len(value))
    top, gold = value[rows, best], value[rows, gold_at]
    others = value.copy()
    others[rows, best] = -np.inf
    earlier = np.arange(value.shape[1]) < gold_at[:, None]
    ahead = (value > gold[:, None]) | ((value == gold[:, None]) & earlier)
    count = known.sum(axis=1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        margin = top - others.max(axis=1, initial=-np.inf)
    return {
        "logprob": top,
        "gold_logprob": gold,
        "gold_rank": 1.0 + (ahead & known).sum(axis=1),
        "margin": np.where(count > 1, margin, np.nan),
        "n_candidates": count,
    }


def _why_excluded(scores: Scores, gold: str, word_at: int, any_known: bool) -> str | None:
    if scores.unasked:
        return scores.unasked
    if word_at < 0:
        return "the gold is not among the candidates"
    if gold in scores.reasons:
        return f"the gold is {scores.reasons[gold]}"
    return None if any_known else "no candidate could be asked"
