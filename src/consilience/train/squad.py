"""Extractive question answering: is a more consistent model better downstream? (ParaRel 8.3)."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import (
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from consilience.analysis.reading import Question
from consilience.errors import ConsilienceError
from consilience.metrics.statistics import Floats
from consilience.models.batches import Budget, equal_length_batches, halving, side_by_side
from consilience.models.loading import load_question_answering, load_tokenizer
from consilience.train.checkpoints import PRODUCTS, disk_errors, last_whole_checkpoint
from consilience.train.products import train_as_begun
from consilience.train.record import is_finished, write_record

LENGTH = 384
"""Tokens of a window: the question, a part of the context, and the special tokens."""

STRIDE = 128
"""Tokens of the context that two neighbouring windows share."""

LONGEST = 30
"""Tokens of the longest answer."""

CHUNK = 1000
"""Questions that are cut into windows at once."""

Progress = Callable[[int, int], None]
"""Told how many steps were done just now, and how many there are in all."""


@dataclass(frozen=True, slots=True)
class Window:
    """A question with the part of its context that fits beside it.

    ``question``: its place; ``inputs``: what the model reads, each (token,); ``offsets``: first and
    behind the last character in the context, (token, 2), -1 outside it.
    """

    question: int
    inputs: dict[str, npt.NDArray[np.int64]]
    offsets: npt.NDArray[np.int64]


def windows(
    questions: Sequence[Question],
    tokenizer: PreTrainedTokenizerBase,
    length: int = LENGTH,
    stride: int = STRIDE,
) -> Iterator[Window]:
    """The windows of each question, from left to right; as long as they are, without padding."""
    for first in range(0, len(questions), CHUNK):
        part = questions[first : first + CHUNK]
        asked = [" ".join(each.question.split()) for each in part]
        _refuse_long(part, asked, tokenizer, length - stride)
        encoded: Any = tokenizer(
            asked,
            [each.context for each in part],
            truncation="only_second",
            max_length=length,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        names = [name for name in tokenizer.model_input_names if name in encoded]
        for at, place in enumerate(encoded["overflow_to_sample_mapping"]):
            offsets = np.array(encoded["offset_mapping"][at], dtype=np.int64)
            offsets[[each != 1 for each in encoded.sequence_ids(at)]] = -1
            inputs = {name: np.array(encoded[name][at], dtype=np.int64) for name in names}
            yield Window(first + place, inputs, offsets)


def _refuse_long(
    part: Sequence[Question],
    asked: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    room: int,
) -> None:
    special = tokenizer.num_special_tokens_to_add(pair=True)
    encoded = tokenizer(list(asked), add_special_tokens=False, verbose=False)
    for each, ids in zip(part, encoded["input_ids"], strict=True):
        if len(ids) + special >= room:
            raise ConsilienceError(
                f"the question '{each.id}' has {len(ids)} tokens, no room for its context",
                expected=f"fewer than {room - special}",
                todo="Shorten the question, or leave it out.",
            )


def labels(window: Window, question: Question) -> tuple[int, int]:
    """First and last token of the first answer; (0, 0) where the window does not hold all of it."""
    text = question.texts[0]
    start = question.starts[0] + len(text) - len(text.lstrip())
    end = start + len(text.strip())
    low, high = window.offsets.T
    tokens = np.flatnonzero((low < end) & (high > start))
    if not len(tokens) or low[tokens[0]] > start or high[tokens[-1]] < end:
        return 0, 0
    return int(tokens[0]), int(tokens[-1])


def best_span(
    start: Floats, end: Floats, inside: npt.NDArray[np.bool_], longest: int = LONGEST
) -> tuple[float, int, int]:
    """The best ``start[i] + end[j]`` of logits (token,), and i and j: i <= j < i + longest.

    Both tokens are ``inside`` the context. Equal ones: the first start, then the first end. The
    score is -inf where no token is inside.
    """
    places = np.flatnonzero(inside)
    if not len(places):
        return -np.inf, 0, 0
    sums = start[places][:, None] + end[places]
    apart = places - places[:, None]
    sums[(apart < 0) | (apart >= longest)] = -np.inf
    first, last = np.unravel_index(sums.argmax(), sums.shape)
    return float(sums[first, last]), int(places[first]), int(places[last])


def load_reader(
    spec: str, *, trained: bool, device: str = "cpu", trust_remote_code: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str]:
    """A model with a question-answering head, its fast tokenizer, and SHA-256 of its weights.

    Those of the body have to be there; those of the head too where it is said to be ``trained``.
    ``device``: cpu, or auto for CUDA where there is one.
    """
    if device not in ("auto", "cpu"):
        raise ConsilienceError(f"the device '{device}'", expected="auto or cpu")
    tokenizer = load_tokenizer(spec, trust_remote_code=trust_remote_code)
    if not tokenizer.is_fast:
        raise ConsilienceError(f"'{spec}' has no fast tokenizer", expected="a tokenizer.json")
    model: Any
    model, missing = load_question_answering(spec, trust_remote_code=trust_remote_code)
    absent = sorted(missing)
    lacking = [key for key in absent if trained or key.startswith(model.base_model_prefix + ".")]
    if lacking:
        raise ConsilienceError(
            f"the weights of '{spec}' lack {len(lacking)} tensors, such as '{lacking[0]}'",
            expected="a model fine-tuned on SQuAD" if trained else "a pretrained model",
        )
    if getattr(model.config, "max_position_embeddings", LENGTH) < LENGTH:
        raise ConsilienceError(
            f"'{spec}' reads {model.config.max_position_embeddings} tokens at most",
            expected=f"{LENGTH} at least",
        )
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        if name not in absent:
            digest.update(name.encode() + b"\0" + weight.numpy().tobytes())
    place = "cuda" if device == "auto" and torch.cuda.is_available() else "cpu"
    return model.to(place), tokenizer, digest.hexdigest()


class _Report(TrainerCallback):
    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.progress(state.global_step, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.progress(1, state.max_steps)


def finetune(
    model_name_or_path: str,
    questions: Sequence[Question],
    out: Path,
    *,
    epochs: float = 2,
    lr: float = 3e-5,
    batch: int = 16,
    seed: int = 0,
    max_steps: int = -1,
    length: int = LENGTH,
    stride: int = STRIDE,
    checkpoint_every: int = 500,
    device: str = "auto",
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> None:
    """Fine-tune on the first answer of each question, and save the model to ``out``.

    AdamW, the rate rises over the first tenth of the steps and falls linearly to 0; ``max_steps``
    overrides ``epochs``. What is finished in ``out`` stays as it is; what was killed goes on from
    its last whole checkpoint, with the same result. Another training's folder is refused.
    """
    set_seed(seed)
    model, tokenizer, weights = load_reader(
        model_name_or_path, trained=False, device=device, trust_remote_code=trust_remote_code
    )
    asked = {
        "weights": weights,
        "questions": hashlib.sha256(repr([*questions]).encode()).hexdigest(),
        **{"epochs": epochs, "lr": lr, "batch": batch, "seed": seed, "max_steps": max_steps},
        **{"length": length, "stride": stride},
    }
    checkpoints = out / "checkpoints"
    if is_finished(out, asked):
        _remove(checkpoints)  # of a process that was killed at its very end
        return
    features: Any = [
        {**each.inputs, "start_positions": start, "end_positions": end}
        for each in windows(questions, tokenizer, length, stride)
        for start, end in [labels(each, questions[each.question])]
    ]
    products = train_as_begun({"model": model}, out, checkpoints)
    trainer = Trainer(
        model=model,
        args=_arguments(checkpoints, asked, checkpoint_every, device),
        train_dataset=features,
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        callbacks=[_Report(progress)] if progress else None,
    )
    trainer.remove_callback(PrinterCallback)
    with disk_errors(out):
        trainer.train(resume_from_checkpoint=last_whole_checkpoint(checkpoints))
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
        write_record(out, asked, finished=True, products=products["model"])
    _remove(checkpoints)


def _remove(checkpoints: Path) -> None:
    shutil.rmtree(checkpoints, ignore_errors=True)
    (checkpoints.parent / PRODUCTS).unlink(missing_ok=True)


def _arguments(
    folder: Path, asked: Mapping[str, Any], checkpoint_every: int, device: str
) -> TrainingArguments:
    try:
        return TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=asked["epochs"],
            max_steps=asked["max_steps"],
            learning_rate=asked["lr"],
            per_device_train_batch_size=asked["batch"],
            seed=asked["seed"],
            warmup_steps=0.1,
            save_steps=checkpoint_every,
            save_total_limit=1,
            use_cpu=device == "cpu",
            dataloader_pin_memory=device != "cpu" and torch.cuda.is_available(),
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
    except ImportError as error:
        raise ConsilienceError(
            "training needs the package accelerate", todo="Get it: pip install accelerate"
        ) from error


def answer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    *,
    length: int = LENGTH,
    stride: int = STRIDE,
    longest: int = LONGEST,
    progress: Progress | None = None,
) -> list[str]:
    """The text of each question's best span over all its windows, by the sum of its two logits.

    All spans are looked at. Of equal ones the one in the first window. Windows are read in batches
    of one length, without padding.
    """
    model.eval()
    cut = list(windows(questions, tokenizer, length, stride))
    budget = Budget.of(model)

    def read(places: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Start and end logits, (2, window, token)."""
        with torch.inference_mode():
            inputs = {
                name: torch.tensor(np.stack([cut[at].inputs[name] for at in places]))
                for name in cut[places[0]].inputs
            }
            found = model(**{name: each.to(model.device) for name, each in inputs.items()})
            logits = torch.stack([found.start_logits, found.end_logits])
        return logits.double().cpu().numpy()

    def work(places: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.concatenate(halving(read, places, len(cut[places[0]].offsets), budget), axis=1)

    best: dict[int, tuple[float, int, str]] = {}
    batches = equal_length_batches([len(each.offsets) for each in cut], budget)
    for places, logits in side_by_side(work, batches, model.device):
        for at, start, end in zip(places.tolist(), *logits, strict=True):
            place, offsets = cut[at].question, cut[at].offsets
            score, first, last = best_span(start, end, offsets[:, 0] >= 0, longest)
            if score > -np.inf and (place not in best or (-score, at) < best[place][:2]):
                text = questions[place].context[offsets[first, 0] : offsets[last, 1]]
                best[place] = (-score, at, text)
        if progress:
            progress(len(places), len(cut))
    return [best[place][2] if place in best else "" for place in range(len(questions))]
