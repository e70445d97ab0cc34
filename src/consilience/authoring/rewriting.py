"""Patterns and questions rewritten by rule or by a model: proposals that a person accepts."""

from __future__ import annotations

import random
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from consilience import suites
from consilience.authoring.checks import contains, has_words, normal_form, tokens_of
from consilience.authoring.importing import Proposal, write_proposals
from consilience.core.errors import SILENT, ConsilienceError, Progress
from consilience.core.items import (
    DEFAULT_LANGUAGE,
    ENGLISH,
    OBJECT_SLOT,
    SUBJECT_SLOT,
    NoAnswer,
    Prompt,
)
from consilience.core.provenance import versions
from consilience.core.text import LINE_CONTROLS, NEGATIONS, counted
from consilience.files.read import read_rows
from consilience.files.write import check_no_file
from consilience.models import LanguageModel, load_prompt_model
from consilience.models.prompts import Writing
from consilience.options.commands import RewriteOptions
from consilience.report.table import Output
from consilience.suites.facts import select_relations
from consilience.suites.question_suites import columns_of, select_questions, words_in
from consilience.suites.questions import Questions
from consilience.types import Suite

UNREAD = "a model wrote it: read whether it means the same"
QUESTION_MARKS = ("?", "\uff1f", "\u061f")
SLOTS = (SUBJECT_SLOT, OBJECT_SLOT)


@dataclass(frozen=True, slots=True)
class Base:
    """What is rewritten: the base pattern of a relation, or the first phrasing of a question."""

    id: str  # Of the relation or the item
    text: str
    language: str  # Empty for that of the suite
    known: tuple[str, ...]  # All patterns or phrasings
    gold: str
    names: tuple[str, ...] = ()  # The gold and the options of a question, with their aliases
    has_options: bool = False


def bases_of(suite: Suite | Questions) -> list[Base]:
    """The base of each relation or question."""
    if isinstance(suite, Questions):
        bases = []
        for one in suite.items:
            language, texts = next(iter(one.paraphrases.items()))
            known = tuple(text for of_language in one.paraphrases.values() for text in of_language)
            names = tuple(text for option in (one.gold, *one.options) for text in option.texts)
            has_options = len(one.options) > 1
            bases.append(
                Base(one.item, texts[0], language, known, one.gold.text, names, has_options)
            )
        return bases
    return [
        Base(
            relation.id, base.text, "" if base.language == suite.language else base.language,
            tuple(one.text for one in relation.patterns), relation.facts[0].object,
        )
        for relation in suite for base in relation.patterns[:1]
    ]  # fmt: skip


def proposal_of(base: Base, is_question: bool, text: str, **how: Any) -> Proposal:
    """A rewrite as a row of a file of proposals; cells that are empty are left out."""
    group, variant = ("item", "question") if is_question else ("relation", "pattern")
    row = {
        "accept": "yes", group: base.id, variant: text, "origin": "rewritten",
        "source": how.pop("source"), "parent": base.text, "edit": how.pop("edit", ""),
        "reason": how.pop("reason"), "language": base.language, **how,
    }  # fmt: skip
    return {name: cell for name, cell in row.items() if cell != ""}


# By rule.

RULE = "rule"  # The source of what no model wrote
RULES = Path(__file__).with_name("rules.tsv")
"""Changes of an English question that keep its meaning.

Of the groups of a pattern, ``low`` is written in lower case and ``up`` with a capital. No rule
needs a grammar: what does is left to a model.
"""

WORD = re.compile(r"(?<![\w{])[a-z]+(?![\w}])")
STOP_WORDS = {"an", "the", "is", "are", "was", "were", "do", "does", "did"}
"""Without *a*, which may be a variable."""

NUMBERS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|"
    "(?:thir|four|for|fif|six|seven|eigh|nine|twen)(?:teen|ty)|half|twice|once|"
    "hundreds?|thousands?|[mb]illions?|dozens?"
)
FIXED = re.compile(r"\{[^{}]*\}|\S*\d\S*")
"""A field in braces, and what has a digit."""

