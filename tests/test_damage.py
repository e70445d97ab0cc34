"""A run whose files are cut, and one that is killed: the same numbers or one message, never others."""

import json
import os
import shutil
import signal
import subprocess
import sys

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


FILES = ("run.json", "metrics.csv", "answers/a.parquet", "prompts/b.parquet")


@settings(max_examples=60, deadline=None)
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


KILLED = """if True:
    import os, signal, sys
    from consilience import cli
    left = int(sys.argv.pop(1))

    def hook(event, arguments):
        global left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
        if writes or event in ("os.rename", "os.remove", "os.mkdir"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    cli.main()
"""


@pytest.mark.skipif(os.name != "posix", reason="kills as Linux and macOS do")
def test_a_run_that_was_killed_at_any_change_of_its_files_is_resumed(place):
    """Before its 1st, 7th, 13th ... write the process is gone; no file is torn, the rest is asked."""
    folder, kills = place / "killed", 0
    for number in range(1, 60, 6):
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-c", KILLED, str(number), *PROBE]
        command += ["-s", str(place / "q.jsonl"), "-o", str(folder)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        kills += ended.returncode != 0
        for file in folder.rglob("*.parquet"):
            if not file.name.startswith("."):
                assert pl.read_parquet(file).height > 0
        if (folder / "run.json").exists():
            json.loads((folder / "run.json").read_text())
        assert probed(place, "killed") == (0, "")
        assert numbers(folder) == numbers(place / "run")
        if ended.returncode == 0:
            break
    assert kills > 2
