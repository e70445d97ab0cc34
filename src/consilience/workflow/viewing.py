"""What a report shows of one run: its answers counted for the page."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from consilience.analysis.examples import KINDS, about, examples, violated_examples, with_prompts
from consilience.analysis.patterns import (
    annotated_kinds,
    edit_table,
    form_tables,
    item_table,
    pair_table,
    pattern_table,
    with_changes,
)
from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.factors import ORIGINAL
from consilience.files.read import read_csv
from consilience.files.write import texts_of
from consilience.metrics.counts import Prepared, is_blank
from consilience.metrics.measure import measure
from consilience.report.run_view import BLANK, FactView, PairView, RunView
from consilience.results.analyses import correlations_of, drawing_of, factor_views
from consilience.runs.run import Run
from consilience.types import FACT_WORDS, Suite
from consilience.workflow.counting import count_run, record_notes
from consilience.workflow.suite import any_suite_of, protocol_notes, suite_notes, task_of_run

EXAMPLES = 3
"""Examples of each kind."""

DRAWN = 30
"""Facts in the drawing of a run's vectors, as in ParaRel's Figure 3."""


def fact_view(
    run: Run, seeds: Sequence[Prepared], protocol: Protocol, seed: int, whole: Suite
) -> RunView:
    """What the page shows of a run on facts.

    Numbers of several seeds are averaged. The spread over facts counts the facts of all seeds;
    examples are those of the first seed.
    """
    table, suite = seeds[0], seeds[0].suite
    by_other = pl.DataFrame()
    if suite.words is FACT_WORDS:
        other: Protocol = "strict" if protocol == "published" else "published"
        by_other = measure(seeds, suite, other, seed)
        for prepared in seeds:
            prepared.forget(other)
    counted = count_run(run, suite, protocol, seed, seeds)
    pairs = pair_table(seeds, suite, protocol, seed)
    prompts = {row[:3]: row[3] for row in run.prompts.iter_rows()}
    of_items = {key[1:]: text for key, text in prompts.items()}
    chosen = examples(table, suite, list(KINDS), EXAMPLES)
    if run.is_of_questions:
        chosen = with_prompts(chosen, run.seeds[0].answers, of_items)
    else:
        items = {(one.group, one.item) for of_kind in chosen.values() for one in of_kind}
        prompts = _filled(suite, items)
    vectors, drawing = _vectors(run, counted.metrics, seed)
    facts = FactView(
        protocol=protocol,
        by_other=by_other,
        patterns=with_changes(pattern_table(seeds, suite, protocol), pairs),
        pairs=pairs,
        edits=edit_table(seeds, suite, protocol, annotated_kinds(suite), seed),
        items=pl.concat(item_table(one, suite, protocol) for one in seeds),
        examples={about(kind): of_kind for kind, of_kind in chosen.items()},
        excluded=_without_answer(pl.concat([one.answers for one in seeds])),
        prompts=prompts,
        violations=violated_examples(table.instances, of_items, EXAMPLES),
        vectors=vectors,
        drawing=drawing,
    )
    warnings = [
        *suite_notes(run, whole),
        *record_notes(run),
        *counted.notes,
        *protocol_notes(run, protocol),
    ]
    return RunView(
        name=run.label,
        records=[part.record for part in run.seeds if part.record],
        suite=suite,
        metrics=counted.metrics,
        summary=counted.summary,
        baseline=counted.baseline,
        warnings=list(dict.fromkeys(warnings)),
        facts=facts,
        factors=factor_views(run, seed=seed) if run.is_of_questions and run.varies else (),
    )


def shown_texts(
    run: Run, suite: Suite, items: Set[tuple[str, str]]
) -> dict[tuple[str, str, str], str]:
    """What a person reads of items in their variants, by group, item and variant.

    Of questions what was sent, of facts the filled pattern, and of sentence pairs the two texts of
    each form that changed the answer. Empty where the run did not keep it. ``run``: of one seed.
    """
    if run.is_of_questions:
        return {row[:3]: row[3] for row in run.prompts.iter_rows() if row[:2] in items}
    if not run.is_of_pairs:
        return _filled(suite, items)
    texts = {}
    for row in _changed_answers(run.path).iter_rows(named=True):
        group, item = row["group"], row["item"]
        if (group, item) in items:
            texts[group, item, ORIGINAL] = f"{row['original_1']}\n{row['original_2']}"
            texts[group, item, row["perturbation"]] = f"{row['text_1']}\n{row['text_2']}"
    return texts


def _filled(suite: Suite, items: Set[tuple[str, str]]) -> dict[tuple[str, str, str], str]:
    """The patterns of items with the subject as it was asked, in its language and form."""
    filled = {}
    for relation in suite:
        facts = [fact for fact in relation.facts if (relation.id, fact.item) in items]
        for fact, pattern in product(facts, relation.patterns):
            text = pattern.fill_blank(relation.query(pattern, fact).subject, BLANK)
            prefix = f"{pattern.form}: " if pattern.form else ""
            filled[relation.id, fact.item, pattern.name] = prefix + text
    return filled


def _without_answer(answers: pl.DataFrame) -> pl.DataFrame:
    """How many queries have no answer, by relation and reason: ``group, excluded, len``."""
    is_known = "excluded" in answers.columns
    reason = pl.col("excluded") if is_known else pl.lit(None, pl.String)
    blank = answers.filter(is_blank()).with_columns(excluded=reason.fill_null("no answer"))
    return blank.group_by("group", "excluded", maintain_order=True).len()


def _vectors(run: Run, metrics: pl.DataFrame, seed: int) -> tuple[pl.DataFrame | None, Any]:
    """The clusters of a run of `analyze representations`, and the vectors of one relation drawn."""
    if not (run.path / "clusters.csv").is_file():
        return None, None
    clusters = texts_of(read_csv(run.path / "clusters.csv"))
    drawn = str(clusters["relation"][0])
    drawing = drawing_of(run.path, drawn, DRAWN, "subject", f"{run.label}: {drawn}", seed)
    return correlations_of(metrics, clusters), drawing


def pair_view(run: Run, seed: int) -> RunView:
    """What the page shows of a run on sentence pairs, of one seed or several."""
    suite, protocol = any_suite_of(run, None, None, None)
    counted = count_run(run, suite, protocol, seed)
    agreement, forms = form_tables([part.answers for part in run.seeds], suite)
    return RunView(
        name=run.label,
        records=[part.record for part in run.seeds],
        suite=suite,
        metrics=counted.metrics,
        summary=counted.summary,
        baseline=counted.baseline,
        warnings=list(
            dict.fromkeys([*suite_notes(run, suite), *record_notes(run), *counted.notes])
        ),
        pairs=PairView(
            task_of_run(run), _changed_answers(run.path), counted.changes, agreement, forms
        ),
    )


def _changed_answers(run: Path) -> pl.DataFrame:
    """The answers that a form changed; those of one seed are in the folder of all seeds."""
    for folder, seed in ((run, None), (run.resolve().parent, run.resolve().name)):
        file = folder / "inconsistent.csv"
        if file.is_file():
            changed = texts_of(read_csv(file, infer_schema=False))
            if seed is None:
                return changed
            if seed in {part.name for part in folder.glob("seed-*")}:
                return changed.filter(pl.col("seed") == seed)
    raise ConsilienceError(
        "no inconsistent.csv",
        where=str(run),
        todo="Of one seed it is in the folder of all seeds. Rerun the same `consilience probe` "
        "command to finish an interrupted run.",
    )
