"""Patterns and questions rewritten by rule or by a model, and how a judge compares meanings."""

from __future__ import annotations

import math
import random
import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from consilience import suites
from consilience.authoring.checks import (
    contains,
    has_words,
    normal_form,
    same_phrasing,
    sentence,
    tokens_of,
)
from consilience.core.errors import SILENT, ConsilienceError, Loading, Watch
from consilience.core.items import DEFAULT_LANGUAGE, Floats, NoAnswer
from consilience.core.patterns import ENGLISH, OBJECT_SLOT, SUBJECT_SLOT, Pattern
from consilience.core.presentation import Prompt
from consilience.core.provenance import versions
from consilience.core.text import NEGATIONS, control_in, counted
from consilience.files.read import read_rows
from consilience.files.write import csv_cell
from consilience.models import WritingModel, is_chat_model, load_writer
from consilience.options import Output
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
    WORDS,
    Words,
    columns_flag,
    columns_of,
    is_questions,
    read_words,
    suite_of_phrasings,
    words_in,
    words_note,
)
from consilience.types import Fact, Relation, Suite, SuiteWords

if TYPE_CHECKING:
    from consilience.models.judges import EmbeddingJudge as Judge

UNREAD = "a model wrote it: read whether it means the same"
QUESTION_MARKS = ("?", "\uff1f", "\u061f")


def _pattern_fault(base: str, text: str, gold: str) -> str:
    return "" if [text.count(slot) for slot in (SUBJECT_SLOT, OBJECT_SLOT)] == [1, 1] else "slots"


def _question_fault(base: str, text: str, gold: str) -> str:
    """Why a text does not ask what a question asks: it answers, or has other numbers."""
    if base.endswith(QUESTION_MARKS) != text.endswith(QUESTION_MARKS) or csv_cell(text) != text:
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
    has_rules: bool = False  # Whether ``RULES`` propose some, also of forms that measure as others


KINDS = {
    "pattern": Kind((SUBJECT_SLOT, OBJECT_SLOT), _pattern_fault, OF_FACTS),
    "phrasing": Kind(QUESTION_MARKS, _question_fault, OF_QUESTIONS, has_rules=True),
}
"""By what is rewritten (``Suite.words.variant``)."""


ASKING = {"what", "who", "which", "where", "when", "how"}
RULES = Path(__file__).with_name("rules.tsv")
"""What is proposed without a model: changes of an English question that keep its meaning.

Of the groups of a pattern, ``low`` is written in lower case and ``up`` with a capital. No rule
needs a grammar: what does is left to a model.
"""


def drafts_by_rule(suite: Suite) -> list[Proposal]:
    """What the rules make of a suite of phrasings, of which none may say another language."""
    rules = [cells for _, cells in read_rows(RULES, quoted=False)]
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
        self.words: dict[str, set[str]] = defaultdict(set)
        for group in suite:
            for pattern in group.patterns:
                self.words[pattern.language] |= set(_words(pattern.text))

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
        # A rewrite in the language has its scripts, and words of the suite's patterns: one is
        # enough. Models that leave another language write English. A language in Latin letters
        # shares words with it: there it is half.
        language, known, words = relation.patterns[0].language, scripts(base), _words(text)
        strange = scripts(text) - (known | {"CJK"} if "KANA" in known else known)
        shared = sum(word in self.words[language] for word in words)
        is_english = language.partition("-")[0] == ENGLISH
        if language == DEFAULT_LANGUAGE:  # a question that names none
            is_english = not ASKING.isdisjoint(_words(base))
        least = max(1, len(words) / 2 if "LATIN" in known and not is_english else 1)
        return "language" if strange or shared < least else ""


def _words(text: str) -> list[str]:
    return [token for token in tokens_of(text) if token[0].isalnum()]


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
    writer: WritingModel,
    samples: int,
    known: Sequence[Proposal] = (),
    words: Words = WORDS,
) -> tuple[list[Proposal], list[Refusal]]:
    """The rewrites of the base of each relation that pass the rules, and the others.

    ``known``: proposals that there are already.
    """
    relations, is_chat, variant = list(suite), is_chat_model(writer), suite.words.variant
    prompts, kind = [], KINDS[variant]
    for base in [relation.patterns[0] for relation in relations]:
        own = words_in(base.language, words)
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


