"""Cases of servers that misbehave and of processes that are killed."""

from __future__ import annotations

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
from collections.abc import Callable
from pathlib import Path

from campaign_cases.child import WrongError, alone, command, end_with_parent
from campaign_cases.files import finetune_tiny
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
        if path.is_file() and path.suffix == ".part":
            if path.stat().st_size > len(LISTED[name.removesuffix(".part")]) + 1:
                raise WrongError(f"{path.stat().st_size} bytes of {name}")
        elif path.is_file() and path.read_bytes() != LISTED[name]:
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


def _probe(place: Path, base: Path) -> str:
    return command(
        "probe", "--model", "baseline:majority", "--suite", base / "suite", "--out", place
    )


def _whole(place: Path, base: Path) -> None:
    """Every file of a run that was killed is whole, and is what the uninterrupted run has."""
    for path in place.rglob("*"):
        other = base / "run" / path.relative_to(place)
        if not path.is_file() or path.suffix == ".part":
            continue
        if path.name == "run.json":
            json.loads(path.read_bytes())
        elif path.read_bytes() != other.read_bytes():
            raise WrongError(f"{path.name} is torn or another")


def _resumed(place: Path, base: Path) -> str:
    _whole(place, base)
    _probe(place, base)
    _whole(place, base)
    names = {path.relative_to(place) for path in place.rglob("*")}
    expected = {path.relative_to(base / "run") for path in (base / "run").rglob("*")}
    if names != expected:
        raise WrongError(f"other files: {sorted(map(str, names ^ expected))}")
    return "resumed"


def _steps(count: int) -> Callable[[str, tuple[object, ...]], None]:
    """An audit hook that kills this process before its ``count``th change of a file."""
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (
            os.O_WRONLY | os.O_RDWR
        )  # fmt: skip
        if is_write or event in ("os.rename", "os.remove", "os.mkdir", "os.truncate", "os.chmod"):
            seen += 1
            if seen == count:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def _killed(act: Callable[[], object], out: Path, after: float | None = None) -> bool:
    """Whether a forked child killed itself, or was killed ``after`` seconds."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            end_with_parent()
            with out.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                act()
        finally:
            os._exit(0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@alone
def kill(draw: random.Random, folder: Path) -> str:
    """A probe that is killed at random, up to three times, and resumed."""
    base, place = folder.parent / "base", folder / "run"
    for number in range(draw.randrange(1, 4)):
        after = draw.random() * 0.4
        _killed(lambda: _probe(place, base), folder / f"out{number}", after)
        _whole(place, base)
    return _resumed(place, base)


@alone
def write_step(draw: random.Random, folder: Path) -> str:
    """A probe that is killed before one of its changes of files, and resumed."""
    base, place = folder.parent / "base", folder / "run"
    count = draw.randrange(1, 60)

    def work() -> None:
        sys.addaudithook(_steps(count))
        _probe(place, base)

    is_killed = _killed(work, folder / "out")
    return f"step {count}: {'killed' if is_killed else 'ended before'}, {_resumed(place, base)}"


@alone
def written(draw: random.Random, folder: Path) -> str:
    """A command that is killed while it writes: each file is whole or absent, and then as usual."""
    base, whole, place = folder.parent / "base", folder / "whole", folder / "place"
    name, arguments = draw.choice((
        ("scored", ("score", base / "answers.csv", "--suite", base / "suite")),
        ("m.csv", ("compare", base / "run", base / "random")),
        ("m.csv", ("analyze", "patterns", base / "run")),
        ("r.html", ("report", base / "run")),
        ("sheets", ("suite", "annotate", "sheet", "--task", "rte", "--data", base / "pairs.csv")),
    ))  # fmt: skip
    for each in (whole, place):
        each.mkdir()
    count = draw.randrange(1, 30)

    def work(out: Path, steps: int) -> None:
        if steps:
            sys.addaudithook(_steps(steps))
        command(*arguments, "--out", out)

    # A process each: the threads of polars do not outlive a fork.
    _killed(lambda: work(whole / name, 0), folder / "out")
    is_killed = _killed(lambda: work(place / name, count), folder / "out")
    _same_files(place, whole, complete=False)
    if name == "sheets":  # they are drawn into a new folder
        shutil.rmtree(place / name, ignore_errors=True)
    _killed(lambda: work(place / name, 0), folder / "out")
    _same_files(place, whole, complete=True)
    return f"{arguments[0]}, step {count}: {'killed' if is_killed else 'ended before'}"


def _same_files(place: Path, whole: Path, *, complete: bool) -> None:
    """But for the time at which sheets were made, and the id of sheets, which depends on it."""
    files = {path.relative_to(place): _undated(path) for path in place.rglob("*")
             if path.is_file() and path.suffix != ".part"}  # fmt: skip
    other = {path.relative_to(whole): _undated(path) for path in whole.rglob("*")
             if path.is_file()}  # fmt: skip
    torn = [path for path, content in files.items() if other.get(path) != content
            and (complete or path.name != "run.json")]  # fmt: skip
    if torn or (complete and files.keys() != other.keys()):
        raise WrongError(f"torn {torn}, of {sorted(other)} there are {sorted(files)}")


def _undated(path: Path) -> bytes:
    if path.name == "run.json":  # of a run it grows; whole is one that can be read
        return json.dumps(sorted(json.loads(path.read_bytes())["answers"].items())).encode()
    return re.sub(rb'"made": "[0-9T:.+-]+"|"id": "[0-9a-f]{64}"', b"", path.read_bytes())


@alone
def finetune(draw: random.Random, folder: Path) -> str:
    """A training that is killed at random and resumed: the weights of an unbroken one."""
    base, place = folder.parent / "base", folder / "trained"
    for number in range(draw.randrange(1, 3)):
        after = draw.random() * 2
        _killed(lambda: finetune_tiny(place, base), folder / f"out{number}", after)
    finetune_tiny(place, base)
    for path in (base / "trained").rglob("*"):
        own = place / path.relative_to(base / "trained")
        if (
            path.is_file()
            and path.name != "training.json"
            and path.read_bytes() != own.read_bytes()
        ):
            raise WrongError(f"another {path.name}")
    if {*place.rglob("*checkpoint*"), *place.rglob("*.part")}:
        raise WrongError(f"left {[*place.rglob('*')]}")
    return "the same weights"
