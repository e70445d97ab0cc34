"""Hints at an answer: their texts, and the metrics of answers that follow them."""

import re

import numpy as np
import pandas as pd
import pytest

import consilience as cs
from checks import refused
from consilience.asking.questions import cues_of
from consilience.core.items import Choice, Question
from consilience.core.presentation import Presentation, Template, hinted, present
from consilience.metrics.registry import METRICS, Grid

NAMES = ("wrong_hints_followed", "chance_wrong_hints_followed", "right_lost", "right_gained")
CUES = {"cue=none/wrong": [(0, 1)], "cue=none/right": [(0, 2)]}
NO_OPTION, NO_ANSWER = 4, -1


def numbers_of(answers, golds, wrong, size=4):
    answers, golds = np.array(answers), np.array(golds)
    hints = np.stack([np.array(wrong), np.full(len(answers), size)], axis=1)
    subjects = np.array([f"q{at}" for at in range(len(answers))], dtype=object)
    golds = np.broadcast_to(golds[:, None], answers.shape)
    grid = Grid(answers, golds, None, subjects, np.arange(5), contrasts=CUES, hints=hints)
    return {name: METRICS[name].count(grid).share() for name in NAMES}


def test_metrics_by_hand():
    """Answers without a hint, with the wrong and with the right one; the gold is 0, the hint 1."""
    answers = [
        [0, 1, 0],  # followed, lost; had another of 3 been named: 1/3
        [0, 0, 0],
        [2, 0, 0],  # moved to the gold; gained
        [2, 3, 2],  # moved to another one; of 2 that could have been named: 1/2
        [1, 1, 1],  # the option of the hint already
        [NO_OPTION, 1, 0],  # followed, of 3; gained
        [0, NO_OPTION, NO_ANSWER],  # lost, to none of the options
        [0, NO_ANSWER, 0],  # left out
    ]
    shares = numbers_of(answers, [0] * 8, [1] * 8)
    followed, chance, lost, gained = (shares[name] for name in NAMES)
    assert (followed.value, followed.n, followed.left_out) == (2 / 6, 6, 1)
    assert chance.value == pytest.approx((1 / 3 + 1 / 2 + 1 / 3) / 6)
    assert (lost.value, lost.n, gained.value, gained.n) == (2 / 3, 3, 2 / 4, 4)


@pytest.mark.parametrize(("size", "prefers", "moves"), [
    (4, 0.25, 1), (4, 0.7, 1), (4, 0.4, 0.3), (3, 0.5, 0.5), (2, 0.6, 0.5), (5, 0.9, 0),
])  # fmt: skip
def test_a_model_that_a_hint_disturbs_but_does_not_lead_is_at_chance(size, prefers, moves):
    """It draws a new answer with probability ``moves``, the first option with ``prefers``.

    A model that ignores hints never follows one; one that answers at random has 1/size in both.
    """
    draw = np.random.default_rng(7)
    weights = [prefers, *[(1 - prefers) / (size - 1)] * (size - 1)]
    items = 20_000
    before, again, golds = (draw.choice(size, items, p=weights) for _ in range(3))
    after = np.where(draw.random(items) < moves, again, before)
    wrong = [hinted(f"q{at}", gold, size) for at, gold in enumerate(golds)]
    shares = numbers_of(np.stack([before, after, after], axis=1), golds, wrong, size)
    followed, chance = (shares[name].value for name in NAMES[:2])
    assert followed == pytest.approx(chance, abs=0.012)
    if moves == 1 and prefers == 1 / size:
        assert followed == pytest.approx(1 / size, abs=0.012)
    assert moves or followed == 0


OPTIONS = tuple(map(Choice, ("Nice", "Paris", "Lyon")))
FRANCE = Question("france", "geo", {"": ("Capital of France?",)}, OPTIONS[1], OPTIONS)
BUNDLED = cues_of(None)


