"""What of a run is published, and as what: results, model cards, data sets, Every Eval Ever."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

import polars as pl
import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, eval_result_entries_to_yaml

from consilience.core.errors import ConsilienceError, Protocol, reason_of
from consilience.core.text import AGGREGATES
from consilience.metrics.registry import DESCRIPTIONS, headline_metrics
from consilience.report.export import as_markdown, escape_markdown
from consilience.report.summary import Summary
from consilience.types import Suite

FREE = re.compile(
    r"0BSD|AFL-|AGPL-|Apache-2\.0|Artistic-2\.0|BSD-|BSL-1\.0|C-UDA-1\.0|CC0-1\.0|CC-PDDC|CDLA-|ECL-2\.0|EPL-|EUPL-"
    r"|CC-BY-(NC-)?(SA-)?\d|GFDL-|GPL-|ISC|LGPL-|MIT|MPL-2\.0|MS-PL|NCSA|ODbL-1\.0|ODC-By-1\.0|OFL-1\.1|OGL-"
    r"|PDDL-1\.0|Unlicense|WTFPL|Zlib"
)
"""How the SPDX ids begin of licences that let anybody share a copy in another file format.

Licences that forbid changes (``ND``) are not among them.
"""


def may_be_shared(licence: str) -> bool:
    """Whether all licences of an SPDX expression let anybody share what they cover."""
    ids = re.split(r"\s+(?:AND|OR|WITH\s+\S+)\s*|[()\s]+", licence.strip())
    known = [name for name in ids if name]
    return bool(known) and all(FREE.match(name) for name in known)


ADDRESS = r"\w+://\S+|\b[\w.-]+:\d{2,5}\b"

Files = Mapping[str, bytes]  # Content by path in the folder or repository, with ``/``

MODEL_FIELDS = ("kind", "architecture", "parameters", "revision", "digest", "dtype")
"""What is published of the identity of a model; its address and its folder are not."""

INTERVAL = (
    "two-way clustered bootstrap with logit-scale bounds; exact binomial (Clopper-Pearson) "
    "for shares of 0 or 1"
)
"""How the bounds of the 95 % intervals are computed (docs/statistics.md)."""

NUMBERS = (
    "n_candidates", "logprob", "gold_logprob", "gold_rank", "margin", "text_logprob",
    "gold_text_logprob", "option", "gold_option",
)  # fmt: skip
"""Columns of answers that say nothing of the texts of a suite."""


@dataclass(frozen=True, slots=True)
class PublicSuite:
    """A suite as the world knows it."""

    name: str
    kind: str
    digest: str
    suite: Suite
    licence: str  # An SPDX expression; empty where none is stated
    url: str = ""  # Where it is published, as it states; empty where it states nothing
    dataset: str = ""  # On the Hub, with configuration and split; or empty
    config: str = ""
    split: str = ""

    @property
    def slug(self) -> str:
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", self.name).strip("-").lower() or "suite"
        return slug if self.name.isascii() else f"{slug}-{self.digest[:8]}"

    @property
    def may_be_shared(self) -> bool:
        return may_be_shared(self.licence)


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
    notes: Sequence[str]
    changes: Sequence[str]  # Notes on a suite that is not as it was when it was asked
    answers: pl.DataFrame  # All answers; of several seeds with a column ``seed``
    prompts: pl.DataFrame | None  # Or None where they may not be published

    @property
    def version(self) -> str:
        return self.versions.get("consilience", "")

    def shared_answers(self) -> pl.DataFrame:
        """The answers as they may be published.

        Without a licence of the suite its texts are left out: ``item`` is the position of the item
        in its group, ``variant`` that of the variant, and equal numbers in ``answer`` are equal
        answers of a group.
        """
        if self.suite.may_be_shared:
            reasons = pl.col("excluded").str.replace_all(ADDRESS, "URL")
            return self.answers.with_columns(reasons)
        columns = [name for name in NUMBERS if name in self.answers.columns]
        seed = ["seed"] if "seed" in self.answers.columns else []
        first = pl.col("row").min().over("group", "item")
        return self.answers.with_row_index("row").select(
            *seed, "group",
            (first.rank("dense").over("group") - 1).cast(pl.Int32).alias("item"),
            pl.col("variant_index").alias("variant"),
            (pl.col("answer").rank("dense").over("group") - 1).cast(pl.Int32),
            self.is_right(), *columns,
        )  # fmt: skip

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
        licence = f"licence {suite.licence}" if suite.licence else "no licence stated"
        yield "suite", f"{suite.name} ({suite.kind}, SHA-256 {suite.digest}, {licence})"
        yield "protocol", self.protocol
        yield "intervals", f"95 %: {INTERVAL}"
        yield "versions", ", ".join(f"{name} {value}" for name, value in self.versions.items())
        if self.command:
            yield "command", f"`{self.command}`"
        yield "date", self.finished[:10]
        for note in (*self.changes, *self.notes):
            shared = note if suite.may_be_shared else re.split("[,;] such as ", note)[0]
            yield "note", escape_markdown(re.sub(ADDRESS, "URL", shared))


def eval_results_files(run: PublicRun, benchmark: str) -> Files:
    """A file with each headline number, in percent, for the leaderboard of ``benchmark``."""
    entries = []
    for row in run.summary.rows:
        if math.isnan(row.value):
            continue
        notes = [f"{run.suite.name}, {run.protocol} protocol", row.meaning]
        if not math.isnan(row.low):
            notes.insert(0, f"95 % CI {100 * row.low:.1f} to {100 * row.high:.1f}")
        entry = EvalResultEntry(
            dataset_id=benchmark,
            task_id="_".join(row.names),
            value=round(100 * row.value, 2),
            date=run.finished[:10],
            notes="; ".join([*notes, f"consilience {run.version}".strip()]),
        )
        entries.append(entry)
    shown = eval_result_entries_to_yaml(entries)
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return {f".eval_results/consilience-{run.suite.slug}-{run.protocol}.yaml": text.encode()}


CARD = "README.md"

TASKS = {"masked": "fill-mask", "causal": "text-generation", "seq2seq": "text2text-generation"}
"""The Hub's names of what a kind of model does; ``text-generation`` for others."""

