"""A case of the campaign in a process of its own, and a command that must end with one message."""

from __future__ import annotations

import contextlib
import ctypes
import io
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["RUST_BACKTRACE"] = "0"

MEMORY = 2 << 30
SECONDS = 20
SLOW = {"kill": 4, "kill_long": 4, "together": 4}
"""Targets of several commands, and how many times as long they may take."""
PATIENCE = 15
"""How many times as long a case may take by the clock, because others use the processor, too."""
LONGEST = 5_000
OUTCOMES = ("done", "refused", "abort", "traceback", "crash", "timeout", "memory", "wrong")
FAILURES = OUTCOMES[3:]

Act = Callable[[random.Random, Path], str]
"""A case: does its work in an empty folder, with the prepared files in ``../base``."""

TARGETS: dict[str, Act] = {}

ALONE: set[str] = set()
"""Targets whose cases fork, kill or load a model: each has a process of its own."""

TOGETHER = 100
"""Cases of other targets in one process."""


def target(act: Act) -> Act:
    """Register a kind of case under the name of its function."""
    TARGETS[act.__name__] = act
    return act


def alone(act: Act) -> Act:
    """Register a kind of case, each in a process of its own."""
    ALONE.add(act.__name__)
    return target(act)


class WrongError(Exception):
    """A result that must not be."""


def in_child(
    acts: Sequence[Callable[[], str]], out: Path, seconds: float = SECONDS
) -> list[tuple[str, str]]:
    """The outcome of each of ``acts`` in one forked child, and what it said.

    One that ends the child is the last: the others have no outcome.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    here, there = multiprocessing.Pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            end_with_parent()
            here.close()
            with out.open("w", encoding="utf-8", errors="backslashreplace") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                sys.stdout = sys.stderr = file
                for act in acts:
                    file.seek(0)
                    file.truncate()
                    _limit(seconds)
                    status = _status(act)
                    there.send((STATUS[status], _said(out)))
                status = 0
        finally:
            os._exit(status)
    there.close()
    found: list[tuple[str, str]] = []
    with here:
        while len(found) < len(acts):
            waited, last = 0.0, time.monotonic()
            while not here.poll(0.05) and waited <= PATIENCE * seconds:
                now = time.monotonic()
                waited += min(now - last, 0.1)  # not while both are stopped
                last = now
            try:
                if not here.poll():
                    found.append(("timeout", _said(out)))
                    break
                found.append(here.recv())
            except EOFError:
                found.append(_ended(os.waitpid(child, 0)[1], _said(out)))
                return found
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return found


def _ended(status: int, said: str) -> tuple[str, str]:
    """The outcome of a case that ended its process."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGXCPU:
        return "timeout", said
    is_known = number and "memory allocation of" in said
    return "abort" if is_known else "crash", f"signal {number} {said}"


def end_with_parent() -> None:
    """Let a forked process end when the one that forked it does."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


STATUS = {0: "done", 2: "refused", 1: "traceback", 3: "wrong", 4: "memory"}


def _status(act: Callable[[], str]) -> int:
    from consilience.core.errors import ConsilienceError

    try:
        print(act())
        return 0
    except ConsilienceError as error:
        print(error)
        return 2 if len(str(error)) <= LONGEST else 3
    except MemoryError:
        return 4
    except WrongError as error:
        print(error)
        return 3
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()


def _limit(seconds: float) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    cpu = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _said(out: Path) -> str:
    with contextlib.suppress(OSError), out.open(encoding="utf-8", errors="replace") as file:
        return file.read(4000)
    return ""


def command(*arguments: object) -> str:
    """``consilience ARGUMENTS`` in this process; one that fails without one message is wrong.

    So is one that prints what controls a terminal.
    """
    from consilience import cli
    from consilience.core.errors import ConsilienceError
    from consilience.core.text import CONTROLS

    said = io.StringIO()
    sys.argv = ["consilience", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main()
        status = 0
    except SystemExit as stop:
        status = int(stop.code or 0)
    text = said.getvalue()
    if CONTROLS.search(text):
        raise WrongError(f"controls the terminal: {text[:2000]!r}")
    messages = sum(line.startswith("error: ") for line in text.splitlines())
    if status in (0, 3) and "Traceback" not in text:  # 3: a gate that fails, other answers
        return f"exit {status}, {len(text)} characters"
    if status == 2 and messages == 1 and len(text) <= LONGEST + 4000 * text.count("note: "):
        raise ConsilienceError(text[:LONGEST])
    raise WrongError(f"exit {status}, {messages} messages, {len(text)} characters: {text[:2000]}")


RUNS = (
    "pickle.find_class",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "socket.connect",
)
"""Audit events of what no data may have done."""


_watching: list[list[str]] = []
"""What ran since ``nothing_runs`` began; empty outside of it."""


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event in RUNS:
        is_version = event == "subprocess.Popen" and arguments[0] == "git"
        if not is_version:
            _watching[-1].append(f"{event} {arguments}"[:200])


sys.addaudithook(_watch)  # one for all cases: none can be removed


@contextlib.contextmanager
def nothing_runs() -> Iterator[None]:
    """Wrong if what is read inside starts a program or opens a connection."""
    _watching.append([])
    try:
        yield
    finally:
        if ran := _watching.pop():
            raise WrongError(f"ran {ran}")
