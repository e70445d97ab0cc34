"""Patterns and questions rewritten by rule or by a model."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from consilience import suites
from consilience.authoring.checks import (
    contains,
    has_words,
    normal_form,
    same_phrasing,
    tokens_of,
)
from consilience.core.errors import SILENT, ConsilienceError, Loading, Watch
from consilience.core.items import DEFAULT_LANGUAGE, NoAnswer, Prompt
from consilience.core.patterns import ENGLISH, OBJECT_SLOT, SUBJECT_SLOT
from consilience.core.provenance import versions
from consilience.core.text import NEGATIONS, control_in, counted
from consilience.files.read import read_rows
from consilience.models import LanguageModel, is_chat_model, load_prompt_model
from consilience.models.prompt_tokens import Writing
from consilience.options import OutputOptions
from consilience.options.suites import RewriteOptions
from consilience.report.export import Shown
from consilience.suites import question_suites
from consilience.suites.facts import select_relations
from consilience.suites.proposals import (
    OF_FACTS,
    OF_QUESTIONS,
    RULE,
    Names,
    Proposal,
    check_no_file,
    write_proposals,
)
from consilience.suites.question_suites import (
    columns_flag,
    columns_of,
    is_questions,
    suite_of_phrasings,
    words_in,
)
from consilience.types import Relation, Suite

UNREAD = "a model wrote it: read whether it means the same"
QUESTION_MARKS = ("?", "\uff1f", "\u061f")


def _pattern_fault(base: str, text: str, gold: str) -> str:
    return "" if [text.count(slot) for slot in (SUBJECT_SLOT, OBJECT_SLOT)] == [1, 1] else "slots"


def _question_fault(base: str, text: str, gold: str) -> str:
    """Why a text does not ask what a question asks: it answers, or has other numbers."""
    if base.endswith(QUESTION_MARKS) != text.endswith(QUESTION_MARKS):
        return "no question"
    one, two = (
        ({*re.findall(r"\d+", part)}, bool(re.search(NEGATIONS, part.casefold())))
        for part in (base, text)
    )
    if one != two:
        return "numbers or negation"
    return "answer" if contains(text, gold) and not contains(base, gold) else ""


class Kind(NamedTuple):
    """How rewrites of a kind of suite are recognised and called."""

    marks: Sequence[str]  # A line with one of them is a rewrite
    fault: Callable[[str, str, str], str]
    """Why a text is no rewrite of a base, with the answer that belongs to it; empty for none."""
    names: Names
    has_rules: bool = False  # Whether ``RULES`` propose some


KINDS = {
    "pattern": Kind((SUBJECT_SLOT, OBJECT_SLOT), _pattern_fault, OF_FACTS),
    "phrasing": Kind(QUESTION_MARKS, _question_fault, OF_QUESTIONS, has_rules=True),
}
"""By what is rewritten (``Suite.words.variant``)."""


RULES = Path(__file__).with_name("rules.tsv")
"""What is proposed without a model: changes of an English question that keep its meaning.

Of the groups of a pattern, ``low`` is written in lower case and ``up`` with a capital. No rule
needs a grammar: what does is left to a model.
"""


def drafts_by_rule(suite: Suite) -> list[Proposal]:
    """What the rules make of a suite of phrasings, of which none may say another language."""
    rules = [cells for _, cells in read_rows(RULES)]
    drafts = []
    for relation in suite:
        base, known = relation.patterns[0].text, [one.text for one in relation.patterns]
        if relation.patterns[0].language.partition("-")[0] not in (DEFAULT_LANGUAGE, ENGLISH):
            continue
        for rule in rules:
            match = re.search(rule["pattern"], base)
            if not match or (rule["needs"] and len(relation.candidates.words) < 2):
                continue
            parts = match.groupdict()
            cased = {"low": parts.get("low", "").lower()}
            cased["up"] = parts.get("up", "")[:1].upper() + parts.get("up", "")[1:]
            text = rule["replacement"].format(**parts | cased) + base[match.end() :]
            if not any(same_phrasing(text, other) for other in known):
                known.append(text)
                how = {"source": RULE, "edit": rule["name"], "reason": rule["reason"]}
                drafts.append(_draft(suite, relation, text, **how))
    return drafts


def _draft(suite: Suite, relation: Relation, text: str, **how: Any) -> Proposal:
    """A rewrite of a base, in its language."""
    base = relation.patterns[0]
    language = "" if base.language == suite.language else base.language
    return Proposal(relation.id, text, "rewritten", parent=base.text, language=language, **how)


MOST_WRITTEN = 48  # tokens

LENGTHS = (0.5, 2.0)  # Least and greatest length of a rewrite, in tokens of its base pattern

LIST_MARK = re.compile(r"^(?:[-*\u2022]|\(?\d{1,2}[.):])?\s*")
LABEL = re.compile(LIST_MARK.pattern + r"(?:[^\[\]:]{1,80}:\s+)?")
"""What models write before a sentence and is no part of it: a list mark, and words with a colon."""

QUOTES = "\"'`\u201c\u201d\u00ab\u00bb"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A text that is no proposal."""

    relation: str
    text: str
    reason: str


