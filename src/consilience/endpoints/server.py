"""What a server has: its name, limits and tokenizer; llama.cpp as one in this process."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import httpx2

from consilience.core.errors import Connection, ConsilienceError, needs_extra
from consilience.core.provenance import cores
from consilience.endpoints.client import Client, Refused

KNOWN_SPECIAL = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")
MARKED = re.compile(r"<[^<>\s]{1,40}>|\[[A-Z_/]{2,20}\]")
"""Tokens that end a text or a document in many families, and what special tokens look like."""

MOST_JOINED, MOST_KNOWN = 20_000, 100_000
"""Characters of texts that are tokenised by one request; texts, and chats, that are remembered."""

CLOSING = {"role": "user", "content": "?"}
Turn = Mapping[str, str]


class ServerTokenizer:
    """Tokenises by requests to a server, whose routes cost nothing.

    Texts are joined by a special token that none of them has, at which every tokenizer splits, so
    that one request tokenises many. It is tried first whether they get the same tokens as alone.
    ``parts``: the tokens of texts so far that are parts of a character.
    """

    is_fast, unk_token_id, name_or_path = False, None, "the server"

    def __init__(self, client: Client, props: Mapping[str, Any]) -> None:
        """``props``: what the server says about itself."""
        self._client = client
        self._known: dict[tuple[str, bool], list[int]] = {}
        self._chats: dict[str, str] = {}
        self.parts: set[int] = set()
        names = ("bos_token", "eos_token", "chat_template")
        values = (str(props.get(name) or "") or None for name in names)
        self.bos_token, self.eos_token, self.chat_template = values
        tokens = [self.eos_token, self.bos_token, *KNOWN_SPECIAL]
        ids = {token: self.ids(token) for token in tokens if token}
        self._vocabulary = {token: of[0] for token, of in ids.items() if len(of) == 1}
        chatml = "<|im_start|>"  # which llama.cpp names for models without a template
        if chatml in (self.chat_template or "") and len(self.ids(chatml)) != 1:
            self.chat_template = None
        self.bos_token_id = self._vocabulary.get(self.bos_token or "")
        self.eos_token_id = self._vocabulary.get(self.eos_token or "")

    def __call__(
        self, texts: str | Sequence[str], *, add_special_tokens: bool = True, **_: Any
    ) -> dict[str, Any]:
        """The token ids of a text, or of several; those that are not known by a few requests."""
        special, several = add_special_tokens, [texts] if isinstance(texts, str) else texts
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        unknown = [text for text in dict.fromkeys(several) if (text, special) not in self._known]
        for token, id_ in self._separators if len(unknown) > 1 and not special else ():
            groups, size = list[list[str]](), 0
            for text in (text for text in unknown if text and token not in text):
                if not groups or size + len(text) > MOST_JOINED:
                    groups, size = [*groups, []], 0
                groups[-1].append(text)
                size += len(text)
            for at, joined in self._requested(map(token.join, groups), special):
                for text, of_text in zip(groups[at], _split(joined, id_), strict=True):
                    self._known[text, special] = of_text
            unknown = [text for text in unknown if (text, special) not in self._known]
        for at, of_text in self._requested(unknown, special):
            self._known[unknown[at], special] = of_text
        ids = [list(self._known[text, special]) for text in several]
        return {"input_ids": ids[0] if isinstance(texts, str) else ids}

    def ids(self, text: str) -> list[int]:
        return list(self(text, add_special_tokens=False)["input_ids"])

    def _requested(self, texts: Iterable[str], special: bool) -> Iterator[tuple[int, list[int]]]:
        bodies = ({"content": text, "add_special": special, "with_pieces": True} for text in texts)
        for at, reply in self._client.post_all("/tokenize", bodies):
            tokens = reply.get("tokens") if isinstance(reply, dict) else None
            entries = tokens if isinstance(tokens, list) else [None]
            ids: list[Any] = [one.get("id") if isinstance(one, dict) else one for one in entries]
            if not all(isinstance(id_, int) for id_ in ids):
                raise self._failed("did not tokenise a text", reply)
            pieces = [isinstance(one, dict) and one.get("piece") for one in entries]
            parts = (id_ for id_, piece in zip(ids, pieces, strict=True) if isinstance(piece, list))
            self.parts.update(parts)  # their pieces are bytes
            yield at, ids

    def _failed(self, problem: str, reply: Any) -> ConsilienceError:
        todo = "Name a local tokenizer with --tokenizer."
        return ConsilienceError(f"the server {problem}: {reply}", todo=todo)

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
        return self._vocabulary

    def special_in(self, text: str) -> str | None:
        """A part of a text that is a special token; None without one."""
        marks = [mark for mark in MARKED.findall(text) if len(self.ids(mark)) == 1]
        return next((token for token in [*marks, *self._vocabulary] if token in text), None)

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        reply = self._client.post("/detokenize", {"tokens": list(ids)})
        if not isinstance(reply, dict) or not isinstance(reply.get("content"), str):
            raise self._failed("has no text for token ids", reply)
        return str(reply["content"])

    def convert_ids_to_tokens(self, ids: int) -> str:
        return self.decode([ids])

    def apply_chat_template(
        self, turns: Sequence[Turn], *, add_generation_prompt: bool = False, **_: Any
    ) -> str:
        key = str(_chat_body(turns, add_generation_prompt))
        if key not in self._chats:
            self.read_chats([(turns, add_generation_prompt)])
        return self._chats[key]

    def read_chats(self, chats: Iterable[tuple[Sequence[Turn], bool]]) -> None:
        """Let the server join the turns of chats, with the beginning of an answer or without."""
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
    closing = [] if is_asked or turns[-1]["role"] != "assistant" else [CLOSING]
    return {"add_generation_prompt": is_asked, "messages": [*turns, *closing]}


def _split(ids: Sequence[int], separator: int) -> list[list[int]]:
    ends = [-1, *(at for at, id_ in enumerate(ids) if id_ == separator), len(ids)]
    return [list(ids[a + 1 : b]) for a, b in itertools.pairwise(ends)]


ServerKind = Literal["llama.cpp", "vLLM", "other"]  # SGLang: vLLM
QUEUED = 2  # Requests that wait for a slot; of more, some wait for all others
ABSENT = ("status 404", "status 405", "status 501", "an HTML page")


class Server:
    """A model behind a URL, with what it says of itself.

    ``context``: tokens of a prompt with its answer, if known. ``tokenizer``: llama.cpp's own, or
    the local one that the connection names, with the calls of transformers'; None without one.
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
            self.tokenizer = ServerTokenizer(client, props)
            if slots := _whole(props, "total_slots"):
                client.pace.take_at_most(slots + QUEUED)
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


