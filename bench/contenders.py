"""Every way to ask the same queries: ours, and those that are in use."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, pipeline

from consilience import Candidates, Query
from consilience.models.batches import CPU_TOKENS, Budget, equal_length_batches, side_by_side

Answers = list[str]
Ask = Callable[[list[Query], Candidates], Answers]

RELEASED_BATCH = 200  # Sentences a batch in ParaRel's released evaluation


def in_turn(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each, run one after the other, after one round to warm up."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {each: [] for each in runs}
    for _ in range(rounds):
        for each, run in runs.items():
            start = clock()
            run()
            seconds[each].append(clock() - start)
    return {each: statistics.median(of) for each, of in seconds.items()}


def ours(model: Any, *, every: bool = True) -> Ask:
    """Consilience."""

    def ask(queries: list[Query], candidates: Candidates) -> Answers:
        answers = [""] * len(queries)
        for scores in model.score(queries, candidates, every=every):
            found = scores.totals if scores.logprob is None else scores.logprob
            for row, best in zip(scores.rows, np.nanargmax(found, axis=1), strict=True):
                answers[row] = scores.words[best]
        return answers

    return ask


def fill_mask(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch: int | None) -> Ask:
    """The fill-mask pipeline: one sentence a call, or in batches as the released evaluation."""
    parts: Any = {"model": model, "tokenizer": tokenizer}
    fill = pipeline("fill-mask", **parts)

    def ask(queries: list[Query], candidates: Candidates) -> Answers:
        ids = {
            tokenizer(word, add_special_tokens=False).input_ids[0]: word
            for word in reversed(candidates.words)
        }
        mask = str(tokenizer.mask_token)
        texts = [mask.join(query.pattern.around_object(query.subject)) for query in queries]
        options: dict[str, Any] = {"targets": list(candidates.words), "top_k": 1}
        if batch is None:
            found = [fill(text, **options) for text in texts]
        else:
            found = fill(texts, batch_size=batch, **options)
        return [ids[each[0]["token"]] for each in found]

    return ask


def products(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Ask:
    """The matrix products of the layers alone, in our batches, which no model is faster than."""
    layers: list[Any] = [one for one in model.base_model.modules() if type(one) is torch.nn.Linear]

    def ask(queries: list[Query], candidates: Candidates) -> Answers:
        texts = [query.pattern.fill(query.subject, "[MASK]") for query in queries]
        lengths = [*map(len, tokenizer(texts).input_ids)]

        @torch.inference_mode()
        def work(batch: Any) -> None:
            tokens = len(batch) * lengths[batch[0]]
            hidden = {size: torch.ones(tokens, size) for size in (768, 3072)}
            for layer in layers:
                layer(hidden[layer.in_features])

        batches = equal_length_batches(lengths, Budget(CPU_TOKENS))
        return ["" for _ in side_by_side(work, batches, model.device)]

    return ask


def sentences_in_batches(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, start: int, tokens: int = 512
) -> Ask:
    """A causal model, one sentence a candidate: transformers alone, in batches of one length."""

    @torch.inference_mode()
    def ask(queries: list[Query], candidates: Candidates) -> Answers:
        texts = [
            query.pattern.fill(query.subject, word)
            for query in queries
            for word in candidates.words
        ]
        rows = [[start, *ids] for ids in tokenizer(texts, add_special_tokens=False).input_ids]
        lengths = np.array([len(row) for row in rows])
        total = np.zeros(len(rows))
        for length in np.unique(lengths):
            same = np.flatnonzero(lengths == length)
            for at in range(0, len(same), max(1, tokens // length)):
                batch = same[at : at + max(1, tokens // length)]
                ids = torch.tensor([rows[each] for each in batch], device=model.device)
                logits = model(input_ids=ids[:, :-1]).logits
                chosen = logits.gather(2, ids[:, 1:, None])[..., 0]
                total[batch] = (chosen - logits.logsumexp(-1)).double().sum(1).cpu().numpy()
        best = total.reshape(len(queries), -1).argmax(1)
        return [candidates.words[each] for each in best]

    return ask
