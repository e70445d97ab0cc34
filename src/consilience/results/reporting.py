"""Reports of runs, and the result that Python gets."""

from __future__ import annotations

import sys
import textwrap
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import polars as pl

from consilience.analysis import patterns
from consilience.analysis.examples import KINDS, about, examples, violated_examples
from consilience.core import expectations
from consilience.core.errors import SILENT, Advance, ConsilienceError, Protocol, Watch
from consilience.core.factors import FACTORS
from consilience.core.schemas import REASONS
from consilience.files.write import path_of, write_whole
from consilience.kinds import kind_of_run, protocol_notes, suite_notes, suite_of
from consilience.kinds.counting import count_run, record_notes
from consilience.kinds.pairs import changed_answers_of, task_of_run
from consilience.metrics.counts import Prepared, in_texts
from consilience.metrics.differences import compare
from consilience.metrics.measure import few_relations
from consilience.metrics.registry import headline_metrics, label_of
from consilience.options import Output, options_of
from consilience.options.runs import ReportOptions, ViewOptions
from consilience.report import charts, export
from consilience.report.analysis_tables import symbol_of
from consilience.report.answers_page import answers_page
from consilience.report.columns import legible
from consilience.report.export import Shown
from consilience.report.metric_tables import EDITS
from consilience.report.overview import by_run
from consilience.report.papers import Values, is_of_pararel, paper_values
from consilience.report.report_page import report_page
from consilience.report.run_view import RunView
from consilience.report.summary import FACT_ROWS, VIOLATIONS, Summary, brief_notes
from consilience.report.table import Cell, Column, Table, Value, without_empty_columns
from consilience.results import comparing
from consilience.results.analyses import factor_views
from consilience.results.comparing import Comparison
from consilience.runs.run import Run, open_runs
from consilience.suites.facts import select_relations
from consilience.suites.layouts import save_suite
from consilience.types import Suite, SuiteWords

if TYPE_CHECKING:
    import altair


CONSISTENCY = ("consistency", "corrected_consistency")


MetricPart = tuple[str, str, str]  # A metric, and the kind and level of what it is about


def _whole(*metrics: str) -> dict[MetricPart, str]:
    return {(metric, "whole", ""): label_of(metric) for metric in metrics}


LAYOUTS: Mapping[str, Mapping[str, tuple[str, Mapping[MetricPart, str]]]] = {
    "mean": {
        "extractability": (
            "What the patterns extract, and consistency where known or not (ParaRel's Table 2)",
            _whole("successful_patterns", "successful_objects", "unknown_consistency",
                 "known_consistency"),
        ),
        "knowledge": (
            "Knowledge and consistency (ParaRel's Table 3)",
            _whole("accuracy", "consistency", "consistent_accuracy", "corrected_consistency"),
        ),
        "syntax": (
            "Consistency of pairs that differ in syntax alone, and of others (ParaRel's Table 5)",
            {("consistency", "edit", edit): EDITS[edit] for edit in ("diff_syntax", "no_change")},
        ),
    },
    "all": {
        "questions": ("All questions together, in percent", _whole(*FACT_ROWS)),
        "factors": (
            "Consistency of two variants that differ in one factor only, in percent",
            {("consistency", "factor", factor): factor for factor in FACTORS},
        ),
        "violations": (
            "Violated expectations by kind, in percent",
            {(VIOLATIONS, "expectation", kind): kind for kind in expectations.KINDS},
        ),
    },
}  # fmt: skip
"""Tables of ParaRel's layout, and of questions: title, and columns by metric, kind and level."""

PAPER_TABLES = {
    "extractability": "pararel-table-2", "knowledge": "pararel-table-3",
    "syntax": "pararel-table-5",
}  # fmt: skip


