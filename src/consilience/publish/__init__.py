"""Publishing a run: the named values that may leave this machine, in the fields of a format.

``public_values`` has all of a run that may be published, by name. A format is a mapping from its
own fields to these names: ``every_eval_ever.json`` and ``model_card.json`` beside this module.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from string import Formatter
from typing import Any

import polars as pl
from huggingface_hub import EvalResult, ModelCardData

from consilience.core.errors import SILENT, ConsilienceError, Progress, PublishFormat
from consilience.core.factors import FACTORS, WHOLE
from consilience.core.schemas import REASONS
from consilience.files.read import read_document, read_text
from consilience.files.write import make_folder, write_whole
from consilience.metrics.measure import legible
from consilience.metrics.registry import DESCRIPTIONS, headline_metrics
from consilience.options import parameters
from consilience.options.commands import ProbeOptions
from consilience.probing import CountedRun, count_run
from consilience.report.summary import KEY
from consilience.report.table import Output, as_markdown, record_of
from consilience.runs.folder import fingerprint
from consilience.runs.run import NOT_COMPARED, Run, no_run

MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
MODEL_FIELDS = ("kind", "architecture", "parameters", "revision", "digest", "dtype")
"""What is published of the identity of a model; its address and its folder are not."""

FILE = r"(?:[/\\]|\.(py|toml)\b)"  # in a value that names one
COMMAND_OPTIONS = {
    "data": "^(?!hub(:|$))", "template": r"\W", "match": rf"^(?!regex:).*{FILE}|\.py:",
} | dict.fromkeys(
    ("limit", "seed", "dtype", "groups", "protocol", "candidates", "perturbations", "as_questions",
     "generate", "vary", "design", "option_score", "shots", "temperature", "max_new_tokens",
     "noise_floor"), FILE)  # fmt: skip
"""Options of a run that its published command repeats, and what is in a value that is private."""

NOT_REPEATED = ("model", "suite", "adapter", "data_dir", "trust_remote_code")
"""Options, beside ``NOT_COMPARED``, without which a published command asks the same."""

ADDRESS = r"\w+://\S+|\b[\w.-]+:\d{2,5}\b"  # in a reason, which a server may have written
CARD = "README.md"
OURS = "measured with consilience"  # in every card of ours
INTERVAL = (
    "closed-form jackknife, two-way clustered, with logit-scale bounds; exact binomial "
    "(Clopper-Pearson) for shares of 0 or 1"
)
"""How the bounds of the 95 % intervals are computed (docs/statistics.md)."""

CANONICAL = ("accuracy", "f1")  # Metrics of Every Eval Ever that have this name in other tools, too
TASKS = {"masked": "fill-mask", "causal": "text-generation", "seq2seq": "text2text-generation"}
"""The Hub's names of what a kind of model does; ``text-generation`` for others."""

DIGITS = 4  # of a number in a model card
PLACE = ("over", "group", "metric", "kind", "level")  # What the id of a number names

Values = Mapping[str, Any]  # By name; None, NaN and "" where there is no value
Files = Mapping[str, bytes]  # Content by path in the folder or repository, with ``/``


def filled(field: Any, values: Values) -> Any:
    """A field of a format with the values that it names in braces; None where one is missing.

    A field that is one name has the value itself, another one a text. An object is left without
    the fields that have no value, and is None if none is left.
    """
    if isinstance(field, dict):
        inner = {name: filled(part, values) for name, part in field.items()}
        return {name: part for name, part in inner.items() if part is not None} or None
    if not isinstance(field, str):
        return field
    names = [name for _, name, *_ in Formatter().parse(field) if name]
    if any(values[name] in (None, "") or values[name] != values[name] for name in names):
        return None
    return values[names[0]] if field == f"{{{''.join(names)}}}" else field.format(**values)


