"""Every number against hand-worked values, and `published` against the released rules."""

import math
from collections import Counter, defaultdict
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from checks import refused
from conftest import cases, number
from consilience import Candidates, Fact, Pattern, Relation, Suite, measure
from consilience.core.factors import Edge
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics.measure import CheckedAnswers
from consilience.report.cautions import Known, cautions

PATTERNS = ("[X] is in [Y].", "[X] is inside [Y].", "[Y] holds [X].")
LEXICAL, SYNTACTIC = Edge(False, True, False), Edge(True, False, False)
NEITHER = Edge(False, False, False)
EDGES = {(0, 1): LEXICAL, (0, 2): SYNTACTIC, (1, 2): NEITHER}


def make_suite(patterns=PATTERNS, cardinality="N-1", ids=("R",), edges=EDGES):
    parsed = tuple(map(Pattern, patterns))
    facts = (Fact("1", "s", "o"),)
    more = (cardinality, parsed, facts, edges, Candidates.of(facts))
    return Suite("hand", tuple(Relation(id_, id_, *more) for id_ in ids), "strict")


def table(rows, group="R", patterns=PATTERNS):
    """Rows of (item, subject, gold, answers in order of the patterns)."""
    rows = [
        (group, item, subject, pattern, gold, answer)
        for item, subject, gold, answers in rows
        for pattern, answer in zip(patterns, answers, strict=True)
    ]
    columns = ["group", "item", "subject", "variant", "gold", "answer"]
    return pl.DataFrame(rows, dict.fromkeys(columns, pl.String), orient="row")


def of(group, level=""):
    """Which rows: a group, or ``mean`` or ``all`` of the groups; whole, or of a part."""
    if group in ("mean", "all"):
        return {"over": group, "group": "", "level": level}
    return {"over": "group", "group": group, "level": level}


def values(metrics, group="R", level=""):
    return dict(metrics.filter(**of(group, level))["metric", "value"].iter_rows())


def row_of(metrics, name, group="R"):
    return metrics.filter(metric=name, **of(group)).row(0, named=True)


HAND = [
    ("1", "Ada", "a", ["a", "a", "a"]),  # right three times: 3 of 3 pairs
    ("2", "Bob", "b", ["b", "c", "c"]),  # right once: 1 of 3 pairs
    ("3", "Cid", "c", ["a", "a", "a"]),  # the same wrong answer: 3 of 3 pairs
    ("4", "Dan", "d", ["a", "b", "c"]),  # three wrong answers: 0 of 3 pairs
]


@pytest.mark.parametrize("case", cases("fact_numbers"), ids=lambda case: case["case"])
def test_numbers_by_hand(case):
    """Rows of item, subject, gold and the answers in each pattern; ``-`` is no answer, ``.`` was not asked."""
    width = len(case["rows"][0][-1])
    patterns = case.get("patterns", PATTERNS[:width])
    edges = EDGES if patterns == PATTERNS else {}
    suite = make_suite(patterns, case.get("cardinality", "N-1"), edges=edges)
    answers = table([(*row, [*texts]) for *row, texts in case["rows"]], patterns=patterns)
    is_left_out, text = pl.col("answer") == ".", pl.col("answer")
    answers = answers.with_columns(
        excluded=pl.when(is_left_out).then(pl.lit("too long")),
        answer=pl.when(is_left_out | (text == "-")).then(None).otherwise(text),
    )
    if "gold_token" in case:
        answers = answers.with_columns(gold_token=pl.lit(case["gold_token"]))
    for protocol, expected in case["expected"].items():
        metrics = measure(answers, suite, protocol)
        for name, value in expected.items():
            metric, _, level = name.partition(" ")
            measured = values(metrics, level=level)[metric]
            assert measured == pytest.approx(number(value), abs=1e-12, nan_ok=True), name
        assert not set(case.get("absent", ())) & set(metrics["metric"])
    for name, counts in case.get("counts", {}).items():
        row = row_of(metrics, name)
        assert [row["n"], row["n_excluded"]] == counts, name
    if "notes" in case:
        found = cautions(Known(suite=suite, answers=CheckedAnswers(answers, suite)))
        assert [note.partition(". (docs")[0] for note in found] == case["notes"]


