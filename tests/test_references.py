"""Options that speak of others: what is found, what stays, what is written where they are shown."""

import json
from dataclasses import replace
from itertools import permutations

import polars as pl
import pytest

import consilience as cs
from checks import refused
from conftest import cases
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.plans.presentation import (
    Presentation,
    PromptBuilder,
    Template,
    present,
    references_of,
)


def question(*options, asked="Which is right?", **more):
    choices = tuple(map(Choice, options))
    return Question("q", "g", {"": (asked,)}, choices[0], choices, **more)


@pytest.mark.parametrize("options", cases("options_that_stay"))
def test_a_last_option_that_speaks_of_all_others_stays_last(options):
    asked = question(*options.split("|"))
    assert references_of(asked).pinned == (3,)
    for order in permutations("ABCD"):
        shown = present(asked, Presentation(order=("".join(order),)))
        assert shown.choices[3] == asked.options[3]


@pytest.mark.parametrize("options", cases("options_that_are_free"))
def test_texts_of_another_meaning_are_free(options):
    found = references_of(question(*options.split("|")))
    assert (found.pinned, found.named, found.speaking) == ((), {}, frozenset())


@pytest.mark.parametrize(("options", "expected"), cases("options_that_name"))
def test_letters_follow_their_options(options, expected):
    """In the reversed order the first option is the fourth one; the names are in the order shown."""
    asked = question(*options.split("|"))
    prompt = present(asked, Presentation(order=("DCBA",), labels="1"))
    assert prompt.choices[0].text == expected
    assert f"1. {expected}\n2. plum" in prompt.text
    assert present(asked, Presentation(labels="none")) is None
    hidden = Presentation(template=Template("own", "{question}"))
    assert present(asked, hidden) is None


def test_what_letters_name_is_the_same_in_every_order():
    asked = question("fig", "pear", "both A and B", "none of these", "A and C only")
    assert references_of(asked).named == {}, "one that names another such option is none"
    asked = question("fig", "pear", "plum", "both A and C", "none of these")
    for order in permutations("ABCDE"):
        shown = present(asked, Presentation(order=("".join(order),), labels="a"))
        assert shown.choices[4].text == "none of these"
        text = next(one.text for one in shown.choices if one.text.startswith("both"))
        named = {shown.choices["abcde".index(text[at])].text for at in (5, 11)}
        assert named == {"fig", "plum"} and text[5] < text[11]
    given = present(asked, Presentation())
    assert given.choices == asked.options


def test_letters_in_the_question_name_what_is_there():
    """Statements that a question lists itself are no options."""
    texts = ("fig", "pear", "plum", "B and C only")
    assert references_of(question(*texts)).named == {3: (1, 2)}
    listed = "B. A fig is a fruit. C. A plum is a fruit. Which statements are right?"
    assert references_of(question(*texts, asked=listed)).named == {}
    assert references_of(question(*texts, context="B: yes\nC: no")).named == {}
    assert references_of(question(*texts, asked="Is vitamin B a fruit?")).named == {3: (1, 2)}


@pytest.mark.parametrize(("options", "pin", "pinned"), cases("pins"))
def test_what_cannot_be_moved_stays_and_a_pin_overrides(options, pin, pinned):
    assert references_of(question(*options.split("|"), pin=pin)).pinned == tuple(pinned)


@pytest.mark.parametrize("pin", ["E", "first", "A,B", "a"])
def test_a_pin_names_options(pin):
    expected = "expected last, none, or letters such as CD"
    message = f"the pin '{pin}' of a question with 4 options; {expected}"
    refused(message, references_of, question("fig", "pear", "plum", "lime", pin=pin))


def test_a_free_question_names_no_options():
    """With the pin none the text stays as it is in all orders and labels."""
    asked = question("fig", "pear", "both A and B", pin="none")
    for labels in ("A", "1", "none"):
        shown = present(asked, Presentation(order=("CBA",), labels=labels))
        assert shown.choices[0].text == "both A and B"


def test_the_answers_have_the_texts_of_the_file():
    """An alias is rewritten, too; another language has its own text."""
    named = Choice("both A and B", ("A and B",))
    asked = replace(
        question("fig", "pear", "plum"),
        options=(Choice("fig"), Choice("pear"), named), gold=named,
        paraphrases={"en": ("Which?",), "de": ("Welche?",)},
        written={("de", 0): ("Feige", "Birne", "sowohl A als auch B")},
    )  # fmt: skip
    shown = present(asked, Presentation("en", order=("BCA",)))
    assert shown.choices[1] == Choice("both A and C", ("A and C",))
    shown = present(asked, Presentation("de", order=("BCA",)))
    assert shown.choices[1].text == "sowohl A als auch C"


def test_a_wrong_option_of_a_template_speaks_of_no_other():
    """Unless all wrong ones do; it is the same in every order."""
    template = Template("hint", "Not {wrong}? {question}\n{options}")
    asked = question("fig", "pear", "none of these")
    design = FactorialDesign.full([Factor("order", ("ABC", "BCA", "CBA"))])
    prompt_builder = PromptBuilder(design, {}, Presentation(template=template))
    given, other = (prompt_builder.prompt(asked, at).text for at in (0, 1))
    assert given == "Not pear? Which is right?\nA. fig\nB. pear\nC. none of these"
    assert other == "Not pear? Which is right?\nA. pear\nB. fig\nC. none of these"
    assert prompt_builder.prompt(asked, 2) is None, "as in the second order"
    only = present(question("fig", "none of these"), Presentation(template=template))
    assert only.text.startswith("Not none of these?")


def test_a_run_and_the_scores_of_its_export_have_the_same_numbers(tmp_path):
    """Places of options are those that each question was shown with."""
    rows = ["item,question,options,answer"]
    for at, options in enumerate(("fig;pear;plum;all of the above", "fig;pear;both A and B;none of these",
                                  "fig;all of the above;pear;plum", "fig;pear;plum", "fig;pear;plum;lime")):  # fmt: skip
        rows.append(f"q{at},Which {at}?,{options},fig")
    path = tmp_path / "q.csv"
    path.write_text("\n".join(rows))
    run = cs.evaluate(path, "baseline:first", vary=["order"])
    assert run.answers.filter(item="q1")["shown"].to_list() == ["ABCD", "BCAD", "CABD"]
    assert run.answers.filter(item="q2")["shown"].to_list() == ["ABCD"]
    exported = (row | {"answer": "A"} for row in cs.export_prompts(path, vary=["order"]))
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, exported)))
    scored = cs.score(tmp_path / "answers.jsonl")
    columns = ["metric", "over", "kind", "level", "value", "n"]
    one, other = (of.metrics.filter(pl.col("metric") != "no_option") for of in (run, scored))
    assert one.select(columns).equals(other.select(columns))
