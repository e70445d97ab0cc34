"""From a table of answers to counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import polars as pl

from consilience.core.errors import ConsilienceError, Protocol, did_you_mean, missing_column
from consilience.core.expectations import NO_OPTION, Instance, Replies, instances
from consilience.core.factors import OF_LANGUAGE, Design, is_language_kind
from consilience.core.free_text import normalized
from consilience.files.tables import as_polars, different, joined, repeated
from consilience.metrics.registry import (
    METRICS,
    OF_OPTIONS,
    SCORES,
    Grid,
    Metric,
    Share,
    Tally,
    View,
    grids,
)
from consilience.metrics.resampling import (
    ClusterCounts,
    Key,
    Resampling,
    TwoWayReplicates,
    in_threads,
)
from consilience.metrics.statistics import KEPT, NAN, PERMUTATIONS, REPLICATES, Draws, Signs
from consilience.types import Cardinality, Relation, Suite

NEEDED = ("group", "item", "subject", "variant", "gold", "answer")
OPTIONAL = ("gold_token", "n_candidates", "option", "gold_option")
REASON = "excluded"  # The column that says why there is no answer; no metric reads it
TEXT_SCORES = ("text_logprob", "gold_text_logprob")
"""Columns that are kept and that no metric reads."""

FACT = ["group", "item", "subject", "gold"]

NAMED = 3  # The number of relations that such a note names

COUNTED = 2**20  # Answers that are counted at once, unless a group alone has more


def prepare(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Check an answers table against its suite, and give each row its ``variant_index``.

    ``variant`` becomes the text of the pattern. Facts of one subject come in the order of the
    suite, because ``published`` counts the last of them.
    """
    return prepared_compactly(answers, suite).cast({pl.Categorical: pl.String})


