"""Which rows and columns tables have: of metrics, of differences, of analyses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import polars as pl

from consilience.analysis.examples import KINDS_OF_FLIPS, LOST, WON, Example
from consilience.analysis.factor_effects import FactorTables
from consilience.core.errors import By, ConsilienceError
from consilience.core.factors import FACTORS
from consilience.core.schemas import NOISE_FLOOR
from consilience.core.text import counted, truncated
from consilience.metrics.measure import legible
from consilience.metrics.registry import (
    DESCRIPTIONS,
    label_of,
    main_metrics,
    short_label_of,
    within,
)
from consilience.metrics.statistics import CLEAR, holm
from consilience.report.summary import (
    FORM_ROWS,
    HEADLINES,
    KEY,
    NO_OPTION,
    headlines,
    over_phrasings,
)
from consilience.report.table import (
    CI,
    LOW_HIGH,
    Cell,
    Column,
    Columns,
    Row,
    Table,
    Value,
    frame_table,
    interval_of,
)
from consilience.types import FACT_WORDS, QUESTION_WORDS, Suite, SuiteWords

SPECIAL_TOKENS = re.compile(
    r"<\|?(?:im_)?start\w*\|?>\w+"  # begins a turn, with its role
    r"|<[|\uff5c][^<>\n]{1,40}[|\uff5c]>|</?s>|<(?:bos|eos|end_of_turn)>|\[/?INST\]"
    r"|^(?:system|user|assistant): ",  # as a run keeps the messages that a server gets
    re.MULTILINE,
)
"""What chat templates put around the messages."""

LONGEST_PROMPT = 400  # characters of a prompt that an example shows

ASKED = Column("asked", longest=60)
ITEMS: Columns = {
    "group": Column("group", is_extra=True), "item": Column("item"), "asked": ASKED,
    "right": Column("right", "share"), "agree": Column("agree", "share"),
}  # fmt: skip


def in_one_line(prompts: Sequence[str], *, shared: bool = True) -> list[str]:
    """Each prompt in one line; of a long one the end.

    ``shared``: without the lines that all prompts begin with, such as solved examples. The prompts
    must then be of several questions.
    """
    bare = [SPECIAL_TOKENS.sub("\n", prompt).splitlines() for prompt in prompts]
    split = [[line.strip() for line in lines if line.strip()] for lines in bare]
    columns = zip(*split, strict=False) if shared else []
    same = sum(1 for _ in takewhile(lambda lines: len(set(lines)) == 1, columns))
    texts = [" / ".join(lines[same:]) for lines in split]
    end = -LONGEST_PROMPT
    return [f"...{text[end:]}" if text[:end] else text for text in texts]


def metric_column(name: str, bounds: tuple[str, str] | None = None) -> Column:
    """The column of a metric."""
    return Column(label_of(name), "share", short_label_of(name), bounds=bounds)


def part_label(row: Row) -> str:
    """What tables call the part of a group that a row is about."""
    level: str = row["level"]
    names = {"edit": level.replace("_", "-").title(), "language": level.replace("/", " and ")}
    return names.get(row["kind"], level or "original")  # edits as in the papers


def number_label(row: Row) -> str:
    """What tables call a number: the metric with the part that it is about."""
    label = label_of(row["metric"])
    if row["kind"] == "count":
        return label.replace("k of n", row["level"])
    return label if row["kind"] == "whole" else f"{label}, {part_label(row)}"


POINTS = Column("difference", "points", "diff.")
P_HOLM = Column("p (Holm)", "p")
DIFFERENCE: Columns = {"difference": replace(POINTS, bounds=LOW_HIGH)}

NUMBERS: Columns = {
    "metric": Column("metric"), "value": Column("value", "share", bounds=LOW_HIGH),
    "n": Column("counted", "count"), "n_excluded": Column("left out", "count"),
}  # fmt: skip


def metrics_table(rows: pl.DataFrame, title: str, over: str = "") -> Table:
    """A row a number (``METRICS_SCHEMA``), with the standard deviation of a mean over groups.

    Where there are such means, all other rows but the noise floor are left out. Several groups have
    a block each.
    """
    columns = {**NUMBERS}
    if "mean" in rows["over"]:
        rows = rows.filter((pl.col("over") == "mean") | (pl.col("metric") == NOISE_FLOOR))
        columns["value"] = replace(columns["value"], heading="mean±std")
    lines = [row | {"metric": number_label(row), "value": Cell(row["value"], row["std"])}
             for row in rows.to_dicts()]  # fmt: skip
    blocks = rows["group"].to_list() if rows["group"].n_unique() > 1 else []
    return frame_table(lines, title, columns, blocks=blocks, over=over)


def group_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """One row a group, the least consistent first, one column a metric, and how many items.

    Consistency is determinism of relations with several right answers, whose label says so.
    """
    word, rows = suite.words.group, dict[str, dict[str, Any]]()
    for row in metrics.filter(over="group", kind="whole").to_dicts():
        group = suite.relation(row["group"])
        label = f"{group.label}{' (determinism)' * (group.cardinality == 'N-M')}"
        line = rows.setdefault(group.id, {"label": label, "id": group.id})
        name = DESCRIPTIONS[row["metric"]].alias_of or row["metric"]
        line[name] = Cell(row["value"], low=row["low"], high=row["high"])
        if name == "accuracy":
            line |= {"items": row["n"], "left_out": row["n_excluded"] or ""}
    ranks = {of: line.get("consistency", Cell()).number for of, line in rows.items()}
    order = sorted(rows, key=lambda of: (ranks[of] is None, ranks[of]))
    columns: Columns = {
        "label": Column(word),
        **({"id": Column("id")} if any(of.label != of.id for of in suite.relations) else {}),
        **{name: metric_column(name) for name in [*HEADLINES, *main_metrics()]},
        "items": Column(f"{suite.words.item}s", "count"),
        "left_out": Column("left out", "count"),
    }
    title, over = f"{suite.name}: each {word}, in percent", suite.words.clusters
    return frame_table([rows[of] for of in order], title, columns, over=over)


def language_rows(metrics: pl.DataFrame) -> pl.DataFrame:
    """The headline numbers of each language, then of each two; nothing of one language."""
    is_shown = pl.col("metric").is_in([*HEADLINES]) & (pl.col("over") != "group")
    is_pair = pl.col("level").str.contains("/")
    return metrics.filter(is_shown, kind="language").sort(is_pair, maintain_order=True)


def form_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The headline numbers of each form, and the accuracy of the original one."""
    kind, metric = pl.col("kind"), pl.col("metric")
    is_shown = (kind == "form") & metric.is_in([*HEADLINES])
    is_shown |= (kind == "whole") & (metric == "accuracy")
    return rows.filter(is_shown, over="group").with_columns(kind=pl.lit("form"))


