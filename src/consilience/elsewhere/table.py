"""The one table of answers that were made elsewhere, and what a run keeps of it.

A row is one answer. All columns but ``right`` are texts:

- ``item``, ``gold``: the question, and the right answer; several golds are a list in JSON.
- ``answer``: the text, or an option by its text or label; or ``scores``: a list in JSON with the
  log-probability of each option in nats, of which the highest is the answer.
- ``options``: a list in JSON, as shown; none of an open question. An option that may be written in
  several ways is a list of texts.
- ``right``: whether the record itself says that the answer is right, where it says so.
- ``reading``: the metric, filter or scorer that the row is about; several are one answer.
- ``left_out``: why the row cannot be used; such rows are counted in a note.
- one column a factor, and what else ``suite export`` writes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from string import ascii_uppercase
from typing import Any

import numpy as np
import polars as pl
from polars import selectors

from consilience.core.errors import ConsilienceError
from consilience.core.factors import (
    FACTORS,
    FIRST_TURN,
    MOST_CELLS,
    MOST_CROSSED,
    ORIGINAL,
    Design,
    Factor,
    FactorialDesign,
    letters_of,
)
from consilience.core.free_text import Rule
from consilience.core.items import DEFAULT_LANGUAGE, Ask, Choice, Prompt, Question, Scores, padded
from consilience.core.schemas import QUERIES_SCHEMA
from consilience.core.text import counted, listed, visible
from consilience.files.rows import different, joined, list_in, repeated, text_of
from consilience.plans.asking import answers_of
from consilience.plans.presentation import LABEL_STYLES, labels_of
from consilience.plans.questions import SCHEMA, WRITTEN_COLUMNS, answered, choices_of, item_of
from consilience.suites.pairs import is_task, load_task
from consilience.suites.questions import SEPARATOR
from consilience.types import WORDS, Candidates, Relation, Suite

COLUMNS = (
    "suite", "group", "item", "subject", "gold", "options", "answer", "scores", "excluded", "error",
    "model", "prompt", "id", "variant_index", "candidates", "drawn",
)  # fmt: skip
KEY, NEEDED = ["group", "item"], ("item", "gold")
FORM = "form"  # The factor of sentence pairs: ``original``, and what perturbations make of it
NAME = "name"  # In place of a factor: what names a variant, where no factor varies
NUMBERED = ("paraphrase", "sample")  # Factors whose levels are numbers within an item
LONG = ("prompt", "scores")  # Columns whose texts seldom repeat; others become categories
AS_IS = (*LONG, "answer", "options", "gold")  # Columns whose texts keep outer white space
ROWS = 100_000  # Rows in memory as Python objects at once
MOST_PROMPTS = 2**28  # Bytes of prompts that are kept; of longer ones none is
VERDICTS = ("exact_match", "exact", "acc", "accuracy", "match", "choice", "correct")
"""Of several readings of an answer the first of these words counts, else the alphabet's first."""
USUAL = ("A", "base", FIRST_TURN, "given", "none", ORIGINAL)  # Levels that come before others
LETTERS = [*ascii_uppercase]
LONE_LETTER = r"^(\w+:)?\W*[A-Za-z]\W*$"  # Such as B), or Answer: B
TO_CHECK = (
    "`consilience check FILE` shows its columns; `score FILE --columns NAME=FIELD --out RUN` "
    "reads them."
)
EMPTY = ["[]", "[null]", '[""]']  # Lists that hold nothing
WRONG = "(wrong by the record)"  # After an answer that is read as the gold
ANSWERS: Mapping[str, Any] = {**SCHEMA, **WRITTEN_COLUMNS}
READ = (
    "answer", "option", "shown", "label", "unmatched", "n_candidates", "logprob", "gold_logprob",
    "gold_rank", "margin", "text_logprob", "gold_text_logprob", "option_scores", "choices",
)  # fmt: skip
"""The columns of the answers table that an answer itself decides."""
OWN = ("left_out", "place", "reading", "right")
TAKEN = {*ANSWERS, *QUERIES_SCHEMA, *OWN, "aliases"} - {*FACTORS, *COLUMNS}
"""Names that no factor has."""


@dataclass(frozen=True)
class Elsewhere:
    """Answers that were made elsewhere, as a run keeps them."""

    queries: pl.DataFrame  # ``QUERIES_SCHEMA``
    suite: Suite
    answers: pl.DataFrame
    model: str
    notes: Sequence[str]
    settings: Mapping[str, object] = field(default_factory=dict)
    """What decided the answers beside these, where the suite is known."""


