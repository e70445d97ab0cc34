"""Several processes in the folder of one run, and the options in its record."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl

import consilience as cs
from checks import refused
from consilience.core.schemas import ANSWERS_SCHEMA, METRICS_SCHEMA
from consilience.kinds.probing import probe
from consilience.options.probe import ProbeOptions
from consilience.runs.folder import RunFolder, record_of
from consilience.runs.run import options_of_record, options_record

SETTINGS = {"suite": "mini", "model": {"model": "baseline:random"}}
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


def test_a_run_is_repeated_from_its_record(tmp_path):
    chosen = {"model": "baseline:majority", "suite": "mini", "groups": ("capital",), "limit": 2}
    options = ProbeOptions(**chosen, out=tmp_path)
    record = probe(options).record
    assert record["options"] == {
        "model": "baseline:majority", "groups": ["capital"], "limit": 2, "out": str(tmp_path)
    }  # fmt: skip
    assert options_of_record(record_of(tmp_path), str(tmp_path)) == options


def test_options_of_every_type_are_recorded():
    changed = {"seed": 3, "timeout": 1.5, "as_shipped": True, "columns": ("a=b",)}
    options = replace(ProbeOptions(), **changed, price=(1.0, 2.0))
    assert options_of_record({"options": options_record(options, {})}, "run") == options
    assert options_record(ProbeOptions(), {}) == {}


def test_python_values_cannot_be_repeated(tmp_path):
    def always(prompts):
        return ["Paris"] * len(prompts)

    result = cs.evaluate("mini", always, groups=["capital"], limit=1, out=tmp_path / "run")
    assert result.run.record["options"]["model"] is None
    refused("the model of this run was a Python value", options_of_record, result.run.record, "run")
    refused("does not have the options", options_of_record, {}, "run")
    refused("unknown option 'nosuch'", options_of_record, {"options": {"nosuch": 1}}, "run")


def test_a_file_of_questions_is_recorded_by_its_path(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text("stem,a,b,answer\nCapital of France?,Paris,Rome,Paris\n")
    columns = {"question": "stem", "options": "a+b"}
    result = cs.evaluate(str(file), "baseline:random", columns=columns, out=tmp_path / "run")
    options = options_of_record(result.run.record, "run")
    assert options.suite == str(file)
    assert probe(options).metrics.equals(result.metrics)
