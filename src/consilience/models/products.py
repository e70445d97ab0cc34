"""Which library multiplies faster on this processor: measured at a model's shapes, then remembered.

Torch carries two libraries for products on a processor. Neither is the faster one everywhere: on an
AMD EPYC oneDNN with packed weights does twice the products of torch's own choice (MKL), on an Intel
Xeon both are equally fast, and in training torch's own is the faster one there (docs/log.md). So
both are measured when a model is loaded. The choice moves the last bits of a score and no answer
(docs/decisions/0007), and it stays the same on a machine as long as the cache is kept.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch

from consilience.models.batches import CPU_TOKENS, one_thread
from consilience.models.cache import key_of, recall, remember

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
the product; in training torch's own products need nothing of ours."""

SMALL: Mapping[Purpose, str] = {**USUAL, "training": "onednn"}
"""What multiplies in a model whose products are too small to be measured."""

ACCELERATOR = 100
"""How many times more work an accelerator is given to measure."""

LEAST_WORK = 1e8
"""The same, at least; with fewer the time is not that of the products."""

MOST_WORK = 1.5e9
"""Operations of one round's products forwards, at most; a batch then has fewer tokens."""

LEAST_TOKENS = 32

ROUNDS = 9
SECONDS = 0.2
"""After so long no further round is begun; there are three at least."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A linear layer: its widths, and the name of the activation that follows it or ``none``."""

    into: int
    out: int
    activation: str = "none"


@dataclass(frozen=True, slots=True)
class Products:
    """What multiplies in a model, and why.

    ``gflops``: 10^9 operations a second of each library at the model's shapes, in its fastest
    round; empty where nothing was measured. ``threads``: that torch used when it was measured.
    """

    library: str
    processor: str
    threads: int
    gflops: Mapping[str, float]

    def record(self) -> dict[str, object]:
        """For ``run.json``."""
        return asdict(self)


Work = Callable[[], object]

CPU = torch.device("cpu")


def clearly_faster(
    seconds: Mapping[str, Sequence[float]], usual: str, factor: float = CLEARLY
) -> str:
    """The fastest of several ways by their ``seconds`` (round,), measured in turn.

    Another way than the ``usual`` one is chosen only if it is ``factor`` times as fast both in the
    median and in the fastest round: what else runs on the machine disturbs one of the two at most.
    """
    best, gain = usual, factor
    for name, own in seconds.items():
        ratios = (of(seconds[usual]) / of(own) for of in (statistics.median, min))
        surely = min(ratios)
        if name != usual and surely >= gain:
            best, gain = name, surely
    return best


def measured_products(
    shapes: Mapping[Shape, int],
    purpose: Purpose,
    ways: Callable[[Shape, int], Mapping[str, Work]],
    device: torch.device = CPU,
) -> Products:
    """The library for a model with ``shapes`` (layers of each), measured or remembered.

    ``ways``: for a shape and a number of tokens what each library has to do. In inference each
    thread has a batch of its own, so that one thread is measured; in training all work on one.
    """
    threads, on, larger = torch.get_num_threads(), processor(), 1
    if device.type != "cpu":
        on = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        larger = ACCELERATOR
    passes = 3 if purpose == "training" else 1  # the gradients are two products more
    one_token = sum(2 * shape.into * shape.out for shape in shapes)
    enough = max(LEAST_TOKENS, larger * MOST_WORK / max(1, one_token))
    tokens = int(min(larger * CPU_TOKENS, enough))
    if one_token * tokens < LEAST_WORK:
        return Products(SMALL[purpose], on, threads, {})
    name = "products-" + key_of(
        {
            "processor": [*_processor_details(), on],
            "torch": torch.__version__,
            "threads": threads,
            "purpose": purpose,
            "shapes": sorted([*asdict(shape).values(), count] for shape, count in shapes.items()),
        }
    )
    known = _recalled(name)
    if known is not None:
        return known
    with nullcontext() if purpose == "training" else one_thread():
        seconds = time_in_turn({shape: ways(shape, tokens) for shape in shapes}, shapes)
    work = passes * tokens * sum(2 * s.into * s.out * count for s, count in shapes.items())
    speeds = {each: round(work / min(own) / 1e9, 1) for each, own in seconds.items()}
    found = Products(clearly_faster(seconds, USUAL[purpose]), on, threads, speeds)
    remember(name, found.record())
    return found


def time_in_turn(
    ways: Mapping[Shape, Mapping[str, Work]], shapes: Mapping[Shape, int]
) -> dict[str, list[float]]:
    """Seconds (round,) that each library needs for all layers, one after the other in each round.

    Every shape is done once a round and counts as often as the model has it. The first round,
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
                begun = time.perf_counter()
                by_name[name]()
                total += (time.perf_counter() - begun) * shapes[shape]
            if number:
                seconds[name].append(total)
    return seconds


def _recalled(name: str) -> Products | None:
    """What was chosen before; None where that cannot be read as a choice."""
    known = recall(name)
    try:
        found = Products(**known) if known else None
        usable = found and found.library in found.gflops and isinstance(found.processor, str)
    except (TypeError, AttributeError):
        return None
    return found if usable else None


@cache
def processor() -> str:
    """The processor's name as the system gives it."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def _processor_details() -> list[str]:
    """What tells processors of one name apart."""
    info = _cpuinfo()
    parts = [info.get(name, "") for name in ("cpu family", "model", "stepping")]
    return [processor(), *parts, torch.backends.cpu.get_cpu_capability()]


@cache
def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first processor; empty elsewhere."""
    found: dict[str, str] = {}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found
