"""A judge of whether two answers mean the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from consilience.core.errors import DEFAULT_LOADING, ConsilienceError, Loading
from consilience.core.free_text import numbers_in
from consilience.core.items import Floats
from consilience.core.text import NEGATIONS
from consilience.models.batches import positions
from consilience.models.loading import load_encoder
from consilience.models.products import reproducibly

THRESHOLD = 0.96
"""Cosine similarity from which two answers mean the same, unless another is given.

Chosen for all-MiniLM-L6-v2: of 0.50, 0.51, ..., 0.99 the one with the fewest errors on the part
``tune`` of ``docs/results/free-text/answer-pairs.tsv`` (docs/free-text.md).
"""

LONGEST_QUESTION = 300  # Characters of a question, its last, that do not outweigh the answers

AnswerPair = tuple[str, str, str]  # A question and two answers to it


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

    Answers that ``contradict`` each other do not. An embedding is the mean of the last hidden
    states of question and answer, as all-MiniLM-L6-v2 is trained (Reimers and Gurevych 2019).
    The adapter of ``loading`` is that of the model that is asked.
    """

    def __init__(
        self, spec: str, threshold: float = THRESHOLD, loading: Loading = DEFAULT_LOADING
    ) -> None:
        if not 0 < threshold <= 1:
            found = f"the threshold {threshold:g} of --match"
            raise ConsilienceError(found, expected="above 0, at most 1")
        loaded = load_encoder(spec, replace(loading, adapter=None))
        self.threshold = threshold
        self.identity = {"judge": "embedding", "threshold": threshold, **loaded.identity}
        self._model, self._tokenizer = cast(Any, loaded.model.eval()), loaded.tokenizer
        self._embeddings: dict[str, Floats] = {}

    def same(self, pairs: Sequence[AnswerPair]) -> list[bool]:
        both = zip(self.similarities(pairs), pairs, strict=True)
        return [of >= self.threshold and not contradict(*answers) for of, (_, *answers) in both]

    def similarities(self, pairs: Sequence[AnswerPair]) -> list[float]:
        found = []
        for question, *answers in pairs:
            one, two = (self._embedding(f"{question[-LONGEST_QUESTION:]} {to}") for to in answers)
            found.append(float(one @ two))
        return found

    @torch.inference_mode()
    def _embedding(self, text: str) -> Floats:
        if text not in self._embeddings:
            most = min(self._tokenizer.model_max_length, positions(self._model))
            encoded = self._tokenizer(text, return_tensors="pt", truncation=True, max_length=most)
            with reproducibly():
                states = self._model(**encoded.to(self._model.device)).last_hidden_state[0]
            vector = states.double().mean(dim=0).cpu().numpy()
            self._embeddings[text] = vector / np.linalg.norm(vector)
        return self._embeddings[text]


def load_judge(spec: str, loading: Loading = DEFAULT_LOADING) -> EmbeddingJudge:
    """The judge of ``embedding:MODEL`` or ``embedding:MODEL:THRESHOLD``."""
    kind, _, model = spec.partition(":")
    if kind != "embedding" or not model:
        expected = "embedding:MODEL or embedding:MODEL:THRESHOLD"
        raise ConsilienceError(f"the judge {spec}", expected=expected)
    name, _, number = model.rpartition(":")
    try:
        threshold = float(number)
    except ValueError:
        return EmbeddingJudge(model, loading=loading)
    return EmbeddingJudge(name, threshold, loading)
