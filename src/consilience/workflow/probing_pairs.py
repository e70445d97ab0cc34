"""Ask a model the sentence pairs of a task, in their original and in perturbed forms (CALUM)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import polars as pl

from consilience.ask_pairs import (
    PairModel,
    Presented,
    ask_labels,
    ask_text,
    changed_answers,
    present_pairs,
)
from consilience.design import ORIGINAL
from consilience.errors import OTHER_OUT, ConsilienceError
from consilience.files import csv_of, write_whole
from consilience.metrics.measure import measure
from consilience.metrics.notes import notes_on
from consilience.models import SERVED
from consilience.models.label_functions import label_baseline
from consilience.run import SENTENCE_PAIRS, model_name, seed_folders
from consilience.run_folder import RunFolder
from consilience.sentence_pairs import Form, Task, TextPair
from consilience.server_noise import AskedGroup
from consilience.suites.pairs import (
    TASK_SUITE,
    Pairs,
    generated_group,
    half_of,
    read_pairs,
    sample_pairs,
    suite_of_task,
)
from consilience.suites.perturbations import PAPERS, Perturbation, chosen, original, t5_original
from consilience.suites.tasks import load_task
from consilience.watch import Watch
from consilience.workflow.counting import CountedRun, count_answers, seed_notes
from consilience.workflow.deciding import decides, load_decider
from consilience.workflow.noise_floors import noise_of_server
from consilience.workflow.probe_options import DEFAULT_MODEL, ProbeOptions, refuse_options
from consilience.workflow.probe_plan import (
    GroupOfQueries,
    ProbePlan,
    complete_groups,
    evenly,
    sampled_plan,
)
from consilience.workflow.run_settings import default_folder, perturbation_settings

SAMPLED_PAIRS = 16
"""Pairs that are asked to measure the rate of a plan."""

HALF_SEED = 0
"""Seed of the halves: always the same ones."""


OriginalForm = Callable[[TextPair], Form]
"""Makes the original form of a pair."""


def probe_pairs(options: ProbeOptions, watch: Watch, model: PairModel | None = None) -> CountedRun:
    """Ask a classifier, or those of all seeds, or a language model; runs are kept in folders.

    ``model``: a model in place of the one that the options name.
    """
    questions = _Questions.of(options, model)
    task, models = questions.task, questions.models
    if options.folder is not None:
        _refuse_other_runs(options.folder, models)
    probed = {name: _probe_model(questions, name, watch) for name in models}
    folder = next(iter(probed.values())).folder
    folder = folder.parent if "" not in models else folder
    forms = [ORIGINAL, *questions.perturbations]
    suite = suite_of_task(task, forms, writes_freely=options.generate)
    answers = {name: run.answers for name, run in probed.items()}
    name, noise = model_name(options.model), next(iter(probed.values())).noise
    counted = count_answers(answers, suite, "strict", name, options.seed, noise)
    changed = pl.concat(
        [run.changed.with_columns(pl.lit(name).alias("seed")) for name, run in probed.items()]
    ).sort("margin", descending=True, nulls_last=True)
    write_whole(folder / "metrics.csv", csv_of(counted.metrics))
    write_whole(folder / "changes.csv", csv_of(counted.changes))
    write_whole(folder / "inconsistent.csv", csv_of(changed))
    by_seed = {"": questions.pairs.notes} | {name: run.notes for name, run in probed.items()}
    record = {"settings": questions.settings, "models": models, "path": str(folder)}
    return replace(counted, notes=seed_notes(by_seed), record=record, changed_answers=changed)


@dataclass(frozen=True, slots=True)
class _Questions:
    """What every seed is asked."""

    options: ProbeOptions
    """The options of the command."""
    task: Task
    """The task, with the indicators that were given."""
    pairs: Pairs
    """Its pairs."""
    perturbations: Mapping[str, Perturbation]
    """The forms beside the original."""
    models: Mapping[str, str]
    """The model, or that of each seed by the name of its folder."""
    ready: PairModel | None
    """The model, where the caller has it."""

    @classmethod
    def of(cls, options: ProbeOptions, model: PairModel | None = None) -> _Questions:
        """The questions of a command; options that do not fit them raise."""
        _check(options, is_named=model is None)
        task = load_task(options.suite, options.indicators)
        perturbations = chosen(options.perturbations or PAPERS)
        pairs = _pairs_of(options, task, perturbations)
        models = {"": options.model} if model else _models(options.model, task.name)
        return cls(options, task, pairs, perturbations, models, model)

    @property
    def settings(self) -> dict[str, object]:
        """What decides the answers, but for the model."""
        return {
            "kind": SENTENCE_PAIRS,
            "suite": TASK_SUITE,
            "task": asdict(self.task),
            "pairs": self.pairs.digest,
            "limit": self.options.limit,
            "half": self.options.half,
            **perturbation_settings(self.perturbations),
            "long": self.options.long,
            "seed": self.options.seed,
        }

    def load(self, name: str, watch: Watch) -> tuple[PairModel, OriginalForm]:
        """The model of a seed, and the form of a pair that it reads as the original."""
        options, task, spec = self.options, self.task, self.models[name]
        form = partial(original, indicators=task.indicators)
        scheme, _, baseline = spec.partition(":")
        if self.ready:
            return self.ready, form
        if scheme == "baseline":
            return label_baseline(baseline, task.labels, self.pairs.items, options.seed), form
        if decides(spec):
            with watch.loading(spec):
                return load_decider(options, task), form
        with watch.loading(spec):
            return (_load_writer if options.generate else _load_classifier)(spec, options, task)

    def run_of(self, name: str, model: PairModel) -> tuple[Path, dict[str, object]]:
        """The folder of the run of a seed, and its settings."""
        settings = {**self.settings, "model": model.identity}
        named = settings | {"suite": self.task.name}
        folder = self.options.folder or default_folder(self.options.model, named)
        return folder / name if name else folder, settings


def chosen_pairs(options: ProbeOptions) -> tuple[Task, Pairs, Mapping[str, Perturbation]]:
    """The task, the pairs and the perturbations that a model that writes is asked."""
    questions = _Questions.of(replace(options, generate=True))
    return questions.task, questions.pairs, questions.perturbations


@dataclass(frozen=True, slots=True)
class _ProbedModel:
    """The answers of one model."""

    folder: Path
    """The folder of its run."""
    answers: pl.DataFrame
    """The answers table."""
    changed: pl.DataFrame
    """The answers that a perturbation changed."""
    notes: Sequence[str]
    """What a reader of the run should know."""
    noise: pl.DataFrame | None
    """The noise floor of a server, as rows of the metrics table; None where it was not measured."""


def _check(options: ProbeOptions, *, is_named: bool) -> None:
    refuse_options(options, "pairs", "a task of sentence pairs")
    if options.data is None:
        raise ConsilienceError(
            f"--suite {options.suite} without --data",
            expected="the sentence pairs of the task",
            todo="Name a file, or a split of its dataset on the Hub: --data hub:validation.",
        )
    if options.model == DEFAULT_MODEL and not options.generate:
        raise ConsilienceError(
            f"{DEFAULT_MODEL}, which --model is by default, does not classify sentence pairs",
            expected="a classifier: --model with a folder that `consilience finetune` wrote",
            todo="Or add --generate: the language model then writes the label.",
        )
    if options.template and not options.generate:
        raise ConsilienceError("--template without --generate", todo="Add --generate.")
    is_plain = not is_named or options.model.startswith("baseline:")
    refused: dict[str, object] = {}
    if is_plain or options.generate:
        refused |= {"--input": options.joined, "--pool": options.pool}
        refused |= {"--model-labels": options.model_labels}
    if is_plain:
        refused |= {"--max-length": options.longest, "--generate": options.generate}
    kind = "a function or a baseline" if is_plain else "--generate"
    for flag, value in refused.items():
        if value:
            raise ConsilienceError(f"{flag} with {kind}", todo="Leave it out.")


def _pairs_of(
    options: ProbeOptions, task: Task, perturbations: Mapping[str, Perturbation]
) -> Pairs:
    """The pairs of the file or of the Hub; one half of them, a sample of them."""
    columns = [form.column for form in perturbations.values() if form.column]
    pairs = read_pairs(options.data or "", task, columns)
    if options.half is not None:
        pairs = half_of(pairs, options.half, HALF_SEED)
    return pairs if options.limit is None else sample_pairs(pairs, options.limit, options.seed)


def _models(spec: str, task: str) -> dict[str, str]:
    """The model, or those of all seeds that finetune wrote, by the name of their folder."""
    folder = Path(spec)
    seeds = seed_folders(folder)
    if not seeds:
        inside = folder / task
        return {"": str(inside) if (inside / "config.json").is_file() else spec}
    for seed in seeds:
        if not (seed / task / "config.json").is_file():
            heads = sorted(path.parent.name for path in seed.glob("*/config.json"))
            raise ConsilienceError(
                f"no model for the task '{task}'",
                expected=", ".join(heads) or "a finished training",
                where=str(seed),
                todo=f"Ask for one of these: --suite {heads[0]}; or in a TOML file, "
                f'name = "{heads[0]}".'
                if heads
                else "Rerun the same `consilience finetune` to finish it.",
            )
    return {seed.name: str(seed / task) for seed in seeds}


def _refuse_other_runs(folder: Path, models: Mapping[str, str]) -> None:
    """Refuse a folder with the run of one model where seeds are asked, or with other seeds."""
    holds = "one model" if (folder / "run.json").is_file() and "" not in models else ""
    others = [
        seed.name
        for seed in seed_folders(folder)
        if (seed / "run.json").is_file() and seed.name not in models
    ]
    if holds or others:
        raise ConsilienceError(
            f"this folder holds another run: of {holds or ', '.join(others)}",
            where=str(folder),
            todo=f"{OTHER_OUT}, or remove the folder.",
        )


def _load_classifier(
    spec: str, options: ProbeOptions, task: Task
) -> tuple[PairModel, OriginalForm]:
    """A classifier, and the original form as it was trained on it unless indicators are given."""
    from consilience.models.classifier import load_pair_classifier

    model = load_pair_classifier(
        spec,
        task.labels,
        options.loading,
        joined=options.joined,
        pool=options.pool,
        longest=options.longest,
        model_labels=options.model_labels,
    )
    trained = None if options.indicators else model.input.reading.indicators
    return model, partial(original, indicators=trained or task.indicators)


def _load_writer(spec: str, options: ProbeOptions, task: Task) -> tuple[PairModel, OriginalForm]:
    """A model that writes, and the original form: T5's where there is no template."""
    if spec.partition(":")[0] in SERVED:
        from consilience.models.served_labels import ServedLabelWriter

        served = ServedLabelWriter.open(spec, options.connection, options.scoring)
        served.ask_for(task, options.template, options.longest or 0)
        return served, partial(original, indicators=task.indicators)
    from consilience.models.label_writer import LabelWriter
    from consilience.models.loading import load_pretrained

    loaded = load_pretrained(spec, options.loading)
    model = LabelWriter(loaded, task, options.template, options.longest or 0)
    if options.indicators and model.template is None:
        raise ConsilienceError(
            "--indicators with T5's own form, which has its own",
            todo="Give a --template too, or leave it out.",
        )
    form = partial(original, indicators=task.indicators)
    return model, partial(t5_original, task=task) if model.template is None else form


