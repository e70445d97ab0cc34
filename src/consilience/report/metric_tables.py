"""Tables of metrics, of languages, of suites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import polars as pl

from consilience.core.schemas import NOISE_FLOOR
from consilience.core.text import truncated
from consilience.metrics.differences import MCNEMAR
from consilience.metrics.registry import (
    DESCRIPTIONS,
    METRICS,
    label_of,
    main_metrics,
    short_label_of,
)
from consilience.report.summary import FACT_ROWS
from consilience.report.table import (
    LOW_HIGH,
    Cell,
    Column,
    Columns,
    Row,
    Table,
    Value,
    frame_table,
    without_empty_columns,
)
from consilience.types import Suite, SuiteWords

OVER_ALL = "95 % CI over all questions, as in the summary; --format csv also has means of groups"
OF_LANGUAGES = (
    "accuracy: share of right answers to the first pattern of each relation in the language; "
    "other columns: over pairs of patterns"
)


SPECIAL_TOKENS = re.compile(
    r"<\|?(?:im_)?start\w*\|?>\w+"  # begins a turn, with its role
    r"|<[|\uff5c][^<>\n]{1,40}[|\uff5c]>|</?s>|<(?:bos|eos|end_of_turn)>|\[/?INST\]"
    r"|^(?:system|user|assistant): ",  # as a run keeps the messages that a server gets
    re.MULTILINE,
)
"""What chat templates put around the messages."""

LONGEST_PROMPT = 400  # characters of a prompt that an example shows

ITEMS: Columns = {
    "group": Column("group", is_extra=True), "item": Column("item"), "asked": Column("asked"),
    "right": Column("right", "share"), "agree": Column("agree", "share"),
}  # fmt: skip
LONGEST = 60  # Characters of what was asked
OF_ITEMS = "right: of its answers; agree: pairs of its variants"


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
    ends = [f"... {text[-LONGEST_PROMPT:].partition(' ')[2]}" for text in texts]
    both = zip(texts, ends, strict=True)
    return [text if len(text) <= LONGEST_PROMPT else end for text, end in both]


def metric_column(name: str, bounds: tuple[str, str] | None = None) -> Column:
    """The column of a metric."""
    return Column(label_of(name), "share", short_label_of(name), bounds=bounds)


def in_words(table: Table, words: SuiteWords) -> Table:
    """The table with the headings that a kind of suite has for its groups, items and variants."""
    forms = ("{}", "{}s", "all {}s agree")
    known = words.instead.items()
    names = {form.format(one): form.format(other) for one, other in known for form in forms}
    names["gold"] = "right answer"
    columns = [replace(one, heading=names.get(one.heading, one.heading)) for one in table.columns]
    return replace(table, columns=columns)


def part_label(row: Row) -> str:
    """What tables call the part of a group that a row is about."""
    level: str = row["level"]
    if row["kind"] == "language":
        return level.replace("/", " and ")  # "de/ja"
    names = {"edit": level.replace("_", "-").title(), "form": level or "original"}  # as the papers
    return names.get(row["kind"], level)


def number_label(row: Row) -> str:
    """What tables call a number: the metric with the part that it is about."""
    label = label_of(row["metric"])
    if row["kind"] == "count":
        return label.replace("k of n", row["level"])
    return label if row["kind"] == "whole" else f"{label}, {part_label(row)}"


POINTS = Column("difference", "points", "diff.")
P_HOLM = Column("p (Holm)", "p")
DIFFERENCE: Columns = {"difference": replace(POINTS, bounds=LOW_HIGH)}

MEANS: Columns = {
    "metric": Column("metric"), "edit": Column("edit"), "factor": Column("only this differs"),
    "mean": Column("mean±std", "share", bounds=LOW_HIGH),
    "value": Column("value", "share", bounds=LOW_HIGH), "n": Column("relations", "count"),
    "pooled": Column("pooled", "share"), "counted": Column("counted", "count"),
    "pairs": Column("pairs", "count"), "left_out": Column("left out", "count"),
}  # fmt: skip
"""Means over relations or annotators, or values of a task, and what they count."""


def metrics_table(
    rows: pl.DataFrame, title: str, by: str = "metric", notes: Sequence[str] = ()
) -> Table:
    """A row a number (``METRICS_SCHEMA``): of means over groups with that of all items beside it.

    ``by``: what names a row: ``metric``, with that of the part indented, or ``edit`` or ``factor``.
    Noise floor: answers of a sample that changed when nothing about the question did. Several
    groups have a block each.
    """
    pooled = {(of["metric"], of["kind"], of["level"]): of for of in rows.to_dicts()
              if of["over"] == "all"}  # fmt: skip
    means = rows.filter(over="mean")
    own = pl.concat([means, rows.filter(metric=NOISE_FLOOR)]) if means.height else rows
    count, lines = "counted" if by == "metric" else "pairs", list[dict[str, Any]]()
    for row in own.to_dicts():
        name = part_label(row)
        if by == "metric":
            name = number_label(row) if row["kind"] in ("whole", "count") else f"  {name}"
        of_all = pooled.get((row["metric"], row["kind"], row["level"]), row)
        line = {by: name, "mean" if means.height else "value": Cell(row["value"], row["std"])}
        line |= {"low": row["low"], "high": row["high"]}
        line |= {"n": row["n"], "pooled": of_all["value"]} if means.height else {}
        lines.append(line | {count: of_all["n"], "left_out": of_all["n_excluded"]})
    blocks = own["group"].to_list() if own["group"].n_unique() > 1 else []
    return frame_table(lines, title, MEANS, notes, blocks)


def numbers_by_part(rows: pl.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """The cells of each metric by group and level.

    Determinism goes by the name of consistency.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows.to_dicts():
        known = DESCRIPTIONS.get(row["metric"])
        name = (known and known.alias_of) or row["metric"]
        cell = Cell(row["value"], low=row["low"], high=row["high"])
        found.setdefault((row["group"], row["level"]), {})[name] = cell
    return found


