"""Sentence-pair classifiers: the probability of each label of a form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from consilience.choices import DEFAULT_LOADING, Joined, Loading, Pool
from consilience.errors import ConsilienceError
from consilience.models.batches import Budget
from consilience.models.forward import Floats, Ints
from consilience.models.loading import Pretrained, load_classifier
from consilience.models.pair_input import Encoded, PairFormat, PairInput, has_decoder_head
from consilience.models.score_tables import group_rows, log_softmax
from consilience.models.scoring import ReadyModel, score_batches
from consilience.sentence_pairs import Form, as_lines, as_string
from consilience.types import Scores


class PairClassifier(ReadyModel):
    """A model with a trained classification head that chooses among the labels of a task."""

    head_is_packed = False

    def __init__(
        self,
        loaded: Pretrained,
        labels: Sequence[str],
        reading: PairFormat,
        model_labels: Sequence[str] | None = None,
    ) -> None:
        """``labels``: those of the task, in its order; they are matched with the model's by name.

        ``model_labels``: the names of the model's labels, for a model that does not name them.
        """
        super().__init__(loaded)
        self.input = PairInput(loaded.model, loaded.tokenizer, reading)
        self.labels = tuple(labels)
        self._columns = label_positions(
            labels, dict(loaded.model.config.id2label or {}), model_labels
        )
        self.identity = self.identity | {
            "joined": reading.joined,
            "pool": reading.pool,
            "longest": self.input.longest,
            "model_labels": list(model_labels) if model_labels else None,
        }

    @property
    def longest(self) -> int:
        """Maximum number of tokens of a form."""
        return self.input.longest

    def prompt(self, form: Form) -> str:
        """The text that the model reads; of two texts, a line each."""
        return as_string(form) if self.input.reading.joined == "string" else as_lines(form)

    def encode(self, forms: Sequence[Form]) -> list[Encoded]:
        """The ids of each form, of any length."""
        return self.input.encode(forms)

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """All variants of one item, truncated so that each fits (``pair_input.fit``)."""
        return self.input.fit(forms)

    def why_not(self, form: Form) -> str | None:
        """None: a classifier can read every form."""
        return None

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the task's labels for each form; each exactly once.

        Equal forms are read once, in batches of one length, and near ties alone
        (docs/decisions/0007), so that no score depends on the other forms.
        """
        encoded = self.input.encode(forms)
        rows = list(group_rows(tuple(map(tuple, form.values())) for form in encoded).values())
        unique = [encoded[queries[0]] for queries in rows]
        lengths = [len(form["input_ids"]) for form in unique]
        for batch, chosen in self.settled(self._logits, unique, lengths):
            counts = [len(rows[at]) for at in batch]
            yield Scores(
                np.concatenate([rows[at] for at in batch]),
                self.labels,
                np.repeat(log_softmax(chosen), counts, axis=0),
            )

    def _logits(self, forms: list[Encoded]) -> Floats:
        """Logits (form, label) of a few forms, for the labels of the task."""
        logits: Floats = read(forms, self.model, self.input.reading).double().cpu().numpy()
        return logits[:, self._columns]


def load_pair_classifier(
    spec: str,
    labels: Sequence[str],
    loading: Loading = DEFAULT_LOADING,
    *,
    joined: Joined | None = None,
    pool: Pool | None = None,
    longest: int | None = None,
    model_labels: Sequence[str] | None = None,
) -> PairClassifier:
    """A trained classifier from the Hub or a folder; options default to those of its training."""
    loaded = load_classifier(spec, loading)
    reading = PairFormat.beside(Path(spec)) or PairFormat.of(loaded.kind)
    reading = PairFormat(
        joined or reading.joined,
        pool or reading.pool,
        reading.longest if longest is None else longest,
        reading.indicators,
    )
    return PairClassifier(loaded, labels, reading, model_labels)


def predict(
    model: PreTrainedModel,
    reading: PairFormat,
    encoded: Sequence[Encoded],
    budget: Budget,
) -> Iterator[tuple[Ints, Floats]]:
    """Positions of forms, with their logits (form, label), in batches of one length."""

    def score_batch(batch: Ints) -> Floats:
        logits = read([encoded[at] for at in batch], model, reading)
        scores: Floats = logits.double().cpu().numpy()
        return scores

    lengths = [len(form["input_ids"]) for form in encoded]
    yield from score_batches(score_batch, lengths, budget, model.device)


@torch.inference_mode()
def read(forms: Sequence[Encoded], model: PreTrainedModel, reading: PairFormat) -> torch.Tensor:
    """Logits (form, label) of a few forms."""
    inputs = collate(forms, int(getattr(model.config, "pad_token_id", None) or 0))
    moved = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    return logits_of(model, reading.pool, moved)


def collate(forms: Sequence[Encoded], pad: int) -> dict[str, torch.Tensor]:
    """Ids and attention (form, token), padded on the right."""
    longest = max(len(form["input_ids"]) for form in forms)
    inputs: dict[str, torch.Tensor] = {}
    for name in forms[0]:
        filler = pad if name == "input_ids" else 0
        rows = [form[name] + [filler] * (longest - len(form[name])) for form in forms]
        inputs[name] = torch.tensor(rows)
    lengths = torch.tensor([len(form["input_ids"]) for form in forms])
    inputs["attention_mask"] = (torch.arange(longest) < lengths[:, None]).long()
    return inputs


def logits_of(model: Any, pool: Pool, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Logits (form, label); ``pool``: where a decoder's head reads.

    The attention mask marks a decoder's last token. Transformers would look for the id of the
    padding, which may also occur in the text.
    """
    if not has_decoder_head(model):
        logits: torch.Tensor = model(**inputs).logits
        return logits
    hidden = model.base_model(**inputs).last_hidden_state
    attention = inputs["attention_mask"]
    if pool == "mean":
        weights = attention[..., None].to(hidden.dtype)
        pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
    else:
        rows = torch.arange(len(hidden), device=hidden.device)
        pooled = hidden[rows, attention.sum(dim=1) - 1]
    scores: torch.Tensor = model.score(pooled)
    return scores


def label_positions(
    labels: Sequence[str], id2label: Mapping[Any, str], model_labels: Sequence[str] | None
) -> list[int]:
    """Position of each of the task's labels among the model's, whatever the case.

    ``model_labels``: the model's labels in its order, for a model that does not name them.
    """
    names = (
        list(model_labels)
        if model_labels
        else [str(id2label[number]) for number in sorted(id2label)]
    )
    if len(names) != len(id2label):
        raise ConsilienceError(
            f"{len(names)} labels in --model-labels", expected=f"the model's {len(id2label)}"
        )
    positions = {name.casefold(): position for position, name in enumerate(names)}
    for label in labels:
        if label.casefold() not in positions:
            raise ConsilienceError(
                f"the model's labels are {', '.join(names)}",
                expected=", ".join(labels),
                todo="Say what they mean, in the model's order: --model-labels A,B.",
            )
    if len(names) != len(labels):
        raise ConsilienceError(
            f"the model has {len(names)} labels: {', '.join(names)}", expected=", ".join(labels)
        )
    return [positions[label.casefold()] for label in labels]
