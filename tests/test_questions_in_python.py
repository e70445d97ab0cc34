"""Questions from Python: a value, a frame or a file; runs that are kept; what a result shows."""

import asyncio
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import consilience as cs
from checks import refused

FRAME = {
    "stem": ["What do bees make?", "Who wrote Hamlet?", "Is Kyoto in Japan?"],
    "again": ["Bees make what?", "By whom is Hamlet?", "Is Kyoto Japanese?"],
    "A": ["milk", "Shakespeare", "yes"],
    "B": ["honey", "Dickens", "no"],
    "C": ["silk", None, None],
    "key": ["B", "A", "A"],
    "topic": ["nature", "culture", "culture"],
}
COLUMNS = {"question": "stem", "options": "A+B+C", "answer": "key", "group": "topic"}


def choose_a(prompts):
    """The label of the option that is shown first."""
    return ["A"] * len(prompts)


async def choose_a_later(prompts):
    await asyncio.sleep(0)
    return choose_a(prompts)


def test_an_async_function_and_factors_by_name_give_the_same_result(questions):
    """Also where a loop runs in this thread, as in a notebook."""

    async def in_a_notebook():
        vary = {"order": "rotations", "paraphrase": [1, 2]}
        return cs.evaluate(questions, choose_a_later, vary=vary)

    expected = cs.evaluate(questions, choose_a, vary=["order=rotations", "paraphrase=1,2"])
    assert_frame_equal(asyncio.run(in_a_notebook()).answers, expected.answers)


@pytest.fixture(scope="module")
def questions():
    frame = pd.DataFrame(FRAME).rename(columns={"again": "question_2"})
    return cs.Questions.from_frame(frame, columns=COLUMNS, name="quiz")


@pytest.fixture(scope="module")
def result(questions):
    return cs.evaluate(questions, choose_a)


def rows_of(frame):
    return pl.DataFrame(frame).to_dicts()


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, rows_of])
def test_a_frame_of_either_library_is_a_suite(kind):
    frame = kind(FRAME)
    questions = cs.Questions.from_frame(frame, columns=COLUMNS, name="quiz")
    assert repr(questions) == "Questions('quiz': 3 questions, 2 groups)"
    hamlet = questions.items[1]
    assert hamlet.options == (cs.Choice("Shakespeare"), cs.Choice("Dickens"))
    assert (hamlet.gold, hamlet.paraphrases) == (hamlet.options[0], {"": ("Who wrote Hamlet?",)})
    asked = cs.evaluate(frame, choose_a, columns=COLUMNS)
    # Of three and two rotations, each shows another option first.
    assert (micro(asked, "consistency"), asked.suite.name) == (0, "questions")


@pytest.mark.parametrize("as_list", [list, np.array])
def test_a_cell_may_be_a_list(as_list):
    frame = pd.DataFrame({"question": ["q", "r"], "answer": [0, 2]})
    frame["options"] = [as_list(["a", "b"]), as_list(["a", "b", "c"])]
    golds = [item.gold.text for item in cs.Questions.from_frame(frame).items]
    assert golds == ["a", "c"]


def test_a_value_a_frame_and_a_file_are_the_same_questions(tmp_path, questions):
    """They have the same digest, so a run of one is resumed by another."""
    path = tmp_path / "quiz.csv"
    frame = pl.DataFrame(FRAME).rename({"again": "question_2"})
    frame.write_csv(path)
    assert cs.load_questions(path, COLUMNS).digest == questions.digest
    kept = cs.evaluate(path, choose_a, columns=COLUMNS, out=tmp_path / "run")
    before = (tmp_path / "run" / "answers" / "0.parquet").stat().st_mtime_ns
    again = cs.evaluate(questions, choose_a, out=tmp_path / "run")
    assert_frame_equal(again.metrics, kept.metrics)
    assert (tmp_path / "run" / "answers" / "0.parquet").stat().st_mtime_ns == before


def micro(result, metric, level=""):
    return result.metrics.filter(over="all", metric=metric, level=level)["value"].item()


