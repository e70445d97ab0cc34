"""Layouts of suites of facts: fetched, ParaRel, our own; saving."""

from __future__ import annotations

import hashlib
import http.client
import json
import pickle
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.factors import Edge
from consilience.core.patterns import ENGLISH
from consilience.files.read import Problems, read_rows
from consilience.files.rows import Column, Row, TableError, raise_all, read_table
from consilience.files.write import (
    cannot_write,
    json_lines,
    make_folder,
    path_of,
    refuse_occupied,
    write_whole,
)
from consilience.suites.facts import is_suite, read_folder
from consilience.types import FACT_COLUMNS, PATTERN_COLUMNS, Cardinality, Draft, Suite

SOURCES: dict[str, str] = {
    "pararel": "https://raw.githubusercontent.com/yanaiela/pararel/"
    "cb5554678457beb5ac163d888f1ce8cf174b3f0b/data"
}

SILENCE = 60.0  # Seconds without a byte after which a request ends


@dataclass(frozen=True, slots=True)
class ReleasedFile:
    """A file of a release: its path below the folder of the suite, its bytes, its digest."""

    path: str
    size: int
    sha256: str

    def is_at(self, path: Path) -> bool:
        """Whether the file is at a path with the listed digest."""
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256


def listing(name: str) -> list[ReleasedFile]:
    """The files of a suite that can be fetched."""
    if name not in SOURCES:
        listed = "`consilience suite list` has all suites."
        raise ConsilienceError(
            f"nothing to fetch for '{name}'",
            expected=f"{', '.join(SOURCES)}; other suites come with consilience or "
            "are downloaded at their first use",
            todo=did_you_mean(name, list(SOURCES), otherwise=listed),
        )
    lines = (Path(__file__).parent / f"{name}.sha256").read_text(encoding="utf-8").splitlines()
    rows = (line.split(maxsplit=2) for line in lines if not line.startswith("#"))
    return [ReleasedFile(path, int(size), sha256) for sha256, size, path in rows]


def altered(name: str, folder: Path) -> list[str]:
    """The files of a release that are missing in ``folder`` or differ."""
    return [file.path for file in listing(name) if not file.is_at(folder / file.path)]


def fetch(
    name: str, data: Path, progress: Callable[[int, int], None] = lambda files, total: None
) -> tuple[Path, int]:
    """Fetch a release into ``data/name``: the folder, and the number of files that were fetched.

    A file that is there is kept. One byte more than listed is read at most, and a file with another
    digest is never put in place. ``progress`` is called with the files that are done since, and all
    files.
    """
    folder, files, fetched = data / name, listing(name), 0
    progress(0, len(files))
    for file in files:
        target = folder / file.path
        if not file.is_at(target):
            content = _fetched(f"{SOURCES[name]}/{file.path}", file)
            make_folder(target.parent)
            write_whole(target, content)
            fetched += 1
        progress(1, len(files))
    return folder, fetched


def _fetched(url: str, file: ReleasedFile) -> bytes:
    """The content of a released file; one that cannot be had, or is another one, raises."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "consilience"})
        with urllib.request.urlopen(request, timeout=SILENCE) as response:
            content: bytes = response.read(file.size + 1)
    except (OSError, http.client.HTTPException) as error:
        todo = "Check the network and rerun the command; files that are there are kept."
        raise ConsilienceError(f"cannot be fetched: {error}", where=url, todo=todo) from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise ConsilienceError(
            "not the released file",
            expected=f"SHA-256 {file.sha256}",
            where=url,
            todo="Try again; if it stays so, the source has been changed.",
        )
    return content


class _Record:
    """An object of the file: takes whatever attributes the pickle gives it, and does nothing.

    It is equal and hashed by identity: the file refers to each node by reference.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


_STAND_INS: dict[tuple[str, str], type] = {
    ("networkx.classes.digraph", "DiGraph"): _Record,
    ("builtins", "dict"): dict,
    ("pararel.patterns.graph_types", "PatternNode"): _Record,
    ("pararel.patterns.graph_types", "EdgeType"): _Record,
}


class _GraphUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names '{module}.{name}'")
        return _STAND_INS[module, name]


