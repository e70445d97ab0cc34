"""Consistency within and between the languages of a suite, and accuracy in each."""

from __future__ import annotations

import polars as pl

from consilience.design import BETWEEN, OF_LANGUAGE, WITHIN, is_language_kind
from consilience.metrics.registry import label_of
from consilience.report.columns import frame_table
from consilience.report.run_view import values_of
from consilience.report.table import CI, Cell, Column, Table
from consilience.types import Suite

METRICS_SHOWN = ("accuracy", "consistency", "corrected_consistency", "agree_right")
"""The metrics of the table."""

NOTE = (
    "accuracy: share of right answers to the first pattern of each relation in the language; "
    "other columns: over pairs of patterns"
)


def language_label(kind: str) -> str:
    """``de`` for ``language=de``, ``de and ja`` for ``language=de/ja``."""
    return kind.removeprefix(OF_LANGUAGE).replace("/", " and ")


def language_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """One row a language, then one for each two; means over relations. Empty for one language."""
    designs = [group.design for group in suite]
    alone = [f"{OF_LANGUAGE}{language}" for design in designs for language in design.languages]
    pairs = [kind for design in designs for kind in design.kinds if is_language_kind(kind)]
    values, pooled = values_of(metrics, "MACRO"), values_of(metrics, "MICRO")
    ordered = sorted(
        dict.fromkeys([*alone, *pairs]), key=lambda kind: (kind in (WITHIN, BETWEEN), "/" in kind)
    )
    rows = []
    for kind in ordered:
        of_kind = {name: values.get((name, kind), {}) for name in METRICS_SHOWN}
        consistency = of_kind["consistency"]
        rows.append(
            {
                "languages": language_label(kind),
                **{name: Cell(row.get("value")) for name, row in of_kind.items()},
                "low": consistency.get("low"),
                "high": consistency.get("high"),
                "pairs": pooled.get(("consistency", kind), {}).get("n"),
            }
        )
    columns: dict[str | tuple[str, str], Column] = {
        "languages": Column("languages"),
        "accuracy": Column(label_of("accuracy").lower(), "share"),
        "consistency": Column(label_of("consistency").lower(), "share"),
        ("low", "high"): Column(CI, "share"),
        "corrected_consistency": Column("chance-corrected", "share"),
        "agree_right": Column("both right", "share"),
        "pairs": Column("pairs", "count"),
    }
    title = f"{suite.name}: patterns of one language and of two, means of relations in percent"
    return frame_table(rows, title, columns, [NOTE] if rows else [])
