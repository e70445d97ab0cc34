"""Compare runs on the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from consilience.errors import ConsilienceError
from consilience.metrics.compare import compare, few_relations
from consilience.metrics.perturbed import Labels, compare_perturbed
from consilience.run import Run
from consilience.types import Protocol, Suite
from consilience.workflow.pairs import labels_of, task_asked
from consilience.workflow.suite import suite_notes, suite_of

TEXTS = ("subject", "gold")
"""Of an item of sentence pairs: the first sentence and the label."""

SAME_DATA = "Ask both models of the same --data."

SHOWN_TEXT = 60
"""Characters of a sentence in a message."""

TRUNCATED = "items were too long for"
"""What the note of a run on truncated forms says (``perturb.write_forms``)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Later runs against the first."""

    table: pl.DataFrame
    """One row a difference (``COMPARISON_SCHEMA``; of sentence pairs ``DIFFERENCE_SCHEMA``)."""
    notes: Sequence[str]
    """What a reader should know."""
    suite: Suite | None = None
    """The suite, of runs of a suite."""
    protocol: Protocol | None = None
    """How the answers were counted, of runs of a suite."""


def compare_runs(
    runs: Sequence[Run],
    suite: str | None = None,
    protocol: Protocol | None = None,
    *,
    seed: int = 0,
    data_dir: Path | None = None,
) -> Comparison:
    """Later runs against the first, by the suite and the protocol of the first unless given.

    Runs of sentence pairs take neither.
    """
    if any(run.is_of_pairs for run in runs):
        given = {"--suite": suite, "--protocol": protocol, "--data-dir": data_dir}
        for option, value in given.items():
            if value is not None:
                raise ConsilienceError(
                    f"{option} with runs of perturb",
                    expected="none: a pair's label is kept or not, and the run says which pairs",
                    todo="Leave it out.",
                )
        return compare_pairs(runs, seed)
    chosen, rules = suite_of(runs[0], suite, protocol, data_dir)
    table = compare({run.label: run.answers for run in runs}, chosen, rules, seed)
    notes = suite_notes(runs[0], chosen) + settings_notes(runs) + few_relations(table)
    return Comparison(table, notes, chosen, rules)


def compare_pairs(runs: Sequence[Run], seed: int = 0) -> Comparison:
    """Runs of sentence pairs against the first: means over seeds, on the same items.

    What only some of the runs have, such as what a model wrote freely, is in no difference.
    """
    if len(runs) < 2 or not all(run.is_of_pairs for run in runs):
        raise ConsilienceError(
            "runs of perturb, and others",
            expected="two runs of perturb or more, of the same task and data",
        )
    tables = [[seed.answers for seed in run.seeds] for run in runs]
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
    for run in runs:
        labels |= labels_of(task_asked(run))
    parts = [
        compare_perturbed(tables[0], others, labels, seed).with_columns(
            pl.lit(runs[0].label).alias("first"), pl.lit(run.label).alias("second")
        )
        for run, others in zip(runs[1:], tables[1:], strict=True)
    ]
    notes += [f"{group}: not in all runs, so in no difference" for group in left]
    return Comparison(pl.concat(parts), notes)


def _check_texts(runs: Sequence[Run], tables: Sequence[Sequence[pl.DataFrame]]) -> list[str]:
    """Raise where a later run was asked about other pairs than the first; notes on other forms.

    The answers have the first sentence of each item. The digest of a run's pairs is of both
    sentences and of the order of the items.
    """
    one, *others = runs
    pairs, notes = _pairs_in(tables[0][0]), []
    for other, seeds in zip(others, tables[1:], strict=True):
        first, second = one.label, other.label
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
                where=str(other.path),
                todo=SAME_DATA,
            )
        if _digests(one) != _digests(other):
            if pairs.equals(found):
                raise ConsilienceError(
                    f"runs over different texts: {second} has the first sentences and golds of "
                    f"{first}, and other second sentences",
                    expected="runs over the same pairs, whose SHA-256 is 'pairs' in run.json",
                    where=str(other.path),
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


def _digests(run: Run) -> set[str]:
    """The digests of the pairs of all seeds."""
    return {str(seed.settings.get("pairs")) for seed in run.seeds}


def _forms_of(run: Run) -> list[str]:
    """What decides the forms of a run's pairs, as notes: its indicators, what was truncated."""
    first, second = task_asked(run).indicators
    noted = [note for seed in run.seeds for note in seed.record.get("warnings", [])]
    truncated = [note for note in noted if TRUNCATED in note]
    return [f"asked with the indicators {first}, {second}", *dict.fromkeys(truncated)]


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + "..."


def settings_notes(runs: Sequence[Run]) -> list[str]:
    """Settings in which later runs differ from the first, if both are known."""
    first, *others = runs
    notes = []
    for run in others:
        for name in ("suite_digest", "protocol", "candidates", "vocabulary"):
            ours, theirs = first.settings.get(name), run.settings.get(name)
            if first.settings and run.settings and ours != theirs:
                notes.append(
                    f"{run.label} was asked with another {name}: {theirs}, {first.label} with "
                    f"{ours}"
                )
    return notes
