"""Plain forward passes, which define every score, and what all families do around them.

Inputs of equal length go through the model in batches, and passes of their own decide near ties.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from consilience.core.items import Bools, Floats, Ints, group_rows
from consilience.models.candidates import CandidateTokens, scores_of
from consilience.models.checks import check_numbers
from consilience.models.loading import Pretrained
from consilience.models.products import reproducibly, speed_up
from consilience.types import Scores

Item = TypeVar("Item")
Result = TypeVar("Result")
Array = TypeVar("Array", bound=npt.NDArray[Any])
CPU_TOKENS = 512  # Tokens in a batch for one core: it fits the core's cache (docs/log.md)
MOST_TOKENS = 32_768  # Tokens in a batch on an accelerator; more are not faster
MOST_WORKERS = 16  # Threads that drive a model; more would wait for Python's interpreter lock
NEAR_TIES = {"cuda": 32}  # Near ties in a pass, filled up to this number; elsewhere one
ACTIVATIONS = 40  # Numbers of the width of a layer that a token needs at once, estimated from above

NEAR_TIE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-1}
"""If the best two candidates are closer than so many nats, a pass of its own decides the query.

The last bits of a sum depend on the order of its terms, and so on the rest of the batch and on the
number of threads. The bounds are well above the differences that were measured (docs/log.md).
"""


@dataclass(slots=True)
class Budget:
    """Number of tokens that a batch may hold; it starts from the memory and only shrinks."""

    tokens: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> Budget:
        if model.device.type != "cuda":
            return cls(CPU_TOKENS)
        free, _ = torch.cuda.mem_get_info(model.device)
        width = getattr(model.config.get_text_config(), "hidden_size", 1024) * ACTIVATIONS
        most = free // 2 // (width * model.dtype.itemsize)
        return cls(max(1, min(MOST_TOKENS, most)))


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
    except RuntimeError as error:  # torch.OutOfMemoryError of a GPU, or that of the processor
        if len(batch) == 1 or not re.search("out of memory|can't allocate memory", str(error)):
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


def positions(model: PreTrainedModel) -> int:
    """Tokens that the position embeddings of a model suffice for; RoBERTa's first are padding."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None) or -1
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            padding = module.padding_idx
            return int(module.num_embeddings - (0 if padding is None else padding + 1))
    return int(limit) if limit > 0 else sys.maxsize  # -1 is XLNet's


@torch.inference_mode()
def logits_of(model: PreTrainedModel, rows: Sequence[Sequence[int]], keep: int = 0) -> torch.Tensor:
    """Logits (row, token, entry) of sequences of one length; of the last ``keep``, 0 for all."""
    ids = torch.tensor(rows, device=model.device)
    logits: torch.Tensor = model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
    return logits


def text_logprobs(
    model: PreTrainedModel, texts: Sequence[Sequence[int]], skips: Sequence[int], budget: Budget
) -> Floats:
    """``sum_t log p(token_t | preceding tokens)`` (text,) in nats after the first ``skips`` tokens.

    Texts that differ in their last token only are read once, each other text alone.
    """
    totals = np.zeros(len(texts))
    texts_of = group_rows(tuple(text[:-1]) for text in texts)
    read = list(texts_of)
    lengths = [len(ids) for ids in read]

    def score_batch(batch: Ints) -> None:
        length = lengths[batch[0]]
        first = min(skips[text] for at in batch for text in texts_of[read[at]]) - 1
        width = length - first
        logits = logits_of(model, [read[at] for at in batch], width)
        steps = [
            (row * width + at - first, texts[text][at + 1], text)
            for row, place in enumerate(batch)
            for text in texts_of[read[place]]
            for at in range(skips[text] - 1, length)
        ]
        rows, tokens, of_texts = np.array(steps).T
        np.add.at(totals, of_texts, token_logprobs(logits.flatten(0, 1), rows, tokens))

    for batch in equal_length_batches(lengths, budget):
        halving(score_batch, batch, lengths[batch[0]], budget)
    return totals


