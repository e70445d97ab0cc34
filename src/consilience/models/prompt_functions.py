"""Prompts without a tokenizer: a Python function that returns texts, and baselines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from consilience.core.errors import unknown_name
from consilience.core.free_text import DEFAULT_RULE, Rule, match, rule_of
from consilience.models.functions import identity_of, texts_of, unmatched_note
from consilience.presentation import Prompt, PromptScores
from consilience.questions import Question

Ints = npt.NDArray[np.int64]

Choose = Callable[[Prompt], int]
"""The position of an answer among those of a prompt."""

Say = Callable[[Prompt, int], str]
"""What a baseline writes to an open question, as a sample of that number."""


class PromptFunction:
    """A function from a list of prompts to a list of texts, as a model of questions.

    A prompt is a text; a chat has its system prompt and its turns one after the other. The answer
    is found by a rule for written texts (``free_text``). A text that is none of the answers is a
    wrong answer, and counted in ``notes``. An empty text is no answer.
    """

    tie = 0.0

    def __init__(
        self,
        function: Callable[[list[str]], Sequence[str]],
        rule: str = DEFAULT_RULE,
    ) -> None:
        """``rule``: the name of one of ``free_text.RULES``, or ``regex:PATTERN``."""
        self.function = function
        self.rule = rule_of(rule)
        self.identity = identity_of(function, "answers") | {"rule": rule}
        self.notes: list[str] = []

    def text(self, prompt: Prompt) -> str:
        """The prompt that the function gets."""
        return f"{prompt.system}\n\n{prompt.text}" if prompt.system else prompt.text

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """None: every prompt can be asked."""
        return [None] * len(prompts)

    def score(self, prompts: Sequence[Prompt]) -> Iterator[PromptScores]:
        """The answer that each text is. Equal prompts are asked once."""
        if not prompts:
            return
        texts = texts_of(self.function, [self.text(prompt) for prompt in prompts])
        answers = [
            match_answer(text, prompt, self.rule)
            for text, prompt in zip(texts, prompts, strict=True)
        ]
        unmatched = [
            text for text, answer in zip(texts, answers, strict=True) if text and answer is None
        ]
        if unmatched:
            self.notes.append(unmatched_note(unmatched, f"{len(texts)} texts", "option"))
        totals = [
            only(answer, len(prompt.answers))
            for answer, prompt in zip(answers, prompts, strict=True)
        ]
        yield PromptScores(np.arange(len(prompts)), totals, texts=texts)

    def score_alone(self, prompt: Prompt) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The answer that the text is."""
        return next(self.score([prompt])).totals[0]

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of prompts, and the texts. Equal prompts are asked once for each sample."""
        for sample in sorted(set(samples)):
            rows = [row for row, of_prompt in enumerate(samples) if of_prompt == sample]
            yield np.array(rows), texts_of(self.function, [self.text(prompts[at]) for at in rows])


def match_answer(text: str, prompt: Prompt, rule: Rule) -> int | None:
    """The position of the answer that a text is: by label, text or alias; None for none."""
    labels = prompt.answers if prompt.are_labels else ()
    return match(text, prompt.choices, rule, labels).position


def only(answer: int | None, size: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Totals (answer,): 0 for one answer, minus infinity for the others."""
    totals = np.full(size, -np.inf)
    if answer is not None:
        totals[answer] = 0.0
    return totals


