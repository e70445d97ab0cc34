"""Tables of differences: between runs, of a training, on the page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import polars as pl

from consilience.core.errors import By, ConsilienceError
from consilience.core.factors import FACTORS, is_language_kind, several_factors
from consilience.core.text import counted
from consilience.metrics.measure import few_relations
from consilience.metrics.registry import headline_metrics, label_of, main_metrics
from consilience.report.analysis_tables import SYMBOLS
from consilience.report.columns import (
    POINTS,
    Columns,
    contradictions,
    difference_columns,
    frame_table,
    metric_column,
    test_in_words,
)
from consilience.report.export import Folded, Part, Points, Section
from consilience.report.metric_tables import (
    OVER,
    SUBSETS,
    form_metrics,
    known_metrics,
    language_label,
)
from consilience.report.run_view import name_and_id
from consilience.report.summary import FACT_ROWS, FORM_ROWS, VIOLATIONS
from consilience.report.table import CI, NAN, Cell, Column, Table, Value, bounds_of
from consilience.types import Suite

LABELS = {metric: label for metric, label, _ in FACT_ROWS}
"""Labels of the metrics of a summary."""

CORRECTED = "corrected_consistency"
"""The metric that a constant model does not have."""

OVER_QUESTIONS = {"MACRO": "mean of groups", "MICRO": "all questions"}
"""What rows over all questions are called."""

CONSTANT = (
    "A model that always gives the same answer is 100 % consistent, so no test of consistency "
    "against it says anything: read the chance-corrected consistency of the other model."
)
"""How to read a comparison with a constant model."""

NAME = 10
"""Characters of a run's name in a heading on a narrow screen."""

NAMED = 3
"""Most different relations that are named."""


def comparison_table(
    compared: pl.DataFrame, suite: Suite, metrics: Sequence[str] = (), by: By | None = None
) -> Table:
    """Later runs minus the first (``COMPARISON_SCHEMA``), with a block for each later run.

    - ``metrics``: their names; without any, those of a summary, or all with ``by`` "metric".
    - ``by``: a row a group, kind of edit, factor or form of each metric; None or "metric": a row a
      metric, of facts the mean over relations, of questions all of them together.
    """
    is_pooled, pool = suite.words.is_pooled, suite.words.pool
    if by is None and not is_pooled:
        compared = with_undefined_means(compared, suite)
    rows = _chosen(compared, metrics or _defaults(compared, by), by, pool)
    if rows.is_empty():
        raise ConsilienceError(
            f"no difference by {by or 'metric'} in this comparison",
            expected="--by group or metric; form for runs in several forms; edit for suites that "
            "say how patterns differ; factor for questions",
        )
    pairs = compared.select("first", "second").unique(maintain_order=True).rows()
    over = OVER_QUESTIONS if is_pooled else OVER
    labels = {group.id: group.label for group in suite.relations} | over
    records = list(rows.iter_rows(named=True))
    blocks = [_block(row, by, labels, len(pairs)) for row in records]
    columns: Columns = {
        "name": Column(by if by not in (None, "group") else _first_heading(suite, by)),
        **difference_columns(rows, *_run_columns(pairs)),
    }
    (first, second), *others = pairs
    title = f"{suite.name}: {second} minus {first}, in percent and points"
    if others:
        title = f"{suite.name}: each run minus {first}, in percent and points"
    notes = list(_notes(rows, compared, labels, by, suite, has_holm="p_holm" in columns))
    named = [{"name": _name(row, by, labels), **row} for row in records]
    return frame_table(named, title, columns, notes, blocks if any(blocks) else [])


def _run_columns(pairs: Sequence[tuple[str, str]]) -> tuple[Column, Column]:
    """The columns of both values, with the names of the runs if they fit."""
    first, second = pairs[0] if len(pairs) == 1 else (pairs[0][0], "later run")
    short = [short_name(name) for name in (first, second)]
    if short[0] == short[1]:
        short = ["first", "second"]
    return Column(first, "share", short[0]), Column(second, "share", short[1])


