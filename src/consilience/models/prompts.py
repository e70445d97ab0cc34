"""Prompts and their tokens, of models here and elsewhere; sentence pairs as prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, takewhile
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
from consilience.models.functions import scores_of_replies
from consilience.models.tokens import (
    Turn,
    before_texts,
    rendered,
    special_tokens,
    too_long,
    unusable,
)


@dataclass(frozen=True, slots=True)
class Writing:
    """How a model writes answers."""

    most_written: int = 32  # Tokens, at most
    temperature: float = 0.0  # 0 for the most probable tokens; else they are sampled by ``seed``
    seed: int = 0

    @property
    def record(self) -> dict[str, object]:
        """What distinguishes a model that writes so."""
        seed = {"sampling_seed": self.seed} if self.temperature else {}
        return {"max_new_tokens": self.most_written, "temperature": self.temperature, **seed}


DEFAULT_WRITING = Writing()


ANSWER = "\u2603answer\u2603"  # Shows what a chat template puts around an answer


class PromptReader:
    """How a model that scores options, or writes, reads prompts by its tokenizer and template."""

    writing = DEFAULT_WRITING
    chooses = True  # Whether prompts with options are answered by scores
    takes_answers = True  # Whether an answer takes up positions after the prompt

    def __init__(
        self, tokenizer: Any, ends: Sequence[int], name: str, longest: int | None = None
    ) -> None:
        """``ends``: the tokens that end an answer. ``name``: the model's, for messages.

        ``longest``: the tokens that it takes; None for any number.
        """
        self.tokenizer, self.ends, self.name, self.longest = tokenizer, ends, name, longest

    @property
    def takes_chats(self) -> bool:
        return bool(getattr(self.tokenizer, "chat_template", None))

    @cached_property
    def beginning(self) -> list[int]:
        return before_texts(self.tokenizer)

    @cached_property
    def special(self) -> list[str]:
        return special_tokens(self.tokenizer)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts, without any that begin or end a text."""
        encoded: Any = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)
        return [list(ids) for ids in encoded["input_ids"]]

    def begun(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of prompts: with what begins every text, once, and nothing that ends.

        Chat templates may write what begins a text.
        """
        every, begin = self.ids(texts), self.beginning
        return [ids if ids[: len(begin)] == begin else [*begin, *ids] for ids in every]

    def ended(self, targets: Sequence[list[int]], after: str) -> list[list[int]]:
        """Targets with the token that ends an answer; ``after``: the text that follows it.

        It is the first one there that the model ends answers with, else the first one, else the
        model's own end. SentencePiece begins a text with a space, so another goes before it.
        """
        before = "\n" if after[:1].isalnum() else "a"
        alone, whole = self.ids([before, before + after])
        ends = whole[len(alone) :]
        known = [token for token in ends if token in self.ends]
        return [[*target, *[*known, *ends, *self.ends][:1]] for target in targets]

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The token ids of a prompt after which an answer is written."""
        return self.begun([self.around(prompt)[0]])[0]

    def around(self, prompt: Prompt) -> tuple[str, str]:
        """What the model reads before an answer, and what ends the answer.

        Both are what the chat template of the model has around the turn of an assistant, who may
        have begun a reply. The text of another prompt ends with a line break.
        """
        if not (prompt.is_chat and self.takes_chats):
            return prompt.text, "\n"
        question = turns_of(prompt)
        answered = [*question, {"role": "assistant", "content": ANSWER}]
        opening = rendered(self.tokenizer, question, self.name, is_asked=True)
        whole = rendered(self.tokenizer, answered, self.name, is_asked=False)
        before, is_there, after = whole.partition(ANSWER)
        fits = before.startswith(opening) or opening.startswith(before)  # it may open a thought
        return (before if is_there and fits else opening) + prompt.reply, after

    def encode(self, prompt: Prompt) -> tuple[list[int], list[list[int]]]:
        """The token ids of a prompt, of any length, and those of each of its answers.

        The prompt is what all texts of prompt and answer begin with, an answer what follows. A text
        is complete with the token that ends a turn. A label is not, and in plain text nothing is,
        unless the ids of one answer begin another's (``1`` and ``10``): then all answers of the
        prompt are scored with what ends them.
        """
        before, after = self.around(prompt)
        stem = before.rstrip(" ")
        opens = (prompt.is_chat and not prompt.reply) or stem.endswith("\n")
        gap = before[len(stem) :] or ("" if opens else " ")
        prompt_ids, *whole = self.begun([stem, *(stem + gap + one for one in prompt.answers)])
        shared = beginning_of([prompt_ids, *(ids[:-1] for ids in whole)])
        targets = [ids[len(shared) :] for ids in whole]
        if begins_another(targets) or (prompt.is_chat and not prompt.are_labels):
            targets = self.ended(targets, after)
        return shared, targets

    def refused(self, prompt: Prompt, answers: Sequence[str] = ()) -> str | None:
        """Why the texts of a prompt and its answers cannot be read; None where they can."""
        if prompt.is_chat and not self.takes_chats:
            return "the model has no chat template"
        return self.special_in([*(text for _, text in prompt.turns), prompt.system, *answers])

    def special_in(self, texts: Sequence[str]) -> str | None:
        """Why the first text with a special token cannot be read; None where none has one."""
        found = (token for text in texts for token in self.special if token in text)
        return next((f"has the special token '{token}' in it" for token in found), None)

    def text(self, shown: Prompt) -> str:
        """What the model reads before an answer: a chat in its own form, or the text itself."""
        return self.around(shown)[0]

    def why_not(self, shown: Sequence[Prompt]) -> list[str | None]:
        return [self._why_not(prompt) for prompt in shown]

    def too_long_to_write(self, prompt: Prompt) -> str | None:
        """Why an answer does not fit after a prompt; None where it does."""
        more = self.writing.most_written if self.takes_answers else 0
        return too_long(len(self.prompt_ids(prompt)) + more, self.longest)

    def _why_not(self, prompt: Prompt) -> str | None:
        if prompt.is_open or not self.chooses:
            return self.too_long_to_write(prompt) or self.refused(prompt)
        if reason := self.refused(prompt, prompt.answers):
            return reason
        options = [*prompt.answers, *(choice.text for choice in prompt.choices)]
        for option, tokens in zip(options, self.ids(options), strict=True):
            if reason := unusable(self.tokenizer, tokens):
                return f"the option '{option}': {reason}"
        ids, targets = self.encode(prompt)
        if len({tuple(target) for target in targets}) < len(targets):
            return "two options have the same tokens"
        more = max(map(len, targets), default=1) - 1 if self.takes_answers else 0
        return too_long(len(ids) + more, self.longest)


def turns_of(prompt: Prompt) -> list[Turn]:
    """The turns of a chat."""
    turns = [{"role": role, "content": text} for role, text in prompt.turns]
    return [{"role": "system", "content": prompt.system}] * bool(prompt.system) + turns


def beginning_of(sequences: Sequence[list[int]]) -> list[int]:
    """What all sequences begin with."""
    columns = zip(*sequences, strict=False)
    return [column[0] for column in takewhile(lambda column: len({*column}) == 1, columns)]


def begins_another(targets: Iterable[list[int]] | Iterable[str]) -> bool:
    """Whether one of the targets is the beginning of another; in order it is next to one."""
    ordered: list[Any] = sorted(targets)
    return any(second[: len(first)] == first for first, second in pairwise(ordered))


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

    A label is an answer as any other (``PromptReader.encode``). A server without scores chooses the
    label that it writes.
    """

    def __init__(self, model: Any, task: Task, template: str | None = None) -> None:
        """``model``: see ``load_prompt_model``. ``template``: None for T5's form, or for ours."""
        self.model, self.tie = model, model.tie
        self.reader = model if isinstance(model, PromptReader) else None  # None: without scores
        self.client, self.proof = (getattr(model, name, None) for name in ("client", "proof"))
        is_t5 = template is None and model.identity["kind"] == "seq2seq"
        is_chat = model.takes_chats and not is_t5
        text = TEMPLATES[task.kind] if template is None else template
        if is_chat and self.reader is None and REPLY in text:
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
        if self.reader is None:
            return None
        if reason := self.reader.special_in([segment.sentence for segment in form]):
            return reason
        return self.reader.too_long_to_write(self.prompt(form))

    def write(
        self, shown: Sequence[Form], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, Sequence[str | NoAnswer]]]:
        prompts = [*map(self.prompt, shown)]
        for rows, texts in self.model.write(prompts, samples):
            if self.reader is None:
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
