"""Language models that answer prompts: scores of options, written answers, labels in words."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count, pairwise
from typing import Any

import numpy as np
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)

from consilience.core.errors import ConsilienceError
from consilience.core.items import (
    Floats,
    Form,
    Ints,
    Prompt,
    Scores,
    Task,
    as_string,
    group_rows,
    margins,
)
from consilience.models.batches import (
    ReadyModel,
    TokenNoise,
    equal_length_batches,
    halving,
    logits_of,
    positions,
    side_by_side,
    target_logprobs,
    workers_on,
)
from consilience.models.candidates import too_long
from consilience.models.classifier import Encoded, fit
from consilience.models.fast.products import reproducibly
from consilience.models.fast.trees import Prompts, TreeScorer, room_for_tokens, tree_scorer
from consilience.models.loading import Kind, Pretrained
from consilience.models.prompt_tokens import (
    LONGEST_LABEL,
    MOST_WRITTEN,
    TEMPLATES,
    LabelPrompts,
    OptionPrompts,
    PromptTokens,
    begins_another,
)
from consilience.models.seq2seq import before_targets, decoder_start


def steering(
    noises: Sequence[TokenNoise | None], is_complete: Callable[[int, list[int]], bool]
) -> dict[str, Any]:
    """Options of ``generate`` for rows with these noises, whose written tokens end their texts."""
    steps, starts = count(), list[int]()

    def add_noise(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        step, rows = next(steps), zip(scores, noises, strict=True)
        return torch.stack([one.added_to(logits, step) if one else logits for logits, one in rows])

    def are_complete(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        starts.append(ids.shape[1] - 1)  # one token is written
        rows = ids[:, starts[0] :].tolist()
        done = [is_complete(row, written) for row, written in enumerate(rows)]
        return torch.tensor(done, device=ids.device)

    more: Any = LogitsProcessorList([add_noise]), StoppingCriteriaList([are_complete])
    return {"logits_processor": more[0], "stopping_criteria": more[1]}


class CausalContinuation:
    """A causal model."""

    shares_context = True  # Whether the answer takes up positions after the prompt

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model: Any = model

    def encode(self, ids: torch.Tensor) -> None:
        return

    def totals(self, ids: torch.Tensor, encoded: None, targets: Sequence[Sequence[int]]) -> Floats:
        """Log-probability (row, target) of the targets after prompts ``ids`` (row, token)."""
        first = self._model(input_ids=ids, use_cache=True, logits_to_keep=1)
        cache = getattr(first, "past_key_values", None)
        columns = []
        for target in targets:
            logits = first.logits
            if len(target) > 1:
                answer = torch.tensor([target[:-1]], device=ids.device).expand(len(ids), -1)
                if cache is None:  # Mamba and others have another cache
                    whole = torch.cat([ids, answer], dim=1)
                    logits = self._model(input_ids=whole, use_cache=False).logits
                    logits = logits[:, ids.shape[1] - 1 :]
                else:  # not every cache can be shortened again
                    more = self._model(input_ids=answer, past_key_values=copy.deepcopy(cache))
                    logits = torch.cat([logits, more.logits], dim=1)
            columns.append(target_logprobs(logits, target))
        return np.stack(columns, axis=1)

    def write(self, ids: torch.Tensor, encoded: None, **options: Any) -> list[list[int]]:
        written: Any = self._model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), **options
        )
        return list(written[:, ids.shape[1] :].tolist())


class Seq2SeqContinuation:
    """A sequence-to-sequence model."""

    shares_context = False

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model: Any = model
        self._begins = tokenizer.bos_token_id
        start = decoder_start(model, str(tokenizer.name_or_path))
        self._before = [start, *before_targets(tokenizer, start)]

    def encode(self, ids: torch.Tensor) -> Any:
        return self._model.get_encoder()(input_ids=ids, attention_mask=torch.ones_like(ids))

    def totals(self, ids: torch.Tensor, encoded: Any, targets: Sequence[Sequence[int]]) -> Floats:
        """Log-probability (row, target) of the targets given prompts ``ids`` (row, token)."""
        columns = []
        for target in targets:
            before = self._before
            if list(target[: len(before) - 1]) == before[1:]:  # it has what begins every text
                before = before[:1]
            prefix = torch.tensor([[*before, *target[:-1]]], device=ids.device)
            logits = self._model(
                encoder_outputs=encoded,
                attention_mask=torch.ones_like(ids),
                decoder_input_ids=prefix.expand(len(ids), -1),
            ).logits[:, len(before) - 1 :]
            columns.append(target_logprobs(logits, target))
        return np.stack(columns, axis=1)

    def write(self, ids: torch.Tensor, encoded: Any, **options: Any) -> list[list[int]]:
        written: Any = self._model.generate(
            encoder_outputs=encoded, attention_mask=torch.ones_like(ids), **options
        )
        # BART begins every text with its beginning-of-sequence token.
        return [ids[1:] if ids[:1] == [self._begins] else ids for ids in written[:, 1:].tolist()]


CONTINUATIONS: Mapping[Kind, type[CausalContinuation] | type[Seq2SeqContinuation]] = {
    "causal": CausalContinuation,
    "seq2seq": Seq2SeqContinuation,
}


MOST_PROMPTS = {"cpu": 64, "cuda": 512}  # Prompts that are continued in parallel, at most
MOST_SCORED = 512  # Prompts whose answers are scored in parallel, at most
Targets = Sequence[Sequence[int]]  # The token ids of each answer that is scored after a prompt
Parts = tuple[list[int], list[list[int]]]  # The token ids of a prompt, and its targets


@dataclass(frozen=True, slots=True)
class Replies:
    """The answers to some prompts."""

    totals: list[Floats]  # Log-probabilities, in nats, of the answers of each prompt (answer,)
    texts: list[str]  # What was written after each prompt; empty where nothing was to be written


@dataclass(frozen=True, slots=True)
class Manner:
    """How text is written after a prompt."""

    noise: TokenNoise | None = None  # Added to the logits; None writes the most probable token
    is_one_line: bool = False  # Whether the text ends with its first line, not at an end token only


class PromptReader(ReadyModel):
    """A causal or sequence-to-sequence model that continues what it is shown."""

    parts: Any  # What is shown -> ``Parts``: the token ids of each, and of its answers

    def __init__(self, loaded: Pretrained, *, most_written: int = 0) -> None:
        """``most_written``: tokens to write after a prompt."""
        if loaded.kind not in CONTINUATIONS:
            raise ConsilienceError(
                f"'{loaded.identity['model']}' does not write text",
                expected="a sequence-to-sequence or causal language model",
                todo="Of sentence pairs: fine-tune it with `consilience finetune`, and leave "
                "--generate out.",
            )
        super().__init__(loaded)
        self.continuation = CONTINUATIONS[loaded.kind](self.model, self.tokenizer)
        self.most_written = most_written
        self.longest_scored = min(self.tokenizer.model_max_length, positions(self.model))
        written = most_written if self.continuation.shares_context else 0
        self.longest = self.longest_scored - written
        usual = self.model.generation_config
        self.ends = end_tokens(loaded)
        start = getattr(self.model.config, "decoder_start_token_id", None)
        self.model.generation_config = GenerationConfig(  # whatever the checkpoint's settings are
            max_new_tokens=max(1, most_written),
            do_sample=False,
            num_beams=1,
            bos_token_id=usual.bos_token_id,
            eos_token_id=self.ends or None,
            pad_token_id=self.ends[0] if self.ends else 0,
            decoder_start_token_id=start if start is not None else usual.decoder_start_token_id,
        )
        self.tokens = PromptTokens(self.tokenizer, self.ends, str(self.identity["model"]))
        self.read_before: dict[tuple[int, ...], Floats] = {}  # By the token ids of prompts
        self._tree_scorer = None
        if self.continuation.shares_context:
            self._tree_scorer = tree_scorer(loaded.model, 0, self.budget)

    def score(self, shown: Sequence[Any]) -> Iterator[Scores]:
        """Log-probabilities of the answers; those known since a text was written are used once."""
        parts = self.parts(shown)
        sizes = [np.array([len(target) for target in targets]) for _, targets in parts]
        keys, known = [tuple(ids) for ids, _ in parts], self.read_before
        before = {row: known[key] for row, key in enumerate(keys) if key in known}
        rest = [row for row in range(len(parts)) if row not in before]
        for row in before:
            known.pop(keys[row], None)
        if before:
            yield Scores.of_rows(
                np.array([*before]), [*before.values()], [sizes[row] for row in before]
            )
        for places, replies in self.replies([parts[row] for row in rest]):
            rows = np.array(rest)[places]
            yield Scores.of_rows(rows, replies.totals, [sizes[row] for row in rows])

    def replies(
        self, parts: Sequence[Parts], manners: Sequence[Manner] = ()
    ) -> Iterator[tuple[Ints, Replies]]:
        """Positions of prompts, and the answers; ``manners``: how to write text, none for none."""
        prompts, targets = [ids for ids, _ in parts], [of_prompt for _, of_prompt in parts]
        lengths = [len(ids) for ids in prompts]

        def work(rows: Ints) -> Replies:
            chosen = [prompts[row] for row in rows]
            of_chosen = [targets[row] for row in rows]
            of_rows = [manners[row] for row in rows] if manners else []
            replies = None
            if self._tree_scorer is not None:
                with suppress(NotImplementedError):  # longer than a window of attention
                    replies = self._in_a_tree(chosen, of_chosen, self._tree_scorer, of_rows)
            replies = replies or self._in_batches(chosen, of_chosen, of_rows)
            for at, totals in enumerate(replies.totals):
                if margins(totals[None])[0] < self.tie:
                    with reproducibly():
                        replies.totals[at] = self._alone(chosen[at], of_chosen[at])
            return replies

        if self._tree_scorer is None:
            batches = equal_length_batches(lengths, self.budget)
        else:
            batches = self._chunks(prompts, targets, is_written=bool(manners))
        yield from side_by_side(work, batches, self.model.device)

    def _chunks(
        self, prompts: Sequence[list[int]], targets: Sequence[Targets], *, is_written: bool
    ) -> Iterator[Ints]:
        """Sorted prompts that are read in one tree: equal work for each thread, within memory."""
        if not prompts:
            return
        order = sorted(range(len(prompts)), key=prompts.__getitem__)
        rows = [np.array(prompts[row]) for row in order]
        new = [len(rows[0]), *(len(row) - _shared(row, one) for one, row in pairwise(rows))]
        more = [
            sum(len(ids) - 1 for ids in targets[row]) + self.most_written * is_written
            for row in order
        ]
        tokens = np.cumsum(np.array(new) + more)
        most = MOST_PROMPTS.get(self.model.device.type, MOST_PROMPTS["cpu"])
        most = most if is_written else MOST_SCORED
        workers, room = workers_on(self.model.device), room_for_tokens(self.model)
        parts = workers * math.ceil(max(len(order) / most, tokens[-1] / room) / workers)
        ends = np.searchsorted(tokens, tokens[-1] * np.arange(1, parts) / parts)
        yield from filter(len, np.split(np.array(order), ends))

    def _in_a_tree(
        self,
        prompts: Sequence[list[int]],
        targets: Sequence[Targets],
        scorer: TreeScorer,
        manners: Sequence[Manner],
    ) -> Replies:
        """Answers to prompts that are read once, those of all lengths in parallel."""
        more = self.most_written if manners else 0
        read = Prompts(self.model, scorer.head, prompts, targets, self.budget, more)
        replies = Replies(read.totals(), [])
        if manners:
            noises = [manner.noise for manner in manners]

            @torch.inference_mode()
            def best_alone(row: int, written: list[int]) -> int:
                with reproducibly():
                    logits = logits_of(self.model, [[*prompts[row], *written]])[0, -1].float()
                noise = noises[row]
                return int((noise.added_to(logits, len(written)) if noise else logits).argmax())

            is_complete = partial(self._is_complete, manners)
            written = read.write(self.most_written, is_complete, best_alone, self.tie, noises)
            replies.texts.extend(map(self._decoded, written, manners))
        return replies

    def _in_batches(
        self, prompts: Sequence[list[int]], targets: Sequence[Targets], manners: Sequence[Manner]
    ) -> Replies:
        """Answers to prompts in batches of one length and of the same answers."""
        replies = Replies([np.empty(0)] * len(prompts), [""] * len(prompts))
        alike = (tuple(map(tuple, of_prompt)) for of_prompt in targets)
        groups = group_rows(zip(map(len, prompts), alike, strict=True))

        @torch.inference_mode()
        def work(rows: Ints) -> None:
            ids = torch.tensor([prompts[row] for row in rows], device=self.model.device)
            encoded = self.continuation.encode(ids)
            if targets[rows[0]]:
                totals = self.continuation.totals(ids, encoded, targets[rows[0]])
                for row, of_row in zip(rows, totals, strict=True):
                    replies.totals[row] = of_row
            if manners:
                of_rows = [manners[row] for row in rows]
                noises = [manner.noise for manner in of_rows]
                options = steering(noises, partial(self._is_complete, of_rows))
                written = self.continuation.write(ids, encoded, **options)
                for row, of_row, manner in zip(rows, written, of_rows, strict=True):
                    replies.texts[row] = self._decoded(of_row, manner)

        for (length, _), rows in groups.items():
            for batch in equal_length_batches([length] * len(rows), self.budget):
                halving(work, np.array(rows)[batch], length, self.budget)
        return replies

    @torch.inference_mode()
    def _alone(self, prompt: list[int], targets: Targets) -> Floats:
        ids = torch.tensor([prompt], device=self.model.device)
        encoded = self.continuation.encode(ids)
        return np.asarray(self.continuation.totals(ids, encoded, targets)[0])

    def _is_complete(self, manners: Sequence[Manner], row: int, written: list[int]) -> bool:
        if not written or written[-1] in (*self.ends, self.tokenizer.pad_token_id):
            return bool(written)
        return manners[row].is_one_line and "\n" in str(self.tokenizer.decode(written)).lstrip()

    def _decoded(self, ids: list[int], manner: Manner) -> str:
        ends = {*self.ends, self.tokenizer.pad_token_id}
        end = next((at for at, token in enumerate(ids) if token in ends), len(ids))
        text = str(self.tokenizer.decode(ids[:end], skip_special_tokens=False)).strip()
        return text.split("\n")[0].strip() if manner.is_one_line else text


def end_tokens(loaded: Pretrained) -> list[int]:
    """What ends an answer; chat models often end a turn with another token than the tokenizer's."""
    ends: Any = loaded.model.generation_config.eos_token_id
    ends = [loaded.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])]
    return [token for token in dict.fromkeys(ends) if token is not None]


