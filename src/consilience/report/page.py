"""The page of a report: the verdict, the cards, all questions, and a fold with the details."""

from __future__ import annotations

import hashlib
import math
import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import chain
from operator import attrgetter
from typing import Any

import polars as pl

from consilience.analysis.examples import KINDS, changed_answers, examples, violated_examples
from consilience.analysis.factor_effects import FactorTables, factors_of
from consilience.core.errors import By
from consilience.endpoints import cost_in_words
from consilience.metrics.measure import CheckedAnswers
from consilience.metrics.registry import headline_metrics
from consilience.options import parameters
from consilience.options.commands import ProbeOptions
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
from consilience.runs.run import Run
from consilience.types import Suite

EACH = 3  # examples of a kind
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
        within=lambda of, least: f"{min(100.0, max(0.0, 100 * (of - least) / (1 - least))):.1f}",
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


def report_page(
    runs: Sequence[RunView],
    compared: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    flips: pl.DataFrame | None = None,
    questions: Mapping[str, Any] | None = None,
) -> Page:
    """The report of runs on the same suite.

    ``compared``: later runs against the first (``COMPARISON_SCHEMA``). ``notes``: differences
    between the settings of the runs. ``flips``: which answers changed (``FLIP_SCHEMA``).
    ``questions``: ``question_data``.
    """
    suite, several, names = runs[0].suite, len(runs) > 1, ", ".join(run.name for run in runs)
    about = runs[0].summary.title.removeprefix(f"{runs[0].name} on ")
    where, _, sizes = about.rpartition(": ")
    views = [factors_of(run.name, suite, run.answers, None) for run in runs]
    found = [*_verdict(runs[0], views[0])] if compared is None else layouts.verdict(compared, suite)
    cautions = ranked([*notes, *by_run({run.name: run.warnings for run in runs})])
    details: dict[str, Iterable[Part]] = {
        "Factors": _factors(runs, [*chain.from_iterable(views)]),
        f"{suite.words.group.capitalize()}s": _groups(runs),
        "Differences": _differences(suite, compared, flips),
        "Examples": _examples(runs),
        "Cautions": [cautions] if cautions else [],
        "Repeat": repeat([(run.name, run.run.record) for run in runs]),
    }
    return Page(
        title=f"How consistent {'are' if several else 'is'} {names} on {where}?",
        subtitle=f"{len(runs)} runs: {sizes}" if several else sizes,
        verdict=found,
        cautions=cautions,
        summary=None if several else runs[0].summary,
        numbers=[_headline_table(runs)] if several else (),
        questions=questions or {},
        details={heading: [*parts] for heading, parts in details.items()},
    )  # fmt: skip


def _verdict(run: RunView, views: Sequence[FactorTables]) -> Iterator[str]:
    """How often the answer changes, against chance, and what changes it most, in sentences."""
    words = run.suite.words
    answer = "label" if words.over == "group" else "answer"
    rows = [of for of in run.summary.rows if of.kind == "whole" and not math.isnan(of.value)]
    known = [row for row in rows if row.metric in ("consistency", "determinism")]
    for row in known:
        task = f" of {row.group}" if len(run.suite.relations) > 1 and row.group else ""
        chance = "" if math.isnan(row.chance) else f" (expected by chance: {_rest(row.chance)})"
        yield (
            f"{run.name} changes its {answer} {_rest(row.value)} of the time when the same "
            f"{words.item}{task} is asked in another {words.variant}{chance}."
        )
    if not known:
        yield f"No {words.item} has two answers, so nothing says how consistent {run.name} is."
    for row in rows:
        if row.metric == "position_preference" and row.value and not row.low <= 0 <= row.high:
            place, points = "first" if row.value > 0 else "last", number_text(row.value, "points")
            yield f"It prefers the option that is shown {place} ({points} points)."
    yield from layouts.factor_verdict(views)[:1]
    yield from filter(None, [run.summary.phrasings])


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


