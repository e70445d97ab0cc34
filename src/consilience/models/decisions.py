"""Decision models: a question with its options in, the probability of every option out.

A request has a text (the context of the question) and a question with options. Servers have two
routes for it: ``/v1/systemone`` (the System One API of TypeSafe; transformers, llama.cpp, vLLM,
SGLang and others) and ``/v1/decisions`` (the Decisions API of OpenAI; SGLang, Fireworks and
others). An option is named by its text or, in a variant with labels, by its label, and then its
text is the description. In this process the DecisionPipeline of transformers asks: a model with a
decision head scores the options itself, of other chat models their labels are read.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from consilience.core.errors import (
    DEFAULT_LOADING,
    Connection,
    ConsilienceError,
    Loading,
    shortened,
)
from consilience.core.items import Choice, Floats, Form, Task, TaskKind, as_lines, group_rows
from consilience.core.presentation import Prompt
from consilience.core.text import counted
from consilience.endpoints.client import Client, Refused
from consilience.models.functions import PlainPairs
from consilience.types import Scores

if TYPE_CHECKING:
    from consilience.models.loading import Pretrained

Body = dict[str, Any]  # The JSON value of a request
Send = Callable[[Sequence[Body]], Iterator[tuple[int, Any]]]
MOST_OPTIONS = 255  # Options of a question that both APIs take at most; a server may take fewer
ROUNDING = 0.01  # How far from 1 the sum of probabilities may be, because servers round them
OF_PAIRS: Mapping[TaskKind, str] = {  # What is asked about a pair, which is the context
    "NLI": "How does {second} relate to {first}?",
    "STS": "How do {first} and {second} relate?",
}
NAME = "q1"  # What the question is called in a request
Answer = Mapping[str, float] | str  # The probability of each option by its name; or why none


@dataclass(frozen=True, slots=True)
class Route:
    """How a route of decisions, after the base URL, is asked and what it replies.

    ``body``: the request of a model, by its name, with a question. ``entry``: the answer to it in
    a reply, None without one. ``pairs``: the probabilities in this answer, by the names of options.
    """

    path: str
    body: Callable[[str, Prompt], Body]
    entry: Callable[[Any], Any]
    pairs: Callable[[Any], Iterable[tuple[str, Any]]]

    def answer(self, reply: Any) -> Answer:
        """The probability of each option, or why there is none; a malformed reply raises."""
        try:
            entry = self.entry(reply)
            if entry is None:
                return "the server gave no answer to the question"
            if (kind := entry["type"]) == "refusal":
                return "the model refused to answer"
            if kind != "choice":
                return f"the server answered with '{kind}' in place of 'choice'"
            pairs = list(self.pairs(entry))
            probabilities = dict(pairs)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            shown = shortened(json.dumps(reply, ensure_ascii=False), 120)
            raise ConsilienceError(
                f"a reply of another API: {shown}",
                expected=f"the reply of /v1/{self.path}, with a probability for every option",
                where="--base-url",
                todo=f"Check that the server has /v1/{self.path}, and that the model is a decision "
                "model.",
            ) from error
        if len(probabilities) < len(pairs):
            return "the server gave several probabilities of one option"
        return probabilities


def _options(prompt: Prompt) -> dict[str, str | None]:
    """What describes each option, by its name as it is shown."""
    if not prompt.are_labels:
        return dict.fromkeys(choice.text for choice in prompt.choices)
    texts = (choice.text for choice in prompt.choices)
    return dict(zip(prompt.answers, texts, strict=True))


def _systemone_body(model: str, prompt: Prompt) -> Body:
    question = {"type": "choice", "instructions": prompt.question, "criteria": _options(prompt)}
    return {"model": model, "state": prompt.context, "questions": {NAME: question}}


def _decisions_body(model: str, prompt: Prompt) -> Body:
    choices = [
        {"value": value} | ({"description": text} if text is not None else {})
        for value, text in _options(prompt).items()
    ]
    question = {"type": "choice", "name": NAME, "instructions": prompt.question, "choices": choices}
    return {"model": model, "input": prompt.context, "questions": [question]}


def _decisions_entry(reply: Any) -> Any:
    answer = None
    for at, entry in enumerate(reply["answers"]):
        if entry.get("name") == NAME or (entry.get("name") is None and at == 0):
            answer = entry
    return answer


ROUTES: Mapping[str, Route] = {  # By the prefix of the models that have the route
    "systemone": Route(
        "systemone",
        _systemone_body,
        lambda reply: reply["answers"].get(NAME),
        lambda entry: entry["probabilities"].items(),
    ),
    "decisions": Route(
        "decisions",
        _decisions_body,
        _decisions_entry,
        lambda entry: ((one["value"], one.get("probability")) for one in entry["probabilities"]),
    ),
}


def fault_of(probabilities: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Why the probabilities of an answer are not those of these options; None where they are."""
    if set(probabilities) != set(names):
        return f"the server gave probabilities of {list(probabilities)}, not of {list(names)}"
    for name, value in probabilities.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 <= value <= 1 + ROUNDING):
            return f"the server gave '{name}' the probability {value!r}"
    total = math.fsum(probabilities.values())
    return f"the probabilities sum to {total:.4g}, not to 1" if abs(total - 1) > ROUNDING else None


