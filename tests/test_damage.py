"""A run whose files are cut: the same numbers or one message, never others."""

import json
import shutil

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import run_command

QUESTIONS = [
    {
        "group": group,
        "question": f"{group} {at}?",
        "options": ["x", "y", "z"],
        "answer": "xyz"[at % 3],
    }
    for group in "ab"
    for at in range(4)
]
PROBE = ("probe", "-m", "baseline:random", "--vary", "order=rotations")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A file of questions and a finished run of them."""
    folder = tmp_path_factory.mktemp("damage")
    (folder / "q.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    assert probed(folder, "run") == (0, "")
    return folder


def probed(folder, out):
    """The exit status of the command of the run, and its error if it has one."""
    status, _, err = run_command(*PROBE, "-s", folder / "q.jsonl", "-o", folder / out)
    return status, "" if status == 0 else err


def numbers(folder):
    return (folder / "metrics.csv").read_bytes()


def answers(folder):
    files = sorted((folder / "answers").glob("*.parquet"))
    return [pl.read_parquet(file).to_dicts() for file in files]


FILES = ("run.json", "metrics.csv", "queries.parquet", "answers/0.parquet", "answers/1.parquet")


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True))
def test_a_file_that_was_cut_is_named_or_made_again(place, name, share):
    """Commands that read the run end well or with one message; its own command mends it."""
    damaged = place / "damaged"
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(place / "run", damaged)
    content = (damaged / name).read_bytes()
    (damaged / name).write_bytes(content[: int(share * len(content))])
    for command in (("score", damaged), ("gate", damaged, "--rule", "accuracy >= 1 %")):
        status, out, err = run_command(*command)
        assert status in (0, 2, 3), (command, out, err)
        assert "Traceback" not in out + err
        assert status != 2 or err.count("error: ") == 1
    status, err = probed(place, "damaged")
    assert status in (0, 2), err
    if status == 0:
        assert numbers(damaged) == numbers(place / "run")
        assert answers(damaged) == answers(place / "run")
    else:
        assert err.count("error: ") == 1
