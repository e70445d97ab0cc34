"""Analyses of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience import probing, suites
from consilience.analysis import examples, patterns
from consilience.analysis.examples import OF_FACTS
from consilience.analysis.factor_effects import FactorTables, factors_of
from consilience.analysis.judges import judge_table
from consilience.analysis.patterns import correlation
from consilience.analysis.rules import rule_tables
from consilience.analysis.task_types import read_runs, task_effects
from consilience.core.errors import SILENT, ConsilienceError, Progress, Protocol
from consilience.core.text import counted
from consilience.elsewhere import open_run, open_runs
from consilience.files.write import csv_of, write_whole
from consilience.metrics.measure import CheckedAnswers, measure
from consilience.metrics.registry import short_label_of
from consilience.models import LanguageModel
from consilience.options.commands import ProbeOptions
from consilience.plans import plan_of
from consilience.probing import noise_floor_of
from consilience.report import layouts
from consilience.report.cautions import Known, cautions
from consilience.report.charts import tsne_chart
from consilience.report.layouts import changed_answers_table
from consilience.report.table import Output, Table, frame_table
from consilience.runs.folder import RunFolder, default_folder
from consilience.runs.run import Run, short_names, split_label
from consilience.suites.facts import select_relations
from consilience.types import Relation, Suite


def facts_of(run: Run) -> Suite:
    """The suite of a run of facts; another run raises."""
    if not (suite := run.suite).words.has_means:
        found, todo = f"a run of {run.suite.words.item}s", "`consilience report` takes such runs."
        raise ConsilienceError(found, expected="a run of facts", where=run.where, todo=todo)
    return suite


def notes_on(*runs: Run) -> list[str]:
    """Whether the numbers are of a part of what was asked."""
    is_finished = all(run.is_finished for run in runs)
    return [*cautions(Known(suite=runs[0].suite, is_finished=is_finished))]


def analyze_patterns(path: str | Path, groups: Sequence[str] | None) -> Output:
    """How often each two patterns agree, and what each pattern gives: ``patterns, pairs``."""
    run = open_run(path)
    suite = facts_of(run)
    suite = suite if groups is None else select_relations(suite, groups)
    answers, protocol = answers_of(run, suite), suite.protocol
    pairs = patterns.pair_table(answers, suite, protocol)
    rows = patterns.with_changes(patterns.pattern_table(answers, suite, protocol), pairs)
    notes = notes_on(run) + [
        f"{relation.id}: more than {patterns.MANY_VARIANTS} patterns, so the only pairs in the "
        "table are those with the base pattern"
        for relation in suite.relations
        if len(relation.patterns) > patterns.MANY_VARIANTS
    ]
    shown, verdict = [layouts.patterns_table(rows)], layouts.pattern_verdict(rows, suite.words)
    return Output({"patterns": rows, "pairs": pairs}, shown, verdict, notes)


def answers_of(run: Run, suite: Suite) -> CheckedAnswers:
    """The answers of a run to the groups of a suite."""
    is_chosen = pl.col("group").is_in([relation.id for relation in suite])
    return CheckedAnswers(run.answers.filter(is_chosen), suite)


def analyze_edits(path: str | Path, *, derive: bool) -> Output:
    """Consistency of the pairs that differ in a way, against the other pairs: ``edits``."""
    run = open_run(path)
    suite, protocol = facts_of(run), run.suite.protocol
    kinds: patterns.Kinds = patterns.annotated_kinds(suite)
    if derive:
        kinds = patterns.derived_kinds(suite, patterns.load_parser())
    table = patterns.edit_table(run.answers, suite, protocol, kinds)
    if table.is_empty():
        found = f"the suite '{suite.name}' does not say how its patterns differ"
        raise ConsilienceError(found, todo="Derive it: --derive.")
    title = f"{run.label} on {suite.name} ({protocol}): edits, in percent"
    shown = frame_table(table, title, layouts.EDITS, over=suite.words.units)
    return Output({"edits": table}, [shown], cautions=notes_on(run))


def analyze_examples(path: str | Path, most: int) -> Output:
    """Examples of each kind; the table has a row for each reply to each item.

    Of sentence pairs the answers that a perturbation changed.
    """
    run = open_run(path)
    suite, notes = run.suite, notes_on(run)
    if suite.words.over == "group":
        changed = examples.changed_answers(run.queries, run.answers, suite)
        title = "Answers that changed, the most confident first"
        shown = [changed_answers_table(changed, most, title)]
        return Output({"changed_answers": changed}, shown, cautions=notes)
    if writing := run.settings.get("writing"):
        notes.append(f"written answers are matched by the rule: {writing['match']}")
    known = [name for name in examples.KINDS if suite.words.has_means or name not in OF_FACTS]
    found = examples.examples(run.answers, suite, known, most, run.texts())
    tables = [
        layouts.example_table(items, title) if items else f"{title}: none"
        for title, items in ((examples.KINDS[kind][0], items) for kind, items in found.items())
    ]
    rows = [asdict(example) for items in found.values() for example in items]
    for row in rows:
        row["other_golds"] = sorted(row["other_golds"])
    replies = examples.reply_table(found)
    return Output(shown=tables, cautions=notes, facts={"examples": rows}, csv=replies)


def analyze_knowledge(paths: Sequence[str]) -> Output:
    """Correlations over relations: ``correlations``."""
    runs = open_runs(paths)
    suites_of = {run.label: (run.answers, facts_of(run)) for run in runs}
    metrics = {label: measure(*of, of[1].protocol) for label, of in suites_of.items()}
    table = patterns.correlation_table(metrics)
    named = table.with_columns(pl.col("x", "y").map_elements(short_label_of, pl.String))
    title = "Correlations over relations, times 100"
    shown = [frame_table(named, title, layouts.ANALYSES, over="relations")]
    return Output({"correlations": table}, shown, cautions=notes_on(*runs))


def analyze_syntax(spec: str) -> Output:
    """Derived edges against those of the suite: ``edges``."""
    parser = patterns.load_parser()
    suite = suites.load_suite(spec)
    derived = {relation.id: patterns.derive_edges(relation, parser) for relation in suite.relations}
    edges = patterns.agreement_with_released(suite, derived)
    overall = edges.filter(over="all")
    title = f"{suite.name}: directed edges, released and derived"
    return Output({"edges": edges}, [frame_table(overall, title, layouts.ANALYSES)])


def analyze_tasks(runs: Sequence[str], small: Sequence[str]) -> Output:
    """The numbers of all runs, and tests of tasks against tasks: ``metrics, effects``."""
    labels, paths = zip(*map(split_label, runs), strict=True)
    files = list(map(Path, paths))
    short = iter(
        short_names([file for file, label in zip(files, labels, strict=True) if not label])
    )
    names = [label or next(short) for label in labels]
    metrics = read_runs(files, names)
    effects = task_effects(metrics, small)
    with_tests = effects.filter(pl.col("p").is_not_nan().any().over("first", "second"))
    title = "Accuracy and consistency: reversed (C_R), with other punctuation (C_S), in percent"
    shown = [layouts.calum_table(metrics, title), *layouts.effects_tables(with_tests)]
    return Output({"metrics": metrics, "effects": effects}, shown, csv=effects)


def analyze_factors(paths: Sequence[str], groups: Sequence[str] | None) -> Output:
    """Consistency by factor, variance components and the range of accuracy of each run."""
    views: list[FactorTables] = []
    for run in open_runs(paths):
        suite = run.suite
        suite = suite if groups is None else select_relations(suite, groups)
        answers, words = answers_of(run, suite), suite.words
        found = factors_of(run.label, suite, answers, noise_floor_of(run.path))
        if not found:
            raise ConsilienceError(
                f"no factor with two levels in a run of {words.item}s",
                expected="a run of questions in several variants",
                where=run.where,
                todo=f"`consilience report` shows what each {words.variant} changes.",
            )
        views += found
    of_run = f" of {views[0].name}" if len(views) == 1 else ""
    shown: list[Table | str] = [
        layouts.factor_table(views, f"What each factor changes in the answers{of_run}, in percent"),
    ]
    frames = {
        name: [getattr(view, name) for view in views]
        for name in ("consistency", "components", "levels")
    }
    frames["noise"] = [view.noise.select("level", "value", "n", "n_excluded") for view in views]
    names = [pl.lit(view.name).alias("run") for view in views]
    tables = {
        name: pl.concat(of.select(run, pl.all()) for run, of in zip(names, frame, strict=True))
        for name, frame in frames.items()
    }
    named = (of.select(pl.lit(name).alias("table"), pl.all()) for name, of in tables.items())
    numbers = pl.concat(named, how="diagonal_relaxed")
    verdict = layouts.factor_verdict(views)
    return Output(tables, shown, verdict, layouts.view_notes(views), csv=numbers)


def analyze_rules(path: str | Path) -> Output:
    """What other rules read in the written replies of a run: ``rules, components``."""
    run = open_run(path)
    rules, components, verdict = rule_tables(run)
    parts = "Shares of the variance of correctness, in percent"
    shown = [
        frame_table(rules, f"{run.label}, in percent", layouts.RULES, [layouts.OF_RULES]),
        frame_table(components, parts, layouts.RULE_PARTS, [layouts.OF_RULE_PARTS]),
    ]
    return Output({"rules": rules, "components": components}, shown, [verdict])


def analyze_judge(path: str | Path, labels: str | Path | None) -> Output:
    """How often a judge gives each label: ``judge``."""
    run = open_run(path)
    rows, number = judge_table(run, None if labels is None else Path(labels))
    notes = [layouts.OF_JUDGE, layouts.OF_CORRECTED.format(counted(number, "labelled item"))]
    title = f"{run.label}: how often each is chosen, in percent"
    shown = [frame_table(rows, title, layouts.JUDGE, notes if number else notes[:1])]
    return Output({"judge": rows}, shown, [layouts.judge_verdict(rows, number)])


CORRELATED = "Means, and r: Spearman's correlation of V with consistency over relations"


def analyze_representations(
    options: ProbeOptions, layers: Sequence[int], progress: Progress = SILENT
) -> Output:
    """Ask a model, keep its vectors where the object is predicted, and cluster them.

    ``clusters``: a row a relation, layer and property (``CLUSTERS_SCHEMA``). ``correlations``: a
    row a layer and property: means, and the correlation with consistency. A single relation is
    drawn, if it has enough facts.
    """
    from consilience.analysis import representations
    from consilience.models.batches import vector_array

    plan = plan_of(options)
    if plan.kind != "facts":
        raise ConsilienceError(f"the {plan.kind} of '{options.suite}'", expected="a suite of facts")
    queries = plan.queries(probing.loaded(plan, options, None, progress))
    suite, protocol, model, table = plan.suite, plan.protocol, queries.model, queries.table()
    vector_array(model, [], list(layers))  # before anything is asked: other models raise
    settings = {**probing.settings_of(plan, queries, table), "layers": ",".join(map(str, layers))}
    run = RunFolder(options.out or default_folder(options.model, settings, "-vectors"), settings)
    run.write_queries(table, [group.record for group in suite])
    answers = pl.concat(probing.ask_in_folder(plan, queries, run, progress).values())
    metrics = measure(answers, suite, protocol)
    parts = []
    with progress.steps("clustering", len(suite.relations), "relations") as advance:
        for relation in suite.relations:
            parts.append(_clusters(relation, model, run.path, layers, protocol))
            advance(1)
    clusters = pl.concat(parts)
    write_whole(run.path / "clusters.csv", csv_of(clusters))
    run.finish(metrics)
    figure, (relation, *others) = None, suite.relations
    size = len(relation.facts[:DRAWN]) * len(relation.patterns)
    if not others and size > representations.PERPLEXITY:
        figure = run.path / f"tsne-{relation.id}.svg"
        title = f"{options.model}, {suite.name}: {relation.id}"
        drawing_of(run.path, relation.id, title).save(figure)
    tables = {"clusters": clusters, "correlations": correlations_of(metrics, clusters)}
    shown: list[Table | str] = [
        frame_table(clusters, "k-means, V-measure in percent", layouts.ANALYSES),
        frame_table(tables["correlations"], CORRELATED, layouts.ANALYSES),
    ]
    shown += [f"Figure: {figure}"] * bool(figure) + [f"Run: {run.path}"]
    record = {**run.record, "path": str(run.path)}
    more = {"run": record, "figure": str(figure) if figure else None}
    return Output(tables, shown, cautions=record["warnings"], facts=more)


def _clusters(
    relation: Relation,
    model: LanguageModel,
    run: Path,
    layers: Sequence[int],
    protocol: Protocol,
) -> pl.DataFrame:
    from consilience.analysis import representations
    from consilience.models.batches import vector_array

    folder = run / "vectors"
    if (folder / f"{relation.id}.npz").is_file():
        return representations.cluster(representations.read_vectors(folder, relation.id))
    queries, index = representations.questions(relation)
    special = protocol != "published"
    array = vector_array(model, queries, list(layers), special_tokens=special)
    vectors = representations.RelationVectors(relation.id, tuple(layers), array, index)
    representations.write_vectors(folder, vectors)
    return representations.cluster(vectors)


def correlations_of(metrics: pl.DataFrame, clusters: pl.DataFrame) -> pl.DataFrame:
    """Spearman's correlation of consistency with V-measure over relations, as in Section 7.2."""
    of_groups = metrics.filter(metric="consistency", over="group", kind="whole")
    consistency = of_groups.select("value", relation="group")
    rows = []
    for (layer, name), table in clusters.group_by(["layer", "property"], maintain_order=True):
        both = consistency.join(table, on="relation", maintain_order="left")
        values = both["value"].to_list(), both["v_measure"].to_list()
        r = asdict(correlation(*values, method="spearman"))
        means = table.select(pl.col("v_measure", "v_measure_shuffled", "ami").fill_nan(None).mean())
        rows.append({"layer": layer, "property": name, **means.row(0, named=True), **r})
    return pl.DataFrame(rows)


DRAWN = 30  # facts of the paper's Figure 3


def drawing_of(folder: Path, relation: str, title: str) -> Any:
    """The t-SNE of a relation's first facts, at the last layer that a run has vectors of."""
    from consilience.analysis import representations

    vectors = representations.read_vectors(folder / "vectors", relation).first(DRAWN)
    last = vectors.array[:, -1]
    readable = ~np.isnan(last).any(axis=1)
    x, y = representations.tsne(last[readable]).T
    table = vectors.index.filter(pl.Series(readable)).with_columns(x=pl.Series(x), y=pl.Series(y))
    return tsne_chart(table, title)