@dataclass
class Table:
    """The answers of one model, texts that repeat as categories, and what is said of them."""

    where: str  # The file, for messages
    rows: pl.DataFrame
    model: str
    fields: Mapping[str, str]  # Factor -> the field of the file that has its levels
    notes: list[str]

    @classmethod
    def of_parts(
        cls, parts: Iterable[pl.DataFrame], where: str, fields: Mapping[str, str], model: str | None
    ) -> Table:
        """``fields``: of factors and of others. ``model``: which one, also by what follows a /."""
        kept, models, chosen = list[pl.DataFrame](), set[str](), set[str]()
        left_out, size = Counter[str](), 0
        known, texts = ("group", *NEEDED, "model", "prompt", "left_out"), selectors.string()
        lack = [pl.when(pl.col(of).is_null()).then(pl.lit(f"rows without '{of}'")) for of in NEEDED]
        for part in parts:
            new = (pl.lit(None, pl.String).alias(of) for of in known if of not in part.columns)
            is_filled = (texts.str.strip_chars() != "") & ~texts.is_in(EMPTY)
            rows = part.with_columns(new).with_columns(pl.when(is_filled).then(texts))
            others = texts - selectors.by_name(AS_IS, require_all=False)
            rows = rows.with_columns(others.str.strip_chars())
            models.update(rows["model"].drop_nulls().unique())
            group = pl.col("group").fill_null("questions")
            rows = rows.with_columns(pl.coalesce("left_out", *lack), group)
            if model:
                own = pl.col("model").fill_null(model)
                rows = rows.filter((own == model) | own.str.ends_with(f"/{model}"))
                chosen.update(rows["model"].drop_nulls().unique())
            left_out.update(rows["left_out"].drop_nulls())
            rows = rows.filter(pl.col("left_out").is_null()).drop("left_out", "model")
            size += int(rows["prompt"].estimated_size())
            short = (texts - selectors.by_name(LONG, require_all=False)).cast(pl.Categorical)
            kept.append(rows.with_columns(short))
            if size > MOST_PROMPTS:
                kept = [one.drop("prompt", strict=False) for one in kept]
        reasons = sorted(left_out.items(), key=lambda of: (-of[1], of[0]))
        notes = ["left out: " + "; ".join(f"{n:,} {of}" for of, n in reasons)] * bool(reasons)
        if not any(map(len, kept)):
            found = "; ".join([f"no answers of '{model}'" if model else "no answers", *notes])
            expected = listed(sorted(models)) if model else "rows with item, gold and answer"
            raise ConsilienceError(found, expected=expected, where=where)
        refuse_several(models if model is None else chosen, where)
        whole = pl.concat(kept, how="diagonal")
        whole = whole.select(of for of in whole.columns if whole[of].null_count() < len(whole))
        factors = {of: name for of, name in fields.items() if of not in COLUMNS}
        return cls(where, whole, model or min(models, default=""), factors, notes)


def refuse_several(models: Iterable[str], where: str) -> None:
    """Raise for several models."""
    if len(names := sorted(models)) > 1:
        found = f"the answers of {len(names)} models: {listed(names)}"
        todo = f"Name one: `score` with --model {names[0]} --out RUN. Or name its file."
        raise ConsilienceError(found, where=where, todo=todo)


@lru_cache(maxsize=2**16)
def choices_in(value: str | None, between: str = SEPARATOR) -> tuple[Choice, ...]:
    """The values of a list (``list_in``), or of a text with ``;`` between, each with its texts.

    ``between``: empty where a text is one value.
    """
    values = list_in(value) if value else None
    if not isinstance(values, list):
        values = value.split(between) if value and between else [value] * (value is not None)
    each = (one if isinstance(one, list) and one else [one] for one in values)
    every = ([visible(text_of(text) or "").strip() for text in texts] for texts in each)
    return tuple(Choice(first, tuple(dict.fromkeys(others))) for first, *others in every)


def texts_in(value: str | None, between: str = SEPARATOR) -> list[str]:
    """The first text of each value."""
    return [choice.text for choice in choices_in(value, between)]


