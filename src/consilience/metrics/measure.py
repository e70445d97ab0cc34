"""From a table of answers to counts, and from these to the table of metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from statistics import stdev
from typing import Any, get_args

import numpy as np
import polars as pl
from scipy.special import stdtrit

from consilience.core.errors import ConsilienceError, Protocol, did_you_mean, missing_column
from consilience.core.factors import (
    LETTERS,
    NO_OPTION,
    PATTERN,
    WHOLE,
    Design,
    Instance,
    Kind,
    Part,
    instances,
)
from consilience.core.free_text import normalized
from consilience.core.schemas import METRICS_SCHEMA, NOISE_FLOOR, OVER_PHRASINGS, REASONS
from consilience.files.rows import as_polars, different, joined, repeated
from consilience.metrics import uncertainty
from consilience.metrics.registry import (
    DESCRIPTIONS,
    METRICS,
    OPTION_SCORES,
    Grid,
    Metric,
    Tally,
    View,
    as_labels,
    grids,
)
from consilience.metrics.statistics import LEVEL, NAN
from consilience.metrics.uncertainty import Estimate, Index
from consilience.types import Cardinality, Relation, Suite

NEEDED = ("group", "item", "subject", "variant", "gold", "answer")
TEXTS = (*NEEDED, "gold_token", "option", "gold_option", "shown", *REASONS)

FACT = ["group", "item", "subject", "gold"]


def coded_of(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Check an answers table against its suite; what is counted of it, with ``variant_index``.

    Texts are categories: four bytes a row instead of sixteen and the text. A blank answer is none.
    """
    where, columns = "the answers table", answers.columns
    for name in NEEDED:
        if name not in columns:
            raise missing_column(name, columns, expected=", ".join(NEEDED), where=where)
    if answers.is_empty():
        raise ConsilienceError("no rows", where=where)
    kinds: dict[str, Any] = dict.fromkeys(TEXTS, pl.Categorical()) | {"n_candidates": pl.Float64}
    kinds |= {name: pl.Float64 for name in ("logprob", "margin") if name in columns}
    if isinstance(answers.schema.get(OPTION_SCORES), pl.List):
        kinds[OPTION_SCORES] = pl.List(pl.Float64)

    def typed(name: str, kind: Any) -> pl.Expr:
        column = pl.col(name) if name in columns else pl.lit(None).alias(name)
        if kind == pl.Categorical and answers.schema.get(name) != kind:
            column = column.cast(pl.String)
        return column.cast(kind, strict=False)

    table = answers.select(*(typed(name, kind) for name, kind in kinds.items()))
    words = table["answer"].unique().cast(pl.String)
    if blank := words.filter(words.str.strip_chars() == "").to_list():
        is_blank = pl.col("answer").is_in(blank)
        table = table.with_columns(answer=pl.when(is_blank).then(None).otherwise("answer"))
    for name in NEEDED[:-1]:
        if table[name].null_count():
            first = (table[name].is_null().arg_max() or 0) + 1
            raise ConsilienceError(f"no '{name}'", where=f"{where}, row {first}")
    pairs, on = different(table, "group", "variant"), ["group", "variant"]
    known = {(of.id, name): at for of in suite for at, name in enumerate(of.design.variants)}
    places = [known.get(pair) for pair in pairs.iter_rows()]
    if None in places:
        group, variant = pairs.row(places.index(None))
        names = suite.relation(group).design.variants  # of another group: raises
        found, todo = f"no variant '{variant}' of {group}", did_you_mean(variant, [*names])
        raise ConsilienceError(found, where=f"the suite '{suite.name}'", todo=todo)
    pairs = pairs.with_columns(variant_index=pl.Series(places, dtype=pl.Int32))
    cells = joined(table.select(on), pairs.with_row_index("cell"), on)
    table = table.with_columns(cells["variant_index"])
    facts = different(table, *FACT)
    for what, rows, again in (
        ("subjects or golds", facts, facts.select("group", "item").is_duplicated()),
        ("rows in one variant", table, repeated(table["item"].to_physical(), cells["cell"])),
    ):
        if again.any():
            row = rows.row(again.arg_max() or 0, named=True)
            found = f"the item '{row['item']}' of {row['group']} has several {what}"
            todo = "Give each fact an item id of its own."
            raise ConsilienceError(found, where=where, todo=todo)
    return table


