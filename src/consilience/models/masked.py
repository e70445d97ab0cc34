"""Masked language models; candidates of one token and of several.

The object slot becomes one mask, and a candidate is scored by the logit of its one token there. A
candidate of k tokens t_1 ... t_k is filled in from left to right (PLL-word-l2r; Kauf and Ivanova
2023): its score is ``sum_j log p(t_j | t_1 ... t_(j-1), k - j + 1 masks)``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.items import Floats, Ints, group_rows
from consilience.models.batches import (
    Inputs,
    LogitsOf,
    ReadyModel,
    head_of,
    is_same,
    positions,
    score_batches,
    settle,
    token_logprobs,
)
from consilience.models.loading import Pretrained
from consilience.models.tokens import (
    CandidateLookup,
    CandidateTokens,
    candidates_in_slot,
    encode,
    excluded,
    scores_of,
    slot_anchor,
    too_long,
)
from consilience.types import Candidates, Query, Scores

FILLER = "x"  # Fills the slot while a sentence is tokenized
MOST_SLOTS = {"cpu": 256, "cuda": 4096}  # Sentences that are filled in together, at most
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


class MaskedModel(ReadyModel):
    """A model that fills in masks: BERT, RoBERTa, ALBERT, ELECTRA, DistilBERT, ModernBERT, ..."""

    def __init__(
        self, loaded: Pretrained, protocol: Protocol, *, takes_pieces: bool = False
    ) -> None:
        """``takes_pieces``: whether candidates may have several tokens."""
        if takes_pieces and protocol != "strict":
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
        self.mask = int(self.tokenizer.mask_token_id or 0)
        self._body: Any = self.model  # Its layers, or all of it if the head needs every token
        whole, self._body = self._trial(), self.model.base_model
        if not is_same(self._trial, whole, self.model):
            self._body = self.model
            self.notes.append("this family computes its head at every token")
        self.longest = min(self.tokenizer.model_max_length, positions(self.model))
        self.lookup = CandidateLookup(self.tokenizer, protocol, self.notes)
        self.pieces: CandidateLookup | None = None
        if takes_pieces:
            self.identity["multi_token"] = "left-to-right"
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
            tokenized = lookup.in_slot(words, anchor, merge=is_open)
            if reason := self.why_not(ids, tokenized.longest):
                yield excluded(rows, words, reason)
            else:
                slots[anchor].append((rows, ids))
        most = MOST_SLOTS.get(self.model.device.type, MOST_SLOTS["cpu"])
        for anchor, inputs in slots.items():
            tokenized = lookup.in_slot(words, anchor, merge=is_open)
            if lookup is self.pieces:
                inputs.sort(key=lambda one: len(one[1]))
                for start in range(0, len(inputs), most):
                    yield self._left_to_right(inputs[start : start + most], tokenized)
            else:
                entries = torch.from_numpy(tokenized.first_tokens[tokenized.scored])
                at_mask = self.at_mask(entries.to(self.model.device))
                texts = [ids for _, ids in inputs]
                for batch, logits in self.settled(at_mask, texts, [*map(len, texts)]):
                    rows_of = [inputs[at][0] for at in batch]
                    yield scores_of(rows_of, tokenized.scatter(logits), tokenized)

    def why_not(self, ids: Sequence[int], pieces: int = 1) -> str | None:
        masks = list(ids).count(self.mask)
        if masks != 1:
            return f"{masks} mask tokens in the sentence"
        return too_long(len(ids) - 1 + pieces, self.longest)

    def at_mask(self, entries: torch.Tensor | slice) -> LogitsOf[list[int]]:
        """A function: logits (sentence, entry) at the first mask of sentences of one length.

        Only these ``entries`` of the vocabulary are computed, in float32, unless the family
        computes its head at every token.
        """
        device, is_whole = self.model.device, self._body is self.model
        head = (lambda logits: logits[:, entries]) if is_whole else head_of(self.model, entries)

        @torch.inference_mode()
        def logits_of(sentences: list[list[int]]) -> torch.Tensor:
            ids = torch.tensor(sentences)
            at = (ids == self.mask).int().argmax(dim=1)
            if device.type == "cuda":
                ids, at = ids.pin_memory(), at.pin_memory()
            ids, at = ids.to(device, non_blocking=True), at.to(device, non_blocking=True)
            states = self._body(input_ids=ids)[0]
            return head(states[torch.arange(len(ids), device=device), at]).float()

        return logits_of

    def _trial(self) -> Floats:
        """Some logits of made-up sentences, to try whether the head can be computed at the mask."""
        size = self.model.config.vocab_size
        ids = (torch.arange(21).reshape(3, 7) * 31 + 5) % size
        ids[torch.arange(3), torch.tensor([1, 5, 3])] = self.mask
        some = torch.tensor([size // 2, 1, size - 1, 7 % size], device=self.model.device)
        return np.asarray(self.at_mask(some)(ids.tolist()).cpu().numpy())

    def _left_to_right(self, inputs: list[Slot], tokenized: CandidateTokens) -> Scores:
        """Candidates of as many tokens that begin alike share the sentences of a slot."""
        predicted: defaultdict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        """By t_1 ... t_j, k - j masks, which fill the slot: candidates, and their t_(j+1)."""
        for candidate, tokens in enumerate(tokenized.sequences):
            for done, token in enumerate(tokens):
                filling = (*tokens[:done], *[self.mask] * (len(tokens) - done))
                predicted[filling].append((candidate, token))
        texts = list[list[int]]()
        for _, ids in inputs:
            at = ids.index(self.mask)
            texts += [[*ids[:at], *filling, *ids[at + 1 :]] for filling in predicted]
        steps = [np.array(one) for one in predicted.values()]
        logits_of = self.at_mask(slice(None))
        totals = np.zeros((len(inputs), len(tokenized.scored)))

        def steps_of(batch: Ints) -> Ints:
            """The steps (text, candidate, token) of texts, each a row."""
            of_texts = [steps[text % len(steps)] for text in batch]
            texts = np.repeat(np.arange(len(batch)), [*map(len, of_texts)])
            return np.column_stack([texts, np.concatenate(of_texts)])

        def read(batch: Ints) -> Floats:
            """The log-probability (step,) of the steps of texts."""
            rows, _, tokens = steps_of(batch).T
            return token_logprobs(logits_of([texts[text] for text in batch]), rows, tokens)

        lengths = [*map(len, texts)]
        for batch, values in score_batches(read, lengths, self.budget, self.model.device):
            rows, candidates, _ = steps_of(batch).T
            np.add.at(totals, (batch[rows] // len(steps), candidates), values)

        def alone(slot: int, candidates: Ints) -> Floats:
            found = np.zeros(len(tokenized.scored))
            for filling, of_text in enumerate(steps):
                if np.isin(of_text[:, 0], candidates).any():
                    found[of_text[:, 0]] += read(np.array([slot * len(steps) + filling]))
            return found[candidates]

        totals = tokenized.scatter(settle(totals, self.tie, alone))
        return scores_of([rows for rows, _ in inputs], totals, tokenized, are_totals=True)

    def inputs(self, queries: Sequence[Query], *, special: bool = True) -> Inputs:
        contexts = [query.pattern.around_object(query.subject) for query in queries]
        sentences = masked_sentences(self.tokenizer, contexts, self.protocol, special=special)
        return group_rows(map(tuple, sentences))

    def hidden_states(self, ids: torch.Tensor) -> list[torch.Tensor]:
        layers = self.model.base_model(input_ids=ids, output_hidden_states=True).hidden_states
        rows = torch.arange(len(ids), device=ids.device)
        at = (ids == self.mask).int().argmax(dim=1)
        return [layer[rows, at] for layer in layers]
