"""Every number against hand-worked values, and `published` against the released rules."""

import math
import random
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from checks import refused
from conftest import ROOT, cases, number
from consilience import Candidates, Fact, Pattern, Relation, Suite, measure
from consilience.core.factors import Design, Edge, Factor, FactorialDesign
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics import registry
from consilience.metrics.differences import compare
from consilience.metrics.measure import facts_left_out, notes_on
from consilience.metrics.registry import METRICS, Tally, metric, quotient, ratio
from consilience.metrics.resampling import NONE, Replicates, _macro
from consilience.types import QUESTION_WORDS

PATTERNS = ("[X] is in [Y].", "[X] is inside [Y].", "[Y] holds [X].")
LEXICAL, SYNTACTIC, NEITHER = (
    Edge(*of, False) for of in ((False, True), (True, False), (False, False))
)
EDGES = {(0, 1): LEXICAL, (0, 2): SYNTACTIC, (1, 2): NEITHER}


def make_suite(patterns=PATTERNS, cardinality="N-1", ids=("R",), edges=EDGES):
    parsed = tuple(map(Pattern.parse, patterns))
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


def values(metrics, group="R", subset="all"):
    return dict(metrics.filter(group=group, subset=subset)["metric", "value"].iter_rows())


def row_of(metrics, name, group="R"):
    return metrics.filter(metric=name, group=group, subset="all").row(0, named=True)


HAND = [
    ("1", "Ada", "a", ["a", "a", "a"]),  # right three times: 3 of 3 pairs
    ("2", "Bob", "b", ["b", "c", "c"]),  # right once: 1 of 3 pairs
    ("3", "Cid", "c", ["a", "a", "a"]),  # the same wrong answer: 3 of 3 pairs
    ("4", "Dan", "d", ["a", "b", "c"]),  # three wrong answers: 0 of 3 pairs
]


@pytest.mark.parametrize("case", cases("fact_numbers"), ids=lambda case: case["case"])
def test_numbers_by_hand(case):
    """Rows of item, subject, gold and the answers in each pattern; ``-`` is a missing answer."""
    width = len(case["rows"][0][-1])
    patterns = case.get("patterns", PATTERNS[:width])
    edges = EDGES if patterns == PATTERNS else {}
    suite = make_suite(patterns, case.get("cardinality", "N-1"), edges=edges)
    given = {"-": None}
    rows = [(*row, [given.get(text, text) for text in texts]) for *row, texts in case["rows"]]
    answers = table(rows, patterns=patterns)
    if "gold_token" in case:
        answers = answers.with_columns(gold_token=pl.lit(case["gold_token"]))
    for protocol, expected in case["expected"].items():
        metrics = measure(answers, suite, protocol)
        for name, value in expected.items():
            metric, _, subset = name.partition(" ")
            measured = values(metrics, subset=subset or "all")[metric]
            assert measured == pytest.approx(number(value), abs=1e-12, nan_ok=True), name
        assert not set(case.get("absent", ())) & set(metrics["metric"])
    for name, counts in case.get("counts", {}).items():
        row = row_of(metrics, name)
        assert [row["n"], row["n_excluded"]] == counts, name
    if "notes" in case:
        assert notes_on(answers, metrics, suite) == case["notes"]


def test_a_quotient_without_a_total_has_no_value():
    found = quotient(np.array([0.0, 1.0, 0.0]), np.array([0.0, 2.0, 2.0]))
    np.testing.assert_array_equal(found, [math.nan, 0.5, 0])


def test_the_replicates_of_a_mean_leave_out_groups_without_a_value():
    """Groups with 1/2, 1/1 and nothing, drawn once each, then 0, 2 and 1 times: .75 and 1."""
    weights = np.array([[1, 1, 1], [0, 2, 1]], dtype=np.float32)
    shares = ((1.0, 2.0), (1.0, 1.0), (0.0, 0.0))
    drawn = [Replicates(np.array([hits]), np.array([total]), NONE) for hits, total in shares]
    assert _macro(weights, drawn, math.nan).tolist() == [0.75, 1.0]


def test_macro_is_the_mean_with_the_sample_deviation_and_micro_pools_the_counts():
    """Accuracies 2/4 and 1/1: mean 0.75, deviation sqrt(2 * 0.25**2 / 1); pooled 3/5."""
    suite = make_suite(ids=("R", "S"))
    answers = pl.concat([table(HAND), table([("1", "Ada", "a", ["a", "b", "b"])], "S")])
    metrics = measure(answers, suite, "strict")
    macro, micro = values(metrics, "MACRO"), values(metrics, "MICRO")
    assert macro["accuracy"] == pytest.approx(0.75)
    row = row_of(metrics, "accuracy", "MACRO")
    assert (row["std"], row["n"]) == (pytest.approx(math.sqrt(2 * 0.25**2)), 2)
    assert (micro["accuracy"], micro["consistency"]) == (3 / 5, (7 + 1) / (12 + 3))
    assert dict(metrics.schema) == METRICS_SCHEMA


