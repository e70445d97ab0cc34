"""Measure tables of answers that were made elsewhere, and keep them as runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from consilience.ask_writing import notes_on_writing
from consilience.core.errors import ConsilienceError
from consilience.core.free_text import DEFAULT_RULE, DEFAULT_RULES, OPEN_RULE, RULES, rule_of
from consilience.core.provenance import git_revision, versions
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.core.text import counted as counted_text
from consilience.files.tables import LOG_PROBABILITIES, model_of_log
from consilience.metrics.counts import prepare, unknown_answers
from consilience.runs.folder import RunFolder, digest_of
from consilience.runs.run import EXPECTATIONS, QUESTIONS, TEXTS, Run, text_digests
from consilience.suites.facts import PATTERN_PERTURBATIONS, with_perturbed_patterns
from consilience.suites.pairs import generated_group, is_task, load_task, read_pairs, suite_of_task
from consilience.suites.perturbations import PERTURBATIONS, Perturbation, chosen
from consilience.suites.question_suites import (
    groups_of_questions,
    is_questions,
    load_questions,
    suite_of_questions,
)
from consilience.suites.questions import Questions
from consilience.workflow.counting import CountedRun, count_answers, count_run, save_counted
from consilience.workflow.probe_options import ProbeOptions, refuse_options
from consilience.workflow.question_answers import answers_to_questions
from consilience.workflow.question_design import columns_of
from consilience.workflow.question_setup import questions_of
from consilience.workflow.run_options import ScoreOptions
from consilience.workflow.run_settings import perturbation_settings
from consilience.workflow.scoring_answers import answers_to_facts, answers_to_pairs
from consilience.workflow.suite import source_of, suite_of

SHOWN = 5
"""Groups without a row that a note names."""


def score_table(run: Run, options: ScoreOptions, questions: Questions | None = None) -> CountedRun:
    """Measure a table of answers to the suite that the options name, or to ``questions``.

    A table with the column ``as_questions`` answers the facts of the suite as questions.
    """
    if questions is None and "as_questions" in run.answers.columns:
        questions = _facts_as_questions(run, options)
    if questions is not None or is_questions(options.suite or ""):
        return score_questions(run, options, questions)
    if is_task(options.suite or ""):
        return score_pairs(run, options)
    return score_facts(run, options)


def _facts_as_questions(run: Run, options: ScoreOptions) -> Questions | None:
    """The questions that the facts of the suite were asked as."""
    if is_questions(options.suite or "") or is_task(options.suite or ""):
        raise ConsilienceError(
            f"--suite {options.suite} with answers to facts that were asked as questions",
            expected="the suite of these facts, such as mini",
            where=str(options.answers),
        )
    row = run.answers.row(0, named=True)
    chosen = ProbeOptions(
        suite=options.suite or "",
        as_questions=int(row["as_questions"]),
        seed=int(row.get("seed", 0)),
        data_dir=options.data_dir,
    )
    return questions_of(chosen, None)


def score_facts(run: Run, options: ScoreOptions) -> CountedRun:
    """Measure a table of answers to facts; with ``--out`` it is kept as a run."""
    refuse_options(options, "facts", "a suite of facts")
    suite, protocol = suite_of(run, options.suite, options.protocol, options.data_dir)
    perturbations = _perturbations_in(run.answers, options.perturbations or ())
    suite = with_perturbed_patterns(suite, perturbations)
    rule = rule_of(options.match) if options.match else None
    answers = answers_to_facts(run.answers, suite, rule)
    table = prepare(answers, suite)
    notes = unknown_answers(table, suite)
    counted = count_run(run, suite, protocol, answers=[answers])
    settings = {"answers": str(options.answers), "suite": suite.name, "protocol": protocol}
    record = {"settings": settings, "versions": versions(), "git": git_revision()}
    counted = replace(counted, notes=[*notes, *counted.notes], record=record)
    if options.out is None:
        return counted
    made: dict[str, object] = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "groups": table["group"].unique(maintain_order=True).to_list(),
        "protocol": protocol,
        **(perturbation_settings(perturbations) if perturbations else {}),
        **_made_of(options, options.match),
    }
    whole = table.select(
        pl.col(name).cast(dtype) if name in table.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in ANSWERS_SCHEMA.items()
    ).with_columns(suite=pl.lit(suite.name))
    source = {"suite_source": source_of(suite, options.suite or "", options.data_dir)}
    return _kept_table(options, made, whole, counted, source)


def _perturbations_in(table: pl.DataFrame, more: Sequence[str]) -> dict[str, Perturbation]:
    """The perturbations of patterns that variants are named by: ``NAME: TEXT``, and the user's."""
    variants = set(table["variant"]) if "variant" in table.columns else set()
    names = {str(variant).partition(": ")[0] for variant in variants}
    named = [name for name in PATTERN_PERTURBATIONS if name in names]
    return chosen([*named, *more], PATTERN_PERTURBATIONS)


def score_pairs(run: Run, options: ScoreOptions) -> CountedRun:
    """Measure a table of labels that a model wrote for sentence pairs."""
    refuse_options(options, "pairs", "a task of sentence pairs")
    _check(options)
    if options.out is not None:
        raise ConsilienceError(
            "--out with sentence pairs, whose sentences the table does not have",
            expected="answers to facts or to questions",
            todo="Leave it out; --csv FILE writes the numbers. A run of sentence pairs is what "
            "`consilience probe --generate` keeps.",
        )
    task, rule = load_task(options.suite or ""), rule_of(options.match or DEFAULT_RULE)
    known = {**PERTURBATIONS, **chosen(options.perturbations or ())}
    pairs = read_pairs(options.data, task) if options.data else None
    forms, answers = answers_to_pairs(run.answers, task, rule, known, pairs)
    suite = suite_of_task(task, forms, writes_freely=True)
    written = [generated_group(task)]
    counted = count_answers({"": answers}, suite, "strict", run.label, groups=written)
    notes = [*counted.notes]
    if pairs is None and "subject" not in run.answers.columns:
        notes.append(
            "no column 'subject' (the first sentence): pairs that share it count as independent, "
            "so intervals may be too narrow; keep the column, or name the file of pairs: --data"
        )
    record = _record(options, task.name, DEFAULT_RULE)
    return replace(counted, notes=notes, record=record)


