"""Numbers of ParaRel (Elazar et al., TACL 2021): the functions that ``recipes.toml`` names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import binomtest

from consilience.analysis.patterns import correlation_table
from consilience.authoring.checks import sizes_of
from consilience.core.errors import Progress
from consilience.core.schemas import COMPARISON_SCHEMA, METRICS_SCHEMA
from consilience.metrics.statistics import NAN
from consilience.options.commands import ImproveOptions, ProbeOptions
from consilience.probing import CountedRun
from consilience.report.table import Column, Output, Table
from consilience.reproduce import ADDED, Measured, Numbers, Recipe, Work, in_percent, selected
from consilience.results.analyses import analyze_representations
from consilience.suites import load_suite
from consilience.suites.facts import N_TO_1

TRAIN, VALIDATION = ("P364", "P138", "P449"), ("P159", "P176", "P37")
TEST = [relation for relation in N_TO_1 if relation not in TRAIN + VALIDATION]
SEED = 42
AFTER = f"seed-{SEED}/after"  # The run after a training, in its folder

LAMBDAS = (0.1, 0.5, 1.0)  # Tried in Section 8.2; validation chooses
FACTS = 100  # Of each relation whose vectors are clustered
COEFFICIENTS = {"pearson": "Correlation Accuracy/Consistency", "spearman": "the same, Spearman's"}


def _probed(recipe: Recipe, work: Work) -> dict[str, CountedRun]:
    """The runs of the available models; none in a dry run."""
    runs = {
        row: work.attempt(row, partial(work.probe, row, spec, work.folder_of(row)))
        for row, spec in recipe.models.items()
    }
    return {row: run for row, run in runs.items() if run}


def _of_the_paper(recipe: Recipe, work: Work, runs: Mapping[str, object]) -> list[str]:
    """The paper's models if all of them have a run, else none."""
    models = [row for row in recipe.models if row not in work.added]
    return models if {*models} <= runs.keys() else []


def model_means(recipe: Recipe, work: Work) -> Numbers:
    """Means over relations in each model's run."""
    numbers: Numbers = {}
    for row, run in _probed(recipe, work).items():
        numbers |= selected(run.metrics, recipe, row, group="", over="mean")
    return numbers


def single_relations(recipe: Recipe, work: Work) -> Numbers:
    """Original language (P364) by model; capital of (P1376) and owned by (P127) of BERT-large."""
    runs, numbers, column = _probed(recipe, work), Numbers(), "Consistency"
    places = [("original-language", "P364", row) for row in runs]
    places += [("capital-of", "P1376", "BERT-large"), ("owned-by", "P127", "BERT-large")]
    for block, relation, row in places:
        if row in runs:
            of_relation = {"group": relation, "over": "group"}
            numbers |= selected(runs[row].metrics, recipe, row, block, **of_relation)
    block = places[0][0] if runs else ""
    of_paper = [numbers[block, row, column] for row in _of_the_paper(recipe, work, runs)]
    if of_paper:
        lowest, *_, highest = sorted(of_paper, key=lambda number: number.value)
        numbers |= {(block, "lowest model", column): lowest}
        numbers |= {(block, "highest model", column): highest}
    return numbers


def correlations(recipe: Recipe, work: Work) -> Numbers:
    """Coefficients over relations, times 100, of each model, and the largest p of all models."""
    runs, numbers = _probed(recipe, work), Numbers()
    if not runs:
        return numbers
    table = correlation_table({row: run.metrics for row, run in runs.items()})
    rows = table.filter(x="accuracy", y="consistency").to_dicts()
    for row in rows:
        numbers["", row["run"], COEFFICIENTS[row["method"]]] = in_percent(row, "r%")
    models = _of_the_paper(recipe, work, runs)
    p = [row["p"] for row in rows if row["method"] == "pearson" and row["run"] in models]
    if p:
        numbers["", "all models", "p (correlation)"] = Measured(float(np.max(p)))
    return numbers


def statistics(recipe: Recipe, work: Work) -> Numbers:
    """Counts of patterns, and of their kinds in syntax and in words."""
    counts, fields = _sizes(work).facts, recipe.details["fields"].items()
    return {("", row, "Value"): Measured(counts[name]) for row, name in fields}


def tuples(recipe: Recipe, work: Work) -> Numbers:
    """How many facts the paper's filters leave, and how many relations have one right answer."""
    sizes = _sizes(work)
    numbers: Numbers = {("", "all relations", "Tuples"): Measured(sizes.facts["facts"])}
    for kind in ("N-M", "N-1"):
        relations = sizes.tables["by_group"].filter(cardinality=kind)
        numbers["", kind, "Relations"] = Measured(relations.height)
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


def example_answers(recipe: Recipe, work: Work) -> Table:
    """The paper's examples with the answers of each model to them."""
    answers = {row: run.checked.answers for row, run in _probed(recipe, work).items()}
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
    columns = [Column("pattern"), Column("paper, BERT-large"), *map(Column, answers)]
    return Table(recipe.title, columns, rows, blocks=blocks)


def clusters(recipe: Recipe, work: Work) -> Numbers:
    """The first 30 facts of P36 in all patterns, and what the vectors of all facts cluster by."""
    numbers: Numbers = {}
    for row, found in _vectors(recipe, work, "pararel-figure-3", groups=("P36",), limit=1000):
        for cluster in found.tables["clusters"].to_dicts():
            numbers |= _clustered(("", row), cluster)
        work.note(row, [f"the figure is {found.facts['figure']}"])
    return numbers


