"""The noise floor of a run: of a model that runs here on request, of a server always."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from consilience.ask import ask
from consilience.errors import ConsilienceError
from consilience.models import LanguageModel
from consilience.noise import noise_floor
from consilience.run_folder import RunFolder
from consilience.server_noise import AskedGroup, sample, sample_size, server_noise_floor, variations
from consilience.types import Relation, Suite
from consilience.watch import Watch
from consilience.workflow.counting import noise_floor_of
from consilience.workflow.probe_options import ProbeOptions

if TYPE_CHECKING:
    from consilience.endpoints.client import Client


def fact_noise_floor(
    options: ProbeOptions,
    suite: Suite,
    model: LanguageModel,
    load: Callable[..., LanguageModel] | None,
    folder: RunFolder,
    answers: pl.DataFrame,
    watch: Watch,
) -> pl.DataFrame | None:
    """Rows of the metrics table on a sample of facts that is asked again; None without one.

    ``load`` loads the model in another precision. ``answers``: those of the run.
    """
    if (client := getattr(model, "client", None)) is not None:
        by_id = {relation.id: relation for relation in suite.relations}
        groups = [
            AskedGroup(of_group, partial(_ask_facts, by_id[str(name)], model, options))
            for (name,), of_group in answers.group_by("group", maintain_order=True)
        ]
        return noise_of_server(groups, client, folder, options, suite.name, watch)
    if not options.noise_floor:
        return None
    is_exact = model.identity.get("dtype") == "float32"
    half = partial(load, dtype="bfloat16", fast=False) if load and is_exact else None
    with watch.loading(""), watch.steps("noise floor", None, "queries") as advance:
        return noise_floor(
            suite,
            model,
            whole_vocabulary=options.candidates == "vocabulary",
            in_half_precision=half,
            seed=options.seed,
            progress=advance,
        )


def _ask_facts(
    relation: Relation,
    model: LanguageModel,
    options: ProbeOptions,
    items: Sequence[str],
    variants: Sequence[int],
) -> pl.DataFrame:
    """The answers to some facts of a relation in some patterns."""
    facts = tuple(fact for fact in relation.facts if fact.item in items)
    patterns = tuple(relation.patterns[at] for at in variants)
    return ask(
        replace(relation, facts=facts, patterns=patterns),
        model,
        options.suite,
        whole_vocabulary=options.candidates == "vocabulary",
        keep_scores=options.keep_scores,
    )


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
    size = sample_size(prompts, is_requested=options.noise_floor)
    parts = sample(groups, size, options.seed)
    sampled = sum(part.first.height for part in parts)
    known = noise_floor_of(folder.path)
    if known is not None and known.height:
        complete = known.select((pl.col("n") + pl.col("n_excluded")).min() >= sampled).item()
        if complete or not options.noise_floor:
            return known
    folder.begin("noise floor")
    try:
        again = sampled * len(variations(client))
        with watch.steps("noise floor", again, "prompts") as advance:
            return server_noise_floor(parts, client, suite, advance)
    except ConsilienceError as error:
        if options.noise_floor:
            raise
        folder.note([f"the noise floor of the server was not measured: {error}"])
        return None
