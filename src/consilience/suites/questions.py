"""Questions: the columns of their files, and what is read from them.

How the options of a file are written, and what its answers mean (texts of options, labels or
positions), is decided once for the whole file. Two readings that differ are an error.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any, ClassVar, TypeVar

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.factors import Expectation
from consilience.core.items import DEFAULT_LANGUAGE, Choice, Question
from consilience.core.text import PASSAGE_END, counted, fold_case, listed
from consilience.files.read import Problems
from consilience.files.rows import (
    THE_FRAME,
    Column,
    Row,
    frame_rows,
    line,
    list_in,
    names_of,
    plain_name,
    raise_all,
    read_table,
    text,
    text_of,
)

T = TypeVar("T")
SEPARATOR = ";"  # Between the texts of a cell that is a list
COLUMN_JOIN = "+"


def entries(value: Any) -> list[Any]:
    """The entries of a list; another value is one entry."""
    value = as_is(value)
    return list(value) if isinstance(value, list | tuple) else [value]


def texts(value: Any) -> list[str] | None:
    """The texts of a list that are not empty; a text is one."""
    return [one for entry in entries(value) if (one := text(entry))] or None


def numbered(value: Any) -> list[str] | None:
    """As ``texts``; an empty one before another, which would change its number, raises."""
    found = [text(entry) for entry in entries(value)]
    while found and found[-1] is None:
        found.pop()
    if None in found:
        todo = "Fill it in, or move the others."
        raise ConsilienceError("an empty phrasing before another one", todo=todo)
    return found or None  # type: ignore[return-value]


def phrasings(value: Any) -> list[str] | None:
    """As ``numbered``, of a list that may be written as a text (``list_in``).

    Another text with semicolons, which may be one phrasing or several, raises.
    """
    found = list_in(value) if isinstance(value, str) else None
    if isinstance(value, str) and SEPARATOR in value and not found:
        expected = 'one phrasing, or a list such as ["What is it?", "Which is it?"]'
        raise ConsilienceError(f"'{value}'", expected=expected)
    return numbered(found or value)


def separated(value: Any) -> list[str] | None:
    """As ``texts``, of a list that may be written as a text, or has semicolons between."""
    is_text = isinstance(value, str)
    return texts((list_in(value) or value.split(SEPARATOR)) if is_text else value)


def passages(value: Any) -> str | None:
    """A text, or those of a list with an empty line between them; an object has its ``text``."""
    if isinstance(value, str):
        read = list_in(value)
        value = read if read and all(isinstance(one, str | Mapping) for one in read) else value
    found = texts([
        one.get("text", one) if isinstance(one, Mapping) else one for one in entries(value)
    ])  # fmt: skip
    return PASSAGE_END.join(found) if found else None


def as_is(value: Any) -> Any:
    """A value as it is, a list of any library as one; None of an empty cell."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return None if isinstance(value, str | float) and text(value) is None else value


def _optional(name: str, parse: Callable[[Any], Any], default: Any, *others: str) -> Column:
    return Column(name, parse, default, others, is_needed=False)


COLUMNS = (
    Column("question", numbered, None, ("prompt", "stem", "question_stem", "sentence")),
    _optional("paraphrases", phrasings, []),
    Column("answer", texts, [], ("answerKey", "correct_answer", "best_answer", "target")),
    _optional("options", as_is, [], "choices", "option", "choice", "candidates", "endings"),
    _optional("distractors", separated, [], "incorrect_answers", "wrong_answers"),
    _optional("aliases", separated, [], "correct_answers"),
    _optional("group", line, ""),
    _optional("item", line, "", "id", "qid", "question_id", "record_id"),
    _optional("context", passages, "", "passage", "passages"),
    _optional("language", line, DEFAULT_LANGUAGE),
    _optional("pin", line, ""),
)
"""The columns of a file of questions (``docs/own-questions.md``)."""

GROUP = "questions"  # The group of questions without a column for it

KNOWN = {column.name: column for column in COLUMNS}

PREFIXES = {
    "options": ("", "option", "choice", "candidate", "alternative", "answer", "ending"),
    "distractors": ("distractor", "incorrectanswer", "wronganswer"),
    "aliases": ("alias",),
    "paraphrases": ("paraphrase", "phrasing", "question"),
}
"""What several columns with one text each are called, before a letter or a number."""

