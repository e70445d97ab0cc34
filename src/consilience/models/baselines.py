"""Baselines: models without weights, to compare the numbers of a real one with."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError, did_you_mean, unknown_name
from consilience.core.items import Ints, Question, TextPair
from consilience.core.presentation import Prompt
from consilience.models.functions import Choices, Chooser, PlainPairs, PlainReader
from consilience.types import Candidates

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

Rules = Mapping[str, Callable[[Any, Candidates | None], int]]
"""The position of an answer to what is asked, among the candidates of facts, by baseline."""


class Baseline(Chooser):
    """A model that chooses by a rule; that of facts puts all probability on one candidate."""

    def __init__(
        self, name: str, seed: int, rules: Rules, words: Sequence[str] = (), *, of: str = ""
    ) -> None:
        if name not in rules:
            raise ConsilienceError(
                f"no baseline '{name}'{of}",
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


class PromptBaseline(PlainReader, Baseline):
    """A baseline for questions; ``say``: what it writes to an open one, as a sample of a number."""

    say: Callable[[Prompt, int], str]

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, list[str]]]:
        """Positions of prompts, and what is written: an option, or to an open question a gold."""
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
    return PairBaseline(name, seed, rules, labels, of=" for sentence pairs")


def prompt_baseline(name: str, questions: Sequence[Question], seed: int) -> PromptBaseline:
    """The baseline of that name for questions; an unknown name raises.

    ``majority`` and ``constant`` choose the last option of a question that has too few.
    """
    if name not in PROMPT_BASELINES:
        raise unknown_name(f"no baseline '{name}' for questions", name, PROMPT_BASELINES)
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
    """One of several things, drawn by a key."""
    return random.Random("\t".join(map(str, key))).choice(things)
