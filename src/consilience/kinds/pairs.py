"""Sentence pairs: a task whose pairs are asked in their original form and perturbed (CALUM)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import polars as pl

from consilience.asking import pairs as asking
from consilience.asking.asker import Progress, prompt_table
from consilience.core.errors import OTHER_OUT, SILENT, ConsilienceError, Protocol, Watch
from consilience.core.factors import ORIGINAL, Design
from consilience.core.free_text import DEFAULT_RULE, rule_of
from consilience.core.items import Form, Task, TextPair, as_string
from consilience.core.text import evenly
from consilience.files.read import read_csv
from consilience.files.write import csv_of, write_whole
from consilience.kinds import base
from consilience.kinds.answers import answers_to_pairs, refuse_published
from consilience.kinds.counting import (
    CountedRun,
    count_answers,
    noise_floor_of,
    seed_notes,
)
from consilience.models import PairModel
from consilience.models.functions import LabelFunction, label_baseline
from consilience.options.probe import DEFAULT_MODEL, ProbeOptions
from consilience.options.runs import ScoreOptions
from consilience.runs.folder import RunFolder, digest_of
from consilience.runs.run import SENTENCE_PAIRS, Run, model_name, seed_folders
from consilience.suites import pairs as tasks
from consilience.suites.questions import Questions
from consilience.types import PAIR_WORDS, Candidates, Relation, Suite

HALF_SEED = 0  # Seed of the halves: always the same ones


class SentencePairs(base.Inquiry):
    """The pairs of a task in their original form and in others."""

    kind = "pairs"
    a_suite = "a task of sentence pairs"
    words = PAIR_WORDS
    seeds: Sequence[str] = ()  # The folders of all seeds
    unit = "forms"
    in_record = SENTENCE_PAIRS
    method, takes = "fit", "two texts to a label"

    @classmethod
    def accepts(cls, suite: base.SuiteValue) -> bool:
        return isinstance(suite, str) and tasks.is_task(suite)

    @classmethod
    def of_options(
        cls, options: ProbeOptions, watch: Watch, suite: Any = None, model: Any = None
    ) -> Sequence[Self]:
        first = cls(options, watch, suite, model)
        models = {"": options.model} if model else _models(options.model, first.task.name)
        if options.out is not None:
            _refuse_other_runs(options.out, models)
        inquiries = []
        for seed, spec in models.items():
            inquiries.append(one := copy.copy(first))
            one.seed, one.spec, one.seeds = seed, spec, [*models]
        return inquiries

    @classmethod
    def to_export(cls, options: ProbeOptions) -> Self:
        return cls(replace(options, generate=True))

    def __init__(
        self, options: ProbeOptions, watch: Watch = SILENT, suite: Any = None, model: Any = None
    ) -> None:
        super().__init__(options, watch, suite, model)
        self._check()
        self.task = task = tasks.load_task(options.suite)
        self.perturbations = tasks.chosen(options.perturbations or tasks.PAPERS)
        pairs = tasks.read_pairs(options.data or "", task)
        if options.half is not None:
            pairs = tasks.half_of(pairs, options.half, HALF_SEED)
        if options.limit is not None:
            pairs = tasks.sample_pairs(pairs, options.limit, options.seed)
        self.pairs, self.notes = pairs, pairs.notes
        self.variants = [ORIGINAL, *self.perturbations]
        self.suite = suite_of_task(task, self.variants, with_text=options.generate)
        self.form: Callable[[TextPair], Form] = partial(tasks.original, indicators=task.indicators)

    def _check(self) -> None:
        options = self.options
        if options.data is None:
            found = f"--suite {options.suite} without --data"
            todo = "Name a file, or a split of its dataset on the Hub: --data hub:validation."
            raise ConsilienceError(found, expected="the sentence pairs of the task", todo=todo)
        if options.model == DEFAULT_MODEL and not options.generate:
            raise ConsilienceError(
                f"{DEFAULT_MODEL}, which --model is by default, does not classify sentence pairs",
                expected="a classifier: --model with a folder that `consilience finetune` wrote",
                todo="Or add --generate: the language model then writes the label.",
            )
        if options.template and not options.generate:
            raise ConsilienceError("--template without --generate", todo="Add --generate.")
        is_plain = self.is_given or options.model.startswith("baseline:")
        if is_plain and options.generate:
            found = "--generate with a function or a baseline"
            raise ConsilienceError(found, todo="Leave it out.")

    @property
    def groups(self) -> Mapping[str, int]:
        """What is written, and the task: writing also reads what choosing needs, so it is first."""
        size = len(self.pairs.items) * len(self.variants)
        return {group.id: size for group in reversed(self.suite.relations)}

    @property
    def extent(self) -> Mapping[str, Any]:
        return {**super().extent, "suite": self.task.name, "items": len(self.pairs.items)}

    @property
    def samples(self) -> Mapping[str, Sequence[str]]:
        items = [pair.item for pair in self.pairs.items]
        return dict.fromkeys(self.groups, evenly(items))

    def new_model(self) -> PairModel:
        options, spec = self.options, self.spec
        if spec.startswith("baseline:"):
            baseline, items = spec.removeprefix("baseline:"), self.pairs.items
            return label_baseline(baseline, self.task.labels, items, options.seed)
        return (self._load_writer if options.generate else self._load_classifier)(options)

    def _load_classifier(self, options: ProbeOptions) -> PairModel:
        """A classifier. The original form is as it was trained on it."""
        from consilience.models.classifier import load_pair_classifier

        model = load_pair_classifier(
            self.spec,
            self.task.labels,
            options.loading,
        )
        trained = model.input.reading.indicators
        self.form = partial(tasks.original, indicators=trained or self.task.indicators)
        return model

    def _load_writer(self, options: ProbeOptions) -> PairModel:
        """A model that writes. The original form is T5's where there is no template."""
        if self.spec.startswith("openai:"):
            from consilience.models.served import load_served_labels

            return load_served_labels(
                self.spec,
                options.connection,
                self.task,
                options.template,
            )
        from consilience.models.loading import load_pretrained
        from consilience.models.prompted import LabelWriter

        loaded = load_pretrained(self.spec, options.loading)
        model = LabelWriter(loaded, self.task, options.template)
        if model.template is None:
            self.form = partial(tasks.t5_original, task=self.task)
        return model

    @property
    def settings(self) -> Mapping[str, object]:
        forms = self.perturbations.items()
        sources = {name: dict(form.source) for name, form in forms if form.source}
        return {
            "kind": SENTENCE_PAIRS,
            "suite": tasks.TASK_SUITE,
            "task": asdict(self.task),
            "pairs": self.pairs.digest,
            "limit": self.options.limit,
            "half": self.options.half,
            "perturbations": list(self.perturbations),
            **({"perturbation_sources": sources} if sources else {}),
            "seed": self.options.seed,
            "model": self.model.identity,
        }

    @property
    def named_by(self) -> Mapping[str, object]:
        """The folder is named by the task; of several seeds by the folder of their models."""
        model = {"model": self.options.model} if self.seed else {}
        return {**self.settings, "suite": self.task.name, **model}

    @cached_property
    def presented(self) -> asking.Presented:
        return self._present(self.pairs.items)

    def _present(self, pairs: Sequence[TextPair]) -> asking.Presented:
        return asking.present_pairs(self.task, pairs, self.form, self.perturbations, self.model)

    def describe(self, folder: RunFolder) -> None:
        folder.describe("data", self.options.data)
        if self.seed:
            folder.describe("seeds", self.seeds)
        if (file := Path(self.options.data or "")).is_file():
            source = {"file": str(file.resolve()), "sha256": digest_of(file)}
            folder.describe("suite_source", source)
        folder.note([*self.pairs.notes, *self.presented.notes])

    def ask(
        self,
        group: str,
        items: Sequence[str] | None = None,
        variants: Sequence[int] | None = None,
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        shown = self.presented
        if items is not None:
            shown = self._present([pair for pair in self.pairs.items if pair.item in items])
        if variants is not None:
            shown = shown.in_variants(variants)
        if group == self.task.name:
            return asking.ask_labels(shown, self.model, progress=progress)
        return asking.ask_text(shown, self.model, progress=progress)

    def prompts(self, group: str) -> pl.DataFrame:
        asked = replace(self.presented, reasons=(None,) * len(self.presented.reasons))
        prompts = prompt_table(asking.pairs_of(asked, self.task.name), self.model)
        return prompts.drop("candidates", "options")

    def changed(self, answers: pl.DataFrame) -> pl.DataFrame:
        tables = answers.partition_by("group", maintain_order=True)
        return pl.concat(asking.changed_answers(self.presented, table) for table in tables)

    @classmethod
    def together(cls, inquiries: Sequence[Self], runs: Sequence[CountedRun]) -> CountedRun:
        """Also writes what changed; the numbers of several seeds are written beside them."""
        first, counted = inquiries[0], runs[0]
        options, folder = first.options, Path(counted.record["path"])
        if first.seed:
            answers = {
                one.seed: run.answers[0].answers for one, run in zip(inquiries, runs, strict=True)
            }
            name, noise = model_name(options.model), noise_floor_of(folder)
            counted = count_answers(answers, first.suite, first.protocol, name, noise)
            folder = folder.parent
            write_whole(folder / "metrics.csv", csv_of(counted.metrics))
        changed = pl.concat(
            run.changed_answers.with_columns(pl.lit(one.seed).alias("seed"))
            for one, run in zip(inquiries, runs, strict=True)
            if run.changed_answers is not None
        ).sort("margin", descending=True, nulls_last=True)
        write_whole(folder / "changes.csv", csv_of(counted.changes))
        write_whole(folder / "inconsistent.csv", csv_of(changed))
        by_seed = {one.seed: run.notes for one, run in zip(inquiries, runs, strict=True)}
        of_seed = runs[0].record["settings"]
        settings = {name: of for name, of in of_seed.items() if name not in ("format", "model")}
        models = {one.seed: one.spec for one in inquiries}
        record = {"settings": settings, "models": models, "path": str(folder)}
        notes = seed_notes({"": first.notes} | by_seed)
        return replace(counted, notes=notes, record=record, changed_answers=changed)

    def rows(self) -> Iterator[base.ExportedRow]:
        from consilience.models.prompt_tokens import REPLY, TEMPLATES, filled

        task = self.task
        text = filled(self.options.template or TEMPLATES[task.kind], task).replace(REPLY, "")
        before, after = text.split("{text}")
        for pair in self.pairs.items:
            forms = tasks.forms_of(pair, self.form(pair), self.perturbations)
            for at, (name, form) in enumerate(forms.items()):
                yield {
                    "suite": tasks.TASK_SUITE,
                    "group": task.name,
                    "item": pair.item,
                    "subject": pair.first,
                    "variant": name,
                    "variant_index": at,
                    "prompt": before + as_string(form) + after,
                    "text_1": form[0].text,
                    "text_2": form[1].text,
                    "candidates": list(task.labels),
                    "gold": pair.label,
                }

    @classmethod
    def model_of(cls, function: Any, suite: str, template: str | None) -> LabelFunction:
        return LabelFunction(function, tasks.load_task(suite).labels)

    @classmethod
    def suite_of(
        cls, run: Run, name: str | None, protocol: Protocol | None
    ) -> tuple[Suite, Protocol]:
        base.refuse_choices("sentence pairs", suite=name, protocol=protocol)
        task, answers = task_of_run(run), run.seeds[0].answers
        forms = answers.select("variant", "variant_index").unique().sort("variant_index")
        if forms.is_empty() or forms["variant_index"][0] != 0:
            raise ConsilienceError("no answers to the original form", where=str(run.path))
        is_written = tasks.generated_group(task) in answers["group"]
        return suite_of_task(task, forms["variant"].to_list(), with_text=is_written), "strict"

    @classmethod
    def is_as_asked(cls, run: Run, suite: Suite) -> bool:
        source = run.record.get("suite_source", {})
        file = Path(source.get("file", ""))
        return not file.is_file() or digest_of(file) == source.get("sha256")

    @classmethod
    def read_answers(
        cls, run: Run, options: ScoreOptions, suite: Questions | None
    ) -> base.AnswersElsewhere:
        refuse_published(options)
        if options.out is not None:
            raise ConsilienceError(
                "--out with sentence pairs, whose sentences the table does not have",
                expected="answers to facts or to questions",
                todo="Leave it out; --csv FILE writes the numbers. A run of sentence pairs is what "
                "`consilience probe --generate` keeps.",
            )
        task, rule = tasks.load_task(options.suite or ""), rule_of(options.match or DEFAULT_RULE)
        known = {**tasks.PERTURBATIONS, **tasks.chosen(options.perturbations or ())}
        pairs = tasks.read_pairs(options.data, task) if options.data else None
        forms, answers = answers_to_pairs(run.answers, task, rule, known, pairs)
        match = options.match or DEFAULT_RULE
        notes = []
        if pairs is None and "subject" not in run.answers.columns:
            notes = [
                "no column 'subject' (the first sentence): pairs that share it count as "
                "independent, so intervals may be too narrow; keep the column, or name the file of "
                "pairs: --data"
            ]
        return base.AnswersElsewhere(
            suite_of_task(task, forms, with_text=True),
            "strict",
            answers,
            {"answers": str(options.answers), "suite": task.name, "match": match},
            groups=[tasks.generated_group(task)],
            after=notes,
        )

    @classmethod
    def on_the_hub(cls, run: Run) -> tuple[str, str, str]:
        hub, _, split = str((run.record.get("options") or {}).get("data") or "").partition(":")
        if hub != tasks.HUB:
            return super().on_the_hub(run)
        source: Sequence[str] = run.settings["task"].get("hub", ())
        dataset, config, *_ = [*source, "", ""]
        return dataset, config, split or "validation"

    @classmethod
    def shown_texts(cls, run: Run, suite: Suite, items: Set[tuple[str, str]]) -> base.ShownTexts:
        texts = {}
        for row in changed_answers_of(run.path).iter_rows(named=True):
            group, item = row["group"], row["item"]
            if (group, item) in items:
                texts[group, item, ORIGINAL] = f"{row['original_1']}\n{row['original_2']}"
                texts[group, item, row["perturbation"]] = f"{row['text_1']}\n{row['text_2']}"
        return texts


def suite_of_task(task: Task, forms: Sequence[str], *, with_text: bool) -> Suite:
    """The suite of a task in its forms: the task and, if ``with_text``, what is written."""
    positive = task.labels[-1] if "f1" in task.metrics else ""
    design = Design.of_forms(forms, task.labels, positive)
    groups = [(task.name, design)]
    if with_text:
        groups.append((tasks.generated_group(task), replace(design, writes_freely=True)))
    candidates = Candidates(task.labels, (0,) * len(task.labels))
    relations = tuple(Relation.of_design(group, (), candidates, of) for group, of in groups)
    return Suite(tasks.TASK_SUITE, relations, "strict", words=PAIR_WORDS)


def task_of_run(run: Run) -> Task:
    """The task that a run was asked."""
    fields = run.settings.get("task", {})
    known = {name: value for name, value in fields.items() if value is not None}
    return tasks.task_of_table(known, str(run.seeds[0].path / "run.json"))


def changed_answers_of(run: Path) -> pl.DataFrame:
    """The answers that a form changed; those of one seed are in the folder of all seeds."""
    for folder, seed in ((run, None), (run.resolve().parent, run.resolve().name)):
        file = folder / "inconsistent.csv"
        if file.is_file():
            changed = read_csv(file, infer_schema=False)
            if seed is None:
                return changed
            if seed in {part.name for part in folder.glob("seed-*")}:
                return changed.filter(pl.col("seed") == seed)
    raise ConsilienceError(
        "no inconsistent.csv",
        where=str(run),
        todo="Of one seed it is in the folder of all seeds. Rerun the same `consilience probe` "
        "command to finish an interrupted run.",
    )


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
                todo=f"Name one with --suite: {heads[0]}."
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
        found = f"this folder holds another run: of {holds or ', '.join(others)}"
        raise ConsilienceError(found, where=str(folder), todo=f"{OTHER_OUT}, or remove the folder.")
