"""Expectations: their files, and how often answers violate them, by hand and as properties."""

import itertools
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import refused
from conftest import ROOT, cases
from consilience.core.expectations import Expectation, Reference, instances
from consilience.core.factors import Design, Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.metrics.differences import compare
from consilience.metrics.measure import measure
from consilience.metrics.registry import METRICS
from consilience.suites.expectations import expectations_of_rows, with_expectations
from consilience.suites.question_suites import load_questions
from consilience.suites.questions import Questions
from consilience.types import PAIR_WORDS, Candidates, Relation, Suite
from grids import grid_of

YES_NO = (Choice("yes", ("true",)), Choice("no", ("false",)))
LABELS = tuple(map(Choice, ("entailment", "neutral", "contradiction")))


def question(item, options=YES_NO, phrasings=1):
    texts = tuple(f"{item} {at}" for at in range(phrasings))
    return Question(item, "g", {"": texts}, (options or (Choice("x"),))[0], options)


SUITE = Questions("s", (
    *(question(item) for item in ("a", "b", "c")), question("p", phrasings=2),
    question("nli", LABELS), question("nli-2", LABELS),
    question("mother", tuple(map(Choice, ("Mary", "Ann")))),
    question("child", tuple(map(Choice, ("Tom", "Bob", "Joe")))),
    question("open", ()), question("open-2", ()),
))  # fmt: skip


def read(*rows):
    """The expectations of rows, and the messages of their problems."""
    problems = []
    placed = [(f"row {at}", row) for at, row in enumerate(rows, start=1)]
    return expectations_of_rows(placed, SUITE, problems), [str(problem) for problem in problems]


def one(**row):
    """The expectation of a row without problems."""
    (expectation,), problems = read(row)
    assert problems == []
    return expectation


def verdicts(expectation):
    """What each combination of answers is: permitted, not, or not expected."""
    options = [reference.options for reference in expectation.references]
    return {
        " ".join(text[0] for text in answers): expectation.permits(answers[:-1], answers[-1])
        for answers in itertools.product(*options)
    }


@pytest.mark.parametrize(("row", "expected"), [
    ({"kind": "same"}, (True, False, False, True)),
    ({"kind": "different"}, (False, True, True, False)),
    ({"kind": "implied", "map": "yes -> no"}, (False, True, None, None)),
    ({"kind": "implied", "map": {True: False}}, (False, True, None, None)),  # true is an alias
])  # fmt: skip
def test_what_each_kind_permits(row, expected):
    expectation = one(**row, item="a", other_item="b")
    assert verdicts(expectation) == dict(zip(("y y", "y n", "n y", "n n"), expected, strict=True))
    assert Expectation.of_record(json.loads(json.dumps(expectation.to_record()))) == expectation


def test_premises_imply_a_conclusion():
    """Transitivity: a and b imply c; a map may permit several answers, in any language."""
    expectation = one(kind="implied", item=["a", "b"], other_item="c", map="yes & yes -> yes")
    assert expectation.permits(("yes", "yes"), "no") is False
    assert expectation.permits(("yes", "no"), "no") is None
    several = {"yes & yes": ["neutral", "contradiction"], "no & no": "entailment | neutral"}
    expectation = one(kind="implied", item="a;b", other_item="nli", map=several)
    both_yes, both_no = ("yes", "yes"), ("no", "no")
    several = {both_yes: ("neutral", "contradiction"), both_no: ("entailment", "neutral")}
    assert expectation.rules == several


def test_the_same_rows_in_each_kind_of_file(tmp_path):
    rows = [
        {"kind": "implied", "item": "a", "other_item": "b", "map": "yes -> no; no -> yes"},
        {"kind": "same", "item": "a", "other_item": "c"},
    ]
    texts = {
        "e.jsonl": "\n".join(map(json.dumps, rows)),
        "e.json": json.dumps(rows),
        "e.csv": "kind,item,other_item,map\nimplied,a,b,yes -> no; no -> yes\nsame,a,c,\n",
    }
    expected, _ = read(*rows)
    assert [len(one.premises) for one in expected] == [1, 1]
    assert expected[1].references == tuple(Reference(item, ("yes", "no")) for item in "ac")
    for name, text in texts.items():
        folder = tmp_path / name
        folder.mkdir()
        path = folder / f"expectations.{name.partition('.')[2]}"
        path.write_text(text, encoding="utf-8")
        problems = []
        assert with_expectations(SUITE, folder, problems).expectations == expected, name
        assert problems == []
    (tmp_path / "e.csv" / "expectations.json").write_text("[]")
    message = "both expectations.csv and expectations.json"
    refused(message, with_expectations, SUITE, tmp_path / "e.csv", [])