def publish(
    path: Path,
    form: PublishFormat,
    out: Path | None = None,
    model_id: str | None = None,
    licence: str | None = None,
    organization: str = "",
    progress: Progress = SILENT,
) -> Output:
    """Write the files of a format."""
    run, notes = Run.open(path), list[str]()
    if not run.record:
        raise no_run(run.path, "run.json")
    if not run.is_finished:
        todo = "Rerun its command, which resumes it."
        raise ConsilienceError("the run is not complete", where=str(run.path), todo=todo)
    progress.say(f"writing {form}")
    model, facts = public_model(run, model_id)
    counted = count_run(replace(run, label=model))
    values = public_values(run, model, facts, licence, organization)
    folder = out or path / "published" / form
    if form == "eee":
        files = eee_files(run, counted, values)
        if not licence:
            todo = "if you may share them, name the licence: --licence SPDX-ID"
            notes = [f"the texts of {values['suite']} are left out: {todo}"]
    else:
        files = {CARD: model_card(counted, values).encode()}
        if (folder / CARD).exists() and OURS not in read_text(folder / CARD):
            found = "a README.md that consilience did not write"
            raise ConsilienceError(found, where=str(folder), todo="Choose another folder.")
    for name, content in files.items():
        make_folder((folder / name).parent)
        write_whole(folder / name, content)
    paths = [str(folder / name) for name in files]
    record = record_of(run=str(path), format=form)
    return Output(shown=paths, cautions=notes, facts={"run": record, "files": paths})


def public_model(run: Run, model_id: str | None) -> tuple[str, dict[str, str]]:
    """The id of the model of a run and what is known of it; a model without an id raises."""
    identity: Values = run.settings.get("model", {})
    is_here = identity.get("digest") is not None or "server" in identity
    id_ = model_id or ("" if is_here else str(identity.get("model", "")).partition("@")[0])
    if not MODEL_ID.fullmatch(id_):
        found = f"the model '{id_}'" if id_ else "a model without an id"
        expected = "ORGANISATION/NAME, as on the Hub"
        todo = "Name it: --model-id ORGANISATION/NAME."
        raise ConsilienceError(found, expected=expected, where=str(run.path), todo=todo)
    if "server" in identity:
        return id_, {"source": "server"}
    if "architecture" not in identity:
        return id_, {}
    known = {name: identity.get(name) for name in MODEL_FIELDS}
    facts = {name: str(value) for name, value in known.items() if value is not None}
    return id_, facts | {"source": "local files" if is_here else "Hub"}


def public_command(options: Values | None, model: str, suite: str) -> str:
    """The command of a run under public names; empty where it would ask something else.

    That is the case without recorded options, of a model or a suite that is a Python value (None),
    and with an option that names a file or is private, such as the text of a template.
    """
    words, known = ["consilience", "probe", "--model", model, "--suite", suite], options or {}
    for name, parameter in parameters(ProbeOptions).items():
        if name in COMMAND_OPTIONS and known.get(name) is not None:
            arguments = parameter.arguments(known[name])
            if re.search(COMMAND_OPTIONS[name], " ".join(arguments[1:])):
                return ""
            words += arguments
    asked = known.keys() - {*NOT_REPEATED, *NOT_COMPARED}
    is_same = options is not None and asked <= {*COMMAND_OPTIONS} and None not in known.values()
    return shlex.join(words) if is_same else ""


