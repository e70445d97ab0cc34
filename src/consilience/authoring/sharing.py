"""A suite that is shared: its data card and its description."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from consilience import suites
from consilience.analysis.syntax import base_types, load_parser
from consilience.authoring.audit import writable_folder
from consilience.authoring.checks import is_english
from consilience.core.errors import ConsilienceError
from consilience.files.read import parse_json, read_rows, read_text
from consilience.files.write import write_whole
from consilience.options import Output
from consilience.report.export import as_markdown
from consilience.report.metric_tables import statistics_tables
from consilience.report.shown import Shown
from consilience.report.table import Column, Table, Value
from consilience.suites.facts import suite_statistics
from consilience.suites.layouts import layout_of, load_folder
from consilience.suites.proposals import (
    VERDICTS,
    Proposal,
    SignOff,
    is_date,
    last_verdicts,
    provenance_of,
    signoffs_of,
)
from consilience.suites.question_suites import is_questions
from consilience.suites.rows import Places, places_in
from consilience.types import Suite
from consilience.workflow.suite_options import CardOptions

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"

TERMS = (
    "citeAs", "column", "conformsTo", "equivalentProperty", "extract", "field", "fileProperty",
    "fileObject", "fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace",
    "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
"""Terms of Croissant that the context of a document maps to it."""

CONTEXT: Mapping[str, object] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in TERMS},
    "conformsTo": "dct:conformsTo",
}
"""The context of every Croissant document, as the specification has it."""

FORMATS = {".jsonl": "application/jsonlines", ".tsv": "text/tab-separated-values"}

TABLES: Mapping[str, str] = {
    "relations": "Relations: id, name and cardinality.",
    "patterns": "Cloze patterns with a slot for the subject [X] and the object [Y].",
    "facts": "Facts: subject and object of a relation.",
    "edges": "How two patterns of a relation differ.",
    "names": "How subjects and objects are written in a language and form.",
    "aliases": "Answers that mean the same.",
    "provenance": "Where each pattern comes from.",
    "signoff": "Who judged which pattern, when, and how.",
}
"""The tables of a suite folder, and what they hold."""


def croissant(folder: Path, about: Mapping[str, Any], licence: str) -> dict[str, Any]:
    """The Croissant document of a suite folder.

    ``about``: ``suite.json``; ``description``, ``url``, ``creator``, ``date``, ``version`` and
    ``citation`` are used where they are there. Each table is a file with its SHA-256, and a set of
    records with a field for each column.
    """
    creator = {"@type": "Person", "name": about["creator"]} if "creator" in about else None
    optional = {
        "description": about.get("description"),
        "license": licence or None,
        "url": about.get("url"),
        "creator": creator,
        "datePublished": about.get("date"),
        "version": semantic(str(about["version"])) if "version" in about else None,
        "citeAs": about.get("citation"),
        "inLanguage": about.get("language"),
    }
    tables = [(name, path) for name in TABLES if (path := _table(folder, name)) is not None]
    return {
        "@context": dict(CONTEXT),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": about["name"],
        **{name: value for name, value in optional.items() if value is not None},
        "distribution": [_file(path) for _, path in tables],
        "recordSet": [_records(name, path) for name, path in tables],
    }


def semantic(version: str) -> str:
    """A version of three numbers, as Croissant wants it: ``1`` becomes ``1.0.0``."""
    parts = version.split(".")
    is_short = len(parts) < 3 and all(part.isdecimal() for part in parts)
    return ".".join([*parts, "0", "0"][:3]) if is_short else version


def _table(folder: Path, name: str) -> Path | None:
    paths = (folder / f"{name}{suffix}" for suffix in FORMATS)
    return next((path for path in paths if path.is_file()), None)


def _file(path: Path) -> dict[str, str]:
    content = path.read_bytes()
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "contentUrl": path.name,
        "contentSize": f"{len(content)} B",
        "encodingFormat": FORMATS[path.suffix],
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _records(name: str, path: Path) -> dict[str, Any]:
    columns: dict[str, list[Any]] = {}
    for _, cells in read_rows(path, quoted=False, faults=[]):
        for column, value in cells.items():
            columns.setdefault(column, []).append(value)
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{name}/{column}",
            "name": column,
            "dataType": _type_of(values),
            **({"repeated": True} if any(isinstance(value, list) for value in values) else {}),
            "source": {"fileObject": {"@id": path.name}, "extract": {"column": column}},
        }
        for column, values in columns.items()
    ]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": TABLES[name],
        "field": fields,
    }


def _type_of(values: Sequence[Any]) -> str:
    """The data type of a column; text where its values differ in type."""
    for kind, name in ((bool, "sc:Boolean"), (int, "sc:Integer"), (float, "sc:Float")):
        if all(isinstance(value, kind) for value in values):
            return name
    is_number = all(isinstance(value, int | float) for value in values)
    return "sc:Float" if is_number else "sc:Text"


def croissant_text(document: Mapping[str, Any]) -> str:
    """The document as it is written to ``croissant.json``."""
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


BEGIN, END = (
    "<!-- data card: generated by `consilience suite card` -->",
    "<!-- end of data card -->",
)
"""The marks around the generated part of README.md; the rest is the author's."""

