"""What workers of a study do in tests, in place of ``running.ask`` and of a task of Ray."""

import os
import signal
import time
from pathlib import Path

from consilience.study import running


def dies(options):
    """The process is killed by every run of the suite "deadly"."""
    if "deadly" in str(options.out):
        print("no room", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return running.ask(options)


def sleeps(options):
    """Tells its process, and would take a minute."""
    Path("worker").write_text(str(os.getpid()))
    time.sleep(60)


def slow(options, files, home, version):
    """As a task of Ray, but seconds longer; every begin is a line of a file, with the node."""
    import ray

    with (Path(home) / "begun").open("a") as file:
        file.write(f"{options.out} {ray.get_runtime_context().get_node_id()}\n")
    time.sleep(2)
    return running._ask_away(options, files, home, version)


def here(run, log, threads, act=lambda: None):
    """As ``ask_here``, in this process."""
    act()
    return running.ask(run.options)