def public_values(
    run: Run, model: str, facts: Mapping[str, str], licence: str | None, organization: str
) -> dict[str, Any]:
    """All that may be published of a run beside its numbers, by name; ``facts``: of the model."""
    suite, finished = run.suite, str(run.record["finished"])
    dataset, config, split = run.record.get("hub") or ("", "", "")
    name, items = suite.name if dataset else PurePosixPath(suite.name).name, suite.words.item
    digest = str(run.settings["queries"])
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-").lower() or "suite"
    slug = slug if name.isascii() else f"{slug}-{digest[:8]}"
    versions, (developer, model_name) = run.record["versions"], model.split("/")
    relationship = "first_party" if organization.lower() == developer.lower() else "third_party"
    mark = fingerprint({"settings": run.settings, "answers": run.record["answers"]})
    second = int(datetime.fromisoformat(finished).timestamp())
    source, is_transformers = facts.get("source"), "architecture" in facts
    task = "text-classification" if items == "sentence pair" else TASKS.get(facts.get("kind", ""))
    return {
        "model": model,
        "model_name": model_name,
        "developer": developer,
        "model_details": ", ".join([model, *(f"{of} {text}" for of, text in facts.items())]),
        "model_kind": facts.get("kind"),
        **{of: facts.get(of) for of in (*MODEL_FIELDS[1:], "source")},
        "deployment": "unknown" if source == "server" else "self_deployed",
        "availability": "open_weights" if source == "Hub" else "unknown",
        "engine": "transformers" if is_transformers else None,
        "engine_version": versions.get("transformers") if is_transformers else None,
        "task": task or "text-generation",
        "suite": name,
        "slug": slug,
        "items": f"{items}s",
        "sha256": digest,
        "dataset": dataset,
        "dataset_type": dataset or slug,
        "source_type": "hf_dataset" if dataset else "other",
        "config": config,
        "split": split,
        "licence": licence,
        "protocol": suite.protocol,
        "interval_method": INTERVAL,
        "command": public_command(run.record.get("options"), model, name),
        "version": versions.get("consilience") or "unknown",
        "versions": ", ".join(f"{of} {version}" for of, version in versions.items()),
        "finished": finished,
        "date": finished[:10],
        "now": str(int(time.time())),
        "organization": organization or "unknown",
        "relationship": relationship if organization else "other",
        "evaluation_id": f"consilience/{slug}/{model}/{mark[:12]}/{second}",
        "stem": f"data/consilience__{slug}/{model}/{uuid.UUID(mark[:32], version=4)}",
    }


def read_format(name: str) -> dict[str, Any]:
    """The mappings of a format from its fields to values."""
    mappings: dict[str, Any] = read_document(Path(__file__).with_name(f"{name}.json"))
    return mappings


def model_card(counted: CountedRun, values: Values) -> str:
    """A model card: the headline numbers in its ``model-index`` and in its text."""
    fields, results = read_format("model_card"), []
    for row in counted.summary.rows:
        if row.value == row.value:  # not NaN
            number: dict[str, Any] = {"label": row.label, "metric_type": ".".join(row.names)}
            number |= {of: round(getattr(row, of), DIGITS) for of in ("value", "low", "high")}
            number["confidence"] = 0.95 if row.low == row.low else None
            results.append(EvalResult(**filled(fields["result"], {**values, **number})))
    name = values["model_name"]
    data = ModelCardData(model_name=name, eval_results=results, tags=["consilience"])
    details = filled(fields["details"], values)
    return (
        f"---\n{data.to_yaml()}\n---\n\n# {name}\n\n## Consistency on {values['suite']}\n\n"
        "How often the model gives the same answer to the same question asked in different ways, "
        f"{OURS} {values['version']}.\n\n{as_markdown(counted.summary.table())}\n"
        + "".join(f"- {of}: {text}\n" for of, text in details.items())
    )


def eee_files(run: Run, counted: CountedRun, values: Values) -> Files:
    """The record of a run, in JSON; its answers, in JSON Lines, if its texts may be published.

    The paths are those of the EEE data store; the same run has the same path.
    """
    fields, samples, name = read_format("every_eval_ever"), b"", f"{values['stem']}_samples.jsonl"
    if values["licence"]:
        # One line each, also for readers that end lines at other characters than a line feed.
        rows = [filled(fields["sample"], of) for of in sample_values(run, values, fields)]
        samples = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
    numbers = [filled(fields["result"], of) for of in number_values(counted, values)]
    record = filled(fields["record"], {**values, "results": numbers})
    if samples:
        record["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": name,
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(samples).hexdigest(),
            "total_rows": samples.count(b"\n"),
        }
    text = json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False)
    return {f"{values['stem']}.json": f"{text}\n".encode()} | ({name: samples} if samples else {})


