"""Language models that answer prompts: the log-probability of each possible answer, and free text.

A prompt is read once, however many answers are scored or written after it, and prompts with equal
beginnings share them (``fast/prompts.py``). Families that do not take a tree of tokens read prompts
in batches of one length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from consilience.core.asks import is_near_tie
from consilience.errors import ConsilienceError
from consilience.models.batches import equal_length_batches, halving, side_by_side, workers_on
from consilience.models.continuations import CONTINUATIONS, end_tokens, greedy
from consilience.models.fast import (
    Prompts,
    TreeScorer,
    reproducibly,
    room_for_tokens,
    tree_scorer,
)
from consilience.models.forward import Floats, Ints, logits_of
from consilience.models.loading import Pretrained
from consilience.models.masked import positions
from consilience.models.scoring import ReadyModel
from consilience.models.steering import steering
from consilience.models.token_noise import TokenNoise

MOST_PROMPTS = {"cpu": 64, "cuda": 512}
"""Prompts that are continued in parallel, at most, by the type of the device."""

MOST_SCORED = 512
"""Prompts whose answers are scored in parallel, at most."""

Targets = Sequence[Sequence[int]]
"""The token ids of each answer that is scored after a prompt."""


@dataclass(frozen=True, slots=True)
class Replies:
    """The answers to some prompts."""

    totals: list[Floats]
    """Log-probabilities, in nats, of the answers of each prompt (answer,)."""
    texts: list[str]
    """What was written after each prompt; empty where nothing was to be written."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How text is written after a prompt."""

    noise: TokenNoise | None = None
    """Added to the logits, so that a token is sampled; None writes the most probable token."""
    is_one_line: bool = False
    """Whether the text ends with its first line; otherwise at an end token only."""


