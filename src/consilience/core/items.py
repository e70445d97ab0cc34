"""What is asked: cloze patterns, items with their scores, sentence pairs, questions."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from consilience.core.errors import ConsilienceError
from consilience.core.text import PASSAGE_END, closes_sentence

SUBJECT_SLOT, OBJECT_SLOT = "[X]", "[Y]"
ENGLISH = "en"  # The language of patterns and facts that name none


@dataclass(frozen=True, slots=True, repr=False)
class Pattern:
    """A cloze pattern, such as ``[X] was born in [Y].``, with one subject and one object."""

    text: str
    lemma: str = ""
    extended_lemma: str = ""  # The lemma with its particles and prepositions
    tense: str = ""
    language: str = ENGLISH
    parts: tuple[str, str, str] = field(init=False)
    """The literal text before, between and after the two slots."""
    object_first: bool = field(init=False)  # Whether the object's slot precedes the subject's

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise ConsilienceError(
                f"a pattern of type {type(self.text).__name__}",
                expected="text such as '[X] was born in [Y].'",
            )
        for slot, role in ((SUBJECT_SLOT, "subject"), (OBJECT_SLOT, "object")):
            if (count := self.text.count(slot)) != 1:
                raise ConsilienceError(
                    f"the pattern '{self.text}' has {count} {slot}",
                    expected=f"exactly one {slot} for the {role}",
                    todo="Correct the pattern.",
                )
        subject_at, object_at = self.text.index(SUBJECT_SLOT), self.text.index(OBJECT_SLOT)
        first, second = sorted((subject_at, object_at))
        parts = (self.text[:first], self.text[first + 3 : second], self.text[second + 3 :])
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "object_first", object_at < subject_at)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    @property
    def record(self) -> dict[str, str]:
        """Its fields that are not at their defaults, as values of JSON."""
        own = [(one, getattr(self, one.name)) for one in fields(self) if one.init]
        return {one.name: value for one, value in own if value != one.default}

    def fill(self, subject: str, object_: str) -> str:
        """The sentence with a subject, and an object or a mask or a blank in its place."""
        left, right = self.around_object(subject)
        return left + object_ + right

    def around_object(self, subject: str) -> tuple[str, str]:
        """The text on the left and on the right of the object slot, with the subject filled in."""
        start, middle, end = self.parts
        if self.object_first:
            return start, middle + subject + end
        return start + subject + middle, end

    @property
    def object_last(self) -> bool:
        """Whether nothing but spaces and closing punctuation follows the object.

        Then a causal model has read all that the sentence says when it is asked for the object.
        Closing punctuation of any script ends a sentence (``ENDINGS``), or closes a quotation or
        a bracket that was opened before the object: brackets of category Pe, and all quotation
        marks, since one that nothing follows cannot open a quotation, whichever way it faces
        (German closes with U+201C). A comma, a colon, a per cent sign or a dash is none.
        """
        return not self.object_first and all(map(closes_sentence, self.parts[2]))

    @property
    def article(self) -> str | None:
        """``a`` or ``an`` where exactly that word precedes the one that holds ``[Y]``.

        The test of ParaRel's released evaluation, which splits at single spaces. Patterns in other
        languages than English have none: ``an`` is a preposition in German.
        """
        if self.language.partition("-")[0] != ENGLISH:
            return None
        words = self.text.split(" ")
        at = next(index for index, word in enumerate(words) if OBJECT_SLOT in word)
        before = words[at - 1] if at else ""
        return before if before in ("a", "an") else None


Names = dict[str, dict[str, str]]
"""Language -> name in Unicode form NFC -> its text."""


def written_names(
    names: Names,
    relation: str,
    facts: Collection[tuple[str, str]],
    places: Mapping[Pattern, str],
    problems: list[ConsilienceError],
) -> Names:
    """The names that the patterns of a relation need (``Relation.names``).

    A name without a text in a language is the same name. Two objects with one text are reported.
    ``names``: of the suite. ``facts``: subjects and objects. ``places``: the patterns, and where
    each is.
    """
    found: Names = {}
    for pattern in places:
        language = pattern.language
        if language in found or not (texts := names.get(language)):
            continue
        first: dict[str, str] = {}
        found[language] = of_language = {}
        for at, role in ((1, "object"), (0, "subject")):
            for name in dict.fromkeys(fact[at] for fact in facts):
                text = texts.get(unicodedata.normalize("NFC", name), name)
                of_language[name] = text
                other = first.setdefault(unicodedata.normalize("NFC", text), name)
                if role == "object" and other != name:
                    error = ConsilienceError(
                        f"the objects '{other}' and '{name}' of '{relation}' are both '{text}' in "
                        f"'{language}'",
                        expected="another text for each, because an answer names one of them",
                        where=places[pattern],
                        todo="Write one of them in another way, or remove its facts.",
                    )
                    problems.append(error)
    return found


Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Key = TypeVar("Key")


def group_rows(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """The positions of every distinct key, in order of first appearance."""
    rows: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows


@dataclass(frozen=True, slots=True)
class Item:
    """What is asked, and its right answer."""

    id: str
    subject: str
    gold: str
    options: tuple[str, ...] = ()
    """What may be answered, in the order of the file; empty where that is every word or text."""
    gold_at: int = -1  # The position of the gold among the options


class Ask(NamedTuple):
    """An item in a variant."""

    item: int
    variant: int
    shown: Any  # What the model reads: a ``Query``, a ``Form`` of a sentence pair, or a ``Prompt``
    answers: tuple[str, ...] = ()
    """What may be answered, as it is written here and in this order; empty for the options of the
    item, in their order."""
    order: tuple[int, ...] = ()  # The position of each of ``answers`` among the options
    why_not: str | None = None  # Why it is not asked; None where it is


@dataclass(frozen=True, slots=True)
class Group:
    """The asks whose answers are a table, and what its rows say besides the answer."""

    suite: str
    id: str
    items: Sequence[Item]
    variants: Sequence[str]
    asks: Sequence[Ask]
    schema: Mapping[str, Any]
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Factor -> its level in each variant."""

    def only(self, items: Collection[str], variants: Collection[int]) -> Group:
        """The asks of some items in the variants at some positions."""
        kept = {at for at, item in enumerate(self.items) if item.id in items}
        asks = [one for one in self.asks if one.item in kept and one.variant in variants]
        return replace(self, asks=asks)


