"""The sections of a report on facts: relations, languages, patterns, edits, examples, vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from consilience.metrics.registry import headline_metrics, label_of
from consilience.report.charts import TENTHS, against_figure, edit_figure, in_tenths, item_figure
from consilience.report.columns import (
    CLUSTER_CORRELATIONS,
    EDITS,
    MEANS,
    PATTERN_NOTE,
    PATTERNS,
    frame_table,
    with_outliers,
)
from consilience.report.language_tables import language_table
from consilience.report.metric_tables import DETERMINISM, edit_rows, group_cells
from consilience.report.overview import fact_counts
from consilience.report.page import Beside, Figure, Folded, Part, Points, Section, Text
from consilience.report.prompt_lines import in_one_line
from consilience.report.run_view import (
    RunView,
    fact_views,
    group_names,
    name_and_id,
    relation_values,
    without_run,
)
from consilience.report.table import Column, Table, Value
from consilience.text import counted
from consilience.types import SuiteWords

MOST_APART = 8
"""Patterns that differ from the others and are named."""

MOST_PATTERNS = 1_000
"""Rows of the table of patterns; of more, those with the lowest agreement are shown."""


CLEAR = 0.05
"""An adjusted p below which a pattern differs in accuracy."""


def fact_sections(runs: Sequence[RunView]) -> list[Section]:
    """All of them; none without runs on facts."""
    if not fact_views(runs):
        return []
    return [
        _relations(runs),
        *_spread(runs),
        *language_section(runs),
        *_patterns(runs),
        *_edits(runs),
        *_examples(runs),
        *_vectors(runs),
    ]


def _relations(runs: Sequence[RunView]) -> Section:
    """The headline metrics of each relation."""
    suite, names = runs[0].suite, group_names(runs[0].suite)
    cells = {run.name: group_cells(run.metrics, suite) for run in runs}
    counts = {run.name: fact_counts(run.metrics) for run in runs}
    measured = {name for of_run in cells.values() for name, _ in of_run}
    shown = [name for name in headline_metrics() if name in measured]
    rows: list[list[Value]] = []
    for relation in suite.relations:
        label = name_and_id(names, relation.id)
        for run in runs:
            row: list[Value] = [label, run.name, counts[run.name].get(relation.id)]
            row += [cells[run.name].get((metric, relation.id)) for metric in shown]
            rows.append(row)
    columns = [Column("relation"), Column("run"), Column("facts", "count")]
    columns += [Column(label_of(name), "share") for name in shown]
    rows, columns = without_run(len(runs), rows, columns)
    notes = [DETERMINISM] if any(group.cardinality == "N-M" for group in suite.relations) else []
    if any(count.mark for of_run in counts.values() for count in of_run.values()):
        notes.append("facts: those that the accuracy counts, of all facts of the relation")
    title = "Each relation, in percent; below each number its 95 % CI"
    table = Table(title, columns, rows, notes)
    several = f"Each relation in each run ({len(rows):,})"
    part = table if len(runs) == 1 else Folded(several, [table])
    return Section("by-relation", "Relations", "", [part])


def _spread(runs: Sequence[RunView]) -> Iterator[Section]:
    """How accuracy and consistency are spread over relations, and agreement over facts."""
    values = accuracy_and_consistency(runs)
    caption = (
        "Each mark is a relation. Bottom right: the answers are right, but only in some patterns. "
        "Top left: the answers are the same and wrong. Dashed line: mean consistency expected by "
        "chance."
    )
    figures: list[Part] = []
    tables: list[Part] = []
    if values["name"].n_unique() > 1:
        chart = against_figure(values, runs[0].suite.words.group)
        figures.append(Figure("knowledge", "Accuracy and consistency", chart, caption))
    for item_chart, item_tables in _items(runs):
        figures.append(item_chart)
        tables += item_tables
    if figures:
        intro = "A mean hides how relations and facts differ."
        parts = [Beside(figures)] if len(figures) > 1 else figures
        yield Section("spread", "Spread", intro, [*parts, *tables])


def language_section(runs: Sequence[RunView]) -> Iterator[Section]:
    """Each language and each two; nothing where all patterns are in one language."""
    tables: list[Part] = []
    for run in runs:
        table = language_table(run.metrics, run.suite)
        if table.rows:
            tables.append(replace(table, title=f"{run.name}: means of relations, in percent"))
    intro = (
        "Patterns of one language are compared with one another, and with those of the other "
        "languages. Chance-corrected consistency leaves out what a preferred answer explains."
    )
    if tables:
        yield Section("languages", "Languages", intro, tables)


def accuracy_and_consistency(runs: Sequence[RunView]) -> pl.DataFrame:
    """Both numbers of each relation for ``against_figure``."""
    names = group_names(runs[0].suite)
    wanted = ("accuracy", "consistency", "chance_consistency")
    values = relation_values(runs, wanted).pivot(
        "metric", index=["run", "group"], values="value", maintain_order=True
    )
    known = [name if name in values.columns else pl.lit(math.nan).alias(name) for name in wanted]
    name = pl.col("group").replace_strict(names, default=pl.col("group"))
    return values.select("run", *known, name=name).rename({"chance_consistency": "chance"})


def _patterns(runs: Sequence[RunView]) -> Iterator[Section]:
    """Accuracy and agreement of each pattern; nothing where no fact was asked in two."""
    named = fact_views(runs)
    if all(facts.pairs.is_empty() for _, facts in named):
        return
    names = group_names(runs[0].suite)
    frame = pl.concat([facts.patterns.with_columns(run=pl.lit(name)) for name, facts in named])
    left_out = ["highest", "n", *(["run"] if len(runs) == 1 else [])]
    shown = with_outliers(frame.drop(left_out)).with_columns(
        relation=pl.col("group").replace_strict(names, default=pl.col("group")),
        number=pl.col("variant_index") + 1,
        closest=pl.col("closest") + 1,
    )
    intro = (
        "An outlier is a pattern whose agreement with the closest pattern is below the mean "
        "agreement among the others. The model may read it differently. With few facts this may be "
        "noise."
    )
    apart = [row for row in frame.iter_rows(named=True) if row["apart"]]
    named_apart = [
        f"{row['run']}, " * (len(runs) > 1)
        + f"{names.get(row['group'], row['group'])}: {row['variant']} "
        + f"(agreement {100 * row['agreement']:.0f} %)"
        for row in apart[:MOST_APART]
    ]
    more = [f"{len(apart) - MOST_APART} more, in the table"] if len(apart) > MOST_APART else []
    words = runs[0].suite.words
    none = [] if apart else [f"No {words.variant} is an outlier."]
    parts: list[Part] = [Text([" ".join([*none, *_accuracy_of_patterns(frame, words)])])]
    parts += [Points([*named_apart, *more])] if apart else []
    yield Section("patterns", "Patterns", intro, [*parts, _folded_patterns(shown)])


def _accuracy_of_patterns(patterns: pl.DataFrame, words: SuiteWords) -> Iterator[str]:
    """Whether patterns differ from the first one of their group in accuracy, in a sentence."""
    known = patterns.filter(pl.col("p_holm").is_not_nan())
    if known.is_empty():
        return
    several = f"{words.variant}s"
    where = f"from the first {words.variant} of the same {words.group} in accuracy"
    clear = known.filter(pl.col("p_holm") < CLEAR).height
    smallest = f"{counted(known.height, words.variant)}, smallest p {known['p_holm'].sort()[0]:.3f}"
    if clear:
        yield f"{clear} of {known.height:,} {several} differ {where} (p < {CLEAR}, Holm)."
    else:
        yield f"No {words.variant} differs {where} ({smallest}, Holm)."


def _folded_patterns(patterns: pl.DataFrame) -> Folded:
    """The table of patterns; of many only those with the lowest agreement."""
    size, notes, title = patterns.height, [PATTERN_NOTE], "Every pattern"
    if size > MOST_PATTERNS:
        agreement = pl.col("agreement").fill_nan(None)
        patterns = patterns.filter(agreement.rank("ordinal") <= MOST_PATTERNS)
        title = f"The {patterns.height:,} patterns with the lowest agreement"
        notes.append("`consilience analyze patterns --csv` writes all patterns.")
    table = frame_table(patterns, f"{title}, in percent", PATTERNS, notes)
    return Folded(
        f"{title} ({size:,} in all)" if len(notes) > 1 else f"{title} ({size:,})", [table]
    )


def _edits(runs: Sequence[RunView]) -> Iterator[Section]:
    """The cost of each kind of edit; nothing where the suite does not say how patterns differ."""
    named = [(name, facts.edits) for name, facts in fact_views(runs) if facts.edits.height]
    if not named:
        return
    frame = pl.concat([edits.with_columns(run=pl.lit(name)) for name, edits in named])
    caption = (
        "Left of the dashed line: pairs of patterns that differ in this way agree less often than "
        "the other pairs of their relation."
    )
    title = "Consistency of pairs of patterns with and without the edit, means over relations"
    figure = Figure("edits", "Effect of each edit on consistency", edit_figure(frame), caption)
    parts: list[Part] = [
        figure,
        frame_table(frame.drop("run") if len(runs) == 1 else frame, title, EDITS),
        *_by_kind_of_pair(runs),
    ]
    intro = (
        "Two patterns may differ in syntax, words, determiners, tense, and in the order of subject "
        "and object."
    )
    yield Section("edits", "Effect of each edit", intro, parts)


def _by_kind_of_pair(runs: Sequence[RunView]) -> Iterator[Folded]:
    """Consistency by kind of pair, as in the ParaRel paper's Table 5."""
    rows = [
        ({"run": run.name} if len(runs) > 1 else {}) | row
        for run in runs
        for row in edit_rows(run.metrics)
    ]
    title = (
        "Consistency by kind of pair, as in the ParaRel paper's Table 5: Diff-Syntax differs in "
        "syntax alone, Diff-Determiner in the determiner and perhaps more"
    )
    if rows:
        yield Folded("By kind of pair, as in the ParaRel paper", [frame_table(rows, title, MEANS)])