def item_table(items: pl.DataFrame, title: str) -> Table:
    """One row an item (``analysis.examples.item_agreement``), the least consistent first."""
    worst = items.with_columns(agree=pl.col("same") / pl.col("pairs"))
    worst = worst.sort("agree", "right", nulls_last=True, maintain_order=True)
    return frame_table(worst, title, ITEMS, ["right: of its answers; agree: pairs of its variants"])


def changed_answers_table(changed: pl.DataFrame, count: int, title: str) -> Table:
    """The most confident answers that changed (Tables 3, 4, 7 to 9)."""
    several, rows = changed["group"].n_unique() > 1, list[list[Value]]()
    for row in changed.head(count).to_dicts():
        form = row["perturbation"] + f"\n{row['group']}" * several
        originals = row["original_1"], row["original_2"], row["original_answer"]
        texts = row["text_1"], row["text_2"], row["answer"]
        rows += [["original", *originals, row["gold"]], [form, *texts, row["gold"]]]
    columns = [Column(heading) for heading in ("form", "first", "second", "answer", "right answer")]
    return Table(title, columns, rows)


def difference_columns(first: str | Column, second: str | Column) -> dict[str, Column]:
    """The columns of differences after those that name the row."""
    values = (Column(of, "share") if isinstance(of, str) else of for of in (first, second))
    return {
        **dict(zip(("first_value", "second_value"), values, strict=True)), **DIFFERENCE,
        "t": Column("t", "number"), "p": Column("p", "p", is_extra=True), "p_holm": P_HOLM,
        "detectable": Column("detectable", "share", "detect."),
    }  # fmt: skip


