"""The first screen and the overview of the page: its words, its tables, how to repeat a run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from consilience.analysis.examples import Example, Reply
from consilience.core.factors import BASE, FACTORS
from consilience.core.text import counted
from consilience.endpoints.usage import cost_in_words
from consilience.report import charts
from consilience.report import columns as layouts
from consilience.report.analysis_tables import differing_lines, lines_asked, whole_or_end
from consilience.report.export import (
    Cards,
    Code,
    Figure,
    Folded,
    Page,
    Part,
    Section,
    Tiles,
)
from consilience.report.run_view import RunView
from consilience.report.summary import NO_OPTION, VIOLATIONS, SummaryRow
from consilience.report.table import NAN, Cell, Column, Table, Value
from consilience.types import SuiteWords


def page_in_words(page: Page, words: SuiteWords, names: Sequence[str]) -> Page:
    """The page with the words that a kind of suite has for its groups, items and variants.

    Headings, captions and notes are changed; the cells of tables, the texts of commands, and texts
    and lists of the run's own are not, nor are the ``names`` of runs.
    """
    nouns = {one + s: other + s for one, other in words.instead.items() for s in ("", "s")}
    nouns |= {one.capitalize(): other.capitalize() for one, other in nouns.items()}
    nouns |= {name: name for name in names}
    known = "|".join(map(re.escape, sorted(nouns, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w/-])({known})(?![\w/-])")

    def text(original: str) -> str:
        return pattern.sub(lambda match: nouns[match[1]], original)

    def in_these(part: Any) -> Any:
        if isinstance(part, str | list):
            return part
        if isinstance(part, Mapping):
            return {text(name): value for name, value in part.items()}
        texts = {"heading", "intro", "title", "caption", "summary"}.intersection(dir(part))
        changes: dict[str, Any] = {name: text(getattr(part, name)) for name in texts}
        if isinstance(part, Table):
            part, changes["notes"] = layouts.in_words(part, words), [*map(text, part.notes)]
        elif hasattr(part, "parts"):
            changes["parts"] = [*map(in_these, part.parts)]
        return replace(part, **changes)

    return replace(page, sections=[*map(in_these, page.sections)])


def of_run(name: str, runs: Sequence[object]) -> str:
    """The beginning of a title or note on a run; empty where there is only one."""
    return f"{name}: " if len(runs) > 1 else ""


def described(record: Mapping[str, Any]) -> str:
    """A model in words, from ``run.json``; empty if the record has none."""
    model = record.get("settings", {}).get("model", {})
    parts = [str(model["model"])] if "model" in model else []
    if model.get("architecture"):
        parts.append(f"{model['architecture']}, {model['parameters']:,} parameters")
        parts.append(f"{model['dtype']} on {model['device']}")
    parts += [f"revision {model['revision']}"] if model.get("revision") else []
    if model.get("trust_remote_code"):
        parts.append("with the Python code that comes with it (--trust-remote-code)")
    return ", ".join(parts)


def again(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> Section:
    """How to repeat each run, by name and record; a command of several runs is shown once."""
    parts: list[Part] = []
    commands = [record.get("command", "") for _, record in runs]
    for (name, record), command, previous in zip(runs, commands, ["", *commands], strict=False):
        if not record:
            parts.append(f"{name}: a table of answers; its origin is not known.")
        elif not command:
            parts.append(f"{name}: no command is known; run.json has the settings.")
        elif command != previous:
            parts.append(Code(command))
    if origins := [_origin(name, record) for name, record in runs if record]:
        parts.append(Folded("Versions and digests", origins))
    same = "The same command with the same versions gives the same answers."
    return Section("repeat", "How to repeat", same * any(commands), parts)


def _origin(name: str, record: Mapping[str, Any]) -> dict[str, str]:
    """The time, versions and digests of a run."""
    settings = record["settings"]
    model = settings.get("model", {})
    weights = f"revision {model.get('revision') or 'not known'}"
    if model.get("kind") == "baseline":
        weights = "none, a baseline"
    if model.get("digest"):
        weights = f"SHA-256 {model['digest']}"
    rows = {
        "Run": name,
        "Model": described(record) or "not known",
        "Started": record.get("started"),
        "Finished": record.get("finished") or "not finished",
        "Versions": ", ".join(" ".join(of) for of in record["versions"].items()),
        "Git": record.get("git") or "an installed package",
        "Questions": f"SHA-256 {settings.get('queries')}",
        "Weights": weights,
    }
    cost = {"Cost": cost_in_words(record["cost"])} if record.get("cost") else {}
    return {label: str(value) for label, value in {**rows, **cost}.items()}


MOST_REASONS = 50  # rows of a table of queries without an answer


def subtitle_of(runs: Sequence[RunView]) -> str:
    """The suite and its size, in one line."""
    first, words = runs[0], runs[0].suite.words
    if len(runs) == 1:
        return first.summary.title
    name = first.suite.name
    if words.over == "group":
        forms = first.metrics.filter(kind="form")["level"].unique(maintain_order=True)
        size = f"original form, {', '.join(forms)}"
    else:
        relations = counted(len(first.suite.relations), words.group)
        size = f"{relations}, {facts_in_words(first.metrics, words.item)}"
        size += f" ({first.protocol})" if len(words.protocols) > 1 else ""
    return f"{len(runs)} runs on {name}: {size}"


def fact_counts(metrics: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """How many facts of each relation accuracy counts, and how many it leaves out."""
    rows = metrics.filter(metric="accuracy", over="group", kind="whole")
    return {of: (n, rest) for of, n, rest in rows.select("group", "n", "n_excluded").iter_rows()}


def facts_in_words(metrics: pl.DataFrame, noun: str = "fact") -> str:
    """How many facts of all relations accuracy counts: ``48 facts``, or ``40 of 48 facts``."""
    counts = fact_counts(metrics).values()
    known, left_out = (sum(of[at] for of in counts) for at in (0, 1))
    total = counted(known + left_out, noun)
    return f"{known:,} of {total}" if left_out else total


def caveats(runs: Sequence[RunView]) -> Iterator[Part]:
    """Warnings, and queries without an answer by reason."""
    if warnings := by_run({run.name: run.warnings for run in runs}):
        yield warnings
    unanswered = [run for run in runs if run.unanswered.height]
    for run in unanswered:
        most = run.unanswered.sort("len", descending=True).head(MOST_REASONS)
        count = int(run.unanswered["len"].sum())
        title = f"{of_run(run.name, runs)}{count:,} queries not asked or without an answer"
        if run.unanswered.height > MOST_REASONS:
            title += f", the {MOST_REASONS} most common reasons"
        columns = [Column("relation"), Column("reason"), Column("queries", "count")]
        yield Folded(title, [Table(title, columns, most.rows())])
    if not unanswered:
        yield "Every query has an answer."


def by_run(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """Notes with the names of their runs; a note of several runs is shown once."""
    runs_of: dict[str, list[str]] = {}
    for name, of_run in notes.items():
        for note in of_run:
            runs_of.setdefault(note, []).append(name)
    if len(notes) == 1:
        return list(runs_of)
    return [
        f"{'All runs' if len(names) == len(notes) else ', '.join(names)}: {note}"
        for note, names in runs_of.items()
    ]


UNIT = "\N{NO-BREAK SPACE}%"  # a line does not break before it
TEXTS = ("original", "text")  # what columns of the texts of a changed answer begin with

COVERED = "The agreement covers {value} of the distance from chance to full agreement."
SENTENCES = {
    "mean": {
        "accuracy": "The answer to the base pattern is right for {value} of a relation's facts, "
        "on average.",
        "consistency": "Two patterns of a fact agree {value} of the time{chance}.",
        "corrected_consistency": COVERED,
        "consistent_accuracy": "The answer is right in every pattern for {value} of a relation's "
        "facts, on average.",
    },
    "all": {
        "accuracy": "The answer in the base variant{base} is right for {value} of the questions.",
        "consistency": "Two variants of a question get the same answer {value} of the "
        "time{chance}.",
        "corrected_consistency": COVERED,
        "consistent_accuracy": "The answer is right in every variant for {value} of the questions.",
        NO_OPTION: "{value} of the answers are none of the options, or missing.",
    },
    "group": {
        "accuracy": "The label of the original form is right for {value} of the pairs.",
        "consistency": "Another form gets the label of the original {value} of the time{chance}.",
        "consistency reverse": "The label is the same for {value} of the pairs when the two "
        "sentences are swapped{chance}.",
        "consistency signal": "The label is the same for {value} of the pairs with other words "
        "before the sentences{chance}.",
        "corrected_consistency": COVERED,
    },
}
"""Headline numbers in plain words, by what they are over, their metric and level."""
VIOLATED = "The answers violate {value} of these expectations{chance}."
ONE_FACTOR = (
    "Two variants that differ only in {factor} get the same answer {value} of the time{chance}."
)
UNDEFINED = "Not defined: all answers are the same, so chance alone gives full agreement."
BELOW_CHANCE = "The answers agree less often than expected by chance."


def sentence_of(run: RunView, row: SummaryRow, chance: float) -> str:
    """A headline number in plain words."""
    if row.metric == "corrected_consistency" and row.value < 0:
        return BELOW_CHANCE
    if math.isnan(row.value):
        values = {(one.metric, one.level): one.value for one in run.summary.rows}
        has_pairs = not math.isnan(values.get(("consistency", row.level), 1))
        return UNDEFINED if row.metric == "corrected_consistency" and has_pairs else "No data."
    key = "consistency" if row.metric == "determinism" else row.metric
    key += f" {row.level}" if row.level else ""
    others = {VIOLATIONS: VIOLATED, "consistency": ONE_FACTOR}
    sentence = SENTENCES[row.over].get(key) or others.get(row.metric)
    if sentence is None:
        return f"{row.meaning[:1].upper()}{row.meaning[1:]}."
    bases = [*{one.design.variants[0] for one in run.suite if one.design.is_ragged}]
    return sentence.format(
        value=f"{row.value * 100:.1f}{UNIT}",
        chance="" if math.isnan(chance) else f" ({chance * 100:.1f}{UNIT} expected by chance)",
        factor=FACTORS.get(row.level, row.level),
        base=f" ({bases[0]})" if len(bases) == 1 and bases != [BASE] else "",
    )


def opening_example(run: RunView) -> Iterator[Cards]:
    """Two prompts of one item with their answers, different ones if there are any.

    The item is one of the means, if there are examples of these.
    """
    examples = [one for of_kind in run.examples.values() for one in of_kind]
    averaged = {group.id for group in run.suite if group.cardinality == "N-1"}
    examples.sort(key=lambda example: example.group not in averaged)
    for example in examples[:1]:
        yield from _of_replies(run, example)
    for row in run.changed.head(1).to_dicts():
        first, second = ("\n".join((row[f"{of}_1"], row[f"{of}_2"])) for of in TEXTS)
        cards = [
            _card("Original form", first, row["original_answer"]),
            _card(f"Form {row['perturbation']}", second, row["answer"]),
        ]
        yield Cards(_lead(run, f"two forms of one {run.suite.words.item}", row["gold"]), cards)


def _of_replies(run: RunView, example: Example) -> Iterator[Cards]:
    """Two replies to a fact or a question; nothing of one with a single reply.

    The second prompt of a question is what differs in it.
    """
    first = example.telling[0]
    others = [reply for reply in example.replies if reply is not first]
    if not others:
        return
    lead = _lead(run, f"two prompts of one {run.suite.words.item}", example.gold)
    design = run.suite.relation(example.group).design
    if not (first.prompt and design.is_ragged and design.levels):  # a fact, or there is no prompt
        others = [reply for reply in example.telling if reply is not first]
        second = next((other for other in others if other.answer != first.answer), others[0])
        headings = {"Prompt": first, "Another prompt": second}.items()
        cards = [_card(name, run.prompt(example, of), of.answer) for name, of in headings]
        yield Cards(lead, cards)
        return

    def changed(reply: Reply) -> dict[str, str]:
        """The levels that the first variant does not have, by their factors."""
        one, other = (design.variants.index(of.variant) for of in (first, reply))
        return {name: of[other] for name, of in design.levels.items() if of[one] != of[other]}

    second = min(others, key=lambda reply: (reply.answer == first.answer, len(changed(reply))))
    names = " and ".join(FACTORS[factor] for factor in changed(second))
    levels = ", ".join(map("=".join, changed(second).items()))
    verb = "differs" if len(changed(second)) == 1 else "differ"
    differing = "\n".join(differing_lines(first.prompt, second.prompt or ""))
    cards = [
        _card("Prompt", first.prompt, first.answer),
        _card(f"Only {names} {verb} ({levels})", differing, second.answer),
    ]
    yield Cards(lead, cards)


def _lead(run: RunView, prompts: str, gold: str) -> str:
    known = f" The right answer is “{gold}”." if gold else ""
    return f"Example: {run.name} answers {prompts}.{known}"


def _card(heading: str, prompt: str, answer: str) -> tuple[str, str, str]:
    """A prompt with its answer; of a chat the last turn, of a long text the end."""
    return heading, whole_or_end("\n".join(lines_asked(prompt))), whole_or_end(answer)


def server_line(run: RunView) -> list[str]:
    """The server of a run in one line, with how it scored; no line without one."""
    record = run.record
    model = record.get("settings", {}).get("model", {})
    if "server" not in model and not {"cost", "scoring"} & record.keys():
        return []
    parts = [" at ".join(filter(None, (str(model.get("model", run.name)), model.get("server"))))]
    if scoring := record.get("scoring"):
        parts.append(f"scored by {scoring.get('strategy')} ({scoring.get('gives')})")
    if cost := record.get("cost"):
        parts.append(cost_in_words(cost).partition(",")[0])
    return [f"Server: {'; '.join(parts)}."]


DETERMINISM = (
    "For a relation with several right answers this number is its determinism, which is left out "
    "of the mean of consistency."
)


def first_screen(runs: Sequence[RunView]) -> Iterator[Part]:
    """The answer to the question of the page."""
    notes = {run.name: [*server_line(run), *run.summary.groups_in_words(UNIT)] for run in runs}
    lists = (by_run({run.name: run.summary.notes for run in runs}), by_run(notes))
    yield Tiles(list(_tiles(runs[0]))) if len(runs) == 1 else _headline_table(runs)
    yield from opening_example(runs[0])
    yield from filter(None, lists)
    yield from _intervals(runs)


def scope(runs: Sequence[RunView]) -> str:
    """What the headline numbers are over, and that they have intervals."""
    words, groups = runs[0].suite.words, runs[0].suite.relations
    relations = sum(group.cardinality == "N-1" for group in groups) or len(groups)
    over = f"{relations} relations" if words.has_means and relations > 1 else words.clusters
    what = "Means over" if words.has_means and relations > 1 else "Over"
    return f"{what} {over}, each number with its 95 % confidence interval (CI)."


def _tiles(run: RunView) -> Iterator[Mapping[str, Any]]:
    """A tile a headline number; of consistency and violations with what chance would give."""
    at_chance = run.metrics.filter(metric="chance_consistency", over=run.suite.words.over)
    for row in run.summary.rows:
        chance = row.chance if row.metric in ("consistency", VIOLATIONS) else NAN
        if row.metric == "consistency" and row.level:
            chance = next(iter(at_chance.filter(group=row.group, level=row.level)["value"]), NAN)
        yield {
            "label": row.label, "value": 100 * row.value, "low": 100 * row.low,
            "high": 100 * row.high, "chance": 100 * chance, "baseline": 100 * row.baseline,
            "sentence": sentence_of(run, row, chance),
        }  # fmt: skip


def _headline_table(runs: Sequence[RunView]) -> Table:
    """A row a run, and the majority baseline where it is the same for all."""
    of_runs = [
        {(row.label, row.metric, row.level): row for row in run.summary.rows} for run in runs
    ]
    keys = list(dict.fromkeys(key for rows in of_runs for key in rows))
    rows: list[list[Value]] = []
    for run, known in zip(runs, of_runs, strict=True):
        found = (known.get(key) for key in keys)
        cells = [Cell(of.value, low=of.low, high=of.high) if of else Cell() for of in found]
        rows.append([run.name, *cells[:2], run.summary.chance, *cells[2:]])
    baselines = {
        tuple(round(row.baseline, 9) for row in known.values() if not math.isnan(row.baseline))
        for known in of_runs
    }
    if len(baselines) == 1:
        cells = [Cell(of_runs[0][key].baseline) if key in of_runs[0] else Cell() for key in keys]
        rows.append(["majority baseline", *cells[:2], None, *cells[2:]])
    labels = [label for label, _, _ in keys]
    labels.insert(2, "Expected by chance")
    columns = [Column("model"), *(Column(label, "share") for label in labels)]
    title = "The headline numbers, in percent; below each its 95 % confidence interval"
    return Table(title, columns, rows)


def _intervals(runs: Sequence[RunView]) -> Iterator[Figure]:
    """Each relation's number with its interval, chance and the majority baseline; not of tasks.

    Then the consistency of every other form with the original one.
    """
    suite, forms = runs[0].suite, charts.interval_rows(runs, "form")
    if suite.words.over != "group":
        rows = charts.interval_rows(runs, "whole")
        title = f"{rows['metric'][0]} of each relation, with 95 % confidence intervals"
        caption = "Each relation with its 95 % confidence interval. The menu chooses the number."
        if any(group.cardinality == "N-M" for group in suite.relations):
            caption += f" {DETERMINISM}"
        yield Figure("relations", title, charts.interval_figure(rows, suite.words.group), caption)
    if forms.height:
        title = "Consistency of each form with the original form, with 95 % confidence intervals"
        caption = (
            "Answers of each form that are the same as in the original form, with 95 % confidence "
            "intervals. The menu chooses the number."
        )
        yield Figure("forms", title, charts.interval_figure(forms, "form"), caption)
