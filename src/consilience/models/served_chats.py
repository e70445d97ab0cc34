"""Chat models behind a URL that list the most probable first tokens: scores of labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from consilience.choices import Connection
from consilience.endpoints.proving import Proof, prove
from consilience.endpoints.replies import Refused
from consilience.endpoints.server import Server
from consilience.endpoints.strategies import UnprovedError, bound_of, named_tokens, unproved_error
from consilience.errors import ConsilienceError
from consilience.models.served import open_server
from consilience.models.served_prompts import ServedOptionScorer, bounds_note, messages_of
from consilience.presentation import Prompt, PromptScores

MOST_LISTED = 20
"""Tokens that OpenAI and others list, at most."""

NAME = "chat-top-k"
"""The name of the strategy."""

KNOWN = (
    ("Answer with one letter and nothing else. Which comes first in the alphabet?\nA\nB", "A"),
    ("Answer with one digit and nothing else. What is 1 + 1?", "2"),
)
"""Chats of the proof, and an answer to each."""

LENGTHS = ("max_tokens", "max_completion_tokens")
"""Names of the field that limits an answer; newer models of OpenAI refuse the first."""


class ServedChatScorer:
    """Scores labels of options by the first token of a chat's answer.

    A label has the value of the token with its very text. One that is not listed has an upper
    bound: the smallest of the listed values.
    """

    tie = 0.0
    takes_chats = True

    def __init__(self, server: Server, spec: str) -> None:
        self.server = server
        self.client = server.client
        self.length = LENGTHS[0]
        self.proof = self._proved()
        self.identity: dict[str, object] = {
            "model": spec,
            "server": server.client.connection.base_url,
            "kind": server.kind,
            "scoring": NAME,
        }
        self.notes: list[str] = [self.proof.note]

    def text(self, prompt: Prompt) -> str:
        """The turns of a chat; the server joins them."""
        return "".join(f"{turn['role']}: {turn['content']}\n" for turn in messages_of(prompt))

    def why_not(self, prompt: Prompt) -> str | None:
        """Why a prompt cannot be asked; None where it can."""
        if not prompt.is_chat or not prompt.are_labels:
            return "the server scores labels of options in chats only"
        return None

    def score(self, prompts: Sequence[Prompt]) -> Iterator[PromptScores]:
        """The log-probabilities of the labels of prompts, or bounds of these."""
        bodies = (self._body(messages_of(prompt)) for prompt in prompts)
        some = 0
        for at, reply in self.client.post_all("chat/completions", bodies):
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

    def _body(self, messages: Sequence[Any]) -> dict[str, Any]:
        return {
            "model": self.server.name,
            "messages": list(messages),
            self.length: 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": MOST_LISTED,
        }

    def _proved(self) -> Proof:
        """The proof: two chats, each twice."""
        try:
            before = self.client.usage.requests
            repeated, masses = 0.0, []
            for question, answer in KNOWN:
                first, again = (self._known(question) for _ in range(2))
                masses.append(float(np.exp([value for _, value in first]).sum()))
                both = dict(first), dict(again)
                if answer not in both[0]:
                    raise UnprovedError(
                        "top_logprobs", f"'{answer}' is not listed as an answer to '{question}'"
                    )
                shared = both[0].keys() & both[1].keys()
                repeated = max(repeated, *(abs(both[0][name] - both[1][name]) for name in shared))
        except UnprovedError as error:
            raise unproved_error({NAME: str(error)}) from error
        gives = f"the first token; a bound for labels that are not among the {MOST_LISTED} listed"
        requests = self.client.usage.requests - before
        return Proof(NAME, gives, True, requests, repeated, None, max(masses, default=0.0), {})

    def _known(self, question: str) -> list[tuple[str, float]]:
        messages = [{"role": "user", "content": question}]
        reply = self.client.post("chat/completions", self._body(messages))
        if isinstance(reply, Refused) and "max_completion_tokens" in reply.message:
            self.length = LENGTHS[1]
            reply = self.client.post("chat/completions", self._body(messages))
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
) -> ServedOptionScorer | ServedChatScorer:
    """The model of that name, with the first strategy that its server proves.

    A server without tokens is asked chats, of which it lists the most probable first tokens.
    """
    server = open_server(spec, connection, scoring)
    if server.tokenizer is None:
        return ServedChatScorer(server, spec)
    model = ServedOptionScorer(server, spec, *prove(server))
    model.longest = longest or model.longest
    return model
