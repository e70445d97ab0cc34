"""Runs in experiment trackers. What they are given is tested without them.

The tests of the real trackers need their packages: `make test-trackers` installs them.
"""

import json
import math

import polars as pl
import pytest

import consilience as cs
from checks import refused
from consilience import trackers

QUESTIONS = """\
item,question,question_2,answer,options
sea,Which animal swims?,What animal swims?,whale,whale;cat
land,Which animal meows?,What animal meows?,cat,whale;cat
"""


def first_label(prompts):
    """Chooses the first option that is shown: in each order another one."""
    return ["A"] * len(prompts)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "animals.csv").write_text(QUESTIONS)
    return cs.evaluate(folder / "animals.csv", first_label, out=folder / "run")


def test_trackers_get_headline_numbers_with_bounds_and_tables(result):
    """Of the 6 pairs of an item 2 agree; only the 2 items in 2 orders differ, so no interval."""
    of_run = trackers.tracked(result)
    numbers = {name.removeprefix("animals/"): one for name, one in of_run.metrics.items()}
    assert numbers["consistency"] == pytest.approx(1 / 3)
    assert (numbers["consistency/order"], numbers["consistency/paraphrase"]) == (0, 1)
    assert 0 <= numbers["accuracy/low"] < numbers["accuracy"] == 0.5 < numbers["accuracy/high"] <= 1
    assert not any(map(math.isnan, numbers.values()))
    assert of_run.parameters["model"].endswith("first_label")
    assert (of_run.parameters["suite"], of_run.parameters["protocol"]) == ("animals", "strict")
    assert of_run.tables["metrics"] is result.metrics
    columns = ("item", "same", "pairs", "first_answer", "second_answer", "gold")
    rows = of_run.tables["disagreements"].select(columns).rows()
    shown = (2, 6, "whale", "cat")
    assert rows == [("land", *shown, "cat"), ("sea", *shown, "whale")]
    assert trackers.tracked(result.run.path).metrics == of_run.metrics, "a folder as its result"


@pytest.mark.parametrize("name", ["mlflow", "trackio", "wandb"])
def test_a_missing_tracker_is_named(result, name, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, name, None)
    refused(rf"pip install '{name}>=", trackers.track, result, name)


def test_mlflow_has_a_run_of_its_own_or_steps_of_the_active_one(result, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: make test-trackers")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    trackers.track(result, "mlflow")
    assert mlflow.active_run() is None
    (run,) = mlflow.search_runs(experiment_names=["consilience"], output_format="list")
    assert run.data.metrics == pytest.approx(trackers.tracked(result).metrics)
    assert run.data.params["consilience.suite"] == "animals"
    text = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/consilience/disagreements.csv")
    assert pl.read_csv(text.encode())["item"].to_list() == ["land", "sea"]
    mlflow.set_experiment("training")
    with mlflow.start_run() as run:
        for step in (10, 20):
            trackers.track(result, "mlflow", step=step)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "animals/consistency")
    assert [(one.step, one.value) for one in history] == [(10, 1 / 3), (20, 1 / 3)]


def test_trackio_has_a_run_of_its_own_or_steps_of_the_active_one(result, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio", reason="trackio is not installed: make test-trackers")
    trackers.track(result, "trackio")
    (name,) = trackio.SQLiteStorage.get_runs("consilience")
    assert name == "first_label on animals"
    (row,) = trackio.SQLiteStorage.get_logs("consilience", name)
    assert row["animals/consistency"] == pytest.approx(1 / 3)
    table = row["consilience/disagreements"]["_value"]
    assert [line["item"] for line in table] == ["land", "sea"]
    trackio.init("training", name="mine", embed=False)
    trackers.track(result, "trackio", step=10)
    trackio.log({"loss": 1.0}, step=11)
    trackio.finish()
    rows = trackio.SQLiteStorage.get_logs("training", "mine")
    assert [row["step"] for row in rows] == [10, 11]
    assert rows[0]["animals/consistency"] == pytest.approx(1 / 3)


def test_wandb_offline_has_metrics_and_tables(result, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: make test-trackers")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    with wandb.init(project="p", name="training") as run:
        trackers.track(result, "wandb")
        assert run.summary["animals/consistency"] == pytest.approx(1 / 3)
        assert run.config["consilience"]["suite"] == "animals"
    tables = "wandb/offline-run-*/files/media/table/consilience"
    (file,) = tmp_path.glob(f"{tables}/disagreements_*.json")
    assert [row[1] for row in json.loads(file.read_text())["data"]] == ["land", "sea"]
    trackers.track(result, "wandb")
    assert wandb.run is None
    assert len([*tmp_path.glob("wandb/offline-run-*")]) == 2
