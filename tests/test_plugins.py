"""Another package adds a kind of model, a suite and a metric, by entry points alone."""

import json
import os
import shutil
import subprocess
import sys
import tomllib

import pytest

from conftest import ROOT
from replay_server import replay

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


IN_TURN = """
import json, sys
from conftest import run_command
print(json.dumps([run_command(*each) for each in json.loads(sys.argv[1])]))
"""


def run(site, folder, *commands):
    paths = os.pathsep.join([str(site), str(ROOT / "src"), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps(commands)], cwd=folder, check=True,
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_package_adds_a_model_a_suite_and_a_metric(installed, tmp_path):
    probe = ["probe", "--suite", "colors", "--limit", "3", "--groups", "capital", "--json"]
    (status, out, err), (_, scored, _), nobody, broken = run(
        installed,
        tmp_path,
        [*probe, "--model", "loud:first", "--out", "run"],
        ["score", "run", "--by", "metric"],
        [*probe, "--model", "loud:nobody", "--out", "other"],
        [*probe, "--model", "broken:x", "--out", "other"],
    )
    assert status == 0, err
    document = json.loads(out)
    assert document["run"]["settings"]["model"] == {"model": "loud:first"}
    rows = [row for row in document["metrics"] if row["group"] == "capital"]
    values = {row["metric"]: row["value"] for row in rows if row["kind"] == "whole"}
    assert values["twice"] == values["consistency"] == 1.0
    assert "Twice" in scored
    assert (nobody[0], "no model 'nobody'" in nobody[2]) == (2, True)
    message = "the plugin 'broken' (loud_plugin:nothing) cannot be loaded"
    assert (broken[0], message in broken[2]) == (2, True)


def test_the_example_of_a_decision_model(installed, tmp_path):
    """The first option gets 0.7, so all patterns agree."""
    example = ROOT / "examples" / "decision-model"
    shutil.copytree(installed, site := tmp_path / "site", symlinks=True)
    shutil.copy(example / "decision_model.py", site)
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    named = project["entry-points"]["consilience.models"]
    with (site / "loud_plugin-1.0.dist-info" / "entry_points.txt").open("a") as file:
        file.write("[consilience.models]\n" + "".join(f"{k} = {v}\n" for k, v in named.items()))

    def decide(path, body, headers):
        first, *others = body["questions"]["q"]["criteria"]
        shares = {first: 0.7} | dict.fromkeys(others, 0.3 / len(others))
        return {"answers": {"q": {"type": "choice", "probabilities": shares}}}

    with replay(decide) as server:
        probe = ["probe", "--suite", "mini", "--groups", "capital", "--limit", "2", "--out", "run"]
        ((status, out, err),) = run(
            site, tmp_path, [*probe, "--model", f"decision:{server.url}", "--json"]
        )
    assert status == 0, err
    assert server.received[0][0] == "/v1/systemone"
    rows = [row for row in json.loads(out)["metrics"] if row["group"] == "capital"]
    values = {row["metric"]: row["value"] for row in rows if row["kind"] == "whole"}
    assert values["consistency"] == 1
