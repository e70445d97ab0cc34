"""Scores of a server: which strategy it proves, and as few requests as they need."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from consilience.core.errors import ConsilienceError
from consilience.core.items import group_rows
from consilience.endpoints.client import Refused
from consilience.endpoints.server import ABSENT, MARKED, Server

Ids = Sequence[int]
Body = dict[str, Any]
Piece = Callable[[int], str]  # The text of a token; empty where it is not known
ReadWhole = Callable[[Any, Ids, Sequence[Ids], Piece], list[float]]
EXACT = "exact"  # What strategies give that have the value of every token
TOLERANCE = 1e-3  # How far a log-probability may be above 0, and a sum above 1
BROKEN = "\ufffd"  # In the text of a token that is part of a character


class UnprovedError(Exception):
    """A server does not do what a field asks for."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"'{field}': {problem}")


class UnprovedServerError(ConsilienceError):
    """No strategy is proved for a server. ``reasons``: why not, by the name of the strategy."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        tried = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        found = f"the server gives no log-probabilities of given texts ({tried})"
        todo = "Questions: add --generate, and the model writes its answers. Facts: add "
        todo += "--as-questions 3, with --generate if that is refused, too."
        super().__init__(found, expected="a server in the table of docs/endpoints.md", todo=todo)


@dataclass(frozen=True, slots=True)
class Known:
    """Log-probabilities by token id; no other has one above ``bound`` (None: all are here)."""

    values: Mapping[int, float]
    bound: float | None


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a server is asked for log-probabilities.

    ``field``: that of a request on which it rests. ``whole``: how the request for continuations of
    a prefix is made, and how their log-probabilities are read; ``first``: the same of the next
    token among wanted ones.

    ``is_native``: whether it is llama.cpp's own route. There requests that differ in their prompt
    only are sent as one. The request for the next token writes one that nobody reads, a letter that
    is forced: there are no log-probabilities if it is a part of a character.
    """

    name: str
    field: str
    whole: tuple[Callable[[Ids, Sequence[Ids]], Body], ReadWhole]
    path: str = "completions"
    first: tuple[Callable[[Ids, Ids], Body], Callable[[Any, Ids, Piece], Known]] | None = None
    is_native: bool = False


@contextmanager
def rests_on(field: str) -> Iterator[None]:
    """Inside, a reply that lacks what a field of the request asks for raises ``UnprovedError``."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UnprovedError(field, "the server ignored it, or replied in another form") from error


def _choices(reply: Any) -> list[Any]:
    return sorted(reply["choices"], key=lambda choice: int(choice.get("index", 0)))


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


@rests_on("prompt_logprobs")
def _read_prompt_logprobs(
    reply: Any, prefix: Ids, targets: Sequence[Ids], piece: Piece
) -> list[float]:
    totals = []
    for choice, target in zip(_choices(reply), targets, strict=True):
        ids, entries = [*prefix, *target], choice["prompt_logprobs"]
        values = [
            _number(entry[str(token)]["logprob"], "prompt_logprobs")
            for token, entry in list(zip(ids, entries, strict=True))[1:]
        ]
        totals.append(sum(values[-len(target) :]))
    return totals


@rests_on("echo")
def _read_echo(reply: Any, prefix: Ids, targets: Sequence[Ids], piece: Piece) -> list[float]:
    totals = []
    expected = sum(len(prefix) + len(target) for target in targets)
    read = (reply.get("usage") or {}).get("prompt_tokens")
    for choice, target in zip(_choices(reply), targets, strict=True):
        ids = [*prefix, *target]
        with rests_on("logprobs"):
            record = dict(choice["logprobs"])
        values = record["token_logprobs"]
        if len(values) not in (len(ids), len(ids) + 1) or read not in (None, expected):
            problem = f"{len(values)} log-probabilities for {len(ids)} tokens of a prompt"
            raise UnprovedError("echo", problem)
        for name, token in zip(record.get("tokens") or (), ids, strict=False):
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

MOST_LIKELY = 256  # Next tokens that llama.cpp is asked for; more take longer than the others alone
ALL_TOKENS = {"n_probs": 1_000_000}  # Of all next tokens
FORCED = 1000  # The bias, in nats, of the only token that may be written


def _native(prefix: Ids, size: int, probabilities: int) -> Body:
    """A request to llama.cpp's own route: greedy, with the ids of the tokens in the reply."""
    return {
        "prompt": list(prefix), "n_predict": size, "temperature": 0, "samplers": [],
        "cache_prompt": True, "response_fields": REPLY_FIELDS, "n_probs": probabilities,
    }  # fmt: skip


