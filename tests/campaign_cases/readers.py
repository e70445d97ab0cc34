"""Cases of readers: suites, tasks, pairs, tables, runs and trainings."""

from __future__ import annotations

import contextlib
import json
import os
import pickletools
import random
import zipfile
from functools import partial
from pathlib import Path

from campaign_cases.child import LONGEST, TARGETS, WrongError, command, nothing_runs, target
from campaign_cases.damage import damaged, mutate, mutate_value
from consilience.core.errors import ConsilienceError
from replay_server import replay


@target
def suite(draw: random.Random, folder: Path) -> str:
    from consilience import load_suite
    from consilience.authoring.checks import cautions
    from consilience.suites import check_suite
    from consilience.suites.facts import suite_statistics

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
    from consilience.suites.layouts import read_graph

    with nothing_runs():
        return f"{len(read_graph(damaged(draw, folder, 'P1.graph'))[0])} patterns"


OPCODES = [opcode for opcode in pickletools.opcodes if opcode.name != "STOP"]
TEXTS = (b"os\nsystem\n", b"builtins\neval\n", b"builtins\ndict\n", b"networkx.classes.digraph\nDiGraph\n",
         b"pararel.patterns.graph_types\nPatternNode\n")  # fmt: skip


@target
def opcodes(draw: random.Random, folder: Path) -> str:
    """A pickle of random opcodes, some of them thousands of times; nothing of it may run."""
    from consilience.suites.layouts import read_graph

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
    from consilience.suites.pairs import load_task

    return load_task(str(damaged(draw, folder, "task.toml"))).name


@target
def pairs(draw: random.Random, folder: Path) -> str:
    from consilience.suites.pairs import load_task, read_pairs

    suffix = draw.choice(("tsv", "csv", "json", "jsonl", "parquet"))
    path = damaged(draw, folder, f"pairs.{suffix}")
    return read_pairs(str(path), load_task("rte")).digest


@target
def sheets(draw: random.Random, folder: Path) -> str:
    from consilience.authoring.annotation import score_sheets

    return f"{score_sheets(damaged(draw, folder, 'sheets')).metrics.height} numbers"


COMMANDS = {
    "answers": ("score PLACE --suite BASE/suite",),
    "table": ("analyze tasks PLACE",),
    "questions": (
        "probe --model baseline:majority --suite PLACE --out FOLDER/run",
        "score BASE/written.jsonl --suite PLACE",
        "suite export PLACE --format csv --out FOLDER/prompts.csv",
    ),
    "written_answers": (
        "score PLACE --suite BASE/questions.csv",
        "score PLACE --suite BASE/questions.csv --match regex:x+ --out FOLDER/run",
    ),
    "logs": ("score PLACE --suite BASE/questions.csv",),
    "promptfoo": ("score PLACE --provider toy", "score PLACE --provider toy --out FOLDER/run"),
    "study": ("study run PLACE --dry-run", "study status PLACE"),
    "config": ("score BASE/run --config PLACE", "gate BASE/run --config PLACE"),
    "templates": ("suite export BASE/questions.csv --template PLACE --out FOLDER/prompts.jsonl",),
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
        "gate PLACE --baseline BASE/run --rule accuracy>=0.1",
        "publish PLACE --format eee --out FOLDER/p --model-id a/b",
        "publish PLACE --format model-card --out FOLDER/p --model-id a/b",
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


READ = {
    "answers": ("answers.csv", "answers.csv.gz", "answers.parquet"),
    "questions": tuple(
        f"questions.{suffix}" for suffix in ("csv", "json", "jsonl", "yaml", "toml", "parquet")
    ),
    "written_answers": ("written.jsonl",),
    "logs": ("samples_x.jsonl",),
    "promptfoo": ("promptfoo.json",),
    "study": ("study.toml",),
    "config": ("consilience.toml",),
    "templates": ("templates.toml",),
    "perturbed": ("perturbed",),
    "table": ("long.csv", "wide.csv"),
}
"""Targets that are one damaged file of these, read by one of the commands of that name."""


def _read(name: str, draw: random.Random, folder: Path) -> str:
    if name == "study":
        os.chdir(folder)
    files = READ[name]
    place = damaged(draw, folder, draw.choice(files) if len(files) > 1 else files[0])
    return run_one(draw, folder, name, place)[1]


TARGETS |= {name: partial(_read, name) for name in READ}


RULES = (
    "accuracy >= 0.1",
    "consistency no worse than baseline by 3 points",
    "accuracy in MICRO <= 20 %",
)


@target
def rules(draw: random.Random, folder: Path) -> str:
    """A rule of a gate."""
    from consilience.gating.rules import parse_rules

    text = mutate(draw.choice(RULES).encode(), draw).decode(errors="replace")
    return str(parse_rules([text]))


@target
def workbook(draw: random.Random, folder: Path) -> str:
    """An Excel workbook: the file, or one of its parts; refused where fastexcel is missing."""
    from consilience.files.tables import read_answer_file

    path, whole = folder / "answers.xlsx", folder.parent / "base" / "answers.xlsx"
    with zipfile.ZipFile(whole) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    name = draw.choice(list(parts))
    parts[name] = mutate(parts[name], draw)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for part, content in parts.items():
            book.writestr(part, content)
    if draw.random() < 0.3:
        path.write_bytes(mutate(whole.read_bytes(), draw))
    return f"{read_answer_file(path).height} rows"


REPLY = {"id": "x", "model": "x", "usage": {"prompt_tokens": 3, "completion_tokens": 1}, "choices": [
    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x \U0001f600"}}]}  # fmt: skip


@target
def replies(draw: random.Random, folder: Path) -> str:
    """Damaged replies of a server, which are kept: an honest server then completes the run."""
    honest = json.dumps(REPLY).encode()
    bad = (
        json.dumps(mutate_value(REPLY, draw)).encode()
        if draw.random() < 0.6
        else mutate(honest, draw)
    )
    body = bad
    options = ("--suite", folder.parent / "base" / "questions.csv", "--vary", "paraphrase=all",
               "--generate", "--limit", 1, "--out", folder / "run")  # fmt: skip
    with replay(lambda *_: (200, body, {})) as server:
        arguments = ("probe", "--model", "openai:x", "--base-url", server.url, *options)
        problem = None
        try:
            said = command(*arguments)
        except ConsilienceError as error:
            problem, body = error, honest
            said = command(*arguments)
    if problem:
        raise problem
    return said


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
def training(draw: random.Random, folder: Path) -> str:
    """The records of trainings."""
    from consilience.train.batch_trainer import TrainingFolder

    damaged(draw, folder, "training.json")
    training = TrainingFolder(folder, {"model": "m", "plan": {"epochs": 3}})
    return f"finished: {training.is_finished()}, {training.result(('epochs',), ('rte',))}"


@target
def parquet(draw: random.Random, folder: Path) -> str:
    """Bytes of a Parquet file, which polars decodes outside of Python."""
    from consilience.runs.run import read_answers

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
