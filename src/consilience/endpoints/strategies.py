"""Strategies: how a server is asked for log-probabilities, and the proof that it gives them.

Some servers ignore a field without an error, so a strategy is tested on known prompts before it is
used. A reply that is not as in this proof is not understood (``UnreadError``), and asked for again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

from consilience.core.errors import ConsilienceError, shortened
from consilience.core.items import NoAnswer
from consilience.endpoints.client import NAME, Client, Read, RefusedError, UnreadError

Ids = Sequence[int]
Body = dict[str, Any]
Turns = Sequence[Mapping[str, str]]  # The turns of a chat
CHATS, TEXTS, LLAMA_CPP = "chat/completions", "completions", "/completion"  # Routes
MOST_LISTED, LEAST_LISTED = 20, 5  # Top tokens that most servers give, and some
ROOM = 4096  # Tokens that a model may write before its answer, where it thinks first
LIMIT = "the limit of tokens ended the answer before its text began (--max-new-tokens)"

NEUTRAL: Mapping[str, tuple[Any, ...] | None] = {
    "top_p": (1,), "temperature": (0, 1), "min_p": (0,), "top_k": (0, -1),
    "repetition_penalty": (1,), "repeat_penalty": (1,), "seed": None, "stop": None,
    "return_tokens_as_token_ids": None,
}  # fmt: skip
"""Fields that are left out for a server that refuses them, and the values of which this holds."""


def _is_neutral(name: str, value: Any) -> bool:
    return (values := NEUTRAL[name]) is None or value in values


class Server:
    """A model behind a URL, and the fields that it takes.

    ``kind``: as its list of models says. ``tokenizer``: the one of transformers that the user
    named; None without one. ``room``: tokens before an answer.
    """

    def __init__(self, client: Client, name: str, tokenizer: Any = None) -> None:
        """``name``: what the server calls the model."""
        self.client, self.name, self.tokenizer = client, name, tokenizer
        owners = re.findall(r'"owned_by": "(\w+)"', json.dumps(client.get("models")))
        self.kind = next((OWNERS[one] for one in owners if one in OWNERS), "other")
        self.refused: list[str] = []  # Fields of ``NEUTRAL``
        self.length, self.room = "max_tokens", 0
        self.listed = self.least = MOST_LISTED  # Top tokens that are asked for, and that are given
        self._settled: set[str] = set()
        self.piece = cache(lambda token: str(tokenizer.decode([token])))  # The text of a token
        self.letter = tokenizer.encode("a", add_special_tokens=False)[-1] if tokenizer else 0

    @property
    def notes(self) -> list[str]:
        note = "the server takes no temperature of 0: its answers may be sampled"
        return [note] * ("temperature" in self.refused)

    @property
    def plain_sampling(self) -> Body:
        """Fields that switch off what a server changes of the probabilities before it samples."""
        if self.kind == "other":
            return {"top_p": 1}
        off = {"top_p": 1, "min_p": 0, "repetition_penalty": 1}
        return off | {"top_k": 0 if self.kind == "llama.cpp" else -1, "repeat_penalty": 1}

    def ask(self, path: str, body: Body, read: Read, *, is_known: bool = False) -> Any:
        """What is read of the reply to a request in the fields that the server takes.

        One that is refused raises; a known one, which tests the server, is first sent in all forms.
        """
        while True:
            sent = self._form(path, body)
            try:
                return self.client.post(path, sent, read, is_known=is_known)
            except RefusedError as refused:
                if not (is_known and self._adapts(refused.message, sent)):
                    raise

    def _form(self, path: str, body: Body) -> Body:
        sent: Body = {"model": self.name}
        for name, value in body.items():
            if name not in self.refused or not _is_neutral(name, value):
                sent[name] = value
        if "max_tokens" in sent:
            sent[self.length] = sent.pop("max_tokens") + (self.room if path == CHATS else 0)
        if "top_logprobs" in sent:
            sent["top_logprobs"] = self.listed
        return sent

    def _adapts(self, message: str, sent: Body) -> bool:
        """Whether a request that was refused so has another form, by the field that is named."""
        has_more = sent.get("top_logprobs", 0) > LEAST_LISTED
        if "max_completion_tokens" in message and "max_tokens" in sent:
            self.length = "max_completion_tokens"
        elif "output limit" in message and not self.room:
            self.room = ROOM
        elif has_more and re.search(r"top_logprobs|logprobs\D*\d", message):
            self.listed = LEAST_LISTED
        else:
            named = (name for name in NEUTRAL if name in sent and _is_neutral(name, sent[name]))
            found = [name for name in named if re.search(rf"\b{name}\b", message)]
            self.refused += found[:1]
            return bool(found)
        return True

    def settle(self, path: str, body: Body) -> None:
        """Find out which fields of a body the server takes, by one known request for a route."""
        if path in self._settled:
            return
        hello: Body = {"messages": [{"role": "user", "content": "Hello"}]}
        known = {**body, **(hello if path == CHATS else {"prompt": "Hello"})}
        try:
            text = self.ask(path, known, text_of, is_known=True)
        except (RefusedError, UnreadError) as error:
            todo = NAME + " If it takes chats only, begin the template with 'chat:'." * (
                path == TEXTS
            )
            raise ConsilienceError(str(error), where=self.client.url(path), todo=todo) from error
        if isinstance(text, NoAnswer) and text.reason == LIMIT and path == CHATS:
            self.room = ROOM
        self._settled.add(path)


OWNERS = {"llamacpp": "llama.cpp", "vllm": "vLLM", "sglang": "vLLM"}  # Of models; the servers


@contextmanager
def rests_on(field: str) -> Iterator[None]:
    """Inside, a reply that lacks what a field of the request asks for raises ``UnreadError``."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UnreadError(field, "the server ignored it, or replied in another form") from error


