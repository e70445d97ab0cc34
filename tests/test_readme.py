"""README.md: a reader can run every command of it, and gets the output that it shows."""

import re
import shlex

import pytest

from conftest import ROOT, build_model, real_data

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    match[1].strip()
    for match in re.finditer(r"(?m)(?:^|`)(consilience [a-z][^`#\n]*)", README)
    if "COMMAND" not in match[1]
]
SHOWN = re.search(r"```\n(packaged:smollm2 on mini.*?)```", README, re.DOTALL)[1].splitlines()

# What the commands name and a reader has: models, runs, tables.
HUB_MODELS = ("org/name", "bert-base-cased")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder in which a reader has what the commands name."""
    folder = tmp_path_factory.mktemp("readme")
    build_model("bert", folder / "tiny")
    return folder
