"""Sentence pairs as questions that are answered with the word of a label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError
from consilience.core.items import (
    Choice,
    Form,
    Ints,
    NoAnswer,
    Prompt,
    Scores,
    Task,
    TaskKind,
    as_string,
)
from consilience.models import is_chat_model
from consilience.models.candidates import too_long
from consilience.models.functions import scores_of_replies

LONGEST_LABEL = 20  # Tokens that a model may write; no label of the tasks has half as many
REPLY = "{reply}"  # In a template: what follows is the beginning of the model's reply

_QUESTIONS: Mapping[TaskKind, str] = {
    "NLI": "How does {second} relate to {first}?",
    "STS": "How do {first} and {second} relate?",
}
TEMPLATES: Mapping[TaskKind, str] = {
    kind: f"{{text}}\n\n{question} Answer with one of these labels and nothing else: {{labels}}.\n"
    "{reply}Label:"
    for kind, question in _QUESTIONS.items()
}
"""The template for a model without a form of its own, if none is given; ours.

Small models that are not given the beginning of the reply write about the sentences instead
(docs/free-text.md).
"""


def filled(template: str, task: Task) -> str:
    """A template with the ``{labels}`` and the indicators, ``{first}`` and ``{second}``, in it.

    ``{text}`` is where a pair stands, and what follows ``{reply}`` is the beginning of the reply.
    """
    names = {"labels": ", ".join(task.labels)}
    names |= dict(zip(("first", "second"), task.indicators, strict=True))
    reply = template.partition(REPLY)[2]
    if template.count("{text}") != 1 or REPLY in reply or "{text}" in reply:
        expected = f"exactly one {{text}}, where the pair stands, and at most one {REPLY} after it"
        raise ConsilienceError(f"the template '{template}'", expected=expected)
    for name, value in names.items():
        template = template.replace("{" + name + "}", value)
    return template


class LabelAsker:
    """Asks a model of questions for the label of sentence pairs, in words.

    A label is an answer as any other (``PromptTokens.encode``). A server without scores chooses the
    label that it writes.
    """

    def __init__(self, model: Any, task: Task, template: str | None = None) -> None:
        """``model``: see ``load_prompt_model``. ``template``: None for T5's form, or for ours."""
        self.model, self.tie = model, model.tie
        self.tokens = getattr(model, "tokens", None)  # None of a server without scores
        self.products, self.client, self.proof = (
            getattr(model, name, None) for name in ("products", "client", "proof")
        )
        is_t5 = template is None and model.identity["kind"] == "seq2seq"
        is_chat = is_chat_model(model) and not is_t5
        text = TEMPLATES[task.kind] if template is None else template
        if is_chat and self.tokens is None and REPLY in text:
            if template is not None:
                found = f"{REPLY} in the template, of a server that takes whole chats only"
                raise ConsilienceError(found, todo=f"Leave {REPLY} and what follows it out.")
            text = text.partition(REPLY)[0].rstrip()
        self.template = None if is_t5 else filled(text, task)
        self.question, _, reply = (self.template or f"{task.name} {{text}}").partition(REPLY)
        if not is_chat:
            self.question, reply = self.question + reply, ""
        elif reply:
            self.question = self.question.rstrip("\n")
        self.asked = Prompt(
            (), task.labels, tuple(range(len(task.labels))), tuple(map(Choice, task.labels)),
            are_labels=False, is_chat=is_chat, reply=reply,
        )  # fmt: skip
        self.identity = model.identity | {"template": self.template, "chat": is_chat}
        self.written: dict[Prompt, str | NoAnswer] = {}  # By a server, and not yet scored

    @property
    def notes(self) -> list[str]:
        return list(self.model.notes)

    def prompt(self, form: Form) -> Prompt:
        question = self.question.replace("{text}", as_string(form))
        return replace(self.asked, turns=(("user", question),))

    def text(self, shown: Form) -> str:
        return str(self.model.text(self.prompt(shown)))

    def why_not(self, shown: Sequence[Form]) -> list[str | None]:
        return [*map(self._why_not, shown)]

    def _why_not(self, form: Form) -> str | None:
        if self.tokens is None:
            return None
        if reason := self.tokens.special_in([segment.sentence for segment in form]):
            return str(reason)
        more = self.model.writing.most_written if self.model.takes_answers else 0
        return too_long(len(self.model.prompt_ids(self.prompt(form))) + more, self.model.longest)

    def write(
        self, shown: Sequence[Form], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, Sequence[str | NoAnswer]]]:
        prompts = [*map(self.prompt, shown)]
        for rows, texts in self.model.write(prompts, samples):
            if self.tokens is None:
                self.written |= {prompts[row]: text for row, text in zip(rows, texts, strict=True)}
            yield rows, texts

    def score(
        self, shown: Sequence[Form], candidates: None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        """As ``LanguageModel.score``. What a server wrote counts, once, and is not asked again."""
        prompts, left = [*map(self.prompt, shown)], list[int]()
        known = {one: self.written.pop(one) for one in {*prompts} & self.written.keys()}
        for row, one in enumerate(prompts):
            if one in known:
                yield scores_of_replies([row], (), [one], [known[one]])
            else:
                left.append(row)
        for scores in self.model.score([prompts[row] for row in left]):
            yield replace(scores, rows=np.array(left)[scores.rows])