BEES = {"question": ["a", "b", "c"], "answer": ["x", None, "x"], "options": [["x", "y"]] * 3}
VALUE = cs.Questions.from_frame(pl.DataFrame(BEES)[:1])
FACTS = pd.DataFrame({"subject": ["Redis"], "object": ["6379"], "pattern": ["[X] is [Y]."]})
of_frame = cs.Questions.from_frame
WRONG = [
    (lambda: of_frame(pl.DataFrame(FRAME)),
     "the frame: no column 'answer' among stem, again, .* columns= in Python: answer=COLUMN"),
    (lambda: of_frame(pl.DataFrame(FRAME), columns={"stem": "question"}),
     "--columns stem=...; expected question, paraphrases, answer"),
    (lambda: of_frame(pl.DataFrame(BEES)), "^the frame, row 2, column 'answer': no 'answer'"),
    (lambda: of_frame([1]), "the frame is of type list"),
    (lambda: of_frame(pl.DataFrame(BEES)[:0]), "^the frame: no questions; expected a row for each question"),
    (lambda: cs.evaluate(FACTS, choose_a), r"a frame of facts; .* cs\.Suite\.from_frame"),
    (lambda: cs.evaluate([1, 2], choose_a), "the suite is of type list; .* or a list of dictionaries"),
    (lambda: cs.evaluate(VALUE, choose_a, columns=COLUMNS), "^columns with Questions"),
    (lambda: cs.evaluate("mini", choose_a, columns=COLUMNS), "^--columns with a suite of facts;"),
    (lambda: cs.evaluate(cs.Questions("none", ()), choose_a), "'none': no question in the suite"),
    (lambda: cs.evaluate(VALUE, cs.load_model("baseline:majority")),
     "a model of type Baseline with questions; expected a name, a folder, or a function"),
    (lambda: cs.evaluate(VALUE, choose_a, vary=["order=rotate"]), "--vary order=rotate; expected"),
    (lambda: cs.load_questions(3), "a file of questions is of type int; expected a path"),
    (lambda: cs.score(FACTS), "no column item, gold, answer among subject"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_call_says_what_to_pass(call, message):
    refused(message, call)


def test_a_scored_frame_is_called_by_its_model(result):
    answers = result.answers.filter(order="ABC").select("item", "gold", "answer", "paraphrase")
    assert repr(cs.score(answers.with_columns(model=pl.lit("a/gpt")))).startswith("gpt on ")
    assert repr(cs.score(answers)).startswith("answers on ")


@pytest.mark.parametrize(("first", "gold"), [
    ({"options": ["1", "2", "3"], "answer": "2"}, "2"), ({"answer": True}, "yes"),
    ({"answer": 0.5}, "0.5"), ({"question": ["One?", "Two?"], "answer": ["a", "b"]}, "a"),
])  # fmt: skip
def test_a_row_of_a_list_means_the_same_beside_any_other(first, gold):
    other = {"question": "Capital?", "options": ["Paris", "Rome"], "answer": "Paris"}
    questions = cs.Questions.from_frame([{"question": "First?"} | first, other])
    assert questions.items[0].gold.text == gold


def test_a_day_of_a_frame_is_its_date():
    frame = pd.DataFrame({"question": ["When?"], "answer": pd.to_datetime(["2024-01-02"])})
    assert cs.Questions.from_frame(frame).items[0].gold.text == "2024-01-02"
    frame = pd.DataFrame([["a", "b", "c"]], columns=["question", "answer", "answer"])
    refused("two columns of one name", cs.Questions.from_frame, frame)


def test_a_question_without_the_unnamed_language_is_not_asked_in_it(tmp_path):
    rows = [
        {"item": "1", "question": "One?", "answer": "x"},
        {"item": "1", "question": "Eins?", "answer": "x", "language": "de"},
        {"item": "2", "question": "Zwei?", "answer": "y", "language": "de"},
    ]
    pl.DataFrame(rows).write_ndjson(tmp_path / "own.jsonl")
    exported = cs.export_prompts(tmp_path / "own.jsonl", vary="language=all")
    assert [(row["item"], row["prompt"].split("?")[0].split()[-1]) for row in exported] == [
        ("1", "One"), ("1", "Eins"), ("2", "Zwei"),
    ]  # fmt: skip


@pytest.mark.parametrize(("named", "variant", "said"), [
    ({"vary": {"labels": "A,none"}}, "labels=A", "B. Rome"),
    ({"option_score": "sum"}, "order=AB", "B. Rome"),
])  # fmt: skip
def test_a_function_is_read_by_what_it_was_shown(named, variant, said):
    """As what a model writes: by the labels on the page."""
    row = {"question": "Capital of Italy?", "options": ["Paris", "Rome"], "answer": "Rome"}
    questions = cs.Questions.from_frame([row])
    found = cs.evaluate(questions, lambda prompts: [said] * len(prompts), **named)
    assert found.answers.filter(variant=variant)["answer"].to_list() == ["Rome"]


def scored(lacks):
    """Of the first six the texts alone in the second run; probabilities vary between variants."""
    for at in range(12):
        for variant in (1, 2):
            share = (0.9 - 0.1 * variant) if at < 6 else 0.55
            scores = [math.log(share), math.log(1 - share)]
            is_text = lacks and at < 6
            yield {
                "item": f"a{at}", "sample": str(variant), "gold": "red", "options": ["red", "blue"],
                "answer": "red" if is_text else None, "scores": None if is_text else scores,
            }  # fmt: skip


def test_only_what_both_runs_have_is_compared():
    """Two runs on 12 questions that agree wherever both say something; the second says less."""
    first, second = (
        cs.score(pl.DataFrame([*scored(lacks)], infer_schema_length=None))
        for lacks in (False, True)
    )
    compared = cs.compare(first, second).table.filter(over="all", kind="whole")
    for name in ("brier_score", "total_variation", "calibration_error"):
        assert compared.filter(metric=name).select("difference", "p", "n").rows() == [(0, 1, 6)]


def test_the_majority_baseline_is_the_most_frequent_place_of_questions_as_large():
    """B is right in three of four questions with two options, C in one with three."""
    options = [["x", "y"]] * 4 + [["x", "y", "z"]]
    frame = {"question": [f"{at}?" for at in range(5)], "options": options, "answer": [*"yyyxz"]}
    result = cs.evaluate(pl.DataFrame(frame), choose_a)
    (accuracy,) = [row for row in result.summary.rows if row.metric == "accuracy"]
    assert (accuracy.value, accuracy.baseline) == (0.2, 0.8)
    sizes = cs.suite_stats(cs.Questions.from_frame(pl.DataFrame(frame))).tables["by_group"]
    assert sizes["majority"].item() == 0.8
