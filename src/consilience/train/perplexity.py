"""What a training cost: how well a model still predicts the words of text."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from consilience.choices import Loading
from consilience.models.batches import Budget, equal_length_batches
from consilience.models.loading import load_pretrained
from consilience.train.objectives import objective_of
from consilience.train.steps import longest_of

SEED = "0"
"""Seed of the masks: the same words of every model."""


@torch.inference_mode()
def perplexity(spec: str, lines: Sequence[str], loading: Loading) -> float:
    """Exponential of the mean loss over words of text, in tokens.

    Masked models: 15 % of the tokens (the pseudo-perplexity of a sample). Causal models: every next
    token. Models with different tokenizers cannot be compared.
    """
    loaded = load_pretrained(spec, loading)
    model = loaded.model.eval()
    words = objective_of(loaded).words(lines, loaded.tokenizer, longest_of(model), SEED)
    predicted: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, column, label in zip(words.rows, words.columns, words.labels, strict=True):
        predicted[row].append((column, label))
    total = 0.0
    for batch in equal_length_batches([len(ids) for ids in words.sequences], Budget(2048)):
        ids = torch.tensor([words.sequences[row] for row in batch], device=model.device)
        logits: Any = model(input_ids=ids).logits
        for at, row in enumerate(batch.tolist()):
            if not predicted[row]:
                continue
            columns, labels = zip(*predicted[row], strict=True)
            loss = torch.nn.functional.cross_entropy(
                logits[at, list(columns)].float(),
                torch.tensor(labels, device=model.device),
                reduction="sum",
            )
            total += float(loss)
    return math.exp(total / len(words.labels))
