"""From replies to answers: the table of replies, properties of every rule, numbers, normal forms."""

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks import refused
from conftest import ROOT, cases
from consilience.core import free_text
from consilience.core.free_text import RULES, match, normalized, numbers_in, rule_of, said
from consilience.core.items import Choice, Prompt

REPLIES = cases("replies")
"""Rows of a kind, the options or the gold of an open question, the labels, the rules, a reply, and
the option that it is, or whether it is the gold."""


def choices(*texts):
    return tuple(map(Choice, texts))


def read(reply, options, labels, rule):
    """The option that a reply is; whether it is the gold, if there is one text."""
    matched = match(reply, choices(*options), rule_of(rule), tuple(labels))
    assert (matched.position is None) == bool(matched.reason)
    if len(options) == 1:
        return matched.position == 0
    return None if matched.position is None else options[matched.position]


def test_every_reply_of_the_table_is_read_as_it_says():
    found = [(rule, row) for row in REPLIES for rule in row[3]
             if read(row[4], row[1], row[2], rule) != row[5]]  # fmt: skip
    assert not found


THOUGHTS = (
    "<think>The answer is A. Or C.</think>", "<thinking>\nD?\n</thinking>\n\n", "[THINK]C[/THINK]",
    "Option A, so the answer is A.\n</think>\n\n", "```thinking\nAnswer: C\n```\n",
    "<|channel|>analysis<|message|>A?<|end|><|start|>assistant<|channel|>final<|message|>",
)  # fmt: skip
INVENTED = (
    "\n\nQuestion: Which is a gas?\nA. argon\nB. brass\nAnswer: A", "\nUser: Sure?\nAssistant: It is D.",
    "\n\nQ: 1 + 1?\nA: 2", "<|im_end|>\n<|im_start|>user\nOr C?", "\n\nFrage: Was?\nAntwort: C",
)  # fmt: skip


@pytest.mark.parametrize("thought", THOUGHTS)
def test_a_thought_changes_no_answer(thought):
    rows = [row for row in REPLIES if not row[0].startswith(("thought", "regex"))]
    found = [row for row in rows if read(thought + row[4], *row[1:3], row[3][0]) != row[5]]
    assert not found


@pytest.mark.parametrize("invented", INVENTED)
def test_an_invented_next_question_changes_no_answer(invented):
    others = ("regex", "thought without end")
    rows = [row for row in REPLIES if said(row[4]) and row[0] not in others]
    found = [row for row in rows if read(row[4] + invented, *row[1:3], row[3][0]) != row[5]]
    assert not found


WRAPPED = [row[4] for row in REPLIES if row[0] == "label" and re.search(r"\bB\b|Quito", row[4])]
SYMBOLS = cases("options_of_signs")
WORDS = cases("options_of_words")


@pytest.mark.parametrize("options", WORDS, ids=lambda options: options[0])
@pytest.mark.parametrize("labels", ["ABCD", "1234"])
def test_a_label_or_a_text_in_a_usual_wrapping_is_its_option(options, labels):
    """Every row of the kind `label`, for every option of others.

    A number before a sentence may be that of a step: `1. It is the capital.`
    """
    found, step = [], "(?i)B[.:] it" if labels == "1234" else "(?!)"
    replies = [reply for reply in WRAPPED if not re.match(step, reply)]
    for (at, option), reply in itertools.product(enumerate(options), replies):
        shown = re.sub(r"\bB\b", labels[at], reply)
        shown = re.sub("quito", lambda _, option=option: option, shown, flags=re.IGNORECASE)
        if read(shown, options, labels[: len(options)], "exact") != option:
            found.append((option, shown))
    assert not found


@pytest.mark.parametrize("options", SYMBOLS, ids=lambda options: options[0])
def test_signs_and_case_tell_options_apart(options):
    """A text alone, announced, beside its label; and beside the label of another one."""
    labels = "KLMN"[: len(options)]
    for at, option in enumerate(options):
        shown = option, f"The answer is {option}.", f"**{option}**" if option != "*" else option
        assert [read(reply, options, "", "exact") for reply in shown] == [option] * 3
        assert read(f"{labels[at]}. {option}", options, labels, "exact") == option
        assert read(f"{labels[at]}. {options[at - 1]}", options, labels, "exact") is None


@given(st.permutations(["Lima", "Quito", "La Paz", "Bogota"]), st.integers(0, 3))
def test_the_order_of_options_decides_what_labels_are_and_no_text(options, at):
    label, text = "ABCD"[at], options[at]
    for rule in ("exact", "contains"):
        said_so = (f"({label}) {text}", f"The answer is {text}.", f"{text} ({label})")
        for reply in (label, text, *said_so):
            assert read(reply, options, "ABCD", rule) == text
        assert read(f"{label}) {options[at - 1]}", options, "ABCD", rule) is None


LONG = "Ecuador lies in South America. " * 300


