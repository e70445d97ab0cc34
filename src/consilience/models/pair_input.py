"""Sentence pairs as a model reads them: two segments or one string, and never too long."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from consilience.choices import Joined, Pool
from consilience.errors import ConsilienceError
from consilience.models.loading import Kind
from consilience.models.masked import positions
from consilience.read import parse_json
from consilience.sentence_pairs import Form, as_string

FILE = "consilience.json"
"""The file beside a fine-tuned model with the format that it was trained on."""

USUAL: Mapping[Kind, Joined] = {"masked": "pair", "causal": "string", "seq2seq": "string"}
"""Two segments for encoders, one string for all others."""

PART = 1000
"""Forms that the tokenizer reads at once; each takes several kilobytes."""

Encoded = dict[str, list[int]]
"""A tokenized form, by the name of the model's argument."""


@dataclass(frozen=True, slots=True)
class PairFormat:
    """How a classifier reads a form, as far as CALUM's paper leaves it open."""

    joined: Joined
    """Two segments, or one string."""
    pool: Pool = "last"
    """Where a decoder's head reads."""
    longest: int = 0
    """Maximum number of tokens; 0 for as many as the model takes."""
    indicators: tuple[str, str] | None = None
    """The indicators that the model was trained with."""

    @classmethod
    def of(cls, kind: Kind) -> PairFormat:
        """The usual format of a kind of model."""
        return cls(USUAL[kind])

    def save(self, folder: Path) -> None:
        """Write the format to the folder of a model."""
        text = json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def beside(cls, folder: Path) -> PairFormat | None:
        """The format in the folder of a model; None if there is none."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            record = parse_json(path.read_text(encoding="utf-8"))
            indicators = record["indicators"]
            saved = cls(
                record["joined"],
                record["pool"],
                int(record["longest"]),
                (str(indicators[0]), str(indicators[1])) if indicators else None,
            )
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ConsilienceError("not the record of a reading", where=str(path)) from error
        if saved.joined not in get_args(Joined) or saved.pool not in get_args(Pool):
            raise ConsilienceError("a reading that is not known", where=str(path))
        return saved


def has_decoder_head(model: PreTrainedModel) -> bool:
    """Whether a classifier is a decoder, whose head ``score`` reads one vector of a sequence."""
    return hasattr(model, "score")


class PairInput:
    """Turns forms into token ids. Special tokens in a sentence are read as text."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        reading: PairFormat,
    ) -> None:
        if reading.pool != "last" and not has_decoder_head(model):
            raise ConsilienceError(
                f"--pool {reading.pool} with a model that has no such choice",
                expected="a decoder",
                todo="Leave it out.",
            )
        if reading.pool == "end" and tokenizer.eos_token_id is None:
            raise ConsilienceError("--pool end, and the tokenizer has no end token")
        if not tokenizer.is_fast:
            raise ConsilienceError("no fast tokenizer", expected="a tokenizer.json")
        extra = tokenizer.num_special_tokens_to_add
        if reading.joined == "pair" and extra(pair=True) <= extra(pair=False):
            raise ConsilienceError(
                "--input pair, and the tokenizer puts nothing between two sentences",
                todo="Use --input string.",
            )
        self.tokenizer, self.reading = tokenizer, reading
        most = min(tokenizer.model_max_length, positions(model))
        if reading.longest > most:
            raise ConsilienceError(
                f"--max-length {reading.longest}", expected=f"at most the model's {most}"
            )
        self.longest = reading.longest or most

    def encode(self, forms: Sequence[Form]) -> list[Encoded]:
        """The ids of each form, of any length."""
        parts = (forms[at : at + PART] for at in range(0, len(forms), PART))
        return [encoded for part in parts for encoded in self._encode(part)]

    def _encode(self, forms: Sequence[Form]) -> list[Encoded]:
        if self.reading.joined == "pair":
            texts: Any = [[form[0].text for form in forms], [form[1].text for form in forms]]
        else:
            texts = [[as_string(form) for form in forms]]
        columns: Any = self.tokenizer(
            *texts, truncation=False, padding=False, verbose=False, split_special_tokens=True
        )
        names = [name for name in self.tokenizer.model_input_names if name in columns]
        encoded = [
            {name: list(columns[name][row]) for name in names if name != "attention_mask"}
            for row in range(len(forms))
        ]
        if self.reading.pool == "end":
            for form in encoded:
                form["input_ids"].append(int(self.tokenizer.eos_token_id))
        return encoded

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """All variants of one item, truncated so that each fits (function ``fit``)."""
        return fit(forms, self.encode, self.tokenizer, self.longest)


def fit(
    forms: Sequence[Form],
    encode: Callable[[Sequence[Form]], list[Encoded]],
    tokenizer: PreTrainedTokenizerBase,
    longest: int,
) -> list[Form]:
    """All variants of one item, truncated so that each has at most ``longest`` tokens.

    In a form that is too long, the end of the longer sentence is removed. A sentence is truncated
    at the same character in every form that contains it. So forms of the same sentences still
    differ only in order and format.
    """
    keys = [_sentence_keys(form) for form in forms]
    sentences = {key: key[0] for form_keys in keys for key in form_keys}
    fitted, stuck = list(forms), 0
    while True:
        excess: dict[frozenset[_SentenceKey], int] = {}
        for form_keys, ids in zip(keys, encode(fitted), strict=True):
            same = frozenset(form_keys)
            excess[same] = max(excess.get(same, 0), len(ids["input_ids"]) - longest)
        if not any(excess.values()):
            return fitted
        excess = {same: tokens for same, tokens in excess.items() if tokens}
        too_long = frozenset().union(*excess)
        ends = {key: _ends(sentences[key], tokenizer) for key in sentences if key in too_long}
        length = {key: len(tokens) for key, tokens in ends.items()}
        for same, tokens in excess.items():
            members = [key for key in length if key in same]
            if not any(ends[key] for key in members):
                raise ConsilienceError(
                    f"no room for the indicators in {longest} tokens", todo="Allow more."
                )
            removed = sum(len(ends[key]) - length[key] for key in members)
            for _ in range(tokens + stuck - removed):
                longer = max(members, key=lambda key: length[key])
                length[longer] = max(0, length[longer] - 1)
        shorter = sentences | {
            key: sentences[key][: token_ends[length[key] - 1]] if length[key] else ""
            for key, token_ends in ends.items()
        }
        stuck += shorter == sentences  # several tokens end at the same character
        sentences = shorter
        fitted = [
            tuple(
                replace(segment, sentence=sentences[key])
                for segment, key in zip(form, form_keys, strict=True)
            )
            for form, form_keys in zip(forms, keys, strict=True)
        ]


_SentenceKey = tuple[str, int]
"""A sentence of an item, and its number among equal sentences of a form."""


def _sentence_keys(form: Form) -> list[_SentenceKey]:
    """The key of each segment's sentence: equal sentences are numbered by their indicators."""
    order = sorted(
        range(len(form)), key=lambda at: (form[at].sentence, form[at].indicator.casefold())
    )
    keys: dict[int, _SentenceKey] = {}
    counts: dict[str, int] = {}
    for at in order:
        sentence = form[at].sentence
        keys[at] = sentence, counts.get(sentence, 0)
        counts[sentence] = counts.get(sentence, 0) + 1
    return [keys[at] for at in range(len(form))]


def _ends(sentence: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The character after which each token of a sentence ends."""
    encoded: Any = tokenizer(
        sentence,
        add_special_tokens=False,
        return_offsets_mapping=True,
        truncation=False,
        verbose=False,
        split_special_tokens=True,
    )
    return [end for _, end in encoded["offset_mapping"]]
