"""How many of ParaRel's released patterns does mining find? The table of docs/results/mining.md.

python bench/mining_recovery.py CORPUS PARAREL LPAQA, where LPAQA is its folder prompt/mine.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import stats

from consilience.analysis.syntax import DETERMINERS, Parsed, load_parser, parse_pattern, path
from consilience.authoring.mining import FactIndex, Mined, mine
from consilience.authoring.pattern_mining import read_sentences
from consilience.core.patterns import Pattern
from consilience.suites import load_suite
from consilience.types import Relation

TOP = 50
SENTENCES = 20
"""Sentences that hold a fact, at least, of a relation in the table."""
MEASURES = ("exact", "path and lemmas", "content words")
METHODS = ("mined", "LPAQA")
NO_CONTENT = {"PUNCT", "SYM", "SPACE", "AUX", "DET", "PART", "CCONJ"}
Keys = dict[str, frozenset[object]]


def normal(text: str) -> str:
    """A pattern without case, spaces before punctuation, and punctuation at its end."""
    text = re.sub(r"\s+([,.;:'])", r"\1", " ".join(text.lower().split()))
    return text.rstrip(" .,")


def lemmas(parsed: Parsed, *, content: bool) -> tuple[object, ...]:
    """The lemmas of a pattern without determiners, counted; ``content``: of content words."""
    words = [word for word in parsed.pattern_words if word.text.lower() not in DETERMINERS]
    words = [word for word in words if not content or word.pos not in NO_CONTENT]
    return tuple(sorted(Counter(word.lemma for word in words).items()))


def parsed_of(text: str, parser) -> Parsed:
    """A pattern, parsed as a sentence in ParaRel's punctuation."""
    slots = normal(text).replace("[x]", "[X]").replace("[y]", "[Y]")
    return parse_pattern(Pattern.parse(f"{slots}."), parser)


class Recovery:
    """The patterns of one relation: released, mined and LPAQA's."""

    def __init__(self, relation: Relation, mined: Mined, lpaqa: Path, parser) -> None:
        self.relation, self.parser = relation, parser
        self.released = list(dict.fromkeys(normal(p.text) for p in relation.patterns))
        self.ranked = [one.pattern for one in mined.ranked(relation.id)]
        rows = [json.loads(line) for line in (lpaqa / f"{relation.id}.jsonl").open()]
        rows.sort(key=lambda row: -row["weight"])
        prompts = [row["template"] for row in rows[:TOP]]
        self.keys = {"mined": self.of(self.ranked[:TOP]), "LPAQA": self.of(prompts)}

    def of(self, texts: list[str]) -> dict[str, set[object]]:
        """The keys of many patterns for each measure."""
        keys = [self.key(text) for text in texts]
        return {measure: {key[measure] for key in keys} for measure in MEASURES}

    def key(self, text: str) -> dict[str, object]:
        """What must be equal for each measure."""
        parsed = parsed_of(text, self.parser)
        return {
            "exact": normal(text),
            "path and lemmas": (path(parsed), lemmas(parsed, content=False)),
            "content words": lemmas(parsed, content=True),
        }

    def hits(self, method: str, measure: str) -> list[bool]:
        """Whether the method has each released pattern."""
        known = self.keys[method][measure]
        return [self.key(text)[measure] in known for text in self.released]


def reasons(recovery: Recovery, texts: list[str]) -> Counter[str]:
    """Why released patterns are not among the top, the first reason that holds for each.

    ``texts``: the sentences that hold a fact of the relation, in lower case.
    """
    counted: Counter[str] = Counter()
    ranks = {normal(text): at for at, text in enumerate(recovery.ranked)}
    for text in recovery.released:
        parsed = parsed_of(text, recovery.parser)
        words = {w.text.lower() for w in parsed.pattern_words if w.pos not in NO_CONTENT}
        if ranks.get(text, TOP) < TOP:
            counted["found"] += 1
        elif text in ranks:
            counted["ranked below the top"] += 1
        elif not any(words <= set(re.findall(r"\w+", sentence)) for sentence in texts):
            counted["no sentence with a fact has its words"] += 1
        else:
            counted["its words are there, connected in another way"] += 1
    return counted


