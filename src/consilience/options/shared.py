"""Types of options that several commands have: each is declared once.

A parameter has one as its type; ``Annotated[Groups, {"is_rare": True}]`` replaces facts of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from consilience.core.errors import By, Protocol
from consilience.options import FACTS, QUESTIONS, FilePath, Named, Option, OptionalPath, Paths

# fmt: off
SuiteArgument = Annotated[str, Option("The suite: mini, pararel or a folder.", "SUITE")]
RunProtocol = Annotated[Protocol | None, Option(
    "Count as the papers' code (published) or text (strict) [default: that of the run].",
    is_rare=True)]
TableBy = Annotated[By | None, Option("Print the numbers of each of these.")]
RunSpecs = Annotated[Paths, Option(
    "Runs or files of answers; LABEL=RUN names one. The first is the reference.", "RUN")]
Runs = Annotated[Paths, Option("Runs or files of answers; LABEL=RUN names one.", "RUN")]
Groups = Annotated[Sequence[str] | None, Option(
    "Only these relations or groups, such as P36,P19.", "G,G")]
Vary = Annotated[Named, Option(
    "A factor and its levels: order=rotations, labels=A,1. Of facts language=L,L "
    "(docs/factors.md).", "FACTOR=LEVELS", kinds=FACTS + QUESTIONS, is_repeated=True, joins=",")]
ColumnNames = Annotated[Named, Option(
    "Columns of the file: question=Q1+Q2,options=A+B+C+D.", "OURS=YOURS", kinds=QUESTIONS,
    joins="+")]
SheetFolder = Annotated[FilePath, Option("Write the sheets to this new folder.", "DIR", "-o")]
DataDir = Annotated[OptionalPath, Option(
    "Where fetched suites are [env: CONSILIENCE_DATA].", "DIR")]
Folder = Annotated[OptionalPath, Option(
    "Keep the run in this folder [default: a new one in runs/].", "DIR", "-o")]
AsQuestions = Annotated[int | None, Option(
    "Ask facts as questions with K wrong options; 0 for open ones.", "K", min=0,
    kinds=FACTS + QUESTIONS, is_rare=True)]
Device = Annotated[str, Option(
    "auto, cpu, cuda, cuda:1 or mps.", "DEVICE", pattern="auto|cpu|mps|cuda(:\\d+)?")]
TrustRemoteCode = Annotated[bool, Option(
    "Run the Python code of the model. Read it first.", is_rare=True, needs_trust=bool)]
BaseUrl = Annotated[str | None, Option(
    "Ask --model at this API, such as http://127.0.0.1:8000/v1.", "URL", needs_trust=bool)]
ApiKeyEnv = Annotated[str | None, Option(
    "The variable of the key [default: OPENAI_API_KEY, over https or to this machine].", "NAME",
    needs_trust=bool, is_rare=True)]
Bf16 = Annotated[bool, Option("Train in bfloat16.", is_rare=True)]
StudyFile = Annotated[FilePath, Option("The study: a TOML file (docs/studies.md).", "FILE")]
RunPath = Annotated[FilePath, Option("The folder of a run, or a file of answers.", "RUN")]
Page = Annotated[OptionalPath, Option(
    "Write the page to this file [default: report.html in the folder].", "FILE", "-o")]
Tables = Annotated[OptionalPath, Option(
    "Write the tables to this folder: CSV, Markdown, LaTeX.", "DIR")]
