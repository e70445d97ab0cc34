"""The proof of a strategy: a server must answer a few known prompts as the strategy expects.

- Every reply has what its fields ask for: lengths, token ids, values of all tokens.
- Log-probabilities are not above 0, and probabilities of different next tokens not above 1 in sum.
- Text of random tokens is less probable than a sentence.
- The most probable next token has the value that another route gives for it, where there is one.
- The same prompt gets the same value twice, apart from rounding; the difference is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.endpoints.replies import Refused
from consilience.endpoints.scorer import Continuations, Scorer, Totals
from consilience.endpoints.server import Server
from consilience.endpoints.strategies import (
    EXACT,
    STRATEGIES,
    TOLERANCE,
    UnprovedError,
    UnprovedServerError,
    named_tokens,
    strategy_named,
    top_k,
)

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
