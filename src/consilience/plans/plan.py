"""A plan: everything that is asked, and what decides the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import polars as pl

from consilience.core.errors import Advance, Protocol
from consilience.core.items import Group
from consilience.plans.asking import query_table
from consilience.types import Suite

Kind = Literal["facts", "pairs", "questions"]


@dataclass(frozen=True)
class Queries:
    """What one model is asked. Groups are independent: the order of asking decides no answer."""

    model: Any
    groups: Sequence[str]  # In the order of asking
    group: Callable[[str], Group]
    texts: Callable[[str, Any], Sequence[str]]
    """The texts of what an ask of a group shows, as a run keeps them."""
    ask: Callable[[Group, Advance], pl.DataFrame]  # The answers of a group or of a part of it
    settings: Mapping[str, object] = field(default_factory=dict)
    """What decides the answers beside the plan and the identity of the model."""

    def table(self) -> pl.DataFrame:
        """What is asked of all groups (``QUERIES_SCHEMA``)."""
        tables = [
            query_table(self.group(group), partial(self.texts, group)) for group in self.groups
        ]
        every = pl.concat(tables, how="diagonal")
        ends = ("gold", "input", "choices")  # of open questions there are fewer factors
        return every.select(pl.exclude(ends), *ends)


@dataclass(frozen=True)
class Plan:
    """What any model is asked: the queries of a suite, before a model is known."""

    kind: Kind
    suite: Suite  # Its groups in their variants, as they are counted
    sizes: Mapping[str, int]  # The number of queries of each group, in the order of asking
    settings: Mapping[str, object]  # What decides the answers beside the model
    load: Callable[[], Any]  # The model of the options
    queries: Callable[[Any], Queries]  # What a model is asked; None for no model
    source: Mapping[str, object] = field(default_factory=dict)
    """What the record of a run has beside the settings."""
    notes: Sequence[str] = ()

    @property
    def protocol(self) -> Protocol:
        return self.suite.protocol
