"""Sensitivity to the prompt as three papers measure it, a function each.

They count the answers to every variant of an item, whatever pairs a design compares. Notation is
that of ``agreement``: ``a_ik`` is the answer to item i in variant k, ``g_i`` the gold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from consilience.metrics.grid import Bools, Floats

Ints = npt.NDArray[np.int64]

SHUFFLES = 999
"""How often right answers are shuffled to find the range that is expected of equal variants."""


def prompt_sensitivity(right: Bools, taken: Bools) -> Floats:
    """PromptSensiScore of each item (item,): how often its answers differ in correctness.

    ``S_i = sum_{k<l} |Y_ik - Y_il| / (n_i (n_i - 1) / 2)`` with ``Y_ik = [a_ik = g_i]`` and ``n_i``
    answers to item i. The PromptSensiScore (PSS) is the mean of ``S_i`` over items (Zhuo et al.,
    ProSA: Assessing and Understanding the Prompt Sensitivity of LLMs, Findings of EMNLP 2024).
    From 0, never, to ``n / (2 (n - 1))`` for even n; NaN for an item with fewer than
    two answers. ``right`` and ``taken`` (item, variant): whether the answer is right, and whether
    there is one.
    """
    size = taken.sum(axis=1).astype(np.float64)
    hits = (right & taken).sum(axis=1)
    pairs = size * (size - 1) / 2
    sensitivity = np.full(len(size), np.nan)
    np.divide(hits * (size - hits), pairs, out=sensitivity, where=pairs > 0)
    return sensitivity


def accuracy_range(right: Bools) -> tuple[float, float]:
    """The lowest and the highest accuracy of a variant, of ``right`` (item, variant).

    Sclar et al. call it the performance interval, and its width the spread (Quantifying Language
    Models' Sensitivity to Spurious Features in Prompt Design, ICLR 2024). Theirs is over
    formats, sampled by FormatSpread; this one is over all variants that were asked, of the items
    that were answered in all of them. NaN without such items. A maximum over variants grows with
    their number and with the noise of few items, and the bootstrap is not valid for it: compare it
    with ``shuffled_spreads``.
    """
    if not right.size:
        return float("nan"), float("nan")
    accuracy = right.mean(axis=0)
    return float(accuracy.min()), float(accuracy.max())


def shuffled_spreads(right: Bools, seed: int, shuffles: int = SHUFFLES) -> Floats:
    """Spreads if the right answers of each item fell on its variants at random (shuffle,).

    This is the distribution of the spread for variants that are equally accurate, given how many
    variants each item is right in. ``right`` (item, variant).
    """
    generator = np.random.default_rng(seed)
    spreads = np.empty(shuffles)
    for at in range(shuffles):
        accuracy = generator.permuted(right, axis=1).mean(axis=0)
        spreads[at] = accuracy.max() - accuracy.min()
    return spreads


def posix(scores: Floats, tokens: Floats, answers: Ints) -> Floats:
    """POSIX of each item (item,), in nats per token: how much the probability of an answer moves.

    ``psi_i = 1 / (N (N - 1)) sum_k sum_l 1 / L_k |log P(y_k | x_l) - log P(y_k | x_k)|``: ``y_k``
    is the answer to the item in variant k, ``x_l`` its prompt in variant l, ``L_k`` the tokens of
    ``y_k``, N the number of variants. The prompt sensitivity index of a data set is the mean of
    ``psi_i`` over items (Chatterjee et al., POSIX: A Prompt Sensitivity Index for Large Language
    Models, Findings of EMNLP 2024). From 0, without an upper bound; NaN for an item with
    fewer than two scored variants.

    Here ``y_k`` is the option that was chosen in variant k, in the words that variant l has for it:
    under another order the label B is another answer. The authors' released code subtracts the
    log-probability of another response to the same prompt; this is the definition of the paper.

    ``scores`` (item, variant, option): log-probability of each option in nats, not normalised over
    the options, NaN where there is none. ``tokens`` (item, variant, option): how many tokens each
    has. ``answers`` (item, variant): the position of the chosen option, -1 for none.
    """
    return np.array([_posix_of_item(*item) for item in zip(scores, tokens, answers, strict=True)])


def _posix_of_item(scores: Floats, tokens: Floats, answers: Ints) -> float:
    """POSIX of ``scores`` and ``tokens`` (variant, option) and ``answers`` (variant,)."""
    answered = np.flatnonzero(answers >= 0)
    chosen = answers[answered]
    known = np.isfinite(scores[np.ix_(answered, chosen)]).all(axis=1)
    answered, chosen = answered[known], chosen[known]
    size = len(answered)
    if size < 2:
        return float("nan")
    # (variant l, answer k): the log-probability of the answer k in the prompt of the variant l.
    probability = scores[np.ix_(answered, chosen)]
    moved = np.abs(probability - probability.diagonal()) / tokens[answered, chosen]
    return float(moved.sum() / (size * (size - 1)))
