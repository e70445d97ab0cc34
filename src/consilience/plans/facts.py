"""Facts: every fact of a relation is asked in all its patterns (ParaRel)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from consilience import suites
from consilience.core.errors import Advance, ConsilienceError
from consilience.core.items import OBJECT_SLOT, Ask, Group, Item, Scores
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.models import LanguageModel, load_model
from consilience.options.commands import ProbeOptions
from consilience.plans import asking
from consilience.plans.asking import Plan, Queries
from consilience.suites import facts as selection
from consilience.types import Query, Suite


def plan_facts(options: ProbeOptions, suite: Any = None) -> Plan:
    """The facts of a suite in all patterns of their relations; ``suite``: in place of a name."""
    is_open = options.candidates == "vocabulary"
    languages = _languages_of(options.vary) if options.vary else None
    chosen: Suite = suite or suites.load_suite(options.suite, options.data_dir)
    if languages is not None:
        chosen = selection.select_languages(chosen, languages)
    if options.groups is not None:
        chosen = selection.select_relations(chosen, options.groups)
    if options.limit:
        chosen = selection.sample_facts(chosen, options.limit, options.seed)
    chosen = replace(chosen, protocol=options.protocol or chosen.protocol)
    sizes = {one.id: len(one.facts) * len(one.patterns) for one in chosen}

    def load() -> LanguageModel:
        return load_model(
            options.model,
            protocol=chosen.protocol,
            seed=options.seed,
            candidates=options.candidates,
            template=options.template,
            connection=options.connection,
            **asdict(options.loading),
        )

    def queries(model: Any) -> Queries:
        if is_open and model is not None and (kind := model.identity.get("kind")) != "masked":
            found, todo = f"the whole vocabulary of a {kind} model", "Use --candidates objects."
            raise ConsilienceError(found, expected="a masked model", todo=todo)
        ask_group = partial(ask, chosen, model, is_open=is_open)
        group = partial(group_of, chosen, is_open=is_open)
        return Queries(model, [*sizes], group, texts_of, ask_group)

    settings = {
        "suite": chosen.name,
        "groups": [*sizes],
        "limit": options.limit,
        "seed": options.seed,
        "protocol": chosen.protocol,
        "candidates": options.candidates,
        "languages": languages,
    }
    return Plan("facts", chosen, sizes, settings, load, queries, notes=chosen.notes)


def _languages_of(vary: Sequence[str]) -> list[str] | None:
    """The languages of ``--vary language=L,L``; None for all. Another factor of facts raises."""
    values = dict(factor.partition("=")[::2] for factor in vary)
    if others := [name for name in values if name != "language"]:
        raise ConsilienceError(
            f"--vary {others[0]} with a suite of facts",
            expected="--vary language=L,L: facts are asked in all patterns of these languages",
            todo="Leave it out, or ask facts as questions: `consilience probe --as-questions K`.",
        )
    value = values["language"]
    languages = [part.strip() for part in value.split(",") if part.strip()]
    return languages if languages and value != "all" else None


def group_of(suite: Suite, id_: str, *, is_open: bool = False) -> Group:
    """The facts of a relation in its patterns, with its objects as answers.

    ``is_open``: with every word of the vocabulary instead.
    """
    relation = suite.relation(id_)
    if is_open and relation.names:
        raise ConsilienceError(
            f"all words of the vocabulary as answers of '{relation.id}', whose patterns have "
            "several languages",
            expected="the objects of the relation, which `names` has in each of them",
            todo="Use --candidates objects.",
        )
    words = () if is_open else relation.candidates.words
    gold_at = {word: at for at, word in enumerate(words)}
    items = [
        Item(fact.item, fact.subject, fact.object, words, gold_at.get(fact.object, -1))
        for fact in relation.facts
    ]
    patterns = relation.patterns
    written = [words] * len(patterns)
    if relation.names:
        languages = [pattern.language for pattern in patterns]
        written = [tuple(relation.written(word, of) for word in words) for of in languages]
    asks = [
        Ask(item, variant, relation.query(pattern, fact), written[variant])
        for item, fact in enumerate(relation.facts)
        for variant, pattern in enumerate(patterns)
    ]
    names = [pattern.text for pattern in patterns]
    return Group(suite.name, relation.id, items, names, asks, ANSWERS_SCHEMA)


def texts_of(group: str, query: Query) -> list[str]:
    """The sentence that is asked, with ``[Y]`` for the object."""
    return [query.pattern.fill(query.subject, OBJECT_SLOT)]


def ask(
    suite: Suite,
    model: LanguageModel,
    group: Group,
    advance: Advance = lambda done: None,
    *,
    is_open: bool = False,
) -> pl.DataFrame:
    """The answers of a relation, one row a query (``ANSWERS_SCHEMA``)."""
    relation = suite.relation(group.id)

    def score(queries: Sequence[Query]) -> Iterator[Scores]:
        """The scores of one writing of the objects after the other; or of every word."""
        if is_open:
            yield from model.score(queries, None, every=False)
            return
        for rows, candidates in relation.by_candidates(queries):
            for scores in model.score([queries[row] for row in rows], candidates, every=False):
                yield replace(scores, rows=np.array(rows)[scores.rows])

    return asking.ask(group, score, advance=advance)


def ask_suite(
    suite: Suite,
    model: LanguageModel,
    advance: Advance = lambda done: None,
) -> pl.DataFrame:
    """The answers to a whole suite of facts (``ANSWERS_SCHEMA``)."""
    tables = [ask(suite, model, group_of(suite, one.id), advance) for one in suite]
    return pl.concat(tables, how="diagonal").select(list(ANSWERS_SCHEMA))
