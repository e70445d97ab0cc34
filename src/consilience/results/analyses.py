"""Analyses of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience import suites
from consilience.analysis import patterns
from consilience.analysis.examples import (
    Example,
    about,
    examples,
    reply_table,
    violated_examples,
    violation_table,
)
from consilience.analysis.factor_effects import CellAnswers, factor_tables, option_scores
from consilience.analysis.task_types import read_runs, task_effects, without_models
from consilience.asking.facts import ask_suite
from consilience.core.errors import Colour, ConsilienceError, Protocol
from consilience.core.factors import OF_OPTIONS, FactorialDesign
from consilience.core.process import SILENT, Watch
from consilience.core.schemas import FLIPS, METRICS_SCHEMA
from consilience.files.write import csv_of, write_whole
from consilience.kinds import facts_of, kind_of_run, refuse_other_kinds, suite_notes, suite_of
from consilience.kinds.counting import noise_floor_of
from consilience.kinds.facts import Facts
from consilience.kinds.questions import design_of_run
from consilience.metrics.components import position_notes
from consilience.metrics.counts import prepared_seeds, unchecked_note
from consilience.metrics.grid import MANY_VARIANTS
from consilience.metrics.measure import measure
from consilience.metrics.registry import headline_metrics
from consilience.models import LanguageModel
from consilience.options import Output, shared_fields
from consilience.options.probe import ProbeOptions
from consilience.options.runs import (
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
from consilience.report import analysis_tables as layouts
from consilience.report.columns import EDITS, frame_table
from consilience.report.export import Shown, rows_of, save_figure, tsne_figure
from consilience.report.run_view import FactorView, factor_table, index_table, view_notes
from consilience.report.table import Table
from consilience.runs.folder import RunFolder, default_folder
from consilience.runs.run import Run, open_runs, short_names, split_label
from consilience.suites.facts import select_relations
from consilience.suites.pairs import PERTURBATIONS, TASKS
from consilience.types import Relation, Suite


@dataclass(frozen=True, slots=True, repr=False)
class Analysis(Shown):
    """The tables of an analysis."""

    tables: Mapping[str, pl.DataFrame]
    """By their names in a JSON document."""
    main: str
    """The table of ``--csv``."""
    shown: Iterable[Table | str]
    """What is printed."""
    notes: Sequence[str] = ()
    """What a reader should know."""
    suite: Suite | None = None
    """The suite, where there is one."""
    protocol: Protocol | None = None
    """How answers were counted, where they were."""

    def printed(self, output: Output) -> Iterable[Table | str]:
        """The tables as people read them."""
        return self.shown

    def document(self) -> dict[str, Any]:
        tables = {name: rows_of(table) for name, table in self.tables.items()}
        return tables | {"warnings": self.notes}

    def frame(self) -> pl.DataFrame:
        return self.tables[self.main]

    def __repr__(self) -> str:
        sizes = [f"{name} {table.shape}" for name, table in self.tables.items()]
        return f"Analysis({', '.join(sizes)}; rows and columns)"


def _open(options: PatternsOptions | EditsOptions) -> tuple[Run, Suite, Protocol, list[str]]:
    """The run, the suite and the protocol that options name, and notes on them."""
    run = Run.open(options.run)
    suite, protocol = facts_of(run, options.suite, options.protocol, options.data_dir)
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
    pairs = patterns.pair_table(answers, suite, protocol, options.seed)
    rows = patterns.with_changes(patterns.pattern_table(answers, suite, protocol), pairs)
    notes += [
        f"{relation.id}: more than {MANY_VARIANTS} patterns, so the only pairs in the table are "
        "those with the base pattern"
        for relation in suite.relations
        if len(relation.patterns) > MANY_VARIANTS
    ]
    shown = [*layouts.matrix_tables(pairs, rows)]
    return Analysis({"patterns": rows, "pairs": pairs}, "pairs", shown, notes, suite, protocol)


def analyze_edits(options: EditsOptions) -> Analysis:
    """Consistency of the pairs that differ in a way, against the other pairs: ``edits``."""
    run, suite, protocol, notes = _open(options)
    kinds: patterns.Kinds = patterns.annotated_kinds(suite)
    if options.derive:
        from consilience.analysis.syntax import derived_kinds, load_parser

        kinds = derived_kinds(suite, load_parser())
    table = patterns.edit_table(run.tables, suite, protocol, kinds, options.seed)
    if table.is_empty():
        raise ConsilienceError(
            f"the suite '{suite.name}' does not say how its patterns differ",
            todo="Derive it: --derive.",
        )
    title = f"{suite.name}, protocol {protocol}: edits, in percent"
    shown = [frame_table(table, title, EDITS)]
    return Analysis({"edits": table}, "edits", shown, notes, suite, protocol)


class FoundExamples(Shown):
    """Examples of each kind."""

    def __init__(self, by_kind: Mapping[str, Sequence[Example]], notes: Sequence[str]) -> None:
        self.by_kind, self.notes = by_kind, notes

    def printed(self, output: Output) -> Iterator[Table | str]:
        shown = [reply for items in self.by_kind.values() for one in items for reply in one.replies]
        has_prompts = any(reply.prompt is not None for reply in shown)
        for kind, items in self.by_kind.items():
            title = about(kind)
            if has_prompts:
                title = title.partition(" (example")[0].replace("pattern", "variant")
            table_of = layouts.question_example_table if has_prompts else layouts.example_table
            yield table_of(items, title) if items else f"{title}: none"

    def document(self) -> dict[str, Any]:
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
    known = list(kind_of_run(run).example_kinds)
    if not known:
        refuse_other_kinds(run)
    suite, _ = suite_of(run, options.suite, None, options.data_dir)
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
    if writing := run.settings.get("writing"):
        notes.append(f"written answers are matched by the rule: {writing['match']}")
    return kind_of_run(run).with_texts(run, chosen), notes


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
    suite, protocol = suite_of(run, None, None, None)
    seeds = prepared_seeds(run.tables, suite)
    metrics = measure(seeds, suite, protocol, options.seed)
    by_group, notes = seeds[0].instances, suite_notes(run, suite)
    if len(run.seeds) > 1:
        notes.append(f"rates are means over {len(seeds)} seeds, the examples are of the first")
    sent = {(item, variant): text for _, item, variant, text in run.seeds[0].prompts.iter_rows()}
    violations = violation_table(metrics, by_group)
    found = violated_examples(by_group, sent, options.examples)
    notes += unchecked_note(suite, by_group)
    tables = {"violations": violations, "examples": found}
    shown = [*layouts.violation_tables(violations, found, suite.name)]
    return Analysis(tables, "violations", shown, notes, suite, protocol)


def analyze_knowledge(options: KnowledgeOptions) -> Analysis:
    """Correlations over relations: ``correlations``.

    With sizes also means by the size of the training data, and correlations over runs: ``sizes,
    size_correlations``. With thresholds also means of the more probable answers: ``abstaining``.
    """
    metrics, notes = {}, []
    confident: list[pl.DataFrame] = []
    for run in open_runs(options.runs):
        suite, protocol = facts_of(run, options.suite, options.protocol, options.data_dir)
        notes += suite_notes(run, suite)
        metrics[run.label] = measure(run.tables, suite, protocol, options.seed)
        if options.abstain_below is not None:
            table = patterns.abstaining_table(run.tables, suite, protocol, options.abstain_below)
            confident.append(table.insert_column(0, pl.lit(run.label).alias("run")))
    correlations = patterns.correlation_table(metrics)
    tables = {"correlations": correlations}
    shown = [layouts.correlations_table(correlations)]
    if confident:
        tables["abstaining"] = pl.concat(confident)
        shown.append(layouts.abstaining_table(tables["abstaining"], headline_metrics()))
    if options.sizes is not None:
        sizes = patterns.size_table(metrics, [patterns.number_of(size) for size in options.sizes])
        by_size = patterns.size_correlations(sizes)
        tables |= {"sizes": sizes, "size_correlations": by_size}
        short = pl.col("size").map_elements(patterns.short_number, pl.String)
        names = by_size["metric"].to_list()
        shown += layouts.size_tables(sizes.with_columns(short), by_size, names)
    return Analysis(tables, "correlations", shown, notes)


def analyze_syntax(options: SyntaxOptions) -> Analysis:
    """Derived edges against those of the suite, and paraphrase types: ``edges, types``."""
    from consilience.analysis.syntax import (
        agreement_with_released,
        base_types,
        derive_edges,
        load_parser,
    )

    parser = load_parser()
    suite = suites.load_suite(options.suite, options.data_dir)
    derived = {relation.id: derive_edges(relation, parser) for relation in suite.relations}
    edges = agreement_with_released(suite, derived)
    types = base_types(suite, parser)
    overall = edges.filter(pl.col("group") == "MICRO")
    pairs = sum(len(relation.patterns) - 1 for relation in suite.relations)
    shown = layouts.syntax_tables(overall, types, suite.name, pairs)
    return Analysis({"edges": edges, "types": types}, "edges", shown, suite=suite)


TITLE = "Accuracy, and consistency when reversed (C_R) and with other punctuation (C_S), in percent"


def analyze_tasks(options: TaskEffectsOptions) -> Analysis:
    """The numbers of all runs, and tests of tasks against tasks: ``metrics, effects``."""
    names, paths = _labelled(options.runs)
    metrics = read_runs(paths, names, tasks=TASKS, perturbations=PERTURBATIONS)
    tested = without_models(metrics, options.leave_out) if options.leave_out else metrics
    kinds = {name: task.kind for name, task in TASKS.items()}
    effects = task_effects(tested, kinds, options.small)
    shown = [*layouts.calum_tables(metrics, TITLE), *layouts.effects_tables(with_tests(effects))]
    tables = {"metrics": metrics, "effects": effects}
    return Analysis(tables, "effects", shown, _notes(tested, effects))


def with_tests(effects: pl.DataFrame) -> pl.DataFrame:
    """The comparisons of tasks in which some test has a p; runs of one model have none."""
    return effects.filter(pl.col("p").is_not_nan().any().over("first", "second"))


def _labelled(runs: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The model and the path of each run; a run without a model is named by its folder."""
    models, paths = zip(*map(split_label, runs), strict=True)
    files = [Path(path) for path in paths]
    folders = [file.parent if file.name == "metrics.csv" else file for file in files]
    unnamed = [folder for folder, model in zip(folders, models, strict=True) if not model]
    short = iter(short_names(unnamed))
    return [model or next(short) for model in models], files