def group_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """One row a group, the least consistent first, one column a metric, and how many items.

    Consistency is determinism of relations with several right answers, whose label says so.
    """
    of_groups, word = metrics.filter(over="group", kind="whole"), suite.words.group
    cells = numbers_by_part(of_groups)
    measured = {name for of in cells.values() for name in of}
    names = [name for name in dict.fromkeys([*FACT_ROWS, *main_metrics()]) if name in measured]
    ranks = {group: of.get("consistency", Cell()).number for (group, _), of in cells.items()}
    groups = [group for group in suite.relations if group.id in ranks]
    groups.sort(key=lambda group: (ranks[group.id] is None, ranks[group.id]))
    counts = of_groups.filter(metric="accuracy").select("group", "n", "n_excluded").rows()
    items = {of: {"items": n, "left_out": rest or ""} for of, n, rest in counts}
    columns: Columns = {
        "label": Column(word),
        **({"id": Column("id")} if any(group.label != group.id for group in groups) else {}),
        **{name: metric_column(name) for name in names},
        "items": Column(f"{suite.words.item}s", "count"),
        "left_out": Column("left out", "count"),
    }
    rows: list[dict[str, Value]] = [
        {**cells[group.id, ""], **items.get(group.id, {}), "id": group.id,
         "label": f"{group.label}{' (determinism)' * (group.cardinality == 'N-M')}"}
        for group in groups
    ]  # fmt: skip
    table = frame_table(rows, f"{suite.name}: each {word}, in percent", columns)
    return without_empty_columns(table)


def language_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """One row a language, then one for each two; means over relations. Empty for one language."""
    of_languages = metrics.filter(pl.col("metric") != "determinism", kind="language")
    cells = numbers_by_part(of_languages.filter(over="mean"))
    pairs = dict(of_languages.filter(over="all", metric="consistency").select("level", "n").rows())
    levels = dict.fromkeys(level for group in suite for kind, level in group.design.parts
                           if kind == "language")  # fmt: skip
    alone = dict.fromkeys(language for group in suite for language in group.design.languages)
    columns: Columns = {
        "languages": Column("languages"), "accuracy": metric_column("accuracy"),
        "consistency": metric_column("consistency", LOW_HIGH),
        "corrected_consistency": metric_column("corrected_consistency"),
        "pairs": Column("pairs", "count"),
    }  # fmt: skip
    rows = [
        {"languages": part_label({"kind": "language", "level": level}),
         **cells.get(("", level), {}), "pairs": pairs.get(level)}
        for level in sorted({**alone, **levels}, key=lambda level: "/" in level)
    ]  # fmt: skip
    title = f"{suite.name}: patterns of one language and of two, means of relations in percent"
    return frame_table(rows, title, columns, [OF_LANGUAGES] * bool(rows), missing=None)


