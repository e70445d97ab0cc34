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
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError
from consilience.metrics import METRICS
from consilience.metrics.registry import DESCRIPTIONS, headline_metrics
from consilience.publish.formats import INTERVAL, Files, PublicRun

VERSION = "0.3.0"

SCHEMAS = files("consilience.publish").joinpath("every_eval_ever_0_3_0")

AGGREGATE, INSTANCE = "eval.schema.json", "instance_level_eval.schema.json"

CANONICAL = ("accuracy", "f1")
"""Metrics that others have under this id; ours have the prefix ``consilience.``."""

WHOLE = ("MACRO", "MICRO")

Record = dict[str, Any]


def eee_files(run: PublicRun, organization: str) -> Files:
    """The record of a run and, where its texts may be published, its answers.

    ``organization``: who publishes. The paths are those of the EEE data store,
    ``data/COLLECTION/DEVELOPER/MODEL/UUID.json``; the same run has the same path.
    """
    name = uuid.UUID(bytes=bytes.fromhex(run.fingerprint)[:16], version=4)
    stem = f"data/consilience__{run.suite.slug}/{run.model}/{name}"
    record, samples = record_of(run, organization), {}
    if run.prompts is not None:
        answered = samples_of(run, run.prompts, record["evaluation_id"])
        rows = [_checked(row, INSTANCE) for row in answered]
        # One line each, also for readers that end lines at other characters than a line feed.
        content = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
        samples = {f"{stem}_samples.jsonl": content}
        record["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": f"{stem}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(content).hexdigest(),
            "total_rows": len(rows),
        }
    text = json.dumps(_checked(record, AGGREGATE), ensure_ascii=False, indent=2, allow_nan=False)
    return {f"{stem}.json": f"{text}\n".encode(), **samples}


def record_of(run: PublicRun, organization: str) -> Record:
    """The record of a run without a reference to its answers."""
    is_own = organization.lower() == run.model.split("/")[0].lower()
    relationship = "first_party" if is_own else "third_party"
    return {
        "schema_version": VERSION,
        "evaluation_id": f"consilience/{run.suite.slug}/{run.model}/{run.fingerprint[:12]}/"
        f"{int(datetime.fromisoformat(run.finished).timestamp())}",
        "evaluation_timestamp": run.finished,
        "retrieved_timestamp": str(int(time.time())),
        "source_metadata": {
            "source_name": "consilience",
            "source_type": "evaluation_run",
            "source_organization_name": organization or "unknown",
            "evaluator_relationship": relationship if organization else "other",
        },
        "eval_library": {"name": "consilience", "version": run.version or "unknown"},
        "model_info": _model(run),
        "evaluation_results": list(_results(run)),
    }


def _model(run: PublicRun) -> Record:
    developer, name = run.model.split("/")
    source = run.model_facts.get("source")
    info: Record = {
        "name": name,
        "id": run.model,
        "developer": developer,
        "additional_details": {
            "deployment_type": "unknown" if source == "server" else "self_deployed",
            "model_availability": "open_weights" if source == "Hub" else "unknown",
            **run.model_facts,
        },
    }
    if "architecture" in run.model_facts and "transformers" in run.versions:
        engine = {"name": "transformers", "version": run.versions["transformers"]}
        info["inference_engine"] = engine
    return info


def _results(run: PublicRun) -> Iterator[Record]:
    """A result for each headline number, of the whole suite and of each group; NaN has none."""
    source = _source(run)
    arguments = {"execution_command": run.command} if run.command else {}
    shown = {(row.metric, row.subset) for row in run.summary.rows}
    headline = {(metric, "all") for metric in headline_metrics(aliases=True)}
    for row in run.metrics.iter_rows(named=True):
        group, metric, subset = row["group"], row["metric"], row["subset"]
        if (metric, subset) not in shown | headline or math.isnan(row["value"]):
            continue
        parts = [run.suite.slug, *[group] * (group not in WHOLE), *[subset] * (subset != "all")]
        yield {
            "evaluation_result_id": result_id(run, group, metric, subset),
            "evaluation_name": ".".join(parts),
            "source_data": source,
            "evaluation_timestamp": run.finished,
            "metric_config": _metric(metric, run.protocol),
            "score_details": _score(row, run),
            "generation_config": {
                "generation_args": arguments,
                "additional_details": {"protocol": run.protocol},
            },
        }


