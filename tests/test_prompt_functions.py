"""Functions and baselines that answer questions."""

import pytest

from checks import refused
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.models import is_chat_model, load_prompt_model
from consilience.models.functions import PromptFunction, prompt_baseline
from consilience.plans.presentation import Presentation, Presenter, Template, present
from consilience.plans.questions import Writer, asks_of, choose, write

FUNCTION = PromptFunction(list, "exact")
OPTIONS = (Choice("Rust"), Choice("Go", ("Golang",)), Choice("C"))


def question(item, group, gold, options=OPTIONS):
    return Question(item, group, {"": (f"{item}?",)}, gold, options)


QUESTIONS = tuple(question(f"q{at}", "g", OPTIONS[gold]) for at, gold in enumerate((2, 1, 1, 2)))
ORDERS = FactorialDesign.full([Factor("order", ("ABC", "BCA", "CAB"))])


def asked(model, questions=QUESTIONS, **base):
    presenter = Presenter(ORDERS, {}, Presentation(**base))
    return choose(presenter, asks_of(questions, presenter, "own"), model)


@pytest.mark.parametrize(("name", "options", "right"), [
    ("first", [0, 1, 2], [2, 1, 1, 2]),  # the gold is shown first in one order of each
    ("constant", [0, 0, 0], None),
    ("majority", [1, 1, 1], None),  # positions 1 and 2 are gold twice each
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


def test_the_majority_is_that_of_each_group_and_at_most_the_last_position_of_a_question():
    """Two groups, whose golds are at position 2 and at position 0."""
    golds = {"g0": 2, "g1": 2, "h0": 0, "h1": 0}
    questions = [question(item, item[0], OPTIONS[gold]) for item, gold in golds.items()]
    model = prompt_baseline("majority", questions, 0)
    table = asked(model, questions)
    assert table["option"].to_list() == table["gold_option"].to_list()
    assert asked(model, [question("few", "g", OPTIONS[0], OPTIONS[:2])])["option"].to_list() == [
        1,
        1,
    ]


GOLDS = {"g0": "Rome", "g1": "Oslo", "g2": "Oslo", "h0": "Bern", "h1": "Riga"}
CAPITALS = [question(item, item[0], Choice(gold), ()) for item, gold in GOLDS.items()]
"""Open questions of two groups."""

NONE = FactorialDesign.full([])


def wrote(model, design=NONE):
    presenter = Presenter(design, {}, Presentation())
    group = asks_of(CAPITALS, presenter, "own", is_written=True)
    return write(CAPITALS, presenter, group, Writer(model, "exact"))


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


def test_a_function_answers_open_questions_each_sample_anew():
    calls = []

    def answering(prompts):
        calls.append(len(prompts))
        return ["Oslo" if len(calls) == 1 else "no idea"] * len(prompts)

    samples = FactorialDesign.full([Factor("sample", ("1", "2"))])
    table = wrote(PromptFunction(answering), samples)
    assert calls == [5, 5]
    assert table["text"].to_list() == ["Oslo", "no idea"] * 5
    assert table["unmatched"].null_count() == 2


def test_an_unknown_baseline_names_the_known_ones():
    refused("Did you mean 'first'", prompt_baseline, "frist", QUESTIONS, 0)
    for name in ("random", "majority", "constant", "first", "oracle"):
        assert prompt_baseline(name, (), 0).identity["model"] == f"baseline:{name}"


@pytest.mark.parametrize(("text", "answer"), [
    *((text, 1) for text in ("B", "b.", "(B)", "Go", " golang ", "B. Go")),
    ("C", 2),  # the label and the text of the same option
    *((text, None) for text in ("Go and Rust", "A or B", "", "...")),
])  # fmt: skip
def test_a_text_is_an_answer_by_label_text_or_alias(text, answer):
    prompt = present(QUESTIONS[0], Presentation())
    assert FUNCTION.match(text, prompt, ()) == answer


def test_labels_are_those_that_were_shown():
    """C is the label of the third option shown, and the text of the second."""
    prompt = present(QUESTIONS[0], Presentation(order=("BCA",)))
    assert [choice.text for choice in prompt.choices] == ["Go", "C", "Rust"]
    assert FUNCTION.match("A", prompt, ()) == 0
    unlabelled = present(QUESTIONS[0], Presentation(order=("BCA",), labels="none"))
    assert FUNCTION.match("A", unlabelled, ()) is None and FUNCTION.match("C", unlabelled, ()) == 1


def test_a_function_gets_texts_and_its_answers_are_counted():
    """Equal prompts once; none of the answers is a wrong answer, no text and a blank one none."""
    seen = []

    def function(prompts):
        seen.extend(prompts)
        return ["A", "none of them", None, "A", "none of them", " \n"] * 2

    chat = Template("t", "{question} {options}", is_chat=True, system="Be brief.")
    model = PromptFunction(function)
    table = asked(model, template=chat)
    assert (len(seen), seen[0]) == (12, "Be brief.\n\nq0? A. Rust\nB. Go\nC. C")
    assert table["option"].to_list() == [0, None, None] * 4
    assert table["answer"].to_list() == ["Rust", "none of them", None] * 4
    assert table["error"].to_list() == [None, None, "the model wrote no text"] * 4
    assert table["excluded"].null_count() == 12
    note = "4 of 12 texts match no option, such as 'none of them'; they count as wrong answers"
    assert model.notes == [note]
    named = {"model": "function", "kind": "function of answers", "rule": "exact"}
    assert model.identity == named


def test_a_model_is_loaded_by_its_name(model_folder):
    """Baselines need no torch; a masked model is refused."""
    assert load_prompt_model("baseline:first", QUESTIONS).identity["model"] == "baseline:first"
    model = load_prompt_model(str(model_folder("gpt2")), QUESTIONS)
    assert not is_chat_model(model)
    model.tokenizer.chat_template = "{{ messages }}"
    assert is_chat_model(model)
    refused("does not write text", load_prompt_model, str(model_folder("bert")), QUESTIONS)
