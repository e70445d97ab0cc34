"""Cases of readers: suites, tasks, pairs, tables, runs and trainings."""

from __future__ import annotations

import contextlib
import json
import os
import pickletools
import random
from pathlib import Path

from campaign_cases.child import LONGEST, WrongError, command, nothing_runs, target
from campaign_cases.damage import damaged


@target
def suite(draw: random.Random, folder: Path) -> str:
    from consilience import load_suite
    from consilience.authoring.audit import cautions
    from consilience.suites import check_suite
    from consilience.suites.sizes import suite_statistics

    place = str(damaged(draw, folder, "suite"))
    problems = check_suite(place)
    if any(len(str(problem)) > LONGEST for problem in problems):
        raise WrongError("a long message")
    found = load_suite(place)
    if problems:
        raise WrongError(f"loaded in spite of {problems[0]}")
    found.digest.encode()
    cautions(found)
    suite_statistics(found)
    _ask(place, folder)
    return f"{len(found.relations)} relations"


def _ask(suite: str, folder: Path) -> None:
    """Ask a suite; nothing is written beside the run."""
    before = {*folder.parent.rglob("*")}
    out = folder / "run"
    command("probe", "--model", "baseline:majority", "--suite", suite, "--out", out)
    if beside := [path for path in {*folder.parent.rglob("*")} - before
                  if not path.is_relative_to(out)]:  # fmt: skip
        raise WrongError(f"wrote {beside}")


@target
def lama(draw: random.Random, folder: Path) -> str:
    from consilience import load_suite

    place = str(damaged(draw, folder, "lama"))
    found = load_suite(place)
    _ask(place, folder)
    return found.digest


@target
def graph(draw: random.Random, folder: Path) -> str:
    from consilience.suites.graphs import read_graph

    with nothing_runs():
        return f"{len(read_graph(damaged(draw, folder, 'P1.graph'))[0])} patterns"


OPCODES = [opcode for opcode in pickletools.opcodes if opcode.name != "STOP"]
TEXTS = (b"os\nsystem\n", b"builtins\neval\n", b"builtins\ndict\n", b"networkx.classes.digraph\nDiGraph\n",
         b"pararel.patterns.graph_types\nPatternNode\n")  # fmt: skip


@target
def opcodes(draw: random.Random, folder: Path) -> str:
    """A pickle of random opcodes, some of them thousands of times; nothing of it may run."""
    from consilience.suites.graphs import read_graph

    program = bytearray(b"\x80\x03" if draw.random() < 0.5 else b"")
    for _ in range(draw.randrange(1, 40)):
        opcode = draw.choice(OPCODES)
        piece = opcode.code.encode("latin-1")
        if opcode.name in ("GLOBAL", "INST"):
            piece += draw.choice(TEXTS)
        elif opcode.arg is not None:
            size = opcode.arg.n if opcode.arg.n > 0 else draw.choice((1, 2, 5))
            value = draw.choice((0, 1, 255, 1 << 28, (1 << 31) - 1)) & (1 << 8 * size) - 1
            piece += draw.choice(
                (value.to_bytes(size, "little"), b"1\n", b"os system\n", os.urandom(0))
            )
        program += piece * draw.choice((1, 1, 1, 1, 2, 100_000 if len(piece) == 1 else 100))
    path = folder / "P1.graph"
    path.write_bytes(bytes(program) + b".")
    with nothing_runs():
        read_graph(path)
    return "read"


@target
def task(draw: random.Random, folder: Path) -> str:
    from consilience.suites.tasks import load_task

    return load_task(str(damaged(draw, folder, "task.toml"))).name


@target
def pairs(draw: random.Random, folder: Path) -> str:
    from consilience.suites.pairs import read_pairs
    from consilience.suites.tasks import load_task

    suffix = draw.choice(("tsv", "csv", "json", "jsonl", "parquet"))
    path = damaged(draw, folder, f"pairs.{suffix}")
    return read_pairs(str(path), load_task("rte")).digest


@target
def sheets(draw: random.Random, folder: Path) -> str:
    from consilience.authoring.annotation_scores import score_sheets

    return f"{score_sheets(damaged(draw, folder, 'sheets')).metrics.height} numbers"


