"""``--fast``: screen in bfloat16, settle in float32 what a calibrated bound leaves open.

A query is screened with the linear layers in bfloat16 and all else in float32. If its best
candidate leads every other one by more than a bound, that candidate is the answer. Every other
query is answered in float32, as without ``--fast``.

The bound is calibrated, not proven. A sample of the relation's queries is computed in both
precisions. The error of a query is the largest difference that bfloat16 makes to a candidate's
distance from the best one (for a causal model: of the candidates within ``NEAR`` nats of the best).
The bound is ``FACTOR`` times the largest error. Then a random share of the accepted queries is
computed in float32 too: if an error exceeds the bound, or an answer differs, the bound is enlarged,
and every query that no longer leads by more is answered in float32. So an answer can differ from
that of float32 only if the error of a query that was not checked exceeds the bound.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel

from consilience.core.errors import ConsilienceError
from consilience.models.batches import Budget
from consilience.models.fast.bfloat16 import HalfPrecision
from consilience.models.fast.libraries import Products
from consilience.models.forward import Floats, Ints
from consilience.types import Candidates, Query, Scores

MINIMUM_SPEEDUP: Mapping[str, float] = {"masked": 2.0, "causal": 4.0}
"""How many times as fast as float32 products bfloat16 ones have to be, by kind of model.

At 1.8 times a masked model of 110 M parameters would gain a fifth and a small one loses; a causal
model settles a third of its queries or more, and searches further (docs/log.md).
"""

SAMPLE = 128
"""Queries of a relation that the bound is calibrated on."""

WORTH = 4
"""A relation with fewer than so many samples' queries is answered in float32."""

CHECKED = 1 / 64
"""Share of the accepted queries that are computed in float32 too, to check the bound."""

FACTOR = 2.0
"""The bound, in largest errors of the sample."""

ROOM = 1.25
"""A causal model's search finishes the candidates within so many bounds of the best one, so that a
bound that grows a little leaves few queries open."""

NEAR = 3.0
"""Nats from the best within which a causal model's candidates are compared in both precisions."""


class Screenable(Interface):
    """A model that can be screened: masked or causal."""

    model: PreTrainedModel
    identity: dict[str, object]
    notes: list[str]
    products: Products
    budget: Budget
    slack: float
    head_is_packed: bool

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """See ``LanguageModel.score``."""
        ...


def check_speedup(products: Products, kind: str) -> float:
    """How many times as fast bfloat16 is, as measured; too little is an error."""
    speeds = products.gflops
    if not speeds:
        raise ConsilienceError(
            "--fast: the products of this model are too small to be measured",
            expected="a model whose products take most of the time",
            todo="Leave it out.",
        )
    ratio = speeds["bfloat16"] / speeds["float32"]
    minimum = MINIMUM_SPEEDUP[kind]
    if ratio < minimum:
        raise ConsilienceError(
            f"--fast: bfloat16 products are {ratio:.2f} times as fast as float32 on "
            f"{products.processor} ({speeds['bfloat16']:.0f} and {speeds['float32']:.0f} GFLOP/s)",
            expected=f"{minimum:g} times for a {kind} model; with less, screening and settling "
            "gain nothing",
            todo="Leave it out. It pays on processors with AMX and on accelerators.",
        )
    return ratio


@dataclass(slots=True)
class Screened:
    """What became of the queries of a relation. Errors and the bound are in nats."""

    queries: int
    """Number of queries."""
    compared: int = 0
    """Computed in both precisions, to calibrate the bound and to check it."""
    settled: int = 0
    """Answered in float32 for other reasons: left open, or too few to calibrate a bound."""
    largest_error: float = 0.0
    """The largest error of a compared query."""
    bound: float = 0.0
    """A best candidate that leads by more is the answer."""
    disagreements: int = 0
    """Screened queries that were checked and had another answer in float32."""
    enlarged: bool = False
    """Whether an error exceeded the bound, which was then enlarged."""

    def calibrate(self, errors: Floats) -> None:
        """Take the bound from the errors (query,) of a sample."""
        self.compared += len(errors)
        self.largest_error = float(errors.max(initial=0.0))
        self.bound = FACTOR * self.largest_error

    def check(self, errors: Floats, disagreements: int) -> None:
        """Compare more errors (query,) with the bound; enlarge it if it is too small."""
        self.compared += len(errors)
        self.disagreements += disagreements
        self.largest_error = max(self.largest_error, float(errors.max(initial=0.0)))
        if self.largest_error > self.bound or disagreements:
            self.bound = FACTOR * max(self.largest_error, self.bound)
            self.enlarged = True

    def record(self) -> dict[str, float]:
        """For ``run.json``."""
        return asdict(self)


