"""How a model is asked for answers in its own words, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

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
from consilience.core.errors import DEFAULT_LOADING, SERVED, Connection, ConsilienceError, Loading
from consilience.core.factors import Factor
from consilience.core.free_text import DEFAULT_RULES, Rule, normalized, rule_of, usual_rule
from consilience.core.text import counted
from consilience.questions import Question


@dataclass(frozen=True, slots=True)
class Writing:
    """How answers are written and read."""

    match: str | None = None
    """The rule that finds the answer in a text (``free_text.RULES``); None for the usual ones."""
    samples: int = 1
    """How many texts are sampled of each prompt; pairs of them measure the noise of sampling."""
    temperature: float = 0.0
    """Divides the logits before a token is sampled; 0 writes the most probable token."""
    max_new_tokens: int = 32
    """Tokens that the model may write."""
    equivalence: str | None = None
    """The judge that merges answers that mean the same: ``nli:MODEL`` or ``embedding:MODEL``."""
    seed: int = 0
    """Decides the samples."""

    def __post_init__(self) -> None:
        if self.match:
            rule_of(self.match)  # an unknown one raises
        if self.samples > 1 and not self.temperature:
            raise ConsilienceError(
                f"--samples {self.samples} at temperature 0, where all samples are the same",
                todo="Add --temperature 0.7, or leave --samples out.",
            )

    @property
    def rule(self) -> Rule | None:
        """The rule; None for that of each kind of question."""
        return rule_of(self.match) if self.match else None

    @property
    def factors(self) -> list[Factor]:
        """The factor ``sample``, if there are several."""
        levels = tuple(str(number + 1) for number in range(self.samples))
        return [Factor("sample", levels)] if self.samples > 1 else []

    @property
    def settings(self) -> dict[str, object]:
        """What decides the answers but for the model and its way of writing."""
        match = self.match or DEFAULT_RULES
        return {"match": match, "samples": self.samples, "equivalence": self.equivalence}

    def load_model(
        self,
        spec: str,
        loading: Loading = DEFAULT_LOADING,
        longest: int = 0,
        connection: Connection | None = None,
        chooser: Any = None,
    ) -> Any:
        """The language model of that name; ``longest``: tokens of a prompt, 0 for its limit.

        ``connection``: how a model behind a URL is reached. ``chooser``: the same served model as
        one that chooses among options.
        """
        if spec.partition(":")[0] in SERVED:
            from consilience.models.served import open_server
            from consilience.models.served_prompts import ServedWriter

            return ServedWriter(
                chooser.server if chooser else open_server(spec, connection),
                spec,
                most_written=self.max_new_tokens,
                temperature=self.temperature,
                seed=self.seed,
                longest=longest,
                chooser=chooser,
            )
        from consilience.models.answer_writer import AnswerWriter
        from consilience.models.loading import load_pretrained

        return AnswerWriter(
            load_pretrained(spec, loading),
            most_written=self.max_new_tokens,
            longest=longest,
            temperature=self.temperature,
            seed=self.seed,
        )

    def load_judge(self, loading: Loading = DEFAULT_LOADING) -> Judge | None:
        """The judge of equivalence, where one is named."""
        if self.equivalence is None:
            return None
        from consilience.models.judges import load_judge

        return load_judge(self.equivalence, loading)


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

    writing: Writing
    """How answers are written and read."""
    model: WritingModel
    """The model."""
    judge: Judge | None = None
    """Says which answers mean the same; None where only equal ones do."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Open items that are expected to have the same or different answers -> the component."""

    def ask(
        self,
        questions: Sequence[Question],
        presenter: Presenter,
        suite: str,
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        """The answers of one group of questions, those that mean the same merged."""
        rule = self.writing.rule
        answers = ask_writing(questions, presenter, self.model, suite, rule, progress)
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
                f"({self.writing.equivalence}); the judge's error {error}"
            )
        return notes

    def _merged(self, answers: pl.DataFrame) -> int:
        """How many different unmatched answers of an item became another answer."""
        unmatched = answers.filter(
            pl.col("unmatched").is_not_null() & (pl.col("answer") != EMPTY)
        ).select("group", "item", "answer", "text", pl.col("gold_option").is_null())
        changed = set()
        for group, item, answer, text, is_open in unmatched.iter_rows():
            rule = self.writing.rule or usual_rule(is_open=is_open)
            extracted = rule.extract(text).answer or normalized(text)
            if extracted != answer:
                changed.add((group, item, extracted))
        return len(changed)
