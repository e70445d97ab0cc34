"""compare: two runs or more on the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from consilience.cli.perturb import is_perturbed, labels_of, task_asked
from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    names_in,
    names_of,
    out,
    print_json,
    rows_of,
    seeds_of,
    suite_of,
    warn,
)
from consilience.errors import ConsilienceError
from consilience.files import csv_of, write_whole
from consilience.metrics.compare import compare as compare_answers
from consilience.metrics.compare import few_relations
from consilience.metrics.perturbed import Labels, compare_perturbed
from consilience.report.comparison import comparison_tables
from consilience.report.perturbed import difference_tables
from consilience.run import asked_of, git_revision, read_answers, record_of, versions

TEXTS = ("subject", "gold")
"""Of an item of sentence pairs: the first sentence and the label."""

SAME_DATA = "Ask both models of the same --data."

SHOWN_TEXT = 60
"""Characters of a sentence in a message."""

TRUNCATED = "items were too long for"
"""What the note of a run on truncated forms says (``perturb.write_forms``)."""

SHOWN = "accuracy,consistency,determinism,corrected_consistency,consistent_accuracy"


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
    if any(is_perturbed(run) for run in runs):
        if protocol is not None or data_dir is not None:
            raise ConsilienceError(
                f"--{'protocol' if protocol else 'data-dir'} with runs of perturb",
                expected="none: a pair's label is kept or not, and the run says which pairs",
                todo="Leave it out.",
            )
        _compare_perturbed(runs, suite, show, file, seed, as_json)
        return
    chosen, rules = suite_of(runs[0], suite, protocol, data_dir)
    tables = {name: read_answers(run) for name, run in zip(names_of(runs), runs, strict=True)}
    compared = compare_answers(tables, chosen, rules, seed)
    if file:
        write_whole(file, csv_of(compared))
    warnings = asked_otherwise(list(tables), asked) + few_relations(compared)
    if as_json:
        record = {
            "asked": {"runs": [str(run) for run in runs], "suite": chosen.name, "protocol": rules},
            "versions": versions(),
            "git": git_revision(),
        }
        rows = rows_of(compared)
        print_json({"run": record, "differences": rows, "warnings": warnings})
        return
    shown = names_in(show)
    if show == SHOWN:  # of N-M relations the determinism, of N-1 relations the consistency
        shown = [each for each in shown if each in set(compared["metric"])]
    for table in comparison_tables(compared, shown, f"{chosen.name}, protocol {rules}"):
        out.print(table)
    warn(warnings)


def _compare_perturbed(
    runs: list[Path], suite: str | None, show: str, file: Path | None, seed: int, as_json: bool
) -> None:
    """Runs of perturb: means over seeds, on the same items."""
    if suite is not None or not all(is_perturbed(run) for run in runs) or len(runs) < 2:
        raise ConsilienceError(
            "runs of perturb, and others" if suite is None else "--suite with runs of perturb",
            expected="two runs of perturb or more, of the same task and data",
        )
    named = dict(zip(names_of(runs), runs, strict=True))
    compared, warnings = perturbed_differences(named, seed)
    if file:
        write_whole(file, csv_of(compared))
    if as_json:
        record = {
            "asked": {"runs": [str(run) for run in runs]},
            "versions": versions(),
            "git": git_revision(),
        }
        document = {"run": record, "differences": rows_of(compared), "warnings": warnings}
        print_json(document)
        return
    for table in difference_tables(compared, names_in(show)):
        out.print(table)
    warn(warnings)


def perturbed_differences(runs: Mapping[str, Path], seed: int) -> tuple[pl.DataFrame, list[str]]:
    """Differences of runs of perturb from the first, with the names of both, and what is left out.

    What only some of the runs have, such as what a model wrote freely, is in no difference.
    """
    names = list(runs)
    tables = [[read_answers(place) for place in seeds_of(run)] for run in runs.values()]
    groups = [{group for seed in seeds for group in seed["group"]} for seeds in tables]
    shared = set.intersection(*groups)
    left = sorted(set.union(*groups) - shared)
    if not shared:
        raise ConsilienceError(
            f"nothing that all runs were asked: {', '.join(left)}", expected="runs of the same task"
        )
    tables = [[seed.filter(pl.col("group").is_in(shared)) for seed in seeds] for seeds in tables]
    notes = _check_texts(runs, tables)
    labels: dict[str, Labels] = {}
    for run in runs.values():
        labels |= labels_of(task_asked(run))
    parts = [
        compare_perturbed(tables[0], others, labels, seed).with_columns(
            pl.lit(names[0]).alias("first"), pl.lit(name).alias("second")
        )
        for name, others in zip(names[1:], tables[1:], strict=True)
    ]
    notes += [f"{group}: not in all runs, so in no difference" for group in left]
    return pl.concat(parts), notes


def _check_texts(runs: Mapping[str, Path], tables: Sequence[Sequence[pl.DataFrame]]) -> list[str]:
    """Raise where a later run was asked about other pairs than the first; notes on other forms.

    The answers have the first sentence of each item. The digest of a run's pairs is of both
    sentences and of the order of the items.
    """
    (first, one), *others = runs.items()
    pairs, notes = _pairs_in(tables[0][0]), []
    for (second, other), seeds in zip(others, tables[1:], strict=True):
        found = _pairs_in(seeds[0])
        both = pairs.join(found, on=["group", "item"], maintain_order="left")
        same = pl.all_horizontal(pl.col(name) == pl.col(f"{name}_right") for name in TEXTS)
        if (differ := both.filter(~same)).height:
            row = differ.row(0, named=True)
            raise ConsilienceError(
                f"runs over different texts: {differ.height} of {both.height} items have another "
                f"first sentence or gold, the first is '{row['item']}': "
                f"'{_short(row['subject'])}', {row['gold']} in {first}, and "
                f"'{_short(row['subject_right'])}', {row['gold_right']} in {second}",
                expected="runs over the same pairs",
                where=str(other),
                todo=SAME_DATA,
            )
        if _digests(one) != _digests(other):
            if pairs.equals(found):
                raise ConsilienceError(
                    f"runs over different texts: {second} has the first sentences and golds of "
                    f"{first}, and other second sentences",
                    expected="runs over the same pairs, whose SHA-256 is 'pairs' in run.json",
                    where=str(other),
                    todo=SAME_DATA,
                )
            notes.append(
                f"{second} has the items in another order than {first}; whether their second "
                "sentences are the same is not known"
            )
        forms = {first: _forms_of(one), second: _forms_of(other)}
        shared = set.intersection(*map(set, forms.values()))
        for name, said in forms.items():
            notes += [f"{name}: {each}" for each in said if each not in shared]
    return list(dict.fromkeys(notes))


def _pairs_in(table: pl.DataFrame) -> pl.DataFrame:
    """The items of a table with their first sentences and golds."""
    return table.filter(pl.col("variant_index") == 0).select("group", "item", *TEXTS)


def _digests(run: Path) -> set[str]:
    """The digests of the pairs of all seeds."""
    return {str(asked_of(seed).get("pairs")) for seed in seeds_of(run)}


def _forms_of(run: Path) -> list[str]:
    """What decides the forms of a run's pairs, as notes: its indicators, what was truncated."""
    first, second = task_asked(run).indicators
    noted = [note for seed in seeds_of(run) for note in record_of(seed).get("warnings", [])]
    truncated = [note for note in noted if TRUNCATED in note]
    return [f"asked with the indicators {first}, {second}", *dict.fromkeys(truncated)]


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + "..."


def asked_otherwise(names: Sequence[str], asked: Sequence[Mapping[str, object]]) -> list[str]:
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
