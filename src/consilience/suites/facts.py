"""Suites of facts: the folder, ParaRel's release, selections."""

from __future__ import annotations

import hashlib
import http.client
import random
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.factors import Edge
from consilience.core.items import ENGLISH, Names
from consilience.core.text import listed, rejoined
from consilience.files.read import Problems, read_document, read_rows
from consilience.files.rows import (
    Column,
    Row,
    TableError,
    find_table,
    flag,
    language_tag,
    line,
    one_of,
    raise_all,
    read_one,
    read_table,
)
from consilience.files.write import make_folder, write_whole
from consilience.types import (
    FACT_COLUMNS,
    PATTERN_COLUMNS,
    Cardinality,
    Relation,
    RelationBuilder,
    Suite,
    add_name,
    sentence,
    translations,
)

ID = Column("relation", line)
RELATIONS = (
    ID, Column("label", line, "", is_needed=False),
    Column("cardinality", one_of("N-1", "N-M"), "N-1", is_needed=False),
)  # fmt: skip
NAMES = Column("name", line), Column("text", line)
EDGES = (
    ID, Column("pattern_a", sentence), Column("pattern_b", sentence),
    *(Column(name, flag) for name in Edge.__slots__),
)  # fmt: skip


def is_suite(folder: Path) -> bool:
    """Whether a folder is meant to be a suite in our layout."""
    return any(find_table(folder, name) for name in ("patterns", "facts"))


def read_folder(folder: Path, problems: Problems, *, needs_patterns: bool = True) -> Suite:
    """Read a suite and report everything that is wrong with it.

    ``needs_patterns=False``: relations may still be without patterns, and the table may be missing.
    """
    paths = {name: find_table(folder, name) for name in ("patterns", "relations", "facts")}
    for name, path in paths.items():
        if path is None and (needs_patterns or name != "patterns"):
            raise ConsilienceError(
                f"no {name}.jsonl or {name}.tsv",
                expected="a suite folder with relations, patterns and facts",
                where=str(folder),
                todo="See docs/suites.md for the layout.",
            )

    def rows(name: str, columns: Sequence[Column]) -> Iterator[Row]:
        path = paths.get(name) or find_table(folder, name)
        cells = [*read_rows(path, problems)] if path else []
        return read_table(cells, (*columns, *translations(cells)), problems, str(path))

    builders: dict[str, RelationBuilder] = {}
    places: dict[str, str] = {}
    names: Names = {}
    for row in rows("relations", RELATIONS):
        id_ = row["relation"]
        if row.is_new(id_, places, f"relation '{id_}'"):
            builders[id_] = RelationBuilder(
                id_, row["label"] or id_, row["cardinality"], row.where, names=names
            )
    if not builders:
        todo, where = "Add one line for each relation.", str(paths["relations"])
        raise (
            problems.pop(0) if problems else ConsilienceError("no relation", where=where, todo=todo)
        )
    name, language = _about(folder)
    tables: dict[str, tuple[Sequence[Column], Callable[[RelationBuilder, Row], None]]] = {
        "patterns": (
            (ID, *PATTERN_COLUMNS),
            lambda builder, row: builder.add_pattern(row, language),
        ),
        "facts": ((ID, *FACT_COLUMNS), RelationBuilder.add_fact),
        "edges": (EDGES, _add_edge),
    }
    for table, (columns, add) in tables.items():
        for row in rows(table, columns):
            if builder := builders.get(row["relation"]):
                add(builder, row)
            else:
                found = f"the relation '{row['relation']}' is not among the relations"
                todo = did_you_mean(row["relation"], list(builders))
                row.report(found, "relation", todo=todo)
    known = {one for builder in builders.values() for fact in builder.facts for one in fact.names}
    for row in rows("names", (Column("language", language_tag, language), *NAMES)):
        add_name(row, names, row["name"], row["language"], row["text"])
        if row["name"] not in known:
            todo = did_you_mean(row["name"], list(known))
            row.report(f"no subject or object '{row['name']}'", "name", todo=todo)
    finished = tuple(
        builder.relation(problems, needs_patterns=needs_patterns) for builder in builders.values()
    )
    return Suite(name, finished, "strict", language=language)


def _about(folder: Path) -> tuple[str, str]:
    """The name and the language in ``suite.json``; else that of the folder, and English."""
    about, where = folder / "suite.json", ascii(str(folder))
    content = {"name": folder.resolve().name}
    if about.is_file():
        where, content = str(about), read_document(about)
    if not isinstance(content, dict):
        raise ConsilienceError("no JSON object", where=where, todo="Correct or remove the file.")
    columns = Column("name", line), Column("language", language_tag, ENGLISH, is_needed=False)
    values = read_one(content, columns, where)
    return values["name"], values["language"]


def _add_edge(builder: RelationBuilder, row: Row) -> None:
    texts, known = [row["pattern_a"], row["pattern_b"]], list(builder.patterns)
    unknown = [text for text in texts if text not in known]
    if unknown or texts[0] == texts[1]:
        problem = f"'{unknown[0]}'" if unknown else "an edge from a pattern to itself"
        row.report(problem, expected=f"two patterns of '{builder.id}'", todo="Correct it.")
        return
    first, second = sorted(map(known.index, texts))
    row.is_new((first, second), builder.places, f"pair '{texts[0]}' and '{texts[1]}'")
    builder.edges[first, second] = Edge(*(row[name] for name in Edge.__slots__))


