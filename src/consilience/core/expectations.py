"""Expectations: what should hold between the answers to several questions.

An expectation has premises and a conclusion. The answers to the premises say which answers the
conclusion may get. It is violated where the conclusion gets another answer, and says nothing where
the premises do not meet its condition. An *instance* of it is one variant: its questions with their
answers.

docs/expectations.md says what studies of consistency call these relations, and how they are
written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, cast

ExpectationKind = Literal["same", "different", "opposite", "implied", "complementary", "merges"]

KINDS: Mapping[str, str] = {
    "same": "both questions get the same answer",
    "different": "the two questions get different answers",
    "opposite": "the second answer is the opposite of the first",
    "implied": "the second answer is the one that the first answers imply",
    "complementary": "exactly one of the questions gets the answer yes",
    "merges": "the second answer is the option that the first answer was merged into",
}
"""The kinds of expectations, and what each says."""

CONDITIONED = "conditioned "  # Begins the name of the expectations of a kind that have a condition

EXPECTATION_SUBSETS: Mapping[str, str] = {
    f"{prefix}{kind}": f"{text}{after}"
    for kind, text in KINDS.items()
    for prefix, after in (("", ""), (CONDITIONED, ", if the first answer is that of a condition"))
}
"""What is counted together: the expectations of a kind without a condition, and those with one."""

NO_OPTION = ""
"""The answer of a text that is none of the options. It agrees with nothing, not with itself."""

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A question that an expectation is about, in one phrasing or in each."""

    item: str
    paraphrase: str = ""
    """The phrasing, a level of the factor ``paraphrase``; empty for that of each variant."""
    options: Texts = ()  # The options in the order of the file; empty for an open question


