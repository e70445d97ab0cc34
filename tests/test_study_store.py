"""Finished runs of a study at an address of fsspec: copied there, and fetched elsewhere."""

import shutil
from pathlib import Path

import fsspec
import pytest

from checks import refused
from consilience.options.runs import StudyRunOptions, StudyStatusOptions
from consilience.study import running
from consilience.study.file import study_status
from consilience.study.running import run_study
from study_workers import HereWorkers

STUDY = """
folder = "{address}"
options = {{ limit = 1, groups = "capital,sport" }}
models = [
    {{ name = "oracle", model = "baseline:oracle" }}, {{ name = "wrong", model = "baseline:wrong" }},
]
suites = [{{ suite = "mini" }}]
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """``run(address)``: a study with this folder, in the state after ``run_study``; its workers."""
    monkeypatch.chdir(tmp_path)

    def run(address, **options):
        pool = HereWorkers()
        monkeypatch.setattr(running, "LocalWorkers", lambda count, logs: pool)
        Path("s.toml").write_text(STUDY.format(address=address), encoding="utf-8")
        return run_study(StudyRunOptions(Path("s.toml"), **options)), pool

    return run


@pytest.mark.parametrize("scheme", ["memory://bucket", "file://{}/bucket"])
def test_finished_runs_are_copied_and_fetched_elsewhere(scheme, run, tmp_path):
    address = scheme.format(tmp_path)
    state, pool = run(address)
    assert [one.state for one in state.runs] == ["complete", "failed"]
    assert [key.model for key in pool.log] == ["baseline:oracle", "baseline:wrong"]
    files, root = fsspec.core.url_to_fs(address)
    names = sorted(path.removeprefix(root) for path in files.find(root))
    assert names == [
        "/oracle/mini/answers/capital.parquet", "/oracle/mini/answers/sport.parquet",
        "/oracle/mini/metrics.csv", "/oracle/mini/run.json",
    ]  # fmt: skip
    paths = [path for path in Path("runs/s/oracle").rglob("*.*") if path.is_file()]
    here = {path: path.read_bytes() for path in paths}
    shutil.rmtree("runs")
    assert study_status(StudyStatusOptions(Path("s.toml"))).runs[0].state == "complete"
    assert {path: path.read_bytes() for path in here} == here
    shutil.rmtree("runs")
    state, pool = run(address)
    assert [key.model for key in pool.log] == ["baseline:wrong"], "what is there is not asked again"
    assert [one.state for one in state.runs] == ["complete", "failed"]
    files.rm(root, recursive=True)


def test_a_run_without_its_record_at_the_address_is_copied_again(run):
    run("memory://part")
    files = fsspec.filesystem("memory")
    files.rm("/part/oracle/mini/run.json")
    shutil.rmtree("runs/s/oracle/mini/answers")
    state, _ = run("memory://part")
    assert state.runs[0].state == "complete"
    assert files.exists("/part/oracle/mini/run.json")
    files.rm("/part", recursive=True)


def test_a_store_that_cannot_be_used_is_named_before_anything_is_asked(run):
    fault = "ValueError: Protocol not known: nowhere; expected"
    said = refused("", run, "nowhere://bucket/x")
    assert said.startswith(f"s.toml: folder = 'nowhere://bucket/x': {fault}")
    assert not Path("runs").exists()


def test_shards_need_a_shared_folder(run):
    refused("expected a folder that all parts share", run, "memory://bucket", shard="1/2")