def _probe_model(questions: _Questions, name: str, watch: Watch) -> _ProbedModel:
    """One model's answers, and those that changed; existing answers are not asked again."""
    options, task, pairs = questions.options, questions.task, questions.pairs
    model, form = questions.load(name, watch)
    run = RunFolder(*questions.run_of(name, model))
    run.pay_for(model)
    if products := getattr(model, "products", None):
        run.multiplied_by(products.record())
    presented = present_pairs(
        task, pairs.items, form, questions.perturbations, model, long=options.long
    )
    run.note([*pairs.notes, *presented.notes])
    groups: dict[str, Callable[..., pl.DataFrame]] = {task.name: partial(ask_labels, model=model)}
    if write := getattr(model, "write", None):
        groups[generated_group(task)] = partial(ask_text, write=write)
    size = len(presented.pairs) * len(presented.names)
    tables = {}
    for group, ask in reversed(groups.items()):  # writing also reads what choosing needs
        answers = run.answers(group, size)
        if answers is None:
            with watch.steps(f"asking {run.path.name}", size, "forms") as advance:
                answers = ask(presented, progress=advance)
            run.write_answers(group, answers)
        tables[group] = answers
    run.note(model.notes)
    answers = pl.concat([tables[group] for group in groups])
    suite = suite_of_task(task, presented.names, writes_freely=options.generate)
    metrics = measure(answers, suite, "strict", options.seed)
    run.note(notes_on(answers, metrics, suite, "strict"))
    run.describe("data", options.data)
    noise = None
    if (client := getattr(model, "client", None)) is not None:
        parts = [
            AskedGroup(tables[group], partial(_ask_again, presented, ask))
            for group, ask in groups.items()
        ]
        noise = noise_of_server(parts, client, run, options, TASK_SUITE, watch)
    run.finish(metrics if noise is None else pl.concat([metrics, noise], how="diagonal"))
    changed = pl.concat([changed_answers(presented, tables[group]) for group in groups])
    return _ProbedModel(run.path, answers, changed, run.record["warnings"], noise)