def log_scores(probabilities: Sequence[float]) -> Floats:
    """The logarithms (option,) of probabilities over their sum; NaN of one rounded to 0."""
    values = np.array(probabilities, dtype=np.float64)
    return np.asarray(np.log(np.where(values == 0, np.nan, values) / values.sum()))


def connected(spec: str, connection: Connection) -> DecisionModel:
    """The model of ``systemone:NAME`` or ``decisions:NAME`` behind a URL."""
    scheme, _, name = spec.partition(":")
    client, route = Client(connection), ROUTES[scheme]
    identity = {"model": spec, "kind": "decisions", "server": connection.base_url}
    model = DecisionModel(name, route, partial(client.post_all, route.path), identity)
    model.client = client
    return model


class DecisionModel:
    """A model that gives the probability of every option; its logarithm, in nats, is the score."""

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
        self.name, self.route, self.identity = name, route, dict(identity)
        self.notes: list[str] = []
        self.most_options = most_options
        self.client: Client | None = None
        self._send = send
        self._zeros = self._options = 0

    def text(self, prompt: Prompt) -> str:
        return json.dumps(self.route.body(self.name, prompt), ensure_ascii=False)

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        return [self._why_not(prompt) for prompt in prompts]

    def _why_not(self, prompt: Prompt) -> str | None:
        size = len(prompt.choices)
        if size < 2:
            return f"{counted(size, 'option')}, and a decision needs two or more"
        if size > self.most_options:
            return f"{size} options, and a decision takes {self.most_options}"
        return "two options have the same text" if len(_options(prompt)) < size else None

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """The logarithms of the probabilities of options; equal requests are sent once."""
        requests = list(group_rows(map(self.text, prompts)).values())
        bodies = [self.route.body(self.name, prompts[of[0]]) for of in requests]
        for at, reply in self._send(bodies):
            if isinstance(reply, Refused):
                answer: Answer = reply.reason
            else:
                answer = self.route.answer(reply)
            read = [self._read(answer, prompts[row]) for row in requests[at]]
            yield Scores.of_rows(
                np.array(requests[at]),
                [scores for scores, _ in read],
                [np.ones(len(scores), dtype=np.int64) for scores, _ in read],
                refused=[reason for _, reason in read],
            )
        if self._zeros:
            self.notes[:] = [
                f"{self._zeros:,} of {self._options:,} probabilities of options are 0, as the "
                "server rounds them: their logarithms are unknown"
            ]

    def _read(self, answer: Answer, prompt: Prompt) -> tuple[Floats, str | None]:
        """The scores (option,) of an answer, and why there are none."""
        names = list(_options(prompt))
        reason = answer if isinstance(answer, str) else fault_of(answer, names)
        if isinstance(answer, str) or reason is not None:
            return np.full(len(names), np.nan), reason
        scores = log_scores([answer[name] for name in names])
        self._zeros += int(np.isnan(scores).sum())
        self._options += len(names)
        return scores, None


