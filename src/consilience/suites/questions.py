"""Questions and expectations: the columns of their files, rows, collections."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, cast

from consilience.core.errors import ConsilienceError, did_you_mean, how_to_install, reason_of
from consilience.core.expectations import KINDS, Expectation, ExpectationKind, Reference, Texts
from consilience.core.items import ALIAS_SEPARATOR, DEFAULT_LANGUAGE, Choice, Question
from consilience.core.text import PASSAGE_END, counted, fold_case, names_a_file
from consilience.files.read import FirstFault, parse_json, read_document, read_rows
from consilience.files.rows import (
    GROUP_NAME,
    Problems,
    Row,
    as_day,
    find_table,
    nfc,
    plain_name,
    raise_first,
)
from consilience.files.tables import THE_FRAME, as_polars, read_answer_file

COLUMNS: Mapping[str, str] = {
    "question": "the question, or a list of its phrasings",
    "answer": "the right answer as a text (aliases: Go|Golang), or its letter; in JSON also its "
    "position from 0",
    "options": "what may be chosen, the right answer included",
    "distractors": "wrong options, instead of options",
    "group": "the group that the question is reported in",
    "item": "an id; further rows with the same id are phrasings of the question",
    "context": "a text that the question is about, or its passages: a list, or with empty lines",
    "language": "the language of the phrasing",
}

NEEDED = ("question", "answer")
WITH_OPTIONS = ("options", "distractors")
COLUMN_JOIN = "+"

OPTION_NAMES = ("option", "choice", "candidate", "alternative", "answer", "ending")
"""What columns with options are called elsewhere, without case and the plural."""

SIMILAR = 0.88  # From this similarity (``difflib``) a column is taken for a misspelt one

MAKE_A_SUITE = (
    "Add a column pattern, and make a suite: `consilience suite import TABLE --into FOLDER`."
)


def holds_facts(columns: Set[str]) -> bool:
    """Whether a row with these columns is a fact and no question."""
    return columns >= {"subject", "object"} and "question" not in columns


def recognised(
    cells: Mapping[str, Any], columns: Mapping[str, str], where: str, *, in_python: bool
) -> None:
    """Raise for a column that is needed or mapped and not there, and for one with another name.

    The message has the mapping to write. Without the second error a file whose options are called
    otherwise would be read as open questions.
    """
    sources = {name: columns.get(name, name) for name in NEEDED} | dict(columns)
    absent = {
        column: name
        for name, source in sources.items()
        for column in source.split(COLUMN_JOIN)
        if column not in cells
    }
    meant = _meant(cells, columns)
    if not absent and not meant:
        return
    wrong = dict.fromkeys(absent.values(), "COLUMN")
    mapping = _mapping({**columns, **wrong, **meant}, in_python=in_python)
    column, name = next(iter([*absent.items(), *((name, name) for name in meant)]))
    todo = f"Rename the columns if they are something else, or name them: {mapping}."
    if absent:
        is_fact = holds_facts(cells.keys())
        todo = MAKE_A_SUITE if is_fact else f"Name the column that has it: {mapping}."
    found = f"no column '{column}' among {', '.join(map(str, cells))}"
    expected = f"{COLUMNS[name]} in '{column}'"
    raise ConsilienceError(found, expected=expected, where=where, todo=todo)


def unused(cells: Mapping[str, Any], columns: Mapping[str, str]) -> list[str]:
    """The columns that hold nothing of a question."""
    mapped = {part for source in columns.values() for part in source.split(COLUMN_JOIN)}
    return [
        str(key)
        for key in cells
        if key not in COLUMNS and key not in mapped and _phrasing_number(str(key)) is None
    ]


def renamed(cells: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """The cells by our names of their columns."""
    ours = {key: cells[key] for key in COLUMNS if key in cells}
    for name, source in columns.items():
        parts = source.split(COLUMN_JOIN)
        if len(parts) == 1:
            ours[name] = cells.get(source)
        else:
            values = [cells.get(part) for part in parts]
            while values and values[-1] in (None, ""):  # an inner gap would move the letters
                values.pop()
            ours[name] = [value for value in values if name == "options" or value not in (None, "")]
    named = {part for source in columns.values() for part in source.split(COLUMN_JOIN)}
    more = sorted(
        (number, key)
        for key in cells
        if (number := _phrasing_number(str(key))) is not None and key not in named
    )
    if more:
        first = ours.get("question")
        texts = first if isinstance(first, list) else [first]
        ours["question"] = [*texts, *(cells[key] for _, key in more if cells[key])]
    return ours


def our_columns(cells: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, str]:
    """The names of columns: also those in other case, and ``question_2`` as a further phrasing."""
    plain = {str(key).strip().casefold(): str(key) for key in cells}
    ours = {name: plain[name] for name in COLUMNS if name in plain and name not in cells}
    ours |= {name: source for name, source in columns.items() if name in COLUMNS}
    further = [source for name, source in columns.items() if name not in COLUMNS]
    if further:
        ours["question"] = COLUMN_JOIN.join([ours.get("question", "question"), *further])
    return ours


def _phrasing_number(column: str) -> int | None:
    """The number in ``question_2``, ``question2`` or ``Question 2``; None of other columns."""
    match = re.fullmatch(r"question[ _-]?(\d+)", column.strip().casefold())
    return int(match[1]) if match else None


def _meant(cells: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, str]:
    """The columns that a file lacks, and what they are probably called there."""
    known = {*columns, *(name for name in COLUMNS if name in cells)}
    has_options = bool(known & {*WITH_OPTIONS})
    others = unused(cells, columns)
    run = [] if has_options else _run_of_options(others)
    plain = {plain_name(column): column for column in reversed(others) if column not in run}
    meant = {"options": COLUMN_JOIN.join(run)} if run else {}
    for name in COLUMNS:
        if name in known or ((has_options or run) and name in WITH_OPTIONS):
            continue
        names = [name, *(OPTION_NAMES[:-2] if name == "options" else ())]
        exact = [plain[plain_name(one)] for one in names if plain_name(one) in plain]
        close = get_close_matches(plain_name(name), plain, n=1, cutoff=SIMILAR)
        if exact or close:
            meant[name] = exact[0] if exact else plain[close[0]]
    return meant


def _run_of_options(columns: Sequence[str]) -> list[str]:
    """Columns with an option each, such as A to D, option_a to option_d or choice1 to choice4."""
    runs: dict[str, dict[str, str]] = {}
    for column in columns:
        match = re.fullmatch(r"(.*?)[ _-]*([a-z]|\d+)", column.strip().casefold())
        if match and (match[1] in OPTION_NAMES or not match[1]):
            runs.setdefault(match[1], {})[match[2]] = column
    for run in runs.values():
        for labels in ("abcdefghij", "0123456789", "123456789"):
            first = labels[: len(run)]
            if len(run) > 1 and {*run} == {*first}:
                return [run[label] for label in first]
    return []


def _mapping(columns: Mapping[str, str], *, in_python: bool) -> str:
    if in_python:
        return f"columns={dict(columns)!r}"
    return f"--columns {','.join(f'{name}={source}' for name, source in columns.items())}"


OPTION_SEPARATOR = ";"
Parse = Callable[[str], Choice]
YES, NO = Choice("yes", ("true",)), Choice("no", ("false",))


@dataclass(slots=True)
class _QuestionDraft:
    """A question while its rows are read; ``row``: the first."""

    row: Row
    group: str
    gold: Choice
    options: tuple[Choice, ...]
    phrasings: dict[str, list[str]] = field(default_factory=dict)
    is_numbered: bool = False  # Whether its row states no item


def questions_of_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    name: str,
    columns: Mapping[str, str],
    problems: Problems,
    *,
    source: str,
    in_python: bool = False,
    parse: Parse = Choice.parse,
) -> tuple[tuple[Question, ...], tuple[str, ...]]:
    """The questions of rows with their places, and notes; the first error of each row is reported.

    ``name``: of the suite, and of the group of questions that name none. ``source``: where the rows
    are. ``in_python``: whether messages name columns as Python does, or as the command line.
    ``parse``: makes an option or an answer of a text; ``Choice`` where texts have no aliases.
    """
    for column in columns:
        if column not in COLUMNS and _phrasing_number(column) is None:
            found = _mapping({column: "..."}, in_python=in_python)
            todo = did_you_mean(column, [*COLUMNS])
            raise ConsilienceError(found, expected=", ".join(COLUMNS), todo=todo)
    others: dict[str, None] = {}
    drafts: dict[str, _QuestionDraft] = {}
    counts: Counter[str] = Counter()
    filled = (one for one in rows if not all(map(_is_blank, one[1].values())))
    for number, (where, cells) in enumerate(filled):
        if number == 0:
            columns = our_columns(cells, columns)
            recognised(cells, columns, where, in_python=in_python)
        others |= dict.fromkeys(unused(cells, columns))
        try:
            ours = Row(where, renamed(cells, columns), FirstFault())
            _add_row(ours, name, drafts, counts, parse)
        except ConsilienceError as error:
            problems.append(error)
    if not drafts and not problems:
        expected = "a row for each question, with the columns question and answer"
        problems.append(ConsilienceError("no questions", expected=expected, where=source))
    notes = [f"{source}: not used: {', '.join(others)}"] if others else []
    questions = tuple(
        Question(
            item,
            draft.group,
            {language: tuple(texts) for language, texts in draft.phrasings.items()},
            draft.gold,
            draft.options,
            _context(draft.row),
            draft.row.where,
        )
        for item, draft in drafts.items()
    )
    return questions, tuple(notes)


def _is_blank(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _add_row(
    row: Row, name: str, drafts: dict[str, _QuestionDraft], counts: Counter[str], parse: Parse
) -> None:
    """A new question, or further phrasings of one; what is wrong raises."""
    group = row.optional_text("group").strip() or name
    if not names_a_file(group):
        row.report(f"the group '{group}'", expected=GROUP_NAME, todo="Rename it.")
    item = row.optional_text("item").strip()
    if is_numbered := not item:
        counts[group] += 1
        item = f"{group}-{counts[group]}"
    phrasings = _phrasings(row)
    if item not in drafts:
        _context(row)
        answer = _answer(row, item, parse)
        drafts[item] = _QuestionDraft(row, group, *answer, is_numbered=is_numbered)
    elif is_numbered or drafts[item].is_numbered:
        found = f"duplicate item '{item}', the number of a row without one"
        row.report(found, todo="Give each row an item, or none.")
    draft = drafts[item]
    for column in ("answer", "options", "distractors", "context", "group"):
        value = row.cells.get(column)
        if value not in (None, "") and value != draft.row.cells.get(column):
            found = f"duplicate item '{item}' with another '{column}'"
            todo = f"Give each question its own item; the first is {draft.row.where}."
            row.report(found, expected="a further phrasing of the same question", todo=todo)
    for language, texts in phrasings.items():
        known = draft.phrasings.setdefault(language, [])
        for text in texts:
            if text in known:
                row.report(f"duplicate question '{text}' of '{item}'", todo="Remove one of them.")
            known.append(text)


def _context(row: Row) -> str:
    """The passages of the context: one text, or a list of texts, which may be in JSON."""
    value = row.cells.get("context")
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            read = parse_json(value)
            value = read if read and all(isinstance(one, str) for one in read) else value
        except json.JSONDecodeError:
            if value.lstrip().startswith('["'):
                row.report("a list of passages that is no JSON", todo="Check quotes and brackets.")
    entries = value if isinstance(value, list | tuple) else [value]
    texts = [replace(row, cells={"context": entry}).optional_text("context") for entry in entries]
    if len(texts) > 1 and not all(text.strip() for text in texts):
        row.report("an empty passage in 'context'", todo="Remove it.")
    return PASSAGE_END.join(texts)


def _phrasings(row: Row) -> dict[str, list[str]]:
    value = row.cells.get("question")
    language = row.optional_text("language").strip() or DEFAULT_LANGUAGE
    by_language = value if isinstance(value, Mapping) else {language: value}
    texts = {
        str(name): [
            replace(row, cells={"question": text}).text("question")
            for text in (entry if isinstance(entry, list | tuple) else [entry])
        ]
        for name, entry in by_language.items()
    }
    if not all(texts.values()) or not texts:
        row.report("no phrasing in 'question'", expected="a text")
    return texts


def _answer(row: Row, item: str, parse: Parse) -> tuple[Choice, tuple[Choice, ...]]:
    value = row.cells.get("answer")
    if isinstance(value, list | tuple):
        value = ALIAS_SEPARATOR.join(str(text) for text in value if text is not None)
    elif isinstance(value, date):
        value = as_day(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        row.report("no answer", expected=COLUMNS["answer"], todo="Fill it in or remove the line.")
    text = replace(row, cells={"answer": value}).optional_text("answer")
    options, labels = _options(row, "options", parse)
    distractors, _ = _options(row, "distractors", parse)
    if options and distractors:
        row.report("both 'options' and 'distractors'", expected="one of the two")
    if distractors:
        options = _shuffled((parse(text), *distractors), item)
        value = text
    elif isinstance(value, bool) and not options:
        options, value = (YES, NO), text
    if not options:
        return parse(text), ()
    _refuse_alike(row, options)
    named = parse(text).texts
    at = _gold_position(row, value, options, labels, named)
    gold = options[at]
    if gold.text in named:
        more = tuple(text for text in named if text not in gold.texts)
        gold = replace(gold, aliases=gold.aliases + more)
    return gold, (*options[:at], gold, *options[at + 1 :])


def _gold_position(
    row: Row, value: object, options: tuple[Choice, ...], labels: tuple[str, ...], named: Texts
) -> int:
    """Which option the answer names: by text or alias, by label, or by its position from 0.

    A whole number is a position, a text is never one. A letter is a label. Labels that the row
    itself states come first: of the options 2 and 1, labelled 1 and 2, the answer 1 is the first.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < len(options):
            row.report(f"the answer {value}", expected=f"a position from 0 to {len(options) - 1}")
        return value
    if labels.count(str(value)) == 1:
        return labels.index(str(value))
    texts = set(map(normal, named))
    places = [at for at, option in enumerate(options) if texts & {*map(normal, option.texts)}]
    if not places:
        letters = labels or tuple(chr(ord("A") + at) for at in range(len(options)))
        places = [at for at, label in enumerate(letters) if str(value).strip() == label]
    shown = ", ".join(f"'{option.text}'" for option in options)
    if len(places) > 1:
        row.report(f"the answer '{value}' is several of the options {shown}", expected="one")
    if not places:
        expected = "a text, a letter or, in JSON, a position from 0"
        todo = "Add it to the options, or correct one of them."
        row.report(
            f"the answer '{value}' is none of the options {shown}", expected=expected, todo=todo
        )
    return places[0]


