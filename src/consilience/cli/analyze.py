"""analyze: what the consistency of a finished run depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import polars as pl

from consilience.analysis.examples import about, reply_table
from consilience.analysis.knowledge import short_number
from consilience.cli.command import command_of
from consilience.cli.console import Screen, out, warn
from consilience.cli.shared import AsJson, CsvFile, print_json, rows_of, without_nan
from consilience.files import csv_of, write_whole
from consilience.report.analysis_tables import (
    cluster_tables,
    correlations_table,
    edits_table,
    example_table,
    matrix_tables,
    size_tables,
    syntax_tables,
)
from consilience.report.table import Table
from consilience.report.task_tables import calum_tables, effects_tables
from consilience.workflow.analyses import (
    Analysis,
    analyze_edits,
    analyze_knowledge,
    analyze_patterns,
    analyze_syntax,
    find_examples,
)
from consilience.workflow.analysis_options import (
    EditsOptions,
    ExamplesOptions,
    KnowledgeOptions,
    PatternsOptions,
    SyntaxOptions,
    TaskEffectsOptions,
    VectorOptions,
)
from consilience.workflow.task_effects import analyze_tasks, with_tests
from consilience.workflow.vector_clusters import cluster_representations

TITLE = "Accuracy, and consistency when reversed (C_R) and with other punctuation (C_S), in percent"


@command_of(PatternsOptions)
def patterns(options: PatternsOptions, file: CsvFile = None, as_json: AsJson = False) -> None:
    """Compare patterns: how often each two agree, and which agree with no other.

    A pattern is an outlier if its highest agreement with another is below the mean agreement among
    the others. "points": its accuracy minus that of the base pattern, on the same facts. --csv gets
    every pair of patterns: agreement and change of accuracy, with intervals and tests.
    """
    analysis = analyze_patterns(options)
    tables = matrix_tables(analysis.tables["pairs"], analysis.tables["patterns"])
    _present(analysis, "pairs", file, as_json, tables)


@command_of(EditsOptions)
def edits(options: EditsOptions, file: CsvFile = None, as_json: AsJson = False) -> None:
    """Compare edits: pairs of patterns that differ in one way with the other pairs.

    Edits are those of the suite's edges. With --derive they are those of a dependency parser, with
    the paraphrase types of the paper's Appendix B. Means over relations that have both kinds of
    pairs, tested over these.
    """
    analysis = analyze_edits(options)
    _present(analysis, "edits", file, as_json, _edit_tables(analysis))


@command_of(ExamplesOptions)
def examples(options: ExamplesOptions, file: CsvFile = None, as_json: AsJson = False) -> None:
    """Show examples: facts with right and wrong answers, with one wrong answer, and so on.

    --csv gets a row for each reply of each item.
    """
    by_kind, notes = find_examples(options)
    if file:
        write_whole(file, csv_of(reply_table(by_kind)))
    if as_json:
        rows = [asdict(example) for items in by_kind.values() for example in items]
        for row in rows:
            row["other_golds"] = sorted(row["other_golds"])
        print_json({"examples": without_nan(rows), "warnings": notes})
        return
    warn(notes)
    for kind, items in by_kind.items():
        title = about(kind) if items else f"{about(kind)}: none"
        out.print(example_table(items, title))


@command_of(KnowledgeOptions)
def knowledge(options: KnowledgeOptions, file: CsvFile = None, as_json: AsJson = False) -> None:
    """Correlate accuracy and consistency over relations (ParaRel paper, Section 6.2).

    With --sizes also over runs: the effect of more training data (Table 4). --csv gets the
    correlations over relations.
    """
    analysis = analyze_knowledge(options)
    _present(analysis, "correlations", file, as_json, _knowledge_tables(analysis))


@command_of(SyntaxOptions)
def syntax(options: SyntaxOptions, file: CsvFile = None, as_json: AsJson = False) -> None:
    """Compare how patterns differ by a parser with the suite's own edges.

    Directed edges: how many are the same, Cohen's kappa, and what only one of them has; then how
    many pairs with the base pattern are of each paraphrase type (Appendix B). Needs the extra
    `syntax`.
    """
    analysis = analyze_syntax(options)
    _present(analysis, "edges", file, as_json, _syntax_tables(analysis))


@command_of(TaskEffectsOptions)
def tasks(options: TaskEffectsOptions, file: CsvFile = None, as_json: AsJson = False) -> None:
    """Compare tasks of sentence pairs: which kinds are more consistent (CALUM paper, 5.1).

    Runs of one model on several tasks belong together: roberta=runs/a roberta=runs/b.
    """
    analysis = analyze_tasks(options)
    effects = with_tests(analysis.tables["effects"])
    tables = (*calum_tables(analysis.tables["metrics"], TITLE), *effects_tables(effects))
    _present(analysis, "effects", file, as_json, tables)


@command_of(VectorOptions)
def representations(options: VectorOptions, as_json: AsJson = False) -> None:
    """Cluster a model's vectors by pattern, subject and object (ParaRel paper, Section 7.2).

    Paper, Section 7.2. The run's folder gets the answers, vectors/RELATION.npy with an index,
    clusters.csv and the figure. Rerun the same command to resume an interrupted run.
    """
    analysis = cluster_representations(options, Screen())
    notes = analysis.record["warnings"]
    if as_json:
        frames = {"clusters": analysis.clusters, "correlations": analysis.correlations}
        figure = str(analysis.figure) if analysis.figure else None
        document = {name: rows_of(frame) for name, frame in frames.items()}
        print_json({"run": analysis.record, **document, "figure": figure, "warnings": notes})
        return
    for table in cluster_tables(analysis.clusters, analysis.correlations):
        out.print(table)
    warn(notes)
    if analysis.figure:
        out.print(f"Figure: {analysis.figure}", soft_wrap=True)
    out.print(f"Run: {analysis.record['path']}", soft_wrap=True)


def _present(
    analysis: Analysis, written: str, file: Path | None, as_json: bool, tables: Iterable[Table]
) -> None:
    """Print the tables and the notes, or one JSON document; write one table to a file."""
    if file:
        write_whole(file, csv_of(analysis.tables[written]))
    if as_json:
        document = {name: rows_of(table) for name, table in analysis.tables.items()}
        print_json(document | {"warnings": analysis.notes})
        return
    for table in tables:
        out.print(table)
    warn(analysis.notes)


def _edit_tables(analysis: Analysis) -> Iterator[Table]:
    title = f"{_name(analysis)}, protocol {analysis.protocol}: edits, in percent"
    yield edits_table(analysis.tables["edits"], title)


def _knowledge_tables(analysis: Analysis) -> Iterator[Table]:
    yield correlations_table(analysis.tables["correlations"])
    if "sizes" not in analysis.tables:
        return
    sizes = analysis.tables["sizes"].with_columns(
        pl.col("size").map_elements(short_number, pl.String)
    )
    correlations = analysis.tables["size_correlations"]
    yield from size_tables(sizes, correlations, correlations["metric"].to_list())


def _syntax_tables(analysis: Analysis) -> Iterator[Table]:
    relations = analysis.suite.relations if analysis.suite else ()
    overall = analysis.tables["edges"].filter(pl.col("group") == "MICRO")
    pairs = sum(len(relation.patterns) - 1 for relation in relations)
    yield from syntax_tables(overall, analysis.tables["types"], _name(analysis), pairs)


def _name(analysis: Analysis) -> str:
    return analysis.suite.name if analysis.suite else ""
