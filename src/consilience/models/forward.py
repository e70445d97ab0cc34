"""Plain forward passes: the definition of every score, which all optimisations must reproduce."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from consilience.core.items import Floats, Ints
from consilience.models.batches import Budget, equal_length_batches, halving


@torch.inference_mode()
def logits_of(model: PreTrainedModel, rows: list[list[int]]) -> torch.Tensor:
    """Logits (row, token, entry) of token sequences of one length."""
    ids = torch.tensor(rows, device=model.device)
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return logits


@torch.inference_mode()
def next_token_logits(model: PreTrainedModel, rows: list[list[int]]) -> torch.Tensor:
    """Logits (row, entry) of the token that follows token sequences of one length."""
    ids = torch.tensor(rows, device=model.device)
    logits: torch.Tensor = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1]
    return logits


def sentence_logprobs(
    model: PreTrainedModel, start: int, sentences: list[list[int]], budget: Budget
) -> Floats:
    """Log-probability (sentence,) of token sequences, each alone after the token ``start``.

    ``sum_t log p(token_t | start, preceding tokens)``, in nats.
    """
    logprob = np.zeros(len(sentences))
    lengths = [len(ids) for ids in sentences]

    def score_batch(batch: Ints) -> None:
        rows = [[start, *sentences[at]] for at in batch]
        logits = logits_of(model, [row[:-1] for row in rows]).float()
        targets = torch.tensor([row[1:] for row in rows], device=logits.device)
        chosen = logits.gather(2, targets[..., None])[..., 0].double()
        steps = chosen - torch.logsumexp(logits, dim=-1).double()
        logprob[batch] = steps.sum(dim=1).cpu().numpy()

    for batch in equal_length_batches(lengths, budget):
        halving(score_batch, batch, lengths[batch[0]], budget)
    return logprob


def token_logprobs(logits: torch.Tensor, rows: Ints, tokens: Ints) -> Floats:
    """Log-probability (token,) of ``tokens`` (token,), each in row ``rows`` (token,) of logits.

    ``logits`` (row, entry); the softmax is over the whole vocabulary.
    """
    logits = logits.float()
    row = torch.from_numpy(rows).to(logits.device)
    token = torch.from_numpy(tokens).to(logits.device)
    steps = logits[row, token].double() - torch.logsumexp(logits, dim=-1)[row].double()
    logprob: Floats = steps.cpu().numpy()
    return logprob


def target_logprobs(logits: torch.Tensor, target: Sequence[int]) -> Floats:
    """Log-probability (row,) of a token sequence, from ``logits`` (row, token, entry)."""
    steps = logits[:, : len(target)].double().log_softmax(dim=-1)
    columns = torch.arange(len(target), device=logits.device)
    tokens = torch.tensor(target, device=logits.device)
    logprob: Floats = steps[:, columns, tokens].sum(dim=1).cpu().numpy()
    return logprob
