"""How much the answers of a relation's patterns differ (ParaRel, Section 8.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

SHARPENED = 0.5
"""Temperature of the vote, so that the student learns it with more confidence."""


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
    entropies = patterns * (prob * logprob).sum(dim=(1, 2))
    crossed = (prob.sum(dim=1) * logprob.sum(dim=1)).sum(dim=-1)
    return (entropies - crossed).mean() / (patterns * (patterns - 1) / 2)


def cosine_loss(logits: torch.Tensor) -> torch.Tensor:
    """One minus the cosine of the distributions of two patterns, mean over facts and pairs.

    ``logits`` (fact, pattern, candidate). Between 0 and 1. The released code names a variant so,
    but takes the cosine along the axis of facts, so that it compares no two distributions.
    """
    patterns = logits.shape[1]
    if patterns < 2:
        return logits.sum() * 0
    unit = torch.nn.functional.normalize(logits.float().softmax(dim=-1), dim=-1)
    # |sum_n u_n|^2 sums over all ordered pairs, and over each pattern with itself.
    cosines = unit.sum(dim=1).square().sum(dim=-1) - unit.square().sum(dim=(1, 2))
    return 1 - cosines.mean() / (patterns * (patterns - 1))


def released_loss(logits: torch.Tensor) -> torch.Tensor:
    """The loss of the released code: the same divergences, summed over pairs and facts.

    ``logits`` (fact, pattern, row) have a column for each row of the relation's data, so that a
    candidate counts as often as it is an object. The sum over all ordered pairs is divided by the
    number of columns: the released code transposes the logits, and its mean over the batch is a
    mean over columns.
    """
    facts, patterns, rows = logits.shape
    return consistency_loss(logits) * facts * (patterns * (patterns - 1) / 2) / rows


def vote_loss(logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Divergence of each pattern from the vote of a teacher's patterns, in nats.

    Both (fact, pattern, candidate). The vote is the mean of the teacher's distributions over
    patterns, sharpened. The loss is the mean over facts and patterns of ``KL(vote || p_n)``. A
    fixed teacher keeps facts apart; mutual agreement alone is cheapest if all facts get one answer.
    """
    votes = teacher.float().log_softmax(dim=-1).logsumexp(dim=1, keepdim=True)
    votes = (votes / SHARPENED).log_softmax(dim=-1)
    logprob = logits.float().log_softmax(dim=-1)
    return (votes.exp() * (votes - logprob)).sum(dim=-1).mean()


LOSSES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pairs": consistency_loss,
    "cosine": cosine_loss,
    "released": released_loss,
}
"""The losses that need the logits of one model only; ``vote`` also needs those of a teacher."""
