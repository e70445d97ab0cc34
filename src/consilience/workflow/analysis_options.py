"""The options of the analyses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

from consilience.choices import (
    SMALL_TASKS,
    Colour,
    ExampleKind,
)
from consilience.workflow.options import (
    COUNTING,
    MODEL,
    OUTPUT,
    QUESTIONS,
    BootstrapSeed,
    DataDir,
    Device,
    FactSuiteName,
    Folder,
    Groups,
    Option,
    ProtocolName,
    Revision,
    RunProtocol,
    RunSuite,
    SuiteArgument,
    TrustRemoteCode,
)

RunPath = Annotated[
    Path, Option("The folder of a run, or a table of answers.", metavar="RUN", is_argument=True)
]


@dataclass(frozen=True, slots=True)
class PatternsOptions:
    """Which patterns are compared."""

    run: RunPath
    suite: RunSuite = None
    groups: Groups = None
    protocol: RunProtocol = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class EditsOptions:
    """Which kinds of edits are compared."""

    run: RunPath
    suite: RunSuite = None
    protocol: RunProtocol = None
    derive: Annotated[
        bool,
        Option("Derive edits with a dependency parser (spaCy).", panel=QUESTIONS),
    ] = False
    seed: BootstrapSeed = 0
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class ExamplesOptions:
    """Which examples are chosen."""

    run: RunPath
    suite: RunSuite = None
    kind: Annotated[
        ExampleKind | None, Option("Show only this kind of examples [default: all].", panel=OUTPUT)
    ] = None
    examples: Annotated[int, Option("Number of examples of each kind.", min=1, panel=OUTPUT)] = 5
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class KnowledgeOptions:
    """Which runs are correlated with what."""

    runs: Annotated[
        Sequence[str],
        Option(
            "Folders of runs, or tables of answers; LABEL=RUN names one.",
            metavar="RUN",
            is_argument=True,
        ),
    ]
    suite: RunSuite = None
    protocol: RunProtocol = None
    sizes: Annotated[
        Sequence[str] | None,
        Option(
            "Sizes of the training data of the runs' models, in their order: 1M,10M,1B.",
            metavar="N,N",
            panel=QUESTIONS,
        ),
    ] = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class SyntaxOptions:
    """Whose patterns are parsed."""

    suite: SuiteArgument
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class TaskEffectsOptions:
    """Which runs are compared by their tasks."""

    runs: Annotated[
        Sequence[str],
        Option(
            "Folders of runs of sentence pairs, or tables as CSV; MODEL=RUN names the model.",
            metavar="RUN",
            is_argument=True,
        ),
    ]
    small: Annotated[
        Sequence[str],
        Option("Tasks with few training examples.", metavar="T,T", panel=QUESTIONS),
    ] = SMALL_TASKS
    leave_out: Annotated[
        Sequence[str] | None,
        Option("Leave these models out of the tests.", metavar="M,M", panel=QUESTIONS),
    ] = None


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """The model whose vectors are clustered, and the drawing."""

    model: Annotated[
        str, Option("Use this model, as for `probe`.", metavar="M", short="-m", panel=MODEL)
    ] = "packaged:smollm2"
    suite: FactSuiteName = "mini"
    groups: Groups = None
    limit: Annotated[
        int,
        Option("Use at most this many facts of each relation.", min=1, short="-n", panel=QUESTIONS),
    ] = 100
    layers: Annotated[
        Sequence[int],
        Option(
            "Use these layers: 0 is the embeddings, -1 the last layer.",
            metavar="N,N",
            panel=MODEL,
        ),
    ] = (-1,)
    draw: Annotated[
        str | None,
        Option("Draw this relation by t-SNE, at the last of --layers.", metavar="G", panel=OUTPUT),
    ] = None
    draw_facts: Annotated[int, Option("Draw at most this many facts.", min=1, panel=OUTPUT)] = 30
    draw_format: Annotated[
        str, Option("Write the drawing as svg, png, pdf or html.", metavar="FORMAT", panel=OUTPUT)
    ] = "svg"
    color_by: Annotated[
        Colour,
        Option(
            "Color the drawing by this property.", metavar="|".join(get_args(Colour)), panel=OUTPUT
        ),
    ] = "subject"
    protocol: ProtocolName = None
    folder: Folder = None
    seed: Annotated[int, Option("Seed of --limit, k-means and t-SNE.", panel=COUNTING)] = 0
    revision: Revision = None
    device: Device = "auto"
    trust_remote_code: TrustRemoteCode = False
    data_dir: DataDir = None