def text_of(reply: Any) -> str | NoAnswer:
    """The text that a model wrote, without spaces around it; or why there is none.

    Of a message in parts, such as thoughts, it is that of its texts.
    """
    with rests_on("choices"):
        choice = reply["choices"][0]
        message, end = choice.get("message"), choice.get("finish_reason")
        text = choice["text"] if message is None else message.get("content")
        if isinstance(text, list):
            text = "".join(part["text"] for part in text if part["type"] == "text")
        stripped = None if text is None else str.strip(text)
    if stripped:
        return stripped
    if message is not None and end == "length":
        return NoAnswer(LIMIT)
    if refusal := (message or {}).get("refusal"):
        return NoAnswer(f"the model refused to answer: '{shortened(str(refusal), 80)}'")
    if stripped is None:
        raise UnreadError("content", "a message without a text")
    return stripped


TOLERANCE = 1e-3  # How far a log-probability may be above 0, and a sum above 1


def _number(field: str, value: Any) -> float:
    """A log-probability: finite, because no next token of a model is impossible."""
    if not (isinstance(value, int | float) and -math.inf < value <= TOLERANCE):
        raise UnreadError(field, f"{value!r} in place of a log-probability")
    return float(value)


def _score_whole(
    field: str, fields: Body, values_of: Callable[[Server, Any, Ids], list[Any]],
    server: Server, prefix: Ids, targets: Sequence[Ids], *, is_known: bool, **_: Any,
) -> list[float]:  # fmt: skip
    """Of prompts with their continuations, all in one request; ``values_of`` the tokens of one."""
    prompts = [[*prefix, *target] for target in targets]
    body = {"prompt": prompts, "max_tokens": 1, "temperature": 0, **fields}

    @rests_on(field)
    def read(reply: Any) -> list[float]:
        count = (reply.get("usage") or {}).get("prompt_tokens")
        if field == "echo" and count not in (None, sum(map(len, prompts))):
            raise UnreadError(field, f"a prompt of {count} tokens")
        choices = sorted(reply["choices"], key=lambda choice: int(choice.get("index", 0)))
        every = [values_of(server, *one) for one in zip(choices, prompts, strict=True)]
        totals = (map(partial(_number, field), values[len(prefix) :]) for values in every)
        return [math.fsum(one) for one in totals]

    return list(server.ask(TEXTS, body, read, is_known=is_known))


