"""Probe a model: plan, ask group by group, count. Shards are fixed parts of the groups of a run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.asking.asker import Progress
from consilience.asking.facts import ask_groups
from consilience.asking.noise import sample_size
from consilience.core.errors import SILENT, ConsilienceError, Protocol, UnansweredError, Watch
from consilience.core.provenance import busy
from consilience.core.schemas import FLIPS
from consilience.core.text import counted, duration, evenly
from consilience.endpoints.usage import BYTES_A_TOKEN, PlannedUsage
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

if TYPE_CHECKING:
    from consilience.endpoints.client import Client


SAMPLED = 6  # How many groups are asked to measure the rate
MARGIN = 1.5  # By how much more than a sample gives the usage of all queries is bounded
SAMPLED_SECONDS = 20  # Seconds after which no further sample is asked


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts, numbered from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard of a text such as ``2/8``; any other text raises."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        shard = cls(*map(int, match.groups())) if match else cls(0, 0)
        if not 1 <= shard.number <= shard.count:
            raise ConsilienceError(
                f"--shard {text}", expected="I/N with I from 1 to N, such as 1/8 for the first of 8"
            )
        return shard

    def part(self, sizes: Sequence[int]) -> range:
        """The positions of the part in a sequence of things of these sizes.

        Parts are contiguous, disjoint and cover all things. A thing belongs to the part in whose
        share of the total size its middle is, so that parts have about the same size. Some are
        empty where there are fewer things than parts, or where one thing is large.
        """
        total, before, positions = max(1, 2 * sum(sizes)), 0, []
        for at, size in enumerate(sizes):
            middle = 2 * before + size
            if min(middle * self.count // total, self.count - 1) == self.number - 1:
                positions.append(at)
            before += size
        return range(positions[0], positions[-1] + 1) if positions else range(0)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True, slots=True, repr=False)
class ShardReport(Shown):
    """What a shard would ask, or has asked, where the run is not complete."""

    shard: str  # Which part, such as ``2/8``
    groups: Sequence[str]  # The groups of the part; of several seeds with the seed before the group
    queries: int
    total_groups: int
    total_queries: int
    left: Sequence[str] = ()  # The groups of other shards that are not known to be complete
    folder: str = ""  # The folder of the run; empty where nothing was asked

    def printed(self, output: Output) -> list[str]:
        every = counted(self.total_groups, "group")
        if not self.groups:
            return [f"Shard {self.shard} has none of {every}; nothing to ask."]
        part = f"Shard {self.shard}: {len(self.groups):,} of {every}"
        queries = f"{self.queries:,} of {self.total_queries:,} queries"
        if self.folder:
            done = f"{part} complete ({queries}) in {self.folder}"
            return [done, f"Left: {', '.join(self.left)}"]
        return [f"{part}, {queries}. Nothing is written.", f"Groups: {', '.join(self.groups)}"]

    def document(self) -> dict[str, Any]:
        return {"shard": asdict(self)}


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
    sampled: int  # Number of queries that were asked to measure the rate
    rate: float  # Queries in a second, in the sample; 0 where it was not measured
    doubt: str = ""  # Why the time may be off by more than a factor of two; empty without a reason
    usage: PlannedUsage | None = None
    """Of a model behind a URL: the requests and tokens of what is not yet complete, of the noise
    floor and of the proof, at most."""
    repeated: int = 0
    """Of a model behind a URL: the prompts that are sent again, for the noise floor."""
    sent: int = 0
    """Of a model behind a URL: the requests that were sent, to find out how it is asked."""
    cost: float | None = None
    """What these requests and tokens would cost, at most; None where no price was given."""

    def __repr__(self) -> str:
        return "\n".join(self.printed(Output()))

    def document(self) -> dict[str, Any]:
        return {"plan": self.to_dict()}

    def printed(self, output: Output) -> list[str]:
        left = self.queries - self.complete
        resumes = f"resumes: {self.complete:,} of {self.queries:,} complete"
        rows = {
            "Groups": f"{self.groups:,}",
            "Items": f"{self.items:,}, each in {self.variants}",
            "Queries": f"{self.queries:,}, each with {self.candidates} candidates",
            "Folder": f"{self.folder} ({'new' if self.is_new else resumes})",
        }
        rows |= self.requests_in_words() or {
            "Time": f"about {duration(self.seconds)} to ask {left:,} queries; loading took "
            f"{duration(self.loading)}",
            "Measured": f"{self.rate:,.1f} queries/s in a sample of {self.sampled:,}"
            + (f"; unreliable: {self.doubt}" if self.doubt else ""),
        }
        return [
            f"Plan: {self.model} on {self.suite} ({self.protocol}). Nothing is written.",
            *(f"{name:9} {text}" for name, text in rows.items()),
        ]

    @property
    def seconds(self) -> float:
        """Estimated seconds to ask what is not yet complete."""
        return (self.queries - self.complete) / self.rate if self.rate else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": self.seconds}

    def requests_in_words(self, server: str = "the server") -> dict[str, str]:
        """Requests, tokens and cost of a model behind a URL, by what they are; empty for others."""
        if self.usage is None:
            return {}
        most = self.usage.most
        estimate = f"estimated at {BYTES_A_TOKEN} bytes a token" if most.is_estimated else "counted"
        left = self.queries - self.complete
        sampled = "" if self.sampled >= left else f", from a sample of {self.sampled:,}"
        rows = {
            "Requests": f"at most {most.requests:,} for {left:,} queries{sampled}, "
            f"{self.repeated:,} repeats for the noise floor and {self.sent:,} that test {server}",
            "Tokens": f"at most {round(most.tokens_read):,} read ({estimate}) and "
            f"{most.tokens_written:,} written",
            "Sent": f"{counted(self.sent, 'request')} now, which tested {server}",
        }
        return rows | ({} if self.cost is None else {"Cost": f"at most {self.cost:.4g}"})


def together(plans: Sequence[ProbePlan]) -> ProbePlan:
    """The requests, tokens and cost of several plans together; the rest is that of the first."""
    costs = [plan.cost for plan in plans if plan.cost is not None]
    names = ("queries", "complete", "sampled", "repeated", "sent")
    return replace(
        plans[0],
        usage=sum((plan.usage for plan in plans if plan.usage), PlannedUsage()),
        cost=sum(costs) if costs else None,
        **{name: sum(getattr(plan, name) for plan in plans) for name in names},
    )


def measured_rate(
    left: Mapping[str, int],
    samples: Mapping[str, Sequence[str]],
    ask: Callable[[str, Sequence[str]], int],
) -> dict[str, Any]:
    """Ask items of some groups for about ``SAMPLED_SECONDS``; fields of a plan.

    Each group is first asked one item, so that the model is warm and no group is left out, and
    then its ``samples``, whose time counts in its place. ``left``: the queries of each group, by
    which it counts. ``ask`` returns the number of queries.
    """
    seconds, sampled, doubt = dict[str, float](), dict[str, int](), busy()
    groups = evenly([group for group in left if left[group]] or [*left], SAMPLED)
    end = time.monotonic() + SAMPLED_SECONDS
    for group, items in [(group, items) for items in (1, None) for group in groups]:
        if (start := time.monotonic()) >= end:
            doubt = doubt or f"a larger sample takes more than {SAMPLED_SECONDS} s"
            break
        sampled[group] = max(1, ask(group, samples[group][:items]))
        seconds[group] = (time.monotonic() - start) / sampled[group]
    whole = sum(left[group] * of_query for group, of_query in seconds.items())
    rate = sum(left[group] for group in seconds) / max(whole, 1e-9)
    return {"sampled": sum(sampled.values()), "rate": rate, "doubt": doubt}


def sampled_plan(inquiry: Inquiry, left: Mapping[str, int]) -> dict[str, Any]:
    """The fields of a plan that a sample gives: its size, and the rate or the usage.

    A model behind a URL is asked nothing: requests are made, and not sent, for the time of a
    sample. ``usage`` is an upper bound: it has the requests of all queries, or half more than those
    of some queries give; the repeats of the noise floor, each as large as those of the largest
    group; and the proof. ``left``: the number of queries of each group that are not yet complete.
    """
    samples = inquiry.samples

    def ask(group: str, items: Sequence[str] | None) -> int:
        return inquiry.ask(group, items).height

    client: Client | None = getattr(inquiry.model, "client", None)
    if client is None or client.is_free:
        return measured_rate(left, samples, ask)
    begin, plans = time.monotonic(), list[tuple[PlannedUsage, int, int]]()

    def planned(ask: Callable[[], int]) -> tuple[PlannedUsage, int]:
        plan = client.plan = PlannedUsage()
        return plan, max(1, ask())

    try:
        for group, size in left.items():
            if size:
                start = time.monotonic()
                plan, sampled = planned(partial(ask, group, samples[group]))
                now = time.monotonic()
                whole = now + (now - start) * size / sampled
                if sampled < size and whole < begin + SAMPLED_SECONDS:
                    plan, sampled = planned(partial(ask, group, None))
                plans.append((plan, sampled, size))
    finally:
        client.plan = None
    queries = sum(inquiry.groups.values())
    repeated = sample_size(queries, inquiry.options.noise_floor) if plans else 0
    sent = client.usage
    usage = PlannedUsage(sent.requests, sent.tokens_read, sent.tokens_written)
    for plan, sampled, size in plans:
        usage += plan if sampled == size else plan.times(MARGIN * size / sampled)
    # One request may be for several queries, and a repeat for one of them.
    shares = [(plan, max(1, min(plan.most.requests, sampled))) for plan, sampled, _ in plans]
    if repeated:
        plan, sampled = max(shares, key=lambda one: one[0].most.tokens_read / one[1])
        usage += plan.times(MARGIN * repeated / sampled)
    price = client.connection.price
    return {
        "sampled": sum(sampled for _, sampled, _ in plans),
        "rate": 0.0,
        "usage": usage,
        "repeated": repeated,
        "sent": client.usage.requests,
        "cost": None if price is None else usage.most.cost(price),
    }


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
            counted = count_run(run, inquiry.suite, inquiry.protocol, options.seed)
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
        found = f"--shard with {options.model}, a model behind a URL"
        todo = "Leave --shard out: one process sends many requests at once (--concurrency)."
        raise ConsilienceError(found, expected="a model that runs here", todo=todo)
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
        inquiry.load()
        folder = open_folder(inquiry.folder, inquiry, named)
        ask_in_folder(inquiry, folder, parts[inquiry.seed], watch)
        complete = complete_groups(folder.path)[1]
        left += _names(inquiry, [group for group in inquiry.groups if group not in complete])
        path = str(folder.path.parent if inquiry.seed else folder.path)
        if not left:
            counted[inquiry.seed] = _finished(inquiry, folder, watch)
        inquiry.release()
    if left:
        return replace(report, left=left, folder=path)
    return inquiries[0].together(inquiries, [counted[inquiry.seed] for inquiry in inquiries])


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
    return [f"{inquiry.seed}/{group}" if inquiry.seed else group for group in groups]


def _finished(inquiry: Inquiry, folder: RunFolder, watch: Watch) -> CountedRun:
    """Ask one model, and count and keep its answers; existing ones are not asked again."""
    options = inquiry.options
    by_group = ask_in_folder(inquiry, folder, inquiry.groups, watch)
    tables = {group.id: by_group[group.id].drop("scores", strict=False) for group in inquiry.suite}
    answers = pl.concat(tables.values(), how="diagonal")
    is_served = getattr(inquiry.model, "client", None) is not None
    if is_served and answers["answer"].null_count() == answers.height:
        folder.discard_answers()
        raise _unanswered(answers, inquiry.model, folder)
    noise = inquiry.noise_floor(folder, tables)
    name, seed = model_name(options.model), options.seed
    counted = count_answers({"": answers}, inquiry.suite, inquiry.protocol, name, seed, noise)
    counted = replace(counted, notes=[*inquiry.notes_on(answers), *counted.notes])
    return replace(save_counted(counted, folder), changed_answers=inquiry.changed(answers))


def _unanswered(answers: pl.DataFrame, model: Any, folder: RunFolder) -> UnansweredError:
    """The error for a run of a server without a single answer, whose queries are asked again."""
    reasons = answers["excluded"].fill_null("no reason is known").value_counts(sort=True)
    reason, times = reasons.row(0)
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
