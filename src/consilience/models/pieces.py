"""Masked language models and candidates of several tokens: filled in from left to right.

A candidate whose tokens in its place are t_1 ... t_k scores its pseudo-log-likelihood, in nats,

    sum_j log p(t_j | left context, t_1 ... t_(j-1), k - j + 1 masks, right context),

each p a softmax over the whole vocabulary at the first of the masks. That is PLL-word-l2r of Kauf
and Ivanova, "A Better Way to Do Masked Language Model Scoring" (ACL 2023), after Salazar et al.,
"Masked Language Model Scoring" (ACL 2020), with one difference: a "word" is here the whole object,
also where it is several words (``New York``). A candidate of one token scores its log-probability
with one mask, so all are comparable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.errors import ConsilienceError
from consilience.models.batches import (
    NEAR_TIE,
    equal_length_batches,
    halving,
    log_softmax,
    side_by_side,
)
from consilience.models.candidates import (
    CandidateTokens,
    candidates_in_place,
    encode,
    slot_anchor,
)
from consilience.models.kernels import near_tie
from consilience.models.masked import MaskedModel
from consilience.models.tree import Ints, Tree
from consilience.types import Candidates, Protocol, Query, Scores

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST_SLOTS = {"cpu": 256, "cuda": 4096}
"""Sentences that are asked together, at most: enough of them for full batches."""

MOST_STEPS = 2**22
"""Numbers (slot, candidate, token) that are held at once."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A sentence ``ids`` whose only mask is its token ``at``.

    ``rows`` are the queries that ask it, ``golds`` the positions of their golds.
    """

    rows: list[int]
    golds: list[int]
    ids: list[int]
    at: int


class _Asking:
    """Some slots while a model is asked for one list of candidates.

    A candidate is a path of ``tree``: behind the root the number k of its tokens, then t_1 ... t_k.
    A node that something follows, the root aside, is one sentence of every slot, ``filled[node]``
    in the place of its mask: the tokens so far and a mask for each that is to come. It is asked
    once, for all that follows the node. ``steps`` (slot, node): log-probability of the node's
    token, NaN until it is known. ``unasked`` (slot, node): the sentences still to be asked.
    """

    def __init__(self, slots: list[_Slot], pieces: list[tuple[int, ...]], mask: int) -> None:
        self.slots = slots
        self.tree = Tree.of(0, [(len(own), *own) for own in pieces])
        self.is_sentence = np.diff(self.tree.first_child) > 0
        self.is_sentence[0] = False
        sentences = np.flatnonzero(self.is_sentence)
        self.filled: dict[int, list[int]] = {}
        for node, path in zip(sentences, self.tree.paths(sentences), strict=True):
            count, *before = self.tree.ids[path[1 : self.tree.depths[node] + 1]].tolist()
            self.filled[int(node)] = before + [mask] * (count - len(before))
        self.steps = np.full((len(slots), len(self.tree.ids)), np.nan)
        self.steps[:, self.tree.depths < 2] = 0.0
        self.unasked = np.tile(self.is_sentence, (len(slots), 1))

    def sentence(self, slot: int, node: int) -> list[int]:
        """The tokens of a sentence."""
        ids, at = self.slots[slot].ids, self.slots[slot].at
        return ids[:at] + self.filled[node] + ids[at + 1 :]

    def first_mask(self, slot: int, node: int) -> int:
        """The position of the first mask that was put into a sentence."""
        return int(self.slots[slot].at + self.tree.depths[node] - 1)

    def children(self, node: int) -> Ints:
        """The nodes whose tokens are looked for at a sentence's first mask."""
        first, last = self.tree.first_child[node : node + 2]
        children: Ints = self.tree.children[first:last]
        return children

    def bounds(self) -> Floats:
        """What the score of each candidate (slot, candidate) is at most: the sum of what is known.

        No later token makes a candidate more probable.
        """
        bounds: Floats = np.nansum(self.steps[:, self.tree.nodes], axis=2)
        return bounds

    def totals(self) -> Floats:
        """The scores of the candidates (slot, candidate); NaN for one that is not finished."""
        totals: Floats = self.steps[:, self.tree.nodes].sum(axis=2)
        return totals

    def sentences_of(self, chosen: Bools) -> Bools:
        """Which sentences (slot, node) some candidates ``chosen`` (slot, candidate) need."""
        wanted = np.zeros(self.unasked.shape, dtype=np.bool_)
        slot, candidate = np.nonzero(chosen)
        wanted[slot[:, None], self.tree.nodes[candidate]] = True
        return wanted & self.is_sentence

    def next_of(self, chosen: Bools) -> Bools:
        """Which sentence (slot, node) each of ``chosen`` (slot, candidate) needs next."""
        slot, candidate = np.nonzero(chosen)
        path = self.tree.nodes[candidate]
        first = self.unasked[slot[:, None], path].argmax(axis=1)
        wanted = np.zeros(self.unasked.shape, dtype=np.bool_)
        wanted[slot, path[np.arange(len(slot)), first]] = True
        return wanted & self.unasked


