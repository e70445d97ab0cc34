"""From a table of answers to counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, Protocol, did_you_mean, missing_column
from consilience.core.expectations import NO_OPTION, Instance, Replies, instances
from consilience.core.factors import WHOLE, Design, Part
from consilience.core.free_text import normalized
from consilience.core.references import LETTERS
from consilience.core.schemas import REASONS
from consilience.files.tables import as_polars, different, joined, repeated
from consilience.metrics.registry import (
    METRICS,
    OF_OPTIONS,
    SCORES,
    Grid,
    Metric,
    Tally,
    View,
    grids,
)
from consilience.metrics.statistics import NAN
from consilience.types import Cardinality, Relation, Suite

NEEDED = ("group", "item", "subject", "variant", "gold", "answer")
OPTIONAL = ("gold_token", "n_candidates", "option", "gold_option", "shown")
TEXT_SCORES = ("text_logprob", "gold_text_logprob")
"""Columns that are kept and that no metric reads."""

FACT = ["group", "item", "subject", "gold"]

NAMED = 3  # The number of relations that such a note names


def prepare(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Check an answers table against its suite, and give each row its ``variant_index``.

    ``variant`` becomes the text of the pattern. Facts of one subject come in the order of the
    suite, because ``published`` counts the last of them.
    """
    return prepared_compactly(answers, suite).cast({pl.Categorical: pl.String})


