"""The noise floor of a server: how often an answer changes when the same prompt is sent again.

A sample of the prompts of a run is sent twice more: as the run sent them, and one at a time. The
answers are compared with those of the run. The share that
differs is the metric ``flips``, and the largest change of a log-probability is ``score_change``,
one row a variation. Nothing on this side keeps replies between the repeats; a server may keep
prompts, which is part of how it answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.ask import Progress
from consilience.core.schemas import METRICS_SCHEMA, SCORE_CHANGE
from consilience.noise import flips_row

if TYPE_CHECKING:
    from consilience.endpoints.client import Client

MOST, SHARE = 64, 10
"""Of a sample whose size nobody chose: its prompts at most, and how many times more the run has
than all its repeats together."""

TOGETHER = 8
"""Prompts of each group that is sampled."""

VARIANTS = 2
"""Variants of each item in a sample."""

ALONE = "alone"
"""The variation in which a prompt is sent when there is a reply to the one before it."""

ALWAYS = ("logprob", "text_logprob"), ("gold_logprob", "gold_text_logprob")
"""Columns with the scores of the answer, and of the gold."""


@dataclass(frozen=True, slots=True)
class AskedGroup:
    """A group of a run that was asked, and how parts of it are asked again."""

    answers: pl.DataFrame
    """The answers of the run."""
    ask: Callable[[Sequence[str], Sequence[int]], pl.DataFrame]
    """The answers to some items in some variants, by their positions; the same columns."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some items of a group in some variants."""

    group: AskedGroup
    """The group."""
    items: Sequence[str]
    """The items."""
    variants: Sequence[int]
    """The positions of the variants."""

    @property
    def first(self) -> pl.DataFrame:
        """The answers of the run."""
        is_in = pl.col("item").is_in(self.items) & pl.col("variant_index").is_in(self.variants)
        return self.group.answers.filter(is_in)

    def again(self, *, one_by_one: bool = False) -> pl.DataFrame:
        """The answers now, to all prompts in one call or in a call for each prompt."""
        if not one_by_one:
            return self.group.ask(self.items, self.variants)
        calls = [([item], [variant]) for item in self.items for variant in self.variants]
        return pl.concat([self.group.ask(*call) for call in calls], how="diagonal_relaxed")


def sample_size(prompts: int, variations: int, wanted: int | None) -> int:
    """How many of the ``prompts`` of a run are sent again in each variation.

    As many as are ``wanted`` by ``--noise-floor``. By default at most 64, and in all variations
    together at most a tenth of the run.
    """
    return min(MOST, prompts // (SHARE * variations)) if wanted is None else min(wanted, prompts)


def sample(groups: Sequence[AskedGroup], size: int, seed: int) -> list[Part]:
    """``size`` prompts that have answers, drawn by the seed: some items of some groups.

    Fewer where the groups have fewer.
    """
    generator = random.Random(seed)
    answered = [group for group in groups if group.answers["answer"].count()]
    groups_wanted, parts, left = min(len(answered), max(1, size // TOGETHER)), [], size
    for at, group in enumerate(generator.sample(answered, len(answered))):
        if left <= 0:
            break
        share = -(-left // max(1, groups_wanted - at))
        of_group = _parts(group, share, generator)
        left -= sum(part.first.height for part in of_group)
        parts += of_group
    return parts


def _parts(group: AskedGroup, size: int, generator: random.Random) -> list[Part]:
    """At most ``size`` prompts of a group: two variants, more where it has few items."""
    answered = group.answers.drop_nulls("answer")
    items = answered["item"].unique(maintain_order=True).to_list()
    positions = answered["variant_index"].unique(maintain_order=True).to_list()
    several = min(max(VARIANTS, -(-size // len(items))), len(positions), size)
    variants = sorted(generator.sample(positions, several))
    drawn = generator.sample(items, min(len(items), -(-size // several)))
    whole, rest = divmod(size, several)
    parts = [Part(group, drawn[:whole], variants), Part(group, drawn[whole:], variants[:rest])]
    return [part for part in parts if part.items]


def variations(client: Client) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    """How a sample is sent again; of a connection with one request in flight, less."""
    again: dict[str, Callable[[], AbstractContextManager[None]]] = {"repeated": nullcontext}
    return again if client.connection.concurrency == 1 else again | {ALONE: client.one_by_one}


def server_noise_floor(
    parts: Sequence[Part], client: Client, suite: str, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """Rows of the metrics table (``METRICS_SCHEMA``): what changed of a sample, by variation.

    ``value`` of ``flips`` is the share of answers that differ from those of the run, with Wilson's
    95 % interval; that of ``score_change`` the largest absolute change, in nats, of the score of an
    option, of the gold, or of an answer that is the same. ``n`` counts the prompts that were
    answered both times, and scored both times; ``n_excluded`` the others.
    """
    rows = []
    for name, varied in variations(client).items():
        one_by_one = name == ALONE
        changes = []
        for part in parts:
            with varied():
                again = part.again(one_by_one=one_by_one)
            changes += list(_changes(part.first, again))
            progress(again.height)
        rows.append(
            flips_row(suite, name, [one[0] for one in changes], [one[1] for one in changes])
        )
        rows.append(_score_row(rows[-1], [one[2] for one in changes]))
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def _score_row(flips: Mapping[str, object], changes: Sequence[float | None]) -> dict[str, object]:
    """A row of the metrics table: the largest change of a score in nats."""
    known = [change for change in changes if change is not None]
    nan = float("nan")
    return {
        **flips, "metric": SCORE_CHANGE, "value": max(known, default=nan), "low": nan, "high": nan,
        "n": len(known), "n_excluded": len(changes) - len(known),
    }  # fmt: skip


def _changes(
    first: pl.DataFrame, again: pl.DataFrame
) -> Iterator[tuple[str | None, str | None, float | None]]:
    """Of each prompt both answers, and the largest change of a score that both have."""
    now = {(row["item"], row["variant"]): row for row in again.iter_rows(named=True)}
    for row in first.iter_rows(named=True):
        other = now.get((row["item"], row["variant"]), {})
        one, two = _answer(row), _answer(other)
        yield one, two, _largest_change(row, other, is_same=one == two)


def _answer(row: Mapping[str, Any]) -> str | None:
    """The answer of a row: the option where it has one."""
    option = row.get("option")
    answer: str | None = row.get("answer")
    return answer if option is None else f"option {option}"


def _largest_change(
    row: Mapping[str, Any], other: Mapping[str, Any], *, is_same: bool
) -> float | None:
    """The largest absolute difference of the scores of two rows; None without scores."""
    of_answer, of_gold = ALWAYS
    names = [*of_gold, *(of_answer if is_same else ())]
    pairs = [(row.get(name), other.get(name)) for name in names]
    pairs += zip(row.get("option_scores") or (), other.get("option_scores") or (), strict=False)
    changes = [abs(one - two) for one, two in pairs if one is not None and two is not None]
    return max((change for change in changes if change < float("inf")), default=None)
