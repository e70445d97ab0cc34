"""compare: two runs or more on the same questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    names_in,
    names_of,
    out,
    rows_of,
    suite_of,
    warn,
)
from consilience.metrics.compare import compare as compare_answers
from consilience.report.comparison import comparison_tables
from consilience.run import asked_of, git_revision, read_answers, versions, write_whole

SHOWN = "accuracy,consistency,corrected_consistency,consistent_accuracy"


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, or answers tables. Each is held against the first."),
    ],
    suite: Annotated[
        str | None,
        typer.Option(help="A name or a folder; else that of the first run.", metavar="S"),
    ] = None,
    protocol: ProtocolOption = None,
    show: Annotated[
        str, typer.Option(help="Metrics to print; all are in --out and --json.", metavar="M,M")
    ] = SHOWN,
    file: Annotated[
        Path | None, typer.Option("--out", help="Write all differences here, as CSV.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap and the permutations.")] = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Differences between runs on the same questions, with intervals and tests.

    Each difference is a later run minus the first: paired, with a 95 % interval, an exact McNemar
    or permutation test, p adjusted over relations, and the smallest difference that the data could
    have shown.
    """
    asked = [asked_of(run) for run in runs]
    chosen, rules = suite_of(runs[0], suite, protocol, data_dir)
    tables = {name: read_answers(run) for name, run in zip(names_of(runs), runs, strict=True)}
    compared = compare_answers(tables, chosen, rules, seed)
    if file:
        write_whole(file, compared.write_csv().encode())
    warnings = _differences(list(tables), asked)
    if as_json:
        record = {
            "asked": {"runs": [str(run) for run in runs], "suite": chosen.name, "protocol": rules},
            "versions": versions(),
            "git": git_revision(),
        }
        rows = rows_of(compared)
        print(json.dumps({"run": record, "differences": rows, "warnings": warnings}))
        return
    for table in comparison_tables(compared, names_in(show), f"{chosen.name}, protocol {rules}"):
        out.print(table)
    warn(warnings)


def _differences(names: list[str], asked: list[dict[str, object]]) -> list[str]:
    """In what the later runs were asked otherwise than the first."""
    found = []
    for name, each in zip(names[1:], asked[1:], strict=True):
        for option in ("suite_digest", "protocol", "candidates", "vocabulary"):
            if asked[0] and each and asked[0].get(option) != each.get(option):
                found.append(
                    f"{name} was asked with another {option}: {each.get(option)}, "
                    f"{names[0]} with {asked[0].get(option)}"
                )
    return found
