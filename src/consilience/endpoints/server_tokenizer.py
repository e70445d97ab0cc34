"""The tokenizer of a server, with the calls of transformers' tokenizers that families use."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.endpoints.client import Client
from consilience.endpoints.replies import Refused

KNOWN_SPECIAL = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")
"""Tokens that end a text or a document in many families."""

MARKED = re.compile(r"<[^<>\s]{1,40}>|\[[A-Z_/]{2,20}\]")
"""What special tokens look like."""

MOST_JOINED = 20_000
"""Characters of texts that are tokenised by one request."""


MOST_KNOWN = 100_000
"""Texts, and chats, whose tokens are kept."""

Turn = Mapping[str, str]
"""The role and the content of a turn of a chat."""

CLOSING = {"role": "user", "content": "?"}
"""A turn after a chat that ends with an answer."""


class ServerTokenizer:
    """Tokenises by requests to a server, whose routes cost nothing.

    Texts are joined by a special token that none of them has, at which every tokenizer splits, so
    that one request tokenises many. It is tried first whether they get the same tokens as alone.
    """

    is_fast = False
    unk_token_id = None
    model_max_length = 1 << 30

    def __init__(self, client: Client, fields: Mapping[str, Any], text: str) -> None:
        """``fields``: of all requests. ``text``: the name of the field that has a text.

        ``parts`` becomes the tokens of texts so far that are parts of a character (llama.cpp).
        """
        self._client = client
        self._fields = dict(fields)
        self._text = text
        self._known: dict[tuple[str, bool], list[int]] = {}
        self._chats: dict[str, str] = {}
        self._pieces: dict[int, str] = {}
        self.parts: set[int] = set()
        self.name_or_path = str(fields.get("model", "the server"))
        self.bos_token: str | None = None
        self.eos_token: str | None = None
        self.chat_template: str | None = None

    @classmethod
    def of_llamacpp(cls, client: Client, props: Mapping[str, Any]) -> ServerTokenizer:
        """The tokenizer of llama.cpp's server; ``props``: what the server says about itself."""
        tokenizer = cls(client, {}, "content")
        tokenizer.bos_token = str(props.get("bos_token") or "") or None
        tokenizer.eos_token = str(props.get("eos_token") or "") or None
        tokenizer.chat_template = str(props.get("chat_template") or "") or None
        return tokenizer

    @classmethod
    def of_vllm(cls, client: Client, model: str) -> ServerTokenizer:
        """The tokenizer of vLLM, or of a server with the same routes."""
        tokenizer = cls(client, {"model": model}, "prompt")
        plain, full = tokenizer.ids("a"), tokenizer.ids("a", special=True)
        if len(full) > len(plain) and full[: len(full) - len(plain)] != plain:
            tokenizer.bos_token = tokenizer.decode(full[:1])
        tokenizer.eos_token = next(iter(tokenizer.get_vocab()), None)
        chat_body = tokenizer._chat_body([{"role": "user", "content": "a"}], True)
        chat = client.post("/tokenize", chat_body)
        tokenizer.chat_template = None if isinstance(chat, Refused) else "of the server"
        return tokenizer

    @property
    def is_llamacpp(self) -> bool:
        """Whether the routes are those of llama.cpp."""
        return self._text == "content"

    def __call__(
        self, texts: str | Sequence[str], *, add_special_tokens: bool = True, **_: Any
    ) -> dict[str, Any]:
        """The token ids of a text, or of several."""
        if isinstance(texts, str):
            return {"input_ids": self.ids(texts, special=add_special_tokens)}
        self.read(texts, special=add_special_tokens)
        return {"input_ids": [list(self._known[text, add_special_tokens]) for text in texts]}

    def ids(self, text: str, *, special: bool = False) -> list[int]:
        """The token ids of a text; ``special``: with the model's special tokens around it."""
        if (text, special) not in self._known:
            [(_, ids)] = self._requested([text], special)
            self._known[text, special] = ids
        return list(self._known[text, special])

    def read(self, texts: Sequence[str], *, special: bool = False) -> None:
        """Tokenise texts that are not known yet, many by one request."""
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        unknown = [text for text in dict.fromkeys(texts) if (text, special) not in self._known]
        for token, id_ in () if special else self._separators:
            parts = list(_parts([text for text in unknown if text and token not in text]))
            for at, ids in self._requested([token.join(part) for part in parts], special):
                for text, of_text in zip(parts[at], _split(ids, id_), strict=True):
                    self._known[text, special] = of_text
            unknown = [text for text in unknown if (text, special) not in self._known]
        for at, ids in self._requested(unknown, special):
            self._known[unknown[at], special] = ids

    def _requested(self, texts: Sequence[str], special: bool) -> Iterator[tuple[int, list[int]]]:
        """Position and token ids of each text, by one request each."""
        name = "add_special" if self.is_llamacpp else "add_special_tokens"
        pieces = {"with_pieces": True} if self.is_llamacpp else {}
        bodies = ({**self._fields, self._text: text, name: special, **pieces} for text in texts)
        for at, reply in self._client.post_all("/tokenize", bodies):
            ids = reply.get("tokens") if isinstance(reply, dict) else None
            if self.is_llamacpp and isinstance(ids, list):
                ids = [self._id_of(entry) for entry in ids]
            if not isinstance(ids, list) or not all(isinstance(id_, int) for id_ in ids):
                raise ConsilienceError(
                    f"the server did not tokenise a text: {reply}",
                    expected="a list `tokens` of numbers",
                    todo="Name a local tokenizer with --tokenizer.",
                )
            yield at, ids

    def _id_of(self, entry: Any) -> Any:
        """The id of a token that llama.cpp names with its text, or its bytes if they are none."""
        if not isinstance(entry, dict):
            return entry
        id_: Any = entry.get("id")
        if isinstance(entry.get("piece"), list):
            self.parts.add(id_)
        return id_

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

    def get_vocab(self) -> dict[str, int]:
        """The special tokens that are found, with their ids."""
        return self._vocabulary

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        tokens = [self.eos_token, self.bos_token, *KNOWN_SPECIAL]
        ids = {token: self.ids(token) for token in tokens if token}
        return {token: of_token[0] for token, of_token in ids.items() if len(of_token) == 1}

    @property
    def bos_token_id(self) -> int | None:
        """The id of the token that begins a text."""
        return self._vocabulary.get(self.bos_token or "")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a text."""
        return self._vocabulary.get(self.eos_token or "")

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens that are known."""
        return list(self._vocabulary)

    def special_in(self, text: str) -> str | None:
        """A part of a text that is a special token; None without one."""
        marks = [mark for mark in MARKED.findall(text) if len(self.ids(mark)) == 1]
        return next((token for token in [*marks, *self._vocabulary] if token in text), None)

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The text of token ids."""
        [(_at, text)] = self._decoded([ids])
        return text

    def _decoded(self, every: Sequence[Sequence[int]]) -> Iterator[tuple[int, str]]:
        """Position and text of each sequence of token ids."""
        bodies = ({**self._fields, "tokens": list(ids)} for ids in every)
        for at, reply in self._client.post_all("/detokenize", bodies):
            text = None
            if isinstance(reply, dict):
                text = reply.get("content" if self.is_llamacpp else "prompt")
            if not isinstance(text, str):
                raise ConsilienceError(
                    f"the server has no text for token ids: {reply}",
                    todo="Name a local tokenizer with --tokenizer.",
                )
            yield at, text

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """The text of a token, or of each of several."""
        if not isinstance(ids, int):
            return [self.convert_ids_to_tokens(id_) for id_ in ids]
        if ids not in self._pieces:
            self._pieces[ids] = self.decode([ids])
        return self._pieces[ids]

    def apply_chat_template(
        self, turns: Sequence[Turn], *, add_generation_prompt: bool = False, **_: Any
    ) -> str:
        """A chat as the text that the model reads."""
        body = self._chat_body(turns, add_generation_prompt)
        if (key := str(body)) not in self._chats:
            self.read_chats([(turns, add_generation_prompt)])
        return self._chats[key]

    def read_chats(self, chats: Iterable[tuple[Sequence[Turn], bool]]) -> None:
        """Let the server join the turns of chats, many at a time.

        Each is with the beginning of the answer's turn, or without.
        """
        if len(self._chats) > MOST_KNOWN:
            self._chats.clear()
        bodies = itertools.starmap(self._chat_body, chats)
        unknown = {key: body for body in bodies if (key := str(body)) not in self._chats}
        keys = list(unknown)
        for at, text in self._joined(list(unknown.values())):
            self._chats[keys[at]] = text

    def _joined(self, bodies: Sequence[dict[str, Any]]) -> Iterator[tuple[int, str]]:
        """Position and text of each chat."""
        if not self.is_llamacpp:
            ids = {at: _ids_of_chat(of) for at, of in self._client.post_all("/tokenize", bodies)}
            order = list(ids)
            yield from ((order[at], text) for at, text in self._decoded(list(ids.values())))
            return
        for at, reply in self._client.post_all("/apply-template", bodies):
            if not isinstance(reply, dict) or not isinstance(reply.get("prompt"), str):
                raise ConsilienceError(f"the server's chat template refuses the prompt: {reply}")
            yield at, str(reply["prompt"])

    def _chat_body(self, turns: Sequence[Turn], is_asked: bool) -> dict[str, Any]:
        fields = {**self._fields, "add_generation_prompt": is_asked}
        if not self.is_llamacpp:
            return {**fields, "messages": list(turns), "add_special_tokens": False}
        # A chat that ends with an answer is opened again to be continued: another turn closes it.
        is_open = not is_asked and turns[-1]["role"] == "assistant"
        return {**fields, "messages": [*turns, *([CLOSING] if is_open else [])]}


def _ids_of_chat(reply: Any) -> list[int]:
    ids = reply.get("tokens") if isinstance(reply, dict) else None
    if not isinstance(ids, list):
        raise ConsilienceError(f"the server's chat template refuses the prompt: {reply}")
    return ids


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in parts of at most ``MOST_JOINED`` characters, each of one text or more."""
    part: list[str] = []
    size = 0
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