def vector_correlations(recipe: Recipe, work: Work) -> Numbers:
    """Spearman's coefficient over relations, times 100; what the vectors cluster by."""
    numbers: Numbers = {}
    for row, found in _vectors(recipe, work, "pararel-vectors", limit=FACTS):
        key = recipe.block_of(row), row
        for vectors in found.tables["correlations"].to_dicts():
            if vectors["property"] == "subject":
                numbers[*key, "Spearman Consistency/V-measure"] = in_percent(vectors, "r%")
                numbers[*key, "p (Spearman)"] = Measured(vectors["p"], unit="p")
            numbers |= _clustered(key, vectors)
    return numbers


def _vectors(recipe: Recipe, work: Work, part: str, **more: Any) -> Iterator[tuple[str, Output]]:
    """What the vectors of the last layer of each available model give; nothing in a dry run."""

    def analyze(options: ProbeOptions, progress: Progress) -> Output:
        return analyze_representations(options, (-1,), progress)

    for row, spec in recipe.models.items():
        options = ProbeOptions(
            model=spec, suite="pararel", out=work.folder_of(row, part),
            device=work.options.device, **more,
        )  # fmt: skip
        call = partial(work.call, "analyze representations", analyze, options)
        if found := work.attempt(row, call):
            work.note(row, found.cautions)
            yield row, found


def _clustered(key: tuple[str, str], cluster: Mapping[str, Any]) -> Numbers:
    return {
        (*key, f"{label} by {cluster['property']}"): Measured(100 * cluster[name])
        for label, name in (("V-measure", "v_measure"), ("AMI", "ami"))
    }


def improvement(recipe: Recipe, work: Work) -> Numbers:
    """Means over the 25 test relations before and after training on three, chosen by three."""
    folder, runs = work.folder_of("majority", "pararel-test"), dict[str, Path]()
    probe = partial(work.probe, "majority", recipe.models["majority"], folder, groups=TEST)
    if work.attempt("majority", probe):
        runs["majority"] = folder
    for name in ("BERT-base", *work.added):
        is_own = name in work.added
        after, ablations = f"{name}-ft" if is_own else "BERT-ft", recipe.details["ablations"]
        ablations = {} if is_own else ablations
        if not any(map(work.is_selected, (name, after, *ablations))):
            continue
        if best := work.attempt(name * is_own, partial(_best, recipe, work, name)):
            runs |= {name: best[1] / "before", after: best[1] / AFTER}
            for row, options in ablations.items():
                training = {"weight": best[0], **options}
                runs[row] = _improve(recipe, work, name, **training)[0] / AFTER
    numbers: Numbers = {}
    for row, run in runs.items():
        if (file := run / "metrics.csv").is_file():  # none in a dry run
            metrics = pl.read_csv(file, schema_overrides=METRICS_SCHEMA)
            numbers |= selected(metrics, recipe, row, group="", over="mean")
    return numbers


def improvement_tests(recipe: Recipe, work: Work) -> Numbers:
    """Differences of means over the test relations, in points; p over their pooled facts."""
    numbers: Numbers = {}
    for name in ("BERT-base", *work.added):
        key = (ADDED, name) if name in work.added else ("", "BERT-ft vs BERT-base")
        best = work.attempt(key[1], partial(_best, recipe, work, name))
        file = best[1] / f"seed-{SEED}" / "comparison.csv" if best else None
        if not (file and file.is_file()):  # none in a dry run
            continue
        table = pl.read_csv(file, schema_overrides=COMPARISON_SCHEMA).fill_null(NAN)
        rows = {(row["metric"], row["over"]): row for row in table.filter(kind="whole").to_dicts()}
        for column, (metric, *_) in recipe.columns.items():
            means = rows[metric, "mean"]
            numbers[*key, column] = in_percent({**means, "value": means["difference"]}, "points")
        tested = [rows[metric, "all"]["p"] for metric in ("accuracy", "consistent_accuracy")]
        numbers[*key, "p (McNemar)"] = Measured(max(tested))
    return numbers


def _best(recipe: Recipe, work: Work, row: str) -> tuple[float, Path]:
    """The lambda with the best validation, of equal ones the last, and its folder."""
    tried = {
        weight: _improve(recipe, work, row, f"lambda-{weight:g}", weight=weight)
        for weight in LAMBDAS
    }

    from consilience.train.consistency import rank

    best = max(reversed(LAMBDAS), key=lambda one: rank(tried[one][1], "consistent_accuracy"))
    return best, tried[best][0]


def _improve(
    recipe: Recipe, work: Work, row: str, part: str, **more: Any
) -> tuple[Path, Mapping[str, float]]:
    """The folder of a training, and its validation; without numbers in a dry run."""
    from consilience.train.improvement import improve

    folder = work.folder_of(row, "pararel-improve") / part
    options = ImproveOptions(
        model=recipe.models[row], suite="pararel", train_groups=TRAIN,
        validation_groups=VALIDATION, seed=SEED, out=folder, device=work.options.device,
        **{"loss": "pairs", **more},
    )  # fmt: skip
    made: Any = work.call("improve", improve, options)
    return folder, made.facts["validation"] if made else {}
