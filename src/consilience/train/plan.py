"""The settings of a consistency training, and the checks that refuse impossible ones."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, Loss, Protocol, TrainingText
from consilience.core.expectations import linked_questions
from consilience.core.text import listed
from consilience.options.probe import ProbeOptions
from consilience.plans import Plan as QueryPlan
from consilience.plans import plan_of
from consilience.suites.question_suites import BLANK
from consilience.suites.questions import Questions
from consilience.types import Suite

HELD_OUT = 500
"""The first lines of text: perplexity is measured on them, and training never reads them."""

SAMPLE_SEED = 0
"""Samples the facts to validate and to test on: the same ones whatever the seed of the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The settings of every training. They decide the weights.

    ``batch``: facts of one relation in a step, or sentence pairs in a batch. ``epochs``: how often
    each fact, or each pair of the main task, is read. ``seed``: of facts, heads, order, masks and
    dropout. ``bf16``: products are in bfloat16.
    """

    learning_rate: float
    batch: int
    epochs: int
    seed: int
    bf16: bool


def factor_of(text: str) -> str:
    """The factor that a text such as ``order=rotations`` varies."""
    return text.partition("=")[0].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(TrainingPlan):
    """The settings of a consistency training (ParaRel, Section 8.2).

    ``validation``: relations that choose the checkpoint, with at most ``validation_facts`` facts
    each. ``weight``: lambda, the weight of a mean over pairs where the paper sums
    (docs/training.md). ``vocabulary``: distributions over the whole vocabulary are compared, not
    over the candidates. ``text``: that of language modelling. ``lora_rank``: of the adapters that
    are trained; 0 trains all weights.

    Of questions: ``template``, ``option_score`` and ``vary`` are those of ``probe``; the factors in
    ``hold_out`` are only measured. ``chosen_by``: the metric of validation that chooses the
    checkpoint.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    weight: float
    loss: Loss
    vocabulary: bool
    text: TrainingText
    facts: int
    validation_facts: int
    lora_rank: int
    template: str | None = None
    option_score: str | None = None
    vary: tuple[str, ...] | None = None
    hold_out: tuple[str, ...] = ()
    chosen_by: str = "consistent_accuracy"

    def varied(self) -> tuple[str, ...] | None:
        """What is varied in training."""
        if self.vary is None:
            return None
        return tuple(one for one in self.vary if factor_of(one) not in self.hold_out)

    def of_held_out(self) -> Iterator[tuple[str, Plan]]:
        """Each factor that is only measured, and the plan that varies it alone."""
        for one in self.vary or ():
            if factor_of(one) in self.hold_out:
                yield factor_of(one), replace(self, vary=(one,), hold_out=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierPlan(TrainingPlan):
    """How to fine-tune. CALUM leaves warm-up and patience open.

    ``patience``: epochs without a better validation before training stops; 0 for none.
    """

    patience: int


@dataclass(frozen=True, slots=True)
class Subject:
    """The model to improve (hub id or folder), with its suite and text; the same for every plan.

    ``lines``: text for language modelling and perplexity. ``test_facts``: at most this many facts
    of each test relation; None for all. ``device``: auto, or any device of torch. ``taught``: the
    answers of the teacher to the training questions.
    """

    model: str
    suite: Suite | Questions
    protocol: Protocol
    lines: Sequence[str] = ()
    test_facts: int | None = None
    device: str = "auto"
    trust_remote_code: bool = False
    taught: pl.DataFrame | None = field(default=None, repr=False, compare=False)

    @property
    def asks_questions(self) -> bool:
        return isinstance(self.suite, Questions)

    def test_groups(self, plan: Plan) -> list[str]:
        """The groups, of facts the N-1 relations, that the plan neither trains nor validates on."""
        used = {*plan.train, *plan.validation}
        if isinstance(self.suite, Questions):
            return [name for name in self.suite.groups if name not in used]
        relations = self.suite.relations
        return [one.id for one in relations if one.id not in used and one.cardinality == "N-1"]

    def asked(self, groups: Sequence[str], limit: int | None, plan: Plan) -> QueryPlan:
        """What ``probe`` asks of some groups, in the variants of a training."""
        return plan_of(self.options(groups, limit, plan), self.suite)

    def options(self, groups: Sequence[str], limit: int | None, plan: Plan) -> ProbeOptions:
        """The options of ``probe`` for some groups of the suite, in the variants of a training."""
        how: dict[str, Any] = {"protocol": self.protocol}
        if self.asks_questions:
            how = {"template": plan.template, "option_score": plan.option_score}
            how["vary"] = plan.varied()
        return ProbeOptions(
            model=self.model, groups=tuple(groups), limit=limit, seed=SAMPLE_SEED,
            device=self.device, trust_remote_code=self.trust_remote_code, **how,
        )  # fmt: skip


PARTS = {"train": 0.6, "validation": 0.8, "test": 1.0}
"""The share of the questions up to the end of each part, where no groups are named."""


def split_by_item(questions: Questions) -> Questions:
    """The questions in groups named as in ``PARTS``, by the digests of their names.

    Questions that an expectation links, or that are equal, are in one part.
    """
    equal = defaultdict[object, list[str]](list)
    for one in questions.items:
        texts = next(iter(one.paraphrases.values()))
        options = frozenset(one.options) if BLANK not in texts[0] else None  # one fact has several
        equal[one.context, texts[0], options].append(one.item)
    links = linked_questions([*(one.items for one in questions.expectations), *equal.values()])
    ranked = sorted({*links.values()}, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    part = {
        name: next(part for part, end in PARTS.items() if at + 0.5 < end * len(ranked))
        for at, name in enumerate(ranked)
    }
    items = (replace(question, group=part[links[question.item]]) for question in questions.items)
    return replace(questions, items=tuple(items))


def check_plan(plan: Plan, subject: Subject) -> None:
    """Refuse a plan that cannot be carried out or would mean nothing."""
    suite, group = subject.suite, "group" if subject.asks_questions else "relation"
    if shared := set(plan.train) & set(plan.validation):
        raise ConsilienceError(
            f"{', '.join(sorted(shared))} to train on and to validate on",
            expected=f"different {group}s",
        )
    for name, ids in (("train", plan.train), ("validation", plan.validation)):
        if not ids:
            raise ConsilienceError(f"no {group}s for {name}", todo=f"Name some: --{name}-groups.")
    if isinstance(suite, Questions):
        _check_factors(plan, subject, suite)
    else:
        _check_relations(plan, suite)
    if not subject.test_groups(plan):
        raise ConsilienceError(f"no {group} is left to test on", todo="Train on fewer.")
    if plan.loss == "vote" and plan.text == "none" and not subject.asks_questions:
        raise ConsilienceError(
            "--loss vote with --mlm none",
            expected="text that the teacher learns from",
            todo="Use --mlm patterns, or another --loss.",
        )
    if plan.text == "file" and len(subject.lines) <= HELD_OUT:
        raise ConsilienceError(
            f"{len(subject.lines)} lines of text",
            expected=f"more than the {HELD_OUT} that are held out",
            todo="Give more text, or use --mlm patterns.",
        )


def _check_relations(plan: Plan, suite: Suite) -> None:
    for id_ in (*plan.train, *plan.validation):
        suite.relation(id_)
    several = [id_ for id_ in plan.validation if suite.relation(id_).cardinality != "N-1"]
    if several:
        known = [relation.id for relation in suite.relations if relation.cardinality == "N-1"]
        raise ConsilienceError(
            f"{', '.join(several)} in --validation-groups: a subject has several right answers, "
            "so accuracy and Consistent-Acc are not defined",
            expected="N-1 relations",
            todo=f"Known: {listed(known, 12)}.",
        )


def _check_factors(plan: Plan, subject: Subject, suite: Questions) -> None:
    """Refuse factors that cannot be varied or held out, and groups that do not exist."""
    varied = list(map(factor_of, plan.vary or ()))
    if unknown := set(plan.hold_out) - set(varied):
        raise ConsilienceError(
            f"--hold-out-factor {','.join(sorted(unknown))}",
            expected=f"a factor that --vary names: {', '.join(varied) or 'none'}",
        )
    if plan.vary is not None and not plan.varied():
        raise ConsilienceError(
            "no factor is left to train on", todo="Add one: --vary paraphrase=all."
        )
    if plan.text == "patterns":
        raise ConsilienceError("--mlm patterns in a training on questions", todo="Leave it out.")
    used = (*plan.train, *plan.validation)
    for part in (plan, *(of_factor for _, of_factor in plan.of_held_out())):
        asked, vary = subject.asked(used, None, part), part.varied()
        if max(len(group.design.variants) for group in asked.suite) < 2:
            raise ConsilienceError(
                "a question has one variant",
                expected=f"a factor with two levels or more: {', '.join(vary or ())}",
            )
    if not all(one.options for one in suite.items if one.group in used):
        raise ConsilienceError("open questions", expected="questions with options")