def _notes(metrics: pl.DataFrame, effects: pl.DataFrame) -> list[str]:
    """Why there are fewer tests than a reader may expect."""
    present = metrics["task"].unique(maintain_order=True).to_list()
    notes = []
    unknown = [task for task in present if task not in TASKS]
    if unknown:
        notes.append(f"not known to be STS or NLI, so in neither: {', '.join(unknown)}")
    if "STS" not in set(effects["first"]):
        notes.append(f"no test of STS against NLI: the tasks are {', '.join(present)}")
    if set(effects["first"]) <= {"STS"}:
        notes.append(f"no test of small training sets: the tasks are {', '.join(present)}")
    needed = "it needs two models with tasks of both sides"
    paired = effects.filter(pl.col("test") == "paired")
    if not paired.is_empty() and paired["p"].is_nan().all():
        return [*notes, f"no paired test: {needed}"]
    contrasts = effects.select("first", "second").unique(maintain_order=True)
    untested = contrasts.join(with_tests(effects), on=["first", "second"], how="anti")
    notes += [f"no test of {first} against {second}: {needed}" for first, second in untested.rows()]
    return notes


@dataclass(frozen=True, slots=True, repr=False)
class FactorAnalysis(Shown):
    """What each factor changes in the answers of runs."""

    views: Sequence[FactorView]
    """The tables of each run; of a run with several designs those of each design."""

    def printed(self, output: Output) -> Iterator[Table | str]:
        of_run = f" of {self.views[0].name}" if len(self.views) == 1 else ""
        title = f"What each factor changes in the answers{of_run}, in percent"
        yield factor_table(self.views, title)
        yield ""
        yield index_table(self.views, f"How sensitive the answers{of_run} are to the prompt")

    def document(self) -> dict[str, Any]:
        tables = {name: rows_of(table) for name, table in self.tables.items()}
        return tables | {"warnings": self.notes}

    @property
    def notes(self) -> list[str]:
        return view_notes(self.views)

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """``consistency, components, indices, levels, noise``, each with the column ``run``."""
        frames = {
            name: [getattr(view.tables, name) for view in self.views]
            for name in ("consistency", "components", "indices", "levels")
        }
        noise = [view.noise.select("subset", "value", "n", "n_excluded") for view in self.views]
        return {
            name: pl.concat(
                frame.select(pl.lit(view.name).alias("run"), pl.all())
                for view, frame in zip(self.views, of_views, strict=True)
            )
            for name, of_views in (*frames.items(), ("noise", noise))
        }

    def frame(self) -> pl.DataFrame:
        return self.numbers

    @property
    def numbers(self) -> pl.DataFrame:
        """Every number of ``tables`` in one table: ``run, number, factor, value, low, high, ...``.

        ``number`` is a metric, an index, ``flips`` (of the noise floor), or an outcome with the
        kind of its part: ``answer: main``.
        """
        tables = self.tables
        pairs, counts = tables["consistency"], ("n", "n_excluded")
        kept = ("run", "factor", *counts)
        bounds = {"low": "corrected_low", "high": "corrected_high"}
        frames = [
            pairs.select(*kept, "value", "low", "high", number=pl.lit("consistency")),
            pairs.select(*kept, value="chance", number=pl.lit("chance_consistency")),
            pairs.select(
                *kept, value="corrected", **bounds, number=pl.lit("corrected_consistency")
            ),
            tables["components"].rename({"factors": "factor"}).with_columns(
                number=pl.format("{}: {}", "outcome", "effect")
            ),
            tables["indices"].rename({"index": "number"}),
            tables["levels"].with_columns(
                number=pl.lit("accuracy"), factor=pl.format("{}={}", "factor", "level")
            ),
            tables["noise"].rename({"subset": "factor"}).with_columns(number=pl.lit("flips")),
        ]  # fmt: skip
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
        changes = suite_notes(run, suite_of(run, None, None, None)[0])
        notes = [*changes, *position_notes(answers), *first.tables.notes]
        tables = replace(first.tables, notes=notes)
        views += [replace(first, tables=tables), *others]
    return FactorAnalysis(views)


