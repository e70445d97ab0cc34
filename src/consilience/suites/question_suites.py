"""Suites of questions: folders and files, expectations, the Hub, bundled ones, of facts."""

from __future__ import annotations

import os
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from os import PathLike
from pathlib import Path
from typing import Any, cast

from consilience.core.errors import ConsilienceError, did_you_mean, reason_of
from consilience.core.factors import (
    EXPECTATIONS,
    Expectation,
    ExpectationKind,
    Reference,
    Texts,
    linked_questions,
)
from consilience.core.items import DEFAULT_LANGUAGE, ENGLISH, SUBJECT_SLOT, Choice, Question
from consilience.core.text import counted, listed, rejoined
from consilience.files.read import SUFFIXES, Problems, hub_rows, read_parquet, read_rows
from consilience.files.rows import (
    Column,
    TableError,
    find_table,
    line,
    one_of,
    raise_all,
    read_table,
    text,
)
from consilience.files.write import path_of
from consilience.suites.pairs import TASKS
from consilience.suites.questions import (
    COLUMN_JOIN,
    SEPARATOR,
    YES_NO,
    Names,
    Questions,
    as_is,
    entries,
    normal,
    position,
    questions_of_rows,
    separated,
    shuffled,
)
from consilience.types import (
    FACT_COLUMNS,
    PATTERN_COLUMNS,
    Cardinality,
    Fact,
    Relation,
    RelationBuilder,
    Suite,
)


def data_dir(folder: str | Path | None = None) -> Path:
    """Where fetched data lies: what was given, ``CONSILIENCE_DATA``, or the user's cache."""
    if folder is not None:
        return path_of(folder, "the folder of data")
    if os.environ.get("CONSILIENCE_DATA"):
        return Path(os.environ["CONSILIENCE_DATA"])
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "consilience"


