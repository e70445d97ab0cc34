"""Perturbations of cloze patterns, and suites whose patterns are asked in perturbed forms too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import polars as pl

from consilience.cloze import Pattern
from consilience.errors import ConsilienceError
from consilience.suites.perturbations import Perturbation, register
from consilience.text import ENDINGS, WITHOUT_SPACES
from consilience.types import Suite

RewritePattern = Callable[[str], str]
"""From the text of a pattern, with ``[X]`` and ``[Y]``, to another."""

PATTERN_PERTURBATIONS: dict[str, Perturbation] = {}


def pattern_perturbation(guarantee: str) -> Callable[[RewritePattern], RewritePattern]:
    """Register a function as a perturbation of cloze patterns; a name that is taken raises."""
    return partial(register, PATTERN_PERTURBATIONS, guarantee)


LETTERS = "Only the case of letters changes."
PUNCTUATION = "Only the punctuation at the end changes."
TYPO = "One word is misspelled and still easy to read."

_SLOTS = re.compile(r"(\[[XY]\])")
_WORD = re.compile(rf"[^\W{WITHOUT_SPACES}]+")


def _literal_parts(text: str, rewrite: Callable[[str], str]) -> str:
    """The text with what is not a slot rewritten."""
    parts = _SLOTS.split(text)
    return "".join(part if _SLOTS.fullmatch(part) else rewrite(part) for part in parts)


@pattern_perturbation(LETTERS)
def lower_case(text: str) -> str:
    """``[X] was born in [Y].`` stays, ``The capital of [X] is [Y].`` loses its capital."""
    return _literal_parts(text, str.lower)


@pattern_perturbation(LETTERS)
def upper_case(text: str) -> str:
    """As in ``[X] WAS BORN IN [Y].``."""
    return _literal_parts(text, str.upper)


@pattern_perturbation(PUNCTUATION)
def no_period(text: str) -> str:
    """``[X] was born in [Y]``."""
    stripped = text.rstrip("".join(ENDINGS) + " ")
    return stripped or text


@pattern_perturbation(TYPO)
def typo(text: str) -> str:
    """``[X] was bron in [Y].``: the second and third letters of the longest word are swapped.

    Of words of equal length the first. A pattern without a word of four letters stays, and so does
    one in a script without spaces between words.
    """
    words = [word for part in _SLOTS.split(text)[::2] for word in _WORD.findall(part)]
    longest = max(words, key=len, default="")
    if len(longest) < 4:
        return text
    swapped = longest[0] + longest[2] + longest[1] + longest[3:]
    return text.replace(longest, swapped, 1)


def with_perturbed_patterns(suite: Suite, perturbations: Mapping[str, Perturbation]) -> Suite:
    """The suite with every pattern in perturbed forms too, each compared with its own original.

    Patterns are then not compared with one another. A perturbation that leaves a pattern as it is
    has a note.
    """
    relations, notes = [], list(suite.notes)
    unchanged = dict.fromkeys(perturbations, 0)
    for relation in suite.relations:
        patterns = list(relation.patterns)
        for name, perturbation in perturbations.items():
            made = [perturbation.pattern_of(pattern) for pattern in relation.patterns]
            unchanged[name] += sum(
                one.text == two.text for one, two in zip(made, relation.patterns, strict=True)
            )
            _refuse_alike(name, made, relation.id)
            patterns += made
        relations.append(replace(relation, patterns=tuple(patterns)))
    size = sum(len(relation.patterns) for relation in suite.relations)
    for name, count in unchanged.items():
        if count:
            notes.append(
                f"{name}: leaves {count} of {size} patterns as they are, so their consistency is "
                "100 %"
            )
    return replace(suite, relations=tuple(relations), notes=tuple(notes))


def _refuse_alike(name: str, perturbed: Sequence[Pattern], group: str) -> None:
    """Raise if a perturbation makes one text of two patterns."""
    texts = [pattern.text for pattern in perturbed]
    for text in texts:
        if texts.count(text) > 1:
            raise ConsilienceError(
                f"the perturbation '{name}' makes '{text}' of {texts.count(text)} patterns",
                expected="another text of each pattern",
                where=group,
                todo="Leave the perturbation out, or all but one of these patterns.",
            )


def with_asked_patterns(suite: Suite, answers: pl.DataFrame, names: Sequence[str]) -> Suite:
    """The suite with the perturbed patterns of an answers table; ``names``: of the perturbations.

    A perturbed variant is called ``NAME: TEXT``.
    """
    if not names:
        return suite
    variants = answers.select("group", "variant").unique(maintain_order=True)
    by_group: dict[str, list[str]] = {}
    for group, variant in variants.iter_rows():
        by_group.setdefault(group, []).append(variant)
    relations = []
    for relation in suite.relations:
        patterns = list(relation.patterns)
        for name in names:
            texts = [
                variant.removeprefix(f"{name}: ")
                for variant in by_group.get(relation.id, [])
                if variant.startswith(f"{name}: ")
            ]
            patterns += [
                replace(base, text=text, form=name)
                for base, text in zip(relation.patterns, texts, strict=bool(texts))
            ]
        relations.append(replace(relation, patterns=tuple(patterns)))
    return replace(suite, relations=tuple(relations))


def without_perturbed_patterns(suite: Suite) -> Suite:
    """The suite without what perturbations made."""
    relations = (
        replace(
            relation, patterns=tuple(pattern for pattern in relation.patterns if not pattern.form)
        )
        for relation in suite.relations
    )
    return replace(suite, relations=tuple(relations))
