"""The command ``improve``: plan, train, and compare runs before and after."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from scipy.special import stdtrit

from consilience.core.errors import SILENT, ConsilienceError, Progress
from consilience.core.items import Floats
from consilience.core.text import counted, listed
from consilience.files.write import csv_of, write_whole
from consilience.metrics.differences import compare
from consilience.metrics.measure import FEWEST, legible
from consilience.metrics.registry import label_of
from consilience.metrics.statistics import LEVEL
from consilience.models.loading import locate
from consilience.options.commands import ImproveOptions, ProbeOptions
from consilience.plans import kind_of, plan_of
from consilience.probing import CountedRun, probe
from consilience.report.cautions import Known, cautions
from consilience.report.layouts import DIFFERENCE, comparison_table, verdict
from consilience.report.table import Column, Columns, Output, Table, frame_table
from consilience.runs.folder import default_folder
from consilience.suites.questions import Questions
from consilience.train import TrainingFolder, refuse_device
from consilience.train.consistency import (
    PIPELINES,
    SAMPLE_SEED,
    TIE_METRIC,
    Training,
    text_losses,
    train,
)
from consilience.types import Suite

MARGIN = 2.0
"""A harm is ruled out where the 95 % interval of a loss ends within this many points."""

TEXT, LINES = "Perplexity of text, relative", 500  # It is that of the first so many lines

Losses = tuple[Floats, Floats]  # Of each line of text, and its number of words
Measure = tuple[ProbeOptions, Suite | Questions | None]  # What is asked before and after


def improve(options: ImproveOptions, progress: Progress = SILENT) -> Output:
    """Plan, train, and compare the model before and after."""
    training = Training.of(options)
    training.check()
    settings = training.settings | {
        "suite": f"improve-{training.suite.name}", "digest": training.suite.digest,
        "limit": options.limit, "also": options.also,
        "text": options.text and str(options.text),
    }  # fmt: skip
    folder = options.out or default_folder(options.model, settings)
    return train_and_measure(training, folder, progress)


def train_and_measure(training: Training, folder: Path, progress: Progress = SILENT) -> Output:
    """Train, and measure what was not trained before and after.

    ``folder`` gets the run ``before``, and ``seed-N``: what ``train`` writes, the run ``after`` and
    ``comparison.csv``; what else is measured ends in its name. Existing output is reused. Another
    training in the folder raises before anything is trained.
    """
    options, measures = training.options, measures_of(training)
    place = folder / f"seed-{options.seed}"
    TrainingFolder(place, training.settings).record("weights")  # a vote trains another model
    plan = planned(training, measures)
    if options.dry_run:
        return plan
    refuse_device(options)
    training.load()  # another kind of model raises
    before = _measured(measures, options.model, folder / "before", progress)
    lines, loading = training.lines[:LINES], replace(training.loading, device=options.device)
    if lines:
        progress.say("measuring the perplexity of the text")
    losses = text_losses(options.model, lines, loading) if lines else None
    if training.has_teacher:
        progress.say(f"training the teacher, seed {options.seed}")
        teacher = folder / f"teacher-{options.seed}"
        train(training.with_options(loss="pairs", weight=0.0), teacher, progress)
        training = training.with_options(model=str(teacher / "model"))
    progress.say(f"training seed {options.seed}, weight {options.weight:g}")
    record, model = train(training, place, progress), place / "model"
    after = _measured(measures, model, place / "after", progress)
    harms, compared = list[dict[str, Any]](), dict[str, pl.DataFrame]()
    for name, run in before.items():
        tables = {"before": run.checked, "after": after[name].checked}
        compared[name] = compare(tables, run.suite, run.protocol)
        write_whole(_beside(place / "comparison", name, ".csv"), csv_of(compared[name]))
        harms += harm_rows(compared[name], run.suite, name)
    if losses is not None:
        harms.append(text_row(losses, text_losses(str(model), lines, loading)))
    facts = {name: record[name] for name in ("validation", "checkpoint")}
    facts |= {"harm": harms, "model": str(model)}
    runs = {"before": before[""], "after": after[""]}
    return improvement(options, folder, runs, compared[""], facts)


def measures_of(training: Training) -> dict[str, Measure]:
    """What is measured before and after, by name; the first are the held-out groups.

    Then these groups in each held-out factor, and the suites that ``--also`` names.
    """
    options, groups = training.options, training.test_groups
    measures: dict[str, Measure] = {"": (training.asked(groups, options.limit), training.suite)}
    for factor in options.hold_out_factor:
        measures[factor] = training.asked(groups, options.limit, [factor]), training.suite
    for suite in options.also:
        if (name := Path(suite).stem) in measures:
            raise ConsilienceError(f"--also {suite}", expected="suites of different names")
        how: dict[str, Any] = {}
        if training.asks_questions and kind_of(suite) == "questions":  # scored as it is trained
            how = {"template": options.template, "option_score": options.option_score}
        measures[name] = ProbeOptions(
            model=options.model, suite=suite, limit=options.limit, seed=SAMPLE_SEED,
            device=options.device, trust_remote_code=options.trust_remote_code, **how,
        ), None  # fmt: skip
    return measures


def planned(training: Training, measures: Mapping[str, Measure]) -> Output:
    """What a training reads, and what is asked before and after it; nothing is loaded."""
    options, suite = training.options, training.suite
    asked = {name or "held out": plan_of(*measure) for name, measure in measures.items()}
    learned = plan_of(training.asked(options.train_groups, options.train_facts), suite)
    validated = training.asked(options.validation_groups, options.validation_facts)
    parts = {"train": learned, "validation": plan_of(validated, suite), **asked}
    lines = list[str]()
    for name in ("train", "validation", "held out"):
        count = sum(len(group.facts) for group in parts[name].suite)
        item = parts[name].suite.words.item
        lines.append(f"{name}: {counted(count, item)} of {listed([*parts[name].sizes])}")
    counts = [len(group.facts) for group in learned.suite]
    _, updates, interval = training.schedule([sum(counts)] if training.asks_questions else counts)
    queries = {name: sum(part.sizes.values()) for name, part in parts.items()}
    work = f"{counted(updates, 'update')}, and {counted(updates // interval, 'checkpoint')}"
    teacher = "; as much before for a teacher" * training.has_teacher
    lines += [
        f"work: {work} of {queries['validation']:,} validation queries{teacher}",
        "queries before, and again after: " + ", ".join(f"{queries[of]:,} {of}" for of in asked),
        "Nothing was trained. Rerun without --dry-run to start.",
    ]
    return Output(shown=lines, facts={"queries": queries})


def _measured(
    measures: Mapping[str, Measure], model: str | Path, place: Path, progress: Progress
) -> dict[str, CountedRun]:
    runs = dict[str, CountedRun]()
    for name, (options, suite) in measures.items():
        asked = replace(options, model=str(model), out=_beside(place, name))
        progress.say(f"measuring {asked.out}")
        runs[name] = probe(asked, progress, suite=suite)
    return runs


def _beside(place: Path, name: str, suffix: str = "") -> Path:
    """Where a measure is kept: at the place, or beside it with its name."""
    return place.with_name(f"{place.name}{'-' * bool(name)}{name}{suffix}")


def harm_rows(compared: pl.DataFrame, suite: Suite, name: str) -> Iterator[dict[str, Any]]:
    """What a training changed of accuracy in all variants and of agreement (``harm_table``).

    ``compared``: the runs before and after (``COMPARISON_SCHEMA``). ``name``: of a measure.
    """
    table = legible(compared).filter(over=suite.words.over, kind="whole")
    for metric in ("mean_accuracy", TIE_METRIC):
        for row in table.filter(metric=metric).to_dicts():
            yield {
                "what": f"{label_of(metric)}, {name or f'held-out {suite.words.group}s'}",
                "before": row["first_value"], "after": row["second_value"],
                **{of: row[of] for of in ("difference", "low", "high")},
            }  # fmt: skip


def text_row(before: Losses, after: Losses) -> dict[str, Any]:
    """How much the perplexity of text rises: the relative change, and its 95 % interval over lines.

    No interval where all lines change alike, and with fewer than ``FEWEST`` lines. ``before``,
    ``after``: the losses of the lines (``text_losses``).
    """
    (first, words), (second, _) = before, after
    change = (second - first).sum() / words.sum()
    lines = int((words > 0).sum())
    parts = (second - first - change * words)[words > 0] * lines / words.sum()
    error = parts.std(ddof=1) / math.sqrt(lines) if lines >= FEWEST else 0.0
    far = error * float(stdtrit(lines - 1, (1 + LEVEL) / 2)) if error else math.nan
    first_value, second_value = (math.exp(x.sum() / words.sum()) for x in (first, second))
    return {
        "what": TEXT, "before": first_value, "after": second_value,
        "difference": math.expm1(change), "low": math.expm1(change - far),
        "high": math.expm1(change + far), "is_cost": True,
    }  # fmt: skip


def harm_of(row: Mapping[str, Any]) -> str:
    """What a row says: a harm, none within the margin, or neither."""
    worst, best = (-row["high"], -row["low"]) if row.get("is_cost") else (row["low"], row["high"])
    if worst >= -MARGIN / 100:
        return f"none within {MARGIN:g}"
    return "harm" if best < 0 else "not ruled out"


def harm_verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """The harm of a training in a sentence: that shown, else that not ruled out, else none."""
    open_ = f"A harm of more than {MARGIN:g} points is not ruled out"
    for of, start in (("harm", "Harm"), ("not ruled out", open_)):
        if named := [row["what"] for row in rows if harm_of(row) == of]:
            return f"{start}: {'; '.join(named)}."
    return f"No harm shown within {MARGIN:g} points."


def harm_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """What a training may have cost, in percent and points."""
    shown = [
        {**row, "harm": harm_of(row)}
        | {of: f"{row[of]:.2f}" for of in ("before", "after") if row["what"] == TEXT}
        for row in rows
    ]  # fmt: skip
    columns: Columns = {
        "what": Column("what"), "before": Column("before", "share"),
        "after": Column("after", "share"), **DIFFERENCE, "harm": Column("harm"),
    }  # fmt: skip
    notes = [f"harm: none where the 95 % interval ends within {MARGIN:g} points of no change"]
    return frame_table(shown, "Harm: what the training may have cost", columns, notes)


def improvement(
    options: ImproveOptions,
    folder: Path,
    runs: Mapping[str, CountedRun],
    compared: pl.DataFrame,
    facts: Mapping[str, Any],
) -> Output:
    """What training changed on the held-out groups, and the harm.

    ``runs``: before and after. ``compared``: both (``COMPARISON_SCHEMA``).
    ``facts``: what ``train`` records, ``harm`` (``harm_table``) and the ``model``.
    """
    suite, model, checkpoint = runs["before"].suite, Path(facts["model"]), facts["checkpoint"]
    updates = f"{checkpoint['step']} of {counted(checkpoint['updates'], 'update')}"
    paths = f"before={folder / 'before'} after={model.with_name('after')}"
    base, task = locate(options.model).base, PIPELINES[suite.words.is_pooled]
    adapter = [f"Its adapter, where {base} is or can be fetched: {model.with_name('adapter')}"]
    shown: list[Table | str] = [
        comparison_table(compared, suite),
        harm_table(facts["harm"]),
        f"Model (seed {options.seed}, after {updates}): {model}",
        *adapter * bool(options.lora_rank),
        "Load it:",
        "  from transformers import pipeline",
        f'  model = pipeline("{task}", model="{model}")',
        f"More: consilience report {paths} --out {folder / 'report.html'}",
    ]
    few = f"No change can be tested: there are too few held-out {suite.words.item}s."
    changed = verdict(compared, suite) or [few]
    notes = cautions(Known(suite=suite, compared=compared))
    tables = {"differences": compared, **{name: run.metrics for name, run in runs.items()}}
    return Output(tables, shown, [*changed, harm_verdict(facts["harm"])], notes, facts)
