"""``--design random:K``: each question is asked in K variants, drawn from all combinations."""

import json
from collections import Counter

import numpy as np
import polars as pl
import pytest

import consilience as cs
from checks import refused
from conftest import ROOT
from consilience.metrics.registry import METRICS
from consilience.options.commands import ProbeOptions
from consilience.plans.questions import Presented
from consilience.probing import plan_probe
from consilience.report.questions import question_data
from grids import grid_of

VARY = ("order=rotations", "labels=A,1")  # 10 variants of five options
ASKED = {"groups": ("capital", "sport"), "vary": VARY, "design": "random:3", "limit": 12}


def drawn_of(questions=None, **more):
    """(group, item) -> the variants that it is asked in."""
    given = {"suite": "mini-questions", "model": "baseline:first", **ASKED, **more}
    drawn = Presented.of(ProbeOptions(**given), questions).drawn
    return {(group, item): of for group, items in drawn.items() for item, of in items.items()}


def written(count, phrased=0):
    """Questions, of which the first have two phrasings."""
    return [
        {"question": f"Q{at}?", "paraphrases": f"Which {at}?" * (at < phrased), "answer": "a",
         "options": "a;b", "item": str(at)} for at in range(count)
    ]  # fmt: skip


def test_variants_are_used_equally_often_whatever_else_is_asked():
    """20 questions x 3 of 10 variants; neither the limit nor groups nor files change a draw."""
    whole, rows = drawn_of(limit=20), written(9)
    used = Counter((group, at) for (group, _), every in whole.items() for at in every)
    assert {*used.values()} == {6}
    assert len({*whole.values()}) > 20  # not the same variants together
    assert whole != drawn_of(limit=20, seed=1)
    for fewer in (drawn_of(limit=7), drawn_of(limit=20, groups=("sport",))):
        assert fewer == {key: whole[key] for key in fewer}
    first, moved = (
        drawn_of(cs.Questions.from_frame(pl.DataFrame(of), name="own"), groups=None)
        for of in (rows, rows[::-1])
    )
    assert first == moved
    assert drawn_of(design="random:10") == {}  # all: the full design


def test_a_question_that_lacks_variants_gets_those_that_it_has():
    """Two phrasings of five questions, one of three: with the labels four variants and two."""
    frame, vary = pl.DataFrame(written(8, 5)), ["paraphrase", "labels=A,1"]
    run = cs.evaluate(frame, "baseline:first", vary=vary, design="random:3")
    sizes = dict(run.answers["item"].value_counts().rows())
    assert [*map(sizes.get, sorted(sizes))] == [3] * 5 + [2] * 3
    assert "8 questions, 2 to 3 variants each" in run.summary.title
    assert run.metrics.filter(metric="accuracy")["n_excluded"].sum() == 0


def test_linked_questions_are_asked_in_the_same_variants():
    suite = str(ROOT / "examples" / "consistency" / "reversal")
    run = cs.evaluate(suite, "baseline:first", vary=VARY, design="random:2")
    variants = {item: {*of["variant"]} for (item,), of in run.answers.group_by("item")}
    linked = [one.items for one in run.suite.expectations]
    assert linked
    assert all(variants[one] == variants[other] for one, other in linked)


@pytest.mark.parametrize(("more", "message"), [
    ({"design": "random:0"}, "random:0"),
    ({"design": "random:201"}, "random:201"),
    ({"vary": ("order=all", "labels=A,a,1", "template=plain,chat")}, "720 variants.*at most 500"),
])  # fmt: skip
def test_impossible_designs_are_refused(more, message):
    refused(message, cs.evaluate, "mini-questions", "baseline:first", **{**ASKED, **more})


def sparse(rows, **more):
    """A grid without a base variant; 0 is right, None was not drawn."""
    asked = np.array([[of is not None for of in row] for row in rows])
    answers = [[-1 if of is None else of for of in row] for row in rows]
    golds = np.where(asked, 0, -1)
    return grid_of(answers, golds, asked=asked, is_ragged=True, has_base=False, **more)


def test_numbers_by_hand():
    """Accuracy (1/2 + 1/3 + 2/2) / 3, mean accuracy 4/7; pairs agree: 0 of 1, 1 of 3, 1 of 1."""
    grid = sparse([[0, 1, None, None], [None, 0, 1, 1], [0, None, None, 0]])
    names = ("accuracy", "mean_accuracy", "consistency", "consistent_accuracy")
    tallies = [METRICS[name].tally(grid) for name in names]
    assert [of.value for of in tallies] == pytest.approx([11 / 18, 4 / 7, 4 / 9, 1 / 3])
    assert {of.left_out for of in tallies} == {0}
    levels = {"template": [*"aabbccdde"]}  # unequal numbers were asked
    assert len(sparse([[0] * 9] * 3, phrasings=levels).masks) == 5


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return cs.evaluate("mini-questions", "baseline:random", out=folder, **ASKED)


def test_what_is_said_of_a_run(asked):
    assert "24 questions, 3 variants each" in asked.summary.title
    assert asked.summary.rows[0].meaning == "right in a random variant"
    assert "brier_score" not in asked.metrics["metric"]  # of the base variant
    tables = cs.analyze_factors([str(asked.run.path)])
    assert tables.tables["components"].is_empty()
    data = question_data({"a": asked.answers}, asked.suite, asked.run.queries)
    for of_item in data["items"][0][-2:]:  # prompts and replies on the page
        assert (len(of_item), sum(of >= 0 for of in of_item)) == (10, 3)
    other = cs.evaluate("mini-questions", "baseline:first", **ASKED)
    table = cs.compare({"a": asked, "b": other}).table.filter(kind="whole", over="all")
    tests = dict(table.select("metric", "test").rows())
    assert tests["accuracy"] == tests["consistency"] != tests["consistent_accuracy"]
    options = {"suite": "mini-questions", "model": "baseline:random", "out": asked.run.path}
    plan = plan_probe(ProbeOptions(**options, **ASKED))
    assert (plan.queries, plan.complete, plan.timed) == (72, 72, 8)
    assert plan.variants == "3 variants (order 5, labels 2)"


def test_answers_to_what_was_exported_have_the_same_numbers(asked, tmp_path):
    rows, keys = [*cs.export_prompts("mini-questions", **ASKED)], ("group", "item", "variant")
    given = {row[:3]: row[3] for row in asked.answers.select(*keys, "answer").rows()}
    for row in rows:
        row["answer"] = given.pop(tuple(row[of] for of in keys))
    assert not given
    (file := tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ends = [one.metrics.filter(metric=metric, over="all", kind="whole").select("value", "low").row(0)
            for metric in ("accuracy", "corrected_consistency") for one in (asked, cs.score(file))]  # fmt: skip
    assert ends[::2] == [pytest.approx(of, abs=1e-12) for of in ends[1::2]]
