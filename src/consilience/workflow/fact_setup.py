"""The setup of a run of facts: groups, facts and patterns, and how a model is asked them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

import polars as pl

from consilience import suites
from consilience.ask import Progress, ask, bound_notes, query_counts
from consilience.asking.planning import SAMPLED_ITEMS, evenly, spread
from consilience.core.errors import ConsilienceError, Loading
from consilience.core.process import SILENT, Watch
from consilience.models import LanguageModel, load_model
from consilience.noise import noise_floor
from consilience.runs.folder import RunFolder
from consilience.suites.facts import (
    PATTERN_PERTURBATIONS,
    filter_vocabulary,
    replace_facts,
    sample_facts,
    select_languages,
    select_relations,
    with_perturbed_patterns,
)
from consilience.suites.layouts import save_suite
from consilience.suites.perturbations import chosen as choose_perturbations
from consilience.types import Suite
from consilience.workflow.probe_options import ProbeOptions, refuse_options
from consilience.workflow.run_settings import default_folder, perturbation_settings
from consilience.workflow.setup import Loaded, Setup
from consilience.workflow.suite import source_of


def fact_setup(
    options: ProbeOptions,
    watch: Watch = SILENT,
    whole: Suite | None = None,
    model: LanguageModel | None = None,
) -> Setup:
    """Choose groups, facts and patterns; options that do not fit facts raise.

    ``whole`` and ``model``: the whole suite and the model, where the caller has them.
    """
    _check(options, is_named=whole is None)
    suite, source = choose_suite(options, watch, whole)
    perturbations = choose_perturbations(options.perturbations or (), PATTERN_PERTURBATIONS)
    suite = with_perturbed_patterns(suite, perturbations)
    settings = perturbation_settings(perturbations) if perturbations else {}
    relations = suite.relations
    sizes = [len(relation.candidates.words) for relation in relations]
    is_open = options.candidates == "vocabulary"
    describe = partial(_describe, options, suite, source, whole)
    return Setup(
        options,
        suite,
        protocol=options.protocol or suite.protocol,
        groups=query_counts(suite),
        unit="queries",
        extent={
            "suite": suite.name,
            "items": sum(len(relation.facts) for relation in relations),
            "variants": f"{spread([len(relation.patterns) for relation in relations])} patterns",
            "candidates": "the vocabulary" if is_open else spread(sizes),
        },
        samples={
            relation.id: evenly([fact.item for fact in relation.facts], SAMPLED_ITEMS)
            for relation in relations
        },
        load=partial(_load, options, suite, watch, settings, describe, model),
    )


def _load(
    options: ProbeOptions,
    suite: Suite,
    watch: Watch,
    settings: Mapping[str, object],
    describe: Callable[[RunFolder], None],
    ready: LanguageModel | None,
) -> Loaded:
    """The model, and how it is asked; ``settings``: those of perturbations."""
    load = partial(
        load_model,
        options.model,
        protocol=options.protocol or suite.protocol,
        seed=options.seed,
        multi_token=options.multi_token,
        template=options.template,
        fast=options.fast,
        connection=options.connection,
        scoring=options.scoring,
        **asdict(options.loading),
    )
    model = ready
    if model is None:
        with watch.loading(options.model):
            model = load()
    settings = {**_settings(options, suite, model), **settings}
    is_exact = ready is None and model.identity.get("dtype") == "float32"
    half = partial(load, dtype="bfloat16", fast=False) if is_exact else None
    is_open = options.candidates == "vocabulary"
    return Loaded(
        model,
        settings,
        options.out or default_folder(options.model, settings),
        describe,
        partial(_ask, options, suite, model),
        notes_on=bound_notes,
        noise_floor=lambda progress: noise_floor(
            suite,
            model,
            whole_vocabulary=is_open,
            in_half_precision=half,
            queries=options.noise_floor or 0,
            seed=options.seed,
            progress=progress,
        ),
    )


def _settings(options: ProbeOptions, suite: Suite, model: LanguageModel) -> dict[str, object]:
    """Everything that decides the answers, but for perturbations."""
    vocabulary, languages = options.single_token, _languages_of(options.vary)
    return {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "groups": [relation.id for relation in suite.relations],
        "facts": options.facts_from,
        "vocabulary": ",".join(vocabulary) if vocabulary is not None else None,
        "as_shipped": options.as_shipped,
        "limit": options.limit,
        "seed": options.seed,
        "protocol": options.protocol or suite.protocol,
        "candidates": options.candidates,
        "keep_scores": options.keep_scores,
        "model": model.identity,
        **({"languages": languages} if languages else {}),
        **({"fast": True} if options.fast else {}),
    }


def _describe(
    options: ProbeOptions,
    suite: Suite,
    source: Mapping[str, str],
    whole: Suite | None,
    folder: RunFolder,
) -> None:
    """Record where the suite is; with the scores of all candidates, the candidates."""
    if whole is not None:
        source = {**source, "folder": str(save_suite(whole, folder.path / "suite").resolve())}
    folder.describe("suite_source", source)
    if options.keep_scores:
        words = {relation.id: relation.candidates.words for relation in suite.relations}
        folder.describe("words", words)
    folder.note(suite.notes)


def _ask(
    options: ProbeOptions,
    suite: Suite,
    model: LanguageModel,
    group: str,
    items: Sequence[str] | None = None,
    variants: Sequence[int] | None = None,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The answers of a relation; to some facts, or in some patterns, only."""
    relation = suite.relation(group)
    if items is not None:
        facts = tuple(fact for fact in relation.facts if fact.item in items)
        relation = replace(relation, facts=facts)
    if variants is not None:
        relation = replace(relation, patterns=tuple(relation.patterns[at] for at in variants))
    return ask(
        relation,
        model,
        suite.name,
        whole_vocabulary=options.candidates == "vocabulary",
        keep_scores=options.keep_scores,
        progress=progress,
    )


