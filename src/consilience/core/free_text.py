"""Free text becomes answers: numbers, dates, options and normalised texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from consilience.core.errors import ConsilienceError, unknown_name
from consilience.core.items import Choice
from consilience.core.text import (
    DENIED,
    WITHOUT_SPACES,
    fold_case,
    is_denied,
    truncated,
    whole_words,
)

UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SMALL = {word: value for value, word in enumerate(UNITS)}
SMALL |= {word: 10 * value for value, word in enumerate(TENS, 2)}
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""The words that multiply the number before them."""

MOST_DIGITS = 300  # The largest power of ten, so that a text such as 1e999999999 takes no memory
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
    r"half|thirds?|quarters?|fifths?|dozens?|dutzend|k|bn|mn|mio|mln|mrd|mil|mille|mila|tausend|lakhs?|crores?|"
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
    joined = _VULGAR.sub(_as_fraction, _without_gaps(text))
    plain = unicodedata.normalize("NFKC", _POWERS.sub("^", joined)).casefold()
    plain = _BETWEEN_WORDS.sub(" ", _MARKUP.sub(" ", plain.replace("\u2212", "-")))
    plain = re.sub(r"-([$\u00a2-\u00a5\u20a0-\u20cf])(?=[\d.])", r"\1-", plain)
    plain = "".join(" " if unicodedata.category(c) == "Sc" else c for c in plain)
    plain = plain.replace("=", " = ")
    if match := _UNREAD.search(plain):
        raise ConsilienceError(f"'{truncated(match[0], 40)}'", expected="a number alone")
    numbers: list[Fraction] = []
    words: list[str] = []
    for chunk, word, percent, _ in _TOKEN.findall(plain):
        if word:
            words.append(word)
            continue
        sign = words[-1:] if chunk and words and words[-1] in ("minus", "negative") else []
        numbers += _spoken(words)
        words = []
        if percent and numbers:
            numbers[-1] /= 100
        elif chunk and not (bare := chunk.strip(_AROUND).rstrip("." + _AROUND))[:1].isalpha():
            match = _DIGITS.fullmatch(bare)
            value = _written(match[1]) if match else None
            if match is None or value is None:
                raise ConsilienceError(f"'{truncated(chunk, 40)}'", expected="a number in digits")
            words = [*sign, f"={value / 100 if match[2] else value}"]
    return [*numbers, *_spoken(words)]


def _without_gaps(text: str) -> str:
    """``1000`` for ``1 000``, ``1'000`` and ``1_000``."""
    return _GROUPS.sub(lambda groups: re.sub(r"\D", "", groups[0]), text)


def _as_fraction(vulgar: re.Match[str]) -> str:
    """``7/2`` for ``3½``."""
    fraction = Fraction(unicodedata.numeric(vulgar[2])).limit_denominator(10)
    return str(int(vulgar[1] or 0) + fraction)


def shown(value: Fraction) -> str:
    """A number as a decimal, or as a fraction where its decimals do not end."""
    size = value.denominator
    places = next((places for places in range(size.bit_length()) if 10**places % size == 0), None)
    if places is None:
        return str(value)
    digits = str(abs(value) * 10**places).rjust(places + 1, "0")
    decimals = f".{digits[-places:]}" if places else ""
    return ("-" if value < 0 else "") + digits[: len(digits) - places] + decimals


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


MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
"""The names of the months; their first three letters, and sept, count too."""

_NAME = rf"(?P<m>{'|'.join([*MONTHS, 'sept', *(name[:3] for name in MONTHS)])})\.?"
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<y>\d{4})"
_TIME = r"t\d[\d:.,]*(?:z|[-+]\d[\d:]*)?(?!\w)"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"\b(?P<y>\d{{4}})([-/.])(?P<m>\d{{1,2}})\2(?P<d>\d{{1,2}})(?:{_TIME}|\b)",
        rf"\b{_DAY}(?: of)?[ -]{_NAME},?[ -]{_YEAR}\b",
        rf"\b{_NAME} {_DAY},? {_YEAR}\b",
        r"\b(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})\b",
        r"\b(?P<one>\d{1,2})([-/])(?P<two>\d{1,2})\2(?P<y>\d{4})\b",
        rf"\b{_NAME},? {_YEAR}\b",
        r"\b(?P<y>\d{4})-(?P<m>\d{2})\b",
        rf"\b{_DAY}(?: of)? {_NAME}(?!\w)",
        rf"\b{_NAME} {_DAY}\b",
        r"(?<![\w.,/-])(?P<y>[12]\d{3})(?![\w/-]|[.,]\d| b\.?c)",
    )
)
"""The forms, the most precise first; a text that is part of one is not read as another."""

