"""Perturbations that cannot change the meaning of a sentence pair."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import refused
from conftest import ROOT, cases
from consilience import load_model, load_suite
from consilience.asking.facts import ask
from consilience.core.factors import ORIGINAL
from consilience.core.items import Segment, TextPair
from consilience.core.patterns import Pattern
from consilience.suites import facts
from consilience.suites.pairs import (
    PAPERS,
    PERTURBATIONS,
    TASKS,
    chosen,
    forms_of,
    original,
    register,
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
    form = original(PAIR, TASKS["kornli"].indicators)  # without case
    assert all(PERTURBATIONS[f"{name}_case"].rewrite(form) == form for name in ("lower", "upper"))


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


def alike(first, second):
    """The same letters but for case; ``casefold`` does not know that I is also that of dotless i."""
    return first.casefold() == second.casefold() or first.upper() == second.upper()


@settings(max_examples=300, deadline=None)
@given(FORMS)
def test_sentences_and_indicators_stay_and_the_original_comes_back(form):
    blank = tuple(Segment(segment.indicator, "") for segment in form)
    for name, perturbed in forms_of(PAIR, form, PERTURBATIONS).items():
        back = perturbed[::-1] if name.startswith("reverse") else perturbed
        for ours, theirs in zip(form, back, strict=True):
            assert (theirs.sentence, theirs.text) == (ours.sentence, theirs.mark + ours.sentence)
            assert alike(theirs.indicator, ours.indicator)
            if "case" not in name:
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
    assert chosen(["all"]) == PERTURBATIONS == chosen(["dash", "all"])
    assert (list(chosen(["dash", "all"]))[0], chosen([])) == ("dash", {})
    refused("no perturbation 'revers'.*Did you mean 'reverse'", chosen, ["signal", "revers"])


@pytest.mark.parametrize("name", [*WRITTEN, "all"])
def test_a_name_is_given_once(name):
    """A name that is taken, or ``all``, is refused and leaves the others alone."""

    def another(form):
        return form

    another.__name__ = name
    copy = dict(PERTURBATIONS)
    with pytest.raises(ValueError, match=f"there is a perturbation '{name}' already"):
        register(copy, "none")(another)
    assert copy == PERTURBATIONS
    assert all(each.name == name and each.guarantee for name, each in copy.items())


def test_a_new_perturbation_is_one_function(monkeypatch):
    registry = {}
    monkeypatch.setattr("consilience.suites.pairs.PERTURBATIONS", registry)

    @register(registry, "Nothing changes.")
    def nothing(form):
        return form

    (found,) = chosen(["all"]).values()
    assert (found.name, found.guarantee) == ("nothing", "Nothing changes.")
    assert forms_of(PAIR, (), chosen(["nothing"])) == {"original": (), "nothing": ()}


def test_the_guide_shows_every_perturbation():
    guide = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
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

def polite(text):
    return "Please: " + text

def no_slot(text):
    return text.replace("[Y]", "")

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


@pytest.mark.parametrize("reversed_pair", [False, True])
def test_a_column_of_the_data_is_a_sentence(reversed_pair):
    pair = replace(PAIR, columns={"other": "She sleeps."})
    form = original(pair, ("A", "B"))[:: -1 if reversed_pair else 1]
    written = {
        side: {part.indicator: part.sentence for part in made.form_of(pair, form)}
        for side in ("first", "second")
        for made in chosen([f"{side}:other"]).values()
    }
    assert written["first"] == {"A": "She sleeps.", "B": "He rests."}
    assert written["second"] == {"A": "A man sleeps.", "B": "She sleeps."}


@pytest.mark.parametrize(("name", "text", "made"), cases("perturbed_patterns"))
def test_perturbed_patterns(name, text, made):
    pattern = facts.PATTERN_PERTURBATIONS[name].pattern_of(Pattern.parse(text, lemma="bear"))
    assert (pattern.text, pattern.form, pattern.lemma) == (made, name, "bear")
    assert (pattern.name, pattern.parts) == (f"{name}: {made}", Pattern.parse(made).parts)


def test_each_pattern_is_compared_with_its_own_perturbed_forms(mine):
    """Patterns 0 and 1, lower case 2 and 3, a user's 4 and 5."""
    suite = load_suite("mini")
    relation = suite.relation("capital")
    small = replace(suite, relations=(replace(relation, patterns=relation.patterns[:2]),))
    picked = chosen(["lower_case", f"{mine}:polite"], facts.PATTERN_PERTURBATIONS)
    perturbed = facts.with_perturbed_patterns(small, picked)
    design = perturbed.relations[0].design
    assert design.forms == {ORIGINAL: (0, 1), "lower_case": (2, 3), "polite": (4, 5)}
    assert design.kinds == {"lower_case": ((0, 2), (1, 3)), "polite": ((0, 4), (1, 5))}
    assert design.compared == ((0, 2), (1, 3), (0, 4), (1, 5))
    answers = ask(perturbed.relations[0], load_model("baseline:random"), suite.name)
    assert answers["variant"].to_list()[:6] == list(design.variants)
    assert facts.with_asked_patterns(small, answers, list(picked)).relations[0].design == design
    broken = chosen([f"{mine}:no_slot"], facts.PATTERN_PERTURBATIONS)
    refused(r"has 0 \[Y\]", facts.with_perturbed_patterns, small, broken)


def with_two_patterns(*texts):
    suite = load_suite("mini")
    patterns = tuple(map(Pattern.parse, texts))
    return replace(suite, relations=(replace(suite.relations[0], patterns=patterns),))


def test_a_perturbation_that_makes_one_text_of_two_patterns_is_refused():
    picked = chosen(["no_period"], facts.PATTERN_PERTURBATIONS)
    small = with_two_patterns("[X] is [Y].", "[X] is [Y]")
    message = r"'no_period' makes '\[X\] is \[Y\]' of 2 patterns"
    refused(message, facts.with_perturbed_patterns, small, picked)


def test_a_perturbation_that_changes_nothing_is_noted():
    """Of two patterns only the first begins with a capital."""
    picked = chosen(["lower_case"], facts.PATTERN_PERTURBATIONS)
    small = with_two_patterns("The [X] is [Y].", "[X] is [Y].")
    (note,) = facts.with_perturbed_patterns(small, picked).notes
    assert note.startswith("lower_case: leaves 1 of 2 patterns as they are")
