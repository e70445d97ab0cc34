"""The cost of a training before it starts: the amount of work, and an estimate of its time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from consilience.core.text import counted, duration
from consilience.train.batch_trainer import BatchTrainer, TrainingFolder, quiet_transformers
from consilience.train.classifiers import Backbone, ClassifierPlan, TaskPairs, pair_trainer
from consilience.train.consistency import check_settings, make_trainer
from consilience.train.plan import ABLATIONS, Plan, Subject
from consilience.types import Suite

TIMED_FACTS = 8
"""Facts of each validation relation whose queries are timed."""

TIMED_PAIRS = 64
"""Sentence pairs whose validation is timed."""


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """The work of ``improve`` or ``finetune``, and how long it takes on this machine.

    ``held_out``: the data that measure the trained model, in words; empty where nothing is
    measured. ``breakdown``: what the trainings are, in words. ``updates`` and ``validations``: of
    one training, at most. ``runs``: those that measure a model, before and after training.

    Measured seconds, NaN where nothing was timed: to load the model, of an update, of a query, and
    of a validation or a run beside its queries (``overhead_seconds``).
    """

    held_out: str
    seeds: int
    trainings: int
    breakdown: str
    updates: int
    validations: int
    validation_queries: int
    runs: int
    run_queries: int
    load_seconds: float
    update_seconds: float
    query_seconds: float
    overhead_seconds: float

    @property
    def seconds(self) -> float:
        """The estimated time of everything, one training after the other."""
        queries = self.overhead_seconds + self.query_seconds * self.validation_queries
        training = self.load_seconds + self.updates * self.update_seconds
        measuring = self.overhead_seconds + self.query_seconds * self.run_queries
        return self.trainings * (training + self.validations * queries) + self.runs * (
            self.load_seconds + measuring
        )

    @property
    def lines(self) -> list[str]:
        """The work and the time in words."""
        seeds = f" ({counted(self.seeds, 'seed')})" if self.seeds > 1 else ""
        trainings, updates = counted(self.trainings, "training"), counted(self.updates, "update")
        work = (
            f"work: {trainings}{seeds} of {updates} and {counted(self.validations, 'validation')} "
            f"of {counted(self.validation_queries, 'query', 'queries')}"
        )
        if self.runs:
            run = counted(self.run_queries, "query", "queries")
            work += f"; then {counted(self.runs, 'run')} of {run}"
        lines = [f"held out: {self.held_out}"] if self.held_out else []
        lines += [work, f"trainings: {self.breakdown}"]
        if not math.isnan(self.seconds):
            lines.append(
                f"estimated time: {duration(self.seconds)} (measured: {self.load_seconds:.2g} s to "
                f"load, {self.update_seconds:.2g} s an update, {self.query_seconds:.2g} s a query)"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The fields and the estimated seconds, for a JSON document."""
        values = asdict(self) | {"seconds": self.seconds}
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in values.items()
        }


@quiet_transformers()
def consistency_cost(
    subject: Subject, plan: Plan, seeds: Sequence[int], *, ablations: bool
) -> TrainingCost:
    """Count the work of ``improve``, and time an update and a few queries of the first seed."""
    check_settings(subject, plan, seeds)
    test = subject.test_suite(plan)
    rows = 1 + len(ABLATIONS) * ablations
    per_seed = len(plan.weights) + (rows - 1) + (plan.loss == "vote")
    facts = sum(len(relation.facts) for relation in test.relations)
    lambdas = ", ".join(f"{weight:g}" for weight in plan.weights)
    breakdown = ["the teacher, without a consistency loss"] if plan.loss == "vote" else []
    breakdown += [f"one for each lambda: {lambdas}"]
    breakdown += [f"one for each ablation: {', '.join(ABLATIONS)}"] if ablations else []
    start = time.perf_counter()
    with TemporaryDirectory() as folder:
        untimed = replace(plan, report_to="none")
        trainer = make_trainer(subject, untimed, plan.weights[0], TrainingFolder(Path(folder), {}))
        load = time.perf_counter() - start
        per_update, interval = trainer.args.gradient_accumulation_steps, trainer.args.eval_steps
        updates = math.ceil(len(trainer.steps) / (per_update * trainer.args.world_size))
        batches = [trainer.steps[at] for at in range(min(per_update, len(trainer.steps)))]
        samples = {
            queries_of(trainer.validation, facts): partial(trainer.validate, facts)
            for facts in (1, TIMED_FACTS)
        }
        seconds = time_training(trainer, batches, samples)
    return TrainingCost(
        held_out=f"{counted(len(test.relations), 'relation')}, {counted(facts, 'fact')}",
        seeds=len(seeds),
        trainings=len(seeds) * per_seed,
        breakdown=f"with seed {', '.join(map(str, seeds))}: {'; '.join(breakdown)}",
        updates=updates,
        validations=updates // int(interval or 1),
        validation_queries=queries_of(trainer.validation),
        runs=1 + len(seeds) * rows,
        run_queries=queries_of(test),
        load_seconds=load,
        **seconds,
    )


