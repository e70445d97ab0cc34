"""Logs of other harnesses: each becomes rows with an item, a variant and what was answered.

lm-evaluation-harness writes a JSON object a document with ``--log_samples``
(``evaluator.evaluate``, 0.4.13): ``doc`` is the document, ``filtered_resps`` has a pair for each
choice, its log-probability and whether it is the most probable text.

inspect_ai writes a file ``.eval``, which its own reader opens (``inspect_ai.log.read_eval_log``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from consilience.errors import ConsilienceError, how_to_install
from consilience.read import read_document

LOG_PROBABILITIES = "log_probabilities"
"""The column with the log-probabilities in nats of all candidates, in the order of the prompt."""

DOCUMENT = ("group", "item", "subject", "variant", "variant_index", "gold")
"""What a document of ours says of its prompt."""

SAMPLE = (*DOCUMENT, "options", "as_questions", "seed")
"""What the metadata of a sample say; of facts, how many wrong options were drawn, by which seed."""

INSPECT = ".eval"
"""How the name of a log of inspect_ai ends."""

LOG_NAMES = ("samples_*.jsonl", "*/samples_*.jsonl", f"*{INSPECT}")
"""What logs are called in the folder that a harness writes."""

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
            LOG_PROBABILITIES: _log_probabilities(row.get("filtered_resps"), where),
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


def inspect_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a log of one of our tasks in inspect_ai; another task raises.

    A sample without an output, because of an error, has no answer.
    """
    samples = _read_inspect(path).samples or ()
    for sample in samples:
        names = ("item", "variant", "variant_index")
        absent = [name for name in names if name not in sample.metadata]
        if absent:
            raise ConsilienceError(
                f"a sample of inspect_ai without {', '.join(absent)} in its metadata",
                expected="a log of consilience/suite",
                where=f"{path}, sample {sample.id}",
                todo="Answers to other tasks have no variants to compare.",
            )
    return sample_rows(
        [(sample.metadata, sample.epoch, sample.output.completion) for sample in samples]
    )


def sample_rows(samples: Sequence[tuple[Row, int, str | None]]) -> Iterator[dict[str, Any]]:
    """The rows of samples of inspect_ai: their metadata, their epochs from 1, and what was written.

    Several epochs of questions are levels of the factor ``sample``. Forms of sentence pairs have no
    such factor: their first epoch is read.
    """
    epochs = max((epoch for _, epoch, _ in samples), default=1)
    for metadata, epoch, text in samples:
        row = {name: metadata[name] for name in SAMPLE if name in metadata} | {"answer": text}
        if epochs > 1 and "options" in metadata:
            levels = "" if row["variant"] == "base" else f"{row['variant']}, "
            row["variant"] = f"{levels}sample={epoch}"
            row["variant_index"] = row["variant_index"] * epochs + epoch - 1
        elif epoch > 1:
            continue
        yield row


def _read_inspect(path: Path, *, header_only: bool = False) -> Any:
    """A log of inspect_ai, which must be installed."""
    try:
        from inspect_ai.log import read_eval_log
    except ImportError as error:
        raise ConsilienceError(
            "inspect_ai is not installed, which reads its logs",
            where=str(path),
            todo=how_to_install("inspect"),
        ) from error
    try:
        return read_eval_log(str(path), header_only=header_only)
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise ConsilienceError(
            f"cannot be read as a log of inspect_ai: {error}", where=str(path)
        ) from error


def model_of_log(path: Path) -> str:
    """The model of a log of another harness, from what it wrote; "" if unknown."""
    if path.suffix == INSPECT and path.is_file():
        return str(_read_inspect(path, header_only=True).eval.model)
    date = re.search(r"^samples_.*_(\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl$", path.name)
    results = path.with_name(f"results_{date[1]}.json") if date else path
    if not date or not results.is_file():
        return ""
    return str(read_document(results).get("model_name") or "")