def layouts_of(
    words: SuiteWords, runs: Mapping[str, pl.DataFrame], notes: Sequence[str] = ()
) -> dict[str, Table]:
    """The tables of runs for files, from metrics tables by run; ``notes``: below each table.

    Of facts Tables 2, 3 and 5 of ParaRel and one row a relation, with the paper's rows for all of
    ParaRel. Of questions what has a number of all together, each factor, expectation and group.
    """
    if words.over == "group":
        return pair_layouts(runs, notes)
    measured = {run: _values(metrics.filter(over=words.over)) for run, metrics in runs.items()}
    with_paper = words.has_means and all(map(is_of_pararel, runs.values()))
    known = {key for row in measured.values() for key, of in row.items() if of.number is not None}
    layouts = {}
    for name, (heading, keys) in LAYOUTS[words.over].items():
        blocks = {"measured" if with_paper else "": measured}
        if with_paper:
            blocks = {"ParaRel paper": paper_values(PAPER_TABLES[name]), **blocks}
        title = f"{heading}: mean ± std over relations" if words.has_means else heading
        labels = {key: of for key, of in keys.items() if words.has_means or key in known}
        if labels:
            layouts[name] = _layout(title, blocks, labels, notes)
    groups = _groups_layout(runs, notes, words.group)
    if words.is_pooled:
        groups = without_empty_columns(groups)
    return {**layouts, f"{words.group}s": groups}


def _layout(
    title: str,
    blocks: Mapping[str, Mapping[str, Values]],
    keys: Mapping[MetricPart, str],
    notes: Sequence[str],
) -> Table:
    columns = [Column(""), *(Column(label, "share") for label in keys.values())]
    models = [(block, *of) for block, models in blocks.items() for of in models.items()]
    rows = [[model, *(values.get(key) for key in keys)] for _, model, values in models]
    return Table(title, columns, rows, notes, [block for block, *_ in models])


def _groups_layout(runs: Mapping[str, pl.DataFrame], notes: Sequence[str], word: str) -> Table:
    metrics = headline_metrics(aliases=True)
    rows: list[list[Value]] = []
    blocks = []
    for run, table in runs.items():
        chosen = table.filter(over="group")
        for (group,), numbers in chosen.group_by(["group"], maintain_order=True):
            values = _values(numbers)
            rows.append([str(group), *(values.get((metric, "whole", "")) for metric in metrics)])
            blocks.append(run)
    columns = [Column(word), *(Column(label_of(metric), "share") for metric in metrics)]
    return Table(f"Each {word}, in percent", columns, rows, notes, blocks)


def pair_layouts(runs: Mapping[str, pl.DataFrame], notes: Sequence[str] = ()) -> dict[str, Table]:
    """Table 2 of CALUM, a row a run after the paper's, blocks by task, and every other form."""
    blocks: dict[str, dict[str, Values]] = {}
    for run, metrics in runs.items():
        of_groups = metrics.filter(over="group").group_by(["group"], maintain_order=True)
        for (group,), numbers in of_groups:
            blocks.setdefault(str(group), {})[run] = _values(numbers)
    measured = [key for models in blocks.values() for values in models.values() for key in values]
    forms = [key for key in measured if key[:2] == ("consistency", "form")]
    keys = [("accuracy", "whole", ""), *dict.fromkeys(forms)]
    with_papers: dict[str, Mapping[str, Values]] = {}
    for group in sorted(blocks):
        if papers := paper_values("calum-table-2", group):
            with_papers[f"{group}, CALUM paper"] = papers
        with_papers[group] = blocks[group]
    title = "Accuracy and consistency, in percent: mean ± std over seeds (CALUM's Table 2)"
    labels = {key: symbol_of(key[0], key[2]) for key in keys}
    return {"consistency": _layout(title, with_papers, labels, notes)}


def _values(metrics: pl.DataFrame) -> Values:
    std = pl.when(over="mean").then("std").otherwise("seed_std")
    rows = metrics.select("metric", "kind", "level", "value", std).iter_rows()
    return {(metric, kind, level): Cell(value, std) for metric, kind, level, value, std in rows}


EXAMPLES = 3  # of each kind


