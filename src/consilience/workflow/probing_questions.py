"""Ask a model questions in every variant of a design of factors."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import polars as pl

from consilience.ask import Progress
from consilience.ask_questions import (
    Presenter,
    PromptModel,
    ask_options,
    prompt_count,
    prompt_table,
)
from consilience.errors import ConsilienceError
from consilience.expectations import linked_questions
from consilience.factors import Factor, FactorialDesign
from consilience.files import path_in, write_whole
from consilience.models.prompt_models import is_chat_model, load_prompt_model
from consilience.questions import Question
from consilience.run import EXPECTATIONS, PROMPTS, QUESTIONS, model_name
from consilience.run_folder import RunFolder
from consilience.server_noise import AskedGroup
from consilience.suites.question_collection import Questions
from consilience.suites.question_suites import (
    GroupOfQuestions,
    groups_of_questions,
    select_questions,
    suite_of_questions,
)
from consilience.types import Suite
from consilience.watch import Advance, Watch
from consilience.workflow.counting import CountedRun, count_answers, save_counted
from consilience.workflow.deciding import decides, decision_prompting, refuse_batches
from consilience.workflow.noise_floors import noise_of_server
from consilience.workflow.options import shared_fields
from consilience.workflow.probe_options import SERVED, ProbeOptions, refuse_options
from consilience.workflow.probe_plan import (
    SAMPLED_ITEMS,
    GroupOfQueries,
    ProbePlan,
    complete_groups,
    evenly,
    sampled_plan,
    spread,
)
from consilience.workflow.prompting import Prompting, template_names
from consilience.workflow.question_design import design_of, factors_of, fixed_note
from consilience.workflow.question_noise import question_noise_floor
from consilience.workflow.run_settings import default_folder
from consilience.workflow.written_answers import Writer, Writing, as_writer


def probe_questions(
    options: ProbeOptions, watch: Watch, questions: Questions, model: PromptModel | None = None
) -> CountedRun:
    """Ask a model (``model``, or the one that the options name) every question in every variant."""
    setup = QuestionSetup.of(options, watch, questions, model)
    folder = RunFolder(setup.folder, setup.settings)
    folder.pay_for(setup.model)
    folder.note([*setup.questions.notes, *fixed_note(options.vary, setup.questions)])
    if expectations := setup.questions.expectations:
        folder.describe(EXPECTATIONS, [expectation.to_record() for expectation in expectations])
    tables = []
    with watch.steps("asking", setup.size, "prompts") as advance:
        for group in setup.groups:
            tables.append(_answers_of(setup, group, folder, advance))
    folder.note(setup.model.notes)
    if setup.writer:
        folder.note(setup.writer.notes(pl.concat(tables, how="diagonal")))
    answers = {"": pl.concat(tables, how="diagonal")}
    noise = _noise_floor(setup, folder, tables, watch)
    name, seed = model_name(options.model), options.seed
    counted = count_answers(answers, setup.suite, "strict", name, seed, noise)
    return save_counted(counted, folder)


@dataclass(frozen=True, slots=True)
class QuestionSetup:
    """What a run of questions needs before anything is asked."""

    options: ProbeOptions
    """The options of the command."""
    questions: Questions
    """The chosen questions."""
    pool: Sequence[Question]
    """All questions of the suite, from which examples are drawn; of a decision model the chosen
    ones, which share requests."""
    design: FactorialDesign
    """The variants."""
    prompting: Prompting
    """How a question becomes a prompt."""
    groups: Sequence[GroupOfQuestions]
    """What is counted of each group."""
    model: PromptModel
    """The model, loaded."""
    writer: Writer | None
    """The model as one that writes; None where it chooses all answers."""

    @classmethod
    def of(
        cls,
        options: ProbeOptions,
        watch: Watch,
        whole: Questions,
        model: PromptModel | None = None,
    ) -> QuestionSetup:
        """Check the options, choose the questions and the variants, and load the model."""
        refuse_options(options, "questions", "a suite of questions")
        chosen = select_questions(whole, options.groups, options.limit, options.seed)
        groups = groups_of_questions(chosen, writes_freely=options.generate)
        writing = _writing_of(options, groups)
        samples = writing.factors if writing else []
        factors = factors_of(options.vary, chosen, template_names(options.template), samples)
        design = design_of(options.design, factors, options.seed)
        if decides(options.model, model):
            return cls._of_decisions(options, watch, whole, chosen, design, model)
        refuse_batches(factors, options.model)
        prompting = _prompting(options, factors, is_chat=model is None or is_chat_model(model))
        presenter = prompting.presenter(design, whole.items)  # the rule fits the labels
        if presenter.rule.reply == "label" and any(not of.writes_freely for of in groups):
            prompting.refuse_hidden_options()
        for question in chosen.items:
            presenter.drawn_examples(question, 0)  # a group with too few questions raises
        if model is None:
            with watch.loading(options.model):
                model = _load(options, whole, writing)
            prompting = _prompting(options, factors, is_chat=is_chat_model(model))
        writer = None
        if writing:
            judge = writing.load_judge(options.loading)
            compared = [one for one in whole.expectations if one.compares_texts]
            if options.model.startswith("baseline:"):
                # It writes an option or a gold alone, which every rule should accept.
                writing = replace(writing, match=None)
            writer = Writer(writing, as_writer(model), judge, linked_questions(compared))
        return cls(options, chosen, whole.items, design, prompting, groups, model, writer)

    @classmethod
    def _of_decisions(
        cls,
        options: ProbeOptions,
        watch: Watch,
        whole: Questions,
        chosen: Questions,
        design: FactorialDesign,
        model: PromptModel | None,
    ) -> QuestionSetup:
        """The setup of a model that gives the probability of every option."""
        groups = groups_of_questions(chosen)
        prompting = decision_prompting(options, design.factors, groups, chosen.items)
        if model is None:
            with watch.loading(options.model):
                model = _load(options, whole, None)
        return cls(options, chosen, chosen.items, design, prompting, groups, model, None)

    def presenter(self, group: GroupOfQuestions) -> Presenter:
        """How the questions of a group are presented."""
        return self.prompting.presenter(group.design(self.design), self.pool)

    @property
    def suite(self) -> Suite:
        """The questions in their variants, as they are counted."""
        questions = self.questions
        return suite_of_questions(questions.name, self.groups, self.design, questions.expectations)

    @property
    def size(self) -> int:
        """The number of prompts."""
        by_group = self.questions.groups
        return sum(prompt_count(by_group[group.id], self.presenter(group)) for group in self.groups)

    @property
    def settings(self) -> dict[str, object]:
        """Everything that decides the answers."""
        options = self.options
        return {
            "kind": QUESTIONS,
            "suite": self.questions.name,
            "suite_digest": self.questions.digest,
            "groups": [group.id for group in self.groups],
            "options": {group.id: group.options for group in self.groups},
            "written": [group.id for group in self.groups if group.writes_freely],
            "writing": self.writer.writing.settings if self.writer else None,
            "limit": options.limit,
            "seed": options.seed,
            "protocol": "strict",
            "factors": {factor.name: list(factor.levels) for factor in self.design.factors},
            "cells": [list(cell) for cell in self.design.cells],
            "design": options.design,
            **self.prompting.record(self.design),
            "model": self.model.identity,
            **({"max_length": options.longest} if options.longest else {}),
        }

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.options.folder or default_folder(self.options.model, self.settings)

    def ask(
        self,
        group: GroupOfQuestions,
        questions: Sequence[Question],
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        """The answers to questions of a group: written or chosen."""
        presenter, name = self.presenter(group), self.questions.name
        if group.writes_freely and self.writer:
            return self.writer.ask(questions, presenter, name, progress)
        return ask_options(questions, presenter, self.model, name, progress)


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


def _load(options: ProbeOptions, questions: Questions, writing: Writing | None) -> PromptModel:
    if writing and not options.model.startswith("baseline:"):
        writer: PromptModel = writing.load_model(
            options.model, options.loading, options.longest or 0, options.connection
        )
        return writer
    return load_prompt_model(
        options.model,
        questions.items,
        loading=options.loading,
        seed=options.seed,
        longest=options.longest or 0,
        connection=options.connection,
        scoring=options.scoring,
    )


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


def _noise_floor(
    setup: QuestionSetup, folder: RunFolder, tables: Sequence[pl.DataFrame], watch: Watch
) -> pl.DataFrame | None:
    """Rows of the metrics table on a sample that is asked again; None without one.

    ``tables``: the answers of the run to each group.
    """
    options, by_group = setup.options, setup.questions.groups
    if (client := getattr(setup.model, "client", None)) is not None:
        parts = [
            AskedGroup(_as_written(setup, answers), partial(_ask_again, setup, group))
            for group, answers in zip(setup.groups, tables, strict=True)
        ]
        return noise_of_server(parts, client, folder, options, setup.questions.name, watch)
    groups = [
        (by_group[group.id], setup.presenter(group))
        for group in setup.groups
        if not group.writes_freely
    ]
    if not (options.noise_floor and groups):
        return None
    half = partial(
        load_prompt_model,
        options.model,
        setup.pool,
        loading=replace(options.loading, dtype="bfloat16"),
        seed=options.seed,
        longest=options.longest or 0,
    )
    with watch.steps("noise floor", None, "prompts") as advance:
        return question_noise_floor(
            groups,
            setup.model,
            setup.questions.name,
            in_half_precision=half if setup.model.identity.get("dtype") == "float32" else None,
            seed=options.seed,
            progress=advance,
        )


def _ask_again(
    setup: QuestionSetup, group: GroupOfQuestions, items: Sequence[str], variants: Sequence[int]
) -> pl.DataFrame:
    """The answers to some questions of a group in some variants."""
    presenter, name = setup.presenter(group), setup.questions.name
    cells = tuple(presenter.design.cells[at] for at in variants)
    design = FactorialDesign(presenter.design.factors, cells)
    some = replace(presenter, design=design, rule_name=presenter.rule.name)
    questions = [one for one in setup.questions.groups[group.id] if one.item in items]
    if group.writes_freely and setup.writer:
        return _as_written(setup, setup.writer.ask(questions, some, name))
    return ask_options(questions, some, setup.model, name)


def _as_written(setup: QuestionSetup, answers: pl.DataFrame) -> pl.DataFrame:
    """Answers before a judge merged them, because which ones are merged depends on all of them."""
    if "text" not in answers.columns or not (setup.writer and setup.writer.judge):
        return answers
    return answers.with_columns(option=None, answer="text")


def _answers_of(
    setup: QuestionSetup, group: GroupOfQuestions, folder: RunFolder, advance: Advance
) -> pl.DataFrame:
    """The answers of a group; existing ones are not asked again. What is sent is kept first."""
    questions, presenter = setup.questions.groups[group.id], setup.presenter(group)
    size = prompt_count(questions, presenter)
    known = folder.answers(group.id, size)
    if known is not None:
        advance(size)
        return known
    prompts = path_in(folder.path / PROMPTS, group.id, ".parquet")
    prompts.parent.mkdir(exist_ok=True)
    buffer = io.BytesIO()
    prompt_table(questions, presenter, setup.model).write_parquet(buffer)
    write_whole(prompts, buffer.getvalue())
    answers = setup.ask(group, questions, advance)
    folder.write_answers(group.id, answers)
    return answers


def plan_questions(
    options: ProbeOptions, watch: Watch, questions: Questions, model: PromptModel | None = None
) -> ProbePlan:
    """What ``probe`` would ask of questions; nothing is written.

    The model is loaded, and some questions are asked to measure the rate; of a model behind a URL
    their requests are counted and not sent.
    """
    start = time.monotonic()
    setup = QuestionSetup.of(options, watch, questions, model)
    loading = time.monotonic() - start
    by_group = setup.questions.groups
    is_new, complete = complete_groups(setup.folder, setup.settings)
    sizes = {
        group.id: prompt_count(by_group[group.id], setup.presenter(group)) for group in setup.groups
    }

    def ask(group: GroupOfQuestions) -> int:
        some = evenly(by_group[group.id], SAMPLED_ITEMS)
        return setup.ask(group, some).height

    groups = [
        GroupOfQueries(partial(ask, group), 0 if group.id in complete else sizes[group.id])
        for group in setup.groups
    ]
    return ProbePlan(
        model_name(options.model),
        setup.questions.name,
        "strict",
        groups=len(setup.groups),
        items=len(setup.questions),
        variants=f"{len(setup.design.cells)} variants",
        candidates=spread([group.options for group in setup.groups]),
        queries=sum(sizes.values()),
        complete=sum(size for name, size in sizes.items() if name in complete),
        folder=str(setup.folder),
        is_new=is_new,
        loading=loading,
        **sampled_plan(setup.model, groups, noise_floor=options.noise_floor),
    )
