"""Plain forward passes, which define every score, and what all families do around them.

Equal inputs are computed once, inputs of equal length go through the model in batches, near ties
are decided by a pass of their own, and the numbers become ``Scores`` for the queries.
"""

from __future__ import annotations

import ctypes
import hashlib
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

from consilience.core.items import Floats, Ints, margins
from consilience.models.candidates import CandidateTokens, scores_of
from consilience.models.fast.products import CPU_TOKENS, reproducibly, speed_up
from consilience.models.loading import Pretrained
from consilience.types import Scores

Item = TypeVar("Item")
Result = TypeVar("Result")
Array = TypeVar("Array", bound=npt.NDArray[Any])
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
def logits_of(model: PreTrainedModel, rows: list[list[int]]) -> torch.Tensor:
    """Logits (row, token, entry) of token sequences of one length."""
    ids = torch.tensor(rows, device=model.device)
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
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
    return np.asarray(steps.cpu().numpy())


def target_logprobs(logits: torch.Tensor, target: Sequence[int]) -> Floats:
    """Log-probability (row,) of a token sequence, from ``logits`` (row, token, entry)."""
    steps = logits[:, : len(target)].double().log_softmax(dim=-1)
    columns = torch.arange(len(target), device=logits.device)
    tokens = torch.tensor(target, device=logits.device)
    return np.asarray(steps[:, columns, tokens].sum(dim=1).cpu().numpy())


class ReadyModel:
    """What every family has: a loaded model that is ready to score."""

    head_is_packed = True  # Whether the output embedding is sped up, too (``fast.products``)

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
        """Positions of inputs, with their logits (input, candidate).

        If the best two of an input are closer than ``tie``, a pass of one shape gives its logits:
        no answer depends on the batch or the number of threads (docs/decisions/0007).
        """
        size = NEAR_TIES.get(self.model.device.type, 1)

        def score_batch(batch: Ints) -> Floats:
            logits = logits_of([inputs[at] for at in batch])
            near = np.flatnonzero(margins(logits) < self.tie)
            for rows in np.split(near, range(size, len(near), size)) if len(near) else ():
                with reproducibly():
                    settled = logits_of([inputs[at] for at in batch[np.resize(rows, size)]])
                logits[rows] = settled[: len(rows)]
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


def settle_candidates(totals: Floats, tie: float, score_alone: Callable[[int, int], float]) -> None:
    """Near ties among totals (row, candidate), of which a pass of its own computes one."""
    near = totals >= np.nanmax(totals, axis=1, keepdims=True) - tie
    for row in np.flatnonzero(near.sum(axis=1) > 1).tolist():
        for candidate in np.flatnonzero(near[row]).tolist():
            with reproducibly():
                totals[row, candidate] = score_alone(row, candidate)


@dataclass(frozen=True, slots=True)
class TokenNoise:
    """Gumbel noise for the logits of one text; the largest sum of both is a sample.

    If every logit divided by the temperature gets independent standard Gumbel noise, the token
    with the largest sum is distributed as the softmax (Gumbel-max trick; Maddison, Tarlow and
    Minka 2014, Section 2). Each step of a text has its own seed, so a sample is the same in every
    batch and order.
    """

    seed: int  # 56 bits of SHA-256 over seed, prompt and sample
    temperature: float  # Divides the logits; the noise is multiplied by it instead

    @classmethod
    def of(cls, prompt: Sequence[int], sample: int, seed: int, temperature: float) -> TokenNoise:
        """The noise of a sample after a prompt, given as token ids."""
        named = f"{seed} {sample} {' '.join(map(str, prompt))}"
        return cls(int.from_bytes(hashlib.sha256(named.encode()).digest()[:7]), temperature)

    def added_to(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """The logits (token,) of a step from 0 with the noise added."""
        generator = torch.Generator().manual_seed(self.seed + step)
        drawn = torch.empty(len(logits), dtype=torch.float64).exponential_(generator=generator)
        return logits - (self.temperature * drawn.log()).to(logits)
