"""Models behind a URL: facts and questions.

A server writes (``Writer``): answers of its own, or one of the options, whose labels are scored
where it gives top tokens. One that gives the log-probabilities of tokens also scores what may
follow a prompt (``TokenScorer``). ``EndpointFactModel`` asks it about facts, and ``prompts.py``
asks both about sentence pairs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import ConsilienceError, Loading
from consilience.core.items import Floats, Ints, NoAnswer, Prompt
from consilience.endpoints.client import Client, RefusedError, UnreadError
from consilience.endpoints.strategies import (
    CHATS,
    STRATEGIES,
    TEXTS,
    WRITTEN,
    Proof,
    Server,
    prove,
    text_of,
)
from consilience.models.functions import scores_of_replies
from consilience.models.prompts import (
    DEFAULT_WRITING,
    PromptReader,
    Writing,
    beginning_of,
    begins_another,
    turns_of,
)
from consilience.models.tokens import (
    candidates_after_space,
    encode,
    excluded,
    scores_of,
    start_token,
)
from consilience.types import Candidates, Query, Scores

if TYPE_CHECKING:
    from consilience.core.errors import Connection

Part = tuple[list[Any], list[Any]]  # The tokens of a prompt and of what may follow it, or texts
Totals = tuple[Floats, str | None]  # Of what may follow; or why there are none
Written = Iterator[tuple[Ints, list[str | NoAnswer]]]


def open_server(spec: str, connection: Connection | None) -> Server:
    """The server of ``openai:NAME`` at a URL."""
    if connection is None:
        raise ConsilienceError(f"{spec} needs --base-url, such as http://127.0.0.1:8000/v1")
    tokenizer = None
    if connection.tokenizer:  # nothing else of a model behind a URL needs torch
        from consilience.models.loading import load_tokenizer

        loading = Loading(trust_remote_code=connection.trust_remote_code)
        tokenizer = load_tokenizer(connection.tokenizer, loading)
    return Server(Client(connection), spec.partition(":")[2], tokenizer)


class Writer:
    """Lets a model behind a URL write answers, greedily or sampled by a seed.

    A chat is sent as messages, another prompt as text. Among options it chooses by what it writes;
    labels are scored where a proof shows that the server gives top tokens.
    """

    tie = 0.0
    longest: Any = None  # Tokens; the server refuses what is too long

    def __init__(
        self,
        server: Server,
        spec: str,
        proof: Proof | None = None,
        writing: Writing = DEFAULT_WRITING,
    ) -> None:
        self.server, self.client, self.proof = server, server.client, proof
        self.tokenizer, self.writing = server.tokenizer, writing
        self.identity: dict[str, object] = {
            "model": spec, "server": server.client.connection.base_url, "kind": server.kind,
        }  # fmt: skip
        if server.tokenizer is not None:
            backend = getattr(server.tokenizer, "backend_tokenizer", None)
            content = backend.to_str() if backend else json.dumps(server.tokenizer.get_vocab())
            content += str(server.tokenizer.chat_template)
            self.identity["tokenizer"] = hashlib.sha256(content.encode()).hexdigest()
        if proof is not None:
            self.identity["scoring"] = proof.strategy
        self.identity |= writing.record

    @property
    def takes_chats(self) -> bool:
        return self.tokenizer is None or bool(self.tokenizer.chat_template)

    @property
    def notes(self) -> list[str]:
        return [*([self.proof.note] if self.proof else []), *self.server.notes]

    def text(self, shown: Prompt) -> str:
        turns = turns_of(shown) if shown.is_chat else []
        return "".join(f"{turn['role']}: {turn['content']}\n" for turn in turns) or shown.text

    def why_not(self, shown: Sequence[Prompt]) -> list[str | None]:
        return [self._why_not(one) for one in shown]

    def _why_not(self, shown: Prompt) -> str | None:
        if self.proof is None or self.proof.repeated is None or shown.is_open:
            return None
        if begins_another(shown.answers):
            return "a label begins another; first tokens do not tell (--generate)"
        if shown.is_chat and shown.are_labels:
            return None
        return "the server scores labels of options in chats; texts need --generate"

    def write(self, shown: Sequence[Prompt], samples: Sequence[int]) -> Written:
        """What is written at routes; after a text, which has a field ``stop``, its first line."""
        requests = list(map(self._request, shown, samples))

        def write(request: tuple[str, dict[str, Any]]) -> str | NoAnswer:
            path, body = request
            whole = {name: value for name, value in body.items() if name != "stop"}
            try:
                text = self.server.ask(path, body, text_of)
                if text == "" and body != whole:  # it began with an empty line
                    text = self.server.ask(path, whole, text_of)
            except RefusedError as error:
                return NoAnswer(str(error))
            return text.split("\n")[0] if isinstance(text, str) and body != whole else text

        for path, body in dict(requests).items():
            self.server.settle(path, body)
        for at, text in self.client.each(write, requests):
            yield np.array([at]), [text]

    def _request(self, prompt: Prompt, sample: int) -> tuple[str, dict[str, Any]]:
        # Its own seed for each sample: of the prompt, the number of the sample and the run's seed.
        key = f"{self.writing.seed} {sample} {prompt.system} {prompt.turns}".encode()
        number = int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1
        fields = {
            "max_tokens": self.writing.most_written, "temperature": self.writing.temperature,
            **self.server.plain_sampling, **({"seed": number} if self.writing.temperature else {}),
        }  # fmt: skip
        path, read = self.sent(prompt)
        return path, {**read, **fields}

    def sent(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """The route of a prompt, and what is read there."""
        if prompt.is_chat:
            return CHATS, {"messages": turns_of(prompt)}
        return TEXTS, {"prompt": prompt.text, "stop": ["\n"]}

    def score(
        self, shown: Sequence[Prompt], candidates: None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        if self.proof is None or self.proof.repeated is None:
            for [row], [text] in self.write(shown, [1] * len(shown)):
                yield scores_of_replies([row], (), [shown[row]], [text])
            return

        parts = [(turns_of(one), list(one.answers)) for one in shown]
        for at, (values, reason) in self.totals(parts, [-1] * len(parts), every=True):
            is_complete, no_label = not np.isnan(values).any(), np.isnan(values).all()
            why = "no label is among the top tokens" if no_label else reason
            lengths = [np.ones(len(values), dtype=np.int64)]
            scores = Scores.of_rows(np.array([at]), [values], lengths, errors=[why])
            yield replace(scores, is_complete=is_complete)

    def totals(
        self, parts: Sequence[Part], golds: Sequence[int], *, every: bool
    ) -> Iterator[tuple[int, Totals]]:
        """The position of each part, and the log-probabilities of what may follow it."""
        assert self.proof is not None
        strategy = STRATEGIES[self.proof.strategy]

        def totals_of(one: tuple[Part, int]) -> Totals:
            (before, after), gold = one
            how = {"every": every, "gold": gold, "is_known": False}
            try:
                return np.array(strategy.score(self.server, before, after, **how)), None
            except (RefusedError, UnreadError) as error:
                return np.zeros(len(after)), str(error)

        yield from self.client.each(totals_of, zip(parts, golds, strict=True))


class TokenScorer(PromptReader, Writer):
    """Scores what prompts may be answered with, by token ids (``prompted.py``)."""

    def __init__(
        self, server: Server, spec: str, proof: Proof, writing: Writing = DEFAULT_WRITING
    ) -> None:
        Writer.__init__(self, server, spec, proof, writing)
        end = server.tokenizer.eos_token_id
        PromptReader.__init__(self, server.tokenizer, [] if end is None else [end], spec)

    def sent(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """As of a writer; a reply that has begun is sent as token ids, which no chat takes."""
        if not prompt.reply:
            return super().sent(prompt)
        return TEXTS, {"prompt": self.prompt_ids(prompt)}

    def score(
        self, shown: Sequence[Any], candidates: None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        parts = [self.encode(one) for one in shown]
        for at, (values, reason) in self.totals(parts, [-1] * len(parts), every=True):
            sizes = np.array([*map(len, parts[at][1])])
            yield Scores.of_rows(np.array([at]), [values], [sizes], errors=[reason])


class EndpointFactModel:
    """Scores facts: the log-probability of the sentence that each candidate completes."""

    tie = 0.0

    def __init__(self, model: TokenScorer) -> None:
        self.model, self.server, self.client = model, model.server, model.client
        self.proof, self.notes = model.proof, model.notes
        self.start = start_token(model.tokenizer)
        start = str(model.tokenizer.convert_ids_to_tokens(self.start))
        self.identity = {**model.identity, "start_token": start}

    def score(
        self, queries: Sequence[Query], candidates: Candidates, *, every: bool = True
    ) -> Iterator[Scores]:
        words = candidates.words
        tokenized = candidates_after_space(self.model.tokenizer, words)
        index, texts = tokenized.index_of_scored(), [words[at] for at in tokenized.scored]
        if not texts:
            yield excluded(range(len(queries)), words, "no candidate can be asked")
            return
        parts = []
        for query in queries:
            filled = [query.pattern.fill(query.subject, word) for word in texts]
            sentences = [[self.start, *ids] for ids in encode(self.model.tokenizer, filled)]
            shared = beginning_of([ids[:-1] for ids in sentences])
            parts.append((shared, [ids[len(shared) :] for ids in sentences]))
        golds = [index.get(query.gold, -1) for query in queries]
        for at, (totals, reason) in self.model.totals(parts, golds, every=every):
            values = tokenized.scatter(totals[None])
            scores = scores_of([[at]], values, tokenized, are_totals=True, every=every)
            yield replace(scores, errors=[reason])


def load_served(
    spec: str,
    connection: Connection | None,
    writing: Writing = DEFAULT_WRITING,
    *,
    asks_labels: bool = True,
) -> Any:
    """The model of that name, with the first strategy that is proved; see ``prove``, ``Writer``."""
    server = open_server(spec, connection)
    proof = prove(server, asks_labels=asks_labels)
    return (Writer if proof.strategy == WRITTEN else TokenScorer)(server, spec, proof, writing)


def load_served_facts(spec: str, connection: Connection | None) -> EndpointFactModel:
    """The model of that name, asked for facts; without scores of tokens it cannot be."""
    model = load_served(spec, connection, asks_labels=False)
    if isinstance(model, TokenScorer):
        return EndpointFactModel(model)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in model.proof.refused.items())
    raise ConsilienceError(
        f"the server gives no log-probabilities of given texts ({reasons})",
        expected="a server in the table of docs/endpoints.md",
        todo="Ask the facts as questions: --as-questions 3.",
    )
