"""Python functions as models: one that writes texts, and one that scores sentences."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError
from consilience.core.text import counted, fold_case, truncated
from consilience.files.read import whole_characters
from consilience.types import Candidates, Query, Scores

BLANK = "___"
"""Replaces the object in the sentence of a prompt."""

SENTENCE, CHOICES = "{sentence}", "{candidates}"
"""What a template is filled with: the sentence with its blank, and all candidates."""

QUOTED = 60
"""Characters of a text that a note or an error quotes."""


class TextFunction:
    """A function from a list of prompts to a list of texts, as a model of facts.

    A prompt is ``template`` with ``{sentence}`` and ``{candidates}`` filled in; the sentence has
    ``___`` instead of the object. ``match_candidate`` finds the candidate of a text. A text
    that matches none counts as a wrong answer. An empty text is no answer.
    """

    def __init__(
        self, function: Callable[[list[str]], Sequence[str]], template: str | None = None
    ) -> None:
        self.function = function
        self.template = template or SENTENCE
        if SENTENCE not in self.template:
            raise ConsilienceError(
                f"the template '{self.template}'", expected=f"a text with {SENTENCE}"
            )
        self.identity = identity_of(function, "texts") | {"template": self.template}
        self.notes: list[str] = []

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """The candidate of each text; there are no log-probabilities."""
        words = _words_of(candidates)
        if every:
            raise ConsilienceError(
                "a function that writes texts has no scores of candidates",
                todo="Leave out keep_scores and noise_floor, or use ScoringFunction.",
            )
        prompts = [self._prompt(query, words) for query in queries]
        texts = texts_of(self.function, prompts)
        matches = [
            match_candidate(text, query, words) for text, query in zip(texts, queries, strict=True)
        ]
        unmatched = [
            text for text, word in zip(texts, matches, strict=True) if text and word is None
        ]
        self._note(queries, unmatched)
        yield from chosen_words(texts, matches, words)

    def _prompt(self, query: Query, words: Sequence[str]) -> str:
        sentence = query.pattern.fill_blank(query.subject, BLANK)
        return self.template.replace(CHOICES, ", ".join(words)).replace(SENTENCE, sentence)

    def _note(self, queries: Sequence[Query], unmatched: Sequence[str]) -> None:
        if unmatched:
            total = f"{len(queries)} texts to queries such as '{queries[0].pattern.text}'"
            self.notes.append(unmatched_note(unmatched, total, "candidate"))


class ScoringFunction:
    """A function from a list of sentences to their log-probabilities in nats, as a model of facts.

    Each query becomes one sentence for each candidate. The answer is the candidate whose sentence
    has the highest log-probability.
    """

    def __init__(self, function: Callable[[list[str]], Sequence[float]]) -> None:
        self.function = function
        self.identity = identity_of(function, "log-probabilities")
        self.notes: list[str] = []

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """Log-probabilities of the sentences, normalised over the candidates."""
        from scipy.special import log_softmax

        words = _words_of(candidates)
        sentences = [query.pattern.fill(query.subject, word) for query in queries for word in words]
        values = call(self.function, sentences, float)
        totals = np.array(values, dtype=np.float64).reshape(len(queries), len(words))
        rows = np.arange(len(queries))
        yield Scores(rows, tuple(words), log_softmax(totals, axis=1), totals=totals)


def match_candidate(text: str, query: Query, words: Sequence[str]) -> str | None:
    """The candidate that a text is, alone or within the whole sentence; None for no candidate.

    The text and the candidates are compared as they are; then without regard to case, Unicode form
    and repeated spaces; then without punctuation. The first comparison with exactly one candidate
    decides. A text that merely contains a candidate is no match.
    """
    around = query.pattern.around_object(query.subject)
    for same in (str.strip, _folded, _plain):
        left, right = map(same, around)
        inner = same(text)
        inside = same(inner.removeprefix(left).removesuffix(right))
        matches = [word for word in words if same(word) in (inner, inside)]
        if len(matches) == 1:
            return matches[0]
    return None


def _folded(text: str) -> str:
    """Without case, Unicode form and repeated spaces."""
    return " ".join(fold_case(unicodedata.normalize("NFKC", text)).split())


def _plain(text: str) -> str:
    """The same without punctuation and symbols; the marks of letters stay."""
    letters = "".join(
        letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in _folded(text)
    )
    return " ".join(letters.split())


def unmatched_note(texts: Sequence[str], of: str, kind: str) -> str:
    """A note on the texts that match no candidate or label; ``of``: how many there are in all."""
    text = quoted(texts[0])
    return f"{len(texts)} of {of} match no {kind}, such as '{text}'; they count as wrong answers"


def quoted(text: str) -> str:
    """The beginning of a text."""
    return truncated(text, QUOTED)


def chosen_words(
    texts: Sequence[str], matches: Sequence[str | None], words: Sequence[str]
) -> Iterator[Scores]:
    """Scores that order the candidates only; a text that matches none is a word of its own."""
    empty = np.array([at for at, text in enumerate(texts) if not text], dtype=np.int64)
    if len(empty):
        nothing = np.full((len(empty), len(words)), np.nan)
        yield Scores(empty, tuple(words), nothing, unasked="the model wrote no text")
    rows = [at for at, text in enumerate(texts) if text]
    if not rows:
        return
    answers = [matches[at] or texts[at] for at in rows]
    others = [word for word in dict.fromkeys(answers) if word not in words]
    position = {word: at for at, word in enumerate([*words, *others])}
    totals = np.full((len(rows), len(position)), -np.inf)
    totals[np.arange(len(rows)), [position[answer] for answer in answers]] = 0.0
    yield Scores(
        np.array(rows, dtype=np.int64),
        tuple(position),
        None,
        dict.fromkeys(others, "no candidate"),
        totals=totals,
        answers_only=True,
    )


def _words_of(candidates: Candidates | None) -> tuple[str, ...]:
    if candidates is None:
        raise ConsilienceError(
            "a function has no vocabulary", todo='Ask it with candidates="objects".'
        )
    return candidates.words


def identity_of(function: Callable[..., Any], kind: str) -> dict[str, object]:
    """What a run records of a function: its name."""
    name = getattr(function, "__name__", type(function).__name__)
    return {"model": "function" if name == "<lambda>" else name, "kind": f"function of {kind}"}


def texts_of(function: Callable[[list[Any]], Any], inputs: Sequence[Any]) -> list[str]:
    """The texts that a function writes to inputs; equal inputs are asked once."""
    distinct = list(dict.fromkeys(inputs))
    written = dict(zip(distinct, call(function, distinct, str), strict=True))
    return [whole_characters(written[value].strip()) for value in inputs]


def call(function: Callable[[list[Any]], Any], inputs: list[Any], kind: type) -> list[Any]:
    """What a function makes of the inputs: as many values of that type.

    What the function raises is the cause of the error.
    """
    try:
        values = function(inputs)
    except ConsilienceError:
        raise
    except Exception as error:
        first, last = quoted(str(inputs[0])), quoted(str(inputs[-1]))
        raise ConsilienceError(
            f"the function raised {type(error).__name__} ({str(error).rstrip('.')}) on "
            f"{counted(len(inputs), 'input')}, from '{first}' to '{last}'",
            todo="Correct the function. With a folder for the run, complete groups are kept.",
        ) from error
    noun = "text" if kind is str else "number"
    if isinstance(values, str | Mapping) or not hasattr(values, "__iter__"):
        raise ConsilienceError(
            f"the function returned a value of type {type(values).__name__}",
            expected=f"a list with one {noun} for each of {counted(len(inputs), 'input')}",
        )
    values = list(values)
    if len(values) != len(inputs):
        raise ConsilienceError(
            f"the function returned {counted(len(values), 'value')} for "
            f"{counted(len(inputs), 'input')}",
            expected=f"one {noun} for each",
        )
    for at, value in enumerate(values):
        if not _is_value(value, kind):
            raise ConsilienceError(
                f"the function returned {value!r} for input {at + 1}", expected=f"a {noun}"
            )
    return values


def _is_value(value: object, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str)
    return isinstance(value, int | float | np.floating) and not np.isnan(value)
