"""Tables of analyses: patterns, tasks, violations, examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from consilience.analysis.examples import Example
from consilience.analysis.factor_effects import FactorTables
from consilience.core.factors import EXPECTATIONS, FACTORS
from consilience.core.text import counted, truncated
from consilience.metrics.statistics import CLEAR
from consilience.report.comparison_tables import difference_columns
from consilience.report.metric_tables import (
    DIFFERENCE,
    P_HOLM,
    POINTS,
    in_one_line,
    metric_column,
)
from consilience.report.summary import FORM_ROWS
from consilience.report.table import LOW_HIGH, Cell, Column, Columns, Table, Value, frame_table
from consilience.suites.pairs import CALUM
from consilience.types import SuiteWords

LONGEST_TEXT, LONGEST_ANSWER = 120, 30  # characters of a written text and an answer


ANALYSES: Columns = {
    "run": Column("run"), "x": Column("of"), "y": Column("with"), "method": Column("method"),
    "relation": Column("relation"), "property": Column("by"), "layer": Column("layer", "count"),
    "attribute": Column("attribute"), "clusters": Column("clusters", "count"),
    "v_measure": Column("V-measure", "share"),
    "v_measure_shuffled": Column("labels shuffled", "share"), "ami": Column("AMI", "share"),
    "value": Column("r", "share", bounds=LOW_HIGH), "p": Column("p", "p"),
    "n": Column("n", "count"), "same": Column("same", "share"), "both": Column("in both", "count"),
    "only_released": Column("released", "count"), "only_derived": Column("derived", "count"),
}  # fmt: skip
"""Correlations, clusters of vectors, and edges, in the rows of their data frames."""

PATTERNS: Columns = {
    "group": Column("relation"), "consistency": metric_column("consistency"),
    "number": Column("number", "count"), "variant": Column("pattern"),
    "accuracy": metric_column("accuracy"),
    "change": replace(POINTS, bounds=("change_low", "change_high")), "p_holm": P_HOLM,
    "agreement": Column("agreement with others", "share", "agrees with others"),
    "top_answer": Column("top answer", "share", is_extra=True),
    "without": Column("consistency without it", "share", "without it"),
    "gain": Column("gain", "points"),
    "n": Column("facts", "count", is_extra=True),
}  # fmt: skip
"""Patterns (``analysis.patterns``): their accuracy, and how often they agree with others."""

GAIN_NOTE = "gain: consistency without this pattern minus that with all, in points"

PATTERN_NOTE = (
    "difference: accuracy minus that of the first pattern on the same facts, in points; p: exact "
    f"McNemar, adjusted over patterns (Holm), the interval is not; {GAIN_NOTE}"
)

EDITS: Columns = {
    "kind": Column("edit"), "run": Column("run"), "with_it": Column("with it", "share"),
    "without_it": Column("without", "share"), **DIFFERENCE, "p_holm": P_HOLM,
    "relations": Column("relations", "count"), "pairs": Column("pairs", "count"),
}  # fmt: skip
"""Consistency of pairs of patterns with and without an edit."""

NAMED = 3  # relations, or patterns of one answer, that a verdict names


def pattern_verdict(patterns: pl.DataFrame, words: SuiteWords) -> list[str]:
    """Which patterns cost most consistency, and if accuracy differs."""
    sentences, costliest = list[str](), by_gain(patterns).unique("group", maintain_order=True)
    if named := [
        f"{row['group']} {100 * row['consistency']:.1f} to "
        f"{100 * (row['consistency'] + row['gain']):.1f} % without '{row['variant']}'"
        for row in costliest.filter(pl.col("gain").fill_nan(None) > 0).head(NAMED).to_dicts()
    ]:
        sentences = [f"Consistency gains most without one {words.variant}: {'; '.join(named)}."]
    if known := patterns.filter(pl.col("p_holm").is_not_nan()).height:
        clear = patterns.filter(pl.col("p_holm") < CLEAR).height
        sentences.append(
            f"{clear} of {counted(known, words.variant)} clearly differ in accuracy from the first "
            f"one of the same {words.group} (p < {CLEAR}, Holm)."
        )
    return sentences


def by_gain(patterns: pl.DataFrame) -> pl.DataFrame:
    """A table of patterns by gain, the largest first, with numbers from 1."""
    rows = patterns.with_columns(number=pl.col("variant_index") + 1)
    return rows.sort(pl.col("gain").fill_nan(None), descending=True, nulls_last=True)


def overview_table(patterns: pl.DataFrame) -> Table:
    """The pattern of each relation without which consistency gains most."""
    costliest = by_gain(patterns).unique("group", maintain_order=True)
    rows = costliest.select("group", "consistency", "variant", "without", "gain")
    title = "The pattern of each relation that costs most, in percent"
    return frame_table(rows, title, PATTERNS, [GAIN_NOTE])


def patterns_table(patterns: pl.DataFrame) -> Table:
    """A row for each pattern, a block for each relation."""
    first = pl.int_range(pl.len()).min().over("group")
    rows = by_gain(patterns.with_columns(block=first)).sort("block", maintain_order=True)
    blocks = rows["group"].to_list() if rows["group"].n_unique() > 1 else []
    title = "Patterns" if blocks else f"{rows['group'][0]}: patterns"
    rows = rows.drop("group", "consistency")
    return frame_table(rows, f"{title}, in percent", PATTERNS, [PATTERN_NOTE], blocks)


def example_table(examples: Sequence[Example], title: str) -> Table:
    """At most three replies to each fact or question: the paper's Table 6.

    Questions whose prompts are kept are shown by these; those of several questions without the
    lines that all of them begin with.
    """
    replies = [(example, reply) for example in examples for reply in example.telling]
    has_prompts = any(reply.prompt is not None for _, reply in replies)
    is_written = any(reply.text is not None for _, reply in replies)
    several = len({(example.group, example.item) for example in examples}) > 1
    texts = [reply.prompt or example.item for example, reply in replies]
    prompts = in_one_line(texts, shared=several) if has_prompts else texts
    rows: list[list[Value]] = []
    for (example, reply), prompt in zip(replies, prompts, strict=True):
        is_first = reply == example.telling[0]
        fact = [example.group, example.subject, example.gold] if is_first else [""] * 3
        if has_prompts:
            fact[1] = prompt
        written = [truncated(reply.text or "", LONGEST_TEXT)] if is_written else []
        verdict = reply.unmatched or example.verdict(reply)
        answer = truncated(reply.answer, LONGEST_ANSWER)
        answer = answer if verdict == "wrong" else f"{verdict}: {answer}"
        rows.append([*fact, reply.variant, *written, answer])
    nouns = ("group", "question", "variant") if has_prompts else ("relation", "subject", "pattern")
    headings = [nouns[1], "gold", nouns[2], *["text"] * is_written, "answer"]
    columns = [Column(nouns[0], is_extra=True), *map(Column, headings)]
    return Table(title, columns, rows)


CONSISTENCY: Columns = {
    "factor": Column("factor"), "levels": Column("levels", "count", is_extra=True),
    "n": Column("pairs", "count", is_extra=True),
    "value": Column("consistency", "share", bounds=LOW_HIGH),
    "chance": Column("expected by chance", "share", "expected"),
    "corrected": Column("corrected", "share", bounds=("corrected_low", "corrected_high")),
    "answer": Column("effect on answers", "share", bounds=("answer_low", "answer_high")),
    "correctness": Column(
        "on correctness", "share", bounds=("correctness_low", "correctness_high"), is_extra=True
    ),
}  # fmt: skip
"""Agreement of the pairs that differ in one factor only, and its total effects."""

OF_CONSISTENCY = (
    "consistency: how often a question gets the same answer in two variants that differ in this "
    "factor only; expected by chance: how often it would if the answers did not depend on the "
    "question"
)
OF_SHARES = (
    "effect: share of the variation over variants that the factor makes, with every interaction "
    "that it is part of (total effect)"
)

OUTCOMES = ("answer", "correctness")


def factor_table(views: Sequence[FactorTables], title: str) -> Table:
    """A row a factor of each run, with its effects where several factors were crossed."""
    rows, blocks = list[dict[str, Any]](), list[str]()
    has_effects = all(view.is_exact and view.consistency.height > 1 for view in views)
    for view in views:
        of_factors = view.consistency
        for outcome in OUTCOMES if has_effects else ():
            names = {
                outcome: "share",
                f"{outcome}_low": "share_low",
                f"{outcome}_high": "share_high",
            }
            total = view.components.filter(outcome=outcome, effect="total")
            total = total.select(factor="factors", **names)
            of_factors = of_factors.join(total, on="factor", how="left", maintain_order="left")
        rows += of_factors.to_dicts()
        blocks += [view.name] * of_factors.height
    notes = [OF_CONSISTENCY, *[OF_SHARES] * has_effects, *_by_view(views, _spread_notes)]
    return frame_table(rows, title, CONSISTENCY, notes, blocks if len(views) > 1 else [])


def _by_view(
    views: Sequence[FactorTables], notes_on: Callable[[FactorTables], Iterable[str]]
) -> list[str]:
    """Notes on each run, with its name where there are several."""
    return [
        f"{view.name}: {note}" if len(views) > 1 else note
        for view in views
        for note in notes_on(view)
    ]


def factor_verdict(views: Sequence[FactorTables]) -> list[str]:
    """Which factor changes the answers most, in sentences; one sentence a run of several."""
    return _by_view(views, lambda view: [*_most_changed(view)][: 1 if len(views) > 1 else None])


def view_notes(views: Sequence[FactorTables]) -> list[str]:
    """What a reader of the tables of factors should know."""
    return _by_view(views, lambda view: view.notes)


def _spread_notes(view: FactorTables) -> Iterator[str]:
    """The range of accuracy over variants."""
    for row in view.indices.filter(pl.col("lowest") != pl.col("highest")).to_dicts():
        ends = []
        for end in ("lowest", "highest"):
            others = row[f"n_{end}"] - 1
            ties = f" and {counted(others, 'other')}" if others > 0 else ""
            ends.append(f"{end} in {row[f'{end}_variant']}{ties} ({100 * row[end]:.1f})")
        yield (
            f"of the {counted(row['n'], 'question')} asked in all variants, accuracy is "
            f"{' and '.join(ends)}"
        )


def _most_changed(view: FactorTables) -> Iterator[str]:
    """The factors by the agreement of variants that differ in one alone, the lowest first.

    One without an interval varies in too few items to be compared.
    """
    known = view.consistency.drop_nans("value").sort("value", maintain_order=True)
    if known.height and known["value"].min() == 1:
        yield "No factor changes an answer: variants that differ in one factor always agree."
        return
    if not (rows := known.drop_nans("low").to_dicts()):
        return
    first, *others = rows
    alike = [row for row in others if row["low"] <= first["high"]]
    shares = " and ".join(f"{100 * row['value']:.1f} %" for row in (first, *alike))
    change = FACTORS.get(first["factor"], "the factor").partition(":")[0]
    what = f"{change[0].upper()}{change[1:]} ({first['factor']}) changes answers"
    what += " most" * bool(others) + ": variants that differ in nothing else"
    if alike:
        both = " and ".join(row["factor"] for row in (first, *alike))
        what = f"It is open which of {both} changes answers more: variants that differ in one alone"
    yield f"{what} agree in {shares} of pairs."


RULES: Columns = {
    "rule": Column("rule"), "value": metric_column("mean_accuracy", LOW_HIGH),
    "consistency_value": metric_column("consistency", ("consistency_low", "consistency_high")),
    "read": Column("read", "share"), "differ": Column("differ", "count"),
    "share": Column("of all", "share", is_extra=True), "alone": Column("alone", "count"),
}  # fmt: skip
"""What each rule makes of the same replies."""

OF_RULES = (
    "the first rule is that of the run; read: replies in which the rule finds an answer; differ: "
    "replies that it reads otherwise than the run did; alone: replies that only this rule reads"
)
RULE_PARTS: Columns = {"part": Column("part"), "value": Column("share", "share", bounds=LOW_HIGH)}
OF_RULE_PARTS = "the rest is between questions; each of these rules counts once"


JUDGE: Columns = {
    "label": Column("label"), "value": Column("judge", "share", bounds=LOW_HIGH),
    "people_value": Column("people", "share"),
    "corrected_value": Column("corrected", "share", bounds=("corrected_low", "corrected_high")),
    "rg_value": Column("Rogan-Gladen", "share", bounds=("rg_low", "rg_high")),
    "sensitivity": Column("sensitivity", "share", is_extra=True),
    "specificity": Column("specificity", "share", is_extra=True),
}  # fmt: skip
"""How often a judge gives each label, and people do."""

OF_JUDGE = "letters are options by their place in the file; a tie that is no option is no label"
OF_CORRECTED = (
    "people: {}; corrected: prediction-powered, which needs a random sample; Rogan-Gladen: from "
    "sensitivity and specificity, undefined for a judge that is no better than chance"
)


def judge_verdict(rows: pl.DataFrame, labelled: int) -> str:
    """What the judge gives the first label, and what people would; else its favourite place."""
    row = {
        name: 100 * of if name != "label" else of for name, of in rows.row(0, named=True).items()
    }
    if not labelled:
        return f"The judge chooses the option shown first in {100 * rows['value'][-1]:.1f} %."
    return (
        "The judge chooses {label} in {value:.1f} %; corrected with {} of people it is "
        "{corrected_value:.1f} % ({corrected_low:.1f} to {corrected_high:.1f})."
    ).format(counted(labelled, "label"), **row)


ORDER = (*CALUM, "kornli", "klue-nli", "klue-sts")  # of the paper's tables; others come after


def symbol_of(metric: str, form: str) -> str:
    """How the papers' tables head a metric of a form."""
    return "Acc" if metric == "accuracy" else FORM_ROWS.get(form, (f"C {form}",))[0]


