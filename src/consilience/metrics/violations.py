"""How often expectations are violated, and what is expected of independent answers.

An instance *applies* if the answers to the premises meet the condition of its expectation. One
without all of its answers is left out.

``violation_rate`` is the share of applicable instances whose conclusion gets an answer that is not
permitted: the inconsistency of BECEL (Jang et al., COLING 2022, as its released code counts it),
conditioned where the expectation has a condition.

``chance_violation_rate`` keeps the answers to the premises, and replaces that to the conclusion by
the answer to the conclusion of a random expectation of the same kind and group in the same variant:

    sum_kv sum_e sum_b [e applies, and does not permit b] p_kv(b) / number of applicable instances

``p_kv(b)`` is the share of the answer b among the conclusions of kind k in variant v. Answers are
compared by their text where all these conclusions have the same options or none, else by the
position of the option in the file. For two questions with the same options this is the violation
rate of independent answers with the observed shares.

``probability_gap`` is of probabilities instead of answers: the mean of
``Instance.probability_gap`` over instances whose permitted answers are one to one: of ``same``, of
``opposite``, and of ``different`` and ``complementary`` for two options. Of yes and no it is the
mean of |P(yes | question) + P(yes | negation) - 1|, the violation of the negation check of Fluri,
Paleka and Tramèr (Evaluating Superhuman Models with Consistency Checks, SaTML 2024). It is 0 where
the probabilities are coherent.

Expectations with a question in common are not independent, and neither are their variants. The
*clusters* that the bootstrap resamples are the connected components of the graph whose nodes are
questions and whose edges are the expectations of the kind; a cluster is called by the first premise
of its first expectation. Expectations are counted in the group of their first premise.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from consilience.expectations import Expectation, Instance, linked_questions
from consilience.metrics.grid import Floats, Grid
from consilience.metrics.registry import metric
from consilience.metrics.tally import Tally, ratio


@metric(
    "pairs",
    label="Violations",
    meaning="share of applicable expectations that the answers violate",
    by_expectation=True,
)
def violation_rate(grid: Grid) -> Tally | None:
    """Share of applicable instances of expectations whose conclusion gets no permitted answer."""
    if not grid.instances:
        return None
    counts = np.zeros((len(grid.instances), 2), dtype=np.float32)
    for at, unit in enumerate(grid.instances):
        verdicts = [one.is_permitted for one in unit if one.is_answered]
        counts[at] = verdicts.count(False), len(verdicts) - verdicts.count(None)
    applicable = int(counts[:, 1].sum())
    return Tally(counts, _cluster_names(grid.instances), applicable, _missing(grid.instances))


@metric(
    "pairs",
    label="Violations expected by chance",
    short="Chance viol.",
    meaning="violation rate if the last answer were that to another question",
    by_expectation=True,
)
def chance_violation_rate(grid: Grid) -> Tally | None:
    """``violation_rate`` if the conclusion got the answer of another expectation of its kind."""
    return _chance(grid.instances) if grid.instances else None


@metric(
    "pairs",
    label="Probability gap",
    short="Prob. gap",
    meaning="distance of the option probabilities from those that the first question requires",
    by_expectation=True,
)
def probability_gap(grid: Grid) -> Tally | None:
    """Mean distance of the option probabilities from coherent ones; None without probabilities."""
    units = [unit for unit in grid.instances if unit[0].expectation.one_to_one is not None]
    gaps = [[gap for one in unit if (gap := one.probability_gap) is not None] for unit in units]
    known = sum(map(len, gaps))
    if not known:
        return None
    counts = np.array([(sum(of), len(of)) for of in gaps], dtype=np.float32)
    left_out = sum(map(len, units)) - known
    return Tally(counts, _cluster_names(units), known, left_out, finish=ratio)


Units = Sequence[Sequence[Instance]]
"""The instances of each expectation."""

Names = npt.NDArray[np.object_]


def _cluster_names(units: Units) -> Names:
    """The cluster of each expectation (unit,): the first premise of its first expectation."""
    expectations = [unit[0].expectation for unit in units]
    components = linked_questions(expectations)
    firsts: dict[str, str] = {}
    names = [firsts.setdefault(components[one.items[0]], one.items[0]) for one in expectations]
    return np.array(names, dtype=np.object_)


def _missing(units: Units) -> int:
    """How many instances lack an answer."""
    return sum(not one.is_answered for unit in units for one in unit)


Stratum = tuple[str, str]
"""A kind, and the variant of the conclusion."""


def _chance(units: Units) -> Tally:
    """Counts (unit, 1 + 2 answers): applicable instances, instances that do not permit b, got b.

    There is an answer b for each stratum and code.
    """
    kinds = {unit[0].expectation.kind for unit in units}
    coded = {kind: _Codes.of(units, kind) for kind in kinds}
    codes: dict[Stratum, dict[Hashable, None]] = {}
    for one in (one for unit in units for one in unit if one.is_answered):
        code = coded[one.expectation.kind].code(one.expectation, str(one.answers[-1]))
        codes.setdefault((one.expectation.kind, one.variants[-1]), {})[code] = None
    columns = [(stratum, code) for stratum, answers in codes.items() for code in answers]
    column = {key: at for at, key in enumerate(columns)}
    strata = {stratum: at for at, stratum in enumerate(codes)}
    size = len(columns)
    counts = np.zeros((len(units), 1 + 2 * size), dtype=np.float32)
    for at, unit in enumerate(units):
        for one in (one for one in unit if one.is_answered):
            stratum = one.expectation.kind, one.variants[-1]
            scheme = coded[one.expectation.kind]
            answer = scheme.code(one.expectation, str(one.answers[-1]))
            counts[at, 1 + size + column[stratum, answer]] += 1
            if one.is_permitted is None:
                continue
            counts[at, 0] += 1
            for code in codes[stratum]:
                if not one.permits(scheme.text(one.expectation, code)):
                    counts[at, 1 + column[stratum, code]] += 1
    expected = ExpectedViolations(np.array([strata[stratum] for stratum, _ in columns], dtype=int))
    applicable = int(counts[:, 0].sum())
    return Tally(
        counts,
        _cluster_names(units),
        applicable,
        _missing(units),
        finish=expected,
        slopes=expected.slopes,
    )


@dataclass(frozen=True, slots=True)
class _Codes:
    """How the answers to the conclusions of a kind are compared."""

    by_text: bool
    """By their text; otherwise by the position among the options of their question."""

    @classmethod
    def of(cls, units: Units, kind: str) -> _Codes:
        options = {
            frozenset(unit[0].expectation.conclusion.options)
            for unit in units
            if unit[0].expectation.kind == kind
        }
        return cls(len(options) == 1)

    def code(self, expectation: Expectation, answer: str) -> Hashable:
        """The code of an answer to the conclusion; a text that is no option is its own code."""
        options = expectation.conclusion.options
        return answer if self.by_text or answer not in options else options.index(answer)

    def text(self, expectation: Expectation, code: Hashable) -> str:
        """The answer of a code; a position that the conclusion does not have is no option."""
        if isinstance(code, int):
            options = expectation.conclusion.options
            return options[code] if code < len(options) else f"option {code}"
        return str(code)


@dataclass(frozen=True)
class ExpectedViolations:
    """Hits and total of ``chance_violation_rate`` from sums (..., column) of its counts."""

    strata: npt.NDArray[np.int64]
    """The stratum of each answer (answer,)."""

    @cached_property
    def _members(self) -> Floats:
        """1 where an answer is of the stratum (answer, stratum)."""
        size = int(self.strata.max(initial=-1)) + 1
        members: Floats = (self.strata[:, None] == np.arange(size)).astype(np.float64)
        return members

    def _parts(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """How many do not permit an answer, got it, and got any of its stratum (..., answer)."""
        refused, got = np.split(np.asarray(sums, dtype=np.float64)[..., 1:], 2, axis=-1)
        known = (got @ self._members) @ self._members.T
        return refused, got, np.where(known > 0, known, 1)

    def __call__(self, sums: Floats) -> tuple[Floats, Floats]:
        """Hits (...) and total (...)."""
        refused, got, known = self._parts(sums)
        hits: Floats = (refused * got / known).sum(axis=-1)
        return hits, sums[..., 0]

    def slopes(self, sums: Floats) -> tuple[Floats, Floats]:
        """The derivatives (column,) of hits and total at sums (column,)."""
        refused, got, known = self._parts(sums)
        both = (refused * got) @ self._members @ self._members.T
        hits = np.concatenate([[0.0], got / known, refused / known - both / known**2])
        total = np.zeros_like(hits)
        total[0] = 1
        return hits, total
