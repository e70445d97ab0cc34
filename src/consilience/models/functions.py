"""Models without weights: Python functions, and baselines to compare numbers with."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError, unknown_name
from consilience.core.free_text import DEFAULT_RULE, RULES, match, normalized
from consilience.core.items import (
    Choice,
    Floats,
    Ints,
    NoAnswer,
    Prompt,
    Question,
    Scores,
    TextPair,
    as_lines,
    group_rows,
)
from consilience.core.text import counted, truncated
from consilience.types import Candidates, Query

BLANK = "___"  # Replaces the object in the sentence of a prompt
SENTENCE, CHOICES = "{sentence}", "{candidates}"  # In a template
AT_ONCE = 32  # Inputs of one call of a function
QUOTED = 60  # Characters of a text that a note or a reason quotes
CELLS = 4_000_000  # Scores that are held in memory at once, unless one query has more


class Chooser:
    """A model without probabilities, which chooses one of the answers or writes something else."""

    tie = 0.0

    def __init__(self, identity: Mapping[str, object], labels: Sequence[str] = ()) -> None:
        """``labels``: the answers to sentence pairs."""
        self.identity, self.labels = dict(identity), tuple(labels)
        self.notes: list[str] = []

    def why_not(self, shown: Sequence[Any]) -> list[str | None]:
        return [None] * len(shown)

    def text(self, shown: Any) -> str:
        if isinstance(shown, Prompt):
            return f"{shown.system}\n\n{shown.text}" if shown.system else shown.text
        return as_lines(shown)


def totals_of_choice(at: int | None, size: int) -> Floats:
    """0 for the chosen one of so many answers, minus infinity for others; None: for all."""
    return np.where(np.arange(size) == at, 0.0, -np.inf)


def scores_of_replies(
    rows: Sequence[int], words: Sequence[str], shown: Sequence[Any], replies: Sequence[Any]
) -> Scores:
    """The scores of what is written in place of an answer: a text, or ``NoAnswer``."""
    texts = [reply if isinstance(reply, str) else "" for reply in replies]
    errors = [None if isinstance(reply, str) else reply.reason for reply in replies]
    totals = [
        totals_of_choice(position(text, one, words) if text else None, len(words or one.answers))
        for text, one in zip(texts, shown, strict=True)
    ]
    return Scores.of_rows(np.array(rows), totals, words=tuple(words), texts=texts, errors=errors)


class Function(Chooser):
    """A Python function, async or not, as a model of facts, sentence pairs or questions.

    It takes a text and returns one, or takes a list of up to 32 and returns a list. The first
    answer shows which: it gets a list of one text, and the text if it does not return a list of
    one. A text is the prompt of a question; of a fact ``template`` with ``{sentence}``, which has
    ``___`` for the object, and ``{candidates}`` filled in; of a sentence pair a tuple of two texts.
    Equal ones are asked once. ``labels``: the answers to sentence pairs.

    None, a blank text and an exception are no answer. Another text that is no answer is wrong.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        labels: Sequence[str] = (),
        template: str | None = None,
    ) -> None:
        self.function, self.template = function, template or SENTENCE
        if SENTENCE not in self.template:
            raise ConsilienceError(f"the template '{template}'", expected=f"a text with {SENTENCE}")
        name = getattr(function, "__name__", type(function).__name__)
        identity = {"model": name, "kind": "function", "template": self.template}
        super().__init__(identity, labels)
        self.takes_lists: bool | None = None  # None until an answer has shown it

    def score(
        self, shown: Sequence[Any], candidates: Candidates | None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        words = self.labels if candidates is None else candidates.words
        inputs = group_rows(self._input(one, words) for one in shown)
        for rows, replies in self._replies(inputs):
            scores = scores_of_replies(rows, words, [shown[row] for row in rows], replies)
            is_answer = np.isfinite(np.asarray(scores.totals)).any(axis=1)
            for text, row, is_one in zip(scores.texts, rows, is_answer, strict=True):
                if text and not is_one and not self.notes:
                    both = (text, str(self._input(shown[row], words)))
                    said, to = (truncated(" ".join(of.split()), QUOTED) for of in both)
                    self.notes.append(f"texts that match no answer are wrong: '{said}' to '{to}'")
            yield scores

    def write(
        self, shown: Sequence[Any], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str | NoAnswer]]]:
        for sample in sorted(set(samples)):  # each is asked anew
            of_sample = [row for row, number in enumerate(samples) if number == sample]
            inputs = group_rows(self._input(shown[row], ()) for row in of_sample)
            for rows, replies in self._replies(inputs):
                yield np.array(of_sample)[rows], replies

    def _input(self, shown: Any, words: Sequence[str]) -> str | tuple[str, ...]:
        if isinstance(shown, Prompt):
            return self.text(shown)
        if not isinstance(shown, Query):
            return tuple(segment.text for segment in shown)
        sentence = shown.pattern.fill(shown.subject, BLANK)
        return self.template.replace(CHOICES, ", ".join(words)).replace(SENTENCE, sentence)

    def _replies(
        self, inputs: Mapping[Any, list[int]]
    ) -> Iterator[tuple[list[int], list[str | NoAnswer]]]:
        """Rows of inputs with what the function wrote, as it comes."""
        left = list(inputs)
        while left:
            size = 1 if self.takes_lists is None else AT_ONCE
            some, left = left[:size], left[size:]
            replies = dict(zip(some, map(_reply, self._values(some)), strict=True))
            rows = [(row, replies[one]) for one in some for row in inputs[one]]
            yield [row for row, _ in rows], [reply for _, reply in rows]

    def _values(self, inputs: list[Any]) -> list[Any]:
        """What the function returns for each input, or the exception that it raises."""
        if self.takes_lists is not False:
            (values,) = outcomes(self.function, [inputs])
            if isinstance(values, list | tuple) and len(values) == len(inputs):
                self.takes_lists = True
                return list(values)
            if self.takes_lists:
                if isinstance(values, list | tuple):
                    sizes = f"{counted(len(values), 'value')} for {counted(len(inputs), 'text')}"
                    values = NoAnswer(f"the function returned {sizes}")
                return [values] * len(inputs)
        values = outcomes(self.function, inputs)
        if isinstance(values[0], str):
            self.takes_lists = False
        return values


