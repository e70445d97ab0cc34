"""The sections of a report that say why: wordings, edits, facts, examples, vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from consilience.report.cells import chance, change, change_ends, count, ends, share
from consilience.report.charts import TENTHS, edit_figure, in_tenths, item_figure, matrix_figure
from consilience.report.page import Cell, Figure, Folded, Grid, Part, Section
from consilience.report.shown import Shown, values_of, without_run
from consilience.report.tables import SUBSETS

APART = " (stands apart)"
"""Marks a pattern whose highest agreement is below the mean among the others."""

DITTO = "\N{DOUBLE PRIME}"
"""The fact of the row above."""


def wordings(runs: Sequence[Shown], relation: str | None) -> Iterator[Section]:
    """Agreement of each two wordings; ``relation`` first, else the least consistent one.

    Nothing where no fact was asked in two.
    """
    pairs = pl.concat([run.pairs.with_columns(run=pl.lit(run.name)) for run in runs])
    if pairs.is_empty():
        return
    patterns = pl.concat([run.patterns.with_columns(run=pl.lit(run.name)) for run in runs])
    if relation is None:
        means = pairs.group_by("group", maintain_order=True).agg(
            pl.col("agreement").fill_nan(None).mean()
        )
        relation = str(means.sort("agreement", nulls_last=True)["group"][0])
    rows = [
        [Cell(row["group"]), Cell(row["run"]), Cell(f"{row['variant_index'] + 1}",
         row["variant_index"]), Cell(row["variant"] + APART * row["apart"]), share(row["accuracy"]),
         change(row["change"]), change_ends(row["change_low"], row["change_high"]),
         chance(row["p_holm"]), share(row["agreement"]),
         count(None if row["closest"] is None else row["closest"] + 1)]
        for row in patterns.iter_rows(named=True)
    ]  # fmt: skip
    columns = [
        "relation", "run", "number", "pattern", "Accuracy", "points", "95 %", "p, Holm",
        "agrees with the others", "most with",
    ]  # fmt: skip
    rows, columns = without_run(runs, rows, columns)
    caption = (
        "Every pattern, in percent. Points: its accuracy minus that of the first, on the same "
    )
    caption += "facts; p: exact McNemar"
    table = Grid(caption, columns, rows)
    of = f", {runs[0].name}" if len(runs) > 1 else ""
    yield Section(
        "wordings",
        "Which wordings agree",
        "A wording that stands apart agrees less with its closest than the others do among "
        "themselves: it may be understood in another way. Of few facts it may be chance.",
        [
            Figure(
                "agreement",
                f"Agreement of wordings: {relation}{of}",
                matrix_figure(pairs, patterns, relation),
                "How often each two wordings of a relation get the same answer, in percent. Blank: "
                "never asked of the same fact, as a and an.",
            ),
            Folded(f"Every wording ({len(rows):,})", [table]),
        ],
    )


def edits(runs: Sequence[Shown]) -> Iterator[Section]:
    """What each kind of edit costs; nothing where the suite does not say how wordings differ."""
    having = [run for run in runs if run.edits.height]
    if not having:
        return
    edits = pl.concat([run.edits.with_columns(run=pl.lit(run.name)) for run in having])
    rows = [
        [Cell(row["kind"]), Cell(row["run"]), share(row["with_it"]), share(row["without_it"]),
         change(row["difference"]), change_ends(row["low"], row["high"]), chance(row["p_holm"]),
         count(row["relations"]), count(row["pairs"])]
        for row in edits.iter_rows(named=True)
    ]  # fmt: skip
    heads = ["edit", "run", "with it", "without", "points", "95 %", "p, Holm", "relations", "pairs"]
    rows, heads = without_run(runs, rows, heads)
    caption = "Left of the line: wordings that differ in this way agree less often than the others "
    caption += "of their relation."
    parts: list[Part] = [
        Figure("edits", "What an edit costs in consistency", edit_figure(edits), caption),
        Grid("Consistency of pairs with and without the edit, means over relations", heads, rows),
    ]  # fmt: skip
    known = [
        (run.name, SUBSETS[subset], row)
        for run in runs
        for (metric, subset), row in values_of(run.metrics, "MACRO").items()
        if metric == "consistency" and subset in SUBSETS
    ]
    if known:
        only = [
            [Cell(subset), Cell(name), share(row["value"]), ends(row["low"], row["high"]),
             share(row["std"]), count(row["n"])]
            for name, subset, row in known
        ]  # fmt: skip
        caption = "Consistency by kind of pair, as the paper's Table 5: Diff-Syntax differs in "
        caption += "syntax alone, Diff-Determiner in the determiner and maybe more"
        columns = ("pairs", "run", "mean", "95 %", "std", "relations")
        parts.append(Folded("By kind of pair, as in the paper", [Grid(caption, columns, only)]))
    intro = (
        "Two wordings may differ in syntax, words, determiners, tense, and in which of subject and "
        "object stands first. What does each cost?"
    )
    yield Section("edits", "Which edits hurt", intro, parts)


def items(runs: Sequence[Shown]) -> Iterator[Section]:
    """How agreement is spread over facts; nothing where no fact was answered in two wordings."""
    items = pl.concat(
        [run.items.select(pl.lit(run.name).alias("run"), "agreement") for run in runs]
    )
    known = items.filter(pl.col("agreement").is_not_nan())
    if known.is_empty():
        return
    rows = []
    for run in runs:
        found = known.filter(pl.col("run") == run.name)["agreement"]
        size = len(found)
        full, none = int((found == 1).sum()), int((found == 0).sum())
        rows.append(
            [Cell(run.name), count(size), share(full / size if size else None),
             share(none / size if size else None),
             share(float(found.median()) if size else None)]  # type: ignore[arg-type]
        )  # fmt: skip
    heads = ("run", "facts", "all wordings agree", "no two agree", "median agreement")
    caption = "Facts of relations with one right answer, by the agreement among their wordings, "
    caption += "in percent"
    table = Grid(caption, heads, rows, sortable=False)
    bars = {(row["run"], row["agreement"]): row["share"] for row in in_tenths(known).to_dicts()}
    shares = [
        [Cell(tenth), *(share(bars.get((run.name, tenth), 0.0) / 100) for run in runs)]
        for tenth in TENTHS
    ]
    columns = ["pairs that agree, percent", *(run.name for run in runs)]
    each = Folded("The bars as a table", [Grid("Facts, in percent", columns, shares, False)])
    caption = "Facts by the share of their pairs of wordings that get the same answer."
    yield Section(
        "items",
        "Facts",
        "A mean hides whether a few facts waver much or all a little.",
        [Figure("items", "Agreement over facts", item_figure(items), caption), table, each],
    )


def examples(runs: Sequence[Shown], kinds: Mapping[str, str]) -> Iterator[Section]:
    """The most telling facts of each run, if any; ``kinds``: what each kind is."""
    parts: list[Part] = []
    for run in runs:
        inside: list[Part] = []
        for kind, found in run.examples.items():
            rows = []
            for each in found:
                for at, reply in enumerate(each.telling):
                    name = f"{each.subject} ({each.group}), gold: {each.gold}"
                    rows.append(
                        [Cell(name if at == 0 else DITTO), Cell(reply.variant), Cell(reply.answer),
                         Cell(each.verdict(reply))]
                    )  # fmt: skip
            if rows:
                columns = ("fact", "asked so", "the model says", "which is")
                of = f"{run.name}: {kinds[kind]}" if len(runs) > 1 else kinds[kind]
                inside.append(Grid(of, columns, rows, sortable=False))
        parts += inside if len(runs) == 1 or not inside else [Folded(run.name, inside)]
    intro = (
        "The most telling facts of each kind, of as many relations as there are; at most three "
        "wordings. Numbers in brackets are those of the examples in ParaRel's Table 6."
    )
    if parts:
        yield Section("examples", "Examples", intro, parts)


def vectors(runs: Sequence[Shown]) -> Iterator[Section]:
    """What vectors cluster by; nothing where no run has them."""
    parts: list[Part] = []
    for at, run in enumerate(runs):
        if run.vectors is None:
            continue
        rows = [
            [Cell(row["property"]), count(row["layer"]), share(row["v_measure"]),
             share(row["v_measure_shuffled"]), share(row["ami"]), share(row["value"]),
             ends(row["low"], row["high"]), count(row["n"])]
            for row in run.vectors.iter_rows(named=True)
        ]  # fmt: skip
        columns = (
            "by", "layer", "V-measure", "labels shuffled", "AMI", "r with consistency", "95 % of r",
            "relations",
        )  # fmt: skip
        if run.drawing is not None:
            caption = "Vectors at the place of the object, t-SNE. One shape together: grouped by "
            caption += "wording; one colour together: by what is asked."
            parts.append(Figure(f"vectors-{at}", "", run.drawing, f"{run.name}. {caption}"))
        caption = f"{run.name}: how far k-means' clusters are those of wording, subject or object"
        parts.append(Grid(caption, columns, rows))
    if parts:
        intro = "Do vectors lie together by what is known, or by the words of the question?"
        yield Section("vectors", "Representations", intro, parts)
