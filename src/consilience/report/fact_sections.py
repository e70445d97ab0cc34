"""The sections of a report on facts: relations, patterns, edits, facts, examples, vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from consilience.metrics.registry import headline_metrics, label_of
from consilience.report.charts import (
    TENTHS,
    against_figure,
    edit_figure,
    in_tenths,
    item_figure,
    matrix_figure,
    relation_figure,
)
from consilience.report.metric_tables import SUBSETS
from consilience.report.overview import fact_counts
from consilience.report.page import Figure, Folded, Part, Section
from consilience.report.run_view import (
    RunView,
    fact_views,
    relation_values,
    values_of,
    without_run,
)
from consilience.report.table import Column, Table, Value, bounds_of, estimate
from consilience.types import Suite

APART = " (stands apart)"
"""Marks a pattern whose highest agreement is below the mean among the others."""

DITTO = "\N{DOUBLE PRIME}"
"""The fact of the row above."""


def fact_sections(runs: Sequence[RunView], relation: str | None) -> list[Section]:
    """All of them; none without runs on facts.

    ``relation``: whose agreement is shown first; None for the least consistent.
    """
    if not fact_views(runs):
        return []
    return [
        _relations(runs),
        _knowledge(runs),
        *_patterns(runs, relation),
        *_edits(runs),
        *_items(runs),
        *_examples(runs),
        *_vectors(runs),
    ]


def _relations(runs: Sequence[RunView]) -> Section:
    """The headline metrics of each relation, as a figure and a table."""
    suite = runs[0].suite
    metrics = relation_values(runs, headline_metrics())
    values: dict[tuple[str, str, str], float] = {
        (run, metric, group): value
        for run, metric, group, value in metrics.select(
            "run", "metric", "group", "value"
        ).iter_rows()
    }
    counts = fact_counts(runs[0].metrics)
    shown = [name for name in headline_metrics() if name in set(metrics["metric"])]
    rows = [
        [
            relation.id, relation.label, len(relation.patterns), counts.get(relation.id),
            *(values.get((run.name, name, relation.id)) for name in shown for run in runs),
        ]
        for relation in suite.relations
    ]  # fmt: skip
    headings = [
        label_of(name) + (f": {run.name}" if len(runs) > 1 else "")
        for name in shown
        for run in runs
    ]
    columns = [
        Column("relation"), Column("what"), Column("patterns", "count"), Column("facts", "count"),
        *(Column(heading, "share") for heading in headings),
    ]  # fmt: skip
    title = "Each relation, in percent; a heading sorts by its column"
    determinism = _determinism_note(suite)
    figure = Figure(
        "relations",
        f"{label_of(shown[0])} of each relation",
        relation_figure(metrics, shown),
        "Each relation with its 95 % interval, in the order of the first run. The menu chooses the "
        f"number.{determinism}",
    )
    table = Table(f"{title}.{determinism}" if determinism else title, columns, rows)
    return Section("relations", "Relations", "", [figure, table])


def _determinism_note(suite: Suite) -> str:
    """What the consistency of some relations is; nothing where all have one right answer."""
    if all(relation.cardinality != "N-M" for relation in suite.relations):
        return ""
    return (
        " Of relations with several right answers the consistency is the determinism, which has "
        "a mean of its own."
    )


def _knowledge(runs: Sequence[RunView]) -> Section:
    """Accuracy against consistency."""
    values = relation_values(runs, ("accuracy", "consistency")).pivot(
        "metric", index=["run", "group"], values="value", maintain_order=True
    )
    intro = (
        "Knowing and being consistent are two things. Low on the right: it knows, but not in every "
        "pattern. High on the left: it says the same, and that is wrong. Where few answers are "
        "possible both are high by chance."
    )
    caption = (
        "A mark is a relation; pointing at one names it. Its numbers stand in the table above."
        f"{_determinism_note(runs[0].suite)}"
    )
    figure = Figure("knowledge", "Accuracy against consistency", against_figure(values), caption)
    return Section("knowledge", "Accuracy against consistency", intro, [figure])


def _patterns(runs: Sequence[RunView], relation: str | None) -> Iterator[Section]:
    """Agreement of each two patterns; ``relation`` first, else the least consistent one.

    Nothing where no fact was asked in two.
    """
    named = fact_views(runs)
    pairs = pl.concat([facts.pairs.with_columns(run=pl.lit(name)) for name, facts in named])
    if pairs.is_empty():
        return
    frame = pl.concat([facts.patterns.with_columns(run=pl.lit(name)) for name, facts in named])
    if relation is None:
        means = pairs.group_by("group", maintain_order=True).agg(
            pl.col("agreement").fill_nan(None).mean()
        )
        relation = str(means.sort("agreement", nulls_last=True)["group"][0])
    rows: list[list[Value]] = [
        [
            row["group"], row["run"], row["variant_index"] + 1,
            row["variant"] + APART * row["apart"], row["accuracy"], row["change"],
            bounds_of(row, "change_low", "change_high"),
            row["p_holm"], row["agreement"],
            None if row["closest"] is None else row["closest"] + 1,
        ]
        for row in frame.iter_rows(named=True)
    ]  # fmt: skip
    columns = [
        Column("relation"), Column("run"), Column("number", "count"), Column("pattern"),
        Column("Accuracy", "share"), Column("points", "points"), Column("95 %", "points"),
        Column("p, Holm", "p"), Column("agrees with the others", "share"),
        Column("most with", "count"),
    ]  # fmt: skip
    rows, columns = without_run(len(runs), rows, columns)
    title = (
        "Every pattern, in percent. Points: its accuracy minus that of the first, on the same "
        "facts; p: exact McNemar"
    )
    first_run = f", {runs[0].name}" if len(runs) > 1 else ""
    figure = Figure(
        "agreement",
        f"Agreement of patterns: {relation}{first_run}",
        matrix_figure(pairs, frame, relation),
        "How often each two patterns of a relation get the same answer, in percent. Blank: "
        "never asked of the same fact, as a and an.",
    )
    intro = (
        "A pattern that stands apart agrees less with its closest than the others do among "
        "themselves: it may be understood in another way. Of few facts it may be chance."
    )
    folded = Folded(f"Every pattern ({len(rows):,})", [Table(title, columns, rows)])
    yield Section("patterns", "Which patterns agree", intro, [figure, folded])


def _edits(runs: Sequence[RunView]) -> Iterator[Section]:
    """What each kind of edit costs; nothing where the suite does not say how patterns differ."""
    named = [(name, facts.edits) for name, facts in fact_views(runs) if facts.edits.height]
    if not named:
        return
    frame = pl.concat([edits.with_columns(run=pl.lit(name)) for name, edits in named])
    rows: list[list[Value]] = [
        [
            row["kind"], row["run"], row["with_it"], row["without_it"], row["difference"],
            bounds_of(row), row["p_holm"], row["relations"], row["pairs"],
        ]
        for row in frame.iter_rows(named=True)
    ]  # fmt: skip
    columns = [
        Column("edit"), Column("run"), Column("with it", "share"), Column("without", "share"),
        Column("points", "points"), Column("95 %", "points"), Column("p, Holm", "p"),
        Column("relations", "count"), Column("pairs", "count"),
    ]  # fmt: skip
    rows, columns = without_run(len(runs), rows, columns)
    caption = (
        "Left of the line: patterns that differ in this way agree less often than the others of "
        "their relation."
    )
    title = "Consistency of pairs with and without the edit, means over relations"
    parts: list[Part] = [
        Figure("edits", "What an edit costs in consistency", edit_figure(frame), caption),
        Table(title, columns, rows),
        *_by_kind_of_pair(runs),
    ]
    intro = (
        "Two patterns may differ in syntax, words, determiners, tense, and in which of subject and "
        "object stands first. What does each cost?"
    )
    yield Section("edits", "Which edits hurt", intro, parts)


def _by_kind_of_pair(runs: Sequence[RunView]) -> Iterator[Folded]:
    """Consistency by kind of pair, as in the paper's Table 5."""
    rows: list[list[Value]] = [
        [SUBSETS[subset], run.name, *estimate(row, std=True), row["n"]]
        for run in runs
        for (metric, subset), row in values_of(run.metrics, "MACRO").items()
        if metric == "consistency" and subset in SUBSETS
    ]
    columns = [
        Column("pairs"), Column("run"), Column("mean", "share"), Column("95 %", "share"),
        Column("relations", "count"),
    ]  # fmt: skip
    title = (
        "Consistency by kind of pair, as the paper's Table 5: Diff-Syntax differs in syntax "
        "alone, Diff-Determiner in the determiner and maybe more"
    )
    if rows:
        yield Folded("By kind of pair, as in the paper", [Table(title, columns, rows)])


