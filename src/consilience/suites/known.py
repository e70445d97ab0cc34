"""Suites that people know: data sets of the Hub, each a row of ``known.toml``; where data lies."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, reason_of
from consilience.core.items import DEFAULT_LANGUAGE, Choice, Question
from consilience.files.read import read_parquet, read_rows
from consilience.files.rows import TableError
from consilience.suites.questions import YES_NO, Questions, shuffled


def data_dir(folder: Path | None = None) -> Path:
    """Where fetched data lies: what was given, ``CONSILIENCE_DATA``, or the user's cache."""
    if folder is not None:
        return folder
    if os.environ.get("CONSILIENCE_DATA"):
        return Path(os.environ["CONSILIENCE_DATA"])
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "consilience"


Cells = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownSuite:
    """A data set of questions on the Hub.

    ``config``: also the folder of its files, which is ``data`` without one. ``columns``: our name
    of a column and theirs: ``a.b`` is a part of a column, and in a text with braces columns are
    filled in. ``reads``: of ``READERS``. ``clean``: patterns in the texts, and what replaces them.
    """

    name: str
    about: str
    dataset: str
    revision: str
    split: str
    licence: str
    citation: str
    columns: Mapping[str, str]
    config: str = ""
    reads: str = ""
    clean: Sequence[Sequence[str]] = ()

    @property
    def title(self) -> str:
        """The name of the suite, with its split where that is not the usual one."""
        return self.name + f"-{self.split}" * (self.split != KNOWN[self.name].split)

    @property
    def source(self) -> dict[str, str]:
        """What the row says of the data set."""
        names = ("dataset", "config", "split", "revision", "licence", "citation")
        return {name: getattr(self, name) for name in names}

    def files(self, data: Path) -> tuple[list[Path], str]:
        """The files of the split, and their revision: of ``data/NAME``, the cache, or the Hub."""
        if (folder := data / self.name).is_dir():
            return self._within(folder), "local files"
        from huggingface_hub import constants, snapshot_download

        wanted, reason = f"{self.config or 'data'}/{self.split}-*", ""
        for is_cached in (True, False):
            try:
                root = snapshot_download(
                    self.dataset, repo_type="dataset", revision=self.revision,
                    allow_patterns=wanted, local_files_only=is_cached,
                )  # fmt: skip
                return self._within(Path(root)), Path(root).name
            except Exception as error:  # the network, no such split in the cache: nearly anything
                reason = reason_of(error)
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else reason
        raise ConsilienceError(
            f"'{self.name}' is not in the cache of the Hub and cannot be downloaded: {reason}",
            expected=f"{wanted}.parquet of {self.dataset}",
            todo="Run the command once with a network, or copy https://huggingface.co/datasets/"
            f"{self.dataset}/tree/{self.revision} to {folder} (or CONSILIENCE_DATA=...).",
        )

    def _within(self, folder: Path) -> list[Path]:
        """The files of the split in a copy of the data set; none, or a part of them, raises."""
        paths = sorted((folder / (self.config or "data")).glob(f"{self.split}[-.]*"))
        found = [path for path in paths if path.suffix in (".parquet", ".jsonl")]
        parts = re.search(r"-of-(\d+)", found[0].name) if found else None
        if not found or (parts and int(parts[1]) != len(found)):
            place = f"{self.config or 'data'}/{self.split}"
            expected = f"{place}.jsonl, or all {place}-*.parquet"
            raise ConsilienceError(f"{len(found)} files", expected=expected, where=str(folder))
        return found

    def read(self, data: Path) -> Questions:
        """The questions; one that cannot be asked is left out, with a note."""
        files, revision = self.files(data)
        rows: list[Cells] = []
        for file in files:  # of Parquet without the names of class labels, which are positions
            is_table = file.suffix == ".parquet"
            rows += (
                read_parquet(file).to_dicts() if is_table else [row for _, row in read_rows(file)]
            )
        sizes: Counter[str] = Counter()
        items, left_out = [], []
        for number, row in enumerate(rows, start=1):
            where = f"{self.title}, row {number}"
            try:
                items.append(self._question(row, where, sizes))
            except KeyError as error:
                found = f"no column {error} among {', '.join(map(str, row))}"
                expected = f"those of {self.dataset}"
                raise ConsilienceError(found, expected=expected, where=where) from error
            except (ValueError, IndexError, TypeError, AttributeError):
                left_out.append(ConsilienceError("no right answer", where=where))
        if not items:
            raise TableError(left_out or [ConsilienceError("no questions", where=self.title)])
        at = "" if revision == "local files" else f"@{revision[:7]}"
        notes = [f"{self.dataset}{at}, {self.split}: {self.licence}, {self.citation}"]
        if left_out:
            found = f"{len(left_out):,} of {len(rows):,} questions are left out, such as"
            notes.append(f"{found} {left_out[0]}")
        source = {**self.source, "revision": revision}
        return Questions(self.title, tuple(items), tuple(notes), source=source)

    def _question(self, row: Cells, where: str, sizes: Counter[str]) -> Question:
        """The question of a row; a ``ValueError`` where it has no answer, or twice an option."""
        ours = {name: self._cell(row, source) for name, source in self.columns.items()}
        answer, options = ours["answer"], list(map(Choice, ours.get("options", ())))
        if self.reads == "yes or no":
            options = list(YES_NO)
        gold = READERS[self.reads](answer, ours)
        gold = gold if isinstance(gold, Choice) else options[gold]
        group = ours.get("group", self.title)
        sizes[group] += 1
        item = ours.get("item", f"{group}-{sizes[group]}")
        if len({option.text for option in options}) < len(options):
            raise ValueError("two options are the same")
        if self.reads == "flags":  # the data set has it first
            options = shuffled([gold, *(one for one in options if one is not gold)], item)
        texts = {DEFAULT_LANGUAGE: (ours["question"],)}
        return Question(item, group, texts, gold, tuple(options), ours.get("context", ""), where)

    def _cell(self, row: Cells, source: str) -> Any:
        is_text = "{" in source
        value: Any = source.format(**row) if is_text else reduce(getitem, source.split("."), row)
        texts = value if isinstance(value, list) else [value]
        for pattern, text in self.clean:
            texts = [re.sub(pattern, text, one) for one in texts]
        return texts if isinstance(value, list) else texts[0]


READERS: Mapping[str, Callable[[Any, Cells], int | Choice]] = {
    "position": lambda answer, cells: range(len(cells["options"]))[int(answer)],
    "label": lambda answer, cells: list(cells["labels"]).index(answer),
    "flags": lambda answer, cells: list(answer).index(1),
    "yes or no": lambda answer, cells: YES_NO[answer is False],
    "after ####": lambda answer, cells: Choice(answer.split("####")[1].strip()),
}
"""How a row understands the answer: as the text of a position from 0, one of the ``labels``, a list
with 1 at the right option, true or false, or what follows a solution."""

_ROWS = tomllib.loads(Path(__file__).with_name("known.toml").read_text("utf-8"))

KNOWN = {name: KnownSuite(name, **row) for name, row in _ROWS.items()}
ABOUT = {name: "{about}; {licence}, {citation}".format(**row) for name, row in _ROWS.items()}
"""What each is, its licence, and whom to cite."""


def known_suite(spec: str) -> KnownSuite | None:
    """The suite that ``NAME`` or ``NAME:SPLIT`` names; None of other texts."""
    name, _, split = spec.partition(":")
    known = KNOWN.get(name)
    return replace(known, split=split) if known and split else known
