"""Answers that were made elsewhere, to the prompts of ``suite export`` or by promptfoo, as tables.

A row has the item, the variant and the answer: in ``answer`` a text, or in ``answer_index`` the
position among the candidates of the prompt, from 0. A log of lm-evaluation-harness has the
log-probabilities of all candidates instead. Without one, ``excluded`` may say why the row was not
asked, or ``error`` why it got no answer. What else a table needs is in the suite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from consilience.asking.asker import judge as judge_scores
from consilience.asking.asker import table_of
from consilience.asking.facts import judge
from consilience.asking.questions import SCHEMA, WRITTEN_COLUMNS, answered, group_of, item_of
from consilience.core.errors import ConsilienceError, did_you_mean, missing_column
from consilience.core.factors import (
    FACTORS,
    OF_OPTIONS,
    ORIGINAL,
    Factor,
    FactorialDesign,
    levels_of,
)
from consilience.core.free_text import DEFAULT_RULE, RULES, Rule, match
from consilience.core.items import DEFAULT_LANGUAGE, Ask, Choice, Question, Task
from consilience.core.presentation import Prompt, labels_of, permutation
from consilience.core.schemas import ANSWERS_SCHEMA, REASONS
from consilience.core.text import listed, names_a_file, truncated, visible
from consilience.files.read import read_document
from consilience.files.rows import GROUP_NAME
from consilience.files.tables import LOG_PROBABILITIES, as_text, model_of_log
from consilience.models.candidates import log_softmax
from consilience.options.runs import ScoreOptions
from consilience.runs.folder import digest_of, fingerprint
from consilience.suites.pairs import TASK_SUITE, Pairs, generated_group
from consilience.suites.questions import Questions
from consilience.types import Scores, Suite

WHERE = "the answers table"
JUDGED = "is_judged"  # The column of a table that is one of ``questions.SCHEMA`` already
Row = Mapping[str, Any]


def model_of_answers(options: ScoreOptions, rule: str | None) -> dict[str, object]:
    """The settings of a run that was made of a table."""
    name = options.provider or model_of_log(options.answers) or options.answers.stem
    files = sorted(options.answers.rglob("*.parquet")) or [options.answers]
    digests = [digest_of(file) for file in files]
    model = {
        "model": name,
        "digest": digests[0] if len(files) == 1 else fingerprint(dict.fromkeys(digests)),
    }
    return {"match": rule, "model": model}


def refuse_published(options: ScoreOptions) -> None:
    """Raise for the protocol that only facts have."""
    if options.protocol == "published":
        found = "--protocol published with a suite that is not one of facts"
        raise ConsilienceError(found, expected="strict", todo="Leave --protocol out.")


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
    if pairs is not None:
        rows = [(pair.item, pair.first, pair.label) for pair in pairs.items]
        known = pl.DataFrame(rows, ("item", "subject", "gold"), orient="row")
        table = _with_known(checked(table, ("item",)), known, task.name)
    table = checked(table, ("item", "variant", "gold"))
    refuse_repeated(table)
    forms = variants_in(table)
    for form in forms:
        if form not in (ORIGINAL, *known_forms):
            at = table["variant"].to_list().index(form) + 1
            raise unknown(form, "form", [ORIGINAL, *known_forms], task.name, f"{WHERE}, row {at}")
    if ORIGINAL not in forms:
        found = f"no answers to the form '{ORIGINAL}'"
        expected = f"'{ORIGINAL}' in the column 'variant'"
        raise ConsilienceError(found, expected=expected, where=WHERE)
    forms = [ORIGINAL, *(form for form in forms if form != ORIGINAL)]
    if LOG_PROBABILITIES in table.columns and "answer" not in table.columns:
        table = _most_probable(table, task.labels)
    wrong = table.filter(~pl.col("gold").is_in(list(task.labels)))
    if wrong.height:
        raise unknown(wrong["gold"][0], "label", list(task.labels), task.name, WHERE)
    reasons = [name for name in REASONS if name in table.columns]
    answers = table.select(
        "item",
        "variant",
        "gold",
        *reasons,
        suite=pl.lit(TASK_SUITE),
        group=pl.lit(generated_group(task)),
        subject="subject" if "subject" in table.columns else "item",
        variant_index=pl.col("variant").replace_strict(forms, list(range(len(forms)))),
        answer=_matched(table, {"": task.labels}, rule),
        n_candidates=len(task.labels),
    )
    return forms, recorded(answers)


def _most_probable(table: pl.DataFrame, labels: Sequence[str]) -> pl.DataFrame:
    """The table with the most probable label as ``answer``; null without log-probabilities."""
    answers = []
    for row, text in enumerate(table[LOG_PROBABILITIES], start=1):
        values = log_probabilities(text, len(labels), f"{WHERE}, row {row}")
        answers.append(None if np.isnan(values).any() else labels[int(np.argmax(values))])
    return table.with_columns(answer=pl.Series(answers, dtype=pl.String))


def recorded(table: pl.DataFrame) -> pl.DataFrame:
    """The columns of a run; those that a table of somebody lacks are null."""
    try:
        return table.select(
            pl.col(name).cast(dtype) if name in table.columns else pl.lit(None, dtype).alias(name)
            for name, dtype in ANSWERS_SCHEMA.items()
        )
    except pl.exceptions.PolarsError as error:
        raise ConsilienceError(
            str(error), where=WHERE, todo="Correct the value or leave out the column."
        ) from error


def answers_to_facts(table: pl.DataFrame, suite: Suite, rule: Rule | None) -> pl.DataFrame:
    """A table of answers to facts, with the group, subject and gold that its items have.

    ``rule``: how the object is found in an answer; None leaves answers as they are. Where patterns
    write objects in several languages or forms, an answer in that of its pattern becomes the object
    of the facts, by default by the rule ``exact``. Of a table with the log-probabilities of
    the candidates, the most probable one is the answer.
    """
    table = with_facts(table, suite)
    if LOG_PROBABILITIES in table.columns:
        return with_scores(table, suite)
    written = _written_candidates(suite)
    if rule is None and written:
        rule = RULES[DEFAULT_RULE]
    if rule is None and "answer_index" not in table.columns:
        return table
    words = {relation.id: relation.candidates.words for relation in suite.relations}
    return table.with_columns(answer=_matched(table, words, rule, written))


def with_facts(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """A table as text with the group, subject and gold of its items; others than those raise."""
    has_index = "variant_index" in table.columns
    needed = ["item"] + ["variant"] * (not has_index) + ["group"] * ("group" in table.columns)
    table = checked(table, needed)
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
        errors = ["no log-probabilities" if np.isnan(row).any() else None for row in totals]
        scores = Scores(every, words, log_softmax(totals), totals=totals, errors=errors)
        columns = judge(scores, rows["gold"].to_list())
        parts.append(
            rows.with_columns(
                pl.Series(name, values, ANSWERS_SCHEMA[name], strict=False)
                for name, values in columns.items()
            )
        )
    return pl.concat(parts).sort("row").drop("row", LOG_PROBABILITIES)


def log_probabilities(text: str | None, size: int, where: str) -> list[float]:
    """Of ``size`` candidates, a list in JSON; all are NaN where there are none or one is NaN."""
    try:
        values = [np.nan] * size if text is None else list(map(float, json.loads(text)))
    except (TypeError, ValueError) as error:
        raise ConsilienceError(
            f"'{LOG_PROBABILITIES}' is {text!r}", expected="a list of numbers in JSON", where=where
        ) from error
    if len(values) != size:
        found = f"{len(values)} log-probabilities"
        expected = f"{size}, one for each candidate in the suite"
        todo = "Name the suite that was exported, as it was then."
        raise ConsilienceError(found, expected=expected, where=where, todo=todo)
    return [np.nan] * size if np.isnan(values).any() else values


def _written_candidates(suite: Suite) -> dict[tuple[str, str], list[Choice]]:
    """The candidates by group and variant (its name or position), with texts as aliases."""
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
    """The table with what ``known`` says of each item; another item, subject or gold raises."""
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
    """The answers as words of their group ("": of all rows), ``written`` as in a variant."""
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
    if text is not None:
        return str(text)
    if index is None or not str(index).strip():
        return None
    if str(index).isdecimal() and int(index) < len(candidates):
        return candidates[int(index)]
    expected = f"a position from 0 to {len(candidates) - 1}" if candidates else "a text"
    raise ConsilienceError(f"answer_index {index}", expected=expected, where=where)


def checked(table: pl.DataFrame, needed: Sequence[str]) -> pl.DataFrame:
    """A table as text; a missing column, no rows and an empty cell raise.

    A blank answer is none, and so is that of a row that was ``excluded``. A row that has one has no
    reason why not (``REASONS``).
    """
    table = as_text(table)
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
    given = [name for name in ("answer", *other) if name in table.columns]
    table = table.with_columns(pl.when(pl.col(given).str.strip_chars() != "").then(pl.col(given)))
    if "excluded" in table.columns:
        is_asked = pl.col("excluded").fill_null("").str.strip_chars() == ""
        table = table.with_columns(pl.when(is_asked).then(pl.col(given)))
    reasons = [name for name in REASONS if name in table.columns]
    is_lacking = pl.all_horizontal(pl.col(given).is_null())
    return table.with_columns(pl.when(is_lacking).then(pl.col(reasons)))


def refuse_repeated(table: pl.DataFrame) -> None:
    """Raise for two answers to the same item in the same variant."""
    repeated = table.select("item", "variant").is_duplicated()
    if repeated.any():
        at = repeated.arg_max() or 0
        item, variant = table["item"][at], table["variant"][at]
        found = f"two answers to '{item}' in the variant '{variant}'"
        expected = "one row for each item and variant"
        where = f"{WHERE}, row {at + 1}"
        raise ConsilienceError(found, expected=expected, where=where, todo="Remove one of them.")


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


Levels = Mapping[str, str]  # The level of each factor that varies

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
    table = checked(table, ("item", "variant"))
    refuse_repeated(table)
    known = {question.item: question for question in questions.items}
    table = table.with_row_index("row", 1)
    variants = {name: _levels(name) for name in variants_in(table)}
    if "variant_index" not in table.columns:
        order = [*questions.languages, *(of.get("language") for of in variants.values())]
        by = lambda entry: (order.index(entry[1].get("language")), natural(entry[0]))  # noqa: E731
        variants = dict(sorted(variants.items(), key=by))
    design = design_from(list(variants.values()))
    of_open = design.without(OF_OPTIONS)
    cells = {one: {name: at for at, name in enumerate(one.names)} for one in (design, of_open)}
    by_group: dict[str, list[Answered]] = {}
    for row in table.iter_rows(named=True):
        where = f"{WHERE}, row {row['row']}"
        question = known.get(str(row["item"]))
        if question is None:
            raise unknown(str(row["item"]), "item", list(known), questions.name, where)
        levels = variants[str(row["variant"])]
        of_question = design if question.options else of_open
        name = ", ".join(f"{name}={levels[name]}" for name in FACTORS if name in levels) or "base"
        if (variant := cells[of_question].get(name)) is None:
            names = ", ".join(factor.name for factor in of_question.factors)
            found = f"a variant with the levels of {', '.join(levels) or 'no factor'}"
            expected = f"levels of {names or 'no factor'}, as other rows have"
            todo = "Write the variants as `consilience suite export` does."
            raise ConsilienceError(found, expected=expected, where=where, todo=todo)
        prompt = _shown(question, levels, row.get("options"), where)
        answer: dict[str, object] = {name: row.get(name) for name in REASONS}
        if listed := row.get(LOG_PROBABILITIES):
            totals = log_probabilities(listed, len(prompt.answers), where)
            if not np.isnan(totals).any():
                scores = Scores(np.arange(1), totals=np.array([totals]), is_complete=True)
                ask = Ask(0, variant, prompt, prompt.answers, prompt.options)
                columns = judge_scores(scores, [ask], [item_of(question)])
                answer = {name: values[0] for name, values in columns.items()}
        elif (text := answer_in(row, prompt.answers, where)) is not None:
            answer = answered(text, prompt, question, rule)
            if prompt.options and row.get("answer") is None:  # by its position
                option = prompt.options[at := int(row["answer_index"])]
                shown = {"option": option, "answer": question.options[option].text}
                answer |= {**shown, "label": prompt.answers[at], "unmatched": None}
        by_group.setdefault(question.group, []).append((question, variant, prompt, answer))
    tables = []
    for rows in by_group.values():
        of_group = design if rows[0][0].options else of_open
        rows.extend(_missing(rows, of_group))
        group = group_of(
            [question for question, _, _, _ in rows],
            of_group,
            [Ask(at, variant, prompt) for at, (_, variant, prompt, _) in enumerate(rows)],
            questions.name,
            SCHEMA | dict(WRITTEN_COLUMNS),
        )
        tables.append(table_of(group, [answer for _, _, _, answer in rows]))
    return design, pl.concat(tables, how="diagonal")


def _missing(rows: Sequence[Answered], design: FactorialDesign) -> list[Answered]:
    """The variants that questions of the rows have in the suite and not in the rows."""
    known = {(question.item, variant) for question, variant, _, _ in rows}
    levels = list(map(levels_of, design.names))
    return [
        (question, variant, Prompt((), (), ()), {"excluded": "no row in the table"})
        for question in {question.item: question for question, _, _, _ in rows}.values()
        for variant in range(len(levels))
        if (question.item, variant) not in known and _has_variant(question, levels[variant])
    ]


def _has_variant(question: Question, levels: Levels) -> bool:
    """Whether ``present`` makes a prompt of a question in a variant."""
    language = levels.get("language", next(iter(question.paraphrases)))
    phrasings = len(question.paraphrases.get(language, ()))
    sizes = {"order": len(question.options), "context": len(question.passages)}
    orders = [permutation(levels.get(name, "given"), size) for name, size in sizes.items()]
    return None not in orders and int(levels.get("paraphrase", 1)) <= phrasings


USUAL = ("A", "base", "given", "none")  # Levels that come before others


def natural(variant: str, *first: str) -> list[list[tuple[bool, list[Any], str]]]:
    """Sorts variants by their factors, ``first`` before others: usual levels, numbers, texts."""

    def place(text: str) -> tuple[bool, list[Any], str]:
        parts: list[Any] = re.split(r"(\d+(?:\.\d+)?)", text)
        parts[1::2] = map(float, parts[1::2])
        return text not in USUAL, parts, text

    levels = levels_of(variant)
    return [[*map(place, levels.get(name, "").split(" | "))] for name in (*first, *FACTORS)]


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


def design_from(variants: Sequence[Levels]) -> FactorialDesign:
    """The design whose variants these are; those of open questions lack the factors of options."""
    factors = tuple(
        Factor(name, tuple(dict.fromkeys(levels[name] for levels in variants if name in levels)))
        for name in FACTORS
        if any(name in levels for levels in variants)
    )
    cells = [
        tuple(factor.levels.index(levels[factor.name]) for factor in factors)
        for levels in variants
        if len(levels) == len(factors)
    ]
    return FactorialDesign(factors, tuple(dict.fromkeys(cells)))


def _shown(question: Question, levels: Levels, options: str | None, where: str) -> Prompt:
    """What could be answered: the options of a question in the order in which they were shown."""
    texts = [option.text for option in question.options]
    size = len(texts)
    if options is not None:
        try:
            shown = json.loads(options)
        except json.JSONDecodeError:
            shown = None
        if not isinstance(shown, list):
            expected = "a list in JSON, as `consilience suite export` writes it"
            raise ConsilienceError(f"'options' is {options!r}", expected=expected, where=where)
        shown = list(map(str, shown))
        if sorted(shown) != sorted(texts):
            found = f"the options of '{question.item}' are {', '.join(shown)}"
            todo = "Name the suite that was exported."
            raise ConsilienceError(found, expected=", ".join(texts), where=where, todo=todo)
        order: tuple[int, ...] | None = tuple(texts.index(text) for text in shown)
    else:
        name = levels.get("order", "given")
        if size and name.startswith("shuffle"):
            found = f"no column 'options' with the order '{name}', which a seed decided"
            todo = "Keep the column 'options' of the export."
            raise ConsilienceError(found, where=where, todo=todo)
        order = permutation(name if size else "given", size)
    if order is None:
        raise ConsilienceError(f"{size} options have no order '{levels.get('order')}'", where=where)
    language = levels.get("language", next(iter(question.paraphrases)))
    paraphrase = int(levels.get("paraphrase", 1)) - 1
    written = question.in_phrasing(language, paraphrase)
    choices = tuple(written.options[at] for at in order)
    style = levels.get("labels", "A")
    labels = labels_of(style, size) if size and style != "none" else ()
    answers = labels or tuple(choice.text for choice in choices)
    return Prompt((), answers, order, choices, labels=labels, is_open=not size)


Entry = Mapping[str, Any]  # A result: one output of one provider for one prompt and test
OUTPUT = ("answer", "error")  # The columns of its output

EXPECTS_TEXT = re.compile(r"i?(?:equals|contains|contains-any)|is")
"""Types of assertions whose value is the right answer, or a list of texts for it."""

LONGEST = 60  # Characters of a prompt that a note shows


def promptfoo_answers(options: ScoreOptions) -> tuple[ScoreOptions, Questions | None, pl.DataFrame]:
    """The answers of one provider, whom the options then name, in results of promptfoo.

    They are the file of ``promptfoo eval --output results.json`` (format 3). Without ``--suite``
    the tests are the questions: the variants are the prompts (levels of the factor ``template``),
    the tests with the same ``metadata.item`` (``paraphrase``), and the repetitions (``sample``).
    With it, the variables ``item`` and ``variant`` of each test name its prompt, as ``consilience
    suite export --format csv`` writes them.
    """
    where = str(options.answers)
    entries = _entries(read_document(options.answers), where)
    known = list(dict.fromkeys(map(_provider, entries)))
    options = replace(options, provider=one_of(known, options.provider, "provider", where))
    entries = [entry for entry in entries if _provider(entry) == options.provider]
    if options.suite is not None:
        return options, None, _table_of_suite(entries, where)
    return options, *questions_of(entries, options.answers.stem, where)


def _entries(document: Any, where: str) -> list[Entry]:
    """The results, in the order of tests and prompts; another document raises."""
    results = document.get("results") if isinstance(document, dict) else None
    entries = results.get("results") if isinstance(results, dict) else None
    if not isinstance(entries, list) or not all(map(_is_result, entries)):
        found = "a JSON document that is not of promptfoo"
        expected = "the file of `promptfoo eval --output results.json`"
        todo = "Save other answers, such as instance records, as .jsonl or .csv, one row an answer."
        raise ConsilienceError(found, expected=expected, where=where, todo=todo)
    if not entries:
        raise ConsilienceError("no results", where=where, todo="Run `promptfoo eval` again.")
    return sorted(entries, key=lambda entry: (entry["testIdx"], entry["promptIdx"]))


def _is_result(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), int) for name in ("testIdx", "promptIdx"))
        and all(
            isinstance(entry.get(name), dict) for name in ("provider", "prompt", "testCase", "vars")
        )
        and isinstance(entry["testCase"].get("metadata") or {}, dict)
        and isinstance(entry["testCase"].get("assert") or [], list)
    )


def _provider(entry: Entry) -> str:
    return str(entry["provider"].get("label") or entry["provider"].get("id"))


def one_of(names: Sequence[str], chosen: str | None, kind: str, where: str) -> str:
    """The model or provider (``kind``) whose answers count: the only one, or the chosen one."""
    if chosen is None and len(names) > 1:
        found = f"the answers of {len(names)} {kind}s: {listed(names)}"
        todo = f"Name one: --provider {names[0]}."
        raise ConsilienceError(found, expected="those of one model", where=where, todo=todo)
    if chosen not in (None, *names):
        todo = did_you_mean(str(chosen), list(names))
        raise ConsilienceError(f"no {kind} '{chosen}'", where=where, todo=todo)
    return chosen or names[0]


def _output(entry: Entry) -> tuple[str | None, str | None]:
    """The answer of a result, and its error."""
    response = entry.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    return _text(output), _text(entry.get("error"))


def _table_of_suite(entries: Sequence[Entry], where: str) -> pl.DataFrame:
    rows = [
        {**entry["vars"], **dict(zip(OUTPUT, _output(entry), strict=True))} for entry in entries
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "prompt"))
    if not {"item", "variant"} <= set(columns):
        raise ConsilienceError(
            f"tests with the variables {', '.join(columns[: -len(OUTPUT)]) or '(none)'}",
            expected="item and variant",
            where=where,
            todo="Let the tests be the file of `consilience suite export --format csv`, or leave "
            "--suite out: then each test is a question.",
        )
    texts = {name: [_text(row.get(name)) for row in rows] for name in columns}
    return pl.DataFrame(texts, schema=dict.fromkeys(columns, pl.String))


def _text(value: Any) -> str | None:
    is_text = value is None or isinstance(value, str)
    return value if is_text else json.dumps(value, ensure_ascii=False)


def questions_of(entries: Sequence[Entry], name: str, where: str) -> tuple[Questions, pl.DataFrame]:
    """The tests as questions, and the answers: ``item, variant, answer, error``.

    ``name``: of the suite, and of the group of tests without ``metadata.group``. A variant names
    the levels of the factors that vary.
    """
    prompts: dict[str, int] = {}
    labels: dict[int, str] = {}
    golds: dict[str, tuple[str, Choice]] = {}
    phrasings: dict[str, dict[str, int]] = {}
    counts: dict[tuple[str, int, int], int] = {}
    cells: list[tuple[str, dict[str, int], tuple[str | None, str | None]]] = []
    for entry in entries:
        label = str(entry["prompt"].get("label") or f"prompt {entry['promptIdx']}")
        prompt = prompts.setdefault(str(entry.get("promptId") or label), len(prompts) + 1)
        labels[prompt] = label
        text = visible(_phrasing(entry["vars"]))
        metadata = entry["testCase"].get("metadata") or {}
        item = " ".join(visible(str(metadata.get("item") or text)).split())
        group, gold = str(metadata.get("group") or name), _gold(entry, where)
        if not names_a_file(group):
            raise ConsilienceError(f"metadata.group '{group}'", expected=GROUP_NAME, where=where)
        if group != golds.setdefault(item, (group, gold))[0]:
            found = f"metadata.group '{group}' of '{item}'"
            raise ConsilienceError(found, expected=f"'{golds[item][0]}', as before", where=where)
        texts = dict.fromkeys((*golds[item][1].texts, *gold.texts))
        golds[item] = group, Choice(golds[item][1].text, tuple(texts)[1:])
        of_item = phrasings.setdefault(item, {})
        phrasing = of_item.setdefault(text, len(of_item) + 1)
        key = item, phrasing, prompt
        counts[key] = counts.get(key, 0) + 1
        levels = {"paraphrase": phrasing, "template": prompt, "sample": counts[key]}
        cells.append((item, levels, _output(entry)))
    varying = [
        factor for factor in cells[0][1] if max(levels[factor] for _, levels, _ in cells) > 1
    ]
    if not varying:
        raise ConsilienceError(
            "one prompt for each test, which was asked once",
            expected="several variants to compare",
            where=where,
            todo="Give promptfoo several prompts, or --repeat 3, or several tests with the same "
            "metadata.item.",
        )
    rows = [
        (item, ", ".join(f"{factor}={levels[factor]}" for factor in varying), *output)
        for item, levels, output in cells
    ]
    table = pl.DataFrame(rows, dict.fromkeys(("item", "variant", *OUTPUT), pl.String), orient="row")
    notes = [
        f"template {number}: {truncated(' '.join(label.split()), LONGEST)}"
        for number, label in labels.items()
    ]
    questions = tuple(
        Question(item, group, {DEFAULT_LANGUAGE: tuple(phrasings[item])}, gold)
        for item, (group, gold) in golds.items()
    )
    return Questions(name, questions, tuple(notes if len(notes) > 1 else ())), table


def _phrasing(variables: Mapping[str, Any]) -> str:
    """A test as one text: its only variable, or all of them as JSON."""
    values = list(variables.values())
    if len(values) == 1 and isinstance(values[0], str) and values[0].strip():
        return values[0]
    return json.dumps(variables, ensure_ascii=False, sort_keys=True)


def _gold(entry: Entry, where: str) -> Choice:
    """The right answer of a test: the text that its first assertion of a text expects."""
    assertions = entry["testCase"].get("assert") or ()
    for assertion in assertions:
        if not isinstance(assertion, dict) or not EXPECTS_TEXT.fullmatch(
            str(assertion.get("type"))
        ):
            continue
        value = assertion.get("value")
        texts = [
            visible(_filled(str(one), entry["vars"], where))
            for one in (value if isinstance(value, list) else [value])
        ]
        if texts := [text for text in texts if text.strip() and text != "None"]:
            return Choice(texts[0], tuple(dict.fromkeys(texts[1:])))
    types = dict.fromkeys(str(one.get("type")) for one in assertions if isinstance(one, dict))
    only = f", only {', '.join(types)}" if types else ""
    raise ConsilienceError(
        f"the test '{truncated(_phrasing(entry['vars']), LONGEST)}' has no expected text{only}",
        expected="an assertion of the type equals, contains, icontains or contains-any",
        where=where,
        todo="Add {type: icontains, value: TEXT, weight: 0}, which changes no result of promptfoo, "
        "and run `promptfoo eval` again; or name the questions with --suite.",
    )


def _filled(text: str, variables: Mapping[str, Any], where: str) -> str:
    """A text with the variables of its test in place of ``{{name}}``; another expression raises."""
    for expression in re.findall(r"\{\{(.*?)\}\}|\{%", text):
        if expression.strip() not in variables:
            raise ConsilienceError(
                f"the assertion '{truncated(text, LONGEST)}', whose value is not known here",
                expected="a text, or {{name}} of a variable of the test", where=where,
                todo="Write the right answer into a variable or into the assertion.",
            )  # fmt: skip
    return re.sub(r"\{\{(.*?)\}\}", lambda of: str(variables[of[1].strip()]), text)
