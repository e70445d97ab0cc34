"""probe and score: answers, and their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.choices import CandidateSet
from consilience.cli.shared import (
    AsJson,
    AsShipped,
    DataDir,
    ProtocolOption,
    Screen,
    SuiteOption,
    TrustOption,
    names_in,
    out,
    print_json,
    rows_of,
    warn,
)
from consilience.files import csv_of, write_whole
from consilience.report.tables import group_table, summary_table
from consilience.types import MultiToken
from consilience.workflow.probe import Counted, ProbeOptions
from consilience.workflow.probe import probe as ask_and_count
from consilience.workflow.probe import score as count


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
    ] = "objects",
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
        MultiToken,
        typer.Option(
            help="Masked models, strict only: leave out candidates of several tokens, or fill "
            "them in from left to right."
        ),
    ] = "exclude",
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
    trust_remote_code: TrustOption = False,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Answers only: screen in bfloat16, settle in float32. Refused where it does not "
            "pay.",
        ),
    ] = False,
    data_dir: DataDir = None,
    as_shipped: AsShipped = False,
    as_json: AsJson = False,
) -> None:
    """Ask a model every fact of a suite in every wording, and count how it answers.

    The run goes to a folder; rerun the same command to resume an
    interrupted run.
    """
    options = ProbeOptions(
        model=model,
        suite=suite,
        groups=names_in(groups) if groups is not None else None,
        limit=limit,
        protocol=protocol,
        candidates=candidates,
        facts=facts,
        vocabulary=",".join(names_in(vocabulary)) if vocabulary is not None else None,
        keep_scores=keep_scores,
        multi_token=multi_token,
        template=template,
        noise_floor=noise_floor,
        seed=seed,
        revision=revision,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        fast=fast,
        as_shipped=as_shipped,
        folder=folder,
        data_dir=data_dir,
    )
    found = ask_and_count(options, Screen())
    _show(found, f"{found.suite.name}, {model}, protocol {found.protocol}", as_json)
    if not as_json:
        out.print(f"Run: {found.record['path']}", soft_wrap=True)


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

    The columns group, item, subject, variant, gold, answer suffice; docs/suites.md has an example.
    """
    found = count(answers, suite, protocol, data_dir)
    if file:
        write_whole(file, csv_of(found.metrics))
    _show(found, f"{found.suite.name}, {answers.name}, protocol {found.protocol}", as_json)


def _show(found: Counted, title: str, as_json: bool) -> None:
    if as_json:
        warnings = [found.left_out, *found.notes] if found.left_out else found.notes
        metrics = rows_of(found.metrics)
        print_json({"run": found.record, "metrics": metrics, "warnings": warnings})
        return
    out.print(group_table(found.metrics, found.suite))
    out.print(summary_table(found.metrics, title, found.left_out))
    warn(found.notes)
