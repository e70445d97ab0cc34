"""The facts of ``mini`` as questions: with options, or open.

``questions.tsv`` has the phrasings of each relation, ``facts.tsv`` the options of each fact in the
order in which they are shown, and ``aliases.tsv`` other texts of an answer: in all facts of a
relation, or of one subject. How the options were chosen and checked is in
``docs/mini-questions.md``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from consilience.cloze import SUBJECT_SLOT
from consilience.questions import DEFAULT_LANGUAGE, Choice, Question
from consilience.read import read_rows
from consilience.suites.question_collection import Questions
from consilience.suites.question_rows import OPTION_SEPARATOR

FOLDER = Path(__file__).parent / "mini"

NAMES = {
    "mini-questions": "the facts of mini as questions with five options, Apache-2.0",
    "mini-open": "the facts of mini as open questions with one right answer, Apache-2.0",
}
"""The suites that are made of ``mini``, and what they are."""


def mini_questions(name: str = "mini-questions") -> Questions:
    """The suite of that name, one of ``NAMES``; its items are the facts of ``mini``, in its order.

    ``mini-open`` has no relation in which several answers to a question are right (N-M).
    """
    is_open = name == "mini-open"
    aliases: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for row in _rows("aliases"):
        choice = Choice.parse(row["answer"])
        aliases[row["relation"], row["subject"], choice.text] = choice.aliases
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
            for text in row["options"].split(OPTION_SEPARATOR)
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
    return [row for _, row in read_rows(FOLDER / f"{table}.tsv", quoted=False)]