NESTED = {"question": "question.stem", "options": "question.choices"}  # ARC, CommonsenseQA

SIMILAR = 0.88  # From this similarity (``difflib``) a column is taken for a misspelt one

Names = Mapping[str, Any]
"""Our name of a column -> what it is called in a file; ``A+B`` or a list for several."""

TO_NAME = "Name it with --columns, or columns= in Python:"


def _columns_of(names: Sequence[str], named: Names, where: str) -> tuple[dict[str, list[str]], str]:
    """The columns of a file that hold what ours do, and how its answers are said to be read.

    ``named``: what a user says. A column that is missing or not clear raises.
    """
    sources, reading = _said(names, named, where)
    for name, column in KNOWN.items():
        used = {one for of in sources.values() for one in of}
        free = [one for one in names if one not in used]
        found = [] if name in sources else column.found(free)
        if name == "answer" and name not in sources and not found:
            found = [one for one in READINGS if one in free][:1]
            reading = "".join(found)
        if len(found) > 1 and name != "item" and plain_name(found[0]) != name:
            todo = f"{TO_NAME} {name}={found[0]}."
            raise ConsilienceError(f"'{name}' may be {' or '.join(found)}", where=where, todo=todo)
        if name not in sources and (found := found[:1] or _run(free, name)):
            sources[name] = found
    _refuse_lacking(names, sources, where)
    return sources, reading


def _said(names: Sequence[str], named: Names, where: str) -> tuple[dict[str, list[str]], str]:
    """The columns that a user names, and how answers are read if one of ``READINGS`` is."""
    sources = {ours: [one] for ours, one in NESTED.items() if one in names and ours not in named}
    reading = ""
    for ours, source in named.items():
        name = "answer" if ours in READINGS else "paraphrases" if NUMBERED.fullmatch(ours) else ours
        reading = ours if ours in READINGS else reading
        if name not in KNOWN:
            expected, todo = ", ".join([*KNOWN, *READINGS]), did_you_mean(ours, [*KNOWN], "")
            raise ConsilienceError(f"--columns {ours}=...", expected=expected, todo=todo)
        parts = [source] if source in [*names] else source
        parts = parts.split(COLUMN_JOIN) if isinstance(parts, str) else [*parts]
        for part in parts:
            if part not in names:
                found = f"no column '{part}' among {', '.join(names)}"
                raise ConsilienceError(found, where=where, todo=did_you_mean(part, [*names], ""))
        sources.setdefault(name, []).extend(parts)
    return sources, reading


NUMBERED = re.compile(r"question[ _-]?\d+")


def _refuse_lacking(names: Sequence[str], sources: Mapping[str, list[str]], where: str) -> None:
    """Raise for a needed column that is not there, and for one whose name is like that of ours."""
    lacking = [name for name, column in KNOWN.items() if column.is_needed and name not in sources]
    if lacking:
        found = f"no column '{lacking[0]}'" if len(lacking) == 1 else "no header with our columns"
        todo = f"{TO_NAME} {','.join(f'{one}=COLUMN' for one in lacking)}"
        todo += " (and question_2=COLUMN, options=COLUMN+COLUMN)."
        if {"subject", "object"} <= {*names}:
            todo = "Facts need a column pattern: `consilience suite import TABLE --into FOLDER`."
        elif any({*columns} <= {*names} for columns in PAIRS):
            todo = (
                "Sentence pairs are asked with a task: `--suite rte --data FILE` (docs/calum.md)."
            )
        found = f"{found} among {', '.join(names)}"
        expected = "a first line such as question,A,B,C,D,answer"
        raise ConsilienceError(found, expected=expected, where=where, todo=todo)
    ours = {plain_name(one): name for name, of in KNOWN.items() for one in (name, *of.others)}
    used = {one for of in sources.values() for one in of}
    for name in names:
        if name not in used and plain_name(name) not in ours:
            for close in get_close_matches(plain_name(name), ours, n=1, cutoff=SIMILAR):
                if ours[close] not in sources:
                    todo = f"Rename it if it is something else. {TO_NAME} {ours[close]}={name}."
                    raise ConsilienceError(f"a column '{name}'", where=where, todo=todo)


PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("question", "sentence", "label"),
)  # fmt: skip


def _run(names: Sequence[str], ours: str) -> list[str]:
    """Columns with a text each, such as A to D, option_a to option_d or question_2, question_3.

    Those of options begin with a, 0 or 1, and are all there.
    """
    runs: dict[str, dict[str, str]] = {}
    for name in names:
        match = re.fullmatch(r"(.*?)[\W_]*([a-z]|\d+)", name.strip().casefold())
        if match and plain_name(match[1]) in PREFIXES.get(ours, ()):
            runs.setdefault(plain_name(match[1]), {})[match[2]] = name
    for run in runs.values():
        size = len(run)
        ordered = [run[label] for label in sorted(run, key=lambda one: (len(one), one))]
        labels = [[chr(ord("a") + at) for at in range(size)]]
        labels += [[str(first + at) for at in range(size)] for first in (0, 1)]
        if ours != "options" or (size > 1 and any({*run} == {*one} for one in labels)):
            return ordered
    return []


# How options are written.


def _read_options(rows: Sequence[Row]) -> None:
    """Replace the cells with options by lists of texts, and add their ``labels``.

    All that are texts are lists (``list_in``), or all have semicolons between the options.
    """
    written = [row for row in rows if isinstance(row["options"], str)]
    lists = [list_in(row["options"]) for row in written]
    is_list = 2 * sum(one is not None for one in lists) > len(lists)
    for row, found in zip(written, lists, strict=True):
        if (found is None) if is_list else (SEPARATOR not in row["options"]):
            expected = "a list, as in other rows" if is_list else f"'{SEPARATOR}' between options"
            row.report(f"'{row['options']}'", "options", expected=expected)
            row["options"] = []
        else:
            row["options"] = found if is_list else row["options"].rstrip("; ").split(SEPARATOR)
    for row in rows:
        _read_list(row)


def _read_list(row: Row) -> None:
    value, labels = row["options"], row.get("labels", [])
    if isinstance(value, Mapping):
        is_pair = "text" in value
        labels = entries(value.get("label", []) if is_pair else list(value))
        value = value["text"] if is_pair else list(value.values())
    value = entries(value)
    if value and all(isinstance(one, Mapping) and "text" in one for one in value):
        labels = [one.get("label") for one in value]
        value = [one["text"] for one in value]
    try:
        options = [text(one) or "" for one in value]
        row["labels"] = [text(one) or "" for one in labels]
    except ConsilienceError as error:
        row.add(error, "options")
        options = []
    row["options"] = options
    if "" in options:
        row.report("an empty option", "options", todo="Remove it.")
    if len(options) == 1:
        row.report(f"one option, '{options[0]}'", "options", expected="two or more, or none")
    _refuse_twins(row, options, "options")


def _refuse_twins(row: Row, options: Sequence[str], column: str) -> None:
    if twins := [one for at, one in enumerate(options) if one and one in options[:at]]:
        row.report(f"two options '{twins[0]}'", column, todo="Remove one of them.")


# What answers mean.

LABEL = re.compile(r"[\s(\[]*(\w+?)(?:\.0+)?[\s)\].:]*")  # A, a, (B), C., [D], 1, 1.0
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LETTER = re.compile("[A-Ha-h]")
BOOLEANS = {"true": "yes", "false": "no"}
YES_NO = Choice("yes", ("true",)), Choice("no", ("false",))


def normal(text: str) -> str:
    """A text without case and surrounding or repeated space."""
    return fold_case(" ".join(text.split()))


def position(name: str, options: Sequence[str]) -> int | None:
    """Which of some texts a text is: exactly, or else without case; None for none or several.

    True is also yes, and false no.
    """
    if options.count(name) == 1:
        return options.index(name)
    folded, wanted = list(map(normal, options)), normal(name)
    for one in (wanted, BOOLEANS.get(wanted, wanted)):
        if folded.count(one) == 1:
            return folded.index(one)
    return None


def _label(text: str) -> str | None:
    match = LABEL.fullmatch(text)
    return match[1].casefold() if match else None


