"""Ask a sample of a run again, and say whether this machine gives the same answers."""

from __future__ import annotations

import json
import math
import random
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Watch
from consilience.core.provenance import versions
from consilience.core.schemas import FLIPS
from consilience.core.text import counted, spread
from consilience.endpoints.usage import PlannedUsage, cost_in_words, cost_record
from consilience.kinds import inquiries_of
from consilience.kinds.base import Inquiry
from consilience.kinds.counting import noise_floor_of
from consilience.metrics.statistics import NAN
from consilience.options import Output, option_fields, shared
from consilience.options.probe import ProbeOptions
from consilience.options.runs import VerifyOptions
from consilience.report.export import Shown, in_sentences, record_of
from consilience.report.table import Table
from consilience.runs.folder import FORMAT, digest_of, refuse_other_run
from consilience.runs.run import Run, options_of_record, recorded_answers

if TYPE_CHECKING:
    from consilience.endpoints.client import Client


KEYS = ("group", "item", "variant")
SCORED = ("logprob", "gold_logprob", "margin")  # the scores that are compared, in nats
SHOWN_ROWS = 5  # queries with another answer that are printed; --json has all


@dataclass(frozen=True, slots=True)
class Verification(Shown):
    """A sample of a run, then and now."""

    files: Mapping[str, str]  # Files that are missing, changed or unknown, by group
    settings: Mapping[str, tuple[Any, Any]]  # What differs, then and now
    rows: pl.DataFrame  # A row for each query: ``*KEYS, answer, now, margin``
    largest: float  # The largest difference of a score, in nats; NaN where the run has no scores
    is_exact: bool  # Whether all scores are the same to the last bit
    noise_floor: float | None  # The largest share of flipped answers; None if unknown
    cost: Mapping[str, Any]  # Empty for a model that runs here
    temperature: float  # Of a server; 0 where answers were not sampled
    record: Mapping[str, Any] = field(repr=False)

    @property
    def differing(self) -> pl.DataFrame:
        return self.rows.filter(pl.col("answer").ne_missing(pl.col("now")))

    @property
    def is_same(self) -> bool:
        """Whether all answers are the same, and all files as the run wrote them."""
        return self.differing.is_empty() and not self.files

    @property
    def verdict(self) -> list[str]:
        """Whether this machine gives the same answers, in sentences."""
        sentences, size = [], self.rows.height
        if self.files:
            faults = ", ".join(f"{group} {fault}" for group, fault in self.files.items())
            sentences.append(f"The answers files are not as the run wrote them: {faults}.")
        if differing := self.differing.height:
            floor = "the noise floor of the run was not measured"
            if (flips := self.noise_floor) is not None:
                side = "more" if differing > flips * size else "no more"
                floor = f"{side} than the noise floor of the run ({100 * flips:.1f} %)"
            share = f"{100 * differing / size:.1f} %"
            sentences.append(f"{differing} of {size} answers differ ({share}): {floor}.")
            if self.temperature:
                sampled = f"The server sampled at temperature {self.temperature:g}"
                sentences.append(f"{sampled}, so answers need not be equal.")
        else:
            scores = "and so are all scores, to the last bit"
            if math.isnan(self.largest):
                scores = "no scores were compared"
            elif not self.is_exact:
                scores = f"scores differ by up to {self.largest:.1e} nats"
            sentences.append(f"All {counted(size, 'answer')} are the same, {scores}.")
        return sentences

    def printed(self, output: Output) -> Iterator[Table | str]:
        yield from in_sentences(self.verdict, output)
        yield f"Asked again: {self.rows.height} queries, whole items of each group."
        for name, (then, now) in self.settings.items():
            yield f"{name}: {then} then, {now} now"
        for row in self.differing.head(SHOWN_ROWS).to_dicts():
            query = f"{row['group']}, item {row['item']}, '{row['variant']}'"
            yield f"{query}: {row['answer']} then, {row['now']} now (margin {row['margin']})"
        if self.cost:
            yield f"Cost: {cost_in_words(self.cost)}"

    def document(self) -> dict[str, Any]:
        return {
            "run": self.record,
            "verdict": self.verdict,
            "queries": self.rows.height,
            "differing": self.differing.to_dicts(),
            "largest_score_difference": self.largest,
            "is_exact": self.is_exact,
            "noise_floor": self.noise_floor,
            "cost": dict(self.cost),
            "files": dict(self.files),
            "changed_settings": {name: list(both) for name, both in self.settings.items()},
        }

    def exit_status(self) -> int:
        """3 where answers differ."""
        return 0 if self.is_same else 3


