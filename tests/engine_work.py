"""Work of test workers: importable functions for ``run_units``."""

import os
import signal
import tempfile
import time
from pathlib import Path

from consilience.core.errors import ConsilienceError
from consilience.study.workers import Unit, run_units


def units(*payloads, key="a", **fields):
    return [Unit(f"{key}{at}", key, payload, **fields) for at, payload in enumerate(payloads)]


def factory(key):
    """Work for a key: ``"refused"`` and ``"dies"`` cannot be made; each worker tells its process."""
    if key == "refused":
        raise ConsilienceError("no such model", todo="Name another.")
    if key == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    loaded = (key, os.getpid())

    def work(payload, advance):
        return ACTIONS[payload[0]](*payload[1:], loaded=loaded, advance=advance)

    return work


def outcomes(work, workers, **options):
    """The outcomes by id."""
    ended = list(run_units(work, factory, workers, **options))
    assert len({one.unit.id for one in ended}) == len(ended)
    return {one.unit.id: one for one in ended}


def _tell(loaded, **rest):
    return loaded


def _repeat(size, advance, **rest):
    return b"x" * size


def _sleep(seconds, loaded, **rest):
    time.sleep(seconds)
    return loaded


def _raise(kind, **rest):
    raise {"bug": ZeroDivisionError("by zero"), "input": ConsilienceError("wrong", expected="right"),
           "file": FileNotFoundError(2, "No such file", "facts.tsv")}[kind]  # fmt: skip


def _die(deaths, file, **rest):
    """Kill the worker, the first ``deaths`` times."""
    with Path(file).open("a") as log:
        log.write("x")
    if len(Path(file).read_text()) <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def _leave(**rest):
    """Leave a file in the temporary folder, as a worker does that is killed."""
    tempfile.mkdtemp(prefix="consilience-")
    os.kill(os.getpid(), signal.SIGKILL)


def _node(seconds, **rest):
    """The id of the node that this worker of Ray is on."""
    import ray

    time.sleep(seconds)
    return ray.get_runtime_context().get_node_id()


ACTIONS = {"tell": _tell, "repeat": _repeat, "sleep": _sleep, "raise": _raise,
           "die": _die, "leave": _leave, "node": _node}  # fmt: skip
