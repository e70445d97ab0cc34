"""``mini`` as questions: the data is complete, each question has one right option, none is odd."""

from collections import Counter, defaultdict

import pytest

from conftest import cases
from consilience import load_suite
from consilience.suites.question_suites import QUESTION_SUITES, _rows, mini_questions
from consilience.suites.questions import normal

QUESTIONS = mini_questions()
MINI = load_suite("mini")
FACTS = [(relation.id, fact) for relation in MINI.relations for fact in relation.facts]
GOLDS = defaultdict(set)
for _relation, _fact in FACTS:
    GOLDS[_relation, _fact.subject].add(_fact.object)


def facts():
    """Each question with the relation and the fact that it asks."""
    return list(zip(QUESTIONS.items, FACTS, strict=True))


def test_every_fact_is_a_question_and_keeps_its_item_and_gold():
    assert list(QUESTIONS.groups) == [relation.id for relation in MINI.relations]
    for question, (relation, fact) in facts():
        assert (question.group, question.item) == (relation, fact.item)
        assert question.gold.text == fact.object


def test_phrasings_ask_about_the_subject_and_do_not_name_the_gold():
    for question, (_, fact) in facts():
        (texts,) = question.paraphrases.values()
        assert len(set(texts)) == len(texts) == 6
        for text in texts:
            assert text.count(fact.subject) >= 1, text
            assert text.endswith("?"), text
            assert text[0] == '"' or text[0].isupper(), text
            assert "[" not in text, text
            assert question.gold.text not in text.replace(fact.subject, ""), text


def test_five_options_are_distinct_in_all_their_texts_and_one_is_the_gold():
    for question in QUESTIONS.items:
        texts = [normal(text) for option in question.options for text in set(option.texts)]
        assert len(question.options) == 5, question.item
        assert len(set(texts)) == len(texts), question.item
        assert question.options.count(question.gold) == 1, question.item


def test_no_distractor_is_right_too_or_a_part_of_the_gold():
    """Right answers of the subject are those of both relations on languages and of borders."""
    for question, (relation, fact) in facts():
        right = set(GOLDS[relation, fact.subject])
        if relation.endswith("official_language"):
            right |= GOLDS["official_language", fact.subject]
            right |= GOLDS["co_official_language", fact.subject]
        if relation == "borders":
            right |= {subject for (name, subject), golds in GOLDS.items()
                      if name == "borders" and fact.subject in golds}  # fmt: skip
        for option in question.options:
            if option != question.gold:
                assert option.text not in right, (question.item, option.text)
                assert normal(option.text) not in normal(question.gold.text)
                assert normal(question.gold.text) not in normal(option.text)
                assert option.text not in fact.subject


def test_distractors_come_from_the_relation_but_for_a_few():
    outside = Counter()
    for question, (relation, _) in facts():
        known = {fact.object for fact in MINI[relation].facts}
        texts = {option.text for option in question.options}
        outside.update((relation, text) for text in texts - known)
    known = {"continent", "field", "borders", "co_official_language"}
    assert {relation for relation, _ in outside} == known
    assert {text for relation, text in outside if relation == "field"} == {"geology", "linguistics"}
    assert outside["co_official_language", "Persian"] == 2


def test_the_gold_is_as_often_at_each_position_in_every_group():
    for group, questions in QUESTIONS.groups.items():
        counts = Counter(question.gold_position for question in questions)
        assert set(counts) == set(range(5)), group
        assert max(counts.values()) - min(counts.values()) <= 1, group


def test_open_questions_are_those_with_one_right_answer():
    """Of 885 facts, 75 are neighbours and 52 are one of several languages."""
    questions = mini_questions("mini-open")
    left_out = len(MINI["borders"].facts) + len(MINI["co_official_language"].facts)
    assert len(questions) == 885 - left_out == 758
    assert len(questions.groups) == 13
    assert all(not question.options for question in questions.items)
    asked = {one.item: (one.gold, one.paraphrases) for one in QUESTIONS.items}
    assert all(asked[one.item] == (one.gold, one.paraphrases) for one in questions.items)


@pytest.mark.parametrize(("item", "aliases"), cases("spellings"))
def test_full_names_and_other_spellings_count(item, aliases):
    by_item = {question.item: question for question in mini_questions("mini-open").items}
    assert by_item[item].gold.aliases == tuple(aliases)


def test_every_alias_is_of_an_answer_and_a_subject_that_the_suite_has():
    facts = {(row["relation"], row["subject"], row["object"]) for row in _rows("facts")}
    rows = _rows("facts")
    options = {(row["relation"], "", text) for row in rows for text in row["options"].split(";")}
    for row in _rows("aliases"):
        answer = row["answer"].partition("|")[0]
        assert (row["relation"], row["subject"], answer) in facts | options
    for question in QUESTIONS.items:
        texts = [text.casefold() for option in question.options for text in option.texts]
        assert len(set(texts)) == len(texts), question.item


def test_the_questions_are_those_that_were_checked():
    """A change of the data needs a new reading (docs/suites.md) and new digests."""
    digests = {name: mini_questions(name).digest[:12] for name in QUESTION_SUITES}
    assert digests == {"mini-questions": "b75b4aad4774", "mini-open": "961fec077222"}
