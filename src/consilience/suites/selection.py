"""A part of a suite: some relations, a sample of facts, objects that a set of tokenizers knows."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from consilience.errors import ConsilienceError, did_you_mean
from consilience.suites.name_tables import missing_names
from consilience.types import Candidates, Relation, Suite


def select_relations(suite: Suite, ids: Sequence[str]) -> Suite:
    """The suite with only the relations of these ids or labels, in the suite's order."""
    ids = [suite[name].id for name in ids]
    left_out = {relation.id for relation in suite.relations} - set(ids)
    return replace(
        suite,
        relations=tuple(relation for relation in suite.relations if relation.id in ids),
        notes=tuple(note for note in suite.notes if note.split(":")[0] not in left_out),
    )


def select_languages(suite: Suite, languages: Sequence[str]) -> Suite:
    """The suite with only the patterns in these languages; relations without any are left out."""
    every = [pattern.language for relation in suite.relations for pattern in relation.patterns]
    known = list(dict.fromkeys(every))
    for language in languages:
        if language not in known:
            raise ConsilienceError(
                f"the suite '{suite.name}' has no pattern in '{language}'",
                todo=did_you_mean(language, known),
            )
    relations = [_in_languages(relation, languages) for relation in suite.relations]
    left_out = [relation.id for relation in relations if not relation.patterns]
    notes = [f"no pattern in {', '.join(languages)}: {', '.join(left_out)}"] if left_out else []
    return replace(
        suite,
        relations=tuple(relation for relation in relations if relation.patterns),
        notes=(*suite.notes, *notes),
    )


def _in_languages(relation: Relation, languages: Collection[str]) -> Relation:
    patterns = [pattern for pattern in relation.patterns if pattern.language in languages]
    position = {relation.patterns.index(pattern): at for at, pattern in enumerate(patterns)}
    edges = {
        (position[first], position[second]): edge
        for (first, second), edge in relation.edges.items()
        if first in position and second in position
    }
    names = {writing: of for writing, of in relation.names.items() if writing[0] in languages}
    return replace(relation, patterns=tuple(patterns), edges=edges, names=names)


def sample_facts(suite: Suite, limit: int, seed: int) -> Suite:
    """At most ``limit`` facts a relation, sampled with ``seed``, in the suite's order.

    The candidates stay those of all facts, so that a sample is no easier than the whole.
    """
    if limit < 1:
        raise ConsilienceError(f"a limit of {limit} facts", expected="1 or more")

    def sample(relation: Relation) -> Relation:
        if len(relation.facts) <= limit:
            return relation
        order = random.Random(f"{seed} {relation.id}")
        chosen = sorted(order.sample(range(len(relation.facts)), limit))
        return replace(relation, facts=tuple(relation.facts[index] for index in chosen))

    return replace(suite, relations=tuple(map(sample, suite.relations)))


def replace_facts(suite: Suite, source: Suite) -> Suite:
    """The suite's patterns with the facts that another suite has of the same relations.

    The objects that the suite leaves out are left out of these facts too.
    """
    facts = {relation.id: relation.facts for relation in source.relations}
    missing = [relation.id for relation in suite.relations if relation.id not in facts]
    if missing:
        raise ConsilienceError(
            f"'{source.name}' has no facts of '{missing[0]}'",
            expected=f"facts of every relation of '{suite.name}'",
            todo=did_you_mean(missing[0], list(facts)),
        )
    relations = tuple(
        replace(relation, facts=facts[relation.id], candidates=Candidates.of(facts[relation.id]))
        for relation in suite.relations
    )
    for relation in relations:
        if missing_in := missing_names(relation):
            (language, _), name = missing_in[0]
            raise ConsilienceError(
                f"'{name}' of '{source.name}' has no name in '{language}'",
                expected=f"the names of '{suite.name}' for all facts of '{relation.id}'",
                todo="Leave --facts-from out, or add the names to the suite.",
            )
    notes = (*source.notes, f"the facts are those of '{source.name}'")
    return leave_out_objects(replace(suite, relations=relations, notes=notes))


def leave_out_objects(suite: Suite) -> Suite:
    """The suite without the facts whose objects its authors leave out (``Suite.left_out``)."""
    relations, notes = [], []
    for relation in suite.relations:
        rest = without_objects(relation, suite.left_out.get(relation.id, frozenset()))
        if dropped := len(relation.facts) - len(rest.facts):
            notes.append(
                f"{relation.id}: {dropped} tuples left out, see note 11 of the ParaRel paper"
            )
        relations.append(rest)
    return replace(suite, relations=tuple(relations), notes=(*suite.notes, *notes))


def without_objects(relation: Relation, objects: Collection[str]) -> Relation:
    """The relation without the facts that have one of ``objects``, also as candidates."""
    facts = tuple(fact for fact in relation.facts if fact.object not in objects)
    if len(facts) == len(relation.facts):
        return relation
    return replace(relation, facts=facts, candidates=Candidates.of(facts))


def _texts_of(relation: Relation, word: str) -> set[str]:
    """An object as each of the patterns writes it."""
    return {
        relation.written(word, pattern.language, pattern.object_form)
        for pattern in relation.patterns
    }


def filter_vocabulary(suite: Suite, pieces: Mapping[str, Callable[[str], int]]) -> Suite:
    """Keep the facts whose object is one piece for every tokenizer (paper, Section 5.1).

    In patterns of several languages or forms, every text of the object is one piece.

    ``pieces`` maps a tokenizer's name to a function that counts the pieces of a word after a space.
    Relations without facts are left out, too. Notes tell what was left out.
    """
    relations: list[Relation] = []
    notes: list[str] = []
    for relation in suite.relations:
        split = {
            word
            for word in relation.candidates.words
            if any(
                count(text) != 1 for text in _texts_of(relation, word) for count in pieces.values()
            )
        }
        rest = without_objects(relation, split)
        if dropped := len(relation.facts) - len(rest.facts):
            notes.append(
                f"{relation.id}: {dropped} of {len(relation.facts)} facts left out, whose object "
                f"is not one piece for all of {', '.join(pieces)}"
            )
        if rest.facts:
            relations.append(rest)
        else:
            notes.append(f"{relation.id}: no fact left")
    if not relations:
        raise ConsilienceError(
            f"no object is one piece for all of {', '.join(pieces)}",
            todo="Use fewer tokenizers, or a suite in their language.",
        )
    return replace(suite, relations=tuple(relations), notes=(*suite.notes, *notes))