def instances_of(table: pl.DataFrame, suite: Suite) -> dict[str, list[tuple[Instance, ...]]]:
    """The instances of each expectation that could be checked, by the group of its first premise.

    ``table``: a checked answers table. The column ``option`` alone says which option an answer is:
    a text without one is ``NO_OPTION``, whatever it reads. Two answers to open questions are the
    same if their normalized texts are.
    """
    options = {one.item: one.options for of in suite.expectations for one in of.references}
    rules = [texts for of in suite.expectations for rule in of.rules.items() for texts in rule]
    rows = table.filter(pl.col("item").is_in([*options]))
    texts = [*rows["gold"].unique(maintain_order=True), *(text for of in rules for text in of)]
    same = {normalized(text): text for text in reversed(texts)}
    position = pl.col("option").cast(pl.Float64, strict=False).cast(pl.Int64)
    columns = rows.select("group", "item", "variant", "answer", position, "excluded", "shown")
    replies, shown, groups = dict[tuple[str, str], str | None](), {}, dict[str, str]()
    for group, item, variant, text, at, excluded, letters in columns.iter_rows():
        groups[item], known = group, options[item]
        shown[item, variant] = tuple(map(LETTERS.index, letters or ""))
        if text is None:
            replies[item, variant] = NO_OPTION if excluded is None else None
        elif known:
            replies[item, variant] = known[at] if at is not None and at < len(known) else NO_OPTION
        else:
            replies[item, variant] = same.get(normalized(text), text)
    by_group: dict[str, list[tuple[Instance, ...]]] = {}
    for one in suite.expectations:
        if (first := groups.get(one.items[0])) is not None:
            variants = suite.relation(first).design.variants
            if of_expectation := tuple(instances(one, replies, variants, shown)):
                by_group.setdefault(first, []).append(of_expectation)
    return by_group


KEPT = 2**20  # Answers of a table up to which its views are kept

MOST_COUNTS = 12  # Variants of an item up to which each number of them has a row

Key = tuple[str, Part]  # A metric, and the part of a group that it is counted on

EMPTY_AS_ZERO = {"published": ("known_consistency", "unknown_consistency"), "strict": ()}
"""Metrics of groups without data that the released code logs as 0, which its means include."""


def name_of(metric: str, cardinality: Cardinality) -> str:
    """The name of a metric in groups of a cardinality."""
    return "determinism" if metric == "consistency" and cardinality == "N-M" else metric


def empty_value(key: Key, protocol: Protocol) -> float:
    """The value of a group without data."""
    return 0.0 if key[0] in EMPTY_AS_ZERO[protocol] else NAN


def is_averaged(key: Key, relation: Relation) -> bool:
    """Whether a metric is averaged over groups: in N-M relations only determinism is.

    In N-M relations an answer that is another gold of its subject counts as wrong.
    """
    is_of_kind = relation.cardinality == "N-1" or key[0] == "determinism"
    return relation.design.is_averaged and is_of_kind


def count(views: Mapping[View, Grid], relation: Relation) -> dict[Key, Tally]:
    """Every metric of the two views of one group, over all of it and by its parts."""
    makers: dict[tuple[Part, int, bool], Callable[[], Grid]] = {}
    metrics: dict[tuple[Part, int, bool], list[tuple[str, Metric]]] = {}  # of one grid
    for metric_name, metric in METRICS.items():
        name, view = name_of(metric_name, relation.cardinality), metric.view
        for part, make in _parts(views[view], relation.design, metric):
            of = part, id(views[view]), metric.one_form
            makers.setdefault(of, make)
            metrics.setdefault(of, []).append((name, metric))
    tallies: dict[Key, Tally] = {}
    for of, make in makers.items():
        grid = make()
        is_own, kind = PATTERN in grid.phrasings, of[0][0]
        is_sampled = kind in ("whole", "factor") and not relation.design.languages
        for name, metric in metrics[of]:
            if (tally := metric.tally(grid)) is not None:
                if metric.over_phrasings:
                    tally = replace(tally, has_own_phrasings=is_own)
                    if is_sampled and (metric.among is not None or not is_own):
                        tally = metric.recounted(tally, grid)
                tallies[name, of[0]] = tally
    return tallies


def _parts(grid: Grid, design: Design, metric: Metric) -> Iterator[tuple[Part, Callable[[], Grid]]]:
    """The parts of a group that a metric is counted on: all, then each form, language or edit."""
    base, *others = design.forms.items()
    if metric.one_form:
        yield WHOLE, lambda: grid.only_variants(base[1]) if others else grid
        for form, variants in others:
            yield ("form", form), partial(grid.only_variants, variants)
        for language, variants in design.languages.items():
            yield ("language", language), partial(grid.only_variants, variants)
        return
    if metric.by_count:
        sizes = set(grid.asked.sum(axis=1).tolist()) - {0}
        size = sizes.pop() if len(sizes) == 1 else 0
        for least in range(1, 1 + size) if size <= MOST_COUNTS else ():
            yield ("count", f"{least} of {size}"), partial(replace, grid, least=least)
        return
    yield WHOLE, lambda: grid
    if metric.by_expectation:
        for level in dict.fromkeys(of[0].expectation.kind for of in grid.instances):
            yield ("expectation", level), partial(grid.only_expectations, level)
        return
    for part, pairs in design.parts.items():
        if metric.by_form if part[0] in ("form", "language") else metric.by_edit:
            yield part, partial(grid.only_pairs, pairs)


