"""Language models that answer with the word of a label (CALUM, Sections 4.3 and 5.1.5).

T5 reads its own multi-task text form; any other model reads a template, as a turn of a chat if its
tokenizer has a chat template. ``write`` returns what it writes freely, ``score`` makes it choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError
from consilience.models.candidates import log_softmax
from consilience.models.classifier import Encoded, fit
from consilience.models.forward import Floats, Ints
from consilience.models.label_prompts import MOST_WRITTEN, REPLY, TEMPLATES, filled
from consilience.models.loading import Pretrained
from consilience.models.prompt_reader import CONTINUATIONS, Manner, PromptReader, Replies
from consilience.sentence_pairs import Form, Task, as_string
from consilience.types import Scores


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
        super().__init__(loaded, most_written=MOST_WRITTEN, longest=longest)
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
        """All variants of one item, truncated so that each fits (``pair_input.fit``)."""
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