def interval(hits: np.ndarray, sizes: np.ndarray) -> str:
    """A pooled share with a 95 % interval of the bootstrap over relations, in percent."""
    draws = np.random.default_rng(0).integers(len(sizes), size=(10_000, len(sizes)))
    shares = hits[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    low, high = np.quantile(shares, [0.025, 0.975])
    return f"{100 * hits.sum() / sizes.sum():.1f} ({100 * low:.1f} to {100 * high:.1f})"


def main() -> None:
    """Print the table, and why released patterns are not found."""
    corpus, pararel, lpaqa = map(Path, sys.argv[1:4])
    suite, parser = load_suite(pararel, as_shipped=True), load_parser()
    index = FactIndex.of({r.id: [(f.subject, f.object) for f in r.facts] for r in suite})
    title = "" if "--no-titles" in sys.argv else "title"
    texts = [list(of_text) for of_text in read_sentences(corpus, title_column=title)]
    mined = mine(texts, index, parser, lambda steps: None)
    with_facts: dict[str, list[str]] = {relation.id: [] for relation in suite}
    literal: set[tuple[str, str]] = set()
    for sentence in index.search(texts):
        facts = {fact for pair in sentence.pairs for fact in pair.facts}
        for at in {index.relation_of[fact] for fact in facts}:
            with_facts[index.relations[at]].append(sentence.sentence.lower())
        for pair in sentence.pairs:
            subject, object_ = (
                sentence.sentence[slice(*span)].lower() for span in (pair.subject, pair.object)
            )
            for id_ in {index.relations[index.relation_of[fact]] for fact in pair.facts}:
                for pattern in suite[id_].patterns:
                    text = normal(pattern.text).replace("[x]", subject).replace("[y]", object_)
                    if text in sentence.sentence.lower():
                        literal.add((id_, normal(pattern.text)))
    chosen = [r for r in suite if mined.by_relation[r.id] >= SENTENCES]
    found = {r.id: Recovery(r, mined, lpaqa, parser) for r in chosen}
    columns = [(method, measure) for measure in MEASURES for method in METHODS]
    print(
        "| relation | sentences | patterns | " + " | ".join(f"{a}, {b}" for a, b in columns) + " |"
    )
    print("|---" * (3 + len(columns)) + "|")
    hits = {column: [] for column in columns}
    for relation in chosen:
        recovery = found[relation.id]
        counts = [sum(recovery.hits(*column)) for column in columns]
        for column, count in zip(columns, counts, strict=True):
            hits[column].append(count)
        row = [relation.id, mined.by_relation[relation.id], len(recovery.released), *counts]
        print("| " + " | ".join(map(str, row)) + " |")
    sizes = np.array([len(found[r.id].released) for r in chosen])
    shares = [interval(np.array(hits[column]), sizes) for column in columns]
    print(f"| all, in percent | | {sizes.sum()} | " + " | ".join(shares) + " |")
    for measure in MEASURES:
        ours, theirs = (np.array(hits[method, measure]) / sizes for method in METHODS)
        if np.any(ours != theirs):
            print(
                measure,
                "Wilcoxon over relations p =",
                round(stats.wilcoxon(ours, theirs).pvalue, 3),
            )
    total: Counter[str] = Counter()
    for relation in chosen:
        total += reasons(found[relation.id], with_facts[relation.id])
    for reason, count in total.most_common():
        print(f"| {reason} | {count} | {100 * count / sizes.sum():.1f} |")
    of_table = {(id_, text) for id_, text in literal if id_ in found}
    print(f"{len(of_table)} patterns are literally in a sentence with the names of a fact")
    not_mined = [
        (id_, text) for id_, text in sorted(of_table)
        if text not in found[id_].keys["mined"]["exact"]
    ]  # fmt: skip
    print("of these not among the top:", not_mined)
    if "--detail" in sys.argv:
        for relation in chosen:
            recovery = found[relation.id]
            ranks = {normal(text): at for at, text in enumerate(recovery.ranked)}
            for text in recovery.released:
                print(
                    relation.id,
                    text,
                    "rank",
                    ranks.get(text, -1) + 1,
                    "LPAQA" if text in recovery.keys["LPAQA"]["exact"] else "",
                )


if __name__ == "__main__":
    main()
