"""Korean particles, whose form depends on the final sound of the name before them.

A pattern writes both forms in the usual notation, such as ``[X]은(는)`` or ``[Y](으)로``; a filled
sentence has the one that fits.
"""

from __future__ import annotations

import unicodedata

_ALTERNATIVES = (("은", "는"), ("이", "가"), ("을", "를"), ("과", "와"), ("아", "야"))
"""(after a final consonant, after a vowel)"""

PARTICLES: dict[str, tuple[str, str]] = {
    notation: forms
    for forms in _ALTERNATIVES
    for notation in (f"{forms[0]}({forms[1]})", f"{forms[1]}({forms[0]})")
} | {"(으)": ("으", ""), "(이)": ("이", "")}
"""Notation -> what is written after a final consonant, and after a vowel.

``(으)로`` and ``(이)라는`` have an optional syllable; after a final ㄹ, ``(으)`` is left out too.
"""

_FIRST_LETTERS = frozenset(notation[0] for notation in PARTICLES)

_FIRST_SYLLABLE, _LAST_SYLLABLE, _FINALS, _RIEUL = 0xAC00, 0xD7A3, 28, 8
"""Unicode 3.12: a Hangul syllable is ``0xAC00 + (initial * 21 + vowel) * 28 + final``."""

_DIGIT_FINALS = dict(zip("0123456789", (21, 8, 0, 16, 0, 0, 1, 8, 8, 0), strict=True))
"""The final of each digit read in Sino-Korean: 영, 일, 이, 삼, 사, 오, 육, 칠, 팔, 구."""

_LATIN_FINALS = (("ng", 21), ("l", _RIEUL), ("m", 16), ("n", 4))
"""The endings in Latin letters that count as a final consonant; others count as a vowel."""


def with_particle(name: str, text: str) -> str:
    """``text``, which follows ``name``, with the particle at its beginning chosen to fit.

    The last letter or digit of the name decides; brackets and punctuation after it do not.

    - Hangul: whether the syllable has a final consonant.
    - A digit: as it is read in Sino-Korean.
    - Latin letters: ``l``, ``m``, ``n`` and ``ng`` count as a final consonant, all others as a
      vowel. The rule is an approximation, because spelling does not give the sound.
    - Any other script: the notation stays, with both forms.
    """
    if text[:1] not in _FIRST_LETTERS:
        return text
    notation = next((known for known in PARTICLES if text.startswith(known)), None)
    final = None if notation is None else _final(name)
    if notation is None or final is None:
        return text
    is_vowel = final == 0 or (notation == "(으)" and final == _RIEUL)
    return PARTICLES[notation][is_vowel] + text[len(notation) :]


def _final(name: str) -> int | None:
    """The number of the final consonant of a name, 0 for none; None where it is not known."""
    letters = unicodedata.normalize("NFC", name).lower()
    while letters and not letters[-1].isalnum():
        letters = letters[:-1]
    if not letters:
        return None
    last = ord(letters[-1])
    if _FIRST_SYLLABLE <= last <= _LAST_SYLLABLE:
        return (last - _FIRST_SYLLABLE) % _FINALS
    if letters[-1] in _DIGIT_FINALS:
        return _DIGIT_FINALS[letters[-1]]
    if "LATIN" not in unicodedata.name(letters[-1], ""):
        return None
    return next((final for ending, final in _LATIN_FINALS if letters.endswith(ending)), 0)
