"""Factors and prompts: which variants a design has, and what a model is sent in each."""

import json
import re
from dataclasses import replace
from itertools import combinations, permutations
from math import factorial

import numpy as np
import pandas as pd
import pytest

import consilience as cs
from checks import refused
from conftest import cases
from consilience.analysis.factor_effects import decompose, one_hot
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.options.commands import ProbeOptions
from consilience.plans import plan_of
from consilience.plans.factors import factors_of
from consilience.plans.presentation import TEMPLATES, Presentation, Template, orders_of, present
from consilience.plans.questions import Presented
from consilience.results.evaluation import suite_to_ask
from consilience.suites.question_suites import load_questions, select_questions

PHRASINGS = {"": ("What is the capital of France?", "Which city is France's capital?")}
CITIES = tuple(map(Choice, ("Lyon", "Paris", "Nice")))
FRANCE = Question("capital-1", "capital", PHRASINGS, Choice("Paris"), CITIES)
ITALY = Question(
    "capital-2", "capital", {"": ("What is the capital of Italy?",)}, Choice("Rome"),
    tuple(map(Choice, ("Rome", "Milan", "Turin"))),
)  # fmt: skip
ORDER = Factor("order", ("ABC", "BCA", "CAB"))
FACTORS = (Factor("paraphrase", ("1", "2")), ORDER, Factor("labels", ("A", "1")))


def differing(first, second):
    """How many factors have other levels."""
    return sum(a != b for a, b in zip(first, second, strict=True))


def test_full_design_has_every_combination_and_its_pairs():
    """2 x 3 x 2 cells; a pair of a factor differs in nothing else."""
    design = FactorialDesign.full(FACTORS)
    assert (len(set(design.cells)), design.cells[0]) == (12, (0, 0, 0))
    assert design.names[1] == "paraphrase=1, order=ABC, labels=1"
    assert design.is_full
    pairs = design.pairs_by_factor()
    # A pair of levels x 6 cells of the others; 3 x 4.
    sizes = {name: len(of_factor) for name, of_factor in pairs.items()}
    assert sizes == {"paraphrase": 6, "order": 12, "labels": 6}
    cells = design.cells
    every = [(a, b) for a, b in combinations(range(12), 2) if differing(cells[a], cells[b]) == 1]
    assert sorted(pair for of_factor in pairs.values() for pair in of_factor) == every


def test_smaller_designs_hold_pairs_of_every_factor():
    """One factor at a time: 1 + 1 + 2 + 1 cells."""
    star = FactorialDesign.one_factor(FACTORS)
    assert len(star.cells) == 5
    assert all(differing(star.cells[0], cell) == 1 for cell in star.cells[1:])
    assert all(star.pairs_by_factor().values())
    assert not star.is_full


def test_impossible_designs_and_templates_are_refused():
    many = Factor("order", tuple(map(str, range(1000))))
    refused("variants of each question", FactorialDesign.full, [many, FACTORS[0]] * 3)
    refused("no {question} in the template '{questions}'", Template, "t", "{questions}")
    refused("which is no chat", Template, "t", "{question}", system="Be brief.")


def test_orders_are_permutations():
    """Letters of further options are left out; what an earlier level shows is none of a later."""
    rotations = ("ABCDE", "BCDEA", "CDEAB", "DEABC", "EABCD")
    for size in range(1, 6):
        one = tuple(range(size))
        expected = [one[at:] + one[:at] if at < size else None for at in range(5)]
        assert [*orders_of(rotations, size)] == expected
    assert orders_of(("", "BDCA"), 3) == ((0, 1, 2), (1, 2, 0))
    assert orders_of(("BDCA", "BCAD"), 3) == ((1, 2, 0), None)
    every = tuple(map("".join, permutations("ABCD")))
    for size in (1, 2, 3, 4):
        shown = [order for order in orders_of(every, size) if order]
        assert (len(shown), {*shown}) == (factorial(size), {*permutations(range(size))})
    assert orders_of(rotations, 0) == ((), None, None, None, None)


def test_options_that_stay_are_at_their_place_in_every_order():
    """The others follow the letters: rotations of four with a last one that stays are three."""
    rotations = ("ABCD", "BCDA", "CDAB", "DABC")
    assert orders_of(rotations, 4, (3,)) == ((0, 1, 2, 3), (1, 2, 0, 3), (2, 0, 1, 3), None)
    assert orders_of(("ABCD", "DCBA"), 4, (1, 3)) == ((0, 1, 2, 3), (2, 1, 0, 3))
    assert orders_of(rotations, 4, (0, 1, 2, 3)) == ((0, 1, 2, 3), None, None, None)


