"""Expectations: files, counts by hand, tables of answers, and runs."""

import itertools
import json
import math
import re
import runpy
import shutil

import numpy as np
import polars as pl
import pytest

import consilience as cs
from checks import output, refused
from conftest import ROOT, cases
from consilience.core.factors import (
    Design,
    Expectation,
    Factor,
    FactorialDesign,
    Reference,
    instances,
)
from consilience.core.items import Choice, Question
from consilience.metrics.differences import compare
from consilience.metrics.measure import measure
from consilience.metrics.registry import METRICS
from consilience.models.functions import Function
from consilience.options.commands import ProbeOptions
from consilience.plans.factors import factors_of
from consilience.probing import probe
from consilience.report.layouts import comparison_table
from consilience.runs.run import Run
from consilience.suites import check_suite
from consilience.suites.question_suites import (
    expectations_of_rows,
    load_questions,
    select_questions,
    with_expectations,
)
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
    one = {"kind": "implied", "item": "a", "other_item": "b", "map": "yes -> no; no -> yes"}
    rows = [one, {"kind": "same", "item": "a", "other_item": "c"}]
    expected, _ = read(*rows)
    assert [len(one.premises) for one in expected] == [1, 1]
    assert expected[1].references == tuple(Reference(item, ("yes", "no")) for item in "ac")
    for kind, text in (
        ("jsonl", "\n".join(map(json.dumps, rows))), ("json", json.dumps(rows)),
        ("csv", "kind,item,other_item,map\nimplied,a,b,yes -> no; no -> yes\nsame,a,c,\n"),
    ):  # fmt: skip
        file, problems = tmp_path / f"expectations.{kind}", []
        file.write_text(text, encoding="utf-8")
        assert with_expectations(SUITE, tmp_path, problems).expectations == expected, kind
        assert problems == []
        file.unlink() if kind != "csv" else (tmp_path / "expectations.json").write_text("[]")
    message = "both expectations.csv and expectations.json"
    refused(message, with_expectations, SUITE, tmp_path, [])


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


def rates(expectations, replies, variants=1):
    """How often expectations are violated, and how often by chance."""
    tallies = violation_tallies(expectations, replies, variants)
    return [tallies[name, "all"].value for name in ("violation_rate", "chance_violation_rate")]


def pairs_of(kind, letters, **rules):
    """A pair of questions for each two letters (``-``: no answer), and their answers."""
    texts = {"y": "yes", "n": "no", "-": None}
    every = [pair(kind, f"a{at}", f"b{at}", **rules) for at in range(len(letters))]
    return every, {
        (f"{side}{at}", 0): texts[letter]
        for at, both in enumerate(letters)
        for side, letter in zip("ab", both, strict=True)
    }


YES = {"rules": {("yes",): ("yes",)}}


@pytest.mark.parametrize(("kind", "letters", "rules", "rate", "chance", "n", "left_out"), [
    # 2 of 4 are violated; by chance, with the last answers of the other three, 2/3, 1/3, 2/3, 1/3.
    ("same", ("yy", "yn", "nn", "ny", "y-"), {}, 2 / 4, 1 / 2, 4, 1),
    # Three premises are yes, and the first conclusion alone is no. By chance no other conclusion
    # violates the first one, one of four the other two.
    ("implied", ("yn", "yy", "yy", "ny", "ny"), YES, 1 / 3, (0 + 1 / 4 + 1 / 4) / 3, 3, 0),
    ("same", ("-y",), {}, math.nan, math.nan, 0, 1),
    ("same", ("yy",), {}, 0, math.nan, 1, 0),  # none other has a chance level
])  # fmt: skip
def test_rates_by_hand(kind, letters, rules, rate, chance, n, left_out):
    every, replies = pairs_of(kind, letters, **rules)
    every.append(pair(kind, "not", "asked", **rules))
    tallies = violation_tallies(every, replies, 1)
    assert rates(every, replies) == pytest.approx([rate, chance], nan_ok=True)
    share = tallies["violation_rate", kind]
    assert (share.n, share.left_out) == (n, left_out)


def test_other_options_are_compared_by_their_position_and_none_agrees_with_nothing():
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
    pairs, replies = [], {}
    for at, last in enumerate(["x0", ""]):  # positions 0 and none: after x0 none violates same
        pairs.append(pair("same", f"a{at}", f"b{at}", options=(f"x{at}", f"y{at}")))
        replies |= {(f"a{at}", 0): f"x{at}", (f"b{at}", 0): last}
    assert rates(pairs, replies) == [1 / 2, (1 + 0) / 2]