def _prompt_logprobs(server: Server, choice: Any, ids: Ids) -> list[Any]:
    entries = list(zip(ids, choice["prompt_logprobs"], strict=True))[1:]
    return [None, *(entry[str(token)]["logprob"] for token, entry in entries)]


def _echoed(server: Server, choice: Any, ids: Ids) -> list[Any]:
    with rests_on("logprobs"):
        record = dict(choice["logprobs"])
    values = list(record["token_logprobs"])
    if len(values) not in (len(ids), len(ids) + 1):
        raise UnreadError("echo", f"{len(values)} log-probabilities for {len(ids)} tokens")
    for name, token in zip(record.get("tokens") or (), ids, strict=False):
        if _is_other(str(name), token, server.piece):
            raise UnreadError("echo", f"the token '{name}' in place of {token} of the prompt")
    return values[: len(ids)]


def _is_other(name: str, token: int, piece: Callable[[int], str]) -> bool:
    """Whether a reply names another token; of texts only words, which all servers write alike."""
    if name.startswith("token_id:"):
        return name != f"token_id:{token}"
    word, sent = name.strip(" \u0120\u2581"), piece(token).strip()
    return word != sent and all(one.isascii() and one.isalnum() for one in (word, sent))


MARKED = re.compile(r"<[^<>\s]{1,40}>|\[[A-Z_/]{2,20}\]")  # What special tokens look like
BROKEN = "\ufffd"  # In the text of a token that is part of a character
MOST_LIKELY = 256  # Next tokens that llama.cpp is asked for; more take longer than the others alone
ALL_TOKENS = 1_000_000
FORCED = 1000  # The bias, in nats, of the only token that may be written
REPLY_FIELDS = ("completion_probabilities", "tokens_evaluated", "tokens_predicted")
"""What llama.cpp is asked to reply; the rest, a copy of all settings, is four times as long."""


def _score_forced(
    server: Server, prefix: Ids, targets: Sequence[Ids], *, every: bool, gold: int, is_known: bool
) -> list[float]:
    """Of continuations that llama.cpp is forced to write, a request each.

    A request for the most probable next tokens says what a continuation has at most. Without
    ``every`` those that cannot be the best are left out (NaN), but for ``gold``.
    """

    def ask(before: Ids, read: Read, size: int, n_probs: int, **fields: Any) -> Any:
        body = {
            "prompt": list(before), "n_predict": size, "temperature": 0, "samplers": [],
            "cache_prompt": True, "response_fields": REPLY_FIELDS, "n_probs": n_probs, **fields,
        }  # fmt: skip
        return server.ask(LLAMA_CPP, body, rests_on("n_probs")(read), is_known=is_known)

    def following(before: Ids, n_probs: int) -> dict[int, float]:
        """The values of next tokens; what is written is a letter, which nobody reads."""

        def read(reply: Any) -> dict[int, float]:
            (entry,) = reply["completion_probabilities"]
            return {one["id"]: _number("n_probs", one["logprob"]) for one in entry["top_logprobs"]}

        return dict(ask(before, read, 1, n_probs, logit_bias=[[server.letter, FORCED]]))

    def whole(target: Ids) -> float:
        """By a grammar of tokens, an end by its bias; parts of characters cannot be written."""
        known = 1 if target[0] in likely else 0
        before, rest = [*prefix, *target[:known]], target[known:]
        values = [likely[token] for token in target[:known]]
        if any(BROKEN in server.piece(token) for token in rest):
            for token in rest:
                with rests_on("n_probs"):
                    values.append(following(before, ALL_TOKENS)[token])
                before.append(token)
            return math.fsum(values)
        end = server.piece(rest[-1]).strip()
        is_end = rest[-1] == server.tokenizer.eos_token_id or MARKED.fullmatch(end)
        for part in [rest[:-1], rest[-1:]] if is_end and len(rest) > 1 else [rest]:
            tokens = " ".join(f"<[{token}]>" for token in part)
            how: Body = {"grammar": f"root ::= {tokens}"}
            if len(part) == 1:
                how = {"logit_bias": [[part[0], FORCED]]}
            values += ask(before, partial(_read_forced, part), len(part), 1, **how)
            before += part
        return math.fsum(values)

    likely = following(prefix, MOST_LIKELY)
    values = [likely.get(target[0], min(likely.values())) for target in targets]
    found = {at for at, target in enumerate(targets) if len(target) == 1 and target[0] in likely}
    best = max((values[at] for at in found), default=-math.inf)
    for at in sorted({*range(len(targets))} - found, key=lambda at: (at != gold, -values[at])):
        is_needed = every or at == gold or values[at] >= best
        values[at] = whole(targets[at]) if is_needed else math.nan
        best = max(best, values[at]) if is_needed else best
    return values