def short_name(run: str) -> str:
    """The name of a run without its folder or provider, at most ``NAME`` characters."""
    name = re.split("[/:]", run.rstrip("/:"))[-1]
    return name if len(name) <= NAME else f"{name[: NAME // 2]}…{name[-(NAME // 2 - 1) :]}"


def _defaults(compared: pl.DataFrame, by: By | None) -> list[str]:
    """The metrics that are shown without a choice; determinism where nothing else is measured."""
    measured = compared["metric"].unique(maintain_order=True).to_list()
    if by == "metric":
        return measured
    if by in ("edit", "factor"):
        return ["consistency"]
    rank = {name: at for at, name in enumerate(LABELS)}
    if by is None and {"accuracy"} <= set(compared.filter(pl.col("group") == "MACRO")["metric"]):
        return [name for name in (*LABELS, VIOLATIONS) if name in measured]
    known = [name for name in headline_metrics(aliases=True) if name in measured]
    return sorted(known, key=lambda name: rank.get(name, len(rank)))


def with_undefined_means(compared: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Also a mean without a difference, where a constant run has no chance-corrected consistency.

    The value of the other run is its mean over relations.
    """
    averaged = [group.id for group in suite.relations if group.cardinality == "N-1"]
    rows = compared.filter((pl.col("metric") == CORRECTED) & (pl.col("subset") == "all"))
    means = compared.filter((pl.col("group") == "MACRO") & (pl.col("metric") == "consistency"))
    added: list[dict[str, Any]] = []
    for row in means.filter(pl.col("subset") == "all").iter_rows(named=True):
        of_run = rows.filter(pl.col("second") == row["second"])
        if "MACRO" in of_run["group"]:
            continue
        of_relations = of_run.filter(pl.col("group").is_in(averaged)).fill_nan(None)
        values = {
            name: NAN if (mean := of_relations[name].mean()) is None else mean
            for name in ("first_value", "second_value")
        }
        unknown = ("difference", "low", "high", "p", "p_holm", "q_value", "p_seeds", "detectable")
        added.append(
            row | dict.fromkeys(unknown, NAN) | values | {"metric": CORRECTED, "test": None}
        )
    return pl.concat([compared, pl.DataFrame(added, schema=compared.schema)])


def _chosen(
    compared: pl.DataFrame, metrics: Sequence[str], by: By | None, pool: str
) -> pl.DataFrame:
    """The rows of a table, by later run and metric; ``pool``: the group of what is over all."""
    known_metrics(compared, metrics)
    subset, group = pl.col("subset"), pl.col("group")
    is_of_facts = "MACRO" in compared["group"]
    languages = [kind for kind in compared["subset"].unique() if is_language_kind(kind)]
    is_whole, is_mean = subset == "all", (group == pool) if is_of_facts else pl.lit(True)
    match by:
        case None:
            factors = several_factors(compared["subset"].unique()) if pool == "MICRO" else []
            is_form = subset.is_in(list(FORM_ROWS)) & ~pl.lit(is_of_facts)
            keep = is_mean & (is_whole | is_form | subset.is_in(factors))
            keep &= is_whole | (pl.col("metric") == "consistency")
            is_violation = pl.col("metric") == VIOLATIONS
            keep = pl.when(is_violation).then(is_mean & ~is_whole).otherwise(keep)
        case "metric":
            keep = is_whole & (group.is_in(list(OVER)) if is_of_facts else pl.lit(True))
        case "group":
            keep = is_whole
        case "edit":
            keep = is_mean & subset.is_in(list(SUBSETS))
        case "factor":
            keep = is_mean & subset.is_in([*FACTORS, *languages])
        case "form":
            keep = is_mean & ~subset.is_in([*SUBSETS, *FACTORS, *languages])
            keep &= pl.lit(compared.filter(keep & ~is_whole).height > 0)
        case _:
            keep = pl.lit(False)
    rank = {name: at for at, name in enumerate(metrics)}
    order = pl.col("metric").replace_strict(rank, default=None, return_dtype=pl.Int64)
    rows = compared.filter(keep & pl.col("metric").is_in(list(metrics)))
    runs, groups = (
        pl.col(name).replace_strict(
            {value: at for at, value in enumerate(compared[name].unique(maintain_order=True))},
            return_dtype=pl.Int64,
        )
        for name in ("second", "group")
    )
    of_group = pl.when(group.is_in(list(OVER))).then(len(compared) + groups).otherwise(groups)
    is_factor = subset.is_in(list(FACTORS))
    by_metric = (order, of_group) if by == "group" else (groups, is_factor, order)
    return rows.sort(runs, *by_metric, maintain_order=True)


def _first_heading(suite: Suite, by: By | None) -> str:
    if by is None:
        return "metric"
    return suite.words.group


def _name(row: dict[str, Any], by: By | None, labels: dict[str, str]) -> str:
    """The first cell of a row."""
    metric, subset = row["metric"], row["subset"]
    match by:
        case "group":
            return labels.get(row["group"], str(row["group"]))
        case "edit":
            return SUBSETS[str(subset)]
        case "factor":
            return language_label(str(subset))
        case "form":
            is_original = subset == "all" and metric in ("accuracy", "f1")
            return "original" if is_original else str(subset)
        case _:
            label = LABELS.get(metric, label_of(metric))
            if metric == VIOLATIONS and subset != "all":
                return f"{label}, {subset}"
            form = f", {subset}" if subset in FACTORS else f" {FORM_ROWS.get(subset, ('',))[0]}"
            return label if subset == "all" else f"Consistency{form}"


def _block(row: dict[str, Any], by: By | None, labels: dict[str, str], runs: int) -> str:
    """The heading above a row: the runs, the task or what the row is over, and the metric."""
    parts = [f"{row['first']} -> {row['second']}"] if runs > 1 else []
    group = row["group"]
    if by != "group" and (group not in OVER or by == "metric"):
        parts.append(labels.get(group, group))
    if by in ("group", "form"):
        parts.append(LABELS.get(row["metric"], label_of(row["metric"])))
    return ", ".join(parts)


def _notes(
    rows: pl.DataFrame,
    compared: pl.DataFrame,
    labels: dict[str, str],
    by: By | None,
    suite: Suite,
    *,
    has_holm: bool,
) -> Iterator[str]:
    yield from compared_on(compared, suite)
    if by is None:
        yield from _most_different(compared, labels, suite.words.group)
    yield from (f"{note}." for note in few_relations(rows, suite))
    yield from contradictions(rows, suite.words.clusters)
    undefined = rows.filter((pl.col("metric") == CORRECTED) & pl.col("difference").is_nan())
    if by is None and undefined.height:
        yield CONSTANT
    names = rows["test"].drop_nulls().unique(maintain_order=True)
    tests = ", ".join(test_in_words(name, suite.words) for name in names)
    family = f"{suite.words.group}s" if "MACRO" in compared["group"] else "forms"
    adjusted = f"Intervals and p are not adjusted, p (Holm) is adjusted over {family}." * has_holm
    yield f"p: {tests}. {adjusted or 'Intervals and p are not adjusted.'}"
    yield "detectable: the minimum detectable difference (80 % power). * .05 ** .01 *** .001"


def compared_on(compared: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """How many relations and items a comparison is over; without relations if not all items."""
    whole = compared.filter(pl.col("subset") == "all")
    accuracy = whole.filter(pl.col("metric") == "accuracy")
    means = whole.filter(pl.col("group") == "MACRO", pl.col("difference").is_not_nan())
    is_of_facts = suite.words.has_means
    if is_of_facts:
        accuracy = accuracy.filter(pl.col("group") == "MICRO")
    several = accuracy.height > 1
    for row in accuracy.iter_rows(named=True):
        if not (is_of_facts or row["n_excluded"]):
            continue
        relations = ""
        if is_of_facts:
            relations = _relations_of(means.filter(second=row["second"]).to_dicts())
        name = row["second"] if is_of_facts else f"{row['second']}, {row['group']}"
        both = ": those that both runs answered" * (row["n_excluded"] > 0)
        yield (
            f"{f'{name}: compared' if several else 'Compared'} on {relations}"
            f"{_of_all(row, suite.words.item)}{both}."
        )


def _relations_of(means: Sequence[Mapping[str, Any]]) -> str:
    """How many relations a mean is over, and other means that are over others."""
    counts = {row["metric"]: row for row in means}
    if "accuracy" not in counts:
        return ""
    accuracy = counts["accuracy"]
    others = [
        f"{LABELS[name].lower()}: {row['n']:,}"
        for name, row in counts.items()
        if name in LABELS and row["n"] != accuracy["n"]
    ]
    apart = f" ({', '.join(others)})" if others else ""
    return f"{_of_all(accuracy, 'relation')}{apart} and "


def _of_all(row: Mapping[str, Any], noun: str) -> str:
    """How many things a number is over, and of how many."""
    if not row["n_excluded"]:
        return counted(row["n"], noun)
    return f"{row['n']:,} of {counted(row['n'] + row['n_excluded'], noun)}"


def _most_different(compared: pl.DataFrame, labels: dict[str, str], group: str) -> Iterator[str]:
    """The relations whose consistency differs most, for each later run."""
    of_relations = compared.filter(
        (pl.col("metric") == "consistency")
        & (pl.col("subset") == "all")
        & ~pl.col("group").is_in(list(OVER))
        & pl.col("difference").is_not_nan()
    )
    several = compared["second"].n_unique() > 1
    for (second,), rows in of_relations.group_by("second", maintain_order=True):
        if rows.height < 2:
            continue
        largest = rows.sort(pl.col("difference").abs(), descending=True).head(NAMED)
        named = ", ".join(
            f"{labels.get(row['group'], row['group'])} {row['difference'] * 100:+.0f}"
            for row in largest.iter_rows(named=True)
        )
        clear = rows.filter(pl.col("p_holm") < 0.05).height
        of_run = f" of {second}" * several
        yield (
            f"Largest differences in consistency{of_run}: {named}. "
            f"Their p (Holm) is < 0.05 in {clear} of {counted(rows.height, group)}."
        )


PERPLEXITY = Column("perplexity", "number", digits=2)


def result_table(compared: pl.DataFrame, suite: Suite, title: str) -> Table:
    """The headline metrics before and after training, as means over the held-out relations.

    ``compared``: the comparison of the two models on some of a suite (``COMPARISON_SCHEMA``).
    """
    means = compared.filter(group="MACRO", subset="all").drop("detectable")
    by_metric = {row["metric"]: row for row in means.iter_rows(named=True)}
    rows = [
        {"label": label_of(metric), **by_metric[metric]}
        for metric in headline_metrics()
        if metric in by_metric
    ]
    columns = difference_columns(means, Column("before", "share"), Column("after", "share"))
    tests = ", ".join(means["test"].drop_nulls().unique(maintain_order=True))
    notes = [*compared_on(compared, suite), f"p: {tests}"]
    return frame_table(rows, title, {"label": Column("metric"), **columns}, notes)


def table_7(rows: pl.DataFrame, relations: int) -> tuple[Table, Table]:
    """ParaRel's Table 7, and each row's differences from the model before.

    ``rows``: ``Improved.table``. ``relations``: the number of test relations.
    """
    names = rows["name"].unique(maintain_order=True).to_list()
    metrics = rows["metric"].unique(maintain_order=True).to_list()
    numbers = {(row["name"], row["metric"]): row for row in rows.iter_rows(named=True)}
    seeds = max(row["seeds"] for row in numbers.values())
    over = f"; means of {seeds} seeds" if seeds > 1 else ""
    means = Table(
        f"Table 7 of the ParaRel paper: means ± std over {relations} held-out relations, in "
        f"percent{over}",
        [Column("model"), *map(metric_column, metrics), PERPLEXITY],
        [_means(name, [numbers[name, metric] for metric in metrics]) for name in names],
    )
    of_seeds = ("lowest", "highest") if seeds > 1 else ()
    largest_p = ("largest_p",) if seeds > 1 else ()
    changes = Table(
        "After minus before, in points" + over,
        [
            Column("model"), Column("metric"), POINTS, Column(CI, "points"), Column("p", "p"),
            *(Column(f"{name} seed", "points") for name in of_seeds),
            *(Column("largest p of a seed", "p") for _ in largest_p),
        ],
        [
            [
                name if metric == metrics[0] else "",
                label_of(metric),
                row["difference"],
                bounds_of(row),
                *(row[column] for column in ("p", *of_seeds, *largest_p)),
            ]
            for name in names[1:]
            for metric in metrics
            for row in [numbers[name, metric]]
        ],
    )  # fmt: skip
    return means, changes


def _means(name: str, rows: Sequence[Mapping[str, Any]]) -> list[Value]:
    return [name, *(Cell(row["value"], std=row["std"]) for row in rows), rows[0]["perplexity"]]


def lambda_table(lambdas: pl.DataFrame) -> Table:
    """Validation of every training; ``lambdas``: ``Improved.lambdas``."""
    metrics = ("accuracy", "consistency", "consistent_accuracy")
    columns = [
        *(Column("model"), Column("seed", "count"), Column("lambda", "number"), Column("")),
        Column("updates", "count"),
    ]
    return Table(
        "Every training: validation relations, best checkpoint, in percent",
        [*columns, *map(metric_column, metrics), PERPLEXITY],
        [
            [
                row["name"],
                str(row["seed"]),
                f"{row['lambda']:g}",
                "chosen" if row["kept"] else "",
                str(row["step"]),
                *(row[name] for name in metrics),
                row["perplexity"],
            ]
            for row in lambdas.iter_rows(named=True)
        ],
    )


def grid_table(rows: Sequence[tuple[int, float, float, bool]], task: str) -> Table:
    """Fine-tunings with the first seed: batch size, learning rate, accuracy, whether chosen."""
    return Table(
        "Tried with the first seed: validation accuracy, in percent",
        [
            Column("batch size", "count"),
            Column("learning rate", "number"),
            Column(task, "share"),
            Column(""),
        ],
        [
            [str(batch), f"{rate:g}", accuracy, "chosen" if is_best else ""]
            for batch, rate, accuracy, is_best in rows
        ],
    )


def seed_table(
    model: str, validation: Mapping[int, Mapping[str, float]], costs: Sequence[tuple[int, float]]
) -> Table:
    """Accuracy of each seed on each task, and the mean; ``costs``: epochs and seconds."""
    tasks = list(next(iter(validation.values())))
    rows: list[list[Value]] = [
        [str(seed), *accuracies.values(), epochs, seconds / 60]
        for (seed, accuracies), (epochs, seconds) in zip(validation.items(), costs, strict=True)
    ]
    if len(rows) > 1:
        values = [[accuracies[task] for accuracies in validation.values()] for task in tasks]
        means = [Cell(fmean(accuracies), std=stdev(accuracies)) for accuracies in values]
        rows.append(["mean", *means, "", ""])
    return Table(
        f"{model}: validation accuracy of the best checkpoint, in percent",
        [
            Column("seed", "count"),
            *(Column(task, "share") for task in tasks),
            Column("epochs", "count"),
            Column("minutes", "number"),
        ],
        rows,
    )


INTRO = (
    "All runs have the same questions, so their answers are paired. A difference is the later run "
    "minus the first, in percentage points, over the items that both answered; so a value may "
    "differ from that of the run alone. p is two-sided: * .05, ** .01, *** .001. Holm: adjusted "
    "over relations, or over the forms of a number. The intervals are not adjusted. Detectable: "
    "the minimum detectable difference at 80 % power."
)
"""How to read the tables."""


def differences(
    compared: pl.DataFrame | None, notes: Sequence[str], names: Mapping[str, str], pool: str
) -> list[Section]:
    """Later runs minus the first (``COMPARISON_SCHEMA``); none without differences and notes.

    ``names``: how the page names the groups. ``pool``: the group of what is over all of them.
    """
    parts: list[Part] = [Points(notes)] if notes else []
    if compared is None:
        return [Section("differences", "Differences", "", parts)] if parts else []
    for (first, second), rows in compared.group_by(["first", "second"], maintain_order=True):
        columns = difference_columns(
            rows, Column(str(first), "share"), Column(str(second), "share")
        )
        minus = f"{second} minus {first}"
        if "MACRO" in rows["group"]:
            parts += _over_relations(rows, columns, minus, names, pool)
        else:
            parts += _by_form(rows, columns, minus)
    return [Section("differences", "Differences", INTRO, parts)]


def _over_relations(
    rows: pl.DataFrame, columns: Columns, minus: str, names: Mapping[str, str], pool: str
) -> Iterator[Table | Folded]:
    """Means over relations or all questions, and folded the headline metrics of each group."""
    rows = rows.filter((pl.col("subset") == "all") & pl.col("metric").is_in(main_metrics()))
    columns = {"relation": Column("relation"), "label": Column("metric"), **columns}
    means = [
        {"label": label_of(row["metric"]), **row}
        for row in rows.filter(pl.col("group") == pool).iter_rows(named=True)
    ]
    title = f"{minus}: {'means over relations' if pool == 'MACRO' else 'all questions together'}"
    yield frame_table(means, title, columns, sortable=False)
    is_relation = ~pl.col("group").is_in(["MACRO", "MICRO"])
    by_relation = [
        {
            "relation": name_and_id(names, row["group"]),
            "label": label_of(row["metric"]),
            **row,
        }
        for row in rows.filter(is_relation).iter_rows(named=True)
        if row["metric"] in headline_metrics(aliases=True)
    ]
    title = f"{minus}: each relation"
    yield Folded(title, [frame_table(by_relation, title, columns)])


def _by_form(rows: pl.DataFrame, columns: Columns, minus: str) -> Iterator[Table | Folded]:
    """Of each group the consistency by form and the accuracy, and folded all other numbers."""
    columns = {"label": Column("metric"), "form": Column("form"), **columns}
    rows = rows.filter(pl.col("metric").is_in(form_metrics(rows)))
    is_main = (pl.col("metric") == "consistency") | (
        pl.col("metric").is_in(["accuracy", "f1"]) & (pl.col("subset") == "all")
    )
    for (group,), of_group in rows.group_by("group", maintain_order=True):
        title = f"{group}: {minus}"
        main, others = (
            [_named_form(row) for row in of_group.filter(chosen).to_dicts()]
            for chosen in (is_main, ~is_main)
        )
        yield frame_table(main, title, columns)
        title += ", all other numbers"
        if others:
            yield Folded(title, [frame_table(others, title, columns)])


def _named_form(row: dict[str, Any]) -> dict[str, Any]:
    """A difference with the names of its metric and form."""
    metric, form = row["metric"], row["subset"]
    name = SYMBOLS.get((metric, form), label_of(metric))
    is_original = form == "all" and metric == "accuracy"
    return {"label": name, "form": "original" if is_original else form, **row}
