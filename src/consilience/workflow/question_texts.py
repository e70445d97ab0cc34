"""Which questions of several runs have the same text, whatever their ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from consilience.errors import ConsilienceError
from consilience.factors import FactorialDesign
from consilience.questions import Question
from consilience.run import Run
from consilience.text import counted

SHOWN = 5
"""Questions that a note names."""

PARTS = "in text, options or gold answer between"
"""What a message says of questions that changed, before the two runs."""


def text_digests(questions: Iterable[Question], design: FactorialDesign) -> dict[str, str]:
    """A digest of the text of each question by item: group, phrasings, options, gold and context.

    Phrasings that ``design`` does not ask are left out. It has 64 bits of SHA-256, in hexadecimal.
    """
    levels = {factor.name: factor.levels for factor in design.factors}
    phrasings = [int(level) - 1 for level in levels.get("paraphrase", ("1",))]
    languages = levels.get("language")
    digests = {}
    for question in questions:
        content = [
            question.group,
            [
                [language, at, texts[at], question.written.get((language, at))]
                for language, texts in question.paraphrases.items()
                for at in phrasings
                if at < len(texts) and (languages is None or language in languages)
            ],
            question.gold.texts,
            [option.texts for option in question.options],
            question.context,
        ]
        text = json.dumps(content, ensure_ascii=False)
        digests[question.item] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return digests


def paired_by_text(runs: Sequence[Run]) -> tuple[dict[str, list[pl.DataFrame]], list[str]]:
    """The answers of each run by its label, in which equal items have equal texts, and notes.

    Questions are named as in the first run. Those of which a later run has another text are left
    out of all runs. Runs that do not know their texts are as they are: tables, earlier versions,
    facts and sentence pairs.
    """
    first, notes = runs[0].seeds[0].texts, []
    left_out: list[str] = []
    tables: dict[str, list[pl.DataFrame]] = {}
    for run in runs:
        tables[run.label], changed = [], []
        for part in run.seeds:
            names, others = _names(first, part.texts)
            renamed = pl.col("item", "subject").replace(names)
            tables[run.label].append(part.answers.with_columns(renamed) if names else part.answers)
            changed += [item for item in others if item not in changed]
        if changed and not {*first.values()} & {*run.seeds[0].texts.values()}:
            raise ConsilienceError(
                f"all questions differ {PARTS} {runs[0].label} and {run.label}",
                expected="runs with questions in common",
                where=str(run.path),
                todo="Probe both with the same --suite.",
            )
        if changed:
            notes.append(_in_words(changed, run.label, runs[0].label))
        left_out += changed
    if left_out:
        tables = {
            label: [table.filter(~pl.col("item").is_in(left_out)) for table in seeds]
            for label, seeds in tables.items()
        }
    return tables, notes


def _names(first: Mapping[str, str], texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What items of a run are called in the first run, and those with another text.

    An item that the first run has with another text is renamed if both texts are in only one of
    the runs under that name, such as after a row of a file without ids was removed.
    """
    if not first or not texts:
        return {}, []
    names: dict[str, str] = {}
    changed = []
    same = {item for item, digest in texts.items() if first.get(item) == digest}
    known = {digest: item for item, digest in first.items() if item not in same}
    present = {*texts.values()}
    for item, digest in texts.items():
        if item in same:
            continue
        if digest in known:
            names[item] = known.pop(digest)
        elif item in first and first[item] in present:
            names[item] = f"{item} (other text)"
        elif item in first:
            changed.append(item)
    return names, changed


def _in_words(items: Sequence[str], label: str, first: str) -> str:
    """A note on items that are left out."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    differ = "differs" if len(items) == 1 else "differ"
    return (
        f"{counted(len(items), 'question')} {differ} {PARTS} {first} and {label}, so not compared: "
        f"{', '.join(items[:SHOWN])}{more}"
    )
