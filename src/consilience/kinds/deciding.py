"""Questions to decision models: which options of ``probe`` they have, and how prompts are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from consilience.core.errors import ConsilienceError
from consilience.core.factors import Factor
from consilience.core.scoring_rules import DECISION
from consilience.endpoints.decisions import ROUTES, DecisionModel, DecisionPairs
from consilience.kinds.variants import Prompting
from consilience.models.prompt_models import load_prompt_model
from consilience.presentation import Template
from consilience.sentence_pairs import Task
from consilience.suites.question_suites import GroupOfQuestions
from consilience.workflow.probe_options import ProbeOptions

TEMPLATE = Template("decision", "{context}\n{question}\n{options}")
"""What a request says, as one text; the server has a template of its own."""

OF_TEMPLATES = ("template", "separator", "case", "examples", "sample")
"""The factors that decision models do not have."""

UNUSED = ("template", "system", "shots", "option_score", "generate", "scoring", "tokenizer")
"""The options that decision models do not have."""

OF_PAIRS = {
    "generate": "--generate",
    "scoring": "--scoring",
    "tokenizer": "--tokenizer",
    "input": "--input",
    "pool": "--pool",
    "model_labels": "--model-labels",
}
"""Options of sentence pairs that decision models do not have, and what they are called."""


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
    """How questions become requests; open questions and options that change nothing raise.

    An option is named by its text where labels do not vary.
    """
    if any(group.writes_freely for group in groups):
        raise ConsilienceError(
            "open questions to a decision model, which chooses among options",
            expected="questions with options",
            todo="Give them options; facts have some with --as-questions 3.",
        )
    for name in UNUSED:
        if getattr(options, name):
            raise _unused(f"--{name.replace('_', '-')}", "the server writes the prompt itself")
    for factor in factors:
        if factor.name in OF_TEMPLATES:
            expected = "the factors language, paraphrase, order and labels"
            raise _unused(f"--vary {factor.name}", expected)
    return Prompting({TEMPLATE.name: TEMPLATE}, DECISION.name, 0, options.seed, labels="none")


def load_decider(options: ProbeOptions, task: Task) -> DecisionPairs:
    """A decision model of sentence pairs; options that change nothing raise."""
    for name, option in OF_PAIRS.items():
        if getattr(options, name):
            raise _unused(option, "the server writes the prompt itself")
    model = load_prompt_model(
        options.model,
        (),
        loading=options.loading,
        longest=options.max_length or 0,
        connection=options.connection,
    )
    return DecisionPairs(cast(DecisionModel, model), task)


def _unused(option: str, expected: str) -> ConsilienceError:
    return ConsilienceError(
        f"{option} with a decision model",
        expected=f"a probability for every option; {expected}",
        todo=f"Leave {option} out.",
    )
