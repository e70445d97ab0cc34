"""What a suite of questions holds, and what decides its numbers."""

from consilience.authoring.audit import cautions
from consilience.core.expectations import Expectation, Reference
from consilience.core.items import Choice, Question
from consilience.report.metric_tables import question_table
from consilience.suites.question_suites import question_statistics
from consilience.suites.questions import Questions


def question(item, text, gold, *others):
    right = Choice(gold)
    options = (right, *map(Choice, others)) if others else ()
    return Question(item, "g", {"": (text,)}, right, options)


def test_cautions_name_what_decides_the_numbers():
    """One phrasing each; three and two options; the gold is first of five; two ask the same."""
    items = (
        question("1", "A?", "x", "y"), question("2", "B?", "x", "y", "z"),
        question("3", "a?", "y", "x"), question("4", "C?", "x", "y"), question("5", "D?", "x", "y"),
    )  # fmt: skip
    notes = cautions(Questions("s", items))
    assert notes == [
        "g: 5 questions have one phrasing, such as 1",
        "g: questions have 2 to 3 options, which are chosen at other rates",
        "g: the right answer is option 1 of every question; a model that always chooses it is right",
        "g: 1 duplicate question, such as 'A?' (items 1, 3)",
    ]
    same = Expectation("same", (Reference("1"),), Reference("3"))
    counts = question_statistics(Questions("s", items, expectations=(same,)))
    assert counts.expectations == 1
    title = question_table(counts, "s").title
    assert title.startswith("s: 5 questions, 5 phrasings, 1 expectation;")
    assert (counts.by_group[0].min_options, counts.by_group[0].max_options) == (2, 3)
    assert counts.by_group[0].majority == 1
    other_gold = question("6", "A?", "z", "y")  # x is no option, so only one answer is right
    assert cautions(Questions("s", (items[0], other_gold)))[1:] == []