def factor_views(run: Run, groups: Sequence[str] | None = None, seed: int = 0) -> list[FactorView]:
    """What is shown of the factors of a run of questions; a run of anything else raises.

    Groups with the same factors are counted together: open questions have no options that vary.
    """
    _refuse_without_factors(run)
    suite, _ = suite_of(run, None, None, None)
    if groups is not None:
        suite = select_relations(suite, groups)
    designs: dict[FactorialDesign, list[str]] = {}
    for relation in suite.relations:
        designs.setdefault(_design_of(run, relation), []).append(relation.id)
    noise = noise_floor_of(run.path)
    noise = pl.DataFrame(schema=METRICS_SCHEMA) if noise is None else noise.filter(metric=FLIPS)
    views = []
    for design, names in designs.items():
        seeds = _answers_of(run, select_relations(suite, names), design)
        label = run.label if len(designs) == 1 else f"{run.label}, {', '.join(names)}"
        views.append(FactorView(label, factor_tables(seeds, design, seed), noise))
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
    answers = []
    for prepared, table in zip(prepared_seeds(tables, suite), tables, strict=True):
        grids = {
            relation.id: prepared.views(relation, "strict")["pairs"]
            for relation, _ in prepared.relations
        }
        scores = {
            group: of_group
            for group in grids
            if (of_group := option_scores(table.filter(group=group), len(design.cells), rule))
            is not None
        }
        answers.append(CellAnswers(grids, scores if len(scores) == len(grids) else None))
    return answers


