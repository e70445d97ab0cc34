"""A process: how it starts and is stopped, and what a caller sees while it works."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Protocol

SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""What ends a command, and is said by one line: Ctrl-C, ``kill``, a terminal that is closed."""

USUAL = (signal.SIG_DFL, signal.default_int_handler)
"""How Python begins; anything else is somebody's wish, such as that of nohup."""


def _is_command() -> bool:
    """Whether this process was started as ``consilience`` or ``python -m consilience``."""
    started = sys.orig_argv[1:3]
    is_script = bool(started) and Path(started[0]).stem == "consilience"
    return is_script or started == ["-m", "consilience"]


def stop(number: int, frame: FrameType | None) -> None:
    """End the process at once."""
    os.write(2, b"stopped before anything was done\n")
    os._exit(128 + number)


def collect_garbage() -> None:
    """Collect garbage from now on, but not among what was imported.

    Imports make millions of objects and no garbage: looking through them took a seventh of the
    start of a run (docs/benchmarks.md).
    """
    if _is_command() and not gc.isenabled():
        gc.freeze()
        gc.enable()


if _is_command():
    gc.disable()
    for _signal in SIGNALS:
        if signal.getsignal(_signal) in USUAL:
            signal.signal(_signal, stop)


Advance = Callable[[int], None]
"""Called with the number of steps that are done."""


class Watch(Protocol):
    """Shows what a workflow does; ``Silent`` shows nothing."""

    def loading(self, model: str) -> AbstractContextManager[None]:
        """While a model is loaded and used."""

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """While so many steps are made; ``total`` is None where it is not known."""

    def say(self, step: str) -> None:
        """At the start of a step, in words."""

    def inform(self, line: str) -> None:
        """A line about the work, such as its cost or a command that is run."""


class Silent:
    """Shows nothing."""

    def loading(self, model: str) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """Nothing."""
        return nullcontext(lambda steps: None)

    def say(self, step: str) -> None:
        """Nothing."""

    def inform(self, line: str) -> None:
        """Nothing."""


SILENT = Silent()
