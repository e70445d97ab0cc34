"""From written texts to answers: the rules case by case, numbers, dates, labels and choices."""

import csv
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks import refused
from conftest import ROOT
from consilience.core import free_text
from consilience.core.free_text import (
    RULES,
    match,
    matched_word,
    normalized,
    numbers_in,
    rule_of,
)
from consilience.core.items import Choice

CITIES = (Choice("London"), Choice("Paris", ("City of Light",)), Choice("New York"))
LABELS = ("A", "B", "C")
N, L, P, Y = None, 0, 1, 2

CASES = [
    # written                        exact contains
    ("B",                               P, P),
    ("b",                               P, P),
    ("(B)",                             P, P),
    ("B.",                              P, P),
    ("**B**",                           P, P),
    ("option B",                        P, P),
    ("B) Paris",                        P, P),
    ("B Paris",                         P, P),
    ("Paris (B)",                       P, P),
    ("B) Paris, the capital",           P, P),
    ("The answer is B",                 P, P),
    ("The correct option is: (B).",     P, P),
    ("The answer to this is B",         P, P),
    ("Answer: Paris",                   P, P),
    ("London? No, the answer is Paris", P, P),
    ("B\nbecause it is large",          P, P),
    ("Paris",                           P, P),
    (" Paris\n",                        P, P),
    ("PARIS.",                          P, P),
    ("the city of light",               P, P),
    ("City of Light",                   P, P),
    ("Paris\nIt is large.",             P, P),
    ("Paris, the capital",              N, P),
    ("The capital is Paris.",           N, P),
    ("It is not Paris",                 N, P),
    ("It is Paris, not London",         N, N),
    ("Option B is correct.",            P, P),
    ("Neither A nor C, so B",           N, N),
    ("Parisian",                        N, N),
    ("B) London",                       N, N),  # the label of one, the text of another
    ("B because it is large",           N, N),
    ("A or B",                          N, N),
    ("D",                               N, N),
    ("1.5",                             N, N),
    ("",                                N, N),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case[0].strip() or "empty" for case in CASES])
def test_what_counts_as_an_option(case):
    text, *expected = case
    found = [match(text, CITIES, rule_of(rule), LABELS).position for rule in list(RULES)[:2]]
    assert found == expected


OPTIONS = (Choice("entailment"), Choice("neutral"), Choice("contradiction"))
"""Before the text of one, ``A`` is the label of another and no article."""


@pytest.mark.parametrize(("written", "answer", "reason", "options"), [
    (" \n", "", "no text", CITIES),
    ("B) London", "b london", "matches 'London' and 'Paris'", CITIES),
    ("Berlin, I think!", "berlin i think", "matches no choice", CITIES),
    *((f"{label} contradiction", "a contradiction", "matches 'entailment' and 'contradiction'", OPTIONS)
      for label in ("A.", "A)", "(A)", "A:")),
])  # fmt: skip
def test_a_text_that_is_no_choice_keeps_its_words_and_a_reason(written, answer, reason, options):
    matched = match(written, options, rule_of("exact"), LABELS)
    assert (matched.position, matched.answer, matched.reason) == (None, answer, reason)


@pytest.mark.parametrize(("text", "expected"), [
    ("$5 and $6", "$5 and $6"), ("A. Paris", "a paris"),
    ("The Eiffel  Tower!", "eiffel tower"), ("Vitamin A", "vitamin a"), ("A", "a"),
    ("the", "the"), ("Lord of the Rings", "lord of the rings"), ("U.S.", "us"),
    ("don\u2019t", "dont"), ("twenty-one", "twenty one"), ("not_entailment", "not entailment"),
    ("1,000", "1000"), ("1,5", "1 5"), ("3.14", "3.14"), ("5-3", "5 3"), ("(-5)", "-5"),
    ("\u22125", "-5"), ("C++", "c++"), ("C#", "c#"), ("AT&T", "at&t"), ("$5", "$5"),
    ("5 %", "5 %"), ("**bold**", "bold"), ("<", "<"), ("*", "*"), ("Stra\u00dfe", "strasse"),
    ("\ufb01ne", "fine"), ("\u00c9cole", "\u00e9cole"), ("\u6771\u4eac\u3002", "\u6771\u4eac"),
    ("", ""),
])  # fmt: skip
def test_what_does_not_matter_is_left_out(text, expected):
    assert normalized(text) == expected


@given(st.text(max_size=12))
def test_a_normalized_text_stays_as_it_is_but_for_its_article(text):
    once = normalized(text)
    assert once in (normalized("the " + once), normalized(once), "a", "an", "the") or not once


