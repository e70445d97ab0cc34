"""Import: patterns and facts of other sources become part of a suite folder."""

from __future__ import annotations

import polars as pl

from consilience.authoring.import_content import Reading
from consilience.authoring.import_formats import read_content
from consilience.authoring.importing import ImportPlan, plan_import
from consilience.suites.question_suites import columns_of
from consilience.workflow.facts_alone import load_facts
from consilience.workflow.proposal_options import ImportOptions

LISTED = {
    "what": pl.String,
    "relation": pl.String,
    "pattern": pl.String,
    "reason": pl.String,
    "other": pl.String,
    "where": pl.String,
}
"""Columns of ``listing``."""


def import_patterns(options: ImportOptions) -> ImportPlan:
    """Read a source, compare it with the suite folder, and add what is new."""
    reading = Reading(
        options.relation,
        columns_of(options.columns),
        tuple(options.languages),
        options.source,
        options.licence,
    )
    format_, content = read_content(options.path, options.format_, reading)
    suite = options.facts_from and load_facts(options.facts_from, options.data_dir)
    plan = plan_import(options.folder, format_, content, near=options.near, facts_of=suite or None)
    if options.dry_run:
        plan.check()
    else:
        plan.write()
    return plan


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
