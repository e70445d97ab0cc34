"""Query by example: the sentences of a corpus that say ``X is the capital of Y``.

The idea is that of SPIKE (Shlain et al. 2020), with which ParaRel's authors searched for patterns.
The rule is that of mining: two names of a sentence match if the sentence would give the example as
a pattern. They also match if the example is in the sentence as written, however it is parsed.
Articles and case never count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from typing import TYPE_CHECKING

from consilience.authoring.mining import BATCH
from consilience.authoring.mining_patterns import NoPatternError, check_name, path_patterns
from consilience.authoring.mining_search import WORD, FactIndex, Span
from consilience.cloze import ENGLISH, Pattern
from consilience.errors import ConsilienceError
from consilience.watch import Advance

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token

ARTICLE = re.compile(r"\b(?:an?|the)\s+", re.IGNORECASE)

COPULA = frozenset(["is"])
"""What mining adds to an apposition, so a sentence need not have it."""


@dataclass(frozen=True, slots=True)
class ExampleMatch:
    """A pair of names of a sentence that matches the example."""

    subject: str
    """The words in place of ``X``."""
    object: str
    """The words in place of ``Y``."""
    sentence: str


def example_pattern(text: str, language: str = ENGLISH) -> Pattern:
    """The example as a pattern; ``X`` and ``Y`` alone are slots, too."""
    for slot in "XY":
        if f"[{slot}]" not in text:
            text = re.sub(rf"(?<![\w\[]){slot}(?![\w\]])", f"[{slot}]", text, count=1)
    sentence = text if text.rstrip().endswith(".") else f"{text.rstrip()}."
    return Pattern.parse(sentence, language=language)


@dataclass(frozen=True, slots=True)
class ExampleQuery:
    """An example, ready to be searched for."""

    text: str
    """The example without articles and case."""
    swapped: str
    """The same with its slots swapped."""
    words: frozenset[str]
    """The words that a sentence must have, in lower case; others are not parsed."""
    index: FactIndex
    """Facts whose names are names, however they are parsed."""

    @classmethod
    def of(cls, pattern: Pattern, index: FactIndex) -> ExampleQuery:
        """The query of an example; raises where it has no word to search for."""
        parts = ARTICLE.sub("", " ".join(pattern.parts)).lower()
        words = frozenset(word for word in WORD.findall(parts) if word[0].isalnum())
        if not words:
            raise ConsilienceError(
                f"the example '{pattern.text}' has no word but articles and its slots",
                expected="an example such as '[X], the capital of [Y]'",
                todo="Add the words to search for.",
            )
        text = _plain(pattern.text)
        return cls(text, _swapped(text), words - COPULA or words, index)

    def search(
        self, texts: Iterable[Iterable[str]], parser: Language, advance: Advance
    ) -> Iterator[ExampleMatch]:
        """The matches in ``texts``, each a sequence of sentences."""
        sentences = (sentence for of_text in texts for sentence in of_text)
        waiting = (text for text in sentences if self.words <= set(WORD.findall(text.lower())))
        while batch := list(islice(waiting, BATCH)):
            with parser.memory_zone():
                matches: list[ExampleMatch] = []
                for doc in parser.pipe(batch, batch_size=64):
                    matches += self.matches(doc)
                    advance(1)
            yield from matches

    def matches(self, doc: Doc) -> Iterator[ExampleMatch]:
        """The pairs of names in a parsed sentence that match."""
        for first, second in combinations(_names(doc, self.index), 2):
            if first[1] > second[0]:
                continue
            patterns = _patterns(doc, first, second)
            names = doc.text[slice(*first)], doc.text[slice(*second)]
            if self.text in patterns or _has(patterns[0], self.text):
                yield ExampleMatch(*names, doc.text)
            elif self.swapped in patterns or _has(patterns[0], self.swapped):
                yield ExampleMatch(*names[::-1], doc.text)


def _plain(text: str) -> str:
    """A text as it is compared: without articles, case, repeated spaces and its last full stop."""
    return " ".join(ARTICLE.sub("", text).lower().split()).removesuffix(".").rstrip()


def _swapped(text: str) -> str:
    return text.replace("[x]", "[]").replace("[y]", "[x]").replace("[]", "[y]")


def _has(sentence: str, example: str) -> bool:
    """Whether a sentence has the words of an example as written."""
    return re.search(rf"(?<!\w){re.escape(example)}(?!\w)", sentence) is not None


def _patterns(doc: Doc, first: Span, second: Span) -> list[str]:
    """The sentence with slots in place of two names, and the patterns that mining makes of it."""
    text = doc.text
    slotted = f"{text[: first[0]]}[X]{text[first[1] : second[0]]}[Y]{text[second[1] :]}"
    try:
        return [_plain(pattern) for pattern in (slotted, *path_patterns(doc, first, second))]
    except NoPatternError:
        return [_plain(slotted)]


def _names(doc: Doc, index: FactIndex) -> list[Span]:
    """The names and nouns that may be in a slot, from left to right; of nested ones the known."""
    spans: dict[int, Span] = {}
    known = [span for _, span in index.trie.find(doc.text)]
    for span in (*known, *_capitalised(doc), *_nouns(doc)):
        tokens = doc.char_span(*span)
        try:
            if tokens is not None:
                check_name(tokens)
                spans.setdefault(tokens.root.i, span)
        except NoPatternError:
            continue
    return sorted(spans.values())


def _capitalised(doc: Doc) -> Iterator[Span]:
    """Adjacent words that are written or parsed as names."""
    words: list[Token] = []
    for token in doc:
        if token.pos_ == "PROPN" or (token.text[:1].isupper() and token.pos_ in ("NOUN", "ADJ")):
            words.append(token)
            continue
        if words:
            yield words[0].idx, words[-1].idx + len(words[-1])
        words = []
    if words:
        yield words[0].idx, words[-1].idx + len(words[-1])


def _nouns(doc: Doc) -> Iterator[Span]:
    """Common nouns, each with its compounds on the left."""
    for token in doc:
        if token.pos_ == "NOUN" and token.dep_ != "compound":
            start = token.i
            while start and doc[start - 1].dep_ == "compound" and doc[start - 1].head == token:
                start -= 1
            yield doc[start].idx, token.idx + len(token)
