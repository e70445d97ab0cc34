"""The runs of a gate: what they answered, what they have in common, and their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import polars as pl

from consilience.choices import Protocol
from consilience.errors import ConsilienceError
from consilience.metrics.counts import Prepared, bounds_of, refuse_other_questions
from consilience.metrics.differences import compare
from consilience.metrics.intervals import difference_bounds
from consilience.metrics.margins import Precise
from consilience.metrics.measure import measure
from consilience.report.shown import record_of
from consilience.run import Run, open_runs, split_label
from consilience.types import Suite
from consilience.workflow.common_items import common_answers
from consilience.workflow.comparing import refuse_mixed, refuse_other_variants, settings_notes
from consilience.workflow.run_options import GateOptions
from consilience.workflow.suite import any_suite_of, suite_notes

Tables = Mapping[str, Sequence[Prepared]]
"""The answers of runs by label, of each seed."""


@dataclass(frozen=True, slots=True)
class GateRuns:
    """The runs of a gate with their answers."""

    runs: Sequence[Run]
    """The run, or several of the same model on the same questions."""
    baseline: Run | None
    """The run that they are compared with."""
    suite: Suite
    """The questions."""
    protocol: Protocol
    """How the answers are counted."""
    whole: Tables
    """The answers of the runs."""
    common: Tables
    """Those to items that the baseline has too, with those of the baseline; empty without one."""
    seed: int
    """The seed of the bootstrap."""
    notes: Sequence[str]
    """What a reader should know."""

    @property
    def labels(self) -> list[str]:
        """What the runs are called."""
        return [run.label for run in self.runs]

    def record(self) -> dict[str, Any]:
        """What was read, for a document."""
        return record_of(
            runs=[str(run.path) for run in self.runs],
            baseline=str(self.baseline.path) if self.baseline else None,
            suite=self.suite.name,
            protocol=self.protocol,
        )

    def numbers(self, labels: Sequence[str]) -> pl.DataFrame:
        """The numbers of these runs, averaged (``METRICS_SCHEMA`` and ``PRECISION_SCHEMA``)."""
        tables = [table for label in labels for table in self.whole[label]]
        return measure(tables, self.suite, self.protocol, self.seed, precision=True)

    def differences(self, labels: Sequence[str]) -> pl.DataFrame:
        """The same minus the baseline (``COMPARISON_SCHEMA`` and ``PRECISION_SCHEMA``)."""
        assert self.baseline is not None
        first = self.common[self.baseline.label]
        second = [table for label in labels for table in self.common[label]]
        size = max(len(first), len(second))
        if size % len(first) or size % len(second):
            raise ConsilienceError(
                f"{len(second)} runs or seeds against {len(first)} of the baseline",
                expected="one run of the baseline, or as many",
            )
        both = [[*islice(cycle(tables), size)] for tables in (first, second)]
        models = {self.baseline.label: both[0], " + ".join(labels): both[1]}
        return compare(models, self.suite, self.protocol, self.seed, precision=True)


def is_its_own_baseline(options: GateOptions) -> bool:
    """Whether one of the runs is the baseline, as when rules are first tried on the baseline."""
    *runs, baseline = [
        Path(split_label(spec)[1]).resolve() for spec in (*options.runs, options.baseline or "")
    ]
    return bool(options.baseline) and baseline in runs


def open_gate_runs(options: GateOptions) -> GateRuns:
    """Open the runs and the baseline; runs of other models or other questions raise."""
    specs = [*options.runs, *([options.baseline] if options.baseline else [])]
    opened = open_runs(specs)
    runs, baseline = opened[: len(options.runs)], next(iter(opened[len(options.runs) :]), None)
    refuse_mixed(opened)
    refuse_other_variants(opened)
    _refuse_other_models(runs)
    for part in (part for run in opened for part in run.seeds):
        if part.record and not part.record.get("finished"):
            raise ConsilienceError(
                "the run is not finished",
                where=str(part.path),
                todo="Rerun the command of the run to resume it.",
            )
    suite, protocol = any_suite_of(runs[0], options.suite, options.protocol, options.data_dir)
    notes = [note for run in opened for note in suite_notes(run, suite)]
    whole = {run.label: [Prepared(table, suite) for table in run.tables] for run in runs}
    first, *others = [(label, table) for label, tables in whole.items() for table in tables]
    for other in others:
        refuse_other_questions(first, other)
    common: Tables = {}
    if baseline is not None:
        common, more = common_answers([*runs, baseline], suite)
        notes += [*settings_notes([baseline, *runs]), *more]
    return GateRuns(runs, baseline, suite, protocol, whole, common, options.seed, notes)


def precise(row: Mapping[str, object], *, is_relative: bool) -> Precise:
    """A row of the numbers or of the differences with what its interval is made of."""
    bounds = bounds_of((str(row["metric"]), str(row["subset"])))
    return Precise(
        row["difference" if is_relative else "value"],  # type: ignore[arg-type]
        difference_bounds(bounds) if is_relative else bounds,
        bounds[1] - bounds[0],
        row["error"], row["clusters"], row["units"], row["within_error"],  # type: ignore[arg-type]
        is_relative, row["skewness"],  # type: ignore[arg-type]
    )  # fmt: skip


def _refuse_other_models(runs: Sequence[Run]) -> None:
    """Raise for several runs that are not of one model."""
    models = {run.label: run.settings.get("model", {}).get("model") for run in runs}
    if len({model for model in models.values() if model}) > 1:
        raise ConsilienceError(
            "runs of different models: "
            + ", ".join(f"{label} of {model}" for label, model in models.items()),
            expected="repeated runs of one model",
            todo="Gate each run alone, or name the earlier one with --baseline RUN.",
        )
