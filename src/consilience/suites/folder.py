"""Suites in our own plain folder layout (``docs/suites.md``): four tables of JSONL or TSV."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from consilience.errors import ConsilienceError, did_you_mean
from consilience.read import parse_json, read_text
from consilience.suites.rows import (
    control_in,
    find_table,
    is_relation_id,
    optional_text,
    raise_first,
    read_rows,
    require,
    text_field,
)
from consilience.types import (
    Candidates,
    Cardinality,
    Edge,
    Fact,
    Pattern,
    Relation,
    Suite,
)

CARDINALITIES: tuple[Cardinality, ...] = ("N-1", "N-M")


def is_folder_suite(folder: Path) -> bool:
    """Whether ``folder`` is meant to be a suite in this layout."""
    return any(find_table(folder, name) for name in ("patterns", "facts"))


def load_folder(folder: Path) -> Suite:
    """Read and check a suite; the first problem is raised with file and line."""
    problems: list[ConsilienceError] = []
    suite = read_folder(folder, problems)
    raise_first(problems)
    return suite


def read_folder(folder: Path, problems: list[ConsilienceError]) -> Suite:
    """Read a suite and add everything that is wrong with it to ``problems``."""
    tables = {name: find_table(folder, name) for name in ("relations", "patterns", "facts")}
    for name, path in tables.items():
        if path is None:
            raise ConsilienceError(
                f"no {name}.jsonl or {name}.tsv",
                expected="a suite folder with relations, patterns and facts",
                where=str(folder),
                todo="See docs/suites.md for the layout.",
            )
    paths = cast(dict[str, Path], tables)
    heads = _read_relations(paths["relations"], problems)
    if not heads:
        raise (
            problems.pop(0)
            if problems
            else ConsilienceError(
                "no relation", where=str(paths["relations"]), todo="Add one line for each relation."
            )
        )
    patterns = _read_patterns(paths["patterns"], heads, problems)
    facts = _read_facts(paths["facts"], heads, problems)
    edge_path = find_table(folder, "edges")
    edges = _read_edges(edge_path, patterns, problems) if edge_path else {}
    relations = []
    for id_, (label, cardinality, where) in heads.items():
        require(patterns[id_], "pattern", id_, where, problems)
        require(facts[id_], "fact", id_, where, problems)
        relations.append(
            Relation(
                id_,
                label,
                cardinality,
                tuple(patterns[id_].values()),
                tuple(facts[id_]),
                edges.get(id_, {}),
                Candidates.of(facts[id_]),
            )
        )
    return Suite(_suite_name(folder), tuple(relations), protocol="strict")


def _suite_name(folder: Path) -> str:
    about = folder / "suite.json"
    if not about.is_file():
        name = folder.resolve().name
        if found := control_in(name):
            raise ConsilienceError(
                f"{found} in the name of the folder, which names the suite",
                where=ascii(str(folder)),
                todo="Rename the folder.",
            )
        return name
    try:
        name = parse_json(read_text(about))["name"]
        if not isinstance(name, str) or not name.strip():
            raise ValueError("no name")
    except (ValueError, KeyError, TypeError) as error:
        raise ConsilienceError(
            "not a JSON object with a 'name'", where=str(about), todo="Mend or remove the file."
        ) from error
    if found := control_in(name):
        raise ConsilienceError(f"{found} in 'name'", where=str(about), todo="Remove it.")
    return name


Heads = dict[str, tuple[str, Cardinality, str]]


def _read_relations(path: Path, problems: list[ConsilienceError]) -> Heads:
    heads: Heads = {}
    for where, row in read_rows(path, problems):
        id_ = text_field(row, "relation", where, problems)
        cardinality = row.get("cardinality", "N-1")
        if cardinality not in CARDINALITIES:
            problems.append(
                ConsilienceError(f"cardinality '{cardinality}'", expected="N-1 or N-M", where=where)
            )
            continue
        if id_ in heads:
            problems.append(
                ConsilienceError(
                    f"the relation '{id_}' a second time",
                    where=where,
                    todo=f"It stands at {heads[id_][2]} already.",
                )
            )
        elif is_relation_id(id_, where, problems):
            heads[id_] = (optional_text(row, "label", where, problems) or id_, cardinality, where)
    return heads


def _known(id_: str, heads: Heads, where: str, problems: list[ConsilienceError]) -> bool:
    if id_ and id_ not in heads:
        problems.append(
            ConsilienceError(
                f"the relation '{id_}' is not among the relations",
                where=where,
                todo=did_you_mean(id_, list(heads)),
            )
        )
    return id_ in heads


def _read_patterns(
    path: Path, heads: Heads, problems: list[ConsilienceError]
) -> dict[str, dict[str, Pattern]]:
    patterns: dict[str, dict[str, Pattern]] = {id_: {} for id_ in heads}
    for where, row in read_rows(path, problems):
        id_ = text_field(row, "relation", where, problems)
        text = text_field(row, "pattern", where, problems)
        if not _known(id_, heads, where, problems) or not text:
            continue
        try:
            pattern = parse_pattern(row, text, where, problems)
        except ConsilienceError as error:
            problems.append(error)
            continue
        if text in patterns[id_]:
            problems.append(
                ConsilienceError(
                    f"the pattern '{text}' of '{id_}' a second time",
                    where=where,
                    todo="Remove one of the two.",
                )
            )
        patterns[id_][text] = pattern
    return patterns


def parse_pattern(
    row: dict[str, object], text: str, where: str, problems: list[ConsilienceError]
) -> Pattern:
    """A pattern with the annotations that its row holds."""
    names = ("lemma", "extended_lemma", "tense")
    notes = {name: optional_text(row, name, where, problems) for name in names}
    return Pattern.parse(text, where=where, **notes)


def _read_facts(
    path: Path, heads: Heads, problems: list[ConsilienceError]
) -> dict[str, list[Fact]]:
    facts: dict[str, list[Fact]] = {id_: [] for id_ in heads}
    items: dict[str, set[str]] = {id_: set() for id_ in heads}
    for where, row in read_rows(path, problems):
        id_ = text_field(row, "relation", where, problems)
        subject = text_field(row, "subject", where, problems)
        object_ = text_field(row, "object", where, problems)
        if not _known(id_, heads, where, problems) or not subject or not object_:
            continue
        item = optional_text(row, "item", where, problems) or f"{id_}-{len(facts[id_]) + 1}"
        if item in items[id_]:
            problems.append(
                ConsilienceError(
                    f"the item '{item}' of '{id_}' a second time",
                    where=where,
                    todo="Give each fact an item id of its own.",
                )
            )
        items[id_].add(item)
        facts[id_].append(Fact(item, subject, object_))
    return facts


def _read_edges(
    path: Path, patterns: dict[str, dict[str, Pattern]], problems: list[ConsilienceError]
) -> dict[str, dict[tuple[int, int], Edge]]:
    edges: dict[str, dict[tuple[int, int], Edge]] = {}
    positions = {
        id_: {text: index for index, text in enumerate(texts)} for id_, texts in patterns.items()
    }
    for where, row in read_rows(path, problems):
        id_ = text_field(row, "relation", where, problems)
        ends = [text_field(row, name, where, problems) for name in ("pattern_a", "pattern_b")]
        known = positions.get(id_, {})
        unknown = [text for text in ends if text not in known]
        if unknown or ends[0] == ends[1]:
            found = f"'{unknown[0]}'" if unknown else "an edge from a pattern to itself"
            problems.append(
                ConsilienceError(
                    found, expected=f"two patterns of '{id_}'", where=where, todo="Correct it."
                )
            )
            continue
        flags = [_flag(row, name, where, problems) for name in Edge.__slots__]
        a, b = sorted(known[text] for text in ends)
        if (a, b) in edges.get(id_, {}):
            problems.append(
                ConsilienceError(
                    f"the pair '{ends[0]}' and '{ends[1]}' a second time",
                    expected="each pair of patterns once",
                    where=where,
                )
            )
        edges.setdefault(id_, {})[a, b] = Edge(*flags)
    return edges


def _flag(row: dict[str, object], name: str, where: str, problems: list[ConsilienceError]) -> bool:
    value = row.get(name)
    if str(value).lower() in ("0", "1", "false", "true"):
        return str(value).lower() in ("1", "true")
    problems.append(ConsilienceError(f"'{name}' is {value!r}", expected="0 or 1", where=where))
    return False
