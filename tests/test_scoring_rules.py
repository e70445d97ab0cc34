"""Scoring rules: which number decides between the options, by hand."""

import math

import numpy as np
import pytest

from checks import refused
from consilience.asking.questions import Presenter, ask_options
from consilience.core import presentation
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question, Scores
from consilience.core.presentation import RULES, rule_for

QUESTION = Question(
    "q1", "g", {"": ("Where is the café?",)}, Choice("in New York"),
    (Choice("in New York"), Choice("à Paris"), Choice("here", ("there",))),
)  # fmt: skip
ORDERS = FactorialDesign.full([Factor("order", ("given", "reversed"))])
TOTALS = {"in New York": -6.0, "à Paris": -5.0, "here": -4.0}
TOKENS = {"in New York": 3, "à Paris": 4, "here": 1}


class Written:
    """A model with the log-probabilities above; ``seen`` are the prompts that it scored."""

    identity, notes, tie = {}, [], 0.0

    def __init__(self):
        self.seen, self.alone = [], []

    def why_not(self, prompts):
        return [None] * len(prompts)

    def text(self, prompt):
        return prompt.text

    def totals(self, prompt):
        return np.array([TOTALS[answer] for answer in prompt.answers])

    def score(self, prompts):
        self.seen += prompts
        tokens = [np.array([TOKENS[a] for a in prompt.answers]) for prompt in prompts]
        rows = np.arange(len(prompts))
        yield Scores.of_rows(rows, [self.totals(prompt) for prompt in prompts], tokens)

    def score_alone(self, prompt):
        self.alone.append(prompt)
        return self.totals(prompt)


def asked(rule, model=None, **base):
    presenter = Presenter(ORDERS, {}, presentation.Presentation(**base), rule_name=rule)
    return ask_options([QUESTION], presenter, model or Written(), "own")


@pytest.mark.parametrize(("rule", "scores", "answer"), [
    ("sum", [-6, -5, -4], "here"),
    ("mean", [-2, -1.25, -4], "à Paris"),
    ("bytes", [-6 / 11, -5 / 8, -4 / 4], "in New York"),  # à is two bytes
])  # fmt: skip
def test_each_rule_by_hand(rule, scores, answer):
    """The same scores in both orders of the options; log-probabilities over the options."""
    table = asked(rule)
    for row in table.iter_rows(named=True):
        assert (row["option_scores"], row["option_tokens"]) == (pytest.approx(scores), [3, 4, 1])
        assert row["answer"] == row["label"] == answer
        best, second = sorted(scores)[::-1][:2]
        assert row["margin"] == pytest.approx(best - second)
        assert row["logprob"] == pytest.approx(best - math.log(sum(map(math.exp, scores))))
        assert row["gold_rank"] == 1 + sum(score > scores[0] for score in scores)


def test_a_text_is_asked_for_whatever_labels_the_options_have():
    """The options are listed with labels, and the instruction is to answer with a text."""
    model = Written()
    asked("sum", model, labels="A", template=presentation.TEMPLATES["chat"])
    (_, text), prompt = model.seen[0].turns[0], model.seen[0]
    options = "Where is the café?\nA. in New York\nB. à Paris\nC. here\n"
    assert text == f"{options}Answer with the text of the right option and nothing else."
    assert prompt.answers == ("in New York", "à Paris", "here")
    assert not prompt.are_labels


def test_near_ties_of_the_rule_are_decided_alone():
    """By the score of the rule: sums of -5 and -4 are 1 nat apart, means -1.25 and -2 less."""
    model = Written()
    model.tie = 0.9
    asked("sum", model)
    assert not model.alone
    asked("mean", model)
    assert len(model.alone) == 2
    equal = Written()
    equal.totals = lambda prompt: np.zeros(3)
    found = asked("sum", equal)["answer"].to_list()
    assert found == ["in New York"] * 2, "by the order of the file, whatever order is shown"


def test_which_rules_go_with_which_labels():
    """Options without labels have no label that could be scored."""
    assert rule_for("", ["A", "1"]).name == "label"
    assert rule_for("", ["A", "none"]).name == "sum"
    assert rule_for("mean", ["A"]) is RULES["mean"]
    refused("a rule for texts: sum, mean, bytes", rule_for, "label", ["A", "none"])
    refused("Did you mean 'bytes'", rule_for, "byte", ["A"])
    unlabelled = presentation.Presentation(labels="none")
    message = "without labels, scored by their labels"
    refused(message, Presenter, ORDERS, {}, unlabelled, rule_name="label")