def test_means_are_over_relations_with_one_right_answer_only():
    one, several = make_suite(), make_suite(cardinality="N-M", ids=("S",))
    both = Suite("hand", (*one.relations, *several.relations), "strict")
    answers = pl.concat([table(HAND), table([("1", "Ada", "a", ["a", "b", "b"])], "S")])
    macro = values(measure(answers, both, "strict"), "MACRO")
    assert (macro["accuracy"], macro["consistency"], macro["determinism"]) == (2 / 4, 7 / 12, 1 / 3)


def test_without_data_a_value_is_nan_and_the_macro_mean_leaves_it_out():
    """All right: no unknown tuple. Strict says NaN, the released code logs 0."""
    answers = table([("1", "Ada", "a", ["a", "a", "a"])])
    strict = measure(answers, make_suite(), "strict")
    row = row_of(strict, "unknown_consistency", "MACRO")
    assert math.isnan(row["value"]) and (row["n"], row["n_excluded"]) == (0, 1)
    published = measure(answers, make_suite(), "published")
    assert row_of(published, "unknown_consistency", "MACRO")["value"] == 0


def test_the_accuracy_says_how_many_facts_it_is_over():
    """Six facts: three answered in the base pattern, two of several tokens, one for another reason.

    Fact 6 is there once more, which counts as a row (published) and not as a fact (strict). The
    relation with several right answers is in no mean.
    """
    several, other = "the gold is split into 2 pieces (x y)", "the gold is unknown to the tokenizer"
    rows = [(str(at), f"s{at}", "a", ["a"] * 3) for at in (1, 2)]
    rows += [("3", "s3", "a", ["a", None, "a"])]
    rows += [(str(at), f"s{at}", "b", [None] * 3) for at in (4, 5, 6)]
    rows += [("7", "s6", "b", [None] * 3)]
    why = {"4": other, "5": several, "6": several, "7": several, "3": several}
    reasons = pl.col("item").replace_strict(why, default=None, return_dtype=pl.String)
    excluded = pl.when(pl.col("answer").is_null()).then(reasons)
    answers = table(rows).with_columns(excluded=excluded)
    suite = make_suite()
    for protocol, counts in (("strict", "3 of 6 facts: 3"), ("published", "3 of 7 facts: 4")):
        found = facts_left_out(measure(answers, suite, protocol), suite)
        assert found == f"Accuracy is over {counts} have no answer (see the notes)."
    all_asked = answers.filter(pl.col("item").is_in(["1", "2", "3"]))
    assert facts_left_out(measure(all_asked, suite, "strict"), suite) == ""
    many = make_suite(cardinality="N-M")
    assert facts_left_out(measure(answers, many, "strict"), many) == ""


def test_numbers_may_stand_for_text():
    rows = table([("1", "5", "7", ["7", "7", "8"])])
    numbers = rows.with_columns(pl.col("item", "subject", "gold", "answer").cast(pl.Int64))
    found = values(measure(numbers, make_suite(), "strict"))
    assert (found["accuracy"], found["consistency"]) == (1, 1 / 3)


ANY_PATTERNS = ("[X] is a [Y].", "[X] is an [Y] .", "[Y] is [X].", "the [Y], [X]")
ANY_WORD = st.sampled_from(["apple", "pear", "orange", "fig"])
RELEASED_ROWS = st.tuples(
    st.sampled_from(["s1", "s2", "s3", "s4", "s5"]), ANY_WORD, st.tuples(*[ANY_WORD] * 4)
)


