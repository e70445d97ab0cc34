"""report: a run, or several side by side, as one page; its figures and tables as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
)
from consilience.cli.compare import asked_otherwise, perturbed_differences
from consilience.cli.perturb import is_perturbed, labels_of, seeds_of, task_asked
from consilience.cli.representations import correlations_of, drawing_of
from consilience.cli.shared import AsJson, DataDir, ProtocolOption, names_of, out, suite_of
from consilience.errors import ConsilienceError
from consilience.metrics import measure, remarks
from consilience.metrics.compare import compare
from consilience.metrics.perturbed import measure_perturbed
from consilience.report.charts import for_paper
from consilience.report.factpage import probe_page
from consilience.report.figures import save_figure
from consilience.report.page import Page, render
from consilience.report.pairpage import ShownPairs, pair_page
from consilience.report.papersheets import perturbed_sheets, probe_sheets
from consilience.report.sheets import Sheet, save_sheet
from consilience.report.shown import Shown
from consilience.run import asked_of, read_answers, record_of, versions, write_whole
from consilience.suites.choose import select_relations
from consilience.types import METRICS_SCHEMA, Protocol, Suite

EXAMPLES = 3
"""Of each kind in the report."""

DRAWN = 30
"""Facts in the drawing of a run's vectors, as in the paper's Figure 3."""

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
    place = file or _place(runs)
    if any(is_perturbed(run) for run in runs):
        if suite or protocol or relation or data_dir:
            raise ConsilienceError(
                "--suite, --protocol, --relation or --data-dir with runs of perturb",
                todo="Leave it out.",
            )
        page, sheets = _pairs(runs, seed)
    else:
        page, sheets = _facts(runs, suite, protocol, relation, seed, data_dir)
    write_whole(place, render(page).encode())
    written = [place]
    if figures:
        written += _save_figures(page, figures)
    if tables:
        for name, sheet in sheets.items():
            written += save_sheet(sheet, tables, name)
    if as_json:
        record = {"asked": {"runs": [str(run) for run in runs]}, "versions": versions()}
        print(json.dumps({"run": record, "files": [str(each) for each in written]}))
        return
    for each in written:
        out.print(f"{each}", soft_wrap=True)


def _place(runs: Sequence[Path]) -> Path:
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
) -> tuple[Page, dict[str, Sheet]]:
    """Runs of probe, or answers tables, on the same suite."""
    chosen, rules = suite_of(runs[0], suite, protocol, data_dir)
    whole = [each.id for each in chosen.relations]
    answers = {
        name: read_answers(run) for name, run in zip(names_of(list(runs)), runs, strict=True)
    }
    groups = set[str]().union(*(table["group"] for table in answers.values()))
    chosen = select_relations(chosen, [each for each in whole if each in groups] or whole)
    if relation is not None:
        chosen.relation(relation)
    shown = [
        _shown(name, run, answers[name], chosen, rules, seed)
        for name, run in zip(answers, runs, strict=True)
    ]
    compared = compare(answers, chosen, rules, seed) if len(runs) > 1 else None
    kinds = {name: about(name) for name in KINDS}
    notes = asked_otherwise(list(answers), [asked_of(run) for run in runs])
    page = probe_page(chosen, whole, rules, shown, compared, kinds, notes, relation)
    return page, probe_sheets({each.name: each.metrics for each in shown})


def _shown(
    name: str, run: Path, answers: pl.DataFrame, suite: Suite, protocol: Protocol, seed: int
) -> Shown:
    record = record_of(run)
    kept = run / "metrics.csv"
    metrics = measure(answers, suite, protocol, seed)
    other: Protocol = "strict" if protocol == "published" else "published"
    if kept.is_file():
        measured = pl.read_csv(kept, schema=METRICS_SCHEMA)
        metrics = metrics.vstack(measured.filter(pl.col("metric") == "flips"))
    without = pl.DataFrame(schema={"group": pl.String, "excluded": pl.String, "len": pl.UInt32})
    if "excluded" in answers.columns:
        reasons = answers.drop_nulls("excluded")
        without = reasons.group_by("group", "excluded", maintain_order=True).len()
    noted = [*record.get("warnings", []), *remarks(answers, metrics, suite, protocol)]
    vectors, drawing = _vectors(name, run, metrics, seed)
    return Shown(
        name=name,
        record=record,
        metrics=metrics,
        by_other=measure(answers, suite, other, seed),
        patterns=pattern_table(answers, suite, protocol),
        pairs=pair_table(answers, suite, protocol, seed),
        edits=edit_table(answers, suite, protocol, annotated_kinds(suite), seed),
        items=item_table(answers, suite, protocol),
        examples=examples(answers, suite, list(KINDS), EXAMPLES),
        excluded=without,
        warnings=list(dict.fromkeys(noted)),
        vectors=vectors,
        drawing=drawing,
    )


def _vectors(
    name: str, run: Path, metrics: pl.DataFrame, seed: int
) -> tuple[pl.DataFrame | None, Any]:
    """What `analyze representations` left in a run's folder: numbers, and one relation drawn."""
    if not (run / "clusters.csv").is_file():
        return None, None
    clusters = pl.read_csv(run / "clusters.csv")
    drawn = str(clusters["relation"][0])
    drawing = drawing_of(run, drawn, DRAWN, "subject", f"{name}: {drawn}", seed)
    return correlations_of(metrics, clusters, seed), drawing


def _pairs(runs: Sequence[Path], seed: int) -> tuple[Page, dict[str, Sheet]]:
    """Runs of perturb, each of one seed or of several."""
    if not all(is_perturbed(run) for run in runs):
        raise ConsilienceError("runs of perturb, and others", expected="runs of one kind on a page")
    shown = []
    for name, run in zip(names_of(list(runs)), runs, strict=True):
        places = seeds_of(run)
        answers = [read_answers(place) for place in places]
        changed = pl.read_csv(run / "inconsistent.csv", infer_schema=False)
        records = [record_of(place) for place in places]
        metrics = measure_perturbed(answers, labels_of(task_asked(run)), seed)
        shown.append(ShownPairs(name, records, task_asked(run), metrics, changed))
    compared = perturbed_differences(list(runs), seed) if _comparable(runs) else None
    return pair_page(shown, compared), perturbed_sheets({each.name: each.metrics for each in shown})


def _comparable(runs: Sequence[Path]) -> bool:
    """Whether all were asked the same pairs in the same forms with as many seeds."""
    asked = {run: asked_of(seeds_of(run)[0]) for run in runs}
    same = ("task", "pairs", "limit", "half", "perturbations")
    kinds = {
        json.dumps([len(seeds_of(run)), *(each[name] for name in same)])
        for run, each in asked.items()
    }
    return len(runs) > 1 and len(kinds) == 1


def _save_figures(page: Page, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in page.figures:
        chart = for_paper(figure.chart, figure.title)
        for suffix in FIGURE_FORMATS:
            written.append(folder / f"{figure.id}.{suffix}")
            save_figure(chart, written[-1])
    return written
