"""Language models that answer with the word of a label (CALUM, Sections 4.3 and 5.1.5).

T5 reads its own multi-task text form; any other model reads a template, as a turn of a chat if its
tokenizer has a chat template. ``write`` returns what it writes freely, ``score`` makes it choose.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from consilience.errors import ConsilienceError
from consilience.models.batches import (
    equal_length_batches,
    halving,
    log_softmax,
    side_by_side,
    workers_on,
)
from consilience.models.continuations import CONTINUATIONS, end_tokens, greedy
from consilience.models.fast import (
    Prompts,
    TreeScorer,
    reproducibly,
    room_for_tokens,
    tree_scorer,
)
from consilience.models.forward import Floats, Ints, logits_of
from consilience.models.loading import Pretrained
from consilience.models.masked import positions
from consilience.models.pair_input import Encoded, as_string, fit
from consilience.models.scoring import ReadyModel, settle_rows
from consilience.sentence_pairs import Form, Task, TaskKind
from consilience.types import Scores

MOST_WRITTEN = 20
"""Tokens that a model may write; no label of the tasks has half as many."""

MOST_PROMPTS = {"cpu": 64, "cuda": 512}
"""Prompts that are read and continued in parallel, at most, by the type of the device."""

TEMPLATES: Mapping[TaskKind, str] = {
    "NLI": "{text}\n\nHow does {second} relate to {first}? Answer with one of these labels and "
    "nothing else: {labels}.",
    "STS": "{text}\n\nHow do {first} and {second} relate? Answer with one of these labels and "
    "nothing else: {labels}.",
}
"""The template for a model without a form of its own, if none is given; ours."""


@dataclass(frozen=True, slots=True)
class _Answers:
    """The answers to some prompts."""

    totals: Floats
    """(prompt, label) Log-probabilities of the labels."""
    texts: list[str]
    """What was written after each prompt."""


class LabelWriter(ReadyModel):
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
        ``{second}`` (the indicators); None for T5's form, or for ours. ``longest``: tokens of a
        prompt, 0 for as many as the model takes.
        """
        if loaded.kind not in CONTINUATIONS:
            raise ConsilienceError(
                f"'{loaded.identity['model']}' does not write text",
                expected="a sequence-to-sequence or causal language model",
                todo="Fine-tune it with `consilience finetune`, and leave --generate out.",
            )
        super().__init__(loaded)
        self.continuation = CONTINUATIONS[loaded.kind](self.model, self.tokenizer)
        if template is None and not self.continuation.has_own_form:
            template = TEMPLATES[task.kind]
        self.labels = task.labels
        self.template = None if template is None else _filled(template, task)
        self.lead = f"{task.name} "
        self.longest = self._check_longest(longest)
        self.ends = end_tokens(self.model, self.tokenizer)
        self.targets = [self.continuation.target(label, self.ends) for label in task.labels]
        self._more = max(MOST_WRITTEN, *map(len, self.targets))
        self.identity = self.identity | {
            "template": self.template,
            "chat": self.continuation.is_chat,
            "longest": self.longest,
        }
        self.model.generation_config = greedy(self.model, self.ends, MOST_WRITTEN)
        self._tree_scorer = None
        if self.continuation.shares_context:
            self._tree_scorer = tree_scorer(loaded.model, loaded.identity, 0, self.budget)
        self._totals: dict[str, Floats] = {}

    def _check_longest(self, longest: int) -> int:
        most = min(self.tokenizer.model_max_length, positions(self.model))
        most -= MOST_WRITTEN if self.continuation.shares_context else 0
        if longest > most:
            raise ConsilienceError(
                f"--max-length {longest}",
                expected=f"at most the model's {most}, and {MOST_WRITTEN} that it may write",
            )
        return longest or most

    def prompt(self, form: Form) -> str:
        """The text that the model reads."""
        text = as_string(form)
        if self.template is None:
            return self.lead + text
        before, after = self.template.split("{text}")
        prompt = before + text + after
        if not self.continuation.is_chat:
            return prompt
        turn = [{"role": "user", "content": prompt}]
        chat: Any = self.tokenizer.apply_chat_template(
            turn, add_generation_prompt=True, tokenize=False
        )
        return str(chat)

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
            yield self._scores(rest[rows], answers.totals)

    def _scores(self, rows: Ints, totals: Floats) -> Scores:
        return Scores(rows, self.labels, log_softmax(totals), totals=totals)

    def _answer(self, forms: Sequence[Form], *, writes: bool) -> Iterator[tuple[Ints, _Answers]]:
        """Positions of forms, with their answers; ``writes``: also what the model writes."""
        prompts = [encoded["input_ids"] for encoded in self.encode(forms)]
        lengths = [len(ids) for ids in prompts]

        def work(rows: Ints) -> _Answers:
            chosen = [prompts[row] for row in rows]

            def alone(row: int) -> Floats:
                totals: Floats = self._in_batches([chosen[row]], writes=False).totals[0]
                return totals

            answers = None
            if self._tree_scorer is not None:
                with suppress(NotImplementedError):  # longer than a window of attention
                    answers = self._in_a_tree(chosen, self._tree_scorer, writes=writes)
            answers = answers or self._in_batches(chosen, writes=writes)
            settle_rows(answers.totals, self.tie, alone)
            return answers

        if self._tree_scorer is None:
            batches = equal_length_batches(lengths, self.budget)
        else:
            batches = self._chunks(lengths)
        yield from side_by_side(work, batches, self.model.device)

    def _chunks(self, lengths: Sequence[int]) -> Iterator[Ints]:
        """Neighbours that are read in one tree: equal work for each thread, within the memory."""
        if not lengths:
            return
        most = MOST_PROMPTS.get(self.model.device.type, MOST_PROMPTS["cpu"])
        tokens = np.cumsum(np.array(lengths) + self._more)
        workers, room = workers_on(self.model.device), room_for_tokens(self.model)
        parts = workers * math.ceil(max(len(lengths) / most, tokens[-1] / room) / workers)
        ends = np.searchsorted(tokens, tokens[-1] * np.arange(1, parts) / parts)
        yield from filter(len, np.split(np.arange(len(lengths)), ends))

    def _in_a_tree(
        self, prompts: Sequence[list[int]], scorer: TreeScorer, *, writes: bool
    ) -> _Answers:
        """Answers to prompts that are read once, those of all lengths in parallel."""
        read = Prompts(self.model, scorer.head, prompts, self.budget, self._more)
        answers = _Answers(read.score(self.targets), [])
        if writes:

            @torch.inference_mode()
            def most_probable(row: int, written: list[int]) -> int:
                with reproducibly():
                    return int(logits_of(self.model, [[*prompts[row], *written]])[0, -1].argmax())

            stops = {*self.ends, self.tokenizer.pad_token_id} - {None}
            written = read.write(MOST_WRITTEN, stops, most_probable, self.tie)
            answers.texts.extend(self._text(ids) for ids in written)
        return answers

    def _in_batches(self, prompts: Sequence[list[int]], *, writes: bool) -> _Answers:
        """Answers to prompts in batches of one length."""
        answers = _Answers(np.empty((len(prompts), len(self.labels))), [""] * len(prompts))
        lengths = [len(ids) for ids in prompts]

        @torch.inference_mode()
        def work(rows: Ints) -> None:
            ids = torch.tensor([prompts[row] for row in rows], device=self.model.device)
            encoded = self.continuation.encode(ids)
            answers.totals[rows] = self.continuation.totals(ids, encoded, self.targets)
            if writes:
                for row, written in zip(rows, self.continuation.write(ids, encoded), strict=True):
                    answers.texts[row] = self._text(written)

        for batch in equal_length_batches(lengths, self.budget):
            halving(work, batch, lengths[batch[0]], self.budget)
        return answers

    def _text(self, ids: list[int]) -> str:
        """What was written, up to the first end token."""
        ends = {*self.ends, self.tokenizer.pad_token_id}
        end = next((at for at, token in enumerate(ids) if token in ends), len(ids))
        return str(self.tokenizer.decode(ids[:end], skip_special_tokens=False)).strip()


def _filled(template: str, task: Task) -> str:
    """A template with the labels and the indicators of the task in it."""
    if template.count("{text}") != 1:
        raise ConsilienceError(
            f"the template '{template}'", expected="exactly one {text}, where the pair stands"
        )
    names = {"labels": ", ".join(task.labels)}
    names |= dict(zip(("first", "second"), task.indicators, strict=True))
    for name, value in names.items():
        template = template.replace("{" + name + "}", value)
    return template
