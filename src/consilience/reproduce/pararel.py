"""ParaRel (Elazar et al., TACL 2021): its tables, its figure, and the numbers in its text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience.report.papers import NAN, Key, Measured, paper_numbers
from consilience.reproduce.recipe import NOT_HERE, Found, Work, recipe
from consilience.run import read_answers
from consilience.suites.trex import N_TO_1
from consilience.types import COMPARISON_SCHEMA, METRICS_SCHEMA

MAJORITY = {"majority": "baseline:majority"}

MODELS = {
    "BERT-base": "google-bert/bert-base-cased",
    "BERT-large": "google-bert/bert-large-cased",
    "BERT-large-wwm": "google-bert/bert-large-cased-whole-word-masking",
    "RoBERTa-base": "FacebookAI/roberta-base",
    "RoBERTa-large": "FacebookAI/roberta-large",
    "ALBERT-base": "albert/albert-base-v2",
    "ALBERT-xxlarge": "albert/albert-xxlarge-v2",
}
"""The models of Section 5.1 by the paper's names."""

BY_CORPUS = {
    "RoBERTa-med-small-1M": "nyu-mll/roberta-med-small-1M-1",
    "RoBERTa-base-10M": "nyu-mll/roberta-base-10M-1",
    "RoBERTa-base-100M": "nyu-mll/roberta-base-100M-1",
    "RoBERTa-base-1B": "nyu-mll/roberta-base-1B-1",
}
"""Those of Table 4, by words that they learnt from. Three of each are published; the first."""

BASE = {"BERT-base": MODELS["BERT-base"]}
LARGE = {"BERT-large": MODELS["BERT-large"]}
WHOLE_WORD = {"BERT-large-wwm": MODELS["BERT-large-wwm"]}
NAMED = {row: MODELS[row] for row in ("BERT-large", "RoBERTa-base")}

Columns = Mapping[str, tuple[str, str]]
"""The paper's columns -> metric and subset."""

KNOWLEDGE: Columns = {
    "Accuracy": ("accuracy", "all"),
    "Consistency": ("consistency", "all"),
    "Consistent-Acc": ("consistent_accuracy", "all"),
}
EXTRACTED: Columns = {
    "Succ-Patt": ("successful_patterns", "all"),
    "Succ-Objs": ("successful_objects", "all"),
    "Unk-Const": ("unknown_consistency", "all"),
    "Know-Const": ("known_consistency", "all"),
}
EDITS: Columns = {
    "Diff-Syntax": ("consistency", "diff_syntax"),
    "No-Change": ("consistency", "no_change"),
}
DETERMINISM: Columns = {"Determinism": ("determinism", "all")}
CONSISTENCY: Columns = {"Consistency": KNOWLEDGE["Consistency"]}

COUNTS = "ParaRel; seconds"
SEVEN = "ParaRel, 7 models; the runs of Table 3"
PROBES = "on two cores 20 minutes (base) to hours (large) each"

VALUES = {
    "# Relations": "relations",
    "# Patterns": "patterns",
    "Min # patterns per rel.": "min_patterns",
    "Max # patterns per rel.": "max_patterns",
    "Avg # patterns per rel.": "mean_patterns",
    "Avg syntax": "mean_syntactic_variants",
    "Avg lexical": "mean_lexical_variants",
}
"""Rows of Table 1 -> what ``data stats`` calls them."""


@recipe("pararel-table-1", "Statistics of ParaRel", COUNTS)
def table_1(work: Work) -> Found:
    """Counts of patterns, and of how many kinds they are in syntax and in words."""
    said = work.ask("", "data", "stats", "pararel")
    if said is None:
        return Found({})
    return Found(
        {("", row, "Value"): Measured(_number(said[name])) for row, name in VALUES.items()}
    )


@recipe("pararel-data", "Tuples, and relations of each kind (Section 5.1)", COUNTS)
def data(work: Work) -> Found:
    """How many facts the paper's filters leave, and how many relations have one right answer."""
    said = work.ask("", "data", "stats", "pararel")
    if said is None:
        return Found({})
    kinds = [each["cardinality"] for each in said["by_relation"]]
    numbers: dict[Key, Measured] = {("", "all relations", "Tuples"): Measured(said["facts"])}
    numbers |= {("", kind, "Relations"): Measured(kinds.count(kind)) for kind in ("N-M", "N-1")}
    return Found(numbers)