def _items(runs: Sequence[RunView]) -> Iterator[Section]:
    """How agreement is spread over facts; nothing where no fact was answered in two patterns."""
    frame = pl.concat(
        [
            facts.items.select(pl.lit(name).alias("run"), "agreement")
            for name, facts in fact_views(runs)
        ]
    )
    known = frame.filter(pl.col("agreement").is_not_nan())
    if known.is_empty():
        return
    rows: list[list[Value]] = []
    for run in runs:
        agreement = known.filter(pl.col("run") == run.name)["agreement"]
        size = len(agreement)
        shares = (
            [(agreement == 1).mean(), (agreement == 0).mean(), agreement.median()]
            if size
            else [None] * 3
        )
        rows.append([run.name, size, *shares])
    columns = [
        Column("run"), Column("facts", "count"), Column("all patterns agree", "share"),
        Column("no two agree", "share"), Column("median agreement", "share"),
    ]  # fmt: skip
    title = (
        "Facts of relations with one right answer, by the agreement among their patterns, in "
        "percent"
    )
    table = Table(title, columns, rows, sortable=False)
    bars = {(row["run"], row["agreement"]): row["share"] for row in in_tenths(known).to_dicts()}
    bar_rows = [
        [tenth, *(bars.get((run.name, tenth), 0.0) / 100 for run in runs)] for tenth in TENTHS
    ]
    bar_columns = [Column("pairs that agree, percent")]
    bar_columns += [Column(run.name, "share") for run in runs]
    bars_table = Table("Facts, in percent", bar_columns, bar_rows, sortable=False)
    caption = "Facts by the share of their pairs of patterns that get the same answer."
    figure = Figure("items", "Agreement over facts", item_figure(frame), caption)
    intro = "A mean hides whether a few facts waver much or all a little."
    yield Section(
        "items", "Facts", intro, [figure, table, Folded("The bars as a table", [bars_table])]
    )