def result_id(run: PublicRun, group: str, metric: str, subset: str = "all") -> str:
    """The id of a number in a record."""
    return f"{run.suite.slug}/{group}/{metric}/{subset}"


def _metric(name: str, protocol: str) -> Record:
    description = DESCRIPTIONS[name]
    low, high = METRICS[description.alias_of or name].bounds
    return {
        "evaluation_description": description.meaning,
        "metric_id": name if name in CANONICAL else f"consilience.{name}",
        "metric_name": description.label,
        "metric_kind": name,
        "metric_unit": "proportion",
        "metric_parameters": {"protocol": protocol},
        "lower_is_better": description.better == "lower",
        "score_type": "continuous",
        "min_score": low,
        "max_score": high,
    }


def _score(row: Mapping[str, Any], run: PublicRun) -> Record:
    details = {"n_excluded": row["n_excluded"], "seeds": row["seeds"]}
    if row["group"] == "MACRO":
        details["unit_of_n"] = f"{run.suite.suite.words.group}s"
    for shown in run.summary.rows:
        if all(getattr(shown, name) == row[name] for name in ("group", "metric", "subset")):
            details |= {"majority_baseline": shown.baseline, "expected_by_chance": shown.chance}
    if run.summary.seeds > 1:
        details |= {"low_over_seeds": row["seed_low"], "high_over_seeds": row["seed_high"]}
    uncertainty: Record = {"num_samples": row["n"]}
    if not math.isnan(row["low"]):
        uncertainty["confidence_interval"] = {
            "lower": row["low"], "upper": row["high"], "confidence_level": 0.95, "method": INTERVAL,
        }  # fmt: skip
    texts = {name: str(value) for name, value in details.items()}
    return {
        "score": row["value"],
        "details": {name: text for name, text in texts.items() if text != "nan"},
        "uncertainty": uncertainty,
    }


def _source(run: PublicRun) -> Record:
    suite = run.suite
    source: Record = {"source_type": "other"}
    if suite.dataset:
        source = {"source_type": "hf_dataset", "hf_repo": suite.dataset}
        source |= {"hf_split": suite.split} if suite.split else {}
    elif suite.url:
        source = {"source_type": "url", "url": [suite.url]}
    details = {"kind": suite.kind, "sha256": suite.digest, "licence": suite.licence}
    details |= {"config": suite.config}
    known = {name: text for name, text in details.items() if text}
    return {"dataset_name": suite.name, **source, "additional_details": known}


def samples_of(run: PublicRun, prompts: pl.DataFrame, evaluation_id: str) -> Iterator[Record]:
    """A row for each answer; those in the base variant are linked to the accuracy of the group."""
    answers = run.shared_answers().with_columns(run.is_right())
    suite, keys = run.suite.suite, ["group", "item", "variant"]
    for row in answers.join(prompts, on=keys, maintain_order="left").iter_rows(named=True):
        answer, group = row["answer"], row["group"]
        text = row.get("text") or answer
        gold, is_right = [] if row["gold"] is None else [row["gold"]], bool(row["is_right"])
        is_written = group in suite and suite[group].design.writes_freely
        linked = row["variant_index"] == 0
        attribution = {
            "turn_idx": 0, "source": "output.raw", "extracted_value": answer,
            "extraction_method": "matching_rule" if is_written else "best_candidate",
            "is_terminal": True,
        }  # fmt: skip
        yield {
            "schema_version": VERSION,
            "evaluation_id": evaluation_id,
            "model_id": run.model,
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


def _checked(document: Record, schema: str) -> Record:
    """A document that fits a published schema; another one raises."""
    for error in _validator(schema).iter_errors(document):
        raise ConsilienceError(
            f"{error.json_path}: {error.message}",
            expected=f"a record of Every Eval Ever {VERSION}",
            where=str(document.get("sample_id", document["evaluation_id"])),
            todo="Report this record: it is a fault of consilience.",
        )
    return document


@cache
def _validator(schema: str) -> Any:
    from jsonschema import Draft7Validator

    return Draft7Validator(json.loads(SCHEMAS.joinpath(schema).read_text(encoding="utf-8")))
