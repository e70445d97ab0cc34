"""Chats of a server: the fields that it takes, listed first tokens, and enforced answers.

An answer is enforced by the field ``response_format`` (structured outputs): the JSON schema of an
object with one property, whose value is one of the texts. Some servers ignore it, or only show it
to the model. So it is proved before it is used: by chats that ask for something else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from consilience.core.errors import ConsilienceError, shortened
from consilience.endpoints import scorer
from consilience.endpoints.client import Refused
from consilience.endpoints.scorer import ANSWERS_ONLY, CHAT_TOP_K, Proof, UnprovedError
from consilience.endpoints.server import ABSENT, Server
from consilience.files.read import parse_json

ROUTE = "chat/completions"
LENGTHS = ("max_tokens", "max_completion_tokens")  # Newer models refuse the first, and temperature
MOST_LISTED = 20  # Tokens that OpenAI and others list, at most
LISTING = {"logprobs": True, "top_logprobs": MOST_LISTED}
ENFORCES = "response_format"  # The field that enforces an answer

KNOWN_LISTED = (
    ("Answer with one letter and nothing else. Which comes first in the alphabet?\nA\nB", "A"),
    ("Answer with one digit and nothing else. What is 1 + 1?", "2"),
)
KNOWN = (
    ("Write the word blue and nothing else.", ("Qzx 7", "Vkj 9")),
    (
        'Write the JSON object {"answer": "blue"} and nothing else.',
        ('an "odd" reply', "un autre été"),
    ),
)
"""Chats of the proof that first tokens are listed, and an answer to each; and of the proof that
answers are enforced, and the only answers that each may have."""

AROUND, ROOM = 32, 4096
"""Tokens around the answer in its JSON object, at most (``{"answer": ""}`` has 14 bytes), and
tokens that a model may write before its answer, where it does so in the proof."""

SHOWN = 80  # Characters of a reply that a message quotes
Messages = Sequence[Mapping[str, str]]  # The turns of a chat


class Chats:
    """Sends chats to a server. The first one finds out which fields the server takes."""

    def __init__(self, server: Server, temperature: float = 0) -> None:
        """``temperature``: 0 for the most probable token each time."""
        self.server = server
        self.sampling: dict[str, Any] = {"temperature": temperature, **server.plain_sampling}
        self.length, self.room = LENGTHS[0], 0  # ``room``: tokens before an answer

    @property
    def identity(self) -> dict[str, object]:
        """What decides the answers apart from the model: only what the server does not take."""
        return {} if "temperature" in self.sampling else {"temperature": "of the server"}

    @property
    def notes(self) -> list[str]:
        return ["the server takes no temperature: its answers are sampled"] * bool(self.identity)

    def body(self, messages: Messages, length: int, fields: Mapping[str, Any]) -> dict[str, Any]:
        asked = {"model": self.server.name, "messages": list(messages)}
        return {**asked, self.length: length + self.room, **self.sampling, **fields}

    def settle(self) -> None:
        """Find out which fields the server takes, by a short chat; nothing without chats."""
        try:
            self._known("Hello", 16, {})
        except ConsilienceError as error:
            if not error.found.startswith(ABSENT):
                raise

    def _known(self, question: str, length: int, fields: Mapping[str, Any]) -> Any:
        """The reply to a known chat, sent again without fields that the server refuses."""
        messages = [{"role": "user", "content": question}]
        while True:
            reply = self.server.client.post(ROUTE, self.body(messages, length, fields))
            message = reply.message if isinstance(reply, Refused) else ""
            named = [name for name in ("top_p", "temperature") if name in message]
            if LENGTHS[1] in message and self.length == LENGTHS[0]:
                self.length = LENGTHS[1]
            elif refused := [name for name in named if self.sampling.get(name) in (0, 1)]:
                del self.sampling[refused[0]]
            else:
                return reply

    def prove(self, name: str) -> Proof:
        usage = self.server.client.usage
        before = usage.requests
        try:
            is_listed = name == CHAT_TOP_K
            repeated, total = self._prove_listed() if is_listed else self._prove_enforced()
        except UnprovedError as error:
            raise scorer.UnprovedServerError({name: str(error)}) from error
        requests = usage.requests - before
        return Proof(name, STRATEGIES[name][0], requests, repeated, None, total)

    def _prove_listed(self) -> tuple[float, float]:
        """The largest difference of equal chats in nats, and of listed probabilities the sum."""
        repeated, masses = 0.0, [0.0]
        for question, answer in KNOWN_LISTED:
            first, again = (
                dict(_listed(_answered(self._known(question, 1, LISTING), "top_logprobs")))
                for _ in range(2)
            )
            masses.append(float(np.exp(list(first.values())).sum()))
            if answer not in first:
                problem = f"'{answer}' is not listed as an answer to '{question}'"
                raise UnprovedError("top_logprobs", problem)
            shared = first.keys() & again.keys()
            repeated = max(repeated, *(abs(first[name] - again[name]) for name in shared))
        return repeated, max(masses)

    def _prove_enforced(self) -> tuple[None, None]:
        for question, options in KNOWN:
            reply = self._known(question, *enforcing(options))
            written, end = (_part_of_choice(reply, each) for each in ("message", "finish_reason"))
            is_cut = end == "length" and written and not content_of(written)
            if isinstance(reply, Refused):
                is_cut = "output limit" in reply.message
            if not self.room and is_cut:
                self.room = ROOM  # nothing of an answer was written before the limit
                reply = self._known(question, *enforcing(options))
            answer = _answer_of(_answered(reply, ENFORCES), options)
            if isinstance(answer, str):
                raise UnprovedError(ENFORCES, answer)
        return None, None

    def replies(
        self, name: str, chats: Sequence[tuple[Messages, Sequence[str]]]
    ) -> Iterator[tuple[int, Any]]:
        """The position of each chat with options, and what a strategy reads; or why nothing.

        ``chat-top-k``: values of labels (``values_of``). ``answers-only``: a position.
        """
        _, ask, read = STRATEGIES[name]
        bodies = (self.body(messages, *ask(options)) for messages, options in chats)
        for at, reply in self.server.client.post_all(ROUTE, bodies):
            try:
                is_refused = isinstance(reply, Refused)
                yield at, reply.reason if is_refused else read(reply, chats[at][1])
            except UnprovedError as error:
                found = f"a reply that is not as in the proof: {error}"
                todo = "Ask one server: some that share an address do not do the same."
                raise ConsilienceError(found, todo=todo) from error


def _answered(reply: Any, field: str) -> Any:
    if isinstance(reply, Refused):
        raise UnprovedError(field, reply.reason)
    return reply


def _listed(reply: Any) -> list[tuple[str, float]]:
    with scorer.rests_on("logprobs"):
        entries = scorer.named_tokens(reply["choices"][0]["logprobs"])
    if len(entries) < MOST_LISTED:
        problem = f"{len(entries)} tokens where {MOST_LISTED} were asked for"
        raise UnprovedError("top_logprobs", problem)
    total = float(np.exp([value for _, value in entries]).sum())
    if total > 1 + scorer.TOLERANCE:
        raise UnprovedError("logprobs", f"probabilities with a sum of {total:.3f}")
    return entries


def values_of(
    entries: Sequence[tuple[str, float]], labels: Sequence[str]
) -> npt.NDArray[np.float64]:
    """The value (label,) of each label among listed tokens; NaN of what is not listed."""
    known: dict[str, float] = {}
    for name, value in entries:  # tokens with one text, such as one with a space that is not shown
        known[name] = float(np.logaddexp(known.get(name, -np.inf), value))
    return np.array([known.get(label, np.nan) for label in labels])


def enforcing(options: Sequence[str]) -> tuple[int, Mapping[str, Any]]:
    """The most tokens of an answer, and the field that enforces it."""
    answer = {"type": "string", "enum": list(options)}
    schema = {
        "type": "object", "properties": {"answer": answer}, "required": ["answer"],
        "additionalProperties": False,
    }  # fmt: skip
    content = {"name": "answer", "strict": True, "schema": schema}
    longest = max(len(json.dumps(option)) for option in options)
    return AROUND + longest, {ENFORCES: {"type": "json_schema", "json_schema": content}}


def why_not_enforced(options: Sequence[str]) -> str | None:
    """Why a chat with these answers cannot be asked; None where it can."""
    return "two options have the same text" if len({*options}) < len(options) else None


def _answer_of(reply: Any, options: Sequence[str]) -> int | str:
    """The position of the answer among the options, or why there is none; another text raises."""
    message = _part_of_choice(reply, "message")
    text = content_of(message) or "" if isinstance(message, dict) else None
    if not isinstance(text, str):
        raise UnprovedError(ENFORCES, f"a reply without a message: {_shown(reply)}")
    try:
        value = parse_json(text)
    except json.JSONDecodeError:
        value = None
    answer = value.get("answer") if isinstance(value, dict) else None
    if answer in options:
        return options.index(answer)
    if refusal := message.get("refusal"):
        return f"the model refused to answer: {_shown(refusal)}"
    end = _part_of_choice(reply, "finish_reason")
    if end == "length" and text.strip()[:1] in ("", "{"):
        return f"the server ended the answer early ('finish_reason' is '{end}')"
    found = f"{_shown(text)} in place of one of the options"
    if not text.strip():
        return found
    raise UnprovedError(ENFORCES, f"{found}; it was ignored")


def content_of(message: Mapping[str, Any]) -> Any:
    """The text of a message; where it has parts, such as thoughts, that of its texts."""
    content = message.get("content")
    if not isinstance(content, list):
        return content
    parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(str(part.get("text") or "") for part in parts)


def _part_of_choice(reply: Any, name: str) -> Any:
    try:
        return reply["choices"][0][name]
    except (KeyError, IndexError, TypeError):
        return None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{shortened(' '.join(text.split()), SHOWN)}'"


STRATEGIES: Mapping[str, tuple[str, Callable[..., Any], Callable[[Any, Sequence[str]], Any]]] = {
    CHAT_TOP_K: (
        f"the first token, of labels that are among the {MOST_LISTED} listed",
        lambda labels: (1, LISTING),
        lambda reply, labels: values_of(_listed(reply), labels),
    ),
    ANSWERS_ONLY: (f"answers that '{ENFORCES}' enforces, and no scores", enforcing, _answer_of),
}
"""The strategies of chats in the order in which they are tried: what they give, the most tokens and
the fields of a chat with options, and what is read of the reply."""