def _examples(runs: Sequence[RunView]) -> Iterator[Section]:
    """The most telling facts of each run, if any."""
    parts: list[Part] = []
    columns = [Column("fact"), Column("pattern"), Column("answer"), Column("verdict")]
    for name, facts in fact_views(runs):
        tables: list[Part] = []
        for kind, chosen in facts.examples.items():
            rows = []
            for example in chosen:
                for at, reply in enumerate(example.telling):
                    fact = f"{example.subject} ({example.group}), gold: {example.gold}"
                    shown = fact if at == 0 else DITTO
                    rows.append([shown, reply.variant, reply.answer, example.verdict(reply)])
            if rows:
                title = f"{name}: {kind}" if len(runs) > 1 else kind
                tables.append(Table(title, columns, rows, sortable=False))
        parts += tables if len(runs) == 1 or not tables else [Folded(name, tables)]
    intro = (
        "The most telling facts of each kind, of as many relations as there are; at most three "
        "patterns. Numbers in brackets are those of the examples in ParaRel's Table 6."
    )
    if parts:
        yield Section("examples", "Examples", intro, parts)


def _vectors(runs: Sequence[RunView]) -> Iterator[Section]:
    """What vectors cluster by; nothing where no run has them."""
    columns = [
        Column("by"), Column("layer", "count"), Column("V-measure", "share"),
        Column("labels shuffled", "share"), Column("AMI", "share"),
        Column("r with consistency", "share"), Column("95 % of r", "share"),
        Column("relations", "count"),
    ]  # fmt: skip
    parts: list[Part] = []
    for at, (name, facts) in enumerate(fact_views(runs)):
        if facts.vectors is None:
            continue
        rows: list[list[Value]] = [
            [
                row["property"], row["layer"], row["v_measure"], row["v_measure_shuffled"],
                row["ami"], *estimate(row), row["n"],
            ]
            for row in facts.vectors.iter_rows(named=True)
        ]  # fmt: skip
        if facts.drawing is not None:
            caption = (
                f"{name}. Vectors at the place of the object, t-SNE. One shape together: grouped "
                "by pattern; one colour together: by what is asked."
            )
            parts.append(Figure(f"vectors-{at}", "", facts.drawing, caption))
        title = f"{name}: how far k-means' clusters are those of pattern, subject or object"
        parts.append(Table(title, columns, rows))
    if parts:
        intro = "Do vectors lie together by what is known, or by the words of the question?"
        yield Section("vectors", "Representations", intro, parts)
