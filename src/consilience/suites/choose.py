"""Choosing what to ask: relations, a sample of facts, objects that a set of tokenizers knows."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from consilience.errors import ConsilienceError, did_you_mean
from consilience.suites.pararel import MIXED_OBJECTS, mixed_note, without_objects
from consilience.types import Candidates, Fact, Relation, Suite


def select_relations(suite: Suite, ids: Sequence[str]) -> Suite:
    """The suite with only the relations of these ids, in the suite's order."""
    for id_ in ids:
        suite.relation(id_)
    left_out = {relation.id for relation in suite.relations} - set(ids)
    return replace(
        suite,
        relations=tuple(relation for relation in suite.relations if relation.id in ids),
        notes=tuple(note for note in suite.notes if note.split(":")[0] not in left_out),
    )


def sample_facts(suite: Suite, limit: int, seed: int) -> Suite:
    """At most ``limit`` facts a relation, drawn by ``seed``, in the suite's order.

    The candidates stay those of all facts: a sample asks fewer questions, not easier ones.
    """
    if limit < 1:
        raise ConsilienceError(f"a limit of {limit} facts", expected="1 or more")

    def sample(relation: Relation) -> Relation:
        if len(relation.facts) <= limit:
            return relation
        order = random.Random(f"{seed} {relation.id}")
        kept = sorted(order.sample(range(len(relation.facts)), limit))
        return replace(relation, facts=tuple(relation.facts[index] for index in kept))

    return replace(suite, relations=tuple(map(sample, suite.relations)))


def replace_facts(suite: Suite, source: Suite, *, as_shipped: bool = False) -> Suite:
    """The suite's patterns asked about the facts that another suite has of the same relations.

    ParaRel's patterns leave out the same objects as ever (paper, note 11), unless ``as_shipped``.
    """
    facts: Mapping[str, tuple[Fact, ...]] = {each.id: each.facts for each in source.relations}
    missing = [relation.id for relation in suite.relations if relation.id not in facts]
    if missing:
        raise ConsilienceError(
            f"'{source.name}' has no facts of '{missing[0]}'",
            expected=f"facts of every relation of '{suite.name}'",
            todo=did_you_mean(missing[0], list(facts)),
        )
    relations, notes = [], [f"the facts are those of '{source.name}'"]
    mixed = {} if as_shipped or suite.name != "pararel" else MIXED_OBJECTS
    for relation in suite.relations:
        theirs = facts[relation.id]
        asked = replace(relation, facts=theirs, candidates=Candidates.of(theirs))
        kept, dropped = without_objects(asked, mixed.get(relation.id, frozenset()))
        if dropped:
            notes.append(mixed_note(relation.id, dropped))
        relations.append(kept)
    return replace(suite, relations=tuple(relations), notes=(*source.notes, *notes))


def filter_vocabulary(suite: Suite, pieces: Mapping[str, Callable[[str], int]]) -> Suite:
    """Keep the facts whose object is one piece for every tokenizer (paper, Section 5.1).

    ``pieces`` maps a tokenizer's name to the number of pieces it makes of a word that follows a
    blank. Relations that are left without facts go too; notes say what was left out.
    """
    relations: list[Relation] = []
    notes: list[str] = []
    for relation in suite.relations:
        cut = {
            word
            for word in relation.candidates.words
            if any(count(word) != 1 for count in pieces.values())
        }
        kept, dropped = without_objects(relation, cut)
        if dropped:
            notes.append(
                f"{relation.id}: {dropped} of {len(relation.facts)} facts left out, whose object "
                f"is not one piece for all of {', '.join(pieces)}"
            )
        if kept.facts:
            relations.append(kept)
        else:
            notes.append(f"{relation.id}: no fact left")
    if not relations:
        raise ConsilienceError(
            f"no object is one piece for all of {', '.join(pieces)}",
            todo="Use fewer tokenizers, or a suite in their language.",
        )
    return replace(suite, relations=tuple(relations), notes=(*suite.notes, *notes))
