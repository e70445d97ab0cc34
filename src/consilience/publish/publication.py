"""Publishing a run: its named fields, and the files of a format."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Watch
from consilience.core.text import listed
from consilience.files.read import read_text
from consilience.files.write import make_folder, write_whole
from consilience.kinds import kind_of_run, suite_notes, suite_of
from consilience.kinds.counting import count_run
from consilience.options import Output, option_fields
from consilience.options.probe import ProbeOptions
from consilience.options.runs import PublishOptions
from consilience.publish import formats
from consilience.publish.formats import CARD, Files, PublicRun
from consilience.report.columns import legible
from consilience.report.export import Shown, record_of
from consilience.runs.folder import fingerprint
from consilience.runs.run import Run
from consilience.suites.facts import select_relations
from consilience.types import Suite

MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

SHOWN = (
    "limit", "seed", "revision", "dtype", "groups", "protocol", "candidates", "multi_token",
    "as_questions", "generate", "half", "vary", "design", "option_score", "shots", "match",
    "samples", "temperature", "max_new_tokens", "noise_floor",
)  # fmt: skip
"""Options of a run that its published command repeats; texts with a slash are left out."""


def public_run(run: Run, options: PublishOptions) -> PublicRun:
    """All that may be published of a run; one that is not complete raises."""
    for part in run.seeds:
        if not part.record.get("finished"):
            todo = "Rerun its command, which resumes it."
            raise ConsilienceError("the run is not complete", where=str(part.path), todo=todo)
    model, facts_of_model = public_model(run, options.model_id)
    suite, protocol = suite_of(run)
    suite = select_relations(suite, run.seeds[0].answers["group"].unique().to_list())
    counted = count_run(replace(run, label=model), suite, protocol)
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
        command=public_command(run.record.get("options"), model, public.name),
        versions=dict(record["versions"]),
        finished=str(record["finished"]),
        fingerprint=fingerprint(
            {"seeds": [[part.settings, part.record["answers"]] for part in run.seeds]}
        ),
        summary=counted.summary,
        metrics=legible(counted.metrics),
        answers=pl.concat(tables, how="diagonal"),
        prompts=kind_of_run(run).sent(run, suite) if options.licence else None,
    )


def public_model(run: Run, model_id: str | None) -> tuple[str, dict[str, str]]:
    """The id of the model of a run and what is known of it; a model without an id raises."""
    identity: Mapping[str, Any] = run.settings.get("model", {})
    is_here = identity.get("digest") is not None or "server" in identity
    id_ = model_id or ("" if is_here else str(identity.get("model", "")))
    if not MODEL_ID.fullmatch(id_):
        found = f"the model '{id_}'" if id_ else "a model without an id"
        expected = "ORGANISATION/NAME, as on the Hub"
        todo = "Name it: --model-id ORGANISATION/NAME."
        raise ConsilienceError(found, expected=expected, where=str(run.path), todo=todo)
    is_loaded = "architecture" in identity
    identities = [part.settings.get("model", {}) for part in run.seeds if is_loaded]
    known = {name: {one.get(name) for one in identities} for name in formats.MODEL_FIELDS}
    shared = {name: values.pop() for name, values in known.items() if len(values) == 1}
    facts = {name: str(value) for name, value in shared.items() if value is not None}
    if "server" in identity:
        facts["source"] = "server"
    elif is_loaded:
        facts["source"] = "local files" if is_here else "Hub"
    return id_, facts


def public_suite(run: Run, suite: Suite, licence: str | None) -> formats.PublicSuite:
    """The suite of a run under its public name."""
    settings, kind = run.settings, kind_of_run(run)
    name = str(settings.get("task", {}).get("name") or settings["suite"])
    dataset, config, split = kind.on_the_hub(run)
    return formats.PublicSuite(
        PurePosixPath(name).name if not dataset else name, f"{kind.words.item}s",
        str(settings.get("pairs") or settings["suite_digest"]), suite, licence or "",
        dataset, config, split,
    )  # fmt: skip


def public_command(options: Mapping[str, Any] | None, model: str, suite: str) -> str:
    """The command of a run under public names; empty without recorded options."""
    if options is None:
        return ""
    words = ["consilience", "probe", "--model", model, "--suite", suite]
    for option in option_fields(ProbeOptions):
        value = options.get(option.name)
        if option.name not in SHOWN or value is None or value is False:
            continue
        typed = option.typed(value)
        words += [] if any("/" in word or "\\" in word for word in typed) else typed
    return shlex.join(words)


@dataclass(frozen=True, slots=True, repr=False)
class Publication(Shown):
    """What ``publish`` wrote."""

    run: PublicRun
    folder: Path
    files: Files
    notes: Sequence[str]
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[Path]:
        return [self.folder / name for name in self.files]

    def printed(self, output: Output) -> Iterable[str]:
        return map(str, self.paths)

    def document(self) -> dict[str, Any]:
        files = [str(path) for path in self.paths]
        return {"run": self.record, "files": files, "warnings": [*self.notes]}

    def __repr__(self) -> str:
        return f"Publication({str(self.folder)!r}: {listed(list(self.files), 2)})"


def publish(options: PublishOptions, watch: Watch = SILENT) -> Publication:
    """Write the files of a format."""
    opened = Run.open(options.run)
    watch.say(f"writing {options.format}")
    run = public_run(opened, options)
    notes = suite_notes(replace(opened, label=run.model), suite_of(opened)[0])
    if options.format == "eee":
        files = formats.eee_files(run, options.organization)
        if not options.licence:
            todo = "if you may share them, name the licence: --licence SPDX-ID"
            notes = [*notes, f"the texts of {run.suite.name} are left out: {todo}"]
    else:
        files = {CARD: formats.card_of(run).encode()}
    folder = options.out or options.run / "published" / options.format
    card = folder / CARD
    if CARD in files and card.exists() and "measured with consilience" not in read_text(card):
        found = "a README.md that consilience did not write"
        raise ConsilienceError(found, where=str(folder), todo="Choose another folder.")
    for name, content in files.items():
        path = folder / name
        make_folder(path.parent)
        write_whole(path, content)
    record = record_of(run=str(options.run), format=options.format)
    return Publication(run, folder, files, notes, record)
