"""What mining costs: seconds of each step, and peak memory by the size of the corpus.

python bench/mining_cost.py CORPUS PARAREL. The corpus is JSONL with the columns title and text.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine

from consilience.analysis.syntax import load_parser
from consilience.authoring.mining import (
    FactIndex,
    FactSentence,
    Mined,
    mine,
    parsed,
)
from consilience.authoring.pattern_mining import read_sentences
from consilience.suites import load_suite

SIZES = (0.25, 0.5, 1, 2, 4)


def index_of(pararel: Path) -> FactIndex:
    """The index of all facts of ParaRel as released."""
    suite = load_suite(pararel, as_shipped=True)
    return FactIndex.of({r.id: [(f.subject, f.object) for f in r.facts] for r in suite})


def steps(corpus: Path, pararel: Path) -> None:
    """Print the seconds of each step, one after the other."""
    times: dict[str, float] = {}
    start = time.perf_counter()

    def lap(step: str) -> None:
        nonlocal start
        times[step] = time.perf_counter() - start
        start = time.perf_counter()

    index = index_of(pararel)
    lap("load the facts and build the index")
    sentences: list[FactSentence] = list(index.search(read_sentences(corpus, "text", "title")))
    lap("read the corpus, split it, search it")
    parser = load_parser()
    lap("load the parser")
    mined = Mined(index)
    seconds = 0.0
    for doc, sentence in parsed(((one.sentence, one) for one in sentences), parser):
        begin = time.perf_counter()
        mined.add(doc, sentence)
        seconds += time.perf_counter() - begin
    lap("parse")
    times["parse"] -= seconds
    times["turn paths into patterns, count"] = seconds
    for relation in index.relations:
        list(mined.ranked(relation, 50))
    lap("rank 38 relations")
    print(f"{machine.name()}: {len(sentences):,} sentences, {len(mined.supports):,} patterns")
    for step, value in times.items():
        print(f"| {step} | {value:.1f} |")
    print(f"| all but parsing | {sum(times.values()) - times['parse']:.1f} |")


def most_memory() -> int:
    """The peak memory of this process so far, in MiB (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) // 1024


def peak(corpus: Path, pararel: Path) -> None:
    """Print the peak memory of this process, which mines the corpus."""
    parser, index = load_parser(), index_of(pararel)
    before = most_memory()
    mined = mine(read_sentences(corpus, "text", "title"), index, parser, lambda number: None)
    print(f"{mined.sentences:,} | {len(mined.supports):,} | {before} | {most_memory()}")


def main() -> None:
    """Print the steps, then a row for each size; each row is a process of its own."""
    if sys.argv[1] == "--peak":
        peak(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    corpus, pararel = Path(sys.argv[1]), Path(sys.argv[2])
    steps(corpus, pararel)
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            part = Path(folder) / "part.jsonl"
            texts = lines * int(size) if size >= 1 else lines[: int(len(lines) * size)]
            part.write_text("".join(texts), encoding="utf-8")
            command = [sys.executable, __file__, "--peak", str(part), str(pararel)]
            row = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            print(f"| {size} | {len(texts):,} | {row.strip()} |", flush=True)


if __name__ == "__main__":
    main()
