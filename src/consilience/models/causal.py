"""Causal language models: the log-probability of the sentence that each candidate makes.

The score of a candidate is that of the whole sentence, ``sum_t log p(token_t | tokens before)``.
Where the pattern ends in the object, the beginning is the same for every candidate and falls out
when the scores are normalised: only the continuation counts, the closing punctuation included, so
that a word does not win because it is the beginning of a longer one. The tokenizer sees whole
sentences, so every candidate has just the tokens that it would have in running text, however many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.errors import ConsilienceError
from consilience.models.batches import (
    NEAR_TIE,
    Budget,
    equal_length_batches,
    log_softmax,
    side_by_side,
    workers_on,
)
from consilience.models.candidates import (
    CandidateTokens,
    candidates_in_place,
    distinct_candidates,
    encode,
    slot_anchor,
    vocabulary_words,
    with_golds,
)
from consilience.models.kernels import near_tie, pack_linears
from consilience.models.planted import logits_of, one_by_one, plant_tree, room_for_tokens
from consilience.models.search import best_and_gold
from consilience.models.tree import Reading, Tree
from consilience.types import Candidates, Pattern, Query, Scores

DOCUMENT_SEPARATORS = ("<|endoftext|>",)
"""Tokens that stood between documents in pre-training: where a sentence of its own begins."""

MOST_QUERIES = 128
"""Queries of one pattern that are asked together, at most."""

FEW = 16
"""Queries of several patterns that are asked together, at most: to read a token takes as long as to
read some dozens, so that a run of a few queries gains, and others would not."""

TOKENS_A_QUERY = 48
"""Tokens of a query whose keys and values are kept at once, estimated from above."""

FILL = {"cpu": 192, "cuda": 2048}
"""Tokens that it takes to make good use of a device."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Some subjects in patterns. ``sentences``: of the first subject's candidates, and so on.

    ``rows`` (subject,): the rows of each; ``golds`` (subject,): -1 where there are several.
    """

    rows: list[list[int]]
    golds: npt.NDArray[np.int64]
    sentences: list[list[int]]


class CausalModel:
    """A model that predicts the next token: GPT-2, Llama, GGUF files, ...

    ``slack``: where only the answers are asked for, candidates within so many nats of the best one
    are scored too.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        identity: dict[str, object],
    ) -> None:
        self.model = model.eval()
        self.products = pack_linears(model, head=True)
        self.budget = Budget.of(model)
        self.tokenizer = tokenizer
        self.identity = identity
        self.notes: list[str] = []
        self.start = start_token(tokenizer)
        self.identity["start_token"] = str(tokenizer.convert_ids_to_tokens(self.start))
        self._vocabulary: tuple[str, ...] | None = None
        self._sheets: dict[tuple[tuple[str, ...], str], CandidateTokens] = {}
        self.slack = 0.0
        self._head = plant_tree(model, identity, self.start, self.budget)
        self.use_tree = self._head is not None
        if not self.use_tree:
            self.notes.append(
                "this family does not take a tree of sentences; each is scored by itself"
            )

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """See ``LanguageModel.score``. The vocabulary is asked only where the object is last."""
        by_pattern: defaultdict[Pattern, list[int]] = defaultdict(list)
        for row, query in enumerate(queries):
            by_pattern[query.pattern].append(row)
        if candidates is None:
            self._vocabulary = self._vocabulary or vocabulary_words(self.tokenizer)
            words = with_golds(self._vocabulary, queries)
            for pattern, rows in by_pattern.items():
                for rows_of in _by_subject(queries, rows, MOST_QUERIES):
                    yield from self._score_next_word(pattern, rows_of, words)
            return
        words = candidates.words
        known = self._known(words)
        asked = known.scored.tolist()
        place = {words[position]: at for at, position in enumerate(asked)}
        unasked: list[Scores] = []
        workers = workers_on(self.model.device)
        most = min(self._queries_at_once(), -(-len(queries) // workers))

        def items() -> Iterator[_Asked]:
            for together in _together(queries, by_pattern, most):
                item = _Asked([], np.empty(0, dtype=np.int64), [])
                golds = []
                for pattern, subject, own in together:
                    sentences = encode(
                        self.tokenizer,
                        [pattern.fill(subject, words[position]) for position in asked],
                    )
                    # The start token is read too, a sentence's last token is not.
                    if reason := self._why_not(max(map(len, sentences), default=0)):
                        unasked.append(self._unasked(own, words, reason))
                        continue
                    item.rows.append(own)
                    item.sentences.extend(sentences)
                    several = {place.get(queries[row].gold, -1) for row in own}
                    golds.append(several.pop() if len(several) == 1 else -1)
                if item.rows:
                    yield _Asked(item.rows, np.array(golds), item.sentences)

        def work(item: _Asked) -> npt.NDArray[np.float64]:
            whole = np.full((len(item.rows), len(words)), np.nan)
            if asked:
                golds = None if every else item.golds
                whole[:, asked] = self.totals(item.sentences, len(item.rows), golds)
            return whole

        for item, found in side_by_side(work, items(), self.model.device):
            yield from unasked
            unasked.clear()
            totals = np.repeat(found, [len(each) for each in item.rows], axis=0)
            logprob = log_softmax(totals) if every else None
            yield Scores(
                np.concatenate(item.rows), words, logprob, known.reasons, known.same, totals=totals
            )
        yield from unasked

    def totals(
        self, sentences: list[list[int]], size: int, golds: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.float64]:
        """Log-probability (query, candidate) of the sentences of ``size`` queries.

        With ``golds`` (query,) only the best, what comes near it, and the golds; NaN elsewhere.
        Where the best two come very near each other they are scored again by themselves, so that
        the answer does not depend on what is asked with it.
        """
        if self._head is None:
            totals = self.one_by_one(sentences).reshape(size, -1)
        else:
            tree = Tree.of(self.start, sentences)
            reading = Reading(self.model, self._head, tree, self.budget)
            if golds is None:
                reading.read_all()
                totals = tree.path_sums(reading.steps).reshape(size, -1)
            else:
                fill = FILL.get(self.model.device.type, FILL["cpu"])
                totals = best_and_gold(reading, golds, max(self._near, self.slack), fill)
        near = totals >= np.nanmax(totals, axis=1, keepdims=True) - self._near
        for query in np.flatnonzero(near.sum(axis=1) > 1):
            for candidate in np.flatnonzero(near[query]):
                alone = sentences[query * totals.shape[1] + candidate]
                with near_tie():
                    totals[query, candidate] = self.one_by_one([alone])[0]
        return totals

    @property
    def _near(self) -> float:
        return NEAR_TIE[self.model.dtype]

    def _queries_at_once(self) -> int:
        """So many that there is room for what is kept of their tokens."""
        if not self.use_tree:
            return MOST_QUERIES
        return max(1, min(MOST_QUERIES, room_for_tokens(self.model) // TOKENS_A_QUERY))

    def _known(self, words: tuple[str, ...]) -> CandidateTokens:
        """The words that the tokenizer knows and can tell from each other, after a space."""
        tokens = encode(self.tokenizer, [f"x {word}" for word in words])
        unknown = self.tokenizer.unk_token_id
        reasons = {
            word: "unknown to the tokenizer"
            for word, ids in zip(words, tokens, strict=True)
            if unknown in ids
        }
        return distinct_candidates(words, tokens, reasons)

    def _score_next_word(
        self, pattern: Pattern, rows_of: dict[str, list[int]], words: tuple[str, ...]
    ) -> Iterator[Scores]:
        slots: defaultdict[str, list[tuple[str, list[int]]]] = defaultdict(list)
        for subject, rows in rows_of.items():
            left, _ = pattern.around_object(subject)
            (ids,) = encode(self.tokenizer, [left.rstrip()])
            reason = self._why_not(1 + len(ids))
            if not pattern.object_last:
                reason = "the next word is the object only where it comes last"
            if reason:
                yield self._unasked(rows, words, reason)
            else:
                slots[slot_anchor(left, "strict")].append((subject, ids))
        for anchor, asked in slots.items():
            sheet = self._sheet(words, anchor)
            scores = np.full((len(asked), len(words)), np.nan)
            for batch in equal_length_batches(
                [len(ids) for _, ids in asked], Budget.of(self.model)
            ):
                logits = logits_of(self.model, [[self.start, *asked[each][1]] for each in batch])
                logits = logits[:, -1]
                columns = torch.from_numpy(sheet.first_tokens[sheet.scored]).to(logits.device)
                scores[np.ix_(batch, sheet.scored)] = logits[:, columns].float().cpu().numpy()
            own = [rows_of[subject] for subject, _ in asked]
            logprob = np.repeat(log_softmax(scores), [len(each) for each in own], axis=0)
            yield Scores(
                np.concatenate(own), words, logprob, sheet.reasons, sheet.same, sheet.entries
            )

    def _sheet(self, words: tuple[str, ...], anchor: str) -> CandidateTokens:
        if (words, anchor) not in self._sheets:
            sheet = candidates_in_place(self.tokenizer, words, anchor, "strict", merge=True)
            self._sheets[words, anchor] = sheet
        return self._sheets[words, anchor]

    def _why_not(self, read: int) -> str | None:
        longest = getattr(self.model.config, "max_position_embeddings", None) or read
        return f"{read} tokens, and the model takes {longest}" if read > longest else None

    def _unasked(self, rows: list[int], words: tuple[str, ...], reason: str) -> Scores:
        nothing = np.full((len(rows), len(words)), np.nan)
        return Scores(np.asarray(rows), words, nothing, unasked=reason)

    def one_by_one(self, sentences: list[list[int]]) -> npt.NDArray[np.float64]:
        """Log-probability (sentence,) of token sequences, each by itself behind the start token."""
        return one_by_one(self.model, self.start, sentences, self.budget)


def _by_subject(
    queries: Sequence[Query], rows: list[int], most: int
) -> Iterator[dict[str, list[int]]]:
    """The rows of each subject, for at most so many rows at a time."""
    for start in range(0, len(rows), most):
        rows_of: defaultdict[str, list[int]] = defaultdict(list)
        for row in rows[start : start + most]:
            rows_of[queries[row].subject].append(row)
        yield rows_of


def _together(
    queries: Sequence[Query], by_pattern: Mapping[Pattern, list[int]], most: int
) -> Iterator[list[tuple[Pattern, str, list[int]]]]:
    """Subjects in patterns, and the rows of each, that are asked together: at most so many rows.

    They are of one pattern; patterns with few subjects are asked together, up to ``FEW`` rows.
    """
    together: list[tuple[Pattern, str, list[int]]] = []
    count = 0
    for pattern, rows in by_pattern.items():
        for rows_of in _by_subject(queries, rows, most):
            size = sum(map(len, rows_of.values()))
            if together and count + size > min(most, FEW):
                yield together
                together, count = [], 0
            together += [(pattern, subject, own) for subject, own in rows_of.items()]
            count += size
    if together:
        yield together


def start_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """What stands before a sentence's first token, so that this one has a probability too.

    The token that the tokenizer itself puts there; else the separator of documents, which the
    families that put nothing there were trained with; else its beginning or end of sequence.
    """
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    if len(full) > len(plain) and full[0] != plain[0]:
        return int(full[0])
    vocabulary = tokenizer.get_vocab()
    for token in (*DOCUMENT_SEPARATORS, tokenizer.bos_token, tokenizer.eos_token):
        if token in vocabulary:
            return int(vocabulary[token])
    raise ConsilienceError(
        f"the tokenizer of '{tokenizer.name_or_path}' has no token that begins a text",
        expected="a beginning- or end-of-sequence token",
        todo="Use the tokenizer that the model was trained with.",
    )
