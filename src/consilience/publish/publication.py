"""Publishing runs: what is private, the files, the Hub."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal
from urllib.parse import urlsplit

import polars as pl
from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from consilience.core.errors import SILENT, ConsilienceError, Watch
from consilience.core.text import control_in, counted, listed
from consilience.files.read import parse_json, read_text
from consilience.files.write import make_folder, write_whole
from consilience.kinds import kind_of_run, suite_notes, suite_of
from consilience.kinds.counting import count_run
from consilience.options import Output, option_fields
from consilience.options.probe import ProbeOptions
from consilience.options.runs import PublishOptions
from consilience.publish import formats
from consilience.publish.formats import CARD, Files, PublicRun
from consilience.report.export import Lines, Shown, escape_markdown, record_of
from consilience.report.table import Column, Table, Value
from consilience.runs.folder import fingerprint
from consilience.runs.run import Run
from consilience.suites.facts import select_relations
from consilience.types import Suite

LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write to it."


@dataclass(frozen=True, slots=True)
class Push:
    """What would be sent to a repository."""

    repository: str
    type: Literal["model", "dataset"]
    visibility: str  # Who sees it: ``public``, ``private``, ``new, private`` or ``new, public``
    as_pull_request: bool
    files: Files
    replaced: frozenset[str]

    @property
    def url(self) -> str:
        prefix = constants.REPO_TYPES_URL_PREFIXES.get(self.type, "")
        return f"{constants.ENDPOINT}/{prefix}{self.repository}"

    @property
    def size(self) -> int:
        return sum(map(len, self.files.values()))

    def table(self) -> Table:
        """A row for each file, and below them where they go."""
        rows: list[list[Value]] = [
            [name, len(content), "replaced" if name in self.replaced else "new"]
            for name, content in self.files.items()
        ]
        way = "as a pull request" if self.as_pull_request else "as a commit to main"
        notes = [f"To: {self.url} ({self.type}, {self.visibility}), {way}"]
        title = f"To be sent: {counted(len(self.files), 'file')}, {self.size:,} bytes"
        columns = [Column("file"), Column("bytes", "count"), Column("in the repository")]
        return Table(title, columns, rows, notes, sortable=False)


def plan_push(options: PublishOptions, files: Files) -> Push:
    """What sending files would do; the repository is only read. A missing model raises."""
    repository = str(options.push)
    type_: Literal["model", "dataset"] = "dataset" if options.format in OF_ANSWERS else "model"
    if constants.HF_HUB_OFFLINE:
        todo = "The files are written. Unset it, and run it again."
        raise ConsilienceError("HF_HUB_OFFLINE is set, so nothing can be sent", todo=todo)
    if get_token() is None:
        raise ConsilienceError("no token of the Hub", where=constants.ENDPOINT, todo=LOG_IN)
    visibility, names = f"new, {'public' if options.public else 'private'}", list[str]()
    with _errors_of(repository):
        try:
            info = HfApi().repo_info(repository, repo_type=type_)
        except RepositoryNotFoundError as error:
            if type_ == "model" or options.create_pr:
                found = f"no {type_} repository '{repository}' that you may read"
                todo = f"Check the name; if it is private: {LOG_IN}"
                raise ConsilienceError(found, where=constants.ENDPOINT, todo=todo) from error
        else:
            visibility = "private" if info.private else "public"
            names = [file.rfilename for file in getattr(info, "siblings", None) or []]
    replaced = frozenset(names) & files.keys()
    return Push(repository, type_, visibility, options.create_pr, files, replaced)


def send(push: Push, message: str) -> str:
    """Send the files in one commit; the address of the commit or of the pull request."""
    api = HfApi()
    with _errors_of(push.repository):
        if push.visibility.startswith("new"):
            private = push.visibility == "new, private"
            api.create_repo(push.repository, repo_type=push.type, private=private)
        sent = api.create_commit(
            push.repository,
            [CommitOperationAdd(name, content) for name, content in push.files.items()],
            commit_message=message,
            repo_type=push.type,
            create_pr=push.as_pull_request,
        )
    return sent.pr_url or sent.commit_url


@contextmanager
def _errors_of(repository: str) -> Iterator[None]:
    where = f"{constants.ENDPOINT}, {repository}"
    try:
        yield
    except ConsilienceError:
        raise
    except ValueError as error:  # the Hub's checks of a name and of the metadata of a card
        found = " ".join(str(error).split()).rstrip(".")
        expected = "ORGANISATION/NAME, and a card with a licence that the Hub knows"
        raise ConsilienceError(found, expected=expected, where=where) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        reason = f": {error.server_message}" if error.server_message else ""
        todo = REFUSED.get(status, "Give the command again later.")
        raise ConsilienceError(f"the Hub says {status}{reason}", where=where, todo=todo) from error
    except Exception as error:
        is_of_network = type(error).__module__.startswith(("httpx", "hf_xet", "huggingface_hub"))
        if not is_of_network and not isinstance(error, RuntimeError):  # of a large file
            raise
        raise ConsilienceError(
            f"the Hub cannot be reached: {str(error).rstrip('.') or type(error).__name__}",
            where=where,
            todo="The files are written. Check the network and HF_ENDPOINT, and run it again.",
        ) from error


REFUSED = {
    401: LOG_IN,
    403: "Use a token with the right to write to it, or add --create-pr to propose the files.",
    404: f"Check the name; if it is private: {LOG_IN}",
    429: "Wait some minutes and give the command again.",
}

SECRET_ENDINGS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
SHORTEST = 12

TEXTS = (".md", ".json", ".yaml")  # Files of our words; others hold those of a suite and of a model


def refuse_private(files: Files, runs: Sequence[Run]) -> None:
    """Raise where a file has a key of this machine, or a text of ours a folder or an address."""
    secrets = {
        value: f"the value of {name}"
        for name, value in os.environ.items()
        if name.upper().endswith(SECRET_ENDINGS) and len(value) >= SHORTEST
    }
    if token := get_token():
        secrets[token] = "your token of the Hub"
    places = {str(Path.home()) + os.sep: "the path of your home folder"}
    places.pop(os.sep * 2, None)
    for run in runs:
        source = run.record.get("suite_source", {})
        server = str(run.settings.get("model", {}).get("server") or "")
        places |= {
            str(run.path.resolve()): "the path of the run",
            str(source.get("folder") or source.get("file") or ""): "the path of the suite",
            urlsplit(server).netloc: "the address of the server",
        }
    places.pop("", None)
    for name, content in files.items():
        is_packed = name.endswith(".parquet")
        plain = pl.read_parquet(content).write_ndjson().encode() if is_packed else content
        known = secrets | places if name.endswith(TEXTS) else secrets
        for text, meaning in known.items():
            if text.encode() in plain or escape_markdown(text).encode() in plain:
                raise ConsilienceError(
                    f"it would publish {meaning}",
                    where=name,
                    todo="Nothing was written. Rename the suite, the model or the option that "
                    "holds it, and run again.",
                )


MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

HIDDEN = (
    "model", "suite", "out", "data_dir", "base_url", "api_key_env", "max_requests",
    "max_tokens", "price", "concurrency", "timeout", "tokenizer", "device",
)  # fmt: skip
"""Options of a run that its published command does not repeat: places, addresses and limits."""


def public_run(run: Run, options: PublishOptions) -> PublicRun:
    """All that may be published of a run; one that is not complete raises."""
    for part in run.seeds:
        if not part.record.get("finished"):
            todo = "Rerun its command, which resumes it."
            raise ConsilienceError("the run is not complete", where=str(part.path), todo=todo)
    model, facts_of_model = public_model(run, options.model_id)
    suite, protocol = suite_of(run, None, None, options.data_dir)
    changes = suite_notes(replace(run, label=model), suite)
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
        metrics=counted.metrics,
        notes=counted.notes,
        changes=changes,
        answers=pl.concat(tables, how="diagonal"),
        prompts=kind_of_run(run).sent(run, suite) if public.may_be_shared else None,
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
    """The suite of a run with its licence: the one that is given, or that the suite states."""
    settings, kind = run.settings, kind_of_run(run)
    name = str(settings.get("task", {}).get("name") or settings["suite"])
    folder, about = kind.folder_of(run), {}
    if folder is not None and (file := folder / "suite.json").is_file():
        read = parse_json(read_text(file))
        about = read if isinstance(read, dict) else {}
    about.setdefault("licence", run.record.get("suite_source", {}).get("licence"))
    stated = str(about["licence"] or about.get("license") or "") if licence is None else licence
    url = str(about.get("url", ""))
    if control_in(stated):
        raise ConsilienceError(f"the licence {stated!r}", expected="an SPDX id, such as CC-BY-4.0")
    dataset, config, split = kind.on_the_hub(run)
    return formats.PublicSuite(
        PurePosixPath(name).name if not dataset else name, f"{kind.words.item}s",
        str(settings.get("pairs") or settings["suite_digest"]), suite, stated,
        url if url.startswith(("https://", "http://")) else "", dataset, config, split,
    )  # fmt: skip


def public_command(options: Mapping[str, Any] | None, model: str, suite: str) -> str:
    """The command of a run under public names, without folders; empty without recorded options."""
    if options is None:
        return ""
    words = ["consilience", "probe", "--model", model, "--suite", suite]
    for option in option_fields(ProbeOptions):
        value = options.get(option.name)
        if option.name in HIDDEN or value is None or value is False:
            continue
        if value is True:
            words.append(option.flag)
            continue
        values = value if isinstance(value, list) else [value]
        texts = values if option.name == "system" else [*map(_public_text, values)]
        for text in texts if option.is_repeated else [",".join(texts)]:
            words += [option.flag, text]
    return shlex.join(words)


def _public_text(value: object) -> str:
    if not isinstance(value, str):
        return f"{value:g}" if isinstance(value, float) else json.dumps(value)
    way, colon, rest = value.partition(":")
    if colon and way in ("nli", "embedding", "first", "second"):
        return f"{way}:{_public_text(rest)}"
    is_windows = bool(re.match(r"[A-Za-z]:[\\/]|\\\\", value))
    path = PureWindowsPath(value) if is_windows else PurePosixPath(value)
    is_place = is_windows or value.startswith(("/", "./", "../", "~"))
    is_place = is_place or os.path.exists(value)  # noqa: PTH110 (no error of a long text)
    is_file = path.suffix[1:2].isalpha() and " " not in value  # 2.5-0.5B ends no file
    return path.name if is_place or is_file else value


OF_ANSWERS = ("eee", "dataset")  # Formats that belong to data sets, others to models


@dataclass(frozen=True, slots=True, repr=False)
class Publication(Shown):
    """What ``publish`` wrote and sent."""

    runs: Sequence[PublicRun]
    folder: Path
    files: Files
    notes: Sequence[str]
    push: Push | None = None  # What would be sent; None without ``--push``
    address: str = ""  # The address of the commit or the pull request; empty where nothing was sent
    record: Mapping[str, Any] = field(default_factory=dict)
    is_agreed: bool = False  # Whether the files are sent without asking

    @property
    def paths(self) -> list[Path]:
        return [self.folder / name for name in self.files]

    def printed(self, output: Output) -> Iterator[Table | str]:
        if self.push is None or not self.address:
            yield from map(str, self.paths)
        if self.push:
            yield f"Sent: {self.address}" if self.address else self.push.table()

    def document(self) -> dict[str, Any]:
        push = self.push and {
            "repository": self.push.repository, "type": self.push.type,
            "visibility": self.push.visibility, "bytes": self.push.size,
            "replaced": sorted(self.push.replaced), "sent": self.address or None,
        }  # fmt: skip
        files = [str(path) for path in self.paths]
        return {"run": self.record, "files": files, "push": push, "warnings": [*self.notes]}

    def remarks(self, output: Output) -> Sequence[str]:
        return () if self.address else self.notes

    def then(self, output: Output) -> Shown | None:
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

    With ``push`` alone the upload is planned; ``send_publication`` makes it.
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
    for name, content in _with_card(_existing_card(folder, options), files, runs).items():
        path = folder / name
        make_folder(path.parent)
        write_whole(path, content)
    record = record_of(run=str(options.run), format=options.format)
    made = Publication(runs, folder, files, notes, record=record)
    if options.push is None:
        return made
    planned = plan_push(options, files)
    if options.format == "model-card" and CARD in planned.replaced:
        with _errors_of(planned.repository):
            card = HfApi().hf_hub_download(planned.repository, CARD, repo_type=planned.type)
        planned = replace(planned, files=_with_card(read_text(Path(card)), files, runs))
    made = replace(made, push=planned)
    return send_publication(made) if options.yes else made


def _agrees(push: Push, *, can_ask: bool) -> bool:
    """Whether the user wants the files sent; raises where there is nobody to ask."""
    if can_ask and sys.stdin.isatty():
        if hasattr(signal, "siginterrupt"):
            signal.siginterrupt(signal.SIGINT, True)  # polars has reads go on after Ctrl-C
        print("Send them? [y/N]: ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    todo = "Add --yes to send these files."
    raise ConsilienceError("nothing was sent: there is nobody to ask", where=push.url, todo=todo)


def send_publication(made: Publication) -> Publication:
    """Upload what was planned; with its address."""
    if made.push is None:
        raise ConsilienceError("no repository", expected="push='ORG/NAME'")
    suites = ", ".join(dict.fromkeys(run.suite.name for run in made.runs))
    return replace(made, address=send(made.push, f"Add results of consilience on {suites}"))


def _check(options: PublishOptions) -> None:
    if options.format == "eval-results" and options.benchmark is None:
        todo = "Name the data set of the leaderboard: --benchmark ORG/NAME (docs/publishing.md)."
        raise ConsilienceError("no --benchmark", todo=todo)
    for flag, value, formats_ in (
        ("--benchmark", options.benchmark, ("eval-results",)),
        ("--organization", options.organization, ("eee",)),
        ("--public", options.public, OF_ANSWERS),
    ):
        if value and options.format not in formats_:
            fault, todo = f"{flag} with --format {options.format}", f"Leave {flag} out."
            raise ConsilienceError(fault, expected=f"--format {' or '.join(formats_)}", todo=todo)
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
        todo = "`consilience score FILE --out RUN` makes one of a table."
        raise ConsilienceError("no run", expected="the folder of a run", where=str(path), todo=todo)
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
    models, is_one = len({run.model for run in runs}), options.format == "dataset"
    if models > 1 or (is_one and len(runs) > 1):
        fault = f"{len(runs)} runs of {counted(models, 'model')}"
        expected = "one run" if is_one else "runs of one model"
        raise _several(options, fault, f"{expected} for --format {options.format}")
    names = [f"{run.suite.slug} under {run.protocol}" for run in runs]
    if twice := [name for name in names if names.count(name) > 1]:
        expected = "one, because each suite and protocol has one place in the files"
        raise _several(options, f"several runs of {twice[0]}", expected)


def _several(options: PublishOptions, fault: str, expected: str) -> ConsilienceError:
    todo = "Name the folder of one of them."
    return ConsilienceError(fault, expected=expected, where=str(options.run), todo=todo)


def _files_of(options: PublishOptions, runs: Sequence[PublicRun]) -> Files:
    if options.format == "model-card":
        return {CARD: formats.with_results("", runs).encode()}
    files: dict[str, bytes] = {}
    for run in runs:
        if options.format == "eee":
            files |= formats.eee_files(run, options.organization)
        elif options.format == "dataset":
            files |= formats.dataset_files(run)
        else:
            files |= formats.eval_results_files(run, str(options.benchmark))
    return files


def _with_card(card: str, files: Files, runs: Sequence[PublicRun]) -> Files:
    return {CARD: formats.with_results(card, runs).encode()} if card else files


def _left_out(run: PublicRun) -> list[str]:
    suite, reason = run.suite, "the run does not keep them"
    if not suite.may_be_shared:
        stated = f"its licence is '{suite.licence}'" if suite.licence else "no licence is stated"
        reason = f"{stated}; if you may share them, name the licence: --licence SPDX-ID"
    is_whole = suite.may_be_shared and run.prompts is not None
    return [] if is_whole else [f"the texts of {suite.name} are left out: {reason}"]


def _existing_card(folder: Path, options: PublishOptions) -> str:
    """The text of a model card in a folder; a data card that consilience did not write raises."""
    card = folder / CARD
    if options.format not in ("model-card", "dataset") or not card.exists():
        return ""
    text = read_text(card)
    if options.format == "dataset" and formats.MARK not in text:
        found = "a README.md that consilience did not write"
        raise ConsilienceError(found, where=str(folder), todo="Choose another folder.")
    return text if options.format == "model-card" else ""
