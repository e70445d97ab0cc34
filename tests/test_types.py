import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience import ConsilienceError, Pattern
from consilience.text import names_a_file
from consilience.types import Candidates, Edge, Fact

PLAIN = st.text(st.characters(exclude_characters="[]", exclude_categories=["Cs"]), max_size=12)


def test_a_pattern_is_parsed_once_and_filled():
    pattern = Pattern.parse("[X] was born in [Y].")
    assert pattern.parts == ("", " was born in ", ".")
    assert pattern.fill("Ada", "London") == "Ada was born in London."
    assert pattern.around_object("Ada") == ("Ada was born in ", ".")
    before = Pattern.parse("In [Y], [X] was born.")
    assert before.object_first
    assert before.around_object("Ada") == ("In ", ", Ada was born.")


@given(PLAIN, PLAIN, PLAIN, st.text(max_size=8), st.text(max_size=8), st.booleans())
def test_filling_puts_subject_and_object_in_their_slots(a, b, c, subject, object_, swap):
    first, second = ("[Y]", "[X]") if swap else ("[X]", "[Y]")
    pattern = Pattern.parse(a + first + b + second + c)
    filled = [object_, subject] if swap else [subject, object_]
    assert pattern.fill(subject, object_) == a + filled[0] + b + filled[1] + c


def test_slots_inside_a_subject_are_text():
    assert Pattern.parse("[X] is [Y].").fill("[Y] and [X]", "red") == "[Y] and [X] is red."


@pytest.mark.parametrize("text", ["no slots", "[X] only", "[Y] only", "[X] [Y] [Y]", "[X] [X] [Y]"])
def test_a_slot_that_is_missing_or_doubled_is_refused_with_its_place(text):
    with pytest.raises(ConsilienceError, match=r"f\.jsonl:3: .*exactly one \[[XY]\]"):
        Pattern.parse(text, where="f.jsonl:3")


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("[X] is in [Y].", True),
        ("[X] is in [Y] .", True),
        ("[X] is in [Y]", True),
        ("[X] is a [Y]-born person.", False),
        ("[X] is in [Y],", False),
        ("[Y] holds [X].", False),
        ("[X]\u7684\u9996\u90fd\u662f[Y]\u3002", True),  # Chinese
        ("[X]\u7684\u9996\u90fd\u662f\u300c[Y]\u300d\uff0e", True),
        ("[X]\u306e\u9996\u90fd\u306f[Y]\uff1f", True),  # Japanese
        ("[X]\u306e\u9996\u90fd\u306f[Y]\u3067\u3059\u3002", False),  # a copula follows the object
        (
            "[X] \u06a9\u0627 \u062f\u0627\u0631\u0627\u0644\u062d\u06a9\u0648\u0645\u062a [Y]\u06d4",
            True,
        ),  # Urdu
        (
            "[X] \u0645\u0627 \u0639\u0627\u0635\u0645\u0629 [Y]\u061f\u200f",
            True,
        ),  # Arabic, with a directional mark
        ("[X] \u0915\u0940 \u0930\u093e\u091c\u0927\u093e\u0928\u0940 [Y]\u0964", True),  # Hindi
        (
            "[X] \u0915\u0940 \u0930\u093e\u091c\u0927\u093e\u0928\u0940 [Y] \u0939\u0948\u0964",
            False,
        ),
        (
            "[X]-\u056b \u0574\u0561\u0575\u0580\u0561\u0584\u0561\u0572\u0561\u0584\u0568 [Y]\u0589",
            True,
        ),  # Armenian
        ("[X] \u1260[Y]\u1362", True),  # Amharic
        ("[X] is called \u201e[Y]\u201c!", True),  # German quotation marks
        ("[X] est \u00ab\u00a0[Y]\u00a0\u00bb\u2026", True),  # French, with no-break spaces
        ('[X] is called "[Y]." ', True),
        ("[X] is small (in [Y]).", True),
        ("[X] is in [Y]\u2019s north", False),
        ("[X] is in [Y]\uff0c", False),
        ("[X] is in [Y]\u060c", False),
        ("[X] holds [Y]:", False),
        ("[X] holds [Y]%.", False),
        ("[X] holds [Y] (", False),
        ("\u00bfIs [X] [Y]\u00bf", False),
    ],
)
def test_object_last(text, last):
    assert Pattern.parse(text).object_last is last


@pytest.mark.parametrize(
    ("text", "article"),
    [
        ("[X] is a [Y].", "a"),
        ("[X] is an [Y]-born person.", "an"),
        ("[X] is A [Y].", None),
        ("[X], (a [Y])", None),
        ("[Y] is a [X].", None),
        ("a big [Y] [X]", None),
    ],
)
def test_the_article_is_the_whole_word_before_the_one_with_the_object(text, article):
    assert Pattern.parse(text).article == article


def test_every_combination_of_changes_has_an_edit_kind():
    assert Edge(True, False, False).kind == "diff_syntax"
    assert Edge(False, True, False).kind == "diff_lexical"
    assert Edge(True, True, False).kind == "diff_both"
    assert Edge(False, False, False).kind == "no_change"
    assert {Edge(a, b, True).kind for a in (0, 1) for b in (0, 1)} == {"diff_determiner"}


def test_candidates_come_in_order_of_first_appearance():
    facts = [Fact(str(n), "s", word) for n, word in enumerate(["b", "a", "b"])]
    assert Candidates.of(facts) == Candidates(("b", "a"), (2, 1))


@pytest.mark.parametrize(
    ("id_", "is_name"),
    [
        ("P36", True),
        ("Z\u00fcrich 1", True),
        ("\u00fc" * 50, True),
        ("\u00fc" * 50 + "x", False),
        ("", False),
        ("..", False),
        ("../../victim", False),
        ("/absolute", False),
        ("a\\b", False),
        ("a\0b", False),
        ("\udcff", False),
    ],
)
def test_an_id_that_names_a_file_stays_in_its_folder(id_, is_name):
    assert names_a_file(id_) == is_name
