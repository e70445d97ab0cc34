"""The levels of factors: how they are named, and that one more changes nothing in the others."""

import json
from dataclasses import replace

import pytest

from checks import refused
from consilience.options.probe import ProbeOptions
from consilience.plans.factors import factors_of
from consilience.plans.questions import Presented
from consilience.suites.question_suites import load_questions, select_questions

SIZES = (2, 3, 4, 5, 3, 4, 3, 4)
TEMPLATES = """
[[templates]]
name = "plainly"
text = "{context}\\n{question}\\n{options}\\nA:"
[[templates]]
name = "hinted"
text = "{context}\\n{group}: I think it is {wrong}, not {right}. {question}\\n{options}"
[[templates]]
name = "hidden"
text = "{context}\\n{question} ({source})"
"""


@pytest.fixture
def suite(tmp_path):
    """Questions with 2 to 5 options, in one or two phrasings and languages, and their templates."""
    rows = []
    for at, size in enumerate(SIZES):
        options = [f"{letter}{at}" for letter in "vwxyz"[:size]]
        options[size - 1 :] = ["none of these"] if at == 2 else options[size - 1 :]
        options[size - 1 :] = ["both A and B"] if at == 3 else options[size - 1 :]
        known = {
            "item": f"q{at}", "answer": options[at % 2], "options": options,
            "context": [f"{at}.{passage}" for passage in range(size - 1)],
        }  # fmt: skip
        phrasings = [f"Question {at}?", f"Problem {at}?"][: 1 + at % 2]
        rows.append({**known, "question": phrasings, "language": "en"})
        rows.append({**known, "question": f"Frage {at}?", "language": "de"})
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "own.toml").write_text(TEMPLATES)
    return tmp_path


def questions_in(suite):
    """The questions with their further column."""
    questions = load_questions(suite / "q.jsonl")
    items = (replace(one, more={"source": f"page {one.item}"}) for one in questions.items)
    return replace(questions, items=tuple(items))


def asked(suite, *vary, questions=None, **options):
    """(item, level of each factor) -> the prompt of a question and how its options are scored."""
    options = {"template": str(suite / "own.toml"), "shots": 1} | options
    options = ProbeOptions(suite=str(suite / "q.jsonl"), vary=vary, **options)
    presented = Presented.of(options, questions or questions_in(suite))
    presenter = presented.presenter("questions")
    levels = [*zip(*presenter.design.levels.values(), strict=True)]
    return {
        (question.item, *of): (prompt, presenter.presentations[at].rule)
        for question in presented.questions.items
        for at, of in enumerate(levels)
        if (prompt := presenter.prompt(question, at)) is not None
    }


@pytest.mark.parametrize(("factor", "levels", "more"), [
    ("language", "en", ",de"),
    ("paraphrase", "1", ",2"),
    ("order", "reversed", ",BCADE"),
    ("order", "reversed", ",rotations"),
    ("order", "shuffles:2", ",shuffles:4"),
    ("context", "reversed", ",all"),
    ("labels", "A", ",none"),
    ("labels", "A,1", ",a"),
    ("template", "plainly", ",hidden"),
    ("template", "plainly,chat", ",hinted,plain"),
    ("shots", "1", ",0,3"),
    ("shots", "draws:2", "0"),
])  # fmt: skip
@pytest.mark.parametrize(
    "other", ["order=reversed", "labels=A,none", "template=plainly,hinted", "shots=0,2"]
)
@pytest.mark.parametrize("rule", [None, "sum"])
def test_one_more_level_changes_no_other_level(suite, factor, levels, more, other, rule):
    """Each query has the same prompt and the same scoring rule."""
    others = [] if other.startswith(factor) else [other]
    few = asked(suite, f"{factor}={levels}", *others, option_score=rule)
    many = asked(suite, f"{factor}={levels}{more}", *others, option_score=rule)
    assert few == {key: many[key] for key in few}
    assert len(many) > len(few)


@pytest.mark.parametrize(("value", "levels"), [
    ("rotations", "ABCDE BCDEA CDEAB DEABC EABCD"),
    ("", "ABCDE BCDEA CDEAB DEABC EABCD"),
    ("reversed", "ABCDE EDCBA"),
    ("BACDE", "ABCDE BACDE"),
    ("BA", "ABCDE BACDE"),
    ("BA,BACDE,reversed,EDCBA", "ABCDE BACDE EDCBA"),
    ("EDCBA,ABCDE", "ABCDE EDCBA"),
    ("DEABC,rotations", "ABCDE DEABC BCDEA CDEAB EABCD"),
    ("shuffles:2", "ABCDE DEBAC CDBAE"),
])  # fmt: skip
def test_an_order_is_its_letters_however_it_is_asked_for(suite, value, levels):
    """The order of the file comes first; duplicates are one level."""
    vary = ["order=" + value if value else "order"]
    questions = load_questions(suite / "q.jsonl")
    (order,) = factors_of(ProbeOptions(suite="q", vary=vary), questions)
    assert (order.name, " ".join(order.levels)) == ("order", levels)


