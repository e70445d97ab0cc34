"""The options of ``probe``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, get_args, get_type_hints

from consilience.choices import CandidateSet, Long
from consilience.errors import ConsilienceError
from consilience.types import MultiToken, Protocol
from consilience.workflow.options import (
    FACTS,
    PAIRS,
    Device,
    Dtype,
    Indicators,
    InputFormat,
    MaxLength,
    Option,
    ReadAt,
    Revision,
    SuiteName,
    TrustRemoteCode,
)


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """What is asked of which model, and how."""

    model: Annotated[
        str,
        Option(
            "A Hub id, a folder, a GGUF file, packaged:smollm2, or "
            "baseline:majority|random|oracle|constant. For sentence pairs a trained classifier, "
            "or what finetune wrote, for all its seeds; with --generate a language model.",
            metavar="M",
        ),
    ] = "packaged:smollm2"
    suite: SuiteName = "mini"
    perturbations: Annotated[
        Sequence[str] | None,
        Option(
            "Also ask in these forms: names, all, or FILE.py:FUNCTION (docs/tasks.md) "
            "[default: of sentence pairs reverse,signal; of facts none].",
            metavar="P,P",
        ),
    ] = None
    limit: Annotated[
        int | None,
        Option("At most this many facts a relation, or pairs, sampled by --seed.", min=1),
    ] = None
    template: Annotated[
        str | None,
        Option(
            "Facts, sequence-to-sequence models: a text with {sentence}, instead of a sentinel. "
            "Pairs, with --generate: a text with {text}, {labels}, {first}, {second} [default: "
            "T5's form, of causal models a question].",
            metavar="TEXT",
        ),
    ] = None
    folder: Annotated[Path | None, Option("The folder of the run.", flag="--out")] = None
    seed: Annotated[int, Option("Seed of --limit, of baseline:random and of the intervals.")] = 0
    revision: Revision = None
    device: Device = "auto"
    dtype: Dtype = "float32"
    trust_remote_code: TrustRemoteCode = False
    groups: Annotated[
        Sequence[str] | None, Option("Only these relations: P36,P19.", metavar="G,G", panel=FACTS)
    ] = None
    protocol: Annotated[
        Protocol | None,
        Option(
            "published: the papers' released rules; strict: the definitions in their text.",
            panel=FACTS,
        ),
    ] = None
    candidates: Annotated[
        CandidateSet,
        Option("The relation's objects, or every word of the vocabulary.", panel=FACTS),
    ] = "objects"
    facts_from: Annotated[
        str | None,
        Option("Ask about the facts of this suite instead.", metavar="S", panel=FACTS),
    ] = None
    single_token: Annotated[
        Sequence[str] | None,
        Option(
            "Keep objects that are one token for all of these models.", metavar="M,M", panel=FACTS
        ),
    ] = None
    keep_scores: Annotated[
        bool, Option("Score and keep every candidate of every query.", panel=FACTS)
    ] = False
    multi_token: Annotated[
        MultiToken,
        Option(
            "Masked models, strict only: exclude candidates of several tokens, or fill them in "
            "from left to right.",
            panel=FACTS,
        ),
    ] = "exclude"
    noise_floor: Annotated[
        bool, Option("Ask a sample again in other batches, orders and so on.", panel=FACTS)
    ] = False
    fast: Annotated[
        bool,
        Option(
            "Answers only: screen in bfloat16, decide in float32. Refused where it is not faster.",
            panel=FACTS,
        ),
    ] = False
    data_dir: Annotated[
        Path | None,
        Option("Where fetched suites are (also CONSILIENCE_DATA).", metavar="DIR", panel=FACTS),
    ] = None
    as_shipped: Annotated[
        bool, Option("Keep the ParaRel tuples that the paper leaves out.", panel=FACTS)
    ] = False
    data: Annotated[
        str | None,
        Option(
            "The pairs: TSV, CSV, JSON, JSONL, Parquet, or hub:SPLIT.", metavar="F", panel=PAIRS
        ),
    ] = None
    generate: Annotated[
        bool,
        Option("The model writes the label's word, and also chooses it.", panel=PAIRS),
    ] = False
    indicators: Indicators = None
    joined: InputFormat = None
    pool: ReadAt = None
    longest: MaxLength = None
    long: Annotated[
        Long,
        Option(
            "Items too long for the model: truncate their sentences, or exclude the items.",
            panel=PAIRS,
        ),
    ] = "truncate"
    model_labels: Annotated[
        Sequence[str] | None,
        Option(
            "The labels of the model's outputs in their order, if it has no names for them.",
            metavar="L,L",
            panel=PAIRS,
        ),
    ] = None
    half: Annotated[int | None, Option("Only this half of --data.", min=1, max=2, panel=PAIRS)] = (
        None
    )


def refuse_options(options: ProbeOptions, panel: str, given: str, expected: str) -> None:
    """Raise for an option of a panel that is not at its default: it is for other suites."""
    hints = get_type_hints(ProbeOptions, include_extras=True)
    for field in fields(options):
        option = get_args(hints[field.name])[-1]
        if option.panel == panel and getattr(options, field.name) != field.default:
            flag = option.flag or "--" + field.name.replace("_", "-")
            raise ConsilienceError(
                f"{flag} with {given}", expected=f"--suite {expected}", todo=f"Leave {flag} out."
            )