_RANGE = re.compile(r"\d\w*\W*(?:to|and|or)?\W*\Z")
_WORD_BEFORE = re.compile(r"\b(\w+) \Z")
_BEFORE_YEAR = frozenset((
    "in", "year", "is", "was", "be", "s", "en", "em", "im", "jahr", "jahre", "ann\u00e9e",
    "a\u00f1o", "anno", "ano", "nel",
))  # fmt: skip
"""The words that may precede a year or month without being a part of the date."""


def dates_in(text: str) -> list[str]:
    """The dates of a text as ISO 8601: ``2024-03-05``, ``2024-03``, ``2024`` or ``--03-05``.

    Read are ``2024-03-05`` (also with slashes or points), ``5 March 2024``, ``5th of March, 2024``,
    ``March 5, 2024``, ``Mar. 5 2024``, ``5.3.2024`` (day first, as in Europe), ``March 2024``,
    ``2024-03``, ``5 March``, ``March 5`` and a year from 1000 to 2999. ``25/12/2024`` and
    ``12/25/2024`` have one reading. ``05/03/2024`` has two and raises ``ConsilienceError``. A time
    after a date does not count. A day that does not exist, such as 30 February, and a denied date
    (``not 1969``) are none.

    What may be a part of another date raises ``ConsilienceError``: a range of days, a year or month
    after another word than *in*, *year* or *is* (``July of 1969``, ``mars 1990``), and any date but
    a whole one where other digits are left (``20 juillet 1969``).
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    rest = plain
    dates: list[tuple[int, str]] = []
    for form in _FORMS:
        for match in form.finditer(rest):
            if (value := _value(match)) is not None:
                dates.append((match.start(), value))
        rest = form.sub(lambda match: "\0" * len(match[0]), rest)
    dates = [(at, value) for at, value in sorted(dates) if not is_denied(plain, at)]
    has_digits = any(letter.isdigit() for letter in rest)
    for at, value in dates:
        before = rest[max(0, at - 40) : at]
        word = _WORD_BEFORE.search(before)
        if len(value) == len("2024-03-05"):
            is_part = bool(_RANGE.search(before))
        else:
            is_led = value[0] == "-" or not word or word[1] in _BEFORE_YEAR
            is_part = has_digits or not is_led
        if is_part:
            raise ConsilienceError(f"'{value}' may be a part of it", expected="a date that is read")
    return [value for _, value in dates]


def _value(match: re.Match[str]) -> str | None:
    """The date of a form; None for one that does not exist; two readings raise."""
    groups = match.groupdict()
    year, month, day = (groups.get(name) for name in "ymd")
    if "one" in groups:
        one, two = int(groups["one"]), int(groups["two"])
        readings = sorted(filter(None, {_iso(year, two, one), _iso(year, one, two)}))
        if len(readings) > 1:
            raise ConsilienceError(f"'{match[0]}' is {' or '.join(readings)}", expected="one date")
        return readings[0] if readings else None
    if month is None:
        return year
    names = [name[:3] for name in MONTHS]
    number = int(month) if month.isdigit() else 1 + names.index(month[:3])
    # Without a day the first day of the month, without a year a leap year.
    whole = _iso(year or "2000", number, int(day or 1))
    if whole is None:
        return None
    return whole[: 10 if day else 7] if year else "-" + whole[4:]


def _iso(year: str | None, month: int, day: int) -> str | None:
    try:
        return date(int(year or 0), month, day).isoformat()
    except ValueError:
        return None


DEFAULT_RULE = "normalized"

OPEN_RULE = "contains"
"""The rule of open questions where none is named: models answer them in sentences."""

DEFAULT_RULES = f"{OPEN_RULE} for open questions, else {DEFAULT_RULE}"
REGEX = "regex:"  # What a rule with a pattern of its own begins with
NO_CHOICE = "matches no choice"  # The reason where a text is none of the choices

_LEAD_IN = re.compile(
    r"(?:\b(?:the|my) (?:(?:correct|right|best|final) )*(?:answer|option|choice|label)"
    r"(?: (?:that|which|to|for|of) [^.:\n]{1,80}?)? (?:is|would be)\b"
    r"|\b(?:answer|label)[*_\"]*:|^####(?= ?[-$\d]))[:\s*]*",
    re.IGNORECASE | re.MULTILINE,
)
"""Announces the answer: what precedes its end is no part of it."""

_BOXED = re.compile(r"\\f?boxed\s*\{([^{}]+)\}")
_COMMAND = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|it|rm)|emph)\s*\{([^{}]*)\}")
_FORMULA = re.compile(r"(\$\$?)(?=\S)([^$\n]+)(?<=\S)\1(?!\d)")
_SPACING = {
    "{,}": ",",
    "\\,": "\u2009",
    "\\%": "%",
    "\\$": "$",
    **dict.fromkeys(("\\(", "\\)", "\\[", "\\]"), ""),
}
_IS_RIGHT = re.compile(r"(?:is (?:the )?(?:correct|right|best)(?: (?:answer|option|choice|one))?)?")
_IS_WRONG = re.compile(r" (?:(?:is|are|was|were|would be) )?(?:not|wrong|incorrect|false)\b")
_ARTICLE = re.compile(r"^[\W_]*(?:a|an|the) ")
_VOWEL_POINTS = "\u0591-\u05bd\u05bf\u05c1\u05c2\u0640\u064b-\u0652\u0670"
"""Points that most texts leave out, and the stroke that stretches an Arabic word."""

_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SIGNS = str.maketrans("\N{MINUS SIGN}\N{EN DASH}\N{FRACTION SLASH}", "--/")
_KEPT = frozenset("+#%&@\N{DEGREE SIGN}")


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a rule makes of a written text."""

    answer: str
    """What is compared with the choices; empty where the rule found nothing that can be one."""
    passage: str  # The part of the text that the answer is taken from, as it was written
    reason: str = ""  # Why the answer is not of the kind that the rule reads; empty where it is


