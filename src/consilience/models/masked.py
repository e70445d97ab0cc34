"""Masked language models; candidates of one token and of several.

The object slot becomes one mask, and a candidate is scored by the logit of its one token there. A
candidate of k tokens t_1 ... t_k is filled in from left to right (PLL-word-l2r; Kauf and Ivanova
2023): its score is ``sum_j log p(t_j | t_1 ... t_(j-1), k - j + 1 masks)``.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.core.errors import ConsilienceError, MultiToken, Protocol
from consilience.core.items import Floats, Ints, group_rows
from consilience.models.batches import (
    CANNOT,
    ReadyModel,
    StateReader,
    is_same,
    one_at_a_time,
    positions,
    score_batches,
    settle,
)
from consilience.models.candidates import (
    CandidateLookup,
    CandidateTokens,
    candidates_in_slot,
    encode,
    excluded,
    scores_of,
    slot_anchor,
    too_long,
)
from consilience.models.checks import check_numbers
from consilience.models.loading import Pretrained
from consilience.types import Candidates, Query, Scores

FILLER = "x"  # Fills the slot while a sentence is tokenized
MOST_SLOTS = {"cpu": 256, "cuda": 4096}  # Sentences that are filled in together, at most
MOST_STEPS = 2**22  # Log-probabilities that are held at once
Slot = tuple[list[int], list[int]]  # The queries with a sentence, and its token ids


def masked_sentences(
    tokenizer: PreTrainedTokenizerBase,
    contexts: Sequence[tuple[str, str]],
    protocol: Protocol = "strict",
    *,
    special: bool = True,
) -> list[list[int]]:
    """Token ids of sentences, each the text before and after a slot, with a mask in the slot.

    ``strict``: the tokens around the mask are those of running text: the slot is filled with the
    word ``x``, whose tokens become the mask. ``published``, and where ``x`` cannot be told from
    what it touches: those around the text of the mask, which some tokenizers split otherwise.
    """
    mask, masked = str(tokenizer.mask_token), int(tokenizer.mask_token_id or 0)
    sentences: dict[int, list[int]] = {}
    if protocol == "strict" and tokenizer.is_fast:
        anchors = [slot_anchor(left, protocol) for left, _ in contexts]
        sheets = {
            anchor: candidates_in_slot(tokenizer, (FILLER,), anchor, protocol, several=True)
            for anchor in set(anchors)
        }
        texts = [left + FILLER + right for left, right in contexts]
        filled = tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=special)
        for at, (encoding, anchor) in enumerate(zip(filled, anchors, strict=True)):
            ids, filler = encoding.ids, list(sheets[anchor].tokens[0])
            last = encoding.char_to_token(len(contexts[at][0])) or 0
            for start in range(last, last - len(filler), -1):
                if ids[start : start + len(filler)] == filler:
                    sentences[at] = [*ids[:start], masked, *ids[start + len(filler) :]]
                    break
    rest = [at for at in range(len(contexts)) if at not in sentences]
    texts = [contexts[at][0] + mask + contexts[at][1] for at in rest]
    sentences |= zip(rest, encode(tokenizer, texts, special=special), strict=True)
    return [sentences[at] for at in range(len(contexts))]


class PositionHead:
    """Makes a model compute its output embedding, a quarter of BERT-base, at some positions only.

    That of some of the vocabulary is computed in float32, whatever the dtype of the model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self._thread = model, threading.local()
        head: Any = model.get_output_embeddings()
        thread, whole = self._thread, head.forward

        def forward(hidden: torch.Tensor) -> torch.Tensor:  # no method: copies of models keep it
            positions, entries = getattr(thread, "request", None) or (..., None)
            if entries is None:
                return whole(hidden[positions])  # type: ignore[no-any-return]
            weight, bias = head.weight[entries], head.bias
            bias = None if bias is None else bias[entries].float()
            return torch.nn.functional.linear(hidden[positions].float(), weight.float(), bias)

        head.forward = forward

    def logits_at(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        entries: torch.Tensor | None = None,
        model: Any = None,
        **inputs: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (position, entry) at ``rows``, ``columns`` (position,) of inputs (row, token).

        ``entries``: ids of some of the vocabulary, None for all. ``model``: one that wraps it.
        """
        self._thread.request = (rows, columns), entries
        try:
            logits: torch.Tensor = (model or self.model)(**inputs).logits
        finally:
            self._thread.request = None
        return logits


class MaskedModel(ReadyModel):
    """A model that fills in masks: BERT, RoBERTa, ALBERT, ELECTRA, DistilBERT, ModernBERT, ..."""

    head_is_packed = False

    def __init__(
        self, loaded: Pretrained, protocol: Protocol, multi_token: MultiToken = "exclude"
    ) -> None:
        if multi_token == "left-to-right" and protocol != "strict":
            raise ConsilienceError(
                f"candidates of several tokens under the protocol '{protocol}'",
                expected="strict: the released code scores a candidate by its first piece",
                todo="Use --protocol strict.",
            )
        if loaded.tokenizer.mask_token is None:
            raise ConsilienceError(
                f"the tokenizer of '{loaded.identity['model']}' has no mask token",
                expected="a masked language model with its own tokenizer",
                todo="Use a model that was trained with a mask token, or a causal one.",
            )
        super().__init__(loaded)
        self.protocol: Protocol = protocol
        self._head: PositionHead | None = None
        if isinstance(self.model.get_output_embeddings(), torch.nn.Linear):
            self._head = PositionHead(self.model)
            if not self._is_same():
                self._head = None
        if self._head is None:
            self.notes.append("this family computes its head at every token")
        self.mask = int(self.tokenizer.mask_token_id or 0)
        self.longest = min(self.tokenizer.model_max_length, positions(self.model))
        self.lookup = CandidateLookup(self.tokenizer, protocol, self.notes)
        self.pieces: CandidateLookup | None = None
        if multi_token == "left-to-right":
            self.identity = {**self.identity, "multi_token": multi_token}
            self.pieces = CandidateLookup(self.tokenizer, protocol, self.notes, several=True)

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        is_open = candidates is None
        words = self.lookup.vocabulary(queries) if candidates is None else candidates.words
        lookup = self.lookup if is_open or self.pieces is None else self.pieces
        contexts = group_rows(query.pattern.around_object(query.subject) for query in queries)
        sentences = masked_sentences(self.tokenizer, [*contexts], self.protocol)
        slots: defaultdict[str, list[Slot]] = defaultdict(list)
        for ((left, _), rows), ids in zip(contexts.items(), sentences, strict=True):
            anchor = slot_anchor(left, self.protocol)
            sheet = lookup.in_slot(words, anchor, merge=is_open)
            if reason := self.why_not(ids, sheet.longest):
                yield excluded(rows, words, reason)
            else:
                slots[anchor].append((rows, ids))
        for anchor, inputs in slots.items():
            sheet = lookup.in_slot(words, anchor, merge=is_open)
            if lookup is self.pieces:
                yield from self._left_to_right(inputs, sheet)
            else:
                entries = torch.from_numpy(sheet.first_tokens[sheet.scored]).to(self.model.device)
                yield from self.score_slot(partial(self._logits, entries=entries), inputs, sheet)

    def why_not(self, ids: Sequence[int], pieces: int = 1) -> str | None:
        masks = list(ids).count(self.mask)
        if masks != 1:
            return f"{masks} mask tokens in the sentence"
        return too_long(len(ids) - 1 + pieces, self.longest)

    @torch.inference_mode()
    def logits_at(
        self, ids: torch.Tensor, at: torch.Tensor, entries: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits (sentence, entry) at ``at`` (sentence,) of ``ids`` (sentence, token)."""
        rows = torch.arange(len(ids), device=ids.device)
        if self._head is not None:
            return self._head.logits_at(rows, at, entries, input_ids=ids)
        logits: torch.Tensor = self.model(input_ids=ids).logits[rows, at]
        return logits if entries is None else logits[:, entries]

    @torch.inference_mode()
    def _is_same(self) -> bool:
        """Whether the family's head can be computed at the mask only."""
        size, device = self.model.config.vocab_size, self.model.device
        ids = (torch.arange(21, device=device).reshape(3, 7) * 31 + 5) % size
        rows, at = torch.arange(3, device=device), torch.tensor([1, 5, 3], device=device)
        some = torch.tensor([size // 2, 1, size - 1, 7 % size], device=device)
        plain = self.model(input_ids=ids).logits[rows, at][:, some]
        with suppress(*CANNOT):
            found = self.logits_at(ids, at, some).cpu().numpy()
            return is_same(found, plain.float().cpu().numpy(), self.model)
        return False

    def _logits(self, sentences: list[list[int]], entries: torch.Tensor) -> Floats:
        ids = torch.tensor(sentences)
        at = (ids == self.mask).int().argmax(dim=1)
        if self.model.device.type == "cuda":
            ids, at = ids.pin_memory(), at.pin_memory()
        device = self.model.device
        ids, at = ids.to(device, non_blocking=True), at.to(device, non_blocking=True)
        return np.asarray(self.logits_at(ids, at, entries).double().cpu().numpy())

    def _left_to_right(self, inputs: list[Slot], sheet: CandidateTokens) -> Iterator[Scores]:
        """Candidates of as many tokens that begin alike share the sentences of a slot."""
        steps_of = [
            [(len(tokens), *tokens[:done]) for done in range(len(tokens))]
            for tokens in sheet.sequences
        ]  # (k, t_1 ... t_j): a sentence of each slot
        row_of = {key: row for row, key in enumerate(dict.fromkeys(chain(*steps_of)))}
        column_of = {token: at for at, token in enumerate({*chain(*sheet.sequences)})}
        places = [
            ([row_of[key] for key in keys], [column_of[token] for token in tokens])
            for keys, tokens in zip(steps_of, sheet.sequences, strict=True)
        ]
        fillings = [[*key[1:], *[self.mask] * (key[0] - len(key) + 1)] for key in row_of]
        model, wanted = self.model, torch.tensor([*column_of], dtype=torch.long)
        # In half precision the head is computed in single, as with one mask.
        every = None if model.dtype == torch.float32 else torch.arange(model.config.vocab_size)
        most = MOST_STEPS // max(1, len(row_of) * len(column_of))
        most = max(1, min(most, MOST_SLOTS.get(model.device.type, MOST_SLOTS["cpu"])))
        inputs = sorted(inputs, key=lambda one: len(one[1]))
        for some in (inputs[start : start + most] for start in range(0, len(inputs), most)):
            texts, at_mask = list[list[int]](), list[int]()
            for _, ids in some:
                at = ids.index(self.mask)
                texts += [[*ids[:at], *filling, *ids[at + 1 :]] for filling in fillings]
                at_mask += [at + len(key) - 1 for key in row_of]

            @torch.inference_mode()
            def read(
                batch: Ints, texts: list[list[int]] = texts, at_mask: list[int] = at_mask
            ) -> Floats:
                """Log-probabilities (sentence, token) of the tokens of candidates at the mask."""
                ids = torch.tensor([texts[one] for one in batch], device=model.device)
                at = torch.tensor([at_mask[one] for one in batch], device=model.device)
                logits = self.logits_at(ids, at, every)
                steps = logits[:, wanted].double() - logits.logsumexp(-1, keepdim=True).double()
                check_numbers(steps, model.dtype)
                return np.asarray(steps.cpu().numpy())

            steps = np.zeros((len(texts), len(column_of)))
            for batch, values in score_batches(read, [*map(len, texts)], self.budget, model.device):
                steps[batch] = values
            by_slot = steps.reshape(len(some), len(row_of), len(column_of))
            totals = np.zeros((len(some), len(places)))
            for candidate, (rows, columns) in enumerate(places):
                totals[:, candidate] = by_slot[:, rows, columns].sum(axis=1)

            def score_alone(slot: int, candidate: int) -> float:
                rows, columns = places[candidate]
                first = slot * len(row_of)
                values = [read(np.array([first + row]))[0] for row in rows]
                return sum(float(of[at]) for of, at in zip(values, columns, strict=True))

            totals = sheet.spread(settle(totals, self.tie, one_at_a_time(score_alone)))
            yield scores_of([rows for rows, _ in some], totals, sheet, are_totals=True)

    def hidden_states(
        self, queries: Sequence[Query], *, special_tokens: bool = True
    ) -> StateReader:
        base = self.model.base_model
        contexts = [query.pattern.around_object(query.subject) for query in queries]
        sentences = masked_sentences(
            self.tokenizer, contexts, self.protocol, special=special_tokens
        )

        def states(ids: torch.Tensor) -> list[torch.Tensor]:
            hidden = base(input_ids=ids, output_hidden_states=True).hidden_states
            rows = torch.arange(len(ids), device=ids.device)
            at = (ids == self.mask).int().argmax(dim=1)
            return [layer[rows, at] for layer in hidden]

        return StateReader(self, group_rows(map(tuple, sentences)), states, self.why_not, self.mask)
