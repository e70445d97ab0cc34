"""Tables of metrics, of languages, of suites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from consilience.core.factors import FACTORS, OF_LANGUAGE, is_language_kind
from consilience.core.schemas import FLIPS
from consilience.core.text import counted, spread
from consilience.metrics.registry import DESCRIPTIONS, METRICS, label_of, main_metrics
from consilience.report.columns import (
    MEANS,
    P_HOLM,
    PATTERNS,
    Columns,
    frame_table,
    metric_column,
    tests_of,
)
from consilience.report.run_view import values_of
from consilience.report.summary import FACT_ROWS
from consilience.report.table import CI, NAN, Cell, Column, Table, Value
from consilience.suites.facts import SuiteStatistics
from consilience.suites.question_suites import QuestionStatistics
from consilience.types import Suite

SUBSETS: dict[str, str] = {
    "diff_syntax": "Diff-Syntax",
    "diff_lexical": "Diff-Lexical",
    "diff_both": "Diff-Both",
    "no_change": "No-Change",
    "diff_determiner": "Diff-Determiner",
}
"""Kinds of pairs of patterns and their names in the paper, or ours."""

DETERMINISM = "* determinism: a relation with several right answers, not in the means"


def group_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """One row a group, one column a metric, headline metrics first.

    Consistency is determinism, with a mark, of relations with several right answers.
    """
    cells = group_cells(metrics, suite)
    measured, word = {name for name, _ in cells}, suite.words.group
    names = [name for name in dict.fromkeys([*FACT_ROWS, *main_metrics()]) if name in measured]
    groups = [group for group in suite.relations if group.id in set(metrics["group"])]
    has_several = any(group.cardinality == "N-M" for group in groups)
    columns: Columns = {
        "label": Column(word),
        **({"id": Column("id")} if any(group.label != group.id for group in groups) else {}),
        **{name: metric_column(name) for name in names},
        **({"measured": Column("measured as")} if has_several else {}),
    }
    rows: list[dict[str, Value]] = [
        {
            **{name: cells.get((name, group.id)) for name in names},
            "label": group.label,
            "id": group.id,
            "measured": "determinism" if group.cardinality == "N-M" else "consistency",
        }
        for group in groups
    ]
    title = f"{suite.name}: each {word}, in percent"
    return frame_table(rows, title, columns, [DETERMINISM] if has_several else [])


def group_cells(metrics: pl.DataFrame, suite: Suite) -> dict[tuple[str, str], Cell]:
    """The values of single groups by metric and group; determinism is named consistency."""
    several = {group.id for group in suite.relations if group.cardinality == "N-M"}
    cells = {}
    for row in metrics.filter(pl.col("subset") == "all").iter_rows(named=True):
        name = DESCRIPTIONS[row["metric"]].alias_of if row["metric"] in DESCRIPTIONS else ""
        mark = "*" * (name == "consistency" and row["group"] in several)
        cell = Cell(row["value"], low=row["low"], high=row["high"], mark=mark)
        cells[name or row["metric"], row["group"]] = cell
    return cells


OVER_ALL = (
    "95 % CI over all questions, as in the summary; --csv and --json also have means of groups"
)


def metric_table(
    metrics: pl.DataFrame, title: str, note: str = "", *, is_pooled: bool = False
) -> Table:
    """One row a metric: mean and standard deviation over relations, and all counts together.

    Indented: consistency over the pairs of patterns that differ in that way. Flips: answers of a
    sample that changed when nothing about the question did. Of sentence pairs: one block a task.
    ``note``: a line below the table. ``is_pooled``: all items together and not the mean.
    """
    notes, rows = [note] * bool(note) + [OVER_ALL] * is_pooled, list[dict[str, Any]]()
    if "MACRO" not in metrics["group"]:
        chosen = metrics.filter(subset="all")
        rows = [
            {"metric": label_of(row["metric"]), **mean_row(row, value="value")}
            for row in chosen.to_dicts()
        ]
        blocks = chosen["group"].to_list() if chosen["group"].n_unique() > 1 else []
        return frame_table(rows, title, MEANS, notes, blocks)
    micro = values_of(metrics, "MICRO")
    numbers = [
        (label_of(name) if subset == "all" else f"  {SUBSETS.get(subset, subset)}", mean,
         micro[name, subset])
        for (name, subset), mean in values_of(metrics, "MACRO").items()
        if (name != "determinism" or subset == "all") and not is_language_kind(subset)
    ]  # fmt: skip
    numbers += [
        ("Flips", row | {"value": None, "std": NAN, "n": None}, row)
        for row in metrics.filter(group="MICRO", metric=FLIPS).to_dicts()
    ]  # fmt: skip
    for label, mean, pooled in numbers:
        of = mean_row(pooled, value="value") if is_pooled else mean_row(mean, pooled)
        rows.append({"metric": label, **of})
    return frame_table(rows, title, MEANS, notes)


def mean_row(
    row: Mapping[str, Any],
    pooled: Mapping[str, Any] | None = None,
    *,
    value: str = "mean",
    counted: str = "counted",
) -> dict[str, Any]:
    """A mean in the columns of ``MEANS``; ``pooled``: the row of all counts together."""
    shown = {value: Cell(row["value"], row["std"]), "low": row["low"], "high": row["high"]}
    shown |= {"n": row["n"], "pooled": pooled["value"]} if pooled else {}
    counts = pooled or row
    return shown | {counted: counts["n"], "left_out": counts["n_excluded"]}


def edit_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """Consistency over the pairs of patterns that differ in a way; one row a kind of edit."""
    title = f"{suite.name}: consistency of two patterns by how they differ, in percent"
    micro = values_of(metrics, "MICRO")
    rows = [
        {"edit": SUBSETS[subset]} | mean_row(row, micro[name, subset], counted="pairs")
        for (name, subset), row in values_of(metrics, "MACRO").items()
        if name == "consistency" and subset in SUBSETS
    ]
    return frame_table(rows, title, MEANS)


def factor_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """Consistency over the pairs of variants that differ in one factor; one row a factor."""
    rows = [
        {"factor": subset, **mean_row(row, value="value", counted="pairs")}
        for (name, subset), row in values_of(metrics, "MICRO").items()
        if name == "consistency" and subset in FACTORS
    ]
    columns = {**MEANS, "value": metric_column("consistency")}
    title = f"{suite.name}: consistency of two variants that differ in one factor only, in percent"
    return frame_table(rows, title, columns)


def pattern_table(patterns: pl.DataFrame, suite: Suite) -> Table:
    """One row a pattern, one block a relation (``analysis.patterns.pattern_table``)."""
    labels = {group.id: group.label for group in suite.relations}
    blocks = [labels[name] for name in patterns["group"]]
    shown = patterns.select("variant", "accuracy", "agreement", "n")
    title = f"{suite.name}: each {suite.words.variant}, in percent"
    return frame_table(shown, title, PATTERNS, blocks=blocks)


def statistics_tables(statistics: SuiteStatistics, name: str) -> tuple[Table, Table]:
    """The paper's Table 1 of a suite, and the counts of each relation."""
    numbers = asdict(statistics)
    by_relation = numbers.pop("by_relation")
    labels = {"min": "fewest", "max": "most", "mean": "mean"}
    counts: list[list[Value]] = [
        [" ".join(labels.get(word, word) for word in number.split("_")),
         f"{value:,}" if isinstance(value, int) else value]
        for number, value in numbers.items()
    ]  # fmt: skip
    title = f"{name}, as in the paper's Table 1"
    total = Table(title, [Column(""), Column("", "number", digits=2)], counts)
    columns: Columns = {
        "relation": Column("relation"),
        "cardinality": Column("kind"),
        "patterns": Column("patterns", "count"),
        "syntactic_variants": Column("syntax", "count"),
        "lexical_variants": Column("lexis", "count"),
        **{name: Column(name, "count") for name in ("facts", "subjects", "candidates")},
        "majority": Column("majority", "share"),
    }
    return total, frame_table(by_relation, "each relation; majority in percent", columns)


