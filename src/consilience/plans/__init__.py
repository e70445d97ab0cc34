"""Plans: a suite becomes the queries that a model is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from consilience.options.commands import ProbeOptions, refuse_options
from consilience.plans.asking import Kind, Plan, Queries
from consilience.plans.facts import plan_facts
from consilience.plans.pairs import plan_pairs
from consilience.plans.questions import plan_questions
from consilience.suites import data_dir, suite_folder
from consilience.suites.pairs import is_task
from consilience.suites.question_suites import is_questions
from consilience.suites.questions import Questions
from consilience.types import Suite

__all__ = ["PLANS", "Kind", "Plan", "Queries", "kind_of", "plan_of", "refuse_other_options"]

PLANS: Mapping[Kind, Callable[[ProbeOptions, Any], Plan]] = {
    "facts": plan_facts,
    "pairs": plan_pairs,
    "questions": plan_questions,
}

NAMES: Mapping[Kind, str] = {
    "facts": "a suite of facts",
    "pairs": "a task of sentence pairs",
    "questions": "a suite of questions",
}


def kind_of(
    suite: str | PathLike[str] | Suite | Questions, as_questions: int | None = None
) -> Kind:
    """The kind of a suite; ``as_questions``: facts may be asked as questions."""
    if as_questions is not None or isinstance(suite, Questions):
        return "questions"
    if isinstance(suite, Suite):
        return "facts"
    if is_questions(str(suite)):
        return "questions"
    return "pairs" if is_task(str(suite)) else "facts"


def refuse_other_options(options: ProbeOptions, suite: Suite | Questions | None = None) -> Kind:
    """The kind of the suite that options name; an option that is for other kinds raises."""
    kind = kind_of(options.suite if suite is None else suite, options.as_questions)
    if kind == "facts" and suite is None:
        suite_folder(options.suite, data_dir(options.data_dir))  # an unknown name is of no kind
    refuse_options(options, kind, NAMES[kind])
    return kind


def plan_of(options: ProbeOptions, suite: Suite | Questions | None = None) -> Plan:
    """What ``probe`` asks with these options; ``suite``: in place of the named one."""
    if (connection := options.connection) is not None:
        from consilience.endpoints.client import base_url_of, key_of

        base_url_of(connection)
        key_of(connection)
    return PLANS[refuse_other_options(options, suite)](options, suite)
