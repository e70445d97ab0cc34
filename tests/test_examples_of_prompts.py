"""Solved examples before a question: which are drawn, and what they show."""

from checks import refused
from consilience.asking.questions import Presenter
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.core.presentation import Presentation


def question(name, group="g", text="", gold="so", options=("so", "no", "maybe")):
    choices = tuple(map(Choice, options))
    return Question(name, group, {"": (text or f"Why {name}?",)}, Choice(gold), choices)


POOL = [question(f"q{at}") for at in range(8)] + [question("other", "h"), question("more", "h")]
DRAWS = FactorialDesign.full([Factor("examples", ("1", "2", "3"))])


def presenter(pool=POOL, examples=3, seed=0, **base):
    return Presenter(DRAWS, {}, Presentation(**base), examples, seed, pool)


def drawn(question, draw=0, **options):
    return [example.item for example in presenter(**options).drawn_examples(question, draw)]


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
    prompt = presenter(pool, 1, order="rotation 1", labels="1").prompt(pool[0], (0,))
    assert prompt.text == (
        "Question: Why q1?\n1. so\n2. no\n3. maybe\nAnswer: 3\n\n"
        "Question: Why q0?\n1. no\n2. maybe\n3. so\nAnswer:"
    )
    by_text = Presenter(DRAWS, {}, Presentation(), 1, 0, pool, "sum").prompt(pool[0], (0,))
    assert by_text.text.startswith("Question: Why q1?\nA. so\nB. no\nC. maybe\nAnswer: maybe\n\n")
