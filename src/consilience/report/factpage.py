"""The report on runs of ``probe``: what was asked, what came of it, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.report.cells import chance, change, change_ends, count, ends, share
from consilience.report.charts import (
    against_figure,
    relation_figure,
)
from consilience.report.page import (
    Cell,
    Facts,
    Figure,
    Folded,
    Grid,
    Page,
    Part,
    Points,
    Section,
    Text,
)
from consilience.report.repeat import again, described
from consilience.report.shown import Shown, of_relations, values_of
from consilience.report.tables import COLUMNS
from consilience.report.why import edits, examples, items, vectors, wordings
from consilience.types import Protocol, Suite

MEANINGS: Mapping[str, str] = {
    "accuracy": "facts that the base wording gets right",
    "consistency": "pairs of wordings of one fact that get the same answer, right or wrong",
    "consistent_accuracy": "facts that every wording gets right",
    "corrected_consistency": "consistency above that of answers drawn at random from the model's "
    "own; 0 is chance, 100 full agreement (Cohen's kappa)",
    "consistent_wrong": "facts that every wording answers with the same wrong word",
    "successful_patterns": "wordings that get some fact right",
    "successful_objects": "facts that some wording gets right",
    "known_consistency": "consistency over facts that some wording gets right",
    "unknown_consistency": "consistency over facts that no wording gets right",
    "determinism": "the same count as consistency, where several answers are right",
    "top_answer": "share of the answer that the model gives most often",
}
"""What a number is the percentage of, or what it means."""

MAIN = ("accuracy", "consistency", "consistent_accuracy", "corrected_consistency")
"""Numbers of the first tables and figures."""

LABELLED = 50
"""Rows of a table of what was left out."""


def probe_page(
    suite: Suite,
    protocol: Protocol,
    runs: Sequence[Shown],
    compared: pl.DataFrame | None,
    kinds: Mapping[str, str],
    notes: Sequence[str] = (),
    relation: str | None = None,
) -> Page:
    """The report of runs on the same suite, of which ``suite`` has the relations that were asked.

    ``compared``: later runs against the first. ``kinds``: what the kinds of examples are.
    ``notes``: in what the runs were asked differently. ``relation``: whose agreement is shown
    first, else that of the lowest consistency.
    """
    sections = [_asked(suite, protocol, runs), _headline(runs, protocol)]
    if compared is not None:
        sections.append(_differences(compared, notes))
    sections += [_relations(suite, runs), _knowledge(suite, runs)]
    sections += wordings(runs, relation)
    sections += edits(runs)
    sections += [*items(runs), *examples(runs, kinds), *vectors(runs)]
    sections += [_care(runs), again([(run.name, run.record) for run in runs])]
    names = ", ".join(run.model for run in runs)
    return Page(
        f"{names}: the same answer, however it is asked?",
        f"{suite.name}, {_relations_of(suite)}, protocol {protocol}",
        sections,
    )


def _asked(suite: Suite, protocol: Protocol, runs: Sequence[Shown]) -> Section:
    wordings = [len(each.patterns) for each in suite.relations]
    fewest, most = min(wordings), max(wordings)
    of_each = f"{most}" if fewest == most else f"{fewest} to {most}"
    asked = _asked_facts(runs[0].metrics)
    of = f"{len(asked)} of {_relations_of(suite)}"
    of = of if len(asked) < len(suite.relations) else _relations_of(suite)
    several = sum(each.cardinality == "N-M" for each in suite.relations)
    about = [
        ("Suite", f"{suite.name}: {sum(asked.values()):,} facts of {of}"
         + (f", {several} of them with several right answers" if several else "")),
        ("Wordings", f"{sum(wordings):,}, {of_each} a relation"),
        ("Counted", f"by the protocol {protocol}"),
    ]  # fmt: skip
    for run in runs:
        about.append((run.name if len(runs) > 1 else "Model", described(run.record) or run.name))
    return Section("asked", "What was asked", "", [Facts(about)])


def _relations_of(suite: Suite) -> str:
    count = len(suite.relations)
    return f"{count} relation{'s' * (count != 1)}"


def _asked_facts(metrics: pl.DataFrame) -> dict[str, int]:
    """How many facts of each relation were asked."""
    rows = metrics.filter((pl.col("metric") == "accuracy") & (pl.col("subset") == "all"))
    counted = rows.select("group", n=pl.col("n") + pl.col("n_excluded")).iter_rows()
    return {group: n for group, n in counted if group not in ("MACRO", "MICRO")}


def _headline(runs: Sequence[Shown], protocol: Protocol) -> Section:
    macro = [values_of(run.metrics, "MACRO") for run in runs]
    names = [name for name in MEANINGS if any((name, "all") in each for each in macro)]
    rows = []
    for name in names:
        row = [Cell(COLUMNS[name].strip())]
        for each in macro:
            found = each.get((name, "all"), {})
            row += [share(found.get("value")), ends(found.get("low"), found.get("high"))]
            if len(runs) == 1:
                row.append(share(found.get("std")))
            row.append(count(found.get("n")))
        rows.append(row)
    heads = ("mean", "95 %", *(["std"] if len(runs) == 1 else []), "relations")
    columns = [f"{run.name}: {each}" if len(runs) > 1 else each for run in runs for each in heads]
    caption = "Means over relations, in percent. The interval is that of relations like these."
    if all(_relations_in(each) == 1 for each in macro):
        caption = "One relation, in percent. The interval is that of facts like these."
    table = Grid(caption, ("number", *columns), rows, sortable=False)
    sentences = [
        f"{run.name}: {run.left_out}" if len(runs) > 1 else run.left_out
        for run in runs
        if run.left_out
    ]
    left_out = [Text(sentences)] if sentences else []
    meanings = Folded(
        "What the numbers are the percentage of",
        [Facts([(COLUMNS[name].strip(), MEANINGS[name]) for name in names])],
    )
    return Section(
        "numbers",
        "The numbers",
        _in_words(runs, macro),
        [table, *left_out, meanings, *_by_both(runs, protocol)],
    )


def _relations_in(macro: Mapping[Any, Mapping[str, Any]]) -> int:
    """How many relations most means are of: those of which there is a consistency, if any."""
    counts = [
        macro.get((name, "all"), {}).get("n", 0)
        for name in ("consistency", "accuracy", "determinism")
    ]
    return int(next((each for each in counts if each), 0))


def _by_both(runs: Sequence[Shown], protocol: Protocol) -> Iterator[Folded]:
    """The same answers counted by both protocols, where that makes a difference."""
    other = "strict" if protocol == "published" else "published"
    for run in runs:
        one, two = values_of(run.metrics, "MACRO"), values_of(run.by_other, "MACRO")
        rows = []
        for name in MEANINGS:
            values = [each.get((name, "all"), {}).get("value", math.nan) for each in (one, two)]
            if not all(math.isnan(each) for each in values):
                cells = [share(values[0]), share(values[1]), change(values[1] - values[0])]
                rows.append([Cell(COLUMNS[name].strip()), *cells])
        of = f"{run.name}: the same" if len(runs) > 1 else "The same"
        caption = f"{of} answers counted by the protocol {other}"
        columns = ("number", protocol, other, "points")
        yield Folded(caption, [Grid(f"{caption}, in percent", columns, rows, sortable=False)])


def _in_words(runs: Sequence[Shown], macro: Sequence[Mapping[Any, Mapping[str, Any]]]) -> str:
    said = []
    for run, values in zip(runs, macro, strict=True):
        found = {name: values.get((name, "all"), {}).get("value", math.nan) for name in MAIN}
        told = {
            "consistency": "gives the same answer to {} of the pairs of wordings of a fact",
            "accuracy": "gets {} of the facts right in the base wording",
            "consistent_accuracy": "gets {} right in every wording",
        }
        clauses = [
            text.format(_whole(found[name]))
            for name, text in told.items()
            if not math.isnan(found[name])
        ]
        if clauses:
            relations = _relations_in(values)
            mean = f"On average over {relations} relations, " if relations > 1 else ""
            *first, last = clauses
            said.append(f"{mean}{run.name} {', '.join(first)}{' and ' * bool(first)}{last}.")
    return " ".join(said)


def _whole(value: float) -> str:
    return f"{value * 100:.0f} %"


def _differences(compared: pl.DataFrame, notes: Sequence[str]) -> Section:
    chosen = compared.filter(pl.col("subset") == "all")
    parts: list[Part] = [Points(notes)] if notes else []
    for (first, second), rows in chosen.group_by(["first", "second"], maintain_order=True):
        cells = []
        for row in rows.filter(pl.col("group") == "MACRO").iter_rows(named=True):
            if row["metric"] in MEANINGS:
                cells.append([Cell(COLUMNS[row["metric"]].strip()), *_difference(row, row["p"])])
        heads = [str(first), str(second), "points", "95 %", "p", "could show"]
        caption = f"{second} minus {first}: means over relations"
        parts.append(Grid(caption, ("number", *heads), cells, sortable=False))
        by_relation = [
            [Cell(row["group"]), Cell(COLUMNS[row["metric"]].strip()),
             *_difference(row, row["p_holm"])]
            for row in rows.iter_rows(named=True)
            if row["group"] not in ("MACRO", "MICRO") and row["metric"] in (*MAIN, "determinism")
        ]  # fmt: skip
        heads = ["number", *heads[:4], "p, Holm", "could show"]
        caption = f"{second} minus {first}: each relation; p adjusted over relations"
        folded = Grid(caption, ("relation", *heads), by_relation)
        parts.append(Folded(f"Each relation, {second} minus {first}", [folded]))
    intro = (
        "Both runs were asked the same facts in the same wordings, so their answers are paired: "
        "question by question, the "
        "later run minus the first. Points of percent; p two-sided; * .05, ** .01, *** .001. "
        "“Could show” is the smallest true difference that this suite would have found "
        "with a chance of 80 %."
    )
    return Section("differences", "Differences", intro, parts)


def _difference(row: Mapping[str, Any], p: float) -> list[Cell]:
    return [
        share(row["first_value"]),
        share(row["second_value"]),
        change(row["difference"]),
        change_ends(row["low"], row["high"]),
        chance(p),
        share(row["smallest"]),
    ]


def _relations(suite: Suite, runs: Sequence[Shown]) -> Section:
    metrics = of_relations(runs, MAIN)
    found: dict[tuple[str, str, str], float] = {
        (run, metric, group): value
        for run, metric, group, value in metrics.select(
            "run", "metric", "group", "value"
        ).iter_rows()
    }
    facts = _asked_facts(runs[0].metrics)
    shown = [name for name in MAIN if name in set(metrics["metric"])]
    rows = []
    for relation in suite.relations:
        numbers = [
            share(found.get((run.name, name, relation.id))) for name in shown for run in runs
        ]
        rows.append(
            [Cell(relation.id), Cell(relation.label), count(len(relation.patterns)),
             count(facts.get(relation.id)), *numbers]
        )  # fmt: skip
    columns = [
        COLUMNS[name].strip() + (f": {run.name}" if len(runs) > 1 else "")
        for name in shown
        for run in runs
    ]
    caption = "Each relation, in percent; a heading sorts by its column"
    if determined := _determined(suite):
        caption += f".{determined}"
    table = Grid(caption, ("relation", "what", "wordings", "facts", *columns), rows)
    figure = Figure(
        "relations",
        f"{COLUMNS[shown[0]].strip()} of each relation",
        relation_figure(metrics, shown),
        "Each relation with its 95 % interval, in the order of the first run. The menu chooses the "
        f"number.{_determined(suite)}",
    )
    return Section("relations", "Relations", "", [figure, table])


def _determined(suite: Suite) -> str:
    """What the consistency of some relations is; nothing where all have one right answer."""
    if all(relation.cardinality != "N-M" for relation in suite.relations):
        return ""
    return (
        " Of relations with several right answers the consistency is the determinism, which has "
        "a mean of its own."
    )


def _knowledge(suite: Suite, runs: Sequence[Shown]) -> Section:
    wide = (
        of_relations(runs, ("accuracy", "consistency"))
        .pivot("metric", index=["run", "group"], values="value", maintain_order=True)
    )  # fmt: skip
    intro = (
        "Knowing and being consistent are two things. Low on the right: it knows, but not in every "
        "wording. High on the left: it says the same, and that is wrong. Where few answers are "
        "possible both are high by chance."
    )
    caption = (
        "A mark is a relation; pointing at one names it. Its numbers stand in the table above."
        f"{_determined(suite)}"
    )
    figure = Figure("knowledge", "Accuracy against consistency", against_figure(wide), caption)
    return Section("knowledge", "Accuracy against consistency", intro, [figure])


def _care(runs: Sequence[Shown]) -> Section:
    parts: list[Part] = []
    for run in runs:
        name = f"{run.name}: " if len(runs) > 1 else ""
        if run.warnings:
            parts.append(Points([f"{name}{each}" for each in run.warnings]))
        total = int(run.excluded["len"].sum())
        if total:
            rows = [
                [Cell(row["group"]), Cell(row["excluded"]), count(row["len"])]
                for row in run.excluded.sort("len", descending=True).head(LABELLED).to_dicts()
            ]
            caption = f"{name}{total:,} questions without an answer"
            if run.excluded.height > LABELLED:
                caption += f", the {LABELLED} most common reasons"
            parts.append(Folded(caption, [Grid(caption, ("relation", "why", "questions"), rows)]))
        else:
            parts.append(
                Text(
                    [f"{name}{'every' if name else 'Every'} question that was asked has an answer."]
                )
            )
        flips = run.metrics.filter(pl.col("metric") == "flips").to_dicts()
        if flips:
            rows = [
                [Cell(row["subset"].replace("_", " ")), share(row["value"]), count(row["n"])]
                for row in flips
            ]
            caption = f"{name}noise floor: answers of a sample that changed when only this changed"
            parts.append(Grid(caption, ("changed", "flips", "asked twice"), rows, sortable=False))
        else:
            said = "noise floor was not measured (probe --noise-floor)."
            parts.append(Text([f"{name}the {said}" if name else f"The {said}"]))
    intro = (
        "What was left out, what a reader should know, and how much the instrument itself wavers."
    )
    return Section("care", "With care", intro, parts)
