"""Tables of differences: between runs, between languages, of a training, on the page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.analysis.flips import KINDS, LOST, NOISE, SAME_MODEL, WON
from consilience.core.errors import By, ConsilienceError
from consilience.core.factors import FACTORS, is_language_kind, several_factors
from consilience.core.text import AGGREGATES, counted
from consilience.metrics.measure import few_relations
from consilience.metrics.registry import headline_metrics, label_of, main_metrics
from consilience.metrics.statistics import CLEAR, TIE, holm
from consilience.report.analysis_tables import SYMBOLS
from consilience.report.columns import (
    DETECTABLE,
    P_HOLM,
    Columns,
    difference_columns,
    frame_table,
    tests_of,
)
from consilience.report.export import Folded, Part
from consilience.report.metric_tables import (
    OVER,
    SUBSETS,
    form_metrics,
    language_label,
)
from consilience.report.run_view import name_and_id
from consilience.report.summary import FACT_ROWS, FORM_ROWS, VIOLATIONS
from consilience.report.table import CI, NAN, Column, Table
from consilience.types import Suite

CORRECTED = "corrected_consistency"  # which a constant model does not have
OVER_QUESTIONS = {"MACRO": "mean of groups", "MICRO": "all questions"}
NAME = 10  # characters of a run's name in a heading on a narrow screen
MOST_FLIPS = 60  # changed answers on the page
VALUES = ("first_value", "second_value")
UNDEFINED = ("difference", "low", "high", "p", "p_holm", "q_value", "p_seeds", "detectable")

CONSTANT = (
    "A model that gives one answer to everything, or always the option in one place, is 100 % "
    "consistent, so no test of consistency against it says anything: read the chance-corrected "
    "consistency of the other model."
)


def comparison_table(compared: pl.DataFrame, suite: Suite, by: By | None = None) -> Table:
    """Later runs minus the first (``COMPARISON_SCHEMA``), with a block for each later run.

    ``by``: a row a group, kind of edit, factor or form of each metric; None or "metric": a row a
    metric, of facts the mean over relations, of questions all of them together. The metrics are
    those of a summary, or all with ``by`` "metric".
    """
    words = suite.words
    if by is None:
        compared = with_undefined_means(compared, suite)
    rows = _chosen(compared, _defaults(compared, by), by, words.pool)
    if rows.is_empty():
        raise ConsilienceError(
            f"no difference by {by or 'metric'} in this comparison",
            expected="--by group or metric; form for runs in several forms; edit for suites that "
            "say how patterns differ; factor for questions",
        )
    pairs = compared.select("first", "second").unique(maintain_order=True).rows()
    over = OVER_QUESTIONS if words.is_pooled else OVER
    labels = {group.id: group.label for group in suite.relations} | over
    records = rows.to_dicts()
    blocks = [_block(row, by, labels, len(pairs)) for row in records]
    first, second = pairs[0] if len(pairs) == 1 else (pairs[0][0], "later run")
    short = [short_name(name) for name in (first, second)]
    short = ["first", "second"] if short[0] == short[1] else short
    columns: Columns = {
        "name": Column({None: "metric", "group": words.group}.get(by) or str(by)),
        **difference_columns(
            rows, Column(first, "share", short[0]), Column(second, "share", short[1])
        ),
    }
    minus = f"{second} minus {first}" if len(pairs) == 1 else f"each run minus {first}"
    title = f"{suite.name}: {minus}, in percent and points"
    notes = list(_notes(rows, compared, by, suite, has_holm="p_holm" in columns))
    named = [{"name": _name(row, by, labels), **row} for row in records]
    return frame_table(named, title, columns, notes, blocks if any(blocks) else [])


def short_name(run: str) -> str:
    """The name of a run without its folder or provider, at most ``NAME`` characters."""
    name = re.split("[/:]", run.rstrip("/:"))[-1]
    return name if len(name) <= NAME else f"{name[: NAME // 2]}…{name[-(NAME // 2 - 1) :]}"


def _defaults(compared: pl.DataFrame, by: By | None) -> list[str]:
    """The metrics that are shown; determinism where nothing else is measured."""
    measured = compared["metric"].unique(maintain_order=True).to_list()
    if by == "metric":
        return measured
    if by in ("edit", "factor"):
        return ["consistency"]
    has_means = "accuracy" in set(compared.filter(group="MACRO")["metric"])
    shown = [VIOLATIONS] if by is None and has_means else headline_metrics(aliases=True)
    order = [name for name in FACT_ROWS if (by is None and has_means) or name in shown]
    return [name for name in dict.fromkeys([*order, *shown]) if name in measured]


def with_undefined_means(compared: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Also a number over all without a difference, where a constant run has no corrected one.

    The value of the other run is its mean over relations, or that of all questions.
    """
    pool = suite.words.pool
    averaged = [group.id for group in suite.relations if group.cardinality == "N-1"]
    chance = compared.filter(metric="chance_consistency", subset="all", group="MICRO")
    expected = {row["second"]: row for row in chance.to_dicts() if pool == "MICRO"}
    rows = compared.filter(metric=CORRECTED, subset="all")
    added: list[dict[str, Any]] = []
    for row in compared.filter(metric="consistency", subset="all", group=pool).to_dicts():
        of_run = rows.filter(second=row["second"]).fill_nan(None)
        if pool not in of_run["group"]:
            means = of_run.filter(pl.col("group").is_in(averaged)).select(*VALUES).mean()
            values = means.fill_null(NAN).to_dicts()[0]
            if of := expected.get(row["second"]):
                values = {
                    side: (row[side] - of[side]) / (1 - of[side]) if of[side] < 1 else NAN
                    for side in VALUES
                }
            undefined = dict.fromkeys(UNDEFINED, NAN) | {"metric": CORRECTED, "test": None}
            added.append(row | undefined | values)
    return pl.concat([compared, pl.DataFrame(added, schema=compared.schema)])


