"""Limits on requests and tokens: a request that would exceed one is not sent."""

from __future__ import annotations

from typing import Any

from consilience.core.errors import Connection, ConsilienceError
from consilience.core.text import counted
from consilience.endpoints.usage import Usage, tokens_of

FREE = ("/tokenize", "/detokenize", "/apply-template", "/props", "/health", "models")
"""Routes that compute nothing: they are not counted, limited or kept."""

ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
"""Fields of a request that say how many tokens may be written."""


def is_free(path: str) -> bool:
    """Whether requests to a route are neither counted nor kept."""
    return path in FREE


class Allowance:
    """What may still be sent.

    The tokens of a request are known after its reply only. Until then they are estimated from its
    bytes, by the most tokens a byte that a reply of this server showed (one token a byte before the
    first reply), and the tokens that it may write. A server that counts no tokens is believed to
    have used the estimate.
    """

    def __init__(self, connection: Connection, usage: Usage) -> None:
        self.usage = usage
        self.spent = 0
        """Tokens of replies."""
        self.reserved = 0
        """Estimated tokens of requests in flight."""
        self.tokens_per_byte: float | None = None
        """Tokens read for each byte of a request, at most; None before the first reply."""
        self._connection = connection

    def estimate(self, content: bytes, body: Any) -> int:
        """Tokens that a request may use."""
        ratio = 1.0 if self.tokens_per_byte is None else self.tokens_per_byte
        return int(len(content) * ratio) + 1 + most_written(body)

    def admits(self, tokens: int) -> bool:
        """Whether a request may be sent now; False where one in flight must end first.

        A request that exceeds a limit, whatever those in flight use, raises.
        """
        connection, usage = self._connection, self.usage
        if connection.max_requests is not None and usage.requests >= connection.max_requests:
            raise self._over("--max-requests", connection.max_requests)
        if connection.max_tokens is None:
            return True
        if self.spent + self.reserved + tokens <= connection.max_tokens:
            return True
        if self.reserved:
            return False
        raise self._over("--max-tokens", connection.max_tokens, tokens)

    def settle(self, tokens: int, content: bytes, reply: Any) -> None:
        """Count a reply to a request for which ``tokens`` were estimated."""
        counts = tokens_of(reply)
        self.usage.add_tokens(reply)
        if counts is None:
            self.spent += tokens
            return
        read, _, written = counts
        self.spent += read + written
        self.tokens_per_byte = max(self.tokens_per_byte or 0.0, read / max(1, len(content)))

    def _over(self, option: str, limit: int, tokens: int = 0) -> ConsilienceError:
        sent = counted(self.usage.requests, "request")
        message = f"{option} {limit:,} is reached: {sent} sent, {self.spent:,} tokens used"
        if tokens:
            message += f", and the next request may use {tokens:,}"
        return ConsilienceError(
            message,
            todo="All replies are kept. Run the same command again to resume with the same limit "
            f"for what is left, or with a larger {option}.",
        )


def most_written(body: Any) -> int:
    """How many tokens a request lets the server write; 0 where it does not say."""
    if not isinstance(body, dict):
        return 0
    limits = [body[name] for name in ANSWER_LIMITS if isinstance(body.get(name), int)]
    answers = body.get("n") if isinstance(body.get("n"), int) else 1
    return int(max([0, *limits])) * int(answers or 1) * len(prompts_of(body))


def prompts_of(body: Any) -> list[Any]:
    """The prompts of a request, each a text or a list of token ids; the whole body for another."""
    prompt = body.get("prompt") if isinstance(body, dict) else None
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        return prompt
    return [body if prompt is None else prompt]
