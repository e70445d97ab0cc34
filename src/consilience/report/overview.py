"""The overview of the page: its tables, its words, how to repeat a run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from consilience.core.errors import Protocol
from consilience.core.items import Task
from consilience.core.schemas import FLIPS, SCORE_CHANGE
from consilience.core.text import AGGREGATES, counted
from consilience.endpoints.usage import cost_in_words
from consilience.metrics.registry import DESCRIPTIONS, label_of, main_metrics
from consilience.report.columns import (
    FORM_CHANGES,
    MEANS,
    POINTS,
    frame_table,
    in_words,
    noise_table,
)
from consilience.report.export import (
    Beside,
    Facts,
    Figure,
    Folded,
    Page,
    Part,
    Points,
    Section,
    Text,
)
from consilience.report.metric_tables import form_metrics, form_table, mean_row
from consilience.report.run_view import (
    RunView,
    groups_with_forms,
    values_of,
)
from consilience.report.table import CI, Cell, Column, Table, Value, with_interval
from consilience.types import SuiteWords


def page_in_words(page: Page, words: SuiteWords) -> Page:
    """The page with the words that a kind of suite has for its groups, items and variants.

    Headings, captions and notes are changed; the cells of tables, the texts of commands, and texts
    and lists of the run's own are not.
    """
    pairs = words.instead.items()
    nouns = {one + s: other + s for one, other in pairs for s in ("", "s")}
    nouns |= {one.capitalize(): other.capitalize() for one, other in nouns.items()}
    pattern = re.compile(rf"\b({'|'.join(nouns)})\b")

    def text(original: str) -> str:
        return pattern.sub(lambda match: nouns[match[1]], original)

    def in_these(part: Part) -> Part:
        match part:
            case Table():
                notes = [text(note) for note in part.notes]
                return replace(in_words(part, words), title=text(part.title), notes=notes)
            case Figure():
                return replace(part, title=text(part.title), caption=text(part.caption))
            case Folded():
                return Folded(text(part.summary), [*map(in_these, part.parts)])
            case Beside():
                return Beside([*map(in_these, part.parts)])
            case Facts():
                return Facts([(text(name), value) for name, value in part.rows])
        return part

    sections = [
        Section(of.id, text(of.heading), text(of.intro), [*map(in_these, of.parts)])
        for of in page.sections
    ]
    return replace(page, sections=sections)


def of_run(name: str, runs: Sequence[object]) -> str:
    """The beginning of a title or note on a run; empty where there is only one."""
    return f"{name}: " if len(runs) > 1 else ""


def described(record: Mapping[str, Any]) -> str:
    """A model in words, from ``run.json``; empty if the record has none."""
    model = record.get("settings", {}).get("model", {})
    if not model:
        return ""
    parts = [str(model.get("model"))]
    if model.get("architecture"):
        parts.append(f"{model['architecture']}, {model['parameters']:,} parameters")
        parts.append(f"{model['dtype']} on {model['device']}")
    if model.get("revision"):
        parts.append(f"revision {model['revision']}")
    if model.get("trust_remote_code"):
        parts.append("with the Python code that comes with it (--trust-remote-code)")
    return ", ".join(parts)


def again(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> Section:
    """How to repeat each run, by name and record; a command of several runs is shown once."""
    parts: list[Part] = []
    origins: list[Part] = []
    previous = ""
    for name, record in runs:
        if not record:
            parts.append(Text([f"{name}: a table of answers; its origin is not known."]))
            continue
        command = record.get("command", "")
        if not command:
            parts.append(Text([f"{name}: no command is known; run.json has the settings."]))
        elif command != previous:
            parts.append(Text([command], code=True))
        previous = command
        origins.append(_origin(name, record))
    intro = ""
    if any(record.get("command") for _, record in runs):
        intro = "The same command with the same versions gives the same answers."
    parts += [Folded("Versions and digests", origins)] if origins else []
    return Section("repeat", "How to repeat", intro, parts)


def _origin(name: str, record: Mapping[str, Any]) -> Facts:
    """The time, versions and digests of a run."""
    settings = record["settings"]
    model = settings.get("model", {})
    weights = f"revision {model.get('revision') or 'not known'}"
    if model.get("kind") == "baseline":
        weights = "none, a baseline"
    if model.get("digest"):
        weights = f"SHA-256 {model['digest']}"
    versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    return Facts(
        [
            ("Run", name),
            ("Started", str(record.get("started"))),
            ("Finished", str(record.get("finished") or "not finished")),
            ("Versions", versions),
            ("Git", str(record.get("git") or "an installed package")),
            ("Questions", f"SHA-256 {settings.get('suite_digest') or settings.get('pairs')}"),
            ("Weights", weights),
            *([("Cost", cost_in_words(cost))] if (cost := record.get("cost")) else []),
        ]
    )


PROTOCOLS: Mapping[Protocol, str] = {
    "published": "counted as the released code of the papers does",
    "strict": "counted by the definitions in the text of the papers",
}
MOST_REASONS = 50  # rows of a table of queries without an answer


def setup(runs: Sequence[RunView]) -> Section:
    """The suite or the tasks, and the models."""
    rows = [*_suite_rows(runs)]
    for run in runs:
        prefix = of_run(run.name, runs)
        if run.task is not None:
            rows += _task_rows(prefix, run, run.task)
        model = (described(run.records[0]) if run.records else "") or run.name
        more_seeds = f" and {run.seeds - 1} more seeds" if run.seeds > 1 else ""
        rows.append((f"{prefix}model", model + more_seeds))
    return Section("setup", "Suite and models", "", [Facts(rows)])


def _suite_rows(runs: Sequence[RunView]) -> Iterator[tuple[str, str]]:
    """The size of the suite of runs on facts."""
    suite, protocol = runs[0].suite, runs[0].protocol
    if runs[0].is_of_pairs:
        return
    patterns = [len(relation.design.variants) for relation in suite.relations]
    fewest, most = min(patterns), max(patterns)
    of_each = f"{most}" if fewest == most else f"{fewest} to {most}"
    counts, group = fact_counts(runs[0].metrics), suite.words.group
    relations = counted(len(suite.relations), group)
    if len(counts) < len(suite.relations):
        relations = f"{len(counts)} of {relations}"
    several = sum(relation.cardinality == "N-M" for relation in suite.relations)
    several_in_words = f", {several} of them with several right answers" if several else ""
    facts_counted = facts_in_words(runs[0].metrics, suite.words.item)
    yield "suite", f"{suite.name}: {facts_counted} of {relations}{several_in_words}"
    yield "patterns", f"{sum(patterns):,}, {of_each} a {suite.words.group}"
    if len(suite.words.protocols) > 1:
        yield "protocol", f"{protocol}: {PROTOCOLS[protocol]}"


def _task_rows(prefix: str, run: RunView, task: Task) -> Iterator[tuple[str, str]]:
    """The task of a run on sentence pairs."""
    first, second = task.indicators
    size = int(run.metrics.filter(pl.col("metric") == "accuracy")["n"].max())  # type: ignore[arg-type]
    labels = ", ".join(task.labels)
    yield f"{prefix}task", f"{task.name} ({task.kind}), {size:,} pairs, labels {labels}"
    yield f"{prefix}original form", f"{first}: ... {second}: ..."


def subtitle_of(runs: Sequence[RunView]) -> str:
    """The suite and its size, in one line."""
    first = runs[0]
    if len(runs) == 1:
        return first.summary.title
    if not first.is_of_pairs:
        words = first.suite.words
        relations = counted(len(first.suite.relations), words.group)
        size = f"{relations}, {facts_in_words(first.metrics, words.item)}"
        size += f" ({first.protocol})" if len(words.protocols) > 1 else ""
        return f"{len(runs)} runs on {first.suite.name}: {size}"
    tasks = ", ".join(dict.fromkeys(run.task.name for run in runs if run.task))
    return f"{len(runs)} runs on {tasks}: original form, {', '.join(_forms_of(first))}"


def fact_counts(metrics: pl.DataFrame) -> dict[str, Cell]:
    """How many facts of each relation accuracy counts, with the number of all if it is larger."""
    return {
        row["group"]: Cell(row["n"], mark=f" of {total:,}" if total > row["n"] else "")
        for row in _accuracy_of_groups(metrics).to_dicts()
        for total in [row["n"] + row["n_excluded"]]
    }


def _accuracy_of_groups(metrics: pl.DataFrame) -> pl.DataFrame:
    return metrics.filter(~pl.col("group").is_in(AGGREGATES), metric="accuracy", subset="all")


def facts_in_words(metrics: pl.DataFrame, noun: str = "fact") -> str:
    """How many facts of all relations accuracy counts: ``48 facts``, or ``40 of 48 facts``."""
    rows = _accuracy_of_groups(metrics)
    counted_facts, left_out = (int(rows[name].sum()) for name in ("n", "n_excluded"))
    total = counted(counted_facts + left_out, noun)
    return f"{counted_facts:,} of {total}" if left_out else total


def numbers(runs: Sequence[RunView]) -> Section:
    """Means over relations, a table a group with a row a form, and what the metrics mean."""
    parts: list[Part] = [*_means(runs)]
    if len(runs) == 1 and parts:
        parts = [Beside([*parts, _meanings(runs)])]
    if sentences := [sentence for run in runs for sentence in _variation(run, runs)]:
        parts.append(Text(sentences))
    parts += _forms(runs)
    if not isinstance(parts[0], Beside):
        parts.append(Folded("What each number means", [_meanings(runs)]))
    parts += _by_both(runs)
    return Section("numbers", "All numbers", "", parts)


def _variation(run: RunView, runs: Sequence[RunView]) -> Iterator[str]:
    """What the total variation of a run on questions says, in a sentence."""
    values = values_of(run.metrics, "MICRO")
    names = ("total_variation", "chance_total_variation")
    measured, chance = (values.get((name, "all"), {}).get("value", math.nan) for name in names)
    if not run.suite.words.is_pooled or math.isnan(measured) or math.isnan(chance):
        return
    yield (
        f"{of_run(run.name, runs)}Total variation: between two variants of a question, "
        f"{100 * measured:.1f} % of the probability moves to other options. Between variants of "
        f"different questions it would be {100 * chance:.1f} %. The closer the two numbers, the "
        "less the question decides."
    )


def _meanings(runs: Sequence[RunView]) -> Facts:
    """What the metrics of the runs mean, in the words of their suite."""
    shown: set[str] = set()
    for run in runs:
        if "MACRO" in run.metrics["group"]:
            shown.update(set(main_metrics()).intersection(run.metrics["metric"]))
        if groups_with_forms(run):
            shown.update(form_metrics(run.metrics))
    words = runs[0].suite.words
    return Facts(
        [
            (of.label, of.meaning.replace("item", words.item).replace("variant", words.variant))
            for name, of in DESCRIPTIONS.items()
            if name in shown
        ]
    )


def _means(runs: Sequence[RunView]) -> Iterator[Table]:
    """The means over relations, or the numbers of all questions; none of runs without any."""
    words = runs[0].suite.words
    is_pooled, macro = words.is_pooled, [values_of(run.metrics, words.pool) for run in runs]
    if not any(macro):
        return
    names = [name for name in main_metrics() if any((name, "all") in values for values in macro)]
    over = "relations" if any(_relations_of_mean(values) > 1 for values in macro) else "facts"
    title = "All questions together" if is_pooled else f"Means over {over}"
    title += ", in percent"
    count = "counted" if is_pooled else "n"
    if len(runs) == 1:
        of_one = [
            {"metric": label_of(name)} | mean_row(macro[0][name, "all"], counted=count)
            for name in names
        ]
        if is_pooled:  # no mean over groups, and no deviation
            of_one = [{"value": row.pop("mean"), **row} for row in of_one]
        yield frame_table(of_one, title, MEANS, sortable=False)
        return
    rows: list[list[Value]] = []
    for name in names:
        of_runs = [values.get((name, "all")) for values in macro]
        relations = max(row["n"] for row in of_runs if row)
        rows.append([label_of(name), *map(with_interval, of_runs), relations])
    columns = [MEANS["metric"], *(Column(run.name, "share") for run in runs), MEANS[count]]
    yield Table(f"{title}; below each its {CI}", columns, rows, sortable=False)


def _relations_of_mean(macro: Mapping[Any, Mapping[str, Any]]) -> int:
    """How many relations most means are over: those with a consistency, if any."""
    names = ("consistency", "accuracy", "determinism")
    counts = [macro.get((name, "all"), {}).get("n", 0) for name in names]
    return int(next((count for count in counts if count), 0))


def _by_both(runs: Sequence[RunView]) -> Iterator[Folded]:
    """The same answers of runs on facts counted by both protocols."""
    for run in runs:
        if run.by_other.is_empty():
            continue
        protocol = run.protocol
        other = "strict" if protocol == "published" else "published"
        both = values_of(run.metrics, "MACRO"), values_of(run.by_other, "MACRO")
        rows: list[list[Value]] = []
        for name in main_metrics():
            first, second = (of.get((name, "all"), {}).get("value", math.nan) for of in both)
            if not (math.isnan(first) and math.isnan(second)):
                rows.append([label_of(name), first, second, second - first])
        title = f"{of_run(run.name, runs)}The same answers under the protocol {other}"
        columns = [
            Column("metric"), Column(protocol, "share"), Column(other, "share"), POINTS,
        ]  # fmt: skip
        yield Folded(title, [Table(f"{title}, in percent", columns, rows, sortable=False)])


def _forms(runs: Sequence[RunView]) -> Iterator[Part]:
    """A table with a row a form for each group, or for the means over relations."""
    for run in runs:
        for group in groups_with_forms(run):
            seeds = f", means and std of {run.seeds} seeds" if run.seeds > 1 else ""
            name = "means over relations by form" if group == "MACRO" else group
            metrics = run.metrics.filter(pl.col("group") == group)
            yield form_table(metrics, f"{run.name}, {name}{seeds}, in percent")
            if run.changes is not None:
                changes = run.changes.filter(pl.col("group") == group)
                yield from _accuracy_changes(f"{run.name}, {group}", changes)


def _accuracy_changes(name: str, changes: pl.DataFrame) -> Iterator[Part]:
    """What accuracy gains or loses against the original form, and folded between other forms."""
    if changes.is_empty():
        return
    from_original = pl.col("first") == changes["first"][0]
    title = f"{name}: change of accuracy {{}}, the same items"
    against = title.format("against the original form")
    yield frame_table(changes.filter(from_original), against, FORM_CHANGES)
    others, between = changes.filter(~from_original), title.format("between the other forms")
    if others.height:
        yield Folded(between, [frame_table(others, between, FORM_CHANGES)])


def _forms_of(run: RunView) -> list[str]:
    """The forms of a run besides the original one."""
    is_noise = pl.col("metric").is_in([FLIPS, SCORE_CHANGE])
    forms = run.metrics.filter(~is_noise)["subset"].unique(maintain_order=True).to_list()
    return [form for form in forms if form != "all"]


def caveats(runs: Sequence[RunView]) -> Section:
    """Warnings, queries without an answer, and the noise floor."""
    parts: list[Part] = []
    if warnings := by_run({run.name: run.warnings for run in runs}):
        parts.append(Points(warnings))
    parts += [
        _unanswered(of_run(run.name, runs), run.excluded) for run in runs if run.excluded.height
    ]
    unmeasured = []
    for run in runs:
        if table := noise_table(run.metrics, of_run(run.name, runs)):
            parts.append(table)
        elif not run.is_of_pairs:
            unmeasured.append(run.name)
    sentences = []
    if not runs[0].is_of_pairs and all(run.excluded.is_empty() for run in runs):
        sentences.append("Every query has an answer.")
    if unmeasured:
        of = f" of {', '.join(unmeasured)}" if len(runs) > 1 else ""
        sentences.append(f"The noise floor{of} was not measured (probe --noise-floor 256).")
    parts += [Text(sentences)] if sentences else []
    if not parts:
        parts.append(Text(["Nothing was left out."]))
    return Section("caveats", "Caveats", "", parts)


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


def _unanswered(prefix: str, excluded: pl.DataFrame) -> Folded:
    """The queries without an answer, by reason."""
    rows = [
        [row["group"], row["excluded"], row["len"]]
        for row in excluded.sort("len", descending=True).head(MOST_REASONS).to_dicts()
    ]
    title = f"{prefix}{int(excluded['len'].sum()):,} queries without an answer"
    if excluded.height > MOST_REASONS:
        title += f", the {MOST_REASONS} most common reasons"
    columns = [Column("relation"), Column("reason"), Column("queries", "count")]
    return Folded(title, [Table(title, columns, rows)])
