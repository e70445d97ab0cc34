"""Prompts and their tokens, of models here and elsewhere; the prompts that ask for a label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.core.items import Form, Prompt, Task, TaskKind, as_string
from consilience.models.candidates import too_long
from consilience.models.checks import (
    Turn,
    before_texts,
    begun,
    rendered,
    special_tokens,
    unusable,
)

MOST_WRITTEN = 32  # Tokens that a model may write unless another number is given
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


ANSWER = "\u2603answer\u2603"  # Shows what a chat template puts around an answer


class PromptTokens:
    """How one model's tokenizer and chat template read prompts."""

    def __init__(self, tokenizer: Any, ends: Sequence[int], name: str) -> None:
        """``ends``: the tokens that end an answer. ``name``: the model's, for messages."""
        self.tokenizer = tokenizer
        self.ends = ends
        self.name = name

    @property
    def has_template(self) -> bool:
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
        """The tokens of prompts, chats too: with what begins every text, and nothing that ends."""
        return [begun(ids, self.beginning) for ids in self.ids(texts)] if texts else []

    def following(self, text: str) -> list[int]:
        """The tokens of a text that follows another; SentencePiece begins a text with a space."""
        before = "\n" if text[:1].isalnum() else "a"
        alone, whole = self.ids([before, before + text])
        return whole[len(alone) :]

    def ended(
        self, targets: Sequence[list[int]], after: str, *, is_text: bool = True
    ) -> list[list[int]]:
        """Targets with the token that ends an answer; ``after``: the text that follows it.

        It is the first one there that the model ends answers with, else the first one, if it is
        special or ``is_text``, else the model's own end.
        """
        ends = self.following(after) if after else []
        known = [token for token in ends if token in self.ends]
        first = ends[:1] if is_text or self.special_in([after]) else []
        return [[*target, *[*known, *first, *self.ends][:1]] for target in targets]

    def label_targets(self, labels: Sequence[str], gap: str) -> list[list[int]]:
        """The tokens of labels after a ``gap``, with what ends them where the end counts."""
        targets = [self.following(gap + label) for label in labels]
        if not self.has_template and not begins_another(targets):
            return targets
        after = self.around(Prompt((("user", "?"),), (), (), is_chat=True))[1]
        return self.ended(targets, after, is_text=False)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        text = self.around(prompt)[0]
        is_chat = prompt.is_chat and self.has_template
        return self.begun([text if is_chat else text.rstrip(" ")])[0]

    def around(self, prompt: Prompt) -> tuple[str, str]:
        """What the model reads before an answer, and what ends the answer.

        Both are what the chat template of the model has around the turn of an assistant. The text
        of another prompt ends with a line break.
        """
        if not (prompt.is_chat and self.has_template):
            return prompt.text, "\n"
        question, answered = self.chats(prompt)
        opening = self.chat(question)
        whole = rendered(self.tokenizer, answered, self.name, is_asked=False)
        before, is_there, after = whole.partition(ANSWER)
        fits = before.startswith(opening) or opening.startswith(before)  # it may open a thought
        return (before, after) if is_there and fits else (opening, after)

    @staticmethod
    def chats(prompt: Prompt) -> tuple[list[Turn], list[Turn]]:
        """The turns of a chat, without and with the turn of an answer."""
        turns = [{"role": role, "content": text} for role, text in prompt.turns]
        if prompt.system:
            turns.insert(0, {"role": "system", "content": prompt.system})
        return turns, [*turns, {"role": "assistant", "content": ANSWER}]

    def chat(self, turns: Sequence[Turn]) -> str:
        """Turns in the form of the model's template, and what opens an answer."""
        return rendered(self.tokenizer, turns, self.name, is_asked=True)

    def encode(self, prompt: Prompt) -> tuple[list[int], list[list[int]]]:
        """The token ids of a prompt, of any length, and those of each of its answers.

        The prompt is what all texts of prompt and answer begin with, an answer what follows. A text
        is complete with the token that ends a turn. A label is not, and in plain text nothing is,
        unless the ids of one answer begin another's (``1`` and ``10``): then all answers of the
        prompt are scored with what ends them.
        """
        before, after = self.around(prompt)
        stem = before.rstrip(" ")
        gap = before[len(stem) :] or ("" if prompt.is_chat or stem.endswith("\n") else " ")
        prompt_ids, *whole = self.begun([stem, *(stem + gap + one for one in prompt.answers)])
        columns = zip(prompt_ids, *whole, strict=False)
        common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        shared = min(common, *(len(ids) - 1 for ids in whole))
        targets = [ids[shared:] for ids in whole]
        if begins_another(targets) or (prompt.is_chat and not prompt.are_labels):
            targets = self.ended(targets, after)
        return whole[0][:shared], targets

    def refused(self, prompt: Prompt, answers: Sequence[str] = ()) -> str | None:
        """Why the texts of a prompt and its answers cannot be read; None where they can."""
        if prompt.is_chat and not self.has_template:
            return "the model has no chat template"
        return self.special_in([*(text for _, text in prompt.turns), prompt.system, *answers])

    def special_in(self, texts: Sequence[str]) -> str | None:
        """Why the first text with a special token cannot be read; None where none has one."""
        found = (token for text in texts for token in self.special if token in text)
        return next((f"has the special token '{token}' in it" for token in found), None)


