"""From what a model wrote to an answer: rules that extract it, and how it is matched to choices.

A rule is a pure function from a written text to what is compared. ``match`` compares it with the
choices (``questions.Choice``) and their aliases, and with the labels that they were shown with.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from consilience.dates_in_text import dates_in
from consilience.errors import ConsilienceError, unknown_name
from consilience.numbers_in_text import numbers_in, shown
from consilience.questions import Choice
from consilience.text import fold_case, is_denied, whole_words

DEFAULT_RULE = "normalized"
"""The rule where none is named, but for open questions."""

OPEN_RULE = "contains"
"""The rule of open questions where none is named: models answer them in sentences."""

DEFAULT_RULES = f"{OPEN_RULE} for open questions, else {DEFAULT_RULE}"
"""Both in words, as helps and settings of runs have them."""

REGEX = "regex:"
"""What a rule with a pattern of its own begins with."""

NO_TEXT = "no text"
"""The reason where a model wrote nothing but spaces."""

NO_CHOICE = "matches no choice"
"""The reason where a text is none of the choices."""

_LEAD_IN = re.compile(
    r"(?:\b(?:the|my) (?:(?:correct|right|best|final) )*(?:answer|option|choice|label)"
    r"(?: (?:that|which|to|for|of) [^.:\n]{1,80}?)? (?:is|would be)\b"
    r"|\b(?:answer|label):|</think>)[:\s*]*",
    re.IGNORECASE,
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
_ARTICLE = re.compile(r"^[\W_]*(?:a|an|the) ")
_VOWEL_POINTS = "\u0591-\u05bd\u05bf\u05c1\u05c2\u0640\u064b-\u0652\u0670"
"""Points that most texts leave out, and the stroke that stretches an Arabic word."""

_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_KEPT = frozenset("+#%&@\N{DEGREE SIGN}")


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a rule makes of a written text."""

    answer: str
    """What is compared with the choices; empty where the rule found nothing that can be one."""
    passage: str
    """The part of the text that the answer is taken from, as it was written."""
    reason: str = ""
    """Why the answer is not of the kind that the rule reads; empty where it is."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How an answer is extracted from a written text and compared with choices."""

    name: str
    """Names the rule: the value of an option."""
    meaning: str
    """When a text is a choice, in one sentence."""
    source: str
    """Where the rule comes from."""
    extract: Callable[[str], Extracted]
    """Makes of a written text what is compared."""
    key: Callable[[str], str]
    """Makes of the text of a choice what is compared."""
    parses_labels: bool = True
    """Whether the label of an option may be part of the text; otherwise it is the whole text."""
    finds_within: bool = False
    """Whether a choice may be a part of the answer, in whole words."""


