"""Questions with options or without, asked in phrasings, languages, orders and templates."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from consilience import suites
from consilience.core.errors import Advance, ConsilienceError
from consilience.core.factors import (
    FACTORS,
    OPTION_FACTORS,
    TURN,
    Design,
    Expectation,
    Factor,
    FactorialDesign,
)
from consilience.core.free_text import (
    DEFAULT_RULE,
    DEFAULT_RULES,
    NO_CHOICE,
    NOT_THE_GOLD,
    OPEN_RULE,
    RULES,
    Rule,
    match,
    rule_of,
    said,
)
from consilience.core.items import Ask, Group, Item, Prompt, Question, Scores, margins
from consilience.core.schemas import ANSWERS_SCHEMA, REASONS
from consilience.models import LanguageModel, load_prompt_model
from consilience.models.prompts import Writing
from consilience.options.commands import ProbeOptions, is_judge
from consilience.plans import asking
from consilience.plans.asking import Plan, Queries
from consilience.plans.factors import factors_of, prompt_builder_of
from consilience.plans.presentation import PromptBuilder
from consilience.suites.pairs import is_task
from consilience.suites.question_suites import (
    HUB,
    columns_of,
    gold_position_notes,
    is_questions,
    load_questions,
    lots,
    questions_of_suite,
    refuse_mixed,
    select_questions,
)
from consilience.suites.questions import Questions
from consilience.types import QUESTION_WORDS, Candidates, Fact, Relation, Suite

if TYPE_CHECKING:
    from consilience.models.classifier import EmbeddingJudge

OF_WRITING = ("match", "then", "temperature", "max_new_tokens")


@dataclass(frozen=True)
class Presented:
    """The questions of a plan and how they are presented; ``pool``: examples are drawn of these."""

    options: ProbeOptions
    questions: Questions
    pool: Mapping[str, Sequence[Question]]
    groups: Mapping[str, Sequence[Question]]
    design: FactorialDesign

    @classmethod
    def of(cls, options: ProbeOptions, suite: Any = None) -> Presented:
        """Those that options name; ``suite``: in place of the named one."""
        whole = questions_of(options, suite)
        questions = select_questions(whole, options.groups, options.limit, options.seed)
        refuse_mixed(questions)
        factors = factors_of(options, questions, whole)
        _check_writing(options, questions, factors)
        if options.design == "one-factor":
            design = FactorialDesign.one_factor(factors)
        else:
            drawn = int(options.design.partition(":")[2] or 0)
            design = FactorialDesign.full(factors, drawn)
        if design.drawn and options.then:
            found = f"--then with --design {options.design}, which may leave the first turn out"
            raise ConsilienceError(found, expected="--design full or one-factor")
        return cls(options, questions, whole.groups, questions.groups, design)

    def is_written(self, group: str) -> bool:
        """Whether the answers of a group are written, and not chosen among options."""
        return self.options.generate or not self.groups[group][0].options

    @property
    def writes(self) -> bool:
        return any(map(self.is_written, self.groups))

    @property
    def chooses(self) -> bool:
        return not all(map(self.is_written, self.groups))

    def prompt_builder(self, group: str = "", *, is_chat: bool = False) -> PromptBuilder:
        """How a group is presented, or a group with options; ``is_chat``: to such a model."""
        drawn = self.drawn.get(group, {})
        return replace(self._prompt_builder(group, is_chat=is_chat), drawn=drawn)

    def _prompt_builder(self, group: str, *, is_chat: bool = False) -> PromptBuilder:
        base = prompt_builder_of(
            self.options, self.design.factors, self.questions.items, is_chat=is_chat
        )
        design = design_for(self.groups[group], self.design) if group else self.design
        return replace(base, design=design, pool=self.pool)

    @cached_property
    def drawn(self) -> Mapping[str, Mapping[str, frozenset[int]]]:
        """Group -> item -> the variants that it is asked in; empty for all that it has.

        Questions that have the same variants get them in shuffled cycles: that which was drawn
        least, of several by lot. They are drawn in the order in which ``--limit`` chooses
        questions, so with another limit they have the same. Linked questions get the same.
        """
        seed, lot, chosen = self.options.seed, lots(self.questions, self.options.seed), {}
        dealt = dict[str, list[int]]()
        for group, questions in self.groups.items() if self.design.drawn else ():
            prompt_builder, chosen[group] = self._prompt_builder(group), dict[str, frozenset[int]]()
            places = range(len(prompt_builder.design.cells))
            times: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
            for question in sorted(questions, key=lot):
                own = tuple(at for at in places if prompt_builder.has(question, at))
                generator, counts = random.Random(f"{seed} {lot(question)[1]} drawn"), times[own]
                order = sorted(own, key=lambda at: (counts[at], generator.random()))
                same = dealt.setdefault(lot(question)[1], order)
                of_question = [at for at in dict.fromkeys([*same, *order]) if at in own]
                counts.update(of_question := of_question[: self.design.drawn])
                chosen[group][question.item] = frozenset(of_question)
        return chosen

    def size(self, name: str) -> int:
        """How many prompts a group has."""
        prompt_builder = self.prompt_builder(name)
        variants = range(len(prompt_builder.presentations))
        return sum(
            prompt_builder.has(one, at) for one in self.questions.groups[name] for at in variants
        )

    def group(self, name: str, *, is_chat: bool = False) -> Group:
        """What is asked of a group."""
        questions, prompt_builder = self.groups[name], self.prompt_builder(name, is_chat=is_chat)
        is_written = self.is_written(name)
        return asks_of(questions, prompt_builder, self.questions.name, is_written=is_written)


def design_for(questions: Sequence[Question], design: FactorialDesign) -> FactorialDesign:
    """The design of a group: open questions do not vary in options."""
    return design if questions[0].options else design.without(OPTION_FACTORS)


def suite_of_questions(
    name: str,
    groups: Mapping[str, Sequence[Question]],
    design: FactorialDesign,
    expectations: Sequence[Expectation] = (),
    *,
    is_written: bool = False,
) -> Suite:
    """Groups of questions as they are counted; of those with options by their positions."""
    relations = []
    for group, items in groups.items():
        facts = tuple(Fact(item.item, item.item, item.gold.text) for item in items)
        size = max(len(item.options) for item in items)
        counts = Counter(item.gold_position for item in items if item.options)
        golds = tuple(counts[at] for at in range(size))
        candidates = Candidates.of(facts)
        if size:
            candidates = Candidates(tuple(map(str, range(size))), golds)
        known = design_for(items, design)
        cells = Design.of_cells(known, size, writes_freely=is_written and size > 0)
        relations.append(Relation.of_design(group, facts, candidates, cells))
    return Suite(name, tuple(relations), expectations=tuple(expectations), words=QUESTION_WORDS)


def plan_questions(options: ProbeOptions, suite: Any = None) -> Plan:
    """Every question in every variant; ``suite``: in place of the named one."""
    presented = Presented.of(options, suite)
    questions, design, groups = presented.questions, presented.design, presented.groups
    counted = suite_of_questions(
        questions.name, groups, design, questions.expectations, is_written=options.generate
    )
    _check(presented)
    sizes = {name: presented.size(name) for name in groups}

    def load() -> Any:
        most = options.max_new_tokens
        return load_prompt_model(
            options.model,
            [one for of_group in groups.values() for one in of_group],
            loading=options.loading,
            seed=options.seed,
            connection=options.connection,
            writing=Writing(most, options.temperature, options.seed) if presented.writes else None,
            chooses=presented.chooses,
        )

    settings = {
        "suite": questions.name,
        "groups": [*groups],
        "protocol": "strict",
        "factors": {factor.name: [*factor.levels] for factor in design.factors},
        "limit": options.limit,
        "seed": options.seed,
        "design": options.design,
    }
    source: dict[str, object] = {
        "expectations": [one.to_record() for one in questions.expectations]
    }
    if hub := _hub_of(options.suite, questions):
        source["hub"] = hub
    is_fixed = "order" not in [factor.name for factor in design.factors]
    notes = [*(gold_position_notes(questions.items) if is_fixed else ()), *questions.notes]
    return Plan(
        "questions", counted, sizes, settings, load,
        lambda model: _queries(presented, model), source, notes,
    )  # fmt: skip


def _queries(presented: Presented, model: Any) -> Queries:
    """What a model is asked; None for the prompts of no model."""
    options = presented.options
    is_chat = bool(getattr(model, "takes_chats", False))  # by a template, or a server with one
    templates = presented.prompt_builder(is_chat=is_chat).templates.values()
    if options.then and not all(is_chat and one.is_chat for one in templates):
        name = getattr(model, "identity", {}).get("model", "the model")
        found = f"--then with '{name}' and the templates {', '.join(one.name for one in templates)}"
        expected = "chats, and a model that takes them: with a chat template, or at --base-url"
        raise ConsilienceError(found, expected=expected)
    writer = Writer.of(options, model) if model is not None and presented.writes else None

    def texts(group: str, prompt: Any) -> list[str]:
        return [prompt.text if model is None else model.text(prompt)]

    def ask(group: Group, advance: Advance) -> pl.DataFrame:
        prompt_builder = presented.prompt_builder(group.id, is_chat=is_chat)
        if writer is not None and presented.is_written(group.id):
            return write(presented.groups[group.id], prompt_builder, group, writer, advance)
        return choose(prompt_builder, group, model, advance)

    settings = presented.prompt_builder(is_chat=is_chat).record
    if writer is not None:
        match = options.match if writer.judge else writer.match or DEFAULT_RULES
        settings = {**settings, "writing": {"match": match}}
    return Queries(
        model, [*presented.groups], lambda name: presented.group(name, is_chat=is_chat), texts, ask,
        settings,
    )  # fmt: skip


def _check(presented: Presented) -> None:
    """Raise for a rule that does not fit a variant, and for a group with too few examples."""
    for name, questions in presented.groups.items():
        prompt_builder = presented.prompt_builder(name)
        for presentation in prompt_builder.presentations:
            for question in questions if presentation.rule and presentation.shots else ():
                prompt_builder.drawn_examples(question, presentation)


@dataclass(frozen=True, slots=True)
class Writer:
    """A model that is asked, and the judge of its answers."""

    model: LanguageModel
    match: str | None = None  # Finds the answer in a text (``free_text.RULES``); None: the usual
    judge: EmbeddingJudge | None = None  # None where only equal answers mean the same

    @classmethod
    def of(cls, options: ProbeOptions, model: Any) -> Writer:
        """The writer of options; a model that only chooses raises."""
        if not hasattr(model, "write"):
            name = getattr(model, "identity", {}).get("model", "the model")
            expected = "a causal or sequence-to-sequence language model"
            todo = "Name one with --model. Of questions with options, leave --generate out."
            raise ConsilienceError(f"'{name}' does not write answers", expected=expected, todo=todo)
        judge = None
        if is_judge(options.match):
            from consilience.models.classifier import load_judge

            judge = load_judge(str(options.match), options.loading)
        # A baseline writes an option or a gold alone, which every rule should accept.
        is_usual = judge is not None or options.model.startswith("baseline:")
        match = None if is_usual else options.match
        return cls(model, match, judge)

    @property
    def rule(self) -> Rule | None:
        return rule_of(self.match) if self.match else None


def asks_of(
    questions: Sequence[Question],
    prompt_builder: PromptBuilder,
    suite: str,
    *,
    is_written: bool = False,
) -> Group:
    """Questions of one group in their variants."""
    asks = [
        Ask(at, variant, prompt, prompt.answers, prompt.options)
        for at, variant, prompt in prompts_of(questions, prompt_builder)
    ]
    design, items = prompt_builder.design, [*map(item_of, questions)]
    schema = SCHEMA | (dict(WRITTEN_COLUMNS) if is_written else {})
    return Group(suite, questions[0].group, items, design.names, asks, schema, design.levels)


def choose(
    prompt_builder: PromptBuilder,
    group: Group,
    model: LanguageModel,
    advance: Advance = lambda done: None,
) -> pl.DataFrame:
    """The answers of a group of questions with options, a row for each prompt."""

    def rescale(scores: Scores, asks: Sequence[Ask]) -> Scores:
        if scores.totals is None or scores.lengths is None:
            return scores
        totals = np.full_like(scores.totals, np.nan)
        for row, one in enumerate(asks):
            if scores.errors and scores.errors[row]:
                continue
            rule, size = prompt_builder.presentations[one.variant].rule, len(one.answers)
            tokens = scores.lengths[row, :size]
            values = rule.scores(scores.totals[row, :size], tokens, one.answers)
            if margins(values[None])[0] < model.tie:
                alone: Any = next(iter(model.score([one.shown])))
                values = rule.scores(alone.totals[0], tokens, one.answers)
            totals[row, :size] = values
        return replace(scores, totals=totals)

    asked = (asking.askable(part, model) for part in _parts(group))
    return pl.concat(
        asking.ask(part, model.score, rescale=rescale, advance=advance) for part in asked
    )


def write(
    questions: Sequence[Question],
    prompt_builder: PromptBuilder,
    group: Group,
    writer: Writer,
    advance: Advance = lambda done: None,
) -> pl.DataFrame:
    """The written answers of a group, a row for each prompt and sample.

    Samples are the levels of the factor ``sample``. A second turn follows the reply to the first,
    which is asked again where the group lacks it. Answers that mean the same are merged.
    """
    samples = [int(level) for level in prompt_builder.design.levels.get("sample", ())]

    def read(text: str, one: Ask) -> dict[str, object]:
        return answered(text, one.shown, questions[one.item], writer.rule)

    def ask(asks: Sequence[Ask]) -> pl.DataFrame:
        parts = (asking.askable(of, writer.model) for of in _parts(replace(group, asks=asks)))
        return pl.concat(
            asking.ask_texts(part, writer.model, read, samples, advance) for part in parts
        )

    first_of = prompt_builder.design.at_base(TURN)
    both = [((one.item, first_of[one.variant]), one) for one in group.asks]
    firsts = {key: _first(one, key[1]) for key, one in both}
    answers = ask([*firsts.values()])
    replies = dict(zip(firsts, answers.select("text", pl.coalesce(*REASONS)).rows(), strict=True))
    if later := [_after(one, *replies[key]) for key, one in both if one[:2] != key]:
        rows = {key: row for row, key in enumerate([*firsts, *(one[:2] for one in later)])}
        answers = pl.concat([answers, ask(later)])[[rows[one[:2]] for one in group.asks]]
    return merge_answers(answers, questions, writer.judge) if writer.judge else answers


def _first(one: Ask, variant: int) -> Ask:
    """The first turn of an ask, which is in a variant of its own."""
    if one.variant == variant:
        return one
    return one._replace(variant=variant, shown=replace(one.shown, turns=one.shown.turns[:-2]))


def _after(one: Ask, text: str | None, why_not: str | None) -> Ask:
    """The second turn of an ask, after what the model said at first, or why it said nothing."""
    if not (reply := said(text or "")):
        return one._replace(why_not=f"no reply to the first turn: {why_not or 'a thought alone'}")
    *before, _, last = one.shown.turns
    turns = (*before, ("assistant", reply), last)
    return one._replace(shown=replace(one.shown, turns=turns))


def _parts(group: Group) -> Iterator[Group]:
    """A group in parts of at most ``PROMPTS_AT_ONCE`` asks; of none one part."""
    for start in range(0, max(1, len(group.asks)), PROMPTS_AT_ONCE):
        yield replace(group, asks=group.asks[start : start + PROMPTS_AT_ONCE])


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


def _hub_of(spec: str, questions: Questions) -> list[str]:
    """Data set, configuration and split on the Hub; empty for questions from elsewhere."""
    source = questions.source
    if "dataset" in source:
        return [source["dataset"], source["config"], source["split"]]
    if not spec.startswith(HUB):
        return []
    dataset, _, split = spec.removeprefix(HUB).partition(":")
    dataset, _, config = dataset.partition("@")
    return [dataset, config, split]


def _check_writing(options: ProbeOptions, questions: Questions, factors: Sequence[Factor]) -> None:
    """Raise for options of writing that do not fit the questions or each other."""
    are_open = [not question.options for question in questions.items]
    if options.match and not is_judge(options.match):
        rule_of(options.match)  # an unknown one raises
    if options.option_score and (options.generate or all(are_open)):
        raise ConsilienceError("--option-score of written answers", todo="Leave it out.")
    is_sampled = any(factor.name == "sample" for factor in factors)
    if is_sampled and not options.temperature:
        found = "--vary sample at temperature 0, where all samples are the same"
        raise ConsilienceError(found, todo="Add --temperature 0.7, or leave it out.")
    is_set = any(getattr(options, of) != getattr(ProbeOptions(), of) for of in OF_WRITING)
    is_written = options.generate or (all if options.then else any)(are_open)
    if (is_set or is_sampled) and not is_written:
        raise ConsilienceError(
            "an option for written answers with questions that have options",
            expected="--generate, with which the model writes its answers",
            todo="Add --generate, or no --match, --then, --temperature, --max-new-tokens, "
            "--vary sample.",
        )


QUESTION_COLUMNS: Mapping[str, type[pl.DataType] | pl.DataType] = {
    "option": pl.Int32,
    "gold_option": pl.Int32,
    "shown": pl.String,
    "label": pl.String,
    "option_scores": pl.List(pl.Float64),
    "option_tokens": pl.List(pl.Int32),
    **dict.fromkeys(FACTORS, pl.String),
}
"""Columns of answers to questions after those of ``ANSWERS_SCHEMA``.

