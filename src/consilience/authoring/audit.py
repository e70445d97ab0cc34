"""The audit of a suite: findings, fixes, tables."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from consilience import suites
from consilience.analysis.patterns import mean_agreement
from consilience.authoring.checks import (
    CHECKS,
    FEWEST,
    FactMaterial,
    Finding,
    has_ending,
    is_english,
    sentence,
)
from consilience.core.errors import ConsilienceError, needs_extra
from consilience.core.factors import Edge, VariantPair
from consilience.core.text import counted
from consilience.files.read import parse_json, read_rows, read_text
from consilience.files.rows import find_table, nfc
from consilience.files.write import write_whole
from consilience.metrics.statistics import Floats
from consilience.options import Output
from consilience.options.suites import AuditOptions
from consilience.report.export import Shown
from consilience.report.table import Column, Table, Value
from consilience.runs.run import open_runs
from consilience.suites.layouts import layout_of, places_in
from consilience.suites.question_suites import SUITE_NAMES, columns_of
from consilience.suites.questions import Questions
from consilience.types import Relation, Suite


@dataclass(frozen=True, slots=True)
class Audit:
    """What the checks found in a suite."""

    findings: tuple[Finding, ...]
    counts: Mapping[str, int]
    not_run: Mapping[str, str]


def run_checks(
    material: FactMaterial | Questions, missing: Mapping[str, str], *, only_quick: bool = False
) -> Audit:
    """Run every check that applies; ``missing``: why a field of the material is not there."""
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    not_run: dict[str, str] = {}
    for name, check in CHECKS.items():
        if only_quick and not check.is_quick:
            continue
        if check.of != material.kind:
            not_run[name] = f"for suites of {check.of}"
        elif check.needs and getattr(material, check.needs) is None:
            not_run[name] = missing[check.needs]
        else:
            of_check = [
                replace(finding, check=name, severity=check.severity, todo=check.todo)
                for finding in check.find(material)
            ]
            findings += of_check
            counts[name] = len(of_check)
    return Audit(tuple(findings), counts, not_run)


def cautions(suite: Suite | Questions) -> list[str]:
    """What is no error but decides what a suite's numbers mean, by the checks that are quick."""
    material = FactMaterial(suite) if isinstance(suite, Suite) else suite
    findings = run_checks(material, {}, only_quick=True).findings
    positions = {name: at for at, name in enumerate(material.groups)}
    in_order = sorted(findings, key=lambda finding: positions.get(finding.group, -1))
    return [f"{one.group}: {one.evidence}" if one.group else one.evidence for one in in_order]


NEEDS = {
    "english": "English patterns",
    "edges": "a parser (spaCy)",
    "meaning": "an encoder",
    "agreement": "`--runs`",
}


def check_reference() -> Table:
    """One row for each check of an audit."""
    headings = ("check", "suites", "severity", "looks for", "needs")
    rows: list[list[Value]] = [
        [name, check.of, check.severity, check.meaning, NEEDS.get(check.needs, "")]
        for name, check in CHECKS.items()
    ]
    return Table("", list(map(Column, headings)), rows)


# What is fixed.

Cells = dict[str, Any]
Renamed = Mapping[tuple[str, str], str]  # Relation and pattern in NFC -> the corrected pattern

