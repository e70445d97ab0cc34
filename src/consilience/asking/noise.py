"""Noise floors: answers that change though nothing that decides them does.

A model here answers a sample again in other batches and another order. A server gets a sample of
the prompts of a run again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from consilience.asking import asker
from consilience.asking.asker import Progress
from consilience.asking.facts import facts_of, scores_of_facts
from consilience.asking.pairs import Presented, pairs_of
from consilience.asking.questions import Presenter, ask_asks, ask_of, group_of
from consilience.core.items import Ask, Group, Question
from consilience.core.schemas import FLIPS, METRICS_SCHEMA
from consilience.metrics.statistics import wilson_interval
from consilience.types import Suite

MOST_SAMPLED_CELLS = 16  # Variants of a question that are asked again
Answers = list[str | None]
Sample = tuple[Callable[[Any, Sequence[Ask]], Answers], Sequence[Ask]]


def noise_floor(
    samples: Sequence[Sample], model: Any, suite: str, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """A row of the metrics table (``METRICS_SCHEMA``): the share of changed answers of samples.

    ``n``: the asks answered both times.
    """
    first, again = Answers(), Answers()
    for answer, asks in samples:
        first += answer(model, asks)
        again += _reordered(partial(answer, model), asks)
        progress(len(asks))
    return flips_row(suite, "reordered", first, again)


def fact_samples(
    suite: Suite, size: int, generator: random.Random, *, whole_vocabulary: bool = False
) -> list[Sample]:
    """About equally many queries of each relation, any fact in any pattern."""
    relations = [relation for relation in suite.relations if relation.facts]
    samples: list[Sample] = []
    for relation, share in zip(relations, _shares(size, len(relations)), strict=False):
        group = facts_of(relation, suite.name, whole_vocabulary=whole_vocabulary)
        among = None if whole_vocabulary else relation

        def ask(some: Group, model: Any, among: Any = among) -> pl.DataFrame:
            return asker.ask(some, partial(scores_of_facts, model, among, every=False))

        asks = generator.sample(group.asks, min(share, len(group.asks)))
        samples.append((partial(_answers, group, ask), asks))
    return samples


def pair_samples(presented: Presented, size: int, generator: random.Random) -> list[Sample]:
    """Any pairs that can be asked, in any forms."""
    group = pairs_of(presented, presented.task.name)
    asks = [one for one in group.asks if one.why_not is None]
    asks = generator.sample(asks, min(size, len(asks)))
    return [(partial(_answers, group, lambda some, of: asker.ask(some, of.score)), asks)]


def question_samples(
    groups: Sequence[tuple[Sequence[Question], Presenter]], size: int, generator: random.Random
) -> list[Sample]:
    """Questions with options of each group, in as few variants of each as give the size.

    Variants of one question are not independent, and the interval takes them so.
    """
    samples: list[Sample] = []
    for (questions, presenter), share in zip(groups, _shares(size, len(groups)), strict=False):
        design = presenter.design
        drawn = generator.sample(questions, min(share, len(questions)))
        most = min(MOST_SAMPLED_CELLS, len(design.cells), -(-share // max(1, len(drawn))))
        asks = [
            ask_of(at, design.cells.index(cell), presenter.prompt(question, cell))
            for at, question in enumerate(drawn)
            for cell in generator.sample(design.cells, most)
        ][:share]
        group = group_of(drawn, design, asks, "")
        samples.append((partial(_answers, group, partial(ask_asks, presenter)), asks))
    return samples


def _shares(size: int, groups: int) -> list[int]:
    """How many of ``size`` each group gets; with fewer than one each the first get one."""
    groups = min(size, groups)
    return [size * (at + 1) // groups - size * at // groups for at in range(groups)]


def _answers(
    group: Group, ask: Callable[[Group, Any], pl.DataFrame], model: Any, asks: Sequence[Ask]
) -> Answers:
    table = ask(replace(group, asks=asks), model)
    if "option" in table.columns:
        option = pl.col("option").cast(pl.String)
        table = table.with_columns(answer=pl.coalesce(option, "answer"))
    return list(table["answer"])


def flips_row(suite: str, variation: str, first: Answers, again: Answers) -> pl.DataFrame:
    """A row of the metrics table: the share of answers that differ, with Wilson's interval."""
    pairs = [(a, b) for a, b in zip(first, again, strict=True) if None not in (a, b)]
    share = sum(a != b for a, b in pairs) / len(pairs) if pairs else float("nan")
    low, high = wilson_interval(share, len(pairs))
    row = {
        "metric": FLIPS, "suite": suite, "group": "MICRO", "subset": variation, "value": share,
        "std": float("nan"), "low": low, "high": high, "n": len(pairs),
        "n_excluded": len(first) - len(pairs),
    }  # fmt: skip
    return pl.DataFrame([row], schema=METRICS_SCHEMA)


