"""Models without weights: Python functions, and baselines to compare numbers with."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.free_text import DEFAULT_RULE, RULES, match, normalized
from consilience.core.items import (
    Choice,
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


def scores_of_choices(
    rows: Sequence[int],
    words: Sequence[str],
    shown: Sequence[Any],
    chosen: Sequence[int | None],
    **more: Any,
) -> Scores:
    """Of what is shown 0 for the chosen answer, minus infinity for others; None: for all."""
    sizes = np.array([len(words or one.answers) for one in shown])
    totals = np.full((len(rows), int(sizes.max())), -np.inf)
    totals[np.arange(totals.shape[1]) >= sizes[:, None]] = np.nan
    for row, at in enumerate(chosen):
        if at is not None:
            totals[row, at] = 0.0
    return Scores(np.array(rows), tuple(words), totals=totals, answers_only=True, **more)


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
        words = candidates.words if candidates else self.labels
        if any(isinstance(one, Query) for one in shown[:1]) and (every or candidates is None):
            raise ConsilienceError(
                "a function has no vocabulary and no scores of candidates",
                expected='candidates="objects", without keep_scores',
            )
        inputs = group_rows(self._input(one, words) for one in shown)
        wrong: list[tuple[str, int]] = []
        for rows, replies in self._replies(inputs):
            texts = [reply if isinstance(reply, str) else "" for reply in replies]
            errors = [None if isinstance(reply, str) else reply.reason for reply in replies]
            chosen = [
                position(text, shown[row], words) if text else None
                for row, text in zip(rows, texts, strict=True)
            ]
            found = zip(texts, rows, chosen, strict=True)
            wrong += [(text, row) for text, row, at in found if text and at is None]
            asked = [shown[row] for row in rows]
            yield scores_of_choices(rows, words, asked, chosen, texts=texts, errors=errors)
        for text, row in wrong[:1]:
            to = truncated(str(self._input(shown[row], words)), QUOTED)
            self.notes.append(
                f"{len(wrong)} of {len(shown)} texts match no answer, such as "
                f"'{truncated(text, QUOTED)}' to '{to}'; they count as wrong answers"
            )

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
        sentence = shown.pattern.fill_blank(shown.subject, BLANK)
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

    async def together() -> list[Any]:
        return await asyncio.gather(*filter(inspect.isawaitable, values), return_exceptions=True)

    if not any(map(inspect.isawaitable, values)):
        return values
    done = iter(asyncio.run_coroutine_threadsafe(together(), _loop()).result())
    return [next(done) if inspect.isawaitable(value) else value for value in values]


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


Rules = Mapping[str, Callable[[Any, Any], int]]  # (what is shown, candidates) -> the position


class Baseline(Chooser):
    """A model that chooses by a rule; that of facts puts all probability on one candidate."""

    def __init__(
        self,
        name: str,
        seed: int,
        kind: str,
        rules: Rules,
        labels: Sequence[str] = (),
        golds: Mapping[str, Callable[[Prompt, int], Any]] = {},
    ) -> None:
        """``golds``: what it writes to an open question, as a sample of a number."""
        if name not in rules:
            raise ConsilienceError(
                f"no baseline '{name}' for {kind}",
                expected=", ".join(f"baseline:{known}" for known in rules),
                todo=did_you_mean(name, list(rules)),
            )
        super().__init__({"model": f"baseline:{name}", "kind": "baseline"}, labels)
        if name == "random":
            self.identity["seed"] = seed
        self.kind, self.rule, self.gold = kind, rules[name], golds.get(name, rules[name])

    def score(
        self, shown: Sequence[Any], candidates: Candidates | None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        if self.kind == "facts" and candidates is None:
            todo = "Ask it with --candidates objects."
            raise ConsilienceError("a baseline has no vocabulary", todo=todo)
        words = candidates.words if candidates else self.labels
        step = max(1, CELLS // max(1, len(words)))
        for start in range(0, len(shown), step):
            some = shown[start : start + step]
            rows, chosen = range(start, start + len(some)), [self.rule(x, candidates) for x in some]
            scores = scores_of_choices(rows, words, some, chosen)
            if candidates is not None:
                scores = replace(scores, logprob=scores.totals, totals=None, answers_only=False)
            yield scores

    def write(
        self, shown: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        texts = [
            one.choices[self.rule(one, None)].text if one.choices else self.gold(one, sample)
            for one, sample in zip(shown, samples, strict=True)
        ]
        yield np.arange(len(shown)), texts


def load_baseline(name: str, seed: int) -> Baseline:
    """The baseline of that name for facts.

    ``majority`` is that of the paper (Section 5.1): the most frequent object of the relation, of
    equally frequent ones the first. ``random`` is drawn for each query.
    """
    rules: Rules = {
        "majority": lambda query, candidates: candidates.counts.index(max(candidates.counts)),
        "random": lambda query, candidates: _drawn(
            range(len(candidates.words)), seed, query.pattern.text, query.subject
        ),
        "oracle": lambda query, candidates: candidates.words.index(query.gold),
        "constant": lambda query, candidates: 0,
    }
    return Baseline(name, seed, "facts", rules)


def label_baseline(
    name: str, labels: Sequence[str], pairs: Sequence[TextPair], seed: int
) -> Baseline:
    """The baseline of that name for sentence pairs.

    ``majority`` answers with the most frequent label of ``pairs``, of equally frequent ones the
    first; ``constant`` with the first label; ``random`` with a label drawn for each text.
    """
    majority = Counter(pair.label for pair in pairs).most_common(1)[0][0]
    rules: Rules = {
        "majority": lambda form, _: labels.index(majority),
        "constant": lambda form, _: 0,
        "random": lambda form, _: _drawn(
            range(len(labels)), seed, *(segment.text for segment in form)
        ),
    }
    return Baseline(name, seed, "sentence pairs", rules, labels)


def prompt_baseline(name: str, questions: Sequence[Question], seed: int) -> Baseline:
    """The baseline of that name for questions.

    ``random`` draws an option by the seed for each prompt. ``majority`` chooses the position in the
    file's order that the gold of the group has most often, of equally frequent ones the first;
    ``constant`` the first one there, ``first`` the one that is shown first, ``oracle`` the gold. To
    open questions they write golds of the group: a drawn one, the most frequent one, that of the
    first question, and their own. Of too few options the last is chosen.
    """
    positions: dict[str, Counter[int]] = {}
    golds: dict[str, list[str]] = {}
    for one in questions:
        if one.options:
            positions.setdefault(one.group, Counter())[one.gold_position] += 1
        else:
            golds.setdefault(one.group, []).append(one.gold.text)
    # Of equally frequent positions the first in the order of the options, not of the questions.
    most = {group: min(of, key=lambda at: (-of[at], at)) for group, of in positions.items()}

    def at_position(prompt: Prompt, at: int) -> int:
        return prompt.options.index(min(at, len(prompt.options) - 1))

    rules: Rules = {
        "random": lambda prompt, _: _drawn(range(len(prompt.answers)), seed, prompt.text),
        "majority": lambda prompt, _: at_position(prompt, most.get(prompt.group, 0)),
        "constant": lambda prompt, _: at_position(prompt, 0),
        "first": lambda prompt, _: 0,
        "oracle": lambda prompt, _: prompt.gold,
    }
    of_open = {
        "random": lambda prompt, sample: _drawn(golds[prompt.group], seed, sample, prompt.text),
        "majority": lambda prompt, _: Counter(golds[prompt.group]).most_common(1)[0][0],
        "constant": lambda prompt, _: golds[prompt.group][0],
        "first": lambda prompt, _: golds[prompt.group][0],
        "oracle": lambda prompt, _: prompt.answers[prompt.gold],
    }
    return Baseline(name, seed, "questions", rules, golds=of_open)


def _drawn(things: Sequence[Any], *key: object) -> Any:
    return random.Random("\t".join(map(str, key))).choice(things)
