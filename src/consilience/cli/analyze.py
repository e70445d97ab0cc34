"""analyze: what the consistency of a finished run depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

import polars as pl

from consilience.analysis.examples import about, reply_table
from consilience.analysis.patterns import short_number
from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import FactorsOutput, JsonOutput, TableOutput
from consilience.cli.printing import print_json, print_tables, rows_of, without_nan
from consilience.files.write import csv_of, write_whole
from consilience.metrics.registry import headline_metrics
from consilience.report.analysis_tables import (
    abstaining_table,
    calum_tables,
    cluster_tables,
    correlations_table,
    edits_table,
    effects_tables,
    example_table,
    matrix_tables,
    question_example_table,
    size_tables,
    syntax_tables,
    violation_tables,
)
from consilience.report.table import Table
from consilience.results.analyses import (
    Analysis,
    analyze_edits,
    analyze_expectations,
    analyze_factors,
    analyze_knowledge,
    analyze_patterns,
    analyze_syntax,
    analyze_tasks,
    cluster_representations,
    find_examples,
    with_tests,
)
from consilience.workflow.analysis_options import (
    EditsOptions,
    ExamplesOptions,
    ExpectationsOptions,
    FactorsOptions,
    KnowledgeOptions,
    PatternsOptions,
    SyntaxOptions,
    TaskEffectsOptions,
    VectorOptions,
)

TITLE = "Accuracy, and consistency when reversed (C_R) and with other punctuation (C_S), in percent"


def patterns(options: PatternsOptions, output: TableOutput) -> None:
    """Print how patterns agree."""
    analysis = analyze_patterns(options)
    tables = matrix_tables(analysis.tables["pairs"], analysis.tables["patterns"])
    _present(analysis, "pairs", output, tables)


def edits(options: EditsOptions, output: TableOutput) -> None:
    """Print how edits compare."""
    analysis = analyze_edits(options)
    _present(analysis, "edits", output, _edit_tables(analysis))


def examples(options: ExamplesOptions, output: TableOutput) -> None:
    """Print examples of each kind."""
    by_kind, notes = find_examples(options)
    if output.file:
        write_whole(output.file, csv_of(reply_table(by_kind)))
    if output.as_json:
        rows = [asdict(example) for items in by_kind.values() for example in items]
        for row in rows:
            row["other_golds"] = sorted(row["other_golds"])
        print_json({"examples": without_nan(rows), "warnings": notes})
        return
    warn(notes)
    shown = [reply for items in by_kind.values() for one in items for reply in one.replies]
    is_of_questions = any(reply.prompt is not None for reply in shown)
    for kind, items in by_kind.items():
        title = about(kind)
        if is_of_questions:
            title = title.partition(" (example")[0].replace("pattern", "variant")
        table_of = question_example_table if is_of_questions else example_table
        out.print(table_of(items, title) if items else f"{title}: none")


def expectations(options: ExpectationsOptions, output: TableOutput) -> None:
    """Print how often expectations are violated, and examples."""
    analysis = analyze_expectations(options)
    tables = violation_tables(
        analysis.tables["violations"], analysis.tables["examples"], _name(analysis)
    )
    _present(analysis, "violations", output, tables)


def knowledge(options: KnowledgeOptions, output: TableOutput) -> None:
    """Print correlations of accuracy and consistency."""
    analysis = analyze_knowledge(options)
    _present(analysis, "correlations", output, _knowledge_tables(analysis))


def factors(options: FactorsOptions, output: FactorsOutput) -> None:
    """Print what each factor changes."""
    analysis = analyze_factors(options)
    if output.file:
        write_whole(output.file, csv_of(analysis.numbers))
    if output.as_json or output.format_ == "json":
        document = {name: rows_of(table) for name, table in analysis.tables.items()}
        print_json(document | {"warnings": analysis.notes})
        return
    print_tables(analysis.headlines(), output.format_)
    warn(analysis.notes)


def syntax(options: SyntaxOptions, output: TableOutput) -> None:
    """Print how a parser's edges differ from those of the suite."""
    analysis = analyze_syntax(options)
    _present(analysis, "edges", output, _syntax_tables(analysis))


def tasks(options: TaskEffectsOptions, output: TableOutput) -> None:
    """Print the numbers of tasks, and tests of tasks against tasks."""
    analysis = analyze_tasks(options)
    effects = with_tests(analysis.tables["effects"])
    tables = (*calum_tables(analysis.tables["metrics"], TITLE), *effects_tables(effects))
    _present(analysis, "effects", output, tables)


def representations(options: VectorOptions, output: JsonOutput) -> None:
    """Print what a model's vectors cluster by."""
    analysis = cluster_representations(options, Screen())
    notes = analysis.record["warnings"]
    if output.as_json:
        frames = {"clusters": analysis.clusters, "correlations": analysis.correlations}
        figure = str(analysis.figure) if analysis.figure else None
        document = {name: rows_of(frame) for name, frame in frames.items()}
        print_json({"run": analysis.record, **document, "figure": figure, "warnings": notes})
        return
    for table in cluster_tables(analysis.clusters, analysis.correlations):
        out.print(table)
    warn(notes)
    if analysis.figure:
        out.print(f"Figure: {analysis.figure}")
    out.print(f"Run: {analysis.record['path']}")


def _present(
    analysis: Analysis, written: str, output: TableOutput, tables: Iterable[Table]
) -> None:
    """Print the tables and the notes, or one JSON document; write one table to a file."""
    if output.file:
        write_whole(output.file, csv_of(analysis.tables[written]))
    if output.as_json:
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
    if "abstaining" in analysis.tables:
        yield abstaining_table(analysis.tables["abstaining"], headline_metrics())
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