class PromptBaseline:
    """A model without weights, to compare the numbers of a real one with."""

    tie = 0.0

    def __init__(self, choose: Choose, say: Say, identity: Mapping[str, object]) -> None:
        self.choose = choose
        self.say = say
        self.identity = dict(identity)
        self.notes: list[str] = []

    def text(self, prompt: Prompt) -> str:
        """The prompt, which no baseline but ``random`` reads."""
        return prompt.text

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """None: every prompt can be asked."""
        return [None] * len(prompts)

    def score(self, prompts: Sequence[Prompt]) -> Iterator[PromptScores]:
        """The answer that each prompt gets."""
        answers = [self.choose(prompt) for prompt in prompts]
        yield PromptScores(
            np.arange(len(prompts)),
            [only(at, len(prompt.answers)) for at, prompt in zip(answers, prompts, strict=True)],
            texts=[prompt.answers[at] for at, prompt in zip(answers, prompts, strict=True)],
        )

    def score_alone(self, prompt: Prompt) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The answer that the prompt gets."""
        return only(self.choose(prompt), len(prompt.answers))

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of prompts, and what is written: an option, or to an open question a gold."""
        texts = [
            prompt.choices[self.choose(prompt)].text if prompt.choices else self.say(prompt, sample)
            for prompt, sample in zip(prompts, samples, strict=True)
        ]
        yield np.arange(len(prompts)), texts


PROMPT_BASELINES: Mapping[str, str] = {
    "random": "an option drawn by the seed for each prompt: its consistency is chance",
    "majority": "the position in the file's order at which the gold of the group is most often, of "
    "equally frequent ones the first: perfectly consistent",
    "constant": "the first option in the file's order: perfectly consistent",
    "first": "the option that is shown first: what a pure bias for a position gives",
    "oracle": "the gold: perfectly consistent and always right",
}
"""The baselines for questions, and what each answers with.

To open questions they write golds of the group: ``random`` one that is drawn for each prompt and
sample, ``majority`` the most frequent one, ``constant`` and ``first`` that of the first question,
``oracle`` that of the question itself.
"""


def prompt_baseline(name: str, questions: Sequence[Question], seed: int) -> PromptBaseline:
    """The baseline of that name for questions; an unknown name raises.

    ``majority`` and ``constant`` choose the last option of a question that has too few.
    """
    if name not in PROMPT_BASELINES:
        raise unknown_name(f"no baseline '{name}' for questions", name, PROMPT_BASELINES)
    identity: dict[str, object] = {"model": f"baseline:{name}", "kind": "baseline"}
    identity |= {"seed": seed} if name == "random" else {}
    return PromptBaseline(_chooser(name, questions, seed), _sayer(name, questions, seed), identity)


def _chooser(name: str, questions: Sequence[Question], seed: int) -> Choose:
    """What a baseline chooses among options."""
    golds: dict[str, Counter[int]] = {}
    for question in questions:
        if question.options:
            golds.setdefault(question.group, Counter())[question.gold_position] += 1
    # Of equally frequent positions the first in the order of the options, not of the questions.
    majority = {
        group: min(counts, key=lambda position: (-counts[position], position))
        for group, counts in golds.items()
    }

    def at_position(prompt: Prompt, position: int) -> int:
        return prompt.options.index(min(position, len(prompt.options) - 1))

    def draw(prompt: Prompt) -> int:
        return random.Random(f"{seed}\t{prompt.text}").randrange(len(prompt.answers))

    choosers: dict[str, Choose] = {
        "random": draw,
        "majority": lambda prompt: at_position(prompt, majority.get(prompt.group, 0)),
        "constant": lambda prompt: at_position(prompt, 0),
        "first": lambda prompt: 0,
        "oracle": lambda prompt: prompt.gold,
    }
    return choosers[name]


def _sayer(name: str, questions: Sequence[Question], seed: int) -> Say:
    """What a baseline writes to open questions."""
    golds: dict[str, list[str]] = {}
    for question in questions:
        if not question.options:
            golds.setdefault(question.group, []).append(question.gold.text)
    majority = {group: Counter(texts).most_common(1)[0][0] for group, texts in golds.items()}

    def draw(prompt: Prompt, sample: int) -> str:
        return random.Random(f"{seed}\t{sample}\t{prompt.text}").choice(golds[prompt.group])

    sayers: dict[str, Say] = {
        "random": draw,
        "majority": lambda prompt, sample: majority[prompt.group],
        "constant": lambda prompt, sample: golds[prompt.group][0],
        "first": lambda prompt, sample: golds[prompt.group][0],
        "oracle": lambda prompt, sample: prompt.answers[prompt.gold],
    }
    return sayers[name]