def counted_table(
    table: Table, name: str, rule: Rule | None = None, reading: str | None = None
) -> Elsewhere:
    """What a run keeps of a table; ``name``: of its suite.

    ``reading``: which of several counts; None for the first of ``VERDICTS``. ``rule``: how answers
    are read, whatever verdicts the records have; None for their verdicts, and the usual rules
    (``free_text.DEFAULT_RULES``) where they have none.
    """
    table.rows = table.rows if rule is None else table.rows.drop("right", strict=False)
    _refuse_twice(table)
    _take_one_reading(table, reading)
    golds = _right_answers(table)
    designs = _with_variants(table)
    questions = _with_questions(table, designs, golds)
    every = [one for of_group in questions.values() for one in of_group]
    answers = _answers(table, every, rule)
    written = {*answers.filter(pl.col("text").is_not_null())["group"].unique()}
    relations = tuple(
        _relation(of_group, designs[group], is_written=group in written)
        for group, of_group in questions.items()
    )
    are_pairs = all(relation.design.compared is not None for relation in relations)
    words = WORDS["pairs" if are_pairs else "questions"]
    factors = dict.fromkeys(of.name for design in designs.values() for of in design.factors)
    rows, shown = table.rows, different(table.rows, "options")
    name = str(rows["suite"][0]) if "suite" in rows.columns else name
    lists = pl.Series("choices", [texts_in(of) for of in shown["options"]], pl.List(pl.String))
    choices = shown.with_columns(lists.cast(pl.List(pl.Categorical)))
    prompt = pl.col("prompt") if "prompt" in rows.columns else pl.lit(None, pl.String)
    queries = pl.concat([
        rows.select(*KEY, "subject", "variant", "variant_index", *factors, "gold",
                    input=pl.concat_list(prompt).list.drop_nulls()),
        joined(rows.select("options"), choices, ["options"]).select("choices"),
    ], how="horizontal")  # fmt: skip
    suite, answers = Suite(name, relations, words=words), answers.with_columns(suite=pl.lit(name))
    return Elsewhere(queries, suite, answers, table.model, table.notes)


def _refuse_twice(table: Table) -> None:
    """Raise where groups have the same questions, which would count twice."""
    rows = table.rows
    if "prompt" not in rows.columns:
        return
    rows = rows.drop_nulls("prompt").with_columns(asked=pl.col("prompt").hash())
    by = (of for of in ("gold", "asked", "options") if of in rows.columns)
    asked = different(rows, *KEY, *by)
    again = asked.filter(asked.drop("group").is_duplicated())
    if len(again):
        groups = listed([f"'{of}'" for of in sorted({*again["group"].cast(pl.String)})])
        found = f"the same question '{again['item'][0]}', with the same prompt, in {groups}"
        todo = "Name a log of one of them, or give one group to all: --columns group=."
        raise ConsilienceError(found, expected="different ones", where=table.where, todo=todo)


def _take_one_reading(table: Table, reading: str | None) -> None:
    """Leave out all readings of an answer but the named one, or the first of ``VERDICTS``."""
    rows, by = table.rows, [*KEY, *(of for of in table.fields if of in table.rows.columns)]
    if "reading" not in rows.columns:
        return
    texts = pl.col("reading").cast(pl.String).fill_null("")
    names = sorted(rows.select(texts.unique()).to_series())
    words = {name: re.findall(r"\w+", name.lower()) for name in names}
    names.sort(key=lambda name: [*(of in words[name] for of in VERDICTS), True].index(True))
    rank = texts.replace_strict(names, range(len(names)))
    table.rows = rows.filter(texts == reading if reading else rank == rank.min().over(by))
    if others := len(rows) - len(table.rows):
        used = listed(sorted({*table.rows["reading"].cast(pl.String).drop_nulls()}))
        found = f"{counted(others, 'row')} of other readings of an answer; used: {used}"
        table.notes.append(f"left out: {found}")