# The meaning score.

FEWEST_RELATIONS = 5  # Relations without which no interval is given: the bootstrap resamples them

LEAST_AUC = 0.7
"""The lower bound of the AUC from which scores may refuse rewrites: acceptable discrimination
(Hosmer and Lemeshow, Applied Logistic Regression, 2000, Section 5.2)."""

RESAMPLES = 1000
MEASURED_PAIRS = 2


@dataclass(frozen=True, slots=True)
class PatternPair:
    """Two patterns, and the facts that fill both."""

    relation: Relation
    first: Pattern
    second: Pattern
    facts: Sequence[Fact]

    @property
    def sentences(self) -> list[tuple[str, str]]:
        """The two sentences that each fact makes."""
        both = self.first, self.second
        filled = [[sentence(self.relation, one, fact) for one in both] for fact in self.facts]
        return [(first, second) for first, second in filled]


def meaning_scores(pairs: Sequence[PatternPair], judge: Judge) -> Floats:
    """The two-way meaning score (pair,) of pairs of patterns.

    The mean, over the facts of a pair, of the cosine of the embeddings of its sentences.
    """
    return np.array([judge.meaning(pair.sentences).mean() for pair in pairs])


@dataclass(frozen=True, slots=True)
class Separation:
    """How well meaning scores tell paraphrases from controls."""

    positives: int
    controls: int  # Pairs of patterns of two relations, filled with the same subjects and objects
    auc: float  # The probability that a positive pair scores higher than a control; 0.5 for a coin
    low: float  # Lower bound of its 95 % interval, over relations; NaN with too few of them
    high: float
    threshold: float | None
    """The score with the greatest sum of sensitivity and specificity; None where the lower bound
    of the AUC is unknown or below ``LEAST_AUC``."""


def sample_pairs(
    suite: Suite, most: int, facts: int, seed: int = 0
) -> tuple[list[PatternPair], list[PatternPair]]:
    """Positive pairs and controls: at most ``most`` of each a relation.

    A positive pair is the base pattern of a relation with another one of its patterns (ParaRel,
    Section 4). A control is the base pattern with a pattern of another relation, filled with the
    same ``facts`` facts.
    """
    rng = random.Random(seed)
    positives: list[PatternPair] = []
    controls: list[PatternPair] = []
    for relation in suite:
        own = {normal_form(pattern.text) for pattern in relation.patterns}
        foreign = [
            pattern
            for other in suite
            if other.id != relation.id
            for pattern in other.patterns
            if normal_form(pattern.text) not in own
        ]
        base, *rest = relation.patterns
        if not rest or not foreign:
            continue
        chosen = rng.sample(relation.facts, min(facts, len(relation.facts)))
        for pool, pairs in ((rest, positives), (foreign, controls)):
            for pattern in rng.sample(pool, min(most, len(rest), len(pool))):
                pairs.append(PatternPair(relation, base, pattern, chosen))
    return positives, controls


def separation(
    positives: Mapping[str, Sequence[float]], controls: Mapping[str, Sequence[float]], seed: int = 0
) -> Separation:
    """How well the scores of positive pairs and of controls are separated, by relation.

    The interval is that of a bootstrap over relations, which keeps the pairs of a relation together
    (percentiles 2.5 and 97.5 of ``RESAMPLES``).
    """
    of_relations = [
        (np.asarray(positives[id_], float), np.asarray(controls.get(id_, ()), float))
        for id_ in sorted(positives)
    ]
    low = high = float("nan")
    if (size := len(of_relations)) >= FEWEST_RELATIONS:
        draws = np.random.default_rng(seed).integers(size, size=(RESAMPLES, size))
        values = [_auc([of_relations[at] for at in draw]) for draw in draws]
        low, high = np.nanpercentile(values, [2.5, 97.5]).tolist()
    yes, no = (np.concatenate(parts) for parts in zip(*of_relations, strict=True))
    threshold = None
    if low >= LEAST_AUC:  # Youden's index, the least score of the greatest
        scores = np.unique(np.concatenate([yes, no]))
        index = [(yes >= score).mean() - (no >= score).mean() for score in scores]
        threshold = float(scores[int(np.argmax(index))])
    return Separation(len(yes), len(no), _auc(of_relations), low, high, threshold)


