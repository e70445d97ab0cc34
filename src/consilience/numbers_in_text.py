"""Numbers in a text: in digits, with a percent sign or a power of ten, and in English words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from fractions import Fraction

UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
"""The words for 0 to 19."""

TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
"""The words for 20, 30, ..., 90."""

SCALES: Mapping[str, int] = {
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
"""The words that multiply the number before them."""

SMALL = {word: value for value, word in enumerate(UNITS)}
SMALL |= {word: 10 * value for value, word in enumerate(TENS, 2)}

MOST_DIGITS = 300
"""The largest power of ten, so that a text such as 1e999999999 takes no memory."""

_SIGN = r"(?:(?<![\w.,/])[-+])?"
_DIGITS = rf"{_SIGN}(?<![\w.,])\d+(?:[.,/]\d+)*(?:e[-+]?\d+)?"
_WORDS = "|".join([*SMALL, *SCALES, "and", "minus", "negative"])
_TOKEN = re.compile(rf"({_DIGITS})|\b({_WORDS})\b|(%|percent\b|per cent\b)|([^\W\d]+|\S)")
_PLAIN = re.compile(r"([-+]?)(\d+|\d{1,3}(?:,\d{3})+)(\.\d+)?(?:e([-+]?\d+))?")
_FRACTION = re.compile(r"([-+]?\d+)/(\d+)")
_THIN_SPACE = re.compile(r"(?<=\d)[\u00a0\u2009\u202f'](?=\d{3}(?!\d))")


_VULGAR = re.compile(r"(\d*)([\u00bc-\u00be\u2150-\u215e])")


def _without_vulgar(match: re.Match[str]) -> str:
    """``7/2`` for ``3½``."""
    fraction = Fraction(unicodedata.numeric(match[2])).limit_denominator(10)
    return str(int(match[1] or 0) + fraction)


def numbers_in(text: str) -> list[Fraction]:
    """The numbers of a text, in its order, as exact values.

    - Digits: ``1,000``, ``1000``, ``1e3`` and ``1 000`` with a no-break or thin space are equal.
      The comma separates groups of three digits, the point begins the decimals; ``1,5`` and
      ``1.000.000`` are no numbers. ``1/2`` and ``½`` are a half. A number that is part of a word,
      as in B12, is none; letters after a number, as in 5km or 3rd, do not count. Digits may be
      those of any script.
    - Percent: ``5 %``, ``5%`` and ``5 percent`` are 0.05.
    - English words: zero to nineteen, the tens, hundred, thousand, million, billion and trillion,
      as in ``one hundred and five``, ``twenty-one`` or ``3 million``; ``minus`` and ``negative``.
    """
    joined = _VULGAR.sub(_without_vulgar, _THIN_SPACE.sub("", text))
    plain = unicodedata.normalize("NFKC", joined).casefold().replace("\u2212", "-")
    numbers: list[Fraction] = []
    words: list[str] = []
    for digits, word, percent, _ in _TOKEN.findall(re.sub(r"(?<=[a-z])-(?=[a-z])", " ", plain)):
        if word in SCALES and not words and numbers and numbers[-1] is not None:
            words = [f"={numbers.pop()}"]
        if word:
            words.append(word)
            continue
        numbers += _spoken(words)
        words = []
        if percent and numbers:
            numbers[-1] /= 100
        elif digits and (value := _written(digits)) is not None:
            words = [f"={value}"]
    return [*numbers, *_spoken(words)]


def shown(value: Fraction) -> str:
    """A number as a decimal, or as a fraction where its decimals do not end."""
    rest = value.denominator
    places = 0
    while rest % 10 == 0 or rest % 2 == 0 or rest % 5 == 0:
        rest = rest // 10 if rest % 10 == 0 else rest // (2 if rest % 2 == 0 else 5)
        places += 1
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value * 10**places).numerator).rjust(places + 1, "0")
    whole, decimals = digits[: len(digits) - places], digits[len(digits) - places :].rstrip("0")
    return ("-" if value < 0 else "") + whole + ("." + decimals if decimals else "")


def _written(digits: str) -> Fraction | None:
    """The value of a number in digits; None for what is written otherwise."""
    if match := _FRACTION.fullmatch(digits):
        return Fraction(int(match[1]), int(match[2])) if int(match[2]) else None
    match = _PLAIN.fullmatch(digits)
    if match is None or len(digits) > MOST_DIGITS:
        return None
    sign, whole, decimals, power = match.groups()
    if abs(int(power or 0)) > MOST_DIGITS:
        return None
    value = Fraction(whole.replace(",", "") + (decimals or "")) * Fraction(10) ** int(power or 0)
    return -value if sign == "-" else value


def _spoken(words: list[str]) -> Iterator[Fraction]:
    """The numbers of a run of number words; ``=5`` is a number in digits."""
    total, current, sign = Fraction(0), None, 1
    for word in words:
        if word == "and":
            continue
        if word in ("minus", "negative"):
            if current is not None:
                yield sign * (total + current)
            total, current, sign = Fraction(0), None, -1
        elif word in SCALES:
            scaled = (Fraction(1) if current is None else current) * SCALES[word]
            if word == "hundred":
                current = scaled
            else:
                total, current = total + scaled, Fraction(0)
        else:
            value = Fraction(word[1:]) if word.startswith("=") else Fraction(SMALL[word])
            if current is None or _continues(current, value, word):
                current = (current or 0) + value
            else:
                yield sign * (total + current)
                total, current, sign = Fraction(0), value, 1
    if current is not None:
        yield sign * (total + current)


def _continues(current: Fraction, value: Fraction, word: str) -> bool:
    """Whether a number word belongs to the number before it: twenty one, a hundred five."""
    if word.startswith("="):
        return False
    below = 100 if current % 100 == 0 else 10 if current % 10 == 0 and current % 100 >= 20 else 0
    return 0 < value < below
