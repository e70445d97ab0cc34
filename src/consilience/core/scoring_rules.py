"""Scoring rules: which number decides between the options of a question.

A model gives the log-probability of each option's label, or of its text, after the prompt. A rule
makes of it the score that the options are ranked by; the highest is the answer, of equal ones the
first in the file's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from consilience.core.errors import ConsilienceError, unknown_name

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Reply = Literal["label", "text"]
"""What a model is to answer with: the label of an option, or its text."""


@dataclass(frozen=True, slots=True)
class ScoringRule:
    """How options are scored."""

    name: str
    reply: Reply
    """What is scored."""
    meaning: str
    """The score of an option."""
    source: str
    """Who uses it."""
    per: Literal["", "token", "byte"] = ""
    """What the log-probability is divided by the number of, if anything."""
    has_premise: bool = False
    """Whether the log-probability of the text after a prompt without the question is subtracted."""

    def scores(
        self, totals: Floats, tokens: Ints, texts: Sequence[str], premise: Floats | None = None
    ) -> Floats:
        """The scores (answer,), in nats, of nats a token, or of nats a byte.

        ``totals`` (answer,): the log-probabilities of the answers ``texts``; ``tokens`` (answer,):
        the tokens that were scored of each; ``premise`` (answer,): the log-probabilities without
        the question, for a rule that has a premise.
        """
        if self.has_premise:
            if premise is None:
                raise TypeError(
                    f"the rule '{self.name}' needs log-probabilities without a question"
                )
            return totals - premise
        sizes = np.ones(len(totals))
        if self.per == "token":
            sizes = tokens.astype(np.float64)
        elif self.per == "byte":
            sizes = np.array([float(len(text.encode())) for text in texts])
        scores: Floats = totals / sizes
        return scores


RULES: Mapping[str, ScoringRule] = {rule.name: rule for rule in (
    ScoringRule(
        "label", "label", "log-probability of the option's label",
        "MMLU (Hendrycks et al., ICLR 2021); Robinson and Wingate, ICLR 2023"),
    ScoringRule(
        "sum", "text", "log-probability of the option's text", "lm-evaluation-harness, acc"),
    ScoringRule(
        "mean", "text", "log-probability of the option's text, divided by its tokens",
        "GPT-3 (Brown et al., NeurIPS 2020), Section 2.4", per="token"),
    ScoringRule(
        "bytes", "text", "log-probability of the option's text, divided by its bytes in UTF-8",
        "lm-evaluation-harness, acc_norm, which divides by characters: the same for ASCII",
        per="byte"),
    ScoringRule(
        "pmi", "text", "log-probability of the option's text, minus that without the question",
        "domain conditional PMI (Holtzman et al., EMNLP 2021, Section 4)", has_premise=True),
)}  # fmt: skip
"""The scoring rules of language models by name."""

DECISION = ScoringRule(
    "decision",
    "label",
    "logarithm of the probability that a decision model gives the option",
    "System One API; OpenAI, Decisions API",
)
"""The scoring rule of decision models, which give the probability of each option."""


def rule_for(name: str, labels: Sequence[str]) -> ScoringRule:
    """The rule of that name, for options with labels in these styles.

    Without a name it is ``label`` if all options have labels, and otherwise ``sum``. ``label`` for
    options without labels raises.
    """
    has_labels = "none" not in labels
    if name == DECISION.name:
        return DECISION
    if not name:
        return RULES["label" if has_labels else "sum"]
    if name not in RULES:
        raise unknown_name(f"no scoring rule '{name}'", name, RULES)
    if name == "label" and not has_labels:
        texts = [name for name, rule in RULES.items() if rule.reply == "text"]
        raise ConsilienceError(
            "options without labels, scored by their labels",
            expected=f"labels, or a rule for texts: {', '.join(texts)}",
            todo="Leave the level none of labels out, or take another rule.",
        )
    return RULES[name]
