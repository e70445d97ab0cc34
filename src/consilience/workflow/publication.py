"""Runs made public: their numbers and answers as files, and as an upload to the Hub."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError
from consilience.files import cannot_write, write_whole
from consilience.options import Output
from consilience.publishing import hub
from consilience.publishing.eval_results import eval_results_files
from consilience.publishing.every_eval_ever import eee_files
from consilience.publishing.model_card import CARD, with_results
from consilience.publishing.public_run import Files, PublicRun
from consilience.publishing.published_dataset import MARK, dataset_files
from consilience.read import read_text
from consilience.report.shown import Lines, Shown, record_of
from consilience.report.table import Table
from consilience.run import Run
from consilience.text import counted, listed
from consilience.watch import SILENT, Watch
from consilience.workflow.private import refuse_private
from consilience.workflow.public_runs import public_run
from consilience.workflow.run_options import PublishOptions

OF_ANSWERS = ("eee", "dataset")
"""Formats with the answers, which belong to data sets; the others belong to models."""


@dataclass(frozen=True, slots=True, repr=False)
class Publication(Shown):
    """What ``publish`` wrote and sent."""

    runs: Sequence[PublicRun]
    """The runs, as they were published."""
    folder: Path
    """The folder of the files."""
    files: Files
    """The files."""
    notes: Sequence[str]
    """What was left out."""
    push: hub.Push | None = None
    """What would be sent; None without ``--push``."""
    address: str = ""
    """The address of the commit or the pull request; empty where nothing was sent."""
    record: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The run and the format, and versions."""
    is_agreed: bool = False
    """Whether the files are sent without asking."""

    @property
    def paths(self) -> list[Path]:
        """The files in the folder."""
        return [self.folder / name for name in self.files]

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The files, what would be sent, and what was."""
        if self.push is None or not self.address:
            yield from map(str, self.paths)
        if self.push:
            yield f"Sent: {self.address}" if self.address else self.push.table()

    def document(self) -> dict[str, Any]:
        """The files, and what was sent."""
        push = self.push and {
            "repository": self.push.repository,
            "type": self.push.type,
            "visibility": self.push.visibility,
            "bytes": self.push.size,
            "replaced": sorted(self.push.replaced),
            "sent": self.address or None,
        }
        files = [str(path) for path in self.paths]
        return {"run": self.record, "files": files, "push": push, "warnings": [*self.notes]}

    def remarks(self, output: Output) -> Sequence[str]:
        """The notes, before anything is sent."""
        return () if self.address else self.notes

    def then(self, output: Output) -> Shown | None:
        """The publication with its address, if it is to be sent and was not."""
        if self.push is None or self.address:
            return None
        if self.is_agreed or _agrees(self.push, can_ask=not output.is_document):
            return send_publication(self)
        return Lines({}, "Nothing was sent.")

    def __repr__(self) -> str:
        names = listed(list(self.files), 2)
        return f"Publication({str(self.folder)!r}: {names}; sent: {self.address or 'no'})"


def publish(options: PublishOptions, watch: Watch = SILENT) -> Publication:
    """Write the files of a format and, with ``push`` and ``yes``, upload them.

    With ``push`` alone the upload is planned and not made: ``send_publication`` makes it.
    """
    _check(options)
    opened = runs_in(options.run)
    runs, notes = _runs_of(options, opened, watch)
    if options.format != "eee":
        _refuse_several(options, runs)
    notes += [note for run in runs for note in run.changes]
    if options.format in OF_ANSWERS:
        notes += dict.fromkeys(note for run in runs for note in _left_out(run))
    watch.say(f"writing {options.format} of {counted(len(runs), 'run')}")
    files = _files_of(options, runs)
    refuse_private(files, opened)
    folder = options.out or options.run / "published" / options.format
    _write(folder, _with_card(_existing_card(folder, options), files, runs))
    record = record_of(run=str(options.run), format=options.format)
    made = Publication(runs, folder, files, notes, record=record)
    if options.push is None:
        return made
    planned = hub.plan_push(
        options.push,
        "dataset" if options.format in OF_ANSWERS else "model",
        files,
        as_pull_request=options.create_pr,
        is_public=options.public,
    )
    if options.format == "model-card":
        card = hub.existing_text(planned, CARD)
        planned = replace(planned, files=_with_card(card, files, runs))
    made = replace(made, push=planned)
    return send_publication(made) if options.yes else made


def _agrees(push: hub.Push, *, can_ask: bool) -> bool:
    """Whether the user wants the files sent; raises where there is nobody to ask.

    The end of the input is a no.
    """
    if can_ask and sys.stdin.isatty():
        if hasattr(signal, "siginterrupt"):
            signal.siginterrupt(signal.SIGINT, True)  # polars has reads go on after Ctrl-C
        print("Send them? [y/N]: ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    raise ConsilienceError(
        "nothing was sent: there is nobody to ask",
        where=push.url,
        todo="Add --yes to send these files.",
    )


def send_publication(made: Publication) -> Publication:
    """Upload what was planned; with its address."""
    if made.push is None:
        raise ConsilienceError("no repository", expected="push='ORG/NAME'")
    suites = ", ".join(dict.fromkeys(run.suite.name for run in made.runs))
    return replace(made, address=hub.send(made.push, f"Add results of consilience on {suites}"))


def _check(options: PublishOptions) -> None:
    """Refuse options that do not fit the format."""
    if options.format == "eval-results" and options.benchmark is None:
        raise ConsilienceError(
            "no --benchmark",
            expected="the data set on the Hub whose leaderboard takes the results",
            todo="Name it, such as --benchmark ORG/NAME; docs/publishing.md says what it needs.",
        )
    for flag, value, format_ in (
        ("--benchmark", options.benchmark, "eval-results"),
        ("--organization", options.organization, "eee"),
    ):
        if value and options.format != format_:
            raise ConsilienceError(
                f"{flag} with --format {options.format}",
                expected=f"--format {format_}",
                todo=f"Leave {flag} out.",
            )
    if options.push is None and (options.yes or options.create_pr or options.public):
        raise ConsilienceError(
            "--yes, --create-pr or --public without --push",
            todo="Name the repository with --push ORG/NAME, or leave it out.",
        )


def runs_in(path: Path) -> list[Run]:
    """The run of a folder, or all runs in it; the seeds of a run are one."""
    run = Run.open(path)
    if run.settings:
        return [run]
    folders = sorted(file.parent for file in path.rglob("run.json"))
    whole = (one.parent if one.name.startswith("seed-") else one for one in folders)
    runs = [Run.open(folder) for folder in dict.fromkeys(whole)]
    if not runs:
        raise ConsilienceError(
            "no run",
            expected="the folder of a run or of a study",
            where=str(path),
            todo="Name its folder; `consilience score FILE --out RUN` makes one of a table.",
        )
    return runs


def _runs_of(
    options: PublishOptions, opened: Sequence[Run], watch: Watch
) -> tuple[list[PublicRun], list[str]]:
    """What may be published of runs; of several, notes on those left out."""
    if len(opened) == 1:
        return [public_run(opened[0], options)], []
    models = {str(run.settings.get("model", {}).get("model")) for run in opened}
    if options.model_id is not None and len(models) > 1:
        fault = f"--model-id with runs of {len(models)} models: {listed(sorted(models))}"
        raise _several(options, fault, "runs of one model")
    runs, notes = [], []
    with watch.steps("counting", len(opened), "runs") as advance:
        for run in opened:
            try:
                runs.append(public_run(run, options))
            except ConsilienceError as error:
                notes.append(f"left out: {run.path.relative_to(options.run)}: {error}")
            advance(1)
    if not runs:
        raise ConsilienceError(
            f"none of {len(opened)} runs can be published", where=str(options.run), todo=notes[0]
        )
    return runs, notes


def _refuse_several(options: PublishOptions, runs: Sequence[PublicRun]) -> None:
    """Refuse several models in a card, several runs in a data set, and a suite twice."""
    models, is_one = len({run.model for run in runs}), options.format == "dataset"
    if models > 1 or (is_one and len(runs) > 1):
        fault = f"{len(runs)} runs of {counted(models, 'model')}"
        expected = "one run" if is_one else "runs of one model"
        raise _several(options, fault, f"{expected} for --format {options.format}")
    names = [f"{run.suite.name} under {run.protocol}" for run in runs]
    if twice := [name for name in names if names.count(name) > 1]:
        expected = "one, because each suite and protocol has one place in the files"
        raise _several(options, f"several runs of {twice[0]}", expected)


def _several(options: PublishOptions, fault: str, expected: str) -> ConsilienceError:
    todo = "Name the folder of one of them."
    return ConsilienceError(fault, expected=expected, where=str(options.run), todo=todo)


def _files_of(options: PublishOptions, runs: Sequence[PublicRun]) -> Files:
    """The files of a format."""
    if options.format == "model-card":
        return {CARD: with_results("", runs).encode()}
    makers: Mapping[str, Callable[[PublicRun], Files]] = {
        "eee": lambda run: eee_files(run, options.organization),
        "eval-results": lambda run: eval_results_files(run, str(options.benchmark)),
        "dataset": dataset_files,
    }
    make = makers[options.format]
    return {name: content for run in runs for name, content in make(run).items()}


def _with_card(card: str, files: Files, runs: Sequence[PublicRun]) -> Files:
    """The files, with results added to a model card that exists; no text for none."""
    return {CARD: with_results(card, runs).encode()} if card else files


def _left_out(run: PublicRun) -> list[str]:
    """A note where texts of the suite are not published."""
    suite = run.suite
    if not suite.may_be_shared:
        stated = f"its licence is '{suite.licence}'" if suite.licence else "no licence is stated"
        todo = "if you may share them, name the licence: --licence SPDX-ID"
        return [f"the texts of {suite.name} are left out: {stated}; {todo}"]
    if run.prompts is None:
        return [f"the texts of {suite.name} are left out: the run does not keep them"]
    return []


def _existing_card(folder: Path, options: PublishOptions) -> str:
    """The text of a model card in a folder; a data card that consilience did not write raises."""
    card = folder / CARD
    if options.format not in ("model-card", "dataset") or not card.exists():
        return ""
    try:
        text = read_text(card)
    except OSError as error:
        raise cannot_write(card, error) from error
    if options.format == "model-card":
        return text
    if MARK not in text:
        raise ConsilienceError(
            "a README.md that consilience did not write",
            where=str(folder),
            todo="Choose another folder.",
        )
    return ""


def _write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path.parent, error) from error
        write_whole(path, content)
