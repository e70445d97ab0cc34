"""Models behind a URL: one family for facts, sentence pairs and questions.

A server writes (``Writer``): answers of its own, or one of the options, whose labels are scored
where it gives top tokens. One that gives the log-probabilities of tokens also scores what may
follow a prompt (``TokenScorer``). ``ServedFacts`` and ``ServedLabels`` ask these about facts and
sentence pairs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import ConsilienceError, Loading
from consilience.core.items import Floats, Form, Ints, NoAnswer, Prompt, Task
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
from consilience.models.candidates import (
    candidates_after_space,
    encode,
    excluded,
    scores_of,
    start_token,
)
from consilience.models.functions import position, scores_of_choices
from consilience.models.prompt_tokens import (
    LONGEST_LABEL,
    MOST_WRITTEN,
    REPLY,
    TEMPLATES,
    LabelPrompts,
    OptionPrompts,
    PromptTokens,
    begins_another,
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


class Served:
    """A server, and what a run records of it."""

    tie = 0.0
    longest: Any = None  # Tokens; the server refuses what is too long

    def __init__(self, server: Server, spec: str, proof: Proof | None) -> None:
        self.server, self.client, self.proof = server, server.client, proof
        self.tokenizer = server.tokenizer
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

    @property
    def notes(self) -> list[str]:
        return [*([self.proof.note] if self.proof else []), *self.server.notes]

    def write_all(self, requests: Sequence[tuple[str, dict[str, Any]]]) -> Written:
        """What is written at routes; after a text, which has a field ``stop``, its first line."""

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


class Writer(Served):
    """Lets a model behind a URL write answers, greedily or sampled by a seed.

    A chat is sent as messages, another prompt as text. Among options it chooses by what it writes;
    labels are scored where a proof shows that the server gives top tokens.
    """

    def __init__(
        self, server: Server, spec: str, proof: Proof | None = None, *,
        most_written: int = MOST_WRITTEN, temperature: float = 0.0, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(server, spec, proof)
        self.takes_chats = server.tokenizer is None or bool(server.tokenizer.chat_template)
        self.most_written, self.temperature, self.seed = most_written, temperature, seed
        self.identity |= {"max_new_tokens": most_written, "temperature": temperature}
        self.identity |= {"sampling_seed": seed} if temperature else {}

    def text(self, shown: Prompt) -> str:
        turns = PromptTokens.chats(shown)[0] if shown.is_chat else []
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
        yield from self.write_all(list(map(self._request, shown, samples)))

    def _request(self, prompt: Prompt, sample: int) -> tuple[str, dict[str, Any]]:
        # Its own seed for each sample: of the prompt, the number of the sample and the run's seed.
        key = f"{self.seed} {sample} {prompt.system} {prompt.turns}".encode()
        number = int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1
        fields = {
            "max_tokens": self.most_written, "temperature": self.temperature,
            **self.server.plain_sampling, **({"seed": number} if self.temperature else {}),
        }  # fmt: skip
        if prompt.is_chat:
            return CHATS, {"messages": PromptTokens.chats(prompt)[0], **fields}
        return TEXTS, {"prompt": prompt.text.rstrip(" "), "stop": ["\n"], **fields}

    def score(
        self, shown: Sequence[Prompt], candidates: None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        if self.proof is None or self.proof.repeated is None:
            for [row], [text] in self.write(shown, [1] * len(shown)):
                yield chosen(row, shown[row], (), text)
            return

        parts = [(PromptTokens.chats(one)[0], list(one.answers)) for one in shown]
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


def chosen(row: int, shown: Any, words: Sequence[str], text: str | NoAnswer) -> Scores:
    """The scores of what is written in place of one of the answers."""
    reason, written = (text.reason, "") if isinstance(text, NoAnswer) else (None, text)
    at = position(written, shown, words) if written else None
    return scores_of_choices([row], words, [shown], [at], texts=[written], errors=[reason])


class TokenScorer(OptionPrompts, Writer):
    """Scores what prompts may be answered with, by token ids (``prompted.py``)."""

    def __init__(self, server: Server, spec: str, proof: Proof, **how: Any) -> None:
        super().__init__(server, spec, proof, **how)
        end = server.tokenizer.eos_token_id
        self.tokens = PromptTokens(server.tokenizer, [] if end is None else [end], spec)

    def _why_not(self, prompt: Prompt) -> str | None:
        return self.tokens.refused(prompt) if prompt.is_open else super()._why_not(prompt)

    def score(
        self, shown: Sequence[Any], candidates: None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        yield from self.score_parts([self.encode(one) for one in shown])

    def score_parts(self, parts: Sequence[Part]) -> Iterator[Scores]:
        for at, (values, reason) in self.totals(parts, [-1] * len(parts), every=True):
            sizes = np.array([*map(len, parts[at][1])])
            yield Scores.of_rows(np.array([at]), [values], [sizes], errors=[reason])


class ServedFacts:
    """Scores facts: the log-probability of the sentence that each candidate completes."""

    tie = 0.0

    def __init__(self, model: TokenScorer) -> None:
        self.model, self.server, self.client = model, model.server, model.client
        self.proof, self.notes = model.proof, model.notes
        self.start = start_token(model.tokenizer)
        start = str(model.tokenizer.convert_ids_to_tokens(self.start))
        self.identity = {**model.identity, "start_token": start}

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        if candidates is None:
            raise ConsilienceError(
                "--candidates vocabulary with a model behind a URL",
                expected="--candidates objects: a server scores texts that are given",
            )
        words = candidates.words
        sheet = candidates_after_space(self.model.tokenizer, words)
        index, texts = sheet.index_of_scored(), [words[at] for at in sheet.scored]
        if not texts:
            yield excluded(range(len(queries)), words, "no candidate can be asked")
            return
        parts = []
        for query in queries:
            filled = [query.pattern.fill(query.subject, word) for word in texts]
            sentences = [[self.start, *ids] for ids in encode(self.model.tokenizer, filled)]
            columns = enumerate(zip(*sentences, strict=False))
            shared = next((at for at, ids in columns if len(set(ids)) > 1), sys.maxsize)
            shared = min(shared, min(map(len, sentences)) - 1)  # one token or more follows
            parts.append((sentences[0][:shared], [ids[shared:] for ids in sentences]))
        golds = [index.get(query.gold, -1) for query in queries]
        for at, (totals, reason) in self.model.totals(parts, golds, every=every):
            values = sheet.spread(totals[None])
            scores = scores_of([[at]], values, sheet, are_totals=True, every=every)
            yield replace(scores, errors=[reason])


class ServedLabels(Served):
    """Asks sentence pairs for the word of a label, which is scored, or read in what is written."""

    longest = sys.maxsize

    def __init__(self, model: TokenScorer | Writer, task: Task, template: str | None) -> None:
        """``template``: None for ours; only a server with tokens takes the beginning of a reply."""
        super().__init__(model.server, str(model.identity["model"]), model.proof)
        self.model, self.labels = model, task.labels
        text = TEMPLATES[task.kind] if template is None else template
        self.tokens = model.tokens if isinstance(model, TokenScorer) else None
        if self.tokens is None:
            if template is not None and REPLY in template:
                found = f"{REPLY} in the template, of a server that takes whole chats only"
                raise ConsilienceError(found, todo=f"Leave {REPLY} and what follows it out.")
            text = text.partition(REPLY)[0].rstrip() if template is None else text
        self.prompts = LabelPrompts(text, task, self.tokens)
        self.template = self.identity["template"] = self.prompts.template
        self.texts: dict[str, str | NoAnswer] = {}  # What was written, by what was read
        if self.tokens is not None:
            self.identity["chat"] = self.prompts.is_chat
            self.targets = self.tokens.label_targets(task.labels, self.prompts.gap)

    def text(self, shown: Form) -> str:
        return self.prompts.text(shown)

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        texts = [self.text(one) for one in forms]
        every = [[]] * len(texts) if self.tokens is None else self.tokens.begun(texts)
        return [{"input_ids": ids} for ids in every]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        return list(forms)

    def why_not(self, shown: Sequence[Form]) -> list[str | None]:
        sentences = ([segment.sentence for segment in form] for form in shown)
        return [self.tokens.special_in(one) if self.tokens else None for one in sentences]

    def write(self, shown: Sequence[Form], samples: Sequence[int]) -> Written:
        fields: dict[str, Any] = {"max_tokens": LONGEST_LABEL, "temperature": 0}
        fields |= self.server.plain_sampling
        if self.tokens is None:
            requests = [(CHATS, {"messages": self.prompts.turns(one)} | fields) for one in shown]
        else:
            fields |= {} if self.prompts.is_chat else {"stop": ["\n"]}
            every = self.encode(shown)
            requests = [(TEXTS, {"prompt": one["input_ids"]} | fields) for one in every]
        for [row], [text] in self.write_all(requests):
            self.texts[self.text(shown[row])] = text
            yield np.array([row]), [text]

    def score(
        self, shown: Sequence[Form], candidates: None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        if isinstance(self.model, TokenScorer):
            prompts = (one["input_ids"] for one in self.encode(shown))
            yield from self.model.score_parts([(ids, self.targets) for ids in prompts])
            return
        read = [self.text(form) for form in shown]
        left = {one: form for one, form in zip(read, shown, strict=True) if one not in self.texts}
        for _ in self.write([*left.values()], [1] * len(left)):
            pass
        texts = {one: self.texts.pop(one) for one in {*read}}  # those of a noise floor are others
        for row, (one, form) in enumerate(zip(read, shown, strict=True)):
            yield chosen(row, form, self.labels, texts[one])


def load_served(
    spec: str, connection: Connection | None, *, asks_labels: bool = True, **how: Any
) -> Any:
    """The model of that name, with the first strategy that is proved; see ``prove``, ``Writer``."""
    server = open_server(spec, connection)
    proof = prove(server, asks_labels=asks_labels)
    return (Writer if proof.strategy == WRITTEN else TokenScorer)(server, spec, proof, **how)


def load_served_facts(spec: str, connection: Connection | None) -> ServedFacts:
    """The model of that name, asked for facts; without scores of tokens it cannot be."""
    model = load_served(spec, connection, asks_labels=False)
    if isinstance(model, TokenScorer):
        return ServedFacts(model)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in model.proof.refused.items())
    raise ConsilienceError(
        f"the server gives no log-probabilities of given texts ({reasons})",
        expected="a server in the table of docs/endpoints.md",
        todo="Ask the facts as questions: --as-questions 3.",
    )


def load_served_labels(
    spec: str, connection: Connection | None, task: Task, template: str | None = None
) -> ServedLabels:
    """The model of that name, asked for the labels of a task."""
    return ServedLabels(load_served(spec, connection, asks_labels=False), task, template)