def test_a_sample_of_a_suite_has_the_same_names(suite):
    """Those that no question of the sample has are left out."""
    questions = load_questions(suite / "q.jsonl")
    orders = {}
    for size in (2, 3, 4, 5):
        some = tuple(one for one in questions.items if len(one.options) == size)
        sample = type(questions)("q", some)
        (order,) = factors_of(ProbeOptions(suite="q", vary=["order"]), sample, questions)
        orders[size] = " ".join(order.levels)
    assert orders == {
        2: "ABCDE BCDEA", 3: "ABCDE BCDEA CDEAB", 4: "ABCDE BCDEA CDEAB DEABC",
        5: "ABCDE BCDEA CDEAB DEABC EABCD",
    }  # fmt: skip
    assert len(select_questions(questions, None, 2, 0).items) == 2


@pytest.mark.parametrize(("value", "levels"), [
    ("0,2,5", ("0", "2", "5")), ("02,1", ("2", "1")),
    ("draws:3", ("2", "2 draw 2", "2 draw 3")),
])  # fmt: skip
def test_shots_are_numbers_or_draws(suite, value, levels):
    questions = load_questions(suite / "q.jsonl")
    options = ProbeOptions(suite="q", vary=[f"shots={value}"], shots=2)
    assert factors_of(options, questions)[0].levels == levels


@pytest.mark.parametrize(("vary", "message"), [
    ("order=BCF", "--vary order=BCF; expected rotations, reversed, shuffles:K, all, or letters"),
    ("order=AAB", "--vary order=AAB"),
    ("order=shuffles:x", "--vary order=shuffles:x"),
    ("order=shuffles", "--vary order=shuffles"),
    ("order=given", "--vary order=given"),
    ("order=rotation 1", "--vary order=rotation 1"),
    ("context=EDCBA", "--vary context=EDCBA"),
    ("shots=draws", "--vary shots=draws; expected numbers of examples"),
    ("shots=2,x", "--vary shots=2,x"),
    ("examples=2", "no factor 'examples'"),
])  # fmt: skip
def test_what_is_no_level_is_refused(suite, vary, message):
    refused(message, asked, suite, vary, shots=0)


def test_too_many_orders_are_refused(tmp_path):
    (tmp_path / "q.csv").write_text("question,options,answer\nWhich?,a;b;c;d;e;f,a\n")
    questions = load_questions(tmp_path / "q.csv")

    def levels(value):
        return factors_of(ProbeOptions(suite="q", vary=[f"order={value}"]), questions)[0].levels

    refused("--vary order=all: 720 orders; expected at most 200", levels, "all")
    refused("201 orders; .* Draw some: --vary order=shuffles:10", levels, "shuffles:200")
    assert len(levels("shuffles:199")) == 200


@pytest.mark.parametrize(("text", "message"), [
    ("{question} {sauce}", "nothing for {sauce} of the template 'own'"),
    ("{question} {sauce}", "Did you mean 'source'"),
    ("{question} {more of it}", "the question 'q1': nothing for {more of it}"),
])  # fmt: skip
def test_a_slot_needs_text_in_every_question(suite, text, message):
    """A column that a question lacks or leaves empty; the message names both."""
    questions = questions_in(suite)
    notes = [" " if one.item == "q1" else "x" for one in questions.items]
    items = [
        replace(one, more={**one.more, "more of it": note})
        for one, note in zip(questions.items, notes, strict=True)
    ]
    questions = replace(questions, items=tuple(items))
    refused(message, asked, suite, "order", questions=questions, template=text)


def test_what_is_in_braces_and_no_slot_stays(suite):
    """JSON, and what is in a column."""
    text = 'Write {"answer": "A"}. {question} [{source}]'
    prompt, _ = asked(suite, "order=reversed", shots=0, template=text)["q0", "ABCDE"]
    assert prompt.text == 'Write {"answer": "A"}. Question 0? [page q0]'


def test_open_questions_have_no_wrong_option(tmp_path):
    (tmp_path / "q.jsonl").write_text('{"question": "Which?", "answer": "a"}')
    for template, message in (
        ("{wrong} {question}", "nothing for {wrong}"),
        ("{right} {question}", ""),
    ):
        options = ProbeOptions(suite=str(tmp_path / "q.jsonl"), template=template)
        if message:
            refused(message, Presented.of(options).presenter, "q")
        else:
            presented = Presented.of(options)
            prompt = presented.presenter("questions").prompt(presented.questions.items[0], 0)
            assert prompt.text == "a Which?"
