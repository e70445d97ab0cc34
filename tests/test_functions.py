"""Python functions and baselines as models."""

import asyncio
import re

import pytest

import consilience as cs
from checks import refused
from conftest import cases, suite_of
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.models.functions import Function, position, prompt_baseline
from consilience.plans.presentation import Presentation, PromptBuilder, Template, present
from consilience.plans.questions import Writer, asks_of, choose, write
from consilience.types import Query
from pair_builders import write_pairs

OPTIONS = (Choice("Rust"), Choice("Go", ("Golang",)), Choice("C"))


def question(item, group, gold, options=OPTIONS):
    return Question(item, group, {"": (f"{item}?",)}, gold, options)


QUESTIONS = tuple(question(f"q{at}", "g", OPTIONS[gold]) for at, gold in enumerate((2, 1, 1, 2)))
ORDERS = FactorialDesign.full([Factor("order", ("ABC", "BCA", "CAB"))])


def asked(model, questions=QUESTIONS, **base):
    prompt_builder = PromptBuilder(ORDERS, {}, Presentation(**base))
    return choose(prompt_builder, asks_of(questions, prompt_builder, "own"), model)


@pytest.mark.parametrize(("name", "options", "right"), [
    ("first", [0, 1, 2], [2, 1, 1, 2]),  # the gold is shown first in one order of each
    ("constant", [0, 0, 0], None),
    ("majority", [1, 2, 0], None),  # positions 1 and 2 are gold twice each
])  # fmt: skip
def test_baselines_answer_the_same_option_or_the_same_position(name, options, right):
    """Options are positions in the file's order, whatever order was shown."""
    table = asked(prompt_baseline(name, QUESTIONS, 0))
    assert table["option"].to_list() == options * 4
    golds = table.filter(table["option"] == table["gold_option"])
    if right:
        assert golds["option"].to_list() == right
    assert table["option_scores"].null_count() == table["logprob"].null_count() == 12


def test_oracle_is_right_and_random_is_neither_constant_nor_another_each_time():
    table = asked(prompt_baseline("oracle", QUESTIONS, 0))
    assert table["option"].to_list() == table["gold_option"].to_list()
    tables = [asked(prompt_baseline("random", QUESTIONS, seed)) for seed in (0, 0, 1)]
    first, again, other = (table["option"].to_list() for table in tables)
    assert first == again != other and len(set(first)) > 1
    refused("Did you mean 'first'", prompt_baseline, "frist", QUESTIONS, 0)


def test_the_majority_is_that_of_each_group_and_number_of_options():
    """Two groups, whose golds are at position 2 and at position 0; of one with two options at 1."""
    golds = {"g0": 2, "g1": 2, "h0": 0, "h1": 0}
    questions = [question(item, item[0], OPTIONS[gold]) for item, gold in golds.items()]
    few = [question("few", "g", OPTIONS[1], OPTIONS[:2])]
    model = prompt_baseline("majority", [*questions, *few], 0)
    shown = [2, 0, 1] * 2 + [0, 1, 2] * 2  # at that position in three orders
    assert asked(model, questions)["option"].to_list() == shown
    assert asked(model, few)["option"].to_list() == [1, 0]


def test_the_majority_baseline_has_the_numbers_of_the_column_majority():
    vary = {"order": "rotations", "paraphrase": "all"}
    result = cs.evaluate("mini-questions", "baseline:majority", limit=4, vary=vary)
    values = [(row.value, row.baseline) for row in result.summary.rows]
    assert len(values) > 3 and all(value == baseline for value, baseline in values)


GOLDS = {"g0": "Rome", "g1": "Oslo", "g2": "Oslo", "h0": "Bern", "h1": "Riga"}
CAPITALS = [question(item, item[0], Choice(gold), ()) for item, gold in GOLDS.items()]
"""Open questions of two groups."""

NONE = FactorialDesign.full([])


def wrote(model, design=NONE):
    prompt_builder = PromptBuilder(design, {}, Presentation())
    group = asks_of(CAPITALS, prompt_builder, "own", is_written=True)
    return write(CAPITALS, prompt_builder, group, Writer(model, "exact"))


@pytest.mark.parametrize(("name", "texts"), [
    ("majority", "Oslo Oslo Oslo Bern Bern"), ("constant", "Rome Rome Rome Bern Bern"),
    ("first", "Rome Rome Rome Bern Bern"), ("oracle", "Rome Oslo Oslo Bern Riga"),
])  # fmt: skip
def test_baselines_answer_open_questions_with_golds_of_the_group(name, texts):
    table = wrote(prompt_baseline(name, CAPITALS, 0))
    assert table["text"].to_list() == texts.split()
    right = [text == gold.gold.text for text, gold in zip(texts.split(), CAPITALS, strict=True)]
    assert (table["answer"] == table["gold"]).to_list() == right


