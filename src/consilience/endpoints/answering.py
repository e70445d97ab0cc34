"""Answers without scores: a server is made to answer a chat with one of given texts.

The field ``response_format`` of ``/v1/chat/completions`` (structured outputs) has a JSON schema: an
object with one property, whose value is one of the texts. OpenAI, vLLM, SGLang, llama.cpp, Ollama,
LM Studio and others take the field in this form. Some servers accept it and ignore it, or only show
it to the model. So it is proved before it is used: by chats that ask for something else than what
the schema admits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from consilience.core.errors import ConsilienceError, shortened
from consilience.endpoints.chats import Chats, Messages
from consilience.endpoints.proving import Proof
from consilience.endpoints.replies import Refused
from consilience.endpoints.server import Server
from consilience.endpoints.strategies import ANSWERS_ONLY, UnprovedError, UnprovedServerError
from consilience.files.read import parse_json

FIELD = "response_format"
"""The field that enforces an answer."""

MOST_OPTIONS = 1000
"""Values of an enum that OpenAI takes; other servers do not say."""

MANY, MOST_CHARACTERS = 250, 15_000
"""Of an enum with more values than this, how many characters they may have together (OpenAI)."""

AROUND = 32
"""Tokens around the answer in its JSON object, at most; ``{"answer": ""}`` has 14 bytes."""

KNOWN = (
    ("Write the word blue and nothing else.", ("Qzx 7", "Vkj 9")),
    (
        'Write the JSON object {"answer": "blue"} and nothing else.',
        ('an "odd" reply', "un autre été"),
    ),
)
"""Chats of the proof, and the only answers that each may have."""

ROOM = 4096
"""Tokens that a model may write before its answer, where it does so in the proof."""

SHOWN = 80
"""Characters of a reply that a message quotes."""


class Answering:
    """Asks chats on one server for one of given texts each; the server is proved to obey."""

    def __init__(self, server: Server) -> None:
        """Prove the server; one that does not enforce answers raises."""
        self.chats = Chats(server)
        before = server.client.usage.requests
        try:
            for question, options in KNOWN:
                reply = self._known(question, options)
                if not self.chats.room and _has_reasoned(reply):
                    self.chats.room = ROOM
                    reply = self._known(question, options)
                answer = reply.reason if isinstance(reply, Refused) else _answer_of(reply, options)
                if isinstance(answer, str):
                    raise UnprovedError(FIELD, answer)
        except UnprovedError as error:
            raise UnprovedServerError({ANSWERS_ONLY: str(error)}) from error
        requests = server.client.usage.requests - before
        gives = f"answers that '{FIELD}' enforces, and no scores"
        self.proof = Proof(ANSWERS_ONLY, gives, True, requests, None, None, None, {})

    def _known(self, question: str, options: Sequence[str]) -> Any:
        """The reply to a chat of the proof."""
        messages = [{"role": "user", "content": question}]
        return self.chats.known(messages, *self._fields(options))

    def why_not(self, options: Sequence[str]) -> str | None:
        """Why a chat with these answers cannot be asked; None where it can."""
        if len(options) > MOST_OPTIONS:
            return f"{len(options):,} options, and an enum takes {MOST_OPTIONS:,}"
        characters = sum(map(len, options))
        if len(options) > MANY and characters > MOST_CHARACTERS:
            return (
                f"{len(options)} options of {characters:,} characters, and an enum of more than "
                f"{MANY} values takes {MOST_CHARACTERS:,}"
            )
        if len({*options}) < len(options):
            return "two options have the same text"
        return None

    def answers(
        self, chats: Sequence[tuple[Messages, Sequence[str]]]
    ) -> Iterator[tuple[int, int | str]]:
        """The position of each chat, and that of its answer; or why it has none."""
        bodies = (self.chats.body(chat, *self._fields(options)) for chat, options in chats)
        for at, reply in self.chats.post_all(bodies):
            if isinstance(reply, Refused):
                yield at, reply.reason
                continue
            try:
                yield at, _answer_of(reply, chats[at][1])
            except UnprovedError as error:
                raise ConsilienceError(
                    f"a reply that is not as in the proof: {error}",
                    todo="Ask one server: some that share an address do not enforce answers.",
                ) from error

    def _fields(self, options: Sequence[str]) -> tuple[int, Mapping[str, Any]]:
        """The most tokens of an answer, and the field that enforces it."""
        schema = {
            "type": "object",
            "properties": {"answer": {"type": "string", "enum": list(options)}},
            "required": ["answer"],
            "additionalProperties": False,
        }
        content = {"name": "answer", "strict": True, "schema": schema}
        longest = max(len(json.dumps(option)) for option in options)
        return AROUND + longest, {FIELD: {"type": "json_schema", "json_schema": content}}


def _answer_of(reply: Any, options: Sequence[str]) -> int | str:
    """The position of the answer among the options; or why there is none.

    A complete text that is none of the options raises: the server ignored the field.
    """
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        text = message.get("content") or ""
        if not isinstance(text, str):
            raise TypeError(text)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise UnprovedError(FIELD, f"a reply without a message: {_shown(reply)}") from None
    try:
        value = parse_json(text, last_wins=True)
    except json.JSONDecodeError:
        value = None
    answer = value.get("answer") if isinstance(value, dict) else None
    if answer in options:
        return options.index(answer)
    if refusal := message.get("refusal"):
        return f"the model refused to answer: {_shown(refusal)}"
    end = choice.get("finish_reason")
    if end == "content_filter" or (end == "length" and text.strip()[:1] in ("", "{")):
        return f"the server ended the answer early ('finish_reason' is '{end}')"
    raise UnprovedError(FIELD, f"{_shown(text)} in place of one of the options; it was ignored")


def _has_reasoned(reply: Any) -> bool:
    """Whether the limit was reached before anything of an answer was written."""
    try:
        choice = reply["choices"][0]
        return choice["finish_reason"] == "length" and not choice["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return False


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{shortened(' '.join(text.split()), SHOWN)}'"