def test_the_mean_is_the_mean_with_the_sample_deviation_and_all_pools_the_counts():
    """Accuracies 2/4 and 1/1: mean 0.75, deviation sqrt(2 * 0.25**2 / 1); pooled 3/5."""
    suite = make_suite(ids=("R", "S"))
    answers = pl.concat([table(HAND), table([("1", "Ada", "a", ["a", "b", "b"])], "S")])
    metrics = measure(answers, suite, "strict")
    mean, every = values(metrics, "mean"), values(metrics, "all")
    assert mean["accuracy"] == pytest.approx(0.75)
    row = row_of(metrics, "accuracy", "mean")
    assert (row["std"], row["n"]) == (pytest.approx(math.sqrt(2 * 0.25**2)), 2)
    assert (every["accuracy"], every["consistency"]) == pytest.approx((3 / 5, (7 / 3 + 1 / 3) / 5))
    assert dict(metrics.schema) == METRICS_SCHEMA


def test_means_are_over_relations_with_one_right_answer_only():
    one, several = make_suite(), make_suite(cardinality="N-M", ids=("S",))
    both = Suite("hand", (*one.relations, *several.relations), "strict")
    answers = pl.concat([table(HAND), table([("1", "Ada", "a", ["a", "b", "b"])], "S")])
    mean = values(measure(answers, both, "strict"), "mean")
    found = [mean[name] for name in ("accuracy", "consistency", "determinism")]
    assert found == pytest.approx([2 / 4, 7 / 12, 1 / 3])


def test_without_data_a_value_is_nan_and_the_mean_leaves_it_out():
    """All right: no unknown tuple. Strict says NaN, the released code logs 0."""
    answers = table([("1", "Ada", "a", ["a", "a", "a"])])
    strict = measure(answers, make_suite(), "strict")
    row = row_of(strict, "unknown_consistency", "mean")
    assert math.isnan(row["value"]) and (row["n"], row["n_excluded"]) == (0, 1)
    published = measure(answers, make_suite(), "published")
    assert row_of(published, "unknown_consistency", "mean")["value"] == 0


ANY_PATTERNS = ("[X] is a [Y].", "[X] is an [Y] .", "[Y] is [X].", "the [Y], [X]")
ANY_WORD = st.sampled_from(["apple", "pear", "orange", "fig"])
RELEASED_ROWS = st.tuples(
    st.sampled_from(["s1", "s2", "s3", "s4", "s5"]), ANY_WORD, st.tuples(*[ANY_WORD] * 4)
)


def released_rules(rows, patterns, edges):
    """The released evaluation's counting, written down plainly from its description.

    ``rows``: (subject, gold, answers by pattern) in order of appearance.
    """
    by_pattern = {  # the last row of a subject stays
        p: {subject: (answers[at], gold) for subject, gold, answers in rows}
        for at, p in enumerate(patterns)
    }

    def skipped(pattern, gold):
        words = pattern.split(" ")
        at = [n for n, word in enumerate(words) if "[Y]" in word][0]
        vowel = gold.lower()[:1] in "aeiou"
        return at > 0 and words[at - 1] == ("a" if vowel else "an")

    hits = total = 0
    edit_hits, edit_total = Counter(), Counter()
    right_patterns, right_subjects, pairs_of = Counter(), Counter(), defaultdict(list)
    for p in patterns:
        for subject, (answer, gold) in by_pattern[p].items():
            if skipped(p, gold):
                continue
            right_subjects[subject] += answer == gold
            right_patterns[p] += answer == gold
            for q in patterns:
                if q == p or skipped(q, gold):
                    continue
                same = answer == by_pattern[q][subject][0]
                hits, total = hits + same, total + 1
                pairs_of[subject].append(same)
                kind = edges[tuple(sorted((patterns.index(p), patterns.index(q))))].kind
                edit_hits[kind] += same
                edit_total[kind] += 1

    def pooled(is_known):
        pairs = [of for s in pairs_of if (right_subjects[s] > 0) == is_known for of in pairs_of[s]]
        return sum(pairs) / len(pairs) if pairs else 0

    found = {
        "accuracy": sum(a[0] == gold for _, gold, a in rows) / len(rows),
        "consistent_accuracy": sum(set(a) == {gold} for _, gold, a in rows) / len(rows),
        "consistent_wrong": sum({gold} != set(a) == {a[0]} for _, gold, a in rows) / len(rows),
        "consistency": hits / total if total else math.nan,
        "successful_patterns": sum(n > 0 for n in right_patterns.values()) / len(right_patterns),
        "successful_objects": sum(n > 0 for n in right_subjects.values()) / len(right_subjects),
        "known_consistency": pooled(True),
        "unknown_consistency": pooled(False),
    }
    return found, {kind: edit_hits[kind] / n for kind, n in edit_total.items()}


