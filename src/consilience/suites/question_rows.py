"""Rows become questions: one row a question, or a phrasing of one.

Every reader of rows (JSONL, CSV, TSV, JSON, YAML, TOML, Parquet, data frames, datasets of the Hub)
ends in ``questions_of_rows``, which knows the columns and reports the errors of each row.
"""

from __future__ import annotations

import hashlib
import json
import random
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from consilience.errors import ConsilienceError
from consilience.questions import ALIAS_SEPARATOR, DEFAULT_LANGUAGE, Choice, Question
from consilience.read import parse_json
from consilience.suites.question_columns import COLUMNS, check_columns, recognised, renamed, unused
from consilience.suites.rows import Problems, Row
from consilience.text import fold_case, names_a_group

OPTION_SEPARATOR = ";"
"""Separates options that are in one cell of a table."""

YES, NO = Choice("yes", ("true",)), Choice("no", ("false",))
"""The options of a question whose answer is true or false."""


@dataclass(slots=True)
class _QuestionDraft:
    """A question while its rows are read."""

    row: Row
    """Its first row."""
    group: str
    gold: Choice
    options: tuple[Choice, ...]
    context: str
    phrasings: dict[str, list[str]] = field(default_factory=dict)
    """Language -> its phrasings."""


def questions_of_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    name: str,
    columns: Mapping[str, str],
    problems: Problems,
    *,
    source: str,
    in_python: bool = False,
) -> tuple[tuple[Question, ...], tuple[str, ...]]:
    """The questions of rows with their places, and notes; their errors go to ``problems``.

    ``name``: of the suite, and of the group of questions that name none. ``source``: where the rows
    are. ``in_python``: whether messages name columns as Python does, or as the command line.
    """
    check_columns(columns, in_python=in_python)
    others: dict[str, None] = {}
    drafts: dict[str, _QuestionDraft] = {}
    counts: dict[str, int] = {}
    for number, (where, cells) in enumerate(rows):
        if number == 0:
            recognised(cells, columns, where, in_python=in_python)
        others |= dict.fromkeys(unused(cells, columns))
        row = Row(where, renamed(cells, columns), problems)
        _add_row(row, name, drafts, counts)
    if not drafts and not problems:
        expected = "a row for each question, with the columns question and answer"
        problems.append(ConsilienceError("no questions", expected=expected, where=source))
    notes = [f"{source}: not used: {', '.join(others)}"] if others else []
    by_case: dict[str, dict[str, None]] = {}
    for draft in drafts.values():
        by_case.setdefault(normal(draft.group), {})[draft.group] = None
    notes += [
        f"{source}: these groups differ in case only: {', '.join(names)}"
        for names in by_case.values()
        if len(names) > 1
    ]
    return tuple(_question(item, draft) for item, draft in drafts.items()), tuple(notes)


def _add_row(
    row: Row, name: str, drafts: dict[str, _QuestionDraft], counts: dict[str, int]
) -> None:
    """A new question, or further phrasings of one."""
    group = row.optional_text("group").strip() or name
    if not names_a_group(group):
        row.report(
            f"the group '{group}'",
            expected="a short name that can name a file and is not MACRO or MICRO",
            todo="Rename it.",
        )
        return
    item = row.optional_text("item")
    if not item:
        counts[group] = counts.get(group, 0) + 1
        item = f"{group}-{counts[group]}"
    phrasings = _phrasings(row)
    if not phrasings:
        return
    if item in drafts:
        _add_phrasings(row, item, phrasings, drafts[item])
        return
    answer = _answer(row, item)
    if answer is None:
        return
    gold, options = answer
    draft = _QuestionDraft(row, group, gold, options, row.optional_text("context"))
    drafts[item] = draft
    _add_phrasings(row, item, phrasings, draft)


def _phrasings(row: Row) -> dict[str, list[str]]:
    """Language -> phrasings; empty with a problem reported where there is none."""
    value = row.cells.get("question")
    language = row.optional_text("language") or DEFAULT_LANGUAGE
    by_language = value if isinstance(value, Mapping) else {language: value}
    texts = {
        str(name): [
            replace(row, cells={"question": text}).text("question")
            for text in (entry if isinstance(entry, list | tuple) else [entry])
        ]
        for name, entry in by_language.items()
    }
    is_complete = bool(texts) and all(entries and all(entries) for entries in texts.values())
    if not texts:
        row.report("no phrasing in 'question'", expected="a text")
    return texts if is_complete else {}


def _add_phrasings(
    row: Row, item: str, phrasings: Mapping[str, list[str]], draft: _QuestionDraft
) -> None:
    """Add phrasings to a question; one that it has, or another answer, is reported."""
    if row is not draft.row:
        for column in ("answer", "options", "distractors", "context", "group"):
            value = row.cells.get(column)
            if value not in (None, "") and value != draft.row.cells.get(column):
                row.report(
                    f"duplicate item '{item}' with another '{column}'",
                    expected="a further phrasing of the same question",
                    todo=f"Give each question its own item; the first is {draft.row.where}.",
                )
                return
    for language, texts in phrasings.items():
        known = draft.phrasings.setdefault(language, [])
        for text in texts:
            if text in known:
                row.report(f"duplicate question '{text}' of '{item}'", todo="Remove one of them.")
            known.append(text)


