"""Units of work on worker processes: none is lost, and no failure ends the others."""

import os
import signal
import subprocess
import sys

import pytest

from conftest import ROOT
from consilience.study.workers import LocalWorkers, described, run_units
from engine_work import factory, outcomes, units
from study_workers import HereWorkers

TESTS = ROOT / "tests"


def test_what_waits_on_the_network_is_one_process_here_beside_a_cluster():
    cluster = HereWorkers(1)
    work = [*units(*[("tell",)] * 3), *units(*[("tell",)] * 3, key="net", is_network=True)]
    values = [one.value for one in run_units(work, factory, cluster, network=LocalWorkers(0))]
    assert sorted(key for key, _ in values) == ["a"] * 3 + ["net"] * 3
    assert cluster.log == ["a"]
    processes = dict(values)
    assert len(set(values)) == 2, "a process for each key"
    assert processes["a"] == os.getpid() != processes["net"]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """One run with everything that can happen, on two workers; its lines and its steps."""
    folder, lines, steps = tmp_path_factory.mktemp("mixed"), [], []
    work = [
        *units(*[("tell",)] * 3, ("raise", "input"), ("raise", "file"), key="a"),
        *units(("repeat", 300_000), ("die", 1, folder / "once"), ("tell",), key="b", size=5),
        *units(("raise", "bug"), ("tell",), key="c"),
        *units(("tell",), ("tell",), key="refused"),
        *units(("die", 9, folder / "always"), ("tell",), key="d"),
    ]
    ended = outcomes(work, LocalWorkers(2, folder), advance=steps.append, inform=lines.append)
    return ended, lines, steps, folder


def test_every_unit_has_one_outcome_and_all_steps_are_shown_once(mixed):
    ended, _, steps, _ = mixed
    assert len(ended) == 5 + 3 + 2 + 2 + 2
    assert sum(steps) == 5 + 15 + 2 + 2 + 2
    assert ended["b0"].value == b"x" * 300_000, "a large value comes back whole"
    workers = LocalWorkers(2)
    assert list(run_units([], factory, workers)) == workers._started == [], "no unit, no worker"


def test_units_of_a_key_share_its_workers_and_one_that_cannot_be_made_fails_its_key_only(mixed):
    values = [mixed[0][f"a{at}"].value for at in range(3)]
    assert [key for key, _ in values] == ["a"] * 3
    assert len({process for _, process in values}) <= 2
    messages = {mixed[0][f"refused{at}"].failure.message for at in range(2)}
    assert messages == {"no such model. Name another."}


def test_a_unit_that_raises_is_not_tried_again_and_wrong_input_has_no_traceback(mixed):
    failures = {name: mixed[0][name].failure for name in ("a3", "a4", "c0")}
    assert {name: one.message for name, one in failures.items()} == {
        "a3": "wrong; expected right.", "a4": "facts.tsv: No such file.",
        "c0": "a bug: ZeroDivisionError: by zero",
    }  # fmt: skip
    assert [bool(one.traceback) for one in failures.values()] == [False, False, True]
    assert "in _raise" in failures["c0"].traceback
    assert mixed[0]["c1"].value[0] == "c", "the worker is replaced, and the rest is done"
    assert described(MemoryError()).message == "out of memory."


def test_a_unit_whose_worker_is_killed_is_tried_again(mixed):
    ended, lines, _, folder = mixed
    assert ended["b1"].value == "survived"
    assert (folder / "once").read_text() == "xx"
    (told,) = [line for line in lines if line.startswith("b1: ")]
    killed = "its process was killed by signal 9 (SIGKILL), perhaps out of memory."
    assert told == f"b1: {killed} It is tried again."


def test_a_unit_that_always_kills_its_worker_fails_after_three_tries(mixed):
    ended, _, _, folder = mixed
    failure = ended["d0"].failure
    assert "killed by signal 9 (SIGKILL)" in failure.message
    assert (folder / "always").read_text() == "xxx"
    assert ended["d1"].value[0] == "d"


def test_a_worker_that_dies_when_it_is_made_is_tried_three_times():
    ended = outcomes(units(("tell",), ("tell",), key="dies"), LocalWorkers(1))
    assert all("SIGKILL" in one.failure.message for one in ended.values())


def test_a_reader_that_stops_ends_the_workers():
    running = run_units(units(*[("tell",)] * 3), factory, LocalWorkers())
    process = next(running).value[1]
    running.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_ctrl_c_ends_the_workers(tmp_path):
    """SIGINT to the whole process group, as a terminal sends it."""
    script = tmp_path / "main.py"
    script.write_text(f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from consilience.study.workers import LocalWorkers, Unit, run_units
from engine_work import factory
if __name__ == "__main__":
    units = [Unit("a", "k", ("tell",)), Unit("b", "k", ("sleep", 60))]
    for one in run_units(units, factory, LocalWorkers()):
        print(one.value[1], flush=True)
""")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, start_new_session=True) as running:  # fmt: skip
        worker = int(running.stdout.readline())
        os.killpg(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=50)
    assert errors.strip().endswith("KeyboardInterrupt")
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
