"""Numbers that a change of structure must not change."""

import tomllib

import pytest

from frozen import SHARED, TABLE, run

RUNS = tomllib.loads(TABLE.read_text(encoding="utf-8"))["runs"]


@pytest.mark.parametrize("first", [True, False], ids=["facts", "questions"])
def test_the_numbers_of_commands_are_the_same(first, tmp_path, monkeypatch):
    """To the last bit on one machine; a sum in another order may differ in the last digits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONSILIENCE_DATA", "")
    for entry in RUNS:
        if ("questions" in entry["command"]) == first:
            continue
        if not all((SHARED / path).exists() for path in entry.get("needs", [])):
            continue  # data that is no part of this repository
        found, digest = run(entry["command"])
        expected = {
            name: value if isinstance(value, str) else pytest.approx(value, rel=1e-12, abs=1e-12)
            for name, value in entry["values"].items()
        }
        assert found == expected, entry["command"]
        assert digest == entry["digest"], f"a number of one group of: {entry['command']}"
