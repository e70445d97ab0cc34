"""Numbers that a change of structure must not change: the commands of cases/frozen.toml.

``python tests/frozen.py`` runs the commands and writes the table again; ``test_frozen.py`` runs them
and compares. ``accuracy`` is the headline of a run (the mean over its groups, or all questions
together), ``consistency reverse`` that of a form, ``p of accuracy`` one of a comparison. The
numbers of the single groups are held by ``digest``: SHA-256 of their names and first nine digits.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from conftest import run_command

TABLE = Path(__file__).parent / "cases" / "frozen.toml"
SHARED = Path(os.environ.get("CONSILIENCE_SHARED", TABLE.parents[3] / "shared")).resolve()

METRICS = (
    "accuracy", "consistency", "consistent_accuracy", "consistent_wrong", "corrected_consistency",
    "chance_consistency", "successful_patterns", "successful_objects", "known_consistency",
    "unknown_consistency", "f1", "determinism", "top_answer", "mean_accuracy", "violation_rate",
)  # fmt: skip

HEADLINES = ("mean", "all", "")
"""What the rows are over that are shown first; a run of one task has only its name."""

Numbers = dict[str, float | str]


def run(command: str) -> tuple[Numbers, str]:
    """The headline numbers of a command that is run here, and the digest of all its numbers."""
    os.environ["CONSILIENCE_DATA"] = str(SHARED / "data")
    arguments = shlex.split(command.replace("SHARED", str(SHARED)))
    status, printed, errors = run_command(*arguments, "--json")
    assert status in (0, 3), errors[-2000:]
    rows = [*_rows(json.loads(printed))]
    digits = sorted(
        f"{group}/{name}={value if isinstance(value, str) else format(value, '.9g')}"
        for group, name, value in rows
    )
    digest = hashlib.sha256("\n".join(digits).encode()).hexdigest()[:16]
    first = next((group for group in HEADLINES if group in {row[0] for row in rows}), rows[0][0])
    return {name: value for group, name, value in rows if group == first}, digest


def _rows(document: dict[str, Any]) -> list[tuple[str, str, float | str]]:
    """Group, name and value of every number of a document that has a value."""
    found = []
    for row in document.get("metrics", []):
        if row["metric"] in METRICS:
            found.append((row["group"] or row["over"], _name(row), row["value"]))
    for row in document.get("differences", []):
        if row["metric"] in METRICS:
            found += [
                (row["group"] or row["over"], f"{key} of {_name(row)}", row[key])
                for key in ("difference", "p")
            ]
    for check in document.get("checks", []):
        found += [("", f"{check[key]}: {check['rule']}" if key == "verdict" else check["rule"],
                   check[key]) for key in ("value", "verdict")]  # fmt: skip
    for row in document.get("numbers", []):
        if "column" in row:  # of a table of a paper
            found.append(("", "; ".join(filter(None, (row["group"], row["row"], row["column"]))),
                          row["ours"]))  # fmt: skip
    return [row for row in found if row[2] is not None]


def _name(row: dict[str, Any]) -> str:
    return f"{row['metric']} {row['level']}".rstrip()


def _write() -> None:
    text = TABLE.read_text(encoding="utf-8")
    lines = [text.split("\n[[runs]]")[0].rstrip()]
    for entry in tomllib.loads(text)["runs"]:
        found, digest = run(entry["command"])
        lines += ["", "[[runs]]", f"command = {json.dumps(entry['command'])}"]
        lines += [f"needs = {json.dumps(entry['needs'])}"] if "needs" in entry else []
        lines += [f'digest = "{digest}"', "[runs.values]"]
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in found.items()]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        _write()
