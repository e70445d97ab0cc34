"""Memory and time grow with the answers; what is summed sparse is what is summed in full."""

import tracemalloc
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest

from consilience import Candidates, Fact, Pattern, Relation, Suite, measure
from consilience.analysis.patterns import pair_table, pattern_table
from consilience.files import tables
from consilience.metrics import registry as grid
from consilience.metrics.counts import Prepared, ResampleCache, prepare
from consilience.metrics.differences import compare
from consilience.metrics.registry import Tally
from consilience.metrics.resampling import ClusterCounts

NAMES = [f"s{at:03}" for at in range(200)]


def asked(facts, patterns=4, words=0, missing=0.0, seed=0, each=1):
    """A suite of one relation, ``each`` facts of a subject, and random answers.

    Without ``words`` it has as many objects as facts; ``missing`` answers are null.
    """
    words, shape = words or facts, (facts, patterns)
    known = tuple(Fact(f"i{at}", f"s{at // each}", f"o{at % words}") for at in range(facts))
    texts = tuple(Pattern.parse(f"[X] is {at} in [Y].") for at in range(patterns))
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


def test_a_prepared_table_has_no_texts_and_its_groups_need_not_be_together(monkeypatch):
    """A row takes four bytes for each of 11 texts, 8 for ``n_candidates``, 4 for the variant."""
    (first, answers), (second, others) = asked(50, seed=1), asked(50, seed=2, missing=0.2)
    relation = replace(next(iter(second)), id="S")
    suite = Suite("two", (*first, relation), "strict")
    others = others.with_columns(group=pl.lit("S"))
    whole = pl.concat([answers, others])
    mixed = pl.concat(
        [table.with_row_index("row") for table in (answers, others)]
    ).sort("row", maintain_order=True).drop("row")  # fmt: skip
    monkeypatch.setattr(tables, "PART", 30)
    together, apart = Prepared(whole, suite), Prepared(mixed, suite)
    assert pl.String not in together.coded.dtypes
    assert together.coded.estimated_size() <= 64 * whole.height
    for group in ("R", "S"):
        rows = prepare(whole, suite).filter(group=group)
        assert together.rows(group).equals(rows) and apart.rows(group).equals(rows)
    assert measure(apart, suite).equals(measure(together, suite))


@pytest.mark.parametrize(("facts", "patterns", "words", "most"), [
    (4_000, 4, 4_000, 200), (20, 500, 5, 100),
])  # fmt: skip
def test_memory_grows_with_answers_and_not_with_products(facts, patterns, words, most):
    """4,000 facts, 4,000 objects, 4 patterns: an array of every (item, variant, word) is 61 MiB,
    and its counts in single precision are 244 MiB. The pairs of 20 facts in 500 patterns are 2.5
    million; their resamples would be 37 GiB.
    """
    suite, answers = asked(facts, patterns, words)
    assert peak(lambda: measure(answers, suite, "strict")) < most


def some_tallies():
    """A column full of counts, the same once more, one that is rare, and many that are rarer."""
    generator = np.random.default_rng(1)
    units = 300
    clusters = np.array(NAMES, dtype=np.object_)[generator.integers(0, 200, units)]
    full = generator.integers(0, 3, units).astype(np.float32)
    rare = (generator.random((units, 40)) < 0.02).astype(np.float32)
    counts = np.column_stack([full, full, rare])
    first_and_all = lambda s: (s[..., 0], s.sum(-1))  # noqa: E731
    tallies = {
        ("sum", "all"): Tally(counts[:, :2], clusters, units),
        ("rare", "all"): Tally(counts[:, 2:], clusters, units, 0, first_and_all),
        ("fixed", "all"): Tally(counts[:, :2], None, units),
    }
    return tallies, clusters, counts


def test_sums_of_clusters_are_those_of_the_full_product():
    tallies, clusters, counts = some_tallies()
    weights = np.random.default_rng(2).integers(0, 4, (200, 10)).astype(np.float32)
    by_cluster = np.stack([counts[clusters == name].sum(axis=0) for name in NAMES])
    expected = by_cluster.T.astype(np.float64) @ weights
    drawn = ClusterCounts(tallies, NAMES).weigh([weights[:, :7], weights[:, 7:]])
    assert (drawn["sum", "all"].hits == expected[0]).all()
    assert (drawn["sum", "all"].total == expected[1]).all()
    assert (drawn["rare", "all"].hits == expected[2]).all()
    assert (drawn["rare", "all"].total == expected[2:].sum(axis=0)).all()
    assert (drawn["fixed", "all"].hits == counts[:, 0].sum()).all()
    assert drawn["sum", "all"].clusters == (by_cluster[:, 0] > 0).sum()


