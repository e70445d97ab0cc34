"""Logs of other harnesses: each becomes rows with an item, a variant and what was answered.

lm-evaluation-harness writes a JSON object a document with ``--log_samples``
(``evaluator.evaluate``, 0.4.13): ``doc`` is the document, ``filtered_resps`` has a pair for each
choice, its log-probability and whether it is the most probable text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError
from consilience.read import read_document

LOG_PROBABILITIES = "log_probabilities"
"""The column with the log-probabilities in nats of all candidates, in the order of the prompt."""

DOCUMENT = ("group", "item", "subject", "variant", "variant_index", "gold")
"""What a document of ours says of its prompt."""

Row = Mapping[str, Any]


def is_lm_eval_log(row: Row) -> bool:
    """Whether a row is one of ``--log_samples`` of lm-evaluation-harness."""
    return {"doc_id", "doc", "filtered_resps"} <= set(row)


def lm_eval_rows(rows: Iterable[tuple[str, Row]]) -> Iterator[dict[str, Any]]:
    """The rows of a log of one of our tasks, with the place of each; another task raises."""
    for where, row in rows:
        doc = row["doc"] if isinstance(row.get("doc"), dict) else {}
        absent = [name for name in DOCUMENT if name not in doc]
        if absent:
            raise ConsilienceError(
                f"a document of lm-evaluation-harness without {', '.join(absent)}",
                expected="a task that `consilience suite export --format lm-eval` wrote",
                where=where,
                todo="Answers to other tasks have no variants to compare.",
            )
        yield {
            **{name: doc[name] for name in DOCUMENT},
            **({"options": doc["options"]} if "options" in doc else {}),
            LOG_PROBABILITIES: _log_probabilities(row["filtered_resps"], where),
        }


def _log_probabilities(replies: Any, where: str) -> list[float]:
    """The log-probability of each choice, which the log writes as text."""
    try:
        return [float(reply[0]) for reply in replies]
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ConsilienceError(
            "filtered_resps without the log-probability of each choice",
            expected='pairs such as ["-16.54", "False"]',
            where=where,
        ) from error


def model_of_log(path: Path) -> str:
    """The model of a log of lm-evaluation-harness, from the results beside it; "" if unknown."""
    date = re.search(r"^samples_.*_(\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl$", path.name)
    results = path.with_name(f"results_{date[1]}.json") if date else path
    if not date or not results.is_file():
        return ""
    return str(read_document(results).get("model_name") or "")