def _answer(row: Row, item: str) -> tuple[Choice, tuple[Choice, ...]] | None:
    """The gold and the options of a question; None with a problem reported.

    With distractors the options are in an order that ``item`` decides.
    """
    value = row.cells.get("answer")
    if isinstance(value, list | tuple):
        value = ALIAS_SEPARATOR.join(map(str, value))
    elif isinstance(value, date):
        value = value.isoformat()
    if value is None or value == "":
        row.report("no answer", expected=COLUMNS["answer"], todo="Fill it in or remove the line.")
        return None
    text = replace(row, cells={"answer": value}).optional_text("answer")
    options, labels = _options(row, "options")
    distractors, _ = _options(row, "distractors")
    if not text or options is None or distractors is None:
        return None
    if options and distractors:
        row.report("both 'options' and 'distractors'", expected="one of the two")
        return None
    if distractors:
        options = _shuffled((Choice.parse(text), *distractors), item)
        value = text
    elif isinstance(value, bool) and not options:
        options, value = (YES, NO), text
    if not options:
        return Choice.parse(text), ()
    return _chosen_option(row, value, options, labels) if _are_distinct(row, options) else None


def _chosen_option(
    row: Row, value: object, options: tuple[Choice, ...], labels: tuple[str, ...]
) -> tuple[Choice, tuple[Choice, ...]] | None:
    """The option that the answer names, with the aliases that the answer adds, and all options."""
    at = _gold_position(row, value, options, labels)
    if at is None:
        return None
    gold, named = options[at], Choice.parse(str(value)).texts
    if gold.text in named:
        more = tuple(text for text in named if text not in gold.texts)
        gold = replace(gold, aliases=gold.aliases + more)
    return gold, (*options[:at], gold, *options[at + 1 :])


def _gold_position(
    row: Row, value: object, options: tuple[Choice, ...], labels: tuple[str, ...]
) -> int | None:
    """Which option the answer names: by text or alias, by label, or by its position from 0.

    A whole number is a position, a text is never one. A letter is a label.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value < len(options):
            return value
        row.report(f"the answer {value}", expected=f"a position from 0 to {len(options) - 1}")
        return None
    texts = {normal(text) for text in Choice.parse(str(value)).texts}
    places = [
        at for at, option in enumerate(options) if texts & {normal(text) for text in option.texts}
    ]
    if not places:
        letters = labels or tuple(chr(ord("A") + at) for at in range(len(options)))
        places = [at for at, label in enumerate(letters) if str(value).strip() == label]
    if len(places) == 1:
        return places[0]
    shown = ", ".join(f"'{option.text}'" for option in options)
    if places:
        row.report(f"the answer '{value}' is several of the options {shown}", expected="one")
    else:
        todo = "Add it to the options, or correct one of them."
        if str(value).strip().isdecimal():
            todo += (
                " A position is a whole number in JSON, counted from 0; in a table write the text "
                "or the letter."
            )
        row.report(f"the answer '{value}' is none of the options {shown}", todo=todo)
    return None


def _options(row: Row, column: str) -> tuple[tuple[Choice, ...] | None, tuple[str, ...]]:
    """The options of a row and their labels, if they have some; None with a problem reported."""
    value = row.cells.get(column)
    labels: tuple[str, ...] = ()
    if isinstance(value, Mapping) and isinstance(value.get("text"), list | tuple):
        labels = tuple(map(str, value.get("label") or ()))
        value = value["text"]
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parse_json(value)
        except json.JSONDecodeError:
            row.report(f"'{column}' is {value!r}", expected="a list in JSON, or options with ';'")
            return None, ()
    if isinstance(value, str):
        value = [part.strip() for part in value.split(OPTION_SEPARATOR) if part.strip()]
    if value is None:
        return (), ()
    if not isinstance(value, list | tuple):
        row.report(f"'{column}' is {value!r}", expected="a list of texts")
        return None, ()
    texts = [replace(row, cells={column: entry}).optional_text(column) for entry in value]
    if not all(text.strip() for text in texts):
        if not any(entry is None or str(entry).strip() == "" for entry in value):
            return None, ()  # reported
        row.report(f"an empty option in '{column}'", todo="Remove it.")
        return None, ()
    return tuple(map(Choice.parse, texts)), labels


def _are_distinct(row: Row, options: tuple[Choice, ...]) -> bool:
    """Whether no two options have a text in common; otherwise it is reported."""
    first_with: dict[str, Choice] = {}
    for option in options:
        for text in {normal(text) for text in option.texts}:
            if text in first_with:
                first, name = first_with[text].text, option.text
                if normal(first) == normal(name):
                    row.report(
                        f"'{name}' and '{first}' are the same option",
                        expected="options that differ in more than case and space",
                        todo="Remove one of them.",
                    )
                else:
                    row.report(
                        f"the options '{first}' and '{name}' both have the text '{text}'",
                        expected="texts and aliases of one option only",
                        todo="Remove it from one of them.",
                    )
                return False
            first_with[text] = option
    if len(options) == 1:
        todo = f"Separate options by '{OPTION_SEPARATOR}'." if "," in options[0].text else ""
        row.report(f"one option, '{options[0].text}'", expected="two or more, or none", todo=todo)
        return False
    return True


def normal(text: str) -> str:
    """A text in Unicode form NFC, without case and surrounding or repeated space."""
    return fold_case(" ".join(unicodedata.normalize("NFC", text).split()))


def _shuffled(options: tuple[Choice, ...], item: str) -> tuple[Choice, ...]:
    """Options in an order that the item's id decides, so that the gold is at no fixed position."""
    seed = int.from_bytes(hashlib.sha256(item.encode()).digest()[:8])
    return tuple(random.Random(seed).sample(options, len(options)))


def _question(item: str, draft: _QuestionDraft) -> Question:
    phrasings = {language: tuple(texts) for language, texts in draft.phrasings.items()}
    return Question(
        item, draft.group, phrasings, draft.gold, draft.options, draft.context, draft.row.where
    )
