"""Questions that are decided by a decision model, or answered in writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import polars as pl

from consilience.asking.facts import Progress
from consilience.asking.questions import (
    EMPTY,
    Judge,
    Presenter,
    ask_writing,
    error_of,
    labelled_pairs,
    merge_answers,
    notes_on_writing,
    with_meanings,
)
from consilience.core.errors import ConsilienceError
from consilience.core.factors import Factor
from consilience.core.free_text import Rule, normalized, rule_of, usual_rule
from consilience.core.items import Question, Task
from consilience.core.presentation import Template
from consilience.core.scoring_rules import DECISION
from consilience.core.text import counted
from consilience.kinds.variants import Prompting
from consilience.models import WritingModel, load_prompt_model
from consilience.models.decisions import ROUTES, DecisionModel, DecisionPairs
from consilience.options.probe import ProbeOptions
from consilience.suites.question_suites import GroupOfQuestions

TEMPLATE = Template("decision", "{context}\n{question}\n{options}")
"""What a request says, as one text; the server has a template of its own."""

OF_TEMPLATES = ("template", "separator", "case", "examples", "sample")
"""The factors that decision models do not have."""

UNUSED = ("template", "system", "shots", "option_score", "generate", "scoring", "tokenizer")
"""The options that decision models do not have."""

OF_PAIRS = ("generate", "scoring", "tokenizer", "input", "pool", "model_labels")
"""The options that decision models do not have with sentence pairs."""


def decides(spec: str, model: object = None) -> bool:
    """Whether a model, by its name or itself, gives the probability of every option."""
    if model is not None:
        return isinstance(model, DecisionModel)
    return spec.partition(":")[0] in ROUTES


def decision_prompting(
    options: ProbeOptions,
    factors: Sequence[Factor],
    groups: Sequence[GroupOfQuestions],
) -> Prompting:
    """How questions become requests; open questions and options that change nothing raise."""
    if any(group.writes_freely for group in groups):
        raise ConsilienceError(
            "open questions to a decision model, which chooses among options",
            expected="questions with options",
            todo="Give them options; facts have some with --as-questions 3.",
        )
    _refuse(options, UNUSED)
    for factor in factors:
        if factor.name in OF_TEMPLATES:
            expected = "the factors language, paraphrase, order and labels"
            raise _unused(f"--vary {factor.name}", expected)
    return Prompting({TEMPLATE.name: TEMPLATE}, DECISION.name, 0, options.seed, labels="none")


def load_decider(options: ProbeOptions, task: Task) -> DecisionPairs:
    """A decision model of sentence pairs; options that change nothing raise."""
    _refuse(options, OF_PAIRS)
    model = load_prompt_model(
        options.model,
        (),
        loading=options.loading,
        longest=options.max_length or 0,
        connection=options.connection,
    )
    return DecisionPairs(cast(DecisionModel, model), task)


def _refuse(options: ProbeOptions, names: Sequence[str]) -> None:
    for name in names:
        if getattr(options, name):
            raise _unused(f"--{name.replace('_', '-')}", "the server writes the prompt itself")


def _unused(option: str, expected: str) -> ConsilienceError:
    return ConsilienceError(
        f"{option} with a decision model",
        expected=f"a probability for every option; {expected}",
        todo=f"Leave {option} out.",
    )


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
