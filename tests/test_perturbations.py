"""Perturbations that cannot change the meaning of a sentence pair."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from consilience import ConsilienceError
from consilience.suites.perturbations import (
    ORIGINAL,
    PAPERS,
    PERTURBATIONS,
    chosen,
    original,
    perturbation,
    recover,
    t5_original,
    variants,
)
from consilience.suites.tasks import TASKS
from consilience.types import Segment, TextPair

PAIR = TextPair("0", "A man sleeps.", "He rests.", "entailment")
WRITTEN = {
    "original": ["Premise: A man sleeps.", "Hypothesis: He rests."],
    "reverse": ["Hypothesis: He rests.", "Premise: A man sleeps."],
    "signal": ["[Premise] A man sleeps.", "[Hypothesis] He rests."],
    "reverse_signal": ["[Hypothesis] He rests.", "[Premise] A man sleeps."],
    "parentheses": ["(Premise) A man sleeps.", "(Hypothesis) He rests."],
    "dash": ["Premise - A man sleeps.", "Hypothesis - He rests."],
    "equals": ["Premise = A man sleeps.", "Hypothesis = He rests."],
    "arrow": ["Premise -> A man sleeps.", "Hypothesis -> He rests."],
    "no_space": ["Premise:A man sleeps.", "Hypothesis:He rests."],
    "line_break": ["Premise:\nA man sleeps.", "Hypothesis:\nHe rests."],
    "lower_case": ["premise: A man sleeps.", "hypothesis: He rests."],
    "upper_case": ["PREMISE: A man sleeps.", "HYPOTHESIS: He rests."],
}


def texts(form):
    return [segment.text for segment in form]


def test_every_form_of_a_pair():
    forms = variants(original(PAIR, TASKS["mnli"].indicators), PERTURBATIONS)
    assert {name: texts(form) for name, form in forms.items()} == WRITTEN
    assert list(forms)[0] == ORIGINAL
    assert PAPERS == ("reverse", "signal") == tuple(PERTURBATIONS)[:2]


def test_indicators_without_case_stay_as_they_are():
    form = original(PAIR, TASKS["kornli"].indicators)
    for name in ("lower_case", "upper_case"):
        assert PERTURBATIONS[name].apply(form) == form


def test_the_form_of_t5_is_perturbed_as_any_other():
    form = t5_original(PAIR, TASKS["mnli"])
    assert texts(form) == ["hypothesis: He rests.", "premise: A man sleeps."]
    reverse, signal = (PERTURBATIONS[name].apply(form) for name in PAPERS)
    assert texts(reverse) == ["premise: A man sleeps.", "hypothesis: He rests."]
    assert texts(signal) == ["[hypothesis] He rests.", "[premise] A man sleeps."]


def test_one_string_of_both_cannot_always_be_taken_apart():
    """Two pairs, one text; the segments still tell them apart."""
    one = TextPair("0", "a Hypothesis: b", "c", "")
    other = TextPair("1", "a", "b Hypothesis: c", "")
    forms = [original(pair, TASKS["mnli"].indicators) for pair in (one, other)]
    assert " ".join(texts(forms[0])) == " ".join(texts(forms[1]))
    assert texts(forms[0]) != texts(forms[1])


INDICATORS = [
    *dict.fromkeys(task.indicators for task in TASKS.values()),
    *dict.fromkeys(task.t5_fields for task in TASKS.values() if task.t5_fields),
    ("a", "ab"),
    ("Straße", "Fuß"),
    ("\u03a3\u03a3", "\u03c3x"),  # Greek: the small letter has another form at the end
    ("\u0131", "\u0130"),  # Turkish: i without a dot, I with one
    ("[x]", "x"),
]
PIECES = st.sampled_from(
    [": ", ":", "] ", "[Premise] ", "Hypothesis: ", "premise", "(Sentence1) ", " - ", " -> ", "=",
     "전제: ", "가설", "\n", "\r\n", "\u2028", "🙂", "👩‍👩‍👧", " ", "e\u0301", "[SEP]"]
)  # fmt: skip
SENTENCES = st.lists(PIECES | st.text(max_size=8), max_size=6).map("".join)
FORMS = st.builds(
    lambda first, second, names: original(TextPair("0", first, second, ""), names),
    SENTENCES,
    SENTENCES,
    st.sampled_from(INDICATORS),
)


def alike(first, second):
    """The same letters but for case; ``casefold`` does not know that I is also that of dotless i."""
    return first.casefold() == second.casefold() or first.upper() == second.upper()


@settings(max_examples=300, deadline=None)
@given(FORMS)
def test_sentences_and_indicators_stay_and_the_original_comes_back(form):
    blank = tuple(Segment(segment.indicator, "") for segment in form)
    for name, perturbed in variants(form, PERTURBATIONS).items():
        back = perturbed[::-1] if name.startswith("reverse") else perturbed
        for ours, theirs in zip(form, back, strict=True):
            assert theirs.sentence == ours.sentence
            assert theirs.text == theirs.mark + ours.sentence
            assert alike(theirs.indicator, ours.indicator)
            if "case" not in name:
                assert theirs.indicator == ours.indicator
        assert recover(texts(perturbed), name, blank) == form


@given(FORMS)
def test_how_perturbations_go_together(form):
    made = {name: each.apply(form) for name, each in PERTURBATIONS.items()}
    reverse, signal = (PERTURBATIONS[name].apply for name in PAPERS)
    assert reverse(made["reverse"]) == form
    assert made["reverse_signal"] == signal(made["reverse"]) == reverse(made["signal"])
    for name, perturbed in made.items():
        if "reverse" not in name:
            assert PERTURBATIONS[name].apply(perturbed) == perturbed, "twice is once"


def test_a_text_that_was_not_made_so_is_refused():
    blank = original(TextPair("0", "", "", ""), TASKS["mnli"].indicators)
    with pytest.raises(
        ConsilienceError, match=r"'Premise: A man.*begin with '\[Premise\] '.*signal"
    ):
        recover(WRITTEN["original"], "signal", blank)
    with pytest.raises(ConsilienceError, match="'Premise: A man.*begin with 'Hypothesis: '"):
        recover(WRITTEN["original"], "reverse", blank)
    with pytest.raises(ConsilienceError, match="'Hypothesis: He.*begin with 'Premise: '"):
        recover(WRITTEN["reverse"], "original", blank)
    for some in (WRITTEN["original"][:1], WRITTEN["original"] * 2):
        with pytest.raises(ConsilienceError, match=f"{len(some)} texts; expected 2, one a segment"):
            recover(some, "original", blank)


def test_a_blank_in_front_of_a_sentence_belongs_to_it():
    """``no_space`` takes any text with the bare colon: the blank is then the sentence's."""
    blank = original(TextPair("0", "", "", ""), TASKS["mnli"].indicators)
    found = recover(WRITTEN["original"], "no_space", blank)
    assert [segment.sentence for segment in found] == [" A man sleeps.", " He rests."]


