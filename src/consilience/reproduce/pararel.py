"""Numbers of ParaRel (Elazar et al., TACL 2021): the functions that ``recipes.toml`` names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import binomtest

from consilience.core.factors import Part
from consilience.core.schemas import COMPARISON_SCHEMA, METRICS_SCHEMA
from consilience.metrics.statistics import NAN, holm
from consilience.report.papers import Measured
from consilience.reproduce.recipe import UNAVAILABLE, Numbers, Recipe, Work
from consilience.runs.run import read_answers
from consilience.suites.layouts import N_TO_1

ADDED = "added"  # The block of a user's models
BY_HAND = "counted by hand"  # The reason for a number of ours that only people can find

TRAIN, VALIDATION = ("P364", "P138", "P449"), ("P159", "P176", "P37")
TEST = [relation for relation in N_TO_1 if relation not in TRAIN + VALIDATION]
SEED = "42"
AFTER = f"seed-{SEED}/improved/after"  # The run after a training, in its folder

LAMBDAS = ("0.1", "0.5", "1")  # Tried in Section 8.2; validation chooses
ABLATIONS: Mapping[str, tuple[str, Sequence[str]]] = {
    "-consistency": ("no-consistency", ("--weight", "0")),
    "-typed": ("no-typing", ("--loss", "pairs-vocabulary")),
    "-MLM": ("no-mlm", ("--mlm", "none")),
}
"""The folder of the training of an ablation of Table 7, and its options."""

COEFFICIENTS = {"pearson": "Correlation Accuracy/Consistency", "spearman": "the same, Spearman's"}


def model_means(recipe: Recipe, work: Work) -> Numbers:
    """Means over relations in each model's run, and with ``micro`` also over all facts."""
    blocks = recipe.blocks()
    numbers: Numbers = {}
    for row, run in _probed(recipe, work, is_read=True).items():
        measured = read_numbers(run, recipe.columns)
        if recipe.details.get("micro"):
            pooled = read_numbers(run, recipe.columns, over="all")
            measured |= {f"{column}, micro": number for column, number in pooled.items()}
        numbers |= _keyed(blocks.get(row, ADDED), row, measured)
    return numbers


def single_relations(recipe: Recipe, work: Work) -> Numbers:
    """Original language (P364) by model; capital of (P1376) and owned by (P127) of BERT-large."""
    added = work.request.added
    runs = _probed(recipe, work)
    work.stop_if_dry()
    rows = {
        row: numbers["Consistency"]
        for row, run in runs.items()
        if (numbers := read_numbers(run, recipe.columns, "P364", over="group"))
    }
    of_paper = [number for row, number in rows.items() if row not in added]
    if _all_available(recipe, work, rows, "lowest model", "highest model"):
        lowest, *_, highest = sorted(of_paper, key=lambda number: number.value)
        rows |= {"lowest model": lowest, "highest model": highest}
    keyed: Numbers = {
        ("original-language", row, "Consistency"): number for row, number in rows.items()
    }
    if "BERT-large" in runs:
        for block, relation in (("capital-of", "P1376"), ("owned-by", "P127")):
            measured = read_numbers(runs["BERT-large"], recipe.columns, relation, over="group")
            keyed |= _keyed(block, "BERT-large", measured)
    return keyed


def correlations(recipe: Recipe, work: Work) -> Numbers:
    """Coefficients over relations, times 100, of each model, and the largest p of all models."""
    runs = _probed(recipe, work)
    is_complete = _all_available(recipe, work, runs, "all models")
    if not runs:
        return {}
    document = work.read("", "analyze", "knowledge", *(f"{row}={run}" for row, run in runs.items()))
    chosen = ("accuracy", "consistency")
    rows = [row for row in document["correlations"] if (row["x"], row["y"]) == chosen]
    numbers: Numbers = {
        ("", row["run"], COEFFICIENTS[row["method"]]): _percent(row, "r%") for row in rows
    }
    if rows and is_complete:
        added = work.request.added
        pearson = [row for row in rows if row["method"] == "pearson" and row["run"] not in added]
        largest = np.max([_number(row["p"]) for row in pearson])
        numbers["", "all models", "p (correlation)"] = Measured(float(largest))
    return numbers


