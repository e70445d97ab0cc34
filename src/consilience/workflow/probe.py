"""Ask a model every fact of a suite, or take answers made elsewhere, and count them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from consilience import suites
from consilience.choices import CandidateSet
from consilience.errors import ConsilienceError
from consilience.metrics import facts_left_out, measure, remarks
from consilience.metrics.table import check_golds, prepare, unknown_answers
from consilience.models import LanguageModel, load_model
from consilience.noise import noise_floor
from consilience.probe import probe as ask_suite
from consilience.probe import screening_note
from consilience.provenance import git_revision, versions
from consilience.run import Run, RunFolder, fingerprint
from consilience.suites.selection import (
    filter_vocabulary,
    replace_facts,
    sample_facts,
    select_relations,
)
from consilience.types import MultiToken, Protocol, Suite
from consilience.workflow.options import (
    AsShipped,
    DataDir,
    Device,
    Dtype,
    Option,
    ProtocolName,
    Revision,
    SuiteName,
    TrustRemoteCode,
)
from consilience.workflow.suite import protocol_notes, refuse_pairs, source_of
from consilience.workflow.watch import SILENT, Watch


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """What is asked of which model, and how."""

    model: Annotated[
        str,
        Option(
            "A Hub id, a folder, a GGUF file, packaged:smollm2, or "
            "baseline:majority|random|oracle|constant.",
            metavar="M",
        ),
    ] = "packaged:smollm2"
    suite: SuiteName = "mini"
    groups: Annotated[
        Sequence[str] | None, Option("Only these relations: P36,P19.", metavar="G,G")
    ] = None
    limit: Annotated[
        int | None, Option("At most this many facts a relation, sampled by --seed.", min=1)
    ] = None
    protocol: ProtocolName = None
    candidates: Annotated[
        CandidateSet, Option("The relation's objects, or every word of the vocabulary.")
    ] = "objects"
    facts: Annotated[
        str | None, Option("Ask about the facts of this suite instead.", metavar="S")
    ] = None
    vocabulary: Annotated[
        Sequence[str] | None,
        Option("Keep objects that are one token for all of these models.", metavar="M,M"),
    ] = None
    keep_scores: Annotated[bool, Option("Score and keep every candidate of every query.")] = False
    multi_token: Annotated[
        MultiToken,
        Option(
            "Masked models, strict only: exclude candidates of several tokens, or fill them in "
            "from left to right."
        ),
    ] = "exclude"
    template: Annotated[
        str | None,
        Option(
            "Sequence-to-sequence models: a text with {sentence}, instead of a sentinel.",
            metavar="TEXT",
        ),
    ] = None
    noise_floor: Annotated[
        bool, Option("Ask a sample again in other batches, orders and so on.")
    ] = False
    folder: Annotated[Path | None, Option("The folder of the run.", flag="--out")] = None
    seed: Annotated[int, Option("Seed of --limit and of baseline:random.")] = 0
    revision: Revision = None
    device: Device = "auto"
    dtype: Dtype = "float32"
    trust_remote_code: TrustRemoteCode = False
    fast: Annotated[
        bool,
        Option(
            "Answers only: screen in bfloat16, decide in float32. Refused where it is not faster."
        ),
    ] = False
    data_dir: DataDir = None
    as_shipped: AsShipped = False


@dataclass(frozen=True, slots=True)
class Counted:
    """Answers and their numbers."""

    suite: Suite
    """What was asked."""
    protocol: Protocol
    """How the answers were counted."""
    metrics: pl.DataFrame
    """The metrics table (``METRICS_SCHEMA``)."""
    left_out: str
    """How many facts the accuracy is over, where it is not over all of them."""
    notes: Sequence[str]
    """What a reader should know."""
    record: Mapping[str, Any]
    """Settings, versions and the like, for a JSON document."""


def probe(options: ProbeOptions, watch: Watch = SILENT) -> Counted:
    """Ask a model, and count its answers; the run is in its folder."""
    _check(options)
    suite, source = choose_suite(options, watch)
    protocol: Protocol = options.protocol or suite.protocol
    load = _loader(options, protocol)
    with watch.loading(options.model):
        model = load(dtype=options.dtype)
    settings = _settings(options, suite, protocol, model)
    folder = RunFolder(options.folder or _default_folder(options.model, settings), settings)
    folder.describe("suite_source", source)
    if options.keep_scores:
        words = {relation.id: relation.candidates.words for relation in suite.relations}
        folder.describe("words", words)
    whole_vocabulary = options.candidates == "vocabulary"
    queries = sum(len(each.facts) * len(each.patterns) for each in suite.relations)
    with watch.steps("asking", queries, "queries") as advance:
        answers = ask_suite(
            suite,
            model,
            folder,
            whole_vocabulary=whole_vocabulary,
            keep_scores=options.keep_scores,
            progress=advance,
        )
    metrics = measure(answers, suite, protocol)
    folder.note(remarks(answers, metrics, suite, protocol))
    if options.fast:
        folder.note([screening_note(folder.record)])
    if options.noise_floor:
        is_exact = model.identity.get("dtype") == "float32"
        half = partial(load, dtype="bfloat16", fast=False) if is_exact else None
        with watch.loading(""), watch.steps("noise floor", None, "queries") as advance:
            flips = noise_floor(
                suite,
                model,
                whole_vocabulary=whole_vocabulary,
                in_half_precision=half,
                seed=options.seed,
                progress=advance,
            )
        metrics = metrics.vstack(flips)
    folder.finish(metrics)
    left_out = facts_left_out(answers, metrics, suite, protocol)
    record = {**folder.record, "path": str(folder.path)}
    return Counted(suite, protocol, metrics, left_out, folder.record["warnings"], record)


def score(
    answers: Path, suite: str, protocol: Protocol | None = None, data_dir: Path | None = None
) -> Counted:
    """Count answers that were made elsewhere, or those of a run again."""
    run = Run.open(answers)
    refuse_pairs(run)
    chosen = suites.load_suite(suite, data_dir)
    table = run.answers
    notes: list[str] = []
    if not answers.is_dir():  # a run's own answers are what it was asked
        prepared = prepare(table, chosen)
        check_golds(prepared, chosen)
        notes = unknown_answers(prepared, chosen)
    rules: Protocol = protocol or run.protocol or chosen.protocol
    metrics = measure(table, chosen, rules)
    notes += [*remarks(table, metrics, chosen, rules), *protocol_notes(run, rules)]
    asked = {"answers": str(answers), "suite": chosen.name, "protocol": rules}
    record = {"asked": asked, "versions": versions(), "git": git_revision()}
    left_out = facts_left_out(table, metrics, chosen, rules)
    return Counted(chosen, rules, metrics, left_out, notes, record)


def choose_suite(options: ProbeOptions, watch: Watch = SILENT) -> tuple[Suite, dict[str, str]]:
    """What is asked, and the source of the whole suite (``source_of``)."""
    suite = suites.load_suite(options.suite, options.data_dir, as_shipped=options.as_shipped)
    source = source_of(suite, options.suite, options.data_dir)
    if options.groups is not None:
        suite = select_relations(suite, options.groups)
    if options.facts is not None:
        other = suites.load_suite(options.facts, options.data_dir)
        suite = replace_facts(suite, other)
    if options.vocabulary is not None:
        suite = _one_token(suite, options.vocabulary, options.trust_remote_code, watch)
    if options.limit:
        suite = sample_facts(suite, options.limit, options.seed)
    return suite, source


def _check(options: ProbeOptions) -> None:
    if options.keep_scores and options.candidates == "vocabulary":
        raise ConsilienceError(
            "--keep-scores with the whole vocabulary",
            expected="--candidates objects: a vocabulary's scores of a suite fill a disk",
        )
    if options.keep_scores and options.fast:
        raise ConsilienceError(
            "--fast with --keep-scores", expected="one of the two: --fast gives answers only"
        )


def _loader(options: ProbeOptions, protocol: Protocol) -> Callable[..., LanguageModel]:
    return partial(
        load_model,
        options.model,
        protocol=protocol,
        revision=options.revision,
        device=options.device,
        seed=options.seed,
        multi_token=options.multi_token,
        template=options.template,
        trust_remote_code=options.trust_remote_code,
        fast=options.fast,
    )


def _settings(
    options: ProbeOptions, suite: Suite, protocol: Protocol, model: LanguageModel
) -> dict[str, object]:
    """Everything that decides the answers."""
    settings: dict[str, object] = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "groups": [relation.id for relation in suite.relations],
        "facts": options.facts,
        "vocabulary": ",".join(options.vocabulary) if options.vocabulary is not None else None,
        "as_shipped": options.as_shipped,
        "limit": options.limit,
        "seed": options.seed,
        "protocol": protocol,
        "candidates": options.candidates,
        "keep_scores": options.keep_scores,
        "model": model.identity,
    }
    return settings | ({"fast": True} if options.fast else {})


def _one_token(suite: Suite, names: Sequence[str], trust_remote_code: bool, watch: Watch) -> Suite:
    from consilience.models.candidates import count_pieces
    from consilience.models.loading import load_tokenizer

    with watch.loading(""):
        load = partial(load_tokenizer, trust_remote_code=trust_remote_code)
        pieces = {name: partial(count_pieces, load(name)) for name in names}
        return filter_vocabulary(suite, pieces)


def _default_folder(model: str, settings: Mapping[str, object]) -> Path:
    name = model.removesuffix("/").split("/")[-1].removesuffix(".gguf")
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{settings['suite']}-{name}")
    return Path("runs") / f"{words}-{fingerprint(settings)[:8]}"
