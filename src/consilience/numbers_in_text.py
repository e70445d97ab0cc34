"""Numbers in a text: in digits, with a percent sign or a power of ten, and in English words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from fractions import Fraction

from consilience.errors import ConsilienceError
from consilience.text import DENIED, WITHOUT_SPACES, truncated

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

_WORDS = "|".join([*SMALL, *SCALES, "and", "minus", "negative"])
_TOKEN = re.compile(
    rf"([^\s\d]{{0,40}}\d\S*)|\b({_WORDS})\b|(%|percent\b|per cent\b)|([^\W\d]+|\S)"
)
_AROUND = "()[]|*_`~#'\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u2026\u2248,;:!?/\u3001\u3002"
_UNIT = r"(?:[kc]m|[km]g|ml|[kmgt]b|[kmg]?hz|\u00b0[cf]?)?"
_DIGITS = re.compile(rf"([-+]?\d+(?:[.,/]\d+)*(?:e[-+]?\d+)?)(?:(%)|{_UNIT})")
_PLAIN = re.compile(r"([-+]?)(\d+|\d{1,3}(?:,\d{3})+)(\.\d+)?(?:e([-+]?\d+))?")
_FRACTION = re.compile(r"([-+]?\d+)/(\d+)")
_GROUPS = re.compile(
    r"(?<![\d.,])\d{1,3}(?:(?:[\u00a0\u2009\u202f'_]\d{3})+|(?: \d{3}){2,}| 0\d\d)(?!\d)"
)
_VULGAR = re.compile(r"(?<!\d)(\d{0,9})([\u00bc-\u00be\u2150-\u215e])")
_POWERS = re.compile("[\u00b9\u00b2\u00b3\u2070\u2074-\u207e]")
_MARKUP = re.compile('[<>{}"]')
_CJK_SCALES = "\u5341\u767e\u5343\u4e07\u842c\u5104\u4ebf\u5146\uc2ed\ubc31\ucc9c\ub9cc\uc5b5\uc870"
_CJK = rf"(?![{_CJK_SCALES}])[{WITHOUT_SPACES}\uac00-\ud7af]"
_BETWEEN_WORDS = re.compile(rf"(?<=\w)-(?=[a-z])|(?<=\d)(?={_CJK})|(?<={_CJK})(?=\d)")
_OTHER_SCALES = (
    r"half|quarters?|dozens?|dutzend|k|bn|mn|mio|mln|mrd|mil|mille|mila|tausend|lakhs?|crores?|"
    r"(?!(?:m|b|tr)illion\b)(?:m|b|tr)il+[ijh]?(?:o|\u00f3|\u00f5|ard)\w*|"
    r"\u043c\u0438\u043b\u043b\u0438\w*|\u043c\u043b\w+|\u0442\u044b\u0441\w*"
)
_UNREAD = re.compile(
    "|".join(
        (
            r"\\[a-z]+",  # LaTeX
            r"\d\S{0,9} [-+*/^x\u00d7\u00f7\u00b7] \S{0,9}\d",  # a calculation
            rf"(?:\bno |{DENIED})(?:\S*\d|(?:{_WORDS})\b)",
            rf"\u2030|\b(?:{_OTHER_SCALES})\b",
        )
    )
)
"""What makes the value of a text another one than that of its numbers."""


def _without_vulgar(match: re.Match[str]) -> str:
    """``7/2`` for ``3½``."""
    fraction = Fraction(unicodedata.numeric(match[2])).limit_denominator(10)
    return str(int(match[1] or 0) + fraction)


def numbers_in(text: str) -> list[Fraction]:
    """The numbers of a text, in its order, as exact values.

    - Digits: ``1,000``, ``1000``, ``1e3`` and ``1 000`` are equal. The comma separates groups of
      three digits, the point begins the decimals. ``1/2`` and ``½`` are a half. Digits may be those
      of any script. A word with digits, such as B12, is no number.
    - Percent: ``5 %``, ``5%`` and ``5 percent`` are 0.05.
    - English words: zero to nineteen, the tens, hundred, thousand, million, billion and trillion,
      as in ``one hundred and five``, ``twenty-one`` or ``3 million``; ``minus`` and ``negative``.

    Digits that are written otherwise raise ``ConsilienceError``, because their value is another
    one: ``1k``, ``1,5``, ``0x10``, ``10^3``, ``2-3``, ``3rd``. So do ``5 + 5``, ``not 5``, ``half a
    million`` and ``2 Millionen``. A unit is a word of its own; a few may follow without a space.
    """
    joined = _VULGAR.sub(_without_vulgar, _GROUPS.sub(_joined, text))
    plain = unicodedata.normalize("NFKC", _POWERS.sub("^", joined)).casefold()
    plain = _BETWEEN_WORDS.sub(" ", _MARKUP.sub(" ", plain.replace("\u2212", "-")))
    plain = "".join(" " if unicodedata.category(c) == "Sc" else c for c in plain)
    plain = plain.replace("=", " = ")
    if match := _UNREAD.search(plain):
        raise ConsilienceError(f"'{truncated(match[0], 40)}'", expected="a number alone")
    numbers: list[Fraction] = []
    words: list[str] = []
    for chunk, word, percent, _ in _TOKEN.findall(plain):
        if word in SCALES and not words and numbers:
            words = [f"={numbers.pop()}"]
        if word:
            words.append(word)
            continue
        numbers += _spoken(words)
        words = []
        if percent and numbers:
            numbers[-1] /= 100
        elif chunk and not (bare := chunk.strip(_AROUND).rstrip("." + _AROUND))[:1].isalpha():
            match = _DIGITS.fullmatch(bare)
            value = _written(match[1]) if match else None
            if match is None or value is None:
                raise ConsilienceError(f"'{truncated(chunk, 40)}'", expected="a number in digits")
            words = [f"={value / 100 if match[2] else value}"]
    return [*numbers, *_spoken(words)]


def _joined(match: re.Match[str]) -> str:
    """The digits of groups that spaces or apostrophes separate."""
    return re.sub(r"\D", "", match[0])


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
    if len(digits) > MOST_DIGITS:
        return None
    if match := _FRACTION.fullmatch(digits):
        return Fraction(int(match[1]), int(match[2])) if int(match[2]) else None
    match = _PLAIN.fullmatch(digits)
    if match is None:
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
            smaller = current is None or (0 < current < (100 if word == "hundred" else 10**6))
            if not smaller or (word != "hundred" and total % (1000 * SCALES[word])):
                raise ConsilienceError(f"'{' '.join(words[:9])}'", expected="one number in words")
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
