"""Options of workflows: frozen dataclasses whose fields say how the command line presents them.

A field is ``name: Annotated[type, Option("Help text.")] = default``. Its default is written here
only. ``option_fields.py`` decodes it for Python calls, the command line and configuration files.
A panel after an alias of this module, as in ``Annotated[DataDir, FACTS]``, replaces its panel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from consilience.core.errors import Joined, Pool, Protocol


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line presents a field."""

    help: str
    """What the option does; it also documents the field."""
    metavar: str | None = None
    """The placeholder of the value in the help."""
    flag: str | None = None
    """The option's name, where it is not that of the field."""
    short: str | None = None
    """The option's name in one letter."""
    min: int | None = None
    """The least value of a number."""
    max: int | None = None
    """The greatest value of a number."""
    panel: str | None = None
    """The heading in the help that the option stands under."""
    is_argument: bool = False
    """Whether it is given by its position, without a name."""
    is_repeated: bool = False
    """Whether a list is given by several options with a value each; else it has commas."""
    is_of_run: bool = False
    """Whether a run has a value of its own, which no default for all commands replaces."""
    needs_trust: Callable[[Any], bool] | None = None
    """Whether a value runs code, sends a key, or uploads unasked.

    Such a value counts from the command line, a Python call, or a file that the user named; never
    from the record of a run or a configuration file that was found.
    """


def names_code(value: object) -> bool:
    """Whether one of some names is a function in a Python file, ``FILE.py:FUNCTION``."""
    return ".py:" in str(value)


