"""Ask a model the facts of a suite: relations become rows of the answers table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from consilience.asking import asker
from consilience.asking.asker import Column, Progress
from consilience.core.errors import ConsilienceError
from consilience.core.items import Ask, Group, Ints, Item, Scores
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.models import LanguageModel
from consilience.runs.folder import RunFolder
from consilience.types import Query, Relation, Suite


def ask_suite(
    suite: Suite,
    model: LanguageModel,
    folder: RunFolder | None = None,
    *,
    whole_vocabulary: bool = False,
    keep_scores: bool = False,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The answers to a whole suite (``ANSWERS_SCHEMA``); ``folder`` as in ``ask_groups``."""
    options = {"whole_vocabulary": whole_vocabulary, "keep_scores": keep_scores}

    def answers_of(group: str, progress: Progress) -> pl.DataFrame:
        return ask(suite.relation(group), model, suite.name, progress=progress, **options)

    if folder is not None:
        folder.note(suite.notes)
    tables = ask_groups(query_counts(suite), answers_of, model, folder, progress)
    return pl.concat(tables.values(), how="diagonal").select(list(ANSWERS_SCHEMA))


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
            folder.multiplied_by(asdict(products))
    tables = {}
    for group, size in groups.items():
        answers = folder.answers(group, size) if folder else None
        if answers is None:
            answers = answers_of(group, progress)
            if folder is not None:
                folder.write_answers(group, answers)
                folder.note(model.notes)
        tables[group] = answers
    return tables


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

    ``keep_scores`` has every candidate scored and adds the column ``scores``.
    """
    group = facts_of(relation, suite_name, whole_vocabulary=whole_vocabulary)
    width = len(relation.candidates.words) if keep_scores else 0
    every_score = np.full((len(group.asks), width), np.nan)

    def keep(rows: Ints, scores: Scores) -> None:
        if keep_scores and scores.logprob is not None:
            every_score[rows] = scores.logprob

    among = None if whole_vocabulary else relation
    score = partial(scores_of_facts, model, among, every=keep_scores)
    table = asker.ask(group, score, seen=keep, progress=progress)
    if not keep_scores:
        return table
    flat = pl.Series("scores", every_score.ravel()).fill_nan(None)
    return table.with_columns(flat.reshape(every_score.shape).arr.to_list())


def facts_of(relation: Relation, suite: str, *, whole_vocabulary: bool = False) -> Group:
    """The facts of a relation in its patterns, with its objects or every word as answers."""
    if whole_vocabulary and relation.names:
        raise ConsilienceError(
            f"all words of the vocabulary as answers of '{relation.id}', whose patterns have "
            "several languages or forms",
            expected="the objects of the relation, which `names` has in each of them",
            todo="Use --candidates objects.",
        )
    words = () if whole_vocabulary else relation.candidates.words
    gold_at = {word: at for at, word in enumerate(words)}
    items = [
        Item(fact.item, fact.subject, fact.object, words, gold_at.get(fact.object, -1))
        for fact in relation.facts
    ]
    patterns = relation.patterns
    written = [words] * len(patterns)
    if relation.names:
        writings = [(pattern.language, pattern.object_form) for pattern in patterns]
        written = [tuple(relation.written(word, *how) for word in words) for how in writings]
    asks = [
        Ask(item, variant, relation.query(pattern, fact), written[variant])
        for item, fact in enumerate(relation.facts)
        for variant, pattern in enumerate(patterns)
    ]
    names = [pattern.name for pattern in patterns]
    return Group(suite, relation.id, items, names, asks, ANSWERS_SCHEMA)


def scores_of_facts(
    model: LanguageModel, relation: Relation | None, queries: Sequence[Query], *, every: bool
) -> Iterator[Scores]:
    """The scores of queries, one writing of objects after the other; None: of every word."""
    if relation is None:
        yield from model.score(queries, None, every=every)
        return
    for rows, candidates in relation.by_candidates(queries):
        for scores in model.score([queries[row] for row in rows], candidates, every=every):
            yield replace(scores, rows=np.array(rows)[scores.rows])


def judge(scores: Scores, golds: Sequence[str]) -> dict[str, Column]:
    """The answer columns of scores of facts with these golds (``asker.judge``)."""
    items = [Item("", "", gold) for gold in golds]
    return asker.judge(scores, [Ask(at, 0, None) for at in range(len(items))], items)
