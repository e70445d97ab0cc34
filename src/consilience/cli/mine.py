"""suite mine: print mined patterns, or matches of an example."""

from __future__ import annotations

from dataclasses import asdict

from consilience.authoring.pattern_mining import (
    Matches,
    MinedPatterns,
    match_table,
    mine_patterns,
    proposal_table,
)
from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import JsonOutput
from consilience.cli.printing import print_json
from consilience.core.text import counted
from consilience.workflow.mining_options import MineOptions


def mine(options: MineOptions, output: JsonOutput) -> None:
    """Print proposals by relation, or the matches of an example."""
    result = mine_patterns(options, Screen())
    if isinstance(result, Matches):
        _print_matches(result, output)
    else:
        _print_patterns(result, output)
    if options.file and not result.file:
        warn([f"{options.file} is not written: there is nothing to write"])
    elif options.file and not output.as_json:
        out.print(f"Written: {options.file}")


def _print_patterns(result: MinedPatterns, output: JsonOutput) -> None:
    mined = result.mined
    if output.as_json:
        rows = [proposal.row() for rows in result.proposals.values() for proposal in rows]
        searched = {"sentences": mined.sentences, "pairs": mined.pairs}
        print_json({"proposals": rows, **searched, "warnings": result.notes})
        return
    for relation, proposals in result.proposals.items():
        if proposals:
            sentences = counted(mined.by_relation[relation], "sentence")
            out.print(proposal_table(f"{relation}: {sentences} with facts", proposals))
            out.print()
    warn(result.notes)


def _print_matches(result: Matches, output: JsonOutput) -> None:
    if output.as_json:
        all_relations = result.relations or [()] * len(result.matches)
        rows = [
            {**asdict(match), "relations": relations}
            for match, relations in zip(result.matches, all_relations, strict=True)
        ]
        print_json({"example": result.example, "total": result.total, "matches": rows})
        return
    if not result.matches:
        out.print(f"No sentence matches {result.example}")
        return
    title = f"{result.example} {counted(result.total, 'match', 'matches')}"
    matches = [(match.subject, match.object, match.sentence) for match in result.matches]
    out.print(match_table(title, matches, result.relations))
