"""What all families do around their forward pass.

Equal inputs are computed once, inputs of equal length go through the model in batches, near ties
are decided by a pass of their own, and the numbers become ``Scores`` for the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from consilience.core.items import Floats, Ints
from consilience.models.batches import (
    NEAR_TIE,
    Budget,
    equal_length_batches,
    halving,
    margins,
    side_by_side,
)
from consilience.models.candidates import CandidateTokens, scores_of
from consilience.models.fast.products import reproducibly, speed_up
from consilience.models.loading import Pretrained
from consilience.types import Scores

Input = TypeVar("Input")
Array = TypeVar("Array", bound=npt.NDArray[Any])


class ReadyModel:
    """What every family has: a loaded model that is ready to score."""

    head_is_packed = True  # Whether the output embedding is sped up too (``fast.speed_up``)

    def __init__(self, loaded: Pretrained) -> None:
        self.model = loaded.model.eval()
        self.tokenizer = loaded.tokenizer
        self.identity = loaded.identity
        self.notes: list[str] = []
        self.products = speed_up(loaded.model, head=self.head_is_packed)
        self.budget = Budget.of(loaded.model)
        self.tie = NEAR_TIE[loaded.model.dtype]
        """If the best two candidates are closer, a pass of its own decides (``NEAR_TIE``)."""

    def settled(
        self,
        logits_of: Callable[[list[Input]], Floats],
        inputs: Sequence[Input],
        lengths: Sequence[int],
    ) -> Iterator[tuple[Ints, Floats]]:
        """Positions of inputs, with their logits (input, candidate), near ties decided."""

        def score_batch(batch: Ints) -> Floats:
            logits = logits_of([inputs[at] for at in batch])
            settle_rows(logits, self.tie, lambda row: logits_of([inputs[batch[row]]])[0])
            return logits

        yield from score_batches(score_batch, lengths, self.budget, self.model.device)

    def score_slot(
        self,
        logits_of: Callable[[list[list[int]]], Floats],
        inputs: Sequence[tuple[list[int], list[int]]],
        sheet: CandidateTokens,
    ) -> Iterator[Scores]:
        """Scores of inputs, rows and token ids, whose candidates have the same tokens."""
        sentences = [ids for _, ids in inputs]
        for batch, logits in self.settled(logits_of, sentences, [len(ids) for ids in sentences]):
            yield scores_of([inputs[at][0] for at in batch], sheet.spread(logits), sheet)


@dataclass(frozen=True, slots=True)
class StateReader:
    """How a family reads queries for their hidden states (its method ``hidden_states``)."""

    family: ReadyModel  # The model
    inputs: Mapping[tuple[int, ...], list[int]]
    """Token sequences, and the rows of the queries that each is read for."""
    states: Callable[[torch.Tensor], list[torch.Tensor]]
    """After each layer, the state (batch, width) that predicts the object in (batch, token)."""
    why_not: Callable[[Sequence[int]], str | None]
    """Why the model cannot read a sequence; None if it can."""
    shortest: int  # A token that is a readable sequence


def score_batches(
    score_batch: Callable[[Ints], Array],
    lengths: Sequence[int],
    budget: Budget,
    device: torch.device,
    most: int | None = None,
) -> Iterator[tuple[Ints, Array]]:
    """Positions of inputs of one length and ``score_batch`` of at most ``most``, in parallel."""

    def halved(batch: Ints) -> Any:
        return np.concatenate(halving(score_batch, batch, lengths[batch[0]], budget))

    batches = (
        batch[start : start + (most or len(batch))]
        for batch in equal_length_batches(lengths, budget)
        for start in range(0, len(batch), most or len(batch))
    )
    yield from side_by_side(halved, batches, device)


def settle_rows(logits: Floats, tie: float, score_alone: Callable[[int], Floats]) -> None:
    """Replace the logits (row, candidate) of every row whose best two are closer than ``tie``.

    ``score_alone`` computes a row in a pass of its own, so that the answer does not depend on the
    batch or the number of threads (docs/decisions/0007).
    """
    for row in np.flatnonzero(margins(logits) < tie).tolist():
        with reproducibly():
            logits[row] = score_alone(row)


def settle_candidates(totals: Floats, tie: float, score_alone: Callable[[int, int], float]) -> None:
    """The same for totals (row, candidate), of which a pass computes one."""
    near = totals >= np.nanmax(totals, axis=1, keepdims=True) - tie
    for row in np.flatnonzero(near.sum(axis=1) > 1).tolist():
        for candidate in np.flatnonzero(near[row]).tolist():
            with reproducibly():
                totals[row, candidate] = score_alone(row, candidate)
