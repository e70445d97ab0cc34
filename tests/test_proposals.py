"""Proposals: patterns that may join a suite, and the table of where its patterns come from."""

import json
import re

import pytest

from checks import refused
from conftest import cases
from consilience.suites import check_suite, load_suite
from consilience.suites.proposals import Proposal, provenance_of, read_proposals, write_proposals

BASE = "The capital of [X] is [Y]."
ROW = {"relation": "capital", "pattern": BASE, "origin": "written"}


def test_proposals_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "proposals.jsonl"
    given = [
        Proposal("capital", BASE, "written"),
        Proposal(
            "capital", "[X]s Hauptstadt ist [Y].", "rewritten", "a model", "CC0-1.0", BASE,
            "diff_syntax", "de", "nominative", "genitive", ("one", "two"), {"facts": 3, "meaning": -0.25},
        ),
    ]  # fmt: skip
    write_proposals(path, given)
    problems = []
    back = read_proposals(path, problems)
    assert [proposal.row() for proposal in back] == [proposal.row() for proposal in given]
    assert [proposal.where for proposal in back] == [f"{path}:1", f"{path}:2"]
    assert not problems
    first = json.loads(path.read_text().splitlines()[0])
    assert first == {"accept": "yes"} | ROW, "empty columns are not written"
    write_proposals(path, [])
    assert path.read_text() == "", "no proposal is an empty file"


def test_a_table_of_tabs_has_numbers_and_one_text_of_evidence(tmp_path):
    path = tmp_path / "proposals.tsv"
    path.write_text(
        f"relation\tpattern\torigin\tevidence\tfacts\tmeaning\tnote\ncapital\t{BASE}\tmined\tone\t4\t0.5\tgood\n"
    )
    problems = []
    (proposal,) = read_proposals(path, problems)
    assert (proposal.evidence, proposal.scores) == (("one",), {"facts": 4, "meaning": 0.5})
    assert not problems


@pytest.mark.parametrize(("changed", "message"), cases("proposals_bad"))
def test_a_faulty_row_is_named_and_left_out(changed, message, tmp_path):
    path = tmp_path / "proposals.jsonl"
    path.write_text(json.dumps(ROW | changed) + "\n" + json.dumps(ROW) + "\n")
    problems = []
    assert len(read_proposals(path, problems)) == 1, "the second row is good"
    (problem,) = problems
    assert re.search(message, str(problem))


def test_check_names_faults_of_the_provenance_of_a_suite(write_suite):
    other = ROW | {"pattern": "The capital of [X] was [Y]."}
    rows = [ROW, other, ROW | {"relation": "capitol"}, ROW]
    found = [str(problem) for problem in check_suite(write_suite(provenance=rows))]
    messages = (
        r":2: 'The capital of \[X\] was \[Y\]\.' is no pattern of 'capital'.*mean",
        ":3: the relation 'capitol'.*mean 'capital'",
        ":4: duplicate row for the pattern .*the first is .*:1",
    )
    assert all(map(re.search, messages, found)) and len(found) == 3


def test_a_suite_does_not_depend_on_its_provenance(write_suite):
    without = load_suite(write_suite()).digest
    folder = write_suite(provenance=[ROW])
    assert load_suite(folder).digest == without and not check_suite(folder)
    assert provenance_of(folder)[0].row() == ROW
    write_suite(provenance=[{**ROW, "origin": "?"}])
    refused(r"provenance\.jsonl:1: the origin '\?'", provenance_of, folder)