def prepared_compactly(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """``prepare``, with texts as categories: four bytes a row instead of sixteen and the text."""
    table = _typed(_with_variant(answers))
    for name in NEEDED[:-1]:
        if table[name].null_count():
            where = f"the answers table, row {(table[name].is_null().arg_max() or 0) + 1}"
            raise ConsilienceError(f"no '{name}'", where=where, todo="Fill it in.")
    on, patterns = ["group", "variant"], _patterns(table, suite).cast({pl.String: pl.Categorical})
    places = joined(table.select(on), patterns, on)
    table = table.drop("variant").hstack(places.select("variant_index", variant="text"))
    facts = different(table, *FACT).cast(pl.String)
    differ = facts.select("group", "item").is_duplicated()
    if differ.any():
        row = facts.row(differ.arg_max() or 0, named=True)
        raise ConsilienceError(
            f"the item '{row['item']}' of {row['group']} has several subjects or golds",
            where="the answers table",
            todo="Give each fact an item id of its own.",
        )
    _refuse_repeated(table, places["cell"])
    return _in_order(table, facts, suite)


def _typed(answers: pl.DataFrame) -> pl.DataFrame:
    """The columns that are counted, as text and numbers; a blank answer is none."""
    _check_columns(answers)
    optional = [name for name in OPTIONAL if name in answers.columns]
    scores = [name for name in (*SCORES, *TEXT_SCORES) if name in answers.columns]
    lists = [OF_OPTIONS] if isinstance(answers.schema.get(OF_OPTIONS), pl.List) else []
    reasons = [name for name in REASONS if answers.schema.get(name) == pl.String]
    kinds: dict[str, Any] = dict.fromkeys((*NEEDED, *OPTIONAL, *REASONS), pl.Categorical())
    kinds["n_candidates"] = pl.Float64

    def typed(name: str) -> pl.Expr:
        is_typed = answers.schema[name] == kinds[name]
        text = pl.col(name) if is_typed else pl.col(name).cast(pl.String)
        return text.cast(kinds[name], strict=False)

    table = answers.select(
        *map(typed, (*NEEDED, *optional, *reasons)),
        *(pl.col(name).cast(pl.Float64, strict=False) for name in scores),
        *(pl.col(name).cast(pl.List(pl.Float64), strict=False) for name in lists),
    )
    words = table["answer"].unique().cast(pl.String)
    if blank := words.filter(words.str.strip_chars() == "").to_list():
        is_blank = pl.col("answer").is_in(blank)
        table = table.with_columns(answer=pl.when(is_blank).then(None).otherwise("answer"))
    absent = [name for name in (*OPTIONAL, *REASONS) if name not in table.columns]
    return table.with_columns(pl.lit(None, dtype=kinds[name]).alias(name) for name in absent)


def _check_columns(answers: pl.DataFrame) -> None:
    """Raise for a missing column, one of another type, and a table without rows."""
    for name in NEEDED:
        if name not in answers.columns:
            raise missing_column(
                name, answers.columns, expected=", ".join(NEEDED), where="the answers table",
                todo="Make a run of it: consilience score FILE --suite S --out RUN",
            )  # fmt: skip
    if answers.is_empty():
        raise ConsilienceError("no rows", where="the answers table")
    for name in (*NEEDED, *OPTIONAL, *SCORES):
        dtype, needed = answers.schema.get(name, pl.String()), name in NEEDED
        is_number = dtype.is_integer() if needed else dtype.is_numeric()
        if is_number or isinstance(dtype, (pl.String, pl.Categorical, pl.Enum, pl.Null)):
            continue
        raise ConsilienceError(
            f"the column '{name}' is of type {dtype}",
            expected=f"text or {'whole ' * needed}numbers",
            where="the answers table",
            todo="Save it as text; whole numbers with a gap become fractions in some tools."
            if needed
            else "Correct the column, or leave it out.",
        )


def _with_variant(answers: pl.DataFrame) -> pl.DataFrame:
    """The table with a column ``variant``; ``variant_index`` is renamed where it is missing."""
    renamed = {} if "variant" in answers.columns else {"variant_index": "variant"}
    return answers.rename(renamed, strict=False)


def _patterns(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The ``text`` and the ``variant_index`` of the pattern of each ``group, variant``.

    A variant is the text of a pattern or its position; 0 is the base pattern. ``cell`` numbers the
    patterns of all groups.
    """
    pairs = different(table, "group", "variant")
    rows: list[tuple[str, int]] = []
    known: dict[str, tuple[list[str], dict[str, int]]] = {}
    for group, variant in pairs.iter_rows():
        if group not in known:
            names = list(suite.relation(group).design.variants)
            known[group] = names, {name: at for at, name in reversed(list(enumerate(names)))}
        texts, places = known[group]
        if variant in places:
            rows.append((variant, places[variant]))
        elif variant.isdecimal() and int(variant) < len(texts):
            rows.append((texts[int(variant)], int(variant)))
        else:
            this = (pl.col("group") == group) & (pl.col("variant") == variant)
            raise ConsilienceError(
                f"the suite '{suite.name}' has no variant '{variant}' of {group}",
                expected=f"the text of a {suite.words.variant}, or its position from 0 to "
                f"{len(texts) - 1}",
                where=f"the answers table, row {table.select(this.arg_max()).item() + 1}",
                todo=did_you_mean(variant, texts),
            )
    indexed = pl.DataFrame(rows, {"text": pl.String, "variant_index": pl.Int32}, orient="row")
    cells = indexed.select(pl.struct(pairs["group"].cast(pl.String), "variant_index").rank("dense"))
    return pairs.hstack(indexed.with_columns(cell=cells.to_series()))


def _refuse_repeated(table: pl.DataFrame, cells: pl.Series) -> None:
    """Raise where two rows answer the same item in the same variant (``cells``)."""
    again = repeated(table["item"].to_physical(), cells)
    if not again.any():
        return
    row = table.with_row_index("row", 1).row(again.arg_max() or 0, named=True)
    raise ConsilienceError(
        f"another row repeats row {row['row']}: {row['group']}, item '{row['item']}', "
        f"'{row['variant']}'",
        expected="one row for each item and variant",
        where="the answers table",
        todo="Remove one of the two. If they are different facts, give each an item id of its own.",
    )


def _placed(facts: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The facts of groups in which a subject has several, with their ``place`` in the suite.

    Elsewhere the order is all the same. A fact is found by its item, subject and gold, else by
    subject and gold; ``place`` is null where the suite does not have it.
    """
    several = facts.filter(facts.select("group", "subject").is_duplicated())["group"].unique()
    rows = [
        (relation.id, fact.item, fact.subject, fact.object, place)
        for relation in suite.relations
        if relation.id in several
        for place, fact in enumerate(relation.facts)
    ]
    schema = {**dict.fromkeys(FACT, pl.String), "place": pl.Int64}
    known, text = pl.DataFrame(rows, schema, orient="row"), ["group", "subject", "gold"]
    by_text = known.group_by(text).agg(pl.col("place").min().alias("other"))
    return (
        facts.filter(pl.col("group").is_in(several.to_list()))
        .join(known, on=FACT, how="left", maintain_order="left")
        .join(by_text, on=text, how="left", maintain_order="left")
        .with_columns(place=pl.coalesce("place", "other"))
    )


def _in_order(table: pl.DataFrame, facts: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Rows in the order of the suite, in groups whose facts are all in the suite."""
    has_all = pl.col("place").is_not_null().all().over("group")
    placed = _placed(facts, suite).filter(has_all).select("group", "item", "place")
    if placed.is_empty():
        return table
    placed = placed.cast({pl.String: pl.Categorical})
    joined = table.join(placed, on=["group", "item"], how="left", maintain_order="left")
    if (joined["place"].fill_null(0).diff().fill_null(0) >= 0).all():
        return table
    joined = joined.with_row_index("row")
    order = [pl.col("row").min().over("group"), pl.col("place")]
    return joined.sort(order, maintain_order=True, nulls_last=True).drop("place", "row")


def unknown_answers(table: pl.DataFrame, suite: Suite) -> list[str]:
    """Notes on relations with answers that are neither objects nor golds: how many, an example."""
    answered = table.drop_nulls("answer")
    total = dict(answered.group_by("group").len().iter_rows())
    by_answer = answered.group_by("group", "answer", maintain_order=True).len()
    golds = table.select("group", answer="gold").unique()
    by_answer = by_answer.join(golds, on=["group", "answer"], how="anti", maintain_order="left")
    problems = []
    for relation in suite.relations:
        is_known = pl.col("answer").is_in([*set(relation.candidates.words)])
        rows = by_answer.filter(group=relation.id).filter(~is_known)
        if rows.is_empty() or relation.design.unit == "item":
            continue
        problems.append(
            f"{relation.id}: {rows['len'].sum():,} of {total[relation.id]:,} answers are not among "
            f"its objects, such as '{rows['answer'][0]}'"
        )
    more = len(problems) - NAMED
    return problems[:NAMED] + [f"{more} other relations have such answers, too"] * (more > 0)


def instances_of(table: pl.DataFrame, suite: Suite) -> dict[str, list[tuple[Instance, ...]]]:
    """The instances of each expectation that could be checked, by the group of its first premise.

    ``table``: a prepared answers table.
    """
    groups = dict(table.select("item", "group").unique().iter_rows())
    replies = _replies(table, suite)
    asked = table.filter(pl.col("item").is_in([*_options(suite)]))
    shown = {
        (item, variant): tuple(map(LETTERS.index, letters or ""))
        for item, variant, letters in asked.select("item", "variant", "shown").iter_rows()
    }
    by_group: dict[str, list[tuple[Instance, ...]]] = {}
    for one in suite.expectations:
        if (group := groups.get(one.items[0])) is not None:
            variants = suite.relation(group).design.variants
            if of_expectation := tuple(instances(one, replies, variants, shown)):
                by_group.setdefault(group, []).append(of_expectation)
    return by_group


def unchecked_note(
    suite: Suite, by_group: Mapping[str, Sequence[tuple[Instance, ...]]]
) -> list[str]:
    """A note on expectations of which a question was not asked."""
    checked = {of[0].expectation for group in by_group.values() for of in group}
    lacking = [expectation for expectation in suite.expectations if expectation not in checked]
    if not lacking:
        return []
    items = " and ".join(f"'{item}'" for item in dict.fromkeys(lacking[0].items))
    return [
        f"{len(lacking)} of {len(suite.expectations)} expectations are not checked, such as for "
        f"{items}: not all of their questions were asked"
    ]


def _replies(table: pl.DataFrame, suite: Suite) -> Replies:
    """The answers to the questions that something is expected of; options by their text.

    The column ``option`` alone says which option an answer is: a text without one is ``NO_OPTION``,
    whatever it reads. Two answers to open questions are the same if their normalized texts are.
    """
    options = _options(suite)
    rows = table.filter(pl.col("item").is_in(list(options)))
    position = pl.col("option").cast(pl.Float64, strict=False).cast(pl.Int64)
    replies: dict[tuple[str, str], str | None] = {}
    columns = rows.select("item", "variant", "answer", position, "excluded")
    shown = _open_texts(rows, suite)
    for item, variant, text, at, excluded in columns.iter_rows():
        known = options[item]
        if text is None:
            replies[item, variant] = NO_OPTION if excluded is None else None
        elif known:
            replies[item, variant] = known[at] if at is not None and at < len(known) else NO_OPTION
        else:
            replies[item, variant] = shown.get(normalized(text), text)
    return replies


def _options(suite: Suite) -> dict[str, tuple[str, ...]]:
    """The options of each question that something is expected of."""
    references = (one for expectation in suite.expectations for one in expectation.references)
    return {one.item: one.options for one in references}


def _open_texts(rows: pl.DataFrame, suite: Suite) -> dict[str, str]:
    """Normalized text -> text as the suite has it, of golds and of answers that are expected."""
    texts = rows["gold"].drop_nulls().unique(maintain_order=True).to_list()
    for expectation in suite.expectations:
        texts += [text for rule in expectation.rules.items() for of in rule for text in of]
    return {normalized(text): text for text in reversed(texts)}


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
        for name, metric in metrics[of]:
            if (tally := metric.tally(grid)) is not None:
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


class Prepared:
    """An answers table that was checked against its suite: ``coded``, by default by ``prepare``.

    What was counted is kept: for a table that is counted and compared with others.
    """

    def __init__(
        self, answers: pl.DataFrame, suite: Suite, coded: pl.DataFrame | None = None
    ) -> None:
        self.answers, self.suite = answers, suite
        self.coded = prepared_compactly(answers, suite) if coded is None else coded
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

    def views(self, relation: Relation, protocol: Protocol) -> dict[View, Grid]:
        """The two views of a relation's answers."""
        key = protocol, relation.id
        if key in self._views:
            return self._views[key]
        scores = {name for metric in METRICS.values() for name in metric.scores}
        views = grids(self.coded_rows(relation.id), relation, protocol, sorted(scores))
        instances = tuple(self.instances.get(relation.id, ()))
        one, other = (replace(views[name], instances=instances) for name in ("tuples", "pairs"))
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


Answers = pl.DataFrame | Prepared  # The answers of one run


def prepared(answers: Answers, suite: Suite) -> Prepared:
    """A table that is ready to be counted."""
    if isinstance(answers, Prepared):
        return answers
    return Prepared(as_polars(answers, "the answers table"), suite)


def shared(first: Prepared, second: Prepared) -> tuple[Prepared, Prepared]:
    """Two runs with only the items that both have, with the same subject and gold."""
    runs, facts = (first, second), [different(run.coded, *FACT) for run in (first, second)]
    both = facts[0].join(facts[1], on=FACT, how="semi")

    def with_both(run: Prepared) -> Prepared:
        rows = run.coded.join(both, on=FACT, how="semi", maintain_order="left")
        return Prepared(run.answers, run.suite, rows)

    one, two = (
        run if of.height == both.height else with_both(run)
        for run, of in zip(runs, facts, strict=True)
    )
    return one, two
