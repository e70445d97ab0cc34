"""Log-probabilities of continuations from a server, by a strategy, with as few requests as needed.

Where only the best continuation counts, those that cannot be it are not finished: the
log-probability of its first token is an upper bound of that of a continuation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from consilience.core.errors import ConsilienceError
from consilience.endpoints.replies import Refused
from consilience.endpoints.server import Server
from consilience.endpoints.server_tokenizer import ServerTokenizer
from consilience.endpoints.strategies import (
    ALL_TOKENS,
    BROKEN,
    FORCED,
    Body,
    Strategy,
    UnprovedError,
)

AT_ONCE = 512
"""Prefixes whose continuations are scored together."""

MOST_MERGED = 16
"""Prompts of one request to llama.cpp, which reads them side by side."""

Floats = npt.NDArray[np.float64]


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
    """The log-probabilities of the continuations of a prefix."""

    values: Floats
    """Natural log-probability (continuation,), or an upper bound of it."""
    is_bound: npt.NDArray[np.bool_]
    """Which of the values are upper bounds (continuation,)."""
    refused: str | None = None
    """Why the server refused a request; None where it answered all."""


@dataclass(slots=True)
class _Work:
    """A prefix and what is known of its continuations."""

    parts: Continuations
    """The prefix and the continuations."""
    totals: Totals
    """What is known so far."""
    done: list[int] = field(default_factory=list)
    """Tokens of each continuation whose log-probabilities are in its value (continuation,)."""
    is_closed: list[bool] = field(default_factory=list)
    """Whether nothing more can be known of a continuation (continuation,)."""

    @classmethod
    def of(cls, parts: Continuations) -> _Work:
        size = len(parts.targets)
        totals = Totals(np.zeros(size), np.ones(size, dtype=bool))
        return cls(parts, totals, [0] * size, [False] * size)

    def add(self, at: int, value: float, tokens: int, *, is_bound: bool) -> None:
        """Add the log-probability of the next ``tokens`` tokens of a continuation."""
        self.totals.values[at] += value
        self.done[at] += tokens
        complete = self.done[at] == len(self.parts.targets[at])
        self.is_closed[at] = is_bound or complete
        self.totals.is_bound[at] = is_bound or not complete

    def open(self, *, every: bool) -> list[int]:
        """The continuations that must be followed further."""
        values, is_bound = self.totals.values, self.totals.is_bound
        wanted = [at for at, closed in enumerate(self.is_closed) if not closed]
        if every or self.totals.refused:
            return [] if self.totals.refused else wanted
        known = values[~is_bound]
        best = known.max() if len(known) else -np.inf
        if best == -np.inf and wanted:
            first = max(wanted, key=lambda at: values[at])
            return [at for at in wanted if at in (first, self.parts.gold)]
        return [at for at in wanted if values[at] >= best or at == self.parts.gold]


class Scorer:
    """Scores continuations of token sequences on a server."""

    def __init__(self, server: Server, strategy: Strategy, *, as_text: bool = False) -> None:
        """``as_text``: prompts are sent as texts, because the server does not take token ids."""
        self.server = server
        self.strategy = strategy
        self.as_text = as_text

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
            works = [_Work.of(parts[row]) for row in rows]
            try:
                self._finish(works, every)
            except UnprovedError as error:
                raise ConsilienceError(
                    f"a reply of the server that is not as in the proof of the strategy "
                    f"'{self.strategy.name}': {error}",
                    todo="Choose another strategy with --scoring (docs/endpoints.md).",
                ) from error
            yield from zip(rows, (work.totals for work in works), strict=True)

    def _finish(self, works: Sequence[_Work], every: bool) -> None:
        strategy = self.strategy
        if strategy.first:
            self._look(works, [list(range(len(work.parts.targets))) for work in works])
        else:
            every = True  # no bound of a first token says which ones can be left out
        if self.server.client.plan is not None:
            self._plan(works, every)
        while any(waiting := [work.open(every=every) for work in works]):
            if strategy.whole is None:
                self._look(works, waiting)
            elif strategy.takes_several and not self.as_text:
                self._complete(works, [[of] if of else [] for of in waiting])
            else:
                parts = [
                    self._with_parts(work, of) for work, of in zip(works, waiting, strict=True)
                ]
                if any(parts):
                    self._look(works, parts, lists_all=True)
                self._complete(
                    works,
                    [
                        [[at] for at in of if at not in of_parts]
                        for of, of_parts in zip(waiting, parts, strict=True)
                    ],
                )

    def _with_parts(self, work: _Work, waiting: Sequence[int]) -> list[int]:
        """The continuations whose next tokens have one that is a part of a character.

        llama.cpp cannot be made to write such a token.
        """
        if not self.strategy.writes_any:
            return []
        targets, done = work.parts.targets, work.done
        return [at for at in waiting if any(map(self._is_part, targets[at][done[at] :]))]

    def _is_part(self, token: int) -> bool:
        """Whether a token is a part of a character."""
        tokenizer = self.server.tokenizer
        if isinstance(tokenizer, ServerTokenizer):
            return token in tokenizer.parts
        return BROKEN in self._piece(token)

    def _plan(self, works: Sequence[_Work], every: bool) -> None:
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
        waiting = [list(range(len(work.parts.targets))) for work in works]
        if strategy.whole is None:
            self._plan_tokens(works, waiting, 1)
        else:
            several = strategy.takes_several and not self.as_text
            groups = [[of] if several and of else [[at] for at in of] for of in waiting]
            self._complete(works, groups)
            pairs = zip(works, waiting, strict=True)
            self._plan_tokens(works, [self._with_parts(work, of) for work, of in pairs], 0)
        client.plan = plan

    def _plan_tokens(
        self, works: Sequence[_Work], waiting: Sequence[Sequence[int]], first: int
    ) -> None:
        """Make the requests for tokens of continuations, one after another, from the ``first``."""
        longest = max((len(target) for work in works for target in work.parts.targets), default=0)
        for done in range(first, longest):
            left = [
                [at for at in of if len(work.parts.targets[at]) > done]
                for work, of in zip(works, waiting, strict=True)
            ]
            for work in works:
                work.done = [done] * len(work.done)
            if any(left):
                self._look(works, left)

    def _look(
        self,
        works: Sequence[_Work],
        waiting: Sequence[Sequence[int]],
        *,
        lists_all: bool = False,
    ) -> None:
        """Add the next token of continuations, one request for each different text before it.

        ``lists_all``: the server lists all tokens that may be next, which takes longer.
        """
        strategy = self.strategy
        assert strategy.first is not None and strategy.read_first is not None
        nodes: list[tuple[_Work, list[int]]] = []
        for work, of_work in zip(works, waiting, strict=True):
            by_text: dict[tuple[int, ...], list[int]] = {}
            for at in of_work:
                by_text.setdefault(work.parts.targets[at][: work.done[at]], []).append(at)
            nodes += [(work, group) for group in by_text.values()]
        wanted = [[work.parts.targets[at][work.done[at]] for at in group] for work, group in nodes]
        bodies = (
            strategy.first(
                [*work.parts.prefix, *work.parts.targets[group[0]][: work.done[group[0]]]], ids
            )
            for (work, group), ids in zip(nodes, wanted, strict=True)
        )
        if strategy.writes_any:
            letter = {"logit_bias": [[self._letter, FORCED]]}
            bodies = (body | letter | (ALL_TOKENS if lists_all else {}) for body in bodies)
        for index, reply in self._post_all(bodies):
            work, group = nodes[index]
            if isinstance(reply, Refused):
                work.totals.refused = reply.reason
                continue
            known = strategy.read_first(reply, wanted[index], self._piece)
            for at, token in zip(group, wanted[index], strict=True):
                if token in known.values:
                    if work.done[at] == 0:
                        work.totals.values[at] = 0.0
                    work.add(at, known.values[token], 1, is_bound=False)
                elif lists_all:
                    raise UnprovedError("n_probs", f"no value of the token {token}")
                elif strategy.whole is None:
                    work.add(at, _bound(known.bound), 1, is_bound=True)
                else:
                    work.totals.values[at] = _bound(known.bound)

    def _complete(self, works: Sequence[_Work], waiting: Sequence[Sequence[list[int]]]) -> None:
        """Finish continuations, by a request for each group of them."""
        strategy = self.strategy
        assert strategy.whole is not None and strategy.read_whole is not None
        end = self.server.tokenizer.eos_token_id
        jobs = [(work, group) for work, of in zip(works, waiting, strict=True) for group in of]

        def parts(work: _Work, group: Sequence[int]) -> tuple[list[int], list[tuple[int, ...]]]:
            targets = work.parts.targets
            if len(group) > 1:
                return list(work.parts.prefix), [targets[at] for at in group]
            target, done = targets[group[0]], work.done[group[0]]
            rest = target[done:]
            if len(rest) > 1 and rest[-1] == end and not strategy.takes_several:
                rest = rest[:-1]  # a grammar of llama.cpp has no place for the token that ends all
            return [*work.parts.prefix, *target[:done]], [rest]

        bodies = (strategy.whole(*parts(work, group)) for work, group in jobs)
        for index, reply in self._post_all(bodies):
            work, group = jobs[index]
            if isinstance(reply, Refused):
                work.totals.refused = reply.reason
                continue
            prefix, targets = parts(work, group)
            values = strategy.read_whole(reply, prefix, targets, self._local_piece)
            for at, target, value in zip(group, targets, values, strict=True):
                if work.done[at] == 0:
                    work.totals.values[at] = 0.0
                work.add(at, value, len(target), is_bound=False)

    def _post_all(self, bodies: Iterator[Body]) -> Iterator[tuple[int, Any]]:
        """Replies to requests; the model's name and, where needed, texts are put in."""
        post_all, path = self.server.client.post_all, self.strategy.path
        if not self.strategy.merges:
            yield from post_all(path, map(self._addressed, bodies))
            return
        every = [self._addressed(body) for body in bodies]
        groups = list(_merged(every))
        if (plan := self.server.client.plan) is not None:  # other prompts may be together in a run
            plan.depending().requests += len(every) - len(groups)
        for at, reply in post_all(path, (_together(every, group) for group in groups)):
            group = groups[at]
            if len(group) == 1:
                yield group[0], reply
            elif isinstance(reply, list) and len(reply) == len(group):
                replies = sorted(reply, key=lambda one: int(one.get("index", 0)))
                yield from zip(group, replies, strict=True)
            elif plan is not None:
                yield from ((row, reply) for row in group)
            else:  # one prompt was refused, so each is sent alone
                for index, alone in post_all(path, (every[row] for row in group)):
                    yield group[index], alone

    def _addressed(self, body: Body) -> Body:
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


def _merged(bodies: Sequence[Body]) -> Iterator[list[int]]:
    """Positions of requests that differ in their prompt only, at most ``MOST_MERGED`` together."""
    groups: dict[str, list[int]] = {}
    for at, body in enumerate(bodies):
        others = {name: value for name, value in body.items() if name != "prompt"}
        groups.setdefault(json.dumps(others), []).append(at)
    for group in groups.values():
        for start in range(0, len(group), MOST_MERGED):
            yield group[start : start + MOST_MERGED]


def _together(bodies: Sequence[Body], group: Sequence[int]) -> Body:
    """One request for the prompts of several."""
    if len(group) == 1:
        return bodies[group[0]]
    return bodies[group[0]] | {"prompt": [bodies[at]["prompt"] for at in group]}


def _bound(bound: float | None) -> float:
    return 0.0 if bound is None else bound
