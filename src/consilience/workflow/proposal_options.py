"""The options of the commands that take patterns into a suite, or propose them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from consilience.workflow.options import OUTPUT, QUESTIONS, DataDir, FactsFrom, Option

ImportFormat = Literal["proposals", "suite", "lama", "mpararel", "lpaqa", "table", "list"]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Import patterns and facts into a suite folder.

    Formats: proposals (of `suite mine` and `suite rewrite`), suite folders, LAMA, LPAQA, mParaRel
    and mLAMA, spreadsheets (CSV, TSV, XLSX, Parquet), and lists with a pattern a line. Duplicates
    are left out: patterns that differ in case, spaces or final punctuation only. Near-duplicates
    are listed: patterns that differ in determiners only, or in one token of three or more. Each
    pattern gets a row in the table `provenance`.
    """

    path: Annotated[Path, Option("Import this file or folder.", metavar="SOURCE", is_argument=True)]
    folder: Annotated[
        Path,
        Option(
            "Add to this suite folder, which may be new.",
            metavar="DIR",
            flag="--into",
            panel=OUTPUT,
        ),
    ]
    format_: Annotated[
        ImportFormat | None,
        Option("Read the source in this format [default: detected].", flag="--format"),
    ] = None
    relation: Annotated[
        str,
        Option("Import the patterns for this relation, where the source names none."),
    ] = ""
    columns: Annotated[
        Sequence[str] | None,
        Option(
            "Read the table's columns under these names, such as pattern=Text,relation=Property.",
            metavar="OURS=YOURS",
        ),
    ] = None
    languages: Annotated[
        Sequence[str],
        Option(
            "Import these languages of mParaRel, such as en,de; or name the language of the "
            "patterns of another source [default: all; en].",
            metavar="L,L",
            flag="--language",
        ),
    ] = ()
    facts_from: Annotated[FactsFrom, QUESTIONS] = None
    near: Annotated[
        Literal["keep", "drop"], Option("Keep or drop near-duplicates.", flag="--near-duplicates")
    ] = "keep"
    source: Annotated[
        str,
        Option(
            "Name this source in the provenance [default: the name of the file].",
            metavar="TEXT",
        ),
    ] = ""
    licence: Annotated[
        str,
        Option("The licence of patterns whose source states none: an SPDX id, or words."),
    ] = ""
    dry_run: Annotated[
        bool, Option("Show what would be imported; write nothing.", panel=OUTPUT)
    ] = False
    data_dir: DataDir = None
