"""Studies: the runs of a file, what happens to each, and how far they are."""

import json
import subprocess
import sys
import threading

import pytest

import study_workers
from checks import output, refusal, refused
from conftest import cases
from consilience.endpoints import client
from consilience.options.runs import StudyRunOptions
from consilience.probing.probe import probe
from consilience.study import running, workers
from consilience.study.file import failure_file, read_study, state_of
from consilience.study.running import run_study
from replay_server import replay

WHOLE = """
folder = "out"
[options]
limit = 2
device = "cpu"
[[models]]
model = "baseline:majority"
[[models]]
name = "trained"
model = "models/size-{seed}/seed-{seed}"
seeds = [0, 7]
limit = 5
[[suites]]
suite = "mini"
groups = "capital,sport"
[[suites]]
name = "qs"
suite = "data/questions.csv"
[factors]
protocol = ["strict", "published"]
keep_scores = [true]
[[skip]]
suite = "qs"
protocol = ["published"]
"""


@pytest.fixture
def study_of(tmp_path, monkeypatch):
    """``study_of(text)``: the study in a file with this text."""
    monkeypatch.chdir(tmp_path)

    def read(text, name="sizes.toml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read_study(name)

    return read


def test_runs_are_models_by_suites_by_factors_by_seeds_without_those_skipped(study_of):
    study = study_of(WHOLE)
    kept = "keep_scores=true"
    inside = [f"mini/protocol=strict,{kept}", f"mini/protocol=published,{kept}",
              f"qs/protocol=strict,{kept}"]  # fmt: skip
    trained = [f"trained/{name}/seed-{seed}" for name in inside for seed in (0, 7)]
    majority = [f"baseline-majority/{name}" for name in inside]
    assert [run.name for run in study.runs] == majority + trained
    assert (study.name, study.reference, study.pairs) == ("sizes", "baseline:majority", "reference")
    last = study.runs[-1]
    assert (last.model, last.suite, last.seed) == ("trained", "qs", 7)
    assert last.factors == (("protocol", "strict"), ("keep_scores", "true"))
    options = last.options
    assert (options.model, options.suite) == ("models/size-7/seed-7", "data/questions.csv")
    assert (options.limit, options.device, options.protocol) == (5, "cpu", "strict")
    assert str(options.out) == f"out/{last.name}"
    assert (study.runs[0].options.groups, study.runs[0].options.limit) == (("capital", "sport"), 2)


BASE = '[[models]]\nmodel = "m"\n[[suites]]\nsuite = "mini"\n'


@pytest.mark.parametrize(("text", "message"), cases("studies_bad"))
def test_a_mistake_in_the_file_is_named_with_its_place(text, message, study_of):
    assert message in refused("^sizes.toml: ", study_of, text)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """A study whose first run kills its process: its file and its state."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(f"""
        folder = '{folder}/out'
        options = {{ limit = 1, groups = "capital,sport" }}
        models = [{{ name = "oracle", model = "baseline:oracle" }}]
        suites = [{{ name = "deadly", suite = "mini" }}, {{ name = "good", suite = "mini" }}]
        """)
    options = StudyRunOptions(folder / "study.toml")
    return options.file, run_by(options, study_workers.dies)


def run_by(options, factory):
    """The state of a study after ``run_study`` with workers that a function of the tests makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "StudyWorker", factory)
        patch.setattr(workers, "TRIES", 1)
        return run_study(options)


def test_a_process_that_is_killed_fails_its_run_and_not_the_others(studied):
    file, state = studied
    expected = [("oracle/deadly", "failed", 0, 0), ("oracle/good", "complete", 2, 18)]
    assert [(one.run.name, one.state, one.done, one.answers) for one in state.runs] == expected
    message = "its process was killed by signal 9 (SIGKILL), perhaps out of memory."
    assert state.failures() == [f"Failed: oracle/deadly: {message}"]
    failure = json.loads(failure_file(state.study, state.runs[0].run).read_text())
    assert failure == {"run": "oracle/deadly", "message": message, "traceback": ""}
    assert state_of(read_study(file)).in_words() == "2 runs: 1 complete, 1 failed; 18 answers"