@dataclass(frozen=True, slots=True)
class Match:
    """What a written text answers."""

    position: int | None
    """The position of the choice; None where the text is none of them."""
    answer: str
    """What was compared: the extracted and normalized text."""
    reason: str = ""
    """Why the text is no choice; empty where it is one."""


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
       currencies, ``+ # % & @``, the degree sign, a point between digits, and a minus before a
       digit where neither letter nor digit precedes it.
    4. Spaces are collapsed. An article (a, an, the) at the beginning is removed if a space and a
       word follow it: in ``A. Paris`` A is a label.

    Where nothing is left, the text is that of step 1.
    """
    plain = unicodedata.normalize("NFKC", without_latex(text))
    folded = unicodedata.normalize("NFKC", fold_case(plain))
    folded = " ".join(folded.replace("\N{MINUS SIGN}", "-").split())
    return _letters(_ARTICLE.sub("", folded)) or _letters(folded) or folded


def _letters(text: str) -> str:
    """The characters that matter to an answer, with one space for others."""
    plain = _GROUPED.sub("", text)
    plain = re.sub(rf"['\u2019\u02bc`{_VOWEL_POINTS}]|(?<=[^\W\d_])\.", "", plain)
    letters = [letter if _matters(plain, at) else " " for at, letter in enumerate(plain)]
    return " ".join("".join(letters).split())


def _matters(text: str, at: int) -> bool:
    """Whether the character at a position matters to an answer."""
    letter, before, after = text[at], text[max(0, at - 1) : at], text[at + 1 : at + 2]
    if letter == ".":
        return before.isdigit() and after.isdigit()
    if letter == "-":
        return after.isdigit() and not before.isalnum()
    category = unicodedata.category(letter)
    return category[0] in "LMN" or category == "Sc" or letter in _KEPT


def _after_lead_in(text: str) -> str:
    r"""What ``\boxed`` has or follows the last ``the answer is``; else the whole text."""
    text = without_latex(text)
    boxed = dict.fromkeys(_BOXED.findall(text))
    text = next(iter(boxed)) if len(boxed) == 1 else _BOXED.sub(r"\1", text)
    ends = [match.end() for match in _LEAD_IN.finditer(text)]
    return (text[ends[-1] :].strip() if ends else "") or text.strip()


def _announced(text: str) -> str:
    """The first line of what follows the last ``the answer is``."""
    return _after_lead_in(text).split("\n")[0].strip()


RULES: dict[str, Rule] = {}
"""The rules by name; ``rule_of`` makes those of ``regex:PATTERN``."""


def rule(
    name: str,
    meaning: str,
    source: str,
    *,
    key: Callable[[str], str] = normalized,
    parses_labels: bool = True,
    finds_within: bool = False,
) -> Callable[[Callable[[str], Extracted]], Callable[[str], Extracted]]:
    """Add a rule to the table; a duplicate name is refused."""

    def add(extract: Callable[[str], Extracted]) -> Callable[[str], Extracted]:
        if name in RULES:
            raise ValueError(f"the rule '{name}' more than once")
        RULES[name] = Rule(name, meaning, source, extract, key, parses_labels, finds_within)
        return extract

    return add


@rule(
    "exact",
    "The text is the choice or its label; surrounding spaces do not count.",
    "equality",
    key=str.strip,
    parses_labels=False,
)
def _exact(text: str) -> Extracted:
    return Extracted(text.strip(), text.strip())


@rule(
    DEFAULT_RULE,
    "The first line after 'the answer is' is the choice, but for case, punctuation, spaces and a "
    "leading article.",
    "after SQuAD's normalize_answer (Rajpurkar et al. 2016)",
)
def _normalized(text: str) -> Extracted:
    line = _announced(text)
    return Extracted(normalized(line), line)


@rule(
    "contains",
    "The choice, and no other, is in the text after 'the answer is', in whole words.",
    "answer-string containment, as in open-domain question answering (Chen et al. 2017)",
    finds_within=True,
)
def _contains(text: str) -> Extracted:
    rest = _after_lead_in(text)
    return Extracted(normalized(rest), rest.split("\n")[0].strip())


def _first(text: str) -> str:
    """The first word of the normalized text."""
    return normalized(text).partition(" ")[0]


@rule(
    "first-word",
    "The first word after 'the answer is' is the first word of the choice.",
    "ours, for answers such as yes and no",
    key=_first,
)
def _first_word(text: str) -> Extracted:
    line = _announced(text)
    return Extracted(_first(line), line)


def _numbers(text: str) -> list[str]:
    return [shown(value) for value in numbers_in(text)]


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


@rule(
    "number",
    "The only number in the first line after 'the answer is' equals that of the choice.",
    "numbers_in_text.numbers_in; comparison by value as in GSM8K (Cobbe et al. 2021)",
    key=lambda text: _only(_numbers, "number", text).answer,
)
def _number(text: str) -> Extracted:
    return _only(_numbers, "number", _announced(text))


@rule(
    "date",
    "The only date in the first line after 'the answer is' equals that of the choice, to the same "
    "precision.",
    "dates_in_text.dates_in; ISO 8601",
    key=lambda text: _only(dates_in, "date", text).answer,
)
def _date(text: str) -> Extracted:
    return _only(dates_in, "date", _announced(text))


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


SECONDS = 2.0
"""Seconds that a pattern of a user may search an answer."""


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
        return Match(None, "", NO_TEXT)
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
    keys = [{rule.key(text) for text in choice.texts} for choice in choices]
    if not extracted.answer:  # no value: equal to choices without a value
        answer = normalized(extracted.passage)
        keys = [
            {normalized(text) for text in choice.texts if not rule.key(text)} for choice in choices
        ]
        return {at for at, of_choice in enumerate(keys) if answer in of_choice}
    if rule.finds_within:
        return _within(extracted.answer, keys)
    return {at for at, of_choice in enumerate(keys) if extracted.answer in of_choice}


def _within(answer: str, keys: Sequence[set[str]]) -> set[int]:
    """The positions of the choices in an answer, but for those denied or inside a longer one."""
    spans = [
        (match.start(), -match.end(), at)
        for at, of_choice in enumerate(keys)
        for key in of_choice
        for match in whole_words(key).finditer(answer)
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
    position = {label.casefold(): at for at, label in enumerate(labels)}
    known = "|".join(sorted(map(re.escape, labels), key=len, reverse=True))
    texts = [{normalized(text) for text in choice.texts} for choice in choices]
    if last := re.fullmatch(rf"(.+)[(\[]({known})[)\]]\W*", plain, re.IGNORECASE):
        at = position[last[2].casefold()]
        return {at} if normalized(last[1]) in texts[at] else set()
    first = re.fullmatch(
        rf"(?:(?:the )?(?:option|choice|letter|number) )?[(\[]?({known})(?!\w|[.,]\d)"
        r"([)\].:,\s\u3001\u3002-]*)(.*)",
        plain,
        re.IGNORECASE,
    )
    if first is None:
        return set()
    at, rest = position[first[1].casefold()], normalized(first[3]) if first[3] else ""
    if _IS_RIGHT.fullmatch(rest) or any(whole_words(text).match(rest) for text in texts[at]):
        return {at}
    others = {other for other, of_choice in enumerate(texts) if rest in of_choice}
    return {at} | others if others and first[2].strip() else set()


def matched_word(text: str, words: Sequence[str]) -> str | None:
    """The word that a written text is, such as the label of a task; None for no or several."""
    position = match(text, [Choice(word) for word in words], RULES[DEFAULT_RULE]).position
    return None if position is None else words[position]
