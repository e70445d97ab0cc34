"""Tables of differences: between runs, between languages, of a training, on the page."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from consilience.analysis.examples import KINDS_OF_FLIPS, LOST, WON
from consilience.core.errors import By, ConsilienceError
from consilience.core.factors import several_factors
from consilience.core.text import counted, truncated
from consilience.metrics.measure import legible
from consilience.metrics.registry import headline_metrics, label_of, within
from consilience.metrics.statistics import CLEAR, holm
from consilience.report.metric_tables import (
    DIFFERENCE,
    LONGEST,
    P_HOLM,
    POINTS,
    form_rows,
    in_one_line,
    number_label,
    part_label,
)
from consilience.report.summary import (
    FACT_ROWS,
    FORM_ROWS,
    OF_JUDGES,
    VIOLATIONS,
    are_in_both_orders,
    over_phrasings,
)
from consilience.report.table import (
    CI,
    LOW_HIGH,
    Cell,
    Column,
    Columns,
    Row,
    Table,
    frame_table,
    interval_of,
)
from consilience.types import FACT_WORDS, Suite, SuiteWords


def difference_columns(
    rows: pl.DataFrame, first: str | Column, second: str | Column
) -> dict[str, Column]:
    """The columns of differences after those that name the row; ``rows``: their data frame.

    Adjusted p-values are left out where no row has them.
    """
    has_holm = rows["p_holm"].is_not_nan().any()
    values = (Column(of, "share") if isinstance(of, str) else of for of in (first, second))
    return {
        **dict(zip(("first_value", "second_value"), values, strict=True)),
        **DIFFERENCE,
        "t": Column("t", "number"),
        "p": Column("p", "p", is_extra=True),
        **({"p_holm": P_HOLM} if has_holm else {}),
        "detectable": Column("detectable", "share", "detect."),
    }


DETECTABLE = "detectable: the minimum detectable difference (80 % power). * .05 ** .01 *** .001"


def tests_of(rows: pl.DataFrame, words: SuiteWords = FACT_WORDS) -> str:
    """The tests of rows, with what a kind of suite calls what they flip or permute."""
    tests = ", ".join(rows["test"].drop_nulls().unique(maintain_order=True))
    return tests.replace("subjects", words.clusters).replace("relations", f"{words.group}s")


CORRECTED = "corrected_consistency"  # which a constant model does not have
NAME = 10  # characters of a run's name in a heading on a narrow screen

CONSTANT = (
    "A model that gives one answer to everything has no chance-corrected consistency, so no test "
    "of consistency against it says anything: read that number of the other model."
)


def comparison_table(compared: pl.DataFrame, suite: Suite, by: By | None = None) -> Table:
    """Later runs minus the first (``COMPARISON_SCHEMA``): both values, the difference and its test.

    ``by``: a row a group, kind of edit, factor or form of each metric; None or "metric": a row a
    metric, of facts the mean over relations, of questions all of them together. The metrics are
    those of a summary, or all with ``by`` "metric". What else differs between rows, such as the
    later run, is the heading of a block; what is the same in all is in the title.
    """
    rows = chosen_rows(compared, suite, by)
    if rows.is_empty():
        expected = "a part that the suite has"
        raise ConsilienceError(f"no difference by {by} in this comparison", expected=expected)
    notes = list[str]()
    if by is None and rows.filter(pl.col("difference").is_nan(), metric=CORRECTED).height:
        notes.append(CONSTANT)
    family = "forms" if suite.words.over == "group" else f"{suite.words.group}s"
    adjusted = f", p (Holm) is adjusted over {family}" * rows["p_holm"].is_not_nan().any()
    notes.append(f"p: {tests_of(rows, suite.words)}. Intervals and p are not adjusted{adjusted}.")
    notes.append(DETECTABLE)
    for second, of_run in compared.group_by("second", maintain_order=True) if by is None else ():
        begin = f"{second[0]}: " * (compared["second"].n_unique() > 1)
        sentence = over_phrasings(legible(of_run), suite)
        notes += [begin + sentence] * bool(sentence)
    by, pairs = by or "metric", rows.select("first", "second").unique(maintain_order=True).rows()
    first, second = pairs[0] if len(pairs) == 1 else (pairs[0][0], "later run")
    names = ((of, re.split("[/:]", of.rstrip("/:"))[-1][-NAME:]) for of in (first, second))
    headings = (Column(of, "share", short) for of, short in names)
    name = suite.words.group if by == "group" else by
    columns: Columns = {"name": Column(name), **difference_columns(rows, *headings)}
    words, labels = suite.words, {one.id: one.label for one in suite.relations}
    whole = {"mean": f"mean of {words.group}s", "all": f"all {words.item}s"}
    records = rows.to_dicts()
    for row in records:  # what tables call its runs, group, metric and part
        group = whole.get(row["over"]) or labels.get(row["group"], row["group"])
        of_form = FORM_ROWS.get(row["level"], ()) if row["kind"] == "form" else ()
        metric = f"{label_of(row['metric'])} {of_form[0]}" if of_form else number_label(row)
        row |= {
            "runs": f"{row['first']} -> {row['second']}", "groups": group, "group": group,
            "metrics": label_of(row["metric"]), "metric": metric, "part": part_label(row),
        }  # fmt: skip
    apart = [name for name in ("runs", "groups", "metrics") if
             name != f"{by}s" and len({row[name] for row in records}) > 1]  # fmt: skip
    lines = [{**row, "name": row.get(by, row["part"])} for row in records]
    blocks = [", ".join(row[name] for name in apart) for row in records] if apart else []
    minus = f"{second} minus {first}" if len(pairs) == 1 else f"each run minus {first}"
    metric = f"{within(records[0]['metrics'])}, " * (by != "metric" and "metrics" not in apart)
    title = f"{suite.name}: {metric}{minus}, in percent and points"
    return frame_table(lines, title, columns, notes, blocks)


def chosen_rows(compared: pl.DataFrame, suite: Suite, by: By | None = None) -> pl.DataFrame:
    """The rows that ``by`` shows, by later run and metric; without it the headline numbers."""
    over, kind, metric, words = pl.col("over"), pl.col("kind"), pl.col("metric"), suite.words
    is_whole, is_headline = kind == "whole", over == words.over
    factors = several_factors(compared.select("kind", "level").unique().rows())
    is_part = (kind == "form") & pl.col("level").is_in([*FORM_ROWS])
    is_part |= (kind == "factor") & pl.col("level").is_in(factors) & words.is_pooled
    is_part = is_whole | (is_part & (metric == "consistency"))
    is_main = pl.when(metric == VIOLATIONS).then(kind == "expectation").otherwise(is_part)
    chosen: dict[By | None, pl.Expr] = {
        None: is_headline & is_main,
        "metric": is_whole & ((over != "group") | is_headline),
        "group": is_whole,
        "edit": is_headline & (kind == "edit"),
        "factor": is_headline & kind.is_in(["factor", "language"]),
        "form": is_headline,
    }
    known = pl.any_horizontal(pl.col("first_value", "second_value").is_not_nan())
    rows = legible(compared).filter(chosen.get(by, pl.lit(False)) & known)
    if by == "form":
        rows = form_rows(rows) if "form" in rows["kind"] else rows.clear()
    measured = rows["metric"].unique(maintain_order=True).to_list()
    headlines = headline_metrics(aliases=True)  # determinism where nothing else is measured
    if by is None and words.over != "group" and "accuracy" in measured:
        of_judges = [*OF_JUDGES] if are_in_both_orders(suite) else []
        headlines = [*FACT_ROWS, *of_judges, VIOLATIONS]
    firsts = [name for name in FACT_ROWS if name in headlines]
    metrics = [name for name in dict.fromkeys([*firsts, *headlines]) if name in measured]
    if by in ("metric", "edit", "factor"):
        metrics = measured if by == "metric" else ["consistency"]
    order = _rank("metric", metrics)
    runs, groups = (_rank(of, rows[of].unique(maintain_order=True)) for of in ("second", "group"))
    keys = (order, over != "group", over, groups) if by == "group" else (groups, ~is_whole, order)
    if by == "metric":
        keys = (over != words.over, groups, order)
    return rows.filter(metric.is_in(metrics)).sort(runs, *keys, maintain_order=True)


def _rank(name: str, order: Sequence[str] | pl.Series) -> pl.Expr:
    """The position of a column's values in an order; null for others."""
    ranks = {value: at for at, value in enumerate(order)}
    return pl.col(name).replace_strict(ranks, default=None, return_dtype=pl.Int64)