def test_the_random_baseline_draws_a_gold_of_the_group_for_each_prompt_and_sample():
    samples = FactorialDesign.full([Factor("sample", tuple("123456"))])
    drawn = (prompt_baseline("random", CAPITALS, seed) for seed in (0, 0, 1))
    first, again, other = (wrote(model, samples)["text"].to_list() for model in drawn)
    assert first == again != other
    assert (set(first[: 3 * 6]), set(first[3 * 6 :])) == ({"Rome", "Oslo"}, {"Bern", "Riga"})
    assert len(set(first[:6])) == 2


PORTS = suite_of(
    ["[X] listens on port [Y].", "The port of [X] is [Y]."],
    {"Redis": "6379", "PostgreSQL": "5432", "MySQL": "3306"}, name="ports",
)  # fmt: skip
REPLIES = {
    "Redis listens on port ___.": "6379",
    "The port of Redis is ___.": "The port of Redis is 6379!",
    "PostgreSQL listens on port ___.": "5432.",
    "The port of PostgreSQL is ___.": "It depends",
    "MySQL listens on port ___.": "6379",
    "The port of MySQL is ___.": " ",
}
"""Right about Redis in both patterns, about PostgreSQL in one, silent about MySQL in one."""


def reply(prompt):
    return REPLIES[prompt]


def replies(prompts):
    return [REPLIES[prompt] for prompt in prompts]


async def later(prompt):
    await asyncio.sleep(0)
    return REPLIES[prompt]


async def all_later(prompts):
    return [await later(prompt) for prompt in prompts]


def one_by_one(prompts):
    yield from replies(prompts)


@pytest.mark.parametrize(("function", "takes_lists"), [
    (reply, False), (replies, True), (later, False), (all_later, True), (one_by_one, True),
    (REPLIES.get, False), (lambda prompt: REPLIES.get(str(prompt)), False),
])  # fmt: skip
def test_a_function_takes_a_text_or_a_list(function, takes_lists):
    """Its first answer shows which, also where it is a text or None for a list."""
    model = Function(function)
    table = cs.ask_suite(PORTS, model)
    assert model.takes_lists is takes_lists
    assert table["answer"].to_list() == ["6379", "6379", "5432", "It depends", "6379", None]
    assert table["error"].to_list() == [None] * 5 + ["the model wrote no text"]
    note = "'It depends' to 'The port of PostgreSQL is ___.'"
    assert model.notes == [f"texts that match no answer are wrong: {note}"]


def fails(prompt):
    raise KeyError("token")


@pytest.mark.parametrize(("wrong", "reason"), [
    (fails, "the function raised KeyError: 'token'"),
    (lambda prompt: None, "the model wrote no text"),
    (lambda prompt: 3, "the function returned 3, which is no text"),
    (lambda prompt: ["a", "b"], "the function returned ['a', 'b'], which is no text"),
])  # fmt: skip
def test_what_is_no_text_is_no_answer_to_that_prompt_alone(wrong, reason):
    """Also to the first, which shows nothing then."""
    for name in ("Redis", "MySQL"):
        model = Function(lambda text, name=name: wrong(text) if name in text else reply(text))
        table = cs.ask_suite(PORTS, model)
        is_wrong = table["subject"] == name
        assert set(table.filter(is_wrong)["error"]) == {reason}
        assert set(table.filter(is_wrong)["answer"]) == {None}
        assert table.filter(~is_wrong)["error"].drop_nulls().len() == (name == "Redis")
    everywhere = f"none of 6 queries has an answer; most often, 6 times: {reason}"
    refused(re.escape(everywhere), cs.evaluate, PORTS, wrong)


def test_an_answer_of_a_call_is_kept_whatever_the_next_call_does():
    """40 facts: one alone, then 32 and 7 at once; equal prompts once."""
    sizes, done = [], []
    facts = {f"x{at:02}": str(at) for at in range(40)}
    suite = suite_of(["[X] is [Y].", "So [X] is [Y]."], facts)

    def answer(prompts):
        sizes.append(len(prompts))
        if len(prompts) == 15:
            raise TimeoutError("too slow")
        return ["7"] * (len(prompts) - (len(sizes) == 3))

    table = cs.ask_suite(suite, Function(answer), advance=done.append)
    assert sizes == done == [1, 32, 32, 15]
    few, slow = "returned 31 values for 32 texts", "raised TimeoutError: too slow"
    assert set(table["error"][1 + 32 :]) == {f"the function {few}", f"the function {slow}"}
    assert table["answer"].to_list() == ["7"] * 33 + [None] * 47