@dataclass(frozen=True, slots=True)
class Rule:
    """How an answer is extracted from a written text and compared with choices."""

    name: str
    meaning: str  # When a text is a choice, in one sentence
    source: str
    extract: Callable[[str], Extracted]  # Makes of a written text what is compared
    key: Callable[[str], str]  # Makes of the text of a choice what is compared
    parses_labels: bool = True
    """Whether the label of an option may be part of the text; otherwise it is the whole text."""
    finds_within: bool = False  # Whether a choice may be a part of the answer, in whole words


@dataclass(frozen=True, slots=True)
class Match:
    """What a written text answers."""

    position: int | None  # The position of the choice; None where the text is none of them
    answer: str  # What was compared: the extracted and normalized text
    reason: str = ""  # Why the text is no choice; empty where it is one


def without_latex(text: str) -> str:
    r"""A text without LaTeX around words: ``$B$``, ``\text{B}`` and ``\(B\)`` are ``B``.

    Other commands stay, such as ``\frac``.
    """
    plain = _FORMULA.sub(r"\2", _COMMAND.sub(r"\1", text))
    for command, meaning in _SPACING.items():
        plain = plain.replace(command, meaning)
    return plain


def normalized(text: str) -> str:
    """A text without what does not matter to an answer, in these steps.

    1. LaTeX around words is removed (``without_latex``). Unicode form NFKC, case folded, NFKC once
       more; spaces collapsed.
    2. The comma between groups of three digits, apostrophes, full stops after a letter, and vowel
       points of Arabic and Hebrew are removed: ``1,000`` is ``1000``, ``U.S.`` is ``us``.
    3. Every other character becomes a space, but for letters, their marks, digits, signs of
       currencies, ``+ # % & @``, the degree sign, a slash between digits, a point before a digit
       and no letter before it, and a minus before a number where no letter or digit precedes it.
    4. Spaces are collapsed. An article (a, an, the) at the beginning is removed if a space and a
       word follow it: in ``A. Paris`` A is a label.

    Where nothing is left, the text is that of step 1.
    """
    plain = unicodedata.normalize("NFKC", without_latex(text).strip() or text)
    folded = unicodedata.normalize("NFKC", fold_case(plain))
    folded = " ".join(folded.translate(_SIGNS).split())
    return _letters(_ARTICLE.sub("", folded)) or _letters(folded) or folded