class Rules:
    """What a rewrite must not break, and the patterns that a suite has or was proposed."""

    def __init__(self, suite: Suite) -> None:
        self.kind, self.base = KINDS[suite.words.variant], suite.words.base
        self.taken = {group.id: {normal_form(p.text) for p in group.patterns} for group in suite}

    def broken(self, relation: Relation, text: str) -> str:
        """The first rule that a rewrite of the base pattern breaks; empty for none."""
        base, form = relation.patterns[0].text, normal_form(text)
        if not has_words(text) or control_in(text):
            return "no plain words"
        if fault := self.kind.fault(base, text, relation.facts[0].object):
            return fault
        if form == normal_form(base):
            return f"same as the {self.base}"
        if form in self.taken[relation.id]:
            return "duplicate"
        if not LENGTHS[0] <= len(tokens_of(text)) / len(tokens_of(base)) <= LENGTHS[1]:
            return "length"
        return ""


def written_patterns(
    text: str, marks: Sequence[str] = KINDS["pattern"].marks, base: str = ""
) -> Iterator[str]:
    """The rewrites in a text that a model wrote: its lines with a mark, else its first line.

    List marks, words with a colon before the first slot, and asterisks and quotation marks around a
    line are dropped, unless the ``base`` has a colon, or the line further quotation marks.
    """
    label = LIST_MARK if ":" in base else LABEL
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if any(mark in line for mark in marks)]
    for line in marked or lines[:1]:
        bare = label.sub("", line).strip("* ")
        quoted = len(bare) > 1 and bare[0] in QUOTES and bare[-1] in QUOTES
        yield bare[1:-1].strip() if quoted and bare[0] not in bare[1:-1] else bare


def draft_rewrites(
    suite: Suite,
    writer: LanguageModel,
    samples: int,
    known: Sequence[Proposal] = (),
) -> tuple[list[Proposal], list[Refusal]]:
    """The rewrites of the base of each relation that pass the rules, and the others.

    ``known``: proposals that there are already.
    """
    relations, is_chat, variant = list(suite), is_chat_model(writer), suite.words.variant
    prompts, kind = [], KINDS[variant]
    for base in [relation.patterns[0] for relation in relations]:
        own = words_in(base.language)
        text = own[f"rewrite_{variant}"].replace("{text}", base.text)
        text += "" if is_chat else "\n" + own[f"new_{variant}"]
        prompts.append(Prompt((("user", text),), (), (), is_chat=is_chat))
    reasons = writer.why_not(prompts)
    refusals = [
        Refusal(one.id, "", why) for one, why in zip(relations, reasons, strict=True) if why
    ]
    jobs = [(at, n + 1) for at, why in enumerate(reasons) if not why for n in range(samples)]
    replies: list[str | NoAnswer] = [""] * len(jobs)
    written = writer.write([prompts[at] for at, _ in jobs], [number for _, number in jobs])
    for rows, of_rows in written:
        for row, reply in zip(rows.tolist(), of_rows, strict=True):
            replies[row] = reply
    rules = Rules(suite)
    for one in known:
        rules.taken[one.relation].add(normal_form(one.pattern))
    drafts: list[Proposal] = []
    for (at, number), reply in zip(jobs, replies, strict=True):
        relation = relations[at]
        if isinstance(reply, NoAnswer):
            refusals.append(Refusal(relation.id, "", reply.reason))
            continue
        asked = relation.patterns[0].text
        for text in written_patterns(reply, kind.marks, asked) if reply.strip() else [""]:
            if broken := rules.broken(relation, text):
                refusals.append(Refusal(relation.id, text, broken))
            else:
                rules.taken[relation.id].add(normal_form(text))
                drafts.append(_draft(suite, relation, text, scores={"sample": number}))
    return drafts, refusals


# The command.