def token_logprobs(logits: torch.Tensor, rows: Ints, tokens: Ints) -> Floats:
    """Log-probability (token,) of ``tokens`` (token,) in rows of ``logits`` (row, entry)."""
    dtype, logits = logits.dtype, logits.float()
    row = torch.from_numpy(rows).to(logits.device)
    token = torch.from_numpy(tokens).to(logits.device)
    steps = logits[row, token].double() - torch.logsumexp(logits, dim=-1)[row].double()
    check_numbers(steps, dtype)
    return np.asarray(steps.cpu().numpy())


def target_logprobs(logits: torch.Tensor, target: Sequence[int]) -> Floats:
    """Log-probability (row,) of a token sequence, from ``logits`` (row, token, entry)."""
    steps = logits[:, : len(target)].double().log_softmax(dim=-1)
    columns = torch.arange(len(target), device=logits.device)
    totals = steps[:, columns, torch.tensor(target, device=logits.device)].sum(dim=1)
    check_numbers(totals, logits.dtype)
    return np.asarray(totals.cpu().numpy())


CANNOT = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError)
"""What a family raises that cannot be asked in a faster way."""


def is_same(found: Floats, plain: Floats, model: PreTrainedModel) -> bool:
    """Whether a faster way gives log-probabilities as the plain one does, when it is tried.

    Half-precision sums differ in the last bits; a wrong mask or position differs by nats.
    """
    close = 1e-3 if model.dtype == torch.float32 else 0.3
    return bool(np.allclose(found, plain, rtol=0, atol=close))


class ReadyModel:
    """What every family has: a loaded model that is ready to score."""

    head_is_packed = True  # Whether the output embedding is sped up, too (``products.py``)

    def __init__(self, loaded: Pretrained) -> None:
        self.model = loaded.model.eval()
        self.tokenizer = loaded.tokenizer
        self.identity = loaded.identity
        self.notes: list[str] = []
        self.products = speed_up(loaded.model, head=self.head_is_packed)
        self.budget = Budget.of(loaded.model)
        self.tie = NEAR_TIE[loaded.model.dtype]

    def settled(
        self,
        logits_of: Callable[[list[Item]], Floats],
        inputs: Sequence[Item],
        lengths: Sequence[int],
    ) -> Iterator[tuple[Ints, Floats]]:
        """Positions of inputs, with their logits (input, candidate), in parallel."""
        size = NEAR_TIES.get(self.model.device.type, 1)

        def score_batch(batch: Ints) -> Floats:
            def alone(rows: Ints, near: Bools) -> Floats:
                return logits_of([inputs[at] for at in batch[rows]])

            logits = logits_of([inputs[at] for at in batch])
            check_numbers(logits, self.model.dtype)
            return settle(logits, self.tie, alone, size)

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
    inputs: Mapping[tuple[int, ...], list[int]]  # Token sequences, and their queries
    states: Callable[[torch.Tensor], list[torch.Tensor]]
    """After each layer, the state (batch, width) that predicts the object in (batch, token)."""
    why_not: Callable[[Sequence[int]], str | None]  # Why the model cannot read one
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


def settle(
    values: Floats, tie: float, alone: Callable[[Ints, Bools], Floats], at_once: int = 1
) -> Floats:
    """``values`` (input, answer), of which near ties are computed again in passes of one shape.

    If the best two of an input are closer than ``tie``, ``alone(rows, near)`` gives the values of
    ``at_once`` inputs, where ``near`` (input, answer) says so. It computes on one thread with
    torch's own products: no answer depends on the batch or on the number of threads
    (docs/decisions/0007).
    """
    best = np.nanmax(values, axis=1, keepdims=True, initial=-np.inf)
    near = values >= best - tie
    rows = np.flatnonzero(near.sum(axis=1) > 1)
    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        with reproducibly():
            found = alone(np.resize(part, at_once), near)[: len(part)]
        values[part] = np.where(near[part], found, values[part])
    return values


def one_at_a_time(score: Callable[[int, int], float]) -> Callable[[Ints, Bools], Floats]:
    """For ``settle``, of a function of an input and an answer."""

    def alone(rows: Ints, near: Bools) -> Floats:
        found = np.full((len(rows), near.shape[1]), np.nan)
        for at, row in enumerate(rows.tolist()):
            for answer in np.flatnonzero(near[row]).tolist():
                found[at, answer] = score(row, answer)
        return found

    return alone
