"""Scoring rules: which number decides between the options, by hand."""

import math

import numpy as np
import pytest

from checks import refused
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question, Scores
from consilience.plans.presentation import (
    RULES,
    TEMPLATES,
    Presentation,
    Presenter,
    Template,
    rule_for,
)
from consilience.plans.questions import asks_of, choose

QUESTION = Question(
    "q1", "g", {"": ("Where is the café?",)}, Choice("in New York"),
    (Choice("in New York"), Choice("à Paris"), Choice("here", ("there",))),
)  # fmt: skip
ORDERS = FactorialDesign.full([Factor("order", ("ABC", "CBA"))])
TOTALS = {"in New York": -6.0, "à Paris": -5.0, "here": -4.0}
TOKENS = {"in New York": 3, "à Paris": 4, "here": 1}


class Written:
    """A model with the log-probabilities above; ``seen`` are the prompts that it scored."""

    identity, notes, tie = {}, [], 0.0

    def __init__(self):
        self.seen, self.alone = [], 0

    def why_not(self, prompts):
        return [None] * len(prompts)

    def text(self, prompt):
        return prompt.text

    def totals(self, prompt):
        return np.array([TOTALS[answer] for answer in prompt.answers])

    def score(self, prompts):
        self.seen += prompts
        self.alone += len(prompts) == 1
        tokens = [np.array([TOKENS[a] for a in prompt.answers]) for prompt in prompts]
        rows = np.arange(len(prompts))
        yield Scores.of_rows(rows, [self.totals(prompt) for prompt in prompts], tokens)


def asked(rule, model=None, **base):
    presenter = Presenter(ORDERS, {}, Presentation(**base, rule_name=rule))
    return choose(presenter, asks_of([QUESTION], presenter, "own"), model or Written())


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
    asked("sum", model, labels="A", template=TEMPLATES["chat"])
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
    assert model.alone == 2
    equal = Written()
    equal.totals = lambda prompt: np.zeros(3)
    found = asked("sum", equal)["answer"].to_list()
    assert found == ["in New York"] * 2, "by the order of the file, whatever order is shown"


def test_which_rules_go_with_which_variants():
    """Without labels, or without the options in the text, no label could be scored."""
    plain, hidden = TEMPLATES["plain"], Template("own", "{question}")
    assert [rule_for("", labels, plain).name for labels in ("A", "1", "none")] == ["label", "label", "sum"]  # fmt: skip
    assert rule_for("", "A", hidden).name == "sum"
    assert rule_for("mean", "A", plain) is rule_for("mean", "none", hidden) is RULES["mean"]
    refused("no labels, .* or a rule for texts: sum, mean, bytes", rule_for, "label", "none", plain)
    refused("no {options} in the template 'own'", rule_for, "label", "A", hidden)
    refused("Did you mean 'bytes'", rule_for, "byte", "A", plain)


def test_each_variant_has_its_rule():
    """Labels are scored where they are shown; the texts where they are not."""
    design = FactorialDesign.full([Factor("labels", ("A", "none"))])
    presenter = Presenter(design, {}, Presentation())
    TOTALS.update(A=-1.0, B=-2.0, C=-3.0)
    TOKENS.update(A=1, B=1, C=1)
    table = choose(presenter, asks_of([QUESTION], presenter, "own"), Written())
    assert table["label"].to_list() == ["A", "here"]
    assert table["option_scores"].to_list() == [[-1, -2, -3], [-6, -5, -4]]