def _shared(first: Ints, second: Ints) -> int:
    size = min(len(first), len(second))
    differs = first[:size] != second[:size]
    return int(differs.argmax()) if differs.any() else size


class OptionScorer(OptionPrompts, PromptReader):
    """A model that scores what a prompt may be answered with (``asking/questions.py``)."""

    def __init__(self, loaded: Pretrained, *, most_written: int = 0) -> None:
        super().__init__(loaded, most_written=most_written)
        self.takes_answers = self.continuation.shares_context
        self._encoded: dict[Prompt, Parts] = {}

    def encode(self, prompt: Prompt) -> Parts:
        """See ``PromptTokens.encode``; a sequence-to-sequence model reads an answer alone."""
        if prompt not in self._encoded:
            if self.takes_answers:
                self._encoded[prompt] = self.tokens.encode(prompt)
                return self._encoded[prompt]
            targets = self.tokens.ids(list(prompt.answers))
            if not prompt.are_labels or begins_another(targets):
                targets = [[*ids, *self.ends[:1]] for ids in targets]
            self._encoded[prompt] = self.prompt_ids(prompt), targets
        return self._encoded[prompt]

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        if self.continuation.shares_context:
            return self.tokens.prompt_ids(prompt)
        return list(self.tokenizer(self.text(prompt), verbose=False)["input_ids"])

    def parts(self, shown: Sequence[Prompt]) -> list[Parts]:
        encoded = [self.encode(prompt) for prompt in shown]
        self._encoded.clear()
        return encoded

    def score_alone(self, prompt: Prompt) -> Floats:
        """Log-probabilities (answer,) in nats, of a prompt in passes of its own."""
        with reproducibly():
            return self._alone(*self.encode(prompt))


