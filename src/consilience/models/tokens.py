"""Texts as tokens: what a tokenizer makes of candidates and chats, and what is checked of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2.exceptions import TemplateError

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.items import Floats, Ints
from consilience.core.schemas import SEVERAL_TOKENS
from consilience.core.text import listed
from consilience.types import Query, Scores

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


TODAY = """{%- macro strftime_now(format) -%}
{{- "2024-07-26" if "%m" in format else "26 Jul 2024" if "%b" in format else "26 July 2024" -}}
{%- endmacro -%}"""
"""The date of templates that write one (SmolLM3, gpt-oss, Llama 3.2), the same on all days."""

OF_TEMPLATES = (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError)
"""What a chat template raises."""

Turn = dict[str, str]  # The role and the content of a turn of a chat


def check_numbers(values: Any, dtype: object) -> None:
    """Raise if logits or log-probabilities, an array or a tensor, are NaN or infinite."""
    if 0 not in values.shape and not bool(abs(values).max() < math.inf):
        raise ConsilienceError(
            f"the model's logits are not numbers in {dtype}",
            expected="a dtype that holds what the model computes",
            todo="Use --dtype float32.",
        )


def check_ids(model: Any, tokenizer: Any, name: str) -> None:
    """Raise if the tokenizer gives ids that the model has no embedding for.

    Special tokens count if they are around every text, in the chat template, or the mask: several
    families have others that no text has (Gemma 3: images).
    """
    rows = getattr(model.get_input_embeddings(), "num_embeddings", math.inf)
    special, template = special_tokens(tokenizer), str(getattr(tokenizer, "chat_template", ""))
    asked = {*tokenizer("a")["input_ids"], tokenizer.mask_token_id}
    beyond = [
        token
        for token, id_ in tokenizer.get_vocab().items()
        if id_ >= rows and (token not in special or id_ in asked or token in template)
    ]
    if beyond:
        raise ConsilienceError(
            f"the tokenizer of '{name}' has {len(tokenizer)} tokens, the model {rows} embeddings: "
            f"none for '{min(beyond)}'",
            expected="the tokenizer that the model was trained with",
        )


def check_segments(model: Any, tokenizer: Any, name: str) -> None:
    """Raise if the tokenizer numbers the two texts of a pair as the model does not."""
    types = getattr(model.config, "type_vocab_size", None) or math.inf
    if max(tokenizer("a", "a").get("token_type_ids") or [0]) >= types:
        raise ConsilienceError(
            f"the tokenizer of '{name}' numbers the texts of a pair 0 and 1, and the model has "
            f"{types} type of text",
            expected="the tokenizer that the model was trained with",
        )


def special_tokens(tokenizer: Any) -> list[str]:
    """The special tokens, also those that have no name, as those of a turn often have none."""
    added = tokenizer.added_tokens_decoder.values()
    of_turns = (str(token.content) for token in added if token.special)
    return [*dict.fromkeys([*tokenizer.all_special_tokens, *of_turns])]


def before_texts(tokenizer: Any) -> list[int]:
    """The tokens that the tokenizer puts before every text."""
    whole: list[int] = list(tokenizer("a")["input_ids"])
    plain = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    sizes = range(len(whole) - len(plain) + 1)
    return next((whole[:size] for size in sizes if whole[size : size + len(plain)] == plain), [])


def unusable(tokenizer: Any, ids: Sequence[int]) -> str | None:
    """Why these tokens cannot represent a candidate or an option; None if they can."""
    if not ids:
        return "the tokenizer leaves nothing of it"
    if tokenizer.unk_token_id in ids:
        return "unknown to the tokenizer"
    return None


def rendered(tokenizer: Any, turns: Sequence[Turn], name: str, *, is_asked: bool) -> str:
    """A chat in the form of the model's template; ``is_asked``: an answer is to follow.

    A template that leaves out the text of a turn gets lists of parts instead of texts, as templates
    of models for images want them; one that refuses a turn, or leaves it out even so, raises. A
    system prompt that is a switch (``/no_think``) need not be in the chat if the chat differs by
    it, nor the last turn unless it is asked.
    """
    options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": is_asked}
    texts, problem = [turn["content"] for turn in turns], ""
    for contents in (texts, [[{"type": "text", "text": text}] for text in texts]):
        chat = [{**turn, "content": one} for turn, one in zip(turns, contents, strict=True)]
        try:
            if "strftime_now" in (template := tokenizer.get_chat_template()):
                options["chat_template"] = TODAY + template
            joined = str(tokenizer.apply_chat_template(chat, **options))
            needed = turns if is_asked else turns[-2:-1]
            absent = [turn["role"] for turn in needed if turn["content"].strip() not in joined]
            if absent == ["system"]:
                is_read = joined != tokenizer.apply_chat_template(chat[1:], **options)
                absent = [] if is_read else absent
            if not absent:
                return joined
            problem = problem or f"leaves out the turn of the {absent[0]}"
        except OF_TEMPLATES as error:
            kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
            problem = problem or f"refuses the prompt: {kind}{error}"
    has_system = turns[0]["role"] == "system"
    raise ConsilienceError(
        f"the chat template of '{name}' {problem}",
        todo="Write the system prompt into the template, before {question}." if has_system else "",
    )


NAMED = 3  # Candidates of several tokens that a note names
DOCUMENT_SEPARATOR = "<|endoftext|>"  # A sentence alone begins after one


@dataclass(frozen=True, slots=True)
class CandidateTokens:
    """The tokens of candidates in one slot."""

    words: tuple[str, ...]  # The candidates
    tokens: tuple[tuple[int, ...], ...]  # The token ids of each candidate; empty if it is excluded
    same: Ints  # (candidate,) Position of the first candidate with the same tokens
    reasons: Mapping[str, str]  # Why a candidate is excluded, by candidate
    entries: tuple[str | None, ...] | None = None  # Of candidates of one token
    several: tuple[str, ...] = ()  # Of several tokens that take part; `published` keeps the first

    @property
    def scored(self) -> Ints:
        """Positions of the candidates that are scored, one for each sequence of tokens."""
        known = [len(ids) > 0 for ids in self.tokens]
        return np.flatnonzero(np.array(known, bool) & (self.same == np.arange(len(self.words))))

    @property
    def sequences(self) -> list[list[int]]:
        return [list(self.tokens[position]) for position in self.scored]

    @property
    def first_tokens(self) -> Ints:
        """(candidate,) The first token id; -1 for an excluded candidate."""
        return np.array([ids[0] if ids else -1 for ids in self.tokens], dtype=np.int64)

    @property
    def longest(self) -> int:
        """Tokens of the longest candidate; at least 1."""
        return max([1, *map(len, self.tokens)])

    def scatter(self, values: Floats) -> Floats:
        """``values`` (row, scored) in columns of all candidates (row, candidate); NaN elsewhere."""
        every = np.full((len(values), len(self.words)), np.nan)
        every[:, self.scored] = values
        return every

    def index_of_scored(self) -> dict[str, int]:
        return {self.words[position]: at for at, position in enumerate(self.scored.tolist())}


@dataclass(eq=False)
class CandidateLookup:
    """Finds the tokens of candidates for one model and remembers them."""

    tokenizer: PreTrainedTokenizerBase
    protocol: Protocol
    notes: list[str]  # Receives what a reader should know
    several: bool = False  # See ``candidates_in_slot``
    known: dict[tuple[tuple[str, ...], str], CandidateTokens] = field(default_factory=dict)

    def in_slot(
        self, words: tuple[str, ...], anchor: str, *, merge: bool = False
    ) -> CandidateTokens:
        if (words, anchor) not in self.known:
            tokenized = self.known[words, anchor] = candidates_in_slot(
                self.tokenizer, words, anchor, self.protocol, several=self.several, merge=merge
            )
            rule = "they are filled in from left to right (PLL-word-l2r)"
            if self.protocol == "published":
                rule = "their first piece represents them, as in the released code"
            if split := tokenized.several:
                named = f"{len(split)} of {len(words)} candidates ({listed(split, NAMED)})"
                self.notes.append(f"{named} are several tokens; {rule}")
        return self.known[words, anchor]

    @cached_property
    def whole_words(self) -> list[str]:
        """Every word that is one token after a space, by token id; no special tokens or parts."""
        special = set(self.tokenizer.all_special_ids)
        ids = [id_ for id_ in range(len(self.tokenizer)) if id_ not in special]
        words = [word.strip() for word in self.tokenizer.batch_decode([[id_] for id_ in ids])]
        head, *encoded = encode(self.tokenizer, ["x", *("x " + word for word in words)])
        both = zip(ids, words, encoded, strict=True)
        return [word for id_, word, tokens in both if word and tokens == [*head, id_]]

    def vocabulary(self, queries: Iterable[Query]) -> tuple[str, ...]:
        """The whole words and the golds that are spelt otherwise there (``Rome``, not ``rome``)."""
        return tuple(dict.fromkeys((*self.whole_words, *(query.gold for query in queries))))


def distinct_candidates(
    words: tuple[str, ...],
    tokens: Sequence[Sequence[int]],
    reasons: Mapping[str, str],
    *,
    merge: bool = False,
) -> CandidateTokens:
    """Candidates that differ in their ``tokens``.

    ``reasons``: why some are excluded. Of several with the same tokens only the first takes part;
    with ``merge`` all do, and they share one score.
    """
    reasons, first = dict(reasons), dict[tuple[int, ...], int]()
    kept, same = list[tuple[int, ...]](), np.arange(len(words))
    for position, (word, ids) in enumerate(zip(words, tokens, strict=True)):
        kept.append(() if word in reasons else tuple(ids))
        if kept[-1]:
            same[position] = first.setdefault(kept[-1], position)
            if same[position] != position and not merge:
                plural = "s" * (len(kept[-1]) > 1)
                reasons[word] = f"the same token{plural} as '{words[same[position]]}'"
                kept[-1] = ()
    return CandidateTokens(words, tuple(kept), same, reasons)


def candidates_after_space(
    tokenizer: PreTrainedTokenizerBase, words: tuple[str, ...]
) -> CandidateTokens:
    """The tokens of ``x`` and each word; a word that the tokenizer does not know is excluded."""
    head, *tokens = encode(tokenizer, ["x", *(f"x {word}" for word in words)])
    both = zip(words, tokens, strict=True)
    why = {word: unusable(tokenizer, ids[len(head) :]) for word, ids in both}
    return distinct_candidates(words, tokens, {word: one for word, one in why.items() if one})


def slot_anchor(left: str, protocol: Protocol) -> str:
    """The character on the left of a slot: a space for any white space, empty at the start."""
    return " " if protocol == "published" or left[-1:].isspace() else left[-1:]


def candidates_in_slot(
    tokenizer: PreTrainedTokenizerBase,
    words: tuple[str, ...],
    anchor: str,
    protocol: Protocol,
    *,
    several: bool = False,
    merge: bool = False,
) -> CandidateTokens:
    """The tokens of every word after ``anchor``.

    ``several``: under ``strict``, words of several tokens take part. ``merge``: words with the same
    tokens share one score (``distinct_candidates``), as they always do under ``published``.
    """
    is_strict, reasons, tokens = protocol == "strict", dict[str, str](), list[list[int]]()
    context = "x " if anchor == " " else anchor
    head = encode(tokenizer, [context.rstrip()])[0] if context else []
    for word, whole in zip(words, encode(tokenizer, [context + one for one in words]), strict=True):
        is_merged = whole[: len(head)] != head
        tokens.append([] if is_merged else whole[len(head) :])
        if is_merged:
            reasons[word] = f"merged with '{anchor}' on its left"
        elif (reason := unusable(tokenizer, tokens[-1])) and (is_strict or not tokens[-1]):
            reasons[word] = reason
        elif is_strict and len(tokens[-1]) > 1 and not several:
            pieces = " ".join(tokenizer.convert_ids_to_tokens(tokens[-1]))
            reasons[word] = f"{SEVERAL_TOKENS} {len(tokens[-1])} pieces ({pieces})"
    both = zip(words, tokens, strict=True)
    split = tuple(word for word, ids in both if len(ids) > 1 and word not in reasons)
    chosen = tokens if is_strict else [ids[:1] for ids in tokens]
    tokenized = distinct_candidates(words, chosen, reasons, merge=merge or not is_strict)
    entries = tuple(
        str(tokenizer.convert_ids_to_tokens(ids[0])) if len(ids) == 1 else None
        for ids in tokenized.tokens
    )
    return replace(tokenized, entries=entries, several=split)


def start_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """What precedes a sentence's first token, so that this one has a probability too.

    The token that the tokenizer itself puts there; else the separator of documents, which the
    families that put nothing there were trained with; else its beginning or end of sequence.
    """
    if before := before_texts(tokenizer):
        return before[0]
    vocabulary = tokenizer.get_vocab()
    for token in (DOCUMENT_SEPARATOR, tokenizer.bos_token, tokenizer.eos_token):
        if token in vocabulary:
            return int(vocabulary[token])
    raise ConsilienceError(
        f"the tokenizer of '{tokenizer.name_or_path}' has no token that begins a text",
        expected="a beginning- or end-of-sequence token",
        todo="Use the tokenizer that the model was trained with.",
    )


def encode(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool = False
) -> list[list[int]]:
    """Token ids of texts of any length; ``special``: with the model's special tokens around them.

    A call of the tokenizer spends most of its time on fields that are not needed here. One such
    call sets padding and truncation off; the backend then gives the same ids.
    """
    if not texts:
        return []
    some = list(texts[:1] if tokenizer.is_fast else texts)
    ids: list[list[int]] = tokenizer(some, add_special_tokens=special, verbose=False)["input_ids"]
    if not tokenizer.is_fast:
        return ids
    encoded = tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=special)
    return [encoding.ids for encoding in encoded]


def too_long(tokens: int, longest: int | None) -> str | None:
    """Why a model of ``longest`` tokens, None for any number, does not take so many; or None."""
    is_long = longest is not None and tokens > longest
    return f"{tokens} tokens, and the model takes {longest}" if is_long else None


def excluded(rows: Sequence[int], words: tuple[str, ...], reason: str) -> Scores:
    """The scores of queries that the model cannot be asked: all NaN, with the reason."""
    nothing = np.full((len(rows), len(words)), np.nan)
    return Scores(np.asarray(rows, dtype=np.int64), words, nothing, unasked=reason)


def scores_of(
    rows: Sequence[Sequence[int]],
    values: Floats,
    tokenized: CandidateTokens,
    *,
    are_totals: bool = False,
    every: bool = True,
) -> Scores:
    """Scores from logits or log-probabilities (input, candidate), normalised over the candidates.

    ``rows``: the queries of each input. ``are_totals``: the values are log-probabilities of whole
    texts, which are part of the scores. ``every`` False: only some candidates have a value.
    """
    values = np.repeat(values, [len(queries) for queries in rows], axis=0)
    return Scores(
        np.concatenate(rows),
        tokenized.words,
        log_softmax(values) if every else None,
        tokenized.reasons,
        tokenized.same,
        tokenized.entries,
        totals=values if are_totals else None,
    )


def log_softmax(logits: Floats) -> Floats:
    """Normalise ``logits`` (row, candidate) over the candidates; NaN stays NaN."""
    known = np.where(np.isnan(logits), -np.inf, logits)
    return np.asarray(logits - np.logaddexp.reduce(known, axis=1, keepdims=True))
