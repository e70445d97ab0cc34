"""A run as a value: read once, with a label of its own."""

import json

import pytest

from checks import output, refused
from conftest import cases
from consilience.kinds import Facts, SentencePairs, kind_of_run
from consilience.kinds.counting import NOT_FINISHED, record_notes
from consilience.runs.run import SENTENCE_PAIRS, Run, open_runs

RECORD = {"started": "2026-01-31T12:00:00+00:00", "versions": {}, "warnings": [], "answers": {}}


def make(folder, **settings):
    folder.mkdir(parents=True)
    record = RECORD | {"settings": {"suite": "mini", **settings}}
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def test_a_run_has_its_settings_and_one_seed(tmp_path):
    run = Run.open(make(tmp_path / "a", protocol="strict"))
    assert (run.label, run.protocol, kind_of_run(run)) == ("a", "strict", Facts)
    assert (run.settings["suite"], run.seeds, run.parts) == ("mini", (run,), ())


def test_the_seeds_of_a_run_are_runs_in_the_order_of_their_numbers(tmp_path):
    for seed in (10, 2):
        make(tmp_path / f"seed-{seed}", kind=SENTENCE_PAIRS, seed=seed)
    (tmp_path / "seed-3").mkdir()  # nothing was asked yet
    run = Run.open(tmp_path, "both")
    assert run.label == "both" and kind_of_run(run) is SentencePairs
    assert [each.label for each in run.seeds] == ["seed-2", "seed-10"]
    assert [each.settings["seed"] for each in run.seeds] == [2, 10]


def test_a_run_of_which_a_seed_was_never_asked_is_not_finished(tmp_path):
    record = RECORD | {"settings": {"kind": SENTENCE_PAIRS}, "finished": RECORD["started"]}
    for names, is_whole in ((["seed-1", "seed-2"], True), (["seed-1", "seed-2", "seed-3"], False)):
        for seed in ("seed-1", "seed-2"):
            make(folder := tmp_path / str(is_whole) / seed)
            (folder / "run.json").write_text(json.dumps(record | {"seeds": names}))
        run = Run.open(folder.parent)
        assert [bool(part.record["finished"]) for part in run.seeds] == [is_whole] * 2
        assert any(NOT_FINISHED in note for note in record_notes(run)) != is_whole


def test_a_table_made_elsewhere_has_no_settings_and_is_read_once(tmp_path):
    (tmp_path / "answers.csv").write_text("group,item\na,1\n")
    run = Run.open(tmp_path / "answers.csv")
    assert (run.label, run.protocol) == ("answers.csv", None)
    assert dict(run.record) == dict(run.settings) == {}
    first = run.answers
    (tmp_path / "answers.csv").unlink()
    assert run.answers is first and first.rows() == [("a", "1")]


def test_labels_are_given_or_as_much_of_the_path_as_is_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x/run", "y/run", "z"):
        make(tmp_path / name)
    specs = ["x/run", "y/run", "large=z"]
    assert [run.label for run in open_runs(specs)] == ["x/run", "y/run", "large"]
    assert [run.label for run in open_runs(["first=x/run", "y/run"])] == ["first", "run"]
    make(tmp_path / "a=b")  # a path that exists is a path
    assert [run.label for run in open_runs(["a=b"])] == ["a=b"]


@pytest.mark.parametrize(("specs", "message"), cases("runs_bad"))
def test_runs_that_cannot_be_told_apart_or_found_raise(specs, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y"):
        make(tmp_path / name)
    refused(message, open_runs, specs)


@pytest.mark.parametrize(("model", "task", "name"), cases("names_of_runs"))
def test_a_run_is_called_by_its_model(model, task, name, tmp_path):
    make(tmp_path / "run", model={"model": model}, task={"name": task})
    assert [run.label for run in open_runs([str(tmp_path / "run")])] == [name]


def test_runs_of_one_model_are_called_by_their_folders(tmp_path):
    one, two = (str(make(tmp_path / name, model={"model": "bert"})) for name in ("one", "two"))
    assert [run.label for run in open_runs([one, two])] == ["bert (one)", "bert (two)"]
    assert [run.label for run in open_runs([one, f"mine={two}"])] == ["bert", "mine"]
    other = str(make(tmp_path / "other", model={"model": "gpt2"}))
    assert [run.label for run in open_runs([one, other])] == ["bert", "gpt2"]


def test_seeds_of_facts_are_averaged_and_compared(consilience, tmp_path):
    """Two seeds of each of two models: the value is the mean of the runs, n that of one."""
    for name, seeds in (("one", (0, 1)), ("two", (2, 3))):
        for seed in seeds:
            probe = ("probe", "--model", "baseline:random", "--groups", "capital,sport")
            out = tmp_path / name / f"seed-{seed}"
            output(consilience, *probe, "--seed", seed, "--out", out)

    def values(*command):
        document = json.loads(output(consilience, *command, "--json"))
        rows = document["metrics"] if "metrics" in document else document["differences"]
        return {(row["metric"], row["group"] or row["over"]): row for row in rows
                if row["kind"] == "whole"}  # fmt: skip

    both = values("score", tmp_path / "one", "--suite", "mini")
    folders = [tmp_path / "one" / f"seed-{seed}" for seed in (0, 1)]
    alone = [values("score", folder, "--suite", "mini") for folder in folders]
    for key in (("consistency", "capital"), ("accuracy", "mean"), ("consistency", "all")):
        numbers = [row[key]["value"] for row in alone]
        assert both[key]["value"] == pytest.approx(sum(numbers) / 2)
        assert (both[key]["seeds"], alone[0][key]["seeds"]) == (2, 1)
        assert both[key]["n"] == alone[0][key]["n"]
    compared = values("compare", tmp_path / "one", tmp_path / "two")
    row = compared["consistency", "capital"]
    assert row["first_value"] == pytest.approx(both["consistency", "capital"]["value"])
    assert (row["seeds"], row["test"]) == (2, "sign flips of subjects")
