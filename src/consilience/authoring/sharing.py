"""A suite by its name: listed, made, fetched, checked, counted."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import polars as pl

from consilience import suites
from consilience.authoring.checks import CHECKS, ISSUES, audit
from consilience.core.errors import Progress, SuiteKind, unknown_name
from consilience.core.factors import Edge
from consilience.core.text import counted, spread
from consilience.files.write import make_folder, path_of, refuse_occupied, write_whole
from consilience.metrics.statistics import NAN
from consilience.report.export import Output
from consilience.report.table import Column, Columns, Table, Value, frame_table
from consilience.suites.known import KNOWN
from consilience.suites.layouts import fetch
from consilience.suites.pairs import is_task, load_task
from consilience.suites.question_suites import (
    BUNDLED,
    QUESTION_SUITES,
    SUITE_NAMES,
    columns_of,
)
from consilience.suites.questions import Questions
from consilience.types import Relation, Suite

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


SHOWN = 5  # groups of one check
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
        first = found.filter(pl.int_range(pl.len()).over("check") < SHOWN)
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
    (``variants``). ``majority``: the share of the most frequent object, or of the most frequent
    position of the right option. ``shared_objects``: those with several subjects, which do not
    follow from the object. A column ``diff_...`` or ``no_change`` counts pairs by kind of edit.
    """
    rows: list[dict[str, Any]] = []
    if isinstance(suite, Questions):
        for name, items in suite.groups.items():
            phrasings, options = ([*of] for of in zip(
                *((item.phrasings, len(item.options)) for item in items), strict=True))  # fmt: skip
            positions = Counter(item.gold_position for item in items if item.options)
            rows.append({
                "group": name, "questions": len(items), "phrasings": spread(phrasings),
                "options": spread(options) if any(options) else "open",
                "majority": max(positions.values(), default=NAN) / (positions.total() or 1),
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
        [name.replace("_", " "), f"{count:,}" if isinstance(count, int) else count]
        for name, count in table1.items()
    ]
    columns = [Column(""), Column("", "number", digits=2)]
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
    return fetch(name, suites.data_dir(None if data is None else Path(data)))[0]


def suite_stats(suite: str | Path | Suite | Questions) -> Output:
    """Count what a suite holds: relations, patterns, facts and candidates; or questions."""
    return sizes_of(suites.load_any(suite))


def suite_cautions(suite: str | Path | Suite | Questions) -> pl.DataFrame:
    """What is no error but decides what a suite's numbers mean: a row for each check and group."""
    return audit(suites.load_any(suite))
