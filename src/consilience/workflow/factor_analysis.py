"""Where inconsistency comes from: the analysis of factors of runs of questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from consilience.analysis.factor_effects import CellAnswers, factor_tables, option_scores
from consilience.errors import ConsilienceError
from consilience.factors import OF_OPTIONS, FactorialDesign
from consilience.metrics.counts import Prepared, prepared_seeds
from consilience.metrics.shown_positions import position_notes
from consilience.options import Output
from consilience.report.factor_tables import FactorView, factor_table, index_table
from consilience.report.shown import Shown, rows_of
from consilience.report.table import Table
from consilience.run import Run, open_runs
from consilience.schemas import FLIPS, METRICS_SCHEMA
from consilience.suites.selection import select_relations
from consilience.types import Relation, Suite
from consilience.workflow.counting import noise_floor_of
from consilience.workflow.run_options import FactorsOptions
from consilience.workflow.suite import any_suite_of, design_of_run, suite_notes


@dataclass(frozen=True, slots=True, repr=False)
class FactorAnalysis(Shown):
    """What each factor changes in the answers of runs."""

    views: Sequence[FactorView]
    """The tables of each run; of a run with several designs those of each design."""

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The headlines."""
        factors, indices = self.headlines()
        yield from (factors, "", indices)

    def document(self) -> dict[str, Any]:
        """The tables as rows."""
        tables = {name: rows_of(table) for name, table in self.tables.items()}
        return tables | {"warnings": self.notes}

    def frame(self) -> pl.DataFrame:
        """Every number."""
        return self.numbers

    def headlines(self) -> list[Table]:
        """What each factor changes, and how sensitive the answers are, as tables."""
        of_run = f" of {self.views[0].name}" if len(self.views) == 1 else ""
        return [
            factor_table(
                self.views, f"What each factor changes in the answers{of_run}, in percent"
            ),
            index_table(self.views, f"How sensitive the answers{of_run} are to the prompt"),
        ]

    @property
    def notes(self) -> list[str]:
        """What a reader should know."""
        several = len(self.views) > 1
        return [
            f"{view.name}: {note}" if several else note
            for view in self.views
            for note in view.tables.notes
        ]

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """``consistency, components, indices, levels, noise``, each with the column ``run``."""
        return {
            name: pl.concat(
                frame.select(pl.lit(view.name).alias("run"), pl.all()) for view, frame in frames
            )
            for name, frames in {
                "consistency": [(view, view.tables.consistency) for view in self.views],
                "components": [(view, view.tables.components) for view in self.views],
                "indices": [(view, view.tables.indices) for view in self.views],
                "levels": [(view, view.tables.levels) for view in self.views],
                "noise": [
                    (view, view.noise.select("subset", "value", "n", "n_excluded"))
                    for view in self.views
                ],
            }.items()
        }

    @property
    def numbers(self) -> pl.DataFrame:
        """Every number of ``tables`` in one table: ``run, number, factor, value, low, high, ...``.

        ``number`` is a metric, an index, ``flips`` (of the noise floor), or an outcome with the
        kind of its part: ``answer: main``.
        """
        tables = self.tables
        pairs = tables["consistency"]
        counts = ("n", "n_excluded")
        part = pl.format("{}: {}", "outcome", "effect")
        frames = [
            pairs.select(
                "run", "factor", "value", "low", "high", *counts, number=pl.lit("consistency")
            ),
            pairs.select(
                "run", "factor", *counts, value="chance", number=pl.lit("chance_consistency")
            ),
            pairs.select(
                "run",
                "factor",
                *counts,
                value="corrected",
                low="corrected_low",
                high="corrected_high",
                number=pl.lit("corrected_consistency"),
            ),
            tables["components"].rename({"factors": "factor"}).with_columns(number=part),
            tables["indices"].rename({"index": "number"}),
            tables["levels"].with_columns(
                number=pl.lit("accuracy"), factor=pl.format("{}={}", "factor", "level")
            ),
            tables["noise"].rename({"subset": "factor"}).with_columns(number=pl.lit("flips")),
        ]
        columns = ("run", "number", "factor", "value", "low", "high")
        shares = ("share", "share_low", "share_high")
        return pl.concat(frames, how="diagonal").select(*columns, *shares, *counts)


