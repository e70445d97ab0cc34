"""docs/export.md: the script that represents any API makes answers that score as the page shows."""

import re
import shlex
import subprocess
import sys

from checks import output
from conftest import ROOT

PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(sh|python|text)\n(.*?)```", PAGE, re.DOTALL)


def test_the_round_trip_of_the_guide(consilience, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    printed, shown = [], []
    for language, block in BLOCKS:
        if language == "python":
            (tmp_path / "api.py").write_text(block, encoding="utf-8")
            assert len(block.strip().splitlines()) <= 20
        elif language == "text":
            shown.append(block)
        elif block.startswith("python "):
            subprocess.run([sys.executable, *block.split()[1:]], cwd=tmp_path, check=True)
        else:
            printed.append(output(consilience, *shlex.split(block)[1:]))
    assert printed == shown