DIGITS = 4


def with_results(card: str, runs: Sequence[PublicRun]) -> str:
    """A model card, or an empty text, with the numbers of runs of its model.

    Results of the same suite, protocol and metric, and the section of the same suite, are replaced.
    """
    new = {_number(result): result for run in runs for result in results_of(run)}
    name = runs[0].model.split("/")[1]
    try:
        made: Any = ModelCard(card or f"---\n{{}}\n---\n\n# {name}\n")
    except Exception as error:  # yaml has many
        found = f"its metadata cannot be read: {reason_of(error)}"
        expected = "YAML between two lines of ---"
        todo = "Correct the card."
        raise ConsilienceError(found, expected=expected, where=CARD, todo=todo) from error
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


def _number(result: EvalResult) -> tuple[object, ...]:
    """What results have in common that are the same number, perhaps with another value."""
    protocol = (result.metric_args or {}).get("protocol")
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


MARK = "<!-- written by `consilience publish` -->"  # In a data card that may be written again

MEANINGS: Mapping[str, str] = {
    "answers": "A row for each item in each variant: the answer, the gold and the scores.",
    "metrics": "A row for each number, with its 95 % interval. Fractions from 0 to 1.",
    "facts": "The facts that were asked: relation, item, subject and object.",
    "patterns": "The cloze patterns of each relation; `variant_index` 0 is the base pattern.",
    "prompts": "What was sent for each item in each variant.",
}

KNOWN_TO_HUB = re.compile(r"apache-2\.0|mit|cc0-1\.0|cc-by(-nc)?(-sa)?-[234]\.\d")

NOT_SHARED = (
    "The texts of the suite are left out, because its licence is unknown or forbids to share them. "
    "In `answers`, `item` and `variant` are positions, and equal numbers in `answer` are equal "
    "answers of a group."
)


def dataset_files(run: PublicRun) -> Files:
    """The tables and the data card of a run."""
    tables = dict(_tables(run))
    files = {}
    for name, table in tables.items():
        table.write_parquet(buffer := io.BytesIO())
        files[f"data/{name}.parquet"] = buffer.getvalue()
    return {CARD: _card(run, tables, files).encode(), **files}