def verify(options: VerifyOptions, watch: Watch = SILENT) -> Verification:
    """Check the files of a run, and ask whole items of each group again in all their variants.

    A run that cannot be repeated raises. Nothing is written.
    """
    run = Run.open(options.run)
    if run.parts:
        names = ", ".join(part.path.name for part in run.parts)
        raise ConsilienceError(
            "a run of several seeds", where=str(run.path), todo=f"Name one of them: {names}."
        )
    files = _changed_files(run)
    recorded = options_of_record(run.record, str(run.path))
    probe = replace(
        recorded,
        model=options.model or recorded.model,
        device=options.device or recorded.device,
        out=None,  # it may hold the run of all seeds
        **_trusted(recorded, options, run),
        max_requests=options.max_requests,
        max_tokens=options.max_tokens,
    )
    inquiries, seed = inquiries_of(probe, watch), run.path.resolve().name
    model = run.settings.get("model", {}).get("model")
    fits = [one for one in inquiries if getattr(one, "spec", None) == model]
    fits = fits or [one for one in inquiries if one.seed == seed or len(inquiries) == 1]
    if not fits:
        names, todo = ", ".join(one.seed for one in inquiries), "Name that of the run with --model."
        raise ConsilienceError(f"models of several seeds: {names}", where=probe.model, todo=todo)
    inquiry = fits[0]
    inquiry.load()
    now = json.loads(json.dumps({"format": FORMAT, **inquiry.settings}))
    try:
        refuse_other_run({**run.settings, "model": now.get("model")}, now, run.path)
    except ConsilienceError as error:
        todo = "Restore the suite and the data that the run was asked, or probe again."
        raise error.replaced(expected="", where=str(run.path), todo=todo) from error
    known = {
        group: recorded_answers(run.path / "answers" / f"{group}.parquet")
        for group in inquiry.groups
        if files.get(group) != "missing"
    }
    sampled = _sample(known, options.sample, options.seed)
    size = sum(rows.height for rows in sampled.values())
    client: Client | None = None if probe.connection is None else inquiry.model.client
    if client is not None:
        _announce(client, inquiry, sampled, watch)
    with watch.steps("asking again", size, inquiry.unit) as advance:
        tables = [_compared(inquiry, group, rows, advance) for group, rows in sampled.items()]
    rows = pl.concat(tables, how="diagonal")
    largest, is_exact = _score_differences(rows)
    floors = noise_floor_of(run.path)
    flips = None if floors is None else floors.filter(metric=FLIPS)["value"].max()
    return Verification(
        files,
        dict(_differences(run, now)),
        rows.select(*KEYS, "answer", "now", "margin"),
        largest,
        is_exact,
        flips if isinstance(flips, float) else None,
        {} if client is None else cost_record(client.usage, client.connection.price, {}),
        0.0 if client is None else probe.temperature,
        record_of(run=str(run.path), sample=options.sample, seed=options.seed),
    )


def _trusted(recorded: ProbeOptions, options: VerifyOptions, run: Run) -> dict[str, Any]:
    """What runs code or sends a key, as the user gave it; the record only says what is lacking."""
    trusted: dict[str, Any] = {}
    lacking: list[str] = []
    for option in option_fields(VerifyOptions):
        if (needs_trust := option.option.needs_trust) is None:
            continue
        value, then = getattr(options, option.name), getattr(recorded, option.name)
        trusted[option.name] = value or (option.default if needs_trust(then) else then)
        if needs_trust(then) and not value:
            lacking += option.typed(then)
    if lacking:
        raise ConsilienceError(
            f"its record asks for {shlex.join(lacking)}",
            expected="what runs code or sends a key on the command line of verify, because "
            "anybody can write a record",
            where=str(run.path),
            todo="If you trust the run and what it names, repeat these options.",
        )
    sources = run.settings.get("perturbation_sources", {}).values()
    for spec in filter(shared.names_code, trusted["perturbations"] or ()):
        file = Path(spec.rpartition(":")[0])
        if file.is_file() and digest_of(file) not in [of.get("sha256") for of in sources]:
            found = "not the file that the run was made with, so it was not run"
            expected = "the SHA-256 that is in run.json"
            todo = "Restore the file, or probe again."
            raise ConsilienceError(found, expected=expected, where=str(file), todo=todo)
    return trusted


