"""The languages of a suite: consistency within and between them, accuracy, and differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import polars as pl
import polars.selectors as cs

from consilience.design import BETWEEN, OF_LANGUAGE, WITHIN, is_language_kind
from consilience.errors import ConsilienceError, did_you_mean
from consilience.metrics.notes import few_relations
from consilience.metrics.registry import label_of
from consilience.report.columns import Columns, contradictions, difference_columns, frame_table
from consilience.report.run_view import values_of
from consilience.report.table import CI, Cell, Column, Table
from consilience.types import Suite

METRICS_SHOWN = ("accuracy", "consistency", "corrected_consistency", "agree_right")
"""The metrics of the table."""

OVER = {"MACRO": "mean of relations", "MICRO": "pooled counts"}
"""What rows over all relations are called."""

NOTE = (
    "accuracy: share of right answers to the first pattern of each relation in the language; "
    "other columns: over pairs of patterns"
)


def language_label(kind: str) -> str:
    """``de`` for ``language=de``, ``de and ja`` for ``language=de/ja``."""
    return kind.removeprefix(OF_LANGUAGE).replace("/", " and ")


def _fewer_relations(name: str, relations: Mapping[str, int]) -> list[str]:
    """A note on the rows whose mean is over fewer relations than that of others.

    ``relations``: how many each row is over, by its label.
    """
    most = max(relations.values(), default=0)
    fewer = ", ".join(f"{label} ({n})" for label, n in relations.items() if n < most)
    return [f"{name}: mean over {most} relations, over fewer in {fewer}"] if fewer else []


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
    notes = [NOTE] if rows else []
    for name in METRICS_SHOWN:
        known = {kind: values[name, kind]["n"] for kind in ordered if (name, kind) in values}
        notes += _fewer_relations(
            columns[name].heading, {language_label(kind): n for kind, n in known.items()}
        )
    return frame_table(rows, title, columns, notes)


def known_metrics(compared: pl.DataFrame, metrics: Sequence[str]) -> Sequence[str]:
    """The same names; one that a comparison does not have raises."""
    known = set(compared["metric"])
    for name in metrics:
        if name not in known:
            raise ConsilienceError(
                f"no metric '{name}' in the comparison", todo=did_you_mean(name, sorted(known))
            )
    return metrics


def _means(compared: pl.DataFrame) -> pl.DataFrame:
    """The means over relations of every two languages; NaN where no relation has the number."""
    keys = ["metric", "subset", "first", "second"]
    means = compared.filter(group="MACRO")
    rows = compared.select(keys).unique(maintain_order=True)
    rows = rows.join(means, on=keys, how="left", maintain_order="left").select(compared.columns)
    return rows.with_columns(pl.col("group").fill_null("MACRO"), cs.float().fill_null(math.nan))


def language_differences(
    compared: pl.DataFrame, suite: Suite, metrics: Sequence[str] = (), *, by_group: bool = False
) -> Table:
    """The languages of a run compared (``compare_languages``), with a block for each metric.

    ``metrics``: their names; without any, those of ``language_table``. ``by_group``: a row for each
    relation, with a block for each two languages.
    """
    names = known_metrics(compared, metrics) or METRICS_SHOWN
    rank = pl.col("metric").replace_strict(
        {name: at for at, name in enumerate(names)}, default=None, return_dtype=pl.Int64
    )
    rows = (compared if by_group else _means(compared)).filter(rank.is_not_null())
    rows = rows.sort(rank, maintain_order=True)
    columns: Columns = {
        "name": Column("relation" if by_group else "languages"),
        **difference_columns(rows, Column("first", "share"), Column("second", "share")),
    }
    labels = {group.id: group.label for group in suite} | OVER
    named, blocks = [], []
    for row in rows.to_dicts():
        metric, pair = label_of(row["metric"]), f"{row['first']} -> {row['second']}"
        pair = pair.replace(" languages", "")
        named.append({"name": labels[row["group"]] if by_group else pair, **row})
        blocks.append(f"{metric}, {pair}" if by_group else metric)
    tests = ", ".join(rows["test"].drop_nulls().unique(maintain_order=True))
    over: dict[str, dict[str, int]] = {}
    for row in rows.filter(pl.col("n") > 0, group="MACRO").to_dicts():
        over.setdefault(label_of(row["metric"]), {})[f"{row['first']} -> {row['second']}"] = row[
            "n"
        ]
    notes = [
        *(f"{note}." for name, by_pair in over.items() for note in _fewer_relations(name, by_pair)),
        *(f"{note}." for note in few_relations(rows, suite)),
        *contradictions(rows),
        f"{NOTE}. Only facts that have the number in both languages count.",
        f"p: {tests}. p (Holm) is adjusted over the pairs of languages, intervals are not.",
        "detectable: the minimum detectable difference (80 % power). * .05 ** .01 *** .001",
    ]
    title = f"{suite.name}: languages compared, second minus first, in percent and points"
    return frame_table(named, title, columns, notes, blocks)