def read_graph(path: Path) -> tuple[list[str], dict[tuple[int, int], Edge]]:
    """The patterns, and the edges ``(i, j)``, ``i < j``; one with two directions raises."""
    try:
        with path.open("rb") as file:
            graph = _GraphUnpickler(file).load()
        nodes = {node: position for position, node in enumerate(graph._node)}
        patterns = [node.lm_pattern for node in nodes]
        for one in patterns:
            if not isinstance(one, str):
                raise TypeError(f"a pattern is a {type(one).__name__}, not text")
        directed = {
            (nodes[a], nodes[b]): Edge(
                kind.syntactic_change, kind.lexical_change, kind.determiner_change
            )
            for a, neighbours in graph._adj.items()
            for b, kind in ((b, attributes["edge_type"]) for b, attributes in neighbours.items())
        }
        flags = [getattr(edge, name) for edge in directed.values() for name in Edge.__slots__]
        if wrong := [flag for flag in flags if not isinstance(flag, bool)]:
            raise ValueError(f"edge flags {wrong[:3]} are not booleans")
        if any(a == b or directed.get((b, a)) != edge for (a, b), edge in directed.items()):
            raise ValueError("an edge has one direction only")
    except Exception as error:
        raise ConsilienceError(
            f"refused as a pattern graph: {error or type(error).__name__}",
            expected="a pickled graph that holds only patterns and edge types",
            where=str(path),
            todo="Fetch the release again with `consilience suite fetch pararel`.",
        ) from error
    return patterns, {pair: edge for pair, edge in directed.items() if pair[0] < pair[1]}


_TABLE = Path(__file__).with_name("pararel.tsv").read_text(encoding="utf-8")
_RELATIONS = [line.split("\t") for line in _TABLE.splitlines()[1:]]
"""The relations of the paper: id, Wikidata's name, cardinality."""

N_TO_1 = {id_: label for id_, label, cardinality in _RELATIONS if cardinality == "N-1"}
"""The 31 relations that the paper reports consistency for, with Wikidata's name of each."""

"""The 7 relations that the paper reports determinism for."""

MIXED_OBJECTS: dict[str, frozenset[str]] = {
    "P101": frozenset({"folklore", "Judaism", "diplomat", "Hebrew", "cave"}),
    "P136": frozenset({"satire", "sitcom", "thriller", "fantasy"}),
}
"""Objects that do not fit the patterns of their relation (paper, footnote 11).

The release still holds them; without them its 26,946 tuples are the paper's 26,813.
"""


def pararel_root(folder: Path) -> Path | None:
    """The folder with the files of the release: this one, or its ``data``."""
    for one in (folder, folder / "data"):
        if (one / "pattern_data" / "graphs_json").is_dir() and (one / "trex_lms_vocab").exists():
            return one
    return None


TREX = tuple(
    replace(column, others=(other,))
    for column, other in zip(FACT_COLUMNS, ("sub_label", "obj_label", "uuid"), strict=True)
)


def read_pararel(root: Path, problems: Problems) -> Suite:
    """The 38 relations of the paper with its facts; problems are reported."""

    def rows(path: Path, columns: Sequence[Column]) -> Iterator[Row]:
        return read_table(read_rows(path, problems), columns, problems, str(path))

    relations, notes = [], []
    for id_, label, cardinality in _RELATIONS:
        path = root / "pattern_data" / "graphs_json" / f"{id_}.jsonl"
        draft = Draft(id_, label, cast(Cardinality, cardinality), str(path))
        for row in rows(path, PATTERN_COLUMNS):
            draft.add_pattern(row)
        graph = root / "pattern_data" / "graphs" / f"{id_}.graph"
        texts, edges = read_graph(graph) if graph.is_file() else ([*draft.patterns], {})
        if texts == [*draft.patterns]:
            draft.edges = edges
        else:
            error = ConsilienceError(
                "its patterns are not those of graphs_json",
                expected="the same patterns in the same order",
                where=str(graph),
                todo="Fetch the release again with `consilience suite fetch pararel`.",
            )
            problems.append(error)
        dropped = 0
        for row in rows(root / "trex_lms_vocab" / path.name, TREX):
            if row["object"] in MIXED_OBJECTS.get(id_, ()):
                dropped += 1
            else:
                draft.add_fact(row)
        if dropped:
            notes.append(f"{id_}: {dropped} tuples left out, see note 11 of the ParaRel paper")
        relations.append(draft.relation(problems))
    if not any(relation.edges for relation in relations):
        notes.insert(0, "no pattern graphs: no numbers for kinds of edits")
    return Suite("pararel", tuple(relations), "published", tuple(notes))