DETECTABLE = "detectable: the minimum detectable difference (80 % power). * .05 ** .01 *** .001"


def tests_of(rows: pl.DataFrame, words: SuiteWords = FACT_WORDS) -> str:
    """The tests of rows, with what a kind of suite calls what they flip or permute."""
    tests = ", ".join(rows["test"].drop_nulls().unique(maintain_order=True))
    return tests.replace("subjects", words.clusters).replace("relations", f"{words.group}s")


CORRECTED = "corrected_consistency"  # which a constant model does not have
NAME = 10  # characters of a run's name in a heading on a narrow screen

CONSTANT = "No test of consistency says anything against a model that has one answer to everything."


def comparison_table(compared: pl.DataFrame, suite: Suite, by: By | None = None) -> Table:
    """Later runs minus the first (``COMPARISON_SCHEMA``): both values, the difference and its test.

    ``by``: a row a group, kind of edit, factor or form of each headline metric; None: a row a
    headline number; "metric": a row a metric. What else differs between rows, such as the later
    run, is the heading of a block; what is the same in all is in the title.
    """
    rows, words = chosen_rows(compared, suite, by), suite.words
    if rows.is_empty():
        expected = "a part that the suite has"
        raise ConsilienceError(f"no difference by {by} in this comparison", expected=expected)
    notes = list[str]()
    if by is None and rows.filter(pl.col("difference").is_nan(), metric=CORRECTED).height:
        notes.append(CONSTANT)
    family = "forms" if words.over == "group" else f"{words.group}s"
    adjusted = f", p (Holm) is adjusted over {family}" * rows["p_holm"].is_not_nan().any()
    notes += [
        f"p: {tests_of(rows, words)}. Intervals and p are not adjusted{adjusted}.",
        DETECTABLE,
    ]
    later = compared["second"].unique(maintain_order=True).to_list()
    for name in later if by is None else ():
        sentence = over_phrasings(legible(compared.filter(second=name)), suite)
        notes += [of_run(name, later) + sentence] * bool(sentence)
    pairs = rows.select("first", "second").unique(maintain_order=True).rows()
    first, second = pairs[0] if len(pairs) == 1 else (pairs[0][0], "later run")
    names = ((of, re.split("[/:]", of.rstrip("/:"))[-1][-NAME:]) for of in (first, second))
    headings = (Column(of, "share", short) for of, short in names)
    what = words.group if by == "group" else by or "metric"
    columns: Columns = {"name": Column(what), **difference_columns(*headings)}
    labels = {one.id: one.label for one in suite.relations}
    whole = {"mean": f"mean of {words.group}s", "all": f"all {words.item}s"}
    records = rows.to_dicts()
    for row in records:
        group = whole.get(row["over"]) or labels.get(row["group"], row["group"])
        known = {"group": group, "metric": row["label"] or number_label(row)}
        row |= {
            "runs": f"{row['first']} -> {row['second']}", "groups": group,
            "metrics": label_of(row["metric"]), "name": known.get(what, part_label(row)),
        }  # fmt: skip
    apart = [name for name in ("runs", "groups", "metrics") if
             name != f"{what}s" and len({row[name] for row in records}) > 1]  # fmt: skip
    blocks = [", ".join(row[name] for name in apart) for row in records] if apart else []
    metric = f"{within(records[0]['metrics'])}, " * (what != "metric" and "metrics" not in apart)
    title = f"{suite.name}: {metric}{second} minus {first}, in percent and points"
    over = {"group": "", "form": words.clusters}.get(what, words.units)
    return frame_table(records, title, columns, notes, blocks, over=over)