def choices(*texts):
    return tuple(map(Choice, texts))


LABELLED = choices("entailment", "not_entailment")
GOLD = choices("1,000")


@pytest.mark.parametrize(("rule", "text", "options", "found"), [
    # A choice within a longer one does not count.
    ("contains", "It is not entailment.", LABELLED, 1),
    ("contains", "It is 5.5, not -5, 0.5 or 2.5", choices("5"), None),
    ("contains", "It is 5.", choices("5"), 0), ("contains", "2-5", choices("5"), 0),
    ("contains", "On 20.07.1969.", choices("1969"), 0),
    *(("contains", text, choices(gold), None) for gold, text in (
        ("C", "It is C++."), ("C", "C#"), ("Na", "Na+"), ("5", "It is 5/8."), ("5", "about .5"),
        ("5", "x = \u20135"), ("2", "1/2"), ("$5", "-$5"), ("-$5", "$5"),
    )),
    # What was thought is no answer, also where the thought has no end.
    ("contains", "<think>Maybe Paris, maybe", choices("Paris"), None),
    ("contains", "<think>Paris</think>", choices("Paris"), None),
    ("contains", "<think>Rome?</think> Paris", choices("Paris", "Rome"), 0),
    ("contains", "I do not know", (Choice("Paris"),), None),
    ("contains", "\u7b54\u3048\u306f\u6771\u4eac\u3067\u3059", choices("\u6771\u4eac"), 0),
    # A text as written decides between choices that are equal once normalized.
    *(("exact", text, choices("US", "us"), at) for text, at in (("US", 0), ("us", 1), ("Us", None))),
    # ``10²`` and ``102`` are one normalized text, which is no choice that its letters are.
    ("number", "10²", choices("102"), None),
    ("number", "10²", choices("102", "10²"), 1),
    # Numbers are compared by value.
    ("number", "-$5", choices("5", "-5"), 1), ("number", "1000.0 people", GOLD, 0),
    ("number", "many", choices("many"), 0),
    ("number", "3 + 4 = 7\n#### 7", choices("8", "7"), 1),
    ("number", "#### 2 ways\nThe answer is 7", choices("2", "7"), 1),
    # Work that is shown: its last number.
    ("last-number", "He has 3+4=7 apples.", choices("3", "7"), 1),
    ("last-number", "The bike is $120, so both cost $1,320.", choices("120", "1320"), 1),
    ("last-number", "so 5 or 2-3", choices("5", "3"), None),
    ("last-number", "none", choices("5"), None),
])  # fmt: skip
def test_which_choice_a_text_is(rule, text, options, found):
    assert match(text, options, rule_of(rule)).position == found


@pytest.mark.parametrize(("rule", "text", "options", "reason"), [
    ("number", "4 of 1000", GOLD, "several numbers: 4, 1000"),
    ("number", "many", GOLD, "no number"),
])  # fmt: skip
def test_why_a_text_has_no_value(rule, text, options, reason):
    assert match(text, options, rule_of(rule)).reason == reason


@pytest.mark.parametrize(("text", "options", "found"), [
    ("B. -5", ("5", "-5", "0"), 1), ("(B) -5", ("5", "-5"), 1), ("B - 5", ("-5", "5"), 1),
    ("A. New York", ("New", "New York"), None), ("A. New", ("New", "New York"), 0),
    ("A. London - Incorrect.", ("London", "Paris"), None),
    ("A) London is not the capital.", ("London", "Paris"), None),
    ("B) Paris is the capital, not London", ("London", "Paris"), 1),
    ("**Answer**: B", ("x", "y"), 1), ('{"answer": "B"}', ("x", "y"), 1),
])  # fmt: skip
def test_a_label_with_a_text_is_the_option_that_both_name(text, options, found):
    rule = rule_of("exact")
    assert match(text, choices(*options), rule, LABELS[: len(options)]).position == found


def test_the_text_of_an_option_is_no_label_in_another_case():
    """Shown as A. b, B. a: `a` is the text of B, `A` the label of one and the text of the other."""
    shown_as = (choices("b", "a"), rule_of("exact"), ("A", "B"))
    assert [match(text, *shown_as).position for text in ("a", "A")] == [1, None]
    names = ("entailment", "not_entailment")
    assert matched_word("The label is not_entailment.", names) == "not_entailment"
    assert matched_word("neutral", names) is None