def test_a_template_shows_the_sentence_and_the_candidates():
    seen = []

    def same(prompts):
        seen.extend(prompts)
        return ["6379"] * len(prompts)

    cs.evaluate(PORTS, same, template="Choose from {candidates}: {sentence}")
    assert seen[0] == "Choose from 6379, 5432, 3306: Redis listens on port ___."
    refused("the template 'x'; expected a text with", cs.evaluate, PORTS, reply, template="x")


def by_order(pair):
    """The label of a pair turns with the order of its sentences; one is no label."""
    first, second = pair
    return "perhaps" if "0" in first else " Equivalent." if first < second else "not_equivalent"


@pytest.mark.parametrize("is_list", [False, True])
def test_a_function_answers_sentence_pairs(is_list, tmp_path):
    seen = []

    def labelled(pairs):
        seen.extend(pairs if is_list else [pairs])
        return [*map(by_order, pairs)] if is_list else by_order(pairs)

    data = write_pairs(tmp_path / "pairs.jsonl")
    result = cs.evaluate("mrpc", labelled, data=data, perturbations=["reverse"], out=tmp_path / "r")
    texts = seen if is_list else seen[1:]
    assert len(texts) == len(set(texts)), "equal forms are asked once"
    assert texts[0][0].startswith("Sentence1: ") and texts[1] == texts[0][::-1]
    assert set(result.answers["answer"]) <= {"equivalent", "not_equivalent", "perhaps"}
    of_labels = result.metrics.filter(metric="consistency", level="reverse", group="mrpc")
    assert of_labels["value"].item() == 0
    assert cs.open_run(tmp_path / "r").metrics.equals(result.metrics)
    todo = {"data": data, "generate": True}
    refused("--generate with a function or a baseline", cs.evaluate, "mrpc", by_order, **todo)


@pytest.mark.parametrize(("text", "candidate"), cases("matched_texts"))
def test_a_text_is_matched_to_one_candidate_or_to_none(text, candidate):
    query = Query(cs.Pattern("The capital of [X] is [Y]."), "France", "Paris")
    words = ["Paris", "Rome", "New York", "C", "C++", "C#"]
    at = position(text, query, words)
    assert (None if at is None else words[at]) == candidate


@pytest.mark.parametrize(("text", "answer"), cases("answers_of_texts"))
def test_a_text_is_an_answer_by_label_text_or_alias(text, answer):
    prompt = present(QUESTIONS[0], Presentation())
    assert position(text, prompt, ()) == answer
    prompt = present(QUESTIONS[0], Presentation(order=("BCA",)))
    assert [choice.text for choice in prompt.choices] == ["Go", "C", "Rust"]
    assert position("A", prompt, ()) == 0, "the labels are those that were shown"
    unlabelled = present(QUESTIONS[0], Presentation(order=("BCA",), labels="none"))
    assert position("A", unlabelled, ()) is None and position("C", unlabelled, ()) == 1


def test_a_function_gets_the_texts_of_questions():
    """Equal prompts once; none of the answers is a wrong answer, no text and a blank one none."""
    seen, said = [], {0: "A", 1: "none of them", 2: None}

    def function(prompts):
        seen.extend(prompts)
        return [said[prompt.index("Rust") % 3] for prompt in prompts]

    chat = Template("t", "{question} {options}", is_chat=True, system="Be brief.")
    model = Function(function)
    table = asked(model, template=chat)
    assert (len(seen), seen[0]) == (12, "Be brief.\n\nq0? A. Rust\nB. Go\nC. C")
    assert set(table["answer"]) <= {"Rust", "Go", "C", "none of them", None}
    assert table["excluded"].null_count() == 12
    assert model.identity == {"model": "function", "kind": "function", "template": "{sentence}"}


def test_a_function_answers_open_questions_each_sample_anew():
    calls = []

    def answering(prompts):
        calls.append(len(prompts))
        return ["Oslo" if len(calls) < 3 else "no idea"] * len(prompts)

    samples = FactorialDesign.full([Factor("sample", ("1", "2"))])
    table = wrote(Function(answering), samples)
    assert calls == [1, 4, 5]
    assert table["text"].to_list() == ["Oslo", "no idea"] * 5
    assert table["unmatched"].null_count() == 2


def test_a_function_without_a_name_has_no_folder(tmp_path):
    """A second one would get the answers of the first."""
    message = "a function without a name, and a folder"
    refused(message, cs.evaluate, "mini-open", lambda text: "a", out=tmp_path / "r")


def test_half_an_emoji_is_replaced():
    result = cs.evaluate("mini-open", lambda text: "\ud83d Paris", limit=1)
    assert result.answers["text"].unique().to_list() == ["? Paris"]
