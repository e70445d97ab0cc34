"""What a server has: its name, limits and tokenizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from consilience.core.errors import ConsilienceError
from consilience.endpoints.client import Client, Refused

MARKED = re.compile(r"<[^<>\s]{1,40}>|\[[A-Z_/]{2,20}\]")
"""What special tokens look like."""

ServerKind = Literal["llama.cpp", "vLLM", "other"]  # SGLang: vLLM
ABSENT = ("status 404", "status 405", "status 501", "an HTML page")


class Server:
    """A model behind a URL, with what it says of itself.

    ``context``: tokens of a prompt with its answer, if known. ``tokenizer``: the one of
    transformers that the connection names; None without one.
    """

    def __init__(
        self, client: Client, name: str, local_tokenizer: Callable[[str], Any] | None = None
    ) -> None:
        """``name``: what the server calls the model. ``local_tokenizer`` loads one by its name."""
        self.client, self.name = client, name
        self.kind: ServerKind = "other"
        self.context: int | None = None
        self.tokenizer: Any = None
        props = optional(client, "/props")
        if isinstance(props, dict) and "default_generation_settings" in props:
            self.kind = "llama.cpp"
            self.context = _whole(props["default_generation_settings"], "n_ctx")
        else:
            reply = optional(client, "/tokenize", {"model": name, "prompt": "a"})
            tokens = reply.get("tokens") if isinstance(reply, dict) else None
            if isinstance(tokens, list) and tokens:
                self.kind, self.context = "vLLM", _whole(reply, "max_model_len")
        if client.connection.tokenizer and local_tokenizer:
            self.tokenizer = local_tokenizer(client.connection.tokenizer)

    @property
    def plain_sampling(self) -> dict[str, Any]:
        """Fields that switch off what a server changes of the probabilities before it samples."""
        if self.kind == "other":
            return {"top_p": 1}
        off = {"top_p": 1, "min_p": 0, "repetition_penalty": 1}
        return off | {"top_k": 0 if self.kind == "llama.cpp" else -1, "repeat_penalty": 1}


def optional(client: Client, path: str, body: Any = None) -> Any:
    """The reply of a route that a server may not have; None without it."""
    try:
        reply = client.post(path, body)
    except ConsilienceError as error:
        if error.found.startswith("cannot connect"):
            raise
        return None  # what is wrong with all routes is said where one is needed
    return None if isinstance(reply, Refused) else reply


def _whole(values: Any, name: str) -> int | None:
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, int) and value > 0 else None
