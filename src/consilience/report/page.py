"""The page of a report: the verdict, the cards, all questions, and a fold with the details."""

from __future__ import annotations

import hashlib
import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from operator import attrgetter
from typing import Any

import polars as pl

from consilience.analysis.examples import violated_examples
from consilience.analysis.factor_effects import FactorTables, factors_of
from consilience.core.errors import By
from consilience.core.factors import Kind
from consilience.core.schemas import NOISE_FLOOR
from consilience.endpoints import cost_in_words
from consilience.metrics.measure import CheckedAnswers
from consilience.metrics.registry import headline_metrics
from consilience.report import charts, layouts
from consilience.report.cautions import SHOWN, by_run, ranked
from consilience.report.questions import packed
from consilience.report.summary import KEY, NO_OPTION, Summary
from consilience.report.table import (
    Cell,
    Column,
    Columns,
    Table,
    Value,
    all_notes,
    as_text,
    frame_table,
    interval_of,
    number_text,
    rendered,
    text_of,
)
from consilience.runs.run import Run, command_of
from consilience.types import Suite

NAMED = 3  # sentences and tasks in the verdict
EACH = 3  # violated expectations of a kind
UNIT = "\N{NO-BREAK SPACE}%"  # a line does not break before it


Part = Table | charts.Chart | str | Mapping[str, str] | Sequence[str]
"""A part of a section: a text is a paragraph, a mapping has names and values, a list has items."""


@dataclass(frozen=True, slots=True)
class Page:
    """A report, from its first line to its last."""

    title: str  # Which models, on what
    subtitle: str  # The sizes
    verdict: Sequence[str]  # The result in sentences
    details: Mapping[str, Sequence[Part]]  # In the fold, by heading; one without parts is left out
    cautions: Sequence[str] = ()  # The first few are shown, the details have all
    numbers: Sequence[Part] = ()  # Below the verdict
    summary: Summary | None = None  # Its rows are cards below the verdict
    questions: Mapping[str, Any] = field(default_factory=dict)  # ``question_data``

    @property
    def figures(self) -> list[charts.Chart]:
        parts = (of for parts in self.details.values() for of in parts)
        return [of for of in parts if isinstance(of, charts.Chart)]


def render(page: Page) -> str:
    """The page as HTML. No script runs but its own, whose digest is in its security policy."""
    import markupsafe

    folder = files("consilience.report")
    parts = {name: (folder / f"page.{name}").read_text(encoding="utf-8") for name in ("css", "js")}
    return rendered(
        "page.html",
        page=page,
        shown_cautions=page.cautions[:SHOWN],
        **{name: markupsafe.Markup(text) for name, text in parts.items()},
        **{f"{name}_digest": _digest(text) for name, text in parts.items()},
        data=markupsafe.Markup(packed(page.questions)) if page.questions else "",
        number=lambda value: number_text(value, "share"),
        within=lambda value: f"{min(100.0, max(0.0, 100 * value)):.1f}",
        shown=lambda *pair: (text_of(*pair), interval_of(*pair)),
        drawn=markupsafe.Markup,
        notes_of=all_notes,
        title_of=lambda table: as_text(table).title,
    )