def score_questions(
    run: Run, options: ScoreOptions, questions: Questions | None = None
) -> CountedRun:
    """Measure a table of answers to questions; with ``--out`` it is kept as a run.

    A question that has rows and lacks some has no answer there. Questions without any row are not
    counted, with a note. ``questions``: in place of those that the options name.
    """
    refuse_options(options, "questions", "a suite of questions")
    _check(options)
    whole = questions or load_questions(options.suite or "", columns_of(options.columns))
    rule = rule_of(options.match) if options.match else None
    design, answers = answers_to_questions(run.answers, whole, rule)
    items = set(answers["item"])
    questions = replace(whole, items=tuple(item for item in whole.items if item.item in items))
    is_scored = LOG_PROBABILITIES in run.answers.columns
    groups = groups_of_questions(questions, writes_freely=not is_scored)
    suite = suite_of_questions(questions.name, groups, design, questions.expectations)
    counted = count_answers({"": answers}, suite, "strict", run.label)
    notes = [*_not_counted(whole, items), *counted.notes, *notes_on_writing(answers)]
    if options.match is None:
        notes += _found_within(run.answers, whole, answers)
    counted = replace(counted, notes=notes, record=_record(options, questions.name, DEFAULT_RULES))
    if options.out is None:
        return counted
    settings = {
        "kind": QUESTIONS,
        "suite": questions.name,
        "suite_digest": whole.digest,
        "groups": [group.id for group in groups],
        "options": {group.id: group.options for group in groups},
        "written": [group.id for group in groups if group.writes_freely],
        "protocol": "strict",
        "factors": {factor.name: list(factor.levels) for factor in design.factors},
        "cells": [list(cell) for cell in design.cells],
        **_made_of(options, options.match or DEFAULT_RULES),
    }
    described: dict[str, object] = {TEXTS: text_digests(questions.items, design)}
    if whole.source:
        described["suite_source"] = whole.source
    if questions.expectations:
        described[EXPECTATIONS] = [one.to_record() for one in questions.expectations]
    return _kept_table(options, settings, answers, counted, described)


def _found_within(
    table: pl.DataFrame, questions: Questions, answers: pl.DataFrame
) -> Iterator[str]:
    """A note if another rule finds an option in texts that ``answers`` matches to none."""
    is_unmatched = pl.col("unmatched").is_not_null() & pl.col("gold_option").is_not_null()
    count = answers.filter(is_unmatched).height
    if not count:
        return
    _, within = answers_to_questions(table, questions, RULES[OPEN_RULE])
    if more := count - within.filter(is_unmatched).height:
        yield (
            f"with --match {OPEN_RULE}, which finds an option within a longer text, {more:,} of "
            f"these {counted_text(count, 'answer')} would be an option"
        )


def _not_counted(questions: Questions, items: Collection[str]) -> list[str]:
    """Notes on the groups and the questions of a suite that a table has no row of."""
    groups, part = [], {}
    for name, of_group in questions.groups.items():
        absent = sum(question.item not in items for question in of_group)
        if absent == len(of_group):
            groups.append(name)
        elif absent:
            part[name] = f"{name} {absent:,} of {len(of_group):,}"
    notes = []
    if groups:
        more = f" and {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
        names = ", ".join(groups[:SHOWN]) + more
        notes.append(f"no rows of {counted_text(len(groups), 'group')}, not counted: {names}")
    if part:
        notes.append(f"questions without a row, not counted: {', '.join(part.values())}")
    return notes


def _kept_table(
    options: ScoreOptions,
    settings: Mapping[str, object],
    answers: pl.DataFrame,
    counted: CountedRun,
    described: Mapping[str, object],
) -> CountedRun:
    """The answers, kept as a run. ``described``: what its record says of the suite."""
    folder = RunFolder(options.out or "", settings)
    for name, value in described.items():
        folder.describe(name, value)
    for (group,), rows in answers.partition_by("group", as_dict=True, maintain_order=True).items():
        folder.write_answers(str(group), rows)
    folder.describe("answers_file", str(options.answers))
    return save_counted(counted, folder)


def _made_of(options: ScoreOptions, rule: str | None) -> dict[str, object]:
    """The settings of a run that was made of a table."""
    name = options.provider or model_of_log(options.answers) or options.answers.stem
    model = {"model": name, "digest": digest_of(options.answers)}
    return {"match": rule, "model": model}


def _check(options: ScoreOptions) -> None:
    if options.protocol == "published":
        raise ConsilienceError(
            "--protocol published with a suite that is not one of facts",
            expected="strict",
            todo="Leave --protocol out.",
        )


def _record(options: ScoreOptions, suite: str, usual: str) -> dict[str, object]:
    """What a JSON document says of answers that are not kept; ``usual``: the default of --match."""
    match = options.match or usual
    settings = {"answers": str(options.answers), "suite": suite, "match": match}
    return {"settings": settings, "versions": versions(), "git": git_revision()}
