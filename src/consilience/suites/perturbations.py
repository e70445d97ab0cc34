"""Perturbations that cannot change the meaning of a sentence pair (CALUM, Section 3).

An item is written as two segments, each a sentence behind its indicator. A perturbation is a pure
function from one such form to another. It may change the order of the segments and what stands
around the indicators, never a sentence nor the letters of an indicator; so the label of the item
stays the same (label rule ``same``), and the original can be recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from consilience.errors import ConsilienceError, did_you_mean
from consilience.types import Form, Segment, Task, TextPair

ORIGINAL = "original"
"""The form that models are trained on, and that every other is compared with."""

PAPERS = ("reverse", "signal")
"""The perturbations of the paper."""

Perturb = Callable[[Form], Form]


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A way to write an item, and why it means the same."""

    name: str
    guarantee: str
    apply: Perturb


PERTURBATIONS: dict[str, Perturbation] = {}

ORDER = "Only the order changes; the indicators say which sentence is which."
SYMBOL = "Only the sign around the indicators changes, which says nothing by itself."
SPACING = "Only the blank behind the indicators changes."
CASING = "Only the case of the indicators changes."


def perturbation(guarantee: str) -> Callable[[Perturb], Perturb]:
    """Register a function under its name; a name that is taken raises."""

    def register(apply: Perturb) -> Perturb:
        name = apply.__name__
        if name in PERTURBATIONS or name in (ORIGINAL, "all"):
            raise ValueError(f"there is a perturbation '{name}' already")
        PERTURBATIONS[name] = Perturbation(name, guarantee, apply)
        return apply

    return register


def _around(form: Form, before: str, after: str) -> Form:
    return tuple(replace(segment, before=before, after=after) for segment in form)


@perturbation(ORDER)
def reverse(form: Form) -> Form:
    """``Hypothesis: b Premise: a`` (REVERSE)."""
    return form[::-1]


@perturbation(SYMBOL)
def signal(form: Form) -> Form:
    """``[Premise] a [Hypothesis] b`` (SIGNAL)."""
    return _around(form, "[", "] ")


@perturbation(f"{ORDER} {SYMBOL}")
def reverse_signal(form: Form) -> Form:
    """``[Hypothesis] b [Premise] a``."""
    return reverse(signal(form))


@perturbation(SYMBOL)
def parentheses(form: Form) -> Form:
    """``(Premise) a (Hypothesis) b``."""
    return _around(form, "(", ") ")


@perturbation(SYMBOL)
def dash(form: Form) -> Form:
    """``Premise - a Hypothesis - b``."""
    return _around(form, "", " - ")


@perturbation(SYMBOL)
def equals(form: Form) -> Form:
    """``Premise = a Hypothesis = b``."""
    return _around(form, "", " = ")


@perturbation(SYMBOL)
def arrow(form: Form) -> Form:
    """``Premise -> a Hypothesis -> b``."""
    return _around(form, "", " -> ")


@perturbation(SPACING)
def no_space(form: Form) -> Form:
    """``Premise:a Hypothesis:b``."""
    return _around(form, "", ":")


@perturbation(SPACING)
def line_break(form: Form) -> Form:
    """``Premise:`` and each sentence on a line of its own."""
    return _around(form, "", ":\n")


@perturbation(CASING)
def lower_case(form: Form) -> Form:
    """``premise: a hypothesis: b``; the same as the original where the script has no case."""
    return tuple(replace(each, indicator=each.indicator.lower()) for each in form)


@perturbation(CASING)
def upper_case(form: Form) -> Form:
    """``PREMISE: a HYPOTHESIS: b``; the same as the original where the script has no case."""
    return tuple(replace(each, indicator=each.indicator.upper()) for each in form)


def original(pair: TextPair, indicators: Sequence[str]) -> Form:
    """The form that a model is trained on: ``Premise: a``, ``Hypothesis: b``."""
    first, second = indicators
    return Segment(first, pair.first), Segment(second, pair.second)


def t5_original(pair: TextPair, task: Task) -> Form:
    """T5's form without the task's name: its fields in alphabetical order, so hypothesis first."""
    if not task.t5_fields:
        raise ConsilienceError(
            f"the task '{task.name}' has no text form of T5",
            expected="a task with t5_fields",
            todo="Give a --template, or add t5_fields to a TOML file of the task.",
        )
    segments = original(pair, task.t5_fields)
    return tuple(sorted(segments, key=lambda segment: segment.indicator))


def chosen(names: Sequence[str]) -> dict[str, Perturbation]:
    """The perturbations of these names, each once; ``all`` stands for every one."""
    found: dict[str, Perturbation] = {}
    for name in names:
        if name == "all":
            found |= PERTURBATIONS
        elif name in PERTURBATIONS:
            found[name] = PERTURBATIONS[name]
        else:
            raise ConsilienceError(
                f"no perturbation '{name}'", todo=did_you_mean(name, [*PERTURBATIONS, "all"])
            )
    return found


def variants(form: Form, perturbations: Mapping[str, Perturbation]) -> dict[str, Form]:
    """The original and every perturbed form of an item, by name."""
    return {ORIGINAL: form} | {name: each.apply(form) for name, each in perturbations.items()}


def recover(texts: Sequence[str], name: str, blank: Form) -> Form:
    """The original form that a perturbation made these texts of, one text a segment.

    ``blank``: the original form with empty sentences. Raises where the texts are not such ones.
    """
    if len(texts) != len(blank):
        raise ConsilienceError(f"{len(texts)} texts", expected=f"{len(blank)}, one a segment")
    numbered = tuple(replace(segment, sentence=str(at)) for at, segment in enumerate(blank))
    marks = PERTURBATIONS[name].apply(numbered) if name != ORIGINAL else numbered
    found: dict[int, str] = {}
    for text, segment in zip(texts, marks, strict=True):
        if not text.startswith(segment.mark):
            raise ConsilienceError(
                f"'{text[:40]}' does not begin with '{segment.mark}'",
                expected=f"a text that {name} made",
            )
        found[int(segment.sentence)] = text.removeprefix(segment.mark)
    return tuple(replace(segment, sentence=found[at]) for at, segment in enumerate(blank))
