"""Models behind a URL: one family for facts, sentence pairs and questions.

A server with tokens scores what may follow a prompt (``TokenScorer``). One of chats lists the most
probable first tokens or answers with an option that it enforces (``ChatScorer``). All write
(``Writer``). ``ServedFacts`` and ``ServedLabels`` ask these about facts and sentence pairs.
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
from consilience.core.items import Form, Ints, NoAnswer, Prompt, Task, group_rows
from consilience.endpoints.chats import ROUTE, STRATEGIES, Chats, content_of, why_not_enforced
from consilience.endpoints.client import Client, Refused
from consilience.endpoints.scorer import (
    ANSWERS_ONLY,
    CHAT_TOP_K,
    Continuations,
    Proof,
    Scorer,
    UnprovedServerError,
    prove,
)
from consilience.endpoints.server import Server
from consilience.models.candidates import (
    FactModel,
    candidates_after_space,
    encode,
    excluded,
    scores_of,
    start_token,
    too_long,
)
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
from consilience.types import Query, Scores

if TYPE_CHECKING:
    from consilience.core.errors import Connection

AT_ONCE = 64  # Queries whose sentences are tokenised together
NO_TOKENS = "no tokenizer is known; name one with --tokenizer"


def open_server(spec: str, connection: Connection | None) -> Server:
    """The server of ``openai:NAME`` at a URL."""
    if connection is None:
        raise ConsilienceError(f"{spec} needs --base-url, such as http://127.0.0.1:8000/v1")

    def local_tokenizer(named: str) -> Any:  # nothing else of a model behind a URL needs torch
        from consilience.models.loading import load_tokenizer

        return load_tokenizer(named, Loading(trust_remote_code=connection.trust_remote_code))

    return Server(Client(connection), spec.partition(":")[2], local_tokenizer)


def _digests(server: Server) -> dict[str, str]:
    """SHA-256 of the tokenizer."""
    if not server.client.connection.tokenizer:
        return {}
    backend = getattr(server.tokenizer, "backend_tokenizer", None)
    content = backend.to_str() if backend else json.dumps(server.tokenizer.get_vocab())
    content += str(server.tokenizer.chat_template)
    return {"tokenizer": hashlib.sha256(content.encode()).hexdigest()}


class Served:
    """A server, and what a run records of it."""

    tie = 0.0
    _why_not: Any  # What is shown -> why it cannot be asked; None where it can
    scored: Any  # ``requests`` -> the scores of their answers

    def __init__(
        self, server: Server, spec: str, proof: Proof | None, chats: Chats | None = None
    ) -> None:
        self.server, self.client, self.proof = server, server.client, proof
        self.tokenizer = server.tokenizer
        self.identity: dict[str, object] = {
            "model": spec,
            "server": server.client.connection.base_url,
            "kind": server.kind,
            **_digests(server),
            **({"scoring": proof.strategy} if proof else {}),
            **(chats.identity if chats else {}),
        }
        self.notes = [*([proof.note] if proof else []), *(chats.notes if chats else [])]

    def text(self, shown: Any) -> str:
        turns = PromptTokens.chats(shown)[0]
        return "".join(f"{turn['role']}: {turn['content']}\n" for turn in turns)

    def why_not(self, shown: Sequence[Any]) -> list[str | None]:
        return [self._why_not(one) for one in shown]

    def score(self, shown: Sequence[Any]) -> Iterator[Scores]:
        yield from self.scored(self.requests(shown))

    def requests(self, shown: Sequence[Any]) -> list[Any]:
        return [(PromptTokens.chats(one)[0], one.answers) for one in shown]


def prompt_tokens(server: Server, spec: str) -> PromptTokens:
    """How the server's tokenizer and chat template read prompts."""
    end = server.tokenizer.eos_token_id
    return PromptTokens(server.tokenizer, [] if end is None else [end], spec)


class TokenScorer(OptionPrompts, Served):
    """Scores what prompts may be answered with, by the tokens of the server (``prompted.py``)."""

    def __init__(self, server: Server, spec: str, scorer: Scorer, proof: Proof) -> None:
        super().__init__(server, spec, proof)
        self.scorer = scorer
        self.longest = server.context  # Tokens of a prompt with its answer; None for any number
        self.tokens = prompt_tokens(server, spec)

    def requests(self, shown: Sequence[Prompt]) -> list[Continuations]:
        encoded = map(self.tokens.encode, shown)
        return [Continuations(tuple(ids), tuple(map(tuple, targets))) for ids, targets in encoded]

    def scored(self, requests: Sequence[Continuations]) -> Iterator[Scores]:
        for at, totals in self.scorer.totals(requests):
            sizes = np.array([len(target) for target in requests[at].targets])
            values, errors = [totals.values], [totals.refused]
            yield Scores.of_rows(np.array([at]), values, [sizes], errors=errors)


