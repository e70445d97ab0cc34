"""Runs made public: their numbers and answers as files, and as an upload to the Hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.files import cannot_write
from consilience.publishing import hub
from consilience.publishing.eval_results import eval_results_files
from consilience.publishing.every_eval_ever import VERSION, check_records, eee_files
from consilience.publishing.model_card import CARD, with_results
from consilience.publishing.public_run import PublicFile, PublicRun, written
from consilience.publishing.published_dataset import MARK, dataset_files
from consilience.read import read_text
from consilience.run import Run
from consilience.text import counted, listed
from consilience.watch import SILENT, Watch
from consilience.workflow.private import refuse_private
from consilience.workflow.public_runs import public_run
from consilience.workflow.publish_options import PublishOptions

REPOSITORIES: Mapping[str, hub.RepositoryType] = {
    "eee": "dataset", "dataset": "dataset", "model-card": "model", "eval-results": "model",
}  # fmt: skip
"""The type of the repository that each format belongs to."""


@dataclass(frozen=True, slots=True, repr=False)
class Publication:
    """What ``publish`` wrote and sent."""

    runs: Sequence[PublicRun]
    """The runs, as they were published."""
    folder: Path
    """The folder of the files."""
    files: Sequence[PublicFile]
    """The files."""
    notes: Sequence[str]
    """What was left out, and what was not checked."""
    push: hub.Push | None = None
    """What would be sent; None without ``--push``."""
    address: str = ""
    """The address of the commit or the pull request; empty where nothing was sent."""

    @property
    def paths(self) -> list[Path]:
        """The files in the folder."""
        return [self.folder / file.name for file in self.files]

    def __repr__(self) -> str:
        names = listed([file.name for file in self.files], 2)
        return f"Publication({str(self.folder)!r}: {names}; sent: {self.address or 'no'})"


def publish(options: PublishOptions, watch: Watch = SILENT) -> Publication:
    """Write the files of a format and, with ``push`` and ``yes``, upload them.

    With ``push`` alone the upload is planned and not made: ``send_publication`` makes it.
    """
    _check(options)
    opened = runs_in(options.run)
    runs, notes = _runs_of(options, opened, watch)
    if options.format_ != "eee":
        _refuse_several(options, runs)
    watch.say(f"writing {options.format_} of {counted(len(runs), 'run')}")
    files, more = _files_of(options, runs)
    refuse_private(files, opened)
    folder = options.folder or options.run / "published" / options.format_
    written(folder, _with_existing(options, runs, files, folder))
    made = Publication(runs, folder, files, [*notes, *more])
    if options.push is None:
        return made
    planned = replace(made, push=_planned(options, options.push, runs, files))
    return send_publication(planned) if options.yes else planned


def send_publication(made: Publication) -> Publication:
    """Upload what was planned; with its address."""
    if made.push is None:
        raise ConsilienceError("no repository", expected="push='ORG/NAME'")
    suites = ", ".join(dict.fromkeys(run.suite.name for run in made.runs))
    return replace(made, address=hub.send(made.push, f"Add results of consilience on {suites}"))


def _check(options: PublishOptions) -> None:
    """Refuse options that do not fit the format."""
    if options.format_ == "eval-results" and options.benchmark is None:
        raise ConsilienceError(
            "no --benchmark",
            expected="the data set on the Hub whose leaderboard takes the results",
            todo="Name it, such as --benchmark ORG/NAME; docs/publishing.md says what it needs.",
        )
    for flag, value, format_ in (
        ("--benchmark", options.benchmark, "eval-results"),
        ("--organization", options.organization, "eee"),
    ):
        if value and options.format_ != format_:
            raise ConsilienceError(
                f"{flag} with --format {options.format_}",
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
        raise ConsilienceError(
            f"--model-id with runs of {len(models)} models: {listed(sorted(models))}",
            expected="runs of one model",
            where=str(options.run),
            todo="Name the folder of one of them.",
        )
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
    models = list(dict.fromkeys(run.model.id for run in runs))
    if len(models) > 1 or (options.format_ == "dataset" and len(runs) > 1):
        expected = "one run" if options.format_ == "dataset" else "runs of one model"
        raise ConsilienceError(
            f"{len(runs)} runs of {counted(len(models), 'model')}",
            expected=f"{expected} for --format {options.format_}",
            where=str(options.run),
            todo="Name the folder of one of them.",
        )
    names = [f"{run.suite.name} under {run.protocol}" for run in runs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConsilienceError(
            f"several runs of {twice[0]}",
            expected="one, because each suite and protocol has one place in the files",
            where=str(options.run),
            todo="Name the folder of one of them.",
        )


def _files_of(
    options: PublishOptions, runs: Sequence[PublicRun]
) -> tuple[list[PublicFile], list[str]]:
    """The files of a format, and notes on them."""
    notes = []
    if options.format_ in ("eee", "dataset"):
        notes = list(dict.fromkeys(note for run in runs for note in _left_out(run)))
    if options.format_ == "eee":
        made = (file for run in runs for file in eee_files(run, options.organization))
        files = list({file.name: file for file in made}.values())  # a copied run is one
        if not check_records(files):
            notes.append(
                f"not checked against the schema {VERSION}, because jsonschema is missing; to "
                "check: pip install jsonschema, and give the command again"
            )
        return files, notes
    if options.format_ == "eval-results":
        return eval_results_files(runs, str(options.benchmark)), notes
    if options.format_ == "dataset":
        return dataset_files(runs[0]), notes
    return [PublicFile(CARD, with_results("", runs).encode())], notes


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


def _with_existing(
    options: PublishOptions, runs: Sequence[PublicRun], files: list[PublicFile], folder: Path
) -> list[PublicFile]:
    """The files for a folder: an existing model card is kept, a foreign data card raises."""
    card = folder / CARD
    if options.format_ not in ("model-card", "dataset") or not card.exists():
        return files
    try:
        text = read_text(card)
    except OSError as error:
        raise cannot_write(card, error) from error
    if options.format_ == "model-card":
        return [PublicFile(CARD, with_results(text, runs).encode())]
    if MARK not in text:
        raise ConsilienceError(
            "a README.md that consilience did not write",
            where=str(folder),
            todo="Choose another folder.",
        )
    return files


def _planned(
    options: PublishOptions, repository: str, runs: Sequence[PublicRun], files: list[PublicFile]
) -> hub.Push:
    """What the upload would do; a model card that is there is changed, not replaced."""
    type_ = REPOSITORIES[options.format_]
    planned = hub.plan_push(
        repository,
        type_,
        files,
        as_pull_request=options.create_pr,
        is_public=options.public,
    )
    if options.format_ != "model-card" or CARD not in planned.replaced:
        return planned
    text = hub.existing_text(repository, type_, CARD)
    return replace(planned, files=[PublicFile(CARD, with_results(text, runs).encode())])
