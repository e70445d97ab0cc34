"""analyze: why a model answers as it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from consilience import suites
from consilience.analysis.examples import KINDS, about, reply_table
from consilience.analysis.examples import examples as find_examples
from consilience.analysis.knowledge import correlation_table, size_correlations, size_table
from consilience.analysis.patterns import (
    annotated_kinds,
    edit_table,
    pair_table,
    pattern_table,
    with_changes,
)
from consilience.cli.representations import representations
from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    names_in,
    out,
    print_json,
    rows_of,
    warn,
    without_nan,
)
from consilience.cli.tasks import tasks
from consilience.errors import ConsilienceError
from consilience.files import csv_of, write_whole
from consilience.metrics import measure
from consilience.report.analysis import example_table, frame_table, matrix_tables
from consilience.run import Run, open_runs
from consilience.suites.selection import select_relations
from consilience.types import Protocol, Suite
from consilience.workflow.suite import suite_notes, suite_of

app = typer.Typer(no_args_is_help=True, help="Why: wordings, edits, examples, knowledge, vectors.")

app.command()(representations)
app.command()(tasks)

RunArgument = Annotated[Path, typer.Argument(help="The folder of a run, or an answers table.")]
RunSuite = Annotated[
    str | None, typer.Option("--suite", help="A name or a folder; else that of the run.")
]
Groups = Annotated[str | None, typer.Option(help="Only these relations: P36,P19.", metavar="G,G")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the table here, as CSV.")]
Seed = Annotated[int, typer.Option(help="Of the bootstrap and the permutations.")]

MULTIPLIERS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


@app.command()
def patterns(
    run: RunArgument,
    suite: RunSuite = None,
    groups: Groups = None,
    protocol: ProtocolOption = None,
    file: Out = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Which wording: how often each two patterns agree, and which agree with no other.

    A pattern stands apart if its highest agreement with another is below the mean agreement among
    the others. "points": its accuracy minus that of the base pattern, on the same facts. --out gets
    every pair of patterns: agreement and change of accuracy, with intervals and tests.
    """
    opened = Run.open(run)
    chosen, rules = _suite(opened, suite, protocol, data_dir)
    answers = opened.answers
    if groups is not None:
        chosen = select_relations(chosen, names_in(groups))
        answers = answers.filter(pl.col("group").is_in([each.id for each in chosen.relations]))
    pairs = pair_table(answers, chosen, rules, seed)
    table = with_changes(pattern_table(answers, chosen, rules), pairs)
    _write(file, pairs)
    if as_json:
        _print_json({"patterns": rows_of(table), "pairs": rows_of(pairs)})
        return
    for shown in matrix_tables(pairs, table):
        out.print(shown)