def _tables(run: PublicRun) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables by name; those of the suite where its licence allows it."""
    yield "answers", run.shared_answers()
    yield "metrics", run.metrics.with_columns(pl.col(pl.Float64).fill_nan(None))
    if run.prompts is None:
        return
    if run.suite.kind != "facts":
        yield "prompts", run.prompts
        return
    items = run.answers.select("group", "item").unique()
    facts = [
        {"group": group.id, "item": fact.item, "subject": fact.subject, "object": fact.object}
        for group in run.suite.suite
        for fact in group.facts
    ]
    yield "facts", pl.DataFrame(facts).join(items, on=["group", "item"], how="semi")
    patterns = [
        {
            "group": group.id, "label": group.label, "cardinality": group.cardinality,
            "variant_index": at, "pattern": pattern.text, "language": pattern.language,
        }
        for group in run.suite.suite
        for at, pattern in enumerate(group.patterns)
    ]  # fmt: skip
    yield "patterns", pl.DataFrame(patterns)


def _card(run: PublicRun, tables: Mapping[str, pl.DataFrame], files: Files) -> str:
    """The data card: metadata of the Hub, the numbers, and what is in the tables.

    ``datasets`` has a cache by name and metadata, so these have the bytes of each file.
    """
    title = f"Answers of {run.model} to {run.suite.name}"
    configs, sizes, listed = [], [], ""
    for name, table in tables.items():
        path, is_default = f"data/{name}.parquet", {"default": True} if name == "answers" else {}
        data_files = [{"split": "test", "path": path}]
        configs.append({"config_name": name, "data_files": data_files, **is_default})
        size = len(files[path])
        splits = [{"name": "test", "num_bytes": size, "num_examples": table.height}]
        of_table = {"config_name": name, "splits": splits}
        sizes.append({**of_table, "download_size": size, "dataset_size": size})
        listed += f"- `{name}` ({table.height:,} rows): {MEANINGS[name]}\n"
    licence = run.suite.licence if run.suite.may_be_shared else ""
    of_hub = {"license": "other", "license_name": licence} if licence else {}
    if KNOWN_TO_HUB.fullmatch(licence.lower()):
        of_hub = {"license": licence.lower()}
    metadata = {
        "pretty_name": title,
        **of_hub,
        "tags": ["consilience", "consistency", "evaluation"],
        "configs": configs,
        "dataset_info": sizes,
    }
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    left_out = "" if run.suite.may_be_shared else f"\n{NOT_SHARED}\n"
    return (
        f"---\n{front}---\n\n{MARK}\n\n# {title}\n\n{run.as_markdown()}\n## Tables\n\n"
        f"{listed}{left_out}"
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
    shown = {(row.metric, row.subset) for row in run.summary.rows}
    headline = {(metric, "all") for metric in headline_metrics(aliases=True)}
    for row in run.metrics.iter_rows(named=True):
        group, metric, subset = row["group"], row["metric"], row["subset"]
        if (metric, subset) not in shown | headline or math.isnan(row["value"]):
            continue
        named = [group] * (group not in AGGREGATES) + [subset] * (subset != "all")
        yield {
            "evaluation_result_id": result_id(run, group, metric, subset),
            "evaluation_name": ".".join([run.suite.slug, *named]),
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
    details = {"n_excluded": row["n_excluded"], "seeds": row["seeds"]}
    if row["group"] == "MACRO":
        details["unit_of_n"] = f"{run.suite.suite.words.group}s"
    for shown in run.summary.rows:
        if all(getattr(shown, name) == row[name] for name in ("group", "metric", "subset")):
            details |= {"majority_baseline": shown.baseline, "expected_by_chance": shown.chance}
    if run.summary.seeds > 1:
        details |= {"low_over_seeds": row["seed_low"], "high_over_seeds": row["seed_high"]}
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
    elif suite.url:
        source = {"source_type": "url", "url": [suite.url]}
    details = {"kind": suite.kind, "sha256": suite.digest, "licence": suite.licence}
    details |= {"config": suite.config}
    known = {name: text for name, text in details.items() if text}
    return {"dataset_name": suite.name, **source, "additional_details": known}


def samples_of(run: PublicRun, prompts: pl.DataFrame, evaluation_id: str) -> Iterator[EeeRecord]:
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
            "schema_version": EEE_VERSION,
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
