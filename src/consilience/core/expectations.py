"""Expectations: what should hold between the answers to several questions.

An expectation has premises and a conclusion. The answers to the premises say which answers the
conclusion may get. It is violated where the conclusion gets another answer, and says nothing after
answers that its map does not have. An *instance* of it is one variant: its questions with their
answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

ExpectationKind = Literal["same", "different", "implied"]

KINDS: Mapping[str, str] = {
    "same": "both questions get the same answer",
    "different": "the two questions get different answers",
    "implied": "the second answer is the one that the first answers imply",
}
"""The kinds of expectations, and what each says. A kind is counted together."""

NO_OPTION = ""
"""The answer of a text that is none of the options. It agrees with nothing, not with itself."""

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A question that an expectation is about."""

    item: str
    options: Texts = ()  # The options in the order of the file; empty for an open question


@dataclass(frozen=True, slots=True)
class Expectation:
    """What should hold between the answers to some questions and another one, in each variant."""

    kind: ExpectationKind
    premises: tuple[Reference, ...]
    """The questions whose answers decide what is expected; one for ``same`` and ``different``."""
    conclusion: Reference
    rules: Mapping[Texts, Texts] = field(default_factory=dict, hash=False)
    """Answers to the premises -> answers that the conclusion may get; empty for ``same`` and
    ``different``."""

    @property
    def references(self) -> tuple[Reference, ...]:
        return *self.premises, self.conclusion

    @property
    def items(self) -> Texts:
        return tuple(reference.item for reference in self.references)

    def permits(self, premises: Texts, conclusion: str) -> bool | None:
        """Whether the conclusion may get that answer; None where nothing is expected."""
        if self.kind in ("same", "different"):
            is_same = conclusion == premises[0] != NO_OPTION
            return is_same == (self.kind == "same")
        return conclusion in self.rules[premises] if premises in self.rules else None

    def to_record(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "questions": [[one.item, list(one.options)] for one in self.references],
            "rules": [[list(answers), list(expected)] for answers, expected in self.rules.items()],
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Expectation:
        *premises, conclusion = (
            Reference(item, tuple(options)) for item, options in record["questions"]
        )
        rules = {tuple(answers): tuple(expected) for answers, expected in record["rules"]}
        return cls(cast(ExpectationKind, record["kind"]), tuple(premises), conclusion, rules)


Replies = Mapping[tuple[str, str], str | None]
"""(item, variant) -> answer, ``NO_OPTION`` for none; None for what was left out before asking."""


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
    variant: str
    answers: tuple[str | None, ...]
    order: tuple[int, ...] = ()
    """The options of the conclusion as they are shown, by their position in the file; empty for
    that order."""

    def code(self, *, by_place: bool) -> str | int:
        """The answer to the conclusion: its text, or ``by_place`` where it is shown."""
        answer, options = self.answers[-1] or NO_OPTION, self.expectation.conclusion.options
        if not by_place or answer not in options:
            return answer
        at = options.index(answer)
        return self.order.index(at) if self.order else at

    def text(self, code: str | int) -> str:
        """The answer of a code of another instance, whose conclusion has as many options."""
        if isinstance(code, str):
            return code
        return self.expectation.conclusion.options[self.order[code] if self.order else code]

    @property
    def is_asked(self) -> bool:
        """Whether all its questions were asked."""
        return None not in self.answers

    @property
    def is_permitted(self) -> bool | None:
        return self.permits(self.answers[-1])

    def permits(self, conclusion: str | None) -> bool | None:
        """Whether the conclusion may get that answer, after these answers to the premises."""
        premises = tuple(answer or NO_OPTION for answer in self.answers[:-1])
        return self.expectation.permits(premises, conclusion or NO_OPTION)


def instances(
    expectation: Expectation,
    replies: Replies,
    variants: Iterable[str],
    shown: Mapping[tuple[str, str], tuple[int, ...]],
) -> Iterator[Instance]:
    """The instances of an expectation: each variant in which all its questions were asked.

    ``shown``: (item, variant) -> the positions of its options in the order shown.
    """
    for variant in variants:
        queries = [(item, variant) for item in expectation.items]
        if all(query in replies for query in queries):
            answers = tuple(replies[query] for query in queries)
            yield Instance(expectation, variant, answers, shown.get(queries[-1], ()))


Counted = tuple[tuple[Instance, ...], ...]