def outcomes(function: Callable[[Any], Any], inputs: Sequence[Any]) -> list[Any]:
    """What a function returns or raises for each input; coroutines run side by side."""
    values: list[Any] = []
    for one in inputs:
        try:
            value = function(one)
            values.append(list(value) if inspect.isgenerator(value) else value)
        except Exception as error:
            values.append(error)

    async def awaited(value: Any) -> Any:
        return await value if inspect.isawaitable(value) else value

    async def together() -> list[Any]:
        return await asyncio.gather(*map(awaited, values), return_exceptions=True)

    if any(map(inspect.isawaitable, values)):
        return asyncio.run_coroutine_threadsafe(together(), _loop()).result()
    return values


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all functions, beside that of a notebook: connections outlive a call."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _reply(value: Any) -> str | NoAnswer:
    """The text that a function returned, or why there is none."""
    if value is None or isinstance(value, str):
        return (value or "").encode("utf-8", "replace").decode().strip() or NoAnswer()
    if isinstance(value, NoAnswer):
        return value
    said = f"returned {truncated(repr(value), QUOTED)}, which is no text"
    if isinstance(value, BaseException):
        said = f"raised {type(value).__name__}: {truncated(str(value), QUOTED)}"
    return NoAnswer(f"the function {said}")


def position(text: str, shown: Any, words: Sequence[str]) -> int | None:
    """The position of the answer that a text is, by the rule ``exact`` (docs/free-text.md).

    Of a question it may be the label or an alias, of a fact the whole sentence. None for none.
    """
    if isinstance(shown, Prompt):
        return match(text, shown.choices, RULES[DEFAULT_RULE], shown.reply_labels).position
    texts, choices = [text], [*map(Choice, words)]
    if isinstance(shown, Query):
        left, right = map(normalized, shown.pattern.around_object(shown.subject))
        texts.append(normalized(text).removeprefix(left).removesuffix(right))
    found = (match(one, choices, RULES[DEFAULT_RULE]).position for one in texts)
    return next((at for at in found if at is not None), None)


BASELINES = {
    "facts": ("majority", "random", "oracle", "constant"),
    "sentence pairs": ("majority", "random", "constant"),
    "questions": ("majority", "random", "oracle", "constant", "first"),
}
"""The names of the baselines of each kind of suite."""