QUOTED = re.compile(
    r"(?<!\w)[\"'`\u2018\u201c](?=\S).{1,200}?(?<=\S)[\"'`\u2019\u201d](?!\w)"
    rf"|\b(?i:{NUMBERS})\b"
)
"""What is between quotation marks, and a number in words."""


def fixed_in(text: str, names: Sequence[str]) -> Counter[str]:
    """What a rewrite keeps of a text, and how often: fields, numbers, the gold and the options."""
    parts = Counter(part.strip("?.,;:!\"'()") for part in FIXED.findall(text))
    return parts + Counter({name: text.count(name) for name in names if contains(text, name)})


def _words(text: str, names: Sequence[str], is_it: Callable[[str], bool]) -> list[re.Match[str]]:
    """The lower-case words that are in no name, no field, no number and no quotation."""
    spans = [one.span() for what in (FIXED, QUOTED) for one in what.finditer(text)]
    for name in filter(None, names):
        spans += [one.span() for one in re.finditer(re.escape(name), text, re.IGNORECASE)]
    return [
        word for word in WORD.finditer(text)
        if is_it(word[0]) and not any(a < word.end() and word.start() < b for a, b in spans)
    ]  # fmt: skip


def typo(text: str, names: Sequence[str], draw: random.Random) -> str:
    """Two inner letters of a word change places."""
    words = _words(text, names, lambda word: len(word) > 3 and len({*word[1:-1]}) > 1)
    if not words:
        return text
    word = draw.choice(words)
    places = [at for at in range(1, len(word[0]) - 2) if word[0][at] != word[0][at + 1]]
    at = word.start() + draw.choice(places)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def spaces(text: str, names: Sequence[str], draw: random.Random) -> str:
    """A space before a word becomes two."""
    words = [word for word in _words(text, names, bool) if text[word.start() - 1 :][:1] == " "]
    at = draw.choice(words).start() if words else 0
    return text[:at] + " " * bool(at) + text[at:]


def stop_words(text: str, names: Sequence[str], draw: random.Random) -> str:
    """Articles and forms of *be* and *do* are left out."""
    for word in reversed(_words(text, names, STOP_WORDS.__contains__)):
        text = text[: word.start()] + text[word.end() :].removeprefix(" ")
    return text


DRAWN = {
    "stop words": (stop_words, "words that say little are left out"),
    "typo": (typo, "a slip of the fingers"),
    "spaces": (spaces, "a space means nothing"),
}
"""Changes of a question that its readers do not mind: name -> function and reason."""


def drafts_by_rule(questions: Questions, seed: int = 0) -> list[Proposal]:
    """What the rules make of English questions; ``seed``: of what is drawn.

    A rewrite that changes the gold, an option, a number or a field in braces is left out.
    """
    rules = [cells for _, cells in read_rows(RULES)]
    drafts = []
    for base in bases_of(questions):
        if base.language.partition("-")[0] not in (DEFAULT_LANGUAGE, ENGLISH):
            continue
        made: list[tuple[str, str, str]] = []
        for rule in rules:
            match = re.search(rule["pattern"], base.text)
            if match and (base.has_options or not rule["needs"]):
                parts = match.groupdict()
                cased = {"low": parts.get("low", "").lower()}
                cased["up"] = parts.get("up", "")[:1].upper() + parts.get("up", "")[1:]
                text = rule["replacement"].format(**parts | cased) + base.text[match.end() :]
                made.append((text, rule["name"], rule["reason"]))
        for name, (change, reason) in DRAWN.items():
            if made or base.language:  # English, since a rule knows the question, or as it says
                draw = random.Random(f"{seed}, {base.id}, {name}")
                made.append((change(base.text, base.names, draw), name, reason))
        known, kept = {*base.known}, fixed_in(base.text, base.names)
        for text, name, reason in made:
            if text not in known and fixed_in(text, base.names) == kept:
                known.add(text)
                how = {"source": RULE, "edit": name, "reason": reason}
                drafts.append(proposal_of(base, True, text, **how))
    return drafts


# By a model.

MOST_WRITTEN = 48  # tokens
TEMPERATURE = 0.7  # Of the tokens that it samples