def _refuse_without_factors(run: Run) -> None:
    """Raise for anything but a run of questions, with the command that shows what it varies."""
    if "cells" in run.settings:
        return
    kind = kind_of_run(run)
    problem = (
        f"a run of {kind.words.item}s, whose variants differ in one factor: the "
        f"{kind.words.variant}"
    )
    todo = kind.what_variants_change
    if not run.settings:
        problem = "not the folder of a run, which says what its variants differ in"
        todo = "Name the folder of a run of `consilience probe`."
    raise ConsilienceError(
        problem, expected="a run of questions in several variants", where=str(run.path), todo=todo
    )


SETTINGS = ("suite", "suite_digest", "groups", "limit", "seed", "protocol", "model")
"""The settings of a probe that decide vectors too."""


@dataclass(frozen=True, slots=True)
class VectorClusters(Shown):
    """What the vectors of a run cluster by."""

    clusters: pl.DataFrame
    """One row a relation, layer and property (``CLUSTERS_SCHEMA``)."""
    correlations: pl.DataFrame
    """One row a layer and property: means, and the correlation with consistency."""
    figure: Path | None
    record: Mapping[str, Any]
    """Settings, versions and the like, and the run's path."""

    @property
    def notes(self) -> Sequence[str]:
        notes: Sequence[str] = self.record["warnings"]
        return notes

    def printed(self, output: Output) -> Iterator[Table | str]:
        yield from layouts.cluster_tables(self.clusters, self.correlations)
        if self.figure:
            yield f"Figure: {self.figure}"
        yield f"Run: {self.record['path']}"

    def document(self) -> dict[str, Any]:
        tables = {"clusters": self.clusters, "correlations": self.correlations}
        document = {name: rows_of(frame) for name, frame in tables.items()}
        figure = str(self.figure) if self.figure else None
        return {"run": self.record, **document, "figure": figure, "warnings": self.notes}