def padded(rows: Sequence[Any], fill: float) -> npt.NDArray[Any]:
    """Rows of different lengths as one matrix, with ``fill`` at their ends."""
    width = max(map(len, rows), default=0)
    matrix = np.full((len(rows), width), fill, np.asarray(fill).dtype)
    for at, row in enumerate(rows):
        matrix[at, : len(row)] = row
    return matrix


@dataclass(frozen=True, slots=True, repr=False)
class Scores:
    """The scores of what some asks may be answered with.

    They are NaN for an answer that takes no part, and after the last answer of a row that has
    fewer answers than others.
    """

    rows: Ints  # Positions among the asks (row,)
    words: tuple[str, ...] = ()
    """The candidates, where they are the same in all rows; else the answers are those of each
    ask."""
    logprob: Floats | None = None
    """Natural log-probability, normalised over the candidates that take part (row, candidate). None
    where ``totals`` are all there is."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    same: Ints | None = None
    """Position of the candidate whose score is used; differs from its own only where two candidates
    are the same token (candidate,)."""
    tokens: tuple[str | None, ...] | None = None
    """The vocabulary entry of each candidate, where there is one (candidate,)."""
    unasked: str | None = None  # Why none of these is asked; None where they are
    errors: Sequence[str | None] = ()
    """For each row why it has no answer though it was asked; None where it has one."""
    totals: Floats | None = None
    """Natural log-probability of the candidate's whole text, of models that give one (row,
    candidate); ``text_logprob`` of the answers table. Of a model without probabilities 0 for the
    answer that it chose, minus infinity for the others."""
    answers_only: bool = False  # Whether the scores only order the candidates
    is_complete: bool = False
    """Whether every answer has a total. Otherwise totals without ``logprob`` are those of the best
    candidate and of some others, and candidates without one have smaller totals."""
    lengths: Ints | None = None
    """How many tokens were scored of each answer (row, answer); None where that is not known."""
    texts: Sequence[str] = ()
    """For each row what a model without probabilities wrote. Where it is none of the answers, all
    totals are minus infinity."""

    @classmethod
    def of_rows(
        cls,
        rows: Ints,
        totals: Sequence[Floats],
        lengths: Sequence[Ints] | None = None,
        **more: Any,
    ) -> Self:
        """Those of asks, for each row its totals (answer,); ``more``: other fields.

        Without ``lengths`` the model has no probabilities.
        """
        return cls(
            rows,
            totals=padded(totals, np.nan),
            answers_only=lengths is None,
            is_complete=lengths is not None,
            lengths=None if lengths is None else padded(lengths, 0),
            **more,
        )

    def error(self, row: int) -> str | None:
        """Why a row has no answer though it was asked; None where it has one."""
        reason = self.errors[row] if self.errors else None
        is_empty = bool(self.texts) and not self.texts[row]
        return reason or (NoAnswer().reason if is_empty else None)

    def __repr__(self) -> str:
        return f"Scores({len(self.rows)} queries, {len(self.words)} candidates)"


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """In place of a text that a model wrote: there is none."""

    reason: str = "the model wrote no text"


def margins(scores: Floats) -> Floats:
    """Best minus second of ``scores`` (row, candidate): (row,). Infinite with one candidate."""
    if scores.shape[1] < 2:
        return np.full(len(scores), np.inf)
    second, best = np.partition(scores, -2, axis=1)[:, -2:].T
    return np.asarray(best - second)


TaskKind = Literal["NLI", "STS"]


@dataclass(frozen=True, slots=True)
class Task:
    """A task of sentence pairs: what its files hold, and how a model reads a pair."""

    name: str
    kind: TaskKind  # Inference or similarity (CALUM, Section 4.1)
    first: tuple[str, ...]
    """Names of the column with the first sentence, in order of preference; a dot leads into nested
    objects. ``second`` and ``label`` are names of columns likewise."""
    second: tuple[str, ...]
    label: tuple[str, ...]
    indicators: tuple[str, str]
    labels: tuple[str, ...]  # The label words; numbers in a file are positions among them
    t5_fields: tuple[str, ...] = ()
    """The names in T5's text form; empty for a task that T5 was not trained on."""
    metrics: tuple[str, ...] = ("accuracy",)
    """Metrics of the original form; f1 is that of the last label."""
    hub: tuple[str, ...] = ()
    splits: tuple[str, str, str] = ("train", "validation", "")
    """Training, validation and test split; empty for none."""
    threshold: float | None = None  # Where labels are grades: the least grade of the last label


