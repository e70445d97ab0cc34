"""Which token stands for a word where the object stands.

A tokenizer gives a word another token after a blank than at the start of a sentence or behind a
bracket. ``strict`` asks for the token that the word would really have in its place, and a word that
has none there takes no part. ``published`` follows ParaRel's released evaluation: always the form
after a blank, and of a word in several pieces the first piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from consilience.types import SEVERAL_TOKENS, Protocol, Query

AFTER_BLANK = " "


@dataclass(frozen=True, slots=True)
class WordSheet:
    """The words and, for each, its token id, or -1 and a reason why it has none.

    ``same`` (word,): the first word with the same token. ``cut`` counts the words that only their
    first piece stands for.
    """

    words: tuple[str, ...]
    ids: npt.NDArray[np.int64]
    same: npt.NDArray[np.int64]
    tokens: tuple[str | None, ...]
    reasons: dict[str, str]
    cut: int

    @property
    def asked(self) -> npt.NDArray[np.int64]:
        """Positions of the words that take part: those with a token, one for each token."""
        return np.flatnonzero((self.ids >= 0) & (self.same == np.arange(len(self.words))))


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
    """Token ids of every word behind ``anchor``; None for one that melts into it."""
    context = "x " if anchor == AFTER_BLANK else anchor
    head = encode(tokenizer, [context.rstrip()])[0] if context else []
    return [
        ids[len(head) :] if ids[: len(head)] == head else None
        for ids in encode(tokenizer, [context + word for word in words])
    ]


def word_sheet(
    tokenizer: PreTrainedTokenizerBase,
    words: tuple[str, ...],
    anchor: str,
    protocol: Protocol,
    *,
    merge: bool = False,
) -> WordSheet:
    """Look up every word behind ``anchor``.

    ``merge``: words with the same token are one, and the first speaks for all, as it always does
    under ``published``. Otherwise only the first takes part.
    """
    merge = merge or protocol == "published"
    pieces = pieces_in_place(tokenizer, words, anchor)
    ids = np.full(len(words), -1, dtype=np.int64)
    reasons: dict[str, str] = {}
    first: dict[int, int] = {}
    same = np.arange(len(words))
    cut = 0
    for position, (word, own) in enumerate(zip(words, pieces, strict=True)):
        if own is None:
            reasons[word] = f"melts into '{anchor}' on its left"
        elif not own:
            reasons[word] = "the tokenizer leaves nothing of it"
        elif protocol == "strict" and tokenizer.unk_token_id in own:
            reasons[word] = "unknown to the tokenizer"
        elif protocol == "strict" and len(own) > 1:
            shown = " ".join(tokenizer.convert_ids_to_tokens(own))
            reasons[word] = f"{SEVERAL_TOKENS} {len(own)} pieces ({shown})"
        elif not merge and own[0] in first:
            same[position] = first[own[0]]
            reasons[word] = f"the same token as '{words[first[own[0]]]}'"
        else:
            ids[position] = own[0]
            same[position] = first.setdefault(own[0], position)
            cut += len(own) > 1
    tokens = tuple(
        str(tokenizer.convert_ids_to_tokens(int(id_))) if id_ >= 0 else None for id_ in ids
    )
    return WordSheet(words, ids, same, tokens, reasons, cut)


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