TABLES = {
    "patterns": (("pattern",), ("relation", "pattern")),
    "edges": (("pattern_a", "pattern_b"), ("relation", "pattern_a", "pattern_b")),
    "provenance": (("pattern", "parent"), ("relation", "pattern")),
    "signoff": (("pattern",), ()),
    "facts": ((), ("relation", "subject", "object")),
}
"""Tables of a suite: their columns with patterns, and those whose values two rows may not share."""


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a table that was corrected."""

    where: str  # ``file:line``, as the file was before
    before: str
    after: str  # The text as it is now; empty for a row that was removed as a duplicate
    duplicate_of: str = ""  # ``file:line`` of the row that a removed one repeats


def fix_folder(folder: Path) -> list[Change]:
    """Correct the tables of a suite in our layout, and list every change.

    Runs of spaces become one space; spaces at the ends and before a stop or comma go; a pattern
    without an ending gets that of most patterns in its language; of rows that are the same fact, or
    the same pattern of a relation, in one Unicode form or two, the first stays. All tables that
    name a pattern follow. Lines without a change stay as they are, byte by byte.
    """
    paths = {name: path for name in TABLES if (path := find_table(folder, name))}
    renamed = _corrections(paths.get("patterns"))
    changes: list[Change] = []
    for name, path in paths.items():
        text, of_table = _corrected_table(path, name, renamed)
        if of_table:
            write_whole(path, text.encode())
        changes += of_table
    return changes


def _lines_of(path: Path) -> list[tuple[str, Cells | None]]:
    """The lines of a table with their cells; None for a header and for what is no row."""
    lines = read_text(path).split("\n")
    header = lines[0].rstrip("\r").split("\t")
    rows: list[tuple[str, Cells | None]] = []
    for at, line in enumerate(lines):
        row = None
        if path.suffix == ".jsonl":
            with suppress(ValueError):
                row = parse_json(line)
        elif at and line.strip():
            row = dict(zip(header, line.rstrip("\r").split("\t"), strict=False))
        rows.append((line, row if isinstance(row, dict) else None))
    return rows


def _corrections(path: Path | None) -> Renamed:
    """The corrections of the table ``patterns``; of patterns that become the same, the first."""
    lines = _lines_of(path) if path else []
    rows = [cells for _, cells in lines if cells and isinstance(cells.get("pattern"), str)]
    endings: dict[str, Counter[str]] = defaultdict(Counter)
    for cells in rows:
        if has_ending(cells["pattern"]):
            endings[str(cells.get("language", ""))][cells["pattern"].rstrip()[-1]] += 1
    renamed: dict[tuple[str, str], str] = {}
    first: dict[tuple[str, str], str] = {}
    for cells in rows:
        relation, pattern = str(cells.get("relation")), cells["pattern"]
        common = endings[str(cells.get("language", ""))].most_common(1)
        after = corrected(pattern, common[0][0] if common else "")
        renamed[relation, nfc(pattern)] = first.setdefault((relation, nfc(after)), after)
    return renamed


def corrected(pattern: str, ending: str) -> str:
    """A pattern with plain spaces, and with an ending if it stops after a word or a slot."""
    text = re.sub(r"\s+", " ", pattern).strip()
    text = re.sub(r" (?=[.,](?: |$))", "", text)
    is_word = bool(text) and unicodedata.category(text[-1])[0] in "LMN"
    is_open = is_word or text[-1:] == "]"
    return text + ending if is_open and not has_ending(text) else text


def _corrected_table(path: Path, name: str, renamed: Renamed) -> tuple[str, list[Change]]:
    with_patterns, keys = TABLES[name]
    remaining: list[str] = []
    changes: list[Change] = []
    seen: dict[tuple[str, ...], str] = {}
    for at, (line, cells) in enumerate(_lines_of(path), 1):
        if cells is None:
            remaining.append(line)
            continue
        where, of_row = f"{path.name}:{at}", []
        for column in with_patterns:
            before = str(cells.get(column))
            text = renamed.get((str(cells.get("relation")), nfc(before)), before)
            if text != before:
                of_row.append(Change(where, cells[column], text))
                cells[column] = text
        key = tuple(nfc(str(cells.get(column))) for column in keys)
        if key and (key in seen or (name == "edges" and key[1] == key[2])):
            changes.append(Change(where, line.strip(), "", seen.get(key, "")))
            continue
        seen[key] = where
        changes += of_row
        if of_row and path.suffix == ".jsonl":
            remaining.append(json.dumps(cells, ensure_ascii=False))
        elif of_row:
            remaining.append("\t".join(cells.values()) + "\r" * line.endswith("\r"))
        else:
            remaining.append(line)
    return "\n".join(remaining), changes


# The command.

SHOWN = 5  # findings of one check
ENCODER = "packaged:minilm"
FILLED = 4  # facts that a pattern is filled with for its meaning
FILES = "files"
T = TypeVar("T")
ByRelation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SuiteAudit(Shown):
    """The audit of a suite."""

    suite: str
    audit: Audit
    edges: Mapping[str, Mapping[VariantPair, Edge]] | None = field(default=None, repr=False)
    relations: tuple[Relation, ...] = field(default=(), repr=False)
    changes: tuple[Change, ...] = ()

    def printed(self, output: Output) -> Iterator[Table | str]:
        if self.changes:
            of_changes: list[list[Value]] = []
            for one in self.changes:
                first = f" of {one.duplicate_of}" if one.duplicate_of else ""
                after = one.after or f"(removed: a duplicate{first})"
                of_changes.append([one.where, one.before, after])
            title = f"{self.suite}: {counted(len(self.changes), 'change')}"
            yield Table(title, list(map(Column, ("place", "before", "after"))), of_changes)
        if self.audit.findings:
            yield self._findings()
        rows: list[list[Value]] = [
            [name, CHECKS[name].severity if name in CHECKS else "error", size]
            for name, size in self.audit.counts.items()
        ]
        by_reason: dict[str, list[str]] = defaultdict(list)
        for name, reason in self.audit.not_run.items():
            by_reason[reason].append(name)
        not_run = [f"not run: {', '.join(names)} ({reason})" for reason, names in by_reason.items()]
        columns = [Column("check"), Column("severity"), Column("findings", "count")]
        yield Table(f"{self.suite}: findings by check", columns, rows, not_run)

    def _findings(self) -> Table:
        findings = self.audit.findings
        rows: list[list[Value]] = []
        shown: Counter[str] = Counter()
        for one in findings:
            shown[one.check] += 1
            if shown[one.check] <= SHOWN:
                more = f" and {len(one.places) - 1} more" if len(one.places) > 1 else ""
                place = (one.places[0] if one.places else "") + more
                rows.append([one.severity, one.check, one.group, one.evidence, place])
        todo = {one.check: one.todo for one in findings if one.todo}
        notes = [f"{name}: {text}" for name, text in todo.items()]
        rest = len(findings) - len(rows)
        notes += [f"{counted(rest, 'further finding')}: --csv FILE or --json"] if rest else []
        sizes = Counter(finding.severity for finding in findings)
        summary = ", ".join(counted(sizes[name], name) for name in ("error", "warning", "note"))
        columns = list(map(Column, ("severity", "check", "group", "evidence", "place")))
        return Table(f"{self.suite}: {summary}", columns, rows, notes)

    def document(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "changes": [asdict(change) for change in self.changes],
            "counts": self.audit.counts,
            "findings": [asdict(finding) for finding in self.audit.findings],
            "not_run": self.audit.not_run,
            "edges": list(self._edges()),
        }

    def _edges(self) -> Iterator[dict[str, object]]:
        """Derived edges as rows of the table ``edges`` of a suite, with the kind of edit."""
        for relation in self.relations:
            for pair, edge in (self.edges or {}).get(relation.id, {}).items():
                one, two = (relation.patterns[at].text for at in pair)
                flags = {name: int(getattr(edge, name)) for name in Edge.__slots__}
                row = {"relation": relation.id, "pattern_a": one, "pattern_b": two}
                yield {**row, **flags, "kind": edge.kind}

    def frame(self) -> pl.DataFrame:
        names = ("check", "severity", "group", "count", "evidence", "places", "todo")
        rows = [asdict(one) | {"places": "; ".join(one.places)} for one in self.audit.findings]
        schema = {name: pl.Int64 if name == "count" else pl.String for name in names}
        return pl.DataFrame(rows, schema=schema)

    def exit_status(self) -> int:
        """2 if its files have errors."""
        return 2 if any(one.severity == "error" for one in self.audit.findings) else 0


def audit_suite(options: AuditOptions) -> SuiteAudit:
    """Correct the files of a suite if that is wanted, and run every check that applies."""
    spec, columns = options.suite, columns_of(options.columns)
    changes = tuple(fix_folder(writable_folder(spec, options.data_dir))) if options.fix else ()
    problems = suites.check_suite(spec, options.data_dir, columns)
    if problems:
        errors = tuple(
            Finding(
                "",
                problem.found + (f"; expected {problem.expected}" if problem.expected else ""),
                (problem.where,) if problem.where else (),
                check=FILES,
                severity="error",
                todo=problem.todo,
            )
            for problem in problems
        )
        not_run = {"all checks": "the files have errors"}
        return SuiteAudit(spec, Audit(errors, {FILES: len(errors)}, not_run), changes=changes)
    suite = suites.load_any(spec, options.data_dir, columns)
    if isinstance(suite, Questions):
        if options.runs:
            raise ConsilienceError("--runs with a suite of questions", todo="Leave it out.")
        return SuiteAudit(suite.name, run_checks(suite, {}))
    material, missing = _material(suite, options)
    compared = material
    if material.edges is not None and not any(relation.edges for relation in suite):
        missing["edges"] = "the suite has no edges; --json has the derived ones"
        compared = replace(material, edges=None)
    audit = run_checks(compared, missing)
    return SuiteAudit(suite.name, audit, material.edges, suite.relations, changes)


def writable_folder(spec: str, data_dir: Path | None) -> Path:
    """The folder of a suite in our layout that may be changed; another one raises."""
    folder = suites.suite_folder(spec, suites.data_dir(data_dir))
    layout, root = layout_of(folder)
    is_bundled = spec in SUITE_NAMES or root.resolve().is_relative_to(Path(suites.__file__).parent)
    if is_bundled or layout.name != "ours":
        raise ConsilienceError(
            "a bundled or released suite, which is not changed",
            expected="a folder of your own in our layout",
            where=spec,
            todo=f"Copy it: `cp -r {shlex.quote(str(root))} my-suite`."
            if layout.name == "ours"
            else "Import it into a new folder: `consilience suite import SOURCE --into my-suite`.",
        )
    return root


def _material(suite: Suite, options: AuditOptions) -> tuple[FactMaterial, dict[str, str]]:
    _, root = layout_of(suites.suite_folder(options.suite, suites.data_dir(options.data_dir)))
    missing: dict[str, str] = {}
    parsed = meaning = agreement = None
    if FactMaterial(suite).english:
        parsed = _or_missing(lambda: _parsed(suite), ("edges", "signatures", "tenses"), missing)
        meaning = _or_missing(lambda: _meaning(suite), ("meaning",), missing) or None
        missing.setdefault("meaning", f"no relation has {FEWEST} patterns, all of them English")
    else:
        languages = dict.fromkeys(pattern.language for one in suite for pattern in one.patterns)
        reason = f"English only; the patterns are in {', '.join(languages)}"
        missing |= dict.fromkeys(("english", "edges", "tenses", "meaning"), reason)
    if options.runs:
        of_runs: dict[str, list[Floats]] = defaultdict(list)
        for run in open_runs(options.runs):
            for name, matrix in mean_agreement(run.tables, suite, suite.protocol).items():
                of_runs[name].append(matrix)
        agreement = {name: np.mean(matrices, axis=0) for name, matrices in of_runs.items()}
    else:
        missing["agreement"] = "no runs: name some with --runs"
    annotated = {one.id: [pattern.tense for pattern in one.patterns] for one in suite}
    has_tenses = any(map(any, annotated.values()))
    edges, signatures, tenses = parsed or (None, None, annotated if has_tenses else None)
    return FactMaterial(
        suite, places_in(root), _aliases(root), edges, signatures, tenses, meaning, agreement
    ), missing


def _or_missing(make: Callable[[], T], names: tuple[str, ...], missing: dict[str, str]) -> T | None:
    """What ``make`` returns; None, with the reason noted, where something is not installed."""
    try:
        with needs_extra("models"):
            return make()
    except ConsilienceError as error:
        missing |= dict.fromkeys(names, f"{error.found}. {error.todo}")
        return None


def _parsed(suite: Suite) -> tuple[ByRelation, ByRelation, ByRelation]:
    from consilience.analysis import syntax

    parser = syntax.load_parser()
    edges: ByRelation = {}
    signatures: ByRelation = {}
    tenses: ByRelation = {}
    for relation in suite:
        parsed = [
            syntax.parse_pattern(pattern, parser) if is_english(pattern) else None
            for pattern in relation.patterns
        ]
        signatures[relation.id] = [one and syntax.signature(one) for one in parsed]
        tenses[relation.id] = [(one and syntax.tense_of(one)) or "" for one in parsed]
        edges[relation.id] = {
            (i, j): syntax.edge_between(a, b)
            for i, a in enumerate(parsed)
            for j, b in enumerate(parsed)
            if i < j and a and b
        }
    return edges, signatures, tenses


def _meaning(suite: Suite) -> dict[str, Floats]:
    """Mean cosine similarity of patterns over ``FILLED`` facts, of relations that can be judged."""
    from consilience.models.judges import EmbeddingJudge

    judge = EmbeddingJudge(ENCODER)
    similarity = {}
    for relation in suite:
        size = len(relation.patterns)
        if size < FEWEST or not all(map(is_english, relation.patterns)):
            continue
        matrix = np.zeros((size, size))
        facts = relation.facts[:: max(1, len(relation.facts) // FILLED)][:FILLED]
        for fact in facts:
            texts = [sentence(relation, pattern, fact) for pattern in relation.patterns]
            pairs = [("", one, two) for one in texts for two in texts]
            matrix += np.reshape(judge.similarities(pairs), (size, size)) / len(facts)
        similarity[relation.id] = matrix
    return similarity


def _aliases(root: Path) -> dict[str, list[tuple[str, ...]]]:
    """Relation -> answers that mean the same, of the table ``aliases`` where there is one."""
    path = find_table(root, "aliases")
    by_relation: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for _, cells in read_rows(path, quoted=False, faults=[]) if path else ():
        answers = tuple(str(cells.get("answer", "")).split("|"))
        by_relation[str(cells.get("relation"))].append(answers)
    return by_relation