class ChatScorer(Served):
    """A server of chats that lists first tokens or, without scores, enforces an answer.

    With ``chat-top-k`` labels of options are scored by the first token of an answer. With
    ``answers-only`` the answer is what the model writes where it can write nothing but an option,
    token by token. Of options of several tokens that is not always the most probable one.
    """

    takes_chats = True

    def __init__(self, server: Server, spec: str, strategy: str) -> None:
        self.chats, self.strategy = Chats(server), strategy
        super().__init__(server, spec, self.chats.prove(strategy), self.chats)

    def _why_not(self, shown: Prompt) -> str | None:
        if self.strategy == CHAT_TOP_K:
            if begins_another(shown.answers):
                return "a label begins another; first tokens do not tell (--generate)"
            if shown.is_chat and shown.are_labels:
                return None
            return "the server scores labels of options in chats; texts need --generate"
        if shown.is_chat:
            return why_not_enforced(shown.answers)
        return "the server enforces answers in chats only"

    def scored(self, requests: Sequence[Any]) -> Iterator[Scores]:
        for at, found in self.chats.replies(self.strategy, requests):
            answers, rows = requests[at][1], np.array([at])
            reason = found if isinstance(found, str) else None
            if self.strategy == CHAT_TOP_K:
                size = len(answers)
                values = np.zeros(size) if reason else found
                if np.isnan(values).all():
                    reason = "no label is among the most probable first tokens"
                lengths = [np.ones(size, dtype=np.int64)]
                scores = Scores.of_rows(rows, [values], lengths, errors=[reason])
                yield replace(scores, is_complete=not np.isnan(values).any())
                continue
            totals = np.full(len(answers), -np.inf)
            if reason is None:
                totals[found] = 0.0
            texts = [answers[found] if reason is None else ""]
            yield Scores.of_rows(rows, [totals], texts=texts, errors=[reason])


class Writer(Served):
    """Lets a model behind a URL write answers, greedily or sampled by a seed.

    With the tokens of the server a prompt is sent as it is read, and a chat in the model's own
    form; without, a chat is sent as messages, and another prompt as text. ``chooser``: the same
    model as one that chooses among options, for a suite that has both kinds of questions.
    """

    def __init__(
        self,
        server: Server,
        spec: str,
        *,
        most_written: int = MOST_WRITTEN,
        temperature: float = 0.0,
        seed: int = 0,
        chooser: Any = None,
    ) -> None:
        self.chooser = chooser
        self.takes_chats = server.tokenizer is None or hasattr(chooser, "chats")
        self.most_written, self.temperature, self.seed = most_written, temperature, seed
        self.longest = server.context
        self.tokens = None if self.takes_chats else prompt_tokens(server, spec)
        self.chats = Chats(server, temperature)
        if self.takes_chats:
            self.chats.settle()
        super().__init__(server, spec, None)
        self.identity |= {"max_new_tokens": most_written, "temperature": temperature}
        self.identity |= self.chats.identity | ({"sampling_seed": seed} if temperature else {})
        if chooser is not None:
            self.identity |= chooser.identity
            self.notes, self.proof = chooser.notes, chooser.proof
        self.notes += self.chats.notes

    def text(self, shown: Any) -> str:
        if self.tokens is not None:
            return self.tokens.around(shown)[0]
        return super().text(shown) if shown.is_chat else str(shown.text)

    def _why_not(self, shown: Prompt) -> str | None:
        if self.tokens is None:
            return None
        if reason := self.tokens.refused(shown):
            return reason
        size = len(self.tokens.prompt_ids(shown)) + self.most_written
        return too_long(size, self.longest or None)

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str | NoAnswer]]]:
        bodies = [self._body(*one) for one in zip(prompts, samples, strict=True)]
        routes = (ROUTE if "messages" in body else "completions" for body in bodies)
        for route, rows in group_rows(routes).items():
            again = rows
            while rows := again:
                again = []
                for index, reply in self.client.post_all(route, [bodies[row] for row in rows]):
                    row, text = rows[index], text_of(reply)
                    has_stop = "stop" in bodies[row]
                    if has_stop and text == "":
                        again.append(row)  # it began with an empty line
                    elif isinstance(text, NoAnswer) or prompts[row].is_chat:
                        yield np.array([row]), [text]
                    else:
                        yield np.array([row]), [text.split("\n")[0].strip()]
                for row in again:
                    del bodies[row]["stop"]

    def _body(self, prompt: Prompt, sample: int) -> dict[str, Any]:
        # Its own seed for each sample: of the prompt, the number of the sample and the run's seed.
        key = f"{self.seed} {sample} {prompt.system} {prompt.turns}".encode()
        number = int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1
        seed = {"seed": number} if self.temperature else {}
        if self.tokens is None and prompt.is_chat:
            return self.chats.body(PromptTokens.chats(prompt)[0], self.most_written, seed)
        body: dict[str, Any] = {
            "model": self.server.name,
            "max_tokens": self.most_written,
            "temperature": self.temperature,
            **self.server.plain_sampling,
            **seed,
            **({} if prompt.is_chat else {"stop": ["\n"]}),
        }
        if self.tokens is None:
            return body | {"prompt": prompt.text.rstrip(" ")}
        return body | {"prompt": self.tokens.prompt_ids(prompt)}


