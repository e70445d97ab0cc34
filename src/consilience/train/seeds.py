"""Several fine-tunings, side by side or in turn: a grid of plans, then the best with every seed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from consilience.choices import Joined, Loading, Pool
from consilience.errors import ConsilienceError
from consilience.models.loading import kind_of
from consilience.models.pair_input import PairFormat
from consilience.train.classifiers import (
    Backbone,
    ClassifierPlan,
    Finetuned,
    TaskPairs,
    check_sources,
    train_classifier,
)
from consilience.train.resume import TrainingFolder
from consilience.watch import SILENT, Watch


@dataclass(frozen=True, slots=True)
class SeedTrainings:
    """The trainings of one model with several seeds."""

    best: ClassifierPlan
    """The plan with the best validation of the first seed."""
    grid: Sequence[tuple[ClassifierPlan, Finetuned]]
    """Every plan that was tried with the first seed; empty where there was one plan."""
    seeds: Mapping[int, Finetuned]
    """The training of the best plan with each seed."""


def grid_of(
    plan: ClassifierPlan, batches: Sequence[int], rates: Sequence[float]
) -> list[ClassifierPlan]:
    """The plan with every batch size and learning rate."""
    return [replace(plan, batch=size, learning_rate=rate) for size in batches for rate in rates]


def reading_of(
    model: str, loading: Loading, joined: Joined | None, pool: Pool | None, longest: int
) -> PairFormat | None:
    """How a model reads pairs; what is None or 0 is as usual in its family, None if all is."""
    if not (joined or pool or longest):
        return None
    usual = PairFormat.of(kind_of(model, loading))
    return PairFormat(joined or usual.joined, pool or usual.pool, longest)


def train_seeds(
    backbone: Backbone,
    sources: Sequence[TaskPairs],
    plans: Sequence[ClassifierPlan],
    folder: Path,
    seeds: Sequence[int],
    jobs: int = 1,
    watch: Watch = SILENT,
) -> SeedTrainings:
    """Choose the best plan by the first seed's validation, and train it with each seed.

    ``jobs`` trainings run side by side, each in its own process with its share of the processor or
    with its own accelerator.
    """
    for plan in plans:
        check_sources(sources, plan)
    for seed in seeds:
        check_sources(sources, replace(plans[0], seed=seed))
    if len(set(seeds)) < len(seeds) or len(set(plans)) < len(plans):
        raise ConsilienceError("duplicate seed, batch size or learning rate")
    job = partial(_job, backbone, list(sources), watch)
    main = sources[0].task.name
    best, grid = plans[0], list[tuple[ClassifierPlan, Finetuned]]()
    if len(plans) > 1:
        watch.say(f"trying {len(plans)} plans with seed {best.seed}")
        paths = [
            folder / "grid" / f"batch-{plan.batch}-lr-{plan.learning_rate:g}" for plan in plans
        ]
        trainings = _side_by_side(job, plans, paths, jobs, backbone.device)
        grid = list(zip(plans, trainings, strict=True))
        best, _ = max(grid, key=lambda tried: tried[1].validation[main])
    several = "s" * (len(seeds) != 1)
    watch.say(
        f"training {main} with {len(seeds)} seed{several}, batch size {best.batch}, "
        f"learning rate {best.learning_rate:g}"
    )
    seeded = [replace(best, seed=seed) for seed in seeds]
    paths = [folder / f"seed-{seed}" for seed in seeds]
    trainings = _side_by_side(job, seeded, paths, jobs, backbone.device)
    return SeedTrainings(best, grid, dict(zip(seeds, trainings, strict=True)))


def are_finished(folder: Path, seeds: Sequence[int]) -> bool:
    """Whether the training with each seed is finished."""
    return all(TrainingFolder(folder / f"seed-{seed}", {}).has_result for seed in seeds)


def _job(
    backbone: Backbone,
    sources: Sequence[TaskPairs],
    watch: Watch,
    plan: ClassifierPlan,
    path: Path,
) -> Finetuned:
    return train_classifier(backbone, sources, plan, path, watch)


def _side_by_side(
    job: Callable[[ClassifierPlan, Path], Finetuned],
    plans: Sequence[ClassifierPlan],
    paths: Sequence[Path],
    jobs: int,
    device: str,
) -> list[Finetuned]:
    if jobs == 1 or len(plans) == 1:
        return [job(plan, path) for plan, path in zip(plans, paths, strict=True)]
    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // jobs)
    started = context.Value("i", 0)
    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    accelerators = visible.split(",") if count and device == "auto" else []
    with ProcessPoolExecutor(jobs, context, _start, (threads, started, accelerators)) as pool:
        return list(pool.map(job, plans, paths))


def _start(threads: int, started: Any, accelerators: Sequence[str]) -> None:
    """Give a new process its share of the processor, and its own accelerator.

    The Trainer takes the first accelerator that it sees, so each process is to see only its own.
    Ctrl-C ends the process at once, without a traceback: the first process reports it.
    """
    if multiprocessing.parent_process():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(threads)
    with started.get_lock():
        number, started.value = started.value, started.value + 1
    if accelerators:
        os.environ["CUDA_VISIBLE_DEVICES"] = accelerators[number % len(accelerators)]