def form_table(metrics: pl.DataFrame, title: str, changes: pl.DataFrame) -> Table:
    """One row a form, one block a task: metrics with intervals, and changes of accuracy.

    ``metrics``: the rows of tasks. ``changes``: ``FORM_CHANGE_SCHEMA``.
    """
    metrics = form_rows(metrics)
    main = ["accuracy", "consistency"]
    measured = set(metrics["metric"])
    others = [name for name in DESCRIPTIONS if name in measured and name not in main]
    from_original = {
        (change["group"], change["second"]): change
        for change in changes.to_dicts()
        if change["first"] == "original"
    }
    columns = {
        "form": Column("form"),
        **{name: metric_column(name, LOW_HIGH) for name in main},
        **{name: metric_column(name) for name in others},
    }
    notes = []
    if from_original:
        bounds = "change_low", "change_high"
        columns["change"] = Column("change of accuracy", "points", bounds=bounds)
        columns["p_holm"] = P_HOLM
        notes.append(
            "change of accuracy: from the original form, over the same items, in points; "
            f"p: {MCNEMAR}, adjusted over forms (Holm); intervals are not adjusted"
        )
    cells = numbers_by_part(metrics)
    rows = [
        {**from_original.get((group, form), {}), **numbers, "form": form or "original"}
        for (group, form), numbers in cells.items()
    ]
    blocks = [group for group, _ in cells] if metrics["group"].n_unique() > 1 else []
    return frame_table(rows, title, columns, notes, blocks, missing=None)


def form_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of metrics or differences that are shown by form, those of a group together.

    All of one form, such as accuracy, and of two forms all but detail.
    """
    known = {name: of for name, of in METRICS.items() if name in set(rows["metric"])}
    of_one = [name for name, of in known.items() if of.one_form]
    of_two = [name for name, of in known.items() if of.by_form and of.level != "detail"]
    kind, metric = pl.col("kind"), pl.col("metric")
    is_shown = (kind == "form") & metric.is_in([*of_one, *of_two])
    shown = rows.filter(is_shown | ((kind == "whole") & metric.is_in(of_one)), over="group")
    groups = [of for _, of in shown.group_by("group", maintain_order=True)]
    return pl.concat(groups) if groups else shown


def item_table(items: pl.DataFrame, title: str) -> Table:
    """One row an item (``analysis.examples.item_agreement``), the least consistent first."""
    worst = items.with_columns(agree=pl.col("same") / pl.col("pairs")).sort(
        "agree", "right", nulls_last=True, maintain_order=True
    )
    rows = worst.to_dicts()
    for row in rows:
        row["asked"] = truncated(" ".join(row.get("asked", "").split()), LONGEST)
    return without_empty_columns(frame_table(rows, title, ITEMS, [OF_ITEMS]))


def changed_answers_table(changed: pl.DataFrame, count: int, title: str) -> Table:
    """The most confident answers that changed (Tables 3, 4, 7 to 9)."""
    several, rows = changed["group"].n_unique() > 1, list[list[Value]]()
    for row in changed.head(count).to_dicts():
        form = row["perturbation"] + f"\n{row['group']}" * several
        originals = row["original_1"], row["original_2"], row["original_answer"]
        texts = row["text_1"], row["text_2"], row["answer"]
        rows += [["original", *originals, row["gold"]], [form, *texts, row["gold"]]]
    columns = [Column(heading) for heading in ("form", "first", "second", "answer", "gold")]
    return Table(title, columns, rows)


def annotator_table(metrics: pl.DataFrame, title: str) -> Table:
    """The numbers over annotators, then a block with those of each (``METRICS_SCHEMA``)."""
    rows = metrics.sort("group", maintain_order=True)
    lines = [
        {"metric": number_label(row), "value": Cell(row["value"], row["std"]), "low": row["low"],
         "high": row["high"], "counted": row["n"], "left_out": row["n_excluded"]}
        for row in rows.to_dicts()
    ]  # fmt: skip
    return frame_table(lines, title, MEANS, blocks=rows["group"].to_list())
