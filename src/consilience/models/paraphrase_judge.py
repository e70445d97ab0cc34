"""A causal language model judges two sentences: do they mean the same, and how fluent are they?

ParaPLUIE (Lemesle et al., COLING 2025) scores a pair of sentences by a log-likelihood ratio: a
causal model is asked whether they are paraphrases, and the score is the log-probability of ``Yes``
minus that of ``No``. Nothing is generated. The question and the two solved examples are our own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consilience.errors import ConsilienceError
from consilience.models.candidates import start_token
from consilience.models.forward import Floats, sentence_logprobs
from consilience.models.prompt_models import is_chat_model
from consilience.models.prompted import OptionScorer
from consilience.presentation import Prompt, Role

QUESTION = "Sentence 1: {}\nSentence 2: {}\nDo the two sentences mean the same? Answer Yes or No."

ANSWERS = ("Yes", "No")

EXAMPLES = (
    ("The bridge was built by Anna Weber.", "Anna Weber constructed the bridge.", "Yes"),
    ("The bridge was built by Anna Weber.", "Anna Weber crossed the bridge.", "No"),
)
"""Solved pairs that precede each question; the second has the same names and another meaning."""


class ParaphraseJudge:
    """Log-odds that two sentences mean the same, and log-probabilities of sentences."""

    def __init__(self, scorer: OptionScorer) -> None:
        if not scorer.continuation.shares_context:
            raise ConsilienceError(
                f"'{scorer.identity['model']}' cannot judge sentences",
                expected="a causal language model",
                todo="Name one with --judge.",
            )
        self.scorer = scorer
        self.identity = scorer.identity
        self._is_chat = is_chat_model(scorer)

    def prompt(self, first: str, second: str) -> Prompt:
        """The question about two sentences, after the solved examples."""
        ending = "" if self._is_chat else "\nAnswer:"
        turns: list[tuple[Role, str]] = []
        for *pair, answer in EXAMPLES:
            turns += [("user", QUESTION.format(*pair) + ending), ("assistant", answer)]
        turns.append(("user", QUESTION.format(first, second) + ending))
        return Prompt(tuple(turns), ANSWERS, (0, 1), is_chat=self._is_chat)

    def log_odds(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """``log p(Yes) - log p(No)`` (pair,) in nats; NaN where the model cannot read a pair."""
        prompts = [self.prompt(*pair) for pair in pairs]
        odds = np.full(len(pairs), np.nan)
        readable = [at for at, reason in enumerate(self.scorer.why_not(prompts)) if reason is None]
        for scores in self.scorer.score([prompts[at] for at in readable]):
            for row, totals in zip(scores.rows.tolist(), scores.totals, strict=True):
                odds[readable[row]] = totals[0] - totals[1]
        return odds

    def token_logprobs(self, sentences: Sequence[str]) -> Floats:
        """Mean log-probability of a token (sentence,) in nats, each sentence alone."""
        scorer = self.scorer
        encoded = scorer.tokenizer(list(sentences), add_special_tokens=False, verbose=False)
        ids = [list(row) for row in encoded["input_ids"]]
        totals = sentence_logprobs(scorer.model, start_token(scorer.tokenizer), ids, scorer.budget)
        means: Floats = totals / np.array([max(1, len(row)) for row in ids])
        return means
