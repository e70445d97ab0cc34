"""Runs are made and used: probe, score, compare, gate, verify, report and publish."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.app.command import Lazy, command
from consilience.options import TableBy, Watched, opt, options_of, takes, typed
from consilience.options.probe import ProbeOptions
from consilience.options.runs import (
    CompareOptions,
    GateOptions,
    PublishOptions,
    ReportOptions,
    ScoreOptions,
    VerifyOptions,
)

if TYPE_CHECKING:
    from consilience.gating import gate as gating
    from consilience.kinds import probing
    from consilience.publish import publication
    from consilience.report import export
    from consilience.results import comparing, evaluation, reporting, verifying
else:
    gating = Lazy("gating.gate")
    probing = Lazy("kinds.probing")
    publication = Lazy("publish.publication")
    export = Lazy("report.export")
    comparing = Lazy("results.comparing")
    evaluation = Lazy("results.evaluation")
    reporting = Lazy("results.reporting")
    verifying = Lazy("results.verifying")

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
def probe(options: ProbeCommand) -> export.Shown:
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
def score(options: ScoreOptions) -> export.Shown:
    """Measure answers that were made elsewhere, or those of a run. No model is needed.

    A table of answers needs --suite and the columns item, variant and answer, or answer_index.
    It may be what `consilience suite export` wrote, with the answers added. docs/export.md has
    an example. The results of promptfoo (.json) need no suite. Logs of lm-evaluation-harness
    (--log_samples) and inspect_ai (.eval) are read, too: docs/harnesses.md.
    """
    return evaluation.printed_run(probing.score(options), options)


@command(
    CompareOptions, "compare", panel="Measure", output=("show", "by", "csv", "format", "json"),
    examples=(
        "compare runs/before runs/after",
        "compare BERT=runs/bert RoBERTa=runs/roberta --csv differences.csv"))
def compare(options: CompareOptions) -> comparing.Comparison:
    """Compare runs on the same questions, or the languages of one run, with intervals and tests.

    Each difference is a later run minus the first: paired, with a 95 % confidence interval, an
    exact McNemar or permutation test, and the minimum detectable difference. With --by, p is
    also adjusted over relations or forms. One run of a suite with several languages: every two of
    its languages are compared on the same facts.
    """
    return comparing.compare_runs(options)


class GateCommand(GateOptions):
    """The options of ``gate`` on the command line, where a plan is one of its results."""

    plan: bool = opt(
        "Check nothing: print the power of each rule, and how many items, groups and repeats give "
        "a power of 80 %.", default=False, panel="Output")


@command(GateCommand, "gate", panel="Measure", output=("junit", "format", "json"), examples=(
    'gate runs/new --rule "consistency >= 0.8" --junit gate.xml',
    'gate runs/new --baseline runs/old --rule "consistency no worse than baseline by 3 points"'))
def gate_command(options: GateCommand) -> gating.Gate | gating.GatePlan:
    """Pass or fail a run by rules on its numbers: exit status 0 or 3, for CI.

    A rule passes if the 90 % interval of the number is on the right side of the limit (each bound
    is wrong with a probability of 5 %), fails if it is on the wrong side, and is else undecided.
    The gate passes if all rules pass. Rules are options, or `rule = ["..."]` in the table [gate]
    of consilience.toml. docs/gate.md has examples for GitHub Actions and GitLab.
    """
    return gating.plan_gate(options) if options.plan else gating.gate(options)


@takes(GateOptions)
def gate(options: GateOptions) -> gating.Gate:
    """Check rules on the numbers of a run, or of several of the same model."""
    return gating.gate(options)


@takes(GateOptions)
def plan_gate(options: GateOptions) -> gating.GatePlan:
    """The power of each rule at the size of the run, and the sizes at which it is 80 %."""
    return gating.plan_gate(options)


@command(VerifyOptions, "verify", panel="Measure", examples=(
    "verify runs/bert",
    "verify runs/bert --sample 500 --device cpu"))
def verify_run(options: VerifyOptions) -> verifying.Verification:
    """Ask a sample of a run again, and say whether this machine gives the same answers.

    Answers files are checked against their digests. Exit status: 0 same answers, 3 answers
    differ, 2 the run cannot be verified. Nothing is written. A model behind a URL gets real
    requests, whose number is printed first; the limits of the run do not apply. What runs code or
    sends a key (--trust-remote-code, FILE.py:FUNCTION, --base-url, --api-key-env) is never taken
    from the record of a run: repeat these options if you trust the run.
    """
    return verifying.verify(options, options.watch)


@command(ReportOptions, "report", panel="Measure", examples=(
    "report runs/bert",
    "report runs/before runs/after --out both.html --figures figures"))
def report(options: ReportOptions) -> export.Lines:
    """Make one page on a run, or on several side by side: numbers, figures, examples, cautions.

    It is one file that opens without a network, on a phone and on paper. docs/report.md
    explains each of its numbers.
    """
    made = reporting.report(options, options.watch)
    files = [str(path) for path in reporting.save_report(made, options)]
    record = export.record_of(runs=[str(run.path) for run in made.runs])
    document = {"run": record, "files": files, "warnings": made.notes}
    return export.Lines(document, *files, notes=made.notes)


@typed(ReportOptions)
def write_report(runs: Any, out: str | PathLike[str], **options: Any) -> Path:
    """Write one run, or several with the first as the reference, as one HTML page; its path.

    A run is a result, a ``Run`` or a folder. ``options`` are those of ``consilience report``.
    """
    chosen = options_of(ReportOptions, {"runs": runs, "out": out, **options})
    return reporting.save_report(reporting.report(chosen, chosen.watch), chosen)[0]


@command(PublishOptions, "publish", panel="Measure", examples=(
    "publish runs/bert --format eee --model-id google-bert/bert-base-cased",
    "publish runs/bert --format dataset --push my-org/bert-on-mini"))
def publish_command(options: PublishOptions) -> publication.Publication:
    """Write the results of a run in a format in which others read them, and upload them if asked.

    Nothing is sent without --push. No folder, host name or key of this machine is published, and no
    text of a suite without a licence that allows it. docs/publishing.md has examples.
    """
    from dataclasses import replace

    made = publication.publish(replace(options, yes=False), options.watch)
    return replace(made, is_agreed=options.yes)


@takes(PublishOptions)
def publish_run(options: PublishOptions) -> publication.Publication:
    """Write the files of a format and, with ``push`` and ``yes``, upload them."""
    return publication.publish(options, options.watch)
