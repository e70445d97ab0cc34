"""The numbers of runs in a model card: its ``model-index`` and a section of its text.

The format: https://github.com/huggingface/hub-docs/blob/main/modelcard.md
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from huggingface_hub import EvalResult, ModelCard

from consilience.errors import ConsilienceError
from consilience.publishing.public_run import PublicRun
from consilience.report.export import as_markdown

CARD = "README.md"
"""The file of a card."""

TASKS = {
    "masked": "fill-mask",
    "causal": "text-generation",
    "seq2seq": "text2text-generation",
}
"""The Hub's names of what a kind of model does; ``text-generation`` for others."""

DIGITS = 4
"""Decimals of a fraction in a card."""


def with_results(card: str, runs: Sequence[PublicRun]) -> str:
    """A model card with the numbers of runs of its model.

    Of an existing card the results of the same suite, protocol and metric are replaced, and the
    section of the same suite; everything else stays. An empty text becomes a card.
    """
    new = [result for run in runs for result in results_of(run)]
    model = runs[0].model
    try:
        made: Any = ModelCard(card or f"---\n{{}}\n---\n\n# {model.name}\n")
    except Exception as error:  # yaml has many
        raise ConsilienceError(
            f"its metadata cannot be read: {str(error).splitlines()[0]}",
            expected="YAML between two lines of ---",
            where=CARD,
            todo="Correct the card.",
        ) from error
    earlier = [
        result
        for result in made.data.eval_results or []
        if not any(_is_same_number(result, other) for other in new)
    ]
    made.data.model_name = made.data.get("model_name") or model.name
    made.data.eval_results = [*earlier, *new]
    made.data.tags = list(dict.fromkeys([*(made.data.get("tags") or []), "consilience"]))
    text = made.text
    for run in runs:
        text = _with_section(text, run)
    made.text = text
    return str(made)


def results_of(run: PublicRun) -> Iterator[EvalResult]:
    """The headline numbers of a run, as entries of a ``model-index``; fractions."""
    suite = run.suite
    for row in run.summary.rows:
        if math.isnan(row.value):
            continue
        metric = row.metric if row.subset == "all" else f"{row.metric}.{row.subset}"
        arguments: dict[str, Any] = {"confidence_level": 0.95}
        bounds = {} if math.isnan(row.low) else {"low": row.low, "high": row.high}
        arguments |= {name: round(value, DIGITS) for name, value in bounds.items()}
        yield EvalResult(
            task_type=_task_of(run),
            dataset_type=suite.dataset or suite.slug,
            dataset_name=suite.name,
            dataset_config=suite.config or None,
            dataset_split=suite.split or None,
            dataset_args={"sha256": suite.digest, "protocol": run.protocol},
            metric_type=metric,
            metric_name=row.label,
            metric_value=round(row.value, DIGITS),
            metric_args=arguments if bounds else None,
        )


def _task_of(run: PublicRun) -> str:
    """The Hub's name of the task."""
    if run.suite.kind == "sentence pairs":
        return "text-classification"
    return TASKS.get(run.model.facts.get("kind", ""), "text-generation")


def _is_same_number(one: EvalResult, other: EvalResult) -> bool:
    """Whether two results are the same number, perhaps with another value."""
    names = ("dataset_type", "dataset_config", "dataset_split", "metric_type")
    protocols = [(result.dataset_args or {}).get("protocol") for result in (one, other)]
    is_same = all(getattr(one, name) == getattr(other, name) for name in names)
    return is_same and protocols[0] == protocols[1]


def _with_section(text: str, run: PublicRun) -> str:
    """The text of a card with the section of a suite replaced, or appended where there is none."""
    name = f"consilience: {run.suite.slug}, {run.protocol}"
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n{section_of(run)}{end}"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if pattern.search(text):
        return pattern.sub(lambda _: section, text, count=1)
    return f"{text.rstrip()}\n\n{section}\n"


def section_of(run: PublicRun) -> str:
    """What a reader of a card should know of a run, in Markdown."""
    table = replace(run.summary.table(), title=run.summary.title)
    details = "".join(f"- {name}: {value}\n" for name, value in run.details())
    notes = "".join(f"- note: {note}\n" for note in run.notes)
    return (
        f"## Consistency on {run.suite.name}\n\n"
        "How often the model gives the same answer to the same question asked in different ways, "
        f"measured with consilience {run.versions.get('consilience', '')}.\n\n"
        f"{as_markdown(table)}\n{details}{notes}"
    )
