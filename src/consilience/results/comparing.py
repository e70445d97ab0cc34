"""Comparing runs: the items they have in common, and their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from consilience.analysis.flips import FLIP_SCHEMA, NOISE, QUERY, SAME_MODEL, flip_rows
from consilience.core.errors import By, ConsilienceError, Protocol
from consilience.core.text import counted
from consilience.elsewhere import open_runs
from consilience.metrics.counts import Prepared
from consilience.metrics.differences import compare
from consilience.metrics.measure import few_relations, other_candidates, without_answer
from consilience.metrics.registry import label_of
from consilience.options.runs import CompareOptions
from consilience.probing.counting import NOT_FINISHED, counted_by, noise_floor_of
from consilience.report.columns import noise_row
from consilience.report.comparison_tables import (
    chosen_rows,
    comparison_table,
    flip_table,
    flip_verdict,
    flipped_table,
    verdict,
)
from consilience.report.export import Displayed, Output, record_of
from consilience.runs.run import Run
from consilience.types import Suite

SHOWN_FLIPS = 10  # changed answers that a terminal shows
ORDERS = ("order", "context")  # factors whose levels are letters

SHARES_OF_ANSWERS = ("accuracy", "consistency", "consistent_accuracy")
"""Headline numbers that answers which flip change by about their share."""


@dataclass(frozen=True)
class Common:
    """What all of some runs were asked: the same group, item, variant, subject and gold."""

    runs: Sequence[Run]  # With variants named alike
    suite: Suite
    """The groups and variants of the first run that all have; the protocol is that of counting."""
    answers: Mapping[str, Prepared]  # Those of each run, by its label
    notes: Sequence[str]  # How much is common

    @classmethod
    def of(cls, runs: Sequence[Run], suite: Suite) -> Common:
        """``suite``: that of the first run, or some of its groups; nothing in common raises."""
        runs, suite = _named_alike(runs, suite)
        tables = {run.label: run.answers for run in runs}
        keys = [*QUERY, "subject", "gold"]
        in_suite = pl.col("group").is_in([one.id for one in suite])
        first, *others = (of.filter(in_suite).select(keys) for of in tables.values())
        shared = first
        for other in others:
            if not shared.equals(other):
                how: Any = {"how": "semi", "nulls_equal": True, "maintain_order": "left"}
                shared = shared.join(other, on=keys, **how)
        if shared.is_empty():
            counts = ", ".join(f"{label} has {of.height:,}" for label, of in tables.items())
            raise ConsilienceError(
                f"no query that all runs have: {counts}",
                expected="some with the same group, item, variant and right answer",
                todo="Probe all models with the same --suite, --data and --vary.",
            )
        variants = dict(shared.group_by("group").agg(pl.col("variant").unique()).iter_rows())
        common = tuple(one.only(variants[one.id]) for one in suite if one.id in variants)
        suite = replace(suite, relations=common)
        is_whole = all(of.height == shared.height for of in tables.values())
        answers = {
            label: Prepared(
                of if is_whole
                else of.join(shared, on=keys, how="semi", nulls_equal=True, maintain_order="left"),
                suite,
            )
            for label, of in tables.items()
        }  # fmt: skip
        notes = [] if is_whole else [_how_much(tables, shared, suite)]
        return cls(runs, suite, answers, [*notes, *_other_prompts(runs, shared)])


def _named_alike(runs: Sequence[Run], suite: Suite) -> tuple[list[Run], Suite]:
    """Runs, and the suite of the first, with orders of as many letters as the smallest suite has.

    Orders have a letter for each option of the largest question of their suite.
    """
    own = [{factor: _letters(run.suite, factor) for factor in ORDERS} for run in runs]
    letters = {factor: min(of[factor] for of in own) for factor in ORDERS}
    alike = []
    for run, of_run in zip(runs, own, strict=True):
        if of_run == letters:
            alike.append(run)
            continue
        names: dict[str, str] = {}
        for group in run.suite:
            names |= group.design.factorial.with_letters(letters)[1]
        alike.append(replace(run, names=names))
    if own[0] != letters:
        designs = [one.design for one in suite]
        designs = [of.of_factorial(of.factorial.with_letters(letters)[0]) for of in designs]
        groups = zip(suite, designs, strict=True)
        relations = tuple(replace(one, given_design=design) for one, design in groups)
        suite = replace(suite, relations=relations)
    return alike, suite


def _letters(suite: Suite, factor: str) -> int:
    """How many letters the longest level of an order has; 0 where it does not vary."""
    levels = [level for group in suite for level in group.design.levels.get(factor, ())]
    return max(map(len, levels), default=0)


def _how_much(tables: Mapping[str, pl.DataFrame], shared: pl.DataFrame, suite: Suite) -> str:
    """How many queries are common, of how many of each run."""
    words, items = suite.words, shared.select(QUERY[:2]).n_unique()
    counts = ", ".join(f"{of.height:,} in {label}" for label, of in tables.items())
    return (
        f"compared on the {counted(shared.height, 'query', 'queries')} that all runs have, of "
        f"{counted(items, words.item)} ({counts})"
    )


def _other_prompts(runs: Sequence[Run], shared: pl.DataFrame) -> Iterator[str]:
    """How many prompts of later runs differ from the first run's, where some do and some do not."""
    first, *others = runs
    for run in others:
        if run.settings.get("queries") == first.settings.get("queries"):
            continue
        joined = shared.select(QUERY)
        for one in (first, run):
            queries = one.queries.select(*QUERY, "input")
            joined = joined.join(queries, on=QUERY, maintain_order="left")
        differ = joined.filter(pl.col("input") != pl.col("input_right")).height
        if 0 < differ < joined.height:
            yield (
                f"{differ:,} of {joined.height:,} prompts differ between {first.label} and "
                f"{run.label}"
            )


