"""How patterns are compared, and the checks: what may be wrong with a suite."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from consilience.core.patterns import Pattern
from consilience.core.text import WITHOUT_SPACES, fold_case, whole_words
from consilience.plans.references import references_of
from consilience.suites.question_suites import FEW_TO_BALANCE
from consilience.suites.questions import Questions, normal
from consilience.types import Fact, Relation, Suite

TOKEN = re.compile(rf"\[[xy]\]|[{WITHOUT_SPACES}]|[^\s{WITHOUT_SPACES}]+")
"""A slot, a character of a script without spaces, or a word."""

SLOTS = ("[x]", "[y]")


def sentence(relation: Relation, pattern: Pattern, fact: Fact) -> str:
    """The sentence that a fact makes of a pattern."""
    query = relation.query(pattern, fact)
    return pattern.fill(query.subject, query.gold)


@lru_cache(maxsize=4096)
def normal_form(pattern: str) -> str:
    """A pattern or a phrasing without what duplicates may differ in: case, spaces, punctuation.

    Unicode is composed (NFC) and case folded. Each run of spaces and punctuation is one space,
    marks of direction go, and slots are words.
    """
    words = []
    for part in re.split(r"(\[[xy]\])", fold_case(unicodedata.normalize("NFC", pattern))):
        kinds = [unicodedata.category(sign) for sign in part]
        signs = zip(part, kinds, strict=True)
        plain = "".join(" " if kind[0] in "PZ" else sign for sign, kind in signs if kind != "Cf")
        words.append(part if part in SLOTS else plain)
    return " ".join(" ".join(words).split())


@lru_cache(maxsize=4096)
def tokens_of(pattern: str) -> tuple[str, ...]:
    """The tokens of a pattern in ``normal_form``: words and slots."""
    return tuple(TOKEN.findall(normal_form(pattern)))


def has_words(pattern: str) -> bool:
    """Whether a pattern has a letter besides its slots; one without says nothing."""
    return any(sign.isalpha() for sign in pattern.replace("[X]", "").replace("[Y]", ""))


def contains(text: str, part: str) -> bool:
    """Whether a part is in a text as whole words; case does not matter."""
    text, part = fold_case(text), fold_case(part)
    return part in text and whole_words(part).search(text) is not None


APOSTROPHES = str.maketrans("\u2018\u2019\u02bc`", "''''")


def one_spelling(name: str) -> str:
    """A name without case and repeated spaces, with straight apostrophes, in Unicode form NFC."""
    folded = fold_case(unicodedata.normalize("NFC", name)).translate(APOSTROPHES)
    return " ".join(folded.split())


SPACE_FAULT = r"\s{2,}|[^\S ]|^\s|\s$|\s[.,](?:\s|$)"
"""A doubled space, a space that is no plain one, one at an end, and one before a stop or comma."""

c = pl.col


def several(column: str, *keys: str) -> pl.Expr:
    """Whether a row has others with the same keys and another value in a column."""
    return c(column).n_unique().over(keys) > 1


@dataclass(frozen=True, slots=True)
class Check:
    """A kind of fault: the rows of a frame of a suite (``frames_of``) for which ``is_wrong``."""

    about: str  # What it looks for
    todo: str
    frame: str
    is_wrong: pl.Expr
    together: Sequence[str] = ()  # Columns whose values are the same in rows of one fault


CHECKS = {
    "several_golds": Check(
        "several golds of one subject in an N-1 relation, or of one question with its options",
        "Keep one of them, or make the relation N-M.",
        "items", c("has_one_gold") & several("gold", "group", "asked", "options"),
        ("asked", "options"),
    ),
    "duplicate_items": Check(
        "facts or questions that ask the same and have the same gold",
        "Remove all but one, or make one question of them: rows with the same item are phrasings.",
        "items", several("item", "group", "asked", "gold"), ("asked", "gold"),
    ),
    "object_in_subject": Check(
        "subjects that contain their object",
        "Report them apart, or leave them out: the answer can be copied.", "items", c("is_copied"),
    ),
    "same_spelling": Check(
        "subjects, objects or options that differ only in case, spaces, apostrophes or Unicode",
        "Write one name in one way.", "names", several("name", "group", "owner", "text"),
        ("owner", "text"),
    ),
    "spaces": Check(
        "doubled spaces, spaces at an end of a pattern, or before a full stop or comma",
        "Write single spaces.", "variants", c("is_pattern") & c("text").str.contains(SPACE_FAULT),
    ),
    "duplicate_variants": Check(
        "patterns that differ only in case, spaces or punctuation, phrasings in punctuation",
        "Remove one of the two.", "variants", several("spelling", "group", "owner", "plain"),
        ("owner", "plain"),
    ),
    "single_variant": Check(
        "relations with one pattern and questions with one phrasing, which have no consistency",
        "Add patterns or phrasings, or vary other factors (docs/factors.md).",
        "variants", pl.len().over("group", "owner") == 1,
    ),
    "few_for_causal_models": Check(
        "relations with fewer than two patterns that end after [Y]: nothing to compare for a "
        "causal model",
        "Add patterns that end in [Y], or measure causal models on other relations.",
        "variants",
        ~c("is_last") & (c("is_last").sum().over("owner") < 2) & (pl.len().over("owner") > 1),
    ),
    "same_names": Check(
        "patterns in another language whose subjects and objects all have the same names in it",
        "Add columns such as object_de where a name differs (docs/suites.md).",
        "variants", c("has_same_names"),
    ),
    "options_differ": Check(
        "groups whose questions have different numbers of options, which are chosen at other rates",
        "Give all questions of a group as many options.", "items", several("size", "group"),
    ),
    "speaking_options": Check(
        "options that speak of others, such as *All of the above*: not every order can be asked",
        "Correct it with a column `pin` (docs/factors.md) where that is not meant.",
        "items", c("is_speaking"),
    ),
    "gold_position": Check(
        "groups whose right answers are all at the same position",
        "Use `distractors` in place of `options`: their order is drawn.",
        "items",
        c("place").is_not_null() & (
            (~several("place", "group") & (c("item").n_unique().over("group") >= FEW_TO_BALANCE))
            | ((c("place").n_unique() == 1) & (c("item").n_unique() >= FEW_TO_BALANCE))
        ),
    ),
}  # fmt: skip
"""The checks of ``suite check``. A row here is a whole check."""


Rows = list[dict[str, object]]


def frames_of(suite: Suite | Questions) -> dict[str, pl.DataFrame]:
    """The items, the variants and the names of a suite, a row each; ``seen``: what people see.

    A question has a row for each of its phrasings among the items, too.
    """
    rows = _question_rows(suite) if isinstance(suite, Questions) else _fact_rows(suite)
    frames = (pl.DataFrame(of_frame, infer_schema_length=None) for of_frame in rows)
    return dict(zip(("items", "variants", "names"), frames, strict=True))


def _question_rows(questions: Questions) -> tuple[Rows, Rows, Rows]:
    items, variants, names = Rows(), Rows(), Rows()
    for one in questions.items:
        texts = [text for of_language in one.paraphrases.values() for text in of_language]
        owner = {"group": one.group, "owner": one.item}
        known = references_of(one)
        item = {
            "group": one.group, "item": one.item, "seen": f"'{texts[0]}' (item {one.item})",
            "gold": normal(one.gold.text), "has_one_gold": True, "is_copied": False,
            "options": "\n".join(sorted(option.text for option in one.options)),
            "size": len(one.options), "place": one.gold_position if one.options else None,
            "is_speaking": bool(known.speaking or known.named),
        }  # fmt: skip
        for text in texts:
            items.append({**item, "asked": f"{normal(text)}\n{normal(one.context)}"})
            variants.append({
                **owner, "seen": f"'{text}' (item {one.item})", "text": text, "is_pattern": False,
                "plain": normal_form(text), "spelling": normal(text), "is_last": True,
                "has_same_names": False,
            })  # fmt: skip
        for option in one.options:
            row = {**owner, "seen": f"'{option.text}' (item {one.item})", "name": option.text}
            names += [{**row, "text": text} for text in {*map(one_spelling, option.texts)}]
    return items, variants, names


def _fact_rows(suite: Suite) -> tuple[Rows, Rows, Rows]:
    items, variants, names = Rows(), Rows(), Rows()
    for relation in suite:
        group = {"group": relation.id}
        is_one = relation.cardinality == "N-1"
        items += [
            {**group, "item": fact.item, "seen": f"'{fact.subject}', '{fact.object}'",
             "asked": fact.subject, "gold": fact.object, "has_one_gold": is_one,
             "is_copied": contains(*fact.names), "options": "", "size": 0, "place": None,
             "is_speaking": False}
            for fact in relation.facts
        ]  # fmt: skip
        words = [name for fact in relation.facts for name in fact.names]
        for one in relation.patterns:
            written = [relation.written(name, one.language) for name in words]
            variants.append({
                **group, "owner": relation.id, "seen": f"'{one.text}'", "text": one.text,
                "is_pattern": True, "plain": normal_form(one.text), "spelling": one.text,
                "is_last": one.object_last,
                "has_same_names": one.language != suite.language and written == words,
            })  # fmt: skip
        for role, of_role in (("object", relation.candidates.words), ("subject", words[::2])):
            names += [
                {**group, "owner": role, "seen": f"'{name}'", "name": name,
                 "text": one_spelling(name)}
                for name in dict.fromkeys(of_role)
            ]  # fmt: skip
    return items, variants, names


SHOWN = 3  # rows of one fault
ISSUES = {
    "check": pl.String, "group": pl.String, "example": pl.String, "count": pl.Int64,
    "todo": pl.String,
}  # fmt: skip


def audit(suite: Suite | Questions) -> pl.DataFrame:
    """A row for each check and group in which it finds something: how many, and the first."""
    frames, found = frames_of(suite), []
    for name, check in CHECKS.items():
        frame = frames[check.frame]
        if frame.is_empty():
            continue
        rows = frame.filter(check.is_wrong)
        for (group,), of_group in rows.group_by("group", maintain_order=True):
            first = of_group.head(1)
            if check.together:
                first = of_group.join(first, on=check.together, how="semi", maintain_order="left")
            example = "; ".join(first["seen"].unique(maintain_order=True).head(SHOWN))
            count = of_group["item"].n_unique() if "item" in of_group.columns else len(of_group)
            found.append((name, group, example, count, check.todo))
    return pl.DataFrame(found, ISSUES, orient="row")
