"""Tasks of lm-evaluation-harness before and after a training, such as MMLU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, Loading, did_you_mean, needs_extra, reason_of
from consilience.files.read import parse_json, read_text
from consilience.files.write import write_whole
from consilience.models.loading import load_pretrained

METRICS = ("acc", "exact_match")
"""The metrics that are 0 or 1 for each document; a task's first of them is its accuracy."""

Documents = Mapping[str, float]  # 0 or 1 by task and document


@cache
def _manager() -> Any:
    """The tasks of lm-eval; it reads thousands of files."""
    with needs_extra("lm-eval"):
        from lm_eval.tasks import TaskManager
    return TaskManager()


def check_tasks(names: Sequence[str]) -> None:
    """Raise unless lm-eval is installed and has these tasks, their data, and a metric for each."""
    for name in names:
        manager = _manager()
        where = f"--harm-tasks {name}"
        if name not in manager.all_tasks and not Path(name).is_file():
            todo = did_you_mean(name, manager.all_tasks, otherwise="`lm-eval ls tasks` has them.")
            raise ConsilienceError("no such task of lm-eval, and no file", where=where, todo=todo)
        try:
            loaded = manager.load(name)["tasks"]
        except Exception as error:  # the network, a missing file, a script: nearly anything
            raise ConsilienceError(
                f"cannot be loaded: {reason_of(error)}", where=where,
                todo="Check the network, or leave the task out.",
            ) from error  # fmt: skip
        for task, held in loaded.items():
            if not {*METRICS} & {*held.higher_is_better()}:
                found = f"the task '{task}' without {' or '.join(METRICS)}"
                raise ConsilienceError(found, where=where, todo="Leave the task out.")


def accuracies(
    spec: str, loading: Loading, names: Sequence[str], limit: int | None, file: Path
) -> Mapping[str, Documents]:
    """Whether a causal model is right, by task and document.

    ``file`` keeps this; if it is there, the model is not loaded. The prompts and few-shot examples
    are those of lm-eval, without a chat template. ``limit``: the first so many documents of each
    task; of a group such as ``mmlu`` of each subtask.
    """
    if file.is_file():
        kept: Mapping[str, Documents] = parse_json(read_text(file))
        return kept
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    model = load_pretrained(spec, loading)
    harness = HFLM(pretrained=model.model.eval(), tokenizer=model.tokenizer, batch_size=8)
    values: dict[str, dict[str, float]] = {}
    for name in names:
        results: Any = lm_eval.simple_evaluate(
            harness, tasks=[name], limit=limit, bootstrap_iters=0, task_manager=_manager()
        )  # fmt: skip
        right = values[name] = {}
        for task, samples in results["samples"].items():
            for sample in samples:  # of several filters the first counts
                metric = next(metric for metric in METRICS if metric in sample)
                right.setdefault(f"{task} {sample['doc_id']}", float(sample[metric]))
    write_whole(file, json.dumps(values).encode())
    return values
