"""Judges of whether two short answers mean the same: an NLI classifier, or sentence embeddings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from consilience.choices import DEFAULT_LOADING, Loading
from consilience.errors import ConsilienceError, did_you_mean
from consilience.models.classifier import PairClassifier
from consilience.models.fast import reproducibly
from consilience.models.forward import Floats
from consilience.models.loading import load_classifier, load_encoder
from consilience.models.pair_input import PairFormat
from consilience.numbers_in_text import numbers_in
from consilience.sentence_pairs import Segment
from consilience.text import NEGATIONS

THRESHOLD = 0.96
"""Cosine similarity from which two answers mean the same, unless another is given.

Chosen for all-MiniLM-L6-v2: of 0.50, 0.51, ..., 0.99 the one with the fewest errors on the part
``tune`` of ``suites/answer_pairs.tsv`` (docs/free-text.md).
"""

ENTAILMENT = "entailment"
"""The label that an NLI classifier has to have."""

KINDS = ("nli", "embedding")
"""What a judge begins with, before the name of its model."""

AnswerPair = tuple[str, str, str]
"""A question and two answers to it."""


class EntailmentJudge:
    """Two answers mean the same if each, after the question, entails the other.

    Both directions must have entailment as the most probable label (Kuhn et al. 2023, Section 3.2).
    """

    def __init__(self, spec: str, loading: Loading = DEFAULT_LOADING) -> None:
        loaded = load_classifier(spec, loading)
        of_model: Mapping[Any, str] = loaded.model.config.id2label or {}
        names = [str(name).casefold() for name in of_model.values()]
        if ENTAILMENT not in names:
            raise ConsilienceError(
                f"the labels of '{spec}' are {', '.join(names)}",
                expected=f"an NLI classifier, with the label '{ENTAILMENT}'",
            )
        labels = [ENTAILMENT, *(name for name in names if name != ENTAILMENT)]
        reading = PairFormat.beside(Path(spec)) or PairFormat.of(loaded.kind)
        self._classifier = PairClassifier(loaded, labels, reading)
        self.identity: dict[str, object] = {"judge": "nli", **self._classifier.identity}

    def same(self, pairs: Sequence[AnswerPair]) -> list[bool]:
        """Whether the answers of each pair entail each other."""
        if not pairs:
            return []
        forms = [
            tuple(Segment("", f"{question} {answer}", after="") for answer in order)
            for question, one, two in pairs
            for order in ((one, two), (two, one))
        ]
        entails = np.zeros(len(forms), dtype=bool)
        for scores in self._classifier.score(forms):
            assert scores.logprob is not None  # a classifier scores every label
            entails[scores.rows] = scores.logprob.argmax(axis=1) == 0
        return [bool(one and two) for one, two in entails.reshape(-1, 2)]


def contradict(one: str, two: str) -> bool:
    """Whether both answers have numbers, but not the same, or only one of them has a negation.

    Embeddings hardly differ there: MiniLM's of *eight* and *not eight* have a cosine of 0.996.
    """
    with suppress(ConsilienceError):  # digits that are not read
        numbers = [set(numbers_in(answer)) for answer in (one, two)]
        if all(numbers) and numbers[0] != numbers[1]:
            return True
    return bool(re.search(NEGATIONS, one.casefold())) != bool(re.search(NEGATIONS, two.casefold()))


class EmbeddingJudge:
    """Two answers mean the same if the cosine of their embeddings reaches a threshold.

    Answers that ``contradict`` each other do not mean the same, however similar they are.

    The text of an embedding is the question and the answer. The embedding is the mean of the last
    hidden states of its tokens, as sentence encoders such as all-MiniLM-L6-v2 are trained (Reimers
    and Gurevych 2019).
    """

    def __init__(
        self, spec: str, threshold: float = THRESHOLD, loading: Loading = DEFAULT_LOADING
    ) -> None:
        if not 0 < threshold <= 1:
            raise ConsilienceError(
                f"the threshold {threshold:g} of --equivalence", expected="above 0, at most 1"
            )
        loaded = load_encoder(spec, loading)
        self.threshold = threshold
        self.identity: dict[str, object] = {
            "judge": "embedding",
            "threshold": threshold,
            **loaded.identity,
        }
        self._model: Any = loaded.model.eval()
        self._tokenizer: Any = loaded.tokenizer
        self._embeddings: dict[str, Floats] = {}

    def same(self, pairs: Sequence[AnswerPair]) -> list[bool]:
        """Whether the answers of each pair are as similar as the threshold."""
        return [
            similarity >= self.threshold and not contradict(one, two)
            for similarity, (_, one, two) in zip(self.similarities(pairs), pairs, strict=True)
        ]

    def similarities(self, pairs: Sequence[AnswerPair]) -> list[float]:
        """The cosine similarity of the answers of each pair."""
        return [
            float(self._embedding(f"{question} {one}") @ self._embedding(f"{question} {two}"))
            for question, one, two in pairs
        ]

    @torch.inference_mode()
    def _embedding(self, text: str) -> Floats:
        """The unit vector (width,) of a text, which is read alone."""
        if text not in self._embeddings:
            encoded = self._tokenizer(text, return_tensors="pt", truncation=True)
            with reproducibly():
                states = self._model(**encoded.to(self._model.device)).last_hidden_state[0]
            vector = states.double().mean(dim=0).cpu().numpy()
            self._embeddings[text] = vector / np.linalg.norm(vector)
        return self._embeddings[text]


def load_judge(spec: str, loading: Loading = DEFAULT_LOADING) -> EntailmentJudge | EmbeddingJudge:
    """The judge of ``nli:MODEL``, ``embedding:MODEL`` or ``embedding:MODEL:THRESHOLD``."""
    kind, _, model = spec.partition(":")
    if kind not in KINDS or not model:
        raise ConsilienceError(
            f"--equivalence {spec}",
            expected="nli:MODEL or embedding:MODEL[:THRESHOLD]",
            todo=did_you_mean(kind, list(KINDS)) if kind not in KINDS else "Name a model.",
        )
    if kind == "nli":
        return EntailmentJudge(model, loading)
    name, _, number = model.rpartition(":")
    try:
        threshold = float(number)
    except ValueError:
        return EmbeddingJudge(model, loading=loading)
    return EmbeddingJudge(name, threshold, loading) if name else EmbeddingJudge(model)