@app.command()
def edits(
    run: RunArgument,
    suite: RunSuite = None,
    protocol: ProtocolOption = None,
    derive: Annotated[
        bool, typer.Option("--derive", help="Derive how patterns differ, with spaCy.")
    ] = False,
    file: Out = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Which edit: pairs of patterns that differ in a way, against the relation's other pairs.

    By the suite's own edges; with --derive by a dependency parser, with the paraphrase types of the
    paper's Appendix B. Means over relations that have both kinds of pairs, tested over these.
    """
    opened = Run.open(run)
    chosen, rules = _suite(opened, suite, protocol, data_dir)
    kinds: dict[str, Any] = annotated_kinds(chosen)
    if derive:
        from consilience.analysis.paraphrases import derived_kinds
        from consilience.analysis.syntax import load_parser

        kinds = derived_kinds(chosen, load_parser())
    table = edit_table(opened.answers, chosen, rules, kinds, seed)
    if table.is_empty():
        raise ConsilienceError(
            f"the suite '{chosen.name}' does not say how its patterns differ",
            todo="Derive it: --derive.",
        )
    _write(file, table)
    if as_json:
        _print_json({"edits": rows_of(table)})
        return
    headings = {
        "kind": "patterns that differ in",
        "with_it": "agree",
        "without_it": "others",
        "difference": "points",
        "low": "low",
        "high": "high",
        "p_holm": "p",
        "relations": "relations",
        "pairs": "pairs",
    }
    out.print(frame_table(table, f"{chosen.name}, protocol {rules}: edits, in percent", headings))


@app.command()
def examples(
    run: RunArgument,
    suite: RunSuite = None,
    kind: Annotated[str | None, typer.Option(help=f"One of: {', '.join(KINDS)}; else all.")] = None,
    limit: Annotated[int, typer.Option(help="So many of each kind.", min=1)] = 5,
    file: Out = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """The items that tell most: right here and wrong there, always wrong alike, other golds, ...

    --out gets a row for each reply of each item.
    """
    opened = Run.open(run)
    chosen, _ = _suite(opened, suite, None, data_dir)
    found = find_examples(opened.answers, chosen, [kind] if kind else list(KINDS), limit)
    _write(file, reply_table(found))
    if as_json:
        rows = [asdict(example) for every in found.values() for example in every]
        for row in rows:
            row["other_golds"] = sorted(row["other_golds"])
        _print_json({"examples": without_nan(rows)})
        return
    for each, every in found.items():
        title = about(each) if every else f"{about(each)}: none"
        out.print(example_table(every, title))


@app.command()
def knowledge(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of runs, or answers tables; LABEL=RUN names one.")
    ],
    suite: RunSuite = None,
    protocol: ProtocolOption = None,
    sizes: Annotated[
        str | None,
        typer.Option(help="What each run's model was trained on: 1M,10M,1B.", metavar="N,N"),
    ] = None,
    file: Out = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Do models answer alike where they know? Correlations over relations (paper, Section 6.2).

    With --sizes also over runs: what more training data gives (Table 4). --out gets the
    correlations over relations.
    """
    metrics = {}
    for run in open_runs(runs):
        chosen, rules = _suite(run, suite, protocol, data_dir)
        metrics[run.label] = measure(run.answers, chosen, rules, seed)
    correlations = correlation_table(metrics)
    _write(file, correlations)
    found: dict[str, Any] = {"correlations": rows_of(correlations)}
    if sizes is not None:
        by_size = size_table(metrics, [_number(each) for each in names_in(sizes)])
        over_runs = size_correlations(by_size)
        found |= {"sizes": rows_of(by_size), "size_correlations": rows_of(over_runs)}
    if as_json:
        _print_json(found)
        return
    ends = {"low": "low", "high": "high", "p": "p", "n": "n"}
    first = {"run": "run", "x": "of", "y": "with", "method": "method", "value": "r"}
    out.print(frame_table(correlations, "Over relations, times 100", first | ends))
    if sizes is not None:
        shown = by_size.with_columns(pl.col("size").map_elements(_short, pl.String))
        headings = {"run": "run", "size": "trained on", "accuracy": "accuracy"}
        headings |= {"consistency": "consistency", "corrected_consistency": "corrected"}
        headings |= {"consistent_accuracy": "consistent-acc"}
        out.print(frame_table(shown, "By size of the training data, in percent", headings))
        title = "Spearman's correlation with the size, times 100"
        out.print(frame_table(over_runs, title, {"metric": "metric", "value": "r"} | ends))


@app.command()
def syntax(
    suite: Annotated[str, typer.Argument(help="A name or a folder.")],
    file: Out = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """How patterns differ as a parser reads them, held against the suite's own edges (Section 6.3).

    Directed edges: how many are the same, Cohen's kappa, and what only one of them has; then how
    many pairs with the base pattern are of each paraphrase type (Appendix B). Needs the extra
    `syntax`.
    """
    from consilience.analysis.paraphrases import PARAPHRASE_TYPES, paraphrase_types
    from consilience.analysis.syntax import agreement_with_released, derive_edges, load_parser

    parser = load_parser()
    chosen = suites.load_suite(suite, data_dir)
    derived = {each.id: derive_edges(each, parser) for each in chosen.relations}
    table = agreement_with_released(chosen, derived)
    types = [
        found
        for each in chosen.relations
        for pair, found in paraphrase_types(each, parser).items()
        if pair[0] == 0
    ]
    counts = pl.DataFrame(
        {
            "type": list(PARAPHRASE_TYPES),
            "pairs": [sum(name in found for found in types) for name in PARAPHRASE_TYPES],
        }
    ).with_columns(share=pl.col("pairs") / max(1, len(types)))
    _write(file, table)
    if as_json:
        _print_json({"edges": rows_of(table), "types": rows_of(counts)})
        return
    headings = {"attribute": "attribute", "n": "directed edges", "same": "same", "kappa": "kappa"}
    headings |= {"both": "in both", "only_released": "released", "only_derived": "derived"}
    overall = table.filter(pl.col("group") == "MICRO")
    out.print(frame_table(overall, f"{chosen.name}: released and derived edges", headings))
    title = f"{chosen.name}: {len(types)} pairs with a base pattern, by paraphrase type"
    out.print(frame_table(counts, title, {"type": "type", "pairs": "pairs", "share": "percent"}))


def _suite(
    run: Run, name: str | None, protocol: Protocol | None, data_dir: Path | None
) -> tuple[Suite, Protocol]:
    """The suite and the protocol of a run; says where the suite has changed since."""
    suite, rules = suite_of(run, name, protocol, data_dir)
    warn(suite_notes(run, suite))
    return suite, rules


def _number(text: str) -> float:
    """``10M`` is ten millions."""
    unit = MULTIPLIERS.get(text[-1:].lower(), 1)
    try:
        return float(text.rstrip("kKmMbBtT")) * unit
    except ValueError:
        raise ConsilienceError(f"no number in '{text}'", expected="such as 1000000 or 1M") from None


def _short(number: float) -> str:
    """Ten millions are ``10M``."""
    for unit, size in reversed(MULTIPLIERS.items()):
        if number >= size:
            return f"{number / size:g}{unit.upper()}"
    return f"{number:g}"


def _write(file: Path | None, table: pl.DataFrame) -> None:
    if file:
        write_whole(file, csv_of(table))


def _print_json(document: Mapping[str, Any]) -> None:
    print_json(document)