def _with_variants(table: Table) -> dict[str, FactorialDesign]:
    """The design of each group. The rows get ``place`` (of the item), ``variant`` and its index.

    A factor is a field that varies within an item, and several items have each of its levels. The
    order of the rows becomes that of items and variants.
    """
    rows = table.rows
    items, known = different(rows, *KEY), [of for of in table.fields if of in rows.columns]
    levels = {name: different(rows, *KEY, name) for name in known}
    varying = [name for name in known if len(levels[name]) > len(items)]
    if NAME in varying:
        varying.remove(NAME)
        rows = rows if varying else rows.with_columns(template=NAME)
        levels["template"] = levels[NAME].rename({NAME: "template"})
        varying = varying or ["template"]
    is_exported = {"id", "variant_index"} <= {*rows.columns}
    for name in varying:
        alone = levels[name].group_by(name).len().filter(pl.col("len") == 1).height
        if alone and len(items) > 1 and not is_exported and name not in NUMBERED:
            raise ConsilienceError(
                f"{counted(alone, 'value')} of '{table.fields.get(name, name)}' in one item only",
                expected=f"levels of the factor '{name}', which several items have",
                where=table.where, todo=f"--columns {name}= takes none. {TO_CHECK}",
            )  # fmt: skip
    varying.sort(key=[*FACTORS, *varying].index)
    order = {name: _levels(rows, name) for name in varying}
    has_order = pl.col("order").count().over("group") > 0
    if "order" in varying and rows.filter(pl.col("order").is_null(), has_order).height:
        found, expected = "rows without an order beside others", "such as ABCD in each of a group"
        raise ConsilienceError(found, expected=expected, where=table.where)
    none, by = pl.lit("none").cast(pl.Categorical), ["group", *varying]
    rows = rows.with_columns(
        pl.when(pl.col(of).count().over("group") > 0).then(pl.col(of).fill_null(none))
        for of in varying
    )
    designs, frames = dict[str, FactorialDesign](), list[pl.DataFrame]()
    of_groups = different(rows, *by).cast(dict.fromkeys(by, pl.String)).sort("group")
    for of_group in of_groups.partition_by("group", maintain_order=True):
        group, *values = of_group["group"][0], *(of_group[name] for name in varying)
        held = [(name, of) for name, of in zip(varying, values, strict=True) if not of.null_count()]
        factors = tuple(
            Factor(name, tuple(one for one in order[name] if one in of)) for name, of in held
        )
        places = [
            tuple(of.levels.index(row[of.name]) for of in factors)
            for row in of_group.iter_rows(named=True)
        ]
        cells = sorted({*places})
        designs[group] = design = FactorialDesign(factors, tuple(cells), _drawn(rows))
        if len(cells) > (most := MOST_CROSSED if design.drawn else MOST_CELLS):
            found = f"{len(cells):,} variants in the group '{group}'"
            raise ConsilienceError(found, expected=f"at most {most}", where=table.where)
        names = factors[0].levels if [*design.levels] == [FORM] else design.names
        index = pl.Series("variant_index", map(cells.index, places), pl.Int32)
        frames.append(of_group.with_columns(index, variant=pl.Series([names[at] for at in index])))
    variants = pl.concat(frames).cast({pl.String: pl.Categorical})
    of_rows = joined(rows.select(by), variants, by).select("variant", "variant_index")
    place = joined(rows.select(KEY), items.sort(KEY).with_row_index("place"), KEY).select("place")
    rows = rows.drop({*known, "variant_index"} - {"labels", *varying}, strict=False)
    rows = pl.concat([rows, of_rows, place], how="horizontal")
    again = rows.filter(repeated(rows["place"], rows["variant_index"]))
    if len(again):
        first = again.sort("place", "variant_index")["item"][0]
        found = f"{len(again):,} rows of queries that have several, such as of '{first}'"
        expected = "one for each item and variant: of two logs of one task and model, name one"
        raise ConsilienceError(found, expected=expected, where=table.where, todo=TO_CHECK)
    number = rows["place"].cast(pl.UInt64) * 2**32 + rows["variant_index"].cast(pl.UInt64)
    at = number.arg_sort()
    table.rows = pl.DataFrame([rows.drop_in_place(name)[at] for name in rows.columns])
    return designs


def _drawn(rows: pl.DataFrame) -> int:
    """In how many variants each item was asked, if they were drawn (``FactorialDesign.drawn``)."""
    number = str(rows["drawn"][0]) if {"id", "drawn"} <= {*rows.columns} else ""
    return int(number) if number.isdecimal() else 0