def _options(row: Row, column: str, parse: Parse) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
    value = row.cells.get(column)
    labels: tuple[str, ...] = ()
    if isinstance(value, Mapping) and isinstance(value.get("text"), list | tuple):
        labels = tuple(map(str, value.get("label") or ()))
        value = value["text"]
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parse_json(value)
        except json.JSONDecodeError:  # [0, 1); [1, 2]
            if value.lstrip().startswith('["'):
                expected = "a list in JSON, or options with ';'"
                row.report(f"'{column}' is {value!r}", expected=expected)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(OPTION_SEPARATOR) if part.strip()]
    value = () if value is None else value
    if not isinstance(value, list | tuple):
        row.report(f"'{column}' is {value!r}", expected="a list of texts")
    texts = [replace(row, cells={column: entry}).optional_text(column) for entry in value]
    if not all(text.strip() for text in texts):
        row.report(f"an empty option in '{column}'", todo="Remove it.")
    return tuple(map(parse, texts)), labels


def _refuse_alike(row: Row, options: tuple[Choice, ...]) -> None:
    """Raise for a single option, and for two options with a text in common."""
    first_with: dict[str, Choice] = {}
    for option in options:
        for text in {normal(text) for text in option.texts}:
            first, name = first_with.setdefault(text, option).text, option.text
            if first_with[text] is option:
                continue
            found = f"the options '{first}' and '{name}' both have the text '{text}'"
            expected = "texts and aliases of one option only, also without case and space"
            row.report(found, expected=expected, todo="Remove it from one of them.")
    if len(options) == 1:
        is_list = "," in options[0].text or len(options[0].texts) > 1  # texts of one, with '|'
        todo = f"Separate options by '{OPTION_SEPARATOR}'." if is_list else ""
        row.report(f"one option, '{options[0].text}'", expected="two or more, or none", todo=todo)