ANNOTATED = {"paraphrases": (149, 156), "controls": (60, 61)}
"""Pairs that annotators judged as intended, of how many, counted in the released answers.

The release has one answer a pair, of 31 tasks with seven pairs each.
"""


@recipe(
    "pararel-agreement",
    "Agreement of annotators (Section 4)",
    "nothing: the counts are in the package",
)
def agreement(work: Work) -> Found:
    """The shares of the pairs, with Wilson's interval."""
    from scipy import stats

    numbers: dict[Key, Measured] = {}
    for row, (intended, pairs) in ANNOTATED.items():
        ends = stats.binomtest(intended, pairs).proportion_ci(method="wilson")
        share = Measured(100 * intended / pairs, NAN, 100 * ends.low, 100 * ends.high)
        numbers |= {("", row, "Pairs"): Measured(pairs), ("", row, "Agreement"): share}
    return Found(
        numbers,
        [
            "149 of 156 and 60 of 61 pairs, counted in the released answers; only these counts are "
            "part of this package",
            "60 of 61 are 98.36 %, which rounds to 98.4: the paper's 98.3 is cut, not rounded",
        ],
    )


def of_models(work: Work, *, table: str, models: Mapping[str, str], columns: Columns) -> Found:
    """Means over relations in each model's run."""
    groups = dict(paper_numbers(table).select("row", "group").iter_rows())
    numbers: dict[Key, Measured] = {}
    for row, spec in models.items():
        if run := work.probe(row, spec):
            numbers |= _keyed(groups[row], row, _measured(run, columns))
    return Found(numbers)


for _name, _title, _models, _columns, _needs in (
    ("pararel-table-2", "What the patterns extract", MAJORITY | MODELS, EXTRACTED, SEVEN),
    (
        "pararel-table-3", "Knowledge and consistency", MAJORITY | MODELS, KNOWLEDGE,
        f"ParaRel, 7 models; {PROBES}",
    ),
    (
        "pararel-table-4", "The same by training data", MAJORITY | BY_CORPUS, KNOWLEDGE,
        f"ParaRel, 4 models; {PROBES}",
    ),
    ("pararel-table-5", "Only syntax differs, or nothing", MAJORITY | MODELS, EDITS, SEVEN),
    (
        "pararel-determinism", "Determinism of N-M relations (Section 6.2)", NAMED, DETERMINISM,
        "ParaRel, 2 models; the runs of Table 3",
    ),
):  # fmt: skip
    recipe(_name, _title, _needs, models=_models)(
        partial(of_models, table=_name, models=_models, columns=_columns)
    )


@recipe("pararel-relations", "Consistency of single relations (Section 6.2)", SEVEN, models=MODELS)
def relations(work: Work) -> Found:
    """Original language (P364) by model; capital of (P1376) and owned by (P127) of BERT-large."""
    runs = {row: run for row, spec in MODELS.items() if (run := work.probe(row, spec))}
    found = {
        row: measured["Consistency"]
        for row, run in runs.items()
        if (measured := _measured(run, CONSISTENCY, "P364"))
    }
    shown = dict(found)
    if _all_here(work, found, "lowest model", "highest model"):
        ordered = sorted(found, key=lambda row: found[row].value)
        shown |= {"lowest model": found[ordered[0]], "highest model": found[ordered[-1]]}
    numbers = {("original-language", row, "Consistency"): each for row, each in shown.items()}
    for group, relation in (("capital-of", "P1376"), ("owned-by", "P127")):
        if "BERT-large" in runs:
            measured = _measured(runs["BERT-large"], CONSISTENCY, relation)
            numbers |= _keyed(group, "BERT-large", measured)
    return Found(numbers)


COEFFICIENTS = {
    "pearson": "Correlation Accuracy/Consistency",
    "spearman": "the same, Spearman's",
}


@recipe("pararel-correlations", "Accuracy with consistency (Section 6.2)", SEVEN, models=MODELS)
def correlations(work: Work) -> Found:
    """Coefficients over relations, times 100, of each model, and the largest p of all models."""
    rows = _probed(work, MODELS)
    summed = _all_here(work, rows, "all models")
    runs = {work.place(row).name: row for row in rows}
    said = work.ask("", "analyze", "knowledge", *map(work.place, rows)) if rows else None
    found = [
        each
        for each in (said["correlations"] if said else ())
        if (each["x"], each["y"]) == ("accuracy", "consistency")
    ]
    numbers = {
        ("", runs[each["run"]], COEFFICIENTS[each["method"]]): _percent(each, "r%")
        for each in found
    }
    if found and summed:
        largest = np.max([_number(each["p"]) for each in found if each["method"] == "pearson"])
        numbers["", "all models", "p (correlation)"] = Measured(float(largest))
    return Found(
        numbers, ["the paper does not name its coefficient; Pearson's stands beside its numbers"]
    )