class PiecewiseModel:
    """A masked model that takes candidates of any number of tokens, filled in from left to right.

    See the head of this file. Only for the ``strict`` protocol.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        identity: dict[str, object],
        protocol: Protocol,
    ) -> None:
        if protocol != "strict":
            raise ConsilienceError(
                f"candidates of several tokens under the protocol '{protocol}'",
                expected="strict: the released code scores a candidate by its first piece",
                todo="Use --protocol strict.",
            )
        self.identity = {**identity, "multi_token": "left-to-right"}
        self.masked = MaskedModel(model, tokenizer, self.identity, protocol)
        self.tokenizer = tokenizer
        self.notes = self.masked.notes
        self.products = self.masked.products
        self.budget = self.masked.budget
        self._mask = int(tokenizer.mask_token_id)
        self._near = NEAR_TIE[model.dtype]
        # In half precision the head is computed in single, as MaskedModel does for its candidates.
        exact = model.dtype == torch.float32
        every_id = torch.arange(model.config.vocab_size)
        self._head = None if exact else self.masked.mask_only.head_rows(every_id)
        self._sheets: dict[tuple[tuple[str, ...], str], CandidateTokens] = {}

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """See ``LanguageModel.score``; the whole vocabulary is its words of one token.

        ``totals`` are the pseudo-log-likelihoods. ``every`` False leaves out candidates whose first
        tokens are less probable than the whole of another, if any has several tokens.
        """
        if candidates is None:
            yield from self.masked.score(queries, None, every=every)
            return
        words = candidates.words
        place = {word: position for position, word in enumerate(words)}
        rows_of: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for row, query in enumerate(queries):
            rows_of[query.pattern.around_object(query.subject)].append(row)
        mask = str(self.tokenizer.mask_token)
        texts = [left + mask + right for left, right in rows_of]
        encoded = encode(self.tokenizer, texts, special=True)
        slots: defaultdict[str, list[_Slot]] = defaultdict(list)
        for ((left, _), rows), ids in zip(rows_of.items(), encoded, strict=True):
            anchor = slot_anchor(left, "strict")
            if reason := self._why_not(ids, self._sheet(words, anchor).longest):
                nothing = np.full((len(rows), len(words)), np.nan)
                yield Scores(np.asarray(rows), words, nothing, unasked=reason)
            else:
                golds = [place[queries[row].gold] for row in rows if queries[row].gold in place]
                slots[anchor].append(_Slot(rows, golds, ids, ids.index(self._mask)))
        for anchor, asked in slots.items():
            sheet = self._sheet(words, anchor)
            asked.sort(key=lambda slot: len(slot.ids))
            most = min(
                MOST_SLOTS.get(self.masked.model.device.type, MOST_SLOTS["cpu"]),
                1 + MOST_STEPS // (sheet.longest * len(words)),
            )
            for start in range(0, len(asked), most):
                yield self._scores(asked[start : start + most], sheet, every=every)

    def _scores(self, slots: list[_Slot], sheet: CandidateTokens, *, every: bool) -> Scores:
        """The scores of the queries of some slots; see ``score``."""
        every = every or sheet.longest == 1
        found = np.full((len(slots), len(sheet.words)), np.nan)
        finish = np.full(found.shape, every)
        for row, slot in enumerate(slots):
            finish[row, slot.golds] = True
        if len(sheet.scored):
            pieces = [sheet.tokens[position] for position in sheet.scored]
            asking = _Asking(slots, pieces, self._mask)
            found[:, sheet.scored] = self._totals(asking, finish[:, sheet.scored])
        totals = np.repeat(found, [len(slot.rows) for slot in slots], axis=0)
        return Scores(
            np.concatenate([slot.rows for slot in slots]),
            sheet.words,
            log_softmax(totals) if every else None,
            sheet.reasons,
            sheet.same,
            sheet.entries,
            totals=totals,
        )

    def _totals(self, asking: _Asking, finish: Bools) -> Floats:
        """Scores (slot, candidate) of all in ``finish`` and the best; NaN for others, all worse.

        After the sentences with masks only, each slot's most promising candidate goes on by a
        token, then the two most promising, the four, and so on, until no unfinished one may still
        win or come near it. What comes near the best is then asked again, each sentence by itself,
        so that the answer does not depend on what is asked with it.
        """
        wanted = asking.sentences_of(finish) | (asking.is_sentence & (asking.tree.depths == 1))
        width = 1
        while wanted.any():
            self._ask(asking, wanted)
            totals, bounds = asking.totals(), asking.bounds()
            best = np.where(np.isnan(totals), -np.inf, totals).max(axis=1, keepdims=True)
            live = np.isnan(totals) & (bounds >= best - self._near)
            rank = np.argsort(np.argsort(-np.where(live, bounds, -np.inf), axis=1), axis=1)
            wanted = asking.next_of(live & (rank < width))
            width *= 2
        near = totals >= best - self._near
        near &= near.sum(axis=1, keepdims=True) > 1
        self._ask(asking, asking.sentences_of(near), alone=True)
        return asking.totals()

    def _ask(self, asking: _Asking, wanted: Bools, *, alone: bool = False) -> None:
        """Ask for sentences ``wanted`` (slot, node); ``alone``: each by itself, on one thread."""
        slots, nodes = np.nonzero(wanted)
        lengths = [
            len(asking.slots[slot].ids) - 1 + len(asking.filled[node])
            for slot, node in zip(slots.tolist(), nodes.tolist(), strict=True)
        ]

        def answer(batch: Ints) -> None:
            chosen = list(zip(slots[batch].tolist(), nodes[batch].tolist(), strict=True))
            next_nodes = [asking.children(node) for _, node in chosen]
            row = np.repeat(np.arange(len(batch)), [len(each) for each in next_nodes])
            next_node = np.concatenate(next_nodes)
            with near_tie() if alone else nullcontext():
                asking.steps[slots[batch][row], next_node] = self._log_probs(
                    [asking.sentence(*each) for each in chosen],
                    [asking.first_mask(*each) for each in chosen],
                    row,
                    asking.tree.ids[next_node],
                )

        def work(batch: Ints) -> None:
            halving(answer, batch, lengths[batch[0]], self.budget)

        one_by_one = (np.array([each]) for each in range(len(lengths)))
        batches = one_by_one if alone else equal_length_batches(lengths, self.budget)
        for _ in side_by_side(work, batches, self.masked.model.device):
            pass
        asking.unasked &= ~wanted

    @torch.inference_mode()
    def _log_probs(
        self, sentences: list[list[int]], at: list[int], row: Ints, token: Ints
    ) -> Floats:
        """Log-probability (asked,) of ``token`` (asked,) where sentence ``row`` (asked,) is asked.

        ``sentences`` are of one length; ``at`` (sentence,) is where each is asked. The softmax is
        over the whole vocabulary.
        """
        device = self.masked.model.device
        rows, tokens = torch.from_numpy(row).to(device), torch.from_numpy(token).to(device)
        ids, where = torch.tensor(sentences, device=device), torch.tensor(at, device=device)
        logits = self.masked.mask_only.logits(ids, where, self._head).float()
        steps = logits[rows, tokens].double() - torch.logsumexp(logits, dim=-1)[rows].double()
        found: Floats = steps.cpu().numpy()
        return found

    def _why_not(self, ids: list[int], longest: int) -> str | None:
        """Why a sentence cannot be asked for candidates of up to ``longest`` tokens."""
        masks, size = ids.count(self._mask), len(ids) - 1 + longest
        if masks != 1:
            return f"{masks} mask tokens in the sentence"
        if size > self.masked.longest:
            return f"{size} tokens, and the model takes {self.masked.longest}"
        return None

    def _sheet(self, words: tuple[str, ...], anchor: str) -> CandidateTokens:
        if (words, anchor) not in self._sheets:
            sheet = candidates_in_place(self.tokenizer, words, anchor, "strict", several=True)
            self._sheets[words, anchor] = sheet
            if several := sum(len(own) > 1 for own in sheet.tokens):
                self.notes.append(
                    f"{several} of {len(words)} candidates ({words[0]}, ...) are several tokens; "
                    "they are filled in from left to right (PLL-word-l2r)"
                )
        return self._sheets[words, anchor]
