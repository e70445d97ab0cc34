"""The noise floor of a run in a sentence and as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from consilience.report.table import CI, Column, Table, Value, estimate
from consilience.schemas import FLIPS, SCORE_CHANGE

Row = Mapping[str, Any]


def noise_rows(metrics: pl.DataFrame) -> list[tuple[Row, Row]]:
    """The rows of flips and of score changes by variation; an empty row where there is none."""
    rows = metrics.filter(pl.col("metric").is_in([FLIPS, SCORE_CHANGE])).to_dicts()
    changes = {row["subset"]: row for row in rows if row["metric"] == SCORE_CHANGE}
    return [(row, changes.get(row["subset"], {})) for row in rows if row["metric"] == FLIPS]


def worst_flips(metrics: pl.DataFrame) -> Row | None:
    """The row of the variation that changed most answers; None where nothing was measured."""
    known = [flips for flips, _ in noise_rows(metrics) if flips["n"]]
    return max(known, key=lambda row: float(row["value"]), default=None)


def noise_sentence(metrics: pl.DataFrame) -> str:
    """What a noise floor says about differences; empty where none was measured."""
    worst = worst_flips(metrics)
    if worst is None:
        return ""
    changes = [change["value"] for _, change in noise_rows(metrics) if change]
    if not changes:
        return (
            f"Noise floor: up to {worst['value'] * 100:.1f} % of a sample's answers changed when "
            "only the batch, order, threads or precision did."
        )
    low, high = (f"{worst[name] * 100:.1f}" for name in ("low", "high"))
    known = [change for change in changes if not math.isnan(change)]
    scores = f", and scores by up to {max(known):.2g} nats" if known else ""
    flips = round(worst["value"] * worst["n"])
    return (
        f"Noise floor: {flips} of {worst['n']} answers (95 % interval {low} to {high} %) changed "
        f"when prompts were sent again{scores}; a smaller difference means nothing."
    )


def noise_table(metrics: pl.DataFrame, prefix: str = "") -> Table | None:
    """A row a variation; None where nothing was measured. ``prefix``: the name of the run."""
    rows = noise_rows(metrics)
    if not rows:
        return None
    title = f"{prefix}Noise floor: answers of a sample that changed when only this did, in percent"
    columns = [Column("what changed"), Column("answers changed", "share"), Column(CI, "share")]
    has_scores = any(change for _, change in rows)
    columns += [Column("score changed by (nats)")] * has_scores + [Column("queries", "count")]
    cells: list[list[Value]] = []
    for flips, change in rows:
        name = flips["subset"].replace("_", " ")
        largest = [_nats(change["value"])] if change else []
        cells.append([name, *estimate(flips), *largest, flips["n"]])
    return Table(title, columns, cells, sortable=False)


def _nats(value: float) -> str:
    """The largest change of a score; without scores a dash."""
    return "-" if math.isnan(value) else f"{value:.2g}"
