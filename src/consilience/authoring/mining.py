"""Mines patterns: counts the patterns of sentences that hold facts, and ranks them by relation.

Memory grows with the facts and the patterns, not with the corpus: texts are read one after the
other, parses are forgotten after each batch, and patterns with a single fact are forgotten where
there are more than ``MOST_PATTERNS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from consilience.authoring.mining_patterns import NoPatternError, path_patterns
from consilience.authoring.mining_search import FactIndex, FactSentence
from consilience.metrics.intervals import wilson_interval
from consilience.suites.proposals import Proposal
from consilience.text import truncated
from consilience.watch import Advance

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

BATCH = 512
"""Sentences whose parses are in memory together."""

MOST_PATTERNS = 500_000
"""Patterns in memory."""

EVIDENCE = 3
"""Sentences that are kept for a pattern of a relation."""

LONGEST_EVIDENCE = 240
"""Characters of a sentence that is kept."""


@dataclass(slots=True)
class Support:
    """What speaks for a pattern."""

    facts: set[int] = field(default_factory=set)
    """The facts that it connects, of all relations."""
    texts: int = 0
    """The number of texts it is in."""
    last_text: int = -1
    evidence: dict[int, list[str]] = field(default_factory=dict)
    """Relation -> sentences."""

    def add(self, facts: Sequence[int], index: FactIndex, sentence: FactSentence) -> None:
        """Count a sentence."""
        self.facts.update(facts)
        self.texts += sentence.text != self.last_text
        self.last_text = sentence.text
        for fact in facts:
            kept_sentences = self.evidence.setdefault(index.relation_of[fact], [])
            text = truncated(sentence.sentence, LONGEST_EVIDENCE)
            if len(kept_sentences) < EVIDENCE and text not in kept_sentences:
                kept_sentences.append(text)


@dataclass(frozen=True, slots=True)
class Mined:
    """The patterns of a corpus, and what was searched."""

    index: FactIndex
    supports: dict[str, Support]
    """Pattern -> what speaks for it."""
    sentences: int
    """Sentences that hold a fact, all of which were parsed."""
    pairs: int
    """Subjects and objects in them."""
    refused: Counter[str]
    """Why pairs gave no pattern."""
    by_relation: Counter[str]
    """Relation -> sentences that hold one of its facts."""

    def ranked(self, relation: str, top: int | None = None) -> Iterator[RankedPattern]:
        """The patterns of a relation, the most specific first."""
        at = self.index.relations.index(relation)
        also_in_others = self.index.shared_with(at)
        ranked = []
        for text, support in self.supports.items():
            if at in support.evidence:
                facts = sum(self.index.relation_of[fact] == at for fact in support.facts)
                others = len(support.facts - also_in_others) - facts
                evidence = tuple(support.evidence[at])
                ranked.append(RankedPattern(text, facts, others, support.texts, evidence))
        return islice(sorted(ranked, key=lambda pattern: pattern.order), top)

    def proposals(
        self, relation: str, top: int | None, *, source: str, licence: str
    ) -> Iterator[Proposal]:
        """The most specific patterns of a relation as proposals."""
        for rank, pattern in enumerate(self.ranked(relation, top), start=1):
            scores = {
                "rank": rank,
                "specificity": round(pattern.specificity, 4),
                "facts": pattern.facts,
                "other_facts": pattern.other_facts,
                "texts": pattern.texts,
            }
            yield Proposal(
                relation,
                pattern.text,
                "mined",
                source=source,
                licence=licence,
                evidence=pattern.evidence,
                scores=scores,
            )


@dataclass(frozen=True, slots=True)
class RankedPattern:
    """A pattern as a candidate for one relation."""

    text: str
    facts: int
    """Distinct facts of the relation that it connects."""
    other_facts: int
    """Distinct facts of all other relations that it connects, but for facts of this relation."""
    texts: int
    """Distinct texts with it."""
    evidence: tuple[str, ...]
    """Sentences with facts of the relation."""

    @property
    def specificity(self) -> float:
        """The lower bound of Wilson's 95 % interval of ``facts / (facts + other_facts)``.

        The number of observations is that of facts or of texts, whichever is smaller: ten facts
        that one sentence lists are no ten observations.
        """
        facts = self.facts + self.other_facts
        return wilson_interval(self.facts / facts, min(facts, self.texts))[0]

    @property
    def order(self) -> tuple[float, int, int, int, str]:
        """What ranks it: specificity, then facts, texts and brevity."""
        return -self.specificity, -self.facts, -self.texts, len(self.text), self.text


def mine(
    texts: Iterable[Iterable[str]], index: FactIndex, parser: Language, advance: Advance
) -> Mined:
    """The patterns of all facts in ``texts``, each a sequence of sentences.

    ``advance`` is called with 1 for each sentence that is parsed.
    """
    mined = Mined(index, {}, 0, 0, Counter(), Counter())
    sentences = pairs = 0
    for doc, sentence in parsed(index.search(texts), parser):
        count_patterns(doc, sentence, mined)
        sentences, pairs = sentences + 1, pairs + len(sentence.pairs)
        advance(1)
    return Mined(index, mined.supports, sentences, pairs, mined.refused, mined.by_relation)


def parsed(
    sentences: Iterable[FactSentence], parser: Language
) -> Iterator[tuple[Doc, FactSentence]]:
    """Each sentence with its parse, which is valid until the next one is taken."""
    waiting = iter(sentences)
    while batch := list(islice(waiting, BATCH)):
        with parser.memory_zone():
            items = ((sentence.sentence, sentence) for sentence in batch)
            yield from parser.pipe(items, as_tuples=True, batch_size=64)


def count_patterns(doc: Doc, sentence: FactSentence, mined: Mined) -> None:
    """Add the patterns of a sentence."""
    facts = {fact for pair in sentence.pairs for fact in pair.facts}
    relations = {mined.index.relation_of[fact] for fact in facts}
    mined.by_relation.update(mined.index.relations[at] for at in relations)
    for pair in sentence.pairs:
        try:
            patterns = path_patterns(doc, pair.subject, pair.object)
        except NoPatternError as reason:
            mined.refused[str(reason)] += 1
            continue
        for pattern in patterns:
            support = mined.supports.setdefault(pattern, Support())
            support.add(pair.facts, mined.index, sentence)
    if len(mined.supports) > MOST_PATTERNS:
        rare = [text for text, support in mined.supports.items() if len(support.facts) < 2]
        for text in rare:
            del mined.supports[text]
