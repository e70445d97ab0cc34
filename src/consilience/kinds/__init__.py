"""The three kinds of suites, and what the rest of the package asks of them.

A kind is one class and one row of ``KINDS``. Whoever has a suite, a run or options gets the kind
here and asks it: how files become items, how a model is asked, how a run is opened again, how
answers from elsewhere are read, and what prompts look like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.process import SILENT, Watch
from consilience.kinds.base import AnswersElsewhere, Inquiry, SuiteValue
from consilience.kinds.counting import CountedRun, count_answers, save_counted
from consilience.kinds.facts import Facts
from consilience.kinds.pairs import SentencePairs
from consilience.kinds.questions import OwnQuestions, questions_of
from consilience.options.probe import ProbeOptions, refuse_options
from consilience.options.runs import ScoreOptions
from consilience.report.export import record_of
from consilience.runs.folder import RunFolder
from consilience.runs.run import Run
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
    data_dir: Path | None = None,
) -> tuple[Suite, Protocol]:
    """What a run is counted by; the suite and the protocol that are None are those of the run."""
    return kind_of_run(run).suite_of(run, name, protocol, data_dir)


def facts_of(
    run: Run, name: str | None, protocol: Protocol | None, data_dir: Path | None
) -> tuple[Suite, Protocol]:
    """What a run of facts is counted by; another run raises."""
    refuse_other_kinds(run)
    return suite_of(run, name, protocol, data_dir)


def refuse_other_kinds(run: Run) -> None:
    """Raise for a run that is not of facts."""
    kind = kind_of_run(run)
    if kind.instead:
        several = f" with {len(run.seeds)} seeds" if run.parts else ""
        raise ConsilienceError(
            f"a run of {kind.words.item}s{several}",
            expected="a run of facts",
            where=str(run.path),
            todo=kind.instead,
        )


def suite_notes(run: Run, suite: Suite) -> list[str]:
    """A note where the whole suite of a run is not as it was when it was asked; none without it."""
    kind = kind_of_run(run)
    return [] if kind.is_as_asked(run, suite) else [kind.changed_suite(run, suite)]


def protocol_notes(run: Run, protocol: Protocol) -> list[str]:
    """What a reader of numbers by ``protocol`` should know of a run asked under another one."""
    if run.protocol in (None, protocol):
        return []
    return [
        f"the run was asked under {run.protocol}, which decided the token of each candidate; for "
        f"{protocol} throughout, probe with --protocol {protocol}"
    ]


def score_table(run: Run, options: ScoreOptions, questions: Questions | None = None) -> CountedRun:
    """Measure a table of answers to the suite that the options name; with ``--out`` keep a run.

    A table with the column ``as_questions`` answers the facts of the suite as questions.
    ``questions``: in place of those that the options name.
    """
    if questions is None and "as_questions" in run.answers.columns:
        questions = _facts_as_questions(run, options)
    kind = kind_of(options.suite or "" if questions is None else questions)
    refuse_options(options, kind.kind, kind.a_suite)
    read = kind.read_answers(run, options, questions)
    answers = {"": read.answers}
    counted = count_answers(answers, read.suite, read.protocol, run.label, groups=read.groups)
    notes = [*read.before, *counted.notes, *read.after]
    counted = replace(counted, notes=notes, record=record_of(**read.settings))
    return counted if options.out is None else _kept(read, counted, options)


def _kept(read: AnswersElsewhere, counted: CountedRun, options: ScoreOptions) -> CountedRun:
    """The answers of a table, kept as a run."""
    folder = RunFolder(options.out or "", read.run_settings)
    for name, value in read.described.items():
        folder.describe(name, value)
    answers = read.answers if read.recorded is None else read.recorded
    for (group,), rows in answers.partition_by("group", as_dict=True, maintain_order=True).items():
        folder.write_answers(str(group), rows)
    folder.describe("answers_file", str(options.answers))
    return save_counted(counted, folder)


def _facts_as_questions(run: Run, options: ScoreOptions) -> Questions:
    """The questions that the facts of the suite were asked as."""
    if kind_of(options.suite or "").kind != Facts.kind:
        raise ConsilienceError(
            f"--suite {options.suite} with answers to facts that were asked as questions",
            expected="the suite of these facts, such as mini",
            where=str(options.answers),
        )
    row = run.answers.row(0, named=True)
    return questions_of(
        ProbeOptions(
            suite=options.suite or "",
            as_questions=int(row["as_questions"]),
            seed=int(row.get("seed", 0)),
            data_dir=options.data_dir,
        )
    )
