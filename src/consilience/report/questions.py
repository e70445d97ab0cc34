"""The questions of the page: every item with its prompts and its answers, for a script."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import polars as pl

from consilience.core.factors import Design
from consilience.core.text import visible
from consilience.report.analysis_tables import lines_asked
from consilience.report.columns import group_names
from consilience.types import Suite

WRONG, RIGHT, ELSEWHERE, NONE, LEFT_OUT = range(5)
"""Verdicts on a reply: wrong, the gold, the gold of another fact of the subject, no answer, and not
counted."""

PROMPTS, FIRST_RUN = 4, 5  # The places of the prompts and of the first run's replies in an item
KEY = ("group", "item", "variant")
WRITTEN = ("text", "excluded", "error")  # Columns that not every answers table has


class Numbers(dict[Any, int]):
    """The number of each value, in the order in which they were first asked for."""

    def __missing__(self, value: Any) -> int:
        self[value] = len(self)
        return self[value]


class Texts(Numbers):
    """Numbers of texts, each ``visible``."""

    def __missing__(self, value: str) -> int:
        return super().__missing__(value) if value == (shown := visible(value)) else self[shown]


def packed(data: Mapping[str, Any]) -> str:
    """What the script reads, as the text of an element: JSON by gzip, in base64."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return b64encode(gzip.compress(text, mtime=0)).decode()


def question_data(
    runs: Mapping[str, pl.DataFrame], suite: Suite, queries: pl.DataFrame
) -> dict[str, Any]:
    """Every item with its answers, for the script of the page; -1 is none of a list.

    - ``texts``: every text once. All other texts are numbers of it.
    - ``prompts``: the lines of each prompt. ``replies``: of each different reply the verdict
      (``WRONG``, ...), the answer, and what was written or why there is no answer.
    - ``factors``: names and levels. ``groups``: the name, the variants, and for each variant the
      level of each factor.
    - ``items``: group, item, what it asks, gold, the prompts, and the replies of each run; prompts
      and replies by variant.

    ``runs``: the answers tables by the names of the runs, of the same items in the variants of
    ``suite``. ``queries``: what was asked (``QUERIES_SCHEMA``).
    """
    texts, sent, replies = Texts(), Numbers(), Numbers()
    places = {
        group.id: {name: at for at, name in reversed([*enumerate(group.design.variants)])}
        for group in suite
    }
    numbers = {group.id: at for at, group in enumerate(suite)}
    golds = {(group.id, fact.subject, fact.object) for group in suite for fact in group.facts}
    items: dict[tuple[str, str], list[Any]] = {}
    for run, answers in enumerate(runs.values()):
        known = [name for name in WRITTEN if name in answers.columns]
        columns = answers.select(pl.col(*KEY, "subject", "gold", "answer", *known).cast(pl.String))
        for row in columns.iter_rows(named=True):
            key = group, item = row["group"], row["item"]
            if key not in items:
                heads = [numbers[group], *(texts[row[of]] for of in ("item", "subject", "gold"))]
                of_variants = ([-1] * len(places[group]) for _ in (None, *runs))
                items[key] = [*heads, *of_variants]
            answer, said, why = row["answer"], row.get("text"), row.get("excluded")
            verdict = WRONG
            if answer is None:
                verdict, said = NONE if why is None else LEFT_OUT, why or row.get("error") or said
            elif answer == row["gold"]:
                verdict = RIGHT
            elif (group, row["subject"], answer) in golds:
                verdict = ELSEWHERE
            of_texts = (
                -1 if text is None else texts[text]
                for text in (answer, None if said == answer else said)
            )
            items[key][FIRST_RUN + run][places[group][row["variant"]]] = replies[verdict, *of_texts]
    for group, item, variant, parts in queries.select(*KEY, "input").iter_rows():
        if (group, item) in items and variant in places[group]:
            lines = tuple(texts[line] for part in parts for line in part.split("\n"))
            items[group, item][PROMPTS][places[group][variant]] = sent[lines]
    for key, question in _asked(queries, suite.words.is_pooled):
        if key in items and question:
            items[key][2] = texts[question]
    factors, names = _factors(suite), group_names(suite)
    return {
        "runs": [*map(visible, runs)],
        "words": [suite.words.group, suite.words.item, suite.words.variant],
        "patterns": suite.words.has_means,
        "factors": [[name, [*map(visible, of)]] for name, of in factors.items()],
        "groups": [
            [visible(names[group.id]), *_variants(group.design, factors, texts)]
            for group in suite
        ],
        "items": [*items.values()],
        "prompts": [*sent],
        "replies": [*replies],
        "texts": [*texts],
    }  # fmt: skip


def _variants(
    design: Design, factors: Mapping[str, Mapping[str, int]], texts: Texts
) -> Iterator[list[Any]]:
    """The names of the variants, and the level of each factor in each of them."""
    yield [texts[name] for name in design.variants]
    levels = [design.levels.get(name) for name in factors]
    yield [
        [
            -1 if of is None else known[of[at]]
            for of, known in zip(levels, factors.values(), strict=True)
        ]
        for at in range(len(design.variants))
    ]


def _factors(suite: Suite) -> dict[str, dict[str, int]]:
    """The factors with several levels, and the number of each level."""
    factors: dict[str, dict[str, int]] = {}
    for name, levels in chain.from_iterable(group.design.levels.items() for group in suite):
        for level in levels:
            factors.setdefault(name, Numbers())[level]
    return {name: levels for name, levels in factors.items() if len(levels) > 1}


def _asked(queries: pl.DataFrame, is_last: bool) -> Iterator[tuple[tuple[str, str], str]]:
    """What each item asks: the lines of its first prompt without its options and what all have.

    ``is_last``: the last of these lines, the question; what is before it are passages or solved
    examples.
    """
    firsts = queries.unique(["group", "item"], keep="first", maintain_order=True)
    rows = firsts.select("group", "item", "input", "choices").rows()
    prompts = [lines_asked("\n".join(parts)) for _, _, parts, _ in rows]
    common = set(prompts[0]).intersection(*prompts) if len(prompts) > 1 else set()
    for (group, item, _, choices), lines in zip(rows, prompts, strict=True):
        before = _before_options(lines, choices or ())
        own = [line for line in before if line not in common] or before
        yield (group, item), " / ".join(own[-1:] if is_last else own)


def _before_options(lines: list[str], choices: Sequence[str]) -> list[str]:
    """The lines before the options: the last lines that begin or end with a choice each."""
    for at in range(len(lines) - len(choices), 0, -1) if choices else ():
        options = zip(lines[at:], choices, strict=False)
        if all(line.startswith(choice) or line.endswith(choice) for line, choice in options):
            return lines[:at]
    return lines