def report(options: ReportOptions, watch: Watch = SILENT) -> export.Lines:
    """Write one page on one run, or on several with the first as the reference."""
    runs = open_runs(options.runs)
    file = _page_of(runs, options.out)
    comparing.refuse_mixed(runs)
    suite, protocol = suite_of(runs[0], options.suite, options.protocol)
    with watch.steps("counting", len(runs), "tables") as advance:
        views, compared, notes, flips = _measured(runs, suite, protocol, advance)
    page = report_page(views, compared, notes, flips)
    warnings = [*notes, *by_run({view.name: view.warnings for view in views})]
    _, _, sizes = views[0].summary.title.partition(f" on {suite.name}")
    about = suite.name + sizes  # the sizes and the protocol
    tables = layouts_of(suite.words, {view.name: view.metrics for view in views}, warnings)
    tables = {name: replace(of, title=f"{of.title}; {about}") for name, of in tables.items()}
    files = [str(path) for path in _save(file, page, tables, options)]
    record = export.record_of(runs=[str(run.path) for run in runs])
    document = {"run": record, "files": files, "warnings": warnings}
    return export.Lines(document, *files, notes=warnings)


def _save(
    file: Path, page: export.Page, tables: Mapping[str, Table], options: ReportOptions
) -> list[Path]:
    """Write the page, and its figures and tables if folders for them are given."""
    written = [file]
    if options.figures:
        options.figures.mkdir(parents=True, exist_ok=True)
        for figure in page.figures:
            written.append(options.figures / f"{figure.id}.svg")
            export.save_figure(export.with_legend(figure.chart), written[-1])
    if options.tables:
        for name, table in tables.items():
            written += export.save_table(table, options.tables, name)
    write_whole(file, export.render(page).encode())
    return written


class AnswersPage(export.Lines):
    """The page of all answers, which opens in the browser of a terminal's user."""

    def __init__(self, path: Path, runs: Sequence[Run], notes: Sequence[str]) -> None:
        self.path = path
        record = export.record_of(runs=[str(run.path) for run in runs])
        document = {"run": record, "files": [str(path)], "warnings": notes}
        super().__init__(document, str(path), notes=notes)

    def then(self, output: Output) -> None:
        if sys.stdout.isatty() and not output.is_document:
            webbrowser.open(self.path.resolve().as_uri())


def view_answers(options: ViewOptions) -> AnswersPage:
    """All answers of runs on one page; of several runs those to the items that all have."""
    runs = open_runs(options.runs)
    folder = runs[0].path
    path = _page_of(runs, options.out or (folder / "answers.html" if folder.is_dir() else None))
    comparing.refuse_mixed(runs)
    suite, _ = suite_of(runs[0], options.suite)
    known, notes = comparing.comparable(runs, suite)
    tables = {
        f"{run.label}, {part.label}" if run.parts else run.label: in_texts(one.answers, suite)
        for run in runs
        for part, one in zip(run.seeds, known[run.label], strict=True)
    }
    prompts = kind_of_run(runs[0]).sent(runs[0], suite)
    write_whole(path, answers_page(tables, suite, prompts, notes).encode())
    return AnswersPage(path, runs, notes)


def _page_of(runs: Sequence[Run], file: Path | None) -> Path:
    """The file of the page. An ending of another format is refused; a device has no ending."""
    if file is None:
        if len(runs) == 1 and runs[0].path.is_dir():
            return runs[0].path / "report.html"
        problem = "several runs, or a table of answers, without --out"
        raise ConsilienceError(problem, todo="Name the page: --out F.html.")
    if file.suffix.lower() not in ("", ".html", ".htm"):
        todo = "Open the page in a browser to print it as PDF." if file.suffix == ".pdf" else ""
        found = f"a page in '{file.suffix}'"
        raise ConsilienceError(found, expected=".html", where=str(file), todo=todo)
    if not file.parent.is_dir():
        raise ConsilienceError("no such folder", where=str(file.parent), todo="Make it first.")
    return file


def _groups_of_runs(suite: Suite, runs: Sequence[Run]) -> Suite:
    """The groups of a suite that any run has; all if it is not known."""
    tables = (part.answers for run in runs for part in run.seeds)
    groups = set[str]().union(*(table["group"].unique() for table in tables))
    groups = groups.union(*(run.settings.get("groups") or () for run in runs))
    names = [relation.id for relation in suite.relations if relation.id in groups]
    return select_relations(suite, names) if names else suite


