"""Finds the sentences of a corpus that hold the subject and the object of a fact.

Names are found as written, as whole words, all at once in a trie of words. The longest name that
begins at a word counts, and no name within it: in ``New York City`` neither ``York`` nor ``New
York`` is found. Subject and object therefore never overlap. A fact whose object is also part of
its subject needs another mention of the object in the sentence. A fact whose subject is its object
is left out, since no sentence tells the two apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consilience.text import MARKS, WITHOUT_SPACES

WORD = re.compile(rf"[{WITHOUT_SPACES}]|(?:[^\W{WITHOUT_SPACES}]|[{MARKS}])+|[^\w\s]")
"""A character of a script without spaces, a word, or a punctuation mark."""

Span = tuple[int, int]
"""Start and end of a name in a sentence, in characters."""

Facts = Mapping[str, Sequence[tuple[str, str]]]
"""Relation -> its facts (subject, object)."""


@dataclass(frozen=True, slots=True)
class NamedPair:
    """A subject and an object in a sentence."""

    subject: Span
    """Where the subject is."""
    object: Span
    """Where the object is."""
    facts: tuple[int, ...]
    """The facts of the index that hold between them, one for each relation."""


@dataclass(frozen=True, slots=True)
class FactSentence:
    """A sentence that holds at least one fact's subject and object."""

    text: int
    """The number of its text in the corpus."""
    sentence: str
    pairs: tuple[NamedPair, ...]
    """The subjects and objects in it."""


@dataclass(slots=True)
class NameTrie:
    """Names, searched all at once."""

    root: dict[str, Any] = field(default_factory=dict)
    """The next word -> node; the empty word -> the name that ends here."""

    @classmethod
    def of(cls, names: Iterable[str]) -> NameTrie:
        trie = cls()
        for name in names:
            node = trie.root
            for word in WORD.findall(name):
                node = node.setdefault(word, {})
            node[""] = name
        trie.root.pop("", None)  # a name of spaces
        return trie

    def find(self, text: str) -> Iterator[tuple[str, Span]]:
        """The names in a text from left to right, the longest at each place, none overlapping."""
        words = list(WORD.finditer(text))
        at = 0
        while at < len(words):
            name, after = self._longest(text, words, at)
            if after:
                yield name, (words[at].start(), words[after - 1].end())
            at = after or at + 1

    def _longest(self, text: str, words: list[re.Match[str]], at: int) -> tuple[str, int]:
        """The longest name from the word ``at``, and the word after it; 0 without a name."""
        name, after, node = "", 0, self.root
        for next_ in range(at, len(words)):
            if words[next_][0] not in node:
                break
            node = node[words[next_][0]]
            if "" in node and not _is_mark(text[words[next_].end() :][:1]):
                name, after = node[""], next_ + 1
        return name, after


def _is_mark(character: str) -> bool:
    """Whether a character belongs to the letter before it (Unicode's categories M)."""
    return character != "" and unicodedata.category(character)[0] == "M"


@dataclass(slots=True)
class FactIndex:
    """The facts of relations, for the search in sentences. Duplicate facts count once."""

    relations: tuple[str, ...]
    relation_of: list[int]
    """The relation of each fact, by its position."""
    facts_of: Mapping[tuple[str, str], tuple[int, ...]]
    """(subject, object) -> its facts."""
    objects_of: Mapping[str, frozenset[str]]
    """Subject -> its objects in all relations."""
    trie: NameTrie
    """All names."""
    without_search: int
    """Facts whose subject is their object."""

    @classmethod
    def of(cls, facts: Facts) -> FactIndex:
        relation_of: list[int] = []
        facts_of: dict[tuple[str, str], tuple[int, ...]] = {}
        objects_of: dict[str, set[str]] = {}
        without_search = 0
        for at, pairs in enumerate(facts.values()):
            for pair in dict.fromkeys(pairs):
                if pair[0] == pair[1]:
                    without_search += 1
                    continue
                facts_of[pair] = (*facts_of.get(pair, ()), len(relation_of))
                objects_of.setdefault(pair[0], set()).add(pair[1])
                relation_of.append(at)
        names = dict.fromkeys(name for pair in facts_of for name in pair)
        fixed = {subject: frozenset(objects) for subject, objects in objects_of.items()}
        return cls(tuple(facts), relation_of, facts_of, fixed, NameTrie.of(names), without_search)

    def shared_with(self, relation: int) -> frozenset[int]:
        """The facts of other relations whose subject and object are a fact of ``relation``, too."""
        return frozenset(
            fact
            for facts in self.facts_of.values()
            if any(self.relation_of[fact] == relation for fact in facts)
            for fact in facts
            if self.relation_of[fact] != relation
        )

    def pairs_in(self, sentence: str) -> tuple[NamedPair, ...]:
        """The facts in a sentence; of repeated names, the closest subject and object."""
        places: dict[str, list[Span]] = {}
        for name, span in self.trie.find(sentence):
            places.setdefault(name, []).append(span)
        return tuple(
            NamedPair(*_closest(places[subject], places[object_]), self.facts_of[subject, object_])
            for subject in places
            for object_ in sorted(self.objects_of.get(subject, frozenset()) & places.keys())
        )

    def search(self, texts: Iterable[Iterable[str]]) -> Iterator[FactSentence]:
        """The sentences with facts; ``texts`` are sequences of sentences."""
        for number, of_text in enumerate(texts):
            for sentence in of_text:
                if pairs := self.pairs_in(sentence):
                    yield FactSentence(number, sentence, pairs)


def _closest(subjects: Sequence[Span], objects: Sequence[Span]) -> tuple[Span, Span]:
    """The subject and the object with the fewest characters between them, the first of ties."""
    pairs = ((subject, object_) for subject in subjects for object_ in objects)
    return min(pairs, key=lambda pair: max(pair[1][0] - pair[0][1], pair[0][0] - pair[1][1]))
