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
from consilience.models.batches import equal_length_batches, log_softmax
from consilience.models.words import (
    WordSheet,
    slot_anchor,
    vocabulary_words,
    with_golds,
    word_sheet,
)
from consilience.types import Candidates, Protocol, Query, Scores


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
        self.tokenizer = tokenizer
        self.identity = identity
        self.protocol: Protocol = protocol
        self.notes: list[str] = []
        self.longest = min(tokenizer.model_max_length, _positions(model))
        self._sheets: dict[tuple[tuple[str, ...], str], WordSheet] = {}
        self._vocabulary: tuple[str, ...] | None = None

    def score(self, queries: Sequence[Query], candidates: Candidates | None) -> Iterator[Scores]:
        """See ``LanguageModel.score``."""
        merge = candidates is None
        words = with_golds(self._all_words(), queries) if candidates is None else candidates.words
        contexts = [query.pattern.around_object(query.subject) for query in queries]
        texts = [left + str(self.tokenizer.mask_token) + right for left, right in contexts]
        unique = {text: position for position, text in enumerate(dict.fromkeys(texts))}
        encoded = self.tokenizer(list(unique))["input_ids"]
        rows_of: list[list[int]] = [[] for _ in unique]
        for row, text in enumerate(texts):
            rows_of[unique[text]].append(row)
        slots: defaultdict[str, list[int]] = defaultdict(list)
        for position, ids in enumerate(encoded):
            if reason := self._why_not(ids):
                rows = np.asarray(rows_of[position])
                nothing = np.full((len(rows), len(words)), np.nan)
                yield Scores(rows, words, nothing, unasked=reason)
            else:
                left, _ = contexts[rows_of[position][0]]
                slots[slot_anchor(left, self.protocol)].append(position)
        for anchor, positions in slots.items():
            sheet = self._sheet(words, anchor, merge)
            for batch in equal_length_batches([len(encoded[each]) for each in positions]):
                chosen = [positions[each] for each in batch]
                logprob = self._logprob([encoded[each] for each in chosen], sheet)
                repeats = [len(rows_of[each]) for each in chosen]
                yield Scores(
                    np.concatenate([rows_of[each] for each in chosen]),
                    words,
                    np.repeat(logprob, repeats, axis=0),
                    sheet.reasons,
                    sheet.same,
                    sheet.tokens,
                )

    def _all_words(self) -> tuple[str, ...]:
        if self._vocabulary is None:
            self._vocabulary = vocabulary_words(self.tokenizer)
        return self._vocabulary

    def _sheet(self, words: tuple[str, ...], anchor: str, merge: bool) -> WordSheet:
        if (words, anchor) not in self._sheets:
            sheet = word_sheet(self.tokenizer, words, anchor, self.protocol, merge=merge)
            self._sheets[words, anchor] = sheet
            if sheet.cut:
                self.notes.append(
                    f"{sheet.cut} of {len(words)} candidates ({words[0]}, ...) are cut by the "
                    "tokenizer; their first piece stands for them, as in the released code"
                )
        return self._sheets[words, anchor]

    def _why_not(self, ids: list[int]) -> str | None:
        masks = ids.count(self.tokenizer.mask_token_id)
        if masks != 1:
            return f"{masks} mask tokens in the sentence"
        if len(ids) > self.longest:
            return f"{len(ids)} tokens, and the model takes {self.longest}"
        return None

    @torch.inference_mode()
    def _logprob(self, encoded: list[list[int]], sheet: WordSheet) -> npt.NDArray[np.float64]:
        """Log-probabilities (query, candidate) of sentences of one length."""
        ids = torch.tensor(encoded, device=self.model.device)
        at = (ids == self.tokenizer.mask_token_id).int().argmax(dim=1)
        logits = self._mask_logits(ids, at)
        asked = sheet.asked
        columns = torch.from_numpy(sheet.ids[asked]).to(logits.device)
        scores = np.full((len(encoded), len(sheet.words)), np.nan)
        scores[:, asked] = logits[:, columns].float().cpu().numpy()
        return log_softmax(scores)

    def _mask_logits(self, ids: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Logits (query, vocabulary) at the positions ``at`` of ``ids`` (query, token).

        The output embedding is most of a small model's work; a hook lets it see the mask only.
        A family whose head is built otherwise computes every position, with the same result.
        """
        queries = torch.arange(len(ids), device=ids.device)

        def keep_mask(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
            return inputs[0][queries, at]

        head = self.model.get_output_embeddings()
        handle = head.register_forward_pre_hook(keep_mask) if head is not None else None
        try:
            logits: torch.Tensor = self.model(input_ids=ids).logits
        finally:
            if handle is not None:
                handle.remove()
        return logits if logits.dim() == 2 else logits[queries, at]


def _positions(model: PreTrainedModel) -> int:
    """How many tokens the position embeddings of a model reach for; RoBERTa's first are padding."""
    limit = getattr(model.config, "max_position_embeddings", None) or sys.maxsize
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            padding = module.padding_idx
            return int(module.num_embeddings - (0 if padding is None else padding + 1))
    return int(limit)