def _levels(rows: pl.DataFrame, name: str) -> list[str]:
    """The levels of a factor: in the order of the export, or usual ones, numbers, texts."""

    def place(level: str) -> tuple[int, bool, list[Any], str]:
        parts: list[Any] = re.split(r"(\d+(?:\.\d+)?)", level)
        parts[1::2] = map(float, parts[1::2])
        return firsts[level], level not in USUAL, parts, level

    first = pl.lit(0)
    if "variant_index" in rows.columns:
        first = pl.col("variant_index").cast(pl.String).cast(pl.Int64, strict=False).min()
    table = rows.group_by(name).agg(first=first.fill_null(0))
    firsts: dict[str, int] = dict(table.cast({name: pl.String}).fill_null("none").iter_rows())
    return sorted(firsts, key=place)


def _right_answers(table: Table) -> dict[tuple[str, str], dict[str, None]]:
    """The right answers of each item; an item whose rows do not agree is left out, with a note.

    An item has the same options in all its rows, in any order, of which one is right; or no options
    and the same right answers. A gold is an option by its text. Where all golds of the file are
    letters, and not all are texts, each is the option at its letter, as shown. Where no options are
    given, orders and golds of letters name them: ``BA`` shows the options B and A.
    """
    if "options" not in table.rows.columns:
        order = pl.col("order" if "order" in table.rows.columns else "gold").cast(pl.String)
        are_names = order.str.contains("^[A-Z]{2,}$").all() & pl.col("gold").is_in(LETTERS).all()
        named = pl.when(are_names).then(order.str.extract_all(".").list.join(SEPARATOR))
        table.rows = table.rows.with_columns(options=named.cast(pl.Categorical))
    elif "order" not in table.rows.columns:
        table.rows = _with_orders(table.rows, [*KEY, *{*table.fields} & {*table.rows.columns}])
    if "order" in table.rows.columns:  # where letters mean the options as shown
        of_items = table.rows.group_by(KEY).agg(pl.col("order", "options").n_unique())
        shown = {text for cell in table.rows["options"].unique() for text in texts_in(cell)}
        said = table.rows.select(pl.col("^(gold|answer)$").cast(pl.String)).iter_columns()
        is_same = of_items.filter(pl.col("order") > 1)["options"].max() == 1
        if is_same and any(one.drop_nulls().is_in([*{*LETTERS} - shown]).all() for one in said):
            expected = "them as shown (--columns options=FIRST+SECOND), or AB and BA as order"
            found = "the same options in all orders"
            raise ConsilienceError(found, expected=expected, where=table.where)
    _refuse_unlisted(table.rows, table.where)
    cells = different(table.rows, *KEY, "options", "gold")
    both = different(table.rows, "options", "gold").drop_nulls("options")

    def is_each(fits: Callable[[list[str], list[str]], object]) -> bool:
        """Whether the golds of all rows with options fit them; the first that do not end it."""
        cells = ((texts_in(of), texts_in(gold, "")) for of, gold in both.iter_rows())
        return all(fits(texts, golds) for texts, golds in cells if len(texts) > 1)

    are_letters = is_each(lambda texts, golds: golds[0] in LETTERS[: len(texts)])
    are_letters = are_letters and not is_each(lambda texts, golds: {*golds} & {*texts})
    golds = dict[tuple[str, str], dict[str, None]]()
    first, reasons = dict[tuple[str, str], tuple[Any, Any]](), dict[tuple[str, str], str]()
    for group, item, options, gold in cells.iter_rows():
        key, texts, of_row = (group, item), texts_in(options), texts_in(gold, "")
        if are_letters and len(texts) > 1:
            of_row = [texts[LETTERS.index(of_row[0])]]
        right = [text for text in texts if text in of_row] if texts else sorted({*of_row})
        known = first.setdefault(key, (sorted(texts), right))
        if options is not None and len({*texts}) < max(2, len(texts)):
            reasons[key] = 'whose options are no list of different texts, such as ["yes", "no"]'
        elif known[0] != sorted(texts):
            reasons[key] = "with other options in some rows"
        elif texts and len(right) != 1:
            reasons[key] = "of which not exactly one option is right"
        elif known[1] != right:
            reasons[key] = (
                "with other right answers in some rows (a letter that is no text is as shown)"
            )
        golds.setdefault(key, {}).update(dict.fromkeys([*right, *of_row] if texts else of_row))
    if reasons:
        of_reasons = Counter(reasons.values()).most_common()
        left_out = "; ".join(f"{counted(number, 'item')} {of}" for of, number in of_reasons)
        table.notes.append(f"left out: {left_out}")
        if len(reasons) == len(golds):
            found = f"no answers; {table.notes[-1]}"
            raise ConsilienceError(found, expected="rows of docs/elsewhere.md", where=table.where)
        keys = pl.DataFrame([*reasons], dict.fromkeys(KEY, pl.Categorical), orient="row")
        table.rows = table.rows.join(keys, on=KEY, how="anti", maintain_order="left")
    return golds