def _letters(text: str) -> str:
    """The characters that matter to an answer, with one space for others."""
    plain = _GROUPED.sub("", text)
    plain = re.sub(rf"['\u2019\u02bc`{_VOWEL_POINTS}]|(?<=[^\W\d_])\.", "", plain)
    letters = [letter if _matters(plain, at) else " " for at, letter in enumerate(plain)]
    return " ".join("".join(letters).split())


def _matters(text: str, at: int) -> bool:
    letter, before, after = text[at], text[max(0, at - 1) : at], text[at + 1 : at + 2]
    if letter == "/":
        return before.isdigit() and after.isdigit()
    if letter == ".":
        return after.isdigit() and not before.isalpha() and before != "."
    category = unicodedata.category(letter)
    if letter == "-":
        is_sign = re.match(r"\.?\d", text[at + 1 :]) or unicodedata.category(after or " ") == "Sc"
        return bool(is_sign) and not before.isalnum()
    return category[0] in "LMN" or category == "Sc" or letter in _KEPT


def _said(text: str) -> str:
    """A text without what the model thought before it, whether or not the thought was finished."""
    return text.rpartition("</think>")[2].partition("<think>")[0]


def _after_lead_in(text: str) -> str:
    r"""What ``\boxed`` has or follows the last ``the answer is``; else the whole text."""
    text = without_latex(_said(text))
    boxed = dict.fromkeys(_BOXED.findall(text))
    text = next(iter(boxed)) if len(boxed) == 1 else _BOXED.sub(r"\1", text)
    ends = [match.end() for match in _LEAD_IN.finditer(text)]
    return (text[ends[-1] :].strip() if ends else "") or text.strip()


def _announced(text: str) -> str:
    """The first line of what follows the last ``the answer is``."""
    return _after_lead_in(text).split("\n")[0].strip()


def _in_line(key: Callable[[str], str]) -> Callable[[str], Extracted]:
    """Extracts the first line after ``the answer is``, as ``key`` has it."""

    def extract(text: str) -> Extracted:
        line = _announced(text)
        return Extracted(key(line), line)

    return extract


def _first_word(text: str) -> str:
    return normalized(text).partition(" ")[0]


def _numbers(text: str) -> list[str]:
    return [shown(value) for value in numbers_in(text)]


def _last_number(text: str) -> Extracted:
    """The last number that begins with a digit; of a text without one its only number in words."""
    text = _without_gaps(_after_lead_in(text))
    found = re.finditer(r"(?:\b(?:minus|negative) )?[^\s=]*\d[^\s=]*", text, re.IGNORECASE)
    starts = [match.start() for match in found]
    if not starts:
        return _only(_numbers, "number", text)
    return _only(lambda rest: _numbers(rest)[:1], "number", text[starts[-1] :])


def _only(values: Callable[[str], Sequence[str]], kind: str, text: str) -> Extracted:
    """The only value of a text; empty without one, or with several different ones."""
    try:
        distinct = list(dict.fromkeys(values(text)))
    except ConsilienceError as error:
        return Extracted("", text, f"ambiguous {kind}: {error.found}")
    if len(distinct) == 1:
        return Extracted(distinct[0], text)
    reason = f"several {kind}s: {', '.join(distinct)}" if distinct else f"no {kind}"
    return Extracted("", text, reason)


RULES: Mapping[str, Rule] = {rule.name: rule for rule in (
    Rule(
        "exact", "The text is the choice or its label; surrounding spaces do not count.",
        "equality", lambda text: Extracted(text.strip(), text.strip()), str.strip,
        parses_labels=False),
    Rule(
        DEFAULT_RULE,
        "The first line after 'the answer is' is the choice, but for case, punctuation, spaces and "
        "a leading article.", "after SQuAD's normalize_answer (Rajpurkar et al. 2016)",
        _in_line(normalized), normalized),
    Rule(
        OPEN_RULE,
        "The choice, and no other, is in the text after 'the answer is', in whole words.",
        "answer-string containment, as in open-domain question answering (Chen et al. 2017)",
        lambda text: Extracted(normalized(_after_lead_in(text)), _announced(text)), normalized,
        finds_within=True),
    Rule(
        "first-word", "The first word after 'the answer is' is the first word of the choice.",
        "ours, for answers such as yes and no", _in_line(_first_word), _first_word),
    Rule(
        "number",
        "The only number in the first line after 'the answer is' equals that of the choice.",
        "comparison by value as in GSM8K (Cobbe et al. 2021)",
        lambda text: _only(_numbers, "number", _announced(text)),
        lambda text: _only(_numbers, "number", text).answer),
    Rule(
        "last-number", "The last number after 'the answer is' equals that of the choice.",
        "flexible-extract of GSM8K in lm-evaluation-harness", _last_number,
        lambda text: _only(_numbers, "number", text).answer),
    Rule(
        "date",
        "The only date in the first line after 'the answer is' equals that of the choice, to the "
        "same precision.", "ISO 8601",
        lambda text: _only(dates_in, "date", _announced(text)),
        lambda text: _only(dates_in, "date", text).answer),
)}  # fmt: skip
"""The rules by name; ``rule_of`` makes those of ``regex:PATTERN``."""


