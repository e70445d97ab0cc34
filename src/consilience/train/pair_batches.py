"""Batches of sentence pairs of similar lengths, of one task or several (Liu et al. 2019)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

from consilience.choices import Sampling
from consilience.models.pair_input import Encoded

EXPONENT: Mapping[Sampling, float] = {"proportional": 1.0, "square-root": 0.5, "even": 0.0}
"""A task's batches are in proportion to its pairs to this power."""

SORTED_TOGETHER = 50
"""Batches whose pairs are sorted by length together, so that they need little padding."""


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Sentence pairs of one task as a model reads them."""

    forms: Sequence[Encoded]
    """The original form of each pair, as tokens."""
    labels: Sequence[int]
    """The position of each pair's label in the task."""
    truncated: int = 0
    """How many pairs were too long for the model."""

    def first(self, count: int) -> EncodedPairs:
        return EncodedPairs(self.forms[:count], self.labels[:count])


class PairBatches(Dataset[dict[str, Any]]):
    """Every batch of a training in order, each of one task; the seed decides the order.

    ``processes`` share each batch: item i is the part i % processes of batch i // processes, and
    ``weight`` makes the mean over the parts' losses that of the batch.
    """

    def __init__(
        self,
        pairs: Mapping[str, EncodedPairs],
        *,
        size: int,
        epochs: int,
        seed: int,
        sampling: Sampling = "proportional",
        processes: int = 1,
    ) -> None:
        """``pairs``: those of each task; the first is the main task, which is read as a whole."""
        self.pairs, self.processes, self.per_epoch = pairs, processes, 0
        generator = random.Random(seed)
        self.order: list[tuple[str, list[int]]] = []
        unread: dict[str, list[list[int]]] = {task: [] for task in pairs}
        main = next(iter(pairs))
        pairs_of_main = len(pairs[main].forms)
        batches_of_main = math.ceil(pairs_of_main / size)
        for _ in range(epochs):
            epoch: list[tuple[str, list[int]]] = []
            for task, encoded in pairs.items():
                share = (len(encoded.forms) / pairs_of_main) ** EXPONENT[sampling]
                count = max(1, round(batches_of_main * share))
                if task == main or sampling == "proportional":
                    count = math.ceil(len(encoded.forms) / size)
                while len(unread[task]) < count:
                    lengths = [len(form["input_ids"]) for form in encoded.forms]
                    unread[task] += batches_of(lengths, size, generator)
                epoch += [(task, rows) for rows in unread[task][:count]]
                del unread[task][:count]
            generator.shuffle(epoch)
            self.per_epoch = len(epoch)
            self.order += epoch

    def __len__(self) -> int:
        return len(self.order) * self.processes

    def __getitem__(self, at: int) -> dict[str, Any]:
        task, rows = self.order[at // self.processes]
        part = rows[at % self.processes :: self.processes]
        read = part or rows[:1]  # an empty part reads one pair, without weight
        return {
            "task": task,
            "forms": [self.pairs[task].forms[row] for row in read],
            "labels": [self.pairs[task].labels[row] for row in read],
            "weight": len(part) * self.processes / len(rows),
        }


def batches_of(lengths: Sequence[int], size: int, generator: random.Random) -> list[list[int]]:
    """All rows in batches of similar lengths, in random order and with random members."""
    rows = generator.sample(range(len(lengths)), len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(rows), SORTED_TOGETHER * size):
        part = sorted(rows[start : start + SORTED_TOGETHER * size], key=lambda row: lengths[row])
        batches += [part[at : at + size] for at in range(0, len(part), size)]
    generator.shuffle(batches)
    return batches
