"""The options of the analyses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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
    """Compare patterns: how often each two agree, and which agree with no other.

    A pattern is an outlier if its highest agreement with another is below the mean agreement
    among the others. The column "points" is the accuracy of a pattern minus that of the base
    pattern, on the same facts. The file of --csv has a row for each pair of patterns: its
    agreement and its change of accuracy, with intervals and tests.
    """

    run: RunPath
    suite: RunSuite = None
    groups: Groups = None
    protocol: RunProtocol = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class EditsOptions:
    """Compare edits: pairs of patterns that differ in one way with the other pairs.

    An edit is a way in which two patterns differ. The edges of the suite name it; with --derive
    a dependency parser does, which also finds the paraphrase types of the paper's Appendix B.
    Numbers are means over the relations that have both kinds of pairs, and tests are over these
    relations.
    """

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
    """Show examples: items with right and wrong answers, with one wrong answer, and so on.

    An item is a fact or a question; of written answers the text is shown, and how it was matched.
    docs/analyses.md explains the kinds of examples. The file of --csv has a row for each reply
    to each item.
    """

    run: RunPath
    suite: RunSuite = None
    kind: Annotated[
        ExampleKind | None, Option("Show only this kind of examples [default: all].", panel=OUTPUT)
    ] = None
    examples: Annotated[
        int, Option("Print this many examples of each kind.", min=1, panel=OUTPUT)
    ] = 5
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class ExpectationsOptions:
    """Show which expectations the answers violate: how many of each kind, and examples.

    A suite of questions says what should hold between the answers to several of its questions
    (docs/expectations.md). The file of --csv has a row for each kind of expectations of a group.
    """

    run: Annotated[
        Path, Option("The folder of a run of questions.", metavar="RUN", is_argument=True)
    ]
    examples: Annotated[
        int, Option("Print this many examples of each kind.", min=0, panel=OUTPUT)
    ] = 3
    seed: BootstrapSeed = 0


@dataclass(frozen=True, slots=True)
class KnowledgeOptions:
    """Correlate accuracy and consistency over relations (ParaRel paper, Section 6.2).

    With --sizes the effect of more training data is measured over the runs, too (Table 4), and with
    --abstain-below what remains if the model answers only when it is confident (Section 9). The
    file of --csv has the correlations over relations.
    """

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
            "Also correlate with these sizes of training data, one for each run: 1M,10M,1B.",
            metavar="N,N",
            panel=QUESTIONS,
        ),
    ] = None
    abstain_below: Annotated[
        Sequence[float] | None,
        Option(
            "Also count again without answers whose probability among the candidates is below "
            "these thresholds: 0.25,0.5.",
            metavar="P,P",
            panel=QUESTIONS,
        ),
    ] = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class FactorsOptions:
    """Show where inconsistency comes from: what each factor of a run of questions changes.

    For each factor: the consistency of the variants that differ in it alone, its main effect and
    its total effect on the answer and on correctness. Then POSIX, PromptSensiScore and the range
    of accuracy. The file of --csv has a row for each number. See docs/factors.md.
    """

    runs: Annotated[
        Sequence[str],
        Option(
            "Folders of runs of questions; LABEL=RUN names one.", metavar="RUN", is_argument=True
        ),
    ]
    groups: Groups = None
    seed: BootstrapSeed = 0


@dataclass(frozen=True, slots=True)
class SyntaxOptions:
    """Compare how patterns differ by a parser with the suite's own edges.

    It prints how many directed edges are the same, Cohen's kappa, the edges that only one of
    them has, and how many pairs with the base pattern are of each paraphrase type (Appendix B).
    It needs the extra `syntax`.
    """

    suite: SuiteArgument
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class TaskEffectsOptions:
    """Compare tasks of sentence pairs: which kinds are more consistent (CALUM paper, 5.1).

    Name the model if several runs are of one model: roberta=runs/a roberta=runs/b.
    """

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
        Option(
            "Treat these tasks as those with few training examples.", metavar="T,T", panel=QUESTIONS
        ),
    ] = SMALL_TASKS
    leave_out: Annotated[
        Sequence[str] | None,
        Option("Leave these models out of the tests.", metavar="M,M", panel=QUESTIONS),
    ] = None


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """Cluster a model's vectors by pattern, subject and object (ParaRel paper, Section 7.2).

    The run's folder gets the answers, vectors/RELATION.npy with an index, clusters.csv and the
    figure. Rerun the same command to resume an interrupted run.
    """

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
        Option("Color the drawing by this property.", panel=OUTPUT),
    ] = "subject"
    protocol: ProtocolName = None
    out: Folder = None
    seed: Annotated[int, Option("Seed of --limit, k-means and t-SNE.", min=0, panel=COUNTING)] = 0
    revision: Revision = None
    device: Device = "auto"
    trust_remote_code: TrustRemoteCode = False
    data_dir: DataDir = None
