"""Language models that answer with the word of a label (CALUM, Sections 4.3 and 5.1.5).

T5 reads its own multi-task text form; any other model reads a template, as a turn of a chat where
its tokenizer has a chat template. ``write`` lets it say what it likes, ``score`` has it choose.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import GenerationConfig

from consilience.errors import ConsilienceError
from consilience.models.batches import (
    NEAR_TIE,
    Budget,
    equal_length_batches,
    halving,
    log_softmax,
    margins,
    side_by_side,
    workers_on,
)
from consilience.models.kernels import near_tie, pack_linears
from consilience.models.loading import Pretrained
from consilience.models.masked import positions
from consilience.models.pair_input import Encoded, as_string, fit
from consilience.models.planted import Head, logits_of, plant_tree, room_for_tokens
from consilience.models.prompts import Prompts
from consilience.types import Form, Scores, Task, TaskKind

MOST_WRITTEN = 20
"""Tokens that a model may write; no label of the tasks has half as many."""

MOST_PROMPTS = {"cpu": 64, "cuda": 512}
"""Prompts that are read and continued side by side, at most, by the type of the device."""

TEMPLATES: Mapping[TaskKind, str] = {
    "NLI": "{text}\n\nHow does {second} relate to {first}? Answer with one of these labels and "
    "nothing else: {labels}.",
    "STS": "{text}\n\nHow do {first} and {second} relate? Answer with one of these labels and "
    "nothing else: {labels}.",
}
"""What a model that is not T5 is asked where no template is given; ours."""


@dataclass(frozen=True, slots=True)
class _Answers:
    """Of some prompts: scores of the labels (prompt, label), and what was written."""

    totals: npt.NDArray[np.float64]
    texts: list[str]


class LabelWriter:
    """A sequence-to-sequence or causal language model that is asked for a label in words.

    ``template``: a text with ``{text}`` and, if wanted, ``{labels}``, ``{first}`` and ``{second}``
    (the indicators); None for T5's form, and for a question of ours to a causal model.
    """

    def __init__(
        self,
        loaded: Pretrained,
        task: Task,
        template: str | None,
        longest: int = 0,
    ) -> None:
        if loaded.kind == "masked":
            raise ConsilienceError(
                f"'{loaded.identity['model']}' does not write text",
                expected="a sequence-to-sequence or causal language model",
                todo="Fine-tune it with `consilience finetune`, and leave --generate out.",
            )
        self.model, self.tokenizer, self.kind = loaded.model.eval(), loaded.tokenizer, loaded.kind
        if template is None and loaded.kind == "causal":
            template = TEMPLATES[task.kind]
        if template is not None and template.count("{text}") != 1:
            raise ConsilienceError(
                f"the template '{template}'", expected="exactly one {text}, where the pair stands"
            )
        self.labels = task.labels
        self.template = None
        if template is not None:
            names = {"labels": ", ".join(task.labels)}
            names |= dict(zip(("first", "second"), task.indicators, strict=True))
            for name, value in names.items():
                template = template.replace("{" + name + "}", value)
            self.template = template
        self.lead = f"{task.name} "
        self.chat = self.kind == "causal" and bool(getattr(self.tokenizer, "chat_template", None))
        most = min(self.tokenizer.model_max_length, positions(self.model))
        most -= MOST_WRITTEN if self.kind == "causal" else 0
        if longest > most:
            raise ConsilienceError(
                f"--max-length {longest}",
                expected=f"at most the model's {most}, and {MOST_WRITTEN} that it may write",
            )
        self.longest = longest or most
        self.ends = self._ends()
        self.targets = [self._target(label) for label in task.labels]
        self._more = max(MOST_WRITTEN, *map(len, self.targets))
        self.identity = loaded.identity | {
            "template": self.template,
            "chat": self.chat,
            "longest": self.longest,
        }
        self.notes: list[str] = []
        self.model.generation_config = self._plainly()
        self.products = pack_linears(loaded.model, head=True)
        self.budget = Budget.of(loaded.model)
        self._head = None
        if self.kind == "causal":
            self._head = plant_tree(loaded.model, loaded.identity, 0, self.budget)
        self._scored: dict[str, npt.NDArray[np.float64]] = {}

    def prompt(self, form: Form) -> str:
        """What the model reads."""
        text = as_string(form)
        if self.template is None:
            return self.lead + text
        before, after = self.template.split("{text}")
        prompt = before + text + after
        if not self.chat:
            return prompt
        turn = [{"role": "user", "content": prompt}]
        said: Any = self.tokenizer.apply_chat_template(
            turn, add_generation_prompt=True, tokenize=False
        )
        return str(said)

    def encode(self, forms: Sequence[Form]) -> list[Encoded]:
        """The ids of each prompt, however long."""
        if not forms:
            return []
        found: Any = self.tokenizer(
            [self.prompt(form) for form in forms],
            add_special_tokens=not self.chat,
            truncation=False,
            padding=False,
            verbose=False,
        )
        return [{"input_ids": list(ids)} for ids in found["input_ids"]]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """All variants of one item, truncated so that each fits (``pair_input.fit``)."""
        return fit(forms, self.encode, self.tokenizer, self.longest)

    def why_not(self, form: Form) -> str | None:
        """Why a form cannot be asked; None where it can."""
        for token in self.tokenizer.all_special_tokens:
            if any(token in segment.sentence for segment in form):
                return f"has the special token '{token}' in it"
        return None

    def write(self, forms: Sequence[Form]) -> Iterator[tuple[npt.NDArray[np.int64], list[str]]]:
        """What the model writes behind each form, the likeliest token each time, with their places.

        Up to its end token or ``MOST_WRITTEN``; other special tokens are kept. The prompts are read
        for the labels too: ``score`` then has nothing to read.
        """
        for places, answers in self._ask(forms, writes=True):
            for at, total in zip(places, answers.totals, strict=True):
                self._scored[self.prompt(forms[at])] = total
            yield places, answers.texts

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the labels for each form, normalised over the labels.

        A label's score is that of all its tokens and of the end token behind them, where the model
        ends its answers with one (T5's form and chats).
        """
        scored = [self._scored.get(self.prompt(form)) for form in forms]
        known = np.array([at for at, total in enumerate(scored) if total is not None], dtype=int)
        if len(known):
            yield self._scores(known, np.array([scored[at] for at in known]))
        rest = np.setdiff1d(np.arange(len(forms)), known)
        for places, answers in self._ask([forms[at] for at in rest], writes=False):
            yield self._scores(rest[places], answers.totals)

    def _scores(self, places: npt.NDArray[np.int64], totals: npt.NDArray[np.float64]) -> Scores:
        return Scores(places, self.labels, log_softmax(totals), totals=totals)

    def _ask(
        self, forms: Sequence[Form], *, writes: bool
    ) -> Iterator[tuple[npt.NDArray[np.int64], _Answers]]:
        """Scores of the labels for each form and, if asked for, what the model writes."""
        prompts = [each["input_ids"] for each in self.encode(forms)]
        lengths = [len(ids) for ids in prompts]

        def work(places: npt.NDArray[np.int64]) -> _Answers:
            chosen = [prompts[at] for at in places]
            answers = None
            if self._head is not None:
                with suppress(NotImplementedError):  # longer than a window of attention
                    answers = self._in_a_tree(chosen, self._head, writes=writes)
            answers = answers or self._in_batches(chosen, writes=writes)
            for at in np.flatnonzero(margins(answers.totals) < NEAR_TIE[self.model.dtype]):
                with near_tie():
                    answers.totals[at] = self._alone(chosen[at])
            return answers

        if self._head is None:
            items = equal_length_batches(lengths, self.budget)
        else:
            items = self._chunks(lengths)
        yield from side_by_side(work, items, self.model.device)

    def _chunks(self, lengths: Sequence[int]) -> Iterator[npt.NDArray[np.int64]]:
        """Neighbours that are read in one tree: as much work for each thread, within the memory."""
        if not lengths:
            return
        most = MOST_PROMPTS.get(self.model.device.type, MOST_PROMPTS["cpu"])
        tokens = np.cumsum(np.array(lengths) + self._more)
        workers, room = workers_on(self.model.device), room_for_tokens(self.model)
        parts = workers * math.ceil(max(len(lengths) / most, tokens[-1] / room) / workers)
        ends = np.searchsorted(tokens, tokens[-1] * np.arange(1, parts) / parts)
        yield from filter(len, np.split(np.arange(len(lengths)), ends))

    def _in_a_tree(self, prompts: Sequence[list[int]], head: Head, *, writes: bool) -> _Answers:
        """Answers behind prompts that are read once, those of all lengths side by side."""
        read = Prompts(self.model, head, prompts, self.budget, self._more)
        answers = _Answers(read.score(self.targets), [])
        if writes:

            @torch.inference_mode()
            def likeliest(row: int, written: list[int]) -> int:
                with near_tie():
                    return int(logits_of(self.model, [[*prompts[row], *written]])[0, -1].argmax())

            stops = {*self.ends, self.tokenizer.pad_token_id} - {None}
            near = NEAR_TIE[self.model.dtype]
            written = read.write(MOST_WRITTEN, stops, likeliest, near)
            answers.texts.extend(self._text(ids) for ids in written)
        return answers

    def _in_batches(self, prompts: Sequence[list[int]], *, writes: bool) -> _Answers:
        """Answers behind prompts in batches of one length."""
        answers = _Answers(np.empty((len(prompts), len(self.labels))), [""] * len(prompts))
        lengths = [len(ids) for ids in prompts]

        @torch.inference_mode()
        def work(rows: npt.NDArray[np.int64]) -> None:
            ids = torch.tensor([prompts[at] for at in rows], device=self.model.device)
            read = self._encoded(ids)
            answers.totals[rows] = self._totals(ids, read)
            if writes:
                given: dict[str, Any] = {"encoder_outputs": read} if read else {"input_ids": ids}
                found: Any = self.model.generate(**given, attention_mask=torch.ones_like(ids))
                begin = 1 if read else ids.shape[1]
                for row, written in zip(rows, found, strict=True):
                    answers.texts[row] = self._text(written[begin:].tolist())

        for batch in equal_length_batches(lengths, self.budget):
            halving(work, batch, lengths[batch[0]], self.budget)
        return answers

    @torch.inference_mode()
    def _alone(self, prompt: list[int]) -> npt.NDArray[np.float64]:
        """Log-probability (label,) of the labels behind one prompt."""
        ids = torch.tensor([prompt], device=self.model.device)
        totals: npt.NDArray[np.float64] = self._totals(ids, self._encoded(ids))[0]
        return totals

    def _encoded(self, ids: torch.Tensor) -> Any:
        """What a sequence-to-sequence model's encoder makes of prompts; None of any other."""
        if self.kind != "seq2seq":
            return None
        encoder: Any = self.model.get_encoder()
        return encoder(input_ids=ids, attention_mask=torch.ones_like(ids))

    def _totals(self, ids: torch.Tensor, read: Any) -> npt.NDArray[np.float64]:
        """Log-probability (row, label) of each label behind each prompt.

        ``read``: what a sequence-to-sequence model's encoder made of the prompts.
        """
        model: Any = self.model
        found = []
        if read is not None:
            start = model.config.decoder_start_token_id
            for target in self.targets:
                given = torch.tensor([[start, *target[:-1]]], device=ids.device)
                logits = model(
                    encoder_outputs=read,
                    attention_mask=torch.ones_like(ids),
                    decoder_input_ids=given.expand(len(ids), -1),
                ).logits
                found.append(_sum(logits, target))
        else:
            first = model(input_ids=ids, use_cache=True, logits_to_keep=1)
            cache = getattr(first, "past_key_values", None)
            for target in self.targets:
                logits = first.logits
                if len(target) > 1:
                    given = torch.tensor([target[:-1]], device=ids.device).expand(len(ids), -1)
                    if cache is None:  # Mamba and its like keep another one
                        whole = torch.cat([ids, given], dim=1)
                        logits = model(input_ids=whole, use_cache=False).logits
                        logits = logits[:, ids.shape[1] - 1 :]
                    else:  # not all caches can be cut back
                        more = model(input_ids=given, past_key_values=copy.deepcopy(cache))
                        logits = torch.cat([logits, more.logits], dim=1)
                found.append(_sum(logits, target))
        return np.stack(found, axis=1)

    def _target(self, label: str) -> list[int]:
        """The tokens of a label as an answer."""
        tokenizer: Any = self.tokenizer
        if self.kind == "seq2seq":
            return list(tokenizer(label)["input_ids"])
        if self.chat:
            return [
                *tokenizer(label, add_special_tokens=False)["input_ids"],
                *self._turn_end(label),
            ]
        return list(tokenizer(" " + label, add_special_tokens=False)["input_ids"])

    def _ends(self) -> list[int]:
        """What ends an answer: the tokenizer's end token, and those of the checkpoint's settings.

        Chat models often end a turn with another token than the tokenizer's.
        """
        own = self.model.generation_config.eos_token_id
        found = [self.tokenizer.eos_token_id, *(own if isinstance(own, list) else [own])]
        return [each for each in dict.fromkeys(found) if each is not None]

    def _turn_end(self, label: str) -> list[int]:
        """The end token that the chat template has behind an answer."""
        tokenizer: Any = self.tokenizer
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": label}]
        said = str(tokenizer.apply_chat_template(turns, tokenize=False))
        behind = tokenizer(said.rpartition(label)[2], add_special_tokens=False)["input_ids"]
        return [each for each in [*behind, *self.ends] if each in self.ends][:1]

    def _plainly(self) -> GenerationConfig:
        """Settings to write the likeliest token each time, whatever the checkpoint comes with."""
        own = self.model.generation_config
        start = getattr(self.model.config, "decoder_start_token_id", None)
        return GenerationConfig(
            max_new_tokens=MOST_WRITTEN,
            do_sample=False,
            num_beams=1,
            bos_token_id=own.bos_token_id,
            eos_token_id=self.ends or None,
            pad_token_id=self.ends[0] if self.ends else 0,
            decoder_start_token_id=start if start is not None else own.decoder_start_token_id,
        )

    def _text(self, ids: list[int]) -> str:
        if self.kind == "seq2seq" and ids and ids[0] == self.tokenizer.bos_token_id:
            ids = ids[1:]  # BART begins every text with it
        ends = {*self.ends, self.tokenizer.pad_token_id}
        for at, each in enumerate(ids):
            if each in ends:
                ids = ids[:at]
                break
        return str(self.tokenizer.decode(ids, skip_special_tokens=False)).strip()


def _sum(logits: torch.Tensor, target: Sequence[int]) -> npt.NDArray[np.float64]:
    """Log-probability (row,) of the tokens of ``target``, from logits (row, token, entry)."""
    steps = logits[:, : len(target)].double().log_softmax(dim=-1)
    places = torch.arange(len(target), device=logits.device)
    total: npt.NDArray[np.float64] = (
        steps[:, places, torch.tensor(target, device=logits.device)].sum(dim=1).cpu().numpy()
    )
    return total


def label_of(text: str, labels: Sequence[str]) -> str | None:
    """The label that a text is; blanks around it, a final full stop and case do not count."""
    said = text.strip().removesuffix(".").rstrip().casefold()
    return next((label for label in labels if label.casefold() == said), None)