PatternKey = tuple[str, str]
"""A relation and a pattern."""


@dataclass(frozen=True, slots=True)
class SharedSuite:
    """A suite with all that a person who uses it should know."""

    suite: Suite
    """The suite."""
    about: Mapping[str, Any]
    """Its ``suite.json``."""
    provenance: Sequence[Proposal]
    """Where its patterns come from."""
    signoffs: Sequence[SignOff]
    """Who judged them."""
    files_digest: str
    """SHA-256 of its metadata, which have the digest of every table."""

    @property
    def licence(self) -> str:
        """The licence of the suite: of ``suite.json``, or those of its patterns."""
        stated = self.about.get("licence") or self.about.get("license")
        licences = dict.fromkeys(row.licence for row in self.provenance if row.licence)
        return str(stated) if stated else " AND ".join(licences)

    @property
    def patterns(self) -> list[PatternKey]:
        """All patterns."""
        return [(group.id, pattern.text) for group in self.suite for pattern in group.patterns]

    @property
    def accepted(self) -> set[PatternKey]:
        """The patterns that a person accepts and nobody rejects, by the last verdict of each."""
        return self._with("accept") - self.rejected

    @property
    def rejected(self) -> set[PatternKey]:
        """The patterns whose last verdict of a person is to reject them."""
        return self._with("reject")

    def _with(self, verdict: str) -> set[PatternKey]:
        last = last_verdicts(self.signoffs).values()
        return {(one.relation, one.pattern) for one in last if one.verdict == verdict}


def with_card(readme: str, shared: SharedSuite) -> str:
    """README.md with its generated part renewed, or appended where there is none."""
    card = f"{BEGIN}\n\n{data_card(shared)}\n{END}\n"
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        return before + card + after.removeprefix("\n")
    title = readme if readme.strip() else f"# {shared.suite.name}\n"
    return f"{title.rstrip()}\n\n{card}"


def card_of(readme: str) -> str:
    """The generated part of README.md; empty where there is none."""
    _, begin, rest = readme.partition(BEGIN)
    return rest.partition(END)[0] if begin else ""


def data_card(shared: SharedSuite) -> str:
    """The card in Markdown."""
    parts = [as_markdown(table) for table in _tables(shared)]
    return f"## Data card\n\n{shared.about.get('description', '')}\n\n" + "\n".join(parts)


def _tables(shared: SharedSuite) -> Iterator[Table]:
    suite = shared.suite
    languages = dict.fromkeys(pattern.language for group in suite for pattern in group.patterns)
    facts: list[list[Value]] = [
        *([name, shared.about.get(name) or "not stated"] for name in ("creator", "url", "date")),
        ["licence", shared.licence or "not stated"],
        ["languages", ", ".join(languages)],
        ["patterns with a provenance", f"{len(shared.provenance)} of {len(shared.patterns)}"],
        ["patterns accepted by people", f"{len(shared.accepted)} of {len(shared.patterns)}"],
        ["SHA-256 of patterns and facts, as in the run.json of a run", suite.digest],
        ["SHA-256 of croissant.json, which has those of all tables", shared.files_digest],
    ]
    yield Table("The suite", [Column("property"), Column("value")], facts)
    total, by_relation = statistics_tables(suite_statistics(suite), suite.name)
    yield replace(total, title="Sizes, as in Table 1 of the ParaRel paper",
                  columns=[Column("number"), Column("value", "number", digits=2)])  # fmt: skip
    yield replace(by_relation, title="Each relation; majority in percent")
    yield _types_table(suite)
    kinds = Counter(edge.kind for group in suite for edge in group.edges.values())
    if kinds:
        yield _counts("Pairs of patterns by kind of edit", ("kind", "pairs"), kinds)
    sources = Counter((row.origin, row.source, row.licence) for row in shared.provenance)
    if sources:
        headings = ("origin", "source", "licence", "patterns")
        yield _counts("Where the patterns come from", headings, sources)
    if shared.signoffs:
        yield _people(shared)


