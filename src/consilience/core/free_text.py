"""Replies become answers: what a model said, the label of its option, numbers, normalized texts."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from consilience.core.errors import ConsilienceError, unknown_name
from consilience.core.items import Choice
from consilience.core.text import fold_case, truncated, whole_words

_CHUNK = re.compile(r"(?<![^\s=])[^\s=]*\d[^\s=]*")
_AROUND = "()[]{}\\|*_`~#'\"$%°\u2018\u2019“”„«»…,;:!?/、。"
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
        value, decimals = match[2].replace(",", "").lstrip("0") or "0", (match[3] or "").rstrip("0")
        value += f".{decimals}" if decimals else ""
        numbers.append(f"-{value}" if match[1] == "-" and value != "0" else value)
    return numbers


_TABLES = tomllib.loads(Path(__file__).with_name("replies.toml").read_text("utf-8"))
_SAME = [(re.compile("|".join(rows)), instead) for instead, rows in _TABLES.pop("same").items()]
_ROWS: dict[str, list[str]] = {}
for _name, _rows in (rows for table in _TABLES.values() for rows in table.items()):
    _ROWS.setdefault(_name, []).extend(_rows)


@lru_cache(2**10)
def _form(name: str, **given: str) -> re.Pattern[str]:
    """A pattern of ``replies.toml``: its rows, with what is given and other rows in place."""

    def filled(place: re.Match[str]) -> str:
        rows = (re.sub(r"%(\w+)%", filled, row) for row in _ROWS.get(place[1], ()))
        return given.get(place[1]) or f"(?:{'|'.join(rows)})"

    return re.compile(re.sub("(.+)", filled, name), re.IGNORECASE | re.MULTILINE)


@lru_cache
def _signs() -> re.Pattern[str]:
    """What is no letter and no digit; what has a meaning where it stands is the group."""
    letters = [(chr(code), unicodedata.category(chr(code))) for code in range(0x21, 0xAC00)]
    return _form("signs", **{
        kind: "".join(re.escape(one) for one, of_one in letters if of_one.startswith(kind))
        for kind in ("M", "Sc", "Sm", "So")
    })  # fmt: skip


def normalized(text: str) -> str:
    """A text without what does not matter to an answer, by the steps of docs/free-text.md.

    Case, spaces, an article at the beginning and punctuation go, signs of another answer stay, as
    in ``C++``, ``x >= 3``, ``5!``, ``O-``. Where nothing is left, it is the symbols, or the text.
    """
    plain = text
    for pattern, instead in () if re.fullmatch(r"[A-Za-z0-9 .,]*", text) else _SAME:
        plain = pattern.sub(instead, plain)
    folded = unicodedata.normalize("NFKC", fold_case(unicodedata.normalize("NFKC", plain)))
    folded = " ".join(re.sub("[\u2212\u2013]", "-", folded).replace("\u2044", "/").split())
    for rest in (_form("article").sub("", folded), folded):
        plain = _form("power").sub("", _form("left_out").sub("", rest))  # km2, not x^2
        plain = _signs().sub(lambda found: found[1] or " ", plain)
        if plain := _form("spaced").sub(r"\1\2", " ".join(plain.split())):
            return plain
    symbols = (c if unicodedata.category(c)[0] == "S" else " " for c in folded)
    return " ".join("".join(symbols).split()) or folded or text.strip()


_plain = lru_cache(2**14)(normalized)  # Of the texts of choices


def said(text: str) -> str:
    """What a model answered: without its thoughts, and without what follows its reply.

    A thought is between two marks, from the first to the end, or up to the second alone. A reply
    ends before a token of a chat, and before a line that names a question or a person who asks.
    """
    reply, start, is_thought = "", 0, False
    for mark in _form("thoughts").finditer(text):
        if not is_thought:
            reply = "" if mark["end"] else f"{reply}{text[start : mark.start()]}\n"
        is_thought = not mark["end"] and (is_thought or not mark["whole"])
        start = mark.end()
    reply = reply if is_thought else reply + text[start:]
    if not reply.isascii():
        reply = _form("unseen").sub(lambda one: unicodedata.normalize("NFKC", one[1] or ""), reply)
    reply = _form("role").sub("", reply).strip()
    end = next((mark.start() for mark in _form("next").finditer(reply) if mark.start()), len(reply))
    return reply[:end].strip()


@lru_cache(8)
def _announced(reply: str) -> list[tuple[int, str]]:
    """Where each ``the answer is`` ends, and what follows it or is enclosed as an answer."""
    texts, end = [], len(reply)
    for one in reversed([*_form("lead_in").finditer(reply)]):
        text = one[one.lastindex] if one.lastindex else reply[one.end() : end]
        texts.append((one.end(), text.strip()))
        end = one.start()
    return [text for text in texts[::-1] if text[1]]


def _answer(reply: str) -> str:
    """What follows the last ``the answer is``; else the whole reply."""
    return (_announced(reply) or [(0, reply)])[-1][1]


def _line(text: str) -> str:
    """The first line that is more than a fence or a rule; without one the text."""
    lines = re.finditer(r"^.*[^\s`*_=~#>-].*$", text, re.MULTILINE)
    return next((line[0] for line in lines), text).strip()


Extracted = tuple[str, str, str]
"""A value in a reply, empty where the passage is compared; the passage; why there is no value."""


class Rule(NamedTuple):
    """How an answer is extracted from a reply and compared with choices (docs/free-text.md)."""

    name: str
    extract: Callable[[str], Extracted]  # Of what follows ``the answer is``, or of a reply
    key: Callable[[str], str] = _plain  # Makes of the text of a choice what is compared
    finds_within: bool = False  # Whether a choice may be a part of the answer, in whole words


class Match(NamedTuple):
    """What a reply answers."""

    position: int | None  # The position of the choice; None where the reply is none of them
    answer: str  # What was compared: the extracted and normalized text
    reason: str = ""  # Why the reply is no choice; empty where it is one


def _number(text: str) -> Extracted:
    """The only number of a text; empty without one, or with several different ones."""
    try:
        distinct = list(dict.fromkeys(numbers_in(text)))
    except ConsilienceError as error:
        return "", text, f"ambiguous number: {error.found}"
    reason = f"several numbers: {', '.join(distinct)}" if distinct else "no number"
    return (distinct[0], text, "") if len(distinct) == 1 else ("", text, reason)


_value = lru_cache(2**14)(lambda of: ("!" not in of and _number(of)[0]) or normalized(of))
DEFAULT_RULE = "exact"
OPEN_RULE = "contains"  # Of open questions where none is named: models answer them in sentences
DEFAULT_RULES = f"{OPEN_RULE} for open questions, else {DEFAULT_RULE}"
REGEX = "regex:"  # What a rule with a pattern of its own begins with
NO_CHOICE = "matches no choice"  # The reason where a reply is none of the choices
NOT_THE_GOLD = "not the gold"  # The reason where the only choice is the gold
SECONDS = 2.0  # Seconds that a pattern of a user may search an answer
RULES: Mapping[str, Rule] = {rule.name: rule for rule in (
    Rule(DEFAULT_RULE, lambda text: ("", _line(text), "")),
    Rule(OPEN_RULE, lambda text: ("", text, ""), finds_within=True),
    Rule("number", lambda text: _number(_line(text)), _value),
    Rule("last-number", lambda text: _number([text, *_CHUNK.findall(text)][-1]), _value),
)}  # fmt: skip


def rule_of(name: str, others: Iterable[str] = ()) -> Rule:
    """The rule of that name; one that does not exist raises, and names ``others``, too.

    Of ``regex:PATTERN`` the group ``answer``, the first or the whole is compared as by ``exact``.
    """
    if name in RULES:
        return RULES[name]
    if not name.startswith(REGEX):
        known = [*RULES, f"{REGEX}PATTERN", *sorted(others)]
        raise unknown_name(f"no rule '{name}' to match answers with", name, known)
    import regex  # as re, with a limit in time

    try:
        pattern = re.compile(name.removeprefix(REGEX), re.MULTILINE)
    except re.error as error:
        found = f"the pattern '{name.removeprefix(REGEX)}': {error}"
        raise ConsilienceError(found, expected="a regular expression of Python") from error
    within_time = regex.compile(pattern.pattern, pattern.flags & ~re.UNICODE)
    group: int | str = "answer" if "answer" in pattern.groupindex else min(1, pattern.groups)

    def extract(reply: str) -> Extracted:
        try:
            first_match = within_time.search(reply, timeout=SECONDS)
        except TimeoutError:
            found = f"the pattern '{pattern.pattern}' takes longer than {SECONDS:g} s for an answer"
            todo = "Repeat nothing that repeats itself: write a+ for (a+)+."
            raise ConsilienceError(f"{found} of {len(reply):,} characters", todo=todo) from None
        passage = first_match and first_match[group]
        return "", passage or "", "" if passage else "the pattern does not match"

    return Rule(name, extract)


def match(text: str, choices: Sequence[Choice], rule: Rule, labels: Sequence[str] = ()) -> Match:
    """The choice that a text which a model wrote is, by its label or by one of its texts.

    ``labels``: those that the choices were shown with, in their order; they come first. Otherwise
    the rule compares what the model ``said``. What is several choices is none of them.
    """
    if not (reply := said(text)):
        return Match(None, normalized(text), "no text")
    has_pattern = rule.name.startswith(REGEX)
    answer, passage, reason = rule.extract(reply if has_pattern else _answer(reply))
    answer, read = answer or (passage and normalized(passage)), passage if has_pattern else reply
    found = _labelled(tuple(labels), tuple(choices)).positions(read) if labels and read else set()
    if not (found := found or _as_written(passage, choices)):
        keys = [{rule.key(text) for text in one.texts} for one in choices]
        equal = {at for at, of_choice in enumerate(keys) if answer in of_choice}
        found = _within(answer, passage, choices) if rule.finds_within else equal
    names = " and ".join(f"'{choices[at].text}'" for at in sorted(found))
    reason = "" if len(found) == 1 else f"matches {names}" if found else reason or NO_CHOICE
    return Match(None if reason else found.pop(), answer or normalized(text), reason)


def _as_written(passage: str, choices: Sequence[Choice]) -> set[int]:
    """The position of the only choice with that text, but for quotes, markup and full stops."""
    texts = {passage, passage.rstrip(" .。"), passage.strip(" .*_`\"'“”。")}
    equal = {at for at, one in enumerate(choices) if texts & {*one.texts}}
    return equal if len(equal) == 1 else set()


def _within(answer: str, passage: str, choices: Sequence[Choice]) -> set[int]:
    """The positions of the choices in an answer, but for denied ones and those in a longer one."""
    spans = [
        (one.start(), -one.end(), at)
        for at, choice in enumerate(choices)
        for text in choice.texts
        if (key := _plain(text)) and key in answer and _is_meant(text, key, passage)
        for one in whole_words(key).finditer(answer)
        if not _is_in_other(answer, *one.span())
    ]
    positions: set[int] = set()
    longer = (0, 0)  # the span among those before that ends last, and of these begins first
    for start, end, at in sorted(spans):
        if end < longer[1] or (start, end) == longer:  # ends are negative
            longer = start, end
            before, after = answer[max(0, start - 80) : start], answer[1 - end :]
            if not (_form("denies").search(before) or _form("wrong").match(after)):
                positions.add(at)
    return positions


def _is_meant(text: str, key: str, passage: str) -> bool:
    """Whether a text that is short or a word of grammar, as ``US`` and ``He``, is meant there.

    It is alone in its clause or after ``is``; or as written, but not where a sentence begins if
    only its first letter is a capital, and not as ``I``.
    """
    if key not in _ROWS["grammar"] and (len(key) > 2 or not key.isalpha() or key == text):
        return True
    letters = r"\.?".join(map(re.escape, text.replace(".", "")))
    word, end = rf"(?<!\w){letters}(?!\w)", r"(?=[\s\"'*)\]}]*(?:[.,;:!?\n]|\Z))"
    alone = rf"(?i:(?:\A|[^\w\s'-]\s*|\n\s*|\b(?:is|be|was|say) )[\"'*(]*{word}{end})"
    within = rf"[\w,;] {word}" if key in _ROWS["grammar"] and text == text.capitalize() else word
    is_shown = text != text.lower() and text != "I" and re.search(within, passage)
    return bool(is_shown or re.search(alone, passage))


def _is_in_other(text: str, start: int, end: int) -> bool:
    """Whether it is a part of a name or number: C in C++, 2 in √2, 5 in .5, not 7 in 20.7.1969."""
    before = re.findall(r"(?:(?<!\w)-)?[\d./]*\Z", text[max(0, start - 40) : start])[0]
    before = before if text[start].isdigit() or before == "-" else ""
    after = re.findall(r"\A[\d./]*", text[end : end + 40])[0] if text[end - 1].isdigit() else ""
    exclaims = text[end - 1].isdigit() and re.search(r"[^\W\d_]{2} \Z", text[:start][-3:])
    is_part = re.match("[-+#^√☀-⛿]" if exclaims else "[-+#^√☀-⛿!]", text[end:])
    is_part = is_part or re.match("[√¬~<>^≤≥≠±]", text[:start][-1:])
    return bool(is_part) or "-" in before or len(re.findall(r"[./]", before + after)) == 1


class _Labelled:
    """Options as they are read by the labels that they were shown with."""

    def __init__(self, labels: tuple[str, ...], choices: tuple[Choice, ...]) -> None:
        self.labels, self.choices = labels, choices
        self.keys = [{_plain(text) for text in one.texts} for one in choices]
        given = dict(zip(("first", "second"), map(re.escape, (*labels, "(?!)")), strict=False))
        given["known"] = "|".join(sorted(map(re.escape, labels), key=len, reverse=True))
        names = "begun", "ended", "label", "rest", "listed"
        self.forms = {name: _form(name, **given) for name in names}

    def positions(self, reply: str) -> set[int]:
        """The positions of the options that a reply says by their labels, several if it differs.

        First counts what is announced, or a label alone in the first line; then a label alone in
        another, or chosen (``so it is B``); then one with its text in a line; then what lines begin
        with. Of labels that differ the last one counts if a word such as ``so`` precedes it.
        """
        other = self.forms["listed"].search(reply)
        if other and not any(_within(normalized(one), one, self.choices) for one in other.groups()):
            head = reply[: other.start()].rstrip()
            reply = head.rpartition("\n\n")[0] or re.sub(r"\n.*\?\Z", "", head) or reply
        lines = [(one.start(), *self.claim(one[0])) for one in re.finditer(r".*\S.*", reply)]
        rank_of = {3: 3 if lines[0][1] == 3 else 2, 2: 1, 1: 1, 0: 0 if lines[0][2] else -1}
        claims = [(rank_of[rank], at, found) for at, rank, found in lines]
        claims += [(3, at, self.claim(_line(text), True)[1]) for at, text in _announced(reply)]
        for one in self.forms["label"].finditer(reply):
            before = reply[max(0, one.start() - 60) : one.start()]
            if one["right"] or _form("chosen").search(before):
                claims.append((2, one.start(), self.claim(one["line"])[1]))
        best = max((rank for rank, _, found in claims if found), default=-1)
        made = sorted((at, found) for rank, at, found in claims if found and rank == best >= 0)
        differing = [at for at, found in made if found != made[-1][1]]
        concludes = _form("concludes").search if best > 1 else lambda *_: None
        if made and (not differing or concludes(reply, differing[-1], made[-1][0])):
            return made[-1][1]
        return set().union(*(found for _, found in made))

    def claim(self, line: str, is_announced: bool = False) -> tuple[int, set[int]]:
        """The positions of the options that a line is, none where that is denied, and their rank.

        3: a label alone, or called right; 2: a text as written; 1: a label with its text, or in
        another case; 0: a label and more.
        """
        key = normalized(line) if is_announced else ""
        equal = {at for at, keys in enumerate(self.keys) if key in keys}
        claims = [self._begun(line), (2, _as_written(line.strip(), self.choices)), (1, equal)]
        if ended := self.forms["ended"].fullmatch(line):  # Paris (B)
            claims.append(self._begun(f"{ended[2]}. {ended[1]}"))
        best = max((rank for rank, found in claims if found), default=0)
        return best, set().union(*(found for rank, found in claims if rank == best))

    def _begun(self, line: str) -> tuple[int, set[int]]:
        if (begun := self.forms["begun"].match(line)) is None:
            return 0, set()
        at, gap, rest = self._at(begun["label"]), begun["gap"].strip(), begun["rest"]
        written = _as_written(line[begun.end("label") :].lstrip(" .:)"), self.choices)
        key, more = normalized(rest) if rest else "", self.forms["rest"].match(rest)
        kind = more.lastgroup if more else None
        equal = written or {other for other, keys in enumerate(self.keys) if key in keys}
        begins = [text for text in self.keys[at] if whole_words(text).match(key)]
        rank, found = 0, {at}
        if kind == "right" or not (rest or written):
            rank = 3 if begun["label"] in self.labels else 1
        elif kind == "asked" and not any("?" in text for text in self.choices[at].texts):
            found = set()
        elif equal:
            rank, found = 1, found if at in equal else found | equal if gap else set()
        elif begins:
            is_wrong = _form("wrong").match(key[len(max(begins, key=len)) :].strip())
            found = set() if is_wrong else found
        elif more and kind in ("and", "next", "other"):
            found = {at, self._at(more[kind])}
        elif kind in ("wrong", "verb") or not (gap or kind == "because"):
            found = set()
        elif at not in (named := _within(normalized(line), line, self.choices)):
            own = {*" ".join(self.keys[at]).split()}.difference(_ROWS["grammar"])
            is_foreign = kind != "because" and gap[:1] in (*".):",) and own.isdisjoint(key.split())
            is_foreign &= begun["label"].isdigit() or len(key.split()) < 4  # 1. Step; B. Rome
            found = {at} | named if named or not is_foreign else set()
        return rank, found

    def _at(self, label: str) -> int:
        """The position of a label, whatever its case."""
        same = (re.fullmatch(re.escape(one), label, re.IGNORECASE) for one in self.labels)
        return min((self.labels[at] != label, at) for at, one in enumerate(same) if one)[1]


_labelled = lru_cache(2**10)(_Labelled)
