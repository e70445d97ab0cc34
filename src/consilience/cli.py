"""The command line: parse, call, print. Results on standard output, all else on standard error."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from consilience import suites
from consilience.errors import ConsilienceError
from consilience.metrics import measure, remarks
from consilience.models import load_model
from consilience.noise import noise_floor as measure_noise
from consilience.probe import probe as ask_suite
from consilience.report.tables import group_table, statistics_table, summary_table
from consilience.run import (
    RunFolder,
    fingerprint,
    git_revision,
    protocol_of,
    read_answers,
    versions,
    write_whole,
)
from consilience.suites.choose import (
    filter_vocabulary,
    replace_facts,
    sample_facts,
    select_relations,
)
from consilience.suites.fetch import SOURCES, fetch
from consilience.suites.statistics import suite_statistics
from consilience.types import Protocol, Suite

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure whether a language model answers the same however it is asked.",
)
data_app = typer.Typer(no_args_is_help=True, help="Suites: list, fetch, check and count them.")
app.add_typer(data_app, name="data")

INTERRUPTED = 130
"""The exit status that typer gives a command that was stopped from the keyboard."""

out = Console(markup=False)
err = Console(stderr=True, markup=False)


class ProtocolName(StrEnum):
    """How answers are counted."""

    published = "published"
    strict = "strict"


class CandidateSet(StrEnum):
    """What may be answered."""

    objects = "objects"
    vocabulary = "vocabulary"


class MultiTokenRule(StrEnum):
    """What a masked model does with a candidate of several tokens."""

    exclude = "exclude"
    left_to_right = "left-to-right"


SuiteOption = Annotated[
    str, typer.Option("--suite", help="A name (mini, pararel) or a folder.", metavar="S")
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where fetched suites lie (also CONSILIENCE_DATA)."),
]
ProtocolOption = Annotated[
    ProtocolName | None,
    typer.Option(help="published: the papers' rules; strict: the text's definitions."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
AsShipped = Annotated[
    bool, typer.Option("--as-shipped", help="Keep the ParaRel tuples that the paper leaves out.")
]


@app.command()
def probe(
    model: Annotated[
        str,
        typer.Option(
            help="A Hub id, a folder, a GGUF file, packaged:smollm2, or "
            "baseline:majority|random|oracle|constant.",
            metavar="M",
        ),
    ] = "packaged:smollm2",
    suite: SuiteOption = "mini",
    groups: Annotated[
        str | None, typer.Option(help="Only these relations: P36,P19.", metavar="G,G")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="At most so many facts a relation, drawn by --seed.", min=1)
    ] = None,
    protocol: ProtocolOption = None,
    candidates: Annotated[
        CandidateSet, typer.Option(help="The relation's objects, or every word the model has.")
    ] = CandidateSet.objects,
    facts: Annotated[
        str | None, typer.Option(help="Ask about the facts of this suite instead.", metavar="S")
    ] = None,
    vocabulary: Annotated[
        str | None,
        typer.Option(help="Keep objects that are one token for all of these.", metavar="M,M"),
    ] = None,
    keep_scores: Annotated[
        bool, typer.Option("--keep-scores", help="Score and keep every candidate of every query.")
    ] = False,
    multi_token: Annotated[
        MultiTokenRule,
        typer.Option(
            help="Masked models, strict only: leave out candidates of several tokens, or fill "
            "them in from left to right."
        ),
    ] = MultiTokenRule.exclude,
    template: Annotated[
        str | None,
        typer.Option(
            help="Sequence-to-sequence models: a text with {sentence}, instead of a sentinel.",
            metavar="TEXT",
        ),
    ] = None,
    noise_floor: Annotated[
        bool,
        typer.Option("--noise-floor", help="Ask a sample again in other batches, orders, ..."),
    ] = False,
    folder: Annotated[Path | None, typer.Option("--out", help="The run's folder.")] = None,
    seed: Annotated[int, typer.Option(help="For --limit and baseline:random.")] = 0,
    revision: Annotated[str | None, typer.Option(help="Of a model on the Hub.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    data_dir: DataDir = None,
    as_shipped: AsShipped = False,
    as_json: AsJson = False,
) -> None:
    """Ask a model every fact of a suite in every wording, and count how it answers.

    The run goes to a folder; the same command goes on with a run that was stopped.
    """
    whole_vocabulary = candidates is CandidateSet.vocabulary
    if keep_scores and whole_vocabulary:
        raise ConsilienceError(
            "--keep-scores with the whole vocabulary",
            expected="--candidates objects: a vocabulary's scores of a suite fill a disk",
        )
    chosen = suites.load_suite(suite, data_dir, as_shipped=as_shipped)
    if groups is not None:
        chosen = select_relations(chosen, _names(groups))
    if facts is not None:
        source = suites.load_suite(facts, data_dir)
        chosen = replace_facts(chosen, source, as_shipped=as_shipped)
    if vocabulary is not None:
        chosen = _one_token(chosen, _names(vocabulary))
    if limit:
        chosen = sample_facts(chosen, limit, seed)
    rules: Protocol = protocol.value if protocol else chosen.protocol
    load = partial(
        load_model,
        model,
        protocol=rules,
        revision=revision,
        device=device,
        seed=seed,
        multi_token=multi_token.value,
        template=template,
    )
    with _quiet_libraries():
        asked_model = load(dtype=dtype)
    asked: dict[str, object] = {
        "suite": chosen.name,
        "suite_digest": chosen.digest,
        "groups": [relation.id for relation in chosen.relations],
        "facts": facts,
        "vocabulary": vocabulary,
        "as_shipped": as_shipped,
        "limit": limit,
        "seed": seed,
        "protocol": rules,
        "candidates": candidates.value,
        "keep_scores": keep_scores,
        "model": asked_model.identity,
    }
    run = RunFolder(folder or _default_folder(chosen.name, model, asked), asked)
    if keep_scores:
        words = {relation.id: relation.candidates.words for relation in chosen.relations}
        run.describe("words", words)
    size = sum(len(each.facts) * len(each.patterns) for each in chosen.relations)
    with _progress("asking", size) as advance:
        answers = ask_suite(
            chosen,
            asked_model,
            run,
            whole_vocabulary=whole_vocabulary,
            keep_scores=keep_scores,
            progress=advance,
        )
    metrics = measure(answers, chosen, rules)
    run.note(remarks(answers, metrics, chosen, rules))
    if noise_floor:
        is_exact = asked_model.identity.get("dtype") == "float32"
        half = partial(load, dtype="bfloat16") if is_exact else None
        with _quiet_libraries(), _progress("noise floor", None) as advance:
            flips = measure_noise(
                chosen,
                asked_model,
                whole_vocabulary=whole_vocabulary,
                in_half_precision=half,
                seed=seed,
                progress=advance,
            )
        metrics = metrics.vstack(flips)
    run.finish(metrics)
    warnings = run.record["warnings"]
    title = f"{chosen.name}, {model}, protocol {rules}"
    _show(metrics, chosen, title, warnings, {**run.record, "path": str(run.path)}, as_json)
    if not as_json:
        out.print(f"Run: {run.path}", soft_wrap=True)


@app.command()
def score(
    answers: Annotated[
        Path, typer.Argument(help="A table (.parquet, .csv, .csv.gz) or the folder of a run.")
    ],
    suite: SuiteOption,
    protocol: ProtocolOption = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="Write the metrics table here, as CSV.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Count answers that were given elsewhere. No model is needed.

    The columns group, item, subject, variant, gold, answer suffice; rows in order of appearance.
    """
    chosen = suites.load_suite(suite, data_dir)
    table = read_answers(answers)
    asked_under = protocol_of(answers)
    rules: Protocol = protocol.value if protocol else asked_under or chosen.protocol
    metrics = measure(table, chosen, rules)
    if file:
        write_whole(file, metrics.write_csv().encode())
    warnings = remarks(table, metrics, chosen, rules)
    if asked_under and asked_under != rules:
        warnings.append(
            f"the run was asked under {asked_under}, which decided the token of each candidate; "
            f"for {rules} throughout, probe with --protocol {rules}"
        )
    asked = {"answers": str(answers), "suite": chosen.name, "protocol": rules}
    record = {"asked": asked, "versions": versions(), "git": git_revision()}
    title = f"{chosen.name}, {answers.name}, protocol {rules}"
    _show(metrics, chosen, title, warnings, record, as_json)


