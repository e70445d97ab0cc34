"""The checks of an audit by name: what they read, and what they find.

A check is a pure function of a ``FactMaterial`` or of ``Questions``, decorated with ``@check``. Its
severity, what it looks for and what to do about a finding are arguments of the decorator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from consilience.cloze import ENGLISH, Pattern
from consilience.design import Edge, VariantPair
from consilience.metrics.intervals import Floats
from consilience.suites.places import Places
from consilience.types import Suite

Severity = Literal["error", "warning", "note"]
"""error: the suite cannot be used. warning: probably a mistake. note: decides what numbers mean."""

Kind = Literal["facts", "questions"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a suite that a person should look at."""

    group: str
    """The relation or the group of questions; empty for the whole suite."""
    evidence: str
    """What was found, with an example."""
    places: tuple[str, ...] = ()
    """Where: ``file:line`` below the folder of the suite; empty where that is not known."""
    count: int = 1
    """How many patterns, facts, candidates or questions it is about."""
    check: str = ""
    severity: Severity = "note"
    todo: str = ""
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class Check:
    """A function that looks for one kind of fault."""

    find: Callable[[Any], Iterable[Finding]]
    """What it finds in the material."""
    severity: Severity
    """How bad a finding is."""
    meaning: str
    """What it looks for, in a few words."""
    todo: str
    """What to do about a finding."""
    of: Kind
    """The kind of suites that it applies to."""
    needs: str
    """The field of the material that has to be there; empty if it always is."""
    is_quick: bool
    """Whether ``suite check`` also reports it."""


CHECKS: dict[str, Check] = {}
"""The checks by name, in the order of the table."""

Function = Callable[[Any], Iterable[Finding]]


def check(
    severity: Severity,
    *,
    meaning: str,
    todo: str,
    of: Kind = "facts",
    needs: str = "",
    is_quick: bool = False,
) -> Callable[[Function], Function]:
    """Register a function as the check of its name; a name that is taken raises."""

    def register(find: Function) -> Function:
        name = find.__name__
        if name in CHECKS:
            raise ValueError(f"there is already a check '{name}'")
        CHECKS[name] = Check(find, severity, meaning, todo, of, needs, is_quick)
        return find

    return register


@dataclass(frozen=True, slots=True)
class FactMaterial:
    """What the checks of a suite of facts read."""

    suite: Suite
    places: Places = field(default_factory=Places)
    """Where its patterns and facts are."""
    aliases: Mapping[str, Sequence[tuple[str, ...]]] = field(default_factory=dict)
    """Relation -> answers that mean the same, by the suite's ``aliases`` table."""
    edges: Mapping[str, Mapping[VariantPair, Edge]] | None = None
    """Relation -> how every two patterns differ by a parser; None without a parser."""
    signatures: Mapping[str, Sequence[object]] | None = None
    """Relation -> the dependency path and the lemmas of each pattern; None without a parser."""
    tenses: Mapping[str, Sequence[str]] | None = None
    """Relation -> the tense of each pattern, empty where it has none."""
    meaning: Mapping[str, Floats] | None = None
    """Relation -> cosine similarity (pattern, pattern); None without an encoder."""
    agreement: Mapping[str, Floats] | None = None
    """Relation -> agreement (pattern, pattern), mean over runs; None without runs."""

    @property
    def english(self) -> list[Pattern] | None:
        """The patterns that the rules of English apply to; None without any."""
        patterns = (pattern for relation in self.suite for pattern in relation.patterns)
        return list(filter(is_english, patterns)) or None


def is_english(pattern: Pattern) -> bool:
    """Whether the rules of English apply to a pattern."""
    return pattern.language.partition("-")[0] == ENGLISH