``option`` and ``gold_option`` are positions of the answer and of the gold among the options in
their given order, from 0, whatever order was shown. ``shown`` is that order, in letters (``BCA``),
null without options. ``label`` is what the model chose to say.
``option_scores`` has the score of every option by the scoring rule, in their given order, not
normalised over the options; ``option_tokens`` the tokens that were scored of each. Both are null
of a model that chooses an answer without scores. ``option`` is null where it wrote none of the
answers. The others are the levels of the factors.
"""

SCHEMA = ANSWERS_SCHEMA | dict(QUESTION_COLUMNS)  # The columns of answers to questions
PROMPTS_AT_ONCE = 4096  # Prompts that a model is given at once


def prompts_of(
    questions: Sequence[Question], prompt_builder: PromptBuilder
) -> list[tuple[int, int, Prompt]]:
    """The prompts of questions: position of the question, position of the variant, prompt."""
    return [
        (at, variant, prompt)
        for at, question in enumerate(questions)
        for variant in range(len(prompt_builder.design.cells))
        if (prompt := prompt_builder.prompt(question, variant)) is not None
    ]


def item_of(question: Question) -> Item:
    """A question as it is counted."""
    options = tuple(option.text for option in question.options)
    gold_at = question.gold_position if options else -1
    gold = question.gold.text
    return Item(question.item, question.item, gold, options, gold_at)


WRITTEN_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "text": pl.String, "unmatched": pl.String, "choices": pl.String
}  # fmt: skip
"""Columns of written answers after those of ``QUESTION_COLUMNS``.

