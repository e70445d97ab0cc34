"""What a training cost: how well a model still expects the words of text."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from consilience.models.batches import Budget, equal_length_batches
from consilience.models.loading import load_pretrained
from consilience.train.steps import ask_words, longest_of


@torch.inference_mode()
def perplexity(
    spec: str,
    lines: Sequence[str],
    device: str,
    seed: int = 0,
    *,
    trust_remote_code: bool = False,
) -> float:
    """Exponential of the mean loss of words of text: masked ones, or every next one.

    15 % of a masked model's words are asked for, the same ones of every model (pseudo-perplexity
    of a sample); a causal model's is the usual one. Over tokens, so that models with another
    tokenizer cannot be compared.
    """
    loaded = load_pretrained(
        spec,
        revision=None,
        device=device,
        dtype="float32",
        trust_remote_code=trust_remote_code,
    )
    model = loaded.model.eval()
    asked, rows, columns, labels = ask_words(
        lines, loaded.tokenizer, loaded.kind, longest_of(model), f"{seed}"
    )
    wanted: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, column, label in zip(rows, columns, labels, strict=True):
        wanted[row].append((column, label))
    total = 0.0
    for batch in equal_length_batches([len(ids) for ids in asked], Budget(2048)):
        ids = torch.tensor([asked[row] for row in batch], device=model.device)
        logits: Any = model(input_ids=ids).logits
        for at, row in enumerate(batch.tolist()):
            if not wanted[row]:
                continue
            places, true = zip(*wanted[row], strict=True)
            total += float(
                torch.nn.functional.cross_entropy(
                    logits[at, list(places)].float(),
                    torch.tensor(true, device=model.device),
                    reduction="sum",
                )
            )
    return math.exp(total / len(labels))