LENGTHS = (0.5, 2.0)  # Least and greatest length of a rewrite, in tokens of its base

LIST_MARK = re.compile(r"^(?:[-*\u2022]|\(?\d{1,2}[.):])?\s*")
LABEL = re.compile(LIST_MARK.pattern + r"(?:[^\[\]:]{1,80}:\s+)?")
"""What models write before a sentence and is no part of it: a list mark, and words with a colon."""

QUOTES = "\"'`\u201c\u201d\u00ab\u00bb"


def written_texts(text: str, marks: Sequence[str] = SLOTS, base: str = "") -> Iterator[str]:
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


def fault_of(base: Base, text: str, taken: set[str], is_question: bool) -> str:
    """Why a text that a model wrote is no rewrite of a base; empty for none."""
    form, of_base = normal_form(text), normal_form(base.text)
    both = base.text, text
    numbers = [{*re.findall(r"\d+|\{[^{}]*\}", one)} for one in both]
    negations = [bool(re.search(NEGATIONS, one.casefold())) for one in both]
    size = len(tokens_of(text)) / max(1, len(tokens_of(base.text)))
    for reason, is_so in {
        "no plain words": not has_words(text) or bool(LINE_CONTROLS.search(text)),
        "slots": not is_question and [text.count(slot) for slot in SLOTS] != [1, 1],
        "no question": is_question
        and base.text.endswith(QUESTION_MARKS) != text.endswith(QUESTION_MARKS),
        "numbers or negation": is_question
        and (numbers[0] != numbers[1] or negations[0] != negations[1]),
        "answer": is_question and contains(text, base.gold) and not contains(base.text, base.gold),
        f"same as the {'first phrasing' if is_question else 'base pattern'}": form == of_base,
        "duplicate": form in taken,
        "length": not LENGTHS[0] <= size <= LENGTHS[1],
    }.items():
        if is_so:
            return reason
    return ""


def draft_rewrites(
    suite: Suite | Questions,
    writer: LanguageModel,
    samples: int,
    known: Sequence[Proposal] = (),
    **how: Any,
) -> tuple[list[Proposal], pl.DataFrame]:
    """The rewrites of each base that a model wrote, and what was refused (id, text, reason).

    ``known``: proposals that there are already. ``how``: further columns of each proposal.
    """
    is_question, bases = isinstance(suite, Questions), bases_of(suite)
    variant, marks = ("phrasing", QUESTION_MARKS) if is_question else ("pattern", SLOTS)
    is_chat, prompts = bool(getattr(writer, "takes_chats", False)), []
    for base in bases:
        own = words_in(base.language)
        text = own[f"rewrite_{variant}"].replace("{text}", base.text)
        text += "" if is_chat else "\n" + own[f"new_{variant}"]
        prompts.append(Prompt((("user", text),), (), (), is_chat=is_chat))
    reasons = writer.why_not(prompts)
    refused = [(one.id, "", why) for one, why in zip(bases, reasons, strict=True) if why]
    jobs = [(at, n + 1) for at, why in enumerate(reasons) if not why for n in range(samples)]
    replies: list[str | NoAnswer] = [""] * len(jobs)
    written = writer.write([prompts[at] for at, _ in jobs], [number for _, number in jobs])
    for rows, of_rows in written:
        for row, reply in zip(rows.tolist(), of_rows, strict=True):
            replies[row] = reply
    taken = {base.id: {*map(normal_form, base.known)} for base in bases}
    for one in known:
        taken[one["item"]].add(normal_form(one["question"]))
    drafts = []
    for (at, number), reply in zip(jobs, replies, strict=True):
        base = bases[at]
        if isinstance(reply, NoAnswer):
            refused.append((base.id, "", reply.reason))
            continue
        for text in written_texts(reply, marks, base.text) if reply.strip() else [""]:
            if fault := fault_of(base, text, taken[base.id], is_question):
                refused.append((base.id, text, fault))
            else:
                taken[base.id].add(normal_form(text))
                drafts.append(
                    proposal_of(base, is_question, text, reason=UNREAD, sample=number, **how)
                )
    return drafts, pl.DataFrame(refused, ["id", "text", "reason"], orient="row")