class CheckedAnswers:
    """An answers table that was checked against its suite: ``coded``.

    What was counted is kept: for a table that is counted and compared with others.
    """

    def __init__(
        self, answers: pl.DataFrame, suite: Suite, coded: pl.DataFrame | None = None
    ) -> None:
        self.answers, self.suite = answers, suite
        self.coded = coded_of(answers, suite) if coded is None else coded
        self._tallies: dict[tuple[Protocol, str], dict[Key, Tally]] = {}
        self._views: dict[tuple[Protocol, str], dict[View, Grid]] = {}

    @cached_property
    def table(self) -> pl.DataFrame:
        """The whole table with its texts, which take most of the memory; ``coded`` has none."""
        return self.coded.cast({pl.Categorical: pl.String})

    @cached_property
    def _places(self) -> dict[str, tuple[int, int, int]]:
        """The first and the last row of each group, and how many it has."""
        rows, row = self.coded.lazy().select("group").with_row_index("row"), pl.col("row")
        of_groups = rows.group_by("group").agg(row.min(), row.max().alias("last"), pl.len())
        places = of_groups.collect(engine="streaming")
        return {group: (first, last, size) for group, first, last, size in places.iter_rows()}

    def coded_rows(self, group: str) -> pl.DataFrame:
        """The rows of a group of ``coded``; no copy of them where they are together."""
        first, last, size = self._places[group]
        rows = self.coded[first : last + 1]
        return rows if rows.height == size else rows.filter(pl.col("group") == group)

    def rows(self, group: str) -> pl.DataFrame:
        """The rows of a group of ``table``."""
        return self.coded_rows(group).cast({pl.Categorical: pl.String})

    @property
    def relations(self) -> list[Relation]:
        """The groups that have rows, in the order of the suite."""
        return [relation for relation in self.suite.relations if relation.id in self._places]

    def of_kind(self, kind: Cardinality) -> list[Relation]:
        """The groups of a cardinality that have rows."""
        return [relation for relation in self.relations if relation.cardinality == kind]

    @cached_property
    def instances(self) -> Mapping[str, Sequence[tuple[Instance, ...]]]:
        """The instances of each expectation, by the group of its first premise."""
        return instances_of(self.table, self.suite) if self.suite.expectations else {}

    @cached_property
    def _has_none(self) -> bool:
        """Whether any answer that is chosen among options or labels is none of them."""
        designs = {group.id: group.design for group in self.relations}
        chosen = {name: of for name, of in designs.items() if of.labels and not of.writes_freely}
        rows = (as_labels(self.coded_rows(name), of) for name, of in chosen.items())
        is_none = pl.col("answer").is_null() & pl.col("excluded").is_null()
        return any(of.select(is_none.any()).item() for of in rows)

    def views(self, relation: Relation, protocol: Protocol) -> dict[View, Grid]:
        """The two views of a relation's answers."""
        key = protocol, relation.id
        if key in self._views:
            return self._views[key]
        views = grids(self.coded_rows(relation.id), relation, protocol)
        instances = tuple(self.instances.get(relation.id, ()))
        design = relation.design
        may_have_none = bool(design.labels) and (design.writes_freely or self._has_none)
        one, other = (
            replace(views[name], instances=instances, may_have_none=may_have_none)
            for name in ("tuples", "pairs")
        )
        views = {"tuples": one, "pairs": one if views["tuples"] is views["pairs"] else other}
        if self.coded.height <= KEPT:
            self._views[key] = views
        return views

    def tallies(
        self, relation: Relation, protocol: Protocol, views: Mapping[View, Grid] | None = None
    ) -> dict[Key, Tally]:
        """Every metric of a relation; ``views``: its views, where they are known."""
        key = protocol, relation.id
        if key not in self._tallies:
            views = views or self.views(relation, protocol)
            self._tallies[key] = count(views, relation)
        return self._tallies[key]


Answers = pl.DataFrame | CheckedAnswers  # The answers of one run


