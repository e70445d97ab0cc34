"""Models behind a URL: one family for facts, sentence pairs and questions.

A server with tokens scores what may follow a prompt (``TokenScorer``). One of chats lists the most
probable first tokens (``ListedScorer``) or answers with an option that it enforces (``Answerer``).
All write (``Writer``). ``ServedFacts`` and ``ServedLabels`` ask these about facts and sentence
pairs.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from consilience.core.errors import ConsilienceError
from consilience.core.items import Form, Task, as_string
from consilience.core.presentation import NoAnswer, Prompt
from consilience.endpoints.chats import ROUTE, Chats, why_not_enforced
from consilience.endpoints.client import Client, Refused
from consilience.endpoints.llamacpp import LlamaCppClient
from consilience.endpoints.scorer import Continuations, Proof, Scorer, Totals, prove
from consilience.endpoints.server import Server, ServerTokenizer
from consilience.endpoints.strategies import (
    ANSWERS_ONLY,
    CHAT_TOP_K,
    UnprovedServerError,
    strategy_named,
)
from consilience.models.candidates import (
    CandidateTokens,
    candidates_after_space,
    encode,
    excluded,
    log_softmax,
    start_token,
)
from consilience.models.prompt_tokens import LONGEST_LABEL as LABEL_WRITTEN
from consilience.models.prompt_tokens import REPLY, TEMPLATES, PromptTokens, filled
from consilience.types import Candidates, Query, Scores

if TYPE_CHECKING:
    from consilience.core.errors import Connection

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_WRITTEN = 32
"""Tokens that a model may write unless another number is given."""

AT_ONCE = 64
"""Queries whose sentences are tokenised together."""

NO_TOKENS = "no tokenizer is known; name a local tokenizer with --tokenizer"
"""Why nothing is scored by tokens."""

GGUF = "llamacpp:FILE.gguf or llamacpp:packaged:smollm2"


def open_server(spec: str, connection: Connection | None, scoring: str | None = None) -> Server:
    """The server of ``openai:NAME`` at a URL, or that of ``llamacpp:FILE`` in this process."""
    scheme, _, name = spec.partition(":")
    if scheme == "llamacpp":
        path = Path(file_of(name))
        return Server(LlamaCppClient(path, scoring), path.name)
    if connection is None:
        raise ConsilienceError(f"{spec} needs --base-url, such as http://127.0.0.1:8000/v1")
    return Server(Client(connection), name, _local_tokenizer)


def _local_tokenizer(spec: str) -> Any:
    """The tokenizer of a model here; nothing else of a model behind a URL needs ``models``."""
    from consilience.models.loading import load_tokenizer

    return load_tokenizer(spec)


def file_of(name: str) -> str:
    """The GGUF file of a name: a path, or ``packaged:NAME``."""
    from consilience.models.sources import locate

    if not name:
        raise ConsilienceError("--model llamacpp: names no file", expected=GGUF)
    files = [path for path in locate(name).files.values() if path.suffix == ".gguf"]
    if not files:
        todo = f"Leave llamacpp: out to load it here: --model {name}."
        raise ConsilienceError(f"'{name}' is no GGUF file", expected=GGUF, todo=todo)
    return str(files[0])


class Served:
    """A server, and what a run records of it."""

    tie = 0.0

    def __init__(
        self, server: Server, spec: str, proof: Proof | None, chats: Chats | None = None
    ) -> None:
        self.server, self.client, self.tokenizer = server, server.client, server.tokenizer
        self.proof, self.spec = proof, spec
        self.identity: dict[str, object] = {
            "model": spec,
            "server": server.client.connection.base_url,
            "kind": server.kind,
            **({"scoring": proof.strategy} if proof else {}),
            **(chats.identity if chats else {}),
        }
        self.notes = [*([proof.note] if proof else []), *(chats.notes if chats else [])]

    def text(self, prompt: Prompt) -> str:
        """What the model reads; of a chat that the server joins, its turns."""
        turns = PromptTokens.chats(prompt)[0]
        return "".join(f"{turn['role']}: {turn['content']}\n" for turn in turns)

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        return [self._why_not(prompt) for prompt in prompts]

    def _why_not(self, prompt: Prompt) -> str | None:
        raise NotImplementedError

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """The log-probabilities of the answers of prompts, and the numbers of their tokens."""
        raise NotImplementedError

    def score_alone(self, prompt: Prompt) -> Floats:
        """Log-probabilities (answer,) in nats, of a prompt that is sent alone."""
        [scores] = self.score([prompt])
        assert scores.totals is not None
        totals: Floats = scores.totals[0]
        return totals

    def _note_bounds(self, some: int, every: int) -> None:
        if some:
            only_bounds = f"only a bound of some options of {some:,} of {every:,} prompts"
            self.notes.append(f"the server gave {only_bounds}")


def prompt_tokens(server: Server, spec: str) -> PromptTokens:
    """How the server's tokenizer and chat template read prompts."""
    end = server.tokenizer.eos_token_id
    return PromptTokens(server.tokenizer, [] if end is None else [end], spec)


