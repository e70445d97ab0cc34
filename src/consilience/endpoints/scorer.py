"""Scores of a server: which strategy it proves, and as few requests as they need."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from consilience.core.errors import ConsilienceError
from consilience.endpoints.client import Refused
from consilience.endpoints.server import Server, ServerTokenizer
from consilience.endpoints.strategies import (
    ALL_TOKENS,
    BROKEN,
    EXACT,
    FORCED,
    STRATEGIES,
    TOLERANCE,
    Body,
    Strategy,
    UnprovedError,
    UnprovedServerError,
    named_tokens,
    strategy_named,
    top_k,
)

AT_ONCE = 512
"""Prefixes whose continuations are scored together."""

MOST_MERGED = 16
"""Prompts of one request to llama.cpp, which reads them side by side."""


@dataclass(frozen=True, slots=True)
class Continuations:
    """Token sequences that may follow a prefix."""

    prefix: tuple[int, ...]
    """What precedes them, with the token that begins a text."""
    targets: tuple[tuple[int, ...], ...]
    """The continuations, each of one token or more."""
    gold: int = -1
    """The one that is finished in any case; -1 for none."""


@dataclass(slots=True)
class Totals:
    """The log-probabilities of the continuations of a prefix, as far as they are known."""

    parts: Continuations
    values: npt.NDArray[np.float64] = field(init=False)
    """Natural log-probability (continuation,), or an upper bound of it."""
    is_bound: npt.NDArray[np.bool_] = field(init=False)
    """Which of the values are upper bounds (continuation,)."""
    refused: str | None = None
    """Why the server refused a request; None where it answered all."""
    done: list[int] = field(init=False)
    """Tokens of each continuation whose log-probabilities are in its value."""
    is_closed: list[bool] = field(init=False)
    """Whether nothing more can be known of a continuation."""

    def __post_init__(self) -> None:
        size = len(self.parts.targets)
        self.values, self.is_bound = np.zeros(size), np.ones(size, dtype=bool)
        self.done, self.is_closed = [0] * size, [False] * size

    def add(self, at: int, value: float, tokens: int, *, is_bound: bool = False) -> None:
        """Add the log-probability of the next ``tokens`` tokens of a continuation."""
        self.values[at] = value if self.done[at] == 0 else self.values[at] + value
        self.done[at] += tokens
        is_whole = self.done[at] == len(self.parts.targets[at])
        self.is_closed[at] = is_bound or is_whole
        self.is_bound[at] = is_bound or not is_whole

    def open(self, *, every: bool) -> list[int]:
        """The continuations that must be followed further."""
        wanted = [at for at, closed in enumerate(self.is_closed) if not closed]
        if every or self.refused:
            return [] if self.refused else wanted
        best = max(self.values[~self.is_bound], default=-np.inf)
        if best == -np.inf and wanted:
            first = max(wanted, key=lambda at: self.values[at])
            return [at for at in wanted if at in (first, self.parts.gold)]
        return [at for at in wanted if self.values[at] >= best or at == self.parts.gold]

    def before(self, at: int) -> tuple[int, ...]:
        """The tokens of a continuation that are done."""
        return self.parts.targets[at][: self.done[at]]

    def rest(self, at: int) -> tuple[int, ...]:
        """The tokens of a continuation that are not done."""
        return self.parts.targets[at][self.done[at] :]


Jobs = list[tuple[Totals, list[int]]]
"""Continuations of a prefix, by position, that are asked together."""


class Scorer:
    """Scores continuations of token sequences on a server."""

    def __init__(self, server: Server, strategy: Strategy, *, as_text: bool = False) -> None:
        """``as_text``: prompts are sent as texts, because the server does not take token ids."""
        self.server, self.strategy, self.as_text = server, strategy, as_text

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
                self._finish(works, every)
            except UnprovedError as error:
                raise ConsilienceError(
                    f"a reply of the server that is not as in the proof of the strategy "
                    f"'{self.strategy.name}': {error}",
                    todo="Choose another strategy with --scoring (docs/endpoints.md).",
                ) from error
            yield from zip(rows, works, strict=True)

    def _finish(self, works: Sequence[Totals], every: bool) -> None:
        strategy = self.strategy
        if strategy.first:
            self._look(works, [[*range(len(work.done))] for work in works])
        else:
            every = True  # no bound of a first token says which ones can be left out
        if self.server.client.plan is not None:
            self._plan(works, every)
        while any(waiting := [work.open(every=every) for work in works]):
            if strategy.whole is None:
                self._look(works, waiting)
                continue
            pairs = list(zip(works, waiting, strict=True))
            if any(parts := [self._with_parts(work, of) for work, of in pairs]):
                self._look(works, parts, lists_all=True)
            self._complete(
                [
                    (work, [at for at in of if at not in of_parts])
                    for (work, of), of_parts in zip(pairs, parts, strict=True)
                ]
            )

    def _with_parts(self, work: Totals, waiting: Sequence[int]) -> list[int]:
        """The continuations whose next tokens have one that is a part of a character.

        llama.cpp cannot be made to write such a token.
        """
        if not self.strategy.is_native:
            return []
        return [at for at in waiting if any(map(self._is_part, work.rest(at)))]

    def _is_part(self, token: int) -> bool:
        tokenizer = self.server.tokenizer
        if isinstance(tokenizer, ServerTokenizer):
            return token in tokenizer.parts
        return BROKEN in self._piece(token)

    def _plan(self, works: Sequence[Totals], every: bool) -> None:
        """Make the requests of a dry run, which brings no reply and therefore ends after it.

        Which continuations could still be the best, or have a token that is not listed, is not
        known. So those that follow the first request of a prefix are then counted apart
        (``PlannedUsage.more``).
        """
        strategy, client = self.strategy, self.server.client
        plan = client.plan
        assert plan is not None
        if strategy.first and (strategy.whole or not every or strategy.is_censored):
            client.plan = plan.depending()
        left = [[*range(len(work.done))] for work in works]
        if strategy.whole is not None:
            pairs = list(zip(works, left, strict=True))
            self._complete(pairs)
            left = [self._with_parts(work, of) for work, of in pairs]
        longest = max((len(target) for work in works for target in work.parts.targets), default=0)
        for done in range(0 if strategy.whole else 1, longest):
            for work in works:
                work.done = [done] * len(work.done)
            left = [
                [at for at in of if work.rest(at)] for work, of in zip(works, left, strict=True)
            ]
            if any(left):
                self._look(works, left)
        client.plan = plan

    def _look(
        self, works: Sequence[Totals], waiting: Sequence[Sequence[int]], *, lists_all: bool = False
    ) -> None:
        """Add the next token of continuations, one request for each different text before it.

        ``lists_all``: the server lists all tokens that may be next, which takes longer.
        """
        strategy, jobs = self.strategy, list[tuple[Totals, list[int]]]()
        assert strategy.first is not None and strategy.read_first is not None
        for work, of_work in zip(works, waiting, strict=True):
            by_text: dict[tuple[int, ...], list[int]] = {}
            for at in of_work:
                by_text.setdefault(work.before(at), []).append(at)
            jobs += [(work, group) for group in by_text.values()]
        wanted = [[work.rest(at)[0] for at in group] for work, group in jobs]
        letter = {"logit_bias": [[self._letter, FORCED]]} if strategy.is_native else {}
        more = letter | (ALL_TOKENS if lists_all else {})
        bodies = (
            strategy.first([*work.parts.prefix, *work.before(group[0])], ids) | more
            for (work, group), ids in zip(jobs, wanted, strict=True)
        )
        for index, reply in self._post_all(bodies):
            work, group = jobs[index]
            if isinstance(reply, Refused):
                work.refused = reply.reason
                continue
            known = strategy.read_first(reply, wanted[index], self._piece)
            for at, token in zip(group, wanted[index], strict=True):
                if token in known.values:
                    work.add(at, known.values[token], 1)
                elif lists_all:
                    raise UnprovedError("n_probs", f"no value of the token {token}")
                elif strategy.whole is None:
                    work.add(at, known.bound or 0.0, 1, is_bound=True)
                else:
                    work.values[at] = known.bound or 0.0

    def _complete(self, jobs: Jobs) -> None:
        """Finish continuations: those of a prefix by one request, or each by its own."""
        strategy = self.strategy
        assert strategy.whole is not None and strategy.read_whole is not None
        if not strategy.takes_several or self.as_text:
            jobs = [(work, [at]) for work, group in jobs for at in group]
        jobs = [(work, group) for work, group in jobs if group]
        end = self.server.tokenizer.eos_token_id

        def parts(work: Totals, group: Sequence[int]) -> tuple[list[int], list[tuple[int, ...]]]:
            targets = [work.rest(at) for at in group]
            if strategy.is_native and len(targets[0]) > 1 and targets[0][-1] == end:
                targets = [targets[0][:-1]]  # a grammar has no place for the token that ends all
            return [*work.parts.prefix, *work.before(group[0])], targets

        bodies = (strategy.whole(*parts(work, group)) for work, group in jobs)
        for index, reply in self._post_all(bodies):
            work, group = jobs[index]
            if isinstance(reply, Refused):
                work.refused = reply.reason
                continue
            prefix, targets = parts(work, group)
            values = strategy.read_whole(reply, prefix, targets, self._local_piece)
            for at, target, value in zip(group, targets, values, strict=True):
                work.add(at, value, len(target))

    def _post_all(self, bodies: Iterator[Body]) -> Iterator[tuple[int, Any]]:
        """Replies to requests; of llama.cpp, which takes several prompts, of merged ones."""
        client, path = self.server.client, self.strategy.path
        if not self.strategy.is_native:
            yield from client.post_all(path, map(self._addressed, bodies))
            return
        every, alike = [self._addressed(body) for body in bodies], dict[str, list[int]]()
        for at, body in enumerate(every):
            alike.setdefault(json.dumps({**body, "prompt": None}), []).append(at)
        groups = [
            rows[start : start + MOST_MERGED]
            for rows in alike.values()
            for start in range(0, len(rows), MOST_MERGED)
        ]
        if (plan := client.plan) is not None:  # other prompts may be together in a run
            plan.depending().requests += len(every) - len(groups)
        merged = (
            every[rows[0]] | {"prompt": [every[at]["prompt"] for at in rows]}
            if len(rows) > 1
            else every[rows[0]]
            for rows in groups
        )
        for index, reply in client.post_all(path, merged):
            rows = groups[index]
            if len(rows) == 1 or plan is not None:
                yield from ((row, reply) for row in rows)
            elif isinstance(reply, list) and len(reply) == len(rows):
                replies = sorted(reply, key=lambda one: int(one.get("index", 0)))
                yield from zip(rows, replies, strict=True)
            else:  # one prompt was refused, so each is sent alone
                for at, alone in client.post_all(path, (every[row] for row in rows)):
                    yield rows[at], alone

    def _addressed(self, body: Body) -> Body:
        """A request with the model's name and, where needed, a text."""
        if self.as_text:
            prompt = body["prompt"]
            ids = prompt[0] if isinstance(prompt[0], list) else prompt
            body = body | {"prompt": self.text_of(ids)}
        return {"model": self.server.name, **body}

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of token ids, without the token that the server puts before a text itself."""
        tokenizer = self.server.tokenizer
        beginning = list(tokenizer("a")["input_ids"])[:1]
        if beginning == [tokenizer.bos_token_id] and list(ids[:1]) == beginning:
            ids = ids[1:]
        return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    @cached_property
    def _letter(self) -> int:
        """A token whose text is a letter."""
        return int(self.server.tokenizer("a")["input_ids"][-1])

    def _piece(self, token: int) -> str:
        return str(self.server.tokenizer.decode([token]))

    @cached_property
    def _local_piece(self) -> Callable[[int], str]:
        """The text of a token; empty where each would be a request to the server."""
        is_local = not isinstance(self.server.tokenizer, ServerTokenizer)
        return cache(self._piece) if is_local else lambda token: ""


SENTENCE = "The capital of France is Paris."
OTHERS = (" London", " Madrid", " the", " a", " not")
NONSENSE = " Qzx vjk wfp."

AGREEMENT = 0.05
"""By how many nats two routes may differ: servers compute batches in half precision."""

SMALLER_K = 5
"""How many of the most probable tokens a server lists that refuses 20."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the proof of a strategy found."""

    strategy: str
    gives: str
    """What a reader of the scores should know."""
    as_text: bool
    """Whether prompts are sent as texts and not as token ids."""
    requests: int
    """How many requests it took."""
    repeated: float | None
    """The largest difference between equal requests, in nats; None without scores."""
    other_route: float | None
    """The difference between two routes, in nats; None where there is only one."""
    total_probability: float | None
    """The sum of the probabilities of some next tokens, at most 1; None without scores."""
    refused: dict[str, str]
    """Why strategies that were tried before it are not used, by their name."""

    def record(self) -> dict[str, Any]:
        """All fields, for ``run.json``."""
        return asdict(self)

    @property
    def note(self) -> str:
        """What a reader of the scores should know."""
        if self.repeated is None:
            return f"the server gives {self.gives} ({self.strategy}); proved on known prompts"
        form = ", prompts sent as texts" if self.as_text else ""
        other = steady = ""
        if self.repeated > TOLERANCE:
            steady = "; for repeatable scores use a server with one slot and --concurrency 1"
        if self.other_route is not None:
            other = f", another route differs by {self.other_route:.1e} nats"
        return (
            f"scored by {self.strategy} ({self.gives}{form}); proved on known prompts: equal "
            f"requests differ by {self.repeated:.1e} nats{other}{steady}"
        )


