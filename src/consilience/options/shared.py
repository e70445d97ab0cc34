"""Types of options that several commands have: each is declared once.

A field has one as its type, and perhaps an ``opt`` without a text that replaces some of its facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from consilience.core.errors import Combinations, Joined, Pool, Protocol
from consilience.options import FilePath, Option, OptionalPath, Paths


def names_code(value: object) -> bool:
    """Whether one of some names is a function in a Python file, ``FILE.py:FUNCTION``."""
    return ".py:" in str(value)


# fmt: off
FactSuiteName = Annotated[str, Option(
    "Use this suite of facts: mini, pararel, or a folder.", metavar="S", short="-s",
    panel="Questions")]
SuiteArgument = Annotated[str, Option(
    "The suite: mini, pararel or a folder.", metavar="SUITE", is_argument=True)]
ProtocolName = Annotated[Protocol | None, Option(
    "Count by the papers' released code (published) or by the definitions in their text (strict) "
    "[default: published for ParaRel, else strict].", panel="Counting")]
RunProtocol = Annotated[Protocol | None, Option(
    "Count by the papers' released code (published) or by the definitions in their text (strict) "
    "[default: that of the run].", panel="Counting")]
RunSpecs = Annotated[Paths, Option(
    "Folders of runs, or tables of answers; LABEL=RUN names one. The first is the reference.",
    metavar="RUN", is_argument=True)]
Groups = Annotated[Sequence[str] | None, Option(
    "Use only these relations or groups, such as P36,P19.", metavar="G,G", panel="Questions")]
Limit = Annotated[int | None, Option(
    "Ask at most this many facts of each relation, questions of each group, or sentence pairs.",
    min=1, short="-n", panel="Questions")]
FormNames = Annotated[Sequence[str] | None, Option(
    "Also ask in these forms: reverse, signal, reverse_signal, or FILE.py:FUNCTION [default: "
    "reverse,signal].", metavar="P,P", panel="Sentence pairs only", needs_trust=names_code)]
PairData = Annotated[str | None, Option(
    "Read the pairs from this file (TSV, CSV, JSON, JSONL, Parquet) or from hub:SPLIT.",
    metavar="F", panel="Sentence pairs only")]
Half = Annotated[int | None, Option(
    "Ask only the first (1) or second (2) half of --data.", min=1, max=2,
    panel="Sentence pairs only")]
Vary = Annotated[Sequence[str] | None, Option(
    "Vary this factor, such as order=rotations, labels=A,1, paraphrase=all or "
    "template=plain,chat; once for each factor. docs/factors.md has all factors. Of facts only "
    "language=L,L [default: phrasings, languages, and rotations of the options].",
    metavar="FACTOR=LEVELS", panel="Facts and questions only", is_repeated=True)]
DesignName = Annotated[Combinations, Option(
    "Ask all combinations of levels (full), or the base variant and each other level alone "
    "(one-factor).", metavar="DESIGN", panel="Questions only")]
ColumnNames = Annotated[Sequence[str] | None, Option(
    "Read the file's columns under these names, such as "
    "question=Question+Rephrased,options=A+B+C+D.",
    metavar="OURS=YOURS", panel="Questions only")]
Shots = Annotated[int, Option(
    "Show this many solved questions of the same group before each question.", min=0,
    panel="Questions only")]
SheetFolder = Annotated[FilePath, Option(
    "Write the sheets to this new folder.", metavar="DIR", short="-o", panel="Output")]
DataDir = Annotated[OptionalPath, Option(
    "Read fetched suites from this folder [env: CONSILIENCE_DATA].", metavar="DIR",
    panel="Advanced")]
Folder = Annotated[OptionalPath, Option(
    "Write the run to this folder [default: a new folder in runs/].", metavar="DIR", short="-o",
    panel="Output")]
AsQuestions = Annotated[int | None, Option(
    "Ask facts as questions with a blank: with this many wrong options, drawn by the seed from the "
    "objects of the relation; 0 for no options.", min=0, metavar="K",
    panel="Facts and questions only")]
Revision = Annotated[str | None, Option("Use this revision of a model on the Hub.", panel="Model")]
Device = Annotated[str, Option(
    "Run on this device: auto, cpu, cuda, cuda:1 or mps.", metavar="DEVICE", panel="Model")]
Dtype = Annotated[str, Option(
    "Compute in float32, bfloat16 or float16.", metavar="DTYPE", panel="Model")]
TrustRemoteCode = Annotated[bool, Option(
    "Run the Python code that comes with the model. Read that code first.", panel="Model",
    needs_trust=bool)]
BaseUrl = Annotated[str | None, Option(
    "Send requests to this API, such as http://127.0.0.1:8000/v1, for --model NAME.",
    metavar="URL", panel="Models behind a URL", needs_trust=bool)]
ApiKeyEnv = Annotated[str | None, Option(
    "Send the key in this environment variable [default: OPENAI_API_KEY if it is set, over https "
    "or to this machine].", metavar="NAME", panel="Models behind a URL", needs_trust=bool)]
MaxRequests = Annotated[int | None, Option(
    "Stop before more than this many requests are sent.", min=1, panel="Models behind a URL")]
TrainingDevice = Annotated[str, Option(
    "Train on this device: auto, cpu, cuda, cuda:1 or mps.", metavar="DEVICE", panel="Training")]
Bf16 = Annotated[bool, Option("Train in bfloat16.", panel="Training")]
Indicators = Annotated[Sequence[str] | None, Option(
    "Write these words before the two sentences: Premise,Hypothesis.", metavar="A,B",
    panel="Sentence pairs only")]
InputFormat = Annotated[Joined | None, Option(
    "Give the model two segments (pair: the default of encoders) or one text (string).",
    panel="Sentence pairs only")]
ReadAt = Annotated[Pool | None, Option(
    "Decoders: classify by the last token, by an end token after it, or by the mean.",
    panel="Sentence pairs only")]
MaxLength = Annotated[int | None, Option(
    "Truncate sentence pairs to this many tokens [default: the model's limit].", min=8,
    panel="Sentence pairs only")]
StudyFile = Annotated[FilePath, Option(
    "The study: a TOML file (docs/studies.md).", metavar="FILE", is_argument=True)]
RunPath = Annotated[FilePath, Option(
    "The folder of a run, or a table of answers.", metavar="RUN", is_argument=True)]