def number_values(counted: CountedRun, values: Values) -> Iterator[Values]:
    """The values of each headline number, of the whole suite and of each group."""
    shown = {tuple(getattr(row, of) for of in KEY): row for row in counted.summary.rows}
    headline = {(metric, *WHOLE) for metric in headline_metrics(aliases=True)}
    headline |= {(row.metric, row.kind, row.level) for row in shown.values()}
    for row in legible(counted.metrics).to_dicts():
        metric, summary = row["metric"], shown.get(tuple(row[of] for of in KEY))
        if row["value"] == row["value"] and (metric, row["kind"], row["level"]) in headline:
            about, has_interval = DESCRIPTIONS[metric], row["low"] == row["low"]
            yield {
                **row, **values,
                "result_id": _result_id(values, *(row[of] for of in PLACE)),
                "result_name": ".".join(filter(None, [values["slug"], row["group"], row["level"]])),
                "label": about.label,
                "meaning": about.meaning,
                "metric_id": metric if metric in CANONICAL else f"consilience.{metric}",
                "lower_is_better": about.better == "lower",
                "least": about.bounds[0],
                "most": about.bounds[1],
                "unit_of_n": f"{counted.suite.words.group}s" if row["over"] == "mean" else None,
                "baseline": summary.baseline if summary else None,
                "chance": summary.chance if summary else None,
                "confidence": 0.95 if has_interval else None,
                "interval": INTERVAL if has_interval else None,
            }  # fmt: skip


def sample_values(run: Run, values: Values, fields: Values) -> Iterator[Values]:
    """The values of each query that was asked, and of its answer.

    One in the base variant is linked to the accuracy of its group.
    """
    keys, suite = ["group", "item", "variant"], run.suite
    prompts = run.queries.select(*keys, prompt=pl.col("input").list.join("\n"))
    said = pl.col(REASONS).cast(pl.String).str.split(": ").list.first()  # not a server's words
    answers = run.answers.with_columns(said.str.replace_all(ADDRESS, "URL"))
    asked = answers.filter(pl.col("excluded").is_null()).join(
        prompts, on=keys, maintain_order="left"
    )
    for row in asked.iter_rows(named=True):
        answer, group, index = row["answer"], row["group"], row["variant_index"]
        text, golds = row.get("text") or answer, [] if row["gold"] is None else [row["gold"]]
        is_right = answer is not None and answer in golds
        if row.get("option") is not None and row.get("gold_option") is not None:
            is_right = row["option"] == row["gold_option"]
        is_written = group in suite and suite[group].design.writes_freely
        method = "matching_rule" if is_written else "best_candidate"
        attribution = filled(fields["attribution"], {"answer": answer, "method": method})
        factors = ("item", "variant", "variant_index", "margin", *FACTORS)
        yield {
            **row, **values,
            "result_id": None if index else _result_id(values, "group", group, "accuracy", "whole"),
            "sample_hash": sample_hash(row["prompt"], golds),
            "golds": golds,
            "texts": [] if text is None else [text],
            "attributions": [] if answer is None else [attribution],
            "score": float(is_right),
            "is_right": is_right,
            "factors": {of: str(row[of]) for of in factors if row.get(of) is not None},
        }  # fmt: skip


def _result_id(values: Values, *names: str) -> str:
    """The id of a number in a record: the suite, and the names of ``PLACE``."""
    return "/".join(filter(None, [values["slug"], *names]))


def sample_hash(prompt: str, golds: list[str]) -> str:
    """The hash by which the same sample is found in other records, by the data store's rule."""
    content = {"raw": prompt, "reference": golds}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
