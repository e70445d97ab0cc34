"""Strategies: how a server is asked for the log-probability of given tokens.

A strategy makes requests of token ids and reads replies. ``whole`` gives the log-probability of all
tokens of a continuation, ``first`` those of several tokens as the next one. Each is proved
(``scorer.py``) before it is used, and a reply that lacks what a field asks for raises
``UnprovedError`` with the name of the field. docs/endpoints.md says which servers have which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from consilience.core.errors import ConsilienceError, unknown_name

Ids = Sequence[int]
Body = dict[str, Any]
Piece = Callable[[int], str]
"""The text of a token; empty where it is not known."""

EXACT = "exact"
"""What strategies give that have the value of every token."""

TOLERANCE = 1e-3
"""By how many nats a log-probability may be above 0, and a sum of probabilities above 1."""

BROKEN = "\ufffd"
"""In the text of a token that is part of a character, which does not say which token it is."""


class UnprovedError(Exception):
    """A server does not do what a field asks for."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(f"'{field}': {problem}")


class UnprovedServerError(ConsilienceError):
    """No strategy is proved for a server. ``reasons``: why not, by the name of the strategy."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        tried = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        super().__init__(
            f"the server gives no log-probabilities of given texts ({tried})",
            expected="a server in the table of docs/endpoints.md",
            todo="Questions: add --generate, and the model writes its answers. Facts: add "
            "--as-questions 3, with --generate if that is refused, too.",
        )


@dataclass(frozen=True, slots=True)
class Known:
    """Log-probabilities by token id; no other has one above ``bound`` (None: all are here)."""

    values: Mapping[int, float]
    bound: float | None


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a server is asked for log-probabilities.

    ``gives``: what a reader of the scores should know. ``field``: that of a request on which it
    rests. ``is_censored``: whether some tokens have only a bound.

    ``whole`` makes the request for continuations of a prefix, and ``read_whole`` reads their
    log-probabilities; without these ``first`` is repeated, which makes the request for the next
    token after a prefix, among wanted ones, that ``read_first`` reads.

    ``is_native``: whether it is llama.cpp's own route. There requests that differ in their prompt
    only are sent as one. The request for the next token writes one that nobody reads, a letter that
    is forced: there are no log-probabilities if it is a part of a character.
    """

    name: str
    gives: str
    field: str
    path: str = "completions"
    whole: Callable[[Ids, Sequence[Ids]], Body] | None = None
    read_whole: Callable[[Any, Ids, Sequence[Ids], Piece], list[float]] | None = None
    first: Callable[[Ids, Ids], Body] | None = None
    read_first: Callable[[Any, Ids, Piece], Known] | None = None
    is_native: bool = False
    is_censored: bool = False


T = TypeVar("T")


def _part(
    reply: Any, name: str, kind: type[T], field: str, problem: str = "the server ignored it"
) -> T:
    """A part of a reply; without it the server does not do what ``field`` asks for."""
    value = reply.get(name) if isinstance(reply, Mapping) else None
    if not isinstance(value, kind):
        raise UnprovedError(field, problem)
    return value


def _choices(reply: Any, size: int) -> list[Mapping[str, Any]]:
    """The choices of a reply to ``size`` prompts, in their order."""
    choices = _part(reply, "choices", list, "prompt", f"no choices for {size} prompts")
    if len(choices) != size:
        raise UnprovedError("prompt", f"{len(choices)} choices for {size} prompts")
    if not all(isinstance(choice, Mapping) for choice in choices):
        raise UnprovedError("choices", "a choice that is no object")
    try:
        return sorted(choices, key=lambda choice: int(choice.get("index", 0)))
    except (TypeError, ValueError) as error:
        raise UnprovedError("index", "a choice without a number") from error