def statistics(recipe: Recipe, work: Work) -> Numbers:
    """Counts of patterns, and of their kinds in syntax and in words."""
    document = work.read("", "suite", "check", "pararel")
    fields = recipe.details["fields"].items()
    return {("", row, "Value"): Measured(_number(document[name])) for row, name in fields}


def tuples(recipe: Recipe, work: Work) -> Numbers:
    """How many facts the paper's filters leave, and how many relations have one right answer.

    Of each kind also how many subjects have several objects, and objects several subjects (note 3).
    """
    document = work.read("", "suite", "check", "pararel")
    numbers: Numbers = {("", "all relations", "Tuples"): Measured(document["facts"])}
    for kind in ("N-M", "N-1"):
        rows = [row for row in document["by_relation"] if row["cardinality"] == kind]
        numbers["", kind, "Relations"] = Measured(len(rows))
        for column, shared, total in (
            ("subjects with several objects", "shared_subjects", "subjects"),
            ("objects with several subjects", "shared_objects", "candidates"),
        ):
            counts = [sum(row[name] for row in rows) for name in (shared, total)]
            share = 100 * counts[0] / counts[1] if counts[1] else NAN
            numbers["", kind, column] = Measured(share, unit="percent")
    return numbers


def agreement(recipe: Recipe, work: Work) -> Numbers:
    """The shares of the pairs, with Wilson's interval."""
    numbers: Numbers = {}
    for row, (intended, pairs) in recipe.details["counts"].items():
        low, high = binomtest(intended, pairs).proportion_ci(method="wilson")
        share = Measured(100 * intended / pairs, NAN, 100 * low, 100 * high)
        numbers |= {("", row, "Pairs"): Measured(pairs), ("", row, "Agreement"): share}
    return numbers


def example_answers(recipe: Recipe, work: Work) -> Numbers:
    """The paper's examples, then the most informative one of each kind of ours, as notes."""
    ((row, spec),) = recipe.models.items()
    run = work.attempt(row, partial(work.probe, row, spec))
    read = partial(work.read, row, "analyze", "examples", str(run), "--examples", "1")
    document = work.attempt(row, read) if run else None
    if run is None or document is None:
        return {}
    answers = read_answers(run)
    for number, example in enumerate(recipe.details["examples"], 1):
        subject = example["subject"]
        rows = answers.filter(pl.col("group") == example["relation"], pl.col("subject") == subject)
        if rows.is_empty():
            work.told.append(f"example {number}, {subject}: not in the run")
            continue
        ours = dict(rows.select("variant", "answer").iter_rows())
        replies = [f"'{text}' {paper}, ours {ours.get(text)}" for text, paper in example["answers"]]
        right = ", ".join(rows["gold"].unique(maintain_order=True))
        work.told.append(f"example {number}, {subject} (right: {right}): {'; '.join(replies)}")
    for example in document["examples"]:
        firsts = {reply["answer"]: reply["variant"] for reply in reversed(example["replies"])}
        replies = [f"'{text}' {answer}" for answer, text in list(firsts.items())[:-4:-1]]
        about = f"{example['kind']}: {example['group']}, {example['subject']} ({example['gold']})"
        work.told.append(f"{about}: {'; '.join(replies)}")
    return {}


def clusters(recipe: Recipe, work: Work) -> Numbers:
    """The first 30 facts of P36 in all patterns, and what the vectors of all facts cluster by."""
    options = ("--groups", "P36", "--limit", "1000")
    ((row, spec),) = recipe.models.items()
    document = _vectors(work, row, spec, "pararel-figure-3", *options)
    numbers: Numbers = {}
    for cluster in document.get("clusters", ()):
        numbers |= _clustered(("", row), cluster)
    work.files += [Path(document["figure"])] if document else []
    return numbers


