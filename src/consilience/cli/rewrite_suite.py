"""suite rewrite: a model proposes paraphrases of base patterns."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from consilience.authoring.rewriting import rewrite_patterns
from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import JsonOutput
from consilience.cli.printing import print_json, without_nan
from consilience.core.text import counted
from consilience.workflow.proposal_options import RewriteOptions


def rewrite(options: RewriteOptions, output: JsonOutput) -> None:
    """Write a file of proposals, and print what was refused."""
    done = rewrite_patterns(options, Screen())
    if output.as_json:
        document = {
            "run": done.record,
            "file": str(done.file),
            "proposals": [proposal.row() for proposal in done.proposals],
            "refused": done.reasons,
            "refusals": [asdict(refusal) for refusal in done.refusals],
            "separation": asdict(done.separation) if done.separation else None,
            "warnings": done.notes,
        }
        print_json(without_nan(document))
        return
    warn(list(done.notes))
    relations = len({proposal.relation for proposal in done.proposals})
    out.print(
        f"{done.file}: {counted(len(done.proposals), 'proposal')} "
        f"for {counted(relations, 'relation')}"
    )
    reasons = ", ".join(f"{reason} {number}" for reason, number in done.reasons.items())
    refused = counted(len(done.refusals), "text")
    out.print(f"refused: {refused}" + (f" ({reasons})" if reasons else ""))
    if done.proposals:
        file = shlex.quote(str(done.file))
        out.print(f"Edit the file, then: consilience suite import {file} --into FOLDER")