def _by_label(answer: str, row: Row) -> int | None:
    """The label, or the name of the option's column."""
    labels = [*map(_label, row["labels"]), *LETTERS * (not row["labels"])]
    for one, names in ((_label(answer), labels), (answer.casefold(), row["columns"])):
        if one and names[: len(row["options"])].count(one) == 1:
            return names.index(one)
    return None


def _by_index(answer: str, row: Row, first: int = 0) -> int | None:
    label = _label(answer)
    at = int(label) - first if label and label.isdecimal() else -1
    return at if 0 <= at < len(row["options"]) else None


READINGS: Mapping[str, tuple[Callable[[str, Row], int | None], str]] = {
    "answer_text": (lambda answer, row: position(answer, row["options"]), "text of an option"),
    "answer_label": (_by_label, "label"),
    "answer_index": (_by_index, "position from 0"),
    "answer_number": (partial(_by_index, first=1), "position from 1"),
}
"""What the answers of a file may be, by the name of a column that says it: how an answer is read,
and what it is called."""


def _read_answers(rows: Sequence[Row], reading: str, problems: Problems) -> None:
    """Add the place of the right option, ``gold``, to rows with options, by one reading of all.

    Labels that the file itself gives come first. Where two readings fit all rows and differ in one,
    or where none fits, it is reported.
    """
    found = {
        name: [read(row["answer"][0], row) for row in rows]
        for name, (read, _) in READINGS.items()
        if reading in ("", name)
    }
    fits = [name for name, places in found.items() if None not in places]
    if "answer_label" in fits and all(row["labels"] for row in rows):
        fits = ["answer_label"]
    best = max(found, key=lambda name: (name in fits, -found[name].count(None)))
    unlike = []
    for at, (row, place) in enumerate(zip(rows, found[best], strict=True)):
        row["gold"] = place
        if place is None:
            size, first = len(row["options"]), int(best == "answer_number")
            meant = {
                "answer_text": row["options"],
                "answer_label": row["labels"] or LETTERS[:size].upper(),
            }.get(best, map(str, range(first, first + size)))
            row.report(
                f"the answer '{row['answer'][0]}' is no {READINGS[best][1]}", "answer",
                expected=", ".join(f"'{one}'" for one in meant),
            )  # fmt: skip
        elif len({found[name][at] for name in fits}) > 1:
            unlike.append(at)
    if unlike and not problems:
        row = rows[unlike[0]]
        shown = [
            f"'{row['options'][found[name][unlike[0]]]}' as a {READINGS[name][1]}" for name in fits
        ]
        others = listed([rows[at].where.rpartition("/")[2] for at in unlike[1:]], 5)
        todo = f"Call the column what its answers are: {', '.join(fits)}."
        row.report(
            f"the answer '{row['answer'][0]}' is {' and '.join(shown)}"
            + (f"; so differ {others}" if others else ""),
            "answer", expected="one meaning of all answers", todo=todo,
        )  # fmt: skip


# The rows of a file.


def questions_of_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]], named: Names, problems: Problems, where: str
) -> tuple[tuple[Question, ...], tuple[str, ...]]:
    """The questions of a table, and notes; what is wrong is reported.

    ``named``: our names of columns, and what the file calls them. ``where``: the table.
    """
    rows = list(rows)
    if not rows and not problems:
        expected = "a row for each question, with the columns question and answer"
        problems.append(ConsilienceError("no questions", expected=expected, where=where))
    if problems:
        return (), ()
    names = names_of(rows)
    columns, reading = _columns_of(names, named, where)
    asked = _asked(rows, columns, named, problems, where)
    _read_options(asked)
    _make_options(asked)
    unread = [row for row in asked if row.is_whole and row["options"] and "gold" not in row]
    if unread:
        _read_answers(unread, reading, problems)
    used = {*NESTED} if NESTED["question"] in names else set[str]()
    used |= {one for of in columns.values() for one in of}
    more = [one for one in names if one not in used and any(one in cells for _, cells in rows)]
    are_letters = all(LETTER.fullmatch(row["answer"][0]) and not row["options"] for row in asked)
    if asked and are_letters and more and reading != "answer_text":
        found, todo = "answers that are letters, and no options", f"{TO_NAME} options=A+B+C."
        todo += " Letters that are meant as texts are in a column answer_text."
        problems.append(ConsilienceError(found, where=where, todo=todo))
    for row in asked:
        if not row["options"] and SEPARATOR in row["answer"][0] and reading != "answer_text":
            todo = "Write other right answers into a column aliases, or call it answer_text."
            row.report(f"'{row['answer'][0]}'", "answer", expected="one text", todo=todo)
    items = tuple(_question(row, more) for row in asked if not problems)
    notes = (f"{where}: not used: {', '.join(more)}",) if more else ()
    return items, notes


