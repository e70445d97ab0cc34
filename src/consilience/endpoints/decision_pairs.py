"""Decision models as models of sentence pairs: the labels of the task are the options."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from consilience.endpoints.decisions import DecisionModel
from consilience.presentation import Prompt
from consilience.questions import Choice
from consilience.sentence_pairs import Form, Task, TaskKind, as_lines
from consilience.types import Scores

INSTRUCTIONS: Mapping[TaskKind, str] = {
    "NLI": "How does {second} relate to {first}?",
    "STS": "How do {first} and {second} relate?",
}
"""The question of a request, with the indicators of the task; its context is the pair."""


class DecisionPairs:
    """A decision model that is asked for the label of a sentence pair (``ask_pairs``)."""

    longest = sys.maxsize

    def __init__(self, model: DecisionModel, task: Task) -> None:
        self.model = model
        self.client, self.notes = model.client, model.notes
        self.labels = task.labels
        first, second = task.indicators
        self.question = INSTRUCTIONS[task.kind].format(first=first, second=second)
        self.identity: dict[str, object] = {**model.identity, "question": self.question}

    def prompt(self, form: Form) -> str:
        """The text of a request: the context and the question."""
        return self._prompt(form).text

    def encode(self, forms: Sequence[Form]) -> list[dict[str, list[int]]]:
        """The characters of each form."""
        return [{"input_ids": list(map(ord, as_lines(form)))} for form in forms]

    def fit(self, forms: Sequence[Form]) -> list[Form]:
        """The forms: the server says which are too long."""
        return list(forms)

    def why_not(self, form: Form) -> str | None:
        """None: every form can be asked."""
        return None

    def score(self, forms: Sequence[Form]) -> Iterator[Scores]:
        """Log-probabilities of the labels (form, label).

        Where a server rounds one to 0, the scores only order the labels.
        """
        for scores in self.model.score([self._prompt(form) for form in forms]):
            is_bound = np.array(scores.bounds)
            totals = np.where(is_bound, np.nextafter(scores.totals, -np.inf), scores.totals)
            yield Scores(
                scores.rows,
                self.labels,
                totals,
                unasked=scores.refused[0],
                answers_only=bool(is_bound.any()),
            )

    def _prompt(self, form: Form) -> Prompt:
        return Prompt(
            (("user", f"{as_lines(form)}\n{self.question}"),),
            self.labels,
            tuple(range(len(self.labels))),
            tuple(map(Choice, self.labels)),
            are_labels=False,
            context=as_lines(form),
            question=self.question,
        )
