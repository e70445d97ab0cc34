"""From written texts to answers: the rules case by case, numbers, dates, labels and choices."""

import csv
import itertools
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks import refused
from conftest import ROOT, cases
from consilience.core.free_text import (
    RULES,
    dates_in,
    match,
    matched_word,
    normalized,
    numbers_in,
    rule_of,
    shown,
)
from consilience.core.items import Choice

CITIES = (Choice("London"), Choice("Paris", ("City of Light",)), Choice("New York"))
LABELS = ("A", "B", "C")
N, L, P, Y = None, 0, 1, 2

CASES = [
    # written                        exact normalized contains first-word
    ("B",                               P, P, P, P),
    ("b",                               N, P, P, P),
    ("(B)",                             N, P, P, P),
    ("B.",                              N, P, P, P),
    ("**B**",                           N, P, P, P),
    ("option B",                        N, P, P, P),
    ("B) Paris",                        N, P, P, P),
    ("B Paris",                         N, P, P, P),
    ("Paris (B)",                       N, P, P, P),
    ("B) Paris, the capital",           N, P, P, P),
    ("The answer is B",                 N, P, P, P),
    ("The correct option is: (B).",     N, P, P, P),
    ("The answer to this is B",         N, P, P, P),
    ("Answer: Paris",                   N, P, P, P),
    ("London? No, the answer is Paris", N, P, P, P),
    ("B\nbecause it is large",          N, P, P, P),
    ("Paris",                           P, P, P, P),
    (" Paris\n",                        P, P, P, P),
    ("PARIS.",                          N, P, P, P),
    ("the city of light",               N, P, P, P),
    ("City of Light",                   P, P, P, P),
    ("Paris\nIt is large.",             N, P, P, P),
    ("Paris, the capital",              N, N, P, P),
    ("The capital is Paris.",           N, N, P, N),
    ("It is not Paris",                 N, N, N, N),
    ("It is Paris, not London",         N, N, P, N),
    ("Option B is correct.",            N, P, P, P),
    (r"So it is $\boxed{B}$.",          N, P, P, P),
    (r"\boxed{\text{Paris}}",           N, P, P, P),
    ("$B$",                             N, P, P, P),
    ("Neither A nor C, so B",           N, N, N, N),
    ("New",                             N, N, N, Y),
    ("Parisian",                        N, N, N, N),
    ("B) London",                       N, N, N, N),  # the label of one, the text of another
    ("B because it is large",           N, N, N, N),
    ("A or B",                          N, N, N, N),
    ("D",                               N, N, N, N),
    ("1.5",                             N, N, N, N),
    ("",                                N, N, N, N),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case[0].strip() or "empty" for case in CASES])
def test_what_counts_as_an_option(case):
    text, *expected = case
    found = [match(text, CITIES, rule_of(rule), LABELS).position for rule in list(RULES)[:4]]
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
    matched = match(written, options, rule_of("normalized"), LABELS)
    assert (matched.position, matched.answer, matched.reason) == (None, answer, reason)


