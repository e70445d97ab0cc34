"""The tools beside the package run: simulations, frozen results, counting."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


def said(*arguments, status=0):
    call = [sys.executable, str(BENCH / arguments[0]), *map(str, arguments[1:])]
    found = subprocess.run(call, capture_output=True, text=True, check=False)
    assert found.returncode == status, found.stderr
    return found.stdout


def test_a_table_of_the_simulations_has_its_rows():
    lines = said("simulations.py", "different", "1").splitlines()
    assert lines[0] == "case,closed form,sign flips,simulations"
    assert len([line for line in lines if "kappa" in line]) == 4


def test_a_table_keeps_the_columns_that_were_recorded(tmp_path):
    (tmp_path / "statistics").mkdir()
    table = tmp_path / "statistics" / "detectable.csv"
    table.write_text("case,bootstrap,closed form\nmean over 6 relations,58,1\n")
    said("simulations.py", "detectable", "1", tmp_path)
    first, second, *others = table.read_text().splitlines()
    assert first == "case,known error,closed form,simulations,bootstrap"
    assert second.startswith("mean over 6 relations,") and second.endswith(",1,58")
    assert len(others) == 4


@pytest.mark.parametrize(("kind", "command"), [("facts", "compare"), ("questions", "score")])
def test_counting_says_seconds_and_memory(kind, command):
    assert said("counting.py", kind, command, "0.001").startswith(f"{command} ")


def test_frozen_rows_of_another_form_are_compared_by_what_they_are_of(tmp_path):
    old = {"metric": "accuracy", "suite": "s", "group": "MACRO", "subset": "all", "value": 0.5,
           "low": 0.4, "high": 0.6}  # fmt: skip
    new = {"metric": "accuracy", "over": "mean", "group": "", "kind": "whole", "level": ""}
    for folder, row in (("old", old), ("new", new | {"value": 0.5, "low": 0.41, "high": 0.6})):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").write_text(json.dumps({"metrics": [row]}))
    lines = said("freeze.py", "compare", tmp_path / "old", tmp_path / "new", status=1)
    assert lines == (
        "bounds, low of accuracy, mean: 1 of 1 within 5 % of the width, at most 0.05 widths; 0 with "
        "an interval before or after only\n"
    )