ENDS = ("low", "high", "seed_low", "seed_high")


def form_table(metrics: pl.DataFrame, title: str, changes: pl.DataFrame | None = None) -> Table:
    """One row a form, one block a task: metrics with intervals, and changes of accuracy if given.

    ``metrics``: the rows of tasks, or of the means over relations. ``changes``:
    ``FORM_CHANGE_SCHEMA``. With several seeds numbers are mean±std over seeds, and further
    intervals are of that mean.
    """
    has_seeds = bool((metrics["seeds"] > 1).any())
    main = ("accuracy", "consistency")
    others = [name for name in form_metrics(metrics) if name not in main]
    names = metrics["group"].unique(maintain_order=True).to_list()
    known = pl.DataFrame() if changes is None else changes.filter(pl.col("group").is_in(names))
    is_from_original = pl.col("first") == pl.col("first").first().over("group")
    of_change = known.filter(is_from_original).to_dicts() if known.height else []
    from_original = {(change["group"], change["second"]): change for change in of_change}
    columns: dict[str | tuple[str, str], Column] = {"form": Column("form")}
    for name in main:
        columns |= {name: metric_column(name), (f"{name}_low", f"{name}_high"): Column(CI, "share")}
    columns |= {name: metric_column(name) for name in others}
    notes = []
    if known.height:
        columns["change"] = Column("change of accuracy", "points")
        columns |= {("change_low", "change_high"): Column(CI, "points"), "p_holm": P_HOLM}
        notes.append(
            "change of accuracy: from the original form, over the same items, in points; "
            f"p: {tests_of(known)}, adjusted over forms (Holm); intervals are not adjusted"
        )
    if has_seeds:
        for name in main:
            of_seeds = Column(f"{label_of(name)} {CI} over seeds", "share")
            columns[f"{name}_seed_low", f"{name}_seed_high"] = of_seeds
    rows: list[dict[str, Any]] = []
    blocks = metrics.unique(["group", "subset"], maintain_order=True).select("group", "subset")
    for group, form in blocks.iter_rows():
        values = values_of(metrics.filter(subset=form), group)
        row = dict.fromkeys(
            name for key in columns for name in ([key] if isinstance(key, str) else key)
        )
        row |= from_original.get((group, form), {})
        row["form"] = "original" if form == "all" else form
        for name in (*main, *others):
            number = values.get((name, form))
            if number and (form != "all" or METRICS[name].one_form):  # not the original with itself
                std = number["std"] if has_seeds and group != "MACRO" and name in main else NAN
                row[name] = Cell(number["value"], std)
                row |= {f"{name}_{end}": number[end] for end in ENDS}
        rows.append(row)
    return frame_table(rows, title, columns, notes, list(blocks["group"]) if len(names) > 1 else [])


