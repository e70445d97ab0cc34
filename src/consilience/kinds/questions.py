"""Questions with options or without, asked in phrasings, languages, orders and templates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import polars as pl

from consilience import suites
from consilience.analysis.examples import KINDS, OF_FACTS, with_prompts
from consilience.asking import questions as asking
from consilience.asking.asker import Progress
from consilience.core.errors import SILENT, ConsilienceError, Protocol, Watch
from consilience.core.factors import Factor, FactorialDesign, levels_of
from consilience.core.free_text import DEFAULT_RULES, rule_of
from consilience.core.items import Question
from consilience.core.text import listed
from consilience.files.tables import LOG_PROBABILITIES, different
from consilience.kinds import base
from consilience.kinds import variants as varying
from consilience.kinds.answers import (
    JUDGED,
    answers_to_questions,
    design_from,
    model_of_answers,
    refuse_published,
)
from consilience.kinds.variants import (
    GroupOfQuestions,
    groups_of_questions,
    suite_of_questions,
)
from consilience.models import Model, is_chat_model, load_prompt_model, load_writer
from consilience.models.functions import PromptFunction
from consilience.options.probe import ProbeOptions
from consilience.options.runs import ScoreOptions
from consilience.runs.folder import RunFolder
from consilience.runs.run import EXPECTATIONS, QUESTIONS, TEXTS, Run
from consilience.suites.pairs import is_task
from consilience.suites.question_suites import (
    HUB,
    columns_of,
    gold_position_note,
    is_questions,
    load_questions,
    questions_of_suite,
    select_questions,
)
from consilience.suites.questions import Questions
from consilience.types import QUESTION_WORDS, Fact, Suite

OF_WRITING = ("match", "samples", "temperature", "max_new_tokens", "equivalence")


class OwnQuestions(base.Inquiry):
    """Questions of a file, a folder or the Hub, or facts that are asked as questions."""

    kind = "questions"
    a_suite = "a suite of questions"
    words = QUESTION_WORDS
    unit = "prompts"
    in_record = QUESTIONS
    example_kinds = tuple(name for name in KINDS if name not in OF_FACTS)
    method, takes = "why_not", "prompts to labels or texts of options"

    @classmethod
    def accepts(cls, suite: base.SuiteValue) -> bool:
        return isinstance(suite, Questions) or (isinstance(suite, str) and is_questions(suite))

    @classmethod
    def to_export(cls, options: ProbeOptions) -> Self:
        return cls(options, is_for_a_model=False)

    def __init__(
        self,
        options: ProbeOptions,
        watch: Watch = SILENT,
        suite: Any = None,
        model: Any = None,
        *,
        is_for_a_model: bool = True,
    ) -> None:
        """``is_for_a_model``: else prompts are texts, unless a template is that of a chat."""
        self.whole = whole = questions_of(options, suite)
        super().__init__(options, watch, suite, model)
        self.questions = select_questions(whole, options.groups, options.limit, options.seed)
        self.by_group = self.questions.groups
        groups = groups_of_questions(self.questions, writes_freely=options.generate)
        samples = varying.sample_factor(options.samples, options.temperature)
        self.writes = _writes(options, groups)
        self.factors = varying.factors_of(options, self.questions, samples if self.writes else ())
        self.design = varying.design_of(options.design, self.factors)
        self.pool: Sequence[Question] = whole.items  # examples are drawn from them
        is_chat = is_for_a_model and (model is None or is_chat_model(model))
        self.prompting = varying.presenter_of(options, self.factors, is_chat=is_chat)
        self.members: Mapping[str, GroupOfQuestions] = {group.id: group for group in groups}
        self.suite = suite_of_questions(
            self.questions.name, groups, self.design, self.questions.expectations, options.seed
        )
        if is_for_a_model:
            self._check()

    def _check(self) -> None:
        """Raise for options that do not fit the questions."""
        presenter = self.prompting.of_group(self.design, self.pool)  # the rule fits the labels
        if presenter.rule.reply == "label" and self._chosen_groups:
            presenter.refuse_hidden_options()
        for question in self.questions.items:
            presenter.drawn_examples(question, 0)  # a group with too few questions raises

    @property
    def _chosen_groups(self) -> list[str]:
        """The groups whose answers are chosen; those of the others are written."""
        return [name for name, group in self.members.items() if not group.writes_freely]

    def presenter(self, group: str) -> asking.Presenter:
        return self.prompting.of_group(self.members[group].design(self.design), self.pool)

    @cached_property
    def groups(self) -> Mapping[str, int]:
        return {
            name: sum(len(asked.asks) for _, asked in asking.slices_of(items, self.presenter(name)))
            for name, items in self.by_group.items()
        }

    def load(self) -> None:
        """Load the model, and present questions as it reads them."""
        super().load()
        if not self.is_given:
            is_chat = is_chat_model(self.model)
            self.prompting = varying.presenter_of(self.options, self.factors, is_chat=is_chat)
        if self.writes:
            self.writer = self._writer()

    def new_model(self) -> Model:
        options = self.options
        loading = options.loading
        is_served, chooser = options.model.startswith("openai:"), None
        writes = self.writes and not options.model.startswith("baseline:")
        if not writes or (is_served and self._chosen_groups):
            chooser = load_prompt_model(
                options.model,
                self.whole.items,
                loading=loading,
                seed=options.seed,
                connection=options.connection,
            )
        if not writes:
            assert chooser is not None
            return chooser
        writer: Model = load_writer(
            options.model,
            loading,
            connection=options.connection,
            chooser=chooser,
            most_written=options.max_new_tokens,
            temperature=options.temperature,
            seed=options.seed,
        )
        return writer

    def _writer(self) -> varying.Writer:
        options, judge = self.options, None
        if options.equivalence is not None:
            from consilience.models.judges import load_judge

            judge = load_judge(options.equivalence, options.loading)
        # A baseline writes an option or a gold alone, which every rule should accept.
        match = None if options.model.startswith("baseline:") else options.match
        return varying.Writer(varying.as_writer(self.model), match, judge)

    @cached_property
    def settings(self) -> Mapping[str, object]:
        options, groups, writing = self.options, self.members, None
        if self.writes:
            match = self.writer.match or DEFAULT_RULES
            writing = {
                "match": match,
                "samples": options.samples,
                "equivalence": options.equivalence,
            }
        return {
            **_settings_of(self.questions, self.questions.digest, groups.values(), self.design),
            "writing": writing,
            "limit": options.limit,
            "seed": options.seed,
            "design": options.design,
            **self.prompting.of_group(self.design, ()).record,
            "model": self.model.identity,
        }

    def describe(self, folder: RunFolder) -> None:
        for name, value in _described(self.whole, self.questions, self.design).items():
            folder.describe(name, value)
        varies_order = any(factor.name == "order" for factor in self.design.factors)
        position = "" if varies_order else gold_position_note(self.questions.items)
        folder.note([*filter(None, [position]), *self.questions.notes])

    @property
    def chooser(self) -> Model:
        chooser: Model = getattr(self.model, "chooser", None) or self.model
        return chooser

    def ask(
        self,
        group: str,
        items: Sequence[str] | None = None,
        variants: Sequence[int] | None = None,
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        presenter, questions = self.presenter(group), self.by_group[group]
        if items is not None:
            questions = tuple(question for question in questions if question.item in items)
        if variants is not None:
            cells = tuple(presenter.design.cells[at] for at in variants)
            design = FactorialDesign(presenter.design.factors, cells)
            presenter = replace(presenter, design=design, rule_name=presenter.rule.name)
        name = self.questions.name
        if self.members[group].writes_freely:
            return self.writer.ask(questions, presenter, name, progress)
        return asking.ask_options(questions, presenter, self.chooser, name, progress)

    def prompts(self, group: str) -> pl.DataFrame:
        reader = self.model if self.members[group].writes_freely else self.chooser
        return asking.prompt_table(self.by_group[group], self.presenter(group), reader)

    def notes_on(self, answers: pl.DataFrame) -> Sequence[str]:
        return asking.notes_on_writing(answers) if self.writes else ()

    def rows(self) -> Iterator[base.ExportedRow]:
        for group, questions in self.by_group.items():
            presenter = self.presenter(group)
            names = presenter.design.names
            for at, variant, prompt in asking.prompts_of(questions, presenter):
                question = questions[at]
                turns = [*[("system", prompt.system)] * bool(prompt.system), *prompt.turns]
                messages = [{"role": role, "content": text} for role, text in turns]
                yield {
                    "suite": self.questions.name,
                    "group": group,
                    "item": question.item,
                    "subject": question.item,
                    "variant": names[variant],
                    "variant_index": variant,
                    "prompt": f"{prompt.system}\n\n{prompt.text}" if prompt.system else prompt.text,
                    "messages": messages if prompt.is_chat else None,
                    "candidates": list(prompt.answers) if question.options else [],
                    "options": [question.options[option].text for option in prompt.options],
                    "gold": question.gold.text,
                }

    @classmethod
    def model_of(cls, function: Any, suite: str, template: str | None) -> PromptFunction:
        return PromptFunction(function)

    @classmethod
    def suite_of(
        cls, run: Run, name: str | None, protocol: Protocol | None
    ) -> tuple[Suite, Protocol]:
        base.refuse_choices("questions", suite=name, protocol=protocol)
        items = (
            run.seeds[0]
            .answers.select("group", "item", "gold", "gold_option")
            .unique(["group", "item"], keep="first", maintain_order=True)
            .partition_by("group", as_dict=True)
        )
        groups = []
        for group, options in run.settings["options"].items():
            rows = items.get((group,))
            known = list(rows.iter_rows(named=True)) if rows is not None else []
            facts = tuple(Fact(row["item"], row["item"], row["gold"]) for row in known)
            golds = tuple(row["gold_option"] for row in known if options)
            is_written = group in run.settings["written"]
            groups.append(GroupOfQuestions(group, facts, golds, options, is_written))
        design = design_of_run(run)
        name, seed = run.settings["suite"], run.settings.get("seed", 0)
        return suite_of_questions(name, groups, design, run.expectations, seed), "strict"

    @classmethod
    def is_as_asked(cls, run: Run, suite: Suite) -> bool:
        source = dict(run.record.get("suite_source", {}))
        path = Path(source.pop("file", ""))
        if path == Path() or not path.exists():
            return True
        try:
            texts = text_digests(load_questions(path, source).items, design_of_run(run))
        except (ConsilienceError, ValueError):
            return False
        return {*run.texts.values()} <= {*texts.values()}

    @classmethod
    def read_answers(
        cls, run: Run, options: ScoreOptions, suite: Questions | None
    ) -> base.AnswersElsewhere:
        """Texts or log-probabilities of options."""
        refuse_published(options)
        whole = suite or load_questions(options.suite or "", columns_of(options.columns))
        rule, table = rule_of(options.match) if options.match else None, run.answers
        if is_judged := JUDGED in table.columns:
            names = different(table, "variant_index", "variant").sort("variant_index")
            levels = [levels_of(name) for name in names["variant"]]
            design, answers = design_from(levels), table.drop(JUDGED)
        else:
            design, answers = answers_to_questions(table, whole, rule)
        items = set(answers["item"].unique())
        questions = replace(whole, items=tuple(item for item in whole.items if item.item in items))
        is_scored = LOG_PROBABILITIES in run.answers.columns
        groups = groups_of_questions(questions, writes_freely=not is_scored)
        match = "as recorded" if is_judged else options.match or DEFAULT_RULES
        notes = asking.notes_on_writing(answers)
        return base.AnswersElsewhere(
            suite_of_questions(questions.name, groups, design, questions.expectations),
            "strict",
            answers,
            {"answers": str(options.answers), "suite": questions.name, "match": match},
            before=_not_counted(whole, items),
            after=notes,
            run_settings={
                **_settings_of(questions, whole.digest, groups, design),
                **model_of_answers(options, match),
            },
            described=_described(whole, questions, design),
        )

    @classmethod
    def on_the_hub(cls, run: Run) -> tuple[str, str, str]:
        spec = str((run.record.get("options") or {}).get("suite") or "")
        if "dataset" in (source := run.record.get("suite_source", {})):
            return source["dataset"], source["config"], source["split"]
        if not spec.startswith(HUB):
            return "", "", ""
        dataset, _, split = spec.removeprefix(HUB).partition(":")
        dataset, _, config = dataset.partition("@")
        return dataset, config, split

    @classmethod
    def with_texts(cls, run: Run, examples: base.ExamplesOfKinds) -> base.ExamplesOfKinds:
        texts = {(item, variant): text for _, item, variant, text in run.prompts.iter_rows()}
        return with_prompts(examples, run.seeds[0].answers, texts)

    @classmethod
    def shown_texts(cls, run: Run, suite: Suite, items: Set[tuple[str, str]]) -> base.ShownTexts:
        return {row[:3]: row[3] for row in run.prompts.iter_rows() if row[:2] in items}


def questions_of(options: ProbeOptions, suite: Suite | Questions | None = None) -> Questions:
    """The questions that options name; facts as questions with a blank (``--as-questions``)."""
    if isinstance(suite, Questions):
        return suite
    if options.as_questions is None:
        return load_questions(options.suite, columns_of(options.columns), options.data_dir)
    if suite is None and (is_questions(options.suite) or is_task(options.suite)):
        found = f"--as-questions with --suite {options.suite}"
        expected = "a suite of facts, such as mini"
        raise ConsilienceError(found, expected=expected, todo="Leave --as-questions out.")
    suite = suite or suites.load_suite(options.suite, options.data_dir)
    return questions_of_suite(suite, options.as_questions, options.seed)


def _settings_of(
    questions: Questions, digest: str, groups: Iterable[GroupOfQuestions], design: FactorialDesign
) -> dict[str, object]:
    groups = list(groups)
    return {
        "kind": QUESTIONS,
        "suite": questions.name,
        "suite_digest": digest,
        "groups": [group.id for group in groups],
        "options": {group.id: group.options for group in groups},
        "written": [group.id for group in groups if group.writes_freely],
        "protocol": "strict",
        "factors": {factor.name: list(factor.levels) for factor in design.factors},
        "cells": [list(cell) for cell in design.cells],
    }


def _described(
    whole: Questions, questions: Questions, design: FactorialDesign
) -> dict[str, object]:
    expectations = [one.to_record() for one in questions.expectations]
    return {
        TEXTS: text_digests(questions.items, design),
        **({"suite_source": whole.source} if whole.source else {}),
        **({EXPECTATIONS: expectations} if expectations else {}),
    }


def design_of_run(run: Run) -> FactorialDesign:
    """The variants that a run of questions was asked."""
    factors = [Factor(name, tuple(levels)) for name, levels in run.settings["factors"].items()]
    return FactorialDesign(tuple(factors), tuple(map(tuple, run.settings["cells"])))


def text_digests(questions: Iterable[Question], design: FactorialDesign) -> dict[str, str]:
    """A digest of the text of each question by item: group, phrasings, options, gold and context.

    Phrasings that ``design`` does not ask are left out. It has 64 bits of SHA-256, in hexadecimal.
    """
    levels = {factor.name: factor.levels for factor in design.factors}
    phrasings = [int(level) - 1 for level in levels.get("paraphrase", ("1",))]
    languages = levels.get("language")
    digests = {}
    for question in questions:
        content = [
            question.group,
            [
                [language, at, texts[at], question.written.get((language, at))]
                for language, texts in question.paraphrases.items()
                for at in phrasings
                if at < len(texts) and (languages is None or language in languages)
            ],
            question.gold.texts,
            [option.texts for option in question.options],
            question.context,
        ]
        text = json.dumps(content, ensure_ascii=False)
        digests[question.item] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return digests


def _writes(options: ProbeOptions, groups: Sequence[GroupOfQuestions]) -> bool:
    """Whether answers of a group are written; else options of writing raise."""
    if options.match:
        rule_of(options.match)  # an unknown one raises
    if options.option_score and all(group.writes_freely for group in groups):
        todo = "Leave it out, or leave --generate out."
        raise ConsilienceError("--option-score of written answers", todo=todo)
    if any(group.writes_freely for group in groups):
        return True
    usual = ProbeOptions()
    if any(getattr(options, name) != getattr(usual, name) for name in OF_WRITING):
        raise ConsilienceError(
            "an option for written answers with questions that have options",
            expected="--generate, with which the model writes its answers",
            todo="Add --generate, or leave --match, --samples, --temperature, --max-new-tokens "
            "and --equivalence out.",
        )
    return False


def _not_counted(questions: Questions, items: Collection[str]) -> list[str]:
    """A note on the questions of a suite that a table has no row of."""
    parts = []
    for name, of_group in questions.groups.items():
        if absent := sum(question.item not in items for question in of_group):
            parts.append(f"{name} {absent:,} of {len(of_group):,}")
    return [f"questions without a row, not counted: {listed(parts, 5)}"] if parts else []