def test_an_expectation_without_another_has_no_chance_level():
    """Nothing, one pair, a second kind; and a variant that only one pair was asked in."""
    one, replies = pair("same", "a", "b"), {(item, 0): "yes" for item in "ab"}
    assert violation_tallies([], {}, 1) == violation_tallies([one], {}, 1) == {}
    share = violation_tallies([one], replies, 1)["chance_violation_rate", "same"]
    assert (share.n, share.left_out) == (0, 1)
    assert np.isnan(rates([one, pair("different", "a", "b")], replies)[1])
    replies |= {("a", 1): "yes", ("b", 1): "no", ("c", 1): "yes", ("d", 1): "yes"}
    tallies = violation_tallies([one, pair("same", "c", "d")], replies, 2)
    share = tallies["chance_violation_rate", "all"]
    assert (share.value, share.n, share.left_out) == (1 / 2, 2, 1)  # b for d, not d for b


def test_clusters_are_connected_components():
    """a-b and b-c have b in common, and d-e nothing; of one kind only its expectations connect."""
    replies = {(item, 0): "yes" for item in "abcde"}
    pairs = [pair("same", *items) for items in ("ab", "de", "cb")] + [pair("different", "d", "c")]
    tallies = violation_tallies(pairs, replies, 1)
    assert tallies["violation_rate", "all"].clusters.names.tolist() == ["a"]
    assert tallies["violation_rate", "same"].clusters.places.tolist() == [0, 1, 0]
    assert tallies["violation_rate", "different"].clusters.names.tolist() == ["d"]


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
    assert tallies["violation_rate", "all"].value == 0
    assert len(tallies["violation_rate", "all"].clusters.names) == 24
    about = {item for expectation in questions.expectations for item in expectation.items}
    assert about == set(golds)  # no question without an expectation