@pytest.mark.parametrize(("presentation", "text", "answers", "options"), [
    (Presentation(order=("BCA",)),
     "Question: What is the capital of France?\nA. Paris\nB. Nice\nC. Lyon\nAnswer:",
     ("A", "B", "C"), (1, 2, 0)),
    (Presentation(labels="none", paraphrase=1),
     "Question: Which city is France's capital?\n- Lyon\n- Paris\n- Nice\nAnswer:",
     ("Lyon", "Paris", "Nice"), (0, 1, 2)),
    (Presentation(labels="1", template=TEMPLATES["chat"]),
     "What is the capital of France?\n1. Lyon\n2. Paris\n3. Nice\n"
     "Answer with the number of the right option and nothing else.", ("1", "2", "3"), (0, 1, 2)),
])  # fmt: skip
def test_prompts_say_what_their_levels_say(presentation, text, answers, options):
    prompt = present(FRANCE, presentation)
    assert (prompt.text, prompt.answers, prompt.options) == (text, answers, options)


def test_a_variant_that_a_question_lacks_has_no_prompt():
    """A third phrasing, another language, an order of more options."""
    for level in ({"paraphrase": 2}, {"language": "de"}, {"order": ("ABCD", "DABC")}):
        assert present(FRANCE, Presentation(**level)) is None


def test_parts_sum_to_the_probability_that_answers_differ():
    """And a total effect is the probability that an answer changes with one level drawn anew."""
    answers = np.random.default_rng(0).integers(0, 4, (6, 2, 3, 4))
    total, parts = decompose(one_hot(answers), ("paraphrase", "order", "labels"))
    assert np.sum(list(parts.values()), axis=0) == pytest.approx(total)
    flat = answers.reshape(6, -1)
    assert total == pytest.approx([np.mean(row[:, None] != row) for row in flat])
    redrawn = [np.mean(item[:, :, None] != item[:, None]) for item in answers]
    assert sum(part for of, part in parts.items() if "order" in of) == pytest.approx(redrawn)


# The levels of factors: how they are named, and that one more changes nothing in the others.

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
    prompt_builder = presented.prompt_builder("questions")
    levels = [*zip(*prompt_builder.design.levels.values(), strict=True)]
    return {
        (question.item, *of): (prompt, prompt_builder.presentations[at].rule)
        for question in presented.questions.items
        for at, of in enumerate(levels)
        if (prompt := prompt_builder.prompt(question, at)) is not None
    }


@pytest.mark.parametrize(("factor", "levels", "more"), cases("more_levels"))
@pytest.mark.parametrize("other", [
    "order=reversed", "labels=A,none", "template=plainly,hinted", "shots=0,2",
])  # fmt: skip
@pytest.mark.parametrize("rule", [None, "sum"])
def test_one_more_level_changes_no_other_level(suite, factor, levels, more, other, rule):
    """Each query has the same prompt and the same scoring rule."""
    others = [] if other.startswith(factor) else [other]
    few = asked(suite, f"{factor}={levels}", *others, option_score=rule)
    many = asked(suite, f"{factor}={levels}{more}", *others, option_score=rule)
    assert few == {key: many[key] for key in few}
    assert len(many) > len(few)


@pytest.mark.parametrize(("value", "levels"), cases("orders_named"))
def test_an_order_is_its_letters_however_it_is_asked_for(suite, value, levels):
    """The order of the file comes first; duplicates are one level."""
    vary = ["order=" + value if value else "order"]
    questions = load_questions(suite / "q.jsonl")
    (order,) = factors_of(ProbeOptions(suite="q", vary=vary), questions)
    assert (order.name, " ".join(order.levels)) == ("order", levels)


def test_a_sample_of_a_suite_has_the_same_names(suite):
    """Those that no question of the sample has are left out."""
    questions = load_questions(suite / "q.jsonl")
    for size in (2, 3, 4, 5):
        some = tuple(one for one in questions.items if len(one.options) == size)
        sample = type(questions)("q", some)
        (order,) = factors_of(ProbeOptions(suite="q", vary=["order"]), sample, questions)
        assert order.levels == ("ABCDE", "BCDEA", "CDEAB", "DEABC", "EABCD")[:size]
    assert len(select_questions(questions, None, 2, 0).items) == 2


