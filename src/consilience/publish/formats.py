"""What of a run is published, and as what: model cards and Every Eval Ever."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

import polars as pl
from huggingface_hub import EvalResult, ModelCardData

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.factors import FACTORS, WHOLE, Part
from consilience.core.schemas import REASONS
from consilience.metrics.registry import DESCRIPTIONS, headline_metrics
from consilience.report.export import as_markdown
from consilience.report.summary import KEY, Summary
from consilience.types import Suite

ADDRESS = r"\w+://\S+|\b[\w.-]+:\d{2,5}\b"

Files = Mapping[str, bytes]  # Content by path in the folder or repository, with ``/``

MODEL_FIELDS = ("kind", "architecture", "parameters", "revision", "digest", "dtype")
"""What is published of the identity of a model; its address and its folder are not."""

INTERVAL = (
    "closed-form jackknife, two-way clustered, with logit-scale bounds; exact binomial "
    "(Clopper-Pearson) for shares of 0 or 1"
)
"""How the bounds of the 95 % intervals are computed (docs/statistics.md)."""


@dataclass(frozen=True, slots=True)
class PublicSuite:
    """A suite as the world knows it."""

    name: str
    kind: str
    digest: str
    suite: Suite
    licence: str  # Under which its texts may be shared; empty where none is stated
    dataset: str = ""  # On the Hub, with configuration and split; or empty
    config: str = ""
    split: str = ""

    @property
    def slug(self) -> str:
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", self.name).strip("-").lower() or "suite"
        return slug if self.name.isascii() else f"{slug}-{self.digest[:8]}"


@dataclass(frozen=True, slots=True)
class PublicRun:
    """All that may be published of a run."""

    model: str  # The model's id on the Hub, or one of the same form: ``ORGANISATION/NAME``
    model_facts: Mapping[str, str]  # ``MODEL_FIELDS``; ``source``: Hub, local files or server
    suite: PublicSuite
    protocol: Protocol
    command: str  # Without folders and addresses; empty where it is not known
    versions: Mapping[str, str]
    finished: str
    fingerprint: str
    summary: Summary
    metrics: pl.DataFrame
    answers: pl.DataFrame  # All answers
    prompts: pl.DataFrame | None  # Or None where they may not be published

    @property
    def version(self) -> str:
        return self.versions.get("consilience", "")

    def shared_answers(self) -> pl.DataFrame:
        """The answers, with what may name a server left out of the reasons."""
        return self.answers.with_columns(pl.col(REASONS).str.replace_all(ADDRESS, "URL"))

    def is_right(self) -> pl.Expr:
        """Whether an answer is the gold, or the position of its option; null without an answer."""
        same = pl.col("answer") == pl.col("gold")
        if "gold_option" in self.answers.columns:
            same = pl.coalesce(pl.col("option") == pl.col("gold_option"), same)
        return same.alias("is_right")

    def as_markdown(self) -> str:
        """The headline numbers, and what a reader needs to understand and repeat them."""
        details = "".join(f"- {name}: {value}\n" for name, value in self._details())
        return f"{as_markdown(self.summary.table())}\n{details}"

    def _details(self) -> Iterator[tuple[str, str]]:
        suite = self.suite
        yield "model", ", ".join([self.model, *(f"{n} {v}" for n, v in self.model_facts.items())])
        licence = f", licence {suite.licence}" * bool(suite.licence)
        yield "suite", f"{suite.name} ({suite.kind}, SHA-256 {suite.digest}{licence})"
        yield "protocol", self.protocol
        yield "intervals", f"95 %: {INTERVAL}"
        yield "versions", ", ".join(f"{name} {value}" for name, value in self.versions.items())
        if self.command:
            yield "command", f"`{self.command}`"
        yield "date", self.finished[:10]


CARD = "README.md"

TASKS = {"masked": "fill-mask", "causal": "text-generation", "seq2seq": "text2text-generation"}
"""The Hub's names of what a kind of model does; ``text-generation`` for others."""

DIGITS = 4


