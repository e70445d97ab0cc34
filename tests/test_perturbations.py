"""Perturbations that cannot change the meaning of a sentence pair."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import refused
from conftest import ROOT, cases
from consilience.core.factors import ORIGINAL
from consilience.core.items import Segment, TextPair
from consilience.suites.pairs import (
    PAPERS,
    PERTURBATIONS,
    TASKS,
    chosen,
    forms_of,
    original,
    t5_original,
)

PAIR = TextPair("0", "A man sleeps.", "He rests.", "entailment")
WRITTEN = dict(cases("forms_of_a_pair"))


def texts(form):
    return [segment.text for segment in form]


def recover(written, name, blank):
    """The original form that a perturbation made these texts of; ``blank`` has no sentences."""
    numbered = tuple(replace(segment, sentence=str(at)) for at, segment in enumerate(blank))
    marks = PERTURBATIONS[name].rewrite(numbered) if name != ORIGINAL else numbered
    both = zip(written, marks, strict=True)
    sentences = {int(of.sentence): text.removeprefix(of.mark) for text, of in both}
    return tuple(replace(segment, sentence=sentences[at]) for at, segment in enumerate(blank))


def test_every_form_of_a_pair():
    forms = forms_of(PAIR, original(PAIR, TASKS["mnli"].indicators), PERTURBATIONS)
    assert {name: texts(form) for name, form in forms.items()} == WRITTEN
    assert list(forms)[0] == ORIGINAL
    assert PAPERS == ("reverse", "signal") == tuple(PERTURBATIONS)[:2]


def test_the_form_of_t5_is_perturbed_as_any_other():
    form = t5_original(PAIR, TASKS["mnli"])
    assert texts(form) == ["hypothesis: He rests.", "premise: A man sleeps."]
    reverse, signal = (PERTURBATIONS[name].rewrite(form) for name in PAPERS)
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
    SENTENCES, SENTENCES, st.sampled_from(INDICATORS),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(FORMS)
def test_sentences_and_indicators_stay_and_the_original_comes_back(form):
    blank = tuple(Segment(segment.indicator, "") for segment in form)
    for name, perturbed in forms_of(PAIR, form, PERTURBATIONS).items():
        back = perturbed[::-1] if name.startswith("reverse") else perturbed
        for ours, theirs in zip(form, back, strict=True):
            assert (theirs.sentence, theirs.text) == (ours.sentence, theirs.mark + ours.sentence)
            assert theirs.indicator == ours.indicator
        assert recover(texts(perturbed), name, blank) == form


@given(FORMS)
def test_how_perturbations_go_together(form):
    made = {name: each.rewrite(form) for name, each in PERTURBATIONS.items()}
    reverse, signal = (PERTURBATIONS[name].rewrite for name in PAPERS)
    assert reverse(made["reverse"]) == form
    assert made["reverse_signal"] == signal(made["reverse"]) == reverse(made["signal"])
    for name, perturbed in made.items():
        if "reverse" not in name:
            assert PERTURBATIONS[name].rewrite(perturbed) == perturbed, "twice is once"


def test_perturbations_are_chosen_by_name():
    assert list(chosen(["signal", "reverse", "signal"])) == ["signal", "reverse"]
    assert chosen(["all"]) == PERTURBATIONS == chosen(["signal", "all"])
    assert (list(chosen(["signal", "all"]))[0], chosen([])) == ("signal", {})
    refused("no perturbation 'revers'.*Did you mean 'reverse'", chosen, ["signal", "revers"])


def test_the_guide_shows_every_perturbation():
    guide = (ROOT / "docs" / "calum.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \| (.*) \|$", guide, re.MULTILINE)
    shown = {name: (text, guarantee) for name, text, guarantee in rows if name in WRITTEN}
    written = {name: " ".join(made).replace("\n", "\\n") for name, made in WRITTEN.items()}
    assert {name: text for name, (text, _) in shown.items()} == written
    assert all(shown[name][1] == each.guarantee for name, each in PERTURBATIONS.items())


MINE = '''
from dataclasses import replace

def paraphrase(form):
    """Says it politely."""
    return tuple(replace(segment, sentence="Please: " + segment.sentence) for segment in form)

def broken(form):
    raise KeyError("a")

def text(form):
    return "text"
'''


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "my_forms.py"
    path.write_text(MINE)
    return path


def test_a_function_of_a_file_is_a_perturbation(mine):
    (made,) = chosen([f"{mine}:paraphrase"]).values()
    assert (made.name, made.guarantee) == ("paraphrase", "Says it politely.")
    assert set(made.source) == {"file", "sha256"}
    form = original(PAIR, ("A", "B"))
    assert texts(made.form_of(PAIR, form)) == ["A: Please: A man sleeps.", "B: Please: He rests."]


@pytest.mark.parametrize(("spec", "message"), cases("perturbation_files_bad"))
def test_a_file_that_makes_no_perturbation_is_one_message(spec, message, mine, monkeypatch):
    monkeypatch.chdir(mine.parent)
    (mine.parent / "syntax.py").write_text("def f(:")
    (mine.parent / "twin.py").write_text("def reverse(form): return form")
    refused(re.escape(message), chosen, spec.split(","))


@pytest.mark.parametrize(("name", "message"), [
    ("broken", "'broken' failed: KeyError: 'a'"), ("text", "'text' made 'text' of item 0"),
])  # fmt: skip
def test_a_function_that_makes_no_form_is_one_message(name, message, mine):
    (made,) = chosen([f"{mine}:{name}"]).values()
    refused(message, made.form_of, PAIR, original(PAIR, ("A", "B")))
