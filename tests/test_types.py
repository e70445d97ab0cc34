import pytest

from conftest import cases
from consilience import Pattern
from consilience.core.factors import Edge
from consilience.core.text import names_a_file
from consilience.types import Candidates, Fact


def test_a_pattern_is_parsed_once_and_filled():
    pattern = Pattern("[X] was born in [Y].")
    assert pattern.parts == ("", " was born in ", ".")
    assert pattern.fill("Ada", "London") == "Ada was born in London."
    assert pattern.fill("[Y] and [X]", "[X]") == "[Y] and [X] was born in [X]."
    assert pattern.around_object("Ada") == ("Ada was born in ", ".")
    before = Pattern("In [Y], [X] was born.")
    assert before.object_first
    assert before.around_object("Ada") == ("In ", ", Ada was born.")


@pytest.mark.parametrize(("text", "last", "note"), cases("object_last"))
def test_object_last(text, last, note):
    assert Pattern(text).object_last is last, note


@pytest.mark.parametrize(("text", "article"), cases("articles"))
def test_the_article_is_the_whole_word_before_the_one_with_the_object(text, article):
    assert Pattern(text).article == Pattern(text, language="en-GB").article == article
    assert Pattern(text, language="de").article is None, "an is a preposition"


def test_every_combination_of_changes_has_an_edit_kind():
    kinds = {(a, b): Edge(a, b, False).kind for a in (True, False) for b in (True, False)}
    assert [*kinds.values()] == ["diff_both", "diff_syntax", "diff_lexical", "no_change"]
    assert {Edge(a, b, True).kind for a in (0, 1) for b in (0, 1)} == {"diff_determiner"}


def test_candidates_come_in_order_of_first_appearance():
    facts = [Fact(str(n), "s", word) for n, word in enumerate(["b", "a", "b"])]
    assert Candidates.of(facts) == Candidates(("b", "a"), (2, 1))


@pytest.mark.parametrize(("id_", "is_name"), [
    *((name, True) for name in ("P36", "Z\u00fcrich 1", "\u00fc" * 50)),
    *((name, False) for name in ("\u00fc" * 50 + "x", "", "..", "../../victim", "/absolute")),
    *((name, False) for name in ("a\\b", "a\0b", "\udcff")),
])  # fmt: skip
def test_an_id_that_names_a_file_stays_in_its_folder(id_, is_name):
    assert names_a_file(id_) == is_name