def chosen_rows(compared: pl.DataFrame, suite: Suite, by: By | None = None) -> pl.DataFrame:
    """The rows that ``by`` shows, by later run, with the ``label`` of headline numbers."""
    over, metric, run = pl.col("over"), pl.col("metric"), pl.col("second").rle_id()
    is_known = pl.any_horizontal(pl.col("first_value", "second_value").is_not_nan())
    rows = legible(compared).filter(is_known, metric != NO_OPTION)
    keys = [*rows.select(KEY).iter_rows()]
    labels = {key: label for key, label, _ in headlines(suite, {*keys})}
    places = {key: at for at, key in enumerate(labels)}
    rows = rows.with_columns(
        label=pl.Series(map(labels.get, keys), dtype=pl.String),
        place=pl.Series(map(places.get, keys), dtype=pl.Int64),
    )
    metrics, of_all = [*dict.fromkeys(of for of, *_ in labels)], rows.filter(over=suite.words.over)
    match by:
        case None:
            return rows.drop_nulls("place").sort(run, "place")
        case "metric":
            return of_all.filter(kind="whole")
        case "group":
            order = metric.cast(pl.Enum(metrics)), over != "group", over
            rows = rows.filter(metric.is_in(metrics), kind="whole")
            return rows.sort(run, *order, maintain_order=True)
        case "form" if "form" in rows["kind"]:
            return form_rows(rows)
        case "edit" | "factor":
            kinds = {"edit": ["edit"], "factor": ["factor", "language"]}[by]
            return of_all.filter(pl.col("kind").is_in(kinds), metric="consistency")
    return rows.clear()


def verdict(compared: pl.DataFrame, suite: Suite) -> list[str]:
    """Whether later runs differ from the first (``COMPARISON_SCHEMA``), in sentences.

    Of each later run, and of each task: the headline numbers that differ clearly, whose p is below
    ``CLEAR`` after Holm's correction over them, or the one that differs most. Consistency is left
    out against a model of constant answers.
    """
    whole = chosen_rows(compared, suite).filter(kind="whole")
    labels = {group.id: group.label for group in suite.relations}
    sentences, by = list[str](), ["first", "second", "group"]
    for (first, second, group), rows in whole.group_by(by, maintain_order=True):
        is_constant = rows.filter(pl.col("difference").is_nan(), metric=CORRECTED).height > 0
        known = rows.filter(~(pl.lit(is_constant) & (pl.col("metric") == "consistency")))
        tested = known.drop_nans(["difference", "p"])
        if tested.is_empty():
            continue
        tested = tested.with_columns(p=pl.Series(holm(tested["p"].to_list())))
        tested = tested.sort(pl.col("difference").abs(), descending=True, maintain_order=True)
        clear = tested.filter(pl.col("p") < CLEAR).to_dicts()
        runs = f"{second} against {first}" + (f", {labels.get(str(group), group)}" if group else "")
        p = f"least p {min(tested['p']):.3f} of {tested.height} after Holm's correction"
        found = ", ".join(map(_change, clear)) or f"no headline number differs clearly ({p})"
        if not clear and tested["difference"][0]:
            found += f"; the largest difference is {_change(tested.row(0, named=True))}"
        sentences.append(f"{runs}: {found}.")
    return sentences


def _change(row: Row) -> str:
    """Both values of a number in percent, and their difference with its interval, in words."""
    first, second, points = (
        100 * row[name] for name in ("first_value", "second_value", "difference")
    )
    interval = interval_of(Cell(low=row["low"], high=row["high"]), POINTS)
    bounds = f", {CI} {interval}" * bool(interval)
    change = f"{second:.1f} instead of {first:.1f} % ({points:+.1f} points{bounds})"
    return f"{within(label_of(row['metric']))} {change}"


