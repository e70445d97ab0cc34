"""Decision models: a question with its options in, the probability of every option out.

A request has a text (the context of the question) and named questions with options. Servers have
two routes for it: ``/v1/systemone`` (the System One API of TypeSafe; transformers, llama.cpp, vLLM,
SGLang and others) and ``/v1/decisions`` (the Decisions API of OpenAI; SGLang, Fireworks and
others). An option is named by its text or, in a variant with labels, by its label, and then its
text is the description.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from consilience.core.errors import Connection, ConsilienceError, shortened
from consilience.core.text import counted
from consilience.endpoints.replies import Refused
from consilience.presentation import Prompt, PromptScores

if TYPE_CHECKING:
    from consilience.endpoints.client import Client

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Body = dict[str, Any]
"""The JSON value of a request."""

Send = Callable[[Sequence[Body]], Iterator[tuple[int, Any]]]
"""Sends requests; yields the position of each and its reply, or ``Refused``, in any order."""

MOST_OPTIONS = 255
"""Options of a question that both APIs take at most; a server may take fewer."""

ROUNDING = 0.01
"""How far from 1 the probabilities of a question may sum up to, because servers round them."""

Answer = Mapping[str, float] | str
"""The probability of each option by its name; or why a question has none."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a route of decisions is asked and what it replies."""

    path: str
    """The route, after the base URL."""
    body: Callable[[str, Sequence[Prompt]], Body]
    """The request of a model, by its name, with questions that have one context."""
    answers: Callable[[Any, Sequence[str]], list[Answer]]
    """The answers of a reply to questions of these names."""


def _names(size: int) -> list[str]:
    """What questions are called in a request; it says nothing about them."""
    return [f"q{number}" for number in range(1, size + 1)]


def _options(prompt: Prompt) -> list[tuple[str, str | None]]:
    """The name of each option as it is shown, and what describes it."""
    if not prompt.are_labels:
        return [(choice.text, None) for choice in prompt.choices]
    return [
        (label, choice.text) for label, choice in zip(prompt.answers, prompt.choices, strict=True)
    ]


def _systemone_body(model: str, prompts: Sequence[Prompt]) -> Body:
    questions = {
        name: {
            "type": "choice",
            "instructions": prompt.question,
            "criteria": dict(_options(prompt)),
        }
        for name, prompt in zip(_names(len(prompts)), prompts, strict=True)
    }
    return {"model": model, "state": prompts[0].context, "questions": questions}


def _systemone_answers(reply: Any, names: Sequence[str]) -> list[Answer]:
    answers = _field(reply, "answers", dict, "systemone")
    return [_answer_of(answers.get(name), "systemone") for name in names]


def _decisions_body(model: str, prompts: Sequence[Prompt]) -> Body:
    questions = [
        {
            "type": "choice",
            "name": name,
            "instructions": prompt.question,
            "choices": [
                {"value": value} | ({"description": text} if text is not None else {})
                for value, text in _options(prompt)
            ],
        }
        for name, prompt in zip(_names(len(prompts)), prompts, strict=True)
    ]
    return {"model": model, "input": prompts[0].context, "questions": questions}


def _decisions_answers(reply: Any, names: Sequence[str]) -> list[Answer]:
    entries = _field(reply, "answers", list, "decisions")
    by_name: dict[Any, Any] = {}
    for at, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        by_name[name if name is not None else names[at] if at < len(names) else at] = entry
    return [_answer_of(by_name.get(name), "decisions") for name in names]


ROUTES: Mapping[str, Route] = {
    "systemone": Route("systemone", _systemone_body, _systemone_answers),
    "decisions": Route("decisions", _decisions_body, _decisions_answers),
}
"""The routes, by the prefix of the models that they have."""


def _field(value: Any, name: str, kind: type, route: str) -> Any:
    """A field of a reply; a reply that is of another API raises."""
    content = value.get(name) if isinstance(value, dict) else None
    if not isinstance(content, kind):
        shown = shortened(json.dumps(value, ensure_ascii=False), 120)
        raise ConsilienceError(
            f"a reply without '{name}': {shown}",
            expected=f"the reply of /v1/{route}, with a probability for every option",
            where="--base-url",
            todo=f"Check that the server has /v1/{route}, and that the model is a decision model.",
        )
    return content


def _answer_of(entry: Any, route: str) -> Answer:
    """The probabilities of one answer, or why it has none; a malformed one raises."""
    if entry is None:
        return "the server gave no answer to the question"
    kind = _field(entry, "type", str, route)
    if kind == "refusal":
        return "the model refused to answer"
    if kind != "choice":
        return f"the server answered with '{kind}' in place of 'choice'"
    if route == "systemone":
        pairs = list(_field(entry, "probabilities", dict, route).items())
    else:
        listed = _field(entry, "probabilities", list, route)
        pairs = [(_field(one, "value", str, route), one.get("probability")) for one in listed]
    probabilities = dict(pairs)
    if len(probabilities) < len(pairs):
        return "the server gave several probabilities of one option"
    return probabilities


