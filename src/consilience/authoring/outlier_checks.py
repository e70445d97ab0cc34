"""Checks of patterns that differ from all others, and of how patterns differ by a parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np

from consilience.authoring.checks import FactMaterial, Finding, check
from consilience.design import Edge
from consilience.metrics.intervals import Floats
from consilience.text import counted

FALSE_ALARMS = 0.05
"""The share of relations with equivalent patterns in which a pattern is reported."""

FEWEST = 5
"""Patterns of a relation that the rule needs."""

LEAST_SCALE = 0.01
"""The least deviation that counts as one: similarities within a point are the same."""

DRAWS = 20_000
"""Simulated relations from which the limits come."""


@check(
    "warning",
    meaning="a pattern that differs in meaning from the others, by sentence embeddings",
    todo="Read it: remove it if it asks something else.",
    needs="meaning",
)
def differs_in_meaning(material: FactMaterial) -> Iterator[Finding]:
    """Outliers in the mean cosine similarity of a pattern with the others, filled with facts."""
    return _outliers(material, material.meaning or {}, "similarity")


@check(
    "note",
    meaning="a pattern whose answers differ from those of the others, in the runs given",
    todo="Read it: remove it if it asks something else. With one run it may be about the model.",
    needs="agreement",
)
def differs_in_answers(material: FactMaterial) -> Iterator[Finding]:
    """Outliers in the mean agreement of a pattern with the others, over items and runs."""
    return _outliers(material, material.agreement or {}, "agreement")


@check(
    "note",
    meaning="edges of the suite that differ from what a parser derives",
    todo="Read both patterns: the suite and the parser are right about equally often.",
    needs="edges",
)
def edges(material: FactMaterial) -> Iterator[Finding]:
    """Pairs of patterns with other changes of syntax, lexis or determiners than by the parser."""
    for relation in material.suite:
        derived = (material.edges or {}).get(relation.id, {})
        texts = [pattern.text for pattern in relation.patterns]
        differing = [
            (texts[pair[0]], texts[pair[1]], _difference(ours, derived[pair]))
            for pair, ours in relation.edges.items()
            if pair in derived and _difference(ours, derived[pair])
        ]
        if differing:
            one, two, difference = differing[0]
            evidence = (
                f"{len(differing)} of {counted(len(relation.edges), 'pair')}, such as "
                f"'{one}' and '{two}': {difference}"
            )
            names = [text for *pair, _ in differing for text in pair]
            places = material.places.pattern(relation.id, *names)
            yield Finding(relation.id, evidence, places, len(differing))


def _difference(ours: Edge, derived: Edge) -> str:
    """Which changes the suite has and the parser has not, or the reverse; empty for none."""
    return ", ".join(
        f"{name} {'yes' if getattr(ours, name) else 'no'} in the suite"
        for name in ("syntactic", "lexical", "determiner")
        if getattr(ours, name) != getattr(derived, name)
    )


def _outliers(
    material: FactMaterial, similarity: Mapping[str, Floats], word: str
) -> Iterator[Finding]:
    for relation in material.suite:
        if relation.id not in similarity:
            continue
        means = mean_similarity(similarity[relation.id])
        for at in outliers(means):
            text = relation.patterns[at].text
            evidence = (
                f"'{text}': mean {word} with the others {means[at]:.2f}, "
                f"median of the relation {np.median(means):.2f}"
            )
            yield Finding(relation.id, evidence, material.places.pattern(relation.id, text))


def mean_similarity(matrix: Floats) -> Floats:
    """The mean of each row (pattern,) of similarities (pattern, pattern) without the diagonal."""
    others = ~np.eye(len(matrix), dtype=np.bool_) & ~np.isnan(matrix)
    total = np.where(others, matrix, 0).sum(axis=1)
    size = others.sum(axis=1)
    means: Floats = np.divide(total, size, out=np.full(len(matrix), np.nan), where=size > 0)
    return means


def outliers(means: Floats) -> list[int]:
    """The positions of the values that are low by a robust rule; none of fewer than ``FEWEST``.

    A value is low where ``robust_deviations`` is above ``limit(size)``: of relations whose values
    are drawn from one normal distribution, ``FALSE_ALARMS`` have such a value.
    """
    known = np.flatnonzero(~np.isnan(means))
    if len(known) < FEWEST:
        return []
    deviations = robust_deviations(means[known])
    return [int(at) for at in known[deviations > limit(len(known))]]


def robust_deviations(values: Floats) -> Floats:
    """How far each value is below the median of its row, in robust standard deviations.

    ``(median - value) / max(1.4826 MAD, LEAST_SCALE)``; MAD: the median distance from the median.
    """
    distances = np.median(values, axis=-1, keepdims=True) - values
    spread = 1.4826 * np.median(np.abs(distances), axis=-1, keepdims=True)
    deviations: Floats = distances / np.maximum(spread, LEAST_SCALE)
    return deviations


@cache
def limit(size: int) -> float:
    """The deviation that one of ``size`` normal values exceeds in ``FALSE_ALARMS`` of relations."""
    values = np.random.default_rng(size).normal(size=(DRAWS, size))
    return float(np.quantile(robust_deviations(values).max(axis=1), 1 - FALSE_ALARMS))
