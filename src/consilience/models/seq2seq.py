"""Sequence-to-sequence models: the log-probability of each candidate as the decoder's text.

Without a template the encoder reads the sentence with the first sentinel in the object slot,
``The capital of France is <extra_id_0>.``, and the decoder fills the span as in pre-training:
``<extra_id_0> Paris <extra_id_1>``. With a template, for models that follow instructions, the
encoder reads the template with the sentence in it, whose object slot is a blank, and the decoder
gives ``Paris </s>``. The score of a candidate is ``sum_t log p(token_t | input, preceding tokens)``
over its tokens and the one that closes it, so that ``New`` does not win as the beginning of
``New York``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from transformers import (
    ByT5Tokenizer,
    EncoderDecoderCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput

from consilience.core.errors import ConsilienceError
from consilience.core.items import Floats, Ints, group_rows, padded
from consilience.models.batches import (
    Budget,
    Inputs,
    Part,
    ReadyModel,
    in_batches,
    is_same,
    positions,
    score_batches,
    settled_totals,
    token_logprobs,
)
from consilience.models.functions import SENTENCE
from consilience.models.loading import Pretrained
from consilience.models.tokens import (
    CandidateTokens,
    before_texts,
    distinct_candidates,
    encode,
    excluded,
    scores_of,
    too_long,
    unusable,
)
from consilience.types import Candidates, Query, Scores

BLANK = "_"  # Marks the object in the sentence of a template
SENTINELS = ("<extra_id_0>", "<extra_id_1>")  # Around the first span that a decoder fills
MOST_QUERIES = 128  # Sentences whose decoding is stored at once, at most
_SENTINEL = re.compile(r"▁?<extra_id_\d+>")


class TargetScorer:
    """Log-probabilities of what a decoder writes after what its encoder reads."""

    def __init__(self, model: PreTrainedModel, prefix: list[int], budget: Budget) -> None:
        """``prefix``: the token ids that the decoder is given before every target."""
        self.model, self.prefix, self.budget = model, prefix, budget
        self.continues = self._continues_alike()
        """Whether the family continues what it has decoded; else each target is read alone."""

    def _continues_alike(self) -> bool:
        """Whether targets that continue one prefix have the scores that they have alone."""
        ids, target = self.prefix[:1] * 2, self.prefix[:1] * 3
        targets = [target[:2], target]
        alone = self.alone(ids, targets)
        rows = np.zeros(2, dtype=int)
        return is_same(lambda: self._side_by_side([ids], rows, targets), alone, self.model)

    def totals(self, parts: Sequence[Part]) -> list[Floats]:
        """``sum_t log p(token_t | input, prefix, preceding tokens)`` (target,) of each part.

        In nats. What the encoder reads is of one length.
        """
        if self.continues:
            sizes = [len(targets) for _, targets in parts]
            targets = [target for _, of_part in parts for target in of_part]
            rows = np.repeat(range(len(parts)), sizes)
            totals = self._side_by_side([ids for ids, _ in parts], rows, targets)
            return np.split(totals, np.cumsum(sizes)[:-1])
        return [self.alone(*part) for part in parts]

    @torch.inference_mode()
    def _side_by_side(
        self, inputs: list[list[int]], rows: Ints, targets: list[list[int]]
    ) -> Floats:
        """An input with the prefix is read once, then the decoder reads the targets.

        They are read side by side, the shortest first, padded at their end.
        """
        device = self.model.device
        output = self.model(
            input_ids=torch.tensor(inputs, device=device),
            decoder_input_ids=torch.tensor([self.prefix] * len(inputs), device=device),
            use_cache=True,
        )
        encoded, cache = output.encoder_last_hidden_state, output.past_key_values
        lengths = np.array([*map(len, targets)])
        tokens, totals = padded(targets, -1), np.zeros(len(targets))

        def read(part: Ints) -> None:
            ids = tokens[part, : lengths[part].max() - 1].clip(0)
            of_part = torch.from_numpy(rows[part]).to(device)
            logits = self.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=encoded[of_part]),
                decoder_input_ids=torch.from_numpy(ids).to(device),
                past_key_values=EncoderDecoderCache(
                    _rows(cache.self_attention_cache, of_part),
                    _rows(cache.cross_attention_cache, of_part),
                ),
                use_cache=True,
            ).logits
            logits = torch.cat([output.logits[of_part, -1:], logits], dim=1)
            row, at = np.nonzero(tokens[part] >= 0)
            places = row * logits.shape[1] + at
            steps = token_logprobs(logits.flatten(0, 1), places, tokens[part[row], at])
            np.add.at(totals, part[row], steps)

        length, order = len(inputs[0]) + tokens.shape[1], np.argsort(lengths, kind="stable")
        in_batches(lambda part: read(order[part]), [length] * len(order), self.budget)
        return totals

    def alone(self, ids: list[int], targets: list[list[int]]) -> Floats:
        """As ``totals``, each target in a pass of its own."""
        totals = np.empty(len(targets))
        for at, target in enumerate(targets):
            logits = self._logits(ids, [*self.prefix, *target[:-1]])[len(self.prefix) - 1 :]
            steps = token_logprobs(logits, np.arange(len(target)), np.array(target))
            totals[at] = steps.sum()
        return totals

    def next_logits(self, ids: list[int], text: list[int]) -> torch.Tensor:
        """Logits (entry,) after a text that the decoder has written, in a pass of its own."""
        return self._logits(ids, [*self.prefix[:1], *text])[-1].float()

    @torch.inference_mode()
    def _logits(self, ids: list[int], written: list[int]) -> torch.Tensor:
        logits: torch.Tensor = self.model(
            input_ids=torch.tensor([ids], device=self.model.device),
            decoder_input_ids=torch.tensor([written], device=self.model.device),
            use_cache=False,
        ).logits
        return logits[0]


class Seq2SeqModel(ReadyModel):
    """A model that reads a text and writes another: T5, mT5, UMT5, Flan-T5, ..."""

    def __init__(self, loaded: Pretrained, template: str | None = None) -> None:
        model, tokenizer, name = loaded.model, loaded.tokenizer, str(loaded.identity["model"])
        start = decoder_start(model, name)
        self.template = template
        self.prefix = [start, *before_targets(tokenizer, start)]  # Before a candidate
        self.slot = BLANK  # Marks the object in the encoder's text
        if template is None:
            opening, self.close = (_sentinel(tokenizer, text, name) for text in SENTINELS)
            self.prefix.append(opening)
            # mT5's sentinels are pieces that begin with the space on their left.
            piece = str(tokenizer.convert_ids_to_tokens(opening))
            self.slot = " " * piece.startswith("▁") + SENTINELS[0]
        else:
            self.close = _check_template(template, tokenizer, name)
        vocabulary = tokenizer.get_vocab()
        self._sentinels = {id_ for piece, id_ in vocabulary.items() if _SENTINEL.fullmatch(piece)}
        self.longest = min(tokenizer.model_max_length, positions(model))
        super().__init__(loaded)
        self.identity = self.identity | {"template": template}
        self.scorer = TargetScorer(model, self.prefix, self.budget)
        if not self.scorer.continues:
            self.notes.append(
                "this family does not continue what it has decoded; each candidate is scored "
                "separately"
            )

    def score(
        self, queries: Sequence[Query], candidates: Candidates, *, every: bool = True
    ) -> Iterator[Scores]:
        words, asked = candidates.words, list[tuple[list[int], list[int]]]()
        tokenized = self.candidate_tokens(words)
        for ids, rows in self.inputs(queries).items():
            if reason := self.why_not(ids):
                yield excluded(rows, words, reason)
            else:
                asked.append((rows, list(ids)))

        def score_batch(batch: Ints) -> Floats:
            parts = [(asked[at][1], tokenized.sequences) for at in batch]
            return tokenized.scatter(settled_totals(self.scorer, parts, self.tie))

        lengths = [len(ids) + len(self.prefix) for _, ids in asked]
        device = self.model.device
        for batch, totals in score_batches(score_batch, lengths, self.budget, device, MOST_QUERIES):
            rows_of = [asked[at][0] for at in batch]
            yield scores_of(rows_of, totals, tokenized, are_totals=True, every=every)

    def hidden_states(self, ids: torch.Tensor) -> list[torch.Tensor]:
        prefix = torch.tensor([self.prefix] * len(ids), device=ids.device)
        output = self.model(input_ids=ids, decoder_input_ids=prefix, output_hidden_states=True)
        return [layer[:, -1] for layer in output.decoder_hidden_states]

    def inputs(self, queries: Sequence[Query], *, special: bool = True) -> Inputs:
        texts = [query.pattern.fill(query.subject, self.slot) for query in queries]
        if self.template is not None:
            before, _, after = self.template.partition(SENTENCE)
            texts = [before + text + after for text in texts]
        return group_rows(map(tuple, encode(self.tokenizer, texts, special=True)))

    def candidate_tokens(self, words: tuple[str, ...]) -> CandidateTokens:
        """The tokens of the words in the decoder's text, with the one that closes it."""
        texts, is_span = list(words), self.template is None
        if is_span:
            texts = [f"{SENTINELS[0]} {word} {SENTINELS[1]}" for word in words]
        targets: list[list[int]] = []
        reasons: dict[str, str] = {}
        for word, ids in zip(words, encode(self.tokenizer, texts), strict=True):
            tokens = ids[1:-1] if is_span else ids
            if is_span and [*ids[:1], *ids[-1:]] != [self.prefix[-1], self.close]:
                reasons[word] = "merged with the sentinels around it"
            elif reason := unusable(self.tokenizer, tokens):
                reasons[word] = reason
            elif special := {*self.tokenizer.all_special_ids, *self._sentinels} & {*tokens}:
                token = self.tokenizer.convert_ids_to_tokens(min(special))
                reasons[word] = f"has the special token '{token}' in it"
            elif reason := too_long(len(self.prefix) + len(tokens), self.longest):
                reasons[word] = reason
            targets.append([*tokens, self.close])
        return distinct_candidates(words, targets, reasons)

    def why_not(self, ids: Sequence[int]) -> str | None:
        sentinels = sum(id_ in self._sentinels for id_ in ids)
        expected = 1 if self.template is None else 0
        if sentinels != expected:
            return f"sentinel tokens in the sentence: {sentinels}, not {expected}"
        return too_long(len(ids), self.longest)


