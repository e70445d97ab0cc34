"""Prompts and their tokens, of models here and elsewhere; the prompts that ask for a label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Any

from jinja2.exceptions import TemplateError

from consilience.core.errors import ConsilienceError
from consilience.core.items import Form, Prompt, Task, TaskKind, as_string
from consilience.models.candidates import before_texts, too_long

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


TODAY = """{%- macro strftime_now(format) -%}
{{- "2024-07-26" if "%m" in format else "26 Jul 2024" if "%b" in format else "26 July 2024" -}}
{%- endmacro -%}"""
"""The date of templates that write one (SmolLM3, gpt-oss, Llama 3.2), the same on all days."""

OF_TEMPLATES = (TypeError, ValueError, ArithmeticError, LookupError, RecursionError)
"""What a chat template raises besides TemplateError."""

Turn = dict[str, str]  # The role and the content of a turn of a chat


class PromptTokens:
    """How one model's tokenizer and chat template read prompts."""

    def __init__(self, tokenizer: Any, ends: Sequence[int], name: str) -> None:
        """``ends``: the tokens that end an answer. ``name``: the model's, for messages."""
        self.tokenizer = tokenizer
        self.ends = ends
        self.name = name

    def is_chat(self, prompt: Prompt) -> bool:
        return prompt.is_chat and self.has_template

    @property
    def has_template(self) -> bool:
        return bool(getattr(self.tokenizer, "chat_template", None))

    @cached_property
    def beginning(self) -> list[int]:
        """The tokens that the tokenizer begins every text with, if any."""
        return before_texts(self.tokenizer)

    def ids(self, texts: list[str]) -> list[list[int]]:
        encoded: Any = self.tokenizer(texts, add_special_tokens=False, verbose=False)
        return [list(ids) for ids in encoded["input_ids"]]

    def following(self, text: str) -> list[int]:
        """The tokens of a text that follows another; SentencePiece begins a text with a space."""
        before = "\n" if text[:1].isalnum() else "a"
        alone, whole = self.ids([before, before + text])
        return whole[len(alone) :]

    def label_targets(self, labels: Sequence[str], gap: str) -> list[list[int]]:
        """The tokens of labels after a ``gap``, with what ends them where the end counts."""
        targets = [self.following(gap + label) for label in labels]
        if self.has_template:
            ends = [self._end_of_turn(label) for label in labels]
        else:
            ends = [[*self.ends[:1]] if begins_another(targets) else [] for _ in labels]
        return [[*target, *end] for target, end in zip(targets, ends, strict=True)]

    def _end_of_turn(self, label: str) -> list[int]:
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": label}]
        after = self.ids([self.joined(turns).rpartition(label)[2]])[0]
        ends = [token for token in after if token in self.ends]
        if not ends and after and self.special_in([self.tokenizer.decode(after[:1])]):
            ends = after
        return [*ends, *self.ends][:1]

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        start = [] if self.is_chat(prompt) else self.beginning
        return [*start, *self.ids([self.prompt_text(prompt)])[0]]

    def prompt_text(self, prompt: Prompt) -> str:
        text = self.around(prompt)[0]
        return text if self.is_chat(prompt) else text.rstrip(" ")

    def around(self, prompt: Prompt) -> tuple[str, str]:
        """What the model reads before an answer, and what ends the answer.

        Both are what the chat template of the model has around the turn of an assistant. The text
        of another prompt ends with a line break.
        """
        if not self.is_chat(prompt):
            return prompt.text, "\n"
        question, answered = self.chats(prompt)
        opening = self.joined(question, is_asked=True)
        before, is_there, after = self.joined(answered).partition(ANSWER)
        fits = before.startswith(opening) or opening.startswith(before)  # it may open a thought
        return (before, after) if is_there and fits else (opening, after)

    @staticmethod
    def chats(prompt: Prompt) -> tuple[list[Turn], list[Turn]]:
        """The turns of a chat, without and with the turn of an answer."""
        turns = [{"role": role, "content": text} for role, text in prompt.turns]
        if prompt.system:
            turns.insert(0, {"role": "system", "content": prompt.system})
        return turns, [*turns, {"role": "assistant", "content": ANSWER}]

    def joined(self, turns: Sequence[Turn], *, is_asked: bool = False) -> str:
        """Turns in the model's form; one that refuses them or ignores a system prompt raises."""
        system = turns[0]["content"] if turns[0]["role"] == "system" else ""
        options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": is_asked}
        template = getattr(self.tokenizer, "chat_template", None)
        if isinstance(template, str) and "strftime_now" in template:
            options["chat_template"] = TODAY + template
        try:
            chat, problem = str(self.tokenizer.apply_chat_template(turns, **options)), ""
            if is_asked and system.strip() not in chat:  # a switch such as /no_think is read, too
                without = self.tokenizer.apply_chat_template(turns[1:], **options)
                problem = "ignores a system prompt" * (without == chat)
        except (TemplateError, *OF_TEMPLATES) as error:
            kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
            what = "a system prompt" if system else "the prompt"
            problem = f"refuses {what}: {kind}{error}"
        if problem:
            todo = "Write its text into the template, before {question}." if system else ""
            raise ConsilienceError(f"the chat template of '{self.name}' {problem}", todo=todo)
        return chat

    def encode(self, prompt: Prompt) -> tuple[list[int], list[list[int]]]:
        """The token ids of a prompt, of any length, and those of each of its answers.

        The prompt is what all texts of prompt and answer begin with, an answer what follows. A text
        is complete with the token that ends a turn. A label is not, and in plain text nothing is,
        unless the ids of one answer begin another's (``1`` and ``10``): then all answers of the
        prompt are scored with what ends them.
        """
        start = [] if self.is_chat(prompt) else self.beginning
        texts, after = self.texts(prompt)
        prompt_ids, *whole = ([*start, *ids] for ids in self.ids(texts))
        columns = zip(prompt_ids, *whole, strict=False)
        common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        shared = min(common, *(len(ids) - 1 for ids in whole))
        targets = [ids[shared:] for ids in whole]
        if begins_another(targets) or (prompt.is_chat and not prompt.are_labels):
            ends = self.following(after) if after else []
            last = next((token for token in ends if token in self.ends), None)
            end = [last] if last is not None else ends[:1] or list(self.ends[:1])
            targets = [[*ids, *end] for ids in targets]
        return whole[0][:shared], targets

    def texts(self, prompt: Prompt) -> tuple[list[str], str]:
        """The text of a prompt and those of the prompt with each answer; what ends an answer."""
        before, after = self.around(prompt)
        stem = before.rstrip(" ")
        gap = before[len(stem) :] or ("" if prompt.is_chat or stem.endswith("\n") else " ")
        return [stem, *(stem + gap + answer for answer in prompt.answers)], after

    def refused(self, prompt: Prompt, answers: Sequence[str] = ()) -> str | None:
        """Why the texts of a prompt and its answers cannot be read; None where they can."""
        if prompt.is_chat and not self.has_template:
            return "the model has no chat template"
        return self.special_in([*(text for _, text in prompt.turns), prompt.system, *answers])

    def special_in(self, texts: Sequence[str]) -> str | None:
        """Why the first text with a special token cannot be read; None where none has one."""
        for text in texts:
            if token := next((one for one in self._special if one in text), None):
                return f"has the special token '{token}' in it"
        return None

    @cached_property
    def _special(self) -> list[str]:
        """The special tokens, also those that have no name, as those of a turn often have none."""
        added = self.tokenizer.added_tokens_decoder.values()
        of_turns = (str(token.content) for token in added if token.special)
        return [*dict.fromkeys([*self.tokenizer.all_special_tokens, *of_turns])]


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
        if self.tokens is None or not self.is_chat:
            text = turns[0]["content"] + self.reply
            return text if self.tokens is None else text.rstrip(" ")
        return self.tokens.joined(turns, is_asked=True) + self.reply