# The command.


def rewrite_patterns(options: RewriteOptions, progress: Progress = SILENT) -> Output:
    """Load the suite and the models, and write a file of proposals. An existing file raises."""
    check_no_file(options.out)
    whole = suites.load_any(options.suite, columns=columns_of(options.columns))
    suite: Suite | Questions
    if isinstance(whole, Questions):
        suite = select_questions(whole, options.groups, None, 0)
    else:
        suite = whole if options.groups is None else select_relations(whole, options.groups)
    asked = options.asked
    connection = asked.connection  # options of a URL without a model raise
    if options.model is None:
        return rewrite_suite(suite, None, options)
    with progress.loading(asked.model):
        writing = Writing(MOST_WRITTEN, TEMPERATURE, options.seed)
        how: Any = {"loading": asked.loading, "connection": connection}
        writer = load_prompt_model(asked.model, writing=writing, chooses=False, **how)
        progress.say("writing")
        return rewrite_suite(suite, writer, options)


def rewrite_suite(
    suite: Suite | Questions, writer: LanguageModel | None, options: RewriteOptions
) -> Output:
    """Write proposals for all bases; without a ``writer`` they are those of the rules."""
    is_question, bases = isinstance(suite, Questions), bases_of(suite)
    if not (is_question or writer):
        raise ConsilienceError(
            f"'{suite.name}' without a model: the rules are for questions", todo="Add --model M."
        )
    drafts = drafts_by_rule(suite, options.seed) if isinstance(suite, Questions) else []
    notes, refused = list(writer.notes if writer else ()), pl.DataFrame({"reason": []})
    settings: dict[str, object] = {"seed": options.seed}
    if writer:
        settings |= {"temperature": TEMPERATURE}
        model = Path(options.asked.model)
        source = model.name if model.exists() else options.asked.model
        written, refused = draft_rewrites(
            suite, writer, options.samples, drafts, source=source, **settings
        )
        drafts += written
        kind = f"rewrite_{'phrasing' if is_question else 'pattern'}"
        prompts = dict.fromkeys(words_in(base.language)[kind] for base in bases)
        settings |= {"prompts": [*prompts], "model": dict(writer.identity)}
        settings["samples"] = options.samples
    noun, key = ("question", "item") if is_question else ("relation", "relation")
    with_some = {one[key] for one in drafts}
    without = [base.id for base in bases if base.id not in with_some]
    if without and not writer:
        notes.append(
            f"nothing new by rule for {counted(len(without), noun)}, such as {without[0]}: rules "
            "are for English questions (language en); a model (--model) rewrites others"
        )
    file = write_proposals(options.out, drafts)
    size = f"{len(with_some)} of {counted(len(bases), noun)}"
    shown = [f"{file or 'no file'}: {counted(len(drafts), 'proposal')} for {size}"]
    edits = Counter(one["edit"] for one in drafts if one["source"] == RULE)
    if edits:
        shown.append(f"by rule: {', '.join(f'{name} {count}' for name, count in edits.items())}")
    reasons = dict(Counter(refused["reason"]).most_common())
    if reasons:
        texts = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        shown.append(f"refused: {counted(refused.height, 'text')} ({texts})")
    if file:
        then = f"Then: consilience suite import {shlex.quote(str(file))} --into FOLDER"
        if is_question:
            into = shlex.quote(options.suite)
            if columns := columns_of(options.columns):
                named = ",".join(f"{name}={source}" for name, source in columns.items())
                into += f" --columns {shlex.quote(named)}"
            then = f"Then copy the others to {into}: further phrasings of their items."
        read = "Read the file, and write no in the column accept of what should not join."
        shown += [read, then]
    tables = {"proposals": pl.DataFrame(drafts, infer_schema_length=None), "refusals": refused}
    record = {"settings": settings, "versions": versions()}
    facts = {"run": record, "file": str(file or ""), "refused": reasons}
    return Output(tables, shown, cautions=notes, facts=facts)