def test_a_variant_has_a_name_and_a_level_of_each_factor():
    """Levels are never read from the name: a level may be any text."""
    factors = [Factor("template", ("a, b", "x, order=BA")), Factor("order", ("AB", "BA"))]
    design = Design.of_cells(FactorialDesign.full(factors), 2)
    assert design.variants[3] == "template=x, order=BA, order=BA"
    templates = ("a, b", "a, b", "x, order=BA", "x, order=BA")
    assert design.levels == {"template": templates, "order": ("AB", "BA", "AB", "BA")}
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
    rows = [("g", item, item, name, "yes", *known[letter]) for item, letters in texts.items()
            for name, letter in zip(variants, letters, strict=True)]  # fmt: skip
    columns = ["group", "item", "subject", "variant", "gold", "answer", "option"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def row_of(table, metric, level=""):
    return table.filter(metric=metric, level=level, group="g").row(0, named=True)


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
    assert row_of(table, "violation_rate")["value"] == 3 / 6
    # All first answers are yes; of the last ones half in the given order, and none in the other.
    assert row_of(table, "chance_violation_rate", "same")["value"] == 3 / 4


def test_what_has_no_answer_is_not_the_same():
    """In the first run one order of b and of d differ, in the second b has no answer in one."""
    suite = suite_of(pair("same", "a", "b"), pair("same", "c", "d"))
    first = answers_of(a="yy", b="yn", c="yy", d="ny")
    second = answers_of(a="yy", b="y-", c="yy", d="yy")
    row = row_of(compare({"1": first, "2": second}, suite, "strict"), "violation_rate", "same")
    assert [row["first_value"], row["second_value"]] == pytest.approx([2 / 4, 1 / 4])
    assert row["difference"] == pytest.approx(-1 / 4)
    assert row["n"] == 4


QUESTIONS = """item,group,question,question_2,options,answer
a,one,Is A true?,Does A hold?,yes;no,yes
not-a,one,Is A false?,Does A not hold?,yes;no,no
b,one,Is B true?,Does B hold?,yes;no,yes
not-b,one,Is B false?,Does B not hold?,yes;no,no
c,two,Who has C?,Whose is C?,Ann;Bob;Eve,Ann
d,two,Who has D?,Whose is D?,Ann;Bob;Eve,Ann
"""
EXPECTATIONS = """kind,item,other_item,map
different,a,not-a,
different,b,not-b,
implied,a,c,yes -> Ann
same,c,d,
"""


def answers(**options):
    """A model that answers by the words of the question; ``yes`` elsewhere."""

    def answer(prompts):
        for prompt in prompts:
            question = prompt.partition("Question: ")[2].partition("\n")[0]
            yield options.get(question.translate({ord(" "): "_", ord("?"): ""}), "yes")

    return Function(lambda prompts: list(answer(prompts)))


FIRST = {"Is_A_false": "no", "Is_B_false": "no", "Who_has_C": "Ann", "Whose_is_C": "Bob",
         "Who_has_D": "Bob", "Whose_is_D": "Ann"}  # fmt: skip
"""Phrasing 1 of a and b is answered without contradiction, phrasing 2 with yes and yes."""


def written(folder, questions, expectations):
    """A new folder with these questions and expectations."""
    folder.mkdir()
    (folder / "questions.csv").write_text(questions, encoding="utf-8")
    (folder / "expectations.csv").write_text(expectations, encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "facts", QUESTIONS, EXPECTATIONS)


def ask(folder, name, model, **options):
    run = folder.parent / name
    options = {"vary": ["paraphrase", "order=rotations"]} | options
    return run, probe(ProbeOptions(suite=str(folder), out=run, **options), model=model)


def values(metrics, metric):
    rows = metrics.filter(metric=metric).select("over", "group", "level", "value").iter_rows()
    return {(group or over, level): value for over, group, level, value in rows}


def test_a_run_is_counted_by_its_expectations_without_its_suite(folder, consilience):
    """By hand, of two orders and two phrasings each; c has three orders, two of them shared with a.

    different: phrasing 2 of both: 1/2. implied: c is Ann in phrasing 1 only: 1/2. same: 1.
    Of 6 questions half have other answers by chance.
    """
    run, counted = ask(folder, "run", answers(**FIRST))
    few = "With 6 questions the chance-corrected consistency often comes out too low; about "
    assert any(note.startswith(few) for note in counted.notes)
    rates = values(counted.metrics, "violation_rate")
    assert (rates["one", "different"], rates["one", "implied"]) == (1 / 2, 1 / 2)
    assert rates["one", ""] == rates["all", "different"] == 1 / 2
    assert rates["two", "same"] == rates["two", ""] == 1
    # The second answers are no in phrasing 1 and yes in phrasing 2, of both expectations.
    assert values(counted.metrics, "chance_violation_rate")["one", "different"] == 1 / 2
    shown = {row.label: row for row in counted.summary.rows}
    assert shown["Violations, different"].value == shown["Violations, different"].chance == 1 / 2
    assert list(shown)[-3:] == [f"Violations, {kind}" for kind in ("same", "different", "implied")]
    known = load_questions(str(folder)).expectations
    shutil.rmtree(folder)
    again = cs.open_run(run)
    assert again.metrics.equals(counted.metrics) and again.suite.expectations == known
    assert [row.label for row in again.summary.rows][-3:] == list(shown)[-3:]
    output(consilience, "report", run)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<h2>Violations, same</h2>" in page and "Violated expectations</p>" in page


def test_two_runs_are_compared(folder):
    """different: 1/2 and 0. The chance level is compared too."""
    first, _ = ask(folder, "first", answers(**FIRST))
    right = {**FIRST, "Does_A_not_hold": "no", "Does_B_not_hold": "no"}
    second, _ = ask(folder, "second", answers(**right))
    compared = cs.compare(first, second)
    table, suite = compared.table, compared.suite
    rows = table.filter(metric="violation_rate", level="different")
    assert rows["difference"].to_list() == [-1 / 2] * 3, "of the group, their mean, and all"
    shown = {str(row[0]): row[3] for row in comparison_table(table, suite).rows}
    assert shown["Violations, different"].value == -1 / 2
    assert {"Violations, implied", "Violations, same"} <= set(shown)


OPEN = """item,question,answer
is,Which city is the capital of Italy?,Rome
is-not,Which city is not the capital of Italy?,Milan
"""


def test_answers_to_open_questions_are_the_same_if_their_normalized_texts_are(tmp_path):
    """Rome and 'rome.' are the same."""
    folder = written(tmp_path / "open", OPEN, "kind,item,other_item\ndifferent,is,is-not\n")
    both = ("Rome", "rome.")
    model = Function(lambda prompts: [both[" not " in one] for one in prompts])
    counted = probe(ProbeOptions(suite=str(folder), out=folder / "run"), model=model)
    assert values(counted.metrics, "violation_rate")["questions", "different"] == 1


def test_a_sample_has_questions_with_those_that_are_linked_to_them():
    """Of the 24 mothers and the 24 children as many, and each with the other of its pair."""
    questions = load_questions(str(ROOT / "examples" / "consistency" / "reversal"))
    sampled = select_questions(questions, None, 5, 0)
    numbers = {name: sorted(question.item.partition("-")[2] for question in of)
               for name, of in sampled.groups.items()}  # fmt: skip
    assert (len(numbers["mother"]), numbers["mother"]) == (5, numbers["child"])
    assert len(select_questions(questions, None, None, 0)) == 48
    assert select_questions(questions, None, 5, 1).items != sampled.items


def test_open_questions_with_expectations_need_no_variants(tmp_path):
    """One phrasing, no options: without expectations there would be nothing to compare."""
    questions = "item,question,answer\na,Who has A?,Ann\nb,What has Ann?,A\n"
    expected = "kind,item,other_item,map\nimplied,a,b,Ann -> A\n"
    folder = written(tmp_path / "open", questions, expected)
    assert factors_of(ProbeOptions(), load_questions(str(folder))) == []


ONE = "item,question,options,answer\na,Is A true?,yes;no,yes\n"


@pytest.mark.parametrize(("rows", "vary", "variant"), [
    (ONE, ["order=AB"], "order=AB"),
    (ONE, ["labels=1"], "labels=1"),
    ("item,question,answer\na,Who has A?,Ann\n", None, "base"),
])  # fmt: skip
def test_one_variant_alone_is_asked(tmp_path, rows, vary, variant):
    """What needs two variants has no data."""
    suite = tmp_path / "q.csv"
    suite.write_text(rows, encoding="utf-8")
    named = {"suite": str(suite), "out": tmp_path / "run", "model": "baseline:random"}
    counted = probe(ProbeOptions(**named, vary=vary))
    assert Run.open(tmp_path / "run").answers["variant"].to_list() == [variant]
    numbers = {row.metric: row.value for row in counted.summary.rows}
    assert (numbers["accuracy"] in (0, 1), math.isnan(numbers["consistency"])) == (True, True)


def test_an_answer_that_is_no_option_is_noted_by_the_gate(folder, consilience):
    for text, notes in ("no", 1), ("maybe", 2):
        run, _ = ask(folder, text, answers(**{**FIRST, "Is_B_false": text}))
        _, _, err = consilience("gate", run, "--rule", "violation_rate of different <= 99 %")
        assert err.count("note:") == notes


def test_suite_check_covers_expectations(folder, consilience):
    counts = "2 groups, 6 questions with options, 12 phrasings, 4 expectations"
    assert output(consilience, "suite", "check", folder).endswith(f"{folder}: good; {counts}\n")
    (folder / "expectations.csv").write_text("kind,item,other_item\nsame,a,nota\nsome,a,b\n")
    problems = [str(problem) for problem in check_suite(str(folder))]
    assert len(problems) == 2
    assert "expectations.csv:2: no question 'nota'. Did you mean 'not-a'?" in problems[0]
    assert refused("", load_questions, str(folder)).splitlines() == problems


GUIDE = (ROOT / "docs" / "expectations.md").read_text(encoding="utf-8")


def test_the_rows_of_the_guide_fit_the_examples(tmp_path):
    """All rows of its CSV file are about questions of the examples."""
    suites = sorted((ROOT / "examples" / "consistency").glob("*/questions.csv"))
    items = [item for path in suites for item in load_questions(str(path)).items]
    questions = Questions("all", tuple(items))
    (text,) = re.findall(r"```csv\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "expectations.csv").write_text(text, encoding="utf-8")
    problems = []
    read = with_expectations(questions, tmp_path, problems)
    assert (problems, len(read.expectations)) == ([], 5)


def test_the_example_converts_a_file_of_becel(tmp_path, monkeypatch):
    """Rows in the layout of BECEL's boolq/negational.tsv become questions and expectations."""
    (tmp_path / "negational.tsv").write_text(
        "index\tquestion\tpassage\tlabel\tquestion_neg\tneg_label\ttag\n"
        "0\tis tea hot\tTea is hot.\t1\tis tea cold\t0\tantonym\n"
        '1\tis ice "hot"\t"Ice is ""cold""."\t0\tis ice "cold"\t1\tantonym\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "becel.py"))
    questions = load_questions("boolq-negational")
    golds = {question.item: question.gold.text for question in questions.items}
    assert golds == {"0": "yes", "0-neg": "no", "1": "no", "1-neg": "yes"}
    assert questions.items[2].context == 'Ice is "cold".'
    assert [one.kind for one in questions.expectations] == ["implied", "implied"]
