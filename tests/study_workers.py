"""Workers of studies for tests: some die, and some work in this process."""

import os
import signal
import time
from pathlib import Path

from consilience.study.engine import Event, UnitFailure, attempted, made
from consilience.study.running import study_worker


def dies(key):
    """As ``study_worker``, but the process is killed by every unit of the suite "deadly"."""
    work = study_worker(key)

    def do(task, advance):
        if "deadly" in task.run:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(task, advance)

    return do


def leaves(key):
    """The process ends before anything is asked, and prints something."""
    print("no room", flush=True)
    os._exit(3)


class HereWorkers:
    """Workers in this process, each with its own state; what they were started for."""

    def __init__(self, count=1, logs=None):
        self.count, self.log, self.works, self.ready = count, [], {}, {}

    def start(self, factory, key, needs):
        number = len(self.log)
        self.log.append(key)
        self.works[number] = made(factory, key)
        self.ready[number] = ("ready", "here")
        return number

    def give(self, worker, unit):
        result = attempted(self.works[worker], unit.payload, lambda steps: None)
        kind = "failed" if isinstance(result, UnitFailure) else "done"
        self.ready[worker] = (kind, result)

    def events(self):
        worker = max(self.ready)  # the last one first, so that units end in another order
        return [Event(worker, *self.ready.pop(worker))]

    def stop(self, worker):
        self.works.pop(worker)
        self.ready.pop(worker, None)

    def close(self):
        self.works.clear()


def slow(key):
    """As ``study_worker``, but every unit takes half a second longer."""
    work = study_worker(key)

    def do(task, advance):
        time.sleep(0.5)
        return work(task, advance)

    return do


def waits(key):
    """As ``study_worker``, but a model that runs here waits for the file ``asked``.

    Each worker leaves a file in ``started``.
    """
    work, home = study_worker(key), Path(key.home)
    (home / "started").mkdir(exist_ok=True)
    (home / "started" / str(os.getpid())).write_text(key.model)

    def do(task, advance):
        end = time.monotonic() + 100
        while not (key.needs.is_network or (home / "asked").exists()):
            if time.monotonic() > end:
                raise TimeoutError("no server was asked")
            time.sleep(0.01)
        return work(task, advance)

    return do