def _ask_forced(prefix: Ids, targets: Sequence[Ids]) -> Body:
    """One token by its bias, several by a grammar of tokens; a grammar of texts is inexact."""
    (target,) = targets
    body = _native(prefix, len(target), 1)
    if len(target) == 1:
        return body | {"logit_bias": [[target[0], FORCED]]}
    tokens = " ".join(f"<[{token}]>" for token in target)
    return body | {"grammar": f"root ::= {tokens}"}


@rests_on("n_probs")
def _read_forced(reply: Any, prefix: Ids, targets: Sequence[Ids], piece: Piece) -> list[float]:
    (target,), entries = targets, reply["completion_probabilities"]
    written = [entry["id"] for entry in entries]
    if written != list(target):
        field = "logit_bias" if len(target) == 1 else "grammar"
        raise UnprovedError(field, f"the tokens {written} in place of {list(target)}")
    return [sum(_number(entry["logprob"], "n_probs") for entry in entries)]


@rests_on("n_probs")
def _read_most_likely(reply: Any, wanted: Ids, piece: Piece) -> Known:
    (entry,) = reply["completion_probabilities"]
    values = {one["id"]: _number(one["logprob"], "n_probs") for one in entry["top_logprobs"]}
    return _among(values, wanted, min(values.values(), default=0.0))


def _among(values: Mapping[Any, float], wanted: Ids, bound: float) -> Known:
    known = {token: values[token] for token in wanted if token in values}
    return Known(known, None if len(known) == len(set(wanted)) else bound)