def _digest(text: str) -> str:
    """A script or a style sheet, as a Content-Security-Policy names it."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@dataclass(frozen=True)
class RunView:
    """One run of a page."""

    run: Run
    suite: Suite
    answers: CheckedAnswers  # Those that are counted
    metrics: pl.DataFrame  # The metrics table (``METRICS_SCHEMA``)
    summary: Summary
    warnings: Sequence[str] = ()

    @property
    def name(self) -> str:
        return self.run.label

    @cached_property
    def factors(self) -> Sequence[FactorTables]:
        """What each factor changes, a view for each design; none of sentence pairs."""
        if self.suite.words.over == "group":
            return ()
        noise = self.metrics.filter(metric=NOISE_FLOOR)
        return factors_of(self.name, self.suite, self.answers, noise)


def report_page(
    runs: Sequence[RunView],
    compared: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    flips: tuple[pl.DataFrame, pl.DataFrame] | None = None,
    questions: Mapping[str, Any] | None = None,
) -> Page:
    """The report of runs on the same suite.

    ``compared``: later runs against the first (``COMPARISON_SCHEMA``). ``notes``: differences
    between the settings of the runs. ``flips``: numbers (``FLIP_SCHEMA``) and rows of the
    answers that changed. ``questions``: ``question_data``.
    """
    suite, several, names = runs[0].suite, len(runs) > 1, ", ".join(run.name for run in runs)
    about = runs[0].summary.title.removeprefix(f"{runs[0].name} on ")
    where, _, sizes = about.rpartition(": ")
    found = [*_verdict(runs[0])]
    if compared is not None:
        found = layouts.verdict(compared, suite)
    cautions = ranked([*notes, *by_run({run.name: run.warnings for run in runs})])
    details: dict[str, Iterable[Part]] = {
        "Factors": _factors(runs),
        f"{suite.words.group.capitalize()}s": _groups(runs),
        "Differences": _differences(suite, compared, flips, found),
        "Expectations": _violations(runs),
        "Cautions": [cautions] if cautions else [],
        "Repeat": repeat([(run.name, run.run.record) for run in runs]),
    }
    return Page(
        title=f"How consistent {'are' if several else 'is'} {names} on {where}?",
        subtitle=f"{len(runs)} runs: {sizes}" if several else sizes,
        verdict=found[:NAMED],
        cautions=cautions,
        summary=None if several else runs[0].summary,
        numbers=[_headline_table(runs)] if several else (),
        questions=questions or {},
        details={heading: [*parts] for heading, parts in details.items()},
    )  # fmt: skip


def of_run(name: str, runs: Sequence[object]) -> str:
    """The beginning of a title or note on a run; empty where there is only one."""
    return f"{name}: " if len(runs) > 1 else ""


# -- the verdict and the cards ------------------------------------------------------------------


def _verdict(run: RunView) -> Iterator[str]:
    """How often the answer changes, against chance, and what changes it most, in sentences."""
    words = run.suite.words
    answer = "label" if words.over == "group" else "answer"
    rows = [row for row in run.summary.rows if row.kind == "whole" and not math.isnan(row.value)]
    known = [row for row in rows if row.metric in ("consistency", "determinism")]
    for row in known[:NAMED]:
        task = f" of {row.group}" if len(run.suite.relations) > 1 and row.group else ""
        chance = "" if math.isnan(row.chance) else f" (expected by chance: {_rest(row.chance)})"
        yield (
            f"{run.name} changes its {answer} {_rest(row.value)} of the time when the same "
            f"{words.item}{task} is asked in another {words.variant}{chance}."
        )
    if not known:
        yield f"No {words.item} has two answers, so nothing says how consistent {run.name} is."
    yield from layouts.factor_verdict(run.factors)[:1]
    if run.summary.phrasings:
        yield run.summary.phrasings
    for row in rows:
        if row.metric == "position_preference":
            is_clear = row.value != 0 and not row.low <= 0 <= row.high
            place = f"the reply that is shown {'first' if row.value > 0 else 'second'}"
            yield f"It prefers {place if is_clear else 'neither place clearly'}."


def _rest(value: float) -> str:
    """What a share leaves, in percent, so that both add up to 100."""
    return f"{100 - round(100 * value, 1):.1f}{UNIT}"


def _headline_table(runs: Sequence[RunView]) -> Table:
    """A row a run, and the majority baseline where it is the same for all."""
    key_of = attrgetter(*KEY)
    shown = {key_of(row): Column(row.label, "share") for run in runs for row in run.summary.rows}
    lines: list[dict[Any, Value]] = []
    for run in runs:
        none = {key: 0.0 for key in shown if key[0] == NO_OPTION}
        cells = {key_of(of): Cell(of.value, low=of.low, high=of.high) for of in run.summary.rows}
        lines.append({"model": run.name, **none, **cells, "chance": run.summary.chance})
    baselines = [{key_of(row): row.baseline for row in run.summary.rows} for run in runs]
    if all(repr(of) == repr(baselines[0]) for of in baselines):
        lines.append({"model": "majority baseline", **baselines[0]})
    columns: Columns = {
        "model": Column("model"),
        **shown,
        "chance": Column("Expected by chance", "share"),
    }
    over = runs[0].suite.words.units
    return frame_table(lines, "In percent", columns, over=over)


# -- the details ---------------------------------------------------------------------------------


def _figure(runs: Sequence[RunView], what: str, kind: Kind) -> Iterator[charts.Chart]:
    """The consistency of each part of the runs with its intervals; nothing without numbers."""
    suite = runs[0].suite
    rows = charts.consistency_rows({run.name: run.metrics for run in runs}, suite, kind)
    if rows["value"].is_not_nan().any():
        about = f"Consistency of each {what} with 95 % intervals over {suite.words.clusters}"
        about += ". The line is what is expected by chance."
        yield replace(charts.interval_chart(rows, about), name=f"{what}s")


def _factors(runs: Sequence[RunView]) -> Iterator[Part]:
    """What each factor, language or form changes; nothing where nothing varies."""
    words, views = runs[0].suite.words, [view for run in runs for view in run.factors]
    if views:
        yield [*layouts.factor_verdict(views), *layouts.view_notes(views)]
        yield layouts.factor_table(views, "What each factor changes, in percent")
    if words.over == "group":
        yield from _figure(runs, words.variant, "form")
    for run in runs if words.has_means else ():
        if (rows := layouts.language_rows(run.metrics)).height:
            title = f"{of_run(run.name, runs)}Languages, means of {words.group}s in percent"
            yield layouts.metrics_table(rows, title, words.units)


def _groups(runs: Sequence[RunView]) -> Iterator[Part]:
    """The numbers of each group."""
    suite, words = runs[0].suite, runs[0].suite.words
    if words.over != "group":
        yield from _figure(runs, words.group, "whole")
    for run in runs:
        rows = run.metrics.filter(pl.col("metric").is_in(headline_metrics(aliases=True)))
        title = f"{of_run(run.name, runs)}Each {words.group}, in percent"
        yield replace(layouts.group_table(rows, suite), title=title)


def _differences(
    suite: Suite,
    compared: pl.DataFrame | None,
    flips: tuple[pl.DataFrame, pl.DataFrame] | None,
    verdict: Sequence[str],
) -> Iterator[Part]:
    """Later runs minus the first: headline numbers, their parts, and the answers that changed."""
    if compared is None:
        return
    if len(verdict) > NAMED:  # not all of it is above
        yield verdict
    by: By = "form" if suite.words.over == "group" else "group"
    for _, rows in compared.group_by(["first", "second"], maintain_order=True):
        yield layouts.comparison_table(rows, suite)
        if by == "group" or rows.filter(kind="form").height:
            table = layouts.comparison_table(rows, suite, by)
            yield replace(table, title=f"Each {table.columns[0].heading}: {table.title}")
    if flips and flips[1].height:
        yield layouts.flip_verdict(flips[0], suite)
        yield layouts.flip_table(flips[0], suite)


def _violations(runs: Sequence[RunView]) -> Iterator[Part]:
    """Examples of violated expectations."""
    for run in runs:
        if instances := run.answers.instances:
            sent = {key[1:]: text for key, text in run.run.texts().items()}
            title = f"{of_run(run.name, runs)}Violated expectations"
            yield layouts.violation_table(violated_examples(instances, sent, EACH), title)


def repeat(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Part]:
    """How to repeat each run, by name and record."""
    same = "The same command with the same versions gives the same answers."
    return [same, *(_origin(name, record) for name, record in runs)]


def _origin(name: str, record: Mapping[str, Any]) -> dict[str, str]:
    """The command, model, times, versions and digests of a run."""
    if not record:
        return {"Run": name, "Command": "not known: a table of answers"}
    settings, scoring = record["settings"], record.get("scoring")
    model = {"model": "not known"} | settings.get("model", {})
    named = ("architecture", "dtype", "device", "server")
    described = [model["model"], *(f"{key} {model[key]}" for key in named if model.get(key))]
    own_code = "with the Python code that comes with it (--trust-remote-code)"
    digest = model.get("digest") and f"SHA-256 {model['digest']}"
    rows = {
        "Run": name,
        "Command": command_of(record.get("options")) or "not known: run.json has the settings",
        "Model": ", ".join([*described, *[own_code] * bool(model.get("trust_remote_code"))]),
        "Weights": digest or (model.get("revision") and f"revision {model['revision']}"),
        "Scored by": scoring and f"{scoring.get('strategy')} ({scoring.get('gives')})",
        "Started": record.get("started"),
        "Finished": record.get("finished") or "not finished",
        "Cost": record.get("cost") and cost_in_words(record["cost"]),
        "Versions": ", ".join(" ".join(of) for of in record["versions"].items()),
        "Git": record.get("git"),
        "Questions": f"SHA-256 {settings.get('queries')}",
    }
    return {label: str(value) for label, value in rows.items() if value}