def _read_forced(target: Ids, reply: Any) -> list[float]:
    entries = reply["completion_probabilities"]
    written = [entry["id"] for entry in entries]
    if written != list(target):
        field = "logit_bias" if len(target) == 1 else "grammar"
        raise UnreadError(field, f"the tokens {written} in place of {list(target)}")
    return [_number("n_probs", entry["logprob"]) for entry in entries]


def _score_labels(
    server: Server, turns: Turns, labels: Sequence[str], *, is_known: bool, **_: Any
) -> list[float]:
    """Of labels, as the first token of an answer in a chat; NaN of one that is not listed."""
    body = {"messages": list(turns), "max_tokens": 1, "temperature": 0, **server.plain_sampling}
    body |= {"logprobs": True, "top_logprobs": MOST_LISTED}
    least = LEAST_LISTED if is_known else server.least

    @rests_on("logprobs")
    def read(reply: Any) -> list[tuple[str, float]]:
        entries = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        found = [(str(one["token"]), _number("top_logprobs", one["logprob"])) for one in entries]
        if len(found) < least:
            raise UnreadError("top_logprobs", f"{len(found)} tokens where {least} are needed")
        if (total := math.fsum(math.exp(value) for _, value in found)) > 1 + TOLERANCE:
            raise UnreadError("logprobs", f"probabilities with a sum of {total:.3f}")
        return found

    listed = server.ask(CHATS, body, read, is_known=is_known)
    if is_known:
        server.least = min(server.least, len(listed))
    values = []
    for label in labels:  # tokens with one text, such as one with a space that is not shown
        same = [math.exp(value) for name, value in listed if name == label]
        values.append(math.log(math.fsum(same)) if same else math.nan)
    return values


class Strategy(NamedTuple):
    """How a server is asked."""

    field: str  # On which it rests
    gives: str
    score: Callable[..., list[float]]
    """The log-probabilities, in nats, of continuations of token ids; of the last row of labels."""


EXACT, WRITTEN = "exact", "written-answers"
ECHO = {"echo": True, "logprobs": 1, "return_tokens_as_token_ids": True}
TOP_TOKENS = "the first token, of labels among the top tokens"
STRATEGIES = {
    "prompt-logprobs": Strategy(
        "prompt_logprobs", EXACT,
        partial(_score_whole, "prompt_logprobs", {"prompt_logprobs": 1}, _prompt_logprobs),
    ),
    "echo": Strategy("echo", EXACT, partial(_score_whole, "echo", ECHO, _echoed)),
    "forced-tokens": Strategy("n_probs", EXACT, _score_forced),
    WRITTEN: Strategy("logprobs", TOP_TOKENS, _score_labels),
}  # fmt: skip
"""In the order in which they are tried. With the last the model writes its answer; where the server
gives top tokens, they are the scores of labels."""

BEGIN, END = "The capital of France is", " Paris."
OTHERS = (" London", " Madrid", " the", " a", " not")
NONSENSE = " Qzx vjk wfp."
KNOWN_LISTED = (
    ("Answer with one letter and nothing else. Which comes first in the alphabet?\nA\nB", "A"),
    ("Answer with one digit and nothing else. What is 1 + 1?", "2"),
)
"""Chats of the proof that top tokens are given, and an answer to each."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the proof of a strategy found."""

    strategy: str
    gives: str  # What a reader of the scores should know
    repeated: float | None = None  # The largest difference of equal requests in nats, if scored
    refused: dict[str, str] = field(default_factory=dict)  # Why others are not used, by name

    @property
    def note(self) -> str:
        if self.repeated is None:
            return f"the server gives no log-probabilities: {self.gives} ({self.strategy})"
        steady = "; for repeatable scores use a server with one slot and --concurrency 1"
        return (
            f"scored by {self.strategy} ({self.gives}); proved on known prompts: equal requests "
            f"differ by {self.repeated:.1e} nats{steady * (self.repeated > TOLERANCE)}"
        )