def analyze_factors(options: FactorsOptions) -> FactorAnalysis:
    """Consistency by factor, variance components and sensitivity indices of each run."""
    views: list[FactorView] = []
    for run in open_runs(options.runs):
        first, *others = factor_views(run, options.groups, options.seed)
        answers = pl.concat(run.tables, how="diagonal")
        if options.groups is not None:
            answers = answers.filter(pl.col("group").is_in(options.groups))
        changes = suite_notes(run, any_suite_of(run, None, None, None)[0])
        notes = [*changes, *position_notes(answers), *first.tables.notes]
        tables = replace(first.tables, notes=notes)
        views += [replace(first, tables=tables), *others]
    return FactorAnalysis(views)


def factor_views(run: Run, groups: Sequence[str] | None = None, seed: int = 0) -> list[FactorView]:
    """What is shown of the factors of a run of questions; a run of anything else raises.

    Groups with the same factors are counted together: open questions have no options that vary.
    """
    _refuse_without_factors(run)
    suite, _ = any_suite_of(run, None, None, None)
    if groups is not None:
        suite = select_relations(suite, groups)
    designs: dict[FactorialDesign, list[str]] = {}
    for relation in suite.relations:
        designs.setdefault(_design_of(run, relation), []).append(relation.id)
    noise = noise_floor_of(run.path)
    if noise is None:
        noise = pl.DataFrame(schema=METRICS_SCHEMA)
    noise = noise.filter(metric=FLIPS)
    views = []
    for design, names in designs.items():
        seeds = _answers_of(run, select_relations(suite, names), design)
        label = run.label if len(designs) == 1 else f"{run.label}, {', '.join(names)}"
        tables = factor_tables(seeds, design, seed)
        views.append(FactorView(label, tables, noise))
    return views


def _design_of(run: Run, group: Relation) -> FactorialDesign:
    """The variants that the questions of a group were asked in."""
    whole = design_of_run(run)
    return whole if whole.names == group.design.variants else whole.without(OF_OPTIONS)


def _answers_of(run: Run, suite: Suite, design: FactorialDesign) -> list[CellAnswers]:
    """The answers of each seed to the groups of a suite, in the cells of their design."""
    is_chosen = pl.col("group").is_in([relation.id for relation in suite.relations])
    tables = [table.filter(is_chosen) for table in run.tables]
    rule = str(run.settings.get("option_score", "label"))
    return [
        _in_cells(prepared, table, design, rule)
        for prepared, table in zip(prepared_seeds(tables, suite), tables, strict=True)
    ]


def _in_cells(
    prepared: Prepared, answers: pl.DataFrame, design: FactorialDesign, rule: str
) -> CellAnswers:
    grids = {
        relation.id: prepared.views(relation, rows, "strict")["pairs"]
        for relation, rows in prepared.relations
    }
    scores = {
        group: option_scores(answers.filter(pl.col("group") == group), len(design.cells), rule)
        for group in grids
    }
    known = {group: of_group for group, of_group in scores.items() if of_group is not None}
    return CellAnswers(grids, known if len(known) == len(grids) else None)


def _refuse_without_factors(run: Run) -> None:
    """Raise for anything but a run of questions, with the command that shows what it varies."""
    if run.is_of_questions:
        return
    if run.is_of_pairs:
        problem = "a run of sentence pairs, whose variants differ in one factor: the form"
        todo = "`consilience report` shows what each form changes."
    elif run.settings:
        problem = "a run of facts, whose variants differ in one factor: the pattern"
        todo = (
            "`consilience analyze patterns` and `consilience analyze edits` show what it changes."
        )
    else:
        problem = "not the folder of a run, which says what its variants differ in"
        todo = "Name the folder of a run of `consilience probe`."
    raise ConsilienceError(
        problem, expected="a run of questions in several variants", where=str(run.path), todo=todo
    )
