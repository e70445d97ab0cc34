"""Cautions: what a reader must know before the numbers mean anything, a function each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from consilience.core.errors import Protocol
from consilience.core.schemas import NOISE_FLOOR
from consilience.core.text import counted, listed, truncated
from consilience.metrics.measure import NEARLY_CONSTANT, CheckedAnswers, constant_groups
from consilience.metrics.registry import headline_metrics, label_of, within
from consilience.metrics.statistics import FEW, smallest_p
from consilience.runs.run import Run
from consilience.types import Suite

SHOWN = 3  # Cautions that are shown at once, the most important first
FEWEST_DISAGREEMENTS = 20
"""Disagreements expected by chance, items times 1 - chance, from which corrected consistency is
unbiased within 1 point and its interval right (``docs/statistics.md``)."""

LONGEST_WRITTEN = 40  # Characters of a written answer
ALONE = "This alone can change the numbers."
QUERY = ("group", "item", "variant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a run, or of runs that are compared; what is not known is no caution."""

    suite: Suite  # Its protocol is that of counting
    is_finished: bool = True
    asked_by: Protocol | None = None  # The protocol that the run was asked under
    answers: CheckedAnswers | None = None
    metrics: pl.DataFrame | None = None  # The metrics table, with the noise floor

    # Of runs that are compared, the first one first:
    runs: Sequence[Run] = ()
    compared: pl.DataFrame | None = None  # ``COMPARISON_SCHEMA``
    common: pl.DataFrame | None = None  # The queries that all have: ``QUERY``
    queries: Mapping[str, int] = field(default_factory=dict)  # How many each run has, by label
    floors: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The noise floors that runs measured, by label: rows of the metrics table."""


def cautions(known: Known) -> list[str]:
    """The cautions on what is known, the most important first."""
    return [
        f"{text} (docs/{page})" for caution, page in CAUTIONS.items() for text in caution(known)
    ]


def ranked(notes: Iterable[str]) -> list[str]:
    """Cautions by the place of their page in ``CAUTIONS``, each once; then other notes."""
    pages = [*dict.fromkeys(CAUTIONS.values())]
    places = {f"(docs/{page})": at for at, page in enumerate(pages)}
    return sorted(
        dict.fromkeys(notes), key=lambda note: places.get(note[note.rfind("(") :], len(pages))
    )


def by_run(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """Notes with the names of their runs; a note of several runs is given once."""
    runs_of: dict[str, list[str]] = {}
    for name, own in notes.items():
        for note in dict.fromkeys(own):
            runs_of.setdefault(note, []).append(name)
    leads = {note: f"{', '.join(names)}: " for note, names in runs_of.items()}
    leads |= {note: "All runs: " for note, names in runs_of.items() if len(names) == len(notes)}
    return ranked(leads[note] * (len(notes) > 1) + note for note in runs_of)


def _unfinished(known: Known) -> Iterator[str]:
    if not known.is_finished:
        what = "the numbers cover the answers so far. To resume, repeat the run's command"
        yield f"Not finished: {what}."


def _unanswered(known: Known) -> Iterator[str]:
    """Groups without an answer; queries that were left out, and queries without an answer."""
    if known.answers is None:
        return
    words, present = known.suite.words, {group.id for group in known.answers.relations}
    absent = [group.id for group in known.suite if group.id not in present]
    if absent:
        whole = counted(len(known.suite), words.group)
        yield f"{len(absent)} of {whole} ({listed(absent)}) have no answers at all."
    rows = known.answers.coded
    without = rows.filter(pl.col("answer").is_null()).sort("group", "item", "variant_index")
    is_left_out = pl.col("excluded").is_not_null()
    for what, lacking, reason in (
        ("were not asked and are in no number", without.filter(is_left_out), "excluded"),
        ("have no answer and count as wrong", without.filter(~is_left_out), "error"),
    ):
        if lacking.is_empty():
            continue
        sizes = lacking["group"].value_counts().sort("count", "group", descending=[True, False])
        groups = listed([f"{size:,} in {group}" for group, size in sizes.rows()])
        first = lacking.drop_nulls(reason)[:1] if reason in lacking.columns else lacking[:0]
        example = "".join(
            f"; for example {of['item']}: {str(of[reason]).rstrip('.')}" for of in first.to_dicts()
        )
        yield f"{lacking.height:,} of {rows.height:,} queries ({groups}) {what}{example}."


def _constant(known: Known) -> Iterator[str]:
    """Groups in which nearly all answers are identical."""
    groups = [] if known.metrics is None else constant_groups(known.metrics)
    if groups:
        words = known.suite.words
        by_option = all(known.suite[group].design.by_option for group in groups)
        same = "the option in the same place" if by_option else f"the same {words.answer}"
        yield (
            f"In {len(groups)} of {counted(len(known.suite), words.group)} over "
            f"{NEARLY_CONSTANT * 100:.0f} % of the answers are {same}. Consistency says little "
            "there: read the chance-corrected one."
        )


def _unlike(known: Known) -> Iterator[str]:
    """Another protocol than a run was asked under; candidates and prompts that differ."""
    counted_by = known.suite.protocol
    asked = {"The run": known.asked_by} | {run.label: run.protocol for run in known.runs[1:]}
    for label, by in asked.items():
        if by not in (None, counted_by):
            what = f"was asked under the protocol {by} and is counted by {counted_by}"
            yield f"{label} {what}. {ALONE}"
    for run in known.runs[1:]:
        if known.suite.words.has_means:
            yield from _other_candidates(run, known.runs[0])
        if known.common is not None:
            yield from _other_prompts(run, known.runs[0], known.common)


def _other_candidates(run: Run, first: Run) -> Iterator[str]:
    """How many relations have another number of candidates in a run than in the first."""
    if not all("n_candidates" in one.answers.columns for one in (run, first)):
        return
    known = (one.answers.drop_nulls(["answer", "n_candidates"]) for one in (run, first))
    most = pl.col("n_candidates").max()
    here, there = (of.group_by("group", maintain_order=True).agg(most) for of in known)
    both = here.join(there, on="group", maintain_order="left")
    differ = both.filter(pl.col("n_candidates") != pl.col("n_candidates_right"))
    for group, *sizes in differ.head(1).rows():
        relations = f"{differ.height} of {counted(both.height, 'relation')}"
        yield (
            f"{run.label} and {first.label} chose from different numbers of answers in "
            f"{relations} (for example {group}: {sizes[0]:,} and {sizes[1]:,}; ask both with "
            f"--candidates pieces). {ALONE}"
        )


def _other_prompts(run: Run, first: Run, common: pl.DataFrame) -> Iterator[str]:
    """How many prompts differ between two runs, where some do and some do not."""
    if run.settings.get("queries") == first.settings.get("queries"):
        return
    joined = common.select(QUERY)
    for one in (first, run):
        queries = one.queries.select(*QUERY, "input")
        joined = joined.join(queries, on=QUERY)
    differ = joined.filter(pl.col("input") != pl.col("input_right")).height
    if 0 < differ < joined.height:
        of_all = f"{differ:,} of {joined.height:,} prompts"
        yield f"{of_all} differ between {first.label} and {run.label}. {ALONE}"


def _part(known: Known) -> Iterator[str]:
    """Queries that only some of the runs have."""
    common, sizes, word = known.common, known.queries, known.suite.words.item
    if common is not None and any(size != common.height for size in sizes.values()):
        items = common.select(QUERY[:2]).n_unique()
        compared = f"{counted(common.height, 'query', 'queries')} ({counted(items, word)})"
        of_runs = ", ".join(f"{size:,} in {label}" for label, size in sizes.items())
        yield f"Compared on the {compared} that all runs have, of {of_runs}."


def _unmatched(known: Known) -> Iterator[str]:
    """Written answers that are no option, or of open questions not the right answer."""
    answers = pl.DataFrame() if known.answers is None else known.answers.answers
    designs = {group.id: group.design for group in known.suite}
    closed = [name for name, of in designs.items() if of.labels or of.unit != "item"]
    if {"text", "unmatched"} <= set(answers.columns):
        written, is_none = answers.drop_nulls("text"), pl.col("unmatched").is_not_null()
    elif {"answer", "option", "option_scores"} <= set(answers.columns):  # one that a server chose
        written = answers.drop_nulls("answer").filter(pl.col("option_scores").is_null())
        written, is_none = written.rename({"answer": "text"}), pl.col("option").is_null()
    else:
        return
    written = written.filter(pl.col("group").is_in(closed))
    texts = Counter(text.strip() for text in written.filter(is_none)["text"])
    if texts:
        common = [
            f"'{truncated(text, LONGEST_WRITTEN)}' ({n:,})" for text, n in texts.most_common(3)
        ]
        yield (
            f"{texts.total():,} of {counted(written.height, 'written answer')} "
            f"({100 * texts.total() / written.height:.1f} %) match no option and count as wrong; "
            f"most often {', '.join(common)}. Where they name one, read them by another rule "
            "(--match); where they are cut, ask with --generate --max-new-tokens 500."
        )


def _few_items(known: Known) -> Iterator[str]:
    """So few disagreements expected by chance that a number above chance is biased downwards."""
    if known.metrics is None or constant_groups(known.metrics):
        return
    of_groups = known.metrics.filter(over="group", kind="whole")
    items = of_groups.filter(metric="accuracy").select("group", "n")
    chance = of_groups.filter(pl.col("value").is_not_nan(), metric="chance_consistency")
    both = chance.join(items, on="group", suffix="_items")
    count = int(both["n_items"].sum())
    expected = float((both["n_items"] * (1 - both["value"])).sum())
    if 0 < expected < FEWEST_DISAGREEMENTS:
        enough = math.ceil(FEWEST_DISAGREEMENTS * count / expected / 10) * 10
        yield (
            f"With {counted(count, known.suite.words.item)} the chance-corrected consistency often "
            f"comes out too low; about {enough} like these are needed."
        )


def _few_groups(known: Known) -> Iterator[str]:
    """Means over so few relations that p cannot be below 0.05; questions are counted one by one."""
    if known.compared is None or known.suite.words.over != "mean":
        return
    is_few = pl.col("n").is_between(2, FEW - 1) & pl.col("metric").is_in(headline_metrics())
    few = known.compared.filter(is_few, over="mean", kind="whole")
    for (size,), rows in few.group_by("n", maintain_order=True):
        names = [within(label_of(name)) for name in rows["metric"].unique(maintain_order=True)]
        yield (
            f"No test can show a difference in {listed(names)}: with means over {size} relations, "
            f"p is at least {smallest_p(size):.3g}. Compare single relations."
        )


def _noise(known: Known) -> Iterator[str]:
    """The answers that changed when they were asked again, of the run with most."""
    floors = dict(known.floors)
    if known.metrics is not None:
        measured = known.metrics.filter(pl.col("n") > 0, metric=NOISE_FLOOR)
        floors |= zip(["the model"], measured.head(1).to_dicts(), strict=False)
    changed_any = {name: of for name, of in floors.items() if of["value"] > 0}
    for name, floor in sorted(changed_any.items(), key=lambda of: -of[1]["value"])[:1]:
        share = f"{100 * floor['value']:.1f} %"
        changed = f"{round(floor['value'] * floor['n'])} of {floor['n']} answers ({share})"
        what = f"Asked the same prompts again, {name} changed {changed}"
        yield f"{what}: differences between runs that are this small may be noise."


CAUTIONS: Mapping[Callable[[Known], Iterable[str]], str] = {
    _unfinished: "cli.md",
    _unanswered: "metrics.md",
    _constant: "numbers.md",
    _unlike: "compare.md",
    _part: "compare.md",
    _unmatched: "free-text.md",
    _few_items: "statistics.md",
    _few_groups: "statistics.md",
    _noise: "models.md",
}
"""All cautions, the most important first: what yields their sentences, and the page on them."""