def _rows(cache: Cache, rows: torch.Tensor) -> Cache:
    """A cache of some rows of another, which stays as it is."""
    chosen = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(rows)
    return chosen


def decoder_start(model: PreTrainedModel, name: str) -> int:
    """The token that a decoder begins with; a checkpoint that names none raises."""
    for config in (model.config, model.generation_config):
        start = getattr(config, "decoder_start_token_id", None)
        if start is not None:
            return int(start)
    raise ConsilienceError(
        f"the configuration of '{name}' has no decoder_start_token_id",
        expected="the token that its decoder begins with",
        todo="Add it to the config.json of the model; T5 begins with <pad>.",
    )


def before_targets(tokenizer: PreTrainedTokenizerBase, start: int) -> list[int]:
    """Tokens that the tokenizer puts before every text, other than the decoder's first."""
    before = before_texts(tokenizer)
    return before[1:] if before[:1] == [start] else before


def _sentinel(tokenizer: PreTrainedTokenizerBase, text: str, name: str) -> int:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    pieces = tokenizer.convert_ids_to_tokens(ids)
    is_bytes = isinstance(tokenizer, ByT5Tokenizer)  # trained with bytes 258, 257, ... instead
    if is_bytes or len(ids) != 1 or pieces[0].removeprefix("▁") != text:
        raise ConsilienceError(
            f"'{name}' was not trained with a token {text}",
            expected="a model that was trained to fill spans: T5, mT5, UMT5",
            todo=f"Give a template, such as --template 'Fill in the blank: {SENTENCE}'.",
        )
    return ids[0]


def _check_template(template: str, tokenizer: PreTrainedTokenizerBase, name: str) -> int:
    count = template.count(SENTENCE)
    if count != 1:
        raise ConsilienceError(
            f"the template '{template}' has {count} {SENTENCE}",
            expected=f"exactly one {SENTENCE}, where the sentence stands",
            todo=f"Write it so: --template 'Fill in the blank: {SENTENCE}'.",
        )
    if tokenizer.eos_token_id is None:
        raise ConsilienceError(
            f"the tokenizer of '{name}' has no end-of-sequence token",
            expected="a token that closes what the decoder writes",
            todo="Use the tokenizer that the model was trained with.",
        )
    return int(tokenizer.eos_token_id)