def load_folder(folder: Path, *, check_release: bool = False) -> Suite:
    """The suite in a folder, in ParaRel's layout or in ours; what is wrong raises in one error.

    ``check_release``: whether the files of ParaRel must be what was released.
    """
    problems: Problems = []
    root = pararel_root(folder)
    if root and check_release:
        problems += [
            ConsilienceError("missing, or not what was released", where=str(root / path))
            for path in altered("pararel", root)
        ]
    try:
        if root:
            suite = read_pararel(root, problems)
        elif is_suite(folder):
            suite = read_folder(folder, problems)
        else:
            raise ConsilienceError(
                "no suite in this folder",
                expected="ParaRel's layout or ours; of questions a file questions.csv",
                where=str(folder),
                todo="See docs/suites.md. `consilience suite new DIR` writes an example.",
            )
    except ConsilienceError as error:
        raise TableError([*problems, error]) from error
    raise_all(problems)
    return suite


def save_suite(suite: Suite, folder: str | Path) -> Path:
    """Write a suite of facts as a new folder that ``load_suite`` reads; the folder.

    The folder has the relations, patterns, facts, edges, names and the language. A suite
    keeps no licence and creator: copy a folder that has them. A folder that
    holds the same suite is left as it is; one with other content raises. A suite that is not the
    same when it is read again raises: a sample whose candidates are more than its own objects,
    and tasks of sentence pairs.
    """
    target = path_of(folder, "the folder of the suite")
    with suppress(ConsilienceError):
        both = load_folder(target), suite
        held, wanted = ((one.name, one.language, one.digest) for one in both)
        if held == wanted:
            return target
    refuse_occupied(target, f"a new or empty folder for the suite '{suite.name}'")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            written = Path(scratch, "suite")
            _write(suite, written)
            if target.is_dir():
                target.rmdir()  # it is empty
            written.replace(target)
    except OSError as error:
        raise cannot_write(target, error) from error
    return target


def _write(suite: Suite, folder: Path) -> None:
    """Write the files of a suite to a new folder, and check that they hold the same suite."""
    names = ("relations", "patterns", "facts", "edges", "names")
    tables: dict[str, list[dict[str, object]]] = {name: [] for name in names}
    for relation in suite:
        of, texts = {"relation": relation.id}, [pattern.text for pattern in relation.patterns]
        tables["relations"].append(
            {**of, "label": relation.label, "cardinality": relation.cardinality}
        )
        for pattern in relation.patterns:
            annotations = ("lemma", "extended_lemma", "tense")
            written = {name: getattr(pattern, name) for name in annotations}
            if pattern.language != suite.language:
                written["language"] = pattern.language
            tables["patterns"].append({**of, "pattern": pattern.text, **written})
        tables["facts"] += [{**of, **asdict(fact)} for fact in relation.facts]
        tables["edges"] += [
            {**of, "pattern_a": texts[first], "pattern_b": texts[second]}
            | {name: int(getattr(edge, name)) for name in Edge.__slots__}
            for (first, second), edge in sorted(relation.edges.items())
        ]
        for tag, of_language in relation.names.items():
            for name, text in of_language.items():
                row: dict[str, object] = {"name": name, "language": tag, "text": text}
                if row not in tables["names"]:
                    tables["names"].append(row)
    about = {"name": suite.name}
    if suite.language != ENGLISH:
        about["language"] = suite.language
    folder.mkdir()
    write_whole(folder / "suite.json", json.dumps(about).encode())
    for name, rows in tables.items():
        if rows or name not in ("edges", "names"):
            write_whole(folder / f"{name}.jsonl", json_lines(rows))
    if load_folder(folder).digest != suite.digest:
        raise ConsilienceError(
            f"the suite '{suite.name}' cannot be written as a folder",
            expected="relations with their own facts as candidates",
            todo="Choose a part of a suite with groups= and limit=.",
        )