FLIPS: Columns = {
    "name": Column("part"), "changed": Column("changed", "share", bounds=LOW_HIGH),
    LOST: Column("right → wrong", "share"), WON: Column("wrong → right", "share"),
    KINDS_OF_FLIPS[2]: Column("wrong → wrong", "share"), "p": Column("p", "p"), "p_holm": P_HOLM,
    "n": Column("answers", "count"),
}  # fmt: skip
"""Which answers differ between two runs (``FLIP_SCHEMA``)."""

FLIPPED: Columns = {
    "second run": Column("second run"), "group": Column("group", is_extra=True),
    "asked": ASKED, "gold": Column("right answer"), "changed": Column("changed", "count"),
    "first": Column("first"), "second": Column("second"), "flip": Column("flip"),
}  # fmt: skip
"""The questions whose answers changed: how many did, and the first change."""

SHOWN_FLIPS = 20  # Questions with changed answers that are shown


def flip_table(numbers: pl.DataFrame, suite: Suite) -> Table:
    """A row for all answers, each group, and each level; a block for two runs."""
    names = {f"group: {of.id}": of.label for of in suite.relations} | {"all: ": "all answers"}
    rows = numbers.to_dicts()
    for row in rows:
        part = f"{row['over']}: {row['level']}"
        row["name"] = names.get(part, part)
    note = (
        f"p: are right → wrong and wrong → right equally frequent ({tests_of(numbers, suite.words)}"
        f")? Each {suite.words.item} counts once: answers in several variants are not independent. "
        "p (Holm) is adjusted over the rows of one kind."
    )
    title = f"{suite.name}: answers that changed, in percent of all answers"
    blocks, over = [f"{row['first']} -> {row['second']}" for row in rows], suite.words.clusters
    return frame_table(rows, title, FLIPS, [note], blocks, over)


def flipped_table(answers: pl.DataFrame, suite: Suite) -> Table:
    """The questions whose answers changed, those that lost most first.

    ``answers``: those that changed, with their ``prompt``.
    """
    items = answers.group_by("second run", "group", "item", maintain_order=True).agg(
        pl.col("gold", "first", "second", "flip", "prompt").first(),
        changed=pl.len(), lost=(pl.col("flip") == LOST).sum(),
    ).sort("lost", "changed", descending=True, maintain_order=True)  # fmt: skip
    prompts, word = items["prompt"].fill_null("").to_list(), suite.words.item
    asked = pl.Series(in_one_line(prompts, shared=len(prompts) > 1), dtype=pl.String)
    items = items.with_columns(asked=pl.when(asked == "").then("item").otherwise(asked))
    if items["second run"].n_unique() < 2:
        items = items.drop("second run")
    rest = items.height - SHOWN_FLIPS
    notes = [f"{rest:,} more {word}s; --format csv has every answer."] * (rest > 0)
    title = f"{word.capitalize()}s with changed answers: how many, and the first of them"
    return frame_table(items.head(SHOWN_FLIPS), title, FLIPPED, notes)


def flip_verdict(numbers: pl.DataFrame, suite: Suite) -> list[str]:
    """How many answers changed, and in which direction if that is clear."""
    sentences = list[str]()
    for row in numbers.filter(over="all").to_dicts():
        sentences.append(
            f"{row['second']} against {row['first']}: {100 * row['changed']:.1f} % of "
            f"{counted(row['n'], 'answer')} changed, in {row['items_changed']:,} of "
            f"{counted(row['items'], suite.words.item)}."
        )
        if row["p"] < CLEAR:
            more, less = (LOST, WON) if row[LOST] > row[WON] else (WON, LOST)
            sentences.append(f"{more.capitalize()} is more frequent than {less} (p < {CLEAR}).")
    return sentences


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

PATTERN_NOTE = (
    "difference: accuracy minus that of the first pattern on the same facts; p: exact McNemar, "
    "adjusted over patterns (Holm); gain: consistency without this pattern minus that with all"
)

