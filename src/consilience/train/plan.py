"""The settings of a consistency training, and the checks that refuse impossible ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consilience.core.errors import ConsilienceError, Loss, Protocol, Sampling, StopOn, TrainingText
from consilience.core.text import listed
from consilience.suites.facts import sample_facts, select_relations
from consilience.types import Suite

HELD_OUT = 500
"""The first lines of text: perplexity is measured on them, and training never reads them."""

SAMPLE_SEED = 0
"""Samples the facts to validate and to test on: the same ones whatever the seed of the training."""

DEFAULT_WEIGHTS: Mapping[Loss, Sequence[float]] = {
    "vote": (1.0, 3.0, 10.0),
    "pairs": (0.1, 0.5, 1.0),
    "cosine": (0.1, 0.5, 1.0),
    "released": (0.1, 0.5, 1.0),
}
"""The lambdas to try with each loss; all but those of ``vote`` are in the ParaRel paper (8.2)."""

IMPROVED = "improved"  # The name of the plan itself, next to its ablations

ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "no-consistency": {"weights": (0.0,)},
    "no-typing": {"vocabulary": True},
    "no-mlm": {"text": "none"},
}
"""The fields that each ablation of Table 7 changes: -consistency, -typed and -MLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The settings of every training. They decide the weights.

    ``batch``: facts of one relation in a step, or sentence pairs in a batch. ``epochs``: how often
    each fact, or each pair of the main task, is read. ``seed``: of facts, heads, order, masks and
    dropout. ``bf16``: products are in bfloat16. ``gradient_checkpointing``: activations are
    computed again for the gradients, to save memory.
    """

    learning_rate: float
    batch: int
    epochs: int
    seed: int
    bf16: bool
    gradient_checkpointing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(TrainingPlan):
    """The settings of a consistency training (ParaRel, Section 8.2).

    ``validation``: relations that choose the checkpoint and the lambda, with at most
    ``validation_facts`` facts each. ``weights``: the lambdas to try, weights of a mean over pairs
    where the paper sums (docs/training.md). ``vocabulary``: distributions over the whole vocabulary
    are compared, not over the candidates. ``text``: that of language modelling. ``accumulation``:
    steps of each relation in an update. ``lora_rank``: of the adapters that are trained; 0 trains
    all weights. ``report_to``: where transformers reports progress; none for nowhere.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    weights: tuple[float, ...]
    loss: Loss
    vocabulary: bool
    text: TrainingText
    facts: int
    accumulation: int
    validation_facts: int
    lora_rank: int
    report_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierPlan(TrainingPlan):
    """How to fine-tune. CALUM leaves warm-up, patience, stopping and sampling open.

    ``warmup``: share of the updates in which the learning rate rises. ``patience``: epochs without
    a better validation (``stop_on``) before training stops; 0 for none.
    """

    weight_decay: float
    warmup: float
    patience: int
    stop_on: StopOn
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Subject:
    """The model to improve (hub id or folder), with its suite and text; the same for every plan.

    ``lines``: text for language modelling and perplexity. ``test_facts``: at most this many facts
    of each test relation; None for all. ``device``: auto, or any device of torch.
    """

    model: str
    suite: Suite
    protocol: Protocol
    lines: Sequence[str] = ()
    test_facts: int | None = None
    device: str = "auto"
    trust_remote_code: bool = False

    def test_suite(self, plan: Plan) -> Suite:
        """The N-1 relations that the plan neither trains nor validates on."""
        used = {*plan.train, *plan.validation}
        test_ids = [
            relation.id
            for relation in self.suite.relations
            if relation.id not in used and relation.cardinality == "N-1"
        ]
        test = select_relations(self.suite, test_ids)
        return sample_facts(test, self.test_facts, SAMPLE_SEED) if self.test_facts else test


def check_plan(plan: Plan, subject: Subject) -> None:
    """Refuse a plan that cannot be carried out or would mean nothing."""
    suite = subject.suite
    if shared := set(plan.train) & set(plan.validation):
        raise ConsilienceError(
            f"{', '.join(sorted(shared))} to train on and to validate on",
            expected="different relations",
        )
    for name, ids in (("train", plan.train), ("validation", plan.validation)):
        if not ids:
            raise ConsilienceError(f"no relations for {name}", todo=f"Name some: --{name}-groups.")
        for id_ in ids:
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
    if not subject.test_suite(plan).relations:
        raise ConsilienceError("no relation is left to test on", todo="Train on fewer.")
    if plan.loss == "vote" and plan.text == "none":
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
