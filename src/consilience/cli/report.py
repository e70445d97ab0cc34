"""report: a run, or several side by side, as one page; its figures and tables as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from consilience.analysis.examples import KINDS, about, examples
from consilience.analysis.patterns import (
    annotated_kinds,
    edit_table,
    item_table,
    pair_table,
    pattern_table,
    with_changes,
)
from consilience.cli.compare import asked_otherwise, perturbed_differences
from consilience.cli.perturb import is_perturbed, labels_of, seed_notes, task_asked
from consilience.cli.representations import correlations_of, drawing_of
from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    names_of,
    out,
    print_json,
    progress_bar,
    protocol_remark,
    seeds_of,
    suite_of,
    suite_remark,
    warn,
)
from consilience.errors import ConsilienceError
from consilience.files import texts_of, write_whole
from consilience.metrics import facts_left_out, measure, remarks
from consilience.metrics.compare import compare, few_relations
from consilience.metrics.counts import Prepared, Shared
from consilience.metrics.perturbed import form_changes, measure_perturbed
from consilience.metrics.table import is_blank
from consilience.read import read_csv
from consilience.report.charts import for_paper
from consilience.report.factpage import probe_page
from consilience.report.figures import optional, save_figure
from consilience.report.page import Page, render
from consilience.report.pairpage import ShownPairs, pair_page
from consilience.report.papersheets import perturbed_sheets, probe_sheets
from consilience.report.sheets import Sheet, save_sheet
from consilience.report.shown import Shown
from consilience.run import asked_of, git_revision, read_answers, record_of, versions
from consilience.suites.choose import select_relations
from consilience.types import METRICS_SCHEMA, Protocol

EXAMPLES = 3
"""Of each kind in the report."""

DRAWN = 30
"""Facts in the drawing of a run's vectors, as in the paper's Figure 3."""

ASKED_OF_PAIRS = {
    "task": "another task",
    "pairs": "other pairs",
    "limit": "another --limit",
    "half": "another half",
    "perturbations": "other perturbations",
}
"""What runs of perturb must have in common to be paired, and what is said if not."""

FIGURE_FORMATS = ("svg", "png", "pdf")


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, or answers tables; the first is the reference."),
    ],
    file: Annotated[
        Path | None,
        typer.Option("--out", help="The page; else report.html in the folder of the run."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="A folder for every figure as SVG, PNG and PDF.", metavar="DIR"),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the papers' tables of these runs, as CSV, Markdown and LaTeX.",
            metavar="DIR",
        ),
    ] = None,
    relation: Annotated[
        str | None, typer.Option(help="Whose wordings are shown first; else the least consistent.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(help="A name or a folder; else that of the first run.", metavar="S"),
    ] = None,
    protocol: ProtocolOption = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap and the permutations.")] = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """One page on a run, or on several side by side: numbers, figures, examples, cautions.

    It is one file that opens without a network, on a phone and on paper. docs/report.md explains
    each of its numbers.
    """
    place = _place(runs, file)
    for library in ("altair", "jinja2", "vl_convert"):
        optional(library)  # before the minutes that counting may take
    if any(is_perturbed(run) for run in runs):
        if suite or protocol or relation or data_dir:
            raise ConsilienceError(
                "--suite, --protocol, --relation or --data-dir with runs of perturb",
                todo="Leave it out.",
            )
        page, sheets, warnings = _pairs(runs, seed)
    else:
        page, sheets, warnings = _facts(runs, suite, protocol, relation, seed, data_dir)
    written = _save_figures(page, figures) if figures else []
    if tables:
        for name, sheet in sheets.items():
            written += save_sheet(sheet, tables, name)
    write_whole(place, render(page).encode())
    written = [place, *written]
    if as_json:
        record = {
            "asked": {"runs": [str(run) for run in runs]},
            "versions": versions(),
            "git": git_revision(),
        }
        files = [str(each) for each in written]
        document = {"run": record, "files": files, "warnings": warnings}
        print_json(document)
        return
    for each in written:
        out.print(f"{each}", soft_wrap=True)
    warn(warnings)


def _place(runs: Sequence[Path], file: Path | None) -> Path:
    for run in runs:
        if not run.exists():
            raise ConsilienceError("no such run", where=str(run), todo="Check the path.")
    if file is not None:
        if not file.parent.is_dir():
            raise ConsilienceError("no such folder", where=str(file.parent), todo="Make it first.")
        return file
    if len(runs) == 1 and runs[0].is_dir():
        return runs[0] / "report.html"
    raise ConsilienceError(
        "several runs, or a table of answers, without --out", todo="Name the page: --out F.html."
    )


def _facts(
    runs: Sequence[Path],
    suite: str | None,
    protocol: Any,
    relation: str | None,
    seed: int,
    data_dir: Path | None,
) -> tuple[Page, dict[str, Sheet], list[str]]:
    """Runs of probe, or answers tables, on the same suite; of its relations those asked."""
    whole, rules = suite_of(runs[0], suite, protocol, data_dir)
    answers = {
        name: read_answers(run) for name, run in zip(names_of(list(runs)), runs, strict=True)
    }
    groups = set[str]().union(*(table["group"].unique() for table in answers.values()))
    groups = groups.union(*(asked_of(run).get("groups") or () for run in runs))
    asked = [each.id for each in whole.relations if each.id in groups]
    chosen = select_relations(whole, asked) if asked else whole
    if relation is not None:
        chosen.relation(relation)
    shared = Shared()
    first, reference = next(iter(answers)), None
    shown, differences = [], []
    with progress_bar("counting", 2 * len(runs) - 1, "tables") as advance:
        for name, run in zip(answers, runs, strict=True):
            changed = suite_remark(run, whole)
            table = Prepared(answers[name], chosen, shared)
            shown.append(_shown(name, run, table, rules, seed, changed))
            advance(1)
            if reference is None:
                reference = table
                continue
            differences.append(compare({first: reference, name: table}, chosen, rules, seed))
            advance(1)
    compared = pl.concat(differences) if differences else None
    kinds = {name: about(name) for name in KINDS}
    notes = asked_otherwise(list(answers), [asked_of(run) for run in runs])
    if compared is not None:
        notes += few_relations(compared)
    page = probe_page(chosen, rules, shown, compared, kinds, notes, relation)
    warnings = notes + _named(shown)
    return page, probe_sheets({each.name: each.metrics for each in shown}, warnings), warnings


def _named(shown: Sequence[Shown] | Sequence[ShownPairs]) -> list[str]:
    """The warnings of all runs."""
    return [f"{run.name}: {each}" for run in shown for each in run.warnings]


def _shown(
    name: str,
    run: Path,
    table: Prepared,
    protocol: Protocol,
    seed: int,
    changed: Sequence[str],
) -> Shown:
    answers, suite, record = table.answers, table.suite, record_of(run)
    kept = run / "metrics.csv"
    other: Protocol = "strict" if protocol == "published" else "published"
    by_other = measure(table, suite, other, seed)
    table.forget(other)
    metrics = measure(table, suite, protocol, seed)
    if kept.is_file():
        measured = texts_of(read_csv(kept, schema=METRICS_SCHEMA))
        metrics = metrics.vstack(measured.filter(pl.col("metric") == "flips"))
    known = "excluded" in answers.columns
    reason = pl.col("excluded") if known else pl.lit(None, pl.String)
    blank = answers.filter(is_blank()).with_columns(excluded=reason.fill_null("no answer"))
    without = blank.group_by("group", "excluded", maintain_order=True).len()
    noted = [*changed, *_unfinished(record), *record.get("warnings", [])]
    noted += [*protocol_remark(run, protocol), *remarks(answers, metrics, suite, protocol)]
    pairs = pair_table(table, suite, protocol, seed)
    vectors, drawing = _vectors(name, run, metrics, seed)
    return Shown(
        name=name,
        record=record,
        metrics=metrics,
        by_other=by_other,
        patterns=with_changes(pattern_table(table, suite, protocol), pairs),
        pairs=pairs,
        edits=edit_table(table, suite, protocol, annotated_kinds(suite), seed),
        items=item_table(table, suite, protocol),
        examples=examples(table, suite, list(KINDS), EXAMPLES),
        excluded=without,
        warnings=list(dict.fromkeys(noted)),
        vectors=vectors,
        drawing=drawing,
        left_out=facts_left_out(answers, metrics, suite, protocol),
    )


def _unfinished(record: Mapping[str, Any]) -> list[str]:
    """What to say of a run that has not ended; nothing of a table of answers."""
    if not record or record.get("finished"):
        return []
    return ["not finished: the numbers are of what is answered; the same command goes on with it"]


def _vectors(
    name: str, run: Path, metrics: pl.DataFrame, seed: int
) -> tuple[pl.DataFrame | None, Any]:
    """What `analyze representations` left in a run's folder: numbers, and one relation drawn."""
    if not (run / "clusters.csv").is_file():
        return None, None
    clusters = texts_of(read_csv(run / "clusters.csv"))
    drawn = str(clusters["relation"][0])
    drawing = drawing_of(run, drawn, DRAWN, "subject", f"{name}: {drawn}", seed)
    return correlations_of(metrics, clusters), drawing


