"""suite import: patterns of other sources become part of a suite folder."""

from __future__ import annotations

import shlex
from collections import Counter

from consilience.authoring.import_formats import import_patterns, listing
from consilience.authoring.importing import ImportPlan
from consilience.cli.console import out, warn
from consilience.cli.output_options import TableOutput
from consilience.cli.printing import print_json, rows_of
from consilience.core.text import counted
from consilience.files.write import csv_of, write_whole
from consilience.workflow.proposal_options import ImportOptions

SHOWN = 10
"""Refusals and near-duplicates that are printed; ``--csv`` and ``--json`` have all."""


def import_suite(options: ImportOptions, output: TableOutput) -> int:
    """Import, and print what was added and left out; status 2 if everything was refused."""
    plan = import_patterns(options)
    status = 2 if plan.failed else 0
    table = listing(plan)
    if output.file:
        write_whole(output.file, csv_of(table))
    if output.as_json:
        document: dict[str, object] = {"folder": str(plan.folder), "format": plan.format}
        document |= {"written": plan.adds and not options.dry_run, "relations": plan.relations}
        document |= {"facts": len(plan.facts), "patterns": rows_of(table)}
        print_json(document | {"warnings": plan.notes})
        return status
    warn(list(plan.notes))
    for line in _lines(plan):
        out.print(line)
    if plan.failed:
        out.print("Nothing was written, because everything was refused.")
    elif not plan.adds:
        out.print("Nothing was written, because nothing is new.")
    elif options.dry_run:
        out.print("Nothing was written. Rerun the command without --dry-run to import.")
    else:
        out.print(f"Check: consilience suite check {shlex.quote(str(plan.folder))}")
    return status


def _lines(plan: ImportPlan) -> list[str]:
    """What an import does, for people."""
    kinds = Counter(similar.likeness for similar in plan.similar)
    near = [similar for similar in plan.similar if similar.likeness != "duplicate"]
    fate = "kept" if near and near[0].is_kept else "left out"
    lines = [
        f"{plan.folder} ({'new' if plan.is_new else 'existing'} suite), read as {plan.format}",
        f"added:           {counted(len(plan.relations), 'relation')}, "
        f"{counted(len(plan.patterns), 'pattern')}, {counted(len(plan.facts), 'fact')}"
        + (f", {counted(len(plan.names), 'name')} in other languages" if plan.names else ""),
        f"duplicates:      {counted(kinds['duplicate'], 'pattern')} left out"
        + (f", {counted(plan.known_facts, 'fact')} left out" if plan.known_facts else ""),
        f"near-duplicates: {counted(len(near), 'pattern')}{f' {fate}' if near else ''}",
    ]
    lines += _first(
        [f"  {similar.proposal.relation}: {similar.proposal.pattern}  ({similar.likeness}: "
         f"{similar.other})" for similar in near]
    )  # fmt: skip
    lines.append(f"refused:         {len(plan.refused):,}")
    return lines + _first([f"  {error}" for error in plan.refused])


def _first(lines: list[str]) -> list[str]:
    """The first lines, and how many more there are."""
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"  ... {more:,} more; --csv FILE has all"]