def verdict(compared: pl.DataFrame, suite: Suite) -> list[str]:
    """Whether later runs differ from the first (``COMPARISON_SCHEMA``), in sentences.

    Of each later run, and of each task: the headline numbers whose p is below ``CLEAR`` after
    Holm's correction over them, or the one that differs most. Consistency is left out against a
    model of constant answers.
    """
    whole = chosen_rows(compared, suite).filter(kind="whole")
    labels = {group.id: group.label for group in suite.relations}
    sentences: list[str] = []
    for (first, second, group), rows in whole.group_by(
        "first", "second", "group", maintain_order=True
    ):
        is_constant = rows.filter(pl.col("difference").is_nan(), metric=CORRECTED).height > 0
        known = rows.filter(~(pl.lit(is_constant) & (pl.col("metric") == "consistency")))
        tested = known.drop_nans(["difference", "p"])
        if tested.is_empty():
            continue
        adjusted = pl.Series(holm(tested["p"].to_list()))
        tested = tested.with_columns(is_clear=adjusted < CLEAR)
        tested = tested.sort(pl.col("difference").abs(), descending=True, maintain_order=True)
        clear = tested.filter("is_clear").to_dicts()
        runs = f"{second} against {first}" + (f", {labels.get(str(group), group)}" if group else "")
        over = f"after Holm's correction over {counted(tested.height, 'headline number')}"
        if clear:
            changes = ", ".join(map(_change, clear))
            sentences.append(f"{runs}: {changes}; p < {CLEAR} {over}.")
            continue
        found = f"{runs}: no headline number differs clearly (p >= {CLEAR} {over})"
        if tested["difference"][0]:
            found += f"; the largest difference is {_change(tested.row(0, named=True))}"
        sentences.append(f"{found}.")
    return sentences