def form_metrics(metrics: pl.DataFrame) -> list[str]:
    """The metrics that are shown by form: those of one form, and of two forms all but detail."""
    is_shown = {
        name: metric.one_form or (metric.by_form and DESCRIPTIONS[name].level != "detail")
        for name, metric in METRICS.items()
    }
    present = set(metrics["metric"])
    return [name for name in DESCRIPTIONS if name in present and is_shown.get(name)]


def changed_answers_table(changed: pl.DataFrame, count: int, title: str) -> Table:
    """The most confident answers that changed, one of each form first (Tables 3, 4, 7 to 9)."""
    several, rows = changed["group"].n_unique() > 1, list[list[Value]]()
    firsts = changed.unique("perturbation", keep="first", maintain_order=True)
    rest = changed.join(
        firsts, on=changed.columns, how="anti", nulls_equal=True, maintain_order="left"
    )
    for row in pl.concat([firsts, rest]).head(count).to_dicts():
        form = row["perturbation"] + f"\n{row['group']}" * several
        originals = row["original_1"], row["original_2"], row["original_answer"]
        texts = row["text_1"], row["text_2"], row["answer"]
        rows += [["original", *originals, row["gold"]], [form, *texts, row["gold"]]]
    columns = [Column(heading) for heading in ("form", "first", "second", "answer", "gold")]
    return Table(title, columns, rows, rules=range(1, len(rows), 2), sortable=False)


