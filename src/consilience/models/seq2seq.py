"""Sequence-to-sequence models: the log-probability of each candidate as the decoder's text.

Without a template the encoder reads the sentence with the first sentinel where the object stands,
``The capital of France is <extra_id_0>.``, and the decoder fills the span as in pre-training:
``<extra_id_0> Paris <extra_id_1>``. With a template, for models that follow instructions, the
encoder reads the template with the sentence in it, its object slot a blank, and the decoder gives
``Paris </s>``. The score of a candidate is ``sum_t log p(token_t | input, tokens before)`` over its
tokens and the one that closes it, so that ``New`` does not win as the beginning of ``New York``.

The candidates of a relation are one tree of tokens. A sentence is encoded once, and the decoder
reads each beginning once a sentence, level by level, from transformers' own cache.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import EncoderDecoderCache, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput

from consilience.errors import ConsilienceError
from consilience.models.batches import (
    ACTIVATIONS,
    NEAR_TIE,
    Budget,
    equal_length_batches,
    halving,
    log_softmax,
    side_by_side,
)
from consilience.models.candidates import CandidateTokens, distinct_candidates, with_golds
from consilience.models.kernels import near_tie, pack_linears
from consilience.models.tree import Ints, Tree
from consilience.types import Candidates, Query, Scores

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SENTENCE = "{sentence}"
"""Where the sentence stands in a template."""

BLANK = "_"
"""What stands for the object in the sentence of a template."""

SENTINELS = ("<extra_id_0>", "<extra_id_1>")
"""What opens and closes the first span that a decoder fills."""

MOST_QUERIES = 128
"""Sentences whose decoding is kept at once, at most."""

NOT_THE_VOCABULARY = "a sequence-to-sequence model is asked for the relation's objects only"

_SENTINEL = re.compile(r"▁?<extra_id_\d+>")


class Seq2SeqModel:
    """A model that reads a text and writes another: T5, mT5, UMT5, Flan-T5, ...

    ``prefix``: the tokens that the decoder is given before a candidate; ``close``: the one that
    closes it. A candidate has the tokens that the tokenizer gives it there.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        identity: dict[str, object],
        template: str | None = None,
    ) -> None:
        name = str(identity["model"])
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.identity = identity | {"template": template}
        self.notes: list[str] = []
        self.template = template
        start = _start_token(model, name)
        self.prefix = [start, *_before_targets(tokenizer, start)]
        self.slot = BLANK
        if template is None:
            opening, self.close = (_sentinel(tokenizer, each, name) for each in SENTINELS)
            self.prefix.append(opening)
            # mT5's sentinels are pieces that begin with the blank on their left.
            piece = str(tokenizer.convert_ids_to_tokens(opening))
            self.slot = " " * piece.startswith("▁") + SENTINELS[0]
        else:
            self.close = _check_template(template, tokenizer, name)
        vocabulary = tokenizer.get_vocab()
        self._sentinels = {id_ for piece, id_ in vocabulary.items() if _SENTINEL.fullmatch(piece)}
        self._special = self._sentinels | set(tokenizer.all_special_ids)
        positions = getattr(model.config, "max_position_embeddings", None)
        self.longest = min(tokenizer.model_max_length, positions or tokenizer.model_max_length)
        self.products = pack_linears(model, head=True)
        self.budget = Budget.of(model)

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """See ``LanguageModel.score``. The whole vocabulary is not asked."""
        if candidates is None:
            yield self._unasked(range(len(queries)), with_golds((), queries), NOT_THE_VOCABULARY)
            return
        words = candidates.words
        known = self._targets(words)
        asked = known.scored
        targets = [list(known.tokens[each]) for each in asked]
        place = {words[each]: at for at, each in enumerate(asked.tolist())}
        inputs: list[list[int]] = []
        rows_of: list[list[int]] = []
        for ids, rows in self._inputs(queries).items():
            if reason := self._why_not(ids):
                yield self._unasked(rows, words, reason)
            else:
                inputs.append(list(ids))
                rows_of.append(rows)
        golds = [
            {place[queries[row].gold] for row in rows if queries[row].gold in place}
            for rows in rows_of
        ]
        lengths = [len(ids) + len(self.prefix) for ids in inputs]

        def answer(batch: Ints) -> Floats:
            wanted = None if every else [golds[each] for each in batch]
            return self.totals([inputs[each] for each in batch], targets, wanted)

        def work(batch: Ints) -> Floats:
            found = np.full((len(batch), len(words)), np.nan)
            if asked.size:
                parts = halving(answer, batch, lengths[batch[0]], self.budget)
                found[:, asked] = np.concatenate(parts)
            return found

        batches = (
            batch[start : start + MOST_QUERIES]
            for batch in equal_length_batches(lengths, self.budget)
            for start in range(0, len(batch), MOST_QUERIES)
        )
        for batch, found in side_by_side(work, batches, self.model.device):
            own = [rows_of[each] for each in batch]
            totals = np.repeat(found, [len(each) for each in own], axis=0)
            logprob = log_softmax(totals) if every else None
            yield Scores(
                np.concatenate(own), words, logprob, known.reasons, known.same, totals=totals
            )

    def totals(
        self, inputs: list[list[int]], targets: list[list[int]], golds: list[set[int]] | None
    ) -> Floats:
        """Log-probability (query, candidate) of targets behind inputs of one length.

        With ``golds``, the candidates of each query that are finished whatever happens, only they
        and the best, with what comes near it; NaN elsewhere. Where the best two come very near
        each other they are scored again by themselves, so that the answer does not depend on what
        is asked with it.
        """
        tree, slack = Tree.of(self.prefix[-1], targets), NEAR_TIE[self.model.dtype]
        decoding = Decoding(self.model, tree, self.budget, inputs, self.prefix)
        if golds is None:
            decoding.read_all()
        else:
            wanted = np.zeros((len(inputs), len(tree.ids)), dtype=np.bool_)
            for query, own in enumerate(golds):
                wanted[query, tree.nodes[list(own)]] = True
            decoding.read_best(wanted, slack)
        totals = decoding.totals()
        near = totals >= np.nanmax(totals, axis=1, keepdims=True) - slack
        for query in np.flatnonzero(near.sum(axis=1) > 1).tolist():
            for candidate in np.flatnonzero(near[query]).tolist():
                with near_tie():
                    totals[query, candidate] = self.alone(inputs[query], targets[candidate])
        return totals

    @torch.inference_mode()
    def alone(self, ids: list[int], target: list[int]) -> float:
        """Log-probability of one target behind one input, in a pass of its own."""
        decoder_ids = [*self.prefix, *target[:-1]]
        logits = self.model(
            input_ids=torch.tensor([ids], device=self.model.device),
            decoder_input_ids=torch.tensor([decoder_ids], device=self.model.device),
        ).logits[0, len(self.prefix) - 1 :]
        steps = logits.float().double().log_softmax(dim=-1)
        return float(steps[torch.arange(len(target)), target].sum())

    def _inputs(self, queries: Sequence[Query]) -> dict[tuple[int, ...], list[int]]:
        """What the encoder reads, with the rows of the queries that have it read."""
        texts = [query.pattern.fill(query.subject, self.slot) for query in queries]
        if self.template is not None:
            before, _, after = self.template.partition(SENTENCE)
            texts = [before + text + after for text in texts]
        unique = list(dict.fromkeys(texts))
        encoded = self.tokenizer(unique)["input_ids"] if unique else []
        ids_of = dict(zip(unique, map(tuple, encoded), strict=True))
        rows_of: dict[tuple[int, ...], list[int]] = {}
        for row, text in enumerate(texts):
            rows_of.setdefault(ids_of[text], []).append(row)
        return rows_of

    def _targets(self, words: tuple[str, ...]) -> CandidateTokens:
        """The tokens of the words in the decoder's text, with the one that closes it."""
        texts, span = list(words), self.template is None
        if span:
            texts = [f"{SENTINELS[0]} {word} {SENTINELS[1]}" for word in words]
        targets: list[list[int]] = []
        reasons: dict[str, str] = {}
        encoded = self.tokenizer(texts, add_special_tokens=False)["input_ids"] if words else []
        for word, ids in zip(words, encoded, strict=True):
            own = ids[1:-1] if span else ids
            special = self._special.intersection(own) - {self.tokenizer.unk_token_id}
            if span and [*ids[:1], *ids[-1:]] != [self.prefix[-1], self.close]:
                reasons[word] = "merges with the sentinels around it"
            elif not own:
                reasons[word] = "the tokenizer leaves nothing of it"
            elif self.tokenizer.unk_token_id in own:
                reasons[word] = "unknown to the tokenizer"
            elif special:
                shown = self.tokenizer.convert_ids_to_tokens(min(special))
                reasons[word] = f"has the special token '{shown}' in it"
            elif len(self.prefix) + len(own) > self.longest:
                reasons[word] = f"{len(own)} tokens, and the model takes {self.longest}"
            targets.append([*own, self.close])
        return distinct_candidates(words, targets, reasons)

    def _why_not(self, ids: Sequence[int]) -> str | None:
        sentinels = sum(id_ in self._sentinels for id_ in ids)
        expected = 1 if self.template is None else 0
        if sentinels != expected:
            return f"sentinel tokens in the sentence: {sentinels}, not {expected}"
        if len(ids) > self.longest:
            return f"{len(ids)} tokens, and the model takes {self.longest}"
        return None

    def _unasked(self, rows: Sequence[int], words: tuple[str, ...], reason: str) -> Scores:
        nothing = np.full((len(rows), len(words)), np.nan)
        return Scores(np.asarray(rows, dtype=np.int64), words, nothing, unasked=reason)


