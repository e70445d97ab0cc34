"""The papers' tables, filled with any runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import polars as pl

from consilience.report.perturbed import PAPERS
from consilience.report.sheets import Number, Sheet
from consilience.report.tables import COLUMNS, SUBSETS

PROBED: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "extractability": (
        "What the wordings extract, and consistency where the model knows or not (Table 2)",
        (("successful_patterns", "all"), ("successful_objects", "all"),
         ("unknown_consistency", "all"), ("known_consistency", "all")),
    ),
    "knowledge": (
        "Knowledge and consistency (Table 3)",
        (("accuracy", "all"), ("consistency", "all"), ("consistent_accuracy", "all"),
         ("corrected_consistency", "all")),
    ),
    "syntax": (
        "Consistency of pairs that differ in syntax alone, and of pairs that do not (Table 5)",
        (("consistency", "diff_syntax"), ("consistency", "no_change")),
    ),
}  # fmt: skip
"""Tables of ParaRel's layout: title, and metric and subset of each column."""


def probe_sheets(runs: Mapping[str, pl.DataFrame], notes: Sequence[str] = ()) -> dict[str, Sheet]:
    """Tables 2, 3 and 5 of ParaRel and one row a relation, from metrics tables by run.

    ``notes``: what their reader should know.
    """
    sheets = {}
    for name, (title, keys) in PROBED.items():
        rows = []
        for run, measured in runs.items():
            found = _values(measured.filter(pl.col("group") == "MACRO"))
            rows.append(("", run, tuple(_percent(found.get(key)) for key in keys)))
        columns = tuple(
            COLUMNS[metric].strip() if subset == "all" else SUBSETS[subset]
            for metric, subset in keys
        )
        sheets[name] = Sheet(
            f"{title}: mean ± std over relations", "", columns, tuple(rows), columns, notes=notes
        )
    metrics = (
        "accuracy", "consistency", "determinism", "consistent_accuracy", "corrected_consistency",
    )  # fmt: skip
    each = []
    for run, table in runs.items():
        chosen = table.filter(~pl.col("group").is_in(["MACRO", "MICRO"]))
        for (group,), own in chosen.group_by(["group"], maintain_order=True):
            found = _values(own)
            cells = tuple(_percent(found.get((metric, "all"))) for metric in metrics)
            each.append((run, str(group), cells))
    columns = tuple(COLUMNS[metric].strip() for metric in metrics)
    title = "Each relation, in percent"
    sheets["relations"] = Sheet(title, "relation", columns, tuple(each), notes=notes)
    return sheets


def perturbed_sheets(
    runs: Mapping[str, pl.DataFrame], notes: Sequence[str] = ()
) -> dict[str, Sheet]:
    """Table 2 of CALUM, a row a run, blocks by task, and every other form; ``notes`` likewise."""
    shown = []
    forms: list[str] = []
    for run, metrics in runs.items():
        for (group,), own in metrics.group_by(["group"], maintain_order=True):
            found = _values(own)
            shown.append((str(group), run, found))
            forms += [form for metric, form in found if metric == "consistency" and form != "all"]
    shown.sort(key=lambda each: each[0])
    kept = [("accuracy", "all"), *(("consistency", form) for form in dict.fromkeys(forms))]
    columns = tuple(PAPERS.get(key, f"C {key[1]}") for key in kept)
    rows = tuple(
        (g, run, tuple(_percent(found.get(key)) for key in kept)) for g, run, found in shown
    )
    title = "Accuracy and consistency, in percent: mean ± std over seeds (Table 2)"
    return {"consistency": Sheet(title, "", columns, rows, columns, by_block=True, notes=notes)}


def _values(metrics: pl.DataFrame) -> dict[tuple[str, str], tuple[float, float]]:
    rows = metrics.select("metric", "subset", "value", "std").iter_rows()
    return {(metric, subset): (value, std) for metric, subset, value, std in rows}


def _percent(found: tuple[float, float] | None) -> Number:
    value, std = found or (math.nan, math.nan)
    return Number(value * 100, std * 100)
