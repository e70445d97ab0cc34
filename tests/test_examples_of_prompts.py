"""Solved examples before a question: which are drawn, and what they show."""

from checks import refused
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.plans.presentation import Presentation, Presenter


def question(name, group="g", text="", gold="so", options=("so", "no", "maybe")):
    choices = tuple(map(Choice, options))
    return Question(name, group, {"": (text or f"Why {name}?",)}, Choice(gold), choices)


POOL = [question(f"q{at}") for at in range(8)] + [question("other", "h"), question("more", "h")]


def presenter(levels=("3",), pool=POOL, seed=0, **base):
    groups = {name: [one for one in pool if one.group == name] for name in ("g", "h")}
    design = FactorialDesign.full([Factor("shots", tuple(levels))])
    return Presenter(design, {}, Presentation(**base), seed, groups)


def drawn(question, draw=0, examples=3, **options):
    level = f"{examples} draw {draw + 1}" if draw else f"{examples}"
    made = presenter([level], **options)
    return [example.item for example in made.drawn_examples(question, made.presentations[0])]


def test_examples_are_of_the_group_and_never_the_question_itself():
    for at in range(8):
        for draw in range(3):
            items = drawn(POOL[at], draw)
            assert len(set(items)) == 3
            assert set(items) <= {f"q{other}" for other in range(8)} - {f"q{at}"}


def test_questions_of_a_group_have_the_same_examples():
    """But for a question that is one of them: it has the next drawn one in its place."""
    items = drawn(question("new"))
    order = drawn(question("new"), examples=8)
    assert order[:3] == items
    for at in range(8):
        expected = [item for item in order if item != f"q{at}"][:3]
        assert drawn(POOL[at]) == expected
    assert drawn(question("new"), 1) != items
    assert drawn(question("new"), seed=1) != items


def test_no_example_has_the_text_of_the_question():
    """Another item with the same text would show its answer."""
    twin = question("twin", text="Why q0?")
    for draw in range(3):
        assert "twin" not in drawn(POOL[0], draw, pool=[*POOL, twin], examples=7)


def test_a_group_that_is_too_small_is_refused():
    refused("1 other question in the group 'h'", drawn, POOL[-1])


def test_examples_have_the_presentation_of_the_question_but_their_own_order():
    """Labels and template are those of the question; only its own options are in another order."""
    pool = [question("q0"), question("q1", gold="maybe")]
    prompt = presenter("1", pool, order=("BCA",), labels="1").prompt(pool[0], 0)
    assert prompt.text == (
        "Question: Why q1?\n1. so\n2. no\n3. maybe\nAnswer: 3\n\n"
        "Question: Why q0?\n1. no\n2. maybe\n3. so\nAnswer:"
    )
    by_text = presenter("1", pool, rule_name="sum").prompt(pool[0], 0)
    assert by_text.text.startswith("Question: Why q1?\nA. so\nB. no\nC. maybe\nAnswer: maybe\n\n")


def test_a_level_has_a_number_of_examples_and_a_draw():
    """More examples begin with the same ones; another draw has others; none is no example."""
    made = presenter(("0", "2", "4", "2 draw 2"))
    none, two, four, other = (
        [one.item for one in made.drawn_examples(POOL[0], of)] for of in made.presentations
    )
    assert (none, len(two), four[:2], len(other)) == ([], 2, two, 2)
    assert other != two
    assert made.prompt(POOL[0], 0).text.startswith("Question: Why q0?")


def test_no_example_names_its_options_by_their_labels():
    """With other labels, or without, its answer would be another text."""
    named = question("named", gold="both A and B", options=("red", "dry", "both A and B"))
    for draw in range(3):
        assert "named" not in drawn(POOL[0], draw, pool=[*POOL, named], examples=7)
