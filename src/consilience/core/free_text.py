"""Free text becomes answers: numbers, options and normalised texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from consilience.core.errors import ConsilienceError, unknown_name
from consilience.core.items import Choice
from consilience.core.text import fold_case, truncated, whole_words

_CHUNK = re.compile(r"[^\s=]*\d[^\s=]*")
_AROUND = "()[]|*_`~#'\"$%\u00b0\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u2026,;:!?/\u3001\u3002"
_NUMBER = re.compile(r"([-+]?)([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.([0-9]+))?")


def numbers_in(text: str) -> list[str]:
    """The numbers of a text, in its order: digits, with a sign, groups of three and decimals.

    ``1,000`` and ``1000.0`` are the same number. The comma separates groups of three digits, the
    point begins the decimals. Punctuation and signs of currencies, degrees and percent around it do
    not count, and a word with digits, such as B12, is no number. Other digits, such as ``1,5``,
    ``1/2``, ``1e3``, ``10^3``, ``3rd`` and ``5km``, raise ``ConsilienceError``.
    """
    plain = "".join(c for c in text if unicodedata.category(c) != "Sc").replace("\u2212", "-")
    numbers = []
    for chunk in _CHUNK.findall(plain):
        bare = chunk.strip(_AROUND).rstrip("." + _AROUND)
        if bare[:1].isalpha():
            continue
        match = _NUMBER.fullmatch(bare)
        if match is None:
            raise ConsilienceError(f"'{truncated(chunk, 40)}'", expected="a number in digits")
        decimals = (match[3] or "").rstrip("0")
        value = match[2].replace(",", "").lstrip("0") or "0"
        value += f".{decimals}" if decimals else ""
        numbers.append(f"-{value}" if match[1] == "-" and value != "0" else value)
    return numbers


DEFAULT_RULE = "exact"

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
    finds_within: bool = False  # Whether a choice may be a part of the answer, in whole words


@dataclass(frozen=True, slots=True)
class Match:
    """What a written text answers."""

    position: int | None  # The position of the choice; None where the text is none of them
    answer: str  # What was compared: the extracted and normalized text
    reason: str = ""  # Why the text is no choice; empty where it is one


def normalized(text: str) -> str:
    """A text without what does not matter to an answer, in these steps.

    1. Unicode form NFKC, case folded, NFKC once more; spaces collapsed.
    2. The comma between groups of three digits, apostrophes, full stops after a letter, and vowel
       points of Arabic and Hebrew are removed: ``1,000`` is ``1000``, ``U.S.`` is ``us``.
    3. Every other character becomes a space, but for letters, their marks, digits, signs of
       currencies, ``+ # % & @``, the degree sign, a slash between digits, a point before a digit
       and no letter before it, and a minus before a number where no letter or digit precedes it.
    4. Spaces are collapsed. An article (a, an, the) at the beginning is removed if a space and a
       word follow it: in ``A. Paris`` A is a label.

    Where nothing is left, the text is that of step 1.
    """
    folded = unicodedata.normalize("NFKC", fold_case(unicodedata.normalize("NFKC", text)))
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
    """What follows the last ``the answer is``; else the whole text."""
    text = _said(text)
    ends = [match.end() for match in _LEAD_IN.finditer(text)]
    return (text[ends[-1] :].strip() if ends else "") or text.strip()


def _announced(text: str) -> str:
    """The first line of what follows the last ``the answer is``."""
    return _after_lead_in(text).split("\n")[0].strip()


def _line(text: str) -> Extracted:
    """The first line after ``the answer is``, normalized."""
    line = _announced(text)
    return Extracted(normalized(line), line)


def _last_number(text: str) -> Extracted:
    """The last number after ``the answer is``."""
    text = _after_lead_in(text)
    starts = [match.start() for match in _CHUNK.finditer(text)]
    return _only_number(text[starts[-1] :] if starts else text)


def _only_number(text: str) -> Extracted:
    """The only number of a text; empty without one, or with several different ones."""
    try:
        distinct = list(dict.fromkeys(numbers_in(text)))
    except ConsilienceError as error:
        return Extracted("", text, f"ambiguous number: {error.found}")
    if len(distinct) == 1:
        return Extracted(distinct[0], text)
    reason = f"several numbers: {', '.join(distinct)}" if distinct else "no number"
    return Extracted("", text, reason)


RULES: Mapping[str, Rule] = {rule.name: rule for rule in (
    Rule(
        DEFAULT_RULE,
        "The first line after 'the answer is' is the choice, but for case, punctuation, spaces and "
        "a leading article.", "after SQuAD's normalize_answer (Rajpurkar et al. 2016)",
        _line, normalized),
    Rule(
        OPEN_RULE,
        "The choice, and no other, is in the text after 'the answer is', in whole words.",
        "answer-string containment, as in open-domain question answering (Chen et al. 2017)",
        lambda text: Extracted(normalized(_after_lead_in(text)), _announced(text)), normalized,
        finds_within=True),
    Rule(
        "number",
        "The only number in the first line after 'the answer is' equals that of the choice.",
        "comparison by value as in GSM8K (Cobbe et al. 2021)",
        lambda text: _only_number(_announced(text)), lambda text: _only_number(text).answer),
    Rule(
        "last-number", "The last number after 'the answer is' equals that of the choice.",
        "flexible-extract of GSM8K in lm-evaluation-harness", _last_number,
        lambda text: _only_number(text).answer),
)}  # fmt: skip
"""The rules by name; ``rule_of`` makes those of ``regex:PATTERN``."""


def rule_of(name: str) -> Rule:
    """The rule of that name; one that does not exist raises.

    ``regex:PATTERN``: the first match counts, of it the group ``answer``, the first group or the
    whole, compared as under ``exact``.
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
    positions = _named(extracted, choices, rule) | _labelled(extracted, choices, labels)
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
    """The positions of the choices in an answer, but for those inside a longer one."""
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


def _labelled(extracted: Extracted, choices: Sequence[Choice], labels: Sequence[str]) -> set[int]:
    """The positions of the choices whose label the passage has, alone or with their text."""
    passage = extracted.passage
    if passage not in labels and any(passage in choice.texts for choice in choices):
        return set()  # the text of an option as written, though it may be a label in another case
    if not labels:
        return set()
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


def matched_word(text: str, words: Sequence[str]) -> str | None:
    """The word that a written text is, such as the label of a task; None for no or several."""
    position = match(text, [Choice(word) for word in words], RULES[DEFAULT_RULE]).position
    return None if position is None else words[position]