def _factors(runs: Sequence[RunView], views: Sequence[FactorTables]) -> Iterator[Part]:
    """What each factor or language changes; nothing where nothing varies."""
    words = runs[0].suite.words
    if views:
        yield [*layouts.factor_verdict(views), *layouts.view_notes(views)]
        yield layouts.factor_table(views, "What each factor changes, in percent")
    for run in runs if words.has_means else ():
        if (rows := layouts.language_rows(run.metrics)).height:
            title = f"{layouts.of_run(run.name, runs)}Languages, means of {words.group}s in percent"
            yield layouts.metrics_table(rows, title, words.units)


def _groups(runs: Sequence[RunView]) -> Iterator[Part]:
    """A figure of the consistency of each group or form, and the numbers of each group."""
    suite, words = runs[0].suite, runs[0].suite.words
    parts = charts.consistency_rows({run.name: run.metrics for run in runs}, suite)
    if parts["value"].is_not_nan().any():
        yield charts.consistency_chart(parts, suite)
    for run in runs:
        rows = run.metrics.filter(pl.col("metric").is_in(headline_metrics(aliases=True)))
        title = f"{layouts.of_run(run.name, runs)}Each {words.group}, in percent"
        yield replace(layouts.group_table(rows, suite), title=title)


def _differences(
    suite: Suite, compared: pl.DataFrame | None, flips: pl.DataFrame | None
) -> Iterator[Part]:
    """Later runs minus the first: headline numbers, their parts, and the answers that changed."""
    if compared is None:
        return
    by: By = "form" if suite.words.over == "group" else "group"
    for _, rows in compared.group_by(["first", "second"], maintain_order=True):
        yield layouts.comparison_table(rows, suite)
        if by == "group" or rows.filter(kind="form").height:
            table = layouts.comparison_table(rows, suite, by)
            yield replace(table, title=f"Each {table.columns[0].heading}: {table.title}")
    if flips is not None and flips["changed"].max():
        yield layouts.flip_verdict(flips, suite)
        yield layouts.flip_table(flips, suite)


def _examples(runs: Sequence[RunView]) -> Iterator[Part]:
    """The most informative items of each kind, labels that changed, and violations."""
    for run in runs:
        lead, texts = layouts.of_run(run.name, runs), run.run.texts()
        if run.suite.words.over == "group":
            changed = changed_answers(run.run.queries, run.answers.answers, run.suite)
            if changed.height:
                yield layouts.changed_answers_table(changed, EACH, f"{lead}Labels that changed")
            continue
        for kind, chosen in examples(run.answers, run.suite, [*KINDS], EACH, texts).items():
            if chosen:
                yield layouts.example_table(chosen, lead + KINDS[kind][0])
        if instances := run.answers.instances:
            sent = {key[1:]: text for key, text in texts.items()}
            title = f"{lead}Violated expectations"
            yield layouts.violation_table(violated_examples(instances, sent, EACH), title)


def repeat(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Part]:
    """How to repeat each run, by name and record."""
    same = "The same command with the same versions gives the same answers."
    return [same, *(_origin(name, record) for name, record in runs)]


def _origin(name: str, record: Mapping[str, Any]) -> dict[str, str]:
    """The command, model, times, versions and digests of a run, as far as they are known."""
    settings, options = record.get("settings", {}), record.get("options", {"model": None})
    known_options = {of: x for of, x in options.items() if x is not None}
    words = (parameters(ProbeOptions)[of].arguments(x) for of, x in known_options.items())
    command = shlex.join(["consilience", "probe", *chain.from_iterable(words)])
    known: dict[str, Any] = {
        "Run": name,
        "Command": command if known_options == options else "not known",
        "Model": settings.get("model"),
        "Scored by": record.get("scoring"),
        "Started": record.get("started"),
        "Finished": record and (record.get("finished") or "not finished"),
        "Cost": record.get("cost") and cost_in_words(record["cost"]),
        "Versions": record.get("versions"),
        "Git": record.get("git"),
        "SHA-256 of the questions": settings.get("queries"),
    }
    for label, of in known.items():
        if isinstance(of, Mapping):
            known[label] = ", ".join(f"{key} {value}" for key, value in of.items() if value)
    return {label: str(of) for label, of in known.items() if of}
