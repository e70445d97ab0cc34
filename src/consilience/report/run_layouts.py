"""Tables of runs as files (``report --tables``): the papers' layouts, and those of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from consilience.expectations import EXPECTATION_SUBSETS
from consilience.factors import FACTORS
from consilience.metrics.registry import headline_metrics, label_of
from consilience.report.metric_tables import SUBSETS
from consilience.report.papers import Values, is_of_pararel, paper_values
from consilience.report.summary import FACT_ROWS, VIOLATIONS
from consilience.report.table import (
    Cell,
    Column,
    Table,
    Value,
    mark_best,
    without_empty_columns,
)
from consilience.report.task_tables import symbol_of
from consilience.types import SuiteWords

CORRECTED = ("corrected_consistency", "all")

PROBED: Mapping[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "extractability": (
        "What the patterns extract, and consistency where the model knows or not (Table 2)",
        "pararel-table-2",
        (("successful_patterns", "all"), ("successful_objects", "all"),
         ("unknown_consistency", "all"), ("known_consistency", "all")),
    ),
    "knowledge": (
        "Knowledge and consistency (Table 3)",
        "pararel-table-3",
        (("accuracy", "all"), ("consistency", "all"), ("consistent_accuracy", "all"), CORRECTED),
    ),
    "syntax": (
        "Consistency of pairs that differ in syntax alone, and of pairs that do not (Table 5)",
        "pararel-table-5",
        (("consistency", "diff_syntax"), ("consistency", "no_change")),
    ),
}  # fmt: skip
"""Tables of ParaRel's layout: title, the paper's table, and metric and subset of each column."""


OF_QUESTIONS: Mapping[str, tuple[str, Mapping[tuple[str, str], str]]] = {
    "questions": (
        "All questions together, in percent",
        {(metric, "all"): label for metric, label, _ in FACT_ROWS},
    ),
    "factors": (
        "Consistency of two variants that differ in one factor only, in percent",
        {("consistency", factor): factor for factor in FACTORS},
    ),
    "violations": (
        "Violated expectations by kind, in percent",
        {(VIOLATIONS, subset): subset for subset in EXPECTATION_SUBSETS},
    ),
}
"""Tables of questions: title, and the label of each column by metric and subset."""


def layouts_of(
    words: SuiteWords, runs: Mapping[str, pl.DataFrame], notes: Sequence[str] = ()
) -> dict[str, Table]:
    """The tables of runs for files, from metrics tables by run; ``notes``: below each table."""
    layouts = {"MACRO": fact_layouts, "MICRO": question_layouts, "": pair_layouts}
    return layouts[words.pool](runs, notes)


def fact_layouts(runs: Mapping[str, pl.DataFrame], notes: Sequence[str] = ()) -> dict[str, Table]:
    """Tables 2, 3 and 5 of ParaRel and one row a relation, from metrics tables by run.

    The paper's rows come first where the runs are of all of ParaRel. ``notes``: below each table.
    """
    with_paper = all(map(is_of_pararel, runs.values()))
    measured = {
        run: _values(metrics.filter(pl.col("group") == "MACRO")) for run, metrics in runs.items()
    }
    layouts = {}
    for name, (heading, table, keys) in PROBED.items():
        labels = [
            label_of(metric) if subset == "all" else SUBSETS[subset] for metric, subset in keys
        ]
        title = f"{heading}: mean ± std over relations"
        blocks = {"ParaRel paper": paper_values(table)} if with_paper else {}
        blocks |= {"measured" if with_paper else "": measured}
        layouts[name] = _layout(title, blocks, dict(zip(keys, labels, strict=True)), notes)
    layouts["relations"] = _groups_layout(runs, notes, "relation")
    return layouts


def question_layouts(
    runs: Mapping[str, pl.DataFrame], notes: Sequence[str] = ()
) -> dict[str, Table]:
    """All questions together, each factor, each kind of expectations and each group.

    ``runs``: metrics tables by run. ``notes``: below each table. A table without a number is left
    out.
    """
    measured = {
        run: _values(metrics.filter(pl.col("group") == "MICRO")) for run, metrics in runs.items()
    }
    layouts = {}
    for name, (title, keys) in OF_QUESTIONS.items():
        known = {
            key: label
            for key, label in keys.items()
            if any(key in row and row[key].number is not None for row in measured.values())
        }
        if known:
            best = name != "violations"
            layouts[name] = _layout(title, {"": measured}, known, notes, best=best)
    groups = _groups_layout(runs, notes, "group")
    return {**layouts, "groups": without_empty_columns(groups)}


def _layout(
    title: str,
    blocks: Mapping[str, Mapping[str, Values]],
    keys: Mapping[tuple[str, str], str],
    notes: Sequence[str],
    *,
    best: bool = True,
) -> Table:
    """A row a model in blocks; ``best``: with the largest number of a block in bold.

    Consistency is never best where it is uninformative: where the chance-corrected consistency is
    not defined, because all answers are the same, and in the papers' majority baselines.
    """
    columns = [Column(""), *(Column(label, "share") for label in keys.values())]
    rows: list[list[Value]] = []
    names, constant = [], set()
    for block, models in blocks.items():
        for model, values in models.items():
            if model == "majority" or _is_constant(values):
                constant.add(len(rows))
            rows.append([model, *(values.get(key) for key in keys)])
            names.append(block)
    table = Table(title, columns, rows, notes, names)
    return mark_best(table, list(keys.values()), constant, by_block=True) if best else table


def _is_constant(values: Values) -> bool:
    """Whether a model has a consistency and nowhere a chance-corrected one."""
    corrected = [cell for (metric, _), cell in values.items() if metric == CORRECTED[0]]
    return bool(corrected) and all(cell.number is None for cell in corrected)


def _groups_layout(runs: Mapping[str, pl.DataFrame], notes: Sequence[str], word: str) -> Table:
    """A row a group in a block for each run; ``word``: what a group is called."""
    metrics = headline_metrics(aliases=True)
    rows: list[list[Value]] = []
    blocks = []
    for run, table in runs.items():
        chosen = table.filter(~pl.col("group").is_in(["MACRO", "MICRO"]))
        for (group,), numbers in chosen.group_by(["group"], maintain_order=True):
            values = _values(numbers)
            rows.append([str(group), *(values.get((metric, "all")) for metric in metrics)])
            blocks.append(run)
    columns = [Column(word), *(Column(label_of(metric), "share") for metric in metrics)]
    return Table(f"Each {word}, in percent", columns, rows, notes, blocks)


def pair_layouts(runs: Mapping[str, pl.DataFrame], notes: Sequence[str] = ()) -> dict[str, Table]:
    """Table 2 of CALUM, a row a run, blocks by task, and every other form; ``notes`` likewise.

    The paper's rows of a task come first.
    """
    blocks: dict[str, dict[str, Values]] = {}
    for run, metrics in runs.items():
        for (group,), numbers in metrics.group_by(["group"], maintain_order=True):
            blocks.setdefault(str(group), {})[run] = _values(numbers)
    forms = dict.fromkeys(
        form
        for models in blocks.values()
        for values in models.values()
        for metric, form in values
        if metric == "consistency" and form != "all"
    )
    keys = {
        key: symbol_of(*key)
        for key in (("accuracy", "all"), *(("consistency", form) for form in forms))
    }
    with_papers: dict[str, Mapping[str, Values]] = {}
    for group in sorted(blocks):
        if papers := paper_values("calum-table-2", group):
            with_papers[f"{group}, CALUM paper"] = papers
        with_papers[group] = blocks[group]
    title = "Accuracy and consistency, in percent: mean ± std over seeds (Table 2)"
    return {"consistency": _layout(title, with_papers, keys, notes)}


def _values(metrics: pl.DataFrame) -> Values:
    rows = metrics.select("metric", "subset", "value", "std").iter_rows()
    return {(metric, subset): Cell(value, std) for metric, subset, value, std in rows}
