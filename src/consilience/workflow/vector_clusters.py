"""What a model's vectors cluster by, and a drawing of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience.ask import ask_suite
from consilience.choices import Colour, Protocol
from consilience.files import csv_of, write_whole
from consilience.metrics.measure import measure
from consilience.models import LanguageModel
from consilience.options import Output, shared_fields
from consilience.report.analysis_tables import cluster_tables
from consilience.report.shown import Shown, rows_of
from consilience.report.table import Table
from consilience.run_folder import RunFolder
from consilience.types import Relation
from consilience.watch import SILENT, Watch
from consilience.workflow.fact_setup import fact_setup
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.run_options import VectorOptions
from consilience.workflow.run_settings import default_folder

SETTINGS = ("suite", "suite_digest", "groups", "limit", "seed", "protocol", "model")
"""The settings of a probe that decide vectors too."""


@dataclass(frozen=True, slots=True)
class VectorClusters(Shown):
    """What the vectors of a run cluster by."""

    clusters: pl.DataFrame
    """One row a relation, layer and property (``CLUSTERS_SCHEMA``)."""
    correlations: pl.DataFrame
    """One row a layer and property: means, and the correlation with consistency."""
    figure: Path | None
    """The figure, where one was drawn."""
    record: Mapping[str, Any]
    """Settings, versions and the like, and the run's path."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader should know."""
        notes: Sequence[str] = self.record["warnings"]
        return notes

    def printed(self, output: Output) -> Iterator[Table | str]:
        """What vectors cluster by, and where the figure and the run are."""
        yield from cluster_tables(self.clusters, self.correlations)
        if self.figure:
            yield f"Figure: {self.figure}"
        yield f"Run: {self.record['path']}"

    def document(self) -> dict[str, Any]:
        """The tables as rows."""
        tables = {"clusters": self.clusters, "correlations": self.correlations}
        document = {name: rows_of(frame) for name, frame in tables.items()}
        figure = str(self.figure) if self.figure else None
        return {"run": self.record, **document, "figure": figure, "warnings": self.notes}


def cluster_representations(options: VectorOptions, watch: Watch = SILENT) -> VectorClusters:
    """Ask a model, keep its vectors where the object is predicted, and cluster them."""
    setup = fact_setup(ProbeOptions(**shared_fields(options, ProbeOptions)), watch)
    suite, protocol = setup.suite, setup.protocol
    if options.draw is not None:
        suite.relation(options.draw)  # an unknown one raises
    loaded = setup.load()
    model, settings = loaded.model, {name: loaded.settings[name] for name in SETTINGS}
    settings["layers"] = ",".join(map(str, options.layers))
    run = RunFolder(options.out or default_folder(options.model, settings, "-vectors"), settings)
    loaded.describe(run)
    with watch.steps("asking", sum(setup.groups.values()), setup.unit) as advance:
        answers = ask_suite(suite, model, run, progress=advance)
    metrics = measure(answers, suite, protocol)
    tables = []
    with watch.steps("clustering", len(suite.relations), "relations") as advance:
        for relation in suite.relations:
            tables.append(_clusters(relation, model, run.path, options, protocol))
            advance(1)
    clusters = pl.concat(tables)
    write_whole(run.path / "clusters.csv", csv_of(clusters))
    run.finish(metrics)
    figure = None if options.draw is None else _draw(run.path, suite.name, options)
    record = {**run.record, "path": str(run.path)}
    return VectorClusters(clusters, correlations_of(metrics, clusters), figure, record)


def _clusters(
    relation: Relation,
    model: LanguageModel,
    run: Path,
    options: VectorOptions,
    protocol: Protocol,
) -> pl.DataFrame:
    """Clusters of one relation's vectors; an earlier run's vectors are read."""
    from consilience.analysis.representations import (
        RelationVectors,
        cluster,
        questions,
        read_vectors,
        write_vectors,
    )
    from consilience.models.vectors import vector_array

    folder = run / "vectors"
    if (folder / f"{relation.id}.parquet").is_file():
        return cluster(read_vectors(folder, relation.id), seed=options.seed)
    queries, index = questions(relation)
    layers, has_special_tokens = list(options.layers), protocol != "published"
    array = vector_array(model, queries, layers, special_tokens=has_special_tokens)
    vectors = RelationVectors(relation.id, tuple(layers), array, index)
    write_vectors(folder, vectors)
    return cluster(vectors, seed=options.seed)


def _draw(run: Path, suite: str, options: VectorOptions) -> Path:
    """Draw the relation of the figure; the file's path."""
    from consilience.report.figures import save_figure

    suffix = options.draw_format.removeprefix(".")
    path = run / f"tsne-{options.draw}-{options.color_by}.{suffix}"
    title = f"{options.model}, {suite}: {options.draw}"
    facts, colour = options.draw_facts, options.color_by
    save_figure(drawing_of(run, str(options.draw), facts, colour, title, options.seed), path)
    return path


def correlations_of(metrics: pl.DataFrame, clusters: pl.DataFrame) -> pl.DataFrame:
    """Spearman's correlation of consistency with V-measure over relations, as in Section 7.2."""
    from consilience.analysis.representations import spearman_with

    named = (pl.col("metric") == "consistency") & (pl.col("subset") == "all")
    consistency = dict(metrics.filter(named).select("group", "value").iter_rows())
    rows = []
    for (layer, name), table in clusters.group_by(["layer", "property"], maintain_order=True):
        v_measure = dict(table.select("relation", "v_measure").iter_rows())
        r = spearman_with(consistency, v_measure)
        means = table.select(pl.col("v_measure", "v_measure_shuffled", "ami").fill_nan(None).mean())
        row = {"layer": layer, "property": name, **means.row(0, named=True)}
        rows.append(row | {"value": r.value, "low": r.low, "high": r.high, "p": r.p, "n": r.n})
    return pl.DataFrame(rows)


def drawing_of(
    folder: Path, relation: str, facts: int, colour: Colour, title: str, seed: int
) -> Any:
    """The t-SNE of a relation's first facts, at the last layer that a run has vectors of."""
    from consilience.analysis.representations import read_vectors, tsne
    from consilience.report.figures import tsne_figure

    vectors = read_vectors(folder / "vectors", relation).first(facts)
    last = vectors.array[:, -1]
    readable = ~np.isnan(last).any(axis=1)
    x, y = tsne(last[readable], seed).T
    table = vectors.index.filter(pl.Series(readable)).with_columns(x=pl.Series(x), y=pl.Series(y))
    return tsne_figure(table, colour, title)
