"""How much the answers of a relation's patterns differ (ParaRel, Section 8.1)."""

from __future__ import annotations

import torch


def consistency_loss(logits: torch.Tensor) -> torch.Tensor:
    """Two-sided Kullback-Leibler divergence of all pairs of patterns, in nats.

    ``logits`` (fact, pattern, candidate). With ``p_n`` the distribution that pattern n gives over
    the candidates, the mean over facts and over pairs n < m of ``KL(p_n || p_m) + KL(p_m || p_n)``.
    The paper sums over pairs, so that a relation of 20 patterns counts 32 times one of 4; the mean
    makes lambda mean the same for both. 0 where there is one pattern.
    """
    patterns = logits.shape[1]
    if patterns < 2:
        return logits.sum() * 0
    logprob = logits.float().log_softmax(dim=-1)
    prob = logprob.exp()
    # Summed over ordered pairs: n sum_n p_n log p_n - (sum_n p_n) (sum_m log p_m).
    own = patterns * (prob * logprob).sum(dim=(1, 2))
    crossed = (prob.sum(dim=1) * logprob.sum(dim=1)).sum(dim=-1)
    return (own - crossed).mean() / (patterns * (patterns - 1) / 2)


def published_loss(logits: torch.Tensor) -> torch.Tensor:
    """The loss of the released code: the same divergences, summed over pairs and facts.

    ``logits`` (fact, pattern, row) have a column for each row of the relation's data, so that a
    candidate counts as often as it is an object. The sum over all ordered pairs is divided by the
    number of columns: the released code transposes before it takes the mean over what it
    believes to be the batch.
    """
    facts, patterns, rows = logits.shape
    return consistency_loss(logits) * facts * (patterns * (patterns - 1) / 2) / rows
