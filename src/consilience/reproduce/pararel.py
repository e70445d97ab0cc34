"""Numbers of ParaRel (Elazar et al., TACL 2021): the functions that ``recipes.toml`` names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import binomtest

from consilience.analysis.patterns import correlation_table
from consilience.authoring.checks import sizes_of
from consilience.core.schemas import COMPARISON_SCHEMA, METRICS_SCHEMA
from consilience.metrics.statistics import NAN, holm
from consilience.options.commands import ImproveOptions, ProbeOptions
from consilience.report.export import Output
from consilience.report.table import Column, Table
from consilience.reproduce import (
    ADDED,
    Measured,
    Numbers,
    Probed,
    Recipe,
    Work,
    in_percent,
    selected,
)
from consilience.results.analyses import analyze_representations
from consilience.runs.run import read_answers
from consilience.suites import load_suite
from consilience.suites.facts import N_TO_1

TRAIN, VALIDATION = ("P364", "P138", "P449"), ("P159", "P176", "P37")
TEST = [relation for relation in N_TO_1 if relation not in TRAIN + VALIDATION]
SEED = 42
AFTER = f"seed-{SEED}/after"  # The run after a training, in its folder

LAMBDAS = (0.1, 0.5, 1.0)  # Tried in Section 8.2; validation chooses
FACTS = 100  # Of each relation whose vectors are clustered
COEFFICIENTS = {"pearson": "Correlation Accuracy/Consistency", "spearman": "the same, Spearman's"}


def model_means(recipe: Recipe, work: Work) -> Numbers:
    """Means over relations in each model's run, and with ``micro`` also over all facts."""
    numbers: Numbers = {}
    for row, run in _probed(recipe, work).items():
        numbers |= selected(run.metrics, recipe, row, group="", over="mean")
        if recipe.details.get("micro"):
            pooled = selected(run.metrics, recipe, row, group="", over="all")
            for (block, _, column), number in pooled.items():
                numbers[block, row, f"{column}, micro"] = number
    return numbers


def single_relations(recipe: Recipe, work: Work) -> Numbers:
    """Original language (P364) by model; capital of (P1376) and owned by (P127) of BERT-large."""
    runs = _probed(recipe, work)

    def of_relation(row: str, block: str, relation: str) -> Numbers:
        return selected(runs[row].metrics, recipe, row, block, group=relation, over="group")

    numbers: Numbers = {}
    for row in runs:
        numbers |= of_relation(row, "original-language", "P364")
    of_paper = [number for (_, row, _), number in numbers.items() if row not in work.added]
    rows = {row for _, row, _ in numbers}
    if _all_available(recipe, work, rows, "lowest model", "highest model"):
        lowest, *_, highest = sorted(of_paper, key=lambda number: number.value)
        for row, number in (("lowest model", lowest), ("highest model", highest)):
            numbers["original-language", row, "Consistency"] = number
    if "BERT-large" in runs:
        numbers |= of_relation("BERT-large", "capital-of", "P1376")
        numbers |= of_relation("BERT-large", "owned-by", "P127")
    return numbers


def correlations(recipe: Recipe, work: Work) -> Numbers:
    """Coefficients over relations, times 100, of each model, and the largest p of all models."""
    runs = _probed(recipe, work)
    tables = {row: run.metrics for row, run in runs.items() if run.metrics.height}
    chosen = correlation_table(tables).filter(x="accuracy", y="consistency") if tables else None
    rows = [] if chosen is None else chosen.to_dicts()
    numbers: Numbers = {
        ("", row["run"], COEFFICIENTS[row["method"]]): in_percent(row, "r%") for row in rows
    }
    if _all_available(recipe, work, tables, "all models") and rows:
        pearson = [row for row in rows if row["method"] == "pearson"]
        largest = np.max([row["p"] for row in pearson if row["run"] not in work.added])
        numbers["", "all models", "p (correlation)"] = Measured(float(largest))
    return numbers


def statistics(recipe: Recipe, work: Work) -> Numbers:
    """Counts of patterns, and of their kinds in syntax and in words."""
    counts, fields = _sizes(work).facts, recipe.details["fields"].items()
    return {("", row, "Value"): Measured(counts[name]) for row, name in fields}


