"""Masked language models; candidates of one token and of several."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.items import Bools, Floats, Ints, group_rows
from consilience.models.batches import (
    ReadyModel,
    StateReader,
    equal_length_batches,
    halving,
    positions,
    side_by_side,
)
from consilience.models.candidates import (
    CandidateLookup,
    CandidateTokens,
    FactModel,
    encode,
    excluded,
    scores_of,
    slot_anchor,
    too_long,
)
from consilience.models.fast.products import one_thread, reproducibly
from consilience.models.fast.trees import PartialScores, Tree, search
from consilience.models.loading import Pretrained
from consilience.types import Query, Scores


@dataclass(frozen=True, slots=True)
class HeadRows:
    """What the head needs for some vocabulary entries: their ids, and weights in float32."""

    ids: torch.Tensor
    weight: torch.Tensor | None = None  # (entry, width) None where the head is computed whole
    bias: torch.Tensor | None = None  # (entry,) None where the head has none


class PositionHead:
    """Makes a model compute its output embedding at some positions only, in ``logits_at``."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._head: Any = model.get_output_embeddings()
        self._thread = threading.local()
        thread, whole = self._thread, self._head.forward

        def forward(hidden: torch.Tensor) -> torch.Tensor:  # no method: copies of models keep it
            request = getattr(thread, "request", None)
            if request is None:
                return whole(hidden)  # type: ignore[no-any-return]
            rows, columns, entries = request
            hidden = hidden[rows, columns]
            if entries is None:
                return whole(hidden)  # type: ignore[no-any-return]
            return torch.nn.functional.linear(hidden.float(), entries.weight, entries.bias)

        self._head.forward = forward

    def logits_at(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        entries: HeadRows | None = None,
        model: Any = None,
        **inputs: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (position, entry) at ``rows``, ``columns`` (position,) of inputs (row, token).

        ``entries``: some of the vocabulary, None for all. ``model``: one that wraps the model.
        """
        self._thread.request = rows, columns, entries
        try:
            logits: torch.Tensor = (model or self.model)(**inputs).logits
        finally:
            self._thread.request = None
        return logits


class AtMask(PositionHead):
    """A masked model whose head is computed at the mask only: it is a quarter of BERT-base.

    ``is_reduced``: whether the family's head can be taken apart; where not, it is computed whole.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self._head = model, model.get_output_embeddings()
        self.is_reduced = isinstance(self._head, torch.nn.Linear)
        if self.is_reduced:
            super().__init__(model)
            with one_thread():  # distributing a few tokens takes longer than computing them
                self.is_reduced = self._is_same()

    @torch.inference_mode()
    def head_rows(self, ids: torch.Tensor) -> HeadRows:
        """What the head needs for the vocabulary entries ``ids`` (entry,)."""
        ids = ids.to(self.model.device)
        if not self.is_reduced:
            return HeadRows(ids)
        bias = None if self._head.bias is None else self._head.bias[ids].float()
        return HeadRows(ids, self._head.weight[ids].float(), bias)

    @torch.inference_mode()
    def logits(self, ids: torch.Tensor, at: torch.Tensor, rows: HeadRows | None) -> torch.Tensor:
        """Logits (query, entry) at ``at`` (query,) of ``ids`` (query, token); None: all entries."""
        each = torch.arange(len(ids), device=ids.device)
        if self.is_reduced:
            return self.logits_at(each, at, rows, input_ids=ids)
        logits: torch.Tensor = self.model(input_ids=ids).logits[each, at]
        return logits if rows is None else logits[:, rows.ids]

    @torch.inference_mode()
    def _is_same(self) -> bool:
        size, device = self.model.config.vocab_size, self.model.device
        ids = (torch.arange(21, device=device).reshape(3, 7) * 31 + 5) % size
        at = torch.tensor([1, 5, 3], device=device)
        some = torch.tensor([size // 2, 1, size - 1, 7 % size], device=device)
        plain = self.model(input_ids=ids).logits[torch.arange(3, device=device), at][:, some]
        try:
            reduced = self.logits(ids, at, self.head_rows(some)).float()
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError):
            return False
        scale = max(1.0, float(plain.abs().max()))
        tolerance = scale * (1e-4 if self.model.dtype == torch.float32 else 5e-2)
        return reduced.shape == plain.shape and bool(
            torch.allclose(reduced, plain.float(), atol=tolerance, rtol=0)
        )


class MaskedModel(ReadyModel, FactModel):
    """A model that fills in one mask: BERT, RoBERTa, ALBERT, ELECTRA, DistilBERT, ModernBERT, ...

    The object slot becomes one mask token, and a candidate is scored by its one token there.
    """

    head_is_packed = False

    def __init__(self, loaded: Pretrained, protocol: Protocol) -> None:
        if loaded.tokenizer.mask_token is None:
            raise ConsilienceError(
                f"the tokenizer of '{loaded.identity['model']}' has no mask token",
                expected="a masked language model with its own tokenizer",
                todo="Use a model that was trained with a mask token, or a causal one.",
            )
        super().__init__(loaded)
        self.at_mask = AtMask(self.model)
        self.protocol: Protocol = protocol
        if not self.at_mask.is_reduced:
            self.notes.append("this family computes its head at every token and word")
        self.longest = min(self.tokenizer.model_max_length, positions(self.model))
        self._lookup = CandidateLookup(self.tokenizer, protocol, self.notes)

    def score_words(
        self, queries: Sequence[Query], words: tuple[str, ...], *, every: bool
    ) -> Iterator[Scores]:
        return self._score(queries, words, merge=False)

    def score_vocabulary(self, queries: Sequence[Query]) -> Iterator[Scores]:
        return self._score(queries, self._lookup.vocabulary(queries), merge=True)

    def _score(
        self, queries: Sequence[Query], words: tuple[str, ...], *, merge: bool
    ) -> Iterator[Scores]:
        refused, slots = self._slots(queries, words, self._lookup, merge=merge)
        yield from refused
        for anchor, inputs in slots.items():
            sheet = self._lookup.in_slot(words, anchor, merge=merge)
            head = self.at_mask.head_rows(torch.from_numpy(sheet.first_tokens[sheet.scored]))
            yield from self.score_slot(partial(self._logits, rows=head), inputs, sheet)

    def _slots(
        self,
        queries: Sequence[Query],
        words: tuple[str, ...],
        lookup: CandidateLookup,
        *,
        merge: bool = False,
    ) -> tuple[list[Scores], dict[str, list[tuple[list[int], list[int]]]]]:
        """The queries that cannot be asked; by anchor the rows and ids of each sentence."""
        contexts = group_rows(query.pattern.around_object(query.subject) for query in queries)
        mask, protocol = str(self.tokenizer.mask_token), self.protocol
        texts = [left + mask + right for left, right in contexts]
        refused, slots = list[Scores](), defaultdict(list)
        sentences = encode(self.tokenizer, texts, special=True)
        for ((left, _), rows), ids in zip(contexts.items(), sentences, strict=True):
            anchor = slot_anchor(left, protocol)
            if reason := self.why_not(ids, lookup.in_slot(words, anchor, merge=merge).longest):
                refused.append(excluded(rows, words, reason))
            else:
                slots[anchor].append((rows, ids))
        return refused, slots

    def why_not(self, ids: Sequence[int], pieces: int = 1) -> str | None:
        masks, size = list(ids).count(self.tokenizer.mask_token_id), len(ids) - 1 + pieces
        if masks != 1:
            return f"{masks} mask tokens in the sentence"
        return too_long(size, self.longest)

    def hidden_states(
        self, queries: Sequence[Query], *, special_tokens: bool = True
    ) -> StateReader:
        base, mask = self.model.base_model, self.tokenizer.mask_token_id
        texts = [
            query.pattern.fill_blank(query.subject, str(self.tokenizer.mask_token))
            for query in queries
        ]

        def states(ids: torch.Tensor) -> list[torch.Tensor]:
            hidden = base(input_ids=ids, output_hidden_states=True).hidden_states
            rows = torch.arange(len(ids), device=ids.device)
            at = (ids == mask).int().argmax(dim=1)
            return [layer[rows, at] for layer in hidden]

        inputs = group_rows(map(tuple, encode(self.tokenizer, texts, special=special_tokens)))
        return StateReader(self, inputs, states, self.why_not, int(mask or 0))

    def _logits(self, sentences: list[list[int]], rows: HeadRows) -> Floats:
        ids = torch.tensor(sentences)
        at = (ids == self.tokenizer.mask_token_id).int().argmax(dim=1)
        if self.model.device.type == "cuda":
            ids, at = ids.pin_memory(), at.pin_memory()
        device = self.model.device
        ids, at = ids.to(device, non_blocking=True), at.to(device, non_blocking=True)
        return np.asarray(self.at_mask.logits(ids, at, rows).double().cpu().numpy())


MOST_SLOTS = {"cpu": 256, "cuda": 4096}  # Sentences that are scored together, at most
MOST_STEPS = 2**22  # Numbers (slot, candidate, token) that are held at once


@dataclass(frozen=True, slots=True)
class _Slot:
    rows: list[int]  # The queries with this sentence
    golds: list[int]  # Positions of their golds among the candidates
    ids: list[int]
    at: int  # The position of the mask


class _FilledSlots:
    """Some slots while a model scores one list of candidates in them.

    A candidate is a path of ``tree``: after the root the number k of its tokens, then t_1 ... t_k.
    A node with children, the root aside, is one sentence of every slot: the tokens so far and a
    mask for each that is to come. The model reads it once for all children.
    """

    def __init__(self, slots: list[_Slot], pieces: list[list[int]], mask: int) -> None:
        self.slots = slots
        self.tree = Tree.of(0, [(len(tokens), *tokens) for tokens in pieces])
        self.is_sentence = self.tree.has_children.copy()  # (node,) Whether a node is a sentence
        self.is_sentence[0] = False
        self.filling: dict[int, list[int]] = {}  # What replaces the mask in the sentence of a node
        sentences = np.flatnonzero(self.is_sentence)
        for node, path in zip(sentences, self.tree.paths(sentences), strict=True):
            count, *tokens = self.tree.ids[path[1 : self.tree.depths[node] + 1]].tolist()
            self.filling[int(node)] = tokens + [mask] * (count - len(tokens))
        self.steps = np.full((len(slots), len(self.tree.ids)), np.nan)  # (slot, node); NaN: unknown
        self.steps[:, self.tree.depths < 2] = 0.0

    def sentence(self, slot: int, node: int) -> list[int]:
        ids, at = self.slots[slot].ids, self.slots[slot].at
        return ids[:at] + self.filling[node] + ids[at + 1 :]

    def totals(self) -> Floats:
        """The scores of the candidates (slot, candidate); NaN for one that is not finished."""
        return np.asarray(self.steps[:, self.tree.nodes].sum(axis=2))

    def sentences_of(self, chosen: Bools) -> Bools:
        """All sentences (slot, node) of ``chosen`` (slot, candidate) candidates."""
        wanted = np.zeros(self.steps.shape, dtype=np.bool_)
        slot, candidate = np.nonzero(chosen)
        wanted[slot[:, None], self.tree.nodes[candidate]] = True
        return wanted & self.is_sentence


class PiecewiseModel(MaskedModel):
    """A masked model of candidates of any number of tokens, filled in from left to right."""

    def __init__(self, loaded: Pretrained, protocol: Protocol) -> None:
        if protocol != "strict":
            raise ConsilienceError(
                f"candidates of several tokens under the protocol '{protocol}'",
                expected="strict: the released code scores a candidate by its first piece",
                todo="Use --protocol strict.",
            )
        identity = {**loaded.identity, "multi_token": "left-to-right"}
        super().__init__(replace(loaded, identity=identity), protocol)
        self._mask = int(self.tokenizer.mask_token_id or 0)
        # In half precision the head is computed in single, as MaskedModel does for its candidates.
        is_exact = self.model.dtype == torch.float32
        every_id = torch.arange(self.model.config.vocab_size)
        self._head = None if is_exact else self.at_mask.head_rows(every_id)
        self._pieces = CandidateLookup(self.tokenizer, "strict", self.notes, several=True)

    def score_words(
        self, queries: Sequence[Query], words: tuple[str, ...], *, every: bool
    ) -> Iterator[Scores]:
        """``totals``: pseudo-log-likelihoods; NaN for what cannot win, unless ``every`` is set."""
        index = {word: position for position, word in enumerate(words)}
        refused, slots = self._slots(queries, words, self._pieces)
        yield from refused
        for anchor, inputs in slots.items():
            sheet = self._pieces.in_slot(words, anchor)
            same_anchor = []
            for rows, ids in sorted(inputs, key=lambda one: len(one[1])):
                golds = [index[queries[row].gold] for row in rows if queries[row].gold in index]
                same_anchor.append(_Slot(rows, golds, ids, ids.index(self._mask)))
            most = min(
                MOST_SLOTS.get(self.model.device.type, MOST_SLOTS["cpu"]),
                1 + MOST_STEPS // (sheet.longest * len(words)),
            )
            for start in range(0, len(same_anchor), most):
                yield self._scores(same_anchor[start : start + most], sheet, every=every)

    def _scores(self, slots: list[_Slot], sheet: CandidateTokens, *, every: bool) -> Scores:
        every = every or sheet.longest == 1
        totals = np.full((len(slots), len(sheet.words)), np.nan)
        finish = np.full(totals.shape, every)
        for row, slot in enumerate(slots):
            finish[row, slot.golds] = True
        if len(sheet.scored):
            filled = _FilledSlots(slots, sheet.sequences, self._mask)
            totals = sheet.spread(self._totals(filled, finish[:, sheet.scored]))
        return scores_of([slot.rows for slot in slots], totals, sheet, are_totals=True, every=every)

    def _totals(self, filled: _FilledSlots, finish: Bools) -> Floats:
        """Scores (slot, candidate) of all in ``finish`` and the best; NaN for others, all worse.

        After the sentences with masks only, the most promising candidate of each slot is continued
        by a token, then two, four, and so on. Near ties are then read again, one at a time.
        """
        partial = PartialScores(filled.tree, filled.steps, len(filled.slots))
        width = 1

        def read_next(live: Bools) -> None:
            nonlocal width
            self._read(filled, partial.next_nodes(live & (partial.ranks(live) < width)))
            width *= 2

        masks_only = filled.is_sentence & (filled.tree.depths == 1)
        self._read(filled, filled.sentences_of(finish) | masks_only)
        totals = search(partial, self.tie, read_next)
        near = totals >= np.nanmax(totals, axis=1, keepdims=True) - self.tie
        near &= near.sum(axis=1, keepdims=True) > 1
        self._read(filled, filled.sentences_of(near), alone=True)
        return filled.totals()

    def _read(self, filled: _FilledSlots, wanted: Bools, *, alone: bool = False) -> None:
        """Read sentences ``wanted`` (slot, node); ``alone``: one at a time, on one thread."""
        slots, nodes = np.nonzero(wanted)
        depths, device = filled.tree.depths, self.model.device
        lengths = [
            len(filled.slots[slot].ids) - 1 + len(filled.filling[node])
            for slot, node in zip(slots.tolist(), nodes.tolist(), strict=True)
        ]

        @torch.inference_mode()
        def read_batch(batch: Ints) -> None:
            chosen = list(zip(slots[batch].tolist(), nodes[batch].tolist(), strict=True))
            texts = [filled.sentence(*sentence) for sentence in chosen]
            # the first mask follows the tokens of a node
            at_mask = [filled.slots[at].at + int(depths[node]) - 1 for at, node in chosen]
            ids, where = (torch.tensor(values, device=device) for values in (texts, at_mask))
            with reproducibly() if alone else nullcontext():
                logits = self.at_mask.logits(ids, where, self._head)
                row, child, steps = filled.tree.child_steps(nodes[batch], logits)
            filled.steps[slots[batch][row], child] = steps

        def work(batch: Ints) -> None:
            halving(read_batch, batch, lengths[batch[0]], self.budget)

        singles = (np.array([at]) for at in range(len(lengths)))
        batches = singles if alone else equal_length_batches(lengths, self.budget)
        for _ in side_by_side(work, batches, device):
            pass
