"""Chat models behind a URL that have no tokens: scores of labels, or answers alone.

A server that lists the most probable first tokens gives scores of labels. One that enforces answers
gives the answer to a question with options, and no scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from consilience.core.errors import Connection, ConsilienceError
from consilience.endpoints.answering import Answering
from consilience.endpoints.chats import Chats
from consilience.endpoints.proving import Proof, prove
from consilience.endpoints.replies import Refused
from consilience.endpoints.server import Server
from consilience.endpoints.strategies import (
    ANSWERS_ONLY,
    CHAT_TOP_K,
    UnprovedError,
    UnprovedServerError,
    bound_of,
    named_tokens,
    strategy_named,
)
from consilience.models.prompt_functions import only
from consilience.models.served import NO_TOKENS, open_server
from consilience.models.served_prompts import ServedOptionScorer, bounds_note, messages_of
from consilience.presentation import Prompt, PromptScores

MOST_LISTED = 20
"""Tokens that OpenAI and others list, at most."""

KNOWN = (
    ("Answer with one letter and nothing else. Which comes first in the alphabet?\nA\nB", "A"),
    ("Answer with one digit and nothing else. What is 1 + 1?", "2"),
)
"""Chats of the proof, and an answer to each."""

FIELDS = {"logprobs": True, "top_logprobs": MOST_LISTED}
"""The fields of a chat whose first token is listed."""


class ServedChat:
    """A server that is asked in chats."""

    tie = 0.0
    takes_chats = True

    def __init__(self, server: Server, spec: str, chats: Chats, proof: Proof) -> None:
        self.server, self.client = server, server.client
        self.chats, self.proof = chats, proof
        self.identity: dict[str, object] = {
            "model": spec,
            "server": server.client.connection.base_url,
            "kind": server.kind,
            "scoring": proof.strategy,
            **chats.identity,
        }
        self.notes: list[str] = [proof.note, *chats.notes]

    def text(self, prompt: Prompt) -> str:
        """The turns of a chat; the server joins them."""
        return "".join(f"{turn['role']}: {turn['content']}\n" for turn in messages_of(prompt))


class ServedChatScorer(ServedChat):
    """Scores labels of options by the first token of a chat's answer.

    A label has the value of the token with its very text. One that is not listed has an upper
    bound: the smallest of the listed values.
    """

    def __init__(self, server: Server, spec: str) -> None:
        chats = Chats(server)
        super().__init__(server, spec, chats, _proof_of_listed(chats))

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        reason = "the server scores labels of options in chats; texts need --scoring answers-only"
        return [None if prompt.is_chat and prompt.are_labels else reason for prompt in prompts]

    def score(self, prompts: Sequence[Prompt]) -> Iterator[PromptScores]:
        """The log-probabilities of the labels of prompts, or bounds of these."""
        bodies = (self.chats.body(messages_of(prompt), 1, FIELDS) for prompt in prompts)
        some = 0
        for at, reply in self.chats.post_all(bodies):
            answers = prompts[at].answers
            sizes = np.ones(len(answers), dtype=np.int64)
            if isinstance(reply, Refused):
                nothing = [np.zeros(len(answers))]
                yield PromptScores(np.array([at]), nothing, [sizes], refused=[reply.reason])
                continue
            try:
                totals, is_bound = values_of(_listed(reply), answers)
            except UnprovedError as error:
                raise ConsilienceError(f"a reply that is not as in the proof: {error}") from error
            some += bool(is_bound.any())
            yield PromptScores(np.array([at]), [totals], [sizes], bounds=[is_bound])
        self.notes += bounds_note(some, len(prompts))

    def score_alone(self, prompt: Prompt) -> npt.NDArray[np.float64]:
        """Log-probabilities (answer,) in nats, of a prompt that is sent alone."""
        [scores] = self.score([prompt])
        return scores.totals[0]


class ServedAnswerer(ServedChat):
    """Answers with an option that the server enforces; there are no scores.

    The answer is what the model writes where it can write nothing but an option, token by token. Of
    options of several tokens that is not always the most probable one.
    """

    def __init__(self, server: Server, spec: str) -> None:
        self.answering = Answering(server)
        super().__init__(server, spec, self.answering.chats, self.answering.proof)

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        reason = "the server enforces answers in chats only"
        return [
            self.answering.why_not(prompt.answers) if prompt.is_chat else reason
            for prompt in prompts
        ]

    def score(self, prompts: Sequence[Prompt]) -> Iterator[PromptScores]:
        """The answer that each prompt gets, or why it has none."""
        chats = [(messages_of(prompt), prompt.answers) for prompt in prompts]
        for at, answer in self.answering.answers(chats):
            answers = prompts[at].answers
            chosen = None if isinstance(answer, str) else answer
            yield PromptScores(
                np.array([at]),
                [only(chosen, len(answers))],
                texts=["" if chosen is None else answers[chosen]],
                refused=[answer if isinstance(answer, str) else None],
            )

    def score_alone(self, prompt: Prompt) -> npt.NDArray[np.float64]:
        """The answer that the prompt gets."""
        return next(self.score([prompt])).totals[0]


def _proof_of_listed(chats: Chats) -> Proof:
    """The proof that a server lists first tokens: two chats, each twice."""
    client = chats.server.client
    try:
        before = client.usage.requests
        repeated, masses = 0.0, []
        for question, answer in KNOWN:
            first, again = (_known(chats, question) for _ in range(2))
            masses.append(float(np.exp([value for _, value in first]).sum()))
            both = dict(first), dict(again)
            if answer not in both[0]:
                raise UnprovedError(
                    "top_logprobs", f"'{answer}' is not listed as an answer to '{question}'"
                )
            shared = both[0].keys() & both[1].keys()
            repeated = max(repeated, *(abs(both[0][name] - both[1][name]) for name in shared))
    except UnprovedError as error:
        raise UnprovedServerError({CHAT_TOP_K: str(error)}) from error
    gives = f"the first token; a bound for labels that are not among the {MOST_LISTED} listed"
    requests = client.usage.requests - before
    return Proof(CHAT_TOP_K, gives, True, requests, repeated, None, max(masses, default=0.0), {})


def _known(chats: Chats, question: str) -> list[tuple[str, float]]:
    """The first tokens that are listed for a chat of the proof."""
    reply = chats.known([{"role": "user", "content": question}], 1, FIELDS)
    if isinstance(reply, Refused):
        raise UnprovedError("top_logprobs", reply.reason)
    return _listed(reply)


def _listed(reply: Any) -> list[tuple[str, float]]:
    """The most probable first tokens of an answer, and their log-probabilities."""
    try:
        record = reply["choices"][0]["logprobs"]
    except (KeyError, IndexError, TypeError):
        record = None
    if not isinstance(record, dict):
        raise UnprovedError("logprobs", "the server ignored it")
    if not isinstance(record.get("content"), list) or not record["content"]:
        raise UnprovedError("logprobs", "no list `content`")
    entries = named_tokens(record)
    if len(entries) < MOST_LISTED:
        size = len(entries)
        raise UnprovedError("top_logprobs", f"{size} tokens where {MOST_LISTED} were asked for")
    bound_of(entries, MOST_LISTED)
    return entries


def values_of(
    entries: Sequence[tuple[str, float]], labels: Sequence[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The value of each label (label,) among listed tokens, and whether it is an upper bound."""
    listed, bound = dict(entries), bound_of(entries, MOST_LISTED)
    values = np.array([listed.get(label, bound) for label in labels])
    return values, np.array([label not in listed for label in labels])


