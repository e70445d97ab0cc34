"""Batches of sentence pairs of like lengths, of one task or several (MT-DNN: Liu et al. 2019)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.data import Dataset

from consilience.choices import Sampling
from consilience.models.pair_input import Encoded

EXPONENT: Mapping[Sampling, float] = {"proportional": 1.0, "square-root": 0.5, "even": 0.0}

NEARBY = 50
"""Batches of pairs that are sorted by length together; a batch then has little padding."""


class Batches(Dataset[dict[str, Any]]):
    """Every batch of a training, of one task each, in order; all drawn by the seed.

    ``processes`` share each batch: item i is the part i % processes of batch i // processes, and
    ``weight`` makes the mean over the parts' losses that of the batch.
    """

    def __init__(
        self,
        encoded: Mapping[str, Sequence[Encoded]],
        labels: Mapping[str, Sequence[int]],
        *,
        size: int,
        epochs: int,
        seed: int,
        sampling: Sampling = "proportional",
        processes: int = 1,
    ) -> None:
        self.encoded, self.labels, self.processes = encoded, labels, processes
        self.per_epoch = 0
        draw = random.Random(seed)
        order: list[tuple[str, list[int]]] = []
        unread: dict[str, list[list[int]]] = {task: [] for task in encoded}
        main = next(iter(encoded))
        own = math.ceil(len(encoded[main]) / size)
        for _ in range(epochs):
            epoch: list[tuple[str, list[int]]] = []
            for task, forms in encoded.items():
                whole = math.ceil(len(forms) / size)
                share = (len(forms) / len(encoded[main])) ** EXPONENT[sampling]
                count = own if task == main else max(1, round(own * share))
                count = whole if sampling == "proportional" else count
                while len(unread[task]) < count:
                    unread[task] += batches_of([len(e["input_ids"]) for e in forms], size, draw)
                epoch += [(task, rows) for rows in unread[task][:count]]
                del unread[task][:count]
            draw.shuffle(epoch)
            self.per_epoch = len(epoch)
            order += epoch
        self.order = order

    def __len__(self) -> int:
        return len(self.order) * self.processes

    def __getitem__(self, at: int) -> dict[str, Any]:
        task, rows = self.order[at // self.processes]
        own = rows[at % self.processes :: self.processes]
        read = own or rows[:1]  # a part may be empty; it then has no weight
        return {
            "task": task,
            "forms": [self.encoded[task][row] for row in read],
            "labels": [self.labels[task][row] for row in read],
            "weight": len(own) * self.processes / len(rows),
        }


def batches_of(lengths: Sequence[int], size: int, draw: random.Random) -> list[list[int]]:
    """All rows in batches of like lengths, in random order; which rows meet is random too."""
    rows = draw.sample(range(len(lengths)), len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(rows), NEARBY * size):
        near = sorted(rows[start : start + NEARBY * size], key=lambda row: lengths[row])
        batches += [near[at : at + size] for at in range(0, len(near), size)]
    draw.shuffle(batches)
    return batches
