"""suite: list, fetch, check and count suites."""

from __future__ import annotations

import itertools
import shlex
import sys
from dataclasses import asdict

from consilience import suites
from consilience.authoring.audit import cautions
from consilience.authoring.importing import new_suite
from consilience.authoring.sharing import sharing_problems
from consilience.cli.console import out, progress_shown, warn
from consilience.cli.output_options import JsonOutput
from consilience.cli.printing import print_json, without_nan
from consilience.cli.process import print_errors
from consilience.core.errors import ConsilienceError, shortened
from consilience.core.text import counted
from consilience.files.write import write_whole
from consilience.integrations.lm_eval_folder import WrittenTask, write_task
from consilience.report.metric_tables import question_table, statistics_tables
from consilience.suites import question_suites
from consilience.suites.facts import suite_statistics
from consilience.suites.layouts import fetch, layout_of
from consilience.suites.pairs import is_task, load_task
from consilience.suites.proposals import signoff_notes
from consilience.suites.question_suites import (
    SUITE_NAMES,
    QuestionStatistics,
    is_questions,
    load_questions,
    question_statistics,
)
from consilience.workflow.export_options import ExportOptions
from consilience.workflow.exporting import as_lines, export_format, export_prompts
from consilience.workflow.question_design import columns_of
from consilience.workflow.suite_options import (
    CheckOptions,
    FetchOptions,
    NewSuiteOptions,
    StatsOptions,
    SuiteListOptions,
)

PREFIX = (
    "lm_eval begins a sentence with the tokenizer's BOS, probe with the start_token in run.json. "
    "Where they differ, add prefix_token_id=ID to --model_args, else the numbers differ"
)
"""What a reader of a task of facts should know."""


def list_suites(options: SuiteListOptions, output: JsonOutput) -> None:
    """Print the names of suites, and their folders."""
    data = suites.data_dir(options.data_dir)
    rows = []
    for name, description in SUITE_NAMES.items():
        try:
            is_made_of_mini = name in question_suites.QUESTION_SUITES
            folder: str | None = str(suites.suite_folder("mini" if is_made_of_mini else name, data))
        except ConsilienceError:
            folder = None
        rows.append({"suite": name, "about": description, "folder": folder})
    if output.as_json:
        print_json({"suites": rows})
        return
    width = max(len(name) for name in SUITE_NAMES)
    for row in rows:
        where = row["folder"] or f"not in {data}"
        out.print(f"{row['suite']:{width}} {row['about']}\n{'':{width}} {where}")


def new(options: NewSuiteOptions, output: JsonOutput) -> None:
    """Write the example of a suite, and print its files and what to do next."""
    files = new_suite(options.folder, facts=options.facts)
    if output.as_json:
        print_json({"folder": str(options.folder), "files": [str(file) for file in files]})
        return
    named = shlex.quote(str(options.folder))
    out.print(f"{options.folder}: {', '.join(file.name for file in files)}")
    out.print(f"Edit:  {next(file for file in files if file.suffix != '.md')}")
    out.print(f"Check: consilience suite check {named}")
    out.print(f"Ask:   consilience probe --suite {named}")


def export(options: ExportOptions) -> None:
    """Write prompts to a file or as a task of another tool, or print them."""
    if options.format_ == "lm-eval":
        _show_task(write_task(options), options.suite)
        return
    rows = export_prompts(options)
    count = itertools.count()
    counted_rows = (row for row, _ in zip(rows, count, strict=False))
    lines = as_lines(counted_rows, export_format(options))
    if options.file is None:
        for line in lines:
            sys.stdout.write(line)
        return
    write_whole(options.file, lambda: (line.encode() for line in lines))
    out.print(f"{options.file}: {counted(next(count), 'prompt')}")


def _show_task(task: WrittenTask, suite: str) -> None:
    """Print what was written, and how it is run and read back."""
    folder = shlex.quote(str(task.folder))
    size = f"{counted(task.documents, 'document')} of {counted(task.items, 'item')}"
    out.print(f"{task.folder / task.name}.yaml: {size}")
    out.print(
        "Run:   lm_eval run --model hf --model_args pretrained=MODEL,dtype=float32 --include_path "
        f"{folder} --tasks {task.name} --log_samples --output_path LOGS"
    )
    out.print(
        f"Score: consilience score LOGS/MODEL/samples_{task.name}_DATE.jsonl --suite "
        f"{shlex.quote(suite)}"
    )
    if task.is_of_facts:
        warn([PREFIX])