def normal(text: str) -> str:
    """A text in Unicode form NFC, without case and surrounding or repeated space."""
    return fold_case(" ".join(nfc(text).split()))


def _shuffled(options: tuple[Choice, ...], item: str) -> tuple[Choice, ...]:
    """Options in an order that the item's id decides, so that the gold is at no fixed position."""
    seed = int.from_bytes(hashlib.sha256(item.encode()).digest()[:8])
    return tuple(random.Random(seed).sample(options, len(options)))


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
        cls, frame: Any, *, columns: Mapping[str, str] | None = None, name: str = "questions"
    ) -> Questions:
        """The questions of a pandas or polars frame; the first problem raises, with its row.

        The columns are those of a file (``COLUMNS``): ``question`` and ``answer``
        are needed, ``options`` is a list or one text with ``;``. ``columns``: the frame's name of
        each that is called otherwise there, such as ``{"question": "stem", "options": "A+B+C+D"}``.
        ``name``: of the suite, and of the group of questions that name none.
        """
        problems: Problems = []
        is_list = isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame)
        table = frame if is_list else as_polars(frame).iter_rows(named=True)
        rows = ((f"{THE_FRAME}, row {at}", row) for at, row in enumerate(table, start=1))
        items, notes = questions_of_rows(
            rows, name, columns or {}, problems, source=THE_FRAME, in_python=True
        )
        raise_first(problems, how_to_list="")
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


