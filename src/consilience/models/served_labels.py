"""Models behind a URL that answer sentence pairs with the word of a label (``label_writer.py``).

A server with tokens scores the labels. One of chats only answers with a label that it enforces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from consilience.core.errors import Connection, ConsilienceError
from consilience.endpoints.answering import Answering
from consilience.endpoints.proving import Proof, prove
from consilience.endpoints.scorer import Continuations, Scorer
from consilience.endpoints.server import Server
from consilience.endpoints.server_tokenizer import ServerTokenizer
from consilience.endpoints.strategies import (
    ANSWERS_ONLY,
    CHAT_TOP_K,
    UnprovedServerError,
    strategy_named,
)
from consilience.models.candidates import excluded, log_softmax
from consilience.models.label_functions import LabelFunction
from consilience.models.label_prompts import MOST_WRITTEN, REPLY, TEMPLATES, filled
from consilience.models.served import NO_TOKENS, ServedModel, open_server
from consilience.models.served_prompts import prompt_tokens, text_of
from consilience.presentation import NoAnswer
from consilience.sentence_pairs import Form, Task, as_string
from consilience.types import Scores

Ints = npt.NDArray[np.int64]


class ServedLabelWriter(ServedModel):
    """A causal language model on a server that is asked for a label in words."""

    def __init__(self, server: Server, spec: str, scorer: Scorer, proof: Proof) -> None:
        super().__init__(server, spec, scorer, proof)
        self.prompts = prompt_tokens(server, spec)
        self.longest = (server.context or 1 << 30) - MOST_WRITTEN
        self.template = ""
        self.labels: tuple[str, ...] = ()

    def ask_for(self, task: Task, template: str | None, longest: int = 0) -> ServedLabelWriter:
        """The same model, asked for the labels of a task; ``template``: None for ours."""
        self.template = filled(TEMPLATES[task.kind] if template is None else template, task)
        self.labels = task.labels
        self.longest = min(self.longest, longest or self.longest)
        self.reply = self.template.partition(REPLY)[2]
        self.targets = [tuple(self._target(label)) for label in task.labels]
        self.identity |= {
            "template": self.template,
            "chat": self.prompts.has_template,
            "longest": self.longest,
        }
        return self

    def _target(self, label: str) -> list[int]:
        """The tokens of a label as an answer; in a chat with the token that ends the turn."""
        if not self.prompts.has_template:
            return self.prompts.ids([" " + label])[0]
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": label}]
        after = self.prompts.ids([self._chat(turns, is_asked=False).rpartition(label)[2]])[0]
        ends = list(self.prompts.ends)
        gap = " " if self.reply and not self.reply[-1].isspace() else ""
        end = [token for token in [*after, *ends] if token in ends][:1]
        return [*self.prompts.ids([gap + label])[0], *end]

    def _chat(self, turns: Sequence[dict[str, str]], *, is_asked: bool) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=is_asked
            )
        )

    def prompt(self, form: Form) -> str:
        """The text that the model reads."""
        question = self._question(form)
        if not self.prompts.has_template:
            return question + self.reply
        return self._chat(_turns(question), is_asked=True) + self.reply

    def _question(self, form: Form) -> str:
        """The text of the user's turn; of a model without chats, all before the reply."""
        question = self.template.partition(REPLY)[0].replace("{text}", as_string(form))
        is_chat = self.prompts.has_template
        return question.rstrip("\n") if is_chat and self.reply else question

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        """The ids of each prompt, of any length."""
        if self.prompts.has_template and isinstance(self.tokenizer, ServerTokenizer):
            self.tokenizer.read_chats([(_turns(self._question(form)), True) for form in forms])
        start = [] if self.prompts.has_template else self.prompts.beginning
        every = self.prompts.ids([self.prompt(form) for form in forms]) if forms else []
        return [{"input_ids": [*start, *ids]} for ids in every]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """Texts that are too long for a server are not truncated."""
        raise ConsilienceError(
            f"a sentence pair with more than {self.longest} tokens",
            expected="pairs that fit, with a model behind a URL",
            todo="Add --long exclude.",
        )

    def why_not(self, form: Form) -> str | None:
        """Why the model cannot read a form; None if it can."""
        find = getattr(self.tokenizer, "special_in", None)
        for segment in form:
            if find and (token := find(segment.sentence)):
                return f"has the special token '{token}' in it"
        return None

    def write(self, forms: Sequence[Form]) -> Iterator[tuple[Ints, list[str | NoAnswer]]]:
        """Positions of forms, and what the model writes after them, greedily."""
        route = "completions"
        bodies = (
            {
                "model": self.server.name,
                "prompt": encoded["input_ids"],
                "max_tokens": MOST_WRITTEN,
                "temperature": 0,
                **self.server.plain_sampling,
            }
            for encoded in self.encode(forms)
        )
        for at, reply in self.server.client.post_all(route, bodies):
            yield np.array([at]), [text_of(reply)]

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the labels for each form, normalised over the labels."""
        parts = [
            Continuations(tuple(encoded["input_ids"]), tuple(self.targets))
            for encoded in self.encode(forms)
        ]
        for at, totals in self.scorer.totals(parts):
            if totals.refused:
                yield excluded([at], self.labels, totals.refused)
                continue
            values = totals.values[None]
            bounds = totals.is_bound[None]
            has_bounds = bool(bounds.any())
            yield Scores(
                np.array([at]),
                self.labels,
                None if has_bounds else log_softmax(values),
                totals=values,
                bounds=bounds if has_bounds else None,
            )


def _turns(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


class ServedLabelChats:
    """A server of chats that is asked for a label: it enforces one, and there are no scores."""

    longest = LabelFunction.longest

    def __init__(self, server: Server, spec: str) -> None:
        self.server, self.client = server, server.client
        self.answering = Answering(server)
        self.chats, self.proof = self.answering.chats, self.answering.proof
        self.identity: dict[str, object] = {
            "model": spec,
            "server": server.client.connection.base_url,
            "kind": server.kind,
            "scoring": ANSWERS_ONLY,
            **self.chats.identity,
        }
        self.notes = [self.proof.note, *self.chats.notes]
        self.template, self.labels = "", tuple[str, ...]()

    def ask_for(self, task: Task, template: str | None, longest: int = 0) -> ServedLabelChats:
        """The same model, asked for the labels of a task; ``template``: None for ours.

        The beginning of the reply, which only a server with tokens takes, is left out of ours.
        """
        if longest:
            raise ConsilienceError(
                "--max-length with a server that has no tokens", todo="Leave it out."
            )
        if template is not None and REPLY in template:
            raise ConsilienceError(
                f"{REPLY} in the template, of a server that takes whole chats only",
                todo=f"Leave {REPLY} and what follows it out.",
            )
        text = TEMPLATES[task.kind].partition(REPLY)[0].rstrip() if template is None else template
        self.template, self.labels = filled(text, task), task.labels
        self.identity["template"] = self.template
        return self

    def prompt(self, form: Form) -> str:
        """The turn of the chat."""
        return self.template.replace("{text}", as_string(form))

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        """The characters of each prompt."""
        return [{"input_ids": list(map(ord, self.prompt(form)))} for form in forms]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """The forms: the server says which are too long."""
        return list(forms)

    def why_not(self, form: Form) -> str | None:
        """None: every form can be asked."""
        return None

    def write(self, forms: Sequence[Form]) -> Iterator[tuple[Ints, list[str | NoAnswer]]]:
        """Positions of forms, and what the model writes after them if no label is enforced."""
        bodies = (self.chats.body(self._chat(form), MOST_WRITTEN, {}) for form in forms)
        for at, reply in self.chats.post_all(bodies):
            yield np.array([at]), [text_of(reply)]

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """The label of each form; there are no log-probabilities."""
        chats = [(self._chat(form), self.labels) for form in forms]
        for at, answer in self.answering.answers(chats):
            if isinstance(answer, str):
                yield excluded([at], self.labels, answer)
                continue
            totals = np.full((1, len(self.labels)), -np.inf)
            totals[0, answer] = 0.0
            yield Scores(np.array([at]), self.labels, None, totals=totals, answers_only=True)

    def _chat(self, form: Form) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.prompt(form)}]


def load_served_labels(
    spec: str, connection: Connection | None, scoring: str | None = None
) -> ServedLabelWriter | ServedLabelChats:
    """The model of that name: scored by the tokens of the server, or by labels that it enforces."""
    server = open_server(spec, connection, scoring)
    named = server.client.connection.scoring
    if named == ANSWERS_ONLY:
        return ServedLabelChats(server, spec)
    if named == CHAT_TOP_K:
        raise ConsilienceError(
            f"--scoring {CHAT_TOP_K} with sentence pairs, whose labels are words of several tokens",
            todo=f"Write --scoring {ANSWERS_ONLY}.",
        )
    reasons = {"tokens": NO_TOKENS}
    if server.tokenizer is not None:
        try:
            return ServedLabelWriter(server, spec, *prove(server))
        except UnprovedServerError as error:
            reasons = error.reasons
    elif named:
        strategy_named(named)  # an unknown one raises
        raise ConsilienceError(f"--scoring {named}: {NO_TOKENS}")
    try:
        return ServedLabelChats(server, spec)
    except UnprovedServerError as error:
        raise UnprovedServerError(reasons | error.reasons) from error
