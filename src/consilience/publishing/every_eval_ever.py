"""Records of Every Eval Ever (arXiv:2606.14516), schema 0.3.0: numbers and answers of a run.

``every_eval_ever_0_3_0`` has the published schemas, their source and their licence. A record is a
JSON file with a result for each number, and a JSON Lines file with a row for each answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from consilience.errors import ConsilienceError
from consilience.metrics import METRICS
from consilience.metrics.registry import DESCRIPTIONS, headline_metrics
from consilience.publishing.public_run import INTERVAL, PublicFile, PublicRun
from consilience.report.summary import SummaryRow

VERSION = "0.3.0"
"""The version of the schemas."""

SCHEMAS = files("consilience.publishing").joinpath("every_eval_ever_0_3_0")
"""The folder of the published schemas."""

AGGREGATE, INSTANCE = "eval.schema.json", "instance_level_eval.schema.json"

LOWER_IS_BETTER = ("violation_rate", "no_label", "consistent_wrong", "total_variation")

CANONICAL = {"accuracy": "accuracy", "f1": "f1"}
"""Metrics that others have under this id; ours have the prefix ``consilience.``."""

Record = dict[str, Any]


def eee_files(run: PublicRun, organization: str) -> list[PublicFile]:
    """The record of a run and, where its texts may be published, its answers.

    ``organization``: who publishes. The paths are those of the EEE data store,
    ``data/COLLECTION/DEVELOPER/MODEL/UUID.json``; the same run has the same path.
    """
    folder = f"data/consilience__{run.suite.slug}/{run.model.developer}/{run.model.name}"
    stem = f"{folder}/{_uuid(run.fingerprint)}"
    record = record_of(run, organization)
    made = []
    if run.prompts is not None:
        lines = [_line(sample) for sample in samples_of(run, record["evaluation_id"])]
        samples = PublicFile(f"{stem}_samples.jsonl", "".join(lines).encode())
        record["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": samples.name,
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(samples.content).hexdigest(),
            "total_rows": len(lines),
        }
        made.append(samples)
    text = json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return [PublicFile(f"{stem}.json", text.encode()), *made]


def record_of(run: PublicRun, organization: str) -> Record:
    """The record of a run without a reference to its answers."""
    is_own = organization.lower() == run.model.developer.lower()
    relationship = "first_party" if is_own else "third_party"
    return {
        "schema_version": VERSION,
        "evaluation_id": f"consilience/{run.suite.slug}/{run.model.id}/{run.fingerprint[:12]}/"
        f"{int(run.time.timestamp())}",
        "evaluation_timestamp": run.finished,
        "retrieved_timestamp": str(int(time.time())),
        "source_metadata": {
            "source_name": "consilience",
            "source_type": "evaluation_run",
            "source_organization_name": organization or "unknown",
            "evaluator_relationship": relationship if organization else "other",
        },
        "eval_library": {
            "name": "consilience",
            "version": run.versions.get("consilience", "unknown"),
        },
        "model_info": _model(run),
        "evaluation_results": list(_results(run)),
    }


def _model(run: PublicRun) -> Record:
    model = run.model
    info: Record = {
        "name": model.name,
        "id": model.id,
        "developer": model.developer,
        "additional_details": {
            "deployment_type": "unknown" if model.is_served else "self_deployed",
            "model_availability": "open_weights" if model.is_from_hub else "unknown",
            **model.facts,
        },
    }
    if "architecture" in model.facts and "transformers" in run.versions:
        engine = {"name": "transformers", "version": run.versions["transformers"]}
        info["inference_engine"] = engine
    return info


def _results(run: PublicRun) -> Iterator[Record]:
    """A result for each headline number, of the whole suite and of each group; NaN has none."""
    source, generation = _source(run), _generation(run)
    for row in _shown_rows(run):
        group, metric, subset = row["group"], row["metric"], row["subset"]
        name = ".".join([run.suite.slug, *([] if group in ("MACRO", "MICRO") else [group])])
        yield {
            "evaluation_result_id": result_id(run, group, metric, subset),
            "evaluation_name": name if subset == "all" else f"{name}.{subset}",
            "source_data": source,
            "evaluation_timestamp": run.finished,
            "metric_config": _metric(metric, run.protocol),
            "score_details": _score(row, run),
            "generation_config": generation,
        }


def _shown_rows(run: PublicRun) -> Iterator[Mapping[str, Any]]:
    """The rows of the metrics table that the summary shows, and headline numbers of each group."""
    shown = {(row.metric, row.subset) for row in run.summary.rows}
    headline = headline_metrics(aliases=True)
    for row in run.metrics.iter_rows(named=True):
        is_shown = (row["metric"], row["subset"]) in shown
        is_headline = row["subset"] == "all" and row["metric"] in headline
        if (is_shown or is_headline) and not math.isnan(row["value"]):
            yield row


def result_id(run: PublicRun, group: str, metric: str, subset: str = "all") -> str:
    """The id of a number in a record."""
    return f"{run.suite.slug}/{group}/{metric}/{subset}"


def _metric(name: str, protocol: str) -> Record:
    description = DESCRIPTIONS[name]
    low, high = METRICS[description.alias_of or name].bounds
    return {
        "evaluation_description": description.meaning,
        "metric_id": CANONICAL.get(name, f"consilience.{name}"),
        "metric_name": description.label,
        "metric_kind": name,
        "metric_unit": "proportion",
        "metric_parameters": {"protocol": protocol},
        "lower_is_better": name in LOWER_IS_BETTER,
        "score_type": "continuous",
        "min_score": low,
        "max_score": high,
    }


def _score(row: Mapping[str, Any], run: PublicRun) -> Record:
    details = {"n_excluded": row["n_excluded"], "seeds": row["seeds"]}
    if row["group"] == "MACRO":
        details["unit_of_n"] = f"{run.suite.suite.words.group}s"
    if shown := _summary_row(row, run):
        numbers = {"majority_baseline": shown.baseline, "expected_by_chance": shown.chance}
        details |= {name: value for name, value in numbers.items() if not math.isnan(value)}
    if run.seeds > 1:
        details |= {"low_over_seeds": row["seed_low"], "high_over_seeds": row["seed_high"]}
    uncertainty: Record = {"num_samples": row["n"]}
    if not math.isnan(row["low"]):
        uncertainty["confidence_interval"] = {
            "lower": row["low"],
            "upper": row["high"],
            "confidence_level": 0.95,
            "method": INTERVAL,
        }
    return {
        "score": row["value"],
        "details": {name: str(value) for name, value in details.items()},
        "uncertainty": uncertainty,
    }


def _summary_row(row: Mapping[str, Any], run: PublicRun) -> SummaryRow | None:
    """The headline number that a row of the metrics table is; None for those of a group."""
    if row["group"] not in ("MACRO", "MICRO") and run.suite.kind != "sentence pairs":
        return None
    key = row["metric"], row["subset"], row["value"]
    rows = (shown for shown in run.summary.rows if (shown.metric, shown.subset, shown.value) == key)
    return next(rows, None)


def _source(run: PublicRun) -> Record:
    suite = run.suite
    details = {"kind": suite.kind, "sha256": suite.digest}
    details |= {"licence": suite.licence} if suite.licence else {}
    if not suite.dataset:
        return {
            "dataset_name": suite.name,
            **(
                {"source_type": "url", "url": [suite.url]}
                if suite.url
                else {"source_type": "other"}
            ),
            "additional_details": details,
        }
    details |= {"config": suite.config} if suite.config else {}
    return {
        "dataset_name": suite.name,
        "source_type": "hf_dataset",
        "hf_repo": suite.dataset,
        **({"hf_split": suite.split} if suite.split else {}),
        "additional_details": details,
    }


def _generation(run: PublicRun) -> Record:
    arguments = {"execution_command": run.command} if run.command else {}
    return {"generation_args": arguments, "additional_details": {"protocol": run.protocol}}


def samples_of(run: PublicRun, evaluation_id: str) -> Iterator[Record]:
    """A row for each answer; those in the base variant are linked to the accuracy of the group."""
    if run.prompts is None:
        return
    keys = ["group", "item", "variant"]
    answers = run.shared_answers().with_columns(run.is_right())
    suite = run.suite.suite
    for row in answers.join(run.prompts, on=keys, maintain_order="left").iter_rows(named=True):
        answer, group = row["answer"], row["group"]
        text = row.get("text") or answer
        gold, is_right = [] if row["gold"] is None else [row["gold"]], bool(row["is_right"])
        is_written = group in suite and suite[group].design.writes_freely
        linked = row["variant_index"] == 0
        attribution = {
            "turn_idx": 0,
            "source": "output.raw",
            "extracted_value": answer,
            "extraction_method": "matching_rule" if is_written else "best_candidate",
            "is_terminal": True,
        }
        yield {
            "schema_version": VERSION,
            "evaluation_id": evaluation_id,
            "model_id": run.model.id,
            "evaluation_name": f"{run.suite.slug}.{group}",
            **({"evaluation_result_id": result_id(run, group, "accuracy")} if linked else {}),
            "sample_id": f"{group}/{row['item']}/{row['variant_index']}",
            "sample_hash": sample_hash(row["prompt"], gold),
            "interaction_type": "single_turn",
            "input": {"raw": row["prompt"], "reference": gold},
            "output": {"raw": [] if text is None else [text]},
            "messages": None,
            "answer_attribution": [] if answer is None else [attribution],
            "evaluation": {"score": float(is_right), "is_correct": is_right},
            "error": row["excluded"],
            "metadata": {
                name: str(row[name])
                for name in ("item", "variant", "variant_index", "seed", "margin")
                if row.get(name) is not None
            },
        }


def sample_hash(prompt: str, gold: list[str]) -> str:
    """The hash by which the same sample is found in other records, by the data store's rule."""
    content = {"raw": prompt, "reference": gold}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _uuid(fingerprint: str) -> uuid.UUID:
    """A UUID of version 4 that follows from the settings of a run."""
    return uuid.UUID(bytes=bytes.fromhex(fingerprint)[:16], version=4)


def _line(sample: Record) -> str:
    """A row on one line, also for readers that end lines at other characters than a line feed."""
    return json.dumps(sample, allow_nan=False) + "\n"


def check_records(made: list[PublicFile]) -> bool:
    """Whether records were checked against the published schemas; one that does not fit raises.

    False where the package ``jsonschema`` is missing.
    """
    try:
        from jsonschema import Draft7Validator
    except ImportError:
        return False
    validators = {
        suffix: Draft7Validator(json.loads(SCHEMAS.joinpath(name).read_text(encoding="utf-8")))
        for suffix, name in ((".json", AGGREGATE), (".jsonl", INSTANCE))
    }
    for file in made:
        is_lines = file.name.endswith(".jsonl")
        texts = file.content.decode().split("\n")[:-1] if is_lines else [file.content.decode()]
        validator = validators[".jsonl" if is_lines else ".json"]
        for number, text in enumerate(texts, start=1):
            for error in validator.iter_errors(json.loads(text)):
                raise ConsilienceError(
                    f"{error.json_path}: {error.message}",
                    expected=f"a record of Every Eval Ever {VERSION}",
                    where=f"{file.name}, line {number}" if is_lines else file.name,
                    todo="Report this record: it is a fault of consilience.",
                )
    return True