SUFFIXES = (".jsonl", ".csv", ".tsv", ".xlsx", ".json", ".parquet")


def read_question_file(path: Path, columns: Mapping[str, str], problems: Problems) -> Questions:
    """The questions of a file, with its names of ``COLUMNS``; errors go to ``problems``."""
    rows = file_rows(path, problems)
    return Questions(
        path.stem, *questions_of_rows(rows, path.stem, columns, problems, source=str(path))
    )


def file_rows(
    path: Path, problems: Problems | None, suffixes: Sequence[str] = SUFFIXES
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The rows of a file, each with its place; without ``problems`` the first one raises."""
    if path.suffix not in suffixes:
        found = f"a file in '{path.suffix}'"
        raise ConsilienceError(found, expected=", ".join(suffixes), where=str(path))
    if path.suffix in (".jsonl", ".csv", ".tsv"):
        return read_rows(path, faults=problems)
    if path.suffix in (".parquet", ".xlsx", ".gz"):
        rows: Any = read_answer_file(path).rows(named=True)
    else:
        rows = read_document(path)
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise ConsilienceError("no list of rows", expected="one object each", where=str(path))
    return [(f"{path}, row {number}", row) for number, row in enumerate(rows, start=1)]


def hub_dataset(*name: str | None, split: str, where: str, todo: str) -> Any:
    """A split of a data set on the Hub; ``name``: its name and its configuration."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ConsilienceError("datasets is not installed", todo=how_to_install("hub")) from error
    try:
        return load_dataset(*name, split=split)
    except Exception as error:  # the network, a wrong name, a script: nearly anything
        found = f"cannot be loaded: {reason_of(error)}"
        raise ConsilienceError(found, where=where, todo=todo) from error


EXPECTATION_COLUMNS = ("kind", "item", "other_item", "map")

FILE_STEM = "expectations"
"""What the file of expectations in a folder of questions is called."""

ARROW, AND, OR = "->", "&", "|"  # In a map: ``yes & yes -> yes | maybe``

BOOLEANS = {"True": "yes", "False": "no"}  # JSON's true and false


def with_expectations(questions: Questions, path: Path, problems: Problems) -> Questions:
    """The questions of a folder with their expectations; errors go to ``problems``."""
    file = find_table(path, FILE_STEM, SUFFIXES)
    if file is None:
        return questions
    rows = file_rows(file, problems)
    return replace(questions, expectations=expectations_of_rows(rows, questions, problems))


def expectations_of_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]], questions: Questions, problems: Problems
) -> tuple[Expectation, ...]:
    """The expectations of rows with their places; the first error of each goes to ``problems``."""
    known = {question.item: question for question in questions.items}
    places: dict[Expectation, str] = {}
    for where, cells in rows:
        row = Row(where, cells, FirstFault())
        try:
            expectation = twin = _expectation(row, known)
            if expectation.kind in ("same", "different"):
                (premise,) = expectation.premises  # the order of the pair does not matter
                twin = replace(expectation, premises=(expectation.conclusion,), conclusion=premise)
            if first := places.get(expectation) or places.get(twin):
                row.report("duplicate expectation", todo=f"Remove it; the first is {first}.")
            places[expectation] = where
        except ConsilienceError as error:
            problems.append(error)
    return tuple(places)


