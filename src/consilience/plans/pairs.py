"""Sentence pairs: the pairs of a task in their original form and perturbed (CALUM)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.errors import Advance, ConsilienceError
from consilience.core.factors import ORIGINAL, Design
from consilience.core.free_text import DEFAULT_RULE, RULES, match
from consilience.core.items import Ask, Choice, Form, Group, Item, Task, TextPair
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.models import load_prompt_model
from consilience.models.functions import Chooser, label_baseline
from consilience.models.prompts import Writing
from consilience.options.commands import DEFAULT_MODEL, ProbeOptions
from consilience.plans import asking
from consilience.plans.asking import Plan, Queries
from consilience.suites import pairs as tasks
from consilience.suites.pairs import Perturbation, generated_group
from consilience.types import PAIR_WORDS, Candidates, Fact, Relation, Suite

Original = Callable[[TextPair], Form]


def plan_pairs(options: ProbeOptions, suite: Any = None) -> Plan:
    """The pairs of a task in their original form and in others."""
    task = tasks.load_task(options.suite)
    _check(options)
    perturbations = tasks.chosen(options.perturbations or tasks.PAPERS)
    pairs = tasks.read_pairs(options.data or "", task)
    if options.limit is not None:
        pairs = tasks.sample_pairs(pairs, options.limit, options.seed)
    forms = [ORIGINAL, *perturbations]
    counted = suite_of_task(task, forms, pairs.items, with_text=options.generate)
    size = len(pairs.items) * len(forms)
    # What is written comes first: writing also reads what choosing needs.
    sizes = {group.id: size for group in reversed(counted.relations)}

    def load() -> Any:
        if options.model.startswith("baseline:"):
            baseline = options.model.removeprefix("baseline:")
            return label_baseline(baseline, task.labels, pairs.items, options.seed)
        if not options.generate:
            from consilience.models.classifier import load_pair_classifier

            folder = _classifier(options.model, task.name)
            return load_pair_classifier(folder, task.labels, options.loading)
        from consilience.models.prompts import LONGEST_LABEL, LabelAsker

        model = load_prompt_model(
            options.model, loading=options.loading, connection=options.connection,
            writing=Writing(LONGEST_LABEL), asks_labels=False,
        )  # fmt: skip
        return LabelAsker(model, task, options.template)

    def queries(model: Any) -> Queries:
        is_mute = isinstance(model, Chooser) or not hasattr(model, "write")
        if options.generate and model is not None and is_mute:
            found = "--generate with a function or a baseline"
            raise ConsilienceError(found, todo="Leave it out.")
        original = _original(model, task)
        asked = present_pairs(task, pairs.items, original, perturbations, model)
        return Queries(
            model,
            [*sizes],
            lambda name: replace(asked, id=name),
            lambda group, form: [segment.text for segment in form],
            partial(ask, task, model),
        )

    named = perturbations.items()
    settings = {
        "suite": task.name,
        "groups": [*sizes],
        "protocol": "strict",
        "task": asdict(task),
        "limit": options.limit,
        "perturbations": [*perturbations],
        "perturbation_sources": {name: dict(one.source) for name, one in named if one.source},
        "seed": options.seed,
    }
    hub, _, split = (options.data or "").partition("#")[0].partition(":")
    known = [*task.hub, "", ""][:2]
    source = {"hub": [*known, split or "validation"]} if hub == tasks.HUB else {}
    return Plan("pairs", counted, sizes, settings, load, queries, source, pairs.notes)


def _check(options: ProbeOptions) -> None:
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


def _original(model: Any, task: Task) -> Original:
    """The original form: as a classifier was trained on it, T5's of a writer without a template."""
    if model is not None and getattr(model, "template", "") is None:
        return partial(tasks.t5_original, task=task)
    reading = getattr(getattr(model, "input", None), "reading", None)
    return partial(
        tasks.original, indicators=getattr(reading, "indicators", None) or task.indicators
    )


def _classifier(spec: str, task: str) -> str:
    """The folder of the classifier of a task in one that ``finetune`` wrote; else ``spec``."""
    folder = Path(spec)
    if seeds := sorted(one.name for one in folder.glob("seed-*") if one.is_dir()):
        found = f"the classifiers of {len(seeds)} seeds"
        todo = f"Probe each alone: --model {folder / seeds[0]}."
        raise ConsilienceError(found, expected="one model", where=spec, todo=todo)
    return str(folder / task) if (folder / task / "config.json").is_file() else spec


def suite_of_task(
    task: Task, forms: Sequence[str], pairs: Sequence[TextPair] = (), *, with_text: bool
) -> Suite:
    """The suite of a task in its forms: the task and, if ``with_text``, what is written."""
    positive = task.labels[-1] if "f1" in task.metrics else ""
    names = [task.name, generated_group(task)] if with_text else [task.name]
    facts = tuple(Fact(pair.item, pair.first, pair.label) for pair in pairs)
    candidates = Candidates(task.labels, (0,) * len(task.labels))
    designs = [
        Design.of_forms(forms, task.labels, positive, writes_freely=at > 0)
        for at in range(len(names))
    ]
    relations = [
        Relation.of_design(name, facts, candidates, design)
        for name, design in zip(names, designs, strict=True)
    ]
    return Suite(task.name, tuple(relations), "strict", words=PAIR_WORDS)


def present_pairs(
    task: Task,
    pairs: Sequence[TextPair],
    original: Original,
    perturbations: Mapping[str, Perturbation],
    model: Any,
) -> Group:
    """Every pair in every form, as the model reads it: a pair is asked in all or in none."""
    names = (ORIGINAL, *perturbations)
    forms = [tuple(tasks.forms_of(pair, original(pair), perturbations).values()) for pair in pairs]
    reasons: list[str | None] = [None] * len(forms)
    if model is not None:
        reasons = [next(filter(None, model.why_not(of_pair)), None) for of_pair in forms]
    if all(reasons):
        found, todo = (
            f"no pair can be asked, such as: {reasons[0]}",
            "Name another --model, or --data.",
        )
        raise ConsilienceError(found, where=task.name, todo=todo)
    items = [
        Item(pair.item, pair.first, pair.label, task.labels, task.labels.index(pair.label))
        for pair in pairs
    ]
    asks = [
        Ask(item, variant, form, task.labels, why_not=reason)
        for item, (of_pair, reason) in enumerate(zip(forms, reasons, strict=True))
        for variant, form in enumerate(of_pair)
    ]
    return Group(task.name, task.name, items, names, asks, ANSWERS_SCHEMA)


def ask(task: Task, model: Any, group: Group, advance: Advance = lambda done: None) -> pl.DataFrame:
    """The answers of a task: the most probable labels, or of its other group what is written.

    A text that is one of the labels is that label.
    """
    if group.id == task.name:
        return asking.ask(group, model.score, advance=advance)
    labels, words = task.labels, [*map(Choice, task.labels)]

    def read(text: str, ask: Ask) -> dict[str, object]:
        position = match(text, words, RULES[DEFAULT_RULE]).position
        answer = text if position is None else labels[position]
        return {"answer": answer, "n_candidates": len(labels)}

    return asking.ask_texts(group, model, read, advance=advance)