class ScreenedModel:
    """A masked or causal model whose answers are those of float32; it gives no scores with them."""

    def __init__(self, model: Screenable) -> None:
        self._model = model
        self.model = model.model
        self._half_precision = HalfPrecision(model.model, head=model.head_is_packed)
        self.identity, self.notes, self.products = model.identity, model.notes, model.products
        self.budget = model.budget
        self.screened: Screened | None = None

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = False
    ) -> Iterator[Scores]:
        """See ``LanguageModel.score``. Only answers are given, so ``every`` has to be False.

        ``screened`` then says what became of the queries.
        """
        if every:
            raise ValueError("a model that screens gives answers only")
        record = self.screened = Screened(len(queries))
        # No gold is needed, and a causal model would finish its sentence.
        queries = queries if candidates is None else [replace(query, gold="") for query in queries]
        rows = np.arange(len(queries))
        if len(queries) < WORTH * SAMPLE:
            record.settled = len(queries)
            yield from self._float32(queries, rows, candidates)
            return
        draw = random.Random(0)
        sample = np.array(sorted(draw.sample(range(len(queries)), SAMPLE)))
        errors, _ = yield from self._compare(queries, sample, candidates)
        record.calibrate(errors)
        rest = np.setdiff1d(rows, sample)
        slack = ROOM * record.bound
        answers = [
            _ScreenedAnswers.of(scores, slack)
            for scores in self._bfloat16(queries, rest, candidates, slack)
        ]
        best, lead = np.full(len(queries), -1), np.full(len(queries), -np.inf)
        for part in answers:
            best[part.scores.rows], lead[part.scores.rows] = part.best, part.lead
        accepted = [row for row in rest if lead[row] > record.bound]
        checked = np.array([row for row in accepted if draw.random() < CHECKED], dtype=np.int64)
        errors, exact = yield from self._compare(queries, checked, candidates)
        record.check(errors, sum(int(best[row]) != answer for row, answer in exact.items()))
        is_settled = lead <= record.bound
        is_settled[sample] = is_settled[checked] = False
        record.settled = int(is_settled.sum())
        is_exact = is_settled.copy()
        is_exact[sample] = is_exact[checked] = True
        for part in answers:
            yield from part.without(is_exact)
        yield from self._float32(queries, np.flatnonzero(is_settled), candidates)

    def in_bfloat16(self, queries: Sequence[Query], candidates: Candidates | None) -> list[Scores]:
        """The scores of queries in bfloat16 alone, to see how long they take."""
        return self._bfloat16(queries, np.arange(len(queries)), candidates, 0.0)

    def _float32(
        self,
        queries: Sequence[Query],
        rows: Ints,
        candidates: Candidates | None,
        slack: float = 0.0,
    ) -> Iterator[Scores]:
        """The scores of some of the queries."""
        self._model.slack = slack
        chosen = [queries[row] for row in rows]
        for scores in self._model.score(chosen, candidates, every=False):
            yield replace(scores, rows=rows[scores.rows], answers_only=True)

    def _bfloat16(
        self, queries: Sequence[Query], rows: Ints, candidates: Candidates | None, slack: float
    ) -> list[Scores]:
        """The same with products in bfloat16, for candidates within ``slack`` of the best."""
        with self._half_precision:
            return list(self._float32(queries, rows, candidates, slack))

    def _compare(
        self, queries: Sequence[Query], rows: Ints, candidates: Candidates | None
    ) -> Generator[Scores, None, tuple[Floats, dict[int, int]]]:
        """Yield the scores of some queries; their errors (query,) and answers, by position."""
        half: dict[int, Floats] = {}
        for scores in self._bfloat16(queries, rows, candidates, NEAR):
            half.update(zip(scores.rows.tolist(), _values(scores), strict=True))
        errors, answers = [], {}
        for scores in self._float32(queries, rows, candidates, NEAR):
            for row, exact in zip(scores.rows.tolist(), _values(scores), strict=True):
                if not np.isnan(exact).all():
                    answers[row] = best = int(np.nanargmax(exact))
                    errors.append(_error(exact, half[row], best))
            yield scores
        return np.array(errors), answers


@dataclass(frozen=True, slots=True)
class _ScreenedAnswers:
    """The answers of some queries in bfloat16."""

    scores: Scores
    """Their scores, without the numbers."""
    best: Ints
    """(row,) Position of the best candidate."""
    lead: Floats
    """(row,) Nats by which it leads every other one, at least."""
    takes_part: npt.NDArray[np.bool_]
    """(candidate,) Whether it takes part."""

    @classmethod
    def of(cls, scores: Scores, slack: float) -> _ScreenedAnswers:
        """Of a causal model's candidates only those within ``slack`` of the best have a score."""
        values = _values(scores)
        known = np.where(np.isnan(values), -np.inf, values)
        order = np.sort(known, axis=1)
        lead = np.full(len(known), np.inf)
        if values.shape[1] > 1:
            with np.errstate(invalid="ignore"):
                lead = order[:, -1] - order[:, -2]
        lead = np.where(np.isnan(lead), np.inf, lead)  # no candidate takes part
        if scores.logprob is None:
            lead = np.minimum(lead, slack)
            takes_part = np.array([word not in scores.reasons for word in scores.words], np.bool_)
        else:
            takes_part = np.asarray(~np.isnan(values).all(axis=0))
        empty = replace(scores, logprob=None, totals=None)
        return cls(empty, known.argmax(axis=1), lead, takes_part)

    def without(self, is_exact: npt.NDArray[np.bool_]) -> Iterator[Scores]:
        """The answers as scores, 0 for the best candidate; not of queries with exact ones."""
        left = ~is_exact[self.scores.rows]
        if not left.any():
            return
        size = int(left.sum())
        order = np.where(self.takes_part, -np.inf, np.nan)[None].repeat(size, axis=0)
        if self.takes_part.any():
            order[np.arange(size), self.best[left]] = 0.0
        yield replace(self.scores, rows=self.scores.rows[left], logprob=order)


def _values(scores: Scores) -> Floats:
    """The scores (row, candidate) that order the candidates."""
    values = scores.totals if scores.logprob is None else scores.logprob
    if values is None:
        raise TypeError("scores without logprob and totals")
    return values


def _error(exact: Floats, half: Floats, best: int) -> float:
    """The largest difference that bfloat16 makes to a candidate's distance from the best one.

    ``exact``, ``half`` (candidate,): scores; a candidate that lacks one of them does not count. If
    the best one lacks ``half``, bfloat16 lost it: its distance changed by at least ``NEAR``.
    """
    if np.isnan(half[best]):
        return NEAR
    difference = (half - half[best]) - (exact - exact[best])
    return float(np.nanmax(np.abs(difference)))