EDITS: Columns = {
    "kind": Column("edit"), "with_it": Column("with it", "share"),
    "without_it": Column("without", "share"), **DIFFERENCE, "p_holm": P_HOLM,
    "relations": Column("relations", "count"), "pairs": Column("pairs", "count"),
}  # fmt: skip
"""Consistency of pairs of patterns with and without an edit."""

NAMED = 3  # relations, or patterns of one answer, that a verdict names


def pattern_verdict(patterns: pl.DataFrame, words: SuiteWords) -> list[str]:
    """Which patterns cost most consistency."""
    gains = patterns.filter(pl.col("gain").fill_nan(None) > 0).sort("gain", descending=True)
    named = "; ".join(
        f"{row['group']} {100 * row['consistency']:.1f} to "
        f"{100 * (row['consistency'] + row['gain']):.1f} % without '{row['variant']}'"
        for row in gains.unique("group", keep="first", maintain_order=True).head(NAMED).to_dicts()
    )
    return [f"Consistency gains most without one {words.variant}: {named}."] * bool(named)


def patterns_table(patterns: pl.DataFrame) -> Table:
    """A row for each pattern, the largest gain first, and a block for each relation."""
    keys, order = [pl.col("group").rle_id(), pl.col("gain").fill_nan(None)], [False, True]
    rows = patterns.sort(keys, descending=order, nulls_last=True, maintain_order=True)
    rows = rows.with_columns(number=pl.col("variant_index") + 1)
    blocks = rows["group"].to_list() if rows["group"].n_unique() > 1 else []
    title = "Patterns" if blocks else f"{rows['group'][0]}: patterns"
    rows = rows.drop("group", "consistency")
    return frame_table(rows, f"{title}, in percent", PATTERNS, [PATTERN_NOTE], blocks)


LONGEST_TEXT, LONGEST_ANSWER = 120, 30  # characters of a written text and an answer

EXAMPLES: Columns = {
    "group": Column("group", is_extra=True), "asked": Column("asked"),
    "gold": Column("right answer"), "text": Column("text"), "answer": Column("answer"),
    "verdict": Column("verdict"),
}  # fmt: skip


def example_table(examples: Sequence[Example], title: str) -> Table:
    """At most three replies to each item, with what was asked: the ParaRel paper's Table 6.

    Prompts of several items are without the lines that all of them begin with.
    """
    replies = [(example, reply) for example in examples for reply in example.telling]
    texts = [reply.prompt or f"{of.item} ({reply.variant})" for of, reply in replies]
    several = len({(of.group, of.item) for of in examples}) > 1
    rows = [
        {"group": of.group, "asked": asked, "gold": of.gold,
         "text": truncated(reply.text or "", LONGEST_TEXT),
         "answer": truncated(reply.answer, LONGEST_ANSWER),
         "verdict": reply.unmatched or of.verdict(reply)}
        for (of, reply), asked in zip(replies, in_one_line(texts, shared=several), strict=True)
    ]  # fmt: skip
    return frame_table(rows, title, EXAMPLES)


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
    "consistency: of two variants that differ in this factor only; expected by chance: if the "
    "answers did not depend on the question"
)
OF_SHARES = "effect: share of the variation over variants, with every interaction of the factor"


def factor_table(views: Sequence[FactorTables], title: str) -> Table:
    """A row a factor of each run, with its effects where several factors were crossed."""
    rows, blocks = list[dict[str, Any]](), list[str]()
    has_effects = all(view.is_exact and view.consistency.height > 1 for view in views)
    for view in views:
        of_factors = view.consistency
        for outcome in ("answer", "correctness") if has_effects else ():
            names = {f"{outcome}{bound}": f"share{bound}" for bound in ("", "_low", "_high")}
            total = view.components.filter(outcome=outcome, effect="total")
            total = total.select(factor="factors", **names)
            of_factors = of_factors.join(total, on="factor", how="left", maintain_order="left")
        rows += of_factors.to_dicts()
        blocks += [view.name] * of_factors.height
    notes = [OF_CONSISTENCY, *[OF_SHARES] * has_effects]
    blocks, over = blocks if len(views) > 1 else [], QUESTION_WORDS.units
    return frame_table(rows, title, CONSISTENCY, notes, blocks, over=over)


