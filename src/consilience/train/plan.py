"""What is trained on what, and which plans cannot be carried out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from consilience.choices import Loss, TrainingText
from consilience.errors import ConsilienceError
from consilience.suites.selection import select_relations
from consilience.types import Suite

HELD_OUT = 500
"""Lines of text that perplexity is measured on; the first ones, which training never reads."""

SAMPLE = 0
"""Draws facts to validate and to test on: the same ones, whatever the seed of the training."""

PAPERS = (0.1, 0.5, 1.0)
"""The lambdas of the paper (Section 8.2)."""

VOTES = (1.0, 3.0, 10.0)
"""Those that suit the loss ``vote``."""

TEACHER = "teacher"
"""The name of what ``vote`` begins with: the plan without a consistency loss."""

IMPROVED = "improved"
"""The name of the plan as it is given, beside its ablations."""

ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "no-consistency": {"weights": (0.0,)},
    "no-typing": {"vocabulary": True},
    "no-mlm": {"text": "none"},
}
"""What each ablation of Table 7 changes: -consistency, -typed and -MLM."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is trained on what, and how; the defaults are the paper's (Section 8.2).

    ``weights``: the lambdas that are tried, of a mean over pairs where the paper has a sum
    (docs/training.md). ``facts`` of each training relation, ``batch`` of them in a step; an update
    is ``accumulation`` steps of each relation. ``text``: what language modelling reads, the
    filled patterns of the same facts, the lines of a file, or nothing. ``lora_rank``: 0 trains
    all weights, otherwise adapters of that rank.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    weights: tuple[float, ...] = PAPERS
    loss: Loss = "strict"
    vocabulary: bool = False
    text: TrainingText = "patterns"
    facts: int = 100
    batch: int = 8
    accumulation: int = 1
    epochs: int = 3
    learning_rate: float = 6e-5
    validation_facts: int = 200
    seed: int = 42
    lora_rank: int = 0
    bf16: bool = False
    gradient_checkpointing: bool = False
    report_to: str = "none"


def teaching(plan: Plan) -> Plan:
    """What the teacher of the loss ``vote`` is trained by."""
    return replace(plan, weights=(0.0,), loss="strict")


def ablated(plan: Plan, name: str, weight: float) -> Plan:
    """The plan with one part taken out; all else is equal, lambda too."""
    return replace(plan, **{"weights": (weight,), **ABLATIONS[name]})


def check(plan: Plan, suite: Suite, lines: Sequence[str], seeds: Sequence[int] = ()) -> None:
    """Refuse a plan that cannot be carried out, or whose result would mean nothing.

    ``seeds``: a training with each. Checked before a model is loaded.
    """
    _check_relations(plan, suite)
    if plan.loss == "vote" and plan.text == "none":
        raise ConsilienceError(
            "--loss vote with --mlm none",
            expected="words that the teacher learns from",
            todo="Use --mlm patterns.",
        )
    if not plan.weights:
        raise ConsilienceError("no lambda", expected="one to try at least")
    for weight in plan.weights:
        if not math.isfinite(weight) or weight < 0:
            raise ConsilienceError(f"a lambda of {weight}", expected="0 or more")
    _refuse_duplicates("lambda", [f"{weight:g}" for weight in plan.weights])
    _refuse_duplicates("seed", list(map(str, seeds)))
    for seed in (*seeds, plan.seed):
        if not 0 <= seed < 2**32:
            raise ConsilienceError(f"a seed of {seed}", expected="from 0 to 4294967295")
    if not 0 < plan.learning_rate < math.inf:
        raise ConsilienceError(f"a learning rate of {plan.learning_rate}", expected="above 0")
    if plan.text == "file" and len(lines) <= HELD_OUT:
        raise ConsilienceError(
            f"{len(lines)} lines of text",
            expected=f"more than the {HELD_OUT} that are held out",
            todo="Give more text, or use --mlm patterns.",
        )


def _check_relations(plan: Plan, suite: Suite) -> None:
    both = set(plan.train) & set(plan.validation)
    if both:
        raise ConsilienceError(
            f"{', '.join(sorted(both))} to train on and to validate on",
            expected="relations for one or the other",
        )
    for name, ids in (("train", plan.train), ("validation", plan.validation)):
        if not ids:
            raise ConsilienceError(f"no relations for {name}", todo=f"Name some: --{name}-groups.")
        for id_ in ids:
            suite.relation(id_)
        _refuse_duplicates(f"relation in --{name}-groups", ids)
    several = [id_ for id_ in plan.validation if suite.relation(id_).cardinality != "N-1"]
    if several:
        raise ConsilienceError(
            f"{', '.join(several)} in --validation-groups: a subject has several right answers, "
            "so accuracy and Consistent-Acc are not defined",
            expected="N-1 relations",
            todo=f"Known: {_some([r.id for r in suite.relations if r.cardinality == 'N-1'])}.",
        )
    if not test_suite(plan, suite).relations:
        raise ConsilienceError("no relation is left to test on", todo="Train on fewer.")


def _refuse_duplicates(name: str, values: Sequence[str]) -> None:
    """Refuse a value that is given more than once."""
    duplicates = [each for each in dict.fromkeys(values) if values.count(each) > 1]
    if duplicates:
        raise ConsilienceError(
            f"duplicate {name}: {', '.join(duplicates)}", expected="each of them once"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def test_suite(plan: Plan, suite: Suite) -> Suite:
    """The N-1 relations that are neither trained nor validated on."""
    used = {*plan.train, *plan.validation}
    left = [r.id for r in suite.relations if r.id not in used and r.cardinality == "N-1"]
    return select_relations(suite, left)