class OptionPrompts:
    """How a model that scores options reads prompts; ``longest``: tokens that it takes."""

    tokens: PromptTokens
    longest: Any
    takes_answers = True  # Whether an answer takes up positions after the prompt

    def encode(self, prompt: Prompt) -> tuple[list[int], list[list[int]]]:
        """The token ids of a prompt, of any length, and those of each of its answers."""
        return self.tokens.encode(prompt)

    def text(self, shown: Prompt) -> str:
        """What the model reads before an answer: a chat in its own form, or the text itself."""
        return self.tokens.around(shown)[0]

    def why_not(self, shown: Sequence[Prompt]) -> list[str | None]:
        return [self._why_not(prompt) for prompt in shown]

    def _why_not(self, prompt: Prompt) -> str | None:
        if reason := self.tokens.refused(prompt, prompt.answers):
            return reason
        options = [*prompt.answers, *(choice.text for choice in prompt.choices)]
        for option, tokens in zip(options, self.tokens.ids(options), strict=True):
            if reason := unusable(self.tokens.tokenizer, tokens):
                return f"the option '{option}': {reason}"
        ids, targets = self.encode(prompt)
        if len({tuple(target) for target in targets}) < len(targets):
            return "two options have the same tokens"
        more = max(map(len, targets), default=1) - 1 if self.takes_answers else 0
        return too_long(len(ids) + more, self.longest)


def begins_another(targets: Iterable[list[int]] | Iterable[str]) -> bool:
    """Whether one of the targets is the beginning of another; in order it is next to one."""
    ordered: list[Any] = sorted(targets)
    return any(second[: len(first)] == first for first, second in pairwise(ordered))


class LabelPrompts:
    """How sentence pairs are read for the word of a label."""

    def __init__(self, template: str, task: Task, tokens: PromptTokens | None) -> None:
        """``tokens``: None of a server that joins a chat, which is not read as one text."""
        self.template, self.tokens = filled(template, task), tokens
        self.question, _, self.reply = self.template.partition(REPLY)
        self.is_chat = tokens is not None and tokens.has_template

    @property
    def gap(self) -> str:
        """What is between the text and a label: nothing after a line break or to begin a turn."""
        before = self.reply or "\n" if self.is_chat else (self.question + self.reply).rstrip(" ")
        return "" if before[-1].isspace() else " "

    def turns(self, form: Form) -> list[Turn]:
        """The user's turn; of a model without chats, all before the reply."""
        question = self.question.replace("{text}", as_string(form))
        content = question.rstrip("\n") if self.is_chat and self.reply else question
        return [{"role": "user", "content": content}]

    def text(self, form: Form) -> str:
        turns = self.turns(form)
        if self.tokens is not None and self.is_chat:
            return self.tokens.chat(turns) + self.reply
        text = turns[0]["content"] + self.reply
        return text if self.tokens is None else text.rstrip(" ")
