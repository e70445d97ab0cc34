"""Which expectations the answers of a run violate: a table by kind, and examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from consilience.expectations import EXPECTATION_SUBSETS, Instance

COUNTS: Mapping[str, type[pl.DataType]] = {
    "group": pl.String,
    "kind": pl.String,
    "expectations": pl.Int64,
    "instances": pl.Int64,
    "n": pl.Int64,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "chance": pl.Float64,
    "gap": pl.Float64,
    "gap_low": pl.Float64,
    "gap_high": pl.Float64,
    "gap_chance": pl.Float64,
}
"""One row a subset of expectations (``kind``) of a group; ``MICRO`` is all groups together.

- ``expectations``: how many were checked, each in one or several variants.
- ``instances``: in how many variants, with all answers; ``n``: in how many of these the answers to
  the premises met the condition, of the first seed.
- ``value``: the violation rate; ``low``, ``high``: bounds of its 95 % interval; ``chance``: the
  chance level.
- ``gap``, ``gap_low``, ``gap_high``: the probability gap and the bounds of its 95 % interval;
  ``gap_chance``: its chance level. NaN where the run has no probabilities, or the expectations have
  no gap.
"""

NO_GAP = dict.fromkeys(("value", "low", "high"), float("nan"))
"""The row of a metric without data."""

EXAMPLES: Mapping[str, type[pl.DataType]] = {
    "group": pl.String,
    "kind": pl.String,
    "example": pl.Int64,
    "item": pl.String,
    "variant": pl.String,
    "prompt": pl.String,
    "answer": pl.String,
    "permitted": pl.String,
}
"""One row a question of a violated expectation, the conclusion last.

``permitted``: the answers that the conclusion might have got, empty for a premise.
"""

ByGroup = Mapping[str, Sequence[tuple[Instance, ...]]]
"""The instances of each expectation, by group."""


def violation_table(metrics: pl.DataFrame, by_group: ByGroup) -> pl.DataFrame:
    """How often each kind is violated (``COUNTS``); ``metrics``: the metrics table of the run."""
    values = {
        (row["metric"], row["group"], row["subset"]): row for row in metrics.iter_rows(named=True)
    }
    groups = dict(by_group)
    if len(groups) > 1:
        groups["MICRO"] = [of for group in by_group.values() for of in group]
    rows = []
    for group, counted in groups.items():
        for kind in EXPECTATION_SUBSETS:
            units = [of for of in counted if of[0].expectation.subset == kind]
            if not units:
                continue
            answered = [one for of in units for one in of if one.is_answered]
            rate = values["violation_rate", group, kind]
            gap, chance_gap = (
                values.get((name, group, kind), NO_GAP)
                for name in ("probability_gap", "chance_probability_gap")
            )
            rows.append(
                {
                    "group": group,
                    "kind": kind,
                    "expectations": len(units),
                    "instances": len(answered),
                    "n": sum(one.is_permitted is not None for one in answered),
                    "value": rate["value"],
                    "low": rate["low"],
                    "high": rate["high"],
                    "chance": values["chance_violation_rate", group, kind]["value"],
                    "gap": gap["value"],
                    "gap_low": gap["low"],
                    "gap_high": gap["high"],
                    "gap_chance": chance_gap["value"],
                }
            )
    return pl.DataFrame(rows, schema=pl.Schema(COUNTS))


def violated_examples(
    by_group: ByGroup, prompts: Mapping[tuple[str, str], str], most: int
) -> pl.DataFrame:
    """Violated expectations (``EXAMPLES``), at most ``most`` of each kind and group.

    Of each expectation the first violated instance. ``prompts``: (item, variant) -> what was sent.
    """
    rows: list[dict[str, object]] = []
    for group, counted in by_group.items():
        for kind in EXPECTATION_SUBSETS:
            units = [of for of in counted if of[0].expectation.subset == kind]
            violated = [one for of in units if (one := _first_violated(of))]
            for number, instance in enumerate(violated[:most], start=1):
                of_example = {"group": group, "kind": kind, "example": number}
                rows += (of_example | row for row in _questions(instance, prompts))
    return pl.DataFrame(rows, schema=pl.Schema(EXAMPLES))


def _first_violated(instances: Sequence[Instance]) -> Instance | None:
    violated = (one for one in instances if one.is_answered and one.is_permitted is False)
    return next(violated, None)


def _questions(
    instance: Instance, prompts: Mapping[tuple[str, str], str]
) -> Iterator[dict[str, object]]:
    """A row for each question of an instance."""
    expectation = instance.expectation
    last = len(expectation.references) - 1
    for at, item in enumerate(expectation.items):
        variant = instance.variants[at]
        yield {
            "item": item,
            "variant": variant,
            "prompt": prompts.get((item, variant), ""),
            "answer": instance.answers[at] or "none of the options",
            "permitted": _permitted(instance) if at == last else "",
        }


def _permitted(instance: Instance) -> str:
    """The permitted answers in words."""
    expectation, premises = instance.expectation, instance.answers[:-1]
    options = expectation.conclusion.options
    if options:
        permitted = [option for option in options if instance.permits(option)]
        return " or ".join(permitted) or "none: the answers before exclude each other"
    if expectation.kind in ("same", "different"):
        return f"{'' if expectation.kind == 'same' else 'not '}{premises[0]}"
    return " or ".join(expectation.rules[tuple(map(str, premises))])
