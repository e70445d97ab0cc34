"""Plain forward passes, which define every score, and the batches that they are computed in."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from transformers import PreTrainedModel

from consilience.core.items import Floats, Ints

Item = TypeVar("Item")
Result = TypeVar("Result")

CPU_TOKENS = 512
"""Tokens in a batch for one core: its activations fit the core's cache (docs/log.md)."""

MOST_TOKENS = 32_768  # Tokens in a batch on an accelerator; more are not faster
MOST_WORKERS = 16  # Threads that drive a model; more would wait for Python's interpreter lock
ACTIVATIONS = 40  # Numbers of the width of a layer that a token needs at once, estimated from above

NEAR_TIE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-1}
"""If the best two candidates are closer than so many nats, a pass of its own decides the query.

The last bits of a sum depend on the order of its terms, and so on the rest of the batch and on the
number of threads. The bounds are well above the differences that were measured (docs/log.md).
"""


class Budget:
    """Number of tokens that a batch may hold; it starts from the memory and only shrinks."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    @classmethod
    def of(cls, model: PreTrainedModel) -> Budget:
        """The budget for the model's device and half of its free memory."""
        if model.device.type != "cuda":
            return cls(CPU_TOKENS)
        free, _ = torch.cuda.mem_get_info(model.device)
        width = getattr(model.config, "hidden_size", 1024) * ACTIVATIONS * model.dtype.itemsize
        return cls(max(1, min(MOST_TOKENS, free // 2 // width)))


def equal_length_batches(lengths: Sequence[int], budget: Budget) -> Iterator[Ints]:
    """Positions of sequences, in batches of equal length within the budget; at least one each.

    Without padding a result hardly depends on the rest of the batch. The batches of one length have
    equal sizes, because small products are slow. The length with the most tokens comes first, so
    that no core waits long for the last batch of another.
    """
    order = np.argsort(np.asarray(lengths), kind="stable")
    sorted_lengths = np.asarray(lengths)[order]
    starts = np.flatnonzero(np.diff(sorted_lengths, prepend=-1))
    groups = np.split(order, starts[1:])
    tokens = [len(group) * int(lengths[group[0]]) if len(group) else 0 for group in groups]
    for index in np.argsort(np.negative(tokens), kind="stable"):
        group, start = groups[index], 0
        while start < len(group):
            left = len(group) - start
            most = max(1, budget.tokens // max(1, int(lengths[group[0]])))
            step = -(-left // -(-left // most))
            yield group[start : start + step]
            start += step


def halving(
    work: Callable[[Ints], Result], batch: Ints, length: int, budget: Budget
) -> list[Result]:
    """The results of ``work(batch)``, in halves if memory runs out; the budget then shrinks."""
    try:
        return [work(batch)]
    except RuntimeError as error:
        if len(batch) == 1 or not _out_of_memory(error):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    budget.tokens = min(budget.tokens, max(1, len(batch) * length // 2))
    half = len(batch) // 2
    return [
        result
        for part in (batch[:half], batch[half:])
        for result in halving(work, part, length, budget)
    ]


def in_parts(work: Callable[[Ints], object], items: Ints, length: int, budget: Budget) -> None:
    """Call ``work`` with parts of ``items`` within the budget; an item has ``length`` tokens."""
    start = 0
    while start < len(items):
        part = items[start : start + max(1, budget.tokens // length)]
        halving(work, part, length, budget)
        start += len(part)


def workers_on(device: torch.device) -> int:
    """Batches that are computed in parallel: on a processor one a thread, on CUDA two."""
    if device.type == "cpu":
        return min(torch.get_num_threads(), MOST_WORKERS)
    return 2 if device.type == "cuda" else 1


def side_by_side(
    work: Callable[[Item], Result], items: Iterator[Item], device: torch.device
) -> Iterator[tuple[Item, Result]]:
    """Every item with its result of ``work``, in order, computed in parallel; few results wait."""
    threads, workers = torch.get_num_threads(), workers_on(device)
    threads_a_worker = max(1, threads // workers)
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    pool = ThreadPoolExecutor(
        workers, initializer=torch.set_num_threads, initargs=(threads_a_worker,)
    )
    try:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            if len(waiting) > 2 * workers:
                first, result = waiting.popleft()
                yield first, result.result()
        while waiting:
            first, result = waiting.popleft()
            yield first, result.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
        give_memory_back()


def give_memory_back() -> None:
    """Return freed memory to the system; glibc keeps it, in pieces of all sizes (docs/log.md)."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, whatever the run uses."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def margins(scores: Floats) -> Floats:
    """Best minus second of ``scores`` (row, candidate): (row,). Infinite with one candidate."""
    if scores.shape[1] < 2:
        return np.full(len(scores), np.inf)
    second, best = np.partition(scores, -2, axis=1)[:, -2:].T
    difference: Floats = best - second
    return difference


def _out_of_memory(error: RuntimeError) -> bool:
    """Whether torch ran out of memory, on an accelerator or in its allocator on a processor."""
    is_named = "out of memory" in str(error) or "can't allocate memory" in str(error)
    return isinstance(error, torch.OutOfMemoryError) or is_named


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
    """``sum_t log p(token_t | start, preceding tokens)`` (sentence,) in nats, each alone."""
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
    """Log-probability (token,) of ``tokens`` (token,) in rows of ``logits`` (row, entry)."""
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
