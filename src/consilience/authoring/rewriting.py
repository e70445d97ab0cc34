"""Patterns rewritten by a model."""

from __future__ import annotations

import math
import random
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from consilience import suites
from consilience.analysis.syntax import edge_between, load_parser, parse_pattern
from consilience.authoring.pattern_checks import (
    FEWEST_RELATIONS,
    LEAST_AUC,
    MeaningJudge,
    PatternPair,
    Separation,
    fluency_scores,
    has_words,
    meaning_scores,
    measured_separation,
    normal_form,
    tokens_of,
)
from consilience.core.errors import ConsilienceError, Loading
from consilience.core.items import NoAnswer
from consilience.core.patterns import ENGLISH, OBJECT_SLOT, SUBJECT_SLOT, Pattern
from consilience.core.presentation import Prompt
from consilience.core.process import SILENT, Watch
from consilience.core.provenance import versions
from consilience.core.text import control_in, counted
from consilience.models import WritingModel
from consilience.models.prompt_models import is_chat_model, load_writer
from consilience.options import Output
from consilience.options.suites import RewriteOptions
from consilience.report.export import Shown
from consilience.suites.facts import select_relations
from consilience.suites.proposals import Proposal, check_no_file, write_proposals
from consilience.types import Fact, Relation, Suite

INSTRUCTION = (
    "Rewrite the sentence in other words, with the same meaning. Keep [X] and [Y] as they are. "
    "Write only the new sentence.\nSentence: {}"
)
"""What a writer is asked; the pattern is shown with its slots."""

NEW = "\nNew sentence:"
"""What follows for a model without a chat template."""

LENGTHS = (0.5, 2.0)
"""The least and the greatest length of a rewrite, in tokens of its base pattern."""

LABEL = re.compile(r"^(?:[-*\u2022]|\(?\d{1,2}[.):])?\s*(?:[^\[\]:]{1,80}:\s+)?")
"""What models write before a sentence and is no part of it: a list mark, and words with a colon."""

QUOTES = "\"'`\u201c\u201d\u00ab\u00bb"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A text that is no proposal."""

    relation: str
    text: str
    """What the model wrote."""
    reason: str
    """The rule that refuses it: a value of ``RULES``, ``meaning``, or a reason of the model."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A pattern that a model wrote, while rules are applied to it."""

    relation: Relation
    pattern: Pattern
    sample: int


Rule = Callable[[Relation, str, "Vocabulary"], bool]
"""Whether a text breaks a rule."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of a suite's patterns, and the patterns of its relations that exist already."""

    words: Mapping[str, frozenset[str]]
    """Language -> all tokens of its patterns but their slots and punctuation."""
    taken: dict[str, set[str]]
    """Relation -> its patterns in ``normal_form``, with those that were proposed."""

    @classmethod
    def of(cls, suite: Suite) -> Vocabulary:
        texts: dict[str, list[str]] = {}
        for pattern in (pattern for group in suite for pattern in group.patterns):
            texts.setdefault(pattern.language, []).append(pattern.text)
        words = {language: frozenset(_words(" ".join(of))) for language, of in texts.items()}
        taken = {group.id: {normal_form(p.text) for p in group.patterns} for group in suite}
        return cls(words, taken)


def _words(text: str) -> list[str]:
    """The tokens of a pattern but its slots and punctuation."""
    return [token for token in tokens_of(text) if token[0].isalnum()]


def _breaks_slots(relation: Relation, text: str, vocabulary: Vocabulary) -> bool:
    counts = [text.count(slot) for slot in (SUBJECT_SLOT, OBJECT_SLOT)]
    return counts != [1, 1] or not has_words(text) or bool(control_in(text))


def _is_base(relation: Relation, text: str, vocabulary: Vocabulary) -> bool:
    return normal_form(text) == normal_form(relation.patterns[0].text)


