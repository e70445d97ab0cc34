"""Cloze suites asked as questions."""

from collections import Counter

from checks import refused
from consilience import Suite
from consilience.suites import load_suite
from consilience.suites.facts import sample_facts
from consilience.suites.question_suites import questions_of_relation, questions_of_suite

PATTERNS = {"capital": ["The capital of [X] is [Y].", "[Y] is the capital of [X]."]}
FACTS = {
    "capital": [("France", "Paris"), ("Italy", "Rome"), ("Spain", "Madrid"), ("Chile", "Santiago")]
}
LANGUAGES = {"speaks": [
    ("Switzerland", "German"), ("Switzerland", "French"), ("Austria", "German"),
    ("Peru", "Spanish"), ("Wales", "Welsh"),
]}  # fmt: skip


def capital():
    return Suite.from_patterns(PATTERNS, FACTS)["capital"]


def speaks():
    return Suite.from_patterns({"speaks": ["In [X] people speak [Y]."]}, LANGUAGES)["speaks"]


def test_each_pattern_is_a_phrasing_and_all_candidates_are_options():
    questions = questions_of_relation(capital())
    first = questions.items[0]
    texts = ("The capital of France is ____.", "____ is the capital of France.")
    assert first.paraphrases == {"": tuple(f"Fill in the blank: {text}" for text in texts)}
    assert [option.text for option in first.options] == ["Paris", "Rome", "Madrid", "Santiago"]
    assert [question.gold_position for question in questions.items] == [0, 1, 2, 3]
    assert {question.group for question in questions.items} == {"capital"}


def test_another_right_object_of_the_subject_is_no_option():
    """Switzerland: two questions, each with one right option; German is wrong for Peru only."""
    german, french, austria, peru, _ = questions_of_relation(speaks()).items
    assert [option.text for option in german.options] == ["German", "Spanish", "Welsh"]
    assert [option.text for option in french.options] == ["French", "Spanish", "Welsh"]
    assert [option.text for option in austria.options] == ["German", "French", "Spanish", "Welsh"]
    for seed in range(20):
        drawn = questions_of_relation(speaks(), 2, seed).items
        assert {option.text for option in drawn[0].options} == {"German", "Spanish", "Welsh"}
        assert all(len(set(question.options)) == 3 for question in drawn)
        assert all(question.gold in question.options for question in drawn)
    assert peru.gold.text == "Spanish"


def test_options_are_drawn_by_the_seed_at_every_position():
    def drawn(seed):
        return questions_of_relation(capital(), 2, seed).items

    first, again, other = ([one.options for one in drawn(seed)] for seed in (0, 0, 1))
    assert first == again != other
    positions = Counter(one.gold_position for seed in range(100) for one in drawn(seed))
    # 400 draws at three positions: 133 each, with a standard deviation of 9.4.
    assert all(95 < positions[at] < 172 for at in range(3))


def test_open_questions_are_those_with_one_right_object():
    questions = questions_of_relation(speaks(), 0)
    assert [question.gold.text for question in questions.items] == ["German", "Spanish", "Welsh"]
    assert all(not question.options for question in questions.items)
    several = "speaks: 1 subject with several right objects cannot be an open question with one"
    assert questions.notes == (f"{several} answer and were left out",)


def test_too_many_distractors_and_a_sample_are_refused():
    refused("2 wrong candidates for 'Switzerland'", questions_of_relation, speaks(), 3)
    suite = Suite.from_patterns({"speaks": ["In [X] people speak [Y]."]}, LANGUAGES)
    refused("2 of 5 facts of the relation 'speaks'", questions_of_suite, sample_facts(suite, 2, 0))


def test_a_whole_suite_has_a_group_for_each_relation():
    suite = load_suite("mini")
    questions = questions_of_suite(suite, 3)
    assert list(questions.groups) == [relation.id for relation in suite.relations]
    assert len({question.item for question in questions.items}) == len(questions)
    assert {len(question.options) for question in questions.items} == {4}
    for relation in suite.relations:
        right = {(fact.subject, fact.object) for fact in relation.facts}
        for fact, question in zip(relation.facts, questions.groups[relation.id], strict=True):
            golds = [o.text for o in question.options if (fact.subject, o.text) in right]
            assert golds == [question.gold.text] == [fact.object]
