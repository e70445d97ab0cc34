"""The audit of a suite: findings, tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from consilience import suites
from consilience.analysis.patterns import mean_agreement
from consilience.authoring.checks import CHECKS, FEWEST, FactMaterial, Finding, is_english, sentence
from consilience.core.errors import ConsilienceError, needs_extra
from consilience.core.factors import Edge, VariantPair
from consilience.core.items import Floats
from consilience.core.text import counted
from consilience.files.read import read_rows
from consilience.files.rows import find_table
from consilience.options import Output
from consilience.options.suites import AuditOptions
from consilience.report.export import Shown
from consilience.report.table import Column, Table, Value
from consilience.runs.run import open_runs
from consilience.suites.layouts import layout_of, places_in
from consilience.suites.question_suites import columns_of
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
            found = list(check.findings(material))
            findings += found
            counts[name] = len(found)
    return Audit(tuple(findings), counts, not_run)


def cautions(suite: Suite | Questions) -> list[str]:
    """What is no error but decides what a suite's numbers mean, by the checks that are quick."""
    material = FactMaterial(suite) if isinstance(suite, Suite) else suite
    findings = run_checks(material, {}, only_quick=True).findings
    positions = {name: at for at, name in enumerate(material.groups)}
    in_order = sorted(findings, key=lambda finding: positions.get(finding.group, -1))
    return [f"{one.group}: {one.evidence}" if one.group else one.evidence for one in in_order]


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

    def printed(self, output: Output) -> Iterator[Table | str]:
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
    """Run every check that applies to a suite."""
    spec, columns = options.suite, columns_of(options.columns)
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
        return SuiteAudit(spec, Audit(errors, {FILES: len(errors)}, not_run))
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
    return SuiteAudit(suite.name, audit, material.edges, suite.relations)


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
