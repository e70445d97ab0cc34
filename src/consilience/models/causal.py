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
from dataclasses import dataclass

import numpy as np
import torch

from consilience.core.items import Floats, Ints, group_rows
from consilience.models.batches import (
    ReadyModel,
    StateReader,
    logits_of,
    one_at_a_time,
    positions,
    settle,
    side_by_side,
    text_logprobs,
    workers_on,
)
from consilience.models.candidates import (
    CandidateLookup,
    CandidateTokens,
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

MOST_QUERIES = {True: 128, False: 32}
"""Inputs in a trie, at most, by whether every candidate is scored; a search stores all keys."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Inputs, each a subject in a pattern, that are scored together."""

    rows: list[list[int]]  # The queries of each input
    golds: list[int]  # Positions among the scored candidates; -1 for none or several
    texts: list[list[int]]  # Token ids: of the first input's candidates, then the next's ...


class CausalModel(ReadyModel):
    """A model that predicts the next token: GPT-2, Llama, GGUF files, ..."""

    def __init__(self, loaded: Pretrained) -> None:
        super().__init__(loaded)
        self.start = start_token(self.tokenizer)
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
        reasons: list[Scores] = []

        def score_chunk(chunk: _Chunk) -> Floats:
            if not len(sheet.scored):
                return np.full((len(chunk.rows), len(sheet.words)), np.nan)
            golds = None if every else np.array(chunk.golds)
            return sheet.spread(self.totals(chunk.texts, len(chunk.rows), golds))

        most = min(MOST_QUERIES[every], -(-len(queries) // workers_on(self.model.device)))
        chunks = self._chunks(queries, sheet, most, reasons)
        for chunk, totals in side_by_side(score_chunk, chunks, self.model.device):
            yield from reasons
            reasons.clear()
            yield scores_of(chunk.rows, totals, sheet, are_totals=True, every=every)
        yield from reasons

    def _chunks(
        self, queries: Sequence[Query], sheet: CandidateTokens, most: int, reasons: list[Scores]
    ) -> Iterator[_Chunk]:
        """At most ``most`` inputs; ``reasons`` receives the queries that cannot be asked."""
        words, index = [sheet.words[at] for at in sheet.scored], sheet.index_of_scored()
        inputs = [*group_rows((query.pattern, query.subject) for query in queries).items()]
        for start in range(0, len(inputs), max(1, most)):
            chunk = _Chunk([], [], [])
            for (pattern, subject), rows in inputs[start : start + most]:
                encoded = encode(self.tokenizer, [pattern.fill(subject, word) for word in words])
                # The start token is read too, a sentence's last token is not.
                if reason := self.why_not(max(map(len, encoded), default=0)):
                    reasons.append(excluded(rows, sheet.words, reason))
                    continue
                golds = {index.get(queries[row].gold, -1) for row in rows}
                chunk.rows.append(rows)
                chunk.golds.append(golds.pop() if len(golds) == 1 else -1)
                chunk.texts.extend([self.start, *ids] for ids in encoded)
            if chunk.rows:
                yield chunk

    def totals(self, texts: list[list[int]], queries: int, golds: Ints | None) -> Floats:
        """Log-probability (query, candidate); with ``golds`` (query,) NaN but near the best."""
        if golds is None:
            totals = self.texts.logprobs(texts, [1] * len(texts)).reshape(queries, -1)
        else:
            totals = self.texts.best(texts, golds, self.tie)

        def score_alone(query: int, candidate: int) -> float:
            text = texts[query * totals.shape[1] + candidate]
            return float(text_logprobs(self.model, [text], [1], self.budget)[0])

        return settle(totals, self.tie, one_at_a_time(score_alone))

    def _score_vocabulary(self, queries: Sequence[Query]) -> Iterator[Scores]:
        """Every word as the next token; only where the object is last."""
        words = self._lookup.vocabulary(queries)
        slots: defaultdict[str, list[tuple[list[int], list[int]]]] = defaultdict(list)
        inputs = group_rows((query.pattern, query.subject) for query in queries)
        for (pattern, subject), rows in inputs.items():
            left, _ = pattern.around_object(subject)
            (ids,) = encode(self.tokenizer, [left.rstrip()])
            reason = self.why_not(1 + len(ids))
            if not pattern.object_last:
                reason = "the next word is the object only where it comes last"
            if reason:
                yield excluded(rows, words, reason)
            else:
                slots[slot_anchor(left, "strict")].append((rows, [self.start, *ids]))
        for anchor, in_slot in slots.items():
            sheet = self._lookup.in_slot(words, anchor, merge=True)
            columns = torch.from_numpy(sheet.first_tokens[sheet.scored]).to(self.model.device)

            def next_logits(texts: list[list[int]], columns: torch.Tensor = columns) -> Floats:
                logits = logits_of(self.model, texts, 1)[:, -1]
                return np.asarray(logits[:, columns].double().cpu().numpy())

            yield from self.score_slot(next_logits, in_slot, sheet)

    def hidden_states(
        self, queries: Sequence[Query], *, special_tokens: bool = True
    ) -> StateReader:
        base = self.model.base_model
        lefts = [query.pattern.around_object(query.subject)[0].rstrip() for query in queries]

        def states(ids: torch.Tensor) -> list[torch.Tensor]:
            hidden = base(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
            return [layer[:, -1] for layer in hidden]

        inputs = group_rows((self.start, *ids) for ids in encode(self.tokenizer, lefts))
        return StateReader(self, inputs, states, lambda ids: self.why_not(len(ids)), self.start)

    def why_not(self, tokens: int) -> str | None:
        return too_long(tokens, positions(self.model))
