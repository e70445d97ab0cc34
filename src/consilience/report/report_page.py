"""The page of a report, section by section."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import polars as pl

from consilience.core.expectations import EXPECTATION_SUBSETS
from consilience.core.text import counted
from consilience.metrics.registry import headline_metrics, label_of
from consilience.report import charts
from consilience.report.analysis_tables import ALL_GROUPS, in_one_line, violation_examples
from consilience.report.columns import (
    CLUSTER_CORRELATIONS,
    EDITS,
    GAP_NOTE,
    MEANS,
    PATTERN_NOTE,
    PATTERNS,
    PROBABILITY_GAP,
    VIOLATION_RATES,
    Columns,
    frame_table,
    with_outliers,
)
from consilience.report.comparison_tables import differences
from consilience.report.export import Figure, Folded, Page, Part, Points, Section, Text
from consilience.report.metric_tables import (
    DETERMINISM,
    edit_rows,
    firsts_first,
    group_cells,
    language_table,
)
from consilience.report.overview import (
    again,
    beside,
    caveats,
    fact_counts,
    first_screen,
    numbers,
    of_run,
    page_in_words,
    scope,
    servers,
    setup,
    subtitle_of,
)
from consilience.report.run_view import (
    FactorView,
    RunView,
    factor_table,
    group_names,
    index_table,
    interaction_table,
    level_table,
    most_changed,
    name_and_id,
    view_notes,
)
from consilience.report.table import NAN, Column, Table, Value, intervals_below
from consilience.types import SuiteWords

MOST_APART = 8  # patterns that differ from the others and are named
MOST_PATTERNS = 1_000  # rows of the table of patterns; of more, those with the lowest agreement
CLEAR = 0.05  # an adjusted p below which a pattern differs in accuracy

OF_RELATIONS: Columns = {
    "relation": Column("relation"), "run": Column("run"), "facts": Column("facts", "count"),
}  # fmt: skip
OF_ITEMS: Columns = {
    "run": Column("run"), "facts": Column("facts", "count"),
    "all": Column("all patterns agree", "share"), "none": Column("no two agree", "share"),
    "median": Column("median agreement", "share"),
}  # fmt: skip
MOVES: Columns = {
    "perturbation": Column("form"), "group": Column("task"),
    "original_answer": Column("original label"), "answer": Column("new label"),
    "len": Column("pairs", "count"),
}  # fmt: skip
EXPECTED: Columns = {
    "group": Column("group"), "run": Column("run"), "kind": Column("expectation"),
}  # fmt: skip
OF_EXPECTATIONS = (
    "violation_rate", "chance_violation_rate", "probability_gap", "chance_probability_gap",
)  # fmt: skip

Parts = Iterator[Part]


def _relations(runs: Sequence[RunView]) -> Parts:
    """The headline metrics of each relation."""
    suite, names = runs[0].suite, group_names(runs[0].suite)
    cells = {run.name: group_cells(run.metrics, suite) for run in runs}
    counts = {run.name: fact_counts(run.metrics) for run in runs}
    measured = {name for of_run in cells.values() for name, _ in of_run}
    shown = [name for name in headline_metrics() if name in measured]
    rows: list[dict[str, Any]] = [
        {
            "relation": name_and_id(names, relation.id),
            **_named(run, runs),
            "facts": counts[run.name].get(relation.id),
            **{metric: cells[run.name].get((metric, relation.id)) for metric in shown},
        }
        for relation in suite.relations
        for run in runs
    ]
    of_metrics: Columns = {name: Column(label_of(name), "share") for name in shown}
    notes = [DETERMINISM] if any(group.cardinality == "N-M" for group in suite.relations) else []
    if any(count.mark for of_run in counts.values() for count in of_run.values()):
        notes.append("facts: those that the accuracy counts, of all facts of the relation")
    title = "Each relation, in percent; below each number its 95 % CI"
    table = frame_table(rows, title, {**OF_RELATIONS, **of_metrics}, notes)
    several = f"Each relation in each run ({len(rows):,})"
    yield table if len(runs) == 1 else Folded(several, [table])


def _named(run: RunView, runs: Sequence[RunView]) -> dict[str, str]:
    """The cell that names the run of a row, where there are several."""
    return {"run": run.name} if len(runs) > 1 else {}


def _spread(runs: Sequence[RunView]) -> Parts:
    """How accuracy and consistency are spread over relations, and agreement over facts."""
    values = charts.accuracy_and_consistency(runs)
    caption = (
        "Each mark is a relation. Bottom right: the answers are right, but only in some patterns. "
        "Top left: the answers are the same and wrong. Dashed line: mean consistency expected by "
        "chance."
    )
    figures: list[Part] = []
    if values["name"].n_unique() > 1:
        chart = charts.against_figure(values, runs[0].suite.words.group)
        figures.append(Figure("knowledge", "Accuracy and consistency", chart, caption))
    of_items = list(_items(runs))
    yield from beside([*figures, *of_items[:1]])
    yield from of_items[1:]


def languages(runs: Sequence[RunView]) -> Parts:
    """Each language and each two; nothing where all patterns are in one language."""
    for run in runs:
        if (table := language_table(run.metrics, run.suite)).rows:
            yield replace(table, title=f"{run.name}: means of relations, in percent")


def _patterns(runs: Sequence[RunView]) -> Parts:
    """Accuracy and agreement of each pattern; nothing where no fact was asked in two."""
    if all(run.pairs.is_empty() for run in runs):
        return
    words, names = runs[0].suite.words, group_names(runs[0].suite)
    frame = pl.concat(run.patterns.with_columns(run=pl.lit(run.name)) for run in runs)
    left_out = ["highest", "n", *["run"] * (len(runs) == 1)]
    shown = with_outliers(frame.drop(left_out)).with_columns(
        relation=pl.col("group").replace(names)
    )
    apart = [
        f"{row['run']}, " * (len(runs) > 1)
        + f"{names.get(row['group'], row['group'])}: {row['variant']} "
        + f"(agreement {100 * row['agreement']:.0f} %)"
        for row in frame.filter(pl.col("apart")).to_dicts()
    ]
    none = [] if apart else [f"No {words.variant} is an outlier."]
    yield Text([" ".join([*none, *_accuracy_of_patterns(frame, words)])])
    if len(apart) > MOST_APART:
        apart[MOST_APART:] = [f"{len(apart) - MOST_APART} more, in the table"]
    if apart:
        yield Points(apart)
    yield _folded_patterns(shown)


def _accuracy_of_patterns(patterns: pl.DataFrame, words: SuiteWords) -> Iterator[str]:
    """Whether patterns differ from the first one of their group in accuracy, in a sentence."""
    known = patterns.filter(pl.col("p_holm").is_not_nan())
    where = f"from the first {words.variant} of the same {words.group} in accuracy"
    if clear := known.filter(pl.col("p_holm") < CLEAR).height:
        several = f"{clear} of {known.height:,} {words.variant}s"
        yield f"{several} differ {where} (p < {CLEAR}, Holm)."
    elif known.height:
        smallest = f"smallest p {known['p_holm'].sort()[0]:.3f}"
        several = counted(known.height, words.variant)
        yield f"No {words.variant} differs {where} ({several}, {smallest}, Holm)."


def _folded_patterns(patterns: pl.DataFrame) -> Folded:
    """The table of patterns; of many only those with the lowest agreement."""
    size, notes, title = patterns.height, [PATTERN_NOTE], "Every pattern"
    if size > MOST_PATTERNS:
        agreement = pl.col("agreement").fill_nan(None)
        patterns = patterns.filter(agreement.rank("ordinal") <= MOST_PATTERNS)
        title = f"The {patterns.height:,} patterns with the lowest agreement"
        notes.append("`consilience analyze patterns --csv` writes all patterns.")
    table = frame_table(patterns, f"{title}, in percent", PATTERNS, notes)
    in_all = " in all" * (len(notes) > 1)
    return Folded(f"{title} ({size:,}{in_all})", [table])


def _edits(runs: Sequence[RunView]) -> Parts:
    """The cost of each kind of edit; nothing where the suite does not say how patterns differ."""
    named = [run.edits.with_columns(run=pl.lit(run.name)) for run in runs if run.edits.height]
    if not named:
        return
    frame = pl.concat(named)
    caption = (
        "Left of the dashed line: pairs of patterns that differ in this way agree less often than "
        "the other pairs of their relation."
    )
    title = "Consistency of pairs of patterns with and without the edit, means over relations"
    yield Figure("edits", "Effect of each edit on consistency", charts.edit_figure(frame), caption)
    yield frame_table(frame.drop("run") if len(runs) == 1 else frame, title, EDITS)
    rows = [_named(run, runs) | row for run in runs for row in edit_rows(run.metrics)]
    title = (
        "Consistency by kind of pair, as in the ParaRel paper's Table 5: Diff-Syntax differs in "
        "syntax alone, Diff-Determiner in the determiner and perhaps more"
    )
    if rows:
        yield Folded("By kind of pair, as in the ParaRel paper", [frame_table(rows, title, MEANS)])


def _items(runs: Sequence[RunView]) -> Parts:
    """Agreement over facts: its figure and tables, if facts were answered in two patterns."""
    frame = pl.concat(run.items.select(pl.lit(run.name).alias("run"), "agreement") for run in runs)
    known = frame.filter(pl.col("agreement").is_not_nan())
    if known.height < 2 * len(runs):
        return
    rows = [
        {"run": run.name, "facts": len(of), "all": (of == 1).mean(), "none": (of == 0).mean(),
         "median": of.median()}
        for run in runs
        for of in [known.filter(run=run.name)["agreement"]]
    ]  # fmt: skip
    title = (
        "Facts of relations with one right answer, by the agreement among their patterns, in "
        "percent"
    )
    bars = {
        (row["run"], row["agreement"]): row["share"] for row in charts.in_tenths(known).to_dicts()
    }
    bar_rows = [
        [tenth, *(bars.get((run.name, tenth), 0.0) for run in runs)] for tenth in charts.TENTHS
    ]
    runs_columns = (Column(run.name, "share") for run in runs)
    bar_columns = [Column("pairs that agree, percent"), *runs_columns]
    bars_table = Table("Facts, in percent", bar_columns, bar_rows, sortable=False)
    caption = "Facts by the share of their pairs of patterns that get the same answer."
    chart = charts.item_figure(frame, runs[0].suite.words)
    yield Figure("items", "Agreement over facts", chart, caption)
    yield frame_table(rows, title, OF_ITEMS, sortable=False)
    yield Folded("The bars as a table", [bars_table])


def _examples(runs: Sequence[RunView]) -> Parts:
    """The most informative facts of each run, if any."""
    names = group_names(runs[0].suite)
    for run in runs:
        tables: list[Part] = []
        for kind, chosen in run.examples.items():
            is_written = any(reply.text is not None for one in chosen for reply in one.telling)
            rows = []
            for example in chosen:
                relation = names.get(example.group, example.group)
                fact = f"{example.subject} ({relation}), gold: {example.gold}"
                for reply in example.telling:
                    prompt = run.prompt(example, reply)
                    if reply.prompt:
                        (prompt,) = in_one_line([prompt], shared=False)
                    text = {"text": reply.text or ""} if is_written else {}
                    verdict = reply.unmatched or example.verdict(reply)
                    row = {"fact": fact, "prompt": prompt, **text, "answer": reply.answer}
                    rows.append(row | {"verdict": verdict})
            if rows:
                title = of_run(run.name, runs) + kind.partition(" (example")[0]
                columns: Columns = {name: Column(name) for name in rows[0]}
                tables.append(frame_table(rows, title, columns, sortable=False))
        is_folded = run is not runs[0] and tables
        yield from [Folded(f"{run.name}: examples", tables)] if is_folded else tables


def _vectors(runs: Sequence[RunView]) -> Parts:
    """What vectors cluster by; nothing where no run has them."""
    for at, run in enumerate(runs):
        if run.vectors is None:
            continue
        if run.drawing is not None:
            caption = (
                f"{run.name}. Hidden states at the object's position, projected by t-SNE. Shapes "
                "that cluster: grouped by pattern. Colours that cluster: grouped by subject."
            )
            yield Figure(f"vectors-{at}", "", run.drawing, caption, False)
        title = f"{run.name}: agreement of k-means' clusters with pattern, subject and object"
        yield frame_table(run.vectors, title, CLUSTER_CORRELATIONS)


MOST_MOVES = 60  # rows of a table of labels that changed; a written answer may be any text
MOST_EXAMPLES = 12  # changed answers on the page; all are in inconsistent.csv


def _label_changes(runs: Sequence[RunView]) -> Parts:
    """Old and new label, all seeds together; how many right answers were lost and won."""
    for run in runs:
        if run.changed.is_empty():
            yield Text([f"{run.name}: no label changed."])
            continue
        by = ["perturbation", "group", "original_answer", "answer"]
        moves = run.changed.group_by(by, maintain_order=True).len()
        moves = moves.sort("len", descending=True, maintain_order=True)
        seeds = f", {run.seeds} seeds together" if run.seeds > 1 else ""
        is_long = moves.height > MOST_MOVES
        rest = f", the {MOST_MOVES} most common of {moves.height}" * is_long
        title = f"{run.name}{seeds}: labels that changed{rest}"
        yield frame_table(moves.head(MOST_MOVES), title, MOVES)
        counts = run.changed.group_by("group", "perturbation", maintain_order=True).agg(
            lost=(pl.col("original_answer") == pl.col("gold")).sum(),
            won=(pl.col("answer") == pl.col("gold")).sum(),
        )
        yield Points(
            [
                f"{run.name}, {row['group']}, {row['perturbation']}: {row['lost']} right labels "
                f"became wrong, {row['won']} wrong labels became right"
                for row in counts.to_dicts()
            ]
        )


def _changed_examples(runs: Sequence[RunView]) -> Parts:
    """Answers that a form changed, one of each form first; nothing where there are none."""
    columns = [Column(heading) for heading in ("form", "first", "second", "answer", "gold")]
    for run in runs:
        rows: list[list[Value]] = []
        for row in firsts_first(run.changed).head(MOST_EXAMPLES).to_dicts():
            originals = row["original_1"], row["original_2"], row["original_answer"]
            rows.append(["original", *originals, row["gold"]])
            texts = row["text_1"], row["text_2"], row["answer"]
            rows.append([row["perturbation"], *texts, row["gold"]])
        if rows:
            yield Table(f"{run.name}: the most confident first", columns, rows, sortable=False)


APPLICABLE = "applicable: the first answers meet the condition, counted in each variant"


def _expectations(runs: Sequence[RunView]) -> Parts:
    """The violation rates by group and kind; none without expectations."""
    names = {**group_names(runs[0].suite), "MICRO": ALL_GROUPS}
    values = {
        (run.name, row["metric"], row["group"], row["subset"]): row
        for run in runs
        for row in run.metrics.iter_rows(named=True)
    }
    rows: list[dict[str, Any]] = []
    for group in [name for name in names if name != "MICRO" or len(names) > 2]:
        for kind, run in product(EXPECTATION_SUBSETS, runs):
            rate, chance, gap, chance_gap = (
                values.get((run.name, metric, group, kind), {}) for metric in OF_EXPECTATIONS
            )
            if rate and chance:
                row = {"group": names[group], **_named(run, runs), "kind": kind}
                row |= {name: rate[name] for name in ("n", "value", "low", "high")}
                row |= {"chance": chance["value"], "gap": gap.get("value", NAN)}
                row |= {"gap_low": gap.get("low", NAN), "gap_high": gap.get("high", NAN)}
                rows.append(row | {"gap_chance": chance_gap.get("value", NAN)})
    if not rows:
        return
    has_gap = any(metric == "probability_gap" for _, metric, _, _ in values)
    columns = {**EXPECTED, **VIOLATION_RATES, **(PROBABILITY_GAP if has_gap else {})}
    kinds = {row["kind"] for row in rows}
    about = [f"{kind}: {text}" for kind, text in EXPECTATION_SUBSETS.items() if kind in kinds]
    notes = [*about, APPLICABLE, *([GAP_NOTE] if has_gap else [])]
    yield frame_table(rows, "Violated expectations, in percent", columns, notes)
    for run in runs:
        if tables := list(violation_examples(run.violations)):
            name = f": {run.name}" if len(runs) > 1 else ""
            yield Folded(f"Examples of violations{name}", tables)


CAPTION = (
    "Consistency: mark with 95 % CI, and a tick at the level expected by chance. Answer and "
    "correctness: "
)
OF_SHARES = (
    "the bar is the main effect of a factor as a share of the variation over variants, the mark "
    "with 95 % CI its total effect, which has all interactions of the factor."
)
OF_PROBABILITIES = (
    "probability, with 95 % CI, that it changes when this factor alone gets a random level."
)


def factor_parts(views: Sequence[FactorView]) -> Parts:
    """The table and the figure of factors, the indices, and every interaction; none without."""
    if not views:
        return
    is_exact = all(view.is_exact for view in views)
    title, caption = "What each factor changes", OF_SHARES if is_exact else OF_PROBABILITIES
    if lead := most_changed(views):
        yield Text(lead)
    yield Figure("factors", title, charts.factor_figure(views), CAPTION + caption, is_fluid=False)
    table = factor_table(views, f"{title}, in percent")
    notes = [note for note in table.notes if note not in lead]
    yield intervals_below(replace(table, notes=notes))
    indices = index_table(views, "Sensitivity indices: the larger, the more variants differ")
    yield Folded(
        "Sensitivity indices, to compare with other models on the same questions", [indices]
    )
    interactions = interaction_table(views, "Interactions, percent of the variation")
    if interactions.rows:
        yield Folded("Each interaction", [interactions])
    yield Folded("Accuracy by level", [level_table(views, "Accuracy by level")])
    if notes := view_notes(views):
        yield Points(notes)


Sections = Sequence[tuple[str, str, str, Callable[[Sequence[RunView]], Parts]]]
"""Anchor, heading, intro and parts of sections; one without parts is left out."""

OF_FACTS: Sections = (
    ("by-relation", "Relations", "", _relations),
    ("spread", "Spread", "A mean hides how relations and facts differ.", _spread),
    (
        "languages", "Languages",
        "Patterns of one language are compared with one another, and with those of the other "
        "languages. Chance-corrected consistency leaves out what a preferred answer explains.",
        languages,
    ),
    (
        "patterns", "Patterns",
        "An outlier is a pattern whose agreement with the closest pattern is below the mean "
        "agreement among the others. The model may read it differently. With few facts this may be "
        "noise.",
        _patterns,
    ),
    (
        "edits", "Effect of each edit",
        "Two patterns may differ in syntax, words, determiners, tense, and in the order of subject "
        "and object.",
        _edits,
    ),
    (
        "examples", "Examples",
        "The most informative facts of each kind, from as many relations as possible, with at most "
        "three prompts each.",
        _examples,
    ),
    ("vectors", "Representations", "Do hidden states cluster by fact, or by pattern?", _vectors),
)  # fmt: skip
OF_PAIRS: Sections = (
    ("changes", "Label changes", "", _label_changes),
    (
        "examples", "Examples",
        "Labels that a form changed. All of them are in inconsistent.csv of the run.",
        _changed_examples,
    ),
)  # fmt: skip
OF_ALL: Sections = (
    (
        "factors", "Factors",
        "The same questions were asked in variants. A factor is what differs between them, such as "
        "the order of the options. The less variants agree that differ in one factor only, the "
        "more this factor changes answers.",
        lambda runs: factor_parts([view for run in runs for view in run.factors]),
    ),
    (
        "expectations", "Expectations",
        "The suite says what should hold between the answers to several questions. Compare the "
        "violation rate with its chance level: what it would be if the last answer were that of "
        "another expectation.",
        _expectations,
    ),
    (
        "server", "Server",
        "The model answered behind a URL or in llama.cpp. How its candidates were scored was "
        "proved on a few known prompts before anything of the suite was sent.",
        servers,
    ),
    ("caveats", "Caveats", "", caveats),
    ("setup", "Suite and models", "", setup),
)  # fmt: skip


def sections_of(runs: Sequence[RunView], rows: Sections) -> Iterator[Section]:
    """The sections that have parts."""
    for id_, heading, intro, parts_of in rows:
        if parts := list(parts_of(runs)):
            yield Section(id_, heading, intro, parts)


SHOWN = 3  # models that the title names


def report_page(
    runs: Sequence[RunView],
    compared: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    relation: str | None = None,
) -> Page:
    """The report of runs on the same suite.

    ``compared``: later runs against the first (``COMPARISON_SCHEMA``). ``notes``: differences
    between the settings of the runs. ``relation``: the relation whose agreement is shown first;
    None for the least consistent.
    """
    words, names = runs[0].suite.words, [run.name for run in runs]
    of_kind = OF_PAIRS if runs[0].task else OF_FACTS
    first = ("summary", "Summary", scope(runs), partial(first_screen, relation=relation))
    sections = [
        *sections_of(runs, [first]),
        *differences(compared, notes, group_names(runs[0].suite), words.pool),
        *sections_of(runs, [("numbers", "All numbers", "", numbers), *of_kind, *OF_ALL]),
        again(
            [
                (f"{run.name}, seed {at} of {run.seeds}" if run.seeds > 1 else run.name, record)
                for run in runs
                for at, record in enumerate(run.records or [{}], start=1)
            ]
        ),
    ]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    title = f"How consistent {'is' if len(names) == 1 else 'are'} {', '.join(names[:SHOWN])}{more}?"
    return page_in_words(Page(title, subtitle_of(runs), sections), words)