def read_ahead(tokens: PromptTokens, prompts: Sequence[Prompt], *, has_answers: bool) -> None:
    """Let a server tokenise prompts by a few requests, many at a time, instead of one by one."""
    if not isinstance(tokenizer := tokens.tokenizer, ServerTokenizer):
        return
    readable = [prompt for prompt in prompts if tokens.refused(prompt) is None]
    chats = (tokens.chats(prompt) for prompt in readable if prompt.is_chat)
    tokenizer.read_chats(
        [one for question, whole in chats for one in ((question, True), (whole, False))]
    )
    if has_answers:
        tokenizer(
            [text for prompt in readable for text in tokens.texts(prompt)[0]],
            add_special_tokens=False,
        )
    else:
        tokenizer([tokens.prompt_text(prompt) for prompt in readable], add_special_tokens=False)


class TokenScorer(Served):
    """Scores what prompts may be answered with, by the tokens of the server (``prompted.py``)."""

    def __init__(self, server: Server, spec: str, scorer: Scorer, proof: Proof) -> None:
        super().__init__(server, spec, proof)
        self.scorer = scorer
        self.longest = server.context
        """Tokens of a prompt with its answer; None for any number."""
        self.tokens = prompt_tokens(server, spec)

    def text(self, prompt: Prompt) -> str:
        """What the model reads before an answer: a chat in its own form, or the text itself."""
        return self.tokens.around(prompt)[0]

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        read_ahead(self.tokens, prompts, has_answers=True)
        return super().why_not(prompts)

    def _why_not(self, prompt: Prompt) -> str | None:
        if reason := self.tokens.refused(prompt, prompt.answers):
            return reason
        ids, targets = self.tokens.encode(prompt)
        if len({tuple(target) for target in targets}) < len(targets):
            return "two options have the same tokens"
        return self.too_long(len(ids) + max(map(len, targets), default=1) - 1)

    def too_long(self, tokens: int) -> str | None:
        """Why the server cannot read so many tokens; None if it can."""
        is_long = self.longest and tokens > self.longest
        return f"{tokens} tokens, and the model takes {self.longest}" if is_long else None

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """The log-probabilities of the answers of prompts, and the numbers of their tokens."""
        read_ahead(self.tokens, prompts, has_answers=True)
        encoded, some = map(self.tokens.encode, prompts), 0
        parts = [Continuations(tuple(ids), tuple(map(tuple, targets))) for ids, targets in encoded]
        for at, totals in self.scorer.totals(parts):
            some += (has_bounds := bool(totals.is_bound.any()))
            yield Scores.of_rows(
                np.array([at]),
                [totals.values],
                [np.array([len(target) for target in parts[at].targets])],
                bounds=[totals.is_bound] if has_bounds else (),
                refused=[totals.refused] if totals.refused else (),
            )
        self._note_bounds(some, len(prompts))


