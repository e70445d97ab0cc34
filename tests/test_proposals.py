"""Proposals: patterns that may join a suite, and the table of where its patterns come from."""

import json
import re

import pytest

from conftest import cases
from consilience.files.read import read_rows
from consilience.suites.proposals import Proposal, read_proposals, write_proposals

BASE = "The capital of [X] is [Y]."
ROW = {"relation": "capital", "pattern": BASE, "origin": "written"}


def test_proposals_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "proposals.jsonl"
    given = [
        Proposal("capital", BASE, "written"),
        Proposal(
            "capital", "[X]s Hauptstadt ist [Y].", "rewritten", "a model", BASE,
            "diff_syntax", "de", ("one", "two"), {"facts": 3, "meaning": -0.25},
        ),
    ]  # fmt: skip
    write_proposals(path, given)
    problems = []
    back = read_proposals(read_rows(path), problems, str(path))
    assert [one.pattern for one in back] == [one.pattern for one in given]
    assert (back[1].language, back[1].accept) == ("de", "yes")
    assert [proposal.where for proposal in back] == [f"{path}:1", f"{path}:2"]
    assert not problems
    first = json.loads(path.read_text().splitlines()[0])
    assert first == {"accept": "yes"} | ROW, "empty columns are not written"
    write_proposals(path, [])
    assert path.read_text() == "", "no proposal is an empty file"


@pytest.mark.parametrize(("changed", "message"), cases("proposals_bad"))
def test_a_faulty_row_is_named_and_left_out(changed, message, tmp_path):
    path = tmp_path / "proposals.jsonl"
    path.write_text(json.dumps(ROW | changed) + "\n" + json.dumps(ROW) + "\n")
    problems = []
    assert len(read_proposals(read_rows(path), problems, str(path))) == 1, "the second row is good"
    (problem,) = problems
    assert re.search(message, str(problem))