def _auc(of_relations: Sequence[tuple[Floats, Floats]]) -> float:
    yes, no = (np.concatenate(parts) for parts in zip(*of_relations, strict=True))
    if not len(yes) or not len(no):
        return float("nan")
    return float((yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2)


def measured_separation(suite: Suite, judge: Judge, facts: int, seed: int) -> Separation | None:
    """The separation of a judge on the patterns of a suite; None for a suite without controls."""
    positives, controls = sample_pairs(suite, MEASURED_PAIRS, facts, seed)
    if not positives:
        return None
    scores = meaning_scores([*positives, *controls], judge)
    yes = by_relation(positives, scores[: len(positives)])
    return separation(yes, by_relation(controls, scores[len(positives) :]), seed)


def by_relation(pairs: Sequence[PatternPair], scores: Floats) -> dict[str, list[float]]:
    """The scores of pairs by their relation; those without a score are left out."""
    by_id: dict[str, list[float]] = {pair.relation.id: [] for pair in pairs}
    for pair, score in zip(pairs, scores.tolist(), strict=True):
        if not math.isnan(score):
            by_id[pair.relation.id].append(score)
    return by_id


# The command.


@dataclass(frozen=True, slots=True, repr=False)
class Rewriting(Shown):
    """Proposals of rules and of a model, and what was refused."""

    file: Path
    into: str  # What ``suite import`` adds them to
    suite: Suite
    proposals: Sequence[Proposal]
    refusals: Sequence[Refusal]
    separation: Separation | None
    notes: Sequence[str]
    record: Mapping[str, object] = field(repr=False)

    @property
    def reasons(self) -> dict[str, int]:
        """The number of refused texts by the rule that refuses them, the most frequent first."""
        return dict(Counter(refusal.reason for refusal in self.refusals).most_common())

    def printed(self, output: Output) -> Iterator[str]:
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
        questions = question_suites.load_questions(
            options.suite, columns_of(options.columns), options.data_dir
        )
        suite = suite_of_phrasings(questions)
        some = question_suites.select_questions(questions, options.groups, None, 0)
        chosen = suite_of_phrasings(some)
    else:
        suite = suites.load_suite(options.suite, options.data_dir)
        chosen = suite if options.groups is None else select_relations(suite, options.groups)
    if options.model and options.samples > 1 and not options.temperature:
        found = f"--samples {options.samples} at temperature 0, where all samples are the same"
        raise ConsilienceError(found, todo="Add --temperature 0.7, or --samples 1.")
    named = options.model or options.judge
    with watch.loading(named) if named else nullcontext():
        writer, judge = _load_models(options)
        return rewrite_suite(chosen, writer, judge, options, measured_on=suite, watch=watch)


def _load_models(options: RewriteOptions) -> tuple[WritingModel | None, Judge | None]:
    """The model that writes and the judge; None for what the options do not name."""
    connection = options.connection  # options of a URL without a model raise
    if not (options.model or options.judge):
        return None, None
    from consilience.models.judges import load_judge

    writer: Any = None
    if options.model:
        writer = load_writer(
            options.model, options.loading, connection=connection,
            most_written=options.max_new_tokens, temperature=options.temperature, seed=options.seed,
        )  # fmt: skip
    loading = Loading(options.device, options.dtype, None, options.trust_remote_code)
    return writer, load_judge(options.judge, loading) if options.judge else None


def rewrite_suite(
    suite: Suite,
    writer: WritingModel | None,
    judge: Judge | None,
    options: RewriteOptions,
    *,
    measured_on: Suite,
    watch: Watch = SILENT,
) -> Rewriting:
    """Write proposals for base patterns; ``measured_on``: what the score is measured on.

    Without a ``writer`` they are those of the rules, without a ``judge`` they have no scores.
    """
    if options.min_meaning is not None and judge is None:
        found, todo = "--min-meaning without a judge", "Add --judge embedding:packaged:minilm."
        raise ConsilienceError(found, todo=todo)
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
    words, asked = read_words(options.words), f"rewrite_{suite.words.variant}"
    languages = dict.fromkeys(relation.patterns[0].language for relation in suite)
    drawn = {"seed": options.seed, "temperature": options.temperature} if writer else {}
    if writer:
        watch.say("writing")
        model = str(options.model)
        source = Path(model).name if Path(model).exists() else model
        notes += words_note(languages, words)
        written, refusals = draft_rewrites(suite, writer, options.samples, drafts, words)
        drafts += [
            replace(one, source=source, reason=UNREAD, scores={**one.scores, **drawn})
            for one in written
        ]
    measured, threshold = None, options.min_meaning
    if judge is None and drafts:
        notes.append(
            "no meaning score, because there is no judge: read every rewrite, or add "
            "--judge embedding:packaged:minilm"
        )
    elif judge:
        watch.say("measuring the meaning score")
        measured = measured_separation(measured_on, judge, options.fillings, options.seed)
        if threshold is None and measured and not kind.has_rules:
            threshold = measured.threshold
        name = str(judge.identity["model"])
        notes.append(_meaning_note(measured, threshold, name, measured_on.words))
        watch.say("scoring")
        drafts = _scored(drafts, suite, judge, options)
    proposals: list[Proposal] = []
    for draft in drafts:
        is_low = threshold is not None and draft.scores.get("meaning", -math.inf) < threshold
        if is_low and draft.source != RULE:
            refusals.append(Refusal(draft.relation, draft.pattern, "meaning"))
        else:
            proposals.append(draft)
    write_proposals(options.out, proposals, kind.names)
    prompts = [words_in(language, words)[asked] for language in languages]
    models = {"model": writer, "judge": judge}
    identities = {name: dict(one.identity) if one else None for name, one in models.items()}
    own = {"samples": options.samples, "fillings": options.fillings, "threshold": threshold}
    settings = {"prompts": prompts, **identities, **own, **drawn}
    record = {"settings": settings, "versions": versions()}
    into = shlex.quote(options.suite) + columns_flag(columns_of(options.columns))
    into = into if kind.has_rules else "FOLDER"
    return Rewriting(options.out, into, suite, proposals, refusals, measured, notes, record)


def _scored(
    drafts: Sequence[Proposal], suite: Suite, judge: Judge, options: RewriteOptions
) -> list[Proposal]:
    """The drafts with what the judge says of their meaning."""
    rng = random.Random(options.seed)
    facts = {
        group.id: rng.sample(group.facts, min(options.fillings, len(group.facts)))
        for group in suite
    }
    pairs = []
    for draft in drafts:
        relation = suite.relation(draft.relation)
        base = relation.patterns[0]
        rewrite = replace(base, text=draft.pattern)
        pairs.append(PatternPair(relation, base, rewrite, facts[relation.id]))
    numbers = meaning_scores(pairs, judge).round(3).tolist() if pairs else []
    return [
        draft if math.isnan(number) else replace(draft, scores={"meaning": number, **draft.scores})
        for draft, number in zip(drafts, numbers, strict=True)
    ]


def _meaning_note(
    measured: Separation | None, threshold: float | None, judge: str, words: SuiteWords
) -> str:
    rule = "no rewrite is refused by its meaning"
    if threshold is not None:
        rule = f"rewrites below {threshold:.2f} are refused"
    if measured is None or math.isnan(measured.low):
        return (
            f"the meaning score of {judge} is not measured, because the suite has fewer than "
            f"{FEWEST_RELATIONS} {words.group}s with two {words.variant}s; {rule}. "
            "Read every rewrite"
        )
    separates = (
        f"the meaning score of {judge} tells paraphrases of this suite from controls with an AUC "
        f"of {measured.auc:.2f} ({measured.low:.2f} to {measured.high:.2f})"
    )
    if measured.low >= LEAST_AUC:
        return f"{separates}; {rule}"
    return f"{separates}, which is too weak to refuse any; {rule}. Read every rewrite"