EXAMPLES = (
    (
        "P19", "Adriaan Pauw",
        ("[X] was born in [Y].", "Amsterdam"),
        ("[X] is native to [Y].", "Madagascar"),
        ("[X] is a [Y]-born person.", "Luxembourg"),
    ),
    (
        "P176", "Nissan Livina Geniss",
        ("[X] is produced by [Y].", "Nissan"),
        ("[X] is created by [Y].", "Renault"),
        ("[X], created by [Y].", "Renault"),
    ),
    (
        "P47", "Albania",
        ("[X] shares border with [Y].", "Greece"),
        ("[Y] borders with [X].", "Turkey"),
        ("[Y] shares the border with [X].", "Kosovo"),
    ),
    (
        "P178", "iCloud",
        ("[X] is developed by [Y].", "Microsoft"),
        ("[X], created by [Y].", "Google"),
        ("[X] was created by [Y]", "Sony"),
    ),
    (
        "P178", "Yahoo! Messenger",
        ("[X], a product created by [Y]", "Microsoft"),
        ("[X], a product developed by [Y]", "Microsoft"),
        ("[Y], that developed [X]", "Microsoft"),
    ),
    (
        "P36", "Wales",
        ("The capital of [X] is [Y] .", "Cardiff"),
        ("[X]'s capital, [Y].", "Cardiff"),
        ("[X]'s capital city, [Y].", "Cardiff"),
    ),
)  # fmt: skip
"""Table 6: relation, subject, and what BERT-large says to each of three patterns."""


@recipe(
    "pararel-table-6", "Examples of answers, as text", "ParaRel, BERT-large; the run of Table 3",
    models=LARGE,
)  # fmt: skip
def table_6(work: Work) -> Found:
    """The paper's six examples, then the most telling one of each kind that we know."""
    (row,) = LARGE
    if not _probed(work, LARGE):
        return Found({})
    said = work.ask(row, "analyze", "examples", work.place(row), "--limit", "1")
    if said is None:
        return Found({})
    answers = read_answers(work.place(row))
    notes = []
    for at, (relation, subject, *asked) in enumerate(EXAMPLES, 1):
        rows = answers.filter((pl.col("group") == relation) & (pl.col("subject") == subject))
        if rows.is_empty():
            notes.append(f"example {at}, {subject}: not asked")
            continue
        ours = dict(rows.select("variant", "answer").iter_rows())
        replies = [f"'{text}' {paper}, ours {ours.get(text)}" for text, paper in asked]
        right = ", ".join(rows["gold"].unique(maintain_order=True))
        notes.append(f"example {at}, {subject} (right: {right}): {'; '.join(replies)}")
    for each in said["examples"]:
        firsts = {reply["answer"]: reply["variant"] for reply in reversed(each["replies"])}
        replies = [f"'{text}' {answer}" for answer, text in list(firsts.items())[:-4:-1]]
        about = f"{each['kind']}: {each['group']}, {each['subject']} ({each['gold']})"
        notes.append(f"{about}: {'; '.join(replies)}")
    return Found({}, notes)


CHANCE = "V-measure grows with the number of clusters; AMI is free of what chance gives"

BY = {"pattern": "by pattern", "subject": "by subject", "object": "by object"}


@recipe(
    "pararel-figure-3", "t-SNE of vectors of the relation capital",
    "ParaRel, BERT-large, the extra `figures`; minutes", models=LARGE,
)  # fmt: skip
def figure_3(work: Work) -> Found:
    """The first 30 facts of P36 in all patterns, and what the vectors of all facts cluster by."""
    (row,) = LARGE
    said = _vectors(work, row, "pararel-figure-3", "--groups", "P36", "--limit", "1000",
                    "--figure", "P36")  # fmt: skip
    if said is None:
        return Found({})
    numbers: dict[Key, Measured] = {}
    for each in said["clusters"]:
        numbers |= _clustered(row, each)
    notes = [
        f"clusters are of at most 1,000 facts of the relation; the paper has no number; {CHANCE}"
    ]
    return Found(numbers, notes, [Path(said["figure"])])


