"""What the machine can do: its name, and how fast it multiplies at a model's own shapes."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from consilience.models.fast.products import processor

INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
"""What decides how fast a processor multiplies, as Linux names it."""


def name() -> str:
    """The processor, its cores and what it can do."""
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.exists() else set()
    has = [each for each in INSTRUCTIONS if each in flags]
    can = f" with {', '.join(has)}" if has else ""
    return f"{processor()}{can}, {os.cpu_count()} cores, {torch.get_num_threads()} threads used"


def of_one_batch(work: Callable[[], object], rounds: int = 10) -> dict[str, float]:
    """Shares of the time of ``work`` on one thread, by the operation of torch that takes it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(3):
        work()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(rounds):
            work()
    torch.set_num_threads(threads)
    found = {each.key: each.self_cpu_time_total for each in profile.key_averages()}
    whole = sum(found.values())
    return {key: own / whole for key, own in sorted(found.items(), key=lambda pair: -pair[1])}


def resident() -> int:
    """Bytes of memory that this process has now (Linux)."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def peak(run: Callable[[], object]) -> float:
    """MiB of memory beyond what the process has, at most, while it runs."""
    before = most = resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.01):
            most = max(most, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    done.set()
    watcher.join()
    return (most - before) / 2**20


def layer_products(width: int, inner: int, layers: int, packed: bool) -> list:
    """The products of an encoder's layers, each with weights of its own, and nothing between."""
    shapes = [(width, width)] * 4 + [(inner, width), (width, inner)]
    found = []
    for out, into in shapes * layers:
        weight, bias = torch.randn(out, into), torch.randn(out)
        if packed:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        found.append((weight, bias, into))
    return found


def multiply(products: list, inputs: dict, packed: bool) -> None:
    """All products once."""
    for weight, bias, into in products:
        if packed:
            torch.ops.mkldnn._linear_pointwise(inputs[into], weight, bias, "none", [], "")
        else:
            torch.nn.functional.linear(inputs[into], weight, bias)


@torch.inference_mode()
def products_per_second(width: int, inner: int, layers: int, tokens: int, packed: bool) -> float:
    """Floating-point operations a second, one product on each thread at a time.

    ``packed``: oneDNN with weights in its order; else torch's own choice. Median of five.
    """
    threads = torch.get_num_threads()
    products = layer_products(width, inner, layers, packed)
    inputs = {width: torch.randn(tokens, width), inner: torch.randn(tokens, inner)}
    work = sum(2 * tokens * bias.numel() * into for _, bias, into in products) * threads

    def one() -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            multiply(products, inputs, packed)

    speeds = []
    for _ in range(6):
        start = time.perf_counter()
        workers = [threading.Thread(target=one) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        speeds.append(work / (time.perf_counter() - start))
    torch.set_num_threads(threads)
    return statistics.median(speeds[1:])