def released_rules(rows, patterns, edges):
    """The released evaluation's counting, written down plainly from its description.

    ``rows``: (subject, gold, answers by pattern) in order of appearance.
    """
    by_pattern = {p: {} for p in patterns}
    for subject, gold, answers in rows:
        for p, answer in zip(patterns, answers, strict=True):
            by_pattern[p][subject] = (answer, gold)  # the last row of a subject stays

    def skipped(pattern, gold):
        words = pattern.split(" ")
        at = [n for n, word in enumerate(words) if "[Y]" in word][0]
        vowel = gold.lower()[:1] in "aeiou"
        return at > 0 and words[at - 1] == ("a" if vowel else "an")

    hits = total = 0
    edit_hits, edit_total = Counter(), Counter()
    right_patterns, right_subjects = {}, {}
    pairs_of = defaultdict(list)
    for p in patterns:
        for subject, (answer, gold) in by_pattern[p].items():
            if skipped(p, gold):
                continue
            right_subjects[subject] = right_subjects.get(subject, 0) + (answer == gold)
            right_patterns[p] = right_patterns.get(p, 0) + (answer == gold)
            for q in patterns:
                if q == p or skipped(q, gold):
                    continue
                same = answer == by_pattern[q][subject][0]
                hits, total = hits + same, total + 1
                pairs_of[subject].append(same)
                kind = edges[tuple(sorted((patterns.index(p), patterns.index(q))))].kind
                edit_hits[kind] += same
                edit_total[kind] += 1
    known = [s for s in pairs_of if right_subjects[s] > 0]
    unknown = [s for s in pairs_of if right_subjects[s] == 0]

    def pooled(subjects):
        count = sum(len(pairs_of[s]) for s in subjects)
        return sum(sum(pairs_of[s]) for s in subjects) / count if count else 0

    found = {
        "accuracy": sum(a[0] == gold for _, gold, a in rows) / len(rows),
        "consistent_accuracy": sum(set(a) == {gold} for _, gold, a in rows) / len(rows),
        "consistent_wrong": sum({gold} != set(a) == {a[0]} for _, gold, a in rows) / len(rows),
        "consistency": hits / total if total else math.nan,
        "successful_patterns": sum(n > 0 for n in right_patterns.values()) / len(right_patterns),
        "successful_objects": sum(n > 0 for n in right_subjects.values()) / len(right_subjects),
        "known_consistency": pooled(known),
        "unknown_consistency": pooled(unknown),
    }
    return found, {kind: edit_hits[kind] / n for kind, n in edit_total.items()}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(RELEASED_ROWS, min_size=1, max_size=12), st.integers(0, 2**18))
def test_published_is_the_released_evaluation_to_the_last_digit(rows, bits):
    pairs = [(a, b) for b in range(4) for a in range(b)]
    random_bits = random.Random(bits)
    edges = {pair: Edge(*(random_bits.random() < 0.4 for _ in range(3))) for pair in pairs}
    suite = make_suite(ANY_PATTERNS, edges=edges)
    numbered = [(str(n), *row) for n, row in enumerate(rows)]
    metrics = measure(table(numbered, patterns=ANY_PATTERNS), suite, "published")
    expected, by_edit = released_rules(rows, ANY_PATTERNS, edges)
    found = values(metrics)
    for name, value in expected.items():
        assert found[name] == value or (math.isnan(found[name]) and math.isnan(value)), name
    for kind, value in by_edit.items():
        assert values(metrics, subset=kind)["consistency"] == value


@cache
def strict_by_hand():
    return values(measure(table(HAND), make_suite(), "strict"))


@settings(max_examples=24, deadline=None, derandomize=True)
@given(st.permutations(range(4)), st.permutations(range(3)))
def test_strict_does_not_depend_on_the_order_of_rows_or_names_of_answers(order, names):
    rename = dict(zip("abcd", [f"w{names[n % 3]}{n}" for n in range(4)], strict=True))
    rows = [HAND[n] for n in order]
    renamed = [(*at, rename[gold], [rename[a] for a in answers]) for *at, gold, answers in rows]
    assert values(measure(table(renamed), make_suite(), "strict")) == strict_by_hand()


@pytest.mark.parametrize(("change", "message"), [
    (lambda t: t.drop("gold"), "no column 'gold' among"),
    (lambda t: t.rename({"answer": "answr"}), "no column 'answer'.*mean 'answr'"),
    (lambda t: pl.concat([t, t[:1]]), "another row repeats row 1: R, item '1'"),
    (lambda t: t.clear(), "no rows"),
    ({"variant": pl.lit("[X] is in [Y]")}, r"row 1: .*no variant.*mean"),
    ({"group": pl.lit("r")}, "no relation 'r'.*Known: R"),
    ({"gold": pl.lit(None, pl.String)}, "row 1: no 'gold'"),
    ({"gold": pl.lit(1.5)}, "'gold' is of type Float64; expected text.*Save it as"),
    ({"gold": pl.Series(["a"] * 11 + ["z"])}, "the item '4' of R has several subjects or golds"),
    ({"answer": pl.lit(["a"])}, "'answer' is of type List"),
    ({"gold_token": pl.lit(["a"])},
     "'gold_token' is of type List.*expected text or numbers.*Correct the column, or leave it"),
    ({"n_candidates": pl.lit([1])},
     "'n_candidates' is of type List.*expected text or numbers.*Correct the column"),
])  # fmt: skip
def test_a_bad_table_is_refused_with_the_place(change, message):
    """``change``: columns in place of others, or what is done to the table."""
    whole = table(HAND)
    changed = whole.with_columns(**change) if isinstance(change, dict) else change(whole)
    refused(message, measure, changed, make_suite(), "strict")


