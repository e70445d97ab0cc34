"""Studies: the runs of a file, what happens to each, how far they are, and their report."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import study_workers
from checks import output, refusal, refused
from conftest import ROOT, cases
from consilience.core.errors import Progress
from consilience.core.provenance import build
from consilience.endpoints import client
from consilience.metrics.statistics import holm
from consilience.probing import probe
from consilience.runs.folder import record_of
from consilience.study import read_study, running
from consilience.study.reporting import report_study
from consilience.study.running import run_study, state_of, study_state
from replay_server import replay, written

WHOLE = """
folder = "out"
[options]
limit = 2
device = "cpu"
[[models]]
model = "baseline:majority"
[[models]]
name = "trained"
model = "models/size-7/seed-7"
limit = 5
[[suites]]
suite = "mini"
groups = "capital,sport"
[[suites]]
name = "qs"
suite = "data/questions.csv"
[factors]
protocol = ["strict", "published"]
candidates = ["pieces"]
"""


@pytest.fixture
def study_of(tmp_path, monkeypatch):
    """``study_of(text)``: the study in a file with this text."""
    monkeypatch.chdir(tmp_path)

    def read(text, name="sizes.toml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read_study(name)

    return read


def run_file(study, **options):
    """The rows of the runs of a study after ``run_study``."""
    return run_study(study.file, **options).tables["runs"].to_dicts()


def test_runs_are_models_by_suites_by_factors(study_of):
    study = study_of(WHOLE)
    kept = "candidates=pieces"
    inside = [f"{suite}/protocol={protocol},{kept}" for suite in ("mini", "qs")
              for protocol in ("strict", "published")]  # fmt: skip
    trained = [f"trained/{name}" for name in inside]
    majority = [f"baseline-majority/{name}" for name in inside]
    assert [run.name for run in study.runs] == majority + trained
    assert study.folder == Path("out")
    last = study.runs[-1]
    assert last.model == "trained"
    assert last.cell == "qs, protocol=published, candidates=pieces"
    options = last.options
    assert (options.model, options.suite) == ("models/size-7/seed-7", "data/questions.csv")
    assert (options.limit, options.device, options.protocol) == (5, "cpu", "published")
    assert str(options.out) == f"out/{last.name}"
    assert (study.runs[0].options.groups, study.runs[0].options.limit) == (("capital", "sport"), 2)


@pytest.mark.parametrize(("text", "message"), cases("studies_bad"))
def test_a_mistake_in_the_file_is_named_with_its_place(text, message, study_of):
    assert message in refused("^sizes.toml", study_of, text)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """A study whose first run kills its process: the study and its state."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(f"""
        folder = '{folder}/out'
        options = {{ limit = 1, groups = "capital,sport" }}
        models = [{{ name = "oracle", model = "baseline:oracle" }}]
        suites = [{{ name = "deadly", suite = "mini" }}, {{ name = "good", suite = "mini" }}]
        """)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "ask", study_workers.dies)
        state = run_study(folder / "study.toml")
    return read_study(folder / "study.toml"), state


def test_a_process_that_is_killed_fails_its_run_and_not_the_others(studied):
    study, state = studied
    rows = [
        {name: row[name] for name in ("run", "state", "done", "groups")}
        for row in state.tables["runs"].to_dicts()
    ]
    assert rows == [
        {"run": "oracle/deadly", "state": "failed", "done": 0, "groups": None},
        {"run": "oracle/good", "state": "complete", "done": 2, "groups": 2},
    ]
    log = study.folder / "log.txt"
    message = f"its process died, perhaps out of memory. Its output is in {log}."
    assert state.tables["runs"]["message"].to_list() == [message, ""]
    assert log.read_text() == "no room\n"
    assert (state.status, state.shown[0].notes) == (3, [f"oracle/deadly failed: {message}"])
    (table,) = study_state(study, state_of(study)).shown
    assert table.title.startswith("study: 2 runs: 1 waiting, 1 complete, in ")


def test_a_rerun_asks_what_is_not_complete(studied):
    study, before = studied
    after = run_file(study, workers=2)
    assert [row["state"] for row in after] == ["complete", "complete"]
    assert after[1] == before.tables["runs"].to_dicts()[1], "a complete run is not asked again"
    options = replace(study.runs[0].options, out=study.folder / "probed")
    probe(options)
    files = [path.relative_to(options.out) for path in options.out.rglob("*.[pc]*")]
    assert len(files) == 4
    for file in files:
        assert (study.runs[0].folder / file).read_bytes() == (options.out / file).read_bytes()


def test_a_run_without_all_groups_is_not_complete(studied):
    file = studied[0].runs[1].folder / "answers" / "1.parquet"
    content = file.read_bytes()
    file.unlink()
    row = state_of(studied[0]).to_dicts()[1]
    file.write_bytes(content)
    assert (row["state"], row["done"], row["groups"]) == ("waiting", 1, 2)


def test_run_ends_with_status_3_if_a_run_failed(consilience, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "ask_here", study_workers.here)
    text = '[options]\nlimit = 1\n[[models]]\nmodel = "baseline:no"\n[[suites]]\nsuite = "mini"'
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    out = output(consilience, "study", "status", "s.toml")
    assert "s: 1 run: 1 waiting, in runs/s" in out
    (row,) = json.loads(output(consilience, "study", "status", "s.toml", "--json"))["runs"]
    assert (row["state"], row["cell"], row["folder"]) == (
        "waiting",
        "mini",
        "runs/s/baseline-no/mini",
    )
    assert not (tmp_path / "runs").exists()
    status, out, err = consilience("study", "run", "s.toml")
    assert status == 3
    assert "s: 1 run: 1 failed" in out
    assert "baseline-no/mini failed: " in err


def test_an_option_that_was_changed_after_the_run_is_asked_for_and_refused(studied, monkeypatch):
    monkeypatch.setattr(running, "ask_here", study_workers.here)
    study, _ = studied
    text = study.file.read_text().replace("capital,sport", "sport")
    file = study.file.with_name("changed.toml")
    file.write_text(text.replace('{ name = "deadly", suite = "mini" }, ', ""))
    assert state_of(read_study(file))["state"].to_list() == ["waiting"]
    (row,) = run_file(read_study(file))
    assert "this folder holds another run: " in row["message"]


def test_two_workers_ask_two_runs_at_once(study_of, monkeypatch):
    """Both runs are being asked at the same time."""
    meeting = threading.Barrier(2, timeout=20)
    monkeypatch.setattr(running, "ask_here", partial(study_workers.here, act=meeting.wait))
    rows = run_file(study_of("""
        options = { limit = 1, groups = "capital" }
        models = [{ model = "baseline:random" },
                  { model = "openai:m", base_url = "http://127.0.0.1:9/v1", generate = true }]
        suites = [{ suite = "mini-questions" }]
    """), workers=2)  # fmt: skip
    assert [row["state"] for row in rows] == ["complete", "failed"]
    assert "127.0.0.1:9" in rows[1]["message"]


def test_a_run_whose_server_failed_is_not_complete(study_of, monkeypatch):
    """One question of six has no reply; the same command asks it when the server is well."""
    monkeypatch.setattr(running, "ask_here", study_workers.here)
    monkeypatch.setattr(client, "WAITS", (0.001, 0.002))
    bad = ["What is 3?"]

    def answer(path, body, headers):
        if not path.endswith("chat/completions"):
            return 404, {}, {}
        if any(text in body["messages"][-1]["content"] for text in bad):
            time.sleep(0.3)  # others are answered meanwhile, so the server is not down
            return 500, {}, {}
        return written(body, "red")

    with replay(answer) as server:
        study = study_of(
            f"options = {{ base_url = '{server.url}', generate = true, concurrency = 6 }}\n"
            "suites = [{ suite = 'q.csv' }]\nmodels = [{ model = 'openai:m' }]\n"
        )
        rows = "".join(f"What is {at}?,red,red; blue\n" for at in range(6))
        Path("q.csv").write_text(f"question,answer,options\n{rows}")
        (row,) = run_file(study)
        assert row["state"] == "failed"
        assert "did not reply to some queries" in row["message"]
        bad.clear()
        assert [row["state"] for row in run_file(study)] == ["complete"]


@pytest.mark.parametrize(("command", "message"), [
    ("run", "--shots with a suite of facts"),
    ("report", "s.toml: no run is complete. Ask the models first: `consilience study run s.toml"),
])  # fmt: skip
def test_what_cannot_be_asked_or_reported_is_refused(command, message, consilience, tmp_path):
    text = '[[models]]\nmodel = "baseline:random"\n[[suites]]\nsuite = "mini"\nshots = 2'
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    assert message in refusal(consilience, "study", command, "s.toml")
    assert not (tmp_path / "runs").exists()


def test_a_run_of_a_cluster_comes_back_whole(studied, tmp_path):
    """A task probes in a temporary folder, and begins with the files that there are."""
    options = studied[0].runs[1].options
    whole = running._files(options.out)
    part = {name: content for name, content in whole.items() if not name.endswith(".csv")}
    message, files = running._ask_away(options, part, str(Path.cwd()), build())
    assert (message, {**files, "run.json": b""}) == ("", {**whole, "run.json": b""})
    begun, again = (json.loads(of["run.json"])["started"] for of in (part, files))
    assert begun == again, "the run was resumed"
    running._write(files, tmp_path / "back")
    assert record_of(tmp_path / "back")["options"]["out"] == str(options.out)
    message, files = running._ask_away(options, {}, str(Path.cwd()), "9.9 (source 000)")
    assert "expected 9.9 (source 000), as where the command was started" in message
    assert files == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_ends_with_the_command(number, tmp_path):
    """A signal to the process of the command alone."""
    script = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import study_workers
from consilience.study import running
if __name__ == "__main__":
    running.ask = study_workers.sleeps
    from consilience.app.process import run as main
    sys.argv = ["consilience", "study", "run", "s.toml"]
    main()
"""
    (tmp_path / "main.py").write_text(script)
    text = '[[models]]\nmodel = "baseline:random"\n[[suites]]\nsuite = "mini"\n'
    (tmp_path / "s.toml").write_text(text)
    command = [sys.executable, "main.py"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as command:
        while not (file := tmp_path / "worker").exists() or not file.read_text():
            time.sleep(0.05)
        worker = int(file.read_text())
        command.send_signal(number)
        command.communicate(timeout=30)
    with suppress(ProcessLookupError):
        for _ in range(100):
            os.kill(worker, 0)
            time.sleep(0.1)
        pytest.fail("the worker goes on")


STUDY = """
folder = '{folder}/out'
options = {{ limit = 2, groups = "capital,sport" }}
models = [
    {{ name = "random", model = "baseline:random" }},
    {{ name = "oracle", model = "baseline:oracle" }},
    {{ name = "trained", model = "models/1" }},
    {{ name = "wrong", model = "models/none" }},
]
suites = [{{ suite = "mini" }}]
factors = {{ protocol = ["strict", "published"] }}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A study whose runs are complete but for those of "wrong" and one of "trained"."""
    folder = tmp_path_factory.mktemp("study")
    path = folder / "family.toml"
    path.write_text(STUDY.format(folder=folder), encoding="utf-8")
    made = {}
    for run in read_study(path).runs:
        if run.model == "wrong" or run.name == "trained/mini/protocol=published":
            continue
        model = "baseline:majority" if run.model == "trained" else run.options.model
        if (model, run.cell) in made:
            shutil.copytree(made[model, run.cell], run.folder)
        else:
            probe(replace(run.options, model=model))
            made[model, run.cell] = run.folder
        record = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
        record["options"]["model"] = run.options.model
        (run.folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(file):
    """Its report."""
    return report_study(file)


def test_every_run_has_a_row_and_missing_ones_are_named(made):
    rows = made.tables["numbers"].filter(metric="accuracy")
    strict, published = "mini, protocol=strict", "mini, protocol=published"
    assert rows.select("cell", "model").rows() == [
        *((strict, model) for model in ("random", "oracle", "trained")),
        *((published, model) for model in ("random", "oracle")),
    ]
    oracle = made.tables["numbers"].filter(run="oracle/mini/protocol=strict").to_dicts()
    assert [(row["metric"], row["value"]) for row in oracle[:2]] == [
        ("accuracy", 1.0), ("consistency", 1.0),
    ]  # fmt: skip
    table = made.shown[0]
    assert (table.title, len(table.rows)) == ("family: 5 runs in percent", 5)
    names = [f"wrong/mini/protocol={protocol}" for protocol in ("strict", "published")]
    names.insert(0, "trained/mini/protocol=published")
    assert sorted(table.notes) == sorted(f"{name} is missing" for name in names)


def test_models_are_compared_with_the_first_in_each_cell(made):
    pairs = ["cell", "first", "second"]
    of = made.tables["differences"].select(pairs).unique(maintain_order=True).rows()
    strict, published = "mini, protocol=strict", "mini, protocol=published"
    assert of == [
        (strict, "random", "oracle"), (strict, "random", "trained"), (published, "random", "oracle")
    ]  # fmt: skip
    first = made.tables["differences"].row(0, named=True)
    accuracy = made.tables["numbers"].filter(metric="accuracy")["value"]
    assert [first["first_value"], first["second_value"]] == [accuracy[0], accuracy[1]]


def test_p_is_adjusted_over_the_whole_study(made):
    p, adjusted = (made.tables["differences"][name].to_list() for name in ("p", "p_holm"))
    tests = sum(not math.isnan(each) for each in p)
    assert tests >= 9
    assert adjusted == pytest.approx(holm(p), nan_ok=True)
    assert f"over all {tests} tests of this table" in " ".join(made.shown[2].notes)
    clear = sum(each < 0.05 for each in adjusted)
    over = "Clear (p (Holm) < 0.05 over the whole study)"
    assert made.verdict == [f"{over}: {clear} of {tests} differences between models."]


def test_the_tables_and_the_document(file, consilience):
    document = json.loads(output(consilience, "study", "report", file, "--json"))
    assert len(document["runs"]) == 8
    assert document["numbers"][4]["value"] == 1.0
    rows = output(consilience, "study", "report", file, "--format", "csv").splitlines()
    assert len(rows) == 1 + len(document["numbers"])


SMALL_NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}

ON_RAY = """
folder = "FOLDER"
options = { device = "cpu", limit = 1, groups = "capital,sport,currency,author" }
models = [
    { name = "masked", model = "BERT" }, { name = "causal", model = "GPT2" },
    { name = "none", model = "nowhere/none" },
]
suites = [{ suite = "mini" }]
factors = { seed = [0, 1] }
"""


@pytest.fixture(scope="module")
def cluster():
    """A head without processors, and three nodes of one processor, whose workers import tests.

    `make test-ray` installs Ray.
    """
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
        cluster = Cluster(initialize_head=True, head_node_args={**SMALL_NODE, "num_cpus": 0})
        nodes = [cluster.add_node(**SMALL_NODE) for _ in range(3)]
        cluster.wait_for_nodes()
        yield cluster, nodes
        cluster.shutdown()


class Watching(Progress):
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


def test_ray_loses_a_node_and_no_answer_and_a_run_that_fails_stays_alone(
    cluster, model_folder, tmp_path, monkeypatch
):
    """Two models, and one that is not there; a node is killed."""
    monkeypatch.chdir(tmp_path)
    text = ON_RAY.replace("BERT", str(model_folder("bert"))).replace(
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
        state = run_study(Path("there.toml"), None, whole.address, Watching(kill))
    begun = Counter(Path("begun").read_text().split()[::2])
    assert max(begun.values()) > 1, "the run of the lost node is asked again"
    there = state.tables["runs"]
    assert there["state"].to_list() == ["complete"] * 4 + ["failed"] * 2
    assert "nowhere/none" in there["message"][-1]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray sets it for a worker of one processor
    here = run_study(Path("here.toml")).tables["runs"]
    assert digests(there) == digests(here)


def test_ray_at_an_address_without_a_cluster_raises():
    ray = pytest.importorskip("ray")
    refused("--ray-address 127.0.0.1:1: no cluster", running.Cluster, "127.0.0.1:1")
    assert not ray.is_initialized()