def _asked(
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    columns: dict[str, list[str]],
    named: Names,
    problems: Problems,
    where: str,
) -> list[Row]:
    """The first row of each question, with the ``phrasings`` of all its rows by language."""
    several = {ours: of for ours, of in columns.items() if len(of) > 1}
    if several:
        rows = [(place, _joined(cells, several)) for place, cells in rows]
    sources = {ours: ours if ours in several else of[0] for ours, of in columns.items()}
    table = list(read_table(rows, COLUMNS, problems, where, sources))
    items = [row["item"] for row in table]
    is_plain = "item" in named or plain_name(sources.get("item", "item")) == "item"
    if not is_plain and ("" in items or len({*items}) < len(items)):
        del columns["item"]
        items = [""] * len(items)
    letters = [LAST_LETTER.fullmatch(name) for name in columns.get("options", ())]
    labels = [one[1] for one in letters if one]
    is_lettered = len(labels) > 1 and "".join(labels).casefold() == LETTERS[: len(letters)]
    first: dict[str, Row] = {}
    has_items, seen = any(items), Counter[str]()
    for row, item in zip(table, items, strict=True):
        if has_items and not item:
            row.report("no 'item'", expected="one in each row, or in none")
        if not item:
            id_ = item_of_text(row)
            seen[id_] += 1
            row["item"] = f"{id_}-{seen[id_]}" if seen[id_] > 1 else id_
        row["labels"] = labels if is_lettered else []
        row["columns"] = [name.casefold() for name in several.get("options", ())]
        question = first.setdefault(row["item"], row)
        for name in ("answer", "options", "distractors", "context", "group", "pin"):
            if row[name] and row[name] != question[name]:
                todo = f"Give each question its own item; the first is {question.where}."
                row.report(f"another '{name}' of the item '{item}'", name, todo=todo)
        known = question.setdefault("phrasings", {}).setdefault(row["language"], [])
        for one in (*row["question"], *row["paraphrases"]):
            if one in known:
                row.report(f"duplicate question '{one}' of '{row['item']}'", "question")
            known.append(one)
    zeros: dict[Any, str] = {}
    for row in first.values():
        row.is_new(row["item"].lstrip("0"), zeros, f"item '{row['item']}' without its zeros")
        if not row["answer"]:
            row.report("no 'answer'", "answer", todo="Fill it in or remove the line.")
    return [row for row in first.values() if row["answer"]]


def item_of_text(row: Row) -> str:
    """The item of a question whose file gives none: ten hexadecimal digits of SHA-256 of its texts.

    These are its first phrasing, its context, and the words of its options, in any order. So it is
    the same in another order of the file, and another one where the question changed.
    """
    words = sorted(re.findall(r"\w+", f"{row['options']} {row['distractors']}"))
    texts = "\n".join([*row["question"][:1], row["context"], *words])
    return hashlib.sha256(texts.encode()).hexdigest()[:10]


LAST_LETTER = re.compile(r"(?:.*(?:[\W_]|[a-z](?=[A-Z])))?([A-Za-z])")
"""A column that is called by a letter: ``B``, ``option_b``, ``Antwort B``, ``answerB``."""


