"""Factors and prompts: which variants a design has, and what a model is sent in each."""

from itertools import combinations, permutations
from math import factorial

import numpy as np
import pytest

from checks import refused
from consilience.analysis.factor_effects import decompose, one_hot
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.plans.presentation import TEMPLATES, Presentation, Template, orders_of, present

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
    assert {name: len(of_factor) for name, of_factor in pairs.items()} == {
        "paraphrase": 6,  # 1 pair of levels x 6 cells of the others
        "order": 12,  # 3 x 4
        "labels": 6,
    }
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


MANY = Factor("order", tuple(map(str, range(1000))))


@pytest.mark.parametrize(("make", "message"), [
    (lambda: FactorialDesign.full([MANY, *FACTORS[:1]] * 3), "variants of each question"),
    (lambda: Template("t", "{questions}"), "no {question} in the template '{questions}'"),
    (lambda: Template("t", "{question}", system="Be brief."), "which is no chat"),
])  # fmt: skip
def test_impossible_designs_and_templates_are_refused(make, message):
    """Each with one message, before anything is asked."""
    assert message in refused("", make)


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


def test_examples_have_the_presentation_of_the_question_in_the_given_order():
    """A solved example in the order of the file, whatever the order of the question."""
    prompt = present(FRANCE, Presentation(order=("BCA",)), [ITALY])
    assert prompt.text.startswith(
        "Question: What is the capital of Italy?\nA. Rome\nB. Milan\nC. Turin\nAnswer: A\n\n"
        "Question: What is the capital of France?\nA. Paris\n"
    )


def test_a_variant_that_a_question_lacks_has_no_prompt():
    """A third phrasing, another language, an order of more options."""
    for level in ({"paraphrase": 2}, {"language": "de"}, {"order": ("ABCD", "DABC")}):
        assert present(FRANCE, Presentation(**level)) is None


def test_decomposition_by_hand():
    """Two factors of two levels; the answer follows the first: all variation is its own."""
    answers = np.array([[[0, 0], [1, 1]], [[0, 1], [1, 0]], [[2, 2], [2, 2]]])
    total, parts = decompose(one_hot(answers), ("order", "labels"))
    # 1 - (1/4 + 1/4): two cells differ with probability 1/2; the third item never varies.
    assert total == pytest.approx([0.5, 0.5, 0.0])
    assert parts["order",] == pytest.approx([0.5, 0.0, 0.0])
    assert parts["labels",] == pytest.approx([0.0, 0.0, 0.0])
    # The second item answers by both together: nothing but an interaction.
    assert parts["order", "labels"] == pytest.approx([0.0, 0.5, 0.0])
    with_labels = sum(part for of, part in parts.items() if "labels" in of)
    assert with_labels == pytest.approx([0.0, 0.5, 0.0])


def test_parts_sum_to_the_probability_that_answers_differ():
    """And a total effect is the probability that an answer changes with one level drawn anew."""
    answers = np.random.default_rng(0).integers(0, 4, (6, 2, 3, 4))
    total, parts = decompose(one_hot(answers), ("paraphrase", "order", "labels"))
    assert np.sum(list(parts.values()), axis=0) == pytest.approx(total)
    flat = answers.reshape(6, -1)
    assert total == pytest.approx([np.mean(row[:, None] != row) for row in flat])
    redrawn = [np.mean(item[:, :, None] != item[:, None]) for item in answers]
    assert sum(part for of, part in parts.items() if "order" in of) == pytest.approx(redrawn)
