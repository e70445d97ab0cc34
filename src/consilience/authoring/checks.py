"""Suites by their names: made, fetched, checked, counted."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast, get_args

import polars as pl

from consilience import suites
from consilience.core.errors import Progress, SuiteKind, unknown_name
from consilience.core.factors import Edge
from consilience.core.items import Pattern
from consilience.core.text import WITHOUT_SPACES, counted, fold_case, spread, whole_words
from consilience.files.write import make_folder, path_of, refuse_occupied, write_whole
from consilience.metrics.statistics import NAN
from consilience.plans.presentation import references_of
from consilience.report.table import Column, Columns, Output, Table, Value, frame_table
from consilience.suites.facts import fetch
from consilience.suites.pairs import is_task, load_task
from consilience.suites.question_suites import (
    BUNDLED,
    FEW_TO_BALANCE,
    KNOWN,
    QUESTION_SUITES,
    SUITE_NAMES,
    columns_of,
)
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


SHOWN_SEEN = 3  # rows of one fault
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
            example = "; ".join(first["seen"].unique(maintain_order=True).head(SHOWN_SEEN))
            count = of_group["item"].n_unique() if "item" in of_group.columns else len(of_group)
            found.append((name, group, example, count, check.todo))
    return pl.DataFrame(found, ISSUES, orient="row")


EXAMPLES = Path(__file__).parent / "examples"


def new_suite(folder: str | Path, *, kind: SuiteKind = "questions") -> list[Path]:
    """Write an example of questions, facts or texts for a judge into a new folder; its files."""
    if kind not in get_args(SuiteKind):
        raise unknown_name(f"the kind '{kind}'", kind, get_args(SuiteKind))
    target = path_of(folder, "the folder of the suite")
    refuse_occupied(target)
    make_folder(target)
    files = []
    for source in sorted((EXAMPLES / kind).iterdir()):
        files.append(target / source.name)
        write_whole(files[-1], source.read_bytes())
    return files


def listed_suites() -> Output:
    """The names of suites, and their folders."""
    data = suites.data_dir()
    rows = []
    for name, about in SUITE_NAMES.items():
        folder = BUNDLED.get("mini" if name in QUESTION_SUITES else name, data / name)
        place = str(folder) if folder.is_dir() else None
        rows.append({"suite": name, "about": about, "folder": place})
    width = max(map(len, SUITE_NAMES))
    on_hub = {name: f"Hub: {row.dataset}@{row.revision[:7]}" for name, row in KNOWN.items()}
    lines = [
        f"{row['suite']:{width}} {row['about']}\n{'':{width}} "
        f"{row['folder'] or on_hub.get(str(row['suite'])) or f'not in {data}'}"
        for row in rows
    ]
    return Output({"suites": pl.DataFrame(rows)}, lines)


def made_suite(folder: Path, kind: SuiteKind) -> Output:
    """The example of a suite in a new folder, and what to do next."""
    files, named = new_suite(folder, kind=kind), shlex.quote(str(folder))
    lines = [
        f"{folder}: {', '.join(file.name for file in files)}",
        f"Edit:  {next(file for file in files if file.suffix != '.md')}",
        f"Check: consilience suite check {named}",
        f"Ask:   consilience probe --suite {named}",
    ]
    facts = {"folder": str(folder), "files": [str(file) for file in files]}
    return Output(shown=lines, facts=facts)


def fetched_suite(name: str, data_dir: Path | None, progress: Progress) -> Output:
    """The folder of a suite that was downloaded."""
    data = suites.data_dir(data_dir)
    with progress.steps(f"fetching {name}", None, "files") as advance:
        learning = cast(Callable[[int, int], None], advance)  # which learns the total
        folder, fetched = fetch(name, data, learning)
    facts = {"suite": name, "folder": str(folder), "fetched": fetched}
    return Output(shown=[f"{folder}: complete, {fetched} files fetched"], facts=facts)


SHOWN_GROUPS = 5  # groups of one check
COLUMNS: Columns = {
    "check": Column("check"), "group": Column("group"), "example": Column("example"),
    "count": Column("number", "count"),
}  # fmt: skip


def checked_suite(suite: str, columns: Sequence[str] | None) -> Output:
    """Every error in the files of a suite; without any, what the checks find, and its sizes."""
    names = columns_of(columns)
    problems = [*map(str, suites.check_suite(suite, columns=names))]
    facts: dict[str, Any] = {"suite": suite, "problems": problems}
    if problems:
        total = f"{counted(len(problems), 'problem')} in '{suite}'"
        none = {"notes": pl.DataFrame(schema=ISSUES)}
        return Output(
            none, facts=facts, faults=[*(f"error: {one}" for one in problems), total], status=2
        )
    if is_task(suite):
        labels = ", ".join(load_task(suite).labels)
        size = f"a task of sentence pairs with the labels {labels}"
        return Output(shown=[f"{suite}: good; {size}"], facts=facts)
    chosen = suites.load_any(suite, columns=names)
    sizes, found = sizes_of(chosen), audit(chosen)
    shown = [*sizes.shown]
    if found.height:
        first = found.filter(pl.int_range(pl.len()).over("check") < SHOWN_GROUPS)
        notes = [
            f"{name}: {CHECKS[name].about}. {CHECKS[name].todo}"
            for name in first["check"].unique(maintain_order=True)
        ]
        notes += [f"{found.height - len(first)} more: --format csv"] * (found.height > len(first))
        shown.insert(0, frame_table(first, f"{suite}: notes", COLUMNS, notes))
    nouns = [("relations", "relation"), ("patterns", "pattern"), ("facts", "fact")]
    counts = dict(sizes.facts)
    if isinstance(chosen, Questions):
        counts["questions"] -= counts["open_questions"]
        nouns = [("groups", "group"), ("questions", "question with options")]
        nouns += [("open_questions", "open question"), ("phrasings", "phrasing")]
        nouns += [("expectations", "expectation")]
    plurals = {"question with options": "questions with options"}
    size = ", ".join(
        counted(int(counts[name]), noun, plurals.get(noun, ""))
        for name, noun in nouns if counts[name]
    )  # fmt: skip
    verdict = f"no problems, {counted(found.height, 'note')}" if found.height else "good"
    shown.append(f"{suite}: {verdict}; {size}")
    tables = {"notes": found, **sizes.tables}
    return Output(tables, shown, cautions=chosen.notes, facts={**facts, **sizes.facts})


# Sizes.


SIZES: Columns = {
    "relation": Column("relation"), "group": Column("group"), "cardinality": Column("kind"),
    "patterns": Column("patterns", "count"), "questions": Column("questions", "count"),
    "phrasings": Column("phrasings"), "options": Column("options"),
    "syntactic_variants": Column("syntax", "count"), "lexical_variants": Column("lexis", "count"),
    **{name: Column(name, "count") for name in ("facts", "subjects", "candidates")},
    "majority": Column("majority", "share"),
}  # fmt: skip


def variants(relation: Relation, changed: Callable[[Edge], bool]) -> float:
    """The number of kinds of patterns, where only edits that are ``changed`` make another kind.

    The number of connected components of the patterns when all pairs with other edges are joined.
    Over the 38 relations its means are Table 1's 4.74 (syntax) and 6.03 (lexical), 180/38 and
    229/38. NaN where the edges of several patterns are not known.
    """
    size = len(relation.patterns)
    if size > 1 and not relation.edges:
        return float("nan")
    joined = [pair for pair, edge in relation.edges.items() if not changed(edge)]
    places = ([first for first, _ in joined], [second for _, second in joined])
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components  # slow to import

    graph = coo_array(([1] * len(joined), places), shape=(size, size))
    return int(connected_components(graph, directed=False, return_labels=False))


def sizes_of(suite: Suite | Questions) -> Output:
    """The counts of a whole suite, and of each group; of facts those of ParaRel's Table 1, too.

    ``syntactic_variants``, ``lexical_variants``: kinds of patterns by syntax and by lemmas
    (``variants``). ``majority``: what ``baseline:majority`` gets right: the most frequent object,
    or of questions with equally many options the most frequent position. ``shared_objects``: those
    with several subjects, which do not follow from the object. A column ``diff_...`` or
    ``no_change`` counts pairs by kind of edit.
    """
    rows: list[dict[str, Any]] = []
    if isinstance(suite, Questions):
        for name, items in suite.groups.items():
            phrasings, options = ([*of] for of in zip(
                *((item.phrasings, len(item.options)) for item in items), strict=True))  # fmt: skip
            golds = Counter((len(of.options), of.gold_position) for of in items if of.options)
            most = {size: count for (size, _), count in reversed(golds.most_common())}
            rows.append({
                "group": name, "questions": len(items), "phrasings": spread(phrasings),
                "options": spread(options) if any(options) else "open",
                "majority": sum(most.values()) / golds.total() if golds else NAN,
            })  # fmt: skip
        counts = {
            "groups": len(rows), "questions": len(suite),
            "phrasings": sum(sum(map(len, one.paraphrases.values())) for one in suite.items),
            "languages": len(suite.languages), "expectations": len(suite.expectations),
            "open_questions": sum(not one.options for one in suite.items),
        }  # fmt: skip
        nouns = ("question", "phrasing", "expectation")
        sizes = ", ".join(counted(counts[f"{one}s"], one) for one in nouns if counts[f"{one}s"])
        by_group = pl.DataFrame(rows)
        shown: list[Table | str] = [
            frame_table(by_group, f"{suite.name}: {sizes}; majority in percent", SIZES)
        ]
        return Output({"by_group": by_group}, shown, facts=counts)
    for one in suite:
        pairs = {fact.names for fact in one.facts}
        subjects, objects = (Counter(names) for names in zip(*pairs, strict=True))
        rows.append({
            "relation": one.id, "label": one.label, "cardinality": one.cardinality,
            "patterns": len(one.patterns),
            "syntactic_variants": variants(one, lambda edge: edge.syntactic),
            "lexical_variants": variants(one, lambda edge: edge.lexical),
            "facts": len(one.facts), "subjects": len(subjects),
            "candidates": len(one.candidates.words),
            "majority": max(one.candidates.counts) / sum(one.candidates.counts),
            "shared_subjects": sum(count > 1 for count in subjects.values()),
            "shared_objects": sum(count > 1 for count in objects.values()),
            **Counter(edge.kind for edge in one.edges.values()),
        })  # fmt: skip
    patterns = [row["patterns"] for row in rows]
    table1 = {
        "relations": len(rows), "patterns": sum(patterns), "fewest_patterns": min(patterns),
        "most_patterns": max(patterns), "mean_patterns": sum(patterns) / len(rows),
        "mean_syntactic_variants": sum(row["syntactic_variants"] for row in rows) / len(rows),
        "mean_lexical_variants": sum(row["lexical_variants"] for row in rows) / len(rows),
        "facts": sum(row["facts"] for row in rows),
        "queries": sum(row["facts"] * row["patterns"] for row in rows),
    }  # fmt: skip
    lines: list[list[Value]] = [
        [name.replace("_", " "), f"{count:,}" if isinstance(count, int) else f"{count:.2f}"]
        for name, count in table1.items()
    ]
    columns = [Column(""), Column("", "number")]
    by_group = pl.DataFrame(rows, infer_schema_length=None).fill_null(0)
    title = f"{suite.name}: each relation; majority in percent"
    shown = [
        Table(f"{suite.name}, as in the paper's Table 1", columns, lines),
        frame_table(by_group, title, SIZES),
    ]
    return Output({"by_group": by_group}, shown, facts=table1)


def list_suites() -> dict[str, str]:
    """The suites that have a name, and what they are."""
    return dict(SUITE_NAMES)


def fetch_suite(name: str = "pararel", data: str | Path | None = None) -> Path:
    """Fetch a suite from its authors and check every file; the folder of the suite."""
    return fetch(name, suites.data_dir(data))[0]


def suite_stats(suite: str | Path | Suite | Questions) -> Output:
    """Count what a suite holds: relations, patterns, facts and candidates; or questions."""
    return sizes_of(suites.load_any(suite))


def suite_cautions(suite: str | Path | Suite | Questions) -> pl.DataFrame:
    """What is no error but decides what a suite's numbers mean: a row for each check and group."""
    return audit(suites.load_any(suite))