def _types_table(suite: Suite) -> Table:
    """The paraphrase types of Table 8 that a parser derives."""
    columns = [Column("type"), Column("pairs", "count"), Column("percent", "share")]
    title = "Pairs with a base pattern by paraphrase type, as in Table 8 of the ParaRel paper"
    try:
        types = derived_types(suite)
    except ConsilienceError as error:
        return Table(title, columns, [], [f"Not derived: {error.found}."])
    rows: list[list[Value]] = [
        [row["type"].replace("_", " "), row["pairs"], row["share"]]
        for row in types.sort("pairs", descending=True, maintain_order=True).iter_rows(named=True)
        if row["pairs"]
    ]
    note = "Derived by rules from parses of English patterns; a pair may have several types."
    return Table(title, columns, rows, [note])


def derived_types(suite: Suite) -> pl.DataFrame:
    """``base_types`` of the English patterns of a suite."""
    english = tuple(
        replace(group, patterns=tuple(filter(is_english, group.patterns)), edges={})
        for group in suite
    )
    return base_types(replace(suite, relations=english), load_parser())


def _counts(title: str, headings: Sequence[str], counts: Mapping[Any, int]) -> Table:
    """A row for each key, the most frequent first."""
    columns = [*map(Column, headings[:-1]), Column(headings[-1], "count")]
    order = sorted(counts.items(), key=lambda item: -item[1])
    rows = [[*(key if isinstance(key, tuple) else (key,)), size] for key, size in order]
    return Table(title, columns, rows)


def _people(shared: SharedSuite) -> Table:
    last = last_verdicts(shared.signoffs).values()
    by_person: dict[str, Counter[str]] = {}
    for one in last:
        by_person.setdefault(one.who, Counter())[one.verdict] += 1
    rows: list[list[Value]] = [
        [who, *(counts[verdict] for verdict in VERDICTS)] for who, counts in by_person.items()
    ]
    columns = [Column("person"), *(Column(verdict, "count") for verdict in VERDICTS)]
    return Table("Who judged the patterns: last verdicts", columns, rows)


CARD, METADATA = "README.md", "croissant.json"

ABOUT = {
    "description": "what the suite asks, in a sentence",
    "licence": "an SPDX id such as CC-BY-4.0, LicenseRef-NAME, or the URL of the licence",
    "creator": "the name of a person or an organisation",
    "url": "where the suite is published, such as https://example.org/suite",
    "date": "the day of publication, such as 2026-11-23",
}
"""What ``suite.json`` of a shared suite says besides its name."""


@dataclass(frozen=True, slots=True)
class WrittenCard(Shown):
    """What ``suite card`` wrote."""

    files: tuple[Path, ...]
    """The files."""
    problems: tuple[ConsilienceError, ...]
    """What ``suite check --shared`` still misses."""
    suite: str
    """The suite, as it was named."""

    def printed(self, output: Output) -> Iterator[str]:
        """The files."""
        return map(str, self.files)

    def document(self) -> dict[str, Any]:
        """The files, and what is missing."""
        files = [str(file) for file in self.files]
        return {
            "suite": self.suite,
            "files": files,
            "warnings": [str(problem) for problem in self.problems],
        }

    def remarks(self, output: Output) -> list[str]:
        """What is missing."""
        return [str(problem) for problem in self.problems]


def write_card(options: CardOptions) -> WrittenCard:
    """Write README.md and croissant.json into the folder of a suite.

    Of README.md only the part between its marks is replaced.
    """
    if is_questions(options.suite):
        raise ConsilienceError(
            "a data card of a suite of questions",
            expected="a suite of facts in our layout",
            where=options.suite,
            todo="Write its README.md by hand.",
        )
    folder = writable_folder(options.suite, options.data_dir)
    shared = _shared(folder)
    card, metadata = folder / CARD, folder / METADATA
    readme = read_text(card) if card.is_file() else ""
    write_whole(card, with_card(readme, shared).encode())
    write_whole(metadata, _metadata(folder, shared).encode())
    return WrittenCard((card, metadata), tuple(_problems(folder, shared)), options.suite)


def sharing_problems(spec: str, data_dir: Path | None) -> list[ConsilienceError]:
    """What a suite folder lacks to be shared: provenance, licences, sign-offs and a data card."""
    if is_questions(spec):
        raise ConsilienceError(
            "--shared with a suite of questions",
            expected="a suite of facts",
            where=spec,
            todo="Leave it out.",
        )
    layout, root = layout_of(suites.suite_folder(spec, suites.data_dir(data_dir)))
    if layout.name != "ours":
        raise ConsilienceError(
            f"--shared with {layout.name}", expected="a suite folder in our layout", where=spec
        )
    return list(_problems(root, _shared(root)))