def test_a_rerun_asks_what_is_not_complete_and_a_success_clears_the_failure(studied):
    file, before = studied
    after = run_by(StudyRunOptions(file), study_workers.leaves)
    assert after.runs[1] == before.runs[1], "a complete run is not asked again"
    log = before.study.folder / "logs" / "worker-1.txt"
    assert after.runs[0].message == f"its process ended with status 3. Its output is in {log}."
    probe(after.runs[0].run.options)
    assert [one.state for one in state_of(after.study).runs] == ["complete", "complete"]


def test_a_run_without_all_groups_is_not_complete(studied):
    run = studied[1].runs[1].run
    kept = run.folder / "answers" / "1.parquet"
    content = kept.read_bytes()
    kept.unlink()
    try:
        state = state_of(studied[1].study).runs[1]
    finally:
        kept.write_bytes(content)
    assert (state.state, state.done, state.groups, state.answers) == ("part", 1, 2, 9)


def test_status_is_printed_and_is_a_document(studied, consilience):
    file, state = studied
    assert "oracle/good    complete" in output(consilience, "study", "status", file)
    document = json.loads(consilience("study", "status", file, "--json")[1])
    assert set(document) == {"run", "runs", "warnings"}
    row = document["runs"][1]
    assert (row["state"], row["answers"], row["factors"], row["seed"]) == ("complete", 18, {}, None)
    assert row["folder"] == str(state.runs[1].run.folder)


def test_run_ends_with_status_2_if_a_run_failed(consilience, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "LocalWorkers", study_workers.HereWorkers)
    text = '[options]\nlimit = 1\n[[models]]\nmodel = "baseline:no"\n[[suites]]\nsuite = "mini"'
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    out = output(consilience, "study", "run", "s.toml", "--dry-run")
    assert "1 run: 1 waiting; 0 answers" in out
    assert not (tmp_path / "runs").exists()
    status, out, err = consilience("study", "run", "s.toml")
    assert status == 2
    assert "1 run: 1 failed; 0 answers" in out
    assert "asking 1 run: 135 queries\nbaseline-no/mini failed: " in err


def test_a_run_whose_server_failed_is_not_complete(tmp_path, monkeypatch):
    """One question of six has no reply; the same command asks it when the server is well."""
    monkeypatch.setattr(running, "LocalWorkers", study_workers.HereWorkers)
    monkeypatch.setattr(client, "WAITS", (0.001, 0.002))
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question": f"What is {at}?", "answer": "red", "options": ["red", "blue"]}
        for at in range(6)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    bad, arrived, others = ["What is 3?"], threading.Event(), threading.Semaphore(0)
    counted = client.Client._count

    def count(self, **what):
        counted(self, **what)
        if what.get("answered"):
            others.release()

    monkeypatch.setattr(client.Client, "_count", count)

    def answer(path, body, headers):
        if not path.endswith("chat/completions"):
            return 404, {}, {}
        if any(text in body["messages"][-1]["content"] for text in bad):
            arrived.set()
            others.acquire(timeout=10)  # another is answered meanwhile
            return 500, {}, {}
        arrived.wait(timeout=10)
        return {"choices": [{"message": {"content": "red"}, "finish_reason": "stop"}]}

    with replay(answer) as server:
        (tmp_path / "s.toml").write_text(
            f"options = {{ base_url = '{server.url}', generate = true, concurrency = 6 }}\n"
            "suites = [{ suite = 'q.jsonl' }]\nmodels = [{ model = 'openai:m' }]\n"
        )
        state = run_study(StudyRunOptions(tmp_path / "s.toml"))
        assert [run.state for run in state.runs] == ["failed"]
        assert "did not reply to some queries" in state.runs[0].message
        bad.clear()
        assert [run.state for run in run_study(StudyRunOptions(tmp_path / "s.toml")).runs] == [
            "complete"
        ]


def test_options_of_another_kind_of_suite_are_refused_before_asking(consilience, tmp_path):
    text = '[[models]]\nmodel = "baseline:random"\n[[suites]]\nsuite = "mini"\nshots = 2'
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    assert "--shots with a suite of facts" in refusal(consilience, "study", "run", "s.toml")
    assert not (tmp_path / "runs").exists()


def test_status_needs_no_model_library(studied):
    script = f"""
import sys
from pathlib import Path
from consilience.options.runs import StudyStatusOptions
from consilience.study.file import study_status
study_status(StudyStatusOptions(Path({str(studied[0])!r}))).table()
assert not {{"torch", "transformers", "scipy"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
