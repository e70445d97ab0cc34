"""How well meaning scores tell ParaRel's paraphrases from controls: docs/results/mining.md.

``python bench/meaning_separation.py [MODEL] [DATA]``: the AUC of the score with a 95 % interval, of
its parts and of the overlap of words, for two kinds of controls. The pairs are those of ParaRel,
Section 4: the base pattern with other patterns of its relation, and with patterns of other
relations that have the same subject and object.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np

from consilience import load_suite
from consilience.authoring.checks import SLOTS, tokens_of
from consilience.authoring.rewriting import (
    PatternPair,
    by_relation,
    meaning_scores,
    sample_pairs,
    separation,
)
from consilience.models import judges
from consilience.models.judges import ParaphraseJudge
from consilience.models.loading import load_pretrained
from consilience.models.prompted import OptionScorer

PAIRS, FACTS = 4, 3

SAME_TYPES = (
    ("P19", "P20", "P27", "P937"),  # a person and a place
    ("P103", "P1412"),  # a person and a language
    ("P101", "P106"),  # a person and a field
    ("P127", "P176", "P178"),  # a product and a company
    ("P159", "P740"),  # an organization and a place
    ("P36", "P1376"),  # two places: the capital of one is the other, and the reverse
    ("P47", "P190", "P530"),  # two places
    ("P17", "P495"),  # a thing and a country
)
"""Relations whose subjects and objects are of the same types, without those that mean nearly the
same (P131, P276, P17: a location; P364, P407: a language of a work)."""

OTHERS = {one: [o for o in group if o != one] for group in SAME_TYPES for one in group}


class OneOrder:
    """A judge that is asked in the first order only: the other order gets NaN."""

    def __init__(self, judge: ParaphraseJudge) -> None:
        self.judge, self.identity = judge, judge.identity
        self.known: dict[tuple[str, str], float] = {}

    def meaning(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Those of the first order."""
        odds = np.array([self.known[pair] for pair in pairs])
        odds[1::2] = np.nan
        return odds


class Remembering(OneOrder):
    """A judge whose answers are kept."""

    def meaning(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """All of them, those asked before from memory."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self.known]
        self.known |= dict(zip(new, self.judge.meaning(new).tolist(), strict=True))
        return np.array([self.known[pair] for pair in pairs])


def overlap(pair: PatternPair) -> float:
    """Shared words of two patterns, among all of them (Jaccard)."""
    first, second = ({*tokens_of(p.text)} - {*SLOTS} for p in (pair.first, pair.second))
    return len(first & second) / len(first | second)


def show(name: str, positives, controls, yes, no) -> None:
    """Print one row of the table."""
    found = separation(
        by_relation(positives, np.asarray(yes)), by_relation(controls, np.asarray(no))
    )
    threshold = "-" if found.threshold is None else f"{found.threshold:.2f}"
    print(
        f"| {name} | {found.positives} | {found.controls} | {found.auc:.3f} | "
        f"{found.low:.3f} to {found.high:.3f} | {threshold} |",
        flush=True,
    )


def main(model: str = "packaged:smollm2", data: str = "../shared/data") -> None:
    """Measure, and print the rows of the table."""
    suite = load_suite("pararel", data)
    judge = ParaphraseJudge(OptionScorer(load_pretrained(model)))
    solved = judges.EXAMPLES
    for name, others in (("any other relation", None), ("same types", OTHERS)):
        positives, controls = sample_pairs(suite, PAIRS, FACTS, others=others)
        halves = positives, controls
        for examples in (solved, ()):
            judges.EXAMPLES = examples
            remembering = Remembering(judge)
            start = time.perf_counter()
            both = [meaning_scores(half, remembering) for half in halves]
            seconds = time.perf_counter() - start
            words = f"{name}; {len(examples)} examples"
            show(f"{words}; both orders", *halves, *both)
            for part, scores in zip(("positive", "control"), both, strict=True):
                print(f"<!-- {part}: mean {np.nanmean(scores):.2f}, sd {np.nanstd(scores):.2f} -->")
            one = OneOrder(judge)
            one.known = remembering.known
            show(f"{words}; one order", *halves, *(meaning_scores(half, one) for half in halves))
            print(f"<!-- {len(remembering.known)} questions, {seconds:.0f} s -->", flush=True)
        show(f"{name}; overlap of words", *halves, *([overlap(p) for p in half] for half in halves))


if __name__ == "__main__":
    main(*sys.argv[1:])
