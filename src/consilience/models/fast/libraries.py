"""Which library multiplies faster on this processor: measured at a model's shapes, then remembered.

Torch carries two libraries for products on a processor. Neither is always the faster one: on an
AMD EPYC oneDNN with packed weights does twice the products of torch's own choice (MKL), on an Intel
Xeon both are equally fast, and in training torch's own is faster there (docs/log.md). So both are
measured when a model is loaded. The choice changes the last bits of a score and no answer
(docs/decisions/0007), and it stays the same on a machine as long as the cache is kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Literal

import torch

from consilience.models.batches import CPU_TOKENS, one_thread
from consilience.models.sources import cpuinfo, key_of, processor, recall, remember

Library = Literal["onednn", "torch"]
Purpose = Literal["inference", "training", "screening"]

CLEARLY = 1.05
"""How many times faster a library has to be before it replaces the usual one."""

USUAL: Mapping[Purpose, str] = {
    "inference": "onednn",
    "training": "torch",
    "screening": "float32",
}
"""What multiplies where nothing is clearly faster. In inference oneDNN also computes activations in
the product; training with torch's own products needs no replacement."""

SMALL: Mapping[Purpose, str] = {**USUAL, "training": "onednn"}
"""What multiplies in a model whose products are too small to be measured."""

ACCELERATOR = 100
"""How many times more operations an accelerator is given to measure."""

LEAST_OPERATIONS = 1e8
"""Operations of a measurement, at least; with fewer the time is not that of the products."""

MOST_OPERATIONS = 1.5e9
"""Operations of one round's products forwards, at most; a batch then has fewer tokens."""

LEAST_TOKENS = 32

ROUNDS = 9
SECONDS = 0.2
"""No further round begins after so long; at least three are measured."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a linear layer."""

    into: int
    """Width of its input."""
    out: int
    """Width of its output."""
    activation: str = "none"
    """The name of the activation that follows it."""


@dataclass(frozen=True, slots=True)
class Products:
    """What multiplies in a model, and why."""

    library: str
    """The library."""
    processor: str
    """The processor, or the accelerator."""
    threads: int
    """Threads that torch used when it was measured."""
    gflops: Mapping[str, float]
    """10^9 operations a second of each library, in its fastest round; empty if not measured."""

    def record(self) -> dict[str, object]:
        """For ``run.json``."""
        return asdict(self)


Work = Callable[[], object]

Ways = Callable[[Shape, int], Mapping[str, Work]]
"""For a shape and a number of tokens, what each library has to compute."""

CPU = torch.device("cpu")


def clearly_faster(
    seconds: Mapping[str, Sequence[float]], usual: str, factor: float = CLEARLY
) -> str:
    """The fastest of several ways by their ``seconds`` (round,), measured in turn.

    Another way than the ``usual`` one is chosen only if it is ``factor`` times as fast both in the
    median and in the fastest round: other programs on the machine disturb one of the two at most.
    """
    best, gain = usual, factor
    for name, rounds in seconds.items():
        ratio = min(of(seconds[usual]) / of(rounds) for of in (statistics.median, min))
        if name != usual and ratio >= gain:
            best, gain = name, ratio
    return best


def measured_products(
    shapes: Mapping[Shape, int], purpose: Purpose, ways: Ways, device: torch.device = CPU
) -> Products:
    """The library for a model with ``shapes`` (layers of each), measured or remembered.

    In inference each thread computes its own batch, so one thread is measured; in training all
    compute the same one.
    """
    threads, name, larger = torch.get_num_threads(), processor(), 1
    if device.type != "cpu":
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        larger = ACCELERATOR
    one_token = sum(2 * shape.into * shape.out for shape in shapes)
    enough = max(LEAST_TOKENS, larger * MOST_OPERATIONS / max(1, one_token))
    tokens = int(min(larger * CPU_TOKENS, enough))
    if one_token * tokens < LEAST_OPERATIONS:
        return Products(SMALL[purpose], name, threads, {})
    key = "products-" + key_of(
        {
            "processor": [*_processor_details(), name],
            "torch": torch.__version__,
            "threads": threads,
            "purpose": purpose,
            "shapes": sorted([*asdict(shape).values(), count] for shape, count in shapes.items()),
        }
    )
    if known := _recalled(key):
        return known
    with nullcontext() if purpose == "training" else one_thread():
        seconds = time_in_turn({shape: ways(shape, tokens) for shape in shapes}, shapes)
    passes = 3 if purpose == "training" else 1  # the gradients are two products more
    operations = passes * tokens * sum(2 * s.into * s.out * count for s, count in shapes.items())
    speeds = {way: round(operations / min(rounds) / 1e9, 1) for way, rounds in seconds.items()}
    products = Products(clearly_faster(seconds, USUAL[purpose]), name, threads, speeds)
    remember(key, products.record())
    return products


def time_in_turn(
    ways: Mapping[Shape, Mapping[str, Work]], shapes: Mapping[Shape, int]
) -> dict[str, list[float]]:
    """Seconds (round,) that each library needs for all layers; the libraries take turns.

    Every shape is computed once a round and counts as often as the model has it. The first round,
    which also prepares the products, does not count.
    """
    names = next(iter(ways.values())).keys()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    start = time.perf_counter()
    for number in range(1 + ROUNDS):
        if number > 3 and time.perf_counter() - start > SECONDS:
            break
        for name in names:
            total = 0.0
            for shape, by_name in ways.items():
                begin = time.perf_counter()
                by_name[name]()
                total += (time.perf_counter() - begin) * shapes[shape]
            if number:
                seconds[name].append(total)
    return seconds


def _recalled(key: str) -> Products | None:
    """The remembered choice; None where there is none that can be read."""
    known = recall(key)
    try:
        products = Products(**known) if known else None
        usable = products and products.library in products.gflops and products.processor
    except (TypeError, AttributeError):
        return None
    return products if usable else None


def _processor_details() -> list[str]:
    """What differs between processors of one name."""
    info = cpuinfo()
    parts = [info.get(name, "") for name in ("cpu family", "model", "stepping")]
    return [processor(), *parts, torch.backends.cpu.get_cpu_capability()]