@pytest.mark.parametrize(("text", "values"), [
    ("1,000", ["1000"]), ("1000", ["1000"]), ("007", ["7"]), ("1000.0", ["1000"]), ("-0", ["0"]),
    ("5 %", ["5"]), ("5%", ["5"]), ("0.05", ["0.05"]), ("\u22125", ["-5"]), ("-0.5", ["-0.5"]),
    ("2 and 3", ["2", "3"]), ("$1,200.50", ["1200.5"]), ("-$5", ["-5"]), ("B12", []), ("COVID-19", []),
    ("5 km", ["5"]), ("answer=5", ["5"]), ("**5**.", ["5"]), ("20 \u00b0C", ["20"]), ("3 million", ["3"]),
    ("", []), ("one thousand", []),
])  # fmt: skip
def test_numbers_in_a_text(text, values):
    assert numbers_in(text) == values


@pytest.mark.parametrize("text", [
    "1k", "1.5bn", "0x10", "10^3", "1,5", "1.000.000", "1.2.3", "3rd", "1990s",
    "2-3", "5km", "1/2", "1e3", ".5", "3\u00bd", "10\u00b2", "\uff11\uff19",
])  # fmt: skip
def test_digits_whose_value_is_another_one_are_ambiguous(text):
    refused("number", numbers_in, text)


def test_a_pattern_of_ones_own():
    for pattern in (r"####\s*(\S+)", r"(?:####)\s*(?P<answer>\S+)", r"(?<=#### )\S+"):
        matched = match("3 + 4 ...\n#### 1,000", choices("1000"), rule_of(f"regex:{pattern}"))
        assert (matched.position, matched.answer) == (0, "1000")
    matched = match("1000", (Choice("1000"),), rule_of(r"regex:####\s*(\S+)"))
    assert (matched.position, matched.reason) == (None, "the pattern does not match")
    assert match("so (B)", CITIES, rule_of(r"regex:(\(.\))"), LABELS).position == 1
    for name, expected in (("regex:(", "regular expression"), ("exakt", "Did you mean")):
        refused(expected, rule_of, name)


def test_a_pattern_has_a_limit_in_time(monkeypatch):
    monkeypatch.setattr(free_text, "SECONDS", 0.05)
    rule = rule_of("regex:answer is (a|aa)+$")
    assert rule.extract("The answer is aaa").answer == "a"
    slow = "answer is " + "a" * 80 + "!"
    refused("longer than 0.05 s for an answer of 91 characters", rule.extract, slow)


def test_the_guide_has_the_rules_and_cases_that_are_tested():
    assert list(RULES) == [
        "exact",
        "contains",
        "number",
        "last-number",
    ]
    assert all(rule.meaning.endswith(".") and rule.source for rule in RULES.values())
    guide = (ROOT / "docs" / "free-text.md").read_text(encoding="utf-8")
    rows = [f"| `{rule.name}` | {rule.meaning} | {rule.source} |" for rule in RULES.values()]
    table = ["| rule | a text is a choice if | source |", "|---|---|---|", *rows]
    assert "\n".join(table) in guide
    with (ROOT / "docs/results/free-text/cases.csv").open(encoding="utf-8", newline="") as file:
        header, *written = csv.reader(file)
    assert header == ["written", "exact", "contains"]
    assert written == [
        [(text or " ").replace("\n", "⏎"), *("" if at is None else CITIES[at].text for at in found)]
        for text, *found in CASES
    ]
    heading = "| written | `exact` | `contains` |\n"
    _, _, shown = guide.partition(heading)
    lines = itertools.takewhile(lambda line: line.startswith("|"), shown.splitlines()[1:])
    rows = [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in lines]
    assert len(rows) > 10
    known = [[case[0].strip(), *case[1:]] for case in written]
    assert all(row in known for row in rows)


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=5), max_size=3, unique=True))
def test_every_text_has_an_answer_or_a_reason(text, words):
    """Whatever is written and whatever the choices are, under every rule."""
    options = [Choice(word) for word in words]
    for rule in [*RULES.values(), rule_of("regex:(a)|b")]:
        matched = match(text, options, rule, LABELS[: len(words)])
        assert (matched.position is None) == bool(matched.reason)
        assert matched.answer or not text.strip()


def test_letters_that_only_ignore_case_are_labels_of_options():
    """The dotless i is an I for a pattern that ignores case, and not when case folded."""
    options = choices(*"abcdefghij")
    assert match("\u0131)", options, rule_of("exact"), "ABCDEFGHIJ").position == 8


def test_a_choice_is_its_own_answer():
    """Each choice as written, under every rule but that of patterns."""
    options = choices("A Tale of Two Cities", "1,5", "no", "1/2", "C++", "C")
    for rule in RULES.values():
        assert [match(one.text, options, rule).position for one in options] == [*range(6)]
