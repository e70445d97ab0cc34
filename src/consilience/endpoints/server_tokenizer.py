"""The tokenizer of llama.cpp's server, with the calls of transformers' that families use."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from consilience.endpoints.client import Client
from consilience.errors import ConsilienceError

KNOWN_SPECIAL = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")
"""Tokens that end a text or a document in many families."""

MARKED = re.compile(r"<[^<>\s]{1,40}>|\[[A-Z_/]{2,20}\]")
"""What special tokens look like."""

MOST_JOINED = 20_000
"""Characters of texts that are tokenised by one request."""

MOST_KNOWN = 100_000
"""Texts, and chats, whose tokens are kept."""

CLOSING = {"role": "user", "content": "?"}
"""A turn after a chat that ends with an answer."""

Turn = Mapping[str, str]


class ServerTokenizer:
    """Tokenises by requests to a server, whose routes cost nothing.

    Texts are joined by a special token that none of them has, at which every tokenizer splits, so
    that one request tokenises many. It is tried first whether they get the same tokens as alone.
    """

    is_fast = False
    unk_token_id = None
    model_max_length = 1 << 30
    name_or_path = "the server"

    def __init__(self, client: Client, props: Mapping[str, Any]) -> None:
        """``props``: what the server says about itself."""
        self._client = client
        self._known: dict[tuple[str, bool], list[int]] = {}
        self._chats: dict[str, str] = {}
        self.parts: set[int] = set()
        """The tokens of texts so far that are parts of a character."""
        names = ("bos_token", "eos_token", "chat_template")
        values = (str(props.get(name) or "") or None for name in names)
        self.bos_token, self.eos_token, self.chat_template = values
        self._piece = cache(lambda id_: self.decode([id_]))

    def __call__(
        self, texts: str | Sequence[str], *, add_special_tokens: bool = True, **_: Any
    ) -> dict[str, Any]:
        """The token ids of a text, or of several; those that are not known by a few requests."""
        if isinstance(texts, str):
            return {"input_ids": self.ids(texts, special=add_special_tokens)}
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        unknown = [
            text for text in dict.fromkeys(texts) if (text, add_special_tokens) not in self._known
        ]
        for token, id_ in () if add_special_tokens else self._separators:
            parts = list(_parts([text for text in unknown if text and token not in text]))
            joined = [token.join(part) for part in parts]
            for at, ids in self._requested(joined, special=False):
                for text, of_text in zip(parts[at], _split(ids, id_), strict=True):
                    self._known[text, False] = of_text
            unknown = [text for text in unknown if (text, False) not in self._known]
        for at, ids in self._requested(unknown, special=add_special_tokens):
            self._known[unknown[at], add_special_tokens] = ids
        return {"input_ids": [list(self._known[text, add_special_tokens]) for text in texts]}

    def ids(self, text: str, *, special: bool = False) -> list[int]:
        """The token ids of a text; ``special``: with the model's special tokens around it."""
        if (text, special) not in self._known:
            [(_, self._known[text, special])] = self._requested([text], special=special)
        return list(self._known[text, special])

    def _requested(self, texts: Sequence[str], *, special: bool) -> Iterator[tuple[int, list[int]]]:
        """Position and token ids of each text, by one request each."""
        bodies = ({"content": text, "add_special": special, "with_pieces": True} for text in texts)
        for at, reply in self._client.post_all("/tokenize", bodies):
            tokens = reply.get("tokens") if isinstance(reply, dict) else None
            ids = list[int]()
            for token in tokens if isinstance(tokens, list) else [None]:
                id_ = token.get("id") if isinstance(token, dict) else token
                if not isinstance(id_, int):
                    raise ConsilienceError(
                        f"the server did not tokenise a text: {reply}",
                        expected="a list `tokens` of numbers",
                        todo="Name a local tokenizer with --tokenizer.",
                    )
                if isinstance(token, dict) and isinstance(token.get("piece"), list):
                    self.parts.add(id_)  # it has bytes that are no text
                ids.append(id_)
            yield at, ids

    @cached_property
    def _separators(self) -> list[tuple[str, int]]:
        """Special tokens that texts may be joined by: texts get the same tokens so as alone."""
        proved = []
        for token, id_ in self._vocabulary.items():
            others = "".join(other for other in self._vocabulary if token not in other)
            texts = ["The capital of France is Paris.", " x é中 1234", f"{others}a \n", "a"]
            if _split(self.ids(token.join(texts)), id_) == [self.ids(text) for text in texts]:
                proved.append((token, id_))
        return proved

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        """The special tokens that are found, with their ids."""
        tokens = [self.eos_token, self.bos_token, *KNOWN_SPECIAL]
        ids = {token: self.ids(token) for token in tokens if token}
        return {token: of_token[0] for token, of_token in ids.items() if len(of_token) == 1}

    def get_vocab(self) -> dict[str, int]:
        """The special tokens that are found, with their ids."""
        return self._vocabulary

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens that are found."""
        return list(self._vocabulary)

    @property
    def bos_token_id(self) -> int | None:
        """The id of the token that begins a text."""
        return self._vocabulary.get(self.bos_token or "")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a text."""
        return self._vocabulary.get(self.eos_token or "")

    def special_in(self, text: str) -> str | None:
        """A part of a text that is a special token; None without one."""
        marks = [mark for mark in MARKED.findall(text) if len(self.ids(mark)) == 1]
        return next((token for token in [*marks, *self._vocabulary] if token in text), None)

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The text of token ids."""
        reply = self._client.post("/detokenize", {"tokens": list(ids)})
        if not isinstance(reply, dict) or not isinstance(reply.get("content"), str):
            raise ConsilienceError(
                f"the server has no text for token ids: {reply}",
                todo="Name a local tokenizer with --tokenizer.",
            )
        return str(reply["content"])

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """The text of a token, or of each of several."""
        return self._piece(ids) if isinstance(ids, int) else [self._piece(id_) for id_ in ids]

    def apply_chat_template(
        self, turns: Sequence[Turn], *, add_generation_prompt: bool = False, **_: Any
    ) -> str:
        """A chat as the text that the model reads."""
        key = str(_chat_body(turns, add_generation_prompt))
        if key not in self._chats:
            self.read_chats([(turns, add_generation_prompt)])
        return self._chats[key]

    def read_chats(self, chats: Iterable[tuple[Sequence[Turn], bool]]) -> None:
        """Let the server join the turns of chats, many at a time.

        Each is with the beginning of the answer's turn, or without.
        """
        if len(self._chats) > MOST_KNOWN:
            self._chats.clear()
        bodies = {str(body): body for body in itertools.starmap(_chat_body, chats)}
        keys = [key for key in bodies if key not in self._chats]
        for at, reply in self._client.post_all("/apply-template", map(bodies.get, keys)):
            if not isinstance(reply, dict) or not isinstance(reply.get("prompt"), str):
                raise ConsilienceError(f"the server's chat template refuses the prompt: {reply}")
            self._chats[keys[at]] = reply["prompt"]


def _chat_body(turns: Sequence[Turn], is_asked: bool) -> dict[str, Any]:
    # A chat that ends with an answer is opened again to be continued: another turn closes it.
    is_open = not is_asked and turns[-1]["role"] == "assistant"
    messages = [*turns, *([CLOSING] if is_open else [])]
    return {"add_generation_prompt": is_asked, "messages": messages}


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in parts of at most ``MOST_JOINED`` characters, each of one text or more."""
    part, size = list[str](), 0
    for text in texts:
        if part and size + len(text) > MOST_JOINED:
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield part


def _split(ids: Sequence[int], separator: int) -> list[list[int]]:
    """Token ids between separators."""
    parts: list[list[int]] = [[]]
    for id_ in ids:
        if id_ == separator:
            parts.append([])
        else:
            parts[-1].append(id_)
    return parts