OF_EACH = ("accuracy", "consistency", "agreement")  # numbers that each annotator has


def annotator_tables(
    metrics: pl.DataFrame, annotators: Sequence[str], title: str
) -> tuple[Table, Table]:
    """The numbers over annotators, and those of each, in percent."""
    whole, by_person = "original", "right, and the same as in the original, in percent"
    if "agreement" in metrics["metric"]:  # of patterns
        whole, by_person = "all", "agreement with the suite, in percent"
    rows: list[dict[str, Any]] = []
    by_annotator: dict[str, list[Value]] = {name: [name] for name in annotators}
    columns = [Column("annotator")]
    for name in (*OF_EACH, "pairwise_agreement", "fleiss_kappa", "krippendorff_alpha"):
        for row in metrics.filter(metric=name).to_dicts():
            if row["group"] in by_annotator:
                by_annotator[row["group"]].append(row["value"])
                continue
            form = whole if row["subset"] == "all" else row["subset"]
            rows.append({"metric": label_of(name), "form": form} | mean_row(row))
            if name in OF_EACH:
                columns.append(Column(f"{label_of(name)} {form}", "share"))
    of_each = Table(f"each annotator: {by_person}", columns, list(by_annotator.values()))
    return frame_table(rows, title, MEANS), of_each


METRICS_SHOWN = ("accuracy", "consistency", "corrected_consistency")
OVER = {"MACRO": "mean of relations", "MICRO": "pooled counts"}
NOTE = (
    "accuracy: share of right answers to the first pattern of each relation in the language; "
    "other columns: over pairs of patterns"
)


def language_label(kind: str) -> str:
    """``de`` for ``language=de``, ``de and ja`` for ``language=de/ja``."""
    return kind.removeprefix(OF_LANGUAGE).replace("/", " and ")


def language_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """One row a language, then one for each two; means over relations. Empty for one language."""
    designs = [group.design for group in suite]
    alone = [f"{OF_LANGUAGE}{language}" for design in designs for language in design.languages]
    pairs = [kind for design in designs for kind in design.kinds if is_language_kind(kind)]
    values, pooled = values_of(metrics, "MACRO"), values_of(metrics, "MICRO")
    ordered = sorted(dict.fromkeys([*alone, *pairs]), key=lambda kind: "/" in kind)
    rows = [
        {
            "languages": language_label(kind),
            **{name: Cell(values.get((name, kind), {}).get("value")) for name in METRICS_SHOWN},
            **{end: values.get(("consistency", kind), {}).get(end) for end in ("low", "high")},
            "pairs": pooled.get(("consistency", kind), {}).get("n"),
        }
        for kind in ordered
    ]
    columns: Columns = {
        "languages": Column("languages"),
        "accuracy": Column(label_of("accuracy").lower(), "share"),
        "consistency": Column(label_of("consistency").lower(), "share"),
        ("low", "high"): Column(CI, "share"),
        "corrected_consistency": Column("chance-corrected", "share"),
        "pairs": Column("pairs", "count"),
    }
    title = f"{suite.name}: patterns of one language and of two, means of relations in percent"
    return frame_table(rows, title, columns, [NOTE] if rows else [])


def question_table(statistics: QuestionStatistics, name: str) -> Table:
    """One row a group: its questions, phrasings and options."""
    columns = [
        Column("group"), Column("questions", "count"), Column("phrasings"), Column("options"),
        Column("majority", "share"),
    ]  # fmt: skip
    rows: list[list[Value]] = []
    for row in statistics.by_group:
        options = spread((row.min_options, row.max_options)) if row.max_options else "open"
        phrasings = spread((row.min_phrasings, row.max_phrasings))
        rows.append([row.group, row.questions, phrasings, options, row.majority])
    sizes = [counted(statistics.questions, "question"), counted(statistics.phrasings, "phrasing")]
    if statistics.expectations:
        sizes.append(counted(statistics.expectations, "expectation"))
    return Table(f"{name}: {', '.join(sizes)}; majority in percent", columns, rows)