@data_app.command("list")
def list_suites(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """The suites that have a name, and where they lie."""
    data = suites.data_dir(data_dir)
    rows = []
    for name, what in suites.NAMES.items():
        try:
            folder: str | None = str(suites.suite_folder(name, data))
        except ConsilienceError:
            folder = None
        rows.append({"suite": name, "about": what, "folder": folder})
    if as_json:
        print(json.dumps({"suites": rows}))
        return
    for row in rows:
        where = row["folder"] or f"not in {data}"
        print(f"{row['suite']:10} {row['about']}\n{'':10} {where}")


@data_app.command("fetch")
def fetch_suite(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(SOURCES)}.")],
    data_dir: DataDir = None,
    source: Annotated[
        str | None, typer.Option("--from", help="Another place with the same files.", metavar="URL")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Get a suite from its authors: pinned, checked file by file, resumed where it stopped."""
    with _progress(f"fetching {name}", None, "files") as advance:
        seen = 0

        def progress(done: int, total: int) -> None:
            nonlocal seen
            advance(done - seen, total)
            seen = done

        folder, fetched = fetch(name, suites.data_dir(data_dir), base=source, progress=progress)
    if as_json:
        print(json.dumps({"suite": name, "folder": str(folder), "fetched": fetched}))
    else:
        print(f"{folder}: complete, {fetched} files fetched")


@data_app.command("check")
def check(
    suite: Annotated[str, typer.Argument(help="A name or a folder.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read a suite and list everything that is wrong with it, by file and line."""
    problems = [str(problem) for problem in suites.check_suite(suite, data_dir)]
    if as_json:
        print(json.dumps({"suite": suite, "problems": problems}, ensure_ascii=False))
    for problem in problems:
        err.print(problem, soft_wrap=True, highlight=False, markup=False)
    if problems:
        err.print(f"{len(problems)} problems in '{suite}'")
        raise typer.Exit(2)
    if not as_json:
        counted = suite_statistics(suites.load_suite(suite, data_dir))
        print(
            f"{suite}: good; {counted.relations} relations, {counted.patterns} patterns, "
            f"{counted.facts} facts"
        )


@data_app.command("stats")
def stats(
    suite: Annotated[str, typer.Argument(help="A name or a folder.")],
    data_dir: DataDir = None,
    as_shipped: AsShipped = False,
    as_json: AsJson = False,
) -> None:
    """Count what a suite holds: the paper's Table 1 and the size of each relation."""
    chosen = suites.load_suite(suite, data_dir, as_shipped=as_shipped)
    statistics = suite_statistics(chosen)
    if as_json:
        print(json.dumps(_without_nan({"suite": chosen.name, **asdict(statistics)})))
        return
    for table in statistics_table(statistics, chosen.name):
        out.print(table)
    _warn(list(chosen.notes))


def main() -> None:
    """Run the command line: 0 done, 2 bad input or usage with one message, 1 a bug of ours."""
    try:
        app()
    except ConsilienceError as error:
        err.print(f"error: {error}", soft_wrap=True, highlight=False, markup=False)
        sys.exit(2)
    except OSError as error:
        err.print(f"error: {error.filename or 'input'}: {error.strerror or error}", soft_wrap=True)
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            err.print("stopped; what is written is whole, and the same command goes on with it")
        raise


def _without_nan(value: Any) -> Any:
    """The same with None for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _names(listed: str) -> list[str]:
    """The names of a list with commas."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise ConsilienceError(f"no name in '{listed}'", expected="names with commas between")
    return names


def _one_token(suite: Suite, names: list[str]) -> Suite:
    from consilience.models.loading import load_tokenizer
    from consilience.models.words import count_pieces

    with _quiet_libraries():
        pieces = {name: partial(count_pieces, load_tokenizer(name)) for name in names}
        return filter_vocabulary(suite, pieces)


def _default_folder(suite: str, model: str, asked: Mapping[str, object]) -> Path:
    name = model.removesuffix("/").split("/")[-1].removesuffix(".gguf")
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{suite}-{name}")
    return Path("runs") / f"{words}-{fingerprint(asked)[:8]}"


def _show(
    metrics: pl.DataFrame,
    suite: Suite,
    title: str,
    warnings: list[str],
    record: dict[str, Any],
    as_json: bool,
) -> None:
    if as_json:
        rows = metrics.with_columns(pl.col(pl.Float64).fill_nan(None)).to_dicts()
        document = {"run": record, "metrics": rows, "warnings": warnings}
        print(json.dumps(document, ensure_ascii=False))
        return
    out.print(group_table(metrics, suite))
    out.print(summary_table(metrics, title))
    _warn(warnings)


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        err.print(f"note: {warning}", soft_wrap=True, highlight=False, markup=False)


class _Rate(ProgressColumn):
    """How many steps a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


class _Advance:
    """Advances one progress bar; knows or learns its total."""

    def __init__(self, progress: Progress, text: str, total: int | None) -> None:
        self.progress = progress
        self.task = progress.add_task(text, total=total)

    def __call__(self, steps: int, total: int | None = None) -> None:
        if total is not None:
            self.progress.update(self.task, total=total)
        self.progress.advance(self.task, steps)


@contextmanager
def _progress(text: str, total: int | None, unit: str = "queries") -> Iterator[_Advance]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as progress:
        yield _Advance(progress, text, total)


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Keep the bars and advice of the model libraries out of the output."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        from transformers.utils import logging
    except ImportError:
        yield
        return
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    yield


if __name__ == "__main__":
    main()
