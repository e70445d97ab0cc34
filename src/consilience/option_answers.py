"""The answer columns of one prompt, from what a model scored or wrote of its answers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from consilience.presentation import Prompt
from consilience.questions import Question

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WHOLE = 1e-3
"""How far from 1 the sum of known probabilities may be for the others to be 0."""


def written(totals: Floats, text: str, prompt: Prompt, question: Question) -> dict[str, object]:
    """The answer columns of one prompt of a model that chose an answer, or wrote a text.

    ``totals`` (answer,) are minus infinity for all but the chosen answer. A text that is none of
    the answers is a wrong answer without an option. An empty one is no answer.
    """
    if not np.isfinite(totals).any():
        if not text:
            return {"excluded": "the model wrote no text"}
        return {"answer": text, "label": text, "n_candidates": len(totals)}
    at = int(totals.argmax())
    option = prompt.options[at]
    return {
        "answer": question.options[option].text,
        "option": option,
        "label": prompt.answers[at],
        "n_candidates": len(totals),
    }


def chosen(
    scores: Floats,
    tokens: Ints | None,
    prompt: Prompt,
    question: Question,
    is_bound: Bools | None = None,
) -> dict[str, object]:
    """The answer columns of one prompt from the scores (answer,) of its answers.

    ``tokens`` (answer,): how many were scored of each; None if that is not known. ``is_bound``
    (answer,): which scores are only upper bounds; None for no one. The answer is the option with
    the highest score, of equal ones the first in the given order. Where a bound is higher, it is
    not known. Numbers that are not known are null.
    """
    order = list(prompt.options)
    by_option = np.empty(len(scores))
    by_option[order] = scores
    bounds = np.zeros(len(scores), dtype=bool)
    if is_bound is not None:
        bounds[order] = is_bound
    known = np.where(bounds, -np.inf, by_option)
    highest = by_option[bounds].max(initial=-np.inf)
    best, gold = int(known.argmax()), question.gold_position
    if known[best] < highest or bounds.all():
        return {"excluded": "the answer is not known: an option has only an upper bound"}
    total = np.logaddexp.reduce(known)
    is_normal = not bounds.any() or abs(np.exp(total) - 1) < WHOLE
    ahead = (known > known[gold]) | ((known == known[gold]) & (np.arange(len(known)) < gold))
    others = np.delete(known, best).max()
    has_gold = not bounds[gold]
    return {
        "answer": question.options[best].text,
        "option": best,
        "label": prompt.answers[order.index(best)],
        "logprob": float(known[best] - total) if is_normal else None,
        "gold_logprob": float(known[gold] - total) if is_normal and has_gold else None,
        "gold_rank": 1 + int(ahead.sum()) if has_gold and highest <= known[gold] else None,
        "margin": float(known[best] - others) if others >= highest else None,
        "text_logprob": float(known[best]),
        "gold_text_logprob": float(known[gold]) if has_gold else None,
        "n_candidates": len(known),
        "option_scores": [
            None if bound else score
            for score, bound in zip(by_option.tolist(), bounds, strict=True)
        ],
        "option_tokens": None if tokens is None else tokens[np.argsort(order)].tolist(),
    }
