"""Noise floors: answers that change though nothing that decides them does.

Some prompts of a run are asked again, in other batches than those of the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl

from consilience.core.errors import Advance
from consilience.core.schemas import METRICS_SCHEMA, NOISE_FLOOR
from consilience.metrics.errors import estimates
from consilience.metrics.registry import Clusters, Tally
from consilience.metrics.statistics import NAN

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


def noise_floor(parts: Sequence[Part], advance: Advance = lambda done: None) -> pl.DataFrame:
    """A row of the metrics table: the share of the answers of a sample that changed.

    ``n``: the prompts that were answered twice. An item is a cluster of them. NaN where there are
    none.
    """
    changed, items = list[float](), list[str]()
    for part in parts:
        now = part.ask(part.items, part.variants)
        again = dict(zip(now.select("item", "variant").iter_rows(), _said(now), strict=True))
        columns = part.first.select("group", "item", "variant").iter_rows()
        for (group, item, variant), before in zip(columns, _said(part.first), strict=True):
            after = again.get((item, variant))
            changed.append(NAN if None in (before, after) else float(before != after))
            items.append(f"{group}\n{item}")
        advance(now.height)
    tally = Tally.of_values(Clusters.of(items), np.array(changed))
    row = {
        "metric": NOISE_FLOOR, "over": "all", "group": "", "kind": "whole", "level": "",
        **asdict(estimates({"": tally})[""]), "std": NAN,
    }  # fmt: skip
    return pl.DataFrame([row], schema=METRICS_SCHEMA)


def _said(answers: pl.DataFrame) -> list[str | None]:
    """The answers; where options were chosen, by their position."""
    if "option" not in answers.columns:
        return list(answers["answer"])
    option = pl.format("option {}", "option")
    return list(answers.select(pl.coalesce(option, "answer")).to_series())
