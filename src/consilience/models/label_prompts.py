"""The prompts that ask a language model for a label in words, here and behind a URL."""

from __future__ import annotations

from collections.abc import Mapping

from consilience.core.errors import ConsilienceError
from consilience.core.items import Task, TaskKind

LONGEST_LABEL = 20
"""Tokens that a model may write; no label of the tasks has half as many."""

REPLY = "{reply}"
"""In a template: what follows is the beginning of the model's reply."""

TEMPLATES: Mapping[TaskKind, str] = {
    "NLI": "{text}\n\nHow does {second} relate to {first}? Answer with one of these labels and "
    "nothing else: {labels}.\n{reply}Label:",
    "STS": "{text}\n\nHow do {first} and {second} relate? Answer with one of these labels and "
    "nothing else: {labels}.\n{reply}Label:",
}
"""The template for a model without a form of its own, if none is given; ours.

Small models that are not given the beginning of the reply write about the sentences instead
(docs/free-text.md).
"""


def filled(template: str, task: Task) -> str:
    """A template with the labels and the indicators of the task in it."""
    if template.count("{text}") != 1:
        raise ConsilienceError(
            f"the template '{template}'", expected="exactly one {text}, where the pair stands"
        )
    names = {"labels": ", ".join(task.labels)}
    names |= dict(zip(("first", "second"), task.indicators, strict=True))
    reply = template.partition(REPLY)[2]
    if REPLY in reply or "{text}" in reply:
        raise ConsilienceError(
            f"the template '{template}'", expected=f"at most one {REPLY}, after {{text}}"
        )
    for name, value in names.items():
        template = template.replace("{" + name + "}", value)
    return template
