"""Noise on token embeddings, and models steered by it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from consilience.core.items import Floats


@dataclass(frozen=True, slots=True)
class TokenNoise:
    """Gumbel noise for the logits of one text; the largest sum of both is a sample.

    If every logit divided by the temperature gets independent standard Gumbel noise, the token
    with the largest sum is distributed as the softmax (Gumbel-max trick; Maddison, Tarlow and
    Minka 2014, Section 2). The noise of a text is drawn from its own counter-based generator, so a
    sample is the same in every batch and order.
    """

    key: int  # Seeds the generator: 128 bits of SHA-256 over seed, prompt and sample
    temperature: float  # Divides the logits; the noise is multiplied by it instead

    @classmethod
    def of(cls, prompt: Sequence[int], sample: int, seed: int, temperature: float) -> TokenNoise:
        """The noise of a sample after a prompt, given as token ids."""
        named = f"{seed} {sample} {' '.join(map(str, prompt))}"
        return cls(int.from_bytes(hashlib.sha256(named.encode()).digest()[:16]), temperature)

    def at(self, step: int, size: int) -> Floats:
        """The noise (token,) of a step from 0, in nats: temperature times standard Gumbel."""
        # The third word of the counter is the step: no step takes as many numbers as 2**128.
        bits = np.random.Philox(key=self.key, counter=step << 128).random_raw(size)
        uniform = ((bits >> np.uint64(11)) + 0.5) * 2.0**-53  # between 0 and 1, never either
        noise: Floats = -self.temperature * np.log(-np.log(uniform))
        return noise

    def added_to(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """The logits (token,) of a step with the noise added."""
        return logits + torch.from_numpy(self.at(step, len(logits))).to(logits)


IsComplete = Callable[[int, list[int]], bool]  # Whether a row's written tokens end its text


def steering(noises: Sequence[TokenNoise | None], is_complete: IsComplete) -> dict[str, Any]:
    """Options of ``generate`` for rows with these noises, whose texts end so."""
    return {
        "logits_processor": LogitsProcessorList([_AddNoise(noises)]),
        "stopping_criteria": StoppingCriteriaList([_StopComplete(is_complete)]),
    }


class _AddNoise(LogitsProcessor):
    """Adds each row's noise to its logits."""

    def __init__(self, noises: Sequence[TokenNoise | None]) -> None:
        self._noises = noises
        self._step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The logits (row, token) of the next step with noise."""
        step, self._step = self._step, self._step + 1
        return torch.stack(
            [
                logits if noise is None else noise.added_to(logits, step)
                for logits, noise in zip(scores, self._noises, strict=True)
            ]
        )


class _StopComplete(StoppingCriteria):
    """Ends the rows whose text is complete."""

    def __init__(self, is_complete: IsComplete) -> None:
        self._is_complete = is_complete
        self._start = 0

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Whether each row (row,) is complete."""
        self._start = self._start or input_ids.shape[1] - 1  # one token is written
        rows = input_ids[:, self._start :].tolist()
        done = [self._is_complete(row, ids) for row, ids in enumerate(rows)]
        return torch.tensor(done, device=input_ids.device)