def _measured(
    runs: Sequence[Run], suite: Suite, protocol: Protocol, advance: Advance
) -> tuple[list[RunView], pl.DataFrame | None, list[str], tuple[pl.DataFrame, pl.DataFrame] | None]:
    """The runs, later ones against the first (``COMPARISON_SCHEMA``) if any, and notes on that.

    Of several runs, what all of them were asked. Last, which answers changed: those of
    ``flip_parts``.
    """
    chosen, compared, flips = _groups_of_runs(suite, runs), None, None
    is_of_pairs, asked = suite.words.over == "group", dict[str, list[Prepared]]()
    notes = [] if is_of_pairs else comparing.settings_notes(runs)
    if len(runs) > 1:
        try:
            answers, more = comparing.comparable(runs, chosen)
            asked = comparing.asked_of_all(answers)
            ids = [group.id for group in asked[runs[0].label][0].relations]
            chosen = select_relations(chosen, ids)
            compared = compare(asked, chosen, protocol)
            changed = comparing.flips_of(runs, chosen, protocol, answers)
            flips = changed.numbers, changed.answers
            more += [] if is_of_pairs else changed.notes
            notes += [note for note in dict.fromkeys(more) if note not in notes]
            notes += few_relations(compared, chosen)
        except ConsilienceError as error:
            notes.append(f"the runs are not compared: {error.found}")
    views = []
    for run in runs:
        of_run = suite_of(run)[0] if is_of_pairs and not asked else chosen
        seeds = asked.get(run.label) or [Prepared(part.answers, of_run) for part in run.seeds]
        views.append(view_of(run, of_run, seeds, protocol, suite))
        advance(1)
    return views, compared, notes, flips


def view_of(
    run: Run, suite: Suite, seeds: Sequence[Prepared], protocol: Protocol, whole: Suite
) -> RunView:
    """What the page shows of a run.

    ``seeds``: the answers that are counted, to groups of ``suite``. ``whole``: with all groups.
    """
    known = count_run(run, suite, protocol, seeds)
    notes = (suite_notes(run, whole), record_notes(run), known.notes, protocol_notes(run, protocol))
    answers = pl.concat([one.answers for one in seeds])
    left_out, error = (
        pl.col(name).cast(pl.String) if name in answers.columns else pl.lit(None, pl.String)
        for name in REASONS
    )
    no_answer = pl.concat_str(pl.lit("no answer"), error, separator=": ", ignore_nulls=True)
    is_blank = pl.col("answer").cast(pl.String).fill_null("").str.strip_chars() == ""
    blank = answers.filter(is_blank).with_columns(reason=pl.coalesce(left_out, no_answer))
    view = RunView(
        name=run.label,
        records=[part.record for part in run.seeds if part.record],
        suite=suite,
        metrics=legible(known.metrics),
        summary=known.summary,
        baseline=known.baseline,
        unanswered=blank.group_by("group", "reason", maintain_order=True).len(),
        warnings=list(dict.fromkeys(chain.from_iterable(notes))),
    )
    if suite.words.over == "group":
        changed, task = changed_answers_of(run.path), task_of_run(run)
        return replace(view, task=task, changed=changed)
    pairs = patterns.pair_table(seeds, suite, protocol)
    rows = patterns.with_changes(patterns.pattern_table(seeds, suite, protocol), pairs)
    kind, first = kind_of_run(run), seeds[0]  # whose examples are shown
    found = kind.with_texts(run, examples(first, suite, list(KINDS), EXAMPLES))
    items = {(one.group, one.item) for of_kind in found.values() for one in of_kind}
    sent = {(item, variant): text for _, item, variant, text in run.prompts.iter_rows()}
    kinds = patterns.annotated_kinds(suite)
    return replace(
        view,
        protocol=protocol,
        patterns=rows,
        edits=patterns.edit_table(seeds, suite, protocol, kinds),
        examples={about(kind): of_kind for kind, of_kind in found.items()},
        prompts=kind.shown_texts(run, suite, items),
        violations=violated_examples(first.instances, sent, EXAMPLES),
        factors=factor_views(run, [group.id for group in first.relations], seeds)
        if len(run.settings.get("cells", ())) > 1
        else (),
    )