def text_of(reply: Any) -> str | NoAnswer:
    """The text of a reply; or why there is none."""
    if isinstance(reply, Refused):
        return NoAnswer(reply.reason)
    try:
        choice = reply["choices"][0]
        text = content_of(choice["message"]) if "message" in choice else choice["text"]
        stripped: str = "" if text is None else str.strip(text)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        expected = "choices with a text or a message"
        raise ConsilienceError(f"a reply without a text: {reply}", expected=expected) from error
    if not text and "message" in choice and choice.get("finish_reason") == "length":
        return NoAnswer(
            "the limit of tokens ended the answer before its text began (--max-new-tokens)"
        )
    return stripped


class ServedFacts(FactModel):
    """Scores facts: the log-probability of the sentence that each candidate completes."""

    def __init__(self, model: TokenScorer) -> None:
        self.model, self.server, self.client = model, model.server, model.client
        self.proof, self.notes = model.proof, model.notes
        self.start = start_token(model.tokenizer)
        start = str(model.tokenizer.convert_ids_to_tokens(self.start))
        self.identity = {**model.identity, "start_token": start}

    def score_vocabulary(self, queries: Sequence[Query]) -> Iterator[Scores]:
        raise ConsilienceError(
            "--candidates vocabulary with a model behind a URL",
            expected="--candidates objects: a server scores texts that are given",
        )

    def score_words(
        self, queries: Sequence[Query], words: tuple[str, ...], *, every: bool
    ) -> Iterator[Scores]:
        model, scorer = self.model, self.model.scorer
        sheet = candidates_after_space(model.tokenizer, words)
        index, texts = sheet.index_of_scored(), [words[at] for at in sheet.scored]
        parts, rows = list[Continuations](), list[int]()
        for start in range(0, len(queries), AT_ONCE):
            some = queries[start : start + AT_ONCE]
            filled = [query.pattern.fill(query.subject, word) for query in some for word in texts]
            encoded = iter(encode(model.tokenizer, filled))
            for row, query in enumerate(some, start):
                sentences = [next(encoded) for _ in texts]
                reason = too_long(1 + max(map(len, sentences), default=0), model.longest)
                if reason := reason if texts else "no candidate can be asked":
                    yield excluded([row], words, reason)
                else:
                    gold = index.get(query.gold, -1)
                    parts.append(_continuations(self.start, sentences, gold))
                    rows.append(row)
        for at, totals in scorer.totals(parts, every=every):
            values = sheet.spread(np.where(totals.is_bound, np.nan, totals.values)[None])
            scores = scores_of([[rows[at]]], values, sheet, are_totals=True, every=every)
            yield replace(scores, errors=[totals.refused])


def _continuations(start: int, sentences: Sequence[Sequence[int]], gold: int) -> Continuations:
    """What all sentences begin with, and what follows; each has one token or more after it."""
    shared = min(len(sentence) for sentence in sentences) - 1
    shared = next(
        (at for at in range(shared) if len({sentence[at] for sentence in sentences}) > 1), shared
    )
    targets = tuple(tuple(sentence[shared:]) for sentence in sentences)
    return Continuations((start, *sentences[0][:shared]), targets, gold)