def vector_correlations(recipe: Recipe, work: Work) -> Numbers:
    """Spearman's coefficient over relations, times 100; p adjusted over models (Holm); clusters."""
    blocks = recipe.blocks()
    numbers: Numbers = {}
    tested: dict[tuple[str, str], float] = {}
    for row, spec in recipe.models.items():
        document = _vectors(work, row, spec, "pararel-vectors")
        key = blocks.get(row, ADDED if row in work.request.added else ""), row
        for vectors in document.get("correlations", ()):
            if vectors["property"] == "subject":
                numbers[*key, "Spearman Consistency/V-measure"] = _percent(vectors, "r%")
                numbers[*key, "p (Spearman)"] = Measured(_number(vectors["p"]), unit="p")
                tested[key] = _number(vectors["p"])
            else:
                numbers[*key, f"Spearman, by {vectors['property']}"] = _percent(vectors, "r%")
            numbers |= _clustered(key, vectors)
    if len(tested) > 1:
        for key, p in zip(tested, holm(list(tested.values())), strict=True):
            numbers[*key, "p (Spearman, Holm)"] = Measured(p, unit="p")
    return numbers


def _vectors(work: Work, row: str, spec: str, part: str, *more: str) -> dict[str, Any]:
    request = work.request
    run = partial(
        work.read, row, "analyze", "representations", "--model", spec,
        "--suite", "pararel", *more, "--out", request.folder_of(row, part),
        "--device", request.device,
    )  # fmt: skip
    return work.attempt(row, run) or {}


def _clustered(key: tuple[str, str], cluster: Mapping[str, Any]) -> Numbers:
    return {
        (*key, f"{label} by {cluster['property']}"): Measured(100 * _number(cluster[name]))
        for label, name in (("V-measure", "v_measure"), ("AMI", "ami"))
    }


def improvement(recipe: Recipe, work: Work) -> Numbers:
    """Means over the 25 test relations before and after training on three, chosen by three."""
    blocks = recipe.blocks()
    numbers: Numbers = {}
    spec, groups = recipe.models["majority"], ",".join(TEST)
    asked = partial(work.probe, "majority", spec, "--groups", groups, part="pararel-test")
    if run := work.attempt("majority", partial(asked, is_read=True)):
        numbers |= _keyed(blocks["majority"], "majority", read_numbers(run, recipe.columns))
    for name in ("", *work.request.added):
        base, after = (name, f"{name}-ft") if name else ("BERT-base", "BERT-ft")
        rows = [base, after, *(() if name else ABLATIONS)]
        rows = [row for row in rows if work.is_selected(row)]
        if rows and (trained := work.attempt(name, partial(_trained, recipe, work, name))):
            for row in rows:
                folder = trained[row if row in ABLATIONS else ""]
                part = "before" if row == base else AFTER
                measured = read_numbers(folder / part, recipe.columns)
                numbers |= _keyed(blocks.get(row, ADDED), row, measured)
    return numbers


def improvement_tests(recipe: Recipe, work: Work) -> Numbers:
    """Differences of means over the test relations, in points; p over their pooled facts."""
    _, folder = _best(recipe, work)
    work.stop_if_dry()
    path = folder / f"seed-{SEED}/improved/comparison.csv"
    table = pl.read_csv(path, schema_overrides=COMPARISON_SCHEMA).filter(kind="whole")
    rows = {(row["metric"], row["over"]): row for row in table.iter_rows(named=True)}
    numbers: Numbers = {}
    name = "BERT-ft vs BERT-base"
    for column, (metric, *_) in recipe.columns.items():
        means, pooled = rows[metric, "mean"], rows[metric, "all"]
        difference = {"value": means["difference"], "low": means["low"], "high": means["high"]}
        numbers["", name, column] = _percent(difference, "points")
        numbers["", name, f"p of {column}, {pooled['test']}"] = Measured(pooled["p"], unit="p")
    tested = [rows[metric, "all"]["p"] for metric in ("accuracy", "consistent_accuracy")]
    numbers["", name, "p (McNemar)"] = Measured(max(tested))
    return numbers


