"""Chats of a server, with the fields that it takes.

Newer models of OpenAI take ``max_completion_tokens`` in place of ``max_tokens``, no ``temperature``
and no ``top_p``, and write a text before the answer that counts as a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.endpoints.replies import Refused
from consilience.endpoints.server import ABSENT, Server

ROUTE = "chat/completions"

LENGTHS = ("max_tokens", "max_completion_tokens")
"""Names of the field that limits an answer; newer models of OpenAI refuse the first."""

Messages = Sequence[Mapping[str, str]]
"""The turns of a chat."""


class Chats:
    """Sends chats to a server. The first one finds out which fields the server takes."""

    def __init__(self, server: Server, temperature: float = 0) -> None:
        """``temperature``: 0 for the most probable token each time."""
        self.server = server
        self.sampling: dict[str, Any] = {"temperature": temperature, **server.plain_sampling}
        """The fields that say how tokens are chosen; without those that the server refuses."""
        self.length = LENGTHS[0]
        """The name of the field that limits an answer."""
        self.room = 0
        """Tokens that the model may write before its answer."""

    @property
    def identity(self) -> dict[str, object]:
        """What decides the answers apart from the model: only what the server does not take."""
        return {} if "temperature" in self.sampling else {"temperature": "of the server"}

    @property
    def notes(self) -> list[str]:
        """What a reader of the answers should know."""
        if "temperature" in self.sampling:
            return []
        return ["the server takes no temperature: its answers are sampled"]

    def body(self, messages: Messages, length: int, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The request of a chat, whose answer has at most ``length`` tokens."""
        return {
            "model": self.server.name,
            "messages": list(messages),
            self.length: length + self.room,
            **self.sampling,
            **fields,
        }

    def post_all(self, bodies: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """The position of each request and its reply; see ``Client.post_all``."""
        return self.server.client.post_all(ROUTE, bodies)

    def known(self, messages: Messages, length: int, fields: Mapping[str, Any]) -> Any:
        """The reply to a chat of a proof, sent again without fields that the server refuses."""
        while True:
            reply = self.server.client.post(ROUTE, self.body(messages, length, fields))
            if not (isinstance(reply, Refused) and self._drops(reply.message)):
                return reply

    def settle(self) -> None:
        """Find out which fields the server takes, by a short chat; nothing without chats."""
        try:
            self.known([{"role": "user", "content": "Hello"}], 16, {})
        except ConsilienceError as error:
            if not error.found.startswith(ABSENT):
                raise

    def _drops(self, message: str) -> bool:
        """Leave out or rename a field that a server refuses by its name; whether there is one."""
        if LENGTHS[1] in message and self.length == LENGTHS[0]:
            self.length = LENGTHS[1]
            return True
        for name in ("temperature", "top_p"):
            if name in message and name in self.sampling:
                del self.sampling[name]
                return True
        return False