def _shared(folder: Path) -> SharedSuite:
    suite = load_folder(folder)
    path = folder / "suite.json"
    about: dict[str, Any] = parse_json(read_text(path)) if path.is_file() else {}
    about = {"name": suite.name} | about
    shared = SharedSuite(suite, about, provenance_of(folder), signoffs_of(folder, suite), "")
    digest = hashlib.sha256(_metadata(folder, shared).encode()).hexdigest()
    return replace(shared, files_digest=digest)


def _metadata(folder: Path, shared: SharedSuite) -> str:
    return croissant_text(croissant(folder, shared.about, shared.licence))


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and "." in parts.netloc and " " not in text


def _is_licence(text: str) -> bool:
    """Whether a text is an SPDX expression, whose ids are of SPDX's list, or a URL."""
    try:
        return _is_url(text) or bool(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return False


IS_VALID: Mapping[str, Callable[[str], bool]] = {
    "licence": _is_licence,
    "url": _is_url,
    "date": is_date,
}
"""What the values in ``suite.json`` of a shared suite must be; any text will do for the others."""


def _about_problems(folder: Path, shared: SharedSuite) -> Iterator[ConsilienceError]:
    """Problems of ``suite.json``; a licence may be that of the patterns."""
    where = str(folder / "suite.json")
    stated = shared.about.get("licence") or shared.about.get("license")
    for name, meaning in ABOUT.items():
        value = stated if name == "licence" else shared.about.get(name)
        if not value and not (name == "licence" and shared.licence):
            yield ConsilienceError(f"no '{name}'", expected=meaning, where=where, todo="Add it.")
        elif value and not (isinstance(value, str) and IS_VALID.get(name, bool)(value)):
            yield ConsilienceError(
                f"'{name}' is {json.dumps(value, ensure_ascii=False)}",
                expected=meaning,
                where=where,
                todo="Correct it.",
            )


def _problems(folder: Path, shared: SharedSuite) -> Iterator[ConsilienceError]:
    yield from _about_problems(folder, shared)
    places = places_in(folder)
    known = {(row.relation, row.pattern): row.licence for row in shared.provenance}
    lacking = {
        "without a row in the table provenance": [
            key for key in shared.patterns if key not in known
        ],
        "without a licence in the table provenance": [
            key for key in shared.patterns if known.get(key) == ""
        ],
        "whose licence in the table provenance is no SPDX id or URL": [
            key for key in shared.patterns if known.get(key) and not _is_licence(known[key])
        ],
        "with a reject that is not resolved": [
            key for key in shared.patterns if key in shared.rejected
        ],
        "that nobody accepted": [
            key for key in shared.patterns if key not in shared.accepted | shared.rejected
        ],
    }
    todo = {
        "whose licence in the table provenance is no SPDX id or URL": f"Write {ABOUT['licence']}.",
        "with a reject that is not resolved": "Correct or remove the pattern, or let the person "
        "judge it again.",
        "that nobody accepted": "`consilience suite annotate patterns`, then `score --sign`.",
    }
    for problem, keys in lacking.items():
        yield from _of_patterns(folder, places, problem, keys, todo.get(problem, "Add it."))
    yield from _card_problems(folder, shared)


def _of_patterns(
    folder: Path, places: Places, problem: str, keys: Sequence[PatternKey], todo: str
) -> Iterator[ConsilienceError]:
    """A problem for each relation with such patterns, at the first one."""
    by_relation: dict[str, list[str]] = {}
    for relation, text in keys:
        by_relation.setdefault(relation, []).append(text)
    for relation, texts in by_relation.items():
        where = next(iter(places.pattern(relation, texts[0])), "patterns")
        size = f"{len(texts)} pattern{'' if len(texts) == 1 else 's'}"
        yield ConsilienceError(
            f"{size} of '{relation}' {problem}, such as '{texts[0]}'",
            where=f"{folder}/{where}",
            todo=todo,
        )


def _card_problems(folder: Path, shared: SharedSuite) -> Iterator[ConsilienceError]:
    """Problems of README.md and croissant.json: missing, or of another state of the suite."""
    card, metadata = folder / CARD, folder / METADATA
    written = card_of(read_text(card)) if card.is_file() else ""
    is_current = (
        (card, shared.files_digest in written),
        (metadata, metadata.is_file() and read_text(metadata) == _metadata(folder, shared)),
    )
    for path, current in is_current:
        if not current:
            yield ConsilienceError(
                "missing, or not of the suite as it is now",
                expected="the data card" if path is card else "the metadata",
                where=str(path),
                todo="Run `consilience suite card`.",
            )
