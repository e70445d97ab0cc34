"""Suites of questions: bundled ones, folders and files, phrasings, questions from facts, sizes."""

from __future__ import annotations

import random
import shlex
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.expectations import linked_questions
from consilience.core.items import DEFAULT_LANGUAGE, Choice, Question
from consilience.core.patterns import ENGLISH, SUBJECT_SLOT
from consilience.core.text import counted, listed, rejoined
from consilience.files.read import SUFFIXES, Problems, hub_rows, read_rows
from consilience.files.rows import find_table, raise_all
from consilience.files.write import path_of
from consilience.suites.expectations import with_expectations
from consilience.suites.known import ABOUT, data_dir, known_suite
from consilience.suites.pairs import TASKS
from consilience.suites.questions import (
    COLUMN_JOIN,
    SEPARATOR,
    Names,
    Questions,
    normal,
    questions_of_rows,
)
from consilience.types import Fact, Relation, Suite

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
    **ABOUT,
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
    if spec.startswith(HUB) or spec in QUESTION_SUITES or known_suite(spec):
        return True
    if spec in SUITE_NAMES or spec in TASKS:
        return False
    path = Path(spec)
    is_folder = path.is_dir() and find_table(path, "patterns") is None
    return spec.endswith(SUFFIXES) or (is_folder and bool(find_table(path, FILE)))


def load_questions(
    spec: str | PathLike[str], columns: Names | None = None, data: Path | None = None
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
    if named:
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
        names = (
            [one.name for one in path.parent.iterdir() if one.exists()]
            if path.parent.is_dir()
            else []
        )
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
    for text in columns or ():
        name, equals, source = text.partition("=")
        if not (name.strip() and equals and source.strip()):
            raise ConsilienceError(
                f"--columns {text}", expected="OURS=YOURS, such as question=stem,answer=label"
            )
        mapping[name.strip()] = COLUMN_JOIN.join(map(str.strip, source.split(COLUMN_JOIN)))
    return mapping


def columns_flag(columns: Names) -> str:
    """The option ``--columns`` of a command that is printed; empty without columns."""
    named = ",".join(f"{name}={source}" for name, source in columns.items())
    return f" --columns {shlex.quote(named)}" if named else ""


def select_questions(
    questions: Questions, groups: Sequence[str] | None, limit: int | None, seed: int
) -> Questions:
    """At most ``limit`` questions of some groups, by ``seed``; linked ones are drawn together."""
    by_group = questions.groups
    linked = linked_questions(one.items for one in questions.expectations)

    def drawn(question: Question) -> tuple[float, str]:
        component = linked.get(question.item, question.item)
        return random.Random(f"{seed} {component}").random(), component

    groups = rejoined(groups or (), by_group)
    for name in groups:
        if name not in by_group:
            found = f"the suite '{questions.name}' has no group '{name}'"
            raise ConsilienceError(found, todo=did_you_mean(name, list(by_group)))
    chosen: list[Question] = []
    for name, items in by_group.items():
        if groups and name not in groups:
            continue
        sampled = items if limit is None else sorted(items, key=drawn)[:limit]
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


Words = Mapping[str, Mapping[str, str]]  # By language and name

WORDS: Words = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
"""What models read around the texts of a suite."""


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
        of_language.append(words.replace("{sentence}", pattern.fill_blank(subject, BLANK)))
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


def gold_position_note(items: Sequence[Question]) -> str:
    """A sentence where the right answer is at the same position in all questions; or empty."""
    positions = {item.gold_position for item in items if item.options}
    if len(positions) != 1 or len(items) < FEW_TO_BALANCE:
        return ""
    position = f"option {positions.pop() + 1} of every question"
    return f"the right answer is {position}; a model that always chooses it is right"
