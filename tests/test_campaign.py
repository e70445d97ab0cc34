"""One case of every kind of `make campaign`; docs/reliability.md has the long one."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT

CAMPAIGN = ROOT / "tests" / "campaign.py"


def campaign(*options):
    """What a campaign in a process of its own found."""
    command = [sys.executable, str(CAMPAIGN), "--json", *map(str, options)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.stdout, found.stderr[-2000:]
    return found.returncode, json.loads(found.stdout)


pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or not sys.platform.startswith("linux"),
    reason="the campaign forks and sets limits as Linux has them",
)


def test_damaged_files_servers_and_kills_end_as_they_should():
    status, found = campaign("--cases", 1, "--seed", 40)
    assert found["failures"] == []
    assert status == 0
    assert len(found["counts"]) == 30
    assert all(sum(counts.values()) == 1 for counts in found["counts"].values())
    assert len(found["kills"]) == 2


def test_a_failure_is_found_and_named(tmp_path):
    """A case that ends in a traceback, a crash, without end, without memory, or wrong."""
    code = f"""if True:
        import os, sys, time
        sys.path.insert(0, {str(CAMPAIGN.parent)!r})
        from campaign_cases import child
        from pathlib import Path
        from consilience.core.errors import ConsilienceError

        def refuse(found):
            raise ConsilienceError(found)

        def wrong():
            raise child.WrongError("torn")

        acts = {{
            "done": lambda: "read",
            "refused": lambda: refuse("bad"),
            "traceback": lambda: 1 / 0,
            "crash": lambda: os.kill(os.getpid(), 11),
            "timeout": lambda: time.sleep(60),
            "memory": lambda: bytearray(8 << 30),
            "wrong": wrong,
        }}
        for expected, act in acts.items():
            seconds = 0.02 if expected == "timeout" else 30
            print(expected, child.in_child([act], Path({str(tmp_path / "out")!r}), seconds)[0][0])
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in found.stdout.splitlines()]
    assert len(pairs) == 7
    assert all(expected == outcome for expected, outcome in pairs), pairs
