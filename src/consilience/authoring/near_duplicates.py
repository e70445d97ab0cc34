"""Patterns that are the same, or almost the same, as another one of their relation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from consilience.analysis.syntax import DETERMINERS
from consilience.text import WITHOUT_SPACES, fold_case

Likeness = Literal["duplicate", "determiners", "one token"]
"""How a pattern is like another one.

duplicate: the same in ``normal_form``. determiners: the same without English determiners. one
token: one token is added, removed or replaced, in patterns of at least ``LEAST`` tokens besides the
slots.
"""

LEAST = 3
"""Tokens besides the slots of the longer of two patterns that may differ in one token."""

TOKEN = re.compile(rf"\[[xy]\]|[{WITHOUT_SPACES}]|[^\s{WITHOUT_SPACES}]+")
"""A slot, a character of a script without spaces, or a word."""

SLOTS = ("[x]", "[y]")


@lru_cache(maxsize=4096)
def normal_form(pattern: str) -> str:
    """A pattern or a phrasing without what duplicates may differ in: case, spaces, punctuation.

    Unicode is composed (NFC) and case folded. Each run of spaces and punctuation is one space;
    slots are words.
    """
    text = fold_case(unicodedata.normalize("NFC", pattern))
    parts = re.split(r"(\[[xy]\])", text)
    words = [part if part in SLOTS else without_punctuation(part) for part in parts]
    return " ".join(" ".join(words).split())


def without_punctuation(text: str) -> str:
    """A text with a space for each punctuation mark and each space, without marks of direction."""
    signs = ((sign, unicodedata.category(sign)) for sign in text)
    return "".join(" " if kind[0] in "PZ" else sign for sign, kind in signs if kind != "Cf")


def likeness(a: str, b: str, *, in_english: bool = True) -> Likeness | None:
    """How two patterns are alike; None where they are neither duplicates nor near-duplicates."""
    if normal_form(a) == normal_form(b):
        return "duplicate"
    tokens, others = tokens_of(a), tokens_of(b)
    if in_english and without_determiners(tokens) == without_determiners(others):
        return "determiners"
    is_long = max(len(tokens), len(others)) >= LEAST + len(SLOTS)
    return "one token" if is_long and differ_in_one(tokens, others) else None


@lru_cache(maxsize=4096)
def tokens_of(pattern: str) -> tuple[str, ...]:
    """The tokens of a pattern in ``normal_form``: words and slots."""
    return tuple(TOKEN.findall(normal_form(pattern)))


def without_determiners(tokens: Iterable[str]) -> list[str]:
    """The tokens that are no English determiners."""
    return [token for token in tokens if token not in DETERMINERS]


def differ_in_one(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether one token added, removed or replaced turns a list of tokens into another one."""
    shorter, longer = sorted((a, b), key=len)
    if len(longer) - len(shorter) > 1 or a == b:
        return False
    at = next((at for at, token in enumerate(shorter) if token != longer[at]), len(shorter))
    rest = shorter[at + 1 :] if len(shorter) == len(longer) else shorter[at:]
    return rest == longer[at + 1 :]


def has_words(pattern: str) -> bool:
    """Whether a pattern has a letter besides its slots; one without says nothing."""
    rest = pattern.replace("[X]", "").replace("[Y]", "")
    return any(character.isalpha() for character in rest)