@dataclass(frozen=True, slots=True, repr=False)
class Rewriting(Shown):
    """Proposals of rules and of a model, and what was refused."""

    file: Path
    into: str  # What ``suite import`` adds them to
    suite: Suite
    proposals: Sequence[Proposal]
    refusals: Sequence[Refusal]
    notes: Sequence[str]
    record: Mapping[str, object] = field(repr=False)

    @property
    def reasons(self) -> dict[str, int]:
        """The number of refused texts by the rule that refuses them, the most frequent first."""
        return dict(Counter(refusal.reason for refusal in self.refusals).most_common())

    def printed(self, output: OutputOptions) -> Iterator[str]:
        groups = len({proposal.relation for proposal in self.proposals})
        size = f"{groups} of {counted(len(self.suite.relations), self.suite.words.group)}"
        yield f"{self.file}: {counted(len(self.proposals), 'proposal')} for {size}"
        edits = Counter(one.edit for one in self.proposals if one.source == RULE)
        if edits:
            yield f"by rule: {', '.join(f'{name} {number}' for name, number in edits.items())}"
        if self.refusals:
            reasons = ", ".join(f"{reason} {number}" for reason, number in self.reasons.items())
            yield f"refused: {counted(len(self.refusals), 'text')} ({reasons})"
        if self.proposals:
            file = shlex.quote(str(self.file))
            then = f"Then: consilience suite import {file} --into {self.into}"
            if self.suite.words.variant == "phrasing":
                then = f"Then copy the others to {self.into}: further phrasings of their items."
            yield "Read the file, and write no in the column accept of what should not join."
            yield then

    def document(self) -> dict[str, Any]:
        names = KINDS[self.suite.words.variant].names
        return {
            "run": self.record,
            "file": str(self.file),
            "proposals": [proposal.row(names) for proposal in self.proposals],
            "refused": self.reasons,
            "refusals": [asdict(refusal) for refusal in self.refusals],
            "warnings": self.notes,
        }

    def __repr__(self) -> str:
        sizes = f"{len(self.proposals)} proposals, {len(self.refusals)} refused"
        return f"Rewriting({str(self.file)!r}: {sizes})"


def rewrite_patterns(options: RewriteOptions, watch: Watch = SILENT) -> Rewriting:
    """Load the suite and the models, and write a file of proposals. An existing file raises."""
    check_no_file(options.out)
    if is_questions(options.suite):
        questions = question_suites.load_questions(options.suite, columns_of(options.columns))
        some = question_suites.select_questions(questions, options.groups, None, 0)
        suite = suite_of_phrasings(some)
    else:
        suite = suites.load_suite(options.suite)
        suite = suite if options.groups is None else select_relations(suite, options.groups)
    if options.model and options.samples > 1 and not options.temperature:
        found = f"--samples {options.samples} at temperature 0, where all samples are the same"
        raise ConsilienceError(found, todo="Add --temperature 0.7, or --samples 1.")
    connection = options.connection  # options of a URL without a model raise
    if options.model is None:
        return rewrite_suite(suite, None, options)
    with watch.loading(options.model):
        writing = Writing(MOST_WRITTEN, options.temperature, options.seed)
        how: Any = {"loading": Loading(options.device), "connection": connection}
        writer = load_prompt_model(options.model, writing=writing, chooses=False, **how)
        watch.say("writing")
        return rewrite_suite(suite, writer, options)


def rewrite_suite(suite: Suite, writer: LanguageModel | None, options: RewriteOptions) -> Rewriting:
    """Write proposals for base patterns; without a ``writer`` they are those of the rules."""
    kind, notes = KINDS[suite.words.variant], list(writer.notes if writer else ())
    drafts = drafts_by_rule(suite) if kind.has_rules else []
    without = sorted({relation.id for relation in suite} - {draft.relation for draft in drafts})
    if without and not writer:
        groups = counted(len(without), suite.words.group)
        notes.append(
            f"nothing new by rule for {groups}, such as {without[0]}: rules are for English "
            "questions; a model (--model) rewrites others"
        )
    refusals: list[Refusal] = []
    languages = dict.fromkeys(relation.patterns[0].language for relation in suite)
    settings: dict[str, object] = {}
    if writer:
        drawn = {"seed": options.seed, "temperature": options.temperature}
        model = str(options.model)
        source = Path(model).name if Path(model).exists() else model
        written, refusals = draft_rewrites(suite, writer, options.samples, drafts)
        drafts += [
            replace(one, source=source, reason=UNREAD, scores={**one.scores, **drawn})
            for one in written
        ]
        prompts = [words_in(one)[f"rewrite_{suite.words.variant}"] for one in languages]
        settings = {"prompts": prompts, "model": dict(writer.identity), **drawn}
        settings["samples"] = options.samples
    write_proposals(options.out, drafts, kind.names)
    record = {"settings": settings, "versions": versions()}
    into = shlex.quote(options.suite) + columns_flag(columns_of(options.columns))
    into = into if kind.has_rules else "FOLDER"
    return Rewriting(options.out, into, suite, drafts, refusals, notes, record)