def of_run(name: str, runs: Sequence[object]) -> str:
    """The beginning of a title or note on a run; empty where there is only one."""
    return f"{name}: " if len(runs) > 1 else ""


def factor_verdict(views: Sequence[FactorTables]) -> list[str]:
    """Which of several factors clearly changes the answers most, a sentence a run."""
    return [of_run(view.name, views) + text for view in views for text in _most_changed(view)]


def view_notes(views: Sequence[FactorTables]) -> list[str]:
    """What a reader of the tables of factors should know."""
    return [of_run(view.name, views) + note for view in views for note in view.notes]


def _most_changed(view: FactorTables) -> Iterator[str]:
    """The factor with the lowest agreement of variants that differ in it alone.

    None if the interval of another one reaches its interval. One without an interval varies in too
    few items to be compared.
    """
    rows = view.consistency.drop_nans("low").sort("value", maintain_order=True).to_dicts()
    if len(rows) < 2:
        return
    first, *others = rows
    if any(row["low"] <= first["high"] for row in others):
        return
    change = FACTORS.get(first["factor"], "the factor").partition(":")[0]
    what = f"{change[0].upper()}{change[1:]} ({first['factor']}) changes answers most: variants "
    yield f"{what}that differ in nothing else agree in {100 * first['value']:.1f} % of pairs."


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
    order = pl.col("task").cast(pl.Enum(rows["task"].unique(maintain_order=True)))
    shown = rows.filter(is_form | is_accuracy).sort(order, maintain_order=True)
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    columns: Columns = {"model": Column(""), "Acc": Column("Acc", "share")}
    for row in shown.to_dicts():
        symbol = symbol_of(row["metric"], row["level"])
        columns = {**columns, symbol: Column(symbol, "share")}
        line = lines.setdefault((row["task"], row["model"]), {"model": row["model"]})
        line[symbol] = Cell(row["value"], row["std"])
    blocks = [task for task, _ in lines]
    return frame_table([*lines.values()], title, columns, blocks=blocks)


def effects_tables(effects: pl.DataFrame) -> Iterator[Table]:
    """For each comparison of tasks a table, a row a test: means, and their difference in points.

    ``effects``: the differences of tasks and their t-tests (``docs/analyses.md``).
    """
    notes = [
        "paired: over models, the test to use; Student, Welch: as if each model were independent",
        "p (Holm): adjusted over the rows of all tables with the same test. * .05 ** .01 *** .001",
    ]
    for (first, second), rows in effects.group_by(["first", "second"], maintain_order=True):
        named = [{"name": symbol_of(of["metric"], of["level"]), **of} for of in rows.to_dicts()]
        title = f"{first} against {second}: difference of the means, in points"
        columns: Columns = {
            "name": Column(""),
            "test": Column("test"),
            **difference_columns(str(first), str(second)),
        }
        yield frame_table(named, title, columns, notes)


VIOLATED: Columns = {
    "group": Column("group", is_extra=True), "kind": Column("expectation"),
    "asked": Column("question"), "variant": Column("variant"), "answer": Column("answer"),
    "permitted": Column("permitted"),
}  # fmt: skip


def violation_table(examples: pl.DataFrame, title: str) -> Table:
    """Violated expectations (``analysis.examples.EXAMPLES``), with what was permitted."""
    asked = pl.Series(in_one_line(examples["prompt"].to_list()), dtype=pl.String)
    rows = examples.with_columns(asked=pl.when(asked == "").then("item").otherwise(asked))
    return frame_table(rows, title, VIOLATED)