def prove(server: Server) -> tuple[Scorer, Proof]:
    """The first strategy that a server proves, or the one that the connection names."""
    named = server.client.connection.scoring
    strategies = [strategy_named(named)] if named else list(STRATEGIES.values())
    refused: dict[str, str] = {}
    for strategy in strategies:
        if not named and strategy.is_native and server.kind != "llama.cpp":
            refused[strategy.name] = "only llama.cpp's server has it"
            continue
        for tried in [strategy, top_k(SMALLER_K)] if strategy.is_censored else [strategy]:
            for as_text in (False, True) if server.kind == "other" else (False,):
                scorer = Scorer(server, tried, as_text=as_text)
                try:
                    return scorer, _proof(scorer, dict(refused))
                except UnprovedError as error:
                    refused[strategy.name] = str(error)
    if named:
        raise ConsilienceError(
            f"--scoring {named}: {refused[strategies[0].name]}",
            expected="a strategy that the server proves (docs/endpoints.md)",
            todo="Leave --scoring out: the first strategy that is proved is used.",
        )
    raise UnprovedServerError(refused)


def _proof(scorer: Scorer, refused: dict[str, str]) -> Proof:
    """The proof of one strategy; ``UnprovedError`` where it fails."""
    client, tokenizer, field = scorer.server.client, scorer.server.tokenizer, scorer.strategy.field
    before = client.usage.requests
    sentence, nonsense = (
        _encode(tokenizer, text) for text in (SENTENCE, SENTENCE.replace(" Paris.", NONSENSE))
    )
    others = [_encode(tokenizer, SENTENCE.replace(" Paris.", other)) for other in OTHERS]
    shared = len(_encode(tokenizer, "The capital of France is"))
    if any(ids[:shared] != sentence[:shared] for ids in (nonsense, *others)):
        raise UnprovedError("prompt", "the tokenizer joins words of the known sentence")
    words = [tuple(ids[shared : shared + 1]) for ids in others]
    targets = [tuple(sentence[shared:]), tuple(nonsense[shared:]), *words]
    begins = list(tokenizer("a")["input_ids"])[:1]
    start = [id_ for id_ in begins if id_ == tokenizer.bos_token_id]
    parts = Continuations((*start, *sentence[:shared]), tuple(targets))
    first, again = _totals(scorer, parts), _totals(scorer, parts)
    values, bounds = first.values.tolist(), first.is_bound.tolist()
    means = [value / len(target) for value, target in zip(values, targets, strict=True)]
    if not bounds[0] and means[1] >= means[0]:
        raise UnprovedError(
            field,
            f"random tokens ({means[1]:.2f} each) are as probable as a sentence ({means[0]:.2f})",
        )
    by_word = dict(zip(words, values[2:], strict=True))
    if len(by_word) > 1 and len({*by_word.values()}) == 1 and not any(bounds[2:]):
        raise UnprovedError(field, f"{len(by_word)} different next words have the value {means[2]}")
    known = [value for value, is_bound in zip(values[2:], bounds[2:], strict=True) if not is_bound]
    total = sum(map(math.exp, known))
    if total > 1 + TOLERANCE:
        raise UnprovedError(field, f"probabilities with a sum of {total:.3f}")
    repeated = max(abs(a - b) for a, b in zip(values, again.values.tolist(), strict=True))
    if repeated > 1:
        raise UnprovedError(field, f"equal requests differ by {repeated:.2f} nats")
    gives = scorer.strategy.gives
    if gives == EXACT and repeated > TOLERANCE:
        gives = "all candidates, with values that change from request to request"
    requests = client.usage.requests - before
    other_route = _other_route(scorer, parts)
    return Proof(
        scorer.strategy.name,
        gives,
        scorer.as_text,
        requests,
        repeated,
        other_route,
        total,
        refused,
    )