class ListedScorer(Served):
    """Scores labels of options by the first token of a chat's answer, which the server lists."""

    takes_chats = True

    def __init__(self, server: Server, spec: str) -> None:
        self.chats = Chats(server)
        super().__init__(server, spec, self.chats.prove_listed(), self.chats)

    def _why_not(self, prompt: Prompt) -> str | None:
        if prompt.is_chat and prompt.are_labels:
            return None
        return "the server scores labels of options in chats; texts need --scoring answers-only"

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """The log-probabilities of the labels of prompts, or bounds of these."""
        some = 0
        for at, values in self.chats.listed([(messages_of(one), one.answers) for one in prompts]):
            rows, sizes = np.array([at]), [np.ones(len(prompts[at].answers), dtype=np.int64)]
            if isinstance(values, Refused):
                nothing = [np.zeros(len(prompts[at].answers))]
                yield Scores.of_rows(rows, nothing, sizes, refused=[values.reason])
                continue
            some += bool(values[1].any())
            yield Scores.of_rows(rows, [values[0]], sizes, bounds=[values[1]])
        self._note_bounds(some, len(prompts))


class Answerer(Served):
    """Answers with an option that the server enforces; there are no scores.

    The answer is what the model writes where it can write nothing but an option, token by token. Of
    options of several tokens that is not always the most probable one.
    """

    takes_chats = True

    def __init__(self, server: Server, spec: str) -> None:
        self.chats = Chats(server)
        super().__init__(server, spec, self.chats.prove_enforced(), self.chats)

    def _why_not(self, prompt: Prompt) -> str | None:
        if prompt.is_chat:
            return why_not_enforced(prompt.answers)
        return "the server enforces answers in chats only"

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """The answer that each prompt gets, or why it has none."""
        for at, answer in self.chats.answers([(messages_of(one), one.answers) for one in prompts]):
            answers = prompts[at].answers
            totals = np.full(len(answers), -np.inf)
            if not isinstance(answer, str):
                totals[answer] = 0.0
            yield Scores.of_rows(
                np.array([at]),
                [totals],
                texts=["" if isinstance(answer, str) else answers[answer]],
                refused=[answer if isinstance(answer, str) else None],
            )


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
        longest: int = 0,
        chooser: Any = None,
    ) -> None:
        self.chooser = chooser
        self.takes_chats = server.tokenizer is None or hasattr(chooser, "chats")
        """Whether a chat is sent as messages, whose form the server knows."""
        self.most_written, self.temperature, self.seed = most_written, temperature, seed
        self.longest = longest or server.context
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

    def text(self, prompt: Prompt) -> str:
        """What the model reads; of a chat that the server joins, its turns."""
        if self.tokens is not None:
            return self.tokens.around(prompt)[0]
        return super().text(prompt) if prompt.is_chat else prompt.text

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        if self.tokens is not None:
            read_ahead(self.tokens, prompts, has_answers=False)
        return super().why_not(prompts)

    def _why_not(self, prompt: Prompt) -> str | None:
        if self.tokens is None:
            return None
        if reason := self.tokens.refused(prompt):
            return reason
        size = len(self.tokens.prompt_ids(prompt)) + self.most_written
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
        bodies = [self._body(*one) for one in zip(prompts, samples, strict=True)]
        by_route: dict[str, list[int]] = {}
        for at, body in enumerate(bodies):
            by_route.setdefault(ROUTE if "messages" in body else "completions", []).append(at)
        for route, rows in by_route.items():
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
                    if has_stop and (plan := self.client.plan) is not None:
                        plan.depending().add(bodies[row])
                for row in again:
                    del bodies[row]["stop"]

    def _body(self, prompt: Prompt, sample: int) -> dict[str, Any]:
        # Its own seed for each sample: of the prompt, the number of the sample and the run's seed.
        key = f"{self.seed} {sample} {prompt.system} {prompt.turns}".encode()
        number = int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1
        seed = {"seed": number} if self.temperature else {}
        if self.tokens is None and prompt.is_chat:
            return self.chats.body(messages_of(prompt), self.most_written, seed)
        body: dict[str, Any] = {
            "model": self.server.name,
            "max_tokens": self.most_written,
            "temperature": self.temperature,
            **self.server.plain_sampling,
            **seed,
            **({} if prompt.is_chat else {"stop": ["\n"]}),
        }
        if self.tokens is None or self.server.kind == "other":
            return body | {"prompt": prompt.text.rstrip(" ")}
        return body | {"prompt": self.tokens.prompt_ids(prompt)}


