"""Answers that were made elsewhere to questions: which option each is, and in which variant."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from consilience.ask_questions import SCHEMA, answers_of
from consilience.ask_writing import WRITTEN_COLUMNS, answered
from consilience.core.errors import ConsilienceError
from consilience.core.factors import FACTORS, OF_OPTIONS, Factor, FactorialDesign, levels_of
from consilience.core.free_text import Rule
from consilience.files.tables import LOG_PROBABILITIES, as_text
from consilience.option_answers import chosen
from consilience.presentation import Presentation, Prompt, labels_of, permutation
from consilience.questions import Question
from consilience.suites.questions import Questions
from consilience.workflow.scoring_answers import (
    NO_ANSWER,
    WHERE,
    answer_in,
    check_columns,
    log_probabilities,
    refuse_repeated,
    unknown,
    variants_in,
)

Levels = Mapping[str, str]
"""The level of each factor that varies."""

NO_ROW = "no row in the table"
"""Why a question has no answer in a variant that the table does not have of it."""

Answered = tuple[Question, int, Prompt, dict[str, object]]
"""A question, the position of a variant, what was shown, and the answer columns."""


def answers_to_questions(
    table: pl.DataFrame, questions: Questions, rule: Rule | None = None
) -> tuple[FactorialDesign, pl.DataFrame]:
    """The variants of a table of answers to questions, and its answers table, group by group.

    Options are those of the column ``options``, as they were shown; without it, those of the
    variant's order. An unknown item, an unknown variant and an index that is no position raise.
    A question that has a variant in the suite and none in the table gets a row without an answer.
    """
    table = as_text(table)
    check_columns(table, ("item", "variant"))
    refuse_repeated(table)
    known = {question.item: question for question in questions.items}
    variants = {name: _levels(name) for name in variants_in(table)}
    if "variant_index" not in table.columns:
        variants = dict(sorted(variants.items(), key=lambda entry: _natural(entry[1])))
    design = _design_of(list(variants.values()))
    of_open = design.without(OF_OPTIONS)
    by_group: dict[str, list[Answered]] = {}
    for number, row in enumerate(table.iter_rows(named=True), start=1):
        where = f"{WHERE}, row {number}"
        question = known.get(str(row["item"]))
        if question is None:
            raise unknown(str(row["item"]), "item", list(known), questions.name, where)
        levels = variants[str(row["variant"])]
        variant = _variant_index(design if question.options else of_open, levels, where)
        prompt = _shown(question, levels, row.get("options"), where)
        style = levels.get("labels", Presentation().labels)
        answer: dict[str, object] = {"excluded": NO_ANSWER}
        if listed := row.get(LOG_PROBABILITIES):
            totals = log_probabilities(listed, len(prompt.answers), where)
            if not np.isnan(totals).any():
                answer = chosen(np.array(totals), None, prompt, question)
        elif (text := answer_in(row, prompt.answers, where)) is not None:
            answer = answered(text, prompt, question, style, rule)
        by_group.setdefault(question.group, []).append((question, variant, prompt, answer))
    tables = []
    for rows in by_group.values():
        of_group = design if rows[0][0].options else of_open
        rows.extend(_missing(rows, of_group))
        tables.append(
            answers_of(
                [question for question, _, _, _ in rows],
                of_group,
                [(at, variant, prompt) for at, (_, variant, prompt, _) in enumerate(rows)],
                [answer for _, _, _, answer in rows],
                questions.name,
                SCHEMA | dict(WRITTEN_COLUMNS),
            )
        )
    return design, pl.concat(tables)


def _missing(rows: Sequence[Answered], design: FactorialDesign) -> list[Answered]:
    """The variants that questions of the rows have in the suite and not in the rows."""
    known = {(question.item, variant) for question, variant, _, _ in rows}
    levels = [
        {factor.name: factor.levels[at] for factor, at in zip(design.factors, cell, strict=True)}
        for cell in design.cells
    ]
    return [
        (question, variant, Prompt((), (), ()), {"excluded": NO_ROW})
        for question in {question.item: question for question, _, _, _ in rows}.values()
        for variant in range(len(levels))
        if (question.item, variant) not in known and _has_variant(question, levels[variant])
    ]


def _has_variant(question: Question, levels: Levels) -> bool:
    """Whether a question has the language, the phrasing and the order of options of a variant."""
    language = levels.get("language", next(iter(question.paraphrases)))
    phrasings = len(question.paraphrases.get(language, ()))
    order = permutation(levels.get("order", "given"), len(question.options))
    return int(levels.get("paraphrase", 1)) <= phrasings and order is not None


def _natural(levels: Levels) -> tuple[tuple[bool, int], ...]:
    """Sorts variants without an index: ``given`` first, then by number, else as they come."""
    texts = [levels.get(name, "given") for name in FACTORS]
    numbers = [re.search(r"\d{1,9}$", text) for text in texts]
    return tuple(
        (text != "given", int(number[0]) if number else 0)
        for text, number in zip(texts, numbers, strict=True)
    )


def _levels(variant: str) -> Levels:
    """The levels of a variant by its name; a text that names none raises."""
    levels = levels_of(variant)
    is_phrasing = re.fullmatch(r"\d{1,9}", levels.get("paraphrase", "1"))
    if not is_phrasing or variant != (
        ", ".join(f"{name}={level}" for name, level in levels.items()) or "base"
    ):
        raise ConsilienceError(
            f"no variant '{variant}' of questions",
            expected="levels of factors, such as 'paraphrase=1, order=given', as "
            "`consilience suite export` writes them",
            where=WHERE,
        )
    return levels


def _design_of(variants: Sequence[Levels]) -> FactorialDesign:
    """The design whose variants these are; those of open questions lack the factors of options."""
    names = [name for name in FACTORS if any(name in levels for levels in variants)]
    factors = tuple(
        Factor(name, tuple(dict.fromkeys(levels[name] for levels in variants if name in levels)))
        for name in names
    )
    whole = [levels for levels in variants if len(levels) == len(names)]
    design = FactorialDesign(factors, ())
    cells = tuple(dict.fromkeys(_cell(design, levels) for levels in whole))
    return FactorialDesign(factors, cells)


def _variant_index(design: FactorialDesign, levels: Levels, where: str) -> int:
    """The position of a variant in a design; one that lacks a factor of the others raises."""
    missing = [factor.name for factor in design.factors if factor.name not in levels]
    cell = None if missing else _cell(design, levels)
    if cell not in design.cells:
        names = [factor.name for factor in design.factors]
        raise ConsilienceError(
            f"a variant with the levels of {', '.join(levels) or 'no factor'}",
            expected=f"levels of {', '.join(names) or 'no factor'}, as other rows have",
            where=where,
            todo="Write the variants as `consilience suite export` does.",
        )
    return design.cells.index(cell)


def _cell(design: FactorialDesign, levels: Levels) -> tuple[int, ...]:
    return tuple(factor.levels.index(levels[factor.name]) for factor in design.factors)


def _shown(question: Question, levels: Levels, options: str | None, where: str) -> Prompt:
    """What could be answered: the options of a question in the order in which they were shown."""
    texts = [option.text for option in question.options]
    size = len(texts)
    if options is not None:
        shown = _parsed(options, where)
        if sorted(shown) != sorted(texts):
            raise ConsilienceError(
                f"the options of '{question.item}' are {', '.join(shown)}",
                expected=", ".join(texts),
                where=where,
                todo="Name the suite that was exported.",
            )
        order: tuple[int, ...] | None = tuple(texts.index(text) for text in shown)
    else:
        name = levels.get("order", "given")
        if size and name.startswith("shuffle"):
            raise ConsilienceError(
                f"no column 'options' with the order '{name}', which a seed decided",
                where=where,
                todo="Keep the column 'options' of the export.",
            )
        order = permutation(name if size else "given", size)
    if order is None:
        raise ConsilienceError(f"{size} options have no order '{levels.get('order')}'", where=where)
    style = levels.get("labels", Presentation().labels)
    language = levels.get("language", next(iter(question.paraphrases)))
    written = question.in_phrasing(language, int(levels.get("paraphrase", 1)) - 1)
    choices = tuple(written.options[at] for at in order)
    answers = tuple(choice.text for choice in choices)
    if size and style != "none":
        answers = labels_of(style, size)
    return Prompt((), answers, order, choices)


def _parsed(options: str, where: str) -> list[str]:
    try:
        shown = json.loads(options)
    except json.JSONDecodeError:
        shown = None
    if not isinstance(shown, list):
        raise ConsilienceError(
            f"'options' is {options!r}",
            expected="a list in JSON, as `consilience suite export` writes it",
            where=where,
        )
    return list(map(str, shown))