def test_a_metric_with_a_name_that_is_taken_is_refused():
    def accuracy(grid):
        raise NotImplementedError

    with pytest.raises(ValueError, match="already"):
        metric("tuples", label="", meaning="")(accuracy)
    assert METRICS["accuracy"].count is not accuracy


def test_every_metric_is_explained_in_the_documentation():
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert not [name for name in [*METRICS, "determinism"] if f"`{name}`" not in text]


@pytest.fixture
def metrics_of_scores(monkeypatch):
    """Two metrics, for one test: margins of the base pattern above 1, and their mean."""
    for registered in (registry.METRICS, registry.DESCRIPTIONS):
        for name in ("confident", "mean_margin"):
            monkeypatch.setitem(registered, name, None)
            del registered[name]

    @metric("tuples", label="Confident", meaning="clear answers", scores=("margin",))
    def confident(grid):
        margins = grid.scores["margin"][:, 0]
        return Tally.of_hits(grid.subjects, margins > 1, ~np.isnan(margins))

    @metric("tuples", label="Margin", meaning="margin", scores=("margin",), bounds=(0, 10))
    def mean_margin(grid):
        margins = grid.scores["margin"][:, 0]
        known = ~np.isnan(margins)
        counts = np.stack([np.nan_to_num(margins), known], axis=1).astype(np.float32)
        return Tally(counts, grid.subjects, int(known.sum()), finish=ratio)


@pytest.mark.parametrize("protocol", ["published", "strict"])
def test_a_metric_may_read_scores(metrics_of_scores, protocol):
    """Margins 2, 0.5, none and 3 of the base pattern: 2 of the 3 that are known are above 1."""
    rows = table(HAND)
    margins = pl.Series([2.0, 9, 9, 0.5, 9, 9, None, 9, 9, 3.0, 9, 9])
    scored = rows.with_columns(margin=margins)
    measured = measure(scored, make_suite(), protocol)
    row, mean = (row_of(measured, name) for name in ("confident", "mean_margin"))
    assert (row["value"], row["n"], row["n_excluded"]) == (pytest.approx(2 / 3), 3, 1)
    assert mean["value"] == pytest.approx((2 + 0.5 + 3) / 3)
    assert 0 < mean["low"] < mean["value"] < mean["high"] < 10, "1 is no limit"
    none = row_of(measure(rows, make_suite(), protocol), "confident")
    assert (none["n"], none["n_excluded"]) == (0, 4), "a table without margins has no data"
    assert math.isnan(none["value"])
    text = scored.with_columns(margin=pl.lit("high"))
    assert row_of(measure(text, make_suite(), protocol), "confident")["n"] == 0


def of_questions(rows, options=4, levels=("given", "reversed")):
    """A suite of one group of questions, and its table; ``rows``: item, gold, options answered."""
    facts = tuple(Fact(item, item, gold) for item, gold, _ in rows)
    design = Design.of_cells(FactorialDesign.full([Factor("order", levels)]), options)
    group = Relation.of_design("g", facts, Candidates.of(facts), design)
    cells = [
        ("g", item, item, variant, gold, answer, "abcd".find(answer), "abcd".find(gold), options)
        for item, gold, answers in rows
        for variant, answer in zip(design.variants, answers, strict=True)
    ]
    columns = ["group", "item", "subject", "variant", "gold", "answer", "option", "gold_option"]
    answers = pl.DataFrame(cells, [*columns, "n_candidates"], orient="row")
    written = pl.when(pl.col("option") >= 0).then("option")
    return Suite("q", (group,), words=QUESTION_WORDS), answers.with_columns(option=written)