def _encode(tokenizer: Any, text: str) -> list[int]:
    ids = list(tokenizer([text], add_special_tokens=False)["input_ids"][0])
    decoded = str(tokenizer.decode(ids))
    if decoded.strip() != text.strip():
        raise UnprovedError("tokenize", f"'{text}' becomes '{decoded}'")
    return ids


def _totals(scorer: Scorer, parts: Continuations) -> Totals:
    try:
        [(_, totals)] = scorer.totals([parts])
    except ConsilienceError as error:
        if isinstance(error.__cause__, UnprovedError):
            raise error.__cause__ from None
        raise
    if totals.refused:
        raise UnprovedError(scorer.strategy.field, totals.refused)
    return totals


def _other_route(scorer: Scorer, parts: Continuations) -> float | None:
    """How far the value of the most probable next token is from that of a plain completion."""
    server = scorer.server
    prompt: Any = scorer.text_of(parts.prefix) if scorer.as_text else list(parts.prefix)
    body = {"model": server.name, "prompt": prompt, "max_tokens": 1, "temperature": 0}
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
    ids = _ids_of(server.tokenizer, name)
    if len(ids) != 1:
        return None
    ours = _totals(scorer, Continuations(parts.prefix, (tuple(ids),)))
    difference = abs(float(ours.values[0]) - value)
    if difference > AGREEMENT:
        raise UnprovedError(
            scorer.strategy.field,
            f"the token '{name}' has the value {ours.values[0]:.3f}, and {value:.3f} where it is "
            "written",
        )
    return difference


def _ids_of(tokenizer: Any, name: str) -> Sequence[int]:
    """The token id that a reply names, or the ids of its text as it follows another."""
    if name.startswith("token_id:"):
        return [int(name.removeprefix("token_id:"))]
    texts = ["x", "x" + name]
    head, whole = (list(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"])
    return whole[len(head) :] if whole[: len(head)] == head else ()
