"""Probe a model: plan, ask group by group, ask a sample again, count."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience.analysis.examples import item_agreement
from consilience.core.errors import (
    SILENT,
    Advance,
    ConsilienceError,
    Progress,
    Protocol,
    UnansweredError,
    reason_of,
    shortened,
)
from consilience.core.schemas import METRICS_SCHEMA, NOISE_FLOOR, OVER_PHRASINGS, REASONS, WAS_ASKED
from consilience.core.text import counted, duration, evenly, spread
from consilience.metrics.measure import Answers, CheckedAnswers, checked_answers, measure
from consilience.metrics.registry import Clusters, Grid, Tally, View
from consilience.metrics.statistics import NAN
from consilience.metrics.uncertainty import intervals
from consilience.models import LanguageModel
from consilience.options.commands import ProbeOptions, is_judge
from consilience.plans import Plan, Queries, plan_of
from consilience.report.cautions import Known, cautions, ranked
from consilience.report.summary import Summary, summarize
from consilience.report.table import Displayed, Output
from consilience.runs.folder import (
    RunFolder,
    as_recorded,
    complete_groups,
    content_digest,
    default_folder,
    record_of,
    refuse_other_run,
)
from consilience.runs.run import Run, model_name, model_of, options_record
from consilience.suites.questions import Questions
from consilience.types import Relation, Suite

TIMED = 8  # Queries that a dry run asks to estimate the time


def probe(
    options: ProbeOptions,
    progress: Progress = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | None = None,
    recorded: ProbeOptions | None = None,
) -> CountedRun:
    """Ask a model a suite, measure its answers and keep the run; values may replace the names.

    ``recorded``: the options that the record of the run has; None for ``options``.
    """
    plan = plan_of(options, suite)
    queries = plan.queries(loaded(plan, options, model, progress))
    named = options_record(recorded or options, {"suite": suite, "model": model})
    folder = open_folder(plan, queries, options, named)
    try:
        by_group = ask_in_folder(plan, queries, folder, progress)
        tables = {group.id: by_group[group.id] for group in plan.suite}
        answers = pl.concat(tables.values(), how="diagonal")
        of_others = (getattr(queries.model, name, None) for name in ("client", "function"))
        if any(of_others) and answers["answer"].null_count() == answers.height:
            folder.discard_answers()
            raise _unanswered(answers, queries.model, folder)
        floor = _noise_floor(queries, options, folder, tables, progress)
    except BaseException:
        folder.stop()
        raise
    counted_run = count_answers(answers, plan.suite, model_of(folder.settings), floor)
    return save_counted(counted_run, folder)


def loaded(plan: Plan, options: ProbeOptions, model: Any, progress: Progress) -> Any:
    """A model that is given, or that of the options."""
    if model is not None:
        return model
    with progress.loading(options.model):
        return plan.load()


def open_folder(
    plan: Plan, queries: Queries, options: ProbeOptions, named: Mapping[str, Any]
) -> RunFolder:
    """The folder of a run, with what is asked and what a reader of it should know."""
    table = queries.table()
    settings = settings_of(plan, queries, table)
    path = options.out or default_folder(options.model, settings)
    folder = RunFolder(path, settings)
    folder.pay_for(queries.model)
    folder.describe("options", named)
    for name, value in plan.source.items():
        folder.describe(name, value)
    folder.write_queries(table, [group.record for group in plan.suite])
    folder.note(plan.notes)
    return folder


def settings_of(plan: Plan, queries: Queries, table: pl.DataFrame) -> dict[str, object]:
    """Everything that decides the answers of a run."""
    asked = {"kind": plan.kind, **plan.settings, **queries.settings}
    return {**asked, "queries": content_digest(table), "model": queries.model.identity}


def ask_in_folder(
    plan: Plan, queries: Queries, folder: RunFolder, progress: Progress
) -> dict[str, pl.DataFrame]:
    """The answers of all groups; existing ones are not asked again."""
    model, tables = queries.model, dict[str, pl.DataFrame]()
    complete = complete_groups(folder.path)
    left = sum(plan.sizes[group] for group in queries.groups if group not in complete)
    folder.note(model.notes)
    with progress.steps("asking", left, "queries") as advance:
        for name in queries.groups:
            answers = folder.answers(name, plan.sizes[name])
            if answers is None:
                answers = queries.ask(queries.group(name), advance)
                folder.write_answers(name, answers)
                folder.note(model.notes)
            tables[name] = answers
    return tables


def _noise_floor(
    queries: Queries,
    options: ProbeOptions,
    folder: RunFolder,
    tables: Mapping[str, pl.DataFrame],
    progress: Progress,
) -> pl.DataFrame | None:
    """A row of the metrics table on a sample that is asked again; None without one.

    What a complete run measured is read and not measured again, unless ``--noise-floor`` wants
    more prompts. Without ``--noise-floor`` only a server is asked again, and a limit or a
    server that fails ends the run with a note.
    """
    wanted = options.noise_floor
    if not wanted and getattr(queries.model, "client", None) is None:
        return None
    prompts = sum(answers.height for answers in tables.values())
    rows = sample(tables, sample_size(prompts, wanted), options.seed)
    sampled = sum(map(len, rows.values()))
    known = noise_floor_of(folder.path)
    if known is not None and known.height:
        complete = known.select((pl.col("n") + pl.col("n_excluded")).min() >= sampled).item()
        if complete or not wanted:
            return known
    if not rows:
        if wanted is None:
            few = f"{counted(prompts, 'prompt')}: too few to measure the noise"
            folder.note([f"{few} floor of the server; --noise-floor 30 measures it"])
        return None
    folder.begin("noise floor")
    try:
        with progress.steps("noise floor", sampled, "prompts") as advance:
            merged = is_judge(options.match)
            return noise_floor(queries, tables, rows, advance, are_merged=merged)
    except ConsilienceError as error:
        if wanted:
            raise
        folder.note([f"the noise floor of the server was not measured: {error}"])
        return None


def _unanswered(answers: pl.DataFrame, model: Any, folder: RunFolder) -> UnansweredError:
    """The error for a run of a server or function without an answer; all is asked again."""
    known = answers.select(pl.coalesce(*REASONS).fill_null("no reason is known")).to_series()
    reason, times = known.value_counts(sort=True).row(0)
    proof = getattr(model, "proof", None)
    skipped = "".join(f"; {name}: {why}" for name, why in (proof.refused if proof else {}).items())
    return UnansweredError(
        f"none of {counted(answers.height, 'query', 'queries')} has an answer; most often, "
        f"{counted(times, 'time')}: {reason}{skipped and '; strategies not used' + skipped}",
        expected="answers",
        where=str(folder.path),
        todo="Nothing was counted. Correct the cause; the same command asks all queries again.",
    )


@dataclass(frozen=True, slots=True, repr=False)
class ProbePlan(Displayed):
    """What a run would ask."""

    model: str
    suite: str
    protocol: Protocol
    groups: int
    items: int
    variants: str
    candidates: str
    queries: int
    complete: int  # Number of queries that the folder already has answers to
    folder: str
    is_new: bool
    loading: float
    timed: int  # Number of queries that were asked to estimate the time
    seconds: float  # To ask what is not yet complete, about
    prompt: str  # Of the first query
    notes: Sequence[str]
    requests: int | None = None  # Of a model behind a URL: how many these are, about

    def output(self) -> Output:
        left = self.queries - self.complete
        resumes = f"resumes: {self.complete:,} of {self.queries:,} complete"
        rows = {
            "Groups": f"{self.groups:,}",
            "Items": f"{self.items:,}, each in {self.variants}",
            "Queries": f"{self.queries:,}, each with {self.candidates} candidates",
            "Folder": f"{self.folder} ({'new' if self.is_new else resumes})",
        }
        if self.requests is not None:
            rows["Requests"] = f"about {self.requests:,} for {left:,} queries"
        rows["Time"] = (
            f"at most about {duration(self.seconds)} to ask {left:,} queries, from {self.timed} "
            f"timed ones; loading took {duration(self.loading)}"
        )
        rows["Prompt"] = shortened(self.prompt).replace("\n", "\n" + " " * 10)
        title = f"Plan: {self.model} on {self.suite}. Nothing is written."
        lines = [title, *(f"{name:9} {text}" for name, text in rows.items())]
        return Output(shown=lines, cautions=self.notes, facts={"plan": asdict(self)})


def plan_probe(
    options: ProbeOptions,
    progress: Progress = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | None = None,
) -> ProbePlan:
    """What ``probe`` would ask with these options; nothing is written.

    The model is loaded, and ``TIMED`` queries are asked to estimate the time and, of a model behind
    a URL, the number of requests. ``suite`` and ``model``: values in place of those that the
    options name.
    """
    plan = plan_of(options, suite)
    start = time.monotonic()
    queries = plan.queries(loaded(plan, options, model, progress))
    loading = time.monotonic() - start
    settings = settings_of(plan, queries, table := queries.table())
    path = options.out or default_folder(options.model, settings)
    if complete := complete_groups(path):
        refuse_other_run(record_of(path)["settings"], as_recorded(settings), path)
    left = {group: size for group, size in plan.sizes.items() if group not in complete}
    progress.say("asking some queries to estimate the time")
    designs = [group.design for group in plan.suite]
    sizes = [len(design.labels or of.candidates.words)
             for design, of in zip(designs, plan.suite, strict=True)]  # fmt: skip
    is_open = options.candidates == "vocabulary"
    variants = spread([*table.group_by("group", "item").len()["len"].unique()])
    varied = {name: len({*of}) for one in designs for name, of in one.levels.items()}
    factors = ", ".join(f"{name} {size}" for name, size in varied.items() if size > 1)
    return ProbePlan(
        model=model_name(options.model),
        suite=plan.suite.name,
        protocol=plan.protocol,
        groups=len(plan.sizes),
        items=len({(of.id, one.item) for of in plan.suite for one in of.facts}),
        variants=f"{variants} {plan.suite.words.variant}{'s' * (variants != '1')}"
        + f" ({factors})" * bool(factors),
        candidates="the vocabulary" if is_open else spread(sizes),
        queries=table.height,
        complete=table.height - sum(left.values()),
        folder=str(path),
        is_new=not complete,
        loading=loading,
        notes=[*plan.notes],
        prompt="\n".join(table["input"][0]).rstrip(),
        **_timed(queries, left or plan.sizes, sum(left.values())),
    )


def _timed(queries: Queries, sizes: Mapping[str, int], left: int) -> dict[str, Any]:
    """The fields of a plan that some queries give, which are asked after one that is not timed.

    ``sizes``: of the groups that they are of. ``left``: how many queries are not yet complete.
    """
    client = getattr(queries.model, "client", None)
    groups = [queries.group(name) for name in evenly([*sizes], TIMED)]
    count, asked = -(-TIMED // max(1, len(groups))), 0
    firsts = [{ask.item: ask for ask in reversed(group.asks)}.values() for group in groups]
    samples = [evenly([*of][::-1], count) for of in firsts]
    for group, asks in zip(groups[:1], samples[:1], strict=True):
        queries.ask(replace(group, asks=asks[:1]), lambda done: None)
    before = client.usage.requests if client else 0
    start = time.monotonic()
    for group, asks in zip(groups, samples, strict=True):
        part = replace(group, asks=asks[: TIMED - asked])
        asked += queries.ask(part, lambda done: None).height
    times = left / max(1, asked)
    requests = round((client.usage.requests - before) * times) if client else None
    return {
        "timed": asked, "seconds": (time.monotonic() - start) * times, "requests": requests,
    }  # fmt: skip


MOST, SHARE = 64, 20
"""Of a sample whose size nobody chose: its prompts at most, and how many times more the run has."""


def sample_size(prompts: int, wanted: int | None) -> int:
    """How many of the ``prompts`` of a run are sent again; see ``MOST``."""
    return min(MOST, prompts // SHARE) if wanted is None else min(wanted, prompts)


def sample(tables: Mapping[str, pl.DataFrame], size: int, seed: int) -> dict[str, list[int]]:
    """Rows of the answers of each group: ``size`` of those with an answer, drawn by the seed."""
    given = {name: of["answer"].is_not_null().arg_true() for name, of in tables.items()}
    answered = [(name, row) for name, rows in given.items() for row in rows]
    rows_of = dict[str, list[int]]()
    for name, row in sorted(random.Random(seed).sample(answered, min(size, len(answered)))):
        rows_of.setdefault(name, []).append(row)
    return rows_of


def noise_floor(
    queries: Queries,
    tables: Mapping[str, pl.DataFrame],
    rows: Mapping[str, Sequence[int]],
    advance: Advance,
    *,
    are_merged: bool,
) -> pl.DataFrame:
    """A row of the metrics table: the share of the answers of a sample that changed.

    ``rows``: those of the answers in ``tables`` that are asked again. ``are_merged``: whether a
    judge merged written answers, of which the texts are compared: what is merged depends on all.
    ``n``: the prompts that were answered twice. An item is a cluster of them. NaN where there are
    none.
    """

    def said(answers: pl.DataFrame) -> pl.Series:
        if are_merged and "text" in answers.columns:
            return answers["text"]
        options = [pl.format("option {}", "option")] * ("option" in answers.columns)
        return answers.select(pl.coalesce(*options, "answer")).to_series()

    changed, items = list[float](), list[str]()
    for name, of_group in rows.items():
        group, before = queries.group(name), tables[name][of_group]
        asks = [group.asks[row] for row in of_group]
        again = queries.ask(replace(group, asks=asks), advance)
        pairs = zip(said(before), said(again), strict=True)
        changed += [NAN if None in pair else float(pair[0] != pair[1]) for pair in pairs]
        items += [f"{name}\n{item}" for item in before["item"]]
    tally = Tally.of_values(Clusters.of(items), np.array(changed))
    row = {
        "metric": NOISE_FLOOR, "over": "all", "group": "", "kind": "whole", "level": "",
        **asdict(intervals({"": tally})[""]), **dict.fromkeys(("std", *OVER_PHRASINGS), NAN),
    }  # fmt: skip
    return pl.DataFrame([row], schema=METRICS_SCHEMA)


@dataclass(frozen=True, eq=False)
class CountedRun:
    """Answers and their numbers."""

    suite: Suite
    checked: CheckedAnswers  # The answers
    metrics: pl.DataFrame
    baseline: pl.DataFrame  # The metrics table of the majority baseline
    summary: Summary
    notes: Sequence[str]  # Cautions by rank, then what is known of how it was asked
    record: Mapping[str, Any] = field(default_factory=dict)
    """Settings, versions and the like, for a JSON document."""

    @property
    def protocol(self) -> Protocol:
        return self.suite.protocol

    @cached_property
    def items(self) -> pl.DataFrame:
        """How many pairs of variants of each item agree (``AGREEMENT_SCHEMA``)."""
        return item_agreement(self.checked, self.suite, self.protocol)


def counted_by(run: Run, protocol: Protocol | None = None) -> Suite:
    """The suite of a run with the protocol that it is counted by.

    Without a protocol it is that of the run; one that such a suite does not have raises.
    """
    suite, words = run.suite, run.suite.words
    if protocol in (None, suite.protocol):
        return suite
    if protocol not in words.protocols:
        found, expected = f"--protocol {protocol} with a run of {words.item}s", words.protocols[0]
        raise ConsilienceError(found, expected=expected, where=run.where)
    return replace(suite, protocol=protocol)


def count_run(run: Run, suite: Suite | None = None, answers: Answers | None = None) -> CountedRun:
    """The numbers of a run with its noise floor, and all notes on it.

    ``suite``: the groups that are counted, by default those of the run. ``answers``: checked ones.
    """
    chosen, floor = suite or run.suite, noise_floor_of(run.path)
    counted = count_answers(run.answers if answers is None else answers, chosen, run.label, floor)
    return replace(counted, notes=notes_on(run, chosen, counted.checked, counted.metrics))


def notes_on(run: Run, suite: Suite, answers: CheckedAnswers, metrics: pl.DataFrame) -> list[str]:
    """All notes on a run: cautions by rank, then what is known of how it was asked."""
    known = Known(
        suite=suite, is_finished=run.is_finished, asked_by=run.protocol, answers=answers,
        metrics=metrics,
    )  # fmt: skip
    return ranked([*cautions(known), *run.record.get("warnings", [])])


def count_answers(
    answers: Answers, suite: Suite, model: str, noise_floor: pl.DataFrame | None = None
) -> CountedRun:
    """The numbers of answers by the protocol of their suite, and cautions on them.

    ``model``: what the summary calls the model. ``noise_floor``: further rows of the metrics table.
    """
    table, protocol = checked_answers(answers, suite), suite.protocol
    metrics, baseline = measure(table, suite, protocol), majority_baseline(table, suite, protocol)
    if noise_floor is not None:
        metrics = pl.concat([metrics, noise_floor], how="diagonal")
    summary = summarize(metrics, suite, protocol, model, baseline, asked_variants(table))
    found = cautions(Known(suite=suite, answers=table, metrics=metrics))
    return CountedRun(suite, table, metrics, baseline, summary, found)


def asked_variants(answers: CheckedAnswers) -> dict[str, tuple[int, int]]:
    """In how many variants of each group an item was asked: the fewest of a question, and the most.

    An item that was left out in some variant counts with those that others were asked in.
    """
    variant, rows = pl.col("variant_index"), answers.coded.lazy()
    most = rows.filter(WAS_ASKED).group_by("group").agg(most=variant.n_unique())
    of_items = rows.group_by("group", "item").agg(fewest=pl.len())
    sizes = of_items.group_by("group").agg(pl.col("fewest").min(), whole=pl.col("fewest").max())
    sizes = sizes.join(most, on="group").with_columns(most=pl.min_horizontal("most", "whole"))
    sizes = sizes.with_columns(pl.min_horizontal("fewest", "most"))
    if not answers.suite.words.is_pooled:
        sizes = sizes.with_columns(fewest="most")
    table = sizes.select("group", "fewest", "most").collect(engine="streaming")
    return {str(group): (fewest, most) for group, fewest, most in table.iter_rows()}


def save_counted(counted: CountedRun, folder: RunFolder) -> CountedRun:
    """Save the metrics of a run in its folder; the counted run with its record and all notes."""
    folder.finish(counted.metrics)
    record = {**folder.record, "path": str(folder.path)}
    state = Known(suite=counted.suite, is_finished=record["finished"] is not None)
    notes = ranked([*cautions(state), *counted.notes, *record["warnings"]])
    return replace(counted, notes=notes, record=record)


def noise_floor_of(run: Path) -> pl.DataFrame | None:
    """The noise floor that the run in a folder measured, as rows of the metrics table."""
    file = run / "metrics.csv"
    if not file.is_file():
        return None
    try:
        rows = pl.read_csv(file, glob=False).filter(pl.col("metric") == NOISE_FLOOR)
        return rows.select(pl.col(name).cast(kind) for name, kind in METRICS_SCHEMA.items())
    except pl.exceptions.PolarsError as error:
        found = f"a damaged table of metrics: {reason_of(error)}"
        todo = "Give the command of the run again, which writes it anew."
        raise ConsilienceError(found, where=str(file), todo=todo) from error


def majority_baseline(answers: Answers, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """The metrics table of the majority baseline; no model is loaded.

    It answers what was asked: of a relation with its most frequent object, as ``baseline:majority``
    does, of a task with the most frequent label of its sentence pairs, and of questions with the
    option at the *shown* position where the right one is most often in the base variant.
    """
    return measure(Majority(checked_answers(answers, suite)), suite, protocol)


class Majority(CheckedAnswers):
    """The answers of the majority baseline to the queries of a table."""

    instances = {}  # noqa: RUF012  (no answer of another group)

    def __init__(self, run: CheckedAnswers) -> None:
        super().__init__(run.answers, run.suite, run.coded)
        self._run = run

    def views(self, relation: Relation, protocol: Protocol) -> dict[View, Grid]:
        views = self._run.views(relation, protocol)
        made = {id(of): _majority(of, relation) for of in views.values()}
        return {name: made[id(of)] for name, of in views.items()}


def _majority(grid: Grid, relation: Relation) -> Grid:
    golds = np.where(grid.asked, grid.golds, -1)
    answers = np.full(grid.answers.shape, -1)
    if grid.places is not None:
        shown, sizes = grid.places.of(golds), grid.places.sizes
        most = np.zeros((len(sizes), 1), dtype=np.int64)
        for size in np.unique(sizes):
            given = shown[sizes == size, : 1 if grid.has_base else None]
            most[sizes == size] = np.bincount(given[given >= 0], minlength=1).argmax()
        answers = grid.places.options_at(most)
    else:
        words, counts = relation.candidates.words, relation.candidates.counts
        of_items = golds.max(axis=1)
        code = int(np.bincount(of_items[of_items >= 0], minlength=1).argmax())
        if any(counts):
            word = words[counts.index(max(counts))]
            texts = list(grid.texts)
            code = texts.index(word) if word in texts else len(texts)
        answers[:] = code
    answers = np.where(grid.asked, answers, -1)
    return replace(grid, answers=answers, distributions=None, may_have_none=False, phrasings={})