def prove(server: Server, *, asks_labels: bool = True) -> Proof:
    """The first strategy that a server proves; writing without scores is the last, and needs none.

    Those of tokens need a tokenizer. ``asks_labels``: whether there are labels of options to score.
    """
    refused: dict[str, str] = {}
    if server.tokenizer is None:
        refused["tokens"] = "name the tokenizer of the model with --tokenizer"
    for name, strategy in STRATEGIES.items():
        is_of_tokens = name != WRITTEN
        if server.tokenizer is None if is_of_tokens else not asks_labels:
            continue
        try:
            repeated = _prove_tokens(server, strategy) if is_of_tokens else _prove_labels(server)
        except (RefusedError, UnreadError) as error:
            refused[name] = str(error)
            continue
        changing = "values that change from request to request"
        return Proof(name, strategy.gives if repeated <= TOLERANCE else changing, repeated, refused)
    return Proof(WRITTEN, "the model writes its answers", refused=refused)


def _prove_labels(server: Server) -> float:
    """The largest difference of equal chats in nats."""
    repeated = 0.0
    for question, answer in KNOWN_LISTED:
        turns = [{"role": "user", "content": question}]
        first, again = (_score_labels(server, turns, [answer], is_known=True) for _ in range(2))
        if math.isnan(first[0]):
            raise UnreadError("top_logprobs", f"'{answer}' is not listed as an answer")
        repeated = max(repeated, abs(first[0] - again[0]))
    return repeated


def _prove_tokens(server: Server, strategy: Strategy) -> float:
    """The largest difference of equal requests in nats."""
    tokenizer = server.tokenizer
    ends = (END, NONSENSE, *OTHERS)
    sentence, nonsense, *others = (_encode(tokenizer, BEGIN + end) for end in ends)
    shared = len(_encode(tokenizer, BEGIN))
    if any(ids[:shared] != sentence[:shared] for ids in (nonsense, *others)):
        raise UnreadError("prompt", "the tokenizer joins words of the known sentence")
    words = [tuple(ids[shared : shared + 1]) for ids in others]
    targets = [tuple(sentence[shared:]), tuple(nonsense[shared:]), *words]
    begins = list(tokenizer("a")["input_ids"])[:1]
    prefix = [*(one for one in begins if one == tokenizer.bos_token_id), *sentence[:shared]]
    how = {"every": True, "gold": -1, "is_known": True}
    values, again = (strategy.score(server, prefix, targets, **how) for _ in range(2))
    sense, random = (values[at] / len(targets[at]) for at in (0, 1))
    total = math.fsum(map(math.exp, values[2:]))
    repeated = max(abs(a - b) for a, b in zip(values, again, strict=True))
    by_word = dict(zip(words, values[2:], strict=True))
    are_equal = len(by_word) > 1 and len({*by_word.values()}) == 1
    for is_wrong, problem in (
        (random >= sense, f"random tokens ({random:.2f}) are as probable as words ({sense:.2f})"),
        (are_equal, f"{len(by_word)} different next words have the value {values[2]}"),
        (total > 1 + TOLERANCE, f"probabilities with a sum of {total:.3f}"),
        (repeated > 1, f"equal requests differ by {repeated:.2f} nats"),
    ):
        if is_wrong:
            raise UnreadError(strategy.field, problem)
    return repeated


def _encode(tokenizer: Any, text: str) -> list[int]:
    ids = list(tokenizer([text], add_special_tokens=False)["input_ids"][0])
    decoded = str(tokenizer.decode(ids))
    if decoded.strip() != text.strip():
        raise UnreadError("tokenize", f"'{text}' becomes '{decoded}'")
    return ids
