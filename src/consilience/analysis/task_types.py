"""Consistency by kind of task and size of the training set (CALUM, Section 5.1.1)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from consilience.core.errors import SMALL_TASKS, ConsilienceError, did_you_mean
from consilience.core.factors import WHOLE
from consilience.core.items import TaskKind
from consilience.files.read import Problems, read_rows
from consilience.files.rows import Column, Row, line, raise_all, read_table
from consilience.metrics.statistics import LEVEL, NAN, holm
from consilience.suites.pairs import PERTURBATIONS, TASKS


@dataclass(frozen=True, slots=True)
class TTest:
    """The difference of two means, first minus second."""

    difference: float
    low: float
    high: float
    t: float
    freedom: float
    p: float  # Two-sided


Test = Literal["Student", "Welch", "paired"]


def t_test(first: Sequence[float], second: Sequence[float], test: Test) -> TTest:
    """The t-test of two groups of values, without NaN.

    Student: of the same variance, which is pooled. Welch: variances may differ, as of groups of
    tasks (CALUM, Section 5.1.1, which does not say which t-test it uses). paired: of paired values,
    such as two models on the same tasks. NaN but for the difference, with fewer than two values on
    a side or without variation.
    """
    from scipy import stats

    if not first or not second:
        return TTest(*[NAN] * 6)
    differences = np.subtract(first, second) if test == "paired" else np.array([])
    groups = [differences] if test == "paired" else [first, second]
    difference = float(np.mean(first) - np.mean(second))
    if min(len(first), len(second)) < 2 or max(np.ptp(group) for group in groups) < 1e-12:
        return TTest(difference, *[NAN] * 5)
    with warnings.catch_warnings():  # beside a constant group the other alone says how sure
        warnings.simplefilter("ignore", RuntimeWarning)
        result: Any
        if test == "paired":
            difference, result = float(np.mean(differences)), stats.ttest_rel(first, second)
        else:
            result = stats.ttest_ind(first, second, equal_var=test == "Student")
        interval = result.confidence_interval(LEVEL)
    numbers = interval.low, interval.high, result.statistic, result.df, result.pvalue
    return TTest(difference, *map(float, numbers))


KEYS = ("model", "task", "metric", "kind", "level")

RUNS_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(KEYS, pl.String),
    **dict.fromkeys(("value", "std"), pl.Float64),
}
"""One row a number: a metric of a model on a task, of the ``kind`` whole or form.

Values are fractions: the means over the runs of the model, with their standard deviation ``std``.
Unknown numbers are NaN.
"""

TESTED = ("difference", "low", "high", "t", "freedom", "p")

EFFECTS_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("metric", "kind", "level", "first", "second", "test"), pl.String),
    **dict.fromkeys(("first_value", "second_value", *TESTED, "p_holm"), pl.Float64),
    **dict.fromkeys(("first_n", "second_n"), pl.Int64),
}
"""One row a t-test: means of two groups of tasks, ``first`` minus ``second``, 95 % interval.

