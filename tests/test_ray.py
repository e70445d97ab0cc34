"""Units of work on a Ray cluster of three nodes on this machine; `make test-ray` installs Ray."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

import study_workers
from checks import refused
from consilience.core.errors import Watch
from consilience.core.provenance import build
from consilience.options.runs import StudyRunOptions
from consilience.runs.folder import record_of
from consilience.study import running as studying
from consilience.study import workers as ray_workers
from consilience.study.running import run_study
from consilience.study.workers import RayWorkers, run_units
from engine_work import factory, outcomes, units

ray = pytest.importorskip("ray")

SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    """A head without processors, and three nodes of one processor, whose workers import tests."""
    from ray.cluster_utils import Cluster

    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
        yield from running(Cluster)


def running(make):
    cluster = make(initialize_head=True, head_node_args={**SMALL, "num_cpus": 0})
    nodes = [cluster.add_node(**SMALL) for _ in range(3)]
    cluster.wait_for_nodes()
    yield cluster, nodes
    cluster.shutdown()


def test_a_cluster_is_joined_by_its_address_and_failures_stay_alone(cluster, tmp_path):
    lines, steps = [], []
    work = [
        *units(*[("tell",)] * 3, ("raise", "input"), ("raise", "bug"), size=2),
        *units(("die", 1, tmp_path / "once"), ("repeat", 300_000), key="b"),
        *units(("die", 9, tmp_path / "always"), ("tell",), key="d"),
        *units(("tell",), key="refused"),
    ]
    shown = {"inform": lines.append, "advance": steps.append}
    ended = outcomes(work, RayWorkers(cluster[0].address), **shown)
    assert [ended[f"a{at}"].value[0] for at in range(3)] == ["a"] * 3
    assert ended["a3"].failure.message == "wrong; expected right."
    assert "in _raise" in ended["a4"].failure.traceback
    assert (ended["b0"].value, (tmp_path / "once").read_text()) == ("survived", "xx")
    assert ended["b1"].value == b"x" * 300_000
    assert "its process died, perhaps out of memory" in ended["d0"].failure.message
    assert (tmp_path / "always").read_text() == "xxx"
    assert ended["d1"].value[0] == "d"
    assert ended["refused0"].failure.message == "no such model. Name another."
    assert (sum(steps), sum("It is tried again." in line for line in lines)) == (10 + 2 + 2 + 1, 3)


def test_units_of_a_lost_node_are_done_elsewhere(cluster):
    """A node is killed in the middle; its worker had at most one value that was not read yet."""
    whole, nodes = cluster
    values, lines, lost = [], [], None
    workers = RayWorkers(whole.address)
    for one in run_units(units(*[("node", 0.5)] * 12), factory, workers, inform=lines.append):
        assert one.failure is None
        values.append((one.unit.id, one.value))
        if len(values) == 4:
            lost = next(node for node in nodes if node.node_id == one.value)
            whole.remove_node(lost, allow_graceful=False)
            nodes.remove(lost)
    assert sorted(name for name, _ in values) == sorted(f"a{at}" for at in range(12))
    assert [node for _, node in values[4:]].count(lost.node_id) <= 1
    assert sum("It is tried again." in line for line in lines) == 1


class Watching(Watch):
    """Keeps the lines, and calls a function after some steps."""

    def __init__(self, after, act):
        self.lines, self.steps_left, self.act = [], after, act

    @contextmanager
    def steps(self, text, total, unit):
        yield self.advance

    def advance(self, steps):
        before, self.steps_left = self.steps_left, self.steps_left - steps
        if before > 0 >= self.steps_left:
            self.act()

    def inform(self, line):
        self.lines.append(line)


def digests(state):
    assert [one.state for one in state.runs] == ["complete"] * len(state.runs)
    folders = {one.run.name: one.run.folder for one in state.runs}
    return {
        name: (record_of(folder)["answers"], (folder / "metrics.csv").read_bytes())
        for name, folder in folders.items()
    }


def test_a_lost_node_changes_no_answer(cluster, model_folder, tmp_path, monkeypatch):
    """Two models on facts and questions; a node is killed in the middle."""
    monkeypatch.chdir(tmp_path)
    text = f"""
    folder = "FOLDER"
    options = {{ device = "cpu", limit = 1, groups = "capital,sport,currency,author" }}
    models = [
        {{ name = "masked", model = "{model_folder("bert")}" }},
        {{ name = "causal", model = "{model_folder("gpt2")}" }},
    ]
    suites = [{{ suite = "mini" }}, {{ suite = "mini-questions" }}]
    skip = [{{ model = "masked", suite = "mini-questions" }}]
    """
    for name in ("here", "there"):
        Path(f"{name}.toml").write_text(text.replace("FOLDER", name), encoding="utf-8")
    whole, nodes = cluster

    def kill():
        whole.remove_node(nodes.pop(), allow_graceful=False)

    monkeypatch.setattr(studying, "StudyWorker", study_workers.slow)
    watch = Watching(30, kill)
    options = StudyRunOptions(Path("there.toml"), engine="ray", ray_address=whole.address)
    there = run_study(options, watch)
    assert any("It is tried again." in line for line in watch.lines)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray sets it for a worker of one processor
    here = run_study(StudyRunOptions(Path("here.toml")))
    assert digests(there) == digests(here)


def test_another_version_is_refused_and_both_are_named(cluster, monkeypatch):
    monkeypatch.setattr(ray_workers, "build", lambda: "9.9 (source 000)")
    failure = outcomes(units(("tell",)), RayWorkers(cluster[0].address))["a0"].failure
    assert "expected 9.9 (source 000), as where the command was started" in failure.message
    assert "Install the same version on all nodes." in failure.message
    assert f"consilience {build()}" in failure.message


def test_an_address_without_a_cluster_raises():
    refused("--ray-address 127.0.0.1:1: no cluster", RayWorkers, "127.0.0.1:1")
    assert not ray.is_initialized()
    assert os.environ.get("RAY_ADDRESS") is None