class DecisionPairs(PlainPairs):
    """A decision model that is asked for the label of a sentence pair (``asking/pairs.py``)."""

    tie = 0.0

    def __init__(self, model: DecisionModel, task: Task) -> None:
        self.model = model
        self.client, self.notes = model.client, model.notes
        self.labels = task.labels
        first, second = task.indicators
        self.question = OF_PAIRS[task.kind].format(first=first, second=second)
        self.identity: dict[str, object] = {**model.identity, "question": self.question}

    def text(self, shown: Form) -> str:
        return self._prompt(shown).text

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """Log-probabilities of the labels (form, label); rounded to 0 they only order these."""
        for scores in self.model.score([self._prompt(form) for form in forms]):
            assert scores.totals is not None
            yield Scores(
                scores.rows,
                self.labels,
                scores.totals,
                unasked=scores.unasked,
                answers_only=bool(np.isnan(scores.totals).any()),
            )

    def _prompt(self, form: Form) -> Prompt:
        return Prompt(
            (("user", f"{as_lines(form)}\n{self.question}"),),
            self.labels,
            tuple(range(len(self.labels))),
            tuple(map(Choice, self.labels)),
            are_labels=False,
            context=as_lines(form),
            question=self.question,
        )


class _WithHead:
    """Loads a model that was saved with its decision head, and says which weights it lacks."""

    @staticmethod
    def from_pretrained(location: str, **options: Any) -> tuple[Any, Any]:
        from transformers import JevForDecision
        from transformers.decision import DecisionConfig
        from transformers.decision.modeling_utils import DecisionMixin

        load: Any = super(DecisionMixin, JevForDecision).from_pretrained
        model, information = load(location, **options)
        model.decision_config = DecisionConfig.from_pretrained(location)
        return model, information


def load_decision_pipeline(
    spec: str, loading: Loading = DEFAULT_LOADING, longest: int = 0
) -> DecisionModel:
    """A decision model, or a chat model, asked as ``transformers serve`` asks it.

    The probabilities of a chat model are those of the labels (A, B, ...) that the pipeline gives
    the options. ``longest``: tokens of a request, 0 for as many as the model takes.
    """
    from transformers.pipelines.decision import DecisionPipeline

    from consilience.models.loading import load_pretrained

    loaded = load_pretrained(spec, loading, {"decision": _WithHead})
    _refuse(spec, loaded)
    pipeline: Any = DecisionPipeline(
        model=loaded.model, tokenizer=loaded.tokenizer, device=loaded.model.device
    )
    config: Any = loaded.model.config
    sizes = config.get_text_config() if loaded.kind == "decision" else config
    most = longest or getattr(sizes, "max_position_embeddings", None) or 0
    identity = {**loaded.identity, "model": f"systemone:{spec}", "asked_by": "DecisionPipeline"}
    labels = pipeline.decision_config.labels.get("choice") or string.ascii_uppercase
    options = len(labels)
    if loaded.kind == "decision":
        options = min(options, config.num_verbalizers - config.offsets["choice"])
    return DecisionModel(
        spec, ROUTES["systemone"], partial(_send, pipeline, most), identity, most_options=options
    )


def _refuse(spec: str, loaded: Pretrained) -> None:
    from transformers import JevForDecision
    from transformers.models.auto.modeling_auto import MODEL_FOR_DECISION_MAPPING_NAMES

    model: Any = loaded.model
    is_decision, find = loaded.kind == "decision", cast(Any, JevForDecision.checkpoint_config)
    template = is_decision and model.decision_config.chat_template
    template = template or getattr(loaded.tokenizer, "chat_template", None)
    has_family = model.config.model_type in MODEL_FOR_DECISION_MAPPING_NAMES
    if not is_decision and has_family and find(model.name_or_path)[0] is not None:
        raise ConsilienceError(
            f"'{spec}' has a decision head beside its weights, which is not read here",
            todo="Load it with JevForDecision.from_pretrained, save_pretrained to a folder, and "
            "ask systemone:FOLDER; or ask `transformers serve`.",
        )
    if not template or loaded.kind not in ("causal", "decision"):
        raise ConsilienceError(
            f"'{spec}' is a {loaded.kind} model" + " without a chat template" * (not template),
            expected="a chat model, which the DecisionPipeline of transformers can ask",
            todo=f"Ask it without systemone: --model {spec}.",
        )


def _send(pipeline: Any, longest: int, bodies: Sequence[Body]) -> Iterator[tuple[int, Any]]:
    for at, body in enumerate(bodies):
        request = {name: body[name] for name in ("state", "questions")}
        try:
            inputs = pipeline.preprocess(request)
            tokens = max(prompt["input_ids"].shape[-1] for prompt, _ in inputs["prompts"])
            if longest and tokens > longest:
                yield at, Refused(0, f"{tokens} tokens, and the model takes {longest}")
                continue
            yield at, {"answers": pipeline.postprocess(pipeline.forward(inputs))}
        except ValueError as error:
            yield at, Refused(0, str(error))