def fault_of(probabilities: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Why the probabilities of an answer are not those of these options; None where they are."""
    lacking = [name for name in names if name not in probabilities]
    others = [name for name in probabilities if name not in names]
    if lacking and others:
        return f"the server renamed an option: '{others[0]}' is there, and no '{lacking[0]}'"
    if lacking:
        return f"the server gave no probability of '{lacking[0]}'"
    if others:
        return f"the server gave a probability of '{others[0]}', which is no option"
    for name, value in probabilities.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 <= value <= 1 + ROUNDING):
            return f"the server gave '{name}' the probability {value!r}"
    total = math.fsum(probabilities.values())
    return f"the probabilities sum to {total:.4g}, not to 1" if abs(total - 1) > ROUNDING else None


def log_scores(probabilities: Sequence[float]) -> tuple[Floats, Bools]:
    """The logarithms (option,) of probabilities over their sum, and which are only upper bounds.

    A server rounds: an option with probability 0 is less probable than every option with another
    one, so the smallest of the others is its bound.
    """
    values = np.array(probabilities, dtype=np.float64)
    is_bound = values == 0
    smallest = values[~is_bound].min()
    return np.log(np.where(is_bound, smallest, values) / values.sum()), is_bound


def connected(spec: str, connection: Connection) -> DecisionModel:
    """The model of ``systemone:NAME`` or ``decisions:NAME`` behind a URL."""
    from consilience.endpoints.client import Client

    scheme, _, name = spec.partition(":")
    client, route = Client(connection), ROUTES[scheme]
    identity = {"model": spec, "kind": "decisions", "server": connection.base_url}
    model = DecisionModel(name, route, partial(client.post_all, route.path), identity)
    model.client = client
    return model


class DecisionModel:
    """A model that gives the probability of every option of a question (``ask_questions``).

    The score of an option is the logarithm of its probability, in nats.
    """

    tie = 0.0

    def __init__(
        self,
        name: str,
        route: Route,
        send: Send,
        identity: Mapping[str, object],
        *,
        most_options: int = MOST_OPTIONS,
    ) -> None:
        """``name``: what the server calls the model. ``most_options``: of a question."""
        self.name = name
        self.route = route
        self.identity = dict(identity)
        self.notes: list[str] = []
        self.most_options = most_options
        self.client: Client | None = None
        self._send = send
        self._zeros = 0
        self._options = 0
        self._named: Counter[str] = Counter()

    def text(self, prompt: Prompt) -> str:
        """The request in JSON."""
        return json.dumps(self._body(prompt), ensure_ascii=False)

    def _body(self, prompt: Prompt) -> Body:
        """The request of a prompt and of the other questions in it."""
        questions = list(prompt.others)
        questions.insert(prompt.position, prompt)
        return self.route.body(self.name, questions)

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        return [self._why_not(prompt) for prompt in prompts]

    def _why_not(self, prompt: Prompt) -> str | None:
        for one in (prompt, *prompt.others):
            names = [name for name, _ in _options(one)]
            if len(names) < 2:
                return f"{counted(len(names), 'option')}, and a decision needs two or more"
            if len(names) > self.most_options:
                return f"{len(names)} options, and a decision takes {self.most_options}"
            if len({*names}) < len(names):
                return "two options have the same text"
        return None

    def score(self, prompts: Sequence[Prompt]) -> Iterator[PromptScores]:
        """The logarithms of the probabilities of options; equal requests are sent once."""
        rows: dict[str, list[int]] = {}
        for row, prompt in enumerate(prompts):
            rows.setdefault(self.text(prompt), []).append(row)
        requests = list(rows.values())
        for at, reply in self._send([self._body(prompts[of[0]]) for of in requests]):
            yield self._scores(requests[at], prompts, reply)
        self.notes[:] = self._remarks()

    def score_alone(self, prompt: Prompt) -> Floats:
        """The logarithms of the probabilities (option,) of a prompt."""
        return next(self.score([prompt])).totals[0]

    def _scores(self, rows: Sequence[int], prompts: Sequence[Prompt], reply: Any) -> PromptScores:
        """The scores of the prompts at ``rows``, which one request asked."""
        size = 1 + len(prompts[rows[0]].others)
        if isinstance(reply, Refused):
            answers: list[Answer] = [reply.reason] * size
        else:
            answers = self.route.answers(reply, _names(size))
            self._named[str(reply.get("model", ""))] += 1
        read = [self._read(answers[prompts[row].position], prompts[row]) for row in rows]
        return PromptScores(
            np.array(rows),
            [scores for scores, _, _ in read],
            [np.ones(len(scores), dtype=np.int64) for scores, _, _ in read],
            bounds=[is_bound for _, is_bound, _ in read],
            refused=[reason for _, _, reason in read],
        )

    def _read(self, answer: Answer, prompt: Prompt) -> tuple[Floats, Bools, str | None]:
        """The scores (option,) of an answer, which are bounds, and why there are none."""
        names = [name for name, _ in _options(prompt)]
        reason = answer if isinstance(answer, str) else fault_of(answer, names)
        if isinstance(answer, str) or reason is not None:
            return np.full(len(names), np.nan), np.zeros(len(names), dtype=bool), reason
        scores, is_bound = log_scores([answer[name] for name in names])
        self._zeros += int(is_bound.sum())
        self._options += len(names)
        return scores, is_bound, None

    def _remarks(self) -> Iterator[str]:
        """Notes on what the server replied so far."""
        if self._zeros:
            yield (
                f"{self._zeros:,} of {self._options:,} probabilities of options are 0, as the "
                "server rounds them: their logarithms are unknown"
            )
        served = [name for name in self._named if name not in ("", self.name)]
        if len(self._named) > 1:
            yield f"the replies are of several models: {', '.join(sorted(self._named))}"
        elif served:
            yield f"the server calls the model '{served[0]}'"