def _trained(recipe: Recipe, work: Work, name: str = "") -> dict[str, Path]:
    """The folders of the trainings: of the best lambda (""), and with it of each ablation.

    ``name``: a user's model, which has no ablations.
    """
    best, folder = _best(recipe, work, name)
    folders = {"": folder}
    for row, (part, options) in ABLATIONS.items() if not name else ():
        folders[row], _ = _improve(recipe, work, name, part, "--weight", best, *options)
    work.stop_if_dry()
    return folders


def _best(recipe: Recipe, work: Work, name: str = "") -> tuple[str, Path]:
    """The lambda with the best validation, of equal ones the largest, and its training's folder."""

    def rank(weight: str) -> list[float]:
        values = tried[weight][1]
        return [values.get(name, -1.0) for name in ("consistent_accuracy", "corrected_consistency")]

    tried = {
        weight: _improve(recipe, work, name, f"lambda-{weight}", "--weight", weight)
        for weight in LAMBDAS
    }
    best = max(reversed(LAMBDAS), key=rank)
    return best, tried[best][0]


def _improve(
    recipe: Recipe, work: Work, name: str, part: str, *options: str
) -> tuple[Path, Mapping[str, float]]:
    """The folder of a training, and its validation."""
    request, row = work.request, name or "BERT-base"
    folder = request.folder_of(row, "pararel-improve") / part
    document = work.run(
        name, "improve", "--model", recipe.models[row],
        "--suite", "pararel", "--train-groups", ",".join(TRAIN),
        "--validation-groups", ",".join(VALIDATION), "--loss", "pairs", "--seeds", SEED, *options,
        "--out", folder, "--device", request.training_device,
    )  # fmt: skip
    (outcome,) = document.get("outcomes", [{"validation": {}}])
    return folder, outcome["validation"]


def paraphrase_types(recipe: Recipe, work: Work) -> Numbers:
    """The paper's counts by hand of 100 pairs, of which we have none."""
    if not work.request.dry:
        work.reasons["", ""] = BY_HAND
    return {}


def _probed(recipe: Recipe, work: Work, *, is_read: bool = False) -> dict[str, Path]:
    """The runs of the available models; in a dry run of all selected, or none to be read."""
    runs = {
        row: work.attempt(row, partial(work.probe, row, spec, is_read=is_read))
        for row, spec in recipe.models.items()
    }
    return {row: run for row, run in runs.items() if run}


def _all_available(recipe: Recipe, work: Work, runs: Collection[str], *rows: str) -> bool:
    """Whether all models of the paper have a run; if not, the rows that need them are marked."""
    models = [row for row in recipe.models if row not in work.request.added]
    if missing := ", ".join(row for row in models if row not in runs):
        reason = f"{UNAVAILABLE}: needs all models of the paper; missing: {missing}"
        work.reasons |= dict.fromkeys([(row, "") for row in rows], reason)
    return not missing


def read_numbers(
    run: Path, columns: Mapping[str, tuple[str, Part]], group: str = "", over: str = "mean"
) -> dict[str, Measured]:
    """Numbers of a run's metrics table by the paper's columns, as far as the table has them."""
    table = pl.read_csv(run / "metrics.csv", schema_overrides=METRICS_SCHEMA)
    rows = table.filter(group=group, over=over).iter_rows(named=True)
    numbers = {(row["metric"], (row["kind"], row["level"])): _percent(row) for row in rows}
    return {column: numbers[key] for column, key in columns.items() if key in numbers}


def _keyed(block: str, row: str, numbers: Mapping[str, Measured]) -> Numbers:
    return {(block, row, column): number for column, number in numbers.items()}


def _number(value: float | None) -> float:
    return NAN if value is None else float(value)


def _percent(row: Mapping[str, Any], unit: str = "") -> Measured:
    """``value, std, low, high`` of a row, as far as it has them: fractions times 100."""
    names = ("value", "std", "low", "high")
    value, std, low, high = (100 * _number(row.get(name)) for name in names)
    return Measured(value, std, low, high, unit)
