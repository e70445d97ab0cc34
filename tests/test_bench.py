"""The tools beside the package run: simulations, counting."""

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
