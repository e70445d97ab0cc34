"""The questions of a suite."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from consilience.expectations import Expectation
from consilience.frames import THE_FRAME, as_polars
from consilience.questions import Question
from consilience.suites.question_rows import questions_of_rows
from consilience.suites.rows import Problems, raise_first
from consilience.text import counted


@dataclass(frozen=True, slots=True, repr=False)
class Questions:
    """The questions of a suite, in the order of their files."""

    name: str
    items: tuple[Question, ...]
    notes: tuple[str, ...] = ()
    """What a reader should know of them."""
    expectations: tuple[Expectation, ...] = ()
    """What should hold between their answers."""
    source: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The file or the folder that they were read from (``file``), and the names of its columns that
    were given; empty where they are from nowhere else on this machine."""

    @classmethod
    def from_frame(
        cls, frame: Any, *, columns: Mapping[str, str] | None = None, name: str = "questions"
    ) -> Questions:
        """The questions of a pandas or polars frame; the first problem raises, with its row.

        The columns are those of a file (``question_columns.COLUMNS``): ``question`` and ``answer``
        are needed, ``options`` is a list or one text with ``;``. ``columns``: the frame's name of
        each that is called otherwise there, such as ``{"question": "stem", "options": "A+B+C+D"}``.
        ``name``: of the suite, and of the group of questions that name none.
        """
        problems: Problems = []
        rows = (
            (f"{THE_FRAME}, row {at}", row)
            for at, row in enumerate(as_polars(frame).iter_rows(named=True), start=1)
        )
        items, notes = questions_of_rows(
            rows, name, columns or {}, problems, source=THE_FRAME, in_python=True
        )
        raise_first(problems, how_to_list="")
        return cls(name, items, notes)

    def __repr__(self) -> str:
        groups = len({question.group for question in self.items})
        sizes = f"{counted(len(self.items), 'question')}, {counted(groups, 'group')}"
        if self.expectations:
            sizes += f", {counted(len(self.expectations), 'expectation')}"
        return f"Questions({self.name!r}: {sizes})"

    def __len__(self) -> int:
        return len(self.items)

    @property
    def groups(self) -> dict[str, tuple[Question, ...]]:
        """The questions of each group, groups in order of first appearance."""
        groups: dict[str, list[Question]] = {}
        for question in self.items:
            groups.setdefault(question.group, []).append(question)
        return {name: tuple(questions) for name, questions in groups.items()}

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of all questions, in order of first appearance."""
        return tuple(
            dict.fromkeys(language for item in self.items for language in item.paraphrases)
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all that can be asked, in its order."""
        rows = [
            [
                question.item,
                question.group,
                list(question.paraphrases.items()),
                question.gold.texts,
                [option.texts for option in question.options],
                question.context,
                *([sorted(question.written.items())] if question.written else []),
            ]
            for question in self.items
        ]
        return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
