"""What a model is asked: the one class that all kinds of suites share.

A kind of suite is a subclass of ``Inquiry``, and one of its objects is what a command asks one
model. Whatever runs, plans, verifies, counts or exports knows only ``Inquiry``: nothing outside
this package asks whether a run is of facts, sentence pairs or questions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import polars as pl

from consilience.analysis.examples import Example
from consilience.asking import noise
from consilience.asking.asker import Progress
from consilience.core.errors import SILENT, ConsilienceError, Protocol, Watch
from consilience.core.text import counted, evenly, spread
from consilience.kinds.counting import CountedRun, noise_floor_of
from consilience.options.probe import ProbeOptions, refuse_options
from consilience.options.runs import ScoreOptions
from consilience.runs.folder import RunFolder, default_folder
from consilience.runs.run import Run
from consilience.suites.questions import Questions
from consilience.types import Suite, SuiteWords

SuiteValue = str | Suite | Questions  # A suite: its name, folder or file, or a Python value
ShownTexts = dict[tuple[str, str, str], str]
ExamplesOfKinds = dict[str, list[Example]]
ExportedRow = dict[str, Any]  # A prompt of ``suite export``: the columns that its kind of suite has


@dataclass(frozen=True, slots=True)
class AnswersElsewhere:
    """A table of answers that were made elsewhere, as a run would have them."""

    suite: Suite  # The groups in the variants of the table
    protocol: Protocol
    answers: pl.DataFrame
    settings: Mapping[str, object]  # The settings in the JSON document
    groups: Sequence[str] = ()  # The groups that notes are about; empty for all
    before: Sequence[str] = ()  # Notes that precede those on the numbers
    after: Sequence[str] = ()  # Notes that follow them
    run_settings: Mapping[str, object] = field(default_factory=dict)
    """The settings of a run that keeps the answers; ``described``: what else its record has."""
    described: Mapping[str, object] = field(default_factory=dict)
    recorded: pl.DataFrame | None = None
    """The answers that such a run keeps, where they are not ``answers``."""


NOT_MEASURED = "the noise floor of the server was not measured"


class Inquiry(ABC):
    """What one model is asked. Groups are independent: the order of asking decides no answer."""

    kind: ClassVar[str]  # Names the options of ``probe`` that it has
    a_suite: ClassVar[str]
    words: ClassVar[SuiteWords]
    unit: ClassVar[str]  # What queries are called, in the plural
    in_record: ClassVar[str | None] = None  # The ``kind`` in the settings of a run
    example_kinds: ClassVar[Sequence[str]] = ()
    """The kinds of examples (``analysis.examples``) that there are."""
    is_same_for_models: ClassVar[bool] = False
    """Whether no option of a model decides which items and variants there are."""
    method: ClassVar[str]  # What tells a model of it from others
    takes: ClassVar[str]  # What a user may give in place of a model

    suite: Suite  # The groups in their variants, as they are counted
    protocol: Protocol = "strict"
    seed = ""  # The folder of a seed in that of the run; empty for a single model
    notes: Sequence[str] = ()  # What a reader of the numbers of all seeds should know of the suite

    def __init__(
        self, options: ProbeOptions, watch: Watch = SILENT, suite: Any = None, model: Any = None
    ) -> None:
        """``suite`` and ``model``: values in place of those that the options name."""
        refuse_options(options, self.kind, self.a_suite)
        self.options, self.watch, self.model, self.spec = options, watch, model, options.model
        self.is_given = model is not None

    # A kind of suite.

    @classmethod
    @abstractmethod
    def accepts(cls, suite: SuiteValue) -> bool:
        """Whether a suite is of this kind, unless an earlier kind accepts it."""

    @classmethod
    def of_options(
        cls, options: ProbeOptions, watch: Watch, suite: Any = None, model: Any = None
    ) -> Sequence[Self]:
        """One object for each seed of the model of the options, else one."""
        return [cls(options, watch, suite, model)]

    @classmethod
    def to_export(cls, options: ProbeOptions) -> Self:
        """What ``suite export`` writes, with no model in view."""
        return cls(options)

    @classmethod
    @abstractmethod
    def model_of(cls, function: Any, suite: str, template: str | None) -> Any:
        """A model that is made of a function; ``suite``: its name."""

    @classmethod
    @abstractmethod
    def suite_of(
        cls, run: Run, name: str | None, protocol: Protocol | None
    ) -> tuple[Suite, Protocol]:
        """The suite and the protocol that a run is counted by; those that are None are its own."""

    @classmethod
    @abstractmethod
    def is_as_asked(cls, run: Run, suite: Suite) -> bool:
        """Whether the suite is as it was when a run was asked, or is gone."""

    @classmethod
    @abstractmethod
    def read_answers(
        cls, run: Run, options: ScoreOptions, suite: Questions | None
    ) -> AnswersElsewhere:
        """A table of answers that were made elsewhere; ``suite``: in place of the named one."""

    @classmethod
    def on_the_hub(cls, run: Run) -> tuple[str, str, str]:
        """Data set, configuration and split of a run on the Hub; empty where it is elsewhere."""
        return "", "", ""

    @classmethod
    def sent(cls, run: Run, suite: Suite) -> pl.DataFrame | None:
        """The prompts: ``group, item, variant, prompt``; None where the run does not keep them."""
        return None if run.prompts.is_empty() else run.prompts

    @classmethod
    def with_texts(cls, run: Run, examples: ExamplesOfKinds) -> ExamplesOfKinds:
        """Examples of a run, with what was sent and written where the run kept it."""
        return examples

    @classmethod
    @abstractmethod
    def shown_texts(cls, run: Run, suite: Suite, items: Set[tuple[str, str]]) -> ShownTexts:
        """What a person reads of items in their variants; empty where the run did not keep it."""

    # What one model is asked.

    @property
    @abstractmethod
    def groups(self) -> Mapping[str, int]:
        """The number of queries of each group, in the order of asking."""

    @property
    def extent(self) -> Mapping[str, Any]:
        """Fields of a ``ProbePlan``: suite, items, variants and candidates."""
        designs = [group.design for group in self.suite]
        variants = spread([len(design.variants) for design in designs])
        return {
            "suite": self.suite.name,
            "items": sum(len(group.facts) for group in self.suite),
            "variants": f"{variants} {self.words.variant}" + "s" * (variants != "1"),
            "candidates": spread([len(design.labels) for design in designs]),
        }

    @property
    def samples(self) -> Mapping[str, Sequence[str]]:
        """Some items of each group, of which a plan asks some."""
        return {group.id: evenly([fact.item for fact in group.facts]) for group in self.suite}

    @abstractmethod
    def new_model(self) -> Any:
        """The model of the options."""

    def load(self) -> None:
        if self.model is None:
            with self.watch.loading(self.spec):
                self.model = self.new_model()

    def release(self) -> None:
        """Let go of a model that was loaded, before that of another seed is."""
        if self.seed:
            self.model = None

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, object]:
        """Everything that decides the answers; of the model when it is loaded."""

    @property
    def named_by(self) -> Mapping[str, object]:
        """The settings that name the folder of the run."""
        return self.settings

    @property
    def folder(self) -> Path:
        return (self.options.out or default_folder(self.options.model, self.named_by)) / self.seed

    @abstractmethod
    def ask(
        self,
        group: str,
        items: Sequence[str] | None = None,
        variants: Sequence[int] | None = None,
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        """The answers of a group; to some items, in the variants at some positions, only."""

    @abstractmethod
    def describe(self, folder: RunFolder) -> None:
        """Record what a reader of the answers needs beside the settings."""

    def prompts(self, group: str) -> pl.DataFrame | None:
        """What is sent for a group, where the run keeps it."""
        return None

    def notes_on(self, answers: pl.DataFrame) -> Sequence[str]:
        """What a reader of the answers of all groups should know."""
        return ()

    def changed(self, answers: pl.DataFrame) -> pl.DataFrame | None:
        """Of sentence pairs: every answer that a perturbation changed."""
        return None

    @classmethod
    def together(cls, inquiries: Sequence[Self], runs: Sequence[CountedRun]) -> CountedRun:
        """The numbers of the runs of all seeds together."""
        return runs[0]

    @abstractmethod
    def rows(self) -> Iterator[ExportedRow]:
        """The prompts of ``suite export``, item by item."""

    def noise_floor(
        self, folder: RunFolder, tables: Mapping[str, pl.DataFrame]
    ) -> pl.DataFrame | None:
        """A row of the metrics table on a sample that is asked again; None without one.

        What a complete run measured is read and not measured again, unless ``--noise-floor`` wants
        more prompts. Without ``--noise-floor`` only a server is asked again, and a limit or a
        server that fails ends the run with a note.
        """
        wanted = self.options.noise_floor
        if not wanted and getattr(self.model, "client", None) is None:
            return None

        def ask(group: str, items: Sequence[str], variants: Sequence[int]) -> pl.DataFrame:
            return self._as_written(self.ask(group, items, variants))

        groups = [
            noise.Part(self._as_written(answers), partial(ask, group))
            for group, answers in tables.items()
        ]
        prompts = sum(group.answers.height for group in groups)
        parts = noise.sample(groups, noise.sample_size(prompts, wanted), self.options.seed)
        sampled = sum(part.first.height for part in parts)
        known = noise_floor_of(folder.path)
        if known is not None and known.height:
            complete = known.select((pl.col("n") + pl.col("n_excluded")).min() >= sampled).item()
            if complete or not wanted:
                return known
        if not parts:
            if wanted is None:
                few = f"{counted(prompts, 'prompt')}: too few to measure the noise"
                folder.note([f"{few} floor of the server; --noise-floor 30 measures it"])
            return None
        folder.begin("noise floor")
        try:
            with self.watch.steps("noise floor", sampled, "prompts") as advance:
                return noise.noise_floor(parts, advance)
        except ConsilienceError as error:
            if wanted:
                raise
            folder.note([f"{NOT_MEASURED}: {error}"])
            return None

    def _as_written(self, answers: pl.DataFrame) -> pl.DataFrame:
        """Answers before a judge merged them: which ones are merged depends on all of them."""
        if self.options.equivalence is None or "text" not in answers.columns:
            return answers
        return answers.with_columns(option=None, answer="text")


def refuse_choices(kind: str, **options: object) -> None:
    """Raise for a suite or a protocol that is named with a run that has its own."""
    for name, value in options.items():
        if value is not None:
            found = f"--{name.replace('_', '-')} with runs of {kind}"
            expected = f"none: the run says which {kind} it was asked"
            raise ConsilienceError(found, expected=expected, todo="Leave it out.")
