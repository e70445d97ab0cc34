"""Another package adds a kind of model, a suite and a metric, by entry points alone."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT

PLUGIN = '''
from pathlib import Path

import numpy as np

from consilience.core.errors import ConsilienceError
from consilience.types import Scores


class Loud:
    """Takes the first candidate, or the last."""

    def __init__(self, name):
        if name not in ("first", "last"):
            raise ConsilienceError(f"no model '{name}'", expected="first or last")
        self.identity, self.notes, self.place = {"model": f"loud:{name}"}, [], -(name == "last")

    def score(self, queries, candidates, *, every=True):
        values = np.full((len(queries), len(candidates.words)), -9.0)
        values[:, self.place] = 0.0
        yield Scores(np.arange(len(queries)), candidates.words, values)


def folder():
    return Path(__file__).parent / "colors"
'''

METRICS = """
from consilience.metrics import METRICS, metric

consistency = METRICS["consistency"]


@metric(consistency.view, label="Twice", meaning="consistency again", level="headline")
def twice(grid):
    return consistency.count(grid)
"""

ENTRY_POINTS = """
[consilience.models]
loud = loud_plugin:Loud
broken = loud_plugin:nothing
[consilience.suites]
colors = loud_plugin:folder
[consilience.metrics]
more = loud_metrics
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package and the metadata of its distribution, and a suite of facts."""
    from consilience.suites import suite_folder

    site = tmp_path_factory.mktemp("site")
    (site / "loud_plugin.py").write_text(PLUGIN)
    (site / "loud_metrics.py").write_text(METRICS)
    metadata = site / "loud_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: loud-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    mini = suite_folder("mini", site)
    (site / "colors").symlink_to(mini, target_is_directory=True)
    return site


def run(site, folder, *arguments):
    paths = os.pathsep.join([str(site), str(ROOT / "src")])
    command = [sys.executable, "-m", "consilience", *arguments]
    options = {"cwd": folder, "env": os.environ | {"PYTHONPATH": paths}}
    return subprocess.run(command, **options, capture_output=True, text=True, check=False)


def test_a_package_adds_a_model_a_suite_and_a_metric(installed, tmp_path):
    probe = ["probe", "--suite", "colors", "--limit", "3", "--groups", "capital", "--json"]
    done = run(installed, tmp_path, *probe, "--model", "loud:first", "--out", "run")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["settings"]["model"] == {"model": "loud:first"}
    rows = [row for row in document["metrics"] if row["group"] == "capital"]
    values = {row["metric"]: row["value"] for row in rows if row["subset"] == "all"}
    assert values["twice"] == values["consistency"] == 1.0
    assert "Twice" in run(installed, tmp_path, "score", "run", "--by", "metric").stdout
    done = run(installed, tmp_path, *probe, "--model", "loud:nobody", "--out", "other")
    assert (done.returncode, "no model 'nobody'" in done.stderr) == (2, True)
    done = run(installed, tmp_path, *probe, "--model", "broken:x", "--out", "other")
    assert "the plugin 'broken' (loud_plugin:nothing) cannot be loaded" in done.stderr
    assert done.returncode == 2