def test_sums_beyond_single_precision_are_exact():
    """2^24 + 1 is no number in single precision."""
    counts = np.array([[2.0**24, 1.0], [1.0, 1.0]], dtype=np.float32)
    tally = {("m", "all"): Tally(counts, np.array(["a", "b"], dtype=np.object_), 2)}
    drawn = ClusterCounts(tally, ["a", "b"]).weigh([np.ones((2, 1), dtype=np.float32)])["m", "all"]
    assert (drawn.hits.tolist(), drawn.total.tolist()) == ([2.0**24 + 1], [2.0])


@pytest.mark.parametrize("protocol", ["published", "strict"])
def test_numbers_of_an_open_vocabulary(protocol):
    """Four facts; two patterns agree in one of them; expected by chance: sum_a 2/4 * 1/4."""
    suite, table = asked(4)
    answers = ["o0", "o0", None, None, "o0", "o1", None, None]
    answers += ["o2", "o3", None, None, "o3", "x", None, None]
    table = table.with_columns(answer=pl.Series(answers, dtype=pl.String))
    found = measure(table, suite, protocol).filter(pl.col("group") == "R")
    value = {row["metric"]: row["value"] for row in found.iter_rows(named=True)}
    assert (value["consistency"], value["chance_consistency"]) == (1 / 4, (2 * 1 + 1 * 1) / 16)
    assert value["corrected_consistency"] == (1 / 4 - 3 / 16) / (1 - 3 / 16)


def test_what_runs_share_changes_no_number():
    """Two runs answered all, the third lacks an answer; each is counted alone and shared."""
    suite, _ = asked(40)
    runs = {f"run{seed}": asked(40, seed=seed)[1] for seed in range(3)}
    lacking = pl.when(pl.int_range(pl.len()) == 5).then(None).otherwise("answer")
    runs["run2"] = runs["run2"].with_columns(answer=lacking)
    cache = ResampleCache()
    ready = {name: Prepared(table, suite, cache) for name, table in runs.items()}
    for name, table in runs.items():
        for protocol in ("strict", "published"):
            for count in (measure, pair_table):
                alone, together = (count(each, suite, protocol, 3) for each in (table, ready[name]))
                assert alone.equals(together)
    for second in ("run1", "run2"):
        pair = {name: runs[name] for name in ("run0", second)}
        alone = compare(pair, suite, "strict", 3)
        assert alone.equals(compare({name: ready[name] for name in pair}, suite, "strict", 3))
        values = measure(runs["run0"], suite, "strict", 3).select("metric", "group", "value")
        both = alone.join(values, on=["metric", "group"])
        if second == "run1":
            assert both["first_value"].equals(both["value"].alias("first_value"))


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
    monkeypatch.setattr(grid, "MANY_VARIANTS", 4)
    for ours, plain in zip(numbers(), by_pairs, strict=True):
        assert np.allclose(ours, plain, rtol=1e-9, atol=1e-12, equal_nan=True)
    with_base = pair_table(answers, suite, "strict")
    assert with_base.drop("p_holm").equals(pairs.filter(first=0).drop("p_holm"))


def test_a_kind_of_every_pair_needs_no_array_of_pairs(monkeypatch):
    """The only factor of a group differs between every two variants."""
    suite, answers = asked(8, 12, 3, 0.3, seed=3)
    (relation,), pairs = suite.relations, list(combinations(range(12), 2))
    whole = Prepared(answers, suite).views(relation, "strict")["pairs"]
    plain = whole.only_pairs(pairs)
    monkeypatch.setattr(grid, "MANY_VARIANTS", 4)
    every, fewer = whole.only_pairs(pairs), whole.only_pairs(pairs[1:])
    assert every.compared is None and len(plain.compared) == len(fewer.compared) + 1 == 66
    for name in ("n_both", "n_same"):
        assert (getattr(every, name) == getattr(plain, name)).all()