@recipe(
    "pararel-representations", "V-measure with consistency (Section 7.2)",
    "ParaRel, BERT-large-wwm; on two cores an hour", models=WHOLE_WORD,
)  # fmt: skip
def vectors(work: Work) -> Found:
    """Spearman's coefficient over relations, times 100, and what vectors cluster by, in means."""
    (row,) = WHOLE_WORD
    said = _vectors(work, row, "pararel-vectors")
    numbers: dict[Key, Measured] = {}
    for each in said["correlations"] if said else ():
        by = BY[each["property"]]
        if each["property"] == "subject":
            numbers["", row, "Spearman Consistency/V-measure"] = _percent(each)
            numbers["", row, "p (Spearman)"] = Measured(_number(each["p"]))
        else:
            numbers["", row, f"Spearman, {by}"] = _percent(each, "r%")
        numbers |= _clustered(row, each)
    return Found(
        numbers,
        [
            "the paper does not say whether its correlation is of V-measure by pattern, subject or "
            "object; ours beside it is by subject",
            "of each relation the facts that --limit draws (100 by itself); the paper does not say "
            "how many it took",
            CHANCE,
        ],
    )


TRAIN, VALIDATION = ("P364", "P138", "P449"), ("P159", "P176", "P37")
TEST = [relation for relation in N_TO_1 if relation not in TRAIN + VALIDATION]
SEED = "42"

IMPROVED = {
    "BERT-base": "before",
    "BERT-ft": f"seed-{SEED}/improved/after",
    "-consistency": f"seed-{SEED}/no-consistency/after",
    "-typed": f"seed-{SEED}/no-typing/after",
    "-MLM": f"seed-{SEED}/no-mlm/after",
}
"""Rows of Table 7 -> runs in the folder of ``improve``."""

TRAINED = "ParaRel, BERT-base, the extra `train`; six trainings and five probes: on two cores a day"


@recipe("pararel-table-7", "Improved consistency, and ablations", TRAINED, models=MAJORITY | BASE)
def table_7(work: Work) -> Found:
    """Means over the 25 test relations before and after training on three, chosen by three."""
    groups = dict(paper_numbers("pararel-table-7").select("row", "group").iter_rows())
    numbers: dict[Key, Measured] = {}
    spec = MAJORITY["majority"]
    majority = work.probe("majority", spec, "--groups", ",".join(TEST), into="pararel-test")
    if majority is not None:
        numbers |= _keyed(groups["majority"], "majority", _measured(majority, KNOWLEDGE))
    rows = [row for row in IMPROVED if work.wanted(row)]
    if rows and (trained := _improved(work)):
        for row in rows:
            measured = _measured(trained / IMPROVED[row], KNOWLEDGE)
            numbers |= _keyed(groups[row], row, measured)
    return Found(
        numbers,
        [
            f"the paper does not name its validation relations: with {', '.join(VALIDATION)} the "
            "majority baseline has its numbers, as with some other triples",
        ],
    )


@recipe("pararel-mcnemar", "Tests of the improvement (Section 8.3)", TRAINED, models=BASE)
def mcnemar(work: Work) -> Found:
    """Differences of means over the test relations, in points; p over their pooled facts."""
    trained = _improved(work)
    if trained is None:
        return Found({})
    path = trained / f"seed-{SEED}/improved/comparison.csv"
    table = pl.read_csv(path, schema_overrides=COMPARISON_SCHEMA).filter(pl.col("subset") == "all")
    found = {(row["metric"], row["group"]): row for row in table.iter_rows(named=True)}
    numbers: dict[Key, Measured] = {}
    row = "BERT-ft vs BERT-base"
    for column, (metric, _) in KNOWLEDGE.items():
        means, pooled = found[metric, "MACRO"], found[metric, "MICRO"]
        difference = {"value": means["difference"], "low": means["low"], "high": means["high"]}
        numbers["", row, column] = _percent(difference, "points")
        numbers["", row, f"p of {column}, {pooled['test']}"] = Measured(pooled["p"], unit="p")
    tested = [found[metric, "MICRO"]["p"] for metric in ("accuracy", "consistent_accuracy")]
    numbers["", row, "p (McNemar)"] = Measured(max(tested))
    return Found(
        numbers,
        [
            "McNemar's test is of what is right or wrong: p is the larger of those of accuracy and "
            "Consistent-Acc; consistency, which is neither, is tested by permutation",
        ],
    )