def card_of(run: PublicRun) -> str:
    """A model card with the numbers of a run, in its metadata and its text."""
    name = run.model.split("/")[1]
    data = ModelCardData(model_name=name, eval_results=[*results_of(run)], tags=["consilience"])
    return (
        f"---\n{data.to_yaml()}\n---\n\n# {name}\n\n## Consistency on {run.suite.name}\n\n"
        "How often the model gives the same answer to the same question asked in different ways, "
        f"measured with consilience {run.version}.\n\n{run.as_markdown()}"
    )


def results_of(run: PublicRun) -> Iterator[EvalResult]:
    """The headline numbers of a run, as entries of a ``model-index``; fractions."""
    suite, task = run.suite, TASKS.get(run.model_facts.get("kind", ""), "text-generation")
    for row in run.summary.rows:
        if math.isnan(row.value):
            continue
        # Arguments of the dataset are one for all of its results.
        known: dict[str, Any] = {"sha256": suite.digest, "protocol": run.protocol}
        if not math.isnan(row.low):
            known |= {"confidence_level": 0.95}
            known |= {"low": round(row.low, DIGITS), "high": round(row.high, DIGITS)}
        yield EvalResult(
            task_type="text-classification" if suite.kind == "sentence pairs" else task,
            dataset_type=suite.dataset or suite.slug,
            dataset_name=suite.name,
            dataset_config=suite.config or None,
            dataset_split=suite.split or None,
            metric_type=".".join(row.names),
            metric_name=row.label,
            metric_value=round(row.value, DIGITS),
            metric_args=known,
        )


EEE_VERSION = "0.3.0"  # Of Every Eval Ever

EEE_SCHEMAS = resources.files("consilience.publish").joinpath("every_eval_ever_0_3_0")
"""The published schemas of Every Eval Ever (arXiv:2606.14516), their source and licence."""

EEE_AGGREGATE, EEE_INSTANCE = "eval.schema.json", "instance_level_eval.schema.json"

CANONICAL = ("accuracy", "f1")  # Without our prefix ``consilience.``

EeeRecord = dict[str, Any]  # A record of Every Eval Ever, or a part of one


def eee_files(run: PublicRun, organization: str) -> Files:
    """The record of a run, in JSON; its answers, in JSON Lines, if its texts may be published.

    The paths are those of the EEE data store; the same run has the same path.
    """
    name = uuid.UUID(bytes=bytes.fromhex(run.fingerprint)[:16], version=4)
    stem = f"data/consilience__{run.suite.slug}/{run.model}/{name}"
    record, samples = record_of(run, organization), {}
    if run.prompts is not None:
        answered = samples_of(run, run.prompts, record["evaluation_id"])
        rows = [_checked(row, EEE_INSTANCE) for row in answered]
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
    checked = _checked(record, EEE_AGGREGATE)
    text = json.dumps(checked, ensure_ascii=False, indent=2, allow_nan=False)
    return {f"{stem}.json": f"{text}\n".encode(), **samples}