@pytest.mark.parametrize(("row", "message"), cases("expectations_bad"))
def test_each_mistake_is_one_message_with_its_place(row, message):
    expectations, (problem,) = read(row)
    assert expectations == ()
    assert problem.startswith("row 1")
    assert message in problem


@pytest.mark.parametrize(("first", "second", "message"), cases("expectations_twice"))
def test_duplicates_are_reported(first, second, message):
    expectations, problems = read(first, second)
    assert len(expectations) == (2 if not message else 1)
    assert [message in problem for problem in problems] == ([True] if message else [])


# Counts.


def pair(kind, first, second, *, rules=None, options=("yes", "no")):
    left, right = (Reference(item, options) for item in (first, second))
    return Expectation(kind, (left,), right, rules or {})


def violation_tallies(expectations, replies, variants):
    """Both metrics of expectations, over all of them and by kind; variants are called 0, 1, ..."""
    named = {(item, str(at)): answer for (item, at), answer in replies.items()}
    counted = [tuple(instances(one, named, map(str, range(variants)), {})) for one in expectations]
    grid = grid_of(np.zeros((0, 1)), instances=tuple(of for of in counted if of))
    subsets = dict.fromkeys(of[0].expectation.kind for of in grid.instances)
    grids = {"all": grid} | {subset: grid.only_expectations(subset) for subset in subsets}
    return {
        (metric, subset): tally
        for subset, part in grids.items()
        for metric in ("violation_rate", "chance_violation_rate")
        if (tally := METRICS[metric].tally(part)) is not None
    }


def value(tallies, metric, subset="all"):
    return tallies[metric, subset].value


def rates(expectations, replies, variants=1):
    """How often expectations are violated, and how often by chance."""
    tallies = violation_tallies(expectations, replies, variants)
    return [value(tallies, name) for name in ("violation_rate", "chance_violation_rate")]


def test_rates_by_hand():
    """Four pairs of yes and no: yy, yn, nn, ny, and one without an answer.

    same: 2 of 4 are violated. Chance level, with the last answers of the other three: 2/3, 1/3, 2/3
    and 1/3.
    """
    answers = ["yy", "yn", "nn", "ny", "y-"]
    replies = {
        (f"{side}{at}", 0): {"y": "yes", "n": "no", "-": None}[letter]
        for at, letters in enumerate(answers)
        for side, letter in zip("ab", letters, strict=True)
    }
    every = [pair("same", f"a{at}", f"b{at}") for at in range(6)]  # the last was not asked
    tallies = violation_tallies(every, replies, 1)
    names = ("violation_rate", "chance_violation_rate")
    assert list(tallies) == [(name, subset) for subset in ("all", "same") for name in names]
    assert value(tallies, "violation_rate") == 2 / 4
    assert value(tallies, "chance_violation_rate") == pytest.approx(1 / 2)
    share = tallies["violation_rate", "same"]
    assert (share.n, share.left_out) == (4, 1)


def test_chance_of_an_implication_by_hand():
    """Three of five premises are yes, and the first conclusion alone is no: a third.

    Chance level: no other conclusion violates the first one, one of four the other two.
    """
    premises, conclusions = ["yes"] * 3 + ["no"] * 2, ["no"] + ["yes"] * 4
    replies = {(f"a{at}", 0): text for at, text in enumerate(premises)}
    replies |= {(f"b{at}", 0): text for at, text in enumerate(conclusions)}
    rules = {("yes",): ("yes",)}
    every = [pair("implied", f"a{at}", f"b{at}", rules=rules) for at in range(5)]
    assert rates(every, replies) == pytest.approx([1 / 3, (0 + 1 / 4 + 1 / 4) / 3])


def test_other_options_are_compared_by_their_position():
    """Reversal: every conclusion has options of its own; the model takes the first in two of 3.

    Right are the positions 0, 1, 1; the other two took 0 and 1, 0 and 1, 0 and 0.
    """
    expectations, replies = [], {}
    for at, right in enumerate([0, 1, 1]):
        options = (f"x{at}", f"y{at}")
        conclusion = Reference(f"b{at}", options)
        premise = Reference(f"a{at}", ("yes", "no"))
        rules = {("yes",): (options[right],)}
        expectations.append(Expectation("implied", (premise,), conclusion, rules))
        replies |= {(f"a{at}", 0): "yes", (f"b{at}", 0): options[(0, 0, 1)[at]]}
    assert rates(expectations, replies) == pytest.approx([1 / 3, (1 / 2 + 1 / 2 + 1) / 3])


