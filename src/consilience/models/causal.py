"""Causal language models: the log-probability of the sentence that each candidate completes.

The score of a candidate is that of the whole sentence, ``sum_t log p(token_t | preceding tokens)``.
Where the pattern ends in the object, the beginning is the same for every candidate and cancels when
the scores are normalised: only the continuation counts. It includes the closing punctuation, so
that a word does not win because it is the beginning of a longer one. The tokenizer reads whole
sentences, so every candidate has the tokens that it would have in running text, however many.

What several texts begin with together is read once, in a trie, as one row: each token has the
position that it has in its text and sees its own beginning only, by a mask (query, key). A family
is read in this way if each text then has the score that it has alone; others read one text after
the other.

The log-probability of a text is at most that of its beginning. So a candidate whose beginning is
less probable than some whole candidate of the same query need not be read on. The search is exact:
the best candidate is scored in full, and every candidate that is left out is known to be worse.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from consilience.core.items import Bools, Floats, Ints, group_rows, padded
from consilience.models.batches import (
    Budget,
    Inputs,
    Part,
    ReadyModel,
    head_of,
    in_batches,
    is_same,
    logits_of,
    one_thread,
    positions,
    settled_totals,
    side_by_side,
    text_logprobs,
    token_logprobs,
    workers_on,
)
from consilience.models.loading import Pretrained
from consilience.models.tokens import (
    candidates_after_space,
    encode,
    excluded,
    scores_of,
    start_token,
    too_long,
)
from consilience.types import Candidates, Query, Scores

HEAD_ROWS = 64  # Tokens whose logits over the vocabulary are held at once
MOST_TOKENS = 2048  # Tokens in a pass, at most; the mask grows with their square
FILL = 192  # Tokens in a pass that take hardly longer than one
TRIED = 7  # Tokens of the texts on which a family is tried when it is loaded


@dataclass(frozen=True, slots=True)
class Trie:
    """Token sequences, whose equal beginnings share their nodes.

    Nodes are in depth-first order, so a parent precedes its children.
    """

    ids: Ints  # (node,) Token ids
    depths: Ints  # (node,) Number of tokens before it
    nodes: Ints  # (sequence, token) The node of each token; -1 beyond the end of a sequence
    parents: Ints  # (node,) The node before it; -1 of a first token
    holder: Ints  # (node,) A sequence that contains the node

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Trie:
        tokens = padded(sequences, -1)
        order = np.lexsort(tokens.T[::-1])
        in_order = tokens[order]
        is_new = in_order >= 0
        is_new[1:] &= ~np.logical_and.accumulate(in_order[1:] == in_order[:-1], axis=1)
        row, depth = np.nonzero(is_new)
        created = np.zeros(tokens.shape, dtype=np.int64)
        created[row, depth] = np.arange(len(row))
        created = np.where(in_order >= 0, np.maximum.accumulate(created, axis=0), -1)
        nodes = created[np.argsort(order)]
        parents = np.where(depth > 0, created[row, depth - 1], -1)
        return cls(in_order[row, depth], depth, nodes, parents, order[row])

    @property
    def has_children(self) -> Bools:
        """(node,) Whether something follows a node: a model need read no other."""
        return np.isin(np.arange(len(self.parents)), self.parents)

    def paths(self, nodes: Ints) -> Ints:
        """The ancestors of nodes and themselves (node, depth); -1 beyond their own depth."""
        depths = self.depths[nodes]
        paths = self.nodes[self.holder[nodes], : int(depths.max()) + 1]
        return np.where(np.arange(paths.shape[1]) > depths[:, None], -1, paths)


def search(
    steps: Callable[[], Floats],
    finish: Bools,
    slack: float,
    read_next: Callable[[Bools, Ints, int], None],
    fill: int = 0,
) -> Floats:
    """Log-probability (query, candidate) of the best and all within ``slack``; others may be NaN.

    ``steps``: those of each token (query, candidate, token); NaN until known, 0 beyond the end.
    ``finish`` (query, candidate): candidates that are finished in any case. ``read_next`` reads on
    for some candidates, given the position of their first unknown token and how many tokens: first
    for the most promising one of each query, then for two, four, and so on; for ``fill`` tokens at
    once, if there are as many.
    """
    width = 1
    while True:
        known = steps()
        unknown = np.isnan(known)
        is_open, first = unknown.any(axis=2), unknown.argmax(axis=2)
        bounds = np.where(np.logical_or.accumulate(unknown, axis=2), 0, known).sum(axis=2)
        best = np.where(is_open, -np.inf, bounds).max(axis=1, keepdims=True)
        live = is_open & (finish | (bounds >= best - slack))
        if not live.any():
            return np.where(is_open, np.nan, bounds)
        ranks = np.where(live, -bounds, np.inf).argsort(axis=1).argsort(axis=1)
        while width < live.shape[1] and (live & (ranks < width)).sum() < fill:
            width *= 2
        chosen = live & (finish | (ranks < width))
        read_next(chosen, first, 1 if width < live.shape[1] else max(1, fill // chosen.sum()))
        width *= 2


class TrieReader:
    """One trie while a model reads it; ``read_nodes`` counts the tokens that it read."""

    def __init__(self, texts: TextScorer, trie: Trie) -> None:
        self.trie = trie
        self.steps = np.full(len(trie.ids), np.nan)
        """(node,) Log-probability of its token after its beginning; NaN until its parent is read, 0
        of the first token of a text."""
        self.steps[trie.depths == 0] = 0.0
        self.read_nodes = 0
        self._texts = texts
        self.slots = np.full(len(trie.ids), -1)  # Where the keys of each node are; -1 for none
        self.stored: list[Sequence[torch.Tensor]] = []  # Keys and values by layer

    def read(self, nodes: Ints, counted: Bools | None = None, *, forget: bool = False) -> None:
        """Read those of ``nodes`` that have children and are not read yet.

        ``counted`` (node,): those whose children need a probability; None for all. ``forget``: keys
        and values of what no later node begins with; ``nodes`` are then all that are read.
        """
        nodes = np.unique(nodes)
        nodes = nodes[self.trie.has_children[nodes] & (self.slots[nodes] < 0)]

        def work(batch: Ints) -> None:
            part = nodes[batch]
            self._pass(part, part if counted is None else part[counted[part]], forget=forget)

        in_batches(work, [1] * len(nodes), self._texts.budget, MOST_TOKENS)

    @torch.inference_mode()
    def _pass(self, nodes: Ints, counted: Ints, *, forget: bool) -> None:
        trie, model = self.trie, self._texts.model
        paths = trie.paths(nodes)
        row, depth = np.nonzero(paths >= 0)
        before = np.setdiff1d(paths[row, depth], nodes)
        columns = np.full(len(trie.ids), -1)
        columns[before] = np.arange(len(before))
        columns[nodes] = len(before) + np.arange(len(nodes))
        hidden = torch.ones((1, 1, len(nodes), len(before) + len(nodes)), dtype=torch.bool)
        hidden[0, 0, row, columns[paths[row, depth]]] = False
        mask = torch.zeros(hidden.shape, dtype=model.dtype)
        mask.masked_fill_(hidden, torch.finfo(model.dtype).min)
        cache, slots = DynamicCache(), torch.from_numpy(self.slots[before]).to(model.device)
        for layer, (keys, values) in enumerate(self.stored):
            cache.update(keys[:, :, slots], values[:, :, slots], layer)
        states = model.base_model(
            input_ids=torch.from_numpy(trie.ids[nodes])[None].to(model.device),
            position_ids=torch.from_numpy(trie.depths[nodes])[None].to(model.device),
            attention_mask=mask.to(model.device),
            past_key_values=cache,
            use_cache=True,
        )[0][0]
        layers: list[Any] = cache.layers
        stored: list[Sequence[torch.Tensor]] = [(layer.keys, layer.values) for layer in layers]
        if forget:
            self.stored, self.slots = stored, columns
        else:
            room = int(np.count_nonzero(trie.has_children))
            self.stored = self.stored or [
                [one.new_empty((*one.shape[:2], room, one.shape[3])) for one in of_layer]
                for of_layer in stored
            ]
            new = slice(self.read_nodes, self.read_nodes + len(nodes))
            self.slots[nodes] = np.arange(new.start, new.stop)
            for kept, of_layer in zip(self.stored, stored, strict=True):
                for old, read in zip(kept, of_layer, strict=True):
                    old[:, :, new] = read[:, :, len(before) :]
        for start in range(0, len(counted), HEAD_ROWS):
            part = counted[start : start + HEAD_ROWS]
            logits = self._texts.head(states[np.searchsorted(nodes, part)])
            children = np.flatnonzero(np.isin(trie.parents, part))
            row = np.searchsorted(part, trie.parents[children])
            self.steps[children] = token_logprobs(logits, row, trie.ids[children])
        self.read_nodes += len(nodes)  # only now: without memory for the head all is read again


def _texts(parts: Sequence[Part]) -> list[list[int]]:
    """What is read with each of its targets: those of the first part, then of the second."""
    return [[*ids, *target] for ids, targets in parts for target in targets]


class TextScorer:
    """Log-probabilities of texts under a causal model."""

    def __init__(self, model: PreTrainedModel, budget: Budget) -> None:
        self.model, self.budget, self.head = model, budget, head_of(model)
        self.longest = self._longest() if self._reads_tries() else 0
        """Tokens of a text that may stand in a trie; 0 for a family that reads texts alone."""

    def totals(self, parts: Sequence[Part]) -> list[Floats]:
        """For each part the log-probability (target,) of the tokens of its targets, in nats."""
        texts = _texts(parts)
        skips = [len(ids) for ids, targets in parts for _ in targets]
        if max(map(len, texts), default=0) > self.longest:
            totals = text_logprobs(self.model, texts, skips, self.budget)
        else:
            totals = self._in_a_trie(texts, skips)
        return np.split(totals, np.cumsum([len(targets) for _, targets in parts])[:-1])

    def alone(self, ids: list[int], targets: list[list[int]]) -> Floats:
        """As ``totals``, in passes of their own."""
        texts = _texts([(ids, targets)])
        return text_logprobs(self.model, texts, [len(ids)] * len(texts), Budget(1))

    def next_logits(self, ids: list[int], text: list[int]) -> torch.Tensor:
        """Logits (entry,) after a text that follows what is read, in a pass of its own."""
        return logits_of(self.model, [[*ids, *text]], 1)[0, -1].float()

    def _in_a_trie(self, texts: Sequence[Sequence[int]], skips: Sequence[int]) -> Floats:
        trie = Trie.of(texts)
        counts = np.arange(trie.nodes.shape[1]) >= np.array(skips)[:, None]
        row, column = np.nonzero(counts & (trie.nodes >= 0))
        counted = np.isin(np.arange(len(trie.ids)), trie.nodes[row, column - 1])
        reader = TrieReader(self, trie)
        reader.read(np.arange(len(trie.ids)), counted, forget=True)
        totals = np.zeros(len(texts))
        np.add.at(totals, row, reader.steps[trie.nodes[row, column]])
        return totals

    def best(self, parts: Sequence[Part], golds: Bools, slack: float) -> list[Floats]:
        """As ``totals`` (part, target); NaN for those that cannot win.

        What is read is one token, and all parts have equally many targets. ``golds`` (part,
        target): those to finish in any case. All that come within ``slack`` nats of the best one
        are finished, too.
        """
        texts = _texts(parts)
        if max(map(len, texts), default=0) > self.longest:
            return self.totals(parts)
        trie = Trie.of(texts)
        reader = TrieReader(self, trie)
        longest = trie.nodes.shape[1]
        of_texts = trie.nodes.reshape(len(golds), -1, longest)

        def steps() -> Floats:
            return np.where(of_texts >= 0, reader.steps[of_texts], 0)

        def read_next(chosen: Bools, first: Ints, depth: int) -> None:
            columns = np.minimum(first[chosen][:, None] - 1 + np.arange(depth), longest - 1)
            nodes = np.take_along_axis(of_texts[chosen], columns, axis=1)
            reader.read(nodes[nodes >= 0])

        is_shared = (of_texts == of_texts[:, :1]).all(axis=1) & (of_texts[:, 0] >= 0)
        reader.read(of_texts[:, 0][is_shared])
        lead = np.nan_to_num(steps()).sum(axis=2).argmax(axis=1)
        first_read = of_texts[golds | (np.arange(golds.shape[1]) == lead[:, None])]
        reader.read(first_read[first_read >= 0])
        return [*search(steps, golds, slack, read_next, FILL)]

    def read(self, texts: Sequence[Sequence[int]]) -> tuple[DynamicCache, torch.Tensor]:
        """Keys and values of texts, padded on their left, and their mask (text, 1, 1, token)."""
        trie = Trie.of([[*text, 0] for text in texts])  # what nothing follows is not read
        reader = TrieReader(self, trie)
        reader.read(np.arange(len(trie.ids)), np.zeros(len(trie.ids), dtype=np.bool_))
        lengths = np.array([len(text) for text in texts])
        columns = np.arange(lengths.max()) - (lengths.max() - lengths)[:, None]
        nodes = np.take_along_axis(trie.nodes, columns.clip(0), axis=1)
        slots = torch.from_numpy(reader.slots[nodes]).to(self.model.device)
        cache = DynamicCache()
        for layer, pair in enumerate(reader.stored):
            keys, values = (one[0][:, slots].transpose(0, 1) for one in pair)
            cache.update(keys, values, layer)
        mask = torch.zeros(slots.shape, dtype=self.model.dtype)
        mask.masked_fill_(torch.from_numpy(columns < 0), torch.finfo(self.model.dtype).min)
        return cache, mask[:, None, None].to(self.model.device)

    def _longest(self) -> int:
        """Tokens up to which a text is read alike whatever is read beside it.

        LongRoPE takes other factors for all texts of a pass where one is longer than the original
        window, and a mask that is given replaces a sliding window.
        """
        config = self.model.config.get_text_config()
        rotation = getattr(config, "rope_parameters", None) or {}
        names = ("sliding_window", "attention_chunk_size")
        limits = [getattr(config, name, None) for name in names]
        if rotation.get("rope_type") == "longrope":
            limits.append(rotation.get("original_max_position_embeddings"))
        return int(min([sys.maxsize, *filter(None, limits)]))

    def _reads_tries(self) -> bool:
        """Whether texts in a trie, read in two passes, have the scores that they have alone."""
        if not (self.model._supports_attention_backend or self.model._supports_sdpa):
            return False  # attention of its own may ignore a mask in long rows
        size = self.model.config.get_text_config().vocab_size
        first, *branches = np.random.default_rng(0).integers(0, size, (TRIED, 1 + TRIED)).tolist()
        texts = [first[:at] + ids[at:] for at, ids in enumerate(branches, 1)]
        usual, self.budget = self.budget, Budget(len(texts) * TRIED // 3)
        skips = [1] * len(texts)
        with one_thread():  # distributing a few tokens takes longer than computing them
            alone = text_logprobs(self.model, texts, skips, usual)
            try:
                return is_same(lambda: self._in_a_trie(texts, skips), alone, self.model)
            finally:
                self.budget = usual


MOST_QUERIES = 128  # Inputs in a trie, at most
FEWER = 32  # At most in a search, which stores all keys, on an accelerator or of a large model
LARGE = 2**32  # Bytes of a large model


class CausalModel(ReadyModel):
    """A model that predicts the next token: GPT-2, Llama, GGUF files, ..."""

    def __init__(self, loaded: Pretrained) -> None:
        super().__init__(loaded)
        self.start, self.longest = start_token(self.tokenizer), positions(self.model)
        self.identity["start_token"] = str(self.tokenizer.convert_ids_to_tokens(self.start))
        self.scorer = TextScorer(self.model, self.budget)
        if not self.scorer.longest:
            self.notes.append(
                "this family does not take a tree of sentences; each sentence is scored separately"
            )

    def score(
        self, queries: Sequence[Query], candidates: Candidates, *, every: bool = True
    ) -> Iterator[Scores]:
        tokenized = candidates_after_space(self.tokenizer, candidates.words)
        words, index = [tokenized.words[at] for at in tokenized.scored], tokenized.index_of_scored()
        inputs = [*group_rows((query.pattern, query.subject) for query in queries).items()]

        def score_chunk(chunk: range) -> list[Scores]:
            asked, golds, parts = list[list[int]](), list[list[int]](), list[Part]()
            scores = list[Scores]()
            for (pattern, subject), rows in inputs[chunk.start : chunk.stop]:
                encoded = encode(self.tokenizer, [pattern.fill(subject, word) for word in words])
                # The start token is read too, a sentence's last token is not.
                if reason := self.why_not(max(encoded, key=len, default=())):
                    scores.append(excluded(rows, tokenized.words, reason))
                    continue
                asked.append(rows)
                golds.append([index.get(queries[row].gold, -1) for row in rows])
                parts.append(([self.start], encoded))
            if asked:
                totals = np.empty((len(asked), len(words)))
                if words:
                    finish = [np.isin(np.arange(len(words)), of_input) for of_input in golds]
                    known = None if every else np.array(finish)
                    totals = settled_totals(self.scorer, parts, self.tie, known)
                totals = tokenized.scatter(totals)
                scores.append(scores_of(asked, totals, tokenized, are_totals=True, every=every))
            return scores

        is_small = self.model.device.type == "cpu" and self.model.get_memory_footprint() < LARGE
        most = MOST_QUERIES if every or is_small else FEWER
        most = min(most, max(1, -(-len(queries) // workers_on(self.model.device))))
        chunks = (range(at, at + most) for at in range(0, len(inputs), most))
        for _, scores in side_by_side(score_chunk, chunks, self.model.device):
            yield from scores

    def inputs(self, queries: Sequence[Query], *, special: bool = True) -> Inputs:
        lefts = [query.pattern.around_object(query.subject)[0].rstrip() for query in queries]
        return group_rows((self.start, *ids) for ids in encode(self.tokenizer, lefts))

    def hidden_states(self, ids: torch.Tensor) -> list[torch.Tensor]:
        output = self.model.base_model(input_ids=ids, use_cache=False, output_hidden_states=True)
        return [layer[:, -1] for layer in output.hidden_states]

    def why_not(self, ids: Sequence[int]) -> str | None:
        return too_long(len(ids), self.longest)
