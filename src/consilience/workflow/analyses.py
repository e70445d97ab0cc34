"""Analyses of a finished run: patterns, edits, examples, accuracy, and how patterns differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import polars as pl

from consilience import suites
from consilience.analysis.examples import KINDS, Example, examples
from consilience.analysis.knowledge import (
    correlation_table,
    number_of,
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
from consilience.metrics.measure import measure
from consilience.run import Run, open_runs
from consilience.suites.selection import select_relations
from consilience.types import Suite
from consilience.workflow.analysis_options import (
    EditsOptions,
    ExamplesOptions,
    KnowledgeOptions,
    PatternsOptions,
    SyntaxOptions,
)
from consilience.workflow.suite import refuse_pairs, suite_notes, suite_of


@dataclass(frozen=True, slots=True)
class Analysis:
    """The tables of an analysis."""

    tables: Mapping[str, pl.DataFrame]
    """By their names in a JSON document."""
    notes: Sequence[str] = ()
    """What a reader should know."""
    suite: Suite | None = None
    """The suite, where there is one."""
    protocol: Protocol | None = None
    """How answers were counted, where they were."""


def _single_run(path: Path, analysis: str) -> Run:
    """The run of facts in a folder; a folder of several seeds raises with the command for one."""
    run = Run.open(path)
    refuse_pairs(run)
    if run.parts:
        raise ConsilienceError(
            f"a folder with {len(run.parts)} seeds",
            expected="one run",
            where=str(path),
            todo=f"Analyze one: `consilience analyze {analysis} {quote(str(run.parts[0].path))}`.",
        )
    return run


def analyze_patterns(options: PatternsOptions) -> Analysis:
    """How often each two patterns agree, and what each pattern gives: ``patterns, pairs``."""
    run = _single_run(options.run, "patterns")
    suite, protocol = suite_of(run, options.suite, options.protocol, options.data_dir)
    notes, answers = suite_notes(run, suite), run.answers
    if options.groups is not None:
        suite = select_relations(suite, options.groups)
        groups = [relation.id for relation in suite.relations]
        answers = answers.filter(pl.col("group").is_in(groups))
    pairs = pair_table(answers, suite, protocol, options.seed)
    patterns = with_changes(pattern_table(answers, suite, protocol), pairs)
    return Analysis({"patterns": patterns, "pairs": pairs}, notes, suite, protocol)


def analyze_edits(options: EditsOptions) -> Analysis:
    """Consistency of the pairs that differ in a way, against the other pairs: ``edits``."""
    run = _single_run(options.run, "edits")
    suite, protocol = suite_of(run, options.suite, options.protocol, options.data_dir)
    kinds: Kinds = annotated_kinds(suite)
    if options.derive:
        from consilience.analysis.paraphrases import derived_kinds
        from consilience.analysis.syntax import load_parser

        kinds = derived_kinds(suite, load_parser())
    table = edit_table(run.answers, suite, protocol, kinds, options.seed)
    if table.is_empty():
        raise ConsilienceError(
            f"the suite '{suite.name}' does not say how its patterns differ",
            todo="Derive it: --derive.",
        )
    return Analysis({"edits": table}, suite_notes(run, suite), suite, protocol)


def find_examples(options: ExamplesOptions) -> tuple[dict[str, list[Example]], list[str]]:
    """Examples of each kind, and what a reader should know."""
    run = _single_run(options.run, "examples")
    suite, _ = suite_of(run, options.suite, None, options.data_dir)
    kinds = list(KINDS) if options.kind is None else [options.kind]
    return examples(run.answers, suite, kinds, options.examples), suite_notes(run, suite)


def analyze_knowledge(options: KnowledgeOptions) -> Analysis:
    """Correlations over relations: ``correlations``.

    With sizes also means by the size of the training data, and correlations over runs: ``sizes,
    size_correlations``.
    """
    metrics, notes = {}, []
    for run in open_runs(options.runs):
        suite, protocol = suite_of(run, options.suite, options.protocol, options.data_dir)
        notes += suite_notes(run, suite)
        metrics[run.label] = measure(run.answers, suite, protocol, options.seed)
    tables = {"correlations": correlation_table(metrics)}
    if options.sizes is not None:
        tables["sizes"] = size_table(metrics, [number_of(size) for size in options.sizes])
        tables["size_correlations"] = size_correlations(tables["sizes"])
    return Analysis(tables, notes)


def analyze_syntax(options: SyntaxOptions) -> Analysis:
    """Derived edges against those of the suite, and paraphrase types: ``edges, types``."""
    from consilience.analysis.paraphrases import base_types
    from consilience.analysis.syntax import agreement_with_released, derive_edges, load_parser

    parser = load_parser()
    suite = suites.load_suite(options.suite, options.data_dir)
    derived = {relation.id: derive_edges(relation, parser) for relation in suite.relations}
    edges = agreement_with_released(suite, derived)
    return Analysis({"edges": edges, "types": base_types(suite, parser)}, suite=suite)