def _joined(cells: Mapping[str, Any], several: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The cells of a row with the lists of cells that some of our columns are."""
    lists = {}
    for ours, of in several.items():
        values = [cells.get(name) for name in of]
        while values and as_is(values[-1]) is None:  # an inner gap would move the labels
            values.pop()
        lists[ours] = values
    return {**cells, **lists}


def _make_options(rows: Sequence[Row]) -> None:
    """The options of questions whose file has only the wrong ones, or true and false as answers."""
    are_booleans = all(
        row["answer"][0].casefold() in BOOLEANS
        for row in rows
        if not (row["options"] or row["distractors"])
    )
    for row in rows:
        right, *others = row["answer"]
        if row["options"] and row["distractors"]:
            row.report("both 'options' and 'distractors'", expected="one of the two")
        elif row["options"] and others:
            row.report(f"{len(others) + 1} answers", "answer", expected="one of the options")
        elif row["distractors"]:
            options = [right, *row["distractors"]]
            _refuse_twins(row, options, "distractors")
            row["options"] = shuffled(options, row["item"])
            row["gold"] = row["options"].index(right)
        elif are_booleans and not row["options"]:
            row["options"], row["is_boolean"] = [one.text for one in YES_NO], True
            row["gold"] = position(right, row["options"])


def shuffled(options: Sequence[T], item: str) -> list[T]:
    """Options in an order that the item decides, so that the gold is at no fixed position."""
    seed = int.from_bytes(hashlib.sha256(item.encode()).digest()[:8])
    return random.Random(seed).sample(options, len(options))


def _question(row: Row, more: Sequence[str]) -> Question:
    """The question of its first row; ``more``: further columns."""
    options = [Choice(one) for one in row["options"]]
    if "is_boolean" in row:
        options = list(YES_NO)
    gold = options[row["gold"]] if options else Choice(row["answer"][0])
    names = [*gold.texts, *row["answer"][1:], *row["aliases"]]
    gold = Choice(gold.text, tuple(dict.fromkeys(one for one in names if one != gold.text)))
    for at, option in enumerate(options):
        if at == row["gold"]:
            options[at] = gold
        elif option.text in gold.aliases:
            row.report(f"'{option.text}' is an option and an alias of '{gold.text}'")
    phrasings = {language: tuple(of) for language, of in row["phrasings"].items()}
    return Question(
        row["item"], row["group"] or GROUP, phrasings, gold, tuple(options), row["context"],
        row.where, more={name: text_of(row.cells.get(name)) or "" for name in more},
        pin=row["pin"],
    )  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Questions:
    """The questions of a suite, in the order of their files."""

    kind: ClassVar = "questions"
    name: str
    items: tuple[Question, ...]
    notes: tuple[str, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    source: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The file or the folder that they were read from (``file``), and the names of its columns that
    were given; empty where they are from nowhere else on this machine."""

    @classmethod
    def from_frame(
        cls, frame: Any, *, columns: Names | None = None, name: str = "questions"
    ) -> Questions:
        """The questions of a pandas or polars frame, or of a list of mappings.

        The columns are those of a file (``COLUMNS``): ``question`` and ``answer`` are needed.
        ``columns``: the frame's name of each that is called otherwise there, such as
        ``{"question": "stem", "options": "A+B+C+D"}``. ``name``: of the suite.
        """
        problems: Problems = []
        items, notes = questions_of_rows(frame_rows(frame), columns or {}, problems, THE_FRAME)
        raise_all(problems)
        return cls(name, items, notes)

    def __repr__(self) -> str:
        groups = len({question.group for question in self.items})
        sizes = f"{counted(len(self.items), 'question')}, {counted(groups, 'group')}"
        if self.expectations:
            sizes += f", {counted(len(self.expectations), 'expectation')}"
        return f"Questions({self.name!r}: {sizes})"

    def __len__(self) -> int:
        return len(self.items)

    @property
    def groups(self) -> dict[str, tuple[Question, ...]]:
        """The questions of each group, groups in order of first appearance."""
        groups: dict[str, list[Question]] = {}
        for question in self.items:
            groups.setdefault(question.group, []).append(question)
        return {name: tuple(questions) for name, questions in groups.items()}

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of all questions, in order of first appearance."""
        return tuple(
            dict.fromkeys(language for item in self.items for language in item.paraphrases)
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all that can be asked, in its order."""
        rows = [
            [
                question.item,
                question.group,
                list(question.paraphrases.items()),
                question.gold.texts,
                [option.texts for option in question.options],
                question.context,
                *([sorted(question.written.items())] if question.written else []),
            ]
            for question in self.items
        ]
        return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
