"""Compare runs on the same questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from consilience.choices import By, Protocol
from consilience.errors import ConsilienceError
from consilience.metrics.counts import OtherQuestionsError, Prepared
from consilience.metrics.differences import Seeds, compare
from consilience.metrics.language_differences import compare_languages
from consilience.metrics.notes import few_relations, other_candidates
from consilience.metrics.registry import label_of
from consilience.options import Output
from consilience.report.comparison_tables import comparison_table
from consilience.report.language_tables import language_differences
from consilience.report.noise_tables import worst_flips
from consilience.report.shown import Shown, record_of, rows_of
from consilience.report.table import Table
from consilience.run import Run, open_runs
from consilience.types import QUESTION_WORDS, Suite
from consilience.workflow.common_items import check_texts, common_answers, shared_groups
from consilience.workflow.counting import noise_floor_of
from consilience.workflow.question_texts import paired_by_text
from consilience.workflow.run_options import CompareOptions
from consilience.workflow.suite import any_suite_of, suite_notes

DIGITS = 8
"""Digits of a SHA-256 in a note."""

SHARES_OF_ANSWERS = ("accuracy", "consistency", "consistent_accuracy")
"""Headline numbers that answers which flip change by about their share."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Shown):
    """Later runs against the first, or the languages of one run.

    In a notebook it is shown as the headline differences.
    """

    runs: Sequence[Run]
    """The runs."""
    suite: Suite
    """What they were asked."""
    protocol: Protocol
    """How the answers were counted."""
    table: pl.DataFrame
    """One row a difference (``COMPARISON_SCHEMA``)."""
    notes: Sequence[str]
    """What a reader should know."""

    def headlines(self) -> Table:
        """The differences of the headline numbers, as a table."""
        return self.shown()

    def shown(self, metrics: Sequence[str] = (), by: By | None = None) -> Table:
        """The differences of some metrics, as ``--show`` and ``--by`` choose them."""
        if len(self.runs) > 1:
            return comparison_table(self.table, self.suite, metrics, by)
        if by not in (None, "group"):
            raise ConsilienceError(
                f"--by {by} for one run, whose languages are compared",
                expected="--by group, or no --by",
                todo="--show chooses metrics; --csv and --json have all of them.",
            )
        return language_differences(self.table, self.suite, metrics, by_group=by == "group")

    def warnings(self) -> list[str]:
        """The notes, and those on means over few relations, which tables show below their rows."""
        return [*self.notes, *few_relations(self.table, self.suite)]

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The differences, and which tables have details."""
        yield self.shown(output.show, output.by)
        if output.by is None and output.format == "table" and len(self.runs) > 1:
            groups, is_of_questions = self.suite.relations, self.suite.words is QUESTION_WORDS
            has_languages = any(group.design.languages for group in groups)
            names = ["group", *["edit"] * any(group.edges for group in groups)]
            names += ["form"] * any(len(group.design.forms) > 1 for group in groups)
            names += ["factor"] * (has_languages or is_of_questions)
            yield f"Details: --by {', '.join(names)} or metric"

    def document(self) -> dict[str, Any]:
        """The differences as rows."""
        runs = [str(run.path) for run in self.runs]
        record = record_of(runs=runs, suite=self.suite.name, protocol=self.protocol)
        return {"run": record, "differences": rows_of(self.table), "warnings": self.warnings()}

    def frame(self) -> pl.DataFrame:
        """All differences (``COMPARISON_SCHEMA``)."""
        return self.table


def compare_runs(options: CompareOptions) -> Comparison:
    """Later runs against the first, by the suite and the protocol of the first unless given.

    Of one run, every two languages of its suite are compared. Several seeds of a run are averaged.
    Of sentence pairs, groups that only some of the runs have, such as what a model wrote freely,
    are in no difference.
    """
    runs = open_runs(options.runs)
    refuse_mixed(runs)
    suite, protocol = any_suite_of(runs[0], options.suite, options.protocol, options.data_dir)
    return compare_opened(runs, suite, protocol, options.seed)


def compare_opened(runs: Sequence[Run], suite: Suite, protocol: Protocol, seed: int) -> Comparison:
    """Later runs against the first, or the languages of one run."""
    refuse_mixed(runs)
    refuse_other_variants(runs)
    notes: list[str] = []
    if len(runs) == 1 and len(suite) and any(group.design.languages for group in suite):
        table = compare_languages(runs[0].tables, suite, protocol, seed)
    else:
        table, notes = differences_of(runs, suite, protocol, seed)
    changed = [note for run in runs for note in suite_notes(run, suite)]
    notes = changed + settings_notes(runs) + notes + noise_notes(runs, table)
    return Comparison(runs, suite, protocol, table, notes)


def differences_of(
    runs: Sequence[Run],
    suite: Suite,
    protocol: Protocol,
    seed: int,
    tables: Mapping[str, Sequence[Prepared]] | None = None,
) -> tuple[pl.DataFrame, list[str]]:
    """Later runs against the first (``COMPARISON_SCHEMA``), and what a reader should know.

    Runs of other items are compared on those that all have. ``tables``: the answers by run, where
    they are prepared already.
    """
    answers: Mapping[str, Seeds]
    answers, notes = paired_by_text(runs)
    if runs[0].is_of_pairs:
        answers, left_out = shared_groups(answers)
        notes += check_texts(runs, answers)
        notes += [f"{group}: not in all runs, so in no difference" for group in left_out]
    elif tables and all(run.texts == runs[0].texts for run in runs):
        answers = tables
    try:
        return compare(answers, suite, protocol, seed), notes
    except OtherQuestionsError:
        common, notes = common_answers(runs, suite)
    return compare(common, suite, protocol, seed), notes


def refuse_mixed(runs: Sequence[Run]) -> None:
    """Raise for runs of sentence pairs together with others, and for runs of other suites."""
    if len({run.is_of_pairs for run in runs}) > 1:
        raise ConsilienceError(
            "runs of sentence pairs, and others",
            expected="runs of one suite, or of the same task and data",
        )
    suites = {run.label: run.settings["suite"] for run in runs if "suite" in run.settings}
    if len(set(suites.values())) > 1:
        names = ", ".join(f"{label} of {suite}" for label, suite in suites.items())
        raise ConsilienceError(
            f"runs of different suites: {names}",
            expected="runs of one suite",
            todo="Probe both models with the same --suite.",
        )


def refuse_other_variants(runs: Sequence[Run]) -> None:
    """Raise for runs of questions that were asked in other variants than the first."""
    of_questions = [run for run in runs if "cells" in run.settings]
    designs = [(run.settings["factors"], run.settings["cells"]) for run in of_questions]
    if all(design == designs[0] for design in designs):
        return
    levels = "; ".join(
        f"{run.path}: {len(cells)} variants of "
        + (" x ".join(f"{name} {len(levels)}" for name, levels in factors.items()) or "no factor")
        for run, (factors, cells) in zip(of_questions, designs, strict=True)
    )
    raise ConsilienceError(
        f"runs in different variants: {levels}",
        expected="runs with the same levels of the same factors",
        todo="Probe both with the same --suite, --vary and --design.",
    )


def settings_notes(runs: Sequence[Run]) -> list[str]:
    """Settings in which later runs differ from the first, if both are known."""
    first, *others = runs
    notes = []
    for run in others:
        for name in ("suite_digest", "protocol", "candidates", "vocabulary"):
            ours, theirs = first.settings.get(name), run.settings.get(name)
            if first.settings and run.settings and ours != theirs:
                if name == "suite_digest":
                    if first.texts and run.texts:  # which are compared
                        continue
                    digests = " and ".join(str(digest)[:DIGITS] for digest in (theirs, ours))
                    notes.append(
                        f"{run.label} was asked other items or variants than {first.label} "
                        f"(SHA-256 of the suites: {digests})"
                    )
                    continue
                notes.append(
                    f"{run.label} was asked with another {name}: {theirs}, {first.label} with "
                    f"{ours}"
                )
        if not first.is_of_pairs and "cells" not in first.settings:
            answers = {one.label: one.seeds[0].answers for one in (first, run)}
            notes += other_candidates(answers)
    return notes


def noise_notes(runs: Sequence[Run], table: pl.DataFrame) -> list[str]:
    """Which headline differences are no larger than the noise floor of one of the two runs."""
    floors = {run.label: noise_floor_of(run.path) for run in runs}
    worst = {
        name: flips
        for name, rows in floors.items()
        if rows is not None and (flips := worst_flips(rows)) is not None
    }
    headlines = table.filter(
        pl.col("metric").is_in(SHARES_OF_ANSWERS)
        & (pl.col("subset") == "all")
        & (pl.col("difference").abs() > 0)
    )
    pool = "MACRO" if "MACRO" in headlines["group"] else "MICRO"
    if pool in headlines["group"]:
        headlines = headlines.filter(group=pool)
    notes = []
    for (first, second), rows in headlines.group_by("first", "second", maintain_order=True):
        known = [(worst[name], name) for name in (first, second) if name in worst]
        if not known:
            continue
        floor, name = max(known, key=lambda pair: pair[0]["value"])
        inside = rows.filter(pl.col("difference").abs() <= floor["value"])["metric"]
        if len(inside):
            named = ", ".join(dict.fromkeys(map(label_of, inside)))
            notes.append(
                f"{second} against {first}: inside the noise floor, so no difference between the "
                f"models: {named}; {floor['value']:.1%} of {floor['n']} answers of {name} changed "
                "when nothing was changed in the prompts"
            )
    return notes