def prepared_compactly(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """``prepare``, with texts as categories: four bytes a row instead of sixteen and the text."""
    table = _typed(_with_variant(answers), suite)
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


def _typed(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The columns that are counted, as text and numbers; a blank answer counts as missing.

    A blank text that a model wrote freely is an answer.
    """
    _check_columns(answers)
    optional = [name for name in OPTIONAL if name in answers.columns]
    scores = [name for name in (*SCORES, *TEXT_SCORES) if name in answers.columns]
    lists = [OF_OPTIONS] if isinstance(answers.schema.get(OF_OPTIONS), pl.List) else []
    reason = [REASON] if answers.schema.get(REASON) == pl.String else []
    kinds: dict[str, Any] = dict.fromkeys((*NEEDED, *OPTIONAL, REASON), pl.Categorical())
    kinds["n_candidates"] = pl.Float64

    def typed(name: str) -> pl.Expr:
        is_typed = answers.schema[name] == kinds[name]
        text = pl.col(name) if is_typed else pl.col(name).cast(pl.String)
        return text.cast(kinds[name], strict=False)

    table = answers.select(
        *map(typed, (*NEEDED, *optional, *reason)),
        *(pl.col(name).cast(pl.Float64, strict=False) for name in scores),
        *(pl.col(name).cast(pl.List(pl.Float64), strict=False) for name in lists),
    )
    writing = [group.id for group in suite.relations if group.design.writes_freely]
    words = table["answer"].unique().cast(pl.String)
    if blank := words.filter(words.str.strip_chars() == "").to_list():
        empty = pl.col("answer").is_in(blank) & ~pl.col("group").is_in(writing)
        table = table.with_columns(answer=pl.when(empty).then(None).otherwise("answer"))
    absent = [name for name in (*OPTIONAL, REASON) if name not in table.columns]
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


def in_texts(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """A table that passed ``prepare``, with the texts of its patterns."""
    answers = _with_variant(answers).with_columns(pl.col("group", "variant").cast(pl.String))
    patterns = _patterns(answers, suite)
    if patterns["variant"].equals(patterns["text"]):
        return answers
    named = patterns.select("group", "variant", "text")
    joined = answers.join(named, on=["group", "variant"], how="left", maintain_order="left")
    return joined.with_columns(variant="text").drop("text")


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
    by_group: dict[str, list[tuple[Instance, ...]]] = {}
    known = [one for one in suite.expectations if one.items[0] in groups]
    for expectation in known:
        group = groups[expectation.items[0]]
        variants = suite.relation(group).design.variants
        if of_expectation := tuple(instances(expectation, replies, variants)):
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
    columns = rows.select("item", "variant", "answer", position)
    shown = _open_texts(rows, suite)
    for item, variant, text, at in columns.iter_rows():
        known = options[item]
        if text is None:
            replies[item, variant] = None
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


T = TypeVar("T")

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
    """Every metric of the two views of one group, over all of it and by its subsets."""
    tallies: dict[Key, Tally] = {}
    for metric_name, metric in METRICS.items():
        name = name_of(metric_name, relation.cardinality)
        for subset, grid in _subsets(views[metric.view], relation.design, metric):
            if (tally := metric.tally(grid)) is not None:
                tallies[name, subset] = tally
    return tallies


def _subsets(grid: Grid, design: Design, metric: Metric) -> Iterator[tuple[str, Grid]]:
    """The parts of a group that a metric is counted on: all, then each form, language or kind."""
    base, *others = design.forms.items()
    if metric.one_form:
        yield "all", grid.only_variants(base[1]) if others else grid
        for form, variants in others:
            yield form, grid.only_variants(variants)
        for language, variants in design.languages.items():
            yield f"{OF_LANGUAGE}{language}", grid.only_variants(variants)
        return
    yield "all", grid
    if metric.by_expectation:
        for subset in dict.fromkeys(of[0].expectation.kind for of in grid.instances):
            yield subset, grid.only_expectations(subset)
        return
    for kind, pairs in design.kinds.items():
        is_form = kind in design.forms or is_language_kind(kind)
        if metric.by_form if is_form else metric.by_edit:
            yield kind, grid.only_pairs(pairs)


class ResampleCache:
    """The random resamples and signs of several tables, each drawn once.

    It holds at most ``size`` bytes. Samples that do not fit are computed anew, identically.
    """

    def __init__(self, size: int = KEPT) -> None:
        self.keeps = size > 0
        self._kept: dict[object, Any] = {}
        self._left = size

    def resampling(self, subjects: Mapping[str, Sequence[str]], seed: int) -> Resampling:
        key = seed, tuple((group, *names) for group, names in subjects.items())
        size = 2 * REPLICATES * sum(map(len, subjects.values()))
        return self._keep(key, size, lambda keep: Resampling(subjects, seed, keep=keep))

    def signs(self, names: Sequence[str], seed: int) -> Signs:
        size = len(names) * PERMUTATIONS // 8
        return self._keep(("signs", seed, *names), size, lambda _: Signs(names, seed))

    def draws(self, clusters: int, seed: int) -> Draws:
        size = clusters * REPLICATES
        return self._keep((clusters, seed), size, lambda keep: Draws(clusters, seed, keep=keep))

    def _keep(self, key: object, size: int, make: Callable[[bool], T]) -> T:
        if key not in self._kept:
            made = make(size <= self._left)
            if size > self._left:
                return made
            self._left -= size
            self._kept[key] = made
        kept: T = self._kept[key]
        return kept


@dataclass(frozen=True, slots=True)
class Counts:
    """Every metric of each group of a kind, also under resampled subjects."""

    shares: Mapping[str, Mapping[Key, Share]]
    draws: Mapping[str, Mapping[Key, TwoWayReplicates]]
    proportions: frozenset[Key]  # The metrics whose hits are counted among the total
    resampling: Resampling


def resampled(
    tallies_of: Callable[[str], Mapping[Key, Tally]],
    resampling: Resampling,
    protocol: Protocol = "strict",
    threads: int | None = None,
) -> Counts:
    """Every metric of the groups of ``resampling``, which ``tallies_of`` counts in ``threads``."""

    def of(group: str) -> tuple[ClusterCounts, dict[Key, Share], set[Key]]:
        tallies = tallies_of(group)
        return (
            ClusterCounts(tallies, resampling.subjects[group]),
            {key: tally.share(empty_value(key, protocol)) for key, tally in tallies.items()},
            {key for key, tally in tallies.items() if tally.is_proportion},
        )

    groups = resampling.subjects
    counted = dict(zip(groups, in_threads(of, groups, threads), strict=True))
    draws = resampling.draw({group: [counts] for group, (counts, _, _) in counted.items()})
    return Counts(
        {group: shares for group, (_, shares, _) in counted.items()},
        {group: runs[0] for group, runs in draws.items()},
        frozenset[Key]().union(*(proportions for _, _, proportions in counted.values())),
        resampling,
    )


class Prepared:
    """An answers table that was checked against its suite: ``coded``, by default by ``prepare``.

    With a ``cache`` all counts are kept too, until ``forget``: for a table that is counted under
    both protocols, or compared with several others.
    """

    def __init__(
        self,
        answers: pl.DataFrame,
        suite: Suite,
        cache: ResampleCache | None = None,
        coded: pl.DataFrame | None = None,
    ) -> None:
        self.answers, self.suite = answers, suite
        self.coded = prepared_compactly(answers, suite) if coded is None else coded
        self.cache = cache or ResampleCache(0)
        self._kept: dict[tuple[Protocol, object], Any] = {}

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

    def subjects(self, kind: Cardinality) -> dict[str, list[str]]:
        """The distinct subjects of each group of a cardinality, sorted."""
        groups = [group.id for group in self.of_kind(kind)]
        columns = {name: self.coded_rows(name)["subject"] for name in groups}
        return {name: column.unique().sort().to_list() for name, column in columns.items()}

    @cached_property
    def instances(self) -> Mapping[str, Sequence[tuple[Instance, ...]]]:
        """The instances of each expectation, by the group of its first premise."""
        return instances_of(self.table, self.suite) if self.suite.expectations else {}

    def views(self, relation: Relation, protocol: Protocol) -> Mapping[View, Grid]:
        """The two views of a relation's answers."""

        def make() -> Mapping[View, Grid]:
            rows = self.coded_rows(relation.id)
            scores = {name for metric in METRICS.values() for name in metric.scores}
            views = grids(rows, relation, protocol, sorted(scores))
            instances = tuple(self.instances.get(relation.id, ()))
            return {name: replace(grid, instances=instances) for name, grid in views.items()}

        return self._keep(protocol, ("views", relation.id), make)

    def tallies(self, relation: Relation, protocol: Protocol) -> Mapping[Key, Tally]:
        name = "tallies", relation.id
        return self._keep(protocol, name, lambda: count(self.views(relation, protocol), relation))

    def counts(self, kind: Cardinality, protocol: Protocol, seed: int) -> Counts:
        """Every metric of the relations of a kind, resampled."""

        def make() -> Counts:
            tallies = {of.id: partial(self.tallies, of, protocol) for of in self.of_kind(kind)}
            resampling = self.cache.resampling(self.subjects(kind), seed)
            most = max((self._places[group][2] for group in tallies), default=1)
            threads = max(1, COUNTED // most)
            return resampled(lambda group: tallies[group](), resampling, protocol, threads)

        return self._keep(protocol, ("counts", kind, seed), make)

    def forget(self, protocol: Protocol) -> None:
        self._kept = {key: counts for key, counts in self._kept.items() if key[0] != protocol}

    def _keep(self, protocol: Protocol, name: object, make: Callable[[], T]) -> T:
        key = protocol, name
        counted: T = self._kept[key] if key in self._kept else make()
        if self.cache.keeps:
            self._kept[key] = counted
        return counted


Answers = pl.DataFrame | Prepared  # The answers of one run


def prepared(answers: Answers, suite: Suite, cache: ResampleCache | None = None) -> Prepared:
    """A table that is ready to be counted."""
    if isinstance(answers, Prepared):
        return answers
    return Prepared(as_polars(answers, "the answers table"), suite, cache)


def prepared_seeds(
    answers: Answers | Sequence[Answers], suite: Suite, cache: ResampleCache | None = None
) -> list[Prepared]:
    """The answers of one run, or of several seeds, which must be to the same questions."""
    tables: Sequence[Any] = answers if isinstance(answers, list | tuple) else [answers]
    seeds = [prepared(table, suite, cache) for table in tables]
    for other in seeds[1:]:
        refuse_other_questions(("the first run", seeds[0]), ("another run", other))
    return seeds


def refuse_other_questions(first: tuple[str, Prepared], second: tuple[str, Prepared]) -> None:
    """Raise unless two runs, each with its name, have answers to the same questions."""
    question = ["group", "item", "variant", "subject", "gold"]
    for (name, run), (other_name, other) in ((first, second), (second, first)):
        queries = run.table.select(question)
        missing = queries.join(other.table.select(question), on=question, how="anti")
        if missing.height:
            row = missing.row(0, named=True)
            raise ConsilienceError(
                f"{missing.height} of {queries.height} queries of {name} are not in {other_name}, "
                f"such as {row['group']}, item {row['item']}, '{row['variant']}'",
                expected="runs of the same items in the same variants",
                todo="Probe both with the same --suite, --data, --groups, --perturbations, --limit "
                "and --seed.",
            )
