"""Answers that were made elsewhere, to the prompts of ``suite export``, as answers tables.

A row has the item, the variant and the answer: in ``answer`` a text, or in ``answer_index`` the
position among the candidates of the prompt, from 0. A log of lm-evaluation-harness has the
log-probabilities of all candidates instead. What else a table needs is in the suite.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from consilience.ask import judge
from consilience.core.errors import ConsilienceError, did_you_mean, missing_column
from consilience.core.factors import ORIGINAL
from consilience.core.free_text import RULES, Rule, match
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.files.tables import LOG_PROBABILITIES, as_text
from consilience.models.candidates import log_softmax
from consilience.questions import Choice
from consilience.sentence_pairs import Task
from consilience.suites.pairs import TASK_SUITE, Pairs, generated_group
from consilience.types import Scores, Suite

WHERE = "the answers table"

NO_ANSWER = "no answer"
"""Why a row without an answer is left out."""

Row = Mapping[str, Any]


def answers_to_pairs(
    table: pl.DataFrame,
    task: Task,
    rule: Rule,
    known_forms: Collection[str],
    pairs: Pairs | None = None,
) -> tuple[list[str], pl.DataFrame]:
    """The forms of a table of answers to sentence pairs, the original first, and its answers table.

    An answer that is no label stays as it is: a model wrote it. Another form than the original and
    ``known_forms`` raises. ``pairs``: those of the task; then another item raises, too.
    """
    table = as_text(table)
    if pairs is not None:
        check_columns(table, ("item",))
        rows = [(pair.item, pair.first, pair.label) for pair in pairs.items]
        known = pl.DataFrame(rows, ("item", "subject", "gold"), orient="row")
        table = _with_known(table, known, task.name)
    check_columns(table, ("item", "variant", "gold"))
    refuse_repeated(table)
    forms = variants_in(table)
    for form in forms:
        if form not in (ORIGINAL, *known_forms):
            at = table["variant"].to_list().index(form) + 1
            raise unknown(form, "form", [ORIGINAL, *known_forms], task.name, f"{WHERE}, row {at}")
    if ORIGINAL not in forms:
        raise ConsilienceError(
            f"no answers to the form '{ORIGINAL}'",
            expected=f"'{ORIGINAL}' in the column 'variant'",
            where=WHERE,
        )
    forms = [ORIGINAL, *(form for form in forms if form != ORIGINAL)]
    answers = _matched(table, {"": task.labels}, rule)
    wrong = table.filter(~pl.col("gold").is_in(list(task.labels)))
    if wrong.height:
        raise unknown(wrong["gold"][0], "label", list(task.labels), task.name, WHERE)
    columns: dict[str, pl.Expr | pl.Series] = {
        "suite": pl.lit(TASK_SUITE),
        "group": pl.lit(generated_group(task)),
        "item": table["item"],
        "subject": table["subject"] if "subject" in table.columns else table["item"],
        "variant": table["variant"],
        "variant_index": table["variant"].replace_strict(forms, list(range(len(forms)))),
        "gold": table["gold"],
        "answer": answers,
        "n_candidates": pl.lit(len(task.labels)),
    }
    return forms, table.select(
        columns.get(name, pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in ANSWERS_SCHEMA.items()
    )


def answers_to_facts(table: pl.DataFrame, suite: Suite, rule: Rule | None) -> pl.DataFrame:
    """A table of answers to facts, with the group, subject and gold that its items have.

    ``rule``: how the object is found in an answer; None leaves answers as they are. Where patterns
    write objects in several languages or forms, an answer in that of its pattern becomes the object
    of the facts, by default if it is exactly that text. Of a table with the log-probabilities of
    the candidates, the most probable one is the answer.
    """
    table = with_facts(as_text(table), suite)
    if LOG_PROBABILITIES in table.columns:
        return with_scores(table, suite)
    written = _written_candidates(suite)
    if rule is None and written:
        rule = RULES["exact"]
    if rule is None and "answer_index" not in table.columns:
        return table
    words = {relation.id: relation.candidates.words for relation in suite.relations}
    return table.with_columns(answer=_matched(table, words, rule, written))


def with_facts(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """A table of text with the group, subject and gold of its items; others than those raise."""
    has_index = "variant_index" in table.columns
    check_columns(table, ("item",) if has_index else ("item", "variant"))
    known = pl.DataFrame(
        [
            (relation.id, fact.item, fact.subject, fact.object)
            for relation in suite.relations
            for fact in relation.facts
        ],
        schema=dict.fromkeys(("group", "item", "subject", "gold"), pl.String),
        orient="row",
    )
    if "group" not in table.columns and known["item"].is_duplicated().any():
        raise missing_column(
            "group", table.columns, expected="the relation of each item", where=WHERE
        )
    return _with_known(table, known, suite.name)


def with_scores(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """A table of facts with the answers and scores that its log-probabilities make (``judge``)."""
    relations = {relation.id: relation for relation in suite.relations}
    parts = []
    for (group,), rows in table.with_row_index("row").partition_by("group", as_dict=True).items():
        words = relations[str(group)].candidates.words
        totals = np.array(
            [
                log_probabilities(text, len(words), f"{WHERE}, row {row + 1}")
                for row, text in rows.select("row", LOG_PROBABILITIES).iter_rows()
            ]
        )
        every = np.arange(len(totals))
        scores = Scores(every, words, log_softmax(totals), totals=totals)
        columns = judge(scores, rows["gold"].to_list())
        parts.append(
            rows.with_columns(
                pl.Series(name, values, ANSWERS_SCHEMA[name], strict=False)
                for name, values in columns.items()
            )
        )
    return pl.concat(parts).sort("row").drop("row", LOG_PROBABILITIES)


def log_probabilities(text: str | None, size: int, where: str) -> list[float]:
    """The log-probabilities of ``size`` candidates, a list in JSON.

    All are NaN where there are none, and where one is NaN: the most probable one is then not known.
    """
    try:
        values = [np.nan] * size if text is None else list(map(float, json.loads(text)))
    except (TypeError, ValueError) as error:
        raise ConsilienceError(
            f"'{LOG_PROBABILITIES}' is {text!r}", expected="a list of numbers in JSON", where=where
        ) from error
    if len(values) != size:
        raise ConsilienceError(
            f"{len(values)} log-probabilities",
            expected=f"{size}, one for each candidate in the suite",
            where=where,
            todo="Name the suite that was exported, as it was then.",
        )
    return [np.nan] * size if np.isnan(values).any() else values


def _written_candidates(suite: Suite) -> dict[tuple[str, str], list[Choice]]:
    """The candidates by group and variant, with their text in the pattern as an alias.

    A variant is a pattern's name or its position. Groups with one writing are not there.
    """
    return {
        (relation.id, variant): [
            Choice(word, (relation.written(word, pattern.language, pattern.object_form),))
            for word in relation.candidates.words
        ]
        for relation in suite.relations
        if relation.names
        for at, pattern in enumerate(relation.patterns)
        for variant in (pattern.name, str(at))
    }


def _with_known(table: pl.DataFrame, known: pl.DataFrame, suite: str) -> pl.DataFrame:
    """The table with the columns of ``known``: what the suite says of each item.

    A group or an item that the suite does not have raises, and so does another subject or gold.
    """
    on: list[str] = [name for name in ("group", "item") if name in table.columns]
    on = [name for name in on if name in known.columns]
    keys = table.select(on).with_row_index("row", 1)
    for end, name in enumerate(on, start=1):
        foreign = keys.join(known, on=on[:end], how="anti").sort("row")
        for row in foreign.head(1).iter_rows(named=True):
            of_group = known.filter(pl.col("group") == row["group"]) if end > 1 else known
            names, where = of_group[name].unique(maintain_order=True), f"{WHERE}, row {row['row']}"
            raise unknown(row[name], name, names.to_list(), suite, where)
    of_suite = keys.join(known, on=on, how="left", maintain_order="left").drop("row")
    for name in ("subject", "gold"):
        differs = table[name] != of_suite[name] if name in table.columns else pl.Series([False])
        for at in differs.arg_true()[:1]:
            raise ConsilienceError(
                f"the {name} of '{table['item'][at]}' is '{table[name][at]}'",
                expected=f"'{of_suite[name][at]}', as in the suite '{suite}'",
                where=f"{WHERE}, row {at + 1}",
                todo="Name the suite that was asked, or correct the row.",
            )
    return table.with_columns(of_suite)


def _matched(
    table: pl.DataFrame,
    words: Mapping[str, Sequence[str]],
    rule: Rule | None,
    written: Mapping[tuple[str, str], Sequence[Choice]] = {},
) -> pl.Series:
    """The answers as words of their group, where they are; "" is the group of all rows.

    ``written``: the choices of a group and variant, where they are other texts than ``words``.
    """
    choices = {group: [Choice(word) for word in of_group] for group, of_group in words.items()}
    known: dict[tuple[str, str, str], str] = {}
    answers: list[str | None] = []
    for number, row in enumerate(table.iter_rows(named=True), start=1):
        group = "" if "" in words else str(row["group"])
        text = answer_in(row, words.get(group, ()), f"{WHERE}, row {number}")
        variant = str(row.get("variant", row.get("variant_index"))) if written else ""
        key = group, variant, str(text)
        if text is not None and rule is not None and key not in known:
            texts = written.get((group, variant), choices.get(group, ()))
            at = match(text, texts, rule).position
            known[key] = text if at is None else words[group][at]
        answers.append(None if text is None else known.get(key, text))
    return pl.Series("answer", answers, dtype=pl.String)


def answer_in(row: Row, candidates: Sequence[str], where: str) -> str | None:
    """The answer of a row, by its text or by its position; None where it has none."""
    text, index = row.get("answer"), row.get("answer_index")
    if text is not None and str(text).strip():
        return str(text)
    if index is None or not str(index).strip():
        return None
    if str(index).isdecimal() and int(index) < len(candidates):
        return candidates[int(index)]
    raise ConsilienceError(
        f"answer_index {index}",
        expected=f"a position from 0 to {len(candidates) - 1}" if candidates else "a text",
        where=where,
    )


def check_columns(table: pl.DataFrame, needed: Sequence[str]) -> None:
    """Raise for a missing column, no rows, and an empty cell."""
    names = [*needed, "answer"]
    other = {"answer_index", LOG_PROBABILITIES} & set(table.columns)
    for name in names:
        if name not in table.columns and not (name == "answer" and other):
            raise missing_column(
                name,
                table.columns,
                expected=", ".join(names),
                where=WHERE,
                todo="Name the columns so, as `consilience suite export` does.",
            )
    if table.is_empty():
        raise ConsilienceError("no rows", where=WHERE)
    for name in needed:
        if table[name].null_count():
            at = table[name].is_null().arg_max() or 0
            raise ConsilienceError(
                f"no '{name}'", where=f"{WHERE}, row {at + 1}", todo="Fill it in."
            )


def refuse_repeated(table: pl.DataFrame) -> None:
    """Raise for two answers to the same item in the same variant."""
    repeated = table.select("item", "variant").is_duplicated()
    if repeated.any():
        at = repeated.arg_max() or 0
        item, variant = table["item"][at], table["variant"][at]
        raise ConsilienceError(
            f"two answers to '{item}' in the variant '{variant}'",
            expected="one row for each item and variant",
            where=f"{WHERE}, row {at + 1}",
            todo="Remove one of them.",
        )


def variants_in(table: pl.DataFrame) -> list[str]:
    """The names of the variants by their index, or in order of first appearance."""
    if "variant_index" in table.columns:
        table = table.sort(
            pl.col("variant_index").cast(pl.Int64, strict=False), maintain_order=True
        )
    return table["variant"].unique(maintain_order=True).to_list()


def unknown(name: str, kind: str, known: list[str], suite: str, where: str) -> ConsilienceError:
    """The error for a name that a suite does not have."""
    return ConsilienceError(
        f"the suite '{suite}' has no {kind} '{name}'", where=where, todo=did_you_mean(name, known)
    )
