"""Vectors of texts, and a judge of whether two texts mean the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from consilience.core.errors import DEFAULT_LOADING, ConsilienceError, Loading
from consilience.core.free_text import numbers_in
from consilience.core.items import Floats, Ints
from consilience.core.text import NEGATIONS
from consilience.models import LanguageModel
from consilience.models.batches import StateReader, positions, score_batches
from consilience.models.fast.products import reproducibly
from consilience.models.loading import load_encoder
from consilience.types import Query

Vectors = npt.NDArray[np.float32]


def vector_array(
    model: LanguageModel,
    queries: Sequence[Query],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
) -> Vectors:
    """Hidden states (query, layer, width) where the object is predicted; NaN where not readable.

    Layers are those of transformers' ``hidden_states``: 0 is the input of the first layer, 1 its
    output, -1 the last; families that end in a layer norm (GPT-2, Llama, T5) have that after it.
    Masked models: at the mask; without ``special_tokens`` of the sentence without ``[CLS]`` and
    ``[SEP]``, as the released code encodes it. Causal models: at the last token before the object,
    which may be the start token. Sequence-to-sequence models: at the last token that the decoder is
    given before the object.
    """
    reader_of = getattr(model, "hidden_states", None)
    if reader_of is None:
        raise ConsilienceError(
            f"'{model.identity.get('model')}' has no hidden states to look at",
            expected="a masked, causal or sequence-to-sequence model",
        )
    reader: StateReader = reader_of(queries, special_tokens=special_tokens)
    device, budget = reader.family.model.device, reader.family.budget

    @torch.inference_mode()
    def states_of(rows: list[Sequence[int]]) -> list[torch.Tensor]:
        return reader.states(torch.tensor(rows, device=device))

    widths = [state.shape[-1] for state in states_of([[reader.shortest]])]
    last = len(widths) - 1
    for layer in layers:
        if not -last - 1 <= layer <= last:
            raise ConsilienceError(
                f"'{reader.family.identity['model']}' has no layer {layer}",
                expected=f"0 (the embeddings) to {last}, or -1 (the last) to {-last - 1}",
            )
    if not queries or not layers:
        raise ConsilienceError(
            "no queries or no layers", expected="one query and one layer at least"
        )
    readable = [ids for ids in reader.inputs if reader.why_not(ids) is None]

    def read_batch(batch: Ints) -> Vectors:
        states = states_of([readable[at] for at in batch])
        return torch.stack([states[layer] for layer in layers], dim=1).float().cpu().numpy()

    found = np.full((len(queries), len(layers), widths[layers[0]]), np.nan, dtype=np.float32)
    for batch, states in score_batches(read_batch, list(map(len, readable)), budget, device):
        for at, of_sentence in zip(batch, states, strict=True):
            found[reader.inputs[readable[at]]] = of_sentence
    return found


THRESHOLD = 0.96
"""Cosine similarity from which two answers mean the same, unless another is given.

Chosen for all-MiniLM-L6-v2: of 0.50, 0.51, ..., 0.99 the one with the fewest errors on the part
``tune`` of ``docs/results/free-text/answer-pairs.tsv`` (docs/free-text.md).
"""

AnswerPair = tuple[str, str, str]  # A question and two answers to it


LONGEST_QUESTION = 300
"""Characters of a question that a judge reads, its last: a long one would outweigh the answers."""


def _asked(question: str, answer: str) -> str:
    return f"{question[-LONGEST_QUESTION:]} {answer}"


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
            "judge": "embedding", "threshold": threshold, **loaded.identity,
        }  # fmt: skip
        self._model: Any = loaded.model.eval()
        self._tokenizer: Any = loaded.tokenizer
        self._embeddings: dict[str, Floats] = {}

    def same(self, pairs: Sequence[AnswerPair]) -> list[bool]:
        similar = [similarity >= self.threshold for similarity in self.similarities(pairs)]
        both = zip(similar, pairs, strict=True)
        return [is_similar and not contradict(*answers) for is_similar, (_, *answers) in both]

    def similarities(self, pairs: Sequence[AnswerPair]) -> list[float]:
        return [
            float(self._embedding(_asked(question, one)) @ self._embedding(_asked(question, two)))
            for question, one, two in pairs
        ]

    @torch.inference_mode()
    def _embedding(self, text: str) -> Floats:
        if text not in self._embeddings:
            longest = min(self._tokenizer.model_max_length, positions(self._model))
            encoded = self._tokenizer(
                text, return_tensors="pt", truncation=True, max_length=longest
            )
            with reproducibly():
                states = self._model(**encoded.to(self._model.device)).last_hidden_state[0]
            vector = states.double().mean(dim=0).cpu().numpy()
            self._embeddings[text] = vector / np.linalg.norm(vector)
        return self._embeddings[text]


def load_judge(spec: str, loading: Loading = DEFAULT_LOADING) -> EmbeddingJudge:
    """The judge of ``embedding:MODEL`` or ``embedding:MODEL:THRESHOLD``."""
    kind, _, model = spec.partition(":")
    if kind != "embedding" or not model:
        found = f"the judge {spec}"
        raise ConsilienceError(found, expected="embedding:MODEL or embedding:MODEL:THRESHOLD")
    name, _, number = model.rpartition(":")
    try:
        threshold = float(number)
    except ValueError:
        return EmbeddingJudge(model, loading=loading)
    return EmbeddingJudge(name, threshold, loading) if name else EmbeddingJudge(model)
