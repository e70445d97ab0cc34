"""Suites that people know: data sets of the Hub, each a row of ``known.toml``; where data lies."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, reason_of
from consilience.core.items import Choice
from consilience.files.rows import Problems
from consilience.suites.questions import Questions, file_rows, questions_of_rows


def data_dir(folder: Path | None = None) -> Path:
    """Where fetched data lies: what was given, ``CONSILIENCE_DATA``, or the user's cache."""
    if folder is not None:
        return folder
    if os.environ.get("CONSILIENCE_DATA"):
        return Path(os.environ["CONSILIENCE_DATA"])
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "consilience"


Cells = Mapping[str, Any]


def _flagged(cells: Cells) -> Cells:
    """The option whose flag is 1; the data set has it first, so the options are shuffled."""
    options, right = list(cells["options"]), list(cells["answer"]).index(1)
    return {"answer": options.pop(right), "distractors": options, "options": None}


READERS: Mapping[str, Callable[[Cells], Cells]] = {
    "": lambda cells: {},
    "position": lambda cells: {"answer": int(cells["answer"])},
    "flags": _flagged,
    "after ####": lambda cells: {"answer": cells["answer"].split("####")[1].strip()},
}
"""How a row understands the answer: as it is, as the text of a position from 0, as a list with 1 at
the right option, or as what follows a solution."""


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

    def cells(self, row: Cells) -> Cells:
        """The cells of a row by our names of their columns."""
        ours = {name: self._cell(row, source) for name, source in self.columns.items()}
        return {**ours, **READERS[self.reads](ours)}

    def _cell(self, row: Cells, source: str) -> Any:
        is_text = "{" in source
        value: Any = source.format(**row) if is_text else reduce(getitem, source.split("."), row)
        texts = value if isinstance(value, list) else [value]
        for pattern, text in self.clean:
            texts = [re.sub(pattern, text, one) for one in texts]
        return texts if isinstance(value, list) else texts[0]

    def read(self, data: Path, problems: Problems) -> Questions:
        """The questions; one that cannot be asked is left out, with a note."""
        files, revision = self.files(data)
        left_out = Problems()
        rows = [cells for file in files for _, cells in file_rows(file, problems)]
        items, notes = questions_of_rows(
            self._asked(rows, left_out), self.title, {}, left_out, source=self.title, parse=Choice
        )
        if not items:
            problems += left_out
        elif left_out:
            found = f"{len(left_out):,} of {len(rows):,} questions are left out, such as"
            notes = (*notes, f"{found} {left_out[0]}")
        at = "" if revision == "local files" else f"@{revision[:7]}"
        about = f"{self.dataset}{at}, {self.split}: {self.licence}, {self.citation}"
        source = {**self.source, "revision": revision}
        return Questions(self.title, items, (about, *notes), source=source)

    def _asked(self, rows: Sequence[Cells], left_out: Problems) -> Iterator[tuple[str, Cells]]:
        for number, row in enumerate(rows, start=1):
            where = f"{self.title}, row {number}"
            try:
                yield where, self.cells(row)
            except KeyError as error:
                found = f"no column {error} among {', '.join(map(str, row))}"
                expected = f"those of {self.dataset}"
                raise ConsilienceError(found, expected=expected, where=where) from error
            except (ValueError, IndexError, TypeError, AttributeError):
                left_out.append(ConsilienceError("no right answer", where=where))


_ROWS = tomllib.loads(Path(__file__).with_name("known.toml").read_text("utf-8"))

KNOWN = {name: KnownSuite(name, **row) for name, row in _ROWS.items()}
ABOUT = {name: "{about}; {licence}, {citation}".format(**row) for name, row in _ROWS.items()}
"""What each is, its licence, and whom to cite."""


def known_suite(spec: str) -> KnownSuite | None:
    """The suite that ``NAME`` or ``NAME:SPLIT`` names; None of other texts."""
    name, _, split = spec.partition(":")
    known = KNOWN.get(name)
    return replace(known, split=split) if known and split else known
