"""Models behind a URL that answer prompts: scores of labels and texts of options, and free text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from consilience.core.errors import ConsilienceError
from consilience.endpoints.chats import Chats
from consilience.endpoints.proving import Proof
from consilience.endpoints.replies import Refused
from consilience.endpoints.scorer import Continuations, Scorer
from consilience.endpoints.server import Server
from consilience.endpoints.server_tokenizer import ServerTokenizer
from consilience.models.prompt_tokens import PromptTokens
from consilience.models.served import ServedModel
from consilience.presentation import NoAnswer, Prompt, PromptScores

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_WRITTEN = 32
"""Tokens that a model may write unless another number is given."""


class ServedOptionScorer(ServedModel):
    """Scores what prompts may be answered with, by the tokens of the server (``prompted.py``)."""

    tie = 0.0

    def __init__(self, server: Server, spec: str, scorer: Scorer, proof: Proof) -> None:
        super().__init__(server, spec, scorer, proof)
        self.longest = server.context
        """Tokens of a prompt with its answer; None for any number."""
        self.tokens = prompt_tokens(server, spec)

    def text(self, prompt: Prompt) -> str:
        """What the model reads before an answer: a chat in its own form, or the text itself."""
        return self.tokens.around(prompt)[0]

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        read_ahead(self.tokens, prompts, has_answers=True)
        return [self._why_not(prompt) for prompt in prompts]

    def _why_not(self, prompt: Prompt) -> str | None:
        if reason := self.tokens.refused(prompt, prompt.answers):
            return reason
        ids, targets = self.tokens.encode(prompt)
        if len({tuple(target) for target in targets}) < len(targets):
            return "two options have the same tokens"
        size = len(ids) + max(map(len, targets), default=1) - 1
        if self.longest and size > self.longest:
            return f"{size} tokens, and the model takes {self.longest}"
        return None

    def score(self, prompts: Sequence[Prompt]) -> Iterator[PromptScores]:
        """The log-probabilities of the answers of prompts, and the numbers of their tokens."""
        read_ahead(self.tokens, prompts, has_answers=True)
        parts = [
            Continuations(tuple(ids), tuple(map(tuple, targets)))
            for ids, targets in map(self.tokens.encode, prompts)
        ]
        some = 0
        for at, totals in self.scorer.totals(parts):
            some += bool(totals.is_bound.any())
            sizes = np.array([len(target) for target in parts[at].targets])
            yield PromptScores(
                np.array([at]),
                [totals.values],
                [sizes],
                bounds=[totals.is_bound] if totals.is_bound.any() else (),
                refused=[totals.refused] if totals.refused else (),
            )
        self.notes += bounds_note(some, len(prompts))

    def score_alone(self, prompt: Prompt) -> Floats:
        """Log-probabilities (answer,) in nats, of a prompt that is sent alone."""
        [scores] = self.score([prompt])
        return scores.totals[0]


def bounds_note(some: int, every: int) -> list[str]:
    """A note on prompts of which a server gave only a bound of some options."""
    if not some:
        return []
    return [f"the server gave only a bound of some options of {some:,} of {every:,} prompts"]


def prompt_tokens(server: Server, spec: str) -> PromptTokens:
    """How the server's tokenizer and chat template read prompts."""
    tokenizer = server.tokenizer
    end = tokenizer.eos_token_id
    return PromptTokens(tokenizer, [] if end is None else [end], spec)


def read_ahead(tokens: PromptTokens, prompts: Sequence[Prompt], *, has_answers: bool) -> None:
    """Let a server tokenise prompts by a few requests, many at a time, instead of one by one."""
    if not isinstance(tokenizer := tokens.tokenizer, ServerTokenizer):
        return
    readable = [prompt for prompt in prompts if tokens.refused(prompt) is None]
    tokenizer.read_chats(
        [
            (turns, is_asked)
            for prompt in readable
            if prompt.is_chat
            for turns, is_asked in zip(tokens.chats(prompt), (True, False), strict=True)
        ]
    )
    if has_answers:
        tokenizer.read([text for prompt in readable for text in tokens.texts(prompt)[0]])
    else:
        tokenizer.read([tokens.prompt_text(prompt) for prompt in readable])


