"""Models without weights: Python functions, and baselines to compare numbers with."""

from __future__ import annotations

import asyncio
import inspect
import random
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.free_text import (
    DEFAULT_RULE,
    OPEN_RULE,
    RULES,
    match,
    normalized,
    rule_of,
)
from consilience.core.items import Choice, Form, Ints, Prompt, Question, Scores, TextPair, as_lines
from consilience.core.text import counted, fold_case, truncated
from consilience.types import Candidates, Query

BLANK = "___"  # Replaces the object in the sentence of a prompt
SENTENCE, CHOICES = "{sentence}", "{candidates}"  # In a template
QUOTED = 60  # Characters of a text that a note or an error quotes
CELLS = 4_000_000  # Scores that are held in memory at once, unless one query has more
Choices = tuple[Sequence[int | None], Sequence[str]]  # Chosen positions, and texts
TwoTexts = tuple[str, str]  # Of a form, as a model reads it: ("Premise: ...", "Hypothesis: ...")


class Chooser:
    """A model without probabilities, which chooses one of the answers or writes something else."""

    tie = 0.0
    is_certain = False  # Whether its choice has the log-probability 0, others minus infinity
    choose: Any  # (asked, candidates, every) -> ``Choices``; what it cannot do raises

    def __init__(self, identity: Mapping[str, object], words: Sequence[str] = ()) -> None:
        self.identity, self.words = dict(identity), tuple(words)
        self.notes: list[str] = []

    def score(
        self, asked: Sequence[Any], candidates: Candidates | None = None, *, every: bool = True
    ) -> Iterator[Scores]:
        chosen, texts = self.choose(asked, candidates, every=every)
        words = candidates.words if candidates else self.words
        sizes = np.array([len(words) if words else len(one.answers) for one in asked])
        width = int(sizes.max(initial=0))
        step = max(1, CELLS // max(1, width))
        for start in range(0, len(asked), step):
            some = slice(start, start + step)
            values = np.full((len(sizes[some]), width), -np.inf)
            if not words:
                values[np.arange(width) >= sizes[some, None]] = np.nan
            found = [(row, at) for row, at in enumerate(chosen[some]) if at is not None]
            values[[row for row, _ in found], [at for _, at in found]] = 0.0
            yield Scores(
                start + np.arange(len(values)),
                words,
                values if self.is_certain else None,
                totals=None if self.is_certain else values,
                answers_only=not self.is_certain,
                texts=texts[some],
            )


class PlainReader:
    """How a model without a tokenizer reads a prompt or a form: whatever its length."""

    def why_not(self, shown: Sequence[Any]) -> list[str | None]:
        return [None] * len(shown)

    def text(self, shown: Any) -> str:
        return shown.text if isinstance(shown, Prompt) else as_lines(shown)


class PlainPairs(PlainReader):
    """How a model without a tokenizer reads sentence pairs: whatever their length."""

    longest = sys.maxsize

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        return [{"input_ids": list(map(ord, as_lines(form)))} for form in forms]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        return list(forms)


class Function(Chooser):
    """A function from a list of inputs to a list of texts. Equal inputs are asked once.

    A text that is none of the answers counts as a wrong answer, and in ``notes``. None and a blank
    text are no answer.
    """

    kind: str  # What a text should be
    read: Any  # (what is asked, answers) -> the input of the function
    match: Any  # (text, what is asked, answers) -> the position of the answer; None for none

    def __init__(
        self,
        function: Callable[[list[Any]], Sequence[str | None]],
        returns: str,
        words: Sequence[str] = (),
        **identity: str,
    ) -> None:
        super().__init__(identity_of(function, returns) | identity, words)
        self.function = function

    def choose(
        self, asked: Sequence[Any], candidates: Candidates | None, *, every: bool
    ) -> Choices:
        words = candidates.words if candidates else self.words
        texts = texts_of(self.function, [self.read(one, words) for one in asked])
        chosen = [self.match(text, one, words) for text, one in zip(texts, asked, strict=True)]
        wrong = [text for text, at in zip(texts, chosen, strict=True) if text and at is None]
        if wrong:
            to = f" to queries such as '{asked[0].pattern.text}'" if candidates else ""
            self.notes.append(
                f"{len(wrong)} of {len(texts)} texts{to} match no {self.kind}, such as "
                f"'{truncated(wrong[0], QUOTED)}'; they count as wrong answers"
            )
        return chosen, texts


class TextFunction(Function):
    """A function from a list of prompts to a list of texts, as a model of facts.

    A prompt is ``template`` with ``{sentence}``, which has ``___`` instead of the object, and
    ``{candidates}`` filled in. ``match_candidate`` finds the candidate of a text.
    """

    kind = "candidate"

    def __init__(
        self, function: Callable[[list[str]], Sequence[str | None]], template: str | None = None
    ) -> None:
        self.template = template or SENTENCE
        if SENTENCE not in self.template:
            raise ConsilienceError(
                f"the template '{self.template}'", expected=f"a text with {SENTENCE}"
            )
        super().__init__(function, "texts", template=self.template)

    def choose(
        self, asked: Sequence[Any], candidates: Candidates | None, *, every: bool
    ) -> Choices:
        if candidates is None:
            raise _no_vocabulary()
        if every:
            raise ConsilienceError(
                "a function that writes texts has no scores of candidates",
                todo="Leave out keep_scores and noise_floor.",
            )
        return super().choose(asked, candidates, every=every)

    def read(self, asked: Query, words: Sequence[str]) -> str:
        sentence = asked.pattern.fill_blank(asked.subject, BLANK)
        return self.template.replace(CHOICES, ", ".join(words)).replace(SENTENCE, sentence)

    def match(self, text: str, asked: Query, words: Sequence[str]) -> int | None:
        word = match_candidate(text, asked, words)
        return None if word is None else words.index(word)


class LabelFunction(PlainPairs, Function):
    """A function from a list of two texts to a list of labels, as a model of sentence pairs.

    A text is a label by the rule ``exact`` (``free_text``).
    """

    kind = "label"

    def __init__(
        self, function: Callable[[list[TwoTexts]], Sequence[str | None]], labels: Sequence[str]
    ) -> None:
        super().__init__(function, "labels", labels)

    def read(self, asked: Form, words: Sequence[str]) -> TwoTexts:
        first, second = asked
        return first.text, second.text

    def match(self, text: str, asked: Form, words: Sequence[str]) -> int | None:
        return match(text, [*map(Choice, words)], RULES[DEFAULT_RULE]).position


class PromptFunction(PlainReader, Function):
    """A function from a list of prompts to a list of texts, as a model of questions.

    A prompt is a text; a chat has its system prompt and its turns one after the other. The answer
    is found by a rule for written texts (``free_text``), by default ``exact``.
    """

    kind = "option"

    def __init__(
        self, function: Callable[[list[str]], Sequence[str | None]], rule: str | None = None
    ) -> None:
        self.named = rule_of(rule) if rule else None
        super().__init__(function, "answers", rule=rule or DEFAULT_RULE)

    def text(self, shown: Prompt) -> str:
        return f"{shown.system}\n\n{shown.text}" if shown.system else shown.text

    def read(self, asked: Prompt, words: Sequence[str]) -> str:
        return self.text(asked)

    def match(self, text: str, asked: Prompt, words: Sequence[str]) -> int | None:
        """The position of the answer that a text is: by label, text or alias."""
        rule = self.named or RULES[OPEN_RULE if asked.is_open else DEFAULT_RULE]
        return match(text, asked.choices, rule, asked.reply_labels).position

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        for sample in sorted(set(samples)):
            rows = [row for row, of_prompt in enumerate(samples) if of_prompt == sample]
            yield np.array(rows), texts_of(self.function, [self.text(prompts[at]) for at in rows])


def match_candidate(text: str, query: Query, words: Sequence[str]) -> str | None:
    """The candidate that a text is, alone or within the whole sentence; None for no candidate.

    The text and the candidates are compared as they are; then without regard to case, Unicode form
    and repeated spaces; then without punctuation. The first comparison with exactly one candidate
    decides. A text that merely contains a candidate is no match.
    """
    around = query.pattern.around_object(query.subject)
    for same in (str.strip, _folded, normalized):
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


def _no_vocabulary() -> ConsilienceError:
    return ConsilienceError(
        "a function has no vocabulary", todo='Ask it with candidates="objects".'
    )


def identity_of(function: Callable[..., Any], kind: str) -> dict[str, object]:
    """What a run records of a function: its name."""
    name = getattr(function, "__name__", type(function).__name__)
    return {"model": name, "kind": f"function of {kind}"}


def texts_of(function: Callable[[list[Any]], Any], inputs: Sequence[Any]) -> list[str]:
    """The texts that a function writes to inputs; equal inputs are asked once.

    They have no spaces around them; None is an empty text.
    """
    distinct = list(dict.fromkeys(inputs))
    written = dict(zip(distinct, call(function, distinct), strict=True))
    return [written[value].encode("utf-8", "replace").decode().strip() for value in inputs]


def call(function: Callable[[list[Any]], Any], inputs: list[Any]) -> list[str]:
    """What a function makes of the inputs: as many texts, empty for None; or an error."""
    try:
        values = function(inputs)
        if inspect.isawaitable(values):
            with ThreadPoolExecutor(1) as beside:  # a notebook's own loop runs in this thread
                values = beside.submit(asyncio.run, _awaited(values)).result()
    except ConsilienceError:
        raise
    except Exception as error:
        first, last = (truncated(str(inputs[at]), QUOTED) for at in (0, -1))
        raise ConsilienceError(
            f"the function raised {type(error).__name__} ({str(error).rstrip('.')}) on "
            f"{counted(len(inputs), 'input')}, from '{first}' to '{last}'",
            todo="Correct the function. With a folder for the run, complete groups are kept.",
        ) from error
    is_list = isinstance(values, list)
    values = ["" if one is None else one for one in values] if is_list else values
    if is_list and len(values) == len(inputs) and all(isinstance(one, str) for one in values):
        return list(values)
    found = counted(len(values), "value") if is_list else repr(values)
    if is_list and len(values) == len(inputs):
        found = repr(next(one for one in values if not isinstance(one, str)))
    raise ConsilienceError(
        f"the function returned {truncated(found, QUOTED)} for {counted(len(inputs), 'input')}",
        expected="a list with one text for each, or None for no answer",
    )


async def _awaited(values: Any) -> Any:
    return await values


Rules = Mapping[str, Callable[[Any, Candidates | None], int]]


class Baseline(Chooser):
    """A model that chooses by a rule; that of facts puts all probability on one candidate."""

    asked = "facts"

    def __init__(self, name: str, seed: int, rules: Rules, words: Sequence[str] = ()) -> None:
        if name not in rules:
            raise ConsilienceError(
                f"no baseline '{name}' for {self.asked}",
                expected=", ".join(f"baseline:{known}" for known in rules),
                todo=did_you_mean(name, list(rules)),
            )
        identity: dict[str, object] = {"model": f"baseline:{name}", "kind": "baseline"}
        super().__init__(identity | ({"seed": seed} if name == "random" else {}), words)
        self.rule = rules[name]

    def choose(
        self, asked: Sequence[Any], candidates: Candidates | None, *, every: bool
    ) -> Choices:
        if self.is_certain and candidates is None:
            raise ConsilienceError(
                "a baseline has no vocabulary", todo="Ask it with --candidates objects."
            )
        return [self.rule(one, candidates) for one in asked], ()


class PairBaseline(PlainPairs, Baseline):
    """A baseline for sentence pairs."""

    asked = "sentence pairs"


class PromptBaseline(PlainReader, Baseline):
    """A baseline for questions; ``say``: what it writes to an open one, as a sample of a number."""

    asked = "questions"
    say: Callable[[Prompt, int], str]

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        texts = [
            prompt.choices[self.rule(prompt, None)].text
            if prompt.choices
            else self.say(prompt, sample)
            for prompt, sample in zip(prompts, samples, strict=True)
        ]
        yield np.arange(len(prompts)), texts


def load_baseline(name: str, seed: int) -> Baseline:
    """The baseline of that name for facts; an unknown name is an error.

    ``majority`` is that of the paper (Section 5.1): the most frequent object of the relation, of
    equally frequent ones the first. ``random`` is drawn for each query.
    """
    rules: dict[str, Any] = {
        "majority": lambda query, candidates: candidates.counts.index(max(candidates.counts)),
        "random": lambda query, candidates: _drawn(
            range(len(candidates.words)), seed, query.pattern.text, query.subject
        ),
        "oracle": lambda query, candidates: candidates.words.index(query.gold),
        "constant": lambda query, candidates: 0,
    }
    baseline = Baseline(name, seed, rules)
    baseline.is_certain = True
    return baseline


def label_baseline(
    name: str, labels: Sequence[str], pairs: Sequence[TextPair], seed: int
) -> PairBaseline:
    """The baseline of that name for sentence pairs; one that does not exist for them raises.

    ``majority`` answers with the most frequent label of ``pairs``, of equally frequent ones the
    first; ``constant`` with the first label; ``random`` with a label drawn for each text.
    """
    majority = Counter(pair.label for pair in pairs).most_common(1)[0][0]
    rules: Rules = {
        "majority": lambda form, candidates: labels.index(majority),
        "constant": lambda form, candidates: 0,
        "random": lambda form, _: _drawn(
            range(len(labels)), seed, *(segment.text for segment in form)
        ),
    }
    return PairBaseline(name, seed, rules, labels)


def prompt_baseline(name: str, questions: Sequence[Question], seed: int) -> PromptBaseline:
    """The baseline of that name for questions; an unknown name raises.

    ``random`` draws an option by the seed for each prompt. ``majority`` chooses the position in the
    file's order that the gold of the group has most often, of equally frequent ones the first;
    ``constant`` the first one there, ``first`` the one that is shown first, ``oracle`` the gold. To
    open questions they write golds of the group: a drawn one, the most frequent one, that of the
    first question, and their own. Of too few options the last is chosen.
    """
    positions: dict[str, Counter[int]] = {}
    golds: dict[str, list[str]] = {}
    for question in questions:
        if question.options:
            positions.setdefault(question.group, Counter())[question.gold_position] += 1
        else:
            golds.setdefault(question.group, []).append(question.gold.text)
    # Of equally frequent positions the first in the order of the options, not of the questions.
    most = {
        group: min(counts, key=lambda position: (-counts[position], position))
        for group, counts in positions.items()
    }
    common = {group: Counter(texts).most_common(1)[0][0] for group, texts in golds.items()}

    def at_position(prompt: Prompt, position: int) -> int:
        return prompt.options.index(min(position, len(prompt.options) - 1))

    rules: Rules = {
        "random": lambda prompt, _: _drawn(range(len(prompt.answers)), seed, prompt.text),
        "majority": lambda prompt, _: at_position(prompt, most.get(prompt.group, 0)),
        "constant": lambda prompt, _: at_position(prompt, 0),
        "first": lambda prompt, _: 0,
        "oracle": lambda prompt, _: prompt.gold,
    }
    baseline = PromptBaseline(name, seed, rules)
    baseline.say = {
        "random": lambda prompt, sample: _drawn(golds[prompt.group], seed, sample, prompt.text),
        "majority": lambda prompt, sample: common[prompt.group],
        "constant": lambda prompt, sample: golds[prompt.group][0],
        "first": lambda prompt, sample: golds[prompt.group][0],
        "oracle": lambda prompt, sample: prompt.answers[prompt.gold],
    }[name]
    return baseline


def _drawn(things: Sequence[Any], *key: object) -> Any:
    return random.Random("\t".join(map(str, key))).choice(things)