class Decoding:
    """A tree of targets while a decoder reads it, for some inputs of one length at once.

    ``sums`` (query, node): log-probability of the tokens on the way to the node, itself included;
    NaN until its parent has been read. ``read_nodes`` counts what the decoder read, a node once a
    query.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: PreTrainedModel,
        tree: Tree,
        budget: Budget,
        inputs: list[list[int]],
        prefix: list[int],
    ) -> None:
        self.tree = tree
        self.sums = np.full((len(inputs), len(tree.ids)), np.nan)
        self.sums[:, 0] = 0.0
        self.read_nodes = len(inputs)
        self._model = model
        self._budget = budget
        self._inner = np.diff(tree.first_child) > 0
        self._needed = np.zeros(len(tree.ids), dtype=np.bool_)  # something inner follows
        self._needed[tree.parents[1:][self._inner[1:]]] = True
        output = model(
            input_ids=torch.tensor(inputs, device=model.device),
            decoder_input_ids=torch.tensor([prefix] * len(inputs), device=model.device),
            use_cache=True,
        )
        self._encoded: torch.Tensor = output.encoder_last_hidden_state
        self._cross: Cache = output.past_key_values.cross_attention_cache
        self._row_tokens = 1 + _row_size(self._cross) // (ACTIVATIONS * self._encoded.shape[-1])
        # At each depth the self-attention of the rows that were read, and each one's place there.
        self._kept: list[list[Cache]] = [[] for _ in range(int(tree.lengths.max()) + 1)]
        self._kept[0].append(output.past_key_values.self_attention_cache)
        self._place = np.full(self.sums.shape, -1)
        self._place[:, 0] = queries = np.arange(len(inputs))
        self._read = self._place >= 0
        self._score_children(queries, np.zeros_like(queries), output.logits[:, -1])

    def totals(self) -> Floats:
        """Log-probability (query, candidate); NaN for what has not been read to its end."""
        ends = self.tree.nodes[np.arange(len(self.tree.lengths)), self.tree.lengths - 1]
        return self.sums[:, ends]

    def read_all(self) -> None:
        """Read every node that something follows."""
        for depth in range(1, len(self._kept)):
            self._read_level(depth, ~np.isnan(self.sums))

    def read_best(self, wanted: Mask, slack: float) -> None:
        """Read what is ``wanted`` (query, node) and all that may come within ``slack`` of the best.

        First the way to a candidate that looks good, at each token the most probable next. Then,
        level by level, what is no less probable than the best whole candidate: the sum only falls
        along a way, so nothing that is left out can win.
        """
        queries = np.arange(len(wanted))
        lead = np.zeros_like(queries)
        for depth in range(1, len(self._kept)):
            nodes = np.flatnonzero(self.tree.depths == depth)
            follows = self.tree.parents[nodes] == lead[:, None]
            best = np.where(follows, self.sums[:, nodes], -np.inf).argmax(axis=1)
            lead = np.where(follows.any(axis=1), nodes[best], lead)
            now = wanted.copy()
            now[queries, lead] = True
            self._read_level(depth, now)
        for depth in range(1, len(self._kept)):
            best_yet = np.nanmax(self.totals(), axis=1, keepdims=True)
            with np.errstate(invalid="ignore"):
                self._read_level(depth, self.sums >= best_yet - slack)

    def _read_level(self, depth: int, wanted: Mask) -> None:
        """Read the nodes of a depth that are wanted, where something follows; once each."""
        at = (self.tree.depths == depth) & self._inner
        queries, nodes = np.nonzero(wanted & at & ~self._read)
        if not queries.size:
            return
        above = self._kept[depth - 1] = [_joined(self._kept[depth - 1])]

        def work(part: Ints) -> None:
            self._pass(depth, queries[part], nodes[part], above[0])

        start = 0
        while start < len(queries):
            step = max(1, self._budget.tokens // self._row_tokens)
            part = np.arange(start, min(start + step, len(queries)))
            halving(work, part, self._row_tokens, self._budget)
            start += step

    @torch.inference_mode()
    def _pass(self, depth: int, queries: Ints, nodes: Ints, above: Cache) -> None:
        """Let the decoder read one token in each row, behind what was kept of its parents."""
        device = self._model.device
        of = torch.from_numpy(queries).to(device)
        parents = torch.from_numpy(self._place[queries, self.tree.parents[nodes]]).to(device)
        cache = EncoderDecoderCache(_rows(above, parents), _rows(self._cross, of))
        output = self._model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self._encoded[of]),
            decoder_input_ids=torch.from_numpy(self.tree.ids[nodes])[:, None].to(device),
            past_key_values=cache,
            use_cache=True,
        )
        self._score_children(queries, nodes, output.logits[:, -1])
        needed = np.flatnonzero(self._needed[nodes])
        if needed.size:
            own = _rows(cache.self_attention_cache, torch.from_numpy(needed).to(device))
            places = (self._place[:, self.tree.depths == depth] >= 0).sum() + np.arange(len(needed))
            self._place[queries[needed], nodes[needed]] = places
            self._kept[depth].append(own)
        self._read[queries, nodes] = True
        self.read_nodes += len(nodes)

    def _score_children(self, queries: Ints, nodes: Ints, logits: torch.Tensor) -> None:
        """Sums of what follows ``nodes``, each for its query, from ``logits`` (row, entry)."""
        first, last = self.tree.first_child[nodes], self.tree.first_child[nodes + 1]
        counts = last - first
        row = np.repeat(np.arange(len(nodes)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        children = self.tree.children[np.repeat(first, counts) + within]
        logits = logits.float()
        rows = torch.from_numpy(row).to(logits.device)
        ids = torch.from_numpy(self.tree.ids[children]).to(logits.device)
        logprob = logits[rows, ids].double() - torch.logsumexp(logits, dim=-1)[rows].double()
        steps = logprob.cpu().numpy()
        if np.isnan(steps).any():
            raise ConsilienceError(
                f"the model's logits are not numbers in {self._model.dtype}",
                expected="a dtype that holds what the model computes",
                todo="Use --dtype float32, or bfloat16: T5 was trained in it.",
            )
        self.sums[queries[row], children] = self.sums[queries, nodes][row] + steps


def _rows(cache: Cache, rows: torch.Tensor) -> Cache:
    """A cache of some rows of another, which stays as it is."""
    chosen = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(rows)
    return chosen


def _row_size(cache: Cache) -> int:
    """How many numbers a row of a cache is."""
    layers: list[Any] = list(cache.layers)
    return sum(layer.keys[0].numel() + layer.values[0].numel() for layer in layers)


def _joined(caches: list[Cache]) -> Cache:
    """One cache of the rows of several."""
    if len(caches) == 1:
        return caches[0]
    whole = copy.copy(caches[0])
    parts: list[list[Any]] = [list(cache.layers) for cache in caches]
    whole.layers = [copy.copy(layer) for layer in parts[0]]
    layer: Any
    for layer, same in zip(whole.layers, zip(*parts, strict=True), strict=True):
        layer.keys = torch.cat([each.keys for each in same])
        layer.values = torch.cat([each.values for each in same])
    return whole


def _start_token(model: PreTrainedModel, name: str) -> int:
    """What the decoder is given first."""
    for config in (model.config, model.generation_config):
        start = getattr(config, "decoder_start_token_id", None)
        if start is not None:
            return int(start)
    raise ConsilienceError(
        f"the configuration of '{name}' has no decoder_start_token_id",
        expected="the token that its decoder begins with",
        todo="Add it to the config.json of the model; T5 begins with <pad>.",
    )


def _before_targets(tokenizer: PreTrainedTokenizerBase, start: int) -> list[int]:
    """Tokens that the tokenizer puts before every text, other than the decoder's first."""
    whole = tokenizer("a")["input_ids"]
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    sizes = range(len(whole) - len(plain) + 1)
    before: list[int] = next(
        (whole[:size] for size in sizes if whole[size : size + len(plain)] == plain), []
    )
    return before[1:] if before[:1] == [start] else before


def _sentinel(tokenizer: PreTrainedTokenizerBase, text: str, name: str) -> int:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    pieces = tokenizer.convert_ids_to_tokens(ids)
    if len(ids) != 1 or pieces[0].removeprefix("▁") != text:
        raise ConsilienceError(
            f"the tokenizer of '{name}' has no token {text}",
            expected="a model that was trained to fill spans: T5, mT5, UMT5",
            todo=f"Give a template, such as --template 'Fill in the blank: {SENTENCE}'.",
        )
    return ids[0]


def _check_template(template: str, tokenizer: PreTrainedTokenizerBase, name: str) -> int:
    """The token that closes what the decoder writes."""
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
