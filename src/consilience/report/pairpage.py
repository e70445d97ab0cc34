"""The report on runs of ``perturb``: is a label kept when order and format change (CALUM)?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from consilience.report.cells import chance, change, change_ends, count, ends, share
from consilience.report.charts import form_figure
from consilience.report.page import (
    Cell,
    Facts,
    Figure,
    Folded,
    Grid,
    Page,
    Part,
    Points,
    Section,
    Text,
)
from consilience.report.perturbed import PAPERS
from consilience.report.repeat import again, described
from consilience.report.tables import COLUMNS
from consilience.types import Task

MEANINGS: Mapping[str, str] = {
    "accuracy": "pairs that get the right label; of the original form this is the paper's Acc",
    "f1": "F1 of the last label",
    "consistency": "pairs whose label is that of the original form, right or wrong; of reverse and "
    "signal these are the paper's C_R and C_S",
    "corrected_consistency": "consistency above that of labels drawn at random from the model's "
    "own; 0 is chance, 100 full agreement (Cohen's kappa)",
    "consistent_accuracy": "pairs that are right in both forms",
    "top_answer": "share of the label that the model gives most often",
    "top_label": "share of the label that is right most often: the accuracy of always saying it",
    "no_label": "answers that are no label at all",
}
"""What a number is the percentage of, or what it means."""

OF_FORMS, OF_ONE = (
    ("corrected_consistency", "consistent_accuracy"),
    ("f1", "top_answer", "top_label", "no_label"),
)
"""Numbers that hold a form against the original one; those that every form has for itself."""

MOVES = 60
"""Rows of a table of labels that changed; what is no label may be any text."""

EXAMPLES = 12
"""Changed answers on the page; all are in inconsistent.csv."""


@dataclass(frozen=True, slots=True)
class ShownPairs:
    """A run, of one seed or several: records, the task, metrics, and the answers that changed.

    ``warnings``: what a reader should know. ``changes``: accuracy between forms.
    """

    name: str
    records: Sequence[Mapping[str, Any]]
    task: Task
    metrics: pl.DataFrame
    changed: pl.DataFrame
    warnings: Sequence[str] = ()
    changes: pl.DataFrame | None = None

    @property
    def seeds(self) -> int:
        """How many models were asked."""
        return len(self.records)


def pair_page(
    runs: Sequence[ShownPairs],
    compared: pl.DataFrame | None,
    notes: Sequence[str] = (),
) -> Page:
    """The report; ``compared``: later runs against the first, where both were asked the same.

    ``notes``: what has no differences, and why.
    """
    sections = [_asked(runs), _headline(runs)]
    if compared is not None:
        sections.append(_differences(compared, notes))
    elif notes:
        sections.append(Section("differences", "Differences", "", [Points(notes)]))
    sections += [_forms(runs), _changes(runs), _examples(runs), _care(runs)]
    told = [
        (f"{run.name}, seed {at + 1} of {run.seeds}" if run.seeds > 1 else run.name, record)
        for run in runs
        for at, record in enumerate(run.records)
    ]
    sections.append(again(told))
    tasks = ", ".join(dict.fromkeys(run.task.name for run in runs))
    names = ", ".join(run.name for run in runs)
    return Page(
        f"{names}: the same label, in whatever order and format?",
        f"{tasks}; {', '.join(_forms_of(runs[0]))}",
        sections,
    )


def _forms_of(run: ShownPairs) -> list[str]:
    forms = run.metrics["subset"].unique(maintain_order=True).to_list()
    return [each for each in forms if each != "all"]


def _asked(runs: Sequence[ShownPairs]) -> Section:
    about = []
    for run in runs:
        one, two = run.task.indicators
        of = f"{run.name}: " if len(runs) > 1 else ""
        size = int(run.metrics.filter(pl.col("metric") == "accuracy")["n"].max())  # type: ignore[arg-type]
        about += [
            (f"{of}task", f"{run.task.name} ({run.task.kind}), {size:,} pairs, labels "
             f"{', '.join(run.task.labels)}"),
            (f"{of}original form", f"{one}: ... {two}: ..."),
            (f"{of}model", described(run.records[0])
             + (f" and {run.seeds - 1} more seeds" if run.seeds > 1 else "")),
        ]  # fmt: skip
    return Section("asked", "What was asked", "", [Facts(about)])


def _rows(run: ShownPairs, metric: str) -> list[dict[str, Any]]:
    return run.metrics.filter(pl.col("metric") == metric).to_dicts()


def _headline(runs: Sequence[ShownPairs]) -> Section:
    parts: list[Part] = []
    for run in runs:
        for group in run.metrics["group"].unique(maintain_order=True):
            rows = run.metrics.filter(pl.col("group") == group).to_dicts()
            seeds = f", means and std of {run.seeds} seeds" if run.seeds > 1 else ""
            parts.append(_form_grid(f"{run.name}, {group}{seeds}, in percent", rows))
            if run.changes is not None:
                parts += _lost(run.name, str(group), run.changes.filter(pl.col("group") == group))
    named = [name for name in MEANINGS if any(_rows(run, name) for run in runs)]
    meanings = [(_heading(name), MEANINGS[name]) for name in named]
    parts.append(Folded("What the numbers are the percentage of", [Facts(meanings)]))
    return Section("numbers", "The numbers", _in_words(runs), parts)


def _heading(metric: str) -> str:
    return COLUMNS.get(metric, metric.replace("_", " ")).strip()


def _form_grid(caption: str, rows: Sequence[Mapping[str, Any]]) -> Grid:
    """A row a form: accuracy and consistency with intervals, then what else is told of it."""
    found = {(row["metric"], row["subset"]): row for row in rows}
    forms = dict.fromkeys(row["subset"] for row in rows)
    seeds = max(row["seeds"] for row in rows)
    more = [name for name in (*OF_FORMS, *OF_ONE) if any(metric == name for metric, _ in found)]
    table = []
    for form in forms:
        cells = [Cell("original" if form == "all" else form)]
        for metric in ("accuracy", "consistency"):
            row = {} if (metric, form) == ("consistency", "all") else found.get((metric, form), {})
            cells += [share(row.get("value")), ends(row.get("low"), row.get("high"))]
            cells += [share(row.get("std"))] if seeds > 1 else []
        for metric in more:
            told = form != "all" or metric in OF_ONE
            cells.append(share(found.get((metric, form), {}).get("value") if told else None))
        table.append(cells)
    of_each = ["95 %", "std"] if seeds > 1 else ["95 %"]
    names = [_heading(name) for name in more]
    columns = ["form", "Accuracy", *of_each, "Consistency", *of_each, *names]
    return Grid(caption, columns, table)


def _lost(name: str, group: str, changes: pl.DataFrame) -> list[Part]:
    """What accuracy gains or loses against the original form, and folded between other forms."""
    columns = ("from", "to", "Accuracy", "Accuracy there", "points", "95 %", "test", "p", "p, Holm")
    parts: list[Part] = []
    if changes.is_empty():
        return parts
    of_original = pl.col("first") == changes["first"][0]
    for others in (False, True):
        chosen = changes.filter(~of_original if others else of_original)
        cells = [
            [Cell(row["first"]), Cell(row["second"]), share(row["first_accuracy"]),
             share(row["second_accuracy"]), change(row["change"]),
             change_ends(row["change_low"], row["change_high"]), Cell(row["test"]),
             chance(row["p"]), chance(row["p_holm"])]
            for row in chosen.to_dicts()
        ]  # fmt: skip
        between = "between the other forms" if others else "against the original form"
        caption = f"{name}, {group}: change of accuracy {between}, the same items"
        grid = Grid(caption, columns, cells)
        if cells:
            parts.append(Folded(grid.caption, [grid]) if others else grid)
    return parts


def _in_words(runs: Sequence[ShownPairs]) -> str:
    said = []
    for run in runs:
        values = {
            (row["metric"], row["subset"]): row["value"]
            for row in run.metrics.filter(pl.col("group") == run.task.name).to_dicts()
        }
        kept = [
            f"{values['consistency', form] * 100:.0f} % of its labels in the form {form}"
            for form in _forms_of(run)
            if not math.isnan(values.get(("consistency", form), math.nan))
        ]
        if kept:
            said.append(
                f"{run.name} is right in {values['accuracy', 'all'] * 100:.0f} % of the pairs and "
                f"keeps {' and '.join(kept[:2])}."
            )
    return " ".join(said)


def _differences(compared: pl.DataFrame, notes: Sequence[str]) -> Section:
    parts: list[Part] = [Points(notes)] if notes else []
    shown = compared.filter(pl.col("metric").is_in(list(MEANINGS)))
    for (group, first, second), rows in shown.group_by(
        ["group", "first", "second"], maintain_order=True
    ):
        seeds = int(rows["seeds"][0])
        columns = ["number", "form", str(first), str(second), "points", "95 %", "p", "p, Holm"]
        columns += ["p over seeds"] if seeds > 1 else []
        asked_first = (pl.col("metric") == "consistency") | (
            pl.col("metric").is_in(["accuracy", "f1"]) & (pl.col("subset") == "all")
        )
        for chosen, rest in ((rows.filter(asked_first), False), (rows.filter(~asked_first), True)):
            cells = [_difference(row) for row in chosen.to_dicts()]
            of = f"{group}: {second} minus {first}"
            grid = Grid(f"{of}, all other numbers" if rest else of, columns, cells)
            parts.append(Folded(grid.caption, [grid]) if rest else grid)
    intro = (
        "The same pairs, so the answers are paired. p: sign flips of items; Holm: "
        "adjusted over forms; over seeds: Welch's t. * .05, ** .01, *** .001."
    )
    return Section("differences", "Differences", intro, parts)


def _difference(row: Mapping[str, Any]) -> list[Cell]:
    return [
        Cell(PAPERS.get((row["metric"], row["subset"]), _heading(row["metric"]))),
        Cell("original" if row["subset"] == "all" and row["metric"] == "accuracy"
             else row["subset"]),
        share(row["first_value"]),
        share(row["second_value"]),
        change(row["difference"]),
        change_ends(row["low"], row["high"]),
        chance(row["p"]),
        chance(row["p_holm"]),
        *([chance(row["p_seeds"])] if row["seeds"] > 1 else []),
    ]  # fmt: skip


def _forms(runs: Sequence[ShownPairs]) -> Section:
    kept = ("consistency", "corrected_consistency")
    metrics = pl.concat(
        run.metrics.filter(pl.col("metric").is_in(kept) & (pl.col("subset") != "all")).with_columns(
            run=pl.lit(run.name)
        )
        for run in runs
    )
    caption = (
        "Labels that are kept, in percent, and the same above chance: a model that always says one "
        "label keeps it always, which is chance, and has no mark on the right. The numbers stand "
        "in the table above."
    )
    figure = Figure("forms", "Labels kept in other forms", form_figure(metrics), caption)
    return Section("forms", "Which forms move it", "", [figure])


def _changes(runs: Sequence[ShownPairs]) -> Section:
    parts: list[Part] = []
    for run in runs:
        moves = (
            run.changed.group_by(
                "group", "perturbation", "original_answer", "answer", maintain_order=True
            )
            .len()
            .sort("len", descending=True, maintain_order=True)
        )
        wrong = run.changed.group_by("group", "perturbation", maintain_order=True).agg(
            lost=(pl.col("original_answer") == pl.col("gold")).sum(),
            won=(pl.col("answer") == pl.col("gold")).sum(),
        )
        by = {(row["group"], row["perturbation"]): row for row in wrong.to_dicts()}
        rows = [
            [Cell(row["perturbation"]), Cell(row["group"]), Cell(row["original_answer"]),
             Cell(row["answer"]), count(row["len"])]
            for row in moves.head(MOVES).to_dicts()
        ]  # fmt: skip
        if not rows:
            parts.append(Text([f"{run.name}: no label changed."]))
            continue
        seeds = f", {run.seeds} seeds together" if run.seeds > 1 else ""
        columns = ("form", "task", "was", "became", "pairs")
        rest = f", the {MOVES} most common of {moves.height}" if moves.height > MOVES else ""
        parts.append(Grid(f"{run.name}{seeds}: labels that changed{rest}", columns, rows))
        said = [
            f"{run.name}, {group}, {form}: {row['lost']} that were right became wrong, "
            f"{row['won']} that were wrong became right"
            for (group, form), row in by.items()
        ]
        parts.append(Points(said))
    return Section("changes", "Which labels change", "", parts)


def _examples(runs: Sequence[ShownPairs]) -> Section:
    parts: list[Part] = []
    for run in runs:
        first = run.changed.unique("perturbation", keep="first", maintain_order=True)
        rest = run.changed.join(
            first, on=run.changed.columns, how="anti", nulls_equal=True, maintain_order="left"
        )
        rows = []
        for row in pl.concat([first, rest]).head(EXAMPLES).to_dicts():
            rows.append(
                [Cell("original"), Cell(row["original_1"]), Cell(row["original_2"]),
                 Cell(row["original_answer"]), Cell(row["gold"])]
            )  # fmt: skip
            rows.append(
                [Cell(row["perturbation"]), Cell(row["text_1"]), Cell(row["text_2"]),
                 Cell(row["answer"]), Cell(row["gold"])]
            )  # fmt: skip
        columns = ("form", "first", "second", "the model says", "right is")
        if rows:
            parts.append(Grid(f"{run.name}: the surest of both first", columns, rows, False))
        else:
            parts.append(Text([f"{run.name}: no label changed."]))
    intro = "Answers that a form changed. All are in inconsistent.csv of the run."
    return Section("examples", "Examples", intro, parts)


def _care(runs: Sequence[ShownPairs]) -> Section:
    said = [
        f"{run.name}: {note}" if len(runs) > 1 else note for run in runs for note in run.warnings
    ]
    parts: list[Part] = [Points(said)] if said else [Text(["Nothing was left out."])]
    intro = "What was left out or cut, and what a reader should know."
    return Section("care", "With care", intro, parts)
