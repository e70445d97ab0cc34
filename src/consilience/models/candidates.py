"""The tokens of candidates: what stands for a word in its place, and which words take part.

A tokenizer gives a word another token after a space than at the start of a sentence or after a
bracket. ``strict`` takes the tokens that the word really has in its place; a word that has none
there takes no part. ``published`` follows ParaRel's released evaluation: always the form after a
space, and of a word of several tokens the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from consilience.types import SEVERAL_TOKENS, Protocol, Query

AFTER_BLANK = " "


@dataclass(frozen=True, slots=True)
class CandidateTokens:
    """The tokens of candidates in one place."""

    words: tuple[str, ...]
    """The candidates."""
    tokens: tuple[tuple[int, ...], ...]
    """The token ids of each candidate; empty where it takes no part."""
    same: npt.NDArray[np.int64]
    """(candidate,) Position of the first candidate with the same tokens."""
    reasons: Mapping[str, str]
    """Why a candidate takes no part, by candidate."""
    entries: tuple[str | None, ...] | None = None
    """The vocabulary entry of each candidate that is one token."""
    truncated: int = 0
    """How many candidates only their first token stands for."""

    @property
    def scored(self) -> npt.NDArray[np.int64]:
        """Positions of the candidates that are scored, one for each sequence of tokens."""
        known = [len(own) > 0 for own in self.tokens]
        return np.flatnonzero(np.array(known, bool) & (self.same == np.arange(len(self.words))))

    @property
    def first_tokens(self) -> npt.NDArray[np.int64]:
        """(candidate,) The first token id; -1 where the candidate takes no part."""
        return np.array([own[0] if own else -1 for own in self.tokens], dtype=np.int64)

    @property
    def longest(self) -> int:
        """Tokens of the longest candidate that takes part; 1 at least."""
        return max([1, *map(len, self.tokens)])


def distinct_candidates(
    words: tuple[str, ...],
    tokens: Sequence[Sequence[int]],
    reasons: Mapping[str, str],
    *,
    merge: bool = False,
) -> CandidateTokens:
    """Candidates that can be told from each other by their ``tokens``.

    ``reasons``: why some take no part. Of several with the same tokens only the first takes part;
    with ``merge`` they are one, and its score is that of all.
    """
    reasons = dict(reasons)
    kept: list[tuple[int, ...]] = []
    first: dict[tuple[int, ...], int] = {}
    same = np.arange(len(words))
    for position, (word, ids) in enumerate(zip(words, tokens, strict=True)):
        own = () if word in reasons else tuple(ids)
        if own:
            same[position] = first.setdefault(own, position)
            if same[position] != position and not merge:
                several = "s" * (len(own) > 1)
                reasons[word] = f"the same token{several} as '{words[same[position]]}'"
                own = ()
        kept.append(own)
    return CandidateTokens(words, tuple(kept), same, reasons)


def slot_anchor(left: str, protocol: Protocol) -> str:
    """What decides the form of a word: the character on its left, blank for any white space.

    The empty string is the start of the sentence.
    """
    if protocol == "published" or left[-1:].isspace():
        return AFTER_BLANK
    return left[-1:]


def pieces_in_place(
    tokenizer: PreTrainedTokenizerBase, words: tuple[str, ...], anchor: str
) -> list[list[int] | None]:
    """Token ids of every word after ``anchor``; None for one that merges with it."""
    context = "x " if anchor == AFTER_BLANK else anchor
    head = encode(tokenizer, [context.rstrip()])[0] if context else []
    return [
        ids[len(head) :] if ids[: len(head)] == head else None
        for ids in encode(tokenizer, [context + word for word in words])
    ]


def candidates_in_place(
    tokenizer: PreTrainedTokenizerBase,
    words: tuple[str, ...],
    anchor: str,
    protocol: Protocol,
    *,
    several: bool = False,
    merge: bool = False,
) -> CandidateTokens:
    """Look up every word after ``anchor``.

    ``several``: under ``strict``, words of several tokens take part. ``merge``: words with the same
    tokens are one (``distinct_candidates``), as they always are under ``published``.
    """
    is_strict = protocol == "strict"
    reasons: dict[str, str] = {}
    tokens: list[list[int]] = []
    for word, ids in zip(words, pieces_in_place(tokenizer, words, anchor), strict=True):
        if ids is None:
            reasons[word] = f"merges with '{anchor}' on its left"
        elif not ids:
            reasons[word] = "the tokenizer leaves nothing of it"
        elif is_strict and tokenizer.unk_token_id in ids:
            reasons[word] = "unknown to the tokenizer"
        elif is_strict and len(ids) > 1 and not several:
            shown = " ".join(tokenizer.convert_ids_to_tokens(ids))
            reasons[word] = f"{SEVERAL_TOKENS} {len(ids)} pieces ({shown})"
        tokens.append(ids or [])
    truncated = 0
    if not is_strict:
        truncated = sum(len(ids) > 1 for ids in tokens)
        tokens = [ids[:1] for ids in tokens]
    found = distinct_candidates(words, tokens, reasons, merge=merge or not is_strict)
    entries = tuple(
        str(tokenizer.convert_ids_to_tokens(own[0])) if len(own) == 1 else None
        for own in found.tokens
    )
    return replace(found, entries=entries, truncated=truncated)


def with_golds(vocabulary: tuple[str, ...], queries: Iterable[Query]) -> tuple[str, ...]:
    """The vocabulary and the golds that are not spelt so in it (``Rome`` where it has ``rome``)."""
    return tuple(dict.fromkeys((*vocabulary, *(query.gold for query in queries))))


def vocabulary_words(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Every word that is one token after a blank, in the order of token ids.

    Special tokens, parts of words and bytes are not among them.
    """
    special = set(tokenizer.all_special_ids)
    ids = [id_ for id_ in range(len(tokenizer)) if id_ not in special]
    words = [word.strip() for word in tokenizer.batch_decode([[id_] for id_ in ids])]
    pieces = encode(tokenizer, ["x " + word for word in words])
    head = encode(tokenizer, ["x"])[0]
    kept: dict[str, None] = {}
    for id_, word, own in zip(ids, words, pieces, strict=True):
        if word and own == [*head, id_]:
            kept[word] = None
    return tuple(kept)


def count_pieces(tokenizer: PreTrainedTokenizerBase, word: str) -> int:
    """How many tokens a word that follows a blank has (the paper's vocabulary filter)."""
    head, own = encode(tokenizer, ["x", f"x {word}"])
    return len(own) - len(head)


def encode(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool = False
) -> list[list[int]]:
    """Token ids of texts, of any length; ``special`` with what the model wants around a text.

    A tokenizer's own call spends most of its time on what nobody asks for here; once it has seen
    to its settings (no padding, no truncation), what it calls itself gives the same ids.
    """
    options = {
        "add_special_tokens": special,
        "return_attention_mask": False,
        "return_token_type_ids": False,
    }
    if not tokenizer.is_fast or not texts:
        called: list[list[int]] = tokenizer(list(texts), **options)["input_ids"] if texts else []
        return called
    tokenizer(texts[0], **options)
    encoded = tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=special)
    return [each.ids for each in encoded]
