"""How patterns are compared: filled with a fact, in a normal form, by their tokens."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from consilience.analysis.syntax import DETERMINERS
from consilience.core.patterns import Pattern
from consilience.core.text import WITHOUT_SPACES, fold_case
from consilience.types import Fact, Relation

Likeness = Literal["duplicate", "determiners", "one token"]
"""How a pattern is like another one.

duplicate: the same in ``normal_form``. determiners: the same without English determiners. one
token: one token is added, removed or replaced, in patterns of at least ``LEAST`` tokens besides the
slots.
"""

LEAST = 3

TOKEN = re.compile(rf"\[[xy]\]|[{WITHOUT_SPACES}]|[^\s{WITHOUT_SPACES}]+")
"""A slot, a character of a script without spaces, or a word."""

SLOTS = ("[x]", "[y]")


def sentence(relation: Relation, pattern: Pattern, fact: Fact) -> str:
    """The sentence that a fact makes of a pattern."""
    query = relation.query(pattern, fact)
    return pattern.fill(query.subject, query.gold)


@lru_cache(maxsize=4096)
def normal_form(pattern: str) -> str:
    """A pattern or a phrasing without what duplicates may differ in: case, spaces, punctuation.

    Unicode is composed (NFC) and case folded. Each run of spaces and punctuation is one space,
    marks of direction go, and slots are words.
    """
    words = []
    for part in re.split(r"(\[[xy]\])", fold_case(unicodedata.normalize("NFC", pattern))):
        kinds = [unicodedata.category(sign) for sign in part]
        signs = zip(part, kinds, strict=True)
        plain = "".join(" " if kind[0] in "PZ" else sign for sign, kind in signs if kind != "Cf")
        words.append(part if part in SLOTS else plain)
    return " ".join(" ".join(words).split())


@lru_cache(maxsize=4096)
def tokens_of(pattern: str) -> tuple[str, ...]:
    """The tokens of a pattern in ``normal_form``: words and slots."""
    return tuple(TOKEN.findall(normal_form(pattern)))


def likeness(a: str, b: str, *, in_english: bool = True) -> Likeness | None:
    """How two patterns are alike; None where they are neither duplicates nor near-duplicates."""
    if normal_form(a) == normal_form(b):
        return "duplicate"
    tokens = tokens_of(a), tokens_of(b)
    bare = [[token for token in of if token not in DETERMINERS] for of in tokens]
    if in_english and bare[0] == bare[1]:
        return "determiners"
    is_long = max(map(len, tokens)) >= LEAST + len(SLOTS)
    return "one token" if is_long and _differ_in_one(*tokens) else None


def _differ_in_one(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether one token added, removed or replaced turns a list of tokens into another one."""
    shorter, longer = sorted((a, b), key=len)
    if len(longer) - len(shorter) > 1 or a == b:
        return False
    at = next((at for at, token in enumerate(shorter) if token != longer[at]), len(shorter))
    rest = shorter[at + 1 :] if len(shorter) == len(longer) else shorter[at:]
    return rest == longer[at + 1 :]


def has_words(pattern: str) -> bool:
    """Whether a pattern has a letter besides its slots; one without says nothing."""
    return any(sign.isalpha() for sign in pattern.replace("[X]", "").replace("[Y]", ""))
