"""Ask a model every fact of a suite, or take answers made elsewhere, and count them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import polars as pl

from consilience import suites
from consilience.ask import ask, ask_suite, screening_note
from consilience.ask_pairs import PairModel
from consilience.ask_questions import PromptModel
from consilience.choices import Loading, Protocol
from consilience.errors import ConsilienceError
from consilience.models import LanguageModel, load_model
from consilience.provenance import git_revision, versions
from consilience.run import Run, model_name
from consilience.run_folder import RunFolder
from consilience.suites.cloze_questions import questions_of_suite
from consilience.suites.pattern_forms import (
    PATTERN_PERTURBATIONS,
    with_perturbed_patterns,
)
from consilience.suites.perturbations import chosen as choose_perturbations
from consilience.suites.question_collection import Questions
from consilience.suites.question_suites import is_questions, load_questions
from consilience.suites.saving import save_suite
from consilience.suites.selection import (
    filter_vocabulary,
    replace_facts,
    sample_facts,
    select_languages,
    select_relations,
)
from consilience.suites.tasks import is_task
from consilience.types import Relation, Suite
from consilience.watch import SILENT, Watch
from consilience.workflow.counting import CountedRun, count_answers, count_run, save_counted
from consilience.workflow.noise_floors import fact_noise_floor
from consilience.workflow.probe_options import ProbeOptions, refuse_options
from consilience.workflow.probe_plan import (
    SAMPLED_ITEMS,
    GroupOfQueries,
    ProbePlan,
    complete_groups,
    evenly,
    sampled_plan,
    spread,
)
from consilience.workflow.probing_pairs import plan_pairs, probe_pairs
from consilience.workflow.probing_questions import plan_questions, probe_questions
from consilience.workflow.question_design import columns_of
from consilience.workflow.run_options import ScoreOptions
from consilience.workflow.run_settings import default_folder, perturbation_settings
from consilience.workflow.scored_tables import score_facts, score_pairs, score_questions
from consilience.workflow.suite import any_suite_of, protocol_notes, source_of


def probe(
    options: ProbeOptions,
    watch: Watch = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | PairModel | PromptModel | None = None,
) -> CountedRun:
    """Ask a model a suite, and measure its answers; the run is kept in its folder.

    ``suite`` and ``model``: values in place of those that the options name.
    """
    options.check_connection()
    questions = _questions_of(options, suite)
    if questions is not None:
        return probe_questions(options, watch, questions, cast(PromptModel | None, model))
    if suite is None and is_task(options.suite):
        return probe_pairs(options, watch, cast(PairModel | None, model))
    whole = cast(Suite | None, suite)
    setup = _set_up(options, watch, whole, cast(LanguageModel | None, model))
    suite, model, protocol, source = setup.suite, setup.model, setup.protocol, setup.source
    folder = RunFolder(setup.folder, setup.settings)
    if whole is not None:
        source["folder"] = str(save_suite(whole, folder.path / "suite").resolve())
    folder.describe("suite_source", source)
    folder.pay_for(model)
    if options.keep_scores:
        words = {relation.id: relation.candidates.words for relation in suite.relations}
        folder.describe("words", words)
    answers = _ask(options, suite, model, folder, watch)
    noise = fact_noise_floor(options, suite, model, setup.load, folder, answers, watch)
    name = model_name(options.model)
    counted = count_answers({"": answers}, suite, protocol, name, options.seed, noise)
    if options.fast:
        counted = replace(counted, notes=[*counted.notes, screening_note(folder.record)])
    return save_counted(counted, folder)


@dataclass(frozen=True, slots=True)
class _Setup:
    """What a run needs before anything is asked."""

    suite: Suite
    """The chosen groups, facts and patterns."""
    source: dict[str, str]
    """Where the whole suite is (``source_of``)."""
    protocol: Protocol
    """How answers are counted."""
    model: LanguageModel
    """The model, loaded."""
    load: Callable[..., LanguageModel] | None
    """Loads the model in another way; None for a model that the caller loaded."""
    settings: dict[str, object]
    """Everything that decides the answers."""
    folder: Path
    """The folder of the run."""


def _set_up(
    options: ProbeOptions, watch: Watch, whole: Suite | None, model: LanguageModel | None
) -> _Setup:
    """Check the options, choose the questions, and load the model."""
    _check(options, is_named=whole is None)
    suite, source = choose_suite(options, watch, whole)
    perturbations = choose_perturbations(options.perturbations or (), PATTERN_PERTURBATIONS)
    suite = with_perturbed_patterns(suite, perturbations)
    protocol: Protocol = options.protocol or suite.protocol
    load: Callable[..., LanguageModel] | None = None
    if model is None:
        load = loader(options, protocol)
        with watch.loading(options.model):
            model = load()
    settings = settings_of(options, suite, protocol, model)
    settings |= perturbation_settings(perturbations) if perturbations else {}
    folder = options.folder or default_folder(options.model, settings)
    return _Setup(suite, source, protocol, model, load, settings, folder)


def plan_probe(
    options: ProbeOptions,
    watch: Watch = SILENT,
    *,
    suite: Suite | Questions | None = None,
    model: LanguageModel | PairModel | PromptModel | None = None,
) -> ProbePlan:
    """What ``probe`` would ask with these options; nothing is written.

    The model is loaded, and a few facts of some relations are asked to measure the rate; of a
    model behind a URL their requests are counted and not sent.
    ``suite`` and ``model``: values in place of those that the options name.
    """
    options.check_connection()
    questions = _questions_of(options, suite)
    if questions is not None:
        return plan_questions(options, watch, questions, cast(PromptModel | None, model))
    if suite is None and is_task(options.suite):
        return plan_pairs(options, watch, cast(PairModel | None, model))
    start = time.monotonic()
    setup = _set_up(options, watch, cast(Suite | None, suite), cast(LanguageModel | None, model))
    loading = time.monotonic() - start
    relations = setup.suite.relations
    is_new, complete = complete_groups(setup.folder, setup.settings)
    sizes = {relation.id: len(relation.facts) * len(relation.patterns) for relation in relations}
    groups = [
        GroupOfQueries(
            partial(_ask_sample, options, setup, relation),
            0 if relation.id in complete else sizes[relation.id],
        )
        for relation in relations
    ]
    is_open = options.candidates == "vocabulary"
    return ProbePlan(
        model_name(options.model),
        setup.suite.name,
        setup.protocol,
        groups=len(relations),
        items=sum(len(relation.facts) for relation in relations),
        variants=f"{spread([len(relation.patterns) for relation in relations])} patterns",
        candidates="the vocabulary"
        if is_open
        else spread([len(relation.candidates.words) for relation in relations]),
        queries=sum(sizes.values()),
        complete=sum(size for name, size in sizes.items() if name in complete),
        folder=str(setup.folder),
        is_new=is_new,
        loading=loading,
        **sampled_plan(setup.model, groups, noise_floor=options.noise_floor),
    )


def _ask_sample(options: ProbeOptions, setup: _Setup, relation: Relation) -> int:
    """Ask some facts of a relation in every pattern; the number of queries."""
    facts = tuple(evenly(relation.facts, SAMPLED_ITEMS))
    return ask(
        replace(relation, facts=facts),
        setup.model,
        setup.suite.name,
        whole_vocabulary=options.candidates == "vocabulary",
        keep_scores=options.keep_scores,
    ).height


def _ask(
    options: ProbeOptions, suite: Suite, model: LanguageModel, folder: RunFolder, watch: Watch
) -> pl.DataFrame:
    queries = sum(len(group.facts) * len(group.patterns) for group in suite.relations)
    with watch.steps("asking", queries, "queries") as advance:
        return ask_suite(
            suite,
            model,
            folder,
            whole_vocabulary=options.candidates == "vocabulary",
            keep_scores=options.keep_scores,
            progress=advance,
        )


def score(options: ScoreOptions, questions: Questions | None = None, label: str = "") -> CountedRun:
    """Measure answers that were made elsewhere, or those of a run again; seeds are averaged.

    A run names its suite and protocol; ``suite`` is needed for a table of answers only.
    ``questions``: those that a table answers, in place of those that the options name. ``label``:
    what the answers are called; empty for the name of the file or of the run's model.
    """
    answers = options.answers
    run = Run.open(answers, label).named_by_model()
    if not answers.is_dir() and options.suite is not None:
        if questions is not None or is_questions(options.suite):
            return score_questions(run, options, questions)
        if is_task(options.suite):
            return score_pairs(run, options)
        return score_facts(run, options)
    if options.folder is not None:
        raise ConsilienceError(
            "--out with a run", expected="a table of answers", todo="Leave --out out."
        )
    chosen, rules = any_suite_of(run, options.suite, options.protocol, options.data_dir)
    counted = count_run(run, chosen, rules)
    settings = {"answers": str(answers), "suite": chosen.name, "protocol": rules}
    record = {"settings": settings, "versions": versions(), "git": git_revision()}
    notes = [*counted.notes, *protocol_notes(run, rules)]
    return replace(counted, notes=notes, record=record)


def _questions_of(options: ProbeOptions, suite: Suite | Questions | None) -> Questions | None:
    """The questions that are asked; None where facts or sentence pairs are."""
    if isinstance(suite, Questions):
        return suite
    if options.as_questions is not None:
        return _as_questions(options, suite)
    if suite is None and is_questions(options.suite):
        return load_questions(options.suite, columns_of(options.columns))
    return None


def _as_questions(options: ProbeOptions, suite: Suite | None) -> Questions:
    """The facts of a suite as questions with a blank."""
    if suite is None and (is_questions(options.suite) or is_task(options.suite)):
        raise ConsilienceError(
            f"--as-questions with --suite {options.suite}",
            expected="a suite of facts, such as mini",
            todo="Leave --as-questions out.",
        )
    suite = suite or suites.load_suite(options.suite, options.data_dir)
    return questions_of_suite(suite, options.as_questions, options.seed)


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


def loader(options: ProbeOptions, protocol: Protocol) -> Callable[..., LanguageModel]:
    """A function that loads the model; its keywords replace options."""
    return partial(
        load_model,
        options.model,
        protocol=protocol,
        seed=options.seed,
        multi_token=options.multi_token,
        template=options.template,
        fast=options.fast,
        connection=options.connection,
        scoring=options.scoring,
        **asdict(options.loading),
    )


def settings_of(
    options: ProbeOptions, suite: Suite, protocol: Protocol, model: LanguageModel
) -> dict[str, object]:
    """Everything that decides the answers."""
    settings: dict[str, object] = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "groups": [relation.id for relation in suite.relations],
        "facts": options.facts_from,
        "vocabulary": ",".join(options.single_token) if options.single_token is not None else None,
        "as_shipped": options.as_shipped,
        "limit": options.limit,
        "seed": options.seed,
        "protocol": protocol,
        "candidates": options.candidates,
        "keep_scores": options.keep_scores,
        "model": model.identity,
    }
    languages = _languages_of(options.vary)
    settings |= {"languages": languages} if languages else {}
    return settings | ({"fast": True} if options.fast else {})


def _one_token(suite: Suite, names: Sequence[str], loading: Loading, watch: Watch) -> Suite:
    from consilience.models.candidates import count_pieces
    from consilience.models.loading import load_tokenizer

    with watch.loading(""):
        loading = Loading(trust_remote_code=loading.trust_remote_code)  # the rest is of one model
        pieces = {name: partial(count_pieces, load_tokenizer(name, loading)) for name in names}
        return filter_vocabulary(suite, pieces)