def checked_answers(answers: Answers, suite: Suite) -> CheckedAnswers:
    """A table that is ready to be counted."""
    if isinstance(answers, CheckedAnswers):
        return answers
    return CheckedAnswers(as_polars(answers, "the answers table"), suite)


def asked_of_all(runs: Mapping[str, CheckedAnswers]) -> dict[str, CheckedAnswers]:
    """The answers of runs to what all of them were asked; without any such query raises.

    A query is its group, item, subject, gold and variant. One that any run left out before asking
    counts as left out in all.
    """
    keys, tables = [*FACT, "variant"], [run.coded for run in runs.values()]
    common = tables[0].select(keys)
    for of in tables[1:]:
        if not common.equals(of.select(keys)):
            common = common.join(of, on=keys, how="semi", maintain_order="left")
    if any(of.height > common.height for of in tables):
        tables = [of.join(common, on=keys, how="semi", maintain_order="left") for of in tables]
    reasons = [of.drop_nulls("excluded").select(*keys, reason="excluded") for of in tables]
    left_out = pl.concat(reasons).unique(keys, keep="first", maintain_order=True)
    if left_out.height == common.height:
        raise ConsilienceError("no query that all runs were asked", todo="See 'excluded' in each.")
    if any(of.height < left_out.height for of in reasons):
        answer = pl.when(pl.col("reason").is_null()).then("answer")
        tables = [
            of.join(left_out, on=keys, how="left", maintain_order="left")
            .with_columns(answer, excluded="reason").drop("reason")
            for of in tables
        ]  # fmt: skip
    return {
        label: run
        if of is run.coded
        else CheckedAnswers(of.cast({pl.Categorical: pl.String}), run.suite)
        for (label, run), of in zip(runs.items(), tables, strict=True)
    }


Row = dict[str, object]

NEARLY_CONSTANT = 0.9  # Share of the top answer above which consistency says nothing
FEWEST = 5  # Items, or groups of a mean, below which no interval is shown


def measure(
    answers: Answers, suite: Suite, protocol: Protocol | None = None, level: float = LEVEL
) -> pl.DataFrame:
    """The metrics table (``METRICS_SCHEMA``) of an answers table.

    ``answers``, of polars or pandas, needs the columns ``group, item, subject, variant, gold,
    answer`` (``docs/elsewhere.md``). ``protocol`` is that of the suite unless given. A column that
    is missing, a group or variant that the suite does not have and a repeated row raise. ``low``
    and ``high`` are the bounds of an interval of ``level`` (``docs/statistics.md``).
    """
    if not isinstance(suite, Suite):
        raise ConsilienceError(
            f"a suite of type {type(suite).__name__}",
            expected="a Suite",
            todo="Load it: load_suite(name).",
        )
    run, rules = checked_answers(answers, suite), protocol or suite.protocol
    rows = [row for kind in get_args(Cardinality) for row in _of_kind(run, kind, rules, level)]
    return pl.DataFrame(_in_order(rows, suite), schema=METRICS_SCHEMA)


def _of_kind(
    run: CheckedAnswers, kind: Cardinality, protocol: Protocol, level: float
) -> Iterator[Row]:
    """Rows of all groups of a kind, and over them."""
    index, of_metrics = Index(), dict[Key, list[tuple[Relation, Tally]]]()
    for relation in run.of_kind(kind):
        for key, tally in run.tallies(relation, protocol).items():
            of_metrics.setdefault(key, []).append((relation, tally))
    for key, of_groups in of_metrics.items():
        empty = empty_value(key, protocol)
        for relation, tally in of_groups:
            number = uncertainty.of_group([(1, tally)], index)
            yield _row(key, "group", number, tally.value_or(empty), level, group=relation.id)
        averaged = {of.id: tally for of, tally in of_groups if is_averaged(key, of)}
        if averaged:
            terms = [(1, averaged)]
            number = uncertainty.mean(terms, index, empty)
            value = uncertainty.mean_value(averaged, [*number.by_group], empty)
            values = [tally.value_or(empty) for tally in averaged.values()]
            known = [value for value in values if not math.isnan(value)]
            std = stdev(known) if len(known) > 1 else NAN
            yield _row(key, "mean", number, value, level, std=std)
            number = uncertainty.pooled(terms, index)
            yield _row(key, "all", number, number.value, level)


