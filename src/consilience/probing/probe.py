"""Probe a model: plan, ask group by group, count."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Progress, Protocol, UnansweredError
from consilience.core.schemas import REASONS
from consilience.core.text import counted, duration, evenly, spread
from consilience.models import LanguageModel
from consilience.options.probe import ProbeOptions, is_judge
from consilience.plans import Plan, Queries, noise, plan_of
from consilience.probing.counting import CountedRun, count_answers, noise_floor_of, save_counted
from consilience.report.export import Displayed, Output
from consilience.runs.folder import (
    RunFolder,
    as_recorded,
    complete_groups,
    content_digest,
    default_folder,
    record_of,
    refuse_other_run,
)
from consilience.runs.run import model_name, model_of, options_record
from consilience.suites.questions import Questions
from consilience.types import Suite

TIMED = 8  # Queries that a dry run asks to estimate the time
NOT_MEASURED = "the noise floor of the server was not measured"


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
    plan = plan_of(options, suite, progress)
    queries = plan.queries(loaded(plan, options, model, progress))
    named = options_record(recorded or options, {"suite": suite, "model": model})
    folder = open_folder(plan, queries, options, named)
    try:
        by_group = ask_in_folder(plan, queries, folder, progress)
        tables = {group.id: by_group[group.id].drop("scores", strict=False) for group in plan.suite}
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
    if products := getattr(model, "products", None):
        folder.multiplied_by(products)
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

    def as_written(answers: pl.DataFrame) -> pl.DataFrame:
        """Answers before a judge merged them: which ones are merged depends on all of them."""
        if not is_judge(options.match) or "text" not in answers.columns:
            return answers
        return answers.with_columns(option=None, answer="text")

    def ask(name: str, items: Sequence[str], variants: Sequence[int]) -> pl.DataFrame:
        part = queries.group(name).only(items, variants)
        return as_written(queries.ask(part, lambda done: None))

    groups = [noise.Part(as_written(of), partial(ask, name)) for name, of in tables.items()]
    prompts = sum(group.answers.height for group in groups)
    parts = noise.sample(groups, noise.sample_size(prompts, wanted), options.seed)
    sampled = sum(part.first.height for part in parts)
    known = noise_floor_of(folder.path)
    if known is not None and known.height:
        complete = known.select((pl.col("n") + pl.col("n_excluded")).min() >= sampled).item()
        if complete or not wanted:
            return known
    if not parts:
        if wanted is None:
            few = f"{counted(prompts, 'prompt')}: too few to measure the noise"
            folder.note([f"{few} floor of the server; --noise-floor 30 measures it"])
        return None
    folder.begin("noise floor")
    try:
        with progress.steps("noise floor", sampled, "prompts") as advance:
            return noise.noise_floor(parts, advance)
    except ConsilienceError as error:
        if wanted:
            raise
        folder.note([f"{NOT_MEASURED}: {error}"])
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
    plan = plan_of(options, suite, progress)
    start = time.monotonic()
    queries = plan.queries(loaded(plan, options, model, progress))
    loading = time.monotonic() - start
    settings = settings_of(plan, queries, table := queries.table())
    path = options.out or default_folder(options.model, settings)
    if record := record_of(path):
        refuse_other_run(record["settings"], as_recorded(settings), path)
    complete = complete_groups(path)
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
        is_new=not record,
        loading=loading,
        notes=[*plan.notes],
        **_timed(queries, left or plan.sizes, sum(left.values())),
    )


def _timed(queries: Queries, sizes: Mapping[str, int], left: int) -> dict[str, Any]:
    """The fields of a plan that some queries give, which are asked after one that is not timed.

    ``sizes``: of the groups that they are of. ``left``: how many queries are not yet complete.
    """
    client = getattr(queries.model, "client", None)
    groups = [queries.group(name) for name in evenly([*sizes], TIMED)]
    count, asked = -(-TIMED // max(1, len(groups))), 0
    samples = [evenly([item.id for item in group.items], count) for group in groups]
    for group, items in zip(groups[:1], samples[:1], strict=True):
        queries.ask(group.only(items[:1], [0]), lambda done: None)
    before = client.usage.requests if client else 0
    start = time.monotonic()
    for group, items in zip(groups, samples, strict=True):
        part = group.only(items[: TIMED - asked], [0])
        asked += queries.ask(part, lambda done: None).height
    times = left / max(1, asked)
    requests = round((client.usage.requests - before) * times) if client else None
    return {
        "timed": asked, "seconds": (time.monotonic() - start) * times, "requests": requests,
    }  # fmt: skip
