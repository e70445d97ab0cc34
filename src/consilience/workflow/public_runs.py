"""A run as it may be published: every field is chosen here (``publishing/public_run.py``)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import polars as pl

from consilience.errors import ConsilienceError
from consilience.options import option_fields
from consilience.publishing.public_run import (
    MODEL_FIELDS,
    Kind,
    PublicRun,
    PublicSuite,
)
from consilience.read import parse_json, read_text
from consilience.run import Run
from consilience.run_folder import fingerprint
from consilience.suites import load_suite
from consilience.suites.mini_questions import NAMES as MADE_OF_MINI
from consilience.suites.pairs import HUB
from consilience.suites.selection import replace_facts, select_relations
from consilience.suites.suite_names import BUNDLED, MINI
from consilience.text import control_in
from consilience.types import Suite
from consilience.workflow.counting import count_run
from consilience.workflow.exporting import fact_rows
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.run_options import PublishOptions
from consilience.workflow.run_settings import recorded_options
from consilience.workflow.suite import any_suite_of, suite_notes

MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

HIDDEN = (
    "model", "suite", "out", "data_dir", "base_url", "api_key_env", "max_requests",
    "max_tokens", "price", "concurrency", "timeout", "tokenizer", "device", "fast",
)  # fmt: skip
"""Options of a run that its published command does not repeat: places, addresses and limits."""


def public_run(run: Run, options: PublishOptions) -> PublicRun:
    """All that may be published of a run; one that is not complete raises."""
    for part in run.seeds:
        if not part.record.get("finished"):
            raise ConsilienceError(
                "the run is not complete",
                where=str(part.path),
                todo="Rerun its command, which resumes it.",
            )
    model, facts_of_model = public_model(run, options.model_id)
    suite, protocol = any_suite_of(run, None, None, options.data_dir)
    changes = suite_notes(replace(run, label=model), suite)
    if not (run.is_of_pairs or run.is_of_questions):
        suite = select_relations(suite, run.seeds[0].answers["group"].unique().to_list())
    counted = count_run(replace(run, label=model), suite, protocol)
    if facts := run.settings.get("facts"):  # those of another suite
        suite = replace_facts(suite, load_suite(facts, options.data_dir))
    public = public_suite(run, suite, options.licence)
    tables = [
        part.answers.with_columns(seed=pl.lit(part.label)) if run.parts else part.answers
        for part in run.seeds
    ]
    record = run.seeds[-1].record
    return PublicRun(
        model=model,
        model_facts=facts_of_model,
        suite=public,
        protocol=protocol,
        command=public_command(recorded_options(run.record), model, public.name),
        versions=dict(record["versions"]),
        finished=str(record["finished"]),
        fingerprint=fingerprint({part.label: part.settings for part in run.parts} or run.settings),
        summary=counted.summary,
        metrics=counted.metrics,
        notes=counted.notes,
        changes=changes,
        answers=pl.concat(tables, how="diagonal"),
        prompts=_prompts(run, suite) if public.may_be_shared else None,
    )


def public_model(run: Run, model_id: str | None) -> tuple[str, dict[str, str]]:
    """The id of the model of a run and what is known of it; a model without an id raises."""
    identity: Mapping[str, Any] = run.settings.get("model", {})
    spec = str(identity.get("model", ""))
    is_here = identity.get("digest") is not None or "server" in identity
    id_ = model_id or ("" if is_here else spec)
    if not MODEL_ID.fullmatch(id_):
        fault = f"the model '{id_}'" if model_id or not is_here else "a model without an id"
        raise ConsilienceError(
            fault,
            expected="ORGANISATION/NAME, as on the Hub",
            where=str(run.path),
            todo="Name it: --model-id ORGANISATION/NAME.",
        )
    is_loaded = "architecture" in identity
    identities = [part.settings.get("model", {}) for part in run.seeds if is_loaded]
    known = {name: {one.get(name) for one in identities} for name in MODEL_FIELDS}
    shared = {name: values.pop() for name, values in known.items() if len(values) == 1}
    facts = {name: str(value) for name, value in shared.items() if value is not None}
    if "server" in identity:
        facts["source"] = "server"
    elif is_loaded:
        facts["source"] = "local files" if is_here else "Hub"
    return id_, facts


def public_suite(run: Run, suite: Suite, licence: str | None) -> PublicSuite:
    """The suite of a run with its licence: the one that is given, or that the suite states."""
    settings = run.settings
    kind: Kind = "facts"
    if run.is_of_pairs or run.is_of_questions:
        kind = "sentence pairs" if run.is_of_pairs else "questions"
    name = str(settings["task"]["name"] if run.is_of_pairs else settings["suite"])
    about = _about(run)
    stated = str(about.get("licence") or about.get("license") or "") if licence is None else licence
    url = str(about.get("url", ""))
    if control_in(stated):
        raise ConsilienceError(f"the licence {stated!r}", expected="an SPDX id, such as CC-BY-4.0")
    dataset, config, split = _on_the_hub(run)
    return PublicSuite(
        name=PurePosixPath(name).name if not dataset else name,
        kind=kind,
        digest=str(settings["pairs"] if run.is_of_pairs else settings["suite_digest"]),
        suite=suite,
        licence=stated,
        url=url if url.startswith(("https://", "http://")) else "",
        dataset=dataset,
        config=config,
        split=split,
    )


def _about(run: Run) -> Mapping[str, Any]:
    """``suite.json`` of the patterns and facts of a run; empty where none covers them.

    Files of questions, tasks, and patterns with the facts of another suite have none.
    """
    options: Mapping[str, Any] = recorded_options(run.record) or {}
    spec = options.get("suite", "mini")
    folder = run.record.get("suite_source", {}).get("folder")
    if run.is_of_questions:
        is_bundled = "as_questions" in options and spec in BUNDLED
        folder = MINI if spec in MADE_OF_MINI else BUNDLED[spec] if is_bundled else None
    if run.is_of_pairs or run.settings.get("facts") or not folder:
        return {}
    file = Path(folder) / "suite.json"
    about = parse_json(read_text(file)) if file.is_file() else {}
    return about if isinstance(about, dict) else {}


def _on_the_hub(run: Run) -> tuple[str, str, str]:
    """Data set, configuration and split of a suite on the Hub; empty for one that is elsewhere."""
    options: Mapping[str, Any] = recorded_options(run.record) or {}
    spec = str((options.get("data") if run.is_of_pairs else options.get("suite")) or "")
    if spec.partition(":")[0] != HUB.rstrip(":"):
        return "", "", ""
    name = spec.partition(":")[2]
    if run.is_of_pairs:
        source: Sequence[str] = run.settings["task"].get("hub", ())
        dataset, config, *_ = [*source, "", ""]
        return dataset, config, name or "validation"
    dataset, _, split = name.partition(":")
    dataset, _, config = dataset.partition("@")
    return dataset, config, split


def _prompts(run: Run, suite: Suite) -> pl.DataFrame | None:
    """The prompts: ``group, item, variant, prompt``; None where the run does not keep them."""
    if run.is_of_pairs or run.is_of_questions:
        return None if run.prompts.is_empty() else run.prompts
    items = run.seeds[0].answers.select("group", "item").unique()
    keys = ("group", "item", "variant", "prompt")
    rows = [{key: row[key] for key in keys} for row in fact_rows(suite)]
    return pl.DataFrame(rows).join(items, on=["group", "item"], how="semi")


def public_command(options: Mapping[str, Any] | None, model: str, suite: str) -> str:
    """The command of a run under public names; empty where the record has no options.

    Files are named without their folders.
    """
    if options is None:
        return ""
    words = ["consilience", "probe", "--model", model, "--suite", suite]
    for field in option_fields(ProbeOptions):
        value = options.get(field.name)
        if field.name in HIDDEN or value is None or value is False:
            continue
        if value is True:
            words.append(field.flag)
            continue
        texts = [_public_text(one) for one in (value if isinstance(value, list) else [value])]
        for text in texts if field.is_repeated else [",".join(texts)]:
            words += [field.flag, text]
    return shlex.join(words)


def _public_text(value: object) -> str:
    """A value of an option; a path without its folders."""
    if not isinstance(value, str):
        return f"{value:g}" if isinstance(value, float) else json.dumps(value)
    is_windows = bool(re.match(r"[A-Za-z]:[\\/]|\\\\", value))
    path = PureWindowsPath(value) if is_windows else PurePosixPath(value)
    is_place = is_windows or value.startswith(("/", "./", "../", "~")) or Path(value).exists()
    return path.name if is_place or (path.suffix and " " not in value) else value