def shared_fields(options: Any, kind: type) -> dict[str, Any]:
    """The values of options for the fields of another dataclass that have the same name."""
    names = [field.name for field in fields(kind)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


GENERAL = "General"
"""The panel of the options that every command has."""
MODEL, QUESTIONS, COUNTING = "Model", "Questions", "Counting"
ENDPOINTS = "Models behind a URL"
OUTPUT, TRAINING, ADVANCED = "Output", "Training", "Advanced"
FACTS = "Facts only"
PAIRS = "Sentence pairs only"
OWN = "Questions only"
FACTS_AND_OWN = "Facts and questions only"
FACTS_AND_PAIRS = "Facts and sentence pairs only"
PAIRS_AND_OWN = "Sentence pairs and questions only"
"""Panels of options that only some kinds of suites have; others refuse them."""

SuiteName = Annotated[
    str,
    Option(
        "Ask this suite: mini, pararel, a task of sentence pairs, a file or a folder of questions, "
        "or a folder of facts.",
        metavar="S",
        short="-s",
        panel=QUESTIONS,
    ),
]
FactSuiteName = Annotated[
    str,
    Option(
        "Use this suite of facts: mini, pararel, or a folder.",
        metavar="S",
        short="-s",
        panel=QUESTIONS,
    ),
]
SuiteArgument = Annotated[
    str, Option("The suite: mini, pararel or a folder.", metavar="SUITE", is_argument=True)
]
ProtocolName = Annotated[
    Protocol | None,
    Option(
        "Count by the papers' released code (published) or by the definitions in their text "
        "(strict) [default: published for ParaRel, else strict].",
        panel=COUNTING,
    ),
]
RunProtocol = Annotated[
    Protocol | None,
    Option(
        "Count by the papers' released code (published) or by the definitions in their text "
        "(strict) [default: that of the run].",
        panel=COUNTING,
    ),
]
RunSpecs = Annotated[
    Sequence[str],
    Option(
        "Folders of runs, or tables of answers; LABEL=RUN names one. The first is the reference.",
        metavar="RUN",
        is_argument=True,
    ),
]
RunSuite = Annotated[
    str | None,
    Option(
        "Use this suite: a name or a folder [default: that of the run].",
        metavar="S",
        short="-s",
        panel=QUESTIONS,
        is_of_run=True,
    ),
]
Groups = Annotated[
    Sequence[str] | None,
    Option("Use only these relations or groups, such as P36,P19.", metavar="G,G", panel=QUESTIONS),
]
Limit = Annotated[
    int | None,
    Option(
        "Ask at most this many facts of each relation, questions of each group, or sentence pairs.",
        min=1,
        short="-n",
        panel=QUESTIONS,
    ),
]
FormNames = Annotated[
    Sequence[str] | None,
    Option(
        "Also ask in these forms: names, `all`, or FILE.py:FUNCTION "
        "[default: reverse,signal for sentence pairs, none for facts].",
        metavar="P,P",
        panel=QUESTIONS,
        needs_trust=names_code,
    ),
]
FactsFrom = Annotated[
    str | None,
    Option("Ask about the facts of this suite instead.", metavar="S", panel=FACTS),
]
PairData = Annotated[
    str | None,
    Option(
        "Read the pairs from this file (TSV, CSV, JSON, JSONL, Parquet) or from hub:SPLIT.",
        metavar="F",
        panel=PAIRS,
    ),
]
Half = Annotated[
    int | None,
    Option("Ask only the first (1) or second (2) half of --data.", min=1, max=2, panel=PAIRS),
]
Vary = Annotated[
    Sequence[str] | None,
    Option(
        "Vary this factor, such as order=rotations, labels=A,1, paraphrase=all or "
        "template=plain,chat; once for each factor. docs/factors.md has all factors. Of facts only "
        "language=L,L "
        "[default: phrasings, languages, and rotations of the options].",
        metavar="FACTOR=LEVELS",
        panel=FACTS_AND_OWN,
        is_repeated=True,
    ),
]
DesignName = Annotated[
    str,
    Option(
        "Ask all combinations of levels (full), the base variant and each other level alone "
        "(one-factor), or N drawn points with each factor changed once (radial:N).",
        metavar="DESIGN",
        panel=OWN,
    ),
]
ColumnNames = Annotated[
    Sequence[str] | None,
    Option(
        "Read the file's columns under these names, such as question=stem,options=A+B+C+D.",
        metavar="OURS=YOURS",
        panel=OWN,
    ),
]
Shots = Annotated[
    int,
    Option(
        "Show this many solved questions of the same group before each question.",
        min=0,
        panel=OWN,
    ),
]
SystemPrompt = Annotated[
    str | None,
    Option("Send this system prompt to a chat model.", metavar="TEXT", panel=OWN),
]
BootstrapSeed = Annotated[
    int, Option("Seed of the bootstrap and of the permutation tests.", min=0, panel=COUNTING)
]
SheetFolder = Annotated[
    Path,
    Option(
        "Write the sheets to this new folder.",
        metavar="DIR",
        flag="--out",
        short="-o",
        panel=OUTPUT,
    ),
]

DataDir = Annotated[
    Path | None,
    Option(
        "Read fetched suites from this folder [env: CONSILIENCE_DATA].",
        metavar="DIR",
        panel=ADVANCED,
    ),
]
Folder = Annotated[
    Path | None,
    Option(
        "Write the run to this folder [default: a new folder in runs/].",
        metavar="DIR",
        flag="--out",
        short="-o",
        panel=OUTPUT,
    ),
]
AsShipped = Annotated[
    bool,
    Option("Keep the ParaRel tuples that the ParaRel paper leaves out.", panel=ADVANCED),
]
Revision = Annotated[str | None, Option("Use this revision of a model on the Hub.", panel=MODEL)]
Device = Annotated[
    str,
    Option("Run on this device: auto, cpu, cuda, cuda:1 or mps.", metavar="DEVICE", panel=MODEL),
]
Dtype = Annotated[
    str, Option("Compute in float32, bfloat16 or float16.", metavar="DTYPE", panel=MODEL)
]
TrustRemoteCode = Annotated[
    bool,
    Option(
        "Run the Python code that comes with the model. Read that code first.",
        panel=MODEL,
        needs_trust=bool,
    ),
]

BaseUrl = Annotated[
    str | None,
    Option(
        "Send requests to this API, such as http://127.0.0.1:8000/v1, for --model openai:NAME, "
        "decisions:NAME or systemone:NAME.",
        metavar="URL",
        panel=ENDPOINTS,
        needs_trust=bool,
    ),
]
ApiKeyEnv = Annotated[
    str | None,
    Option(
        "Send the key in this environment variable [default: OPENAI_API_KEY if it is set, over "
        "https or to this machine].",
        metavar="NAME",
        panel=ENDPOINTS,
        needs_trust=bool,
    ),
]
MaxRequests = Annotated[
    int | None,
    Option("Stop before more than this many requests are sent.", min=1, panel=ENDPOINTS),
]
MaxTokens = Annotated[
    int | None,
    Option("Stop before more than this many tokens are used.", min=1, panel=ENDPOINTS),
]
Price = Annotated[
    Sequence[float] | None,
    Option(
        "Show the cost at these prices of a million tokens read and a million written.",
        metavar="IN,OUT",
        min=0,
        panel=ENDPOINTS,
    ),
]
Scoring = Annotated[
    str | None,
    Option(
        "Score candidates by this strategy (docs/endpoints.md) [default: the first that is "
        "proved].",
        metavar="NAME",
        panel=ENDPOINTS,
    ),
]
LocalTokenizer = Annotated[
    str | None,
    Option(
        "Use this model's tokenizer if the server has none: a Hub id or a folder.",
        metavar="M",
        panel=ENDPOINTS,
    ),
]
Concurrency = Annotated[
    int | None,
    Option(
        "Keep at most this many requests in flight [default: as many as the server answers best].",
        min=1,
        panel=ENDPOINTS,
    ),
]
RequestTimeout = Annotated[
    float,
    Option(
        "Give up a request after this many seconds without a complete reply.",
        min=1,
        panel=ENDPOINTS,
    ),
]

TrainingDevice = Annotated[
    str,
    Option(
        "Train on this device: auto, cpu, cuda, cuda:1 or mps.", metavar="DEVICE", panel=TRAINING
    ),
]
Bf16 = Annotated[bool, Option("Train in bfloat16.", panel=TRAINING)]
GradientCheckpointing = Annotated[bool, Option("Use less memory and more time.", panel=TRAINING)]

Indicators = Annotated[
    Sequence[str] | None,
    Option(
        "Write these words before the two sentences: Premise,Hypothesis.",
        metavar="A,B",
        panel=PAIRS,
    ),
]
InputFormat = Annotated[
    Joined | None,
    Option(
        "Give the model two segments (pair: the default of encoders) or one text (string).",
        flag="--input",
        panel=PAIRS,
    ),
]
ReadAt = Annotated[
    Pool | None,
    Option(
        "Decoders: classify by the last token, by an end token after it, or by the mean.",
        panel=PAIRS,
    ),
]
MaxLength = Annotated[
    int | None,
    Option(
        "Truncate sentence pairs to this many tokens, and exclude longer prompts of questions "
        "[default: the model's limit].",
        min=8,
        flag="--max-length",
        panel=PAIRS_AND_OWN,
    ),
]