def rule_of(name: str) -> Rule:
    """The rule of that name; one that does not exist raises.

    ``regex:PATTERN``: the first match counts, of it the group ``answer``, the first group or the
    whole, compared as under ``normalized``.
    """
    if name.startswith(REGEX):
        return _regex_rule(name)
    if name not in RULES:
        known = [*RULES, f"{REGEX}PATTERN"]
        raise unknown_name(f"no rule '{name}' to match answers with", name, known)
    return RULES[name]


def usual_rule(*, is_open: bool) -> Rule:
    """The rule of a question where none is named (``DEFAULT_RULES``)."""
    return RULES[OPEN_RULE if is_open else DEFAULT_RULE]


SECONDS = 2.0  # Seconds that a pattern of a user may search an answer


def _regex_rule(name: str) -> Rule:
    import regex  # as re, with a limit in time

    try:
        pattern = re.compile(name.removeprefix(REGEX), re.MULTILINE)
    except re.error as error:
        raise ConsilienceError(
            f"the pattern '{name.removeprefix(REGEX)}': {error}",
            expected="a regular expression of Python",
        ) from error
    within_time = regex.compile(pattern.pattern, pattern.flags & ~re.UNICODE)
    group: int | str = "answer" if "answer" in pattern.groupindex else min(1, pattern.groups)

    def extract(text: str) -> Extracted:
        try:
            first_match = within_time.search(text, timeout=SECONDS)
        except TimeoutError:
            raise ConsilienceError(
                f"the pattern '{pattern.pattern}' takes longer than {SECONDS:g} s for an answer of "
                f"{len(text):,} characters",
                todo="Repeat nothing that repeats itself: write a+ for (a+)+.",
            ) from None
        if first_match is None or not first_match[group]:
            return Extracted("", "", "the pattern does not match")
        return Extracted(normalized(first_match[group]), first_match[group])

    meaning = "What the pattern matches is the choice, but for case, punctuation and spaces."
    return Rule(name, meaning, "your own pattern", extract, normalized)


def match(text: str, choices: Sequence[Choice], rule: Rule, labels: Sequence[str] = ()) -> Match:
    """The choice that a written text is, by one of its texts or by its label.

    ``labels``: those that the choices were shown with, in the order of the choices. They count
    alone or in brackets, after ``option``, and beside the text of their choice: ``B``, ``(B)``,
    ``option B``, ``B) Paris``, ``Paris (B)``. A label with another text is no choice, and with the
    text of another choice it is ambiguous. A text that is several choices is ambiguous, and so
    none, unless it is equal to one of them as written.
    """
    if not text.strip():
        return Match(None, "", "no text")
    extracted = rule.extract(text)
    answer = extracted.answer or normalized(extracted.passage or text)
    positions = _named(extracted, choices, rule) | _labelled(extracted, choices, labels, rule)
    if len(positions) == 1:
        return Match(positions.pop(), answer)
    if positions:
        names = " and ".join(f"'{choices[at].text}'" for at in sorted(positions))
        return Match(None, answer, f"matches {names}")
    return Match(None, answer, extracted.reason or NO_CHOICE)


def _named(extracted: Extracted, choices: Sequence[Choice], rule: Rule) -> set[int]:
    """The positions of the choices whose text the answer is."""
    equal = {at for at, choice in enumerate(choices) if extracted.passage in choice.texts}
    if len(equal) == 1:
        return equal
    answer = extracted.answer
    keys = [{rule.key(text) for text in choice.texts} for choice in choices]
    if not answer:  # no value: equal to choices without a value
        answer = normalized(extracted.passage)
        plain = [[text for text in choice.texts if not rule.key(text)] for choice in choices]
        keys = [set(map(normalized, texts)) for texts in plain]
    elif rule.finds_within:
        return _within(answer, keys)
    return {at for at, of_choice in enumerate(keys) if answer in of_choice}


