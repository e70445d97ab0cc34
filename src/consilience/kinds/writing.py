"""How a model is asked for answers in its own words, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import polars as pl

from consilience.ask import Progress
from consilience.ask_questions import Presenter
from consilience.ask_writing import EMPTY, WritingModel, ask_writing, notes_on_writing
from consilience.asking.answer_clusters import (
    Judge,
    error_of,
    labelled_pairs,
    merge_answers,
    with_meanings,
)
from consilience.core.errors import ConsilienceError
from consilience.core.factors import Factor
from consilience.core.free_text import Rule, normalized, rule_of, usual_rule
from consilience.core.text import counted
from consilience.questions import Question


def sample_factor(samples: int, temperature: float) -> list[Factor]:
    """The factor ``sample``, if several texts of each prompt are sampled."""
    if samples > 1 and not temperature:
        raise ConsilienceError(
            f"--samples {samples} at temperature 0, where all samples are the same",
            todo="Add --temperature 0.7, or leave --samples out.",
        )
    levels = tuple(str(number + 1) for number in range(samples))
    return [Factor("sample", levels)] if samples > 1 else []


def as_writer(model: object) -> WritingModel:
    """A model that writes; one that only chooses raises."""
    if not hasattr(model, "write"):
        name = getattr(model, "identity", {}).get("model", "the model")
        raise ConsilienceError(
            f"'{name}' does not write answers",
            expected="a causal or sequence-to-sequence language model",
            todo="Name one with --model. Of questions with options, leave --generate out.",
        )
    return cast(WritingModel, model)


@dataclass(slots=True)
class Writer:
    """A model that is asked, and the judge of its answers."""

    model: WritingModel
    match: str | None = None
    """The rule that finds the answer in a text (``free_text.RULES``); None for the usual ones."""
    equivalence: str | None = None
    """The name of the judge."""
    judge: Judge | None = None
    """Says which answers mean the same; None where only equal ones do."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Open items that are expected to have the same or different answers -> the component."""

    @property
    def rule(self) -> Rule | None:
        """The rule; None for that of each kind of question."""
        return rule_of(self.match) if self.match else None

    def ask(
        self,
        questions: Sequence[Question],
        presenter: Presenter,
        suite: str,
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        """The answers of one group of questions, those that mean the same merged."""
        answers = ask_writing(questions, presenter, self.model, suite, self.rule, progress)
        if self.judge is None:
            return answers
        merged = merge_answers(answers, questions, self.judge)
        return with_meanings(merged, questions, self.judge, self.links) if self.links else merged

    def notes(self, answers: pl.DataFrame) -> list[str]:
        """Notes on answers that match nothing, and on the judge and its error."""
        notes = notes_on_writing(answers)
        if self.judge is not None:
            error = error_of(self.judge, labelled_pairs("test")).note
            merged = counted(self._merged(answers), "answer")
            notes.append(
                f"{merged} merged with another of the same meaning "
                f"({self.equivalence}); the judge's error {error}"
            )
        return notes

    def _merged(self, answers: pl.DataFrame) -> int:
        """How many different unmatched answers of an item became another answer."""
        unmatched = answers.filter(
            pl.col("unmatched").is_not_null() & (pl.col("answer") != EMPTY)
        ).select("group", "item", "answer", "text", pl.col("gold_option").is_null())
        changed = set()
        for group, item, answer, text, is_open in unmatched.iter_rows():
            rule = self.rule or usual_rule(is_open=is_open)
            extracted = rule.extract(text).answer or normalized(text)
            if extracted != answer:
                changed.add((group, item, extracted))
        return len(changed)
