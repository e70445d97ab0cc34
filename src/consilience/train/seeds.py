"""Several trainings, side by side or in turn: a grid of recipes, then the best with every seed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from consilience.choices import Joined, Pool
from consilience.errors import ConsilienceError
from consilience.models.loading import kind_of
from consilience.models.pair_input import Reading
from consilience.train.finetune import Finetuned, Recipe, Source, check, finetune

GRID_BATCHES, GRID_RATES = (32, 64, 128), (5e-4, 1e-5, 5e-6)
"""The paper's grid (Appendix A.1)."""


def grid(recipe: Recipe, batches: Sequence[int], rates: Sequence[float]) -> list[Recipe]:
    """The recipe with every batch size and learning rate."""
    return [replace(recipe, batch=size, learning_rate=rate) for size in batches for rate in rates]


def train_seeds(
    spec: str,
    sources: Sequence[Source],
    recipes: Sequence[Recipe],
    folder: Path,
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    joined: Joined | None = None,
    pool: Pool | None = None,
    longest: int = 0,
    device: str = "auto",
    trust_remote_code: bool = False,
    say: Callable[[str], None] = lambda step: None,
) -> tuple[Recipe, list[tuple[Recipe, Finetuned]], dict[int, Finetuned]]:
    """The best of ``recipes`` by the first seed's validation, and a training of it with each seed.

    The best recipe, what each of them reached, and the training of each seed. ``jobs`` trainings
    run side by side, each in a process of its own with its share of the processor, or on one
    accelerator after the other. What is None or 0 is as the family of the model has it.
    """
    for seed in seeds:
        check(sources, replace(recipes[0], seed=seed))
    if len(set(seeds)) < len(seeds) or len(set(recipes)) < len(recipes):
        raise ConsilienceError("a seed, batch size or learning rate stands twice")
    reading = None
    if joined or pool or longest:
        usual = Reading.of(kind_of(spec, trust_remote_code=trust_remote_code))
        reading = Reading(joined or usual.joined, pool or usual.pool, longest)
    job = partial(_job, spec, list(sources), reading, device, trust_remote_code)
    single = len(recipes) == 1
    tried: list[tuple[Recipe, Finetuned]] = []
    if not single:
        places = [folder / "grid" / f"batch-{e.batch}-lr-{e.learning_rate:g}" for e in recipes]
        say(f"trying {len(recipes)} recipes with seed {recipes[0].seed}")
        reached = _side_by_side(job, list(zip(recipes, places, strict=True)), jobs)
        tried = list(zip(recipes, reached, strict=True))
    main = sources[0].task.name
    best = recipes[0] if single else max(tried, key=lambda each: each[1].validation[main])[0]
    asked = [(replace(best, seed=seed), folder / f"seed-{seed}") for seed in seeds]
    several = "s" * (len(seeds) != 1)
    say(
        f"training {main} with {len(seeds)} seed{several}, batch {best.batch}, "
        f"lr {best.learning_rate:g}"
    )
    found = _side_by_side(job, asked, jobs)
    return best, tried, dict(zip(seeds, found, strict=True))


def _job(
    spec: str,
    sources: Sequence[Source],
    reading: Reading | None,
    device: str,
    trust_remote_code: bool,
    recipe: Recipe,
    place: Path,
) -> Finetuned:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return finetune(
        spec,
        sources,
        recipe,
        place,
        reading=reading,
        device=device,
        trust_remote_code=trust_remote_code,
    )


def _side_by_side(
    job: Callable[[Recipe, Path], Finetuned], asked: Sequence[tuple[Recipe, Path]], jobs: int
) -> list[Finetuned]:
    if jobs == 1 or len(asked) == 1:
        return [job(recipe, place) for recipe, place in asked]
    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // jobs)
    turn = context.Value("i", 0)
    count = torch.cuda.device_count()
    every = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    accelerators = every.split(",") if count else []
    with ProcessPoolExecutor(jobs, context, _start, (threads, turn, accelerators)) as pool:
        return list(pool.map(job, *zip(*asked, strict=True)))


def _start(threads: int, turn: Any, accelerators: Sequence[str]) -> None:
    """What a process does first: take its share of the processor, and its accelerator.

    The Trainer takes the first accelerator that it sees, so each process is to see its own only.
    Ctrl-C ends it at once, without a traceback: the first process says that it was interrupted.
    """
    if multiprocessing.parent_process():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(threads)
    with turn.get_lock():
        place, turn.value = turn.value, turn.value + 1
    if accelerators:
        os.environ["CUDA_VISIBLE_DEVICES"] = accelerators[place % len(accelerators)]