def _change(row: Row) -> str:
    """Both values of a number in percent, and their difference with its interval, in words."""
    first, second, points = (
        100 * row[name] for name in ("first_value", "second_value", "difference")
    )
    interval = interval_of(Cell(low=row["low"], high=row["high"]), POINTS)
    bounds = f", {CI} {interval}" * bool(interval)
    change = f"{second:.1f} instead of {first:.1f} % ({points:+.1f} points{bounds})"
    return f"{within(label_of(row['metric']))} {change}"


FLIPS: Columns = {
    "name": Column("part"), "changed": Column("changed", "share", bounds=LOW_HIGH),
    LOST: Column("right → wrong", "share"), WON: Column("wrong → right", "share"),
    KINDS_OF_FLIPS[2]: Column("wrong → wrong", "share"), "p": Column("p", "p"), "p_holm": P_HOLM,
    "n": Column("answers", "count"),
}  # fmt: skip
"""Which answers differ between two runs (``FLIP_SCHEMA``)."""

FLIPPED: Columns = {
    "second run": Column("second run"), "group": Column("group", is_extra=True),
    "asked": Column("asked"), "gold": Column("gold"), "changed": Column("changed", "count"),
    "first": Column("first"), "second": Column("second"), "flip": Column("flip"),
}  # fmt: skip
"""The questions whose answers changed: how many did, and the most frequent change."""


def flip_table(numbers: pl.DataFrame, suite: Suite) -> Table:
    """A row for all answers, each group with changes, and each level; a block for two runs."""
    labels, rows, blocks = {group.id: group.label for group in suite.relations}, [], []
    shown = numbers.filter((pl.col("over") != "group") | (pl.col("changed") > 0))
    for row in shown.to_dicts():
        level = row["level"].replace("_", " ")
        names = {"all": "all answers", "group": labels.get(row["level"], level)}
        rows.append(row | {"name": names.get(row["over"], f"{row['over']}: {level}")})
        blocks.append(f"{row['first']} -> {row['second']}")
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


def flipped_table(answers: pl.DataFrame, suite: Suite, most: int | None = None) -> Table:
    """The questions whose answers changed, those that lost most first: the first ``most``.

    ``answers``: those that changed, with their ``prompt``.
    """
    key, change = ["second run", "group", "item"], ["gold", "first", "second", "flip"]
    kinds = answers.group_by(*key, *change, maintain_order=True).agg(
        pl.col("prompt").first(), n=pl.len()
    )
    n, is_lost = pl.col("n"), pl.col("flip") == LOST
    items = kinds.sort("n", descending=True, maintain_order=True)
    items = items.group_by(key, maintain_order=True).agg(
        pl.col(*change, "prompt").first(), changed=n.sum(), lost=n.filter(is_lost).sum()
    )
    items = items.sort("lost", "changed", descending=True, maintain_order=True)
    prompts = items["prompt"].fill_null("").to_list()
    asked = [truncated(of, LONGEST) for of in in_one_line(prompts, shared=len(prompts) > 1)]
    shown = items.with_columns(asked=pl.Series(asked, dtype=pl.String)).head(most or items.height)
    shown = shown.with_columns(pl.when(pl.col("asked") == "").then("item").otherwise("asked"))
    rest, word = items.height - shown.height, suite.words.item
    notes = [f"{rest:,} more {word}s; --format csv has every answer."] * (rest > 0)
    if items["second run"].n_unique() < 2:
        shown = shown.drop("second run")
    title = f"{word.capitalize()}s with changed answers: how many, and the most frequent change"
    return frame_table(shown, title, FLIPPED, notes)


def flip_verdict(numbers: pl.DataFrame, suite: Suite) -> list[str]:
    """How many answers changed, and in which direction if that is clear."""
    sentences = list[str]()
    for row in numbers.filter(over="all").to_dicts():
        sentences.append(
            f"{row['second']} against {row['first']}: {100 * row['changed']:.1f} % of "
            f"{counted(row['n'], 'answer')} changed, in {row['items_changed']:,} of "
            f"{counted(row['items'], suite.words.item)}."
        )
        if row["p"] < CLEAR:
            more, less = (LOST, WON) if row[LOST] > row[WON] else (WON, LOST)
            sentences.append(f"{more.capitalize()} is more frequent than {less} (p < {CLEAR}).")
    return sentences
