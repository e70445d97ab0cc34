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
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch

from consilience.core.items import Floats, Ints, group_rows
from consilience.core.patterns import Pattern
from consilience.models.batches import (
    ReadyModel,
    StateReader,
    positions,
    sentence_logprobs,
    settle_candidates,
    side_by_side,
    workers_on,
)
from consilience.models.candidates import (
    CandidateLookup,
    CandidateTokens,
    FactModel,
    candidates_after_space,
    encode,
    excluded,
    scores_of,
    slot_anchor,
    start_token,
    too_long,
)
from consilience.models.fast.trees import room_for_tokens, tree_scorer
from consilience.models.loading import Pretrained
from consilience.types import Query, Scores

MOST_QUERIES = 128  # Queries of one pattern that are scored together, at most

FEW = 16
"""Queries of several patterns that are scored together, at most. A pass over one token takes as
long as over some dozens, so only runs of a few queries gain."""

TOKENS_A_QUERY = 48  # Tokens of a query whose keys and values are stored, estimated from above


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Inputs, each a subject in a pattern, that are scored together."""

    rows: list[list[int]]  # The queries of each input
    golds: list[int]  # Positions among the scored candidates; -1 for none or several
    sentences: list[list[int]]  # Token ids: of the first input's candidates, then the next's ...


class CausalModel(ReadyModel, FactModel):
    """A model that predicts the next token: GPT-2, Llama, GGUF files, ..."""

    def __init__(self, loaded: Pretrained) -> None:
        super().__init__(loaded)
        self.start = start_token(self.tokenizer)
        self.identity["start_token"] = str(self.tokenizer.convert_ids_to_tokens(self.start))
        self._lookup = CandidateLookup(self.tokenizer, "strict", self.notes)
        self.tree_scorer = tree_scorer(self.model, self.start, self.budget)
        if self.tree_scorer is None:
            self.notes.append(
                "this family does not take a tree of sentences; each sentence is scored separately"
            )

    def score_vocabulary(self, queries: Sequence[Query]) -> Iterator[Scores]:
        """Every word as the next token; only where the object is last."""
        words = self._lookup.vocabulary(queries)
        for pattern, rows in group_rows(query.pattern for query in queries).items():
            for rows_of_subject in _by_subject(queries, rows, MOST_QUERIES):
                yield from self._score_next_word(pattern, rows_of_subject, words)

    def score_words(
        self, queries: Sequence[Query], words: tuple[str, ...], *, every: bool
    ) -> Iterator[Scores]:
        sheet = candidates_after_space(self.tokenizer, words)
        reasons: list[Scores] = []

        def score_chunk(chunk: _Chunk) -> Floats:
            if not len(sheet.scored):
                return np.full((len(chunk.rows), len(words)), np.nan)
            golds = None if every else np.array(chunk.golds)
            return sheet.spread(self.totals(chunk.sentences, len(chunk.rows), golds))

        chunks = self._chunks(queries, sheet, reasons)
        for chunk, totals in side_by_side(score_chunk, chunks, self.model.device):
            yield from reasons
            reasons.clear()
            yield scores_of(chunk.rows, totals, sheet, are_totals=True, every=every)
        yield from reasons

    def _chunks(
        self, queries: Sequence[Query], sheet: CandidateTokens, reasons: list[Scores]
    ) -> Iterator[_Chunk]:
        """Inputs that are scored together; ``reasons`` receives the queries that cannot be."""
        words = [sheet.words[position] for position in sheet.scored]
        index = sheet.index_of_scored()
        most = MOST_QUERIES
        if self.tree_scorer is not None:  # as many as have keys and values that fit the memory
            most = max(1, min(MOST_QUERIES, room_for_tokens(self.model) // TOKENS_A_QUERY))
        most = min(most, -(-len(queries) // workers_on(self.model.device)))
        for inputs in _together(queries, most):
            chunk = _Chunk([], [], [])
            for pattern, subject, rows in inputs:
                texts = [pattern.fill(subject, word) for word in words]
                sentences = encode(self.tokenizer, texts)
                # The start token is read too, a sentence's last token is not.
                if reason := self.why_not(max(map(len, sentences), default=0)):
                    reasons.append(excluded(rows, sheet.words, reason))
                    continue
                golds = {index.get(queries[row].gold, -1) for row in rows}
                chunk.rows.append(rows)
                chunk.golds.append(golds.pop() if len(golds) == 1 else -1)
                chunk.sentences.extend(sentences)
            if chunk.rows:
                yield chunk

    def totals(self, sentences: list[list[int]], queries: int, golds: Ints | None) -> Floats:
        """Log-probability (query, candidate); with ``golds`` (query,) NaN but near the best."""
        totals = None
        if self.tree_scorer is not None:
            with suppress(NotImplementedError):  # longer than a window of attention
                totals = self.tree_scorer.totals(sentences, queries, golds, self.tie)
        if totals is None:
            totals = self.one_by_one(sentences).reshape(queries, -1)

        def score_alone(query: int, candidate: int) -> float:
            return float(self.one_by_one([sentences[query * totals.shape[1] + candidate]])[0])

        settle_candidates(totals, self.tie, score_alone)
        return totals

    def _score_next_word(
        self, pattern: Pattern, rows_of: dict[str, list[int]], words: tuple[str, ...]
    ) -> Iterator[Scores]:
        """Scores of the whole vocabulary as the next token; ``rows_of``: queries by subject."""
        slots: defaultdict[str, list[tuple[list[int], list[int]]]] = defaultdict(list)
        for subject, rows in rows_of.items():
            left, _ = pattern.around_object(subject)
            (ids,) = encode(self.tokenizer, [left.rstrip()])
            reason = self.why_not(1 + len(ids))
            if not pattern.object_last:
                reason = "the next word is the object only where it comes last"
            if reason:
                yield excluded(rows, words, reason)
            else:
                slots[slot_anchor(left, "strict")].append((rows, [self.start, *ids]))
        for anchor, inputs in slots.items():
            sheet = self._lookup.in_slot(words, anchor, merge=True)
            columns = torch.from_numpy(sheet.first_tokens[sheet.scored]).to(self.model.device)

            @torch.inference_mode()
            def next_logits(sentences: list[list[int]], columns: torch.Tensor = columns) -> Floats:
                ids = torch.tensor(sentences, device=self.model.device)
                logits = self.model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1]
                return np.asarray(logits[:, columns].double().cpu().numpy())

            yield from self.score_slot(next_logits, inputs, sheet)

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

    def one_by_one(self, sentences: list[list[int]]) -> Floats:
        return sentence_logprobs(self.model, self.start, sentences, self.budget)


def _by_subject(
    queries: Sequence[Query], rows: list[int], most: int
) -> Iterator[dict[str, list[int]]]:
    for start in range(0, len(rows), most):
        rows_of: defaultdict[str, list[int]] = defaultdict(list)
        for row in rows[start : start + most]:
            rows_of[queries[row].subject].append(row)
        yield rows_of


def _together(
    queries: Sequence[Query], most: int
) -> Iterator[list[tuple[Pattern, str, list[int]]]]:
    """Subjects in a pattern, with at most ``most`` rows; of small patterns up to ``FEW``."""
    together: list[tuple[Pattern, str, list[int]]] = []
    count = 0
    for pattern, rows in group_rows(query.pattern for query in queries).items():
        for rows_of_subject in _by_subject(queries, rows, most):
            size = sum(map(len, rows_of_subject.values()))
            if together and count + size > min(most, FEW):
                yield together
                together, count = [], 0
            together += [(pattern, subject, rows) for subject, rows in rows_of_subject.items()]
            count += size
    if together:
        yield together
