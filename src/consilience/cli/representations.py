"""analyze representations: what a model's vectors cluster by."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from consilience import suites
from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    SuiteOption,
    TrustOption,
    names_in,
    out,
    print_json,
    progress_bar,
    quiet_libraries,
    rows_of,
    warn,
)
from consilience.errors import ConsilienceError
from consilience.files import csv_of, write_whole
from consilience.metrics import measure
from consilience.models import LanguageModel, load_model
from consilience.probe import probe as ask_suite
from consilience.report.analysis import frame_table
from consilience.report.figures import Colour
from consilience.run import RunFolder, fingerprint
from consilience.suites.selection import sample_facts, select_relations
from consilience.types import Protocol, Relation
from consilience.workflow.suite import source_of
from consilience.workflow.vectors import correlations_of, drawing_of


def representations(
    model: Annotated[str, typer.Option(help="As for probe.", metavar="M")] = "packaged:smollm2",
    suite: SuiteOption = "mini",
    groups: Annotated[
        str | None, typer.Option(help="Only these relations: P36,P19.", metavar="G,G")
    ] = None,
    limit: Annotated[
        int, typer.Option(help="At most so many facts a relation, drawn by --seed.", min=1)
    ] = 100,
    layers: Annotated[
        str, typer.Option(help="0 is the embeddings, -1 the last layer: 0,6,-1.", metavar="N,N")
    ] = "-1",
    figure: Annotated[
        str | None, typer.Option(help="Draw the t-SNE of this relation, last of --layers.")
    ] = None,
    colour: Annotated[Colour, typer.Option(help="Of the figure.")] = "subject",
    figure_facts: Annotated[int, typer.Option(help="Facts in the figure.", min=1)] = 30,
    figure_format: Annotated[str, typer.Option(help="svg, png, pdf or html.")] = "svg",
    protocol: ProtocolOption = None,
    folder: Annotated[Path | None, typer.Option("--out", help="The run's folder.")] = None,
    seed: Annotated[int, typer.Option(help="For --limit, k-means and t-SNE.")] = 0,
    revision: Annotated[str | None, typer.Option(help="Of a model on the Hub.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    trust_remote_code: TrustOption = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Vectors where the object is predicted: do they cluster by pattern, or by what is known?

    Paper, Section 7.2. The run's folder gets the answers, vectors/RELATION.npy with an index,
    clusters.csv and the figure; rerun the same command to resume an interrupted run.
    """
    chosen = suites.load_suite(suite, data_dir)
    source = source_of(chosen, suite, data_dir)
    if groups is not None:
        chosen = select_relations(chosen, names_in(groups))
    chosen = sample_facts(chosen, limit, seed)
    if figure is not None:
        chosen.relation(figure)
    rules: Protocol = protocol or chosen.protocol
    load = partial(
        load_model,
        model,
        protocol=rules,
        revision=revision,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    with quiet_libraries(model):
        asked_model = load(seed=seed)
    asked: dict[str, object] = {
        "suite": chosen.name,
        "suite_digest": chosen.digest,
        "groups": [relation.id for relation in chosen.relations],
        "limit": limit,
        "seed": seed,
        "protocol": rules,
        "layers": layers,
        "model": asked_model.identity,
    }
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{chosen.name}-{Path(model).name}")
    run = RunFolder(folder or Path("runs") / f"{name}-vectors-{fingerprint(asked)[:8]}", asked)
    run.describe("suite_source", source)
    size = sum(len(each.facts) * len(each.patterns) for each in chosen.relations)
    with progress_bar("asking", size) as advance:
        answers = ask_suite(chosen, asked_model, run, progress=advance)
    metrics = measure(answers, chosen, rules)
    numbers = _layers(layers)
    special = rules != "published"
    tables = []
    with progress_bar("clustering", len(chosen.relations), "relations") as advance:
        for relation in chosen.relations:
            tables.append(_clusters(relation, asked_model, run.path, numbers, special, seed))
            advance(1)
    clusters = pl.concat(tables)
    write_whole(run.path / "clusters.csv", csv_of(clusters))
    run.finish(metrics)
    drawn = None
    if figure is not None:
        from consilience.report.figures import save_figure

        drawn = run.path / f"tsne-{figure}-{colour}.{figure_format.removeprefix('.')}"
        title = f"{model}, {chosen.name}: {figure}"
        chart = drawing_of(run.path, figure, figure_facts, colour, title, seed)
        save_figure(chart, drawn)
    correlations = correlations_of(metrics, clusters)
    _show(run, clusters, correlations, drawn, as_json)


def _layers(listed: str) -> list[int]:
    try:
        return [int(each) for each in names_in(listed)]
    except ValueError:
        raise ConsilienceError(f"no layers in '{listed}'", expected="such as 0,6,-1") from None


def _clusters(
    relation: Relation,
    model: LanguageModel,
    folder: Path,
    layers: list[int],
    special_tokens: bool,
    seed: int,
) -> pl.DataFrame:
    """Clusters of one relation's vectors; read where an earlier run has kept them."""
    from consilience.analysis.representations import (
        RelationVectors,
        cluster,
        questions,
        read_vectors,
        write_vectors,
    )
    from consilience.models.vectors import vector_array

    kept = folder / "vectors"
    if (kept / f"{relation.id}.parquet").is_file():
        return cluster(read_vectors(kept, relation.id), seed=seed)
    queries, index = questions(relation)
    array = vector_array(model, queries, layers, special_tokens=special_tokens)
    found = RelationVectors(relation.id, tuple(layers), array, index)
    write_vectors(kept, found)
    return cluster(found, seed=seed)


def _show(
    run: RunFolder,
    clusters: pl.DataFrame,
    correlations: pl.DataFrame,
    drawn: Path | None,
    as_json: bool,
) -> None:
    if as_json:
        document: dict[str, Any] = {
            "run": {**run.record, "path": str(run.path)},
            "clusters": rows_of(clusters),
            "correlations": rows_of(correlations),
            "figure": str(drawn) if drawn else None,
            "warnings": run.record["warnings"],
        }
        print_json(document)
        return
    headings = {"relation": "relation", "layer": "layer", "property": "by", "clusters": "clusters"}
    measured = {"v_measure": "V", "v_measure_shuffled": "shuffled", "ami": "AMI"}
    out.print(frame_table(clusters, "k-means, V-measure in percent", headings | measured))
    means = {"layer": "layer", "property": "by"} | measured
    ends = {"value": "r", "low": "low", "high": "high", "p": "p", "n": "n"}
    title = "Means, and Spearman's correlation of V with consistency over relations"
    out.print(frame_table(correlations, title, means | ends))
    warn(run.record["warnings"])
    if drawn:
        out.print(f"Figure: {drawn}", soft_wrap=True)
    out.print(f"Run: {run.path}", soft_wrap=True)
