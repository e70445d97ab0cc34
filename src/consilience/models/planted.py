"""Lets a causal model read trees (``tree.py``), if its family scores sentences in one as alone.

The family's own code is not changed: it is called with an attention of ours, and its head is called
by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from consilience.models.batches import Budget, equal_length_batches, halving, one_thread
from consilience.models.cache import checked
from consilience.models.tree import ATTENTION, Reading, Tree

TRIED = 7
"""Tokens of the sentences on which a family is tried when it is loaded."""

Head = Callable[[torch.Tensor], torch.Tensor]
"""Logits (token, vocabulary) of last hidden states (token, width)."""


def plant_tree(
    model: PreTrainedModel, identity: Mapping[str, object], start: int, budget: Budget
) -> Head | None:
    """Let a model read trees: its head. None, and an unchanged model, where its family cannot.

    ``start``: a token that sentences begin with.
    """
    base, attention = model.base_model, model.config._attn_implementation
    if base is model:
        return None
    head = _Head(model)

    def plant() -> None:
        base.forward = head.forward
        model.set_attn_implementation(ATTENTION)

    def fits() -> bool:
        with one_thread():
            return _tree_fits(model, head, plant, start, budget)

    if checked("tree", identity, fits):
        plant()
        return head
    vars(base).pop("forward", None)
    model.set_attn_implementation(attention)
    return None


class _Head:
    """What a model does behind its last layer, by the family's own code."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._whole = model.base_model.forward
        self._output: Any = None
        self._after = threading.local()

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        self._after.hidden = hidden[None]
        try:
            ids = torch.zeros((1, len(hidden)), dtype=torch.long, device=hidden.device)
            logits: torch.Tensor = self._model(input_ids=ids, use_cache=False).logits
        finally:
            self._after.hidden = None
        return logits[0]

    def forward(self, *args: object, **kwargs: object) -> object:
        """The layers, unless their result is given."""
        hidden = getattr(self._after, "hidden", None)
        if hidden is not None:
            return self._output(last_hidden_state=hidden)
        found = self._whole(*args, **kwargs)
        self._output = type(found)
        return found


@torch.inference_mode()
def _tree_fits(
    model: PreTrainedModel, head: Head, plant: Callable[[], None], start: int, budget: Budget
) -> bool:
    """Whether sentences get the same scores once the tree is planted."""
    rng = np.random.default_rng(0)
    stem = rng.integers(0, model.config.vocab_size, TRIED).tolist()
    branches = rng.integers(0, model.config.vocab_size, (24, TRIED)).tolist()
    # Of one length, so that they are read in one batch; they leave the stem at every token.
    sentences = [
        stem[: 1 + at % (TRIED - 1)] + ids[1 + at % (TRIED - 1) :]
        for at, ids in enumerate(branches)
    ]
    alone = one_by_one(model, start, sentences, budget)
    # Half-precision sums differ in the last bits; a wrong mask or position differs by nats.
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.3
    try:
        plant()
        tree = Tree.of(start, sentences)
        # In two parts, so that the second finds the beginnings that the first one has read.
        half = -(-len(tree.inner) // 2)
        reading = Reading(model, head, tree, Budget(half))
        reading.read_all()
        return np.allclose(tree.path_sums(reading.steps), alone, rtol=0, atol=tolerance)
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError):
        return False


def one_by_one(
    model: PreTrainedModel, start: int, sentences: list[list[int]], budget: Budget
) -> npt.NDArray[np.float64]:
    """Log-probability (sentence,) of token sequences, each alone after the start token."""
    logprob = np.zeros(len(sentences))
    lengths = [len(ids) for ids in sentences]

    def work(batch: npt.NDArray[np.int64]) -> None:
        rows = [[start, *sentences[each]] for each in batch]
        logits = logits_of(model, [row[:-1] for row in rows]).float()
        targets = torch.tensor([row[1:] for row in rows], device=logits.device)
        chosen = logits.gather(2, targets[..., None])[..., 0].double()
        steps = chosen - torch.logsumexp(logits, dim=-1).double()
        logprob[batch] = steps.sum(dim=1).cpu().numpy()

    for batch in equal_length_batches(lengths, budget):
        halving(work, batch, lengths[batch[0]], budget)
    return logprob


@torch.inference_mode()
def logits_of(model: PreTrainedModel, rows: list[list[int]]) -> torch.Tensor:
    """Logits (row, token, vocabulary) of rows of one length."""
    ids = torch.tensor(rows, device=model.device)
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return logits


def room_for_tokens(model: PreTrainedModel) -> int:
    """Tokens whose keys and values take 512 MiB, or a quarter of an accelerator's free memory."""
    config, room = model.config, 2**29
    if model.device.type == "cuda":
        room = torch.cuda.mem_get_info(model.device)[0] // 4
    width = config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    layers = config.num_hidden_layers * model.dtype.itemsize
    token = 2 * layers * heads * (getattr(config, "head_dim", None) or width)
    return int(room // token)
