"""Sentence-pair classifiers: the probability of each label of a form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from consilience.choices import Joined, Pool
from consilience.errors import ConsilienceError, did_you_mean
from consilience.models.batches import NEAR_TIE, Budget, log_softmax
from consilience.models.fast import speed_up
from consilience.models.forward import Floats, Ints
from consilience.models.loading import Kind, Pretrained, load_classifier
from consilience.models.pair_input import Encoded, PairInput, Reading
from consilience.models.scoring import group_rows, score_batches, settle_rows
from consilience.types import Form, Scores


class PairClassifier:
    """A model with a trained classification head, asked for the labels of a task.

    ``labels``: the task's, in its order; they are found among the model's own by name.
    """

    def __init__(
        self,
        loaded: Pretrained,
        labels: Sequence[str],
        reading: Reading,
        model_labels: Sequence[str] | None = None,
    ) -> None:
        self.model = loaded.model.eval()
        self.kind = loaded.kind
        self.input = PairInput(loaded.model, loaded.tokenizer, loaded.kind, reading)
        self.labels = tuple(labels)
        self.places = places_of(labels, dict(loaded.model.config.id2label or {}), model_labels)
        self.identity = loaded.identity | {
            "joined": reading.joined,
            "pool": reading.pool,
            "longest": self.input.longest,
            "model_labels": list(model_labels) if model_labels else None,
        }
        self.products = speed_up(loaded.model, head=False)
        self.budget = Budget.of(loaded.model)

    @property
    def longest(self) -> int:
        """How many tokens a form may have."""
        return self.input.longest

    def encode(self, forms: Sequence[Form]) -> list[Encoded]:
        """The ids of each form, however long."""
        return self.input.encode(forms)

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """All variants of one item, truncated so that each fits (``pair_input.fit``)."""
        return self.input.fit(forms)

    def why_not(self, form: Form) -> str | None:
        """Why a form cannot be asked: there is nothing that it cannot read."""
        return None

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the task's labels for each form; each exactly once.

        Forms of the same tokens are read once. What a form says does not depend on the others: they
        are read in batches of one length, and near ties alone (docs/decisions/0007).
        """
        encoded = self.input.encode(forms)
        rows = list(group_rows(tuple(map(tuple, each.values())) for each in encoded).values())
        unique = [encoded[queries[0]] for queries in rows]
        for batch, logits in predict(
            self.model, self.kind, self.input.reading, unique, self.budget
        ):
            chosen = self._settled(logits[:, self.places], [unique[at] for at in batch])
            counts = [len(rows[at]) for at in batch]
            yield Scores(
                np.concatenate([rows[at] for at in batch]),
                self.labels,
                np.repeat(log_softmax(chosen), counts, axis=0),
            )

    def _settled(self, logits: Floats, forms: Sequence[Encoded]) -> Floats:
        """Logits (form, label), near ties decided by passes of their own."""

        def score_alone(row: int) -> Floats:
            alone = read([forms[row]], self.model, self.kind, self.input.reading)
            scores: Floats = alone.double().cpu().numpy()[0, self.places]
            return scores

        settle_rows(logits, NEAR_TIE[self.model.dtype], score_alone)
        return logits


def load_pair_classifier(
    spec: str,
    labels: Sequence[str],
    *,
    joined: Joined | None = None,
    pool: Pool | None = None,
    longest: int | None = None,
    model_labels: Sequence[str] | None = None,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> PairClassifier:
    """A trained classifier from the Hub or a folder; what is not given is as it was trained."""
    loaded = load_classifier(
        spec,
        revision=revision,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
    )
    reading = Reading.beside(Path(spec)) or Reading.of(loaded.kind)
    reading = Reading(
        joined or reading.joined,
        pool or reading.pool,
        reading.longest if longest is None else longest,
        reading.indicators,
    )
    return PairClassifier(loaded, labels, reading, model_labels)


def predict(
    model: PreTrainedModel,
    kind: Kind,
    reading: Reading,
    encoded: Sequence[Encoded],
    budget: Budget,
) -> Iterator[tuple[Ints, Floats]]:
    """Positions of forms, with their logits (form, label), in batches of one length."""

    def score_batch(batch: Ints) -> Floats:
        logits = read([encoded[at] for at in batch], model, kind, reading)
        scores: Floats = logits.double().cpu().numpy()
        return scores

    lengths = [len(form["input_ids"]) for form in encoded]
    yield from score_batches(score_batch, lengths, budget, model.device)


@torch.inference_mode()
def read(
    forms: Sequence[Encoded], model: PreTrainedModel, kind: Kind, reading: Reading
) -> torch.Tensor:
    """Logits (form, label) of a few forms."""
    inputs = collate(forms, int(getattr(model.config, "pad_token_id", None) or 0))
    moved = {name: each.to(model.device) for name, each in inputs.items()}
    return logits_of(model, kind, reading.pool, moved)


def collate(forms: Sequence[Encoded], pad: int) -> dict[str, torch.Tensor]:
    """Ids and attention (form, token), padded on the right."""
    longest = max(len(each["input_ids"]) for each in forms)
    inputs: dict[str, torch.Tensor] = {}
    for name in forms[0]:
        filler = pad if name == "input_ids" else 0
        rows = [each[name] + [filler] * (longest - len(each[name])) for each in forms]
        inputs[name] = torch.tensor(rows)
    lengths = torch.tensor([len(each["input_ids"]) for each in forms])
    inputs["attention_mask"] = (torch.arange(longest) < lengths[:, None]).long()
    return inputs


def logits_of(
    model: Any, kind: Kind, pool: Pool, inputs: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Logits (form, label); a decoder's head reads where ``pool`` says.

    Transformers would look for a decoder's last token by the id of the padding, which may stand in
    the text; here the attention tells it.
    """
    if kind != "causal":
        found: torch.Tensor = model(**inputs).logits
        return found
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


def places_of(
    labels: Sequence[str], id2label: Mapping[Any, str], given: Sequence[str] | None
) -> list[int]:
    """Where each of the task's labels stands among the model's; the case does not count.

    ``given``: the model's labels in its order, for a model that does not name them.
    """
    own = list(given) if given else [str(id2label[at]) for at in sorted(id2label)]
    if len(own) != len(id2label):
        raise ConsilienceError(
            f"{len(own)} labels in --model-labels", expected=f"the model's {len(id2label)}"
        )
    at = {label.casefold(): place for place, label in enumerate(own)}
    for label in labels:
        if label.casefold() not in at:
            unnamed = all(each.startswith("LABEL_") for each in own)
            raise ConsilienceError(
                f"the model's labels are {', '.join(own)}",
                expected=", ".join(labels),
                todo="Say what they mean, in the model's order: --model-labels A,B."
                if unnamed
                else did_you_mean(label, own),
            )
    if len(own) != len(labels):
        raise ConsilienceError(
            f"the model has {len(own)} labels: {', '.join(own)}", expected=", ".join(labels)
        )
    return [at[label.casefold()] for label in labels]