@pytest.mark.parametrize(("text", "expected"), [
    (r"\text{Paris}", "paris"), ("$B$", "b"), ("$5 and $6", "$5 and $6"), ("A. Paris", "a paris"),
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
GOLD = (Choice("1,000", ("ten hundred",)),)
DAY = choices("20 July 1969")


@pytest.mark.parametrize(("rule", "text", "options", "found"), [
    # A choice within a longer one does not count.
    ("contains", "It is not entailment.", LABELLED, 1),
    ("contains", "Entailment, not not_entailment", LABELLED, 0),
    ("contains", "It is 5.5, not -5, 0.5 or 2.5", choices("5"), None),
    ("contains", "It is 5.", choices("5"), 0), ("contains", "2-5", choices("5"), 0),
    ("contains", "On 20.07.1969.", choices("1969"), 0),
    *(("contains", text, choices(gold), None) for gold, text in (
        ("C", "It is C++."), ("C", "C#"), ("Na", "Na+"), ("5", "It is 5/8."), ("5", "about .5"),
        ("5", "x = \u20135"), ("2", "1/2"), ("$5", "-$5"), ("-$5", "$5"),
    )),
    ("contains", "\u00bd", choices("1/2"), 0), ("normalized", "**.5**", choices("5", "0.5"), None),
    # What was thought is no answer, also where the thought has no end.
    ("contains", "<think>Maybe Paris, maybe", choices("Paris"), None),
    ("contains", "<think>Paris</think>", choices("Paris"), None),
    ("contains", "<think>Rome?</think> Paris", choices("Paris", "Rome"), 0),
    ("number", "-$5", choices("5", "-5"), 1), ("number", "two thirds", choices("2"), None),
    ("contains", "I do not know", (Choice.parse("Paris|"),), None),
    ("number", "minus 5", choices("5", "-5"), 1),
    ("last-number", "The total is minus 5.", choices("5", "-5"), 1),
    ("last-number", "The total is 12 000", choices("0", "12000"), 1),
    ("contains", "It is not New York.", choices("York", "New York"), None),
    ("contains", "\u7b54\u3048\u306f\u6771\u4eac\u3067\u3059", choices("\u6771\u4eac"), 0),
    # A text as written decides between choices that are equal once normalized.
    *(("normalized", text, choices("US", "us"), at) for text, at in (("US", 0), ("us", 1), ("Us", None))),
    # ``10²`` and ``102`` are one normalized text, which is no choice that its letters are.
    ("number", "10²", choices("102"), None),
    ("number", "10²", choices("102", "10²"), 1),
    # Numbers and dates are compared by value.
    ("number", "About 1e3 people.", GOLD, 0),
    ("number", "First 3 + 4 = 7. The answer is one thousand", GOLD, 0),
    ("number", "many", choices("many"), 0),
    ("number", "3 + 4 = 7\n#### 7", choices("8", "7"), 1),
    ("number", "#### 2 ways\nThe answer is 7", choices("2", "7"), 1),
    # Work that is shown: its last number.
    ("last-number", "He has 3+4=7 apples.", choices("3", "7"), 1),
    ("last-number", "The bike is $120, so both cost $1,320.", choices("120", "1320"), 1),
    ("last-number", "Of 20 cats twenty-one", choices("20", "21"), 0),
    ("last-number", "twenty-one", choices("1", "21"), 1),
    ("last-number", "4 of us have 3 million", choices("3", "3000000"), 1),
    ("last-number", "from 2 to 5 percent", choices("5", "0.05"), 1),
    ("last-number", "so 5 or 2-3", choices("5", "3"), None),
    ("last-number", "none", choices("5"), None),
    ("date", "July 20, 1969", DAY, 0),
    ("date", "1969", DAY, None),
])  # fmt: skip
def test_which_choice_a_text_is(rule, text, options, found):
    assert match(text, options, rule_of(rule)).position == found


@pytest.mark.parametrize(("rule", "text", "options", "reason"), [
    ("number", "4 of 1000", GOLD, "several numbers: 4, 1000"),
    ("number", "many", GOLD, "no number"),
    ("date", "05/03/2024", DAY, "ambiguous date: '05/03/2024' is 2024-03-05 or 2024-05-03"),
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
    rule = rule_of("normalized")
    assert match(text, choices(*options), rule, LABELS[: len(options)]).position == found


def test_the_text_of_an_option_is_no_label_in_another_case():
    """Shown as A. b, B. a: `a` is the text of B, `A` the label of one and the text of the other."""
    shown_as = (choices("b", "a"), rule_of("normalized"), ("A", "B"))
    assert [match(text, *shown_as).position for text in ("a", "A")] == [1, None]
    names = ("entailment", "not_entailment")
    assert matched_word("The label is not_entailment.", names) == "not_entailment"
    assert matched_word("neutral", names) is None


@pytest.mark.parametrize(("text", "values"), [
    ("1,000", ["1000"]), ("1000", ["1000"]), ("1e3", ["1000"]), ("1\u00a0000", ["1000"]),
    ("5 %", ["0.05"]), ("5 percent", ["0.05"]), ("0.05", ["0.05"]), ("1/3", ["1/3"]),
    ("three", ["3"]), ("twenty-one", ["21"]), ("one hundred and five", ["105"]),
    ("two million three hundred thousand and four", ["2300004"]), ("3 million", ["3000000"]),
    ("minus five", ["-5"]), ("negative 3.5", ["-3.5"]), ("one in a million", ["1", "1000000"]), ("\u22125", ["-5"]), ("-0.5", ["-0.5"]), ("5km", ["5"]),
    ("2 and 3", ["2", "3"]), ("ten five", ["10", "5"]), ("$1,200.50", ["1200.5"]),
    ("B12", []), ("COVID-19", []), ("one of 1 000", ["1", "1000"]), ("12 345 678", ["12345678"]), ("", []),
    ("1_000", ["1000"]), ("5 km", ["5"]), ("a 5-year plan", ["5"]), ("answer=5", ["5"]), ("{5}", ["5"]),
    ("5 miles", ["5"]), ("one million two hundred thousand", ["1200000"]), ("20 °C", ["20"]),
    ("3½ km, ½, ⅓", ["3.5", "0.5", "1/3"]), ("١٩٩٠", ["1990"]), ("１９９０年に", ["1990"]),
])  # fmt: skip
def test_numbers_in_a_text(text, values):
    assert [shown(value) for value in numbers_in(text)] == values


@pytest.mark.parametrize("text", [
    "1k", "1.5bn", "$4mn", "0x10", "0b101", "10^3", "10²", "1,5", "1.000.000", "1.2.3", "3rd", "1990s", "2-3",
    "10 lakh", "2 Millionen", "5 Mio.", "2 миллиона", "3万", "5만", "half a million", "2 dozen", "5 ‰", ".5",
    "5 + 5", r"\frac{5}{5}", "not 42", "isn\u2019t 42", "no one", "more than 100", "1e999999999", "1/0",
    "9" * 5000, "9" * 5000 + "/2", "9" * 5000 + "½", "one hundred " * 20_000, "thousand million",
])  # fmt: skip
def test_digits_and_words_whose_value_is_another_one_are_ambiguous(text):
    refused("number", numbers_in, text)


@given(st.fractions(max_denominator=1000))
def test_a_number_that_is_shown_is_read_as_the_same_number(value):
    assert numbers_in(shown(value)) == [value]
    assert numbers_in(str(Fraction(round(value)))) == [round(value)]


@pytest.mark.parametrize(("text", "values"), [
    ("2024-03-05", ["2024-03-05"]), ("2024/3/5", ["2024-03-05"]),
    ("5 March 2024", ["2024-03-05"]), ("March 5th, 2024", ["2024-03-05"]),
    ("on the 5th of March, 2024.", ["2024-03-05"]), ("Sept. 5, 2001", ["2001-09-05"]),
    ("5.3.2024", ["2024-03-05"]), ("25/12/2024", ["2024-12-25"]), ("12/25/2024", ["2024-12-25"]),
    ("05/05/2024", ["2024-05-05"]), ("March 2024", ["2024-03"]), ("in 1969.", ["1969"]),
    ("29 February", ["--02-29"]), ("30 February 2020", []), ("1,969 people", []), ("may be", []),
    ("1 May 2020, June 2021", ["2020-05-01", "2021-06"]), ("", []),
    ("1969-07-20T20:17:00", ["1969-07-20"]), ("1969-07-20T22:17:40.5+02:00", ["1969-07-20"]),
    ("1969-07-20 20:17", ["1969-07-20"]), ("1969-02-30T10:00", []), ("1969年7月20日", []),
    ("im Jahr 1969", ["1969"]), ("not 1969", []), ("wasn't in 1969", []), ("1969 BC", []),
    ("20 July 1969, not 16 July 1969", ["1969-07-20"]),
])  # fmt: skip
def test_dates_in_a_text(text, values):
    assert dates_in(text) == values


@pytest.mark.parametrize("text", [
    "20 Juli 1969", "20 juillet 1969", "20 de julio de 1969", "20 июля 1969 года", "20 يوليو 1969", "1969. 7. 20.",
    "le 1er mai 1886", "März 2020", "mars 1990", "julio de 1969", "July of 1969", "the twentieth of July 1969",
    "20 July '69", "5-7 March 2024", "5 to 7 March 2024", "March or April 2024", "Q3 1969",
])  # fmt: skip
def test_a_date_that_may_be_a_part_of_another_is_ambiguous(text):
    refused("may be a part", dates_in, text)


def test_a_pattern_of_ones_own():
    for pattern in (r"####\s*(\S+)", r"(?:####)\s*(?P<answer>\S+)", r"(?<=#### )\S+"):
        matched = match("3 + 4 ...\n#### 1,000", choices("1000"), rule_of(f"regex:{pattern}"))
        assert (matched.position, matched.answer) == (0, "1000")
    matched = match("1000", (Choice("1000"),), rule_of(r"regex:####\s*(\S+)"))
    assert (matched.position, matched.reason) == (None, "the pattern does not match")
    assert match("so (B)", CITIES, rule_of(r"regex:(\(.\))"), LABELS).position == 1
    for name, expected in (("regex:(", "regular expression"), ("normalised", "Did you mean")):
        refused(expected, rule_of, name)


RATES = [
    # family, rule, then false accepts, false rejects, wrong options: of all, and of the held out
    #                              before, now                 before, now
    ("options", "exact", (0, 75, 0), (0, 75, 0), (0, 19, 0), (0, 19, 0)),
    ("options", "normalized", (4, 47, 0), (4, 33, 0), (1, 11, 0), (1, 7, 0)),
    ("options", "contains", (13, 42, 0), (9, 25, 0), (5, 10, 0), (2, 5, 0)),
    ("options", "first-word", (7, 42, 2), (7, 28, 2), (1, 11, 0), (1, 7, 0)),
    ("yes/no", "exact", (0, 23, 0), (0, 23, 0), (0, 6, 0), (0, 6, 0)),
    ("yes/no", "normalized", (0, 16, 0), (0, 12, 0), (0, 5, 0), (0, 3, 0)),
    ("yes/no", "contains", (4, 8, 0), (3, 8, 0), (1, 1, 0), (1, 1, 0)),
    ("yes/no", "first-word", (6, 9, 2), (6, 5, 2), (1, 3, 0), (1, 1, 0)),
    ("open", "normalized", (0, 10, 0), (0, 9, 0), (0, 2, 0), (0, 2, 0)),
    ("open", "contains", (10, 2, 0), (6, 2, 0), (3, 1, 0), (2, 1, 0)),
    ("unicode", "normalized", (0, 4, 0), (0, 4, 0), (0, 2, 0), (0, 2, 0)),
    ("unicode", "contains", (3, 0, 0), (3, 0, 0), (0, 0, 0), (0, 0, 0)),
    ("numbers", "number", (10, 19, 30), (2, 43, 0), (5, 4, 6), (0, 9, 0)),
    ("dates", "date", (13, 8, 22), (2, 27, 0), (1, 1, 8), (1, 5, 0)),
]


def test_the_rates_of_errors_on_texts_with_a_known_reading_do_not_rise():
    """A false accept takes a choice that a careful reader does not, a false reject none."""
    found = {(family, rule): ([0, 0, 0], [0, 0, 0]) for family, rule, *_ in RATES}
    sizes = Counter()
    for one in cases("free_text"):
        families = [one["family"]] + [(one["family"], "held out")] * bool(one.get("held_out"))
        sizes.update(families)
        options, labels = choices(*one["choices"]), one.get("labels", ())
        for rule in (rule for family, rule in found if family == one["family"]):
            at = match(one["text"], options, rule_of(rule), labels).position
            if at != one["reading"]:
                kind = 0 if one["reading"] is None else 1 if at is None else 2
                for errors in found[one["family"], rule][: len(families)]:
                    errors[kind] += 1
    assert found == {(row[0], row[1]): (list(row[3]), list(row[5])) for row in RATES}
    table = ROOT / "docs" / "results" / "free-text" / "hard-texts.csv"
    lines = table.read_text(encoding="utf-8").splitlines()
    for family, rule, *counts in RATES:
        cells = [" / ".join(map(str, triple)) for triple in counts]
        cells = [str(sizes[family]), *cells[:2], str(sizes[family, "held out"]), *cells[2:]]
        assert ",".join([family, rule, *cells]) in lines


def test_the_guide_has_the_rules_and_cases_that_are_tested():
    assert list(RULES) == [
        "exact",
        "normalized",
        "contains",
        "first-word",
        "number",
        "last-number",
        "date",
    ]
    assert all(rule.meaning.endswith(".") and rule.source for rule in RULES.values())
    guide = (ROOT / "docs" / "free-text.md").read_text(encoding="utf-8")
    rows = [f"| `{rule.name}` | {rule.meaning} | {rule.source} |" for rule in RULES.values()]
    table = ["| rule | a text is a choice if | source |", "|---|---|---|", *rows]
    assert "\n".join(table) in guide
    with (ROOT / "docs/results/free-text/cases.csv").open(encoding="utf-8", newline="") as file:
        header, *written = csv.reader(file)
    assert header == ["written", "exact", "normalized", "contains", "first-word"]
    assert written == [
        [(text or " ").replace("\n", "⏎"), *("" if at is None else CITIES[at].text for at in found)]
        for text, *found in CASES
    ]
    heading = "| written | `exact` | `normalized` | `contains` | `first-word` |\n"
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
    assert match("\u0131)", options, rule_of("normalized"), "ABCDEFGHIJ").position == 8


def test_a_choice_is_its_own_answer():
    """Each choice as written, under every rule but that of patterns."""
    options = choices("A Tale of Two Cities", "1,5", "no", "05/03/2024", "C++", "C")
    for rule in RULES.values():
        assert [match(one.text, options, rule).position for one in options] == [*range(6)]
