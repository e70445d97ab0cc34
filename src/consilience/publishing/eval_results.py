"""The Hub's evaluation results: YAML files in the folder ``.eval_results`` of a model.

The format: https://huggingface.co/docs/hub/eval-results. It is work in progress there. The data set
must be a benchmark of the Hub, whose ``eval.yaml`` names the tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from consilience.publishing.public_run import Files, PublicRun


def eval_results_files(run: PublicRun, benchmark: str) -> Files:
    """A file with an entry for each headline number; ``benchmark``: that of the leaderboard."""
    entries = eval_result_entries_to_yaml(list(_entries(run, benchmark)))
    text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)
    return {f".eval_results/consilience-{run.suite.slug}-{run.protocol}.yaml": text.encode()}


def _entries(run: PublicRun, benchmark: str) -> Iterator[EvalResultEntry]:
    """The headline numbers in percent; a task is called by its metric."""
    for row in run.summary.rows:
        if math.isnan(row.value):
            continue
        notes = [f"{run.suite.name}, {run.protocol} protocol", row.meaning]
        if not math.isnan(row.low):
            notes.insert(0, f"95 % CI {100 * row.low:.1f} to {100 * row.high:.1f}")
        yield EvalResultEntry(
            dataset_id=benchmark,
            task_id="_".join(row.names),
            value=round(100 * row.value, 2),
            date=run.day,
            notes="; ".join([*notes, f"consilience {run.version}".strip()]),
        )