def tuples(recipe: Recipe, work: Work) -> Numbers:
    """How many facts the paper's filters leave, and how many relations have one right answer.

    Of each kind also how many subjects have several objects, and objects several subjects (note 3).
    """
    sizes = _sizes(work)
    numbers: Numbers = {("", "all relations", "Tuples"): Measured(sizes.facts["facts"])}
    for kind in ("N-M", "N-1"):
        relations = sizes.tables["by_group"].filter(cardinality=kind)
        numbers["", kind, "Relations"] = Measured(relations.height)
        for column, shared, total in (
            ("subjects with several objects", "shared_subjects", "subjects"),
            ("objects with several subjects", "shared_objects", "candidates"),
        ):
            several, all_ = (sum(relations[name].to_list()) for name in (shared, total))
            share = 100 * several / all_ if all_ else NAN
            numbers["", kind, column] = Measured(share, unit="percent")
    return numbers


def _sizes(work: Work) -> Output:
    suite = work.once("the suite pararel", partial(load_suite, "pararel"))
    work.note("", suite.notes)
    return sizes_of(suite)


def agreement(recipe: Recipe, work: Work) -> Numbers:
    """The shares of the pairs, with Wilson's interval."""
    numbers: Numbers = {}
    for row, (intended, pairs) in recipe.details["counts"].items():
        low, high = binomtest(intended, pairs).proportion_ci(method="wilson")
        share = Measured(100 * intended / pairs, NAN, 100 * low, 100 * high)
        numbers |= {("", row, "Pairs"): Measured(pairs), ("", row, "Agreement"): share}
    return numbers


def paraphrase_types(recipe: Recipe, work: Work) -> Numbers:
    """None: the paper's counts by hand of 100 pairs can only be repeated by people."""
    return {}


def example_answers(recipe: Recipe, work: Work) -> Table:
    """The paper's examples with the answers of each model to them."""
    runs = {row: run for row, run in _probed(recipe, work).items() if run.metrics.height}
    answers = {row: read_answers(run.path) for row, run in runs.items()}
    rows, blocks = list[list[str | None]](), list[str]()
    for example in recipe.details["examples"]:
        place = {"group": example["relation"], "subject": example["subject"]}
        ours = [
            dict(table.filter(**place).select("variant", "answer").iter_rows())
            for table in answers.values()
        ]
        for pattern, answer in example["answers"]:
            rows.append([pattern, answer, *(known.get(pattern) for known in ours)])
            blocks.append(f"{example['subject']} ({example['object']})")
    more = "more examples of {}: consilience analyze examples {}"
    work.note("", [more.format(row, run.path) for row, run in runs.items()])
    columns = [Column("pattern"), Column("paper, BERT-large"), *map(Column, answers)]
    return Table(recipe.title, columns, rows, blocks=blocks)


def clusters(recipe: Recipe, work: Work) -> Numbers:
    """The first 30 facts of P36 in all patterns, and what the vectors of all facts cluster by."""
    numbers: Numbers = {}
    for row, spec in recipe.models.items():
        options = {"groups": ("P36",), "limit": 1000}
        found = work.attempt(row, partial(_vectors, work, row, spec, "pararel-figure-3", **options))
        for cluster in found.tables["clusters"].to_dicts() if found else ():
            numbers |= _clustered(("", row), cluster)
        work.files += sorted(work.folder_of(row, "pararel-figure-3").glob("tsne-*.svg"))
    return numbers


def vector_correlations(recipe: Recipe, work: Work) -> Numbers:
    """Spearman's coefficient over relations, times 100; p adjusted over models (Holm); clusters."""
    numbers, tested = Numbers(), dict[tuple[str, str], float]()
    for row, spec in recipe.models.items():
        found = work.attempt(row, partial(_vectors, work, row, spec, "pararel-vectors"))
        key = recipe.block_of(row), row
        for vectors in found.tables["correlations"].to_dicts() if found else ():
            if vectors["property"] == "subject":
                numbers[*key, "Spearman Consistency/V-measure"] = in_percent(vectors, "r%")
                numbers[*key, "p (Spearman)"] = Measured(vectors["p"], unit="p")
                tested[key] = vectors["p"]
            else:
                numbers[*key, f"Spearman, by {vectors['property']}"] = in_percent(vectors, "r%")
            numbers |= _clustered(key, vectors)
    if len(tested) > 1:
        for key, p in zip(tested, holm(list(tested.values())), strict=True):
            numbers[*key, "p (Spearman, Holm)"] = Measured(p, unit="p")
    return numbers


def _vectors(work: Work, row: str, spec: str, part: str, **more: Any) -> Output | None:
    options = ProbeOptions(
        model=spec, suite="pararel", out=work.folder_of(row, part), device=work.options.device,
        **{"limit": FACTS, **more},
    )  # fmt: skip
    found = work.call(
        "analyze representations",
        lambda chosen, progress: analyze_representations(chosen, (-1,), progress),
        options,
    )
    work.note(row, found.cautions if found else ())
    return found


