"""`make campaign`: damaged files, hostile pickles and servers, and kills, each in a process of its own.

`python tests/campaign.py [--seconds N | --cases N] [--seed S] [--only NAME,NAME] [--case CASE] [--json]`

Every case is drawn by (seed, target, number), and runs in a forked child with 2 GiB of memory and
20 seconds more than this process has. Its outcome is one of

- done: the input was read, or the interrupted work ended as if nothing had happened;
- refused: one message of at most 5,000 characters, exit status 2;
- abort: polars cannot allocate what a damaged Parquet file asks for, and ends the process
  (docs/reliability.md); known, and counted apart;
- traceback, crash (ended by a signal), timeout, memory, wrong: failures. `wrong` is a torn file, a
  changed result, or bytes outside of where they belong.

The exit status is 1 where there is a failure.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import os
import pkgutil
import platform
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from campaign_cases import kills, models, readers  # noqa: F401
from campaign_cases.child import (
    ALONE,
    FAILURES,
    OUTCOMES,
    SECONDS,
    SLOW,
    TARGETS,
    TOGETHER,
    in_child,
)
from campaign_cases.files import prepare


def load() -> None:
    """Import once, before any fork, what the cases use; nothing of it may start a thread."""
    os.environ["OMP_NUM_THREADS"] = "1"
    gc.disable()
    import torch

    import consilience

    for module in pkgutil.walk_packages(consilience.__path__, "consilience."):
        if not module.name.endswith("__main__"):
            with suppress(ModuleNotFoundError):  # it belongs to an extra that is not installed
                importlib.import_module(module.name)
    torch.set_num_threads(1)
    gc.freeze()  # a child that looks for garbage would copy all pages of its parent
    gc.enable()


def campaign(
    seed: str, *, cases: int | None, seconds: float | None, only: list[str], first: int = 0
) -> tuple[dict[str, Counter[str]], list[dict[str, str]]]:
    """How often each target had each outcome, and every failure."""
    load()
    counts: dict[str, Counter[str]] = {name: Counter() for name in only}
    failures = []
    ends = time.monotonic() + seconds if seconds else None
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        base = Path(place) / "base"
        ((outcome, said),) = in_child([lambda: prepare(base)], Path(place) / "out", 120)
        if outcome != "done":
            raise SystemExit(f"the files cannot be prepared: {outcome} {said}")
        number = dict.fromkeys(only, first)
        last = first + (cases or sys.maxsize)
        while (ends is None or time.monotonic() < ends) and min(number.values()) < last:
            for name in only:
                size = min(1 if name in ALONE else TOGETHER, last - number[name])
                numbers = range(number[name], number[name] + size)
                acts = [functools.partial(_act, seed, name, at, Path(place)) for at in numbers]
                allowed = SECONDS * SLOW.get(name, 1)
                for outcome, said in in_child(acts, Path(place) / "out", allowed):
                    counts[name][outcome] += 1
                    if outcome in FAILURES:
                        case = f"{seed}:{name}:{number[name]}"
                        failures.append({"case": case, "outcome": outcome, "said": said[-1500:]})
                        print(case, outcome, said[-1500:], file=sys.stderr, flush=True)
                    number[name] += 1
                for left in Path(place).glob("case-*"):  # of a process that was ended
                    shutil.rmtree(left, ignore_errors=True)
        os.chdir("/")
    return counts, failures


def _act(seed: str, name: str, number: int, place: Path) -> str:
    """One case, in a folder of its own beside the prepared files."""
    folder = place / f"case-{number}"
    folder.mkdir()
    try:
        return TARGETS[name](random.Random(f"{seed}:{name}:{number}"), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Run a campaign and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help="run for so long")
    parser.add_argument("--cases", type=int, help="cases of each target [default: 20]")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", default=",".join(TARGETS), help="targets, with commas between")
    parser.add_argument("--case", help="only this one, as a failure names it: SEED:TARGET:NUMBER")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    cases = given.cases if given.cases or given.seconds else 20
    first = 0
    if given.case:
        given.seed, given.only, number = given.case.split(":")
        first, cases = int(number), 1
    began = time.monotonic()
    counts, failures = campaign(
        given.seed, cases=cases, seconds=given.seconds, only=given.only.split(","), first=first
    )
    took = time.monotonic() - began
    if given.json:
        document = {
            "counts": {name: dict(each) for name, each in counts.items()},
            "failures": failures,
        }
        print(json.dumps(document))
    else:
        print(f"{'target':12}{'cases':>8}" + "".join(f"{name:>11}" for name in OUTCOMES))
        for name, each in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
            cells = "".join(f"{each[outcome] or '.':>11}" for outcome in OUTCOMES)
            print(f"{name:12}{each.total():>8}{cells}")
        for failure in failures:
            print(f"\n{failure['case']}: {failure['outcome']}\n{failure['said']}")
        print(f"\nseed {given.seed}, {took:.0f} s, {platform.platform()}, {os.cpu_count()} cores")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
