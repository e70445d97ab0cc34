"""Plain forward passes, which define every score, and what all families do around them.

Inputs of equal length go through the model in batches, and passes of their own decide near ties.
"""

from __future__ import annotations

import copy
import ctypes
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from consilience.core.errors import ConsilienceError
from consilience.core.items import Bools, Floats, Ints, group_rows, padded
from consilience.models.loading import Pretrained
from consilience.models.tokens import check_numbers
from consilience.types import Query

ALIGNED = 64  # Torch allocates tensors at multiples of so many bytes


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, whatever the run uses."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Item = TypeVar("Item")
Result = TypeVar("Result")
Array = TypeVar("Array", bound=npt.NDArray[Any])
LogitsOf = Callable[[list[Item]], torch.Tensor]  # (input, entry) of inputs
Vectors = npt.NDArray[np.float32]
Part = tuple[list[int], list[list[int]]]  # The tokens of what is read, and of what may follow it
Inputs = dict[tuple[int, ...], list[int]]  # Token sequences, and the queries that each is of
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


def equal_length_batches(
    lengths: Sequence[int], budget: Budget, most: int = sys.maxsize
) -> Iterator[Ints]:
    """Positions of sequences, at most ``most``, in batches of equal length within the budget.

    Without padding a result hardly depends on the rest of the batch. The batches of one length have
    equal sizes, because small products are slow. The length with the most tokens comes first, so
    that no core waits long for the last batch of another.
    """
    groups = group_rows(lengths).items()
    for length, rows in sorted(groups, key=lambda group: -group[0] * len(group[1])):
        left = np.array(rows)
        while len(left):
            size = max(1, min(most, budget.tokens // max(1, length)))
            step = -(-len(left) // -(-len(left) // size))
            yield left[:step]
            left = left[step:]


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


def in_batches(
    work: Callable[[Ints], object],
    lengths: Sequence[int],
    budget: Budget,
    most: int = sys.maxsize,
) -> None:
    """Call ``work`` with the positions of sequences, in batches of equal length, one by one."""
    for batch in equal_length_batches(lengths, budget, most):
        halving(work, batch, lengths[batch[0]], budget)


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


def score_batches(
    score_batch: Callable[[Ints], Array],
    lengths: Sequence[int],
    budget: Budget,
    device: torch.device,
    most: int = sys.maxsize,
) -> Iterator[tuple[Ints, Array]]:
    """Positions of inputs of one length and ``score_batch`` of at most ``most``, in parallel."""

    def halved(batch: Ints) -> Any:
        return np.concatenate(halving(score_batch, batch, lengths[batch[0]], budget))

    yield from side_by_side(halved, equal_length_batches(lengths, budget, most), device)


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


class _States(BaseModelOutputWithPastAndCrossAttentions):
    """Hidden states after the last layer; None for whatever else a family looks for."""

    def __getattr__(self, name: str) -> None:
        return None


class _Given(torch.nn.Module):
    """In the place of a model's layers: what they would compute is given."""

    def forward(self, *args: Any, inputs_embeds: Any, **kwargs: Any) -> _States:
        return _States(last_hidden_state=inputs_embeds)


class _Chosen(torch.nn.Module):
    """In the place of an output embedding: some of its entries, in float32."""

    def __init__(self, whole: Any, entries: torch.Tensor | slice) -> None:
        super().__init__()
        self.weight = whole.weight.detach()[entries].float()
        self.bias = None if whole.bias is None else whole.bias.detach()[entries].float()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(hidden.float(), self.weight, self.bias)


def head_of(
    model: PreTrainedModel, entries: torch.Tensor | slice | None = None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """All that a model computes after its last layer: (token, entry) logits of (token, width).

    ``entries``: those of the vocabulary that are computed, in float32 whatever the dtype of the
    model; None computes all of them as the model does.
    """
    parts: dict[Any, torch.nn.Module] = {model.base_model: _Given()}
    if entries is not None:
        output = model.get_output_embeddings()
        parts[output] = _Chosen(output, entries)

    def replaced(module: Any) -> Any:
        copied = copy.copy(module)
        copied._modules = {
            name: part and (parts.get(part) or replaced(part))
            for name, part in module._modules.items()
        }
        return copied

    head = replaced(model)
    return lambda states: head(inputs_embeds=states[None]).logits[0]


def head_at(model: PreTrainedModel, rows: torch.Tensor, columns: torch.Tensor) -> RemovableHandle:
    """While it is open, a model computes its output embedding at some positions only.

    Its logits are then (position, entry), at ``rows``, ``columns`` (position,) of its inputs (row,
    token). So a step has a quarter less to compute of BERT-base.
    """

    def choose(head: torch.nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        return inputs[0][rows, columns]

    output: torch.nn.Module = model.get_output_embeddings()
    return output.register_forward_pre_hook(choose)


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

    in_batches(score_batch, lengths, budget)
    return totals


def token_logprobs(logits: torch.Tensor, rows: Ints, tokens: Ints) -> Floats:
    """Log-probability (token,) of ``tokens`` (token,) in rows of ``logits`` (row, entry)."""
    dtype, logits = logits.dtype, logits.float()
    row = torch.from_numpy(rows).to(logits.device)
    token = torch.from_numpy(tokens).to(logits.device)
    steps = logits[row, token].double() - torch.logsumexp(logits, dim=-1)[row].double()
    check_numbers(steps, dtype)
    return np.asarray(steps.cpu().numpy())


def is_same(faster: Callable[[], Floats], plain: Floats, model: PreTrainedModel) -> bool:
    """Whether a faster way gives log-probabilities as the plain one does, when it is tried.

    Half-precision sums differ in the last bits; a wrong mask or position differs by nats. Families
    that cannot be asked in that way raise errors of all kinds.
    """
    close = 1e-3 if model.dtype == torch.float32 else 0.3
    try:
        return bool(np.allclose(faster(), plain, rtol=0, atol=close))
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError):
        return False


def near_best(values: Floats, tie: float) -> Bools:
    """Which answers (input, answer) are within ``tie`` of the best, of inputs that have several."""
    near = values >= np.nanmax(values, axis=1, keepdims=True, initial=-np.inf) - tie
    return np.asarray(near & (near.sum(axis=1, keepdims=True) > 1))


def settle(values: Floats, tie: float, alone: Callable[[int, Ints], Floats]) -> Floats:
    """``values`` (input, answer), of which near ties are computed again in passes of one shape.

    If the best two of an input are closer than ``tie``, ``alone(input, answers)`` gives the values
    of those that are near. It computes on one thread: no answer depends on the batch or on the
    number of threads (docs/decisions.md).
    """
    near = near_best(values, tie)
    for row in np.flatnonzero(near.any(axis=1)).tolist():
        answers = np.flatnonzero(near[row])
        with one_thread():
            values[row, answers] = alone(row, answers)
    return values


def settled_totals(
    scorer: Any, parts: Sequence[Part], tie: float, golds: Bools | None = None
) -> Floats:
    """Log-probability (part, target) of what may follow, in nats; near ties are settled.

    ``scorer``: of a family. With ``golds`` (part, target), those to finish in any case, only they
    and those near the best have a value.
    """

    def alone(row: int, targets: Ints) -> Floats:
        ids, of_part = parts[row]
        return np.asarray(scorer.alone(ids, [of_part[at] for at in targets]))

    values = scorer.totals(parts) if golds is None else scorer.best(parts, golds, tie)
    return settle(padded(values, np.nan), tie, alone)


class ReadyModel:
    """What every family has: a loaded model that is ready to score."""

    def __init__(self, loaded: Pretrained) -> None:
        self.model = loaded.model.eval()
        self.tokenizer = loaded.tokenizer
        self.identity = {**loaded.identity}
        self.notes: list[str] = []
        for weight in self.model.parameters():  # where one begins decides the order of MKL's sums
            if weight.data_ptr() % ALIGNED:
                weight.data = weight.data.clone()
        self.budget = Budget.of(loaded.model)
        self.tie = NEAR_TIE[loaded.model.dtype]

    def settled(
        self,
        logits_of: LogitsOf[Item],
        inputs: Sequence[Item],
        lengths: Sequence[int],
    ) -> Iterator[tuple[Ints, Floats]]:
        """Positions of inputs, with their logits (input, candidate), in parallel.

        As ``settle`` does, near ties are read again, on CUDA several in a pass of one size.
        """
        size = NEAR_TIES.get(self.model.device.type, 1)

        def read(batch: Ints) -> Floats:
            logits = logits_of([inputs[at] for at in batch])
            return np.asarray(logits.double().cpu().numpy())

        def score_batch(batch: Ints) -> Floats:
            logits = read(batch)
            check_numbers(logits, self.model.dtype)
            near = near_best(logits, self.tie)
            rows = np.flatnonzero(near.any(axis=1))
            for part in (rows[at : at + size] for at in range(0, len(rows), size)):
                with one_thread():
                    alone = read(batch[np.resize(part, size)])[: len(part)]
                logits[part] = np.where(near[part], alone, logits[part])
            return logits

        yield from score_batches(score_batch, lengths, self.budget, self.model.device)


def vector_array(
    model: Any,
    queries: Sequence[Query],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
) -> Vectors:
    """Hidden states (query, layer, width) where the object is predicted; NaN where not readable.

    Layers are those of transformers' ``hidden_states``: 0 is the input of the first layer, 1 its
    output, -1 the last; families that end in a layer norm (GPT-2, Llama, T5) have that after it.
    Masked models: at the mask; without ``special_tokens`` of the sentence without ``[CLS]`` and
    ``[SEP]``, as the released code encodes it. Causal models: at the last token before the object,
    which may be the start token. Sequence-to-sequence models: at the last token that the decoder is
    given before the object.
    """
    if not hasattr(model, "hidden_states"):
        expected = "a masked, causal or sequence-to-sequence model"
        found = f"'{model.identity.get('model')}' has no hidden states to look at"
        raise ConsilienceError(found, expected=expected)
    device, inputs = model.model.device, model.inputs(queries, special=special_tokens)
    readable = [ids for ids in inputs if model.why_not(ids) is None]

    @torch.inference_mode()
    def states_of(rows: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        states: list[torch.Tensor] = model.hidden_states(torch.tensor(rows, device=device))
        return states

    def read_batch(batch: Ints) -> Vectors:
        states = states_of([readable[at] for at in batch])
        return torch.stack([states[layer] for layer in layers], dim=1).float().cpu().numpy()

    widths = [state.shape[-1] for state in states_of([[0]])]
    if absent := [layer for layer in layers if not -len(widths) <= layer < len(widths)]:
        raise ConsilienceError(
            f"'{model.identity['model']}' has no layer {absent[0]}",
            expected=f"0 (the embeddings) to {len(widths) - 1}, or -1 (the last) to {-len(widths)}",
        )
    vectors = np.full((len(queries), len(layers), widths[layers[0]]), np.nan, dtype=np.float32)
    lengths = [*map(len, readable)]
    for batch, states in score_batches(read_batch, lengths, model.budget, device):
        for at, of_sentence in zip(batch, states, strict=True):
            vectors[inputs[readable[at]]] = of_sentence
    return vectors