def _is_taken(relation: Relation, text: str, vocabulary: Vocabulary) -> bool:
    return normal_form(text) in vocabulary.taken[relation.id]


def _breaks_length(relation: Relation, text: str, vocabulary: Vocabulary) -> bool:
    ratio = len(tokens_of(text)) / len(tokens_of(relation.patterns[0].text))
    return not LENGTHS[0] <= ratio <= LENGTHS[1]


def _breaks_language(relation: Relation, text: str, vocabulary: Vocabulary) -> bool:
    """Whether it has a script that the base pattern has not, or too few words of the language.

    Its words are those of the suite's patterns, and one is enough. Models that leave another
    language write English. A language in Latin letters shares words with it: there it is half.
    """
    base = relation.patterns[0]
    known = scripts(base.text)
    strange = scripts(text) - (known | {"CJK"} if "KANA" in known else known)
    words = _words(text)
    shared = sum(word in vocabulary.words[base.language] for word in words)
    is_like_english = "LATIN" in known and base.language.partition("-")[0] != ENGLISH
    return bool(strange) or shared < max(1, len(words) / 2 if is_like_english else 1)


RULES: Mapping[str, Rule] = {
    "slots": _breaks_slots,
    "same as the base pattern": _is_base,
    "duplicate": _is_taken,
    "length": _breaks_length,
    "language": _breaks_language,
}
"""The rules in their order; the first one that a text breaks refuses it."""


SCRIPTS = {
    **dict.fromkeys(("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"), "KANA"),
    "IDEOGRAPHIC": "CJK",
    **dict.fromkeys(("FEMININE", "MASCULINE"), "LATIN"),
}
"""Scripts of letters whose Unicode names begin with another word: Japanese uses both kana, and
``\u00aa`` is the feminine ordinal indicator."""


def scripts(text: str) -> set[str]:
    """The scripts of the letters of a pattern besides its slots, such as ``LATIN``."""
    rest = text.replace(SUBJECT_SLOT, "").replace(OBJECT_SLOT, "")
    names = (unicodedata.name(letter, "") for letter in rest if letter.isalpha())
    first_words = {name.partition(" ")[0] for name in names if name}
    return {SCRIPTS.get(word, word) for word in first_words} - {"MODIFIER"}


def rewrite_prompt(pattern: Pattern, *, is_chat: bool) -> Prompt:
    """What a writer reads for a base pattern."""
    text = INSTRUCTION.format(pattern.text) + ("" if is_chat else NEW)
    return Prompt((("user", text),), (), (), is_chat=is_chat)


