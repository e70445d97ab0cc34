"""Sentence pairs: tasks, pairs and the forms in which a pair is presented (CALUM)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

TaskKind = Literal["NLI", "STS"]


@dataclass(frozen=True, slots=True)
class Task:
    """A task of sentence pairs: what its files hold, and how a model reads a pair."""

    name: str
    """Names the task."""
    kind: TaskKind
    """Inference or similarity (CALUM, Section 4.1)."""
    first: tuple[str, ...]
    """Names of the column with the first sentence, in order of preference; a dot leads into nested
    objects."""
    second: tuple[str, ...]
    """The same for the second sentence."""
    label: tuple[str, ...]
    """The same for the label."""
    indicators: tuple[str, str]
    """The text before each sentence."""
    labels: tuple[str, ...]
    """The label words; numbers in a file are positions among them."""
    t5_fields: tuple[str, ...] = ()
    """The names in T5's text form; empty for a task that T5 was not trained on."""
    metrics: tuple[str, ...] = ("accuracy",)
    """Metrics of the original form; f1 is that of the last label."""
    hub: tuple[str, ...] = ()
    """Dataset and configuration on the Hub."""
    splits: tuple[str, str, str] = ("train", "validation", "")
    """Training, validation and test split; empty for none."""
    threshold: float | None = None
    """Where labels are grades: the least grade of the last label."""


@dataclass(frozen=True, slots=True)
class TextPair:
    """One labelled sentence pair."""

    item: str
    """Names the pair."""
    first: str
    """The first sentence."""
    second: str
    """The second sentence."""
    label: str
    """One of its task's label words."""
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Other sentences of its row, by column; only those that perturbations ask for."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence after its indicator: ``before + indicator + after + sentence``."""

    indicator: str
    """Says which sentence follows."""
    sentence: str
    """The sentence."""
    before: str = ""
    """Symbols before the indicator."""
    after: str = ": "
    """Symbols after the indicator."""

    @property
    def mark(self) -> str:
        """The whole text before the sentence."""
        return self.before + self.indicator + self.after

    @property
    def text(self) -> str:
        """What a model reads."""
        return self.mark + self.sentence


Form = tuple[Segment, ...]
"""An item written in one variant: its two sentences, in the order in which they are read."""


def as_string(form: Form) -> str:
    """The segments as one string with a space between."""
    return " ".join(segment.text for segment in form)


def as_lines(form: Form) -> str:
    """The segments, a line each."""
    return "\n".join(segment.text for segment in form)