def _row(
    key: Key,
    over: str,
    number: Estimate,
    value: float,
    level: float,
    group: str = "",
    std: float = NAN,
) -> Row:
    """A number with its interval over items."""
    (metric, (kind, part)), bounds = key, DESCRIPTIONS[key[0]].bounds
    low, high = number.interval(bounds, level)
    phrasings = number.interval_over_phrasings(bounds, level)
    return {
        "metric": metric, "over": over, "group": group, "kind": kind, "level": part,
        "value": value, "low": low, "high": high, "n": number.n, "n_excluded": number.left_out,
        "std": std, **dict(zip(OVER_PHRASINGS, phrasings, strict=True)),
    }  # fmt: skip


def mean_over_runs(tables: Iterable[pl.DataFrame], of: str = "value") -> pl.DataFrame:
    """Means over runs, such as the seeds of a training: a row a number, by metric to level.

    ``tables``: the metrics table of each run, or with ``of="difference"`` a comparison of each.
    Of the R runs that have a number x: ``value`` is its mean ``m = sum_r x_r / R``, ``std`` its
    sample standard deviation ``s``, with ``s^2 = sum_r (x_r - m)^2 / (R - 1)``, ``low`` and
    ``high`` the bounds ``m -+ t[R - 1] s / sqrt(R)`` of a 95 % t interval, which tells how runs
    vary, and ``runs`` is R. NaN: ``value`` of no run, ``std`` and bounds of fewer than two.
    """
    number, x = ["metric", "over", "group", "kind", "level"], pl.col(of).fill_nan(None)
    rows = pl.concat(table.select(*number, x=x) for table in tables)
    x = pl.col("x")
    means = rows.group_by(number, maintain_order=True).agg(
        value=x.mean(), std=x.std(), runs=x.count().cast(pl.Int64)
    )
    runs = means["runs"].to_numpy()
    reach = pl.col("std") * pl.Series(stdtrit(runs - 1, (1 + LEVEL) / 2) / np.sqrt(runs))
    ends = {"low": pl.col("value") - reach, "high": pl.col("value") + reach}
    return means.with_columns(**ends).with_columns(pl.col(pl.Float64).fill_null(NAN))


def _in_order(rows: Sequence[Row], suite: Suite) -> list[Row]:
    """Rows by metric, then by part (forms as they were asked), then by group."""
    names = [name_of(metric, kind) for metric in METRICS for kind in get_args(Cardinality)]
    metrics = {name: at for at, name in enumerate(dict.fromkeys(names))}
    groups = {relation.id: at for at, relation in enumerate(suite.relations)}
    forms = {form: at for group in suite.relations for at, form in enumerate(group.design.forms)}
    overs = {over: len(groups) + at for at, over in enumerate(("mean", "all"))}
    kinds = {kind: at for at, kind in enumerate(get_args(Kind))}

    def rank(row: Mapping[str, object]) -> tuple[int, int, int, str, int]:
        kind, part, over = str(row["kind"]), str(row["level"]), str(row["over"])
        of_group = overs.get(over, groups.get(str(row["group"]), 0))
        return metrics[str(row["metric"])], kinds[kind], forms.get(part, 0), part, of_group

    return sorted(rows, key=rank)


def legible(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of metrics or differences without the intervals over fewer than ``FEWEST`` clusters.

    Clusters are the items of a group or of all groups, by their accuracy; of a mean the groups, or
    the items where only one is averaged.
    """
    on = [name for name in ("first", "second", "over", "group") if name in rows.columns]
    accuracy = rows.filter(metric="accuracy", kind="whole").select(*on, items="n")
    several = accuracy.filter(pl.col("over") == "mean", pl.col("items") > 1)
    means = accuracy.filter(over="all").with_columns(over=pl.lit("mean"))
    items = pl.concat([accuracy.filter(pl.col("over") != "mean"), means])
    items = items.join(several, on=on, how="anti")
    joined = rows.join(items, on=on, how="left", maintain_order="left")
    counted = (
        pl.when(pl.col("metric") == NOISE_FLOOR).then("n").otherwise(pl.coalesce("items", "n"))
    )
    is_few = (counted < FEWEST).fill_null(False)
    bounds = pl.col([name for name in ("low", "high", *OVER_PHRASINGS) if name in rows.columns])
    return joined.with_columns(pl.when(~is_few).then(bounds).otherwise(NAN)).drop("items")


def constant_groups(metrics: pl.DataFrame) -> list[str]:
    """The groups of several variants with a share of the top answer above ``NEARLY_CONSTANT``."""
    of_groups = metrics.filter(pl.col("n") > 0, over="group", kind="whole")
    compared = of_groups.filter(metric="chance_consistency")["group"]
    is_constant = (pl.col("value") > NEARLY_CONSTANT) & pl.col("group").is_in(compared.implode())
    return of_groups.filter(is_constant, metric="top_answer")["group"].to_list()
