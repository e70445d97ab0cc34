"""Language models that answer prompts: scores of options, and written answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from consilience.core.errors import ConsilienceError
from consilience.core.items import Floats, Ints, Prompt, Scores
from consilience.models.batches import (
    Budget,
    Part,
    ReadyModel,
    equal_length_batches,
    halving,
    one_thread,
    positions,
    settled_totals,
    side_by_side,
    workers_on,
)
from consilience.models.causal import TextScorer
from consilience.models.loading import Pretrained
from consilience.models.prompts import DEFAULT_WRITING, PromptReader, Writing, begins_another
from consilience.models.seq2seq import TargetScorer, before_targets, decoder_start
from consilience.models.tokens import check_numbers

MOST_PROMPTS = {"cpu": 64, "cuda": 512}  # Prompts that are continued together, at most
MOST_CONTINUED = 4096  # Their tokens, at most, unless a batch holds more: keys and values are kept
MOST_SCORED = 512  # Prompts whose answers are scored together, at most
KEPT = 4096  # Prompts whose token ids are kept


@dataclass(frozen=True, slots=True)
class Continued:
    """A prompt after which text is written: by the largest sums of logits and Gumbel noise.

    If every logit divided by the temperature gets independent standard Gumbel noise, the token
    with the largest sum is distributed as the softmax (Gumbel-max trick; Maddison, Tarlow and
    Minka 2014, Section 2). Each step of a text has its own seed, so a sample is the same in every
    batch and order.
    """

    ids: list[int]
    is_one_line: bool  # Whether the text ends with its first line, not at an end token only
    temperature: float = 0.0  # Divides the logits; the noise is multiplied by it instead
    seed: int = 0  # 56 bits of SHA-256 over seed, sample and token ids

    @classmethod
    def of(cls, ids: list[int], is_one_line: bool, sample: int, writing: Writing) -> Continued:
        named = f"{writing.seed} {sample} {' '.join(map(str, ids))}"
        seed = int.from_bytes(hashlib.sha256(named.encode()).digest()[:7])
        return cls(ids, is_one_line, writing.temperature, seed)

    def noisy(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """The logits (token,) of a step from 0 with the noise added; at temperature 0 none is."""
        if not self.temperature:
            return logits
        generator = torch.Generator().manual_seed(self.seed + step)
        drawn = torch.empty(len(logits), dtype=torch.float64).exponential_(generator=generator)
        return logits - (self.temperature * drawn.log()).to(logits)


class PromptModel(PromptReader, ReadyModel):
    """A model that answers prompts: it scores what they may be answered with, or writes.

    What it writes ends at an end token, after ``most_written`` tokens and, where the prompt is no
    chat, at the end of its first line: what a model without turns writes next is another question.
    """

    def __init__(
        self, loaded: Pretrained, writing: Writing | None = None, *, chooses: bool = True
    ) -> None:
        """``writing``: of a model that writes. ``chooses``: whether it is asked for scores, too."""
        if loaded.kind not in ("causal", "seq2seq"):
            raise ConsilienceError(
                f"'{loaded.identity['model']}' does not write text",
                expected="a sequence-to-sequence or causal language model",
                todo="Of sentence pairs: fine-tune it with `consilience finetune`, and leave "
                "--generate out.",
            )
        ReadyModel.__init__(self, loaded)
        longest = min(self.tokenizer.model_max_length, positions(self.model))
        name = str(self.identity["model"])
        PromptReader.__init__(self, self.tokenizer, end_tokens(loaded), name, longest)
        self.writing, self.chooses = writing or DEFAULT_WRITING, chooses
        self.identity = {**self.identity, **(writing.record if writing else {})}
        self.is_causal = self.takes_answers = loaded.kind == "causal"
        start: Any = None if self.is_causal else decoder_start(self.model, name)
        if self.is_causal:
            self.scorer: Any = TextScorer(self.model, self.budget)
        else:
            before = [start, *before_targets(self.tokenizer, start)]
            self.scorer = TargetScorer(self.model, before, self.budget)
        usual = self.model.generation_config
        self.model.generation_config = GenerationConfig(  # whatever the checkpoint's settings are
            do_sample=False,
            num_beams=1,
            bos_token_id=usual.bos_token_id,
            eos_token_id=self.ends or None,
            pad_token_id=self.ends[0] if self.ends else 0,
            decoder_start_token_id=start,
        )
        self._encode = lru_cache(KEPT)(self._encoded)

    def encode(self, prompt: Prompt) -> Part:
        """See ``PromptReader.encode``; a sequence-to-sequence model reads an answer alone."""
        return self._encode(prompt)

    def _encoded(self, prompt: Prompt) -> Part:
        if self.is_causal:
            return super().encode(prompt)
        targets = self.ids(list(prompt.answers))
        if not prompt.are_labels or begins_another(targets):
            targets = [[*ids, *self.ends[:1]] for ids in targets]
        return self.prompt_ids(prompt), targets

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        if self.is_causal:
            return super().prompt_ids(prompt)
        return list(self.tokenizer(self.text(prompt), verbose=False)["input_ids"])

    def score(
        self, shown: Sequence[Prompt], candidates: None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        """Log-probabilities of the answers; what is shown alone is read on one thread."""
        parts = [*map(self.encode, shown)]

        def work(rows: Ints) -> list[Floats]:
            chosen = [parts[row] for row in rows]
            tie = self.tie if len(parts) > 1 else np.inf
            values = settled_totals(self.scorer, chosen, tie)
            return [of[: len(targets)] for of, (_, targets) in zip(values, chosen, strict=True)]

        def halved(rows: Ints) -> list[Floats]:
            length = max(len(parts[row][0]) for row in rows)
            return [*chain(*halving(work, rows, length, self.budget))]

        for rows, totals in side_by_side(halved, self._chunks(parts), self.model.device):
            sizes = [np.array([*map(len, parts[row][1])]) for row in rows]
            yield Scores.of_rows(rows, totals, sizes)

    def _chunks(self, parts: Sequence[Part]) -> Iterator[Ints]:
        """Prompts that are read together: with the same beginnings, or of one length."""
        prompts = [ids for ids, _ in parts]
        if self.is_causal:
            return self._by_beginning(prompts, MOST_SCORED)
        return equal_length_batches([*map(len, prompts)], self.budget)

    def _by_beginning(self, prompts: Sequence[list[int]], most: int) -> Iterator[Ints]:
        order = np.array(sorted(range(len(prompts)), key=prompts.__getitem__), dtype=int)
        most = max(1, min(most, -(-len(prompts) // workers_on(self.model.device))))
        yield from (order[at : at + most] for at in range(0, len(prompts), most))

    def write(
        self, shown: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of prompts, and what the model writes after them.

        ``samples``: the number of the sample of each prompt. A sample depends on the token ids of
        its prompt, its number and the seed, and on no other prompt. At temperature 0 all samples
        are the same.
        """
        prompts = [
            Continued.of(self.prompt_ids(prompt), not prompt.is_chat, sample, self.writing)
            for prompt, sample in zip(shown, samples, strict=True)
        ]
        lengths = [len(prompt.ids) + self.writing.most_written for prompt in prompts]
        device = self.model.device
        most = MOST_PROMPTS.get(device.type, MOST_PROMPTS["cpu"])
        budget = Budget(max(MOST_CONTINUED, self.budget.tokens))

        def work(batch: Ints) -> list[str]:
            chosen = [prompts[row] for row in batch]
            texts = (self._continued if is_fast else self._generated)(chosen)
            return [*map(self._text, chosen, texts)]

        is_fast = self.is_causal and max(lengths, default=0) <= self.scorer.longest
        if is_fast:
            most = max(1, min(most, budget.tokens // max(lengths, default=1)))
            batches = self._by_beginning([prompt.ids for prompt in prompts], most)
        else:
            batches = equal_length_batches(lengths, budget, most)
        yield from side_by_side(work, batches, device)

    @torch.inference_mode()
    def _continued(self, prompts: Sequence[Continued]) -> list[list[int]]:
        """The tokens that are written after prompts, which are read in a trie."""
        model: Any = self.model
        rows, texts = [*range(len(prompts))], [list[int]() for _ in prompts]
        lengths = torch.tensor([len(prompt.ids) for prompt in prompts], device=model.device)
        cache, mask = self.scorer.read([prompt.ids[:-1] for prompt in prompts])
        ids = torch.tensor([prompt.ids[-1:] for prompt in prompts], device=model.device)
        for step in range(self.writing.most_written):
            mask = torch.nn.functional.pad(mask, (0, 1))
            states = model.base_model(
                input_ids=ids,
                position_ids=lengths[:, None] - 1 + step,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
            )[0][:, -1]
            logits = self.scorer.head(states).float()
            chosen = [prompts[row] for row in rows]
            tokens = self._next_tokens(chosen, [texts[row] for row in rows], logits)
            for row, token in zip(rows, tokens, strict=True):
                texts[row].append(token)
            complete = map(self._is_complete, chosen, [texts[row] for row in rows])
            left = [at for at, is_done in enumerate(complete) if not is_done]
            rows = [rows[at] for at in left]
            if not rows:
                break
            kept = torch.tensor(left, device=model.device)
            ids = torch.tensor([texts[row][-1:] for row in rows], device=model.device)
            lengths, mask = lengths[kept], mask[kept]
            cache.batch_select_indices(kept)
        return texts

    @torch.inference_mode()
    def _generated(self, prompts: Sequence[Continued]) -> list[list[int]]:
        """The same by ``generate``, of prompts of one length and of any family."""
        model: Any = self.model
        ids = torch.tensor([prompt.ids for prompt in prompts], device=model.device)
        begins = ids.shape[1] if self.is_causal else 1

        def steered(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            tokens = self._next_tokens(prompts, ids[:, begins:].tolist(), scores)
            chosen = torch.tensor(tokens, device=ids.device)[:, None]
            return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)

        def are_complete(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
            done = [*map(self._is_complete, prompts, ids[:, begins:].tolist())]
            return torch.tensor(done, device=ids.device)

        # The cache that transformers makes of a decoder has as many layers as the encoder.
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        written = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=self.writing.most_written,
            logits_processor=LogitsProcessorList([steered]),
            stopping_criteria=StoppingCriteriaList([are_complete]),
            **({} if self.is_causal else {"past_key_values": cache}),
        )
        return list(written[:, begins:].tolist())

    def _next_tokens(
        self, prompts: Sequence[Continued], texts: Sequence[list[int]], logits: torch.Tensor
    ) -> list[int]:
        """The tokens with the largest sums of ``logits`` (row, entry) and noise.

        A pass of its own decides where the best two are close.
        """
        check_numbers(logits, self.model.dtype)
        both = zip(prompts, logits, texts, strict=True)
        best = torch.stack([one.noisy(of, len(text)) for one, of, text in both]).topk(2)
        tokens: list[int] = best.indices[:, 0].tolist()
        near = best.values[:, 0] - best.values[:, 1] < self.tie
        for at in torch.nonzero(near)[:, 0].tolist():
            if not texts[at] or not self._is_complete(prompts[at], texts[at]):
                with one_thread():
                    alone = self.scorer.next_logits(prompts[at].ids, texts[at])
                    tokens[at] = int(prompts[at].noisy(alone, len(texts[at])).argmax())
        return tokens

    def _is_complete(self, prompt: Continued, written: list[int]) -> bool:
        if not written or written[-1] in (*self.ends, self.tokenizer.pad_token_id):
            return bool(written)
        return prompt.is_one_line and "\n" in str(self.tokenizer.decode(written)).lstrip()

    def _text(self, prompt: Continued, ids: list[int]) -> str:
        if not self.is_causal and ids[:1] == [self.tokenizer.bos_token_id]:
            ids = ids[1:]  # BART begins every text with its beginning-of-sequence token
        ends = {*self.ends, self.tokenizer.pad_token_id}
        end = next((at for at, token in enumerate(ids) if token in ends), len(ids))
        text = str(self.tokenizer.decode(ids[:end], skip_special_tokens=False)).strip()
        return text.split("\n")[0].strip() if prompt.is_one_line else text


def end_tokens(loaded: Pretrained) -> list[int]:
    """What ends an answer; chat models often end a turn with another token than the tokenizer's."""
    ends: Any = loaded.model.generation_config.eos_token_id
    ends = [loaded.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])]
    return [token for token in dict.fromkeys(ends) if token is not None]