def absent_tables(suite: Suite) -> set[str]:
    """The tables of ``--by`` that a suite cannot have."""
    has_forms = any(len(group.design.forms) > 1 for group in suite)
    is_known = {
        "edit": any(group.edges for group in suite),
        "form": has_forms,
        "factor": suite.words.is_pooled or any(group.design.languages for group in suite),
    }
    return {name for name, known in is_known.items() if not known}


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Displayed):
    """Later runs against the first."""

    runs: Sequence[Run]
    suite: Suite
    protocol: Protocol
    table: pl.DataFrame  # One row a difference (``COMPARISON_SCHEMA``)
    notes: Sequence[str]

    @property
    def verdict(self) -> list[str]:
        """Whether later runs differ from the first, in sentences."""
        return verdict(self.table, self.suite)

    def flips(self) -> Flips:
        """Which answers of later runs differ from those of the first."""
        return flips_of(self.runs, self.protocol)

    def output(self, by: By | None = None) -> Output:
        """The differences as ``by`` chooses them, and which tables have details."""
        table, details = comparison_table(self.table, self.suite, by), list[str]()
        if by is None and len(self.runs) > 1:
            absent = absent_tables(self.suite)
            names = [name for name in ("group", "edit", "form", "factor") if name not in absent]
            details = [f"Details: --by {', '.join(names)} or metric"]
        headlines = chosen_rows(self.table, self.suite)
        return Output(
            {"differences": self.table}, [table, *details], self.verdict,
            cautions=[*self.notes, *few_relations(headlines, self.suite)],
            facts={"run": _record(self)}, csv=None if by is None else table,
        )  # fmt: skip


def compare_runs(options: CompareOptions) -> Output:
    """Later runs against the first, by the protocol of the first unless given.

    With ``flips``: which answers changed.
    """
    runs = open_runs(options.runs)
    if not options.flips:
        return compare_opened(runs, options.protocol).output(options.by)
    if options.by:
        found = "--flips with --by"
        raise ConsilienceError(found, todo="Leave them out: the table has every level.")
    return flips_of(runs, options.protocol).output()


@dataclass(frozen=True, slots=True, repr=False)
class Flips(Displayed):
    """The answers of later runs that differ from those of the first."""

    runs: Sequence[Run]
    suite: Suite
    protocol: Protocol
    numbers: pl.DataFrame  # One row a part of the answers (``FLIP_SCHEMA``)
    answers: pl.DataFrame  # One row an answer that changed
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> list[str]:
        """How many answers changed, in which direction, and whether that is noise."""
        return flip_verdict(self.numbers, self.suite)

    def output(self) -> Output:
        """The numbers and the first changed answers."""
        tables = {"flips": self.numbers, "answers": self.answers}
        shown = [flip_table(self.numbers, self.suite), flipped_table(self.answers, SHOWN_FLIPS)]
        facts = {"run": _record(self)}
        return Output(tables, shown, self.verdict, self.notes, facts, csv=self.answers)


def _record(of: Comparison | Flips) -> dict[str, Any]:
    runs = [str(run.path) for run in of.runs]
    return record_of(runs=runs, suite=of.suite.name, protocol=of.protocol)


