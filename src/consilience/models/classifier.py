"""Models that read two texts: classifiers of sentence pairs, and the judge of two answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.core.errors import DEFAULT_LOADING, ConsilienceError, Joined, Loading
from consilience.core.free_text import numbers_in
from consilience.core.items import Floats, Form, as_lines, as_string, group_rows, padded
from consilience.core.text import NEGATIONS
from consilience.files.read import parse_json
from consilience.models.batches import ReadyModel, one_thread, positions
from consilience.models.loading import Kind, Pretrained, load_classifier, load_encoder
from consilience.models.tokens import log_softmax, too_long
from consilience.types import Scores

FILE = "consilience.json"  # Beside a fine-tuned model: the format that it was trained on

USUAL: Mapping[Kind, Joined] = {"masked": "pair", "causal": "string", "seq2seq": "string"}
"""Two segments for encoders, one string for all others."""

PART = 1000  # Forms that the tokenizer reads at once; each takes several kilobytes
Encoded = dict[str, list[int]]  # A tokenized form, by the name of the model's argument


@dataclass(frozen=True, slots=True)
class PairFormat:
    """How a classifier reads a form, as far as CALUM's paper leaves it open."""

    joined: Joined  # Two segments, or one string
    indicators: tuple[str, str] | None = None  # The indicators that the model was trained with

    @classmethod
    def of(cls, kind: Kind, family: str = "") -> PairFormat:
        """``family``: of a classifier that others trained; BART's read two segments."""
        return cls("pair" if family in ("bart", "mbart") else USUAL[kind])

    def save(self, folder: Path) -> None:
        text = json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def beside(cls, folder: Path) -> PairFormat | None:
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            record = parse_json(path.read_text(encoding="utf-8"))
            indicators = record["indicators"]
            pair = (str(indicators[0]), str(indicators[1])) if indicators else None
            if record["joined"] in get_args(Joined) and record.get("pool", "last") == "last":
                return cls(record["joined"], pair)
            raise ValueError("a reading that is not known")
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ConsilienceError("not the record of a reading", where=str(path)) from error


class PairInput:
    """Turns forms into token ids. Special tokens in a sentence are read as text."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, reading: PairFormat
    ) -> None:
        if not tokenizer.is_fast:
            raise ConsilienceError("no fast tokenizer", expected="a tokenizer.json")
        extra = tokenizer.num_special_tokens_to_add
        if reading.joined == "pair" and extra(pair=True) <= extra(pair=False):
            raise ConsilienceError("a tokenizer that puts nothing between two sentences")
        self.tokenizer, self.reading = tokenizer, reading
        self.longest = min(tokenizer.model_max_length, positions(model))

    def encode(self, forms: Sequence[Form]) -> list[Encoded]:
        encoded: list[Encoded] = []
        for start in range(0, len(forms), PART):
            part = forms[start : start + PART]
            texts: list[list[str]] = [[as_string(form) for form in part]]
            if self.reading.joined == "pair":
                texts = [[form[at].text for form in part] for at in (0, 1)]
            columns: Any = self.tokenizer(*texts, verbose=False, split_special_tokens=True)
            names = [one for one in self.tokenizer.model_input_names if one in columns]
            for row in range(len(part)):
                encoded.append(
                    {one: list(columns[one][row]) for one in names if one != "attention_mask"}
                )
        return encoded


class PairClassifier(ReadyModel):
    """A model with a trained classification head that chooses among the labels of a task."""

    def __init__(self, loaded: Pretrained, labels: Sequence[str], reading: PairFormat) -> None:
        super().__init__(loaded)
        self.input = PairInput(loaded.model, loaded.tokenizer, reading)
        self.labels = tuple(labels)
        self._columns = label_positions(labels, dict(loaded.model.config.id2label or {}))
        self.identity |= {"joined": reading.joined}

    def text(self, shown: Form) -> str:
        return as_string(shown) if self.input.reading.joined == "string" else as_lines(shown)

    def why_not(self, shown: Sequence[Form]) -> list[str | None]:
        sizes = (len(form["input_ids"]) for form in self.input.encode(shown))
        return [too_long(size, self.input.longest) for size in sizes]

    def score(
        self, shown: Sequence[Form], candidates: None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        """Log-probabilities, in nats, of the task's labels for each form; each exactly once.

        Equal forms are read once, in batches of one length, and near ties alone
        (docs/decisions.md), so that no score depends on the other forms.
        """
        encoded = self.input.encode(shown)
        rows_of = [*group_rows(tuple(map(tuple, form.values())) for form in encoded).values()]
        distinct = [encoded[rows[0]] for rows in rows_of]
        lengths = [len(form["input_ids"]) for form in distinct]
        for batch, logits in self.settled(self._logits, distinct, lengths):
            rows = [rows_of[at] for at in batch]
            logprob = np.repeat(log_softmax(logits), [*map(len, rows)], axis=0)
            yield Scores(np.concatenate(rows), self.labels, logprob)

    def _logits(self, forms: list[Encoded]) -> torch.Tensor:
        return read(forms, self.model)[:, self._columns]


def load_pair_classifier(
    spec: str, labels: Sequence[str], loading: Loading = DEFAULT_LOADING
) -> PairClassifier:
    """A trained classifier from the Hub or a folder, which reads pairs as in its training."""
    loaded = load_classifier(spec, loading)
    family = loaded.model.config.model_type
    reading = PairFormat.beside(Path(spec)) or PairFormat.of(loaded.kind, family)
    return PairClassifier(loaded, labels, reading)


@torch.inference_mode()
def read(forms: Sequence[Encoded], model: PreTrainedModel) -> torch.Tensor:
    """Logits (form, label) of a few forms."""
    inputs = collate(forms, int(getattr(model.config, "pad_token_id", None) or 0))
    moved = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    return logits_of(model, moved)


def collate(forms: Sequence[Encoded], pad: int) -> dict[str, torch.Tensor]:
    """Ids and attention (form, token), padded on the right."""
    inputs = {name: [form[name] for form in forms] for name in forms[0]}
    inputs["attention_mask"] = [[1] * len(ids) for ids in inputs["input_ids"]]
    return {
        name: torch.from_numpy(padded(rows, pad if name == "input_ids" else 0))
        for name, rows in inputs.items()
    }


def logits_of(model: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Logits (form, label).

    A decoder's head reads the last token, which the attention mask marks. Transformers would look
    for the id of the padding, which may also occur in the text.
    """
    if not hasattr(model, "score"):  # the head of a decoder, which reads one vector of a sequence
        logits: torch.Tensor = model(**inputs).logits
        return logits
    hidden = model.base_model(**inputs).last_hidden_state
    rows = torch.arange(len(hidden), device=hidden.device)
    scores: torch.Tensor = model.score(hidden[rows, inputs["attention_mask"].sum(dim=1) - 1])
    return scores


def label_positions(labels: Sequence[str], id2label: Mapping[Any, str]) -> list[int]:
    """Position of each of the task's labels among the model's, whatever the case."""
    names = [str(id2label[number]) for number in sorted(id2label)]
    positions = {name.casefold(): position for position, name in enumerate(names)}
    is_known = all(label.casefold() in positions for label in labels)
    if not is_known or len(names) != len(labels):
        raise ConsilienceError(
            f"the model's labels are {', '.join(names)}",
            expected=", ".join(labels),
            todo="Say what they mean, in the model's order, as id2label in its config.json.",
        )
    return [positions[label.casefold()] for label in labels]


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
            with one_thread():
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