@settings(max_examples=60)
@given(st.lists(RELEASED_ROWS, min_size=1, max_size=12), st.tuples(*[st.booleans()] * 18))
def test_published_is_the_released_evaluation_to_the_last_digit(rows, ways):
    pairs = [(a, b) for b in range(4) for a in range(b)]
    edges = {pair: Edge(*ways[3 * at : 3 * at + 3]) for at, pair in enumerate(pairs)}
    numbered = [(f"row {n}", *row) for n, row in enumerate(rows)]
    answers, suite = table(numbered, patterns=ANY_PATTERNS), make_suite(ANY_PATTERNS, edges=edges)
    metrics = measure(answers, suite, "published")
    expected, by_edit = released_rules(rows, ANY_PATTERNS, edges)
    exactly = pytest.approx(expected, rel=0, abs=0, nan_ok=True)
    assert {name: values(metrics)[name] for name in expected} == exactly
    assert {kind: values(metrics, level=kind)["consistency"] for kind in by_edit} == by_edit


def also(rows, **change):
    more = rows[:1].with_columns(**{name: pl.lit(of) for name, of in change.items()})
    return pl.concat([rows, more])


@pytest.mark.parametrize(("change", "message"), [
    (lambda rows: rows.drop("answer"), "no column 'answer' among"),
    (lambda rows: rows.clear(), "the answers table: no rows"),
    (lambda rows: rows.with_columns(gold=pl.lit(None)), "row 1: no 'gold'"),
    (lambda rows: also(rows, variant="[X] is near [Y]."), "no variant .*Did you mean '.X. is in .Y..'"),
    (lambda rows: also(rows, variant="0"), "no variant '0' of R"),
    (lambda rows: also(rows, group="S"), "has no relation 'S'"),
    (lambda rows: also(rows, gold="b"), "the item '1' of R has several subjects or golds"),
    (lambda rows: also(rows, subject="Bob"), "the item '1' of R has several subjects or golds"),
    (lambda rows: also(rows, answer="b"), "the item '1' of R has several rows in one variant"),
])  # fmt: skip
def test_a_table_that_cannot_be_counted_is_refused(change, message):
    refused(message, measure, change(table(HAND)), make_suite())


@pytest.mark.parametrize("change", [
    lambda rows: rows.cast(pl.Categorical),
    lambda rows: rows.cast({"item": pl.Int64}),
    lambda rows: rows.with_columns(answer=pl.col("answer").replace("c", " ")),
    lambda rows: rows.with_columns(answer=pl.when(pl.col("answer") != "c").then("answer")),
    lambda rows: rows.with_columns(more=pl.lit(1)),
    lambda rows: rows.with_columns(excluded=pl.lit(None), n_candidates=pl.lit("4")),
    lambda rows: rows.to_pandas(),
])  # fmt: skip
def test_texts_may_be_of_any_type_and_a_blank_answer_is_none(change):
    """Without c, item 2 agrees in no pair, as item 4; only item 1 is right in its base pattern."""
    rows = table(HAND)
    is_blank = not {"c"} & set(pl.DataFrame(change(rows))["answer"].cast(pl.String))
    found = values(measure(change(rows), make_suite()))
    assert found["accuracy"] == 2 / 4
    assert found["consistency"] == pytest.approx(2 / 4 if is_blank else (1 + 1 / 3 + 1 + 0) / 4)


@pytest.mark.parametrize("protocol", ["strict", "published"])
def test_the_order_of_rows_does_not_matter(protocol):
    """Ada's last fact counts: all answers are Rome, so 1 of 2 subjects is known; reversed none."""
    facts = (Fact("1", "Ada", "Paris"), Fact("2", "Ada", "Rome"), Fact("3", "Bob", "Oslo"))
    suite = make_suite()
    suite = replace(suite, relations=(replace(suite["R"], facts=facts),))
    rows = table([(of.item, of.subject, of.object, ["Rome"] * 3) for of in facts])
    metrics = measure(rows, suite, protocol)
    if protocol == "published":
        assert values(metrics)["successful_objects"] == 1 / 2
    for changed in (rows.reverse(), rows.sample(fraction=1, shuffle=True, seed=3)):
        assert_frame_equal(measure(changed, suite, protocol), metrics, rel_tol=0)