def select_relations(suite: Suite, ids: Sequence[str]) -> Suite:
    """The suite with only the relations of these ids or labels, in the suite's order."""
    known = [name for relation in suite for name in (relation.id, relation.label)]
    ids = [suite[name].id for name in rejoined(ids, known)]
    left_out = {relation.id for relation in suite.relations} - set(ids)
    return replace(
        suite,
        relations=tuple(relation for relation in suite.relations if relation.id in ids),
        notes=tuple(note for note in suite.notes if note.split(":")[0] not in left_out),
    )


def select_languages(suite: Suite, languages: Sequence[str]) -> Suite:
    """The suite with only the patterns in these languages; relations without any are left out."""
    every = [pattern.language for relation in suite.relations for pattern in relation.patterns]
    known = list(dict.fromkeys(every))
    for language in languages:
        if language not in known:
            raise ConsilienceError(
                f"the suite '{suite.name}' has no pattern in '{language}'",
                todo=did_you_mean(language, known),
            )
    relations = []
    for relation in suite.relations:
        chosen = {one.text for one in relation.patterns if one.language in languages}
        names = {tag: of for tag, of in relation.names.items() if tag in languages}
        relations.append(replace(relation.only(chosen), names=names))
    left_out = [relation.id for relation in relations if not relation.patterns]
    notes = [f"no pattern in {', '.join(languages)}: {', '.join(left_out)}"] if left_out else []
    return replace(
        suite,
        relations=tuple(relation for relation in relations if relation.patterns),
        notes=(*suite.notes, *notes),
    )


def sample_facts(suite: Suite, limit: int, seed: int) -> Suite:
    """At most ``limit`` facts a relation, by ``seed``, in their order; all candidates stay."""
    if limit < 1:
        raise ConsilienceError(f"a limit of {limit} facts", expected="1 or more")

    def sample(relation: Relation) -> Relation:
        if len(relation.facts) <= limit:
            return relation
        order = random.Random(f"{seed} {relation.id}")
        chosen = sorted(order.sample(range(len(relation.facts)), limit))
        return replace(relation, facts=tuple(relation.facts[index] for index in chosen))

    return replace(suite, relations=tuple(map(sample, suite.relations)))


SOURCES: dict[str, str] = {
    "pararel": "https://raw.githubusercontent.com/yanaiela/pararel/"
    "cb5554678457beb5ac163d888f1ce8cf174b3f0b/data"
}


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


def fetch(
    name: str, data: Path, advance: Callable[[int, int], None] = lambda files, total: None
) -> tuple[Path, int]:
    """Fetch a release into ``data/name``: the folder, and the number of files that were fetched.

    A file that is there is kept. One byte more than listed is read at most, and a file with another
    digest is never put in place. ``advance`` is called with the files that are done since, and all
    files.
    """
    folder, files, fetched = data / name, listing(name), 0
    advance(0, len(files))
    for file in files:
        target = folder / file.path
        if not file.is_at(target):
            content = _fetched(f"{SOURCES[name]}/{file.path}", file)
            make_folder(target.parent)
            write_whole(target, content)
            fetched += 1
        advance(1, len(files))
    return folder, fetched


def _fetched(url: str, file: ReleasedFile) -> bytes:
    """The content of a released file; one that cannot be had, or is another one, raises."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "consilience"})
        with urllib.request.urlopen(request, timeout=60) as response:  # seconds
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


_TABLE = Path(__file__).with_name("pararel.tsv").read_text(encoding="utf-8")
_RELATIONS = [line.split("\t") for line in _TABLE.splitlines()[1:]]
"""The relations of the paper: id, Wikidata's name, cardinality, and 12 digits of the SHA-256 of its
patterns, for which ``pararel_edges.tsv`` has the edges of the released graphs (MIT License)."""

N_TO_1 = {id_: label for id_, label, cardinality, _ in _RELATIONS if cardinality == "N-1"}
"""The 31 relations that the paper reports consistency for, with Wikidata's name of each."""

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

    relations, notes, changed = [], [], []
    edges: dict[str, dict[tuple[int, int], Edge]] = {}
    for _, of in read_rows(Path(__file__).with_name("pararel_edges.tsv")):
        edge = Edge(*(of[name] == "1" for name in Edge.__slots__))
        edges.setdefault(of["relation"], {})[int(of["first"]), int(of["second"])] = edge
    for id_, label, cardinality, digest in _RELATIONS:
        path = root / "pattern_data" / "graphs_json" / f"{id_}.jsonl"
        builder = RelationBuilder(id_, label, cast(Cardinality, cardinality), str(path))
        for row in rows(path, PATTERN_COLUMNS):
            builder.add_pattern(row)
        if hashlib.sha256("\n".join(builder.patterns).encode()).hexdigest().startswith(digest):
            builder.edges = edges[id_]
        else:
            changed.append(id_)
        dropped = 0
        for row in rows(root / "trex_lms_vocab" / path.name, TREX):
            if row["object"] in MIXED_OBJECTS.get(id_, ()):
                dropped += 1
            else:
                builder.add_fact(row)
        if dropped:
            notes.append(f"{id_}: {dropped} tuples left out, see note 11 of the ParaRel paper")
        relations.append(builder.relation(problems))
    if changed:
        found = f"no numbers for kinds of edits of {listed(changed)}"
        notes.insert(0, f"{found}: their patterns are not the released ones")
    return Suite("pararel", tuple(relations), "published", tuple(notes))


def load_folder(folder: Path, *, check_release: bool = False) -> Suite:
    """The suite in a folder, in ParaRel's layout or in ours; what is wrong raises in one error.

    ``check_release``: whether the files of ParaRel must be what was released.
    """
    problems: Problems = []
    root = pararel_root(folder)
    if root and check_release:
        problems += [
            ConsilienceError("missing, or not what was released", where=str(root / file.path))
            for file in listing("pararel")
            if not file.is_at(root / file.path)
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
