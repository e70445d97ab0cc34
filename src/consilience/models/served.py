"""Causal models behind a URL: the same scores of facts as those of a model here (``causal.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from consilience.core.errors import ConsilienceError
from consilience.endpoints.client import Client
from consilience.endpoints.llamacpp import LlamaCppClient
from consilience.endpoints.proving import Proof, prove
from consilience.endpoints.scorer import Continuations, Scorer, Totals
from consilience.endpoints.server import Server
from consilience.endpoints.strategies import UnprovedServerError
from consilience.models.candidates import (
    CandidateTokens,
    candidates_after_space,
    encode,
    excluded,
    log_softmax,
    start_token,
)
from consilience.types import Candidates, Query, Scores

if TYPE_CHECKING:
    from consilience.core.errors import Connection

NO_TOKENS = "it has no route /tokenize; name a local tokenizer with --tokenizer"
"""Why nothing is scored by tokens."""


class ServedModel:
    """A server that is ready to score, with its proof."""

    def __init__(self, server: Server, spec: str, scorer: Scorer, proof: Proof) -> None:
        self.server = server
        self.client = server.client
        self.tokenizer = server.tokenizer
        self.scorer = scorer
        self.proof = proof
        self.identity: dict[str, object] = {
            "model": spec,
            "server": server.client.connection.base_url,
            "kind": server.kind,
            "scoring": proof.strategy,
        }
        self.notes: list[str] = [proof.note]
        """What a reader of the scores should know."""

    @classmethod
    def open(cls, spec: str, connection: Connection | None, scoring: str | None = None) -> Self:
        """The server of a model, with the first strategy that it proves."""
        server = open_server(spec, connection, scoring)
        if server.tokenizer is None:
            raise UnprovedServerError({"tokens": NO_TOKENS})
        return cls(server, spec, *prove(server))

    def why_too_long(self, tokens: int) -> str | None:
        """Why the server cannot read so many tokens; None if it can."""
        longest = self.server.context or tokens
        return f"{tokens} tokens, and the model takes {longest}" if tokens > longest else None


def open_server(spec: str, connection: Connection | None, scoring: str | None = None) -> Server:
    """The server of ``openai:NAME`` at a URL, or that of ``llamacpp:FILE`` in this process."""
    scheme, _, name = spec.partition(":")
    if scheme == "llamacpp":
        path = Path(file_of(name))
        client: Client = LlamaCppClient(path, scoring)
        return Server(client, path.name)
    if connection is None:
        raise ConsilienceError(
            f"{spec} needs --base-url, such as http://127.0.0.1:8000/v1",
        )
    return Server(Client(connection), name, _local_tokenizer)


def file_of(name: str) -> str:
    """The GGUF file of a name: a path, or ``packaged:NAME``."""
    from consilience.models.sources import locate

    if not name:
        raise ConsilienceError(
            "--model llamacpp: names no file",
            expected="llamacpp:FILE.gguf or llamacpp:packaged:smollm2",
        )
    source = locate(name)
    files = [path for path in source.files.values() if path.suffix == ".gguf"]
    if not files:
        raise ConsilienceError(
            f"'{name}' is no GGUF file",
            expected="llamacpp:FILE.gguf or llamacpp:packaged:smollm2",
            todo=f"Leave llamacpp: out to load it here: --model {name}.",
        )
    return str(files[0])


def _local_tokenizer(spec: str) -> Any:
    from consilience.models.loading import load_tokenizer

    return load_tokenizer(spec)


class ServedCausalModel(ServedModel):
    """Scores facts: the log-probability of the sentence that each candidate completes."""

    def __init__(self, server: Server, spec: str, scorer: Scorer, proof: Proof) -> None:
        super().__init__(server, spec, scorer, proof)
        self.start = start_token(self.tokenizer)
        self.identity["start_token"] = str(self.tokenizer.convert_ids_to_tokens(self.start))

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """See ``LanguageModel.score``; the whole vocabulary is refused."""
        if candidates is None:
            raise ConsilienceError(
                "--candidates vocabulary with a model behind a URL",
                expected="--candidates objects: a server scores texts that are given",
            )
        sheet = candidates_after_space(self.tokenizer, candidates.words)
        index = sheet.index_of_scored()
        words = [sheet.words[position] for position in sheet.scored]
        texts = [query.pattern.fill(query.subject, word) for query in queries for word in words]
        encode(self.tokenizer, texts)  # many at once; the tokenizer remembers them
        parts: list[Continuations] = []
        rows: list[int] = []
        for row, query in enumerate(queries):
            sentences = encode(
                self.tokenizer, [query.pattern.fill(query.subject, word) for word in words]
            )
            longest = 1 + max(map(len, sentences), default=0)
            if reason := (self.why_too_long(longest) if words else "no candidate can be asked"):
                yield excluded([row], sheet.words, reason)
                continue
            parts.append(_continuations(self.start, sentences, index.get(query.gold, -1)))
            rows.append(row)
        for at, totals in self.scorer.totals(parts, every=every):
            yield self._scores(rows[at], totals, parts[at], sheet, every)

    def _scores(
        self, row: int, totals: Totals, parts: Continuations, sheet: CandidateTokens, every: bool
    ) -> Scores:
        if totals.refused:
            return excluded([row], sheet.words, totals.refused)
        values = totals.values.copy()
        is_censored = self.scorer.strategy.is_censored
        is_bound = totals.is_bound if is_censored else np.zeros(len(values), dtype=bool)
        if not every and not is_censored:
            values[totals.is_bound] = np.nan
        spread = sheet.spread(values[None])
        bounds = np.zeros(spread.shape, dtype=bool)
        bounds[:, sheet.scored] = is_bound
        complete = every and not is_bound.any()
        return Scores(
            np.array([row]),
            sheet.words,
            log_softmax(spread) if complete else None,
            sheet.reasons,
            sheet.same,
            sheet.entries,
            totals=spread,
            bounds=bounds if is_bound.any() else None,
        )


def _continuations(start: int, sentences: Sequence[Sequence[int]], gold: int) -> Continuations:
    """What all sentences begin with, and what follows; each has one token or more after it."""
    shared = min(len(sentence) for sentence in sentences) - 1
    for at in range(shared):
        if len({sentence[at] for sentence in sentences}) > 1:
            shared = at
            break
    return Continuations(
        (start, *sentences[0][:shared]),
        tuple(tuple(sentence[shared:]) for sentence in sentences),
        gold,
    )