def _announce(
    client: Client, inquiry: Inquiry, sampled: Mapping[str, pl.DataFrame], watch: Watch
) -> None:
    client.plan = PlannedUsage()
    for group, rows in sampled.items():
        _compared(inquiry, group, rows, lambda steps: None)
    planned, client.plan = client.plan, None
    requests = spread([planned.requests, planned.most.requests])
    tests = f"{client.usage.requests:,} that test what the server can do"
    where = client.connection.base_url
    watch.inform(f"sending about {requests} requests to {where}, after {tests}")


def _changed_files(run: Run) -> dict[str, str]:
    files = {file.stem: file for file in (run.path / "answers").glob("*.parquet")}
    digests: Mapping[str, str] = run.record.get("answers", {})
    both = sorted(digests.keys() & files.keys())
    return {
        **dict.fromkeys(sorted(digests.keys() - files.keys()), "missing"),
        **dict.fromkeys(sorted(files.keys() - digests.keys()), "unknown"),
        **{name: "changed" for name in both if digests[name] != digest_of(files[name])},
    }


def _sample(tables: Mapping[str, pl.DataFrame], size: int, seed: int) -> dict[str, pl.DataFrame]:
    """About ``size`` rows of whole items, as many items of each group; at least one item."""
    items = {
        group: table["item"].unique(maintain_order=True).to_list()
        for group, table in tables.items()
        if table.height
    }
    generator = random.Random(seed)
    for names in items.values():
        generator.shuffle(names)
    order = list(items)
    generator.shuffle(order)
    chosen: dict[str, list[str]] = {}
    rows = 0
    for at in range(max(map(len, items.values()), default=0)):
        for group in order:
            if rows < size and at < len(items[group]):
                chosen.setdefault(group, []).append(items[group][at])
                rows += tables[group].filter(pl.col("item") == items[group][at]).height
    return {
        group: tables[group].filter(pl.col("item").is_in(chosen[group]))
        for group in items
        if group in chosen
    }


def _compared(inquiry: Inquiry, group: str, rows: pl.DataFrame, advance: Any) -> pl.DataFrame:
    again = inquiry.ask(group, rows["item"].unique(maintain_order=True).to_list(), progress=advance)
    scores = [name for name in SCORED if name in rows.columns and name in again.columns]
    renamed = again.select(*KEYS, now="answer", **{f"{name}_now": name for name in scores})
    if "margin" not in rows.columns:
        rows = rows.with_columns(margin=pl.lit(None, pl.Float64))
    return rows.join(renamed, on=list(KEYS), how="left", maintain_order="left")


def _score_differences(rows: pl.DataFrame) -> tuple[float, bool]:
    """The largest difference of two scores in nats, NaN without scores; whether all are equal."""
    differences: list[float] = []
    is_exact = True
    for name in filter(rows.columns.__contains__, SCORED):
        then = rows[name]
        now = rows[f"{name}_now"] if f"{name}_now" in rows.columns else then.clear(len(then))
        is_exact = is_exact and then.equals(now, null_equal=True)
        differences += (then - now).abs().drop_nulls().drop_nans().to_list()
    return max(differences, default=NAN), is_exact and bool(differences)


def _differences(run: Run, now: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """What is not as it was when the run was asked: the model, libraries and the processor."""
    for kind, then, today in (
        ("model: ", run.settings.get("model", {}), now.get("model", {})),
        ("", run.record.get("versions", {}), versions()),
    ):
        for name in dict.fromkeys([*then, *today] if kind else today):
            if then.get(name) != today.get(name):
                yield f"{kind}{name}", (then.get(name), today.get(name))
