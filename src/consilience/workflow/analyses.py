"""Analyses of a finished run: patterns, edits, examples, accuracy, and how patterns differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from consilience import suites
from consilience.analysis.examples import (
    KINDS,
    OF_FACTS,
    Example,
    about,
    examples,
    reply_table,
    with_prompts,
)
from consilience.analysis.expectation_tables import violated_examples, violation_table
from consilience.analysis.knowledge import (
    abstaining_table,
    correlation_table,
    number_of,
    short_number,
    size_correlations,
    size_table,
)
from consilience.analysis.patterns import (
    Kinds,
    annotated_kinds,
    edit_table,
    pair_table,
    pattern_table,
    with_changes,
)
from consilience.choices import Protocol
from consilience.errors import ConsilienceError
from consilience.metrics.counts import prepared_seeds
from consilience.metrics.expected import unchecked_note
from consilience.metrics.grid import MANY_VARIANTS
from consilience.metrics.measure import measure
from consilience.metrics.registry import headline_metrics
from consilience.options import Output
from consilience.report import analysis_tables
from consilience.report.analysis_tables import (
    correlations_table,
    edits_table,
    example_table,
    matrix_tables,
    size_tables,
    syntax_tables,
)
from consilience.report.question_examples import question_example_table
from consilience.report.shown import Shown, rows_of
from consilience.report.table import Table
from consilience.report.violation_tables import violation_tables
from consilience.run import Run, open_runs
from consilience.suites.selection import select_relations
from consilience.types import Suite
from consilience.workflow.run_options import (
    EditsOptions,
    ExamplesOptions,
    ExpectationsOptions,
    KnowledgeOptions,
    PatternsOptions,
    SyntaxOptions,
)
from consilience.workflow.suite import any_suite_of, suite_notes, suite_of


@dataclass(frozen=True, slots=True, repr=False)
class Analysis(Shown):
    """The tables of an analysis."""

    tables: Mapping[str, pl.DataFrame]
    """By their names in a JSON document."""
    notes: Sequence[str] = ()
    """What a reader should know."""
    suite: Suite | None = None
    """The suite, where there is one."""
    protocol: Protocol | None = None
    """How answers were counted, where they were."""
    main: str = ""
    """The table of ``--csv``."""
    layout: Callable[[Analysis], Iterable[Table]] = field(default=lambda _: (), repr=False)
    """What is printed of the tables."""

    def printed(self, output: Output) -> Iterable[Table | str]:
        """The tables as their layout has them."""
        return self.layout(self)

    def document(self) -> dict[str, Any]:
        """The tables as rows."""
        tables = {name: rows_of(table) for name, table in self.tables.items()}
        return tables | {"warnings": self.notes}

    def frame(self) -> pl.DataFrame:
        """The main table."""
        return self.tables[self.main]

    @property
    def name(self) -> str:
        """The name of the suite."""
        return self.suite.name if self.suite else ""

    def __repr__(self) -> str:
        sizes = [f"{name} {table.shape}" for name, table in self.tables.items()]
        return f"Analysis({', '.join(sizes)}; rows and columns)"


def _open(options: PatternsOptions | EditsOptions) -> tuple[Run, Suite, Protocol, list[str]]:
    """The run, the suite and the protocol that options name, and notes on them."""
    run = Run.open(options.run)
    suite, protocol = suite_of(run, options.suite, options.protocol, options.data_dir)
    notes = suite_notes(run, suite)
    if len(run.seeds) > 1:
        notes.append(f"means over {len(run.seeds)} seeds, without intervals and tests")
    return run, suite, protocol, notes


def analyze_patterns(options: PatternsOptions) -> Analysis:
    """How often each two patterns agree, and what each pattern gives: ``patterns, pairs``."""
    run, suite, protocol, notes = _open(options)
    answers = run.tables
    if options.groups is not None:
        suite = select_relations(suite, options.groups)
        is_chosen = pl.col("group").is_in([relation.id for relation in suite.relations])
        answers = [table.filter(is_chosen) for table in answers]
    pairs = pair_table(answers, suite, protocol, options.seed)
    patterns = with_changes(pattern_table(answers, suite, protocol), pairs)
    notes += [
        f"{relation.id}: more than {MANY_VARIANTS} patterns, so the only pairs in the table are "
        "those with the base pattern"
        for relation in suite.relations
        if len(relation.patterns) > MANY_VARIANTS
    ]
    tables = {"patterns": patterns, "pairs": pairs}
    return Analysis(
        tables, notes, suite, protocol, "pairs", lambda _: matrix_tables(pairs, patterns)
    )


def analyze_edits(options: EditsOptions) -> Analysis:
    """Consistency of the pairs that differ in a way, against the other pairs: ``edits``."""
    run, suite, protocol, notes = _open(options)
    kinds: Kinds = annotated_kinds(suite)
    if options.derive:
        from consilience.analysis.paraphrases import derived_kinds
        from consilience.analysis.syntax import load_parser

        kinds = derived_kinds(suite, load_parser())
    table = edit_table(run.tables, suite, protocol, kinds, options.seed)
    if table.is_empty():
        raise ConsilienceError(
            f"the suite '{suite.name}' does not say how its patterns differ",
            todo="Derive it: --derive.",
        )
    title = f"{suite.name}, protocol {protocol}: edits, in percent"
    shown = [edits_table(table, title)]
    return Analysis({"edits": table}, notes, suite, protocol, "edits", lambda _: shown)


class FoundExamples(Shown):
    """Examples of each kind."""

    def __init__(self, by_kind: Mapping[str, Sequence[Example]], notes: Sequence[str]) -> None:
        self.by_kind, self.notes = by_kind, notes

    def printed(self, output: Output) -> Iterator[Table | str]:
        """A table for each kind."""
        shown = [reply for items in self.by_kind.values() for one in items for reply in one.replies]
        is_of_questions = any(reply.prompt is not None for reply in shown)
        for kind, items in self.by_kind.items():
            title = about(kind)
            if is_of_questions:
                title = title.partition(" (example")[0].replace("pattern", "variant")
            table_of = question_example_table if is_of_questions else example_table
            yield table_of(items, title) if items else f"{title}: none"

    def document(self) -> dict[str, Any]:
        """The examples as rows."""
        rows = [asdict(example) for items in self.by_kind.values() for example in items]
        for row in rows:
            row["other_golds"] = sorted(row["other_golds"])
        return {"examples": rows, "warnings": self.notes}

    def frame(self) -> pl.DataFrame:
        """A row for each reply to each item."""
        return reply_table(self.by_kind)


def find_examples(options: ExamplesOptions) -> tuple[dict[str, list[Example]], list[str]]:
    """Examples of each kind, of the first seed, and what a reader should know."""
    run = Run.open(options.run)
    of_questions = run.is_of_questions
    open_suite = any_suite_of if of_questions else suite_of
    suite, _ = open_suite(run, options.suite, None, options.data_dir)
    known = [kind for kind in KINDS if not (of_questions and kind in OF_FACTS)]
    if options.kind is not None and options.kind not in known:
        raise ConsilienceError(
            f"--kind {options.kind} of a run of questions",
            expected=", ".join(known),
            where=str(run.path),
            todo="The other kinds are of facts, which have a subject.",
        )
    kinds = known if options.kind is None else [options.kind]
    notes, first = [], run.seeds[0]
    if len(run.seeds) > 1:
        notes.append(f"the examples are those of {first.label}")
    chosen = examples(first.answers, suite, kinds, options.examples)
    notes = [*suite_notes(run, suite), *notes]
    if not of_questions:
        return chosen, notes
    if writing := run.settings.get("writing"):
        notes.append(f"written answers are matched by the rule: {writing['match']}")
    return with_prompts(chosen, first.answers, prompts_of_run(first)), notes


def analyze_expectations(options: ExpectationsOptions) -> Analysis:
    """How often each kind of expectation is violated, and examples: ``violations, examples``.

    The examples are those of the first seed.
    """
    run = Run.open(options.run)
    if not run.expectations:
        raise ConsilienceError(
            "no expectations",
            expected="a run of questions whose suite has expectations",
            where=str(run.path),
            todo="Write some into expectations.csv of the suite (docs/expectations.md), and probe.",
        )
    suite, protocol = any_suite_of(run, None, None, None)
    seeds = prepared_seeds(run.tables, suite)
    metrics = measure(seeds, suite, protocol, options.seed)
    by_group, notes = seeds[0].instances, suite_notes(run, suite)
    if len(run.seeds) > 1:
        notes.append(f"rates are means over {len(seeds)} seeds, the examples are of the first")
    prompts = prompts_of_run(run.seeds[0])
    tables = {
        "violations": violation_table(metrics, by_group),
        "examples": violated_examples(by_group, prompts, options.examples),
    }
    notes += unchecked_note(suite, by_group)
    return Analysis(
        tables, notes, suite, protocol, "violations",
        lambda made: violation_tables(tables["violations"], tables["examples"], made.name),
    )  # fmt: skip


def prompts_of_run(run: Run) -> dict[tuple[str, str], str]:
    """What a run of questions was sent, by item and variant; empty where it is not kept."""
    return {(item, variant): text for _, item, variant, text in run.prompts.iter_rows()}


def analyze_knowledge(options: KnowledgeOptions) -> Analysis:
    """Correlations over relations: ``correlations``.

    With sizes also means by the size of the training data, and correlations over runs: ``sizes,
    size_correlations``. With thresholds also means of the more probable answers: ``abstaining``.
    """
    metrics, notes = {}, []
    confident: list[pl.DataFrame] = []
    for run in open_runs(options.runs):
        suite, protocol = suite_of(run, options.suite, options.protocol, options.data_dir)
        notes += suite_notes(run, suite)
        metrics[run.label] = measure(run.tables, suite, protocol, options.seed)
        if options.abstain_below is not None:
            table = abstaining_table(run.tables, suite, protocol, options.abstain_below)
            confident.append(table.insert_column(0, pl.lit(run.label).alias("run")))
    tables = {"correlations": correlation_table(metrics)}
    if confident:
        tables["abstaining"] = pl.concat(confident)
    if options.sizes is not None:
        tables["sizes"] = size_table(metrics, [number_of(size) for size in options.sizes])
        tables["size_correlations"] = size_correlations(tables["sizes"])
    return Analysis(tables, notes, main="correlations", layout=_knowledge_tables)


def _knowledge_tables(analysis: Analysis) -> Iterator[Table]:
    yield correlations_table(analysis.tables["correlations"])
    if "abstaining" in analysis.tables:
        headlines = headline_metrics()
        yield analysis_tables.abstaining_table(analysis.tables["abstaining"], headlines)
    if "sizes" in analysis.tables:
        size = pl.col("size").map_elements(short_number, pl.String)
        correlations = analysis.tables["size_correlations"]
        sizes = analysis.tables["sizes"].with_columns(size)
        yield from size_tables(sizes, correlations, correlations["metric"].to_list())


def analyze_syntax(options: SyntaxOptions) -> Analysis:
    """Derived edges against those of the suite, and paraphrase types: ``edges, types``."""
    from consilience.analysis.paraphrases import base_types
    from consilience.analysis.syntax import agreement_with_released, derive_edges, load_parser

    parser = load_parser()
    suite = suites.load_suite(options.suite, options.data_dir)
    derived = {relation.id: derive_edges(relation, parser) for relation in suite.relations}
    edges = agreement_with_released(suite, derived)
    tables = {"edges": edges, "types": base_types(suite, parser)}
    overall = edges.filter(pl.col("group") == "MICRO")
    pairs = sum(len(relation.patterns) - 1 for relation in suite.relations)
    return Analysis(
        tables, suite=suite, main="edges",
        layout=lambda _: syntax_tables(overall, tables["types"], suite.name, pairs),
    )  # fmt: skip