@pytest.mark.parametrize(("value", "levels"), [
    ("0,2,5", ("0", "2", "5")), ("02,1", ("2", "1")),
    ("draws:3", ("2", "2 draw 2", "2 draw 3")),
])  # fmt: skip
def test_shots_are_numbers_or_draws(suite, value, levels):
    questions = load_questions(suite / "q.jsonl")
    options = ProbeOptions(suite="q", vary=[f"shots={value}"], shots=2)
    assert factors_of(options, questions)[0].levels == levels


@pytest.mark.parametrize(("vary", "message"), cases("levels_bad"))
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
    note = lambda one: {"more of it": " " if one.item == "q1" else "x"}  # noqa: E731
    items = tuple(replace(one, more=one.more | note(one)) for one in questions.items)
    questions = replace(questions, items=items)
    refused(message, asked, suite, "order", questions=questions, template=text)


def test_what_is_in_braces_and_no_slot_stays(suite):
    """JSON, and what is in a column."""
    text = 'Write {"answer": "A"}. {question} [{source}] {options}'
    prompt, _ = asked(suite, "order=reversed", shots=0, template=text)["q0", "ABCDE"]
    assert prompt.text.startswith('Write {"answer": "A"}. Question 0? [page q0] A')


def test_the_order_of_options_that_no_template_shows_does_not_vary(suite):
    refused("order varies", asked, suite, "order", template="{question}")
    for text, names in (("{question}", []), ("{question} {options}", ["order"])):
        options = ProbeOptions(suite=str(suite / "q.jsonl"), template=text)
        builder = Presented.of(options, questions_in(suite)).prompt_builder("questions")
        assert [of.name for of in builder.design.factors if of.name == "order"] == names


def test_open_questions_have_no_wrong_option(tmp_path):
    (tmp_path / "q.jsonl").write_text('{"question": "Which?", "answer": "a"}')
    options = ProbeOptions(suite=str(tmp_path / "q.jsonl"), template="{wrong} {question}")
    refused("nothing for {wrong}", Presented.of(options).prompt_builder, "q")
    presented = Presented.of(replace(options, template="{right} {question}"))
    prompt = presented.prompt_builder("questions").prompt(presented.questions.items[0], 0)
    assert prompt.text == "a Which?"


# Contexts of several passages: reading them, and their orders.

OPTIONS = tuple(map(Choice, ("x", "y")))
ASKED = Question("a", "g", {"": ("Who?",)}, OPTIONS[0], OPTIONS, "A\n\nB\n\nC")


def made(size=6, passages=3):
    """Question k has the passages k.1, k.2 and so on; its answer is x."""
    return [
        {"item": f"q{at}", "question": f"Question {at}?", "answer": "x", "options": ["x", "y", "z"],
         "context": [f"{at}.{number}" for number in range(1, passages + 1)]}
        for at in range(size)
    ]  # fmt: skip


def suite_of(folder, rows):
    path = folder / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def passages_in(prompt):
    return re.findall(r"^\d+\.\d+$", prompt, re.MULTILINE)


def prompts_of(path, **options):
    """(item, variant) -> prompt."""
    chosen = ProbeOptions(model="baseline:majority", suite=str(path), **options)
    table = plan_of(chosen).queries(None).table()
    return {row[:2]: row[2][0] for row in table.select("item", "variant", "input").iter_rows()}


def test_a_list_of_passages_is_read_from_every_format(tmp_path):
    """A list, a list in JSON in one cell, or columns that are joined; a text is one passage."""
    lists = [["One; two.", "Three."], "[1] A note", None, ["Alone."]]
    rows = [("q?" + str(at), "x", "x;y", context) for at, context in enumerate(lists)]
    mixed = pd.DataFrame(rows, columns=["question", "answer", "options", "context"])
    mixed.to_json(tmp_path / "own.jsonl", orient="records", lines=True)
    texts = [json.dumps(one) if isinstance(one, list) else one for one in lists]
    frame = mixed.assign(context=texts)
    frame.to_csv(tmp_path / "own.csv", index=False)
    known = cs.Questions.from_frame(frame).items
    passages = [("One; two.", "Three."), ("[1] A note",), (), ("Alone.",)]
    assert [one.passages for one in known] == passages
    one, two = ["One; two.", "[1] A note", "", "Alone."], ["Three.", "", "", ""]
    parts = frame.drop(columns="context").assign(one=one, two=two)
    parts.to_csv(tmp_path / "parts.csv", index=False)
    joined = {"context": "one+two"}
    for name, columns in (("own.csv", {}), ("own.jsonl", {}), ("parts.csv", joined)):
        read = load_questions(tmp_path / name, columns).items
        assert [one.context for one in read] == [one.context for one in known]
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps(made(1)[0] | {"context": ["A", {}]}))
    refused("column 'context': {}; expected a text", load_questions, wrong)


