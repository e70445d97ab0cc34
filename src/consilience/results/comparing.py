"""Comparing runs: the items they have in common, and their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import polars as pl

from consilience.analysis.examples import QUERY, flip_rows
from consilience.core.errors import By, ConsilienceError
from consilience.core.factors import TURN, Design, FactorialDesign
from consilience.core.items import group_rows
from consilience.core.text import listed
from consilience.elsewhere import open_runs
from consilience.metrics.differences import compare
from consilience.metrics.measure import CheckedAnswers, asked_of_all
from consilience.probing import noise_floor_of
from consilience.report.cautions import Known, by_run, cautions, ranked
from consilience.report.layouts import (
    comparison_table,
    flip_table,
    flip_verdict,
    flipped_table,
    verdict,
)
from consilience.report.table import Displayed, Output, record_of
from consilience.results import sameness
from consilience.runs.run import Run
from consilience.types import Relation, Suite

ORDERS = ("order", "context")  # factors whose levels are letters


@dataclass(frozen=True)
class Common:
    """What all of some runs were asked: the same group, item, variant, subject and gold."""

    runs: Sequence[Run]  # With variants named alike
    suite: Suite
    """The groups and variants of the first run that all have; the protocol is that of counting."""
    answers: Mapping[str, CheckedAnswers]  # Those of each run, by its label
    shared: pl.DataFrame  # The queries that all have: ``QUERY``, subject and gold
    sizes: Mapping[str, int]  # How many queries each run has, by its label

    @classmethod
    def of(cls, runs: Sequence[Run], suite: Suite) -> Common:
        """``suite``: that of the first run, or some of its groups; nothing in common raises."""
        runs, suite = named_alike(runs, suite)
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
            for name in (*QUERY, "gold"):
                if not set.intersection(*({*of[name]} for of in tables.values())):
                    counts += f"; no {name} is the same, such as "
                    counts += " and ".join(f"'{of[name][0]}'" for of in tables.values())
            has = {run.label: any(one.design.by_option for one in run.suite) for run in runs}
            if len({*has.values()}) > 1:
                counts += f"; only {listed([of for of in has if has[of]])} has options"
            expected = "some with the same group, item, variant and right answer"
            todo = "`consilience check RUN RUN` shows what they have in common."
            if "no group is" in counts:
                todo = "To ignore groups: `score FILE --columns group= --out RUN`."
            found = f"no query that all runs have: {counts}"
            raise ConsilienceError(found, expected=expected, todo=todo)
        variants = dict(shared.group_by("group").agg(pl.col("variant").unique()).iter_rows())
        for run, group in product(runs[1:], variants):
            both = {of.suite.relation(group).design.by_option: of.label for of in (runs[0], run)}
            if len(both) == 2:
                found = f"{both[False]} has no options in {group}, {both[True]} has some"
                todo = "Add a column `options` to the table, with the options as shown."
                raise ConsilienceError(found, expected="options in both", todo=todo)
        common = tuple(one.only(variants[one.id]) for one in suite if one.id in variants)
        suite = replace(suite, relations=common)
        is_whole = all(of.height == shared.height for of in tables.values())
        answers = {
            label: CheckedAnswers(
                of if is_whole
                else of.join(shared, on=keys, how="semi", nulls_equal=True, maintain_order="left"),
                suite,
            )
            for label, of in tables.items()
        }  # fmt: skip
        sizes = {label: of.height for label, of in tables.items()}
        return cls(runs, suite, answers, shared, sizes)

    @classmethod
    def of_turns(cls, run: Run) -> Common:
        """The turns of the chats of a run, as a run each."""
        names, groups = dict[str, dict[str, str]](), list[Relation]()
        for one in run.suite:
            known = one.design.factorial if TURN in one.design.levels else FactorialDesign.full(())
            for level, cells in group_rows(known.levels.get(TURN, ())).items():
                alone, old = known.only(cells).without([TURN]), map(known.names.__getitem__, cells)
                names.setdefault(level, {}).update(zip(old, alone.names, strict=True))
                if level == next(iter(names)):
                    groups.append(replace(one, given_design=one.design.of_factorial(alone)))
        if len(names) < 2:
            found, todo = "1 run to find changed answers in", "Name the run of the new version."
            expected = "two runs or more, or one of `probe --then`"
            raise ConsilienceError(found, expected=expected, todo=todo)
        runs = [replace(run, label=level, names=of) for level, of in names.items()]
        common = cls.of(runs, replace(run.suite, relations=tuple(groups)))
        return replace(common, sizes=dict.fromkeys(names, common.shared.height))


def named_alike(runs: Sequence[Run], suite: Suite) -> tuple[list[Run], Suite]:
    """Runs, and the suite of the first, with variants named alike.

    Orders have as many letters as the smallest suite has: one for each option of the largest
    question. A factor that not all runs vary is left out: what is alike is its base level.
    """
    letters = {of: min(_letters(run.suite, of) for run in runs) for of in ORDERS}
    varied = [{name for one in _of_cells(run.suite) for name in one.levels} for run in runs]
    others = {of for names in varied for of in names if not all(of in known for known in varied)}

    def alike(design: FactorialDesign) -> tuple[FactorialDesign, dict[str, str]]:
        """The design with such names, and old names -> new ones."""
        known, names = design.with_letters({of: letters.get(of, 0) for of in ORDERS})
        places = [at for at, factor in enumerate(known.factors) if factor.name in others]
        base = [at for at, cell in enumerate(known.cells) if not any(cell[of] for of in places)]
        if not places or not base:
            return known, names
        old = [[*names][at] for at in base]
        known = known.only(base).without(others)
        return known, dict(zip(old, known.names, strict=True))

    renamed = []
    for run in runs:
        names: dict[str, str] = {}
        for design in _of_cells(run.suite):
            names |= alike(design.factorial)[1]
        names = {old: new for old, new in names.items() if old != new}
        renamed.append(replace(run, names={**run.names, **names}))
    if renamed[0].names:
        relations = tuple(
            replace(one, given_design=one.design.of_factorial(alike(one.design.factorial)[0]))
            for one in suite
        )
        suite = replace(suite, relations=relations)
    return renamed, suite


def _of_cells(suite: Suite) -> list[Design]:
    """The designs of questions."""
    return [group.design for group in suite if "cells" in group.design.record]


def _letters(suite: Suite, factor: str) -> int:
    """How many letters the longest level of an order has; 0 where it does not vary."""
    levels = [level for group in suite for level in group.design.levels.get(factor, ())]
    return max(map(len, levels), default=0)


def tables_of(suite: Suite) -> list[By]:
    """The tables of ``--by`` that a suite has."""
    is_known = {
        "edit": any(group.edges for group in suite),
        "form": any(len(group.design.forms) > 1 for group in suite),
        "factor": suite.words.is_pooled or any(group.design.languages for group in suite),
    }
    return [by for by in suite.words.tables if is_known.get(by, True)]


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Displayed):
    """Later runs against the first."""

    runs: Sequence[Run]
    suite: Suite  # Its protocol is that of counting
    table: pl.DataFrame  # One row a difference (``COMPARISON_SCHEMA``)
    notes: Sequence[str]

    @property
    def verdict(self) -> list[str]:
        """Whether later runs differ from the first, in sentences."""
        return verdict(self.table, self.suite)

    def flips(self) -> Output:
        """Which answers of later runs differ from those of the first: ``flips, answers``."""
        return flips_of(self.runs)

    def same(self, within: float) -> Output:
        """Whether the runs are of the same model, within so many points: ``same``."""
        return same_of(self.runs, within)

    def output(self, by: By | None = None) -> Output:
        """The differences as ``by`` chooses them, and which tables have details."""
        table, details = comparison_table(self.table, self.suite, by), list[str]()
        if by is None and len(self.runs) > 1:
            others = ("pattern", "variant", "metric", "item")
            names = [name for name in tables_of(self.suite) if name not in others]
            details = [f"Details: --by {', '.join(names)} or metric"]
        return Output(
            {"differences": self.table}, [table, *details], self.verdict,
            cautions=self.notes,
            facts={"run": _record(self.runs, self.suite)}, csv=None if by is None else table,
        )  # fmt: skip


def compare_runs(paths: Sequence[str], by: By | None, *, flips: bool, same: float | None) -> Output:
    """Later runs against the first, by the protocol of the first.

    With ``flips``: which answers changed. With ``same``: whether they are of the same model.
    """
    chosen = {"--flips": flips, "--same": same is not None, "--by": by}
    if len(names := [name for name, value in chosen.items() if value]) > 1:
        raise ConsilienceError(" with ".join(names), todo="Leave one of them out.")
    runs = open_runs(paths)
    if same is not None:
        return same_of(runs, same)
    return flips_of(runs) if flips else compare_opened(runs).output(by)


def _record(runs: Sequence[Run], suite: Suite) -> dict[str, Any]:
    return record_of(runs=[run.where for run in runs], suite=suite.name, protocol=suite.protocol)


def flips_of(runs: Sequence[Run], common: Common | None = None) -> Output:
    """The answers of later runs that differ from those of the first, to what all were asked.

    ``flips``: a row a part of the answers (``FLIP_SCHEMA``). ``answers``: a row an answer that
    changed. ``common``: what all were asked, where it is known. Of one run the turns of its chats.
    """
    if common is None:
        common = Common.of(runs, runs[0].suite) if len(runs) > 1 else Common.of_turns(runs[0])
    answers, (first, *others) = common.answers, (run.label for run in common.runs)
    parts = [flip_rows((answers[first], answers[one]), first, one) for one in others]
    numbers = pl.concat(of for of, _ in parts)
    prompts = common.runs[0].queries.select(*QUERY, prompt=pl.col("input").list.join("\n"))
    changed = pl.concat(of for _, of in parts)
    changed = changed.join(prompts, on=QUERY, how="left", maintain_order="left")
    shown = [flip_table(numbers, common.suite), flipped_table(changed, common.suite)]
    return Output(
        {"flips": numbers, "answers": changed}, shown, flip_verdict(numbers, common.suite),
        cautions_on(common), {"run": _record(runs, common.suite)}, csv=changed,
    )  # fmt: skip


def same_of(runs: Sequence[Run], within: float) -> Output:
    """Whether later runs are of the model of the first; the exit status is 3 unless all are.

    ``same``: a row a number of two runs (``sameness.SAME_SCHEMA``). ``within``: points.
    """
    if len(runs) < 2:
        raise ConsilienceError(f"{len(runs)} run", expected="two runs or more of one suite")
    known = Common.of(runs, runs[0].suite)
    answers = asked_of_all(known.answers)
    first, *others = known.runs
    found = [
        sameness.numbers_of(pair, [answers[run.label] for run in pair], within / 100, known.suite)
        for pair in ((first, other) for other in others)
    ]
    numbers = pl.concat(table for table, _ in found)
    verdicts = {*numbers.filter(number=sameness.BEYOND)["verdict"]}
    return Output(
        {"same": numbers}, [sameness.same_table(numbers, known.suite, within / 100)],
        [sentence for _, sentences in found for sentence in sentences], cautions_on(known),
        {"run": _record(runs, known.suite)}, status=0 if verdicts == {sameness.SAME} else 3,
    )  # fmt: skip


def compare_opened(runs: Sequence[Run]) -> Comparison:
    """Later runs against the first."""
    common = Common.of(runs, runs[0].suite)
    table = compare(common.answers, common.suite, common.suite.protocol)
    return Comparison(runs, common.suite, table, cautions_on(common, table))


def cautions_on(common: Common, compared: pl.DataFrame | None = None) -> list[str]:
    """The cautions on a comparison, and on the answers of each run that are compared."""
    runs, suite = common.runs, common.suite
    of_all = Known(
        suite=suite, asked_by=runs[0].protocol, runs=runs, compared=compared,
        common=common.shared, queries=common.sizes, floors=_noise_floors(runs),
    )  # fmt: skip
    of_each = {
        run.label: cautions(
            Known(suite=suite, is_finished=run.is_finished, answers=common.answers[run.label])
        )
        for run in runs
    }
    return ranked([*by_run(of_each), *cautions(of_all)])


def _noise_floors(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """The row of the noise floor of each run that measured one."""
    known = [(run.label, noise_floor_of(run.path)) for run in runs]
    floors = [(name, floor.filter(pl.col("n") > 0)) for name, floor in known if floor is not None]
    return {name: floor.row(0, named=True) for name, floor in floors if len(floor)}
