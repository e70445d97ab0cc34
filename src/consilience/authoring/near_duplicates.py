"""Patterns that are the same, or almost the same, as another one of their relation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from consilience.analysis.syntax import DETERMINERS
from consilience.text import WITHOUT_SPACES

Likeness = Literal["duplicate", "determiners", "one token"]
"""How a pattern is like another one.

duplicate: the same in ``normal_form``. determiners: the same without English determiners. one
token: one token is added, removed or replaced, in patterns of at least ``LEAST`` tokens besides the
slots.
"""

LEAST = 3
"""Tokens besides the slots of the longer of two patterns that may differ in one token."""

TOKEN = re.compile(rf"\[[xy]\]|[{WITHOUT_SPACES}]|[^\W{WITHOUT_SPACES}]+|[^\w\s]")
"""A slot, a character of a script without spaces, a word, or a punctuation mark."""

SLOTS = ("[x]", "[y]")


@lru_cache(maxsize=4096)
def normal_form(pattern: str) -> str:
    """A pattern without what duplicates may differ in: case, spaces and the end of the sentence.

    Unicode is composed (NFC), case folded, every run of spaces is one space, spaces before
    punctuation are dropped, and so is all that follows the last letter, digit or slot.
    """
    text = " ".join(unicodedata.normalize("NFC", pattern).casefold().split())
    text = re.sub(r" (?=[^\w\s\[])", "", text)
    end = len(text)
    while end and not (_is_of_word(text[end - 1]) or text[:end].endswith(SLOTS)):
        end -= 1
    return text[:end]


def likeness(a: str, b: str, *, in_english: bool = True) -> Likeness | None:
    """How two patterns are alike; None where they are neither duplicates nor near-duplicates."""
    if normal_form(a) == normal_form(b):
        return "duplicate"
    tokens, others = tokens_of(a), tokens_of(b)
    if in_english and without_determiners(tokens) == without_determiners(others):
        return "determiners"
    is_long = max(len(tokens), len(others)) >= LEAST + len(SLOTS)
    return "one token" if is_long and differ_in_one(tokens, others) else None


def _is_of_word(character: str) -> bool:
    """Whether a character is a letter, a digit, or a mark on one."""
    return unicodedata.category(character)[0] in "LMN"


@lru_cache(maxsize=4096)
def tokens_of(pattern: str) -> tuple[str, ...]:
    """The tokens of a pattern in ``normal_form``: words, punctuation and slots."""
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
