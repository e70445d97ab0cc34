"""The numbers of runs in a model card: its ``model-index`` and a section of its text.

The format: https://github.com/huggingface/hub-docs/blob/main/modelcard.md
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from huggingface_hub import EvalResult, ModelCard

from consilience.errors import ConsilienceError
from consilience.publishing.public_run import PublicRun

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
    new = {_number(result): result for run in runs for result in results_of(run)}
    name = runs[0].model.split("/")[1]
    try:
        made: Any = ModelCard(card or f"---\n{{}}\n---\n\n# {name}\n")
    except Exception as error:  # yaml has many
        raise ConsilienceError(
            f"its metadata cannot be read: {str(error).splitlines()[0]}",
            expected="YAML between two lines of ---",
            where=CARD,
            todo="Correct the card.",
        ) from error
    earlier = [one for one in made.data.eval_results or [] if _number(one) not in new]
    made.data.model_name = made.data.get("model_name") or name
    made.data.eval_results = [*earlier, *new.values()]
    made.data.tags = list(dict.fromkeys([*(made.data.get("tags") or []), "consilience"]))
    for run in runs:
        made.text = _with_section(made.text, run)
    return str(made)


def results_of(run: PublicRun) -> Iterator[EvalResult]:
    """The headline numbers of a run, as entries of a ``model-index``; fractions."""
    suite, task = run.suite, TASKS.get(run.model_facts.get("kind", ""), "text-generation")
    for row in run.summary.rows:
        if math.isnan(row.value):
            continue
        bounds = {"low": round(row.low, DIGITS), "high": round(row.high, DIGITS)}
        yield EvalResult(
            task_type="text-classification" if suite.kind == "sentence pairs" else task,
            dataset_type=suite.dataset or suite.slug,
            dataset_name=suite.name,
            dataset_config=suite.config or None,
            dataset_split=suite.split or None,
            dataset_args={"sha256": suite.digest, "protocol": run.protocol},
            metric_type=".".join(row.names),
            metric_name=row.label,
            metric_value=round(row.value, DIGITS),
            metric_args=None if math.isnan(row.low) else {"confidence_level": 0.95, **bounds},
        )


def _number(result: EvalResult) -> tuple[object, ...]:
    """What results have in common that are the same number, perhaps with another value."""
    protocol = (result.dataset_args or {}).get("protocol")
    where = result.dataset_type, result.dataset_config, result.dataset_split
    return *where, result.metric_type, protocol


def _with_section(text: str, run: PublicRun) -> str:
    """The text of a card with the section of a suite replaced, or appended where there is none."""
    name = f"consilience: {run.suite.slug}, {run.protocol}"
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = (
        f"{begin}\n## Consistency on {run.suite.name}\n\n"
        "How often the model gives the same answer to the same question asked in different ways, "
        f"measured with consilience {run.version}.\n\n{run.as_markdown()}{end}"
    )
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if pattern.search(text):
        return pattern.sub(lambda _: section, text, count=1)
    return f"{text.rstrip()}\n\n{section}\n"