class ServedWriter:
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
        longest: int = 0,
        chooser: Any = None,
    ) -> None:
        self.server = server
        self.chooser = chooser
        self.tokenizer = server.tokenizer
        self.takes_chats = server.tokenizer is None or hasattr(chooser, "chats")
        """Whether a chat is sent as messages, whose form the server knows."""
        self.client = server.client
        self.most_written, self.temperature, self.seed = most_written, temperature, seed
        self.longest = longest or server.context
        self.tokens = None if self.takes_chats else prompt_tokens(server, spec)
        self.chats = Chats(server, temperature)
        if self.takes_chats:
            self.chats.settle()
        self.identity: dict[str, object] = {
            "model": spec,
            "server": server.client.connection.base_url,
            "kind": server.kind,
            "max_new_tokens": most_written,
            "temperature": temperature,
            **self.chats.identity,
        }
        if temperature:
            self.identity["sampling_seed"] = seed
        self.notes: list[str] = []
        if chooser is not None:
            self.identity |= chooser.identity
            self.notes, self.proof = chooser.notes, chooser.proof
        self.notes += self.chats.notes

    def text(self, prompt: Prompt) -> str:
        """What the model reads; of a chat that the server joins, its turns."""
        if self.tokens is not None:
            return self.tokens.around(prompt)[0]
        if not prompt.is_chat:
            return prompt.text
        return "".join(f"{turn['role']}: {turn['content']}\n" for turn in messages_of(prompt))

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        if self.tokens is None:
            return [None] * len(prompts)
        read_ahead(self.tokens, prompts, has_answers=False)
        return [self._why_not(prompt, self.tokens) for prompt in prompts]

    def _why_not(self, prompt: Prompt, tokens: PromptTokens) -> str | None:
        if reason := tokens.refused(prompt):
            return reason
        size = len(tokens.prompt_ids(prompt)) + self.most_written
        if self.longest and size > self.longest:
            return f"{size} tokens with the answer, and the model takes {self.longest}"
        return None

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str | NoAnswer]]]:
        """Positions of prompts, and what the model writes after them; see ``AnswerWriter.write``.

        A text that is no chat ends with its first line. A server without seeds samples anew.
        """
        if self.tokens is not None:
            read_ahead(self.tokens, prompts, has_answers=False)
        by_route: dict[str, list[int]] = {}
        bodies = [
            self._body(prompt, sample) for prompt, sample in zip(prompts, samples, strict=True)
        ]
        for at, body in enumerate(bodies):
            by_route.setdefault(_route(body), []).append(at)
        for route, rows in by_route.items():
            again = []
            for index, reply in self.server.client.post_all(route, (bodies[row] for row in rows)):
                row = rows[index]
                if "stop" in bodies[row] and text_of(reply) == "":
                    again.append(row)  # it began with an empty line
                else:
                    yield np.array([row]), [self._written(reply, prompts[row])]
                if (plan := self.client.plan) is not None and "stop" in bodies[row]:
                    plan.depending().add(bodies[row])
            longer = ({k: v for k, v in bodies[row].items() if k != "stop"} for row in again)
            for index, reply in self.server.client.post_all(route, longer):
                yield np.array([again[index]]), [self._written(reply, prompts[again[index]])]

    def _body(self, prompt: Prompt, sample: int) -> dict[str, Any]:
        seed = {"seed": self._seed(prompt, sample)} if self.temperature else {}
        if self.tokens is None and prompt.is_chat:
            return self.chats.body(messages_of(prompt), self.most_written, seed)
        body: dict[str, Any] = {
            "model": self.server.name,
            "max_tokens": self.most_written,
            "temperature": self.temperature,
            **self.server.plain_sampling,
            **seed,
        }
        if not prompt.is_chat:
            body["stop"] = ["\n"]
        if self.tokens is None or self.server.kind == "other":
            return body | {"prompt": prompt.text.rstrip(" ")}
        return body | {"prompt": self.tokens.prompt_ids(prompt)}

    def _seed(self, prompt: Prompt, sample: int) -> int:
        """The seed of a sample: of the prompt, the number of the sample and the run's seed."""
        text = f"{self.seed} {sample} {prompt.system} {prompt.turns}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1

    def _written(self, reply: Any, prompt: Prompt) -> str | NoAnswer:
        text = text_of(reply)
        if isinstance(text, NoAnswer) or prompt.is_chat:
            return text
        return text.split("\n")[0].strip()


def messages_of(prompt: Prompt) -> list[dict[str, str]]:
    """The turns of a chat as a server takes them."""
    turns: list[dict[str, str]] = [{"role": role, "content": text} for role, text in prompt.turns]
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return [*system, *turns]


def _route(body: Mapping[str, Any]) -> str:
    return "chat/completions" if "messages" in body else "completions"


def text_of(reply: Any) -> str | NoAnswer:
    """The text of a reply; or why there is none.

    A model that reasons first may use up all tokens before its text begins.
    """
    if isinstance(reply, Refused):
        return NoAnswer(reply.reason)
    try:
        choice = reply["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        stripped: str = "" if text is None else str.strip(text)
    except (KeyError, IndexError, TypeError) as error:
        raise ConsilienceError(
            f"a reply without a text: {reply}",
            expected="choices with a text or a message",
        ) from error
    if not text and "message" in choice and choice.get("finish_reason") == "length":
        return NoAnswer(
            "the limit of tokens ended the answer before its text began (--max-new-tokens)"
        )
    return stripped