class ServedLabels(Served):
    """Asks sentence pairs for the word of a label, which is scored or, in chats, enforced."""

    def __init__(self, model: ServedModel, task: Task, template: str | None) -> None:
        """``template``: None for ours; only a server with tokens takes the beginning of a reply."""
        self.model, self.server, self.client = model, model.server, model.client
        self.proof, self.notes, self.labels = model.proof, model.notes, task.labels
        text = TEMPLATES[task.kind] if template is None else template
        self.tokens = model.tokens if isinstance(model, TokenScorer) else None
        if self.tokens is None:
            if template is not None and REPLY in template:
                raise ConsilienceError(
                    f"{REPLY} in the template, of a server that takes whole chats only",
                    todo=f"Leave {REPLY} and what follows it out.",
                )
            text = text.partition(REPLY)[0].rstrip() if template is None else text
        self.prompts, self.longest = LabelPrompts(text, task, self.tokens), sys.maxsize
        self.template = self.prompts.template
        self.identity = {**model.identity, "template": self.template}
        if self.tokens is not None:
            self.longest = (model.server.context or 1 << 30) - LONGEST_LABEL
            self.identity |= {"chat": self.prompts.is_chat, "longest": self.longest}
            targets = self.tokens.label_targets(task.labels, self.prompts.gap)
            self.targets = tuple(map(tuple, targets))

    def text(self, shown: Any) -> str:
        return self.prompts.text(shown)

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        if self.tokens is None:
            return [{"input_ids": list(map(ord, self.text(form)))} for form in forms]
        start = [] if self.prompts.is_chat else self.tokens.beginning
        every = self.tokens.ids([self.text(form) for form in forms]) if forms else []
        return [{"input_ids": [*start, *ids]} for ids in every]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """Texts that are too long for tokens are not truncated; chats the server may refuse."""
        if self.tokens is None:
            return list(forms)
        raise ConsilienceError(
            f"a sentence pair with more than {self.longest} tokens",
            expected="pairs that fit, with a model behind a URL",
            todo="Leave it out of the data.",
        )

    def _why_not(self, shown: Form) -> str | None:
        sentences = [segment.sentence for segment in shown]
        return self.tokens.special_in(sentences) if self.tokens else None

    def write(
        self, forms: Sequence[Form], samples: Sequence[int] = ()
    ) -> Iterator[tuple[Ints, list[str | NoAnswer]]]:
        if isinstance(self.model, ChatScorer):
            chats, turns = self.model.chats, map(self.prompts.turns, forms)
            bodies = [chats.body(one, LONGEST_LABEL, {}) for one in turns]
            replies = self.client.post_all(ROUTE, bodies)
        else:
            fields = {"max_tokens": LONGEST_LABEL, "temperature": 0, **self.server.plain_sampling}
            ids = (encoded["input_ids"] for encoded in self.encode(forms))
            addressed = self.model.scorer.addressed
            bodies = [addressed({"prompt": one, **fields}) for one in ids]
            replies = self.client.post_all("completions", bodies)
        for at, reply in replies:
            text = text_of(reply)
            if isinstance(text, str) and not self.prompts.is_chat and self.tokens:
                text = text.strip().split("\n")[0]
            yield np.array([at]), [text]

    def requests(self, shown: Sequence[Form]) -> list[Any]:
        if self.tokens is None:
            return [(self.prompts.turns(form), self.labels) for form in shown]
        encoded = self.encode(shown)
        return [Continuations(tuple(one["input_ids"]), self.targets) for one in encoded]

    def scored(self, requests: Sequence[Any]) -> Iterator[Scores]:
        yield from self.model.scored(requests)


ServedModel = TokenScorer | ChatScorer  # A model on a server that chooses among options


def load_served(
    spec: str,
    connection: Connection | None,
    *,
    in_chats: Sequence[str] = tuple(STRATEGIES),
) -> ServedModel:
    """The model of that name, with the first strategy that is proved.

    A server of which no strategy with tokens is proved is asked in chats, by the strategies
    ``in_chats``: for the most probable first tokens, and where it lists none, for answers alone.
    """
    server = open_server(spec, connection)
    reasons = {"tokens": NO_TOKENS}
    if server.tokenizer is not None:
        try:
            return TokenScorer(server, spec, *prove(server))
        except UnprovedServerError as error:
            reasons = error.reasons
    for name in in_chats:
        try:
            chosen = ChatScorer(server, spec, name)
        except UnprovedServerError as error:
            reasons |= error.reasons
        else:
            assert chosen.proof is not None
            chosen.proof = replace(chosen.proof, refused=reasons)
            return chosen
    raise UnprovedServerError(reasons)


def load_served_labels(
    spec: str,
    connection: Connection | None,
    task: Task,
    template: str | None = None,
) -> ServedLabels:
    """The model of that name, asked for the labels of a task."""
    model = load_served(spec, connection, in_chats=(ANSWERS_ONLY,))
    return ServedLabels(model, task, template)
