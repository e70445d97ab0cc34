"""Probe a model: plan, ask group by group, count."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience.asking.asker import Progress
from consilience.asking.facts import ask_groups
from consilience.core.errors import SILENT, ConsilienceError, Protocol, UnansweredError, Watch
from consilience.core.schemas import FLIPS, REASONS
from consilience.core.text import counted, duration, evenly
from consilience.kinds import inquiries_of
from consilience.kinds.base import NOT_MEASURED, Inquiry
from consilience.kinds.counting import (
    CountedRun,
    count_answers,
    count_run,
    save_counted,
)
from consilience.models import LanguageModel, Model
from consilience.models.functions import PlainPairs
from consilience.options import Output
from consilience.options.probe import ProbeOptions
from consilience.report.export import Shown
from consilience.runs.folder import FORMAT, RunFolder, refuse_other_run
from consilience.runs.folder import record_of as record_in
from consilience.runs.run import Run, model_name, options_record
from consilience.suites.questions import Questions
from consilience.types import Suite

TIMED = 8  # Queries that a plan asks to estimate the time


@dataclass(frozen=True, slots=True, repr=False)
class ProbePlan(Shown):
    """What a run would ask."""

    model: str
    suite: str  # The suite or the task
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
    requests: int | None = None  # Of a model behind a URL: how many these are, about

    def __repr__(self) -> str:
        return "\n".join(self.printed(Output()))

    def document(self) -> dict[str, Any]:
        return {"plan": asdict(self)}

    def printed(self, output: Output) -> list[str]:
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
            f"about {duration(self.seconds)} to ask {left:,} queries, from {self.timed} timed "
            f"ones; loading took {duration(self.loading)}"
        )
        return [
            f"Plan: {self.model} on {self.suite} ({self.protocol}). Nothing is written.",
            *(f"{name:9} {text}" for name, text in rows.items()),
        ]


def timed_queries(inquiry: Inquiry, left: Mapping[str, int]) -> dict[str, Any]:
    """The fields of a plan that some queries give, which are asked after one that is not timed.

    ``left``: the number of queries of each group that are not yet complete.
    """
    client = getattr(inquiry.model, "client", None)
    groups = evenly([group for group in left if left[group]] or [*left], TIMED)
    items, asked = -(-TIMED // max(1, len(groups))), 0
    for group in groups[:1]:
        inquiry.ask(group, inquiry.samples[group][:1], [0])
    before = client.usage.requests if client else 0
    start = time.monotonic()
    for group in groups:
        chosen = inquiry.samples[group][: min(items, TIMED - asked)]
        asked += inquiry.ask(group, chosen, [0]).height
    times = sum(left.values()) / max(1, asked)
    requests = round((client.usage.requests - before) * times) if client else None
    return {
        "timed": asked, "seconds": (time.monotonic() - start) * times, "requests": requests,
    }  # fmt: skip


def complete_groups(
    folder: Path, settings: Mapping[str, object] | None = None
) -> tuple[bool, set[str]]:
    """Whether a folder has no run, and its complete groups; one of other ``settings`` raises."""
    record = record_in(folder)
    if not record:
        return True, set()
    if settings is not None:
        now = json.loads(json.dumps({"format": FORMAT, **settings}))
        refuse_other_run(record["settings"], now, folder)
    files = {path.stem for path in (folder / "answers").glob("*.parquet")}
    return False, files & set(record["answers"])


def probe(
    options: ProbeOptions,
    watch: Watch = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | Model | None = None,
    recorded: ProbeOptions | None = None,
) -> CountedRun:
    """Ask a model a suite, measure its answers and keep the run; values may replace the names.

    ``recorded``: the options that the record of the run has; None for ``options``.
    """
    inquiries = inquiries_of(options, watch, suite=suite, model=model)
    named = options_record(recorded or options, {"suite": suite, "model": model})
    runs = []
    for inquiry in inquiries:
        if complete := _complete(inquiry, named):
            runs.append(complete)
            continue
        inquiry.load()
        runs.append(_finished(inquiry, open_folder(inquiry.folder, inquiry, named), watch))
        inquiry.release()
    return inquiries[0].together(inquiries, runs)


def _complete(inquiry: Inquiry, named: Mapping[str, Any]) -> CountedRun | None:
    """The complete run of a server with these options, counted again; nothing is sent."""
    options, named = inquiry.options, json.loads(json.dumps(named))
    is_served = options.connection is not None and not inquiry.is_given
    paths = [options.out] if options.out else sorted(Path("runs").glob("*"))
    for path in paths if is_served else ():
        with suppress(ConsilienceError):  # other settings, or changed answers, which are asked
            record = record_in(path)
            if not record.get("finished") or record.get("options") != named:
                continue
            before = record["settings"]
            is_chat = any(template["chat"] for template in before.get("templates", {}).values())
            stands_in: Any = PlainPairs()  # a server's sentence pairs are never cut either
            known = {"identity": before["model"], "takes_chats": is_chat, "write": None}
            vars(stands_in).update(known)  # in place of the model, for the other settings
            inquiry.model = stands_in
            inquiry.load()
            now = json.loads(json.dumps({"format": FORMAT, **inquiry.settings}))
            refuse_other_run(before, now, path)
            run = Run.open(path, model_name(options.model))
            counted = count_run(run, inquiry.suite, inquiry.protocol)
            is_measured = FLIPS in counted.metrics["metric"]
            if is_measured or not any(NOT_MEASURED in note for note in record["warnings"]):
                note = f"the run was complete ({record['finished']}): nothing was asked"
                note += "; to ask the server again, name another folder (--out)"
                counted = replace(counted, notes=[note, *record["warnings"]])
                record = {**record, "path": str(path)}
                return replace(counted, record=record, changed_answers=inquiry.changed(run.answers))
        inquiry.model = None
        vars(inquiry).pop("settings", None)
    return None


def _finished(inquiry: Inquiry, folder: RunFolder, watch: Watch) -> CountedRun:
    """Ask one model, and count and keep its answers; existing ones are not asked again."""
    options = inquiry.options
    try:
        by_group = ask_in_folder(inquiry, folder, inquiry.groups, watch)
    except BaseException:
        folder.note_cost()
        raise
    tables = {group.id: by_group[group.id].drop("scores", strict=False) for group in inquiry.suite}
    answers = pl.concat(tables.values(), how="diagonal")
    is_served = getattr(inquiry.model, "client", None) is not None
    if is_served and answers["answer"].null_count() == answers.height:
        folder.discard_answers()
        raise _unanswered(answers, inquiry.model, folder)
    noise = inquiry.noise_floor(folder, tables)
    name = model_name(options.model)
    counted = count_answers({"": answers}, inquiry.suite, inquiry.protocol, name, noise)
    counted = replace(counted, notes=[*inquiry.notes_on(answers), *counted.notes])
    return replace(save_counted(counted, folder), changed_answers=inquiry.changed(answers))


def _unanswered(answers: pl.DataFrame, model: Any, folder: RunFolder) -> UnansweredError:
    """The error for a run of a server without a single answer, whose queries are asked again."""
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

    complete = complete_groups(folder.path)[1]
    left = sum(size for group, size in groups.items() if group not in complete)
    with watch.steps(title, left, inquiry.unit) as advance:
        return ask_groups(groups, ask, inquiry.model, folder, advance)


def plan_probe(
    options: ProbeOptions,
    watch: Watch = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | Model | None = None,
) -> ProbePlan:
    """What ``probe`` would ask with these options; nothing is written.

    The model, of several the first, is loaded, and ``TIMED`` queries are asked to estimate the time
    and, of a model behind a URL, the number of requests.
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
    watch.say("asking some queries to estimate the time")
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
        **timed_queries(inquiry, left),
    )