def _chosen(
    compared: pl.DataFrame, metrics: Sequence[str], by: By | None, pool: str
) -> pl.DataFrame:
    """The rows of a table, by later run and metric; ``pool``: the group of what is over all."""
    subset, group, metric = pl.col("subset"), pl.col("group"), pl.col("metric")
    has_means = "MACRO" in compared["group"]
    languages = [kind for kind in compared["subset"].unique() if is_language_kind(kind)]
    is_whole, is_mean = subset == "all", (group == pool) if has_means else pl.lit(True)
    parts = several_factors(compared["subset"].unique()) if pool == "MICRO" else []
    parts += [] if has_means else list(FORM_ROWS)
    is_part = subset.is_in(parts) & (metric == "consistency")
    is_main = pl.when(metric == VIOLATIONS).then(~is_whole).otherwise(is_whole | is_part)
    of_forms = is_mean & ~subset.is_in([*SUBSETS, *FACTORS, *languages])
    chosen: dict[By | None, pl.Expr] = {
        None: is_mean & is_main,
        "metric": is_whole & (group.is_in(AGGREGATES) if has_means else pl.lit(True)),
        "group": is_whole,
        "edit": is_mean & subset.is_in(list(SUBSETS)),
        "factor": is_mean & subset.is_in([*FACTORS, *languages]),
        "form": of_forms & pl.lit(compared.filter(of_forms & ~is_whole).height > 0),
    }
    order = _rank("metric", metrics)
    runs, groups = (
        _rank(name, compared[name].unique(maintain_order=True)) for name in ("second", "group")
    )
    keys = (groups, subset.is_in(list(FACTORS)), order)
    if by == "group":
        keys = (order, group.is_in(AGGREGATES), groups)
    keep = chosen.get(by, pl.lit(False)) & metric.is_in(metrics)
    return compared.filter(keep).sort(runs, *keys, maintain_order=True)


def _rank(name: str, order: Sequence[str] | pl.Series) -> pl.Expr:
    """The position of a column's values in an order; null for others."""
    ranks = {value: at for at, value in enumerate(order)}
    return pl.col(name).replace_strict(ranks, default=None, return_dtype=pl.Int64)