@dataclass(frozen=True, slots=True)
class Expectation:
    """What should hold between the answers to some questions and the answer to another one.

    Without a paraphrase, the questions are compared in the same variant.
    """

    kind: ExpectationKind
    premises: tuple[Reference, ...]
    """The questions whose answers decide what is expected; one for ``same`` and ``different``."""
    conclusion: Reference
    rules: Mapping[Texts, Texts] = field(default_factory=dict, hash=False)
    """Answers to the premises -> answers that the conclusion may get; empty for ``same`` and
    ``different``."""
    condition: Texts = ()  # The answers to the premise that it is about; empty for all

    @property
    def subset(self) -> str:
        """What it is counted with, one of ``EXPECTATION_SUBSETS``."""
        return f"{CONDITIONED if self.condition else ''}{self.kind}"

    @property
    def references(self) -> tuple[Reference, ...]:
        return *self.premises, self.conclusion

    @property
    def items(self) -> Texts:
        return tuple(reference.item for reference in self.references)

    @property
    def compares_texts(self) -> bool:
        """Whether it compares the answers to open questions with each other."""
        return self.kind in ("same", "different") and not self.conclusion.options

    def permits(self, premises: Texts, conclusion: str) -> bool | None:
        """Whether the conclusion may get that answer; None where nothing is expected."""
        if self.condition and premises[0] not in self.condition:
            return None
        if self.kind in ("same", "different"):
            is_same = conclusion == premises[0] != NO_OPTION
            return is_same == (self.kind == "same")
        return conclusion in self.rules[premises] if premises in self.rules else None

    @property
    def moves(self) -> tuple[int, ...] | None:
        """The option of the conclusion that gets the probability of each option of the premise.

        In the order of the premise's options. None where the permitted answers are not one to one;
        those of ``merges`` need not be.
        """
        positions = self._positions
        if self.kind == "merges":
            return positions
        size = len(self.conclusion.options)
        return positions if positions and sorted(positions) == list(range(size)) else None

    @property
    def merges_all(self) -> bool:
        """Whether options of the premise move each to one of the conclusion, and to all of them."""
        return {*(self._positions or ())} == {*range(len(self.conclusion.options))}

    @property
    def _positions(self) -> tuple[int, ...] | None:
        """The position of the one permitted answer after each answer; None unless it is one."""
        premise, *others = self.premises
        permitted = [
            [at for at, text in enumerate(self.conclusion.options) if self.permits((answer,), text)]
            for answer in premise.options
        ]
        if others or not permitted or any(len(of) != 1 for of in permitted):
            return None
        return tuple(at for (at,) in permitted)

    def to_record(self) -> dict[str, Any]:
        references = [[one.item, one.paraphrase, list(one.options)] for one in self.references]
        return {
            "kind": self.kind,
            "questions": references,
            "rules": [[list(answers), list(expected)] for answers, expected in self.rules.items()],
            "condition": list(self.condition),
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Expectation:
        *premises, conclusion = (
            Reference(item, paraphrase, tuple(options))
            for item, paraphrase, options in record["questions"]
        )
        rules = {tuple(answers): tuple(expected) for answers, expected in record["rules"]}
        kind = cast(ExpectationKind, record["kind"])
        return cls(kind, tuple(premises), conclusion, rules, tuple(record["condition"]))


Replies = Mapping[tuple[str, str], str | None]
"""(item, variant) -> answer, None for no answer; what was not asked is not in it."""

Probabilities = tuple[float, ...]
"""The probability of each option of a question, in the order of the file."""

Levels = Mapping[str, str]
PARAPHRASE = "paraphrase"


def linked_questions(links: Iterable[Sequence[str]]) -> dict[str, str]:
    """The connected component of each question of ``links``: the name of one of its questions."""
    names: dict[str, str] = {}

    def component(item: str) -> str:
        while names.setdefault(item, item) != item:
            names[item] = item = names[names[item]]
        return item

    for linked in links:
        for item in linked:
            names[component(item)] = component(linked[0])
    return {item: component(item) for item in list(names)}


@dataclass(frozen=True, slots=True)
class Instance:
    """An expectation in one variant."""

    expectation: Expectation
    variants: Texts  # The variant of each premise and of the conclusion
    answers: tuple[str | None, ...]
    probabilities: tuple[Probabilities, ...] = ()
    """Those of the options of the premises and of the conclusion; empty where one has none."""

    @property
    def is_answered(self) -> bool:
        return None not in self.answers

    @property
    def is_permitted(self) -> bool | None:
        return self.permits(self.answers[-1])

    @property
    def required(self) -> Probabilities | None:
        """The probability that each option of the conclusion should have.

        The sum of the probabilities of the options of the premise that move to it
        (``Expectation.moves``). None without probabilities, and where nothing follows.
        """
        moves = self.expectation.moves
        if moves is None or not self.probabilities or not self.is_answered:
            return None
        required = [0.0] * len(self.expectation.conclusion.options)
        for probability, to in zip(self.probabilities[0], moves, strict=True):
            required[to] += probability
        return tuple(required)

    @property
    def probability_gap(self) -> float | None:
        """The distance between the probabilities of the conclusion and those that are expected.

        The total variation ``sum_b |sum_{a: f(a) = b} P(a | premise) - P(b | conclusion)| / 2``,
        where ``f(a)`` is the one answer that a permits: of yes and no, and ``opposite``,
        ``|P(yes | premise) + P(yes | conclusion) - 1|``. From 0 to 1; None where ``required`` is.
        """
        if (required := self.required) is None:
            return None
        moved = (abs(p - q) for p, q in zip(required, self.probabilities[-1], strict=True))
        return sum(moved) / 2

    def permits(self, conclusion: str | None) -> bool | None:
        """Whether the conclusion may get that answer, after these answers to the premises."""
        premises = tuple(answer or NO_OPTION for answer in self.answers[:-1])
        return self.expectation.permits(premises, conclusion or NO_OPTION)


def instances(
    expectation: Expectation,
    replies: Replies,
    variants: Mapping[str, Levels],
    probabilities: Mapping[tuple[str, str], Probabilities] = MappingProxyType({}),
) -> Iterator[Instance]:
    """The instances of an expectation: each variant in which all its questions were asked.

    A question with a fixed paraphrase is taken from the variant that differs in this only.
    ``variants``: the levels of each. ``probabilities``: (item, variant) -> those of its options.
    """
    filled = {name: {PARAPHRASE: "1", **levels} for name, levels in variants.items()}
    names = {frozenset(levels.items()): name for name, levels in filled.items()}
    known: set[Texts] = set()
    for levels in filled.values():
        fixed = [
            {PARAPHRASE: one.paraphrase or levels[PARAPHRASE]} for one in expectation.references
        ]
        chosen = tuple(names.get(frozenset((levels | of).items()), "") for of in fixed)
        queries = list(zip(expectation.items, chosen, strict=True))
        if chosen not in known and all(query in replies for query in queries):
            known.add(chosen)
            answers = tuple(replies[query] for query in queries)
            has_all = all(query in probabilities for query in queries)
            of_options = tuple(probabilities[query] for query in queries) if has_all else ()
            yield Instance(expectation, chosen, answers, of_options)


Counted = tuple[tuple[Instance, ...], ...]


def with_answers_of(counted: Counted, others: Counted) -> Counted:
    """The instances that are also in ``others``, with what answers and probabilities those have."""
    known = {(one.expectation, one.variants): one for of in others for one in of}
    common = []
    for of in counted:
        pairs = [(one, known.get((one.expectation, one.variants))) for one in of]
        kept = [
            replace(
                one, probabilities=one.probabilities if other.probabilities else (),
                answers=one.answers if other.is_answered else (None,) * len(one.answers),
            )
            for one, other in pairs
            if other is not None
        ]  # fmt: skip
        if kept:
            common.append(tuple(kept))
    return tuple(common)