BY_HAND = {
    "Synonym substitution": "synonym_substitution",
    "Function words variations": "function_word_variation",
    "Converse substitution": "converse_substitution",
    "Change of tense": "change_of_tense",
    "Change of voice": "change_of_voice",
    "Verb/Noun conversion": "verb_noun_conversion",
    "Change of aspect": "change_of_aspect",
    "Irrelevant addition": "irrelevant_addition",
    "Topicalization transformation": "topicalization",
    "Apposition transformation": "apposition",
    "Other syntactic movements": "other_syntactic_movement",
}
"""Rows of Table 8 -> the rule that derives such a type; two have none."""


@recipe(
    "pararel-table-8", "Types of paraphrases", "ParaRel; seconds; the extra `syntax` for our column"
)
def table_8(work: Work) -> Found:
    """The paper's counts by hand of 100 pairs; beside them our rules' shares of all pairs."""
    said = work.ask("", "analyze", "syntax", "pararel")
    reason = work.absent.pop("", "")
    work.absent[""] = reason if work.dry else "by hand"
    if said is None:
        return Found({}, [reason] if reason else [])
    groups = dict(paper_numbers("pararel-table-8").select("row", "group").iter_rows())
    shares = {each["type"]: each["share"] for each in said["types"]}
    numbers = {
        (groups[row], row, "by rule, % of pairs"): Measured(100 * shares[rule], unit="percent")
        for row, rule in BY_HAND.items()
    }
    return Found(
        numbers,
        [
            "the paper's numbers are a hand annotation of 100 pairs, which no program can repeat; "
            "ours are shares of all pairs with a base pattern, by rules on words, tags and trees",
        ],
    )


def _number(value: float | None) -> float:
    return NAN if value is None else float(value)


def _percent(row: Mapping[str, Any], unit: str = "") -> Measured:
    """``value, std, low, high`` as far as there, which are fractions, times 100."""
    value, std, low, high = (
        100 * _number(row.get(each)) for each in ("value", "std", "low", "high")
    )
    return Measured(value, std, low, high, unit)


def _measured(run: Path, columns: Columns, group: str = "MACRO") -> dict[str, Measured]:
    """Numbers of a run's metrics table by the paper's columns; without those that it lacks."""
    table = pl.read_csv(run / "metrics.csv", schema_overrides=METRICS_SCHEMA)
    rows = table.filter(pl.col("group") == group).iter_rows(named=True)
    found = {(row["metric"], row["subset"]): _percent(row) for row in rows}
    return {column: found[key] for column, key in columns.items() if key in found}


def _keyed(group: str, row: str, measured: Mapping[str, Measured]) -> dict[Key, Measured]:
    return {(group, row, column): each for column, each in measured.items()}


def _probed(work: Work, models: Mapping[str, str]) -> list[str]:
    """The models whose runs are here once they are asked; in a dry run all that are wanted."""
    here = [row for row, spec in models.items() if work.probe(row, spec)]
    return [row for row in models if work.wanted(row)] if work.dry else here


def _all_here(work: Work, here: Collection[str], *rows: str) -> bool:
    """Whether all seven models are here; if not, the rows that need them are marked."""
    missing = ", ".join(row for row in MODELS if row not in here)
    if missing:
        work.absent |= dict.fromkeys(rows, f"{NOT_HERE}: it takes all models, also {missing}")
    return not missing


def _vectors(work: Work, row: str, into: str, *more: str) -> dict[str, Any] | None:
    """What ``analyze representations`` says of a model."""
    if not work.wanted(row):
        return None
    return work.ask(
        row, "analyze", "representations", "--model", work.models.get(row, MODELS[row]),
        "--suite", "pararel", *more, "--out", work.place(row, into), "--device", work.device,
    )  # fmt: skip


def _clustered(row: str, found: Mapping[str, Any]) -> dict[Key, Measured]:
    """How well clusters fit a property, in percent."""
    measures = {"V-measure": "v_measure", "AMI": "ami"}
    return {
        ("", row, f"{name} {BY[found['property']]}"): Measured(100 * _number(found[each]))
        for name, each in measures.items()
    }


def _improved(work: Work) -> Path | None:
    """The folder of ``improve`` as the paper trained; None where that could not be done."""
    (row,) = BASE
    place = work.place(row, "pararel-improve")
    done = work.run(
        "", "improve", "--model", work.models.get(row, BASE[row]), "--suite", "pararel",
        "--train-groups", ",".join(TRAIN), "--validation-groups", ",".join(VALIDATION),
        "--seeds", SEED, "--ablations", "--out", place,
        "--device", "cpu" if work.device == "cpu" else "auto",
    )  # fmt: skip
    return place if done else None