class PromptReader(ReadyModel):
    """A causal or sequence-to-sequence model that continues prompts, given as token ids."""

    def __init__(self, loaded: Pretrained, *, most_written: int = 0, longest: int = 0) -> None:
        """``most_written``: tokens that may be written after a prompt.

        ``longest``: tokens of a prompt, 0 for as many as the model takes.
        """
        if loaded.kind not in CONTINUATIONS:
            raise ConsilienceError(
                f"'{loaded.identity['model']}' does not continue a prompt",
                expected="a sequence-to-sequence or causal language model",
            )
        super().__init__(loaded)
        self.continuation = CONTINUATIONS[loaded.kind](self.model, self.tokenizer)
        self.most_written = most_written
        self.longest = self._check_longest(longest)
        self.ends = end_tokens(self.model, self.tokenizer)
        self.model.generation_config = greedy(self.model, self.ends, max(1, most_written))
        self._tree_scorer = None
        if self.continuation.shares_context:
            self._tree_scorer = tree_scorer(loaded.model, loaded.identity, 0, self.budget)

    def _check_longest(self, longest: int) -> int:
        most = min(self.tokenizer.model_max_length, positions(self.model))
        most -= self.most_written if self.continuation.shares_context else 0
        if longest > most:
            raise ConsilienceError(
                f"--max-length {longest}",
                expected=f"at most the model's {most}, and {self.most_written} that it may write",
            )
        return longest or most

    def replies(
        self,
        prompts: Sequence[list[int]],
        targets: Sequence[Targets],
        manners: Sequence[Manner] = (),
    ) -> Iterator[tuple[Ints, Replies]]:
        """Positions of prompts (token ids), with the answers to them.

        ``targets``: the answers that are scored after each prompt. ``manners``: how text is written
        after each; empty to write none. Near ties between answers are decided by a pass of their
        own.
        """
        lengths = [len(ids) for ids in prompts]

        def work(rows: Ints) -> Replies:
            chosen = [prompts[row] for row in rows]
            of_chosen = [targets[row] for row in rows]
            of_rows = [manners[row] for row in rows] if manners else []
            replies = None
            if self._tree_scorer is not None:
                with suppress(NotImplementedError):  # longer than a window of attention
                    replies = self._in_a_tree(chosen, of_chosen, self._tree_scorer, of_rows)
            replies = replies or self._in_batches(chosen, of_chosen, of_rows)
            for at, totals in enumerate(replies.totals):
                if is_near_tie(totals, self.tie):
                    with reproducibly():
                        replies.totals[at] = self._alone(chosen[at], of_chosen[at])
            return replies

        if self._tree_scorer is None:
            batches = equal_length_batches(lengths, self.budget)
        else:
            batches = self._chunks(prompts, targets, is_written=bool(manners))
        yield from side_by_side(work, batches, self.model.device)

    def _chunks(
        self, prompts: Sequence[list[int]], targets: Sequence[Targets], *, is_written: bool
    ) -> Iterator[Ints]:
        """Prompts that are read in one tree: equal work for each thread, within the memory.

        They are sorted, so that those of a chunk share as much as they can.
        """
        if not prompts:
            return
        order = sorted(range(len(prompts)), key=prompts.__getitem__)
        rows = [np.array(prompts[row]) for row in order]
        new = [len(rows[0]), *(len(row) - _shared(row, one) for one, row in pairwise(rows))]
        more = [
            sum(len(ids) - 1 for ids in targets[row]) + self.most_written * is_written
            for row in order
        ]
        tokens = np.cumsum(np.array(new) + more)
        most = MOST_PROMPTS.get(self.model.device.type, MOST_PROMPTS["cpu"])
        most = most if is_written else MOST_SCORED
        workers, room = workers_on(self.model.device), room_for_tokens(self.model)
        parts = workers * math.ceil(max(len(order) / most, tokens[-1] / room) / workers)
        ends = np.searchsorted(tokens, tokens[-1] * np.arange(1, parts) / parts)
        yield from filter(len, np.split(np.array(order), ends))

    def _in_a_tree(
        self,
        prompts: Sequence[list[int]],
        targets: Sequence[Targets],
        scorer: TreeScorer,
        manners: Sequence[Manner],
    ) -> Replies:
        """Answers to prompts that are read once, those of all lengths in parallel."""
        more = self.most_written if manners else 0
        read = Prompts(self.model, scorer.head, prompts, targets, self.budget, more)
        replies = Replies(read.totals(), [])
        if manners:
            noises = [manner.noise for manner in manners]

            @torch.inference_mode()
            def best_alone(row: int, written: list[int]) -> int:
                with reproducibly():
                    logits = logits_of(self.model, [[*prompts[row], *written]])[0, -1].float()
                noise = noises[row]
                return int((noise.added_to(logits, len(written)) if noise else logits).argmax())

            is_complete = partial(self._is_complete, manners)
            written = read.write(self.most_written, is_complete, best_alone, self.tie, noises)
            replies.texts.extend(map(self._decoded, written, manners))
        return replies

    def _in_batches(
        self,
        prompts: Sequence[list[int]],
        targets: Sequence[Targets],
        manners: Sequence[Manner],
    ) -> Replies:
        """Answers to prompts in batches of one length and of the same answers."""
        replies = Replies([np.empty(0)] * len(prompts), [""] * len(prompts))
        groups: dict[tuple[int, tuple[tuple[int, ...], ...]], list[int]] = {}
        for row, (prompt, of_prompt) in enumerate(zip(prompts, targets, strict=True)):
            groups.setdefault((len(prompt), tuple(map(tuple, of_prompt))), []).append(row)

        @torch.inference_mode()
        def work(rows: Ints) -> None:
            ids = torch.tensor([prompts[row] for row in rows], device=self.model.device)
            encoded = self.continuation.encode(ids)
            if targets[rows[0]]:
                totals = self.continuation.totals(ids, encoded, targets[rows[0]])
                for row, of_row in zip(rows, totals, strict=True):
                    replies.totals[row] = of_row
            if manners:
                of_rows = [manners[row] for row in rows]
                noises = [manner.noise for manner in of_rows]
                options = steering(noises, partial(self._is_complete, of_rows))
                written = self.continuation.write(ids, encoded, **options)
                for row, of_row, manner in zip(rows, written, of_rows, strict=True):
                    replies.texts[row] = self._decoded(of_row, manner)

        for (length, _), rows in groups.items():
            for batch in equal_length_batches([length] * len(rows), self.budget):
                halving(work, np.array(rows)[batch], length, self.budget)
        return replies

    @torch.inference_mode()
    def _alone(self, prompt: list[int], targets: Targets) -> Floats:
        """Log-probability (answer,) of the answers after one prompt."""
        ids = torch.tensor([prompt], device=self.model.device)
        totals: Floats = self.continuation.totals(ids, self.continuation.encode(ids), targets)[0]
        return totals

    def _is_complete(self, manners: Sequence[Manner], row: int, written: list[int]) -> bool:
        """Whether the written tokens of a row end its text."""
        if not written or written[-1] in (*self.ends, self.tokenizer.pad_token_id):
            return bool(written)
        return manners[row].is_one_line and "\n" in str(self.tokenizer.decode(written)).lstrip()

    def _decoded(self, ids: list[int], manner: Manner) -> str:
        """What was written, up to the first end token."""
        ends = {*self.ends, self.tokenizer.pad_token_id}
        end = next((at for at, token in enumerate(ids) if token in ends), len(ids))
        text = str(self.tokenizer.decode(ids[:end], skip_special_tokens=False)).strip()
        return text.split("\n")[0].strip() if manner.is_one_line else text


def _shared(first: Ints, second: Ints) -> int:
    """How many tokens two sequences have in common at their beginning."""
    size = min(len(first), len(second))
    differs = first[:size] != second[:size]
    return int(differs.argmax()) if differs.any() else size
