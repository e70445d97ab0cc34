"""An epoch of fine-tuning on sentence pairs, against a plain loop's way of doing it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import get_args

import questions
import torch
from transformers import BertConfig, BertForSequenceClassification

from consilience.models.classifier import Encoded, collate
from consilience.models.fast.products import Library, Products, speed_up_training
from consilience.models.loading import load_tokenizer
from consilience.suites.pairs import TASKS, original, read_pairs
from consilience.train.classifiers import batches_of

SIZE = 32
SAMPLE = 6
"""Batches that are timed, of all lengths."""

PADDED = 256
"""Tokens that examples of fine-tuning commonly pad every pair to."""


LONGEST = "random batches, padded to their longest"
PLAIN = f"random batches, padded to {PADDED} tokens"


def model(entries: int) -> BertForSequenceClassification:
    """The shape of MiniLM-L6 with random weights, the same ones each time."""
    torch.manual_seed(0)
    shape = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12}
    config = BertConfig(vocab_size=entries, num_hidden_layers=6, **shape)
    return BertForSequenceClassification(config).train()


def forms(tokenizer) -> list[Encoded]:
    """RTE's training pairs where they are, else as many of such lengths."""
    path = questions.shared() / "data" / "glue" / "rte" / "train.tsv"
    if path.is_file():
        task = TASKS["rte"]
        written = [original(each, task.indicators) for each in read_pairs(str(path), task).items]
        found = tokenizer([a.text for a, _ in written], [b.text for _, b in written])["input_ids"]
    else:
        draw = random.Random(0)
        lengths = [20 + int(draw.expovariate(1 / 55)) for _ in range(2490)]
        found = [[draw.randrange(1000, 20_000) for _ in range(each)] for each in lengths]
    return [{"input_ids": ids[:PADDED]} for ids in found]


def epoch(encoded: Sequence[Encoded], *, like: bool) -> list[list[int]]:
    """A sample of the batches: every n-th, from the shortest to the longest."""
    draw = random.Random(0)
    lengths = [len(each["input_ids"]) for each in encoded]
    if like:
        batches = batches_of(lengths, SIZE, draw)
    else:
        rows = draw.sample(range(len(encoded)), len(encoded))
        batches = [rows[at : at + SIZE] for at in range(0, len(rows), SIZE)]
    batches.sort(key=lambda batch: max(lengths[row] for row in batch))
    step = len(batches) / SAMPLE
    return [batches[int((at + 0.5) * step)] for at in range(SAMPLE)]


def training(
    encoded: Sequence[Encoded], entries: int, *, like: bool, library: Library, padded: bool
) -> Callable[[], object]:
    """An update for each batch."""
    found = model(entries)
    speed_up_training(found, library)
    optimizer = torch.optim.AdamW(found.parameters(), lr=1e-5, fused=like)
    batches = epoch(encoded, like=like)

    def run() -> None:
        for batch in batches:
            inputs = collate([encoded[row] for row in batch], 0)
            if padded:
                width = PADDED - inputs["input_ids"].shape[1]
                inputs = {
                    n: torch.nn.functional.pad(each, (0, width)) for n, each in inputs.items()
                }
            logits = found(**inputs).logits
            labels = torch.arange(len(batch)) % 2
            torch.nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            optimizer.zero_grad()

    return run


def contenders() -> tuple[dict[str, Callable[[], object]], float, Products]:
    """Who trains; how often an epoch has what is timed; and what is chosen to multiply here."""
    tokenizer = load_tokenizer("packaged:minilm")
    encoded = forms(tokenizer)
    make = partial(training, encoded, len(tokenizer))
    chosen = speed_up_training(model(len(tokenizer)))
    runs = {
        ours(library, chosen): make(like=True, library=library, padded=False)
        for library in get_args(Library)
    }
    runs[LONGEST] = make(like=False, library="torch", padded=False)
    runs[PLAIN] = make(like=False, library="torch", padded=True)
    return runs, len(encoded) / (SIZE * SAMPLE), chosen


def ours(library: Library, chosen: Products) -> str:
    """The row of consilience with a library."""
    own = {"onednn": "oneDNN's products", "torch": "torch's own products"}[library]
    return f"consilience, {own}" + " (chosen here)" * (library == chosen.library)
