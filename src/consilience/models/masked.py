"""Masked language models: the log-probability of each candidate at the mask."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from transformers import PreTrainedModel

from consilience.choices import Protocol
from consilience.errors import ConsilienceError
from consilience.models.candidates import CandidateLookup, encode, slot_anchor
from consilience.models.fast import AtMask, HeadRows
from consilience.models.forward import Floats
from consilience.models.loading import Pretrained
from consilience.models.score_tables import excluded, group_rows
from consilience.models.scoring import ReadyModel, StateReader
from consilience.types import Candidates, Query, Scores


class MaskedModel(ReadyModel):
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

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """See ``LanguageModel.score``."""
        words = self._lookup.vocabulary(queries) if candidates is None else candidates.words
        contexts = [query.pattern.around_object(query.subject) for query in queries]
        mask = str(self.tokenizer.mask_token)
        rows_of = group_rows(left + mask + right for left, right in contexts)
        sentences = encode(self.tokenizer, list(rows_of), special=True)
        slots: defaultdict[str, list[tuple[list[int], list[int]]]] = defaultdict(list)
        for rows, ids in zip(rows_of.values(), sentences, strict=True):
            if reason := self.why_not(ids):
                yield excluded(rows, words, reason)
            else:
                left, _ = contexts[rows[0]]
                slots[slot_anchor(left, self.protocol)].append((rows, ids))
        for anchor, inputs in slots.items():
            sheet = self._lookup.in_slot(words, anchor, merge=candidates is None)
            head = self.at_mask.head_rows(torch.from_numpy(sheet.first_tokens[sheet.scored]))
            yield from self.score_slot(partial(self._logits, rows=head), inputs, sheet)

    def why_not(self, ids: Sequence[int], pieces: int = 1) -> str | None:
        """Why the model cannot read a sentence with ``pieces`` tokens for its mask."""
        masks, size = list(ids).count(self.tokenizer.mask_token_id), len(ids) - 1 + pieces
        if masks != 1:
            return f"{masks} mask tokens in the sentence"
        if size > self.longest:
            return f"{size} tokens, and the model takes {self.longest}"
        return None

    def hidden_states(
        self, queries: Sequence[Query], *, special_tokens: bool = True
    ) -> StateReader:
        """Reads the hidden states at the mask."""
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
        """Logits (sentence, entry) at the mask of sentences of one length."""
        ids = torch.tensor(sentences)
        at = (ids == self.tokenizer.mask_token_id).int().argmax(dim=1)
        if self.model.device.type == "cuda":
            ids, at = ids.pin_memory(), at.pin_memory()
        device = self.model.device
        ids, at = ids.to(device, non_blocking=True), at.to(device, non_blocking=True)
        logits: Floats = self.at_mask.logits(ids, at, rows).double().cpu().numpy()
        return logits


def positions(model: PreTrainedModel) -> int:
    """Tokens that the position embeddings of a model suffice for; RoBERTa's first are padding."""
    limit = getattr(model.config, "max_position_embeddings", None) or sys.maxsize
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            padding = module.padding_idx
            return int(module.num_embeddings - (0 if padding is None else padding + 1))
    return int(limit)