def _pairs(runs: Sequence[Path], seed: int) -> tuple[Page, dict[str, Sheet], list[str]]:
    """Runs of perturb, each of one seed or of several."""
    if not all(is_perturbed(run) for run in runs):
        raise ConsilienceError("runs of perturb, and others", expected="runs of one kind on a page")
    named = dict(zip(names_of(list(runs)), runs, strict=True))
    shown = []
    for name, run in named.items():
        places = seeds_of(run)
        answers = [read_answers(place) for place in places]
        records = [record_of(place) for place in places]
        metrics = measure_perturbed(answers, labels_of(task_asked(run)), seed)
        names = [place.name for place in places] if len(places) > 1 else [""]
        warnings = seed_notes(
            {
                name: [*_unfinished(record), *record["warnings"]]
                for name, record in zip(names, records, strict=True)
            }
        )
        changes = form_changes(answers, labels_of(task_asked(run)), seed)
        shown.append(
            ShownPairs(name, records, task_asked(run), metrics, _changed(run), warnings, changes)
        )
    why = {name: _unlike(runs[0], run) for name, run in named.items()}
    notes = [
        f"{name} has no differences from {next(iter(named))}: {why[name]}"
        for name in named
        if why[name]
    ]
    alike = {name: run for name, run in named.items() if not why[name]}
    compared = None
    if len(alike) > 1:
        compared, left = perturbed_differences(alike, seed)
        notes += left
    page = pair_page(shown, compared, notes)
    warnings = notes + _named(shown)
    return page, perturbed_sheets({each.name: each.metrics for each in shown}, warnings), warnings


