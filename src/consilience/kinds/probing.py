"""Probe a model: what is recorded of the options, asking group by group, counting."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience.asking.facts import Progress, ask_groups
from consilience.core.errors import ConsilienceError, UnansweredError
from consilience.core.process import SILENT, Watch
from consilience.core.text import counted
from consilience.files.tables import model_of_log
from consilience.files.write import csv_of, write_whole
from consilience.kinds import inquiries_of, protocol_notes, score_table, suite_notes, suite_of
from consilience.kinds.answers import WHERE
from consilience.kinds.base import Inquiry
from consilience.kinds.counting import (
    CountedRun,
    count_answers,
    count_run,
    noise_floor_of,
    save_counted,
    seed_notes,
)
from consilience.kinds.planning import (
    ProbePlan,
    Shard,
    ShardReport,
    complete_groups,
    sampled_plan,
)
from consilience.models import LanguageModel, Model
from consilience.options.probe import ProbeOptions
from consilience.options.runs import ScoreOptions
from consilience.report.export import record_of
from consilience.runs.folder import RunFolder
from consilience.runs.run import Run, model_name, options_record
from consilience.suites.questions import Questions
from consilience.types import Suite


def probe(
    options: ProbeOptions,
    watch: Watch = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | Model | None = None,
) -> CountedRun:
    """Ask a model a suite, measure its answers and keep the run; values may replace the names."""
    inquiries = inquiries_of(options, watch, suite=suite, model=model)
    return probe_all(inquiries, options_record(options, {"suite": suite, "model": model}), watch)


def probe_all(
    inquiries: Sequence[Inquiry], named: Mapping[str, Any], watch: Watch = SILENT
) -> CountedRun:
    """Ask what is not complete, count all answers, finish the run; ``named``: the options."""
    runs = []
    for inquiry in inquiries:
        runs.append(_finished(inquiry, _open_run(inquiry, named), watch))
        inquiry.release()
    return _together(inquiries, runs)


def _together(inquiries: Sequence[Inquiry], runs: Sequence[CountedRun]) -> CountedRun:
    """The numbers of the runs of all seeds together, which are written beside them."""
    first, counted = inquiries[0], runs[0]
    if counted.changed_answers is None:
        return counted
    options, folder = first.options, Path(counted.record["path"])
    if first.seed:
        answers = {
            one.seed: run.answers[0].answers for one, run in zip(inquiries, runs, strict=True)
        }
        name, noise = model_name(options.model), noise_floor_of(folder)
        counted = count_answers(answers, first.suite, first.protocol, name, options.seed, noise)
        folder = folder.parent
        write_whole(folder / "metrics.csv", csv_of(counted.metrics))
    changed = pl.concat(
        run.changed_answers.with_columns(pl.lit(one.seed).alias("seed"))
        for one, run in zip(inquiries, runs, strict=True)
        if run.changed_answers is not None
    ).sort("margin", descending=True, nulls_last=True)
    write_whole(folder / "changes.csv", csv_of(counted.changes))
    write_whole(folder / "inconsistent.csv", csv_of(changed))
    by_seed = {one.seed: run.notes for one, run in zip(inquiries, runs, strict=True)}
    of_seed = runs[0].record["settings"]
    settings = {name: of for name, of in of_seed.items() if name not in ("format", "model")}
    models = {one.seed: one.spec for one in inquiries}
    record = {"settings": settings, "models": models, "path": str(folder)}
    notes = seed_notes({"": first.notes} | by_seed)
    return replace(counted, notes=notes, record=record, changed_answers=changed)


def plan_shard(options: ProbeOptions, shard: Shard, watch: Watch = SILENT) -> ShardReport:
    """The groups that a shard of ``probe`` asks; no model is loaded."""
    return _part_of(inquiries_of(options, watch), shard)[0]


def probe_shard(
    options: ProbeOptions, shard: Shard, watch: Watch = SILENT
) -> CountedRun | ShardReport:
    """Ask a fixed part of the groups of a run.

    Of the last shard, after which all groups are complete, the numbers of the run. A model behind a
    URL raises: one process asks it.
    """
    if options.connection is not None:
        raise ConsilienceError(
            f"--shard with {options.model}, a model behind a URL",
            expected="a model that runs here",
            todo="Leave --shard out: one process sends many requests at once (--concurrency).",
        )
    inquiries = inquiries_of(options, watch)
    report, parts = _part_of(inquiries, shard)
    if not report.groups:
        return report
    named, left, path = options_record(options, {}), list[str](), ""
    counted: dict[str, CountedRun] = {}
    # Of a seed without a group in this part the model is loaded only if all others are complete.
    for inquiry in sorted(inquiries, key=lambda inquiry: not parts[inquiry.seed]):
        if left and not parts[inquiry.seed]:
            left += _names(inquiry, inquiry.groups)
            continue
        folder = _open_run(inquiry, named)
        ask_in_folder(inquiry, folder, parts[inquiry.seed], watch)
        complete = complete_groups(folder.path)[1]
        left += _names(inquiry, [group for group in inquiry.groups if group not in complete])
        path = str(folder.path.parent if inquiry.seed else folder.path)
        if not left:
            counted[inquiry.seed] = _finished(inquiry, folder, watch)
        inquiry.release()
    if left:
        return replace(report, left=left, folder=path)
    return _together(inquiries, [counted[inquiry.seed] for inquiry in inquiries])


def _part_of(
    inquiries: Sequence[Inquiry], shard: Shard
) -> tuple[ShardReport, dict[str, dict[str, int]]]:
    """A shard of the groups of all seeds, and its groups with their sizes by seed."""
    units = [(inquiry, group) for inquiry in inquiries for group in inquiry.groups]
    sizes = [inquiry.groups[group] for inquiry, group in units]
    part = shard.part(sizes)
    parts: dict[str, dict[str, int]] = {inquiry.seed: {} for inquiry in inquiries}
    names = []
    for at in part:
        inquiry, group = units[at]
        parts[inquiry.seed][group] = sizes[at]
        names += _names(inquiry, [group])
    queries = sum(sizes[at] for at in part)
    return ShardReport(str(shard), names, queries, len(units), sum(sizes)), parts


def _names(inquiry: Inquiry, groups: Iterable[str]) -> list[str]:
    """The groups of a seed, with its name before each."""
    return [f"{inquiry.seed}/{group}" if inquiry.seed else group for group in groups]


def _finished(inquiry: Inquiry, folder: RunFolder, watch: Watch) -> CountedRun:
    """Ask one model, and count and keep its answers; existing ones are not asked again."""
    options = inquiry.options
    by_group = ask_in_folder(inquiry, folder, inquiry.groups, watch)
    tables = {group.id: by_group[group.id].drop("scores", strict=False) for group in inquiry.suite}
    answers = pl.concat(tables.values(), how="diagonal")
    _refuse_unanswered(answers, inquiry.model, folder)
    folder.note(inquiry.notes_on(answers))
    noise = inquiry.noise_floor(folder, tables)
    name, seed = model_name(options.model), options.seed
    counted = count_answers({"": answers}, inquiry.suite, inquiry.protocol, name, seed, noise)
    return replace(save_counted(counted, folder), changed_answers=inquiry.changed(answers))


def _refuse_unanswered(answers: pl.DataFrame, model: Any, folder: RunFolder) -> None:
    """Raise for a run of a server without a single answer, whose queries are asked again then."""
    is_served = getattr(model, "client", None) is not None
    if not is_served or answers["answer"].null_count() < answers.height:
        return
    folder.discard_answers()
    reasons = answers["excluded"].fill_null("no reason is known").value_counts(sort=True)
    reason, times = reasons.row(0)
    proof = getattr(model, "proof", None)
    skipped = "".join(f"; {name}: {why}" for name, why in (proof.refused if proof else {}).items())
    raise UnansweredError(
        f"none of {counted(answers.height, 'query', 'queries')} has an answer; most often, "
        f"{counted(times, 'time')}: {reason}{skipped and '; strategies not used' + skipped}",
        expected="answers",
        where=str(folder.path),
        todo="Nothing was counted. Correct the cause; the same command asks all queries again.",
    )


def _open_run(inquiry: Inquiry, named: Mapping[str, Any]) -> RunFolder:
    """Load the model; the folder of its run."""
    inquiry.load()
    return open_folder(inquiry.folder, inquiry, named)


def open_folder(path: Path, inquiry: Inquiry, named: Mapping[str, Any]) -> RunFolder:
    """A folder of a run, with what a reader of it should know."""
    folder = RunFolder(path, inquiry.settings)
    folder.pay_for(inquiry.model)
    folder.describe("options", named)
    inquiry.describe(folder)
    return folder


def ask_in_folder(
    inquiry: Inquiry, folder: RunFolder, groups: Mapping[str, int], watch: Watch
) -> dict[str, pl.DataFrame]:
    """The answers of some groups; existing ones are not asked again."""
    title = f"asking {inquiry.seed}".strip()

    def ask(group: str, progress: Progress) -> pl.DataFrame:
        if (prompts := inquiry.prompts(group)) is not None:
            folder.write_prompts(group, prompts)
        return inquiry.ask(group, progress=progress)

    with watch.steps(title, sum(groups.values()), inquiry.unit) as advance:
        return ask_groups(groups, ask, inquiry.model, folder, advance)


def plan_probe(
    options: ProbeOptions,
    watch: Watch = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | Model | None = None,
) -> ProbePlan:
    """What ``probe`` would ask with these options; nothing is written.

    The model, of several the first, is loaded, and some items of some groups are asked to measure
    the rate; of a model behind a URL their requests are counted and not sent.
    ``suite`` and ``model``: values in place of those that the options name.
    """
    inquiries = inquiries_of(options, watch, suite=suite, model=model)
    inquiry, sizes = inquiries[0], inquiries[0].groups
    start = time.monotonic()
    inquiry.load()
    loading = time.monotonic() - start
    whole = inquiry.folder.parent if inquiry.seed else inquiry.folder
    existing = {
        one.seed: complete_groups(whole / one.seed, inquiry.settings if one is inquiry else None)
        for one in inquiries
    }
    left = {
        group: sum(one.groups[group] for one in inquiries if group not in existing[one.seed][1])
        for group in sizes
    }
    watch.say("sampling queries to estimate the time")
    queries = sum(sizes.values()) * len(inquiries)
    return ProbePlan(
        model=model_name(options.model),
        protocol=inquiry.protocol,
        groups=len(sizes),
        queries=queries,
        complete=queries - sum(left.values()),
        folder=str(whole),
        is_new=all(is_new for is_new, _ in existing.values()),
        loading=loading,
        **inquiry.extent,
        **sampled_plan(inquiry, left),
    )


def score(options: ScoreOptions, questions: Questions | None = None, label: str = "") -> CountedRun:
    """Measure answers that were made elsewhere, or those of a run again; seeds are averaged.

    A run names its suite and protocol; ``suite`` is needed for a table of answers only.
    ``questions``: those that a table answers, in place of those that the options name. ``label``:
    what the answers are called; empty for the name of the file or of the run's model.
    """
    from consilience.kinds.promptfoo import is_promptfoo, score_promptfoo

    answers = options.answers
    if is_promptfoo(answers):
        return score_promptfoo(options)
    if options.provider is not None:
        raise ConsilienceError(
            f"--provider with {answers}",
            expected="results of promptfoo (.json)",
            todo="Leave --provider out.",
        )
    run = Run.open(answers, label or model_name(model_of_log(answers))).named_by_model()
    if not answers.is_dir() and options.suite is not None:
        try:
            return score_table(run, options, questions)
        except ConsilienceError as error:
            if label or not error.where.startswith(WHERE):
                raise
            where = error.where.replace(WHERE, str(answers), 1)
            raise ConsilienceError(
                error.found, expected=error.expected, where=where, todo=error.todo
            ) from error
    if options.out is not None:
        raise ConsilienceError(
            "--out with a run", expected="a table of answers", todo="Leave --out out."
        )
    chosen, rules = suite_of(run, options.suite, options.protocol, options.data_dir)
    counted = count_run(run, chosen, rules)
    record = record_of(answers=str(answers), suite=chosen.name, protocol=rules)
    notes = [*suite_notes(run, chosen), *counted.notes, *protocol_notes(run, rules)]
    return replace(counted, notes=notes, record=record)