def test_perturbations_are_chosen_by_name():
    assert list(chosen(["signal", "reverse", "signal"])) == ["signal", "reverse"]
    assert chosen(["all"]) == PERTURBATIONS == chosen(["dash", "all"])
    assert list(chosen(["dash", "all"]))[0] == "dash"
    assert chosen([]) == {}
    with pytest.raises(ConsilienceError, match="no perturbation 'revers'. Did you mean 'reverse'"):
        chosen(["signal", "revers"])


@pytest.mark.parametrize("name", [*WRITTEN, "all"])
def test_a_name_is_given_once(name, monkeypatch):
    """A name that is taken, or that stands for all, is refused and leaves the others alone."""

    def another(form):
        return form

    another.__name__ = name
    copy = dict(PERTURBATIONS)
    monkeypatch.setattr("consilience.suites.perturbations.PERTURBATIONS", copy)
    with pytest.raises(ValueError, match=f"there is a perturbation '{name}' already"):
        perturbation("none")(another)
    assert copy == PERTURBATIONS
    assert all(each.name == name and each.guarantee for name, each in copy.items())


def test_a_new_perturbation_is_one_function(monkeypatch):
    monkeypatch.setattr("consilience.suites.perturbations.PERTURBATIONS", {})

    @perturbation("Nothing changes.")
    def nothing(form):
        return form

    (found,) = chosen(["all"]).values()
    assert (found.name, found.guarantee) == ("nothing", "Nothing changes.")
    assert variants((), chosen(["nothing"])) == {"original": (), "nothing": ()}


def test_the_guide_shows_every_perturbation():
    """``docs/tasks.md``: name, text of the two segments and guarantee."""
    guide = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \| (.*) \|$", guide, re.MULTILINE)
    shown = {name: (text, guarantee) for name, text, guarantee in rows if name in WRITTEN}
    assert {name: text for name, (text, _) in shown.items()} == {
        name: " ".join(made).replace("\n", "\\n") for name, made in WRITTEN.items()
    }
    assert {name: shown[name][1] for name in PERTURBATIONS} == {
        name: each.guarantee for name, each in PERTURBATIONS.items()
    }