def _expectation(row: Row, known: Mapping[str, Question]) -> Expectation:
    for name in row.cells:
        if name not in EXPECTATION_COLUMNS:
            todo = did_you_mean(str(name), list(EXPECTATION_COLUMNS))
            row.report(f"the column '{name}'", expected=", ".join(EXPECTATION_COLUMNS), todo=todo)
    kind = row.text("kind")
    if kind not in KINDS:
        row.report(f"the kind '{kind}'", todo=did_you_mean(kind, list(KINDS)))
    items = _listed(row, "item") or [row.text("item")]
    others = _listed(row, "other_item") or items[:1]
    if len(others) > 1:
        row.report(f"{len(others)} questions in 'other_item'", expected="one")
    premises = _references(row, items, known)
    (conclusion,) = _references(row, others, known)
    for at, item in enumerate((*items, *others)):
        if item in items[:at]:
            todo = "Name the other question in 'other_item'."
            row.report(f"'{item}' is compared with itself", expected="two questions", todo=todo)
    if len(premises) > 1 and kind != "implied":
        row.report(f"{len(premises)} questions in 'item' of '{kind}'", expected="one")
    draft = Expectation(cast(ExpectationKind, kind), premises, conclusion)
    return replace(draft, rules=_rules_of(row, draft, [known[item] for item in (*items, *others)]))