def test_without_expectations_and_without_answers():
    assert violation_tallies([], {}, 1) == {}
    assert violation_tallies([pair("same", "a", "b")], {}, 1) == {}
    replies = {("a", 0): None, ("b", 0): "yes"}
    assert np.isnan(rates([pair("same", "a", "b")], replies)).all()
    tallies = violation_tallies([pair("same", "a", "b")], replies, 1)
    assert tallies["violation_rate", "all"].left_out == 1


def test_an_expectation_without_another_has_no_chance_level():
    """One pair. With a second kind, and in a variant that only one pair was asked in, neither."""
    replies = {(item, 0): "yes" for item in "ab"}
    tallies = violation_tallies([pair("same", "a", "b")], replies, 1)
    share = tallies["chance_violation_rate", "same"]
    assert np.isnan(share.value)
    assert (share.n, share.left_out) == (0, 1)
    both = [pair("same", "a", "b"), pair("different", "a", "b")]
    assert np.isnan(rates(both, replies)[1])
    replies |= {("a", 1): "yes", ("b", 1): "no", ("c", 1): "yes", ("d", 1): "yes"}
    both = [pair("same", "a", "b"), pair("same", "c", "d")]
    tallies = violation_tallies(both, replies, 2)
    share = tallies["chance_violation_rate", "all"]
    assert (share.value, share.n, share.left_out) == (pytest.approx(1 / 6), 3, 0)  # b for d


def test_chance_is_of_all_variants():
    """A model that says yes in one variant and no in the other differs from half of its answers."""
    replies = {(item, v): ("yes", "no")[v] for item in "abcd" for v in (0, 1)}
    both = [pair("same", "a", "b"), pair("same", "c", "d")]
    assert rates(both, replies, 2) == [0, 1 / 2]


def test_clusters_are_connected_components():
    """a-b and b-c have b in common, and d-e nothing; of one kind only its expectations connect."""
    replies = {(item, 0): "yes" for item in "abcde"}
    pairs = [pair("same", *items) for items in ("ab", "de", "cb")] + [pair("different", "d", "c")]
    tallies = violation_tallies(pairs, replies, 1)
    assert tallies["violation_rate", "all"].clusters.names.tolist() == ["a"]
    assert tallies["violation_rate", "same"].clusters.places.tolist() == [0, 1, 0]
    assert tallies["violation_rate", "different"].clusters.names.tolist() == ["d"]


OPPOSITE = {("yes",): ("no",), ("no",): ("yes",)}
ANSWERS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)


@settings(deadline=None)
@given(ANSWERS)
def test_kinds_of_yes_and_no_agree_with_each_other(pairs):
    """same and different are complements; implied the other one is different.

    Chance of same is how often the last answer of another pair differs from the first one.
    """
    names = {True: "yes", False: "no"}
    replies = {(f"{side}{at}", 0): names[both[side == "b"]] for at, both in enumerate(pairs) for side in "ab"}  # fmt: skip
    count, by_kind = len(pairs), {}
    for kind in ("same", "different", "implied"):
        rules = OPPOSITE if kind == "implied" else {}
        every = [pair(kind, f"a{at}", f"b{at}", rules=rules) for at in range(count)]
        by_kind[kind] = rates(every, replies)
    two = itertools.permutations(range(count), 2)
    others = [pairs[at][0] == pairs[other][1] for at, other in two]
    agree = np.mean(others) if others else np.nan
    rate = np.mean([first != second for first, second in pairs])
    assert by_kind["same"] == pytest.approx([rate, 1 - agree], nan_ok=True)
    for kind in ("different", "implied"):
        assert by_kind[kind] == pytest.approx([1 - rate, agree], nan_ok=True)


# The suites in examples/.

EXAMPLES = sorted(path.parent for path in (ROOT / "examples/consistency").glob("*/questions.csv"))


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_the_right_answers_meet_the_expectations_of_the_examples(folder):
    questions = load_questions(folder)
    assert len(EXAMPLES) == 5
    golds = {question.item: question.gold.text for question in questions.items}
    assert len(golds) >= 24
    assert len(questions.expectations) >= 24
    replies = {(item, at): gold for item, gold in golds.items() for at in (0, 1)}
    tallies = violation_tallies(questions.expectations, replies, 2)
    assert value(tallies, "violation_rate") == 0
    assert len(tallies["violation_rate", "all"].clusters.names) == 24
    about = {item for expectation in questions.expectations for item in expectation.items}
    assert about == set(golds)  # no question without an expectation