class Baseline(Chooser):
    """A model that chooses by a rule; that of facts puts all probability on one candidate.

    ``majority`` chooses what is right most often, of equally frequent ones the first: an object of
    the relation, as in the paper (Section 5.1), a label of the pairs, or of questions what is shown
    where most golds of those of the group with as many options are at first. ``constant`` chooses
    the first of the file, ``first`` the first that is shown, ``oracle`` the right one, and
    ``random`` draws one for each text. To open questions they write a gold of the group likewise.
    """

    def __init__(
        self,
        name: str,
        seed: int,
        kind: str,
        labels: Sequence[str] = (),
        most: Mapping[tuple[str, int], int] = {},
        golds: Mapping[str, Sequence[str]] = {},
    ) -> None:
        """``most``: the position of what is right most often, by group and number of answers."""
        if name not in BASELINES[kind]:
            raise unknown_name(f"no baseline '{name}' for {kind}", name, BASELINES[kind])
        super().__init__({"model": f"baseline:{name}", "kind": "baseline"}, labels)
        if name == "random":
            self.identity["seed"] = seed
        self.name, self.seed, self.kind = name, seed, kind
        self.most, self.golds = most, golds

    def score(
        self, shown: Sequence[Any], candidates: Candidates | None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        words = self.labels if candidates is None else candidates.words
        step = max(1, CELLS // max(1, len(words)))
        for start in range(0, len(shown), step):
            totals = [
                totals_of_choice(self._position(one, candidates), len(words or one.answers))
                for one in shown[start : start + step]
            ]
            rows = np.arange(start, start + len(totals))
            scores = Scores.of_rows(rows, totals, words=tuple(words))
            if candidates is not None:
                scores = replace(scores, logprob=scores.totals, totals=None, answers_only=False)
            yield scores

    def _position(self, shown: Any, candidates: Candidates | None = None) -> int:
        """The position of the answer among those that are shown."""
        if isinstance(shown, Prompt):
            if self.name == "oracle":
                return shown.gold
            most = self.most.get((shown.group, len(shown.options)), 0)
            return self._at(shown.options, most, shown.text)
        if candidates is None:
            most = self.most["", len(self.labels)]
            return self._at(range(len(self.labels)), most, *(segment.text for segment in shown))
        words, counts = candidates.words, candidates.counts
        if self.name == "oracle":
            return words.index(shown.gold)
        key = shown.pattern.text, shown.subject
        return self._at(range(len(words)), counts.index(max(counts)), *key)

    def _at(self, order: Sequence[int], most: int, *key: object) -> int:
        """By a rule that knows no gold; ``order``: the positions in the file, as shown."""
        if self.name == "random":
            drawn = random.Random("\t".join(map(str, (self.seed, *key))))
            return drawn.choice(range(len(order)))
        return {"majority": most, "constant": order.index(0), "first": 0}[self.name]

    def write(
        self, shown: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        yield np.arange(len(shown)), [*map(self._text, shown, samples)]

    def _text(self, prompt: Prompt, sample: int) -> str:
        if prompt.choices:
            return prompt.choices[self._position(prompt)].text
        if self.name == "oracle":
            return prompt.answers[prompt.gold]
        golds, most = self.golds[prompt.group], self.most[prompt.group, 0]
        return golds[self._at(range(len(golds)), most, sample, prompt.text)]


def label_baseline(
    name: str, labels: Sequence[str], pairs: Sequence[TextPair], seed: int
) -> Baseline:
    """The baseline of that name for sentence pairs; the first label is that of the first pair."""
    majority = Counter(pair.label for pair in pairs).most_common(1)[0][0]
    return Baseline(
        name, seed, "sentence pairs", labels, {("", len(labels)): labels.index(majority)}
    )


def prompt_baseline(name: str, questions: Sequence[Question], seed: int) -> Baseline:
    """The baseline of that name for questions."""
    golds = defaultdict[str, list[str]](list)
    counts = defaultdict[tuple[str, int], Counter[int]](Counter)
    for one in questions:
        golds[one.group].append(one.gold.text)
        at = one.gold_position if one.options else golds[one.group].index(one.gold.text)
        counts[one.group, len(one.options)][at] += 1
    # Of equally frequent positions the first in the order of the options, not of the questions.
    most = {key: min(of, key=lambda at: (-of[at], at)) for key, of in counts.items()}
    return Baseline(name, seed, "questions", (), most, golds)
