"""The questions of the page: every item with its prompts and its answers, for a script."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, count
from os.path import commonprefix
from typing import Any

import polars as pl

from consilience.core.factors import Design
from consilience.core.text import visible
from consilience.report.layouts import SPECIAL_TOKENS
from consilience.runs.run import USER
from consilience.types import Suite

WRONG, RIGHT, ELSEWHERE, NONE, LEFT_OUT = range(5)
"""Verdicts on a reply: wrong, the gold, the gold of another fact of the subject, no answer, and not
counted."""

PROMPTS, FIRST_RUN = 4, 5  # The places of the prompts and of the first run's replies in an item
KEY = ("group", "item", "variant")
WRITTEN = ("text", "excluded", "error")  # Columns that not every answers table has

Prompt = tuple[list[str], int, int]  # Its lines, and ``_options``


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
    - ``around``: by variant ``_around``.
    - ``items``: group, item, what it asks, gold, the prompts, and the replies of each run; prompts
      and replies by variant. What it asks: ``_headings``.

    ``runs``: the answers tables by the names of the runs, of the same items in the variants of
    ``suite``. ``queries``: what was asked (``QUERIES_SCHEMA``).
    """
    # the number of each value, in the order in which they were first asked for
    texts, sent, replies = (defaultdict[Any, int](count().__next__) for _ in range(3))
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
    asked: dict[str, dict[tuple[str, str], Prompt]] = {}
    for group, item, variant, parts, choices in queries.select(*KEY, "input", "choices").rows():
        if (group, item) in items and variant in places[group]:
            lines = [line for part in parts for line in part.removeprefix(USER).split("\n")]
            of_lines = tuple(texts[line] for line in lines)
            items[group, item][PROMPTS][places[group][variant]] = sent[of_lines]
            asked.setdefault(variant, {})[group, item] = lines, *_options(lines, choices or ())
    around = {variant: _around([*prompts.values()]) for variant, prompts in asked.items()}
    for key, text in _headings(asked, around, has_lead=suite.words.is_pooled).items():
        items[key][2] = texts[text]
    factors, names = _factors(suite), suite.group_names
    return {
        "runs": [*map(visible, runs)],
        "words": [suite.words.group, suite.words.item, suite.words.variant],
        "patterns": suite.words.has_means,
        "factors": [[name, [*map(visible, of)]] for name, of in factors.items()],
        "groups": [
            [
                visible(names[group.id]),
                [texts[variant] for variant in group.design.variants],
                _levels(group.design, factors),
            ]
            for group in suite
        ],
        "around": {texts[variant]: of for variant, of in around.items()},
        "items": [*items.values()],
        "prompts": [*sent],
        "replies": [*replies],
        "texts": [*map(visible, texts)],
    }  # fmt: skip


def _headings(
    asked: Mapping[str, Mapping[tuple[str, str], Prompt]],
    around: Mapping[str, tuple[int, int]],
    *,
    has_lead: bool,
) -> dict[tuple[str, str], str]:
    """What each item asks: the lines of its first prompt that are its own, before the options.

    ``has_lead``: whether all may begin with a word of a template, such as ``Question: ``.
    """
    asks: dict[tuple[str, str], str] = {}
    for variant, prompts in asked.items():
        begin, end = around[variant]
        texts = {}
        for key, (lines, at, _) in prompts.items():
            own = "\n".join(lines[begin : min(at, len(lines) - end)] or lines[:at])
            bare = (line.strip() for line in SPECIAL_TOKENS.sub("\n", own).splitlines())
            texts[key] = "\n".join(filter(None, bare))
        firsts = {text.partition(" ")[0] for text in texts.values()} if has_lead else set()
        lead = f"{firsts.pop()} " if len(firsts) == 1 < len(texts) else ""
        lead = lead if lead.endswith(": ") else ""
        asks = {key: text.removeprefix(lead) for key, text in texts.items()} | asks
    return {key: text for key, text in asks.items() if text}


def _levels(design: Design, factors: Mapping[str, Mapping[Any, int]]) -> list[list[int]]:
    """The level of each factor in each variant."""
    none = [None] * len(design.variants)
    known = {name: design.levels.get(name, none) for name in factors}
    return [
        [factors[name].get(of[at], -1) for name, of in known.items()] for at in range(len(none))
    ]


def _factors(suite: Suite) -> dict[str, dict[str, int]]:
    """The factors with several levels, and the number of each level."""
    factors: dict[str, dict[str, int]] = {}
    for name, levels in chain.from_iterable(group.design.levels.items() for group in suite):
        for level in levels:
            factors.setdefault(name, defaultdict(count().__next__))[level]
    return {name: levels for name, levels in factors.items() if len(levels) > 1}


def _around(prompts: Sequence[Prompt]) -> tuple[int, int]:
    """How many lines before and after the options all prompts begin and end with."""
    if len(prompts) == 1:
        return 0, 0
    turned = ([lines[::step] for lines, *_ in prompts] for step in (1, -1))
    begin, end = map(len, map(commonprefix, turned))
    begin = min(begin, *(at for _, at, _ in prompts))
    return begin, min(end, *(len(lines) - max(begin, last) for lines, _, last in prompts))


def _options(lines: Sequence[str], choices: Sequence[str]) -> tuple[int, int]:
    """Where the lines that begin with the choices begin and end; without options the end, and 0."""
    places = [len(lines)]
    for choice in reversed(choices):
        known = re.compile(rf"\W{{0,2}}{re.escape(choice.strip())}(\W|$)").match
        places.append(next((of for of in range(places[-1] - 1, 0, -1) if known(lines[of])), 0))
        if not places[-1]:
            return len(lines), 0
    return places[-1], places[1] + 1 if choices else 0