def _number(value: Any, field: str) -> float:
    """A log-probability: finite, because no next token of a model is impossible."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UnprovedError(field, f"{value!r} in place of a log-probability")
    if value > TOLERANCE:
        raise UnprovedError(field, f"a log-probability of {value:g}, above 0")
    return float(value)


def _continued(**fields: Any) -> Callable[[Ids, Sequence[Ids]], Body]:
    def ask(prefix: Ids, targets: Sequence[Ids]) -> Body:
        prompts = [[*prefix, *target] for target in targets]
        return {"prompt": prompts, "max_tokens": 1, "temperature": 0, **fields}

    return ask


def _read_prompt_logprobs(
    reply: Any, prefix: Ids, targets: Sequence[Ids], piece: Piece
) -> list[float]:
    field, totals = "prompt_logprobs", []
    for choice, target in zip(_choices(reply, len(targets)), targets, strict=True):
        ids, entries = [*prefix, *target], _part(choice, field, list, field)
        if len(entries) != len(ids):
            problem = f"{len(entries)} entries for {len(ids)} tokens of a prompt"
            raise UnprovedError(field, problem)
        values = []
        for token, entry in zip(ids[1:], entries[1:], strict=True):
            value = _part(entry, str(token), dict, field, f"no entry of the token {token}")
            values.append(_number(value.get("logprob"), field))
        totals.append(sum(values[-len(target) :]))
    return totals


def _read_echo(reply: Any, prefix: Ids, targets: Sequence[Ids], piece: Piece) -> list[float]:
    totals = []
    expected = sum(len(prefix) + len(target) for target in targets)
    counts = reply.get("usage") if isinstance(reply, Mapping) else None
    read = counts.get("prompt_tokens") if isinstance(counts, Mapping) else None
    for choice, target in zip(_choices(reply, len(targets)), targets, strict=True):
        record, ids = _part(choice, "logprobs", dict, "logprobs"), [*prefix, *target]
        missing = "echo" if "content" in record else "logprobs"
        problem = "no list `token_logprobs`; the server ignored it"
        values = _part(record, "token_logprobs", list, missing, problem)
        if len(values) not in (len(ids), len(ids) + 1) or read not in (None, expected):
            problem = f"{len(values)} log-probabilities for {len(ids)} tokens of a prompt"
            ignored = " (it was ignored)" if len(values) <= 1 else ""
            raise UnprovedError("echo", problem + ignored)
        names = record.get("tokens")
        for name, token in zip(names if isinstance(names, list) else (), ids, strict=False):
            if _is_other(str(name), token, piece):
                raise UnprovedError("echo", f"the token '{name}' in place of {token} of the prompt")
        totals.append(sum(_number(value, "echo") for value in values[len(prefix) : len(ids)]))
    return totals


def _is_other(name: str, token: int, piece: Piece) -> bool:
    """Whether a reply names another token; of texts only words, which all servers write alike."""
    if name.startswith("token_id:"):
        return name != f"token_id:{token}"
    word, sent = name.strip(" \u0120\u2581"), piece(token).strip()
    return word != sent and all(one.isascii() and one.isalnum() for one in (word, sent))


REPLY_FIELDS = (
    "index", "completion_probabilities", "tokens_evaluated", "tokens_predicted", "timings",
)  # fmt: skip
"""What llama.cpp is asked to reply; the rest, a copy of all settings, is four times as long."""

MOST_LIKELY = 256
"""Next tokens that llama.cpp is asked for. More take longer to write than the others alone."""

ALL_TOKENS = {"n_probs": 1_000_000}
"""In a request to llama.cpp: the log-probabilities of all next tokens."""

FORCED = 1000
"""The bias, in nats, of the only token that may be written."""


def _native(prefix: Ids, size: int, probabilities: int) -> Body:
    """A request to llama.cpp's own route: greedy, with the ids of the tokens in the reply."""
    return {
        "prompt": list(prefix), "n_predict": size, "temperature": 0, "samplers": [],
        "cache_prompt": True, "response_fields": REPLY_FIELDS, "n_probs": probabilities,
    }  # fmt: skip


def _native_entries(reply: Any) -> list[Mapping[str, Any]]:
    entries = _part(reply, "completion_probabilities", list, "n_probs")
    if not all(isinstance(entry, Mapping) for entry in entries):
        raise UnprovedError("n_probs", "the server ignored it")
    return entries


def _ask_forced(prefix: Ids, targets: Sequence[Ids]) -> Body:
    """One token by its bias, several by a grammar of tokens; a grammar of texts is inexact."""
    (target,) = targets
    body = _native(prefix, len(target), 1)
    if len(target) == 1:
        return body | {"logit_bias": [[target[0], FORCED]]}
    tokens = " ".join(f"<[{token}]>" for token in target)
    return body | {"grammar": f"root ::= {tokens}"}


def _read_forced(reply: Any, prefix: Ids, targets: Sequence[Ids], piece: Piece) -> list[float]:
    (target,), entries = targets, _native_entries(reply)
    written = [entry.get("id") for entry in entries]
    if written != list(target):
        field = "logit_bias" if len(target) == 1 else "grammar"
        raise UnprovedError(field, f"the tokens {written} in place of {list(target)}")
    return [sum(_number(entry.get("logprob"), "n_probs") for entry in entries)]


def _read_most_likely(reply: Any, wanted: Ids, piece: Piece) -> Known:
    entries = _native_entries(reply)
    if len(entries) != 1:
        raise UnprovedError("n_probs", "the server ignored it")
    top = _part(entries[0], "top_logprobs", list, "n_probs", "no list `top_logprobs`")
    if not all(isinstance(entry, Mapping) for entry in top):
        raise UnprovedError("n_probs", "no list `top_logprobs`")
    values = {entry.get("id"): _number(entry.get("logprob"), "n_probs") for entry in top}
    return _among(values, wanted, min(values.values(), default=0.0))


def _among(values: Mapping[Any, float], wanted: Ids, bound: float) -> Known:
    """What is known of wanted tokens; ``bound`` of the others."""
    known = {token: values[token] for token in wanted if token in values}
    return Known(known, None if len(known) == len(set(wanted)) else bound)


def _next_token(prefix: Ids, **fields: Any) -> Body:
    ids = {"return_tokens_as_token_ids": True}
    return {"prompt": list(prefix), "max_tokens": 1, "temperature": 0, **ids, **fields}


