"""The setup of a run of sentence pairs: the original and the perturbed forms of a task (CALUM)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path

import polars as pl

from consilience.ask import Progress
from consilience.ask_pairs import (
    PairModel,
    Presented,
    ask_labels,
    ask_text,
    changed_answers,
    pair_prompts,
    present_pairs,
)
from consilience.asking.planning import evenly
from consilience.core.errors import OTHER_OUT, SERVED, ConsilienceError
from consilience.core.factors import ORIGINAL
from consilience.core.process import SILENT, Watch
from consilience.files.write import csv_of, write_whole
from consilience.models.label_functions import label_baseline
from consilience.runs.folder import RunFolder, digest_of
from consilience.runs.run import SENTENCE_PAIRS, model_name, seed_folders
from consilience.sentence_pairs import Form, Task, TextPair
from consilience.suites.pairs import (
    TASK_SUITE,
    Pairs,
    half_of,
    load_task,
    read_pairs,
    sample_pairs,
    suite_of_task,
)
from consilience.suites.perturbations import PAPERS, Perturbation, chosen, original, t5_original
from consilience.types import Suite
from consilience.workflow.counting import CountedRun, count_answers, noise_floor_of, seed_notes
from consilience.workflow.deciding import decides, load_decider
from consilience.workflow.pair_noise import pair_noise_floor
from consilience.workflow.probe_options import DEFAULT_MODEL, ProbeOptions, refuse_options
from consilience.workflow.run_settings import default_folder, perturbation_settings
from consilience.workflow.setup import Loaded, Setup

SAMPLED_PAIRS = 16
"""Pairs that are asked to measure the rate of a plan."""

HALF_SEED = 0
"""Seed of the halves: always the same ones."""

OriginalForm = Callable[[TextPair], Form]
"""Makes the original form of a pair."""


@dataclass(frozen=True, slots=True)
class ChosenPairs:
    """What every seed is asked."""

    options: ProbeOptions
    """The options of the command."""
    task: Task
    """The task, with the indicators that were given."""
    pairs: Pairs
    """Its pairs."""
    perturbations: Mapping[str, Perturbation]
    """The forms beside the original."""

    @classmethod
    def of(cls, options: ProbeOptions, *, is_named: bool = True) -> ChosenPairs:
        """Those of a command; options that do not fit sentence pairs raise.

        ``is_named``: whether the model is the one that the options name.
        """
        _check(options, is_named=is_named)
        task = load_task(options.suite, options.indicators)
        perturbations = chosen(options.perturbations or PAPERS)
        return cls(options, task, _pairs_of(options, task, perturbations), perturbations)

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

    def presented(
        self, model: PairModel, form: OriginalForm, items: Sequence[str] | None = None
    ) -> Presented:
        """The pairs, or some of them, in all forms, as the model reads them."""
        pairs = [pair for pair in self.pairs.items if items is None or pair.item in items]
        long = self.options.long
        return present_pairs(self.task, pairs, form, self.perturbations, model, long=long)


def pair_setups(
    options: ProbeOptions, watch: Watch = SILENT, model: PairModel | None = None
) -> list[Setup]:
    """A setup for the model, or for each seed; options that do not fit sentence pairs raise.

    ``model``: the model, where the caller has it.
    """
    chosen_pairs = ChosenPairs.of(options, is_named=model is None)
    task, items = chosen_pairs.task, [pair.item for pair in chosen_pairs.pairs.items]
    models = {"": options.model} if model else _models(options.model, task.name)
    if options.out is not None:
        _refuse_other_runs(options.out, models)
    forms = [ORIGINAL, *chosen_pairs.perturbations]
    suite = suite_of_task(task, forms, writes_freely=options.generate)
    # Writing also reads what choosing needs, so it is first.
    groups = {group.id: len(items) * len(forms) for group in reversed(suite.relations)}
    return [
        Setup(
            options,
            suite,
            protocol="strict",
            groups=groups,
            unit="forms",
            extent={
                "suite": task.name,
                "items": len(items),
                "variants": f"{len(forms)} forms",
                "candidates": str(len(task.labels)),
            },
            samples=dict.fromkeys(groups, evenly(items, SAMPLED_PAIRS)),
            load=partial(_load, chosen_pairs, watch, seed, spec, model),
            seed=seed,
            together=partial(_count_seeds, chosen_pairs, suite, models),
        )
        for seed, spec in models.items()
    ]


def _load(
    chosen_pairs: ChosenPairs, watch: Watch, seed: str, spec: str, ready: PairModel | None
) -> Loaded:
    """The model of a seed, and how it is asked."""
    options, task = chosen_pairs.options, chosen_pairs.task
    model, form = (ready, _plain_form(task)) if ready else _model_of(chosen_pairs, watch, spec)
    settings = {**chosen_pairs.settings, "model": model.identity}
    # The folder of several seeds is named by the folder of their models.
    named = settings | {"suite": task.name} | ({"model": options.model} if seed else {})
    whole = options.out or default_folder(options.model, named)
    presented = cache(partial(chosen_pairs.presented, model, form))

    def describe(folder: RunFolder) -> None:
        folder.describe("data", options.data)
        if (file := Path(options.data or "")).is_file():
            source = {"file": str(file.resolve()), "sha256": digest_of(file)}
            folder.describe("suite_source", source)
        folder.note([*chosen_pairs.pairs.notes, *presented().notes])

    def ask(
        group: str,
        items: Sequence[str] | None = None,
        variants: Sequence[int] | None = None,
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        shown = presented() if items is None else chosen_pairs.presented(model, form, items)
        if variants is not None:
            shown = shown.in_variants(variants)
        if group == task.name:
            return ask_labels(shown, model, progress=progress)
        return ask_text(shown, model.write, progress=progress)  # type: ignore[attr-defined]

    def changed(answers: pl.DataFrame) -> pl.DataFrame:
        tables = answers.partition_by("group", maintain_order=True)
        return pl.concat(changed_answers(presented(), table) for table in tables)

    def noise_floor(progress: Progress) -> pl.DataFrame:
        half = ready is None and model.identity.get("dtype") == "float32"
        return pair_noise_floor(
            presented(),
            model,
            in_half_precision=in_half if half else None,
            queries=options.noise_floor or 0,
            seed=options.seed,
            progress=progress,
        )

    def in_half() -> PairModel:
        return _loaded_model(spec, replace(options, dtype="bfloat16"), task)[0]

    return Loaded(
        model,
        settings,
        whole / seed,
        describe,
        ask,
        prompts=lambda group: pair_prompts(presented(), model),
        changed=changed,
        noise_floor=noise_floor,
    )


def _model_of(chosen_pairs: ChosenPairs, watch: Watch, spec: str) -> tuple[PairModel, OriginalForm]:
    """The model of that name, and the form of a pair that it reads as the original."""
    options, task = chosen_pairs.options, chosen_pairs.task
    if spec.startswith("baseline:"):
        baseline, items = spec.removeprefix("baseline:"), chosen_pairs.pairs.items
        return label_baseline(baseline, task.labels, items, options.seed), _plain_form(task)
    with watch.loading(spec):
        if decides(spec):
            return load_decider(options, task), _plain_form(task)
        return _loaded_model(spec, options, task)


def _plain_form(task: Task) -> OriginalForm:
    return partial(original, indicators=task.indicators)


def _loaded_model(spec: str, options: ProbeOptions, task: Task) -> tuple[PairModel, OriginalForm]:
    """A model that writes or classifies, and the form of a pair that it reads as the original."""
    return (_load_writer if options.generate else _load_classifier)(spec, options, task)


def _count_seeds(
    chosen_pairs: ChosenPairs,
    suite: Suite,
    models: Mapping[str, str],
    runs: Mapping[str, CountedRun],
) -> CountedRun:
    """The numbers of the runs of all seeds together, which are written beside them."""
    first, options = next(iter(runs)), chosen_pairs.options
    folder, counted = Path(runs[first].record["path"]), runs[first]
    if first:
        answers = {name: run.answers[0].answers for name, run in runs.items()}
        name, noise = model_name(options.model), noise_floor_of(folder)
        counted = count_answers(answers, suite, "strict", name, options.seed, noise)
        folder = folder.parent
        write_whole(folder / "metrics.csv", csv_of(counted.metrics))
    changed = pl.concat(
        run.changed_answers.with_columns(pl.lit(name).alias("seed"))
        for name, run in runs.items()
        if run.changed_answers is not None
    ).sort("margin", descending=True, nulls_last=True)
    write_whole(folder / "changes.csv", csv_of(counted.changes))
    write_whole(folder / "inconsistent.csv", csv_of(changed))
    notes = {"": chosen_pairs.pairs.notes} | {name: run.notes for name, run in runs.items()}
    record = {"settings": chosen_pairs.settings, "models": models, "path": str(folder)}
    return replace(counted, notes=seed_notes(notes), record=record, changed_answers=changed)


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
        refused |= {"--input": options.input, "--pool": options.pool}
        refused |= {"--model-labels": options.model_labels}
    if is_plain:
        refused |= {"--max-length": options.max_length, "--generate": options.generate}
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
        joined=options.input,
        pool=options.pool,
        longest=options.max_length,
        model_labels=options.model_labels,
    )
    trained = None if options.indicators else model.input.reading.indicators
    return model, partial(original, indicators=trained or task.indicators)


def _load_writer(spec: str, options: ProbeOptions, task: Task) -> tuple[PairModel, OriginalForm]:
    """A model that writes, and the original form: T5's where there is no template."""
    if spec.partition(":")[0] in SERVED:
        from consilience.models.served_labels import load_served_labels

        served = load_served_labels(spec, options.connection, options.scoring)
        served.ask_for(task, options.template, options.max_length or 0)
        return served, partial(original, indicators=task.indicators)
    from consilience.models.label_writer import LabelWriter
    from consilience.models.loading import load_pretrained

    loaded = load_pretrained(spec, options.loading)
    model = LabelWriter(loaded, task, options.template, options.max_length or 0)
    if options.indicators and model.template is None:
        raise ConsilienceError(
            "--indicators with T5's own form, which has its own",
            todo="Give a --template too, or leave it out.",
        )
    form = partial(original, indicators=task.indicators)
    return model, partial(t5_original, task=task) if model.template is None else form
