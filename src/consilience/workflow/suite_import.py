"""Import: patterns and facts of other sources become part of a suite folder."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import polars as pl

from consilience.authoring.import_content import Reading
from consilience.authoring.import_formats import read_content
from consilience.authoring.importing import ImportPlan, plan_import
from consilience.options import Output
from consilience.report.shown import Shown, rows_of
from consilience.text import counted
from consilience.workflow.facts_alone import load_facts
from consilience.workflow.question_design import columns_of
from consilience.workflow.suite_options import ImportOptions

LISTED = {
    "what": pl.String,
    "relation": pl.String,
    "pattern": pl.String,
    "reason": pl.String,
    "other": pl.String,
    "where": pl.String,
}
"""Columns of ``listing``."""

SHOWN = 10
"""Refusals and near-duplicates that are printed; ``--csv`` and ``--json`` have all."""


def import_patterns(options: ImportOptions) -> ImportPlan:
    """Read a source, compare it with the suite folder, and add what is new."""
    reading = Reading(
        options.relation,
        columns_of(options.columns),
        tuple(options.language),
        options.source,
        options.licence,
    )
    format_, content = read_content(options.path, options.format, reading)
    suite = options.facts_from and load_facts(options.facts_from, options.data_dir)
    plan = plan_import(
        options.into, format_, content, near=options.near_duplicates, facts_of=suite or None
    )
    if options.dry_run:
        plan.check()
    else:
        plan.write()
    return plan


class PrintedImport(Shown):
    """What an import does, for people and programs."""

    def __init__(self, plan: ImportPlan, *, is_dry: bool) -> None:
        self.plan, self.is_dry = plan, is_dry

    def printed(self, output: Output) -> Iterator[str]:
        """What was added and left out."""
        plan = self.plan
        kinds = Counter(similar.likeness for similar in plan.similar)
        near = [similar for similar in plan.similar if similar.likeness != "duplicate"]
        fate = "kept" if near and near[0].is_kept else "left out"
        names = f", {counted(len(plan.names), 'name')} in other languages" if plan.names else ""
        facts = f", {counted(plan.known_facts, 'fact')} left out" if plan.known_facts else ""
        state = "new" if plan.is_new else "existing"
        yield f"{plan.folder} ({state} suite), read as {plan.format}"
        yield (
            f"added:           {counted(len(plan.relations), 'relation')}, "
            f"{counted(len(plan.patterns), 'pattern')}, {counted(len(plan.facts), 'fact')}{names}"
        )
        yield f"duplicates:      {counted(kinds['duplicate'], 'pattern')} left out{facts}"
        yield f"near-duplicates: {counted(len(near), 'pattern')}{f' {fate}' if near else ''}"
        yield from _first(
            f"  {one.proposal.relation}: {one.proposal.pattern}  ({one.likeness}: {one.other})"
            for one in near
        )
        yield f"refused:         {len(plan.refused):,}"
        yield from _first(f"  {error}" for error in plan.refused)
        if plan.failed:
            yield "Nothing was written, because everything was refused."
        elif not plan.adds:
            yield "Nothing was written, because nothing is new."
        elif self.is_dry:
            yield "Nothing was written. Rerun the command without --dry-run to import."
        else:
            yield f"Check: consilience suite check {shlex.quote(str(plan.folder))}"

    def document(self) -> dict[str, Any]:
        """The patterns as rows."""
        plan = self.plan
        return {
            "folder": str(plan.folder), "format": plan.format,
            "written": plan.adds and not self.is_dry, "relations": plan.relations,
            "facts": len(plan.facts), "patterns": rows_of(self.frame()), "warnings": plan.notes,
        }  # fmt: skip

    def frame(self) -> pl.DataFrame:
        """A row for each pattern."""
        return listing(self.plan)

    def remarks(self, output: Output) -> Sequence[str]:
        """The notes."""
        return self.plan.notes

    def exit_status(self) -> int:
        """2 if everything was refused."""
        return 2 if self.plan.failed else 0


def _first(lines: Iterable[str]) -> list[str]:
    """The first lines, and how many more there are."""
    listed = [*lines]
    more = len(listed) - SHOWN
    return [*listed[:SHOWN], *[f"  ... {more:,} more; --csv FILE has all"] * (more > 0)]


def listing(plan: ImportPlan) -> pl.DataFrame:
    """One row for each pattern that is added, left out or a near-duplicate, and each refusal.

    ``what``: ``added``, ``duplicate``, ``near-duplicate`` (left out, or also ``added`` in a row of
    its own) or ``refused``. ``reason``: how a pattern is like ``other``, or why it is refused.
    """
    rows = [
        {"what": "added", "relation": p.relation, "pattern": p.pattern, "where": p.where}
        for p in plan.patterns
    ]
    for similar in plan.similar:
        is_same = similar.likeness == "duplicate"
        rows.append(
            {
                "what": "duplicate" if is_same else "near-duplicate",
                "relation": similar.proposal.relation,
                "pattern": similar.proposal.pattern,
                "reason": "" if is_same else similar.likeness,
                "other": similar.other,
                "where": similar.proposal.where,
            }
        )
    rows += [
        {"what": "refused", "reason": str(error).removeprefix(f"{error.where}: "),
         "where": error.where}
        for error in plan.refused
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=LISTED)
