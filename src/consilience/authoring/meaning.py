"""Whether two patterns mean the same, by a judge that reads sentences; and how far to trust it."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt

from consilience.authoring.near_duplicates import normal_form
from consilience.cloze import Pattern
from consilience.types import Fact, Relation, Suite

Floats = npt.NDArray[np.float64]

FEWEST_RELATIONS = 5
"""Relations without which no interval is given: the bootstrap resamples them."""

LEAST_AUC = 0.7
"""The lower bound of the AUC from which scores may refuse rewrites: acceptable discrimination
(Hosmer and Lemeshow, Applied Logistic Regression, 2000, Section 5.2)."""

RESAMPLES = 1000
"""Bootstrap samples of an interval."""


class MeaningJudge(Interface):
    """A model that judges sentences."""

    identity: dict[str, object]
    """Which model this is."""

    def log_odds(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Log-odds (pair,) that the two sentences mean the same, asked in this order."""

    def token_logprobs(self, sentences: Sequence[str]) -> Floats:
        """Mean log-probability of a token (sentence,) in nats."""


@dataclass(frozen=True, slots=True)
class PatternPair:
    """Two patterns, and the facts that fill both."""

    relation: Relation
    first: Pattern
    second: Pattern
    facts: Sequence[Fact]


def sentence(relation: Relation, pattern: Pattern, fact: Fact) -> str:
    """The sentence that a fact makes of a pattern."""
    query = relation.query(pattern, fact)
    return pattern.fill(query.subject, query.gold)


def meaning_scores(pairs: Sequence[PatternPair], judge: MeaningJudge) -> Floats:
    """The two-way meaning score (pair,) of pairs of patterns, in nats.

    The mean, over the facts of a pair and over both orders of its sentences, of the judge's
    log-odds that they mean the same (after ParaPLUIE, Lemesle et al., COLING 2025, which asks in
    one order). 0: the judge is undecided. NaN where it could read no sentence.
    """
    sentences: list[tuple[str, str]] = []
    owners: list[int] = []
    for at, pair in enumerate(pairs):
        for fact in pair.facts:
            first = sentence(pair.relation, pair.first, fact)
            second = sentence(pair.relation, pair.second, fact)
            sentences += [(first, second), (second, first)]
            owners += [at, at]
    odds = judge.log_odds(sentences)
    is_known = ~np.isnan(odds)
    rows = np.array(owners, dtype=np.int64)[is_known]
    sums = np.bincount(rows, odds[is_known], len(pairs))
    counts = np.bincount(rows, minlength=len(pairs))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def fluency_scores(pairs: Sequence[PatternPair], judge: MeaningJudge) -> Floats:
    """How much more fluent the second pattern of each pair is (pair,), in nats a token.

    The mean log-probability of a token of its sentence minus that of the first pattern's, averaged
    over the facts. Negative: the first one is more fluent.
    """
    texts = [
        sentence(pair.relation, pattern, fact)
        for pair in pairs
        for fact in pair.facts
        for pattern in (pair.first, pair.second)
    ]
    numbers = judge.token_logprobs(texts).reshape(-1, 2)
    differences = numbers[:, 1] - numbers[:, 0]
    ends = np.cumsum([len(pair.facts) for pair in pairs])
    return np.array([part.mean() for part in np.split(differences, ends)[:-1]])


@dataclass(frozen=True, slots=True)
class Separation:
    """How well meaning scores tell paraphrases from controls."""

    positives: int
    """Pairs of patterns of one relation."""
    controls: int
    """Pairs of patterns of two relations, filled with the same subjects and objects."""
    auc: float
    """The probability that a positive pair scores higher than a control; 0.5 for a coin."""
    low: float
    """Lower bound of its 95 % interval, over relations; NaN with too few of them."""
    high: float
    threshold: float | None
    """The score with the greatest sum of sensitivity and specificity; None where the lower bound
    of the AUC is unknown or below ``LEAST_AUC``."""


