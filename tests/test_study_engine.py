"""The runs of a study are those of ``probe``, whoever asks them and in whatever order."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from consilience.models.products import one_thread
from consilience.options.probe import ProbeOptions
from consilience.options.runs import StudyRunOptions
from consilience.probing.probe import probe
from consilience.runs.folder import record_of
from consilience.study import running
from consilience.study.file import read_study, state_of
from consilience.study.running import plan_study, run_study
from pair_builders import SAME, write_pairs
from study_workers import HereWorkers

STUDY = """
folder = "out"
options = {{ device = "cpu" }}
models = [
    {{ name = "masked", model = "{bert}" }}, {{ name = "causal", model = "{gpt2}" }},
    {{ name = "pairs", model = "tuned" }},
]
suites = [
    {{ suite = "mini", groups = "capital,sport" }}, {{ suite = "mrpc", data = "pairs.jsonl" }},
    {{ name = "questions", suite = "quiz.csv", vary = ["order=rotations"] }},
]
factors = {{ limit = [2, 1] }}
skip = [
    {{ model = "masked", suite = ["mrpc", "questions"] }}, {{ model = "causal", suite = "mrpc" }},
    {{ model = "pairs", suite = ["mini", "questions"] }}, {{ model = ["causal", "pairs"], limit = 1 }},
]
"""
"""Facts twice, facts and questions of one model, and sentence pairs."""

QUIZ = """question,options,answer,group
What do bees make?,milk;silk;honey,honey,nature
Who wrote Hamlet?,Shakespeare;Dickens,Shakespeare,culture
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model_folder, classifier):
    """The working folder of the study."""
    folder = tmp_path_factory.mktemp("engine")
    shutil.copytree(classifier("bert", SAME), folder / "tuned" / "mrpc")
    text = STUDY.format(bert=model_folder("bert"), gpt2=model_folder("gpt2"))
    (folder / "all.toml").write_text(text, encoding="utf-8")
    (folder / "quiz.csv").write_text(QUIZ, encoding="utf-8")
    write_pairs(folder / "pairs.jsonl")
    return folder


@pytest.fixture(scope="module")
def studied(folder):
    """The state of the study."""

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(running, "LocalWorkers", lambda count, logs: HereWorkers())
        yield run_study(StudyRunOptions(folder / "all.toml", workers=2))


def files_of(run):
    """The content of the files of a run, and its records without times and places."""
    others, files, records = ("started", "finished", "command", "options", "products"), {}, {}
    for path in filter(Path.is_file, sorted(run.rglob("*"))):
        name = path.relative_to(run).as_posix()
        if path.name == "run.json":
            records[name] = {k: v for k, v in record_of(path.parent).items() if k not in others}
            records[name]["warnings"] = set(records[name]["warnings"])
        else:
            files[name] = path.read_bytes()
    return files, records


def test_every_run_is_that_of_probe_to_the_last_bit(studied, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert [one.state for one in studied.runs] == ["complete"] * 5
    for one in studied.runs:
        options = replace(one.run.options, out=folder / "probed" / one.run.name)
        with one_thread():  # as each of two workers has on two processors
            probe(options)
        ours, probed = files_of(one.run.folder), files_of(options.out)
        assert ours[0].keys() == probed[0].keys()
        assert [name for name in ours[0] if ours[0][name] != probed[0][name]] == []
        assert ours[1] == probed[1]
        assert ours[1], "a run without a record"


def test_an_option_that_was_changed_after_the_run_is_named(studied, folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = (folder / "all.toml").read_text(encoding="utf-8").replace("capital,sport", "sport")
    (folder / "changed.toml").write_text(text, encoding="utf-8")
    state = state_of(read_study(folder / "changed.toml")).runs[0]
    assert state.state == "failed"
    assert state.message == (
        'out/masked/mini/limit=2: groups was ["capital", "sport"] when this run was asked, and is '
        '["sport"] in the study file. Restore it, or set another `folder` in the study file, or '
        "remove this folder to ask again."
    )


def test_a_plan_has_the_queries_of_all_runs(studied, folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = STUDY.format(bert="nowhere", gpt2="nowhere").replace('"out"', '"new"')
    (folder / "new.toml").write_text(text, encoding="utf-8")
    whole = plan_study(StudyRunOptions(folder / "new.toml"))
    answers = {one.run.name: one.answers for one in studied.runs}
    assert {one.run.name: one.queries for one in whole.runs} == answers
    assert not (folder / "new").exists()


def test_a_run_is_counted_by_the_worker_that_gets_its_files(tmp_path):
    """A machine without its accelerator cannot load the model to count it."""
    options = ProbeOptions(model="baseline:oracle", suite="mini", groups=("capital",), limit=1)
    options = replace(options, out=tmp_path / "run")
    probe(options)
    files = running._files(options.out)
    key = running.WorkerKey(options.model, options.loading, False, str(Path.cwd()), 0)
    kept = {name: content for name, content in files.items() if name != "metrics.csv"}
    task = running.StudyTask("oracle/mini", options, files=kept)
    written = running.StudyWorker(key)(task, lambda steps: None)
    assert written["metrics.csv"] == files["metrics.csv"]
    assert json.loads(written["run.json"])["options"]["out"] == str(options.out)


def test_a_study_on_ray_is_not_counted_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ray, here = HereWorkers(), HereWorkers()
    monkeypatch.setattr(running, "RayWorkers", lambda *given: ray)
    monkeypatch.setattr(running, "LocalWorkers", lambda *given: here)
    shared = (
        'folder = "out"\noptions = { limit = 1, groups = "capital" }\nsuites = [{ suite = "mini" }]'
    )
    Path("s.toml").write_text(f'{shared}\nmodels = [{{ name = "one", model = "baseline:oracle" }}]')
    options = StudyRunOptions(Path("s.toml"), engine="ray")
    (one,) = run_study(options).runs
    assert (one.state, here.log) == ("complete", [])
