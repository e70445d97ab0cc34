"""Perturbations: other forms of the same items that are expected to get the same answer.

A perturbation is a pure function. Of sentence pairs (CALUM, Section 3) it makes another form of
one: two segments, each a sentence after its indicator. The built-in ones change the order of the
segments and the text around the indicators, never a sentence nor the letters of an indicator.
Of facts it makes another text of a cloze pattern; the built-in ones change its case, its
punctuation or one word's spelling.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.factors import ORIGINAL
from consilience.core.items import Form, Segment, Task, TextPair
from consilience.core.patterns import Pattern
from consilience.core.text import truncated

Rewrite = TypeVar("Rewrite", bound=Callable[..., Any])

PAPERS = ("reverse", "signal")
"""The perturbations of the paper."""

RewriteForm = Callable[[Form], Form]


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A way to present items, and why it does not change their answers."""

    name: str
    guarantee: str
    rewrite: Callable[..., Any]
    """Makes the form: of a ``Form``, or of a pattern's text with ``[X]`` and ``[Y]``."""
    source: Mapping[str, str] = field(default_factory=dict)
    """Where a user's perturbation is from, for the record of a run; empty for a built-in one."""
    column: str = ""
    """The column of the data that holds the rewritten sentence; empty for a function."""

    def form_of(self, pair: TextPair, form: Form) -> Form:
        """The perturbed form of a sentence pair, whose original form is ``form``."""
        rewritten = self._call(form, pair) if self.column else self._call(form)
        segments = rewritten if isinstance(rewritten, tuple) else ()
        if len(segments) != len(form) or not all(
            isinstance(segment, Segment) for segment in segments
        ):
            raise ConsilienceError(
                f"the perturbation '{self.name}' made {_shown(rewritten)} of item {pair.item}",
                expected=f"a tuple of {len(form)} segments",
                where=self.source.get("file", ""),
                todo="Correct the function; docs/tasks.md has an example.",
            )
        return segments

    def pattern_of(self, pattern: Pattern) -> Pattern:
        """The perturbed pattern; a text without exactly one ``[X]`` and one ``[Y]`` raises."""
        text = self._call(pattern.text)
        where = f"the perturbation '{self.name}' of '{pattern.text}'"
        if not isinstance(text, str):
            raise ConsilienceError(f"{_shown(text)}", expected="a text", where=where)
        Pattern.parse(text, where=where)
        return replace(pattern, text=text, form=self.name)

    def _call(self, *arguments: object) -> object:
        """What the function makes; an error in a user's function raises with its file."""
        try:
            return self.rewrite(*arguments)
        except Exception as error:
            if not self.source.get("file"):
                raise
            raise ConsilienceError(
                f"the perturbation '{self.name}' failed: {type(error).__name__}: {error}",
                where=self.source["file"],
                todo="Correct the function.",
            ) from error


PERTURBATIONS: dict[str, Perturbation] = {}
"""Of sentence pairs."""

ORDER = "Only the order changes; the indicators say which sentence is which."
SYMBOL = "Only the symbols around the indicators change, which have no meaning of their own."
SPACING = "Only the space after the indicators changes."
CASING = "Only the case of the indicators changes."


def perturbation(guarantee: str) -> Callable[[RewriteForm], RewriteForm]:
    """Register a function as a perturbation of sentence pairs; a name that is taken raises."""
    return partial(register, PERTURBATIONS, guarantee)


def register(registry: dict[str, Perturbation], guarantee: str, rewrite: Rewrite) -> Rewrite:
    """Keep a function under its name; a name that is taken raises."""
    name = rewrite.__name__
    if name in registry or name in (ORIGINAL, "all"):
        raise ValueError(f"there is a perturbation '{name}' already")
    registry[name] = Perturbation(name, guarantee, rewrite)
    return rewrite


@perturbation(ORDER)
def reverse(form: Form) -> Form:
    """``Hypothesis: b Premise: a`` (REVERSE)."""
    return form[::-1]


def _around(form: Form, before: str, after: str) -> Form:
    return tuple(replace(segment, before=before, after=after) for segment in form)


@perturbation(SYMBOL)
def signal(form: Form) -> Form:
    """``[Premise] a [Hypothesis] b`` (SIGNAL)."""
    return _around(form, "[", "] ")


@perturbation(f"{ORDER} {SYMBOL}")
def reverse_signal(form: Form) -> Form:
    """``[Hypothesis] b [Premise] a``."""
    return reverse(signal(form))


for _name, _guarantee, _before, _after in (
    ("parentheses", SYMBOL, "(", ") "),
    ("dash", SYMBOL, "", " - "),
    ("equals", SYMBOL, "", " = "),
    ("arrow", SYMBOL, "", " -> "),
    ("no_space", SPACING, "", ":"),
    ("line_break", SPACING, "", ":\n"),
):  # what is before and after each indicator
    _rewrite = partial(_around, before=_before, after=_after)
    PERTURBATIONS[_name] = Perturbation(_name, _guarantee, _rewrite)