def record_of(run: PublicRun, organization: str) -> EeeRecord:
    """The record of a run without a reference to its answers."""
    is_own = organization.lower() == run.model.split("/")[0].lower()
    relationship = "first_party" if is_own else "third_party"
    return {
        "schema_version": EEE_VERSION,
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


def _model(run: PublicRun) -> EeeRecord:
    developer, name = run.model.split("/")
    source = run.model_facts.get("source")
    info: EeeRecord = {
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


def _results(run: PublicRun) -> Iterator[EeeRecord]:
    """A result for each headline number, of the whole suite and of each group; NaN has none."""
    source = _source(run)
    arguments = {"execution_command": run.command} if run.command else {}
    shown = {(row.metric, row.kind, row.level) for row in run.summary.rows}
    headline = {(metric, *WHOLE) for metric in headline_metrics(aliases=True)}
    for row in run.metrics.iter_rows(named=True):
        group, metric, part = row["group"], row["metric"], (row["kind"], row["level"])
        if (metric, *part) not in shown | headline or math.isnan(row["value"]):
            continue
        yield {
            "evaluation_result_id": result_id(run, row["over"], group, metric, part),
            "evaluation_name": ".".join(filter(None, [run.suite.slug, group, row["level"]])),
            "source_data": source,
            "evaluation_timestamp": run.finished,
            "metric_config": _metric(metric, run.protocol),
            "score_details": _score(row, run),
            "generation_config": {
                "generation_args": arguments,
                "additional_details": {"protocol": run.protocol},
            },
        }


def result_id(run: PublicRun, over: str, group: str, metric: str, part: Part = WHOLE) -> str:
    """The id of a number in a record: suite, ``over`` with the group, metric, kind and level."""
    return "/".join(filter(None, [run.suite.slug, over, group, metric, *part]))


def _metric(name: str, protocol: str) -> EeeRecord:
    description = DESCRIPTIONS[name]
    return {
        "evaluation_description": description.meaning,
        "metric_id": name if name in CANONICAL else f"consilience.{name}",
        "metric_name": description.label,
        "metric_kind": name,
        "metric_unit": "proportion",
        "metric_parameters": {"protocol": protocol},
        "lower_is_better": description.better == "lower",
        "score_type": "continuous",
        "min_score": description.bounds[0],
        "max_score": description.bounds[1],
    }


def _score(row: Mapping[str, Any], run: PublicRun) -> EeeRecord:
    details = {"n_excluded": row["n_excluded"]}
    if row["over"] == "mean":
        details["unit_of_n"] = f"{run.suite.suite.words.group}s"
    for shown in run.summary.rows:
        if all(getattr(shown, name) == row[name] for name in KEY):
            details |= {"majority_baseline": shown.baseline, "expected_by_chance": shown.chance}
    uncertainty: EeeRecord = {"num_samples": row["n"]}
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


def _source(run: PublicRun) -> EeeRecord:
    suite = run.suite
    source: EeeRecord = {"source_type": "other"}
    if suite.dataset:
        source = {"source_type": "hf_dataset", "hf_repo": suite.dataset}
        source |= {"hf_split": suite.split} if suite.split else {}
    details = {"kind": suite.kind, "sha256": suite.digest, "licence": suite.licence}
    details |= {"config": suite.config}
    known = {name: text for name, text in details.items() if text}
    return {"dataset_name": suite.name, **source, "additional_details": known}


def samples_of(run: PublicRun, prompts: pl.DataFrame, evaluation_id: str) -> Iterator[EeeRecord]:
    """A row for each asked query; those in the base variant are linked to the group's accuracy."""
    answers = run.shared_answers().with_columns(run.is_right()).filter(pl.col("excluded").is_null())
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
            "schema_version": EEE_VERSION,
            "evaluation_id": evaluation_id,
            "model_id": run.model,
            "evaluation_name": f"{run.suite.slug}.{group}",
            **(
                {"evaluation_result_id": result_id(run, "group", group, "accuracy")}
                if linked
                else {}
            ),
            "sample_id": f"{group}/{row['item']}/{row['variant_index']}",
            "sample_hash": sample_hash(row["prompt"], gold),
            "interaction_type": "single_turn",
            "input": {"raw": row["prompt"], "reference": gold},
            "output": {"raw": [] if text is None else [text]},
            "messages": None,
            "answer_attribution": [] if answer is None else [attribution],
            "evaluation": {"score": float(is_right), "is_correct": is_right},
            "error": row["error"],
            "metadata": {
                name: str(row[name])
                for name in ("item", "variant", "variant_index", "margin", *FACTORS)
                if row.get(name) is not None
            },
        }


def sample_hash(prompt: str, gold: list[str]) -> str:
    """The hash by which the same sample is found in other records, by the data store's rule."""
    content = {"raw": prompt, "reference": gold}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _checked(document: EeeRecord, schema: str) -> EeeRecord:
    """A document that fits a published schema; another one raises."""
    for error in _validator(schema).iter_errors(document):
        raise ConsilienceError(
            f"{error.json_path}: {error.message}",
            expected=f"a record of Every Eval Ever {EEE_VERSION}",
            where=str(document.get("sample_id", document["evaluation_id"])),
            todo="Report this record: it is a fault of consilience.",
        )
    return document


@cache
def _validator(schema: str) -> Any:
    from jsonschema import Draft7Validator

    return Draft7Validator(json.loads(EEE_SCHEMAS.joinpath(schema).read_text(encoding="utf-8")))