def _clustered(key: tuple[str, str], cluster: Mapping[str, Any]) -> Numbers:
    return {
        (*key, f"{label} by {cluster['property']}"): Measured(100 * cluster[name])
        for label, name in (("V-measure", "v_measure"), ("AMI", "ami"))
    }


def improvement(recipe: Recipe, work: Work) -> Numbers:
    """Means over the 25 test relations before and after training on three, chosen by three."""
    numbers: Numbers = {}
    folder = work.folder_of("majority", "pararel-test")
    probe = partial(work.probe, "majority", recipe.models["majority"], groups=TEST, out=folder)
    runs = {"majority": folder} if work.attempt("majority", probe) else {}
    for name in ("", *work.added):
        base, after = (name, f"{name}-ft") if name else ("BERT-base", "BERT-ft")
        ablations = {} if name else recipe.details["ablations"]
        if not any(map(work.is_selected, (base, after, *ablations))):
            continue
        if best := work.attempt(name, partial(_best, recipe, work, name)):
            runs |= {base: best[1] / "before", after: best[1] / AFTER}
            for row, options in ablations.items():
                training = {"weight": best[0], **options}
                runs[row] = _improve(recipe, work, name, **training)[0] / AFTER
    for row, run in runs.items():
        if work.is_selected(row) and not work.options.dry_run:
            metrics = pl.read_csv(run / "metrics.csv", schema_overrides=METRICS_SCHEMA)
            numbers |= selected(metrics, recipe, row, group="", over="mean")
    return numbers


def improvement_tests(recipe: Recipe, work: Work) -> Numbers:
    """Differences of means over the test relations, in points; p over their pooled facts."""
    numbers: Numbers = {}
    for name in ("", *work.added):
        best = work.attempt(name, partial(_best, recipe, work, name))
        if best is None or work.options.dry_run:
            continue
        file = best[1] / AFTER / ".." / "comparison.csv"
        table = pl.read_csv(file, schema_overrides=COMPARISON_SCHEMA).fill_null(NAN)
        rows = {(row["metric"], row["over"]): row for row in table.filter(kind="whole").to_dicts()}
        key = (ADDED, name) if name else ("", "BERT-ft vs BERT-base")
        for column, (metric, *_) in recipe.columns.items():
            means, pooled = rows[metric, "mean"], rows[metric, "all"]
            numbers[*key, column] = in_percent({**means, "value": means["difference"]}, "points")
            numbers[*key, f"p of {column}, {pooled['test']}"] = Measured(pooled["p"], unit="p")
        tested = [rows[metric, "all"]["p"] for metric in ("accuracy", "consistent_accuracy")]
        numbers[*key, "p (McNemar)"] = Measured(max(tested))
    return numbers


def _best(recipe: Recipe, work: Work, name: str = "") -> tuple[float, Path]:
    """The lambda with the best validation, of equal ones the last, and the folder of its training.

    ``name``: a user's model; BERT-base without one.
    """
    tried = {
        weight: _improve(recipe, work, name, f"lambda-{weight:g}", weight=weight)
        for weight in LAMBDAS
    }

    from consilience.train.consistency import rank

    best = max(reversed(LAMBDAS), key=lambda one: rank(tried[one][1], "consistent_accuracy"))
    return best, tried[best][0]


def _improve(
    recipe: Recipe, work: Work, name: str, part: str, **more: Any
) -> tuple[Path, Mapping[str, float]]:
    """The folder of a training, and its validation; without numbers in a dry run."""
    from consilience.train.improvement import improve

    row = name or "BERT-base"
    folder = work.folder_of(row, "pararel-improve") / part
    options = ImproveOptions(
        model=recipe.models[row], suite="pararel", train_groups=TRAIN,
        validation_groups=VALIDATION, seeds=(SEED,), out=folder, device=work.training_device,
        **{"loss": "pairs", **more},
    )  # fmt: skip
    made: Any = work.call("improve", improve, options)
    return folder, made.facts["outcomes"][0]["validation"] if made else {}


def _probed(recipe: Recipe, work: Work) -> dict[str, Probed]:
    """The runs of the available models."""
    runs = {
        row: work.attempt(row, partial(work.probe, row, spec))
        for row, spec in recipe.models.items()
    }
    return {row: run for row, run in runs.items() if run}


def _all_available(recipe: Recipe, work: Work, runs: Collection[str], *rows: str) -> bool:
    """Whether all models of the paper have a run; if not, the rows that need them are marked."""
    models = [row for row in recipe.models if row not in work.added]
    missing = ", ".join(row for row in models if row not in runs)
    if missing and not work.options.dry_run:
        reason = f"needs all models of the paper; missing: {missing}"
        work.reasons |= {row: [reason] for row in rows}
    return not missing
