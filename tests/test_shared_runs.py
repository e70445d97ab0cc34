"""Several processes in the folder of one run, and the options in its record."""

import os
import subprocess
import sys
import time
from pathlib import Path

import polars as pl

import consilience as cs
from consilience.core.schemas import ANSWERS_SCHEMA, METRICS_SCHEMA
from consilience.options.probe import ProbeOptions
from consilience.probing.probe import probe
from consilience.runs.folder import RunFolder, record_of

GROUPS = ["a", "b", *(f"there {at}" for at in range(5)), *(f"here {at}" for at in range(5, 999))]
SETTINGS = {"suite": "mini", "model": {"model": "baseline:random"}, "groups": GROUPS}
NO_METRICS = pl.DataFrame(schema=METRICS_SCHEMA)


def answers(group):
    return pl.DataFrame({"group": [group]}, schema_overrides=ANSWERS_SCHEMA).select(
        pl.col(name) if name == "group" else pl.lit(None, dtype).alias(name)
        for name, dtype in ANSWERS_SCHEMA.items()
    )


def test_what_two_processes_record_is_kept(tmp_path):
    one, two = (RunFolder(tmp_path, SETTINGS) for _ in range(2))
    one.note(["first"])
    two.note(["second"])
    one.write_answers("a", answers("a"))
    two.write_answers("b", answers("b"))
    two.describe("words", {"b": ["x"]})
    one.finish(NO_METRICS)
    two.note(["third"])
    record = record_of(tmp_path)
    assert record["warnings"] == ["first", "second", "third"]
    assert (sorted(record["answers"]), record["words"]) == (["a", "b"], {"b": ["x"]})
    assert record["finished"]
    assert one.answers("b", 1) is not None
    assert two.answers("a", 1) is not None
    assert RunFolder(tmp_path, SETTINGS).record["finished"] is None


CHILD = """
import sys
from consilience.runs.folder import RunFolder
from test_shared_runs import SETTINGS, write
run = RunFolder(sys.argv[1], SETTINGS)
for at in range(5):
    write(run, f"there {at}")
"""


def write(run, name):
    run.note([name])
    run.write_answers(name, answers(name))


def test_processes_at_once_lose_nothing(tmp_path):
    """This one writes from the first note of the other to its end."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command, environment = [sys.executable, "-c", CHILD], os.environ | {"PYTHONPATH": path}
    names = [f"there {at}" for at in range(5)]
    with subprocess.Popen([*command, tmp_path], env=environment) as child:
        while not (tmp_path / "run.json").exists() and child.poll() is None:
            time.sleep(0.001)
        run = RunFolder(tmp_path, SETTINGS)
        while child.poll() is None or len(names) < 10:
            names.append(f"here {len(names)}")
            write(run, names[-1])
    record = record_of(tmp_path)
    noted = [note for note in record["warnings"] if "here" in note]
    assert child.returncode == 0
    assert sorted(noted) == sorted(record["answers"]) == sorted(names)
    assert all(run.answers(name, 1) is not None for name in names)


def test_the_options_of_a_run_are_recorded(tmp_path):
    chosen = {"model": "baseline:majority", "suite": "mini", "groups": ("capital",), "limit": 2}
    options = ProbeOptions(**chosen, out=tmp_path)
    record = probe(options).record
    assert record["options"] == {
        "model": "baseline:majority", "groups": ["capital"], "limit": 2, "out": str(tmp_path)
    }  # fmt: skip


def test_a_python_value_is_not_recorded(tmp_path):
    def always(prompts):
        return ["Paris"] * len(prompts)

    result = cs.evaluate("mini", always, groups=["capital"], limit=1, out=tmp_path / "run")
    assert result.run.record["options"]["model"] is None
