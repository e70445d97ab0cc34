"""All answers of runs as one page: a table of items that a reader filters and walks through."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import chain
from typing import Any

import polars as pl

from consilience.core.schemas import REASONS
from consilience.core.text import visible
from consilience.report.run_view import group_names
from consilience.types import Suite

WRONG, RIGHT, ELSEWHERE, NONE = range(4)
"""Verdicts on a reply: wrong, the gold, the gold of another fact of the subject, and no answer."""

FIRST_RUN = 5  # The place of the replies of the first run in an item
ANSWER = ("group", "item", "subject", "gold", "answer", "variant")
WRITTEN = ("text", *REASONS)  # Columns that not every answers table has


class Numbers(dict[Any, int]):
    """The number of each value, in the order in which they were first asked for."""

    def __missing__(self, value: Any) -> int:
        self[value] = len(self)
        return self[value]


class Texts(Numbers):
    """Numbers of texts, each ``visible``."""

    def __missing__(self, value: str) -> int:
        return super().__missing__(value) if value == (shown := visible(value)) else self[shown]


def answers_page(
    runs: Mapping[str, pl.DataFrame],
    suite: Suite,
    prompts: pl.DataFrame | None,
    notes: Sequence[str] = (),
) -> str:
    """The page, as HTML that needs no network.

    ``runs``: the answers tables by the names of the runs, of the same items in the variants of
    ``suite``. ``prompts``: what was sent (``group, item, variant, prompt``); None where that is not
    known. Control characters and bidi controls become U+FFFD. The data are packed by gzip.
    """
    title = visible(f"Answers of {' and '.join(runs)}")
    data = {"notes": [*map(visible, notes)], **answers_data(runs, suite, prompts)}
    script = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    packed = b64encode(gzip.compress(script, mtime=0)).decode()
    page = (files("consilience.report") / "answers.html").read_text(encoding="utf-8")
    return page.replace("@TITLE@", escape(title)).replace("@DATA@", packed)


def answers_data(
    runs: Mapping[str, pl.DataFrame], suite: Suite, prompts: pl.DataFrame | None
) -> dict[str, Any]:
    """What the script of the page reads; -1 is none of a list.

    - ``texts``: every text once. All other texts are numbers of it.
    - ``prompts``: the lines of each prompt. ``replies``: of each different reply the verdict
      (``WRONG``, ...), the answer, and what was written or why there is no answer.
    - ``factors``: names and levels. ``groups``: the name, the variants, and for each variant the
      level of each factor.
    - ``items``: group, item, subject, gold, the prompts, and the replies of each run; prompts and
      replies by variant.
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
        more = [name for name in WRITTEN if name in answers.columns]
        for row in answers.select(pl.col(*ANSWER, *more).cast(pl.String)).iter_rows(named=True):
            group, item, subject, gold, answer = (row[name] for name in ANSWER[:5])
            if (group, item) not in items:
                heads = [numbers[group], texts[item], texts[subject], texts[gold]]
                of_variants = ([-1] * len(places[group]) for _ in (None, *runs))
                items[group, item] = [*heads, *of_variants]
            verdict, said = WRONG, row.get("text")
            if answer is None:
                verdict, said = NONE, row.get("excluded") or row.get("error")
            elif answer == gold:
                verdict = RIGHT
            elif (group, subject, answer) in golds:
                verdict = ELSEWHERE
            said = None if said == answer else said
            of_texts = (-1 if text is None else texts[text] for text in (answer, said))
            reply = replies[verdict, *of_texts]
            items[group, item][FIRST_RUN + run][places[group][row["variant"]]] = reply
    for group, item, variant, prompt in prompts.iter_rows() if prompts is not None else ():
        if (group, item) in items and variant in places[group]:
            lines = tuple(texts[line] for line in prompt.split("\n"))
            items[group, item][FIRST_RUN - 1][places[group][variant]] = sent[lines]
    factors, names = _factors(suite), group_names(suite)
    return {
        "runs": [*map(visible, runs)],
        "suite": visible(suite.name),
        "words": [suite.words.group, suite.words.item, suite.words.variant],
        "factors": [[name, [*map(visible, of)]] for name, of in factors.items()],
        "groups": [
            [
                visible(names[group.id]),
                [texts[name] for name in group.design.variants],
                [
                    [
                        of[group.design.levels[name][at]] if name in group.design.levels else -1
                        for name, of in factors.items()
                    ]
                    for at in range(len(group.design.variants))
                ],
            ]
            for group in suite
        ],
        "items": [*items.values()],
        "prompts": [*sent],
        "replies": [*replies],
        "texts": [*texts],
    }


def _factors(suite: Suite) -> dict[str, dict[str, int]]:
    """The factors with several levels, and the number of each level."""
    factors: dict[str, dict[str, int]] = {}
    for name, levels in chain.from_iterable(group.design.levels.items() for group in suite):
        for level in levels:
            factors.setdefault(name, Numbers())[level]
    return {name: levels for name, levels in factors.items() if len(levels) > 1}