COMMANDS = {
    "answers": ("score PLACE --suite BASE/suite",),
    "table": ("analyze tasks PLACE",),
    "run": (
        "score PLACE --suite BASE/suite",
        "compare BASE/run PLACE",
        "compare PLACE BASE/run",
        "analyze patterns PLACE",
        "analyze examples PLACE",
        "analyze edits PLACE",
        "analyze knowledge PLACE BASE/run",
        "report PLACE --out FOLDER/r.html",
        "probe --model baseline:majority --suite BASE/suite --out PLACE",
    ),
    "perturbed": (
        "compare BASE/perturbedINNER PLACEINNER",
        "compare PLACEINNER BASE/perturbedINNER",
        "report PLACEINNER --out FOLDER/r.html",
        "report BASE/perturbedINNER PLACEINNER --out FOLDER/r.html",
        "analyze tasks PLACEINNER",
        "score PLACEINNER --suite BASE/suite",
        "analyze patterns PLACEINNER",
        "probe --model BASE/seeds --suite mrpc --data BASE/pairs.jsonl --out PLACE",
    ),
    "gguf": ("probe --model PLACE --suite BASE/suite --groups capital --limit 2 --out FOLDER/run",),
}
"""Commands that read what is damaged (PLACE), of a run of several seeds perhaps one (INNER)."""


def run_one(draw: random.Random, folder: Path, name: str, place: Path) -> tuple[str, str]:
    """Run one of the commands of a target: its name, and what it said."""
    names = {"BASE": str(folder.parent / "base"), "FOLDER": str(folder), "PLACE": str(place)}
    names["INNER"] = draw.choice(("", "/seed-0"))
    line = draw.choice(COMMANDS[name])
    arguments = line.split()
    for old, new in names.items():
        arguments = [argument.replace(old, new) for argument in arguments]
    print(*arguments, flush=True)
    return arguments[0], command(*arguments)


@target
def answers(draw: random.Random, folder: Path) -> str:
    """An answers table of somebody else, scored."""
    name = draw.choice(("answers.csv", "answers.csv.gz", "answers.parquet"))
    return run_one(draw, folder, "answers", damaged(draw, folder, name))[1]


@target
def run(draw: random.Random, folder: Path) -> str:
    """A run folder: scored, compared, analysed. Answers that nothing vouches for are refused."""
    place, whole = damaged(draw, folder, "run"), folder.parent / "base" / "run"
    changed = [path for path in (place / "answers").iterdir()
               if path.read_bytes() != (whole / "answers" / path.name).read_bytes()]  # fmt: skip
    digests = json.loads((whole / "run.json").read_bytes())["answers"]
    is_unseen = bool(changed) and digests == _digests(place)
    name, said = run_one(draw, folder, "run", place)
    if is_unseen and name != "probe":
        raise WrongError(f"counted {changed}")
    return said


def _digests(run: Path) -> object:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return json.loads((run / "run.json").read_bytes())["answers"]
    return None


@target
def perturbed(draw: random.Random, folder: Path) -> str:
    """A run of perturb, of one seed or two, and what is typed of such runs."""
    return run_one(draw, folder, "perturbed", damaged(draw, folder, "perturbed"))[1]


@target
def table(draw: random.Random, folder: Path) -> str:
    """Tables of numbers that somebody typed."""
    name = draw.choice(("long.csv", "wide.csv"))
    return run_one(draw, folder, "table", damaged(draw, folder, name))[1]


@target
def training(draw: random.Random, folder: Path) -> str:
    """The records of trainings."""
    from consilience.train.resume import TrainingFolder

    damaged(draw, folder, "training.json")
    training = TrainingFolder(folder, {"model": "m", "plan": {"epochs": 3}})
    return f"finished: {training.is_finished()}, {training.result(('epochs',), ('rte',))}"


@target
def parquet(draw: random.Random, folder: Path) -> str:
    """Bytes of a Parquet file, which polars decodes outside of Python."""
    from consilience.run import read_answers

    path = folder / "answers.parquet"
    content = (folder.parent / "base" / "answers.parquet").read_bytes()
    footer = int.from_bytes(content[-8:-4], "little")
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        first = len(content) - 8 - footer if draw.random() < 0.5 else 0
        at = draw.randrange(first, len(content))
        changed[at] = draw.choice((draw.randrange(256), changed[at] ^ 1 << draw.randrange(8)))
    path.write_bytes(changed)
    return f"{read_answers(path).height} rows"