def _ask_again(
    presented: Presented,
    ask: Callable[[Presented], pl.DataFrame],
    items: Sequence[str],
    variants: Sequence[int],
) -> pl.DataFrame:
    """The answers to some pairs in some forms."""
    rows = [at for at, pair in enumerate(presented.pairs) if pair.item in items]
    some = replace(
        presented,
        pairs=tuple(presented.pairs[at] for at in rows),
        names=tuple(presented.names[form] for form in variants),
        forms=tuple(tuple(presented.forms[at][form] for form in variants) for at in rows),
        reasons=tuple(presented.reasons[at] for at in rows),
    )
    return ask(some)


def plan_pairs(options: ProbeOptions, watch: Watch, model: PairModel | None = None) -> ProbePlan:
    """What ``probe`` would ask of sentence pairs; nothing is written.

    The first model is loaded, and some pairs are asked to measure the rate; of a model behind a
    URL their requests are counted and not sent.
    """
    questions = _Questions.of(options, model)
    task, pairs, perturbations = questions.task, questions.pairs, questions.perturbations
    name = next(iter(questions.models))
    start = time.monotonic()
    model, form = questions.load(name, watch)
    loading = time.monotonic() - start
    folder, settings = questions.run_of(name, model)
    is_new, groups = complete_groups(folder, settings)
    some = evenly(pairs.items, SAMPLED_PAIRS)
    presented = present_pairs(task, some, form, perturbations, model, long=options.long)
    queries = len(pairs.items) * (1 + len(perturbations))
    samples = {task.name: lambda: ask_labels(presented, model).height}
    if write := getattr(model, "write", None):
        samples[generated_group(task)] = lambda: ask_text(presented, write).height
    left = [
        GroupOfQueries(ask, 0 if group in groups else queries * len(questions.models))
        for group, ask in samples.items()
    ]
    return ProbePlan(
        model_name(options.model),
        task.name,
        "strict",
        groups=1 + options.generate,
        items=len(pairs.items),
        variants=f"{1 + len(perturbations)} forms",
        candidates=str(len(task.labels)),
        queries=queries * len(samples) * len(questions.models),
        complete=queries * len(groups),
        folder=str(folder.parent if name else folder),
        is_new=is_new,
        loading=loading,
        **sampled_plan(model, left, noise_floor=options.noise_floor),
    )
