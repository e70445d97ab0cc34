"""What counts answers (score, compare, report), timed as commands, in processes of their own.

Answers are made up: some facts are known, some wrong answers are kept in every pattern, all others
are drawn. ``CONSILIENCE_BEFORE`` may name the checkout of an earlier revision: then its commands
take turns with ours on the same answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from consilience import Suite, load_suite

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Shape:
    """A suite that is made up: so many relations, each of so many facts, patterns and objects."""

    relations: int
    facts: int
    patterns: int
    objects: int

    @property
    def rows(self) -> int:
        """How many answers a run of it has."""
        return self.relations * self.facts * self.patterns


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took: seconds, and MiB of memory at most; ``stopped`` if it was not done."""

    seconds: float
    mib: float
    stopped: bool = False


LIMIT = float(os.environ.get("CONSILIENCE_LIMIT", "900"))
"""Seconds after which a command is stopped."""

BEFORE = os.environ.get("CONSILIENCE_BEFORE")

SHAPES = [
    *((Shape(40, facts, 10, 100), "100 objects a relation") for facts in (2_500, 5_000, 10_000)),
    (Shape(40, 2_500, 10, 1_000), "1,000 objects a relation"),
    (Shape(1, 50_000, 4, 50_000), "50,000 facts with 50,000 objects"),
]


def write_suite(folder: Path, shape: Shape) -> None:
    """Half of the subjects of a relation are those of the next one, too."""
    folder.mkdir(parents=True)
    names = [f"R{at}" for at in range(shape.relations)]
    tables = {
        "relations": [{"relation": name} for name in names],
        "patterns": [
            {"relation": name, "pattern": f"In pattern {at} [X] is [Y]."}
            for name in names
            for at in range(shape.patterns)
        ],
        "facts": [
            {
                "relation": name,
                "subject": f"s{at + place * (shape.facts // 2)}",
                "object": f"o{at % shape.objects}",
            }
            for place, name in enumerate(names)
            for at in range(shape.facts)
        ],
    }
    for name, rows in tables.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def write_run(folder: Path, suite: Suite, seed: int) -> None:
    """The answers of a model that is made up, a table a relation."""
    generator = np.random.default_rng(seed)
    (folder / "answers").mkdir(parents=True)
    for relation in suite.relations:
        words = np.array(relation.candidates.words, dtype=np.object_)
        facts, width = len(relation.facts), len(relation.patterns)
        size = (facts, width)
        golds = np.array([fact.object for fact in relation.facts], dtype=np.object_)[:, None]
        knows, kept = (
            generator.random((facts, 1)),
            words[generator.integers(0, len(words), (facts, 1))],
        )
        others = words[(len(words) * generator.random(size) ** 3).astype(np.int64)]
        said = np.where(knows > 0.6, golds, kept)
        answers = np.where(generator.random(size) < knows, said, others)
        columns = {
            "group": np.full(size, relation.id, dtype=np.object_),
            "item": np.repeat([[fact.item] for fact in relation.facts], width, axis=1),
            "subject": np.repeat([[fact.subject] for fact in relation.facts], width, axis=1),
            "variant": np.repeat([[each.text for each in relation.patterns]], facts, axis=0),
            "gold": np.repeat(golds, width, axis=1),
            "answer": answers,
            "margin": generator.random(size),
        }
        table = pl.DataFrame({name: each.ravel().tolist() for name, each in columns.items()})
        table.write_parquet(folder / "answers" / f"{relation.id}.parquet")


def cost(arguments: Sequence[object], source: Path, folder: Path) -> Cost:
    """What ``consilience`` with these arguments takes, by the code in ``source``."""
    here = {"PYTHONPATH": str(source / "src"), "HF_HUB_OFFLINE": "1"}
    most = 0
    with (folder / "stderr.txt").open("w") as told:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "consilience", *map(str, arguments)],
            env={**os.environ, **here},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=told,
        )
        while process.poll() is None:
            most = max(most, _peak(process.pid))
            if time.perf_counter() - start > LIMIT:
                process.kill()
                process.wait()
                return Cost(LIMIT, most / 1024, stopped=True)
            time.sleep(0.01)
        seconds = time.perf_counter() - start
    if process.returncode:
        raise RuntimeError((folder / "stderr.txt").read_text())
    return Cost(seconds, most / 1024)


def _peak(process: int) -> int:
    """KiB of memory that a process has had at most (Linux); 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(each.split()[1]) for each in lines if each.startswith("VmHWM")), 0)


def commands(suite: Path, runs: Sequence[Path]) -> Iterator[tuple[str, list[object]]]:
    """What is timed on the same answers, by name."""
    yield "score", ["score", runs[0], "--suite", suite]
    yield "compare", ["compare", *runs[:2], "--suite", suite]
    for some in (runs[:1], runs) if len(runs) > 2 else (runs[:1],):
        name = "report" if len(some) == 1 else f"report of {len(some)} runs"
        yield name, ["report", *some, "--suite", suite, "--out", "page.html"]


def rows_of(suite: Path, about: str, runs: int) -> Iterator[str]:
    """Lines of the table for one suite; both revisions take turns."""
    loaded = load_suite(str(suite))
    answers = sum(len(each.facts) * len(each.patterns) for each in loaded.relations)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made = [folder / f"run{seed}" for seed in range(runs)]
        for seed, run in enumerate(made):
            write_run(run, loaded, seed)
        for name, arguments in commands(suite, made):
            before = cost(arguments, Path(BEFORE), folder) if BEFORE else None
            now = cost(arguments, ROOT, folder)
            cells = [f"{answers:,}", about, name, _cell(before), _cell(now), _ratio(before, now)]
            yield "| " + " | ".join(cells) + " |"


def _cell(found: Cost | None) -> str:
    if found is None:
        return "-"
    return f"{'more than ' * found.stopped}{found.seconds:.1f} s, {found.mib:,.0f} MiB"


def _ratio(before: Cost | None, now: Cost) -> str:
    if before is None or now.stopped:
        return "-"
    return f"{'more than ' * before.stopped}{before.seconds / now.seconds:.1f}"


def table(pararel: Path | None) -> Iterator[str]:
    """The section's lines: ParaRel where it is, then suites that are made up."""
    yield "| answers of a run | suite | command | before | now | times faster |"
    yield "|---|---|---|---|---|---|"
    if pararel:
        yield from rows_of(pararel, "ParaRel", 8)
    for shape, about in SHAPES:
        with tempfile.TemporaryDirectory() as place:
            suite = Path(place) / "suite"
            write_suite(suite, shape)
            yield from rows_of(suite, about, 2)
