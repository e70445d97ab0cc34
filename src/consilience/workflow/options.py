"""Options of workflows: frozen dataclasses whose fields say how the command line presents them.

A field is ``name: Annotated[type, Option("Help text.")] = default``. Its default is written here
only; ``cli/command.py`` makes the command line from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.choices import Joined, Pool
from consilience.types import Protocol


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line presents a field."""

    help: str
    """What the option does; it also documents the field."""
    metavar: str | None = None
    """What stands for the value in the help."""
    flag: str | None = None
    """The option's name, where it is not that of the field."""
    min: int | None = None
    """The least value of a number."""
    max: int | None = None
    """The greatest value of a number."""
    panel: str | None = None
    """The heading in the help that the option stands under."""
    is_argument: bool = False
    """Whether it is given by its position, without a name."""


FACTS = "Facts"
"""The panel of options for cloze suites only."""

PAIRS = "Sentence pairs"
"""The panel of options for tasks of sentence pairs only."""


SuiteName = Annotated[
    str, Option("A suite: mini, pararel, a task of sentence pairs, or a folder.", metavar="S")
]
ProtocolName = Annotated[
    Protocol | None,
    Option("published: the papers' released rules; strict: the definitions in their text."),
]
RunSpecs = Annotated[
    Sequence[str],
    Option(
        "Folders of runs, or answers tables; LABEL=RUN names one. The first is the reference.",
        metavar="RUN...",
        is_argument=True,
    ),
]
RunSuite = Annotated[
    str | None, Option("A name or a folder [default: that of the first run].", metavar="S")
]
BootstrapSeed = Annotated[int, Option("Seed of the bootstrap and the permutations.")]
DataDir = Annotated[
    Path | None, Option("Where fetched suites are (also CONSILIENCE_DATA).", metavar="DIR")
]
AsShipped = Annotated[bool, Option("Keep the ParaRel tuples that the paper leaves out.")]
Revision = Annotated[str | None, Option("Revision of a model on the Hub.")]
Device = Annotated[str, Option("auto, cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[str, Option("float32, bfloat16 or float16.")]
TrustRemoteCode = Annotated[
    bool, Option("Run the Python code that comes with the model. Read that code first.")
]

TrainingDevice = Annotated[str, Option("auto or cpu.")]
Bf16 = Annotated[bool, Option("Train in bfloat16.")]
GradientCheckpointing = Annotated[bool, Option("Use less memory and more time.")]

Indicators = Annotated[
    Sequence[str] | None,
    Option("Text before each sentence: Premise,Hypothesis.", metavar="A,B", panel=PAIRS),
]
InputFormat = Annotated[
    Joined | None,
    Option(
        "pair: two segments, the default of encoders; string: one, the default of others.",
        flag="--input",
        panel=PAIRS,
    ),
]
ReadAt = Annotated[
    Pool | None,
    Option("Decoders: read the last token, an end token after it, or the mean.", panel=PAIRS),
]
MaxLength = Annotated[
    int | None,
    Option(
        "Tokens of the longest input [default: the model's].",
        min=8,
        flag="--max-length",
        panel=PAIRS,
    ),
]