def _within(answer: str, keys: Sequence[set[str]]) -> set[int]:
    """The positions of the choices in an answer, but for those denied or inside a longer one."""
    spans = [
        (match.start(), -match.end(), at)
        for at, of_choice in enumerate(keys)
        for key in filter(None, of_choice)
        for match in whole_words(key).finditer(answer)
        if not _is_in_other(answer, *match.span())
    ]
    positions: set[int] = set()
    longer = (0, 0)  # the span among those before that ends last, and of these begins first
    for start, end, at in sorted(spans):
        is_inside = end >= longer[1] and (start, end) != longer
        if not is_inside:
            longer = start, end
            if not is_denied(answer, start):
                positions.add(at)
    return positions


def _is_in_other(text: str, start: int, end: int) -> bool:
    """Whether a text is a part of another name or number: C in C++, 5 in 5.5, .5, 5/8 and -5.

    1969 is no part of 20.7.1969, because a number has one point.
    """
    before = re.findall(r"(?:(?<!\w)-)?[\d./]*\Z", text[:start])[0]
    before = before if text[start].isdigit() or before == "-" else ""
    after = re.findall(r"\A[\d./]*", text[end:])[0] if text[end - 1].isdigit() else ""
    is_name = text[end : end + 1] in ("+", "#")
    return is_name or "-" in before or len(re.findall(r"[./]", before + after)) == 1


def _labelled(
    extracted: Extracted, choices: Sequence[Choice], labels: Sequence[str], rule: Rule
) -> set[int]:
    """The positions of the choices whose label the passage has, alone or with their text."""
    passage = extracted.passage
    if passage not in labels and any(passage in choice.texts for choice in choices):
        return set()  # the text of an option as written, though it may be a label in another case
    if not rule.parses_labels or not labels:
        return {at for at, label in enumerate(labels) if label == passage}
    plain = re.sub(r"^[-#>\u2022]+\s|[*`\"]+", "", unicodedata.normalize("NFKC", passage)).strip()

    def place(text: str) -> int:
        same = (re.fullmatch(re.escape(label), text, re.IGNORECASE) for label in labels)
        return next(at for at, match in enumerate(same) if match)

    known = "|".join(sorted(map(re.escape, labels), key=len, reverse=True))
    texts = [{normalized(text) for text in choice.texts} for choice in choices]
    if last := re.fullmatch(rf"(.+)[(\[]({known})[)\]]\W*", plain, re.IGNORECASE):
        at = place(last[2])
        return {at} if normalized(last[1]) in texts[at] else set()
    first = re.fullmatch(
        rf"(?:(?:the )?(?:option|choice|letter|number) )?[(\[]?({known})(?!\w|[.,]\d)"
        r"((?:[)\]}:,\s\u3001\u3002]|[-.](?!\d))*)(.*)",
        plain,
        re.IGNORECASE,
    )
    if first is None:
        return set()
    at, rest = place(first[1]), normalized(first[3]) if first[3] else ""
    equal = {other for other, of_choice in enumerate(texts) if rest in of_choice}
    begun = [text for text in texts[at] if whole_words(text).match(rest)]
    is_own = begun and not equal and not any(_IS_WRONG.match(rest[len(text) :]) for text in begun)
    if _IS_RIGHT.fullmatch(rest) or at in equal or is_own:
        return {at}
    return {at} | equal if equal and first[2].strip() else set()


def match_verdict(text: str, choices: Sequence[Choice], rule: Rule | None = None) -> int | None:
    """The position of yes or no: what a text, or its answer, begins with, or a named rule finds."""
    if rule is not None:
        return match(text, choices, rule).position
    starts = [normalized(_said(text)), normalized(_announced(text))]
    words = [whole_words(normalized(choice.text)) for choice in choices]
    return next((words.index(word) for of in starts for word in words if word.match(of)), None)


def matched_word(text: str, words: Sequence[str]) -> str | None:
    """The word that a written text is, such as the label of a task; None for no or several."""
    position = match(text, [Choice(word) for word in words], RULES[DEFAULT_RULE]).position
    return None if position is None else words[position]
