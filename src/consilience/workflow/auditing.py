"""The audit of a suite: what its checks need is made, and they are run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from consilience import suites
from consilience.analysis.patterns import mean_agreement
from consilience.authoring.audit import Audit, findings_table, run_checks
from consilience.authoring.audit_fixes import Change, fix_folder
from consilience.authoring.audit_tables import audit_tables, edge_rows
from consilience.authoring.checks import FactMaterial, Finding, is_english
from consilience.authoring.meaning import sentence
from consilience.authoring.outlier_checks import FEWEST
from consilience.design import Edge, VariantPair
from consilience.errors import ConsilienceError
from consilience.metrics.intervals import Floats
from consilience.options import Output
from consilience.read import read_rows
from consilience.report.shown import Shown
from consilience.report.table import Table
from consilience.run import open_runs
from consilience.suites.layouts import layout_of
from consilience.suites.places import places_in
from consilience.suites.question_suites import is_questions, load_questions
from consilience.suites.rows import find_table
from consilience.suites.suite_names import NAMES
from consilience.types import Relation, Suite
from consilience.workflow.question_design import columns_of
from consilience.workflow.suite_options import AuditOptions

T = TypeVar("T")

ENCODER = "packaged:minilm"
"""The encoder that says how similar patterns are in meaning."""

FILLED = 4
"""Facts that a pattern is filled with for its meaning."""

FILES = "files"
"""What errors in the files of a suite are listed as."""


@dataclass(frozen=True, slots=True)
class SuiteAudit(Shown):
    """The audit of a suite."""

    suite: str
    """Its name, or the path that was given."""
    audit: Audit
    """What was found."""
    edges: Mapping[str, Mapping[VariantPair, Edge]] | None = field(default=None, repr=False)
    """Relation -> how every two patterns differ by the parser; None without a parser."""
    relations: tuple[Relation, ...] = field(default=(), repr=False)
    """The relations of a suite of facts that can be read."""
    changes: tuple[Change, ...] = ()
    """What ``fix`` corrected before the audit."""

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The findings."""
        yield from audit_tables(self.suite, self.audit, self.changes)

    def document(self) -> dict[str, Any]:
        """The findings as rows."""
        return {
            "suite": self.suite,
            "changes": [asdict(change) for change in self.changes],
            "counts": self.audit.counts,
            "findings": [asdict(finding) for finding in self.audit.findings],
            "not_run": self.audit.not_run,
            "edges": edge_rows(self.relations, self.edges or {}),
        }

    def frame(self) -> pl.DataFrame:
        """A row for each finding."""
        return findings_table(self.audit.findings)

    def exit_status(self) -> int:
        """2 if its files have errors."""
        return 2 if any(one.severity == "error" for one in self.audit.findings) else 0


def audit_suite(options: AuditOptions) -> SuiteAudit:
    """Correct the files of a suite if that is wanted, and run every check that applies."""
    spec, of_questions = options.suite, is_questions(options.suite)
    if of_questions and (options.runs or options.fix):
        raise ConsilienceError(
            f"{'--runs' if options.runs else '--fix'} with a suite of questions",
            expected="a suite of facts",
            todo="Leave it out.",
        )
    changes = tuple(fix_folder(writable_folder(spec, options.data_dir))) if options.fix else ()
    problems = suites.check_suite(spec, options.data_dir, columns_of(options.columns))
    if problems:
        return SuiteAudit(spec, _of_problems(problems), changes=changes)
    if of_questions:
        questions = load_questions(spec, columns_of(options.columns))
        return SuiteAudit(questions.name, run_checks(questions, {}))
    suite = suites.load_suite(spec, options.data_dir)
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
    is_bundled = spec in NAMES or root.resolve().is_relative_to(Path(suites.__file__).parent)
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


def _of_problems(problems: list[ConsilienceError]) -> Audit:
    findings = tuple(
        Finding(
            "",
            f"{problem.found}{f'; expected {problem.expected}' if problem.expected else ''}",
            (problem.where,) if problem.where else (),
            check=FILES,
            severity="error",
            todo=problem.todo,
        )
        for problem in problems
    )
    return Audit(findings, {FILES: len(findings)}, {"all checks": "the files have errors"})


def _material(suite: Suite, options: AuditOptions) -> tuple[FactMaterial, dict[str, str]]:
    """What the checks read, and why some of it is missing."""
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
        agreement = _agreement(suite, options)
    else:
        missing["agreement"] = "no runs: name some with --runs"
    edges, signatures, tenses = parsed or (None, None, _annotated_tenses(suite))
    material = FactMaterial(
        suite,
        places_in(root),
        dict(_aliases(root)),
        edges,
        signatures,
        tenses,
        meaning,
        agreement,
    )
    return material, missing


def _or_missing(make: Callable[[], T], names: tuple[str, ...], missing: dict[str, str]) -> T | None:
    """What ``make`` returns; None, with the reason noted, where something is not installed."""
    try:
        return make()
    except ConsilienceError as error:
        missing |= dict.fromkeys(names, f"{error.found}. {error.todo}")
        return None


ByRelation = dict[str, Any]


def _parsed(suite: Suite) -> tuple[ByRelation, ByRelation, ByRelation]:
    """The edges, signatures and tenses of each relation by the parser."""
    from consilience.analysis.paraphrases import tense_of
    from consilience.analysis.syntax import edge_between, load_parser, parse_pattern, signature

    parser = load_parser()
    edges: ByRelation = {}
    signatures: ByRelation = {}
    tenses: ByRelation = {}
    for relation in suite:
        parsed = [
            parse_pattern(pattern, parser) if is_english(pattern) else None
            for pattern in relation.patterns
        ]
        signatures[relation.id] = [one and signature(one) for one in parsed]
        tenses[relation.id] = [(one and tense_of(one)) or "" for one in parsed]
        edges[relation.id] = {
            (i, j): edge_between(a, b)
            for i, a in enumerate(parsed)
            for j, b in enumerate(parsed)
            if i < j and a and b
        }
    return edges, signatures, tenses


def _annotated_tenses(suite: Suite) -> ByRelation | None:
    """The tenses that the suite itself annotates; None where it has none."""
    if not any(pattern.tense for relation in suite for pattern in relation.patterns):
        return None
    return {relation.id: [pattern.tense for pattern in relation.patterns] for relation in suite}


def _meaning(suite: Suite) -> dict[str, Floats]:
    """Mean cosine similarity of patterns over ``FILLED`` facts, of relations that can be judged."""
    from consilience.models.equivalence import EmbeddingJudge

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


def _agreement(suite: Suite, options: AuditOptions) -> dict[str, Floats]:
    """Agreement of patterns, the mean over runs."""
    of_runs: dict[str, list[Floats]] = {}
    for run in open_runs(options.runs):
        for name, matrix in mean_agreement(run.tables, suite, suite.protocol).items():
            of_runs.setdefault(name, []).append(matrix)
    return {name: np.mean(matrices, axis=0) for name, matrices in of_runs.items()}


def _aliases(root: Path) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Relation -> answers that mean the same, of the table ``aliases`` where there is one."""
    path = find_table(root, "aliases")
    by_relation: dict[str, list[tuple[str, ...]]] = {}
    if path is not None:
        for _, cells in read_rows(path, quoted=False, faults=[]):
            answers = tuple(str(cells.get("answer", "")).split("|"))
            by_relation.setdefault(str(cells.get("relation")), []).append(answers)
    yield from by_relation.items()
