"""Workers of studies for tests: some die, and some work in this process."""

import os
import signal
import time
from threading import Lock

from consilience.study.running import StudyWorker
from consilience.study.workers import Doer


def dies(key):
    """As ``StudyWorker``, but the process is killed by every unit of the suite "deadly"."""
    work = StudyWorker(key)

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
    """Workers in this process, one at a time, each with its own state; what they are for."""

    def __init__(self, count=1, logs=None):
        self.count, self.log, self.lock = count, [], Lock()

    def start(self, factory, key):
        self.log.append(key)
        return HereWorker(factory, key, self.lock)

    def close(self):
        """Wait for the unit that is being done, which would disturb the next test."""
        with self.lock:
            pass


class HereWorker:
    def __init__(self, factory, key, lock):
        self.doer, self.lock = Doer(factory, key), lock

    def do(self, payload, show):
        with self.lock:
            return self.doer.do(payload, lambda steps: None)

    def stop(self):
        pass


def slow(key):
    """As ``StudyWorker``, but every unit takes half a second longer."""
    work = StudyWorker(key)

    def do(task, advance):
        time.sleep(0.5)
        return work(task, advance)

    return do
