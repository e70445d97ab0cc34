"""What the commands share: options, the two consoles, tables, progress."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import polars as pl
import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from consilience import suites
from consilience.cli.process import Terminal, json_text
from consilience.errors import ConsilienceError
from consilience.run import asked_of, protocol_of, record_of
from consilience.types import Protocol, Suite

N = TypeVar("N", int, float)

out = Terminal(markup=False)
err = Terminal(stderr=True, markup=False)


class ProtocolName(StrEnum):
    """How answers are counted."""

    published = "published"
    strict = "strict"


SuiteOption = Annotated[
    str, typer.Option("--suite", help="A name (mini, pararel) or a folder.", metavar="S")
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where fetched suites lie (also CONSILIENCE_DATA)."),
]
ProtocolOption = Annotated[
    ProtocolName | None,
    typer.Option(help="published: the papers' rules; strict: the text's definitions."),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run the Python code that comes with the model. Read that code first.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
AsShipped = Annotated[
    bool, typer.Option("--as-shipped", help="Keep the ParaRel tuples that the paper leaves out.")
]


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    print(json_text(document))


def without_nan(value: Any) -> Any:
    """The same with None for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def rows_of(table: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON, which has no NaN."""
    return table.with_columns(pl.col(pl.Float64).fill_nan(None)).to_dicts()


def names_in(listed: str) -> list[str]:
    """The names of a list with commas."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise ConsilienceError(f"no name in '{listed}'", expected="names with commas between")
    return names


def numbers_in(text: str, kind: type[N], expected: str) -> list[N]:
    """The numbers of a list with commas; ``expected``: what one looks like."""
    found = []
    for each in names_in(text):
        try:
            found.append(kind(each))
        except ValueError:
            raise ConsilienceError(f"no number in '{each}'", expected=expected) from None
    return found


def names_of(runs: list[Path]) -> list[str]:
    """The runs' names, with more of their paths where these are the same."""
    for parts in range(1, max(len(run.resolve().parts) for run in runs) + 1):
        names = ["/".join(run.resolve().parts[-parts:]) for run in runs]
        if len(set(names)) == len(names):
            return names
    raise ConsilienceError(
        "a run stands twice", expected="different runs", where=", ".join(map(str, runs))
    )


def seeds_of(run: Path) -> list[Path]:
    """The runs of all seeds in a folder that perturb wrote; itself where it asked one model."""
    found = [each for each in run.glob("seed-*") if (each / "run.json").is_file()]
    return sorted(found, key=by_number) or [run]


def by_number(path: Path) -> tuple[int, str]:
    """Sorts seed-2 before seed-10."""
    return len(path.name), path.name


def refuse_pairs(run: Path) -> None:
    """Raise for a folder that perturb wrote, of one model or of several seeds."""
    seeds = seeds_of(run)
    if asked_of(seeds[0]).get("kind") == "perturb":
        several = f" with {len(seeds)} seeds" if len(seeds) > 1 else ""
        raise ConsilienceError(
            f"a run of sentence pairs{several}",
            expected="a run of probe",
            where=str(run),
            todo="Its changed answers are in inconsistent.csv; `consilience compare`, `consilience "
            "report` and `consilience analyze tasks` take such runs.",
        )


def suite_of(
    run: Path, suite: str | None, protocol: ProtocolName | None, data_dir: Path | None
) -> tuple[Suite, Protocol]:
    """The suite and the protocol of a run's answers: what is given, else what the run was asked."""
    refuse_pairs(run)
    asked = asked_of(run)
    if suite is None and "suite" not in asked:
        raise ConsilienceError(
            "not the folder of a run, which would tell its suite",
            where=str(run),
            todo="Name the suite: --suite S.",
        )
    as_shipped = bool(asked.get("as_shipped"))
    source = record_of(run).get("suite_source", {})
    kept = str(source.get("folder", ""))
    named = kept if kept and data_dir is None and Path(kept).is_dir() else str(asked.get("suite"))
    found = suites.load_suite(suite or named, data_dir, as_shipped=as_shipped)
    warn(suite_remark(run, found))
    return found, protocol.value if protocol else protocol_of(run) or found.protocol


def source_of(suite: Suite, spec: str, data_dir: Path | None) -> dict[str, str]:
    """Where a whole suite is and what it is, for the record of a run: its name may not tell."""
    folder = suites.suite_folder(spec, suites.data_dir(data_dir)).resolve()
    return {"folder": str(folder), "digest": suite.digest}


def suite_remark(run: Path, suite: Suite) -> list[str]:
    """What to say where a whole suite is not the one that a run was asked from."""
    digest = record_of(run).get("suite_source", {}).get("digest", suite.digest)
    if digest == suite.digest:
        return []
    return [f"the suite '{suite.name}' is not as it was when {run} was asked; numbers may differ"]


def protocol_remark(run: Path, protocol: Protocol) -> list[str]:
    """What a reader of numbers by this protocol should know of a run that was asked under one."""
    asked_under = protocol_of(run)
    if asked_under in (None, protocol):
        return []
    return [
        f"the run was asked under {asked_under}, which decided the token of each candidate; for "
        f"{protocol} throughout, probe with --protocol {protocol}"
    ]


def warn(warnings: Iterable[str]) -> None:
    """Say what a reader should know."""
    for warning in warnings:
        err.print(f"note: {warning}", soft_wrap=True, highlight=False, markup=False)


class _Rate(ProgressColumn):
    """How many steps a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


class _Advance:
    """Advances one progress bar; knows or learns its total."""

    def __init__(self, progress: Progress, text: str, total: int | None) -> None:
        self.progress = progress
        self.task = progress.add_task(text, total=total)

    def __call__(self, steps: int, total: int | None = None) -> None:
        if total is not None:
            self.progress.update(self.task, total=total)
        self.progress.advance(self.task, steps)


@contextmanager
def progress_bar(text: str, total: int | None, unit: str = "queries") -> Iterator[_Advance]:
    """A bar on standard error; what it gives is called with steps done, and a total if known."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as progress:
        yield _Advance(progress, text, total)


@contextmanager
def quiet_libraries(loads: str = "") -> Iterator[None]:
    """Keep the bars and advice of the model libraries out of the output.

    ``loads``: the model that is loaded first, which takes seconds and is announced in one line.
    """
    if loads and not loads.startswith("baseline:"):
        err.print(f"loading {loads} ...", soft_wrap=True, highlight=False, markup=False)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        from transformers.utils import logging
    except ImportError:
        yield
        return
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    yield
