"""A case of the campaign in a process of its own, and a command that must end with one message."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["RUST_BACKTRACE"] = "0"

MEMORY = 2 << 30
SECONDS = 20
SLOW = {"written": 4, "finetune": 4, "together": 4}
"""Targets of several commands, and how many times as long they may take."""
LONGEST = 5_000
OUTCOMES = ("done", "refused", "abort", "traceback", "crash", "timeout", "memory", "wrong")
FAILURES = OUTCOMES[3:]

Act = Callable[[random.Random, Path], str]
"""A case: does its work in an empty folder, with the prepared files in ``../base``."""

TARGETS: dict[str, Act] = {}


def target(act: Act) -> Act:
    """Register a kind of case under the name of its function."""
    TARGETS[act.__name__] = act
    return act


class WrongError(Exception):
    """A result that must not be."""


def in_child(act: Callable[[], str], out: Path, seconds: float = SECONDS) -> tuple[str, str]:
    """The outcome of ``act`` in a forked child, and what it said."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            end_with_parent()
            _limit(seconds)
            with out.open("w", encoding="utf-8", errors="backslashreplace") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                sys.stdout = sys.stderr = file
                status = _status(act)
        finally:
            os._exit(status)
    waited, last = 0.0, time.monotonic()
    while not (found := os.waitpid(child, os.WNOHANG))[0]:
        now = time.monotonic()
        waited += min(now - last, 0.1)  # not while both are stopped
        last = now
        if waited > seconds:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "timeout", _said(out)
        time.sleep(0.002)
    said = _said(out)
    if os.WIFSIGNALED(found[1]):
        if os.WTERMSIG(found[1]) == signal.SIGXCPU:
            return "timeout", said
        is_known = "memory allocation of" in said
        return "abort" if is_known else "crash", f"signal {os.WTERMSIG(found[1])} {said}"
    return STATUS.get(os.WEXITSTATUS(found[1]), "crash"), said


def end_with_parent() -> None:
    """Let a forked process end when the one that forked it does."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


STATUS = {0: "done", 2: "refused", 1: "traceback", 3: "wrong", 4: "memory"}


def _status(act: Callable[[], str]) -> int:
    from consilience.errors import ConsilienceError

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
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY,) * 2)
    cpu = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
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
    from consilience.errors import ConsilienceError
    from consilience.text import CONTROLS

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
    if status == 0 and "Traceback" not in text:
        return f"exit 0, {len(text)} characters"
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


@contextlib.contextmanager
def nothing_runs() -> Iterator[None]:
    """Wrong if what is read inside starts a program or opens a connection."""
    ran: list[str] = []
    is_inside = [True]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        is_version = event == "subprocess.Popen" and arguments[0] == "git"
        if is_inside and event in RUNS and not is_version:
            ran.append(f"{event} {arguments}"[:200])

    sys.addaudithook(hook)
    try:
        yield
    finally:
        is_inside.clear()
        if ran:
            raise WrongError(f"ran {ran}")
