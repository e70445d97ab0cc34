"""Language models that answer prompts: scores of options, written answers, labels in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.core.items import Floats, Form, Ints, Task, as_string
from consilience.core.presentation import Prompt
from consilience.models.classifier import Encoded, fit
from consilience.models.fast import reproducibly
from consilience.models.loading import Pretrained
from consilience.models.prompt_reader import Manner, Parts, PromptReader
from consilience.models.prompt_tokens import (
    LONGEST_LABEL,
    MOST_WRITTEN,
    TEMPLATES,
    LabelPrompts,
    begins_another,
)
from consilience.models.steering import TokenNoise


class OptionScorer(PromptReader):
    """A model that scores what a prompt may be answered with (``asking/questions.py``)."""

    def __init__(self, loaded: Pretrained, *, most_written: int = 0, longest: int = 0) -> None:
        """``longest``: tokens of a prompt with its answer, 0 for as many as the model takes."""
        super().__init__(loaded, most_written=most_written, longest=longest)
        self._encoded: dict[Prompt, Parts] = {}

    def text(self, shown: Prompt) -> str:
        """What the model reads before an answer: a chat in its own form, or the text itself."""
        return self.tokens.around(shown)[0]

    def encode(self, prompt: Prompt) -> Parts:
        """The token ids of a prompt, of any length, and those of each of its answers.

        The ids of an answer are those that follow the prompt's where both are tokenised as one
        text, so ``Answer:`` is followed by `` A`` (``PromptTokens.encode``). A text is complete
        with the token that ends a turn or, of a sequence-to-sequence model, the sequence.
        """
        if prompt not in self._encoded:
            self._encoded[prompt] = self._parts(prompt)
        return self._encoded[prompt]

    def _parts(self, prompt: Prompt) -> Parts:
        if self.continuation.shares_context:
            return self.tokens.encode(prompt)
        targets = self.tokens.ids(list(prompt.answers))
        if not prompt.are_labels or begins_another(targets):
            targets = [[*ids, *self.ends[:1]] for ids in targets]
        return self.prompt_ids(prompt), targets

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The token ids that a written answer follows, of any length."""
        if self.continuation.shares_context:
            return self.tokens.prompt_ids(prompt)
        return list(self.tokenizer(self.text(prompt), verbose=False)["input_ids"])

    def parts(self, shown: Sequence[Prompt]) -> list[Parts]:
        encoded = [self.encode(prompt) for prompt in shown]
        self._encoded.clear()
        return encoded

    def why_not(self, shown: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        return [self._why_not(prompt) for prompt in shown]

    def _why_not(self, prompt: Prompt) -> str | None:
        if reason := self.tokens.refused(prompt, prompt.answers):
            return reason
        ids, targets = self.encode(prompt)
        if len({tuple(target) for target in targets}) < len(targets):
            return "two options have the same tokens"
        more = max(map(len, targets), default=1) - 1 if self.continuation.shares_context else 0
        return self.too_long(len(ids) + more)

    def score_alone(self, prompt: Prompt) -> Floats:
        """Log-probabilities (answer,) in nats, of a prompt in passes of its own."""
        with reproducibly():
            return self._alone(*self.encode(prompt))


class AnswerWriter(OptionScorer):
    """A causal or sequence-to-sequence model that writes an answer to each prompt.

    The answer ends at an end token, after ``most_written`` tokens and, where the prompt is no chat,
    at the end of its first line: what a model without turns writes next is another question.
    """

    def __init__(
        self,
        loaded: Pretrained,
        *,
        most_written: int = MOST_WRITTEN,
        longest: int = 0,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        """``temperature``: 0 writes the most probable token each time, others sample tokens.

        Tokens are sampled from the whole distribution, its logits divided by the temperature, by
        ``seed``. ``longest``: tokens of a prompt, 0 for as many as the model takes.
        """
        if temperature < 0:
            raise ConsilienceError(
                f"--temperature {temperature:g}", expected="0 (no sampling) or more, such as 0.7"
            )
        super().__init__(loaded, most_written=most_written, longest=longest)
        self.temperature, self.seed = temperature, seed
        self.identity = self.identity | {"max_new_tokens": most_written, "temperature": temperature}
        if temperature:
            self.identity["sampling_seed"] = seed

    def _why_not(self, prompt: Prompt) -> str | None:
        return self.too_long(len(self.prompt_ids(prompt))) or self.tokens.refused(prompt)

    def write(
        self, shown: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of prompts, and what the model writes after them.

        ``samples``: the number of the sample of each prompt. A sample depends on the token ids of
        its prompt, its number and the seed, and on no other prompt. At temperature 0 all samples
        are the same.
        """
        parts: list[Parts] = [(self.prompt_ids(prompt), []) for prompt in shown]
        manners = [Manner(is_one_line=not prompt.is_chat) for prompt in shown]
        if self.temperature:
            manners = [
                Manner(TokenNoise.of(ids, sample, self.seed, self.temperature), manner.is_one_line)
                for manner, (ids, _), sample in zip(manners, parts, samples, strict=True)
            ]
        for rows, replies in self.replies(parts, manners):
            yield rows, replies.texts


class LabelWriter(PromptReader):
    """A sequence-to-sequence or causal language model that is asked for a label in words.

    A label's score is that of all its tokens and of the end token after them, if the model ends its
    answers with one (T5's form and chats).
    """

    refusal = (
        "does not write text",
        "Fine-tune it with `consilience finetune`, and leave --generate out.",
    )

    def __init__(
        self, loaded: Pretrained, task: Task, template: str | None, longest: int = 0
    ) -> None:
        """A writer for one task.

        ``template``: a text with ``{text}`` and, if wanted, ``{labels}``, ``{first}`` and
        ``{second}`` (the indicators), and ``{reply}`` before the beginning of the reply; None for
        T5's form, or for ours. ``longest``: tokens of a prompt, 0 for as many as the model takes.
        """
        super().__init__(loaded, most_written=LONGEST_LABEL, longest=longest)
        is_causal, self.prompts = self.continuation.shares_context, None
        if template is not None or is_causal:
            text = TEMPLATES[task.kind] if template is None else template
            self.prompts = LabelPrompts(text, task, self.tokens if is_causal else None)
        self.is_chat = self.prompts is not None and self.prompts.is_chat
        self.template = self.prompts and self.prompts.template
        self.labels, self.lead = task.labels, f"{task.name} "
        self.targets: list[list[int]] = [
            self.tokens.label_target(label, self.prompts.reply)
            if self.prompts and is_causal
            else list(self.tokenizer(label)["input_ids"])
            for label in task.labels
        ]
        self.identity = self.identity | {
            "template": self.template,
            "chat": self.is_chat,
            "longest": self.longest,
        }

    def text(self, shown: Form) -> str:
        """What the model reads; without a template the form that T5 was trained on."""
        return self.prompts.text(shown) if self.prompts else self.lead + as_string(shown)

    def encode(self, forms: Sequence[Form]) -> list[Encoded]:
        """The ids of each prompt, of any length."""
        if not forms:
            return []
        encoded: Any = self.tokenizer(
            [self.text(form) for form in forms],
            add_special_tokens=not self.is_chat,
            truncation=False,
            padding=False,
            verbose=False,
        )
        return [{"input_ids": list(ids)} for ids in encoded["input_ids"]]

    def parts(self, shown: Sequence[Form]) -> list[Parts]:
        return [(one["input_ids"], self.targets) for one in self.encode(shown)]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """All variants of one item, truncated so that each fits (``classifier.fit``)."""
        return fit(forms, self.encode, self.tokenizer, self.longest)

    def why_not(self, shown: Sequence[Form]) -> list[str | None]:
        """Why the model cannot read each form; None if it can."""
        texts = ("\n".join(segment.sentence for segment in form) for form in shown)
        tokens = map(self.tokens.special_in, texts)
        return [token and f"has the special token '{token}' in it" for token in tokens]

    def write(
        self, shown: Sequence[Form], samples: Sequence[int] = ()
    ) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of forms, and what the model writes after them, most probable token by token.

        Up to its end token or ``LONGEST_LABEL`` tokens; other special tokens remain. The labels are
        scored in the same pass, and ``score`` has nothing to compute the next time.
        """
        parts = self.parts(shown)
        for rows, replies in self.replies(parts, [Manner()] * len(parts)):
            for row, totals in zip(rows, replies.totals, strict=True):
                self.read_before[tuple(parts[row][0])] = totals
            yield rows, replies.texts