SLOTS, TOKENS_A_SLOT = 8, 2048  # Prompts that are read at once, and tokens of each, at most

QUIET = -1  # The verbosity at which llama.cpp writes nothing
WAITING = "OMP_WAIT_POLICY"  # The environment variable that says how OpenMP's threads wait


class LlamaCppClient(Client):
    """A client of a server that runs in this process, and ends with it."""

    is_free = True

    def __init__(self, path: Path, scoring: str | None = None) -> None:
        xllamacpp = _library()
        folder = tempfile.mkdtemp(prefix="consilience-")
        socket = f"{folder}/s.sock"
        parameters = xllamacpp.CommonParams()
        parameters.model.path, parameters.hostnames = str(path), [socket]
        parameters.n_parallel, parameters.n_ctx = SLOTS, SLOTS * TOKENS_A_SLOT
        parameters.verbosity, parameters.warmup = QUIET, False
        for threads in (parameters.cpuparams, parameters.cpuparams_batch):
            threads.n_threads, threads.poll = cores(), 0
        try:
            self.server = xllamacpp.Server(parameters)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, RuntimeError | ValueError | OSError):
                raise
            found, expected = f"cannot load '{path.name}'", "a GGUF file of a language model"
            found = f"llama.cpp {found}: {error}"
            raise ConsilienceError(found, expected=expected, where=str(path)) from error
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        connection = Connection("http://localhost/v1", concurrency=SLOTS, scoring=scoring)
        super().__init__(connection, httpx2.AsyncHTTPTransport(uds=socket))


def _library() -> Any:
    """The package of llama.cpp; as it is loaded OpenMP reads that threads wait without spinning."""
    is_set = WAITING in os.environ
    os.environ.setdefault(WAITING, "passive")
    try:
        with needs_extra("llamacpp"):
            import xllamacpp
    finally:
        if not is_set:
            del os.environ[WAITING]
    return xllamacpp
