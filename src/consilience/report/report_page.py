"""The page of a report, section by section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import polars as pl

from consilience.core.expectations import KINDS
from consilience.metrics.registry import headline_metrics, label_of
from consilience.report import charts, overview
from consilience.report import columns as layouts
from consilience.report.analysis_tables import (
    ALL_GROUPS,
    in_one_line,
    pattern_verdict,
    violation_examples,
)
from consilience.report.columns import Columns, frame_table
from consilience.report.comparison_tables import difference_parts, flip_parts, verdict
from consilience.report.export import Figure, Folded, Page, Part, Section
from consilience.report.metric_tables import (
    DETERMINISM,
    changed_answers_table,
    language_table,
    numbers_by_part,
)
from consilience.report.run_view import (
    FactorView,
    RunView,
    factor_table,
    factor_verdict,
    group_names,
    name_and_id,
    together,
    values_of,
    view_notes,
)
from consilience.report.table import Cell, Column, intervals_below

MOST_MOVES = 60  # rows of a table of labels that changed; a written answer may be any text
MOST_EXAMPLES = 12  # changed answers on the page

OF_RELATIONS: Columns = {
    "relation": Column("relation"), "run": Column("run"), "facts": Column("facts", "count"),
}  # fmt: skip
MOVES: Columns = {
    "perturbation": Column("form"), "group": Column("task"),
    "original_answer": Column("original label"), "answer": Column("new label"),
    "len": Column("pairs", "count"),
}  # fmt: skip
EXPECTED: Columns = {
    "group": Column("group"), "run": Column("run"), "kind": Column("expectation"),
}  # fmt: skip

Parts = Iterator[Part]


def _relations(runs: Sequence[RunView]) -> Parts:
    suite, names = runs[0].suite, group_names(runs[0].suite)
    cells = {
        run.name: numbers_by_part(run.metrics.filter(over="group", kind="whole")) for run in runs
    }
    counts = {
        (run.name, group): Cell(n, mark=f" of {n + rest:,}" * bool(rest))
        for run in runs
        for group, (n, rest) in overview.fact_counts(run.metrics).items()
    }
    measured = {name for of_run in cells.values() for of in of_run.values() for name in of}
    shown = [name for name in headline_metrics() if name in measured]
    rows: list[dict[str, Any]] = [
        {
            "relation": name_and_id(names, relation.id),
            **_named(run, runs),
            "facts": counts.get((run.name, relation.id)),
            **dict.fromkeys(shown),
            **cells[run.name].get((relation.id, ""), {}),
        }
        for relation, run in product(suite.relations, runs)
    ]
    of_metrics: Columns = {name: Column(label_of(name), "share") for name in shown}
    notes = [DETERMINISM] if any(group.cardinality == "N-M" for group in suite.relations) else []
    if any(count.mark for count in counts.values()):
        notes.append("facts: those that the accuracy counts, of all facts of the relation")
    title = "Each relation, in percent; below each number its 95 % CI"
    table = frame_table(rows, title, {**OF_RELATIONS, **of_metrics}, notes)
    several = f"Each relation in each run ({len(rows):,})"
    yield table if len(runs) == 1 else Folded(several, [table])


def _named(run: RunView, runs: Sequence[RunView]) -> dict[str, str]:
    return {"run": run.name} if len(runs) > 1 else {}


def languages(runs: Sequence[RunView]) -> Parts:
    """Each language and each two; nothing where all patterns are in one language."""
    for run in runs:
        if (table := language_table(run.metrics, run.suite)).rows:
            yield replace(table, title=f"{run.name}: means of relations, in percent")


def _patterns(runs: Sequence[RunView]) -> Parts:
    """Which patterns cost consistency or differ in accuracy; nothing for facts of one pattern."""
    for run in runs:
        if run.patterns.height and not run.patterns.drop_nans("agreement").is_empty():
            lead = overview.of_run(run.name, runs)
            named = run.patterns.with_columns(pl.col("group").replace(group_names(run.suite)))
            yield lead + " ".join(pattern_verdict(named, run.suite.words))


def _edits(runs: Sequence[RunView]) -> Parts:
    if (frame := together(runs, "edits")).is_empty():
        return
    caption = (
        "Left of the dashed line: pairs of patterns that differ in this way agree less often than "
        "the other pairs of their relation."
    )
    title = "Consistency of pairs of patterns with and without the edit, means over relations"
    yield Figure("edits", "Effect of each edit on consistency", charts.edit_figure(frame), caption)
    yield frame_table(frame.drop("run") if len(runs) == 1 else frame, title, layouts.EDITS)


def _examples(runs: Sequence[RunView]) -> Parts:
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
                    row = {"fact": fact, "prompt": prompt, **text, "answer": reply.answer}
                    rows.append(row | {"verdict": reply.unmatched or example.verdict(reply)})
            if rows:
                title = overview.of_run(run.name, runs) + kind.partition(" (example")[0]
                columns: Columns = {name: Column(name) for name in rows[0]}
                tables.append(frame_table(rows, title, columns, sortable=False))
        is_folded = run is not runs[0] and tables
        yield from [Folded(f"{run.name}: examples", tables)] if is_folded else tables


def _label_changes(runs: Sequence[RunView]) -> Parts:
    for run in runs:
        if run.changed.is_empty():
            yield f"{run.name}: no label changed."
            continue
        by = ["perturbation", "group", "original_answer", "answer"]
        moves = run.changed.group_by(by, maintain_order=True).len()
        moves = moves.sort("len", descending=True, maintain_order=True)
        is_long = moves.height > MOST_MOVES
        rest = f", the {MOST_MOVES} most common of {moves.height}" * is_long
        title = f"{run.name}: labels that changed{rest}"
        yield frame_table(moves.head(MOST_MOVES), title, MOVES)
        counts = run.changed.group_by("group", "perturbation", maintain_order=True).agg(
            (pl.col("original_answer") == pl.col("gold")).sum(),
            (pl.col("answer") == pl.col("gold")).sum(),
        )
        yield [
            f"{run.name}, {group}, {form}: {lost} right labels became wrong, {won} wrong labels "
            "became right"
            for group, form, lost, won in counts.iter_rows()
        ]


def _changed_examples(runs: Sequence[RunView]) -> Parts:
    """Answers that a form changed, one of each form first; nothing where there are none."""
    for run in runs:
        if not run.changed.is_empty():
            title = f"{run.name}: the most confident first"
            yield changed_answers_table(run.changed, MOST_EXAMPLES, title)


APPLICABLE = "applicable: a map has the first answers, counted in each variant"


def _expectations(runs: Sequence[RunView]) -> Parts:
    """The violation rates by group and kind; none without expectations."""
    names = group_names(runs[0].suite)
    names |= {"": ALL_GROUPS} if len(names) > 1 else {}
    numbers = {
        (run.name, group): values_of(run.metrics, "group" if group else "all", group)
        for run in runs
        for group in names
    }
    rows: list[dict[str, Any]] = []
    for group, kind, run in product(names, KINDS, runs):
        known = numbers[run.name, group]
        rate = known.get(("violation_rate", "expectation", kind))
        chance = known.get(("chance_violation_rate", "expectation", kind))
        if rate and chance:
            row = {"group": names[group], **_named(run, runs), "kind": kind}
            row |= {name: rate[name] for name in ("n", "value", "low", "high")}
            rows.append(row | {"chance": chance["value"]})
    if not rows:
        return
    columns = {**EXPECTED, **layouts.VIOLATION_RATES}
    kinds = {row["kind"] for row in rows}
    notes = [f"{kind}: {text}" for kind, text in KINDS.items() if kind in kinds]
    notes.append(APPLICABLE)
    yield frame_table(rows, "Violated expectations, in percent", columns, notes)
    for run in runs:
        if tables := list(violation_examples(run.violations)):
            name = f": {run.name}" if len(runs) > 1 else ""
            yield Folded(f"Examples of violations{name}", tables)


def factor_parts(views: Sequence[FactorView]) -> Parts:
    """The table and the figure of factors; none without."""
    if not views:
        return
    title = "What each factor changes"
    lead = factor_verdict(views)
    yield from lead if len(views) > 1 else filter(None, [" ".join(lead)])
    caption = "Marks have 95 % confidence intervals."
    yield Figure("factors", title, charts.factor_figure(views), caption, is_fluid=False)
    yield intervals_below(factor_table(views, f"{title}, in percent"))
    yield from filter(None, [view_notes(views)])


PAIRED = (
    "All runs have the same questions, so their answers are paired. A difference is the later run "
    "minus the first, in percentage points, over what both were asked; so a value may "
    "differ from that of the run alone. p is two-sided: * .05, ** .01, *** .001. Holm: adjusted "
    "over relations, or over the forms of a number. The intervals are not adjusted. Detectable: "
    "the minimum detectable difference at 80 % power."
)
Sections = Sequence[tuple[str, str, str, Callable[[Sequence[RunView]], Iterable[Part]]]]
"""Anchor, heading, intro and parts of sections; one without parts is left out."""

OF_FACTS: Sections = (
    ("by-relation", "Relations", "", _relations),
    (
        "languages", "Languages",
        "Patterns of one language are compared with one another, and with those of the other "
        "languages. Chance-corrected consistency leaves out what a preferred answer explains.",
        languages,
    ),
    (
        "patterns", "Patterns",
        "What consistency gains without a pattern: the model may read this one differently. With "
        "few facts it may be noise.",
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
)  # fmt: skip
OF_PAIRS: Sections = (
    ("changes", "Label changes", "", _label_changes),
    (
        "examples", "Examples",
        "Labels that a form changed; `consilience analyze examples RUN --csv FILE` has all.",
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
    ("caveats", "Caveats", "", overview.caveats),
)  # fmt: skip


SHOWN = 3  # models that the title names


def report_page(
    runs: Sequence[RunView],
    compared: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    flips: tuple[pl.DataFrame, pl.DataFrame] | None = None,
) -> Page:
    """The report of runs on the same suite.

    ``compared``: later runs against the first (``COMPARISON_SCHEMA``). ``notes``: differences
    between the settings of the runs. ``flips``: which answers changed (``flip_parts``).
    """
    suite, words, names = runs[0].suite, runs[0].suite.words, [run.name for run in runs]
    found: list[Part] = []
    changes: list[Part] = [[*notes]] if notes else []
    if compared is not None:
        found = [sentences] if (sentences := verdict(compared, suite)) else []
        changes += difference_parts(compared, suite)
    flipped = flip_parts(*flips, suite) if flips and flips[1].height else ()
    rows: Sections = [
        ("verdict", "Result", "", lambda runs: found),
        ("summary", "Summary", overview.scope(runs), overview.first_screen),
        ("differences", "Differences", PAIRED * (compared is not None), lambda runs: changes),
        ("flips", "Changed answers", "", lambda runs: flipped),
        *(OF_PAIRS if words.over == "group" else OF_FACTS),
        *OF_ALL,
    ]
    records = [(run.name, run.record) for run in runs]
    sections = [Section(id_, head, intro, [*parts(runs)]) for id_, head, intro, parts in rows]
    sections = [section for section in sections if section.parts] + [overview.again(records)]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    title = f"How consistent {'is' if len(names) == 1 else 'are'} {', '.join(names[:SHOWN])}{more}?"
    return overview.page_in_words(Page(title, overview.subtitle_of(runs), sections), words, names)
