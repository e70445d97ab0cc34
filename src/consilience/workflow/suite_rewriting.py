"""Rewrite: a model proposes paraphrases of base patterns, a judge scores them, rules choose."""

from __future__ import annotations

import math
import random
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from consilience import suites
from consilience.ask_writing import WritingModel
from consilience.authoring.meaning import (
    FEWEST_RELATIONS,
    LEAST_AUC,
    MeaningJudge,
    Separation,
    measured_separation,
)
from consilience.authoring.rewriting import (
    INSTRUCTION,
    Refusal,
    accepted,
    draft_rewrites,
    proposals_of,
    with_edits,
)
from consilience.choices import Loading
from consilience.cloze import ENGLISH
from consilience.errors import ConsilienceError
from consilience.options import Output
from consilience.provenance import versions
from consilience.report.shown import Shown
from consilience.suites.proposals import Proposal, check_no_file, write_proposals
from consilience.suites.question_suites import is_questions
from consilience.suites.selection import select_relations
from consilience.text import counted
from consilience.types import Suite
from consilience.watch import SILENT, Watch
from consilience.workflow.suite_options import RewriteOptions
from consilience.workflow.written_answers import Writing

MEASURED_PAIRS = 2
"""Pairs of each kind and relation that the meaning score is measured on."""


@dataclass(frozen=True, slots=True, repr=False)
class Rewriting(Shown):
    """Proposals that a model wrote, and what was refused."""

    file: Path
    """The file of proposals."""
    proposals: Sequence[Proposal]
    """The proposals."""
    refusals: Sequence[Refusal]
    """Texts that are no proposals."""
    separation: Separation | None
    """How well the meaning score tells the suite's paraphrases from controls; None: unknown."""
    notes: Sequence[str]
    """What a reader should know."""
    record: Mapping[str, object] = field(repr=False)
    """What decides the proposals, and the versions of libraries."""

    @property
    def reasons(self) -> dict[str, int]:
        """The number of refused texts by the rule that refuses them, the most frequent first."""
        return dict(Counter(refusal.reason for refusal in self.refusals).most_common())

    def printed(self, output: Output) -> Iterator[str]:
        """How much was proposed and refused."""
        relations = counted(len({proposal.relation for proposal in self.proposals}), "relation")
        yield f"{self.file}: {counted(len(self.proposals), 'proposal')} for {relations}"
        reasons = ", ".join(f"{reason} {number}" for reason, number in self.reasons.items())
        refused = counted(len(self.refusals), "text")
        yield f"refused: {refused}" + (f" ({reasons})" if reasons else "")
        if self.proposals:
            file = shlex.quote(str(self.file))
            yield f"Edit the file, then: consilience suite import {file} --into FOLDER"

    def document(self) -> dict[str, Any]:
        """The proposals and the refusals as rows."""
        return {
            "run": self.record,
            "file": str(self.file),
            "proposals": [proposal.row() for proposal in self.proposals],
            "refused": self.reasons,
            "refusals": [asdict(refusal) for refusal in self.refusals],
            "separation": asdict(self.separation) if self.separation else None,
            "warnings": self.notes,
        }

    def __repr__(self) -> str:
        sizes = f"{len(self.proposals)} proposals, {len(self.refusals)} refused"
        return f"Rewriting({str(self.file)!r}: {sizes})"


def rewrite_patterns(options: RewriteOptions, watch: Watch = SILENT) -> Rewriting:
    """Load the suite and the models, and write a file of proposals. An existing file raises."""
    check_no_file(options.out)
    if is_questions(options.suite):
        raise ConsilienceError(
            f"'{options.suite}' is a suite of questions",
            expected="a suite of facts, whose patterns can be rewritten",
            todo="Write other phrasings of a question into its columns question_2, question_3, ...",
        )
    suite = suites.load_suite(options.suite, options.data_dir)
    if options.samples > 1 and not options.temperature:
        raise ConsilienceError(
            f"--samples {options.samples} at temperature 0, where all samples are the same",
            todo="Add --temperature 0.7, or --samples 1.",
        )
    chosen = suite if options.groups is None else select_relations(suite, options.groups)
    with watch.loading(options.model):
        writer, judge = load_models(options)
        return rewrite_suite(chosen, writer, judge, options, measured_on=suite, watch=watch)