@dataclass(frozen=True, repr=False, eq=False)
class Result(Shown):
    """What a model answered, and how consistent that is: ``metrics``, ``answers``, ``summary``."""

    run: Run
    suite: Suite
    protocol: Protocol
    metrics: pl.DataFrame  # The metrics table: one row a number (``METRICS_SCHEMA``)
    summary: Summary  # The headline numbers, with those of the majority baseline
    baseline: pl.DataFrame = field(repr=False)  # The metrics table of the majority baseline
    notes: Sequence[str]
    temporary: TemporaryDirectory[str] | None = field(default=None)
    """The folder of a run that is not kept: it lives as long as this value."""

    def __fspath__(self) -> str:
        """The path of the run, so that a result can be passed where a run is expected."""
        return str(self.run.path)

    def printed(self, output: Output) -> Iterator[Table]:
        """The summary with the notes that the command line prints below it."""
        table = self.summary.table()
        notes = brief_notes(self.summary, self.notes, "see .notes")
        yield replace(table, notes=[*table.notes, *notes])

    @property
    def label(self) -> str:
        """What tables call the run."""
        return self.run.label

    @property
    def folder(self) -> Path | None:
        """The folder that the run is kept in; None for a temporary one."""
        return None if self.temporary else self.run.path

    @property
    def answers(self) -> pl.DataFrame:
        """The answers (``ANSWERS_SCHEMA``), one row a query; of several seeds with ``seed``."""
        if not self.run.parts:
            return self.run.answers
        parts = self.run.parts
        return pl.concat(part.answers.with_columns(seed=pl.lit(part.label)) for part in parts)

    def frame(self) -> pl.DataFrame:
        return self.metrics

    @property
    def plot(self) -> Plots:
        return Plots(self)

    def compare(self, *others: Result | Run | str | Path) -> Comparison:
        """Other runs against this one: paired differences with intervals and tests."""
        runs = distinct_runs([self, *others])
        return comparing.compare_opened(runs, self.suite, self.protocol)

    def report(self, page: str | Path) -> Path:
        """Write the run as one HTML page that needs no network; the path of the page."""
        path = path_of(page, "the page")
        label = self.label.replace("=", ":")  # LABEL=PATH ends at the first one
        keywords = {"runs": [f"{label}={self.run.path}"], "out": path}
        with TemporaryDirectory(prefix="consilience-") as folder:
            if not self.run.settings:  # a table does not name its suite
                keywords["suite"] = save_suite(self.suite, Path(folder, self.suite.name))
                keywords["protocol"] = self.protocol
            chosen = options_of(ReportOptions, keywords)
            report(chosen)
        return path


def distinct_runs(runs: Sequence[Result | Run | str | Path]) -> list[Run]:
    """The runs of results, runs and paths, each with a label that no other one has."""
    opened: list[Run] = []
    for source in runs:
        run = source.run if isinstance(source, Result) else source
        run = run if isinstance(run, Run) else Run.open(run).named_by_model()
        taken = {other.label for other in opened}
        label, at = run.label, 2
        while label in taken:
            label, at = f"{run.label} ({at})", at + 1
        opened.append(replace(run, label=label))
    return opened


@dataclass(frozen=True, slots=True)
class Plots:
    """The figures of a result, as Altair charts."""

    result: Result = field(repr=False)

    def consistency(self) -> altair.Chart:
        """Consistency with its 95 % interval: of each relation or group, or of each form."""
        view, words = self._view(), self.result.suite.words
        is_of_pairs = words.over == "group"
        rows = charts.interval_rows([view], "form" if is_of_pairs else "whole")
        rows = rows.filter(pl.col("metric").is_in([label_of(name) for name in CONSISTENCY]))
        figure = charts.interval_figure(rows, words.variant if is_of_pairs else words.group)
        return _still(figure, f"{self.result.label}: consistency")

    def _view(self) -> RunView:
        of = self.result
        return RunView(of.label, [], of.suite, of.metrics, of.summary, of.baseline)


def _still(chart: export.Spec, title: str) -> altair.Chart:
    import altair

    heading = {"text": textwrap.wrap(title, 60), "anchor": "start", "fontSize": 12}
    titled = export.in_black(chart | {"title": heading, "background": "white"})
    still: altair.Chart = altair.Chart.from_dict(titled)
    return still
