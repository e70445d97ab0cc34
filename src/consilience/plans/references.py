"""Options that speak of others: *All of the above* stays last, *Both A and B* follows A and B."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from consilience.core.errors import ConsilienceError
from consilience.core.factors import LETTERS
from consilience.core.items import Choice, Question

_WORDS = tomllib.loads(Path(__file__).with_name("references.toml").read_text("utf-8"))


def _words(kind: str) -> str:
    """Those of a kind in all languages, as one regular expression."""
    found = []
    for of in _WORDS.values():
        what, true = (f"(?:{'|'.join(of.get(name, ''))})" for name in ("what", "true"))
        found += [
            text.replace("WHAT", what).replace("TRUE", f"{true}?") for text in of.get(kind, [])
        ]
    return "|".join(found)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"\s*(?:{text})\s*[.。]?\s*", re.IGNORECASE)


_LABEL = r"(?<![A-Za-z0-9])\(?(?:[A-Za-z]|\d{1,2})\)?(?![A-Za-z0-9])"
_LIST = rf"(?P<list>{_LABEL}(?:[,;] ?{_LABEL})*(?:(?:{_words('and')}){_LABEL})+)(?![-'\u2019])"
_BEFORE, _AFTER = f"{_words('both')}|{_words('before')}", _words("after")
ABOVE, THESE = _pattern(_words("above")), _pattern(_words("these"))
NAMES = (
    _pattern(rf"(?P<before>(?:(?:{_BEFORE}) )*){_LIST}(?P<after>(?: ?(?:{_AFTER}))*)"),
    _pattern(rf"(?P<before>(?:{_words('both')}) ){_LIST}(?P<after>(?:(?!\b(?-i:[B-Z])\b).)*)"),
)
"""What names options by letters or numbers: ``A and C only``, ``Neither A nor B is ...``."""

ALONE = _pattern(rf"(?:(?:{_BEFORE}|statement) )?(?P<label>{_LABEL})(?: ?(?:{_AFTER}))?")
"""What names one, which speaks of something in the question: ``A only``, ``A``."""


@dataclass(frozen=True, slots=True)
class References:
    """What the options of a question say of others."""

    pinned: tuple[int, ...] = ()  # The options that stay at their place, all in a fixed order
    named: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """An option that names others by their letters -> these."""
    speaking: frozenset[int] = frozenset()  # All that speak of others


@lru_cache(maxsize=4096)
def references_of(question: Question) -> References:
    """The options of a question that speak of others; its ``pin`` says which stay.

    The last options stay, from the first on that speaks of all others. If another one speaks of
    those above it, all stay. Letters name options where no other reading is at hand: the named
    options are others, they name none themselves, and neither they nor the question have the same
    letters as words, as in *vitamins A and D*.
    """
    texts = [option.text for option in question.options]
    size, pin = len(texts), question.pin.strip()
    if pin == "none":
        return References()
    above = {at for at, text in enumerate(texts) if ABOVE.fullmatch(text)}
    whole = above | {at for at, text in enumerate(texts) if THESE.fullmatch(text)}
    named = _named(texts, whole, question)
    first = size
    while first and first - 1 in {*whole, *named}:
        first -= 1
    kept = [*range(min((at for at in whole if at >= first), default=size), size)]
    if not above <= {*kept}:
        kept = [*range(size)]
    if pin:
        letters = LETTERS[size - 1 : size] if pin == "last" else pin
        if not letters or not {*letters} <= {*LETTERS[:size]}:
            found = f"the pin '{pin}' of a question with {size} options"
            expected, where = "last, none, or letters such as CD", question.where or question.item
            raise ConsilienceError(found, expected=expected, where=where)
        kept = sorted({*map(LETTERS.index, letters)})
    return References(tuple(kept), named, frozenset({*whole, *named}))


KINDS = {
    "last": ("keeps them last", "keep them last"),
    "named": ("names others by their labels", "name others by their labels"),
    "fixed": ("is not asked in other orders", "are not asked in other orders"),
}
"""What becomes of a question with options that speak of others, and of several."""


def by_kind(questions: Iterable[Question]) -> dict[str, list[Question]]:
    """The questions with options that speak of others by what becomes of them (``KINDS``)."""
    found: dict[str, list[Question]] = {}
    for one in questions:
        known = references_of(one)
        if known.speaking and known.pinned:
            is_fixed = len(known.pinned) == len(one.options)
            found.setdefault("fixed" if is_fixed else "last", []).append(one)
        if known.named:
            found.setdefault("named", []).append(one)
    return {kind: found[kind] for kind in KINDS if kind in found}


def _named(texts: Sequence[str], whole: Set[int], question: Question) -> dict[int, tuple[int, ...]]:
    """The options that each names by letters or numbers; none if one is no such name."""
    spans = {at: of for at, text in enumerate(texts) if (of := _spans(text))}
    others = {*range(len(texts))} - {*spans}
    asked = [text for of in question.paraphrases.values() for text in of]
    known = [question.context, *asked, *(texts[at] for at in others)]
    words = {*re.findall(r"\b[A-Za-z0-9]\b", "\n".join(known))}
    alone = {one["label"].strip("()") for at in others if (one := ALONE.fullmatch(texts[at]))}
    for at, of in spans.items():
        names, targets = {texts[at][start:end] for start, end, _ in of}, {to for *_, to in of}
        is_alike = any(
            one.isdecimal() == min(names).isdecimal() and _position(one) < len(texts)
            for one in alone
        )
        if names <= words or not targets <= others - whole or is_alike:
            return {}
    return {at: tuple(to for *_, to in of) for at, of in spans.items()}


def _position(name: str) -> int:
    return int(name) - 1 if name.isdecimal() else LETTERS.index(name.upper())


def _spans(text: str) -> list[tuple[int, int, int]]:
    """The letters or numbers that name options: begin and end, and the position of the option."""
    match = next((match for of in NAMES if (match := of.fullmatch(text))), None)
    if match is None:
        return []
    found = [of for of in re.finditer(_LABEL, match["list"]) if of[0] not in ("e", "o", "u", "y")]
    names = [of[0].strip("()") for of in found]
    is_bare = not match["before"] and not match["after"] and "(" not in match["list"]
    styles = (str.isupper,) if is_bare else (str.isupper, str.islower, str.isdecimal)
    if not any(all(map(is_style, names)) for is_style in styles):
        return []
    starts = [match.start("list") + of.start() + of[0].startswith("(") for of in found]
    spans = zip(starts, names, strict=True)
    return [(start, start + len(name), _position(name)) for start, name in spans]


def with_labels(
    options: Sequence[Choice], references: References, order: Sequence[int], labels: Sequence[str]
) -> tuple[Choice, ...]:
    """The options in the file's order, of which those that name others name them as they are shown.

    ``order``: the positions of the options as they are shown; ``labels``: with which labels.
    """
    label_at = dict(zip(order, labels, strict=True))

    def rewritten(text: str) -> str:
        spans = _spans(text)
        shown = sorted((to for *_, to in spans), key=list(order).index)
        for (start, end, _), to in reversed([*zip(spans, shown, strict=True)]):
            text = text[:start] + label_at[to] + text[end:]
        return text

    return tuple(
        Choice(rewritten(of.text), tuple(map(rewritten, of.aliases)))
        if at in references.named
        else of
        for at, of in enumerate(options)
    )