def written_patterns(text: str) -> Iterator[str]:
    """The patterns in a text that a model wrote: its lines that have a slot, else its first line.

    List marks, words with a colon before the first slot, and quotation marks around a line are
    dropped.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    with_slots = [line for line in lines if SUBJECT_SLOT in line or OBJECT_SLOT in line]
    for line in with_slots or lines[:1]:
        bare = LABEL.sub("", line).strip()
        quoted = len(bare) > 1 and bare[0] in QUOTES and bare[-1] in QUOTES
        yield bare[1:-1].strip() if quoted else bare


def draft_rewrites(
    suite: Suite, writer: WritingModel, samples: int
) -> tuple[list[Draft], list[Refusal]]:
    """The rewrites of the base pattern of each relation that pass ``RULES``, and the others."""
    relations, is_chat = list(suite), is_chat_model(writer)
    prompts = [rewrite_prompt(group.patterns[0], is_chat=is_chat) for group in relations]
    refusals: list[Refusal] = []
    jobs: list[tuple[int, int]] = []
    for at, reason in enumerate(writer.why_not(prompts)):
        if reason:
            refusals.append(Refusal(relations[at].id, "", reason))
        else:
            jobs += [(at, number + 1) for number in range(samples)]
    texts: list[str | NoAnswer] = [""] * len(jobs)
    written = writer.write([prompts[at] for at, _ in jobs], [number for _, number in jobs])
    for rows, replies in written:
        for row, text in zip(rows.tolist(), replies, strict=True):
            texts[row] = text
    vocabulary = Vocabulary.of(suite)
    drafts: list[Draft] = []
    for (at, number), reply in zip(jobs, texts, strict=True):
        relation = relations[at]
        if isinstance(reply, NoAnswer):
            refusals.append(Refusal(relation.id, "", reply.reason))
            continue
        for text in written_patterns(reply) if reply.strip() else [""]:
            reason = next((r for r, rule in RULES.items() if rule(relation, text, vocabulary)), "")
            if reason:
                refusals.append(Refusal(relation.id, text, reason))
                continue
            vocabulary.taken[relation.id].add(normal_form(text))
            drafts.append(Draft(relation, replace(relation.patterns[0], text=text), number))
    return drafts, refusals


def proposals_of(
    drafts: Sequence[Draft], facts: Mapping[str, Sequence[Fact]], judge: MeaningJudge, source: str
) -> list[Proposal]:
    """The drafts as proposals with the scores ``meaning``, ``fluency`` and ``sample``.

    ``facts``: those that fill the patterns, by relation. A draft that the judge cannot read has no
    ``meaning``.
    """
    pairs = [
        PatternPair(
            draft.relation, draft.relation.patterns[0], draft.pattern, facts[draft.relation.id]
        )
        for draft in drafts
    ]
    if not pairs:
        return []
    scores = {"meaning": meaning_scores(pairs, judge), "fluency": fluency_scores(pairs, judge)}
    return [
        Proposal(
            draft.relation.id,
            draft.pattern.text,
            "rewritten",
            source,
            parent=draft.relation.patterns[0].text,
            scores={
                "sample": draft.sample,
                **{
                    name: round(float(values[at]), 3)
                    for name, values in scores.items()
                    if not math.isnan(values[at])
                },
            },
        )
        for at, draft in enumerate(drafts)
    ]


def accepted(
    proposals: Sequence[Proposal], threshold: float | None
) -> tuple[list[Proposal], list[Refusal]]:
    """The proposals whose meaning score reaches the threshold, and the others; None keeps all."""
    if threshold is None:
        return list(proposals), []
    good = [p for p in proposals if p.scores.get("meaning", float("-inf")) >= threshold]
    chosen = set(map(id, good))
    bad = [Refusal(p.relation, p.pattern, "meaning") for p in proposals if id(p) not in chosen]
    return good, bad


def with_edits(proposals: Sequence[Proposal]) -> list[Proposal]:
    """The proposals with the edit kind between each and the pattern that it was rewritten from.

    The kinds are those of English patterns (``analysis/syntax.py``). Without spaCy it raises.
    """
    parser = load_parser()

    def edit_of(proposal: Proposal) -> str:
        texts = (proposal.parent, proposal.pattern)
        first, second = (parse_pattern(Pattern.parse(text), parser) for text in texts)
        return edge_between(first, second).kind

    return [replace(proposal, edit=edit_of(proposal)) for proposal in proposals]


MEASURED_PAIRS = 2
"""Pairs of each kind and relation that the meaning score is measured on."""


@dataclass(frozen=True, slots=True, repr=False)
class Rewriting(Shown):
    """Proposals that a model wrote, and what was refused."""

    file: Path
    proposals: Sequence[Proposal]
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
    from consilience.models.judges import ParaphraseJudge
    from consilience.models.loading import load_pretrained
    from consilience.models.prompted import OptionScorer

    if options.model.startswith("baseline:"):
        raise ConsilienceError(
            f"'{options.model}' does not write",
            expected="a causal or sequence-to-sequence language model",
            todo="Name one with --model.",
        )
    writer = load_writer(
        options.model,
        options.loading,
        connection=options.connection,
        most_written=options.max_new_tokens,
        temperature=options.temperature,
        seed=options.seed,
    )
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
