"""Tables of what an audit found in a suite, and of all checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from consilience.authoring.audit import Audit, check_rows
from consilience.authoring.audit_fixes import Change
from consilience.authoring.checks import CHECKS
from consilience.design import Edge, VariantPair
from consilience.report.table import Column, Table, Value
from consilience.text import counted
from consilience.types import Relation

SHOWN = 5
"""Findings of one check that a screen shows."""


def audit_tables(suite: str, audit: Audit, changes: Sequence[Change]) -> Iterator[Table]:
    """What was changed, the findings, and the number of findings by check."""
    if changes:
        columns = [Column("place"), Column("before"), Column("after")]
        rows: list[list[Value]] = [
            [change.where, change.before, change.after or _removed(change)] for change in changes
        ]
        yield Table(f"{suite}: {counted(len(changes), 'change')}", columns, rows)
    sizes = Counter(finding.severity for finding in audit.findings)
    summary = ", ".join(counted(sizes[name], name) for name in ("error", "warning", "note"))
    if audit.findings:
        yield _findings(f"{suite}: {summary}", audit)
    counts: list[list[Value]] = [
        [name, CHECKS[name].severity if name in CHECKS else "error", audit.counts[name]]
        for name in audit.counts
    ]
    not_run = [f"not run: {name} ({reason})" for name, reason in _by_reason(audit.not_run)]
    headings = [Column("check"), Column("severity"), Column("findings", "count")]
    yield Table(f"{suite}: findings by check", headings, counts, not_run)


def _removed(change: Change) -> str:
    return f"(removed: a duplicate{' of ' if change.duplicate_of else ''}{change.duplicate_of})"


def _findings(title: str, audit: Audit) -> Table:
    columns = [
        Column("severity"),
        Column("check"),
        Column("group"),
        Column("evidence"),
        Column("place"),
    ]
    rows: list[list[Value]] = []
    shown: Counter[str] = Counter()
    for one in audit.findings:
        shown[one.check] += 1
        if shown[one.check] <= SHOWN:
            more = f" and {len(one.places) - 1} more" if len(one.places) > 1 else ""
            location = (one.places[0] if one.places else "") + more
            rows.append([one.severity, one.check, one.group, one.evidence, location])
    todo = {one.check: one.todo for one in audit.findings if one.todo}
    notes = [f"{name}: {text}" for name, text in todo.items()]
    rest = len(audit.findings) - len(rows)
    notes += [f"{counted(rest, 'further finding')}: --csv FILE or --json"] if rest else []
    return Table(title, columns, rows, notes)


def _by_reason(not_run: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names of checks that were not run for the same reason, and the reason."""
    names: dict[str, list[str]] = {}
    for name, reason in not_run.items():
        names.setdefault(reason, []).append(name)
    yield from ((", ".join(of_reason), reason) for reason, of_reason in names.items())


def edge_rows(
    relations: Sequence[Relation], edges: Mapping[str, Mapping[VariantPair, Edge]]
) -> list[dict[str, object]]:
    """Derived edges as rows of the table ``edges`` of a suite, with the kind of edit."""
    rows: list[dict[str, object]] = []
    for relation in relations:
        for (one, two), edge in edges.get(relation.id, {}).items():
            texts = {
                "pattern_a": relation.patterns[one].text,
                "pattern_b": relation.patterns[two].text,
            }
            flags = {name: int(getattr(edge, name)) for name in Edge.__slots__}
            rows.append({"relation": relation.id, **texts, **flags, "kind": edge.kind})
    return rows


def check_reference() -> Table:
    """One row for each check of an audit."""
    headings = ("check", "suites", "severity", "looks for", "needs")
    return Table("", [Column(name) for name in headings], list(check_rows()))
