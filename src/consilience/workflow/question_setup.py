"""The setup of a run of questions: questions and variants, and how a model is asked them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from consilience import suites
from consilience.ask import Progress
from consilience.ask_questions import (
    Presenter,
    PromptModel,
    ask_options,
    prompt_count,
    prompt_table,
)
from consilience.asking.planning import SAMPLED_ITEMS, evenly, spread
from consilience.asking.prompting import Prompting, template_names
from consilience.core.errors import ConsilienceError
from consilience.core.expectations import linked_questions
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.process import Watch
from consilience.endpoints.strategies import ANSWERS_ONLY
from consilience.models.prompt_models import is_chat_model, load_prompt_model
from consilience.options import shared_fields
from consilience.questions import Question
from consilience.runs.folder import RunFolder
from consilience.runs.run import EXPECTATIONS, QUESTIONS, TEXTS, text_digests
from consilience.suites.pairs import is_task
from consilience.suites.question_suites import (
    GroupOfQuestions,
    groups_of_questions,
    is_questions,
    load_questions,
    questions_of_suite,
    select_questions,
    suite_of_questions,
)
from consilience.suites.questions import Questions
from consilience.types import Suite
from consilience.workflow.deciding import decides, decision_prompting, refuse_batches
from consilience.workflow.probe_options import SERVED, ProbeOptions, refuse_options
from consilience.workflow.question_design import columns_of, design_of, factors_of, fixed_note
from consilience.workflow.question_noise import question_noise_floor
from consilience.workflow.run_settings import default_folder
from consilience.workflow.setup import Loaded, Setup
from consilience.workflow.written_answers import Writer, Writing, as_writer


def question_setup(
    options: ProbeOptions, watch: Watch, whole: Questions, model: PromptModel | None = None
) -> Setup:
    """Choose the questions and the variants; options that do not fit questions raise.

    ``model``: the model, where the caller has it.
    """
    refuse_options(options, "questions", "a suite of questions")
    questions = select_questions(whole, options.groups, options.limit, options.seed)
    groups = groups_of_questions(questions, writes_freely=options.generate)
    writing = _writing_of(options, groups)
    samples = writing.factors if writing else []
    factors = factors_of(options.vary, questions, template_names(options.template), samples)
    design = design_of(options.design, factors, options.seed)
    if decides(options.model, model):
        writing, groups = None, groups_of_questions(questions)
        prompting = decision_prompting(options, design.factors, groups, questions.items)
        pool: Sequence[Question] = questions.items
    else:
        refuse_batches(factors, options.model)
        prompting = _prompting(options, factors, is_chat=model is None or is_chat_model(model))
        pool = whole.items
        presenter = prompting.presenter(design, pool)  # the rule fits the labels
        if presenter.rule.reply == "label" and any(not of.writes_freely for of in groups):
            prompting.refuse_hidden_options()
        for question in questions.items:
            presenter.drawn_examples(question, 0)  # a group with too few questions raises
    questionnaire = Questionnaire(options, whole, questions, pool, design, groups, prompting)
    by_group = questions.groups
    return Setup(
        options,
        suite_of_questions(questions.name, groups, design, questions.expectations),
        protocol="strict",
        groups={
            name: prompt_count(by_group[name], questionnaire.presenter(name)) for name in by_group
        },
        unit="prompts",
        extent={
            "suite": questions.name,
            "items": len(questions),
            "variants": f"{len(design.cells)} variants",
            "candidates": spread([group.options for group in groups]),
        },
        samples={
            name: evenly([question.item for question in of_group], SAMPLED_ITEMS)
            for name, of_group in by_group.items()
        },
        load=partial(_load, questionnaire, watch, writing, model),
    )


@dataclass(frozen=True, slots=True)
class Questionnaire:
    """The questions in their variants, and how they are presented."""

    options: ProbeOptions
    """The options of the command."""
    whole: Questions
    """All questions of the suite."""
    questions: Questions
    """The chosen questions."""
    pool: Sequence[Question]
    """The questions from which examples are drawn: all of the suite; of a decision model the chosen
    ones, which share requests."""
    design: FactorialDesign
    """The variants."""
    groups: Sequence[GroupOfQuestions]
    """What is counted of each group."""
    prompting: Prompting
    """How a question becomes a prompt."""

    def presenter(self, name: str) -> Presenter:
        """How the questions of a group are presented."""
        (group,) = (group for group in self.groups if group.id == name)
        return self.prompting.presenter(group.design(self.design), self.pool)

    def settings(self, model: PromptModel, writing: Writing | None) -> dict[str, object]:
        """Everything that decides the answers."""
        options, groups = self.options, self.groups
        return {
            "kind": QUESTIONS,
            "suite": self.questions.name,
            "suite_digest": self.questions.digest,
            "groups": [group.id for group in groups],
            "options": {group.id: group.options for group in groups},
            "written": [group.id for group in groups if group.writes_freely],
            "writing": writing.settings if writing else None,
            "limit": options.limit,
            "seed": options.seed,
            "protocol": "strict",
            "factors": {factor.name: list(factor.levels) for factor in self.design.factors},
            "cells": [list(cell) for cell in self.design.cells],
            "design": options.design,
            **self.prompting.record(self.design),
            "model": model.identity,
            **({"max_length": options.max_length} if options.max_length else {}),
        }

    def describe(self, folder: RunFolder) -> None:
        """Record notes, what each question is, and what should hold between the answers."""
        folder.describe(TEXTS, text_digests(self.questions.items, self.design))
        if self.whole.source:
            folder.describe("suite_source", self.whole.source)
        folder.note([*self.questions.notes, *fixed_note(self.options.vary, self.questions)])
        if expectations := self.questions.expectations:
            folder.describe(EXPECTATIONS, [expected.to_record() for expected in expectations])

    def noise_floor(self, model: PromptModel, progress: Progress) -> pl.DataFrame | None:
        """Of the questions whose answers are chosen; None where there are none."""
        options, by_group = self.options, self.questions.groups
        chosen = [group.id for group in self.groups if not group.writes_freely]
        if not chosen:
            return None
        half = partial(
            load_prompt_model,
            options.model,
            self.whole.items,
            loading=replace(options.loading, dtype="bfloat16"),
            seed=options.seed,
            longest=options.max_length or 0,
        )
        return question_noise_floor(
            [(by_group[name], self.presenter(name)) for name in chosen],
            model,
            self.questions.name,
            in_half_precision=half if model.identity.get("dtype") == "float32" else None,
            queries=options.noise_floor or 0,
            seed=options.seed,
            progress=progress,
        )


def _load(
    questionnaire: Questionnaire, watch: Watch, writing: Writing | None, ready: PromptModel | None
) -> Loaded:
    """The model, and how it is asked."""
    options, by_group, name = (
        questionnaire.options,
        questionnaire.questions.groups,
        questionnaire.questions.name,
    )
    model = ready
    if model is None:
        with watch.loading(options.model):
            model = _load_model(questionnaire, writing)
        _refuse_rule_without_scores(options, model)
        if not decides(options.model):
            is_chat = is_chat_model(model)
            prompting = _prompting(options, questionnaire.design.factors, is_chat=is_chat)
            questionnaire = replace(questionnaire, prompting=prompting)
    writer = _writer_of(writing, model, questionnaire) if writing else None
    settings = questionnaire.settings(model, writer.writing if writer else None)

    def ask(
        group: str,
        items: Sequence[str] | None = None,
        variants: Sequence[int] | None = None,
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        presenter, questions = questionnaire.presenter(group), by_group[group]
        if items is not None:
            questions = tuple(question for question in questions if question.item in items)
        if variants is not None:
            cells = tuple(presenter.design.cells[at] for at in variants)
            design = FactorialDesign(presenter.design.factors, cells)
            presenter = replace(presenter, design=design, rule_name=presenter.rule.name)
        if writer and group in written:
            return writer.ask(questions, presenter, name, progress)
        return ask_options(questions, presenter, chooser, name, progress)

    def prompts(group: str) -> pl.DataFrame:
        reader = model if group in written else chooser
        return prompt_table(by_group[group], questionnaire.presenter(group), reader)

    chooser = getattr(model, "chooser", None) or model
    written = [group.id for group in questionnaire.groups if group.writes_freely]
    return Loaded(
        model,
        settings,
        options.out or default_folder(options.model, settings),
        questionnaire.describe,
        ask,
        prompts=prompts,
        notes_on=writer.notes if writer else lambda answers: (),
        noise_floor=partial(questionnaire.noise_floor, model),
    )


def _load_model(questionnaire: Questionnaire, writing: Writing | None) -> PromptModel:
    """The model; of a served one that also writes, a writer on the same server."""
    options, longest = questionnaire.options, questionnaire.options.max_length or 0
    is_served, chooser = options.model.partition(":")[0] in SERVED, None
    writes = writing is not None and not options.model.startswith("baseline:")
    chooses = any(not group.writes_freely for group in questionnaire.groups)
    if not writes or (is_served and chooses):
        chooser = load_prompt_model(
            options.model,
            questionnaire.whole.items,
            loading=options.loading,
            seed=options.seed,
            longest=longest,
            connection=options.connection,
            scoring=options.scoring,
        )
    if writing is None or not writes:
        assert chooser is not None
        return chooser
    writer: PromptModel = writing.load_model(
        options.model, options.loading, longest, options.connection, chooser
    )
    return writer


def _refuse_rule_without_scores(options: ProbeOptions, model: PromptModel) -> None:
    """Raise for a scoring rule where a server gives answers without scores."""
    if options.option_score and model.identity.get("scoring") == ANSWERS_ONLY:
        raise ConsilienceError(
            f"--option-score {options.option_score} with a server that gives answers only",
            expected="log-probabilities of the options",
            todo="Leave it out; for options without labels add --vary labels=none.",
        )


def _writer_of(writing: Writing, model: PromptModel, questionnaire: Questionnaire) -> Writer:
    """The model as one that writes."""
    judge = writing.load_judge(questionnaire.options.loading)
    compared = [one for one in questionnaire.whole.expectations if one.compares_texts]
    if questionnaire.options.model.startswith("baseline:"):
        # It writes an option or a gold alone, which every rule should accept.
        writing = replace(writing, match=None)
    return Writer(writing, as_writer(model), judge, linked_questions(compared))


def questions_of(options: ProbeOptions, suite: Suite | Questions | None) -> Questions | None:
    """The questions that are asked; None where facts or sentence pairs are."""
    if isinstance(suite, Questions):
        return suite
    if options.as_questions is not None:
        return _as_questions(options, suite)
    if suite is None and is_questions(options.suite):
        return load_questions(options.suite, columns_of(options.columns))
    return None


def _as_questions(options: ProbeOptions, suite: Suite | None) -> Questions:
    """The facts of a suite as questions with a blank."""
    if suite is None and (is_questions(options.suite) or is_task(options.suite)):
        raise ConsilienceError(
            f"--as-questions with --suite {options.suite}",
            expected="a suite of facts, such as mini",
            todo="Leave --as-questions out.",
        )
    suite = suite or suites.load_suite(options.suite, options.data_dir)
    return questions_of_suite(suite, options.as_questions, options.seed)


def _writing_of(options: ProbeOptions, groups: Sequence[GroupOfQuestions]) -> Writing | None:
    """How answers are written; None where no group is. Options of writing then raise."""
    writing = Writing(**shared_fields(options, Writing))
    is_here = options.model.partition(":")[0] not in SERVED
    if options.noise_floor and is_here and all(group.writes_freely for group in groups):
        raise ConsilienceError(
            "--noise-floor of written answers",
            expected="questions with options, of which one is chosen",
            todo="Measure the noise of sampling instead: --samples 2 --temperature 0.7.",
        )
    if options.option_score and all(group.writes_freely for group in groups):
        raise ConsilienceError(
            "--option-score of written answers",
            expected="questions with options, of which one is chosen",
            todo="Leave it out, or leave --generate out.",
        )
    if any(group.writes_freely for group in groups):
        return writing
    if writing != Writing(seed=options.seed):
        raise ConsilienceError(
            "an option for written answers with questions that have options",
            expected="--generate, with which the model writes its answers",
            todo="Add --generate, or leave --match, --samples, --temperature, --max-new-tokens "
            "and --equivalence out.",
        )
    return None


def _prompting(options: ProbeOptions, factors: Sequence[Factor], *, is_chat: bool) -> Prompting:
    """How a question becomes a prompt; ``is_chat``: whether the model has a chat template."""
    return Prompting.of(
        options.template,
        factors,
        rule_name=options.option_score or "",
        shots=options.shots,
        system=options.system or "",
        seed=options.seed,
        is_chat=is_chat,
    )
