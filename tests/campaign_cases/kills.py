"""Cases of servers that misbehave and of processes that are killed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path

from campaign_cases.child import WrongError, alone, end_with_parent
from consilience import cli
from consilience.app import process
from wild_server import DEEDS, wild_server

LISTED = {"a/one.txt": b"first file\n" * 400, "two.txt": b"second\n"}


@alone
def server(draw: random.Random, folder: Path) -> str:
    """A server that answers as it likes: files are whole and right, or absent; then an honest one."""

    from consilience.suites import layouts as module

    module.SILENCE = 0.4
    module.listing = lambda name: [
        module.ReleasedFile(path, len(content), hashlib.sha256(content).hexdigest())
        for path, content in LISTED.items()
    ]
    honest = threading.Event()
    deeds = ("right",) * len(DEEDS) + DEEDS
    url = wild_server(LISTED, lambda: "right" if honest.is_set() else draw.choice(deeds))
    began, problem = time.monotonic(), None
    try:
        module.fetch("pararel", folder / "data", base=url)
    except module.ConsilienceError as error:
        problem = error
    if time.monotonic() - began > 6:
        raise WrongError(f"{time.monotonic() - began:.1f} seconds")
    for path in (folder / "data").rglob("*"):
        name = path.relative_to(folder / "data" / "pararel").as_posix()
        if path.is_file() and path.read_bytes() != LISTED[name]:
            raise WrongError(f"another {name}")
    honest.set()
    module.fetch("pararel", folder / "data", base=url)
    found = {path.relative_to(folder / "data" / "pararel").as_posix(): path.read_bytes()
             for path in (folder / "data").rglob("*") if path.is_file()}  # fmt: skip
    if found != LISTED:
        raise WrongError(f"an honest server, and {sorted(found)}")
    if problem:
        raise problem
    return "fetched"


KILLED = {
    "probe": (
        "probe --model baseline:majority --suite BASE/suite --out out",
        "probe --model baseline:random --suite BASE/questions.csv --vary order=rotations --out out",
    ),
    "model": (
        "probe --model BASE/masked --suite BASE/suite --limit 2 --out out",
        "probe --model BASE/classifier --suite mrpc --data BASE/pairs.jsonl --out out",
    ),
    "score": (
        "score BASE/answers.csv --suite BASE/suite --out out",
        "score BASE/written.jsonl --suite BASE/questions.csv --match regex:x+ --out out",
    ),
    "report": ("report BASE/run --out out.html", "report BASE/run BASE/random --out out.html"),
    "tables": (
        "compare BASE/run BASE/random --csv out.csv",
        "analyze patterns BASE/run --csv out.csv",
        "suite export BASE/questions.csv --format csv --out out.csv",
        "suite annotate sheet --task rte --data BASE/pairs.csv --out out",
    ),
    "new": ("suite new out", "suite new out --kind facts"),
    "study": ("study run BASE/short.toml",),
    "finetune": (
        "finetune --model BASE/masked --task mrpc --train BASE/train.jsonl --validation "
        "BASE/train.jsonl --epochs 4 --batch-size 4 --learning-rate 1e-3 --seeds 0 --out out",
    ),
    "improve": (
        "improve --model BASE/masked --suite BASE/three --train-groups capital --lambda 1 --limit 2 "
        "--validation-groups border --train-facts 4 --epochs 1 --batch-size 2 --out out",
    ),
}
"""Commands that are killed; they write in their folder."""

LONG = ("finetune", "improve", "study")
"""Those that take several seconds."""

OWN_PROGRAM = ("study",)
"""Commands that start processes, which need a program that they can start again."""

GROWING = {"run.json": ("answers",), "training.json": ("finished", "validation", "checkpoint")}
"""Files that are rewritten while a command works, and what of them is the same in the end."""

PASSING = "checkpoint"
"""In the paths of files that a finished command removes."""

LOGS = "logs"
"""The folder of what workers print, which depends on what an interrupted study had left to do."""

TIMES = re.compile(rb'"made": "[0-9T:.+-]+"|"id": "[0-9a-f]{64}"')
"""When sheets were made, and their id, which depends on it."""


def _start(line: str, folder: Path, steps: dict[int, int], count: Path | None = None) -> int:
    """The id of a process that is this command, in ``place`` of a folder.

    ``steps``: signals that it sends to itself, and before which of its changes of files; ``count``:
    a file that gets a byte for each change.
    """
    base = next(above / "base" for above in folder.parents if (above / "base").is_dir())
    arguments = line.replace("BASE", str(base)).split()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            end_with_parent()
            os.setpgid(0, 0)
            os.chdir(folder / "place")
            out = os.open(folder / "out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            if line.startswith(OWN_PROGRAM):
                os.execv(sys.executable, [sys.executable, "-m", "consilience", *arguments])
            sys.stdout, sys.stderr = (os.fdopen(each, "w", closefd=False) for each in (1, 2))
            for number in process.SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            counted = os.open(count, os.O_WRONLY | os.O_CREAT) if count else None
            sys.addaudithook(_steps(steps, counted))
            weakref.finalize._registry.clear()  # the folders of this process's parents stay
            sys.argv = ["consilience", *arguments]
            cli.command()
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    return child


def _steps(steps: dict[int, int], counted: int | None) -> Callable[[str, tuple[object, ...]], None]:
    """An audit hook that sends signals to this process before some of its changes of files."""
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (
            os.O_WRONLY | os.O_RDWR
        )  # fmt: skip
        if is_write or event in ("os.rename", "os.remove", "os.mkdir", "os.truncate", "os.chmod"):
            seen += 1
            if counted is not None:
                os.write(counted, b".")
            if seen in steps:
                os.kill(os.getpid(), steps[seen])

    return hook


def _ended(child: int, folder: Path, sent: tuple[int, ...] = ()) -> bool:
    """Whether a signal ended a command; one that ends in any way but this or well is wrong."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    out = folder / "out"  # absent where the signal came before anything else
    said = out.read_text(errors="replace") if out.exists() else ""
    killed = [code for one in sent for code in (-one, 128 + one)]
    if code not in (0, *killed) or "Traceback" in said:
        raise WrongError(f"exit {code} after signals {sent}: {said[-1500:]}")
    return code != 0


