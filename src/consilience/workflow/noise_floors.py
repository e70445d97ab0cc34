"""The noise floor of a run: of a model that runs here on request, of a server by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from consilience.core.errors import ConsilienceError
from consilience.core.process import Watch
from consilience.core.text import counted
from consilience.runs.folder import RunFolder
from consilience.server_noise import AskedGroup, sample, sample_size, server_noise_floor, variations
from consilience.workflow.counting import noise_floor_of
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.setup import Loaded, Setup

if TYPE_CHECKING:
    from consilience.endpoints.client import Client


def noise_floor_of_run(
    setup: Setup,
    loaded: Loaded,
    folder: RunFolder,
    tables: Mapping[str, pl.DataFrame],
    watch: Watch,
) -> pl.DataFrame | None:
    """Rows of the metrics table on a sample that is asked again; None without one.

    ``tables``: the answers of the run to each group.
    """
    options = setup.options
    if (client := getattr(loaded.model, "client", None)) is not None:
        groups = [
            AskedGroup(_as_written(options, answers), partial(_ask_again, options, loaded, group))
            for group, answers in tables.items()
        ]
        return noise_of_server(groups, client, folder, options, setup.suite.name, watch)
    if not (options.noise_floor and loaded.noise_floor):
        return None
    with watch.loading(""), watch.steps("noise floor", None, setup.unit) as advance:
        return loaded.noise_floor(advance)


def _ask_again(
    options: ProbeOptions, loaded: Loaded, group: str, items: Sequence[str], variants: Sequence[int]
) -> pl.DataFrame:
    """The answers to some items of a group in some variants."""
    return _as_written(options, loaded.ask(group, items, variants))


def _as_written(options: ProbeOptions, answers: pl.DataFrame) -> pl.DataFrame:
    """Answers before a judge merged them, because which ones are merged depends on all of them."""
    if options.equivalence is None or "text" not in answers.columns:
        return answers
    return answers.with_columns(option=None, answer="text")


def noise_of_server(
    groups: Sequence[AskedGroup],
    client: Client,
    folder: RunFolder,
    options: ProbeOptions,
    suite: str,
    watch: Watch,
) -> pl.DataFrame | None:
    """Rows of the metrics table on a sample of prompts that a server gets again.

    Those of a complete run are read and not measured again, unless ``--noise-floor`` wants more
    prompts. Without ``--noise-floor``, a limit or a server that fails ends the run with a note.
    """
    prompts = sum(group.answers.height for group in groups)
    ways = len(variations(client))
    size = sample_size(prompts, ways, options.noise_floor)
    parts = sample(groups, size, options.seed)
    sampled = sum(part.first.height for part in parts)
    known = noise_floor_of(folder.path)
    if known is not None and known.height:
        complete = known.select((pl.col("n") + pl.col("n_excluded")).min() >= sampled).item()
        if complete or not options.noise_floor:
            return known
    if not parts:
        if options.noise_floor is None:
            few = f"a tenth of {counted(prompts, 'prompt')} is too few to measure the noise floor"
            folder.note([f"{few} of the server; --noise-floor 30 measures it"])
        return None
    folder.begin("noise floor")
    try:
        again = sampled * ways
        with watch.steps("noise floor", again, "prompts") as advance:
            return server_noise_floor(parts, client, suite, advance)
    except ConsilienceError as error:
        if options.noise_floor:
            raise
        folder.note([f"the noise floor of the server was not measured: {error}"])
        return None