def _listed(row: Row, column: str) -> list[str]:
    """The texts of a cell: a list, or one text with ``;`` between them."""
    value = row.cells.get(column)
    if isinstance(value, list | tuple):
        return [str(entry).strip() for entry in value]
    text = row.optional_text(column)
    return [part.strip() for part in text.split(OPTION_SEPARATOR) if part.strip()]


def _references(row: Row, items: list[str], known: Mapping[str, Question]) -> tuple[Reference, ...]:
    for item in items:
        if item not in known:
            row.report(f"no question '{item}'", todo=did_you_mean(item, list(known)))
    return tuple(Reference(item, _texts(known[item].options)) for item in items)


def _texts(options: Iterable[Choice]) -> Texts:
    return tuple(option.text for option in options)


def _rules_of(row: Row, draft: Expectation, questions: list[Question]) -> dict[Texts, Texts]:
    has_map = row.cells.get("map") not in (None, "", {}, [])
    if draft.kind == "implied":
        if not has_map:
            row.report("no 'map' of 'implied'", expected="a map such as yes -> no")
        return _rules(row, questions)
    if has_map:
        row.report(f"a 'map' of '{draft.kind}'", expected="'map' only of implied")
    first, second = (set(one.options) for one in draft.references)
    if first != second:
        shown = [", ".join(one.options) or "none" for one in draft.references]
        found = f"the options are {shown[0]} and {shown[1]}"
        row.report(found, expected="the same options of both")
    return {}


def _rules(row: Row, questions: list[Question]) -> dict[Texts, Texts]:
    value = row.cells["map"]
    if isinstance(value, Mapping):
        entries = list(value.items())
    else:
        parts = [part.split(ARROW) for part in str(value).split(OPTION_SEPARATOR) if part.strip()]
        entries = [(part[0].strip(), ARROW.join(part[1:]).strip()) for part in parts]
        if not all(left and right for left, right in entries):
            expected = "answers -> answers, such as yes -> no; no -> yes"
            row.report(f"'map' is {value}", expected=expected)
    rules: dict[Texts, Texts] = {}
    for left, right in entries:
        texts = str(left).split(AND)
        if len(texts) != len(questions) - 1:
            expected = f"{len(questions) - 1} with '{AND}' between them, one for each premise"
            row.report(f"{len(texts)} answers before the arrow in 'map': {left}", expected=expected)
        key = tuple(_answer_of(row, *one) for one in zip(texts, questions[:-1], strict=True))
        if key in rules:
            row.report(f"'{left}' more than once in 'map'", todo="Join what it implies with '|'.")
        conclusions = right if isinstance(right, list | tuple) else str(right).split(OR)
        rules[key] = _answers(row, conclusions, questions[-1])
    return rules


def _answers(row: Row, texts: Iterable[object], question: Question) -> Texts:
    return tuple(dict.fromkeys(_answer_of(row, str(text), question) for text in texts))


def _answer_of(row: Row, text: str, question: Question) -> str:
    """The option that a text names, or the text for an open question; an unknown one raises."""
    text = text.strip()
    if not question.options:
        return BOOLEANS.get(text, text)
    for name in (text, BOOLEANS.get(text, text)):
        for option in question.options:
            if normal(name) in map(normal, option.texts):
                return option.text
    shown = ", ".join(_texts(question.options))
    row.report(f"the answer '{text}'", expected=f"one of the options of '{question.item}': {shown}")
    return ""