def test_a_variant_has_a_name_and_a_level_of_each_factor():
    """Levels are never read from the name: a level may be any text."""
    factors = [Factor("template", ("a, b", "x, order=BA")), Factor("order", ("AB", "BA"))]
    design = Design.of_cells(FactorialDesign.full(factors), 2)
    assert design.variants[3] == "template=x, order=BA, order=BA"
    assert design.levels == {
        "template": ("a, b", "a, b", "x, order=BA", "x, order=BA"),
        "order": ("AB", "BA", "AB", "BA"),
    }
    assert design.only([3]).levels == {"template": ("x, order=BA",), "order": ("BA",)}
    assert FactorialDesign.full([Factor("order", ("AB",))]).names == ("order=AB",)
    assert (FactorialDesign.full([]).names, FactorialDesign.full([]).levels) == (("base",), {})


# In tables of answers.


ORDERS = ("order=AB", "order=BA")


def suite_of(*expectations, variants=ORDERS):
    """A group of questions in two variants, as they are counted."""
    design = Design.of_forms(variants, ["yes", "no"])
    relation = Relation("g", "g", "N-1", (), (), {}, Candidates((), ()), design)
    return Suite("s", (relation,), expectations=expectations, words=PAIR_WORDS)


def answers_of(variants=ORDERS, **texts):
    """An answers table: the answers to each question in both variants; ``-`` is no answer.

    ``x`` is a text that is no option, and ``Y`` a text that reads like one but is none.
    """
    known = {"y": ("yes", 0), "n": ("no", 1), "-": (None, None), "x": ("x", None), "Y": ("yes", None)}  # fmt: skip
    rows = [
        ("g", item, item, name, "yes", *known[letter])
        for item, letters in texts.items()
        for name, letter in zip(variants, letters, strict=True)
    ]
    columns = ["group", "item", "subject", "variant", "gold", "answer", "option"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def row_of(table, metric, subset):
    return table.filter(metric=metric, level=subset.replace("all", ""), group="g").row(
        0, named=True
    )


def test_the_metrics_table_has_violations_by_kind():
    """same: yy against yn and nn, 3 of 4. An answer that is no option agrees with no other one."""
    suite = suite_of(
        pair("same", "a", "b"), pair("same", "c", "d"), pair("different", "e", "f"),
        pair("same", "a", "absent"),
    )  # fmt: skip
    table = measure(answers_of(a="yy", b="yn", c="yy", d="nn", e="xn", f="x-"), suite)
    same = row_of(table, "violation_rate", "same")
    assert [same[name] for name in ("value", "n", "n_excluded")] == [3 / 4, 4, 0]
    assert 0 < same["low"] < 3 / 4 < same["high"] < 1
    different = row_of(table, "violation_rate", "different")
    assert [different[name] for name in ("value", "n", "n_excluded")] == [0, 2, 0]
    assert np.isnan(different["low"])  # one cluster
    assert row_of(table, "violation_rate", "all")["value"] == 3 / 6
    # All first answers are yes; of the last ones half in the given order, and none in the other.
    assert row_of(table, "chance_violation_rate", "same")["value"] == 3 / 4


def test_no_option_agrees_with_nothing_where_options_differ():
    """Positions 0 and none; after x0 the other last answer, which is no option, violates same."""
    expectations, replies = [], {}
    for at, last in enumerate(["x0", ""]):
        options = (f"x{at}", f"y{at}")
        expectations.append(pair("same", f"a{at}", f"b{at}", options=options))
        replies |= {(f"a{at}", 0): f"x{at}", (f"b{at}", 0): last}
    assert rates(expectations, replies) == [1 / 2, (1 + 0) / 2]


def test_what_has_no_answer_is_not_the_same():
    """In the first run one order of b and of d differ, in the second b has no answer in one."""
    suite = suite_of(pair("same", "a", "b"), pair("same", "c", "d"))
    first = answers_of(a="yy", b="yn", c="yy", d="ny")
    second = answers_of(a="yy", b="y-", c="yy", d="yy")
    row = row_of(compare({"1": first, "2": second}, suite, "strict"), "violation_rate", "same")
    assert [row["first_value"], row["second_value"]] == pytest.approx([2 / 4, 1 / 4])
    assert row["difference"] == pytest.approx(-1 / 4)
    assert row["n"] == 4
