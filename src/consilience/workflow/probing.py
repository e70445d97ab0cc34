"""Ask a model a suite, or take answers made elsewhere, and count them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import polars as pl

from consilience.ask import Progress, ask_groups, screening_note
from consilience.ask_pairs import PairModel
from consilience.ask_questions import PromptModel
from consilience.asking.planning import GroupOfQueries, ProbePlan, complete_groups, sampled_plan
from consilience.core.errors import ConsilienceError, UnansweredError
from consilience.core.process import SILENT, Watch
from consilience.core.provenance import git_revision, versions
from consilience.core.text import counted
from consilience.files.tables import model_of_log
from consilience.models import LanguageModel
from consilience.runs.folder import RunFolder
from consilience.runs.run import Run, model_name
from consilience.suites.pairs import is_task
from consilience.suites.questions import Questions
from consilience.types import Suite
from consilience.workflow.counting import CountedRun, count_answers, count_run, save_counted
from consilience.workflow.fact_setup import fact_setup
from consilience.workflow.noise_floors import noise_floor_of_run
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.question_setup import question_setup, questions_of
from consilience.workflow.run_options import ScoreOptions
from consilience.workflow.run_settings import options_record
from consilience.workflow.scoring_answers import WHERE
from consilience.workflow.setup import Loaded, Setup
from consilience.workflow.sharding import Shard, ShardReport
from consilience.workflow.suite import any_suite_of, protocol_notes, suite_notes


def probe(
    options: ProbeOptions,
    watch: Watch = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | PairModel | PromptModel | None = None,
) -> CountedRun:
    """Ask a model a suite, and measure its answers; the run is kept in its folder.

    ``suite`` and ``model``: values in place of those that the options name.
    """
    setups = setups_of(options, watch, suite=suite, model=model)
    return probe_setups(setups, options_record(options, {"suite": suite, "model": model}), watch)


def probe_setups(
    setups: Sequence[Setup], named: Mapping[str, Any], watch: Watch = SILENT
) -> CountedRun:
    """Ask what is not yet complete, count all answers, and finish the run.

    ``named``: the options, for the record.
    """
    return setups[0].together(
        {setup.seed: _finished(setup, *_open_run(setup, named), watch) for setup in setups}
    )


def plan_shard(options: ProbeOptions, shard: Shard, watch: Watch = SILENT) -> ShardReport:
    """The groups that a shard of ``probe`` asks; no model is loaded."""
    return _part_of(setups_of(options, watch), shard)[0]


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
    setups = setups_of(options, watch)
    report, parts = _part_of(setups, shard)
    if not report.groups:
        return report
    named, left, path = options_record(options, {}), list[str](), ""
    counted: dict[str, CountedRun] = {}
    # Of a seed without a group in this part the model is loaded only if all others are complete.
    for setup in sorted(setups, key=lambda setup: not parts[setup.seed]):
        if left and not parts[setup.seed]:
            left += _names(setup, setup.groups)
            continue
        loaded, folder = _open_run(setup, named)
        ask_in_folder(setup, loaded, folder, parts[setup.seed], watch)
        complete = complete_groups(folder.path)[1]
        left += _names(setup, [group for group in setup.groups if group not in complete])
        path = str(folder.path.parent if setup.seed else folder.path)
        if not left:
            counted[setup.seed] = _finished(setup, loaded, folder, watch)
    if left:
        return replace(report, left=left, folder=path)
    return setups[0].together({setup.seed: counted[setup.seed] for setup in setups})


def _part_of(
    setups: Sequence[Setup], shard: Shard
) -> tuple[ShardReport, dict[str, dict[str, int]]]:
    """A shard of the groups of all seeds, and its groups with their sizes by seed."""
    units = [(setup, group) for setup in setups for group in setup.groups]
    sizes = [setup.groups[group] for setup, group in units]
    part = shard.part(sizes)
    parts: dict[str, dict[str, int]] = {setup.seed: {} for setup in setups}
    names = []
    for at in part:
        setup, group = units[at]
        parts[setup.seed][group] = sizes[at]
        names += _names(setup, [group])
    queries = sum(sizes[at] for at in part)
    return ShardReport(str(shard), names, queries, len(units), sum(sizes)), parts


def _names(setup: Setup, groups: Iterable[str]) -> list[str]:
    """The groups of a seed, with its name before each."""
    return [f"{setup.seed}/{group}" if setup.seed else group for group in groups]


def setups_of(
    options: ProbeOptions,
    watch: Watch = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | PairModel | PromptModel | None = None,
) -> list[Setup]:
    """What ``probe`` asks with these options, without loading the model.

    One for each seed of classifiers of sentence pairs; else one. Options that do not fit raise.
    """
    options.check_connection()
    if (questions := questions_of(options, suite)) is not None:
        return [question_setup(options, watch, questions, cast(PromptModel | None, model))]
    if suite is None and is_task(options.suite):
        from consilience.workflow.pair_setup import pair_setups

        return pair_setups(options, watch, cast(PairModel | None, model))
    whole = cast(Suite | None, suite)
    return [fact_setup(options, watch, whole, cast(LanguageModel | None, model))]


def _finished(setup: Setup, loaded: Loaded, folder: RunFolder, watch: Watch) -> CountedRun:
    """Ask one model, and count and keep its answers; existing ones are not asked again."""
    options = setup.options
    by_group = ask_in_folder(setup, loaded, folder, setup.groups, watch)
    tables = {group.id: by_group[group.id].drop("scores", strict=False) for group in setup.suite}
    answers = pl.concat(tables.values(), how="diagonal")
    _refuse_unanswered(answers, loaded.model, folder)
    folder.note(loaded.notes_on(answers))
    noise = noise_floor_of_run(setup, loaded, folder, tables, watch)
    name, seed = model_name(options.model), options.seed
    counted = count_answers({"": answers}, setup.suite, setup.protocol, name, seed, noise)
    if "screened" in folder.record:
        counted = replace(counted, notes=[*counted.notes, screening_note(folder.record)])
    changed = loaded.changed(answers) if loaded.changed else None
    return replace(save_counted(counted, folder), changed_answers=changed)


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


def _open_run(setup: Setup, named: Mapping[str, Any]) -> tuple[Loaded, RunFolder]:
    """The model, and the folder of its run."""
    loaded = setup.load()
    return loaded, open_folder(loaded.folder, loaded, named)


def open_folder(path: Path, loaded: Loaded, named: Mapping[str, Any]) -> RunFolder:
    """A folder of a run, with what a reader of it should know."""
    folder = RunFolder(path, loaded.settings)
    folder.pay_for(loaded.model)
    folder.describe("options", named)
    loaded.describe(folder)
    return folder


def ask_in_folder(
    setup: Setup, loaded: Loaded, folder: RunFolder, groups: Mapping[str, int], watch: Watch
) -> dict[str, pl.DataFrame]:
    """The answers of some groups; existing ones are not asked again."""
    title = f"asking {setup.seed}".strip()
    with watch.steps(title, sum(groups.values()), setup.unit) as advance:
        ask = partial(_ask_group, loaded, folder)
        return ask_groups(groups, ask, loaded.model, folder, advance)


def _ask_group(loaded: Loaded, folder: RunFolder, group: str, progress: Progress) -> pl.DataFrame:
    """The answers of a group; what is sent is kept first."""
    if loaded.prompts:
        folder.write_prompts(group, loaded.prompts(group))
    return loaded.ask(group, progress=progress)


def plan_probe(
    options: ProbeOptions,
    watch: Watch = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | PairModel | PromptModel | None = None,
) -> ProbePlan:
    """What ``probe`` would ask with these options; nothing is written.

    The model, of several the first, is loaded, and some items of some groups are asked to measure
    the rate; of a model behind a URL their requests are counted and not sent.
    ``suite`` and ``model``: values in place of those that the options name.
    """
    setups = setups_of(options, watch, suite=suite, model=model)
    setup, sizes = setups[0], setups[0].groups
    start = time.monotonic()
    loaded = setup.load()
    loading = time.monotonic() - start
    whole = loaded.folder.parent if setup.seed else loaded.folder
    existing = {
        one.seed: complete_groups(whole / one.seed, loaded.settings if one is setup else None)
        for one in setups
    }
    left = {
        group: sum(one.groups[group] for one in setups if group not in existing[one.seed][1])
        for group in sizes
    }
    watch.say("sampling queries to estimate the time")

    def ask(group: str) -> int:
        return loaded.ask(group, setup.samples[group]).height

    def ask_all(group: str) -> int:
        return loaded.ask(group).height

    groups = [
        GroupOfQueries(partial(ask, group), left[group], partial(ask_all, group)) for group in sizes
    ]
    queries = sum(sizes.values()) * len(setups)
    return ProbePlan(
        model=model_name(options.model),
        protocol=setup.protocol,
        groups=len(sizes),
        queries=queries,
        complete=queries - sum(left.values()),
        folder=str(whole),
        is_new=all(is_new for is_new, _ in existing.values()),
        loading=loading,
        **setup.extent,
        **sampled_plan(loaded.model, groups, sum(sizes.values()), options.noise_floor),
    )


def score(options: ScoreOptions, questions: Questions | None = None, label: str = "") -> CountedRun:
    """Measure answers that were made elsewhere, or those of a run again; seeds are averaged.

    A run names its suite and protocol; ``suite`` is needed for a table of answers only.
    ``questions``: those that a table answers, in place of those that the options name. ``label``:
    what the answers are called; empty for the name of the file or of the run's model.
    """
    from consilience.kinds.promptfoo import is_promptfoo, score_promptfoo
    from consilience.workflow.scored_tables import score_table

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
    chosen, rules = any_suite_of(run, options.suite, options.protocol, options.data_dir)
    counted = count_run(run, chosen, rules)
    settings = {"answers": str(answers), "suite": chosen.name, "protocol": rules}
    record = {"settings": settings, "versions": versions(), "git": git_revision()}
    notes = [*suite_notes(run, chosen), *counted.notes, *protocol_notes(run, rules)]
    return replace(counted, notes=notes, record=record)
