"""verify: whether this machine gives the answers of a run."""

from __future__ import annotations

from consilience.cli.console import Screen, out
from consilience.cli.output_options import JsonOutput
from consilience.cli.printing import print_json
from consilience.core.provenance import git_revision, versions
from consilience.endpoints.usage import cost_in_words
from consilience.results.verifying import shown_rows
from consilience.results.verifying import verify as verify_run
from consilience.workflow.run_options import VerifyOptions

DIFFERS = 3
"""The exit status where answers differ."""


def verify(options: VerifyOptions, output: JsonOutput) -> int:
    """Print what differs and the verdict."""
    verified = verify_run(options, Screen())
    status = 0 if verified.is_same else DIFFERS
    if output.as_json:
        record = {
            "settings": {"run": str(verified.path), "sample": options.sample, "seed": options.seed},
            "versions": versions(),
            "git": git_revision(),
        }
        print_json(
            {
                "run": record,
                "verdict": verified.verdict,
                "queries": verified.rows.height,
                "differing": verified.differing.to_dicts(),
                "largest_score_difference": verified.largest,
                "is_exact": verified.is_exact,
                "noise_floor": verified.noise_floor,
                "cost": dict(verified.cost),
                "files": dict(verified.files),
                "changed_settings": {name: list(both) for name, both in verified.settings.items()},
            }
        )
        return status
    out.print(f"Asked again: {verified.rows.height} queries, whole items of each group.")
    for name, (then, now) in verified.settings.items():
        out.print(f"{name}: {then} then, {now} now")
    for row in shown_rows(verified.differing):
        query = f"{row['group']}, item {row['item']}, '{row['variant']}'"
        out.print(f"{query}: {row['answer']} then, {row['now']} now (margin {row['margin']})")
    if verified.cost:
        out.print(f"Cost: {cost_in_words(verified.cost)}")
    out.print(f"Verdict: {verified.verdict}")
    return status