def messages_of(prompt: Prompt) -> list[dict[str, str]]:
    """The turns of a chat as a server takes them."""
    return PromptTokens.chats(prompt)[0]


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
        expected = "choices with a text or a message"
        raise ConsilienceError(f"a reply without a text: {reply}", expected=expected) from error
    if not text and "message" in choice and choice.get("finish_reason") == "length":
        return NoAnswer(
            "the limit of tokens ended the answer before its text began (--max-new-tokens)"
        )
    return stripped


def _table(
    row: int,
    words: tuple[str, ...],
    totals: Totals,
    sheet: CandidateTokens | None = None,
    *,
    every: bool = True,
    is_censored: bool = True,
) -> Scores:
    """Scores of a query or a form; without bounds of what only was not finished."""
    if totals.refused:
        return excluded([row], words, totals.refused)
    values, bounds = totals.values[None].copy(), totals.is_bound[None]
    if not is_censored:
        values[bounds], bounds = np.nan, np.zeros_like(bounds)
    has_bounds = bool(bounds.any())
    if sheet is not None:
        placed = np.zeros((1, len(words)), dtype=bool)
        placed[:, sheet.scored] = bounds
        values, bounds = sheet.spread(values), placed
    return Scores(
        np.array([row]),
        words,
        log_softmax(values) if every and not has_bounds else None,
        sheet.reasons if sheet else {},
        sheet.same if sheet else None,
        sheet.entries if sheet else None,
        totals=values,
        bounds=bounds if has_bounds else None,
    )


class ServedFacts:
    """Scores facts: the log-probability of the sentence that each candidate completes."""

    def __init__(self, model: TokenScorer) -> None:
        self.model, self.server, self.client = model, model.server, model.client
        self.proof, self.notes = model.proof, model.notes
        self.start = start_token(model.tokenizer)
        start = str(model.tokenizer.convert_ids_to_tokens(self.start))
        self.identity = {**model.identity, "start_token": start}

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """See ``LanguageModel.score``; the whole vocabulary is refused."""
        if candidates is None:
            raise ConsilienceError(
                "--candidates vocabulary with a model behind a URL",
                expected="--candidates objects: a server scores texts that are given",
            )
        model, scorer = self.model, self.model.scorer
        sheet = candidates_after_space(model.tokenizer, candidates.words)
        index, words = sheet.index_of_scored(), [sheet.words[at] for at in sheet.scored]
        parts, rows = list[Continuations](), list[int]()
        for start in range(0, len(queries), AT_ONCE):
            some = queries[start : start + AT_ONCE]
            texts = [query.pattern.fill(query.subject, word) for query in some for word in words]
            encoded = iter(encode(model.tokenizer, texts))
            for row, query in enumerate(some, start):
                sentences = [next(encoded) for _ in words]
                reason = model.too_long(1 + max(map(len, sentences), default=0))
                if reason := reason if words else "no candidate can be asked":
                    yield excluded([row], sheet.words, reason)
                else:
                    gold = index.get(query.gold, -1)
                    parts.append(_continuations(self.start, sentences, gold))
                    rows.append(row)
        is_censored = scorer.strategy.is_censored
        for at, totals in scorer.totals(parts, every=every):
            yield _table(rows[at], sheet.words, totals, sheet, every=every, is_censored=is_censored)


def _continuations(start: int, sentences: Sequence[Sequence[int]], gold: int) -> Continuations:
    """What all sentences begin with, and what follows; each has one token or more after it."""
    shared = min(len(sentence) for sentence in sentences) - 1
    shared = next(
        (at for at in range(shared) if len({sentence[at] for sentence in sentences}) > 1), shared
    )
    targets = tuple(tuple(sentence[shared:]) for sentence in sentences)
    return Continuations((start, *sentences[0][:shared]), targets, gold)


