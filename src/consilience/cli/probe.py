"""probe and score: answers, and their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from consilience import suites
from consilience.choices import CandidateSet
from consilience.cli.shared import (
    AsJson,
    AsShipped,
    DataDir,
    ProtocolOption,
    SuiteOption,
    TrustOption,
    names_in,
    out,
    print_json,
    progress_bar,
    quiet_libraries,
    rows_of,
    warn,
)
from consilience.errors import ConsilienceError
from consilience.files import csv_of, write_whole
from consilience.metrics import facts_left_out, measure, remarks
from consilience.metrics.table import check_golds, prepare, unknown_answers
from consilience.models import load_model
from consilience.noise import noise_floor as measure_noise
from consilience.probe import probe as ask_suite
from consilience.probe import screening_note
from consilience.provenance import git_revision, versions
from consilience.report.tables import group_table, summary_table
from consilience.run import (
    Run,
    RunFolder,
    fingerprint,
)
from consilience.suites.choose import (
    filter_vocabulary,
    replace_facts,
    sample_facts,
    select_relations,
)
from consilience.types import MultiToken, Protocol, Suite
from consilience.workflow.suite import protocol_notes, refuse_pairs, source_of


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

    The run goes to a folder; the same command goes on with a run that was stopped.
    """
    whole_vocabulary = candidates == "vocabulary"
    if keep_scores and whole_vocabulary:
        raise ConsilienceError(
            "--keep-scores with the whole vocabulary",
            expected="--candidates objects: a vocabulary's scores of a suite fill a disk",
        )
    if keep_scores and fast:
        raise ConsilienceError(
            "--fast with --keep-scores", expected="one of the two: --fast gives answers only"
        )
    chosen = suites.load_suite(suite, data_dir, as_shipped=as_shipped)
    whole = source_of(chosen, suite, data_dir)
    if groups is not None:
        chosen = select_relations(chosen, names_in(groups))
    if facts is not None:
        source = suites.load_suite(facts, data_dir)
        chosen = replace_facts(chosen, source, as_shipped=as_shipped)
    if vocabulary is not None:
        chosen = _one_token(chosen, names_in(vocabulary), trust_remote_code)
    if limit:
        chosen = sample_facts(chosen, limit, seed)
    rules: Protocol = protocol or chosen.protocol
    load = partial(
        load_model,
        model,
        protocol=rules,
        revision=revision,
        device=device,
        seed=seed,
        multi_token=multi_token,
        template=template,
        trust_remote_code=trust_remote_code,
        fast=fast,
    )
    with quiet_libraries(model):
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
        "candidates": candidates,
        "keep_scores": keep_scores,
        "model": asked_model.identity,
        **({"fast": True} if fast else {}),
    }
    run = RunFolder(folder or _default_folder(chosen.name, model, asked), asked)
    run.describe("suite_source", whole)
    if keep_scores:
        words = {relation.id: relation.candidates.words for relation in chosen.relations}
        run.describe("words", words)
    size = sum(len(each.facts) * len(each.patterns) for each in chosen.relations)
    with progress_bar("asking", size) as advance:
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
    if fast:
        run.note([screening_note(run.record)])
    if noise_floor:
        is_exact = asked_model.identity.get("dtype") == "float32"
        half = partial(load, dtype="bfloat16", fast=False) if is_exact else None
        with quiet_libraries(), progress_bar("noise floor", None) as advance:
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
    left_out = facts_left_out(answers, metrics, chosen, rules)
    record = {**run.record, "path": str(run.path)}
    _show(metrics, chosen, title, left_out, warnings, record, as_json)
    if not as_json:
        out.print(f"Run: {run.path}", soft_wrap=True)


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
    run = Run.open(answers)
    refuse_pairs(run)
    chosen = suites.load_suite(suite, data_dir)
    table = run.answers
    spelled: list[str] = []
    if not answers.is_dir():  # a run's own answers are what it was asked
        prepared = prepare(table, chosen)
        check_golds(prepared, chosen)
        spelled = unknown_answers(prepared, chosen)
    rules: Protocol = protocol or run.protocol or chosen.protocol
    metrics = measure(table, chosen, rules)
    if file:
        write_whole(file, csv_of(metrics))
    warnings = spelled + remarks(table, metrics, chosen, rules) + protocol_notes(run, rules)
    asked = {"answers": str(answers), "suite": chosen.name, "protocol": rules}
    record = {"asked": asked, "versions": versions(), "git": git_revision()}
    title = f"{chosen.name}, {answers.name}, protocol {rules}"
    left_out = facts_left_out(table, metrics, chosen, rules)
    _show(metrics, chosen, title, left_out, warnings, record, as_json)


def _one_token(suite: Suite, names: list[str], trust_remote_code: bool) -> Suite:
    from consilience.models.candidates import count_pieces
    from consilience.models.loading import load_tokenizer

    with quiet_libraries():
        load = partial(load_tokenizer, trust_remote_code=trust_remote_code)
        pieces = {name: partial(count_pieces, load(name)) for name in names}
        return filter_vocabulary(suite, pieces)


def _default_folder(suite: str, model: str, asked: Mapping[str, object]) -> Path:
    name = model.removesuffix("/").split("/")[-1].removesuffix(".gguf")
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{suite}-{name}")
    return Path("runs") / f"{words}-{fingerprint(asked)[:8]}"


def _show(
    metrics: pl.DataFrame,
    suite: Suite,
    title: str,
    left_out: str,
    warnings: list[str],
    record: dict[str, Any],
    as_json: bool,
) -> None:
    if as_json:
        warnings = [left_out, *warnings] if left_out else warnings
        document = {"run": record, "metrics": rows_of(metrics), "warnings": warnings}
        print_json(document)
        return
    out.print(group_table(metrics, suite))
    out.print(summary_table(metrics, title, left_out))
    warn(warnings)