def _changed(run: Path) -> pl.DataFrame:
    """The answers that changed; those of one seed stand in the folder of all."""
    for folder, seed in ((run, None), (run.resolve().parent, run.resolve().name)):
        file = folder / "inconsistent.csv"
        if file.is_file():
            found = texts_of(read_csv(file, infer_schema=False))
            if seed is None:
                return found
            if seed in {each.name for each in folder.glob("seed-*")}:
                return found.filter(pl.col("seed") == seed)
    raise ConsilienceError(
        "no inconsistent.csv",
        where=str(run),
        todo="Of one seed it is in the folder of all; a run that was stopped goes on with the same "
        "`consilience perturb` command.",
    )


def _unlike(first: Path, run: Path) -> str:
    """Why a run has no differences from the first; blank where it has."""
    one, other = (asked_of(seeds_of(each)[0]) for each in (first, run))
    found = [what for name, what in ASKED_OF_PAIRS.items() if one.get(name) != other.get(name)]
    if len(seeds_of(first)) != len(seeds_of(run)):
        found.append("another number of seeds")
    return ", ".join(found)


def _save_figures(page: Page, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in page.figures:
        chart = for_paper(figure.chart, figure.title)
        for suffix in FIGURE_FORMATS:
            written.append(folder / f"{figure.id}.{suffix}")
            save_figure(chart, written[-1])
    return written