@dataclass(frozen=True, slots=True)
class TextPair:
    """One labelled sentence pair."""

    item: str
    first: str
    second: str
    label: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence after its indicator: ``before + indicator + after + sentence``."""

    indicator: str
    sentence: str
    before: str = ""
    after: str = ": "

    @property
    def mark(self) -> str:
        return self.before + self.indicator + self.after

    @property
    def text(self) -> str:
        return self.mark + self.sentence


Form = tuple[Segment, ...]
"""An item written in one variant: its two sentences, in the order in which they are read."""


def as_string(form: Form) -> str:
    """The segments as one string with a space between."""
    return " ".join(segment.text for segment in form)


def as_lines(form: Form) -> str:
    """The segments, a line each."""
    return "\n".join(segment.text for segment in form)


DEFAULT_LANGUAGE = ""  # The language of questions whose file names none


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer that may be chosen or is right: a text, and others that mean the same."""

    text: str  # What is shown, and what the answers table calls it
    aliases: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return self.text, *self.aliases

    def written(self, text: str) -> Choice:
        """The same answer, shown as ``text``."""
        return Choice(text, tuple(other for other in self.texts if other != text))


@dataclass(frozen=True, slots=True)
class Question:
    """An item of a question suite."""

    item: str
    group: str
    paraphrases: Mapping[str, tuple[str, ...]] = field(hash=False)
    """Language -> the question in one or several phrasings, the base phrasing first."""
    gold: Choice  # The right answer; one of ``options`` where there are any
    options: tuple[Choice, ...] = ()
    """What may be chosen, in the order of the file; empty for an open question."""
    context: str = ""  # Its passages, with ``PASSAGE_END`` between them
    where: str = field(default="", compare=False)
    """``file:line`` of its first row; empty where it comes from no file."""
    written: Mapping[tuple[str, int], tuple[str, ...]] = field(default_factory=dict, hash=False)
    """(language, position of a phrasing) -> the texts of the options, or of the gold of an open
    question, in that phrasing. Empty where they are the same in all phrasings."""
    more: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)
    """The other columns of its first row, by their names in the file, for templates."""
    pin: str = ""

    def in_phrasing(self, language: str, paraphrase: int) -> Question:
        """The question with the options or the gold written as in a phrasing.

        The texts in other phrasings are aliases, so an answer in another language counts.
        """
        texts = self.written.get((language, paraphrase))
        if texts is None:
            return self
        if not self.options:
            return replace(self, gold=self.gold.written(texts[0]))
        options = tuple(
            option.written(text) for option, text in zip(self.options, texts, strict=True)
        )
        return replace(self, options=options, gold=options[self.gold_position])

    @property
    def gold_position(self) -> int:
        """The position of the gold among the options."""
        return self.options.index(self.gold)

    @property
    def passages(self) -> tuple[str, ...]:
        return tuple(self.context.split(PASSAGE_END)) if self.context else ()

    @property
    def phrasings(self) -> int:
        """How many phrasings it has, in the language that has most."""
        return max(map(len, self.paraphrases.values()))


Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is sent for a question in one variant, and what it may answer."""

    turns: tuple[tuple[Role, str], ...]
    """The examples with their answers and, at the end, the question."""
    answers: tuple[str, ...]
    """What the model may answer, in the order in which the options are shown."""
    options: tuple[int, ...]  # The position of each answer among the options of the question
    choices: tuple[Choice, ...] = ()
    gold: int = -1
    """The position of the gold among the answers; no model but a baseline may read it."""
    are_labels: bool = True
    """Whether the answers are labels of options; False where they are their texts."""
    is_chat: bool = False
    system: str = ""
    group: str = ""  # The group of the question; no model but a baseline may read it
    labels: tuple[str, ...] = ()  # What the options were shown with, whether or not a reply is one
    is_open: bool = False  # Whether the answer is written without options to choose from
    reply: str = ""  # In a chat: the beginning of the model's reply

    @property
    def reply_labels(self) -> tuple[str, ...]:
        """The labels that a reply may be: none if it is to be a text and one is such a text."""
        texts = {text for choice in self.choices for text in choice.texts}
        return self.labels if self.are_labels or texts.isdisjoint(self.labels) else ()

    @property
    def text(self) -> str:
        """The prompt as one text: each example is followed by its answer and an empty line."""
        texts = [
            text + {"user": "" if text.endswith((" ", "\n")) else " ", "assistant": "\n\n"}[role]
            for role, text in self.turns
        ]
        return "".join(texts).rstrip(" ")