def _read_label_ids(reply: Any, wanted: Ids, piece: Piece) -> Known:
    known = _among(_top(reply, wanted, piece)[0], wanted, 0.0)
    if known.bound is not None:
        missing = next(token for token in wanted if token not in known.values)
        raise UnprovedError("logprob_token_ids", f"no value of the token {missing}; it was ignored")
    return known


def _top(reply: Any, wanted: Ids, piece: Piece) -> tuple[dict[int, float], list[tuple[str, float]]]:
    """The wanted tokens among the next ones that a reply lists, and all of these by their text."""
    (choice,) = _choices(reply, 1)
    entries = named_tokens(_part(choice, "logprobs", dict, "logprobs"))
    ids = {f"token_id:{token}": token for token in wanted}
    if not any(name.startswith("token_id:") for name, _ in entries):
        pieces = {token: piece(token) for token in wanted}
        readable = {token: text for token, text in pieces.items() if BROKEN not in text}
        ids = {text: token for token, text in readable.items()}
        if len(ids) < len(readable):
            raise UnprovedError("return_tokens_as_token_ids", "two tokens with the same text")
    known = {ids[name]: value for name, value in entries if name in ids and BROKEN not in name}
    return known, entries


def named_tokens(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The texts and values of next tokens in a record ``logprobs`` of completions or chats."""
    content = record.get("content")
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        top = content[0].get("top_logprobs")
        entries = top if isinstance(top, list) else []
        pairs = [(entry.get("token"), entry.get("logprob")) for entry in entries]
    else:
        tops = record.get("top_logprobs")
        first = tops[0] if isinstance(tops, list) and tops else None
        if not isinstance(first, Mapping):
            raise UnprovedError("logprobs", "no list `top_logprobs`")
        pairs = list(first.items())
    return [(str(name), _number(value, "top_logprobs")) for name, value in pairs]


def bound_of(entries: Sequence[tuple[str, float]], size: int) -> float:
    """What no token exceeds that is not listed: the smallest of the ``size`` largest values.

    Fewer entries than ``size`` raise, and so do probabilities with a sum above 1. A token without a
    readable text may be any; several of these may be listed as one.
    """
    broken = [value for name, value in entries if BROKEN in name]
    if len(entries) < size and not broken:
        raise UnprovedError("logprobs", f"{len(entries)} tokens where {size} were asked for")
    largest = sorted((value for _, value in entries), reverse=True)[:size]
    total = sum(map(math.exp, largest))
    if total > 1 + TOLERANCE:
        raise UnprovedError("logprobs", f"probabilities with a sum of {total:.3f}")
    return max([largest[-1], *broken])


def top_k(size: int) -> Strategy:
    """The strategy that reads the ``size`` most probable tokens; others have a bound."""

    def read(reply: Any, wanted: Ids, piece: Piece) -> Known:
        values, entries = _top(reply, wanted, piece)
        return _among(values, wanted, bound_of(entries, size))

    return Strategy(
        "top-k",
        f"a bound for tokens that are not among the {size} most probable",
        "logprobs",
        first=lambda prefix, wanted: _next_token(prefix, logprobs=size),
        read_first=read,
        is_censored=True,
    )


STRATEGIES: Mapping[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy(
            "prompt-logprobs", EXACT, "prompt_logprobs",
            whole=_continued(prompt_logprobs=1), read_whole=_read_prompt_logprobs,
        ),
        Strategy(
            "echo", EXACT, "echo",
            whole=_continued(echo=True, logprobs=1, return_tokens_as_token_ids=True),
            read_whole=_read_echo,
        ),
        Strategy(
            "forced-tokens", EXACT, "logit_bias", "/completion",
            whole=_ask_forced, read_whole=_read_forced,
            first=lambda prefix, wanted: _native(prefix, 1, MOST_LIKELY),
            read_first=_read_most_likely, is_native=True,
        ),
        Strategy(
            "label-ids", EXACT, "logprob_token_ids",
            first=lambda prefix, wanted: _next_token(
                prefix, logprobs=1, logprob_token_ids=list(dict.fromkeys(wanted))
            ),
            read_first=_read_label_ids,
        ),
        top_k(20),
    )
}  # fmt: skip
"""The strategies by name, in the order in which they are tried."""

CHAT_TOP_K, ANSWERS_ONLY = "chat-top-k", "answers-only"
"""Strategies of chats, of questions with options: the first tokens, and answers without scores."""


def strategy_named(name: str) -> Strategy:
    """The strategy of that name; an unknown one raises, and one of chats."""
    if name in (CHAT_TOP_K, ANSWERS_ONLY):
        raise ConsilienceError(
            f"--scoring {name}, which asks questions with options in chats",
            expected=", ".join(STRATEGIES),
            todo="Ask facts as questions: add --as-questions 3.",
        )
    if name not in STRATEGIES:
        known = [*STRATEGIES, CHAT_TOP_K, ANSWERS_ONLY]
        raise unknown_name(f"no scoring strategy '{name}'", name, known)
    return STRATEGIES[name]
