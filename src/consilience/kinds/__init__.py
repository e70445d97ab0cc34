"""The three kinds of suites, and what the rest of the package asks of them.

A kind is one class and one row of ``KINDS``. Whoever has a suite, a run or options gets the kind
here and asks it: how files become items, how a model is asked, how a run is opened again, how
answers from elsewhere are read, and what prompts look like.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Protocol, Watch
from consilience.core.text import counted
from consilience.files.tables import model_of_log
from consilience.files.write import write_whole
from consilience.kinds.answers import WHERE
from consilience.kinds.base import ExportedRow, Inquiry, SuiteValue
from consilience.kinds.counting import (
    NOT_FINISHED,
    CountedRun,
    count_answers,
    count_run,
    record_notes,
    save_counted,
)
from consilience.kinds.facts import Facts
from consilience.kinds.pairs import SentencePairs
from consilience.kinds.questions import OwnQuestions
from consilience.kinds.records import maker_of
from consilience.options import shared_fields
from consilience.options.probe import ProbeOptions, refuse_options
from consilience.options.runs import ScoreOptions
from consilience.options.suites import ExportOptions
from consilience.report.export import Lines, record_of
from consilience.runs.folder import RunFolder
from consilience.runs.run import Run, model_name
from consilience.suites.questions import Questions
from consilience.types import Suite

KINDS: Sequence[type[Inquiry]] = (OwnQuestions, SentencePairs, Facts)
"""The first that accepts a suite, or has the ``kind`` of a run, is its kind."""


def kind_of(suite: SuiteValue, as_questions: int | None = None) -> type[Inquiry]:
    """The kind of a suite; ``as_questions``: facts may be asked as questions."""
    if as_questions is not None:
        return OwnQuestions
    return next(kind for kind in KINDS if kind.accepts(suite))


def kind_of_run(run: Run) -> type[Inquiry]:
    """What a run asked."""
    return next(kind for kind in KINDS if kind.in_record in (None, run.settings.get("kind")))


def inquiries_of(
    options: ProbeOptions, watch: Watch = SILENT, *, suite: Any = None, model: Any = None
) -> Sequence[Inquiry]:
    """What ``probe`` asks: one inquiry for each seed of classifiers of sentence pairs; else one."""
    options.check_connection()
    kind = kind_of(options.suite if suite is None else suite, options.as_questions)
    return kind.of_options(options, watch, suite, model)


def suite_of(
    run: Run,
    name: str | None = None,
    protocol: Protocol | None = None,
) -> tuple[Suite, Protocol]:
    """What a run is counted by; the suite and the protocol that are None are those of the run."""
    suite, rules = kind_of_run(run).suite_of(run, name, protocol)
    if not run.record and any(group.names for group in suite.relations):
        table = shlex.join([str(run.path), "--suite", name or suite.name])
        raise ConsilienceError(
            "a table of answers in several languages or forms", where=str(run.path),
            expected="a run, which holds the objects that they name",
            todo=f"First `consilience score {table} --out RUN`.",
        )  # fmt: skip
    return suite, rules


def facts_of(run: Run, name: str | None, protocol: Protocol | None) -> tuple[Suite, Protocol]:
    """What a run of facts is counted by; another run raises."""
    refuse_other_kinds(run)
    return suite_of(run, name, protocol)


def refuse_other_kinds(run: Run) -> None:
    """Raise for a run that is not of facts."""
    kind = kind_of_run(run)
    if kind is not Facts:
        several = f" with {len(run.seeds)} seeds" if run.parts else ""
        found = f"a run of {kind.words.item}s{several}"
        todo = "`consilience compare` and `consilience report` take such runs."
        raise ConsilienceError(found, expected="a run of facts", where=str(run.path), todo=todo)


def suite_notes(run: Run, suite: Suite) -> list[str]:
    """A note where the whole suite of a run is not as it was when it was asked; none without it."""
    kind, effect = kind_of_run(run), "numbers are of the old texts and gold answers"
    if kind.is_as_asked(run, suite):
        return []
    effect = "numbers may differ" if kind is Facts else effect
    what = "the file of sentence pairs" if kind is SentencePairs else f"the suite '{suite.name}'"
    return [f"{what} is not as it was when {run.label} was asked; {effect}"]


def protocol_notes(run: Run, protocol: Protocol) -> list[str]:
    """What a reader of numbers by ``protocol`` should know of a run asked under another one."""
    if run.protocol in (None, protocol):
        return []
    return [
        f"the run was asked under {run.protocol}, which decided the token of each candidate; for "
        f"{protocol} throughout, probe with --protocol {protocol}"
    ]


def score_answers(
    options: ScoreOptions, questions: Questions | None = None, label: str = ""
) -> CountedRun:
    """Measure answers that were made elsewhere, or those of a run again; seeds are averaged.

    A run names its suite and protocol; ``suite`` is needed for a table of answers only.
    ``questions``: those that a table answers, in place of those that the options name. ``label``:
    what the answers are called; empty for the name of the file or of the run's model.
    """
    answers = options.answers
    if (make := maker_of(answers)) is not None:
        options, questions, table = make(options)
        with TemporaryDirectory(prefix="consilience-") as folder:
            file = Path(folder, "answers.parquet")
            table.write_parquet(file)
            del table
            run = Run.open(file, model_name(options.provider or ""))
            counted = score_table(run, options, questions)
        more = questions.notes if questions else ()
        return replace(counted, notes=[*counted.notes, *more])
    if options.provider is not None:
        found = f"--provider with {answers}"
        expected = "results of promptfoo (.json), or instance records"
        raise ConsilienceError(found, expected=expected, todo="Leave --provider out.")
    run = Run.open(answers, label or model_name(model_of_log(answers))).named_by_model()
    if not run.record and options.suite is not None:
        try:
            return score_table(run, options, questions)
        except ConsilienceError as error:
            if label or not error.where.startswith(WHERE):
                raise
            where = error.where.replace(WHERE, str(answers), 1)
            raise error.replaced(where=where) from error
    for name in ("out", "match", "data", "perturbations", "columns"):
        if run.record and getattr(options, name):
            found, todo = f"--{name} with a run", f"Leave --{name} out."
            raise ConsilienceError(found, expected="a table of answers", todo=todo)
    chosen, rules = suite_of(run, options.suite, options.protocol)
    counted = count_run(run, chosen, rules)
    record = record_of(answers=str(answers), suite=chosen.name, protocol=rules)
    begun = [note for note in record_notes(run) if NOT_FINISHED in note]
    notes = begun + suite_notes(run, chosen) + [*counted.notes] + protocol_notes(run, rules)
    return replace(counted, notes=notes, record=record)


def score_table(run: Run, options: ScoreOptions, questions: Questions | None = None) -> CountedRun:
    """Measure a table of answers to the suite that the options name; with ``--out`` keep a run.

    ``questions``: in place of those that the options name.
    """
    kind = kind_of(options.suite or "" if questions is None else questions)
    refuse_options(options, kind.kind, kind.a_suite)
    read = kind.read_answers(run, options, questions)
    answers = {"": read.answers}
    scored = count_answers(answers, read.suite, read.protocol, run.label, groups=read.groups)
    notes = [*read.before, *scored.notes, *read.after]
    scored = replace(scored, notes=notes, record=record_of(**read.settings))
    if options.out is None:
        return scored
    folder = RunFolder(options.out, read.run_settings)
    for name, value in read.described.items():
        folder.describe(name, value)
    kept = read.answers if read.recorded is None else read.recorded
    for group in kept["group"].unique(maintain_order=True):
        rows = kept.filter(pl.col("group") == group)
        folder.write_answers(str(group), rows.cast({pl.Categorical: pl.String}))
    folder.describe("answers_file", str(options.answers))
    return save_counted(scored, folder)


def to_export(options: ExportOptions) -> Inquiry:
    """What is exported. An option of another suite raises."""
    chosen = replace(ProbeOptions(**shared_fields(options, ProbeOptions)), out=None)
    return kind_of(options.suite).to_export(chosen)


def exported_lines(options: ExportOptions) -> Iterator[str]:
    """The prompts as the lines of a file. An option of another suite raises at once."""
    rows = to_export(options).rows()
    is_csv = options.out is not None and options.out.suffix == ".csv"
    form = options.format or ("csv" if is_csv else "jsonl")
    if form == "csv":
        return _csv_lines(rows)
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _csv_lines(rows: Iterator[ExportedRow]) -> Iterator[str]:
    """The lines of CSV; lists are JSON in one cell."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    for number, row in enumerate(rows):
        if not number:
            writer.writerow(row)
        writer.writerow(map(_cell, row.values()))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _cell(value: object) -> object:
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return value


def written_prompts(options: ExportOptions, file: Path) -> Lines:
    """Write the prompts to a file; how many there are."""
    count = itertools.count()
    lines = zip(exported_lines(options), count, strict=False)
    write_whole(file, lambda: (line.encode() for line, _ in lines))
    return Lines({}, f"{file}: {counted(next(count), 'prompt')}")