Cells = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownSuite:
    """A data set of questions on the Hub, or of facts: a row has a fact in one pattern.

    ``config``: also the folder of its files, which is ``data`` without one. ``columns``: our name
    of a column and theirs: ``a.b`` is a part of a column, a list has the texts of several, and in a
    text with braces columns are filled in. ``reads``: of ``READERS``. ``clean``: patterns in the
    texts, and what replaces them. ``n_to_m``: relations with several right objects for a subject;
    in others a few subjects may still occur with two.
    """

    name: str
    about: str
    dataset: str
    revision: str
    split: str
    licence: str
    citation: str
    columns: Mapping[str, str | Sequence[str]]
    config: str = ""
    reads: str = ""
    clean: Sequence[Sequence[str]] = ()
    n_to_m: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The name of the suite, with its split where that is not the usual one."""
        return self.name + f"-{self.split}" * (self.split != KNOWN[self.name].split)

    @property
    def is_facts(self) -> bool:
        return "pattern" in self.columns

    @property
    def place(self) -> str:
        """Where the files of the split begin in the data set."""
        return Path(self.config or "data", self.split).as_posix()

    @property
    def source(self) -> dict[str, str]:
        """What the row says of the data set."""
        names = ("dataset", "config", "split", "revision", "licence", "citation")
        return {name: getattr(self, name) for name in names}

    def files(self, data: Path) -> tuple[list[Path], str]:
        """The files of the split, and their revision: of ``data/NAME``, the cache, or the Hub."""
        if (folder := data / self.name).is_dir():
            return self._within(folder), "local files"
        from huggingface_hub import constants, snapshot_download

        reason = ""
        for is_cached in (True, False):
            try:
                root = snapshot_download(
                    self.dataset, repo_type="dataset", revision=self.revision,
                    allow_patterns=f"{self.place}[-.]*", local_files_only=is_cached,
                )  # fmt: skip
                return self._within(Path(root)), Path(root).name
            except Exception as error:  # the network, no such split in the cache: nearly anything
                reason = reason_of(error)
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else reason
        raise ConsilienceError(
            f"'{self.name}' is not in the cache of the Hub and cannot be downloaded: {reason}",
            expected=f"the files {self.place}* of {self.dataset}",
            todo="Run the command once with a network, or copy https://huggingface.co/datasets/"
            f"{self.dataset}/tree/{self.revision} to {folder} (or CONSILIENCE_DATA=...).",
        )

    def _within(self, folder: Path) -> list[Path]:
        """The files of the split in a copy of the data set; none, or a part of them, raises."""
        paths = sorted(folder.glob(f"{self.place}[-.]*"))
        found = [path for path in paths if path.suffix in (".parquet", ".jsonl", ".tsv")]
        parts = re.search(r"-of-(\d+)", found[0].name) if found else None
        if not found or (parts and int(parts[1]) != len(found)):
            expected = f"{self.place}.jsonl or .tsv, or all {self.place}-*.parquet"
            raise ConsilienceError(f"{len(found)} files", expected=expected, where=str(folder))
        return found

    def read(self, data: Path) -> Questions:
        """The questions; one that cannot be asked is left out, with a note."""
        rows, note, revision = self._rows(data)
        sizes: Counter[str] = Counter()
        items, left_out = [], []
        for where, row in rows:
            try:
                items.append(self._question(row, where, sizes))
            except (ValueError, IndexError, TypeError, AttributeError):
                left_out.append(ConsilienceError("no question with a right answer", where=where))
        if not items:
            raise TableError(left_out or [ConsilienceError("no questions", where=self.title)])
        notes = [note]
        if left_out:
            found = f"{len(left_out):,} of {len(rows):,} questions are left out, such as"
            notes.append(f"{found} {left_out[0]}")
        source = {**self.source, "revision": revision}
        return Questions(self.title, tuple(items), tuple(notes), source=source)

    def facts(self, data: Path) -> Suite:
        """The facts and the patterns; the candidates of a relation are the objects of its facts."""
        rows, note, _ = self._rows(data)
        problems: Problems = []
        builders: dict[str, RelationBuilder] = {}
        cells = ((where, self._fact(row, where)) for where, row in rows)
        columns = Column("relation", line), *FACT_COLUMNS, *PATTERN_COLUMNS
        for row in read_table(cells, columns, problems, self.title):
            id_ = row["relation"]
            cardinality: Cardinality = "N-M" if id_ in self.n_to_m else "N-1"
            builder = builders.setdefault(id_, RelationBuilder(id_, id_, cardinality))
            builder.add_pattern(row, again=True)
            builder.add_fact(row, again=True)
        relations = tuple(builder.relation(problems) for builder in builders.values())
        raise_all(problems)
        return Suite(self.title, relations, notes=(note,))

    def _fact(self, row: Cells, where: str) -> Cells:
        """The cells of a fact; the object may be the position of an option."""
        ours = self._ours(row, where)
        options = dict(enumerate(entries(ours["options"]))) if "options" in ours else None
        return ours if options is None else {**ours, "object": options.get(ours["object"])}

    def _rows(self, data: Path) -> tuple[list[tuple[str, Cells]], str, str]:
        """The rows with their places, a note on their source, and its revision."""
        files, revision = self.files(data)
        rows: list[Cells] = []
        columns = [str(of) for of in self.columns.values()] if self.is_facts else None  # few of all
        for file in files:  # of Parquet without the names of class labels, which are positions
            is_table = file.suffix == ".parquet"
            rows += (
                read_parquet(file, columns).to_dicts()
                if is_table
                else [row for _, row in read_rows(file)]
            )
        at = "" if revision == "local files" else f"@{revision[:7]}"
        note = f"{self.dataset}{at}, {self.split}: {self.licence}, {self.citation}"
        return [(f"{self.title}, row {n}", row) for n, row in enumerate(rows, 1)], note, revision

    def _ours(self, row: Cells, where: str) -> Cells:
        """The cells of a row by our names; a missing column raises."""
        try:
            return {name: self._cell(row, source) for name, source in self.columns.items()}
        except KeyError as error:
            found = f"no column {error} among {', '.join(map(str, row))}"
            expected = f"those of {self.dataset}"
            raise ConsilienceError(found, expected=expected, where=where) from error

    def _question(self, row: Cells, where: str, sizes: Counter[str]) -> Question:
        """The question of a row; a ``ValueError`` where it has no answer, or twice an option."""
        ours = self._ours(row, where)
        answer, options = ours["answer"], list(map(Choice, ours.get("options", ())))
        if self.reads == "yes or no":
            options = list(YES_NO)
        gold = READERS[self.reads](answer, ours)
        gold = gold if isinstance(gold, Choice) else options[gold]
        group = ours.get("group", self.title)
        sizes[group] += 1
        item = str(ours.get("item", f"{group}-{sizes[group]}"))
        if len({option.text for option in options}) < len(options):
            raise ValueError("two options are the same")
        if self.reads in ("flags", "text"):  # at one position of the data set
            options = shuffled([gold, *(one for one in options if one is not gold)], item)
        filled = (
            text.replace("{}", ours.get("subject", "{}")) for text in entries(ours["question"])
        )
        if not (phrasings := tuple(dict.fromkeys(filled))):
            raise ValueError("no phrasing")
        texts = {DEFAULT_LANGUAGE: phrasings}
        return Question(item, group, texts, gold, tuple(options), ours.get("context", ""), where)

    def _cell(self, row: Cells, source: str | Sequence[str]) -> Any:
        if not isinstance(source, str):
            return [text for one in source for text in entries(self._cell(row, one))]
        is_text = "{" in source
        value: Any = source.format(**row) if is_text else reduce(getitem, source.split("."), row)
        texts = value if isinstance(value, list) else [value]
        for pattern, instead in self.clean:
            texts = [re.sub(pattern, instead, one) for one in texts]
        return texts if isinstance(value, list) else texts[0]


READERS: Mapping[str, Callable[[Any, Cells], int | Choice]] = {
    "position": lambda answer, cells: range(len(cells["options"])).index(int(answer)),
    "label": lambda answer, cells: list(cells["labels"]).index(answer),
    "text": lambda answer, cells: list(cells["options"]).index(answer),
    "flags": lambda answer, cells: list(answer).index(1),
    "yes or no": lambda answer, cells: YES_NO[answer is False],
    "after ####": lambda answer, cells: Choice(answer.split("####")[1].strip()),
    "aliases": lambda answer, cells: Choice(
        answer, tuple(one for one in separated(cells["aliases"]) or () if one != answer)
    ),
}
"""How a row understands the answer: as the text of a position from 0, one of the ``labels``, the
text of an option, a list with 1 at the right option, true or false, what follows a solution, or a
text that ``aliases`` write in other ways."""

_ROWS = tomllib.loads(Path(__file__).with_name("known.toml").read_text("utf-8"))

KNOWN = {name: KnownSuite(name, **row) for name, row in _ROWS.items()}


def known_suite(spec: str) -> KnownSuite | None:
    """The suite that ``NAME`` or ``NAME:SPLIT`` names; None of other texts."""
    name, _, split = spec.partition(":")
    known = KNOWN.get(name)
    return replace(known, split=split) if known and split else known


COLUMNS = (
    Column("kind", one_of(*EXPECTATIONS)), Column("item", separated),
    Column("other_item", separated, [], is_needed=False),
    Column("map", as_is, "", is_needed=False),
)  # fmt: skip

ARROW, AND, OR = "->", "&", "|"  # In a map: ``yes & yes -> yes | maybe``


def with_expectations(questions: Questions, path: Path, problems: Problems) -> Questions:
    """The questions of a folder with those of its file ``expectations``, and what is wrong."""
    file = find_table(path, "expectations")
    if file is None:
        return questions
    rows = read_rows(file, problems)
    expectations = expectations_of_rows(rows, questions, problems, str(file))
    return replace(questions, expectations=expectations)


def expectations_of_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    questions: Questions,
    problems: Problems,
    where: str = "",
) -> tuple[Expectation, ...]:
    """The expectations of rows with their places; the first error of each goes to ``problems``."""
    known = {question.item: question for question in questions.items}
    places: dict[Any, str] = {}
    expectations = []
    for row in read_table(rows, COLUMNS, problems, where):
        try:
            items, others = row["item"], row["other_item"] or row["item"][:1]
            one = _expectation(row["kind"], items, others, row["map"], known)
        except ConsilienceError as error:
            row.add(error)
            continue
        # The order of a pair does not matter.
        key = one if one.kind == "implied" else (one.kind, frozenset(one.items))
        if row.is_new(key, places, "expectation"):
            expectations.append(one)
    return tuple(expectations)


def _expectation(
    kind: str, items: list[str], others: list[str], map_: Any, known: Mapping[str, Question]
) -> Expectation:
    if len(others) > 1:
        raise ConsilienceError(f"{len(others)} questions in 'other_item'", expected="one")
    every = [*items, *others]
    for at, item in enumerate(every):
        if item not in known:
            raise ConsilienceError(f"no question '{item}'", todo=did_you_mean(item, list(known)))
        if item in every[:at]:
            found = f"'{item}' is compared with itself"
            todo = "Name the other question in 'other_item'."
            raise ConsilienceError(found, expected="two questions", todo=todo)
    if len(items) > 1 and kind != "implied":
        raise ConsilienceError(f"{len(items)} questions in 'item' of '{kind}'", expected="one")
    questions = [known[item] for item in every]
    *premises, conclusion = (
        Reference(one.item, tuple(option.text for option in one.options)) for one in questions
    )
    if (kind == "implied") != bool(map_):
        found = "no 'map' of 'implied'" if not map_ else f"a 'map' of '{kind}'"
        expected = "a map such as yes -> no" if not map_ else "'map' only of implied"
        raise ConsilienceError(found, expected=expected)
    if kind != "implied" and {*premises[0].options} != {*conclusion.options}:
        shown = [", ".join(one.options) or "none" for one in (*premises, conclusion)]
        found = f"the options are {shown[0]} and {shown[1]}"
        raise ConsilienceError(found, expected="the same options of both")
    rules = _rules(map_, questions) if map_ else {}
    return Expectation(cast(ExpectationKind, kind), tuple(premises), conclusion, rules)


def _rules(map_: Any, questions: list[Question]) -> dict[Texts, Texts]:
    if isinstance(map_, Mapping):
        entries = list(map_.items())
    else:
        parts = [part.partition(ARROW) for part in str(map_).split(SEPARATOR) if part.strip()]
        entries = [(left.strip(), right.strip()) for left, _, right in parts]
        if not all(left and right for left, right in entries):
            expected = "answers -> answers, such as yes -> no; no -> yes"
            raise ConsilienceError(f"'map' is {map_}", expected=expected)
    rules: dict[Texts, Texts] = {}
    for left, right in entries:
        texts = str(left).split(AND)
        if len(texts) != len(questions) - 1:
            found = f"{len(texts)} answers before the arrow in 'map': {left}"
            expected = f"{len(questions) - 1} with '{AND}' between them, one for each premise"
            raise ConsilienceError(found, expected=expected)
        key = tuple(_answer_of(*one) for one in zip(texts, questions[:-1], strict=True))
        if key in rules:
            todo = f"Join what it implies with '{OR}'."
            raise ConsilienceError(f"'{left}' more than once in 'map'", todo=todo)
        conclusions = right if isinstance(right, list | tuple) else str(right).split(OR)
        answers = (_answer_of(str(one), questions[-1]) for one in conclusions)
        rules[key] = tuple(dict.fromkeys(answers))
    return rules


def _answer_of(name: str, question: Question) -> str:
    """The option that a text names, or the text for an open question; an unknown one raises."""
    name = text(name) or ""
    if not question.options:
        return name
    texts = [option.text for option in question.options]
    at = position(name, texts)
    if at is None:
        aliases = {one: at for at, option in enumerate(question.options) for one in option.texts}
        at = aliases.get(name)
    if at is None:
        expected = f"one of the options of '{question.item}': {', '.join(texts)}"
        raise ConsilienceError(f"the answer '{name}'", expected=expected)
    return texts[at]


MINI = Path(__file__).with_name("mini")

QUESTION_SUITES = {
    "mini-questions": "the facts of mini as questions with five options, Apache-2.0",
    "mini-open": "the facts of mini as open questions with one right answer, Apache-2.0",
}


def mini_questions(name: str = "mini-questions") -> Questions:
    """The suite of that name, of the facts of ``mini``; ``mini-open`` without N-M relations."""
    is_open = name == "mini-open"
    aliases: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for row in _rows("aliases"):
        key = row["relation"], row["subject"], row["answer"]
        aliases[key] = tuple(row["aliases"].split(SEPARATOR))
    phrasings: dict[str, list[str]] = defaultdict(list)
    for row in _rows("questions"):
        phrasings[row["relation"]].append(row["question"])
    several = {row["relation"] for row in _rows("relations") if row["cardinality"] == "N-M"}
    sizes: dict[str, int] = defaultdict(int)
    items = []
    for row in _rows("facts"):
        group = row["relation"]
        sizes[group] += 1
        if is_open and group in several:
            continue
        choices = {
            text: Choice(text, aliases.get((group, "", text), ()))
            for text in row["options"].split(SEPARATOR)
        }
        gold = choices[row["object"]]
        of_subject = aliases.get((group, row["subject"], gold.text), ())
        choices[gold.text] = gold = replace(gold, aliases=gold.aliases + of_subject)
        texts = tuple(text.replace(SUBJECT_SLOT, row["subject"]) for text in phrasings[group])
        options = () if is_open else tuple(choices.values())
        item = f"{group}-{sizes[group]}"
        items.append(Question(item, group, {DEFAULT_LANGUAGE: texts}, gold, options))
    return Questions(name, tuple(items))


def _rows(table: str) -> list[dict[str, str]]:
    return [row for _, row in read_rows(MINI / f"{table}.tsv")]


BUNDLED = {"mini": MINI, "mini-languages": MINI.with_name("mini_languages")}

SUITE_NAMES = {
    "mini": "bundled with consilience: 15 relations, Apache-2.0",
    "mini-languages": "7 relations of mini in English, German, Spanish and Japanese, Apache-2.0",
    **QUESTION_SUITES,
    "pararel": "ParaRel, Elazar et al. 2021; `consilience suite fetch pararel` gets it",
    **{name: "{about}; {licence}, {citation}".format(**row) for name, row in _ROWS.items()},
}


HUB = "hub:"
"""``hub:DATASET:SPLIT`` or ``hub:DATASET@CONFIG:SPLIT`` names a split of a data set on the Hub."""

FILE = "questions"
"""The name, without its ending, of the file of questions in a folder."""


def is_questions(spec: str) -> bool:
    """Whether a suite is one of questions: a data set of the Hub, a file or a folder of them.

    A folder with patterns is one of facts, also where it says how they are asked as questions. The
    name of a suite or of a task is never that of a folder.
    """
    known = known_suite(spec)
    if spec.startswith(HUB) or spec in QUESTION_SUITES or (known and not known.is_facts):
        return True
    if known or spec in SUITE_NAMES or spec in TASKS:
        return False
    path = Path(spec)
    is_folder = path.is_dir() and find_table(path, "patterns") is None
    return spec.endswith(SUFFIXES) or (is_folder and bool(find_table(path, FILE)))


def load_questions(
    spec: str | PathLike[str], columns: Names | None = None, data: str | Path | None = None
) -> Questions:
    """The questions of a file, a folder, the Hub or a name; what is wrong raises in one error.

    ``columns``: names of its columns. ``data``: the folder of copies of suites by name.
    """
    path = path_of(spec, "a file of questions")
    spec, columns = str(path), columns or {}
    named = known_suite(spec)
    if columns and (named or spec in QUESTION_SUITES):
        raise ConsilienceError(f"names of columns with the suite '{spec}'", todo="Leave them out.")
    if spec in QUESTION_SUITES:
        return mini_questions(spec)
    if named and not named.is_facts:
        return named.read(data_dir(data))
    problems: Problems = []
    if spec.startswith(HUB):
        place, _, split = spec.removeprefix(HUB).partition(":")
        if not split:
            found, todo = f"{spec} without a split", f"Name one: {HUB}{place or 'DATASET'}:test."
            raise ConsilienceError(found, expected=f"{HUB}DATASET:SPLIT", todo=todo)
        name, _, config = place.partition("@")
        rows = hub_rows(name, config or None, split=split, where=spec)
        title = place.rstrip("/").split("/")[-1].replace("@", "-")
        questions = Questions(title, *questions_of_rows(rows, columns, problems, spec))
        raise_all(problems)
        return questions
    file = find_table(path, FILE) if path.is_dir() else path
    if file is None:
        raise ConsilienceError("no questions", expected=f"a file {FILE}.csv", where=spec)
    if not file.is_file():
        names = [one.name for one in path.parent.glob("*") if one.exists()]
        todo = did_you_mean(path.name, names, otherwise="Check the path.")
        raise ConsilienceError("no such file", where=spec, todo=todo)
    read = questions_of_rows(read_rows(file, problems), columns, problems, str(file))
    questions = Questions(path.resolve().name if path.is_dir() else path.stem, *read)
    if path.is_dir() and not problems:
        questions = with_expectations(questions, path, problems)
    raise_all(problems)
    return replace(questions, source={**columns, "file": str(path.resolve())})


def columns_of(columns: Sequence[str] | None) -> dict[str, str]:
    """``--columns question=stem,options=A+B+C+D`` as a mapping."""
    mapping = {}
    for said in columns or ():
        name, equals, source = said.partition("=")
        if not (name.strip() and equals and source.strip()):
            raise ConsilienceError(
                f"--columns {said}", expected="OURS=YOURS, such as question=stem,answer=label"
            )
        mapping[name.strip()] = COLUMN_JOIN.join(map(str.strip, source.split(COLUMN_JOIN)))
    return mapping


def lots(questions: Questions, seed: int) -> Callable[[Question], tuple[float, str]]:
    """What orders questions at random, whatever their order in the file; the same of linked ones.

    The second part names the question, or one of those that are linked with it.
    """
    linked = linked_questions(one.items for one in questions.expectations)

    def lot(question: Question) -> tuple[float, str]:
        component = linked.get(question.item, question.item)
        return random.Random(f"{seed} {component}").random(), component

    return lot


def select_questions(
    questions: Questions, groups: Sequence[str] | None, limit: int | None, seed: int
) -> Questions:
    """At most ``limit`` questions of some groups, by ``seed``; linked ones are drawn together."""
    by_group, lot = questions.groups, lots(questions, seed)
    groups = rejoined(groups or (), by_group)
    for name in groups:
        if name not in by_group:
            found = f"the suite '{questions.name}' has no group '{name}'"
            raise ConsilienceError(found, todo=did_you_mean(name, list(by_group)))
    chosen: list[Question] = []
    for name, items in by_group.items():
        if groups and name not in groups:
            continue
        sampled = items if limit is None else sorted(items, key=lot)[:limit]
        names = {question.item for question in sampled}
        chosen += (question for question in items if question.item in names)
    return replace(questions, items=tuple(chosen))


def refuse_mixed(questions: Questions) -> None:
    """Raise for a group with questions that have options and open ones."""
    for name, items in questions.groups.items():
        sizes = [len(item.options) for item in items]
        if 0 in sizes and any(sizes):
            open_one, other = items[sizes.index(0)], items[sizes.index(max(sizes))]
            raise ConsilienceError(
                f"the group '{name}' has questions with options and without",
                expected=f"options for '{open_one.item}' as for '{other.item}', or for neither",
                todo="Put open questions into a group of their own.",
            )


WORDS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("words.toml").read_text("utf-8")
)
"""What models read around the texts of a suite, by language and name."""


def words_in(language: str) -> Mapping[str, str]:
    """The words of a language, of its primary one (``pt`` of ``pt-BR``), or else English."""
    return WORDS.get(language) or WORDS.get(language.partition("-")[0]) or WORDS[ENGLISH]


def without_words(languages: Iterable[str]) -> list[str]:
    """The languages that would have English words."""
    return [one for one in dict.fromkeys(languages) if not {one, one.partition("-")[0]} & {*WORDS}]


BLANK = "____"  # Of the object in the question of a fact; the subject is filled in


def questions_of_suite(suite: Suite, distractors: int | None = None, seed: int = 0) -> Questions:
    """All relations of a suite as questions, a group each (``questions_of_relation``)."""
    languages = [*dict.fromkeys(pattern.language for one in suite for pattern in one.patterns)]
    several = len(languages) > 1
    parts = [
        questions_of_relation(relation, distractors, seed, several) for relation in suite.relations
    ]
    items = tuple(question for part in parts for question in part.items)
    notes = [note for part in parts for note in part.notes]
    if not items:
        raise ConsilienceError(
            f"no question can be made of '{suite.name}'",
            expected="subjects with one right object",
            todo="Ask with options.",
        )
    if alone := without_words(languages):
        notes.append(
            f"questions in {listed(alone, len(alone))} are the sentence with its blank, without "
            "words such as 'Fill in the blank'"
        )
    return Questions(suite.name, items, (*suite.notes, *notes))


def questions_of_relation(
    relation: Relation, distractors: int | None = None, seed: int = 0, several: bool | None = None
) -> Questions:
    """The facts of a relation as questions, with a phrasing for each pattern.

    ``distractors``: how many wrong options each question has, drawn by ``seed`` from the candidates
    of the relation without replacement, gold and distractors in an order drawn by it, too. None has
    all candidates, in their order. 0 makes open questions.

    Patterns in several languages are phrasings in these languages, whose options are written in
    the language of the pattern; all ways to write an option are its aliases.

    In a relation with several right objects for a subject (N-M), the other right objects are no
    options, so exactly one option is right. A subject with several right objects is no open
    question and is left out, with a note. Of such a relation all facts are needed: a sample of them
    raises, because another right object could be unknown.

    ``several``: whether phrasings name their language; None where the patterns have several.
    """
    several = bool(relation.design.languages) if several is None else several
    total = sum(relation.candidates.counts)
    if relation.cardinality == "N-M" and len(relation.facts) < total:
        raise ConsilienceError(
            f"{len(relation.facts)} of {total} facts of the relation '{relation.id}' (N-M)",
            expected="all its facts, to know every right object of a subject",
            todo="Make the questions of the whole suite, and take a sample of the questions.",
        )
    golds: dict[str, dict[str, None]] = {}
    for fact in relation.facts:
        golds.setdefault(fact.subject, {})[normal(fact.object)] = None
    facts, notes = list(relation.facts), []
    if distractors == 0:
        facts = [fact for fact in relation.facts if len(golds[fact.subject]) == 1]
        left_out = {fact.subject for fact in relation.facts if len(golds[fact.subject]) > 1}
        if left_out:
            notes.append(
                f"{relation.id}: {counted(len(left_out), 'subject')} with several right objects "
                "cannot be an open question with one answer and were left out"
            )
    choices = _choices(relation)
    items = []
    for fact in facts:
        words: tuple[str, ...] = ()
        if distractors != 0:
            words = _options(relation, fact, golds[fact.subject], distractors, seed)
        items.append(_question(relation, fact, words, choices, several))
    return Questions(relation.id, tuple(items), tuple(notes))


def _choices(relation: Relation) -> dict[str, Choice]:
    """The candidates with all ways to write them, without a text that another one has, too."""
    texts = {
        word: list(dict.fromkeys([word, *(relation.written(word, of) for of in relation.names)]))
        for word in relation.candidates.words
    }
    counts = Counter(normal(text) for of_word in texts.values() for text in set(of_word))
    return {
        word: Choice(word, tuple(text for text in of_word[1:] if counts[normal(text)] == 1))
        for word, of_word in texts.items()
    }


def _question(
    relation: Relation,
    fact: Fact,
    options: tuple[str, ...],
    choices: Mapping[str, Choice],
    several: bool,
) -> Question:
    phrasings: dict[str, list[str]] = {}
    written = {}
    for pattern in relation.patterns:
        language = pattern.language if several else DEFAULT_LANGUAGE
        subject = relation.query(pattern, fact).subject
        of_language = phrasings.setdefault(language, [])
        if relation.names:
            written[language, len(of_language)] = tuple(
                relation.written(word, pattern.language) for word in options or (fact.object,)
            )
        words = words_in(pattern.language)["blank"]
        words = "{sentence}" if without_words([pattern.language]) else words
        of_language.append(words.replace("{sentence}", pattern.fill(subject, BLANK)))
    return Question(
        fact.item,
        relation.id,
        {language: tuple(texts) for language, texts in phrasings.items()},
        choices[fact.object],
        tuple(choices[word] for word in options),
        written=written,
    )


def _options(
    relation: Relation, fact: Fact, golds: dict[str, None], distractors: int | None, seed: int
) -> tuple[str, ...]:
    """The texts of the options of a fact; ``golds``: the right objects of its subject."""
    words: dict[str, str] = {}
    for word in relation.candidates.words:
        words.setdefault(normal(word), word)
    wrong = {key: word for key, word in words.items() if key not in golds}
    if distractors is None:
        gold = normal(fact.object)
        shown = wrong | {gold: fact.object}
        return tuple(shown[key] for key in words if key in shown)
    if distractors > len(wrong):
        raise ConsilienceError(
            f"{counted(len(wrong), 'wrong candidate')} for '{fact.subject}'",
            expected=f"{distractors} or more, to draw distractors from",
            where=f"the relation '{relation.id}'",
            todo="Ask with fewer distractors.",
        )
    generator = random.Random(f"{seed}\t{relation.id}\t{fact.item}")
    drawn = [fact.object, *generator.sample(list(wrong.values()), distractors)]
    return tuple(generator.sample(drawn, len(drawn)))


FEW_TO_BALANCE = 5  # Questions whose right answers may be at one position by chance


def gold_position_notes(items: Sequence[Question]) -> list[str]:
    """A note where the right answer is at the same position in all questions; else none."""
    positions = {item.gold_position for item in items if item.options}
    if len(positions) != 1 or len(items) < FEW_TO_BALANCE:
        return []
    position = f"option {positions.pop() + 1} of every question"
    return [f"the right answer is {position}; a model that always chooses it is right"]