@pytest.mark.parametrize("rule", ["exact", "contains"])
def test_long_replies_are_read_to_their_end(rule):
    options = ["Lima", "Quito"]
    last = f"{LONG}\nSo the answer is B.", f"{LONG}\n\n**B**", f"<think>{LONG}A</think>B"
    for reply in (*last, f"B\n{LONG}"):
        assert read(reply, options, "AB", rule) == "Quito"
    assert read(LONG, options, "AB", rule) is None
    parts = ("*", "- ", "the answer is ", "(A) ", "[[", "the correct ", "A\n", "<think>")
    for part in (*parts, "\\boxed{"):
        read(part * 2000, options, "AB", rule)  # in no more than linear time


CITIES = (Choice("London"), Choice("Paris", ("City of Light",)), Choice("New York"))
KINDS = choices("entailment", "neutral", "contradiction")
"""Before the text of one, ``A`` is the label of another and no article."""
LABELS = ("A", "B", "C")


@pytest.mark.parametrize(("written", "answer", "reason", "options"), [
    (" \n", "", "no text", CITIES),
    ("B) London", "b london", "matches 'London' and 'Paris'", CITIES),
    ("Berlin, I think!", "berlin i think", "matches no choice", CITIES),
    *((f"{label} contradiction", "a contradiction", "matches 'entailment' and 'contradiction'", KINDS)
      for label in ("A.", "A)", "(A)", "A:")),
])  # fmt: skip
def test_a_text_that_is_no_choice_keeps_its_words_and_a_reason(written, answer, reason, options):
    matched = match(written, options, rule_of("exact"), LABELS)
    assert (matched.position, matched.answer, matched.reason) == (None, answer, reason)


@pytest.mark.parametrize(("text", "expected"), cases("normalized_texts"))
def test_what_does_not_matter_is_left_out(text, expected):
    assert normalized(text) == expected


@given(st.text(st.characters(exclude_characters="<>=!-"), max_size=12))
def test_a_normalized_text_stays_as_it_is_but_for_its_article(text):
    once = normalized(text)
    assert once in (normalized("the " + once), normalized(once), "a", "an", "the") or not once


@pytest.mark.parametrize(("rule", "text", "options", "found", "note"), cases("texts_of_choices"))
def test_which_choice_a_text_is(rule, text, options, found, note):
    assert match(text, choices(*options), rule_of(rule)).position == found, note


@pytest.mark.parametrize(("text", "reason"), [
    ("4 of 1000", "several numbers: 4, 1000"), ("many", "no number"),
])  # fmt: skip
def test_why_a_text_has_no_value(text, reason):
    assert match(text, choices("1,000"), rule_of("number")).reason == reason


@pytest.mark.parametrize(("text", "options", "found"), cases("labels_with_texts"))
def test_a_label_with_a_text_is_the_option_that_both_name(text, options, found):
    rule = rule_of("exact")
    assert match(text, choices(*options), rule, LABELS[: len(options)]).position == found


@pytest.mark.parametrize(("text", "values"), cases("numbers_in_texts"))
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
    assert match("The answer is aaa", choices("a"), rule).position == 0
    slow = "answer is " + "a" * 80 + "!"
    refused("longer than 0.05 s for an answer of 91 characters", match, slow, choices("a"), rule)


def test_the_guide_has_every_rule_and_shows_how_replies_are_read():
    guide = (ROOT / "docs" / "free-text.md").read_text(encoding="utf-8")
    rules, shown = guide.partition("| rule |")[2].split("| reply |")
    assert re.findall(r"^\| `([\w-]+)` \|", rules, re.MULTILINE) == list(RULES)
    lines = re.findall(r"^\| `(.+)` \| (.*) \| (.*) \|$", shown, re.MULTILINE)
    assert len(lines) > 12
    for reply, *expected in lines:
        text = reply.replace("\u23ce", "\n")
        rules = (RULES["exact"], RULES["contains"])
        found = [match(text, CITIES, rule, LABELS).position for rule in rules]
        assert expected == ["" if at is None else CITIES[at].text for at in found], reply


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=5), max_size=3, unique=True))
def test_every_text_has_an_answer_or_a_reason(text, words):
    """Whatever is written and whatever the choices are, under every rule."""
    options = [Choice(word) for word in words]
    for rule in [*RULES.values(), rule_of("regex:(a)|b")]:
        matched = match(text, options, rule, LABELS[: len(words)])
        assert (matched.position is None) == bool(matched.reason)
        assert matched.answer or not text.strip()


def test_labels_come_first_unless_the_prompt_asks_for_texts():
    """Shown as A. b, B. a; ``a`` is the text of B as written, and ``A`` the label of b."""
    prompt = Prompt((), (), (), choices("b", "a"), labels=("A", "B"))
    assert [read(reply, ["b", "a"], "AB", "exact") for reply in ("a", "A")] == ["a", "b"]
    assert prompt.reply_labels == ("A", "B")
    assert replace(prompt, are_labels=False).reply_labels == ("A", "B")
    assert replace(prompt, are_labels=False, choices=choices("B", "x")).reply_labels == ()


def test_letters_that_only_ignore_case_are_labels_of_options():
    """The dotless i is an I for a pattern that ignores case, and not when case folded."""
    options = choices(*"abcdefghij")
    assert match("\u0131)", options, rule_of("exact"), "ABCDEFGHIJ").position == 8