``p`` is two-sided; ``p_holm`` is adjusted over the rows of the same ``test``.
"""


def number(value: object) -> float | None:
    """A number; None of an empty cell."""
    try:
        return None if (found := line(value)) is None else float(found)
    except ValueError as error:
        raise ConsilienceError(f"'{found}'", expected="a number") from error


COLUMNS = (
    *(Column(name, line) for name in ("model", "task", "metric", "kind")),
    Column("level", line, ""), Column("value", number, NAN),
    Column("std", number, NAN, is_needed=False),
)  # fmt: skip
"""The columns of a table that somebody typed."""

TESTS: tuple[Test, ...] = get_args(Test)
KINDS: tuple[TaskKind, TaskKind] = ("STS", "NLI")

ORDER = (
    ("accuracy", *WHOLE), ("consistency", "form", "reverse"), ("consistency", "form", "signal"),
)  # fmt: skip
"""What the paper measures; other perturbations come after."""


def read_runs(paths: Sequence[Path], names: Sequence[str]) -> pl.DataFrame:
    """The numbers of several models on several tasks (``RUNS_SCHEMA``).

    Each path is the folder of a run of perturbed pairs, its ``metrics.csv``, or a CSV table with
    ``model, task, metric, kind, level, value`` and perhaps ``std``. ``names``: the model of each
    run; runs of one model, such as its seeds, have the same name. Tables name their models
    themselves. An empty cell is no data.
    """
    problems: Problems = []
    rows = list[Row]()
    for path, name in zip(paths, names, strict=True):
        file = path / "metrics.csv" if path.is_dir() else path
        if not file.is_file():
            expected = "the folder of a finished run, or a table as CSV"
            todo = "Check the path, or rerun the command of an interrupted run."
            raise ConsilienceError("no such file", expected=expected, where=str(file), todo=todo)
        cells = list(read_rows(file, problems))
        if not cells:
            expected = "a table with a row a number"
            raise ConsilienceError("no rows", expected=expected, where=str(file))
        if "group" in cells[0][1]:  # the metrics of a run, of which rows over tasks are left out
            if not {row.get("level") for _, row in cells} & {*PERTURBATIONS}:
                expected = "the metrics of a run that asked sentence pairs and perturbed ones"
                found = "no number of perturbed pairs"
                raise ConsilienceError(found, expected=expected, where=str(file))
            cells = [
                (where, {"model": name, **row, "task": row["group"]})
                for where, row in cells
                if row.get("over") == "group" and row.get("kind") in ("whole", "form")
                and not str(row["group"]).startswith("annotator-")
            ]  # fmt: skip
        rows += read_table(cells, COLUMNS, problems, str(file))
    for row in rows:
        # Values that are corrected for chance are negative where agreement is worse than that.
        is_negative = row["value"] < 0 and row["metric"] in ("accuracy", "consistency")
        if row["value"] > 1 or is_negative:
            todo = "Give fractions: 0.872 for 87.2 %."
            found, expected = f"the value {row['value']:g}", "a fraction from 0 to 1"
            row.report(found, "value", expected=expected, todo=todo)
    raise_all(problems)
    value, is_one = pl.col("value").fill_nan(None), pl.len() == 1
    std = pl.when(is_one).then(pl.col("std").first()).otherwise(value.std())
    table = pl.DataFrame([{name: row[name] for name in RUNS_SCHEMA} for row in rows], RUNS_SCHEMA)
    table = table.group_by(KEYS, maintain_order=True).agg(value.mean(), std=std)
    return table.with_columns(pl.col(pl.Float64).fill_null(NAN))


def task_effects(rows: pl.DataFrame, small: Sequence[str] = SMALL_TASKS) -> pl.DataFrame:
    """Tests of tasks against tasks (``EFFECTS_SCHEMA``): STS against NLI, small against others.

    ``rows``: ``read_runs``; a task that is not of ``TASKS`` is in the second comparison only.
    ``small``: tasks with few training examples.

    The paper does not say which t-test it uses, so accuracy, and consistency under each
    perturbation, get three. ``Student`` (pooled variance) and ``Welch`` treat all values of models
    on tasks as independent. ``paired`` is over models that have both kinds of tasks: a model's mean
    over the first minus its mean over the second. Values of one model are not independent, so use
    ``paired``. All three are about other models on the same tasks.

    ``first_n, second_n``: values, or models. NaN with fewer than two on a side, or without
    variation. A side without tasks is not compared.
    """
    kinds = {name: task.kind for name, task in TASKS.items()}
    present = rows["task"].unique(maintain_order=True).to_list()
    for name in small:
        if name not in {*kinds, *present}:
            raise ConsilienceError(
                f"no task '{name}'",
                todo=did_you_mean(name, list(dict.fromkeys([*present, *kinds]))),
            )
    few = [task for task in present if task in small]
    # What a model wrote freely for a task is no task of its own.
    others = [task for task in present if task not in small and not task.endswith("-generated")]
    contrasts = (
        ("STS", "NLI", *([task for task in present if kinds.get(task) == kind] for kind in KINDS)),
        (", ".join(few), "others", few, others),
    )
    effects: list[dict[str, Any]] = []
    for part, values in _by_metric(rows):
        for first, second, *sides in contrasts:
            one, other = (values.filter(pl.col("task").is_in(side)) for side in sides)
            if one.height and other.height:
                head = {**part, "first": first, "second": second}
                effects += ({**head, **row} for row in _tests(one, other))
    for test in TESTS:
        family = [row for row in effects if row["test"] == test]
        for row, p in zip(family, holm([row["p"] for row in family]), strict=True):
            row["p_holm"] = p
    return pl.DataFrame(effects, schema=EFFECTS_SCHEMA)


def _by_metric(rows: pl.DataFrame) -> Iterator[tuple[dict[str, str], pl.DataFrame]]:
    """Accuracy, then consistency under each perturbation: the rows that have a value."""
    of_whole = pl.when(pl.col("kind") == "whole").then(pl.lit("accuracy"))
    is_shown = pl.col("metric") == of_whole.otherwise(pl.lit("consistency"))
    known = rows.filter(pl.col("value").is_not_nan(), is_shown)
    parts = known.select("metric", "kind", "level").unique(maintain_order=True).rows()
    for metric, kind, level in dict.fromkeys([*ORDER, *parts]):
        part = {"metric": metric, "kind": kind, "level": level}
        if (values := known.filter(**part)).height:
            yield part, values


def _tests(first: pl.DataFrame, second: pl.DataFrame) -> Iterator[dict[str, Any]]:
    ours, theirs = (side.group_by("model").agg(pl.mean("value")) for side in (first, second))
    both = ours.join(theirs, on="model").sort("model")
    for name in TESTS:
        one, other = first["value"], second["value"]
        if name == "paired":
            one, other = both["value"], both["value_right"]
        yield {
            "test": name,
            "first_value": one.mean(),
            "second_value": other.mean(),
            **asdict(t_test(one.to_list(), other.to_list(), name)),
            "first_n": len(one),
            "second_n": len(other),
        }


def gains(rows: pl.DataFrame, before: Sequence[str], after: Sequence[str]) -> pl.DataFrame:
    """The effect of another training of the same models, over models and tasks (Table 6).

    ``before, after``: the models' names, in pairs. One row a number: ``metric, kind, level,
    difference, low, high, p, relative, n``. ``difference``: mean of after minus before, with the
    interval and p of the paired t-test over the ``n`` pairs, which treats the tasks of a model as
    independent. ``relative``: mean of after / before - 1, the paper's 13 %; NaN where a value
    before is 0.
    """
    known = rows["model"].unique(maintain_order=True).to_list()
    for name in (*before, *after):
        if name not in known:
            raise ConsilienceError(f"no model '{name}'", todo=did_you_mean(name, known))
    pairs = pl.DataFrame({"model": list(before), "later": list(after)})
    rows_of_numbers = []
    for part, values in _by_metric(rows):
        numbers = values.select("model", "task", "value")
        both = pairs.join(numbers, on="model").join(
            numbers, left_on=["later", "task"], right_on=["model", "task"], suffix="_after"
        )
        if both.is_empty():
            continue
        old, new = both["value"].to_numpy(), both["value_after"].to_numpy()
        test = asdict(t_test(new.tolist(), old.tolist(), "paired"))
        relative = float(np.mean(new / old - 1)) if old.all() else NAN
        change = {name: test[name] for name in ("difference", "low", "high", "p")}
        rows_of_numbers.append({**part, **change, "relative": relative, "n": len(old)})
    return pl.DataFrame(rows_of_numbers)