class ServedLabels:
    """Asks sentence pairs for the word of a label (``writing.py``).

    A server with tokens scores the labels. One of chats answers with a label that it enforces.
    """

    def __init__(
        self, model: TokenScorer | Answerer, task: Task, template: str | None, longest: int = 0
    ) -> None:
        """``template``: None for ours.

        The beginning of the reply, which only a server with tokens takes, is left out of ours.
        """
        self.model, self.server, self.client = model, model.server, model.client
        self.proof, self.notes, self.labels = model.proof, model.notes, task.labels
        text = TEMPLATES[task.kind] if template is None else template
        self.identity, self.longest = dict(model.identity), sys.maxsize
        if isinstance(model, TokenScorer):
            self.tokens: PromptTokens | None = model.tokens
            self.longest = (model.server.context or 1 << 30) - LABEL_WRITTEN
            self.longest = min(self.longest, longest or self.longest)
        else:
            self.tokens = None
            if longest:
                problem = "--max-length with a server that has no tokens"
                raise ConsilienceError(problem, todo="Leave it out.")
            if template is not None and REPLY in template:
                raise ConsilienceError(
                    f"{REPLY} in the template, of a server that takes whole chats only",
                    todo=f"Leave {REPLY} and what follows it out.",
                )
            text = text.partition(REPLY)[0].rstrip() if template is None else text
        self.template = self.identity["template"] = filled(text, task)
        self.question, _, self.reply = self.template.partition(REPLY)
        if self.tokens is not None:
            self.identity |= {"chat": self.tokens.has_template, "longest": self.longest}
            self.targets = tuple(tuple(self._target(self.tokens, one)) for one in task.labels)

    def _target(self, tokens: PromptTokens, label: str) -> list[int]:
        """The tokens of a label as an answer; in a chat with the token that ends the turn."""
        if not tokens.has_template:
            return tokens.ids([" " + label])[0]
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": label}]
        after = tokens.ids([self._chat(turns, is_asked=False).rpartition(label)[2]])[0]
        gap = " " if self.reply and not self.reply[-1].isspace() else ""
        end = [token for token in [*after, *tokens.ends] if token in tokens.ends][:1]
        return [*tokens.ids([gap + label])[0], *end]

    def _chat(self, turns: Sequence[Mapping[str, str]], *, is_asked: bool) -> str:
        joined = self.server.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=is_asked
        )
        return str(joined)

    def _turns(self, form: Form) -> list[dict[str, str]]:
        """The user's turn; of a model without chats, all before the reply."""
        question = self.question.replace("{text}", as_string(form))
        is_chat = self.tokens is not None and self.tokens.has_template
        content = question.rstrip("\n") if is_chat and self.reply else question
        return [{"role": "user", "content": content}]

    def prompt(self, form: Form) -> str:
        """The text that the model reads, or the turn of a chat."""
        turns = self._turns(form)
        if self.tokens is None or not self.tokens.has_template:
            return turns[0]["content"] + self.reply
        return self._chat(turns, is_asked=True) + self.reply

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        """The ids of each prompt, of any length; of a server of chats its characters."""
        if self.tokens is None:
            return [{"input_ids": list(map(ord, self.prompt(form)))} for form in forms]
        if self.tokens.has_template and isinstance(self.server.tokenizer, ServerTokenizer):
            self.server.tokenizer.read_chats([(self._turns(form), True) for form in forms])
        start = [] if self.tokens.has_template else self.tokens.beginning
        every = self.tokens.ids([self.prompt(form) for form in forms]) if forms else []
        return [{"input_ids": [*start, *ids]} for ids in every]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """Texts that are too long for tokens are not truncated; chats the server may refuse."""
        if self.tokens is None:
            return list(forms)
        raise ConsilienceError(
            f"a sentence pair with more than {self.longest} tokens",
            expected="pairs that fit, with a model behind a URL",
            todo="Add --long exclude.",
        )

    def why_not(self, form: Form) -> str | None:
        """Why the model cannot read a form; None if it can."""
        find = getattr(self.server.tokenizer, "special_in", None) if self.tokens else None
        tokens = (find(segment.sentence) for segment in form) if find else ()
        token = next(filter(None, tokens), None)
        return f"has the special token '{token}' in it" if token else None

    def write(self, forms: Sequence[Form]) -> Iterator[tuple[Ints, list[str | NoAnswer]]]:
        """Positions of forms, and what the model writes after them, greedily."""
        if isinstance(self.model, Answerer):
            chats = self.model.chats
            bodies = [chats.body(self._turns(form), LABEL_WRITTEN, {}) for form in forms]
            replies = chats.post_all(bodies)
        else:
            fields = {"max_tokens": LABEL_WRITTEN, "temperature": 0, **self.server.plain_sampling}
            prompts = (encoded["input_ids"] for encoded in self.encode(forms))
            replies = self.client.post_all(
                "completions",
                ({"model": self.server.name, "prompt": ids, **fields} for ids in prompts),
            )
        for at, reply in replies:
            yield np.array([at]), [text_of(reply)]

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the labels for each form, normalised over the labels.

        Of a server of chats the label of each form, and no log-probabilities.
        """
        if isinstance(self.model, TokenScorer):
            encoded = self.encode(forms)
            parts = [Continuations(tuple(one["input_ids"]), self.targets) for one in encoded]
            for at, totals in self.model.scorer.totals(parts):
                yield _table(at, self.labels, totals)
            return
        for at, answer in self.model.chats.answers(
            [(self._turns(one), self.labels) for one in forms]
        ):
            if isinstance(answer, str):
                yield excluded([at], self.labels, answer)
                continue
            chosen = np.where(np.arange(len(self.labels)) == answer, 0.0, -np.inf)[None]
            yield Scores(np.array([at]), self.labels, None, totals=chosen, answers_only=True)


ServedModel = TokenScorer | ListedScorer | Answerer
"""A model on a server that chooses among options."""

IN_CHATS: Mapping[str, type[ListedScorer | Answerer]] = {
    CHAT_TOP_K: ListedScorer,
    ANSWERS_ONLY: Answerer,
}
"""The strategies of chats by name, in the order in which they are tried."""


def load_served(
    spec: str,
    connection: Connection | None,
    scoring: str | None = None,
    *,
    longest: int = 0,
    in_chats: Sequence[str] = tuple(IN_CHATS),
) -> ServedModel:
    """The model of that name, with the strategy that is named or the first that is proved.

    A server without tokens, or of which no strategy with tokens is proved, is asked in chats: for
    the most probable first tokens, and where it lists none, for answers alone. ``in_chats``: the
    strategies of chats that may be used.
    """
    server = open_server(spec, connection, scoring)
    named, reasons = server.client.connection.scoring, dict[str, str]()
    if named and named in in_chats:
        return IN_CHATS[named](server, spec)
    if server.tokenizer is None:
        if named and in_chats:
            strategy_named(named)  # an unknown one raises
            raise ConsilienceError(f"--scoring {named}: {NO_TOKENS}")
        reasons["tokens"] = NO_TOKENS
    else:
        try:
            model = TokenScorer(server, spec, *prove(server))
        except UnprovedServerError as error:
            reasons = error.reasons
        else:
            model.longest = longest or model.longest
            return model
    for name in in_chats:
        try:
            chosen = IN_CHATS[name](server, spec)
        except UnprovedServerError as error:
            reasons |= error.reasons
        else:
            assert chosen.proof is not None
            chosen.proof = replace(chosen.proof, refused=reasons)
            return chosen
    raise UnprovedServerError(reasons)


def load_served_facts(
    spec: str, connection: Connection | None, scoring: str | None = None
) -> ServedFacts:
    """The model of that name, asked facts by the tokens of the server."""
    model = load_served(spec, connection, scoring, in_chats=())
    assert isinstance(model, TokenScorer)
    return ServedFacts(model)


def load_served_labels(
    spec: str,
    connection: Connection | None,
    scoring: str | None,
    task: Task,
    template: str | None = None,
    longest: int = 0,
) -> ServedLabels:
    """The model of that name, asked for the labels of a task."""
    if CHAT_TOP_K in (scoring, connection and connection.scoring):
        raise ConsilienceError(
            f"--scoring {CHAT_TOP_K} with sentence pairs, whose labels are words of several tokens",
            todo=f"Write --scoring {ANSWERS_ONLY}.",
        )
    model = load_served(spec, connection, scoring, in_chats=(ANSWERS_ONLY,))
    assert not isinstance(model, ListedScorer)
    return ServedLabels(model, task, template, longest)
