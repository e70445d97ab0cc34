"""How language models continue a prompt: the log-probability of an answer, and free text.

A causal model continues the prompt itself; a sequence-to-sequence model writes in its decoder what
belongs to the prompt in its encoder.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from consilience.models.forward import Floats, target_logprobs
from consilience.models.loading import Kind


class CausalContinuation:
    """A causal model; it answers as a turn of a chat if its tokenizer has a chat template."""

    has_own_form = False
    """Whether the model was trained to read a task in a text form of its own, as T5."""
    shares_context = True
    """Whether the answer takes up positions after the prompt."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model: Any = model
        self._tokenizer: Any = tokenizer
        self.is_chat = bool(getattr(tokenizer, "chat_template", None))

    def target(self, label: str, ends: Sequence[int], reply: str = "") -> list[int]:
        """The tokens of a label as an answer; in a chat with the token that ends the turn.

        ``reply``: the beginning of the reply, which the label follows.
        """
        if not self.is_chat:
            return list(self._tokenizer(" " + label, add_special_tokens=False)["input_ids"])
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": label}]
        chat = str(self._tokenizer.apply_chat_template(turns, tokenize=False))
        after = self._tokenizer(chat.rpartition(label)[2], add_special_tokens=False)["input_ids"]
        end = [token for token in [*after, *ends] if token in ends][:1]
        gap = " " if reply and not reply[-1].isspace() else ""
        return [*self._tokenizer(gap + label, add_special_tokens=False)["input_ids"], *end]

    def encode(self, ids: torch.Tensor) -> None:
        """Nothing is computed before the answer."""
        return

    def totals(self, ids: torch.Tensor, encoded: None, targets: Sequence[Sequence[int]]) -> Floats:
        """Log-probability (row, target) of the targets after prompts ``ids`` (row, token)."""
        first = self._model(input_ids=ids, use_cache=True, logits_to_keep=1)
        cache = getattr(first, "past_key_values", None)
        columns = []
        for target in targets:
            logits = first.logits
            if len(target) > 1:
                answer = torch.tensor([target[:-1]], device=ids.device).expand(len(ids), -1)
                if cache is None:  # Mamba and others have another cache
                    whole = torch.cat([ids, answer], dim=1)
                    logits = self._model(input_ids=whole, use_cache=False).logits
                    logits = logits[:, ids.shape[1] - 1 :]
                else:  # not every cache can be shortened again
                    more = self._model(input_ids=answer, past_key_values=copy.deepcopy(cache))
                    logits = torch.cat([logits, more.logits], dim=1)
            columns.append(target_logprobs(logits, target))
        return np.stack(columns, axis=1)

    def write(self, ids: torch.Tensor, encoded: None, **options: Any) -> list[list[int]]:
        """What the model writes after prompts ``ids`` (row, token); ``options`` of ``generate``."""
        written: Any = self._model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), **options
        )
        rows: list[list[int]] = written[:, ids.shape[1] :].tolist()
        return rows


class Seq2SeqContinuation:
    """A sequence-to-sequence model; T5 reads its own multi-task text form."""

    has_own_form = True
    shares_context = False
    is_chat = False

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model: Any = model
        self._tokenizer: Any = tokenizer

    def target(self, label: str, ends: Sequence[int], reply: str = "") -> list[int]:
        """The tokens of a label as an answer, with the end token; the decoder reads no reply."""
        return list(self._tokenizer(label)["input_ids"])

    def encode(self, ids: torch.Tensor) -> Any:
        """The encoder's output for prompts ``ids`` (row, token)."""
        return self._model.get_encoder()(input_ids=ids, attention_mask=torch.ones_like(ids))

    def totals(self, ids: torch.Tensor, encoded: Any, targets: Sequence[Sequence[int]]) -> Floats:
        """Log-probability (row, target) of the targets given prompts ``ids`` (row, token)."""
        start = self._model.config.decoder_start_token_id
        columns = []
        for target in targets:
            prefix = torch.tensor([[start, *target[:-1]]], device=ids.device)
            logits = self._model(
                encoder_outputs=encoded,
                attention_mask=torch.ones_like(ids),
                decoder_input_ids=prefix.expand(len(ids), -1),
            ).logits
            columns.append(target_logprobs(logits, target))
        return np.stack(columns, axis=1)

    def write(self, ids: torch.Tensor, encoded: Any, **options: Any) -> list[list[int]]:
        """What the decoder writes for prompts ``ids`` (row, token); ``options`` of ``generate``."""
        written: Any = self._model.generate(
            encoder_outputs=encoded, attention_mask=torch.ones_like(ids), **options
        )
        begins = self._tokenizer.bos_token_id
        # BART begins every text with its beginning-of-sequence token.
        return [ids[1:] if ids[:1] == [begins] else ids for ids in written[:, 1:].tolist()]


CONTINUATIONS: Mapping[Kind, type[CausalContinuation] | type[Seq2SeqContinuation]] = {
    "causal": CausalContinuation,
    "seq2seq": Seq2SeqContinuation,
}
"""The kinds of model that can write."""


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end an answer: the tokenizer's, and those of the checkpoint's settings.

    Chat models often end a turn with another token than the tokenizer's.
    """
    ends = model.generation_config.eos_token_id
    ends = [tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])]
    return [token for token in dict.fromkeys(ends) if token is not None]


def greedy(model: PreTrainedModel, ends: list[int], most: int) -> GenerationConfig:
    """Settings to write the most probable token each time, whatever the checkpoint's are."""
    usual = model.generation_config
    start = getattr(model.config, "decoder_start_token_id", None)
    return GenerationConfig(
        max_new_tokens=most,
        do_sample=False,
        num_beams=1,
        bos_token_id=usual.bos_token_id,
        eos_token_id=ends or None,
        pad_token_id=ends[0] if ends else 0,
        decoder_start_token_id=start if start is not None else usual.decoder_start_token_id,
    )