def choose_suite(
    options: ProbeOptions, watch: Watch = SILENT, whole: Suite | None = None
) -> tuple[Suite, dict[str, str]]:
    """The chosen groups and facts, and the source of the suite in its languages (``source_of``).

    ``whole``: the suite, where it is not loaded from the folder that the options name.
    """
    is_loaded = whole is None
    suite = whole or suites.load_suite(
        options.suite, options.data_dir, as_shipped=options.as_shipped
    )
    if (languages := _languages_of(options.vary)) is not None:
        suite = select_languages(suite, languages)
    source = {"digest": suite.digest}
    if is_loaded:
        source = source_of(suite, options.suite, options.data_dir)
    if options.groups is not None:
        suite = select_relations(suite, options.groups)
    if options.facts_from is not None:
        other = suites.load_suite(options.facts_from, options.data_dir)
        suite = replace_facts(suite, other)
    if options.single_token is not None:
        suite = _one_token(suite, options.single_token, options.loading, watch)
    if options.limit:
        suite = sample_facts(suite, options.limit, options.seed)
    return suite, source


def _languages_of(vary: Sequence[str] | None) -> list[str] | None:
    """The languages of ``--vary language=L,L``; None for all. Another factor of facts raises."""
    values = dict(factor.partition("=")[::2] for factor in vary or ())
    others = [name for name in values if name != "language"]
    if others:
        raise ConsilienceError(
            f"--vary {others[0]} with a suite of facts",
            expected="--vary language=L,L: facts are asked in all patterns of these languages",
            todo="Leave it out, or ask facts as questions: `consilience probe --as-questions K`.",
        )
    value = values.get("language", "all")
    languages = [part.strip() for part in value.split(",") if part.strip()]
    if not languages:
        raise ConsilienceError(
            "--vary language= without a language", expected="all, or tags such as language=de,ja"
        )
    return None if value == "all" else languages


def _check(options: ProbeOptions, *, is_named: bool) -> None:
    if is_named:
        suites.suite_folder(options.suite, suites.data_dir(options.data_dir))  # raises if unknown
    refuse_options(options, "facts", "a suite of facts")
    if options.keep_scores and options.candidates == "vocabulary":
        raise ConsilienceError(
            "--keep-scores with the whole vocabulary",
            expected="--candidates objects: a vocabulary's scores of a suite fill a disk",
        )
    if options.keep_scores and options.fast:
        raise ConsilienceError(
            "--fast with --keep-scores", expected="one of the two: --fast gives answers only"
        )


def _one_token(suite: Suite, names: Sequence[str], loading: Loading, watch: Watch) -> Suite:
    from consilience.models.candidates import count_pieces
    from consilience.models.loading import load_tokenizer

    with watch.loading(""):
        loading = Loading(trust_remote_code=loading.trust_remote_code)  # the rest is of one model
        pieces = {name: partial(count_pieces, load_tokenizer(name, loading)) for name in names}
        return filter_vocabulary(suite, pieces)
