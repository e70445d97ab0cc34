"""Query by example: the sentences of a corpus that are built like ``X, the capital of Y``.

The example is parsed. Its words, but for determiners and punctuation, and the arcs between them
are a query for spaCy's DependencyMatcher: a sentence matches with other words in between. The idea
is that of SPIKE (Shlain et al. 2020), with which ParaRel's authors searched for patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from consilience.analysis.syntax import SILENT, Parsed, parse_pattern
from consilience.authoring.mining import BATCH
from consilience.authoring.mining_search import WORD
from consilience.cloze import ENGLISH, Pattern
from consilience.errors import ConsilienceError
from consilience.watch import Advance

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token

NAME_PARTS = frozenset({"compound", "flat", "flat:name"})


@dataclass(frozen=True, slots=True)
class ExampleMatch:
    """A sentence that is built like the example."""

    subject: str
    """The words in place of ``X``."""
    object: str
    """The words in place of ``Y``."""
    sentence: str
    """The sentence."""


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

    nodes: list[dict[str, Any]]
    """The query as spaCy's DependencyMatcher has it."""
    words: frozenset[str]
    """The words that a sentence must have, in lower case; others are not parsed."""
    subject: int
    """The node of the subject."""
    object: int
    """The node of the object."""

    @classmethod
    def of(cls, pattern: Pattern, parser: Language) -> ExampleQuery:
        """The query of an example; raises where it has no word to search for."""
        example = parse_pattern(pattern, parser)
        slots = (example.subject, example.object)
        chosen = [at for at in range(len(example.words)) if at in slots or _counts(example, at)]
        words = {example.words[at].text.lower() for at in chosen if at not in slots}
        if not words:
            raise ConsilienceError(
                f"the example '{pattern.text}' has no word but determiners and its slots",
                expected="an example such as '[X], the capital of [Y]'",
                todo="Add the words to search for.",
            )
        order = _from_the_root(example, chosen)
        nodes = [_node(example, at, order) for at in order]
        whole_words = frozenset(word for word in words if WORD.fullmatch(word))
        return cls(nodes, whole_words, *(order.index(at) for at in slots))

    def search(
        self, texts: Iterable[Iterable[str]], parser: Language, advance: Advance
    ) -> Iterator[ExampleMatch]:
        """The matches in ``texts``, each a sequence of sentences."""
        from spacy.matcher import DependencyMatcher

        matcher = DependencyMatcher(parser.vocab)
        matcher.add("example", [self.nodes])
        sentences = (sentence for of_text in texts for sentence in of_text)
        waiting = (text for text in sentences if self.words <= set(WORD.findall(text.lower())))
        while batch := list(islice(waiting, BATCH)):
            with parser.memory_zone():
                matches = []
                for doc in parser.pipe(batch, batch_size=64):
                    matches += self._matches(doc, matcher)
                    advance(1)
            yield from matches

    def _matches(self, doc: Doc, matcher: Any) -> list[ExampleMatch]:
        pairs = [(tokens[self.subject], tokens[self.object]) for _, tokens in matcher(doc)]
        return [
            ExampleMatch(_name(doc[subject]), _name(doc[object_]), doc.text)
            for subject, object_ in dict.fromkeys(pairs)
        ]


def _counts(example: Parsed, at: int) -> bool:
    """Whether a word of the example must be in a sentence."""
    word = example.words[at]
    return word.pos not in SILENT and word.pos != "DET"


def _from_the_root(example: Parsed, chosen: list[int]) -> list[int]:
    """The chosen words, each after its head; heads that are not chosen are skipped."""
    depth = {}
    for at in chosen:
        steps, head = 0, at
        while example.words[head].head != head:
            steps, head = steps + 1, example.words[head].head
        depth[at] = steps
    return sorted(chosen, key=lambda at: (depth[at], at))


def _node(example: Parsed, at: int, order: list[int]) -> dict[str, Any]:
    """The node of a word: its text or, of a slot, its kind; and its arc to an earlier node."""
    word = example.words[at]
    if at in (example.subject, example.object):
        attributes: dict[str, Any] = {"POS": {"IN": ["PROPN", "NOUN", "ADJ"]}}
    else:
        attributes = {"LOWER": word.text.lower()}
    if word.head != at:
        attributes["DEP"] = word.label
    node = {"RIGHT_ID": str(at), "RIGHT_ATTRS": attributes}
    earlier = order[: order.index(at)]
    if not earlier:
        return node
    head = word.head
    while head not in earlier and example.words[head].head != head:
        head = example.words[head].head
    anchor, arc = (
        (head, ">" if head == word.head else ">>") if head in earlier else (order[0], ".*")
    )
    return {"LEFT_ID": str(anchor), "REL_OP": arc, **node}


def _name(token: Token) -> str:
    """The whole name of a token: it and the parts of names that touch it."""
    start, end = token.i, token.i + 1
    parts = {
        child.i for child in token.subtree if child.pos_ == "PROPN" or child.dep_ in NAME_PARTS
    }
    while start - 1 in parts:
        start -= 1
    while end in parts and token.doc[end].dep_ != "case":
        end += 1
    return str(token.doc[start:end].text)