def _reordered(answer: Callable[[Sequence[Ask]], Answers], asks: Sequence[Ask]) -> Answers:
    order = list(range(len(asks)))
    random.Random(len(asks)).shuffle(order)
    by_row = dict(zip(order, answer([asks[row] for row in order]), strict=True))
    return [by_row[row] for row in range(len(asks))]


MOST, SHARE = 64, 20
"""Of a sample whose size nobody chose: its prompts at most, and how many times more the run has."""

TOGETHER, VARIANTS = 8, 2  # Prompts of each group in a sample; variants of each item


@dataclass(frozen=True, slots=True)
class Part:
    """A group of a run, and the items and the variants of it, by position, that are asked again."""

    answers: pl.DataFrame  # The answers of the run
    ask: Callable[[Sequence[str], Sequence[int]], pl.DataFrame]
    items: Sequence[str] = ()
    variants: Sequence[int] = ()

    @property
    def first(self) -> pl.DataFrame:
        is_in = pl.col("item").is_in(self.items) & pl.col("variant_index").is_in(self.variants)
        return self.answers.filter(is_in)


def sample_size(prompts: int, wanted: int | None) -> int:
    """How many of the ``prompts`` of a run are sent again; see ``MOST``."""
    return min(MOST, prompts // SHARE) if wanted is None else min(wanted, prompts)


def sample(groups: Sequence[Part], size: int, seed: int) -> list[Part]:
    """``size`` prompts that have answers, drawn by the seed: some items of some groups.

    Fewer where the groups have fewer. Of each group two variants, more where it has few items.
    """
    generator = random.Random(seed)
    answered = [group for group in groups if group.answers["answer"].count()]
    groups_wanted, parts, left = min(len(answered), max(1, size // TOGETHER)), list[Part](), size
    for at, group in enumerate(generator.sample(answered, len(answered))):
        if left <= 0:
            break
        share = -(-left // max(1, groups_wanted - at))
        rows = group.answers.drop_nulls("answer")
        items = rows["item"].unique(maintain_order=True).to_list()
        positions = rows["variant_index"].unique(maintain_order=True).to_list()
        several = min(max(VARIANTS, -(-share // len(items))), len(positions), share)
        variants = sorted(generator.sample(positions, several))
        drawn = generator.sample(items, min(len(items), -(-share // several)))
        whole, rest = divmod(share, several)
        chosen = (drawn[:whole], variants), (drawn[whole:], variants[:rest])
        of_group = [replace(group, items=some, variants=of_some) for some, of_some in chosen]
        parts += [part for part in of_group if part.items]
        left -= sum(part.first.height for part in of_group if part.items)
    return parts


def server_noise_floor(
    parts: Sequence[Part], suite: str, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """A row of the metrics table (``METRICS_SCHEMA``): what changed of a sample.

    ``n``: the prompts that were answered twice.
    """
    first, again = Answers(), Answers()
    for part in parts:
        now = part.ask(part.items, part.variants)
        answers = dict(zip(now.select("item", "variant").iter_rows(), _said(now), strict=True))
        rows = part.first.select("item", "variant").iter_rows()
        first += _said(part.first)
        again += [answers.get(row) for row in rows]
        progress(now.height)
    return flips_row(suite, "repeated", first, again)


def _said(answers: pl.DataFrame) -> Answers:
    """The answers; where options were chosen, by their position."""
    if "option" not in answers.columns:
        return list(answers["answer"])
    option = pl.format("option {}", "option")
    return list(answers.select(pl.coalesce(option, "answer")).to_series())