def _with_orders(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The rows with the order of their options, if they differ by it and all items have the same.

    The first order of an item is ``AB``. ``by``: what else tells rows apart.
    """
    shown = different(rows, *KEY, "options").drop_nulls()
    if len(shown) == len(different(rows, *KEY)) or len(different(rows, *by)) == len(rows):
        return rows
    first, orders = dict[tuple[str, ...], list[str]](), list[str | None]()
    for *key, of in shown.iter_rows():
        known = first.setdefault(tuple(key), texts := texts_in(of))
        orders.append(letters_of(known.index(text) for text in texts if text in known))
    table = shown.with_columns(order=pl.Series(orders, dtype=pl.Categorical))
    sizes = table.group_by("group", "order").len().group_by("group").agg(pl.col("len").n_unique())
    return rows if sizes["len"].max() != 1 else joined(rows, table, shown.columns)


def _refuse_unlisted(rows: pl.DataFrame, where: str) -> None:
    """Raise for open questions that seem to have options, or several golds in one text.

    Letters in a tenth of the answers, if no gold is one; golds with ``;``, if no answer has it.
    """
    if {"right", "answer"} & {*rows.columns} == {"answer"}:
        known = rows.filter(pl.col("options").is_null()).select(pl.col("gold", "answer"))
        golds, answers = (of.cast(pl.String).drop_nulls() for of in known)
        letters = answers.filter(answers.str.contains(LONE_LETTER))
        if 10 * len(letters) > len(answers) and not golds.str.contains(LONE_LETTER).any():
            found = f"{len(letters)} of {len(answers)} answers are letters, such as '{letters[0]}'"
            todo = "Name their columns, as in --columns options=FIRST+SECOND."
            raise ConsilienceError(found, expected="the options", where=where, todo=todo)
        gold = golds.filter(golds.str.contains(r"^[^\[;][^;]*;\s*[^;\s]")).min()
        if isinstance(gold, str) and not answers.str.contains(SEPARATOR).any():
            expected = f"a list, such as {text_of(texts_in(gold))}, also of one text with ;"
            raise ConsilienceError(f"the gold '{gold}'", expected=expected, where=where)


def _with_questions(
    table: Table,
    designs: Mapping[str, FactorialDesign],
    golds: Mapping[tuple[str, str], Mapping[str, None]],
) -> dict[str, list[Question]]:
    """The questions of each group, in the order of ``place``; ``golds``: their right answers.

    The order of options is that of an item's first variant. The rows get ``subject``, ``gold`` and
    ``gold_option``: answers are compared by option where all questions of a group have options,
    else by text.
    """
    rows, questions = table.rows, dict[str, list[Question]]()
    for *key, options in (
        rows.unique("place", keep="first", maintain_order=True).select(*KEY, "options").iter_rows()
    ):
        (group, item), choices, of_item = key, choices_in(options), golds[key[0], key[1]]
        right = [choice for choice in choices if choice.text in of_item]
        first, *others = dict.fromkeys([*(right[0].texts if right else ()), *of_item])
        gold = Choice(first, tuple(others))
        of_options = tuple(gold if one in right else one for one in choices)
        question = Question(item, group, {DEFAULT_LANGUAGE: (item,)}, gold, of_options)
        questions.setdefault(group, []).append(question)
    every, positions = list[Question](), list[int | None]()
    for group, of_group in questions.items():
        by_option = all(one.options for one in of_group) and FORM not in designs[group].levels
        positions += [one.gold_position if by_option else None for one in of_group]
        every += of_group
    is_name = len({one.item for one in every}) == len(every)
    subjects = [one.item if is_name else f"{one.group}/{one.item}" for one in every]
    kinds = {"gold": pl.Categorical, "gold_option": pl.Int32, "subject": pl.Categorical}
    of_items = pl.DataFrame([[one.gold.text for one in every], positions, subjects], kinds)
    of_items = of_items.drop([name for name in ("subject",) if name in rows.columns])
    table.rows = rows.with_columns(of_items[rows["place"]])
    return questions


def _relation(
    questions: Sequence[Question], design: FactorialDesign, *, is_written: bool
) -> Relation:
    """The group of questions; its items are in the queries."""
    group, counts = questions[0].group, Counter(question.gold.text for question in questions)
    if [*design.levels] == [FORM]:
        labels = tuple(dict.fromkeys(option.text for one in questions for option in one.options))
        task = load_task(group) if is_task(group) else None
        positive = task.labels[-1] if task and "f1" in task.metrics else ""
        forms = design.factors[0].levels
        of_forms = Design.of_forms(forms, labels, positive, writes_freely=is_written)
        return Relation.of_design(group, (), Candidates(labels, (0,) * len(labels)), of_forms)
    candidates, options = Candidates((*counts,), (*counts.values(),)), 0
    if all(question.options for question in questions):
        options = max(len(question.options) for question in questions)
        golds = Counter(question.gold_position for question in questions)
        words, numbers = tuple(map(str, range(options))), tuple(golds[at] for at in range(options))
        candidates = Candidates(words, numbers)
    cells = Design.of_cells(design, options, writes_freely=is_written and options > 0)
    return Relation.of_design(group, (), candidates, cells)


def _answers(table: Table, questions: Sequence[Question], rule: Rule | None) -> pl.DataFrame:
    """The answers table of a run; rows with equal answers to a question are read once."""
    rows = table.rows.rename({"answer": "text"}, strict=False)
    absent = [name for name in ("text", "excluded", "error", "scores") if name not in rows.columns]
    rows = rows.with_columns(pl.lit(None, pl.Categorical).alias(name) for name in absent)
    if no := {"false", "False", "no", "0"} & {*rows["excluded"].unique()}:
        found, expected = f"'{min(no)}' in the column 'excluded'", "why a query was not asked"
        raise ConsilienceError(found, expected=expected, where=table.where)
    is_asked, has_answer = pl.col("excluded").is_null(), pl.col("answer").is_not_null()
    rows = rows.with_columns(pl.when(is_asked).then(pl.col("text", "scores")))
    of_answer = ("place", "options", "labels", "text", "scores", "right")
    by = [name for name in of_answer if name in rows.columns]
    parts = different(rows, *by).iter_slices(ROWS)
    readings = pl.concat([part.hstack(_read(part, questions, rule, table.where)) for part in parts])
    empty = [of for of in READ[6:] if readings[of].null_count() == len(readings)]  # take memory
    read = joined(rows.select(by), readings.drop(empty), by).drop(by)
    if number := len(read.filter("overruled")):
        table.notes.append(f"{counted(number, 'answer')} counted as the record says, not as read")
    known = rows.select(of for of in ANSWERS if of in rows.columns and of not in READ)
    return pl.concat([known, read.drop("overruled")], how="horizontal").with_columns(
        pl.when(pl.col("gold_option").is_not_null()).then("option"),
        pl.when(~has_answer).then(pl.col("excluded")),
        pl.when(~has_answer & is_asked).then(pl.col("error")),
    )


def _read(
    part: pl.DataFrame, questions: Sequence[Question], rule: Rule | None, where: str
) -> pl.DataFrame:
    """The columns of the answers table that an answer decides, and how its record disagrees."""
    records, scored = list[dict[str, Any]](), list[tuple[dict[str, Any], Ask, list[float]]]()
    rows = [*part.iter_rows(named=True)]
    for row in rows:
        question, choices = questions[row["place"]], choices_in(row["options"])
        prompt = _prompt(question, choices, row.get("labels"), row["text"] or "")
        record: dict[str, Any] = {"shown": letters_of(prompt.options)}
        records.append(record)
        totals = _log_probabilities(row["scores"], question, where) if row["scores"] else []
        if row["text"] is not None and not totals:
            written = {} if rule else _as_written(row["text"], prompt, question)
            record |= written or answered(row["text"], prompt, question, rule)
            is_known = row.get("labels") in LABEL_STYLES or row.get("right") is not None
            if not is_known and "option" in record:
                meant = [row["text"]] if written else [record["label"], record["answer"]]
                _refuse_two_meanings(meant, prompt, question)
        elif totals and len(totals) != len(choices):
            found = f"{len(totals)} scores of '{question.item}'"
            expected = f"one for each of {counted(len(choices), 'option')}"
            raise ConsilienceError(found, expected=expected, where=where)
        elif totals:
            ask = Ask(row["place"], 0, prompt, prompt.answers, prompt.options)
            scored.append((record, ask, totals))
    if scored:
        asks = [of for _, of, _ in scored]
        every = padded([np.array(of) for *_, of in scored], np.nan)
        scores = Scores(np.arange(len(scored)), totals=every, is_complete=True)
        judged: Mapping[str, Any] = answers_of(scores, asks, [item_of(one) for one in questions])
        for at, (record, *_) in enumerate(scored):
            record |= {name: values[at] for name, values in judged.items()}
    for row, record in zip(rows, records, strict=True):
        question, right = questions[row["place"]], row.get("right")
        gold, place = question.gold.text, question.gold_position if question.options else None
        said = record.get("answer") if place is None else record.get("option")
        is_gold = said == (gold if place is None else place)
        if right and not is_gold:
            is_other = record.get("option") is not None
            record |= {"answer": gold, "option": place, "unmatched": None, "overruled": is_other}
        elif is_gold and right is False:
            record |= {"answer": f"{gold} {WRONG}", "option": None, "label": None}
            record["overruled"] = True
    kinds = {of: pl.Categorical if ANSWERS[of] == pl.String else ANSWERS[of] for of in READ}
    kinds["overruled"] = pl.Boolean
    columns = {name: [record.get(name) for record in records] for name in kinds}
    return pl.DataFrame(columns, kinds, strict=False).fill_nan(None)


def _log_probabilities(scores: str, question: Question, where: str) -> list[float]:
    """The log-probability of each option; none where one is no number."""
    values = list_in(scores)
    is_list = isinstance(values, list)
    totals = [float(one) for one in values if isinstance(one, int | float)] if is_list else []
    if not is_list or max(totals, default=0.0) > 0:
        found = f"the scores {scores} of '{question.item}'"
        expected = "log-probabilities in nats, which are at most 0, such as [-0.5, -1.5]"
        raise ConsilienceError(found, expected=expected, where=where)
    return totals if len(totals) == len(values) and not np.isnan(totals).any() else []


def _prompt(question: Question, shown: Sequence[Choice], style: str | None, text: str) -> Prompt:
    """What could be answered, in the order in which it was shown.

    Where ``labels`` does not say what the options were shown with, these are letters; of an answer
    that is a number, and no option is one, they are numbers.
    """
    if not question.options:
        return Prompt((), (), (), is_open=True)
    texts = [option.text for option in question.options]
    if style not in LABEL_STYLES:
        has_number = text.strip().isdecimal() and not any(one.isdecimal() for one in texts)
        style = "1" if has_number or len(texts) > len(LETTERS) else "A"
    labels = () if style == "none" else labels_of(style, len(texts))
    order = tuple(texts.index(choice.text) for choice in shown)
    gold, at = question.gold, question.gold_position
    choices = tuple(
        replace(gold, aliases=(*gold.aliases, *choice.aliases)) if place == at else choice
        for place, choice in zip(order, shown, strict=True)
    )
    return Prompt((), labels or tuple(one.text for one in shown), order, choices, labels=labels)


def _refuse_two_meanings(said: Sequence[str], prompt: Prompt, question: Question) -> None:
    """Raise if what was said is, in any case, the label of an option and the text of another."""
    labels = [label.casefold() for label in prompt.labels]
    texts = [choice.text.casefold() for choice in prompt.choices]
    for one in said:
        key = one.casefold()
        if key in labels and key in texts and labels.index(key) != texts.index(key):
            found = f"'{one}', the label of an option of '{question.item}' and the text of another"
            expected = "--columns labels=A, a or 1 for the label as shown, labels=none for the text"
            raise ConsilienceError(found, expected=expected)


def _as_written(text: str, prompt: Prompt, question: Question) -> dict[str, Any]:
    """The answer columns of a text that is a label or an option; empty where it is neither or two.

    As ``answered``, in a hundredth of the time.
    """
    texts = [choice.text for choice in prompt.choices]
    known = [*{at for of in (texts, prompt.labels) for at, one in enumerate(of) if one == text}]
    if len(known) != 1:
        return {}
    option = prompt.options[known[0]]
    written = {"option": option, "answer": question.options[option].text}
    written |= {"label": prompt.answers[known[0]], "n_candidates": len(texts)}
    return {**written, "choices": choices_of(prompt, question)}
