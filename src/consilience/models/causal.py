"""Causal language models: the log-probability of the sentence that each candidate completes.

The score of a candidate is that of the whole sentence, ``sum_t log p(token_t | preceding tokens)``.
Where the pattern ends in the object, the beginning is the same for every candidate and cancels when
the scores are normalised: only the continuation counts. It includes the closing punctuation, so
that a word does not win because it is the beginning of a longer one. The tokenizer reads whole
sentences, so every candidate has the tokens that it would have in running text, however many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from consilience.core.items import Floats, Ints, group_rows
from consilience.models.batches import (
    Budget,
    Inputs,
    LogitsOf,
    ReadyModel,
    logits_of,
    positions,
    settle,
    side_by_side,
    text_logprobs,
    workers_on,
)
from consilience.models.candidates import (
    CandidateLookup,
    candidates_after_space,
    encode,
    excluded,
    scores_of,
    slot_anchor,
    start_token,
    too_long,
)
from consilience.models.loading import Pretrained
from consilience.models.trees import TextScorer
from consilience.types import Candidates, Query, Scores

MOST_QUERIES = 128  # Inputs in a trie, at most
FEWER = 32  # At most in a search, which stores all keys, on an accelerator or of a large model
LARGE = 2**32  # Bytes of a large model


class CausalModel(ReadyModel):
    """A model that predicts the next token: GPT-2, Llama, GGUF files, ..."""

    def __init__(self, loaded: Pretrained) -> None:
        super().__init__(loaded)
        self.start, self.longest = start_token(self.tokenizer), positions(self.model)
        self.identity["start_token"] = str(self.tokenizer.convert_ids_to_tokens(self.start))
        self._lookup = CandidateLookup(self.tokenizer, "strict", self.notes)
        self.texts = TextScorer(self.model, self.budget)
        if not self.texts.longest:
            self.notes.append(
                "this family does not take a tree of sentences; each sentence is scored separately"
            )

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        if candidates is None:
            yield from self._score_vocabulary(queries)
            return
        sheet = candidates_after_space(self.tokenizer, candidates.words)
        words, index = [sheet.words[at] for at in sheet.scored], sheet.index_of_scored()
        inputs = [*group_rows((query.pattern, query.subject) for query in queries).items()]

        def score_chunk(chunk: range) -> list[Scores]:
            asked, golds, texts = list[list[int]](), list[int](), list[list[int]]()
            scores = list[Scores]()
            for (pattern, subject), rows in inputs[chunk.start : chunk.stop]:
                encoded = encode(self.tokenizer, [pattern.fill(subject, word) for word in words])
                # The start token is read too, a sentence's last token is not.
                if reason := self.why_not(max(encoded, key=len, default=())):
                    scores.append(excluded(rows, sheet.words, reason))
                    continue
                known = {index.get(queries[row].gold, -1) for row in rows}
                asked.append(rows)
                golds.append(known.pop() if len(known) == 1 else -1)
                texts += [[self.start, *ids] for ids in encoded]
            if asked:
                totals = np.empty((len(asked), len(words)))
                if words:
                    totals = self.totals(texts, len(asked), None if every else np.array(golds))
                totals = sheet.scatter(totals)
                scores.append(scores_of(asked, totals, sheet, are_totals=True, every=every))
            return scores

        is_small = self.model.device.type == "cpu" and self.model.get_memory_footprint() < LARGE
        most = MOST_QUERIES if every or is_small else FEWER
        most = min(most, max(1, -(-len(queries) // workers_on(self.model.device))))
        chunks = (range(at, at + most) for at in range(0, len(inputs), most))
        for _, scores in side_by_side(score_chunk, chunks, self.model.device):
            yield from scores

    def totals(self, texts: list[list[int]], queries: int, golds: Ints | None) -> Floats:
        """Log-probability (query, candidate); with ``golds`` (query,) NaN but near the best."""
        if golds is None:
            totals = self.texts.logprobs(texts, [1] * len(texts)).reshape(queries, -1)
        else:
            totals = self.texts.best(texts, golds, self.tie)

        def alone(query: int, candidates: Ints) -> Floats:
            some = [texts[query * totals.shape[1] + candidate] for candidate in candidates]
            return text_logprobs(self.model, some, [1] * len(some), Budget(1))

        return settle(totals, self.tie, alone)

    def _score_vocabulary(self, queries: Sequence[Query]) -> Iterator[Scores]:
        """Every word as the next token; only where the object is last."""
        words = self._lookup.vocabulary(queries)
        slots: defaultdict[str, list[tuple[list[int], list[int]]]] = defaultdict(list)
        inputs = group_rows((query.pattern, query.subject) for query in queries)
        for (pattern, subject), rows in inputs.items():
            left, _ = pattern.around_object(subject)
            ids = [self.start, *encode(self.tokenizer, [left.rstrip()])[0]]
            reason = self.why_not(ids)
            if not pattern.object_last:
                reason = "the next word is the object only where it comes last"
            if reason:
                yield excluded(rows, words, reason)
            else:
                slots[slot_anchor(left, "strict")].append((rows, ids))

        def at_end(entries: torch.Tensor) -> LogitsOf[list[int]]:
            return lambda texts: logits_of(self.model, texts, 1)[:, -1, entries]

        for anchor, in_slot in slots.items():
            sheet = self._lookup.in_slot(words, anchor, merge=True)
            yield from self.score_slot(at_end, in_slot, sheet)

    def inputs(self, queries: Sequence[Query], *, special: bool = True) -> Inputs:
        lefts = [query.pattern.around_object(query.subject)[0].rstrip() for query in queries]
        return group_rows((self.start, *ids) for ids in encode(self.tokenizer, lefts))

    def hidden_states(self, ids: torch.Tensor) -> list[torch.Tensor]:
        output = self.model.base_model(input_ids=ids, use_cache=False, output_hidden_states=True)
        return [layer[:, -1] for layer in output.hidden_states]

    def why_not(self, ids: Sequence[int]) -> str | None:
        return too_long(len(ids), self.longest)