def _name(row: Mapping[str, Any], by: By | None, labels: Mapping[str, str]) -> str:
    metric, subset = row["metric"], row["subset"]
    is_original = subset == "all" and metric in ("accuracy", "f1")
    names: dict[By | None, str] = {
        "group": labels.get(row["group"], row["group"]),
        "edit": SUBSETS.get(subset, subset),
        "factor": language_label(subset),
        "form": "original" if is_original else subset,
    }
    if by in names:
        return names[by]
    if subset == "all":
        return label_of(metric)
    form = f" {FORM_ROWS[subset][0]}" if subset in FORM_ROWS else f", {subset}"
    return f"{label_of(metric)}{form}"


def _block(row: Mapping[str, Any], by: By | None, labels: Mapping[str, str], runs: int) -> str:
    """The heading above a row: the runs, the task or what the row is over, and the metric."""
    parts = [f"{row['first']} -> {row['second']}"] if runs > 1 else []
    group = row["group"]
    if by != "group" and (group not in AGGREGATES or by == "metric"):
        parts.append(labels.get(group, group))
    return ", ".join([*parts, *[label_of(row["metric"])] * (by in ("group", "form"))])


def _notes(
    rows: pl.DataFrame,
    compared: pl.DataFrame,
    by: By | None,
    suite: Suite,
    *,
    has_holm: bool,
) -> Iterator[str]:
    yield from compared_on(compared, suite)
    yield from (f"{note}." for note in few_relations(rows, suite))
    if by is None and rows.filter(pl.col("difference").is_nan(), metric=CORRECTED).height:
        yield CONSTANT
    family = f"{suite.words.group}s" if "MACRO" in compared["group"] else "forms"
    adjusted = f", p (Holm) is adjusted over {family}" if has_holm else ""
    yield f"p: {tests_of(rows, suite.words)}. Intervals and p are not adjusted{adjusted}."
    yield DETECTABLE


