"""Masked language models: the probability of each candidate where the mask stands."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.errors import ConsilienceError
from consilience.models.batches import (
    NEAR_TIE,
    Budget,
    equal_length_batches,
    halving,
    log_softmax,
    margins,
    side_by_side,
)
from consilience.models.candidates import (
    CandidateTokens,
    candidates_in_place,
    encode,
    slot_anchor,
    vocabulary_words,
    with_golds,
)
from consilience.models.kernels import near_tie, pack_linears
from consilience.models.mask_only import HeadRows, MaskOnly
from consilience.types import Candidates, Protocol, Query, Scores

_SLOWER = {
    "last layer and head": [],
    "head": ["this family computes its last layer at every token, not at the mask only"],
    "nothing": ["this family computes its last layer and its head at every token and word"],
}


class MaskedModel:
    """A model that fills in one mask: BERT, RoBERTa, ALBERT, ELECTRA, DistilBERT, ModernBERT, ...

    The object slot becomes one mask token, and a candidate is scored by its one token there.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        identity: dict[str, object],
        protocol: Protocol,
    ) -> None:
        if tokenizer.mask_token is None:
            raise ConsilienceError(
                f"the tokenizer of '{identity['model']}' has no mask token",
                expected="a masked language model with its own tokenizer",
                todo="Use a model that was trained with a mask token, or a causal one.",
            )
        self.model = model.eval()
        self.products = pack_linears(model, head=False)
        self.mask_only = MaskOnly(model)
        self.budget = Budget.of(model)
        self.tokenizer = tokenizer
        self.identity = identity
        self.protocol: Protocol = protocol
        self.notes: list[str] = list(_SLOWER[self.mask_only.cut])
        self.longest = min(tokenizer.model_max_length, positions(model))
        self._sheets: dict[tuple[tuple[str, ...], str], CandidateTokens] = {}
        self._vocabulary: tuple[str, ...] | None = None

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """See ``LanguageModel.score``."""
        merge = candidates is None
        words = with_golds(self._all_words(), queries) if candidates is None else candidates.words
        contexts = [query.pattern.around_object(query.subject) for query in queries]
        texts = [left + str(self.tokenizer.mask_token) + right for left, right in contexts]
        unique = {text: position for position, text in enumerate(dict.fromkeys(texts))}
        encoded = encode(self.tokenizer, list(unique), special=True)
        rows_of: list[list[int]] = [[] for _ in unique]
        for row, text in enumerate(texts):
            rows_of[unique[text]].append(row)
        slots: defaultdict[str, list[int]] = defaultdict(list)
        for position, ids in enumerate(encoded):
            if reason := self._why_not(ids):
                unasked = np.asarray(rows_of[position])
                nothing = np.full((len(unasked), len(words)), np.nan)
                yield Scores(unasked, words, nothing, unasked=reason)
            else:
                left, _ = contexts[rows_of[position][0]]
                slots[slot_anchor(left, self.protocol)].append(position)
        for anchor, positions in slots.items():
            sheet = self._sheet(words, anchor, merge)
            for chosen, logits in self._answers([encoded[each] for each in positions], sheet):
                rows = [rows_of[positions[each]] for each in chosen]
                yield Scores(
                    np.concatenate(rows),
                    words,
                    np.repeat(log_softmax(logits), [len(each) for each in rows], axis=0),
                    sheet.reasons,
                    sheet.same,
                    sheet.entries,
                )

    def _answers(
        self, sentences: list[list[int]], sheet: CandidateTokens
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
        """Logits (sentence, candidate) of sentences, with their positions, batch by batch."""
        rows = self.mask_only.head_rows(torch.from_numpy(sheet.first_tokens[sheet.scored]))

        def answer(batch: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
            found = self._logits([sentences[each] for each in batch], rows)
            for row in np.flatnonzero(margins(found) < NEAR_TIE[self.model.dtype]):
                with near_tie():
                    found[row] = self._logits([sentences[batch[row]]], rows)
            logits = np.full((len(batch), len(sheet.words)), np.nan)
            logits[:, sheet.scored] = found
            return logits

        def work(batch: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
            return np.concatenate(halving(answer, batch, len(sentences[batch[0]]), self.budget))

        batches = equal_length_batches([len(ids) for ids in sentences], self.budget)
        yield from side_by_side(work, batches, self.model.device)

    def _all_words(self) -> tuple[str, ...]:
        if self._vocabulary is None:
            self._vocabulary = vocabulary_words(self.tokenizer)
        return self._vocabulary

    def _sheet(self, words: tuple[str, ...], anchor: str, merge: bool) -> CandidateTokens:
        if (words, anchor) not in self._sheets:
            sheet = candidates_in_place(self.tokenizer, words, anchor, self.protocol, merge=merge)
            self._sheets[words, anchor] = sheet
            if sheet.truncated:
                self.notes.append(
                    f"{sheet.truncated} of {len(words)} candidates ({words[0]}, ...) are split by "
                    "the tokenizer; their first piece stands for them, as in the released code"
                )
        return self._sheets[words, anchor]

    def _why_not(self, ids: list[int]) -> str | None:
        masks = ids.count(self.tokenizer.mask_token_id)
        if masks != 1:
            return f"{masks} mask tokens in the sentence"
        if len(ids) > self.longest:
            return f"{len(ids)} tokens, and the model takes {self.longest}"
        return None

    def _logits(self, sentences: list[list[int]], rows: HeadRows) -> npt.NDArray[np.float64]:
        """Logits (sentence, entry) of sentences of one length."""
        ids = torch.tensor(sentences)
        at = (ids == self.tokenizer.mask_token_id).int().argmax(dim=1)
        if self.model.device.type == "cuda":
            ids, at = ids.pin_memory(), at.pin_memory()
        device = self.model.device
        ids, at = ids.to(device, non_blocking=True), at.to(device, non_blocking=True)
        logits = self.mask_only.logits(ids, at, rows)
        found: npt.NDArray[np.float64] = logits.double().cpu().numpy()
        return found


def positions(model: PreTrainedModel) -> int:
    """How many tokens the position embeddings of a model reach for; RoBERTa's first are padding."""
    limit = getattr(model.config, "max_position_embeddings", None) or sys.maxsize
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            padding = module.padding_idx
            return int(module.num_embeddings - (0 if padding is None else padding + 1))
    return int(limit)