def _whole(line: str, base: Path) -> tuple[Path, float, int]:
    """What an unbroken command writes, its seconds, and its changes of files; made once."""
    folder = base.parent / "whole" / hashlib.sha256(line.encode()).hexdigest()[:8]
    changes, took = folder / "changes", folder / "seconds"
    if not took.exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "place").mkdir(parents=True)
        began = time.monotonic()
        _ended(_start(line, folder, {}, changes), folder)
        took.write_text(str(time.monotonic() - began))
    count = changes.stat().st_size if changes.exists() else 0
    return folder / "place", float(took.read_text()), count


def _interrupt(line: str, folder: Path, draw: random.Random, seconds: float, changes: int) -> bool:
    """Send a signal or two to a command, before changes of files or at any time."""
    number = draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    sent = (number,) * (1 if number == signal.SIGKILL else draw.choice((1, 1, 2)))
    if changes and draw.random() < 0.5:
        first = draw.randrange(changes) + 1
        steps = {first + at * draw.randrange(1, 4): one for at, one in enumerate(sent)}
        return _ended(_start(line, folder, steps), folder, sent)
    child = _start(line, folder, {})
    send = draw.choice((os.kill, os.killpg))
    time.sleep(draw.random() * seconds)
    for at, one in enumerate(sent):
        time.sleep(at * draw.random() * 0.05)
        with contextlib.suppress(ProcessLookupError):
            send(child, one)
    return _ended(child, folder, sent)


@alone
def kill(draw: random.Random, folder: Path) -> str:
    """A command of a second that is killed."""
    return _kill(draw.choice([name for name in KILLED if name not in LONG]), draw, folder)


@alone
def kill_long(draw: random.Random, folder: Path) -> str:
    """A training or a study that is killed."""
    return _kill(draw.choice(LONG), draw, folder)


def _kill(name: str, draw: random.Random, folder: Path) -> str:
    """A command is killed up to five times, then ends: it wrote the files of an unbroken one."""
    line = draw.choice(KILLED[name])
    whole, seconds, changes = _whole(line, folder.parent / "base")
    place, kills = folder / "place", 0
    place.mkdir()
    for _ in range(draw.randrange(1, 6)):
        kills += _interrupt(line, folder, draw, seconds, changes)
        _same_files(place, whole, is_complete=False)
        if name in ("new", "tables"):  # these ask for an empty folder
            shutil.rmtree(place / "out", ignore_errors=True)
    _ended(_start(line, folder, {}), folder)
    _same_files(place, whole, is_complete=True)
    return f"{kills} kills of {name}"


def _same_files(place: Path, whole: Path, *, is_complete: bool) -> None:
    """Every file is whole, and what an unbroken command has; of a run or a training it may grow."""
    files, other = _contents(place), _contents(whole)
    torn = [path for path, content in files.items() if other.get(path) != content]
    if not is_complete:
        torn = [path for path in torn if path.name not in GROWING
                and not any(part.startswith(PASSING) for part in path.parts)]  # fmt: skip
    if torn or (is_complete and files.keys() != other.keys()):
        raise WrongError(f"torn {torn}; {sorted(files.keys() ^ other.keys())} are in one only")


def _contents(folder: Path) -> dict[Path, object]:
    """The files of a folder by their path, without what differs from one command to the next."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".part")
    kept = (path for path in files if path.parent.name != LOGS)
    return {path.relative_to(folder): _undated(path) for path in kept}


def _undated(path: Path) -> object:
    content = path.read_bytes()
    if path.name in GROWING:  # they are whole if they can be read
        record = json.loads(content)
        return [record.get(name) for name in GROWING[path.name]]
    return TIMES.sub(b"", content)
