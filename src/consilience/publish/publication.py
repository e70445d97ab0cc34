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
from consilience.elsewhere import open_run
from consilience.files.read import read_text
from consilience.files.write import make_folder, write_whole
from consilience.options import Output, option_fields
from consilience.options.probe import ProbeOptions
from consilience.options.runs import PublishOptions
from consilience.probing.counting import count_run
from consilience.publish import formats
from consilience.publish.formats import CARD, Files, PublicRun
from consilience.report.columns import legible
from consilience.report.export import Shown, record_of
from consilience.runs.folder import fingerprint
from consilience.runs.run import Run

KEYS = ("group", "item", "variant")

MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

SHOWN = (
    "limit", "seed", "dtype", "groups", "protocol", "candidates",
    "as_questions", "generate", "vary", "design", "option_score", "shots", "match",
    "temperature", "max_new_tokens", "noise_floor",
)  # fmt: skip
"""Options of a run that its published command repeats; texts with a slash are left out."""


def public_run(run: Run, options: PublishOptions) -> PublicRun:
    """All that may be published of a run; one that is not complete raises."""
    if not run.is_finished:
        todo = "Rerun its command, which resumes it."
        raise ConsilienceError("the run is not complete", where=str(run.path), todo=todo)
    model, model_facts = public_model(run, options.model_id)
    counted = count_run(replace(run, label=model))
    public = public_suite(run, options.licence)
    prompts = run.queries.select(*KEYS, prompt=pl.col("input").list.join("\n"))
    return PublicRun(
        model=model,
        model_facts=model_facts,
        suite=public,
        protocol=counted.protocol,
        command=public_command(run.record.get("options"), model, public.name),
        versions=dict(run.record["versions"]),
        finished=str(run.record["finished"]),
        fingerprint=fingerprint({"settings": run.settings, "answers": run.record["answers"]}),
        summary=counted.summary,
        metrics=legible(counted.metrics),
        answers=run.answers,
        prompts=prompts if options.licence else None,
    )


def public_model(run: Run, model_id: str | None) -> tuple[str, dict[str, str]]:
    """The id of the model of a run and what is known of it; a model without an id raises."""
    identity: Mapping[str, Any] = run.settings.get("model", {})
    is_here = identity.get("digest") is not None or "server" in identity
    id_ = model_id or ("" if is_here else str(identity.get("model", "")).partition("@")[0])
    if not MODEL_ID.fullmatch(id_):
        found = f"the model '{id_}'" if id_ else "a model without an id"
        expected = "ORGANISATION/NAME, as on the Hub"
        todo = "Name it: --model-id ORGANISATION/NAME."
        raise ConsilienceError(found, expected=expected, where=str(run.path), todo=todo)
    is_loaded = "architecture" in identity
    known = {name: identity.get(name) for name in formats.MODEL_FIELDS if is_loaded}
    facts = {name: str(value) for name, value in known.items() if value is not None}
    if "server" in identity:
        facts["source"] = "server"
    elif is_loaded:
        facts["source"] = "local files" if is_here else "Hub"
    return id_, facts


def public_suite(run: Run, licence: str | None) -> formats.PublicSuite:
    """The suite of a run under its public name."""
    suite = run.suite
    dataset, config, split = run.record.get("hub") or ("", "", "")
    name = suite.name if dataset else PurePosixPath(suite.name).name
    digest, items = str(run.settings["queries"]), f"{suite.words.item}s"
    return formats.PublicSuite(name, items, digest, suite, licence or "", dataset, config, split)


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
    opened = open_run(options.run)
    watch.say(f"writing {options.format}")
    run, notes = public_run(opened, options), list[str]()
    if options.format == "eee":
        files = formats.eee_files(run, options.organization)
        if not options.licence:
            todo = "if you may share them, name the licence: --licence SPDX-ID"
            notes = [f"the texts of {run.suite.name} are left out: {todo}"]
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