def load_served_scorer(
    spec: str, connection: Connection | None, scoring: str | None = None, longest: int = 0
) -> ServedPromptModel:
    """The model of that name, with the strategy that is named or the first that is proved.

    A server without tokens, or of which no strategy with tokens is proved, is asked in chats: for
    the most probable first tokens, and where it lists none, for answers alone.
    """
    server = open_server(spec, connection, scoring)
    named = server.client.connection.scoring
    if named and named in IN_CHATS:
        return IN_CHATS[named](server, spec)
    reasons = {} if server.tokenizer else {"tokens": NO_TOKENS}
    if server.tokenizer is not None:
        try:
            model = ServedOptionScorer(server, spec, *prove(server))
        except UnprovedServerError as error:
            reasons |= error.reasons
        else:
            model.longest = longest or model.longest
            return model
    elif named:
        strategy_named(named)  # an unknown one raises
        raise ConsilienceError(f"--scoring {named}: {NO_TOKENS}")
    return _in_chats(server, spec, reasons)


def _in_chats(
    server: Server, spec: str, reasons: dict[str, str]
) -> ServedChatScorer | ServedAnswerer:
    """The first strategy of chats that is proved; ``reasons``: why no other one is."""
    for kind in IN_CHATS.values():
        try:
            model = kind(server, spec)
        except UnprovedServerError as error:
            reasons |= error.reasons
        else:
            model.proof = replace(model.proof, refused=reasons)
            return model
    raise UnprovedServerError(reasons)


ServedPromptModel = ServedOptionScorer | ServedChatScorer | ServedAnswerer
"""A model of questions with options that a server has."""

IN_CHATS: Mapping[str, type[ServedChatScorer | ServedAnswerer]] = {
    CHAT_TOP_K: ServedChatScorer,
    ANSWERS_ONLY: ServedAnswerer,
}
"""The strategies of chats by name, in the order in which they are tried."""
