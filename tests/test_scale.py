"""Memory and time grow with the answers; what is summed sparse is what is summed in full."""

import tracemalloc
from itertools import product

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest

from consilience import Candidates, Fact, Pattern, Relation, Suite, measure
from consilience.analysis import patterns as of_patterns
from consilience.analysis.patterns import pair_table, pattern_table
from consilience.metrics.differences import compare


def asked(facts, patterns=4, words=0, missing=0.0, seed=0, each=1):
    """A suite of one relation, ``each`` facts of a subject, and random answers.

    Without ``words`` it has as many objects as facts; ``missing`` answers are null.
    """
    words, shape = words or facts, (facts, patterns)
    known = tuple(Fact(f"i{at}", f"s{at // each}", f"o{at % words}") for at in range(facts))
    texts = tuple(Pattern(f"[X] is {at} in [Y].") for at in range(patterns))
    relation = Relation("R", "R", "N-1", texts, known, {}, Candidates.of(known))
    generator = np.random.default_rng(seed)
    chosen = np.char.add("o", generator.integers(0, words, shape).astype(str))
    answers = np.where(generator.random(shape) < missing, None, chosen).ravel().tolist()
    both = product(known, texts)
    rows = [("R", fact.item, fact.subject, text.text, fact.object) for fact, text in both]
    table = pl.DataFrame(rows, ["group", "item", "subject", "variant", "gold"], orient="row")
    table = table.with_columns(answer=pl.Series(answers, dtype=pl.String))
    return Suite("open", (relation,), "strict"), table


def peak(run):
    tracemalloc.start()
    run()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 2**20


@pytest.mark.parametrize(("facts", "patterns", "words", "most"), [
    (4_000, 4, 4_000, 200), (20, 500, 5, 100),
])  # fmt: skip
def test_memory_grows_with_answers_and_not_with_products(facts, patterns, words, most):
    """4,000 facts, 4,000 objects, 4 patterns: an array of every (item, variant, word) is 61 MiB,
    and its counts in single precision are 244 MiB. The pairs of 20 facts in 500 patterns are 2.5
    million.
    """
    suite, answers = asked(facts, patterns, words)
    assert peak(lambda: measure(answers, suite, "strict")) < most


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_many_patterns_are_counted_without_an_array_of_their_pairs(monkeypatch, missing):
    """The sum over classes of items is the sum over pairs; only its rounding differs."""
    suite, answers = asked(8, 12, 3, missing, seed=3, each=2)
    other = answers.with_columns(pl.col("answer").shift(5))
    runs = {"one": answers, "two": other}

    def numbers():
        tables = measure(answers, suite, "strict"), compare(runs, suite, "strict")
        agreement = pattern_table(answers, suite, "strict")
        return [frame.select(cs.numeric()).to_numpy() for frame in (*tables, agreement)]

    by_pairs = numbers()
    pairs = pair_table(answers, suite, "strict")
    monkeypatch.setattr(of_patterns, "MANY_VARIANTS", 4)
    for ours, plain in zip(numbers(), by_pairs, strict=True):
        assert np.allclose(ours, plain, rtol=1e-9, atol=1e-12, equal_nan=True)
    with_base = pair_table(answers, suite, "strict")
    assert with_base.drop("p_holm").equals(pairs.filter(first=0).drop("p_holm"))