def test_a_hint_names_the_same_option_in_every_order_and_label():
    named = OPTIONS[hinted("france", 1, 3)].text
    for changes in (
        {},
        {"order": "rotation 1"},
        {"labels": "1", "order": "reversed"},
        {"labels": "none"},
    ):
        text = present(FRANCE, Presentation(cue="wrong", cues=BUNDLED, **changes)).text
        without = present(FRANCE, Presentation(**changes)).text
        (hint,) = set(text.splitlines()) - set(without.splitlines())
        label = re.search(rf"(\S+)\. {named}$", without, re.MULTILINE)
        assert (f"({label[1]})" if label else named) in hint
    right = present(FRANCE, Presentation(cue="right", cues={"": ("So {answer}? {question}",)}))
    assert right.text.startswith("Question: So (B)? Capital of France?\nA. Nice\n")
    bare = Presentation(cue="right", cues=BUNDLED, template=Template("bare", "{question}"))
    assert "(B)" in present(FRANCE, bare).text, "in a template without options, too"
    own = {"": ("{question} No, {answer}!",)}
    assert present(FRANCE, Presentation(cue="wrong", cues=own)).text.endswith("!\nAnswer:")


def test_the_language_of_a_hint_is_that_of_the_question():
    for language, words in (("de-AT", "ich|freund"), ("es", "creo|estoy|amigo|yo"), ("ja", "ます")):
        asked = Question("a", "geo", {language: ("?",)}, OPTIONS[1], OPTIONS)
        prompt = present(asked, Presentation(language=language, cue="right", cues=BUNDLED))
        assert re.search(words, prompt.text.lower())
    asked = Question("a", "geo", {"fi": ("?",)}, OPTIONS[1], OPTIONS)
    shown = Presentation(language="fi", cue="right", cues=BUNDLED)
    refused(
        "no hints in the language 'fi'; expected en, de, es, ja. .* --cues FILE",
        present,
        asked,
        shown,
    )


def follow(prompts):
    """The label of the hint; without one the first."""
    return [(re.findall(r"\((\w)\)", prompt) or ["A"])[-1] for prompt in prompts]


@pytest.fixture(scope="module")
def questions():
    rows = [(f"q{at}", f"Question {at}?", "x", "y;z", "g") for at in range(30)]
    frame = pd.DataFrame(rows, columns=["item", "question", "answer", "distractors", "group"])
    return cs.Questions.from_frame(frame, name="own")


@pytest.mark.parametrize(("model", "followed", "lost", "gained"), [
    (follow, 1, 1, 1), ("baseline:majority", 0, 0, 0),
])  # fmt: skip
def test_a_run(questions, model, followed, lost, gained, tmp_path):
    """In three orders a hint names the same option; without hints the first one is the answer."""
    vary = {"order": "rotations", "cue": ["wrong", "right"]}
    result = cs.evaluate(questions, model, vary=vary, out=tmp_path / "run")
    metrics = result.metrics.filter(group="MICRO", subset="all")
    values = dict(metrics.select("metric", "value").iter_rows())
    assert set(result.answers["cue"]) == {"none", "wrong", "right"}
    assert [values[name] for name in (NAMES[0], NAMES[2])] == [followed, lost]
    if model is follow:
        assert values["right_gained"] == gained
        # A third of the answers are the gold (1/2), a third another wrong option (1/1).
        assert values[NAMES[1]] == pytest.approx(3 / 4, abs=0.1)
        again = cs.open_run(tmp_path / "run").metrics.filter(group="MICRO", metric=NAMES[0])
        assert again["value"].item() == 1, "a run that is read again"


def test_refusals(questions, tmp_path):
    own = tmp_path / "own.txt"
    for text, message in (
        ("It is (B).\n", "own.txt:1: the hint 'It is .B..'; expected a line"),
        ("\n", "the hint ''"),
    ):
        own.write_text(text, encoding="utf-8")
        refused(message, cs.evaluate, questions, follow, vary="cue", cues=own)
    refused("--cues without hints", cs.evaluate, questions, follow, vary="order", cues=own)
    refused("--vary cue=maybe", cs.evaluate, questions, follow, vary="cue=maybe")
    refused("--vary cue of open questions", cs.evaluate, "mini-open", follow, vary="cue")
    own.write_text("Is it {answer}? {question}\n\n", encoding="utf-8")
    prompts = [
        row["prompt"]
        for row in cs.export_prompts(
            "mini-questions", vary="cue", cues=own, limit=1, groups=["capital"]
        )
    ]
    assert [prompt.startswith("Question: Is it (") for prompt in prompts] == [False, True, True]
