"""How often expectations are violated, and what is expected of independent answers.

An instance *applies* if the answers to the premises meet the condition of its expectation. One
without all of its answers is left out.

``violation_rate`` is the share of applicable instances whose conclusion gets an answer that is not
permitted: the inconsistency of BECEL (Jang et al., COLING 2022, as its released code counts it),
conditioned where the expectation has a condition.

``chance_violation_rate`` is the mean, over applicable instances, of the share of the *other*
expectations whose last answer would violate this one:

    sum_i sum_{j other} [i does not permit b_j] / (K_i - 1) / number of applicable instances

``b_j`` is the answer to the conclusion of another expectation of the same subset (its kind, with or
without a condition) and group in the same variant, and ``K_i`` the number of these expectations,
this one included. An instance without another expectation is left out. Answers are compared by
their text where all these conclusions have the same options or none, else by the position of the
option in the file. A text that is none of the options agrees with nothing, here as there: it
violates every ``same``, and no ``different``.

``probability_gap`` is of probabilities instead of answers: the mean of
``Instance.probability_gap`` over instances whose permitted answers are one to one (of ``same``, of
``opposite``, and of ``different`` and ``complementary`` for two options) and of ``merges``. Of yes
and no it is the mean of |P(yes | question) + P(yes | negation) - 1|, the violation of the negation
check of Fluri, Paleka and Tramèr (Evaluating Superhuman Models with Consistency Checks, SaTML
2024). It is 0 where the probabilities are coherent.

``chance_probability_gap`` is the mean, over the same instances, of the gap to the probabilities of
the conclusions of the *other* expectations of the subset and group in the same variant. A model
whose probabilities hardly differ between questions has a small gap and a chance level as small.

Expectations with a question in common are not independent, and neither are their variants. The
*clusters* that the bootstrap resamples are the connected components of the graph whose nodes are
questions and whose edges are the expectations of the subset; a cluster is called by the first
premise of its first expectation. Expectations are counted in the group of their first premise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from consilience.expectations import NO_OPTION, Expectation, Instance, linked_questions
from consilience.metrics.grid import Floats, Grid
from consilience.metrics.registry import metric
from consilience.metrics.tally import Tally, ratio


@metric(
    "pairs",
    label="Violations",
    meaning="share of applicable expectations that the answers violate",
    by_expectation=True,
    better="lower",
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
    meaning="violation rate if the last answer were that of another expectation",
    by_expectation=True,
)
def chance_violation_rate(grid: Grid) -> Tally | None:
    """``violation_rate`` if the conclusion got the answer of another expectation of its subset."""
    return _chance(grid.instances) if grid.instances else None


@metric(
    "pairs",
    label="Probability gap",
    short="Prob. gap",
    meaning="distance of the option probabilities from those that the first question requires",
    by_expectation=True,
    better="lower",
)
def probability_gap(grid: Grid) -> Tally | None:
    """Mean distance of the option probabilities from coherent ones; None without probabilities."""
    units = [unit for unit in grid.instances if unit[0].expectation.moves is not None]
    gaps = [[gap for one in unit if (gap := one.probability_gap) is not None] for unit in units]
    known = sum(map(len, gaps))
    if not known:
        return None
    counts = np.array([(sum(of), len(of)) for of in gaps], dtype=np.float32)
    left_out = sum(map(len, units)) - known
    return Tally(counts, _cluster_names(units), known, left_out, finish=ratio)


@metric(
    "pairs",
    label="Probability gap expected by chance",
    short="Chance gap",
    meaning="probability gap if the last probabilities were those of another expectation",
    by_expectation=True,
)
def chance_probability_gap(grid: Grid) -> Tally | None:
    """``probability_gap`` to the conclusions of other expectations of the subset and variant.

    An instance without another expectation is left out. What an expectation counts is the
    derivative of the sum of all gaps by its weight, because it has a premise and a conclusion.
    """
    units = [unit for unit in grid.instances if unit[0].expectation.moves is not None]
    strata: dict[Stratum, list[tuple[int, Instance]]] = {}
    for at, unit in enumerate(units):
        for one in unit:
            if one.required is not None:
                strata.setdefault(_stratum(one), []).append((at, one))
    counts = np.zeros((len(units), 2), dtype=np.float32)
    for members in strata.values():
        of_unit = np.array([at for at, _ in members])
        is_other = of_unit[:, None] != of_unit
        others = is_other.sum(axis=1)
        if others.min() == 0:
            continue
        gaps = np.where(is_other, _gaps([one for _, one in members]), 0) / others[:, None]
        both = gaps.sum(axis=1) + gaps.sum(axis=0) - gaps.sum() / len(members)
        np.add.at(counts, of_unit, np.stack([both, np.ones(len(members))], axis=1))
    n = int(counts[:, 1].sum())
    left_out = sum(map(len, units)) - n
    return Tally(counts, _cluster_names(units), n, left_out, finish=ratio) if n else None


def _gaps(members: Sequence[Instance]) -> Floats:
    """The gap of each instance (instance, other) to the probabilities of each other conclusion.

    Options are compared as ``_Codes`` says; what the conclusion does not have is a gap, too.
    """
    scheme = _Codes.of([one.expectation for one in members])
    codes: dict[Hashable, int] = {}
    for one in members:
        for text in one.expectation.conclusion.options:
            codes.setdefault(scheme.code(one.expectation, text), len(codes))
    required, actual = np.zeros((2, len(members), len(codes)))
    for at, one in enumerate(members):
        options = one.expectation.conclusion.options
        columns = [codes[scheme.code(one.expectation, text)] for text in options]
        required[at, columns], actual[at, columns] = one.required, one.probabilities[-1]
    gaps: Floats = np.abs(required[:, None] - actual[None]).sum(axis=2) / 2
    return gaps


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
"""A subset of expectations (``Expectation.subset``), and the variant of the conclusion."""


def _chance(units: Units) -> Tally:
    """The counts of ``ExpectedViolations`` of each expectation.

    There is an answer b for each stratum and code. An expectation has one last answer in a stratum,
    also where several of its instances share it.
    """
    subsets: dict[str, list[Expectation]] = {}
    for expectation in (unit[0].expectation for unit in units):
        subsets.setdefault(expectation.subset, []).append(expectation)
    coded = {subset: _Codes.of(expectations) for subset, expectations in subsets.items()}
    answered = [[(one, _stratum(one)) for one in unit if one.is_answered] for unit in units]
    sizes = Counter(stratum for unit in answered for stratum in {of for _, of in unit})
    compared = [[(one, of) for one, of in unit if sizes[of] > 1] for unit in answered]
    codes: dict[Stratum, dict[Hashable, None]] = {}
    for one, stratum in (pair for pairs in compared for pair in pairs):
        codes.setdefault(stratum, {})[coded[stratum[0]].code_of(one)] = None
    columns = {key: at for at, key in enumerate((of, b) for of, bs in codes.items() for b in bs)}
    size = len(columns)
    counts = np.zeros((len(units), 1 + 3 * size), dtype=np.float32)
    for at, unit in enumerate(compared):
        for one, stratum in unit:
            scheme = coded[stratum[0]]
            answer_column = columns[stratum, scheme.code_of(one)]
            counts[at, 1 + size + answer_column] = 1
            if one.is_permitted is None:
                continue
            counts[at, 0] += 1
            counts[at, 1 + 2 * size + answer_column] += not one.is_permitted
            for code in codes[stratum]:
                if not one.permits(scheme.text(one.expectation, code)):
                    counts[at, 1 + columns[stratum, code]] += 1
    numbers = {stratum: at for at, stratum in enumerate(codes)}
    expected = ExpectedViolations(
        np.array([numbers[stratum] for stratum, _ in columns], dtype=int),
        np.array([sizes[stratum] for stratum, _ in columns], dtype=float),
    )
    alone = sum(
        one.is_permitted is not None and sizes[of] == 1 for unit in answered for one, of in unit
    )
    return Tally(
        counts,
        _cluster_names(units),
        int(counts[:, 0].sum()),
        _missing(units) + alone,
        finish=expected,
        slopes=expected.slopes,
    )


def _stratum(one: Instance) -> Stratum:
    return one.expectation.subset, one.variants[-1]


@dataclass(frozen=True, slots=True)
class _Codes:
    """How the answers to the conclusions of a subset are compared."""

    by_text: bool
    """By their text; otherwise by the position among the options of their question."""

    @classmethod
    def of(cls, expectations: Iterable[Expectation]) -> _Codes:
        return cls(len({frozenset(one.conclusion.options) for one in expectations}) == 1)

    def code(self, expectation: Expectation, answer: str) -> Hashable:
        """The code of an answer to the conclusion; a text that is no option is its own code."""
        options = expectation.conclusion.options
        return answer if self.by_text or answer not in options else options.index(answer)

    def code_of(self, one: Instance) -> Hashable:
        """The code of the answer that the conclusion got."""
        return self.code(one.expectation, str(one.answers[-1]))

    def text(self, expectation: Expectation, code: Hashable) -> str:
        """The answer of a code; a position that the conclusion does not have is no option."""
        if isinstance(code, int):
            options = expectation.conclusion.options
            return options[code] if code < len(options) else NO_OPTION
        return str(code)


@dataclass(frozen=True)
class ExpectedViolations:
    """Hits and total of ``chance_violation_rate`` from sums (..., 1 + 3 answers) of its counts.

    The counts are applicable instances, then for each answer b: instances that do not permit b,
    expectations that got b, and instances that got b and do not permit it. With ``K``
    expectations in a stratum, the mean over the others is ``c`` times that over all, less ``c - 1``
    times the violation itself, where ``c = K / (K - 1)``. Resamples keep this ``c``.
    """

    strata: npt.NDArray[np.int64]
    """The stratum of each answer (answer,)."""
    sizes: Floats
    """K of the stratum of each answer (answer,), at least 2."""

    @cached_property
    def _members(self) -> Floats:
        """1 where an answer is of the stratum (answer, stratum)."""
        size = int(self.strata.max(initial=-1)) + 1
        members: Floats = (self.strata[:, None] == np.arange(size)).astype(np.float64)
        return members

    @cached_property
    def _factors(self) -> Floats:
        """C of the stratum of each answer (answer,)."""
        factors: Floats = self.sizes / (self.sizes - 1)
        return factors

    def _parts(self, sums: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """How many do not permit an answer, got it, violate by it, got any of its stratum."""
        counted = np.asarray(sums, dtype=np.float64)[..., 1:]
        refused, got, violated = np.split(counted, 3, axis=-1)
        known = (got @ self._members) @ self._members.T
        return refused, got, violated, np.where(known > 0, known, 1)

    def __call__(self, sums: Floats) -> tuple[Floats, Floats]:
        """Hits (...) and total (...)."""
        refused, got, violated, known = self._parts(sums)
        of_all = refused * got / known
        hits: Floats = (self._factors * of_all - (self._factors - 1) * violated).sum(axis=-1)
        return hits, sums[..., 0]

    def slopes(self, sums: Floats) -> tuple[Floats, Floats]:
        """The derivatives (column,) of hits and total at sums (column,)."""
        refused, got, _, known = self._parts(sums)
        both = (refused * got) @ self._members @ self._members.T
        of_got = self._factors * (refused / known - both / known**2)
        hits = np.concatenate([[0.0], self._factors * got / known, of_got, 1 - self._factors])
        total = np.zeros_like(hits)
        total[0] = 1
        return hits, total
