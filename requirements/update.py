"""Write ``ci.txt``: the versions of ``constraints.txt`` with the SHA-256 of every file of each.

Needs pip-tools (``pip install pip-tools``) and the package index that pip is set up for; takes some
minutes. Run it after a change of ``constraints.txt``, on Linux with Python 3.11, where pip finds
torch's CPU build.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

HEADER = """\
# What CI installs, by SHA-256: pip install --require-hashes --no-deps -r requirements/ci.txt
# The versions are those of constraints.txt, and setuptools, which builds the package. Made by
# requirements/update.py. Each version has the hashes of all its files, for every platform, except
# torch: only its CPU build for Linux on x86-64 and Python 3.11 (torch-2.13.0+cpu). Elsewhere
# install with `pip install -c constraints.txt`.
"""


def name_of(line: str) -> str:
    """The normalised name of a pinned package."""
    return re.sub(r"[-_.]+", "-", line.partition("==")[0].strip()).lower()


def update() -> None:
    """Compile the pins, and keep those of ``constraints.txt`` and setuptools.

    Others are dependencies of the two packages that are installed for their model weights only.
    """
    pins = (HERE.parent / "constraints.txt").read_text(encoding="utf-8")
    wanted = {name_of(line) for line in pins.splitlines() if "==" in line} | {"setuptools"}
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "in.txt"), Path(folder, "out.txt")
        given.write_text(f"{pins}setuptools\n", encoding="utf-8")
        options = ["--generate-hashes", "--allow-unsafe", "--no-annotate", "--no-header", "--quiet"]
        options += ["--no-emit-index-url", "--no-emit-find-links", "--strip-extras"]
        command = [sys.executable, "-m", "piptools", "compile", *options, "-o", made, given]
        subprocess.run(command, check=True)
        text = made.read_text(encoding="utf-8")
    blocks = re.findall(r"^\S+==.*(?:\n +--hash=.*)+", text, flags=re.MULTILINE)
    kept = [block.replace("+cpu", "") for block in blocks if name_of(block) in wanted]
    (HERE / "ci.txt").write_text("\n".join([HEADER, *kept, ""]), encoding="utf-8")


if __name__ == "__main__":
    update()