def _items(runs: Sequence[RunView]) -> Iterator[tuple[Figure, list[Part]]]:
    """Agreement over facts, and its tables; nothing where no fact was answered in two patterns."""
    frame = pl.concat(
        [
            facts.items.select(pl.lit(name).alias("run"), "agreement")
            for name, facts in fact_views(runs)
        ]
    )
    known = frame.filter(pl.col("agreement").is_not_nan())
    if known.height < 2 * len(runs):
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
    bar_rows = [[tenth, *(bars.get((run.name, tenth), 0.0) for run in runs)] for tenth in TENTHS]
    bar_columns = [Column("pairs that agree, percent")]
    bar_columns += [Column(run.name, "share") for run in runs]
    bars_table = Table("Facts, in percent", bar_columns, bar_rows, sortable=False)
    caption = "Facts by the share of their pairs of patterns that get the same answer."
    figure = Figure(
        "items", "Agreement over facts", item_figure(frame, runs[0].suite.words), caption
    )
    yield figure, [table, Folded("The bars as a table", [bars_table])]


def _examples(runs: Sequence[RunView]) -> Iterator[Section]:
    """The most informative facts of each run, if any."""
    parts: list[Part] = []
    names = group_names(runs[0].suite)
    first = [Column("fact"), Column("prompt")]
    last = [Column("answer"), Column("verdict")]
    for name, facts in fact_views(runs):
        tables: list[Part] = []
        for kind, chosen in facts.examples.items():
            rows = []
            is_written = any(reply.text is not None for one in chosen for reply in one.telling)
            for example in chosen:
                relation = names.get(example.group, example.group)
                for reply in example.telling:
                    fact = f"{example.subject} ({relation}), gold: {example.gold}"
                    prompt = facts.prompt(example, reply)
                    if reply.prompt:
                        (prompt,) = in_one_line([prompt], shared=False)
                    verdict = reply.unmatched or example.verdict(reply)
                    text = [reply.text or ""] * is_written
                    rows.append([fact, prompt, *text, reply.answer, verdict])
            if rows:
                of_run = f"{name}: " if len(runs) > 1 else ""
                title = of_run + kind.partition(" (example")[0]
                columns = [*first, *[Column("text")] * is_written, *last]
                tables.append(Table(title, columns, rows, sortable=False))
        is_folded = name != runs[0].name and tables
        parts += [Folded(f"{name}: examples", tables)] if is_folded else tables
    intro = (
        "The most informative facts of each kind, from as many relations as possible, with at most "
        "three prompts each."
    )
    if parts:
        yield Section("examples", "Examples", intro, parts)


def _vectors(runs: Sequence[RunView]) -> Iterator[Section]:
    """What vectors cluster by; nothing where no run has them."""
    parts: list[Part] = []
    for at, (name, facts) in enumerate(fact_views(runs)):
        if facts.vectors is None:
            continue
        if facts.drawing is not None:
            caption = (
                f"{name}. Hidden states at the object's position, projected by t-SNE. Shapes that "
                "cluster: grouped by pattern. Colours that cluster: grouped by subject."
            )
            parts.append(Figure(f"vectors-{at}", "", facts.drawing, caption, False))
        title = f"{name}: agreement of k-means' clusters with pattern, subject and object"
        parts.append(frame_table(facts.vectors, title, CLUSTER_CORRELATIONS))
    if parts:
        intro = "Do hidden states cluster by fact, or by pattern?"
        yield Section("vectors", "Representations", intro, parts)