def compared_on(compared: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """How many items a comparison is over, of how many; without relations if not all items."""
    accuracy = compared.filter(metric="accuracy", subset="all")
    if suite.words.has_means:
        accuracy = accuracy.filter(group="MICRO")
    for row in accuracy.to_dicts():
        if suite.words.has_means or row["n_excluded"]:
            name = row["second"] if suite.words.has_means else f"{row['second']}, {row['group']}"
            both = ": those that both runs answered" * (row["n_excluded"] > 0)
            begin = f"{name}: compared" if accuracy.height > 1 else "Compared"
            yield f"{begin} on {_of_all(row, suite.words.item)}{both}."


def _of_all(row: Mapping[str, Any], noun: str) -> str:
    """How many things a number is over, and of how many."""
    whole = counted(row["n"] + row["n_excluded"], noun)
    return f"{row['n']:,} of {whole}" if row["n_excluded"] else whole


def verdict(compared: pl.DataFrame, suite: Suite) -> list[str]:
    """Whether later runs differ from the first (``COMPARISON_SCHEMA``), in sentences.

    Of each later run, and of each task: the headline numbers whose p is below ``CLEAR`` after
    Holm's correction over them. Consistency is left out against a model of constant answers.
    """
    metrics = _defaults(compared, None)
    whole = _chosen(with_undefined_means(compared, suite), metrics, None, suite.words.pool)
    whole = whole.filter(subset="all")
    labels = {group.id: group.label for group in suite.relations}
    sentences: list[str] = []
    for (first, second), rows in whole.group_by("first", "second", maintain_order=True):
        is_constant = rows.filter(pl.col("difference").is_nan(), metric=CORRECTED).height > 0
        for (group,), of in rows.group_by("group", maintain_order=True):
            known = of.filter(~(pl.lit(is_constant) & (pl.col("metric") == "consistency")))
            task = "" if group in AGGREGATES else f", {labels.get(group, group)}"
            headlines = known.drop_nans(["difference", "p"]).to_dicts()
            sentences += differ(headlines, f"{second} against {first}{task}")
    return sentences


def clear_of(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The headline numbers whose difference is clear after Holm's correction over all of them."""
    adjusted = holm([row["p"] for row in rows])
    return [row for row, p in zip(rows, adjusted, strict=True) if p < CLEAR]


def differ(rows: Sequence[Mapping[str, Any]], runs: str) -> Iterator[str]:
    """Which headline numbers differ.

    ``rows``: those with a test, accuracy first. ``runs``: what is compared, in words.
    """
    if not rows:
        return
    clear = sorted(clear_of(rows), key=lambda row: -abs(row["difference"]))
    over = f"after Holm's correction over {counted(len(rows), 'headline number')}"
    if clear:
        changes = ", ".join(
            f"{label_of(row['metric']).lower()} {row['difference'] * 100:+.1f}" for row in clear
        )
        yield f"{runs}: {changes} points (p < {CLEAR} {over})."
    else:
        yield f"{runs}: no headline number differs clearly (p >= {CLEAR} {over})."


FLIPS: Columns = {
    "name": Column("part"),
    "changed": Column("changed", "share"),
    ("low", "high"): Column(CI, "share"),
    LOST: Column("right → wrong", "share"),
    WON: Column("wrong → right", "share"),
    KINDS[2]: Column("wrong → wrong", "share"),
    "p": Column("p", "p"),
    "p_holm": P_HOLM,
    "n": Column("answers", "count"),
}
"""Which answers differ between two runs (``FLIP_SCHEMA``)."""

FLIPPED = ("second run", "group", "item", "variant", "gold", "first", "second", "flip")


def flip_table(numbers: pl.DataFrame, suite: Suite) -> Table:
    """A row for all answers, each group with changes, and each level; then noise.

    Each two runs have a block.
    """
    labels, rows, blocks = {group.id: group.label for group in suite.relations}, [], []
    shown = numbers.filter((pl.col("over") != "group") | (pl.col("changed") > 0))
    for row in shown.to_dicts():
        level = row["level"].replace("_", " ")
        names = {"all": "all answers", "group": labels.get(row["level"], level)}
        rows.append(row | {"name": names.get(row["over"], f"{row['over']}: {level}")})
        is_noise = row["over"] in (NOISE, SAME_MODEL)
        pair = row["first"] if is_noise else f"{row['first']} -> {row['second']}"
        blocks.append(f"{pair}, asked twice" if is_noise else pair)
    tests, rest = tests_of(numbers, suite.words), numbers.height - len(rows)
    notes = [
        f"p: are right → wrong and wrong → right equally frequent ({tests})? The answers to one "
        f"{suite.words.item} in several variants are not independent, so each {suite.words.item} "
        "counts once. p (Holm) is adjusted over the rows of one kind.",
        *[f"{counted(rest, 'row')} of a {suite.words.group} without a change not shown."]
        * (rest > 0),
    ]
    title = f"{suite.name}: answers that changed, in percent of all answers"
    return frame_table(rows, title, FLIPS, notes, blocks)


def flipped_table(answers: pl.DataFrame, most: int | None = None) -> Table:
    """The answers that changed, the first ``most`` of them."""
    shown = answers.head(most or answers.height)
    rest = answers.height - shown.height
    notes = [f"{rest:,} more: compare --flips --format csv prints all."] * (rest > 0)
    one = answers["second run"].n_unique() < 2
    columns: Columns = {name: Column(name) for name in FLIPPED[one:]}
    return frame_table(shown, "Changed answers", columns, notes)


def flip_parts(numbers: pl.DataFrame, answers: pl.DataFrame, suite: Suite) -> Iterator[Part]:
    """Numbers (``FLIP_SCHEMA``) and examples of changed answers."""
    yield flip_verdict(numbers, suite)
    yield flip_table(numbers, suite)
    title = f"Examples of changed answers ({answers.height:,} in all)"
    yield Folded(title, [flipped_table(answers, MOST_FLIPS)])


def flip_verdict(numbers: pl.DataFrame, suite: Suite) -> list[str]:
    """How many answers changed, in which direction, and whether that is more than noise."""
    sentences, words = list[str](), suite.words
    floors = numbers.filter(pl.col("over").is_in([NOISE, SAME_MODEL])).drop_nans("changed")
    for row in numbers.filter(over="all").to_dicts():
        same = ", which has the same model" * (row["level"] == SAME_MODEL)
        if row["changed"] == 0:
            whole = f"none of {counted(row['n'], 'answer')} changed"
            sentences.append(f"{row['second']} against {row['first']}{same}: {whole}.")
            continue
        texts = [f"from {LOST}", f"from {WON}", "from one wrong answer to another"]
        shares = [f"{row[kind]:.1%} {text}" for kind, text in zip(KINDS, texts, strict=True)]
        if (rest := row["changed"] - sum(row[kind] for kind in KINDS)) > TIE:
            shares.append(f"{rest:.1%} from one right answer to another")
        sentences.append(
            f"{row['second']} against {row['first']}{same}: {row['changed']:.1%} of "
            f"{counted(row['n'], 'answer')} changed ({CI} {row['low']:.1%} to {row['high']:.1%}), "
            f"in {row['items_changed']:,} of {counted(row['items'], words.item)}: "
            f"{', '.join(shares)}."
        )
        if math.isnan(row["p"]) or row["p"] >= CLEAR:
            sentences.append(f"Neither direction is clearly more frequent (p >= {CLEAR}).")
        else:
            more, less = (LOST, WON) if row[LOST] > row[WON] else (WON, LOST)
            sentences.append(f"{more.capitalize()} is more frequent than {less} (p < {CLEAR}).")
        of_runs = floors.filter(pl.col("first").is_in([row["first"], row["second"]]))
        for floor in of_runs.sort("changed", descending=True).head(1).to_dicts():
            side = "more" if row["low"] > floor["high"] else "not clearly more"
            how = f"{floor['over']}: {floor['level'].replace('_', ' ')}"
            sentences.append(
                f"That is {side} than {floor['first']} changes without a new version: "
                f"{floor['changed']:.1%} of {counted(floor['n'], 'answer')} ({how})."
            )
    return sentences


def difference_parts(compared: pl.DataFrame, names: Mapping[str, str], pool: str) -> Iterator[Part]:
    """Later runs minus the first (``COMPARISON_SCHEMA``).

    ``names``: how the page names the groups. ``pool``: the group of what is over all of them.
    """
    for (first, second), rows in compared.group_by(["first", "second"], maintain_order=True):
        for title, chosen, is_folded in _of_page(rows, f"{second} minus {first}", pool):
            columns: Columns = {
                **({"relation": Column("relation")} if pool and is_folded else {}),
                "label": Column("metric"),
                **({} if pool else {"form": Column("form")}),
                **difference_columns(rows, str(first), str(second)),
            }
            records = [_named(row, names, pool) for row in chosen.to_dicts()]
            table = frame_table(records, title, columns, sortable=is_folded or not pool)
            yield Folded(title, [table]) if is_folded else table


def _named(row: Mapping[str, Any], names: Mapping[str, str], pool: str) -> dict[str, Any]:
    """A row of the page with the names of its group, metric and form; of tasks with symbols."""
    key = row["metric"], row["subset"]
    label = label_of(row["metric"])
    return {
        "relation": name_and_id(names, row["group"]),
        "label": label if pool else SYMBOLS.get(key, label),
        "form": "original" if key == ("accuracy", "all") else row["subset"],
        **row,
    }


def _of_page(rows: pl.DataFrame, minus: str, pool: str) -> Iterator[tuple[str, pl.DataFrame, bool]]:
    """Title and rows of each table of the page, and whether it is folded."""
    metric, is_whole = pl.col("metric"), pl.col("subset") == "all"
    if pool:
        over = "means over relations" if pool == "MACRO" else "all questions together"
        rows = rows.filter(is_whole, metric.is_in(main_metrics()))
        yield f"{minus}: {over}", rows.filter(group=pool), False
        is_shown = metric.is_in(headline_metrics(aliases=True))
        single = rows.filter(is_shown, ~pl.col("group").is_in(AGGREGATES))
        yield f"{minus}: each relation", single, True
        return
    rows = rows.filter(metric.is_in(form_metrics(rows)))
    is_main = (metric == "consistency") | (metric.is_in(["accuracy", "f1"]) & is_whole)
    for (group,), of_group in rows.group_by("group", maintain_order=True):
        yield f"{group}: {minus}", of_group.filter(is_main), False
        if (others := of_group.filter(~is_main)).height:
            yield f"{group}: {minus}, all other numbers", others, True