``text`` is what the model wrote. ``unmatched`` says why it is none of the options, or of an open
question not the gold; it is null where it is one. ``answer`` is then the normalized text, with
which the answers of other variants are compared, and ``option`` is null. ``choices`` is what the
text was compared with: a list in JSON, for each option in the order in which it was shown, or for
the gold, of its label, empty for none, and its texts.
"""


def choices_of(prompt: Prompt, question: Question) -> str:
    """The column ``choices`` of an answer to a question."""
    choices = prompt.choices if question.options else (question.gold,)
    labels = prompt.reply_labels or ("",) * len(choices)
    rows = [[label, *one.texts] for label, one in zip(labels, choices, strict=True)]
    return json.dumps(rows, ensure_ascii=False)


def answered(
    text: str, prompt: Prompt, question: Question, rule: Rule | None = None
) -> dict[str, object]:
    """The answer columns of a written text that is not blank."""
    rule = rule or RULES[OPEN_RULE if prompt.is_open else DEFAULT_RULE]
    if not question.options:
        matched = match(text, [question.gold], rule)
        answer = question.gold.text if matched.position == 0 else matched.answer
        reason = NOT_THE_GOLD if matched.reason == NO_CHOICE else matched.reason
        known = choices_of(prompt, question)
        return {"answer": answer, "text": text, "unmatched": reason or None, "choices": known}
    matched = match(text, prompt.choices, rule, prompt.reply_labels)
    record: dict[str, object] = {
        "answer": matched.answer,
        "text": text,
        "unmatched": matched.reason or None,
        "choices": choices_of(prompt, question),
        "n_candidates": len(prompt.choices),
    }
    if matched.position is not None:
        record["option"] = option = prompt.options[matched.position]
        record["answer"] = question.options[option].text
        record["label"] = prompt.answers[matched.position]
    return record


def clusters(texts: Mapping[str, int], question: str, judge: EmbeddingJudge) -> list[list[str]]:
    """Answers to a question that mean the same, from how often each occurs.

    The most frequent answer, of equally frequent ones the first in alphabetical order, begins a
    cluster, and every other one that the judge calls the same joins it; so on with the others. No
    chain of small differences joins different answers.
    """
    rest = sorted(texts, key=lambda text: (-texts[text], text))
    groups = []
    while rest:
        first, *others = rest
        judged = judge.same([(question, first, other) for other in others])
        pairs = list(zip(others, judged, strict=True))
        groups.append([first, *(text for text, is_same in pairs if is_same)])
        rest = [text for text, is_same in pairs if not is_same]
    return groups


def merge_answers(
    answers: pl.DataFrame, questions: Sequence[Question], judge: EmbeddingJudge
) -> pl.DataFrame:
    """The table with one answer, the most frequent one, for each cluster of unmatched answers.

    Answers are merged within an item, whose first phrasing the judge reads. ``text`` and
    ``unmatched`` remain. No answer becomes an option or the gold.
    """
    unmatched = pl.col("unmatched").is_not_null()
    phrasings = {one.item: next(iter(one.paraphrases.values()))[0] for one in questions}
    merged: dict[tuple[str, str], str] = {}
    for (item,), of in answers.filter(unmatched).group_by("item", maintain_order=True):
        counts = Counter(of["answer"].to_list())
        for cluster in clusters(counts, phrasings[str(item)], judge):
            merged |= {(str(item), text): cluster[0] for text in cluster}
    rows_of = answers.select("item", "answer", unmatched).iter_rows()
    texts = [merged.get((item, text), text) if is_open else text for item, text, is_open in rows_of]
    return answers.with_columns(answer=pl.Series(texts, dtype=pl.String))
