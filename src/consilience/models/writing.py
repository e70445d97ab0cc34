"""Language models that write: answers to prompts, and the labels of sentence pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError
from consilience.core.items import Form, Task, as_string
from consilience.core.presentation import Prompt
from consilience.models.candidates import log_softmax
from consilience.models.classifier import Encoded, fit
from consilience.models.forward import Floats, Ints
from consilience.models.loading import Pretrained
from consilience.models.prompt_reader import CONTINUATIONS, Manner, PromptReader, Replies
from consilience.models.prompt_tokens import LONGEST_LABEL, REPLY, TEMPLATES, filled
from consilience.models.prompted import OptionScorer
from consilience.models.steering import TokenNoise
from consilience.types import Scores

MOST_WRITTEN = 32
"""Tokens that a model may write unless another number is given."""


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

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The token ids that an answer follows, of any length."""
        if not self.continuation.shares_context:
            return list(self.tokenizer(self.text(prompt), verbose=False)["input_ids"])
        return self.tokens.prompt_ids(prompt)

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""
        return [self._why_not(prompt) for prompt in prompts]

    def _why_not(self, prompt: Prompt) -> str | None:
        tokens = len(self.prompt_ids(prompt))
        if tokens > self.longest:
            return f"{tokens} tokens, and the model takes {self.longest}"
        return self.tokens.refused(prompt)

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of prompts, and what the model writes after them.

        ``samples``: the number of the sample of each prompt. A sample depends on the token ids of
        its prompt, its number and the seed, and on no other prompt. At temperature 0 all samples
        are the same.
        """
        ids = [self.prompt_ids(prompt) for prompt in prompts]
        manners = [
            Manner(
                TokenNoise.of(of_prompt, sample, self.seed, self.temperature)
                if self.temperature
                else None,
                is_one_line=not prompt.is_chat,
            )
            for prompt, of_prompt, sample in zip(prompts, ids, samples, strict=True)
        ]
        for rows, replies in self.replies(ids, [[]] * len(ids), manners):
            yield rows, replies.texts


class LabelWriter(PromptReader):
    """A sequence-to-sequence or causal language model that is asked for a label in words."""

    def __init__(
        self,
        loaded: Pretrained,
        task: Task,
        template: str | None,
        longest: int = 0,
    ) -> None:
        """A writer for one task.

        ``template``: a text with ``{text}`` and, if wanted, ``{labels}``, ``{first}`` and
        ``{second}`` (the indicators), and ``{reply}`` before the beginning of the reply; None for
        T5's form, or for ours. ``longest``: tokens of a prompt, 0 for as many as the model takes.
        """
        if loaded.kind not in CONTINUATIONS:
            raise ConsilienceError(
                f"'{loaded.identity['model']}' does not write text",
                expected="a sequence-to-sequence or causal language model",
                todo="Fine-tune it with `consilience finetune`, and leave --generate out.",
            )
        super().__init__(loaded, most_written=LONGEST_LABEL, longest=longest)
        if template is None and not self.continuation.has_own_form:
            template = TEMPLATES[task.kind]
        self.labels = task.labels
        self.template = None if template is None else filled(template, task)
        self.lead = f"{task.name} "
        self.reply = (self.template or "").partition(REPLY)[2]
        self.targets = [
            self.continuation.target(label, self.ends, self.reply) for label in task.labels
        ]
        self.identity = self.identity | {
            "template": self.template,
            "chat": self.continuation.is_chat,
            "longest": self.longest,
        }
        self._totals: dict[str, Floats] = {}

    def prompt(self, form: Form) -> str:
        """The text that the model reads."""
        text = as_string(form)
        if self.template is None:
            return self.lead + text
        before, after = self.template.split("{text}")
        question, _, reply = after.partition(REPLY)
        prompt = before + text + question
        if not self.continuation.is_chat:
            return prompt + reply
        turn = [{"role": "user", "content": prompt.rstrip("\n") if reply else prompt}]
        chat: Any = self.tokenizer.apply_chat_template(
            turn, add_generation_prompt=True, tokenize=False
        )
        return str(chat) + reply

    def encode(self, forms: Sequence[Form]) -> list[Encoded]:
        """The ids of each prompt, of any length."""
        if not forms:
            return []
        encoded: Any = self.tokenizer(
            [self.prompt(form) for form in forms],
            add_special_tokens=not self.continuation.is_chat,
            truncation=False,
            padding=False,
            verbose=False,
        )
        return [{"input_ids": list(ids)} for ids in encoded["input_ids"]]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """All variants of one item, truncated so that each fits (``classifier.fit``)."""
        return fit(forms, self.encode, self.tokenizer, self.longest)

    def why_not(self, form: Form) -> str | None:
        """Why the model cannot read a form; None if it can."""
        for token in self.tokenizer.all_special_tokens:
            if any(token in segment.sentence for segment in form):
                return f"has the special token '{token}' in it"
        return None

    def write(self, forms: Sequence[Form]) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of forms, and what the model writes after them, most probable token by token.

        Up to its end token or ``MOST_WRITTEN``; other special tokens remain. The labels are scored
        in the same pass: ``score`` then has nothing to compute.
        """
        for rows, answers in self._answer(forms, writes=True):
            for row, totals in zip(rows, answers.totals, strict=True):
                self._totals[self.prompt(forms[row])] = totals
            yield rows, answers.texts

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the labels for each form, normalised over the labels.

        A label's score is that of all its tokens and of the end token after them, if the model
        ends its answers with one (T5's form and chats).
        """
        totals = [self._totals.get(self.prompt(form)) for form in forms]
        known = np.array([row for row, total in enumerate(totals) if total is not None], dtype=int)
        if len(known):
            yield self._scores(known, np.array([totals[row] for row in known]))
        rest = np.setdiff1d(np.arange(len(forms)), known)
        for rows, answers in self._answer([forms[row] for row in rest], writes=False):
            yield self._scores(rest[rows], np.array(answers.totals))

    def forget(self) -> None:
        """Compute scores anew that ``write`` computed."""
        self._totals.clear()

    def _scores(self, rows: Ints, totals: Floats) -> Scores:
        return Scores(rows, self.labels, log_softmax(totals), totals=totals)

    def _answer(self, forms: Sequence[Form], *, writes: bool) -> Iterator[tuple[Ints, Replies]]:
        """Positions of forms, with their answers; ``writes``: also what the model writes."""
        prompts = [encoded["input_ids"] for encoded in self.encode(forms)]
        yield from self.replies(
            prompts, [self.targets] * len(prompts), [Manner()] * len(prompts) if writes else []
        )