@quiet_transformers()
def classifier_cost(
    backbone: Backbone,
    sources: Sequence[TaskPairs],
    plans: Sequence[ClassifierPlan],
    seeds: Sequence[int],
) -> TrainingCost:
    """Count the work of ``finetune``, and time an update and a few validation pairs."""
    start = time.perf_counter()
    with TemporaryDirectory() as folder:
        trainer = pair_trainer(backbone, sources, plans[0], Path(folder))
        load = time.perf_counter() - start
        batches = trainer.batches
        by_length = sorted(
            (batches[at] for at in range(batches.per_epoch)),
            key=lambda batch: max(len(form["input_ids"]) for form in batch["forms"]),
        )
        task, pairs = next(iter(trainer.validation.items()))
        timed = pairs.first(TIMED_PAIRS)
        samples = {len(timed.forms): partial(trainer.judge, task, timed)}
        seconds = time_training(trainer, [by_length[len(by_length) // 2]], samples)
    queries = sum(len(pairs.forms) for pairs in trainer.validation.values())
    grid = f"{len(plans)} batch sizes and learning rates with the first seed; then "
    return TrainingCost(
        held_out="",
        seeds=len(seeds),
        trainings=len(seeds) + (len(plans) if len(plans) > 1 else 0),
        breakdown=grid * (len(plans) > 1) + f"one for each seed: {', '.join(map(str, seeds))}",
        updates=batches.per_epoch * plans[0].epochs,
        validations=plans[0].epochs,
        validation_queries=queries,
        runs=0,
        run_queries=0,
        load_seconds=load,
        **seconds,
    )


def queries_of(suite: Suite, facts: int | None = None) -> int:
    """The queries of a suite, with at most ``facts`` facts of each relation."""
    return sum(len(relation.facts[:facts]) * len(relation.patterns) for relation in suite.relations)


def time_training(
    trainer: BatchTrainer,
    batches: Sequence[dict[str, Any]],
    samples: Mapping[int, Callable[[], object]],
) -> dict[str, float]:
    """Seconds of an update, of a query and of the rest of a validation; NaN of several processes.

    ``batches``: those of an update. The first is run once before, untimed; the weights change, so
    the trainer is of no further use. ``samples``: validations by their number of queries. The time
    of two samples of different size is split into queries and rest; one counts as queries alone.
    """
    names = ("update_seconds", "query_seconds", "overhead_seconds")
    if trainer.args.world_size > 1:
        return dict.fromkeys(names, math.nan)
    model: Any = trainer.model
    optimizer = torch.optim.AdamW(each for each in model.parameters() if each.requires_grad)
    model.train()
    start = 0.0
    for batch in (batches[0], *batches):
        inputs = trainer._prepare_inputs(trainer.data_collator([batch]))
        with trainer.compute_loss_context_manager():
            loss: Any = trainer.compute_loss(model, inputs)
        loss.backward()
        start = start or time.perf_counter()
    optimizer.step()
    update, seconds = time.perf_counter() - start, {}
    for count, validate in samples.items():
        start = time.perf_counter()
        validate()
        seconds[count] = time.perf_counter() - start
    (few, short), (many, long) = min(seconds.items()), max(seconds.items())
    query, rest = long / many, 0.0
    if few < many and long > short:
        query = (long - short) / (many - few)
        rest = max(0.0, short - few * query)
    return dict(zip(names, (update, query, rest), strict=True))