def _cased(form: Form, case: Callable[[str], str]) -> Form:
    return tuple(replace(segment, indicator=case(segment.indicator)) for segment in form)


@perturbation(CASING)
def lower_case(form: Form) -> Form:
    """``premise: a hypothesis: b``; the same as the original where the script has no case."""
    return _cased(form, str.lower)


@perturbation(CASING)
def upper_case(form: Form) -> Form:
    """``PREMISE: a HYPOTHESIS: b``; the same as the original where the script has no case."""
    return _cased(form, str.upper)


def original(pair: TextPair, indicators: Sequence[str]) -> Form:
    """The form that a model is trained on: ``Premise: a``, ``Hypothesis: b``."""
    first, second = indicators
    return Segment(first, pair.first), Segment(second, pair.second)


def t5_original(pair: TextPair, task: Task) -> Form:
    """T5's form without the task's name: its fields in alphabetical order, so hypothesis first."""
    if not task.t5_fields:
        raise ConsilienceError(
            f"the task '{task.name}' has no text form of T5",
            expected="a task with t5_fields",
            todo="Give a --template, or add t5_fields to a TOML file of the task.",
        )
    segments = original(pair, task.t5_fields)
    return tuple(sorted(segments, key=lambda segment: segment.indicator))


def chosen(
    specs: Sequence[str], registry: Mapping[str, Perturbation] | None = None
) -> dict[str, Perturbation]:
    """The perturbations by name, each once; without a ``registry`` those of sentence pairs.

    A spec is a name, ``all`` for all of the registry, ``FILE.py:FUNCTION`` for a function of a
    user's file, or ``first:COLUMN`` and ``second:COLUMN`` for sentences in a column of the data.
    """
    of_pairs = registry is None
    registry = PERTURBATIONS if registry is None else registry
    perturbations: dict[str, Perturbation] = {}
    for spec in specs:
        side, _, column = spec.partition(":")
        if spec == "all":
            added = list(registry.values())
        elif spec in registry:
            added = [registry[spec]]
        elif side in SIDES and column and of_pairs:
            added = [_from_column(SIDES.index(side), column)]
        elif ".py:" in spec:
            added = [_from_file(spec)]
        else:
            raise ConsilienceError(
                f"no perturbation '{spec}'",
                expected="a name, all, FILE.py:FUNCTION, or first:COLUMN or second:COLUMN of the "
                "data of sentence pairs",
                todo=did_you_mean(spec, [*registry, "all"]),
            )
        for one in added:
            known = perturbations.setdefault(one.name, one)
            if (known.guarantee, known.source) != (one.guarantee, one.source):
                raise ConsilienceError(
                    f"two perturbations with the name '{one.name}'",
                    expected="a name for each",
                    todo="Rename the function or the column.",
                )
    if ORIGINAL in perturbations:
        raise ConsilienceError(
            f"a perturbation with the name '{ORIGINAL}'",
            expected="another name, since that of the unperturbed form is taken",
        )
    return perturbations


SIDES = ("first", "second")
"""The sentences of a pair."""


def _from_column(side: int, column: str) -> Perturbation:
    """The perturbation that takes one sentence from a column of the data."""

    def rewrite(form: Form, pair: TextPair) -> Form:
        sentence = pair.columns[column]
        old = (pair.first, pair.second)[side]
        at = next(at for at, segment in enumerate(form) if segment.sentence == old)
        if pair.first == pair.second and form[0].sentence == form[1].sentence:
            at = side
        return tuple(
            replace(segment, sentence=sentence) if position == at else segment
            for position, segment in enumerate(form)
        )

    guarantee = f"The {SIDES[side]} sentence is that of the column '{column}'."
    return Perturbation(column, guarantee, rewrite, {"column": column}, column)


def _from_file(spec: str) -> Perturbation:
    """The perturbation that a function of a user's Python file is."""
    file, _, name = spec.rpartition(":")
    path = Path(file)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConsilienceError(
            f"cannot be read: {error.strerror}", where=file, todo="Check the path."
        ) from error
    module = ModuleType(path.stem)
    module.__file__ = file
    try:
        exec(compile(content, file, "exec"), module.__dict__)
    except Exception as error:
        raise ConsilienceError(
            f"cannot be run: {type(error).__name__}: {error}", where=file, todo="Correct the file."
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [known for known, value in vars(module).items() if callable(value)]
        raise ConsilienceError(f"no function '{name}'", where=file, todo=did_you_mean(name, names))
    described = (function.__doc__ or "").strip().partition("\n")[0]
    source = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
    return Perturbation(name, described or f"See {path.name}.", function, source)


def _shown(value: object) -> str:
    return truncated(repr(value), 60)


def forms_of(
    pair: TextPair, form: Form, perturbations: Mapping[str, Perturbation]
) -> dict[str, Form]:
    """The original and every perturbed form of a pair, by name."""
    return {ORIGINAL: form} | {
        name: perturbation.form_of(pair, form) for name, perturbation in perturbations.items()
    }
