"""Causal language models: the log-probability of the sentence that each candidate makes.

The score of a candidate is that of the whole sentence, ``sum_t log p(token_t | tokens before)``.
Where the pattern ends in the object, the beginning is the same for every candidate and falls out
when the scores are normalised: only the continuation counts, the closing punctuation included, so
that a word does not win because it is the beginning of a longer one. The tokenizer sees whole
sentences, so every candidate has just the tokens that it would have in running text, however many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.errors import ConsilienceError
from consilience.models.batches import Budget, equal_length_batches, log_softmax
from consilience.models.trie import Trie
from consilience.models.words import (
    WordSheet,
    slot_anchor,
    vocabulary_words,
    with_golds,
    word_sheet,
)
from consilience.types import Candidates, Pattern, Query, Scores

QUERIES_AT_ONCE = 32
"""Queries of one pattern whose sentences share their beginnings."""

DOCUMENT_SEPARATORS = ("<|endoftext|>",)
"""Tokens that stood between documents in pre-training: where a sentence of its own begins."""

_PROBE = ("The cat sat down.", "The cat ran.", "A dog ran away.")
"""Sentences that a family must score alike in a trie and one by one for the trie to be used."""


class CausalModel:
    """A model that predicts the next token: GPT-2, Llama, GGUF files, ..."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        identity: dict[str, object],
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.identity = identity
        self.notes: list[str] = []
        self.start = _start_token(tokenizer, str(identity["model"]))
        self.identity["start_token"] = str(tokenizer.convert_ids_to_tokens(self.start))
        self._vocabulary: tuple[str, ...] | None = None
        self._sheets: dict[tuple[tuple[str, ...], str], WordSheet] = {}
        self.use_trie = self._trie_fits()
        if not self.use_trie:
            self.notes.append(
                "this family does not take a tree of sentences; each is scored by itself"
            )

    def score(self, queries: Sequence[Query], candidates: Candidates | None) -> Iterator[Scores]:
        """See ``LanguageModel.score``. The vocabulary is asked only where the object is last."""
        words: tuple[str, ...] = ()
        if candidates is None:
            self._vocabulary = self._vocabulary or vocabulary_words(self.tokenizer)
            words = with_golds(self._vocabulary, queries)
        by_pattern: defaultdict[Pattern, list[int]] = defaultdict(list)
        for row, query in enumerate(queries):
            by_pattern[query.pattern].append(row)
        for pattern, rows in by_pattern.items():
            for start in range(0, len(rows), QUERIES_AT_ONCE):
                rows_of: defaultdict[str, list[int]] = defaultdict(list)
                for row in rows[start : start + QUERIES_AT_ONCE]:
                    rows_of[queries[row].subject].append(row)
                if candidates is None:
                    yield from self._score_next_word(pattern, rows_of, words)
                else:
                    yield from self._score_sentences(pattern, rows_of, candidates.words)

    def _score_sentences(
        self, pattern: Pattern, rows_of: dict[str, list[int]], words: tuple[str, ...]
    ) -> Iterator[Scores]:
        texts = {
            subject: self._encode([pattern.fill(subject, word) for word in words])
            for subject in rows_of
        }
        fitting = []
        for subject, sentences in texts.items():
            # The start token is read too, a sentence's last token is not.
            if reason := self._why_not(max(map(len, sentences))):
                yield self._unasked(rows_of[subject], words, reason)
            else:
                fitting.append(subject)
        if not fitting:
            return
        reasons, same = self._alike(words)
        asked = [position for position, word in enumerate(words) if word not in reasons]
        wanted = [texts[subject][position] for subject in fitting for position in asked]
        sums = np.full((len(fitting), len(words)), np.nan)
        sums[:, asked] = self.sentence_logprob(wanted).reshape(len(fitting), len(asked))
        rows = [rows_of[subject] for subject in fitting]
        logprob = np.repeat(log_softmax(sums), [len(each) for each in rows], axis=0)
        yield Scores(np.concatenate(rows), words, logprob, reasons, same)

    def _alike(self, words: tuple[str, ...]) -> tuple[dict[str, str], npt.NDArray[np.int64]]:
        """Which words the tokenizer does not know or cannot tell from an earlier one."""
        reasons: dict[str, str] = {}
        same = np.arange(len(words))
        first: dict[tuple[int, ...], int] = {}
        for position, ids in enumerate(self._encode([f"x {word}" for word in words])):
            if self.tokenizer.unk_token_id in ids:
                reasons[words[position]] = "unknown to the tokenizer"
            elif first.setdefault(tuple(ids), position) != position:
                same[position] = first[tuple(ids)]
                reasons[words[position]] = f"the same tokens as '{words[same[position]]}'"
        return reasons, same

    def _score_next_word(
        self, pattern: Pattern, rows_of: dict[str, list[int]], words: tuple[str, ...]
    ) -> Iterator[Scores]:
        slots: defaultdict[str, list[tuple[str, list[int]]]] = defaultdict(list)
        for subject, rows in rows_of.items():
            left, _ = pattern.around_object(subject)
            (ids,) = self._encode([left.rstrip()])
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
                logits = self._logits([[self.start, *asked[each][1]] for each in batch])[:, -1]
                columns = torch.from_numpy(sheet.ids[sheet.asked]).to(logits.device)
                scores[np.ix_(batch, sheet.asked)] = logits[:, columns].float().cpu().numpy()
            own = [rows_of[subject] for subject, _ in asked]
            logprob = np.repeat(log_softmax(scores), [len(each) for each in own], axis=0)
            yield Scores(
                np.concatenate(own), words, logprob, sheet.reasons, sheet.same, sheet.tokens
            )

    def _sheet(self, words: tuple[str, ...], anchor: str) -> WordSheet:
        if (words, anchor) not in self._sheets:
            sheet = word_sheet(self.tokenizer, words, anchor, "strict", merge=True)
            self._sheets[words, anchor] = sheet
        return self._sheets[words, anchor]

    def _why_not(self, read: int) -> str | None:
        longest = getattr(self.model.config, "max_position_embeddings", None) or read
        return f"{read} tokens, and the model takes {longest}" if read > longest else None

    def _unasked(self, rows: list[int], words: tuple[str, ...], reason: str) -> Scores:
        nothing = np.full((len(rows), len(words)), np.nan)
        return Scores(np.asarray(rows), words, nothing, unasked=reason)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return encoded

    def sentence_logprob(self, sentences: list[list[int]]) -> npt.NDArray[np.float64]:
        """Log-probability (sentence,) of token sequences, each behind the start token."""
        if not self.use_trie:
            return self._one_by_one(sentences)
        logprob = np.empty(len(sentences))
        trie = Trie(self.start)
        held: list[int] = []
        for position in sorted(range(len(sentences)), key=sentences.__getitem__):
            if trie.full:
                logprob[held] = self._trie_logprob(trie)
                trie, held = Trie(self.start), []
            trie.add(sentences[position])
            held.append(position)
        if held:
            logprob[held] = self._trie_logprob(trie)
        return logprob

    @torch.inference_mode()
    def _trie_logprob(self, trie: Trie) -> npt.NDArray[np.float64]:
        """Log-probability (sentence,) of the sentences of a trie, in the order they were added."""
        device, dtype = self.model.device, self.model.dtype
        layout = trie.layout()
        hidden = torch.from_numpy(~layout.visible).to(device)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=device)
        mask.masked_fill_(hidden, torch.finfo(dtype).min)
        logits = self.model(
            input_ids=torch.from_numpy(layout.fed_ids).to(device)[None],
            position_ids=torch.from_numpy(layout.depths).to(device)[None],
            attention_mask=mask[None, None],
            use_cache=False,
        ).logits[0]
        total = torch.logsumexp(logits.float(), dim=-1)
        parents = torch.from_numpy(layout.parents).to(device)
        ids = torch.from_numpy(layout.ids).to(device)
        step = logits[parents, ids].float().cpu().double() - total[parents].cpu().double()
        return layout.path_sums(step.numpy())

    def _one_by_one(self, sentences: list[list[int]]) -> npt.NDArray[np.float64]:
        """The plain way: every sentence by itself, in batches of one length."""
        logprob = np.zeros(len(sentences))
        for batch in equal_length_batches([len(ids) for ids in sentences], Budget.of(self.model)):
            rows = [[self.start, *sentences[each]] for each in batch]
            logits = self._logits([row[:-1] for row in rows])
            targets = torch.tensor([row[1:] for row in rows], device=logits.device)
            total = torch.logsumexp(logits.float(), dim=-1)
            step = logits.gather(2, targets[..., None])[..., 0].float() - total
            logprob[batch] = step.cpu().double().sum(dim=1).numpy()
        return logprob

    @torch.inference_mode()
    def _logits(self, rows: list[list[int]]) -> torch.Tensor:
        """Logits (row, token, vocabulary) of rows of one length."""
        ids = torch.tensor(rows, device=self.model.device)
        logits: torch.Tensor = self.model(input_ids=ids, use_cache=False).logits
        return logits

    def _trie_fits(self) -> bool:
        """Whether this family gives sentences in a trie the scores that they have alone."""
        sentences = self._encode(list(_PROBE))
        self.use_trie = True
        try:
            in_trie = self.sentence_logprob(sentences)
        except (TypeError, ValueError, RuntimeError):
            return False
        # Half-precision sums differ in the last bits; a wrong mask or position differs by nats.
        tolerance = 1e-3 if self.model.dtype == torch.float32 else 0.3
        return bool(np.allclose(in_trie, self._one_by_one(sentences), rtol=0, atol=tolerance))


def _start_token(tokenizer: PreTrainedTokenizerBase, name: str) -> int:
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
        f"the tokenizer of '{name}' has no token that begins a text",
        expected="a beginning- or end-of-sequence token",
        todo="Use the tokenizer that the model was trained with.",
    )