def cluster_representations(options: VectorOptions, watch: Watch = SILENT) -> VectorClusters:
    """Ask a model, keep its vectors where the object is predicted, and cluster them."""
    inquiry = Facts(ProbeOptions(**shared_fields(options, ProbeOptions)), watch)
    suite, protocol = inquiry.suite, inquiry.protocol
    if options.draw is not None:
        suite.relation(options.draw)  # an unknown one raises
    inquiry.load()
    model, settings = inquiry.model, {name: inquiry.settings[name] for name in SETTINGS}
    settings["layers"] = ",".join(map(str, options.layers))
    run = RunFolder(options.out or default_folder(options.model, settings, "-vectors"), settings)
    inquiry.describe(run)
    with watch.steps("asking", sum(inquiry.groups.values()), inquiry.unit) as advance:
        answers = ask_suite(suite, model, run, progress=advance)
    metrics = measure(answers, suite, protocol)
    tables = []
    with watch.steps("clustering", len(suite.relations), "relations") as advance:
        for relation in suite.relations:
            tables.append(_clusters(relation, model, run.path, options, protocol))
            advance(1)
    clusters = pl.concat(tables)
    write_whole(run.path / "clusters.csv", csv_of(clusters))
    run.finish(metrics)
    figure = None
    if options.draw is not None:
        suffix = options.draw_format.removeprefix(".")
        figure = run.path / f"tsne-{options.draw}-{options.color_by}.{suffix}"
        title = f"{options.model}, {suite.name}: {options.draw}"
        of = (options.draw, options.draw_facts, options.color_by, title, options.seed)
        save_figure(drawing_of(run.path, *of), figure)
    record = {**run.record, "path": str(run.path)}
    return VectorClusters(clusters, correlations_of(metrics, clusters), figure, record)


def _clusters(
    relation: Relation, model: LanguageModel, run: Path, options: VectorOptions, protocol: Protocol
) -> pl.DataFrame:
    """Clusters of one relation's vectors; an earlier run's vectors are read."""
    from consilience.analysis.representations import (
        RelationVectors,
        cluster,
        questions,
        read_vectors,
        write_vectors,
    )
    from consilience.models.judges import vector_array

    folder = run / "vectors"
    if (folder / f"{relation.id}.parquet").is_file():
        return cluster(read_vectors(folder, relation.id), seed=options.seed)
    queries, index = questions(relation)
    layers, has_special_tokens = list(options.layers), protocol != "published"
    array = vector_array(model, queries, layers, special_tokens=has_special_tokens)
    vectors = RelationVectors(relation.id, tuple(layers), array, index)
    write_vectors(folder, vectors)
    return cluster(vectors, seed=options.seed)


def correlations_of(metrics: pl.DataFrame, clusters: pl.DataFrame) -> pl.DataFrame:
    """Spearman's correlation of consistency with V-measure over relations, as in Section 7.2."""
    from consilience.analysis.representations import spearman_with

    named = (pl.col("metric") == "consistency") & (pl.col("subset") == "all")
    consistency = dict(metrics.filter(named).select("group", "value").iter_rows())
    rows = []
    for (layer, name), table in clusters.group_by(["layer", "property"], maintain_order=True):
        v_measure = dict(table.select("relation", "v_measure").iter_rows())
        r = spearman_with(consistency, v_measure)
        means = table.select(pl.col("v_measure", "v_measure_shuffled", "ami").fill_nan(None).mean())
        row = {"layer": layer, "property": name, **means.row(0, named=True)}
        rows.append(row | {"value": r.value, "low": r.low, "high": r.high, "p": r.p, "n": r.n})
    return pl.DataFrame(rows)


def drawing_of(
    folder: Path, relation: str, facts: int, colour: Colour, title: str, seed: int
) -> Any:
    """The t-SNE of a relation's first facts, at the last layer that a run has vectors of."""
    from consilience.analysis.representations import read_vectors, tsne

    vectors = read_vectors(folder / "vectors", relation).first(facts)
    last = vectors.array[:, -1]
    readable = ~np.isnan(last).any(axis=1)
    x, y = tsne(last[readable], seed).T
    table = vectors.index.filter(pl.Series(readable)).with_columns(x=pl.Series(x), y=pl.Series(y))
    return tsne_figure(table, colour, title)
