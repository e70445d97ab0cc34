"""A study on a Ray cluster of three nodes on this machine; `make test-ray` installs Ray."""

import os
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

import study_workers
from checks import refused
from consilience.core.errors import Watch
from consilience.runs.folder import record_of
from consilience.study import running
from consilience.study.running import run_study

ray = pytest.importorskip("ray")

SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}

TEXT = """
folder = "FOLDER"
options = { device = "cpu", limit = 1, groups = "capital,sport,currency,author" }
models = [
    { name = "masked", model = "BERT" }, { name = "causal", model = "GPT2" },
    { name = "none", model = "nowhere/none" },
]
suites = [{ suite = "mini" }, { suite = "mini-questions" }]
factors = { seed = [0, 1] }
skip = [{ model = ["masked", "none"], suite = "mini-questions" }, { model = "none", seed = 1 }]
"""


@pytest.fixture(scope="module")
def cluster():
    """A head without processors, and three nodes of one processor, whose workers import tests."""
    from ray.cluster_utils import Cluster

    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
        cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "num_cpus": 0})
        nodes = [cluster.add_node(**SMALL) for _ in range(3)]
        cluster.wait_for_nodes()
        yield cluster, nodes
        cluster.shutdown()


class Watching(Watch):
    """Calls a function when the first run is complete."""

    def __init__(self, act):
        self.act, self.done = act, 0

    @contextmanager
    def steps(self, text, total, unit):
        yield self.advance

    def advance(self, steps):
        self.done += steps
        if self.done == 1:
            self.act()


def digests(runs):
    """The states of runs; the answers and the metrics of those that are complete."""
    complete = runs.filter(state="complete").select("run", "folder").iter_rows()
    files = {name: (record_of(Path(of))["answers"], Path(of, "metrics.csv").read_bytes())
             for name, of in complete}  # fmt: skip
    return runs["state"].to_list(), files


def test_a_lost_node_changes_no_answer_and_a_run_that_fails_stays_alone(
    cluster, model_folder, tmp_path, monkeypatch
):
    """Two models on facts and questions, and one that is not there; a node is killed."""
    monkeypatch.chdir(tmp_path)
    text = TEXT.replace("BERT", str(model_folder("bert"))).replace(
        "GPT2", str(model_folder("gpt2"))
    )
    for name in ("here", "there"):
        Path(f"{name}.toml").write_text(text.replace("FOLDER", name), encoding="utf-8")
    whole, nodes = cluster

    def kill():
        """Kill the node of the run that begins next."""
        before = begun = Path("begun").read_text()
        while begun == before:
            time.sleep(0.05)
            begun = Path("begun").read_text()
        lost = next(node for node in nodes if node.node_id == begun.split()[-1])
        whole.remove_node(lost, allow_graceful=False)

    with monkeypatch.context() as patch:
        patch.setattr(running, "_ask_away", study_workers.slow)
        state = run_study(Path("there.toml"), "ray", None, whole.address, Watching(kill))
    begun = Counter(Path("begun").read_text().split()[::2])
    assert max(begun.values()) > 1, "the run of the lost node is asked again"
    there = state.tables["runs"]
    assert there["state"].to_list() == ["complete"] * 6 + ["failed"]
    assert "nowhere/none" in there["message"][-1]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray sets it for a worker of one processor
    here = run_study(Path("here.toml")).tables["runs"]
    assert digests(there) == digests(here)


def test_an_address_without_a_cluster_raises():
    refused("--ray-address 127.0.0.1:1: no cluster", running.Cluster, "127.0.0.1:1", None)
    assert not ray.is_initialized()
