"""What the machine can do: its name, and how fast it multiplies at a model's own shapes."""

from __future__ import annotations

import os
import platform
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch


def name() -> str:
    """The processor and its cores."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":")[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores, {torch.get_num_threads()} threads used"


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
