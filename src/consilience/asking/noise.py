"""Noise floors: answers that change though nothing that decides them does.

A model here answers a sample again in other batches, orders, threads and precision. A server gets a
sample of the prompts of a run again, as before and alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.asking import asker
from consilience.asking.asker import Progress
from consilience.asking.facts import facts_of, scores_of_facts
from consilience.asking.pairs import Presented, pairs_of
from consilience.asking.questions import Presenter, ask_asks, ask_of, group_of
from consilience.core.items import Ask, Group, Question
from consilience.core.schemas import FLIPS, METRICS_SCHEMA, SCORE_CHANGE
from consilience.metrics.statistics import wilson_interval
from consilience.types import Suite

if TYPE_CHECKING:
    from consilience.endpoints.client import Client

LARGER = 8  # How many times more tokens a large batch holds
MOST_SAMPLED_CELLS = 16  # Variants of a question that are asked again
Answers = list[str | None]
Sample = tuple[Callable[[Any, Sequence[Ask]], Answers], Sequence[Ask]]


def noise_floor(
    samples: Sequence[Sample],
    model: Any,
    suite: str,
    *,
    in_half_precision: Callable[[], Any] | None = None,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """Rows of the metrics table (``METRICS_SCHEMA``): the share of changed answers of samples.

    ``in_half_precision`` loads the same model in bfloat16. ``n``: the asks answered both times.
    """

    def answers(of: Any, variation: Variation) -> Answers:
        return [one for answer, asks in samples for one in variation(of, partial(answer, of), asks)]

    first, again = answers(model, _repeated), dict[str, Answers]()
    for name, variation in VARIATIONS.items():
        again[name] = answers(model, variation)
        progress(len(first))
    if in_half_precision is not None:
        again["bfloat16"] = answers(in_half_precision(), _repeated)
        progress(len(first))
    rows = [flips_row(suite, name, first, changed) for name, changed in again.items()]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


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


def flips_row(suite: str, variation: str, first: Answers, again: Answers) -> dict[str, object]:
    """A row of the metrics table: the share of answers that differ, with Wilson's interval."""
    pairs = [(a, b) for a, b in zip(first, again, strict=True) if None not in (a, b)]
    share = sum(a != b for a, b in pairs) / len(pairs) if pairs else float("nan")
    low, high = wilson_interval(share, len(pairs))
    return {
        "metric": FLIPS, "suite": suite, "group": "MICRO", "subset": variation, "value": share,
        "std": float("nan"), "low": low, "high": high, "n": len(pairs),
        "n_excluded": len(first) - len(pairs),
    }  # fmt: skip


Answer = Callable[[Sequence[Ask]], Answers]
Variation = Callable[[Any, Answer, Sequence[Ask]], Answers]
"""The answers to asks, from the model and a function that answers them."""


def _repeated(model: object, answer: Answer, asks: Sequence[Ask]) -> Answers:
    return answer(asks)


def _reordered(model: object, answer: Answer, asks: Sequence[Ask]) -> Answers:
    order = list(range(len(asks)))
    random.Random(len(asks)).shuffle(order)
    by_row = dict(zip(order, answer([asks[row] for row in order]), strict=True))
    return [by_row[row] for row in range(len(asks))]


def _large_batches(model: object, answer: Answer, asks: Sequence[Ask]) -> Answers:
    budget = getattr(model, "budget", None)
    if budget is None:
        return answer(asks)
    before, budget.tokens = budget.tokens, budget.tokens * LARGER
    try:
        return answer(asks)
    finally:
        budget.tokens = before


def _other_threads(model: object, answer: Answer, asks: Sequence[Ask]) -> Answers:
    """One thread instead of several, two instead of one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else 1)
    try:
        return answer(asks)
    finally:
        torch.set_num_threads(before)


VARIATIONS: Mapping[str, Variation] = {
    "repeated": _repeated,
    "reordered": _reordered,
    "one_by_one": lambda model, answer, asks: [answer([one])[0] for one in asks],
    "large_batches": _large_batches,
    "other_threads": _other_threads,
}


MOST, SHARE = 64, 10
"""Of a sample whose size nobody chose: its prompts at most, and how many times more the run has
than all its repeats together."""

TOGETHER, VARIANTS = 8, 2  # Prompts of each group in a sample; variants of each item
ALONE = "alone"  # A prompt is sent after the reply to the one before it


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

    def again(self, *, one_by_one: bool) -> pl.DataFrame:
        if not one_by_one:
            return self.ask(self.items, self.variants)
        calls = [([item], [variant]) for item in self.items for variant in self.variants]
        return pl.concat([self.ask(*call) for call in calls], how="diagonal_relaxed")


def sample_size(prompts: int, variations: int, wanted: int | None) -> int:
    """How many of the ``prompts`` of a run are sent again in each variation; see ``MOST``."""
    return min(MOST, prompts // (SHARE * variations)) if wanted is None else min(wanted, prompts)


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


def variations(client: Client) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    """How a sample is sent again; of a connection with one request in flight, less."""
    alone = {} if client.connection.concurrency == 1 else {ALONE: partial(client.pace.held, 1)}
    return {"repeated": nullcontext, **alone}


def server_noise_floor(
    parts: Sequence[Part], client: Client, suite: str, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """Rows of the metrics table (``METRICS_SCHEMA``): what changed of a sample, by variation.

    ``value`` of ``flips`` is the share of answers that differ, with Wilson's 95 % interval; that of
    ``score_change`` the largest absolute change, in nats, of the score of an option, of the gold,
    or of an answer that is the same. ``n`` counts the prompts that were answered and scored twice.
    """
    rows, nan = [], float("nan")
    for name, varied in variations(client).items():
        changes = []
        for part in parts:
            with varied():
                again = part.again(one_by_one=name == ALONE)
            changes += list(_changes(part.first, again))
            progress(again.height)
        flips = flips_row(suite, name, [one[0] for one in changes], [one[1] for one in changes])
        known = [one[2] for one in changes if one[2] is not None]
        worst = max(known, default=nan)
        largest = {"metric": SCORE_CHANGE, "value": worst, "low": nan, "high": nan}
        counts = {"n": len(known), "n_excluded": len(changes) - len(known)}
        rows += [flips, flips | largest | counts]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def _changes(
    first: pl.DataFrame, again: pl.DataFrame
) -> Iterator[tuple[str | None, str | None, float | None]]:
    """Of each prompt both answers, or their options, and the largest change of a score in both."""
    now = {(row["item"], row["variant"]): row for row in again.iter_rows(named=True)}
    for row in first.iter_rows(named=True):
        both = row, now.get((row["item"], row["variant"]), {})
        one, two = (
            of.get("answer") if of.get("option") is None else f"option {of['option']}"
            for of in both
        )
        names = ["gold_logprob", "gold_text_logprob"]
        names += ["logprob", "text_logprob"] if one == two else []
        pairs = [tuple(of.get(name) for of in both) for name in names]
        pairs += zip(*(of.get("option_scores") or () for of in both), strict=False)
        changes = [abs(old - new) for old, new in pairs if old is not None and new is not None]
        yield one, two, max((one for one in changes if one < float("inf")), default=None)