def load_models(options: RewriteOptions) -> tuple[WritingModel, MeaningJudge]:
    """The model that writes, and the judge: the same model, unless another one is named."""
    from consilience.models.loading import load_pretrained
    from consilience.models.paraphrase_judge import ParaphraseJudge
    from consilience.models.prompted import OptionScorer

    if options.model.startswith("baseline:"):
        raise ConsilienceError(
            f"'{options.model}' does not write",
            expected="a causal or sequence-to-sequence language model",
            todo="Name one with --model.",
        )
    writing = Writing(
        temperature=options.temperature, max_new_tokens=options.max_new_tokens, seed=options.seed
    )
    writer = writing.load_model(options.model, options.loading, connection=options.connection)
    if options.judge in (None, options.model):
        is_here = isinstance(writer, OptionScorer)
        if not is_here:
            raise ConsilienceError(
                f"--model {options.model} without --judge",
                expected="a judge that runs here, such as --judge packaged:smollm2",
            )
        return writer, ParaphraseJudge(writer)
    loading = Loading(options.device, options.dtype, None, options.trust_remote_code)
    return writer, ParaphraseJudge(OptionScorer(load_pretrained(str(options.judge), loading)))


def rewrite_suite(
    suite: Suite,
    writer: WritingModel,
    judge: MeaningJudge,
    options: RewriteOptions,
    *,
    measured_on: Suite,
    watch: Watch = SILENT,
) -> Rewriting:
    """Write the proposals of a writer for the base patterns of a suite.

    ``measured_on``: the suite that the meaning score is measured on.
    """
    watch.say("writing")
    drafts, refusals = draft_rewrites(suite, writer, options.samples)
    watch.say("measuring the meaning score")
    measured = measured_separation(
        measured_on, judge, most=MEASURED_PAIRS, facts=options.fillings, seed=options.seed
    )
    watch.say("scoring")
    rng = random.Random(options.seed)
    facts = {
        group.id: rng.sample(group.facts, min(options.fillings, len(group.facts)))
        for group in suite
    }
    source = Path(options.model).name if Path(options.model).exists() else options.model
    scored = proposals_of(drafts, facts, judge, source)
    threshold = options.min_meaning
    if threshold is None and measured:
        threshold = measured.threshold
    proposals, by_meaning = accepted(scored, threshold)
    notes = [*writer.notes, _meaning_note(measured, threshold, str(judge.identity["model"]))]
    proposals = _with_edits(proposals, suite, notes)
    drawn = {"seed": options.seed, "temperature": options.temperature}
    proposals = [replace(p, scores={**p.scores, **drawn}) for p in proposals]
    write_proposals(options.out, proposals)
    settings = {
        "prompt": INSTRUCTION,
        "model": dict(writer.identity),
        "judge": dict(judge.identity),
        "samples": options.samples,
        "fillings": options.fillings,
        "threshold": threshold,
        **drawn,
    }
    record = {"settings": settings, "versions": versions()}
    return Rewriting(options.out, proposals, [*refusals, *by_meaning], measured, notes, record)


def _meaning_note(measured: Separation | None, threshold: float | None, judge: str) -> str:
    """How far the meaning score can be trusted, and what it refuses."""
    rule = "no rewrite is refused by its meaning"
    if threshold is not None:
        rule = f"rewrites below {threshold:.2f} nats are refused"
    if measured is None or math.isnan(measured.low):
        return (
            f"the meaning score of {judge} is not measured, because the suite has fewer than "
            f"{FEWEST_RELATIONS} relations with two patterns; {rule}. Read every rewrite"
        )
    separates = (
        f"the meaning score of {judge} tells paraphrases of this suite from controls with an AUC "
        f"of {measured.auc:.2f} ({measured.low:.2f} to {measured.high:.2f})"
    )
    if measured.low >= LEAST_AUC:
        return f"{separates}; {rule}"
    verdict = "is weak" if measured.low > 0.5 else "may be no better than a coin"
    return f"{separates}, which {verdict}; {rule}. Read every rewrite"


def _with_edits(proposals: list[Proposal], suite: Suite, notes: list[str]) -> list[Proposal]:
    """The proposals in English with their edit kinds; without a parser a note says so."""
    languages = {group.patterns[0].language.partition("-")[0] for group in suite}
    if languages != {ENGLISH} or not proposals:
        return proposals
    try:
        return with_edits(proposals)
    except ConsilienceError as error:
        notes.append(f"no edit kinds: {error}")
        return proposals
