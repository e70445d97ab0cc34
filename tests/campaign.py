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

The exit status is 1 where there is a failure. SIGTERM ends it after the cases that run.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import itertools
import json
import math
import os
import pkgutil
import platform
import random
import re
import shutil
import signal
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

ROOM = "/dev/shm"
"""Where the cases work, if it is there: nothing waits for a disk."""

UNUSED = ("__main__", "callbacks", "pytest_plugin", "integrations", "representations")
"""Modules that no case uses, some of which take seconds to import."""


def load() -> None:
    """Import once, before any fork, what the cases use; nothing of it may start a thread.

    What is the same in all cases is found once, too.
    """
    os.environ |= {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    sys.modules |= dict.fromkeys(("datasets", "peft"))  # transformers is to do without them
    gc.disable()
    import torch

    import consilience
    from consilience import options

    options.option_fields = functools.cache(options.option_fields)
    for module in pkgutil.walk_packages(consilience.__path__, "consilience."):
        if not set(UNUSED) & set(module.name.split(".")):
            with suppress(ModuleNotFoundError):  # it belongs to an extra that is not installed
                importlib.import_module(module.name)
    import altair  # noqa: F401

    from consilience.report import export
    from consilience.train import consistency, improvement  # noqa: F401

    export._vega = lambda: "vega" * 200_000  # as long as the libraries, which take seconds to make
    torch.set_num_threads(1)
    gc.freeze()  # a child that looks for garbage would copy all pages of its parent
    gc.enable()


def campaign(
    seed: str, *, cases: int | None, seconds: float | None, only: list[str], first: int = 0
) -> tuple[dict[str, Counter[str]], Counter[str], list[dict[str, str]]]:
    """How often each target had each outcome, and each command was killed; every failure."""
    load()
    counts: dict[str, Counter[str]] = {name: Counter() for name in only}
    killed: Counter[str] = Counter()
    failures = []
    ends = time.monotonic() + seconds if seconds else math.inf
    with tempfile.TemporaryDirectory(dir=ROOM if os.access(ROOM, os.W_OK) else None) as room:
        os.chdir(room)
        out = Path(room) / "out"
        ((outcome, said),) = in_child([lambda: prepare(Path(room) / "base")], out, 120)
        if outcome != "done":
            raise SystemExit(f"the files cannot be prepared: {outcome} {said}")
        numbers = itertools.count(first) if cases is None else range(first, first + cases)
        drawn = ((name, number) for number in numbers for name in only)
        left: list[tuple[str, int]] = []
        stopped: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
        while time.monotonic() < ends and not stopped:
            left += itertools.islice(drawn, TOGETHER - len(left))
            if not left:
                break
            alone = left[0][0] in ALONE
            batch = left[:1] if alone else [one for one in left if one[0] not in ALONE]
            acts = [functools.partial(_act, seed, *one, Path(room)) for one in batch]
            found = in_child(acts, out, SECONDS * SLOW.get(batch[0][0], 1))
            for (name, number), (outcome, said) in zip(batch, found, strict=False):
                counts[name][outcome] += 1
                if match := re.match(r"(\d+) kills of (\w+)", said):
                    killed[match[2]] += int(match[1])
                if outcome in FAILURES:
                    case = f"{seed}:{name}:{number}"
                    failures.append({"case": case, "outcome": outcome, "said": said[-1500:]})
                    print(case, outcome, said[-1500:], file=sys.stderr, flush=True)
            done = {*batch[: len(found)]}
            left = [one for one in left if one not in done]
            shutil.rmtree(Path(room) / "case", ignore_errors=True)  # of a process that was ended
        os.chdir("/")
    return counts, killed, failures


def _act(seed: str, name: str, number: int, place: Path) -> str:
    """One case, in a folder of its own beside the prepared files."""
    folder = place / "case"
    folder.mkdir()
    try:
        return TARGETS[name](random.Random(f"{seed}:{name}:{number}"), folder)
    finally:
        os.chdir(place)
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
    counts, killed, failures = campaign(
        given.seed, cases=cases, seconds=given.seconds, only=given.only.split(","), first=first
    )
    took = time.monotonic() - began
    if given.json:
        document = {
            "counts": {name: dict(each) for name, each in counts.items()},
            "kills": killed,
            "failures": failures,
        }
        print(json.dumps(document))
    else:
        print(f"{'target':16}{'cases':>8}" + "".join(f"{name:>11}" for name in OUTCOMES))
        for name, each in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
            cells = "".join(f"{each[outcome] or '.':>11}" for outcome in OUTCOMES)
            print(f"{name:16}{each.total():>8}{cells}")
        each_killed = ", ".join(f"{name} {count}" for name, count in sorted(killed.items()))
        print(f"kills: {killed.total():,} ({each_killed})")
        for failure in failures:
            print(f"\n{failure['case']}: {failure['outcome']}\n{failure['said']}")
        print(f"\nseed {given.seed}, {took:.0f} s, {platform.platform()}, {os.cpu_count()} cores")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
