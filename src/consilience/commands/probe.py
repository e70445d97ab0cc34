"""probe and score: answers, and their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.app.command import Lazy, command
from consilience.options import TableBy, Watched, opt
from consilience.options.probe import ProbeOptions
from consilience.options.runs import ScoreOptions

if TYPE_CHECKING:
    from consilience.kinds import probing
    from consilience.report.export import Shown
    from consilience.results import evaluation
else:
    probing = Lazy("kinds.probing")
    evaluation = Lazy("results.evaluation")

# fmt: off


class ProbeCommand(ProbeOptions, Watched):
    """The options of ``probe`` that ``evaluate`` does not have."""

    by: TableBy = None
    dry_run: bool = opt(
        "Print what would be asked, and an estimate of the time; write nothing.", default=False,
        panel="Output")
    shard: str | None = opt(
        "Ask only part I of N parts of the groups, such as 1/8. The process that completes the "
        "run prints its numbers (docs/reliability.md).", default=None, metavar="I/N",
        panel="Output", is_rare=True)


@command(
    ProbeCommand, "probe", panel="Measure", output=("by", "examples", "format", "json"),
    examples=(
        "probe --model packaged:smollm2 --suite mini --limit 8",
        "probe -m bert-base-cased -s pararel --groups P36,P19 --out runs/bert"))
def probe(options: ProbeCommand) -> Shown:
    """Ask a model every item of a suite in every variant, and measure its answers.

    A suite is a set of facts, asked in every pattern (ParaRel), a task of sentence pairs, asked
    in its original form and in perturbed forms (CALUM), or a file of questions, asked in every
    phrasing and order of options. The run is kept in a folder. Rerun the same command to resume
    an interrupted run.
    """
    shard = None if options.shard is None else probing.Shard.parse(options.shard)
    if options.dry_run:
        if shard is None:
            return probing.plan_probe(options, options.watch)
        return probing.plan_shard(options, shard, options.watch)
    evaluation.refuse_table(options.by, options)
    if shard is None:
        return evaluation.printed_run(probing.probe(options, options.watch))
    done = probing.probe_shard(options, shard, options.watch)
    return done if isinstance(done, probing.ShardReport) else evaluation.printed_run(done)


@command(ScoreOptions, "score", panel="Measure", output=("by", "csv", "format", "json"), examples=(
    "score answers.csv --suite mini",
    "score runs/bert --suite pararel --protocol strict --csv metrics.csv"))
def score(options: ScoreOptions) -> Shown:
    """Measure answers that were made elsewhere, or those of a run. No model is needed.

    A table of answers needs --suite and the columns item, variant and answer, or answer_index.
    It may be what `consilience suite export` wrote, with the answers added. docs/export.md has
    an example. The results of promptfoo (.json) need no suite. Logs of lm-evaluation-harness
    (--log_samples) and inspect_ai (.eval) are read, too: docs/harnesses.md.
    """
    return evaluation.printed_run(probing.score(options), options)