def test_a_metric_that_a_seed_lacks_is_left_out_in_any_order():
    """One seed writes a text that is no option, so it alone has a share of such texts."""
    suite, right = of_questions([(f"i{at}", "abcd"[at % 4], "abcd"[at % 4] * 2) for at in range(8)])
    _, wrong = of_questions([("i0", "a", "x?"), *((f"i{at}", "abcd"[at % 4], "abcd"[at % 4] * 2)
                                                  for at in range(1, 8))])  # fmt: skip
    found = [measure(seeds, suite) for seeds in ([right, wrong], [wrong, right])]
    assert "no_label" in measure(wrong, suite)["metric"]
    assert all("no_label" not in metrics["metric"] for metrics in found)
    assert values(found[0], "MICRO") == pytest.approx(values(found[1], "MICRO"), nan_ok=True)


TWO_PATTERNS = ["[X] is [Y].", "[X] was [Y]."]


def test_groups_without_data_bring_no_clusters():
    """A and B have the same 10 subjects, C 30 others and no answers."""
    facts = {group: {f"{start}{at}": "xyz"[at % 3] for at in range(size)}
             for group, start, size in (("A", "p", 10), ("B", "p", 10), ("C", "c", 30))}  # fmt: skip
    suite = Suite.from_patterns(dict.fromkeys(facts, TWO_PATTERNS), facts)
    rows = [
        (group.id, fact.item, fact.subject, pattern.text, fact.object, None if group.id == "C" else fact.object)
        for group in suite for fact in group.facts for pattern in group.patterns
    ]  # fmt: skip
    answers = pl.DataFrame(rows, list(table([]).columns), orient="row")
    pooled = row_of(measure(answers, suite, precision=True), "accuracy", "MICRO")
    assert (pooled["value"], pooled["clusters"]) == (1, 10)
    # Clopper-Pearson of 10 of 10
    assert pooled["low"] == pytest.approx(0.025 ** (1 / 10), abs=1e-3)


def test_the_pooled_difference_has_the_clusters_of_all_groups():
    """In B one model always says the same, so it has no chance-corrected difference there."""
    draw = random.Random(0)
    facts = {group: {f"{group}{at}": "xyz"[at % 3] for at in range(12)} for group in "AB"}
    suite = Suite.from_patterns(dict.fromkeys(facts, TWO_PATTERNS), facts)

    def run(constant):
        rows = [
            (group.id, fact.item, fact.subject, pattern.text, fact.object,
             "x" if constant and group.id == "B" else draw.choice("xyz"))
            for group in suite for fact in group.facts for pattern in group.patterns
        ]  # fmt: skip
        return pl.DataFrame(rows, list(table([]).columns), orient="row")

    rows = compare({"a": run(False), "b": run(True)}, suite, "strict", precision=True)
    rows = rows.filter(metric="corrected_consistency", subset="all")
    clusters = dict(rows.select("group", "clusters").iter_rows())
    assert rows.filter(group="B")["difference"].is_nan().all()
    assert clusters["MICRO"] == 24


def test_variants_that_an_item_lacks_are_no_missing_answers():
    """Two questions have three phrasings, eight have one; all are answered."""
    rows = [{"question": f"{at}?", "answer": "a", "options": ["a", "b"], **{
        f"question_{n}": f"{at} or {n}?" for n in (2, 3) if at < 2}} for at in range(10)]  # fmt: skip
    metrics = cs.evaluate(
        rows, lambda prompts: ["A"] * len(prompts), vary=["paraphrase=all"]
    ).metrics
    for name, n in (("consistency", 6), ("mean_accuracy", 14), ("top_answer", 14)):
        row = row_of(metrics, name, "MICRO" if name != "top_answer" else "questions")
        assert (row["n"], row["n_excluded"]) == (n, 0), name


def test_subjects_without_an_answer_are_no_clusters():
    """Two relations of the same subjects, of which the same four are answered: four clusters."""
    found = []
    for size in (4, 12):
        facts = tuple(Fact(str(at), f"s{at}", "ab"[at == 0]) for at in range(size))
        patterns = tuple(map(Pattern.parse, PATTERNS[:2]))
        more = ("N-1", patterns, facts, {}, Candidates.of(facts))
        suite = Suite("hand", tuple(Relation(id_, id_, *more) for id_ in "PQ"), "strict")
        answers = [(one.object if at < 4 else None,) * 2 for at, one in enumerate(facts)]
        rows = [
            (one.item, one.subject, one.object, of) for one, of in zip(facts, answers, strict=True)
        ]
        tables = pl.concat(table(rows, id_, PATTERNS[:2]) for id_ in "PQ")
        row = row_of(measure(tables, suite, precision=True), "accuracy", "MICRO")
        found.append((row["clusters"], row["low"], row["high"]))
    assert found[0] == found[1]
    assert found[0] == (4, pytest.approx(0.025 ** (1 / 4)), 1)
