"""Words for numbers and durations, shortened texts, and characters with a meaning."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TypeVar

T = TypeVar("T")
PASSAGE_END = "\n\n"  # Between the passages of a context
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"

CONTROLS = re.compile(f"[{_CONTROLS}]")
"""What controls a terminal or the direction of text instead of being text: C0 and C1 controls but
for tab and line feed, DEL, line and paragraph separators, the bidirectional embeddings, overrides
and isolates, and lone surrogates. The directional marks (U+200E, U+200F, U+061C), which Arabic and
Hebrew texts hold, are none of these."""

LINE_CONTROLS = re.compile(f"[\t\n{_CONTROLS}]")
"""What no text on one line may hold: ``CONTROLS``, tab and line feed."""


def visible(text: str) -> str:
    """The text with U+FFFD instead of each of ``CONTROLS``; tabs and line feeds stay."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: ``1 query``, ``2 queries``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], longest: int = 6) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - longest} more" if len(names) > longest else ""
    return ", ".join(names[:longest]) + more


def rejoined(parts: Sequence[str], known: Iterable[str]) -> list[str]:
    """The names of a list that was split at commas, where a known name may have commas itself."""
    whole = {tuple(map(str.strip, name.split(","))): name for name in known if "," in name}
    names, at = [], 0
    while at < len(parts):
        key = next((one for one in whole if one == tuple(parts[at : at + len(one)])), ())
        names.append(whole[key] if key else parts[at])
        at += len(key) or 1
    return names


def duration(seconds: float) -> str:
    """A duration in its largest unit: ``45 s``, ``3 min``, ``2.5 h``, ``2 days``."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{max(1, round(seconds))} s"


def truncated(text: str, longest: int) -> str:
    """The text; one of more than ``longest`` characters without its end."""
    return text if len(text) <= longest else f"{text[:longest]}..."


WITHOUT_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words, as a range of a regular expression: Thai, Lao, Burmese,
Khmer, Japanese and Chinese."""


@cache
def marks() -> str:
    """The marks that belong to a letter, as a range of a regular expression of Python.

    Such as accents, the vowel signs of scripts of India, and vowel points of Arabic and Hebrew.
    Without those of ``WITHOUT_SPACES``.
    """
    without_spaces = re.compile(f"[{WITHOUT_SPACES}]")
    return "".join(
        chr(code)
        for code in range(0x300, 0xAC00)
        if unicodedata.category(chr(code))[0] == "M" and not without_spaces.match(chr(code))
    )


NEGATIONS = r"\b(?:no|not|never|cannot|(?:do|does|did|is|was|are|were|ca|wo)n['\u2019]?t)\b"
"""English words that turn an answer into its opposite, as a regular expression."""


def fold_case(text: str) -> str:
    """A text without case: ``Straße`` becomes ``strasse``, Turkish ``İzmir`` becomes ``izmir``."""
    return text.casefold().replace("i\u0307", "i")


def whole_words(text: str) -> re.Pattern[str]:
    """A text in whole words; in scripts without spaces between words, anywhere."""
    # Korean particles follow a name without a space, so Hangul has no other word next to it.
    word = rf"(?:[^\W{WITHOUT_SPACES}\uac00-\ud7af]|[{marks()}])"
    before = rf"(?<!{word})" if re.match(word, text) else ""
    after = rf"(?!{word})" if re.search(rf"{word}$", text) else ""
    return re.compile(before + re.escape(text) + after)


_NO_FILE = re.compile(r"\..*|.*[/\\\x00-\x1f\ud800-\udfff].*", re.DOTALL)
"""Names that lead out of a folder, or are hidden."""


def names_a_file(id_: str) -> bool:
    """Whether a file of this name, with any suffix, stays in its folder.

    False for an empty id, one of ``_NO_FILE`` and one of more than 100 bytes of UTF-8.
    """
    return not _NO_FILE.fullmatch(id_) and 0 < len(id_.encode()) <= 100


ENDINGS = frozenset(
    ".!?\u2026\u203c\u203d\u2047\u2048\u2049"  # Latin, Greek, Cyrillic, Hebrew: also ... !! ?!
    "\u3002\uff0e\uff61\uff01\uff1f"  # Chinese, Japanese, Korean; full and half width
    "\u061f\u06d4"  # Arabic, Persian, Urdu
    "\u0964\u0965"  # the danda of Hindi, Bengali and other scripts of India
    "\u0589\u1362\u1367\u1368\u104b\u17d4"  # Armenian, Ethiopic, Burmese, Khmer
)
"""Characters that end a sentence: of Unicode's property Sentence_Terminal those in use, and the
ellipsis."""


def closes_sentence(character: str) -> bool:
    """Whether a character after the last word of a sentence says nothing more."""
    is_closer = unicodedata.category(character) in ("Zs", "Cf", "Pe", "Pf", "Pi")
    return is_closer or character in ENDINGS or character in "\"'"


def spread(values: Sequence[int]) -> str:
    """The least and the greatest of numbers: ``9`` or ``2 to 20``."""
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def evenly(values: Sequence[T], size: int = 8) -> list[T]:
    """At most ``size`` values of a sequence, evenly spaced."""
    step = max(1.0, len(values) / size)
    return [values[int(at * step)] for at in range(min(size, len(values)))]