class AnswerWriter(OptionScorer):
    """A causal or sequence-to-sequence model that writes an answer to each prompt.

    The answer ends at an end token, after ``most_written`` tokens and, where the prompt is no chat,
    at the end of its first line: what a model without turns writes next is another question.
    """

    chooses = False  # Whether it is asked to choose among options instead

    def __init__(
        self,
        loaded: Pretrained,
        *,
        most_written: int = MOST_WRITTEN,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        """``temperature``: 0 for the most probable tokens; else they are sampled by ``seed``."""
        super().__init__(loaded, most_written=most_written)
        self.temperature, self.seed = temperature, seed
        self.identity = self.identity | {"max_new_tokens": most_written, "temperature": temperature}
        if temperature:
            self.identity["sampling_seed"] = seed

    @cached_property
    def chooser(self) -> AnswerWriter:
        """The same model, which chooses among options."""
        chooser = copy.copy(self)
        chooser.chooses, chooser.longest = True, self.longest_scored
        return chooser

    def _why_not(self, prompt: Prompt) -> str | None:
        if self.chooses:
            return super()._why_not(prompt)
        return too_long(len(self.prompt_ids(prompt)), self.longest) or self.tokens.refused(prompt)

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

    A label's score is that of its tokens, and of an end token if the model ends answers with one.
    """

    def __init__(self, loaded: Pretrained, task: Task, template: str | None) -> None:
        """``template``: see ``prompt_tokens.filled``; None for T5's form, or for ours."""
        super().__init__(loaded, most_written=LONGEST_LABEL)
        is_causal, self.prompts = self.continuation.shares_context, None
        if template is not None or is_causal:
            text = TEMPLATES[task.kind] if template is None else template
            self.prompts = LabelPrompts(text, task, self.tokens if is_causal else None)
        self.is_chat = self.prompts is not None and self.prompts.is_chat
        self.template = self.prompts and self.prompts.template
        self.labels, self.lead = task.labels, f"{task.name} "
        self.targets: list[list[int]] = (
            self.tokens.label_targets(task.labels, self.prompts.gap)
            if self.prompts and is_causal
            else [list(self.tokenizer(label)["input_ids"]) for label in task.labels]
        )
        self.identity = self.identity | {
            "template": self.template,
            "chat": self.is_chat,
            "longest": self.longest,
        }

    def text(self, shown: Form) -> str:
        return self.prompts.text(shown) if self.prompts else self.lead + as_string(shown)

    def encode(self, forms: Sequence[Form]) -> list[Encoded]:
        if not forms:
            return []
        texts = [self.text(form) for form in forms]
        encoded: Any = self.tokenizer(texts, add_special_tokens=not self.is_chat, verbose=False)
        return [{"input_ids": list(ids)} for ids in encoded["input_ids"]]

    def parts(self, shown: Sequence[Form]) -> list[Parts]:
        return [(one["input_ids"], self.targets) for one in self.encode(shown)]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        return fit(forms, self.encode, self.tokenizer, self.longest)

    def why_not(self, shown: Sequence[Form]) -> list[str | None]:
        return [self.tokens.special_in([segment.sentence for segment in form]) for form in shown]

    def write(
        self, shown: Sequence[Form], samples: Sequence[int] = ()
    ) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of forms, and what the model writes after them, greedily.

        The labels are scored in the same pass, and ``score`` has nothing to compute the next time.
        """
        parts = self.parts(shown)
        manners = [Manner(is_one_line=not self.is_chat)] * len(parts)
        for rows, replies in self.replies(parts, manners):
            for row, totals in zip(rows, replies.totals, strict=True):
                self.read_before[tuple(parts[row][0])] = totals
            yield rows, replies.texts