def fetch_suite(options: FetchOptions, output: JsonOutput) -> None:
    """Download a suite, and print its folder."""
    name, data = options.name, suites.data_dir(options.data_dir)
    with progress_shown(f"fetching {name}", None, "files") as advance:
        folder, fetched = fetch(name, data, base=options.source, progress=advance)
    if output.as_json:
        print_json({"suite": name, "folder": str(folder), "fetched": fetched})
    else:
        out.print(f"{folder}: complete, {fetched} files fetched")


def check(options: CheckOptions, output: JsonOutput) -> int:
    """Print every error in the files of a suite, and notes on it; status 2 if there are errors."""
    suite = options.suite
    columns = columns_of(options.columns)
    problems = [str(fault) for fault in suites.check_suite(suite, options.data_dir, columns)]
    if options.shared and not problems:
        problems += map(str, sharing_problems(suite, options.data_dir))
    notes, size = ([], "") if problems else _notes_and_size(options)
    if output.as_json:
        print_json({"suite": suite, "problems": problems, "warnings": notes})
    if problems:
        print_errors([*problems, f"{counted(len(problems), 'problem')} in '{suite}'"])
        return 2
    if not output.as_json:
        for note in notes:
            out.print(f"note: {shortened(note)}")
        verdict = f"no problems, {counted(len(notes), 'note')}" if notes else "good"
        out.print(f"{suite}: {verdict}; {size}")
    return 0


def _notes_and_size(options: CheckOptions) -> tuple[list[str], str]:
    """Notes on a suite without errors; its size, or the labels of a task."""
    suite = options.suite
    if is_questions(suite):
        questions = load_questions(suite, columns_of(options.columns))
        counts = question_statistics(questions)
        sizes = [counted(counts.groups, "group"), _kinds(counts)]
        sizes.append(counted(counts.phrasings, "phrasing"))
        sizes += [counted(counts.expectations, "expectation")] * (counts.expectations > 0)
        return [*questions.notes, *cautions(questions)], ", ".join(sizes)
    if is_task(suite):
        labels = ", ".join(load_task(suite).labels)
        return [], f"a task of sentence pairs with the labels {labels}"
    chosen = suites.load_suite(suite, options.data_dir)
    statistics = suite_statistics(chosen)
    parts = {
        "relation": statistics.relations,
        "pattern": statistics.patterns,
        "fact": statistics.facts,
    }
    _, root = layout_of(suites.suite_folder(suite, suites.data_dir(options.data_dir)))
    notes = [*chosen.notes, *cautions(chosen), *signoff_notes(root, chosen)]
    return notes, ", ".join(counted(number, name) for name, number in parts.items())


def _kinds(counts: QuestionStatistics) -> str:
    """How many questions have options, and how many are open."""
    questions = counts.questions
    is_open = sum(group.questions for group in counts.by_group if not group.max_options)
    if not is_open:
        return f"{counted(questions, 'question')} with options"
    if is_open == questions:
        return counted(questions, "open question")
    return f"{questions:,} questions ({questions - is_open:,} with options, {is_open:,} open)"


def stats(options: StatsOptions, output: JsonOutput) -> None:
    """Print the sizes of a suite."""
    if is_questions(options.suite):
        questions = load_questions(options.suite, columns_of(options.columns))
        counts = question_statistics(questions)
        if output.as_json:
            print_json(without_nan({"suite": questions.name, **asdict(counts)}))
        else:
            out.print(question_table(counts, questions.name))
        return
    chosen = suites.load_suite(options.suite, options.data_dir, as_shipped=options.as_shipped)
    statistics = suite_statistics(chosen)
    if output.as_json:
        print_json(without_nan({"suite": chosen.name, **asdict(statistics)}))
        return
    for table in statistics_tables(statistics, chosen.name):
        out.print(table)
    warn(list(chosen.notes))
