"""Finished runs of a study at an address of fsspec: copied there, and fetched elsewhere."""

import errno
import shutil
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from checks import refused
from consilience.files.write import write_whole
from consilience.options.runs import StudyRunOptions, StudyStatusOptions
from consilience.study import file, running
from consilience.study.file import copy_run, read_study, study_status
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


def test_a_changed_option_names_the_copy_that_would_be_fetched_again(run):
    run("memory://changed")
    text = Path("s.toml").read_text("utf-8")
    Path("s.toml").write_text(text.replace("limit = 1", "limit = 2"), "utf-8")
    options = StudyRunOptions(Path("s.toml"))
    refused("runs/s/oracle/mini, and in memory://changed: limit was 1", run_study, options)
    fsspec.filesystem("memory").rm("/changed", recursive=True)


def test_a_store_that_cannot_be_used_is_named_before_anything_is_asked(run):
    fault = "ValueError: Protocol not known: nowhere; expected"
    said = refused("", run, "nowhere://bucket/x")
    assert said.startswith(f"s.toml: folder = 'nowhere://bucket/x': {fault}")
    assert not Path("runs").exists()


def oracle():
    """The state of the run of the oracle, as ``study status`` tells it."""
    return study_status(StudyStatusOptions(Path("s.toml"))).runs[0].state


def test_a_finished_study_does_not_need_its_address(run):
    run("memory://gone")
    text = STUDY.format(address="nowhere://gone").replace("baseline:wrong", "baseline:oracle")
    shutil.copytree("runs/s/oracle", "runs/s/wrong")
    Path("s.toml").write_text(text, "utf-8")
    assert oracle() == "complete"
    shutil.rmtree("runs/s/oracle")
    refused("Protocol not known: nowhere", oracle)


@pytest.mark.parametrize("scheme", ["memory://disk", "file://{}/disk"])
def test_a_fetched_file_is_whole_or_not_there(scheme, run, tmp_path, monkeypatch):
    """A file gets its name when it is on the disk, and the record comes last."""
    run(scheme.format(tmp_path))
    for whole in range(4):
        shutil.rmtree("runs")
        left = [None, None] * whole  # a file, and its folder

        def fsync(descriptor, left=left):
            if not left:
                raise OSError(errno.ENOSPC, "No space left on device")
            left.pop()

        with monkeypatch.context() as patch:
            patch.setattr("consilience.files.write.os.fsync", fsync)
            assert "expected an address" not in refused("the disk is full", oracle)
        names = [path.name for path in Path("runs").rglob("*") if path.is_file()]
        assert len(names) == whole
        assert "run.json" not in names
    assert oracle() == "complete"


SEEDS = [f"seed-{seed}/{name}" for name in ("answers.parquet", "run.json") for seed in (0, 1)]


@pytest.fixture
def seeds(run, request):
    """A study whose first run is of two seeds, finished here; its address, made anew."""
    text = STUDY.format(address="memory://seeds").replace("baseline:oracle", "tuned")
    Path("s.toml").write_text(text, "utf-8")
    write_seeds("old")
    files = fsspec.filesystem("memory")
    request.addfinalizer(lambda: files.rm("/seeds", recursive=True))
    study = read_study("s.toml")
    copy_run(study, study.runs[0])
    return study, files


def write_seeds(text):
    for name in SEEDS:
        path = Path("runs/s/oracle/mini", name)
        Path("tuned", path.parent.name).mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"finished": "{text}"}}', "utf-8")


def here():
    root = Path("runs/s/oracle/mini")
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in files}


def broken_after(call, count):
    """``call``, which raises after some calls."""
    left = [None] * count

    def broken(*arguments):
        if not left:
            raise OSError("the disk is gone")
        left.pop()
        return call(*arguments)

    return broken


@pytest.mark.parametrize("count", range(4))
def test_a_fetch_that_ended_early_is_resumed(count, seeds, monkeypatch):
    """Also between the records of two seeds."""
    (study, _), whole = seeds, here()
    shutil.rmtree("runs")
    with monkeypatch.context() as patch:
        patch.setattr(file, "write_whole", broken_after(write_whole, count))
        refused("the disk is gone", copy_run, study, study.runs[0], is_fetched=True)
    assert here().keys() == {*SEEDS[:count]}
    copy_run(study, study.runs[0], is_fetched=True)
    assert here() == whole


@pytest.mark.parametrize("count", range(4))
def test_no_older_record_stands_beside_new_answers(count, seeds, monkeypatch):
    (study, files), root = seeds, "/seeds/oracle/mini"
    write_seeds("new")
    broken = broken_after(MemoryFileSystem.pipe_file, count)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "pipe_file", broken)
        refused("the disk is gone", copy_run, study, study.runs[0])
    there = [path for path in files.find(root) if path.endswith("run.json")]
    assert all(b"new" in files.cat_file(path) for path in there)
    assert len(there) == max(0, count - 2)
    copy_run(study, study.runs[0])
    assert all(b"new" in files.cat_file(f"{root}/{name}") for name in SEEDS)


@pytest.mark.parametrize("path", ["/seeds/oracle/other/x", "/seeds/oracle/mini/../x"])
def test_a_listed_file_outside_of_the_run_is_refused(path, seeds, monkeypatch):
    study, files = seeds
    shutil.rmtree("runs")
    listed = [path, *files.find("/seeds/oracle/mini")]
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "find", lambda self, root: listed)
        refused("ValueError: ", copy_run, study, study.runs[0], is_fetched=True)
    assert not list(Path("runs").rglob("x"))


def test_a_run_that_cannot_be_read_here_is_no_fault_of_the_address(seeds, monkeypatch):
    study, _ = seeds
    monkeypatch.setattr(Path, "read_bytes", broken_after(Path.read_bytes, 0))
    with pytest.raises(OSError, match="the disk is gone"):
        copy_run(study, study.runs[0])