def flips_of(
    runs: Sequence[Run], protocol: Protocol | None = None, common: Common | None = None
) -> Flips:
    """The answers of later runs that differ from those of the first, to what all were asked.

    Beside them the noise floors of the runs. ``common``: what all were asked, where it is known.
    """
    if len(runs) < 2:
        found = f"{len(runs)} run to find changed answers in"
        todo = "Name the run of the new version, too."
        raise ConsilienceError(found, expected="two runs or more", todo=todo)
    known = common or Common.of(runs, counted_by(runs[0], protocol)[0])
    answers, (first, *others) = known.answers, (run.label for run in runs)
    parts = [flip_rows((answers[first], answers[one]), first, one) for one in others]
    floors = [
        {"first": name, "second": name, "over": NOISE, "level": "repeated",
         "changed": row["value"], "low": row["low"], "high": row["high"], "n": row["n"]}
        for name, row in _noise_floors(runs).items()
    ]  # fmt: skip
    model = runs[0].settings.get("model")
    again = [run.label for run in runs[1:] if model and run.settings.get("model") == model]
    numbers = pl.concat([of for of, _ in parts] + [pl.DataFrame(floors, FLIP_SCHEMA)])
    is_again = pl.col("second").is_in(again) & (pl.col("over") == "all")
    level = pl.when(is_again).then(pl.lit(SAME_MODEL)).otherwise("level")
    numbers = numbers.with_columns(level=level)
    prompts = known.runs[0].queries.select(*QUERY, prompt=pl.col("input").list.join("\n"))
    changed = pl.concat(of for _, of in parts)
    changed = changed.join(prompts, on=QUERY, how="left", maintain_order="left")
    notes = [*settings_notes(runs), *known.notes, *unanswered_notes(known)]
    return Flips(runs, known.suite, known.suite.protocol, numbers, changed, notes)


def compare_opened(runs: Sequence[Run], protocol: Protocol | None = None) -> Comparison:
    """Later runs against the first."""
    suite, changed = counted_by(runs[0], protocol)
    common = Common.of(runs, suite)
    suite, rules = common.suite, common.suite.protocol
    table = compare(common.answers, suite, rules)
    changed += [f"{run.label}: {NOT_FINISHED}" for run in runs if not run.is_finished]
    notes = [*changed, *settings_notes(runs), *common.notes, *unanswered_notes(common)]
    notes += noise_notes(runs, table, suite)
    return Comparison(runs, suite, rules, table, notes)


def unanswered_notes(common: Common) -> list[str]:
    """How many of the queries that are compared have no answer, by run."""
    of_runs = common.answers.items()
    return [f"{name}: {note}" for name, of in of_runs for note in without_answer(of.coded)]


def settings_notes(runs: Sequence[Run]) -> list[str]:
    """Settings in which later runs differ from the first, if both are known."""
    first, *others = runs
    notes = []
    for run in others:
        for name in ("protocol", "candidates"):
            ours, theirs = first.settings.get(name), run.settings.get(name)
            if first.settings and run.settings and ours != theirs:
                notes.append(
                    f"{run.label} was asked with the {name} {theirs}, {first.label} with {ours}"
                )
        if first.suite.words.has_means:
            notes += other_candidates({one.label: one.answers for one in (first, run)})
    return notes


def _noise_floors(runs: Sequence[Run]) -> dict[str, Mapping[str, Any]]:
    """The row of the noise floor of each run that measured one."""
    known = [(run.label, noise_floor_of(run.path)) for run in runs]
    rows = [(name, noise_row(floor)) for name, floor in known if floor is not None]
    return {name: row for name, row in rows if row is not None}


def noise_notes(runs: Sequence[Run], table: pl.DataFrame, suite: Suite) -> list[str]:
    """Which headline differences are no larger than the noise floor of one of the two runs."""
    floors = _noise_floors(runs)
    headlines = table.filter(
        pl.col("metric").is_in(SHARES_OF_ANSWERS), pl.col("difference").abs() > 0,
        over=suite.words.over, kind="whole",
    )  # fmt: skip
    notes = []
    for (first, second), rows in headlines.group_by("first", "second", maintain_order=True):
        known = [name for name in (str(first), str(second)) if name in floors]
        if not known:
            continue
        name = max(known, key=lambda name: float(floors[name]["value"]))
        floor = floors[name]
        inside = rows.filter(pl.col("difference").abs() <= floor["value"])["metric"]
        if len(inside):
            named = ", ".join(dict.fromkeys(map(label_of, inside)))
            notes.append(
                f"{second} against {first}: no larger than the noise floor: {named}; "
                f"{100 * floor['value']:.1f} % of {floor['n']} answers of {name} changed when "
                "nothing was changed in the prompts"
            )
    return notes