def sample_pairs(
    suite: Suite,
    most: int,
    facts: int,
    seed: int = 0,
    others: Mapping[str, Sequence[str]] | None = None,
) -> tuple[list[PatternPair], list[PatternPair]]:
    """Positive pairs and controls: at most ``most`` of each a relation.

    A positive pair is the base pattern of a relation with another one of its patterns (ParaRel,
    Section 4). A control is the base pattern with a pattern of another relation, filled with the
    same ``facts`` facts. ``others``: the relations that controls may come from, by relation; all
    without it.
    """
    rng = random.Random(seed)
    positives: list[PatternPair] = []
    controls: list[PatternPair] = []
    for relation in suite:
        allowed = suite_ids(suite, relation.id) if others is None else others.get(relation.id, ())
        base, *rest = relation.patterns
        foreign = [
            pattern
            for id_ in allowed
            for pattern in suite.relation(id_).patterns
            if normal_form(pattern.text) not in {normal_form(p.text) for p in relation.patterns}
        ]
        if not rest or not foreign:
            continue
        chosen = rng.sample(relation.facts, min(facts, len(relation.facts)))
        for pool, pairs in ((rest, positives), (foreign, controls)):
            for pattern in rng.sample(pool, min(most, len(rest), len(pool))):
                pairs.append(PatternPair(relation, base, pattern, chosen))
    return positives, controls


def suite_ids(suite: Suite, without: str) -> list[str]:
    """The ids of the relations of a suite, without one of them."""
    return [relation.id for relation in suite if relation.id != without]


def separation(
    positives: Mapping[str, Sequence[float]], controls: Mapping[str, Sequence[float]], seed: int = 0
) -> Separation:
    """How well the scores of positive pairs and of controls are separated, by relation.

    The interval is that of a bootstrap over relations, which keeps the pairs of a relation together
    (percentiles 2.5 and 97.5 of ``RESAMPLES``).
    """
    relations = sorted(positives)
    of_relations = [
        (np.asarray(positives[id_], float), np.asarray(controls.get(id_, ()), float))
        for id_ in relations
    ]
    value = auc_of(of_relations)
    low = high = float("nan")
    if len(relations) >= FEWEST_RELATIONS:
        rng = np.random.default_rng(seed)
        draws = rng.integers(len(relations), size=(RESAMPLES, len(relations)))
        values = [auc_of([of_relations[at] for at in draw]) for draw in draws]
        low, high = np.nanpercentile(values, [2.5, 97.5]).tolist()
    yes, no = (np.concatenate(parts) for parts in zip(*of_relations, strict=True))
    threshold = best_threshold(yes, no) if low >= LEAST_AUC else None
    return Separation(len(yes), len(no), value, low, high, threshold)


def auc_of(of_relations: Sequence[tuple[Floats, Floats]]) -> float:
    """The share of (positive, control) pairs whose positive scores higher; ties count half."""
    yes, no = (np.concatenate(parts) for parts in zip(*of_relations, strict=True))
    if not len(yes) or not len(no):
        return float("nan")
    higher = (yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2
    return float(higher)


def best_threshold(yes: Floats, no: Floats) -> float:
    """The least score whose sum of sensitivity and specificity is greatest (Youden's index)."""
    scores = np.unique(np.concatenate([yes, no]))
    index = [(yes >= score).mean() - (no >= score).mean() for score in scores]
    return float(scores[int(np.argmax(index))])


def measured_separation(
    suite: Suite, judge: MeaningJudge, *, most: int, facts: int, seed: int = 0
) -> Separation | None:
    """The separation of a judge on the patterns of a suite; None for a suite without controls."""
    positives, controls = sample_pairs(suite, most, facts, seed)
    if not positives:
        return None
    scores = meaning_scores([*positives, *controls], judge)
    yes = by_relation(positives, scores[: len(positives)])
    return separation(yes, by_relation(controls, scores[len(positives) :]), seed)


def by_relation(pairs: Sequence[PatternPair], scores: Floats) -> dict[str, list[float]]:
    """The scores of pairs by their relation; those without a score are left out."""
    by_id: dict[str, list[float]] = {}
    for pair, score in zip(pairs, scores.tolist(), strict=True):
        by_id.setdefault(pair.relation.id, [])
        if not math.isnan(score):
            by_id[pair.relation.id].append(score)
    return by_id