def calum_table(rows: pl.DataFrame, title: str) -> Table:
    """A row a model, a block a task: accuracy, and consistency in each form (CALUM's Table 2).

    ``rows``: a row a number (``model, task, metric, kind, level, value, std``). Mean ± standard
    deviation where there are several seeds.
    """
    is_form = (pl.col("metric") == "consistency") & (pl.col("kind") == "form")
    is_accuracy = (pl.col("metric") == "accuracy") & (pl.col("kind") == "whole")
    tasks = dict.fromkeys([*ORDER, *rows["task"]])
    rank = pl.col("task").replace_strict({task: at for at, task in enumerate(tasks)})
    shown = rows.filter(is_form | is_accuracy).sort(rank, maintain_order=True)
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    columns: Columns = {"model": Column(""), "Acc": Column("Acc", "share")}
    for row in shown.to_dicts():
        symbol = symbol_of(row["metric"], row["level"])
        columns = {**columns, symbol: Column(symbol, "share")}
        line = lines.setdefault((row["task"], row["model"]), {"model": row["model"]})
        line[symbol] = Cell(row["value"], row["std"])
    blocks = [task for task, _ in lines]
    return frame_table([*lines.values()], title, columns, blocks=blocks, missing=None)


def effects_tables(effects: pl.DataFrame) -> Iterator[Table]:
    """For each comparison of tasks a table, a row a test: means, and their difference in points.

    ``effects``: the differences of tasks and their t-tests (``docs/analyses.md``).
    """
    notes = [
        "paired: over models, the test to use; Student, Welch: as if each model were independent",
        "p (Holm): adjusted over the rows of all tables with the same test. * .05 ** .01 *** .001",
    ]
    for (first, second), rows in effects.group_by(["first", "second"], maintain_order=True):
        names = [symbol_of(*key) for key in rows.select("metric", "level").iter_rows()]
        named = [
            {"name": "" if name == above else name, **row}
            for name, above, row in zip(names, ["", *names], rows.to_dicts(), strict=False)
        ]
        title = f"{first} against {second}: difference of the means, in points"
        columns: Columns = {
            "name": Column(""),
            "test": Column("test"),
            **difference_columns(rows, str(first), str(second)),
        }
        yield frame_table(named, title, columns, notes)


def violation_examples(examples: pl.DataFrame) -> Iterator[Table]:
    """A table of examples for each kind of a group (``examples.EXAMPLES``).

    A variant that is that of the question above is left blank.
    """
    columns = [Column("question"), Column("variant"), Column("answer"), Column("permitted")]
    for (group, kind), of_kind in examples.group_by("group", "kind", maintain_order=True):
        rows: list[list[Value]] = []
        for _, example in of_kind.group_by("example", maintain_order=True):
            questions, above = in_one_line(example["prompt"].to_list()), None
            for question, row in zip(questions, example.to_dicts(), strict=True):
                variant = row["variant"] if row["variant"] != above else ""
                above = row["variant"]
                rows.append([question or row["item"], variant, row["answer"], row["permitted"]])
        title = f"{group}, {kind} ({EXPECTATIONS[str(kind)]}): examples of violations"
        yield Table(title, columns, rows)