def test_orders_of_passages_by_hand():
    orders = ("ABC", "BCA", "CAB", "CBA")
    shown = [present(ASKED, Presentation(context=(order,))) for order in orders]
    texts = [one.text.partition("\nQuestion")[0] for one in shown]
    assert texts == ["\n\n".join(order) for order in orders]
    alone = replace(ASKED, context="A")
    assert present(alone, Presentation(context=("ABC",))).text.startswith("A\nQuestion")
    assert present(alone, Presentation(context=("ABC", "CBA"))) is None
    assert present(ASKED, Presentation(context=("ABCD", "DABC"))) is None


@pytest.mark.parametrize(("passages", "vary", "orders"), cases("orders_of_contexts"))
def test_the_variants(tmp_path, passages, vary, orders):
    path = suite_of(tmp_path, made(2, passages))
    prompts = prompts_of(path, vary=[vary])
    of_first = [tuple(passages_in(prompt)) for (item, _), prompt in prompts.items() if item == "q0"]
    assert len(of_first) == len(set(of_first)) == orders
    assert of_first[0] == tuple(f"0.{at + 1}" for at in range(passages))
    assert {tuple(sorted(one)) for one in of_first} == {of_first[0]}
    assert all(of.index("0.1") < of.index("Question") for of in prompts.values() if "0.1" in of)


def test_a_model_that_believes_the_first_passage(tmp_path):
    """Of three passages it answers x if its own first one comes first: 2 of 6 orders."""

    def first(prompts):
        return ["A" if passages_in(prompt)[0].endswith(".1") else "B" for prompt in prompts]

    last = {"item": "last", "question": "No context?", "answer": "y", "options": ["x", "y"]}
    path, run = suite_of(tmp_path, made()), tmp_path / "run"
    rows = cs.evaluate(path, first, vary="context=all", out=run).metrics
    values = dict(rows.filter(over="all", kind="whole").select("metric", "value").iter_rows())
    assert values["mean_accuracy"] == 2 / 6
    assert values["consistency"] == pytest.approx((1 + 6) / 15)
    factors = cs.analyze_factors([run]).tables["consistency"]
    assert factors["factor"].to_list() == ["context"]
    path = suite_of(tmp_path, [*made(), last])
    lacking = cs.evaluate(path, "baseline:oracle", vary="context=rotations")
    assert lacking.answers.filter(item="last")["variant"].to_list() == ["context=ABC"]


@pytest.mark.parametrize(("passages", "vary", "more", "message"), cases("contexts_refused"))
def test_contexts_that_cannot_vary_are_refused(tmp_path, passages, vary, more, message):
    path = suite_of(tmp_path, made(2, passages))
    refused(message, cs.evaluate, path, "baseline:oracle", vary=vary, **more)


@pytest.mark.parametrize("languages", [("fr",), ("fr", "en")])
def test_languages_that_do_not_vary(tmp_path, languages):
    """Each question is asked in its first language."""
    texts = {"fr": "Où est Rome ?", "en": "Where is Rome?"}
    row = {"item": "a", "answer": "x", "options": ["x", "y"]}
    suite_of(tmp_path, [row | {"question": texts[name], "language": name} for name in languages])
    prompts = prompts_of(tmp_path / "own.jsonl", vary=["order=reversed"]).values()
    assert [texts["fr"] in prompt for prompt in prompts] == [True] * 2


def test_all_templates_of_a_file_are_those_of_the_file(tmp_path):
    file = tmp_path / "t.toml"
    text = '[[templates]]\nname = "{0}"\ntext = "{0} {{question}} {{options}}"\n'
    file.write_text(text.format("one") + text.format("two"))
    rows = [{"question": f"{at}?", "answer": "x", "options": ["x", "y"]} for at in range(2)]
    suite = suite_to_ask(rows, template=str(file), vary=["template=all"])
    assert {*suite.relations[0].design.levels["template"]} == {"one", "two"}