def named_tokens(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The texts and values of next tokens in a record ``logprobs`` of completions or chats."""
    pairs: Iterable[tuple[Any, Any]]
    with rests_on("logprobs"):
        if record.get("content"):
            tops = record["content"][0]["top_logprobs"]
            pairs = [(entry["token"], entry["logprob"]) for entry in tops]
        else:
            pairs = record["top_logprobs"][0].items()
    return [(str(name), _number(value, "top_logprobs")) for name, value in pairs]


STRATEGIES: Mapping[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy(
            "prompt-logprobs", "prompt_logprobs",
            (_continued(prompt_logprobs=1), _read_prompt_logprobs),
        ),
        Strategy(
            "echo", "echo",
            (_continued(echo=True, logprobs=1, return_tokens_as_token_ids=True), _read_echo),
        ),
        Strategy(
            "forced-tokens", "logit_bias", (_ask_forced, _read_forced), "/completion",
            is_native=True,
            first=(lambda prefix, wanted: _native(prefix, 1, MOST_LIKELY), _read_most_likely),
        ),
    )
}  # fmt: skip

CHAT_TOP_K, ANSWERS_ONLY = "chat-top-k", "answers-only"  # Of chats


AT_ONCE = 512  # Prefixes whose continuations are scored together
MOST_MERGED = 16  # Prompts of one request to llama.cpp, which reads them side by side


@dataclass(frozen=True, slots=True)
class Continuations:
    """Token sequences that may follow a prefix; ``gold`` (-1: none) is finished in any case."""

    prefix: tuple[int, ...]
    targets: tuple[tuple[int, ...], ...]
    gold: int = -1


class Totals:
    """The log-probabilities of continuations in nats, as far as known, and which are bounds."""

    def __init__(self, parts: Continuations) -> None:
        size = len(parts.targets)
        self.parts = parts
        self.values: npt.NDArray[np.float64] = np.zeros(size)
        self.is_bound: npt.NDArray[np.bool_] = np.ones(size, dtype=bool)
        self.refused: str | None = None
        self.done = [0] * size  # Tokens that are in the values

    def add(self, at: int, value: float, tokens: int) -> None:
        self.values[at] = value if self.done[at] == 0 else self.values[at] + value
        self.done[at] += tokens
        self.is_bound[at] = self.done[at] < len(self.parts.targets[at])

    def open(self, *, every: bool) -> list[int]:
        """The continuations that must be followed further."""
        wanted = np.flatnonzero(self.is_bound).tolist()
        if self.refused:
            return []
        if every or not wanted:
            return wanted
        best = max(self.values[~self.is_bound], default=-np.inf)
        if best == -np.inf:
            first = max(wanted, key=lambda at: self.values[at])
            return [at for at in wanted if at in (first, self.parts.gold)]
        return [at for at in wanted if self.values[at] >= best or at == self.parts.gold]

    def before(self, at: int) -> tuple[int, ...]:
        return self.parts.targets[at][: self.done[at]]

    def rest(self, at: int) -> tuple[int, ...]:
        return self.parts.targets[at][self.done[at] :]


Job = tuple[Totals, int]  # A continuation of a prefix, by its position


def _groups(jobs: Sequence[Job], alike: Callable[[Totals, int], object]) -> list[list[Job]]:
    groups: dict[object, list[Job]] = {}
    for work, at in jobs:
        groups.setdefault((id(work), alike(work, at)), []).append((work, at))
    return list(groups.values())


class Scorer:
    """Scores continuations of token sequences on a server."""

    def __init__(self, server: Server, strategy: Strategy) -> None:
        self.server, self.strategy = server, strategy

    def totals(
        self, parts: Sequence[Continuations], *, every: bool = True
    ) -> Iterator[tuple[int, Totals]]:
        """Position of each prefix and the log-probabilities of its continuations.

        Prefixes with equal beginnings are sent one after another, so that a server's cache helps.
        ``every`` False: only the best continuation and ``gold`` are finished.
        """
        order = sorted(range(len(parts)), key=lambda at: parts[at].prefix)
        for start in range(0, len(order), AT_ONCE):
            rows = order[start : start + AT_ONCE]
            works = [Totals(parts[row]) for row in rows]
            try:
                self.finish(works, every=every)
            except UnprovedError as error:
                proof = f"in the proof of the strategy '{self.strategy.name}'"
                found = f"a reply of the server that is not as {proof}: {error}"
                raise ConsilienceError(found) from error
            yield from zip(rows, works, strict=True)

    def finish(self, works: Sequence[Totals], *, every: bool = True) -> None:
        """Ask for what is not known of some prefixes; may raise ``UnprovedError``."""
        strategy = self.strategy
        jobs = [(work, at) for work in works for at in range(len(work.done))]
        if strategy.first:
            self._look(jobs)
        else:
            every = True  # no bound of a first token says which ones can be left out
        while jobs := [(work, at) for work in works for at in work.open(every=every)]:
            with_parts, others = list[Job](), list[Job]()
            for job in jobs:
                (with_parts if self._has_parts(*job) else others).append(job)
            if with_parts:
                self._look(with_parts, lists_all=True)
            self._complete(others)

    def _has_parts(self, work: Totals, at: int) -> bool:
        """Whether a next token is part of a character: llama.cpp cannot be made to write it."""
        if not self.strategy.is_native:
            return False
        return any(BROKEN in self._piece(token) for token in work.rest(at))

    def _look(self, jobs: Sequence[Job], *, lists_all: bool = False) -> None:
        """Add the next token of continuations; ``lists_all``: of all tokens, which takes longer."""
        strategy = self.strategy
        assert strategy.first is not None
        ask, read = strategy.first
        groups = _groups(jobs, Totals.before)
        wanted = [[work.rest(at)[0] for work, at in group] for group in groups]
        more: Body = ALL_TOKENS if lists_all else {}
        if strategy.is_native:
            letter = int(self.server.tokenizer("a")["input_ids"][-1])
            more = {"logit_bias": [[letter, FORCED]]} | more
        both = zip(groups, wanted, strict=True)
        bodies = (ask(_prefix(*group[0]), ids) | more for group, ids in both)
        for index, reply in self._replies(groups, bodies):
            known = read(reply, wanted[index], self._piece)
            for (work, at), token in zip(groups[index], wanted[index], strict=True):
                if token in known.values:
                    work.add(at, known.values[token], 1)
                elif lists_all:
                    raise UnprovedError("n_probs", f"no value of the token {token}")
                else:
                    work.values[at] = known.bound or 0.0

    def _complete(self, jobs: Sequence[Job]) -> None:
        strategy = self.strategy
        ask, read = strategy.whole
        groups = _groups(jobs, lambda work, at: at if strategy.is_native else None)
        end = self.server.tokenizer.eos_token_id

        def parts(group: Sequence[Job]) -> tuple[list[int], list[tuple[int, ...]]]:
            targets = [work.rest(at) for work, at in group]
            if strategy.is_native and len(targets[0]) > 1:
                *rest, last = targets[0]  # a grammar has no place for a token that ends all
                is_end = last == end or MARKED.fullmatch(self._piece(last).strip())
                targets = [tuple(rest)] if is_end else targets
            return _prefix(*group[0]), targets

        bodies = (ask(*parts(group)) for group in groups)
        for index, reply in self._replies(groups, bodies):
            prefix, targets = parts(groups[index])
            values = read(reply, prefix, targets, self._piece)
            for (work, at), target, value in zip(groups[index], targets, values, strict=True):
                work.add(at, value, len(target))

    def _replies(
        self, groups: Sequence[Sequence[Job]], bodies: Iterator[Body]
    ) -> Iterator[tuple[int, Any]]:
        """The replies to a request for each group; where one is refused, its prefix is."""
        for index, reply in self._post_all(bodies):
            if isinstance(reply, Refused):
                groups[index][0][0].refused = reply.reason
            else:
                yield index, reply

    def _post_all(self, bodies: Iterator[Body]) -> Iterator[tuple[int, Any]]:
        """Replies to requests; of llama.cpp, which takes several prompts, of merged ones."""
        client, path = self.server.client, self.strategy.path
        if not self.strategy.is_native:
            yield from client.post_all(path, map(self.addressed, bodies))
            return
        every = [self.addressed(body) for body in bodies]
        alike = group_rows(json.dumps({**body, "prompt": None}) for body in every)
        groups = [
            rows[start : start + MOST_MERGED]
            for rows in alike.values()
            for start in range(0, len(rows), MOST_MERGED)
        ]
        merged = (
            every[rows[0]] | ({"prompt": [every[at]["prompt"] for at in rows]} if rows[1:] else {})
            for rows in groups
        )
        for index, reply in client.post_all(path, merged):
            rows = groups[index]
            if len(rows) == 1:
                yield from ((row, reply) for row in rows)
            elif isinstance(reply, list) and len(reply) == len(rows):
                replies = sorted(reply, key=lambda one: int(one.get("index", 0)))
                yield from zip(rows, replies, strict=True)
            else:  # one prompt was refused, so each is sent alone
                for at, alone in client.post_all(path, (every[row] for row in rows)):
                    yield rows[at], alone

    def addressed(self, body: Body) -> Body:
        """A request with the name of the model."""
        return {"model": self.server.name, **body}

    @cached_property
    def _piece(self) -> Callable[[int], str]:
        decode = self.server.tokenizer.decode
        return cache(lambda token: str(decode([token])))


def _prefix(work: Totals, at: int) -> list[int]:
    return [*work.parts.prefix, *work.before(at)]


BEGIN, END = "The capital of France is", " Paris."
OTHERS = (" London", " Madrid", " the", " a", " not")
NONSENSE = " Qzx vjk wfp."
AGREEMENT = 0.05  # Nats by which two routes may differ: batches are in half precision


@dataclass(frozen=True, slots=True)
class Proof:
    """What the proof of a strategy found, by so many requests.

    ``gives``: what a reader of the scores should know. ``repeated`` and ``other_route``: the
    largest differences of equal requests and of two routes in nats; ``total_probability``: of some
    next tokens; None where there are none. ``refused``: why strategies that were tried before it
    are not used, by their name.
    """

    strategy: str
    gives: str
    requests: int
    repeated: float | None = None
    other_route: float | None = None
    total_probability: float | None = None
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def note(self) -> str:
        if self.repeated is None:
            return f"the server gives {self.gives} ({self.strategy}); proved on known prompts"
        other = steady = ""
        if self.repeated > TOLERANCE:
            steady = "; for repeatable scores use a server with one slot and --concurrency 1"
        if self.other_route is not None:
            other = f", another route differs by {self.other_route:.1e} nats"
        return (
            f"scored by {self.strategy} ({self.gives}); proved on known prompts: equal "
            f"requests differ by {self.repeated:.1e} nats{other}{steady}"
        )


def prove(server: Server) -> tuple[Scorer, Proof]:
    """The first strategy that a server proves."""
    refused: dict[str, str] = {}
    for strategy in STRATEGIES.values():
        if strategy.is_native and server.kind != "llama.cpp":
            refused[strategy.name] = "only llama.cpp's server has it"
            continue
        scorer = Scorer(server, strategy)
        try:
            return scorer, replace(_proof(scorer), refused=refused)
        except UnprovedError as error:
            refused[strategy.name] = str(error)
        except ConsilienceError as error:
            if not error.found.startswith(ABSENT):
                raise
            refused[strategy.name] = error.found
    raise UnprovedServerError(refused)


def _proof(scorer: Scorer) -> Proof:
    client, tokenizer, strategy = scorer.server.client, scorer.server.tokenizer, scorer.strategy
    before = client.usage.requests
    sentence, nonsense, *others = (
        _encode(tokenizer, BEGIN + end) for end in (END, NONSENSE, *OTHERS)
    )
    shared = len(_encode(tokenizer, BEGIN))
    if any(ids[:shared] != sentence[:shared] for ids in (nonsense, *others)):
        raise UnprovedError("prompt", "the tokenizer joins words of the known sentence")
    words = [tuple(ids[shared : shared + 1]) for ids in others]
    targets = [tuple(sentence[shared:]), tuple(nonsense[shared:]), *words]
    begins = list(tokenizer("a")["input_ids"])[:1]
    start = [id_ for id_ in begins if id_ == tokenizer.bos_token_id]
    parts = Continuations((*start, *sentence[:shared]), tuple(targets))
    first, again = _totals(scorer, parts), _totals(scorer, parts)
    values = first.values.tolist()
    means = [value / len(target) for value, target in zip(values, targets, strict=True)]
    total = sum(map(math.exp, values[2:]))
    repeated = max(abs(a - b) for a, b in zip(values, again.values.tolist(), strict=True))
    by_word = dict(zip(words, values[2:], strict=True))
    are_equal = len(by_word) > 1 and len({*by_word.values()}) == 1
    random = f"random tokens ({means[1]:.2f} each) are as probable as"
    for is_wrong, problem in (
        (means[1] >= means[0], f"{random} a sentence ({means[0]:.2f})"),
        (are_equal, f"{len(by_word)} different next words have the value {means[2]}"),
        (total > 1 + TOLERANCE, f"probabilities with a sum of {total:.3f}"),
        (repeated > 1, f"equal requests differ by {repeated:.2f} nats"),
    ):
        if is_wrong:
            raise UnprovedError(strategy.field, problem)
    gives = EXACT
    if repeated > TOLERANCE:
        gives = "all candidates, with values that change from request to request"
    requests, other_route = client.usage.requests - before, _other_route(scorer, parts)
    return Proof(strategy.name, gives, requests, repeated, other_route, total)


def _encode(tokenizer: Any, text: str) -> list[int]:
    ids = list(tokenizer([text], add_special_tokens=False)["input_ids"][0])
    decoded = str(tokenizer.decode(ids))
    if decoded.strip() != text.strip():
        raise UnprovedError("tokenize", f"'{text}' becomes '{decoded}'")
    return ids


def _totals(scorer: Scorer, parts: Continuations) -> Totals:
    totals = Totals(parts)
    scorer.finish([totals])
    if totals.refused:
        raise UnprovedError(scorer.strategy.field, totals.refused)
    return totals


def _other_route(scorer: Scorer, parts: Continuations) -> float | None:
    """How far the value of the most probable next token is from that of a plain completion."""
    server = scorer.server
    body: Body = {
        "model": server.name, "prompt": list(parts.prefix), "max_tokens": 1, "temperature": 0,
    }  # fmt: skip
    if server.kind != "other":
        body["return_tokens_as_token_ids"] = True
    reply = server.client.post("completions", {**body, "logprobs": 1})
    if isinstance(reply, Refused):
        return None
    try:
        record = reply["choices"][0]["logprobs"]
        name, value = max(named_tokens(record), key=lambda entry: entry[1])
    except (UnprovedError, KeyError, IndexError, TypeError, ValueError):
        return None
    if name.startswith("token_id:"):
        ids = [int(name.removeprefix("token_id:"))]
    else:  # the ids of its text as it follows another
        encoded = server.tokenizer(["x", "x" + name], add_special_tokens=False)["input_ids"]
        head, whole = map(list, encoded)
        ids = whole[len(head) :] if whole[: len(head)] == head else []
    if len(ids) != 1:
        return None
    ours = float(_totals(scorer, Continuations(parts.prefix, (tuple(ids),))).values[0])
    if abs(ours - value) > AGREEMENT:
        problem = (
            f"the token '{name}' has the value {ours:.3f}, and {value:.3f} where it is written"
        )
        raise UnprovedError(scorer.strategy.field, problem)
    return abs(ours - value)
